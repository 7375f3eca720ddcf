/*
 * subject.c -- finds what the PATH of `dnnc explain` names: a setting of a
 * plan, a dim, or values, parameters and operators of the model.
 */
#include "tools/explain/explain.h"

#include <stdio.h>
#include <string.h>

#include "frontend/syntax/help.h"
#include "ir/place/strategies.h"
#include "tools/show/show_stages.h"

/* ---- what is named ---- */

static const char *const settings[] = {
#define EXPLAIN_SETTING(name, has_values) #name,
#include "tools/explain/explain_settings.def"
};

static bool find_setting(Subject *out, const char *path) {
  for (int i = 0; i < ARRAY_LENGTH(settings); i++) {
    if (strcmp(settings[i], path) != 0) continue;
    *out = (Subject){SUBJECT_setting, .text = settings[i], .setting = i};
    return true;
  }
  return false;
}

static const Graph *train_graph(const Explanation *e) {
  return e->planning.loaded.model->train;
}

static bool find_dim(const Explanation *e, Subject *out, const char *path) {
  const Graph *graph = train_graph(e);
  Name name = name_intern(e->tool->module.names, path);
  for (int i = 0; i < graph->nodes.n; i++)
    if (type_find(graph->nodes.data[i]->types[0], name) >= 0) {
      *out = (Subject){SUBJECT_dim, .text = path, .dim = name};
      return true;
    }
  return false;
}

/* One line places all of them if they are equal operators with equal dims. */
static bool are_uniform(const PlanPaths *paths, const PathList *list) {
  const PlanNodes *first = plan_paths_nodes_of(paths, list->data[0]);
  const Node *node = first->data[0].node;
  for (int i = 1; i < list->n; i++) {
    const PlanNodes *at = plan_paths_nodes_of(paths, list->data[i]);
    if (at->n == 0 || at->data[0].node->op != node->op ||
        !type_same_dims(at->data[0].node->types[0], node->types[0]))
      return false;
  }
  return true;
}

static bool find_paths(const Explanation *e, Subject *out, const char *path) {
  const PlanPaths *paths = e->planning.loaded.pins->paths;
  Arena *arena = e->tool->arena;
  PathPattern pattern;
  *out = (Subject){.text = path};
  if (!path_pattern_parse(arena, &pattern, path, SPAN_NONE) ||
      !plan_paths_find(paths, &pattern, &out->paths))
    return false;
  const PlanNodes *nodes = plan_paths_nodes_of(paths, out->paths.data[0]);
  if (nodes->n == 0) return false;
  out->node = &nodes->data[0];
  out->kind = !are_uniform(paths, &out->paths)  ? SUBJECT_layer
              : pattern.is_operator             ? SUBJECT_operator
              : out->node->node->op == OP_input ? SUBJECT_parameter
                                                : SUBJECT_value;
  if (path[0] == '!') out->text = arena_printf(arena, "\"%s\"", path);
  return true;
}

/* ---- mistakes ---- */

static void add_name(const Explanation *e, Map *seen, const char *name) {
  Name key = name_intern(e->tool->module.names, name);
  map_put(seen, key, (void *)key);
}

static bool report_path(const Explanation *e, const char *path) {
  Tool *tool = e->tool;
  Map *seen = map_create(tool->arena);
  const PlanPaths *paths = e->planning.loaded.pins->paths;
  const Graph *graph = train_graph(e);
  const char *known;
  for (int i = 0; i < ARRAY_LENGTH(settings); i++)
    add_name(e, seen, settings[i]);
  for (int i = 0; (known = plan_paths_at(paths, i)); i++)
    add_name(e, seen, known);
  for (int i = 0; i < graph->nodes.n; i++) {
    const Type *type = graph->nodes.data[i]->types[0];
    for (int d = 0; d < type->rank; d++) add_name(e, seen, type->dims[d].name);
  }
  int n = map_size(seen);
  const char **names = ARENA_ARRAY(tool->arena, const char *, n + 1);
  for (int i = 0; i < n; i++) names[i] = map_key_at(seen, i);
  Source *source = ARENA_NEW(tool->arena, Source);
  *source = (Source){"command line", path, strlen(path)};
  Diag *d = diag(tool->module.diags, DIAG_explain_path,
                 (Span){source, 0, (uint32_t)source->n},
                 e->planning.loaded.model->name, path);
  diag_help(d, "a path is that of a value, parameter, operator or layer; a "
               "dim and zero, microbatches, attention, bucket, prefetch, "
               "reduce, schedule, stages, cuts, bubble, remat and mesh are "
               "explained too");
  diag_suggest(d, path, names, n);
  tool_report(tool);
  return false;
}

