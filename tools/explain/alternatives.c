/*
 * alternatives.c -- lists the alternatives to what a plan decides, each as a
 * pin.
 *
 *     zero             zero = 0 to 3
 *     mesh             the products of the ranks over its axes
 *     F                shard F over each axis, over pairs of axes, over none
 *     block[0].attn.q  placements of its operator's strategies, remat, keep
 *     block[0].attn.wq each dim over each axis, replicate
 */
#include "tools/explain/explain.h"

#include <stdio.h>
#include <string.h>

#include "ir/place/strategies.h"

enum { MOST_ALTERNATIVES = 48 };

static const Plan *plan_of(const Explanation *e) {
  return e->priced->c->plan;
}

/* ---- plan files ---- */

static const char *mesh_text(Arena *arena, const Mesh *mesh) {
  Text text = text_create(arena);
  text_add(&text, "mesh {\n");
  for (int i = 0; i < mesh->n_axes; i++)
    if (!mesh->axes[i].is_sequential)
      text_printf(&text, "  %s = %d\n", mesh->axes[i].name, mesh->axes[i].size);
  text_add(&text, "}\n");
  return text_string(&text);
}

/* The plan with one more line at its end, which wins. */
static const char *add_line(const Explanation *e, const char *line) {
  const char *text = e->plan_text, *end = strrchr(text, '}');
  return arena_printf(e->tool->arena, "%.*s  %s\n}\n", (int)(end - text), text,
                      line);
}

static bool is_known(const Explanation *e, const char *text) {
  for (int i = 0; i < e->alternatives.n; i++)
    if (strcmp(e->alternatives.data[i].text, text) == 0) return true;
  return e->alternatives.n == MOST_ALTERNATIVES;
}

/* A line, which may name axes of the mesh. */
static void add(Explanation *e, const char *line, bool names_axes) {
  Arena *arena = e->tool->arena;
  if (is_known(e, line)) return;
  Alternative one = {.text = line, .changed = add_line(e, line)};
  one.pins = arena_printf(
      arena, "%splan {\n  %s\n}\n",
      names_axes ? mesh_text(arena, plan_mesh(plan_of(e))) : "", line);
  vec_push(arena, &e->alternatives, one);
}

/* ---- settings ---- */

static void add_numbers(Explanation *e, const char *name, int64_t most) {
  for (int64_t n = 1; n <= most; n *= 2)
    add(e, arena_printf(e->tool->arena, "%s = %lld", name, (long long)n),
        false);
}

static void add_words(Explanation *e, const char *name,
                      const char *const *words, int n) {
  for (int i = 0; i < n; i++)
    add(e, arena_printf(e->tool->arena, "%s = %s", name, words[i]), false);
}

/* One stage has no timeline. */
static void add_schedules(Explanation *e) {
  for (int i = 0; i < pipeline_schedule_count() && plan_of(e)->schedule; i++) {
    if (pipeline_schedule(i)->is_pinned) continue;
    add(e,
        arena_printf(e->tool->arena, "schedule = %s",
                     pipeline_schedule(i)->name),
        false);
  }
}

static void add_values(Explanation *e) {
  static const char *const levels[] = {"0", "1", "2", "3"};
  static const char *const ways[] = {"gather", "ring", "ulysses"};
  static const char *const sizes[] = {"5MB", "25MB", "100MB", "400MB"};
  static const char *const dtypes[] = {"f32", "bf16"};
  static const char *const ways_to_send[] = {"none", "bf16", "f16"};
  const char *name = e->subject.text;
  if (strcmp(name, "zero") == 0) add_words(e, name, levels, 4);
  if (strcmp(name, "attention") == 0) add_words(e, name, ways, 3);
  if (strcmp(name, "bucket") == 0) add_words(e, name, sizes, 4);
  if (strcmp(name, "prefetch") == 0) add_words(e, name, sizes, 4);
  if (strcmp(name, "reduce") == 0) add_words(e, name, dtypes, 2);
  if (strcmp(name, "compress") == 0) add_words(e, name, ways_to_send, 3);
  if (strcmp(name, "schedule") == 0) add_schedules(e);
  if (strcmp(name, "microbatches") == 0)
    add_numbers(e, name, e->planning.loaded.pins->batch);
}

