/*
 * program_period_lists.c -- makes the lists of a period from times.
 *
 * A rank runs the forward pass that is w ahead, the backward pass of a unit,
 * and where that ends a group of replicas or of micro-batches the update; then
 * the next ones.  Which messages stand between, and in which order, follows
 * from a time of each call of a period, such that it is the same time later in
 * the next one:
 *
 *     time(call) >= time(what it reads) + 2
 *     time(call) >= time(the call of its rank before it) + 1
 *
 * A bound between calls of different periods has the length of the period in
 * it. The shortest period for which there are such times is found by halving. A
 * message stands right behind the call that makes it, on both ranks.  So all
 * ranks have the order of one list of all calls and messages, and none hangs.
 *
 * cost: O(calls * bounds) for each length that is tried
 */
#include <stdlib.h>

#include "ir/program_periods.h"

/* time[to] >= time[from] + delay + periods * length */
typedef struct Bound {
  int from, to, delay, periods;
} Bound;

typedef struct Timing {
  Periods *p;
  int n_calls;
  VEC(Bound) bounds;
  int64_t *time; /* by call */
  int64_t length;
} Timing;

/* Forward and backward pass by unit, update by the first unit of its group. */
static int call_of(const Timing *t, TokenKind kind, int stage, int unit) {
  int row = kind == TOKEN_forward ? 0 : kind == TOKEN_backward ? 1 : 2;
  const Periods *p = t->p;
  return (row * p->in->n_stages + stage) * p->n_units + unit % p->n_units;
}

typedef struct At {
  TokenKind kind;
  int stage, unit;
} At;

static void add_bound(Timing *t, At from, At to, int delay) {
  int n = t->p->n_units;
  Bound bound = {.from = call_of(t, from.kind, from.stage, from.unit),
                 .to = call_of(t, to.kind, to.stage, to.unit),
                 .delay = delay,
                 .periods = from.unit / n - to.unit / n};
  vec_push(t->p->arena, &t->bounds, bound);
}

/* The calls of the rank that has the unit, around its backward pass. */
static void bound_rank(Timing *t, int s, int unit) {
  const Periods *p = t->p;
  int stride = period_stride(p, s), group = period_group(p, s);
  int next = unit + (p->stages[s].n_ahead + 1) * stride;
  At ahead = {TOKEN_forward, s, next - stride}, then = {TOKEN_forward, s, next};
  At back = {TOKEN_backward, s, unit};
  At update = {TOKEN_update, s, unit - unit % group};
  add_bound(t, (At){TOKEN_forward, s, unit}, back, 1);
  add_bound(t, ahead, back, 1);
  if (unit % group + stride < group) {
    add_bound(t, back, then, 1);
  } else {
    add_bound(t, back, update, 1);
    add_bound(t, update, then, 1);
  }
}

static void add_bounds(Timing *t) {
  const Periods *p = t->p;
  for (int unit = 0; unit < p->n_units; unit++) {
    for (int s = 0; s < p->in->n_stages; s++) bound_rank(t, s, unit);
    for (int e = 0; e < p->edges->n; e++) {
      const ProgramEdge *edge = &p->edges->data[e];
      add_bound(t, (At){edge->from_kind, edge->from, unit},
                (At){edge->to_kind, edge->to, unit}, 2);
    }
  }
}

/* The earliest times for a length of the period, from 0 on.  Returns false if a
 * bound cannot hold. */
static bool find_times(Timing *t) {
  for (int i = 0; i < t->n_calls; i++) t->time[i] = 0;
  for (int round = 0; round <= t->n_calls; round++) {
    bool is_changed = false;
    for (int i = 0; i < t->bounds.n; i++) {
      const Bound *b = &t->bounds.data[i];
      int64_t least = t->time[b->from] + b->delay + b->periods * t->length;
      if (t->time[b->to] >= least) continue;
      t->time[b->to] = least;
      is_changed = true;
    }
    if (!is_changed) return true;
  }
  return false;
}

static bool find_length(Timing *t) {
  int64_t below = 0, good = 3 * (int64_t)t->n_calls;
  t->length = good;
  if (!find_times(t)) return false;
  while (good - below > 1) {
    t->length = below + (good - below) / 2;
    if (find_times(t))
      good = t->length;
    else
      below = t->length;
  }
  t->length = good;
  return find_times(t);
}

/* ---- the list of a rank ---- */

typedef struct Item {
  int64_t time;
  bool is_call; /* messages of the same time come first */
  Token token;
} Item;
typedef VEC(Item) Items;

static int compare_items(const void *a, const void *b) {
  const Item *x = a, *y = b;
  if (x->time != y->time) return x->time < y->time ? -1 : 1;
  if (x->is_call != y->is_call) return x->is_call - y->is_call;
  if (x->token.edge != y->token.edge) return x->token.edge - y->token.edge;
  return x->token.microbatch - y->token.microbatch;
}

/* Puts an item into the period of the rank, which ends with the update that
 * ends at `end`. */
static void add_item(const Timing *t, Items *items, int64_t end, Item item) {
  int64_t later = (end - item.time) / t->length; /* times are 0 or more */
  if (end < item.time) later = -((item.time - end + t->length - 1) / t->length);
  item.time += later * t->length;
  item.token.microbatch += (int)later * t->p->n_units;
  ASSERT(item.token.microbatch >= 0);
  vec_push(t->p->arena, items, item);
}

