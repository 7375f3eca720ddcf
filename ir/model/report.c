/*
 * report.c -- sums up a graph by blocks, for `dnnc check`. A block holds the
 * nodes below one layer call of the net; parameters and contractions of the net
 * itself have rows of their own, and its other nodes share one row.
 */
#include "ir/model/model.h"

#include <string.h>

typedef struct Rows {
  Arena *arena;
  Names *names;
  Map *index;      /* head of a path -> row + 1 */
  VEC(Block) rows; /* count: whether layers or figures make it a row */
} Rows;

static Block *find_row(Rows *rows, Name path) {
  const char *dot = strchr(path, '.');
  Name head =
      dot ? name_intern_n(rows->names, path, (size_t)(dot - path)) : path;
  intptr_t at = (intptr_t)map_get(rows->index, head);
  if (!at) {
    vec_push(rows->arena, &rows->rows, (Block){.path = head});
    at = rows->rows.n;
    map_put(rows->index, head, (void *)at);
  }
  Block *row = &rows->rows.data[at - 1];
  if (dot) row->count = 1;
  return row;
}

static void add_input(Rows *rows, const GraphInput *input, const Type *type) {
  if (input->role != ROLE_param && input->role != ROLE_state) return;
  Block *row = find_row(rows, input->path);
  row->count = 1;
  *(input->role == ROLE_param ? &row->parameters : &row->state) +=
      type_elements(type);
}

/* A view or a constant alone makes no row. */
static void add_node(Rows *rows, const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  if (node->op == OP_input) {
    int slot = (int)node_int(node, ATTR_index, 0);
    add_input(rows, &graph->inputs.data[slot], node->types[0]);
    return;
  }
  double flops = node_contraction_flops(graph, id);
  Block *row = find_row(rows, node->path);
  row->flops_forward += flops;
  if (flops > 0) row->count = 1;
}

int model_blocks(const Graph *graph, const Graph *trained, const double *kept,
                 Arena *arena, Block **out_blocks) {
  Names *names = graph->module->names;
  Rows rows = {.arena = arena, .names = names, .index = map_create(arena)};
  for (int i = 0; i < graph->nodes.n; i++) add_node(&rows, graph, i);
  for (int i = 0; trained && i < trained->nodes.n; i++)
    if (kept[i] > 0)
      find_row(&rows, trained->nodes.data[i]->path)->activation_bytes +=
          kept[i];
  Block *blocks = ARENA_ARRAY(arena, Block, rows.rows.n + 1);
  Block other = {.path = name_intern(names, "other"), .count = 1};
  int n = 0;
  for (int i = 0; i < rows.rows.n; i++) {
    if (rows.rows.data[i].count)
      blocks[n++] = rows.rows.data[i];
    else
      other.activation_bytes += rows.rows.data[i].activation_bytes;
  }
  if (other.activation_bytes > 0) blocks[n++] = other;
  *out_blocks = blocks;
  return n;
}

/* ---- folding ---- */

/* "block[3]" is block 3 after "block[0..2]" or "block[2]". */
static bool follows(const Block *before, const Block *next) {
  const char *a = strrchr(before->path, '['), *b = strrchr(next->path, '[');
  if (!a || !b || a - before->path != b - next->path ||
      strncmp(before->path, next->path, (size_t)(a - before->path)) != 0)
    return false;
  return before->parameters == next->parameters &&
         before->state == next->state &&
         before->flops_forward == next->flops_forward &&
         before->activation_bytes == next->activation_bytes;
}

static Name join(Names *names, Name first, Name last) {
  size_t end = strcspn(strrchr(first, '['), ".]");
  int n = (int)((size_t)(strrchr(first, '[') - first) + end);
  return name_format(names, "%.*s..%s", n, first, strrchr(last, '[') + 1);
}

int model_fold_blocks(Names *names, Block *blocks, int n) {
  int kept = 0;
  for (int i = 0; i < n; i++) {
    Block *last = kept > 0 ? &blocks[kept - 1] : NULL;
    if (last && follows(last, &blocks[i])) {
      last->path = join(names, last->path, blocks[i].path);
      last->count++;
    } else {
      blocks[kept++] = blocks[i];
    }
  }
  return kept;
}
