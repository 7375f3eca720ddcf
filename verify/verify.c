/*
 * verify.c -- plays a compiled model in f64 and, with two seeds, in exact mode
 * (interp/exact.h), each in a thread of its own, and gathers the answers.
 *
 * verify_steps.c compiles what is played, verify_play.c plays it, and
 * verify_messages.c compares the tables of the program with what was played.
 */
#include "verify/verify_periods.h"

#include <pthread.h>
#include <unistd.h>

#define N_RUNS 3 /* f64, and exact mode with two seeds */

enum { LARGE_SIZE = 64 }; /* reported where it cannot shrink */

typedef struct Verify {
  Compilation *c;
  Module *module;
  Arena *arena;
  const VerifySteps *steps;
  uint64_t seed;
  VerifyReport *report;
} Verify;

static VerifyRun make_run(const Verify *v, int i, Arena *arena) {
  return (VerifyRun){.c = v->c,
                     .steps = v->steps,
                     .arena = arena,
                     .numbers = {.number = i == 0 ? INTERP_f64 : INTERP_exact,
                                 .seed = v->seed + (uint64_t)i},
                     .report = {.equal = ANSWER_yes,
                                .memory_ok = ANSWER_yes,
                                .messages_match = ANSWER_yes}};
}

/* A clip that the first gradient norm does not reach is moved below it; true:
 * it was. */
static bool activate_clip(Verify *v) {
  Model *model = (Model *)v->c->model;
  if (model->settings.clip <= 0 || v->report->clip > 0) return false;
  Arena *scratch = arena_beside(v->arena);
  VerifyRun run = make_run(v, 0, scratch);
  double norm = verify_norm(&run);
  arena_destroy(scratch);
  if (norm >= 2 * model->settings.clip) return false;
  model->settings.clip = v->report->clip = norm / 2;
  return true;
}

static void check_placements(const Verify *v, const Graph *graph) {
  Text faults = text_create(v->arena);
  if (graph_check_placements(graph, &faults) ||
      v->report->placement_ok == ANSWER_no)
    return;
  v->report->placement_ok = ANSWER_no;
  v->report->placement_fault = text_string(&faults);
}

static void note_steps(const Verify *v, const StepList *steps) {
  for (int i = 0; i < steps->n; i++) {
    const VerifyStep *step = &steps->list[i];
    const char **names = &v->report->steps, *name = steps->list[i].name;
    if (steps->list[i].is_resumed)
      *names = arena_printf(v->arena, "%s, saving and loading", *names);
    *names = *names ? arena_printf(v->arena, "%s, %s", *names, name) : name;
    /* Nothing is sharded over servers. */
    int n_placed = step->servers ? 1 : step->played.graphs.n;
    for (int g = 0; g < n_placed; g++)
      check_placements(v, step->played.graphs.data[g]);
  }
}

static void note_sizes(const Verify *v) {
  Text changed = text_create(v->arena), kept = text_create(v->arena);
  if (!v->steps->resizing) return;
  resizing_print(&changed, v->steps->resizing, true, 0);
  resizing_print(&kept, v->steps->resizing, false, LARGE_SIZE);
  v->report->sizes = text_string(&changed);
  if (kept.n) v->report->kept_sizes = text_string(&kept);
}

/* Every other block is like the one in the middle, or it is not. */
static void note_blocks(const Verify *v) {
  VerifyReport *report = v->report;
  const VerifySteps *steps = v->steps;
  for (int i = 0; i < steps->n_repeats; i++) {
    const Repeat *repeat = &steps->repeats[i];
    const char **text = &report->repeats;
    *text = arena_printf(v->arena, "%s%s%s[%d..%d]", *text ? *text : "",
                         *text ? ", " : "", repeat->name, repeat->first,
                         repeat->last);
  }
}

/* The norm that says where the clip acts is that of a draft, whose messages
 * nobody reads: the whole program gives them again. */
