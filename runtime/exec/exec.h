/*
 * exec.h -- runs the instructions of an entry point, and writes a timeline of
 * them.
 */
#ifndef RUNTIME_EXEC_EXEC_H
#define RUNTIME_EXEC_EXEC_H

#include "runtime/comm/comm.h"

/* ---- exec.c ---- */

/* One instruction in a timeline. */
typedef struct TraceEvent {
  int64_t begin_ns, end_ns;
  int64_t step;
  const DnnInstr *instr;
  int32_t id; /* of a wait: that of the first collective that it waits for */
} TraceEvent;

typedef struct Trace {
  int64_t origin_ns;
  TraceEvent *data;
  int64_t n, capacity;
  CommEvents comm;
} Trace;

typedef struct Exec Exec;
Exec *exec_create(Arena *arena, const DnnProgram *program, Device *device,
                  Comm *comm, FlightRecorder *recorder);
/* Records launches; NULL means that there is no trace. */
void exec_set_trace(Exec *exec, Trace *trace);
/* Measures the executions of its entry point; NULL means that there is none. */
typedef struct Profiler Profiler;
void exec_set_profiler(Exec *exec, Profiler *profiler);
/* Starts all instructions.  Where launches run behind (device.h), the host has
 * time until exec_finish, which waits for the device and the collectives. */
Status exec_start(Exec *exec, const DnnEntryPoint *entry, int64_t step);
Status exec_finish(Exec *exec);
/* Calls of a period of an endless list (DnnPeriodCall): `begin` is told the
 * unit and the step of each call before it. */
typedef struct ExecPeriod {
  int64_t number; /* from -lead on */
  int64_t n;      /* units between filling and draining */
  int64_t first;  /* step of unit 0 */
  int32_t begin_call, end_call;
  Status (*begin)(void *user, const DnnPeriodCall *call, int64_t unit,
                  int64_t step);
  void *user;
} ExecPeriod;
/* Starts calls of a period; exec_finish comes after the last one. */
Status exec_period(Exec *exec, const DnnEntryPoint *entry,
                   const ExecPeriod *period);
/* Starts and finishes a run. */
Status exec_run(Exec *exec, const DnnEntryPoint *entry, int64_t step);
/* Sees each instruction that has been done, a collective after its end, a loop
 * after its last iteration, and the registers and iterations of the loops
 * around it. */
typedef Status ExecInspect(void *user, const DnnInstr *instr,
                           const int64_t *iterations);
Status exec_run_inspected(Exec *exec, const DnnEntryPoint *entry, int64_t step,
                          ExecInspect *look, void *user);
/* ---- profiler.c ---- */

Profiler *profiler_create(Arena *arena, const DnnEntryPoint *entry);
bool profiler_measures(const Profiler *profiler, const DnnEntryPoint *entry);
/* Is called before each launch of the entry point; the next one after it, and
 * another after all of them. */
Status profiler_before_launch(Profiler *profiler, Device *device,
                              const DnnInstr *instr);
Status profiler_after_launch(Profiler *profiler, Device *device);
void profiler_add_transfer(Profiler *profiler, const DnnInstr *instr,
                           int64_t ns);
void profiler_end_step(Profiler *profiler);
/* Checks that a file can be written there; called before the run. */
Status profiler_check(const char *path);
/* Writes, on rank 0, a profile and the times of collectives, each unless its
 * path is NULL; all ranks call it.  Nothing is written where nothing was
 * measured. */
Status profiler_write(const Profiler *profiler, Arena *arena,
                      const Device *device, Comm *comm, const DnnBundle *bundle,
                      const char *launches, const char *transfers);

/* ---- trace.c ---- */

Trace *trace_create(Arena *arena, int64_t capacity);
/* Sets the origin of all ranks' clocks to one time, to within a message: the
 * end of the shortest of several barriers.  All ranks call it; lost: a rank is
 * gone. */
Status trace_align(Trace *trace, Arena *arena, Comm *comm);
/* Checks that a file can be written there; called before the run. */
Status trace_check(const char *path, const Comm *comm);
/* Writes Chrome trace events: one file, which the ranks write one after the
 * other; of ranks on several machines one each, `path` with ".RANK".  All ranks
 * call it. */
Status trace_write(const Trace *trace, const char *path, Comm *comm,
                   const DnnProgram *program);

#endif
