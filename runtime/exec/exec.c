/*
 * exec.c -- runs the calls of an entry point: of each the instructions of its
 * segment, straight but for loops.  The registers of a call are the iterations
 * of the outermost loops.
 *
 * Launches go to the device, collectives to the transport; a collective is
 * started at its place and waited for before the first reader of its result.
 * Everything that a step needs is prepared at start.
 */
#include "runtime/exec/exec.h"

#include "runtime/exec/pace.h"

#include <math.h>
#include <string.h>

/* The collective that an instruction starts, or one for each id that registers
 * give it, and for each piece of this rank. */
typedef struct Starts {
  int32_t first, n, n_pieces; /* ids */
  DnnCollective *whats;       /* [n]; without parts: the rank has no piece */
  CommPart **parts;           /* [n]; in loops the iteration moves them */
} Starts;

struct Exec {
  const DnnProgram *program;
  Device *device;
  Comm *comm;
  FlightRecorder *recorder;
  Trace *trace;
  Profiler *profiler;
  bool is_measured;    /* this execution, by the profiler */
  bool is_paced;       /* the program */
  const DnnCall *call; /* the one at hand */
  Pace pace;
  Starts ***starts; /* of each entry point and instruction; NULL: no
                       collective */
  bool *is_open;    /* by id: started and not waited for */
  int32_t n_ids;
};

/* The id of what a collective starts, or a wait waits for. */
static int32_t id_at(const DnnInstr *instr, const int64_t *iterations) {
  int64_t id = instr->n_numbers > 0
                   ? instr->numbers[0]
                   : ((const DnnCollective *)instr->detail)->id;
  for (int k = 0; instr->number_advances && k < instr->n_loops; k++)
    id += iterations[k] * instr->number_advances[k];
  return (int32_t)id;
}

/* Every slot of a ring comes up. */
static int64_t greatest_register(const DnnEntryPoint *entry, int32_t call,
                                 int32_t number) {
  return entry->periods ? entry->periods[call].moduli[number] - 1
                        : entry->calls[call].registers[number];
}

/* Registers of calls in which the instruction gets other ids. */
static void find_ids(const DnnEntryPoint *entry, Starts **of_instrs) {
  for (int32_t i = 0; i < entry->n_calls; i++) {
    const DnnCall *call = &entry->calls[i];
    const DnnSegment *segment = &entry->segments[call->segment];
    int64_t iterations[DNN_MAX_LOOPS] = {0};
    for (int32_t r = 0; r < segment->n_registers; r++)
      iterations[r] = greatest_register(entry, i, r);
    for (int32_t k = segment->begin; k < segment->begin + segment->n; k++) {
      Starts *starts = of_instrs[k];
      if (!starts) continue;
      int32_t id = id_at(&entry->instrs[k], iterations);
      ASSERT(id >= starts->first);
      int32_t n = id - starts->first + starts->n_pieces;
      if (n > starts->n) starts->n = n;
    }
  }
}

/* Piece `number` of a rank of a message, as a message of its own. */
static DnnCollective piece_message(Arena *arena, const DnnCollective *what,
                                   int rank, int number) {
  DnnCollective own = *what;
  own.n_parts = 0;
  own.pieces = NULL;
  for (int i = 0; i < what->n_pieces; i++) {
    const DnnPiece *piece = &what->pieces[i];
    if (piece->rank != rank || number-- != 0) continue;
    int64_t *counts = ARENA_ARRAY(arena, int64_t, piece->n_runs);
    for (int k = 0; k < piece->n_runs; k++) counts[k] = piece->run;
    own.peer = piece->peer;
    own.n_parts = piece->n_runs;
    own.counts = counts;
    own.pieces = piece;
    break;
  }
  return own;
}

static void prepare_whats(Arena *arena, const DnnCollective *what, int rank,
                          Starts *starts) {
  starts->whats = ARENA_ARRAY(arena, DnnCollective, starts->n);
  starts->parts = ARENA_ARRAY(arena, CommPart *, starts->n);
  for (int32_t k = 0; k < starts->n; k++) {
    DnnCollective *own = &starts->whats[k];
    *own = what->pieces ? piece_message(arena, what, rank, k % starts->n_pieces)
                        : *what;
    own->id = starts->first + k;
    starts->parts[k] = ARENA_ARRAY(arena, CommPart, own->n_parts);
    for (int j = 0; j < own->n_parts; j++)
      starts->parts[k][j].count = own->counts[j];
  }
}

