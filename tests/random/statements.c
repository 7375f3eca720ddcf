/*
 * statements.c -- generates one statement of a body: takes values in scope and
 * makes a new one, or nothing if the values do not suit.
 */
#include "tests/random/maker.h"

#include <string.h>

/* ---- pointwise ---- */

static void make_unary(Maker *m) {
  static const char *const forms[] = {"tanh(%s)",
                                      "sigmoid(%s)",
                                      "relu(%s)",
                                      "gelu(%s)",
                                      "silu(%s)",
                                      "softplus(%s)",
                                      "gelu_tanh(%s)",
                                      "sin(%s)",
                                      "cos(%s)",
                                      "erf(%s)",
                                      "-%s",
                                      "abs(%s)",
                                      "exp(-abs(%s))",
                                      "log(1.5 + tanh(%s))",
                                      "sqrt(abs(%s) + 0.5)",
                                      "rsqrt(2 + sin(%s))",
                                      "elu(%s)",
                                      "elu(%s, 0.7)",
                                      "leaky_relu(%s, slope = 0.1)",
                                      "hardswish(%s)",
                                      "hardsigmoid(%s)",
                                      "mish(%s)",
                                      "logsigmoid(%s)",
                                      "expm1(tanh(%s))",
                                      "log1p(abs(%s))",
                                      "exp2(-abs(%s))",
                                      "log2(1.5 + tanh(%s))",
                                      "tan(tanh(%s))",
                                      "1 - %s",
                                      "%s * 0.5"};
  Made *u = pick_value(m);
  const char *form = forms[choose(m->choices, ARRAY_LENGTH(forms))];
  const char *mark = strstr(form, "%s");
  keep(m, *u,
       FORMAT(m, "%.*s%s%s", (int)(mark - form), form, u->name, mark + 2));
}

static bool join(Made *out, const Made *v) {
  for (int i = 0; i < v->rank; i++)
    if (find_dim(out, v->dims[i].name) < 0 && !add_dim(out, v->dims[i]))
      return false;
  return fits(out);
}

static void make_binary(Maker *m) {
  static const struct {
    const char *before, *between, *after;
  } forms[] = {{"", " + ", ""},
               {"", " - ", ""},
               {"", " * tanh(", ")"},
               {"maximum(", ", ", ")"},
               {"minimum(", ", ", ")"},
               {"", " / (1.5 + tanh(", "))"},
               {"atan2(", ", 1.5 + tanh(", "))"},
               {"pow(abs(", ") + 0.5, sin(", "))"}};
  Made *u = pick_value(m), *v = pick_value(m), out = *u;
  int form = choose(m->choices, ARRAY_LENGTH(forms));
  if (!join(&out, v)) return;
  keep(m, out,
       FORMAT(m, "%s%s%s%s%s", forms[form].before, u->name, forms[form].between,
              v->name, forms[form].after));
}

/* A recurrence along a dim: what is outside is its slice inside. */
static void make_scan(Maker *m) {
  Made *u = pick_value(m), carry = *u, w = {0};
  int t = pick_dim(m, u), c = pick_dim(m, u);
  if (t < 0 || t == c) return;
  Axis time = u->dims[t], state = u->dims[c], again = fresh_dim(m, state.size);
  drop_dim(&carry, t);
  add_dim(&w, again);
  add_dim(&w, state);
  const char *weights = param(m, &w), *v = fresh_name(m, "v");
  const char *h = fresh_name(m, "h");
  line(m, "%s = scan %s (%s: %s = 0) {", v, time.name, h, type_text(m, &carry));
  line(m, "  %s = tanh(%s + dot(%s[%s -> %s], %s, %s))", h, u->name, h,
       state.name, again.name, weights, again.name);
  line(m, "  return %s", h);
  line(m, "}");
  Made out = *u;
  keep(m, out, FORMAT(m, "%s + 0.5 * %s", u->name, v));
}

