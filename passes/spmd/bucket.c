/*
 * bucket.c -- join the all-reduces of gradients into a few large messages.
 *
 *     %7 = all_reduce %4          %7:2 = all_reduce %4, %6 {bucket = 0}
 *     %8 = all_reduce %6     =>
 *
 * Gradients are taken in the order in which the backward pass makes them.  A
 * bucket is closed when it holds enough bytes; the first one early, so that the
 * network starts early (Li et al. 2020).  Nodes that need a bucket move after
 * it.  Scalars (the loss) join the last bucket.  list_schedule starts a bucket
 * as soon as its last gradient is ready.  Two all-reduces are joined only if
 * equally many collectives precede both, so that no path leads from one to the
 * other, and both run for each micro-batch, both once before the micro-batches
 * or both once after them.
 *
 * requires: partitioned graph     keeps: values, placements
 * breaks: the order of nodes, within dependencies
 * cost: O(nodes x collectives on one path)
 */
#include "passes/rewrite.h"

#include <stdlib.h>

#define DEFAULT_BYTES (25 << 20)
#define FIRST_BYTES   (1 << 20)

typedef struct Reduction {
  int id;    /* the all_reduce */
  int ready; /* where its input is made */
  int depth; /* collectives before it */
  int64_t bytes;
  bool is_scalar;
  bool is_before; /* micro-batches read it */
} Reduction;

typedef struct Bucket {
  VEC(int) ids;
  int missing; /* parts whose input is not emitted yet */
} Bucket;

typedef struct Bucketing {
  const Graph *graph;
  Rewrite rewrite;
  VEC(Reduction) reductions;
  VEC(Bucket) buckets;
  int *bucket_of; /* by node id of an all_reduce; -1 */
} Bucketing;

/* Reductions of one kind may share a bucket. */
static Name bucket_kind(const Graph *graph, Arena *arena, const Reduction *r) {
  const Node *node = graph->nodes.data[r->id];
  int n;
  const Name *axes = node_names(node, ATTR_axes, &n);
  Name reduce = node_name(node, ATTR_reduce);
  Text text = text_create(arena);
  text_printf(&text, "%d %d %d %s %d", r->depth, r->is_before,
              node_is_per_microbatch(graph, r->id), reduce ? reduce : "",
              node->types[0]->dtype);
  for (int i = 0; i < n; i++) text_printf(&text, " %s", axes[i]);
  return name_intern(graph->module->names, text_string(&text));
}

static int compare_reductions(const void *a, const void *b) {
  const Reduction *x = a, *y = b;
  if (x->is_scalar != y->is_scalar) return x->is_scalar - y->is_scalar;
  return x->ready != y->ready ? x->ready - y->ready : x->id - y->id;
}

static void collect_reductions(Bucketing *b, Arena *arena) {
  const Graph *graph = b->graph;
  int *depth = ARENA_ARRAY(arena, int, graph->nodes.n);
  const bool *is_before = nodes_before_microbatches(graph, arena);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      int d = depth[from] + op_has(graph->nodes.data[from]->op, OP_FLAG_group);
      if (d > depth[id]) depth[id] = d;
    }
    if (node->op != OP_all_reduce || node->n_inputs != 1) continue;
    const Type *type = node->types[0];
    vec_push(arena, &b->reductions,
             (Reduction){.id = id,
                         .ready = node->inputs[0].node,
                         .depth = depth[id],
                         .is_scalar = type->rank == 0,
                         .is_before = is_before[id],
                         .bytes = type_local_elements(type, &graph->mesh) *
                                  dtype_size_bytes(type->dtype)});
  }
  if (b->reductions.n > 1)
    qsort(b->reductions.data, (size_t)b->reductions.n, sizeof(Reduction),
          compare_reductions);
}