bool explain_subject(Explanation *e, const char *path) {
  Subject *out = &e->subject;
  return find_setting(out, path) || find_paths(e, out, path) ||
         find_dim(e, out, path) || report_path(e, path);
}

/* ---- what is decided ---- */

static void add_axes(Text *out, const PlanShard *shard) {
  for (int i = 0; i < shard->n_axes; i++)
    text_printf(out, "%s%s", i ? ", " : "", shard->axes[i]);
}

static void add_setting(Text *out, const Explanation *e) {
  const Plan *plan = e->priced->c->plan;
  const char *name = e->subject.text;
  if (strcmp(name, "zero") == 0)
    text_printf(out, "zero = %d", plan->zero);
  else if (strcmp(name, "microbatches") == 0)
    text_printf(out, "microbatches = %lld", (long long)plan->microbatches);
  else if (strcmp(name, "attention") == 0)
    text_printf(out, "attention = %s",
                plan->attention ? plan_attention_name(plan->attention)
                                : "gather");
  else if (strcmp(name, "bucket") == 0)
    text_printf(out, "bucket = %s",
                quantity_text(out->arena, UNIT_bytes, plan->bucket_bytes));
  else if (strcmp(name, "prefetch") == 0)
    text_printf(out, "prefetch = %s",
                quantity_text(out->arena, UNIT_bytes, plan->prefetch_bytes));
  else if (strcmp(name, "reduce") == 0)
    text_printf(out, "reduce = %s", plan->reduces_bf16 ? "bf16" : "f32");
  else if (strcmp(name, "compress") == 0)
    text_printf(
        out, "compress = %s",
        plan_compress_text(out->arena, plan->compress, plan->compress_rank));
  else if (strcmp(name, "schedule") == 0 && plan->schedule)
    text_printf(out, "schedule = %s, %d stages", plan->schedule,
                plan->stages.n);
  else if (strcmp(name, "schedule") == 0)
    text_add(out, "there is one stage");
}

static void add_mesh(Text *out, const Mesh *mesh) {
  text_add(out, "mesh {");
  for (int i = 0, n = 0; i < mesh->n_axes; i++)
    if (!mesh->axes[i].is_sequential)
      text_printf(out, "%s %s = %d", n++ ? ";" : "", mesh->axes[i].name,
                  mesh->axes[i].size);
  text_add(out, " }");
}

static void add_remats(Text *out, const Plan *plan) {
  int n[3] = {0};
  for (int i = 0; plan->saved && i < map_size(plan->saved); i++)
    n[((const PlanPin *)map_value_at(plan->saved, i))->says]++;
  text_printf(out, "%d values are computed again", n[SAYS_remat]);
}

/* Returns the stage of a node of the training graph, counted from 1; 0: none
 * is known. */
static int stage_of_node(const Explanation *e, const PlanNode *at) {
  const Plan *plan = e->priced->c->plan;
  const Graph *graph = train_graph(e);
  StageFault fault;
  Name path = at->path ? at->path : at->node->path;
  const uint16_t *stages =
      stage_labels(e->tool->arena, graph, plan->stage_of, &fault);
  for (int id = 0; stages && id < graph->nodes.n; id++)
    if (graph->nodes.data[id] == at->node) return stages[id];
  return path ? (int)(intptr_t)map_get(plan->stage_of, path) : 0;
}

void explain_find_stage(Explanation *e) {
  const Plan *plan = e->priced->c->plan;
  Subject *subject = &e->subject;
  subject->stage = -1;
  if (plan->stages.n <= 1 || !subject->node) return;
  subject->stage = stage_of_node(e, subject->node) - 1;
  if (subject->stage >= 0) priced_show_stage(e->priced, subject->stage);
}

