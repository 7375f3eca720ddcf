/*
 * plan_stages.c -- makes the stages of a plan of the lines `stage` and `cut
 * after`, and reports what cannot hold.
 *
 *     mesh { pipe = 2 }
 *     plan { cut after ffn[1] }      =>  stage 0 on 0, stage 1 on 1
 *
 * The mesh of a stage is that of the plan without the axis `pipe`, or its own
 * (stage_meshes.c).  Stages whose lines name no ranks are on groups of ranks,
 * one after the other.  Several stages may be on the same ranks.
 */
#include "ir/plan/pins.h"

#include <stdlib.h>
#include <string.h>

bool axis_is_pipe(Name axis) {
  return strcmp(axis, "pipe") == 0;
}

/* ---- ranks ---- */

static int last_rank(const PlanStage *stage) {
  return stage->first_rank + stage->n_ranks - 1;
}

static int compare_first_ranks(const void *a, const void *b) {
  const PlanStage *x = &(*(const PinStage *const *)a)->stage;
  const PlanStage *y = &(*(const PinStage *const *)b)->stage;
  if (x->first_rank != y->first_rank) return x->first_rank - y->first_rank;
  return x->n_ranks - y->n_ranks;
}

/* The lines by their first ranks. */
static const PinStage **by_ranks(Arena *arena, const Pins *pins) {
  int n = pins->stages.n;
  const PinStage **lines = ARENA_ARRAY(arena, const PinStage *, n);
  for (int i = 0; i < n; i++) lines[i] = &pins->stages.data[i];
  qsort(lines, (size_t)n, sizeof *lines, compare_first_ranks);
  return lines;
}

/* Two stages share all of their ranks or none, and each rank up to the last one
 * has a stage. */
static int64_t count_groups(Module *module, const Pins *pins) {
  const PinStage **lines = by_ranks(module->arena, pins);
  int64_t groups = 0;
  for (int i = 0; i < pins->stages.n; i++) {
    const PlanStage *stage = &lines[i]->stage;
    const PlanStage *before = i > 0 ? &lines[i - 1]->stage : NULL;
    int next = before ? last_rank(before) + 1 : 0;
    bool is_same = before && before->first_rank == stage->first_rank &&
                   before->n_ranks == stage->n_ranks;
    if (is_same) continue;
    groups++;
    if (stage->first_rank == next) continue;
    if (stage->first_rank > next) {
      diag(module->diags, DIAG_stage_gap, lines[i]->stage.span, next);
    } else {
      Diag *d =
          diag(module->diags, DIAG_stage_overlap, lines[i]->stage.span,
               (long long)lines[i - 1]->number, (long long)lines[i]->number);
      diag_note(d, before->span, "the other stage is here");
    }
    return -1;
  }
  return groups;
}

static bool check_numbers(Module *module, const Pins *pins) {
  const PinStage *last = &pins->stages.data[0];
  for (int i = 1; i < pins->stages.n; i++)
    if (pins->stages.data[i].number > last->number)
      last = &pins->stages.data[i];
  if (last->number < pins->stages.n) return true;
  for (int64_t number = 0;; number++) {
    bool is_there = false;
    for (int i = 0; i < pins->stages.n; i++)
      is_there |= pins->stages.data[i].number == number;
    if (is_there) continue;
    diag(module->diags, DIAG_stage_number, last->stage.span,
         (long long)last->number, (long long)number);
    return false;
  }
}

/* All lines name ranks, or none does. */
static bool check_given(Module *module, const Pins *pins) {
  const PinStage *with = NULL, *without = NULL;
  for (int i = 0; i < pins->stages.n; i++) {
    const PinStage *line = &pins->stages.data[i];
    if (line->stage.n_ranks > 0)
      with = line;
    else
      without = line;
  }
  if (!with || !without) return true;
  Diag *d = diag(module->diags, DIAG_stage_without_ranks, without->stage.span,
                 (long long)without->number);
  diag_note(d, with->stage.span, "this line names ranks");
  return false;
}

/* Returns how many ranks the lines name.  Returns 0 if they name none. */
static int64_t named_ranks(const Pins *pins) {
  int64_t n = 0;
  for (int i = 0; i < pins->stages.n; i++) {
    const PlanStage *stage = &pins->stages.data[i].stage;
    if (stage->n_ranks > 0 && last_rank(stage) >= n) n = last_rank(stage) + 1;
  }
  return n;
}

static bool check_total(Module *module, const Pins *pins, int64_t named,
                        Span span) {
  int64_t asked = pins->ranks.value;
  if (!named || !asked || named == asked) return true;
  diag(module->diags, DIAG_stage_total, span, (long long)named,
       (long long)asked);
  return false;
}

