/*
 * remat_places.c -- chooses the places at which the backward pass computes
 * values again, and at which parameters are gathered.
 *
 * A clone belongs before its first reader, and must not begin earlier, because
 * memory is what it saves.  Its operands are there since the forward pass, so
 * the order needs a dependence: they wait for the anchor of the place, which is
 * the matmul or convolution of the greatest depth among the nodes before it.
 *
 * A gather takes time that others can hide: it may begin ahead of its reader,
 * as long as the gathers in flight have at most the bytes of the plan's
 * `prefetch` together, or are two.
 */
#include "passes/remat/remat.h"
#include "passes/stages/stages.h"

#include <stdlib.h>

#define DEFAULT_BYTES 25000000 /* without a plan */

/* ---- anchors ---- */

/* It has bytes of its own after fusing, and is complete when it has run. */
static bool may_anchor(const Remat *r, int id) {
  const Node *node = r->graph->nodes.data[id];
  AxisSet time = mesh_sequential(&r->graph->mesh);
  if (node->op == OP_input || node->op == OP_scan ||
      node_is_view(r->graph, id) || op_is(node->op, OPCLASS_source) ||
      op_is(node->op, OPCLASS_collective) || node->types[0]->rank == 0)
    return false;
  bool is_phase =
      node->phase == PHASE_forward || node->phase == PHASE_input_gradient;
  return is_phase && !r->is_stored[id] &&
         (!time || type_uses_axes(node->types[0], time));
}

/* A value that follows from a message behind the micro-batches is no anchor:
 * they would wait for it. */
void remat_find_anchors(Remat *r) {
  Arena *arena = r->ctx->scratch;
  bool *is_late = ARENA_ARRAY(arena, bool, r->n);
  int *depth = ARENA_ARRAY(arena, int, r->n);
  int best = -1, other = -1;
  AxisSet time = mesh_sequential(&r->graph->mesh);
  r->anchor = ARENA_ARRAY(arena, int, r->n + 1);
  r->first_data = -1;
  for (int id = 0; id < r->n; id++) {
    const Node *node = r->graph->nodes.data[id];
    bool is_data = node->op == OP_input && type_uses_axes(node->types[0], time);
    if (is_data && r->first_data < 0) r->first_data = id;
    r->anchor[id] = best >= 0 ? best : other;
    is_late[id] = stage_receives_late(r->ctx->cut, r->graph, id);
    for (int i = 0; i < node->n_inputs; i++) {
      int d = depth[node->inputs[i].node] + 1;
      if (d > depth[id]) depth[id] = d;
      is_late[id] |= is_late[node->inputs[i].node];
    }
    if (is_late[id] || !may_anchor(r, id)) continue;
    int *most = op_is(node->op, OPCLASS_contraction) ? &best : &other;
    if (*most < 0 || depth[id] >= depth[*most]) *most = id;
  }
  r->anchor[r->n] = best >= 0 ? best : other;
}

/* ---- gathers ---- */

/* A gather that may begin ahead of its reader. */
typedef struct Prefetch {
  int id, reader;
  int64_t bytes;
  bool is_clone;
} Prefetch;

typedef struct Prefetches {
  Prefetch *data;
  int n, capacity;
} Prefetches;

static void add_event(Remat *r, int place, int id, bool is_clone) {
  vec_push(r->ctx->scratch, &r->events,
           (RematEvent){id, is_clone, r->first_event[place]});
  r->first_event[place] = r->events.n;
}

/* By node that follows from parameters alone: its first reader in the forward
 * pass that does not. */
static int *find_forward_readers(const Remat *r) {
  int *reader = ARENA_ARRAY(r->ctx->scratch, int, r->n);
  for (int id = 0; id < r->n; id++) reader[id] = r->n;
  for (int id = r->n - 1; id >= 0; id--) {
    const Node *node = r->graph->nodes.data[id];
    if (node->phase != PHASE_forward) continue;
    int at = r->is_stored[id] ? reader[id] : id;
    for (int i = 0; i < node->n_inputs; i++) {
      int *first = &reader[node->inputs[i].node];
      if (at < *first) *first = at;
    }
  }
  return reader;
}

static int compare_prefetches(const void *a, const void *b) {
  const Prefetch *x = a, *y = b;
  return x->reader != y->reader ? x->reader - y->reader : x->id - y->id;
}

/* The gathers of parameters in the forward pass, and all that are made again in
 * the backward pass from values that are stored.  What stays gathered for the
 * step is gathered before the first micro-batch. */
static Prefetches list_prefetches(const Remat *r) {
  Prefetches list = {0};
  bool is_once = r->keeps_parameters && mesh_sequential(&r->graph->mesh);
  const int *forward = find_forward_readers(r);
  for (int id = 0; id < r->n; id++) {
    const Node *node = r->graph->nodes.data[id];
    if (node->op != OP_all_gather || node->phase != PHASE_forward) continue;
    int from = node->inputs[0].node;
    Prefetch item = {.id = id,
                     .reader = forward[id],
                     .bytes =
                         type_local_elements(node->types[0], &r->graph->mesh) *
                         dtype_size_bytes(node->types[0]->dtype)};
    if (r->is_stored[from] && item.reader < r->n && !is_once)
      vec_push(r->ctx->scratch, &list, item);
    item.reader = r->reader[id];
    item.is_clone = true;
    if (r->saving[id] == SAVING_again && item.reader < r->n &&
        r->saving[from] != SAVING_again)
      vec_push(r->ctx->scratch, &list, item);
  }
  if (list.n > 1)
    qsort(list.data, (size_t)list.n, sizeof(Prefetch), compare_prefetches);
  return list;
}

