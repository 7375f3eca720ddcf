/*
 * plan_places.c -- generates the lines of a plan about names of dims, values
 * and operators.
 */
#include <string.h>

#include "tests/random/plan_maker.h"

static bool is_batch(const PlanMaker *m, const char *dim) {
  return !strcmp(dim, m->subject->batch);
}

static const Type *type_of(const PlanMaker *m, int id) {
  return m->graph->nodes.data[id]->types[0];
}

static void add_place(Text *places, const char *dim, const char *axes) {
  text_printf(places, "%s%s over %s", places->n ? ", " : "", dim, axes);
}

/* ---- names ---- */

void make_name_line(PlanMaker *m) {
  PlanAxes used = 0;
  int64_t shards;
  const char *axes = pick_axes(m, &used, &shards);
  if (m->dims.n == 0) return;
  const PlanDim *dim = &m->dims.data[CHOOSE(m, m->dims.n)];
  if (!axes || !may_shard(m, dim->size, shards, axes)) return;
  text_printf(m->out, "  shard %s over %s\n", dim->name, axes);
  count_line(m, LINE_name);
  if (dim->size % shards != 0) count_line(m, LINE_uneven);
}

/* ---- values ---- */

/* The dims of a line so far, and their axes. */
typedef struct PlacedDims {
  Text text;
  PlanAxes used;
  bool is_uneven;
} PlacedDims;

/* Micro-batches divide the batch over its own axes, which pins keep. */
static bool keeps_batch(PlanMaker *m) {
  return m->microbatches > 1 || CHOOSE(m, 8) < 7;
}

/* The axes of the batch in a value: its own, or now and then others. */
static void place_batch(PlanMaker *m, PlacedDims *placed, bool keeps) {
  int64_t shards;
  const char *axes = m->batch_text;
  if (!keeps)
    axes = CHOOSE(m, 2) ? NULL : pick_axes(m, &placed->used, &shards);
  else if (!m->batch_axes)
    axes = NULL;
  if (axes) add_place(&placed->text, m->subject->batch, axes);
}

static bool place_dim(PlanMaker *m, PlacedDims *placed, const Dim *dim) {
  PlanAxes used = placed->used;
  int64_t shards;
  const char *axes = pick_axes(m, &used, &shards);
  if (!axes || !may_shard(m, dim->size, shards, axes)) return false;
  placed->used = used;
  placed->is_uneven |= dim->size % shards != 0;
  add_place(&placed->text, dim->name, axes);
  return true;
}

static void write_places(PlanMaker *m, const char *path,
                         const PlacedDims *placed, PlanLine kind) {
  Text text = placed->text;
  if (text.n == 0) return;
  text_printf(m->out, "  shard %s: %s\n", path, text_string(&text));
  count_line(m, kind);
  if (placed->is_uneven) count_line(m, LINE_uneven);
}

/* Each dim over what it can be sharded over, or not; `slid`, or NULL, is one
 * that is. */
static void make_placement(PlanMaker *m, int id, PlanLine kind,
                           const char *slid) {
  const Type *type = type_of(m, id);
  bool has_batch = has_plan_dim(type, m->subject->batch);
  bool keeps = keeps_batch(m);
  PlacedDims placed = {.text = text_create(m->arena)};
  if (has_batch && keeps) placed.used = m->batch_axes;
  if (has_batch && m->is_batch_open && (m->microbatches > 1 || slid)) return;
  for (int d = 0; d < type->rank; d++) {
    const Dim *dim = &type->dims[d];
    bool is_slid = slid && !strcmp(dim->name, slid);
    if (is_batch(m, dim->name))
      place_batch(m, &placed, keeps);
    else if (is_slid && !place_dim(m, &placed, dim))
      return;
    else if (!slid && CHOOSE(m, 2))
      place_dim(m, &placed, dim);
  }
  write_places(m, plan_path(m, id), &placed, kind);
}

void make_parameter_line(PlanMaker *m) {
  if (m->parameters.n == 0) return;
  int id = m->parameters.data[CHOOSE(m, m->parameters.n)];
  make_placement(m, id, LINE_parameter, NULL);
}

void make_value_line(PlanMaker *m) {
  if (m->values.n == 0) return;
  int id = m->values.data[CHOOSE(m, m->values.n)];
  make_placement(m, id, LINE_value, NULL);
}

