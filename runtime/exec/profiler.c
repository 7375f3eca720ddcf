/*
 * profiler.c -- measures the runs of a training step one by one, and writes a
 * profile: a CSV of launches that `dnnc simulate --profile` and `dnnc run
 * --paced` read (docs/profile.md).
 *
 *     path,phase,kernel,cores,ps,runs
 *     hidden.dot,forward,9c1f0d6be2a47730,2,418230000,19
 *
 * While it measures, every collective is waited for where it starts, so no
 * transfer takes anything from a launch.  A run is timed from the end of the
 * run before it, because what the executor does between two launches is part of
 * a step too.  Runs of one path, phase and key, as those of micro-batches and
 * of the iterations of a scan, are one row.  Its time is the mean over the half
 * of the steps that are neither the fastest nor the slowest, so that all rows
 * add up to a typical step: their medians would add up to less, because a run
 * is late more often than early.  The first step, which touches memory for the
 * first time, counts only where there is no other.
 *
 * All ranks measure at once, as they compute in a step.  The rows of launches
 * are those of the rank whose step is the slowest, because the others wait for
 * it: the maximum over ranks of each row would add up noise of all of them.  If
 * there are several programs, the ranks of each have such a one.  A transfer
 * has ended when it has on all ranks, so its time is the maximum.
 */
#include "runtime/exec/exec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LAST_STEPS = 63, PS_PER_NS = 1000 };

typedef struct Row {
  const DnnInstr *instr;     /* the first of these launches, or collectives */
  int64_t sum, n;            /* of this step: picoseconds, runs */
  int64_t runs;              /* so far */
  int64_t means[LAST_STEPS]; /* by step, as `totals`; -1: it had no run */
} Row;

struct Profiler {
  const DnnEntryPoint *entry;
  VEC(Row) rows;
  int32_t *row_of; /* by instruction; -1: it begins no run */
  int64_t steps, n_kept;
  int64_t totals[LAST_STEPS]; /* picoseconds of launches, by step */
  int64_t mark_ns; /* end of the last run; 0: something else came after it */
  int left;        /* launches of this run, still to come */
  int32_t row;     /* of this run */
};

/* ---- rows ---- */

static uint64_t launch_hash(const DnnInstr *instr) {
  uint64_t h = hash_bytes(&instr->key, sizeof instr->key, instr->phase);
  return hash_bytes(instr->path, strlen(instr->path) + 1, h);
}

/* Collectives of one kind, group and size are one row. */
static uint64_t transfer_hash(const DnnInstr *instr) {
  const DnnCollective *what = instr->detail;
  const int64_t numbers[] = {what->kind, what->n_parts, comm_payload(what)};
  uint64_t h = hash_bytes(numbers, sizeof numbers, 1);
  if (!what->group) return h;
  return hash_bytes(what->group, sizeof *what->group, h);
}

static bool is_transfer(const DnnInstr *instr) {
  return instr->op == DNN_OP_COLLECTIVE;
}

static bool has_row(const DnnInstr *instr) {
  return instr->n_launches > 0 || is_transfer(instr);
}

Profiler *profiler_create(Arena *arena, const DnnEntryPoint *entry) {
  Profiler *profiler = ARENA_NEW(arena, Profiler);
  Map *rows = map_create(arena);
  profiler->entry = entry;
  profiler->row_of = ARENA_ARRAY(arena, int32_t, entry->n_instrs);
  for (int i = 0; i < entry->n_instrs; i++) {
    const DnnInstr *instr = &entry->instrs[i];
    profiler->row_of[i] = -1;
    if (!has_row(instr)) continue;
    uint64_t hash =
        is_transfer(instr) ? transfer_hash(instr) : launch_hash(instr);
    const void *key = (const void *)(uintptr_t)hash;
    int row = (int)(intptr_t)map_get(rows, key);
    if (!row) {
      vec_push(arena, &profiler->rows, (Row){.instr = instr});
      row = profiler->rows.n;
      map_put(rows, key, (void *)(intptr_t)row);
    }
    profiler->row_of[i] = row - 1;
  }
  return profiler;
}

/* ---- measuring ---- */

