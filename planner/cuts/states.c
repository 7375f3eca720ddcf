/*
 * states.c -- finds the states of a graph: the sets of nodes that hold all
 * inputs of their nodes, which correspond to its antichains.
 *
 *     a -> b -> d     {}  {a}  {a b}  {a c}  {a b c}  {a b c d}
 *       -> c ->
 *
 * From each state, each node whose inputs are in it gives one more.  Branches
 * multiply: four of 14 nodes have 50,000 states.  A graph with too many is cut
 * at its single tensors first, where one node alone has users outside.  A piece
 * between two of these cuts that still has too many is cut in one branch after
 * the other, in all ways inside each, and a branch with too many in the order
 * of its nodes.
 */
#include <stdlib.h>
#include <string.h>

#include "planner/cuts/cuts.h"
#include "support/base.h"

/* States found so far, each once. */
typedef struct Found {
  Arena *arena;
  const CutGraph *graph;
  int n_words, most;
  const uint64_t *inputs, *users; /* n_words words a node */
  VEC(uint64_t *) states;
  int n_slots;
  int *slots; /* index of a state + 1, by its hash */
} Found;

static bool has(const uint64_t *set, int node) {
  return set[node / 64] >> (node % 64) & 1;
}

static void put(uint64_t *set, int node) {
  set[node / 64] |= (uint64_t)1 << (node % 64);
}

static bool is_within(const uint64_t *inner, const uint64_t *outer, int n) {
  for (int w = 0; w < n; w++)
    if (inner[w] & ~outer[w]) return false;
  return true;
}

static bool meets(const uint64_t *a, const uint64_t *b, int n) {
  for (int w = 0; w < n; w++)
    if (a[w] & b[w]) return true;
  return false;
}

static uint64_t *set_create(const Found *found) {
  return ARENA_ARRAY(found->arena, uint64_t, found->n_words);
}

static uint64_t *set_copy(const Found *found, const uint64_t *set) {
  return arena_copy(found->arena, set, (size_t)found->n_words * 8);
}

/* ---- all states between two ---- */

