/*
 * bucket.c -- join collectives into fewer, larger messages, and say which of
 * them are bulk.
 *
 *     %7 = all_reduce %4          %7, %8 = all_reduce %4, %6 {bucket = 0}
 *     %8 = all_reduce %6     =>
 *
 * A collective is bulk if neither the forward pass nor the backward pass waits
 * for its result, as for the sums of gradients, which the update reads.  It
 * gets the attribute `bucket`, by which codegen puts it into the bulk queue.
 * All others are blocking.
 *
 * Bulk collectives (all-reduces, and the reduce-scatters of ZeRO) are joined in
 * the order in which the backward pass makes the gradients, whatever block they
 * belong to.  A bucket is closed when it holds enough bytes; the first one
 * early, so that the network starts early (Li et al. 2020).  Scalars (the loss)
 * join the last bucket.  Two are joined only if equally many bulk collectives
 * precede both, so that no path leads from one to the other.
 *
 * Small blocking collectives (the gathers of biases, sums of a batch
 * normalisation) are joined if nobody reads the first before the last one's
 * operand is there and no matmul or look-up runs in between, so that joining
 * delays nobody.  In the update, where nothing hides a message, those are
 * joined that equally many collectives precede: the norms of all parameters are
 * one message.
 *
 * Parts of one collective have the same operator, axes, reduction and dtype,
 * are all before, inside or after the loop over micro-batches, and all in the
 * update or all before it.
 *
 * requires: partitioned graph     keeps: values, placements
 * breaks: the order of nodes, within dependencies
 * cost: O((nodes + edges) log nodes)
 */
#include "passes/stages/stages.h"
#include "passes/topological.h"

#include <stdlib.h>

#define DEFAULT_BYTES (25 << 20)
#define FIRST_BYTES   (1 << 20)
/* Blocking collectives: a part, and all parts together, at most.  At 10 GB/s,
 * 128 KB take about as long as the latency of a message. */
#define SMALL_BYTES    (1 << 17)
#define BLOCKING_BYTES (1 << 20)
#define MOST_WORK      8 /* matmuls and the like between their readers */

/* A collective that may be joined with others. */
typedef struct Part {
  int id;
  int ready; /* the node by which its operand is made */
  int read;  /* the first node that waits for its result */
  int depth; /* bulk collectives before it; in the update, all that are */
  int64_t bytes;
  bool is_bulk, is_scalar, is_update;
  bool is_before; /* micro-batches read it */
  int stage_part; /* see stage_node_parts */
} Part;

typedef struct Joined {
  VEC(int) ids;
  int item; /* the lowest id */
  int64_t bytes;
  int read; /* the first reader of any */
  int work; /* before the operand of the first */
  bool is_bulk;
  int number; /* among the bulk ones, in the order of their gradients */
} Joined;

typedef struct Bucketing {
  const Graph *graph;
  Rewrite rewrite;
  Arena *arena;
  bool *is_needed; /* by node: forward or backward pass wait for it */
  int *read;       /* by node: the first that waits for its result, or n */
  VEC(Part) parts;
  VEC(Joined) joined;
  int *work;      /* by node: matmuls and the like before it */
  int *joined_of; /* by node id; -1 */
  int first_bulk, n_buckets;
} Bucketing;

/* ---- what is bulk ---- */

/* It only puts elements elsewhere, and belongs to who reads its result. */
static bool is_move(const Node *node) {
  return node->n_inputs == 1 &&
         (op_is(node->op, OPCLASS_view) ||
          op_is(node->op, OPCLASS_data_movement) || node->op == OP_cast);
}

/* A node of the backward pass; what only moves, scales or adds up gradients
 * belongs to who reads its result. */
static bool needs_operands(const Node *node) {
  if (node->phase == PHASE_input_gradient) return true;
  return node->phase == PHASE_weight_gradient && !is_move(node) &&
         !op_is(node->op, OPCLASS_elementwise) &&
         !op_is(node->op, OPCLASS_collective);
}

static void find_needed(Bucketing *b) {
  const Graph *graph = b->graph;
  b->is_needed = ARENA_ARRAY(b->arena, bool, graph->nodes.n);
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    if (!b->is_needed[id] && !needs_operands(node)) continue;
    for (int i = 0; i < node->n_inputs; i++)
      b->is_needed[node->inputs[i].node] = true;
  }
}

/* By node: the first that waits for its result; a reader that only moves
 * elements is looked through, and a collective counts where its operand is. */
