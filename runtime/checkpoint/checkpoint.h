/*
 * checkpoint.h -- reads and writes parameters and optimizer state on disk, in
 * the safetensors layout: a crash at any point leaves a complete checkpoint,
 * and a file from anywhere can be read safely.
 */
#ifndef RUNTIME_CHECKPOINT_H
#define RUNTIME_CHECKPOINT_H

#include "runtime/comm/comm.h"
#include "runtime/device/device.h"
#include "runtime/params/params.h"

/* ---- safetensors.c: the header of a file ---- */

enum { SAFETENSORS_HEADER_LIMIT = 100 << 20, SAFETENSORS_MAX_RANK = 12 };

typedef struct StoredTensor {
  const char *name;
  DnnDtype dtype;
  uint8_t rank;
  int64_t size[SAFETENSORS_MAX_RANK];
  int64_t begin, end; /* bytes in the data part of its file */
} StoredTensor;

int64_t stored_elements(const StoredTensor *tensor);

typedef struct StoredText {
  const char *key, *value;
} StoredText;

typedef struct StoredHeader {
  StoredTensor *tensors; /* tensors in order of `begin` */
  int n_tensors;
  StoredText *metadata; /* texts by key */
  int n_metadata;
} StoredHeader;

/* Checks everything before it allocates: syntax, no name twice, sizes that are
 * dims x dtype, tensors that fill `data_bytes` without gap or overlap. */
Status safetensors_parse(Arena *arena, const char *text, size_t n,
                         int64_t data_bytes, StoredHeader *out);

typedef struct StoredIndex {
  StoredText *map; /* tensor name to plain file name, by key */
  int n_map;
  StoredText *metadata; /* its texts, by key */
  int n_metadata;
} StoredIndex;

Status safetensors_parse_index(Arena *arena, const char *text, size_t n,
                               StoredIndex *out);

/* Returns whether a name can be a file in a folder and nothing else. */
bool is_plain_file_name(const char *name);
/* Returns whether a name is that of a step, such as step-00001000. */
bool is_step_name(const char *name, int64_t *out_step);

/* Hash of a tensor: XXH3 over blocks of this many bytes, each with the hash of
 * the block before as its seed. */
enum { HASH_BLOCK = 1 << 20 };

/* ---- identity.c: which save a file belongs to ---- */

typedef struct SaveMark {
  int64_t step;
  uint64_t seed;
  bool has_save; /* older files have step and seed only */
  uint64_t save; /* depends on all that was saved */
  int file;      /* number from 1; 0 means the index */
  int n_files;
} SaveMark;

typedef struct SaveMarkTexts {
  char step[24], seed[24], save[24], file[24], check[24];
} SaveMarkTexts;

enum { SAVE_MARK_TEXTS = 5 };

/* Appends the mark's texts, in `room`, to n others and sorts all but the last,
 * a check over those that must not change.  Their lengths never change.
 * Result: how many there are now. */
int save_mark_texts(const SaveMark *mark, SaveMarkTexts *room,
                    StoredText *texts, int n);
/* Reads the mark of a save; `texts` are sorted by key.  Returns false if
 * something is missing or was altered. */
bool save_mark_read(const StoredText *texts, int n, SaveMark *out);
/* Fails with both names and steps where they are of different saves. */
Status save_mark_compare(const SaveMark *a, const char *name_a,
                         const SaveMark *b, const char *name_b);
/* Returns the value of a key among sorted texts.  Returns NULL if there is
 * none. */
const char *stored_text(const StoredText *texts, int n, const char *key);
/* Returns whether a key is "data:NAME": a data file of the run (fingerprint.c).
 */
bool is_data_key(const char *key);

/* ---- restore.c, choose.c, load.c ---- */

typedef struct StoredFile {
  const char *name;
  int fd;
  int64_t data_begin;
  StoredHeader header;
} StoredFile;

/* The place of a tensor. */
typedef struct StoredPlace {
  const StoredTensor *tensor;
  const StoredFile *file;
} StoredPlace;

typedef struct Checkpoint {
  const char *path;  /* the folder, for messages */
  const char *given; /* the folder or file that was asked for */
  StoredFile *files;
  int n_files;
  StoredPlace *places; /* places of all tensors, by name */
  int n_places;
  const StoredIndex *index; /* index, or NULL */
  const char *index_name;
  bool is_own;   /* written by us: step, seed and hashes are there */
  bool has_save; /* it is known which save its files belong to */
  int64_t step;
  uint64_t seed, save;
} Checkpoint;

