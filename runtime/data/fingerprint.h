/*
 * fingerprint.h -- declares the record that a checkpoint has of the data files
 * that its run was trained on.
 */
#ifndef RUNTIME_DATA_FINGERPRINT_H
#define RUNTIME_DATA_FINGERPRINT_H

#include "runtime/checkpoint/checkpoint.h"

/* Computes size and hash of a file on disk, of 66 MB at most. */
Status data_hash_file(Arena *arena, const char *path, int64_t *out_bytes,
                      uint64_t *out_hash);
/* Makes a text "data:NAME" for each data file of the program, by key. */
Status data_fingerprint(Arena *arena, const DnnProgram *program,
                        const char *folder, StoredText **out, int *out_n);
/* Checks that the data files are what the checkpoint was trained on.  If
 * `is_allowed`, a difference is a warning. */
Status data_compare(Arena *arena, const Checkpoint *checkpoint,
                    const StoredText *now, int n, bool is_allowed);

#endif
