// links: verify driver codegen frontend passes runtime ir support
/*
 * verify_versions.c -- plans whose stages keep versions of their parameters are
 * equal to a history of them on one rank, and faults that are put into the
 * calls of the programs at random are found, but those that change nothing.
 *
 * Replicas that run batches in turn have faults of their own: a batch that goes
 * to another one, a gradient that is left out of the sum or is of another
 * group, an update that one of them makes once more.
 *
 *   DNNC_FAULTS=FIRST:N tries others than the first 25 of each.
 */
#include <stdlib.h>

#include "tests/unit/play_model.h"
#include "verify/play/internal.h"
#include "verify/verify_periods.h"

TestSuite(verify_versions, .fini = modules_destroy, .timeout = 300);

#define PLAN(name) TEST_ROOT "/tests/plans/" name ".plan"
#define MODEL      "tests/e2e/versions.dnn"

/* ---- plans ---- */

static const PlayCase plans[] = {
    {.model = MODEL, .plan = PLAN("pipedream")},
    {.model = MODEL, .plan = PLAN("pipedream_vertical")},
    {.model = MODEL, .plan = PLAN("two_versions")},
    {.model = "benchmarks/systems/lenet.dnn", .plan = PLAN("pipedream_lenet")},
};

static const PlayCase replicas[] = {
    {.model = MODEL, .plan = PLAN("replicas_21")},
    {.model = MODEL, .plan = PLAN("replicas_31")},
    {.model = MODEL, .plan = PLAN("replicas_12")},
    {.model = MODEL, .plan = PLAN("replicas_221")},
    {.model = MODEL, .plan = PLAN("replicas_vertical")},
    {.model = "benchmarks/systems/resnet.dnn", .plan = PLAN("replicas_resnet")},
};

/* Replicas that share out the micro-batches of a batch. */
static const PlayCase shared[] = {
    {.model = MODEL, .plan = PLAN("two_versions_21")},
    {.model = MODEL, .plan = PLAN("two_versions_12")},
    {.model = MODEL, .plan = PLAN("two_versions_221")},
};

static void check_plan(PlayCase one, uint64_t seed) {
  one.seed = seed;
  VerifyReport report = play_case(&one);
  cr_expect_eq(report.equal, ANSWER_yes, "%s: %s %s %s", one.plan, report.step,
               report.path, report.not_compared);
  cr_expect_eq(report.memory_ok, ANSWER_yes, "%s: %s", one.plan,
               report.memory_fault);
  cr_expect(report.messages_match == ANSWER_yes &&
                report.hang_free == ANSWER_yes,
            "%s: %s", one.plan, report.message_fault);
  cr_expect_eq(report.placement_ok, ANSWER_yes, "%s", one.plan);
  cr_expect_not_null(report.versions);
  modules_destroy();
}

Test(verify_versions, plans_are_equal_to_a_history) {
  for (int i = 0; i < ARRAY_LENGTH(plans); i++)
    for (uint64_t seed = 1; seed <= 2; seed++) check_plan(plans[i], seed);
}

Test(verify_versions, replicas_are_equal_to_a_history) {
  for (int i = 0; i < ARRAY_LENGTH(replicas); i++) check_plan(replicas[i], 1);
}

Test(verify_versions, replicas_that_share_a_batch_are_equal_to_a_history) {
  for (int i = 0; i < ARRAY_LENGTH(shared); i++) check_plan(shared[i], 1);
}

/* ---- faults ---- */

typedef struct Dice {
  uint64_t key, n;
} Dice;

static int roll(Dice *dice, int n) {
  return (int)random_below(dice->key, dice->n++, (uint64_t)n);
}

/* The calls of a rank in the first run of training steps. */
typedef struct Faulty {
  Dice *dice;
  EntryPoint *entry;
  const ProgramStage *stage;
  const char *what;
  bool changes;      /* false: it is proved that the fault changes nothing */
  int n_ranks_of[4]; /* by stage */
} Faulty;

static TokenKind kind_of(const Faulty *f, const ProgramCall *call) {
  return call->kind == CALL_segment ? entry_point_segment(f->entry, call)->kind
                                    : N_TOKENS;
}

