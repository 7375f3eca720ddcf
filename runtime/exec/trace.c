/*
 * trace.c -- writes a timeline that chrome://tracing and Perfetto read.
 *
 * Communication overlaps computation, and a track may not hold slices that
 * overlap in part, so each has a track of its own: tid 0 the instructions, tid
 * 1 the blocking collectives, tid 2 the bulk ones.  One process of the timeline
 * is one rank.
 *
 * All ranks leave a barrier within the time of a message, so what each one's
 * clock says then is one time, the origin of the timeline.
 */
#include "runtime/exec/exec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRACK_INSTRUCTIONS, TRACK_BLOCKING, TRACK_BULK };

Trace *trace_create(Arena *arena, int64_t capacity) {
  Trace *trace = ARENA_NEW(arena, Trace);
  trace->origin_ns = clock_ns();
  trace->capacity = capacity;
  trace->data = ARENA_ARRAY(arena, TraceEvent, capacity);
  trace->comm.capacity = (int32_t)(capacity / 4);
  trace->comm.data = ARENA_ARRAY(arena, CommEvent, trace->comm.capacity);
  return trace;
}

Status trace_align(Trace *trace, Arena *arena, Comm *comm) {
  enum { ROUNDS = 8 };
  int64_t shortest = INT64_MAX;
  int64_t *all = ARENA_ARRAY(arena, int64_t, comm->world);
  for (int i = 0; i < ROUNDS; i++) {
    int64_t begin = clock_ns(), longest = 0;
    TRY(comm->barrier(comm));
    int64_t end = clock_ns(), own = end - begin;
    TRY(comm->gather(comm, &own, sizeof own, all));
    for (int r = 0; r < comm->world; r++)
      longest = all[r] > longest ? all[r] : longest;
    if (longest >= shortest) continue;
    shortest = longest;
    trace->origin_ns = end;
  }
  return STATUS_OK;
}

static void write_string(FILE *file, const char *text) {
  fputc('"', file);
  for (; text && *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') fputc('\\', file);
    if (c < 0x20)
      fprintf(file, "\\u%04x", c);
    else
      fputc(c, file);
  }
  fputc('"', file);
}

static void write_slice(FILE *file, const Trace *trace, int rank, int track,
                        const char *name, int64_t begin, int64_t end) {
  fprintf(file, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":", rank,
          track);
  write_string(file, name);
  fprintf(file, ",\"ts\":%.3f,\"dur\":%.3f",
          (double)(begin - trace->origin_ns) * 1e-3,
          (double)(end - begin) * 1e-3);
}

/* The instruction that starts a collective; NULL: it is none of a step. */
static const DnnInstr *collective_instr(const DnnProgram *program, int32_t id) {
  for (int i = 0; i < program->n_entry_points; i++)
    for (int j = 0; j < program->entry_points[i].n_instrs; j++) {
      const DnnInstr *instr = &program->entry_points[i].instrs[j];
      if (instr->op == DNN_OP_COLLECTIVE &&
          ((const DnnCollective *)instr->detail)->id == id)
        return instr;
    }
  return NULL;
}

static void write_collective(FILE *file, const Trace *trace, int rank,
                             const CommEvent *event,
                             const DnnProgram *program) {
  const DnnInstr *instr = collective_instr(program, event->id);
  const DnnCollective *what = instr ? instr->detail : NULL;
  bool is_bulk = what && what->queue == DNN_QUEUE_BULK;
  write_slice(file, trace, rank, is_bulk ? TRACK_BULK : TRACK_BLOCKING,
              instr ? instr->path : "collective", event->begin_ns,
              event->end_ns);
  fprintf(file, ",\"args\":{\"id\":%d,\"bytes\":%lld}}", event->id,
          (long long)event->bytes);
}

/* The ranks of one machine write one file, one after the other. */
static bool is_merged(const Comm *comm) {
  return comm->local_world == comm->world;
}

