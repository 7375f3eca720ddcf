// links: frontend passes ir
/*
 * attention_forms.c -- tests which written forms of attention become the
 * operator `attention`.
 *
 * Forms with another mask than the causal one must not, because the operator
 * knows no other.  Loss and gradients must equal those of the graph as written.
 */
#include "tests/unit/forms.h"

TestSuite(attention_forms, .fini = modules_destroy);

/* Dims of every form; parameters make q, k and v from x. */
#define BEFORE                                                                 \
  "dim B = 2, T = 6, C = 8, G = 2, H = 3, D = 4\n"                             \
  "layer heads(x: [..., C]) {\n"                                               \
  "  param w: [C, G, H, D] = normal(0.5)\n"                                    \
  "  return dot(x, w, C)\n"                                                    \
  "}\n"                                                                        \
  "layer groups(x: [..., C]) {\n"                                              \
  "  param w: [C, G, D] = normal(0.5)\n"                                       \
  "  return dot(x, w, C)\n"                                                    \
  "}\n"                                                                        \
  "layer one(x: [..., C]) {\n"                                                 \
  "  param w: [C, D] = normal(0.5)\n"                                          \
  "  return dot(x, w, C)\n"                                                    \
  "}\n"                                                                        \
  "layer rotary(x: [B, T, ..., D]) {\n"                                        \
  "  a, b  = split(x, D, 2)\n"                                                 \
  "  angle = iota(x, T) * pow(1e4, -2 * iota(a, D) / D)\n"                     \
  "  return concat([a * cos(angle) - b * sin(angle),\n"                        \
  "                 b * cos(angle) + a * sin(angle)], D)\n"                    \
  "}\n"                                                                        \
  "net f(x: f32[B, T, C], m: f32[B, S:5, C], n: i32[B]) {\n"

#define AFTER                                                                  \
  "\n}\n"                                                                      \
  "data d {\n"                                                                 \
  "  x: f32[B, T, C] = synthetic()\n"                                          \
  "  m: f32[B, S:5, C] = synthetic()\n"                                        \
  "  n: i32[B] = synthetic(4)\n"                                               \
  "}\n"                                                                        \
  "train {\n"                                                                  \
  "  loss = mean(pow(f(d.x, d.m, d.n), 2.0))\n"                                \
  "  optimizer = sgd(lr = 0.1)\n"                                              \
  "  steps = 1\n"                                                              \
  "}\n"

#define QKV "q, k, v = [heads(x), heads(x)[T -> S], heads(x)[T -> S]]\n"
#define QGG "q, k, v = [heads(x), groups(x)[T -> S], groups(x)[T -> S]]\n"

