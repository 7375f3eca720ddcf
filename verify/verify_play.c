/*
 * verify_play.c -- plays what codegen gets, step by step, beside a reference
 * that shares as little with it as possible, in one number system.
 *
 * Every output of every rank is compared: loss, metrics, gradients, norm,
 * parameters, optimizer state and all other persistent buffers.  Before the
 * last step the run is saved and loaded: what persists is collected from the
 * ranks as logical tensors, all arenas are forgotten, and each rank gets its
 * shards back.
 */
#include "verify/verify_servers.h"

#include <math.h>
#include <string.h>

#define F64_LIMIT VERIFY_F64_LIMIT
#define SHAKEN_BY 0x1p-50 /* of a parameter: four units in the last place */
#define SHAKEN_FACTOR                                                          \
  32 /* another order of a sum moves more than one such change does */
#define LEAST_MAGNITUDE 1e-3 /* as player_compare has it */

enum { LIKELY_CLASSES = 16 };

/* ---- reference ---- */

static Tensor *find_stored(const Stored *stored, Role role, Name path) {
  const Map *map = stored->by_path[role];
  return map ? map_get(map, path) : NULL;
}

static void put_stored(Arena *arena, Stored *stored, Role role, Name path,
                       Tensor tensor) {
  Map **map = &stored->by_path[role];
  if (!*map) *map = map_create(arena);
  map_put(*map, path, arena_copy(arena, &tensor, sizeof tensor));
}

/* The input or output of the stage at hand of a class. */
static const Graph *selected_graph(const PlayClass *class, int stage) {
  if (class->call)
    player_enter(class->player, class->call);
  else
    player_select(class->player, stage);
  return class->of->entry.stages.data[stage].graph;
}

static void shake(Name path, Tensor *tensor) {
  uint64_t key = hash_bytes(path, strlen(path), 0);
  if (dtype_class(tensor->type->dtype) != CLASS_FLOAT) return;
  for (int64_t i = 0; i < type_elements(tensor->type); i++) {
    uint64_t bits = hash_bytes(&i, sizeof i, key);
    tensor->data[i] *= bits & 1 ? 1 + SHAKEN_BY : 1 - SHAKEN_BY;
  }
}

/* The number that this input has in the step, the same for both programs: one
 * that is stored, or a new one. */
static Tensor input_of_step(VerifyRun *v, const Stored *stored,
                            const VerifyStep *step, int number,
                            const GraphInput *input, const Type *type) {
  Tensor *known = find_stored(stored, input->role, input->path);
  if (known) return *known;
  VerifyInputs inputs = {.model = v->c->model,
                         .numbers = &v->numbers,
                         .resizing = v->steps->resizing,
                         .step = number,
                         .shards = step->batch_shards};
  Tensor made = verify_input(&inputs, input, type, v->arena);
  if (role_is_of_step(input->role)) return made;
  if (v->is_shaken && input->role == ROLE_param) shake(input->path, &made);
  put_stored(v->arena, &v->stored, input->role, input->path, made);
  put_stored(v->arena, &v->initial, input->role, input->path, made);
  return made;
}

Tensor verify_reference_input(VerifyRun *v, const VerifyStep *step, int number,
                              const GraphInput *input) {
  return input_of_step(v, &v->stored, step, number, input,
                       graph_type(step->reference, input->value));
}

Tensor verify_played_input(VerifyRun *v, const VerifyStep *step, int number,
                           const Graph *graph, const GraphInput *input) {
  return input_of_step(v, &v->initial, step, number, input,
                       graph_type(graph, input->value));
}

/* The reference of the gradients is that of the first training step. */
static Tensor *run_reference(VerifyRun *v, const VerifyStep *step, int number) {
  if (step->n_batches > 0) return verify_period_reference(v, step, number);
  if (number == 0 && v->first_outputs) return v->first_outputs;
  const Graph *graph = step->reference;
  Tensor *inputs = ARENA_ARRAY(v->arena, Tensor, graph->inputs.n);
  Tensor *outputs = ARENA_ARRAY(v->arena, Tensor, graph->outputs.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    inputs[i] = input_of_step(v, &v->stored, step, number, input,
                              graph_type(graph, input->value));
  }
  interp_run_in(graph, &v->numbers, v->arena, inputs, outputs, NULL);
  if (number == 0) v->first_outputs = outputs;
  return outputs;
}

