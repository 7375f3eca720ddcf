/*
 * instructions_text.c -- prints lists of instructions and reads them (the head
 * of instructions.h describes the form).
 *
 * The parser checks every name and number, and that operator and path of a
 * node are those of the graph: a text of another graph is refused.
 *
 *     list   = "instructions" name "{" { queue } { line } "}"
 *     queue  = "queue" INT kind [ "over" "(" name { "," name } ")" ]
 *     line   = "run" node | "clear" node
 *            | ( "start" | "swap" ) node "on" INT
 *            | "wait" VALUE op ( "before" VALUE | "at" "end" ) STRING
 *            | "loop" ( "microbatches" INT | VALUE "scan" INT STRING ) | "end"
 *     node   = VALUE op STRING       a start has its queue before the STRING
 */
#include "ir/list/instructions.h"
#include "ir/text/tokens.h"

#include <string.h>

#define MAX_NESTING 16

/* The graph of a loop, and the number of each node's first result. */
typedef struct Numbering {
  const Graph *graph;
  const int *first;
} Numbering;

static Numbering number_graph(Arena *arena, const Graph *graph) {
  int *first = ARENA_ARRAY(arena, int, graph->nodes.n);
  int n = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    first[id] = n;
    n += graph->nodes.data[id]->n_results;
  }
  return (Numbering){graph, first};
}

/* The number of a node whose result is used: one without results has none. */
static int find_number(const Numbering *numbering, int64_t number) {
  int low = 0, high = numbering->graph->nodes.n - 1;
  while (low < high) {
    int middle = low + (high - low + 1) / 2;
    if (numbering->first[middle] <= number)
      low = middle;
    else
      high = middle - 1;
  }
  return high >= 0 && numbering->first[low] == number ? low : -1;
}

/* ---- printing ---- */

static void print_path(Text *out, const Node *node) {
  text_add(out, " ");
  text_add_json(out, node->path);
}

static void print_operator(Text *out, const Numbering *numbering, int id) {
  text_printf(out, " %%%d %s", numbering->first[id],
              op_info(numbering->graph->nodes.data[id]->op)->name);
}

static void print_queue(Text *out, const InstructionList *list, int index) {
  const InstructionQueue *queue = &list->queues.data[index];
  const Mesh *mesh = &list->graph->mesh;
  text_printf(out, "  queue %d %s", index, queue_name(queue->kind));
  for (int i = 0; i < axis_list_length(queue->axes); i++) {
    text_add(out, i ? ", " : " over (");
    name_print(out, mesh->axes[axis_list_at(queue->axes, i)].name);
  }
  text_add(out, queue->axes ? ")\n" : "\n");
}

/* Prints the operands that follow the kind. */
static void print_operands(Text *out, const Numbering *numbering,
                           const Instruction *in) {
  const Graph *graph = numbering->graph;
  switch (in->kind) {
  case INSTRUCTION_start:
  case INSTRUCTION_swap:
    print_operator(out, numbering, in->node);
    text_printf(out, " on %d", in->queue);
    break;
  case INSTRUCTION_wait:
    print_operator(out, numbering, in->collective);
    if (in->node == in->collective)
      text_add(out, " at end");
    else
      text_printf(out, " before %%%d", numbering->first[in->node]);
    break;
  case INSTRUCTION_loop:
    if (in->node < 0) {
      text_printf(out, " microbatches %lld", (long long)in->trips);
      return;
    }
    print_operator(out, numbering, in->node);
    text_printf(out, " %lld", (long long)in->trips);
    break;
  case INSTRUCTION_end: return;
  default: print_operator(out, numbering, in->node);
  }
  print_path(out, graph->nodes.data[in->node]);
}

/* From `at` to the end of the loop that they are in; returns what follows. */
static int print_instructions(Text *out, const InstructionList *list, int at,
                              const Numbering *numbering, int indent) {
  while (at < list->instructions.n) {
    const Instruction *in = &list->instructions.data[at++];
    bool is_end = in->kind == INSTRUCTION_end;
    text_printf(out, "%*s%s", is_end && indent > 2 ? indent - 2 : indent, "",
                instruction_name(in->kind));
    print_operands(out, numbering, in);
    text_add(out, "\n");
    if (is_end && indent > 2) return at;
    if (in->kind != INSTRUCTION_loop) continue;
    Numbering body = *numbering;
    if (in->node >= 0)
      body = number_graph(out->arena,
                          numbering->graph->nodes.data[in->node]->body);
    at = print_instructions(out, list, at, &body, indent + 2);
  }
  return at;
}

void instructions_print(Text *out, const InstructionList *list) {
  Numbering numbering = number_graph(out->arena, list->graph);
  text_add(out, "instructions ");
  name_print(out, list->graph->name ? list->graph->name : "");
  text_add(out, " {\n");
  for (int i = 0; i < list->queues.n; i++) print_queue(out, list, i);
  print_instructions(out, list, 0, &numbering, 2);
  text_add(out, "}\n");
}

/* ---- parsing ---- */

typedef struct ListParser {
  Tokens tokens;
  Arena *arena;
  InstructionList *list;
  Numbering open[MAX_NESTING + 1]; /* of the loops around, outermost first */
} ListParser;

static const Numbering *numbering_here(const ListParser *l) {
  return &l->open[l->tokens.depth];
}

/* "%5": the node of this first result; 0 after a mistake. */
static int parse_value(ListParser *l) {
  Tokens *p = &l->tokens;
  if (p->token.kind != TOKEN_value) {
    tokens_expected(p, "a value");
    return 0;
  }
  int id = find_number(numbering_here(l), p->token.integer);
  if (id < 0) tokens_unknown(p, "first result of a node");
  tokens_next(p);
  return id < 0 ? 0 : id;
}

