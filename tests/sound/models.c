/*
 * models.c -- makes random models of a few operators: chains of linear layers,
 * residuals, gates, branches, norms, attention, convolutions, look-ups, tied
 * weights, repeats.
 *
 *     layer lin0(x: [B, C]) {
 *       param w: [C, F0] = normal(0.1)
 *       return relu(dot(x, w, C))
 *     }
 *
 * Nothing computes these models, so sizes are small or as large as those of
 * real ones: what is fastest then depends on the machines.  A product has no
 * name of its own, so a line can be about it.
 */
#include <string.h>

#include "tests/sound/sound.h"

typedef struct Feature {
  const char *name;
  int size;
} Feature;

typedef struct NetMaker {
  Choices *choices;
  Arena *arena;
  Text dims, layers, body;
  int left;         /* operators that may still come */
  int n_layers;     /* numbers in names of layers and dims */
  const char *lead; /* "B, T": the dims before that of the features */
  bool has_sequence, is_image, has_table, has_stages;
  Feature at;    /* of `x` so far */
  Feature table; /* of a table of words: its other dim */
} NetMaker;

#define PICK(m, list) (list)[choose((m)->choices, ARRAY_LENGTH(list))]

static Feature new_feature(NetMaker *m, const char *stem) {
  static const int sizes[] = {64, 1024, 8,    4096, 6,   2048, 512,
                              7,  8192, 1000, 3,    768, 16384};
  Feature out = {arena_printf(m->arena, "%s%d", stem, m->n_layers),
                 PICK(m, sizes)};
  text_printf(&m->dims, ", %s = %d", out.name, out.size);
  return out;
}

static const char *activation(NetMaker *m) {
  static const char *const names[] = {"relu", "gelu", "tanh", "silu"};
  return PICK(m, names);
}

/* Begins a layer; its number. */
static int begin_layer(NetMaker *m, const char *name) {
  text_printf(&m->layers, "layer %s%d(x: [%s, %s%s]) {\n", name, m->n_layers,
              m->lead, m->at.name, m->is_image ? ", Y, X" : "");
  return m->n_layers++;
}

static void end_layer(NetMaker *m, const char *name, int number) {
  text_add(&m->layers, "}\n\n");
  text_printf(&m->body, "  x = %s%d(x)\n", name, number);
}

static void add_matrix(NetMaker *m, const char *name, Feature from,
                       Feature to) {
  text_printf(&m->layers, "  param %s: [%s, %s] = normal(0.1)\n", name,
              from.name, to.name);
}

/* ---- layers: each takes `x` with the features `at` ---- */

static void make_linear(NetMaker *m) {
  Feature from = m->at, to = new_feature(m, "F");
  bool has_bias = choose(m->choices, 2);
  int number = begin_layer(m, "lin");
  add_matrix(m, "w", from, to);
  if (has_bias) text_printf(&m->layers, "  param b: [%s] = zeros\n", to.name);
  text_printf(&m->layers, "  return %s(dot(x, w, %s)%s)\n", activation(m),
              from.name, has_bias ? " + b" : "");
  end_layer(m, "lin", number);
  m->at = to;
}

/* Two matrices around an activation. */
static void add_hidden(NetMaker *m) {
  Feature from = m->at, hidden = new_feature(m, "H");
  const char *act = activation(m);
  add_matrix(m, "w1", from, hidden);
  add_matrix(m, "w2", hidden, from);
  text_printf(&m->layers, "  return x + dot(%s(dot(x, w1, %s)), w2, %s)\n", act,
              from.name, hidden.name);
}

static void make_residual(NetMaker *m) {
  int number = begin_layer(m, "mlp");
  add_hidden(m);
  end_layer(m, "mlp", number);
}

static void make_repeat(NetMaker *m) {
  int number = begin_layer(m, "block");
  add_hidden(m);
  text_add(&m->layers, "}\n\n");
  text_printf(&m->body, "  repeat i in 2 { x = block%d(x) }\n", number);
}

static void make_gate(NetMaker *m) {
  Feature from = m->at, to = new_feature(m, "G");
  int number = begin_layer(m, "gate");
  add_matrix(m, "w1", from, to);
  add_matrix(m, "w2", from, to);
  text_printf(&m->layers, "  return silu(dot(x, w1, %s)) * dot(x, w2, %s)\n",
              from.name, from.name);
  end_layer(m, "gate", number);
  m->at = to;
}