/* Opens a checkpoint: a folder with an index or with model.safetensors, an
 * index file (.json), or one .safetensors file.  Its files are complete, their
 * headers sound, every tensor is in the file that the index says. */
Status checkpoint_open(Arena *arena, const char *path, Checkpoint *out);
/* Opens a checkpoint, and of a folder of checkpoints the newest. */
/* Returns the step that a file of a folder names, such as `latest`.  Returns -1
 * if it is missing, or after a message if it cannot be read. */
int64_t checkpoint_read_pointer(Arena *arena, const char *folder,
                                const char *name);
Status checkpoint_open_newest(Arena *arena, const char *path, Checkpoint *out);
void checkpoint_close(Checkpoint *checkpoint);
/* Returns the tensor of this name.  Returns NULL if there is none. */
const StoredTensor *checkpoint_tensor(const Checkpoint *checkpoint,
                                      const char *name,
                                      const StoredFile **out_file);
/* Reads `n` bytes of a tensor, from its byte `at` on. */
Status checkpoint_read(const StoredFile *file, const StoredTensor *tensor,
                       int64_t at, void *to, int64_t n);
/* Returns a hash of what the files hold and of which save they are: equal where
 * two ranks have opened the same checkpoint. */
uint64_t checkpoint_identity(const Checkpoint *checkpoint);
/* Loads a checkpoint: every rank reads its own ranges, and all call it
 * together. */
Status checkpoint_load(Arena *arena, const Checkpoint *checkpoint,
                       const DnnProgram *program, Device *device, Comm *comm,
                       bool is_resume);
/* The tensors that a program asks of a checkpoint. */
typedef enum MatchKind {
  MATCH_full,   /* all parameters and states, and no others */
  MATCH_part,   /* tensors that both have in the same sizes; one at least */
  MATCH_resume, /* full, and all of the optimizer state */
} MatchKind;
/* Finds the newest complete checkpoint of a folder; warns of those that it
 * skips.  *out_found is false where there is none at all. */
Status checkpoint_find(Memory *memory, Arena *arena, const char *folder,
                       const DnnProgram *program, MatchKind match,
                       Checkpoint *out, bool *out_found);
/* Locates `path` as --load takes it: a checkpoint, or a folder of them. */
Status checkpoint_locate(Memory *memory, Arena *arena, const char *path,
                         const DnnProgram *program, MatchKind match,
                         Checkpoint *out);

/* ---- values.c: numbers that training cannot use ---- */

/* The numbers of one kind in a tensor, and the first of them. */
typedef struct ValueCount {
  const StoredTensor *tensor;
  int64_t n, at;
  double value;
  DnnDtype dtype; /* dtype into which it was read */
} ValueCount;

typedef struct ValueCounts {
  ValueCount *data;
  int n, capacity;
} ValueCounts;

typedef struct ValueReport {
  Arena *arena;
  ValueCounts odd, beyond; /* NaN or infinity; too large values */
} ValueReport;

ValueReport value_report_create(Arena *arena);
/* Looks at elements [first, first + n) of a tensor as `stored`, and as they
 * were `read` into a float dtype, which may be the same bytes. */
void value_report_look(ValueReport *report, const StoredTensor *tensor,
                       int64_t first, int64_t n, const void *stored,
                       DnnDtype dtype, const void *read);
/* Adds up what the ranks have found in `n` tensors; they call it together, with
 * the same list, in whose order the tensors are then named. */
Status value_report_merge(ValueReport *report, Comm *comm,
                          const StoredTensor *const *tensors, int n);
/* Prints warnings on standard error, if there is something to say. */
void value_report_print(const ValueReport *report, const char *given);

/* ---- match.c: a checkpoint and a program ---- */

/* Returns the tensor of the file that fills `tensor`: of optimizer state only
 * on resume, of an average the parameter where it was not saved.  Returns NULL
 * if there is none, also where its type is another one. */
const StoredTensor *checkpoint_tensor_for(const Checkpoint *checkpoint,
                                          const DnnTensor *tensor,
                                          bool is_resume,
                                          const StoredFile **out_file);
/* Checks that the checkpoint has all that the program needs, in its sizes, and
 * no other parameters; floats may have another float dtype unless it
 * resumes.  If not, out_list gets one line for every tensor that is missing,
 * too many or of another type. */
