/*
 * unit_pins.c -- finds what lines of a person say about units.
 *
 * A line about a path goes before one about names, so it also takes its axes
 * away from dims that lines about names gave to them.  A line whose axes stand
 * in another order than those of the mesh says nothing here: an assignment has
 * no order.
 */
#include "planner/unit_pins.h"

/* A loop dim of a unit has these axes and no others. */
typedef struct UnitRule {
  int loop;
  AxisSet axes;
} UnitRule;

typedef struct UnitRules {
  VEC(UnitRule) rules;
} UnitRules;

struct UnitPins {
  int n_axes;
  UnitRules *of; /* by unit */
};

typedef struct PinReader {
  Arena *arena;
  const Units *units;
  const Pins *pins;
  const Mesh *mesh;
  UnitRules *of;
} PinReader;

/* ---- rules ---- */

static void remove_rule(UnitRules *rules, int at) {
  rules->rules.data[at] = rules->rules.data[--rules->rules.n];
}

/* An axis shards one dim, so earlier rules lose theirs. */
static void add_rule(PinReader *r, int unit, int loop, AxisSet axes) {
  UnitRules *rules = &r->of[unit];
  for (int i = rules->rules.n - 1; i >= 0; i--) {
    const UnitRule *rule = &rules->rules.data[i];
    if (rule->loop == loop || rule->axes & axes) remove_rule(rules, i);
  }
  vec_push(r->arena, &rules->rules, ((UnitRule){loop, axes}));
}

/* Returns false if no assignment can say it.  Axes of size 1 are not in the
 * mesh. */
static bool axes_of(const PinReader *r, const PlanShard *shard, AxisSet *out) {
  int last = -1;
  *out = 0;
  for (int i = 0; i < shard->n_axes; i++) {
    int axis = mesh_find(r->mesh, shard->axes[i]);
    if (axis < 0) continue;
    if (axis < last) return false;
    last = axis;
    *out |= (AxisSet)(1u << axis);
  }
  return true;
}

/* ---- lines about names ---- */

static bool has_name(const PlanUnit *u, int loop, Name dim) {
  for (int i = 0; i < u->kernels.n; i++) {
    const UnitKernel *k = &u->kernels.data[i];
    for (int d = 0; d < k->dims->n; d++)
      if (k->loop[d] == loop && k->dims->dims[d].name == dim) return true;
  }
  return u->dims[loop].name == dim;
}

static const PinTensor *find_tensor(const Pins *pins, Name path) {
  for (int i = 0; i < pins->tensors.n; i++)
    if (pins->tensors.data[i].path == path) return &pins->tensors.data[i];
  return NULL;
}

/* The dim of a generic layer stands for the name. */
static bool stands_for(const PinTensor *tensor, int d, Name dim) {
  for (int i = 0; tensor && i < tensor->stands_for[d].n; i++)
    if (tensor->stands_for[d].names[i] == dim) return true;
  return false;
}

static void add_reached(PinReader *r, Name dim, AxisSet axes) {
  for (int i = 0; i < r->units->params.n; i++) {
    const UnitParam *param = &r->units->params.data[i];
    const PinTensor *tensor = find_tensor(r->pins, param->path);
    for (int d = 0; d < param->type->rank; d++)
      if (param->dims.at[d] >= 0 && stands_for(tensor, d, dim))
        add_rule(r, param->unit, param->dims.at[d], axes);
  }
}

static void read_names(PinReader *r, const PlanShard *shard) {
  AxisSet axes;
  if (!axes_of(r, shard, &axes)) return;
  for (int u = 0; u < r->units->units.n; u++) {
    const PlanUnit *unit = r->units->units.data[u];
    for (int d = 0; d < unit->n_dims; d++)
      if (has_name(unit, d, shard->dim)) add_rule(r, u, d, axes);
  }
  add_reached(r, shard->dim, axes);
}

/* ---- lines about paths ---- */

static bool has_path(const PlanPin *pin, Name path) {
  for (int i = 0; i < pin->n_paths; i++)
    if (pin->paths[i] == path) return true;
  return false;
}

/* The axes over which the line shards the dim: none, if it does not say. */
static bool axes_of_dim(const PinReader *r, const PlanPin *pin, Name dim,
                        AxisSet *out) {
  *out = 0;
  for (int i = 0; i < pin->n_shards; i++)
    if (pin->shards[i].dim == dim) return axes_of(r, &pin->shards[i], out);
  return true;
}