/* Returns the slot of a state, or the free one where it belongs. */
static int found_slot(const Found *found, const uint64_t *state) {
  uint64_t hash = 0;
  for (int w = 0; w < found->n_words; w++) {
    hash = (hash ^ state[w]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  int slot = (int)(hash & (uint64_t)(found->n_slots - 1));
  while (found->slots[slot] &&
         memcmp(found->states.data[found->slots[slot] - 1], state,
                (size_t)found->n_words * 8))
    slot = (slot + 1) & (found->n_slots - 1);
  return slot;
}

/* Adds a state that is not there; returns false if there are too many. */
static bool found_add(Found *found, const uint64_t *state) {
  int slot = found_slot(found, state);
  if (found->slots[slot]) return true;
  if (found->states.n >= found->most) return false;
  vec_push(found->arena, &found->states, set_copy(found, state));
  found->slots[slot] = found->states.n;
  return true;
}

/* Drops all states from `n` on. */
static void found_truncate(Found *found, int n) {
  found->states.n = n;
  memset(found->slots, 0, (size_t)found->n_slots * sizeof(int));
  for (int s = 0; s < n; s++)
    found->slots[found_slot(found, found->states.data[s])] = s + 1;
}

/* Adds all states that hold `base`, a state, and otherwise nodes of `inside`.
 * Returns false, with none added, if that takes more than `most`. */
static bool add_between(Found *found, const uint64_t *base,
                        const uint64_t *inside, int most) {
  int before = found->states.n, n_words = found->n_words;
  uint64_t *next = set_create(found);
  /* The base may be there as the end of what came before. */
  if (!found_add(found, base)) return false;
  int first = found->slots[found_slot(found, base)] - 1;
  for (int s = first; s < found->states.n; s = s < before ? before : s + 1) {
    const uint64_t *state = found->states.data[s];
    for (int node = 0; node < found->graph->n_nodes; node++) {
      if (!has(inside, node) || has(state, node)) continue;
      if (!is_within(&found->inputs[node * n_words], state, n_words)) continue;
      memcpy(next, state, (size_t)n_words * 8);
      put(next, node);
      if (found_add(found, next) && found->states.n - before <= most) continue;
      found_truncate(found, before);
      return false;
    }
  }
  return true;
}

/* ---- pieces and branches ---- */

/* Nodes until after a single tensor is computed, and the node that computes it.
 */
typedef struct SingleCut {
  uint64_t *set;
  int node;
} SingleCut;

/* Returns the nodes that do not depend on `node`, and itself, if it alone has
 * users outside of them: what depends on it reads nothing else from inside.
 * Returns NULL otherwise. */
static uint64_t *single_cut(const Found *found, int node, uint64_t *after) {
  int n_words = found->n_words;
  uint64_t *cut = set_create(found);
  bool has_users = false;
  memset(after, 0, (size_t)n_words * 8);
  put(after, node);
  for (int user = 0; user < found->graph->n_nodes; user++) {
    const uint64_t *inputs = &found->inputs[user * n_words];
    if (!meets(inputs, after, n_words)) {
      put(cut, user);
      continue;
    }
    if (!is_within(inputs, after, n_words)) return NULL;
    has_users = true;
    put(after, user);
  }
  return has_users ? cut : NULL;
}

/* Finds single-tensor cuts, each within the next, and last the set of all
 * nodes; returns how many. */
static int single_cuts(const Found *found, SingleCut *cuts) {
  int n = 0, n_nodes = found->graph->n_nodes;
  uint64_t *scratch = set_create(found), *all = set_create(found);
  for (int node = 0; node < n_nodes; node++) {
    put(all, node);
    uint64_t *cut = single_cut(found, node, scratch);
    if (cut && (n == 0 || is_within(cuts[n - 1].set, cut, found->n_words)))
      cuts[n++] = (SingleCut){cut, node};
  }
  cuts[n++] = (SingleCut){all, n_nodes - 1};
  return n;
}

/* Moves a node of `rest`, and all that edges inside `rest` join it with, to
 * `branch`. */
static void take_branch(const Found *found, uint64_t *rest, int first,
                        uint64_t *branch) {
  int n_words = found->n_words;
  put(branch, first);
  for (bool grows = true; grows;) {
    grows = false;
    for (int node = 0; node < found->graph->n_nodes; node++) {
      if (!has(rest, node) || has(branch, node)) continue;
      const uint64_t *inputs = &found->inputs[node * n_words];
      const uint64_t *users = &found->users[node * n_words];
      if (!meets(inputs, branch, n_words) && !meets(users, branch, n_words))
        continue;
      put(branch, node);
      grows = true;
    }
  }
  for (int w = 0; w < n_words; w++) rest[w] &= ~branch[w];
}

/* Adds the states of a piece, one branch after the other; the node `last`,
 * which no other one of the piece needs, joins the branches.  Returns 1 if a
 * branch is cut in the order of its nodes, -1 if there are too many states,
 * else 0. */
static int add_branches(Found *found, const uint64_t *begin,
                        const uint64_t *piece, int last, int most) {
  int n_words = found->n_words, n_nodes = found->graph->n_nodes, by_node = 0;
  uint64_t *base = set_copy(found, begin), *rest = set_copy(found, piece);
  rest[last / 64] &= ~((uint64_t)1 << (last % 64));
  for (int node = 0; node < n_nodes; node++) {
    if (!has(rest, node)) continue;
    uint64_t *branch = set_create(found);
    take_branch(found, rest, node, branch);
    if (add_between(found, base, branch, most)) {
      for (int w = 0; w < n_words; w++) base[w] |= branch[w];
      continue;
    }
    by_node = 1;
    for (int next = node; next < n_nodes; next++) {
      if (!has(branch, next)) continue;
      if (!found_add(found, base)) return -1;
      put(base, next);
    }
  }
  if (!found_add(found, base)) return -1;
  put(base, last);
  return found_add(found, base) ? by_node : -1;
}

/* Adds the states of all pieces, where one piece or branch may have `most`. */
static bool add_pieces(Found *found, const SingleCut *cuts, int n_cuts,
                       int most, CutStates *out) {
  uint64_t *begin = set_create(found), *piece = set_create(found);
  out->n_pieces = n_cuts;
  out->n_by_branch = out->n_by_node = 0;
  found_truncate(found, 0);
  for (int c = 0; c < n_cuts; c++) {
    for (int w = 0; w < found->n_words; w++)
      piece[w] = cuts[c].set[w] & ~begin[w];
    if (!add_between(found, begin, piece, most)) {
      int by_node = add_branches(found, begin, piece, cuts[c].node, most);
      if (by_node < 0) return false;
      out->n_by_branch++;
      out->n_by_node += by_node;
    }
    memcpy(begin, cuts[c].set, (size_t)found->n_words * 8);
  }
  return true;
}

/* ---- the list ---- */

typedef struct Ordered {
  const uint64_t *set;
  int n_nodes, n_words;
} Ordered;

static int compare_states(const void *a, const void *b) {
  const Ordered *x = a, *y = b;
  if (x->n_nodes != y->n_nodes) return x->n_nodes < y->n_nodes ? -1 : 1;
  for (int w = 0; w < x->n_words; w++) {
    uint64_t differ = x->set[w] ^ y->set[w];
    if (differ) return x->set[w] & (differ & -differ) ? -1 : 1;
  }
  return 0;
}

static void sum_state(const Found *found, const uint64_t *set, CutState *out) {
  for (int node = 0; node < found->graph->n_nodes; node++) {
    if (!has(set, node)) continue;
    const CutNode *row = &found->graph->nodes[node];
    out->n_nodes++;
    out->compute_ns += row->forward_ns + row->backward_ns;
    out->parameter_bytes += row->parameter_bytes;
    if (!is_within(&found->users[node * found->n_words], set, found->n_words))
      out->out_bytes += row->activation_bytes;
  }
}

static void list_states(Arena *arena, const Found *found, CutStates *out) {
  int n = found->states.n, n_words = found->n_words;
  Ordered *order = ARENA_ARRAY(found->arena, Ordered, n);
  for (int s = 0; s < n; s++) {
    order[s] = (Ordered){found->states.data[s], 0, n_words};
    for (int w = 0; w < n_words; w++)
      order[s].n_nodes += __builtin_popcountll(order[s].set[w]);
  }
  qsort(order, (size_t)n, sizeof *order, compare_states);
  CutState *states = ARENA_ARRAY(arena, CutState, n);
  uint64_t *members = ARENA_ARRAY(arena, uint64_t, (int64_t)n * n_words);
  for (int s = 0; s < n; s++) {
    memcpy(&members[(size_t)s * (size_t)n_words], order[s].set,
           (size_t)n_words * 8);
    sum_state(found, order[s].set, &states[s]);
  }
  out->n = n;
  out->n_words = n_words;
  out->states = states;
  out->members = members;
}

static Found found_create(Arena *scratch, const CutGraph *graph, int most) {
  Found found = {.arena = scratch, .graph = graph, .most = most};
  found.n_words = (graph->n_nodes + 63) / 64;
  uint64_t *inputs =
      ARENA_ARRAY(scratch, uint64_t, (int64_t)graph->n_nodes * found.n_words);
  uint64_t *users =
      ARENA_ARRAY(scratch, uint64_t, (int64_t)graph->n_nodes * found.n_words);
  for (int e = 0; e < graph->n_edges; e++) {
    CutEdge edge = graph->edges[e];
    ASSERT(edge.from >= 0 && edge.from < edge.to && edge.to < graph->n_nodes);
    put(&inputs[edge.to * found.n_words], edge.from);
    put(&users[edge.from * found.n_words], edge.to);
  }
  found.inputs = inputs;
  found.users = users;
  found.n_slots = 1;
  while (found.n_slots < 2 * most) found.n_slots *= 2;
  found.slots = ARENA_ARRAY(scratch, int, found.n_slots);
  return found;
}

bool cut_states(Arena *arena, const CutGraph *graph, int most, CutStates *out) {
  *out = (CutStates){0};
  if (graph->n_nodes < 1 || graph->n_nodes >= most) return false;
  Arena *scratch = arena_beside(arena);
  Found found = found_create(scratch, graph, most);
  uint64_t *none = set_create(&found), *all = set_create(&found);
  for (int node = 0; node < graph->n_nodes; node++) put(all, node);
  bool fits = add_between(&found, none, all, most);
  if (!fits) {
    SingleCut *cuts = ARENA_ARRAY(scratch, SingleCut, graph->n_nodes + 1);
    int n_cuts = single_cuts(&found, cuts);
    for (int each = most; !fits; each /= 2)
      fits = add_pieces(&found, cuts, n_cuts, each, out);
  }
  list_states(arena, &found, out);
  arena_destroy(scratch);
  return true;
}

bool cut_state_has(const CutStates *states, int state, int node) {
  return has(&states->members[(size_t)state * (size_t)states->n_words], node);
}

bool cut_state_within(const CutStates *states, int inner, int outer) {
  size_t n_words = (size_t)states->n_words;
  return is_within(&states->members[(size_t)inner * n_words],
                   &states->members[(size_t)outer * n_words], states->n_words);
}

bool cut_state_sends(const CutGraph *graph, const CutStates *states, int state,
                     int node) {
  if (!cut_state_has(states, state, node)) return false;
  for (int e = 0; e < graph->n_edges; e++)
    if (graph->edges[e].from == node &&
        !cut_state_has(states, state, graph->edges[e].to))
      return true;
  return false;
}
