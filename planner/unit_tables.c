/*
 * unit_tables.c -- lists the assignments of each unit and asks for their loads.
 */
#include "planner/unit_tables.h"

#include <string.h>

enum { MOST_VALUES = 512 };

typedef struct Tabling {
  Arena *arena;
  const TableRequest *r;
  Loads *loads;
  Map *shapes;      /* hash -> UnitShape */
  Map *tables;      /* hash -> EdgeTable */
  uint64_t *hashes; /* by unit */
  UnitTables *out;
} Tabling;

static const void *key_of(uint64_t hash) {
  return (const void *)(uintptr_t)(hash ? hash : 1);
}

/* ---- shapes ---- */

static uint64_t hash_unit(const Tabling *t, int unit) {
  const TableRequest *r = t->r;
  const Units *units = r->loads.units;
  const PlanUnit *u = units->units.data[unit];
  uint64_t hash =
      hash_mix(hash_mix(unit_pins_hash(r->pins, unit), (uint64_t)u->times),
               (uint64_t)u->n_dims * 2 + (u->block >= 0));
  for (int d = 0; d < u->n_dims; d++)
    hash =
        hash_mix(hash_mix(hash, (uint64_t)u->dims[d].size),
                 (uint64_t)u->dims[d].even * 4 +
                     (uint64_t)u->dims[d].is_whole * 2 + (u->batch >> d & 1));
  for (int i = 0; i < u->kernels.n; i++) {
    const UnitKernel *k = &u->kernels.data[i];
    int phase = units->graph->nodes.data[k->id]->phase;
    hash = hash_mix(hash, loads_kernel_key(t->loads, k->id) * 2 + k->is_light);
    hash = hash_mix(hash, (uint64_t)phase * 2 +
                              node_is_launched(units->graph, k->id));
    for (int d = 0; d < k->dims->n; d++)
      hash = hash_mix(hash, (uint64_t)k->loop[d]);
  }
  for (int i = 0; i < u->sums.n; i++)
    hash = hash_mix(hash_mix(hash, u->sums.data[i].over),
                    (uint64_t)u->sums.data[i].readers * 2 +
                        u->sums.data[i].is_cut);
  for (int i = 0; i < u->saved.n; i++) {
    const UnitSaved *saved = &u->saved.data[i];
    bool stays = u->block < 0 || saved->leaves_block;
    hash = hash_mix(hash, type_hash(saved->type) * 4 +
                              (uint64_t)saved->of_params * 2 + stays);
    for (int d = 0; d < saved->type->rank; d++)
      hash = hash_mix(hash, (uint64_t)saved->dims.at[d]);
  }
  for (int i = 0; i < units->params.n; i++) {
    const UnitParam *p = &units->params.data[i];
    if (p->unit != unit) continue;
    hash = hash_mix(hash_mix(hash, (uint64_t)p->state), (uint64_t)p->updated);
    hash = hash_mix(hash, (uint64_t)p->passes * 64 + (uint64_t)(p->cast + 1));
    for (int d = 0; d < p->type->rank; d++)
      hash = hash_mix(hash, (uint64_t)p->dims.at[d]);
  }
  return hash;
}

typedef struct ValueList {
  VEC(Assignment) values;
} ValueList;

static bool has_batch_axes(const PlanUnit *u, const Mesh *mesh,
                           Assignment assignment, int axes) {
  int own = 0;
  if (axes == ANY_AXES || !u->batch) return true;
  for (int a = 0; a < mesh->n_axes; a++)
    if (assignment.loop[a] >= 0 && u->batch >> assignment.loop[a] & 1)
      own |= 1 << a;
  return own == axes;
}