void make_space_line(PlanMaker *m) {
  if (m->windows.n == 0) return;
  PlanWindow window = m->windows.data[CHOOSE(m, m->windows.n)];
  make_placement(m, window.node, LINE_space, window.dim);
}

/* ---- gradients and optimizer state ---- */

/* The parameter, or its layer, or all parameters: of these the line is about
 * those that have one of its dims. */
static const char *update_path_of(PlanMaker *m, const char *word, int id) {
  const char *path = plan_path(m, id), *dot = strrchr(path, '.');
  int reach = CHOOSE(m, 4);
  if (reach == 3) return word;
  if (reach < 2 || !dot) return arena_printf(m->arena, "%s.%s", word, path);
  return arena_printf(m->arena, "%s.%.*s", word, (int)(dot - path), path);
}

/* Axes of the batch and of attention serve as well: an update is made once a
 * step. */
static void make_update_line(PlanMaker *m, const char *word, int id,
                             PlanLine kind) {
  const Type *type = type_of(m, id);
  const char *path = update_path_of(m, word, id);
  PlacedDims placed = {.text = text_create(m->arena)};
  PlanAxes reserved = m->reserved;
  if (CHOOSE(m, 8) == 7) {
    text_printf(m->out, "  replicate %s\n", path);
    count_line(m, kind);
    return;
  }
  m->reserved = 0;
  for (int d = 0; d < type->rank; d++)
    if (CHOOSE(m, 4)) place_dim(m, &placed, &type->dims[d]);
  m->reserved = reserved;
  write_places(m, path, &placed, kind);
}

static const GraphInput *parameter_of(const PlanMaker *m, int id) {
  const Node *node = m->graph->nodes.data[id];
  return &m->graph->inputs.data[node_int(node, ATTR_index, 0)];
}

/* One in 100 lines may be about what is not trained. */
void make_gradient_line(PlanMaker *m) {
  if (m->parameters.n == 0) return;
  int id = m->parameters.data[CHOOSE(m, m->parameters.n)];
  if (parameter_of(m, id)->is_frozen && !may_be_odd(m)) return;
  make_update_line(m, "grad", id, LINE_gradient);
}

void make_state_line(PlanMaker *m) {
  if (m->parameters.n == 0) return;
  int id = m->parameters.data[CHOOSE(m, m->parameters.n)];
  const GraphInput *input = parameter_of(m, id);
  if (!optimizer_keeps_state(m->subject->optimizer, input)) return;
  if (input->is_frozen && !may_be_odd(m)) return;
  make_update_line(m, "optimizer", id, LINE_state);
}

void make_replicate_line(PlanMaker *m) {
  if (m->values.n == 0) return;
  int id = m->values.data[CHOOSE(m, m->values.n)];
  if (has_plan_dim(type_of(m, id), m->subject->batch) && m->microbatches > 1)
    return;
  text_printf(m->out, "  replicate %s\n", plan_path(m, id));
  count_line(m, LINE_replicate);
}

/* ---- operators ---- */

const char *plan_operator(Arena *arena, const char *path) {
  char *name = arena_strdup(arena, path), *dot = strrchr(name, '.');
  if (!dot) return arena_printf(arena, "\"!%s\"", path);
  *dot = '!';
  return name;
}

static void write_operator(PlanMaker *m, int id, const PlacedDims *placed) {
  const char *path = m->graph->nodes.data[id]->path;
  write_places(m, plan_operator(m->arena, path), placed, LINE_operator);
}

int plan_product_dims(const Graph *graph, int id, const Dim **out) {
  const Node *node = graph->nodes.data[id];
  int n = 0;
  for (int i = 0; i < 2; i++) {
    const Type *type = graph_type(graph, node->inputs[i]);
    for (int d = 0; d < type->rank; d++) {
      bool is_known = !is_plan_name(type->dims[d].name);
      for (int k = 0; k < n; k++)
        is_known |= !strcmp(out[k]->name, type->dims[d].name);
      if (!is_known) out[n++] = &type->dims[d];
    }
  }
  return n;
}

