/*
 * plan_places.c -- makes stages of the lines `place` of a plan.
 *
 *     place left on 1        stage 0 on 0: trunk
 *                       =>   stage 1 on 1: left
 *                            stage 2 on 0: right
 *                            stage 3 on 0: join
 *
 * Lines have equal numbers of ranks.  Paths that no line names are on the first
 * ranks, which are as many.  Two numbers of a path say when it can be computed:
 * its level, the most changes of ranks on a way from the data to it, and its
 * height, the most on a way from it to an output.  Paths on the same ranks with
 * the same level and height are a stage.  A value that changes its ranks goes
 * to a greater level and a smaller height, and any other keeps or changes both
 * in that direction, so stages never wait for each other in a circle.
 *
 * Stages are numbered in the order of the graph, as far as values allow.  A
 * node that follows from parameters alone, or that renames dims, is in the
 * stage of what reads it (stage_labels.c).
 *
 * cost: O(nodes * changes of ranks)
 */
#include "ir/plan/pins.h"

/* ---- ranks ---- */

static int end_rank(const PlanStage *place) {
  return place->first_rank + place->n_ranks;
}

/* The rest, which no line names, is on the first ranks. */
static PlanStage rest_of(const Pins *pins) {
  return (PlanStage){.n_ranks = pins->places.data[0].n_ranks,
                     .span = pins->places.data[0].span};
}

static bool check_common(Module *module, const PlanStage *place,
                         const PlanStage *other, bool is_rest) {
  bool is_apart = place->first_rank >= end_rank(other) ||
                  other->first_rank >= end_rank(place);
  if (is_apart || place->first_rank == other->first_rank) return true;
  Diag *d =
      diag(module->diags, DIAG_place_overlap, place->span, place->first_rank,
           end_rank(place) - 1, other->first_rank, end_rank(other) - 1);
  if (is_rest)
    diag_help(d, "what no line places is on ranks %d..%d", other->first_rank,
              end_rank(other) - 1);
  else
    diag_note(d, other->span, "the other line is here");
  return false;
}

static bool check_ranks(Module *module, const Pins *pins) {
  const PlanStage *first = &pins->places.data[0];
  PlanStage rest = rest_of(pins);
  for (int i = 0; i < pins->places.n; i++) {
    const PlanStage *place = &pins->places.data[i];
    if (place->n_ranks != first->n_ranks) {
      Diag *d = diag(module->diags, DIAG_not_supported, place->span,
                     "lines 'place' with different numbers of ranks");
      diag_note(d, first->span, "the other line is here");
      return false;
    }
    if (!check_common(module, place, &rest, true)) return false;
    for (int k = 0; k < i; k++)
      if (!check_common(module, place, &pins->places.data[k], false))
        return false;
  }
  return true;
}

/* The line of the lowest ranks from `rank` on, or NULL. */
static const PlanStage *next_place(const Pins *pins, int rank) {
  const PlanStage *next = NULL;
  for (int i = 0; i < pins->places.n; i++) {
    const PlanStage *place = &pins->places.data[i];
    if (place->first_rank >= rank &&
        (!next || place->first_rank < next->first_rank))
      next = place;
  }
  return next;
}

bool pins_count_places(Module *module, const Pins *pins, RankGroups *out) {
  PlanStage rest = rest_of(pins);
  const PlanStage *next;
  int rank = rest.n_ranks;
  if (!check_ranks(module, pins)) return false;
  for (; (next = next_place(pins, rank)); rank = end_rank(next)) {
    if (next->first_rank == rank) continue;
    diag(module->diags, DIAG_place_gap, next->span, rank);
    return false;
  }
  *out = (RankGroups){
      .n = rank / rest.n_ranks, .ranks = rank, .size = rest.n_ranks};
  return true;
}

/* ---- paths ---- */

typedef struct PlacedPath {
  Name path;
  int group; /* of ranks: its first rank through their number */
  int level, height, stage, first_node;
} PlacedPath;

