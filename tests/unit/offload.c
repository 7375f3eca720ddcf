// links: verify driver codegen frontend passes runtime ir support
/*
 * offload.c -- puts faults into programs that swap values to host memory and
 * back, each by a number, and looks whether they are found: by the check of the
 * list of instructions, on which codegen rests, or by the player, in exact
 * mode.  In programs of stages the faults are in the stages in turn.
 */
#include "passes/buffers/offload.h"
#include "tests/unit/play_model.h"
#include "verify/verify_steps.h"

TestSuite(offload, .fini = modules_destroy, .timeout = 600);

#define PLAN(name)      TEST_ROOT "/benchmarks/plans/" name ".plan"
#define TEST_PLAN(name) TEST_ROOT "/tests/plans/" name ".plan"

static const PlayCase cases[] = {
    {.model = "benchmarks/systems/gpt.dnn",
     .sizes = "B=4 T=4 V=8 C=4 H=2 L=2",
     .plan = PLAN("offload")},
    {.model = "models/charlstm.dnn",
     .sizes = "B=4 T=3 V=5 E=2 C=3",
     .plan = TEST_PLAN("offload_lstm")},
    {.model = "models/vgg16.dnn",
     .sizes = "depths=[1,1,1,1,1] width=2 N=8 F=8 K=8 side=32",
     .plan = TEST_PLAN("offload_vgg")},
    {.model = "benchmarks/systems/gpt.dnn",
     .sizes = "B=4 T=4 V=8 C=4 H=2 L=2",
     .plan = TEST_PLAN("offload_1f1b")},
    {.model = "benchmarks/systems/gpt.dnn",
     .sizes = "B=4 T=4 V=8 C=4 H=2 L=4",
     .plan = TEST_PLAN("offload_zbh1")},
    {.model = "benchmarks/systems/gpt.dnn",
     .sizes = "B=4 T=4 V=8 C=4 H=2 L=4",
     .plan = TEST_PLAN("offload_interleaved")},
};

/* The training step of a case, which faults are put into. */
typedef struct Subject {
  Compilation c;
  VerifySteps steps;
  ProgramStage *stage;
  const Graph *graph;
} Subject;

/* The stage of this number, of those of all classes in turn. */
static ProgramStage *find_stage(const VerifyStep *step, int n_classes,
                                int number) {
  int n = 0;
  for (int c = 0; c < n_classes; c++) n += step->classes[c].entry.stages.n;
  for (int c = 0, at = number % n; c < n_classes; c++) {
    EntryPoint *entry = &step->classes[c].entry;
    if (at < entry->stages.n) return &entry->stages.data[at];
    at -= entry->stages.n;
  }
  return NULL;
}

static void load(Subject *s, const PlayCase *one, int number) {
  Module *module = module_create();
  CompileOptions *options = ARENA_NEW(module->arena, CompileOptions);
  *options = (CompileOptions){
      .path = arena_printf(module->arena, "%s/%s", TEST_ROOT, one->model),
      .plan = one->plan,
      .target = "cpu",
      .follows_links = true,
      .level = 2};
  options->overrides =
      play_overrides(module->arena, one->sizes, &options->n_overrides);
  cr_assert_eq(driver_load(module, options, &s->c), COMPILE_done);
  s->steps = (VerifySteps){0};
  cr_assert_eq(verify_compile(&s->c, module_apart(module, module->arena), false,
                              &s->steps),
               COMPILE_done);
  VerifyStep *train = &s->steps.program.list[0];
  cr_assert_eq(train->id, ENTRY_train);
  s->stage = find_stage(train, s->steps.n_classes, number);
  s->graph = s->stage->graph;
}

static bool is_played_well(Subject *s) {
  VerifyRun run = {.c = &s->c,
                   .steps = &s->steps,
                   .arena = s->c.module->arena,
                   .numbers = {.number = INTERP_exact, .seed = 3},
                   .report = {.equal = ANSWER_yes, .memory_ok = ANSWER_yes}};
  verify_play(&run);
  return run.report.equal == ANSWER_yes && run.report.memory_ok == ANSWER_yes;
}

