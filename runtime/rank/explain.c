/*
 * explain.c -- finds the first value of a step that is not finite.
 *
 * The step runs again as the plain program (program.h), on a device of its own
 * with the same persistent buffers and data.  After each operator its result is
 * checked. An operator is an origin if its result holds NaN where no operand
 * does, or an infinity where no operand holds either.  Values may be infinite
 * and do no harm, such as a masked score; so an origin counts only if values
 * that are not finite lead from it to the loss or a gradient.  The first of
 * them in program order is the answer, the forward pass before the backward.
 */
#include "runtime/rank/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { IS_ORIGIN = 4, IS_BUSY = 8 }; /* beside HAS_INFINITY and HAS_NAN */

typedef struct Explain {
  const DnnPlain *plain;
  Device *device; /* of the plain program */
  Device *own;    /* of the run, to which the transport belongs */
  uint8_t *marks; /* by value */
  void *buffer;   /* MARKS_CHUNK bytes */
} Explain;

/* ---- marks ---- */

static int marks_of(const void *data, int64_t n, DnnDtype dtype) {
  static const int marks_of_kind[] = {[FLOAT_finite] = 0,
                                      [FLOAT_infinite] = HAS_INFINITY,
                                      [FLOAT_nan] = HAS_NAN};
  FloatFormat format = dtype_float_format(dtype);
  int marks = 0;
  for (int64_t i = 0; i < n; i++)
    marks |= marks_of_kind[float_kind(&format,
                                      (const char *)data + i * format.bytes)];
  return marks;
}

Status explain_marks(Device *device, void *buffer, int64_t offset, int64_t n,
                     DnnDtype dtype, int *out_marks) {
  int64_t item = dtype_bytes(dtype), most = MARKS_CHUNK / item;
  *out_marks = 0;
  for (int64_t at = 0; at < n; at += most) {
    int64_t here = n - at < most ? n - at : most;
    TRY(device->read(device, offset + at * item, buffer, here * item));
    *out_marks |= marks_of(buffer, here, dtype);
  }
  return STATUS_OK;
}

/* A value that passes others on has their marks.  Carries form cycles. */
static int marks_at(Explain *explain, int32_t value) {
  const DnnValue *row = &explain->plain->values[value];
  if (row->kind != DNN_VALUE_PASSES)
    return explain->marks[value] & (HAS_INFINITY | HAS_NAN);
  if (explain->marks[value] & IS_BUSY) return 0;
  explain->marks[value] |= IS_BUSY;
  int marks = 0;
  for (int32_t i = 0; i < row->n_inputs; i++)
    marks |= marks_at(explain, row->inputs[i]);
  explain->marks[value] &= (uint8_t)~IS_BUSY;
  return marks;
}

static void mark_value(Explain *explain, int32_t value, int marks) {
  const DnnValue *row = &explain->plain->values[value];
  int fresh = marks & ~explain->marks[value], operands = 0;
  explain->marks[value] |= (uint8_t)marks;
  if (!fresh) return;
  for (int32_t i = 0; i < row->n_inputs; i++)
    operands |= marks_at(explain, row->inputs[i]);
  bool is_given = row->has_infinity && row->kind != DNN_VALUE_COMPUTES;
  bool makes_nan = fresh & HAS_NAN && !(operands & HAS_NAN);
  bool makes_infinity = fresh & HAS_INFINITY && !operands && !is_given;
  if (makes_nan || makes_infinity) explain->marks[value] |= IS_ORIGIN;
}

static Status inspect_result(void *user, const DnnInstr *instr,
                             const int64_t *iterations) {
  Explain *explain = user;
  if (instr->op == DNN_OP_COLLECTIVE) TRY(explain->own->wait(explain->own));
  for (int i = 0; i < instr->n_checks && instr->values; i++) {
    const int64_t *check = instr->checks + DNN_CHECK_NUMBERS * i;
    int marks;
    int64_t moved = instr_advance(instr, (int)check[3], iterations);
    TRY(explain_marks(explain->device, explain->buffer, check[0] + moved,
                      check[1], (DnnDtype)check[2], &marks));
    mark_value(explain, (int32_t)instr->values[i], marks);
  }
  return STATUS_OK;
}

