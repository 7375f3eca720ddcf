/*
 * page_calls.c -- draws the calls of all classes of ranks of a plan with stages
 * for the page of `dnnc show --html`.
 *
 *     stage 0   |F0|F1|  wait   |B0|F2|B1| ... |update|
 *     stage 1   |wait|F0|B0|F1|B1| ...         |update|
 */
#include "tools/show/page.h"
#include "tools/show/show_stages.h"

enum { LANE = 22, GAP = 4 };

/* ---- colours ---- */

typedef struct CallColour {
  const char *colour, *meaning;
} CallColour;

static const CallColour colours[] = {
    {"t0", "forward pass"},        {"t1", "backward pass"},
    {"t2", "gradients of values"}, {"t3", "gradients of parameters"},
    {"t4", "update, once a step"}, {"t12", "waits for messages"},
};
enum { COLOUR_update = 4, COLOUR_wait = 5 };

static int colour_of(const CallBar *bar) {
  if (bar->is_wait) return COLOUR_wait;
  switch (bar->kind) {
  case TOKEN_forward: return 0;
  case TOKEN_backward: return 1;
  case TOKEN_input_grad: return 2;
  case TOKEN_weight_grad: return 3;
  default: return COLOUR_update;
  }
}

static void add_legend(Text *out) {
  text_add(out, "<div class=\"legend\">");
  for (int i = 0; i < ARRAY_LENGTH(colours); i++)
    text_printf(out,
                "<span><i class=\"key\" style=\"background:var(--%s)\"></i>"
                "%s</span>",
                colours[i].colour, colours[i].meaning);
  text_add(out, "</div>\n");
}

/* ---- bars ---- */

static double x_of(Ps time, Ps length) {
  return PAGE_LEFT + (PAGE_WIDTH - PAGE_LEFT - PAGE_RIGHT) *
                         (length > 0 ? (double)time / (double)length : 0);
}

/* "2F7", "2UPDATE" or "wait". */
static void add_name(Text *out, const CallBar *bar) {
  if (bar->stage >= 0) text_printf(out, "%d", bar->stage);
  text_add(out, call_bar_name(bar));
  if (bar->microbatch >= 0) text_printf(out, "%d", bar->microbatch);
}

static void add_bar(Text *out, const CallBar *bar, Ps length, int y) {
  double x = x_of(bar->begin, length), width = x_of(bar->end, length) - x;
  text_printf(out,
              "<rect class=\"%s%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" "
              "height=\"%d\"><title>",
              colours[colour_of(bar)].colour, bar->is_wait ? " wait" : "", x, y,
              width > 0.8 ? width - 0.4 : width, LANE);
  add_name(out, bar);
  text_printf(out, ", %s at %s", page_time(out->arena, bar->end - bar->begin),
              page_time(out->arena, bar->begin));
  if (bar->n > 1) text_printf(out, ", %d bars", bar->n);
  text_add(out, "</title></rect>\n");
}

/* Classes begin their steps one after the other. */
static Ps end_of(const Inspection *in) {
  Ps end = 0;
  for (int c = 0; c < in->n_calls; c++) {
    const PriceClass *class = &in->priced->price.classes[c];
    if (class->begin + class->step > end) end = class->begin + class->step;
  }
  return end;
}

void page_calls(Text *out, const Inspection *in) {
  const Priced *p = in->priced;
  int height = in->n_calls * (LANE + GAP);
  Ps length = end_of(in);
  add_legend(out);
  text_printf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\">\n", PAGE_WIDTH,
              height + PAGE_AXIS);
  page_time_axis(out, length, height);
  for (int c = 0; c < in->n_calls; c++) {
    int y = c * (LANE + GAP);
    text_printf(out, "<text class=\"tick\" x=\"0\" y=\"%d\">",
                y + LANE / 2 + 4);
    page_text(out, show_stage_numbers(out->arena, priced_program(p, c)->step));
    text_printf(out, "</text>\n<g data-key=\"calls.%d\">\n", c);
    for (int i = 0; i < in->calls[c].n; i++)
      add_bar(out, &in->calls[c].data[i], length, y);
    text_add(out, "</g>\n");
  }
  text_add(out, "</svg>\n");
}
