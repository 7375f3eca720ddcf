/*
 * bench_pipedream.c -- chooses stages and their replicas for a profile of
 * PipeDream, by PipeDream's objective.
 *
 *     bench_pipedream FILE --machines N [N ...] --bandwidth B [B ...]
 *                     [--sync sum4|sum2|max] [--json]
 *
 * FILE is a graph.txt of PipeDream's profiler.  One N is a flat cluster; of
 * several, the first is the number of devices in a server, and B the bytes a
 * second between two of them.  --sync says what a sum of gradients takes: sum4
 * is what PipeDream's code adds to a stage, 4 (m - 1) / m bytes of parameters;
 * sum2 adds a ring; max, as in the paper, hides a ring behind the computation,
 * so the longer of both counts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benchmarks/pipedream_profile.h"
#include "planner/cuts/cuts.h"

enum { MOST_LEVELS = 4 };
enum { MOST_NAMES = 4, MOST_NAME = 40 }; /* of a cut, in a line */

static const char usage[] =
    "usage: bench_pipedream FILE --machines N [N ...] --bandwidth B [B ...]\n"
    "                       [--sync sum4|sum2|max] [--json]\n";
static const char *const sync_names[] = {"sum4", "sum2", "max"};

typedef struct Options {
  const char *path;
  int n_levels, n_bandwidths;
  CutLevel levels[MOST_LEVELS];
  CutSync sync;
  bool json;
} Options;

typedef struct Bench {
  Arena *arena;
  Options options;
  Profile profile;
  int most_states;
  CutStates states;
  CutPlan plan;
} Bench;

/* ---- options ---- */

static bool wrong_option(const char *what, const char *text) {
  message_print("error: %s: '%s'\n%s", what, text, usage);
  return false;
}

static bool read_machines(Options *options, const char *text) {
  char *end;
  long n = strtol(text, &end, 10);
  if (*end || end == text || n < 1 || n > CUT_MOST_MACHINES)
    return wrong_option("--machines takes numbers from 1 to 1024", text);
  if (options->n_levels == MOST_LEVELS)
    return wrong_option("there are at most 4 levels of machines", text);
  options->levels[options->n_levels++].machines = (int)n;
  return true;
}

static bool read_bandwidth(Options *options, const char *text) {
  double rate;
  if (!text_read_real(text, strlen(text), &rate) || !(rate >= 1) ||
      !(rate <= 1e18))
    return wrong_option("--bandwidth takes bytes a second, from 1 to 1e18",
                        text);
  if (options->n_bandwidths == MOST_LEVELS)
    return wrong_option("there are at most 4 levels of machines", text);
  options->levels[options->n_bandwidths++].bandwidth = rate;
  return true;
}

static bool read_sync(Options *options, const char *text) {
  for (int s = 0; s < ARRAY_LENGTH(sync_names); s++)
    if (!strcmp(text, sync_names[s])) {
      options->sync = (CutSync)s;
      return true;
    }
  return wrong_option("--sync takes sum4, sum2 or max", text);
}

static bool read_file_name(Options *options, const char *text) {
  if (options->path) return wrong_option("there is one FILE", text);
  options->path = text;
  return true;
}

static bool read_options(int argc, char **argv, Options *options) {
  *options = (Options){.sync = CUT_max};
  bool (*reads)(Options *, const char *) = read_file_name;
  const char *open = NULL; /* an option that still lacks its value */
  for (int a = 1; a < argc; a++) {
    if (!strncmp(argv[a], "--", 2)) {
      if (open) return wrong_option("a value is missing", open);
      if (!strcmp(argv[a], "--json")) {
        options->json = true;
        reads = read_file_name;
        continue;
      }
      if (!strcmp(argv[a], "--machines"))
        reads = read_machines;
      else if (!strcmp(argv[a], "--bandwidth"))
        reads = read_bandwidth;
      else if (!strcmp(argv[a], "--sync"))
        reads = read_sync;
      else
        return wrong_option("unknown option", argv[a]);
      open = argv[a];
      continue;
    }
    if (!reads(options, argv[a])) return false;
    if (reads == read_sync) reads = read_file_name;
    open = NULL;
  }
  if (open) return wrong_option("a value is missing", open);
  if (!options->path || options->n_levels == 0) {
    message_print("%s", usage);
    return false;
  }
  if (options->n_bandwidths == options->n_levels) return true;
  message_print("error: --machines has %d numbers, --bandwidth has %d\n%s",
                options->n_levels, options->n_bandwidths, usage);
  return false;
}

/* ---- text ---- */