/* A random call of a segment.  Returns -1 if none is found. */
static int find_segment(const Faulty *f, TokenKind kind) {
  for (int i = 0; i < 1000; i++) {
    int at = roll(f->dice, f->entry->timeline.n);
    if (kind_of(f, &f->entry->timeline.data[at]) == kind) return at;
  }
  return -1;
}

static bool is_version(const Faulty *f, Value value) {
  const Graph *graph = f->stage->graph;
  while (node_is_view(graph, value.node))
    value = graph_node(graph, value)->inputs[0];
  const Node *node = graph_node(graph, value);
  if (node->op != OP_input) return false;
  const GraphInput *input = &graph->inputs.data[node_int(node, ATTR_index, 0)];
  return input->role == ROLE_param &&
         graph_find_output(graph, ROLE_param, input->path);
}

/* A node of the segment reads a parameter that has versions. */
static bool reads_versions(const Faulty *f, const ProgramCall *call) {
  const ProgramSegment *segment = entry_point_segment(f->entry, call);
  for (int id = segment->first_node; id < segment->end_node; id++) {
    const Node *node = f->stage->graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs && !node_is_view(f->stage->graph, id);
         i++)
      if (is_version(f, node->inputs[i])) return true;
  }
  return false;
}

static bool move_register(Faulty *f, int at, ProgramRegister number) {
  int n = stage_places(f->stage, number);
  if (n < 2) return false;
  int *of = &f->entry->timeline.data[at].registers[number];
  *of = (*of + 1 + roll(f->dice, n - 1)) % n;
  return true;
}

static bool read_another_version(Faulty *f) {
  static const TokenKind kinds[] = {TOKEN_forward, TOKEN_backward,
                                    TOKEN_update};
  int at = find_segment(f, kinds[roll(f->dice, 3)]);
  f->what = "a version that is another one";
  if (at < 0) return false;
  f->changes = reads_versions(f, &f->entry->timeline.data[at]);
  return move_register(f, at, REGISTER_version);
}

static bool overwrite_stash(Faulty *f) {
  int at = find_segment(f, TOKEN_update);
  f->what = "an update into the slot of another version";
  return at >= 0 && move_register(f, at, REGISTER_new_version);
}

static void insert_call(Faulty *f, int at, ProgramCall call) {
  vec_push(f->stage->graph->module->arena, &f->entry->timeline, call);
  for (int i = f->entry->timeline.n - 1; i > at; i--)
    f->entry->timeline.data[i] = f->entry->timeline.data[i - 1];
  f->entry->timeline.data[at] = call;
}

static void remove_call(Faulty *f, int at) {
  f->entry->timeline.n--;
  for (int i = at; i < f->entry->timeline.n; i++)
    f->entry->timeline.data[i] = f->entry->timeline.data[i + 1];
}

/* The first momentum is the gradient (ir/model/optimizers.def), so the first
 * update makes the same again of a version that it does not overwrite; but the
 * other replicas do not come to the sum again. */
static bool update_twice(Faulty *f) {
  int at = find_segment(f, TOKEN_update);
  f->what = "an update that is made twice";
  f->changes = at >= 0 && (f->entry->timeline.data[at].unit > 0 ||
                           f->stage->n_versions == 1 || f->stage->n_ranks > 1);
  if (at >= 0) insert_call(f, at, f->entry->timeline.data[at]);
  return at >= 0;
}

static bool lose_update(Faulty *f) {
  int at = find_segment(f, TOKEN_update);
  f->what = "an update that is lost";
  if (at >= 0) remove_call(f, at);
  return at >= 0;
}

/* A value that the segment reads or makes is in a frame. */
static bool uses_frames(const Faulty *f, const ProgramCall *call) {
  const ProgramSegment *segment = entry_point_segment(f->entry, call);
  const BufferAssignment *assignment = f->stage->assignment;
  for (int id = segment->first_node; id < segment->end_node; id++) {
    const Node *node = f->stage->graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++) {
      Value from = node->inputs[i];
      int v = assignment->first_value[from.node] + from.result;
      if (assignment->moves_with[v] == REGISTER_frame) return true;
    }
    if (assignment->moves_with[assignment->first_value[id]] == REGISTER_frame)
      return true;
  }
  return false;
}

static bool use_another_frame(Faulty *f) {
  int at = find_segment(f, roll(f->dice, 2) ? TOKEN_forward : TOKEN_backward);
  f->what = "the frame of another batch";
  if (at >= 0) f->changes = uses_frames(f, &f->entry->timeline.data[at]);
  return at >= 0 && move_register(f, at, REGISTER_frame);
}

