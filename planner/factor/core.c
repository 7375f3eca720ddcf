/*
 * core.c -- makes flat arrays of a reduced graph.
 */
#include "planner/factor/core.h"

/* Numbers the variables that are left; -1: gone. */
static int *number_variables(Core *core, const FactorGraph *g, Arena *scratch) {
  int *numbers = ARENA_ARRAY(scratch, int, g->n_variables);
  for (int i = 0; i < g->n_variables; i++) {
    numbers[i] = g->variables[i].n > 0 ? core->n_variables++ : -1;
    core->n_values += g->variables[i].n;
    if (g->variables[i].n > 0) core->n_pieces += g->variables[i].pieces.n;
  }
  return numbers;
}

/* Numbers the rows that a piece has.  out[row] counts those before it. */
static int *number_rows(Core *core, const FactorGraph *g, Arena *scratch) {
  int *cover = ARENA_ARRAY(scratch, int, g->n_rows + 1), sum = 0;
  int *numbers = ARENA_ARRAY(scratch, int, g->n_rows + 1);
  for (int i = 0; i < g->n_variables; i++) {
    const Variable *v = &g->variables[i];
    for (int k = 0; v->n > 0 && k < v->pieces.n; k++) {
      cover[v->pieces.data[k].begin]++;
      cover[v->pieces.data[k].end]--;
    }
  }
  for (int row = 0; row < g->n_rows; row++) {
    numbers[row] = core->n_rows;
    sum += cover[row];
    core->n_rows += sum > 0;
  }
  numbers[g->n_rows] = core->n_rows;
  core->room = ARENA_ARRAY(core->arena, int64_t, core->n_rows + 1);
  core->rows = ARENA_ARRAY(core->arena, int, core->n_rows);
  Wide fixed = 0;
  for (int row = 0; row < g->n_rows; row++) {
    fixed += g->fixed[row];
    if (numbers[row + 1] == numbers[row]) continue;
    core->rows[numbers[row]] = row;
    core->room[numbers[row]] = (int64_t)(g->limit - fixed);
  }
  return numbers;
}

static CorePiece make_piece(Core *core, const Piece *from, int n,
                            const int *rows) {
  CorePiece piece = {rows[from->begin], rows[from->end], NULL};
  int64_t *usages = ARENA_ARRAY(core->arena, int64_t, n);
  int64_t least = from->usages[0];
  for (int i = 1; i < n; i++)
    least = from->usages[i] < least ? from->usages[i] : least;
  for (int i = 0; i < n; i++) usages[i] = from->usages[i] - least;
  for (int row = piece.begin; row < piece.end; row++) core->room[row] -= least;
  piece.usages = usages;
  return piece;
}

static void fill_variables(Core *core, const FactorGraph *g, const int *rows) {
  int at = 0, value = 0, n_pieces = 0;
  for (int i = 0; i < g->n_variables; i++) {
    const Variable *v = &g->variables[i];
    if (v->n == 0) continue;
    core->variables[at] = i;
    core->n[at] = v->n;
    core->first[at] = value;
    core->piece_begins[at++] = n_pieces;
    for (int k = 0; k < v->n; k++) core->costs[value++] = v->costs[k];
    for (int k = 0; k < v->pieces.n; k++)
      core->pieces[n_pieces++] =
          make_piece(core, &v->pieces.data[k], v->n, rows);
  }
  core->piece_begins[at] = n_pieces;
  core->first[at] = value;
}

/* Returns costs with the sides exchanged. */
static const FactorCost *turned(Arena *arena, const FactorCost *costs, int n,
                                int m) {
  FactorCost *out = ARENA_ARRAY(arena, FactorCost, (int64_t)n * m);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < m; j++)
      out[(int64_t)j * n + i] = costs[(int64_t)i * m + j];
  return out;
}

