/*
 * tables.c -- the price of a plan as a sum over what `partition` decides.
 *
 *     %5 = dot %3 [B:8@d, C], %4 [C, F:16@t]     table: dot on [8/d, C] x [C,
 *     %6 = all_reduce %5 {axes = [t]}            16/t]; all_reduce over t of
 *                                                8/d x 16 elements
 *
 * Products, attention and collectives are summed over the placed graph: each
 * node counts as often as it runs (placed_runs.c), whatever the passes behind
 * `partition` make of it, and messages count before buckets join them.  The
 * other operators become kernels of several, and which ones follows from all
 * around them, joined messages included, so these are the groups that `fuse`
 * makes of the placed graph.  Nothing is ordered, and no list is made.
 *
 * plan_list_sum is the other side of the comparison: it adds up an instruction
 * list, as price_list.c gives it to the simulator.
 */
#include "planner/tables.h"

#include "passes/buffers/list_schedule.h"
#include "passes/spmd/partition_trials.h"

/* The cost of one run. */
typedef struct TableEntry {
  LaunchCost launch; /* of an operator */
  Bytes moved;
  SimTransfer transfer; /* of a collective */
  Bytes sent;
} TableEntry;

struct PlanTables {
  Arena *arena;
  const CostModel *model;
  const ClusterSlice *slice;
  Map *entries; /* by entry_key */
  int64_t n_lookups;
};

PlanTables *plan_tables_create(Arena *arena, const CostModel *model,
                               const ClusterSlice *slice) {
  PlanTables *tables = ARENA_NEW(arena, PlanTables);
  *tables = (PlanTables){.arena = arena,
                         .model = model,
                         .slice = slice,
                         .entries = map_create(arena)};
  return tables;
}

void plan_tables_count(const PlanTables *tables, int *out_entries,
                       int64_t *out_lookups) {
  *out_entries = map_size(tables->entries);
  *out_lookups = tables->n_lookups;
}

/* ---- entries ---- */

/* `adds`: a product adds its result to that of the micro-batches before. */
static TableEntry make_entry(Arena *arena, const CostModel *model,
                             const ClusterSlice *slice, const Graph *graph,
                             int id, bool adds) {
  const Node *node = graph->nodes.data[id];
  TableEntry entry = {0};
  if (op_has(node->op, OP_FLAG_asynchronous)) {
    entry.sent = node_sent_bytes(graph, id);
    entry.transfer = price_transfer(arena, model, slice, graph, id);
    return entry;
  }
  Work work = node_work(graph, id);
  if (adds) work.read += work.written;
  entry.moved = work.read + work.written;
  entry.launch = cost_work(model, node, &work);
  return entry;
}

/* All that a cost depends on. */
static const void *entry_key(const Graph *graph, int id, bool adds) {
  bool is_update = graph->nodes.data[id]->phase == PHASE_update;
  uint64_t key = kernel_key(graph, id) * 4 + (is_update ? 2 : 0) + adds;
  return (const void *)(uintptr_t)(key ? key : 1);
}

static const TableEntry *find_entry(PlanTables *tables, const Graph *graph,
                                    int id, bool adds) {
  const void *key = entry_key(graph, id, adds);
  TableEntry *entry = map_get(tables->entries, key);
  tables->n_lookups++;
  if (entry) return entry;
  entry = ARENA_NEW(tables->arena, TableEntry);
  *entry =
      make_entry(tables->arena, tables->model, tables->slice, graph, id, adds);
  map_put(tables->entries, key, entry);
  return entry;
}

/* ---- sums ---- */

static void add_launches(PlanSum *sum, const LaunchCost *cost, Bytes moved,
                         int64_t runs) {
  LaunchSum *part = &sum->parts[cost->part];
  part->n += runs;
  part->moved += moved * runs;
  part->time += cost->time * runs;
  sum->launch += cost->launch * runs;
}

static TransferSum *find_transfers(Arena *arena, PlanSum *sum, Op op,
                                   AxisSet axes) {
  for (int i = 0; i < sum->transfers.n; i++)
    if (sum->transfers.data[i].op == op && sum->transfers.data[i].axes == axes)
      return &sum->transfers.data[i];
  vec_push(arena, &sum->transfers, ((TransferSum){.op = op, .axes = axes}));
  return &sum->transfers.data[sum->transfers.n - 1];
}

static Ps busiest_load(const SimTransfer *transfer) {
  Ps most = 0;
  for (int i = 0; i < transfer->n_loads; i++)
    if (transfer->loads[i].busy > most) most = transfer->loads[i].busy;
  return most;
}

