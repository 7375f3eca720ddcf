/*
 * drawn.c -- draws a mesh, settings and an assignment of all units, and writes
 * them as a plan.
 */
#include <string.h>

#include "planner/solve/eliminate.h"
#include "planner/proposal_text.h"
#include "tests/assigned/assigned.h"

/* Draws up to two axes. */
static Mesh *draw_mesh(Choices *choices, Arena *arena, int most_log) {
  Mesh *mesh = ARENA_NEW(arena, Mesh);
  int log = 1 + choose(choices, most_log);
  int outer = choose(choices, log + 1);
  int logs[] = {outer, log - outer};
  for (int i = 0; i < 2; i++)
    if (logs[i] > 0)
      mesh->axes[mesh->n_axes++] =
          (MeshAxis){.name = i ? "inner" : "outer", .size = 1 << logs[i]};
  return mesh;
}

static int64_t draw_microbatches(const Program *program, Choices *choices) {
  int64_t batch = program->loaded.pins ? program->loaded.pins->batch : 1;
  int64_t n = choose(choices, 2) ? 1 << choose(choices, 4) : 1;
  while (n > 1 && batch % n != 0) n /= 2;
  return n;
}

const Load *assigned_load_of(const Drawn *drawn, int unit) {
  return &drawn->tables->unit[unit]->loads[drawn->values[unit]];
}

const EdgeLoad *assigned_edge_of(const Program *program, const Drawn *drawn,
                                 int at) {
  const UnitEdge *edge = &program->units->edges.data[at];
  int n = drawn->tables->unit[edge->to]->n_values;
  return &drawn->tables->edge[at]
              ->loads[drawn->values[edge->from] * n + drawn->values[edge->to]];
}

/* ---- the assignment ---- */

static int find_value(const UnitShape *shape, Assignment assignment) {
  for (int i = 0; i < shape->n_values; i++)
    if (memcmp(&shape->values[i], &assignment, sizeof assignment) == 0)
      return i;
  return 0;
}

/* Returns false if nothing is proposed. */
static bool start_at_proposal(const Program *program, Arena *arena,
                              const TableRequest *tables, Drawn *d,
                              int *values) {
  SpaceRequest space = {.arena = arena,
                        .units = program->units,
                        .slice = &d->slice,
                        .model = &d->model};
  int n_spaces;
  SpacePlace place = {.space = spaces_all(&n_spaces),
                      .mesh = d->proposal.place.mesh};
  ProposeRequest request = {.of = &space,
                            .place = &place,
                            .microbatches = d->proposal.microbatches,
                            .batch_axes = tables->batch_axes,
                            .zeros = 1u << d->proposal.zero,
                            .memory = INT64_MAX / 4,
                            .worth = INT64_MAX / 4};
  Proposals found = {0};
  propose(arena, &request, &found);
  for (int u = 0; u < program->units->units.n && found.list.n > 0; u++)
    values[u] =
        find_value(d->tables->unit[u], found.list.data[0].assignments[u]);
  return found.list.n > 0;
}

/* Every unit at random, or a good assignment with a unit changed. */
static void draw_values(const Program *program, Arena *arena, Choices *choices,
                        const TableRequest *tables, Drawn *d) {
  int n = program->units->units.n;
  int *values = ARENA_ARRAY(arena, int, n);
  bool is_good = choose(choices, 2) &&
                 start_at_proposal(program, arena, tables, d, values);
  int changed = choose(choices, n);
  for (int u = 0; u < n; u++)
    if (!is_good || u == changed)
      values[u] = choose(choices, d->tables->unit[u]->n_values);
  Assignment *assignments = ARENA_ARRAY(arena, Assignment, n);
  for (int u = 0; u < n; u++)
    assignments[u] = d->tables->unit[u]->values[values[u]];
  d->proposal.assignments = assignments;
  d->values = values;
}

/* No space has an assignment whose shards do not nest: a chain of collectives
 * cannot bring a value where its reader wants it. */
static bool has_chains(const Program *program, const Drawn *d) {
  for (int i = 0; i < program->units->edges.n; i++) {
    const UnitEdge *edge = &program->units->edges.data[i];
    if (assigned_edge_of(program, d, i)->wait >=
        ELIMINATE_MOST / BOUND_PARTS / edge->readers)
      return false;
  }
  return true;
}

/* ---- the plan ---- */

static const char *text_of(const Program *program, Arena *arena,
                           const Proposal *p) {
  const char **names = ARENA_ARRAY(arena, const char *, MAX_AXES);
  const UnitRepeats *repeats = program->units->repeats;
  Text out = text_create(arena);
  proposal_axis_names(arena, program->units, p, names);
  text_add(&out, "mesh {\n");
  for (int a = 0; a < p->place.mesh->n_axes; a++)
    text_printf(&out, "  %s = %d\n", names[a],
                (int)p->place.mesh->axes[a].size);
  text_add(&out, "}\n\nplan {\n");
  if (p->microbatches > 1)
    text_printf(&out, "  microbatches = %lld\n", (long long)p->microbatches);
  if (p->zero > 0)
    text_printf(&out,
                p->place.mesh->n_axes > 1 ? "  zero = %d over (%s, %s)\n"
                                          : "  zero = %d over %s\n",
                p->zero, names[0], p->place.mesh->n_axes > 1 ? names[1] : "");
  text_add(&out,
           proposal_lines(arena, program->units, program->paths, p, names));
  for (int i = 0; i < repeats->n && p->recomputes; i++)
    text_printf(&out, "  remat %s\n", repeats->repeats[i].name);
  text_add(&out, "}\n");
  return text_string(&out);
}

bool assigned_draw(const Program *program, Arena *arena, uint64_t seed,
                   Drawn *out) {
  Choices *choices = choices_random(arena, seed);
  *out = (Drawn){0};
  Proposal *p = &out->proposal;
  Mesh *mesh = draw_mesh(choices, arena, program->subject->most_log_ranks);
  int64_t ranks = 1;
  for (int a = 0; a < mesh->n_axes; a++) ranks *= mesh->axes[a].size;
  p->place.mesh = mesh;
  p->microbatches = draw_microbatches(program, choices);
  p->zero = choose(choices, N_ZERO_LEVELS);
  p->recomputes = choose(choices, 3) == 2 && program->units->repeats->n > 0;
  out->model = program->trial.priced.model;
  out->slice = cluster_slice(arena, program->trial.priced.cluster, 0, ranks);
  if (!driver_cost_model(&program->trial.c, &out->slice, &out->model))
    return false;
  TableRequest tables = {.loads = {.units = program->units,
                                   .mesh = mesh,
                                   .slice = &out->slice,
                                   .model = &out->model,
                                   .microbatches = p->microbatches},
                         .batch_axes = p->microbatches > 1
                                           ? choose(choices, 1 << mesh->n_axes)
                                           : ANY_AXES};
  out->tables = unit_tables(arena, &tables);
  if (!out->tables) return false;
  LoadRequest *request = ARENA_NEW(arena, LoadRequest);
  *request = tables.loads;
  out->loads = loads_create(arena, request);
  draw_values(program, arena, choices, &tables, out);
  if (!has_chains(program, out)) return false;
  out->text = text_of(program, arena, p);
  return true;
}
