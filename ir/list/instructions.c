/*
 * instructions.c -- makes the list of instructions of an ordered graph.
 *
 *     %2 = all_reduce %1              start %2 all_reduce on 0
 *     %3 = rename %2            =>    run %4 dot
 *     %4 = dot %0, %0                 wait %2 all_reduce before %5
 *     %5 = fused %3, %4 {...}         run %5 fused
 *
 * Nodes keep the order that list_schedule gave them.  Inputs and views make no
 * instruction.  A collective starts at its node; its wait stands before the
 * first node that reads one of its results, itself or through views, and else
 * at the end of its iteration or of the step.  buffer_assignment.c keeps what a
 * collective reads in its place until then.  Swaps likewise; the wait for one
 * to the host stands at its `swapped`, which is no instruction itself.
 *
 * A scan is a loop around the instructions of its body.  The nodes of a
 * per-microbatch value, which list_schedule puts next to each other, are a loop
 * too; where a value for all micro-batches lies between them there are two,
 * which codegen refuses.  A stage of several has two loops, of its forward and
 * its backward pass, and no other instruction between them.
 */
#include "ir/list/instructions.h"

#include "ir/place/mesh_place.h"

#include <string.h>

/* The list of one graph under construction: that of the entry point, or of the
 * body of a scan. */
typedef struct Listing {
  Arena *arena, *scratch;
  const Graph *graph;
  const Target *target;
  InstructionList *list;
  int *root;        /* by node: the node whose bytes a view shares */
  bool *is_pending; /* by node: a collective that is started, not waited for */
} Listing;

const char *instruction_name(InstructionKind kind) {
  static const char *const names[N_INSTRUCTIONS] = {
#define INSTRUCTION(name, meaning) #name,
#include "ir/list/instructions.def"
  };
  ASSERT((unsigned)kind < N_INSTRUCTIONS);
  return names[kind];
}

const char *queue_name(QueueKind kind) {
  static const char *const names[N_QUEUE_KINDS] = {
#define QUEUE(name, meaning) #name,
#include "ir/list/instructions.def"
  };
  ASSERT((unsigned)kind < N_QUEUE_KINDS);
  return names[kind];
}

bool node_is_launched(const Graph *graph, int id) {
  return graph->nodes.data[id]->op != OP_input && !node_is_view(graph, id);
}

/* ---- queues ---- */

QueueKind collective_queue(const Node *node) {
  if (node->op == OP_swap_out) return QUEUE_out;
  if (node->op == OP_swap_in) return QUEUE_in;
  return node_has(node, ATTR_bucket) ? QUEUE_bulk : QUEUE_blocking;
}

AxisList collective_axes(const Mesh *mesh, const Node *node) {
  AxisList list = 0;
  int n = 0;
  const Name *names = node_names(node, ATTR_axes, &n);
  for (int i = 0; i < n; i++)
    list = axis_list_append(list, mesh_find(mesh, names[i]));
  return list;
}

/* Collectives in place take the members of their group in the order of ranks,
 * whatever the order of the axes, so these join one group. */
static AxisList group_axes(const Graph *graph, const Node *node) {
  AxisList axes = collective_axes(&graph->mesh, node);
  return op_has(node->op, OP_FLAG_in_place)
             ? axis_list_of_set(axis_list_set(axes))
             : axes;
}

/* The index of the queue of a collective; queues are in the order of their
 * first collectives. */
static int find_queue(Listing *l, const Node *node) {
  InstructionList *list = l->list;
  bool is_per_group = l->target && l->target->has_queues_per_group &&
                      !op_is(node->op, OPCLASS_swap);
  InstructionQueue queue = {collective_queue(node),
                            is_per_group ? group_axes(l->graph, node) : 0};
  for (int i = 0; i < list->queues.n; i++)
    if (list->queues.data[i].kind == queue.kind &&
        list->queues.data[i].axes == queue.axes)
      return i;
  vec_push(l->arena, &list->queues, queue);
  return list->queues.n - 1;
}

