/*
 * programs.c -- makes the programs of a compilation: one for each class of
 * ranks that run the same stages, with the entry points of a model.
 */
#include "driver/internal.h"

#include <string.h>

static bool has_stages(const Compilation *c) {
  return c->plan && c->plan->stages.n > 1;
}

/* ---- averages of parameters ---- */

static Graph *with_averages_of(const Compilation *c, Graph *graph,
                               const Graph *trained) {
  if (!trained) return graph;
  PassContext ctx = driver_pass_context(c, NULL);
  Graph *result = ema_weights_read(&ctx, graph, trained);
  arena_destroy(ctx.scratch);
  return result;
}

/* Other entry points than training read averages where training stores them:
 * each stage those of its own parameters. */
static Graph *with_averages(const Compilation *c, Graph *graph) {
  const StageGraphs *stages = &c->trained_stages;
  for (int s = 0; s < stages->graphs.n; s++)
    graph = with_averages_of(c, graph, stages->graphs.data[s]);
  return with_averages_of(c, graph, c->trained);
}

/* Notes the final graphs of training. */
static void note_trained(Compilation *c, const StageGraphs *graphs) {
  if (has_stages(c) || plan_servers(c->plan)) c->trained_stages = *graphs;
  if (!has_stages(c)) c->trained = graphs->graphs.data[0];
}

/* ---- programs ---- */

bool driver_refuse_servers(const Compilation *c, const char *what) {
  const PlanServers *servers = plan_servers(c->plan);
  if (servers)
    diag(c->module->diags, DIAG_not_supported, servers->span,
         arena_printf(c->module->arena, "%s under a plan with servers", what));
  return servers != NULL;
}

bool driver_refuse_versions(const Compilation *c, const char *what) {
  Arena *arena = c->module->arena;
  if (driver_refuse_servers(c, what)) return true;
  if (!c->plan || !plan_has_versions(arena, c->plan)) return false;
  diag(c->module->diags, DIAG_not_supported, c->plan->stages.data[0].span,
       arena_printf(arena, "%s under the schedule '%s'", what,
                    c->plan->schedule));
  return true;
}

RankProgram *driver_program(Compilation *c) {
  if (c->classes.n == 0)
    vec_push(c->module->arena, &c->classes,
             (ProgramClass){.first_rank = 0, .n_ranks = c->ranks});
  ASSERT(c->classes.n == 1 || plan_servers(c->plan));
  return &c->classes.data[0].program;
}

const RankProgram *driver_only_program(const Compilation *c) {
  static const RankProgram none;
  ASSERT(c->classes.n <= 1);
  return c->classes.n == 0 ? &none : &c->classes.data[0].program;
}

static ProgramParts parts_of(const Compilation *c, EntryPointId id,
                             const StageGraphs *graphs) {
  Arena *arena = c->module->arena;
  int n = graphs->graphs.n;
  ProgramStage *stages = ARENA_ARRAY(arena, ProgramStage, n);
  ProgramParts parts = {.id = id,
                        .batch = driver_entry_point_batch(c->model, id),
                        .n_stages = n,
                        .stages = stages,
                        .target = &c->target.backend->target,
                        .diags = c->module->diags,
                        .span = c->plan->stages.data[0].span};
  if (id == ENTRY_train) {
    PipelineSpelling spelling = plan_spelling(arena, c->plan->schedule);
    parts.schedule = spelling.schedule;
    parts.times = spelling.times;
    parts.splits_backward = plan_splits_backward(arena, c->plan);
    parts.list = c->plan->list;
    parts.has_versions = plan_has_versions(arena, c->plan);
    parts.is_vertical = spelling.is_vertical;
    parts.has_two = spelling.schedule && spelling.schedule->has_two;
  }
  for (int s = 0; s < n; s++)
    stages[s] = (ProgramStage){.graph = graphs->graphs.data[s],
                               .first_rank = c->plan->stages.data[s].first_rank,
                               .n_ranks = c->plan->stages.data[s].n_ranks};
  parts.edges = stage_program_edges(arena, &graphs->cut);
  return parts;
}

/* Makes a class of each rank: in a period replicas have lists of their own.
 * `are_divided`: the entry points are those of ranks already. */
static void divide_classes(Arena *arena, StageEntries *of, bool are_divided) {
  StageEntries made = {0};
  for (int i = 0; i < of->n; i++) made.n += of->n_ranks[i];
  int *first_rank = ARENA_ARRAY(arena, int, made.n);
  int *n_ranks = ARENA_ARRAY(arena, int, made.n), at = 0;
  made.entries = ARENA_ARRAY(arena, EntryPoint, made.n);
  for (int i = 0; i < of->n; i++)
    for (int k = 0; k < of->n_ranks[i]; k++, at++) {
      EntryPoint *entry = &made.entries[at];
      *entry = of->entries[are_divided ? at : i];
      size_t bytes = (size_t)entry->stages.n * sizeof *entry->stages.data;
      entry->stages.data = arena_copy(arena, entry->stages.data, bytes);
      first_rank[at] = of->first_rank[i] + k;
      n_ranks[at] = 1;
    }
  made.first_rank = first_rank;
  made.n_ranks = n_ranks;
  *of = made;
}

