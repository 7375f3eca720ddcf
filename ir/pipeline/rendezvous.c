/*
 * rendezvous.c -- proves that no rank of a program hangs: matches sends with
 * receives, looks for a cycle, and for places that are used again too early.
 */
#include "ir/pipeline/rendezvous_graph.h"

#include <stdlib.h>

const char *rendezvous_verdict_text(RendezvousVerdict verdict) {
  static const char *const texts[] = {[RENDEZVOUS_fine] = "fine",
                                      [RENDEZVOUS_mismatch] = "mismatch",
                                      [RENDEZVOUS_may_hang] = "may hang",
                                      [RENDEZVOUS_clash] = "clash"};
  return texts[verdict];
}

RendezvousPlace matched_place(const Matched *m, int action) {
  int low = 0, high = m->program->n_classes;
  while (high - low > 1) {
    int middle = low + (high - low) / 2;
    if (m->first[middle] <= action)
      low = middle;
    else
      high = middle;
  }
  return (RendezvousPlace){low, action - m->first[low]};
}

/* ---- messages ---- */

/* Messages that one class sends to another, and that this one receives. */
typedef struct Pair {
  int from, to;
  VEC(int) sent, received; /* actions */
} Pair;

typedef struct Pairs {
  Arena *arena;
  VEC(Pair) pairs;
  PairMap *by_classes; /* index plus 1 */
  int last;            /* looked up */
} Pairs;

static Pair *find_pair(Pairs *p, int from, int to) {
  Pair *last = p->pairs.n > 0 ? &p->pairs.data[p->last] : NULL;
  if (last && last->from == from && last->to == to) return last;
  p->last = (int)(intptr_t)pair_map_get(p->by_classes, from, to) - 1;
  if (p->last < 0) {
    p->last = p->pairs.n;
    vec_push(p->arena, &p->pairs, (Pair){.from = from, .to = to});
    pair_map_put(p->by_classes, from, to, (void *)(intptr_t)p->pairs.n);
  }
  return &p->pairs.data[p->last];
}

/* Returns how many messages of the pair agree, from the first one on. */
static int count_agreeing(const Matched *m, const Pair *pair) {
  const RendezvousAction *sent = m->program->classes[pair->from].actions,
                         *received = m->program->classes[pair->to].actions;
  int i = 0;
  for (; i < pair->sent.n && i < pair->received.n; i++) {
    const RendezvousAction
        *a = &sent[pair->sent.data[i] - m->first[pair->from]],
        *b = &received[pair->received.data[i] - m->first[pair->to]];
    if (a->message != b->message || a->bytes != b->bytes ||
        a->dtype != b->dtype)
      break;
  }
  return i;
}

static bool join_pair(Matched *m, const Pair *pair, RendezvousPlace differ[2]) {
  int n = count_agreeing(m, pair);
  for (int i = 0; i < n; i++) {
    m->partner[pair->sent.data[i]] = pair->received.data[i];
    m->partner[pair->received.data[i]] = pair->sent.data[i];
  }
  if (n == pair->sent.n && n == pair->received.n) return true;
  differ[0] = (RendezvousPlace){pair->from, -1};
  differ[1] = (RendezvousPlace){pair->to, -1};
  if (n < pair->sent.n) differ[0] = matched_place(m, pair->sent.data[n]);
  if (n < pair->received.n)
    differ[1] = matched_place(m, pair->received.data[n]);
  return false;
}

static void add_to_pairs(Pairs *pairs, const Matched *m, int class) {
  const RendezvousClass *c = &m->program->classes[class];
  for (int i = 0; i < c->n_actions; i++) {
    const RendezvousAction *action = &c->actions[i];
    int number = m->first[class] + i;
    if (action->kind == RENDEZVOUS_call) continue;
    ASSERT(action->peer >= 0 && action->peer < m->program->n_classes);
    ASSERT(m->program->classes[action->peer].n_ranks == c->n_ranks);
    if (action->kind == RENDEZVOUS_send)
      vec_push(pairs->arena, &find_pair(pairs, class, action->peer)->sent,
               number);
    else
      vec_push(pairs->arena, &find_pair(pairs, action->peer, class)->received,
               number);
  }
}

