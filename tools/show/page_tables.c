/*
 * page_tables.c -- writes the tables of the page of `dnnc show --html`.
 */
#include "tools/show/page.h"

enum { MOST_PAGE_PATHS = 40 };

const char *page_key(Text *out, const char *table, int row, const char *field) {
  return arena_printf(out->arena, "%s.%d.%s", table, row, field);
}

void page_begin_table(Text *out, const char *const *heads, int n) {
  text_add(out, "<table><thead><tr>");
  for (int i = 0; i < n; i++)
    text_printf(out, "<th%s>%s</th>", heads[i][0] == '>' ? " class=\"n\"" : "",
                heads[i][0] == '>' ? heads[i] + 1 : heads[i]);
  text_add(out, "</tr></thead><tbody>\n");
}

void page_end_table(Text *out) {
  text_add(out, "</tbody></table>\n");
}

void page_time_cell(Text *out, const char *key, Ps time) {
  text_add(out, "<td class=\"n\">");
  page_integer(out, key, time, page_time(out->arena, time));
  text_add(out, "</td>");
}

void page_bytes_cell(Text *out, const char *key, Bytes bytes) {
  text_add(out, "<td class=\"n\">");
  page_integer(out, key, bytes, page_bytes(out->arena, bytes));
  text_add(out, "</td>");
}

void page_count_cell(Text *out, const char *key, int64_t count) {
  text_add(out, "<td class=\"n\">");
  page_integer(out, key, count, NULL);
  text_add(out, "</td>");
}

void page_share_cell(Text *out, const char *key, double share) {
  text_add(out, "<td class=\"n\">");
  page_real(out, key, share, arena_printf(out->arena, "%.1f %%", 100 * share));
  text_add(out, "</td>");
}

void page_name_cell(Text *out, const char *text) {
  text_add(out, "<td class=\"m\">");
  page_text(out, text);
  text_add(out, "</td>");
}

/* ---- terms ---- */

static void add_bar_of_terms(Text *out, const Priced *p) {
  double at = 0;
  text_add(out, "<svg viewBox=\"0 0 1100 30\" role=\"img\">");
  for (int k = 0; k < N_COST_PARTS; k++) {
    double width = 1100 * inspect_share(p->price.parts[k], p->price.step);
    if (p->price.parts[k] <= 0) continue;
    text_printf(out,
                "<rect class=\"t%d\" x=\"%.2f\" y=\"4\" width=\"%.2f\" "
                "height=\"20\"><title>%s: %s</title></rect>",
                k, at, width, cost_term_info((CostTerm)k)->name,
                page_time(out->arena, p->price.parts[k]));
    at += width;
  }
  text_add(out, "</svg>\n");
}

void page_terms(Text *out, const Inspection *in) {
  static const char *const heads[] = {"term", ">time", ">of the step",
                                      "meaning"};
  const Priced *p = in->priced;
  add_bar_of_terms(out, p);
  page_begin_table(out, heads, ARRAY_LENGTH(heads));
  for (int k = 0; k < N_COST_PARTS; k++) {
    const CostTermInfo *info = cost_term_info((CostTerm)k);
    if (p->price.parts[k] <= 0) continue;
    text_printf(out,
                "<tr><td><i class=\"key\" style=\"background:var(--t%d)\"></i>"
                "%s</td><td class=\"n\">",
                k, info->name);
    page_real(out, arena_printf(out->arena, "terms.%s", info->name),
              (double)p->price.parts[k] * 1e-12,
              page_time(out->arena, p->price.parts[k]));
    text_add(out, "</td>");
    page_share_cell(out, arena_printf(out->arena, "shares.%s", info->name),
                    inspect_share(p->price.parts[k], p->price.step));
    text_printf(out, "<td class=\"soft\">%s</td></tr>\n", info->meaning);
  }
  page_end_table(out);
}

/* ---- memory ---- */

