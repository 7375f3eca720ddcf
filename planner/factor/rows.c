/*
 * rows.c -- finds the times at which memory may be short, and the values that
 * no memory is left for.
 *
 * Between one end of an interval and the next one, the last begin comes with
 * the largest sum: only these times are rows.  An interval that is not empty
 * has at least one, since it ends.
 */
#include <stdlib.h>

#include "planner/factor/factor_graph.h"

typedef struct Event {
  int64_t time;
  bool is_begin;
} Event;

static int compare_events(const void *a, const void *b) {
  const Event *x = a, *y = b;
  if (x->time != y->time) return x->time < y->time ? -1 : 1;
  return x->is_begin - y->is_begin;
}

/* Returns the first row that is at a time or after it. */
static int row_from(const int64_t *times, int n, int64_t time) {
  int low = 0, high = n;
  while (low < high) {
    int middle = (low + high) / 2;
    if (times[middle] < time)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

void rows_create(FactorGraph *g, const FactorProblem *problem) {
  int n = 2 * problem->usages.n;
  Event *events = ARENA_ARRAY(g->arena, Event, n);
  int64_t *times = g->times = ARENA_ARRAY(g->arena, int64_t, n);
  for (int i = 0; i < problem->usages.n; i++) {
    events[2 * i] = (Event){problem->usages.data[i].begin, true};
    events[2 * i + 1] = (Event){problem->usages.data[i].end, false};
  }
  qsort(events, (size_t)n, sizeof *events, compare_events);
  for (int i = 0; i + 1 < n; i++)
    if (events[i].is_begin && !events[i + 1].is_begin)
      times[g->n_rows++] = events[i].time;
  g->fixed = ARENA_ARRAY(g->arena, Wide, g->n_rows + 1);
  for (int i = 0; i < problem->usages.n; i++) {
    const ProblemUsage *use = &problem->usages.data[i];
    Piece piece = {row_from(times, g->n_rows, use->begin),
                   row_from(times, g->n_rows, use->end), NULL};
    ASSERT(piece.begin < piece.end);
    int n_values = g->variables[use->variable].n;
    piece.usages = ARENA_ARRAY(g->arena, int64_t, n_values);
    for (int v = 0; v < n_values; v++)
      piece.usages[v] =
          use->usages[v] < INT64_MAX / 4 ? use->usages[v] : INT64_MAX / 4;
    vec_push(g->arena, &g->variables[use->variable].pieces, piece);
  }
}

/* ---- disjoint pieces ---- */

static int64_t saturated(Wide sum) {
  return sum > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)sum;
}

/* The begin or the end of a piece. */
typedef struct Bound {
  int row, piece; /* piece: ~piece at its end */
} Bound;

static int compare_bounds(const void *a, const void *b) {
  const Bound *x = a, *y = b;
  return x->row != y->row ? x->row - y->row : x->piece - y->piece;
}

static Bound *sort_bounds(const Variable *v, Arena *scratch) {
  Bound *bounds = ARENA_ARRAY(scratch, Bound, 2 * (int64_t)v->pieces.n);
  for (int k = 0; k < v->pieces.n; k++) {
    bounds[2 * k] = (Bound){v->pieces.data[k].begin, k};
    bounds[2 * k + 1] = (Bound){v->pieces.data[k].end, ~k};
  }
  qsort(bounds, 2 * (size_t)v->pieces.n, sizeof *bounds, compare_bounds);
  return bounds;
}

/* Appends a piece of these usages, the least of which becomes fixed. */
static void append_piece(FactorGraph *g, Pieces *to, int begin, int end,
                         const Wide *usages, int n) {
  Wide least = usages[0];
  bool is_zero = true, is_same = to->n > 0 && to->data[to->n - 1].end == begin;
  for (int i = 1; i < n; i++) least = usages[i] < least ? usages[i] : least;
  g->fixed[begin] += least;
  g->fixed[end] -= least;
  for (int i = 0; i < n; i++) {
    int64_t more = saturated(usages[i] - least);
    is_zero &= more == 0;
    is_same &= is_same && to->data[to->n - 1].usages[i] == more;
  }
  if (is_zero) return;
  if (is_same) {
    to->data[to->n - 1].end = end;
    return;
  }
  Piece piece = {begin, end, ARENA_ARRAY(g->arena, int64_t, n)};
  for (int i = 0; i < n; i++) piece.usages[i] = saturated(usages[i] - least);
  vec_push(g->arena, to, piece);
}

void rows_merge(FactorGraph *g, int variable) {
  Variable *v = &g->variables[variable];
  if (v->is_merged || v->n == 0 || v->pieces.n == 0) return;
  Arena *scratch = arena_beside(g->arena);
  Pieces pieces = {0};
  Bound *bounds = sort_bounds(v, scratch);
  Wide *sums = ARENA_ARRAY(scratch, Wide, v->n);
  for (int k = 0; k < 2 * v->pieces.n; k++) {
    bool is_end = bounds[k].piece < 0;
    int piece = is_end ? ~bounds[k].piece : bounds[k].piece;
    if (k > 0 && bounds[k - 1].row < bounds[k].row)
      append_piece(g, &pieces, bounds[k - 1].row, bounds[k].row, sums, v->n);
    for (int i = 0; i < v->n; i++) {
      int64_t usage = v->pieces.data[piece].usages[i];
      sums[i] += is_end ? -usage : usage;
    }
  }
  v->pieces = pieces;
  v->is_merged = true;
  arena_destroy(scratch);
}

/* ---- what is left in each row ---- */

typedef struct Room {
  int64_t *least, *most; /* sums of usages, of all variables, by row */
  int *n_short;          /* rows before this one that may exceed the limit */
  int64_t *tree;         /* the least room, by powers of two from a row on */
  int n, levels;
} Room;

/* Adds up the least or the most of all pieces. */
static void add_up(const FactorGraph *g, bool most, int64_t *out) {
  Arena *scratch = arena_beside(g->arena);
  Wide *change = ARENA_ARRAY(scratch, Wide, g->n_rows + 1), sum = 0;
  for (int i = 0; i < g->n_variables; i++) {
    const Variable *v = &g->variables[i];
    for (int k = 0; v->n && k < v->pieces.n; k++) {
      const Piece *piece = &v->pieces.data[k];
      int64_t usage = piece->usages[0];
      for (int j = 1; j < v->n; j++)
        if (most ? piece->usages[j] > usage : piece->usages[j] < usage)
          usage = piece->usages[j];
      change[piece->begin] += usage;
      change[piece->end] -= usage;
    }
  }
  for (int row = 0; row < g->n_rows; row++) {
    sum += change[row] + g->fixed[row];
    out[row] = saturated(sum);
  }
  arena_destroy(scratch);
}

static void make_tree(const FactorGraph *g, Room *room, Arena *scratch) {
  room->n = g->n_rows;
  room->levels = 1;
  while (1 << room->levels <= room->n) room->levels++;
  room->tree = ARENA_ARRAY(scratch, int64_t, (int64_t)room->n * room->levels);
  for (int row = 0; row < room->n; row++)
    room->tree[row] = g->limit - room->least[row];
  for (int level = 1; level < room->levels; level++) {
    int64_t *to = room->tree + (int64_t)level * room->n, *from = to - room->n;
    for (int row = 0; row + (1 << level) <= room->n; row++) {
      int64_t other = from[row + (1 << (level - 1))];
      to[row] = from[row] < other ? from[row] : other;
    }
  }
}

/* Returns the least room of the rows from begin to end - 1. */
static int64_t least_room(const Room *room, int begin, int end) {
  int level = 31 - __builtin_clz((unsigned)(end - begin));
  const int64_t *of = room->tree + (int64_t)level * room->n;
  int64_t a = of[begin], b = of[end - (1 << level)];
  return a < b ? a : b;
}

/* Notes a row in which a value has no room. */
static void note_large(FactorGraph *g, const Room *room, int variable,
                       const Piece *piece, int value, int64_t least) {
  int row = piece->begin;
  if (!g->is_noted) return;
  while (row + 1 < piece->end &&
         room->tree[row] + least >= piece->usages[value])
    row++;
  factor_graph_note(g, FACTOR_STEP_memory, variable, value, 0, g->times[row]);
}

/* Marks the values that a piece has no room for. */
static bool mark_large(FactorGraph *g, const Room *room, int variable,
                       const Piece *piece, bool *keep) {
  int n = g->variables[variable].n;
  int64_t least = piece->usages[0];
  bool has_gone = false;
  for (int i = 1; i < n; i++)
    if (piece->usages[i] < least) least = piece->usages[i];
  int64_t most = least_room(room, piece->begin, piece->end) + least;
  for (int i = 0; i < n; i++)
    if (piece->usages[i] > most && keep[i]) {
      note_large(g, room, variable, piece, i, least);
      keep[i] = false;
      has_gone = true;
    }
  return has_gone;
}

static bool reduce_variable(FactorGraph *g, const Room *room, int variable,
                            Arena *scratch) {
  Variable *v = &g->variables[variable];
  bool *keep = ARENA_ARRAY(scratch, bool, v->n), has_gone = false;
  int n = 0;
  for (int i = 0; i < v->n; i++) keep[i] = true;
  for (int k = 0; k < v->pieces.n; k++) {
    Piece piece = v->pieces.data[k];
    if (room->n_short[piece.end] == room->n_short[piece.begin]) continue;
    v->pieces.data[n++] = piece;
    has_gone |= mark_large(g, room, variable, &piece, keep);
  }
  bool is_changed = has_gone || n < v->pieces.n;
  v->pieces.n = n;
  if (has_gone) factor_graph_keep(g, variable, keep);
  rows_merge(g, variable);
  return is_changed;
}

int rows_reduce(FactorGraph *g, bool *is_changed) {
  Arena *scratch = arena_beside(g->arena);
  Room room = {0};
  int n_changes = 0;
  room.least = ARENA_ARRAY(scratch, int64_t, g->n_rows);
  room.most = ARENA_ARRAY(scratch, int64_t, g->n_rows);
  for (int i = 0; i < g->n_variables; i++)
    if (g->variables[i].n > 0) rows_merge(g, i);
  room.n_short = ARENA_ARRAY(scratch, int, g->n_rows + 1);
  factor_graph_note(g, FACTOR_STEP_rows, 0, -1, 0, 0);
  add_up(g, false, room.least);
  add_up(g, true, room.most);
  for (int row = 0; row < g->n_rows; row++) {
    if (room.least[row] > g->limit) g->has_none = true;
    room.n_short[row + 1] = room.n_short[row] + (room.most[row] > g->limit);
  }
  if (!g->has_none) make_tree(g, &room, scratch);
  for (int i = 0; i < g->n_variables && !g->has_none; i++) {
    is_changed[i] =
        g->variables[i].pieces.n > 0 && reduce_variable(g, &room, i, scratch);
    n_changes += is_changed[i];
  }
  arena_destroy(scratch);
  return n_changes;
}
