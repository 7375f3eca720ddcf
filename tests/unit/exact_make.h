/*
 * exact_make.h -- makes small random models as text, with the numbers that they
 * are trained on.
 *
 * Each statement of the net takes values that are there and makes a new one;
 * values that nothing took are added up to the loss.  Data and parameters are
 * small integers, the batch and the learning rate are powers of two, so that
 * many of these models compute without any rounding (tests/exact/range.c finds
 * out which).  With `is_real` the numbers are reals and functions that round
 * join in: such models are for comparing within rounding.
 */
#ifndef TESTS_UNIT_EXACT_MAKE_H
#define TESTS_UNIT_EXACT_MAKE_H

#include "support/support.h"

#include <stdio.h>
#include <string.h>

enum { EXACT_LARGEST = 2, EXACT_INDEX_BELOW = 4 };

typedef struct ExactModel {
  uint64_t seed;
  uint64_t numbers; /* seed of data and parameters */
  bool is_real;
  int64_t batch;
  bool reduces_batch; /* reduces over the batch before the loss */
  const char *text, *csv;
} ExactModel;

/* ---- numbers ---- */

/* Element `index` of the parameter or field at `path`. */
static inline double exact_number(const ExactModel *model, const char *path,
                                  int64_t index) {
  uint64_t key = random_key(model->numbers, path), i = (uint64_t)index;
  if (model->is_real) return (float)(2 * random_uniform(key, i) - 1);
  return (double)random_below(key, i, 2 * EXACT_LARGEST + 1) - EXACT_LARGEST;
}

static inline int64_t exact_position(const ExactModel *model, int64_t index) {
  return (int64_t)random_below(random_key(model->numbers, "d.t"),
                               (uint64_t)index, EXACT_INDEX_BELOW);
}

/* ---- the maker ---- */

enum { EXACT_MAX_RANK = 5, EXACT_MAX_ELEMENTS = 6000 };

typedef struct ExactDim {
  int name; /* 0: N, else D<name> */
  int64_t size;
} ExactDim;

typedef struct ExactVar {
  char name[8];
  int rank;
  ExactDim dims[EXACT_MAX_RANK + 2];
  bool is_used;
} ExactVar;

typedef struct ExactMaker {
  ExactModel *model;
  uint64_t key, draw;
  int n_vars, n_params, n_dims;
  ExactVar vars[32];
  Text params, body;
} ExactMaker;

static inline int exact_below(ExactMaker *m, int n) {
  return (int)random_below(m->key, m->draw++, (uint64_t)n);
}

/* The size of a new dim: mostly tiny, sometimes a little more than a vector. */
static inline int64_t exact_size(ExactMaker *m) {
  static const int sizes[] = {1, 2, 3, 4, 2, 3, 4, 8, 17, 33};
  return sizes[exact_below(m, ARRAY_LENGTH(sizes))];
}

static inline int64_t exact_elements(const ExactVar *v) {
  int64_t n = 1;
  for (int i = 0; i < v->rank; i++) n *= v->dims[i].size;
  return n;
}

static inline int exact_find(const ExactVar *v, int name) {
  for (int i = 0; i < v->rank; i++)
    if (v->dims[i].name == name) return i;
  return -1;
}

static inline void exact_drop(ExactVar *v, int at) {
  for (int i = at; i + 1 < v->rank; i++) v->dims[i] = v->dims[i + 1];
  v->rank--;
}

static inline void exact_add(ExactVar *v, int name, int64_t size) {
  if (exact_find(v, name) >= 0) return;
  v->dims[v->rank++] = (ExactDim){name, size};
}

static inline const char *exact_dim(ExactMaker *m, int name) {
  return name ? arena_printf(m->body.arena, "D%d", name) : "N";
}

/* A dim of `v` that is not the batch, or -1. */
static inline int exact_pick_dim(ExactMaker *m, const ExactVar *v) {
  int first = v->rank > 0 && v->dims[0].name == 0;
  bool has_batch = exact_find(v, 0) >= 0;
  int n = v->rank - has_batch;
  if (n == 0) return -1;
  int k = exact_below(m, n);
  for (int i = 0; i < v->rank; i++)
    if (v->dims[i].name != 0 && k-- == 0) return i;
  return first;
}

