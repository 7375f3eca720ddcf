/*
 * price_check.c -- compiles a model under a plan, and compares what the tables
 * say of the graph before `partition` with what the instruction list adds up
 * to.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/internal.h"
#include "passes/plan/liveness.h"
#include "passes/plan/tables.h"
#include "tests/prices/prices.h"

typedef struct Compared {
  const PlanSum *tables, *list;
  const Mesh *mesh;
  Text *out;
} Compared;

static void say_launches(const Compared *c, CostTerm part) {
  const LaunchSum *a = &c->tables->parts[part], *b = &c->list->parts[part];
  if (!c->out) return;
  text_printf(c->out, "%s: tables %lld launches, %lld bytes, %lld ps; ",
              cost_term_info(part)->name, (long long)a->n, (long long)a->moved,
              (long long)a->time);
  text_printf(c->out, "list %lld, %lld, %lld\n", (long long)b->n,
              (long long)b->moved, (long long)b->time);
}

static bool compare_launches(const Compared *c, CostTerm part) {
  const LaunchSum *a = &c->tables->parts[part], *b = &c->list->parts[part];
  bool is_equal = a->n == b->n && a->moved == b->moved && a->time == b->time;
  if (!is_equal) say_launches(c, part);
  return is_equal;
}

static double relative(double a, double b) {
  double more = a > b ? a : b, less = a > b ? b : a;
  return more > 0 ? (more - less) / more : 0;
}

/* ---- transfers ---- */

static TransferSum find_sum(const PlanSum *sum, Op op, AxisSet axes) {
  for (int i = 0; i < sum->transfers.n; i++)
    if (sum->transfers.data[i].op == op && sum->transfers.data[i].axes == axes)
      return sum->transfers.data[i];
  return (TransferSum){.op = op, .axes = axes};
}

static void say_transfers(const Compared *c, const TransferSum *a,
                          const TransferSum *b) {
  if (!c->out) return;
  text_printf(c->out, "%s over", op_info(a->op)->name);
  for (int axis = 0; axis < c->mesh->n_axes; axis++)
    if (a->axes >> axis & 1)
      text_printf(c->out, " %s", c->mesh->axes[axis].name);
  text_printf(c->out, ": tables %lld, %lld bytes, %lld ps; ", (long long)a->n,
              (long long)a->sent, (long long)a->busy);
  text_printf(c->out, "list %lld, %lld, %lld\n", (long long)b->n,
              (long long)b->sent, (long long)b->busy);
}

static void compare_transfers(const Compared *c, const PlanSum *from,
                              PriceCheck *check) {
  for (int i = 0; i < from->transfers.n; i++) {
    const TransferSum *at = &from->transfers.data[i];
    TransferSum a = find_sum(c->tables, at->op, at->axes);
    TransferSum b = find_sum(c->list, at->op, at->axes);
    bool is_equal = a.sent == b.sent;
    bool is_joined = a.n > b.n;
    check->are_bytes_equal &= is_equal;
    if (!is_joined)
      check->are_transfers_equal &= is_equal && a.n == b.n &&
                                    a.busy == b.busy &&
                                    a.latencies == b.latencies;
    if (!is_equal || a.n < b.n) say_transfers(c, &a, &b);
  }
}

/* ---- kernels ---- */

static void compare_kernels(const Compared *c, PriceCheck *check) {
  static const CostTerm parts[] = {COST_fused, COST_lookup, COST_update};
  double moved[2] = {0}, n[2] = {0};
  for (int i = 0; i < ARRAY_LENGTH(parts); i++) {
    const LaunchSum *a = &c->tables->parts[parts[i]];
    const LaunchSum *b = &c->list->parts[parts[i]];
    double difference = relative((double)a->moved, (double)b->moved);
    if (difference > check->part) check->part = difference;
    if (difference > 0 || a->n != b->n) say_launches(c, parts[i]);
    moved[0] += (double)a->moved, moved[1] += (double)b->moved;
    n[0] += (double)a->n, n[1] += (double)b->n;
  }
  check->kernels = relative(moved[0], moved[1]);
  check->launches = relative(n[0], n[1]);
}

static PriceCheck compare_sums(const Compared *c) {
  PriceCheck check = {.answer = PRICE_compared,
                      .are_bytes_equal = true,
                      .are_transfers_equal = true};
  check.are_products_equal = compare_launches(c, COST_product);
  check.is_attention_equal = compare_launches(c, COST_attention);
  compare_transfers(c, c->tables, &check);
  compare_transfers(c, c->list, &check);
  compare_kernels(c, &check);
  return check;
}

/* ---- compiling ---- */

static _Noreturn void check_no_memory(void *user) {
  (void)user;
  abort();
}

static const char *write_plan(Arena *arena, const char *text) {
  char *path = arena_strdup(arena, "/tmp/dnnc-price-XXXXXX");
  int file = mkstemp(path);
  size_t n = strlen(text);
  if (file < 0 || write(file, text, n) != (ssize_t)n) abort();
  close(file);
  return path;
}

/* The tables' side of a loaded model. */
static const PlanSum *sum_by_tables(const Compilation *c,
                                    const CostModel *model, PriceCheck *check) {
  Arena *arena = c->module->arena;
  Graph *graph = driver_graph(c, ENTRY_train);
  graph = driver_run_passes(c, ENTRY_train, graph, "layout_assignment");
  if (!graph) return NULL;
  PassContext ctx = driver_pass_context(c, c->plan);
  ctx.is_training = true;
  ctx.level = c->options->level;
  PlanTables *tables = plan_tables_create(arena, model, c->cluster);
  const PlanSum *sum = plan_tables_sum(tables, &ctx, graph);
  plan_tables_count(tables, &check->n_entries, &check->n_lookups);
  return sum;
}

PriceCheck check_price(const PricedPlan *plan, Text *out) {
  Memory *memory = memory_create(check_no_memory, NULL);
  Arena *arena = arena_create(memory);
  Module *module = ARENA_NEW(arena, Module);
  *module = (Module){.memory = memory,
                     .arena = arena,
                     .names = names_create(arena),
                     .diags = diags_create(arena)};
  CompileOptions *options = ARENA_NEW(arena, CompileOptions);
  priced_options(arena, plan, options);
  options->plan = write_plan(arena, plan->text);
  Compilation c;
  PriceCheck check = {.answer = PRICE_refused}, counts = {0};
  CompileResult loaded = driver_load(module, options, &c);
  unlink(options->plan);
  if (loaded != COMPILE_done) return check;
  CostModel model = {0};
  cost_model_of(c.cluster->groups[0].device, &model);
  Compared sums = {.out = out, .mesh = plan_mesh(c.plan)};
  sums.tables = sum_by_tables(&c, &model, &counts);
  Graph *graph = driver_graph(&c, ENTRY_train);
  graph = driver_run_passes(&c, ENTRY_train, graph, NULL);
  if (!graph && !sums.tables) return check;
  if (!graph || !sums.tables) return (PriceCheck){.answer = PRICE_faulty};
  sums.list =
      plan_list_sum(arena, &model, c.cluster, driver_instructions(&c, graph));
  check = compare_sums(&sums);
  check.n_entries = counts.n_entries;
  check.n_lookups = counts.n_lookups;
  PassContext ctx = driver_pass_context(&c, c.plan);
  check.live = plan_live_bytes(&ctx, graph);
  check.packed = driver_assign_alone(&c, ENTRY_train, graph)->arena_bytes;
  memory_destroy(memory);
  return check;
}