/* "%5 dot" */
static int parse_node(ListParser *l) {
  Tokens *p = &l->tokens;
  int id = parse_value(l);
  if (p->failed) return 0;
  const Node *node = numbering_here(l)->graph->nodes.data[id];
  if (!tokens_accept_word(p, op_info(node->op)->name))
    tokens_expected(p, "the operator of this node in the graph");
  return id;
}

static void parse_path(ListParser *l, int id) {
  Tokens *p = &l->tokens;
  if (p->failed) return;
  const Node *node = numbering_here(l)->graph->nodes.data[id];
  if (p->token.kind == TOKEN_string && strcmp(p->token.name, node->path) != 0)
    tokens_wrong(p, "a path that this node does not have in the graph");
  tokens_string(p);
}

static void parse_start(ListParser *l, Instruction *in) {
  Tokens *p = &l->tokens;
  in->node = parse_node(l);
  if (!tokens_accept_word(p, "on")) tokens_expected(p, "'on'");
  in->queue = (int)tokens_int(p, 0, INT32_MAX);
  if (in->queue >= l->list->queues.n)
    tokens_wrong(p, "a start on a queue that the list does not name");
  parse_path(l, in->node);
}

static void parse_wait(ListParser *l, Instruction *in) {
  Tokens *p = &l->tokens;
  in->node = in->collective = parse_node(l);
  if (tokens_accept_word(p, "before")) {
    in->node = parse_value(l);
  } else if (!tokens_accept_word(p, "at") || !tokens_accept_word(p, "end")) {
    tokens_expected(p, "'before' and a value, or 'at end'");
  }
  parse_path(l, in->node);
}

static void parse_loop(ListParser *l, Instruction *in) {
  Tokens *p = &l->tokens;
  Numbering body = *numbering_here(l);
  if (!tokens_accept_word(p, "microbatches")) {
    in->node = parse_node(l);
    const Node *node = body.graph->nodes.data[in->node];
    if (!p->failed && node->op != OP_scan)
      tokens_wrong(p, "a loop over a node that is no scan");
    if (!p->failed) body = number_graph(l->arena, node->body);
  }
  in->trips = tokens_int(p, 1, INT64_MAX >> 8);
  if (in->node >= 0) parse_path(l, in->node);
  if (p->depth == MAX_NESTING)
    tokens_wrong(p, "a loop nested too deeply");
  else
    l->open[++p->depth] = body;
}

static void parse_instruction(ListParser *l) {
  Tokens *p = &l->tokens;
  Instruction in = {.node = -1, .collective = -1, .queue = -1};
  int kind = 0;
  while (kind < N_INSTRUCTIONS &&
         !tokens_accept_word(p, instruction_name((InstructionKind)kind)))
    kind++;
  in.kind = (InstructionKind)kind;
  switch (kind) {
  case INSTRUCTION_run:
  case INSTRUCTION_clear:
    in.node = parse_node(l);
    parse_path(l, in.node);
    break;
  case INSTRUCTION_start:
  case INSTRUCTION_swap: parse_start(l, &in); break;
  case INSTRUCTION_wait: parse_wait(l, &in); break;
  case INSTRUCTION_loop: parse_loop(l, &in); break;
  case INSTRUCTION_end: p->depth -= p->depth > 0; break;
  default: tokens_expected(p, "an instruction or '}'"); return;
  }
  if (!p->failed) vec_push(l->arena, &l->list->instructions, in);
}

static AxisList parse_queue_axes(ListParser *l) {
  Tokens *p = &l->tokens;
  AxisList axes = 0;
  if (!tokens_accept_word(p, "over")) return 0;
  tokens_expect_char(p, '(');
  do {
    int axis = mesh_find(&l->list->graph->mesh, tokens_name(p));
    if (axis < 0 || axis_list_set(axes) >> axis & 1)
      tokens_wrong(p, "a list that is not of mesh axes, each once,");
    if (p->failed) return 0;
    axes = axis_list_append(axes, axis);
  } while (tokens_accept_char(p, ','));
  tokens_expect_char(p, ')');
  return axes;
}

static void parse_queue(ListParser *l) {
  Tokens *p = &l->tokens;
  if (tokens_int(p, 0, INT32_MAX) != l->list->queues.n)
    tokens_wrong(p, "a queue whose number does not follow the one before");
  int kind = 0;
  while (kind < N_QUEUE_KINDS &&
         !tokens_accept_word(p, queue_name((QueueKind)kind)))
    kind++;
  if (kind == N_QUEUE_KINDS) tokens_unknown(p, "kind of queue");
  AxisList axes = parse_queue_axes(l);
  vec_push(l->arena, &l->list->queues,
           (InstructionQueue){(QueueKind)kind, axes});
}

InstructionList *instructions_parse(Module *module, const Graph *graph,
                                    const Source *source) {
  ListParser l = {.tokens = tokens_begin(module, source),
                  .arena = module->arena,
                  .list = ARENA_NEW(module->arena, InstructionList)};
  Tokens *p = &l.tokens;
  l.list->graph = graph;
  l.open[0] = number_graph(l.arena, graph);
  if (!tokens_accept_word(p, "instructions"))
    tokens_expected(p, "'instructions'");
  tokens_name(p);
  tokens_expect_char(p, '{');
  while (tokens_accept_word(p, "queue")) parse_queue(&l);
  while (!tokens_at_char(p, '}') && !p->failed) parse_instruction(&l);
  tokens_expect_char(p, '}');
  if (!p->failed && p->token.kind != TOKEN_end) tokens_expected(p, "the end");
  return p->failed ? NULL : l.list;
}
