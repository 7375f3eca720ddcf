/*
 * verify.c -- plays what codegen gets, step by step, beside a reference that
 * shares as little with it as possible.
 *
 * verify_steps.c compiles both.  Every output of every rank is compared: loss,
 * metrics, gradients, norm, parameters, optimizer state and all other
 * persistent buffers.  Both are run in f64 and, with two seeds, in exact mode
 * (ir/interp/exact.h).
 */
#include "driver/verify_steps.h"

#include <math.h>
#include <string.h>

#define F64_LIMIT     1e-9
#define N_EXACT_SEEDS 2
#define MOST_OF_CELLS ((int64_t)4 << 30) /* bytes of all ranks' numbers */

enum { LARGE_SIZE = 64 }; /* reported where it cannot shrink */

/* The persistent buffers of the reference, by role and path. */
typedef struct Stored {
  Map *by_path[N_ROLES]; /* Name -> Tensor * */
} Stored;

typedef struct Verify {
  Compilation *c;
  Module *module;
  Arena *arena;
  const VerifySteps *steps;
  Numbers numbers;
  VerifyReport *report;
  Stored stored;
  Map *written; /* persistent buffers, by path, that the ranks have */
} Verify;

/* ---- reference ---- */

static Tensor *find_stored(const Verify *v, Role role, Name path) {
  const Map *map = v->stored.by_path[role];
  return map ? map_get(map, path) : NULL;
}

static void put_stored(Verify *v, Role role, Name path, Tensor tensor) {
  Map **map = &v->stored.by_path[role];
  if (!*map) *map = map_create(v->arena);
  map_put(*map, path, arena_copy(v->arena, &tensor, sizeof tensor));
}

static bool is_new_each_step(Role role) {
  return role == ROLE_data || role == ROLE_step || role == ROLE_seed ||
         role == ROLE_epoch;
}

/* The number that this input has in the step, the same for both programs. */
static Tensor input_of_step(Verify *v, const GraphInput *input,
                            const Type *type, int step) {
  int64_t shards = v->report->ranks * v->report->microbatches;
  Tensor *known = find_stored(v, input->role, input->path);
  if (known) return *known;
  VerifyInputs inputs = {.model = v->c->model,
                         .numbers = &v->numbers,
                         .resizing = v->steps->resizing,
                         .step = step,
                         .shards = shards};
  Tensor made = verify_input(&inputs, input, type, v->arena);
  if (!is_new_each_step(input->role))
    put_stored(v, input->role, input->path, made);
  return made;
}

static Tensor *run_reference(Verify *v, const Graph *graph, int number) {
  Tensor *inputs = ARENA_ARRAY(v->arena, Tensor, graph->inputs.n);
  Tensor *outputs = ARENA_ARRAY(v->arena, Tensor, graph->outputs.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    inputs[i] =
        input_of_step(v, input, graph_type(graph, input->value), number);
  }
  interp_run_in(graph, &v->numbers, v->arena, inputs, outputs, NULL);
  return outputs;
}

/* The next step reads the buffers that this one has replaced. */
static void keep_outputs(Verify *v, const Graph *graph, const Tensor *outputs) {
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    if (graph_find_input(graph, output->role, output->path))
      put_stored(v, output->role, output->path, outputs[i]);
  }
}

/* ---- comparing ---- */

static void compare_output(Verify *v, const Player *player,
                           const VerifyStep *step, int index,
                           const Tensor *wanted) {
  VerifyReport *report = v->report;
  const GraphOutput *output = &step->played->outputs.data[index];
  bool is_exact = v->numbers.number == INTERP_exact;
  double limit = is_exact ? 0 : F64_LIMIT;
  PlayDifference difference = player_compare(player, index, wanted, limit);
  report->n_compared++;
  if (!is_exact && difference.error > report->max_rel_error)
    report->max_rel_error = difference.error;
  if (difference.error <= limit) return;
  *(is_exact ? &report->n_exact_different : &report->n_f64_different) += 1;
  if (report->equal == ANSWER_no) return;
  report->equal = ANSWER_no;
  report->numbers = is_exact ? "exact mode" : "f64";
  report->step = step->name;
  report->kind = role_name(output->role);
  report->path = output->path;
  report->rank = difference.rank;
  report->element = difference.element;
}