static bool check_pipe(Module *module, const Pins *pins, int64_t groups) {
  for (int i = 0; i < pins->axes.n; i++) {
    const PinAxis *axis = &pins->axes.data[i];
    if (!axis_is_pipe(axis->name) || !axis->size || axis->size == groups)
      continue;
    diag(module->diags, DIAG_stage_pipe, axis->span, (long long)axis->size,
         (long long)groups, groups == 1 ? "" : "s");
    return false;
  }
  return true;
}

/* A search finds the stages of such an axis. */
static bool check_no_pipe(Module *module, const Pins *pins) {
  for (int i = 0; i < pins->axes.n; i++) {
    const PinAxis *axis = &pins->axes.data[i];
    if (!axis_is_pipe(axis->name) || axis->size == 1) continue;
    Diag *d = diag(module->diags, DIAG_pipe_without_stages, axis->span);
    diag_help(d, "a search finds them: 'dnnc plan --plan FILE'");
    return false;
  }
  return true;
}

bool pins_count_groups(Module *module, const Pins *pins, RankGroups *out) {
  *out = (RankGroups){.n = 1, .ranks = pins->ranks.value};
  int n = pins->stages.n;
  if (pins->places.n > 0)
    return pins_count_places(module, pins, out) &&
           check_total(module, pins, out->ranks, pins->places.data[0].span) &&
           check_pipe(module, pins, out->n);
  if (n == 0) return check_no_pipe(module, pins);
  if (pins->stages.data[0].is_cut) {
    out->n = plan_unnamed_groups(module, pins, n + 1);
    return out->n > 0 && check_pipe(module, pins, out->n);
  }
  if (!check_numbers(module, pins) || !check_given(module, pins) ||
      !check_total(module, pins, named_ranks(pins),
                   pins->stages.data[0].stage.span))
    return false;
  int64_t named = named_ranks(pins);
  if (named) out->ranks = named;
  out->size = pins->stages.data[0].stage.n_ranks;
  out->n =
      named ? count_groups(module, pins) : plan_unnamed_groups(module, pins, n);
  return out->n > 0 && check_pipe(module, pins, out->n);
}

/* ---- what belongs to a stage ---- */

static void set_stage(Map *stage_of, const StagePath *path, int stage) {
  for (int i = 0; i < path->n_paths; i++)
    map_put(stage_of, path->paths[i], (void *)(intptr_t)(stage + 1));
}

static Map *stages_by_path(Arena *arena, const Plan *plan) {
  Map *stage_of = map_create(arena);
  for (int s = 0; s < plan->stages.n; s++)
    for (int i = 0; i < plan->stages.data[s].paths.n; i++)
      set_stage(stage_of, &plan->stages.data[s].paths.data[i], s);
  return stage_of;
}

static bool share_ranks(const PlanStage *a, const PlanStage *b) {
  return a->first_rank <= last_rank(b) && b->first_rank <= last_rank(a);
}

/* A path is in one line. */
static bool check_once(Module *module, const Pins *pins, const Plan *plan) {
  Map *known = map_create(module->arena);
  for (int s = 0; s < plan->stages.n; s++) {
    const PlanStage *stage = &plan->stages.data[s];
    for (int i = 0; i < stage->paths.n; i++) {
      const StagePath *path = &stage->paths.data[i];
      for (int k = 0; k < path->n_paths; k++) {
        intptr_t other = (intptr_t)map_get(known, path->paths[k]) - 1;
        map_put(known, path->paths[k], (void *)(intptr_t)(s + 1));
        if (other < 0 || other == s) continue;
        Diag *d = diag(module->diags, DIAG_stage_twice, path->span,
                       path->paths[k], (long long)other, (long long)s);
        diag_note(d, plan->stages.data[other].span, "the other stage is here");
        if (named_ranks(pins) && !share_ranks(stage, &plan->stages.data[other]))
          diag_help(d, "a pipeline of its own on each island is not supported "
                       "yet: ranks that share the batch have equal stages, as "
                       "in 'stage 0: ... on 0..1 as (data = 2)'");
        return false;
      }
    }
  }
  return true;
}

/* ---- cuts ---- */

static bool has_path(const Map *paths, const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  if (node->op == OP_input) return false;
  bool has = map_has(paths, graph_path(graph, id));
  for (int i = 0; node->body && !has && i < node->body->nodes.n; i++)
    has = has_path(paths, node->body, i);
  return has;
}

