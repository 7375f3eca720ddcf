/*
 * delay.c -- moves each receive of a pipeline towards its reader, as far as no
 * rank can hang.
 *
 *     1RECV_F0 1RECV_F1 1F0    =>    1RECV_F0 1F0 1RECV_F1
 *
 * A receive that stands early keeps its rank from what follows until its sender
 * has come.  It may move behind the next action of its rank unless that action
 * waits for the message: the graph of rendezvous.h would get a cycle, and it
 * gets one in no other way.  The nodes of the graph keep a topological order,
 * so that only those between the two have to be looked at (Pearce and Kelly
 * 2006).  Receives from one rank stay in their order: the later one waits for
 * the earlier one, since its send does.
 *
 * A sender has memory for one value of an edge, or for those of its frames, and
 * its next call of the same kind waits until the one before was received.  So a
 * receive does not move behind calls that begin, were messages to take no time,
 * when that call may begin: rank 0 of zbh2 makes seven forward passes where
 * rank 1 makes five, and would wait for the other two.
 */
#include "ir/pipeline/links.h"

#include <stdlib.h>

typedef struct Placed {
  int position, node;
} Placed;
typedef VEC(Placed) Nodes;

/* An action has a number over all ranks; both of a message are one node, whose
 * number is that of the send. */
typedef struct Order {
  Arena *arena;
  Pipeline *pipeline;
  int n, *first;        /* actions; number of the first one of each rank */
  Token **tokens;       /* by action */
  int *next, *previous; /* action of the same rank; -1 at the ends */
  int *partner;         /* other action of a message, else -1 */
  int *reader;          /* receive: its reader, else -1 */
  int64_t *time; /* call: when it begins; receive: when the sender needs the
                    memory again */
  int *position; /* by node: in the topological order */
  int *seen;     /* by node: the search that came here last */
  int n_searches;
  Nodes ahead, behind;
  VEC(int) places;
} Order;

static TokenRole role_of(const Order *o, int action) {
  return token_info(o->tokens[action]->kind)->role;
}

static int node_of(const Order *o, int action) {
  return role_of(o, action) == TOKEN_ROLE_receive ? o->partner[action] : action;
}

/* ---- the graph ---- */

typedef struct MessageKey {
  int edge, microbatch, action;
} MessageKey;

static int compare_keys(const void *a, const void *b) {
  const MessageKey *x = a, *y = b;
  if (x->edge != y->edge) return x->edge < y->edge ? -1 : 1;
  if (x->microbatch != y->microbatch)
    return x->microbatch < y->microbatch ? -1 : 1;
  return (x->action > y->action) - (x->action < y->action);
}

/* Joins both actions of each message: they have one edge and micro-batch. */
static void find_partners(Order *o) {
  VEC(MessageKey) keys = {0};
  for (int i = 0; i < o->n; i++) {
    o->partner[i] = -1;
    TokenRole role = role_of(o, i);
    if (role == TOKEN_ROLE_send || role == TOKEN_ROLE_receive)
      vec_push(o->arena, &keys,
               (MessageKey){o->tokens[i]->edge, o->tokens[i]->microbatch, i});
  }
  if (keys.n == 0) return;
  qsort(keys.data, (size_t)keys.n, sizeof *keys.data, compare_keys);
  for (int i = 0; i + 1 < keys.n; i += 2) {
    o->partner[keys.data[i].action] = keys.data[i + 1].action;
    o->partner[keys.data[i + 1].action] = keys.data[i].action;
  }
}

static void find_readers(Order *o) {
  PipelineCalls *calls = pipeline_calls(o->arena, o->pipeline);
  for (int i = 0; i < o->n; i++) {
    const Token *token = o->tokens[i];
    TokenPlace place;
    o->reader[i] = -1;
    if (role_of(o, i) != TOKEN_ROLE_receive) continue;
    const PipelineEdge *edge = &o->pipeline->edges[token->edge];
    if (pipeline_find_call(calls, edge->to, edge->to_stage,
                           edge_reader(edge, token->microbatch), &place))
      o->reader[i] = o->first[place.rank] + place.at;
  }
}

/* ---- times ---- */

