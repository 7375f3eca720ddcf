/*
 * verify_periods.c -- plays stages that keep versions of their parameters over
 * several batches, from filling to draining, and a reference that keeps the
 * history of all parameters itself.
 *
 *     batch              0  1  2  3  4      three stages under pipedream
 *     stage 0 reads      0  0  0  1  2      updates behind the parameters
 *     stage 1 reads      0  0  1  2  3
 *     stage 2 reads      0  1  2  3  4
 *     update made of     0  1  2  3  4      of that version, and the gradient
 *
 * The reference is the graph of one rank.  The nodes of its passes read of each
 * parameter the version that the definition of the schedule gives its stage,
 * those of its update the newest one.  It knows the numbers of stages and
 * batches, and no list, slot, lag or message.  Everything that a stage puts out
 * is compared after each of its updates, and so is every parameter.
 */
#include "verify/verify_periods.h"

#include "ir/plan/plan.h"

/* ---- the schedule ---- */

bool verify_has_periods(const Compilation *c) {
  if (!c->plan || !plan_has_versions(c->module->arena, c->plan)) return false;
  for (int s = 0; s < c->plan->stages.n; s++)
    if (c->plan->stages.data[s].n_ranks > 1) return false;
  return true;
}

int verify_period_batches(const EntryPoint *entry) {
  return 2 * entry->lead + 3;
}

/* The version that a batch reads in a stage, as the number of updates before
 * it: a batch runs through the stages that follow before its own update. */
static int version_of(const VerifyRun *v, const VerifyStep *step, int stage,
                      int batch) {
  PipelineSpelling spelling = plan_spelling(v->arena, v->c->plan->schedule);
  int n = step->played.graphs.n, behind = n - 1 - stage;
  if (spelling.is_vertical) behind = n - 1;
  if (spelling.schedule->has_two) behind = 1;
  return batch > behind ? batch - behind : 0;
}

/* The stage of a persistent buffer of the reference. */
static int stage_of(const VerifyStep *step, const GraphInput *input) {
  for (int g = 0; g < step->played.graphs.n; g++)
    if (graph_find_input(step->played.graphs.data[g], input->role, input->path))
      return g;
  return 0;
}

/* ---- the reference ---- */

static int index_of_input(const Graph *graph, Value value) {
  const Node *node = graph_node(graph, value);
  return node->op == OP_input ? (int)node_int(node, ATTR_index, 0) : -1;
}

/* Interprets a graph whose passes read other inputs than its update. */
static void run_mixed(const VerifyRun *v, const Graph *graph, Arena *arena,
                      const Tensor *passes, const Tensor *newest,
                      Tensor **results) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    results[id] = ARENA_ARRAY(arena, Tensor, node->n_results);
    if (node->op == OP_input) {
      results[id][0] = passes[index_of_input(graph, (Value){id, 0})];
      continue;
    }
    Tensor *inputs = ARENA_ARRAY(arena, Tensor, node->n_inputs);
    for (int i = 0; i < node->n_inputs; i++) {
      Value from = node->inputs[i];
      int index = index_of_input(graph, from);
      inputs[i] = index >= 0 && node->phase == PHASE_update
                      ? newest[index]
                      : results[from.node][from.result];
    }
    for (int r = 0; r < node->n_results; r++)
      results[id][r] = numbers_create(&v->numbers, arena, node->types[r]);
    interp_node(graph, node, &v->numbers, NULL, inputs, results[id], arena);
  }
}

static Tensor copy_of(const VerifyRun *v, const Tensor *tensor) {
  Tensor copy = numbers_create(&v->numbers, v->arena, tensor->type);
  numbers_copy(&v->numbers, tensor->type->dtype, tensor_array(&copy),
               tensor_array(tensor), type_elements(tensor->type));
  return copy;
}

/* The outputs of a batch. */
static void run_batch(const VerifyRun *v, const Graph *graph,
                      const Tensor *passes, const Tensor *newest,
                      Tensor *out_outputs) {
  Arena *scratch = arena_beside(v->arena);
  Tensor **results = ARENA_ARRAY(scratch, Tensor *, graph->nodes.n);
  run_mixed(v, graph, scratch, passes, newest, results);
  for (int i = 0; i < graph->outputs.n; i++) {
    Value value = graph->outputs.data[i].value;
    int index = index_of_input(graph, value);
    out_outputs[i] = index >= 0
                         ? newest[index]
                         : copy_of(v, &results[value.node][value.result]);
  }
  arena_destroy(scratch);
}

/* The inputs of a batch: numbers of its own, and what the one before left. */
static Tensor *inputs_of_batch(VerifyRun *v, const VerifyStep *step, int number,
                               const Tensor *before,
                               const Tensor *before_outputs) {
  const Graph *graph = step->reference;
  Tensor *inputs = ARENA_ARRAY(v->arena, Tensor, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (!before || role_is_of_step(input->role)) {
      inputs[i] = verify_reference_input(v, step, number, input);
      continue;
    }
    inputs[i] = before[i];
    for (int k = 0; k < graph->outputs.n; k++)
      if (graph->outputs.data[k].role == input->role &&
          graph->outputs.data[k].path == input->path)
        inputs[i] = before_outputs[k];
  }
  return inputs;
}