/* ---- faults in the list ---- */

typedef VEC(int) Places;

static Places find_instructions(const Subject *s, InstructionKind kind,
                                int op) {
  Places places = {0};
  const InstructionList *list = s->stage->instructions;
  for (int i = 0; i < list->instructions.n; i++) {
    const Instruction *in = &list->instructions.data[i];
    int node = kind == INSTRUCTION_wait ? in->collective : in->node;
    if (in->kind != kind || node < 0) continue;
    Op found = s->graph->nodes.data[node]->op;
    if (op < 0 ? op_is(found, OPCLASS_swap) : (int)found == op)
      vec_push(s->graph->module->arena, &places, i);
  }
  return places;
}

static InstructionList *copy_list(const Subject *s) {
  Arena *arena = s->graph->module->arena;
  const InstructionList *list = s->stage->instructions;
  InstructionList *copy = arena_copy(arena, list, sizeof *list);
  copy->instructions.data = arena_copy(arena, list->instructions.data,
                                       sizeof *list->instructions.data *
                                           (size_t)list->instructions.n);
  return copy;
}

/* Moves the instruction at `from` to the place `to`, before or behind. */
static void move_instruction(InstructionList *list, int from, int to) {
  Instruction moved = list->instructions.data[from];
  int step = from < to ? 1 : -1;
  for (int i = from; i != to; i += step)
    list->instructions.data[i] = list->instructions.data[i + step];
  list->instructions.data[to] = moved;
}

static int place_of_node(const InstructionList *list, int node) {
  for (int i = 0; i < list->instructions.n; i++)
    if (list->instructions.data[i].kind != INSTRUCTION_wait &&
        list->instructions.data[i].kind != INSTRUCTION_clear &&
        list->instructions.data[i].node == node)
      return i;
  return -1;
}

/* A swap out starts before the launch that writes its value. */
static bool start_early(Subject *s, int number) {
  Places outs = find_instructions(s, INSTRUCTION_swap, OP_swap_out);
  InstructionList *list = copy_list(s);
  int at = outs.data[number * 7 % outs.n];
  const Node *out = s->graph->nodes.data[list->instructions.data[at].node];
  int producer = offload_root(s->graph, out->inputs[0]).node;
  move_instruction(list, at, place_of_node(list, producer));
  return !instructions_check(list, NULL);
}

/* The wait for a swap in stands behind its reader. */
static bool wait_late(Subject *s, int number) {
  Places all = find_instructions(s, INSTRUCTION_wait, -1), waits = {0};
  InstructionList *list = copy_list(s);
  for (int i = 0; i < all.n; i++) {
    const Instruction *in = &list->instructions.data[all.data[i]];
    if (in->node != in->collective &&
        s->graph->nodes.data[in->collective]->op == OP_swap_in)
      vec_push(s->graph->module->arena, &waits, all.data[i]);
  }
  int at = waits.data[number * 7 % waits.n];
  move_instruction(list, at,
                   place_of_node(list, list->instructions.data[at].node));
  return !instructions_check(list, NULL);
}

/* ---- faults in memory ---- */

static int64_t *offset_of(const Subject *s, Value value) {
  const BufferAssignment *of = s->stage->assignment;
  return &of->offset[of->first_value[value.node] + value.result];
}

/* Puts a value, and the views of it, at other bytes. */
static void move_value(const Subject *s, Value value, int64_t to) {
  int64_t by = to - *offset_of(s, value);
  for (int id = value.node; id < s->graph->nodes.n; id++)
    for (int r = 0; r < s->graph->nodes.data[id]->n_results; r++) {
      Value at = {id, r};
      if (value_equal(offload_root(s->graph, at), value))
        *offset_of(s, at) += by;
    }
}

static int last_reader(const Subject *s, Value value) {
  int last = value.node;
  for (int id = value.node; id < s->graph->nodes.n; id++) {
    const Node *node = s->graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs && node_is_launched(s->graph, id); i++)
      if (value_equal(offload_root(s->graph, node->inputs[i]), value))
        last = id;
  }
  return last;
}

