/*
 * repeat.c -- runs of equal blocks, as declared in repeat.h.
 *
 * The front end elaborates a block in one go, so its nodes stand together, in
 * one order in each block.  Two blocks are compared node for node, with the
 * distance between them added to the ids of one.
 */
#include "ir/model/repeat.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_BLOCKS = 5 };

/* ---- paths ---- */

/* The text after "NAME[INDEX]" where the path has it as parts; NULL: it has
 * not. */
static const char *after_block(Name name, const char *path, int *out_index) {
  size_t n = strlen(name);
  for (const char *at = strstr(path, name); at; at = strstr(at + 1, name)) {
    char *end;
    bool begins = at == path || at[-1] == '.' || at[-1] == '/';
    if (!begins || at[n] != '[') continue;
    long index = strtol(at + n + 1, &end, 10);
    if (end == at + n + 1 || *end != ']') continue;
    *out_index = (int)index;
    return end + 1;
  }
  return NULL;
}

int repeat_index(const Repeat *repeat, const char *path) {
  int index = -1;
  if (!path || !after_block(repeat->name, path, &index)) return -1;
  return index >= repeat->first && index <= repeat->last ? index : -1;
}

static bool is_same_path(Name name, const char *a, const char *b) {
  int i, k;
  if (a == b) return true;
  const char *rest_a = after_block(name, a, &i);
  const char *rest_b = after_block(name, b, &k);
  return rest_a && rest_b && !strcmp(rest_a, rest_b);
}

/* ---- blocks ---- */

typedef struct Blocks {
  const Graph *graph;
  Name name;
  const uint16_t *stages; /* by node, 0 is none; NULL means one stage */
  int most;               /* blocks of a run that are read; 0 means all */
  int n;
  int *begin; /* [n + 1]: block i is the nodes from begin[i] on */
} Blocks;

static bool is_same_attr(const Blocks *b, const Attr *x, const Attr *y) {
  if (x->key != y->key || x->n != y->n) return false;
  if (x->key == ATTR_index) return true;
  switch (attr_kind(x->key)) {
  case ATTRKIND_TEXT: return is_same_path(b->name, x->name, y->name);
  case ATTRKIND_NAME: return x->name == y->name;
  case ATTRKIND_NAMES:
    return !memcmp(x->names, y->names, (size_t)x->n * sizeof(Name));
  case ATTRKIND_INT: return x->integer == y->integer;
  case ATTRKIND_INTS:
    return !memcmp(x->integers, y->integers, (size_t)x->n * sizeof(int64_t));
  case ATTRKIND_FLOAT: return x->real == y->real;
  }
  return false;
}

static bool is_same_input(const Blocks *b, const Node *x, const Node *y) {
  const GraphInput *in_x = &b->graph->inputs.data[node_int(x, ATTR_index, 0)];
  const GraphInput *in_y = &b->graph->inputs.data[node_int(y, ATTR_index, 0)];
  return in_x->role == in_y->role && in_x->init.kind == in_y->init.kind &&
         in_x->init.a == in_y->init.a && in_x->is_frozen == in_y->is_frozen &&
         in_x->has_decay == in_y->has_decay && in_x->group == in_y->group &&
         in_x->contracts == in_y->contracts && in_x->batches == in_y->batches &&
         is_same_path(b->name, in_x->path, in_y->path);
}

/* Values of the block or the one before it move along; others are the same. */
static bool is_same_operand(const Blocks *b, int block, Value x, Value y) {
  int step = b->begin[block + 1] - b->begin[block];
  if (x.result != y.result) return false;
  if (y.node >= b->begin[block]) return y.node == x.node + step;
  return y.node == x.node && y.node < b->begin[0];
}

/* Node `id` of a block and that of the next one. */
static bool is_same_node(const Blocks *b, int block, int id) {
  int step = b->begin[block + 1] - b->begin[block];
  const Node *x = b->graph->nodes.data[id];
  const Node *y = b->graph->nodes.data[id + step];
  bool is_same = x->op == y->op && x->phase == y->phase &&
                 x->n_inputs == y->n_inputs && x->n_attrs == y->n_attrs &&
                 x->n_results == y->n_results && !x->body == !y->body &&
                 is_same_path(b->name, x->path, y->path);
  for (int i = 0; i < x->n_results && is_same; i++)
    is_same = type_equal(x->types[i], y->types[i]);
  for (int i = 0; i < x->n_attrs && is_same; i++)
    is_same = is_same_attr(b, &x->attrs[i], &y->attrs[i]);
  for (int i = 0; i < x->n_inputs && is_same; i++)
    is_same = is_same_operand(b, block, x->inputs[i], y->inputs[i]);
  if (is_same && x->body)
    is_same = region_hash(x->body) == region_hash(y->body);
  if (is_same && x->op == OP_input) is_same = is_same_input(b, x, y);
  return is_same;
}