/* The next step reads the buffers that this one has replaced. */
static void keep_outputs(VerifyRun *v, const Graph *graph,
                         const Tensor *outputs) {
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    if (graph_find_input(graph, output->role, output->path))
      put_stored(v->arena, &v->stored, output->role, output->path, outputs[i]);
  }
}

/* ---- comparing ---- */

/* The limit of an output: where terms cancel, as in the gradient of the bias of
 * a key, which is 0 but for rounding, an optimizer that divides by the size of
 * a gradient makes of this rounding what it likes. */
static double f64_limit(const VerifyRun *v, const Tensor *wanted,
                        const Tensor *shaken) {
  DType dtype = wanted->type->dtype;
  int64_t n = type_elements(wanted->type);
  if (!shaken || dtype_class(dtype) != CLASS_FLOAT) return F64_LIMIT;
  const void *own = tensor_array(wanted);
  double largest = numbers_largest(&v->numbers, dtype, own, n, LEAST_MAGNITUDE);
  double change =
      numbers_compare(&v->numbers, dtype, own, tensor_array(shaken), n, largest)
          .error;
  return isfinite(change) && SHAKEN_FACTOR * change > F64_LIMIT
             ? SHAKEN_FACTOR * change
             : F64_LIMIT;
}

static void note_limit(VerifyReport *report, const GraphOutput *output,
                       double limit) {
  if (limit <= F64_LIMIT || limit <= report->widest_limit) return;
  report->widest_limit = limit;
  report->widest_path = output->path;
}

/* The output is of the stage that is selected. */
static void compare_output(VerifyRun *v, const PlayClass *class,
                           const VerifyStep *step, int stage, int index,
                           const Tensor *wanted, const Tensor *shaken) {
  VerifyReport *report = &v->report;
  const ProgramStage *of = &class->of->entry.stages.data[stage];
  const GraphOutput *output = &of->graph->outputs.data[index];
  bool is_exact = v->numbers.number == INTERP_exact;
  double limit = is_exact ? 0 : f64_limit(v, wanted, shaken);
  note_limit(report, output, limit);
  PlayDifference difference =
      player_compare(class->player, index, wanted, limit);
  report->n_compared++;
  if (!is_exact && difference.error > report->max_rel_error)
    report->max_rel_error = difference.error;
  if (!is_exact && output->role == ROLE_loss &&
      difference.error > report->loss_error)
    report->loss_error = difference.error;
  if (difference.error <= limit) return;
  *(is_exact ? &report->n_exact_different : &report->n_f64_different) += 1;
  if (report->equal == ANSWER_no) return;
  report->equal = ANSWER_no;
  report->numbers = is_exact ? "exact mode" : "f64";
  report->step = step->name;
  report->kind = role_name(output->role);
  report->path = output->path;
  report->rank = v->steps->first_rank[class->index] + difference.rank;
  bool has_stages = step->played.graphs.n > 1 && !step->servers;
  report->stage = has_stages ? of->number : -1;
  report->element = difference.element;
}

static void note_not_compared(VerifyRun *v, const char *text) {
  VerifyReport *report = &v->report;
  if (!report->not_compared) report->not_compared = text;
  if (report->equal == ANSWER_yes) report->equal = ANSWER_not_checked;
}

static void note_output(VerifyRun *v, const VerifyStep *step,
                        const GraphOutput *output, const char *why) {
  note_not_compared(v, arena_printf(v->arena, "%s '%s' of %s %s",
                                    role_name(output->role), output->path,
                                    step->name, why));
}

static bool is_finite(const VerifyRun *v, const Tensor *tensor) {
  DType dtype = tensor->type->dtype;
  if (dtype_class(dtype) != CLASS_FLOAT ||
      numbers_are_exact(&v->numbers, dtype))
    return true;
  for (int64_t i = 0; i < type_elements(tensor->type); i++)
    if (!isfinite(tensor->data[i])) return false;
  return true;
}