void page_kinds(Text *out, const Inspection *in) {
  static const char *const heads[] = {"kind", ">at the peak", ">at most",
                                      "meaning"};
  page_begin_table(out, heads, ARRAY_LENGTH(heads));
  for (int i = 0; i < in->kinds.n; i++) {
    const KindRow *row = &in->kinds.data[i];
    text_printf(out,
                "<tr><td><i class=\"key\" style=\"background:var(--k%d)\"></i>"
                "%s</td>",
                page_kind_colour(row), row->name);
    page_bytes_cell(out, page_key(out, "memory", i, "at_peak_bytes"),
                    row->at_peak);
    page_bytes_cell(out, page_key(out, "memory", i, "most_bytes"), row->most);
    text_printf(out, "<td class=\"soft\">%s</td></tr>\n", row->words);
  }
  text_add(out, "<tr><td>holes</td>");
  page_bytes_cell(out, "hole_bytes", in->holes);
  text_add(out, "<td></td><td class=\"soft\">between values, and alignment"
                "</td></tr>\n");
  if (in->others > 0) {
    text_add(out, "<tr><td>other entry points</td>");
    page_bytes_cell(out, "other_bytes", in->others);
    text_printf(out,
                "<td></td><td class=\"soft\">of '%s', more than a training "
                "step</td></tr>\n",
                driver_largest(in->priced->c)->name);
  }
  text_add(out, "<tr><td>arena</td>");
  page_bytes_cell(out, "peak_bytes", in->priced->peak);
  text_add(out, "<td></td><td class=\"soft\">the memory of a rank</td></tr>\n");
  page_end_table(out);
}

/* ---- sharding ---- */

enum { AXIS_COLOURS = 5 };

static void axis_mark(Text *out, int axis, const char *text) {
  text_printf(out, "<span class=\"axis\" style=\"background:var(--a%d)\">",
              axis % AXIS_COLOURS);
  page_text(out, text);
  text_add(out, "</span> ");
}

/* The dims that each axis of the mesh shards: a column for each axis. */
static void axis_cells(Text *out, const Mesh *mesh, const Type *type) {
  for (int a = 0; a < mesh->n_axes; a++) {
    bool is_sharded = false;
    if (mesh->axes[a].is_sequential) continue;
    text_add(out, "<td>");
    for (int d = 0; d < type->rank; d++) {
      if (!(axis_list_set(type->dims[d].split) >> a & 1)) continue;
      axis_mark(out, a, type->dims[d].name);
      is_sharded = true;
    }
    text_add(out, is_sharded ? "</td>"
                             : "<span class=\"soft\">replicated</span></td>");
  }
}

static void add_parameters(Text *out, const Inspection *in, const Mesh *mesh) {
  text_add(out, "<table><thead><tr><th>parameter</th><th class=\"n\">paths</th>"
                "<th class=\"n\">bytes on a rank, each</th>");
  for (int a = 0; a < mesh->n_axes; a++) {
    if (mesh->axes[a].is_sequential) continue;
    text_add(out, "<th>over ");
    axis_mark(out, a, mesh->axes[a].name);
    text_add(out, "</th>");
  }
  text_add(out, "<th>placement</th></tr></thead><tbody>\n");
  for (int i = 0; i < in->parameters.n; i++) {
    const ParameterRow *row = &in->parameters.data[i];
    Text type = text_create(out->arena);
    type_print(&type, row->type, mesh);
    text_add(out, "<tr>");
    page_name_cell(out, path_text(out->arena, &row->paths));
    page_count_cell(out, page_key(out, "parameters", i, "paths"),
                    row->paths.n_paths);
    page_bytes_cell(out, page_key(out, "parameters", i, "bytes"), row->bytes);
    axis_cells(out, mesh, row->type);
    page_name_cell(out, text_string(&type));
    text_add(out, "</tr>\n");
  }
  page_end_table(out);
}

void page_sharding(Text *out, const Inspection *in) {
  static const char *const heads[] = {"name", "over", ">values of a step"};
  const Mesh *mesh = &in->priced->stage->graph->mesh;
  add_parameters(out, in, mesh);
  if (in->names.n == 0) return;
  text_add(out, "<h3>By name, over all values of a step</h3>\n");
  page_begin_table(out, heads, ARRAY_LENGTH(heads));
  for (int i = 0; i < in->names.n; i++) {
    const NameRow *row = &in->names.data[i];
    text_add(out, "<tr>");
    page_name_cell(out, row->dim);
    text_add(out, "<td>");
    if (!row->axes) text_add(out, "<span class=\"soft\">replicated</span>");
    for (AxisList axes = row->axes; axes; axes >>= 4) {
      int axis = (int)(axes & 15) - 1;
      axis_mark(out, axis, mesh->axes[axis].name);
    }
    text_add(out, "</td>");
    page_count_cell(out, page_key(out, "names", i, "values"), row->n_values);
    text_add(out, "</tr>\n");
  }
  page_end_table(out);
}

