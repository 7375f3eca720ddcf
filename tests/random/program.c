/*
 * program.c -- generates a complete random program: dims, layers, a net, data,
 * training.
 *
 * Sizes are small and mostly odd.  Values are kept near 1, so that rounding
 * stays small beside them; what a program computes is compared with itself,
 * compiled in another way.
 */
#include "ir/model/model.h"
#include "tests/random/maker.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- what statements are written with ---- */

void line(Maker *m, const char *format, ...) {
  char text[600];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  ASSERT(n >= 0 && n < (int)sizeof text);
  for (int i = 0; i < m->indent; i++) text_add(m->out, "  ");
  text_printf(m->out, "%s\n", text);
}

const char *fresh_name(Maker *m, const char *stem) {
  return FORMAT(m, "%s%d", stem, m->n_names++);
}

Axis fresh_dim(Maker *m, int size) {
  static const int sizes[] = {3, 2, 4, 1, 5, 8, 3, 2, 17};
  if (size == 0) size = sizes[choose(m->choices, ARRAY_LENGTH(sizes))];
  return (Axis){FORMAT(m, "D%d", m->n_dims++), size};
}

int find_dim(const Made *value, const char *dim) {
  for (int i = 0; i < value->rank; i++)
    if (!strcmp(value->dims[i].name, dim)) return i;
  return -1;
}

void drop_dim(Made *value, int at) {
  for (int i = at; i + 1 < value->rank; i++)
    value->dims[i] = value->dims[i + 1];
  value->rank--;
}

bool add_dim(Made *value, Axis dim) {
  if (value->rank == MOST_DIMS || find_dim(value, dim.name) >= 0) return false;
  value->dims[value->rank++] = dim;
  return true;
}

bool fits(const Made *value) {
  int64_t n = 1;
  for (int i = 0; i < value->rank; i++) n *= value->dims[i].size;
  return value->rank <= MOST_DIMS && n <= MOST_ELEMENTS;
}

Made *pick_value(Maker *m) {
  int n = m->scope->n, recent = n < 3 ? n : 3;
  int back = choose(m->choices, 4) == 3 ? n : recent;
  return &m->scope->data[n - 1 - choose(m->choices, back)];
}

int pick_dim(Maker *m, const Made *value) {
  int batch = find_dim(value, "N"), n = value->rank - (batch >= 0);
  if (n == 0) return -1;
  int k = choose(m->choices, n);
  return batch >= 0 && k >= batch ? k + 1 : k;
}

void keep(Maker *m, Made type, const char *text) {
  type.name = fresh_name(m, "v");
  line(m, "%s = %s", type.name, text);
  vec_push(m->arena, m->scope, type);
}

static bool has_file_size(const Maker *m, const Axis *dim) {
  for (int i = 0; i < 4; i++)
    if (!strcmp(m->file_dims[i].name, dim->name) &&
        m->file_dims[i].size == dim->size)
      return true;
  return false;
}

const char *type_text(Maker *m, const Made *type) {
  Text text = text_create(m->arena);
  text_add(&text, "[");
  for (int i = 0; i < type->rank; i++) {
    text_printf(&text, "%s%s", i ? ", " : "", type->dims[i].name);
    if (!has_file_size(m, &type->dims[i]))
      text_printf(&text, ":%d", type->dims[i].size);
  }
  text_add(&text, "]");
  return text_string(&text);
}

const char *dims_text(Maker *m, const Axis *dims, int n) {
  Text text = text_create(m->arena);
  for (int i = 0; i < n; i++)
    text_printf(&text, "%s%s", i ? ", " : n > 1 ? "(" : "", dims[i].name);
  if (n > 1) text_add(&text, ")");
  return text_string(&text);
}

