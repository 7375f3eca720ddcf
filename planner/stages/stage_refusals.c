/*
 * stage_refusals.c -- reports pins about stages that no plan of the search can
 * keep, each with its place, a reason and what to write.
 */
#include "planner/stages/staged.h"
#include "planner/timed/timed.h"

#include <string.h>

typedef struct Refuser {
  Arena *arena;
  Module *module;
  const SearchInput *input;
  const Pins *pins;
  StagePins of;
  StageChain chain;
} Refuser;

/* ---- places ---- */

static Span pipe_span(const Pins *pins) {
  for (int i = 0; i < pins->axes.n; i++)
    if (axis_is_pipe(pins->axes.data[i].name)) return pins->axes.data[i].span;
  return pins->mesh_span;
}

/* The first line that asks for stages. */
static Span first_span(const Pins *pins) {
  if (pins->stages.n > 0) return pins->stages.data[0].stage.span;
  Span pipe = pipe_span(pins);
  return pipe.source ? pipe : pins->schedule_span;
}

static Span count_span(const Pins *pins) {
  return pins->microbatches.span.source ? pins->microbatches.span
                                        : pins->schedule_span;
}

/* Returns "pipe = 2; data = auto". */
static const char *mesh_text(Refuser *r) {
  Text out = text_create(r->arena);
  for (int i = 0; i < r->pins->axes.n; i++) {
    const PinAxis *axis = &r->pins->axes.data[i];
    text_printf(&out, "%s%s = ", i ? "; " : "", axis->name);
    text_printf(&out, axis->size ? "%lld" : "auto", (long long)axis->size);
  }
  return text_string(&out);
}

static bool refuse(Refuser *r, Span span, const char *what, const char *help) {
  Diag *d = diag(r->module->diags, DIAG_not_supported, span, what);
  if (help) diag_help(d, "%s", help);
  return false;
}

/* ---- what no search looks at ---- */

/* Stages are cut alike for ranks of one kind alone. */
static bool refuse_groups(Refuser *r) {
  const SliceGroup *first = &r->input->slice->groups[0];
  const char *help = arena_printf(
      r->arena,
      "'--ranks %lld' takes the first of them alone; without these lines "
      "'--search stages' looks at all; or write 'schedule', 'microbatches' and "
      "all stages",
      (long long)first->n);
  return refuse(r, first_span(r->pins),
                "a search around lines about stages over several groups or "
                "islands of a cluster",
                help);
}

static bool refuse_servers(Refuser *r) {
  return refuse(r, r->pins->servers.span,
                "a search around a line about servers",
                "servers change what is computed, so no search compares plans "
                "with them; write 'mesh' with the number of workers");
}

static bool check_supported(Refuser *r) {
  const Pins *pins = r->pins;
  if (pins_change_results(r->arena, pins))
    return refuse(
        r, pins->schedule_span,
        arena_printf(r->arena, "a search under the schedule '%s'",
                     pins->schedule),
        "it changes what is computed, so no search compares plans "
        "with it; write all of its stages, and it is priced as it is");
  if (pins->list)
    return refuse(r, pins->schedule_span,
                  "a search under a schedule that a file lists",
                  "name a schedule, as in 'schedule = 1f1b', or write "
                  "'microbatches' and all stages, too");
  if (r->input->slice->n_groups > 1) return refuse_groups(r);
  if (pins->stages.n == 0 || !pins_have_stage_meshes(pins)) return true;
  Mesh mesh, *of_lines = ARENA_ARRAY(r->arena, Mesh, pins->stages.n);
  bool differ = false;
  if (!pins_close_stage_meshes(r->module, pins, &mesh, of_lines, &differ))
    return false;
  return !differ || refuse(r, first_span(pins),
                           "a search around stages of different meshes",
                           "give each stage as many ranks and the same mesh, "
                           "or write 'schedule' and 'microbatches', too");
}

/* ---- the lines by themselves ---- */

/* A schedule of as many stages on each group that suits any micro-batches. */
static const char *neutral_schedule(Refuser *r) {
  if (!r->of.schedule || !pipeline_has_chunks(r->of.schedule)) return "1f1b";
  if (r->of.schedule->placement == PLACEMENT_vee) return "zbv";
  return arena_printf(r->arena, "bfs(v = %d)", r->of.chunks);
}

