/*
 * params.h -- initial values of persistent buffers, digests of parameters, and
 * tensors whose shards lie on several ranks.
 */
#ifndef RUNTIME_PARAMS_PARAMS_H
#define RUNTIME_PARAMS_PARAMS_H

#include "runtime/comm/comm.h"

/* ---- shards.c: sharded tensors ---- */

bool tensor_is_sharded(const DnnTensor *tensor);
/* All elements of a persistent tensor, on all ranks; they call it together. */
Status tensor_gather(Arena *arena, Comm *comm, Device *device,
                     const DnnTensor *tensor, unsigned char **out);
/* Writes the shard of this rank of a full tensor. */
Status tensor_write_shard(Arena *arena, Device *device, const DnnTensor *tensor,
                          unsigned char *full);

/* ---- params.c: initial values and digests ---- */

/* The initial value of one tensor, whatever it holds. */
Status params_fill(Arena *arena, Device *device, const DnnTensor *tensor,
                   uint64_t seed);

/* Fills the persistent tensors with their initial values; with `skip`, those of
 * which it is false. */
Status params_init(Arena *arena, const DnnProgram *program, Device *device,
                   uint64_t seed, bool (*skip)(const DnnTensor *tensor));
/* SHA-256 of all parameters as one rank would store them, in path order; all
 * ranks call it together. */
Status params_sha256(Arena *arena, const DnnProgram *program, Comm *comm,
                     Device *device, char out_hex[65]);

#endif
