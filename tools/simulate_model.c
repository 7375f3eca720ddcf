/*
 * simulate_model.c -- implements `dnnc simulate MODEL --cluster FILE`: how long
 * a training step of the model takes on the cluster under its plan, by part,
 * and whether it fits.
 */
#include "tools/priced.h"

static double share(int64_t part, int64_t of) {
  return of > 0 ? (double)part / (double)of : 0;
}

static double percent(Ps part, Ps of) {
  return 100.0 * share(part, of);
}

static const char *milliseconds(const Text *out, Ps time) {
  return arena_printf(out->arena, "%.3f ms", (double)time * 1e-9);
}

void priced_print_profile(Text *out, const Priced *priced) {
  const Price *price = &priced->price;
  if (!priced->model.profile) return;
  text_printf(out,
              "profile: %lld of %lld launches and %.1f %% of their time; the "
              "others by curves and formulas\n",
              (long long)price->n_measured, (long long)price->n_launches,
              percent(price->measured, price->launches));
}

void priced_print_profile_json(Text *out, const Priced *priced) {
  const Price *price = &priced->price;
  if (!priced->model.profile) return;
  text_printf(out, ",\"profile\":{\"launches\":%lld,\"launch_share\":",
              (long long)price->n_measured);
  text_add_real(out, share(price->n_measured, price->n_launches));
  text_add(out, ",\"time_share\":");
  text_add_real(out, share(price->measured, price->launches));
  text_add(out, "}");
}

/* The bytes that a rank of this class may use. */
static Bytes memory_of(const Priced *s, const PriceClass *class) {
  Bytes memory = class->group->device->values[DEVICE_memory];
  return s->pinned > 0 && s->pinned < memory ? s->pinned : memory;
}

static Bytes missing_bytes(const Priced *s) {
  Bytes most = 0;
  for (int i = 0; i < s->price.n_classes; i++) {
    Bytes missing = s->peak - memory_of(s, &s->price.classes[i]);
    if (missing > most) most = missing;
  }
  return most;
}

static void print_memory(Text *out, const Priced *s, const PriceClass *class) {
  Bytes memory = memory_of(s, class);
  text_printf(out, "memory: %s of %s%s: ",
              text_quantity(out->arena, (double)s->peak, "B"),
              text_quantity(out->arena, (double)memory, "B"),
              memory == s->pinned ? ", which the plan allows" : "");
  if (s->peak <= memory)
    text_add(out, "fits\n");
  else
    text_printf(out, "does not fit, %s are missing\n",
                text_quantity(out->arena, (double)(s->peak - memory), "B"));
}

static void print_class(Text *out, const Priced *s, const PriceClass *class) {
  text_printf(out, "%d ranks of %s (%s): compute %s, wait %s; ", class->ranks,
              class->group->name, class->group->device->name,
              milliseconds(out, class->compute),
              milliseconds(out, class->exposed));
  print_memory(out, s, class);
}

void priced_print(Text *out, const Priced *s) {
  const Price *price = &s->price;
  text_printf(out, "%s on %d ranks of %s (%s): a step takes %s (estimate)\n",
              s->c.model->name, s->c.ranks, s->cluster->name,
              priced_devices(out->arena, s), milliseconds(out, price->step));
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
  priced_print_profile(out, s);
  if (price->n_classes == 1) print_memory(out, s, price->classes);
  for (int i = 0; price->n_classes > 1 && i < price->n_classes; i++)
    print_class(out, s, &price->classes[i]);
}

static void print_json_class(Text *out, const Priced *s, int i) {
  const PriceClass *class = &s->price.classes[i];
  text_printf(out,
              "%s{\"class\":%d,\"device\":\"%s\",\"ranks\":%d,"
              "\"peak_bytes\":%lld,\"memory_bytes\":%lld,\"compute_s\":",
              i ? "," : "", i, class->group->device->name, class->ranks,
              (long long)s->peak, (long long)memory_of(s, class));
  text_add_real(out, (double)class->compute * 1e-12);
  text_add(out, ",\"exposed_comm_s\":");
  text_add_real(out, (double)class->exposed * 1e-12);
  text_add(out, "}");
}

void priced_print_json(Text *out, const Priced *s) {
  const Price *price = &s->price;
  Bytes missing = missing_bytes(s);
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
              "\"bytes_sent\":%lld,\"ranks\":[",
              missing > 0 ? "false" : "true", (long long)missing,
              (long long)price->sent);
  for (int i = 0; i < price->n_classes; i++) print_json_class(out, s, i);
  text_add(out, "]");
  priced_print_profile_json(out, s);
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