bool driver_stage_entries(const Compilation *c, EntryPointId id,
                          const StageGraphs *graphs, StageEntries *out) {
  Arena *arena = c->module->arena;
  ProgramParts parts = parts_of(c, id, graphs);
  int *class_of = ARENA_ARRAY(arena, int, parts.n_stages);
  int *n_ranks = ARENA_ARRAY(arena, int, parts.n_stages), n_all = 0;
  out->n = program_classes(arena, parts.stages, parts.n_stages, class_of,
                           &out->first_rank);
  for (int s = 0; s < parts.n_stages; s++) {
    n_ranks[class_of[s]] = parts.stages[s].n_ranks;
    n_all += parts.stages[s].n_ranks;
  }
  out->n_ranks = n_ranks;
  out->entries = ARENA_ARRAY(arena, EntryPoint, n_all);
  if (!program_timeline(arena, &parts, out->entries)) return false;
  if (plan_has_versions(arena, c->plan))
    divide_classes(arena, out, parts.has_versions);
  return true;
}

/* Adds the entry point of each class of ranks. */
static bool add_stage_graphs(Compilation *c, EntryPointId id,
                             const StageGraphs *graphs) {
  Arena *arena = c->module->arena;
  StageEntries made;
  double begin = driver_seconds();
  if (!driver_stage_entries(c, id, graphs, &made)) return false;
  driver_end_station(c->options, "timeline", begin);
  for (int i = c->classes.n; i < made.n; i++)
    vec_push(arena, &c->classes,
             (ProgramClass){.first_rank = made.first_rank[i],
                            .n_ranks = made.n_ranks[i]});
  for (int i = 0; i < c->classes.n; i++) {
    RankProgram *program = &c->classes.data[i].program;
    program->entry_points[program->n_entry_points++] = made.entries[i];
  }
  return true;
}

bool driver_add_graph(Compilation *c, EntryPointId id, Graph *graph,
                      StageGraphs *out) {
  StageGraphs graphs;
  if (!graph) return true;
  if (!driver_compile_stages(c, id, with_averages(c, graph), 0, &graphs))
    return false;
  if (out) *out = graphs;
  if (id == ENTRY_train) note_trained(c, &graphs);
  if (has_stages(c)) return add_stage_graphs(c, id, &graphs);
  if (id == ENTRY_train && plan_servers(c->plan)) {
    driver_add_servers(c, &graphs);
    return true;
  }
  RankProgram *program = driver_program(c);
  program->entry_points[program->n_entry_points++] =
      driver_entry_point(c, id, graphs.graphs.data[0]);
  return true;
}

static bool serves(const Compilation *c, EntryPointId id) {
  Purpose purpose = c->options->purpose;
  return purpose == PURPOSE_train || entry_point_info(id)->purpose == purpose;
}

bool driver_add_entry_point(Compilation *c, EntryPointId id) {
  return !serves(c, id) ||
         driver_add_graph(c, id, driver_model_graph(c->model, id), NULL);
}

bool driver_compile_averages(Compilation *c) {
  const Model *model = c->model;
  StageGraphs graphs;
  bool adds_training = serves(c, ENTRY_train);
  if (adds_training || !model->has_train || model->settings.ema == 0)
    return true;
  if (!driver_compile_stages(c, ENTRY_train, model->train, 0, &graphs))
    return false;
  note_trained(c, &graphs);
  return true;
}

void driver_add_plain(Compilation *c) {
  const Graph *train = c->model->train;
  if (!train || !serves(c, ENTRY_train) || has_stages(c) ||
      plan_servers(c->plan))
    return;
  /* Its mistakes are not the user's. */
  Arena *arena = c->module->arena;
  Module *module = module_apart(c->module, arena);
  Graph *graph = arena_copy(arena, train, sizeof *train);
  graph->module = module;
  memset(&graph->outputs, 0, sizeof graph->outputs);
  for (int i = 0; i < train->outputs.n; i++)
    if (train->outputs.data[i].role == ROLE_loss)
      vec_push(arena, &graph->outputs, train->outputs.data[i]);
  PassRun run = {
      .name = "plain", .plan = c->plan, .is_training = true, .is_plain = true};
  PassResult result = driver_passes(c, module, &run, graph);
  if (diags_errors(module->diags) > 0) return;
  RankProgram *program = driver_program(c);
  program->plain = driver_entry_point(c, ENTRY_train, result.graph);
  program->plain.name = "plain";
}
