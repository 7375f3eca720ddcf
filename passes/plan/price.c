/*
 * price.c -- makes a program of the simulator of an instruction list: each
 * launch with its time, each collective with its latency and loads.
 *
 *     run %3 dot                     run 3 us (launch), run 80 us (product)
 *     start %4 all_reduce on 0  =>   start 0 on queue 0
 *     run %5 fused                   run 3 us (launch), run 20 us (fused)
 *     wait %4 before %6              wait 0
 *
 * All ranks execute one list, so there is one class, and a collective begins
 * when its queue is free.
 */
#include "passes/plan/price.h"

typedef struct Pricing {
  Arena *arena;
  const InstructionList *list;
  const CostModel *model;
  const Cluster *cluster;
  VEC(const Graph *) graphs; /* that of the list, then of the loops around */
  int64_t trips;             /* of the loops around */
  VEC(SimAction) actions;
  VEC(SimTransfer) transfers;
  Map *transfer_of; /* by node: transfer, plus 1 */
  Price *price;
} Pricing;

static void add_run(Pricing *p, CostTerm part, Ps time, int id) {
  if (time > 0)
    vec_push(
        p->arena, &p->actions,
        (SimAction){
            .kind = SIM_run, .duration = time, .term = (int)part, .id = id});
}

static const Graph *graph_here(const Pricing *p) {
  return p->graphs.data[p->graphs.n - 1];
}

static void price_launch(Pricing *p, int node, int id) {
  LaunchCost cost = cost_launch(p->model, graph_here(p), node);
  add_run(p, COST_launch, cost.launch, id);
  add_run(p, cost.part, cost.time, id);
  p->price->n_launches += p->trips;
}

/* ---- process groups ---- */

/* The ranks of the group of rank 0 over these axes, in ascending order. */
static int64_t *group_ranks_of(Arena *arena, const Mesh *mesh, AxisSet axes,
                               int *out_n) {
  int64_t *ranks = ARENA_ARRAY(arena, int64_t, mesh_ranks(mesh));
  int64_t stride = 1;
  int n = 1;
  for (int a = mesh->n_axes - 1; a >= 0; a--) {
    if (mesh->axes[a].is_sequential) continue;
    int64_t size = mesh->axes[a].size;
    if (axes >> a & 1) {
      for (int64_t i = 1; i < size; i++)
        for (int k = 0; k < n; k++) ranks[i * n + k] = ranks[k] + i * stride;
      n *= (int)size;
    }
    stride *= size;
  }
  *out_n = n;
  return ranks;
}

static CostTerm part_of_collective(Op op) {
  switch (op) {
  case OP_all_gather: return COST_all_gather;
  case OP_reduce_scatter: return COST_reduce_scatter;
  case OP_all_to_all: return COST_all_to_all;
  case OP_permute: return COST_permute;
  default: return COST_all_reduce;
  }
}

SimTransfer price_message(Arena *arena, const CostModel *model,
                          const Cluster *cluster, const Mesh *mesh, Op op,
                          AxisSet axes, Bytes sent) {
  GroupLevel levels[MAX_LEVELS];
  int n;
  int64_t *ranks = group_ranks_of(arena, mesh, axes, &n);
  int n_levels = cost_group_levels(cluster, mesh_ranks(mesh), ranks, n, levels);
  CostTerm part = part_of_collective(op);
  SimTransfer transfer = {.n_starts = 1};
  if (cost_counts(model, part))
    transfer =
        cost_transfer(arena, model, cluster, op, sent, n, levels, n_levels);
  transfer.term = (int)part;
  return transfer;
}

SimTransfer price_transfer(Arena *arena, const CostModel *model,
                           const Cluster *cluster, const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  AxisSet axes = axis_list_set(collective_axes(&graph->mesh, node));
  return price_message(arena, model, cluster, &graph->mesh, node->op, axes,
                       node_sent_bytes(graph, id));
}

