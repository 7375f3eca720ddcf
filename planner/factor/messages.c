/*
 * messages.c -- raises a lower bound by moving costs (TRW-S, Kolmogorov 2006,
 * as its later form SRMP).
 *
 * Each variable in turn takes from the edges to earlier ones all that they
 * prove about its values, gives its least cost to the constant, and spreads the
 * rest over its edges to later variables; a sweep goes forward and back.  No
 * step changes the cost of any assignment, and what is left is never negative,
 * so the constant is a bound, in integers and whatever the shares are.
 *
 * Prices of rows make memory a cost of values: usage times the sum of prices
 * over its rows, rounded down, less what the room costs, rounded up.
 */
#include "planner/factor/messages.h"

#include <string.h>

Messages *messages_create(Arena *arena, const Core *core) {
  Messages *m = ARENA_NEW(arena, Messages);
  m->core = core;
  m->is_out = ARENA_ARRAY(arena, bool, core->n_values);
  m->theta = arena_copy(arena, core->costs,
                        (size_t)core->n_values * sizeof(FactorCost));
  m->moved = ARENA_ARRAY(arena, FactorCost, core->n_messages);
  m->constant = core->constant;
  m->prices = ARENA_ARRAY(arena, int64_t, core->n_rows);
  m->sums = ARENA_ARRAY(arena, int64_t, core->n_rows + 1);
  m->paid = ARENA_ARRAY(arena, FactorCost, core->n_values);
  m->marginals = ARENA_ARRAY(arena, FactorCost, core->n_values);
  m->is_bad = ARENA_ARRAY(arena, bool, core->n_values);
  int most = 1;
  for (int i = 0; i < core->n_variables; i++)
    most = core->n[i] > most ? core->n[i] : most;
  m->taken = ARENA_ARRAY(arena, FactorCost, most);
  m->more = ARENA_ARRAY(arena, FactorCost, most);
  for (int v = 0; v < core->n_values; v++)
    if (m->theta[v] >= COST_LIMIT) {
      m->theta[v] = 0;
      m->is_out[v] = true;
    }
  return m;
}

void messages_copy(Messages *m, const Messages *from) {
  const Core *core = m->core;
  size_t n = (size_t)core->n_values, n_rows = (size_t)core->n_rows;
  memcpy(m->is_out, from->is_out, n * sizeof *m->is_out);
  memcpy(m->is_bad, from->is_bad, n * sizeof *m->is_bad);
  memcpy(m->theta, from->theta, n * sizeof *m->theta);
  memcpy(m->paid, from->paid, n * sizeof *m->paid);
  memcpy(m->marginals, from->marginals, n * sizeof *m->marginals);
  memcpy(m->moved, from->moved, (size_t)core->n_messages * sizeof *m->moved);
  memcpy(m->prices, from->prices, n_rows * sizeof *m->prices);
  memcpy(m->sums, from->sums, (n_rows + 1) * sizeof *m->sums);
  m->constant = from->constant;
  m->rent = from->rent;
  m->has_none = from->has_none;
}

/* Computes for each value of end 1 the least of the edge's costs. */
static void take_forward(const CoreEdge *edge, const FactorCost *moved,
                         const bool *is_out, FactorCost *out) {
  int m = edge->n[1];
  const FactorCost *costs = edge->costs;
  for (int j = 0; j < m; j++) out[j] = COST_NEVER;
  for (int i = 0; i < edge->n[0]; i++, costs += m) {
    FactorCost more = moved[i];
    if (is_out[i]) continue;
    for (int j = 0; j < m; j++) {
      FactorCost cost = costs[j] + more;
      out[j] = cost < out[j] ? cost : out[j];
    }
  }
}

/* Computes it for end 0, where `more` are what end 1 has moved, COST_NEVER
 * where a value is out. */
static void take_backward(const CoreEdge *edge, const FactorCost *more,
                          FactorCost *out) {
  int m = edge->n[1];
  const FactorCost *costs = edge->costs;
  for (int i = 0; i < edge->n[0]; i++, costs += m) {
    FactorCost least = COST_NEVER;
    for (int j = 0; j < m; j++) {
      FactorCost cost = costs[j] + more[j];
      least = cost < least ? cost : least;
    }
    out[i] = least;
  }
}

/* Takes what an edge proves about the values of one end. */
static void take(Messages *m, const CoreEdge *edge, int side) {
  const Core *core = m->core;
  int other = core->first[edge->of[!side]], own = core->first[edge->of[side]];
  const FactorCost *theirs = m->moved + edge->at[!side];
  FactorCost *out = m->taken, *more = m->more;
  FactorCost *moved = m->moved + edge->at[side];
  if (side == 1) {
    take_forward(edge, theirs, m->is_out + other, out);
  } else {
    for (int j = 0; j < edge->n[1]; j++)
      more[j] = m->is_out[other + j] ? COST_NEVER : theirs[j];
    take_backward(edge, more, out);
  }
  for (int i = 0; i < edge->n[side]; i++) {
    if (out[i] >= COST_LIMIT) {
      m->is_bad[own + i] = true;
      continue;
    }
    m->theta[own + i] += out[i] + moved[i];
    moved[i] = -out[i];
  }
}

/* Moves the least cost of a variable to the constant. */
static void level(Messages *m, int variable) {
  int first = m->core->first[variable], n = m->core->n[variable];
  FactorCost least = COST_NEVER;
  for (int v = first; v < first + n; v++)
    if (!m->is_bad[v] && m->theta[v] < least) least = m->theta[v];
  if (least >= COST_LIMIT) {
    m->has_none = true;
    return;
  }
  for (int v = first; v < first + n; v++) m->theta[v] -= least;
  m->constant += least;
}