static void find_first_readers(Bucketing *b) {
  const Graph *graph = b->graph;
  int n = graph->nodes.n;
  int *read = b->read = ARENA_ARRAY(b->arena, int, n);
  for (int id = 0; id < n; id++) read[id] = n;
  for (int id = n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      int at = op_has(node->op, OP_FLAG_group) ? from
               : is_move(node)                 ? read[id]
                                               : id;
      if (at < read[from]) read[from] = at;
    }
  }
}

/* In the update only what nobody reads is bulk. */
static bool is_bulk(const Bucketing *b, int id) {
  const Node *node = b->graph->nodes.data[id];
  if (!op_has(node->op, OP_FLAG_group) || b->is_needed[id]) return false;
  return node->phase != PHASE_update || b->read[id] == b->graph->nodes.n;
}

/* ---- parts ---- */

/* More than what prepares an operand, such as a sum over the batch. */
static bool is_work(Op op) {
  switch (op_info(op)->class) {
  case OPCLASS_source:
  case OPCLASS_elementwise:
  case OPCLASS_view:
  case OPCLASS_data_movement:
  case OPCLASS_reduction:
  case OPCLASS_random:
  case OPCLASS_swap:
  case OPCLASS_collective: return false;
  case OPCLASS_indexing:
  case OPCLASS_scatter:
  case OPCLASS_contraction:
  case OPCLASS_window:
  case OPCLASS_normalisation:
  case OPCLASS_routing:
  case OPCLASS_region: return true;
  case N_OPCLASSES: break;
  }
  UNREACHABLE();
}

static void count_work(Bucketing *b) {
  int n = b->graph->nodes.n;
  b->work = ARENA_ARRAY(b->arena, int, n + 1);
  for (int id = 0; id < n; id++)
    b->work[id + 1] = b->work[id] + is_work(b->graph->nodes.data[id]->op);
}

/* The node whose result is moved, or compressed, to be the operand.  What is
 * added to a gradient or multiplied with it to compress it is there from the
 * beginning. */
static int origin_of(const Graph *graph, int id) {
  for (;;) {
    const Node *node = graph->nodes.data[id];
    bool is_compressed =
        node->phase == PHASE_weight_gradient && node_has(node, ATTR_terms);
    if (!is_move(node) && !is_compressed) return id;
    id = node->inputs[0].node;
  }
}

/* Where the operand is there: what is stored, from the beginning. */
static int ready_at(const Graph *graph, int id) {
  int from = id;
  while (op_is(graph->nodes.data[from]->op, OPCLASS_view) &&
         graph->nodes.data[from]->op != OP_after)
    from = graph->nodes.data[from]->inputs[0].node;
  return graph->nodes.data[from]->op == OP_input ? 0 : id;
}

static bool may_join(const Node *node) {
  return node->n_inputs == 1 && op_has(node->op, OP_FLAG_joinable) &&
         op_has(node->op, OP_FLAG_group);
}

static int64_t part_bytes(const Graph *graph, const Node *node) {
  int64_t from =
      type_local_elements(graph_type(graph, node->inputs[0]), &graph->mesh);
  int64_t to = type_local_elements(node->types[0], &graph->mesh);
  return (from > to ? from : to) * dtype_size_bytes(node->types[0]->dtype);
}

static void collect_parts(Bucketing *b) {
  const Graph *graph = b->graph;
  int *depth = ARENA_ARRAY(b->arena, int, graph->nodes.n);
  int *level = ARENA_ARRAY(b->arena, int, graph->nodes.n);
  const bool *is_before = nodes_before_microbatches(graph, b->arena);
  const int *parts = stage_node_parts(b->arena, b->rewrite.ctx->cut, graph);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      int d = depth[from] + is_bulk(b, from);
      if (d > depth[id]) depth[id] = d;
      int l = level[from] + op_has(graph->nodes.data[from]->op, OP_FLAG_group);
      if (l > level[id]) level[id] = l;
    }
    bool bulk = is_bulk(b, id);
    if (!may_join(node) && !bulk) continue;
    int from = node->inputs[0].node;
    vec_push(
        b->arena, &b->parts,
        (Part){.id = id,
               .ready = bulk ? origin_of(graph, from) : ready_at(graph, from),
               .read = b->read[id],
               .depth = bulk ? depth[id] : level[id],
               .bytes = part_bytes(graph, node),
               .is_bulk = bulk,
               .is_scalar = node->types[0]->rank == 0,
               .is_update = node->phase == PHASE_update,
               .is_before = is_before[id],
               .stage_part = parts[id]});
  }
}

