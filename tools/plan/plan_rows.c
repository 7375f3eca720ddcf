/*
 * plan_rows.c -- makes the rows of tables of plans, and prints them as JSON.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/plan/plan_table.h"

enum { MOST_ROWS = 20 }; /* meshes, each of which is priced whole */

static Bytes missing_bytes(const TableRow *row) {
  Bytes missing = row->price.peak - row->price.memory;
  return missing > 0 ? missing : 0;
}

bool table_row_fits(const TableRow *row) {
  return row->price.is_legal && missing_bytes(row) == 0;
}

double table_row_per_second(const TableRow *row, int64_t items) {
  return row->price.step > 0 ? (double)items * 1e12 / (double)row->price.step
                             : 0;
}

double table_row_mfu(const TableRow *row) {
  double available = row->peak_flops * (double)row->price.step * 1e-12;
  return available > 0 ? row->flops / available : 0;
}

TableRow plan_row_of(Planning *planning, const Chosen *chosen, const char *mesh,
                     const FoundPlan *plan) {
  TableRow row = {.cluster = planning->tool->options.cluster,
                  .ranks = chosen->trial.c.ranks,
                  .mesh = mesh,
                  .words = plan->words,
                  .text = plan->text,
                  .price = plan->price,
                  .flops = chosen->rates.flops,
                  .peak_flops = chosen->rates.peak_flops,
                  .samples = chosen->rates.samples,
                  .items = chosen->rates.items,
                  .has_tokens = chosen->rates.has_tokens};
  return row;
}

static int compare_rows(const void *a, const void *b) {
  const TableRow *x = a, *y = b;
  if (missing_bytes(x) != missing_bytes(y))
    return missing_bytes(x) < missing_bytes(y) ? -1 : 1;
  if (x->price.step != y->price.step)
    return x->price.step < y->price.step ? -1 : 1;
  return strcmp(x->text, y->text);
}

TableRows plan_mesh_rows(Planning *planning, const Chosen *chosen) {
  const SearchResult *result = &planning->result;
  Arena *arena = planning->tool->arena;
  TableRows rows = {0};
  int n = result->n_meshes < MOST_ROWS ? result->n_meshes : MOST_ROWS;
  const char **texts = ARENA_ARRAY(arena, const char *, n + 1);
  CandidatePrice *prices = ARENA_ARRAY(arena, CandidatePrice, n + 1);
  for (int i = 0; i < n; i++) texts[i] = result->meshes[i].plan.text;
  planning_price_whole(planning, n, texts, prices);
  for (int i = 0; i < n; i++) {
    FoundPlan printed = planning_printed(planning, &result->meshes[i].plan);
    TableRow row =
        plan_row_of(planning, chosen, result->meshes[i].mesh, &printed);
    row.price = prices[i];
    if (row.price.is_legal) vec_push(arena, &rows, row);
  }
  if (rows.n > 1)
    qsort(rows.data, (size_t)rows.n, sizeof *rows.data, compare_rows);
  return rows;
}

/* ---- output ---- */

static void add_number(Text *out, const char *key, double value) {
  text_printf(out, ",\"%s\":", key);
  text_add_real(out, value);
}

static void print_row_json(Text *out, const TableRow *row) {
  text_add(out, "{\"cluster\":");
  text_add_json(out, row->cluster);
  text_printf(out, ",\"n_ranks\":%d", row->ranks);
  if (!row->text) {
    text_add(out, ",\"legal\":false}");
    return;
  }
  text_add(out, ",\"mesh\":");
  text_add_json(out, row->mesh);
  text_add(out, ",\"words\":");
  text_add_json(out, row->words);
  text_printf(out, ",\"step_ps\":%lld", (long long)row->price.step);
  add_number(out, "samples_per_s", table_row_per_second(row, row->samples));
  add_number(out, "samples_per_s_per_device",
             table_row_per_second(row, row->samples) / row->ranks);
  if (row->has_tokens) {
    add_number(out, "tokens_per_s", table_row_per_second(row, row->items));
    add_number(out, "tokens_per_s_per_device",
               table_row_per_second(row, row->items) / row->ranks);
  }
  add_number(out, "mfu", table_row_mfu(row));
  text_printf(out, ",\"peak_bytes\":%lld,\"memory_bytes\":%lld,\"fits\":%s",
              (long long)row->price.peak, (long long)row->price.memory,
              table_row_fits(row) ? "true" : "false");
  text_add(out, ",\"plan\":");
  text_add_json(out, row->text);
  text_add(out, "}");
}

void plan_rows_print_json(Text *out, const TableRows *rows) {
  text_add(out, "[");
  for (int i = 0; i < rows->n; i++) {
    text_add(out, i ? ",\n" : "\n");
    print_row_json(out, &rows->data[i]);
  }
  text_add(out, "]");
}
