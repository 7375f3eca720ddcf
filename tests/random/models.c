/*
 * models.c -- generates statements of typical models: attention, recurrence,
 * experts, rotary positions, normalisation over the batch, states, tied
 * weights, tables.
 */
#include "tests/random/maker.h"

#include <string.h>

void make_attention(Maker *m) {
  Made *u = pick_value(m);
  int t = pick_dim(m, u), c = pick_dim(m, u);
  if (t < 0 || t == c || u->rank >= MOST_DIMS - 1) return;
  Axis h = fresh_dim(m, 2), d = fresh_dim(m, 0),
       s = fresh_dim(m, u->dims[t].size);
  Made in = {0}, back = {0};
  add_dim(&in, u->dims[c]);
  add_dim(&in, h);
  add_dim(&in, d);
  add_dim(&back, h);
  add_dim(&back, d);
  add_dim(&back, u->dims[c]);
  const char *x = u->name, *time = u->dims[t].name;
  const char *wq = param(m, &in), *wk = param(m, &in), *wv = param(m, &in);
  const char *wo = param(m, &back), *v = fresh_name(m, "v");
  bool is_causal = choose(m->choices, 2);
  line(m, "%s, %s_k, %s_v = dot(%s, [%s, %s, %s], %s)", v, v, v, x, wq, wk, wv,
       u->dims[c].name);
  line(m, "%s_s = dot(%s, %s_k[%s -> %s], %s) * 0.5", v, v, v, time, s.name,
       d.name);
  if (is_causal) line(m, "%s_s = mask(%s_s, %s >= %s)", v, v, time, s.name);
  line(m, "%s_o = dot(softmax(%s_s, %s), %s_v[%s -> %s], %s)", v, v, s.name, v,
       time, s.name, s.name);
  Made out = *u;
  drop_dim(&out, c);
  add_dim(&out, u->dims[c]);
  keep(m, out, FORMAT(m, "dot(%s_o, %s, (%s, %s))", v, wo, h.name, d.name));
}

void make_batchnorm(Maker *m) {
  Made *u = pick_value(m);
  int c = pick_dim(m, u), n = find_dim(u, "N");
  if (c < 0 || n < 0 || choose(m->choices, 2)) return;
  Made kept = {0}, over = {0};
  add_dim(&over, u->dims[n]);
  for (int i = 0; i < u->rank; i++)
    if (i != c && i != n) add_dim(&over, u->dims[i]);
  add_dim(&kept, u->dims[c]);
  const char *state = fresh_name(m, "s");
  line(m, "state %s: %s = zeros", state, type_text(m, &kept));
  line(m, "state %s_v: %s = ones", state, type_text(m, &kept));
  keep(m, *u,
       FORMAT(m, "batchnorm(%s, %s, %s, %s_v, eps = 0.1%s)", u->name,
              dims_text(m, over.dims, over.rank), state, state,
              choose(m->choices, 2) ? ", group = 3" : ""));
}

/* Four gates, two carries; what the last position left is seen outside. */
void make_lstm(Maker *m) {
  Made *u = pick_value(m), carry = *u, w = {0}, out = *u;
  int t = pick_dim(m, u), c = pick_dim(m, u);
  if (t < 0 || t == c || u->rank >= MOST_DIMS) return;
  Axis state = u->dims[c], again = fresh_dim(m, state.size);
  Axis gates = fresh_dim(m, 4);
  const char *time = u->dims[t].name;
  drop_dim(&carry, t);
  add_dim(&w, again);
  add_dim(&w, state);
  add_dim(&w, gates);
  const char *weights = param(m, &w), *v = fresh_name(m, "v");
  const char *h = fresh_name(m, "h"), *s = fresh_name(m, "c");
  const char *type = type_text(m, &carry);
  bool is_pair = choose(m->choices, 2), is_backwards = choose(m->choices, 2);
  if (is_backwards) line(m, "%s_r = reverse(%s, %s)", v, u->name, time);
  line(m, "%s%s%s = scan %s (%s: %s = 0, %s: %s = 0.5) {", v,
       is_pair ? ", " : "", is_pair ? FORMAT(m, "%s_2", v) : "", time, h, type,
       s, type);
  line(m, "  %s_i, %s_f, %s_g, %s_o = unstack(dot(%s[%s -> %s], %s, %s), %s)",
       v, v, v, v, h, state.name, again.name, weights, again.name, gates.name);
  line(m, "  %s = sigmoid(%s_f) * %s + sigmoid(%s_i + %s%s) * tanh(%s_g)", s, v,
       s, v, is_backwards ? v : u->name, is_backwards ? "_r" : "", v);
  line(m, "  %s = sigmoid(%s_o) * tanh(%s)", h, v, s);
  line(m, is_pair ? "  return (%s, %s)" : "  return %s", h, s);
  line(m, "}");
  if (choose(m->choices, 2)) {
    carry.name = choose(m->choices, 2) ? h : s;
    vec_push(m->arena, m->scope, carry);
  }
  keep(m, out, is_pair ? FORMAT(m, "%s + %s_2", v, v) : v);
}