static void add_transfers(Arena *arena, PlanSum *sum, Op op, AxisSet axes,
                          const TableEntry *entry, int64_t runs) {
  TransferSum *of = find_transfers(arena, sum, op, axes);
  of->n += runs;
  of->sent += entry->sent * runs;
  of->busy += busiest_load(&entry->transfer) * runs;
  of->latencies += entry->transfer.latency * runs;
}

static AxisSet axes_of(const Graph *graph, int id) {
  return axis_list_set(collective_axes(&graph->mesh, graph->nodes.data[id]));
}

/* ---- single reshardings ---- */

/* Only partial sums end: `partition` reduces them over all axes at once, also
 * where one after the other sends less of a few elements. */
static bool is_reduction(const Type *from, const Type *to) {
  if (!from->partial || to->partial) return false;
  for (int d = 0; d < from->rank; d++)
    if (from->dims[d].split != to->dims[d].split) return false;
  return true;
}

/* In a step, as ReshardStep.bytes: with all micro-batches. */
static ReshardStep reduction_step(const Mesh *mesh, const Type *from) {
  int64_t n = 1, elements = type_local_elements(from, mesh);
  for (int a = 0; a < mesh->n_axes; a++)
    if (from->partial >> a & 1) n *= mesh->axes[a].size;
  bool is_repeated = type_uses_axes(from, mesh_sequential(mesh));
  int64_t sent = collective_sent_elements(OP_all_reduce, n, elements, elements);
  return (ReshardStep){.kind = RESHARD_all_reduce,
                       .group = from->partial,
                       .bytes = sent * dtype_size_bytes(from->dtype) *
                                (is_repeated ? mesh_microbatches(mesh) : 1)};
}

bool plan_tables_reshard(PlanTables *tables, Arena *arena, Resharding *chains,
                         const Mesh *mesh, const Type *from, const Type *to,
                         DType reduced, PlanSum *sum) {
  ReshardStep steps[MAX_RESHARD_STEPS];
  const char *reason;
  bool is_reduced = is_reduction(from, to);
  int n = is_reduced ? 1 : reshard_steps(chains, from, to, steps, &reason);
  if (is_reduced) steps[0] = reduction_step(mesh, from);
  AxisSet time = mesh_sequential(mesh);
  bool is_repeated = type_uses_axes(from, time) || type_uses_axes(to, time);
  int64_t runs = is_repeated ? mesh_microbatches(mesh) : 1;
  for (int i = 0; i < n; i++) {
    Op op;
    if (!reshard_op(steps[i].kind, &op)) continue;
    bool adds = op == OP_all_reduce || op == OP_reduce_scatter;
    TableEntry entry = {.sent = steps[i].bytes / runs};
    if (adds)
      entry.sent = entry.sent / dtype_size_bytes(from->dtype) *
                   dtype_size_bytes(reduced);
    entry.transfer = price_message(arena, tables->model, tables->slice, mesh,
                                   op, steps[i].group, entry.sent);
    add_transfers(arena, sum, op, steps[i].group, &entry, runs);
  }
  return n >= 0;
}

/* ---- the tables' side ---- */

typedef struct TableSum {
  PlanTables *tables;
  PassContext *ctx;
  Arena *arena;
  PlanSum *sum;
} TableSum;

/* It never becomes a part of a kernel. */
static bool is_own_launch(const Node *node) {
  return op_is(node->op, OPCLASS_contraction);
}

/* The products that micro-batches add up by themselves. */
static bool *find_adding(const Graph *graph, Arena *scratch) {
  bool *adds = ARENA_ARRAY(scratch, bool, graph->nodes.n);
  const int *n_uses = graph_count_uses(graph, scratch);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; node->op == OP_accumulate && i < node->n_inputs; i++)
      if (matmul_can_add(graph, node->inputs[i].node, n_uses))
        adds[node->inputs[i].node] = true;
  }
  return adds;
}

/* Products, attention and collectives of a placed graph, or of a body. */
static void sum_placed(TableSum *s, const Graph *graph, const int64_t *runs,
                       int64_t times) {
  Arena *scratch = s->ctx->scratch;
  const bool *adds = find_adding(graph, scratch);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    int64_t n = runs[id] * times;
    if (n == 0) continue;
    if (node->op == OP_scan) {
      sum_placed(s, node->body, body_runs(scratch, node->body),
                 n * scan_steps(node));
      continue;
    }
    bool is_transfer = op_has(node->op, OP_FLAG_asynchronous);
    if (!is_transfer && !is_own_launch(node)) continue;
    const TableEntry *entry = find_entry(s->tables, graph, id, adds[id]);
    if (is_transfer)
      add_transfers(s->arena, s->sum, node->op, axes_of(graph, id), entry, n);
    else
      add_launches(s->sum, &entry->launch, entry->moved, n);
  }
}

