/*
 * simulate_model.c -- prints how long a training step of a model takes on a
 * cluster under its plan, by part, how sure that is, and whether it fits.
 */
#include "tools/show/show_classes.h"
#include "tools/show/show_stages.h"

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

static bool has_stages(const Priced *s) {
  return s->step->edges.n > 0;
}

static Bytes missing_bytes(const Priced *s) {
  Bytes most = 0;
  for (int i = 0; i < s->price.n_classes; i++) {
    const PriceClass *class = &s->price.classes[i];
    Bytes missing = priced_peak_of(s, class) - priced_memory_of(s, class);
    if (missing > most) most = missing;
  }
  return most;
}

/* The entry point that decides, where it is not the training step. */
static void print_largest(Text *out, const Priced *s) {
  const EntryPoint *largest = driver_largest(s->c);
  if (largest->id == ENTRY_train) return;
  text_printf(out, "the entry point '%s' needs it, a training step %s\n",
              largest->name,
              text_quantity(out->arena,
                            (double)s->stage->assignment->arena_bytes, "B"));
}

/* A device of the ranks of which no run is published; NULL: there is none. */
static const char *unchecked_device(const Priced *s) {
  for (int i = 0; i < s->price.n_classes; i++) {
    const char *device = s->price.classes[i].group->device->name;
    if (cost_published_runs(device) == 0) return device;
  }
  return NULL;
}

static void print_head(Text *out, const Priced *s) {
  const char *unchecked = unchecked_device(s);
  PriceErrors errors = cost_errors();
  text_printf(out, "%s on %d ranks of %s (%s): a step takes %s%s (estimate; ",
              s->c->model->name, s->c->ranks, s->cluster->name,
              priced_devices(out->arena, s), milliseconds(out, s->price.step),
              s->price.step >= SIM_LONGEST ? " or more" : "");
  if (unchecked)
    text_printf(out, "no published run of %s)\n", unchecked);
  else
    text_printf(out,
                "mean error %.1f %%, largest %.1f %%, on %d published runs)\n",
                100 * errors.mean, 100 * errors.largest, errors.runs);
}

/* ---- servers ---- */

typedef enum LargestLoad { LOAD_compute, LOAD_link, LOAD_service } LargestLoad;

static LargestLoad largest_load(const ServerLoads *loads) {
  if (loads->link > loads->compute && loads->link > loads->service)
    return LOAD_link;
  return loads->service > loads->compute ? LOAD_service : LOAD_compute;
}

static const char *staleness_text(Arena *arena, const ServerLoads *loads) {
  if (loads->staleness < 0) return "none";
  return arena_printf(arena, "%lld", (long long)loads->staleness);
}

static void print_servers(Text *out, const Priced *s) {
  static const char *const names[] = {"what a worker computes", "the link",
                                      "the server"};
  const ServerLoads *loads = s->price.servers;
  if (!loads) return;
  text_printf(out,
              "%d workers, %d server%s, staleness %s: in a step a worker "
              "computes %s, the fullest link, %s rank %lld, carries messages "
              "for %s, and rank %lld serves pushes for %s; the largest load is "
              "%s\n",
              loads->workers, loads->n, loads->n > 1 ? "s" : "",
              staleness_text(out->arena, loads),
              milliseconds(out, loads->compute),
              loads->link_to == LINK_in ? "into" : "out of",
              (long long)loads->link_rank, milliseconds(out, loads->link),
              (long long)loads->service_rank, milliseconds(out, loads->service),
              names[largest_load(loads)]);
  if (loads->fastest < loads->slowest)
    text_printf(out, "workers make a clock in %s to %s\n",
                milliseconds(out, loads->fastest),
                milliseconds(out, loads->slowest));
}

static void print_seconds_json(Text *out, const char *key, Ps time) {
  text_printf(out, ",\"%s\":", key);
  text_add_real(out, (double)time * 1e-12);
}

static void print_servers_json(Text *out, const Priced *s) {
  static const char *const names[] = {"compute", "link", "service"};
  const ServerLoads *loads = s->price.servers;
  if (!loads) return;
  text_printf(out, ",\"servers\":{\"workers\":%d,\"servers\":%d,\"staleness\":",
              loads->workers, loads->n);
  if (loads->staleness < 0)
    text_add(out, "null");
  else
    text_printf(out, "%lld", (long long)loads->staleness);
  print_seconds_json(out, "compute_s", loads->compute);
  print_seconds_json(out, "link_s", loads->link);
  text_printf(out, ",\"link_rank\":%lld,\"link_direction\":\"%s\"",
              (long long)loads->link_rank,
              loads->link_to == LINK_in ? "in" : "out");
  print_seconds_json(out, "service_s", loads->service);
  text_printf(out, ",\"service_rank\":%lld,\"largest\":\"%s\"",
              (long long)loads->service_rank, names[largest_load(loads)]);
  print_seconds_json(out, "fastest_clock_s", loads->fastest);
  print_seconds_json(out, "slowest_clock_s", loads->slowest);
  text_add(out, "}");
}