/* ---- instructions ---- */

static void add_instruction(Listing *l, Instruction instruction) {
  vec_push(l->arena, &l->list->instructions, instruction);
}

static void add_node(Listing *l, InstructionKind kind, int id) {
  add_instruction(
      l,
      (Instruction){.kind = kind, .node = id, .collective = -1, .queue = -1});
}

static void add_loop(Listing *l, int scan, int64_t trips) {
  add_instruction(l, (Instruction){.kind = INSTRUCTION_loop,
                                   .node = scan,
                                   .collective = -1,
                                   .queue = -1,
                                   .trips = trips});
}

static void add_start(Listing *l, int id) {
  const Node *node = l->graph->nodes.data[id];
  bool is_swap = op_is(node->op, OPCLASS_swap);
  add_instruction(
      l, (Instruction){.kind = is_swap ? INSTRUCTION_swap : INSTRUCTION_start,
                       .node = id,
                       .collective = -1,
                       .queue = find_queue(l, node)});
  l->is_pending[id] = true;
}

static void add_wait(Listing *l, int reader, int collective) {
  if (!l->is_pending[collective]) return;
  add_instruction(l, (Instruction){.kind = INSTRUCTION_wait,
                                   .node = reader,
                                   .collective = collective,
                                   .queue = -1});
  l->is_pending[collective] = false;
}

/* Waits for what was started from node `begin` on and nobody has read. */
static void add_waits_left(Listing *l, int begin, int end) {
  for (int id = begin; id < end; id++) add_wait(l, id, id);
}

/* ---- graphs ---- */

static void list_body(const Listing *enclosing, const Graph *body);

static void list_node(Listing *l, int id) {
  const Node *node = l->graph->nodes.data[id];
  if (!node_is_launched(l->graph, id) && node->op != OP_swapped) return;
  for (int i = 0; i < node->n_inputs; i++)
    add_wait(l, id, l->root[node->inputs[i].node]);
  if (node->op == OP_swapped) return;
  if (op_has(node->op, OP_FLAG_asynchronous)) {
    add_start(l, id);
  } else if (node->op == OP_scan) {
    add_loop(l, id, scan_steps(node));
    list_body(l, node->body);
    add_node(l, INSTRUCTION_end, -1);
  } else {
    add_node(l, INSTRUCTION_run, id);
  }
}

static void list_clears(Listing *l, int begin, int end) {
  for (int id = begin; id < end; id++)
    if (l->graph->nodes.data[id]->op == OP_accumulate)
      add_node(l, INSTRUCTION_clear, id);
}

/* Likewise all that they leave side by side: a rank may run some of them. */
static void list_joined(Listing *l, int begin, int end) {
  for (int id = begin; id < end; id++)
    if (node_joins_microbatches(l->graph->nodes.data[id]))
      add_node(l, INSTRUCTION_clear, id);
}

static void list_microbatches(Listing *l, int begin, int end) {
  add_loop(l, -1, mesh_microbatches(&l->graph->mesh));
  for (int id = begin; id < end; id++) list_node(l, id);
  add_waits_left(l, begin, end);
  add_node(l, INSTRUCTION_end, -1);
}

static void index_graph(Listing *l, const Graph *graph) {
  int n = graph->nodes.n;
  l->graph = graph;
  l->root = ARENA_ARRAY(l->scratch, int, n);
  l->is_pending = ARENA_ARRAY(l->scratch, bool, n);
  for (int id = 0; id < n; id++)
    l->root[id] = node_is_view(graph, id)
                      ? l->root[graph->nodes.data[id]->inputs[0].node]
                      : id;
}

static void list_body(const Listing *enclosing, const Graph *body) {
  Listing l = *enclosing;
  index_graph(&l, body);
  for (int id = 0; id < body->nodes.n; id++) list_node(&l, id);
  add_waits_left(&l, 0, body->nodes.n);
}