/* The other operators, joined to kernels. */
static void sum_kernels(TableSum *s, const Graph *graph, int64_t microbatches,
                        int64_t times) {
  graph = add_launch_copies(s->ctx, graph);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (!node_is_launched(graph, id) || is_own_launch(node) ||
        op_has(node->op, OP_FLAG_asynchronous))
      continue;
    int64_t n =
        node_is_per_microbatch(graph, id) ? microbatches * times : times;
    if (node->op == OP_scan) {
      sum_kernels(s, node->body, 1, n * scan_steps(node));
      continue;
    }
    if (node->op == OP_accumulate && microbatches > 1) {
      LaunchCost clear = cost_clear(s->tables->model, graph, id);
      add_launches(s->sum, &clear, 0, times);
    }
    const TableEntry *entry = find_entry(s->tables, graph, id, false);
    add_launches(s->sum, &entry->launch, entry->moved, n);
  }
}

/* The rows of a phase; NULL: one has reported a mistake. */
static Graph *run_phase(const PassContext *ctx, PassPhase phase, Graph *graph) {
  PassOptions options = {.level = ctx->level,
                         .begin = pass_phase(phase),
                         .end = pass_phase((PassPhase)(phase + 1))};
  graph = passes_run(ctx, &options, graph).graph;
  return diags_errors(ctx->module->diags) > 0 ? NULL : graph;
}

const PlanSum *plan_tables_sum(PlanTables *tables, const PassContext *ctx,
                               const Graph *planning) {
  Arena *arena = arena_beside(ctx->module->arena);
  PassContext own = *ctx;
  own.module = module_apart(ctx->module, arena);
  own.scratch = arena;
  PlanSum *sum = ARENA_NEW(ctx->module->arena, PlanSum);
  TableSum s = {tables, &own, ctx->module->arena, sum};
  PartitionTrial trial = {0};
  Graph *placed = (Graph *)partition_decide(&own, planning, &trial);
  placed = run_phase(&own, PASSES_merging, placed);
  if (placed) {
    sum_placed(&s, placed, placed_runs(&own, placed), 1);
    placed = run_phase(&own, PASSES_kernels, placed);
  }
  if (placed) sum_kernels(&s, placed, mesh_microbatches(&placed->mesh), 1);
  arena_destroy(arena);
  return placed ? sum : NULL;
}

/* ---- the list's side ---- */

const PlanSum *plan_list_sum(Arena *arena, const CostModel *model,
                             const ClusterSlice *slice,
                             const InstructionList *list) {
  PlanSum *sum = ARENA_NEW(arena, PlanSum);
  VEC(const Graph *) graphs = {0};
  VEC(int64_t) trips = {0};
  int64_t times = 1;
  vec_push(arena, &graphs, list->graph);
  for (int i = 0; i < list->instructions.n; i++) {
    const Instruction *at = &list->instructions.data[i];
    const Graph *graph = graphs.data[graphs.n - 1];
    switch (at->kind) {
    case INSTRUCTION_swap:
    case INSTRUCTION_run: {
      LaunchCost cost = cost_launch(model, graph, at->node);
      Work work = node_work(graph, at->node);
      add_launches(sum, &cost, work.read + work.written, times);
      break;
    }
    case INSTRUCTION_start: {
      TableEntry entry =
          make_entry(arena, model, slice, graph, at->node, false);
      add_transfers(arena, sum, graph->nodes.data[at->node]->op,
                    axes_of(graph, at->node), &entry, times);
      break;
    }
    case INSTRUCTION_clear: {
      LaunchCost cost = cost_clear(model, graph, at->node);
      add_launches(sum, &cost, 0, times);
      break;
    }
    case INSTRUCTION_loop:
      vec_push(arena, &trips, at->trips);
      vec_push(arena, &graphs,
               at->node < 0 ? graph : graph->nodes.data[at->node]->body);
      times *= at->trips;
      break;
    case INSTRUCTION_end:
      times /= trips.data[--trips.n];
      graphs.n--;
      break;
    case INSTRUCTION_wait:
    case N_INSTRUCTIONS: break;
    }
  }
  return sum;
}