static bool is_of_step(const Subject *s, Value value) {
  Op op = graph_node(s->graph, value)->op;
  return (op == OP_fused || op == OP_dot || op == OP_conv) &&
         !value_is_on_host(s->graph, value) &&
         *offset_of(s, value) >= s->stage->assignment->persistent_bytes;
}

/* A swap in has the bytes of a value that is read later. */
static bool overwrite_slot(Subject *s, int number) {
  typedef struct Pair {
    Value in, other;
  } Pair;
  VEC(Pair) pairs = {0};
  for (int id = 0; id < s->graph->nodes.n; id++)
    for (int k = 0; k < id && s->graph->nodes.data[id]->op == OP_swap_in; k++) {
      Value in = {id, 0}, other = {k, 0};
      if (is_of_step(s, other) && last_reader(s, other) > id)
        vec_push(s->graph->module->arena, &pairs, ((Pair){in, other}));
    }
  cr_assert_gt(pairs.n, 0);
  Pair *pair = &pairs.data[number * 37 % pairs.n];
  move_value(s, pair->in, *offset_of(s, pair->other));
  return !is_played_well(s);
}

/* A launch between a swap out and its end writes the bytes that it reads. */
static bool reuse_early(Subject *s, int number) {
  typedef struct Pair {
    Value out, other;
  } Pair;
  VEC(Pair) pairs = {0};
  for (int id = 0; id < s->graph->nodes.n; id++) {
    const Node *end = s->graph->nodes.data[id];
    if (end->op != OP_swapped) continue;
    Value out = s->graph->nodes.data[end->inputs[0].node]->inputs[0];
    for (int k = end->inputs[0].node + 1; k < id; k++)
      if (is_of_step(s, (Value){k, 0}))
        vec_push(s->graph->module->arena, &pairs, ((Pair){out, {k, 0}}));
  }
  cr_assert_gt(pairs.n, 0);
  Pair *pair = &pairs.data[number * 37 % pairs.n];
  move_value(s, pair->other, *offset_of(s, pair->out));
  return !is_played_well(s);
}

/* All frames of a saved value have one place on the host.  A plan without
 * stages has no frames. */
static bool share_frames(Subject *s, int number) {
  const BufferAssignment *of = s->stage->assignment;
  Places outs = {0};
  if (!of->move_bytes) return true;
  for (int id = 0; id < s->graph->nodes.n; id++) {
    int v = of->first_value[id];
    if (s->graph->nodes.data[id]->op == OP_swap_out && of->move_bytes[v] > 0 &&
        stage_places(s->stage, of->moves_with[v]) > 1)
      vec_push(s->graph->module->arena, &outs, id);
  }
  cr_assert_gt(outs.n, 0);
  Value out = {outs.data[number * 7 % outs.n], 0};
  for (int id = out.node; id < s->graph->nodes.n; id++)
    if (value_equal(offload_root(s->graph, (Value){id, 0}), out))
      of->move_bytes[of->first_value[id]] = 0;
  return !is_played_well(s);
}

static const struct {
  const char *name;
  bool (*is_found)(Subject *s, int number);
  bool is_of_first; /* the stage that has the most frames */
} kinds[] = {
    {"a swap out before its value is written", start_early, false},
    {"a read before its wait", wait_late, false},
    {"a swap in over a live slot", overwrite_slot, false},
    {"a slot that is reused early", reuse_early, false},
    {"a slot for the frames of several micro-batches", share_frames, true}};

Test(offload, faults_are_found) {
  enum { EACH = 5 };
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Subject whole;
    load(&whole, &cases[i], 0);
    cr_assert(is_played_well(&whole), "%s", cases[i].model);
    cr_assert(instructions_check(whole.stage->instructions, NULL));
    modules_destroy();
    for (int k = 0; k < ARRAY_LENGTH(kinds); k++)
      for (int number = 0; number < EACH; number++) {
        Subject s;
        load(&s, &cases[i], kinds[k].is_of_first ? 0 : number);
        cr_expect(kinds[k].is_found(&s, number), "%s: %s, %d", cases[i].model,
                  kinds[k].name, number);
        modules_destroy();
      }
  }
}