/* "block" of "block[3].attn.q" */
static void add_repeats(Explanation *e) {
  const Graph *graph = e->planning.loaded.model->train;
  for (int id = 0; id < graph->nodes.n; id++) {
    const char *path = graph->nodes.data[id]->path;
    const char *open = path ? strchr(path, '[') : NULL;
    const char *close = open ? strchr(open, ']') : NULL;
    if (!close || close[1] != '.') continue;
    int n = (int)(open - path);
    Arena *arena = e->tool->arena;
    add(e, arena_printf(arena, "remat %.*s", n, path), false);
    add(e, arena_printf(arena, "keep %.*s", n, path), false);
  }
}

/* ---- meshes ---- */

static void add_mesh(Explanation *e, const Mesh *mesh) {
  Arena *arena = e->tool->arena;
  Text words = text_create(arena);
  text_add(&words, "mesh {");
  for (int i = 0; i < mesh->n_axes; i++)
    text_printf(&words, "%s %s = %d", i ? ";" : "", mesh->axes[i].name,
                mesh->axes[i].size);
  text_add(&words, " }");
  if (is_known(e, text_string(&words))) return;
  const char *text = mesh_text(arena, mesh);
  const char *lines = strstr(e->plan_text, "\nplan ");
  Alternative one = {.text = text_string(&words),
                     .pins = text,
                     .changed = arena_printf(arena, "%s%s", text, lines)};
  vec_push(arena, &e->alternatives, one);
}

/* Sizes of the axes from `at` on, of which `left` ranks are to be made. */
static void vary_sizes(Explanation *e, Mesh *mesh, int at, int32_t left) {
  if (at + 1 == mesh->n_axes) {
    mesh->axes[at].size = left;
    add_mesh(e, mesh);
    return;
  }
  for (int32_t size = 1; size <= left; size++) {
    if (left % size != 0) continue;
    mesh->axes[at].size = size;
    vary_sizes(e, mesh, at + 1, left / size);
  }
}

/* The axes of the plan, two at least. */
static void add_meshes(Explanation *e) {
  const Mesh *mesh = plan_mesh(plan_of(e));
  Names *names = e->tool->module.names;
  Mesh open = {0};
  for (int i = 0; i < mesh->n_axes; i++)
    if (!mesh->axes[i].is_sequential) open.axes[open.n_axes++] = mesh->axes[i];
  static const char *const more[] = {"data", "tensor"};
  for (int i = 0; i < 2 && open.n_axes < 2; i++) {
    MeshAxis axis = {.name = name_intern(names, more[i]), .size = 1};
    if (mesh_find(&open, axis.name) < 0) open.axes[open.n_axes++] = axis;
  }
  vary_sizes(e, &open, 0, (int32_t)e->ranks);
}

/* ---- axes ---- */

/* Each rank axis, and each pair of them. */
typedef struct AxisLists {
  int n;
  AxisList lists[MAX_AXES * MAX_AXES];
} AxisLists;

static AxisLists axis_lists(const Mesh *mesh) {
  AxisLists out = {0};
  for (int a = 0; a < mesh->n_axes; a++)
    if (!mesh->axes[a].is_sequential)
      out.lists[out.n++] = axis_list_append(0, a);
  int n = out.n;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++)
      if (i != k)
        out.lists[out.n++] =
            axis_list_append(out.lists[i], axis_list_at(out.lists[k], 0));
  return out;
}

static void print_axes(Text *out, const Mesh *mesh, AxisList axes) {
  int n = axis_list_length(axes);
  text_add(out, n > 1 ? "(" : "");
  for (int i = 0; i < n; i++)
    text_printf(out, "%s%s", i ? ", " : "",
                mesh->axes[axis_list_at(axes, i)].name);
  text_add(out, n > 1 ? ")" : "");
}