Tensor *verify_period_reference(VerifyRun *v, const VerifyStep *step,
                                int number) {
  const Graph *graph = step->reference;
  int n = graph->outputs.n;
  Tensor *outputs = ARENA_ARRAY(v->arena, Tensor, n * step->n_batches);
  Tensor **versions = ARENA_ARRAY(v->arena, Tensor *, step->n_batches);
  for (int b = 0; b < step->n_batches; b++) {
    Tensor *own = &outputs[b * n];
    versions[b] = inputs_of_batch(
        v, step, number + b, b ? versions[b - 1] : NULL, b ? own - n : NULL);
    Tensor *passes = ARENA_ARRAY(v->arena, Tensor, graph->inputs.n);
    for (int i = 0; i < graph->inputs.n; i++) {
      const GraphInput *input = &graph->inputs.data[i];
      bool has_versions = input->role == ROLE_param &&
                          graph_find_output(graph, ROLE_param, input->path);
      int of = has_versions ? version_of(v, step, stage_of(step, input), b) : b;
      passes[i] = versions[of][i];
    }
    run_batch(v, graph, passes, versions[b], own);
  }
  return outputs;
}

/* ---- playing ---- */

typedef struct PeriodPlay {
  VerifyRun *v;
  PlayClass *classes;
  const VerifyStep *step;
  int number; /* of the first batch */
  const Tensor *wanted, *shaken;
  int *written; /* by class: the batch whose numbers its ranks have, plus 1 */
} PeriodPlay;

static int batch_of(const EntryPoint *entry, const ProgramCall *call) {
  return call->unit / entry->batch_units;
}

/* The data of a batch is there from the call on that begins it, its step while
 * a call of it runs. */
static void before_segment(void *user, int number, const ProgramCall *call) {
  PeriodPlay *play = user;
  PlayClass *class = &play->classes[number];
  const EntryPoint *entry = &class->of->entry;
  const Graph *graph = entry->stages.data[call->stage].graph;
  int batch = batch_of(entry, call);
  bool is_other = play->written[number] != batch + 1;
  play->written[number] = batch + 1;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    bool is_data = input->role == ROLE_data;
    if (!role_is_of_step(input->role) || !(is_data ? call->begins : is_other))
      continue;
    Tensor made = verify_played_input(play->v, play->step, play->number + batch,
                                      graph, input);
    player_fill(class->player, i, &made);
  }
}

/* The last segment of a batch: the update, where the stage has one. */
static bool ends_batch(const EntryPoint *entry, const ProgramCall *call) {
  const ProgramSegments *segments = &entry->stages.data[call->stage].segments;
  return call->segment == segments->n - 1 &&
         (segments->data[call->segment].kind == TOKEN_update ||
          call->unit % entry->batch_units == entry->batch_units - 1);
}

static void after_segment(void *user, int number, const ProgramCall *call) {
  PeriodPlay *play = user;
  PlayClass *class = &play->classes[number];
  const EntryPoint *entry = &class->of->entry;
  if (!ends_batch(entry, call)) return;
  int batch = batch_of(entry, call), n = play->step->reference->outputs.n;
  class->call = call;
  verify_compare_stage(play->v, class, play->step, call->stage,
                       &play->wanted[batch * n],
                       play->shaken ? &play->shaken[batch * n] : NULL);
  class->call = NULL;
}

/* The newest version is the first of what follows. */
static void keep_newest(const PeriodPlay *play, PlayClass *class,
                        Arena *scratch) {
  const ProgramStage *stage = &class->of->entry.stages.data[0];
  int newest = play->step->n_batches % stage->n_versions;
  player_select(class->player, 0);
  for (int i = 0; i < stage->graph->inputs.n && newest > 0; i++) {
    const GraphInput *input = &stage->graph->inputs.data[i];
    if (input->role == ROLE_param &&
        graph_find_output(stage->graph, ROLE_param, input->path))
      player_keep_version(class->player, i, newest, scratch);
  }
}

void verify_play_periods(VerifyRun *v, PlayClass *classes,
                         Player *const *players, const VerifyStep *step,
                         int number, const Tensor *wanted,
                         const Tensor *shaken) {
  int n = v->steps->n_classes;
  Arena *scratch = arena_beside(v->arena);
  PeriodPlay play = {.v = v,
                     .classes = classes,
                     .step = step,
                     .number = number,
                     .wanted = wanted,
                     .shaken = shaken,
                     .written = ARENA_ARRAY(scratch, int, n)};
  PlayHooks hooks = {before_segment, after_segment, &play};
  players_run_watched(players, n, &hooks);
  for (int c = 0; c < n; c++) keep_newest(&play, &classes[c], scratch);
  arena_destroy(scratch);
}
