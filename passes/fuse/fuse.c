/*
 * fuse.c -- group pointwise operators and reductions into kernels.
 *
 *     %2 = sub %0, %1                 %2 = fused %0, %1 {
 *     %3 = exp %2               =>      %0 = input ... %3 = exp %2
 *     %4 = sum %3 {over = [S]}          %4 = sum %3 ... output result %4
 *                                     }
 *
 * In the order of the graph every node tries to join the groups of its inputs,
 * the largest input first.  fuse_check.c says what may stand in one kernel,
 * fuse_order.c what would be a cycle.  Then fuse_clone.c gives cheap values to
 * the groups that read them, and groups grow anew.  At last groups that no edge
 * joins but that have the same loops merge: scalars, and sums that read the
 * same values.
 *
 * Groups stay within a phase (forward, gradient, update).  Nodes that run for
 * each micro-batch and nodes that run once a step, before or after, do not mix.
 *
 * requires: decomposed, every value used     keeps: placements, paths
 * breaks: node ids     cost: O(nodes x group size + region searched for cycles)
 */
/*
 * The contract with lowering: the body of a `fused` node holds `input`
 * (ROLE_arg, input i of the node), pointwise operators, `const`, `iota`,
 * `cast`, `transpose`, `broadcast`, `random_keep`, the lookups `gather`,
 * `dispatch` and `combine`, and the reductions `sum`, `max`, `min`, `argmax`.
 * It holds no views and no regions.
 *
 *  1. All reductions of a body reduce over the same set of dims R (`over`, or
 *     `dim` of argmax).  R is empty if there is no reduction.
 *  2. S = R + the dims of all nodes that are not `input`.  O = S - R.  The
 *     kernel's outer (parallel) loops are O, the inner loops of its stages R.
 *     In one body a dim name has one size and one sharding.  (The gathered dims
 *     of a lookup's table are no loops: they may be outside S, or share their
 *     names with dims of S; the index value replaces them.)
 *  3. Every result has exactly the dims O ("row value") or O + R ("element
 *     value"), in any order: the type's order is the storage order.  The loops
 *     of O may be nested in any order; the order of the first result's type is
 *     a good one, and for R that of the reductions' input.
 *  4. A value with a dim of R belongs to an element; any other value is
 *     computed once per outer point.  The stage of an `input`, `const`, `iota`
 *     is 0, of a reduction 1 + that of its input, of everything else the
 *     largest of its inputs.  Stage k loops over R and does the reductions of
 *     stage k + 1 and stores the element results of stage k; element values
 *     are recomputed (inlined) in each stage that needs them.  Row results are
 *     stored after the last stage they need.
 *  5. Without a reduction there is one stage without inner loops, and every
 *     result has all of S.
 *  6. A body makes several passes over R (an element value depends on a
 *     reduction) or stores element results beside reductions only if it is
 *     "row-like": R are the last dims, in storage order, of every reduction's
 *     input, and O has more than one element.  Otherwise (column sums, sums
 *     to a scalar) it is one pass over R whose only results are row values, so
 *     a back end may divide R among threads and combine.
 *  7. `transpose` and `broadcast` are the identity (dims have names, an absent
 *     dim has stride 0); a lookup reads its table, which is always an `input`
 *     of the body, at the index; the table's other dims are dims of S.
 *     `random_keep` computes random numbers by the global index over its own
 *     dims in its own type's order.  `broadcast`'s, `iota`'s and the rest's
 *     sizes are logical; a rank loops over type_local_size.
 *  8. In place: buffer_assignment gives a result the bytes of an input only if
 *     R is empty and both have the same local sizes in the same dim order and
 *     the input is not a lookup's table.  So every load of a point must come
 *     before every store of the same point; across points there is no alias.
 *  9. Equal bodies with equal types are equal kernels: nothing but the body,
 *     the types of inputs and results and the mesh may be read.
 *
 * A pointwise operator that found no partner is a `fused` node of one body
 * node, and so is a lone reduction.  A lone lookup stays a plain node, as do
 * all structured operators, unless its index is computed in the body.
 */
#include "passes/fuse/fuse.h"

/* How many earlier groups a group is compared with as a sibling. */
#define SIBLING_WINDOW 16

static void join_inputs(Fusion *fusion, int id) {
  const Graph *graph = fusion->graph;
  const Node *node = graph->nodes.data[id];
  bool is_done[4] = {false};
  int n = node->n_inputs < 4 ? node->n_inputs : 4;
  for (int round = 0; round < n; round++) {
    int best = -1;
    int64_t best_size = -1;
    for (int i = 0; i < n; i++) {
      Value input = node->inputs[i];
      int64_t size = input.result == 0
                         ? fusion->elements[input.node]
                         : type_elements(graph_type(graph, input));
      if (is_done[i] || size <= best_size) continue;
      best = i;
      best_size = size;
    }
    is_done[best] = true;
    int input = node->inputs[best].node;
    if (fusion->is_free[input]) continue;
    if (fusion->is_clone && fusion->is_clone[id] && !fusion->is_clone[input])
      continue;
    fusion_merge(fusion, fusion->group_of[input], fusion->group_of[id]);
  }
}

