/*
 * fuse_check.c -- decide whether a set of nodes keeps the contract of fuse.c,
 * and whether one kernel for it pays.
 *
 * The question is about the complete set every time, not about one edge: groups
 * have at most some dozens of nodes, and the rules then read exactly like the
 * contract.
 */
#include "passes/fuse/fuse.h"

/* A value with fewer elements than the loops is computed again for each of
 * the missing ones: allowed up to this many operations in all. */
#define MAX_REPEATED_FLOPS 4

/* All but the lists, of which nothing is read beyond their lengths. */
static void summary_clear(FuseSummary *out) {
  out->n_space = out->n_inner = out->n_inputs = 0;
  out->is_row_like = out->has_reduction = out->has_lookup = false;
  out->repeated = 0;
}

static bool space_add(FuseSummary *out, const Type *type) {
  for (int d = 0; d < type->rank; d++) {
    const Dim *dim = &type->dims[d];
    int at = 0;
    while (at < out->n_space && out->space[at].name != dim->name) at++;
    if (at == out->n_space) {
      if (at == MAX_SPACE) return false;
      out->space[out->n_space++] = *dim;
    } else if (out->space[at].size != dim->size ||
               out->space[at].split != dim->split) {
      return false;
    }
  }
  return true;
}

static bool is_reduced_dim(const FuseSummary *summary, Name dim) {
  for (int i = 0; i < summary->n_inner; i++)
    if (summary->inner[i] == dim) return true;
  return false;
}

static int count_reduced_dims(const FuseSummary *summary, const Type *type) {
  int n = 0;
  for (int d = 0; d < type->rank; d++)
    n += is_reduced_dim(summary, type->dims[d].name);
  return n;
}

/* Every reduction removes the same dims. */
static bool inner_add(FuseSummary *out, const Node *node) {
  const Name *dims;
  int n;
  reduced_dims(node, &dims, &n);
  if (n > MAX_SPACE) return false;
  if (!out->has_reduction) {
    out->has_reduction = true;
    for (int i = 0; i < n; i++) out->inner[out->n_inner++] = dims[i];
    return true;
  }
  if (n != out->n_inner) return false;
  for (int i = 0; i < n; i++)
    if (!is_reduced_dim(out, dims[i])) return false;
  return true;
}

static bool collect_space(const Graph *graph, const int *ids, int n,
                          FuseSummary *out) {
  for (int i = 0; i < n; i++) {
    const Node *node = graph->nodes.data[ids[i]];
    if (!space_add(out, node->types[0])) return false;
    out->has_lookup |= op_has(node->op, OP_FLAG_lookup);
    if (!op_is(node->op, OPCLASS_reduction)) continue;
    if (!space_add(out, graph_type(graph, node->inputs[0]))) return false;
    if (!inner_add(out, node)) return false;
  }
  return true;
}

static bool reduction_spans(const FuseSummary *summary, const Type *input) {
  return input->rank == summary->n_space;
}

/* R are the last dims of this reduction's input. */
static bool reduction_is_row(const FuseSummary *summary, const Type *input) {
  for (int i = 0; i < summary->n_inner; i++)
    if (!is_reduced_dim(summary, input->dims[input->rank - 1 - i].name))
      return false;
  return true;
}

static double outer_elements(const FuseSummary *summary) {
  double n = 1;
  for (int d = 0; d < summary->n_space; d++)
    if (!is_reduced_dim(summary, summary->space[d].name))
      n *= (double)summary->space[d].size;
  return n;
}

static double node_op_flops(Op op) {
  if (op_is(op, OPCLASS_reduction)) return 0;
  if (op_is(op, OPCLASS_random)) return 40;
  if (op_has(op, OP_FLAG_lookup)) return 1;
  return op_info(op)->flops;
}

/* Operations of expensive values that the loops compute repeatedly. */
static double repeated_flops(const Graph *graph, const int *ids, int n,
                             const FuseSummary *summary) {
  double all = 1, repeated = 0;
  for (int d = 0; d < summary->n_space; d++)
    all *= (double)summary->space[d].size;
  int n_outer = summary->n_space - summary->n_inner;
  for (int i = 0; i < n; i++) {
    const Node *node = graph->nodes.data[ids[i]];
    const Type *type = node->types[0];
    bool is_row = summary->has_reduction && type->rank == n_outer &&
                  count_reduced_dims(summary, type) == 0;
    if (is_row || (double)type_elements(type) * 4 > all) continue;
    repeated += node_op_flops(node->op);
  }
  return repeated;
}

/* A sum to a scalar is followed only by what it alone feeds: else all scalar
 * work would gather in the kernel of one sum and wait there for the others. */
static bool gathers_scalars(const Fusion *fusion, const int *ids, int n,
                            const FuseSummary *out) {
  if (!out->has_reduction || out->n_space > out->n_inner) return false;
  for (int i = 0; i < n; i++) {
    const Node *node = fusion->graph->nodes.data[ids[i]];
    if (node->types[0]->rank > 0 || op_is(node->op, OPCLASS_reduction))
      continue;
    for (int k = 0; k < node->n_inputs; k++) {
      int from = node->inputs[k].node;
      if (!fusion->is_free[from] && fusion->node_mark[from] < 0) return true;
    }
  }
  return false;
}

