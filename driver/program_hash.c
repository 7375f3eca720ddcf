/*
 * program_hash.c -- hashes the program that a plan is for, so that a
 * certificate is not read for another one.
 *
 *     graphs with sizes and paths, annotations, precision, optimizer, batch
 *
 * Names of files and numbers that change no shape, as a learning rate, do not
 * count.
 */
#include "driver/driver.h"

static void add_paths(Text *out, const Graph *graph) {
  for (int i = 0; i < graph->inputs.n; i++)
    text_printf(out, "%s\n", graph->inputs.data[i].path);
  for (int i = 0; i < graph->nodes.n; i++)
    text_printf(out, "%s\n",
                graph->nodes.data[i]->path ? graph->nodes.data[i]->path : "");
}

static void add_graph(Text *out, const Graph *graph) {
  if (!graph) return;
  text_printf(out, "graph %016llx\n", (unsigned long long)graph_hash(graph));
  add_paths(out, graph);
}

static void add_pin(Text *out, const PlanPin *pin) {
  text_printf(out, "pin %d\n", pin->says);
  for (int i = 0; i < pin->n_paths; i++)
    text_printf(out, "%s\n", pin->paths[i]);
  for (int i = 0; i < pin->n_shards; i++) {
    text_printf(out, "%s over", pin->shards[i].dim);
    for (int k = 0; k < pin->shards[i].n_axes; k++)
      text_printf(out, " %s", pin->shards[i].axes[k]);
    text_add(out, "\n");
  }
  for (int i = 0; i < pin->n_partial; i++)
    text_printf(out, "partial %s\n", pin->partial[i]);
}

static void add_settings(Text *out, const Model *model) {
  const Precision *precision = &model->precision;
  const TrainSettings *settings = &model->settings;
  text_printf(out, "precision %d %d %d %g\n", precision->compute,
              precision->master, precision->grads, precision->loss_scale);
  for (int i = 0; i < precision->n_f32_paths; i++)
    text_printf(out, "%s\n", precision->f32_paths[i]);
  if (!model->has_train) return;
  text_printf(out, "%s %d %lld %d %d\n", settings->optimizer.name,
              settings->optimizer.decay > 0, (long long)settings->batch,
              settings->clip > 0, settings->ema > 0);
  for (int i = 0; model->train && i < model->train->inputs.n; i++) {
    const GraphInput *input = &model->train->inputs.data[i];
    if (input->group)
      text_printf(out, "group %s %d\n", input->path,
                  optimizer_of(&settings->optimizer, input)->decay > 0);
  }
}

void driver_program_hash(const Model *model, const Pins *pins,
                         char out_hex[33]) {
  Text text = text_create(model->module->arena);
  add_graph(&text, model->train);
  add_graph(&text, model->eval);
  add_settings(&text, model);
  for (int i = 0; pins && i < pins->of_paths.n; i++)
    if (pins->of_paths.data[i].pin.is_annotation)
      add_pin(&text, &pins->of_paths.data[i].pin);
  hash_hex(text_string(&text), text.n, out_hex);
}
