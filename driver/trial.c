/*
 * trial.c -- prices other plans of a loaded model.
 *
 * The model, its pins and the cluster are only read.  What a trial makes, names
 * included, lies in an arena of its own above them; so do copies of the model's
 * graphs, because passes add to the module of a graph.
 */
#include "driver/trial.h"

#include "driver/internal.h"

#include <pthread.h>

const Pins *driver_read_pins(const Compilation *loaded, const PlanSource *from,
                             Diags *diags) {
  const Pins *pins = frontend_read_plan(loaded->plans, from, diags);
  return pins ? driver_add_options(loaded, pins) : NULL;
}

bool driver_plan_texts(const Compilation *loaded, const Pins *pins,
                       Diags *diags, PlanTexts *out) {
  Module module = *loaded->module;
  module.diags = diags;
  const Plan *plan = plan_make(&module, pins);
  if (!plan || diags_errors(diags) > 0) return false;
  Text text = text_create(module.arena);
  plan_print(&text, plan);
  *out = (PlanTexts){text_string(&text), plan_describe(module.arena, plan)};
  return true;
}

static bool compile(Compilation *c, bool is_training_only) {
  Station station = is_training_only ? STATION_ordered : STATION_packed;
  if (driver_compile(c, station) != COMPILE_done) return false;
  if (is_training_only) driver_assign_buffers(c);
  return true;
}

bool driver_try(const Compilation *loaded, Memory *memory,
                const TrialPlan *trial, const PriceRequest *request,
                Trial *out) {
  Arena *arena = arena_create(memory);
  *out = (Trial){.module = {.memory = memory, .arena = arena}};
  Module *module = &out->module;
  module->names = names_create_above(arena, loaded->module->names);
  module->diags = diags_create(arena);
  const Plan *plan =
      pins_ask(trial->pins) ? plan_close(module, trial->pins) : NULL;
  if (diags_errors(module->diags) > 0) return false;
  out->c = driver_replan(loaded, module, plan);
  out->c.is_trial = true;
  out->c.model = driver_copy_model(module, loaded->model, trial->blocks);
  return compile(&out->c, trial->is_training_only) &&
         driver_price(&out->c, request, &out->priced);
}

void driver_end_trial(Trial *trial) {
  arena_destroy(trial->module.arena);
}

/* ---- threads ---- */

typedef struct Trials {
  const Compilation *loaded;
  const TrialList *list;
  pthread_mutex_t lock; /* of what follows, and of visits */
  int next;
  bool is_exhausted;
} Trials;

/* Ends a thread that has no memory left; the others come to an end too. */
static void end_thread(void *user) {
  Trials *trials = user;
  pthread_mutex_lock(&trials->lock);
  trials->is_exhausted = true;
  pthread_mutex_unlock(&trials->lock);
  pthread_exit(NULL);
}

/* -1: there is none left. */
static int take(Trials *trials) {
  pthread_mutex_lock(&trials->lock);
  const TrialList *list = trials->list;
  bool has_one = trials->next < list->n && !trials->is_exhausted &&
                 !(list->is_stopped && list->is_stopped());
  int i = has_one ? trials->next++ : -1;
  pthread_mutex_unlock(&trials->lock);
  return i;
}

static void *run_thread(void *user) {
  Trials *trials = user;
  const TrialList *list = trials->list;
  for (int i; (i = take(trials)) >= 0;) {
    Memory *memory = memory_create(end_thread, trials);
    Trial trial;
    bool is_priced = driver_try(trials->loaded, memory, &list->plans[i],
                                list->request, &trial);
    pthread_mutex_lock(&trials->lock);
    list->visit(list->user, i, &trial, is_priced);
    pthread_mutex_unlock(&trials->lock);
    driver_end_trial(&trial);
    memory_destroy(memory);
  }
  return NULL;
}

void driver_try_all(const Compilation *loaded, const TrialList *list) {
  enum { MOST_THREADS = 64 };
  Trials trials = {.loaded = loaded, .list = list};
  pthread_t threads[MOST_THREADS];
  int n = 0, most = list->most_threads < list->n ? list->most_threads : list->n;
  pthread_mutex_init(&trials.lock, NULL);
  memory_trim(); /* the first call is safe in one thread only */
  while (n < most && n < MOST_THREADS &&
         pthread_create(&threads[n], NULL, run_thread, &trials) == 0)
    n++;
  if (n == 0 && list->n > 0) trials.is_exhausted = true;
  for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
  pthread_mutex_destroy(&trials.lock);
  if (trials.is_exhausted) memory_exhausted(loaded->module->memory);
}
