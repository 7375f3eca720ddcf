// links: interp ir
/*
 * shardrule.c -- tests a table of how placements pass through operators, and
 * the plan of data parallelism as text.
 *
 * A case is one node over placed operands; the rule is asked what it wants of
 * each operand (written only where it is not what the operand has) and what its
 * results are.
 */
#include "ir/plan/plan.h"
#include "tests/unit/values.h"

TestSuite(plan, .fini = modules_destroy);
TestSuite(shardrule, .fini = modules_destroy);

#define MESH "mesh(data = 2, model = 2, time = 2~)"

typedef struct Case {
  const char *operands[6]; /* types */
  const char *node;        /* operator and attributes, with logical types */
  const char *expected;    /* "wanted, ...; result, ..." */
} Case;

static const Case cases[] = {
    /* a dim keeps its split */
    {{"f32[B:8@data, C:4]"}, "exp %0 : f32[B:8, C:4]", "-; f32[B:8@data, C:4]"},
    {{"f32[B:8@(data, time)]", "f32[B:8@(data, time), C:4]"},
     "add %0, %1 : f32[B:8, C:4]",
     "-, -; f32[B:8@(data, time), C:4]"},
    {{"f32[B:8@data]", "f32[C:4@model]"},
     "mul %0, %1 : f32[B:8, C:4]",
     "-, -; f32[B:8@data, C:4@model]"},
    /* who has the dim whole takes a piece; one axis cuts one dim */
    {{"f32[B:8@data]", "f32[B:8]"},
     "add %0, %1 : f32[B:8]",
     "-, f32[B:8@data]; f32[B:8@data]"},
    {{"f32[B:8]", "f32[B:8@data]"},
     "add %0, %1 : f32[B:8]",
     "f32[B:8@data], -; f32[B:8@data]"},
    {{"f32[B:8@data]", "f32[C:4@data]"},
     "mul %0, %1 : f32[B:8, C:4]",
     "-, f32[C:4]; f32[B:8@data, C:4]"},
    {{"f32[B:8@data]", "f32[B:8@model]"},
     "add %0, %1 : f32[B:8]",
     "-, f32[B:8@data]; f32[B:8@data]"},
    /* contracted and reduced dims leave partial values */
    {{"f32[B:8@data, C:4]", "f32[C:4, F:6]"},
     "dot %0, %1 {over = [C]} : f32[B:8, F:6]",
     "-, -; f32[B:8@data, F:6]"},
    {{"f32[B:8@(data, time), C:4]", "f32[B:8@(data, time), F:6]"},
     "dot %0, %1 {over = [B]} : f32[C:4, F:6]",
     "-, -; f32[C:4, F:6; sum@(data, time)]"},
    {{"f32[B:8@data, C:4@model]", "f32[C:4, F:6]"},
     "dot %0, %1 {over = [C]} : f32[B:8, F:6]",
     "-, f32[C:4@model, F:6]; f32[B:8@data, F:6; sum@model]"},
    {{"f32[B:8@data, C:4@model]"},
     "sum %0 {over = [B, C]} : f32[]",
     "-; f32[; sum@(data, model)]"},
    {{"f32[B:8@data]"}, "max %0 {over = [B]} : f32[]", "-; f32[; max@data]"},
    {{"f32[B:8@data]"}, "min %0 {over = [B]} : f32[]", "-; f32[; min@data]"},
    {{"f32[B:8@data, C:4]"},
     "sum %0 {over = [C]} : f32[B:8]",
     "-; f32[B:8@data]"},
    /* dims that an operator needs whole */
    {{"f32[B:8@data, C:4@model]"},
     "softmax %0 {over = [C]} : f32[B:8, C:4]",
     "f32[B:8@data, C:4]; f32[B:8@data, C:4]"},
    {{"f32[S:8@data, C:4@model]", "f32[C:4]", "i32[]"},
     "update_slice %0, %1, %2 {dim = S} : f32[S:8, C:4]",
     "f32[S:8, C:4@model], f32[C:4@model], -; f32[S:8, C:4@model]"},
    {{"f32[B:8@data, C:4]"},
     "argmax %0 {dim = B} : i32[C:4]",
     "f32[B:8, C:4]; i32[C:4]"},
    {{"f32[V:8, C:4@model]", "i32[B:8@data]"},
     "gather %0, %1 {dim = V} : f32[B:8, C:4]",
     "-, -; f32[B:8@data, C:4@model]"},
    {{"f32[B:8@data, C:4]", "i32[B:8@data]"},
     "scatter_add %0, %1 {over = [B], dim = V, sizes = [9]} : f32[V:9, C:4]",
     "-, -; f32[V:9, C:4; sum@data]"},
    {{"f32[B:8@data, C:4]", "f32[B:8@data, C:4]"},
     "concat %0, %1 {dim = C} : f32[B:8, C:8]",
     "-, -; f32[B:8@data, C:8]"},
    /* windows */
    {{"f32[N:8@data, C:4, Y:6]", "f32[O:2, C:4, Y:3]"},
     "conv %0, %1 {dim = C, space = [Y]} : f32[N:8, Y:4, O:2]",
     "-, -; f32[N:8@data, Y:4, O:2]"},
    {{"f32[N:8@data, Y:4, O:2]", "f32[O:2, C:4, Y:3]"},
     "conv_input_grad %0, %1 {dim = C, space = [Y], to = [O], sizes = [6]} : "
     "f32[N:8, Y:6, C:4]",
     "-, -; f32[N:8@data, Y:6, C:4]"},
    {{"f32[N:8@data, C:4, Y:6]", "f32[N:8@data, Y:4, O:2]"},
     "conv_weight_grad %0, %1 {over = [N], dim = C, space = [Y], to = [O], "
     "window = [3]} : f32[O:2, C:4, Y:3]",
     "-, -; f32[O:2, C:4, Y:3; sum@data]"},
    {{"f32[N:8@data, C:4, Y:6]", "f32[N:8@data, Y:4, O:2]"},
     "conv_weight_grad %0, %1 {dim = C, space = [Y], to = [O], window = [3]} "
     ": f32[O:2, C:4, Y:3]",
     "-, -; f32[O:2, C:4, Y:3; sum@data]"},
    {{"f32[N:8@data, Y:6@model]"},
     "maxpool %0 {space = [Y], window = [2]} : f32[N:8, Y:3]",
     "f32[N:8@data, Y:6]; f32[N:8@data, Y:3]"},
    /* experts: a group passes, the tokens of a group are not split */
    {{"f32[B:8@data, E:4@model]"},
     "topk %0 {dim = E, to = [J], sizes = [2]} : f32[B:8, J:2], i32[B:8, J:2]",
     "f32[B:8@data, E:4]; f32[B:8@data, J:2], i32[B:8@data, J:2]"},
    {{"i32[B:8@data, T:6@model]"},
     "route %0 {over = [T], to = [E, S], sizes = [4, 2]} : i32[B:8, T:6]",
     "i32[B:8@data, T:6]; i32[B:8@data, T:6]"},
    {{"i32[B:8@data, T:6]"},
     "route %0 {over = [B, T], to = [E, S], sizes = [4, 9]} : i32[B:8, T:6]",
     "i32[B:8, T:6]; i32[B:8, T:6]"},
    {{"i32[B:8@data, T:6]"},
     "route_inverse %0 {over = [T], to = [E, S], sizes = [4, 2]} : i32[E:4, "
     "S:2, B:8]",
     "-; i32[E:4, S:2, B:8@data]"},
    {{"f32[B:8@data, T:6, C:4@model]", "i32[B:8@data, T:6]",
      "i32[E:4, S:2, B:8@data]"},
     "dispatch %0, %1, %2 {over = [T], to = [E, S]} : "
     "f32[E:4, S:2, B:8, C:4]",
     "-, -, -; f32[E:4, S:2, B:8@data, C:4@model]"},
    {{"f32[E:4@model, S:2, B:8@data, C:4]", "i32[B:8@data, T:6]",
      "i32[E:4, S:2, B:8@data]"},
     "combine %0, %1, %2 {over = [T], to = [E, S]} : f32[B:8, T:6, C:4]",
     "f32[E:4, S:2, B:8@data, C:4], -, -; f32[B:8@data, T:6, C:4]"},
    /* attention: keys and head width whole, the rest passes */
    {{"f32[B:8@data, T:4, H:2@model, D:3]",
      "f32[B:8@data, S:4, H:2@model, D:3]",
      "f32[B:8@data, S:4@time, H:2@model, D:3]"},
     "attention %0, %1, %2 {over = [D], query = T, key = S} : "
     "f32[B:8, T:4, H:2, D:3], f32[B:8, T:4, H:2]",
     "-, -, f32[B:8@data, S:4, H:2@model, D:3]; "
     "f32[B:8@data, T:4, H:2@model, D:3], f32[B:8@data, T:4, H:2@model]"},
    /* queries, and heads that share keys, add to the gradients of these */
    {{"f32[B:8@data, T:4@model, D:3]", "f32[B:8@data, S:4@model, D:3]",
      "f32[B:8@data, S:4, D:3]"},
     "attention %0, %1, %2 {over = [D], query = T, key = S, causal = 1} : "
     "f32[B:8, T:4, D:3], f32[B:8, T:4]",
     "-, f32[B:8@data, S:4, D:3], -; "
     "f32[B:8@data, T:4@model, D:3], f32[B:8@data, T:4@model]"},
    {{"f32[T:4@data, H:2@model, D:3]", "f32[S:4, D:3]", "f32[S:4, D:3]",
      "f32[T:4@data, H:2@model, D:3]", "f32[T:4@data, H:2@model]",
      "f32[T:4@data, H:2@model, D:3]"},
     "attention_grad %0, %1, %2, %3, %4, %5 {over = [D], query = T, key = S} : "
     "f32[T:4, H:2, D:3], f32[S:4, D:3], f32[S:4, D:3]",
     "-, -, -, -, -, -; f32[T:4@data, H:2@model, D:3], "
     "f32[S:4, D:3; sum@(data, model)], f32[S:4, D:3; sum@(data, model)]"},
    /* partial values: linear in all operands */
    {{"f32[C:4; sum@data]"}, "neg %0 : f32[C:4]", "-; f32[C:4; sum@data]"},
    {{"f32[C:4; sum@data]"}, "exp %0 : f32[C:4]", "f32[C:4]; f32[C:4]"},
    {{"f32[C:4; sum@data]", "f32[C:4; sum@data]"},
     "add %0, %1 : f32[C:4]",
     "-, -; f32[C:4; sum@data]"},
    {{"f32[C:4; sum@data]", "f32[]"},
     "add %0, %1 : f32[C:4]",
     "f32[C:4], -; f32[C:4]"},
    {{"f32[C:4; sum@(data, time)]", "f32[C:4; sum@data]"},
     "sub %0, %1 : f32[C:4]",
     "f32[C:4], f32[C:4]; f32[C:4]"},
    {{"f32[C:4; max@data]"}, "neg %0 : f32[C:4]", "f32[C:4]; f32[C:4]"},
    {{"f32[C:4; max@data]"},
     "transpose %0 {order = [C]} : f32[C:4]",
     "-; f32[C:4; max@data]"},
    {{"f32[B:8@model, C:4; sum@time]"},
     "sum %0 {over = [B]} : f32[C:4]",
     "-; f32[C:4; sum@(model, time)]"},
    /* ... in each alone */
    {{"f32[C:4; sum@data]", "f32[]"},
     "mul %0, %1 : f32[C:4]",
     "-, -; f32[C:4; sum@data]"},
    {{"f32[]", "f32[C:4; sum@data]"},
     "mul %0, %1 : f32[C:4]",
     "-, -; f32[C:4; sum@data]"},
    {{"f32[C:4; sum@data]", "f32[C:4; sum@data]"},
     "mul %0, %1 : f32[C:4]",
     "f32[C:4], f32[C:4]; f32[C:4]"},
    {{"f32[C:4; sum@data]", "f32[B:8@data]"},
     "mul %0, %1 : f32[C:4, B:8]",
     "f32[C:4], -; f32[C:4, B:8@data]"},
    {{"f32[C:4; sum@data]", "f32[B:8@model]"},
     "mul %0, %1 : f32[C:4, B:8]",
     "-, -; f32[C:4, B:8@model; sum@data]"},
    /* ... in the first only */
    {{"f32[C:4; sum@data]", "f32[C:4]"},
     "div %0, %1 : f32[C:4]",
     "-, -; f32[C:4; sum@data]"},
    {{"f32[C:4]", "f32[C:4; sum@data]"},
     "div %0, %1 : f32[C:4]",
     "-, f32[C:4]; f32[C:4]"},
    /* views */
    {{"f32[B:8@data, C:4; sum@model]"},
     "rename %0 {from = [B, C], to = [C, B]} : f32[C:8, B:4]",
     "-; f32[C:8@data, B:4; sum@model]"},
    {{"f32[B:8@data]"},
     "split_dim %0 {dim = B, to = [G, H], sizes = [4, 2]} : f32[G:4, H:2]",
     "-; f32[G:4@data, H:2]"},
    {{"f32[B:9@data]"},
     "split_dim %0 {dim = B, to = [G, H], sizes = [3, 3]} : f32[G:3, H:3]",
     "f32[B:9]; f32[G:3, H:3]"},
    {{"f32[G:4@data, H:2, X:4@model]"},
     "merge_dims %0 {dim = B, from = [G, H]} : f32[B:8, X:4]",
     "-; f32[B:8@data, X:4@model]"},
    {{"f32[G:4, H:2@data]"},
     "merge_dims %0 {dim = B, from = [G, H]} : f32[B:8]",
     "f32[G:4, H:2]; f32[B:8]"},
    /* dims of one element are no parts that could be slower */
    {{"f32[G:1, H:8@data, X:4@model]"},
     "merge_dims %0 {dim = B, from = [G, H]} : f32[B:8, X:4]",
     "-; f32[B:8@data, X:4@model]"},
    {{"f32[B:8@data]"},
     "split_dim %0 {dim = B, to = [F, G, H], sizes = [1, 4, 2]} : f32[F:1, "
     "G:4, H:2]",
     "-; f32[F:1, G:4@data, H:2]"},
    {{"f32[G:3@data, H:2]"},
     "merge_dims %0 {dim = H, from = [G, H]} : f32[H:6]",
     "f32[G:3, H:2]; f32[H:6]"},
    {{"f32[C:4@data]"},
     "broadcast %0 {to = [B], sizes = [8]} : f32[B:8, C:4]",
     "-; f32[B:8, C:4@data]"},
};