const char *param(Maker *m, const Made *type) {
  static const char *const inits[] = {"uniform(0.5)", "normal(0.4)", "0.5",
                                      "trunc_normal(0.3)"};
  const char *name = fresh_name(m, "p");
  if (choose(m->choices, 12) == 11) line(m, "@frozen");
  line(m, "param %s: %s = %s", name, type_text(m, type),
       inits[choose(m->choices, ARRAY_LENGTH(inits))]);
  return name;
}

const char *reduced_to(Maker *m, const Made *value, const Made *like) {
  Made over = {0};
  for (int i = 0; i < value->rank; i++)
    if (find_dim(like, value->dims[i].name) < 0)
      over.dims[over.rank++] = value->dims[i];
  if (over.rank == 0) return value->name;
  return FORMAT(m, "mean(%s, %s)", value->name,
                dims_text(m, over.dims, over.rank));
}

/* ---- the parts of a program ---- */

static const char library[] =
    "layer linear[I -> O](x: [..., I]) -> [..., O] {\n"
    "  param w: [I, O] = normal(0.4)\n"
    "  param b: [O] = uniform(0.2)\n"
    "  return dot(x, w, I) + b\n"
    "}\n\n"
    "layer norm[I](x: [..., I]) -> [..., I] {\n"
    "  param g: [I] = ones\n"
    "  return layernorm(x, I, eps = 0.1) * g\n"
    "}\n\n";

typedef struct Head {
  const char *result, *target, *loss, *metrics;
} Head;

/* The result of the net and the loss that reads it. */
static Head make_head(Maker *m) {
  static const char *const options[] = {"", ", smooth = 0.1", ", ignore = 2"};
  static const char *const metrics[] = {
      "  metrics = [accuracy(m(d.x, d.t), d.y, A)]\n", "",
      ("  metrics = [perplexity(m(d.x, d.t), d.y, A), "
       "accuracy(m(d.x, d.t), d.y, A, top = 1)]\n")};
  const Made *last = &m->scope->data[m->scope->n - 1];
  Made like = {0};
  int kind = choose(m->choices, 4);
  add_dim(&like, m->file_dims[0]);
  add_dim(&like, m->file_dims[1]);
  const char *value = reduced_to(m, last, &like);
  Head head = {.target = "", .metrics = ""};
  if (kind == 0) {
    line(m, "return mean(%s * %s)", last->name, last->name);
    head.result = "[]";
    head.loss = "m(d.x, d.t)";
    return head;
  }
  /* All of [N, A], whatever the value has. */
  line(m, "return %s + x0 * 0.1", value);
  head.result = "[N, A]";
  head.target = "  y: [N, A] = synthetic()\n";
  head.loss =
      kind == 2 ? "mse(m(d.x, d.t), d.y)" : "bce(m(d.x, d.t), sigmoid(d.y))";
  if (kind > 1) return head;
  head.target = "  y: i32[N] = synthetic(A)\n";
  head.loss = FORMAT(m, "cross_entropy(m(d.x, d.t), d.y, A%s)",
                     options[choose(m->choices, ARRAY_LENGTH(options))]);
  head.metrics = metrics[choose(m->choices, ARRAY_LENGTH(metrics))];
  return head;
}

static const char *make_optimizer(Maker *m) {
  static const char *const rates[][2] = {{"", ""},
                                         {"cosine(", ", warmup = 2)"},
                                         {"linear_decay(", ", warmup = 1)"},
                                         {"inverse_sqrt(", ", 2)"}};
  static const char *const decays[] = {"", "", ", decay = 0.1",
                                       ", decay = 0.1, decay_on = all"};
  static const char *const momenta[] = {"", ", momentum = 0.9",
                                        ", momentum = 0.9, nesterov = true"};
  const OptimizerInfo *info =
      optimizer_info(choose(m->choices, optimizer_count()));
  const char *name = info->name;
  const char *const *rate = rates[choose(m->choices, ARRAY_LENGTH(rates))];
  /* It looks at signs only, also at that of rounding. */
  const char *peak = strcmp(name, "lion") ? "0.02" : "0.0005";
  const char *more = "";
  int eps = argument_find(info->arguments, "eps");
  bool has_eps = eps >= 0 && info->arguments[eps].range != RANGE_fixed;
  if (has_eps) more = ", eps = 0.1"; /* gradients near 0 are rounding errors */
  if (!strcmp(name, "sgd"))
    more = momenta[choose(m->choices, ARRAY_LENGTH(momenta))];
  return FORMAT(m, "%s(lr = %s%s%s%s%s)", name, rate[0], peak, rate[1], more,
                decays[choose(m->choices, ARRAY_LENGTH(decays))]);
}