static void read_operator(PinReader *r, const PlanPin *pin, int unit,
                          const UnitKernel *k) {
  const Node *node = r->units->graph->nodes.data[k->id];
  if (node->phase != PHASE_forward || !has_path(pin, node->path)) return;
  for (int i = 0; i < k->dims->n; i++) {
    AxisSet axes;
    if (axes_of_dim(r, pin, k->dims->dims[i].name, &axes))
      add_rule(r, unit, k->loop[i], axes);
  }
}

static void read_tensor(PinReader *r, const PlanPin *pin, int unit,
                        const Type *type, const DimMap *dims) {
  for (int d = 0; d < type->rank; d++) {
    AxisSet axes;
    if (dims->at[d] >= 0 && axes_of_dim(r, pin, type->dims[d].name, &axes))
      add_rule(r, unit, dims->at[d], axes);
  }
}

/* Data lies where the first unit that reads it wants it. */
static void read_data(PinReader *r, const PlanPin *pin, Map *seen, int unit) {
  const PlanUnit *u = r->units->units.data[unit];
  const Graph *graph = r->units->graph;
  for (int i = 0; i < u->values.n; i++) {
    const UnitValue *value = &u->values.data[i];
    const Node *node = graph->nodes.data[value->value.node];
    if (node->op != OP_input || map_has(seen, node)) continue;
    const GraphInput *input =
        &graph->inputs.data[node_int(node, ATTR_index, 0)];
    if (input->role != ROLE_data) continue;
    map_put(seen, node, (void *)node);
    if (has_path(pin, input->path))
      read_tensor(r, pin, unit, node->types[0], &value->dims);
  }
}

static void read_values(PinReader *r, const PlanPin *pin) {
  Map *seen = map_create(r->arena);
  for (int u = 0; u < r->units->units.n; u++) read_data(r, pin, seen, u);
  for (int i = 0; i < r->units->params.n; i++) {
    const UnitParam *param = &r->units->params.data[i];
    if (has_path(pin, param->path))
      read_tensor(r, pin, param->unit, param->type, &param->dims);
  }
}

static void read_operators(PinReader *r, const PlanPin *pin) {
  for (int u = 0; u < r->units->units.n; u++) {
    const PlanUnit *unit = r->units->units.data[u];
    for (int i = 0; i < unit->kernels.n; i++)
      read_operator(r, pin, u, &unit->kernels.data[i]);
  }
}

const UnitPins *unit_pins_of(Arena *arena, const Units *units, const Pins *pins,
                             const Mesh *mesh) {
  UnitPins *out = ARENA_NEW(arena, UnitPins);
  PinReader r = {arena, units, pins, mesh,
                 ARENA_ARRAY(arena, UnitRules, units->units.n + 1)};
  for (int i = 0; i < pins->shards.n; i++)
    read_names(&r, &pins->shards.data[i]);
  for (int about = 0; about < 2; about++)
    for (int i = 0; i < pins->of_paths.n; i++) {
      const PlanPin *pin = &pins->of_paths.data[i].pin;
      if (pin->says != SAYS_placement || pin->n_partial > 0) continue;
      if (about == 0 && pin->about == ABOUT_value) read_values(&r, pin);
      if (about == 1 && pin->about == ABOUT_operator) read_operators(&r, pin);
    }
  *out = (UnitPins){mesh->n_axes, r.of};
  return out;
}

/* ---- what they allow ---- */

bool unit_pins_allow(const UnitPins *pins, int unit, Assignment assignment) {
  if (!pins) return true;
  const UnitRules *rules = &pins->of[unit];
  for (int i = 0; i < rules->rules.n; i++) {
    const UnitRule *rule = &rules->rules.data[i];
    for (int a = 0; a < pins->n_axes; a++)
      if ((assignment.loop[a] == rule->loop) != (rule->axes >> a & 1))
        return false;
  }
  return true;
}

uint64_t unit_pins_hash(const UnitPins *pins, int unit) {
  uint64_t hash = 47;
  for (int i = 0; pins && i < pins->of[unit].rules.n; i++) {
    const UnitRule *rule = &pins->of[unit].rules.data[i];
    hash = hash_mix(hash, (uint64_t)rule->loop * 256 + rule->axes);
  }
  return hash;
}