typedef struct Places {
  Module *module;
  const Graph *graph;
  const Pins *pins;
  Map *line_of;        /* path -> number of its line + 1 */
  const bool *is_data; /* by node: follows from data */
  int *path_of;        /* by node: index in `paths`; -1: follows its readers */
  VEC(PlacedPath) paths;
} Places;

static Map *lines_by_path(Arena *arena, const Pins *pins) {
  Map *line_of = map_create(arena);
  for (int i = 0; i < pins->places.n; i++) {
    const PlanStage *place = &pins->places.data[i];
    for (int k = 0; k < place->paths.n; k++)
      for (int p = 0; p < place->paths.data[k].n_paths; p++)
        map_put(line_of, place->paths.data[k].paths[p],
                (void *)(intptr_t)(i + 1));
  }
  return line_of;
}

/* The path of a node, else of the first one in its scan. */
static Name path_of_node(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  Name path = graph_path(graph, id);
  for (int i = 0; node->body && !(path && *path) && i < node->body->nodes.n;
       i++)
    if (node->body->nodes.data[i]->op != OP_input)
      path = path_of_node(node->body, i);
  return path && *path ? path : NULL;
}

/* The line that names a node, or something in its scan, counted from 1. */
static int line_of_node(const Places *p, const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  if (node->op == OP_input) return 0;
  Name path = graph_path(graph, id);
  int line = path ? (int)(intptr_t)map_get(p->line_of, path) : 0;
  for (int i = 0; node->body && !line && i < node->body->nodes.n; i++)
    line = line_of_node(p, node->body, i);
  return line;
}

static void add_path(Places *p, Map *known, int id, Name path, int line) {
  PlacedPath placed = {.path = path, .stage = -1, .first_node = id};
  if (line) {
    const PlanStage *place = &p->pins->places.data[line - 1];
    placed.group = place->first_rank / place->n_ranks;
  }
  vec_push(p->module->arena, &p->paths, placed);
  map_put(known, path, (void *)(intptr_t)p->paths.n);
}

/* A node that renames dims has a path only if another node has it, too: a layer
 * renames dims before and behind all that it computes, and of that what reads
 * its result has a name for the second alone. */
static void find_paths(Places *p) {
  int n = p->graph->nodes.n;
  Map *known = map_create(p->module->arena);
  for (int id = 0; id < n; id++) {
    const Node *node = p->graph->nodes.data[id];
    Name path = path_of_node(p->graph, id);
    int line = line_of_node(p, p->graph, id);
    if (node->op != OP_input && node->op != OP_rename && p->is_data[id] &&
        path && !map_has(known, path))
      add_path(p, known, id, path, line);
  }
  for (int id = 0; id < n; id++) {
    Name path = path_of_node(p->graph, id);
    bool is_placed = p->graph->nodes.data[id]->op != OP_input &&
                     p->is_data[id] && path && map_has(known, path);
    p->path_of[id] = is_placed ? (int)(intptr_t)map_get(known, path) - 1 : -1;
  }
}

/* ---- levels and heights ---- */

/* The path that makes a value, through nodes without one; NULL: data, or what
 * follows from parameters alone. */
static PlacedPath *maker_of(const Places *p, Value value) {
  int id = value.node;
  while (p->path_of[id] < 0 && p->is_data[id] &&
         p->graph->nodes.data[id]->n_inputs > 0)
    id = p->graph->nodes.data[id]->inputs[0].node;
  return p->path_of[id] < 0 ? NULL : &p->paths.data[p->path_of[id]];
}

static bool grow(int *number, int least) {
  if (*number >= least) return false;
  *number = least;
  return true;
}

/* Raises levels and heights over one edge; returns whether that changed one. */
static bool raise_over(PlacedPath *from, PlacedPath *to) {
  int more = from->group != to->group;
  bool is_raised = grow(&to->level, from->level + more);
  return grow(&from->height, to->height + more) || is_raised;
}

static PlacedPath *highest(const Places *p) {
  PlacedPath *high = &p->paths.data[0];
  for (int i = 1; i < p->paths.n; i++)
    if (p->paths.data[i].level > high->level) high = &p->paths.data[i];
  return high;
}

/* Levels of nodes settle in one walk up and heights in one walk down, but for
 * paths with several nodes.  In a circle they grow without an end. */