/* Floats among parameters, states and inputs, before anything is computed. */
static Status look_at_leaves(Explain *explain) {
  for (int32_t i = 0; i < explain->plain->n_values; i++) {
    const DnnValue *row = &explain->plain->values[i];
    bool is_real = row->dtype == DNN_f32 || row->dtype == DNN_f16 ||
                   row->dtype == DNN_bf16;
    int marks;
    if (row->kind != DNN_VALUE_LEAF || row->elements == 0 || !is_real) continue;
    TRY(explain_marks(explain->device, explain->buffer, row->offset,
                      row->elements, row->dtype, &marks));
    mark_value(explain, i, marks);
  }
  return STATUS_OK;
}

/* ---- the first origin ---- */

/* Greater: later.  The forward pass is phase 0. */
static int64_t place_of(const Explain *explain, int32_t value) {
  bool is_backward = explain->plain->values[value].phase != 0;
  return ((int64_t)is_backward << 32) | value;
}

/* The least place among the origins that lead to `target`; the walk takes each
 * value once, with a stack of its own. */
static int64_t first_origin(Explain *explain, int32_t target, bool *is_seen,
                            int32_t *stack, int64_t first) {
  int n = 0;
  if (is_seen[target] || !marks_at(explain, target)) return first;
  is_seen[target] = true;
  stack[n++] = target;
  while (n > 0) {
    int32_t value = stack[--n];
    const DnnValue *row = &explain->plain->values[value];
    if (explain->marks[value] & IS_ORIGIN && place_of(explain, value) < first)
      first = place_of(explain, value);
    for (int32_t i = 0; i < row->n_inputs; i++) {
      int32_t input = row->inputs[i];
      if (is_seen[input] || !marks_at(explain, input)) continue;
      is_seen[input] = true;
      stack[n++] = input;
    }
  }
  return first;
}

static int64_t find_first(Explain *explain, Arena *arena) {
  const DnnPlain *plain = explain->plain;
  bool *is_seen = ARENA_ARRAY(arena, bool, plain->n_values);
  int32_t *stack = ARENA_ARRAY(arena, int32_t, plain->n_values);
  int64_t first = first_origin(explain, plain->loss, is_seen, stack, INT64_MAX);
  for (int32_t i = 0; i < plain->n_gradients; i++)
    first = first_origin(explain, plain->gradients[i], is_seen, stack, first);
  return first;
}

/* ---- the other device ---- */

static Status copy_bytes(Explain *explain, Device *from, int64_t at, int64_t to,
                         int64_t bytes) {
  for (int64_t done = 0; done < bytes; done += MARKS_CHUNK) {
    int64_t here = bytes - done < MARKS_CHUNK ? bytes - done : MARKS_CHUNK;
    TRY(from->read(from, at + done, explain->buffer, here));
    TRY(explain->device->write(explain->device, to + done, explain->buffer,
                               here));
  }
  return STATUS_OK;
}

/* Copies persistent buffers and the data of the step. */
static Status copy_inputs(Run *run, Explain *explain) {
  const DnnEntryPoint *entry = &explain->plain->program->entry_points[0];
  TRY(copy_bytes(explain, run->device, 0, 0, run->program->persistent_bytes));
  for (int i = 0; i < entry->n_tensors; i++)
    for (int j = 0; j < run->train->n_tensors; j++) {
      const DnnTensor *to = &entry->tensors[i], *from = &run->train->tensors[j];
      if (to->role != DNN_DATA || from->role != DNN_DATA ||
          strcmp(to->path, from->path) != 0)
        continue;
      TRY(copy_bytes(explain, run->device, from->offset, to->offset,
                     from->bytes));
    }
  return STATUS_OK;
}