/* Tables of a collective, made before any step. */
static Starts **prepare_starts(Arena *arena, const DnnEntryPoint *entry,
                               int rank, int32_t *n_ids) {
  static const int64_t zeros[DNN_MAX_LOOPS];
  Starts **all = ARENA_ARRAY(arena, Starts *, entry->n_instrs);
  for (int32_t i = 0; i < entry->n_instrs; i++) {
    const DnnInstr *instr = &entry->instrs[i];
    if (instr->op != DNN_OP_COLLECTIVE) continue;
    const DnnCollective *what = instr->detail;
    ASSERT(instr->n_buffers == what->n_parts ||
           instr->n_buffers == 2 * what->n_parts);
    ASSERT(instr->n_buffers == what->n_parts || what->group->size > 1);
    all[i] = ARENA_NEW(arena, Starts);
    int32_t n = what->pieces ? what->n_ids : 1;
    *all[i] = (Starts){.first = id_at(instr, zeros), .n = n, .n_pieces = n};
  }
  find_ids(entry, all);
  for (int32_t i = 0; i < entry->n_instrs; i++) {
    if (!all[i]) continue;
    prepare_whats(arena, entry->instrs[i].detail, rank, all[i]);
    if (all[i]->first + all[i]->n > *n_ids) *n_ids = all[i]->first + all[i]->n;
  }
  return all;
}

Exec *exec_create(Arena *arena, const DnnProgram *program, Device *device,
                  Comm *comm, FlightRecorder *recorder) {
  Exec *exec = ARENA_NEW(arena, Exec);
  *exec =
      (Exec){.program = program,
             .device = device,
             .comm = comm,
             .recorder = recorder,
             .is_paced = program->is_paced,
             .starts = ARENA_ARRAY(arena, Starts **, program->n_entry_points)};
  for (int i = 0; i < program->n_entry_points; i++)
    exec->starts[i] = prepare_starts(arena, &program->entry_points[i],
                                     comm->rank, &exec->n_ids);
  exec->is_open = ARENA_ARRAY(arena, bool, exec->n_ids);
  return exec;
}

void exec_set_trace(Exec *exec, Trace *trace) {
  exec->trace = trace;
  exec->comm->events = trace ? &trace->comm : NULL;
}

void exec_set_profiler(Exec *exec, Profiler *profiler) {
  exec->profiler = profiler;
}

static void add_event(Trace *trace, int64_t step, const DnnInstr *instr,
                      const int64_t *iterations, int64_t begin) {
  int32_t id = instr->op == DNN_OP_WAIT ? id_at(instr, iterations) : -1;
  if (trace->n < trace->capacity)
    trace->data[trace->n++] = (TraceEvent){begin, clock_ns(), step, instr, id};
}

static int32_t loop_length(const DnnInstr *instr) {
  return instr->op == DNN_OP_LOOP ? (int32_t)instr->numbers[0] : 0;
}

/* It sends nothing. */
static bool is_alone(const DnnCollective *what) {
  return what->group && what->group->size == 1;
}

/* A wait for what was not started since the last one is none. */
static Status wait_for(Exec *exec, int32_t id) {
  if (id >= exec->n_ids || !exec->is_open[id]) return STATUS_OK;
  exec->is_open[id] = false;
  if (!exec->is_paced) return exec->comm->wait(exec->comm, id);
  int64_t begin = clock_ns();
  TRY(exec->comm->wait(exec->comm, id));
  TRY(exec->device->wait(exec->device)); /* the queue of a GPU waits, not we */
  pace_waited(&exec->pace, begin);
  return STATUS_OK;
}

/* The ids of all that an instruction starts, or waits for. */
static Status wait_for_instr(Exec *exec, const DnnInstr *instr,
                             const int64_t *iterations) {
  const DnnCollective *what = instr->detail;
  int32_t id = id_at(instr, iterations), n = 1;
  if (instr->op == DNN_OP_WAIT && instr->n_numbers > 1)
    n = (int32_t)instr->numbers[1];
  if (instr->op == DNN_OP_COLLECTIVE && what->pieces) n = what->n_ids;
  for (int32_t k = 0; k < n; k++) TRY(wait_for(exec, id + k));
  return STATUS_OK;
}