static bool find_levels(Places *p) {
  bool is_raised = true;
  for (int walk = 0; is_raised; walk++) {
    int n = p->graph->nodes.n;
    is_raised = false;
    for (int i = 0; i < 2 * n; i++) {
      int id = i < n ? i : 2 * n - 1 - i;
      const Node *node = p->graph->nodes.data[id];
      if (p->path_of[id] < 0) continue;
      for (int k = 0; k < node->n_inputs; k++) {
        PlacedPath *from = maker_of(p, node->inputs[k]);
        if (from) is_raised |= raise_over(from, &p->paths.data[p->path_of[id]]);
      }
    }
    if (p->paths.n == 0 || highest(p)->level <= p->paths.n) continue;
    diag(p->module->diags, DIAG_place_circle, p->pins->places.data[0].span,
         highest(p)->path);
    return false;
  }
  return true;
}

/* ---- stages ---- */

typedef struct PlacedStage {
  int group, level, height, first_node;
  bool is_numbered;
} PlacedStage;

typedef VEC(PlacedStage) PlacedStages;

static PlacedStages find_stages(Places *p) {
  PlacedStages stages = {0};
  for (int i = 0; i < p->paths.n; i++) {
    PlacedPath *path = &p->paths.data[i];
    int s = 0;
    for (; s < stages.n; s++)
      if (stages.data[s].group == path->group &&
          stages.data[s].level == path->level &&
          stages.data[s].height == path->height)
        break;
    if (s == stages.n)
      vec_push(p->module->arena, &stages,
               (PlacedStage){.group = path->group,
                             .level = path->level,
                             .height = path->height,
                             .first_node = path->first_node});
    path->stage = s;
  }
  return stages;
}

/* `reads`: by reading stage and stage read. */
static bool *find_readers(const Places *p, int n) {
  bool *reads = ARENA_ARRAY(p->module->arena, bool, n *n);
  for (int id = 0; id < p->graph->nodes.n; id++) {
    const Node *node = p->graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs && p->path_of[id] >= 0; i++) {
      const PlacedPath *from = maker_of(p, node->inputs[i]);
      if (from)
        reads[p->paths.data[p->path_of[id]].stage * n + from->stage] = true;
    }
  }
  return reads;
}

static bool is_ready(const PlacedStages *stages, const bool *reads, int s) {
  for (int k = 0; k < stages->n; k++)
    if (k != s && reads[s * stages->n + k] && !stages->data[k].is_numbered)
      return false;
  return !stages->data[s].is_numbered;
}

/* Returns the number of each stage: of those whose values are there, the first
 * in the graph comes next. */
static const int *number_stages(const Places *p, PlacedStages *stages) {
  int n = stages->n;
  int *number = ARENA_ARRAY(p->module->arena, int, n);
  const bool *reads = find_readers(p, n);
  for (int i = 0; i < n; i++) {
    int next = -1;
    for (int s = 0; s < n; s++)
      if (is_ready(stages, reads, s) &&
          (next < 0 ||
           stages->data[s].first_node < stages->data[next].first_node))
        next = s;
    ASSERT(next >= 0);
    number[next] = i;
    stages->data[next].is_numbered = true;
  }
  return number;
}

static void put_stage(Map *stage_of, Name path, int stage) {
  if (path && *path && !map_has(stage_of, path))
    map_put(stage_of, path, (void *)(intptr_t)(stage + 1));
}

static void put_body(Map *stage_of, const Graph *graph, int id, int stage) {
  const Node *node = graph->nodes.data[id];
  if (node->op == OP_input) return;
  put_stage(stage_of, graph_path(graph, id), stage);
  for (int i = 0; node->body && i < node->body->nodes.n; i++)
    put_body(stage_of, node->body, i, stage);
}

/* A parameter or state that a line names is on its ranks: in the first stage
 * there that reads it, else in the first one. */
