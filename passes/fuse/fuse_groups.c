/*
 * fuse_groups.c -- begins with a group for each node, and merges groups where
 * the contract of fuse.c allows it.
 */
#include "passes/fuse/fuse.h"
#include "passes/stages/stages.h"

#define DEFAULT_MAX_NODES  96
#define DEFAULT_MAX_INPUTS 24

/* Number of classes of phases and places before, in and after micro-batches. */
enum { N_CLASSES = 12 };

static int phase_class(Phase phase) {
  switch (phase) {
  case PHASE_forward: return 0;
  case PHASE_input_gradient:
  case PHASE_weight_gradient: return 1;
  case PHASE_update: return 2;
  case N_PHASES: break;
  }
  UNREACHABLE();
}

static void index_group_users(Fusion *fusion) {
  const Graph *graph = fusion->graph;
  int n = fusion->n;
  fusion->user_begin = ARENA_ARRAY(fusion->arena, int, n + 2);
  int *begin = fusion->user_begin;
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++) begin[node->inputs[i].node + 2]++;
  }
  for (int id = 0; id < n; id++) begin[id + 2] += begin[id + 1];
  fusion->users = ARENA_ARRAY(fusion->arena, int, begin[n + 1] + 1);
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++)
      fusion->users[begin[node->inputs[i].node + 1]++] = id;
  }
}

/* Constants, indices, and at most two operations on them: a mask. */
static bool node_is_free(const Fusion *fusion, int id) {
  const Node *node = fusion->graph->nodes.data[id];
  if (op_is(node->op, OPCLASS_source) && op_has(node->op, OP_FLAG_fuses))
    return true;
  if (!op_has(node->op, OP_FLAG_fuses) || op_is(node->op, OPCLASS_reduction) ||
      op_has(node->op, OP_FLAG_lookup) || op_is(node->op, OPCLASS_random))
    return false;
  if (op_info(node->op)->flops > 2) return false;
  for (int i = 0; i < node->n_inputs; i++)
    if (!fusion->is_free[node->inputs[i].node]) return false;
  return node->n_inputs > 0;
}

/* A user that cannot hold a copy of the free value in its body. */
static bool free_needs_storing(const Fusion *fusion, int id) {
  if (fusion->is_output[id]) return true;
  for (int u = fusion->user_begin[id]; u < fusion->user_begin[id + 1]; u++) {
    const Node *user = fusion->graph->nodes.data[fusion->users[u]];
    if (!op_has(user->op, OP_FLAG_fuses)) return true;
    if (op_has(user->op, OP_FLAG_lookup) && user->inputs[0].node == id)
      return true;
  }
  return false;
}

Fusion *fusion_create(PassContext *ctx, const Graph *graph, bool *is_clone) {
  Arena *arena = arena_beside(ctx->scratch);
  Fusion *fusion = ARENA_NEW(arena, Fusion);
  int n = graph->nodes.n;
  *fusion = (Fusion){.ctx = ctx, .graph = graph, .arena = arena, .n = n};
  fusion->is_clone = is_clone;
  const Target *target = ctx->target;
  fusion->max_nodes = target && target->max_fused_nodes
                          ? target->max_fused_nodes
                          : DEFAULT_MAX_NODES;
  fusion->max_inputs = target && target->max_fused_inputs
                           ? target->max_fused_inputs
                           : DEFAULT_MAX_INPUTS;
  fusion->groups = ARENA_ARRAY(arena, Group, n);
  fusion->group_of = ARENA_ARRAY(arena, int, n);
  fusion->elements = ARENA_ARRAY(arena, int64_t, n);
  fusion->first = fusion->last = -1;
  fusion->group_mark = ARENA_ARRAY(arena, int, n);
  fusion->node_mark = ARENA_ARRAY(arena, int, n);
  fusion->ids = ARENA_ARRAY(arena, int, fusion->max_nodes);
  fusion->stage = ARENA_ARRAY(arena, int, fusion->max_nodes);
  fusion->seen = ARENA_ARRAY(arena, Value, fusion->max_inputs);
  fusion->is_output = ARENA_ARRAY(arena, bool, n);
  fusion->is_free = ARENA_ARRAY(arena, bool, n);
  for (int i = 0; i < graph->outputs.n; i++)
    fusion->is_output[graph->outputs.data[i].value.node] = true;
  index_group_users(fusion);
  /* A node that runs once a step and is read for each micro-batch must not wait
   * for nodes that run after all of them. All its operands run before the loop
   * too, so kernels of such nodes alone wait for nothing. */
  const bool *is_before = nodes_before_microbatches(graph, arena);
  const int *parts = stage_node_parts(arena, ctx->cut, graph);
  int *own = ARENA_ARRAY(arena, int, n);
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    fusion->node_mark[id] = -1;
    fusion->elements[id] = type_elements(node->types[0]);
    fusion->is_free[id] = node_is_free(fusion, id);
    bool is_stored = !fusion->is_free[id] || free_needs_storing(fusion, id);
    fusion->group_of[id] = is_stored ? id : -1;
    if (is_stored) fusion_order_append(fusion, id);
    Group *group = &fusion->groups[id];
    group->is_fusable = op_has(node->op, OP_FLAG_fuses) && !fusion->is_free[id];
    group->merge_class = phase_class(node->phase) +
                         (node_is_per_microbatch(graph, id) ? 4
                          : is_before[id]                   ? 8
                                                            : 0) +
                         N_CLASSES * parts[id];
    own[id] = id;
    group->members.data = &own[id];
    group->members.n = group->members.capacity = 1;
    if (!group->is_fusable || op_is(node->op, OPCLASS_reduction) ||
        op_has(node->op, OP_FLAG_lookup) || node->types[0]->rank > MAX_SPACE)
      continue;
    group->plain = node->types[0];
    for (int i = 0; i < node->n_inputs; i++)
      group->n_inputs += !fusion->is_free[node->inputs[i].node];
  }
  return fusion;
}

