/*
 * report.c -- a graph by blocks, for `dnnc check`: what lies below one layer
 * call of the net is a block; parameters and operators of the net itself
 * stand under their own names, small operators together.
 */
#include "frontend/internal.h"

#include <string.h>

static const double SMALL = 0.05; /* of all operations */

typedef struct Row {
  Name path;
  int64_t parameters;
  double flops;
  bool is_layer;
} Row;

typedef VEC(Row) Rows;

static Row *find_row(Arena *arena, Rows *rows, Names *names, Name path) {
  const char *dot = strchr(path, '.');
  Name head = dot ? name_intern_n(names, path, (size_t)(dot - path)) : path;
  for (int i = rows->n - 1; i >= 0; i--)
    if (rows->data[i].path == head) return &rows->data[i];
  vec_push(arena, rows, (Row){.path = head});
  return &rows->data[rows->n - 1];
}

static bool is_param(const Graph *graph, const Node *node) {
  return node->op == OP_input &&
         graph->inputs.data[node_int(node, ATTR_slot, 0)].role == ROLE_param;
}

int frontend_blocks(const Graph *graph, Arena *arena, Block **out_blocks) {
  Names *names = graph->module->names;
  Rows rows = {0};
  double total = 0, small = 0;
  for (int i = 0; i < graph->nodes.n; i++) {
    const Node *node = graph->nodes.data[i];
    bool is_weight = is_param(graph, node);
    if (node->op == OP_input && !is_weight) continue;
    Row *row = find_row(arena, &rows, names, node->path);
    row->is_layer = row->is_layer || strchr(node->path, '.');
    double flops = node->op == OP_input ? 0 : node_flops(graph, i);
    row->flops += flops;
    total += flops;
    if (is_weight) row->parameters += type_elements(node->types[0]);
  }
  Block *blocks = ARENA_ARRAY(arena, Block, rows.n + 1);
  int n = 0;
  for (int i = 0; i < rows.n; i++) {
    const Row *row = &rows.data[i];
    if (row->is_layer || row->parameters || row->flops > SMALL * total)
      blocks[n++] = (Block){row->path, row->parameters, row->flops};
    else
      small += row->flops;
  }
  if (small > 0) blocks[n++] = (Block){name_intern(names, "other"), 0, small};
  *out_blocks = blocks;
  return n;
}
