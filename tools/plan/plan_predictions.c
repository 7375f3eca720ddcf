/*
 * plan_predictions.c -- writes behind each line of a plan what it costs a rank
 * in a step.
 *
 *     shard mlp.w1: F over tensor  # held 1.05 MB
 *     shard mlp!dot[1]: F over tensor  # time 2.100 ms, held 9.44 MB
 *
 * `time` is what readers wait for: sums inside of a unit, and values that are
 * brought from one unit to another.  `held` are bytes that are kept for the
 * backward pass, and of a parameter its state.  Both come from the tables of
 * the search, which compile nothing; what a launch order hides is in `time`,
 * too.
 */
#include "tools/plan/plan_predictions.h"

#include <string.h>

#include "planner/loads.h"
#include "price/units/placed_units.h"
#include "tools/show/inspect.h"

typedef struct Prediction {
  Ps time;
  Bytes held;
} Prediction;

typedef struct Predictor {
  Arena *arena;
  const Units *units;
  const Trial *trial;
  const PlacedUnits *placed;
  Loads *loads;
  Map *of_operators, *of_values; /* key of a path -> Prediction, of one block */
} Predictor;

/* ---- what one path costs ---- */

static Prediction *prediction(const Predictor *p, Map *of, const char *path) {
  static const char prefix[] = "grad.";
  while (strncmp(path, prefix, sizeof prefix - 1) == 0)
    path += sizeof prefix - 1;
  uint64_t hash = units_path_key(p->units->repeats, path, false);
  const void *key = (const void *)(uintptr_t)(hash | 1);
  Prediction *out = map_get(of, key);
  if (out) return out;
  out = ARENA_NEW(p->arena, Prediction);
  map_put(of, key, out);
  return out;
}

/* The unit goes with its first product. */
static void add_unit(const Predictor *p, int at) {
  const PlanUnit *unit = p->units->units.data[at];
  for (int i = 0; i < unit->kernels.n; i++) {
    const Node *node = p->units->graph->nodes.data[unit->kernels.data[i].id];
    if (node->phase != PHASE_forward || node->body || !node->path[0]) continue;
    Load load = loads_of_unit(p->loads, at, p->placed->assignments[at]);
    Prediction *out = prediction(p, p->of_operators, node->path);
    out->time += load.wait[0] + load.wait[1];
    out->held += p->placed->recomputes ? load.left : load.saved;
    return;
  }
}

static Name made_path(const Graph *graph, Value value) {
  const Node *node = graph->nodes.data[value.node];
  if (!node->body) return node->path;
  return graph_path(node->body,
                    node->body->outputs.data[value.result].value.node);
}

static void add_edge(const Predictor *p, const UnitEdge *edge) {
  EdgeLoad load =
      loads_of_edge(p->loads, edge, p->placed->assignments[edge->from],
                    p->placed->assignments[edge->to]);
  prediction(p, p->of_values, made_path(p->units->graph, edge->value))->time +=
      load.wait;
}

static void add_param(const Predictor *p, const UnitParam *param) {
  const Mesh *mesh = p->placed->mesh;
  Assignment assignment = p->placed->assignments[param->unit];
  int64_t shards = 1, ranks = 1;
  for (int a = 0; a < mesh->n_axes; a++) ranks *= mesh->axes[a].size;
  for (int d = 0; d < param->type->rank; d++)
    shards *= axis_list_shards(
        assignment_axes(mesh, assignment, param->dims.at[d]), mesh);
  if (p->trial->c.plan->zero > 0) shards = ranks;
  prediction(p, p->of_values, param->path)->held += param->state / shards;
}

static bool fill(Predictor *p, const BoundRequest *space) {
  LoadRequest *request = ARENA_NEW(p->arena, LoadRequest);
  *request = (LoadRequest){.units = p->units,
                           .mesh = p->placed->mesh,
                           .slice = space->slice,
                           .model = space->model,
                           .microbatches = p->trial->c.plan->microbatches};
  p->loads = loads_create(p->arena, request);
  for (int u = 0; u < p->units->units.n; u++)
    if (!loads_allow(p->loads, u, p->placed->assignments[u])) return false;
  for (int u = 0; u < p->units->units.n; u++) add_unit(p, u);
  for (int i = 0; i < p->units->edges.n; i++)
    add_edge(p, &p->units->edges.data[i]);
  for (int i = 0; i < p->units->params.n; i++)
    add_param(p, &p->units->params.data[i]);
  return true;
}

/* ---- lines ---- */

static Prediction of_pin(const Predictor *p, const PlanPin *pin) {
  Map *of = pin->about == ABOUT_operator ? p->of_operators : p->of_values;
  Prediction sum = {0};
  for (int i = 0; i < pin->n_paths; i++) {
    uint64_t hash = units_path_key(p->units->repeats, pin->paths[i], true);
    const Prediction *one = map_get(of, (const void *)(uintptr_t)(hash | 1));
    if (!one) continue;
    sum.time += one->time;
    sum.held += one->held;
  }
  return sum;
}

/* The pin of the line that ends at a byte of the text, or NULL. */
static const PlanPin *pin_of_line(const Pins *pins, uint32_t begin,
                                  uint32_t end) {
  for (int i = 0; i < pins->of_paths.n; i++) {
    const PlanPin *pin = &pins->of_paths.data[i].pin;
    if (!pin->is_annotation && pin->says == SAYS_placement &&
        (pin->about == ABOUT_value || pin->about == ABOUT_operator) &&
        pin->span.begin >= begin && pin->span.end <= end)
      return pin;
  }
  return NULL;
}

static void add_comment(Text *out, const Prediction *of) {
  const char *between = "  # ";
  if (of->time > 0) {
    text_printf(out, "%stime %s", between, inspect_ms(out->arena, of->time));
    between = ", ";
  }
  if (of->held > 0)
    text_printf(out, "%sheld %s", between,
                text_quantity(out->arena, (double)of->held, "B"));
}

static const char *annotated(const Predictor *p, const char *text,
                             const Pins *pins) {
  Text out = text_create(p->arena);
  for (const char *line = text; *line;) {
    size_t n = strcspn(line, "\n");
    uint32_t begin = (uint32_t)(line - text);
    text_add_n(&out, line, n);
    const PlanPin *pin = pin_of_line(pins, begin, begin + (uint32_t)n);
    if (pin) {
      Prediction of = of_pin(p, pin);
      add_comment(&out, &of);
    }
    if (line[n]) text_add(&out, "\n");
    line += n + (line[n] != 0);
  }
  return text_string(&out);
}

const char *plan_with_predictions(Arena *arena, const char *text,
                                  const Pins *pins, const Trial *trial,
                                  const BoundRequest *space) {
  if (!trial->c.plan || mesh_ranks(plan_mesh(trial->c.plan)) != space->ranks)
    return text;
  PlacedUnits placed = units_placed(arena, space->units, trial->c.plan,
                                    trial->priced.stage->instructions->graph);
  Predictor p = {.arena = arena,
                 .units = space->units,
                 .trial = trial,
                 .placed = &placed,
                 .of_operators = map_create(arena),
                 .of_values = map_create(arena)};
  if (placed.reason || !fill(&p, space)) return text;
  return annotated(&p, text, pins);
}
