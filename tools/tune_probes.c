/*
 * tune_probes.c -- lists plans whose kernels are worth measuring.
 *
 * A rank's kernels have the sizes of the model with some dims in shards.  So
 * there is a probe for the batch dim, and one for each dim of a parameter that
 * the ranks divide, those first that shard the most parameters.  Micro-batches
 * give smaller batches, and so sizes for more ranks than this machine has.  No
 * probe looks at what a model is: the dims are those of its tensors.
 */
#include "tools/tune.h"

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

static void add_probe(Arena *arena, Probes *probes, int ranks, Name dim,
                      int microbatches, int zero) {
  Text text = text_create(arena), what = text_create(arena);
  text_printf(&text, "mesh {\n  ranks = %d\n}\n\nplan {\n", ranks);
  if (zero) text_printf(&text, "  zero = %d\n", zero);
  if (microbatches > 1)
    text_printf(&text, "  microbatches = %d\n", microbatches);
  if (dim) text_printf(&text, "  shard %s over ranks\n", dim);
  text_add(&text, "}\n");
  text_printf(&what, "%d rank%s", ranks, ranks == 1 ? "" : "s");
  if (ranks > 1 && dim) text_printf(&what, ", %s in shards", dim);
  if (zero) text_printf(&what, ", ZeRO %d", zero);
  if (microbatches > 1) text_printf(&what, ", %d micro-batches", microbatches);
  vec_push(arena, probes,
           (Probe){text_string(&what), text_string(&text), ranks});
}

Probes tune_probes(Tuning *tuning, int ranks) {
  enum { MOST_DIMS = 8 };
  Arena *arena = tuning->arena;
  const Model *model = tuning->model->model;
  Name batch = model->settings.batch_dim;
  Probes probes = {0};
  add_probe(arena, &probes, ranks, ranks > 1 ? batch : NULL, 1, 0);
  if (batch) add_probe(arena, &probes, ranks, ranks > 1 ? batch : NULL, 2, 0);
  if (ranks == 1) {
    if (batch) add_probe(arena, &probes, ranks, NULL, 4, 0);
    return probes;
  }
  SharedDims dims = parameter_dims(arena, model->train);
  for (int i = 0, n = 0; i < dims.n && n < MOST_DIMS; i++) {
    const SharedDim *dim = &dims.data[i];
    if (dim->name == batch || dim->size % ranks || dim->size < 2 * ranks)
      continue;
    add_probe(arena, &probes, ranks, dim->name, 1, 0);
    n++;
  }
  if (batch) add_probe(arena, &probes, ranks, NULL, 2, 3);
  if (batch) add_probe(arena, &probes, ranks, batch, 4, 0);
  return probes;
}
