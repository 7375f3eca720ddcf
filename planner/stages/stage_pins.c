/*
 * stage_pins.c -- reads what pins say about stages.
 *
 * A mesh of `pipe` alone leaves the mesh of a stage open.  Lines `cut after`
 * are among the cuts of the plan; where there are as many as the number of
 * stages takes, they are all of them.
 */
#include "planner/stages/stage_pins.h"

#include "planner/space.h"

#include <string.h>

/* ---- counts ---- */

static const PinAxis *pipe_axis(const Pins *pins) {
  for (int i = 0; i < pins->axes.n; i++)
    if (axis_is_pipe(pins->axes.data[i].name)) return &pins->axes.data[i];
  return NULL;
}

/* A single stage has the first three schedules, too, two of them with one
 * micro-batch. */
static bool schedule_needs_stages(const Pins *pins,
                                  const PipelineSchedule *schedule) {
  if (pins->list) return true;
  if (!schedule || strcmp(schedule->name, "1f1b") == 0) return false;
  bool is_one = strcmp(schedule->name, "naive") == 0 ||
                strcmp(schedule->name, "fthenb") == 0;
  return !is_one || pins->microbatches.value > 1;
}

static bool names_ranks(const Pins *pins) {
  return pins->stages.n > 0 && !pins->stages.data[0].is_cut &&
         pins->stages.data[0].stage.n_ranks > 0;
}

static int64_t count_named_groups(const Pins *pins) {
  int64_t n = 0;
  for (int i = 0; i < pins->stages.n; i++) {
    bool is_new = true;
    for (int k = 0; k < i; k++)
      is_new &= pins->stages.data[k].stage.first_rank !=
                pins->stages.data[i].stage.first_rank;
    n += is_new;
  }
  return n;
}

static void read_schedule(Arena *arena, StagePins *out) {
  const Pins *pins = out->pins;
  PipelineSpelling spelling = {0};
  if (!pins->schedule || pins->list) return;
  pipeline_spelling_read(arena, pins->schedule, &spelling);
  out->schedule = spelling.schedule;
  out->chunks = spelling.chunks;
}

/* ---- the mesh of a stage ---- */

/* Stages whose lines have meshes have equal ones. */
static const PinStage *written_mesh(const Pins *pins) {
  for (int i = 0; i < pins->stages.n; i++)
    if (pins->stages.data[i].has_mesh) return &pins->stages.data[i];
  return NULL;
}

static const Pins *pins_of_stage(Arena *arena, const Pins *pins) {
  Pins *out = arena_copy(arena, pins, sizeof *pins);
  const PinStage *own = written_mesh(pins);
  out->axes.data = NULL;
  out->axes.n = out->axes.capacity = 0;
  out->stages.n = 0;
  out->ranks = (PinNumber){0};
  for (int i = 0; i < pins->axes.n && !own; i++)
    if (!axis_is_pipe(pins->axes.data[i].name))
      vec_push(arena, &out->axes, pins->axes.data[i]);
  for (int a = 0; own && a < own->stage.mesh.n_axes; a++) {
    const MeshAxis *axis = &own->stage.mesh.axes[a];
    PinAxis pin = {
        .name = axis->name, .size = axis->size, .span = own->mesh_span};
    vec_push(arena, &out->axes, pin);
  }
  if (own) out->mesh_span = own->mesh_span;
  if (!out->mesh_span.source) out->mesh_span = pins->data_span;
  if (out->axes.n == 0) out->mesh_span = SPAN_NONE;
  return out;
}

StagePins stage_pins_of(Arena *arena, const Pins *pins) {
  StagePins out = {.pins = pins};
  if (!pins) return out;
  const PinAxis *pipe = pipe_axis(pins);
  bool has_cuts = pins->stages.n > 0 && pins->stages.data[0].is_cut;
  read_schedule(arena, &out);
  if (pipe) out.groups = pipe->size;
  if (names_ranks(pins)) out.groups = count_named_groups(pins);
  if (has_cuts)
    out.n_cuts = pins->stages.n;
  else
    out.n_stages = pins->stages.n;
  out.needs_stages = pins->stages.n > 0 || (pipe && pipe->size != 1) ||
                     schedule_needs_stages(pins, out.schedule);
  out.of_stage = pins_of_stage(arena, pins);
  return out;
}

