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
 * those of its update the newest one.  Where a stage has replicas, the update
 * runs once for the batches of a group, with the mean of what their passes make
 * for it.  It knows the numbers of stages, replicas and batches, and no list,
 * slot, lag or message.  Everything that a stage puts out is compared after
 * each of its updates, and so is every parameter.
 */
#include "verify/verify_periods.h"

#include "ir/plan/plan.h"

/* ---- the schedule ---- */

bool verify_has_periods(const Compilation *c) {
  return c->plan && plan_has_versions(c->module->arena, c->plan);
}

/* The last group of replicas is not complete. */
int verify_period_batches(const EntryPoint *entry) {
  int units = (2 * entry->lead + 3) * entry->n_units;
  int n = units / entry->batch_units;
  return entry->n_units > entry->batch_units ? n - 1 : n;
}

static bool has_two(const VerifyRun *v) {
  return plan_spelling(v->arena, v->c->plan->schedule).schedule->has_two;
}

/* The batches that share an update, one for each rank of a stage; under 2BW
 * these share out the micro-batches of one. */
static int replicas_of(const VerifyRun *v, int stage) {
  return has_two(v) ? 1 : v->c->plan->stages.data[stage].n_ranks;
}

/* Forward passes that a replica runs ahead. */
static int ahead_of(const VerifyRun *v, const VerifyStep *step, int stage) {
  int later = 0;
  for (int s = stage; s < step->played.graphs.n; s++)
    later += replicas_of(v, s);
  return (later - 1) / replicas_of(v, stage);
}

/* The version that a batch reads in a stage, as the number of updates before
 * it: a batch runs through the stages that follow before its own update. */
static int version_of(const VerifyRun *v, const VerifyStep *step, int stage,
                      int batch) {
  PipelineSpelling spelling = plan_spelling(v->arena, v->c->plan->schedule);
  int of = spelling.is_vertical ? 0 : stage;
  int behind = has_two(v) ? 1 : ahead_of(v, step, of);
  int updates = batch / replicas_of(v, of) - behind;
  return updates > 0 ? updates * (replicas_of(v, of) / replicas_of(v, stage))
                     : 0;
}

/* The batches that share an update with one: those from `first` to `last`. */
typedef struct BatchGroup {
  int first, last;
} BatchGroup;

static BatchGroup group_of(const VerifyRun *v, const VerifyStep *step,
                           int stage, int batch) {
  int n = replicas_of(v, stage), first = batch - batch % n;
  int last = first + n - 1;
  return (BatchGroup){first,
                      last < step->n_batches ? last : step->n_batches - 1};
}

static int find_in(const Graph *graph, Role role, Name path) {
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == role &&
        graph->inputs.data[i].path == path)
      return i;
  return -1;
}

/* The stage of a persistent buffer of the reference. */
static int stage_of(const VerifyStep *step, const GraphInput *input) {
  for (int g = 0; g < step->played.graphs.n; g++)
    if (find_in(step->played.graphs.data[g], input->role, input->path) >= 0)
      return g;
  return 0;
}

/* The stage that alone puts out such a value; -1: several do. */
static int stage_of_output(const VerifyStep *step, const GraphOutput *output) {
  int stage = -1, n = 0;
  for (int g = 0; g < step->played.graphs.n; g++)
    if (graph_find_output(step->played.graphs.data[g], output->role,
                          output->path)) {
      stage = g;
      n++;
    }
  return n == 1 ? stage : -1;
}

/* It is of a batch, else of an update. */
static bool is_of_batch(Role role) {
  return role == ROLE_loss || role == ROLE_metric || role == ROLE_result;
}

/* ---- the reference ---- */

static int index_of_input(const Graph *graph, Value value) {
  const Node *node = graph_node(graph, value);
  return node->op == OP_input ? (int)node_int(node, ATTR_index, 0) : -1;
}

static Tensor copy_of(const VerifyRun *v, Arena *arena, const Tensor *tensor) {
  Tensor copy = numbers_create(&v->numbers, arena, tensor->type);
  numbers_copy(&v->numbers, tensor->type->dtype, tensor_array(&copy),
               tensor_array(tensor), type_elements(tensor->type));
  return copy;
}

