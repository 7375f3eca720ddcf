/*
 * kernel_dims.c -- finds the loop dims of a kernel from the sharding column of
 * its operators.
 *
 * A dim of an operand and the dim of a result that has its name in the rule of
 * the operator are one.  Inside of a fused kernel this is followed from node to
 * node.  A sum over a sharded dim leaves a partial result if nothing else reads
 * it; else the ranks must add it up inside of the kernel.
 *
 * A scan is one kernel.  A carry has the same dims before and behind an
 * iteration, so what its body makes of a dim is the same dim mostly.  A dim
 * that an iteration sums for itself would need a message in each of them, so it
 * is whole, as the scanned dim is; dims of one name are one.
 */
#include "price/units/kernel_dims.h"

#include <string.h>

#include "ir/scan.h"

struct KernelDimsTable {
  Arena *arena;
  Map *known; /* kernel_key -> KernelDims, or the table itself: none */
};

KernelDimsTable *kernel_dims_create(Arena *arena) {
  KernelDimsTable *table = ARENA_NEW(arena, KernelDimsTable);
  *table = (KernelDimsTable){arena, map_create(arena)};
  return table;
}

/* ---- joining dims ---- */

enum { MOST_FOUND_DIMS = 64 }; /* a bit each */

typedef struct DimFinder {
  Arena *arena;
  const Graph *graph; /* the body, or the graph of the kernel */
  int n;              /* dims found so far, joined ones included */
  int joined[MOST_FOUND_DIMS];
  LoopDim dims[MOST_FOUND_DIMS];
  bool is_full;
  bool is_by_name; /* dims of one name and size are one */
} DimFinder;

static int find(const DimFinder *f, int at) {
  while (f->joined[at] != at) at = f->joined[at];
  return at;
}

static int add(DimFinder *f, Name name, int64_t size) {
  for (int i = 0; i < f->n && f->is_by_name; i++)
    if (f->dims[i].name == name && f->dims[i].size == size) return find(f, i);
  if (f->n == MOST_FOUND_DIMS) {
    f->is_full = true;
    return 0;
  }
  f->joined[f->n] = f->n;
  f->dims[f->n] = (LoopDim){.name = name, .size = size};
  return f->n++;
}

static int64_t stricter(int64_t even, int64_t other) {
  if (even == 0 || other == 0) return even + other;
  return even < other ? even : other;
}

static int join(DimFinder *f, int a, int b) {
  a = find(f, a);
  b = find(f, b);
  if (a == b) return a;
  if (b < a) {
    int c = a;
    a = b;
    b = c;
  }
  f->joined[b] = a;
  if (f->dims[b].size < f->dims[a].size) f->dims[a].size = f->dims[b].size;
  f->dims[a].is_whole |= f->dims[b].is_whole;
  f->dims[a].even = stricter(f->dims[a].even, f->dims[b].even);
  return a;
}

/* ---- a node ---- */

/* The dims of a value, and over which of them a sum has been left open. */
typedef struct FoundValue {
  DimMap dims;
  uint64_t open; /* by dim as found */
} FoundValue;

typedef struct FoundSum {
  uint64_t over;
  const Type *type;
  DimMap dims;
} FoundSum;

/* The dims of windows may be sharded at the price of messages between
 * neighbours, which no table has. */
static bool is_window(const ShardCall *call, Name dim) {
  const Attr *space = shard_call_attr(call, ATTR_space);
  for (int i = 0; space && i < space->n; i++)
    if (space->names[i] == dim) return true;
  return false;
}

