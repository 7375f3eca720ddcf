/*
 * data.h -- the data of a run: the files that a model names, and the samples of
 * each step.
 */
#ifndef RUNTIME_DATA_DATA_H
#define RUNTIME_DATA_DATA_H

#include "runtime/device/device.h"
#include "runtime/tensor/tensor.h"
#include "support/tables.h"

/* The places in which input files are looked for: `folder`, the current
 * directory, the model's folder. */
typedef struct InputSearch {
  const char *folder, *model_dir; /* folders, or NULL */
  /* True if symbolic links to files outside of these folders are followed. */
  bool follows_links;
  /* A signalfd that ends long reads, or 0.  The caller sets it to 0 once there
   * is work that a stop must save.  NULL means that no signal ends a read. */
  const int *signals;
} InputSearch;

/* ---- data.c, blocks.c, places.c: what the samples of a step are ---- */

typedef struct Data Data;
/* Opens every file that the program names.  How many samples and steps there
 * are follows from all programs of the bundle; NULL means from this one. */
Status data_open(Arena *arena, const DnnProgram *program,
                 const DnnBundle *bundle, const InputSearch *search,
                 uint64_t seed, Data **out);
void data_close(Data *data);
/* Checks that there is a batch to train on, a sample for each evaluation that
 * is asked for, and that blocks which are read together have one length. */
Status data_check(const Data *data);
/* Blocks that an entry point reads, by their indices in the program: the
 * longest and one that is shorter and does not cycle. */
typedef struct DataLengths {
  int longer, shorter;
  int64_t n_longer, n_shorter; /* samples */
} DataLengths;
/* Returns whether there are blocks of different lengths.  `is_eval` asks for
 * their samples for evaluation. */
bool data_lengths_differ(const Data *data, const DnnEntryPoint *entry,
                         bool is_eval, DataLengths *out);
/* Fails with a message if there are blocks of different lengths. */
Status data_check_lengths(const Data *data, const DnnEntryPoint *entry,
                          bool is_eval);
/* Unpacks the files that are unpacked as they are read: each holds what its
 * header announces. */
Status data_check_packed(const Data *data);
/* Returns the steps of an epoch, 0 without training data. */
int64_t data_steps_per_epoch(const Data *data);
/* Returns the samples for evaluation, 0 if there are none. */
int64_t data_eval_samples(const Data *data);
/* Fills the DATA tensors of the entry point `train` for step t (from 1). */
Status data_fill_train(Data *data, Device *device, const DnnEntryPoint *train,
                       int64_t t);
/* Does the same in slot `slot`, modulo their number, of the tensors. */
Status data_fill_slot(Data *data, Device *device, const DnnEntryPoint *train,
                      int64_t t, int64_t slot);
/* Reads the samples of step t into host memory, from which data_fill_train then
 * takes them; what is wrong with them, that call says. */
void data_read_ahead(Data *data, Device *device, const DnnEntryPoint *train,
                     int64_t t);
/* Fills the DATA tensors with `entry->batch` samples of the evaluation from
 * `first` on, in order; or, for `is_random`, at offsets that depend on `first`
 * only. */
Status data_fill_eval(Data *data, Device *device, const DnnEntryPoint *entry,
                      int64_t first, bool is_random);
/* Returns the samples that `entry` can be given: those of the evaluation. */
int64_t data_samples(const Data *data, const DnnEntryPoint *entry);
/* Fills in samples [first, first + n) of them, in order; zeros in what is left
 * of the batch. */
Status data_fill_records(Data *data, Device *device, const DnnEntryPoint *entry,
                         int64_t first, int64_t n);
int64_t data_resident_bytes(const Data *data);

/* ---- patterns.c: names and patterns ---- */

/* Replaces each name that is a pattern by the files that fit it, in the order
 * of their bytes.  Fails where none does. */
Status input_expand(Arena *arena, const char *const *names, int n,
                    const InputSearch *search, const char *const **out,
                    int *out_n);
/* Returns whether there is a file for each name, some for each pattern. */
bool input_all_exist(Arena *arena, const char *const *names, int n,
                     const InputSearch *search);

/* ---- files.c: inputs ---- */

typedef struct Packed Packed;

/* Bytes of a file: on disk, or of a compressed one. */
typedef struct InputFile {
  const char *path;
  int fd;                  /* -1 means compressed, or closed between reads */
  uint64_t device, number; /* of the file that was opened */
  int64_t n;               /* bytes; of a compressed one what it announces */
  Packed *packed;          /* NULL means not compressed */
  const int *signals;      /* signals as in InputSearch */
} InputFile;

/* Returns how many bytes a file has, by its first `n`. */
typedef int64_t InputLimit(const unsigned char *bytes, int64_t n);
/* The limit of what input_next reads: it may be of any size. */
InputLimit input_streams;
/* Opens a file.  `limit` is of a ".gz", which is unpacked as it is read; NULL
 * means that all of it is unpacked at once. */
Status input_open(Arena *arena, const char *name, const InputSearch *search,
                  InputLimit *limit, InputFile *out);
/* Opens a file of this very path, as it is. */
Status input_open_path(const char *path, const InputSearch *search,
                       InputFile *out);
/* Checks that the file or folder, which may not be there yet, is below one of
 * the folders of `search`, or that links are followed. */
Status input_check_links(const char *path, const InputSearch *search);
/* Returns where the file is.  Returns NULL if there is none. */
const char *input_locate(Arena *arena, const char *name, const char *folder,
                         const char *model_dir);
/* Returns whether there is such a file, in any of the three places. */
bool input_exists(Arena *arena, const char *name, const InputSearch *search);
Status input_read(const InputFile *file, int64_t at, void *to, int64_t n);
/* Reads the next bytes, `at` being how many were read so far: *out_n of them,
 * at most `n`; 0 at the end. */
Status input_next(const InputFile *file, int64_t at, void *to, int64_t n,
                  int64_t *out_n);
/* Closes a plain file until it is read: there may be more files than a process
 * may have open. */
void input_release(InputFile *file);
void input_close(InputFile *file);

#endif