void make_operator_line(PlanMaker *m) {
  if (m->products.n == 0) return;
  int id = m->products.data[CHOOSE(m, m->products.n)];
  const Dim *dims[2 * MAX_RANK];
  PlacedDims placed = {.text = text_create(m->arena), .used = m->batch_axes};
  if (m->is_batch_open) return;
  int n = plan_product_dims(m->graph, id, dims);
  for (int i = 0; i < n; i++)
    if (is_batch(m, dims[i]->name))
      place_batch(m, &placed, true);
    else if (CHOOSE(m, 2))
      place_dim(m, &placed, dims[i]);
  write_operator(m, id, &placed);
}

/* ---- partial sums ---- */

/* An axis that no other line has; -1: there is none. */
static int find_free_axis(PlanMaker *m) {
  int first = CHOOSE(m, m->n_axes);
  for (int i = 0; i < m->n_axes; i++) {
    int axis = (first + i) % m->n_axes;
    if (!((m->reserved | m->batch_axes) >> axis & 1)) return axis;
  }
  return -1;
}

/* A product adds up shards of a dim, where one can be found, so that its result
 * is the partial sum; else the pin makes one of a replicated value. */
static void add_up_shards(PlanMaker *m, int id, const char *axis,
                          int64_t shards) {
  const Node *node = m->graph->nodes.data[id];
  const Dim *dims[2 * MAX_RANK];
  PlacedDims placed = {.text = text_create(m->arena)};
  bool is_any = false;
  if (node->op != OP_dot || CHOOSE(m, 2)) return;
  for (int i = 0; i < m->products.n; i++) is_any |= m->products.data[i] == id;
  int n = is_any ? plan_product_dims(m->graph, id, dims) : 0;
  is_any = false;
  for (int i = 0; i < n; i++) {
    bool is_added = !has_plan_dim(node->types[0], dims[i]->name);
    if (is_batch(m, dims[i]->name)) place_batch(m, &placed, true);
    if (!is_added || is_any || dims[i]->size % shards != 0) continue;
    add_place(&placed.text, dims[i]->name, axis);
    is_any = true;
  }
  if (is_any) write_operator(m, id, &placed);
}

void make_partial_line(PlanMaker *m) {
  static const char *const names[] = {"a", "b", "c"};
  if (m->sums.n == 0 || m->is_batch_open) return;
  int id = m->sums.data[CHOOSE(m, m->sums.n)], axis = find_free_axis(m);
  if (axis < 0) return;
  PlacedDims placed = {.text = text_create(m->arena)};
  m->reserved |= 1u << axis;
  add_up_shards(m, id, names[axis], m->sizes[axis]);
  if (has_plan_dim(type_of(m, id), m->subject->batch))
    place_batch(m, &placed, true);
  add_place(&placed.text, "partial", names[axis]);
  write_places(m, plan_path(m, id), &placed, LINE_partial);
}

/* ---- memory ---- */

static bool is_inside(const char *path, const char *layer) {
  size_t n = strlen(layer);
  return !strncmp(path, layer, n) &&
         (!path[n] || path[n] == '.' || path[n] == '[');
}

/* One line for a value: two would contradict each other. */
static void write_saving(PlanMaker *m, const char *word, const char *path,
                         PlanLine kind) {
  for (int i = 0; i < m->saved.n; i++)
    if (is_inside(path, m->saved.data[i]) || is_inside(m->saved.data[i], path))
      return;
  vec_push(m->arena, &m->saved, path);
  text_printf(m->out, "  %s %s\n", word, path);
  count_line(m, kind);
}

/* A forward value; where parameters are sharded also one of these, whose
 * gathered copy stays. */
void make_keep_line(PlanMaker *m) {
  bool is_parameter = m->zero == 3 && m->parameters.n > 0 && CHOOSE(m, 2);
  int n = is_parameter ? m->parameters.n : m->values.n;
  if (n == 0) return;
  int at = CHOOSE(m, n);
  int id = is_parameter ? m->parameters.data[at] : m->values.data[at];
  write_saving(m, "keep", plan_path(m, id), LINE_keep);
}

/* A value, or all values of its layer. */
void make_remat_line(PlanMaker *m) {
  if (m->values.n == 0) return;
  const char *path = plan_path(m, m->values.data[CHOOSE(m, m->values.n)]);
  const char *dot = strrchr(path, '.');
  if (dot && strncmp(path, "loss", 4) != 0 && CHOOSE(m, 2))
    path = arena_printf(m->arena, "%.*s", (int)(dot - path), path);
  write_saving(m, "remat", path, LINE_remat);
}
