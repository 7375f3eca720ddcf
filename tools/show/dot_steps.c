/*
 * dot_steps.c -- writes the step as a graph for Graphviz: launches and
 * collectives with their times, and what they read of each other.
 *
 *     block[0].mlp.dot[0] -> block[0].mlp.gelu -> ...
 *     block[1].mlp.dot[0] -> ...                         block[0]  1 iteration
 *     block[2].mlp.dot[0] -> ...                  =>     block[1].mlp.dot[0]
 *                                                        block[2]  1 iteration
 *
 * A repeat with three iterations or more has its middle one drawn in full.
 * Those before it are one box for each pass, and so are those after it.
 */
#include "tools/show/inspect.h"

#include <stdio.h>
#include <string.h>

/* A box stands for one node, or for all nodes of a pass in some
 * iterations. */
typedef struct DotBox {
  const char *id;
  Name repeat;         /* NULL: the box is one node */
  int64_t first, last; /* iterations */
  const Node *node;    /* the first of them */
  int number;          /* of that node in its graph */
  int n_nodes;
  Ps time;
} DotBox;

typedef struct Dot {
  Arena *arena;
  const Priced *p;
  const Graph *graph;
  Names *names;
  Map *last_of; /* repeat -> largest index */
  Map *by_id;   /* id -> box, plus 1 */
  VEC(DotBox) boxes;
  int *box_of; /* node -> box, or -1 */
  Map *edges;
} Dot;

/* ---- boxes ---- */

static const char *pass_word(Phase phase) {
  switch (phase) {
  case PHASE_forward: return "forward";
  case PHASE_input_gradient:
  case PHASE_weight_gradient: return "backward";
  case PHASE_update: return "update";
  case N_PHASES: break;
  }
  UNREACHABLE();
}

static void find_repeats(Dot *d) {
  for (int id = 0; id < d->graph->nodes.n; id++) {
    Name name;
    int64_t index;
    const char *path = priced_path(d->graph->nodes.data[id]);
    if (!node_is_launched(d->graph, id) ||
        !path_iteration(d->names, path, &name, &index))
      continue;
    if (index >= (int64_t)(intptr_t)map_get(d->last_of, name))
      map_put(d->last_of, name, (void *)(intptr_t)index);
  }
}

static void add_to_box(Dot *d, int id) {
  const Node *node = d->graph->nodes.data[id];
  DotBox box = {
      .id = arena_printf(d->arena, "n%d", id), .node = node, .number = id};
  int64_t index;
  bool is_iteration =
      path_iteration(d->names, priced_path(node), &box.repeat, &index);
  int64_t last =
      is_iteration ? (int64_t)(intptr_t)map_get(d->last_of, box.repeat) : 0;
  if (!is_iteration || last < 2 || index == last / 2)
    box.repeat = NULL;
  else
    box.id = arena_printf(d->arena, "%s_%s_%s", box.repeat,
                          index < last / 2 ? "before" : "after",
                          pass_word(node->phase));
  box.first = box.last = index;
  Name key = name_intern(d->names, box.id);
  intptr_t at = (intptr_t)map_get(d->by_id, key);
  if (!at) {
    vec_push(d->arena, &d->boxes, box);
    at = d->boxes.n;
    map_put(d->by_id, key, (void *)at);
  }
  DotBox *known = &d->boxes.data[at - 1];
  if (index < known->first) known->first = index;
  if (index > known->last) known->last = index;
  known->n_nodes++;
  d->box_of[id] = (int)at - 1;
}

/* A wait counts for its collective. */
static void add_times(Dot *d) {
  const PricedClass *class = priced_shown(d->p);
  for (int i = 0; i < class->stream.n; i++) {
    const StreamSpan *span = &class->stream.data[i];
    const PricedNode *at = &class->nodes[span->instruction];
    if (at->stage != d->p->stage || at->outer < 0) continue;
    int box = d->box_of[at->outer];
    if (box >= 0) d->boxes.data[box].time += priced_length(span);
  }
}

/* ---- text ---- */

static const char *box_colour(const Node *node) {
  if (op_is(node->op, OPCLASS_collective)) return "#f6c9b5";
  switch (node->phase) {
  case PHASE_forward: return "#cfe0f7";
  case PHASE_input_gradient: return "#dccff2";
  case PHASE_weight_gradient: return "#ecd3ea";
  case PHASE_update: return "#cfe8e3";
  case N_PHASES: break;
  }
  UNREACHABLE();
}

