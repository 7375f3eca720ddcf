/*
 * inspect.c -- gathers what `dnnc show --cluster` prints about a priced step.
 */
#include "tools/show/inspect.h"

#include <stdlib.h>
#include <string.h>

const char *inspect_mfu_formula(void) {
  return "FLOPs of the matmuls, convolutions and attention (the full square, "
         "2 products forward and 4 backward) of a forward and a backward pass "
         "without recomputation, divided by step time x peak FLOP/s of the "
         "devices of all ranks in the dtype of computation (Chowdhery et al. "
         "2022, appendix B)";
}

Ps inspect_step(const Inspection *in) {
  return in->priced->price.classes[in->priced->shown].step;
}

double inspect_share(Ps part, Ps of) {
  return of > 0 ? (double)part / (double)of : 0;
}

const char *inspect_ms(Arena *arena, Ps time) {
  return arena_printf(arena, "%.3f ms%s", (double)time * 1e-9,
                      time >= SIM_LONGEST ? " or more" : "");
}

bool inspect_rates(Inspection *out) {
  const Priced *p = out->priced;
  const Model *model = p->c->model;
  const Graph *trained = driver_run_passes(p->c, ENTRY_train, model->train,
                                           pass_phase(PASSES_precision));
  if (!trained) return false;
  out->flops = graph_model_flops(trained, p->c->module->arena);
  for (int i = 0; i < p->price.n_classes; i++) {
    const PriceClass *class = &p->price.classes[i];
    out->peak_flops +=
        class->ranks * class->model->rates.flops[model->precision.compute];
  }
  double seconds = (double)p->price.step * 1e-12;
  if (seconds > 0 && out->peak_flops > 0)
    out->mfu = out->flops / (seconds * out->peak_flops);
  out->samples = model->settings.batch;
  out->items = out->samples * model->items_per_sample;
  out->has_tokens = model->items_are_tokens;
  return true;
}

/* ---- memory by kind ---- */

/* The rest of the arena of training is alignment, and holes between values. */
static void add_kinds(Arena *arena, Inspection *out) {
  const Priced *p = out->priced;
  Bytes bytes[N_ROLES] = {0};
  const PricedProgram *program = priced_program(p, p->shown);
  const PersistentBuffers *persistent = &program->program->persistent;
  for (int i = 0; i < persistent->buffers.n; i++)
    if (persistent->buffers.data[i].offset < HOST_ORIGIN)
      bytes[persistent->buffers.data[i].role] +=
          persistent->buffers.data[i].bytes;
  for (int role = 0; role < N_ROLES; role++)
    if (bytes[role] > 0)
      vec_push(arena, &out->kinds,
               (KindRow){role_name((Role)role), "stays from step to step",
                         bytes[role], bytes[role], true});
  for (int k = 0; k < N_PEAK_KINDS; k++)
    if (out->peak.most[k] > 0)
      vec_push(arena, &out->kinds,
               (KindRow){peak_kind_name((PeakKind)k),
                         peak_kind_words((PeakKind)k), out->peak.bytes[k],
                         out->peak.most[k], false});
  out->others = program->peak - p->stage->assignment->arena_bytes;
  out->holes = program->peak - out->others;
  for (int i = 0; i < out->kinds.n; i++)
    out->holes -= out->kinds.data[i].at_peak;
}

/* ---- sharding ---- */

static void count_name(Arena *arena, Inspection *out, const Dim *dim) {
  Name name = written_dim(out->priced->c->module->names, dim->name);
  for (int i = 0; i < out->names.n; i++) {
    NameRow *row = &out->names.data[i];
    if (row->dim != name || row->axes != dim->split) continue;
    row->n_values++;
    return;
  }
  vec_push(arena, &out->names, (NameRow){name, dim->split, 1});
}

static int compare_names(const void *a, const void *b) {
  const NameRow *x = a, *y = b;
  if (x->dim != y->dim) return strcmp(x->dim, y->dim);
  return x->n_values < y->n_values ? 1
         : x->n_values > y->n_values
             ? -1
             : (x->axes > y->axes) - (x->axes < y->axes);
}

