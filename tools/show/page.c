/*
 * page.c -- writes what `dnnc show --html` gives: one file of HTML with
 * drawings inside of it.  It has no script and asks for nothing: its policy
 * (Content-Security-Policy) forbids both.
 */
#include "tools/show/page.h"

#include <string.h>

/* ---- the head ---- */

static void add_title(Text *out, const Inspection *in) {
  const Priced *p = in->priced;
  const Mesh *mesh = &p->stage->graph->mesh;
  text_add(out, "<h1>");
  page_text(out, p->c->model->name);
  text_add(out, " under ");
  const char *slash = strrchr(in->plan, '/');
  page_text(out, slash ? slash + 1 : in->plan);
  text_add(out, "</h1><p>on ");
  page_integer(out, "n_ranks", p->c->ranks, NULL);
  text_add(out, " ranks of cluster ");
  page_text(out, p->cluster->name);
  text_add(out, ", devices ");
  page_text(out, priced_devices(out->arena, p));
  for (int a = 0; a < mesh->n_axes; a++) {
    text_add(out, a ? " &times; " : "; mesh ");
    page_text(out, mesh->axes[a].name);
    text_add(out, " ");
    page_integer(out, arena_printf(out->arena, "mesh.%d.size", a),
                 mesh->axes[a].size, NULL);
  }
  text_add(out, ". Estimates of the simulator, not measurements.</p>\n");
}

static void begin_card(Text *out, const char *class) {
  text_printf(out, "<div class=\"card\"><b%s>", class);
}

static void end_card(Text *out, const char *words) {
  text_printf(out, "</b><span>%s</span></div>\n", words);
}

static const char *rate_text(Arena *arena, double rate) {
  return rate < 1000 ? arena_printf(arena, "%.1f", rate)
                     : text_quantity(arena, rate, "");
}

static void add_rates(Text *out, const Inspection *in) {
  double seconds = (double)in->priced->price.step * 1e-12;
  double samples = seconds > 0 ? (double)in->samples / seconds : 0;
  double tokens = seconds > 0 ? (double)in->items / seconds : 0;
  begin_card(out, "");
  if (in->has_tokens) {
    page_real(out, "tokens_per_s", tokens, rate_text(out->arena, tokens));
    end_card(out, "tokens a second");
    begin_card(out, "");
  }
  page_real(out, "samples_per_s", samples, rate_text(out->arena, samples));
  end_card(out, "samples a second");
  begin_card(out, "");
  page_real(out, "mfu", in->mfu,
            arena_printf(out->arena, "%.1f %%", 100 * in->mfu));
  end_card(out, "model FLOP utilisation (MFU)");
}

static void add_cards(Text *out, const Inspection *in) {
  const Priced *p = in->priced;
  bool fits = p->peak <= p->memory;
  text_add(out, "<div class=\"cards\">\n");
  begin_card(out, "");
  page_integer(out, "step_ps", p->price.step,
               page_time(out->arena, p->price.step));
  end_card(out, "a step");
  add_rates(out, in);
  begin_card(out, fits ? " class=\"good\"" : " class=\"bad\"");
  page_integer(out, "peak_bytes", p->peak, page_bytes(out->arena, p->peak));
  text_add(out, "</b><span>of ");
  page_integer(out, "memory_bytes", p->memory,
               page_bytes(out->arena, p->memory));
  text_printf(out, " on a rank: %s</span></div>\n",
              fits ? "fits" : "does not fit");
  begin_card(out, "");
  page_integer(out, "bytes_sent", p->price.sent,
               page_bytes(out->arena, p->price.sent));
  text_add(out, "</b><span>sent by a rank in ");
  page_integer(out, "transfers", p->price.n_transfers, NULL);
  text_add(out, " transfers, beside ");
  page_integer(out, "launches", p->price.n_launches, NULL);
  text_add(out, " launches</span></div>\n</div>\n<p class=\"note\">MFU: ");
  page_text(out, inspect_mfu_formula());
  text_add(out, ": ");
  page_real(out, "flops", in->flops,
            text_quantity(out->arena, in->flops, "FLOP"));
  text_add(out, " a step, ");
  page_real(out, "peak_flops", in->peak_flops,
            text_quantity(out->arena, in->peak_flops, "FLOP/s"));
  text_add(out, " at peak.</p>\n");
}

/* ---- the page ---- */

static void begin_section(Text *out, const char *title, const char *about) {
  text_printf(out, "<section><h2>%s</h2>%s%s%s\n", title, *about ? "<p>" : "",
              about, *about ? "</p>" : "");
}

static void add_timelines(Text *out, const Inspection *in) {
  begin_section(out, "Timeline",
                "The stream computes, and waits where it is faint; queues run "
                "beside it. Spans that are too short to be drawn are joined to "
                "bars, whose colours are their parts. Hold the pointer over a "
                "bar for its path, phase and duration.");
  page_legend(out, in);
  for (int i = 0; i < in->n_timelines; i++) page_timeline(out, in, i);
  text_add(out, "</section>\n");
}

void page_begin(Text *out) {
  text_add(out,
           "<!doctype html>\n<html lang=\"en\">\n<head>\n"
           "<meta charset=\"utf-8\">\n"
           "<meta http-equiv=\"Content-Security-Policy\" content=\""
           "default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
           "<meta name=\"viewport\" content=\"width=device-width\">\n"
           "<link rel=\"icon\" href=\"data:,\">\n<title>");
}

void page_begin_body(Text *out) {
  text_printf(out, "</title>\n<style>%s</style>\n</head>\n<body><main>\n",
              page_style);
}

void page_print(Text *out, const Inspection *in) {
  page_begin(out);
  page_text(out, in->priced->c->model->name);
  text_add(out, " on ");
  page_text(out, in->priced->cluster->name);
  page_begin_body(out);
  add_title(out, in);
  add_cards(out, in);
  if (in->search) {
    begin_section(out, "Search", "");
    page_search(out, in);
    text_add(out, "</section>\n");
  }
  begin_section(out, "A step by term", "");
  page_terms(out, in);
  text_add(out, "</section>\n");
  if (in->priced->step->edges.n > 0) {
    begin_section(out, "Stages",
                  "A class of ranks runs the same stages. Its bubble is the "
                  "part of a step in which it waits for other stages.");
    page_stages(out, in);
    text_add(out, "</section>\n");
    begin_section(out, "Calls",
                  "A row is a class of ranks, and a bar a call of one of its "
                  "stages for a micro-batch, or a wait for messages. Bars that "
                  "are too short to be drawn are joined.");
    page_calls(out, in);
    text_add(out, "</section>\n");
  }
  add_timelines(out, in);
  begin_section(out, "Memory of a rank over a step", "");
  page_memory(out, in);
  page_kinds(out, in);
  text_add(out, "</section>\n");
  begin_section(out, "Sharding", "");
  page_sharding(out, in);
  text_add(out, "</section>\n");
  begin_section(
      out, "Lines of the plan",
      "A line costs what the transfers take for which it is the "
      "reason, and buys the difference to the plan without it. Green: "
      "the plan is worse without the line.");
  page_lines(out, in);
  text_add(out, "</section>\n");
  begin_section(out, "Paths",
                "Repeats are one row. A launch counts for the path of its "
                "operator, a wait for that of its collective.");
  page_paths(out, in);
  text_add(out, "</section>\n</main></body>\n</html>\n");
}
