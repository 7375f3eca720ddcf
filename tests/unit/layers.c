// links: interp frontend ir support
/*
 * layers.c -- compares models with the layer tables of torchvision, row by row:
 * data/zoo/layers-MODEL.csv lists the layers of a forward pass in order.
 *
 * The nodes of the training graph that are layers ("anchors") are walked in
 * order beside the rows.  Each must have the row's kind, sizes without the
 * batch, multiply-accumulates of one sample, and parameters: those that it
 * reads itself, and those that only scale and shift its result.  Parameters of
 * the model that belong to no module (class token, positions) are left over.
 */
#include "frontend/frontend.h"
#include "tests/unit/values.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_FIELDS 9

typedef struct Row {
  char *field[MAX_FIELDS]; /* index name type in out params macs detail */
} Row;

typedef struct Walk {
  const char *model;
  const Graph *graph;
  Name batch;
  int at; /* next node */
  int64_t params;
  double macs;
} Walk;

TestSuite(layers, .fini = modules_destroy);

/* ---- the model ---- */

static const Source *load(void *user, const char *path) {
  Module *module = user;
  Source *source = ARENA_NEW(module->arena, Source);
  source->path = path;
  Status status =
      file_read(module->arena, path, 1 << 20, &source->text, &source->n);
  return status.code == STATUS_ok ? source : NULL;
}

static const Model *load_model(const char *model) {
  Module *module = module_create();
  const char *path =
      arena_printf(module->arena, "%s/models/%s.dnn", TEST_ROOT, model);
  FrontendOptions options = {.load = load, .user = module, .path = path};
  const Model *loaded = frontend_load(module, &options).model;
  Text text = text_create(module->arena);
  diags_print(module->diags, &text);
  cr_assert(loaded, "%s", text_string(&text));
  return loaded;
}

static bool is_param(const Graph *graph, Value value) {
  const Node *node = graph_node(graph, value);
  if (node->op != OP_input) return false;
  return graph->inputs.data[node_int(node, ATTR_index, 0)].role == ROLE_param;
}

static int64_t params_read(const Graph *graph, const Node *node) {
  int64_t n = 0;
  for (int i = 0; i < node->n_inputs; i++)
    if (is_param(graph, node->inputs[i]))
      n += type_elements(graph_type(graph, node->inputs[i]));
  return n;
}

/* The only node that reads `value` and is a view, or scales or shifts it by a
 * parameter; NULL if there is none. */
static const Node *affine_user(const Graph *graph, Value value, Value *out) {
  const Node *found = NULL;
  for (int id = value.node + 1; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++) {
      if (!value_equal(node->inputs[i], value)) continue;
      bool is_affine = (node->op == OP_mul || node->op == OP_add) &&
                       is_param(graph, node->inputs[1 - i]);
      if (found || !(op_is(node->op, OPCLASS_view) || is_affine)) return NULL;
      found = node;
      *out = (Value){id, 0};
    }
  }
  return found;
}

static int64_t params_of(const Graph *graph, int id) {
  int64_t n = params_read(graph, graph->nodes.data[id]);
  Value value = {id, 0};
  for (const Node *node; (node = affine_user(graph, value, &value));)
    n += params_read(graph, node);
  return n;
}

/* ---- kinds ---- */

static bool is_mean_of_plane(const Graph *graph, const Node *node) {
  int n = 0;
  if (node->op == OP_sum) node_names(node, ATTR_over, &n);
  return n == 2 && graph_type(graph, node->inputs[0])->rank == 4;
}

/* What PyTorch calls the node, or NULL if it is no layer. */
static const char *layer_kind(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  if (is_mean_of_plane(graph, node)) return "AdaptiveAvgPool2d";
  switch (node->op) {
  case OP_conv: return "Conv2d";
  case OP_dot: return "Linear";
  case OP_batchnorm: return "BatchNorm2d";
  case OP_layernorm: return "LayerNorm";
  case OP_relu: return "ReLU";
  case OP_gelu: return "GELU";
  case OP_maxpool: return "MaxPool2d";
  case OP_adaptive_avgpool: return "AdaptiveAvgPool2d";
  case OP_random_keep: return "Dropout";
  default: return NULL;
  }
}

