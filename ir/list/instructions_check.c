/*
 * instructions_check.c -- checks that a list of instructions may be executed:
 * the head of instructions_check in instructions.h names the rules.
 *
 * One walk over the list.  It knows where every collective stands: not started,
 * pending, or ended.  A loop is walked once: what it starts it must wait for,
 * so all its iterations begin alike, but for a wait inside the micro-batches
 * for what was started before them, after which the collective has ended in
 * this and all later iterations.
 */
#include "ir/list/instructions.h"

#include "ir/place/mesh_place.h"

#include <stdarg.h>

typedef enum Progress {
  PROGRESS_none,
  PROGRESS_pending,
  PROGRESS_ended
} Progress;

/* A graph whose instructions are being read. */
typedef struct GraphWalk {
  const Graph *graph;
  bool is_body;
  int next;           /* launched nodes before it have been met */
  int *root;          /* by node: the node whose bytes a view shares */
  Progress *progress; /* by node, of collectives */
  int *started;       /* by node: the place of its start */
  bool *is_cleared;   /* by node */
} GraphWalk;

/* A loop that is open; the first is the list itself. */
typedef struct OpenLoop {
  GraphWalk *walk;
  int at; /* place of the loop; -1: the list */
  bool is_microbatches;
} OpenLoop;

typedef struct ListCheck {
  const InstructionList *list;
  Arena *scratch;
  Text *out;
  int n_errors, at; /* at: the place of the instruction at hand */
  VEC(OpenLoop) open;
} ListCheck;

static OpenLoop *innermost(const ListCheck *c) {
  return &c->open.data[c->open.n - 1];
}

/* `id` is a node of the innermost graph, or -1. */
static void PRINTF_LIKE(3, 4)
    violated(ListCheck *c, int id, const char *format, ...) {
  c->n_errors++;
  if (!c->out) return;
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(c->scratch, format, args);
  va_end(args);
  if (c->at < c->list->instructions.n) {
    InstructionKind kind = c->list->instructions.data[c->at].kind;
    text_printf(c->out, "instruction %d, %s", c->at, instruction_name(kind));
  } else {
    text_add(c->out, "end of the list");
  }
  if (id >= 0) {
    const Node *node = innermost(c)->walk->graph->nodes.data[id];
    text_printf(c->out, ", node %d, %s ", id, op_info(node->op)->name);
    text_add_json(c->out, node->path);
  }
  text_printf(c->out, ": %s\n", text);
}

static GraphWalk *begin_walk(ListCheck *c, const Graph *graph, bool is_body) {
  GraphWalk *walk = ARENA_NEW(c->scratch, GraphWalk);
  int n = graph->nodes.n;
  *walk = (GraphWalk){.graph = graph,
                      .is_body = is_body,
                      .root = ARENA_ARRAY(c->scratch, int, n),
                      .progress = ARENA_ARRAY(c->scratch, Progress, n),
                      .started = ARENA_ARRAY(c->scratch, int, n),
                      .is_cleared = ARENA_ARRAY(c->scratch, bool, n)};
  for (int id = 0; id < n; id++)
    walk->root[id] = node_is_view(graph, id)
                         ? walk->root[graph->nodes.data[id]->inputs[0].node]
                         : id;
  return walk;
}

static void open_loop(ListCheck *c, GraphWalk *walk, bool is_microbatches) {
  vec_push(c->scratch, &c->open, (OpenLoop){walk, c->at, is_microbatches});
}

static bool node_exists(ListCheck *c, int id) {
  if (id >= 0 && id < innermost(c)->walk->graph->nodes.n) return true;
  violated(c, -1, "the graph has no node %d", id);
  return false;
}

/* ---- nodes ---- */

static InstructionKind kind_of_node(const Node *node) {
  if (op_is(node->op, OPCLASS_swap)) return INSTRUCTION_swap;
  if (op_has(node->op, OP_FLAG_asynchronous)) return INSTRUCTION_start;
  return node->op == OP_scan ? INSTRUCTION_loop : INSTRUCTION_run;
}