int plan_cut_end(Arena *arena, const Graph *graph, const PlanStage *stage) {
  Map *paths = map_create(arena);
  for (int i = 0; i < stage->paths.n; i++)
    set_stage(paths, &stage->paths.data[i], 0);
  for (int id = graph->nodes.n - 1; id >= 0; id--)
    if (has_path(paths, graph, id)) return id;
  return -1;
}

static void add_paths(Module *module, Map *stage_of, const Graph *graph, int id,
                      int stage) {
  const Node *node = graph->nodes.data[id];
  Name path = graph_path(graph, id);
  if (node->op == OP_input) return;
  for (int i = 0; node->body && i < node->body->nodes.n; i++)
    add_paths(module, stage_of, node->body, i, stage);
  if (path && *path && !map_has(stage_of, path))
    map_put(stage_of, path, (void *)(intptr_t)(stage + 1));
}

/* Nodes up to the end of a cut are in its stage, so that values go up. */
static Map *stages_by_cuts(Module *module, const Graph *graph,
                           const Plan *plan) {
  Map *stage_of = map_create(module->arena);
  int at = 0;
  for (int s = 0; s < plan->stages.n; s++) {
    const PlanStage *stage = &plan->stages.data[s];
    bool is_last = s == plan->stages.n - 1;
    int end = is_last ? graph->nodes.n - 1
                      : plan_cut_end(module->arena, graph, stage);
    const char *text = is_last ? NULL : stage->paths.data[0].text;
    if (end < 0) {
      diag(module->diags, DIAG_plan_not_computed, stage->paths.data[0].span,
           text, "cut after");
      return NULL;
    }
    if (!is_last && end < at) {
      const PlanStage *before = &plan->stages.data[s - 1];
      Diag *d = diag(module->diags, DIAG_cut_order, stage->span, text,
                     before->paths.data[0].text);
      diag_note(d, before->span, "the cut above is here");
      diag_help(d, "cuts stand in the order of the model");
      return NULL;
    }
    for (; at <= end; at++) add_paths(module, stage_of, graph, at, s);
  }
  return stage_of;
}

/* ---- values go up ---- */

static Name path_of(const Graph *graph, int id) {
  Name path = graph_path(graph, id);
  return path && *path ? path : op_info(graph->nodes.data[id]->op)->name;
}

/* The path as a line has it that names this node, else its own. */
static StagePath line_path(const PlanStage *stage, const Graph *graph, int id,
                           Arena *arena) {
  Name own = path_of(graph, id);
  for (int i = 0; i < stage->paths.n; i++)
    for (int k = 0; k < stage->paths.data[i].n_paths; k++)
      if (stage->paths.data[i].paths[k] == own) return stage->paths.data[i];
  Name *paths = ARENA_ARRAY(arena, Name, 1);
  paths[0] = own;
  return (StagePath){
      .text = own, .n_paths = 1, .paths = paths, .span = stage->span};
}

static const char *stage_line(const Plan *plan, int s, const char *more,
                              Arena *arena) {
  Text out = text_create(arena);
  plan_print_stage(&out, plan, s, more, plan->has_ranks);
  return text_string(&out);
}

/* Returns whether values go up once this path is in that stage. */
static bool mends(Module *module, const Graph *graph, const Plan *plan,
                  const StagePath *path, int stage) {
  StageFault fault;
  Map *stage_of = stages_by_path(module->arena, plan);
  set_stage(stage_of, path, stage);
  return stage_labels(module->arena, graph, stage_of, &fault) != NULL;
}

static void help_backwards(Module *module, const Graph *graph, const Plan *plan,
                           Diag *d, const StagePath *value, int low, int high,
                           const StagePath *reader) {
  bool moves_reader = mends(module, graph, plan, reader, high);
  bool moves_value = !moves_reader && mends(module, graph, plan, value, low);
  if (moves_reader)
    diag_help(d, "write '%s', and '%s' in no other line",
              stage_line(plan, high, reader->text, module->arena),
              reader->text);
  else if (moves_value)
    diag_help(d, "write '%s', and '%s' in no other line",
              stage_line(plan, low, value->text, module->arena), value->text);
  else
    diag_help(d, "give '%s' and all that reads it a stage of at least %d",
              value->text, high);
}