static void add_messages(const Timing *t, int rank, int64_t end, Items *items) {
  const Periods *p = t->p;
  for (int e = 0; e < p->edges->n; e++) {
    const ProgramEdge *edge = &p->edges->data[e];
    bool is_forward = edge->from_kind == TOKEN_forward;
    for (int unit = 0; unit < p->n_units; unit++) {
      int from = period_rank(p, edge->from, unit);
      int to = period_rank(p, edge->to, unit);
      if (rank != from && rank != to) continue;
      bool is_send = rank == from;
      Token token = {.kind = is_forward ? (is_send ? TOKEN_send_forward
                                                   : TOKEN_receive_forward)
                                        : (is_send ? TOKEN_send_backward
                                                   : TOKEN_receive_backward),
                     .stage = is_send ? edge->from : edge->to,
                     .microbatch = unit,
                     .edge = e,
                     .peer = is_send ? to : from};
      int call = call_of(t, edge->from_kind, edge->from, unit);
      add_item(t, items, end, (Item){t->time[call] + 1, false, token});
    }
  }
}

static void add_calls(const Timing *t, int rank, int64_t end, Items *items) {
  static const TokenKind kinds[] = {TOKEN_forward, TOKEN_backward,
                                    TOKEN_update};
  const Periods *p = t->p;
  int s = p->ranks[rank].stage, stride = period_stride(p, s);
  int group = period_group(p, s);
  for (int unit = p->ranks[rank].replica; unit < p->n_units; unit += stride)
    for (int i = 0; i < ARRAY_LENGTH(kinds); i++) {
      int first = unit - unit % group;
      bool is_update = kinds[i] == TOKEN_update;
      if (is_update && unit != first + p->ranks[rank].replica) continue;
      int call = call_of(t, kinds[i], s, is_update ? first : unit);
      add_item(
          t, items, end,
          (Item){
              t->time[call],
              true,
              {.kind = kinds[i], .stage = s, .microbatch = unit, .edge = -1}});
    }
}

static void push(const Periods *p, int rank, TokenKind kind, int unit) {
  vec_push(p->arena, &p->lists[rank],
           (Token){.kind = kind,
                   .stage = p->ranks[rank].stage,
                   .microbatch = unit,
                   .edge = -1});
}

/* Sums of micro-batches are cleared behind the update before; the gradients of
 * a replica that has no unit, before the update. */
static void make_list(const Timing *t, int rank) {
  const Periods *p = t->p;
  int s = p->ranks[rank].stage, group = period_group(p, s);
  int last = call_of(t, TOKEN_update, s, p->n_units - group);
  Items items = {0};
  add_messages(t, rank, t->time[last], &items);
  add_calls(t, rank, t->time[last], &items);
  qsort(items.data, (size_t)items.n, sizeof *items.data, compare_items);
  if (p->in->has_two) push(p, rank, TOKEN_clear, 0);
  for (int i = 0; i < items.n; i++) {
    const Token *token = &items.data[i].token;
    if (token->kind == TOKEN_forward &&
        token->microbatch % p->m < period_stride(p, s))
      push(p, rank, TOKEN_once, token->microbatch);
    if (token->kind == TOKEN_update && period_has_missing(p, s))
      push(p, rank, TOKEN_clear, token->microbatch);
    vec_push(p->arena, &p->lists[rank], *token);
    int lead = token->microbatch / p->n_units;
    if (lead > t->p->lead) t->p->lead = lead;
  }
}

bool period_lists(Periods *p) {
  Timing t = {.p = p, .n_calls = 3 * p->in->n_stages * p->n_units};
  t.time = ARENA_ARRAY(p->arena, int64_t, t.n_calls);
  add_bounds(&t);
  if (!find_length(&t)) return false;
  for (int rank = 0; rank < p->n_ranks; rank++) make_list(&t, rank);
  return true;
}

/* ---- unrolled ---- */

enum { PERIODS_PROVED = 3 }; /* two between filling and draining, at least */

/* Where there are replicas the last group is not complete. */
void period_unroll(Periods *p) {
  int n_periods = 2 * p->lead + PERIODS_PROVED;
  bool has_replicas = p->n_units > 1 && !p->in->has_two;
  Pipeline *all = ARENA_NEW(p->arena, Pipeline);
  *all = (Pipeline){.n_ranks = p->n_ranks,
                    .n_stages = p->in->n_stages,
                    .n_microbatches = n_periods * p->n_units - has_replicas,
                    .n_edges = p->edges->n,
                    .edges = program_pipeline_edges(p->arena, p->edges),
                    .lists = ARENA_ARRAY(p->arena, Tokens, p->n_ranks)};
  p->all = all;
  for (int rank = 0; rank < p->n_ranks; rank++)
    for (int t = -p->lead; t < n_periods; t++)
      for (int i = 0; i < p->lists[rank].n; i++) {
        Token token = p->lists[rank].data[i];
        token.microbatch += t * p->n_units;
        bool is_there =
            token.microbatch >= 0 && token.microbatch < all->n_microbatches;
        if (is_there && !token_info(token.kind)->is_of_step)
          vec_push(p->arena, &all->lists[rank], token);
      }
}