/* One id is of one message at a time. */
static Status start_message(Exec *exec, const DnnInstr *instr,
                            const Starts *starts, int32_t id,
                            const int64_t *iterations) {
  const DnnCollective *what = &starts->whats[id - starts->first];
  CommPart *parts = starts->parts[id - starts->first];
  Device *device = exec->device;
  bool is_in_place = instr->n_buffers == what->n_parts;
  TRY(wait_for(exec, id));
  for (int32_t j = 0; j < what->n_parts; j++) {
    if (what->pieces) {
      char *at = device->address(device, instr_buffer(instr, 0, iterations));
      at += what->pieces->at[j] * dtype_bytes(what->dtype);
      parts[j].from = parts[j].to = at;
      continue;
    }
    int32_t to = is_in_place ? j : j + what->n_parts;
    void *at = device->address(device, instr_buffer(instr, to, iterations));
    parts[j].from = device->address(device, instr_buffer(instr, j, iterations));
    parts[j].to = at;
    if (is_in_place)
      parts[j] = comm_in_place(what, exec->comm->rank, at, parts[j].count);
  }
  exec->is_open[id] = true;
  return exec->comm->start(exec->comm, what, parts);
}

/* The pieces of a rank start by the number of the other rank, in one order of
 * all pieces: so no ranks wait for each other. */
static Status start_collective(Exec *exec, const DnnEntryPoint *entry,
                               int32_t i, const int64_t *iterations) {
  const DnnInstr *instr = &entry->instrs[i];
  const Starts *starts = exec->starts[entry - exec->program->entry_points][i];
  int32_t id = id_at(instr, iterations);
  if (is_alone(instr->detail)) return STATUS_OK;
  for (int32_t k = 0; k < starts->n_pieces; k++)
    if (starts->whats[id - starts->first + k].n_parts > 0)
      TRY(start_message(exec, instr, starts, id + k, iterations));
  return STATUS_OK;
}

/* ---- under the profiler ---- */

static Status launch_measured(Exec *exec, const DnnInstr *instr,
                              const int64_t *iterations) {
  TRY(profiler_before_launch(exec->profiler, exec->device, instr));
  TRY(exec->device->launch(exec->device, instr, iterations));
  return profiler_after_launch(exec->profiler, exec->device);
}

/* Begins on all ranks at once, so that its time has no waiting for a rank that
 * is late, and ends before the next instruction.  Ranks that send each other
 * messages run programs of their own, and begin when they come to it. */
static Status run_collective_measured(Exec *exec, const DnnEntryPoint *entry,
                                      int32_t i, const int64_t *iterations) {
  const DnnInstr *instr = &entry->instrs[i];
  if (is_alone(instr->detail)) return STATUS_OK;
  TRY(exec->device->wait(exec->device));
  if (exec->program->n_pairs == 0) TRY(exec->comm->barrier(exec->comm));
  int64_t begin = clock_ns();
  TRY(start_collective(exec, entry, i, iterations));
  TRY(wait_for_instr(exec, instr, iterations));
  TRY(exec->device->wait(exec->device));
  profiler_add_transfer(exec->profiler, instr, clock_ns() - begin);
  return STATUS_OK;
}

/* ---- in a paced program ---- */

static Status start_paced(Exec *exec, const DnnEntryPoint *entry, int32_t i,
                          const int64_t *iterations) {
  pace_reach(&exec->pace);
  return start_collective(exec, entry, i, iterations);
}

/* ---- instructions ---- */

static Status run_collective(Exec *exec, const DnnEntryPoint *entry, int32_t i,
                             const int64_t *iterations) {
  if (exec->is_measured)
    return run_collective_measured(exec, entry, i, iterations);
  return (exec->is_paced ? start_paced : start_collective)(exec, entry, i,
                                                           iterations);
}

static Status launch_one(Exec *exec, const DnnInstr *instr,
                         const int64_t *iterations) {
  if (exec->is_paced) {
    pace_add(&exec->pace, instr->pace);
    return STATUS_OK;
  }
  if (exec->comm->computed) exec->comm->computed(exec->comm, instr);
  if (exec->is_measured) return launch_measured(exec, instr, iterations);
  return exec->device->launch(exec->device, instr, iterations);
}

/* The call at hand does this instruction. */
static bool is_called(const Exec *exec, const DnnInstr *instr) {
  return instr->when != (exec->call->is_first ? DNN_LATER : DNN_FIRST);
}

