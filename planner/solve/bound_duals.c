/*
 * bound_duals.c -- proves the bound of a space by messages.
 *
 *     least setting             proved as far as messages go: the bound
 *     least costs reach it      nothing is written
 *     all others                messages until they reach it
 *
 * Mini-buckets say which weights are best.  The setting with the least bound
 * gets messages; these may raise it above another setting, which is next.
 */
#include "planner/solve/bound_duals.h"

#include <inttypes.h>

#include "planner/recheck/least.h"
#include "planner/solve/solve_pairs.h"

/* The recheck takes no larger tables. */
#define MOST_ENTRIES ((int64_t)1 << 20)

typedef struct Proof {
  const BoundMeans *means;
  BoundMean mean;
  PairDuals pairs; /* duals: NULL, none yet */
  Ps time;         /* what is known of its plans */
  bool is_highest; /* messages do not raise it further */
} Proof;

typedef struct Proving {
  Arena *arena; /* of duals */
  VEC(Proof) proofs;
} Proving;

/* ---- wide programs ---- */

static bool is_wide(Arena *arena, const BoundMeans *means,
                    const BoundMean *mean) {
  Arena *scratch = arena_beside(arena);
  PairProblem problem = bound_means_problem(scratch, means, mean);
  LeastPair *pairs = ARENA_ARRAY(scratch, LeastPair, problem.n_pairs + 1);
  for (int i = 0; i < problem.n_pairs; i++)
    pairs[i] = (LeastPair){problem.pairs[i].a, problem.pairs[i].b};
  bool has_order = least_order(scratch, problem.n, problem.n_values,
                               problem.n_pairs, pairs, MOST_ENTRIES) != NULL;
  arena_destroy(scratch);
  return !has_order;
}

/* Settings of the same tables are equally wide. */
bool bound_needs_duals(Arena *arena, const BoundMeans *const *means, int n) {
  const void *last = NULL;
  for (int k = 0; k < n; k++)
    for (int i = 0; means[k] && i < bound_means_count(means[k]); i++) {
      BoundMean mean = bound_means_at(means[k], i);
      if (mean.tables == last) continue;
      last = mean.tables;
      if (is_wide(arena, means[k], &mean)) return true;
    }
  return false;
}

/* ---- proofs ---- */

static void list_proofs(Proving *p, const BoundMeans *const *means, int n) {
  for (int k = 0; k < n; k++)
    for (int i = 0; means[k] && i < bound_means_count(means[k]); i++) {
      Proof proof = {.means = means[k], .mean = bound_means_at(means[k], i)};
      proof.time = proof.mean.time;
      vec_push(p->arena, &p->proofs, proof);
    }
}

/* Returns a sum that bounds the step by `time` or more; any will do where
 * something else does. */
static int64_t sum_for(const Proof *proof, Ps time) {
  Ps free = bound_means_time(proof->means, &proof->mean, 0);
  bool has_time = proof->mean.alone >= time || time <= free;
  return has_time ? 1 : (time - free + 1) * BOUND_PARTS;
}

static void note_proved(Proof *proof) {
  proof->time =
      bound_means_time(proof->means, &proof->mean, proof->pairs.bound);
  if (proof->time < proof->mean.alone) proof->time = proof->mean.alone;
}

/* Sends messages until they prove `enough`; 0: as long as they prove more. */
static void prove(Proving *p, Proof *proof, Ps enough) {
  Arena *scratch = arena_beside(p->arena);
  PairProblem problem =
      bound_means_problem(scratch, proof->means, &proof->mean);
  int64_t sum = enough > 0 ? sum_for(proof, enough) : 0;
  proof->pairs = solve_for_duals(p->arena, &problem, sum);
  note_proved(proof);
  proof->is_highest = enough == 0;
  arena_destroy(scratch);
}

static Proof *least_proof(const Proving *p) {
  Proof *least = &p->proofs.data[0];
  for (int i = 1; i < p->proofs.n; i++)
    if (p->proofs.data[i].time < least->time) least = &p->proofs.data[i];
  return least;
}

/* The least costs of units and edges alone, for the kernels of the stream:
 * every check begins with them. */
static bool is_plain(const Proving *p, const Proof *proof, Ps bound) {
  Arena *scratch = arena_beside(p->arena);
  BoundMean stream = proof->mean;
  stream.weights = (BoundWeights){.split = -1};
  stream.weights.of[BOUND_forward_stream] =
      stream.weights.of[BOUND_backward_stream] = BOUND_ONE;
  PairProblem problem = bound_means_problem(scratch, proof->means, &stream);
  Ps time = bound_means_time(proof->means, &stream, sum_of_leasts(&problem));
  arena_destroy(scratch);
  return time >= bound;
}

/* Leaves duals to the settings that need them. */
static Ps prove_others(Proving *p, Ps bound) {
  Ps least = bound;
  for (int i = 0; i < p->proofs.n; i++) {
    Proof *proof = &p->proofs.data[i];
    bool is_chain = proof->mean.by_alone == BOUND_BY_chain;
    if ((is_chain && proof->mean.alone >= bound) || is_plain(p, proof, bound)) {
      proof->pairs.duals = NULL;
      continue;
    }
    if (!proof->pairs.duals) prove(p, proof, bound);
    if (proof->time < least) least = proof->time;
  }
  return least;
}

/* ---- text ---- */

static void print_setting(Text *out, const BoundSetting *s) {
  text_printf(out, "mesh %d", s->mesh->n_axes);
  for (int a = 0; a < s->mesh->n_axes; a++)
    text_printf(out, " %" PRId32, s->mesh->axes[a].size);
  text_printf(out, "\nplan %d %" PRId64 " %d %d %d\n", s->groups,
              s->microbatches, s->batch_axes, s->zero, s->recomputes);
}

static void print_proofs(Text *out, const Proving *p) {
  int n = 0;
  for (int i = 0; i < p->proofs.n; i++)
    n += p->proofs.data[i].pairs.duals != NULL;
  text_printf(out, "bounds 1\nsettings %d\n", n);
  for (int i = 0; i < p->proofs.n; i++) {
    const Proof *proof = &p->proofs.data[i];
    if (!proof->pairs.duals) continue;
    print_setting(out, &proof->mean.setting);
    text_add(out, "weights ");
    bound_weights_print(out, &proof->mean.weights);
    text_printf(out, "\nshift %d\n", proof->pairs.shift);
    factor_duals_print(out, proof->pairs.duals);
  }
}

void bound_prove(Arena *arena, const BoundMeans *const *means, int n, Ps step,
                 Bound *bound, Text *out) {
  Arena *scratch = arena_beside(arena);
  Proving p = {.arena = scratch};
  list_proofs(&p, means, n);
  Proof *least = least_proof(&p);
  while (!least->is_highest) {
    prove(&p, least, 0);
    least = least_proof(&p);
  }
  bound->time = prove_others(&p, least->time < step ? least->time : step);
  bound->setting = least->mean.setting;
  bound->weights = least->mean.weights;
  bound->by =
      least->time > least->mean.alone ? BOUND_BY_mean : least->mean.by_alone;
  print_proofs(out, &p);
  arena_destroy(scratch);
}