static bool pads_little(const PlanUnit *u, const Mesh *mesh,
                        Assignment assignment) {
  enum { PART = 8 };
  for (int d = 0; d < u->n_dims; d++) {
    int64_t n = 1, size = u->dims[d].size;
    for (int a = 0; a < mesh->n_axes; a++)
      if (assignment.loop[a] == d) n *= mesh->axes[a].size;
    bool is_batch = u->batch >> d & 1;
    if (!is_batch && (size + n - 1) / n * n - size > size / PART) return false;
  }
  return true;
}

/* Which assignments a unit may have. */
typedef struct ValueRule {
  const UnitPins *pins; /* or NULL */
  bool pads_little;
} ValueRule;

static bool is_value(const Tabling *t, int unit, const ValueRule *rule,
                     Assignment at) {
  const LoadRequest *r = &t->r->loads;
  const PlanUnit *u = r->units->units.data[unit];
  return has_batch_axes(u, r->mesh, at, t->r->batch_axes) &&
         unit_pins_allow(rule->pins, unit, at) &&
         loads_allow(t->loads, unit, at) &&
         (!rule->pads_little || pads_little(u, r->mesh, at));
}

static void add_values(Tabling *t, int unit, const ValueRule *rule, int axis,
                       Assignment at, ValueList *out) {
  const PlanUnit *u = t->r->loads.units->units.data[unit];
  if (out->values.n >= MOST_VALUES) {
    t->out->is_partial = true;
    return;
  }
  if (axis == t->r->loads.mesh->n_axes || axis == MOST_MESH_AXES) {
    if (is_value(t, unit, rule, at)) vec_push(t->arena, &out->values, at);
    return;
  }
  at.loop[axis] = NO_LOOP;
  add_values(t, unit, rule, axis + 1, at, out);
  for (int d = 0; d < u->n_dims; d++) {
    if (u->dims[d].is_whole || u->dims[d].size < 2) continue;
    at.loop[axis] = (int8_t)d;
    add_values(t, unit, rule, axis + 1, at, out);
  }
}

/* By the first rule that leaves a value. */
static ValueList values_of(Tabling *t, int unit) {
  const ValueRule rules[] = {{t->r->pins, t->r->pads_little},
                             {t->r->pins, false},
                             {NULL, t->r->pads_little},
                             {NULL, false}};
  ValueList list = {0};
  Assignment none;
  memset(none.loop, NO_LOOP, sizeof none.loop);
  for (int i = 0; i < ARRAY_LENGTH(rules) && list.values.n == 0; i++)
    add_values(t, unit, &rules[i], 0, none, &list);
  return list;
}

static void multiply_links(LinkLoad *links, int64_t times) {
  for (int l = 0; l < N_LOAD_LINKS; l++) links->busy[l] *= times;
}

static void multiply(Load *load, int64_t times) {
  load->forward *= times;
  load->input_gradient *= times;
  load->weight_gradient *= times;
  load->least_weights *= times;
  load->casts *= times;
  load->light[0] *= times;
  load->light[1] *= times;
  load->wait[0] *= times;
  load->wait[1] *= times;
  load->cut[0] *= times;
  load->cut[1] *= times;
  multiply_links(&load->links[0], times);
  multiply_links(&load->links[1], times);
  load->saved *= times;
  load->left *= times;
  load->least_saved *= times;
  load->least_left *= times;
  for (int zero = 0; zero < N_ZERO_LEVELS; zero++) {
    load->zero[zero].bulk *= times;
    load->zero[zero].summed *= times;
    multiply_links(&load->zero[zero].sums, times);
    multiply_links(&load->zero[zero].gathers, times);
    load->zero[zero].least_summed *= times;
    multiply_links(&load->zero[zero].least_sums, times);
    load->zero[zero].least_gradient *= times;
    load->zero[zero].update *= times;
    load->zero[zero].less_cast *= times;
    load->zero[zero].state *= times;
    load->zero[zero].least_state *= times;
    load->zero[zero].gradient *= times;
  }
}