/* Mostly something recent. */
static inline ExactVar *exact_pick(ExactMaker *m) {
  int back = exact_below(m, 3) && m->n_vars > 3 ? 3 : m->n_vars;
  return &m->vars[m->n_vars - 1 - exact_below(m, back)];
}

/* "p3: [D1:2, D4:3]" */
static inline const char *exact_param(ExactMaker *m, const ExactVar *like) {
  const char *name = arena_printf(m->body.arena, "p%d", m->n_params++);
  text_printf(&m->params, "  param %s: [", name);
  for (int i = 0; i < like->rank; i++)
    text_printf(&m->params, "%s%s:%lld", i ? ", " : "",
                exact_dim(m, like->dims[i].name),
                (long long)like->dims[i].size);
  text_add(&m->params, "]\n");
  return name;
}

/* Names the value that the text just written computes; false where it is too
 * large, and then there is no text. */
static inline bool exact_accepts(const ExactVar *v) {
  return v->rank <= EXACT_MAX_RANK && exact_elements(v) <= EXACT_MAX_ELEMENTS;
}

static inline void exact_keep(ExactMaker *m, ExactVar v, const char *text) {
  snprintf(v.name, sizeof v.name, "v%d", m->n_vars);
  v.is_used = false;
  text_printf(&m->body, "  %s = %s\n", v.name, text);
  m->vars[m->n_vars++] = v;
}

/* ---- statements: each may decide to make nothing ---- */

static inline void exact_dot_param(ExactMaker *m, ExactVar *u) {
  int at = exact_pick_dim(m, u);
  if (at < 0) return;
  ExactVar w = {.rank = 0}, out = *u;
  ExactDim over = u->dims[at];
  exact_drop(&out, at);
  int new = m->n_dims++;
  int64_t size = exact_size(m);
  exact_add(&w, new, size);
  for (int i = 0; i < u->rank; i++)
    if (i == at || (u->dims[i].name && exact_below(m, 5) == 0))
      exact_add(&w, u->dims[i].name, u->dims[i].size);
  exact_add(&out, new, size);
  if (!exact_accepts(&out)) return;
  u->is_used = true;
  const char *name = exact_param(m, &w);
  exact_keep(m, out,
             arena_printf(m->body.arena, "dot(%s, %s, %s)", u->name, name,
                          exact_dim(m, over.name)));
}

static inline void exact_dot_values(ExactMaker *m, ExactVar *u, ExactVar *v) {
  int at = exact_pick_dim(m, u);
  if (at < 0 || exact_find(v, u->dims[at].name) < 0) return;
  int over = u->dims[at].name;
  ExactVar out = *u;
  for (int i = 0; i < v->rank && out.rank <= EXACT_MAX_RANK; i++)
    exact_add(&out, v->dims[i].name, v->dims[i].size);
  exact_drop(&out, exact_find(&out, over));
  if (!exact_accepts(&out)) return;
  u->is_used = v->is_used = true;
  exact_keep(m, out,
             arena_printf(m->body.arena, "dot(%s, %s, %s)", u->name, v->name,
                          exact_dim(m, over)));
}

static inline void exact_binary(ExactMaker *m, ExactVar *u, ExactVar *v) {
  static const char *const forms[] = {
      "%s + %s",         "%s - %s",     "%s * %s",    "maximum(%s, %s)",
      "minimum(%s, %s)", "%s - 2 * %s", "2 - %s * %s"};
  ExactVar out = *u;
  for (int i = 0; i < v->rank && out.rank <= EXACT_MAX_RANK; i++)
    exact_add(&out, v->dims[i].name, v->dims[i].size);
  if (!exact_accepts(&out)) return;
  u->is_used = v->is_used = true;
  char text[64];
  const char *form = forms[exact_below(m, ARRAY_LENGTH(forms))];
  const char *mark = strstr(form, "%s"), *second = strstr(mark + 1, "%s");
  snprintf(text, sizeof text, "%.*s%s%.*s%s%s", (int)(mark - form), form,
           u->name, (int)(second - mark - 2), mark + 2, v->name, second + 2);
  exact_keep(m, out, text);
}