static void add_stage(Text *out, const Explanation *e) {
  const Subject *subject = &e->subject;
  if (subject->stage < 0) return;
  const PlanStage *stage = &e->priced->c->plan->stages.data[subject->stage];
  text_printf(out, "%sstage %d on rank%s %s; ",
              subject->kind == SUBJECT_layer ? "its first value is in " : "",
              subject->stage, stage->n_ranks > 1 ? "s" : "",
              show_ranks(out->arena, stage->first_rank, stage->n_ranks));
}

/* A node of one graph, with the placements of its operands. */
static bool add_node(Text *out, const Explanation *e, const Graph *graph) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    bool is_subject =
        node->path == e->subject.node->node->path &&
        node->phase == PHASE_forward &&
        (node->op == e->subject.node->node->op || id + 1 == graph->nodes.n ||
         graph->nodes.data[id + 1]->path != node->path);
    if (!is_subject) continue;
    if (node->op != OP_input) {
      text_printf(out, "%s ", op_info(node->op)->name);
      for (int i = 0; i < node->n_inputs; i++) {
        text_add(out, i ? ", " : "");
        type_print(out, graph_type(graph, node->inputs[i]), &graph->mesh);
      }
      text_add(out, " -> ");
    }
    type_print(out, node->types[0], &graph->mesh);
    return true;
  }
  return false;
}

/* The node after partition, in the stage that has it. */
static void add_placement(Text *out, const Explanation *e) {
  const Compilation *c = e->priced->c;
  Graph *graph = driver_graph(c, ENTRY_train);
  StageGraphs stages = {0};
  bool is_found = false;
  if (graph)
    driver_compile_stages(c, ENTRY_train, graph, pass_end("partition"),
                          &stages);
  for (int s = 0; s < stages.graphs.n && !is_found; s++)
    is_found = add_node(out, e, stages.graphs.data[s]);
  if (!is_found) text_add(out, "passes have made it a part of other operators");
}

static void add_saving(Text *out, const Explanation *e) {
  const Plan *plan = e->priced->c->plan;
  const PlanPin *pin = plan_find_saving(plan, e->subject.paths.data[0]);
  text_add(out, !pin ? ""
                : pin->says == SAYS_remat
                    ? "; the backward pass computes it again"
                    : "; kept for the backward pass");
}

static void add_layer(Text *out, const Explanation *e) {
  const PathList *paths = &e->subject.paths;
  int n = 0;
  for (int i = 0; i < paths->n; i++) {
    const PlanPin *pin = plan_find_saving(e->priced->c->plan, paths->data[i]);
    n += pin && pin->says == SAYS_remat;
  }
  text_printf(out, "%d values and parameters, of which %d are computed again",
              paths->n, n);
}

const char *explain_decision(const Explanation *e) {
  const Plan *plan = e->priced->c->plan;
  Text out = text_create(e->tool->arena);
  const Subject *subject = &e->subject;
  add_stage(&out, e);
  switch (subject->kind) {
  case SUBJECT_setting:
    if (strcmp(subject->text, "mesh") == 0)
      add_mesh(&out, plan_mesh(plan));
    else if (strcmp(subject->text, "remat") == 0)
      add_remats(&out, plan);
    else if (explain_is_of_stages(e) && strcmp(subject->text, "schedule") != 0)
      explain_add_stage_decision(&out, e);
    else
      add_setting(&out, e);
    break;
  case SUBJECT_dim: {
    const PlanShard *shard = plan_find_shard(plan, subject->dim);
    bool is_sharded = shard && shard->n_axes > 0;
    text_add(&out, is_sharded ? "sharded over " : "no line shards it");
    if (is_sharded) add_axes(&out, shard);
    break;
  }
  case SUBJECT_layer: add_layer(&out, e); break;
  case SUBJECT_parameter:
  case SUBJECT_value:
  case SUBJECT_operator:
    add_placement(&out, e);
    add_saving(&out, e);
    break;
  }
  return text_string(&out);
}