/* Rules 3 to 6 of the contract. */
static bool check_values(Fusion *fusion, const int *ids, int n,
                         const FuseSummary *out) {
  const Graph *graph = fusion->graph;
  int n_outer = out->n_space - out->n_inner;
  int *stage = fusion->stage;
  int *index_of = fusion->node_mark; /* valid where >= 0, reset by the caller */
  for (int i = 0; i < n; i++) {
    const Node *node = graph->nodes.data[ids[i]];
    const Type *type = node->types[0];
    stage[i] = 0;
    for (int k = 0; k < node->n_inputs; k++) {
      int at = index_of[node->inputs[k].node];
      if (at < 0) continue;
      if (op_has(node->op, OP_FLAG_lookup) && k == 0) return false; /* rule 7 */
      if (stage[at] > stage[i]) stage[i] = stage[at];
    }
    bool is_element = count_reduced_dims(out, type) > 0;
    bool escapes = fusion->is_output[ids[i]];
    for (int u = fusion->user_begin[ids[i]];
         u < fusion->user_begin[ids[i] + 1] && !escapes; u++)
      escapes = index_of[fusion->users[u]] < 0;
    if (escapes && type->rank != out->n_space &&
        (!out->has_reduction || is_element || type->rank != n_outer))
      return false;
    bool depends = is_element && stage[i] > 0;
    bool reduces_reduced = op_is(node->op, OPCLASS_reduction) && stage[i] > 0;
    bool stored = out->has_reduction && is_element && escapes;
    if ((depends || reduces_reduced || stored) && !out->is_row_like)
      return false;
    if (op_is(node->op, OPCLASS_reduction)) stage[i]++;
  }
  return true;
}

/* Distinct values from outside, free ones apart; stops above the limit. */
static int count_body_inputs(Fusion *fusion, const int *ids, int n) {
  int count = 0;
  for (int i = 0; i < n; i++) {
    const Node *node = fusion->graph->nodes.data[ids[i]];
    for (int k = 0; k < node->n_inputs; k++) {
      Value value = node->inputs[k];
      if (fusion->node_mark[value.node] >= 0 || fusion->is_free[value.node])
        continue;
      bool known = false;
      for (int s = 0; s < count && !known; s++)
        known = value_equal(fusion->seen[s], value);
      if (known) continue;
      if (count == fusion->max_inputs) return count + 1;
      fusion->seen[count++] = value;
    }
  }
  return count;
}

bool fuse_check(Fusion *fusion, const int *ids, int n, FuseSummary *out) {
  const Graph *graph = fusion->graph;
  summary_clear(out);
  if (!collect_space(graph, ids, n, out)) return false;
  out->is_row_like = out->has_reduction && outer_elements(out) > 1;
  for (int i = 0; i < n; i++) {
    const Node *node = graph->nodes.data[ids[i]];
    if (!op_is(node->op, OPCLASS_reduction)) continue;
    const Type *input = graph_type(graph, node->inputs[0]);
    if (!reduction_spans(out, input)) return false;
    if (!reduction_is_row(out, input)) out->is_row_like = false;
  }
  out->repeated = repeated_flops(graph, ids, n, out);
  if (n > 1 && out->repeated > MAX_REPEATED_FLOPS) return false;
  for (int i = 0; i < n; i++) fusion->node_mark[ids[i]] = i;
  bool ok = check_values(fusion, ids, n, out) &&
            !gathers_scalars(fusion, ids, n, out);
  if (ok) {
    out->n_inputs = count_body_inputs(fusion, ids, n);
    ok = n == 1 || out->n_inputs <= fusion->max_inputs;
  }
  for (int i = 0; i < n; i++) fusion->node_mark[ids[i]] = -1;
  return ok;
}

static bool types_same_space(const Type *a, const Type *b) {
  if (a == b) return true;
  if (a->rank != b->rank) return false;
  for (int d = 0; d < a->rank; d++) {
    int at = type_find(b, a->dims[d].name);
    if (at < 0 || b->dims[at].size != a->dims[d].size ||
        b->dims[at].split != a->dims[d].split)
      return false;
  }
  return true;
}

bool fuse_check_plain(const Fusion *fusion, const Group *a, const Group *b) {
  return a->plain && b->plain &&
         a->n_inputs + b->n_inputs <= fusion->max_inputs &&
         a->repeated + b->repeated <= MAX_REPEATED_FLOPS &&
         types_same_space(a->plain, b->plain);
}

void fuse_note_plain(const Fusion *fusion, Group *group,
                     const FuseSummary *summary) {
  group->plain = NULL;
  group->n_inputs = summary->n_inputs;
  group->repeated = summary->repeated;
  if (summary->has_reduction || summary->has_lookup) return;
  for (int m = 0; m < group->members.n && !group->plain; m++) {
    const Type *type =
        fusion->graph->nodes.data[group->members.data[m]]->types[0];
    if (type->rank == summary->n_space) group->plain = type;
  }
}