static int find_output(const Graph *graph, const GraphOutput *like) {
  int i = 0;
  while (i < graph->outputs.n && (graph->outputs.data[i].role != like->role ||
                                  graph->outputs.data[i].path != like->path))
    i++;
  return i;
}

/* The step puts out what its reference does: all but gradients, or those and
 * what no update changes.  States, which keep their values in an update that is
 * not finite, are compared in the training steps.  The norms of servers are
 * those of parts. */
static bool is_compared(const VerifyStep *step, Role role) {
  if (role == ROLE_send || role == ROLE_push) return false;
  if (role == ROLE_norm && step->servers) return false;
  if (role == ROLE_grad) return step->has_gradients;
  return !step->has_gradients || role == ROLE_loss || role == ROLE_metric;
}

/* Returns whether a stage of the step has an output like this one. */
static bool is_played(const VerifyStep *step, const GraphOutput *like) {
  for (int g = 0; g < step->played.graphs.n; g++) {
    const Graph *graph = step->played.graphs.data[g];
    if (find_output(graph, like) < graph->outputs.n) return true;
  }
  return false;
}

/* Compares what a server has. */
static void compare_rows(VerifyRun *v, const PlayClass *class,
                         const VerifyStep *step, int index,
                         const Tensor *wanted, const Tensor *shaken) {
  Arena *scratch = arena_beside(v->arena);
  Tensor own = verify_rows(v, class, index, wanted, scratch), own_shaken;
  if (shaken) own_shaken = verify_rows(v, class, index, shaken, scratch);
  compare_output(v, class, step, 0, index, &own, shaken ? &own_shaken : NULL);
  arena_destroy(scratch);
}

/* Numbers that are not finite are equal whatever they should be. */
void verify_compare_stage(VerifyRun *v, const PlayClass *class,
                          const VerifyStep *step, int stage,
                          const Tensor *wanted, const Tensor *shaken) {
  const Graph *graph = selected_graph(class, stage);
  const Graph *reference = step->reference;
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    if (!is_compared(step, output->role)) continue;
    int k = find_output(reference, output);
    if (k == reference->outputs.n) {
      note_output(v, step, output, "is not in the reference");
      continue;
    }
    if (!wanted[k].type) continue; /* of a batch that is not there */
    if (!is_finite(v, &wanted[k]))
      note_output(v, step, output, "is not finite on one rank");
    if (step->servers && class->index > 0)
      compare_rows(v, class, step, i, &wanted[k], shaken ? &shaken[k] : NULL);
    else
      compare_output(v, class, step, stage, i, &wanted[k],
                     shaken ? &shaken[k] : NULL);
  }
}

static void compare_step(VerifyRun *v, PlayClass *classes,
                         const VerifyStep *step, const Tensor *wanted,
                         const Tensor *shaken) {
  const Graph *reference = step->reference;
  for (int c = 0; c < v->steps->n_classes; c++)
    for (int s = 0; s < player_stages(classes[c].player); s++)
      if (step->n_batches == 0)
        verify_compare_stage(v, &classes[c], step, s, wanted, shaken);
  for (int k = 0; k < reference->outputs.n; k++)
    if (is_compared(step, reference->outputs.data[k].role) &&
        !is_played(step, &reference->outputs.data[k]))
      note_output(v, step, &reference->outputs.data[k],
                  "is not in the program");
}

static void note_memory(VerifyRun *v, const Player *player, int64_t arena_bytes,
                        int64_t host_bytes) {
  VerifyReport *report = &v->report;
  const char *fault = player_memory_fault(player);
  const char *messages = player_message_fault(player);
  if (!fault && player_touched_bytes(player) != arena_bytes)
    fault = arena_printf(
        v->arena, "the peak is %lld bytes, but the programs touch %lld",
        (long long)arena_bytes, (long long)player_touched_bytes(player));
  if (!fault && player_touched_host_bytes(player) != host_bytes)
    fault = arena_printf(
        v->arena,
        "the peak in host memory is %lld bytes, but the programs touch %lld",
        (long long)host_bytes, (long long)player_touched_host_bytes(player));
  if (fault && report->memory_ok != ANSWER_no) {
    report->memory_ok = ANSWER_no;
    report->memory_fault = arena_strdup(v->arena, fault);
  }
  if (messages && report->messages_match != ANSWER_no) {
    report->messages_match = report->hang_free = ANSWER_no;
    report->message_fault = arena_strdup(v->arena, messages);
  }
  if (v->numbers.number == INTERP_f64)
    report->n_collectives += player_collectives(player);
}