static void make_along(Maker *m) {
  static const char *const forms[] = {"cumsum(%s, %s)", "reverse(%s, %s)",
                                      "cumsum(%s, %s, exclusive = true)"};
  Made *u = pick_value(m);
  int at = pick_dim(m, u);
  const char *form = forms[choose(m->choices, ARRAY_LENGTH(forms))];
  if (at < 0) return;
  const char *first = strstr(form, "%s"), *second = strstr(first + 1, "%s");
  keep(m, *u,
       FORMAT(m, "tanh(%.*s%s, %s%s)", (int)(first - form), form, u->name,
              u->dims[at].name, second + 2));
}

static void make_topk(Maker *m) {
  Made *u = pick_value(m), out = *u;
  int at = pick_dim(m, u);
  if (at < 0) return;
  Axis some = fresh_dim(m, 1 + choose(m->choices, u->dims[at].size));
  const char *name = u->dims[at].name, *v = fresh_name(m, "v");
  line(m, "%s, %s_at = topk(%s, %d, %s, %s)", v, v, u->name, some.size, name,
       some.name);
  drop_dim(&out, at);
  add_dim(&out, some);
  keep(m, out, FORMAT(m, "%s * tanh(%s_at * 0.5)", v, v));
}

static void make_select(Maker *m) {
  Made *u = pick_value(m), *v = pick_value(m), out = *u;
  if (!join(&out, v)) return;
  keep(m, out,
       FORMAT(m, "select(%s > %s, %s, 0.3 * %s)", u->name, v->name, u->name,
              v->name));
}

/* ---- with parameters ---- */

static void make_scale(Maker *m) {
  Made *u = pick_value(m), w = {0};
  for (int i = 0; i < u->rank; i++)
    if (strcmp(u->dims[i].name, "N") && choose(m->choices, 2))
      add_dim(&w, u->dims[i]);
  bool adds = choose(m->choices, 2);
  const char *name = param(m, &w);
  keep(m, *u, FORMAT(m, "%s %c %s", u->name, adds ? '+' : '*', name));
}

static void make_linear(Maker *m) {
  Made *u = pick_value(m), out = *u;
  int at = pick_dim(m, u);
  if (at < 0) return;
  Axis from = u->dims[at], to = m->file_dims[1 + choose(m->choices, 3)];
  bool is_known = false;
  for (int i = 1; i < 4; i++)
    is_known |= !strcmp(m->file_dims[i].name, from.name);
  if (!is_known || (find_dim(u, to.name) >= 0 && strcmp(to.name, from.name)))
    return;
  drop_dim(&out, at);
  if (!add_dim(&out, to) || !fits(&out)) return;
  keep(m, out, FORMAT(m, "linear[%s -> %s](%s)", from.name, to.name, u->name));
}

/* A product with one or two new parameters. */
static void make_product(Maker *m) {
  Made *u = pick_value(m), out = *u, w = {0};
  int at = pick_dim(m, u);
  if (at < 0) return;
  Axis over = u->dims[at], to = fresh_dim(m, 0);
  add_dim(&w, over);
  for (int i = 0; i < u->rank; i++)
    if (i != at && strcmp(u->dims[i].name, "N") && !choose(m->choices, 4))
      add_dim(&w, u->dims[i]);
  drop_dim(&out, at);
  if (!add_dim(&w, to) || !add_dim(&out, to) || !fits(&out)) return;
  const char *name = param(m, &w);
  if (choose(m->choices, 3) == 0) {
    keep(m, out, FORMAT(m, "dot(%s, %s, %s)", u->name, name, over.name));
    return;
  }
  const char *second = param(m, &w), *a = fresh_name(m, "v");
  line(m, "%s, %s_2 = dot(%s, [%s, %s], %s)", a, a, u->name, name, second,
       over.name);
  keep(m, out, FORMAT(m, "%s * sigmoid(%s_2)", a, a));
}

static void make_dot(Maker *m) {
  Made *u = pick_value(m), *v = pick_value(m), out = *u;
  int at = pick_dim(m, u);
  if (at < 0 || find_dim(v, u->dims[at].name) < 0) return;
  const char *over = u->dims[at].name;
  int size = u->dims[at].size;
  if (!join(&out, v)) return;
  drop_dim(&out, find_dim(&out, over));
  keep(m, out, FORMAT(m, "dot(%s, %s, %s) / %d", u->name, v->name, over, size));
}