/* Mostly none: the numbers of 16 bits are compared less sharply. */
static const char *make_precision(Maker *m) {
  static const char *const forms[] = {
      "compute = bf16", "compute = f16; loss_scale = dynamic",
      "compute = f16; loss_scale = 64", "compute = bf16; grads = bf16",
      "compute = bf16; f32 = [layernorm, softmax, loss]"};
  if (choose(m->choices, 5) < 4) return "";
  return FORMAT(m, "precision { %s }\n\n",
                forms[choose(m->choices, ARRAY_LENGTH(forms))]);
}

static void make_net(Maker *m, Head *head, Text *net) {
  MadeList scope = {0};
  Made x = {.name = "x"};
  for (int i = 0; i < 3; i++) add_dim(&x, m->file_dims[i]);
  vec_push(m->arena, &scope, x);
  m->scope = &scope;
  m->out = net;
  m->is_in_net = true;
  line(m, "x0 = mean(x, B)");
  make_body(m, 16);
  *head = make_head(m);
}

/* Letters with sizes; the batch divides by 2, 3, 4 ranks. */
static void make_dims(Maker *m) {
  static const int sizes[] = {3, 4, 5, 2, 8, 1, 7, 16, 33};
  static const char *const names[] = {"N", "A", "B", "C"};
  m->file_dims[0] = (Axis){"N", 12};
  for (int i = 1; i < 4; i++)
    m->file_dims[i] =
        (Axis){names[i], sizes[choose(m->choices, ARRAY_LENGTH(sizes))]};
}

const char *program_make(Choices *choices) {
  Maker *m = ARENA_NEW(choices->arena, Maker);
  *m = (Maker){.choices = choices, .arena = choices->arena, .indent = 1};
  m->layer_text = text_create(m->arena);
  Text net = text_create(m->arena), out = text_create(m->arena);
  Head head;
  make_dims(m);
  for (int i = 0; i <= 2; i++) {
    int piece = piece_begin(choices);
    if (choose(choices, i < 2 ? 2 : 1) == 0) break;
    make_layer(m);
    piece_end(choices, piece);
  }
  make_net(m, &head, &net);
  text_add(&out, "dim ");
  for (int i = 0; i < 4; i++)
    text_printf(&out, "%s%s = %d", i ? ", " : "", m->file_dims[i].name,
                m->file_dims[i].size);
  text_printf(
      &out, "\n\n%s%snet m(x: [N, A, B], t: i32[N, S:3]) -> %s {\n%s}\n",
      library, text_string(&m->layer_text), head.result, text_string(&net));
  /* One by one: the order of choices must not depend on the compiler. */
  const char *precision = make_precision(m);
  const char *eval = choose(choices, 2) ? "  eval = 30\n" : "";
  const char *optimizer = make_optimizer(m);
  const char *clip = choose(choices, 3) == 2 ? "  clip = 0.5\n" : "";
  const char *ema = choose(choices, 5) == 4 ? "  ema = 0.9\n" : "";
  text_printf(&out,
              "\n%sdata d {\n  x: [N, A, B] = synthetic()\n"
              "  t: i32[N, S:3] = synthetic(4)\n%s%s}\n\ntrain {\n"
              "  loss = %s\n%s  optimizer = %s\n  steps = 3\n%s%s}\n",
              precision, head.target, eval, head.loss, head.metrics, optimizer,
              clip, ema);
  return text_string(&out);
}
