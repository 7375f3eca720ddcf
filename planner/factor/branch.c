/*
 * branch.c -- tries the values of variables apart, the least bound first.
 *
 * An open node is a list of decisions: a variable has a value, or has not. Its
 * bound is its parent's until it is looked at; then memory and messages judge
 * what is left of the values, with the prices as they are. Messages go on from
 * node to node, since they do not depend on which values are allowed.  Without
 * open nodes below the best cost, the best values have the least one.
 */
#include "planner/factor/solver.h"

typedef struct Node {
  int parent, variable, value; /* parent: -1 for the root */
  bool is_equal;
  FactorCost bound;
} Node;

struct Branches {
  Arena *arena;
  Solver *s;
  VEC(Node) nodes;
  Numbers heap; /* of open nodes */
  int n_open;
  bool *root;   /* by value: out of the whole problem */
  Wide *change; /* by row */
  Labelling *labelling;
};

/* ---- the heap ---- */

static bool is_before(const Branches *b, int x, int y) {
  FactorCost u = b->nodes.data[x].bound, v = b->nodes.data[y].bound;
  return u != v ? u < v : x > y; /* among equal ones the deepest */
}

static void put(Branches *b, int node) {
  int at = b->n_open++;
  if (at == b->heap.n) vec_push(b->arena, &b->heap, node);
  int *heap = b->heap.data;
  while (at > 0 && is_before(b, node, heap[(at - 1) / 2])) {
    heap[at] = heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  heap[at] = node;
}

static int pop(Branches *b) {
  int *heap = b->heap.data, first = heap[0], last = heap[--b->n_open], at = 0;
  for (;;) {
    int child = 2 * at + 1;
    if (child >= b->n_open) break;
    if (child + 1 < b->n_open && is_before(b, heap[child + 1], heap[child]))
      child++;
    if (!is_before(b, heap[child], last)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = last;
  return first;
}

Branches *branches_create(Arena *arena, Solver *s) {
  Branches *b = ARENA_NEW(arena, Branches);
  b->arena = arena;
  b->s = s;
  b->root = arena_copy(arena, s->messages->is_out,
                       (size_t)s->core->n_values * sizeof(bool));
  b->change = ARENA_ARRAY(arena, Wide, s->core->n_rows + 1);
  b->labelling = labelling_create(arena, s->core);
  vec_push(arena, &b->nodes, (Node){-1, 0, 0, false, s->bound});
  put(b, 0);
  return b;
}

/* ---- a node ---- */

static void decide(Branches *b, int node) {
  const Core *core = b->s->core;
  bool *is_out = b->s->messages->is_out;
  for (int v = 0; v < core->n_values; v++) is_out[v] = b->root[v];
  for (int at = node; at >= 0; at = b->nodes.data[at].parent) {
    const Node *of = &b->nodes.data[at];
    if (of->parent < 0) break;
    int first = core->first[of->variable];
    if (!of->is_equal) is_out[first + of->value] = true;
    for (int v = 0; of->is_equal && v < core->n[of->variable]; v++)
      if (v != of->value) is_out[first + v] = true;
  }
}

/* Returns the least usage of the values that are left, -1 if none is. */
static int64_t least_usage(const Solver *s, int variable,
                           const CorePiece *piece) {
  const Core *core = s->core;
  int64_t least = -1;
  for (int v = 0; v < core->n[variable]; v++)
    if (!s->messages->is_out[core->first[variable] + v] &&
        (least < 0 || piece->usages[v] < least))
      least = piece->usages[v];
  return least;
}

/* Returns whether the least usages of what is left keep to the limit. */
static bool has_room(Branches *b) {
  const Core *core = b->s->core;
  for (int row = 0; row <= core->n_rows; row++) b->change[row] = 0;
  for (int i = 0; i < core->n_variables; i++)
    for (int k = core->piece_begins[i]; k < core->piece_begins[i + 1]; k++) {
      const CorePiece *piece = &core->pieces[k];
      int64_t least = least_usage(b->s, i, piece);
      if (least < 0) return false;
      b->change[piece->begin] += least;
      b->change[piece->end] -= least;
    }
  Wide sum = 0;
  for (int row = 0; row < core->n_rows; row++) {
    sum += b->change[row];
    if (sum > core->room[row]) return false;
  }
  return true;
}

/* Returns how many values of a variable are left, and the first of them. */
static int count_values(const Solver *s, int variable, int *out_value) {
  const Core *core = s->core;
  int n = 0;
  for (int v = core->n[variable] - 1; v >= 0; v--)
    if (!s->messages->is_out[core->first[variable] + v]) {
      *out_value = v;
      n++;
    }
  return n;
}

/* Returns the variable that costs most above the bound, of those with several
 * values left.  Returns -1 if all have one. */
static int find_variable(const Solver *s) {
  const Core *core = s->core;
  FactorCost most = -1;
  int best = -1, value;
  for (int i = 0; i < core->n_variables; i++) {
    if (count_values(s, i, &value) < 2) continue;
    FactorCost gap = solver_gap(s, i);
    int n_pieces = core->piece_begins[i + 1] - core->piece_begins[i];
    if (best >= 0 && gap == most && n_pieces > 0 &&
        core->piece_begins[best + 1] == core->piece_begins[best])
      best = i;
    if (best >= 0 && gap <= most) continue;
    most = gap;
    best = i;
  }
  return best;
}

/* Notes the values of a node that has one for each variable. */
static void close_leaf(Solver *s) {
  int value = 0;
  labelling_clear(s->labelling);
  for (int i = 0; i < s->core->n_variables; i++) {
    count_values(s, i, &value);
    labelling_put(s->labelling, i, value);
  }
  s->labelling->cost = labelling_cost(s->labelling);
  if (cost_is_allowed(s->labelling->cost))
    solver_better(s, s->labelling->cost.sum);
}

/* Returns a bound of what is left. */
static FactorCost bound_node(Solver *s, FactorCost bound) {
  Messages *m = s->messages;
  for (int i = 0; i < 4; i++) {
    messages_sweep(m);
    if (messages_bound(m) > bound) bound = messages_bound(m);
    if (bound >= s->cost) return bound;
    messages_read(m, s->reading);
    if (messages_bound(m) > bound) bound = messages_bound(m);
    if (bound >= s->cost) return bound;
    if (s->core->n_rows > 0 && s->has_prices) multipliers_step(s);
  }
  s->work += 12 * s->core->entries + 4 * s->core->n_values;
  return bound;
}

static void branch(Branches *b, int node, FactorCost bound, int variable) {
  Solver *s = b->s;
  int value = s->labelling->values[variable], first = value;
  count_values(s, variable, &first);
  if (s->messages->is_out[s->core->first[variable] + value]) value = first;
  for (int is_equal = 0; is_equal < 2; is_equal++) {
    vec_push(b->arena, &b->nodes,
             (Node){node, variable, value, is_equal, bound});
    put(b, b->nodes.n - 1);
  }
}

static void look_at(Branches *b, int node) {
  Solver *s = b->s;
  decide(b, node);
  if (!has_room(b)) return;
  FactorCost bound = bound_node(s, b->nodes.data[node].bound);
  if (bound >= s->cost) return;
  decode(s, false);
  int variable = find_variable(s);
  if (variable < 0)
    close_leaf(s);
  else if (bound < s->cost)
    branch(b, node, bound, variable);
}

/* Looks at a node with a labelling of its own. */
static void look_apart(Branches *b, int node) {
  Solver *s = b->s;
  Labelling *labelling = s->labelling;
  s->labelling = b->labelling;
  look_at(b, node);
  s->labelling = labelling;
}

void branches_leave(Branches *b) {
  for (int v = 0; v < b->s->core->n_values; v++)
    b->s->messages->is_out[v] = b->root[v];
}

bool branches_step(Branches *b) {
  Solver *s = b->s;
  if (b->n_open > 0) {
    int node = pop(b);
    if (b->nodes.data[node].bound < s->cost)
      look_apart(b, node);
    else
      b->n_open = 0; /* all others have no less */
  }
  FactorCost least = b->n_open ? b->nodes.data[b->heap.data[0]].bound : s->cost;
  if (least > s->bound) solver_raise(s, least);
  if (b->n_open == 0) s->is_proved = true;
  return b->n_open > 0;
}
