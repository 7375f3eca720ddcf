/*
 * proposal_text.c -- writes a proposal as lines of a plan.
 *
 *     shard mlp.dot[0]!dot: B over data, F over tensor    an operator
 *     shard mlp.dot[1]: B over data, T over tensor        where a value goes
 *     shard mlp.w1: F over tensor                         a parameter
 *
 * A value lies where its readers want it, if they agree; else where it is made.
 */
#include "planner/proposal_text.h"

#include "planner/candidate.h"

#include <string.h>

typedef struct LineWriter {
  Arena *arena;
  const Units *units;
  const PlanPaths *paths;
  const Proposal *proposal;
  const char *const *axes;
  const bool *has_unit; /* or NULL: all are written */
  Text out;
  Map *written, *operators; /* paths that have a line */
} LineWriter;

/* ---- names of axes ---- */

bool proposal_shards_batch(const Units *units, const Proposal *proposal,
                           int axis) {
  int batch = 0, others = 0;
  for (int u = 0; u < units->units.n; u++) {
    const PlanUnit *unit = units->units.data[u];
    int loop = proposal->assignments[u].loop[axis];
    if (loop < 0) continue;
    if (unit->batch >> loop & 1)
      batch++;
    else
      others++;
  }
  return batch > others;
}

void proposal_axis_names(Arena *arena, const Units *units,
                         const Proposal *proposal, const char **names) {
  const char *roles[MAX_AXES];
  for (int a = proposal->place.mesh->n_axes - 1; a >= 0; a--) {
    int n_inside = 0;
    roles[a] = proposal_shards_batch(units, proposal, a) ? "data" : "tensor";
    for (int b = a + 1; b < proposal->place.mesh->n_axes; b++)
      n_inside += strcmp(roles[b], roles[a]) == 0;
    names[a] = mesh_axis_name(arena, roles[a], n_inside);
  }
}

/* ---- a line ---- */

static void add_axes(LineWriter *w, AxisList list) {
  int n = axis_list_length(list);
  text_add(&w->out, n > 1 ? "(" : "");
  for (int i = 0; i < n; i++)
    text_printf(&w->out, "%s%s", i ? ", " : "", w->axes[axis_list_at(list, i)]);
  text_add(&w->out, n > 1 ? ")" : "");
}

static void add_dim(LineWriter *w, Name dim, AxisList list, int *n) {
  if (!list) return;
  text_printf(&w->out, "%s%s over ", (*n)++ ? ", " : " ", dim);
  add_axes(w, list);
}

static AxisList axes_of(const LineWriter *w, int unit, int loop) {
  return assignment_axes(w->proposal->place.mesh,
                         w->proposal->assignments[unit], loop);
}

/* ---- paths ---- */

/* Returns a path as that of an operator: "mlp!dot[0]" of "mlp.dot[0]". */
static const char *with_bang(Arena *arena, const char *path) {
  char *text = arena_strdup(arena, path), *at;
  while ((at = strchr(text, '!'))) *at = '.';
  at = strrchr(text, '.');
  if (!at) return arena_printf(arena, "!%s", text);
  *at = '!';
  return text;
}

/* A path of a block with those of all blocks that it stands for:
 * "block[3..92].mlp.dot[0]". */
static const char *with_blocks(const LineWriter *w, const char *text) {
  const UnitRepeats *repeats = w->units->repeats;
  for (int r = 0; r < repeats->n; r++) {
    const Repeat *repeat = &repeats->repeats[r];
    int index = repeat_index(repeat, text);
    if (index < 0) continue;
    PathRange blocks = unit_blocks(repeats, repeat, index);
    const char *rest = strchr(text + strlen(repeat->name), ']');
    if (blocks.first == blocks.last)
      return arena_printf(w->arena, "%s[%lld%s", repeat->name,
                          (long long)blocks.first, rest);
    return arena_printf(w->arena, "%s[%lld..%lld%s", repeat->name,
                        (long long)blocks.first, (long long)blocks.last, rest);
  }
  return text;
}

