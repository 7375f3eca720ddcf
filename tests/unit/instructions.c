// links: verify driver codegen frontend passes runtime ir support
/*
 * instructions.c -- tests of the lists of instructions.
 *
 *   tests/golden/instructions/NAME.txt    the list of a model under a plan
 *   tests/golden/instructions_wrong.txt   a graph, then lists of it that may
 *                                         not be executed, or cannot be read
 *
 * Every list is printed, read back and printed again.  Then each instruction in
 * turn is left out, and written twice: the check must notice.  DNNC_BLESS=1
 * writes the lists and the messages.
 */
#include "driver/driver.h"
#include "tests/unit/play_model.h"

TestSuite(instructions, .fini = modules_destroy);

typedef struct ListCase {
  const char *name, *model, *plan, *sizes, *target;
} ListCase;

static const ListCase cases[] = {
    {"one_rank", "benchmarks/systems/mlp.dnn", NULL, "", "cpu"},
    {"data", "benchmarks/systems/mlp.dnn", "data", "", "cpu"},
    {"zero3_microbatches", "benchmarks/systems/gpt.dnn", "zero3_microbatches",
     "L=1", "cpu"},
    {"zero3_momentum", "models/mlp.dnn", "zero3_microbatches", "", "cpu"},
    {"tensor", "benchmarks/systems/gpt.dnn", "tensor", "L=1", "cpu"},
    {"two_axes_cuda", "benchmarks/systems/mlp.dnn", "two_layers", "", "cuda"},
    {"offload", "benchmarks/systems/gpt.dnn", "offload", "L=1", "cpu"},
    {"scan", "models/reverse.dnn", "data", "B=8 S=6 C=8 eval_batches=1", "cpu"},
};

static const InstructionList *list_of(Module *module, const ListCase *one) {
  CompileOptions *options = ARENA_NEW(module->arena, CompileOptions);
  *options = (CompileOptions){
      .path = arena_printf(module->arena, "%s/%s", TEST_ROOT, one->model),
      .plan = one->plan
                  ? arena_printf(module->arena, "%s/benchmarks/plans/%s.plan",
                                 TEST_ROOT, one->plan)
                  : NULL,
      .target = one->target,
      .follows_links = true,
      .level = 2};
  options->overrides =
      play_overrides(module->arena, one->sizes, &options->n_overrides);
  Compilation c;
  cr_assert_eq(driver_load(module, options, &c), COMPILE_done, "%s", one->name);
  Graph *graph = driver_graph(&c, ENTRY_train);
  graph = driver_run_passes(&c, ENTRY_train, graph, 0);
  cr_assert_not_null(graph, "%s", one->name);
  return driver_instructions(&c, graph);
}

static const char *text_of(Module *module, const InstructionList *list) {
  Text out = text_create(module->arena);
  instructions_print(&out, list);
  return text_string(&out);
}

static const char *read_golden(Module *module, const char *path) {
  const char *bytes;
  size_t n;
  Status status = file_read(module->arena, path, 1 << 20, &bytes, &n);
  cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
  return bytes;
}

static const InstructionList *parse_list(Module *module, const Graph *graph,
                                         const char *text) {
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){.path = "list", .text = text, .n = strlen(text)};
  return instructions_parse(module, graph, source);
}

static void check_golden(Module *module, const ListCase *one,
                         const char *text) {
  const char *path =
      arena_printf(module->arena, "%s/tests/golden/instructions/%s.txt",
                   TEST_ROOT, one->name);
  if (getenv("DNNC_BLESS")) {
    Status status = file_replace(path, text, strlen(text));
    cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
    return;
  }
  cr_expect_str_eq(text, read_golden(module, path), "%s: got\n%s", one->name,
                   text);
}

Test(instructions, lists) {
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Module *module = module_create();
    const InstructionList *list = list_of(module, &cases[i]);
    const char *text = text_of(module, list);
    check_golden(module, &cases[i], text);
    Text errors = text_create(module->arena);
    cr_expect(instructions_check(list, &errors), "%s: %s", cases[i].name,
              text_string(&errors));
    const InstructionList *back = parse_list(module, list->graph, text);
    diags_print(module->diags, &errors);
    cr_assert_not_null(back, "%s: %s", cases[i].name, text_string(&errors));
    cr_expect(instructions_check(back, NULL), "%s", cases[i].name);
    cr_expect_str_eq(text_of(module, back), text, "%s", cases[i].name);
  }
}

/* ---- messages ---- */

