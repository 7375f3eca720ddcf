/*
 * page_drawings.c -- draws the timelines and the memory of the page of `dnnc
 * show --html`, as SVG.
 *
 * The children of a group with a key are the elements of that array of the JSON
 * object, in its order; each has a title with what it stands for.
 */
#include "tools/show/page.h"

#include <stdio.h>
#include <string.h>

/* Pixels of a drawing. */
enum {
  WIDTH = PAGE_WIDTH,
  LEFT = PAGE_LEFT,
  RIGHT = PAGE_RIGHT,
  STREAM = 40, /* heights of lanes */
  QUEUE = 22,
  GAP = 6,
  AXIS = PAGE_AXIS,
  MEMORY = 220
};

typedef struct Scale {
  Ps begin, end;
} Scale;

static double x_of(const Scale *scale, Ps time) {
  double width = (double)(scale->end - scale->begin);
  if (width <= 0) return LEFT;
  return LEFT +
         (WIDTH - LEFT - RIGHT) * ((double)(time - scale->begin) / width);
}

/* ---- axes ---- */

/* 1, 2 or 5 times a power of ten, so that at most ten fit. */
static int64_t tick_step(int64_t length) {
  int64_t step = 1;
  for (int i = 0; step * 10 < length; i++)
    step = i % 3 == 1 ? step / 2 * 5 : step * 2;
  return step;
}

/* In the unit of the full length, so that all ticks have one. */
static const char *tick_text(Arena *arena, Ps time, Ps length) {
  bool is_s = length >= 2000000000000, is_ms = length >= 2000000000;
  double unit = is_s ? 1e-12 : is_ms ? 1e-9 : 1e-6;
  return arena_printf(arena, "%.6g %s", (double)time * unit,
                      is_s    ? "s"
                      : is_ms ? "ms"
                              : "us");
}

/* Ticks count from the begin of the drawing. */
static void add_time_axis(Text *out, const Scale *scale, int height) {
  Ps length = scale->end - scale->begin, step = tick_step(length);
  for (Ps at = 0; at <= length; at += step) {
    double x = x_of(scale, scale->begin + at);
    text_printf(out,
                "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" "
                "y2=\"%d\"/><text class=\"tick\" x=\"%.1f\" y=\"%d\" "
                "text-anchor=\"%s\">%s</text>\n",
                x, x, height, x, height + 14, x > WIDTH - 40 ? "end" : "middle",
                tick_text(out->arena, at, length));
    if (length == 0) break;
  }
}

void page_time_axis(Text *out, Ps length, int height) {
  add_time_axis(out, &(Scale){0, length}, height);
}

/* ---- timelines ---- */

void page_legend(Text *out, const Inspection *in) {
  const Priced *p = in->priced;
  bool is_used[N_COST_PARTS] = {false};
  for (int k = 0; k < N_COST_PARTS; k++) is_used[k] = p->price.parts[k] > 0;
  for (int i = 0; i < in->n_timelines; i++)
    for (int l = 1; l < in->timelines[i].n_lanes; l++)
      for (int b = 0; b < in->timelines[i].lanes[l].bars.n; b++)
        for (int k = 0; k < N_COST_PARTS; k++)
          is_used[k] |= in->timelines[i].lanes[l].bars.data[b].parts[k] > 0;
  text_add(out, "<div class=\"legend\" style=\"margin-top:8px\">");
  for (int k = 0; k < N_COST_PARTS; k++)
    if (is_used[k])
      text_printf(out,
                  "<span><i class=\"key\" style=\"background:var(--t%d)\"></i>"
                  "%s</span>",
                  k, cost_term_info((CostTerm)k)->name);
  text_add(out, "</div>\n");
}

static void add_bar_title(Text *out, const Timeline *of,
                          const TimelineBar *bar) {
  text_add(out, "<title>");
  page_text(out, *bar->first ? bar->first : "(no path)");
  if (bar->n > 1 && strcmp(bar->first, bar->last) != 0) {
    text_add(out, " to ");
    page_text(out, bar->last);
  }
  text_printf(out, "\n%s, %s", phase_name(bar->phase),
              page_time(out->arena, bar->end - bar->begin));
  if (bar->n > 1) text_printf(out, ", %d spans", bar->n);
  text_printf(out, ", at %s", page_time(out->arena, bar->begin - of->begin));
  for (int k = 0; k < N_COST_PARTS; k++)
    if (bar->parts[k] > 0)
      text_printf(out, "\n%s %s", cost_term_info((CostTerm)k)->name,
                  page_time(out->arena, bar->parts[k]));
  text_add(out, "</title>");
}