/* The text that means the nodes of this path and no others, or NULL. */
static const char *path_text(const LineWriter *w, Name path, bool is_operator) {
  const char *at = path;
  for (int n = 0; at; n++) {
    const char *text = is_operator ? with_bang(w->arena, at) : at;
    PathList found = {0};
    if (plan_paths_find_text(w->paths, text, &found) && found.n == 1 &&
        strcmp(found.data[0], path) == 0)
      return text[0] == '!' ? arena_printf(w->arena, "\"%s\"", text)
                            : with_blocks(w, text);
    at = plan_paths_other(w->paths, path, n);
  }
  return NULL;
}

/* ---- dims ---- */

/* The type that the user knows: passes rename dims. */
static const Type *known_type(const LineWriter *w, const char *text) {
  PathList found = {0};
  if (!plan_paths_find_text(w->paths, text, &found)) return NULL;
  const PlanNodes *nodes = plan_paths_nodes_of(w->paths, found.data[0]);
  const Node *node = nodes->n ? nodes->data[nodes->n - 1].node : NULL;
  return node && node->n_results > 0 ? node->types[0] : NULL;
}

/* The name that the user knows of dim `d`: the same, or that of the only other
 * dim of its size. */
static Name known_dim(const Type *known, const Type *type, int d) {
  Name found = NULL;
  if (type_find(known, type->dims[d].name) >= 0) return type->dims[d].name;
  for (int i = 0; i < known->rank; i++) {
    if (known->dims[i].size != type->dims[d].size ||
        type_find(type, known->dims[i].name) >= 0)
      continue;
    if (found) return NULL;
    found = known->dims[i].name;
  }
  return found;
}

/* ---- lines ---- */

static void add_value_line(LineWriter *w, Name path, const Type *type, int unit,
                           const DimMap *dims) {
  int n = 0;
  if (!path[0] || map_has(w->written, path)) return;
  map_put(w->written, path, (void *)path);
  const char *text = path_text(w, path, false);
  if (!text) return;
  const Type *known = known_type(w, text);
  bool is_sharded = false;
  if (!known || known->rank != type->rank) return;
  for (int d = 0; d < type->rank; d++) {
    if (!known_dim(known, type, d)) return;
    is_sharded |= axes_of(w, unit, dims->at[d]) != 0;
  }
  if (!is_sharded) {
    text_printf(&w->out, "  replicate %s\n", text);
    return;
  }
  text_printf(&w->out, "  shard %s:", text);
  for (int d = 0; d < type->rank; d++)
    add_dim(w, known_dim(known, type, d), axes_of(w, unit, dims->at[d]), &n);
  text_add(&w->out, "\n");
}

/* ---- operators ---- */

static bool is_pinned_operator(const Node *node) {
  return node->phase == PHASE_forward &&
         (op_is(node->op, OPCLASS_contraction) ||
          op_is(node->op, OPCLASS_window));
}

static void add_operator_line(LineWriter *w, int unit, const UnitKernel *k) {
  const Node *node = w->units->graph->nodes.data[k->id];
  int n = 0;
  if (!node->path[0] || map_has(w->operators, node->path)) return;
  map_put(w->operators, node->path, (void *)node->path);
  const char *text = path_text(w, node->path, true);
  if (!text) return;
  bool is_shared = false;
  for (int i = 0; i < k->dims->n; i++)
    is_shared |= axes_of(w, unit, k->loop[i]) != 0;
  text_printf(&w->out, is_shared ? "  shard %s:" : "  replicate %s", text);
  for (int i = 0; i < k->dims->n; i++)
    add_dim(w, k->dims->dims[i].name, axes_of(w, unit, k->loop[i]), &n);
  text_add(&w->out, "\n");
}

/* ---- values ---- */

