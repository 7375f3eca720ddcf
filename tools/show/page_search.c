/*
 * page_search.c -- writes how a plan was found: the part of the page of `dnnc
 * plan --html` that a page of `dnnc show` has not, and of the JSON object.
 */
#include "tools/show/page.h"
#include "tools/show/search_report.h"

static const char *priced_by(const StagedChoice *of) {
  return of->is_estimate ? "estimate" : "simulator";
}

/* Pixels of the drawing. */
enum { WIDTH = 1100, HEIGHT = 120, EDGE = 6 };

/* ---- the object ---- */

static void staged_json(Text *out, const SearchReport *search) {
  if (search->n_staged == 0) return;
  text_add(out, ",\"staged\":[");
  for (int i = 0; i < search->n_staged; i++) {
    const StagedChoice *of = &search->staged[i];
    text_printf(out,
                "%s{\"groups\":%d,\"stages\":%d,\"microbatches\":%lld,"
                "\"step_ps\":%lld,\"peak_bytes\":%lld,\"priced_by\":\"%s\","
                "\"schedule\":",
                i ? ",\n" : "\n", of->groups, of->stages,
                (long long)of->microbatches, (long long)of->plan.price.step,
                (long long)of->plan.price.peak, priced_by(of));
    text_add_json(out, of->schedule);
    text_add(out, ",\"cuts\":");
    text_add_json(out, of->cuts);
    text_add(out, ",\"words\":");
    text_add_json(out, of->plan.words);
    text_add(out, "}");
  }
  text_add(out, "]");
}

void search_report_json(Text *out, const SearchReport *search) {
  text_printf(out,
              ",\n\"search\":{\"candidates\":%d,\"legal\":%d,\"fitting\":%d,"
              "\"data_parallel_step_ps\":%lld,\"space\":",
              search->n_priced, search->n_legal, search->n_fit,
              (long long)search->plain);
  text_add_json(out, search->space);
  text_add(out, ",\"file\":");
  text_add_json(out, search->file);
  text_add(out, ",\"falls\":[");
  for (int i = 0; i < search->n_falls; i++)
    text_printf(out, "%s{\"candidates\":%d,\"step_ps\":%lld}", i ? "," : "",
                search->falls[i].n_priced, (long long)search->falls[i].step);
  text_add(out, "],\"meshes\":");
  plan_rows_print_json(out, &search->meshes);
  staged_json(out, search);
  text_add(out, "}");
}

/* ---- the page ---- */

static void add_counts(Text *out, const SearchReport *search) {
  text_add(out, "<p>");
  page_integer(out, "search.candidates", search->n_priced, NULL);
  text_add(out, " plans were priced, of which ");
  page_integer(out, "search.legal", search->n_legal, NULL);
  text_add(out, " are legal and ");
  page_integer(out, "search.fitting", search->n_fit, NULL);
  text_add(out, " fit. ");
  if (search->plain > 0) {
    text_add(out, "A step of data parallelism takes ");
    page_integer(out, "search.data_parallel_step_ps", search->plain,
                 page_time(out->arena, search->plain));
    text_add(out, ".");
  } else {
    text_add(out, "Data parallelism has no plan that fits.");
  }
  text_add(out, "</p>\n");
}

static double height_of(const SearchReport *search, Ps step) {
  double most = (double)search->falls[0].step;
  return EDGE + (HEIGHT - 2 * EDGE) * (1 - (double)step / most);
}

/* The best step over the number of priced plans, from 0 to the first one. */
static void draw_falls(Text *out, const SearchReport *search) {
  int n = search->n_falls;
  double scale = (double)(WIDTH - 2 * EDGE) / search->n_priced;
  text_printf(out,
              "<svg viewBox=\"0 0 %d %d\" role=\"img\"><polyline fill=\"none\" "
              "stroke=\"var(--t0)\" stroke-width=\"2\" points=\"",
              WIDTH, HEIGHT);
  for (int i = 0; i < n; i++) {
    int end = i + 1 < n ? search->falls[i + 1].n_priced : search->n_priced;
    double y = height_of(search, search->falls[i].step);
    text_printf(out, "%.1f,%.1f %.1f,%.1f ",
                EDGE + scale * search->falls[i].n_priced, y, EDGE + scale * end,
                y);
  }
  text_printf(out,
              "\"/><line class=\"grid\" x1=\"%d\" y1=\"%d\" x2=\"%d\" "
              "y2=\"%d\"/></svg>\n",
              EDGE, HEIGHT - EDGE, WIDTH - EDGE, HEIGHT - EDGE);
}