/* The batches that the reference has run. */
typedef struct History {
  VerifyRun *v;
  const VerifyStep *step;
  const Graph *graph;
  Tensor **inputs;  /* by batch: before its updates, the newest of all */
  Tensor ***passes; /* by batch and node: what its passes have made */
  bool *is_kept;    /* by node: an update, or an output, reads it */
} History;

static bool is_update(const Graph *graph, int id) {
  return graph->nodes.data[id]->phase == PHASE_update;
}

static void find_kept(History *h, Arena *arena) {
  const Graph *graph = h->graph;
  h->is_kept = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs && is_update(graph, id); i++)
      h->is_kept[node->inputs[i].node] = true;
  }
  for (int i = 0; i < graph->outputs.n; i++)
    h->is_kept[graph->outputs.data[i].value.node] = true;
}

static void interpret(const History *h, Arena *arena, int id, Tensor **results,
                      Tensor *inputs) {
  const Node *node = h->graph->nodes.data[id];
  results[id] = ARENA_ARRAY(arena, Tensor, node->n_results);
  for (int r = 0; r < node->n_results; r++)
    results[id][r] = numbers_create(&h->v->numbers, arena, node->types[r]);
  interp_node(h->graph, node, &h->v->numbers, NULL, inputs, results[id], arena);
}

/* Runs the passes of a batch, and keeps what is read later. */
static void run_passes(History *h, int batch, const Tensor *inputs) {
  const Graph *graph = h->graph;
  Arena *scratch = arena_beside(h->v->arena);
  Tensor **results = ARENA_ARRAY(scratch, Tensor *, graph->nodes.n);
  h->passes[batch] = ARENA_ARRAY(h->v->arena, Tensor *, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    int input = index_of_input(graph, (Value){id, 0});
    if (input >= 0) {
      results[id] = arena_copy(scratch, &inputs[input], sizeof *inputs);
      continue;
    }
    if (is_update(graph, id)) continue;
    Tensor *operands = ARENA_ARRAY(scratch, Tensor, node->n_inputs);
    for (int i = 0; i < node->n_inputs; i++)
      operands[i] = results[node->inputs[i].node][node->inputs[i].result];
    interpret(h, scratch, id, results, operands);
    if (!h->is_kept[id]) continue;
    Tensor *kept = ARENA_ARRAY(h->v->arena, Tensor, node->n_results);
    for (int r = 0; r < node->n_results; r++)
      kept[r] = copy_of(h->v, h->v->arena, &results[id][r]);
    h->passes[batch][id] = kept;
  }
  arena_destroy(scratch);
}

/* ---- updates ---- */

/* By node: an update of a state computes it, from the state itself. */
static bool *find_of_states(const Graph *graph, Arena *arena) {
  bool *is_of_state = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs && is_update(graph, id); i++) {
      int input = index_of_input(graph, node->inputs[i]);
      is_of_state[id] |=
          is_of_state[node->inputs[i].node] ||
          (input >= 0 && graph->inputs.data[input].role == ROLE_state);
    }
  }
  return is_of_state;
}

/* An update of a stage, with the batches that share it. */
typedef struct Update {
  const History *h;
  Arena *arena;
  BatchGroup group;
  int n_replicas;
  const bool *is_of_state;
  Tensor **results;
} Update;

static bool is_float(DType dtype) {
  return dtype_class(dtype) == CLASS_FLOAT;
}

static Tensor divided(const Update *u, Tensor sum, Value of, double by) {
  const Numbers *numbers = &u->h->v->numbers;
  const Type *type = sum.type;
  const Value operands[] = {of, of};
  Node node = {.op = OP_div,
               .n_inputs = 2,
               .inputs = operands,
               .n_results = 1,
               .types = &type};
  Tensor inputs[] = {
      sum,
      numbers_create(numbers, u->arena, type_create(u->arena, type->dtype, 0))};
  Tensor result = numbers_create(numbers, u->arena, type);
  numbers_fill(numbers, type->dtype, tensor_array(&inputs[1]), 1, by);
  interp_node(u->h->graph, &node, numbers, NULL, inputs, &result, u->arena);
  return result;
}