/* One axis for the ranks that lines name, beside `pipe`, else one rank. */
static void neutral_mesh(Refuser *r, bool names_ranks, Pins *out) {
  PinAxis data = {.name = name_intern(r->module->names, "data"),
                  .size = names_ranks ? 0 : 1};
  out->axes.data = NULL;
  out->axes.n = out->axes.capacity = 0;
  out->data_span = SPAN_NONE;
  vec_push(r->arena, &out->axes, data);
  for (int i = 0; i < r->pins->axes.n && names_ranks; i++)
    if (axis_is_pipe(r->pins->axes.data[i].name))
      vec_push(r->arena, &out->axes, r->pins->axes.data[i]);
  if (names_ranks) return;
  out->mesh_span = SPAN_NONE;
  out->ranks = (PinNumber){0};
}

/* Makes stages of the lines alone. */
static bool check_lines(Refuser *r) {
  Pins lines = *r->pins;
  if (lines.stages.n == 0) return true;
  bool has_cuts = r->of.n_cuts > 0; /* there may be further ones */
  lines.schedule = has_cuts ? "1f1b" : neutral_schedule(r);
  lines.list = NULL;
  lines.microbatches = lines.memory_bytes = lines.zero = (PinNumber){0};
  lines.zero_over = (PlanShard){0};
  lines.shards.n = lines.of_paths.n = 0;
  lines.certificate = NULL;
  neutral_mesh(r, !has_cuts && lines.stages.data[0].stage.n_ranks > 0, &lines);
  bool is_closed = plan_close(r->module, &lines) != NULL;
  return is_closed && diags_errors(r->module->diags) == 0;
}

/* ---- groups of ranks ---- */

static void add_nearest(Refuser *r, Text *out) {
  int n = 0;
  for (int64_t groups = 2; groups <= r->input->ranks && n < 4; groups++)
    if (r->input->ranks % groups == 0 && groups <= r->chain.n)
      text_printf(out, "%s'pipe = %lld'", n++ ? " or " : "", (long long)groups);
}

/* Why the written mesh has other ranks than there are. */
static const char *mesh_reason(Refuser *r) {
  int64_t known = 1;
  bool has_auto = false, has_pipe = false;
  for (int i = 0; i < r->pins->axes.n; i++) {
    const PinAxis *axis = &r->pins->axes.data[i];
    has_auto |= axis->size == 0;
    has_pipe |= axis_is_pipe(axis->name);
    if (axis->size > 0 && known <= INT32_MAX / axis->size) known *= axis->size;
  }
  const char *words = arena_printf(r->arena, "%lld ranks", (long long)known);
  if (has_auto)
    return arena_printf(r->arena, "its axes without 'auto' have %s alone",
                        words);
  if (has_pipe) return arena_printf(r->arena, "it has %lld", (long long)known);
  return arena_printf(r->arena, "each group of ranks has it, which are %s",
                      words);
}

static bool report_groups(Refuser *r) {
  long long ranks = r->input->ranks;
  Text nearest = text_create(r->arena);
  add_nearest(r, &nearest);
  bool is_mesh = pins_have_mesh(r->of.of_stage);
  Span span =
      pins_have_mesh(r->pins) ? pipe_span(r->pins) : first_span(r->pins);
  Diag *d;
  if (r->of.groups == 1 || ranks == 1)
    d = diag(r->module->diags, DIAG_stages_on_one, span);
  else if (r->of.groups > 0 && ranks % r->of.groups != 0)
    d = diag(r->module->diags, DIAG_stages_divide, span,
             (long long)r->of.groups, ranks);
  else
    d = diag(r->module->diags, DIAG_stages_mesh, span, mesh_text(r), ranks,
             mesh_reason(r));
  if (is_mesh)
    diag_help(d, "the axes of the mesh, 'pipe' among them, make up all ranks: "
                 "leave one to 'auto'");
  else if (nearest.n > 0)
    diag_help(d, "write %s", text_string(&nearest));
  else
    diag_help(d, "give more ranks with --ranks");
  return false;
}

static bool check_groups(Refuser *r) {
  for (int64_t groups = 2; groups <= r->input->ranks; groups++)
    if (stage_pins_allow_groups(&r->of, r->input->ranks, groups)) return true;
  return report_groups(r);
}