/* By call: when the next one of its kind and stage begins. */
static int64_t *find_next_times(const Order *o) {
  int n_stages = o->pipeline->n_stages;
  int64_t *next = ARENA_ARRAY(o->arena, int64_t, o->n);
  int64_t *latest = ARENA_ARRAY(o->arena, int64_t, n_stages * N_TOKENS);
  for (int i = 0; i < n_stages * N_TOKENS; i++) latest[i] = INT64_MAX;
  for (int i = o->n - 1; i >= 0; i--) { /* a stage is on one rank */
    if (role_of(o, i) != TOKEN_ROLE_call) continue;
    int64_t *of = &latest[token_row(o->tokens[i]->kind, o->tokens[i]->stage)];
    next[i] = *of;
    *of = o->time[i];
  }
  return next;
}

/* A value that is sent once a step is the last one of its edge. */
static void find_times(Order *o, const int64_t *const *begins) {
  PipelineCalls *calls = pipeline_calls(o->arena, o->pipeline);
  for (int r = 0; r < o->pipeline->n_ranks; r++)
    for (int i = 0, n_calls = 0; i < o->pipeline->lists[r].n; i++)
      if (role_of(o, o->first[r] + i) == TOKEN_ROLE_call)
        o->time[o->first[r] + i] = begins[r][n_calls++];
  const int64_t *next = find_next_times(o);
  for (int i = 0; i < o->n; i++) {
    const Token *token = o->tokens[i];
    TokenPlace place;
    if (role_of(o, i) != TOKEN_ROLE_receive) continue;
    const PipelineEdge *edge = &o->pipeline->edges[token->edge];
    bool is_found = !token_info(edge->from)->is_of_step &&
                    pipeline_find_call(calls, edge->from, edge->from_stage,
                                       token->microbatch, &place);
    o->time[i] = is_found ? next[o->first[place.rank] + place.at] : INT64_MAX;
  }
}

static Order order_create(Arena *arena, Pipeline *pipeline) {
  Order o = {.arena = arena, .pipeline = pipeline};
  o.first = ARENA_ARRAY(arena, int, pipeline->n_ranks);
  for (int r = 0; r < pipeline->n_ranks; r++) {
    o.first[r] = o.n;
    o.n += pipeline->lists[r].n;
  }
  o.tokens = ARENA_ARRAY(arena, Token *, o.n);
  int **const arrays[] = {&o.next,   &o.previous, &o.partner,
                          &o.reader, &o.position, &o.seen};
  for (int i = 0; i < ARRAY_LENGTH(arrays); i++)
    *arrays[i] = ARENA_ARRAY(arena, int, o.n);
  o.time = ARENA_ARRAY(arena, int64_t, o.n);
  for (int r = 0; r < pipeline->n_ranks; r++)
    for (int i = 0, n = pipeline->lists[r].n; i < n; i++) {
      int action = o.first[r] + i;
      o.tokens[action] = &pipeline->lists[r].data[i];
      o.next[action] = i + 1 < n ? action + 1 : -1;
      o.previous[action] = i > 0 ? action - 1 : -1;
    }
  find_partners(&o);
  find_readers(&o);
  return o;
}

/* Numbers the nodes so that each comes before those that wait for it: ranks
 * take turns as long as they can.  Returns false if there is a cycle. */
static bool sort_nodes(Order *o) {
  int n_ranks = o->pipeline->n_ranks, n_placed = 0, n_done = 0;
  int *at = ARENA_ARRAY(o->arena, int, n_ranks);
  bool *is_here = ARENA_ARRAY(o->arena, bool, o->n); /* a rank has come to it */
  for (int r = 0; r < n_ranks; r++)
    at[r] = o->pipeline->lists[r].n > 0 ? o->first[r] : -1;
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (int r = 0; r < n_ranks; r++)
      while (at[r] >= 0) {
        int action = at[r], partner = o->partner[action];
        is_here[action] = true;
        if (partner >= 0 && !is_here[partner]) break;
        if (partner < 0 || o->position[node_of(o, action)] == 0)
          o->position[node_of(o, action)] = ++n_placed;
        at[r] = o->next[action];
        n_done++;
        has_moved = true;
      }
  }
  return n_done == o->n;
}

/* ---- moves ---- */

/* Adds the node of an action, if it lies between two positions and is new. */
static void reach(Order *o, Nodes *nodes, int action, int least, int most) {
  if (action < 0) return;
  int node = node_of(o, action), position = o->position[node];
  if (position < least || position > most || o->seen[node] == o->n_searches)
    return;
  o->seen[node] = o->n_searches;
  vec_push(o->arena, nodes, (Placed){position, node});
}

/* Collects the message of `receive` and what waits for its send, up to a node.
 * Returns whether that is among it. */