static const char *collective_words(const Dot *d, const DotBox *box) {
  int n = 0;
  const Name *axes = node_names(box->node, ATTR_axes, &n);
  Text text = text_create(d->arena);
  for (int i = 0; i < n; i++)
    text_printf(&text, "%s%s", i ? ", " : "", axes[i]);
  Bytes sent = node_sent_bytes(d->graph, box->number);
  return arena_printf(d->arena, "%s over %s\nsends %s, exposed",
                      op_info(box->node->op)->name, text_string(&text),
                      text_quantity(d->arena, (double)sent, "B"));
}

static void print_box(Text *out, const Dot *d, const DotBox *box) {
  const Node *node = box->node;
  bool is_collective = op_is(node->op, OPCLASS_collective) && !box->repeat;
  const char *path = priced_path(node), *label;
  if (box->repeat)
    label = arena_printf(d->arena, "%s[%lld..%lld] %s\n%d launches\n%s",
                         box->repeat, (long long)box->first,
                         (long long)box->last, pass_word(node->phase),
                         box->n_nodes, inspect_ms(d->arena, box->time));
  else
    label = arena_printf(d->arena, "%s\n%s %s", path,
                         is_collective ? collective_words(d, box)
                                       : op_info(node->op)->name,
                         inspect_ms(d->arena, box->time));
  text_add(out, "  ");
  text_add_json(out, box->id);
  text_add(out, " [label=");
  text_add_json(out, label);
  text_printf(out, ",fillcolor=\"%s\"%s];\n",
              box->repeat ? "#e4e7ea" : box_colour(node),
              is_collective ? ",shape=hexagon" : "");
}

/* The node that is launched to make this value; -1: it is an input. */
static int maker_of(const Graph *graph, Value value) {
  while (!node_is_launched(graph, value.node)) {
    const Node *node = graph_node(graph, value);
    if (node->n_inputs == 0) return -1;
    value = node->inputs[0];
  }
  return value.node;
}

static void print_edge(Text *out, Dot *d, int from, int to, const Type *type) {
  const DotBox *a = &d->boxes.data[from], *b = &d->boxes.data[to];
  Name key = name_format(d->names, "%d>%d", from, to);
  if (from == to || map_has(d->edges, key)) return;
  map_put(d->edges, key, NULL);
  Text words = text_create(d->arena);
  type_print(&words, type, &d->graph->mesh);
  text_add(out, "  ");
  text_add_json(out, a->id);
  text_add(out, " -> ");
  text_add_json(out, b->id);
  text_add(out, " [tooltip=");
  text_add_json(out, text_string(&words));
  text_add(out, "];\n");
}

static void print_edges(Text *out, Dot *d) {
  for (int id = 0; id < d->graph->nodes.n; id++) {
    const Node *node = d->graph->nodes.data[id];
    if (d->box_of[id] < 0) continue;
    for (int i = 0; i < node->n_inputs; i++) {
      int maker = maker_of(d->graph, node->inputs[i]);
      if (maker >= 0)
        print_edge(out, d, d->box_of[maker], d->box_of[id],
                   graph_type(d->graph, node->inputs[i]));
    }
  }
}

void dot_print(Text *out, const Inspection *in) {
  const Priced *p = in->priced;
  const Graph *graph = p->stage->graph;
  Dot d = {.arena = out->arena,
           .p = p,
           .graph = graph,
           .names = p->c->module->names,
           .last_of = map_create(out->arena),
           .by_id = map_create(out->arena),
           .edges = map_create(out->arena),
           .box_of = ARENA_ARRAY(out->arena, int, graph->nodes.n)};
  find_repeats(&d);
  for (int id = 0; id < graph->nodes.n; id++) {
    d.box_of[id] = -1;
    if (node_is_launched(graph, id)) add_to_box(&d, id);
  }
  if (p->n_classes > 0) add_times(&d);
  text_add(out, "digraph ");
  text_add_json(out, p->c->model->name);
  text_add(out, " {\n  label=");
  text_add_json(out,
                arena_printf(out->arena, "%s under %s: %s", p->c->model->name,
                             in->plan, inspect_ms(out->arena, p->price.step)));
  text_add(out, ";\n  labelloc=t;\n"
                "  node [shape=box,style=\"filled,rounded\",fontname=\"sans\","
                "fontsize=10,color=\"#8a939c\"];\n"
                "  edge [color=\"#8a939c\"];\n");
  for (int i = 0; i < d.boxes.n; i++) print_box(out, &d, &d.boxes.data[i]);
  print_edges(out, &d);
  text_add(out, "}\n");
}