/* Parts of one kind may be joined. */
static Name part_kind(const Bucketing *b, const Part *part) {
  const Node *node = b->graph->nodes.data[part->id];
  int n;
  const Name *axes = node_names(node, ATTR_axes, &n);
  Name reduce = node_name(node, ATTR_reduce);
  Text text = text_create(b->arena);
  text_printf(&text, "%s %d %d %d %d %d %d %s %d", op_info(node->op)->name,
              part->is_bulk, part->is_bulk || part->is_update ? part->depth : 0,
              part->stage_part, part->is_before,
              node_is_per_microbatch(b->graph, part->id), part->is_update,
              reduce ? reduce : "", node->types[0]->dtype);
  for (int i = 0; i < n; i++) text_printf(&text, " %s", axes[i]);
  return name_intern(b->graph->module->names, text_string(&text));
}

/* Bulk scalars are last, so that they do not fill the first bucket alone. */
static int compare_parts(const void *a, const void *b) {
  const Part *x = a, *y = b;
  bool x_last = x->is_bulk && x->is_scalar, y_last = y->is_bulk && y->is_scalar;
  if (x_last != y_last) return x_last - y_last;
  return x->ready != y->ready ? x->ready - y->ready : x->id - y->id;
}

/* ---- joining ---- */

/* Whoever waits for one of the blocking parts waits for this one, too. */
static bool is_near(const Bucketing *b, const Joined *joined,
                    const Part *part) {
  return part->ready < joined->read && b->work[part->ready] == joined->work &&
         b->work[part->read] <= b->work[joined->read] + MOST_WORK;
}

static bool has_room(const Bucketing *b, const Joined *joined, const Part *part,
                     int64_t limit) {
  if (!part->is_bulk)
    return (part->is_update || is_near(b, joined, part)) &&
           part->bytes <= SMALL_BYTES &&
           joined->bytes + part->bytes <= BLOCKING_BYTES;
  bool is_first = joined == &b->joined.data[b->first_bulk];
  int64_t full = is_first && limit > FIRST_BYTES ? FIRST_BYTES : limit;
  return part->is_scalar || joined->bytes < full;
}

static void add_part(Bucketing *b, Joined *joined, const Part *part) {
  vec_push(b->arena, &joined->ids, part->id);
  joined->bytes += part->bytes;
  if (part->id < joined->item) joined->item = part->id;
  if (part->read < joined->read) joined->read = part->read;
  b->joined_of[part->id] = (int)(joined - b->joined.data);
}

/* Parts in order fill one open collective of each kind. */
static void join_parts(Bucketing *b, int64_t limit) {
  Map *open = map_create(b->arena); /* by kind: index plus 1 */
  for (int i = 0; i < b->parts.n; i++) {
    const Part *part = &b->parts.data[i];
    Name kind = part_kind(b, part);
    intptr_t at = (intptr_t)map_get(open, kind) - 1;
    bool is_single = !may_join(b->graph->nodes.data[part->id]) ||
                     (!part->is_bulk && part->bytes > SMALL_BYTES);
    if (at < 0 || is_single || !has_room(b, &b->joined.data[at], part, limit)) {
      vec_push(b->arena, &b->joined,
               (Joined){.item = part->id,
                        .read = b->graph->nodes.n,
                        .work = b->work[part->ready],
                        .is_bulk = part->is_bulk,
                        .number = part->is_bulk ? b->n_buckets++ : -1});
      at = b->joined.n - 1;
      if (part->is_bulk && b->first_bulk < 0) b->first_bulk = (int)at;
      if (!is_single) map_put(open, kind, (void *)(at + 1));
    }
    add_part(b, &b->joined.data[at], part);
  }
}

/* ---- the new graph ---- */

static Attrs joined_attrs(const Bucketing *b, const Joined *joined) {
  const Node *like = b->graph->nodes.data[joined->ids.data[0]];
  Attrs attrs = node_attrs(like);
  int n = joined->ids.n;
  if (n > 1 && node_has(like, ATTR_dim)) {
    Name *dims = ARENA_ARRAY(b->arena, Name, n);
    for (int i = 0; i < n; i++)
      dims[i] = node_name(b->graph->nodes.data[joined->ids.data[i]], ATTR_dim);
    Attrs kept = {0};
    for (int i = 0; i < attrs.n; i++)
      if (attrs.items[i].key != ATTR_dim) kept.items[kept.n++] = attrs.items[i];
    attrs = kept;
    attrs_names(&attrs, ATTR_dims, dims, n);
  }
  return attrs;
}