/* Two layers read one value, and their sum goes on. */
static void make_branch(NetMaker *m) {
  static const char *const names[] = {"left", "right"};
  Feature from = m->at, to = new_feature(m, "R");
  int numbers[2];
  for (int i = 0; i < 2; i++) {
    numbers[i] = begin_layer(m, names[i]);
    add_matrix(m, "w", from, to);
    text_printf(&m->layers, "  return %s(dot(x, w, %s))\n}\n\n", activation(m),
                from.name);
  }
  text_printf(&m->body, "  x = left%d(x) + right%d(x)\n", numbers[0],
              numbers[1]);
  m->at = to;
}

static void make_layernorm(NetMaker *m) {
  int number = begin_layer(m, "norm");
  text_printf(&m->layers,
              "  param g: [%s] = ones\n  return layernorm(x, %s) * g\n",
              m->at.name, m->at.name);
  end_layer(m, "norm", number);
}

static void make_batchnorm(NetMaker *m) {
  int number = begin_layer(m, "bn");
  text_printf(&m->layers,
              "  state mean: [%s] = zeros\n  state var: [%s] = ones\n"
              "  return batchnorm(x, (%s%s), mean, var, eps = 1e-5)\n",
              m->at.name, m->at.name, m->lead, m->is_image ? ", Y, X" : "");
  end_layer(m, "bn", number);
}

static void make_attention(NetMaker *m) {
  Feature from = m->at;
  int number = begin_layer(m, "attn");
  text_printf(&m->dims, ", A%d = %d, D%d = 64", number,
              1 + choose(m->choices, 8), number);
  text_printf(&m->layers,
              "  param wq, wk, wv: [%s, A%d, D%d] = normal(0.1)\n"
              "  param wo: [A%d, D%d, %s] = normal(0.1)\n"
              "  q, k, v = dot(x, [wq, wk, wv], %s)\n"
              "  s = dot(q, k[T -> S], D%d) * 0.1\n"
              "  p = softmax(%s, S)\n"
              "  return dot(dot(p, v[T -> S], S), wo, (A%d, D%d))\n",
              from.name, number, number, number, number, from.name, from.name,
              number, choose(m->choices, 2) ? "mask(s, T >= S)" : "s", number,
              number);
  end_layer(m, "attn", number);
}

static void make_conv(NetMaker *m) {
  static const int sizes[] = {16, 64, 3, 256};
  Feature from = m->at;
  Feature to = {arena_printf(m->arena, "O%d", m->n_layers), PICK(m, sizes)};
  text_printf(&m->dims, ", %s = %d", to.name, to.size);
  int number = begin_layer(m, "conv");
  text_printf(&m->layers,
              "  param w: [%s, %s, Y:3, X:3] = normal(0.1)\n"
              "  return relu(conv(x, w, %s, (Y, X), pad = 1))\n",
              to.name, from.name, from.name);
  end_layer(m, "conv", number);
  m->at = to;
}

static void make_pool(NetMaker *m) {
  text_add(&m->body, "  x = mean(x, (Y, X))\n");
  m->is_image = false;
}

/* ---- the net ---- */

typedef struct LayerKind {
  void (*make)(NetMaker *m);
  int cost; /* operators: products, norms, look-ups, activations */
  int weight;
  bool is_of_sequence, is_of_image, is_of_both;
} LayerKind;

static const LayerKind kinds[] = {
    {make_linear, 2, 4, false, false, false},
    {make_residual, 3, 3, false, false, false},
    {make_gate, 3, 2, false, false, false},
    {make_branch, 4, 2, false, false, false},
    {make_layernorm, 1, 2, false, false, false},
    {make_batchnorm, 1, 1, false, false, true},
    {make_repeat, 6, 2, false, false, false},
    {make_attention, 7, 3, true, false, false},
    {make_conv, 2, 4, false, true, false},
    {make_pool, 0, 3, false, true, false},
};

static bool can_make(const NetMaker *m, const LayerKind *kind) {
  if (kind->cost > m->left) return false;
  if (kind->is_of_sequence && !m->has_sequence) return false;
  return kind->is_of_both || kind->is_of_image == m->is_image;
}

static void make_layer(NetMaker *m) {
  int total = 0;
  for (int i = 0; i < ARRAY_LENGTH(kinds); i++)
    if (can_make(m, &kinds[i])) total += kinds[i].weight;
  if (total == 0) return;
  int at = choose(m->choices, total);
  for (int i = 0; i < ARRAY_LENGTH(kinds); i++) {
    if (!can_make(m, &kinds[i])) continue;
    at -= kinds[i].weight;
    if (at >= 0) continue;
    m->left -= kinds[i].cost;
    kinds[i].make(m);
    return;
  }
}

