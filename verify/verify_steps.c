/*
 * verify_steps.c -- compiles a model twice, for its plan as `dnnc build` does
 * and at -O0 for one rank, and makes both small enough to be played.
 *
 * Runs of equal blocks become three, and the whole program is compared with
 * the unrolling of what is left (verify_unroll.c).
 *
 * The graphs are compiled at the sizes of the model, so every choice of the
 * passes is the one of the real program; then all of them get smaller sizes
 * (verify/resize.h), and memory is assigned anew.  A reference that gets other
 * sizes ends after `decompose`, because means then have their constants; where
 * no size changes it ends before.
 */
#include "verify/verify_steps.h"

#include <string.h>

#include "verify/play_layout.h"

/* A step with more numbers than this has one element in each of many shards. */
enum { MOST_ELEMENTS = 1 << 26 };

typedef struct StepCompiler {
  Compilation *c;
  Module *module;
  Arena *arena;
  Model *model; /* with folded graphs of training and evaluation */
  VerifySteps *out;
} StepCompiler;

/* ---- compiling ---- */

static Graph *own_graph(const StepCompiler *s, const Graph *graph) {
  Graph *own = arena_copy(s->arena, graph, sizeof *graph);
  own->module = s->module;
  return own;
}

/* The rows of the passes before `end`, as the options say but for the level. A
 * graph that ends early is a reference, which gives its gradients too. */
static Graph *compile_graph(const StepCompiler *s, const Graph *graph,
                            const Plan *plan, int level, PassRun run) {
  CompileOptions options = *s->c->options;
  options.level = level;
  Compilation c = *s->c;
  c.options = &options;
  run.name = "verify";
  run.plan = plan;
  run.keeps_gradients = run.end != 0;
  return driver_passes(&c, s->module, &run, own_graph(s, graph)).graph;
}

/* `trained` has the averages that an evaluation reads; NULL: none. */
static const Graph *reference_of(const StepCompiler *s, const Graph *graph,
                                 bool is_training, const Graph *trained,
                                 bool is_resized) {
  if (trained) {
    PassContext ctx = driver_pass_context(s->c, NULL);
    ctx.module = s->module;
    graph = ema_weights_read(&ctx, own_graph(s, graph), trained);
    arena_destroy(ctx.scratch);
  }
  int end = pass_phase(is_resized ? PASSES_local : PASSES_lowering);
  return compile_graph(s, graph, NULL, 0,
                       (PassRun){.is_training = is_training, .end = end});
}

static void make_references(const StepCompiler *s, bool is_resized) {
  const Model *model = s->model;
  VerifyStep *steps = s->out->program.list;
  steps[0].reference = reference_of(s, model->train, true, NULL, is_resized);
  s->out->gradients.list[0].reference = steps[0].reference;
  if (s->out->program.n > 2)
    steps[1].reference =
        reference_of(s, model->eval, false, steps[0].reference, is_resized);
  steps[s->out->program.n - 1].reference = steps[0].reference;
}

/* ---- entry points ---- */

/* NULL: the whole program is not compiled. */
static const Graph *graph_of_entry(const StepCompiler *s, EntryPointId id) {
  const Compilation *c = s->c;
  const EntryPoint *entry = rank_program_find(driver_only_program(c), id);
  return entry ? entry_point_stage(entry)->graph : NULL;
}

/* Entry points of the bundle that are computed by each rank in full. */
static const char *list_not_played(const StepCompiler *s) {
  const char *names = NULL;
  const Model *model = s->c->model;
  for (int id = 0; id < N_ENTRY_POINTS; id++) {
    bool is_there = !entry_point_info((EntryPointId)id)->is_derived &&
                    driver_model_graph(model, (EntryPointId)id);
    if (id == ENTRY_train || id == ENTRY_eval || !is_there) continue;
    const char *name = entry_point_name((EntryPointId)id);
    names = names ? arena_printf(s->arena, "%s, %s", names, name) : name;
  }
  return names;
}

static void forget_program(Compilation *c) {
  memset(&c->classes, 0, sizeof c->classes);
  c->trained = NULL;
}

static CompileResult compile_program(const StepCompiler *s) {
  Compilation *c = s->c;
  if (!driver_add_entry_point(c, ENTRY_train) ||
      !driver_add_entry_point(c, ENTRY_eval))
    return COMPILE_mistake;
  if (!c->plan || !c->plan->memory_bytes) return COMPILE_done;
  driver_assign_buffers(c);
  return driver_fits_memory(c) ? COMPILE_done : COMPILE_no_plan;
}

/* ---- folding ---- */

static int fold_graph(const StepCompiler *s, Graph **graph, Repeat *out) {
  int n = graph_repeats(*graph, s->c->plan, out);
  for (int i = 0; i < n; i++) *graph = graph_fold(*graph, &out[i], 3);
  return n;
}