void priced_print(Text *out, const Priced *s) {
  const Price *price = &s->price;
  print_head(out, s);
  for (int part = 0; part < N_COST_PARTS; part++)
    if (price->parts[part] > 0)
      text_printf(out, "  %-16s %14s %6.1f %%  %s\n",
                  cost_term_info((CostTerm)part)->name,
                  milliseconds(out, price->parts[part]),
                  percent(price->parts[part], price->step),
                  cost_term_info((CostTerm)part)->meaning);
  text_printf(out, "%lld launches, %lld transfers; a rank sends %s",
              (long long)price->n_launches, (long long)price->n_transfers,
              text_quantity(out->arena, (double)price->sent, "B"));
  if (price->n_batches > 1)
    text_printf(out, ", in %d steps: times are the mean of these",
                price->n_batches);
  text_add(out, "\n");
  priced_print_profile(out, s);
  print_servers(out, s);
  priced_print_classes(out, s);
  print_largest(out, s);
}

static void print_json_stages(Text *out, const Priced *s,
                              const PriceClass *class) {
  const EntryPoint *step = s->programs[class->program].step;
  text_printf(out, ",\"first_rank\":%lld,", (long long)class->first_rank);
  show_stage_numbers_json(out, step);
  text_add(out, ",\"bubble\":");
  text_add_real(out, priced_bubble(class));
  text_add(out, ",");
  show_arena_json(out, &step->arena);
}

static void print_json_class(Text *out, const Priced *s, int i) {
  const PriceClass *class = &s->price.classes[i];
  text_printf(out,
              "%s{\"class\":%d,\"device\":\"%s\",\"ranks\":%d,"
              "\"peak_bytes\":%lld,\"memory_bytes\":%lld,"
              "\"reserve_bytes\":%lld,\"compute_s\":",
              i ? "," : "", i, class->group->device->name, class->ranks,
              (long long)priced_peak_of(s, class),
              (long long)priced_memory_of(s, class),
              (long long)class->group->device->values[DEVICE_reserve]);
  text_add_real(out, (double)class->compute * 1e-12);
  text_add(out, ",\"exposed_comm_s\":");
  text_add_real(out, (double)class->exposed * 1e-12);
  text_printf(out, ",\"bytes_sent\":%lld", (long long)class->sent);
  if (has_stages(s)) print_json_stages(out, s, class);
  if (s->price.servers)
    text_printf(out, ",\"first_rank\":%lld,\"title\":\"%s\"",
                (long long)class->first_rank,
                s->programs[class->program].program->title);
  text_add(out, "}");
}

static void print_errors_json(Text *out) {
  PriceErrors errors = cost_errors();
  text_add(out, ",\"mean_error\":");
  text_add_real(out, errors.mean);
  text_add(out, ",\"largest_error\":");
  text_add_real(out, errors.largest);
  text_printf(out, ",\"published_runs\":%d", errors.runs);
}

void priced_print_json(Text *out, const Priced *s) {
  const Price *price = &s->price;
  Bytes missing = missing_bytes(s);
  text_add(out, "\"step_s\":");
  text_add_real(out, (double)price->step * 1e-12);
  text_add(out, ",\"terms\":{");
  for (int part = 0; part < N_COST_PARTS; part++) {
    if (!price_has_part(price, (CostTerm)part)) continue;
    text_printf(out, "%s\"%s\":", part ? "," : "",
                cost_term_info((CostTerm)part)->name);
    text_add_real(out, (double)price->parts[part] * 1e-12);
  }
  text_printf(out, "},\"fits\":%s,\"missing_bytes\":%lld,\"bubble\":",
              missing > 0 ? "false" : "true", (long long)missing);
  if (price->has_messages)
    text_add_real(out, priced_bubble(&price->classes[price->slowest]));
  else
    text_add(out, "0");
  text_printf(out, ",\"bytes_sent\":%lld,", (long long)price->sent);
  if (price->n_batches > 1)
    text_printf(out, "\"steps_of_period\":%d,", price->n_batches);
  text_add(out, "\"ranks\":[");
  for (int i = 0; i < price->n_classes; i++) print_json_class(out, s, i);
  text_add(out, "]");
  print_servers_json(out, s);
  text_add(out, ",");
  if (has_stages(s)) {
    show_edges_json(out, s->programs[0].step);
    text_add(out, ",");
  }
  show_entry_points(out, s->c, true);
  if (!unchecked_device(s)) print_errors_json(out);
  priced_print_profile_json(out, s);
}
