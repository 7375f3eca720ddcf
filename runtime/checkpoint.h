/*
 * checkpoint.h -- parameters and optimizer state on disk, in the safetensors
 * layout: written so that a crash at any point leaves a whole checkpoint, read
 * as if an enemy had written it.
 */
#ifndef RUNTIME_CHECKPOINT_H
#define RUNTIME_CHECKPOINT_H

#include "runtime/runtime.h"

/* ---- safetensors.c: the header of a file ---- */

enum { SAFETENSORS_HEADER_LIMIT = 100 << 20, SAFETENSORS_MAX_RANK = 12 };

typedef struct StoredTensor {
  const char *name;
  DnnDtype dtype;
  uint8_t rank;
  int64_t size[SAFETENSORS_MAX_RANK];
  int64_t begin, end; /* bytes in the data part of its file */
} StoredTensor;

typedef struct StoredText {
  const char *key, *value;
} StoredText;

typedef struct StoredHeader {
  StoredTensor *tensors; /* in order of `begin` */
  int n_tensors;
  StoredText *metadata; /* by key */
  int n_metadata;
} StoredHeader;

/* Checks everything before it allocates: syntax, no name twice, sizes that are
 * dims x dtype, tensors that fill `data_bytes` without gap or overlap. */
Status safetensors_parse(Arena *arena, const char *text, size_t n,
                         int64_t data_bytes, StoredHeader *out);

/* "weight_map" of an index: tensor name to plain file name. */
Status safetensors_parse_index(Arena *arena, const char *text, size_t n,
                               StoredText **out, int *out_n);

/* A name that can be a file in a folder and nothing else. */
bool is_plain_file_name(const char *name);
bool is_step_name(const char *name, int64_t *out_step); /* step-00001000 */

/* Hash of a tensor: XXH3 over pieces of this many bytes, each with the hash of
 * the piece before as its seed. */
enum { HASH_PIECE = 1 << 20 };

/* Guards step and seed, as the tensors' hashes guard them. */
uint64_t checkpoint_check(int64_t step, uint64_t seed);

/* ---- restore.c ---- */

typedef struct StoredFile {
  const char *name;
  int fd;
  int64_t data_begin;
  StoredHeader header;
} StoredFile;

/* Where a tensor is. */
typedef struct StoredPlace {
  const StoredTensor *tensor;
  const StoredFile *file;
} StoredPlace;

typedef struct Checkpoint {
  const char *path; /* for messages */
  StoredFile *files;
  int n_files;
  StoredPlace *places; /* of all tensors, by name */
  int n_places;
  bool is_own; /* written by us: step, seed and hashes are there */
  int64_t step;
  uint64_t seed;
} Checkpoint;

/* Opens the checkpoint in the folder `path`: its files are whole, their headers
 * sound, every tensor is in the file that the index says. */
Status checkpoint_open(Arena *arena, const char *path, Checkpoint *out);
void checkpoint_close(Checkpoint *checkpoint);
/* All tensors that `program` needs are there with their type and size, and
 * their hashes agree.  `is_resume`: moments and averages too. */
Status checkpoint_verify(Arena *arena, const Checkpoint *checkpoint,
                         const DnnProgram *program, bool is_resume);
/* Rank 0 reads (`checkpoint` is NULL elsewhere), all ranks get the values. */
Status checkpoint_load(Arena *arena, const Checkpoint *checkpoint,
                       const DnnProgram *program, Device *device, Comm *comm,
                       bool is_resume);
/* The newest whole checkpoint of a folder; says on standard error what it
 * passes over.  *out_found is false where there is none at all. */
Status checkpoint_find(Memory *memory, Arena *arena, const char *folder,
                       const DnnProgram *program, bool is_resume,
                       Checkpoint *out, bool *out_found);
/* `path` as --load takes it: a checkpoint, or a folder of them. */
Status checkpoint_locate(Memory *memory, Arena *arena, const char *path,
                         const DnnProgram *program, Checkpoint *out);

/* ---- checkpoint.c: writing ---- */

typedef struct Saver Saver;
/* Makes the folder, takes its lock and clears what an interrupted run left. */
Status saver_open(Arena *arena, const DnnProgram *program, const char *folder,
                  Saver **out);
Status saver_save(Saver *saver, Device *device, int64_t step, uint64_t seed);
void saver_close(Saver *saver);

#endif