static void put_buffers(const Places *p, const Plan *plan, Map *stage_of) {
  int n = p->graph->nodes.n;
  int *of_input = ARENA_ARRAY(p->module->arena, int, n);
  for (int id = 0; id < n; id++) {
    const Node *node = p->graph->nodes.data[id];
    if (p->path_of[id] < 0) continue;
    int stage = p->paths.data[p->path_of[id]].stage;
    int first = plan->stages.data[stage].first_rank;
    for (int i = 0; i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      const Node *maker = p->graph->nodes.data[from];
      if (maker->op != OP_input) continue;
      Name path = p->graph->inputs.data[node_int(maker, ATTR_index, 0)].path;
      int line = (int)(intptr_t)map_get(p->line_of, path);
      if (line && p->pins->places.data[line - 1].first_rank == first &&
          (!of_input[from] || stage < of_input[from] - 1))
        of_input[from] = stage + 1;
    }
  }
  for (int i = 0; i < p->graph->inputs.n; i++) {
    const GraphInput *input = &p->graph->inputs.data[i];
    int line = (int)(intptr_t)map_get(p->line_of, input->path);
    int stage = of_input[input->value.node] - 1;
    for (int s = 0; line && stage < 0 && s < plan->stages.n; s++)
      if (plan->stages.data[s].first_rank ==
          p->pins->places.data[line - 1].first_rank)
        stage = s;
    if (stage >= 0) put_stage(stage_of, input->path, stage);
  }
}

static void put_nodes(const Places *p, Map *stage_of) {
  for (int id = 0; id < p->graph->nodes.n; id++)
    if (p->path_of[id] >= 0) {
      const PlacedPath *path = &p->paths.data[p->path_of[id]];
      put_stage(stage_of, path->path, path->stage);
      put_body(stage_of, p->graph, id, path->stage);
    }
}

/* ---- the plan ---- */

static Span span_of_group(const Pins *pins, int first_rank) {
  for (int i = 0; i < pins->places.n; i++)
    if (pins->places.data[i].first_rank == first_rank)
      return pins->places.data[i].span;
  return pins->places.data[0].span;
}

static void add_stages(const Places *p, const PlacedStages *stages,
                       const int *number, Plan *plan) {
  int n_ranks = p->pins->places.data[0].n_ranks;
  for (int i = 0; i < stages->n; i++) {
    int s = 0;
    while (number[s] != i) s++;
    int first = stages->data[s].group * n_ranks;
    vec_push(p->module->arena, &plan->stages,
             (PlanStage){.mesh = plan->mesh,
                         .first_rank = first,
                         .n_ranks = n_ranks,
                         .span = span_of_group(p->pins, first)});
  }
  for (int i = 0; i < p->paths.n; i++)
    p->paths.data[i].stage = number[p->paths.data[i].stage];
}

static bool check_used(const Places *p, Plan *plan) {
  RankGroups groups;
  if (!pins_count_places(p->module, p->pins, &groups)) return false;
  for (int r = 0; r < groups.ranks; r += groups.size) {
    int s = 0;
    while (s < plan->stages.n && plan->stages.data[s].first_rank != r) s++;
    if (s < plan->stages.n) continue;
    diag(p->module->diags, DIAG_place_empty, span_of_group(p->pins, r), r);
    return false;
  }
  plan->ranks = (int)groups.ranks;
  return true;
}

bool plan_close_places(Module *module, const Pins *pins, Plan *plan) {
  Arena *arena = module->arena;
  const Graph *graph = plan_paths_graph(pins->paths);
  Places p = {.module = module,
              .graph = graph,
              .pins = pins,
              .line_of = lines_by_path(arena, pins),
              .is_data = graph_data_nodes(graph, arena),
              .path_of = ARENA_ARRAY(arena, int, graph->nodes.n)};
  find_paths(&p);
  if (!find_levels(&p)) return false;
  PlacedStages stages = find_stages(&p);
  add_stages(&p, &stages, number_stages(&p, &stages), plan);
  if (!check_used(&p, plan)) return false;
  plan->has_ranks = true;
  for (int i = 0; i < pins->places.n; i++)
    vec_push(arena, &plan->places, pins->places.data[i]);
  plan->stage_of = map_create(arena);
  put_nodes(&p, plan->stage_of);
  put_buffers(&p, plan, plan->stage_of);
  return true;
}
