/*
 * simulator_waits.c -- finds the class that has to go on before one that waits,
 * for the message about a deadlock.
 *
 *     class 0: start a, wait a, start b        0 waits for `a`, which 1 has not
 *     class 1: start b, wait b, start a        come to: 0 waits on 1
 */
#include "price/simulator_state.h"

static bool class_starts(const SimClass *class, int transfer) {
  for (int i = 0; i < class->n_actions; i++)
    if (class->actions[i].kind == SIM_start &&
        class->actions[i].transfer == transfer)
      return true;
  return false;
}

/* A class that starts the transfer and has not come to this run of it; -1: all
 * have come. */
static int missing_class(const Simulation *s, Under *under, int id) {
  for (int c = 0; c < s->program->n_classes; c++)
    if (class_starts(s->runners[c].class, id) &&
        (!under || !simulation_member(under, c)))
      return c;
  return -1;
}

/* The run for which a class waits; NULL: nobody has come to it. */
static Under *awaited_run(const Simulation *s, int class) {
  const Runner *runner = &s->runners[class];
  int64_t number = s->n_ended[runner->waits_for];
  for (int i = 0; i < s->open.n; i++)
    if (s->open.data[i]->id == runner->waits_for &&
        ++number == runner->waits_number)
      return s->open.data[i];
  return NULL;
}

/* The first run in the queue of a class that has come to both. */
static Under *run_before(const Simulation *s, const Under *under,
                         int *out_class) {
  for (int i = 0; i < under->members.n; i++) {
    const Member *member = &under->members.data[i];
    Under *first = s->runners[member->class].queues[member->queue].first;
    *out_class = member->class;
    if (first != under) return first;
  }
  return NULL;
}

int simulation_waits_on(const Simulation *s, int class) {
  int id = s->runners[class].waits_for, behind = -1;
  if (id < 0) return -1;
  Under *under = awaited_run(s, class);
  for (int i = 0; i <= s->open.n; i++) {
    int missing = missing_class(s, under, id);
    if (missing >= 0 || !under) return missing;
    under = run_before(s, under, &behind);
    if (!under) return -1;
    id = under->id;
  }
  return behind;
}