/* ---- playing ---- */

/* The program keeps it from step to step. */
static bool is_kept(const GraphInput *input) {
  return !role_is_of_step(input->role) && input->role != ROLE_receive &&
         input->role != ROLE_push;
}

/* Saves and loads all that the program keeps; nothing else is left. */
static void resume_class(VerifyRun *v, const PlayClass *class) {
  Arena *scratch = arena_beside(v->arena);
  int n = player_stages(class->player);
  Tensor **saved = ARENA_ARRAY(scratch, Tensor *, n);
  for (int s = 0; s < n; s++) {
    const Graph *graph = selected_graph(class, s);
    saved[s] = ARENA_ARRAY(scratch, Tensor, graph->inputs.n);
    for (int i = 0; i < graph->inputs.n; i++)
      if (is_kept(&graph->inputs.data[i]))
        saved[s][i] = player_save(class->player, i, scratch);
  }
  player_forget(class->player);
  for (int s = 0; s < n; s++) {
    const Graph *graph = selected_graph(class, s);
    for (int i = 0; i < graph->inputs.n; i++)
      if (is_kept(&graph->inputs.data[i]))
        player_write(class->player, i, &saved[s][i]);
  }
  arena_destroy(scratch);
}

static void write_inputs(VerifyRun *v, const PlayClass *class,
                         const VerifyStep *step, int stage, int number) {
  const Graph *graph = selected_graph(class, stage);
  Map *written = v->written[class->index];
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (input->role == ROLE_receive || input->role == ROLE_push) continue;
    if (step->n_batches > 0 && !is_kept(input)) continue; /* see its calls */
    if (is_kept(input) && map_has(written, input->path)) continue;
    if (is_kept(input)) map_put(written, input->path, (void *)input->path);
    Tensor tensor = verify_played_input(v, step, number, graph, input);
    if (step->servers && class->index > 0)
      tensor = verify_first_rows(v, class, graph_type(graph, input->value),
                                 &tensor, v->arena);
    player_write(class->player, i, &tensor);
  }
  verify_write_averages(v, class, stage);
}

static void play_step(VerifyRun *v, Player *const *players,
                      const VerifyStep *step, int number, const Tensor *wanted,
                      const Tensor *shaken) {
  int n = v->steps->n_classes;
  Arena *scratch = arena_beside(v->arena);
  PlayClass *classes = ARENA_ARRAY(scratch, PlayClass, n);
  for (int c = 0; c < n; c++) {
    classes[c] = (PlayClass){c, players[c], &step->classes[c], NULL};
    player_begin(players[c], step->classes[c].program);
    if (step->is_resumed) resume_class(v, &classes[c]);
    for (int s = 0; s < player_stages(players[c]); s++)
      write_inputs(v, &classes[c], step, s, number);
  }
  if (step->n_batches > 0)
    verify_play_periods(v, classes, players, step, number, wanted, shaken);
  else if (step->servers)
    verify_play_servers(v, classes, players, step);
  else
    players_run(players, n);
  compare_step(v, classes, step, wanted, shaken);
  arena_destroy(scratch);
}

static int batches_of(const VerifyStep *step) {
  return step->n_batches > 0 ? step->n_batches : 1;
}

/* Those of the last batch. */
static const Tensor *last_outputs(const VerifyStep *step,
                                  const Tensor *outputs) {
  return outputs + (batches_of(step) - 1) * step->reference->outputs.n;
}

/* The outputs of the reference in each step. */
static Tensor **run_references(VerifyRun *v, const StepList *steps, int n) {
  Tensor **outputs = ARENA_ARRAY(v->arena, Tensor *, n);
  for (int i = 0, number = 0; i < n; i++) {
    const VerifyStep *step = &steps->list[i < steps->n ? i : 0];
    outputs[i] = run_reference(v, step, number);
    number += batches_of(step);
    if (!step->has_gradients)
      keep_outputs(v, step->reference, last_outputs(step, outputs[i]));
  }
  return outputs;
}

