/*
 * placed_units.c -- reads from the final graph of a plan how it places units.
 *
 *     unit "block[3].mlp.dot": B T C F      of all blocks that it stands for
 *     %9 = dot [B@data, T, C], [C, F@tensor] "block[7].mlp.dot"
 *     =>   data: B, tensor: F
 *
 * Kernels are cut otherwise by collectives, so nodes are found by what they
 * compute: path, phase and operator, inside of kernels too.  Each dim of what
 * they read and write has a say, and the loop dim with most says gets the axis.
 * Views have none: they lie where their readers want them.
 */
#include "price/units/placed_units.h"

#include <string.h>

#include "ir/list/instructions.h"

/* A node of the plan's program. */
typedef struct SeenNode {
  const Graph *graph;
  const Node *node;
  const struct SeenNode *next; /* of the same key */
} SeenNode;

typedef struct Votes {
  int of[MOST_MESH_AXES][MOST_LOOP_DIMS];
  int all[MOST_LOOP_DIMS]; /* dims of values, sharded or not */
} Votes;

typedef struct PlacedReader {
  Arena *arena;
  const Units *units;
  const Plan *plan;
  Map *seen;                /* key of a node -> SeenNode */
  Map *again;               /* key of a path that is computed again */
  int8_t axis_of[MAX_AXES]; /* of `mesh`, by axis of the plan; -1: time */
  Mesh *mesh;
} PlacedReader;

/* ---- keys ---- */

/* Returns the block of the graph of units that stands for block `index`. */
static int64_t kept_index(const UnitRepeats *repeats, const Repeat *repeat,
                          int64_t index) {
  int64_t at = index - repeat->first;
  int64_t left_out = repeat->last - repeat->first + 1 - repeats->kept;
  if (left_out <= 0 || at <= STANDS_FOR_MANY || index == repeat->last)
    return index;
  return at <= STANDS_FOR_MANY + left_out ? repeat->first + STANDS_FOR_MANY
                                          : index - left_out;
}

static uint64_t hash_text(const char *text, size_t n, uint64_t seed) {
  return hash_bytes(text, n, seed);
}

uint64_t units_path_key(const UnitRepeats *repeats, const char *path,
                        bool is_whole) {
  for (int r = 0; r < repeats->n; r++) {
    int64_t index = repeat_index(&repeats->repeats[r], path);
    const char *name = strstr(path, repeats->repeats[r].name);
    const char *rest = name ? strchr(name, ']') : NULL;
    if (index < 0 || !rest) continue;
    if (is_whole) index = kept_index(repeats, &repeats->repeats[r], index);
    return hash_text(rest, strlen(rest),
                     hash_mix(hash_text(path, (size_t)(name - path), 59),
                              (uint64_t)(r * 1000000 + index)));
  }
  return hash_text(path, strlen(path), 59);
}

static const void *key_of(uint64_t hash) {
  return (const void *)(uintptr_t)(hash | 1);
}

static const void *node_key(const PlacedReader *r, const char *path,
                            const Node *node, bool is_whole) {
  uint64_t hash = units_path_key(r->units->repeats, path, is_whole);
  return key_of(hash_mix(hash, (uint64_t)node->op * N_PHASES + node->phase));
}

/* ---- the program of the plan ---- */

static void see(PlacedReader *r, const Graph *graph) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    const char *path = graph_path(graph, id);
    if (node->op == OP_fused) see(r, node->body);
    if (node->op == OP_fused || node->op == OP_input || !path[0]) continue;
    SeenNode *seen = ARENA_NEW(r->arena, SeenNode);
    const void *key = node_key(r, path, node, true);
    *seen = (SeenNode){graph, node, map_get(r->seen, key)};
    map_put(r->seen, key, seen);
  }
}

/* ---- votes ---- */

static void vote(const PlacedReader *r, Votes *votes, const UnitKernel *k,
                 const Type *known, const DimMap *dims, const Type *type) {
  for (int d = 0; d < known->rank; d++) {
    int at = type_find(type, known->dims[d].name);
    if (at < 0 || dims->at[d] < 0) continue;
    AxisList split = type->dims[at].split;
    votes->all[k->loop[dims->at[d]]]++;
    for (int i = 0; i < axis_list_length(split); i++) {
      int axis = r->axis_of[axis_list_at(split, i)];
      if (axis >= 0) votes->of[axis][k->loop[dims->at[d]]]++;
    }
  }
}

/* A scan is one node: passes divide what is in its body otherwise. */
static const Graph *body_of(const Node *kernel) {
  return kernel->op == OP_fused ? kernel->body : NULL;
}

/* A node of a kernel: which operands and results of the kernel it has. */
typedef struct KernelNode {
  const Graph *graph; /* of the node: a body, or that of all kernels */
  int id;
} KernelNode;

static void vote_results(const PlacedReader *r, Votes *votes,
                         const UnitKernel *k, const KernelNode *of,
                         const SeenNode *seen) {
  const Node *kernel = r->units->graph->nodes.data[k->id];
  for (int i = 0; i < kernel->n_results; i++) {
    const Graph *body = body_of(kernel);
    Value made = body ? body->outputs.data[i].value : (Value){k->id, i};
    if (made.node == of->id && made.result < seen->node->n_results)
      vote(r, votes, k, kernel->types[i], &k->dims->results[i],
           seen->node->types[made.result]);
  }
}

