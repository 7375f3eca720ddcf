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
  int n_axes, sizes[MOST_PLAN_AXES], ranks, microbatches;
  VEC(PlanDim) dims;
  VEC(int) parameters, values; /* node numbers */
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
  Module *module = ARENA_NEW(arena, Module);
  *module = (Module){.memory = memory_create(plans_no_memory, NULL),
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

static void add_dim_of_type(PlanMaker *m, const Dim *dim) {
  if (!strcmp(dim->name, m->batch)) return;
  for (int i = 0; i < m->dims.n; i++)
    if (m->dims.data[i].name == dim->name) {
      m->dims.data[i].size = plans_gcd(m->dims.data[i].size, dim->size);
      return;
    }
  vec_push(m->arena, &m->dims, ((PlanDim){dim->name, dim->size}));
}

static void look_at_graph(PlanMaker *m) {
  const Graph *graph = m->graph;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    const Type *type = node->types[0];
    for (int d = 0; d < type->rank; d++) add_dim_of_type(m, &type->dims[d]);
    if (type->rank == 0 || !node->path || !*node->path) continue;
    if (strchr(node->path, '!')) continue;
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

/* One in twenty lines may be one that cannot hold. */
static bool may_shard(PlanMaker *m, int64_t size, int64_t shards) {
  return size % shards == 0 || CHOOSE(m, 20) == 19;
}

static void make_settings(PlanMaker *m) {
  m->microbatches = CHOOSE(m, 3) < 2 ? 1 : 2 + CHOOSE(m, 2);
  if (m->microbatches > 1) {
    text_printf(m->out, "  microbatches = %d\n", m->microbatches);
    count_line(m, LINE_microbatches);
  }
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

static void make_batch_line(PlanMaker *m) {
  unsigned used = 0;
  int64_t shards;
  const char *axes = pick_axes(m, &used, &shards);
  text_printf(m->out, "  shard %s over %s\n", m->batch, axes);
  count_line(m, LINE_batch);
}

/* Each dim over what it can be sharded over, or not. */
static void make_placement(PlanMaker *m, int id, PlanLine kind) {
  const Node *node = m->graph->nodes.data[id];
  const Type *type = node->types[0];
  unsigned used = 0;
  int64_t shards;
  Text places = text_create(m->arena);
  for (int d = 0; d < type->rank; d++) {
    if (CHOOSE(m, 2)) continue;
    unsigned before = used;
    const char *axes = pick_axes(m, &used, &shards);
    bool is_batch = !strcmp(type->dims[d].name, m->batch);
    if (!axes || (!is_batch && !may_shard(m, type->dims[d].size, shards))) {
      used = before;
      continue;
    }
    text_printf(&places, "%s%s over %s", places.n ? ", " : "",
                type->dims[d].name, axes);
  }
  if (places.n == 0) return;
  text_printf(m->out, "  shard %s: %s\n", node->path, text_string(&places));
  count_line(m, kind);
}

static void make_path_line(PlanMaker *m) {
  int kind = CHOOSE(m, 12);
  bool is_value = kind >= 4 && m->values.n > 0;
  int n = is_value ? m->values.n : m->parameters.n;
  if (n == 0) return;
  int k = CHOOSE(m, n);
  int id = is_value ? m->values.data[k] : m->parameters.data[k];
  Name path = m->graph->nodes.data[id]->path;
  switch (kind) {
  case 9:
    text_printf(m->out, "  replicate %s\n", path);
    count_line(m, LINE_replicate);
    return;
  case 10:
    text_printf(m->out, "  keep %s\n", path);
    count_line(m, LINE_keep);
    return;
  case 11:
    if (CHOOSE(m, 4) < 3) return;
    text_printf(m->out, "  shard %s: partial over %s\n", path,
                axis_names[CHOOSE(m, m->n_axes)]);
    count_line(m, LINE_partial);
    return;
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
  for (int i = 0; i < 6; i++) {
    int piece = piece_begin(m->choices), kind = CHOOSE(m, 8);
    if (kind >= 1 && kind <= 3) make_name_line(m);
    if (kind == 4) make_batch_line(m);
    if (kind > 4) make_path_line(m);
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