static void add_falls(Text *out, const SearchReport *search) {
  static const char *const heads[] = {">priced plans", ">best step"};
  if (search->n_falls == 0 || search->n_priced == 0) return;
  text_add(out, "<h3>The best step that was known after so many plans</h3>\n");
  draw_falls(out, search);
  page_begin_table(out, heads, ARRAY_LENGTH(heads));
  for (int i = 0; i < search->n_falls; i++) {
    text_add(out, "<tr>");
    page_count_cell(out, page_key(out, "search.falls", i, "candidates"),
                    search->falls[i].n_priced);
    page_time_cell(out, page_key(out, "search.falls", i, "step_ps"),
                   search->falls[i].step);
    text_add(out, "</tr>\n");
  }
  page_end_table(out);
}

static void add_mesh(Text *out, int i, const TableRow *row) {
  static const char table[] = "search.meshes";
  text_add(out, "<tr>");
  page_name_cell(out, row->words);
  page_time_cell(out, page_key(out, table, i, "step_ps"), row->price.step);
  page_share_cell(out, page_key(out, table, i, "mfu"), table_row_mfu(row));
  page_bytes_cell(out, page_key(out, table, i, "peak_bytes"), row->price.peak);
  text_printf(out, "<td class=\"%s\">%s</td></tr>\n",
              table_row_fits(row) ? "good" : "bad",
              table_row_fits(row) ? "fits" : "does not fit");
}

static void add_meshes(Text *out, const SearchReport *search) {
  static const char *const heads[] = {"best plan of each mesh", ">a step",
                                      ">MFU", ">memory", ""};
  page_begin_table(out, heads, ARRAY_LENGTH(heads));
  for (int i = 0; i < search->meshes.n; i++)
    add_mesh(out, i, &search->meshes.data[i]);
  page_end_table(out);
}

static void add_choice(Text *out, int i, const StagedChoice *of) {
  static const char table[] = "search.staged";
  text_add(out, "<tr>");
  page_count_cell(out, page_key(out, table, i, "groups"), of->groups);
  page_count_cell(out, page_key(out, table, i, "stages"), of->stages);
  page_name_cell(out, of->schedule);
  page_count_cell(out, page_key(out, table, i, "microbatches"),
                  of->microbatches);
  page_time_cell(out, page_key(out, table, i, "step_ps"), of->plan.price.step);
  page_bytes_cell(out, page_key(out, table, i, "peak_bytes"),
                  of->plan.price.peak);
  text_printf(out, "<td>%s</td>", priced_by(of));
  page_name_cell(out, of->cuts);
  page_name_cell(out, of->plan.words);
  text_add(out, "</tr>\n");
}

/* The best of each number of groups of ranks and each schedule. */
static void add_choices(Text *out, const SearchReport *search) {
  static const char *const heads[] = {
      ">groups",        ">stages",    "schedule",
      ">micro-batches", ">a step",    ">memory",
      "priced by",      "cuts after", "plan"};
  if (search->n_staged == 0) return;
  text_add(out, "<h3>The best plan of each number of groups of ranks and each "
                "schedule</h3>\n");
  page_begin_table(out, heads, ARRAY_LENGTH(heads));
  for (int i = 0; i < search->n_staged; i++)
    add_choice(out, i, &search->staged[i]);
  page_end_table(out);
}

void page_search(Text *out, const Inspection *in) {
  const SearchReport *search = in->search;
  add_counts(out, search);
  add_meshes(out, search);
  add_choices(out, search);
  add_falls(out, search);
  text_add(out, "<h3>The plan and its certificate</h3>\n<pre class=\"m\">");
  page_text(out, search->file);
  text_add(out, "</pre>\n");
}