bool profiler_measures(const Profiler *profiler, const DnnEntryPoint *entry) {
  return profiler && profiler->entry == entry;
}

static void add_run(Profiler *profiler, int32_t row, int64_t ps) {
  profiler->rows.data[row].sum += ps;
  profiler->rows.data[row].n++;
}

Status profiler_before_launch(Profiler *profiler, Device *device,
                              const DnnInstr *instr) {
  int32_t row = profiler->row_of[instr - profiler->entry->instrs];
  if (row < 0) return STATUS_OK;
  profiler->row = row;
  profiler->left = instr->n_launches;
  if (device->time_begin) return device->time_begin(device);
  if (!profiler->mark_ns) profiler->mark_ns = clock_ns();
  return STATUS_OK;
}

/* A launch outside of runs, as a copy before a collective, is in no row. */
Status profiler_after_launch(Profiler *profiler, Device *device) {
  int64_t ps;
  if (profiler->left == 0) {
    profiler->mark_ns = 0;
    return STATUS_OK;
  }
  if (--profiler->left > 0) return STATUS_OK;
  if (device->time_end) {
    TRY(device->time_end(device, &ps));
  } else {
    int64_t now = clock_ns();
    ps = (now - profiler->mark_ns) * PS_PER_NS;
    profiler->mark_ns = now;
  }
  add_run(profiler, profiler->row, ps);
  return STATUS_OK;
}

void profiler_add_transfer(Profiler *profiler, const DnnInstr *instr,
                           int64_t ns) {
  add_run(profiler, profiler->row_of[instr - profiler->entry->instrs],
          ns * PS_PER_NS);
  profiler->mark_ns = 0;
}

void profiler_end_step(Profiler *profiler) {
  profiler->mark_ns = 0;
  bool is_first = profiler->steps++ == 1; /* that counts */
  if (is_first) profiler->n_kept = 0;
  int64_t at = profiler->n_kept++ % LAST_STEPS, total = 0;
  for (int i = 0; i < profiler->rows.n; i++) {
    Row *row = &profiler->rows.data[i];
    if (is_first) row->runs = 0;
    if (!is_transfer(row->instr)) total += row->sum;
    row->means[at] = row->n > 0 ? row->sum / row->n : -1;
    row->runs += row->n;
    row->sum = row->n = 0;
  }
  profiler->totals[at] = total;
}

/* ---- the files ---- */

Status profiler_check(const char *path) {
  struct stat info;
  if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
    return status_make(STATUS_invalid,
                       "'%s' is %s; a profile is written to a file", path,
                       S_ISDIR(info.st_mode) ? "a folder" : "no file");
  return file_check_output(path);
}

typedef struct KeptStep {
  int64_t total;
  int at;
} KeptStep;

static int by_total(const void *a, const void *b) {
  const KeptStep *x = a, *y = b;
  if (x->total != y->total) return x->total < y->total ? -1 : 1;
  return x->at - y->at;
}

/* The steps that are neither the fastest nor the slowest, *out_n of them. */
static KeptStep *typical_steps(const Profiler *profiler, Arena *arena,
                               int *out_n) {
  int n = profiler->n_kept < LAST_STEPS ? (int)profiler->n_kept : LAST_STEPS;
  KeptStep *steps = ARENA_ARRAY(arena, KeptStep, n + 1);
  for (int i = 0; i < n; i++) steps[i] = (KeptStep){profiler->totals[i], i};
  qsort(steps, (size_t)n, sizeof *steps, by_total);
  *out_n = n - n / 4 * 2;
  return steps + n / 4;
}

static int64_t typical_time(const Row *row, const KeptStep *steps, int n) {
  int64_t sum = 0, n_with = 0;
  for (int i = 0; i < n; i++) {
    int64_t mean = row->means[steps[i].at];
    if (mean < 0) continue;
    sum += mean;
    n_with++;
  }
  return n_with > 0 ? sum / n_with : 0;
}

/* The measured times of all ranks, as rank 0 sees them: the rows of a program
 * are known from its tables, so times alone are gathered. */
typedef struct Measured {
  const DnnBundle *bundle;
  Profiler *const *profilers; /* of each program: its rows, without times */
  int most_rows;
  int64_t *cells; /* [world][most_rows][CELLS] */
} Measured;

