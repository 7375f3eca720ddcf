/*
 * kernel_set.c -- collects the kernels of a program, so that equal nodes share
 * one that is lowered and emitted once.
 */
#include "codegen/select.h"

/* The kernel of all nests that have one text but for their sizes. */
typedef struct SizedKernel {
  int kernel;
  Name nest; /* the first one's */
} SizedKernel;

KernelSet *kernel_set_create(Module *module, const Backend *backend) {
  KernelSet *set = ARENA_NEW(module->arena, KernelSet);
  set->module = module;
  set->backend = backend;
  set->by_name = map_create(module->arena);
  set->kinds = map_create(module->arena);
  set->sized = map_create(module->arena);
  return set;
}

static int kernel_set_add(KernelSet *set, KernelText text) {
  vec_push(set->module->arena, &set->kernels, text);
  map_put(set->by_name, text.name, (void *)(uintptr_t)set->kernels.n);
  return set->kernels.n - 1;
}

int kernel_set_nest(KernelSet *set, const Nest *nest) {
  if (!nest) return -1;
  int found = (int)(uintptr_t)map_get(set->by_name, nest->name);
  if (found) return found - 1;
  KernelText text = {0};
  set->backend->emit_nest(set->backend, set->module, nest, &text);
  return kernel_set_add(set, text);
}

/* A kernel that can take its sizes has them as constants until another nest has
 * the same text; its launches give them in any case. */
static int add_sized_nest(KernelSet *set, const Nest *nest, KernelKind *kind) {
  const Backend *backend = set->backend;
  KernelText sized = {0};
  if (!nest || !backend->emit_sized_nest ||
      !backend->emit_sized_nest(backend, set->module, nest, &sized))
    return kernel_set_nest(set, nest);
  kind->sizes = sized.sizes;
  kind->n_sizes = sized.n_sizes;
  SizedKernel *known = map_get(set->sized, sized.name);
  if (!known) {
    known = ARENA_NEW(set->module->arena, SizedKernel);
    known->nest = nest->name;
    known->kernel = kernel_set_nest(set, nest);
    map_put(set->sized, sized.name, known);
  } else if (known->nest != nest->name) {
    set->kernels.data[known->kernel] = sized;
  }
  return known->kernel;
}

static int add_override(KernelSet *set, const Graph *graph, int id,
                        NestNumber *out_number) {
  KernelText text = {0};
  if (!set->backend->emit_override ||
      !set->backend->emit_override(set->backend, set->module, graph, id, &text))
    return -1;
  *out_number = text.number;
  int found = (int)(uintptr_t)map_get(set->by_name, text.name);
  return found ? found - 1 : kernel_set_add(set, text);
}

int kernel_set_override(KernelSet *set, const Graph *graph, int id) {
  NestNumber number;
  return add_override(set, graph, id, &number);
}

const KernelKind *kernel_set_kind(KernelSet *set, const Graph *graph, int id) {
  const void *key = (const void *)(uintptr_t)kernel_key(graph, id);
  KernelKind *kind = map_get(set->kinds, key);
  if (kind) return kind;
  kind = ARENA_NEW(set->module->arena, KernelKind);
  kind->kernel = add_override(set, graph, id, &kind->number);
  if (kind->kernel < 0) {
    kind->nest = nest_lower(set->module, graph, id);
    kind->kernel = add_sized_nest(set, kind->nest, kind);
  }
  map_put(set->kinds, key, kind);
  return kind;
}