static CompileResult compile_steps(Verify *v, VerifySteps *steps) {
  bool is_draft = v->c->model->settings.clip > 0;
  CompileResult result = verify_compile(v->c, v->module, is_draft, steps);
  if (result == COMPILE_mistake && is_draft)
    return verify_compile(v->c, v->module, false, steps);
  if (result != COMPILE_done || !is_draft) return result;
  bool is_moved = activate_clip(v);
  return is_moved || steps->n_repeats > 0
             ? verify_compile(v->c, v->module, false, steps)
             : result;
}

/* ---- threads ---- */

typedef struct VerifyThread {
  VerifyRun run;
  Memory *memory;
  pthread_t thread;
  bool is_started, is_exhausted;
} VerifyThread;

/* The memory of a thread has none left.  At its limit the report says so; else
 * the process ends where others wait. */
static void end_thread(void *user) {
  VerifyThread *t = user;
  if (memory_is_at_limit(t->memory))
    verify_note_size(&t->run);
  else
    t->is_exhausted = true;
  pthread_exit(NULL);
}

static void *run_thread(void *user) {
  verify_play(&((VerifyThread *)user)->run);
  return NULL;
}

static const char *kept_text(const Verify *v, const char *text) {
  return text ? arena_strdup(v->arena, text) : NULL;
}

static void add_difference(VerifyReport *report, const VerifyReport *run) {
  if (run->equal != ANSWER_no || report->equal == ANSWER_no) return;
  report->equal = ANSWER_no;
  report->numbers = run->numbers;
  report->step = run->step;
  report->kind = run->kind;
  report->path = run->path;
  report->rank = run->rank;
  report->stage = run->stage;
  report->element = run->element;
}

/* Adds what a run has found, unless one before it has. */
static void add_run(Verify *v, const VerifyReport *run) {
  VerifyReport *report = v->report;
  add_difference(report, run);
  if (run->max_rel_error > report->max_rel_error)
    report->max_rel_error = run->max_rel_error;
  if (run->widest_path) {
    report->widest_limit = run->widest_limit;
    report->widest_path = kept_text(v, run->widest_path);
  }
  report->n_compared += run->n_compared;
  report->n_f64_different += run->n_f64_different;
  report->n_exact_different += run->n_exact_different;
  report->n_collectives += run->n_collectives;
  if (run->not_compared && report->equal == ANSWER_yes)
    report->equal = ANSWER_not_checked;
  if (!report->not_compared)
    report->not_compared = kept_text(v, run->not_compared);
  if (run->memory_ok != ANSWER_yes && report->memory_ok == ANSWER_yes) {
    report->memory_ok = run->memory_ok;
    report->memory_fault = kept_text(v, run->memory_fault);
  }
  if (run->messages_match == ANSWER_no && !report->message_fault) {
    report->messages_match = report->hang_free = ANSWER_no;
    report->message_fault = kept_text(v, run->message_fault);
  }
}

static void start_run(const Verify *v, VerifyThread *t, int i,
                      PlayMessages *messages) {
  *t = (VerifyThread){.memory = memory_create(end_thread, t)};
  memory_limit(t->memory, VERIFY_MOST_BYTES);
  t->run = make_run(v, i, arena_create(t->memory));
  if (i == 0) t->run.messages = messages;
  t->is_exhausted = pthread_create(&t->thread, NULL, run_thread, t);
  t->is_started = !t->is_exhausted;
}

/* Waits for the run; false: it had no memory. */
static bool end_run(Verify *v, VerifyThread *t) {
  if (t->is_started) pthread_join(t->thread, NULL);
  if (t->is_exhausted) return false;
  add_run(v, &t->run.report);
  memory_destroy(t->memory);
  return true;
}

/* The runs share nothing but what they only read.  No more of them run at a
 * time than there are cores: others would only take memory. */