static const struct Form {
  const char *name, *body;
  int n_attention;
} forms[] = {
    {"causal",
     QKV "return dot(softmax(mask(dot(q, k, D) / sqrt(D), T >= S), S), v, S)",
     1},
    {"causal, positions the other way round",
     QKV "return dot(softmax(mask(dot(q, k, D) / 2, S <= T), S), v, S)", 1},
    {"scaled behind the mask",
     QKV "return dot(softmax(0.5 * mask(dot(q, k, D), T >= S), S), v, S)", 1},
    {"queries scaled",
     QKV "return dot(softmax(mask(dot(q / 2, k, D), T >= S), S), v, S)", 1},
    {"both ways", QKV "return dot(softmax(dot(q, k, D) / 2, S), v, S)", 1},
    {"grouped queries, causal",
     QGG "return dot(softmax(mask(dot(q, k, D) / 2, T >= S), S), v, S)", 1},
    {"grouped queries, both ways",
     QGG "return dot(softmax(dot(q, k, D) / 2, S), v, S)", 1},
    {"one key for all heads",
     "q, k, v = [heads(x), one(x)[T -> S], one(x)[T -> S]]\n"
     "return dot(softmax(mask(dot(q, k, D), T >= S), S), v, S)",
     1},
    {"grouped queries turned by their positions",
     "q, k, v = [rotary(heads(x)), rotary(groups(x))[T -> S], "
     "groups(x)[T -> S]]\n"
     "return dot(softmax(mask(dot(q, k, D) / 2, T >= S), S), v, S)",
     1},
    {"a decoder looks at an encoder",
     "q, k, v = [heads(x), heads(m), heads(m)]\n"
     "return dot(softmax(dot(q, k, D) / 2, S), v, S)",
     1},
    {"window",
     QKV "s = mask(dot(q, k, D) / 2, T >= S and T - S < 3)\n"
         "return dot(softmax(s, S), v, S)",
     0},
    {"window of grouped queries",
     QGG "s = mask(mask(dot(q, k, D) / 2, T >= S), T - S < 2)\n"
         "return dot(softmax(s, S), v, S)",
     0},
    {"padding",
     QKV "s = mask(dot(q, k, D) / 2, S <= n)\n"
         "return dot(softmax(s, S), v, S)",
     0},
    {"padding, causal",
     QKV "s = mask(dot(q, k, D) / 2, T >= S and S <= n)\n"
         "return dot(softmax(s, S), v, S)",
     0},
    {"only later ones: the last position sees nothing",
     QKV "return dot(softmax(mask(dot(q, k, D), T < S), S), v, S)", 0},
    {"only earlier ones: the first position sees nothing",
     QKV "return dot(softmax(mask(dot(q, k, D), T > S), S), v, S)", 0},
    {"not itself",
     QKV "return dot(softmax(mask(dot(q, k, D), T != S), S), v, S)", 0},
    {"backwards",
     QKV "return dot(softmax(mask(dot(q, k, D), T <= S), S), v, S)", 0},
    {"filled with a large number",
     QKV "s = mask(dot(q, k, D), T >= S, fill = -1e4)\n"
         "return dot(softmax(s, S), v, S)",
     0},
    {"a bias for each distance",
     QKV "param near: [R:11, H] = normal(1.0)\n"
         "r = iota(q, T) - iota(k, S) + 5\n"
         "s = mask(dot(q, k, D) / 2 + gather(near, r, R), T >= S)\n"
         "return dot(softmax(s, S), v, S)",
     0},
    {"a slope for each distance",
     QKV "s = dot(q, k, D) / 2 - 0.1 * cast(iota(q, T) - iota(k, S), f32)\n"
         "return dot(softmax(mask(s, T >= S), S), v, S)",
     0},
    {"a learned scale",
     QKV "param tau: [H] = ones\n"
         "return dot(softmax(mask(dot(q, k, D) * tau, T >= S), S), v, S)",
     0},
    {"scores capped",
     QKV "s = 5 * tanh(dot(q, k, D) / 5)\n"
         "return dot(softmax(mask(s, T >= S), S), v, S)",
     0},
    {"weights used twice",
     QKV "p = softmax(mask(dot(q, k, D), T >= S), S)\n"
         "return dot(p, v, S) + sum(p * p, S)",
     0},
    {"over heads",
     "q, k, v = [heads(x), groups(x)[T -> S], groups(x)[T -> S]]\n"
     "return dot(softmax(mask(dot(q, k, D), T >= S), (S, H)), v, (S))",
     0},
};

Test(attention_forms, equal_what_is_written) {
  for (int i = 0; i < ARRAY_LENGTH(forms); i++) {
    const struct Form *form = &forms[i];
    Module *module = module_create();
    Model *model = read_form(
        module, form->name,
        arena_printf(module->arena, "%s%s%s", BEFORE, form->body, AFTER));
    Graph *written = after(module, model, "autodiff", 0);
    Graph *made = after(module, model, "autodiff", 2);
    cr_expect_eq(count(made, OP_attention), form->n_attention, "%s: %d",
                 form->name, count(made, OP_attention));
    cr_expect_eq(count(made, OP_attention_grad), form->n_attention, "%s",
                 form->name);
    compare(form->name, 1e-12, written, made);
    compare(form->name, 1e-12, after(module, model, "optimizer", 0),
            after(module, model, NULL, 2));
  }
}