/* Launched nodes before `end` that the list has not met. */
static void check_left_out(ListCheck *c, int end) {
  GraphWalk *walk = innermost(c)->walk;
  for (; walk->next < end; walk->next++)
    if (node_is_launched(walk->graph, walk->next))
      violated(c, walk->next, "no instruction before launches it");
}

static void check_place(ListCheck *c, int id) {
  const OpenLoop *loop = innermost(c);
  GraphWalk *walk = loop->walk;
  if (!node_is_launched(walk->graph, id)) {
    violated(c, id, "an input or a view is not launched");
    return;
  }
  check_left_out(c, id);
  if (id < walk->next)
    violated(c, id, "it stands twice, or after a later node of the graph");
  else
    walk->next = id + 1;
  if (!walk->is_body &&
      node_is_per_microbatch(walk->graph, id) != loop->is_microbatches)
    violated(c, id,
             loop->is_microbatches
                 ? "it runs once and is in the loop of micro-batches"
                 : "it runs for each micro-batch and is outside of their loop");
}

static void check_reads(ListCheck *c, int id) {
  const GraphWalk *walk = innermost(c)->walk;
  const Node *node = walk->graph->nodes.data[id];
  for (int i = 0; i < node->n_inputs; i++) {
    int from = walk->root[node->inputs[i].node];
    Op op = walk->graph->nodes.data[from]->op;
    if (op_has(op, OP_FLAG_asynchronous) &&
        walk->progress[from] != PROGRESS_ended)
      violated(c, id, "it reads node %d before the wait for it", from);
  }
}

static void check_launch(ListCheck *c, const Instruction *in) {
  const GraphWalk *walk = innermost(c)->walk;
  if (!node_exists(c, in->node)) return;
  const Node *node = walk->graph->nodes.data[in->node];
  check_place(c, in->node);
  if (kind_of_node(node) != in->kind)
    violated(c, in->node, "its operator is no %s but a %s",
             instruction_name(in->kind), instruction_name(kind_of_node(node)));
  check_reads(c, in->node);
  if (node->op == OP_accumulate && innermost(c)->is_microbatches &&
      !walk->is_cleared[in->node])
    violated(c, in->node, "micro-batches add to it, but nothing clears it");
}

static void check_clear(ListCheck *c, const Instruction *in) {
  const OpenLoop *loop = innermost(c);
  if (!node_exists(c, in->node)) return;
  const Node *node = loop->walk->graph->nodes.data[in->node];
  if (!node_joins_microbatches(node) && !node_has(node, ATTR_per_microbatch))
    violated(c, in->node, "only what micro-batches add up is cleared");
  if (loop->at >= 0)
    violated(c, in->node, "it is cleared inside a loop");
  else if (loop->walk->is_cleared[in->node] || in->node < loop->walk->next)
    violated(c, in->node, "it is cleared twice, or after it ran");
  loop->walk->is_cleared[in->node] = true;
}

/* ---- collectives ---- */

static void check_queue(ListCheck *c, const Instruction *in) {
  const Graph *graph = innermost(c)->walk->graph;
  const Node *node = graph->nodes.data[in->node];
  if (in->queue < 0 || in->queue >= c->list->queues.n) {
    violated(c, in->node, "the list has no queue %d", in->queue);
    return;
  }
  const InstructionQueue *queue = &c->list->queues.data[in->queue];
  AxisSet axes = axis_list_set(collective_axes(&graph->mesh, node));
  if (queue->kind != collective_queue(node) ||
      (queue->axes && axis_list_set(queue->axes) != axes))
    violated(c, in->node, "queue %d is not the one of this collective",
             in->queue);
}

static void check_start(ListCheck *c, const Instruction *in) {
  check_launch(c, in);
  GraphWalk *walk = innermost(c)->walk;
  if (in->node < 0 || in->node >= walk->graph->nodes.n) return;
  if (!op_has(walk->graph->nodes.data[in->node]->op, OP_FLAG_asynchronous))
    return;
  check_queue(c, in);
  walk->progress[in->node] = PROGRESS_pending;
  walk->started[in->node] = c->at;
}