/* A stage with data alone. */
static bool take_other_data(Faulty *f) {
  int at = find_segment(f, TOKEN_once);
  f->what = "the data of another batch";
  bool has_data = false;
  for (int i = 0; i < f->stage->graph->inputs.n; i++)
    has_data |= f->stage->graph->inputs.data[i].role == ROLE_data;
  if (at < 0 || !has_data) return false;
  f->entry->timeline.data[at].unit += f->entry->batch_units;
  return true;
}

/* A message goes to the slot of another unit. */
static bool use_another_slot(Faulty *f) {
  f->what = "a message in the slot of another batch";
  for (int i = 0; i < 1000; i++) {
    int at = roll(f->dice, f->entry->timeline.n);
    const ProgramCall *call = &f->entry->timeline.data[at];
    if (call->kind == CALL_receive &&
        f->entry->edges.data[call->edge].n_slots > 1)
      return move_register(f, at, REGISTER_slot);
  }
  return false;
}

static bool lose_backward(Faulty *f) {
  int at = find_segment(f, TOKEN_backward);
  f->what = "a backward pass that is lost";
  if (at >= 0) remove_call(f, at);
  return at >= 0;
}

/* ---- faults of replicas ---- */

static int segment_of_kind(const Faulty *f, TokenKind kind) {
  int i = f->stage->segments.n - 1;
  while (i >= 0 && f->stage->segments.data[i].kind != kind) i--;
  return i;
}

/* A batch that is there: what its pass has left is set to zero before the sum.
 * One that is not has been cleared before. */
static bool leave_out_of_sum(Faulty *f) {
  int at = find_segment(f, TOKEN_update);
  int clear = segment_of_kind(f, TOKEN_clear);
  f->what = "a gradient that is left out of the sum";
  if (at < 0 || clear < 0) return false;
  ProgramCall call = f->entry->timeline.data[at];
  const ProgramCall *before = &f->entry->timeline.data[at > 0 ? at - 1 : 0];
  f->changes = before->when != PERIOD_missing;
  call.segment = clear;
  call.when = PERIOD_missing;
  insert_call(f, at, call);
  return true;
}

/* Where batches end inside of a group: the gradient of the group before. */
static bool keep_old_gradient(Faulty *f) {
  int at = find_segment(f, TOKEN_clear);
  f->what = "a gradient of the group before";
  if (at >= 0) remove_call(f, at);
  return at >= 0;
}

/* A message goes to another replica of its stage, or is awaited of one. */
static bool use_another_replica(Faulty *f) {
  f->what = "a batch that goes to another replica";
  for (int i = 0; i < 1000; i++) {
    int at = roll(f->dice, f->entry->timeline.n);
    ProgramCall *call = &f->entry->timeline.data[at];
    if (call->kind == CALL_segment) continue;
    const ProgramEdge *edge = &f->entry->edges.data[call->edge];
    int first = call->kind == CALL_send ? edge->to_rank : edge->from_rank;
    int own = f->stage->first_rank + f->entry->timeline.data[0].replica;
    int n = f->n_ranks_of[call->kind == CALL_send ? edge->to : edge->from];
    if (n < 2) continue;
    int other = own + call->peer - first;
    call->peer = first + (other + 1 + roll(f->dice, n - 1)) % n - own;
    return true;
  }
  return false;
}

typedef bool MakeFault(Faulty *f);

static MakeFault *const makers[] = {
    read_another_version, overwrite_stash, update_twice,     lose_update,
    use_another_frame,    take_other_data, use_another_slot, lose_backward,
    read_another_version, overwrite_stash};

static MakeFault *const replica_makers[] = {
    read_another_version, overwrite_stash,    update_twice,
    lose_update,          take_other_data,    lose_backward,
    leave_out_of_sum,     leave_out_of_sum,   keep_old_gradient,
    use_another_replica,  use_another_replica};

/* A batch is complete. */
static MakeFault *const shared_makers[] = {
    read_another_version, overwrite_stash, update_twice,
    lose_update,          lose_backward,   use_another_replica};

typedef struct Loaded {
  Compilation c;
  VerifySteps steps;
} Loaded;