/* The mean over a group: of gradients by the number of replicas, and of states
 * by that of the batches that are there. */
static Tensor mean_of(const Update *u, Value value, bool is_of_state) {
  const Tensor *first = &u->h->passes[u->group.first][value.node][value.result];
  DType dtype = first->type->dtype;
  int n_batches = u->group.last - u->group.first + 1;
  if (u->n_replicas == 1 || !is_float(dtype)) return *first;
  Tensor sum = copy_of(u->h->v, u->arena, first);
  for (int b = u->group.first + 1; b <= u->group.last; b++) {
    const Tensor *other = &u->h->passes[b][value.node][value.result];
    numbers_reduce(&u->h->v->numbers, dtype, REDUCE_sum, tensor_array(&sum),
                   tensor_array(other), type_elements(sum.type));
  }
  return divided(u, sum, value, is_of_state ? n_batches : u->n_replicas);
}

/* An operand of the update: the newest parameters, and the step of the
 * first batch. */
static Tensor operand_of(const Update *u, int reader, Value from) {
  const History *h = u->h;
  int input = index_of_input(h->graph, from);
  if (input >= 0) {
    bool is_of_step = role_is_of_step(h->graph->inputs.data[input].role);
    return h->inputs[is_of_step ? u->group.first : u->group.last][input];
  }
  if (is_update(h->graph, from.node)) return u->results[from.node][from.result];
  return mean_of(u, from, u->is_of_state[reader]);
}