static bool search_ahead(Order *o, int receive, int target) {
  int send = o->partner[receive], most = o->position[target];
  o->n_searches++;
  o->seen[send] = o->n_searches;
  o->ahead.n = 0;
  vec_push(o->arena, &o->ahead, (Placed){o->position[send], send});
  reach(o, &o->ahead, o->next[send], 0, most);
  for (int i = 1; i < o->ahead.n; i++) {
    int node = o->ahead.data[i].node, partner = o->partner[node];
    reach(o, &o->ahead, o->next[node], 0, most);
    if (partner >= 0) reach(o, &o->ahead, o->next[partner], 0, most);
  }
  return o->seen[target] == o->n_searches;
}

/* Collects a node and what it waits for, down to a position. */
static void search_behind(Order *o, int target, int least) {
  o->behind.n = 0;
  reach(o, &o->behind, target, least, o->position[target]);
  for (int i = 0; i < o->behind.n; i++) {
    int node = o->behind.data[i].node, partner = o->partner[node];
    int most = o->position[target];
    reach(o, &o->behind, o->previous[node], least, most);
    if (partner >= 0) reach(o, &o->behind, o->previous[partner], least, most);
  }
}

static int compare_placed(const void *a, const void *b) {
  const Placed *x = a, *y = b;
  return (x->position > y->position) - (x->position < y->position);
}

static int compare_ints(const void *a, const void *b) {
  const int *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* Gives the places of all nodes of both searches to those behind, then to those
 * ahead. */
static void reorder(Order *o) {
  Nodes *const parts[] = {&o->behind, &o->ahead};
  int n_given = 0;
  o->places.n = 0;
  for (int p = 0; p < 2; p++) {
    qsort(parts[p]->data, (size_t)parts[p]->n, sizeof(Placed), compare_placed);
    for (int i = 0; i < parts[p]->n; i++)
      vec_push(o->arena, &o->places, parts[p]->data[i].position);
  }
  qsort(o->places.data, (size_t)o->places.n, sizeof(int), compare_ints);
  for (int p = 0; p < 2; p++)
    for (int i = 0; i < parts[p]->n; i++)
      o->position[parts[p]->data[i].node] = o->places.data[n_given++];
}

/* Moves a receive behind the actions from `first` to `last`, which follow it.
 */
static void relink(Order *o, int receive, int first, int last) {
  int before = o->previous[receive], after = o->next[last];
  if (before >= 0) o->next[before] = first;
  if (after >= 0) o->previous[after] = receive;
  o->previous[first] = before;
  o->next[last] = receive;
  o->previous[receive] = last;
  o->next[receive] = after;
}

/* Moves a receive behind the next action, all parts of it.  Returns false where
 * it must not. */
static bool move_once(Order *o, int receive) {
  int first = o->next[receive];
  if (first < 0 || o->partner[receive] < 0 || o->reader[receive] < 0)
    return false;
  int last = first;
  for (int at = first;; at = o->next[at]) {
    if (at < 0 || (at != first && !o->tokens[at]->is_joined)) break;
    bool is_late =
        role_of(o, at) == TOKEN_ROLE_call && o->time[at] >= o->time[receive];
    if (at == o->reader[receive] || is_late) return false;
    last = at;
  }
  int message = o->partner[receive], target = node_of(o, last);
  if (search_ahead(o, receive, target)) return false;
  relink(o, receive, first, last);
  search_behind(o, target, o->position[message]);
  reorder(o);
  return true;
}

static void write_back(Order *o, int rank) {
  Tokens *list = &o->pipeline->lists[rank];
  Tokens sorted = {0};
  int at = list->n > 0 ? o->first[rank] : -1;
  while (at >= 0 && o->previous[at] >= 0) at = o->previous[at];
  for (; at >= 0; at = o->next[at]) vec_push(o->arena, &sorted, *o->tokens[at]);
  *list = sorted;
}

void pipeline_delay_receives(Arena *arena, Pipeline *pipeline,
                             const int64_t *const *begins) {
  Order o = order_create(arena, pipeline);
  if (!sort_nodes(&o)) return;
  find_times(&o, begins);
  for (int r = 0; r < pipeline->n_ranks; r++)
    for (int i = pipeline->lists[r].n - 1; i >= 0; i--) {
      int action = o.first[r] + i;
      while (role_of(&o, action) == TOKEN_ROLE_receive && move_once(&o, action))
        continue;
    }
  for (int r = 0; r < pipeline->n_ranks; r++) write_back(&o, r);
}