/* The dims of the data and the first value; "x: [B, T, C]" or "t: i32[B]". */
static const char *make_input(NetMaker *m) {
  static const int batches[] = {4, 8, 2, 6, 16, 3, 12, 5, 9, 1};
  static const int large[] = {16, 32, 8, 64, 12, 4, 24, 6};
  static const int lengths[] = {64, 256, 6, 1024, 5};
  int kind = choose(m->choices, 8);
  text_printf(&m->dims, "dim B = %d",
              m->has_stages ? PICK(m, large) : PICK(m, batches));
  m->has_sequence = kind % 2 == 1;
  m->is_image = kind == 6;
  m->lead = m->has_sequence ? "B, T" : "B";
  if (m->has_sequence) text_printf(&m->dims, ", T = %d", PICK(m, lengths));
  if (m->is_image) text_add(&m->dims, ", Y = 16, X = 16");
  m->at = new_feature(m, "C");
  if (kind < 5 || m->is_image)
    return arena_printf(m->arena, "x: [%s, %s%s]", m->lead, m->at.name,
                        m->is_image ? ", Y, X" : "");
  m->has_table = true;
  m->table = new_feature(m, "V");
  m->left--;
  text_printf(&m->body,
              "  param table: [%s, %s] = normal(0.1)\n"
              "  x = gather(table, x, %s)\n",
              m->table.name, m->at.name, m->table.name);
  return arena_printf(m->arena, "x: i32[%s]", m->lead);
}

/* A product with the classes, by a matrix of its own or by the table of words;
 * the dim of the classes. */
static const char *make_head(NetMaker *m) {
  Feature words = m->table;
  bool is_tied = m->has_table && !strcmp(m->at.name, "C0");
  if (!is_tied) {
    words = new_feature(m, "K");
    text_printf(&m->body, "  param head: [%s, %s] = normal(0.1)\n", m->at.name,
                words.name);
  }
  text_printf(&m->body, "  return dot(x, %s, %s)\n", is_tied ? "table" : "head",
              m->at.name);
  return words.name;
}

static void add_settings(NetMaker *m, Text *out, const char *input,
                         const char *target, const char *loss) {
  static const char *const optimizers[] = {"sgd(lr = 0.1)", "adam(lr = 0.1)",
                                           "sgd(lr = 0.1, momentum = 0.9)",
                                           "adamw(lr = 0.1)"};
  const char *optimizer = PICK(m, optimizers);
  const char *eval = choose(m->choices, 3) ? "" : "  eval = 32\n";
  const char *clip = choose(m->choices, 4) ? "" : "  clip = 1.0\n";
  const char *begin = strchr(input, ' ') + 1;
  text_printf(out,
              "data d {\n  x: %s = synthetic(%s)\n  y: %s\n%s}\n\n"
              "train {\n  loss = %s\n  optimizer = %s\n  steps = 2\n%s}\n",
              begin, m->has_table ? m->table.name : "", target, eval, loss,
              optimizer, clip);
}

const char *sound_model(Choices *choices, int fewest, int most,
                        bool has_stages) {
  NetMaker m = {.choices = choices,
                .arena = choices->arena,
                .left = fewest + choose(choices, most - fewest + 1),
                .has_stages = has_stages,
                .dims = text_create(choices->arena),
                .layers = text_create(choices->arena),
                .body = text_create(choices->arena)};
  const char *input = make_input(&m), *target, *loss, *result;
  do make_layer(&m);
  while (m.is_image || (m.left > 1 && choose(choices, 3)));
  if (m.left > 0 && choose(choices, 2)) {
    const char *classes = make_head(&m);
    result = arena_printf(m.arena, "[%s, %s]", m.lead, classes);
    target = arena_printf(m.arena, "i32[%s] = synthetic(%s)", m.lead, classes);
    loss = arena_printf(m.arena, "cross_entropy(m(d.x), d.y, %s)", classes);
  } else {
    text_add(&m.body, "  return x\n");
    result = arena_printf(m.arena, "[%s, %s]", m.lead, m.at.name);
    target = arena_printf(m.arena, "%s = synthetic()", result);
    loss = "mse(m(d.x), d.y)";
  }
  Text out = text_create(m.arena);
  text_printf(&out, "%s\n\n%snet m(%s) -> %s {\n%s}\n\n", text_string(&m.dims),
              text_string(&m.layers), input, result, text_string(&m.body));
  add_settings(&m, &out, input, target, loss);
  return text_string(&out);
}