bool rendezvous_match(Arena *arena, const RendezvousProgram *program,
                      Matched *out, RendezvousPlace out_differ[2]) {
  Pairs pairs = {.arena = arena, .by_classes = pair_map_create(arena)};
  *out = (Matched){.program = program,
                   .first = ARENA_ARRAY(arena, int, program->n_classes + 1)};
  for (int c = 0; c < program->n_classes; c++) {
    out->first[c] = out->n;
    out->n += program->classes[c].n_actions;
  }
  out->first[program->n_classes] = out->n;
  out->partner = ARENA_ARRAY(arena, int, out->n);
  for (int i = 0; i < out->n; i++) out->partner[i] = -1;
  for (int c = 0; c < program->n_classes; c++) add_to_pairs(&pairs, out, c);
  for (int i = 0; i < pairs.pairs.n; i++)
    if (!join_pair(out, &pairs.pairs.data[i], out_differ)) return false;
  return true;
}

/* ---- places that are used again ---- */

typedef struct PlaceUse {
  RendezvousUse use;
  int index;
} PlaceUse;

static int compare_uses(const void *a, const void *b) {
  const PlaceUse *x = a, *y = b;
  if (x->use.place != y->use.place) return x->use.place < y->use.place ? -1 : 1;
  if (x->use.first != y->use.first) return x->use.first < y->use.first ? -1 : 1;
  return (x->index > y->index) - (x->index < y->index);
}

/* A rank works in the order of its list, so each use must end before the next
 * one of its place begins. */
static bool find_clash(Arena *arena, const RendezvousProgram *program,
                       RendezvousPlace out[2]) {
  for (int c = 0; c < program->n_classes; c++) {
    const RendezvousClass *class = &program->classes[c];
    PlaceUse *uses = ARENA_ARRAY(arena, PlaceUse, class->n_uses);
    for (int i = 0; i < class->n_uses; i++)
      uses[i] = (PlaceUse){class->uses[i], i};
    if (class->n_uses > 1)
      qsort(uses, (size_t) class->n_uses, sizeof *uses, compare_uses);
    int last = 0; /* the use of this place that ends last */
    for (int i = 1; i < class->n_uses; i++) {
      bool is_same = uses[i].use.place == uses[last].use.place;
      if (is_same && uses[i].use.first <= uses[last].use.last) {
        out[0] = (RendezvousPlace){c, uses[last].use.last};
        out[1] = (RendezvousPlace){c, uses[i].use.first};
        return true;
      }
      last = i;
    }
  }
  return false;
}

/* ---- the proof ---- */

static RendezvousResult result_of(Arena *arena, RendezvousVerdict verdict,
                                  const RendezvousPlace *places, int n) {
  return (RendezvousResult){
      .verdict = verdict,
      .n_places = n,
      .places =
          n ? arena_copy(arena, places, (size_t)n * sizeof *places) : NULL};
}

/* `names`: a class of the caller's program for each, or NULL. */
static RendezvousResult check_matched(Arena *arena, const Matched *m,
                                      const int *names, RendezvousOrder order) {
  Cycle cycle = rendezvous_cycle(arena, m, order);
  RendezvousPlace *places = ARENA_ARRAY(arena, RendezvousPlace, cycle.n);
  for (int i = 0; i < cycle.n; i++) {
    places[i] = matched_place(m, cycle.actions[i]);
    if (names) places[i].class = names[places[i].class];
  }
  if (cycle.n > 0)
    return result_of(arena, RENDEZVOUS_may_hang, places, cycle.n);
  RendezvousPlace clash[2];
  if (!find_clash(arena, m->program, clash))
    return result_of(arena, RENDEZVOUS_fine, NULL, 0);
  for (int i = 0; names && i < 2; i++) clash[i].class = names[clash[i].class];
  return result_of(arena, RENDEZVOUS_clash, clash, 2);
}

RendezvousResult rendezvous_check(Arena *arena,
                                  const RendezvousProgram *program,
                                  RendezvousOrder order) {
  Matched m;
  RendezvousPlace differ[2];
  if (!rendezvous_match(arena, program, &m, differ))
    return result_of(arena, RENDEZVOUS_mismatch, differ, 2);
  return check_matched(arena, &m, NULL, order);
}

RendezvousResult rendezvous_check_folded(Arena *arena,
                                         const RendezvousProgram *program,
                                         RendezvousOrder order) {
  Matched m, folded;
  const int *names;
  RendezvousPlace differ[2];
  if (!rendezvous_match(arena, program, &m, differ))
    return result_of(arena, RENDEZVOUS_mismatch, differ, 2);
  if (!rendezvous_fold(arena, &m, &folded, &names))
    return check_matched(arena, &m, NULL, order);
  return check_matched(arena, &folded, names, order);
}