static CoreEdge make_edge(Core *core, const Edge *from, const int *numbers) {
  int a = numbers[from->of[0]], b = numbers[from->of[1]];
  CoreEdge edge = {{a, b}, {core->n[a], core->n[b]}, {0, 0}, from->costs};
  if (a > b) {
    edge = (CoreEdge){{b, a}, {core->n[b], core->n[a]}, {0, 0}, NULL};
    edge.costs = turned(core->arena, from->costs, core->n[a], core->n[b]);
  }
  edge.at[0] = core->n_messages;
  edge.at[1] = edge.at[0] + edge.n[0];
  core->n_messages = edge.at[1] + edge.n[1];
  core->entries += (int64_t)edge.n[0] * edge.n[1];
  return edge;
}

/* Lists the edges of each variable by the other variable. */
static void list_edges(Core *core, Arena *scratch) {
  int n = core->n_variables, *to = ARENA_ARRAY(scratch, int, n + 1);
  core->edge_begins = ARENA_ARRAY(core->arena, int, n + 1);
  core->edge_lists = ARENA_ARRAY(core->arena, int, 2 * core->n_edges);
  for (int e = 0; e < core->n_edges; e++)
    for (int side = 0; side < 2; side++)
      core->edge_begins[core->edges[e].of[side] + 1]++;
  for (int i = 0; i < n; i++) {
    core->edge_begins[i + 1] += core->edge_begins[i];
    to[i + 1] = core->edge_begins[i + 1];
  }
  for (int side = 0; side < 2; side++) /* of[1]: the other one comes before */
    for (int e = 0; e < core->n_edges; e++) {
      int variable = core->edges[e].of[!side];
      core->edge_lists[to[variable]++] = e;
    }
}

Core *core_create(Arena *arena, const FactorGraph *g) {
  Arena *scratch = arena_beside(arena);
  Core *core = ARENA_NEW(arena, Core);
  core->arena = arena;
  core->constant = g->constant;
  int *numbers = number_variables(core, g, scratch);
  int *rows = number_rows(core, g, scratch);
  int n = core->n_variables;
  core->variables = ARENA_ARRAY(arena, int, n);
  core->n = ARENA_ARRAY(arena, int, n);
  core->first = ARENA_ARRAY(arena, int, n + 1);
  core->costs = ARENA_ARRAY(arena, FactorCost, core->n_values);
  core->pieces = ARENA_ARRAY(arena, CorePiece, core->n_pieces);
  core->piece_begins = ARENA_ARRAY(arena, int, n + 1);
  core->edges = ARENA_ARRAY(arena, CoreEdge, g->edges.n);
  fill_variables(core, g, rows);
  for (int e = 0; e < g->edges.n; e++)
    if (!g->edges.data[e].is_gone)
      core->edges[core->n_edges++] =
          make_edge(core, &g->edges.data[e], numbers);
  list_edges(core, scratch);
  arena_destroy(scratch);
  return core;
}

FactorCost core_cost(const Core *core, const int *values) {
  FactorCost sum = core->constant;
  for (int i = 0; i < core->n_variables; i++)
    sum += core->costs[core->first[i] + values[i]];
  for (int e = 0; e < core->n_edges; e++) {
    const CoreEdge *edge = &core->edges[e];
    FactorCost cost = edge->costs[(int64_t)values[edge->of[0]] * edge->n[1] +
                                  values[edge->of[1]]];
    if (cost >= COST_LIMIT) return COST_NEVER;
    sum += cost;
  }
  return sum;
}

void core_usages(const Core *core, const int *values, int64_t *out) {
  for (int row = 0; row <= core->n_rows; row++) out[row] = 0;
  for (int i = 0; i < core->n_variables; i++)
    for (int k = core->piece_begins[i]; k < core->piece_begins[i + 1]; k++) {
      const CorePiece *piece = &core->pieces[k];
      out[piece->begin] += piece->usages[values[i]];
      out[piece->end] -= piece->usages[values[i]];
    }
  for (int row = 1; row <= core->n_rows; row++) out[row] += out[row - 1];
}