/* Gives shares of what is left to the edges on one side. */
static void spread(Messages *m, int variable, const int *edges, int n_edges,
                   int side, int shares) {
  int first = m->core->first[variable], n = m->core->n[variable];
  if (n_edges == 0 || m->is_local) return;
  for (int v = 0; v < n; v++) {
    FactorCost *theta = &m->theta[first + v];
    if (m->is_bad[first + v] || *theta < shares) continue;
    FactorCost share = *theta / shares;
    *theta -= share * n_edges;
    for (int k = 0; k < n_edges; k++)
      m->moved[m->core->edges[edges[k]].at[side] + v] += share;
  }
}

/* Returns how many of a variable's edges lead to earlier ones. */
static int n_earlier(const Core *core, int variable) {
  int begin = core->edge_begins[variable],
      end = core->edge_begins[variable + 1];
  int n = 0;
  while (begin + n < end &&
         core->edges[core->edge_lists[begin + n]].of[1] == variable)
    n++;
  return n;
}

/* Takes all from the edges on one side of a variable. */
static void gather(Messages *m, int variable, bool forward) {
  const Core *core = m->core;
  const int *edges = core->edge_lists + core->edge_begins[variable];
  int n = core->edge_begins[variable + 1] - core->edge_begins[variable];
  int earlier = n_earlier(core, variable);
  int first = core->first[variable], end = first + core->n[variable];
  for (int v = first; v < end; v++) m->is_bad[v] = m->is_out[v];
  for (int k = forward ? 0 : earlier; k < (forward ? earlier : n); k++)
    take(m, &core->edges[edges[k]], forward);
  level(m, variable);
}

/* Gives what a variable has to the edges on the other side. */
static void pass_on(Messages *m, int variable, bool forward) {
  const Core *core = m->core;
  const int *edges = core->edge_lists + core->edge_begins[variable];
  int n = core->edge_begins[variable + 1] - core->edge_begins[variable];
  int earlier = n_earlier(core, variable), later = n - earlier;
  spread(m, variable, edges + (forward ? earlier : 0),
         forward ? later : earlier, !forward,
         later > earlier ? later : earlier);
}

static void keep_marginals(Messages *m, int variable) {
  int first = m->core->first[variable];
  for (int v = first; v < first + m->core->n[variable]; v++)
    m->marginals[v] =
        m->is_bad[v] ? COST_NEVER : m->constant - m->rent + m->theta[v];
}

void messages_sweep(Messages *m) {
  int n = m->core->n_variables;
  m->has_none = false;
  for (int i = 0; i < n && !m->has_none; i++) {
    gather(m, i, true);
    pass_on(m, i, true);
  }
  for (int i = n - 1; i >= 0 && !m->has_none; i--) {
    gather(m, i, false);
    keep_marginals(m, i);
    pass_on(m, i, false);
  }
}

/* Returns the best value with those of earlier variables. */
static int read_value(const Messages *m, int variable, const int *values) {
  const Core *core = m->core;
  int first = core->first[variable], best = 0;
  FactorCost least = COST_NEVER;
  for (int v = 0; v < core->n[variable]; v++) {
    if (m->is_bad[first + v]) continue;
    FactorCost sum = m->theta[first + v];
    for (int k = core->edge_begins[variable];
         k < core->edge_begins[variable + 1] && sum < COST_LIMIT; k++) {
      const CoreEdge *edge = &core->edges[core->edge_lists[k]];
      if (edge->of[1] != variable) break;
      int other = values[edge->of[0]];
      sum = cost_plus(sum, edge->costs[(int64_t)other * edge->n[1] + v] +
                               m->moved[edge->at[0] + other] +
                               m->moved[edge->at[1] + v]);
    }
    if (sum < least) {
      least = sum;
      best = v;
    }
  }
  return best;
}

void messages_read(Messages *m, int *out_values) {
  int n = m->core->n_variables;
  m->has_none = false;
  for (int i = 0; i < n && !m->has_none; i++) {
    gather(m, i, true);
    out_values[i] = read_value(m, i, out_values);
    pass_on(m, i, true);
  }
}

FactorCost messages_bound(const Messages *m) {
  return m->has_none ? COST_NEVER : m->constant - m->rent;
}

/* ---- prices ---- */

/* Returns usage times price, rounded down. */
static FactorCost times_price(int64_t usage, int64_t price) {
  Wide product = ((Wide)usage * price) >> PRICE_BITS;
  return product < FACTOR_MOST_COST ? (FactorCost)product : FACTOR_MOST_COST;
}

FactorCost messages_paid(const Messages *m, int variable, int value) {
  return m->paid[m->core->first[variable] + value];
}

static void price_variable(Messages *m, int variable) {
  const Core *core = m->core;
  int first = core->first[variable];
  for (int v = 0; v < core->n[variable]; v++) {
    FactorCost sum = 0;
    for (int k = core->piece_begins[variable];
         k < core->piece_begins[variable + 1]; k++) {
      const CorePiece *piece = &core->pieces[k];
      sum += times_price(piece->usages[v],
                         m->sums[piece->end] - m->sums[piece->begin]);
    }
    m->theta[first + v] += sum - m->paid[first + v];
    m->paid[first + v] = sum;
  }
}

void messages_price(Messages *m) {
  const Core *core = m->core;
  Wide rent = 0;
  for (int row = 0; row < core->n_rows; row++) {
    m->sums[row + 1] = m->sums[row] + m->prices[row];
    rent += (Wide)core->room[row] * m->prices[row];
  }
  m->rent = (FactorCost)((rent + ((Wide)1 << PRICE_BITS) - 1) >> PRICE_BITS);
  for (int i = 0; i < core->n_variables; i++)
    if (core->piece_begins[i + 1] > core->piece_begins[i]) price_variable(m, i);
}