static Graph *graph_of(Module *module, const Case *c) {
  Text text = text_create(module->arena);
  text_add(&text, "graph g " MESH " {\n");
  for (int i = 0; i < 6 && c->operands[i]; i++) {
    text_printf(&text, "%%%d = input {index = %d} : %s data \"%d\"\n", i, i,
                c->operands[i], i);
  }
  bool is_pair = strncmp(c->node, "attention ", 10) == 0 ||
                 strncmp(c->node, "topk ", 5) == 0;
  bool is_triple = strncmp(c->node, "attention_grad ", 15) == 0;
  text_printf(&text, "%s = %s }",
              is_triple ? "%7, %8, %9"
              : is_pair ? "%8, %9"
                        : "%9",
              c->node);
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){"case", text_string(&text), text.n};
  Graph *graph = graph_parse(module, source);
  Text errors = text_create(module->arena);
  diags_print(module->diags, &errors);
  cr_assert(graph, "%s", text_string(&errors));
  cr_assert(graph_verify(graph, &errors), "%s", text_string(&errors));
  return graph;
}

static const char *placed(Graph *graph) {
  const Node *node = graph->nodes.data[graph->nodes.n - 1];
  const Type *inputs[6], *wanted[6], *results[3];
  for (int i = 0; i < node->n_inputs; i++) {
    inputs[i] = graph_type(graph, node->inputs[i]);
  }
  Arena *arena = graph->module->arena;
  shard_infer(graph, node->op, node->attrs, node->n_attrs, inputs,
              node->n_inputs, node->types, node->n_results, arena, wanted,
              results);
  Text out = text_create(arena);
  for (int i = 0; i < node->n_inputs; i++) {
    if (i) text_add(&out, ", ");
    if (wanted[i] == inputs[i]) {
      text_add(&out, "-");
    } else {
      type_print(&out, wanted[i], &graph->mesh);
    }
  }
  for (int i = 0; i < node->n_results; i++) {
    text_add(&out, i ? ", " : "; ");
    type_print(&out, results[i], &graph->mesh);
  }
  return text_string(&out);
}