/* Writes 15-1; of levels, a server's stages with its copies: [1-3] x2 | 4. */
static void add_shape(Text *text, const CutStage *stages, int n) {
  for (int s = 0; s < n; s++) {
    const CutStage *stage = &stages[s];
    if (stage->n_inner == 0) {
      text_printf(text, "%s%d", s ? "-" : "", stage->replicas);
      continue;
    }
    text_add(text, s ? " | " : "");
    bool closed = stage->replicas > 1 || stage->inner[0].n_inner > 0;
    text_add(text, closed ? "[" : "");
    add_shape(text, stage->inner, stage->n_inner);
    text_add(text, closed ? "]" : "");
    if (stage->replicas > 1) text_printf(text, " x%d", stage->replicas);
  }
}

/* Writes an id and the beginning of a description. */
static void add_node(const Bench *bench, Text *text, int node) {
  char name[MOST_NAME + 1];
  FixedText fixed = fixed_text(name, sizeof name);
  fixed_printf(&fixed, "%s", bench->profile.names[node]);
  text_printf(text, "%s ", bench->profile.ids[node]);
  message_escape(text, name);
}

/* Writes the nodes whose results cross the end of a stage. */
static void add_cut(const Bench *bench, Text *text, int state) {
  int n = 0;
  for (int node = 0; node < bench->profile.graph.n_nodes; node++) {
    if (!cut_state_sends(&bench->profile.graph, &bench->states, state, node))
      continue;
    if (n++ >= MOST_NAMES) continue;
    if (n > 1) text_add(text, ", ");
    add_node(bench, text, node);
  }
  if (n > MOST_NAMES) text_printf(text, " and %d more", n - MOST_NAMES);
}

static void add_stages(const Bench *bench, Text *text, const CutStage *stages,
                       int n, int depth) {
  const CutState *states = bench->states.states;
  int all = bench->states.n - 1;
  for (int s = 0; s < n; s++) {
    const CutStage *stage = &stages[s];
    text_printf(text, "%*s%-*d %8d %6d %11.3f %9.3f %11.3f %9.3f %9.3f\n",
                2 * depth, "", 8 - 2 * depth, s, stage->replicas,
                states[stage->end].n_nodes - states[stage->begin].n_nodes,
                stage->compute_s * 1e3, stage->sync_s * 1e3,
                stage->receive_s * 1e3, stage->send_s * 1e3,
                stage->cost_s * 1e3);
    add_stages(bench, text, stage->inner, stage->n_inner, depth + 1);
    if (s == n - 1 || stage->end == all) continue;
    text_printf(text, "%*scut after ", 2 * depth, "");
    add_cut(bench, text, stage->end);
    text_printf(text, ": %.3f MB\n",
                (double)states[stage->end].out_bytes * 1e-6);
  }
}

static void add_text(const Bench *bench, Text *text) {
  const Options *options = &bench->options;
  const CutPlan *plan = &bench->plan;
  text_printf(text, "%s: %d nodes, %d states, %.3f ms on one machine\n",
              options->path, bench->profile.graph.n_nodes, bench->states.n - 1,
              plan->one_machine_s * 1e3);
  if (bench->states.n_pieces)
    text_printf(text,
                "too many antichains (more than %d): cut at %d single tensors; "
                "of %d pieces, %d branch by branch, %d of these node by node\n",
                bench->most_states, bench->states.n_pieces - 1,
                bench->states.n_pieces, bench->states.n_by_branch,
                bench->states.n_by_node);
  for (int l = 0; l < options->n_levels; l++)
    text_printf(text, "%s%d machines at %g GB/s", l ? " in each of " : "",
                options->levels[l].machines,
                options->levels[l].bandwidth * 1e-9);
  text_printf(text, ", sync %s: ", sync_names[options->sync]);
  add_shape(text, plan->stages, plan->n_stages);
  text_add(text, "\nstage    replicas  nodes  compute ms   sync ms  receive ms"
                 "   send ms   cost ms\n");
  add_stages(bench, text, plan->stages, plan->n_stages, 0);
  text_printf(text,
              "%.3f ms a minibatch, %.2f x one machine, %.2f x data "
              "parallelism (%.3f ms)\n",
              plan->seconds * 1e3, plan->one_machine_s / plan->seconds,
              plan->data_parallel_s / plan->seconds,
              plan->data_parallel_s * 1e3);
}

/* ---- JSON ---- */

static void json_real(Text *text, const char *key, double value) {
  text_printf(text, ",\"%s\":", key);
  text_add_real(text, value);
}

static bool is_in_stage(const Bench *bench, const CutStage *stage, int node) {
  return cut_state_has(&bench->states, stage->end, node) &&
         !cut_state_has(&bench->states, stage->begin, node);
}