static inline void exact_select(ExactMaker *m, ExactVar *u, ExactVar *v) {
  ExactVar out = *u;
  for (int i = 0; i < v->rank && out.rank <= EXACT_MAX_RANK; i++)
    exact_add(&out, v->dims[i].name, v->dims[i].size);
  if (!exact_accepts(&out)) return;
  u->is_used = v->is_used = true;
  exact_keep(m, out,
             arena_printf(m->body.arena, "select(%s > %s, %s, 1 - %s)", u->name,
                          v->name, v->name, u->name));
}

static inline void exact_with_param(ExactMaker *m, ExactVar *u) {
  ExactVar w = {.rank = 0};
  for (int i = 0; i < u->rank; i++)
    if (u->dims[i].name && exact_below(m, 2))
      exact_add(&w, u->dims[i].name, u->dims[i].size);
  u->is_used = true;
  const char *name = exact_param(m, &w);
  exact_keep(m, *u,
             arena_printf(m->body.arena, "%s %c %s", u->name,
                          "+-*"[exact_below(m, 3)], name));
}

static inline void exact_unary(ExactMaker *m, ExactVar *u) {
  static const char *const forms[] = {"relu", "abs",     "relu", "-",
                                      "tanh", "sigmoid", "gelu", "silu"};
  int n = m->model->is_real ? ARRAY_LENGTH(forms) : 4;
  u->is_used = true;
  exact_keep(
      m, *u,
      arena_printf(m->body.arena, "%s(%s)", forms[exact_below(m, n)], u->name));
}

static inline void exact_reduce(ExactMaker *m, ExactVar *u) {
  static const char *const forms[] = {"sum", "max", "min", "logsumexp"};
  int at = exact_pick_dim(m, u);
  const char *form =
      forms[exact_below(m, m->model->is_real ? ARRAY_LENGTH(forms) : 3)];
  if (exact_below(m, 3) == 0 && exact_find(u, 0) >= 0) {
    at = exact_find(u, 0);
    if (exact_below(m, 2)) form = m->model->is_real ? "mean" : "sum";
    m->model->reduces_batch = true;
  }
  if (at < 0) return;
  ExactVar out = *u;
  int over = u->dims[at].name;
  exact_drop(&out, at);
  u->is_used = true;
  exact_keep(m, out,
             arena_printf(m->body.arena, "%s(%s, %s)", form, u->name,
                          exact_dim(m, over)));
}

static inline void exact_rows(ExactMaker *m, ExactVar *u) {
  static const char *const forms[] = {"softmax", "layernorm", "rmsnorm",
                                      "log_softmax"};
  int at = exact_pick_dim(m, u);
  if (at < 0 || u->dims[at].size < 2) return;
  const char *form = forms[exact_below(m, ARRAY_LENGTH(forms))];
  u->is_used = true;
  exact_keep(m, *u,
             arena_printf(m->body.arena, "%s(%s, %s%s)", form, u->name,
                          exact_dim(m, u->dims[at].name),
                          strstr(form, "norm") ? ", eps = 0.1" : ""));
}

/* Slides along one dim, contracting another; the slid dim has a new name
 * afterwards, because its size changes. */
