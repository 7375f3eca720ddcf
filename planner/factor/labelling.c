/*
 * labelling.c -- keeps what values take by row, in a tree over the rows.
 */
#include "planner/factor/labelling.h"

#include <string.h>

static void fill(Labelling *labelling, int at, int begin, int width) {
  const Core *core = labelling->core;
  labelling->more[at] = 0;
  if (width == 1) {
    labelling->most[at] =
        begin < core->n_rows ? -core->room[begin] : INT64_MIN / 4;
    return;
  }
  fill(labelling, 2 * at, begin, width / 2);
  fill(labelling, 2 * at + 1, begin + width / 2, width / 2);
  int64_t a = labelling->most[2 * at], b = labelling->most[2 * at + 1];
  labelling->most[at] = a > b ? a : b;
}

void labelling_clear(Labelling *labelling) {
  for (int i = 0; i < labelling->core->n_variables; i++)
    labelling->values[i] = -1;
  fill(labelling, 1, 0, labelling->width);
}

Labelling *labelling_create(Arena *arena, const Core *core) {
  Labelling *labelling = ARENA_NEW(arena, Labelling);
  labelling->core = core;
  labelling->width = 1;
  while (labelling->width < core->n_rows) labelling->width *= 2;
  labelling->values = ARENA_ARRAY(arena, int, core->n_variables);
  labelling->most = ARENA_ARRAY(arena, int64_t, 2 * (int64_t)labelling->width);
  labelling->more = ARENA_ARRAY(arena, int64_t, 2 * (int64_t)labelling->width);
  labelling_clear(labelling);
  return labelling;
}

void labelling_copy(Labelling *labelling, const Labelling *from) {
  size_t n = (size_t)labelling->core->n_variables;
  size_t n_nodes = 2 * (size_t)labelling->width;
  memcpy(labelling->values, from->values, n * sizeof *from->values);
  memcpy(labelling->most, from->most, n_nodes * sizeof *from->most);
  memcpy(labelling->more, from->more, n_nodes * sizeof *from->more);
  labelling->weight = from->weight;
  labelling->cost = from->cost;
}

/* Adds to the rows of a piece that lie in a subtree. */
static void add(Labelling *labelling, int at, int begin, int width,
                const CorePiece *of, int64_t usage) {
  if (of->end <= begin || begin + width <= of->begin) return;
  if (of->begin <= begin && begin + width <= of->end) {
    labelling->most[at] += usage;
    labelling->more[at] += usage;
    return;
  }
  add(labelling, 2 * at, begin, width / 2, of, usage);
  add(labelling, 2 * at + 1, begin + width / 2, width / 2, of, usage);
  int64_t a = labelling->most[2 * at], b = labelling->most[2 * at + 1];
  labelling->most[at] = (a > b ? a : b) + labelling->more[at];
}

/* Returns the most above the room in the rows of a piece in a subtree. */
static int64_t most_in(const Labelling *labelling, int at, int begin, int width,
                       const CorePiece *of) {
  if (of->end <= begin || begin + width <= of->begin) return INT64_MIN / 2;
  if (of->begin <= begin && begin + width <= of->end)
    return labelling->most[at];
  int64_t a = most_in(labelling, 2 * at, begin, width / 2, of);
  int64_t b = most_in(labelling, 2 * at + 1, begin + width / 2, width / 2, of);
  return (a > b ? a : b) + labelling->more[at];
}

static void add_all(Labelling *labelling, int variable, int value, int sign) {
  const Core *core = labelling->core;
  for (int k = core->piece_begins[variable];
       k < core->piece_begins[variable + 1]; k++)
    if (core->pieces[k].usages[value])
      add(labelling, 1, 0, labelling->width, &core->pieces[k],
          sign * core->pieces[k].usages[value]);
}

void labelling_put(Labelling *labelling, int variable, int value) {
  add_all(labelling, variable, value, 1);
  labelling->values[variable] = value;
}

void labelling_take(Labelling *labelling, int variable) {
  add_all(labelling, variable, labelling->values[variable], -1);
  labelling->values[variable] = -1;
}

int64_t labelling_over(const Labelling *labelling, int variable, int value) {
  const Core *core = labelling->core;
  int64_t over = 0;
  for (int k = core->piece_begins[variable];
       k < core->piece_begins[variable + 1]; k++) {
    const CorePiece *piece = &core->pieces[k];
    int64_t usage = piece->usages[value];
    if (usage == 0) continue;
    int64_t above = most_in(labelling, 1, 0, labelling->width, piece) + usage;
    over = above > over ? above : over;
  }
  return over;
}

int labelling_worst_row(const Labelling *labelling) {
  int at = 1;
  while (at < labelling->width)
    at = 2 * at + (labelling->most[2 * at + 1] > labelling->most[2 * at]);
  return at - labelling->width;
}

void cost_add(Cost *to, FactorCost cost) {
  if (cost >= COST_LIMIT)
    to->n_forbidden++;
  else
    to->sum += cost;
}

Cost labelling_cost(const Labelling *labelling) {
  const Core *core = labelling->core;
  const int *values = labelling->values;
  Cost cost = {labelling->most[1] > 0 ? labelling->most[1] : 0, 0,
               core->constant};
  for (int i = 0; i < core->n_variables; i++)
    cost_add(&cost, core->costs[core->first[i] + values[i]]);
  for (int e = 0; e < core->n_edges; e++) {
    const CoreEdge *edge = &core->edges[e];
    cost_add(&cost, edge->costs[(int64_t)values[edge->of[0]] * edge->n[1] +
                                values[edge->of[1]]]);
  }
  return cost;
}

void labelling_set(Labelling *labelling, const int *values) {
  labelling_clear(labelling);
  for (int i = 0; i < labelling->core->n_variables; i++)
    labelling_put(labelling, i, values[i]);
  labelling->cost = labelling_cost(labelling);
}
