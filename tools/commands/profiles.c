/*
 * profiles.c -- reads the profile of a command, and says how long the launches
 * of a paced run take.
 */
#include "price/cost.h"
#include "tools/commands/tools.h"

#include <string.h>

enum { MOST_PROFILE_BYTES = 64 << 20 };

const Profile *tool_read_profile(Tool *tool, const char *path) {
  Source *source = ARENA_NEW(tool->arena, Source);
  source->path = path;
  Status status = file_read(tool->arena, path, MOST_PROFILE_BYTES,
                            &source->text, &source->n);
  if (status.code != STATUS_ok) {
    tool_fail(status);
    return NULL;
  }
  const Profile *profile =
      profile_read(tool->arena, tool->module.diags, source);
  return tool_report(tool) ? NULL : profile;
}

/* ---- a paced run ---- */

/* The user of a Pacer. */
typedef struct Pacing {
  CostModel model;
  bool has_cluster; /* else what the profile lacks is listed */
  int64_t n_launches, n_missing;
  Text missing;
} Pacing;

static LaunchCost cost_of(const Pacing *pacing, const Graph *graph, int id,
                          bool is_clear) {
  return (is_clear ? cost_clear : cost_launch)(&pacing->model, graph, id);
}

static int64_t pace_of(void *user, const Graph *graph, int id, bool is_clear) {
  LaunchCost cost = cost_of(user, graph, id, is_clear);
  return cost.launch + cost.time;
}

static void note_launch(Pacing *pacing, const Graph *graph, int id,
                        bool is_clear) {
  enum { MOST_LISTED = 5 };
  const Node *node = graph->nodes.data[id];
  pacing->n_launches++;
  if (cost_of(pacing, graph, id, is_clear).is_measured) return;
  if (pacing->n_missing++ < MOST_LISTED)
    text_printf(
        &pacing->missing, "  '%s', %s, kernel %016llx\n", node->path,
        phase_name(node->phase),
        (unsigned long long)(is_clear ? clear_key : launch_key)(graph, id));
}

/* Launches of a list that the profile lacks. */
static void note_missing(Pacing *pacing, const InstructionList *list) {
  VEC(const Graph *) graphs = {0};
  Arena *arena = pacing->missing.arena;
  vec_push(arena, &graphs, list->graph);
  for (int i = 0; i < list->instructions.n; i++) {
    const Instruction *instruction = &list->instructions.data[i];
    const Graph *graph = graphs.data[graphs.n - 1];
    int id = instruction->node;
    switch (instruction->kind) {
    case INSTRUCTION_run: note_launch(pacing, graph, id, false); break;
    case INSTRUCTION_clear: note_launch(pacing, graph, id, true); break;
    case INSTRUCTION_loop:
      vec_push(arena, &graphs, id < 0 ? graph : graph->nodes.data[id]->body);
      break;
    case INSTRUCTION_end: graphs.n--; break;
    case INSTRUCTION_swap:
    case INSTRUCTION_start:
    case INSTRUCTION_wait:
    case N_INSTRUCTIONS: break;
    }
  }
}

/* All ranks of a class launch the same. */
static void note_missing_of_class(Pacing *pacing, const ProgramClass *class) {
  const EntryPoint *step = rank_program_find(&class->program, ENTRY_train);
  for (int s = 0; s < step->stages.n; s++)
    note_missing(pacing, step->stages.data[s].instructions);
}

static bool check_missing(const Pacing *pacing, const char *path) {
  if (pacing->n_missing == 0 || pacing->has_cluster) return true;
  message_print("dnnc: error: '%s' has no time for %lld of the %lld launches "
                "of a step with %d cores a rank, the first of which %s\n",
                path, (long long)pacing->n_missing,
                (long long)pacing->n_launches, pacing->model.rates.units,
                pacing->n_missing == 1 ? "is" : "are");
  Text missing = pacing->missing;
  message_print_list(text_string(&missing));
  message_print("help: measure them with 'dnnc run --profile FILE' under this "
                "plan, or let the formulas of --cluster FILE price them\n");
  return false;
}

/* The cores of a rank: those of the cluster, else those of all launches. */
static bool choose_model(Tool *tool, const Compilation *c, Pacing *pacing) {
  const Profile *profile = pacing->model.profile;
  pacing->has_cluster = c->cluster != NULL;
  if (!c->cluster) {
    pacing->model.rates.units = profile_cores(profile);
    if (pacing->model.rates.units > 0) return true;
    message_print("dnnc: error: '%s' has launches with several numbers of "
                  "cores\n"
                  "help: --cluster FILE says how many a rank has\n",
                  tool->options.paced);
    return false;
  }
  if (c->cluster->n_groups > 1) {
    message_print("dnnc: error: not supported yet: a paced run on the %d "
                  "groups of devices of cluster '%s'\n",
                  c->cluster->n_groups, c->cluster->name);
    return false;
  }
  if (driver_check_compiled_ranks(c)) {
    ClusterSlice ranks = cluster_slice(tool->arena, c->cluster, 0, c->ranks);
    driver_cost_model(c, &ranks, &pacing->model);
  }
  return !tool_report(tool);
}

bool tool_make_pacer(Tool *tool, const Compilation *c, Pacer *out) {
  Pacing *pacing = ARENA_NEW(tool->arena, Pacing);
  pacing->missing = text_create(tool->arena);
  pacing->model.profile = tool_read_profile(tool, tool->options.paced);
  if (!pacing->model.profile || !choose_model(tool, c, pacing)) return false;
  for (int i = 0; i < c->classes.n; i++)
    note_missing_of_class(pacing, &c->classes.data[i]);
  *out = (Pacer){.pace = pace_of, .user = pacing};
  return check_missing(pacing, tool->options.paced);
}
