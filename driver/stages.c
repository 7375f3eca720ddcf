/*
 * stages.c -- compiles the graphs of the stages of a plan.
 *
 *     rows before `partition`   one joint graph, whose nodes have their stage
 *     cut                       a graph for each stage, and edges between them
 *     rows from `partition` on  each graph alone, with the plan of one stage
 *
 * An evaluation that cannot be done in micro-batches is done at once.  If that
 * holds for one stage, it holds for all, so that they exchange as many
 * messages.
 */
#include "driver/internal.h"
#include "ir/place/mesh_place.h"

static bool has_mistakes(const Compilation *c) {
  return diags_errors(c->module->diags) > 0;
}

static StageCut cut_joint(const Compilation *c, const PassRun *run,
                          const Graph *joint) {
  PassContext ctx = driver_pass_context(c, run->plan);
  ctx.is_training = run->is_training;
  StageCut cut = stages_cut(&ctx, joint);
  arena_destroy(ctx.scratch);
  return cut;
}

/* Runs the passes over the graphs of all stages, as far as there are no
 * mistakes. */
static void run_stages(const Compilation *c, const PassRun *run,
                       bool drops_time, StageGraphs *out) {
  Arena *arena = c->module->arena;
  out->graphs.n = 0;
  for (int s = 0; s < out->cut.graphs.n && !has_mistakes(c); s++) {
    PassRun own = *run;
    Plan *plan = plan_of_stage(c->module, run->plan, s);
    if (drops_time) plan_drop_time(plan);
    own.plan = plan;
    own.name = arena_printf(arena, "%s.stage%d", run->name, s);
    own.cut = &out->cut;
    Graph *graph = graph_copy(c->module, out->cut.graphs.data[s]);
    vec_push(arena, &out->graphs,
             driver_passes(c, c->module, &own, graph).graph);
  }
}

/* Some stages have micro-batches, and others do the batch at once. */
static bool disagree(const StageGraphs *graphs) {
  int n_divided = 0;
  for (int s = 0; s < graphs->graphs.n; s++)
    n_divided += mesh_sequential(&graphs->graphs.data[s]->mesh) != 0;
  return n_divided > 0 && n_divided < graphs->graphs.n;
}

bool driver_run_stages(const Compilation *c, const PassRun *of, Graph *graph,
                       StageGraphs *out) {
  PassRun run = *of;
  int cut_at = pass_phase(PASSES_partition), end = run.end;
  bool has_stages = run.plan && run.plan->stages.n > 1;
  bool is_joint = end > 0 && end <= cut_at;
  if (driver_has_servers(of)) return driver_run_servers(c, of, graph, out);
  *out = (StageGraphs){0};
  if (has_stages && !is_joint) run.end = cut_at;
  PassResult joint = driver_passes(c, c->module, &run, graph);
  if (has_mistakes(c)) return false;
  out->decode_init = joint.decode_init;
  if (!has_stages || is_joint) {
    vec_push(c->module->arena, &out->graphs, joint.graph);
    return true;
  }
  out->cut = cut_joint(c, &run, joint.graph);
  run.begin = cut_at;
  run.end = end;
  run_stages(c, &run, false, out);
  if (!has_mistakes(c) && disagree(out)) run_stages(c, &run, true, out);
  if (run.is_training && !c->is_trial && !has_mistakes(c))
    offload_report(c->module, run.plan, (const Graph *const *)out->graphs.data,
                   out->graphs.n);
  return !has_mistakes(c);
}

bool driver_compile_stages(const Compilation *c, EntryPointId id, Graph *graph,
                           int end, StageGraphs *out) {
  PassRun run = driver_pass_run(c, id, end);
  return driver_run_stages(c, &run, graph, out);
}