/* Parts in order fill one open bucket for each kind of part. */
static void fill_buckets(Bucketing *b, Arena *arena, int64_t limit) {
  typedef struct Open {
    int64_t bytes;
    int bucket; /* -1: none */
  } Open;
  Map *open = map_create(arena); /* by kind */
  for (int i = 0; i < b->reductions.n; i++) {
    const Reduction *reduction = &b->reductions.data[i];
    Name kind = bucket_kind(b->graph, arena, reduction);
    Open *o = map_get(open, kind);
    if (!o) {
      o = ARENA_NEW(arena, Open);
      o->bucket = -1;
      map_put(open, kind, o);
    }
    if (o->bucket < 0) {
      vec_push(arena, &b->buckets, (Bucket){.missing = 0});
      o->bucket = b->buckets.n - 1;
      o->bytes = 0;
    }
    Bucket *bucket = &b->buckets.data[o->bucket];
    vec_push(arena, &bucket->ids, reduction->id);
    bucket->missing++;
    b->bucket_of[reduction->id] = o->bucket;
    o->bytes += reduction->bytes;
    int64_t full = o->bucket == 0 && limit > FIRST_BYTES ? FIRST_BYTES : limit;
    bool scalars_follow =
        i + 1 < b->reductions.n && b->reductions.data[i + 1].is_scalar;
    if (o->bytes >= full && !scalars_follow) o->bucket = -1;
  }
}

static void emit_bucket(Bucketing *b, int index) {
  Bucket *bucket = &b->buckets.data[index];
  Arena *arena = b->rewrite.ctx->scratch;
  int n = bucket->ids.n, n_axes;
  Value *inputs = ARENA_ARRAY(arena, Value, n);
  const Type **types = ARENA_ARRAY(arena, const Type *, n);
  for (int i = 0; i < n; i++) {
    const Node *node = b->graph->nodes.data[bucket->ids.data[i]];
    inputs[i] = rewrite_get(&b->rewrite, node->inputs[0]);
    types[i] = node->types[0];
  }
  const Node *like = b->graph->nodes.data[bucket->ids.data[0]];
  Attrs attrs = {0};
  const Name *axes = node_names(like, ATTR_axes, &n_axes);
  attrs_names(&attrs, ATTR_axes, axes, n_axes);
  attrs_name(&attrs, ATTR_reduce, node_name(like, ATTR_reduce));
  attrs_int(&attrs, ATTR_bucket, index);
  rewrite_at(&b->rewrite, bucket->ids.data[0]);
  Value first = graph_append_typed(b->rewrite.to, OP_all_reduce, inputs, n,
                                   &attrs, types, n, NULL);
  for (int i = 0; i < n; i++)
    rewrite_set(&b->rewrite, (Value){bucket->ids.data[i], 0},
                (Value){first.node, i});
}

/* Emits the node, or counts it for its bucket, if its inputs are emitted. */
static bool emit_if_ready(Bucketing *b, int id) {
  const Node *node = b->graph->nodes.data[id];
  for (int i = 0; i < node->n_inputs; i++) {
    Value in = node->inputs[i];
    if (!value_is(b->rewrite.map[in.node][in.result])) return false;
  }
  int bucket = b->bucket_of[id];
  if (bucket < 0)
    rewrite_copy(&b->rewrite, id);
  else if (--b->buckets.data[bucket].missing == 0)
    emit_bucket(b, bucket);
  return true;
}

Graph *pass_bucket(PassContext *ctx, const Graph *graph) {
  Bucketing b = {.graph = graph, .rewrite = rewrite_begin(ctx, graph)};
  Arena *arena = ctx->scratch;
  int n = graph->nodes.n;
  b.bucket_of = ARENA_ARRAY(arena, int, n);
  for (int id = 0; id < n; id++) b.bucket_of[id] = -1;
  collect_reductions(&b, arena);
  int64_t limit = ctx->plan && ctx->plan->bucket_bytes > 0
                      ? ctx->plan->bucket_bytes
                      : DEFAULT_BYTES;
  fill_buckets(&b, arena, limit);
  /* Nodes that wait for a bucket are left for the next round. */
  int *todo = ARENA_ARRAY(arena, int, n);
  int n_todo = n;
  for (int id = 0; id < n; id++) todo[id] = id;
  while (n_todo > 0) {
    int n_left = 0;
    for (int i = 0; i < n_todo; i++)
      if (!emit_if_ready(&b, todo[i])) todo[n_left++] = todo[i];
    ASSERT(n_left < n_todo);
    n_todo = n_left;
  }
  return rewrite_end(&b.rewrite);
}
