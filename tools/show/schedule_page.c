/*
 * schedule_page.c -- writes what `dnnc schedule --html` gives: a page with the
 * schedule as a drawing, without scripts.
 */
#include "tools/commands/schedule.h"
#include "tools/show/page.h"

/* Pixels, and the ranks that are drawn. */
enum { WIDTH = 1100, LEFT = 70, LANE = 26, GAP = 4, MOST_LANES = 64 };

static const char *colour_of(const Token *token) {
  switch (token->kind) {
  case TOKEN_forward: return "t0";
  case TOKEN_weight_grad: return "t3";
  case TOKEN_input_grad: return "t2";
  default: return "t1";
  }
}

static double x_of(const TimedSchedule *timed, Ps time) {
  Ps end = timed->result.step > 0 ? timed->result.step : 1;
  return LEFT + (WIDTH - LEFT) * ((double)time / (double)end);
}

/* The later one of a rank's stages is, the paler. */
static double opacity_of(const ScheduleList *list, const Token *token) {
  int chunk = token->stage / list->n_ranks;
  int n_chunks = list->n_stages / list->n_ranks;
  return n_chunks > 1 ? 1 - 0.5 * chunk / (n_chunks - 1) : 1;
}

static void draw_span(Text *out, const TimedSchedule *timed,
                      const ScheduleSpan *span) {
  double begin = x_of(timed, span->begin), end = x_of(timed, span->end);
  double width = (end - begin) / span->n_tokens;
  double y = (LANE + GAP) * (double)span->rank;
  for (int i = 0; i < span->n_tokens; i++) {
    const Token *token = &span->tokens[i];
    double x = begin + i * width;
    text_printf(out,
                "<g class=\"b\"><rect class=\"%s\" x=\"%.2f\" y=\"%.0f\" "
                "width=\"%.2f\" height=\"%d\"",
                colour_of(token), x, y, width > 0.6 ? width - 0.5 : width,
                LANE);
    if (opacity_of(timed->list, token) < 1)
      text_printf(out, " fill-opacity=\"%.2f\"",
                  opacity_of(timed->list, token));
    text_add(out, "/><title>");
    token_print(out, timed->list->pipeline, token);
    text_printf(out, ": %s to %s</title>",
                schedule_units(out->arena, span->begin),
                schedule_units(out->arena, span->end));
    if (width > 16)
      text_printf(out,
                  "<text class=\"in\" x=\"%.2f\" y=\"%.0f\" "
                  "text-anchor=\"middle\">%d</text>",
                  x + width / 2, y + LANE / 2 + 4, token->microbatch);
    text_add(out, "</g>\n");
  }
}

static void draw(Text *out, const TimedSchedule *timed, int n_lanes) {
  text_printf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\">\n", WIDTH,
              n_lanes * (LANE + GAP));
  for (int r = 0; r < n_lanes; r++)
    text_printf(out,
                "<text x=\"0\" y=\"%d\">rank %d</text><rect class=\"ground\" "
                "x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
                r * (LANE + GAP) + LANE / 2 + 4, r, LEFT, r * (LANE + GAP),
                WIDTH - LEFT, LANE);
  for (int i = 0; i < timed->spans.n; i++)
    if (timed->spans.data[i].rank < n_lanes)
      draw_span(out, timed, &timed->spans.data[i]);
  text_add(out, "</svg>\n");
}

static void add_legend(Text *out, const ScheduleList *list) {
  static const struct {
    const char *colour, *meaning;
  } rows[] = {{"t0", "forward pass"},
              {"t1", "backward pass"},
              {"t2", "gradient of the stage's input"},
              {"t3", "gradient of its weights"}};
  text_add(out, "<div class=\"legend\">");
  for (int i = 0; i < ARRAY_LENGTH(rows); i++)
    text_printf(out,
                "<span><i class=\"key\" style=\"background:var(--%s)\"></i>"
                "%s</span>",
                rows[i].colour, rows[i].meaning);
  if (list->n_stages > list->n_ranks)
    text_add(out, "<span>paler: a later stage of the rank</span>");
  text_add(out, "</div>\n");
}

static void add_ranks(Text *out, const TimedSchedule *timed) {
  const ScheduleList *list = timed->list;
  text_add(out, "<section><h2>Ranks</h2><table><tr><th class=\"n\">rank</th>"
                "<th class=\"n\">end</th><th class=\"n\">work</th>"
                "<th class=\"n\">waits</th><th class=\"n\">micro-batches "
                "alive</th></tr>\n");
  for (int r = 0; r < list->n_ranks; r++) {
    const SimClassResult *class = &timed->result.classes[r];
    text_printf(out,
                "<tr><td class=\"n\">%d</td><td class=\"n\">%s</td><td "
                "class=\"n\">%s</td><td class=\"n\">%s</td><td "
                "class=\"n\">%d</td></tr>\n",
                r, schedule_units(out->arena, *class->step_ends),
                schedule_units(out->arena, list->work[r]),
                schedule_units(out->arena, *class->exposed),
                list->peak_live[r]);
  }
  text_add(out, "</table></section>\n");
}

void schedule_print_page(Text *out, const TimedSchedule *timed) {
  const ScheduleList *list = timed->list;
  int n_lanes = list->n_ranks < MOST_LANES ? list->n_ranks : MOST_LANES;
  page_begin(out);
  page_text(out, timed->name);
  page_begin_body(out);
  text_add(out, "<h1>");
  page_text(out, timed->name);
  text_printf(out,
              "</h1><p>%d ranks, %d stages, %d micro-batches: a step takes "
              "%s. Messages take no time.</p>\n"
              "<section><h2>Timeline</h2>",
              list->n_ranks, list->n_stages, list->n_microbatches,
              schedule_units(out->arena, timed->result.step));
  if (n_lanes < list->n_ranks)
    text_printf(out, "<p>The first %d ranks.</p>\n", n_lanes);
  add_legend(out, list);
  draw(out, timed, n_lanes);
  text_add(out, "</section>\n");
  add_ranks(out, timed);
  text_add(out, "</main></body>\n</html>\n");
}