static bool is_sent(const Bench *bench, const CutStage *stage, int node) {
  return cut_state_sends(&bench->profile.graph, &bench->states, stage->end,
                         node);
}

static void json_nodes(const Bench *bench, Text *text, const char *key,
                       const CutStage *stage,
                       bool (*is_listed)(const Bench *, const CutStage *,
                                         int)) {
  const char *comma = "";
  text_printf(text, ",\"%s\":[", key);
  for (int node = 0; node < bench->profile.graph.n_nodes; node++) {
    if (!is_listed(bench, stage, node)) continue;
    text_printf(text, "%s\"%s\"", comma, bench->profile.ids[node]);
    comma = ",";
  }
  text_add(text, "]");
}

static void json_stages(const Bench *bench, Text *text, const CutStage *stages,
                        int n) {
  text_add(text, ",\"stages\":[");
  for (int s = 0; s < n; s++) {
    const CutStage *stage = &stages[s];
    text_printf(text, "%s{\"replicas\":%d", s ? "," : "", stage->replicas);
    json_real(text, "compute_s", stage->compute_s);
    json_real(text, "sync_s", stage->sync_s);
    json_real(text, "receive_s", stage->receive_s);
    json_real(text, "send_s", stage->send_s);
    json_real(text, "cost_s", stage->cost_s);
    json_nodes(bench, text, "nodes", stage, is_in_stage);
    json_nodes(bench, text, "sends", stage, is_sent);
    text_printf(text, ",\"send_bytes\":%lld",
                (long long)bench->states.states[stage->end].out_bytes);
    if (stage->n_inner) json_stages(bench, text, stage->inner, stage->n_inner);
    text_add(text, "}");
  }
  text_add(text, "]");
}

static void add_json(const Bench *bench, Text *text) {
  const Options *options = &bench->options;
  const CutPlan *plan = &bench->plan;
  text_add(text, "{\"file\":");
  text_add_json(text, options->path);
  text_printf(text, ",\"nodes\":%d,\"states\":%d", bench->profile.graph.n_nodes,
              bench->states.n - 1);
  text_printf(text,
              ",\"pieces\":%d,\"pieces_by_branch\":%d,\"pieces_by_node\":%d",
              bench->states.n_pieces, bench->states.n_by_branch,
              bench->states.n_by_node);
  text_add(text, ",\"machines\":[");
  for (int l = 0; l < options->n_levels; l++)
    text_printf(text, "%s%d", l ? "," : "", options->levels[l].machines);
  text_add(text, "],\"bandwidth\":[");
  for (int l = 0; l < options->n_levels; l++) {
    text_add(text, l ? "," : "");
    text_add_real(text, options->levels[l].bandwidth);
  }
  text_printf(text, "],\"sync\":\"%s\",\"plan\":\"", sync_names[options->sync]);
  add_shape(text, plan->stages, plan->n_stages);
  text_add(text, "\"");
  json_real(text, "minibatch_s", plan->seconds);
  json_real(text, "one_machine_s", plan->one_machine_s);
  json_real(text, "data_parallel_s", plan->data_parallel_s);
  json_stages(bench, text, plan->stages, plan->n_stages);
  text_add(text, "}\n");
}

/* ---- main ---- */

static void exhausted(void *user) {
  (void)user;
  message_print("error: out of memory\n");
  exit(1);
}

static bool run(Bench *bench) {
  const Options *options = &bench->options;
  const CutGraph *graph = &bench->profile.graph;
  if (!profile_read(bench->arena, options->path, &bench->profile)) return false;
  bench->most_states = cut_most_states(options->levels, options->n_levels);
  if (!cut_states(bench->arena, graph, bench->most_states, &bench->states)) {
    message_print("%s: error: %d nodes, at most %d are supported for these "
                  "machines\n",
                  options->path, graph->n_nodes, bench->most_states - 1);
    return false;
  }
  if (bench->states.states[bench->states.n - 1].compute_ns == 0) {
    message_print("%s: error: no node takes any time\n", options->path);
    return false;
  }
  bench->plan = cut_solve(bench->arena, &bench->states, options->levels,
                          options->n_levels, options->sync);
  Text text = text_create(bench->arena);
  if (options->json)
    add_json(bench, &text);
  else
    add_text(bench, &text);
  fputs(text_string(&text), stdout);
  return fflush(stdout) == 0;
}

int main(int argc, char **argv) {
  Memory *memory = memory_create(exhausted, NULL);
  Bench bench = {.arena = arena_create(memory)};
  bool is_done = read_options(argc, argv, &bench.options) && run(&bench);
  memory_destroy(memory);
  return is_done ? 0 : 1;
}