void fusion_destroy(Fusion *fusion) {
  arena_destroy(fusion->arena);
}

bool fusion_escapes(const Fusion *fusion, int id) {
  if (fusion->is_output[id]) return true;
  for (int u = fusion->user_begin[id]; u < fusion->user_begin[id + 1]; u++)
    if (fusion->group_of[fusion->users[u]] != fusion->group_of[id]) return true;
  return false;
}

/* The members of both, ascending. */
static int *merge_members(const Fusion *fusion, int a, int b) {
  const Group *x = &fusion->groups[a], *y = &fusion->groups[b];
  int n = x->members.n + y->members.n;
  int *ids = fusion->ids;
  for (int i = 0, j = 0, k = 0; k < n; k++) {
    bool take_x = j == y->members.n ||
                  (i < x->members.n && x->members.data[i] < y->members.data[j]);
    ids[k] = take_x ? x->members.data[i++] : y->members.data[j++];
  }
  return ids;
}

/* A value of plain group `small` is needed outside of both: it would have to be
 * stored by a kernel that has more loops (rule 5). */
static bool leaves_both_groups(const Fusion *fusion, int small, int large) {
  const Group *x = &fusion->groups[small], *y = &fusion->groups[large];
  if (!x->plain || !y->plain || x->plain->rank >= y->plain->rank) return false;
  for (int m = x->members.n - 1; m >= 0; m--) {
    int id = x->members.data[m];
    if (fusion->is_output[id]) return true;
    for (int u = fusion->user_begin[id]; u < fusion->user_begin[id + 1]; u++) {
      int user = fusion->group_of[fusion->users[u]];
      if (user != small && user != large) return true;
    }
  }
  return false;
}

static bool sums_to_scalar(const Fusion *fusion, int g) {
  const Group *group = &fusion->groups[g];
  for (int m = 0; m < group->members.n; m++) {
    const Node *node = fusion->graph->nodes.data[group->members.data[m]];
    if (op_is(node->op, OPCLASS_reduction) && node->types[0]->rank == 0)
      return true;
  }
  return false;
}

/* A sum to a scalar, and scalars that others feed too: fuse_check would refuse
 * (gathers_scalars), but only after a walk over a long chain of additions. */
static bool gathers_others(const Fusion *fusion, int sum, int scalars) {
  const Group *x = &fusion->groups[sum], *y = &fusion->groups[scalars];
  if (x->plain || !y->plain || y->plain->rank > 0) return false;
  if (!sums_to_scalar(fusion, sum)) return false;
  for (int m = 0; m < y->members.n; m++) {
    const Node *node = fusion->graph->nodes.data[y->members.data[m]];
    for (int i = 0; i < node->n_inputs; i++) {
      int from = node->inputs[i].node, group = fusion->group_of[from];
      if (!fusion->is_free[from] && group != sum && group != scalars)
        return true;
    }
  }
  return false;
}

int fusion_merge(Fusion *fusion, int a, int b) {
  if (a == b || a < 0 || b < 0) return -1;
  const Group *x = &fusion->groups[a], *y = &fusion->groups[b];
  if (!x->is_fusable || !y->is_fusable || x->merge_class != y->merge_class)
    return -1;
  int n = x->members.n + y->members.n;
  if (n > fusion->max_nodes) return -1;
  if (leaves_both_groups(fusion, a, b) || leaves_both_groups(fusion, b, a) ||
      gathers_others(fusion, a, b) || gathers_others(fusion, b, a))
    return -1;
  int *ids = merge_members(fusion, a, b);
  bool is_plain = fuse_check_plain(fusion, x, y);
  FuseSummary summary;
  if (!is_plain && !fuse_check(fusion, ids, n, &summary)) return -1;
  int first = x->position < y->position ? a : b;
  int last = first == a ? b : a;
  if (!fusion_order_join(fusion, first, last)) return -1;
  Group *group = &fusion->groups[last];
  group->members.data = arena_copy(fusion->arena, ids, (size_t)n * sizeof *ids);
  group->members.n = group->members.capacity = n;
  for (int i = 0; i < n; i++) fusion->group_of[ids[i]] = last;
  if (is_plain) {
    group->n_inputs += fusion->groups[first].n_inputs;
    group->repeated += fusion->groups[first].repeated;
  } else {
    fuse_note_plain(fusion, group, &summary);
  }
  fusion->groups[first].members.n = 0;
  return last;
}
