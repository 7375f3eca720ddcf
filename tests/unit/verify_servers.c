// links: verify driver codegen frontend passes runtime ir support
/*
 * verify_servers.c -- plans with servers of parameters that wait for all
 * workers are equal to one rank, and faults that are put into their messages
 * and graphs at random are found, but those that change nothing.
 *
 *   DNNC_FAULTS=FIRST:N tries others than the first 36.
 */
#include <stdlib.h>

#include "tests/unit/play_model.h"
#include "verify/play/internal.h"
#include "verify/verify_servers.h"

TestSuite(verify_servers, .fini = modules_destroy, .timeout = 300);

#define PLAN(name) TEST_ROOT "/tests/plans/" name ".plan"

static const PlayCase plans[] = {
    {.model = "benchmarks/systems/mlp.dnn", .plan = PLAN("servers_clip")},
    {.model = "benchmarks/systems/lenet.dnn", .plan = PLAN("servers_two")},
    {.model = "tests/plans/servers_tables.dnn", .plan = PLAN("servers_three")},
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
  cr_expect_gt(report.servers, 0);
  modules_destroy();
}

Test(verify_servers, plans_are_equal_to_one_rank) {
  for (int i = 0; i < ARRAY_LENGTH(plans); i++)
    for (uint64_t seed = 1; seed <= 2; seed++) check_plan(plans[i], seed);
}

/* ---- faults ---- */

typedef struct Dice {
  uint64_t key, n;
} Dice;

static int roll(Dice *dice, int n) {
  return (int)random_below(dice->key, dice->n++, (uint64_t)n);
}

/* The first training step. */
typedef struct Faulty {
  Dice *dice;
  VerifyStep *step;
  VerifyServers *links;
  const char *what;
  bool changes; /* false: it is proved that the fault changes nothing */
} Faulty;

static const Graph *graph_of(const Faulty *f, int class) {
  return f->step->classes[class].entry.stages.data[0].graph;
}

static VerifyPush *any_push(const Faulty *f) {
  return &f->links->pushes.data[roll(f->dice, f->links->pushes.n)];
}

static const Type *type_of_push(const Faulty *f, const VerifyPush *push) {
  const Graph *server = graph_of(f, 1 + push->server);
  return graph_type(server, server->inputs.data[push->to_input].value);
}

static bool lose_push(Faulty *f) {
  VerifyPush *push = any_push(f);
  f->what = "a push that is lost";
  push->workers.data[roll(f->dice, push->workers.n)] =
      push->workers.data[push->workers.n - 1];
  push->workers.n--;
  return true;
}

static bool push_twice(Faulty *f) {
  VerifyPush *push = any_push(f);
  int worker = roll(f->dice, push->workers.n);
  f->what = "a push that is added twice";
  vec_push(f->step->reference->module->arena, &push->workers, worker);
  return true;
}

static bool push_of_another(Faulty *f) {
  VerifyPush *push = any_push(f);
  int n = push->workers.n, at = roll(f->dice, n);
  f->what = "the gradient of another worker";
  push->workers.data[at] = (at + 1 + roll(f->dice, n - 1)) % n;
  return true;
}

/* Sums are exact in any order. */
static bool push_in_another_order(Faulty *f) {
  VerifyPush *push = any_push(f);
  f->what = "gradients that are added in another order";
  f->changes = false;
  for (int i = 0; i < push->workers.n / 2; i++) {
    int *a = &push->workers.data[i];
    int *b = &push->workers.data[push->workers.n - 1 - i];
    int kept = *a;
    *a = *b;
    *b = kept;
  }
  return true;
}

/* Two pushes of one type; -1: there is no other one. */
static int find_like(const Faulty *f, const VerifyPush *push,
                     bool is_of_another_server) {
  const Type *type = type_of_push(f, push);
  for (int i = 0; i < 100; i++) {
    int k = roll(f->dice, f->links->pushes.n);
    const VerifyPush *other = &f->links->pushes.data[k];
    bool is_other = is_of_another_server
                        ? other->server != push->server
                        : other->from_output != push->from_output;
    if (is_other &&
        type_elements(type_of_push(f, other)) == type_elements(type))
      return k;
  }
  return -1;
}

static bool push_another_gradient(Faulty *f) {
  VerifyPush *push = any_push(f);
  int like = find_like(f, push, false);
  f->what = "the gradient of another parameter";
  if (like < 0 || f->links->pushes.data[like].from_output == push->from_output)
    return false;
  push->from_output = f->links->pushes.data[like].from_output;
  return true;
}

/* A server gets what is another one's, in place of its own. */
static bool push_to_another_server(Faulty *f) {
  VerifyPush *push = any_push(f);
  int like = find_like(f, push, true);
  f->what = "a push that goes to another server";
  if (like < 0) return false;
  VerifyPush *other = &f->links->pushes.data[like];
  int from = push->from_output;
  if (from == other->from_output) return false; /* rows of one table */
  push->from_output = other->from_output;
  other->from_output = from;
  return true;
}