/* The dim of an iteration dim of a node. */
static int dim_of(DimFinder *f, const ShardCall *call, const ShardDim *dim,
                  const FoundValue *inputs) {
  int at = -1;
  for (int i = 0; i < call->n_inputs; i++) {
    int d = type_find(call->inputs[i], dim->name);
    if (d < 0) continue;
    at = at < 0 ? inputs[i].dims.at[d] : join(f, at, inputs[i].dims.at[d]);
  }
  for (int r = 0; r < call->n_results && at < 0; r++) {
    Name name = dim->result_name ? dim->result_name : dim->name;
    int d = type_find(call->results[r], name);
    if (d >= 0) at = add(f, name, call->results[r]->dims[d].size);
  }
  if (at < 0) return -1;
  at = find(f, at);
  bool is_whole =
      dim->treatment == SHARD_replicate || is_window(call, dim->name);
  f->dims[at].is_whole |= is_whole;
  f->dims[at].even = stricter(f->dims[at].even, dim->even_size);
  return at;
}

static bool leaves_sum(const ShardDim *dim) {
  return dim->treatment != SHARD_pass && dim->treatment != SHARD_replicate;
}

/* Fills in the dims of the results. */
static void follow_node(DimFinder *f, const ShardCall *call,
                        const FoundValue *inputs, FoundValue *results) {
  ShardRule *rule = ARENA_NEW(f->arena, ShardRule);
  shard_rule(call, rule);
  uint64_t open = 0;
  for (int i = 0; i < call->n_inputs; i++) open |= inputs[i].open;
  for (int r = 0; r < call->n_results; r++) {
    memset(results[r].dims.at, -1, sizeof results[r].dims.at);
    results[r].open = open;
  }
  for (int i = 0; i < rule->n; i++) {
    int at = dim_of(f, call, &rule->dims[i], inputs);
    for (int r = 0; r < call->n_results && at >= 0; r++) {
      Name name = rule->dims[i].result_name;
      int d = name ? type_find(call->results[r], name) : -1;
      if (d >= 0)
        results[r].dims.at[d] = (int8_t)at;
      else if (leaves_sum(&rule->dims[i]))
        results[r].open |= (uint64_t)1 << at;
    }
  }
  for (int r = 0; r < call->n_results; r++)
    for (int d = 0; d < call->results[r]->rank; d++)
      if (results[r].dims.at[d] < 0) {
        int at = add(f, call->results[r]->dims[d].name,
                     call->results[r]->dims[d].size);
        f->dims[at].is_whole = true;
        results[r].dims.at[d] = (int8_t)at;
      }
}

static FoundValue *operands(DimFinder *f, const Graph *graph,
                            const Node *node) {
  FoundValue *found = ARENA_ARRAY(f->arena, FoundValue, node->n_inputs + 1);
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *type = graph_type(graph, node->inputs[i]);
    for (int d = 0; d < type->rank && d < MAX_RANK; d++)
      found[i].dims.at[d] =
          (int8_t)add(f, type->dims[d].name, type->dims[d].size);
  }
  return found;
}

/* ---- a fused kernel ---- */

typedef struct BodyWalk {
  DimFinder *f;
  const Graph *body;
  FoundValue **values; /* by node: its results */
  const int *n_uses;
  VEC(FoundSum) sums;
} BodyWalk;

static bool keeps_sum_open(const Graph *body, const Node *node) {
  ShardCall call = shard_call(body, node);
  return node->n_inputs == 1 && shard_linearity(&call) != LINEAR_no;
}

/* The operands of a node, each added up first unless the node is linear. */
static FoundValue *read_operands(BodyWalk *w, const Node *node) {
  DimFinder *f = w->f;
  FoundValue *inputs = ARENA_ARRAY(f->arena, FoundValue, node->n_inputs + 1);
  for (int i = 0; i < node->n_inputs; i++) {
    Value v = node->inputs[i];
    FoundValue *value = &w->values[v.node][v.result];
    if (value->open && !keeps_sum_open(w->body, node)) {
      vec_push(f->arena, &w->sums,
               ((FoundSum){value->open, graph_type(w->body, v), value->dims}));
      value->open = 0;
    }
    inputs[i] = *value;
  }
  return inputs;
}