static void grow_groups(Fusion *fusion) {
  /* The second sweep finds what only the first made possible: a value whose
   * last outside user has joined. */
  for (int sweep = 0; sweep < 2; sweep++)
    for (int id = 0; id < fusion->n; id++) {
      int g = fusion->group_of[id];
      if (g >= 0 && fusion->groups[g].is_fusable) join_inputs(fusion, id);
    }
}

static bool group_reads_value(const Fusion *fusion, int group, Value value) {
  const Group *g = &fusion->groups[group];
  for (int m = 0; m < g->members.n; m++) {
    const Node *node = fusion->graph->nodes.data[g->members.data[m]];
    for (int i = 0; i < node->n_inputs; i++)
      if (value_equal(node->inputs[i], value)) return true;
  }
  return false;
}

static bool siblings_same_loops(const FuseSummary *a, const FuseSummary *b) {
  if (a->n_space != b->n_space || a->n_inner != b->n_inner) return false;
  for (int i = 0; i < a->n_inner; i++) {
    bool found = false;
    for (int k = 0; k < b->n_inner; k++) found |= a->inner[i] == b->inner[k];
    if (!found) return false;
  }
  for (int i = 0; i < a->n_space; i++) {
    bool found = false;
    for (int k = 0; k < b->n_space; k++)
      found |= a->space[i].name == b->space[k].name;
    if (!found) return false;
  }
  return true;
}

/* Both read a value that has all their dims. */
static bool siblings_share_input(const Fusion *fusion, int a, int b,
                                 int n_space) {
  const Group *g = &fusion->groups[a];
  for (int m = 0; m < g->members.n; m++) {
    const Node *node = fusion->graph->nodes.data[g->members.data[m]];
    for (int i = 0; i < node->n_inputs; i++) {
      Value value = node->inputs[i];
      if (fusion->group_of[value.node] == a || fusion->is_free[value.node] ||
          graph_type(fusion->graph, value)->rank != n_space)
        continue;
      if (group_reads_value(fusion, b, value)) return true;
    }
  }
  return false;
}

/* A group that may have siblings: scalars, or a reduction. */
typedef struct Sibling {
  int group;
  FuseSummary summary;
} Sibling;

static bool sibling_of_group(Fusion *fusion, int g, Sibling *out) {
  const Group *group = &fusion->groups[g];
  if (group->plain && group->plain->rank > 0) return false;
  out->group = g;
  return fuse_check(fusion, group->members.data, group->members.n,
                    &out->summary) &&
         (out->summary.n_space == 0 || out->summary.has_reduction);
}

static bool are_siblings(const Fusion *fusion, const Sibling *a,
                         const Sibling *b) {
  const FuseSummary *p = &a->summary, *q = &b->summary;
  if (fusion->groups[a->group].merge_class !=
          fusion->groups[b->group].merge_class ||
      !siblings_same_loops(p, q))
    return false;
  if (p->n_space == 0) return true; /* scalars */
  return p->has_reduction && q->has_reduction &&
         siblings_share_input(fusion, a->group, b->group, p->n_space);
}

static void join_siblings(Fusion *fusion) {
  Sibling window[SIBLING_WINDOW], now;
  int n = 0, n_order = 0;
  int *order = ARENA_ARRAY(fusion->arena, int, fusion->n);
  for (int g = fusion->first; g >= 0; g = fusion->groups[g].next)
    if (fusion->groups[g].is_fusable && sibling_of_group(fusion, g, &now))
      order[n_order++] = g;
  for (int k = 0; k < n_order; k++) {
    if (!sibling_of_group(fusion, order[k], &now)) continue;
    for (int i = n - 1; i >= 0; i--) {
      if (!are_siblings(fusion, &window[i], &now)) continue;
      int merged = fusion_merge(fusion, window[i].group, now.group);
      if (merged < 0) continue;
      sibling_of_group(fusion, merged, &now);
      for (int j = i; j + 1 < n; j++) window[j] = window[j + 1];
      n--;
    }
    if (n == SIBLING_WINDOW) {
      for (int j = 0; j + 1 < n; j++) window[j] = window[j + 1];
      n--;
    }
    window[n++] = now;
  }
}

Graph *pass_fuse(PassContext *ctx, const Graph *graph) {
  Fusion *fusion = fusion_create(ctx, graph, NULL);
  if (ctx->level >= 1) {
    grow_groups(fusion);
    bool *is_clone;
    Graph *cloned = fusion_clone(fusion, &is_clone);
    if (cloned) {
      fusion_destroy(fusion);
      fusion = fusion_create(ctx, cloned, is_clone);
      grow_groups(fusion);
    }
    join_siblings(fusion);
  }
  Graph *fused = fusion_emit(fusion);
  fusion_destroy(fusion);
  return fused;
}
