/*
 * placed_runs.c -- counts how often each node of a partitioned graph runs in a
 * step, from the decisions of the passes behind `partition` and without their
 * graphs.
 *
 *     %1 = all_gather %0 @forward     read by %2 @forward and %9 @dgrad:
 *                                     2 runs a micro-batch where the backward
 *                                     pass gathers again, else 1
 *
 * A node may run in three versions (passes/remat/remat.c): the original, the
 * clone that the backward pass reads, and, of what follows from parameters and
 * is computed in each micro-batch, one for the update, after all of them.  A
 * version runs if something reads it, once or for each micro-batch.
 */
#include "passes/remat/remat.h"
#include "planner/tables.h"

typedef enum RunVersion {
  RUN_original,
  RUN_clone,
  RUN_for_update,
  N_RUN_VERSIONS
} RunVersion;

typedef struct NodeRuns {
  bool is_read[N_RUN_VERSIONS];
  bool is_repeated[N_RUN_VERSIONS]; /* for each micro-batch */
} NodeRuns;

typedef struct RunCounter {
  const Graph *graph;
  const Remat *remat; /* NULL: the body of a scan, of which remat has none */
  AxisSet time;
  const bool *is_in_loop; /* by node: gathered for each micro-batch */
  NodeRuns *nodes;
} RunCounter;

static bool has_clone(const RunCounter *c, int id) {
  return c->remat && c->remat->reader[id] < c->remat->n;
}

/* The version of an operand that a version of a node reads. */
static RunVersion operand_version(const RunCounter *c, const Node *node,
                                  RunVersion version, int operand) {
  if (!c->remat) return RUN_original;
  bool is_of_update = version == RUN_for_update ||
                      (version == RUN_original && node->phase == PHASE_update);
  bool is_backward = node->phase == PHASE_input_gradient ||
                     node->phase == PHASE_weight_gradient;
  if (is_of_update)
    return c->remat->is_stored[operand] &&
                   c->nodes[operand].is_repeated[RUN_original]
               ? RUN_for_update
               : RUN_original;
  return (is_backward || version == RUN_clone) && has_clone(c, operand)
             ? RUN_clone
             : RUN_original;
}

/* By node: a gather of a parameter that waits for a value of a micro-batch, and
 * so is made for each. */
static bool *find_gathers_in_loop(const Remat *remat, AxisSet time,
                                  Arena *scratch) {
  bool *is_in_loop = ARENA_ARRAY(scratch, bool, remat->n);
  for (int place = 0; time && place < remat->n; place++)
    for (int at = remat->first_event[place]; at;
         at = remat->events.data[at - 1].next) {
      const RematEvent *event = &remat->events.data[at - 1];
      bool waits = remat->anchor[place] >= 0 || remat->first_data >= 0;
      if (!event->is_clone && waits) is_in_loop[event->id] = true;
    }
  return is_in_loop;
}

/* Some operand of the version is computed for each micro-batch. */
static bool reads_repeated(const RunCounter *c, const Node *node,
                           RunVersion version) {
  for (int i = 0; i < node->n_inputs; i++) {
    int from = node->inputs[i].node;
    Op op = c->graph->nodes.data[from]->op;
    if (!op_has(op, OP_FLAG_joins_microbatches) &&
        c->nodes[from].is_repeated[operand_version(c, node, version, from)])
      return true;
  }
  return false;
}

/* The operands of a clone wait for a value of the micro-batch, unless others of
 * them are clones, which have waited, or all are constants. */
static bool clone_waits(const RunCounter *c, int id) {
  const Node *node = c->graph->nodes.data[id];
  bool is_any = false;
  if (!c->time || !has_clone(c, id) ||
      (c->remat->first_data < 0 && c->remat->anchor[c->remat->place[id]] < 0))
    return false;
  for (int i = 0; i < node->n_inputs; i++) {
    Op op = c->graph->nodes.data[node->inputs[i].node]->op;
    if (has_clone(c, node->inputs[i].node)) return false;
    is_any |= op == OP_input || !op_is(op, OPCLASS_source);
  }
  return is_any;
}

/* A reader of something of a micro-batch runs for each, too, unless it joins
 * them. */
static void find_repeated(RunCounter *c, int id) {
  const Node *node = c->graph->nodes.data[id];
  bool *is_repeated = c->nodes[id].is_repeated;
  bool by_type = node_is_per_microbatch(c->graph, id);
  bool joins = op_has(node->op, OP_FLAG_joins_microbatches);
  bool follows = !joins && node->phase != PHASE_update &&
                 reads_repeated(c, node, RUN_original);
  is_repeated[RUN_original] =
      by_type || follows || (c->is_in_loop && c->is_in_loop[id]);
  is_repeated[RUN_clone] = by_type || clone_waits(c, id) ||
                           (!joins && reads_repeated(c, node, RUN_clone));
}

static void mark_operands(RunCounter *c, int id, RunVersion version) {
  const Node *node = c->graph->nodes.data[id];
  for (int i = 0; i < node->n_inputs; i++) {
    int from = node->inputs[i].node;
    c->nodes[from].is_read[operand_version(c, node, version, from)] = true;
  }
}

static int64_t *count_runs(RunCounter *c, Arena *scratch) {
  int n = c->graph->nodes.n;
  int64_t *runs = ARENA_ARRAY(scratch, int64_t, n);
  int64_t microbatches = c->remat ? mesh_microbatches(&c->graph->mesh) : 1;
  c->nodes = ARENA_ARRAY(scratch, NodeRuns, n);
  for (int id = 0; id < n; id++) find_repeated(c, id);
  for (int i = 0; i < c->graph->outputs.n; i++)
    c->nodes[c->graph->outputs.data[i].value.node].is_read[RUN_original] = true;
  for (int id = n - 1; id >= 0; id--)
    for (int v = 0; v < N_RUN_VERSIONS; v++) {
      if (!c->nodes[id].is_read[v]) continue;
      mark_operands(c, id, (RunVersion)v);
      runs[id] += c->nodes[id].is_repeated[v] ? microbatches : 1;
    }
  return runs;
}

int64_t *placed_runs(PassContext *ctx, const Graph *placed) {
  Remat remat = remat_decide(ctx, placed);
  AxisSet time = mesh_sequential(&placed->mesh);
  RunCounter c = {.graph = placed,
                  .remat = &remat,
                  .time = time,
                  .is_in_loop =
                      find_gathers_in_loop(&remat, time, ctx->scratch)};
  return count_runs(&c, ctx->scratch);
}

int64_t *body_runs(Arena *scratch, const Graph *body) {
  RunCounter c = {.graph = body};
  return count_runs(&c, scratch);
}