static void write_events(FILE *file, const Trace *trace, const Comm *comm,
                         const DnnProgram *program) {
  static const char *const phases[] = {
#define PHASE(name, spelling, words) words,
#include "support/phases.def"
      "communication"};
  int rank = comm->rank;
  bool is_first = rank == 0 || !is_merged(comm);
  bool is_last = rank == comm->world - 1 || !is_merged(comm);
  fprintf(file,
          "%s\n{\"ph\":\"M\",\"pid\":%d,\"name\":"
          "\"process_name\",\"args\":{\"name\":\"rank %d%s%s%s\"}}",
          is_first ? "{\"traceEvents\":[" : ",", rank, rank,
          program->stages ? ", " : "", program->stages ? program->stages : "",
          program->is_paced ? " (paced)" : "");
  static const char *const tracks[] = {"instructions", "blocking communication",
                                       "bulk communication"};
  for (int i = 0; i < ARRAY_LENGTH(tracks); i++)
    fprintf(file,
            ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\","
            "\"args\":{\"name\":\"%s\"}}",
            rank, i, tracks[i]);
  for (int64_t i = 0; i < trace->n; i++) {
    const TraceEvent *event = &trace->data[i];
    write_slice(file, trace, rank, TRACK_INSTRUCTIONS, event->instr->path,
                event->begin_ns, event->end_ns);
    unsigned phase = event->instr->phase;
    fprintf(file,
            ",\"args\":{\"step\":%lld,\"phase\":\"%s\",\"flops\":%.0f,"
            "\"bytes\":%.0f",
            (long long)event->step,
            phase < ARRAY_LENGTH(phases) ? phases[phase] : "",
            event->instr->flops, event->instr->bytes_moved);
    if (event->id >= 0) fprintf(file, ",\"waits_for\":%d", event->id);
    fputs("}}", file);
  }
  for (int32_t i = 0; i < trace->comm.n; i++)
    write_collective(file, trace, rank, &trace->comm.data[i], program);
  if (is_last) fprintf(file, "\n],\"displayTimeUnit\":\"ms\"}\n");
}

/* ---- the file ---- */

static Status trace_name(const char *path, const Comm *comm, char name[4096]) {
  FixedText text = fixed_text(name, 4096);
  fixed_printf(&text, is_merged(comm) ? "%s" : "%s.%d", path, comm->rank);
  if (!text.is_cut) return STATUS_OK;
  return status_make(STATUS_invalid, "the name of the trace is too long");
}

/* Opening a pipe would wait for a reader, and ranks write one after the other.
 */
Status trace_check(const char *path, const Comm *comm) {
  char name[4096];
  struct stat info;
  TRY(trace_name(path, comm, name));
  if (stat(name, &info) != 0 || S_ISREG(info.st_mode) || S_ISCHR(info.st_mode))
    return file_check_output(name);
  return status_make(STATUS_invalid,
                     "'%s' is %s; a timeline is written to a file", name,
                     S_ISFIFO(info.st_mode)  ? "a pipe"
                     : S_ISDIR(info.st_mode) ? "a folder"
                                             : "no file");
}

static Status write_own(const Trace *trace, const char *path, const Comm *comm,
                        const DnnProgram *program) {
  char name[4096];
  TRY(trace_check(path, comm));
  TRY(trace_name(path, comm, name));
  FILE *file = fopen(name, comm->rank > 0 && is_merged(comm) ? "a" : "w");
  if (!file) return status_errno(errno, "cannot write '%s'", name);
  write_events(file, trace, comm, program);
  bool failed = ferror(file);
  if (fclose(file) == 0 && !failed) return STATUS_OK;
  int error = errno;
  struct stat info; /* half a timeline can be read by nobody */
  if (lstat(name, &info) == 0 && S_ISREG(info.st_mode)) unlink(name);
  return status_errno(error, "cannot write '%s'", name);
}

Status trace_write(const Trace *trace, const char *path, Comm *comm,
                   const DnnProgram *program) {
  Status status = STATUS_OK;
  if (!is_merged(comm)) return write_own(trace, path, comm, program);
  for (int rank = 0; rank < comm->world; rank++) {
    if (rank == comm->rank) status = write_own(trace, path, comm, program);
    if (comm->world > 1) TRY(comm->barrier(comm));
  }
  return status;
}