/* ---- rows and reductions ---- */

static void make_rows(Maker *m) {
  static const char *const forms[] = {
      "softmax(%s, %s)", "layernorm(%s, %s, eps = 0.1)",
      "rmsnorm(%s, %s, eps = 0.1)", "log_softmax(%s, %s)"};
  Made *u = pick_value(m);
  int at = pick_dim(m, u);
  if (at < 0) return;
  bool is_pair = at + 1 < u->rank && choose(m->choices, 4) == 3;
  const char *form = forms[choose(m->choices, ARRAY_LENGTH(forms))];
  const char *dims = dims_text(m, u->dims + at, is_pair ? 2 : 1);
  const char *first = strstr(form, "%s"), *second = strstr(first + 1, "%s");
  if (is_pair && !strcmp(u->dims[at + 1].name, "N")) return;
  keep(m, *u,
       FORMAT(m, "%.*s%s%.*s%s%s", (int)(first - form), form, u->name,
              (int)(second - first - 2), first + 2, dims, second + 2));
}

static void make_norm_layer(Maker *m) {
  Made *u = pick_value(m);
  int at = pick_dim(m, u);
  if (at < 0) return;
  for (int i = 1; i < 4; i++)
    if (!strcmp(m->file_dims[i].name, u->dims[at].name)) {
      keep(m, *u, FORMAT(m, "norm[%s](%s)", u->dims[at].name, u->name));
      return;
    }
}

static void make_reduce(Maker *m) {
  static const char *const forms[] = {
      "mean(%s, %s)",  "sum(%s, %s)",       "max(%s, %s)",
      "min(%s, %s)",   "logsumexp(%s, %s)", "var(%s, %s, correction = 0)",
      "l2norm(%s, %s)"};
  Made *u = pick_value(m), out = *u;
  int at = pick_dim(m, u);
  if (at < 0) return;
  const char *over = u->dims[at].name;
  const char *form = forms[choose(m->choices, ARRAY_LENGTH(forms))];
  const char *x = strstr(form, "%s"), *dim = strstr(x + 2, "%s");
  drop_dim(&out, at);
  keep(
      m, out,
      FORMAT(m, "%.*s%s, %s%s", (int)(x - form), form, u->name, over, dim + 2));
}

/* Over the batch: what a rank or a micro-batch cannot do alone. */
static void make_batch_mean(Maker *m) {
  Made *u = pick_value(m), out = *u;
  int at = find_dim(u, "N");
  if (at < 0 || choose(m->choices, 3)) return;
  drop_dim(&out, at);
  keep(m, out, FORMAT(m, "mean(%s, N)", u->name));
}

/* ---- moving ---- */

static void make_rename(Maker *m) {
  Made *u = pick_value(m), out = *u;
  int at = pick_dim(m, u);
  if (at < 0) return;
  out.dims[at] = fresh_dim(m, u->dims[at].size);
  keep(m, out,
       FORMAT(m, "%s[%s -> %s]", u->name, u->dims[at].name, out.dims[at].name));
}

static void make_split_dim(Maker *m) {
  Made *u = pick_value(m), out = *u;
  int at = pick_dim(m, u);
  if (at < 0 || u->rank >= MOST_DIMS) return;
  int size = u->dims[at].size, part = 2;
  while (part <= size && size % part) part++;
  if (part > size || part == size) return;
  const char *whole = u->dims[at].name, *kept = fresh_name(m, "v");
  Axis outer = fresh_dim(m, size / part), inner = fresh_dim(m, part);
  line(m, "%s = split(%s, %s, %d)", kept, u->name, whole, size / part);
  out.dims[at] = inner;
  for (int i = out.rank++; i > 0; i--) out.dims[i] = out.dims[i - 1];
  out.dims[0] = outer;
  keep(m, out,
       FORMAT(m, "stack(%s, %s)[%s -> %s]", kept, outer.name, whole,
              inner.name));
}

