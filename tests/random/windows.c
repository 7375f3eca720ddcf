/*
 * windows.c -- generates statements that slide windows: convolutions in one and
 * two dims, with strides, padding, dilation and groups, pools and upsampling.
 */
#include "tests/random/maker.h"

#include <string.h>

typedef struct Window { /* along one dim */
  Axis dim;             /* before */
  int k, stride, pad, dilate;
} Window;

static Window choose_window(Maker *m, Axis dim) {
  Window w = {.dim = dim, .k = 1 + choose(m->choices, 3)};
  w.stride = 1 + choose(m->choices, 2);
  w.pad = choose(m->choices, w.k);
  w.dilate = 1 + choose(m->choices, 2);
  return w;
}

/* Size after it, or 0 where it does not fit. */
static int size_after(const Window *w) {
  int room = w->dim.size + 2 * w->pad - w->dilate * (w->k - 1) - 1;
  return room < 0 ? 0 : room / w->stride + 1;
}

/* The weights of x: a new dim for the contracted one, groups, windows. */
static bool conv_weights(Maker *m, const Made *x, int c, const Window *windows,
                         int n, Axis to, Made *out) {
  add_dim(out, to);
  add_dim(out, x->dims[c]);
  for (int i = 0; i < x->rank; i++) { /* groups */
    bool is_free = i != c && strcmp(x->dims[i].name, "N") != 0;
    for (int k = 0; k < n; k++)
      is_free = is_free && strcmp(x->dims[i].name, windows[k].dim.name) != 0;
    if (is_free && choose(m->choices, 4) == 3) add_dim(out, x->dims[i]);
  }
  for (int k = 0; k < n; k++)
    if (!add_dim(out, (Axis){windows[k].dim.name, windows[k].k})) return false;
  return true;
}

void make_conv(Maker *m) {
  Made *u = pick_value(m), out = *u, w = {0};
  int c = pick_dim(m, u), y = pick_dim(m, u);
  if (c < 0 || c == y) return;
  Window window = choose_window(m, u->dims[y]);
  int size = size_after(&window);
  if (size == 0) return;
  Axis o = fresh_dim(m, 0), after = fresh_dim(m, size);
  if (!conv_weights(m, u, c, &window, 1, o, &w)) return;
  out.dims[y] = after;
  drop_dim(&out, c);
  if (!add_dim(&out, o) || !fits(&out)) return;
  const char *name = param(m, &w);
  keep(m, out,
       FORMAT(m,
              "conv(%s, %s, %s, %s, stride = %d, pad = %d, dilate = %d)"
              "[%s -> %s]",
              u->name, name, u->dims[c].name, u->dims[y].name, window.stride,
              window.pad, window.dilate, u->dims[y].name, after.name));
}

void make_conv2(Maker *m) {
  Made *u = pick_value(m), out = *u, w = {0};
  int c = pick_dim(m, u), at[2];
  for (int i = 0; i < 2; i++) at[i] = pick_dim(m, u);
  if (c < 0 || c == at[0] || c == at[1] || at[0] == at[1]) return;
  Window windows[2];
  Axis o = fresh_dim(m, 0), after[2];
  for (int i = 0; i < 2; i++) {
    windows[i] = choose_window(m, u->dims[at[i]]);
    int size = size_after(&windows[i]);
    if (size == 0) return;
    out.dims[at[i]] = after[i] = fresh_dim(m, size);
  }
  if (!conv_weights(m, u, c, windows, 2, o, &w)) return;
  drop_dim(&out, c);
  if (!add_dim(&out, o) || !fits(&out)) return;
  const char *name = param(m, &w);
  const char *y = windows[0].dim.name, *x = windows[1].dim.name;
  keep(m, out,
       FORMAT(m,
              "conv(%s, %s, %s, (%s, %s), stride = [%d, %d], pad = [%d, %d], "
              "dilate = [%d, %d])[%s -> %s][%s -> %s]",
              u->name, name, u->dims[c].name, y, x, windows[0].stride,
              windows[1].stride, windows[0].pad, windows[1].pad,
              windows[0].dilate, windows[1].dilate, y, after[0].name, x,
              after[1].name));
}

void make_conv_transpose(Maker *m) {
  Made *u = pick_value(m), out = *u, w = {0};
  int c = pick_dim(m, u), y = pick_dim(m, u);
  if (c < 0 || c == y) return;
  Window window = choose_window(m, u->dims[y]);
  int size = (window.dim.size - 1) * window.stride - 2 * window.pad + window.k;
  if (size < 1) return;
  Axis o = fresh_dim(m, 0), after = fresh_dim(m, size);
  if (!conv_weights(m, u, c, &window, 1, o, &w)) return;
  out.dims[y] = after;
  drop_dim(&out, c);
  if (!add_dim(&out, o) || !fits(&out)) return;
  const char *name = param(m, &w);
  keep(m, out,
       FORMAT(m,
              "conv_transpose(%s, %s, %s, %s, stride = %d, pad = %d)"
              "[%s -> %s]",
              u->name, name, u->dims[c].name, u->dims[y].name, window.stride,
              window.pad, u->dims[y].name, after.name));
}

void make_pool(Maker *m) {
  static const char *const kinds[] = {"maxpool", "avgpool"};
  Made *u = pick_value(m), out = *u;
  int y = pick_dim(m, u);
  if (y < 0) return;
  const char *name = u->dims[y].name;
  const char *kind = kinds[choose(m->choices, 2)];
  Window w = {.dim = u->dims[y], .k = 2 + choose(m->choices, 2), .dilate = 1};
  w.stride = 1 + choose(m->choices, 3);
  w.pad = choose(m->choices, w.k / 2 + 1);
  bool is_real = kind[0] == 'a' && choose(m->choices, 2);
  int size = size_after(&w);
  if (size == 0) return;
  out.dims[y] = fresh_dim(m, size);
  keep(m, out,
       FORMAT(m, "%s(%s, %s, %d, stride = %d, pad = %d%s)[%s -> %s]", kind,
              u->name, name, w.k, w.stride, w.pad,
              is_real ? ", count_pad = false" : "", name, out.dims[y].name));
}

void make_resize(Maker *m) {
  Made *u = pick_value(m), out = *u;
  int y = pick_dim(m, u), kind = choose(m->choices, 3);
  static const char *const modes[] = {"nearest", "linear", "cubic"};
  if (y < 0) return;
  const char *name = u->dims[y].name;
  if (kind == 0) {
    int size = 1 + choose(m->choices, u->dims[y].size + 1);
    out.dims[y] = fresh_dim(m, size);
    keep(m, out,
         FORMAT(m, "adaptive_avgpool(%s, %s, %d)[%s -> %s]", u->name, name,
                size, name, out.dims[y].name));
    return;
  }
  bool is_factor = kind == 1;
  int n = is_factor ? 2 + choose(m->choices, 2) : 1 + choose(m->choices, 12);
  const char *mode = modes[choose(m->choices, 3)];
  out.dims[y] = fresh_dim(m, is_factor ? n * u->dims[y].size : n);
  if (!fits(&out)) return;
  keep(m, out,
       FORMAT(m, "%s(%s, %s, %d, mode = \"%s\")[%s -> %s]",
              is_factor ? "upsample" : "resize", u->name, name, n, mode, name,
              out.dims[y].name));
}