static Listing begin_listing(Arena *arena, const Graph *ordered,
                             const Target *target) {
  Listing l = {.arena = arena,
               .scratch = arena_beside(arena),
               .target = target,
               .list = ARENA_NEW(arena, InstructionList)};
  l.list->graph = ordered;
  index_graph(&l, ordered);
  return l;
}

InstructionList *instructions_of(Arena *arena, const Graph *ordered,
                                 const Target *target) {
  Listing l = begin_listing(arena, ordered, target);
  int n = ordered->nodes.n;
  for (int id = 0; id < n;) {
    int end = id;
    while (end < n && node_is_per_microbatch(ordered, end)) end++;
    if (end > id) {
      list_clears(&l, id, end);
      list_microbatches(&l, id, end);
    } else {
      list_node(&l, end++);
    }
    id = end;
  }
  add_waits_left(&l, 0, n);
  arena_destroy(l.scratch);
  return l.list;
}

/* ---- stages of several ---- */

static void wait_for_sent(Listing *l) {
  for (int i = 0; i < l->graph->outputs.n; i++) {
    const GraphOutput *output = &l->graph->outputs.data[i];
    int root = l->root[output->value.node];
    if (output->role == ROLE_send) add_wait(l, root, root);
  }
}

static void list_segment(Listing *l, ListSegment *segment) {
  int *at = &l->list->instructions.n;
  segment->begin = *at + segment->is_of_microbatch; /* without the bracket */
  if (segment->is_of_microbatch) {
    list_microbatches(l, segment->first_node, segment->end_node);
  } else {
    for (int id = segment->first_node; id < segment->end_node; id++)
      list_node(l, id);
    wait_for_sent(l);
  }
  segment->end = *at - segment->is_of_microbatch;
}

/* Likewise all that they leave for the segments after them. */
static void list_left(Listing *l, int begin, int end) {
  bool *is_left = ARENA_ARRAY(l->scratch, bool, l->graph->nodes.n);
  for (int id = end; id < l->graph->nodes.n; id++) {
    const Node *node = l->graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++)
      is_left[l->root[node->inputs[i].node]] = true;
  }
  for (int id = begin; id < end; id++)
    if (is_left[id] && node_is_per_microbatch(l->graph, id))
      add_node(l, INSTRUCTION_clear, id);
}

/* The segment before the first one of micro-batches clears the sums that they
 * add to; all collectives have ended in the last one. */
InstructionList *instructions_of_segments(Arena *arena, const Graph *ordered,
                                          const Target *target,
                                          ListSegment *segments, int n,
                                          ListClears clears) {
  static void (*const lists[])(Listing *, int,
                               int) = {[CLEARS_sums] = list_clears,
                                       [CLEARS_joined] = list_joined,
                                       [CLEARS_left] = list_left};
  Listing l = begin_listing(arena, ordered, target);
  bool is_clear = false;
  int end = n - 1;
  while (end > 0 && !segments[end - 1].is_of_microbatch) end--;
  ASSERT(n > 0 && !segments[0].is_of_microbatch &&
         !segments[n - 1].is_of_microbatch);
  for (int s = 0; s < n; s++) {
    if (segments[s].is_of_microbatch && !is_clear) {
      lists[clears](&l, segments[s].first_node, segments[end].first_node);
      segments[s - 1].end = l.list->instructions.n;
      is_clear = true;
    }
    list_segment(&l, &segments[s]);
  }
  add_waits_left(&l, 0, ordered->nodes.n);
  segments[n - 1].end = l.list->instructions.n;
  arena_destroy(l.scratch);
  return l.list;
}

int instructions_loop_end(const InstructionList *list, int loop) {
  int depth = 0;
  for (int at = loop; at < list->instructions.n; at++) {
    InstructionKind kind = list->instructions.data[at].kind;
    depth += (kind == INSTRUCTION_loop) - (kind == INSTRUCTION_end);
    if (depth == 0) return at;
  }
  UNREACHABLE();
}