enum { CELL_ps, CELL_runs, CELLS };

static const int64_t *cells_of(const Measured *m, int rank, int row) {
  return m->cells + ((int64_t)rank * m->most_rows + row) * CELLS;
}

static int program_of(const Measured *m, int rank) {
  return (int)(bundle_program(m->bundle, rank) - m->bundle->programs);
}

static Status gather_times(const Profiler *own, Arena *arena, Comm *comm,
                           const DnnBundle *bundle, Measured *out) {
  int n_steps;
  Profiler **profilers = ARENA_ARRAY(arena, Profiler *, bundle->n_programs);
  *out = (Measured){.bundle = bundle, .profilers = profilers};
  for (int i = 0; i < bundle->n_programs; i++) {
    profilers[i] = profiler_create(
        arena, program_entry_point(&bundle->programs[i], ENTRY_train));
    if (profilers[i]->rows.n > out->most_rows)
      out->most_rows = profilers[i]->rows.n;
  }
  int64_t n = (int64_t)out->most_rows * CELLS;
  int64_t *cells = ARENA_ARRAY(arena, int64_t, n);
  const KeptStep *steps = typical_steps(own, arena, &n_steps);
  for (int i = 0; i < own->rows.n; i++) {
    cells[i * CELLS + CELL_ps] =
        typical_time(&own->rows.data[i], steps, n_steps);
    cells[i * CELLS + CELL_runs] = own->rows.data[i].runs;
  }
  out->cells = ARENA_ARRAY(arena, int64_t, n * comm->world);
  return comm->gather(comm, cells, (int64_t)sizeof *cells * n, out->cells);
}

/* The rank of a program whose launches of a step take longest. */
static int slowest_rank(const Measured *m, int program) {
  const Profiler *profiler = m->profilers[program];
  int slowest = -1;
  double longest = -1;
  for (int rank = 0; rank < m->bundle->world; rank++) {
    double total = 0;
    if (program_of(m, rank) != program) continue;
    for (int i = 0; i < profiler->rows.n; i++)
      if (!is_transfer(profiler->rows.data[i].instr))
        total += (double)cells_of(m, rank, i)[CELL_ps] *
                 (double)cells_of(m, rank, i)[CELL_runs];
    if (total > longest) slowest = rank;
    if (total > longest) longest = total;
  }
  return slowest;
}

/* ---- lines ---- */

/* Lines with the same first cells are one: stages may run equal launches. */
typedef struct Line {
  const char *cells;
  int64_t ps, runs;
} Line;

typedef struct Lines {
  Arena *arena;
  Map *index; /* hash of the cells -> line, plus 1 */
  VEC(Line) lines;
} Lines;

/* Returns the line with these cells, new or known. */
static Line *find_line(Lines *lines, const char *cells) {
  uint64_t hash = hash_bytes(cells, strlen(cells) + 1, 0);
  const void *key = (const void *)(uintptr_t)hash;
  int at = (int)(intptr_t)map_get(lines->index, key);
  if (at) return &lines->lines.data[at - 1];
  vec_push(lines->arena, &lines->lines, (Line){.cells = cells});
  map_put(lines->index, key, (void *)(intptr_t)lines->lines.n);
  return &lines->lines.data[lines->lines.n - 1];
}

static void add_runs(Line *line, int64_t ps, int64_t runs) {
  int64_t all = line->runs + runs;
  line->ps = (int64_t)(((double)line->ps * (double)line->runs +
                        (double)ps * (double)runs) /
                       (double)all);
  if (line->runs == 0) line->ps = ps;
  line->runs = all;
}

static Status write_lines(const Lines *lines, const char *path,
                          const char *head) {
  Text out = text_create(lines->arena);
  text_add(&out, head);
  for (int i = 0; i < lines->lines.n; i++) {
    const Line *line = &lines->lines.data[i];
    text_printf(&out, "%s,%lld,%lld\n", line->cells, (long long)line->ps,
                (long long)line->runs);
  }
  return file_replace(path, text_string(&out), out.n);
}