/* ---- ranks ---- */

static int64_t named_ranks(const Pins *pins) {
  int64_t n = 0;
  for (int i = 0; i < pins->stages.n; i++) {
    const PlanStage *stage = &pins->stages.data[i].stage;
    int64_t end = (int64_t)stage->first_rank + stage->n_ranks;
    if (end > n) n = end;
  }
  return n;
}

/* Axes of unknown size leave it open. */
static int64_t mesh_product(const Pins *pins) {
  int64_t ranks = 1;
  for (int i = 0; i < pins->axes.n; i++) {
    int64_t size = pins->axes.data[i].size;
    if (size == 0 || ranks > INT32_MAX / size) return 0;
    ranks *= size;
  }
  return ranks;
}

int64_t stage_pins_ranks(Arena *arena, const Pins *pins) {
  if (!pins) return 0;
  StagePins of = stage_pins_of(arena, pins);
  if (names_ranks(pins)) return named_ranks(pins);
  if (!pins_have_mesh(pins)) return 0;
  int64_t ranks = mesh_product(pins);
  if (!of.needs_stages || pipe_axis(pins) || pins->stages.n == 0) return ranks;
  int chunks = of.schedule ? of.chunks : 1;
  return ranks * ((of.n_stages > 0 ? of.n_stages : of.n_cuts + 1) / chunks);
}

bool stage_pins_allow_groups(const StagePins *pins, int64_t ranks,
                             int64_t groups) {
  int64_t known = 1, of_group = ranks / groups;
  bool is_open = false;
  if (ranks % groups != 0) return false;
  if (!pins->pins) return true;
  if (pins->groups > 0 && pins->groups != groups) return false;
  if (!pins_have_mesh(pins->of_stage)) return true;
  for (int a = 0; a < pins->of_stage->axes.n; a++) {
    int64_t size = pins->of_stage->axes.data[a].size;
    is_open |= size == 0;
    if (size > 0 && known > of_group / size) return false;
    if (size > 0) known *= size;
  }
  return is_open ? of_group % known == 0 : of_group == known;
}

bool stage_pins_allow_schedule(const StagePins *pins,
                               const PipelineSchedule *schedule, int groups,
                               int chunks) {
  int n = groups * chunks;
  if (pins->schedule && (pins->schedule != schedule || pins->chunks != chunks))
    return false;
  if (pins->n_stages > 0 && pins->n_stages != n) return false;
  return pins->n_cuts < n;
}

/* ---- where stages end ---- */

static int piece_behind(const StageChain *chain, int node) {
  int piece = 0;
  while (piece + 1 < chain->n && chain->nodes[piece] < node) piece++;
  return piece;
}

static const char *cut_text(Arena *arena, const PlanStage *line) {
  Text out = text_create(arena);
  for (int i = 0; i < line->paths.n; i++)
    text_printf(&out, "%s%s", i ? ", " : "", line->paths.data[i].text);
  return text_string(&out);
}

static void find_cuts(Arena *arena, const StagePins *pins,
                      const StageChain *chain, StageEnds *out) {
  bool *is_pinned = ARENA_ARRAY(arena, bool, chain->n + 1);
  const char **texts = ARENA_ARRAY(arena, const char *, chain->n + 1);
  const Graph *graph = plan_paths_graph(pins->pins->paths);
  for (int i = 0; i < pins->n_cuts; i++) {
    const PinStage *line = &pins->pins->stages.data[i];
    int piece = piece_behind(chain, plan_cut_end(arena, graph, &line->stage));
    bool is_lost = piece + 1 == chain->n || is_pinned[piece];
    if (is_lost && !out->lost) out->lost = line;
    is_pinned[piece] = true;
    texts[piece] = cut_text(arena, &line->stage);
  }
  out->is_pinned = is_pinned;
  out->texts = texts;
}

