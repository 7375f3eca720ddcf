/*
 * inspect_text.c -- prints an Inspection as tables: the step by term, then time
 * and memory by path, memory by kind, sharding by name, lines of the plan.
 *
 * A table has few rows however large the model is: what is alike is one row,
 * and so is what follows the first rows.  The JSON object has all of them.
 */
#include <string.h>

#include "tools/show/inspect.h"
#include "tools/show/show_stages.h"

enum { MOST_ROWS = 10 };

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
    if (i < MOST_ROWS) {
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

/* Less than a hundredth of the arena. */
static bool is_small(const KindRow *row, Bytes arena) {
  return row->most < arena / 100;
}

static bool folds_kinds(const Inspection *in, Bytes arena) {
  enum { LEAST = 3 };
  int n = 0;
  for (int i = 0; i < in->kinds.n; i++)
    n += is_small(&in->kinds.data[i], arena);
  return n >= LEAST;
}

static void print_kind_rows(Text *out, const Inspection *in, Bytes arena) {
  Text names = text_create(out->arena);
  Bytes small = 0;
  bool folds = folds_kinds(in, arena);
  for (int i = 0; i < in->kinds.n; i++) {
    const KindRow *row = &in->kinds.data[i];
    if (folds && is_small(row, arena)) {
      text_printf(&names, "%s%s", names.n ? ", " : "", row->name);
      small += row->at_peak;
      continue;
    }
    text_printf(out, "  %-20s %14s %14s  %s\n", row->name,
                bytes_text(out, row->at_peak), bytes_text(out, row->most),
                row->words);
  }
  if (folds)
    text_printf(out, "  %-20s %14s %14s  %s, each below 1 %% of the arena\n",
                "others", bytes_text(out, small), "", text_string(&names));
}

static void print_kinds(Text *out, const Inspection *in) {
  Bytes arena = priced_program(in->priced, in->priced->shown)->peak;
  text_printf(out, "\n%-22s %14s %14s\n", "memory by kind", "at the peak",
              "at most");
  print_kind_rows(out, in, arena);
  text_printf(out, "  %-20s %14s %14s  between values, and %s\n", "holes",
              bytes_text(out, in->holes), "",
              in->priced->step->edges.n > 0
                  ? "values of other micro-batches and stages"
                  : "alignment");
  if (in->others > 0)
    text_printf(out, "  %-20s %14s %14s  of '%s', more than a training step\n",
                "other entry points", bytes_text(out, in->others), "",
                driver_largest(in->priced->c)->name);
  text_printf(out, "  %-20s %14s %14s  of a rank\n", "arena",
              bytes_text(out, arena), "");
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

/* "B    data 10819; replicated 81" */
static void print_names(Text *out, const Inspection *in) {
  const Mesh *mesh = &in->priced->stage->graph->mesh;
  if (in->names.n == 0) return;
  text_printf(out, "\n%-22s %s", "sharding by name",
              "axes, and values of a step that are sharded so");
  for (int i = 0; i < in->names.n; i++) {
    const NameRow *row = &in->names.data[i];
    bool is_next = i > 0 && row->dim == row[-1].dim;
    text_printf(out, is_next ? "; " : "\n  %-20s ", row->dim);
    text_printf(out, "%s %d", inspect_axes(out->arena, mesh, row->axes),
                row->n_values);
  }
  text_add(out, "\n");
}

/* ---- parameters ---- */

/* Parameters that differ in the last words of their paths alone. */
typedef struct ParameterRun {
  Text paths; /* "block[0..95].attn.wq, wk, wv" */
  const char *first, *type;
  int n_paths;
  Bytes bytes; /* of one */
} ParameterRun;

static const char *last_word(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot ? dot + 1 : path;
}

static const char *placement_text(const Inspection *in, Arena *arena,
                                  const ParameterRow *row) {
  Text text = text_create(arena);
  type_print(&text, row->type, &in->priced->stage->graph->mesh);
  return text_string(&text);
}

static bool join_parameter(ParameterRun *run, const ParameterRow *row,
                           const char *path, const char *type) {
  size_t n = (size_t)(last_word(path) - path);
  if (n == 0 || n != (size_t)(last_word(run->first) - run->first) ||
      strncmp(path, run->first, n) != 0 || strcmp(type, run->type) != 0 ||
      row->bytes != run->bytes)
    return false;
  text_printf(&run->paths, ", %s", last_word(path));
  run->n_paths += row->paths.n_paths;
  return true;
}

static void print_run(Text *out, ParameterRun *run) {
  text_printf(out, "  %-36s %6d %10s  %s\n", text_string(&run->paths),
              run->n_paths, bytes_text(out, run->bytes), run->type);
}

static void print_parameters(Text *out, const Inspection *in) {
  VEC(ParameterRun) runs = {0};
  int n_others = 0;
  if (in->parameters.n == 0) return;
  text_printf(out, "\n%-38s %6s %10s  %s\n", "parameters", "paths",
              "bytes each", "placement");
  for (int i = 0; i < in->parameters.n; i++) {
    const ParameterRow *row = &in->parameters.data[i];
    const char *path = path_text(out->arena, &row->paths);
    const char *type = placement_text(in, out->arena, row);
    if (runs.n > 0 && join_parameter(&runs.data[runs.n - 1], row, path, type))
      continue;
    ParameterRun run = {.paths = text_create(out->arena),
                        .first = path,
                        .type = type,
                        .n_paths = row->paths.n_paths,
                        .bytes = row->bytes};
    text_add(&run.paths, path);
    vec_push(out->arena, &runs, run);
  }
  for (int i = 0; i < runs.n; i++) {
    if (i < MOST_ROWS)
      print_run(out, &runs.data[i]);
    else
      n_others += runs.data[i].n_paths;
  }
  if (n_others > 0) text_printf(out, "  %-36s %6d\n", "others", n_others);
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

/* A line that asks for no transfer is shown where the plan was priced without
 * it. */
static bool has_row(const PlanLine *line, int n_shown) {
  bool costs = line->n_transfers > 0 || line->exposed > 0;
  bool is_first = n_shown < MOST_ROWS || line->spans.n == 0;
  return line->is_legal || (costs && is_first);
}

static void print_line(Text *out, int width, const PlanLine *line) {
  text_printf(out, "  %-*s %9lld %14s %14s", width, line->text,
              (long long)line->n_transfers, inspect_ms(out->arena, line->busy),
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

static void add_line(PlanLine *sum, const PlanLine *line) {
  sum->n_transfers += line->n_transfers;
  sum->busy += line->busy;
  sum->exposed += line->exposed;
}

/* Returns the width of the longest row, unless that is very long. */
static int lines_width(const PlanLines *lines) {
  enum { LEAST = 44, MOST = 72 };
  int width = LEAST;
  for (int i = 0, n = 0; i < lines->lines.n; i++) {
    const PlanLine *line = &lines->lines.data[i];
    if (!has_row(line, n)) continue;
    n++;
    int length = (int)strlen(line->text);
    if (length > width) width = length < MOST ? length : MOST;
  }
  return width;
}

static void print_lines(Text *out, const Inspection *in) {
  int width = lines_width(&in->lines), n_shown = 0, n_others = 0;
  PlanLine others = {0};
  text_printf(out, "\n%-*s %9s %14s %14s  %s\n", width + 2, "lines of the plan",
              "transfers", "in queues", "exposed",
              "without it, a step and the arena");
  for (int i = 0; i < in->lines.lines.n; i++) {
    const PlanLine *line = &in->lines.lines.data[i];
    bool is_shown = has_row(line, n_shown);
    if (is_shown) print_line(out, width, line);
    if (!is_shown) add_line(&others, line);
    n_shown += is_shown;
    n_others += !is_shown && line->spans.n > 0;
  }
  others.text = arena_printf(out->arena, "%d other line%s", n_others,
                             n_others == 1 ? "" : "s");
  if (n_others > 0) print_line(out, width, &others);
  Ps step = inspect_step(in);
  text_printf(out, "  %-*s %9s %14s %14s\n", width, "kernels, of no line", "",
              "", inspect_ms(out->arena, plan_lines_rest(&in->lines, step)));
  text_printf(out, "  %-*s %9s %14s %14s\n", width, "step", "", "",
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
  print_parameters(out, in);
  print_lines(out, in);
}
