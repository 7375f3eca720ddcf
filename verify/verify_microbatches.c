/*
 * verify_microbatches.c -- plays fewer micro-batches of a plan of several
 * stages, where that reuses the same frames and slots.
 *
 * A program calls its segments with registers, so more micro-batches make more
 * calls of the same segments.  A schedule such as 1f1b has frames and slots for
 * a few micro-batches at a time.  A run of a few more than that uses each kind
 * of place again, which is all that a longer run does.  A schedule that keeps
 * every micro-batch, as fthenb does, is played in full.
 *
 * Final graphs have logical sizes, so another number of micro-batches is
 * another size of the sequential axis.  The order of all calls and messages of
 * the whole program is checked from its tables all the same
 * (verify_messages.c).
 */
#include "ir/place/mesh_place.h"
#include "verify/verify_steps.h"

typedef struct Fewer {
  const Compilation *c;
  Arena *arena;
  VerifySteps *steps;
} Fewer;

/* ---- graphs of fewer micro-batches ---- */

static void set_times(Graph *graph, int n) {
  for (int a = 0; a < graph->mesh.n_axes; a++)
    if (graph->mesh.axes[a].is_sequential) graph->mesh.axes[a].size = n;
  for (int id = 0; id < graph->nodes.n; id++)
    if (graph->nodes.data[id]->body) set_times(graph->nodes.data[id]->body, n);
}

static StageGraphs with_times(const Fewer *f, const StageGraphs *from, int n) {
  StageGraphs out = {.cut = from->cut};
  for (int g = 0; g < from->graphs.n; g++) {
    Graph *graph = graph_copy(f->c->module, from->graphs.data[g]);
    set_times(graph, n);
    vec_push(f->arena, &out.graphs, graph);
  }
  return out;
}

static bool is_even(const Graph *graph, const Type *type) {
  for (int d = 0; d < type->rank; d++) {
    AxisList split = type->dims[d].split;
    bool is_timed = axis_list_set(split) & mesh_sequential(&graph->mesh);
    if (is_timed &&
        type->dims[d].size % axis_list_shards(split, &graph->mesh) != 0)
      return false;
  }
  return true;
}

/* Every micro-batch has as many elements as the others: fewer of them have,
 * too. */
static bool are_even(const StageGraphs *graphs) {
  for (int g = 0; g < graphs->graphs.n; g++) {
    const Graph *graph = graphs->graphs.data[g];
    for (int id = 0; id < graph->nodes.n; id++) {
      const Node *node = graph->nodes.data[id];
      for (int r = 0; r < node->n_results; r++)
        if (!is_even(graph, node->types[r])) return false;
    }
  }
  return true;
}

/* ---- frames and slots ---- */

/* The most micro-batches that a stage or an edge has places for. */
static int most_places(const StageEntries *entries) {
  int most = 1;
  for (int k = 0; k < entries->n; k++) {
    const EntryPoint *entry = &entries->entries[k];
    for (int s = 0; s < entry->stages.n; s++) {
      const ProgramStage *stage = &entry->stages.data[s];
      if (stage_most_places(stage) > most) most = stage_most_places(stage);
    }
    for (int e = 0; e < entry->edges.n; e++)
      if (entry->edges.data[e].n_slots > most)
        most = entry->edges.data[e].n_slots;
  }
  return most;
}

static bool has_same_places(const StageEntries *a, const StageEntries *b) {
  for (int k = 0; k < a->n; k++) {
    const EntryPoint *x = &a->entries[k], *y = &b->entries[k];
    for (int s = 0; s < x->stages.n; s++)
      for (int r = REGISTER_frame; r < N_REGISTERS; r++)
        if (stage_places(&x->stages.data[s], (ProgramRegister)r) !=
            stage_places(&y->stages.data[s], (ProgramRegister)r))
          return false;
    for (int e = 0; e < x->edges.n; e++)
      if (x->edges.data[e].n_slots != y->edges.data[e].n_slots) return false;
  }
  return true;
}

/* Returns whether a step of n micro-batches has the places of the whole one. */
static bool can_have(const Fewer *f, const VerifyStep *step,
                     const StageEntries *whole, int n) {
  StageGraphs few = with_times(f, &step->played, n);
  StageEntries entries;
  return driver_stage_entries(f->c, step->id, &few, &entries) &&
         has_same_places(whole, &entries);
}

/* Returns the least number of micro-batches, which divides that of the plan, so
 * that some places are used again, and all are there. */
static int fewest(const Fewer *f, const VerifyStep *step, int n_whole) {
  StageEntries whole;
  if (!are_even(&step->played) ||
      !driver_stage_entries(f->c, step->id, &step->played, &whole))
    return n_whole;
  for (int n = most_places(&whole) + 1; n < n_whole; n++)
    if (n_whole % n == 0 && can_have(f, step, &whole, n)) return n;
  return n_whole;
}

/* ---- steps ---- */

static void shorten(const Fewer *f, StepList *list, int n) {
  for (int i = 0; i < list->n; i++) {
    VerifyStep *step = &list->list[i];
    bool is_again = i > 0 && step->id == list->list[0].id;
    step->played =
        is_again ? list->list[0].played : with_times(f, &step->played, n);
  }
}

static int times_of(const VerifyStep *step) {
  return mesh_microbatches(&step->played.graphs.data[0]->mesh);
}

void verify_fold_microbatches(const Compilation *c, Arena *arena,
                              VerifySteps *steps) {
  Fewer f = {c, arena, steps};
  const StepList *program = &steps->program;
  int n_whole = times_of(&program->list[0]), n = 1;
  for (int i = 0; i < program->n && n < n_whole; i++) {
    const VerifyStep *step = &program->list[i];
    int needed =
        times_of(step) == n_whole ? fewest(&f, step, n_whole) : n_whole;
    if (needed > n) n = needed;
  }
  if (n >= n_whole) return;
  steps->whole = (StepList){.n = program->n - 1};
  for (int i = 0; i < steps->whole.n; i++)
    steps->whole.list[i] = program->list[i];
  steps->n_microbatches = n;
  shorten(&f, &steps->gradients, n);
  shorten(&f, &steps->program, n);
}