static void emit_joined(Bucketing *b, int index) {
  Joined *joined = &b->joined.data[index];
  int n = joined->ids.n;
  Value *inputs = ARENA_ARRAY(b->arena, Value, n);
  const Type **types = ARENA_ARRAY(b->arena, const Type *, n);
  for (int i = 0; i < n; i++) {
    const Node *node = b->graph->nodes.data[joined->ids.data[i]];
    inputs[i] = rewrite_get(&b->rewrite, node->inputs[0]);
    types[i] = node->types[0];
  }
  const Node *like = b->graph->nodes.data[joined->ids.data[0]];
  Attrs attrs = joined_attrs(b, joined);
  if (joined->is_bulk) attrs_int(&attrs, ATTR_bucket, joined->number);
  rewrite_at(&b->rewrite, joined->ids.data[0]);
  Value first = graph_append_typed(b->rewrite.to, like->op, inputs, n, &attrs,
                                   types, n, NULL);
  for (int i = 0; i < n; i++)
    rewrite_set(&b->rewrite, (Value){joined->ids.data[i], 0},
                (Value){first.node, i});
}

/* A joined collective has as its item the first of its parts. */
static int item_of(const Bucketing *b, int id) {
  return b->joined_of[id] < 0 ? id : b->joined.data[b->joined_of[id]].item;
}

typedef struct Edges {
  int *begin, *to; /* readers of a node, as items */
  int *waiting;    /* by item: operands that are not emitted */
} Edges;

static Edges find_edges(const Bucketing *b) {
  const Graph *graph = b->graph;
  int n = graph->nodes.n;
  Edges e = {.begin = ARENA_ARRAY(b->arena, int, n + 2),
             .waiting = ARENA_ARRAY(b->arena, int, n)};
  for (int id = 0; id < n; id++)
    for (int i = 0; i < graph->nodes.data[id]->n_inputs; i++)
      e.begin[item_of(b, graph->nodes.data[id]->inputs[i].node) + 2]++;
  for (int id = 0; id < n; id++) e.begin[id + 2] += e.begin[id + 1];
  e.to = ARENA_ARRAY(b->arena, int, e.begin[n + 1] + 1);
  for (int id = 0; id < n; id++)
    for (int i = 0; i < graph->nodes.data[id]->n_inputs; i++) {
      int from = item_of(b, graph->nodes.data[id]->inputs[i].node);
      e.to[e.begin[from + 1]++] = item_of(b, id);
      e.waiting[item_of(b, id)]++;
    }
  return e;
}

/* Nodes keep their order but for those that wait for a joined collective, and
 * for inputs and views, which cost nothing and may hold up a collective. */
static void emit_nodes(Bucketing *b) {
  const Graph *graph = b->graph;
  int n = graph->nodes.n, n_done = 0, n_items = 0;
  Edges e = find_edges(b);
  int64_t *key = ARENA_ARRAY(b->arena, int64_t, n);
  ReadyHeap heap = ready_heap(b->arena, n, key);
  for (int id = 0; id < n; id++) {
    Op op = graph->nodes.data[id]->op;
    bool is_free = op == OP_input || op_is(op, OPCLASS_view);
    key[id] = is_free ? id - n : id;
  }
  for (int id = 0; id < n; id++) {
    n_items += item_of(b, id) == id;
    if (item_of(b, id) == id && e.waiting[id] == 0) ready_push(&heap, id);
  }
  for (; heap.n > 0; n_done++) {
    int id = ready_pop(&heap);
    if (b->joined_of[id] >= 0)
      emit_joined(b, b->joined_of[id]);
    else
      rewrite_copy(&b->rewrite, id);
    for (int u = e.begin[id]; u < e.begin[id + 1]; u++)
      if (--e.waiting[e.to[u]] == 0) ready_push(&heap, e.to[u]);
  }
  ASSERT(n_done == n_items); /* no circle through a joined collective */
}

static bool has_collectives(const Graph *graph) {
  for (int id = 0; id < graph->nodes.n; id++)
    if (op_has(graph->nodes.data[id]->op, OP_FLAG_group)) return true;
  return false;
}

Graph *pass_bucket(PassContext *ctx, const Graph *graph) {
  if (!has_collectives(graph)) return rewrite_graph(ctx, graph, NULL, NULL);
  Bucketing b = {.graph = graph,
                 .rewrite = rewrite_begin(ctx, graph),
                 .arena = ctx->scratch,
                 .first_bulk = -1};
  b.joined_of = ARENA_ARRAY(b.arena, int, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) b.joined_of[id] = -1;
  find_needed(&b);
  find_first_readers(&b);
  count_work(&b);
  collect_parts(&b);
  if (b.parts.n > 1)
    qsort(b.parts.data, (size_t)b.parts.n, sizeof(Part), compare_parts);
  join_parts(&b, ctx->plan && ctx->plan->bucket_bytes > 0
                     ? ctx->plan->bucket_bytes
                     : DEFAULT_BYTES);
  emit_nodes(&b);
  return rewrite_end(&b.rewrite);
}