/* Blocks fold where training and evaluation repeat the same ones. */
static void fold_model(StepCompiler *s) {
  VerifySteps *out = s->out;
  Graph *train = s->c->model->train, *eval = s->c->model->eval;
  Repeat repeats[MOST_REPEATS];
  int n = fold_graph(s, &train, out->repeats);
  int n_eval = eval ? fold_graph(s, &eval, repeats) : n;
  bool is_same = n == n_eval;
  for (int i = 0; i < n && eval && is_same; i++)
    is_same = repeats[i].name == out->repeats[i].name &&
              repeats[i].first == out->repeats[i].first &&
              repeats[i].last == out->repeats[i].last;
  if (!is_same || n == 0) return;
  out->n_repeats = n;
  s->model->train = train;
  s->model->eval = eval;
}

/* The final graph of the folded model; notes where the whole one, if it is
 * compiled, is not its unrolling. */
static const Graph *folded_graph(const StepCompiler *s, const Graph *graph,
                                 const Graph *whole, const Graph *trained) {
  bool is_training = !trained;
  if (s->out->n_repeats == 0) return whole;
  if (trained) {
    PassContext ctx = driver_pass_context(s->c, NULL);
    ctx.module = s->module;
    graph = ema_weights_read(&ctx, own_graph(s, graph), trained);
    arena_destroy(ctx.scratch);
  }
  const Graph *folded =
      compile_graph(s, graph, s->c->plan, s->c->options->level,
                    (PassRun){.is_training = is_training});
  if (!whole) return folded;
  if (!s->out->other_block)
    s->out->other_block = unroll_difference(s->arena, whole, folded,
                                            s->out->repeats, s->out->n_repeats);
  return folded;
}

/* Two training steps with an evaluation between them, the second one of a run
 * that is resumed. */
static void make_played(const StepCompiler *s) {
  StepList *program = &s->out->program, *gradients = &s->out->gradients;
  const char *names[] = {"the first training step", "the evaluation",
                         "the second training step"};
  const Graph *train =
      folded_graph(s, s->model->train, graph_of_entry(s, ENTRY_train), NULL);
  *gradients = (StepList){.n = 1};
  *program = (StepList){.n = 0};
  gradients->list[0] = (VerifyStep){
      .name = "gradients",
      .has_gradients = true,
      .played = compile_graph(
          s, s->model->train, s->c->plan, s->c->options->level,
          (PassRun){.is_training = true, .leaves_out_updates = true})};
  program->list[program->n++] = (VerifyStep){.name = names[0], .played = train};
  if (s->model->eval)
    program->list[program->n++] = (VerifyStep){
        .name = names[1],
        .played = folded_graph(s, s->model->eval, graph_of_entry(s, ENTRY_eval),
                               train)};
  program->list[program->n++] =
      (VerifyStep){.name = names[2], .played = train, .is_resumed = true};
}

/* ---- sizes ---- */

static void add_sizes(Resizing *resizing, const StepList *steps) {
  for (int i = 0; i < steps->n; i++) {
    resizing_add(resizing, steps->list[i].played);
    resizing_add(resizing, steps->list[i].reference);
  }
}

static bool apply_sizes(const Resizing *resizing, StepList *steps) {
  for (int i = 0; i < steps->n; i++) {
    VerifyStep *step = &steps->list[i];
    if (i > 0 && step->played == steps->list[0].played) continue;
    step->played = resizing_apply(resizing, step->played);
    step->reference = resizing_apply(resizing, step->reference);
    if (!step->played || !step->reference) return false;
  }
  return true;
}

/* The last step is the first one again. */
static bool shrink_steps(const StepCompiler *s, bool keeps_windows,
                         bool allows_one_element) {
  Resizing *resizing = resizing_create(s->arena);
  if (keeps_windows) resizing_keep_windows(resizing);
  if (allows_one_element) resizing_allow_one_element(resizing);
  StepList gradients = s->out->gradients, program = s->out->program;
  add_sizes(resizing, &gradients);
  add_sizes(resizing, &program);
  resizing_solve(resizing);
  program.n--;
  if (!resizing_shrinks(resizing) || !apply_sizes(resizing, &gradients) ||
      !apply_sizes(resizing, &program))
    return false;
  VerifyStep *last = &program.list[program.n++];
  last->played = program.list[0].played;
  last->reference = program.list[0].reference;
  gradients.list[0].reference = program.list[0].reference;
  s->out->gradients = gradients;
  s->out->program = program;
  s->out->resizing = resizing;
  return true;
}