static Loaded *load_plan(const PlayCase *one) {
  Module *module = module_create();
  Loaded *l = ARENA_NEW(module->arena, Loaded);
  CompileOptions *options = ARENA_NEW(module->arena, CompileOptions);
  *options = (CompileOptions){
      .path = arena_printf(module->arena, "%s/%s", TEST_ROOT, one->model),
      .plan = one->plan,
      .target = "cpu",
      .follows_links = true,
      .level = 2};
  cr_assert_eq(driver_load(module, options, &l->c), COMPILE_done);
  cr_assert_eq(verify_compile(&l->c, module, false, &l->steps), COMPILE_done);
  return l;
}

static bool is_found(Loaded *l, uint64_t seed) {
  VerifyRun run = {.c = &l->c,
                   .steps = &l->steps,
                   .arena = l->c.module->arena,
                   .numbers = {.number = INTERP_exact, .seed = seed},
                   .report = {.equal = ANSWER_yes,
                              .memory_ok = ANSWER_yes,
                              .messages_match = ANSWER_yes,
                              .hang_free = ANSWER_yes}};
  verify_play(&run);
  return run.report.equal != ANSWER_yes || run.report.memory_ok != ANSWER_yes ||
         run.report.messages_match != ANSWER_yes;
}

typedef struct FaultKinds {
  const char *name;
  const PlayCase *plans;
  int n_plans;
  MakeFault *const *makers;
  int n_makers;
} FaultKinds;

static void count_ranks(const Loaded *l, Faulty *f) {
  for (int c = 0; c < l->steps.n_classes; c++) {
    const EntryPoint *entry = &l->steps.program.list[0].classes[c].entry;
    f->n_ranks_of[entry->stages.data[0].number] = entry->stages.data[0].n_ranks;
  }
}

/* Puts a fault into a rank of a plan: it is found if and only if it changes
 * what is computed. */
static void try_fault(const FaultKinds *kinds, int number, int *n_changing) {
  char name[40];
  snprintf(name, sizeof name, "%s %d", kinds->name, number);
  Dice dice = {random_key(48, name), 0};
  Loaded *l = load_plan(&kinds->plans[number % kinds->n_plans]);
  Faulty f = {.dice = &dice, .changes = true};
  bool is_made = false;
  count_ranks(l, &f);
  for (int i = 0; i < 20 && !is_made; i++) {
    VerifyClass *class =
        &l->steps.program.list[0].classes[roll(&dice, l->steps.n_classes)];
    f.entry = &((PlayProgram *)class->program)->entry;
    f.stage = &f.entry->stages.data[0];
    f.changes = true;
    is_made = kinds->makers[roll(&dice, kinds->n_makers)](&f);
  }
  cr_assert(is_made);
  cr_expect_eq(is_found(l, (uint64_t)number + 1), f.changes,
               "fault %d: %s in stage %d is %s", number, f.what,
               f.stage->number, f.changes ? "not found" : "found");
  *n_changing += f.changes;
  modules_destroy();
}

static void try_faults(const FaultKinds *kinds, const char *why) {
  int first = 0, n = 25, n_changing = 0;
  const char *range = getenv("DNNC_FAULTS");
  if (range) cr_assert_eq(sscanf(range, "%d:%d", &first, &n), 2);
  for (int i = first; i < first + n; i++) try_fault(kinds, i, &n_changing);
  printf("%s: %d faults are found, %d change nothing: %s\n", kinds->name,
         n_changing, n - n_changing, why);
}

Test(verify_versions, faults_are_found) {
  try_faults(&(FaultKinds){"version fault", plans, ARRAY_LENGTH(plans), makers,
                           ARRAY_LENGTH(makers)},
             "the segment reads no version or uses no frame, or the update is "
             "the first one");
}

Test(verify_versions, faults_of_replicas_that_share_a_batch_are_found) {
  try_faults(&(FaultKinds){"shared fault", shared, ARRAY_LENGTH(shared),
                           shared_makers, ARRAY_LENGTH(shared_makers)},
             "the segment reads no version, or the update is the first one of "
             "a stage of one rank");
}

Test(verify_versions, faults_of_replicas_are_found) {
  try_faults(&(FaultKinds){"replica fault", replicas, 5, replica_makers,
                           ARRAY_LENGTH(replica_makers)},
             "the segment reads no version, the update is the first one of a "
             "stage of one rank, or the gradient is zero already");
}