/* The outputs of the update of a stage; -1: those of no stage alone. */
static void run_update(const History *h, int stage, BatchGroup group,
                       Tensor *out_outputs) {
  const Graph *graph = h->graph;
  Arena *scratch = arena_beside(h->v->arena);
  Update u = {.h = h,
              .arena = scratch,
              .group = group,
              .n_replicas = stage < 0 ? 1 : replicas_of(h->v, stage),
              .is_of_state = find_of_states(graph, scratch),
              .results = ARENA_ARRAY(scratch, Tensor *, graph->nodes.n)};
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (!is_update(graph, id) || node->op == OP_input) continue;
    Tensor *operands = ARENA_ARRAY(scratch, Tensor, node->n_inputs);
    for (int i = 0; i < node->n_inputs; i++)
      operands[i] = operand_of(&u, id, node->inputs[i]);
    interpret(h, scratch, id, u.results, operands);
  }
  for (int k = 0; k < graph->outputs.n; k++) {
    const GraphOutput *output = &graph->outputs.data[k];
    Value value = output->value;
    if (is_of_batch(output->role) || stage_of_output(h->step, output) != stage)
      continue;
    bool is_made =
        is_update(graph, value.node) && index_of_input(graph, value) < 0;
    Tensor made = is_made ? u.results[value.node][value.result]
                          : operand_of(&u, value.node, value);
    out_outputs[k] = copy_of(h->v, h->v->arena, &made);
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

/* Without an update in a batch a stage keeps what it has; so do values of
 * updates. */
static void keep_values(const History *h, int batch, const Tensor *before,
                        Tensor *out_outputs) {
  const Graph *graph = h->graph;
  for (int k = 0; k < graph->outputs.n; k++) {
    const GraphOutput *output = &graph->outputs.data[k];
    Value value = output->value;
    int input = find_in(graph, output->role, output->path);
    if (input >= 0)
      out_outputs[k] = h->inputs[batch][input];
    else if (h->passes[batch][value.node])
      out_outputs[k] = h->passes[batch][value.node][value.result];
    else if (before)
      out_outputs[k] = before[k];
  }
}

static void run_batch(History *h, int batch, const Tensor *before,
                      Tensor *out_outputs) {
  const Graph *graph = h->graph;
  Tensor *passes = ARENA_ARRAY(h->v->arena, Tensor, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    bool has_versions = input->role == ROLE_param &&
                        graph_find_output(graph, ROLE_param, input->path);
    int stage = stage_of(h->step, input), of = batch;
    if (has_versions)
      of = version_of(h->v, h->step, stage, batch) * replicas_of(h->v, stage);
    passes[i] = h->inputs[of][i];
  }
  run_passes(h, batch, passes);
  keep_values(h, batch, before, out_outputs);
  run_update(h, -1, (BatchGroup){batch, batch}, out_outputs);
  for (int s = 0; s < h->step->played.graphs.n; s++) {
    BatchGroup group = group_of(h->v, h->step, s, batch);
    if (group.last == batch) run_update(h, s, group, out_outputs);
  }
}

Tensor *verify_period_reference(VerifyRun *v, const VerifyStep *step,
                                int number) {
  const Graph *graph = step->reference;
  int n = graph->outputs.n;
  Tensor *outputs = ARENA_ARRAY(v->arena, Tensor, n * step->n_batches);
  History h = {.v = v,
               .step = step,
               .graph = graph,
               .inputs = ARENA_ARRAY(v->arena, Tensor *, step->n_batches),
               .passes = ARENA_ARRAY(v->arena, Tensor **, step->n_batches)};
  find_kept(&h, v->arena);
  for (int b = 0; b < step->n_batches; b++) {
    Tensor *own = &outputs[b * n];
    const Tensor *before = b > 0 ? own - n : NULL;
    h.inputs[b] = inputs_of_batch(v, step, number + b,
                                  b > 0 ? h.inputs[b - 1] : NULL, before);
    run_batch(&h, b, before, own);
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

/* That of an update is the first of its group. */
static int batch_of(const EntryPoint *entry, const ProgramCall *call) {
  bool is_of_group = call->when != PERIOD_unit;
  int unit = call->unit - (is_of_group ? call->replica : 0);
  return unit / entry->batch_units;
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
          call->unit % entry->batch_units >=
              entry->batch_units - entry->stages.data[call->stage].n_ranks);
}

/* The outputs of the reference that those of a stage must equal: those of
 * the own batch, of its group, and of the first batch of this, whose step the
 * update has.  NULL: the replica has no batch. */
static const Tensor *wanted_of(const PeriodPlay *play, int stage, int batch,
                               int own, const Tensor *of_all,
                               const GraphOutput *output, int k) {
  int n = play->step->reference->outputs.n;
  BatchGroup group = group_of(play->v, play->step, stage, batch);
  int at = is_of_batch(output->role)                      ? own
           : stage_of_output(play->step, output) == stage ? group.last
                                                          : group.first;
  return at < play->step->n_batches ? &of_all[at * n + k] : NULL;
}

static Tensor *gather_wanted(const PeriodPlay *play, int stage, int batch,
                             int own, const Tensor *of_all, Arena *arena) {
  const Graph *reference = play->step->reference;
  Tensor *gathered = ARENA_ARRAY(arena, Tensor, reference->outputs.n);
  for (int k = 0; k < reference->outputs.n; k++) {
    const Tensor *found = wanted_of(play, stage, batch, own, of_all,
                                    &reference->outputs.data[k], k);
    if (found) gathered[k] = *found;
  }
  return gathered;
}

static void after_segment(void *user, int number, const ProgramCall *call) {
  PeriodPlay *play = user;
  PlayClass *class = &play->classes[number];
  const EntryPoint *entry = &class->of->entry;
  if (!ends_batch(entry, call)) return;
  Arena *scratch = arena_beside(play->v->arena);
  int stage = entry->stages.data[call->stage].number;
  int batch = batch_of(entry, call), own = call->unit / entry->batch_units;
  class->call = call;
  verify_compare_stage(
      play->v, class, play->step, call->stage,
      gather_wanted(play, stage, batch, own, play->wanted, scratch),
      play->shaken
          ? gather_wanted(play, stage, batch, own, play->shaken, scratch)
          : NULL);
  class->call = NULL;
  arena_destroy(scratch);
}

/* The newest version is the first of what follows. */
static void keep_newest(const PeriodPlay *play, PlayClass *class,
                        Arena *scratch) {
  const ProgramStage *stage = &class->of->entry.stages.data[0];
  int n = replicas_of(play->v, stage->number);
  int n_updates = (play->step->n_batches + n - 1) / n;
  int newest = n_updates % stage->n_versions;
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
