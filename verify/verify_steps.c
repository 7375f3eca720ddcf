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
#include "verify/verify_servers.h"

#include <string.h>

#include "verify/play_layout.h"

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

static bool has_stages(const StepCompiler *s) {
  return s->c->plan && s->c->plan->stages.n > 1;
}

static bool has_servers(const StepCompiler *s) {
  return plan_servers(s->c->plan) != NULL;
}

/* The compilation with messages that nobody reads. */
static Compilation silent(const StepCompiler *s) {
  Compilation c = *s->c;
  c.module = s->module;
  return c;
}

/* The final graphs of the stages of the plan. */
static StageGraphs compile_played(const StepCompiler *s, const Graph *graph,
                                  PassRun run) {
  Compilation c = silent(s);
  StageGraphs out;
  run.name = "verify";
  run.plan = s->c->plan;
  driver_run_stages(&c, &run, own_graph(s, graph), &out);
  return out;
}

/* The graph that reads the averages that `trained` stores; NULL: none. */
static const Graph *with_averages(const StepCompiler *s, const Graph *graph,
                                  const Graph *trained) {
  if (!trained) return graph;
  PassContext ctx = driver_pass_context(s->c, NULL);
  ctx.module = s->module;
  graph = ema_weights_read(&ctx, own_graph(s, graph), trained);
  arena_destroy(ctx.scratch);
  return graph;
}

/* The graph at -O0 on one rank, with its gradients, before operators are
 * placed; where sizes stay, before they are decomposed.  Where the stages of
 * the plan update their parameters alone, so do those of the reference. */