/* `iterations`: of the loops around, the outermost first. */
static Status run_one(Exec *exec, const DnnEntryPoint *entry, int32_t i,
                      int64_t *iterations) {
  const DnnInstr *instr = &entry->instrs[i];
  if (!is_called(exec, instr)) return STATUS_OK;
  switch ((DnnOpcode)instr->op) {
  case DNN_OP_WAIT: return wait_for_instr(exec, instr, iterations);
  case DNN_OP_COLLECTIVE: return run_collective(exec, entry, i, iterations);
  case DNN_OP_LOOP: break;
  default: return launch_one(exec, instr, iterations);
  }
  for (int64_t iteration = 0; iteration < instr->numbers[1]; iteration++) {
    iterations[instr->n_loops] = iteration;
    for (int32_t k = i + 1; k <= i + loop_length(instr); k++) {
      TRY(run_one(exec, entry, k, iterations));
      k += loop_length(&entry->instrs[k]);
    }
  }
  return STATUS_OK;
}

/* Unread collectives must have ended too before the entry runs again. */
static Status wait_for_all(Exec *exec) {
  for (int32_t id = 0; id < exec->n_ids; id++) TRY(wait_for(exec, id));
  if (exec->is_paced) pace_end(&exec->pace);
  return exec->device->wait(exec->device);
}

/* A way of running each instruction that a call does. */
typedef struct Visitor {
  Status (*visit)(const struct Visitor *visitor, const DnnEntryPoint *entry,
                  int32_t i, int64_t *iterations);
  Exec *exec;
  int64_t step;
  const ExecPeriod *period; /* NULL: all calls */
  void *user;
} Visitor;

static Status visit_segment(const Visitor *v, const DnnEntryPoint *entry,
                            const DnnSegment *segment, int64_t *iterations) {
  for (int32_t i = segment->begin; i < segment->begin + segment->n; i++) {
    const DnnInstr *instr = &entry->instrs[i];
    if (is_called(v->exec, instr)) {
      recorder_note(v->exec->recorder, v->step, entry->name, i, instr->path);
      TRY(v->visit(v, entry, i, iterations));
    }
    i += loop_length(instr);
  }
  return STATUS_OK;
}

static void note_microbatch(Exec *exec, const DnnSegment *segment) {
  bool has_one = segment->n_registers > DNN_REGISTER_MICROBATCH;
  recorder_note_microbatch(
      exec->recorder,
      has_one ? exec->call->registers[DNN_REGISTER_MICROBATCH] : -1);
}

/* Sets the registers of a call of a period for a unit. */
static void enter_period(const DnnPeriodCall *call, int64_t unit,
                         int64_t *iterations) {
  for (int32_t r = 0; r < DNN_N_REGISTERS; r++) {
    int64_t at = unit / call->divisors[r] + call->shifts[r];
    iterations[r] = (at > 0 ? at : 0) * call->factors[r] % call->moduli[r];
  }
}

static bool is_due(const ExecPeriod *period, const DnnPeriodCall *call,
                   int64_t unit) {
  bool is_there = unit >= 0 && unit < period->n;
  int64_t first = unit - call->replica;
  bool has_group = first >= 0 && first < period->n;
  switch ((DnnPeriodWhen)call->when) {
  case DNN_PERIOD_GROUP: return has_group;
  case DNN_PERIOD_MISSING: return has_group && !is_there;
  case DNN_PERIOD_UNIT: break;
  }
  return is_there;
}

/* Begins a call of a period.  An update has the step of the first unit of its
 * group on all replicas.  *out_is_due: the call is made. */
static Status begin_period(const Visitor *v, const DnnEntryPoint *entry,
                           int32_t i, int64_t *iterations, int64_t *out_step,
                           bool *out_is_due) {
  const DnnPeriodCall *call = &entry->periods[i];
  const ExecPeriod *period = v->period;
  int64_t unit = period->number * entry->period_units + call->unit;
  int64_t of_step = unit;
  *out_is_due = is_due(period, call, unit);
  if (!*out_is_due) return STATUS_OK;
  if (call->when != DNN_PERIOD_UNIT) of_step -= call->replica;
  enter_period(call, unit, iterations);
  *out_step = period->first + of_step / entry->batch_units;
  return period->begin(period->user, call, unit, *out_step);
}

