/*
 * inspect_text.c -- prints an Inspection as tables: the step by term, then time
 * and memory by path, memory by kind, sharding by name, lines of the plan.
 */
#include "tools/show/inspect.h"
#include "tools/show/show_stages.h"

enum { MOST_PATHS = 20 };

static const char *bytes_text(const Text *out, Bytes bytes) {
  return text_quantity(out->arena, (double)bytes, "B");
}

void inspect_print_rates(Text *out, const Inspection *in) {
  double seconds = (double)in->priced->price.step * 1e-12;
  if (seconds <= 0) return;
  text_printf(
      out, "%s a second",
      text_quantity(out->arena, (double)in->samples / seconds, "samples"));
  if (in->has_tokens)
    text_printf(out, ", %s a second",
                text_quantity(out->arena, (double)in->items / seconds, "tok"));
  text_printf(out, ", MFU %.1f %%\n", 100 * in->mfu);
  text_printf(out, "MFU: %s\n", inspect_mfu_formula());
}

/* ---- by path ---- */

static Ps waits_of(const PathRow *row) {
  Ps sum = 0;
  for (int i = 0; i < N_COST_PARTS; i++)
    if (cost_part_is_wait((CostTerm)i)) sum += row->parts[i];
  return sum;
}

static void print_path(Text *out, const Inspection *in, const char *name,
                       const PathRow *row) {
  text_printf(out, "  %-36s %6d %14s %6.1f %% %14s %10s %10s\n", name,
              row->n_paths, inspect_ms(out->arena, row->time),
              100 * inspect_share(row->time, in->priced->price.step),
              inspect_ms(out->arena, waits_of(row)),
              bytes_text(out, row->at_peak), bytes_text(out, row->persistent));
}

static void print_paths(Text *out, const Inspection *in) {
  const PathRow *rows = in->paths.rows.data;
  PathRow rest = {0};
  text_printf(out, "\n%-38s %6s %14s %8s %14s %10s %10s\n", "by path", "paths",
              "time", "", "of it waits", "at peak", "stays");
  for (int i = 0; i < in->paths.rows.n; i++) {
    if (i < MOST_PATHS) {
      print_path(out, in, path_text(out->arena, &rows[i]), &rows[i]);
      continue;
    }
    rest.n_paths += rows[i].n_paths;
    rest.time += rows[i].time;
    rest.at_peak += rows[i].at_peak;
    rest.persistent += rows[i].persistent;
    for (int k = 0; k < N_COST_PARTS; k++) rest.parts[k] += rows[i].parts[k];
  }
  if (rest.n_paths > 0) print_path(out, in, "others", &rest);
}

/* ---- memory by kind, sharding ---- */

static void print_kinds(Text *out, const Inspection *in) {
  text_printf(out, "\n%-22s %14s %14s\n", "memory by kind", "at the peak",
              "at most");
  for (int i = 0; i < in->kinds.n; i++) {
    const KindRow *row = &in->kinds.data[i];
    text_printf(out, "  %-20s %14s %14s  %s\n", row->name,
                bytes_text(out, row->at_peak), bytes_text(out, row->most),
                row->words);
  }
  text_printf(out, "  %-20s %14s %14s  between values, and alignment\n",
              "holes", bytes_text(out, in->holes), "");
  if (in->others > 0)
    text_printf(out, "  %-20s %14s %14s  of '%s', more than a training step\n",
                "other entry points", bytes_text(out, in->others), "",
                driver_largest(in->priced->c)->name);
  text_printf(
      out, "  %-20s %14s %14s  of a rank\n", "arena",
      bytes_text(out, priced_program(in->priced, in->priced->shown)->peak), "");
  text_add(out, "\n");
  show_entry_points(out, in->priced->c, false);
}

const char *inspect_axes(Arena *arena, const Mesh *mesh, AxisList axes) {
  Text text = text_create(arena);
  for (; axes; axes >>= 4)
    text_printf(&text, "%s%s", text.n ? ", " : "",
                mesh->axes[(axes & 15) - 1].name);
  return text.n ? text_string(&text) : "replicated";
}

static void print_names(Text *out, const Inspection *in) {
  const Mesh *mesh = &in->priced->stage->graph->mesh;
  if (in->names.n == 0) return;
  text_printf(out, "\n%-22s %-24s %8s\n", "sharding by name", "over", "values");
  for (int i = 0; i < in->names.n; i++) {
    const NameRow *row = &in->names.data[i];
    text_printf(out, "  %-20s %-24s %8d\n", row->dim,
                inspect_axes(out->arena, mesh, row->axes), row->n_values);
  }
  text_printf(out, "\n%-38s %6s %10s  %s\n", "parameters", "paths",
              "bytes each", "placement");
  for (int i = 0; i < in->parameters.n; i++) {
    const ParameterRow *row = &in->parameters.data[i];
    text_printf(out, "  %-36s %6d %10s  ", path_text(out->arena, &row->paths),
                row->paths.n_paths, bytes_text(out, row->bytes));
    type_print(out, row->type, mesh);
    text_add(out, "\n");
  }
}

/* ---- lines of the plan ---- */

const char *inspect_signed_ms(Arena *arena, Ps time) {
  return arena_printf(arena, "%+.3f ms", (double)time * 1e-9);
}

const char *inspect_signed_bytes(Arena *arena, Bytes bytes) {
  double size = (double)(bytes < 0 ? -bytes : bytes);
  return arena_printf(arena, "%s%s", bytes < 0 ? "-" : "+",
                      text_quantity(arena, size, "B"));
}

static void print_lines(Text *out, const Inspection *in) {
  text_printf(out, "\n%-46s %9s %14s %14s  %s\n", "lines of the plan",
              "transfers", "in queues", "exposed",
              "without it, a step and the arena");
  for (int i = 0; i < in->lines.lines.n; i++) {
    const PlanLine *line = &in->lines.lines.data[i];
    text_printf(out, "  %-44s %9lld %14s %14s", line->text,
                (long long)line->n_transfers,
                inspect_ms(out->arena, line->busy),
                inspect_ms(out->arena, line->exposed));
    if (line->is_legal)
      text_printf(out, "  %s, %s\n",
                  inspect_signed_ms(out->arena, line->step_change),
                  inspect_signed_bytes(out->arena, line->peak_change));
    else if (line->is_tried)
      text_printf(out, "  no plan: %s\n", line->why);
    else
      text_add(out, "\n");
  }
  Ps step = inspect_step(in);
  text_printf(out, "  %-44s %9s %14s %14s\n", "kernels, of no line", "", "",
              inspect_ms(out->arena, plan_lines_rest(&in->lines, step)));
  text_printf(out, "  %-44s %9s %14s %14s\n", "step", "", "",
              inspect_ms(out->arena, step));
}

static void print_stages(Text *out, const Inspection *in) {
  const Priced *p = in->priced;
  if (p->step->edges.n == 0) return;
  text_add(out, "\n");
  show_stages(out, p->c);
  text_printf(out,
              "\nthe tables that follow: times of %s, memory and sharding of "
              "stage %d (--stage N)\n",
              show_stage_numbers(out->arena, p->step), p->stage->number);
}

void inspect_print(Text *out, const Inspection *in) {
  priced_print(out, in->priced);
  inspect_print_rates(out, in);
  print_stages(out, in);
  print_paths(out, in);
  print_kinds(out, in);
  print_names(out, in);
  print_lines(out, in);
}