static int count_blocking(const InstructionList *list) {
  int n = 0;
  for (int i = 0; i < list->instructions.n; i++) {
    const Instruction *in = &list->instructions.data[i];
    n += in->kind == INSTRUCTION_start &&
         list->queues.data[in->queue].kind == QUEUE_blocking;
  }
  return n;
}

/* Nine norms; nothing else in this model waits for a message. */
Test(instructions, a_batch_norm_sends_one_message_a_pass) {
  static const char *const targets[] = {"cpu", "cuda"};
  for (int i = 0; i < ARRAY_LENGTH(targets); i++) {
    const ListCase one = {"norms", "models/resnet_mnist.dnn", "data", "",
                          targets[i]};
    cr_expect_eq(count_blocking(list_of(module_create(), &one)), 2 * 9,
                 "%s: %d", targets[i],
                 count_blocking(list_of(module_create(), &one)));
  }
}

/* ---- wrong lists ---- */

/* The list with the instruction `at` as often as `times` says. */
static InstructionList repeat_one(Arena *arena, const InstructionList *list,
                                  int at, int times) {
  InstructionList changed = {.graph = list->graph, .queues = list->queues};
  for (int i = 0; i < list->instructions.n; i++)
    for (int n = i == at ? times : 1; n > 0; n--)
      vec_push(arena, &changed.instructions, list->instructions.data[i]);
  return changed;
}

Test(instructions, no_instruction_can_be_left_out_or_doubled) {
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Module *module = module_create();
    const InstructionList *list = list_of(module, &cases[i]);
    for (int at = 0; at < list->instructions.n; at++)
      for (int times = 0; times <= 2; times += 2) {
        InstructionList changed = repeat_one(module->arena, list, at, times);
        cr_expect(!instructions_check(&changed, NULL), "%s: %d, %d times",
                  cases[i].name, at, times);
      }
  }
}

/* The messages of a list that is wrong. */
static const char *messages_of(Module *module, const Graph *graph,
                               const char *text) {
  module->diags = diags_create(module->arena);
  Text out = text_create(module->arena);
  const InstructionList *list = parse_list(module, graph, text);
  if (list)
    cr_expect(!instructions_check(list, &out), "accepted:\n%s", text);
  else
    diags_print(module->diags, &out);
  return text_string(&out);
}

/* The file is the graph, then for each list "=== what is wrong", the list,
 * "---" and its messages. */
Test(instructions, wrong_lists) {
  Module *module = module_create();
  const char *path = TEST_ROOT "/tests/golden/instructions_wrong.txt";
  const char *golden = read_golden(module, path);
  const char *at = strstr(golden, "\n=== ");
  Text out = text_create(module->arena);
  Source source = {.path = "graph", .text = golden};
  source.n = (size_t)(at - golden);
  source.text = arena_printf(module->arena, "%.*s", (int)source.n, golden);
  const Graph *graph = graph_parse(module, &source);
  cr_assert_not_null(graph);
  text_add_n(&out, golden, source.n);
  int n = 0;
  for (; at; n++) {
    const char *begin = strchr(at + 1, '\n') + 1, *end = strstr(begin, "---\n");
    cr_assert_not_null(end);
    const char *list =
        arena_printf(module->arena, "%.*s", (int)(end - begin), begin);
    text_add_n(&out, at, (size_t)(end + 4 - at));
    text_add(&out, messages_of(module, graph, list));
    at = strstr(end, "\n=== ");
  }
  cr_expect_geq(n, 20);
  if (getenv("DNNC_BLESS"))
    file_replace(path, text_string(&out), out.n);
  else
    cr_expect_str_eq(text_string(&out), golden, "got\n%s", text_string(&out));
}

/* One reader of a gradient wants the sum of all micro-batches, another one may
 * want that of each. */
Test(instructions, a_gradient_is_scattered_and_accumulated_once) {
  static const ListCase one = {"once", "models/mlp.dnn", "zero3_microbatches",
                               "", "cpu"};
  Module *module = module_create();
  const InstructionList *list = list_of(module, &one);
  int scattered = 0, accumulated = 0, params = 0;
  for (int id = 0; id < list->graph->nodes.n; id++) {
    const Node *node = list->graph->nodes.data[id];
    if (node->op == OP_reduce_scatter) scattered += node->n_results;
    accumulated += node->op == OP_accumulate;
  }
  for (int i = 0; i < list->graph->inputs.n; i++)
    params += list->graph->inputs.data[i].role == ROLE_param;
  cr_assert_eq(params, 6);
  cr_assert_eq(scattered, params);
  cr_assert_eq(accumulated, params + 1, "the loss is the other one");
}
