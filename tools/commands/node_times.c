/*
 * node_times.c -- compiles the program of one rank for a search, and lists what
 * the simulator counts for each of its nodes.
 */
#include "tools/commands/planning.h"

#include <string.h>

typedef struct TimesLister {
  Arena *arena; /* of the result */
  const Trial *trial;
  const Graph *graph; /* of the stage */
  Map *known; /* node * N_PHASES + phase + 1 -> index + 1 in the times */
  NodeTimes *out;
} TimesLister;

/* A loop of a scan counts as its node. */
static void add_launch(TimesLister *l, int outer, Ps time) {
  const Node *node = l->graph->nodes.data[outer];
  const void *key =
      (const void *)(intptr_t)((int64_t)outer * N_PHASES + node->phase + 1);
  intptr_t known = (intptr_t)map_get(l->known, key);
  if (known == 0) {
    PathTime new = {.path = arena_strdup(l->arena, priced_path(node)),
                    .phase = (Phase)node->phase};
    vec_push(l->arena, &l->out->times, new);
    known = l->out->times.n;
    map_put(l->known, key, (void *)known);
  }
  l->out->times.data[known - 1].time += time;
}

/* A loop around instructions, or what is around all. */
typedef struct AroundLaunch {
  const Graph *graph;
  int outer; /* node of the stage; -1: none */
  int64_t trips;
} AroundLaunch;

/* The loop over micro-batches has no node: one of these counts. */
static AroundLaunch enter(AroundLaunch around, const Instruction *in) {
  if (in->node < 0) return around;
  return (AroundLaunch){
      .graph = around.graph->nodes.data[in->node]->body,
      .outer = around.outer < 0 ? in->node : around.outer,
      .trips = around.trips * in->trips,
  };
}

/* Each instruction once: those of the passes are of one micro-batch. */
static void list_launches(TimesLister *l, const ProgramStage *stage) {
  const InstructionList *list = stage->instructions;
  const CostModel *model = &l->trial->priced.model;
  VEC(AroundLaunch) around = {0};
  AroundLaunch here = {.graph = list->graph, .outer = -1, .trips = 1};
  for (int i = 0; i < list->instructions.n; i++) {
    const Instruction *in = &list->instructions.data[i];
    if (in->kind == INSTRUCTION_end) here = around.data[--around.n];
    if (in->kind == INSTRUCTION_loop) {
      vec_push(l->arena, &around, here);
      here = enter(here, in);
    }
    if (in->kind != INSTRUCTION_run) continue;
    LaunchCost cost = cost_launch(model, here.graph, in->node);
    add_launch(l, here.outer < 0 ? in->node : here.outer,
               (cost.launch + cost.time) * here.trips);
  }
}

static Bytes value_bytes(const Node *node) {
  Bytes bytes = 0;
  for (int r = 0; r < node->n_results; r++)
    bytes +=
        type_elements(node->types[r]) * dtype_size_bytes(node->types[r]->dtype);
  return bytes;
}

/* Values of the forward pass that another pass reads. */
static void list_saved(TimesLister *l) {
  const Graph *graph = l->graph;
  bool *is_saved = arena_alloc(l->arena, (size_t)graph->nodes.n + 1);
  memset(is_saved, 0, (size_t)graph->nodes.n + 1);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs && node->phase != PHASE_forward; i++)
      is_saved[node->inputs[i].node] = true;
  }
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (!is_saved[id] || node->op == OP_input || node->phase != PHASE_forward)
      continue;
    SavedValue value = {arena_strdup(l->arena, priced_path(node)),
                        value_bytes(node)};
    vec_push(l->arena, &l->out->saved, value);
  }
}

bool planning_node_times(Planning *planning, const Pins *pins, int64_t rank,
                         NodeTimes *out) {
  Arena *arena = planning->tool->arena;
  PriceRequest request = planning->request;
  request.first_rank += rank;
  TrialPlan plan = {.pins = pins, .is_training_only = true};
  Trial trial;
  *out = (NodeTimes){0};
  bool is_priced = driver_try(&planning->loaded, planning->tool->memory, &plan,
                              &request, &trial);
  if (is_priced) {
    const ProgramStage *stage = &trial.priced.step->stages.data[0];
    TimesLister lister = {arena, &trial, stage->graph, map_create(arena), out};
    list_launches(&lister, stage);
    list_saved(&lister);
    out->persistent = trial.priced.programs[0].program->persistent.bytes;
    out->peak = trial.priced.peak;
  }
  driver_end_trial(&trial);
  return is_priced;
}