/* Returns the operand of the kernel that the node reads; -1: none. */
static int operand_of(const Node *kernel, const KernelNode *of, int input) {
  if (!body_of(kernel)) return input;
  const Node *made =
      of->graph->nodes.data[of->graph->nodes.data[of->id]->inputs[input].node];
  return made->op == OP_input ? (int)node_int(made, ATTR_index, 0) : -1;
}

static void vote_operands(const PlacedReader *r, Votes *votes,
                          const UnitKernel *k, const KernelNode *of,
                          const SeenNode *seen) {
  const Node *kernel = r->units->graph->nodes.data[k->id];
  const Node *node = of->graph->nodes.data[of->id];
  for (int i = 0; i < node->n_inputs && i < seen->node->n_inputs; i++) {
    int operand = operand_of(kernel, of, i);
    if (operand < 0) continue;
    const Type *known = graph_type(r->units->graph, kernel->inputs[operand]);
    const Type *type = graph_type(seen->graph, seen->node->inputs[i]);
    if (type_same_dims(known, type))
      vote(r, votes, k, known, &k->dims->inputs[operand], type);
  }
}

static void vote_node(PlacedReader *r, Votes *votes, const UnitKernel *k,
                      const KernelNode *of) {
  const Node *node = of->graph->nodes.data[of->id];
  if (node->op == OP_input) return;
  const void *key = node_key(r, graph_path(of->graph, of->id), node, false);
  const SeenNode *seen = map_get(r->seen, key);
  for (; seen; seen = seen->next) {
    vote_results(r, votes, k, of, seen);
    vote_operands(r, votes, k, of, seen);
  }
}

static void vote_kernel(PlacedReader *r, Votes *votes, const UnitKernel *k) {
  const Node *node = r->units->graph->nodes.data[k->id];
  if (!node_is_launched(r->units->graph, k->id)) return;
  const Graph *body = body_of(node);
  if (!body) {
    vote_node(r, votes, k, &(KernelNode){r->units->graph, k->id});
    return;
  }
  for (int i = 0; i < body->nodes.n; i++)
    vote_node(r, votes, k, &(KernelNode){body, i});
}

static Assignment elect(const PlacedReader *r, const Votes *votes) {
  Assignment out;
  memset(out.loop, NO_LOOP, sizeof out.loop);
  for (int a = 0; a < r->mesh->n_axes; a++) {
    int most = 0;
    for (int loop = 0; loop < MOST_LOOP_DIMS; loop++)
      if (votes->of[a][loop] > most) {
        most = votes->of[a][loop];
        out.loop[a] = (int8_t)loop;
      }
  }
  return out;
}

/* Returns whether all votes say the assignment. */
static bool is_unanimous(const PlacedReader *r, const Votes *votes,
                         Assignment elected) {
  for (int a = 0; a < r->mesh->n_axes; a++)
    for (int loop = 0; loop < MOST_LOOP_DIMS; loop++)
      if (votes->of[a][loop] !=
          (elected.loop[a] == loop ? votes->all[loop] : 0))
        return false;
  return true;
}

/* ---- parameters ---- */

static void see_params(const PlacedReader *r, const Graph *graph, Map *types) {
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (input->role != ROLE_param) continue;
    uint64_t key = units_path_key(r->units->repeats, input->path, true);
    map_put(types, key_of(key),
            (void *)(uintptr_t)graph_type(graph, input->value));
  }
}

static bool is_stored_as_read(const PlacedReader *r, const UnitParam *param,
                              const Type *type, Assignment at) {
  for (int d = 0; d < param->type->rank; d++) {
    int found = type_find(type, param->type->dims[d].name);
    AxisList split = found < 0 ? 0 : type->dims[found].split;
    AxisSet has = 0;
    for (int i = 0; i < axis_list_length(split); i++)
      if (r->axis_of[axis_list_at(split, i)] >= 0)
        has |= (AxisSet)(1u << r->axis_of[axis_list_at(split, i)]);
    for (int a = 0; a < r->mesh->n_axes; a++)
      if ((has >> a & 1) !=
          (param->dims.at[d] >= 0 && at.loop[a] == param->dims.at[d]))
        return false;
  }
  return true;
}

/* A line may store shards of a parameter that its unit reads whole.  ZeRO
 * stores shards over all axes. */
static void check_params(const PlacedReader *r, const Graph *graph,
                         const Assignment *assignments, bool *is_mixed) {
  Map *types = map_create(r->arena);
  if (r->plan->zero > 0) return;
  see_params(r, graph, types);
  for (int i = 0; i < r->units->params.n; i++) {
    const UnitParam *param = &r->units->params.data[i];
    uint64_t key = units_path_key(r->units->repeats, param->path, false);
    const Type *type = map_get(types, key_of(key));
    if (type && !is_stored_as_read(r, param, type, assignments[param->unit]))
      is_mixed[param->unit] = true;
  }
}