/* The stages of all nodes, from 1; NULL: values go back. */
static const uint16_t *labels_of(Arena *arena, const StagePins *pins) {
  Map *stage_of = map_create(arena);
  StageFault fault;
  for (int i = 0; i < pins->n_stages; i++) {
    const PinStage *line = &pins->pins->stages.data[i];
    for (int k = 0; k < line->stage.paths.n; k++) {
      const StagePath *path = &line->stage.paths.data[k];
      for (int j = 0; j < path->n_paths; j++)
        map_put(stage_of, path->paths[j], (void *)(intptr_t)(line->number + 1));
    }
  }
  return stage_labels(arena, plan_paths_graph(pins->pins->paths), stage_of,
                      &fault);
}

static const PinStage *line_of(const StagePins *pins, int stage) {
  for (int i = 0; i < pins->n_stages; i++)
    if (pins->pins->stages.data[i].number == stage)
      return &pins->pins->stages.data[i];
  return &pins->pins->stages.data[0];
}

/* The border nearest to the end of each stage stands for it in estimates. */
static void find_stages(Arena *arena, const StagePins *pins,
                        const StageChain *chain, StageEnds *out) {
  const uint16_t *labels = labels_of(arena, pins);
  int *ends = ARENA_ARRAY(arena, int, pins->n_stages);
  for (int s = 0, piece = 0; s < pins->n_stages; s++) {
    int first = piece;
    while (labels && piece + 1 < chain->n &&
           labels[chain->nodes[piece]] <= s + 1)
      piece++;
    if (s + 1 == pins->n_stages) piece = chain->n;
    ends[s] = piece;
    if (piece == first && !out->lost) out->lost = line_of(pins, s);
  }
  out->of_stages = ends;
}

StageEnds stage_ends_of(Arena *arena, const StagePins *pins,
                        const StageChain *chain) {
  StageEnds out = {0};
  if (pins->n_cuts > 0) find_cuts(arena, pins, chain, &out);
  if (pins->n_stages > 0) find_stages(arena, pins, chain, &out);
  return out;
}

static int64_t fewest_stages(const StagePins *pins) {
  int64_t n = pins->groups > 2 ? pins->groups : 2;
  if (pins->schedule) n *= pins->chunks;
  if (pins->n_stages > n) n = pins->n_stages;
  return pins->n_cuts + 1 > n ? pins->n_cuts + 1 : n;
}

StageChain stage_pins_chain(Arena *arena, const StagePins *pins,
                            const PlanPaths *paths, const Units *units) {
  StageChain chain =
      stage_chain_of(arena, paths, units, BORDERS_between_kernels);
  bool suffices = chain.n >= fewest_stages(pins) &&
                  !stage_ends_of(arena, pins, &chain).lost;
  return suffices ? chain : stage_chain_of(arena, paths, units, BORDERS_all);
}

/* Neither ranks nor meshes: the search has put the groups in order. */
const char *stage_pins_lines(Arena *arena, const StagePins *pins) {
  Text out = text_create(arena);
  bool has_ranks = names_ranks(pins->pins);
  for (int s = 0; s < pins->n_stages; s++) {
    const PlanStage *stage = &line_of(pins, s)->stage;
    text_printf(&out, "  stage %d: %s", s, cut_text(arena, stage));
    if (has_ranks && stage->n_ranks == 1)
      text_printf(&out, " on %d", stage->first_rank);
    else if (has_ranks)
      text_printf(&out, " on %d..%d", stage->first_rank,
                  stage->first_rank + stage->n_ranks - 1);
    text_add(&out, "\n");
  }
  return text_string(&out);
}
