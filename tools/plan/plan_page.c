/*
 * plan_page.c -- implements `dnnc plan --html`: the page of `dnnc show --html`
 * for the plan that was found, and how it was found.
 */
#include "tools/show/search_report.h"

#include <string.h>

enum { MOST_STAGED = 40 }; /* rows of the table of stages */

/* The command line of `dnnc show` for this plan. */
static Tool show_of(const Planning *planning, const char *file) {
  Tool out = *planning->tool;
  Options *options = &out.options;
  Source *source = ARENA_NEW(out.arena, Source);
  const char *path = options->output ? options->output : "found.plan";
  *source = (Source){path, file, strlen(file)};
  out.hides_warnings = true;
  out.found_plan = source;
  out.module.names = names_create(out.arena);
  out.module.diags = diags_create(out.arena);
  options->command = COMMAND_show;
  options->model = options->subject;
  options->plan = path;
  options->microbatches = options->bucket = -1; /* the plan has them */
  return out;
}

static Ps step_that_fits(const CandidatePrice *price) {
  return price->is_legal && price->peak <= price->memory ? price->step : 0;
}

int plan_page(Planning *planning, const Chosen *chosen, const char *file,
              const char **out_json) {
  const SearchResult *result = &planning->result;
  Arena *arena = planning->tool->arena;
  SearchReport report = {.n_priced = result->n_priced,
                         .n_legal = result->n_legal,
                         .n_fit = result->n_fit,
                         .plain = step_that_fits(&result->plain),
                         .space = result->space,
                         .file = file,
                         .n_falls = planning->falls.n,
                         .falls = planning->falls.data,
                         .meshes = plan_mesh_rows(planning, chosen),
                         .n_staged = result->n_staged < MOST_STAGED
                                         ? result->n_staged
                                         : MOST_STAGED,
                         .staged = result->staged};
  Tool show = show_of(planning, file);
  Priced priced;
  Inspection inspection;
  int code = tool_price(&show, true, &priced);
  if (code == EXIT_done) code = inspect(&show, &priced, &inspection);
  if (code != EXIT_done) return code;
  inspection.search = &report;
  Text page = text_create(arena), json = text_create(arena);
  page_print(&page, &inspection);
  inspect_print_json(&json, &inspection);
  *out_json = text_string(&json);
  Status status =
      file_replace(planning->tool->options.html, text_string(&page), page.n);
  return status.code == STATUS_ok ? EXIT_done : tool_fail(status);
}