/* ---- what is computed again ---- */

static bool is_in_block(const PlacedReader *r, const char *path) {
  for (int i = 0; i < r->units->repeats->n; i++)
    if (repeat_index(&r->units->repeats->repeats[i], path) >= 0) return true;
  return false;
}

/* Returns false if something is that is in no block. */
static bool find_again(PlacedReader *r) {
  Map *saved = r->plan->saved;
  const UnitRepeats *repeats = r->units->repeats;
  for (int i = 0; saved && i < map_size(saved); i++) {
    const PlanPin *pin = map_value_at(saved, i);
    const char *path = map_key_at(saved, i);
    if (!pin || pin->says != SAYS_remat) continue;
    if (!is_in_block(r, path)) return false;
    map_put(r->again, key_of(units_path_key(repeats, path, true)), saved);
  }
  return true;
}

/* Counts a forward path of a block. */
static void count_path(const PlacedReader *r, const char *path, int *n_again,
                       int *n_not) {
  if (!is_in_block(r, path)) return;
  const void *key = key_of(units_path_key(r->units->repeats, path, false));
  ++*(map_has(r->again, key) ? n_again : n_not);
}

/* Returns whether some of the unit runs again; *out_is_in_block: it could. */
static bool runs_again(const PlacedReader *r, const PlanUnit *unit,
                       bool *out_is_in_block) {
  const Graph *graph = r->units->graph;
  int n_again = 0, n_not = 0;
  for (int i = 0; i < unit->kernels.n; i++) {
    int id = unit->kernels.data[i].id;
    const Node *node = graph->nodes.data[id];
    if (node->phase != PHASE_forward) continue;
    if (!node->body) count_path(r, node->path, &n_again, &n_not);
    for (int k = 0; node->body && k < node->body->nodes.n; k++)
      count_path(r, graph_path(node->body, k), &n_again, &n_not);
  }
  *out_is_in_block = n_again + n_not > 0;
  return n_again > 0;
}

static bool keeps_inside(const PlanUnit *unit) {
  for (int i = 0; i < unit->saved.n && unit->block >= 0; i++)
    if (!unit->saved.data[i].leaves_block) return true;
  return false;
}

/* Returns false if some blocks run again and others do not. */
static bool find_recomputes(PlacedReader *r, bool *out) {
  int n_again = 0, n_not = 0;
  *out = false;
  if (!find_again(r)) return false;
  if (map_size(r->again) == 0) return true;
  for (int u = 0; u < r->units->units.n; u++) {
    const PlanUnit *unit = r->units->units.data[u];
    bool could;
    if (!keeps_inside(unit)) continue;
    bool does = runs_again(r, unit, &could);
    if (could) ++*(does ? &n_again : &n_not);
  }
  *out = n_again > 0;
  return n_not == 0;
}

/* ---- the mesh ---- */

static bool read_mesh(PlacedReader *r) {
  const Mesh *from = plan_mesh(r->plan);
  r->mesh = ARENA_NEW(r->arena, Mesh);
  for (int a = 0; a < from->n_axes; a++) {
    r->axis_of[a] = -1;
    if (from->axes[a].is_sequential) continue;
    if (r->mesh->n_axes == MOST_MESH_AXES) return false;
    r->axis_of[a] = (int8_t)r->mesh->n_axes;
    r->mesh->axes[r->mesh->n_axes++] = from->axes[a];
  }
  return true;
}

PlacedUnits units_placed_in_stages(Arena *arena, const Units *units,
                                   const Plan *plan, int n,
                                   const Graph *const *graphs) {
  PlacedReader r = {.arena = arena,
                    .units = units,
                    .plan = plan,
                    .seen = map_create(arena),
                    .again = map_create(arena)};
  PlacedUnits out = {0};
  if (!read_mesh(&r))
    return (PlacedUnits){.reason = "its mesh has more than three axes"};
  if (!find_recomputes(&r, &out.recomputes))
    return (PlacedUnits){.reason =
                             "it computes some layers again, not all blocks"};
  for (int i = 0; i < n; i++) see(&r, graphs[i]);
  Assignment *assignments = ARENA_ARRAY(arena, Assignment, units->units.n + 1);
  bool *is_mixed = ARENA_ARRAY(arena, bool, units->units.n + 1);
  for (int u = 0; u < units->units.n; u++) {
    const PlanUnit *unit = units->units.data[u];
    Votes votes = {0};
    for (int i = 0; i < unit->kernels.n; i++)
      vote_kernel(&r, &votes, &unit->kernels.data[i]);
    assignments[u] = elect(&r, &votes);
    is_mixed[u] = !is_unanimous(&r, &votes, assignments[u]);
  }
  for (int i = 0; i < n; i++)
    check_params(&r, graphs[i], assignments, is_mixed);
  out.mesh = r.mesh;
  out.assignments = assignments;
  out.is_mixed = is_mixed;
  return out;
}

PlacedUnits units_placed(Arena *arena, const Units *units, const Plan *plan,
                         const Graph *graph) {
  return units_placed_in_stages(arena, units, plan, 1, &graph);
}