/* ---- lines ---- */

/* Green: without the line the plan is worse, so the line pays. */
static void change_cell(Text *out, const char *key, int64_t change,
                        const char *size) {
  text_printf(out, "<td class=\"n %s\">",
              change > 0   ? "good"
              : change < 0 ? "bad"
                           : "soft");
  page_integer(out, key, change,
               arena_printf(out->arena, "%s%s", change < 0 ? "-" : "+", size));
  text_add(out, "</td>");
}

static void add_line(Text *out, int i, const PlanLine *line) {
  text_add(out, "<tr>");
  page_name_cell(out, line->text);
  page_count_cell(out, page_key(out, "lines", i, "transfers"),
                  line->n_transfers);
  page_bytes_cell(out, page_key(out, "lines", i, "sent_bytes"), line->sent);
  page_time_cell(out, page_key(out, "lines", i, "busy_ps"), line->busy);
  page_time_cell(out, page_key(out, "lines", i, "exposed_ps"), line->exposed);
  if (line->is_legal) {
    Ps time = line->step_change;
    Bytes bytes = line->peak_change;
    change_cell(out, page_key(out, "lines", i, "step_change_ps"), time,
                page_time(out->arena, time < 0 ? -time : time));
    change_cell(out, page_key(out, "lines", i, "peak_change_bytes"), bytes,
                page_bytes(out->arena, bytes < 0 ? -bytes : bytes));
  } else {
    text_add(out, "<td colspan=\"2\" class=\"soft\">");
    if (line->is_tried) text_add(out, "no plan: ");
    page_text(out, line->is_tried ? line->why : "");
    text_add(out, "</td>");
  }
  text_add(out, "</tr>\n");
}

void page_lines(Text *out, const Inspection *in) {
  static const char *const heads[] = {"line",
                                      ">transfers",
                                      ">sent",
                                      ">in queues",
                                      ">exposed",
                                      ">step without it",
                                      ">arena without it"};
  page_begin_table(out, heads, ARRAY_LENGTH(heads));
  for (int i = 0; i < in->lines.lines.n; i++)
    add_line(out, i, &in->lines.lines.data[i]);
  text_add(out, "<tr>");
  page_name_cell(out, "kernels, of no line");
  text_add(out, "<td colspan=\"3\"></td>");
  page_time_cell(out, "kernels_ps",
                 plan_lines_rest(&in->lines, inspect_step(in)));
  text_add(out, "<td colspan=\"2\"></td></tr>\n");
  page_end_table(out);
}

/* ---- paths ---- */

void page_paths(Text *out, const Inspection *in) {
  static const char *const heads[] = {"path",         ">paths",       ">time",
                                      ">of the step", ">at the peak", ">stays"};
  int n =
      in->paths.rows.n < MOST_PAGE_PATHS ? in->paths.rows.n : MOST_PAGE_PATHS;
  page_begin_table(out, heads, ARRAY_LENGTH(heads));
  for (int i = 0; i < n; i++) {
    const PathRow *row = &in->paths.rows.data[i];
    text_add(out, "<tr>");
    page_name_cell(out, path_text(out->arena, row));
    page_count_cell(out, page_key(out, "repeats", i, "paths"), row->n_paths);
    page_time_cell(out, page_key(out, "repeats", i, "time_ps"), row->time);
    page_share_cell(out, page_key(out, "repeats", i, "share"),
                    inspect_share(row->time, in->priced->price.step));
    page_bytes_cell(out, page_key(out, "repeats", i, "at_peak_bytes"),
                    row->at_peak);
    page_bytes_cell(out, page_key(out, "repeats", i, "persistent_bytes"),
                    row->persistent);
    text_add(out, "</tr>\n");
  }
  page_end_table(out);
}