/* How many numbers the reference of a training step makes. */
static int64_t elements_of_step(const VerifySteps *steps) {
  const Graph *graph = steps->program.list[0].reference;
  int64_t n = 0;
  for (int id = 0; id < graph->nodes.n; id++)
    n += type_elements(graph->nodes.data[id]->types[0]);
  return n;
}

/* Two elements a shard; where that is too much, dims of many shards have one.
 * False: no size changes. */
static bool shrink_sizes(const StepCompiler *s) {
  VerifySteps whole = *s->out;
  bool keeps_windows = !shrink_steps(s, false, false);
  if (keeps_windows && !shrink_steps(s, true, false)) return false;
  VerifySteps two = *s->out;
  if (elements_of_step(&two) <= MOST_ELEMENTS) return true;
  *s->out = whole;
  s->out->has_single_elements = shrink_steps(s, keeps_windows, true);
  if (s->out->has_single_elements &&
      elements_of_step(s->out) < elements_of_step(&two))
    return true;
  *s->out = two;
  return true;
}

/* ---- memory ---- */

/* Into how many shards, of ranks and micro-batches, the data is divided along
 * its first dim. */
static int64_t shards_of_batch(const Graph *graph) {
  int64_t most = 1;
  for (int i = 0; i < graph->inputs.n; i++) {
    const Type *type = graph_type(graph, graph->inputs.data[i].value);
    if (graph->inputs.data[i].role != ROLE_data || type->rank == 0) continue;
    int64_t n = axis_list_shards(type->dims[0].split, &graph->mesh);
    if (n > most) most = n;
  }
  return most;
}

static void assign_steps(const StepCompiler *s, StepList *steps) {
  const Target *target = &s->c->target.backend->target;
  PersistentBuffers persistent = {0};
  for (int i = 0; i < steps->n; i++)
    persistent_buffers_add(&persistent, s->arena, steps->list[i].played,
                           target);
  for (int i = 0; i < steps->n; i++) {
    VerifyStep *step = &steps->list[i];
    step->entry = entry_point_of_list(s->arena, ENTRY_train,
                                      driver_instructions(s->c, step->played));
    step->entry.name = step->name;
    ProgramStage *stage = entry_point_stage(&step->entry);
    PassContext ctx = driver_pass_context(s->c, s->c->plan);
    const BufferAssignment *assignment = stage->assignment =
        buffer_assign(&ctx, stage, &persistent);
    arena_destroy(ctx.scratch);
    step->batch_shards = shards_of_batch(step->played);
    step->program =
        play_program(s->arena, &step->entry,
                     play_layout(s->arena, step->played, assignment, target));
    if (assignment->arena_bytes > steps->arena_bytes)
      steps->arena_bytes = assignment->arena_bytes;
  }
}

/* Compiles the whole program, and what is played of it.  Where blocks are
 * folded the whole one is only compared: then it has memory of its own. */
static CompileResult compile_played(const StepCompiler *s, bool is_draft) {
  Compilation *c = s->c;
  bool is_folded = s->out->n_repeats > 0;
  Module *own = c->module, whole = *own;
  CompileResult result = COMPILE_done;
  if (is_folded) {
    whole.arena = arena_beside(own->arena);
    c->module = &whole;
  }
  forget_program(c);
  if (!is_draft || !is_folded) result = compile_program(s);
  c->module = own;
  if (result == COMPILE_done) make_played(s);
  if (is_folded) {
    forget_program(c);
    arena_destroy(whole.arena);
    memory_trim();
  }
  return result;
}

static StepCompiler begin_steps(Compilation *c, Module *module,
                                VerifySteps *out) {
  Arena *arena = c->module->arena;
  StepCompiler s = {.c = c,
                    .module = module,
                    .arena = arena,
                    .model = arena_copy(arena, c->model, sizeof *c->model),
                    .out = out};
  *out = (VerifySteps){.not_played = list_not_played(&s)};
  return s;
}

/* Where the whole program is no unrolling of the folded one, its blocks differ
 * by a mistake, or because what is at an end of the chain changes the second
 * block too: all of them are played. */
CompileResult verify_compile(Compilation *c, Module *module, bool is_draft,
                             VerifySteps *out) {
  StepCompiler s = begin_steps(c, module, out);
  fold_model(&s);
  CompileResult result = compile_played(&s, is_draft);
  const char *other_block = out->other_block;
  if (result == COMPILE_done && other_block) {
    s = begin_steps(c, module, out);
    out->other_block = other_block;
    result = compile_played(&s, false);
  }
  if (result != COMPILE_done) return result;
  make_references(&s, true);
  if (diags_errors(module->diags) > 0) return COMPILE_mistake;
  if (!shrink_sizes(&s)) make_references(&s, false);
  assign_steps(&s, &out->gradients);
  assign_steps(&s, &out->program);
  return COMPILE_done;
}