static Status visit_calls(const Visitor *v, const DnnEntryPoint *entry) {
  int64_t iterations[DNN_MAX_LOOPS] = {0};
  int32_t begin = v->period ? v->period->begin_call : 0;
  int32_t end = v->period ? v->period->end_call : entry->n_calls;
  for (int32_t i = begin; i < end; i++) {
    const DnnCall *call = &entry->calls[i];
    const DnnSegment *segment = &entry->segments[call->segment];
    Visitor own = *v;
    bool is_made = true;
    v->exec->call = call;
    if (v->period)
      TRY(begin_period(v, entry, i, iterations, &own.step, &is_made));
    if (!is_made) continue;
    for (int32_t r = 0; !v->period && r < segment->n_registers; r++)
      iterations[r] = call->registers[r];
    note_microbatch(v->exec, segment);
    TRY(visit_segment(&own, entry, segment, iterations));
  }
  recorder_note_microbatch(v->exec->recorder, -1);
  return STATUS_OK;
}

static Status start_one(const Visitor *v, const DnnEntryPoint *entry, int32_t i,
                        int64_t *iterations) {
  Trace *trace = v->exec->trace;
  int64_t begin = trace ? clock_ns() : 0;
  TRY(run_one(v->exec, entry, i, iterations));
  if (trace) add_event(trace, v->step, &entry->instrs[i], iterations, begin);
  return STATUS_OK;
}

Status exec_start(Exec *exec, const DnnEntryPoint *entry, int64_t step) {
  exec->is_measured = profiler_measures(exec->profiler, entry);
  if (exec->is_paced) pace_begin(&exec->pace);
  return visit_calls(&(Visitor){.visit = start_one, .exec = exec, .step = step},
                     entry);
}

Status exec_period(Exec *exec, const DnnEntryPoint *entry,
                   const ExecPeriod *period) {
  /* From the first call of a round on the stream runs without a step's end. */
  if (exec->is_paced && period->begin_call == 0 &&
      period->number == -(int64_t)entry->lead)
    pace_begin(&exec->pace);
  return visit_calls(
      &(Visitor){.visit = start_one, .exec = exec, .period = period}, entry);
}

Status exec_finish(Exec *exec) {
  TRY(wait_for_all(exec));
  if (exec->is_measured) profiler_end_step(exec->profiler);
  exec->is_measured = false;
  return STATUS_OK;
}

Status exec_run(Exec *exec, const DnnEntryPoint *entry, int64_t step) {
  TRY(exec_start(exec, entry, step));
  return exec_finish(exec);
}

/* After run_one: a collective has ended, too. */
static Status wait_if_started(Exec *exec, const DnnInstr *instr,
                              const int64_t *iterations) {
  return instr->op == DNN_OP_COLLECTIVE
             ? wait_for_instr(exec, instr, iterations)
             : STATUS_OK;
}

typedef struct Inspection {
  ExecInspect *look;
  void *user;
} Inspection;

static Status inspect_one(const Visitor *v, const DnnEntryPoint *entry,
                          int32_t i, int64_t *iterations) {
  Exec *exec = v->exec;
  const Inspection *inspection = v->user;
  const DnnInstr *instr = &entry->instrs[i];
  if (!is_called(exec, instr)) return STATUS_OK;
  if (instr->op != DNN_OP_LOOP) {
    /* The transport knows the run's own device, of which this may be none. */
    if (instr->op == DNN_OP_COLLECTIVE) TRY(exec->device->wait(exec->device));
    TRY(run_one(exec, entry, i, iterations));
    TRY(wait_if_started(exec, instr, iterations));
    return inspection->look(inspection->user, instr, iterations);
  }
  for (int64_t iteration = 0; iteration < instr->numbers[1]; iteration++) {
    iterations[instr->n_loops] = iteration;
    for (int32_t k = i + 1; k <= i + loop_length(instr); k++) {
      TRY(inspect_one(v, entry, k, iterations));
      k += loop_length(&entry->instrs[k]);
    }
  }
  return inspection->look(inspection->user, instr, iterations);
}

Status exec_run_inspected(Exec *exec, const DnnEntryPoint *entry, int64_t step,
                          ExecInspect *look, void *user) {
  Inspection inspection = {look, user};
  TRY(visit_calls(&(Visitor){.visit = inspect_one,
                             .exec = exec,
                             .step = step,
                             .user = &inspection},
                  entry));
  return wait_for_all(exec);
}