static inline void exact_conv(ExactMaker *m, ExactVar *u) {
  int at = exact_pick_dim(m, u), slid = exact_pick_dim(m, u);
  if (at < 0 || at == slid) return;
  ExactDim c = u->dims[at], y = u->dims[slid];
  int64_t k = 1 + exact_below(m, 3), stride = 1 + exact_below(m, 2);
  int64_t pad = exact_below(m, (int)(k < 2 ? k : 2)), dilate = 1;
  if (exact_below(m, 3) == 0) dilate = 2;
  int64_t room = y.size + 2 * pad - dilate * (k - 1) - 1;
  if (room < 0) return;
  ExactVar w = {.rank = 0}, out = *u;
  int o = m->n_dims++, new_y = m->n_dims++;
  int64_t o_size = exact_size(m);
  exact_add(&w, o, o_size);
  exact_add(&w, c.name, c.size);
  for (int i = 0; i < u->rank; i++)
    if (i != at && i != slid && u->dims[i].name && exact_below(m, 4) == 0)
      exact_add(&w, u->dims[i].name, u->dims[i].size);
  exact_add(&w, y.name, k);
  out.dims[slid] = (ExactDim){new_y, room / stride + 1};
  exact_drop(&out, at);
  exact_add(&out, o, o_size);
  if (!exact_accepts(&out)) return;
  u->is_used = true;
  const char *name = exact_param(m, &w);
  exact_keep(
      m, out,
      arena_printf(m->body.arena,
                   "conv(%s, %s, %s, %s, stride = %lld, pad = %lld, dilate = "
                   "%lld)[%s -> %s]",
                   u->name, name, exact_dim(m, c.name), exact_dim(m, y.name),
                   (long long)stride, (long long)pad, (long long)dilate,
                   exact_dim(m, y.name), exact_dim(m, new_y)));
}

static inline void exact_pool(ExactMaker *m, ExactVar *u) {
  int at = exact_pick_dim(m, u);
  if (at < 0 || u->dims[at].size < 2) return;
  ExactDim y = u->dims[at];
  int64_t stride = 1 + exact_below(m, 2);
  ExactVar out = *u;
  int new_y = m->n_dims++;
  out.dims[at] = (ExactDim){new_y, (y.size - 2) / stride + 1};
  u->is_used = true;
  exact_keep(m, out,
             arena_printf(m->body.arena,
                          "%spool(%s, %s, 2, stride = %lld)[%s -> %s]",
                          exact_below(m, 2) ? "max" : "avg", u->name,
                          exact_dim(m, y.name), (long long)stride,
                          exact_dim(m, y.name), exact_dim(m, new_y)));
}

static inline void exact_slice(ExactMaker *m, ExactVar *u) {
  int at = exact_pick_dim(m, u);
  if (at < 0 || u->dims[at].size < 2) return;
  ExactDim y = u->dims[at];
  int64_t first = exact_below(m, 2), last = y.size - 1 - exact_below(m, 2);
  if (last < first) return;
  ExactVar out = *u;
  int new_y = m->n_dims++;
  out.dims[at] = (ExactDim){new_y, last - first + 1};
  u->is_used = true;
  exact_keep(m, out,
             arena_printf(m->body.arena, "%s[%s = %lld..%lld][%s -> %s]",
                          u->name, exact_dim(m, y.name), (long long)first,
                          (long long)last, exact_dim(m, y.name),
                          exact_dim(m, new_y)));
}

static inline void exact_gather(ExactMaker *m) {
  ExactVar w = {.rank = 0}, out = {.rank = 0};
  int v = m->n_dims++, e = m->n_dims++;
  int64_t size = exact_size(m);
  exact_add(&w, v, EXACT_INDEX_BELOW);
  exact_add(&w, e, size);
  exact_add(&out, 0, m->model->batch);
  exact_add(&out, 3, 3);
  exact_add(&out, e, size);
  const char *name = exact_param(m, &w);
  exact_keep(
      m, out,
      arena_printf(m->body.arena, "gather(%s, t, %s)", name, exact_dim(m, v)));
}