Test(shardrule, table) {
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Module *module = module_create();
    cr_expect_str_eq(placed(graph_of(module, &cases[i])), cases[i].expected,
                     "%s", cases[i].node);
  }
}

/* Asked with what it wanted, a rule wants no more and gives the same. */
static void check_settled(Graph *graph, const char *name) {
  Node *node = graph->nodes.data[graph->nodes.n - 1];
  Arena *arena = graph->module->arena;
  const Type *inputs[6], *wanted[6], *again[6], *first[3], *second[3];
  for (int i = 0; i < node->n_inputs; i++) {
    inputs[i] = graph_type(graph, node->inputs[i]);
  }
  shard_infer(graph, node->op, node->attrs, node->n_attrs, inputs,
              node->n_inputs, node->types, node->n_results, arena, wanted,
              first);
  shard_infer(graph, node->op, node->attrs, node->n_attrs, wanted,
              node->n_inputs, node->types, node->n_results, arena, again,
              second);
  for (int i = 0; i < node->n_inputs; i++) {
    cr_expect(type_equal(wanted[i], again[i]), "%s", name);
  }
  for (int i = 0; i < node->n_results; i++) {
    cr_expect(type_equal(first[i], second[i]), "%s", name);
  }
}

Test(shardrule, settles_at_once) {
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Module *module = module_create();
    check_settled(graph_of(module, &cases[i]), cases[i].node);
  }
}

