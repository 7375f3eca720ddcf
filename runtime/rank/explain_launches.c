/*
 * explain_launches.c -- finds the first launch of a step that makes what is
 * not finite, where there is no plain program.
 *
 * The step runs again, and each result is checked for every micro-batch.
 * Parameters and inputs come first, then the forward pass, up in stages, then
 * the backward pass, down in stages; in one of them the lowest micro-batch.  So
 * all that the launch reads is finite, whatever the order in which a rank
 * computes.  The least over all ranks is the answer.
 *
 * Infinities that stand in the program, as those of a mask, are no cause, and
 * neither are those that a launch makes where an operand has some.
 */
#include "runtime/rank/run.h"

#include <math.h>
#include <stdlib.h>

enum { PHASE_leaf, PHASE_forward, PHASE_backward, PHASE_step, N_ORDERS = 4 };

/* A value that is not finite; those of two are compared from the left. */
typedef struct Found {
  int32_t is_none;
  int32_t order[N_ORDERS]; /* phase, stage, micro-batch, place */
  char place[300];
} Found;

typedef struct Search {
  Run *run;
  int64_t updated;       /* last step that this run made; 0: none */
  void *buffer;          /* MARKS_CHUNK bytes */
  VEC(int64_t) infinite; /* offsets of results with infinities */
  Arena *arena;
  Found first;
} Search;

static bool comes_before(const Found *a, const Found *b) {
  if (a->is_none || b->is_none) return b->is_none && !a->is_none;
  for (int i = 0; i < N_ORDERS; i++)
    if (a->order[i] != b->order[i]) return a->order[i] < b->order[i];
  return false;
}

static void keep_first(Search *search, const Found *next) {
  if (comes_before(next, &search->first)) search->first = *next;
}

/* ---- parameters and inputs ---- */

static bool is_leaf(const DnnTensor *tensor) {
  bool is_float = tensor->dtype == DNN_f32 || tensor->dtype == DNN_f16 ||
                  tensor->dtype == DNN_bf16;
  return is_float && tensor->offset >= 0 &&
         (tensor->role == DNN_PARAM || tensor->role == DNN_DATA);
}

static void find_leaves(Search *search, const DnnTensor *tensors, int n) {
  Run *run = search->run;
  for (int i = 0; i < n; i++) {
    int marks;
    if (!is_leaf(&tensors[i])) continue;
    run_must(run,
             explain_marks(run->device, search->buffer, tensors[i].offset,
                           tensors[i].bytes / dtype_bytes(tensors[i].dtype),
                           tensors[i].dtype, &marks));
    if (!marks) continue;
    DnnValue value = {.path = tensors[i].path,
                      .kind = DNN_VALUE_LEAF,
                      .role = tensors[i].role};
    Found next = {.order = {PHASE_leaf, tensors[i].role, 0, i}};
    FixedText text = fixed_text(next.place, sizeof next.place);
    fixed_printf(&text, "%s",
                 explain_place(search->arena, &value, search->updated));
    if (run->program->stages) fixed_printf(&text, ", %s", run->program->stages);
    keep_first(search, &next);
  }
}

/* ---- launches ---- */

static const DnnSegment *segment_of(const DnnEntryPoint *entry, int32_t at) {
  for (int32_t s = 0; s < entry->n_segments; s++)
    if (at >= entry->segments[s].begin &&
        at < entry->segments[s].begin + entry->segments[s].n)
      return &entry->segments[s];
  return NULL;
}

static void describe_launch(FixedText *text, const Run *run,
                            const DnnInstr *instr, const Found *found,
                            bool has_microbatch) {
  const int32_t *order = found->order;
  if (order[0] == PHASE_step) {
    fixed_printf(text, isfinite(run->loss) ? "the norm of all gradients"
                                           : "the update of the parameters");
    return;
  }
  fixed_printf(text, "'%s' (%s)", instr->path,
               order[0] == PHASE_forward ? "forward" : "backward");
  if (!run->program->stages) return;
  fixed_printf(text, ", stage %d", abs(order[1]));
  if (has_microbatch) fixed_printf(text, ", micro-batch %d", order[2]);
}