static int64_t prefetch_limit(const Remat *r) {
  const Plan *plan = r->ctx->plan;
  return plan && plan->prefetch_bytes > 0 ? plan->prefetch_bytes
                                          : DEFAULT_BYTES;
}

/* By node that follows from parameters alone: its last reader in the forward
 * pass that does not, or -1. */
static int *find_last_readers(const Remat *r) {
  int *last = ARENA_ARRAY(r->ctx->scratch, int, r->n);
  for (int id = 0; id < r->n; id++) last[id] = -1;
  for (int id = r->n - 1; id >= 0; id--) {
    const Node *node = r->graph->nodes.data[id];
    if (node->phase != PHASE_forward) continue;
    int at = r->is_stored[id] ? last[id] : id;
    for (int i = 0; i < node->n_inputs; i++)
      if (at > last[node->inputs[i].node]) last[node->inputs[i].node] = at;
  }
  return last;
}

/* The bytes of gathers that the forward pass reads for the last time at `place`
 * or later. */
static int64_t bytes_read_after(const Prefetches *list, const int *last,
                                int place) {
  int64_t bytes = 0;
  for (int i = 0; i < list->n; i++)
    if (list->data[i].is_clone && last[list->data[i].id] >= place)
      bytes += list->data[i].bytes;
  return bytes;
}

/* The backward pass would gather it ahead of its reader while the forward pass
 * still has it. */
bool remat_keep_last_gathers(Remat *r) {
  Prefetches list = list_prefetches(r);
  const int *last = find_last_readers(r);
  int64_t limit = prefetch_limit(r), bytes = 0;
  bool any = false;
  for (int i = 0; i < list.n; i++) {
    const Prefetch *item = &list.data[i];
    if (!item->is_clone) continue;
    if (!r->is_stored[r->graph->nodes.data[item->id]->inputs[0].node]) continue;
    bytes += item->bytes;
    if (bytes > limit) break;
    if (last[item->id] < 0 ||
        bytes_read_after(&list, last, last[item->id]) > limit)
      continue;
    any = r->is_kept[item->id] = true;
  }
  return any;
}

/* The reader beside which gather `i` may run. */
static int prefetch_place(const Remat *r, const Prefetches *list, int i) {
  int64_t limit = prefetch_limit(r);
  int64_t bytes = list->data[i].bytes;
  int first = i;
  while (first > 0 &&
         list->data[first - 1].is_clone == list->data[i].is_clone) {
    bytes += list->data[first - 1].bytes;
    if (bytes > limit && first < i) break;
    first--;
  }
  int place = list->data[first].reader;
  /* A clone that begins in the forward pass would be stored like its original.
   */
  if (list->data[i].is_clone && place < r->first_backward)
    place = r->first_backward;
  return place;
}

/* ---- places ---- */

/* After all operands that are no clones themselves. */
static int earliest_place(const Remat *r, int id) {
  const Node *node = r->graph->nodes.data[id];
  int place = 0;
  for (int i = 0; i < node->n_inputs; i++) {
    int from = node->inputs[i].node;
    int after = r->saving[from] == SAVING_again ? r->place[from] : from + 1;
    if (after > place) place = after;
  }
  return place;
}

void remat_find_places(Remat *r) {
  Arena *arena = r->ctx->scratch;
  r->first_event = ARENA_ARRAY(arena, int, r->n + 1);
  r->place = arena_copy(arena, r->reader, sizeof *r->reader * (size_t)r->n);
  bool *is_ahead = ARENA_ARRAY(arena, bool, r->n);
  Prefetches list = list_prefetches(r);
  int *place = ARENA_ARRAY(arena, int, list.n);
  for (int i = 0; i < list.n; i++) {
    int id = list.data[i].id;
    place[i] = prefetch_place(r, &list, i);
    if (!list.data[i].is_clone) {
      if (place[i] > id) place[i] = id;
      continue;
    }
    int least = r->graph->nodes.data[id]->inputs[0].node + 1;
    if (place[i] < least) place[i] = least;
    r->place[id] = place[i];
    is_ahead[id] = true;
  }
  for (int id = 0; id < r->n; id++)
    if (r->place[id] < r->n && !is_ahead[id]) {
      int least = earliest_place(r, id);
      if (r->place[id] < least) r->place[id] = least;
    }
  /* Backwards, because an event goes before those that its place has. */
  for (int id = r->n - 1; id >= 0; id--)
    if (r->place[id] < r->n && !is_ahead[id])
      add_event(r, r->place[id], id, true);
  for (int i = list.n - 1; i >= 0; i--)
    add_event(r, place[i], list.data[i].id, list.data[i].is_clone);
}