/* "mlp.dot[0]" of "block[3].mlp.dot[0]", as far as it fits. */
static void add_bar_label(Text *out, const TimelineBar *bar, double x,
                          double width, int y) {
  enum { LETTER = 6, LEAST = 4 };
  const char *dot = strchr(bar->first, '.');
  const char *label =
      dot && dot > bar->first && dot[-1] == ']' ? dot + 1 : bar->first;
  int fits = (int)(width - 6) / LETTER, n = (int)strlen(label);
  if (fits < LEAST || fits < n || bar->n > 2) return;
  text_printf(out, "<text class=\"in\" x=\"%.1f\" y=\"%d\">", x + 3, y);
  page_text(out, label);
  text_add(out, "</text>");
}

/* The parts of a bar lie on top of each other, each as high as its share. */
static void add_bar(Text *out, const Scale *scale, const Timeline *of,
                    const TimelineBar *bar, int y, int height, bool is_stream) {
  double x = x_of(scale, bar->begin), width = x_of(scale, bar->end) - x;
  Ps length = bar->end - bar->begin, sum = 0;
  for (int k = 0; k < N_COST_PARTS; k++) sum += bar->parts[k];
  /* The gaps of a joined bar of a queue stay empty. */
  double top = y;
  text_add(out, "<g class=\"b\">");
  add_bar_title(out, of, bar);
  if (sum < length) top += height * (1 - (double)sum / (double)length);
  for (int k = 0; k < N_COST_PARTS && length > 0; k++) {
    double part = height * (double)bar->parts[k] / (double)length;
    if (part < 0.05) continue;
    text_printf(out,
                "<rect class=\"t%d%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                "height=\"%.1f\"/>",
                k, is_stream && cost_part_is_wait((CostTerm)k) ? " wait" : "",
                x, top, width < 0.3 ? 0.3 : width, part);
    top += part;
  }
  add_bar_label(out, bar, x, width, y + height / 2 + 4);
  text_add(out, "</g>\n");
}

static int lane_height(int lane) {
  return lane == 0 ? STREAM : QUEUE;
}

static bool is_drawn(const Timeline *of, int lane) {
  return lane == 0 || of->lanes[lane].bars.n > 0;
}

void page_timeline(Text *out, const Inspection *in, int index) {
  const Timeline *of = &in->timelines[index];
  Scale scale = {of->begin, of->end};
  int height = 0, y = 0;
  for (int l = 0; l < of->n_lanes; l++)
    if (is_drawn(of, l)) height += lane_height(l) + GAP;
  text_add(out, "<h3>");
  page_text(out, of->title);
  text_printf(out,
              "</h3>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" "
              "class=\"timeline\">\n",
              WIDTH, height + AXIS);
  add_time_axis(out, &scale, height);
  for (int l = 0; l < of->n_lanes; l++) {
    const TimelineLane *lane = &of->lanes[l];
    if (!is_drawn(of, l)) continue;
    text_printf(out, "<text x=\"0\" y=\"%d\">", y + lane_height(l) / 2 + 4);
    page_text(out, lane->name);
    text_printf(out, "</text>\n<g data-key=\"timelines.%d.lanes.%d.bars\">\n",
                index, l);
    for (int b = 0; b < lane->bars.n; b++)
      add_bar(out, &scale, of, &lane->bars.data[b], y, lane_height(l), l == 0);
    text_add(out, "</g>\n");
    y += lane_height(l) + GAP;
  }
  text_add(out, "</svg>\n");
}

/* ---- memory ---- */

typedef struct MemoryScale {
  Scale time;
  Bytes most; /* at the top */
} MemoryScale;

static double y_of(const MemoryScale *scale, Bytes bytes) {
  return MEMORY * (1 - (double)bytes / (double)scale->most);
}

static Bytes kind_bytes(const Inspection *in, const KindRow *row, int moment) {
  if (row->is_persistent) return row->at_peak;
  for (int k = 0; k < N_PEAK_KINDS; k++)
    if (row->name == peak_kind_name((PeakKind)k))
      return in->moments[moment].bytes[k];
  UNREACHABLE();
}

