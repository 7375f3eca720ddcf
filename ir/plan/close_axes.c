/*
 * close_axes.c -- finds the sizes of the axes of a mesh.
 *
 *     mesh { data = auto; tensor = 2 }     on 8 ranks: data 4, tensor 2
 */
#include "ir/plan/pins.h"

/* One axis may be left to what the others leave. */
static bool close_auto(Module *module, PinAxis *axes, int n, int64_t product,
                       int64_t ranks) {
  PinAxis *open = NULL;
  const char *why = NULL;
  for (int i = 0; i < n; i++) {
    if (axes[i].size) continue;
    if (open) why = "only one axis can be, as long as nothing is searched";
    open = &axes[i];
  }
  if (!open) return true;
  if (!why && !ranks) why = "the number of ranks is not given";
  if (!why && ranks % product != 0)
    why = arena_printf(module->arena,
                       "the other axes, %lld together, do not divide %lld "
                       "ranks",
                       (long long)product, (long long)ranks);
  if (why) {
    Diag *d = diag(module->diags, DIAG_mesh_auto, open->span, open->name, why);
    diag_help(d, "give it a number, or the number of ranks with --ranks N");
    return false;
  }
  open->size = ranks / product;
  return true;
}

/* The product of the sizes that are known, INT64_MAX if there is none. */
static int64_t known_ranks(const PinAxis *axes, int n) {
  int64_t product = 1;
  for (int i = 0; i < n; i++)
    if (axes[i].size && __builtin_mul_overflow(product, axes[i].size, &product))
      product = INT64_MAX;
  return product;
}

static bool count_ranks(Module *module, const PinAxis *axes, int n,
                        int64_t *out) {
  *out = 1;
  for (int i = 0; i < n; i++)
    if (__builtin_mul_overflow(*out, axes[i].size, out) || *out > INT32_MAX) {
      diag(module->diags, DIAG_wrong_setting, axes[i].span, axes[i].name,
           "small enough for the ranks to be counted", "so large");
      return false;
    }
  return true;
}

bool pins_close_axes(Module *module, const Pins *pins, int64_t ranks,
                     Mesh *out) {
  PinAxis axes[MAX_AXES];
  int64_t product;
  int n = 0;
  ASSERT(pins->axes.n <= MAX_AXES);
  for (int i = 0; i < pins->axes.n; i++) {
    const PinAxis *axis = &pins->axes.data[i];
    bool is_pipe = pins_have_stages(pins) && axis_is_pipe(axis->name);
    if (!is_pipe && !axis->is_of_stages) axes[n++] = *axis;
  }
  if (!close_auto(module, axes, n, known_ranks(axes, n), ranks) ||
      !count_ranks(module, axes, n, &product))
    return false;
  *out = (Mesh){0};
  for (int i = 0; i < n; i++)
    if (axes[i].size > 1)
      out->axes[out->n_axes++] =
          (MeshAxis){axes[i].name, (int32_t)axes[i].size, false};
  return true;
}