static bool is_same_block(const Blocks *b, int block) {
  int n = b->begin[block + 1] - b->begin[block];
  if (b->begin[block + 2] - b->begin[block + 1] != n) return false;
  for (int id = b->begin[block]; id < b->begin[block + 1]; id++)
    if (!is_same_node(b, block, id)) return false;
  return true;
}

/* The last block reads of the one before what a middle block reads of its own.
 */
static bool is_read_from_ends(const Blocks *b) {
  int first = b->begin[2], last = b->begin[b->n - 1];
  const Graph *graph = b->graph;
  for (int id = last; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    bool is_in_last = id < b->begin[b->n];
    for (int i = 0; i < node->n_inputs; i++) {
      int at = node->inputs[i].node;
      int end = is_in_last ? b->begin[b->n - 2] : last;
      if (at >= first && at < end) return false;
    }
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    int at = graph->outputs.data[i].value.node;
    if (at >= first && at < last) return false;
  }
  return true;
}

/* ---- plans ---- */

/* The words of a plan about each block of a run: a sum of hashes, because the
 * order of paths means nothing. */
typedef struct PlanWords {
  const Repeat *repeat;
  uint64_t *of_block; /* by index - repeat->first */
} PlanWords;

/* `words`: what is said of the path, the same for the same line. */
static void add_words(PlanWords *out, const char *path, uint64_t words) {
  int index;
  const Repeat *repeat = out->repeat;
  const char *rest = after_block(repeat->name, path, &index);
  if (!rest || index < repeat->first || index > repeat->last) return;
  const char *block = rest;
  while (*block != '[') block--;
  block -= strlen(repeat->name);
  words = hash_bytes(path, (size_t)(block - path), words);
  out->of_block[index - repeat->first] +=
      hash_bytes(rest, strlen(rest) + 1, words);
}

/* Which pins place the path. */
static void add_pins(PlanWords *out, const Plan *plan) {
  for (int i = 0; i < plan->pins.n; i++) {
    const PlanPin *pin = &plan->pins.data[i];
    uint64_t words[] = {5, (uint64_t)i};
    for (int k = 0; k < pin->n_paths && pin->says == SAYS_placement; k++)
      add_words(out, pin->paths[k], hash_bytes(words, sizeof words, 1));
  }
}

static void add_saved(PlanWords *out, const Map *saved) {
  for (int i = 0; i < map_size(saved); i++) {
    const PlanPin *pin = map_value_at(saved, i);
    add_words(out, map_key_at(saved, i),
              pin->says == SAYS_remat  ? 2
              : pin->says == SAYS_keep ? 3
                                       : 6);
  }
}

/* Which lines about names place the dims of generic layers. */
static void add_reached(PlanWords *out, const Plan *plan) {
  for (int i = 0; i < map_size(plan->reached); i++) {
    const PlanReached *reached = map_value_at(plan->reached, i);
    for (int d = 0; d < reached->n; d++) {
      const PlanShard *line = reached->lines[d];
      uint64_t words[] = {4, (uint64_t)d, reached->is_batch[d],
                          line ? (uint64_t)(line - plan->shards.data) + 1 : 0};
      add_words(out, map_key_at(plan->reached, i),
                hash_bytes(words, sizeof words, 1));
    }
  }
}

/* All that a plan says of a path, so that what it says of one block alone is
 * not lost when the run is folded.  The first and the last block count: where
 * they differ, so do those beside them. */
static bool is_planned_alike(Arena *scratch, const Plan *plan,
                             const Repeat *repeat) {
  int n = repeat->last - repeat->first + 1;
  PlanWords words = {repeat, ARENA_ARRAY(scratch, uint64_t, n)};
  if (!plan) return true;
  add_pins(&words, plan);
  if (plan->saved) add_saved(&words, plan->saved);
  if (plan->offloaded) add_saved(&words, plan->offloaded);
  if (plan->reached) add_reached(&words, plan);
  for (int i = 1; i < n; i++)
    if (words.of_block[i] != words.of_block[0]) return false;
  return true;
}

/* ---- runs ---- */

/* The name in front of the first index of a path, "encoder.block" of
 * "encoder.block[3].q"; NULL: none. */
static Name name_before_index(const Graph *graph, const char *path) {
  const char *at = path ? strchr(path, '[') : NULL;
  if (!at || at == path) return NULL;
  return name_intern_n(graph->module->names, path, (size_t)(at - path));
}