static const UnitShape *shape_of(Tabling *t, int unit) {
  UnitShape *shape = map_get(t->shapes, key_of(t->hashes[unit]));
  if (shape) return shape;
  ValueList list = values_of(t, unit);
  if (list.values.n == 0) return NULL;
  Load *loads = ARENA_ARRAY(t->arena, Load, list.values.n);
  int64_t times = t->r->loads.units->units.data[unit]->times;
  for (int i = 0; i < list.values.n; i++) {
    loads[i] = loads_of_unit(t->loads, unit, list.values.data[i]);
    multiply(&loads[i], times);
  }
  shape = ARENA_NEW(t->arena, UnitShape);
  *shape = (UnitShape){list.values.n, list.values.data, loads};
  map_put(t->shapes, key_of(t->hashes[unit]), shape);
  return shape;
}

/* ---- edges ---- */

static uint64_t hash_edge(const Tabling *t, const UnitEdge *edge) {
  uint64_t hash =
      hash_mix(hash_mix(43, t->hashes[edge->from]), t->hashes[edge->to]);
  hash = hash_mix(hash_mix(hash, (uint64_t)edge->times), edge->partial);
  hash = hash_mix(hash, ((uint64_t)edge->readers * 2 + edge->from_sums) * 64 +
                            (uint64_t)edge->type->dtype);
  const Graph *graph = t->r->loads.units->graph;
  hash = hash_mix(hash,
                  ((uint64_t)edge->joined * 2 + edge->only_weights) * N_PHASES +
                      graph->nodes.data[edge->value.node]->phase);
  for (int d = 0; d < edge->type->rank; d++)
    hash = hash_mix(hash_mix(hash, (uint64_t)edge->type->dims[d].size),
                    (uint64_t)(edge->from_dims.at[d] + 1) * 64 +
                        (uint64_t)(edge->to_dims.at[d] + 1));
  return hash;
}

static const EdgeTable *table_of(Tabling *t, const UnitEdge *edge) {
  uint64_t hash = hash_edge(t, edge);
  EdgeTable *table = map_get(t->tables, key_of(hash));
  if (table) return table;
  const UnitShape *from = t->out->unit[edge->from],
                  *to = t->out->unit[edge->to];
  EdgeLoad *loads =
      ARENA_ARRAY(t->arena, EdgeLoad, from->n_values * to->n_values);
  for (int i = 0; i < from->n_values; i++)
    for (int k = 0; k < to->n_values; k++) {
      EdgeLoad *load = &loads[i * to->n_values + k];
      *load = loads_of_edge(t->loads, edge, from->values[i], to->values[k]);
      load->wait *= edge->times;
      load->least *= edge->times;
      multiply_links(&load->links, edge->times);
    }
  table = ARENA_NEW(t->arena, EdgeTable);
  table->loads = loads;
  map_put(t->tables, key_of(hash), table);
  return table;
}

/* Returns false if some unit cannot be assigned. */
static bool make_tables(Tabling *t) {
  const Units *units = t->r->loads.units;
  t->hashes = ARENA_ARRAY(t->arena, uint64_t, units->units.n);
  t->out->unit = ARENA_ARRAY(t->arena, const UnitShape *, units->units.n);
  t->out->edge = ARENA_ARRAY(t->arena, const EdgeTable *, units->edges.n + 1);
  for (int u = 0; u < units->units.n; u++) {
    t->hashes[u] = hash_unit(t, u);
    t->out->unit[u] = shape_of(t, u);
    if (!t->out->unit[u]) return false;
  }
  for (int i = 0; i < units->edges.n; i++)
    t->out->edge[i] = table_of(t, &units->edges.data[i]);
  return true;
}

const UnitTables *unit_tables(Arena *arena, const TableRequest *request) {
  Tabling t = {.arena = arena,
               .r = request,
               .loads = loads_create(arena, &request->loads),
               .shapes = map_create(arena),
               .tables = map_create(arena),
               .out = ARENA_NEW(arena, UnitTables)};
  return make_tables(&t) ? t.out : NULL;
}
