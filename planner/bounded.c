/*
 * bounded.c -- prices the plans at which means of loads are the least.
 *
 *     mean of loads                       at its least     price
 *     forward_stream, backward_stream     2,864 ms         3,827 ms
 *     forward_stream, backward_link       3,000 ms         4,215 ms
 *
 * A bound has the weights that are best for its setting, which the few fixed
 * weightings of proposals do not have.  The plans with the least loads come
 * first, and of equal loads on a mesh, as those of several levels of ZeRO, one
 * is priced.
 */
#include "planner/elimination.h"

static Proposal proposal_of(const BoundPlan *plan) {
  int n_spaces;
  return (Proposal){
      .place = {.space = spaces_all(&n_spaces), .mesh = plan->setting.mesh},
      .microbatches = plan->setting.microbatches,
      .batch_axes = plan->setting.batch_axes,
      .zero = plan->setting.zero,
      .recomputes = plan->setting.recomputes,
      .assignments = plan->assignments};
}

static bool is_like_another(const BoundPlans *plans, int at) {
  const BoundPlan *plan = &plans->list.data[at];
  for (int i = at - 1; i >= 0 && plans->list.data[i].load == plan->load; i--)
    if (plans->list.data[i].setting.mesh == plan->setting.mesh) return true;
  return false;
}

const Scored *price_bounded(Pricing *p, const EliminatedPlans *plans) {
  const SearchHost *host = p->input->host;
  const Scored *best = NULL;
  BoundPlans found = {0};
  if (!host->bound || pricing_is_over(p)) return NULL;
  host->bound(host->user, p->best->price.step, &found);
  for (int i = 0; i < found.list.n && !pricing_is_over(p); i++) {
    if (is_like_another(&found, i)) continue;
    Proposal proposal = proposal_of(&found.list.data[i]);
    Candidate c = proposal_candidate(plans, &proposal);
    const Scored *scored = pricing_known(p, &c) ? NULL : pricing_one(p, &c);
    if (scored && scored->price.is_legal) best = scored_better(best, scored);
  }
  return best;
}