static int index_at(const Blocks *b, int id) {
  int index;
  const char *path = b->graph->nodes.data[id]->path;
  size_t n = strlen(b->name);
  bool is_there = path && !strncmp(path, b->name, n) && path[n] == '[' &&
                  after_block(b->name, path, &index);
  return is_there ? index : -1;
}

/* The stage of the nodes of a block that have one; 0: none has, or they have
 * several. */
static uint16_t stage_of_nodes(const Blocks *b, int begin, int end) {
  uint16_t stage = 0;
  for (int id = begin; b->stages && id < end; id++) {
    if (!b->stages[id]) continue;
    if (stage && stage != b->stages[id]) return 0;
    stage = b->stages[id];
  }
  return stage;
}

/* The next block is of the stage of the first one of the run. */
static bool is_in_stage(const Blocks *b, int begin, int end) {
  if (!b->stages || b->n == 0) return true;
  uint16_t stage = stage_of_nodes(b, b->begin[0], b->begin[1]);
  return stage && stage_of_nodes(b, begin, end) == stage;
}

/* Blocks of one stage that follow each other from node `id` on; moves `id`
 * behind them. */
static Repeat read_run(Blocks *b, int *id) {
  int first = index_at(b, *id), at = *id, n_nodes = b->graph->nodes.n;
  b->n = 0;
  while (at < n_nodes && index_at(b, at) == first + b->n &&
         (!b->most || b->n < b->most)) {
    int end = at;
    while (end < n_nodes && index_at(b, end) == first + b->n) end++;
    if (!is_in_stage(b, at, end)) break;
    b->begin[b->n++] = at;
    b->begin[b->n] = at = end;
  }
  *id = at;
  return (Repeat){b->name, first, first + b->n - 1};
}

static bool is_repeat(const Blocks *b) {
  if (b->n < LEAST_BLOCKS) return false;
  for (int block = 1; block + 2 < b->n; block++)
    if (!is_same_block(b, block)) return false;
  return is_read_from_ends(b);
}

int graph_repeats(const Graph *graph, const Plan *plan, Repeat *out) {
  Arena *scratch = arena_create(graph->module->memory);
  Blocks blocks = {.graph = graph,
                   .begin = ARENA_ARRAY(scratch, int, graph->nodes.n + 1)};
  StageFault fault;
  int n = 0;
  if (plan && plan->stages.n > 1)
    blocks.stages = stage_labels(scratch, graph, plan->stage_of, &fault);
  for (int id = 0; id < graph->nodes.n && n < MOST_REPEATS;) {
    blocks.name = name_before_index(graph, graph->nodes.data[id]->path);
    if (!blocks.name || index_at(&blocks, id) < 0) {
      id++;
      continue;
    }
    Repeat repeat = read_run(&blocks, &id);
    if (is_repeat(&blocks) && is_planned_alike(scratch, plan, &repeat))
      out[n++] = repeat;
  }
  arena_destroy(scratch);
  return n;
}

/* ---- folding ---- */

Graph *graph_fold(const Graph *graph, const Repeat *repeat, int kept) {
  Arena *scratch = arena_create(graph->module->memory);
  Blocks b = {.graph = graph,
              .name = repeat->name,
              .most = repeat->last - repeat->first + 1,
              .begin = ARENA_ARRAY(scratch, int, graph->nodes.n + 1)};
  int id = 0;
  while (index_at(&b, id) != repeat->first) id++;
  read_run(&b, &id);
  ASSERT(kept >= 3 && kept <= b.n);
  int from = b.begin[kept - 1], to = b.begin[b.n - 1], n_gone = to - from;
  int *map = ARENA_ARRAY(scratch, int, graph->nodes.n);
  Graph *folded = graph_like(graph);
  for (int at = 0; at < graph->nodes.n; at++) {
    const Node *node = graph->nodes.data[at];
    Value *inputs = ARENA_ARRAY(scratch, Value, node->n_inputs + 1);
    if (at >= from && at < to) {
      map[at] = at >= b.begin[b.n - 2]
                    ? map[at - (b.begin[b.n - 2] - b.begin[kept - 2])]
                    : -1;
      continue;
    }
    for (int i = 0; i < node->n_inputs; i++)
      inputs[i] = (Value){map[node->inputs[i].node], node->inputs[i].result};
    map[at] = graph_copy_node(folded, graph, at, inputs, false).node;
  }
  ASSERT(folded->nodes.n == graph->nodes.n - n_gone);
  for (int i = 0; i < graph->outputs.n; i++) {
    GraphOutput output = graph->outputs.data[i];
    output.value.node = map[output.value.node];
    graph_output(folded, output.role, output.path, output.value);
  }
  arena_destroy(scratch);
  return folded;
}