/* Into a dim of the file and what is left. */
static void make_factor(Maker *m) {
  Made *u = pick_value(m), out = *u;
  int at = pick_dim(m, u);
  Axis outer = m->file_dims[1 + choose(m->choices, 3)];
  if (at < 0 || u->rank >= MOST_DIMS || find_dim(u, outer.name) >= 0 ||
      u->dims[at].size % outer.size)
    return;
  Axis inner = fresh_dim(m, u->dims[at].size / outer.size);
  out.dims[at] = outer;
  add_dim(&out, inner);
  keep(m, out,
       FORMAT(m, "%s[%s -> (%s, %s)]", u->name, u->dims[at].name, outer.name,
              inner.name));
}

static void make_merge(Maker *m) {
  Made *u = pick_value(m), out = {0};
  int a = pick_dim(m, u), b = pick_dim(m, u);
  if (a < 0 || a == b) return;
  Axis whole = fresh_dim(m, u->dims[a].size * u->dims[b].size);
  for (int i = 0; i < u->rank; i++)
    if (i != a && i != b) add_dim(&out, u->dims[i]);
  add_dim(&out, whole);
  keep(m, out,
       FORMAT(m, "%s[(%s, %s) -> %s]", u->name, u->dims[a].name,
              u->dims[b].name, whole.name));
}

static void make_slice(Maker *m) {
  Made *u = pick_value(m), out = *u;
  int at = pick_dim(m, u);
  if (at < 0) return;
  const char *name = u->dims[at].name;
  int size = u->dims[at].size, first = choose(m->choices, size);
  int last = first + choose(m->choices, size - first);
  if (choose(m->choices, 3) == 2) {
    drop_dim(&out, at);
    keep(m, out, FORMAT(m, "%s[%s = %d]", u->name, name, first));
    return;
  }
  out.dims[at] = fresh_dim(m, last - first + 1);
  keep(m, out,
       FORMAT(m, "%s[%s = %d..%d][%s -> %s]", u->name, name, first, last, name,
              out.dims[at].name));
}

static void make_pad(Maker *m) {
  Made *u = pick_value(m), out = *u;
  int at = pick_dim(m, u);
  if (at < 0) return;
  const char *name = u->dims[at].name;
  int before = choose(m->choices, 3), after = choose(m->choices, 3);
  if (choose(m->choices, 2)) {
    keep(m, *u, FORMAT(m, "shift(%s, %s, %d)", u->name, name, before - after));
    return;
  }
  out.dims[at] = fresh_dim(m, u->dims[at].size + before + after);
  if (!fits(&out)) return;
  keep(m, out,
       FORMAT(m, "pad(%s, %s, %d, %d, value = 0.5)[%s -> %s]", u->name, name,
              before, after, name, out.dims[at].name));
}

static void make_concat(Maker *m) {
  Made *u = pick_value(m), out = *u;
  int at = pick_dim(m, u);
  if (at < 0) return;
  const char *name = u->dims[at].name;
  out.dims[at] = fresh_dim(m, 2 * u->dims[at].size);
  if (!fits(&out)) return;
  keep(m, out,
       FORMAT(m, "concat([%s, tanh(%s)], %s)[%s -> %s]", u->name, u->name, name,
              name, out.dims[at].name));
}

static void make_unstack(Maker *m) {
  Made *u = pick_value(m), out = *u;
  int at = pick_dim(m, u);
  if (at < 0 || u->dims[at].size != 3) return;
  const char *a = fresh_name(m, "v");
  line(m, "%s, %s_2, %s_3 = unstack(%s, %s)", a, a, a, u->name,
       u->dims[at].name);
  drop_dim(&out, at);
  keep(m, out, FORMAT(m, "%s * sigmoid(%s_2) + %s_3", a, a, a));
}

static void make_mask(Maker *m) {
  Made *u = pick_value(m);
  int a = pick_dim(m, u), b = pick_dim(m, u);
  if (a < 0) return;
  const char *limit =
      a == b ? "1" : u->dims[b].name; /* a triangle or the first row */
  keep(m, *u,
       FORMAT(m, "mask(%s, %s >= %s, fill = 0.25)", u->name, u->dims[a].name,
              limit));
}

