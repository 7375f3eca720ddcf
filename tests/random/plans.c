/*
 * plans.c -- generates a random mesh and a random plan for a random program.
 *
 *     mesh { a = 2; b = 3 }
 *     plan { microbatches = 2
 *            shard D4 over b
 *            shard p7: A over (a, b) }
 *
 * The program is loaded once without a plan, and the lines of the plan are
 * about the dims and paths of its graph.  Most lines can hold: an axis divides
 * the dim that it shards.  The batch is a multiple of what the mesh and the
 * micro-batches need.
 */
#include "tests/random/plans.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/frontend.h"
#include "tests/random/program.h"

enum { MOST_PLAN_AXES = 3, MOST_RANKS = 8 };

typedef struct PlanDim {
  Name name;
  int64_t size; /* greatest common divisor of all dims of the name */
} PlanDim;

typedef struct PlanMaker {
  Choices *choices;
  Arena *arena;
  const Graph *graph;
  Text *out;
  int *lines; /* or NULL */
  const char *batch;
  bool joins_samples;     /* an operator of the net reads several samples */
  bool needs_all_samples; /* ... and has no way to do so on a part of them */
  const char *batch_axes; /* of the batch, as text; NULL: no line says */
  unsigned batch_set;     /* the same as a set */
  bool is_batch_open;
  int n_axes, sizes[MOST_PLAN_AXES], ranks, microbatches;
  VEC(PlanDim) dims;
  VEC(int) parameters, values, products; /* node numbers */
} PlanMaker;

static const char *const axis_names[MOST_PLAN_AXES] = {"a", "b", "c"};

#define CHOOSE(m, n) choose((m)->choices, n)

static int64_t plans_gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* ---- the program ---- */

static _Noreturn void plans_no_memory(void *user) {
  (void)user;
  abort();
}

static const Source *plans_load_text(void *user, const char *path) {
  Source *source = user;
  source->path = path;
  return source;
}

static const Graph *load_train_graph(Arena *arena, const char *text) {
  Source source = {"program.dnn", text, strlen(text)};
  FrontendOptions options = {
      .load = plans_load_text, .user = &source, .path = "program.dnn"};
  static Memory *memory; /* of the process */
  if (!memory) memory = memory_create(plans_no_memory, NULL);
  Module *module = ARENA_NEW(arena, Module);
  *module = (Module){.memory = memory,
                     .arena = arena,
                     .names = names_create(arena),
                     .diags = diags_create(arena)};
  const Model *model = frontend_load(module, &options);
  return model ? model->train : NULL;
}

/* A model of benchmarks/systems whose first line with sizes is another. */
static const char *resized_model(Choices *choices, const char *file,
                                 const char *batch, const char *names,
                                 const char *fixed) {
  static const int sizes[] = {4, 2, 6, 3, 8, 5, 12};
  Arena *arena = choices->arena;
  const char *text;
  size_t n;
  Text out = text_create(arena);
  char *path =
      arena_printf(arena, "%s/benchmarks/systems/%s.dnn", TEST_ROOT, file);
  if (file_read(arena, path, 1 << 20, &text, &n).code != STATUS_ok) abort();
  const char *dims = strstr(text, "dim ");
  text_printf(&out, "dim %s = 12", batch);
  for (const char *at = names; *at; at += strcspn(at, " ")) {
    at += strspn(at, " ");
    text_printf(&out, ", %.*s = %d", (int)strcspn(at, " "), at,
                sizes[choose(choices, ARRAY_LENGTH(sizes))]);
  }
  text_printf(&out, "%s%s", fixed, dims + strcspn(dims, "\n"));
  return text_string(&out);
}

static const char *make_model(Choices *choices, const char **out_batch) {
  *out_batch = "B";
  switch (choose(choices, 8)) {
  case 5: return resized_model(choices, "gpt", "B", "T V C H D F", ", L = 1");
  case 6: return resized_model(choices, "moe", "B", "T V C H D F E", ", L = 1");
  case 7: return resized_model(choices, "mlp", "B", "P H1 H2 K", "");
  default: *out_batch = "N"; return program_make(choices);
  }
}

/* ---- what lines can be about ---- */

/* Dims that a plan can name. */
static bool is_name(const char *text) {
  return !strpbrk(text, "!~. ");
}

