/*
 * tune_probes.c -- lists plans whose kernels are worth measuring.
 *
 * A rank's kernels have the sizes of the model with some dims in shards.  So
 * there is a probe for the batch dim, one for each dim of a parameter that the
 * ranks divide, those first that shard the most parameters, and one for each
 * other dim of the data.  Micro-batches give smaller batches, and so sizes for
 * more ranks than this machine has.  No probe looks at what a model is: the
 * dims are those of its tensors.
 *
 * Where plans are held out, nothing may have the largest sizes, those of a
 * whole batch.  A batch twice as large then puts them between two that are
 * measured.
 */
#include "tools/tune/tune.h"

#include <stdlib.h>
#include <string.h>

typedef struct SharedDim {
  Name name;
  int64_t size, elements; /* of the dim; of all parameters that have it */
} SharedDim;
typedef VEC(SharedDim) SharedDims;

static void add_dim(Arena *arena, SharedDims *dims, const Dim *dim,
                    int64_t elements) {
  for (int i = 0; i < dims->n; i++) {
    if (dims->data[i].name != dim->name) continue;
    dims->data[i].elements += elements;
    return;
  }
  vec_push(arena, dims, (SharedDim){dim->name, dim->size, elements});
}

static int by_elements(const void *a, const void *b) {
  const SharedDim *x = a, *y = b;
  if (x->elements != y->elements) return x->elements > y->elements ? -1 : 1;
  return strcmp(x->name, y->name);
}

static SharedDims parameter_dims(Arena *arena, const Graph *graph) {
  SharedDims dims = {0};
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (input->role != ROLE_param) continue;
    const Type *type = graph_type(graph, input->value);
    for (int d = 0; d < type->rank; d++)
      add_dim(arena, &dims, &type->dims[d], type_elements(type));
  }
  if (dims.n > 0)
    qsort(dims.data, (size_t)dims.n, sizeof *dims.data, by_elements);
  return dims;
}

/* `sharded`: "B", "image.x: Y" or NULL. */
static void add_probe(Arena *arena, Probes *probes, int ranks,
                      const char *sharded, int microbatches, int zero) {
  Text text = text_create(arena), what = text_create(arena);
  text_printf(&text, "mesh {\n  ranks = %d\n}\n\nplan {\n", ranks);
  if (zero) text_printf(&text, "  zero = %d\n", zero);
  if (microbatches > 1)
    text_printf(&text, "  microbatches = %d\n", microbatches);
  if (sharded) text_printf(&text, "  shard %s over ranks\n", sharded);
  text_add(&text, "}\n");
  text_printf(&what, "%d rank%s", ranks, ranks == 1 ? "" : "s");
  if (ranks > 1 && sharded) text_printf(&what, ", %s in shards", sharded);
  if (zero) text_printf(&what, ", ZeRO %d", zero);
  if (microbatches > 1) text_printf(&what, ", %d micro-batches", microbatches);
  vec_push(arena, probes,
           (Probe){.what = text_string(&what),
                   .text = text_string(&text),
                   .ranks = ranks});
}

/* 0: no input has it. */
static int64_t input_dim_size(const Graph *graph, Name name) {
  for (int i = 0; i < graph->inputs.n; i++) {
    const Type *type = graph_type(graph, graph->inputs.data[i].value);
    for (int d = 0; d < type->rank; d++)
      if (type->dims[d].name == name) return type->dims[d].size;
  }
  return 0;
}

/* 0: no dim is that of the batch. */
static int64_t batch_size(const Tuning *tuning) {
  const Model *model = tuning->model->model;
  Name batch = model->settings.batch_dim;
  return batch ? input_dim_size(model->train, batch) : 0;
}

bool tune_smaller_batch(Tuning *tuning, const Probe *probe, Probe *out) {
  enum { TIMES = 64 };
  Arena *arena = tuning->arena;
  Name batch = tuning->model->model->settings.batch_dim;
  int64_t whole = batch_size(tuning), size = whole / TIMES;
  if (whole < 2) return false;
  if (size == 0) size = 1;
  *out = *probe;
  out->what =
      arena_printf(arena, "%s, %s = %lld", probe->what, batch, (long long)size);
  out->override = arena_printf(arena, "%s=%lld", batch, (long long)size);
  return true;
}

/* The first probe again. */
static void add_larger_batch(Tuning *tuning, Probes *probes) {
  Name batch = tuning->model->model->settings.batch_dim;
  int64_t size = batch_size(tuning);
  if (size == 0) return;
  Probe probe = probes->data[0];
  probe.what =
      arena_printf(tuning->arena, "%s, %s twice as large", probe.what, batch);
  probe.override =
      arena_printf(tuning->arena, "%s=%lld", batch, (long long)(2 * size));
  vec_push(tuning->arena, probes, probe);
}

enum { MOST_DIMS = 8 }; /* of the parameters; of the data */

static bool is_probed(const Dim *dim, Name batch, int ranks) {
  return dim->name != batch && dim->size % ranks == 0 && dim->size >= 2 * ranks;
}

/* Adds those that are probed to `seen`. */
static void add_parameter_dims(Tuning *tuning, Probes *probes, int ranks,
                               SharedDims *seen) {
  const Model *model = tuning->model->model;
  SharedDims dims = parameter_dims(tuning->arena, model->train);
  for (int i = 0; i < dims.n && seen->n < MOST_DIMS; i++) {
    const Dim dim = {dims.data[i].name, dims.data[i].size, 0};
    if (!is_probed(&dim, model->settings.batch_dim, ranks)) continue;
    add_probe(tuning->arena, probes, ranks, dim.name, 1, 0);
    add_dim(tuning->arena, seen, &dim, 0);
  }
}

/* Dims of the data that are not in `seen`, each of the first input that has
 * it. */
static void add_data_dims(Tuning *tuning, Probes *probes, int ranks,
                          SharedDims *seen) {
  const Model *model = tuning->model->model;
  int most = seen->n + MOST_DIMS;
  for (int i = 0; i < model->train->inputs.n; i++) {
    const GraphInput *input = &model->train->inputs.data[i];
    if (input->role != ROLE_data) continue;
    const Type *type = graph_type(model->train, input->value);
    for (int d = 0; d < type->rank && seen->n < most; d++) {
      const Dim *dim = &type->dims[d];
      int n_before = seen->n;
      if (!is_probed(dim, model->settings.batch_dim, ranks)) continue;
      add_dim(tuning->arena, seen, dim, 0);
      if (seen->n > n_before)
        add_probe(tuning->arena, probes, ranks,
                  arena_printf(tuning->arena, "%s: %s", input->path, dim->name),
                  1, 0);
    }
  }
}

Probes tune_probes(Tuning *tuning, int ranks) {
  Arena *arena = tuning->arena;
  const Model *model = tuning->model->model;
  Name batch = model->settings.batch_dim;
  Probes probes = {0};
  add_probe(arena, &probes, ranks, ranks > 1 ? batch : NULL, 1, 0);
  if (batch) add_probe(arena, &probes, ranks, ranks > 1 ? batch : NULL, 2, 0);
  if (tuning->held_out.n > 0) add_larger_batch(tuning, &probes);
  if (ranks == 1) {
    if (batch) add_probe(arena, &probes, ranks, NULL, 4, 0);
    return probes;
  }
  SharedDims seen = {0};
  add_parameter_dims(tuning, &probes, ranks, &seen);
  add_data_dims(tuning, &probes, ranks, &seen);
  if (batch) add_probe(arena, &probes, ranks, NULL, 2, 3);
  if (batch) add_probe(arena, &probes, ranks, batch, 4, 0);
  return probes;
}