/* Names that are sharded nowhere tell nothing; the others are listed in full:
 * where a name is replicated, too. */
static void keep_sharded_names(Inspection *out) {
  int kept = 0;
  for (int i = 0; i < out->names.n; i++) {
    bool is_sharded = false;
    for (int k = 0; k < out->names.n; k++)
      is_sharded |= out->names.data[k].dim == out->names.data[i].dim &&
                    out->names.data[k].axes != 0;
    if (is_sharded) out->names.data[kept++] = out->names.data[i];
  }
  out->names.n = kept;
}

/* A fused kernel stores its results alone. */
static void add_names(Arena *arena, Inspection *out) {
  const Graph *graph = out->priced->stage->graph;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int r = 0; r < node->n_results; r++)
      for (int d = 0; d < node->types[r]->rank; d++)
        count_name(arena, out, &node->types[r]->dims[d]);
  }
  keep_sharded_names(out);
  if (out->names.n > 1)
    qsort(out->names.data, (size_t)out->names.n, sizeof *out->names.data,
          compare_names);
}

static void widen(PathRow *row, const PathRow *by) {
  row->n_paths++;
  for (int i = 0; i < by->n_indices; i++) {
    if (by->least[i] < row->least[i]) row->least[i] = by->least[i];
    if (by->most[i] > row->most[i]) row->most[i] = by->most[i];
  }
}

static void add_parameter(Arena *arena, Inspection *out, Map *rows,
                          const GraphInput *input) {
  const Graph *graph = out->priced->stage->graph;
  const Type *type = graph_type(graph, input->value);
  PathRow fold = paths_fold(out->priced->c->module->names, arena, input->path);
  intptr_t at = (intptr_t)map_get(rows, fold.key);
  if (at && type_equal(out->parameters.data[at - 1].type, type)) {
    widen(&out->parameters.data[at - 1].paths, &fold);
    return;
  }
  Bytes bytes =
      type_local_elements(type, &graph->mesh) * dtype_size_bytes(type->dtype);
  vec_push(arena, &out->parameters, (ParameterRow){fold, type, bytes});
  map_put(rows, fold.key, (void *)(intptr_t)out->parameters.n);
}

static void add_parameters(Arena *arena, Inspection *out) {
  const Graph *graph = out->priced->stage->graph;
  Map *rows = map_create(arena);
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == ROLE_param)
      add_parameter(arena, out, rows, &graph->inputs.data[i]);
}

/* ---- calls ---- */

/* All classes together have so many columns. */
static void add_calls(Arena *arena, Inspection *out) {
  enum { COLUMNS = 4800, MOST = 600 };
  const Priced *p = out->priced;
  int n = p->step->edges.n > 0 ? p->n_classes : 0;
  int columns = n > 0 && COLUMNS / n < MOST ? COLUMNS / n : MOST;
  out->n_calls = n;
  out->calls = ARENA_ARRAY(arena, CallBars, n + 1);
  for (int c = 0; c < n; c++)
    out->calls[c] = call_bars(arena, p, c, p->price.step / (columns + 1));
}

/* ---- public ---- */

Inspection inspect_memory(Arena *arena, const Priced *p) {
  Inspection out = {.priced = p};
  out.peak = memory_peak(p->stage->graph, p->stage->assignment,
                         &p->c->target.backend->target);
  add_kinds(arena, &out);
  return out;
}

int inspect(Tool *tool, const Priced *p, Inspection *out) {
  Arena *arena = tool->arena;
  *out = inspect_memory(arena, p);
  out->plan = tool->options.plan;
  if (!inspect_rates(out)) return EXIT_user;
  out->paths = paths_of(arena, p, true);
  paths_sort(&out->paths);
  out->single = paths_of(arena, p, false);
  add_names(arena, out);
  add_parameters(arena, out);
  out->timelines = timelines_of(arena, p, &out->n_timelines);
  add_calls(arena, out);
  out->moments = memory_over_time(arena, p, &out->n_moments);
  out->lines = plan_lines_of(tool, p);
  return EXIT_done;
}