/* The next anchor, which must be of this kind; adds up what it has. */
static const Node *take(Walk *walk, const Row *row, const char *kind) {
  const Graph *graph = walk->graph;
  while (walk->at < graph->nodes.n && !layer_kind(graph, walk->at)) walk->at++;
  cr_assert_lt(walk->at, graph->nodes.n, "%s: no node for %s", walk->model,
               row->field[1]);
  cr_assert_str_eq(layer_kind(graph, walk->at), kind, "%s: %s", walk->model,
                   row->field[1]);
  const Node *node = graph->nodes.data[walk->at];
  walk->params += params_of(graph, walk->at);
  if (node->op == OP_conv || node->op == OP_dot) {
    double batch =
        (double)type_size(graph_type(graph, node->inputs[0]), walk->batch);
    walk->macs += node_flops(graph, walk->at) / 2 / batch;
  }
  walk->at++;
  return node;
}

/* ---- rows ---- */

static int compare_sizes(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* "64x55x55" against the type without the batch; sizes of 1 do not count, and
 * dims have names, so that order says nothing. */
static bool shape_matches(const Walk *walk, const Type *type,
                          const char *text) {
  int64_t have[MAX_RANK], want[MAX_RANK];
  int n_have = 0, n_want = 0;
  for (int d = 0; d < type->rank; d++)
    if (type->dims[d].name != walk->batch && type->dims[d].size > 1)
      have[n_have++] = type->dims[d].size;
  for (const char *at = text; *at && n_want < MAX_RANK;) {
    char *end;
    int64_t size = strtoll(at, &end, 10);
    if (size > 1) want[n_want++] = size;
    at = *end ? end + 1 : end;
  }
  if (n_have != n_want) return false;
  qsort(have, (size_t)n_have, sizeof *have, compare_sizes);
  qsort(want, (size_t)n_want, sizeof *want, compare_sizes);
  return memcmp(have, want, (size_t)n_have * sizeof *have) == 0;
}

static void check_state(const Walk *walk, const Row *row, const Node *node) {
  const char *state = strstr(row->field[7], "state");
  if (node->op != OP_batchnorm) return;
  cr_assert(state, "%s", row->field[1]);
  int64_t n = 0;
  for (int i = 1; i < 3; i++)
    n += type_elements(graph_type(walk->graph, node->inputs[i]));
  cr_expect_eq(n, strtoll(state + 5, NULL, 10), "%s: state of %s", walk->model,
               row->field[1]);
}

/* Three projections, scores, values, and the projection back. */
static const Node *take_attention(Walk *walk, const Row *row) {
  const Node *node = NULL;
  for (int i = 0; i < 6; i++) node = take(walk, row, "Linear");
  return node;
}

static void check_row(Walk *walk, const Row *row) {
  const char *kind = row->field[2];
  const char *next = NULL;
  walk->params = 0;
  walk->macs = 0;
  for (int id = walk->at; id < walk->graph->nodes.n && !next; id++)
    next = layer_kind(walk->graph, id);
  if (!strcmp(kind, "Dropout") && (!next || strcmp(next, kind) != 0)) {
    /* Its probability is 0: nothing is executed. */
    cr_expect_str_eq(row->field[3], row->field[4], "%s", row->field[1]);
    return;
  }
  const Node *node = !strcmp(kind, "MultiheadAttention")
                         ? take_attention(walk, row)
                         : take(walk, row, kind);
  cr_expect(shape_matches(walk, node->types[0], row->field[4]),
            "%s: %s is not %s", walk->model, row->field[1], row->field[4]);
  cr_expect_eq(walk->params, strtoll(row->field[5], NULL, 10),
               "%s: %s has %lld parameters, not %s", walk->model, row->field[1],
               (long long)walk->params, row->field[5]);
  cr_expect(walk->macs == strtod(row->field[6], NULL),
            "%s: %s makes %.0f multiply-adds, not %s", walk->model,
            row->field[1], walk->macs, row->field[6]);
  check_state(walk, row, node);
}

static Row row_split(char *line) {
  Row row = {{0}};
  int n = 0;
  for (char *at = line; at && n < MAX_FIELDS; n++) {
    row.field[n] = at;
    at = strchr(at, ',');
    if (at) *at++ = '\0';
  }
  cr_assert_eq(n, 8, "%s", line);
  return row;
}

static void check_table(const char *model, const char *table, int n_rows) {
  Walk walk = {.model = model, .graph = load_model(model)->train};
  Arena *arena = walk.graph->module->arena;
  for (int i = 0; i < walk.graph->inputs.n && !walk.batch; i++)
    if (walk.graph->inputs.data[i].role == ROLE_data)
      walk.batch = graph_type(walk.graph, walk.graph->inputs.data[i].value)
                       ->dims[0]
                       .name;
  const char *text;
  size_t n;
  Status status = file_read(
      arena, arena_printf(arena, "%s/data/zoo/layers-%s.csv", TEST_ROOT, table),
      1 << 20, &text, &n);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  int n_seen = 0;
  for (char *line = strtok(arena_copy(arena, text, n + 1), "\n"); line;
       line = strtok(NULL, "\n")) {
    if (line[0] == '#' || !strncmp(line, "index,", 6)) continue;
    Row row = row_split(line);
    check_row(&walk, &row);
    n_seen++;
  }
  cr_expect_eq(n_seen, n_rows, "%s: %d rows", model, n_seen);
  for (; walk.at < walk.graph->nodes.n; walk.at++)
    cr_expect_null(layer_kind(walk.graph, walk.at), "%s: a layer too many",
                   model);
}

Test(layers, alexnet) {
  check_table("alexnet", "alexnet", 21);
}

Test(layers, vgg16) {
  check_table("vgg16", "vgg16", 39);
}

Test(layers, resnet50) {
  check_table("resnet50", "resnet50", 158);
}

Test(layers, vit_b_16) {
  check_table("vit", "vit_b_16", 112);
}

/* ---- training and evaluation ---- */

static int count_ops(const Graph *graph, Op op) {
  int n = 0;
  for (int id = 0; id < graph->nodes.n; id++)
    n += graph->nodes.data[id]->op == op;
  return n;
}

static int count_outputs(const Graph *graph, Role role) {
  int n = 0;
  for (int i = 0; i < graph->outputs.n; i++)
    n += graph->outputs.data[i].role == role;
  return n;
}

/* Training normalises by the batch and moves the states; evaluation reads them,
 * all of them, and nothing but the loss and the metric adds up samples. */
Test(layers, evaluation_uses_running_statistics) {
  const Model *model = load_model("resnet_mnist");
  cr_expect_eq(count_ops(model->train, OP_batchnorm), 9);
  cr_expect_eq(count_outputs(model->train, ROLE_state), 18);
  cr_expect_eq(count_ops(model->eval, OP_batchnorm), 0);
  cr_expect_eq(count_outputs(model->eval, ROLE_state), 0);
  int n_read = 0;
  int *uses = graph_use_counts(model->eval, model->eval->module->arena);
  for (int i = 0; i < model->eval->inputs.n; i++)
    n_read += model->eval->inputs.data[i].role == ROLE_state &&
              uses[model->eval->inputs.data[i].value.node] > 0;
  cr_expect_eq(n_read, 18);
  Name batch = name_intern(model->eval->module->names, "N");
  for (int id = 0; id < model->eval->nodes.n; id++) {
    const Node *node = model->eval->nodes.data[id];
    int n = 0;
    const Name *over =
        node->op == OP_sum ? node_names(node, ATTR_over, &n) : NULL;
    for (int i = 0; i < n; i++)
      cr_expect(over[i] != batch || node->types[0]->rank == 0, "%s",
                node->path);
  }
}
