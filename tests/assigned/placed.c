/*
 * placed.c -- reads which assignment the program of a plan has.
 *
 * Lines do not say everything, and partition decides the rest: a unit may come
 * out otherwise than it was drawn.
 */
#include <string.h>

#include "price/units/placed_units.h"
#include "tests/assigned/assigned.h"

/* Returns -1 if the space does not have the assignment. */
static int find_value(const UnitShape *shape, Assignment assignment) {
  for (int i = 0; i < shape->n_values; i++)
    if (memcmp(&shape->values[i], &assignment, sizeof assignment) == 0)
      return i;
  return -1;
}

int assigned_placed(const Program *program, Arena *arena, const Trial *trial,
                    Drawn *d) {
  int n = program->units->units.n, n_others = 0;
  int *values = ARENA_ARRAY(arena, int, n + 1);
  PlacedUnits placed = units_placed(arena, program->units, trial->c.plan,
                                    trial->priced.stage->instructions->graph);
  if (placed.reason || placed.recomputes != d->proposal.recomputes) return -1;
  for (int u = 0; u < n; u++) {
    values[u] = find_value(d->tables->unit[u], placed.assignments[u]);
    if (values[u] < 0) return -1;
    if (values[u] == d->values[u]) continue;
    if (placed.is_mixed[u]) return -1;
    n_others++;
  }
  d->values = values;
  d->proposal.assignments = placed.assignments;
  return n_others;
}
