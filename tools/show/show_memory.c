/*
 * show_memory.c -- prints the memory of a rank for `dnnc show PLAN --model
 * MODEL`: persistent buffers by role, and what the values of a training step
 * are, by kind (passes/buffers/peak_kinds.def).
 *
 *     values of a step     at the peak        at most
 *       gathered               5242880        9437184  parameters that ...
 *       saved                 25165824       25165824  values of the ...
 *
 * The peak is the moment at which the values that are alive take the most
 * bytes; each kind may have its own largest sum at another moment.
 */
#include "passes/buffers/memory_peak.h"
#include "tools/commands/tools.h"
#include "tools/show/show_stages.h"

/* The persistent buffers by role, then what a training step needs besides. */
static void add_roles(Text *out, const RankProgram *program, bool is_json) {
  int64_t bytes[N_ROLES] = {0};
  const EntryPoint *step = rank_program_find(program, ENTRY_train);
  const EntryPoint *largest = driver_largest_of(program);
  const PersistentBuffers *persistent = &program->persistent;
  for (int i = 0; i < persistent->buffers.n; i++)
    if (persistent->buffers.data[i].offset < HOST_ORIGIN)
      bytes[persistent->buffers.data[i].role] +=
          persistent->buffers.data[i].bytes;
  text_add(out, is_json ? "\"memory\":{" : "bytes on each rank\n");
  for (int role = 0; role < N_ROLES; role++)
    if (bytes[role] > 0)
      text_printf(out, is_json ? "\"%s\":%lld," : "  %-20s %14lld\n",
                  role_name((Role)role), (long long)bytes[role]);
  if (step)
    text_printf(out, is_json ? "\"%s\":%lld," : "  %-20s %14lld\n",
                is_json ? "values" : "values of a step",
                (long long)(entry_point_arena_bytes(step) - persistent->bytes));
  text_printf(out, is_json ? "\"%s\":%lld" : "  %-20s %14lld\n", "arena",
              (long long)(largest ? entry_point_arena_bytes(largest) : 0));
  int64_t on_host = driver_host_bytes_of(program);
  if (on_host > 0)
    text_printf(out, is_json ? ",\"%s\":%lld" : "  %-20s %14lld\n",
                is_json ? "host_arena" : "host memory", (long long)on_host);
}

/* The parts of the arena of a step of stages, the first of which is in the
 * table above. */
static void add_parts(Text *out, const ArenaParts *arena) {
  const struct {
    const char *name, *words;
    int64_t bytes;
  } parts[] = {
      {"persistent", "stays from step to step", arena->persistent},
      {"step", "data, and what several segments use once a step", arena->step},
      {"frames", "values of micro-batches between their passes", arena->frames},
      {"messages", "values that are sent and received", arena->messages},
      {"scratch", "of one segment at a time", arena->scratch}};
  text_add(out, "arena of a step\n");
  for (int i = 0; i < ARRAY_LENGTH(parts); i++)
    text_printf(out, "  %-20s %14lld  %s\n", parts[i].name,
                (long long)parts[i].bytes, parts[i].words);
}

/* ---- which classes are shown ---- */

/* Where there are more classes, the text has the one that needs most. */
enum { MOST_CLASSES = 4 };

static int64_t arena_of(const ProgramClass *class) {
  const EntryPoint *largest = driver_largest_of(&class->program);
  return largest ? entry_point_arena_bytes(largest) : 0;
}

static bool is_shown(const Compilation *c, int class, bool is_json) {
  int largest = 0;
  for (int k = 1; k < c->classes.n; k++)
    if (arena_of(&c->classes.data[k]) > arena_of(&c->classes.data[largest]))
      largest = k;
  return is_json || c->classes.n <= MOST_CLASSES || class == largest;
}

/* ---- by entry point ---- */

static void add_entry_json(Text *out, const EntryPoint *entry, int class,
                           const char *whole) {
  text_printf(out, "{\"name\":\"%s\",\"arena_bytes\":%lld", entry->name,
              (long long)entry_point_arena_bytes(entry));
  text_printf(out, ",\"microbatches\":%d,\"whole_batch_for\":",
              mesh_microbatches(&entry->stages.data[0].graph->mesh));
  if (whole)
    text_add_json(out, whole);
  else
    text_add(out, "null");
  text_printf(out, ",\"class\":%d}", class);
}

static void add_entry_row(Text *out, const EntryPoint *entry,
                          const char *whole) {
  int n = mesh_microbatches(&entry->stages.data[0].graph->mesh);
  text_printf(out, "  %-20s %14lld  %d micro-batch%s", entry->name,
              (long long)entry_point_arena_bytes(entry), n, n == 1 ? "" : "es");
  if (whole) text_printf(out, ": %s needs the batch at once", whole);
  text_add(out, "\n");
}

/* Lists those of each class of ranks, in their order. */
void show_entry_points(Text *out, const Compilation *c, bool is_json) {
  text_add(out, is_json ? "\"entry_points\":[" : "arena by entry point\n");
  int n = 0;
  for (int k = 0; k < c->classes.n; k++) {
    const ProgramClass *class = &c->classes.data[k];
    if (!is_shown(c, k, is_json)) continue;
    if (!is_json && c->classes.n > 1)
      text_printf(out, " from rank %d on\n", class->first_rank);
    for (int i = 0; i < class->program.n_entry_points; i++) {
      const EntryPoint *entry = &class->program.entry_points[i];
      const char *whole = driver_whole_batch(c, entry);
      if (is_json && n++) text_add(out, ",");
      if (is_json)
        add_entry_json(out, entry, k, whole);
      else
        add_entry_row(out, entry, whole);
    }
  }
  if (is_json) text_add(out, "]");
}

