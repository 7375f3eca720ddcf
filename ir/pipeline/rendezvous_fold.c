/*
 * rendezvous_fold.c -- joins ranks that do the same with ranks that do the
 * same.
 *
 * Ranks with equal lists get one colour.  Then those of one colour are told
 * apart by the colours of the ranks that they exchange messages with, and by
 * the places of these messages there, until that changes nothing.  Each action
 * of a colour then meets one action of one colour, so the graph of all ranks
 * covers that of the colours.
 *
 * Colours are hashes.  The result is compared action by action before anyone
 * relies on it.
 */
#include "ir/pipeline/rendezvous_graph.h"

/* A pipeline of p different ranks takes up to p rounds to be told apart, and
 * then nothing is joined: the graph of all ranks is as fast. */
enum { MOST_ROUNDS = 16 };

typedef struct Fold {
  const Matched *m;
  int n_classes, n_colours;
  int *colour;      /* by class */
  int *first_class; /* by colour */
  uint64_t *hashes; /* by class */
  int *class_of;    /* by action */
} Fold;

static uint64_t hash_list(const RendezvousClass *class) {
  uint64_t hash = (uint64_t) class->n_ranks;
  for (int i = 0; i < class->n_actions; i++) {
    const RendezvousAction *action = &class->actions[i];
    hash = hash_mix(hash, (uint64_t)action->kind);
  }
  for (int i = 0; i < class->n_needs; i++)
    hash = hash_mix(hash_mix(hash, (uint64_t) class->needs[i].before),
                    (uint64_t) class->needs[i].after);
  for (int i = 0; i < class->n_uses; i++) {
    const RendezvousUse *use = &class->uses[i];
    hash = hash_mix(hash_mix(hash, (uint64_t)use->place), (uint64_t)use->first);
    hash = hash_mix(hash, (uint64_t)use->last);
  }
  return hash;
}

/* Place in its class of an action. */
static int offset_of(const Fold *f, int action) {
  return action - f->m->first[f->class_of[action]];
}

static uint64_t hash_partners(const Fold *f, int class) {
  uint64_t hash = hash_mix(0, (uint64_t)f->colour[class]);
  for (int i = f->m->first[class]; i < f->m->first[class + 1]; i++) {
    int partner = f->m->partner[i];
    if (partner < 0) continue;
    hash = hash_mix(hash, (uint64_t)f->colour[f->class_of[partner]]);
    hash = hash_mix(hash, (uint64_t)offset_of(f, partner));
  }
  return hash;
}

/* Numbers the hashes in the order of classes. */
static void give_colours(Arena *arena, Fold *f) {
  Map *colours = map_create(arena);
  f->n_colours = 0;
  for (int c = 0; c < f->n_classes; c++) {
    const void *key = (const void *)(uintptr_t)(f->hashes[c] | 1);
    int colour = (int)(intptr_t)map_get(colours, key) - 1;
    if (colour < 0) {
      colour = f->n_colours++;
      f->first_class[colour] = c;
      map_put(colours, key, (void *)(intptr_t)f->n_colours);
    }
    f->colour[c] = colour;
  }
}

/* ---- the comparison ---- */

static bool are_equal_lists(const RendezvousClass *a,
                            const RendezvousClass *b) {
  if (a->n_actions != b->n_actions || a->n_needs != b->n_needs ||
      a->n_uses != b->n_uses || a->n_ranks != b->n_ranks)
    return false;
  for (int i = 0; i < a->n_actions; i++)
    if (a->actions[i].kind != b->actions[i].kind) return false;
  for (int i = 0; i < a->n_needs; i++)
    if (a->needs[i].before != b->needs[i].before ||
        a->needs[i].after != b->needs[i].after)
      return false;
  for (int i = 0; i < a->n_uses; i++)
    if (a->uses[i].place != b->uses[i].place ||
        a->uses[i].first != b->uses[i].first ||
        a->uses[i].last != b->uses[i].last)
      return false;
  return true;
}

static bool is_as_the_first(const Fold *f, int class) {
  int first = f->first_class[f->colour[class]];
  const RendezvousClass *classes = f->m->program->classes;
  if (!are_equal_lists(&classes[class], &classes[first])) return false;
  for (int i = 0; i < classes[class].n_actions; i++) {
    int a = f->m->partner[f->m->first[class] + i];
    int b = f->m->partner[f->m->first[first] + i];
    if ((a < 0) != (b < 0)) return false;
    if (a >= 0 && (f->colour[f->class_of[a]] != f->colour[f->class_of[b]] ||
                   offset_of(f, a) != offset_of(f, b)))
      return false;
  }
  return true;
}

/* ---- the result ---- */

static void write_folded(Arena *arena, const Fold *f, Matched *out) {
  const RendezvousClass *from = f->m->program->classes;
  RendezvousProgram *program = ARENA_NEW(arena, RendezvousProgram);
  RendezvousClass *classes = ARENA_ARRAY(arena, RendezvousClass, f->n_colours);
  *program = (RendezvousProgram){f->n_colours, classes};
  *out = (Matched){.program = program,
                   .first = ARENA_ARRAY(arena, int, f->n_colours + 1)};
  for (int c = 0; c < f->n_colours; c++) {
    classes[c] = from[f->first_class[c]];
    out->first[c] = out->n;
    out->n += classes[c].n_actions;
  }
  out->first[f->n_colours] = out->n;
  out->partner = ARENA_ARRAY(arena, int, out->n);
  for (int c = 0; c < f->n_colours; c++)
    for (int i = 0; i < classes[c].n_actions; i++) {
      int partner = f->m->partner[f->m->first[f->first_class[c]] + i];
      out->partner[out->first[c] + i] =
          partner < 0 ? -1
                      : out->first[f->colour[f->class_of[partner]]] +
                            offset_of(f, partner);
    }
}

bool rendezvous_fold(Arena *arena, const Matched *m, Matched *out,
                     const int **out_names) {
  Fold f = {.m = m, .n_classes = m->program->n_classes};
  f.colour = ARENA_ARRAY(arena, int, f.n_classes);
  f.first_class = ARENA_ARRAY(arena, int, f.n_classes);
  f.hashes = ARENA_ARRAY(arena, uint64_t, f.n_classes);
  f.class_of = ARENA_ARRAY(arena, int, m->n);
  for (int c = 0; c < f.n_classes; c++) {
    f.hashes[c] = hash_list(&m->program->classes[c]);
    for (int i = m->first[c]; i < m->first[c + 1]; i++) f.class_of[i] = c;
  }
  give_colours(arena, &f);
  for (int round = 0, before = 0; before != f.n_colours; round++) {
    if (round == MOST_ROUNDS) return false;
    before = f.n_colours;
    for (int c = 0; c < f.n_classes; c++) f.hashes[c] = hash_partners(&f, c);
    give_colours(arena, &f);
  }
  for (int c = 0; c < f.n_classes; c++)
    if (!is_as_the_first(&f, c)) return false;
  write_folded(arena, &f, out);
  *out_names = f.first_class;
  return true;
}