Status checkpoint_match(Arena *arena, const Checkpoint *checkpoint,
                        const DnnProgram *program, MatchKind match,
                        Text *out_list);
/* Returns whether all tensors have hashes: files of dnnc whose names are not
 * damaged. */
bool checkpoint_has_hashes(const Checkpoint *checkpoint);
/* Checks that the hashes of what the program takes agree.  *out_unhashed is how
 * many of these tensors have none, as in files of other tools. */
Status checkpoint_verify(Arena *arena, const Checkpoint *checkpoint,
                         const DnnProgram *program, bool is_resume,
                         int *out_unhashed);
/* Checks the hash of one tensor; *out_has is false where the file tells none.
 */
Status checkpoint_check_hash(const Checkpoint *checkpoint,
                             const StoredFile *file, const StoredTensor *stored,
                             unsigned char *block, bool *out_has);

/* ---- tensorfile.c: writing files of tensors ---- */

enum { TENSOR_FILE_NAME = 64 };
#define TENSOR_INDEX_NAME "model.safetensors.index.json"
#define TENSOR_FILE_BYTES                                                      \
  ((int64_t)5000000000) /* the size that other tools write */

typedef struct TensorFiles TensorFiles;
/* Copies the bytes [at, at + n) of tensor number `index` to `to`.  It is called
 * for one part of a tensor after the other, from the first byte to the last. */
typedef Status TensorReader(void *user, int index, int64_t at, void *to,
                            int64_t n);
/* Lays `n` tensors (begin and end are ignored) out in files of at most
 * `file_bytes` of data, a greater tensor alone.  `is_single`: if one file takes
 * them all, it is model.safetensors without an index. */
TensorFiles *tensor_files_create(Arena *arena, const StoredTensor *tensors,
                                 int n, int64_t file_bytes, bool is_single);
int tensor_files_count(const TensorFiles *files);
/* Prints the name of file 1, 2, ... */
void tensor_files_name(const TensorFiles *files, int file,
                       char out[TENSOR_FILE_NAME]);
/* Writes and syncs all of them and the index into a folder that has none of
 * these names.  `mark`: step and seed of a save, with which the files are
 * marked, or NULL. */
Status tensor_files_write(TensorFiles *files, int folder,
                          const StoredText *metadata, int n_metadata,
                          const SaveMark *mark, TensorReader *read, void *user);
/* Says how many bytes the disk of `folder` lacks, if that is the cause; called
 * after a failure, when what was written has been removed. */
Status tensor_files_missing_room(TensorFiles *files, int folder,
                                 const StoredText *metadata, int n_metadata,
                                 const SaveMark *mark, Status status);
Status file_write_at(int fd, const void *data, int64_t n, int64_t at);
Status file_sync_and_close(int fd, Status status);
/* Creates a file that must not be there.  Returns -1 with errno after a
 * failure. */
int file_create_at(int folder, const char *name);

/* ---- checkpoint.c: writing ---- */

typedef struct Saver Saver;
/* Makes the folder, takes its lock and clears what an interrupted run left. */
/* Checks that the folder, which may not be there yet, is free.  Invalid means
 * that another run writes to it. */
Status saver_check_free(const char *folder);
Status saver_open(Arena *arena, const DnnProgram *program, const char *folder,
                  int64_t file_bytes, Saver **out);
/* Sets the data on which each save says it was trained: texts of fingerprint.c.
 */
void saver_set_data(Arena *arena, Saver *saver, const StoredText *data, int n);
bool tensor_is_saved(const DnnTensor *tensor);
/* Saves; called on rank 0.  The caller ends `states`, from which the tensors
 * are read. */
Status saver_save(Saver *saver, LogicalReader *states, int64_t step,
                  uint64_t seed);
/* Replaces a small file of the folder: it is complete or unchanged. */
Status saver_write(Saver *saver, const char *name, const char *text, int64_t n);
/* The run continues the one that wrote `best` and the losses; without this call
 * the first save or evaluation forgets both. */
void saver_continue(Saver *saver);
void saver_forget_best(Saver *saver);
/* Returns whether the folder has a checkpoint of this step. */
bool saver_has(const Saver *saver, int64_t step);
/* Lets `best` name the checkpoint of a step, which no later save removes. */
Status saver_point_best(Saver *saver, int64_t step);
void saver_close(Saver *saver);
/* Removes the checkpoint that process `pid` was killed in: for its launcher. */
void saver_clear_after(const char *folder, int pid);

#endif
