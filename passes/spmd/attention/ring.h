/*
 * ring.h -- declares the values of ring attention: sequences as shards, and
 * what each shard sees in a turn.
 */
#ifndef PASSES_SPMD_ATTENTION_RING_H
#define PASSES_SPMD_ATTENTION_RING_H

#include "passes/passes.h"

/* One attention, or its gradient, that is being written. */
typedef struct Ring {
  Graph *to;
  const Node *node;
  Name query, key, shards; /* `shards`: the dim that numbers them */
  Name halves;             /* the early and the late half of a shard */
  const PlanShard *line;   /* shards the queries */
  int64_t n, n_keys;       /* shards, and keys of all of them */
  bool is_causal, is_zigzag;
  bool counts_keys; /* no mask hides the padding of keys */
} Ring;

/* Returns the dim of the elements of a shard of `dim`, or of a half of that
 * dim.  Lines about `dim` are not about it. */
Name ring_inner_name(const Ring *r, Name dim);
/* Returns the shards of a dim as a dim in front of it; padding becomes
 * elements. */
Value ring_split(const Ring *r, Value value, Name dim);
/* Returns the value with its shards joined, in the dtype and dim order of
 * `like`. */
Value ring_merge(const Ring *r, Value value, Name dim, const Type *like);
/* Gives each shard the `n` values of the one before it, and the first shard
 * those of the last. */
void ring_rotate(const Ring *r, Value *values, int n);

/* Returns `a` where the condition holds, else `b`, in the dim order of `like`.
 */
Value ring_pick(const Ring *r, Value condition, Value a, Value b, Value like);
/* Returns the value, but `other` in the shards that a causal mask lets see no
 * keys in this turn, of a sequence in order. */
Value ring_where_seen(const Ring *r, int64_t turn, Value value, double other);
/* Returns i32[shards]: how many keys of the shard that it has each one sees in
 * this turn. */
Value ring_count_keys(const Ring *r, int64_t turn);

/* ---- halves of shards, for a sequence in zigzag order ---- */

/* A turn in which shards see keys of others. */
typedef struct RingHalfTurn {
  Value is_before; /* bool[shards]: the keys are those of an earlier shard */
  Value is_late;   /* bool[halves] */
} RingHalfTurn;

RingHalfTurn ring_half_turn(const Ring *r, int64_t turn);
/* Returns the halves of shards of `dim` as a dim, and back. */
Value ring_split_halves(const Ring *r, Value value, Name dim);
Value ring_join_halves(const Ring *r, Value value, Name dim);
Value ring_half(const Ring *r, Value value, int index);
Value ring_exchange_halves(const Ring *r, Value value);
/* Returns, for each shard, both halves of the queries, or twice the late one.
 */
Value ring_half_queries(const Ring *r, const RingHalfTurn *turn, Value value);
/* Returns the keys that they see: twice the early half of the keys; or the late
 * and the early one. */
Value ring_half_keys(const Ring *r, const RingHalfTurn *turn, Value value);

#endif