static VerifyReply *any_reply(const Faulty *f) {
  return &f->links->replies.data[roll(f->dice, f->links->replies.n)];
}

/* The worker computes with the parameter of before. */
static bool lose_reply(Faulty *f) {
  VerifyReply *reply = any_reply(f);
  f->what = "a stale parameter in a reply";
  *reply = f->links->replies.data[--f->links->replies.n];
  return true;
}

static bool reply_another_parameter(Faulty *f) {
  f->what = "another parameter in a reply";
  for (int i = 0; i < 100; i++) {
    VerifyReply *a = any_reply(f), *b = any_reply(f);
    const Graph *from = graph_of(f, 1 + a->server),
                *other = graph_of(f, 1 + b->server);
    int64_t n = type_elements(
        graph_type(from, from->outputs.data[a->from_output].value));
    if (a->to_input == b->to_input ||
        n != type_elements(
                 graph_type(other, other->outputs.data[b->from_output].value)))
      continue;
    int kept = a->to_input;
    a->to_input = b->to_input;
    b->to_input = kept;
    return true;
  }
  return false;
}

/* A constant such as the 1 / n of a mean. */
static bool is_share(const Node *node) {
  double value = node->op == OP_const ? node_float(node, ATTR_value, 0) : 0;
  return node->phase != PHASE_update && value > 0 && value < 1 &&
         dtype_class(node->types[0]->dtype) == CLASS_FLOAT;
}

/* Multiplies one of them, in bodies too.  Returns false if there is none. */
static bool change_share(const Graph *graph, Dice *dice) {
  int n = 0;
  Node *found = NULL;
  for (int id = 0; id < graph->nodes.n; id++) {
    Node *node = graph->nodes.data[id];
    for (int k = -1; k < (node->body ? node->body->nodes.n : 0); k++) {
      Node *at = k < 0 ? node : node->body->nodes.data[k];
      if (is_share(at) && roll(dice, ++n) == 0) found = at;
    }
  }
  for (int i = 0; found && i < found->n_attrs; i++)
    if (found->attrs[i].key == ATTR_value) {
      Attr *attrs = arena_copy(graph->module->arena, found->attrs,
                               (size_t)found->n_attrs * sizeof *attrs);
      attrs[i].real *= 1.5;
      found->attrs = attrs;
    }
  return found != NULL;
}

static bool scale_loss(Faulty *f) {
  f->what = "a loss with another share of the batch";
  return change_share(f->step->classes[0].program->stages[0].local, f->dice);
}

/* The new value of a parameter is that of another one. */
static bool update_another(Faulty *f) {
  f->what = "the update of another parameter";
  for (int i = 0; i < 100; i++) {
    Graph *graph =
        (Graph *)graph_of(f, 1 + roll(f->dice, f->step->played.graphs.n - 1));
    if (graph->outputs.n == 0) continue;
    int a = roll(f->dice, graph->outputs.n),
        b = roll(f->dice, graph->outputs.n);
    GraphOutput *x = &graph->outputs.data[a], *y = &graph->outputs.data[b];
    if (a == b || x->role == ROLE_norm || y->role == ROLE_norm ||
        type_elements(graph_type(graph, x->value)) !=
            type_elements(graph_type(graph, y->value)))
      continue;
    Value kept = x->value;
    x->value = y->value;
    y->value = kept;
    return true;
  }
  return false;
}

typedef bool MakeFault(Faulty *f);
static MakeFault *const makers[] = {lose_push,
                                    push_twice,
                                    push_of_another,
                                    push_in_another_order,
                                    push_another_gradient,
                                    push_to_another_server,
                                    lose_reply,
                                    reply_another_parameter,
                                    scale_loss,
                                    update_another};

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

/* Puts a fault into a plan: it is found if and only if it changes what is
 * computed. */
static void try_fault(int number, int *n_changing) {
  char name[40];
  snprintf(name, sizeof name, "server fault %d", number);
  Dice dice = {random_key(48, name), 0};
  Loaded *l =
      load_plan(&plans[number / ARRAY_LENGTH(makers) % ARRAY_LENGTH(plans)]);
  VerifyStep *step = &l->steps.program.list[0];
  Faulty f = {
      .dice = &dice, .step = step, .links = step->servers, .changes = true};
  bool is_made = false;
  for (int i = 0; i < 20 && !is_made; i++)
    is_made = makers[(number + i) % ARRAY_LENGTH(makers)](&f);
  cr_assert(is_made);
  cr_expect_eq(is_found(l, (uint64_t)number + 1), f.changes,
               "fault %d: %s is %s", number, f.what,
               f.changes ? "not found" : "found");
  *n_changing += f.changes;
  modules_destroy();
}

Test(verify_servers, faults_are_found) {
  int first = 0, n = 36, n_changing = 0;
  const char *range = getenv("DNNC_FAULTS");
  if (range) cr_assert_eq(sscanf(range, "%d:%d", &first, &n), 2);
  for (int i = first; i < first + n; i++) try_fault(i, &n_changing);
  printf("server faults: %d are found, %d change nothing: sums are exact in "
         "any order\n",
         n_changing, n - n_changing);
}