static void add_dim_of_type(PlanMaker *m, const Dim *dim) {
  if (!strcmp(dim->name, m->batch) || !is_name(dim->name)) return;
  for (int i = 0; i < m->dims.n; i++)
    if (m->dims.data[i].name == dim->name) {
      m->dims.data[i].size = plans_gcd(m->dims.data[i].size, dim->size);
      return;
    }
  vec_push(m->arena, &m->dims, ((PlanDim){dim->name, dim->size}));
}

static bool has_dim(const Type *type, const char *dim) {
  for (int d = 0; d < type->rank; d++)
    if (!strcmp(type->dims[d].name, dim)) return true;
  return false;
}

static void look_at_samples(PlanMaker *m, const Node *node) {
  bool is_loss = node->path && !strncmp(node->path, "loss", 4);
  m->needs_all_samples |= node->op == OP_batchnorm || node->op == OP_route;
  for (int i = 0; i < node->n_inputs && !is_loss; i++)
    m->joins_samples |=
        has_dim(graph_type(m->graph, node->inputs[i]), m->batch) &&
        !has_dim(node->types[0], m->batch);
}

static bool has_plain_dims(const Type *type) {
  for (int d = 0; d < type->rank; d++)
    if (!is_name(type->dims[d].name)) return false;
  return type->rank > 0;
}

/* A product without a name: "block.attn.dot[0]" or "dot". */
static bool is_operator_path(Name path) {
  const char *dot = strrchr(path, '.');
  return !strncmp(dot ? dot + 1 : path, "dot", 3);
}

static void look_at_graph(PlanMaker *m) {
  const Graph *graph = m->graph;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    const Type *type = node->types[0];
    for (int d = 0; d < type->rank; d++) add_dim_of_type(m, &type->dims[d]);
    look_at_samples(m, node);
    if (!has_plain_dims(type) || !node->path || !*node->path) continue;
    if (strchr(node->path, '!')) continue;
    if (node->op == OP_dot && is_operator_path(node->path))
      vec_push(m->arena, &m->products, id);
    if (node->op != OP_input)
      vec_push(m->arena, &m->values, id);
    else if (graph->inputs.data[node_int(node, ATTR_index, 0)].role ==
             ROLE_param)
      vec_push(m->arena, &m->parameters, id);
  }
}

/* ---- lines ---- */

static void count_line(PlanMaker *m, PlanLine line) {
  if (m->lines) m->lines[line]++;
}

/* Neighbouring axes without those of `used`, outermost first, as "b" or
 * "(b, c)"; NULL: there are none.  Sets the number of shards. */
static const char *pick_axes(PlanMaker *m, unsigned *used, int64_t *out_n) {
  int first = CHOOSE(m, m->n_axes), n = 1 + CHOOSE(m, m->n_axes - first);
  Text text = text_create(m->arena);
  if (CHOOSE(m, 4) < 3) n = 1;
  *out_n = 1;
  for (int i = first; i < first + n; i++) {
    if (*used >> i & 1) return NULL;
    *out_n *= m->sizes[i];
    text_printf(&text, "%s%s",
                i > first ? ", "
                : n > 1   ? "("
                          : "",
                axis_names[i]);
  }
  for (int i = first; i < first + n; i++) *used |= 1u << i;
  if (n > 1) text_add(&text, ")");
  return text_string(&text);
}

/* One in 100 lines may be one that cannot hold. */
static bool may_be_odd(PlanMaker *m) {
  return CHOOSE(m, 100) == 99;
}

static bool may_shard(PlanMaker *m, int64_t size, int64_t shards) {
  return size % shards == 0 || may_be_odd(m);
}

static void make_microbatches(PlanMaker *m) {
  bool is_odd = m->joins_samples || m->needs_all_samples;
  m->microbatches = CHOOSE(m, 3) < 2 ? 1 : 2 + CHOOSE(m, 2);
  if (is_odd && m->microbatches > 1 && !may_be_odd(m)) m->microbatches = 1;
  if (m->microbatches == 1) return;
  text_printf(m->out, "  microbatches = %d\n", m->microbatches);
  count_line(m, LINE_microbatches);
}

static void make_settings(PlanMaker *m) {
  make_microbatches(m);
  if (CHOOSE(m, 4) == 3) {
    text_printf(m->out, "  bucket = %dB\n", 100 << CHOOSE(m, 4));
    count_line(m, LINE_bucket);
  }
  int zero = CHOOSE(m, 5);
  unsigned used = 0;
  int64_t shards;
  if (zero < 1 || zero > 3) return;
  count_line(m, (PlanLine)(LINE_zero1 + zero - 1));
  const char *axes = CHOOSE(m, 3) == 2 ? pick_axes(m, &used, &shards) : NULL;
  text_printf(m->out, "  zero = %d%s%s\n", zero, axes ? " over " : "",
              axes ? axes : "");
  if (axes) count_line(m, LINE_zero_over);
}