static void make_dropout(Maker *m) {
  Made *u = pick_value(m);
  int first = choose(m->choices, u->rank + 1);
  if (u->rank == 0 || choose(m->choices, 3) < 2)
    keep(m, *u, FORMAT(m, "dropout(%s, 0.25)", u->name));
  else if (first < u->rank)
    keep(m, *u,
         FORMAT(m, "dropout(%s, 0.25, over = %s)", u->name,
                dims_text(m, u->dims + first, u->rank - first)));
}

/* Reparametrised: gradients pass the mean and the scale. */
static void make_sample(Maker *m) {
  Made *u = pick_value(m);
  const char *name = u->name;
  if (choose(m->choices, 2) == 0)
    keep(m, *u, FORMAT(m, "%s + 0.5 * normal(%s)", name, name));
  else
    keep(m, *u, FORMAT(m, "%s * (0.5 + uniform(%s))", name, name));
}

/* Split into uneven parts, and one part stored with a mean beside it. */
static void make_split(Maker *m) {
  Made *u = pick_value(m), out = *u;
  int at = pick_dim(m, u);
  if (at < 0 || u->dims[at].size < 2) return;
  const char *name = u->dims[at].name, *v = fresh_name(m, "v");
  int first = 1 + choose(m->choices, u->dims[at].size - 1);
  line(m, "%s, %s_2 = split(%s, %s, [%d, %d])", v, v, u->name, name, first,
       u->dims[at].size - first);
  out.dims[at] = fresh_dim(m, first + 1);
  keep(m, out,
       FORMAT(m, "concat([mean(%s_2, %s), sin(%s)], %s)[%s -> %s]", v, name, v,
              name, name, out.dims[at].name));
}

/* Operators without a gradient, or with one by parts. */
static void make_numbers(Maker *m) {
  Made *u = pick_value(m), out = *u;
  int at = pick_dim(m, u);
  if (at < 0) return;
  const char *over = u->dims[at].name;
  drop_dim(&out, at);
  switch (choose(m->choices, 4)) {
  case 0:
    keep(m, out, FORMAT(m, "prod(1 + 0.3 * tanh(%s), %s)", u->name, over));
    return;
  case 1:
    keep(m, out, FORMAT(m, "0.1 * argmax(%s, %s)", u->name, over));
    return;
  case 2:
    keep(m, out,
         FORMAT(m, "cast(any(%s > 0.7, %s), f32) + mean(%s, %s)", u->name, over,
                u->name, over));
    return;
  default:
    keep(m, *u, FORMAT(m, "%s * (1 - 0.5 * (%s > 0.3))", u->name, u->name));
  }
}

static bool same_type(const Made *a, const Made *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (strcmp(a->dims[i].name, b->dims[i].name) ||
        a->dims[i].size != b->dims[i].size)
      return false;
  return true;
}

static void make_call(Maker *m) {
  Made *u = pick_value(m);
  if (m->layers.n == 0) return;
  const Layer *layer = &m->layers.data[choose(m->choices, m->layers.n)];
  if (same_type(&layer->formal, u))
    keep(m, layer->result, FORMAT(m, "%s(%s)", layer->name, u->name));
}

void make_statement(Maker *m) {
  typedef void Make(Maker *);
  static Make *const makes[] = {
      make_unary,      make_binary,  make_scale,          make_linear,
      make_product,    make_reduce,  make_rename,         make_rows,
      make_linear,     make_product, make_binary,         make_call,
      make_call,       make_block,   make_block,          make_dot,
      make_conv,       make_conv2,   make_pool,           make_attention,
      make_embedding,  make_merge,   make_split_dim,      make_slice,
      make_pad,        make_concat,  make_unstack,        make_mask,
      make_dropout,    make_select,  make_norm_layer,     make_batchnorm,
      make_batch_mean, make_factor,  make_scan,           make_lstm,
      make_along,      make_topk,    make_experts,        make_rotary,
      make_tied,       make_state,   make_split,          make_numbers,
      make_resize,     make_experts, make_conv_transpose, make_sample};
  makes[choose(m->choices, ARRAY_LENGTH(makes))](m);
}