static const Graph *reference_of(const StepCompiler *s, const Graph *graph,
                                 bool is_training, const Graph *trained,
                                 bool is_resized) {
  CompileOptions options = *s->c->options;
  options.level = 0;
  Compilation c = silent(s);
  c.options = &options;
  PassRun run = {.name = "verify",
                 .compared = is_training ? s->c->plan : NULL,
                 .is_training = is_training,
                 .keeps_gradients = true,
                 .end =
                     pass_phase(is_resized ? PASSES_local : PASSES_lowering)};
  graph = with_averages(s, graph, trained);
  return driver_passes(&c, s->module, &run, own_graph(s, graph)).graph;
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

static void add_entry_graphs(const StepCompiler *s, const EntryPoint *entry,
                             StageGraphs *out) {
  for (int i = 0; i < entry->stages.n; i++) {
    const ProgramStage *stage = &entry->stages.data[i];
    while (out->graphs.n <= stage->number)
      vec_push(s->arena, &out->graphs, NULL);
    out->graphs.data[stage->number] = (Graph *)stage->graph;
  }
  for (int e = out->cut.edges.n; e < entry->edges.n; e++) {
    const ProgramEdge *edge = &entry->edges.data[e];
    vec_push(s->arena, &out->cut.edges,
             (StageEdge){.from = edge->from,
                         .to = edge->to,
                         .path = edge->path,
                         .is_of_step = edge->is_of_step,
                         .is_after = edge->is_after,
                         .level = edge->level});
  }
}

/* The graphs of the stages, by number; none: the whole program is not compiled.
 */
static StageGraphs graphs_of_entry(const StepCompiler *s, EntryPointId id) {
  StageGraphs out = {0};
  for (int i = 0; i < s->c->classes.n; i++) {
    const EntryPoint *entry =
        rank_program_find(&s->c->classes.data[i].program, id);
    if (entry && has_servers(s))
      vec_push(s->arena, &out.graphs, (Graph *)entry->stages.data[0].graph);
    else if (entry)
      add_entry_graphs(s, entry, &out);
  }
  return out;
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
  c->trained_stages = (StageGraphs){0};
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
  if (has_servers(s)) return; /* fewer blocks are dealt otherwise */
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

static void note_other_block(const StepCompiler *s, const StageGraphs *whole,
                             const StageGraphs *folded) {
  VerifySteps *out = s->out;
  int n = whole->graphs.n;
  for (int g = 0; g < n && n == folded->graphs.n && !out->other_block; g++)
    out->other_block =
        unroll_difference(s->arena, whole->graphs.data[g],
                          folded->graphs.data[g], out->repeats, out->n_repeats);
}

/* The final graphs of the folded model; notes where the whole ones, if they are
 * compiled, are not their unrolling.  `trained` (NULL: none) has averages that
 * an evaluation reads. */
static StageGraphs folded_graphs(const StepCompiler *s, const Graph *graph,
                                 EntryPointId id, const StageGraphs *trained) {
  StageGraphs whole = graphs_of_entry(s, id);
  if (s->out->n_repeats == 0) return whole;
  for (int g = 0; trained && g < trained->graphs.n; g++)
    graph = with_averages(s, graph, trained->graphs.data[g]);
  StageGraphs folded =
      compile_played(s, graph, (PassRun){.is_training = id == ENTRY_train});
  note_other_block(s, &whole, &folded);
  return folded;
}

static VerifyStep gradient_step(const StepCompiler *s) {
  return (VerifyStep){
      .name = "gradients",
      .id = ENTRY_train,
      .has_gradients = true,
      .played = compile_played(
          s, s->model->train,
          (PassRun){.is_training = true, .leaves_out_updates = true})};
}

/* Two training steps with an evaluation between them, the second one of a run
 * that is resumed.  Where training runs in periods each of both is a run of
 * several batches, and gradients are compared by what updates make of them, as
 * those of servers are. */
static void make_played(const StepCompiler *s) {
  StepList *program = &s->out->program, *gradients = &s->out->gradients;
  VerifyStep train = {.name = "the first training step", .id = ENTRY_train};
  train.played = folded_graphs(s, s->model->train, ENTRY_train, NULL);
  *gradients = (StepList){.n = 0};
  *program = (StepList){.n = 0};
  if (has_servers(s))
    train.servers = verify_servers(s->arena, &train.played);
  else if (verify_has_periods(s->c))
    train.name = "the first run of training steps";
  else
    gradients->list[gradients->n++] = gradient_step(s);
  program->list[program->n++] = train;
  if (s->model->eval)
    program->list[program->n++] = (VerifyStep){
        .name = "the evaluation",
        .id = ENTRY_eval,
        .played = folded_graphs(s, s->model->eval, ENTRY_eval, &train.played)};
  train.name = verify_has_periods(s->c) ? "the second run of training steps"
                                        : "the second training step";
  train.is_resumed = true;
  if (has_servers(s)) train.servers = verify_servers(s->arena, &train.played);
  program->list[program->n++] = train;
}

/* ---- programs ---- */

/* Into how many shards, of ranks and micro-batches, the data is divided along
 * its first dim. */
static int64_t shards_of_batch(const StageGraphs *played) {
  int64_t most = 1;
  for (int g = 0; g < played->graphs.n; g++) {
    const Graph *graph = played->graphs.data[g];
    for (int i = 0; i < graph->inputs.n; i++) {
      const Type *type = graph_type(graph, graph->inputs.data[i].value);
      if (graph->inputs.data[i].role != ROLE_data || type->rank == 0) continue;
      int64_t n = axis_list_shards(type->dims[0].split, &graph->mesh);
      if (n > most) most = n;
    }
  }
  return most;
}

/* Those of the workers, and of each server, which does nothing in steps other
 * than those of training. */
static void make_server_entries(const StepCompiler *s, const VerifyStep *step,
                                StageEntries *out) {
  Compilation c = silent(s);
  const PlanServers *servers = plan_servers(s->c->plan);
  int n = 1 + servers->n;
  int *first_rank = ARENA_ARRAY(s->arena, int, n),
      *n_ranks = ARENA_ARRAY(s->arena, int, n);
  out->n = n;
  out->entries = ARENA_ARRAY(s->arena, EntryPoint, n);
  for (int k = 0; k < n; k++) {
    Graph *graph = k < step->played.graphs.n
                       ? step->played.graphs.data[k]
                       : graph_create(s->module, s->model->name);
    out->entries[k] =
        entry_point_of_list(s->arena, step->id, driver_instructions(&c, graph));
    first_rank[k] = k > 0 ? servers->first_rank + k - 1 : 0;
    n_ranks[k] = k > 0 ? 1 : servers->first_rank;
    if (k > 0) out->entries[k].stages.data[0].first_rank = servers->first_rank;
  }
  out->first_rank = first_rank;
  out->n_ranks = n_ranks;
}

/* Makes the entry point of each class of ranks. */
static bool make_entries(const StepCompiler *s, VerifyStep *step,
                         StageEntries *out) {
  Compilation c = silent(s);
  if (has_stages(s))
    return driver_stage_entries(&c, step->id, &step->played, out);
  if (has_servers(s)) {
    make_server_entries(s, step, out);
    return true;
  }
  static const int first_rank;
  EntryPoint entry = entry_point_of_list(
      s->arena, step->id, driver_instructions(&c, step->played.graphs.data[0]));
  *out =
      (StageEntries){.n = 1,
                     .n_ranks = arena_copy(s->arena, &c.ranks, sizeof c.ranks),
                     .first_rank = &first_rank,
                     .entries = arena_copy(s->arena, &entry, sizeof entry)};
  return true;
}

static bool make_classes(const StepCompiler *s, StepList *steps) {
  for (int i = 0; i < steps->n; i++) {
    VerifyStep *step = &steps->list[i];
    StageEntries made;
    if (!make_entries(s, step, &made)) return false;
    s->out->n_classes = made.n;
    s->out->n_ranks = made.n_ranks;
    s->out->first_rank = made.first_rank;
    step->classes = ARENA_ARRAY(s->arena, VerifyClass, made.n);
    step->batch_shards = shards_of_batch(&step->played);
    for (int k = 0; k < made.n; k++) {
      step->classes[k].entry = made.entries[k];
      step->classes[k].entry.name = step->name;
    }
  }
  return true;
}

static PersistentBuffers persistent_of(const StepCompiler *s,
                                       const StepList *steps, int class) {
  PersistentBuffers persistent = {0};
  for (int i = 0; i < steps->n; i++) {
    const EntryPoint *entry = &steps->list[i].classes[class].entry;
    for (int g = 0; g < entry->stages.n; g++) {
      const ProgramStage *stage = &entry->stages.data[g];
      persistent_buffers_add_versions(&persistent, s->arena, stage->graph,
                                      entry->is_period ? stage->n_versions : 1,
                                      &s->c->target.backend->target);
    }
  }
  return persistent;
}

static const PlayProgram *program_of(const StepCompiler *s, VerifyStep *step,
                                     const EntryPoint *entry, int class,
                                     const PlayLayout *const *layouts) {
  const ProgramStage *stage = &entry->stages.data[0];
  PlayProgram *program;
  if (entry->is_period) {
    step->n_batches = verify_period_batches(entry);
    program =
        play_program_of_periods(s->arena, entry, layouts,
                                (int64_t)step->n_batches * entry->batch_units);
  } else {
    program = play_program_of_stages(s->arena, entry, layouts);
  }
  if (verify_has_periods(s->c) && stage->n_ranks > s->out->n_ranks[class])
    play_program_alone(s->arena, program,
                       s->out->first_rank[class] - stage->first_rank);
  if (has_servers(s) && class > 0)
    play_program_alone(s->arena, program,
                       mesh_ranks(&stage->graph->mesh) > 1 ? class - 1 : 0);
  return program;
}

/* Assigns the memory that the steps share on the ranks of a class. */
static void assign_class(const StepCompiler *s, StepList *steps, int class) {
  const Target *target = &s->c->target.backend->target;
  PersistentBuffers persistent = persistent_of(s, steps, class);
  for (int i = 0; i < steps->n; i++) {
    VerifyClass *of = &steps->list[i].classes[class];
    driver_assign_entry_point(s->c, &of->entry, &persistent);
    of->program = program_of(s, &steps->list[i], &of->entry, class,
                             play_layouts(s->arena, &of->entry, target));
    int64_t bytes = entry_point_arena_bytes(&of->entry);
    if (bytes > steps->arena_bytes[class]) steps->arena_bytes[class] = bytes;
    int64_t on_host = entry_point_host_bytes(&of->entry);
    if (on_host > steps->host_bytes[class]) steps->host_bytes[class] = on_host;
  }
}

static bool make_programs(const StepCompiler *s, StepList *steps) {
  if (!make_classes(s, steps)) return false;
  steps->arena_bytes = ARENA_ARRAY(s->arena, int64_t, s->out->n_classes);
  steps->host_bytes = ARENA_ARRAY(s->arena, int64_t, s->out->n_classes);
  for (int k = 0; k < s->out->n_classes; k++) assign_class(s, steps, k);
  return true;
}

/* The tables of steps that are not played. */
static bool make_whole(const StepCompiler *s, StepList *steps) {
  if (!make_classes(s, steps)) return false;
  for (int k = 0; k < s->out->n_classes && steps->n > 0; k++) {
    PersistentBuffers persistent = persistent_of(s, steps, k);
    for (int i = 0; i < steps->n; i++)
      driver_assign_entry_point(s->c, &steps->list[i].classes[k].entry,
                                &persistent);
  }
  return true;
}

/* Compiles the whole program, and what is played of it.  Where blocks are
 * folded the whole one is only compared: then it has memory of its own. */
static CompileResult compile_all(const StepCompiler *s, bool is_draft) {
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

/* The rows of a table that are on a server have no size that follows from
 * others. */
static bool keeps_sizes(const StepCompiler *s) {
  return has_servers(s) &&
         verify_servers_divide(&s->out->program.list[0].played);
}

/* Where the whole program is no unrolling of the folded one, its blocks differ
 * by a mistake, or because what is at an end of the chain changes the second
 * block too: all of them are played. */
CompileResult verify_compile(Compilation *c, Module *module, bool is_draft,
                             VerifySteps *out) {
  StepCompiler s = begin_steps(c, module, out);
  fold_model(&s);
  CompileResult result = compile_all(&s, is_draft);
  const char *other_block = out->other_block;
  if (result == COMPILE_done && other_block) {
    s = begin_steps(c, module, out);
    out->other_block = other_block;
    result = compile_all(&s, false);
  }
  if (result != COMPILE_done) return result;
  make_references(&s, true);
  if (diags_errors(module->diags) > 0) return COMPILE_mistake;
  Compilation own = silent(&s);
  if (has_stages(&s) && !verify_has_periods(c))
    verify_fold_microbatches(&own, s.arena, out);
  if (keeps_sizes(&s) || !verify_shrink(s.arena, out))
    make_references(&s, false);
  bool is_made = make_whole(&s, &out->whole) &&
                 make_programs(&s, &out->gradients) &&
                 make_programs(&s, &out->program);
  return is_made ? COMPILE_done : COMPILE_mistake;
}