static bool check_axes(Refuser *r) {
  for (int64_t groups = 2; groups <= r->input->ranks; groups++)
    if (stage_pins_allow_groups(&r->of, r->input->ranks, groups) &&
        (!pins_have_mesh(r->of.of_stage) ||
         pinned_mesh(r->arena, r->of.of_stage, r->input->ranks / groups)))
      return true;
  return refuse(r, r->pins->mesh_span,
                "a search for stages of more than three axes",
                "join axes, or leave the mesh of a stage open");
}

/* ---- numbers of stages ---- */

typedef struct Shapes {
  bool has_stages;  /* some number of stages keeps the lines */
  bool has_pieces;  /* and the model can be cut into so many */
  bool has_batches; /* and the schedule takes a number of micro-batches */
  const char *refused;
  int fewest; /* stages that keep the lines */
} Shapes;

/* The counts that divide the batch, or the written one. */
static void try_batches(Refuser *r, const PipelineSchedule *schedule,
                        PipelineShape shape, Shapes *out) {
  const PinNumber *written = &r->pins->microbatches;
  int64_t batch = r->pins->batch > 0 ? r->pins->batch : 1;
  for (int64_t m = 1; m <= batch && !out->has_batches; m++) {
    if (written->is_set ? m != written->value : batch % m != 0) continue;
    shape.microbatches = (int)m;
    const char *refused = pipeline_schedule_refuses(r->arena, schedule, &shape);
    out->has_batches |= !refused;
    if (refused) out->refused = refused;
  }
}

static void try_shape(Refuser *r, const PipelineSchedule *schedule, int groups,
                      int chunks, Shapes *out) {
  PipelineShape shape = {
      .ranks = groups, .stages = groups * chunks, .times = {1, 1, 1}};
  if (!schedule->is_compiled ||
      !stage_pins_allow_schedule(&r->of, schedule, groups, chunks))
    return;
  if (!out->has_stages || shape.stages < out->fewest)
    out->fewest = shape.stages;
  out->has_stages = true;
  if (shape.stages > r->chain.n) return;
  out->has_pieces = true;
  try_batches(r, schedule, shape, out);
}

static Shapes find_shapes(Refuser *r) {
  Shapes out = {0};
  for (int64_t g = 2; g <= r->input->ranks && !out.has_batches; g++) {
    if (!stage_pins_allow_groups(&r->of, r->input->ranks, g)) continue;
    for (int i = 0; i < pipeline_schedule_count(); i++) {
      const PipelineSchedule *schedule = pipeline_schedule(i);
      bool is_open = schedule->args == PIPELINE_ARGS_chunks;
      int least = is_open ? 1 : schedule->placement == PLACEMENT_vee ? 2 : 1;
      int most = is_open ? MOST_PIECES : least;
      for (int v = least; v <= most && (v == least || g * v <= MOST_PIECES);
           v++)
        try_shape(r, schedule, (int)g, v, &out);
    }
  }
  return out;
}

static bool report_stages(Refuser *r) {
  const StagePins *of = &r->of;
  bool has_lines = r->pins->stages.n > 0;
  if (of->schedule && of->n_stages > 0) {
    Diag *d =
        diag(r->module->diags, DIAG_schedule_stages, r->pins->schedule_span,
             r->pins->schedule, of->chunks,
             arena_printf(r->arena, "the plan has %d stages", of->n_stages));
    diag_note(d, first_span(r->pins), "the stages are here");
    diag_help(d,
              "give each group of ranks %d stages, or leave the schedule "
              "open",
              of->chunks);
    return false;
  }
  int n = of->n_stages > 0 ? of->n_stages : of->n_cuts + 1;
  Diag *d = diag(r->module->diags, DIAG_stages_count,
                 has_lines ? first_span(r->pins) : pipe_span(r->pins), n);
  if (pins_have_mesh(r->pins))
    diag_note(d, pipe_span(r->pins), "the groups of ranks are here");
  diag_help(d, "leave out lines, or let 'pipe' be 'auto'");
  return false;
}

