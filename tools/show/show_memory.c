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

/* The persistent buffers by role, then what a training step needs besides. */
static void add_roles(Text *out, const Compilation *c, bool is_json) {
  int64_t bytes[N_ROLES] = {0};
  const EntryPoint *step = driver_training_step(c);
  const PersistentBuffers *persistent = &driver_only_program(c)->persistent;
  for (int i = 0; i < persistent->buffers.n; i++)
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
              (long long)driver_arena_bytes(c));
}

/* ---- by entry point ---- */

static void add_entry_json(Text *out, const EntryPoint *entry,
                           const char *whole) {
  text_printf(out, "{\"name\":\"%s\",\"arena_bytes\":%lld", entry->name,
              (long long)entry_point_arena_bytes(entry));
  text_printf(out, ",\"microbatches\":%d,\"whole_batch_for\":",
              mesh_microbatches(&entry->stages.data[0].graph->mesh));
  if (whole)
    text_add_json(out, whole);
  else
    text_add(out, "null");
  text_add(out, "}");
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
    if (!is_json && c->classes.n > 1)
      text_printf(out, " from rank %d on\n", class->first_rank);
    for (int i = 0; i < class->program.n_entry_points; i++) {
      const EntryPoint *entry = &class->program.entry_points[i];
      if (is_json && n++) text_add(out, ",");
      (is_json ? add_entry_json : add_entry_row)(out, entry,
                                                 driver_whole_batch(c, entry));
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
  text_printf(out, "  %-20s %14lld %14s  between values\n", "holes",
              (long long)(peak->packed - peak->live), "");
}

void show_memory(Text *out, const Compilation *c, bool is_json) {
  const EntryPoint *entry = driver_training_step(c);
  add_roles(out, c, is_json);
  if (entry) {
    const ProgramStage *step = entry_point_stage(entry);
    MemoryPeak peak =
        memory_peak(step->graph, step->assignment, &c->target.backend->target);
    if (is_json)
      add_peak_json(out, step, &peak);
    else
      add_peak_table(out, step, &peak);
  }
  if (is_json) text_add(out, "},");
  show_entry_points(out, c, is_json);
}
