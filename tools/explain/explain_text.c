/*
 * explain_text.c -- prints an explanation: tables, or a JSON object.
 */
#include "tools/explain/explain.h"

#include <string.h>

/* ---- tables ---- */

static const char *bytes_text(Arena *arena, Bytes bytes) {
  return text_quantity(arena, (double)bytes, "B");
}

static void print_head(Text *out, const Explanation *e) {
  const Priced *p = e->priced;
  text_printf(out, "%s: %s\n", e->subject.text, e->decision);
  if (e->subject.paths.n > 1 && e->subject.kind != SUBJECT_layer)
    text_printf(out, "stands for %d paths, of which this is the first, '%s'\n",
                e->subject.paths.n, e->subject.paths.data[0]);
  text_printf(out, "a step of the plan takes %s (estimate), a rank needs %s\n",
              inspect_ms(out->arena, p->price.step),
              bytes_text(out->arena, p->peak));
}

static void print_phases(Text *out, const Explanation *e) {
  text_printf(out, "\n%-22s %16s %16s\n",
              e->subject.node ? "time at this path" : "time of a step",
              "kernels", "waits");
  for (int i = 0; i < N_PHASES; i++) {
    const PhaseTerm *term = &e->phases[i];
    if (term->kernels == 0 && term->waits == 0) continue;
    text_printf(out, "  %-20s %16s %16s\n", phase_name((uint8_t)i),
                inspect_ms(out->arena, term->kernels),
                inspect_ms(out->arena, term->waits));
  }
  text_printf(out, "memory: %s at the peak, %s persistent\n",
              bytes_text(out->arena, e->at_peak),
              bytes_text(out->arena, e->persistent));
}

static void print_transfers(Text *out, const Explanation *e) {
  if (e->transfers.n == 0) return;
  text_printf(out, "\n%-36s %-9s %6s %12s %16s %16s\n", "transfers", "phase",
              "n", "sent", "in queues", "exposed");
  for (int i = 0; i < e->transfers.n; i++) {
    const TransferTerm *term = &e->transfers.data[i];
    text_printf(out, "  %-34s %-9s %6lld %12s %16s %16s\n",
                arena_printf(out->arena, "%s over %s", op_info(term->op)->name,
                             term->axes),
                phase_name((uint8_t)term->phase), (long long)term->n,
                bytes_text(out->arena, term->sent),
                inspect_ms(out->arena, term->busy),
                inspect_ms(out->arena, term->exposed));
  }
}

static Ps loss_of(const Explanation *e, const Alternative *one) {
  return one->found.price.step - e->priced->price.step;
}

static void print_found(Text *out, const Explanation *e,
                        const Alternative *one) {
  Arena *arena = out->arena;
  if (one->has_found)
    text_printf(out, " %16s %16s %12s  %s\n",
                inspect_ms(arena, one->found.price.step),
                inspect_signed_ms(arena, loss_of(e, one)),
                bytes_text(arena, one->found.price.peak), one->found.words);
  else if (one->is_searched)
    text_printf(out, " %16s  no plan was found%s%s\n", "", one->why ? ": " : "",
                one->why ? one->why : "");
  else if (!one->is_legal && one->why)
    text_printf(out, "  %s\n", one->why);
  else
    text_printf(out, " %16s\n", "not searched");
}

static void print_alternatives(Text *out, const Explanation *e) {
  Arena *arena = out->arena;
  int width = 20;
  for (int i = 0; i < e->alternatives.n; i++) {
    int length = (int)strlen(e->alternatives.data[i].text);
    if (length > width) width = length;
  }
  text_printf(out, "\n%-*s %16s %12s %16s %16s %12s  %s\n", width + 2,
              "alternatives", "in this plan", "a rank needs", "found with it",
              "loss", "a rank needs", "plan");
  for (int i = 0; i < e->alternatives.n; i++) {
    const Alternative *one = &e->alternatives.data[i];
    text_printf(out, "%s %-*s", one->is_equal ? "*" : " ", width, one->text);
    if (one->is_legal)
      text_printf(out, " %16s %12s", inspect_ms(arena, one->step),
                  bytes_text(arena, one->peak));
    else
      text_printf(out, " %16s %12s", "not legal", "");
    print_found(out, e, one);
  }
}

static bool has_mesh(const Explanation *e) {
  for (int i = 0; i < e->alternatives.n; i++)
    if (strncmp(e->alternatives.data[i].pins, "mesh", 4) == 0) return true;
  return false;
}

