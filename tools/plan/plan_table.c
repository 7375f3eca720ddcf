/*
 * plan_table.c -- prints the best plan of each mesh, or of each cluster and
 * number of ranks, as a table.
 *
 *     cluster     ranks       step     MFU  samples/s  tokens/s  a device
 *     h100x256        8  12.345 ms  41.2 %       2074   1.06 M   132.70 k
 *
 * All rows of one table are prices of whole programs.
 */
#include "tools/plan/plan_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the command line ---- */

/* Reads "8,16,32"; prints a mistake. */
static bool read_ranks(Arena *arena, const char *text, PlanMachinesList *out) {
  for (const char *at = text;;) {
    char *end;
    errno = 0;
    long long ranks = strtoll(at, &end, 10);
    if (errno || end == at || (*end && *end != ',') || ranks < 1) {
      message_print("dnnc: error: --ranks takes integers of at least 1, as in "
                    "8 or 8,16,32, not '%s'\n",
                    text);
      return false;
    }
    vec_push(arena, out, (PlanMachines){.ranks = ranks});
    if (!*end) return true;
    at = end + 1;
  }
}

bool plan_read_machines(Tool *tool, PlanMachinesList *out) {
  Options *options = &tool->options;
  PlanMachinesList ranks = {0};
  if (!options->rank_list)
    vec_push(tool->arena, &ranks, (PlanMachines){.ranks = -1});
  else if (!read_ranks(tool->arena, options->rank_list, &ranks))
    return false;
  for (int i = 0; i < options->clusters.n || i == 0; i++)
    for (int k = 0; k < ranks.n; k++)
      vec_push(tool->arena, out,
               (PlanMachines){.cluster = options->clusters.n
                                             ? options->clusters.data[i]
                                             : NULL,
                              .ranks = ranks.data[k].ranks});
  options->cluster = out->data[0].cluster;
  options->ranks = out->data[0].ranks;
  return true;
}

/* ---- output ---- */

static const char *rate(const Text *out, double value) {
  return text_quantity(out->arena, value, "");
}

static void print_head(Text *out) {
  text_printf(out, "%-20s %6s %14s %7s %11s %11s %11s %11s  %s\n", "cluster",
              "ranks", "step, estimate", "MFU", "samples/s", "tokens/s",
              "a device", "memory", "plan");
}

static void print_row(Text *out, const TableRow *row) {
  double samples = table_row_per_second(row, row->samples);
  double tokens = table_row_per_second(row, row->items);
  text_printf(out, "%-20s %6d ", tool_base_name(out->arena, row->cluster),
              row->ranks);
  if (!row->text) {
    text_add(out, "no plan is legal\n");
    return;
  }
  text_printf(out, "%14s %5.1f %% %11s %11s %11s %11s  %s%s\n",
              inspect_ms(out->arena, row->price.step), 100 * table_row_mfu(row),
              rate(out, samples), row->has_tokens ? rate(out, tokens) : "-",
              rate(out, (row->has_tokens ? tokens : samples) / row->ranks),
              text_quantity(out->arena, (double)row->price.peak, "B"),
              row->words, table_row_fits(row) ? "" : ": does not fit");
}

/* ---- the table ---- */

static TableRow row_of_chosen(Planning *planning, const Chosen *chosen) {
  const Priced *p = &chosen->trial.priced;
  FoundPlan plan = {.text = chosen->text,
                    .words = chosen->words,
                    .price = {true, p->price.step, p->peak, p->memory}};
  return plan_row_of(
      planning, chosen,
      plan_mesh_words(planning->tool->arena, chosen->trial.c.plan), &plan);
}

/* Rows of one search. */
typedef enum RowsOf { ROWS_best, ROWS_meshes, ROWS_frontier } RowsOf;

static void add_rows(Planning *planning, RowsOf which, TableRows *out) {
  const SearchResult *result = &planning->result;
  Arena *arena = planning->tool->arena;
  Diags *diags;
  Chosen chosen;
  if (!result->best.text ||
      !planning_choose(planning, result->best.text, &diags, &chosen)) {
    int64_t ranks = planning->tool->options.ranks;
    vec_push(arena, out,
             (TableRow){.cluster = planning->tool->options.cluster,
                        .ranks = ranks > 0 ? (int)ranks
                                           : (int)cluster_ranks(
                                                 planning->loaded.cluster)});
    return;
  }
  if (which == ROWS_best) {
    vec_push(arena, out, row_of_chosen(planning, &chosen));
    return;
  }
  TableRows rows = which == ROWS_meshes ? plan_mesh_rows(planning, &chosen)
                                        : plan_frontier_rows(planning, &chosen);
  for (int i = 0; i < rows.n; i++) vec_push(arena, out, rows.data[i]);
}

