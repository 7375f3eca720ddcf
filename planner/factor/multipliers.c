/*
 * multipliers.c -- prices of memory, by row.
 *
 * The reading of the messages takes more than the room in some rows: of each
 * run of such rows the one that exceeds it most gets a price.  All rows with a
 * price then move along what they exceed, by a step that would close the gap
 * between bound and best cost if the bound were linear (Polyak 1969).  Prices
 * stay from sweep to sweep.  Any prices give a valid bound, so the step may be
 * computed in floating-point numbers: each operation on them is exact to the
 * last bit by IEEE 754.
 */
#include "planner/factor/solver.h"

/* Marks the rows that move: those with a price, and the highest of each run
 * above the room.  Returns the square of what they exceed. */
static double find_rows(Solver *s, bool *out_moves) {
  const Core *core = s->core;
  double square = 0;
  int highest = -1;
  for (int row = 0; row <= core->n_rows; row++) {
    int64_t over = row < core->n_rows ? s->usages[row] - core->room[row] : 0;
    if (over > 0) {
      if (highest < 0 || over > s->usages[highest] - core->room[highest])
        highest = row;
    } else if (highest >= 0) {
      out_moves[highest] = true;
      highest = -1;
    }
    if (row < core->n_rows && s->messages->prices[row] > 0)
      out_moves[row] = true;
  }
  for (int row = 0; row < core->n_rows; row++) {
    double over = (double)(s->usages[row] - core->room[row]);
    if (out_moves[row]) square += over * over;
  }
  return square;
}

/* Keeps the sum of all prices, and of what all room costs, in 64 bits. */
static double limit_price(const Core *core, int row, double price) {
  double most = 0x1p60 / core->n_rows;
  double rent = 0x1p88 / core->n_rows / ((double)core->room[row] + 1);
  most = rent < most ? rent : most;
  return price > most ? most : price < -most ? -most : price;
}

/* Guesses how far the bound can rise. The best cost may be far too high. */
static double guess_gap(const Solver *s) {
  double now = (double)messages_bound(s->messages), best = (double)s->bound;
  double size = (best < 0 ? -best : best) / 8, gap = size;
  if (s->cost < COST_LIMIT) {
    double most = (double)s->cost - best;
    gap = most < size ? most : most / 1024 > size ? most / 1024 : size;
  }
  return gap + (best - now) + 1;
}

void multipliers_step(Solver *s) {
  const Core *core = s->core;
  Messages *m = s->messages;
  Arena *scratch = arena_beside(s->arena);
  bool *moves = ARENA_ARRAY(scratch, bool, core->n_rows + 1);
  core_usages(core, s->reading, s->usages);
  double square = find_rows(s, moves);
  double unit = (double)((int64_t)1 << PRICE_BITS);
  double gap = guess_gap(s);
  for (int row = 0; row < core->n_rows && square > 0; row++) {
    if (!moves[row]) continue;
    double over = (double)(s->usages[row] - core->room[row]);
    double step = gap * ((double)s->scale / 1048576.0) / square * over * unit;
    double price =
        (double)m->prices[row] + 0.7 * step + 0.3 * (double)s->steps[row];
    s->steps[row] = (int64_t)limit_price(core, row, step);
    m->prices[row] = price > 0 ? (int64_t)limit_price(core, row, price) : 0;
  }
  messages_price(m);
  arena_destroy(scratch);
}
