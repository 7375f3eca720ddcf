/*
 * price_check.c -- compiles a model under a plan, and compares what the tables
 * say of the graph before `partition` with what the instruction list adds up
 * to.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/internal.h"
#include "planner/liveness.h"
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

static void compare_sums(const Compared *c, PriceCheck *check) {
  check->answer = PRICE_compared;
  check->are_bytes_equal = check->are_transfers_equal = true;
  check->are_products_equal = compare_launches(c, COST_product);
  check->is_attention_equal = compare_launches(c, COST_attention);
  compare_transfers(c, c->tables, check);
  compare_transfers(c, c->list, check);
  compare_kernels(c, check);
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

/* The graph of training on its way through the passes. */
typedef struct Watched {
  Compilation c;
  CostModel model;
  ClusterSlice slice;
  PlanTables *tables;
  const PlanSum *sum;
  PriceCheck check; /* of it what the graphs between passes show */
} Watched;

/* The tables see the graph that enters `partition`; what `partition` decides
 * are placements of the next graphs. */
static void look_at_graph_after(void *user, const WatchedPass *pass) {
  Watched *w = user;
  const Graph *graph = pass->graph;
  if (pass_info(pass->row)->phase == PASSES_merging)
    count_strategies(w->c.module->arena, graph, &w->check.products,
                     &w->check.by_strategy);
  if (pass->row + 1 != pass_phase(PASSES_partition)) return;
  PassContext ctx = driver_pass_context(&w->c, w->c.plan);
  ctx.is_training = true;
  ctx.level = w->c.options->level;
  w->sum = plan_tables_sum(w->tables, &ctx, graph);
  w->check.edges = check_edges(w->tables, &ctx, graph);
  plan_tables_count(w->tables, &w->check.n_entries, &w->check.n_lookups);
}

static PriceCheck check_loaded(Watched *w, Text *out) {
  Compilation *c = &w->c;
  Arena *arena = c->module->arena;
  cost_model_of(c->cluster->groups[0].device, &w->model);
  w->slice = cluster_slice(arena, c->cluster, 0, c->ranks);
  w->tables = plan_tables_create(arena, &w->model, &w->slice);
  Graph *graph = driver_graph(c, ENTRY_train);
  graph = driver_run_passes(c, ENTRY_train, graph, 0);
  if (!graph && !w->sum) return (PriceCheck){.answer = PRICE_refused};
  if (!graph || !w->sum) return (PriceCheck){.answer = PRICE_faulty};
  Compared sums = {.out = out,
                   .mesh = plan_mesh(c->plan),
                   .tables = w->sum,
                   .list = plan_list_sum(arena, &w->model, &w->slice,
                                         driver_instructions(c, graph))};
  PriceCheck check = w->check;
  compare_sums(&sums, &check);
  PassContext ctx = driver_pass_context(c, c->plan);
  check.live = plan_live_bytes(&ctx, graph);
  check.packed = driver_assign_alone(c, ENTRY_train, graph)->arena_bytes;
  return check;
}

PriceCheck check_price(const PricedPlan *plan, Text *out) {
  Memory *memory = memory_create(check_no_memory, NULL);
  Arena *arena = arena_create(memory);
  Module *module = ARENA_NEW(arena, Module);
  *module = (Module){.memory = memory,
                     .arena = arena,
                     .names = names_create(arena),
                     .diags = diags_create(arena)};
  Watched *watched = ARENA_NEW(arena, Watched);
  CompileOptions *options = ARENA_NEW(arena, CompileOptions);
  priced_options(arena, plan, options);
  options->plan = write_plan(arena, plan->text);
  options->watch = (CompileWatch){.user = watched, .pass = look_at_graph_after};
  PriceCheck check = {.answer = PRICE_refused};
  CompileResult loaded = driver_load(module, options, &watched->c);
  unlink(options->plan);
  if (loaded == COMPILE_done) check = check_loaded(watched, out);
  memory_destroy(memory);
  return check;
}