/* One kind as an area on top of those before it, which `under` adds up. */
static void add_area(Text *out, const Inspection *in, const MemoryScale *scale,
                     const KindRow *row, Bytes *under) {
  int n = in->n_moments;
  Bytes *top = ARENA_ARRAY(out->arena, Bytes, n);
  text_printf(out, "<path class=\"k%d\" d=\"", page_kind_colour(row));
  for (int i = 0; i < n; i++) {
    top[i] = under[i] + kind_bytes(in, row, i);
    Ps end = i + 1 < n ? in->moments[i + 1].time : scale->time.end;
    text_printf(out, "%s%.1f %.1fH%.1f", i ? "L" : "M",
                x_of(&scale->time, in->moments[i].time), y_of(scale, top[i]),
                x_of(&scale->time, end));
  }
  for (int i = n - 1; i >= 0; i--) {
    Ps end = i + 1 < n ? in->moments[i + 1].time : scale->time.end;
    text_printf(out, "L%.1f %.1fH%.1f", x_of(&scale->time, end),
                y_of(scale, under[i]), x_of(&scale->time, in->moments[i].time));
    under[i] = top[i];
  }
  text_printf(out, "Z\"><title>%s: %s</title></path>\n", row->name, row->words);
}

/* A strip over each moment, whose title has its bytes. */
static void add_moments(Text *out, const Inspection *in,
                        const MemoryScale *scale) {
  text_add(out, "<g data-key=\"memory_over_time\">\n");
  for (int i = 0; i < in->n_moments; i++) {
    Ps end = i + 1 < in->n_moments ? in->moments[i + 1].time : scale->time.end;
    double x = x_of(&scale->time, in->moments[i].time);
    Bytes alive = 0;
    for (int k = 0; k < N_PEAK_KINDS; k++) alive += in->moments[i].bytes[k];
    text_printf(out,
                "<rect class=\"hit\" x=\"%.1f\" y=\"0\" width=\"%.1f\" "
                "height=\"%d\"><title>at %s: %s",
                x, x_of(&scale->time, end) - x, MEMORY,
                page_time(out->arena, in->moments[i].time),
                page_bytes(out->arena, alive));
    for (int k = 0; k < N_PEAK_KINDS; k++)
      if (in->moments[i].bytes[k] * 20 > alive)
        text_printf(out, "\n%s %s", peak_kind_name((PeakKind)k),
                    page_bytes(out->arena, in->moments[i].bytes[k]));
    text_add(out, "</title></rect>\n");
  }
  text_add(out, "</g>\n");
}

static void add_byte_axis(Text *out, const MemoryScale *scale) {
  int64_t step = tick_step(scale->most);
  for (Bytes at = 0; at <= scale->most; at += step)
    text_printf(out,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" "
                "y2=\"%.1f\"/><text class=\"tick\" x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%s</text>\n",
                LEFT, WIDTH - RIGHT, y_of(scale, at), y_of(scale, at), LEFT - 6,
                y_of(scale, at) + 4, page_bytes(out->arena, at));
}

/* Where it is on the scale. */
static void add_limit(Text *out, const Inspection *in,
                      const MemoryScale *scale) {
  Bytes memory = in->priced->memory;
  if (memory > scale->most) return;
  double y = y_of(scale, memory);
  text_printf(out,
              "<line class=\"limit\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" "
              "y2=\"%.1f\"/><text class=\"limit-text\" x=\"%d\" y=\"%.1f\" "
              "text-anchor=\"end\">memory of a device</text>\n",
              LEFT, WIDTH - RIGHT, y, y, WIDTH - RIGHT - 4,
              y < 16 ? y + 14 : y - 5);
}

void page_memory(Text *out, const Inspection *in) {
  const Priced *p = in->priced;
  if (in->n_moments == 0) return;
  bool shows_limit = p->memory < p->peak * 4;
  Bytes most = shows_limit && p->memory > p->peak ? p->memory : p->peak;
  MemoryScale scale = {.time = {0, p->price.step},
                       .most = most + most / 12 + 1};
  Bytes *under = ARENA_ARRAY(out->arena, Bytes, in->n_moments);
  text_printf(out, "<svg viewBox=\"0 -8 %d %d\" role=\"img\">\n", WIDTH,
              MEMORY + AXIS + 8);
  add_time_axis(out, &scale.time, MEMORY);
  add_byte_axis(out, &scale);
  for (int i = 0; i < in->kinds.n; i++)
    add_area(out, in, &scale, &in->kinds.data[i], under);
  add_limit(out, in, &scale);
  add_moments(out, in, &scale);
  text_add(out, "</svg>\n");
}