static void make_name_line(PlanMaker *m) {
  unsigned used = 0;
  int64_t shards;
  const char *axes = pick_axes(m, &used, &shards);
  if (m->dims.n == 0) return;
  const PlanDim *dim = &m->dims.data[CHOOSE(m, m->dims.n)];
  if (!axes || !may_shard(m, dim->size, shards)) return;
  text_printf(m->out, "  shard %s over %s\n", dim->name, axes);
  count_line(m, LINE_name);
}

/* The batch over some axes; none where an operator needs all samples. */
static void make_batch_line(PlanMaker *m) {
  int64_t shards;
  const char *axes = NULL;
  bool is_whole = m->needs_all_samples && !may_be_odd(m);
  m->is_batch_open = !is_whole && CHOOSE(m, 3) == 2;
  if (m->is_batch_open) return; /* it takes the axes that no line names */
  if (!is_whole && CHOOSE(m, 4)) axes = pick_axes(m, &m->batch_set, &shards);
  m->batch_axes = axes ? axes : "none";
  text_printf(m->out, "  shard %s over %s\n", m->batch, m->batch_axes);
  count_line(m, LINE_batch);
}

/* Micro-batches divide the batch over its own axes, which pins keep. */
static bool keeps_batch(PlanMaker *m) {
  return m->microbatches > 1 || CHOOSE(m, 8) < 7;
}

/* The axes of the batch in a value: mostly its own. */
static const char *place_batch(PlanMaker *m, unsigned *used, bool keeps) {
  int64_t shards;
  if (!keeps) return CHOOSE(m, 2) ? NULL : pick_axes(m, used, &shards);
  if (!m->batch_set) return NULL;
  *used |= m->batch_set;
  return m->batch_axes;
}

/* Each dim over what it can be sharded over, or not. */
static void make_placement(PlanMaker *m, int id, PlanLine kind) {
  const Node *node = m->graph->nodes.data[id];
  const Type *type = node->types[0];
  bool has_batch = has_dim(type, m->batch), keeps = keeps_batch(m);
  unsigned used = has_batch && keeps ? m->batch_set : 0, free;
  int64_t shards;
  Text places = text_create(m->arena);
  if (has_batch && m->is_batch_open && m->microbatches > 1) return;
  for (int d = 0; d < type->rank; d++) {
    bool is_batch = !strcmp(type->dims[d].name, m->batch);
    if (!is_batch && CHOOSE(m, 2)) continue;
    free = used;
    const char *axes =
        is_batch ? place_batch(m, &free, keeps) : pick_axes(m, &free, &shards);
    if (!axes || (!is_batch && !may_shard(m, type->dims[d].size, shards)))
      continue;
    used = free;
    text_printf(&places, "%s%s over %s", places.n ? ", " : "",
                type->dims[d].name, axes);
  }
  if (places.n == 0) return;
  text_printf(m->out, "  shard %s: %s\n", node->path, text_string(&places));
  count_line(m, kind);
}

/* The operator of a path: "block.attn.dot[0]" is block.attn!dot[0]. */
static const char *operator_name(PlanMaker *m, Name path) {
  char *name = arena_strdup(m->arena, path), *dot = strrchr(name, '.');
  if (!dot) return arena_printf(m->arena, "\"!%s\"", path);
  *dot = '!';
  return name;
}