static inline void exact_statement(ExactMaker *m) {
  ExactVar *u = exact_pick(m), *v = exact_pick(m);
  switch (exact_below(m, m->model->is_real ? 17 : 15)) {
  case 0:
  case 1:
  case 2: exact_dot_param(m, u); return;
  case 3: exact_dot_values(m, u, v); return;
  case 4:
  case 5:
  case 6: exact_binary(m, u, v); return;
  case 7: exact_with_param(m, u); return;
  case 8: exact_unary(m, u); return;
  case 9: exact_reduce(m, u); return;
  case 10:
  case 11: exact_conv(m, u); return;
  case 12: exact_gather(m); return;
  case 13: exact_pool(m, u); return;
  case 14:
    if (exact_below(m, 2))
      exact_slice(m, u);
    else
      exact_select(m, u, v);
    return;
  default: exact_rows(m, u);
  }
}

/* ---- the whole model ---- */

static inline void exact_finish(ExactMaker *m) {
  text_add(&m->body, "  s = 0.0\n");
  for (int i = 0; i < m->n_vars; i++) {
    ExactVar *v = &m->vars[i];
    if (v->is_used) continue;
    bool has_batch = exact_find(v, 0) >= 0;
    const char *square =
        exact_below(m, 2) ? arena_printf(m->body.arena, " * %s", v->name) : "";
    text_printf(&m->body, "  s = s + sum(%s%s)%s\n", v->name, square,
                has_batch ? " / N" : "");
  }
}

static inline const char *exact_csv(const ExactModel *model, Arena *arena) {
  Text csv = text_create(arena);
  for (int64_t n = 0; n < model->batch; n++) {
    for (int64_t i = 0; i < 12; i++) {
      text_add_real(&csv, exact_number(model, "d.x", n * 12 + i));
      text_add(&csv, ",");
    }
    for (int64_t i = 0; i < 3; i++)
      text_printf(&csv, "%lld%c", (long long)exact_position(model, n * 3 + i),
                  i < 2 ? ',' : '\n');
  }
  return text_string(&csv);
}

/* One step on all of "data.csv"; the same seed makes the same model. */
static inline ExactModel exact_make(Arena *arena, uint64_t seed, bool is_real) {
  ExactModel model = {.seed = seed, .numbers = seed, .is_real = is_real};
  ExactMaker *m = ARENA_NEW(arena, ExactMaker);
  *m = (ExactMaker){.model = &model,
                    .key = random_key(seed, is_real ? "real" : "exact"),
                    .n_dims = 4,
                    .params = text_create(arena),
                    .body = text_create(arena)};
  model.batch = exact_below(m, 2) ? 4 : 8;
  m->vars[m->n_vars++] = (ExactVar){
      .name = "x", .rank = 3, .dims = {{0, model.batch}, {1, 4}, {2, 3}}};
  int n = 4 + exact_below(m, 10);
  while (m->n_vars < n) exact_statement(m);
  if (m->n_params == 0) exact_dot_param(m, &m->vars[0]);
  exact_finish(m);
  Text text = text_create(arena);
  text_printf(&text,
              "dim N = %lld\n\n"
              "net f(x: [N, D1:4, D2:3], t: i32[N, D3:3]) -> [] {\n%s%s"
              "  return s\n}\n\n"
              "data d {\n"
              "  x: [N, D1:4, D2:3] = csv(\"data.csv\", 0..11)\n"
              "  t: i32[N, D3:3] = csv(\"data.csv\", 12..14)\n"
              "  order = sequential\n}\n\n"
              "train {\n"
              "  loss = f(d.x, d.t)\n"
              "  optimizer = sgd(lr = %s, momentum = 0.5%s%s)\n"
              "  steps = 1\n}\n",
              (long long)model.batch, text_string(&m->params),
              text_string(&m->body), exact_below(m, 2) ? "0.25" : "0.0625",
              exact_below(m, 3) ? "" : ", nesterov = true",
              exact_below(m, 3) ? "" : ", decay = 0.5");
  model.text = text_string(&text);
  model.csv = exact_csv(&model, arena);
  return model;
}

/* Sets other data and parameters for the model. */
static inline void exact_use_numbers(ExactModel *model, uint64_t numbers,
                                     Arena *arena) {
  model->numbers = numbers;
  model->csv = exact_csv(model, arena);
}

#endif
