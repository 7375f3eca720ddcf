/*
 * params.h -- initial values of persistent buffers, digests of parameters, and
 * tensors whose shards lie on several ranks.
 */
#ifndef RUNTIME_PARAMS_PARAMS_H
#define RUNTIME_PARAMS_PARAMS_H

#include "runtime/comm/comm.h"

/* ---- shards.c: sharded tensors ---- */

bool tensor_is_sharded(const DnnTensor *tensor);
/* Copies between the logical elements [from, end), which lie at `range`, and
 * those of them that `rank` holds, which lie packed at `held`.  Returns the
 * bytes of these. */
int64_t shard_copy(const DnnTensor *tensor, int rank, int64_t from, int64_t end,
                   unsigned char *range, unsigned char *held, bool to_range);
/* Adds the terms at `held`, f32, that `rank` holds of the logical elements
 * [from, end), packed, to the sums at `range`. */
void shard_add(const DnnTensor *tensor, int rank, int64_t from, int64_t end,
               void *range, const void *held);
/* Reads those of the logical elements [from, end) that this rank holds, packed.
 */
Status shard_read(Device *device, const DnnTensor *tensor, int64_t from,
                  int64_t end, unsigned char *held, int64_t *out_bytes);
Status shard_write(Device *device, const DnnTensor *tensor, int64_t from,
                   int64_t end, unsigned char *held);
/* Fills the shard with zeros, padding included, by way of `n` bytes. */
Status shard_clear(Device *device, const DnnTensor *tensor,
                   unsigned char *block, int64_t n);
/* Gathers all elements of a persistent tensor, on all ranks, whoever holds it;
 * they call it together. */
Status tensor_gather(Arena *arena, Comm *comm, Device *device,
                     const DnnTensor *tensor, unsigned char **out);

/* ---- logical.c: logical tensors, a block at a time ---- */

typedef struct LogicalReader LogicalReader;
/* Creates a reader on all ranks; then rank 0 reads until it calls `end`, while
 * the others serve.  `comm` may be NULL where there is one rank. */
LogicalReader *logical_reader_create(Arena *arena, const DnnProgram *program,
                                     Comm *comm, Device *device);
/* Reads bytes [at, at + n) of the logical tensor, which is what one rank would
 * store without a plan.  The bytes must be complete elements.  Works on rank 0,
 * or on any rank that holds all of the tensor. */
Status logical_read(LogicalReader *reader, const DnnTensor *tensor, int64_t at,
                    void *to, int64_t n);
Status logical_end(LogicalReader *reader);
Status logical_serve(LogicalReader *reader);

/* ---- params.c: initial values and digests ---- */

/* Fills one tensor with its initial value, whatever it holds. */
Status params_fill(Arena *arena, Device *device, const DnnTensor *tensor,
                   uint64_t seed);

/* Fills the persistent tensors with their initial values; with `skip`, those of
 * which it is false. */
Status params_init(Arena *arena, const DnnProgram *program, Device *device,
                   uint64_t seed, bool (*skip)(const DnnTensor *tensor));
/* Computes the SHA-256 of all logical parameters, in path order; all ranks call
 * it together.  Where each rank has all of them, each hashes its own. */
Status params_sha256(Arena *arena, const DnnProgram *program, Comm *comm,
                     Device *device, char out_hex[65]);

#endif
