/*
 * whole_batch.c -- names the outputs for which an evaluation does its batch at
 * once, although training has micro-batches.
 *
 * `partition` decides it for the graph.  Here it decides again for each output
 * alone, so this is for commands that explain a plan.
 */
#include "driver/internal.h"

#include <string.h>

static bool is_split(const Compilation *c, EntryPointId id, Graph *graph) {
  StageGraphs result;
  return driver_compile_stages(c, id, graph, pass_phase(PASSES_merging),
                               &result) &&
         mesh_microbatches(&result.graphs.data[0]->mesh) > 1;
}

/* "f1_score" of its output "f1_score.hits". */
static Name name_of_output(const Model *model, Name path) {
  for (int i = 0; i < model->settings.n_metrics; i++) {
    const Metric *metric = &model->settings.metrics[i];
    for (int k = 0; k < metric->n_parts; k++)
      if (metric->parts[k].sum == path || metric->parts[k].count == path)
        return metric->name;
  }
  return path;
}

static const char *list_outputs(const Compilation *c, EntryPointId id,
                                const Graph *graph) {
  Text names = text_create(c->module->arena);
  Name last = NULL;
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    Graph *alone = arena_copy(c->module->arena, graph, sizeof *graph);
    alone->module = c->module;
    memset(&alone->outputs, 0, sizeof alone->outputs);
    vec_push(c->module->arena, &alone->outputs, *output);
    Name name = name_of_output(c->model, output->path);
    if (name == last || is_split(c, id, alone)) continue;
    text_printf(&names, "%s'%s'", names.n ? ", " : "", name);
    last = name;
  }
  return names.n ? text_string(&names) : NULL;
}

const char *driver_whole_batch(const Compilation *c, const EntryPoint *entry) {
  EntryPointId id = entry->id;
  const Graph *graph = driver_model_graph(c->model, id);
  bool is_evaluation = id == ENTRY_eval || id == ENTRY_eval_remainder;
  const Plan *plan = is_evaluation ? driver_entry_point_plan(c, id) : NULL;
  if (!plan || plan->microbatches <= 1 ||
      mesh_microbatches(&entry->stages.data[0].graph->mesh) > 1)
    return NULL;
  Compilation trial = *c;
  CompileOptions options = *c->options;
  options.watch = (CompileWatch){0};
  trial.options = &options;
  trial.module = module_apart(c->module, c->module->arena);
  return list_outputs(&trial, id, graph);
}