static void walk_body(BodyWalk *w, const FoundValue *arguments) {
  const Graph *body = w->body;
  w->values = ARENA_ARRAY(w->f->arena, FoundValue *, body->nodes.n);
  for (int i = 0; i < body->inputs.n; i++)
    w->values[body->inputs.data[i].value.node] =
        arena_copy(w->f->arena, &arguments[i], sizeof *arguments);
  for (int id = 0; id < body->nodes.n; id++) {
    const Node *node = body->nodes.data[id];
    if (w->values[id]) continue;
    w->values[id] = ARENA_ARRAY(w->f->arena, FoundValue, node->n_results);
    ShardCall call = shard_call(body, node);
    follow_node(w->f, &call, read_operands(w, node), w->values[id]);
  }
}

/* The results of a fused node. */
static void follow_fused(DimFinder *f, BodyWalk *w, const Node *node,
                         const FoundValue *inputs, FoundValue *results) {
  w->f = f;
  w->body = node->body;
  walk_body(w, inputs);
  for (int r = 0; r < node->n_results; r++) {
    Value v = node->body->outputs.data[r].value;
    results[r] = w->values[v.node][v.result];
  }
}

/* ---- a scan ---- */

/* As LoopBody. */
typedef struct FoundBody {
  FoundValue **values;
  struct FoundBody **inner;
} FoundBody;

static void make_whole(DimFinder *f, uint64_t dims) {
  for (int i = 0; i < f->n; i++)
    if (dims >> i & 1) f->dims[find(f, i)].is_whole = true;
}

/* The dims of a value, by their names in another one that has them. */
static FoundValue named_value(const FoundValue *value, const Type *type,
                              const Type *to) {
  FoundValue out = {.open = value->open};
  memset(out.dims.at, -1, sizeof out.dims.at);
  for (int d = 0; d < to->rank; d++) {
    int at = type_find(type, to->dims[d].name);
    if (at >= 0) out.dims.at[d] = value->dims.at[at];
  }
  return out;
}

/* An iteration has no part of the scanned dim but an element. */
static void make_scanned_whole(DimFinder *f, const Type *type,
                               const FoundValue *value, Name dim) {
  int d = type_find(type, dim);
  if (d >= 0) f->dims[find(f, value->dims.at[d])].is_whole = true;
}

/* Operands of a node of the body: what is summed for it is whole. */
static const FoundValue *read_in_loop(DimFinder *f, const Graph *body,
                                      const FoundBody *found,
                                      const Node *node) {
  FoundValue *inputs = ARENA_ARRAY(f->arena, FoundValue, node->n_inputs + 1);
  for (int i = 0; i < node->n_inputs; i++) {
    FoundValue *value =
        &found->values[node->inputs[i].node][node->inputs[i].result];
    if (value->open && !keeps_sum_open(body, node)) {
      make_whole(f, value->open);
      value->open = 0;
    }
    inputs[i] = *value;
  }
  return inputs;
}

static FoundBody *follow_loop(DimFinder *f, const Graph *graph,
                              const Node *node, const FoundValue *inputs,
                              FoundValue *results);

static void follow_in_loop(DimFinder *f, const Graph *body, int id,
                           FoundBody *found) {
  const Node *node = body->nodes.data[id];
  const FoundValue *inputs = read_in_loop(f, body, found, node);
  BodyWalk walk = {0};
  if (node->op == OP_scan) {
    found->inner[id] = follow_loop(f, body, node, inputs, found->values[id]);
  } else if (node->op == OP_fused) {
    follow_fused(f, &walk, node, inputs, found->values[id]);
    for (int i = 0; i < walk.sums.n; i++) make_whole(f, walk.sums.data[i].over);
  } else {
    ShardCall call = shard_call(body, node);
    follow_node(f, &call, inputs, found->values[id]);
  }
}

