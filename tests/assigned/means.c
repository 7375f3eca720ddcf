/*
 * means.c -- adds up what a bound says of one assignment: no plan that comes
 * out as it says has a shorter step, or fewer bytes.
 */
#include "tests/assigned/assigned.h"

static double taken(const Drawn *d) {
  return (double)d->model.rates.interference / (double)SIM_ONE;
}

/* Only a unit with values that its block does not leave runs again. */
static double runs_again(const PlanUnit *u, const Proposal *p,
                         const Load *load) {
  bool runs = p->recomputes && load->saved > load->left && u->block >= 0;
  return runs ? (double)(load->forward - load->casts) : 0;
}

static double mean_of_unit(const Drawn *d, const PlanUnit *u, const Load *load,
                           const BoundWeights *w) {
  const Proposal *p = &d->proposal;
  const ZeroLoad *zero = &load->zero[p->zero];
  const int *of = w->of;
  double forward = (double)load->links[0].busy[w->link];
  double backward = (double)load->links[1].busy[w->link];
  double sums = (double)zero->least_sums.busy[w->link];
  /* What ZeRO 3 gathers again for the backward pass may be kept. */
  const ZeroLoad *once = p->zero == 3 ? &load->zero[1] : zero;
  double times = p->zero == 3 ? (double)p->microbatches : 1;
  double gathers = times * (double)once->gathers.busy[w->link];
  double chain = (double)load->input_gradient;
  double stream = chain + (double)load->least_weights +
                  taken(d) * (double)zero->least_summed +
                  runs_again(u, p, load);
  int during = of[BOUND_forward_stream];
  if (p->zero == 3 && of[BOUND_backward_stream] < during)
    during = of[BOUND_backward_stream];
  double early = p->zero == 3 ? 0 : gathers;
  return of[BOUND_forward_stream] * (double)(load->forward - zero->less_cast -
                                             load->light[0] + load->cut[0]) +
         during * taken(d) * times * (double)(once->bulk - once->summed) +
         of[BOUND_forward_link] * (forward + early) +
         of[BOUND_backward_stream] * stream +
         of[BOUND_backward_chain] *
             (chain + (double)(load->cut[1] - load->light[1])) +
         of[BOUND_backward_link] * (backward + sums) +
         of[BOUND_all_link] * (forward + backward + sums + gathers) +
         (BOUND_ONE - of[BOUND_all_link]) * (double)zero->update;
}

static double mean_of_edge(const UnitEdge *edge, const EdgeLoad *load,
                           const BoundWeights *w) {
  double wait = edge->is_cut ? (double)(load->least * edge->readers) : 0;
  double link = edge->only_weights ? 0 : (double)load->links.busy[w->link];
  int of_wait =
      w->of[edge->is_backward ? BOUND_backward_chain : BOUND_forward_stream];
  int of_link =
      w->of[edge->is_backward ? BOUND_backward_link : BOUND_forward_link];
  return of_wait * wait + (of_link + w->of[BOUND_all_link]) * link;
}

double assigned_mean(const Program *program, const Drawn *d,
                     const BoundWeights *w) {
  const Units *units = program->units;
  double sum = 0;
  for (int u = 0; u < units->units.n; u++)
    sum += mean_of_unit(d, units->units.data[u], assigned_load_of(d, u), w);
  for (int i = 0; i < units->edges.n; i++)
    sum +=
        mean_of_edge(&units->edges.data[i], assigned_edge_of(program, d, i), w);
  return sum / BOUND_ONE;
}

Bytes assigned_live_bytes(const Program *program, const Drawn *d) {
  const Proposal *p = &d->proposal;
  Bytes sum = 0;
  for (int u = 0; u < program->units->units.n; u++) {
    const Load *load = assigned_load_of(d, u);
    sum += load->zero[p->zero].least_state +
           (p->recomputes ? load->least_left : load->least_saved) +
           (p->microbatches > 1 ? load->zero[p->zero].least_gradient : 0);
  }
  return sum;
}

double assigned_largest_mean(const Program *program, const Drawn *d,
                             BoundWeights *out) {
  double most = -1;
  for (int i = 0; i < N_BOUND_EXTREMES; i++)
    for (int link = 0; link < N_LOAD_LINKS; link++) {
      BoundWeights w = {.link = link, .split = -1};
      w.of[bound_extremes[i][0]] = w.of[bound_extremes[i][1]] = BOUND_ONE;
      double mean = assigned_mean(program, d, &w);
      if (mean <= most) continue;
      most = mean;
      *out = w;
    }
  return most;
}