/* Some of the tokens go to each expert; what is not dispatched is 0. */
void make_experts(Maker *m) {
  static const char *const capacities[] = {"1.25", "1", "2", "0.6"};
  Made *u = pick_value(m), ask = {0}, up = {0}, down = {0};
  int c = pick_dim(m, u), n = find_dim(u, "N");
  bool has_group = n >= 0 && choose(m->choices, 3) < 2;
  if (c < 0 || u->rank < (has_group ? 3 : 2) || u->rank > MOST_DIMS - 2) return;
  Axis e = fresh_dim(m, 2 + choose(m->choices, 3)), f = fresh_dim(m, 0);
  Axis from = u->dims[c];
  add_dim(&ask, from);
  add_dim(&ask, e);
  add_dim(&up, e);
  add_dim(&up, from);
  add_dim(&up, f);
  add_dim(&down, e);
  add_dim(&down, f);
  add_dim(&down, from);
  const char *wg = param(m, &ask), *w1 = param(m, &up), *w2 = param(m, &down);
  const char *v = fresh_name(m, "v"), *x = u->name, *slot = fresh_name(m, "S");
  int top = 1 + choose(m->choices, 2);
  const char *capacity = capacities[choose(m->choices, 4)];
  line(m, "%s_p = softmax(dot(%s, %s, %s), %s)", v, x, wg, from.name, e.name);
  line(m, "%s_g = route(%s_p, %s, top = %d, capacity = %s%s)", v, v, e.name,
       top, capacity, has_group ? ", group = N" : ", group = ()");
  if (choose(m->choices, 2)) line(m, "add_loss(0.1 * balance(%s_g))", v);
  line(m, "%s_t = dispatch(%s, %s_g, %s)", v, x, v, slot);
  line(m, "%s_y = dot(tanh(dot(%s_t, %s, %s)), %s, %s)", v, v, w1, from.name,
       w2, f.name);
  Made out = *u;
  drop_dim(&out, c);
  add_dim(&out, from);
  keep(m, out, FORMAT(m, "%s + combine(%s_y, %s_g, %s)", x, v, v, slot));
}

void make_rotary(Maker *m) {
  Made *u = pick_value(m), out = *u;
  int t = pick_dim(m, u), d = pick_dim(m, u);
  if (t < 0 || t == d || u->dims[d].size % 2) return;
  const char *v = fresh_name(m, "v"), *name = u->dims[d].name;
  line(m, "%s_a, %s_b = split(%s, %s, 2)", v, v, u->name, name);
  line(m, "%s_t = iota(%s, %s) * pow(9.0, -2 * iota(%s_a, %s) / %d)", v,
       u->name, u->dims[t].name, v, name, u->dims[d].size);
  keep(m, out,
       FORMAT(m,
              "concat([%s_a * cos(%s_t) - %s_b * sin(%s_t), "
              "%s_b * cos(%s_t) + %s_a * sin(%s_t)], %s)",
              v, v, v, v, v, v, v, v, name));
}

/* There and back by one matrix. */
void make_tied(Maker *m) {
  Made *u = pick_value(m), w = {0}, out = *u;
  int c = pick_dim(m, u);
  if (c < 0) return;
  Axis from = u->dims[c], to = fresh_dim(m, 0);
  add_dim(&w, from);
  add_dim(&w, to);
  const char *name = param(m, &w), *v = fresh_name(m, "v");
  line(m, "%s_h = tanh(dot(%s, %s, %s))", v, u->name, name, from.name);
  drop_dim(&out, c);
  add_dim(&out, from);
  keep(m, out, FORMAT(m, "dot(%s_h, %s, %s)", v, name, to.name));
}

/* A running mean, or with the batch dim what the lane had in the last step. */
void make_state(Maker *m) {
  Made *u = pick_value(m), kept = {0};
  if (m->in_repeat) return;
  for (int i = 0; i < u->rank; i++) {
    bool is_batch = !strcmp(u->dims[i].name, "N");
    if (choose(m->choices, is_batch ? 3 : 2) == (is_batch ? 2 : 0))
      add_dim(&kept, u->dims[i]);
  }
  const char *s = fresh_name(m, "s"), *v = fresh_name(m, "v");
  line(m, "state %s: %s = %s", s, type_text(m, &kept),
       choose(m->choices, 2) ? "uniform(0.5)" : "zeros");
  line(m, "%s_m = %s", v, reduced_to(m, u, &kept));
  keep(m, *u, FORMAT(m, "%s * sigmoid(%s + 0.5)", u->name, s));
  line(m, "%s = 0.8 * %s + 0.2 * tanh(%s_m)", s, s, v);
  if (!choose(m->choices, 2)) return;
  keep(m, *u, FORMAT(m, "%s * sigmoid(%s)", u->name, s));
  line(m, "%s = 0.5 * %s", s, s);
}

/* Rows of a table, or as products with ones; scattered by the same index. */
void make_embedding(Maker *m) {
  if (!m->is_in_net) return;
  Axis v = fresh_dim(m, 4), e = fresh_dim(m, 0);
  Made table = {0}, out = {0};
  add_dim(&table, v);
  add_dim(&table, e);
  add_dim(&out, m->file_dims[0]);
  add_dim(&out, (Axis){"S", 3});
  add_dim(&out, e);
  const char *name = param(m, &table);
  int kind = choose(m->choices, 4);
  if (kind == 2) {
    keep(m, out,
         FORMAT(m, "dot(one_hot(t, %s, 4), %s, %s)", v.name, name, v.name));
    return;
  }
  keep(m, out, FORMAT(m, "gather(%s, t, %s)", name, v.name));
  if (kind < 3) return;
  keep(m, table,
       FORMAT(m, "scatter_add(%s, t, %s, 4) * 0.117",
              m->scope->data[m->scope->n - 1].name, v.name));
}