/* A carry lies in the next iteration as it does in this one. */
static void join_carry(DimFinder *f, const Node *node, const FoundBody *found,
                       int carry) {
  const Graph *body = node->body;
  Value before = body->inputs.data[carry].value;
  Value behind = body->outputs.data[carry].value;
  const Type *type = graph_type(body, before);
  FoundValue *made = &found->values[behind.node][behind.result];
  FoundValue next = named_value(made, graph_type(body, behind), type);
  make_whole(f, made->open);
  made->open = 0;
  for (int d = 0; d < type->rank; d++)
    if (next.dims.at[d] >= 0)
      join(f, next.dims.at[d], found->values[before.node]->dims.at[d]);
}

static FoundValue loop_result(DimFinder *f, const Node *node,
                              const FoundBody *found, int result) {
  const Type *type = node->types[result];
  Value v = node->body->outputs.data[result].value;
  FoundValue out = named_value(&found->values[v.node][v.result],
                               graph_type(node->body, v), type);
  for (int d = 0; d < type->rank; d++)
    if (out.dims.at[d] < 0)
      out.dims.at[d] = (int8_t)add(f, type->dims[d].name, type->dims[d].size);
  make_scanned_whole(f, type, &out, scan_form(node).dim);
  return out;
}

static FoundBody *follow_loop(DimFinder *f, const Graph *graph,
                              const Node *node, const FoundValue *inputs,
                              FoundValue *results) {
  const Graph *body = node->body;
  FoundBody *found = ARENA_NEW(f->arena, FoundBody);
  found->values = ARENA_ARRAY(f->arena, FoundValue *, body->nodes.n);
  found->inner = ARENA_ARRAY(f->arena, FoundBody *, body->nodes.n);
  for (int i = 0; i < body->inputs.n; i++) {
    Value v = body->inputs.data[i].value;
    const Type *type = graph_type(graph, node->inputs[i]);
    FoundValue own = named_value(&inputs[i], type, graph_type(body, v));
    found->values[v.node] = arena_copy(f->arena, &own, sizeof own);
    if (scan_input_role(node, i) == ROLE_slice)
      make_scanned_whole(f, type, &inputs[i], scan_form(node).dim);
  }
  for (int id = 0; id < body->nodes.n; id++) {
    if (found->values[id]) continue;
    found->values[id] =
        ARENA_ARRAY(f->arena, FoundValue, body->nodes.data[id]->n_results + 1);
    follow_in_loop(f, body, id, found);
  }
  for (int i = 0; i < scan_carries(node); i++) join_carry(f, node, found, i);
  for (int r = 0; r < node->n_results; r++)
    results[r] = loop_result(f, node, found, r);
  return found;
}

/* ---- results ---- */

static LoopSet numbered_set(const DimFinder *f, const int *number,
                            uint64_t set) {
  LoopSet out = 0;
  for (int i = 0; i < f->n; i++)
    if (set >> i & 1) out |= (LoopSet)(1u << number[i]);
  return out;
}

static DimMap numbered_map(const DimFinder *f, const int *number,
                           const DimMap *map, int rank) {
  DimMap out;
  memset(out.at, -1, sizeof out.at);
  for (int d = 0; d < rank; d++)
    out.at[d] = (int8_t)number[find(f, map->at[d])];
  return out;
}

/* Numbers the dims that are left after joining. */
static bool number_dims(DimFinder *f, int *number, KernelDims *out) {
  for (int i = 0; i < f->n; i++) {
    number[i] = -1;
    if (find(f, i) != i) continue;
    if (out->n == MOST_LOOP_DIMS) return false;
    number[i] = out->n;
    out->dims[out->n++] = f->dims[i];
  }
  for (int i = 0; i < f->n; i++) number[i] = number[find(f, i)];
  return !f->is_full;
}