/* The command that finds the same plans. */
static void print_command(Text *out, const Explanation *e) {
  const Options *options = &e->tool->options;
  text_printf(out,
              "\n* costs what the plan costs.  Each plan was found by this "
              "command, FILE with the pin alone%s:\n  dnnc plan %s",
              has_mesh(e) && e->subject.kind != SUBJECT_setting
                  ? ", and with the mesh of the plan if it names axes"
                  : "",
              options->subject);
  for (int i = 0; i < options->overrides.n; i++)
    text_printf(out, " %s=%s", options->overrides.data[i].name,
                options->overrides.data[i].value);
  text_printf(out, " --cluster %s", options->cluster);
  for (int i = 0; i < options->what_if.n; i++)
    text_printf(out, " --what-if %s", options->what_if.data[i]);
  text_printf(out, " --ranks %lld --effort %d --plan FILE\n",
              (long long)e->ranks, e->effort);
}

void explain_print(Text *out, const Explanation *e) {
  print_head(out, e);
  print_phases(out, e);
  print_transfers(out, e);
  if (explain_is_of_stages(e)) {
    if (explain_has_stages(e)) explain_print_classes(out, e);
    explain_print_stages(out, e);
    return;
  }
  if (e->alternatives.n == 0) {
    text_add(out, "\nno line is an alternative here\n");
    return;
  }
  print_alternatives(out, e);
  print_command(out, e);
}

/* ---- JSON ---- */

static void add_seconds(Text *out, const char *key, Ps time) {
  text_printf(out, ",\"%s\":", key);
  text_add_real(out, (double)time * 1e-12);
}

static void add_string(Text *out, const char *key, const char *text) {
  text_printf(out, ",\"%s\":", key);
  text_add_json(out, text);
}

static void print_terms_json(Text *out, const Explanation *e) {
  text_add(out, ",\"phases\":[");
  for (int i = 0, n = 0; i < N_PHASES; i++) {
    const PhaseTerm *term = &e->phases[i];
    if (term->kernels == 0 && term->waits == 0) continue;
    text_printf(out, "%s{\"phase\":\"%s\"", n++ ? "," : "",
                phase_name((uint8_t)i));
    add_seconds(out, "kernels_s", term->kernels);
    add_seconds(out, "waits_s", term->waits);
    text_add(out, "}");
  }
  text_add(out, "],\"transfers\":[");
  for (int i = 0; i < e->transfers.n; i++) {
    const TransferTerm *term = &e->transfers.data[i];
    text_printf(out, "%s{\"operator\":\"%s\"", i ? "," : "",
                op_info(term->op)->name);
    add_string(out, "axes", term->axes);
    add_string(out, "phase", phase_name((uint8_t)term->phase));
    text_printf(out, ",\"times\":%lld,\"sent_bytes\":%lld", (long long)term->n,
                (long long)term->sent);
    add_seconds(out, "busy_s", term->busy);
    add_seconds(out, "exposed_s", term->exposed);
    text_add(out, "}");
  }
  text_add(out, "]");
}

static void print_alternative_json(Text *out, const Explanation *e,
                                   const Alternative *one) {
  text_add(out, "{\"pin\":");
  text_add_json(out, one->text);
  if (*one->pins) add_string(out, "pins", one->pins);
  text_printf(out, ",\"equal\":%s", one->is_equal ? "true" : "false");
  if (one->is_legal) {
    add_seconds(out, "changed_step_s", one->step);
    add_seconds(out, "changed_loss_s", one->step - e->priced->price.step);
    text_printf(out, ",\"changed_peak_bytes\":%lld", (long long)one->peak);
  }
  if (one->why) add_string(out, "why", one->why);
  text_printf(out, ",\"searched\":%s", one->is_searched ? "true" : "false");
  if (one->has_found) {
    add_seconds(out, "step_s", one->found.price.step);
    add_seconds(out, "loss_s", loss_of(e, one));
    add_string(out, "priced_by", one->is_estimate ? "estimate" : "simulator");
    text_printf(out, ",\"peak_bytes\":%lld", (long long)one->found.price.peak);
    add_string(out, "words", one->found.words);
    add_string(out, "plan", one->found.text);
  }
  text_add(out, "}");
}

void explain_print_json(Text *out, const Explanation *e) {
  text_add(out, "{\"subject\":");
  text_add_json(out, e->subject.text);
  text_printf(out, ",\"paths\":%d", e->subject.paths.n);
  add_string(out, "decision", e->decision);
  add_seconds(out, "step_s", e->priced->price.step);
  text_printf(out,
              ",\"peak_bytes\":%lld,\"at_peak_bytes\":%lld,"
              "\"persistent_bytes\":%lld,\"ranks\":%lld,\"effort\":%d",
              (long long)e->priced->peak, (long long)e->at_peak,
              (long long)e->persistent, (long long)e->ranks, e->effort);
  print_terms_json(out, e);
  if (explain_has_stages(e)) explain_print_classes_json(out, e);
  text_add(out, ",\"alternatives\":[");
  for (int i = 0; i < e->alternatives.n; i++) {
    if (i > 0) text_add(out, ",\n");
    print_alternative_json(out, e, &e->alternatives.data[i]);
  }
  text_add(out, "]}\n");
}