static void play_runs(Verify *v) {
  VerifyThread threads[N_RUNS];
  int n_classes = v->steps->n_classes;
  PlayMessages *messages = ARENA_ARRAY(v->arena, PlayMessages, n_classes);
  for (int c = 0; c < n_classes; c++) messages[c].arena = v->arena;
  int cores = (int)sysconf(_SC_NPROCESSORS_ONLN), n_ended = 0;
  bool has_memory = true;
  if (cores < 1) cores = 1;
  memory_trim(); /* the first call is safe in one thread only */
  for (int i = 0; i < N_RUNS; i++) {
    if (i - n_ended >= cores) has_memory &= end_run(v, &threads[n_ended++]);
    start_run(v, &threads[i], i, messages);
  }
  while (n_ended < N_RUNS) has_memory &= end_run(v, &threads[n_ended++]);
  if (!has_memory) memory_exhausted(v->c->module->memory);
  if (v->report->memory_ok != ANSWER_not_checked)
    verify_messages(v->c, v->steps, messages, v->report);
  else if (v->report->messages_match == ANSWER_yes)
    v->report->messages_match = v->report->hang_free = ANSWER_not_checked;
}

/* Nothing else of these steps counts. */
static void play_more_steps(Verify *v, int n_steps) {
  Arena *scratch = arena_beside(v->arena);
  VerifyRun run = make_run(v, 0, scratch);
  v->report->loss_error = verify_losses(&run, n_steps);
  arena_destroy(scratch);
}

/* Servers that do not wait for all workers compute no function of the model and
 * its data. */
static bool refuse_servers(const Compilation *c) {
  const PlanServers *servers = plan_servers(c->plan);
  if (!servers || servers->staleness == 0) return false;
  const char *staleness = servers->staleness < 0
                              ? "none"
                              : arena_printf(c->module->arena, "%lld",
                                             (long long)servers->staleness);
  diag_help(diag(c->module->diags, DIAG_server_order, servers->span, staleness),
            "with 'staleness = 0' servers add up the gradients of all workers "
            "in their order; a run of this plan is repeated with --server-log "
            "and --replay");
  return true;
}

CompileResult driver_verify(Compilation *c, uint64_t seed, VerifyReport *out) {
  Arena *arena = c->module->arena;
  Module *module = module_apart(c->module, arena);
  *out = (VerifyReport){
      .equal = ANSWER_yes,
      .placement_ok = ANSWER_yes,
      .hang_free = ANSWER_yes,
      .messages_match = ANSWER_yes,
      .memory_ok = ANSWER_yes,
      .limit = VERIFY_F64_LIMIT,
      .ranks = c->plan ? plan_world(c->plan) : 1,
      .servers = c->plan ? c->plan->servers.n : 0,
      .stages = c->plan && c->plan->stages.n > 1 ? c->plan->stages.n : 1,
      .microbatches = c->plan ? c->plan->microbatches : 1};
  if (verify_has_periods(c)) out->versions = c->plan->schedule;
  if (refuse_servers(c)) return COMPILE_mistake;
  VerifySteps steps = {0};
  Verify v = {.c = c,
              .module = module,
              .arena = arena,
              .steps = &steps,
              .seed = seed,
              .report = out};
  CompileResult result = compile_steps(&v, &steps);
  /* The program that is played may be refused where the whole one is not. */
  if (result == COMPILE_mistake && diags_errors(c->module->diags) == 0)
    c->module->diags = module->diags;
  if (result != COMPILE_done) return result;
  out->not_played = steps.not_played;
  out->played_microbatches = steps.n_microbatches;
  out->has_single_elements = steps.has_single_elements;
  note_steps(&v, &steps.gradients);
  note_steps(&v, &steps.program);
  note_sizes(&v);
  note_blocks(&v);
  out->batch_shards = steps.program.list[0].batch_shards;
  out->contents = verify_contents(out->batch_shards);
  play_runs(&v);
  /* Nearer to the mistake than the outputs that it changes. */
  if (out->equal == ANSWER_no && steps.other_block) {
    out->kind = "node";
    out->path = steps.other_block;
  }
  if (c->options->n_more_steps > 0)
    play_more_steps(&v, c->options->n_more_steps);
  return COMPILE_done;
}