static void price_start(Pricing *p, const Instruction *instruction, int id) {
  const Graph *graph = graph_here(p);
  const Node *node = graph->nodes.data[instruction->node];
  SimTransfer transfer =
      price_transfer(p->arena, p->model, p->cluster, graph, instruction->node);
  map_put(p->transfer_of, node, (void *)(intptr_t)(p->transfers.n + 1));
  vec_push(p->arena, &p->actions,
           (SimAction){.kind = SIM_start,
                       .transfer = p->transfers.n,
                       .queue = instruction->queue,
                       .id = id});
  vec_push(p->arena, &p->transfers, transfer);
  p->price->sent += node_sent_bytes(graph, instruction->node) * p->trips;
  p->price->n_transfers += p->trips;
}

static void price_wait(Pricing *p, const Instruction *instruction) {
  const Node *node = graph_here(p)->nodes.data[instruction->collective];
  int transfer = (int)(intptr_t)map_get(p->transfer_of, node) - 1;
  ASSERT(transfer >= 0);
  vec_push(p->arena, &p->actions,
           (SimAction){.kind = SIM_wait, .transfer = transfer});
}

static void price_clear(Pricing *p, int node, int id) {
  LaunchCost cost = cost_clear(p->model, graph_here(p), node);
  add_run(p, COST_launch, cost.launch, id);
  add_run(p, cost.part, cost.time, id);
  p->price->n_launches += p->trips;
}

static void enter_loop(Pricing *p, const Instruction *loop) {
  const Graph *graph = graph_here(p);
  vec_push(p->arena, &p->graphs,
           loop->node < 0 ? graph : graph->nodes.data[loop->node]->body);
  p->trips *= loop->trips;
  vec_push(p->arena, &p->actions,
           (SimAction){.kind = SIM_loop, .trips = loop->trips});
}

static void price_instructions(Pricing *p) {
  VEC(int64_t) trips = {0};
  for (int i = 0; i < p->list->instructions.n; i++) {
    const Instruction *instruction = &p->list->instructions.data[i];
    switch (instruction->kind) {
    case INSTRUCTION_run: price_launch(p, instruction->node, i); break;
    case INSTRUCTION_start: price_start(p, instruction, i); break;
    case INSTRUCTION_wait: price_wait(p, instruction); break;
    case INSTRUCTION_clear: price_clear(p, instruction->node, i); break;
    case INSTRUCTION_loop:
      vec_push(p->arena, &trips, instruction->trips);
      enter_loop(p, instruction);
      break;
    case INSTRUCTION_end:
      p->trips /= trips.data[--trips.n];
      p->graphs.n--;
      vec_push(p->arena, &p->actions, (SimAction){.kind = SIM_end});
      break;
    case N_INSTRUCTIONS: UNREACHABLE();
    }
  }
}

Price price_list(Arena *arena, const InstructionList *list,
                 const CostModel *model, const Cluster *cluster, SimSpan *span,
                 void *user) {
  Price price = {0};
  Pricing p = {.arena = arena,
               .list = list,
               .model = model,
               .cluster = cluster,
               .trips = 1,
               .transfer_of = map_create(arena),
               .price = &price};
  vec_push(arena, &p.graphs, list->graph);
  price_instructions(&p);
  SimClass class = {p.actions.n, list->queues.n, p.actions.data};
  SimProgram program = {.n_classes = 1,
                        .n_transfers = p.transfers.n,
                        .n_links = cluster->groups[0].n_levels + 1,
                        .n_terms = N_COST_PARTS,
                        .classes = &class,
                        .transfers = p.transfers.data};
  SimResult result = simulate(arena, &program, 1, span, user);
  ASSERT(!result.is_stuck);
  price.step = result.step;
  for (int part = 0; part < N_COST_PARTS; part++) {
    price.compute += result.classes->compute[part];
    price.exposed += result.classes->exposed[part];
    price.parts[part] +=
        result.classes->compute[part] + result.classes->exposed[part];
    price.parts[COST_interference] += result.classes->taken[part];
  }
  return price;
}