static void note_not_compared(Verify *v, const char *text) {
  VerifyReport *report = v->report;
  if (!report->not_compared) report->not_compared = text;
  if (report->equal == ANSWER_yes) report->equal = ANSWER_not_checked;
}

static void note_output(Verify *v, const VerifyStep *step,
                        const GraphOutput *output, const char *why) {
  note_not_compared(v, arena_printf(v->arena, "%s '%s' of %s %s",
                                    role_name(output->role), output->path,
                                    step->name, why));
}

static bool is_finite(const Verify *v, const Tensor *tensor) {
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

/* Numbers that are not finite are equal whatever they should be. */
static void compare_step(Verify *v, const Player *player,
                         const VerifyStep *step, const Tensor *wanted) {
  const Graph *graph = step->played, *reference = step->reference;
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    int k = find_output(reference, output);
    if (k == reference->outputs.n) {
      note_output(v, step, output, "is not in the reference");
      continue;
    }
    if (!is_finite(v, &wanted[k]))
      note_output(v, step, output, "is not finite on one rank");
    compare_output(v, player, step, i, &wanted[k]);
  }
  for (int k = 0; k < reference->outputs.n; k++)
    if (find_output(graph, &reference->outputs.data[k]) == graph->outputs.n)
      note_output(v, step, &reference->outputs.data[k],
                  "is not in the program");
}

static void note_memory(Verify *v, const Player *player, int64_t arena_bytes) {
  VerifyReport *report = v->report;
  const char *fault = player_memory_fault(player);
  const char *messages = player_message_fault(player);
  if (!fault && player_touched_bytes(player) != arena_bytes)
    fault = arena_printf(
        v->arena, "the peak is %lld bytes, but the programs touch %lld",
        (long long)arena_bytes, (long long)player_touched_bytes(player));
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

static void play_step(Verify *v, Player *player, const VerifyStep *step,
                      int number) {
  const Graph *graph = step->played;
  Tensor *wanted = run_reference(v, step->reference, number);
  player_begin(player, step->program);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    bool is_kept = !is_new_each_step(input->role);
    if (is_kept && map_has(v->written, input->path)) continue;
    if (is_kept) map_put(v->written, input->path, (void *)input->path);
    Tensor tensor =
        input_of_step(v, input, graph_type(graph, input->value), number);
    player_write(player, i, &tensor);
  }
  player_run(player);
  compare_step(v, player, step, wanted);
  keep_outputs(v, step->reference, wanted);
}

static bool fits_player(Verify *v, const StepList *steps) {
  int64_t cell_bytes = (int64_t)numbers_size_bytes(&v->numbers, DT_f32);
  int64_t cells = steps->arena_bytes * v->report->ranks;
  if (cells <= MOST_OF_CELLS / cell_bytes) return true;
  note_not_compared(
      v,
      arena_printf(v->arena,
                   "%s needs %s on each rank, which is too much to play: "
                   "make the model smaller with NAME=VALUE",
                   steps->list[0].name,
                   text_quantity(v->arena, (double)steps->arena_bytes, "B")));
  v->report->memory_ok = ANSWER_not_checked;
  return false;
}

static void play_steps(Verify *v, const StepList *steps) {
  if (!fits_player(v, steps)) return;
  Arena *arena = arena_create(v->module->memory);
  PlayOptions options = {.numbers = &v->numbers,
                         .ranks = v->report->ranks,
                         .arena_bytes = steps->arena_bytes,
                         .seed = v->numbers.seed + 1};
  Player *player = player_create(arena, &options);
  v->written = map_create(arena);
  memset(&v->stored, 0, sizeof v->stored);
  for (int i = 0; i < steps->n; i++) play_step(v, player, &steps->list[i], i);
  note_memory(v, player, steps->arena_bytes);
  arena_destroy(arena);
}

/* A clip that the first gradient norm does not reach is moved below it; true:
 * it was. */