static bool check_upwards(Module *module, const Graph *graph, const Plan *plan,
                          const uint16_t **out_labels) {
  StageFault fault;
  *out_labels = stage_labels(module->arena, graph, plan->stage_of, &fault);
  if (*out_labels) return true;
  /* Labels of the value and its reader, which the rule gave. */
  int high = fault.value_stage - 1, low = fault.reader_stage - 1;
  StagePath value =
      line_path(&plan->stages.data[high], graph, fault.value, module->arena);
  StagePath reader =
      line_path(&plan->stages.data[low], graph, fault.reader, module->arena);
  Diag *d = diag(module->diags, DIAG_stage_backwards, reader.span,
                 path_of(graph, fault.value), high, low,
                 path_of(graph, fault.reader));
  diag_note(d, value.span, "the value is in stage %d by this line", high);
  help_backwards(module, graph, plan, d, &value, low, high, &reader);
  return false;
}

static bool check_used(Module *module, const Graph *graph, const Plan *plan,
                       const uint16_t *labels) {
  for (int s = 0; s < plan->stages.n; s++) {
    bool is_used = false;
    for (int id = 0; id < graph->nodes.n && !is_used; id++)
      is_used = labels[id] == s + 1 && graph->nodes.data[id]->op != OP_input;
    if (is_used) continue;
    diag(module->diags, DIAG_stage_empty, plan->stages.data[s].span, s);
    return false;
  }
  return true;
}

/* The path of a node; an input has its own. */
static Name labelled_path(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  return node->op == OP_input
             ? graph->inputs.data[node_int(node, ATTR_index, 0)].path
             : graph_path(graph, id);
}

/* An evaluation may lack what a line names, as a dropout.  So what follows from
 * the line in training is written down, where all of a path are in one stage:
 * else other stages than those that hold the parameters would compute it. */
static void keep_labels(Arena *arena, const Graph *graph,
                        const uint16_t *labels, Map *stage_of) {
  enum { SEVERAL = -1 };
  Map *found = map_create(arena);
  for (int id = 0; id < graph->nodes.n; id++) {
    Name path = labelled_path(graph, id);
    if (!labels[id] || !path || !*path || map_has(stage_of, path)) continue;
    intptr_t other = (intptr_t)map_get(found, path);
    intptr_t now = other && other != labels[id] ? SEVERAL : labels[id];
    map_put(found, path, (void *)now);
  }
  for (int id = 0; id < graph->nodes.n; id++) {
    Name path = labelled_path(graph, id);
    intptr_t stage = path ? (intptr_t)map_get(found, path) : 0;
    if (stage > 0) map_put(stage_of, path, (void *)stage);
  }
}

/* ---- the stages ---- */

static void add_stages(Arena *arena, const Pins *pins, const Mesh *of_lines,
                       Plan *plan) {
  int n = pins->stages.n;
  plan->has_cuts = pins->stages.data[0].is_cut;
  for (int s = 0; s < n; s++) {
    int at = s; /* stages may stand in any order */
    while (!plan->has_cuts && pins->stages.data[at].number != s)
      at = (at + 1) % n;
    vec_push(arena, &plan->stages, pins->stages.data[at].stage);
    plan->stages.data[s].mesh = plan->has_meshes ? of_lines[at] : plan->mesh;
  }
  if (plan->has_cuts)
    vec_push(arena, &plan->stages,
             (PlanStage){.mesh = plan->mesh,
                         .span = pins->stages.data[n - 1].stage.span});
}

static void place_stages(Arena *arena, Plan *plan) {
  int per = mesh_ranks(&plan->mesh);
  plan->has_ranks = plan->stages.data[0].n_ranks > 0;
  if (plan->has_meshes) plan->ranks = 0;
  for (int s = 0; s < plan->stages.n; s++) {
    PlanStage *stage = &plan->stages.data[s];
    if (stage->n_ranks == 0) {
      stage->first_rank = per * plan_unnamed_group(arena, plan, s);
      stage->n_ranks = per;
    }
    if (last_rank(stage) >= plan->ranks) plan->ranks = last_rank(stage) + 1;
  }
}

bool plan_close_stages(Module *module, const Pins *pins, const Mesh *of_lines,
                       Plan *plan) {
  if (pins->places.n > 0) return plan_close_places(module, pins, plan);
  if (pins->stages.n == 0) return true;
  const Graph *graph = plan_paths_graph(pins->paths);
  const uint16_t *labels;
  add_stages(module->arena, pins, of_lines, plan);
  place_stages(module->arena, plan);
  if (!plan->has_cuts && !check_once(module, pins, plan)) return false;
  plan->stage_of = plan->has_cuts ? stages_by_cuts(module, graph, plan)
                                  : stages_by_path(module->arena, plan);
  if (!plan->stage_of || !check_upwards(module, graph, plan, &labels) ||
      !check_used(module, graph, plan, labels))
    return false;
  keep_labels(module->arena, graph, labels, plan->stage_of);
  return true;
}
