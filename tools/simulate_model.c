/*
 * simulate_model.c -- implements `dnnc simulate MODEL --cluster FILE`: how long
 * a training step of the model takes on the cluster under its plan, by part,
 * and whether it fits.
 */
#include "tools/priced.h"

static double percent(Ps part, Ps of) {
  return of > 0 ? 100.0 * (double)part / (double)of : 0;
}

static const char *milliseconds(const Text *out, Ps time) {
  return arena_printf(out->arena, "%.3f ms", (double)time * 1e-9);
}

void priced_print(Text *out, const Priced *s) {
  const Price *price = &s->price;
  text_printf(out, "%s on %d ranks of %s (%s): a step takes %s (estimate)\n",
              s->c.model->name, s->c.ranks, s->cluster->name, s->device->name,
              milliseconds(out, price->step));
  for (int part = 0; part < N_COST_PARTS; part++)
    if (price->parts[part] > 0)
      text_printf(out, "  %-16s %14s %6.1f %%  %s\n",
                  cost_term_info((CostTerm)part)->name,
                  milliseconds(out, price->parts[part]),
                  percent(price->parts[part], price->step),
                  cost_term_info((CostTerm)part)->meaning);
  text_printf(out, "%lld launches, %lld transfers; a rank sends %s\n",
              (long long)price->n_launches, (long long)price->n_transfers,
              text_quantity(out->arena, (double)price->sent, "B"));
  text_printf(out, "memory: %s of %s: %s\n",
              text_quantity(out->arena, (double)s->peak, "B"),
              text_quantity(out->arena, (double)s->memory, "B"),
              s->peak <= s->memory ? "fits" : "does not fit");
}

void priced_print_json(Text *out, const Priced *s) {
  const Price *price = &s->price;
  text_add(out, "\"step_s\":");
  text_add_real(out, (double)price->step * 1e-12);
  text_add(out, ",\"terms\":{");
  for (int part = 0; part < N_COST_PARTS; part++) {
    text_printf(out, "%s\"%s\":", part ? "," : "",
                cost_term_info((CostTerm)part)->name);
    text_add_real(out, (double)price->parts[part] * 1e-12);
  }
  text_printf(out,
              "},\"fits\":%s,\"missing_bytes\":%lld,\"bubble\":0,"
              "\"bytes_sent\":%lld,\"ranks\":[{\"class\":0,\"ranks\":%d,"
              "\"peak_bytes\":%lld,\"compute_s\":",
              s->peak <= s->memory ? "true" : "false",
              (long long)(s->peak > s->memory ? s->peak - s->memory : 0),
              (long long)price->sent, s->c.ranks, (long long)s->peak);
  text_add_real(out, (double)price->compute * 1e-12);
  text_add(out, ",\"exposed_comm_s\":");
  text_add_real(out, (double)price->exposed * 1e-12);
  text_add(out, "}]");
}

int simulate_model(Tool *tool) {
  Priced priced;
  const char *trace = tool->options.trace;
  int code = tool_price(tool, trace != NULL, &priced);
  if (code != EXIT_done) return code;
  if (trace) {
    Status status = trace_step(tool->arena, &priced, trace);
    if (status.code != STATUS_ok) return tool_fail(status);
  }
  Text out = text_create(tool->arena);
  if (tool->options.json) text_add(&out, "{");
  (tool->options.json ? priced_print_json : priced_print)(&out, &priced);
  if (tool->options.json) text_add(&out, "}\n");
  tool_print(&out);
  return EXIT_done;
}
