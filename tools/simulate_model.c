/*
 * simulate_model.c -- implements `dnnc simulate MODEL --cluster FILE`: how long
 * a training step of the model takes on the cluster under its plan, by part,
 * and whether it fits.
 */
#include "passes/plan/price.h"
#include "tools/tools.h"

#include <string.h>

/* Reads --without; prints a mistake. */
static bool read_without(const Tool *tool, uint32_t *without) {
  const char *names[N_COST_TERMS];
  for (int i = 0; i < N_COST_TERMS; i++)
    names[i] = cost_term_info((CostTerm)i)->name;
  for (int i = 0; i < tool->options.without.n; i++) {
    const char *name = tool->options.without.data[i];
    int term = cost_term_find(name);
    if (term < 0) {
      const char *nearest = text_nearest(name, names, N_COST_TERMS);
      message_print("dnnc: error: no term '%s'\n", name);
      if (nearest) message_print("help: did you mean '%s'?\n", nearest);
      return false;
    }
    *without |= (uint32_t)1 << term;
  }
  return true;
}

typedef struct Simulated {
  const Compilation *c;
  const ClusterDevice *device;
  const Profile *profile; /* or NULL */
  Bytes peak, memory;
  Price price;
} Simulated;

static double share(int64_t part, int64_t of) {
  return of > 0 ? (double)part / (double)of : 0;
}

static double percent(Ps part, Ps of) {
  return 100.0 * share(part, of);
}

static const char *milliseconds(const Text *out, Ps time) {
  return arena_printf(out->arena, "%.3f ms", (double)time * 1e-9);
}

/* How much of the price the profile has given. */
static void print_profile(Text *out, const Price *price) {
  text_printf(out,
              "profile: %lld of %lld launches and %.1f %% of their time; the "
              "others by formula\n",
              (long long)price->n_measured, (long long)price->n_launches,
              percent(price->measured, price->launches));
}

static void print_profile_json(Text *out, const Price *price) {
  text_printf(out, ",\"profile\":{\"launches\":%lld,\"launch_share\":",
              (long long)price->n_measured);
  text_add_real(out, share(price->n_measured, price->n_launches));
  text_add(out, ",\"time_share\":");
  text_add_real(out, share(price->measured, price->launches));
  text_add(out, "}");
}

static void print_words(Text *out, const Simulated *s) {
  const Price *price = &s->price;
  text_printf(out, "%s on %d ranks of %s (%s): a step takes %s (estimate)\n",
              s->c->model->name, s->c->ranks, s->c->cluster->name,
              s->device->name, milliseconds(out, price->step));
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
  if (s->profile) print_profile(out, price);
  text_printf(out, "memory: %s of %s: %s\n",
              text_quantity(out->arena, (double)s->peak, "B"),
              text_quantity(out->arena, (double)s->memory, "B"),
              s->peak <= s->memory ? "fits" : "does not fit");
}

static void print_json(Text *out, const Simulated *s) {
  const Price *price = &s->price;
  text_add(out, "{\"step_s\":");
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
              (long long)price->sent, s->c->ranks, (long long)s->peak);
  text_add_real(out, (double)price->compute * 1e-12);
  text_add(out, ",\"exposed_comm_s\":");
  text_add_real(out, (double)price->exposed * 1e-12);
  text_add(out, "}]");
  if (s->profile) print_profile_json(out, price);
  text_add(out, "}\n");
}

/* A profile of other machines gives nothing, which looks like a mistake. */
static void note_cores(const Simulated *s, const CostModel *model) {
  int cores = profile_cores(s->profile);
  if (s->price.n_measured > 0 || cores == 0 || cores == model->rates.units)
    return;
  message_print("dnnc: note: the launches of the profile had %d cores, and a "
                "rank of cluster '%s' has %d\n",
                cores, s->c->cluster->name, model->rates.units);
}

static bool check_model(const Compilation *c) {
  if (!c->trained) {
    message_print("dnnc: error: '%s' has no train block\n", c->model->name);
    return false;
  }
  if (c->cluster->n_groups > 1) {
    message_print("dnnc: error: not supported yet: a program on the %d groups "
                  "of devices of cluster '%s'\n",
                  c->cluster->n_groups, c->cluster->name);
    return false;
  }
  return driver_check_ranks(c->cluster, c->ranks);
}

int simulate_model(Tool *tool) {
  Options *options = &tool->options;
  CostModel model = {0};
  if (!options->cluster) {
    message_print("dnnc: error: what a step costs depends on the machines\n"
                  "help: name them with --cluster FILE; 'dnnc cluster detect' "
                  "writes one for this machine\n");
    return EXIT_user;
  }
  if (!read_without(tool, &model.without)) return EXIT_user;
  if (options->profile) {
    model.profile = tool_read_profile(tool, options->profile);
    if (!model.profile) return EXIT_user;
  }
  Compilation c;
  int code = tool_compile(tool, &c);
  if (code != EXIT_done) return code;
  if (!check_model(&c)) return EXIT_user;
  Simulated s = {
      .c = &c, .device = c.cluster->groups[0].device, .profile = model.profile};
  const EntryPoint *step = driver_training_step(&c);
  cost_model_of(s.device, &model);
  s.memory = s.device->values[DEVICE_memory];
  s.peak = driver_arena_bytes(&c);
  s.price = price_list(tool->arena, step->instructions, &model, c.cluster, NULL,
                       NULL);
  if (s.profile) note_cores(&s, &model);
  Text out = text_create(tool->arena);
  (options->json ? print_json : print_words)(&out, &s);
  tool_print(&out);
  return EXIT_done;
}