/* In quotes where it has what separates cells. */
static void add_cell(Text *out, const char *cell) {
  if (!strpbrk(cell, ",\"\r\n")) {
    text_add(out, cell);
    return;
  }
  text_add(out, "\"");
  for (; *cell; cell++) {
    if (*cell == '"') text_add(out, "\"");
    text_add_n(out, cell, 1);
  }
  text_add(out, "\"");
}

static const char *launch_cells(Arena *arena, const DnnInstr *instr,
                                int cores) {
  static const char *const phases[] = {
#define PHASE(name, spelling, words) spelling,
#include "support/phases.def"
  };
  Text out = text_create(arena);
  ASSERT(instr->phase < ARRAY_LENGTH(phases));
  add_cell(&out, instr->path);
  text_printf(&out, ",%s,%016llx,%d", phases[instr->phase],
              (unsigned long long)instr->key, cores);
  return text_string(&out);
}

/* Ranks whose numbers differ in these digits: "2x4 2x1". */
static void add_group(Text *out, const DnnGroup *group) {
  for (int i = 0; i < group->n_digits; i++)
    text_printf(out, "%s%dx%d", i ? " " : "", group->digits[i].size,
                group->digits[i].stride);
}

static const char *transfer_cells(Arena *arena, const DnnCollective *what) {
  static const char *const kinds[] = {
      [DNN_ALL_REDUCE] = "all_reduce", [DNN_REDUCE_SCATTER] = "reduce_scatter",
      [DNN_ALL_GATHER] = "all_gather", [DNN_ALL_TO_ALL] = "all_to_all",
      [DNN_BROADCAST] = "broadcast",   [DNN_PERMUTE] = "permute"};
  Text out = text_create(arena);
  text_printf(&out, "%s,", kinds[what->kind]);
  add_group(&out, what->group);
  text_printf(&out, ",%lld,%d", (long long)comm_payload(what), what->n_parts);
  return text_string(&out);
}

static Status write_launches(const Measured *m, Arena *arena, const char *path,
                             int cores) {
  Lines lines = {.arena = arena, .index = map_create(arena)};
  for (int p = 0; p < m->bundle->n_programs; p++) {
    const Profiler *of = m->profilers[p];
    int rank = slowest_rank(m, p);
    for (int i = 0; i < of->rows.n && rank >= 0; i++) {
      const DnnInstr *instr = of->rows.data[i].instr;
      const int64_t *cells = cells_of(m, rank, i);
      if (!is_transfer(instr) && cells[CELL_runs] > 0)
        add_runs(find_line(&lines, launch_cells(arena, instr, cores)),
                 cells[CELL_ps], cells[CELL_runs]);
    }
  }
  return write_lines(&lines, path, "path,phase,kernel,cores,ps,runs\n");
}

/* A message waits for the stage that sends it, so it says nothing of links. */
static Status write_transfers(const Measured *m, Arena *arena,
                              const char *path) {
  Lines lines = {.arena = arena, .index = map_create(arena)};
  for (int rank = 0; rank < m->bundle->world; rank++) {
    const Profiler *of = m->profilers[program_of(m, rank)];
    for (int i = 0; i < of->rows.n; i++) {
      const DnnInstr *instr = of->rows.data[i].instr;
      const int64_t *cells = cells_of(m, rank, i);
      const DnnCollective *what = instr->detail;
      if (!is_transfer(instr) || !what->group || cells[CELL_runs] == 0)
        continue;
      Line *line = find_line(&lines, transfer_cells(arena, what));
      if (cells[CELL_ps] > line->ps) line->ps = cells[CELL_ps];
      if (cells[CELL_runs] > line->runs) line->runs = cells[CELL_runs];
    }
  }
  return write_lines(&lines, path, "op,group,bytes,parts,ps,runs\n");
}

Status profiler_write(const Profiler *profiler, Arena *arena,
                      const Device *device, Comm *comm, const DnnBundle *bundle,
                      const char *launches, const char *transfers) {
  Measured measured;
  TRY(gather_times(profiler, arena, comm, bundle, &measured));
  if (comm->rank != 0 || profiler->steps == 0) return STATUS_OK;
  if (launches) TRY(write_launches(&measured, arena, launches, device->cores));
  if (!transfers) return STATUS_OK;
  return write_transfers(&measured, arena, transfers);
}