/* All dims that a product works on, the one that it adds up included. */
static void make_operator(PlanMaker *m) {
  if (m->products.n == 0) return;
  int id = m->products.data[CHOOSE(m, m->products.n)];
  const Node *node = m->graph->nodes.data[id];
  Map *seen = map_create(m->arena);
  unsigned used = m->batch_set;
  int64_t shards;
  Text places = text_create(m->arena);
  if (m->is_batch_open) return;
  for (int i = 0; i < 2; i++) {
    const Type *type = graph_type(m->graph, node->inputs[i]);
    for (int d = 0; d < type->rank; d++) {
      Name dim = type->dims[d].name;
      bool is_batch = !strcmp(dim, m->batch);
      unsigned free = used;
      if (map_has(seen, dim) || !is_name(dim)) continue;
      map_put(seen, dim, (void *)dim);
      const char *axes = is_batch       ? m->batch_axes
                         : CHOOSE(m, 2) ? NULL
                                        : pick_axes(m, &free, &shards);
      if (!axes || (is_batch && !m->batch_set)) continue;
      if (!is_batch && !may_shard(m, type->dims[d].size, shards)) continue;
      used = free;
      text_printf(&places, "%s%s over %s", places.n ? ", " : "", dim, axes);
    }
  }
  if (places.n == 0) return;
  text_printf(m->out, "  shard %s: %s\n", operator_name(m, node->path),
              text_string(&places));
  count_line(m, LINE_operator);
}

static void make_replicate(PlanMaker *m, int id) {
  const Node *node = m->graph->nodes.data[id];
  if (has_dim(node->types[0], m->batch) && m->microbatches > 1) return;
  text_printf(m->out, "  replicate %s\n", node->path);
  count_line(m, LINE_replicate);
}

/* A product whose operands both lack the batch, or a sum over a dim, may stay
 * partial over an axis that shards what it adds up. */
static void make_partial(PlanMaker *m, int id) {
  if (!may_be_odd(m)) return;
  text_printf(m->out, "  shard %s: partial over %s\n",
              m->graph->nodes.data[id]->path, axis_names[CHOOSE(m, m->n_axes)]);
  count_line(m, LINE_partial);
}

static void make_path_line(PlanMaker *m) {
  int kind = CHOOSE(m, 12);
  bool is_value = kind >= 4 && m->values.n > 0;
  int n = is_value ? m->values.n : m->parameters.n;
  if (n == 0) return;
  int k = CHOOSE(m, n);
  int id = is_value ? m->values.data[k] : m->parameters.data[k];
  switch (kind) {
  case 7:
  case 8: make_operator(m); return;
  case 9: make_replicate(m, id); return;
  case 10:
    text_printf(m->out, "  keep %s\n", m->graph->nodes.data[id]->path);
    count_line(m, LINE_keep);
    return;
  case 11: make_partial(m, id); return;
  default: make_placement(m, id, is_value ? LINE_value : LINE_parameter);
  }
}

static void make_mesh(PlanMaker *m) {
  static const int sizes[] = {2, 3, 4, 2};
  m->ranks = 1;
  text_add(m->out, "\nmesh {");
  for (int i = 0; i < MOST_PLAN_AXES; i++) {
    int size = sizes[CHOOSE(m, ARRAY_LENGTH(sizes))];
    if (i > 0 && CHOOSE(m, 2)) break;
    if (m->ranks * size > MOST_RANKS) break;
    text_printf(m->out, "%s %s = %d", i ? ";" : "", axis_names[i], size);
    m->ranks *= size;
    m->sizes[m->n_axes++] = size;
  }
  text_add(m->out, " }\nplan {\n");
}

static void make_lines(PlanMaker *m) {
  make_settings(m);
  make_batch_line(m);
  for (int i = 0; i < 6; i++) {
    int piece = piece_begin(m->choices), kind = CHOOSE(m, 8);
    if (kind >= 1 && kind <= 3) make_name_line(m);
    if (kind > 3) make_path_line(m);
    piece_end(m->choices, piece);
  }
  text_add(m->out, "}\n");
}

/* The first dim is the batch, of 12 samples. */
static const char *with_batch(const PlanMaker *m, const char *program) {
  int64_t shards = m->ranks * m->microbatches;
  int64_t n = 12 / plans_gcd(12, shards) * shards;
  const char *rest = strchr(program, '=') + 4;
  return arena_printf(m->arena, "dim %s = %lld%s", m->batch, (long long)n,
                      rest);
}

const char *planned_make(Choices *choices, int *out_lines) {
  Arena *arena = choices->arena;
  Text out = text_create(arena);
  PlanMaker m = {
      .choices = choices, .arena = arena, .out = &out, .lines = out_lines};
  const char *program = make_model(choices, &m.batch);
  m.graph = load_train_graph(arena, program);
  if (!m.graph) return program; /* the check says why */
  look_at_graph(&m);
  make_mesh(&m);
  make_lines(&m);
  return arena_printf(arena, "%s%s", with_batch(&m, program),
                      text_string(&out));
}

const char *planned_mesh(const char *text) {
  return strstr(text, "\nmesh {");
}