static const LoopBody *numbered_body(DimFinder *f, const int *number,
                                     const Graph *body,
                                     const FoundBody *found) {
  LoopBody *out = ARENA_NEW(f->arena, LoopBody);
  const DimMap **values = ARENA_ARRAY(f->arena, const DimMap *, body->nodes.n);
  const LoopBody **inner =
      ARENA_ARRAY(f->arena, const LoopBody *, body->nodes.n);
  for (int id = 0; id < body->nodes.n; id++) {
    const Node *node = body->nodes.data[id];
    DimMap *maps = ARENA_ARRAY(f->arena, DimMap, node->n_results + 1);
    for (int r = 0; r < node->n_results; r++)
      maps[r] = numbered_map(f, number, &found->values[id][r].dims,
                             node->types[r]->rank);
    values[id] = maps;
    if (found->inner[id])
      inner[id] = numbered_body(f, number, node->body, found->inner[id]);
  }
  *out = (LoopBody){values, inner};
  return out;
}

static const KernelDims *numbered(DimFinder *f, const Graph *graph,
                                  const Node *node, const FoundValue *inputs,
                                  const FoundValue *results, BodyWalk *w,
                                  const FoundBody *loop) {
  KernelDims *out = ARENA_NEW(f->arena, KernelDims);
  int number[MOST_FOUND_DIMS] = {0};
  if (!number_dims(f, number, out)) return NULL;
  DimMap *ins = ARENA_ARRAY(f->arena, DimMap, node->n_inputs + 1);
  DimMap *outs = ARENA_ARRAY(f->arena, DimMap, node->n_results + 1);
  LoopSet *partial = ARENA_ARRAY(f->arena, LoopSet, node->n_results + 1);
  for (int i = 0; i < node->n_inputs; i++)
    ins[i] = numbered_map(f, number, &inputs[i].dims,
                          graph_type(graph, node->inputs[i])->rank);
  for (int r = 0; r < node->n_results; r++) {
    outs[r] = numbered_map(f, number, &results[r].dims, node->types[r]->rank);
    partial[r] = numbered_set(f, number, results[r].open);
  }
  InnerSum *sums = ARENA_ARRAY(f->arena, InnerSum, w->sums.n + 1);
  for (int i = 0; i < w->sums.n; i++) {
    const FoundSum *sum = &w->sums.data[i];
    sums[i] = (InnerSum){numbered_set(f, number, sum->over), sum->type,
                         numbered_map(f, number, &sum->dims, sum->type->rank)};
  }
  out->inputs = ins;
  out->results = outs;
  out->partial = partial;
  out->n_sums = w->sums.n;
  out->sums = sums;
  if (loop) out->body = numbered_body(f, number, node->body, loop);
  return out;
}

static const KernelDims *find_dims(Arena *arena, const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  DimFinder *f = ARENA_NEW(arena, DimFinder);
  f->arena = arena;
  f->is_by_name = node->op == OP_scan;
  FoundValue *inputs = operands(f, graph, node);
  FoundValue *results = ARENA_ARRAY(arena, FoundValue, node->n_results + 1);
  BodyWalk walk = {0};
  FoundBody *loop = NULL;
  if (node->op == OP_fused) {
    follow_fused(f, &walk, node, inputs, results);
  } else if (node->op == OP_scan) {
    loop = follow_loop(f, graph, node, inputs, results);
  } else if (node->body || !op_info(node->op)->sharding) {
    return NULL;
  } else {
    ShardCall call = shard_call(graph, node);
    follow_node(f, &call, inputs, results);
  }
  return numbered(f, graph, node, inputs, results, &walk, loop);
}

const KernelDims *kernel_dims_of(KernelDimsTable *table, const Graph *graph,
                                 int id) {
  const void *key = (const void *)(uintptr_t)(kernel_key(graph, id) | 1);
  void *known = map_get(table->known, key);
  if (known) return known == (void *)table ? NULL : known;
  const KernelDims *dims = find_dims(table->arena, graph, id);
  map_put(table->known, key, dims ? (void *)dims : (void *)table);
  return dims;
}