/* ---- the training step at its peak ---- */

static const char *peak_path(const ProgramStage *step, const MemoryPeak *peak) {
  const char *path =
      peak->node < 0 ? NULL : step->graph->nodes.data[peak->node]->path;
  return path ? path : "";
}

static void add_peak_json(Text *out, const ProgramStage *step,
                          const MemoryPeak *peak) {
  text_printf(out, ",\"peak\":{\"live\":%lld,\"packed\":%lld,\"at\":",
              (long long)peak->live, (long long)peak->packed);
  text_add_json(out, peak_path(step, peak));
  for (int k = 0; k < N_PEAK_KINDS; k++)
    text_printf(out, ",\"%s\":%lld,\"most_%s\":%lld",
                peak_kind_name((PeakKind)k), (long long)peak->bytes[k],
                peak_kind_name((PeakKind)k), (long long)peak->most[k]);
  text_add(out, "}");
}

static void add_peak_table(Text *out, const ProgramStage *step,
                           const MemoryPeak *peak) {
  text_printf(out, "%-22s %14s %14s\n", "values of a step", "at the peak",
              "at most");
  for (int k = 0; k < N_PEAK_KINDS; k++)
    if (peak->most[k] > 0)
      text_printf(out, "  %-20s %14lld %14lld  %s\n",
                  peak_kind_name((PeakKind)k), (long long)peak->bytes[k],
                  (long long)peak->most[k], peak_kind_words((PeakKind)k));
  text_printf(out, "  %-20s %14lld %14s  at '%s'\n", "alive",
              (long long)peak->live, "", peak_path(step, peak));
  text_printf(out, "  %-20s %14lld %14s  between values%s\n", "holes",
              (long long)(peak->packed - peak->live), "",
              step->segments.n > 0 && step->assignment->move_bytes
                  ? ", and values of other micro-batches and stages"
                  : "");
}

static void add_peak(Text *out, const Compilation *c, const ProgramStage *stage,
                     bool is_json) {
  MemoryPeak peak =
      memory_peak(stage->graph, stage->assignment, &c->target.backend->target);
  (is_json ? add_peak_json : add_peak_table)(out, stage, &peak);
}

/* ---- ranks that run different stages ---- */

static const char *class_name(Arena *arena, const ProgramClass *class,
                              const EntryPoint *step) {
  return class->program.title ? class->program.title
                              : show_stage_numbers(arena, step);
}

static void add_class_json(Text *out, const Compilation *c,
                           const ProgramClass *class) {
  const EntryPoint *step = rank_program_find(&class->program, ENTRY_train);
  text_printf(out, "{\"first_rank\":%d,\"ranks\":%d,", class->first_rank,
              class->n_ranks);
  add_roles(out, &class->program, true);
  text_add(out, "}");
  if (step) {
    text_add(out, ",");
    show_arena_json(out, &step->arena);
    text_add(out, ",\"stages\":[");
    for (int s = 0; s < step->stages.n; s++) {
      text_printf(out, "%s{\"stage\":%d", s ? "," : "",
                  step->stages.data[s].number);
      add_peak(out, c, &step->stages.data[s], true);
      text_add(out, "}");
    }
    text_add(out, "]");
  }
  text_add(out, "}");
}

static void add_class_tables(Text *out, const Compilation *c,
                             const ProgramClass *class) {
  const EntryPoint *step = rank_program_find(&class->program, ENTRY_train);
  text_printf(out, "\nrank%s %s%s%s: ", class->n_ranks > 1 ? "s" : "",
              show_ranks(out->arena, class->first_rank, class->n_ranks),
              step ? ", " : "",
              step ? class_name(out->arena, class, step) : "");
  add_roles(out, &class->program, false);
  if (!step) return;
  if (!class->program.title) add_parts(out, &step->arena);
  for (int s = 0; s < step->stages.n; s++) {
    if (step->stages.n > 1)
      text_printf(out, "stage %d: ", step->stages.data[s].number);
    add_peak(out, c, &step->stages.data[s], false);
  }
}

static void show_memory_of_stages(Text *out, const Compilation *c,
                                  bool is_json) {
  text_add(out, is_json ? "\"classes\":[" : "");
  for (int k = 0; k < c->classes.n; k++) {
    if (!is_shown(c, k, is_json)) continue;
    if (is_json && k) text_add(out, ",");
    (is_json ? add_class_json : add_class_tables)(out, c, &c->classes.data[k]);
  }
  if (!is_json && c->classes.n > MOST_CLASSES)
    text_printf(out, "\nthe other %d classes of ranks need no more (--json)\n",
                c->classes.n - 1);
  text_add(out, is_json ? "]," : "\n");
}

static bool has_classes(const Compilation *c) {
  return (c->plan && c->plan->stages.n > 1) || plan_servers(c->plan);
}

void show_memory(Text *out, const Compilation *c, bool is_json) {
  if (has_classes(c)) {
    show_memory_of_stages(out, c, is_json);
    show_entry_points(out, c, is_json);
    return;
  }
  const RankProgram *program = driver_only_program(c);
  const EntryPoint *entry = rank_program_find(program, ENTRY_train);
  add_roles(out, program, is_json);
  if (entry) add_peak(out, c, entry_point_stage(entry), is_json);
  if (is_json) text_add(out, "},");
  show_entry_points(out, c, is_json);
}