static void add_place(Text *places, const Mesh *mesh, Name dim, AxisList axes) {
  text_printf(places, "%s%s over ", places->n ? ", " : "", dim);
  print_axes(places, mesh, axes);
}

static void add_dim(Explanation *e) {
  const Mesh *mesh = plan_mesh(plan_of(e));
  Arena *arena = e->tool->arena;
  AxisLists axes = axis_lists(mesh);
  add(e, arena_printf(arena, "shard %s over none", e->subject.dim), true);
  for (int i = 0; i < axes.n; i++) {
    Text place = text_create(arena);
    add_place(&place, mesh, e->subject.dim, axes.lists[i]);
    add(e, arena_printf(arena, "shard %s", text_string(&place)), true);
  }
}

/* ---- placements ---- */

static void add_placement(Explanation *e, Text *places) {
  Arena *arena = e->tool->arena;
  const char *path = e->subject.text;
  add(e,
      places->n > 0
          ? arena_printf(arena, "shard %s: %s", path, text_string(places))
          : arena_printf(arena, "replicate %s", path),
      true);
}

static void add_parameter(Explanation *e) {
  const Type *type = e->subject.node->node->types[0];
  const Mesh *mesh = plan_mesh(plan_of(e));
  AxisLists axes = axis_lists(mesh);
  Text none = text_create(e->tool->arena);
  add_placement(e, &none);
  for (int d = 0; d < type->rank; d++)
    for (int i = 0; i < axes.n; i++) {
      Text places = text_create(e->tool->arena);
      if (axis_list_shards(axes.lists[i], mesh) > type->dims[d].size) continue;
      add_place(&places, mesh, type->dims[d].name, axes.lists[i]);
      add_placement(e, &places);
    }
}

/* How the operator of the strategy computes, or how its value is placed. */
static bool add_strategy(void *user, const Strategy *strategy) {
  Explanation *e = user;
  const Mesh *mesh = plan_mesh(plan_of(e));
  Text places = text_create(e->tool->arena);
  if (e->subject.kind == SUBJECT_operator) {
    for (int i = 0; i < strategy->n_dims; i++)
      add_place(&places, mesh, strategy->dims[i].dim, strategy->dims[i].axes);
  } else {
    const Type *type = strategy->results[0];
    if (type->partial) return true;
    for (int d = 0; d < type->rank; d++)
      if (type->dims[d].split)
        add_place(&places, mesh, type->dims[d].name, type->dims[d].split);
  }
  if (!strategy->partial) add_placement(e, &places);
  return e->alternatives.n < MOST_ALTERNATIVES;
}

static void add_strategies(Explanation *e) {
  const PlanNode *at = e->subject.node;
  ShardCall call = shard_call(at->graph, at->node);
  if (op_info(at->node->op)->infer)
    shard_strategies(plan_mesh(plan_of(e)), &call, e->tool->arena, add_strategy,
                     e);
}

static void add_saving(Explanation *e) {
  Arena *arena = e->tool->arena;
  add(e, arena_printf(arena, "remat %s", e->subject.text), false);
  add(e, arena_printf(arena, "keep %s", e->subject.text), false);
}

void explain_add_alternatives(Explanation *e) {
  const Subject *subject = &e->subject;
  switch (subject->kind) {
  case SUBJECT_setting:
    if (strcmp(subject->text, "mesh") == 0)
      add_meshes(e);
    else if (strcmp(subject->text, "remat") == 0)
      add_repeats(e);
    else if (strcmp(subject->text, "cuts") == 0)
      explain_add_cuts(e);
    else
      add_values(e);
    break;
  case SUBJECT_dim: add_dim(e); break;
  case SUBJECT_parameter: add_parameter(e); break;
  case SUBJECT_value:
    add_saving(e);
    add_strategies(e);
    break;
  case SUBJECT_operator: add_strategies(e); break;
  case SUBJECT_layer: add_saving(e); break;
  }
}
