/*
 * stage_text.c -- prints the bubble of each class of ranks, and the
 * alternatives to a setting of stages.
 *
 *     in this plan               a step      loss   a rank needs
 *     of a search                a step      loss   a rank needs  priced by
 *
 * An estimate of the search is called one; all else the simulator has priced.
 */
#include "tools/explain/explain.h"

#include <stdlib.h>
#include <string.h>

#include "tools/show/show_stages.h"

enum { MOST_CLASSES = 16 };

/* ---- the bubble ---- */

static void print_class(Text *out, const Explanation *e, int class) {
  const Priced *p = e->priced;
  const PriceClass *of = &p->price.classes[class];
  PhaseTimes times = phase_times(p, class);
  BubbleTimes bubble = bubble_times(out->arena, p, class);
  text_printf(out, "  %-18s %12s %16s %16s %16s %16s %16s %7.1f %%\n",
              show_stage_numbers(out->arena, priced_program(p, class)->step),
              show_ranks(out->arena, of->first_rank, of->ranks),
              inspect_ms(out->arena, phase_times_sum(&times) - times.transfers -
                                         times.messages),
              inspect_ms(out->arena, times.transfers),
              inspect_ms(out->arena, bubble.warm_up),
              inspect_ms(out->arena, bubble.steady),
              inspect_ms(out->arena, bubble.drain), 100 * priced_bubble(of));
}

void explain_print_classes(Text *out, const Explanation *e) {
  int n = e->priced->price.n_classes;
  text_printf(out, "\n%-20s %12s %16s %16s %16s %16s %16s %9s\n",
              "waits for stages", "ranks", "kernels", "transfers", "warm-up",
              "steady state", "drain", "bubble");
  for (int i = 0; i < n && i < MOST_CLASSES; i++) print_class(out, e, i);
  if (n > MOST_CLASSES)
    text_printf(out, "  and %d more classes of ranks\n", n - MOST_CLASSES);
}

static void add_seconds(Text *out, const char *key, Ps time) {
  text_printf(out, ",\"%s\":", key);
  text_add_real(out, (double)time * 1e-12);
}

static void print_class_json(Text *out, const Explanation *e, int class) {
  const Priced *p = e->priced;
  const PriceClass *of = &p->price.classes[class];
  PhaseTimes times = phase_times(p, class);
  BubbleTimes bubble = bubble_times(out->arena, p, class);
  text_add(out, "{");
  show_stage_numbers_json(out, priced_program(p, class)->step);
  text_printf(out, ",\"first_rank\":%lld,\"ranks\":%d",
              (long long)of->first_rank, of->ranks);
  add_seconds(out, "step_s", of->step);
  add_seconds(out, "kernels_s",
              phase_times_sum(&times) - times.transfers - times.messages);
  add_seconds(out, "transfers_s", times.transfers);
  add_seconds(out, "warm_up_s", bubble.warm_up);
  add_seconds(out, "steady_s", bubble.steady);
  add_seconds(out, "drain_s", bubble.drain);
  text_add(out, ",\"bubble\":");
  text_add_real(out, priced_bubble(of));
  text_add(out, "}");
}

void explain_print_classes_json(Text *out, const Explanation *e) {
  text_add(out, ",\"classes\":[");
  for (int i = 0; i < e->priced->price.n_classes; i++) {
    text_add(out, i ? ",\n" : "");
    print_class_json(out, e, i);
  }
  text_add(out, "]");
}

/* ---- alternatives ---- */

static int width_of(const Explanation *e) {
  int width = 24;
  for (int i = 0; i < e->alternatives.n; i++) {
    int length = (int)strlen(e->alternatives.data[i].text);
    if (length > width) width = length;
  }
  return width;
}

static void print_price(Text *out, const Explanation *e, Ps step, Bytes peak) {
  text_printf(out, " %16s %16s %12s", inspect_ms(out->arena, step),
              inspect_signed_ms(out->arena, step - e->priced->price.step),
              text_quantity(out->arena, (double)peak, "B"));
}

static void print_head(Text *out, const char *title, int width,
                       const char *more) {
  text_printf(out, "\n%-*s %16s %16s %12s%s\n", width + 2, title, "a step",
              "loss", "a rank needs", more);
}

static int compare_changes(const void *a, const void *b) {
  const Alternative *x = a, *y = b;
  if (x->is_legal != y->is_legal) return x->is_legal ? -1 : 1;
  if (x->step != y->step) return x->step < y->step ? -1 : 1;
  return strcmp(x->text, y->text);
}

static void print_changed(Text *out, const Explanation *e, int width) {
  int n = e->alternatives.n;
  Alternative *list =
      arena_copy(out->arena, e->alternatives.data, sizeof *list * (size_t)n);
  qsort(list, (size_t)n, sizeof *list, compare_changes);
  print_head(out, "in this plan", width, "");
  for (int i = 0; i < n; i++) {
    const Alternative *one = &list[i];
    if (!one->changed) continue;
    text_printf(out, "%s %-*s", one->is_equal ? "*" : " ", width, one->text);
    if (one->is_legal)
      print_price(out, e, one->step, one->peak);
    else
      text_printf(out, " %16s  %s", "not legal", one->why ? one->why : "");
    text_add(out, "\n");
  }
}

static void print_found(Text *out, const Explanation *e, int width) {
  print_head(out, "best plan of a search", width, "  priced by  plan");
  for (int i = 0; i < e->alternatives.n; i++) {
    const Alternative *one = &e->alternatives.data[i];
    if (!one->is_searched) continue;
    bool is_equal = one->has_found && !one->is_estimate &&
                    one->found.price.step == e->priced->price.step &&
                    one->found.price.peak == e->priced->peak;
    text_printf(out, "%s %-*s", is_equal ? "*" : " ", width, one->text);
    if (one->has_found) {
      print_price(out, e, one->found.price.step, one->found.price.peak);
      text_printf(out, "  %-9s  %s",
                  one->is_estimate ? "estimate" : "simulator",
                  one->found.words);
    } else {
      text_printf(out, " %16s  %s", "", one->why ? one->why : "");
    }
    text_add(out, "\n");
  }
}

static void print_command(Text *out, const Explanation *e) {
  const Options *options = &e->tool->options;
  text_printf(out,
              "\n* costs what the plan costs.  The plans are those that this "
              "command looks at, the best of each kind:\n  dnnc plan %s",
              options->subject);
  for (int i = 0; i < options->overrides.n; i++)
    text_printf(out, " %s=%s", options->overrides.data[i].name,
                options->overrides.data[i].value);
  text_printf(out, " --cluster %s", options->cluster);
  for (int i = 0; i < options->what_if.n; i++)
    text_printf(out, " --what-if %s", options->what_if.data[i]);
  text_printf(out, " --ranks %lld --effort %d --search stages\n",
              (long long)e->ranks, e->effort);
}

void explain_print_stages(Text *out, const Explanation *e) {
  bool has_changed = false, has_found = false;
  int width = width_of(e);
  for (int i = 0; i < e->alternatives.n; i++) {
    has_changed |= e->alternatives.data[i].changed != NULL;
    has_found |= e->alternatives.data[i].is_searched;
  }
  if (has_changed) print_changed(out, e, width);
  if (has_found) print_found(out, e, width);
  if (has_found) print_command(out, e);
  if (e->why_none) text_printf(out, "\n%s\n", e->why_none);
}