static void check_wait(ListCheck *c, const Instruction *in) {
  GraphWalk *walk = innermost(c)->walk;
  if (!node_exists(c, in->collective) || !node_exists(c, in->node)) return;
  if (walk->progress[in->collective] == PROGRESS_none)
    violated(c, in->collective, "it is waited for before it starts");
  else if (walk->progress[in->collective] == PROGRESS_ended)
    violated(c, in->collective, "it is waited for twice");
  const Node *reader = walk->graph->nodes.data[in->node];
  bool reads = in->node == in->collective;
  for (int i = 0; i < reader->n_inputs; i++)
    reads |= walk->root[reader->inputs[i].node] == in->collective;
  if (!reads)
    violated(c, in->node, "it does not read node %d, for which it waits",
             in->collective);
  walk->progress[in->collective] = PROGRESS_ended;
}

/* ---- loops ---- */

static void check_loop(ListCheck *c, const Instruction *in) {
  GraphWalk *walk = innermost(c)->walk;
  if (in->node < 0) {
    if (c->open.n > 1) violated(c, -1, "micro-batches inside another loop");
    if (in->trips != mesh_microbatches(&walk->graph->mesh))
      violated(c, -1, "the mesh has %d micro-batches, not %lld",
               mesh_microbatches(&walk->graph->mesh), (long long)in->trips);
    open_loop(c, walk, true);
    return;
  }
  check_launch(c, in);
  const Node *node = in->node < walk->graph->nodes.n
                         ? walk->graph->nodes.data[in->node]
                         : NULL;
  if (!node || node->op != OP_scan) {
    open_loop(c, walk, innermost(c)->is_microbatches);
    return;
  }
  if (in->trips != scan_steps(node))
    violated(c, in->node, "it has %lld iterations, not %lld",
             (long long)scan_steps(node), (long long)in->trips);
  open_loop(c, begin_walk(c, node->body, true), false);
}

/* Collectives started since the loop began must have ended. */
static void close_loop(ListCheck *c) {
  const OpenLoop *loop = innermost(c);
  GraphWalk *walk = loop->walk;
  if (!loop->is_microbatches) check_left_out(c, walk->graph->nodes.n);
  for (int id = 0; id < walk->graph->nodes.n; id++)
    if (walk->progress[id] == PROGRESS_pending && walk->started[id] > loop->at)
      violated(c, id, "nothing waits for it before the end of %s",
               loop->at < 0 ? "the list" : "its loop");
}

static void check_end(ListCheck *c) {
  if (c->open.n == 1) {
    violated(c, -1, "no loop is open");
    return;
  }
  close_loop(c);
  c->open.n--;
}

static void check_instruction(ListCheck *c, const Instruction *in) {
  switch (in->kind) {
  case INSTRUCTION_run: check_launch(c, in); return;
  case INSTRUCTION_start:
  case INSTRUCTION_swap: check_start(c, in); return;
  case INSTRUCTION_wait: check_wait(c, in); return;
  case INSTRUCTION_clear: check_clear(c, in); return;
  case INSTRUCTION_loop: check_loop(c, in); return;
  case INSTRUCTION_end: check_end(c); return;
  case N_INSTRUCTIONS: break;
  }
  UNREACHABLE();
}

bool instructions_check(const InstructionList *list, Text *out_errors) {
  ListCheck c = {.list = list,
                 .scratch = arena_beside(list->graph->module->arena),
                 .out = out_errors,
                 .at = -1};
  open_loop(&c, begin_walk(&c, list->graph, false), false);
  for (c.at = 0; c.at < list->instructions.n; c.at++)
    check_instruction(&c, &list->instructions.data[c.at]);
  if (c.open.n > 1) {
    violated(&c, -1, "a loop is not closed");
    c.open.n = 1;
  }
  close_loop(&c);
  arena_destroy(c.scratch);
  return c.n_errors == 0;
}