static Name value_path(const Graph *graph, Value value) {
  const Node *node = graph->nodes.data[value.node];
  if (node->op != OP_fused) return node->path;
  return graph_path(node->body,
                    node->body->outputs.data[value.result].value.node);
}

static bool is_alike(const LineWriter *w, const UnitEdge *a,
                     const UnitEdge *b) {
  for (int d = 0; d < a->type->rank; d++)
    if (axes_of(w, a->to, a->to_dims.at[d]) !=
        axes_of(w, b->to, b->to_dims.at[d]))
      return false;
  return true;
}

static void add_edge_line(LineWriter *w, int at) {
  const UnitEdge *edge = &w->units->edges.data[at];
  bool agree = true;
  if (edge->is_backward) return;
  for (int i = 0; i < w->units->edges.n && edge->readers > 1; i++) {
    const UnitEdge *other = &w->units->edges.data[i];
    if (value_equal(other->value, edge->value))
      agree &= is_alike(w, edge, other);
  }
  Name path = value_path(w->units->graph, edge->value);
  if (agree || edge->partial)
    add_value_line(w, path, edge->type, edge->to, &edge->to_dims);
  else
    add_value_line(w, path, edge->type, edge->from, &edge->from_dims);
}

static void add_param_line(LineWriter *w, const UnitParam *param) {
  bool is_sharded = false;
  for (int d = 0; d < param->type->rank; d++)
    is_sharded |= axes_of(w, param->unit, param->dims.at[d]) != 0;
  if (is_sharded)
    add_value_line(w, param->path, param->type, param->unit, &param->dims);
}

/* Data lies where its first reader wants it. */
static void add_data_lines(LineWriter *w, int unit) {
  const PlanUnit *u = w->units->units.data[unit];
  const Graph *graph = w->units->graph;
  for (int i = 0; i < u->values.n; i++) {
    const UnitValue *value = &u->values.data[i];
    const Node *node = graph->nodes.data[value->value.node];
    if (node->op != OP_input) continue;
    const GraphInput *input =
        &graph->inputs.data[node_int(node, ATTR_index, 0)];
    if (input->role == ROLE_data)
      add_value_line(w, input->path, node->types[0], unit, &value->dims);
  }
}

static bool has_unit(const LineWriter *w, int unit) {
  return !w->has_unit || w->has_unit[unit];
}

const char *proposal_lines_of(Arena *arena, const Units *units,
                              const PlanPaths *paths, const Proposal *proposal,
                              const char *const *axis_names,
                              const bool *has_units) {
  LineWriter w = {.arena = arena,
                  .units = units,
                  .paths = paths,
                  .proposal = proposal,
                  .axes = axis_names,
                  .has_unit = has_units,
                  .out = text_create(arena),
                  .written = map_create(arena),
                  .operators = map_create(arena)};
  for (int u = 0; u < units->units.n; u++)
    if (has_unit(&w, u)) add_data_lines(&w, u);
  for (int i = 0; i < units->params.n; i++)
    if (has_unit(&w, units->params.data[i].unit))
      add_param_line(&w, &units->params.data[i]);
  for (int u = 0; u < units->units.n; u++) {
    const PlanUnit *unit = units->units.data[u];
    for (int i = 0; i < unit->kernels.n && has_unit(&w, u); i++)
      if (is_pinned_operator(
              units->graph->nodes.data[unit->kernels.data[i].id]))
        add_operator_line(&w, u, &unit->kernels.data[i]);
  }
  for (int i = 0; i < units->edges.n; i++)
    if (has_unit(&w, units->edges.data[i].from) &&
        has_unit(&w, units->edges.data[i].to))
      add_edge_line(&w, i);
  return text_string(&w.out);
}

const char *proposal_lines(Arena *arena, const Units *units,
                           const PlanPaths *paths, const Proposal *proposal,
                           const char *const *axis_names) {
  return proposal_lines_of(arena, units, paths, proposal, axis_names, NULL);
}