/* Memory that the machine could give without ending someone. */
static int64_t free_bytes(void) {
  FILE *file = fopen("/proc/meminfo", "r");
  char line[128];
  long long kilobytes = INT64_MAX >> 10;
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "MemAvailable: %lld kB", &kilobytes) == 1) break;
  if (file) fclose(file);
  return (int64_t)kilobytes * 1024;
}

static Status open_device(Run *run, Explain *explain, Arena *arena) {
  const DnnProgram *program = explain->plain->program;
  if (strcmp(program->target, "cpu") == 0 &&
      program->arena_bytes > free_bytes() / run->program->world)
    return status_make(STATUS_unavailable, "no memory");
  TRY(device_create(program->target, arena, &explain->device));
  explain->device->rank = run->comm->rank;
  return explain->device->open(explain->device, program, run->comm->local_rank);
}

/* All ranks do it or none. */
static bool agree_on_origin(Run *run, Arena *arena, bool is_ready) {
  int32_t own = is_ready, n = 0;
  int32_t *all = ARENA_ARRAY(arena, int32_t, run->comm->world);
  run_must(run, run->comm->gather(run->comm, &own, sizeof own, all));
  for (int i = 0; i < run->comm->world; i++) n += all[i];
  return n == run->comm->world;
}

static int64_t least_of_all(Run *run, Arena *arena, int64_t own) {
  int64_t *all = ARENA_ARRAY(arena, int64_t, run->comm->world);
  run_must(run, run->comm->gather(run->comm, &own, sizeof own, all));
  for (int i = 0; i < run->comm->world; i++)
    if (all[i] < own) own = all[i];
  return own;
}

static bool find_origin(Run *run, Explain *explain, Arena *arena, int64_t t,
                        int64_t *out_place) {
  Status status = open_device(run, explain, arena);
  if (!agree_on_origin(run, arena, status.code == STATUS_ok)) return false;
  const DnnProgram *program = explain->plain->program;
  Exec *exec =
      exec_create(arena, program, explain->device, run->comm, &run->recorder);
  run_must(run, copy_inputs(run, explain));
  run_must(run, look_at_leaves(explain));
  run_must(run, exec_run_inspected(exec, &program->entry_points[0], t,
                                   inspect_result, explain));
  *out_place = least_of_all(run, arena, find_first(explain, arena));
  return true;
}

bool explain_step(Run *run, int64_t t, const DnnValue **out_value) {
  const DnnPlain *plain = run->program->plain;
  if (!plain) return false;
  Arena *arena = arena_create(run->memory);
  Explain explain = {.plain = plain,
                     .own = run->device,
                     .marks = ARENA_ARRAY(arena, uint8_t, plain->n_values),
                     .buffer = arena_alloc(arena, MARKS_CHUNK)};
  int64_t place;
  bool is_found = find_origin(run, &explain, arena, t, &place);
  if (is_found)
    *out_value = place == INT64_MAX ? NULL : &plain->values[place & INT32_MAX];
  if (explain.device) explain.device->close(explain.device);
  arena_destroy(arena);
  return is_found;
}

/* ---- in words ---- */

const char *explain_place(Arena *arena, const DnnValue *value,
                          int64_t updated) {
  if (value->kind == DNN_VALUE_LEAF) {
    const char *what = value->role == DNN_PARAM        ? "parameter"
                       : value->role == DNN_STATE      ? "state"
                       : value->role == DNN_LOSS_SCALE ? "loss scale"
                                                       : "input";
    if (value->role == DNN_PARAM && updated > 0)
      return arena_printf(arena, "the update of '%s' in step %lld", value->path,
                          (long long)updated);
    return arena_printf(arena, "the %s '%s'", what, value->path);
  }
  if (value->phase == 0)
    return arena_printf(arena, "'%s' (forward)", value->path);
  const char *path = value->path;
  if (strncmp(path, "grad.", 5) == 0) path += 5;
  return arena_printf(arena, "the gradient of '%s' (backward)", path);
}