static bool activate_clip(Verify *v) {
  Model *model = (Model *)v->c->model;
  const Graph *train = v->steps->program.list[0].reference;
  if (model->settings.clip <= 0 || v->report->clip > 0) return false;
  memset(&v->stored, 0, sizeof v->stored);
  const Tensor *outputs = run_reference(v, train, 0);
  for (int i = 0; i < train->outputs.n; i++) {
    if (train->outputs.data[i].role != ROLE_norm) continue;
    double norm = *(const double *)tensor_array(&outputs[i]);
    if (norm >= 2 * model->settings.clip) continue;
    model->settings.clip = norm / 2;
    v->report->clip = norm / 2;
    return true;
  }
  return false;
}

static void check_step_placements(Verify *v, const VerifyStep *step) {
  Text faults = text_create(v->arena);
  if (graph_check_placements(step->played, &faults) ||
      v->report->placement_ok == ANSWER_no)
    return;
  v->report->placement_ok = ANSWER_no;
  v->report->placement_fault = text_string(&faults);
}

static void note_steps(const Verify *v, const StepList *steps) {
  for (int i = 0; i < steps->n; i++) {
    const char **names = &v->report->steps, *name = steps->list[i].name;
    *names = *names ? arena_printf(v->arena, "%s, %s", *names, name) : name;
    check_step_placements((Verify *)v, &steps->list[i]);
  }
}

static void note_sizes(const Verify *v) {
  Text changed = text_create(v->arena), kept = text_create(v->arena);
  if (!v->steps->resizing) return;
  resizing_print(&changed, v->steps->resizing, true, 0);
  resizing_print(&kept, v->steps->resizing, false, LARGE_SIZE);
  v->report->sizes = text_string(&changed);
  if (kept.n) v->report->kept_sizes = text_string(&kept);
}

/* Every other block is like the one in the middle, or it is not. */
static void note_blocks(const Verify *v) {
  VerifyReport *report = v->report;
  const VerifySteps *steps = v->steps;
  for (int i = 0; i < steps->n_repeats; i++) {
    const Repeat *repeat = &steps->repeats[i];
    const char **text = &report->repeats;
    *text = arena_printf(v->arena, "%s%s%s[%d..%d]", *text ? *text : "",
                         *text ? ", " : "", repeat->name, repeat->first,
                         repeat->last);
  }
  if (!steps->unroll_fault) return;
  report->equal = ANSWER_no;
  report->numbers = "comparing blocks";
  report->step = steps->unroll_step;
  report->kind = "node";
  report->path = steps->unroll_fault;
}

/* The norm that says where the clip acts is that of a draft. */
static CompileResult compile_steps(Verify *v, VerifySteps *steps) {
  bool is_draft = v->c->model->settings.clip > 0;
  CompileResult result = verify_compile(v->c, v->module, is_draft, steps);
  if (result != COMPILE_done || !is_draft) return result;
  bool is_moved = activate_clip(v);
  return is_moved || steps->n_repeats > 0
             ? verify_compile(v->c, v->module, false, steps)
             : result;
}

CompileResult driver_verify(Compilation *c, uint64_t seed, VerifyReport *out) {
  Arena *arena = c->module->arena;
  Module *module = arena_copy(arena, c->module, sizeof *c->module);
  module->diags = diags_create(arena);
  *out = (VerifyReport){.equal = ANSWER_yes,
                        .placement_ok = ANSWER_yes,
                        .hang_free = ANSWER_yes,
                        .messages_match = ANSWER_yes,
                        .memory_ok = ANSWER_yes,
                        .limit = F64_LIMIT,
                        .ranks = c->plan ? c->plan->ranks : 1,
                        .microbatches = c->plan ? c->plan->microbatches : 1};
  VerifySteps steps = {0};
  Verify v = {.c = c,
              .module = module,
              .arena = arena,
              .steps = &steps,
              .report = out,
              .numbers = {.number = INTERP_f64, .seed = seed}};
  CompileResult result = compile_steps(&v, &steps);
  if (result != COMPILE_done) return result;
  out->not_played = steps.not_played;
  note_steps(&v, &steps.gradients);
  note_steps(&v, &steps.program);
  note_sizes(&v);
  note_blocks(&v);
  for (int i = 0; i <= N_EXACT_SEEDS; i++) {
    v.numbers = (Numbers){.number = i == 0 ? INTERP_f64 : INTERP_exact,
                          .seed = seed + (uint64_t)i};
    play_steps(&v, &steps.gradients);
    play_steps(&v, &steps.program);
  }
  return COMPILE_done;
}
