// links: frontend passes ir
/*
 * expert_forms.c -- tests mixtures of experts in the forms that models write.
 *
 * The forms differ in tokens, groups, capacities and orders of dims.  Loss and
 * gradients after the passes must equal those of the graph as written, and
 * capacity slots must hold the tokens that the language promises.
 */
#include "tests/unit/forms.h"

/* Products of constants are rounded to f32 where they are folded. */
#define TOLERANCE 1e-7

TestSuite(expert_forms, .fini = modules_destroy);

#define BEFORE                                                                 \
  "dim B = 4, T = 6, H = 3, C = 5, E = 3, F = 7\n"                             \
  "layer gated(x: [..., C]) {\n"                                               \
  "  param w: [C, E] = normal(1.0)\n"                                          \
  "  return softmax(dot(x, w, C), E)\n"                                        \
  "}\n"                                                                        \
  "layer expert(t: [..., E, C]) {\n"                                           \
  "  param w1: [E, C, F] = normal(0.5)\n"                                      \
  "  param w2: [E, F, C] = normal(0.5)\n"                                      \
  "  return dot(gelu(dot(t, w1, C)), w2, F)\n"                                 \
  "}\n"                                                                        \
  "net f(x: f32[B, T, C], z: f32[B, H, T, C]) {\n"

#define AFTER                                                                  \
  "\n}\n"                                                                      \
  "data d {\n"                                                                 \
  "  x: f32[B, T, C] = synthetic()\n"                                          \
  "  z: f32[B, H, T, C] = synthetic()\n"                                       \
  "}\n"                                                                        \
  "train {\n"                                                                  \
  "  loss = mean(pow(f(d.x, d.z), 2.0))\n"                                     \
  "  optimizer = sgd(lr = 0.1)\n"                                              \
  "  steps = 1\n"                                                              \
  "}\n"

static const struct Form {
  const char *name, *body;
} forms[] = {
    {"groups of the batch", "g = route(gated(x), E)\n"
                            "return combine(expert(dispatch(x, g, S)), g, S)"},
    {"two of three experts", "g = route(gated(x), E, top = 2, capacity = 0.8)\n"
                             "return combine(expert(dispatch(x, g, S)), g, S)"},
    {"all experts, room for all",
     "g = route(gated(x), E, top = 3, capacity = 1)\n"
     "return combine(expert(dispatch(x, g, S)), g, S)"},
    {"one slot", "g = route(gated(x), E, capacity = 0.01)\n"
                 "return combine(expert(dispatch(x, g, S)), g, S)"},
    {"more slots than tokens",
     "g = route(gated(x), E, capacity = 7)\n"
     "return combine(expert(dispatch(x, g, S)), g, S)"},
    {"no group", "g = route(gated(x), E, top = 2, group = ())\n"
                 "return combine(expert(dispatch(x, g, S)), g, S)"},
    {"groups of two dims", "g = route(gated(z), E, group = (H, B))\n"
                           "return combine(expert(dispatch(z, g, S)), g, S)"},
    {"tokens of two dims", "g = route(gated(z), E, top = 2)\n"
                           "return combine(expert(dispatch(z, g, S)), g, S)"},
    {"a sample is a token", "x = mean(x, T)\n"
                            "g = route(gated(x), E, group = ())\n"
                            "return combine(expert(dispatch(x, g, S)), g, S)"},
    {"a group without tokens",
     "x = mean(x, T)\n"
     "g = route(gated(x), E, top = 2)\n"
     "return combine(expert(dispatch(x, g, S)), g, S)"},
    {"heads go with their token",
     "g = route(gated(x), E, top = 2)\n"
     "return combine(expert(dispatch(z, g, S)), g, S)"},
    {"gate of other tokens than what is moved",
     "g = route(gated(mean(z, H)), E, top = 2)\n"
     "return combine(dispatch(x, g, S) * 2, g, S)"},
    {"one gate, twice", "g = route(gated(x), E)\n"
                        "t = dispatch(x, g, S)\n"
                        "y = combine(expert(t), g, S)\n"
                        "return y + combine(dispatch(y, g, R), g, R)"},
    {"balanced", "g = route(gated(x), E, top = 2)\n"
                 "add_loss(0.1 * balance(g))\n"
                 "return combine(expert(dispatch(x, g, S)), g, S)"},
    {"balanced over all", "g = route(gated(z), E, group = ())\n"
                          "add_loss(balance(g))\n"
                          "return combine(expert(dispatch(z, g, S)), g, S)"},
    {"the largest alone", "v, i = topk(gated(x), 2, E, J)\n"
                          "return v / sum(v, J) + cast(i, f32)"},
};

Test(expert_forms, equal_what_is_written) {
  for (int i = 0; i < ARRAY_LENGTH(forms); i++) {
    const struct Form *form = &forms[i];
    Module *module = module_create();
    Model *model = read_form(
        module, form->name,
        arena_printf(module->arena, "%s%s%s", BEFORE, form->body, AFTER));
    compare(form->name, TOLERANCE, after(module, model, "autodiff", 0),
            after(module, model, "autodiff", 2));
    compare(form->name, TOLERANCE, after(module, model, "optimizer", 0),
            after(module, model, NULL, 2));
  }
}

/* Tokens that nothing has changed come back: with room for all each as it was,
 * with too little some as 0 and the others as they were. */
static void moved(const char *route, bool has_room) {
  Module *module = module_create();
  const char *body = arena_printf(module->arena,
                                  "g = %s\nreturn combine(dispatch(x, g, S), "
                                  "g, S)",
                                  route);
  Model *model =
      read_form(module, route,
                arena_printf(module->arena, "%s%s%s", BEFORE, body, AFTER));
  const Graph *graph = model->train;
  Tensor *inputs = ARENA_ARRAY(module->arena, Tensor, graph->inputs.n);
  Tensor *outputs = ARENA_ARRAY(module->arena, Tensor, graph->outputs.n);
  Tensor *values = ARENA_ARRAY(module->arena, Tensor, graph->nodes.n);
  const double *x = NULL;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    inputs[i] = tensor_random(module->arena, graph_type(graph, input->value),
                              (uint64_t)i, 0.5, 1);
    if (!strcmp(input->path, "d.x")) x = inputs[i].data;
  }
  interp_run(graph, INTERP_f64, module->arena, inputs, outputs, values);
  int last = -1, n_dropped = 0;
  for (int id = 0; id < graph->nodes.n; id++)
    if (!strcmp(graph->nodes.data[id]->path, "combine")) last = id;
  cr_assert_geq(last, 0);
  int64_t n = type_elements(values[last].type);
  for (int64_t k = 0; k < n; k++) {
    double y = values[last].data[k];
    n_dropped += y == 0;
    cr_assert(y == 0 || fabs(y - x[k]) < 1e-12, "%s: %.17g of %.17g", route, y,
              x[k]);
  }
  cr_expect_eq(n_dropped == 0, has_room, "%s: %d", route, n_dropped);
}

/* The weights of all that is chosen add up to 1; those of one choice are p. */
Test(expert_forms, tokens_come_back) {
  moved("route(gated(x), E, top = 2, capacity = 3)", true);
  moved("route(gated(x), E, top = 3, capacity = 1)", true);
  moved("route(gated(x) * 0 + 1, E, capacity = 1)", false);
}