void verify_note_size(VerifyRun *v) {
  note_not_compared(v, "the program is too much to play: make the model "
                       "smaller with NAME=VALUE");
  v->report.memory_ok = ANSWER_not_checked;
}

/* Refuses early what few ranks would not have memory for; many share most of
 * theirs, so only playing them tells (memory_limit). */
static bool fits_player(VerifyRun *v, const StepList *steps) {
  size_t cell_bytes = numbers_size_bytes(&v->numbers, DT_f32), cells = 0;
  for (int c = 0; c < v->steps->n_classes; c++) {
    int ranks = v->steps->n_ranks[c];
    int copies = ranks < LIKELY_CLASSES ? ranks : LIKELY_CLASSES;
    cells +=
        (size_t)(steps->arena_bytes[c] + steps->host_bytes[c]) * (size_t)copies;
  }
  if (cells <= VERIFY_MOST_BYTES / cell_bytes) return true;
  verify_note_size(v);
  return false;
}

/* A player for each class of ranks; which of them goes on when is chosen by the
 * seed of the first. */
static Player **make_players(VerifyRun *v, const StepList *steps,
                             Arena *arena) {
  int n = v->steps->n_classes;
  Player **players = ARENA_ARRAY(arena, Player *, n);
  v->written = ARENA_ARRAY(arena, Map *, n);
  for (int c = 0; c < n; c++) {
    PlayOptions options = {.numbers = &v->numbers,
                           .first_rank = v->steps->first_rank[c],
                           .ranks = v->steps->n_ranks[c],
                           .arena_bytes = steps->arena_bytes[c],
                           .host_bytes = steps->host_bytes[c],
                           .seed = v->numbers.seed + 1 + (uint64_t)c,
                           .messages = v->messages ? &v->messages[c] : NULL};
    players[c] = player_create(arena, &options);
    v->written[c] = map_create(arena);
  }
  return players;
}

/* The references of all steps run first, because the memory of each is free
 * again after it. */
static void play_steps(VerifyRun *v, const StepList *steps, int n) {
  if (!fits_player(v, steps)) return;
  Tensor **wanted = run_references(v, steps, n);
  Tensor **shaken = v->shaken ? run_references(v->shaken, steps, n) : NULL;
  memory_trim();
  Arena *arena = arena_beside(v->arena);
  Player **players = make_players(v, steps, arena);
  for (int i = 0, number = 0; i < n; i++) {
    const VerifyStep *step = &steps->list[i < steps->n ? i : 0];
    play_step(v, players, step, number, wanted[i], shaken ? shaken[i] : NULL);
    number += batches_of(step);
  }
  for (int c = 0; c < v->steps->n_classes; c++)
    note_memory(v, players[c], steps->arena_bytes[c], steps->host_bytes[c]);
  arena_destroy(arena);
  memory_trim();
}

/* No step has been made. */
static void forget_steps(VerifyRun *run) {
  run->stored = run->initial = (Stored){0};
  run->first_outputs = NULL;
  run->averages = NULL;
  run->shaken = NULL;
}

void verify_play(VerifyRun *run) {
  const VerifySteps *steps = run->steps;
  VerifyRun shaken;
  forget_steps(run);
  if (run->numbers.number == INTERP_f64) {
    shaken = *run;
    shaken.is_shaken = true;
    run->shaken = &shaken;
  }
  if (steps->gradients.n > 0)
    play_steps(run, &steps->gradients, steps->gradients.n);
  play_steps(run, &steps->program, steps->program.n);
  run->shaken = NULL;
}

double verify_losses(VerifyRun *run, int n_steps) {
  forget_steps(run);
  play_steps(run, &run->steps->program, run->steps->program.n + n_steps);
  return run->report.loss_error;
}

double verify_norm(VerifyRun *run) {
  const VerifyStep *train = &run->steps->program.list[0];
  forget_steps(run);
  const Tensor *outputs = run_reference(run, train, 0);
  for (int i = 0; i < train->reference->outputs.n; i++)
    if (train->reference->outputs.data[i].role == ROLE_norm)
      return *(const double *)tensor_array(&outputs[i]);
  return INFINITY;
}