static bool report_pieces(Refuser *r, const Shapes *shapes) {
  Diag *d = diag(r->module->diags, DIAG_stages_pieces, first_span(r->pins),
                 shapes->fewest, r->chain.n);
  diag_help(d, "a stage ends where one value alone goes on: choose fewer "
               "groups of ranks, or fewer stages on each; or write 'schedule', "
               "'microbatches' and all stages");
  return false;
}

static bool report_batches(Refuser *r, const Shapes *shapes) {
  const Pins *pins = r->pins;
  Diag *d = diag(r->module->diags, DIAG_schedule_shape, count_span(pins),
                 shapes->refused);
  bool is_both = pins->microbatches.span.source && pins->schedule_span.source;
  if (is_both) diag_note(d, pins->schedule_span, "the schedule is here");
  if (pins->microbatches.is_set)
    diag_help(d, "leave 'microbatches' or the schedule open");
  else
    diag_help(d,
              "the batch has %lld samples: give it more, or leave the "
              "schedule open",
              (long long)pins->batch);
  return false;
}

/* Shards of the batch may leave fewer, which candidates show. */
static bool check_batch(Refuser *r) {
  const PinNumber *written = &r->pins->microbatches;
  if (!written->is_set || r->pins->batch % written->value == 0) return true;
  Diag *d = diag(r->module->diags, DIAG_microbatches_divide, written->span,
                 (long long)written->value, (long long)r->pins->batch);
  int64_t below = written->value;
  if (below > r->pins->batch) below = r->pins->batch;
  while (r->pins->batch % below != 0) below--;
  diag_help(d, "write 'microbatches = %lld'", (long long)below);
  return false;
}

static bool check_shapes(Refuser *r) {
  Shapes shapes = find_shapes(r);
  if (!shapes.has_stages) return report_stages(r);
  if (!shapes.has_pieces) return report_pieces(r, &shapes);
  return shapes.has_batches || report_batches(r, &shapes);
}

/* ---- where they end ---- */

static bool check_ends(Refuser *r) {
  StageEnds ends = stage_ends_of(r->arena, &r->of, &r->chain);
  if (!ends.lost) return true;
  const Span span = ends.lost->stage.span;
  return refuse(r, span,
                ends.lost->is_cut
                    ? "a search around a cut that no single value passes"
                    : "a search around stages that do not follow the order of "
                      "the model",
                "cut where one value alone goes on, as after a block");
}

/* ---- all of it ---- */

static bool check_chain(Refuser *r) {
  const char *reason = NULL;
  const Units *units = units_of(r->arena, r->input->kernels, r->pins->batch_dim,
                                &r->input->repeats, &reason);
  if (units) reason = units_loop(r->arena, units);
  if (reason) units = NULL;
  bool is_timed = !units && r->input->host->times;
  if (units)
    r->chain = stage_pins_chain(r->arena, &r->of, r->input->paths, units);
  if (is_timed)
    r->chain =
        timed_chain_of(r->arena, r->input->paths, &r->input->repeats).chain;
  if (is_timed && pins_have_mesh(r->of.of_stage) && r->of.of_stage->axes.n > 1)
    return refuse(r, r->pins->mesh_span,
                  "a search for stages of several axes of a model with loops",
                  "leave the mesh of a stage open, or write one axis");
  if ((units || is_timed) && r->chain.n > 1) return true;
  if (!reason) reason = "no value alone leaves a part of the model";
  return refuse(
      r, first_span(r->pins),
      arena_printf(r->arena, "a search for stages of this model (%s)", reason),
      "write a plan with all lines, and price it with "
      "'dnnc simulate'");
}

bool stage_pins_check(Module *module, const SearchInput *input) {
  Refuser r = {.arena = module->arena,
               .module = module,
               .input = input,
               .pins = input->pins,
               .of = stage_pins_of(module->arena, input->pins)};
  if (r.pins && r.pins->servers.n > 0) return refuse_servers(&r);
  if (!r.of.needs_stages) return true;
  if (!input->kernels || !input->paths)
    return refuse(&r, first_span(r.pins), "a search for stages of this model",
                  NULL);
  return check_supported(&r) && check_lines(&r) && check_chain(&r) &&
         check_groups(&r) && check_axes(&r) && check_batch(&r) &&
         check_shapes(&r) && check_ends(&r);
}
