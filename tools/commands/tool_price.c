/*
 * tool_price.c -- compiles what a command names, and prices its training step
 * as the options say.
 */
#include "tools/commands/tool_price.h"

#include <unistd.h>

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

/* Reads what decides the price; prints mistakes. */
static bool read_request(Tool *tool, PriceRequest *out) {
  const Options *options = &tool->options;
  if (!read_without(tool, &out->without)) return false;
  if (options->profile) {
    out->profile = tool_read_profile(tool, options->profile);
    if (!out->profile) return false;
  }
  if (options->what_if.n == 0) return true;
  const Cluster *cluster = driver_load_cluster(&tool->module, options->cluster);
  tool_report(tool);
  out->cluster = cluster ? what_if(tool, cluster) : NULL;
  return out->cluster != NULL;
}

int tool_price_request(Tool *tool, PriceRequest *out) {
  if (!tool->options.cluster && !tool->detected_cluster) {
    message_print("dnnc: error: what a step costs depends on the machines\n"
                  "help: name them with --cluster FILE; 'dnnc cluster detect' "
                  "writes one for this machine\n");
    return EXIT_user;
  }
  return read_request(tool, out) ? EXIT_done : EXIT_user;
}

static int price(Tool *tool, const Compilation *c, const PriceRequest *request,
                 Priced *out) {
  bool is_priced = driver_price(c, request, out);
  tool_report(tool);
  return is_priced ? EXIT_done : EXIT_user;
}

int tool_price(Tool *tool, bool wants_spans, Priced *out) {
  PriceRequest request = {.wants_spans = wants_spans};
  Compilation *c = ARENA_NEW(tool->arena, Compilation);
  int code = tool_price_request(tool, &request);
  if (code == EXIT_done) code = tool_compile(tool, c);
  return code == EXIT_done ? price(tool, c, &request, out) : code;
}

int tool_price_other(Tool *tool, const Priced *first, const char *plan,
                     bool wants_spans, Priced *out) {
  PriceRequest request = priced_request(first);
  Compilation *c = ARENA_NEW(tool->arena, Compilation);
  request.wants_spans = wants_spans;
  int code = tool_compile_other(tool, first->c, plan, c);
  return code == EXIT_done ? price(tool, c, &request, out) : code;
}

int tool_threads(void) {
  enum { MOST = 8 }; /* each of them holds a program */
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : n > MOST ? MOST : (int)n;
}