static const char *plan_text(Module *module, int ranks, int64_t microbatches) {
  Plan *plan =
      plan_data_parallel(module, name_intern(module->names, "gpt2"),
                         name_intern(module->names, "B"), ranks, microbatches);
  Text out = text_create(module->arena);
  plan_print(&out, plan);
  return text_string(&out);
}

Test(plan, data_parallel_text) {
  Module *module = module_create();
  cr_expect_str_eq(plan_text(module, 4, 8), "mesh {\n"
                                            "  data = 4\n"
                                            "}\n"
                                            "\n"
                                            "plan gpt2 {\n"
                                            "  microbatches = 8\n"
                                            "  zero         = 0\n"
                                            "  bucket       = 25MB\n"
                                            "  prefetch     = 25MB\n"
                                            "\n"
                                            "  shard B over data\n"
                                            "}\n");
  cr_expect(!strstr(plan_text(module, 1, 8), "shard"));
}

Test(plan, without_time) {
  Module *module = module_create();
  Plan *plan = plan_data_parallel(module, name_intern(module->names, "m"),
                                  name_intern(module->names, "B"), 2, 8);
  cr_expect_eq(plan_mesh(plan)->n_axes, 2);
  cr_expect(plan_mesh(plan)->axes[1].is_sequential);
  plan_drop_time(plan);
  cr_expect_eq(plan_mesh(plan)->n_axes, 1);
  cr_expect_eq(plan->microbatches, 1);
  cr_expect_eq(plan->shards.data[0].n_axes, 1);
}