/* The list of the options belongs to all searches. */
static void limit_memory(Tool *planner, Bytes limit) {
  Options *options = &planner->options;
  const char *change =
      arena_printf(planner->arena, "memory=%lldB", (long long)limit);
  options->what_if.data =
      arena_copy(planner->arena, options->what_if.data,
                 sizeof *options->what_if.data * (size_t)options->what_if.n);
  options->what_if.capacity = options->what_if.n;
  vec_push(planner->arena, &options->what_if, change);
}

/* Each search has a module of its own. */
static int search(const Tool *tool, const PlanMachines *machines, RowsOf which,
                  bool is_first, TableRows *out) {
  Tool *planner = arena_copy(tool->arena, tool, sizeof *tool);
  planner->module.names = names_create(tool->arena);
  planner->module.diags = diags_create(tool->arena);
  planner->hides_warnings = !is_first;
  planner->options.cluster = machines->cluster;
  planner->options.ranks = machines->ranks;
  if (machines->limit > 0) limit_memory(planner, machines->limit);
  Planning *planning = ARENA_NEW(tool->arena, Planning);
  *planning =
      (Planning){.tool = planner,
                 .looks_for_fewest_bytes = which == ROWS_frontier && is_first};
  int code = planning_load(planning);
  if (code != EXIT_done) return code;
  planning_search(planning);
  add_rows(planning, which, out);
  return EXIT_done;
}

/* Between the fastest plan and the smallest one, a search that needs no memory
 * prices few plans: it searches with half of that of the fastest, with a
 * quarter, and so on. */
static int search_smaller(const Tool *tool, const PlanMachines *machines,
                          TableRows *rows) {
  plan_frontier_of_memory(rows);
  if (rows->n == 0 || !rows->data[0].text) return EXIT_done;
  Bytes memory = rows->data[0].price.memory;
  Bytes smallest = rows->data[0].price.peak;
  PlanMachines limited = *machines;
  limited.limit = rows->data[rows->n - 1].price.peak / 2;
  for (; limited.limit > smallest && !tool_is_stopped(); limited.limit /= 2) {
    int code = search(tool, &limited, ROWS_frontier, false, rows);
    if (code != EXIT_done) return code;
  }
  int n = 0;
  for (int i = 0; i < rows->n; i++) {
    if (!rows->data[i].text) continue; /* no plan of a limit is legal */
    rows->data[n] = rows->data[i];
    rows->data[n++].price.memory = memory;
  }
  rows->n = n;
  plan_frontier_of_memory(rows);
  return EXIT_done;
}

static bool has_plan(const TableRows *rows, bool fits) {
  for (int i = 0; i < rows->n; i++)
    if (fits ? table_row_fits(&rows->data[i]) : rows->data[i].text != NULL)
      return true;
  return false;
}

/* Exit code. */
static int print_table(Tool *tool, const TableRows *rows) {
  Text out = text_create(tool->arena);
  if (tool->options.json) {
    text_add(&out, "{\"rows\":");
    plan_rows_print_json(&out, rows);
    text_add(&out, "}\n");
  } else {
    print_head(&out);
    for (int i = 0; i < rows->n; i++) print_row(&out, &rows->data[i]);
  }
  tool_print(&out);
  if (has_plan(rows, true)) return EXIT_done;
  message_print("dnnc: error: no plan of the table %s\n",
                has_plan(rows, false) ? "fits" : "is legal");
  return has_plan(rows, false) ? EXIT_no_plan : EXIT_user;
}

int plan_table(Tool *tool, const PlanMachinesList *machines) {
  TableRows rows = {0};
  RowsOf which = machines->n > 1          ? ROWS_best
                 : tool->options.frontier ? ROWS_frontier
                                          : ROWS_meshes;
  if (tool->options.output) {
    message_print(
        "dnnc: error: a table has no plan file: leave out -o, or "
        "--table, --frontier and all but one --cluster and number of ranks\n");
    return EXIT_user;
  }
  for (int i = 0; i < machines->n && !tool_is_stopped(); i++) {
    int code = search(tool, &machines->data[i], which, i == 0, &rows);
    if (code != EXIT_done) return code;
  }
  if (tool->options.frontier && which == ROWS_best)
    plan_frontier_of_ranks(&rows);
  int code = which == ROWS_frontier
                 ? search_smaller(tool, &machines->data[0], &rows)
                 : EXIT_done;
  if (code != EXIT_done) return code;
  code = print_table(tool, &rows);
  fflush(stdout);
  tool_end_as_signalled();
  return code;
}