/* Phases as in DnnInstr. */
static void add_launch(Search *search, const DnnInstr *instr,
                       const int64_t *registers) {
  const DnnEntryPoint *train = search->run->train;
  int32_t at = (int32_t)(instr - train->instrs);
  const DnnSegment *segment = segment_of(train, at);
  bool is_backward = instr->phase == 1 || instr->phase == 2;
  bool has_microbatch = segment->n_registers > DNN_REGISTER_MICROBATCH;
  Found next = {.order = {instr->phase == 0 ? PHASE_forward
                          : is_backward     ? PHASE_backward
                                            : PHASE_step,
                          is_backward ? -segment->stage : segment->stage,
                          has_microbatch
                              ? (int32_t)registers[DNN_REGISTER_MICROBATCH]
                              : 0,
                          at}};
  FixedText text = fixed_text(next.place, sizeof next.place);
  describe_launch(&text, search->run, instr, &next, has_microbatch);
  keep_first(search, &next);
}

static int place_of(const Search *search, int64_t offset) {
  for (int i = 0; i < search->infinite.n; i++)
    if (search->infinite.data[i] == offset) return i;
  return -1;
}

/* Any operand is the result of a launch with infinities. */
static bool reads_infinity(const Search *search, const DnnInstr *instr,
                           int result, const int64_t *iterations) {
  for (int b = 0; b < instr->n_buffers && search->infinite.n > 0; b++)
    if (b != result &&
        place_of(search, instr_buffer(instr, b, iterations)) >= 0)
      return true;
  return false;
}

static void note_infinity(Search *search, int64_t offset, bool has_one) {
  int at = place_of(search, offset);
  if (has_one && at < 0) vec_push(search->arena, &search->infinite, offset);
  if (!has_one && at >= 0)
    search->infinite.data[at] = search->infinite.data[--search->infinite.n];
}

static Status look_at_launch(void *user, const DnnInstr *instr,
                             const int64_t *iterations) {
  Search *search = user;
  bool is_cause = false;
  for (int i = 0; i < instr->n_checks; i++) {
    const int64_t *check = instr->checks + DNN_CHECK_NUMBERS * i;
    int result = (int)check[3], marks;
    int64_t offset = check[0] + instr_advance(instr, result, iterations);
    TRY(explain_marks(search->run->device, search->buffer, offset, check[1],
                      (DnnDtype)check[2], &marks));
    bool is_given =
        marks == HAS_INFINITY &&
        (check[4] || reads_infinity(search, instr, result, iterations));
    note_infinity(search, offset, marks & HAS_INFINITY);
    is_cause = is_cause || (marks && !is_given);
  }
  if (is_cause) add_launch(search, instr, iterations);
  return STATUS_OK;
}

const char *explain_launches(Run *run, Arena *arena, int64_t t) {
  Search search = {.run = run,
                   .updated = run->n_times > 1 ? t - 1 : 0,
                   .buffer = arena_alloc(arena, MARKS_CHUNK),
                   .arena = arena,
                   .first = {.is_none = 1}};
  const DnnEntryPoint *train = run->train;
  find_leaves(&search, run->program->tensors, run->program->n_tensors);
  find_leaves(&search, train->tensors, train->n_tensors);
  run_must(run,
           exec_run_inspected(run->exec, train, t, look_at_launch, &search));
  Found *all = ARENA_ARRAY(arena, Found, run->comm->world);
  Found first = {.is_none = 1};
  run_must(run, run->comm->gather(run->comm, &search.first, sizeof first, all));
  for (int i = 0; i < run->comm->world; i++)
    if (comes_before(&all[i], &first)) first = all[i];
  return first.is_none ? NULL : arena_strdup(arena, first.place);
}
