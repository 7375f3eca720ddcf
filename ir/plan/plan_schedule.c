/*
 * plan_schedule.c -- checks that the schedule of a plan suits its stages, the
 * ranks that they are on, and its micro-batches.
 *
 *     schedule = interleaved(v = 2)     stages 0 and 2 on the same ranks, 1 and
 *     stage 0: ... on 0                 3 on the same others
 *     stage 1: ... on 1
 *     stage 2: ... on 0
 *     stage 3: ... on 1
 */
#include "ir/plan/pins.h"

#include <string.h>

/* ---- what the schedule says ---- */

PipelineSpelling plan_spelling(Arena *arena, const char *schedule) {
  PipelineSpelling spelling = {.chunks = 1, .times = {1, 1, 1}};
  const char *wrong =
      schedule ? pipeline_spelling_read(arena, schedule, &spelling) : NULL;
  ASSERT(!wrong); /* the reader of the plan has looked */
  return spelling;
}

/* ---- how many stages ---- */

/* Only chunks may be another number. */
static void help_stages(Arena *arena, Diag *d, const PipelineSchedule *schedule,
                        int n_stages, int n_classes, int chunks) {
  bool may_change =
      schedule->args == PIPELINE_ARGS_chunks && n_stages % n_classes == 0;
  const char *or_else =
      may_change ? arena_printf(arena, ", or write 'schedule = %s(v = %d)'",
                                schedule->name, n_stages / n_classes)
                 : "";
  diag_help(d, "%d group%s of ranks %s %d stages%s", n_classes,
            n_classes > 1 ? "s" : "", n_classes > 1 ? "take" : "takes",
            n_classes * chunks, or_else);
}

int plan_unnamed_groups(Module *module, const Pins *pins, int n_stages) {
  if (pins->list)
    return plan_check_list_stages(module, pins, n_stages) ? pins->list->n_ranks
                                                          : -1;
  PipelineSpelling spelling = plan_spelling(module->arena, pins->schedule);
  int chunks = spelling.chunks;
  if (n_stages % chunks == 0) return n_stages / chunks;
  Diag *d = diag(
      module->diags, DIAG_schedule_stages, pins->schedule_span, pins->schedule,
      chunks, arena_printf(module->arena, "the plan has %d stages", n_stages));
  if (n_stages < chunks)
    diag_help(d, "cut the model into %d stages", chunks);
  else
    diag_help(d, "cut the model into %d or %d stages",
              n_stages / chunks * chunks, (n_stages / chunks + 1) * chunks);
  return -1;
}

int plan_unnamed_group(Arena *arena, const Plan *plan, int stage) {
  if (plan->list) return plan_list_group(plan->list, stage);
  PipelineSpelling spelling = plan_spelling(arena, plan->schedule);
  const PipelineSchedule *schedule = spelling.schedule;
  if (!schedule || !pipeline_has_chunks(schedule)) return stage;
  return pipeline_rank_of_stage(schedule, plan->stages.n / spelling.chunks,
                                stage);
}

static bool check_stage_count(Module *module, const Pins *pins,
                              const PipelineSpelling *spelling, int n_stages,
                              int n_classes) {
  if (n_stages == spelling->chunks * n_classes) return true;
  const char *has = n_stages == 1 ? "the plan has no stages"
                                  : arena_printf(module->arena,
                                                 "the plan has %d stages on %d "
                                                 "group%s of ranks",
                                                 n_stages, n_classes,
                                                 n_classes > 1 ? "s" : "");
  Diag *d = diag(module->diags, DIAG_schedule_stages, pins->schedule_span,
                 pins->schedule, spelling->chunks, has);
  if (n_stages == 1)
    diag_help(d, "write lines 'stage' or 'cut after'");
  else
    help_stages(module->arena, d, spelling->schedule, n_stages, n_classes,
                spelling->chunks);
  return false;
}

/* ---- where they are ---- */

/* The stages by the groups on which they are now, and the groups on which they
 * have to be.  The first p stages may have any order of the groups. */
typedef struct Places {
  int n_stages, n_classes;
  int *is, *must;
} Places;

static Places find_places(Arena *arena, const Plan *plan,
                          const PipelineSchedule *schedule) {
  int n = plan->stages.n;
  Places places = {.n_stages = n,
                   .is = ARENA_ARRAY(arena, int, n),
                   .must = ARENA_ARRAY(arena, int, n)};
  places.n_classes = plan_classes(arena, plan, places.is);
  int p = places.n_classes;
  bool *is_taken = ARENA_ARRAY(arena, bool, p);
  for (int s = 0; s < n && s < p; s++) {
    places.must[s] = is_taken[places.is[s]] ? -1 : places.is[s];
    is_taken[places.is[s]] = true;
  }
  for (int s = 0, next = 0; s < n && s < p; s++) {
    if (places.must[s] >= 0) continue;
    while (is_taken[next]) next++;
    places.must[s] = next++;
  }
  for (int s = p; s < n; s++)
    places.must[s] = places.must[pipeline_rank_of_stage(schedule, p, s)];
  return places;
}

static const PlanStage *stage_of_class(const Plan *plan, const Places *places,
                                       int class) {
  int s = 0;
  while (places->is[s] != class) s++;
  return &plan->stages.data[s];
}

/* Prints the lines that have to change as they have to be. */
static void help_places(Module *module, const Plan *plan, const Places *places,
                        Diag *d) {
  enum { MOST_LINES = 4 };
  Text lines = text_create(module->arena);
  Plan mended = *plan;
  mended.stages.data =
      arena_copy(module->arena, plan->stages.data,
                 (size_t)plan->stages.n * sizeof *plan->stages.data);
  int n_wrong = 0, n_all = 0;
  for (int s = 0; s < places->n_stages; s++)
    n_all += places->is[s] != places->must[s];
  for (int s = 0; s < places->n_stages; s++) {
    if (places->is[s] == places->must[s]) continue;
    const PlanStage *there = stage_of_class(plan, places, places->must[s]);
    mended.stages.data[s].first_rank = there->first_rank;
    mended.stages.data[s].n_ranks = there->n_ranks;
    if (n_wrong++ >= MOST_LINES) continue;
    text_add(&lines, n_wrong == 1 ? "'" : n_wrong == n_all ? " and '" : ", '");
    plan_print_stage(&lines, &mended, s, NULL, true);
    text_add(&lines, "'");
  }
  if (n_wrong > MOST_LINES)
    text_printf(&lines, " and %d more so", n_wrong - MOST_LINES);
  diag_help(d, "write %s", text_string(&lines));
}

static bool check_places(Module *module, const Pins *pins, const Plan *plan,
                         const PipelineSchedule *schedule) {
  Places places = find_places(module->arena, plan, schedule);
  int s = 0, p = places.n_classes;
  while (s < places.n_stages && places.is[s] == places.must[s]) s++;
  if (s == places.n_stages) return true;
  int other = s;
  if (s >= p)
    other = pipeline_rank_of_stage(schedule, p, s);
  else
    for (other = 0; places.is[other] != places.is[s];) other++;
  const PlanStage *stages = plan->stages.data;
  Diag *d =
      diag(module->diags, DIAG_schedule_place, stages[s].span, pins->schedule,
           other, s, s >= p ? "the same ranks" : "different ranks");
  diag_note(d, stages[other].span, "stage %d is here", other);
  diag_note(d, pins->schedule_span, "the schedule is here");
  help_places(module, plan, &places, d);
  return false;
}

/* ---- micro-batches ---- */

/* Returns the samples of a rank.  Returns 0 if nothing says it. */
static int64_t samples_of_rank(const Pins *pins, const Plan *plan) {
  const Mesh *mesh = plan_mesh(plan);
  const PlanShard *shard = plan_find_shard(plan, pins->batch_dim);
  int64_t samples = pins->batch;
  for (int i = 0; shard && i < shard->n_axes; i++)
    samples /= mesh->axes[mesh_find(mesh, shard->axes[i])].size;
  return samples;
}

/* Names the nearest numbers of micro-batches that the schedule and the batch
 * can have. */
static void help_microbatches(Module *module, const PipelineSpelling *spelling,
                              const PipelineShape *shape, int64_t samples,
                              Diag *d) {
  int found[2], n = 0;
  int64_t most = samples ? samples : 2 * (shape->microbatches + shape->stages);
  for (int step = -1; step <= 1; step += 2) {
    PipelineShape other = *shape;
    bool suits = false;
    do {
      other.microbatches += step;
      suits =
          other.microbatches > 0 && other.microbatches <= most &&
          (!samples || samples % other.microbatches == 0) &&
          !pipeline_schedule_refuses(module->arena, spelling->schedule, &other);
    } while (!suits && other.microbatches > 0 && other.microbatches < most);
    if (suits) found[n++] = other.microbatches;
  }
  if (n == 2)
    diag_help(d, "write 'microbatches = %d' or 'microbatches = %d'", found[0],
              found[1]);
  else if (n == 1)
    diag_help(d, "write 'microbatches = %d'", found[0]);
}

static bool check_shape(Module *module, const Pins *pins, const Plan *plan,
                        const PipelineSpelling *spelling,
                        const PipelineShape *shape) {
  const char *refused =
      pipeline_schedule_refuses(module->arena, spelling->schedule, shape);
  if (!refused) return true;
  bool is_written = pins->microbatches.span.source != NULL;
  Diag *d =
      diag(module->diags, DIAG_schedule_shape,
           is_written ? pins->microbatches.span : pins->schedule_span, refused);
  if (is_written) diag_note(d, pins->schedule_span, "the schedule is here");
  help_microbatches(module, spelling, shape, samples_of_rank(pins, plan), d);
  return false;
}

/* ---- all of it ---- */

/* With one stage the synchronous schedules differ only in the activations that
 * they save.  Those with versions would compute something else. */
static bool check_one_stage(Module *module, const Pins *pins, const Plan *plan,
                            const PipelineSchedule *schedule) {
  const char *name = plan->schedule;
  if (!name || strcmp(name, "1f1b") == 0) return true;
  if (plan_recomputes(plan) || (schedule && schedule->has_versions)) {
    Diag *d = diag(module->diags, DIAG_not_supported, pins->schedule_span,
                   arena_printf(module->arena, "'%s' without stages", name));
    diag_help(d, "write lines 'stage' or 'cut after'");
    return false;
  }
  if (plan->microbatches <= 1) return true;
  diag(module->diags, DIAG_not_supported, pins->schedule_span,
       arena_printf(module->arena, "'%s' with micro-batches", name));
  return false;
}

/* ---- versions of parameters ---- */

static bool refuse_stage(Module *module, const Pins *pins,
                         const PlanStage *stage, const char *what) {
  Diag *d = diag(module->diags, DIAG_not_supported, stage->span,
                 arena_printf(module->arena, "%s under the schedule '%s'", what,
                              pins->schedule));
  diag_note(d, pins->schedule_span, "the schedule is here");
  return false;
}

static bool refuse_replicas(Module *module, const Pins *pins,
                            const PlanStage *stage, const char *what) {
  Diag *d = diag(module->diags, DIAG_not_supported, stage->span,
                 arena_printf(module->arena,
                              "%s with replicas under the schedule '%s'", what,
                              pins->schedule));
  diag_note(d, pins->schedule_span, "the schedule is here");
  diag_help(d, "give each stage one rank, or take a schedule that keeps one "
               "version of the parameters, as '1f1b'");
  return false;
}

/* Forward passes that the replicas of a stage run ahead, all together. */
static int passes_ahead(const Plan *plan, int s) {
  int later = 0, n = plan->stages.data[s].n_ranks;
  for (int k = s; k < plan->stages.n; k++)
    later += plan->stages.data[k].n_ranks;
  return (later - 1) / n * n;
}

/* Returns the first stage whose replicas cannot share out so many
 * micro-batches, or that would run passes of a batch before the version that it
 * reads is made; -1: none. */
static int find_unshared(const Plan *plan, int64_t m) {
  for (int s = 0; s < plan->stages.n; s++)
    if (m % plan->stages.data[s].n_ranks != 0 || m < passes_ahead(plan, s))
      return s;
  return -1;
}

/* Names the nearest numbers of micro-batches that suit all stages and the
 * batch. */
static void help_shared(const Pins *pins, const Plan *plan, Diag *d) {
  enum { MOST_TRIED = 1 << 12 };
  int64_t m = plan->microbatches, found[2], n = 0;
  for (int step = -1; step <= 1; step += 2)
    for (int tried = 1; tried < MOST_TRIED && m + tried * step > 0; tried++) {
      int64_t other = m + tried * step;
      bool divides = pins->batch == 0 || pins->batch % other == 0;
      if (other < plan->stages.n || !divides || find_unshared(plan, other) >= 0)
        continue;
      found[n++] = other;
      break;
    }
  if (n == 2)
    diag_help(d, "write 'microbatches = %lld' or 'microbatches = %lld'",
              (long long)found[0], (long long)found[1]);
  else if (n == 1)
    diag_help(d, "write 'microbatches = %lld'", (long long)found[0]);
  else
    diag_help(d, "give the stages other numbers of ranks, or the batch a size "
                 "that these divide");
}

/* Replicas take the micro-batches of a batch in turn. */
static bool check_shared(Module *module, const Pins *pins, const Plan *plan) {
  int s = find_unshared(plan, plan->microbatches);
  if (s < 0) return true;
  const PlanStage *stage = &plan->stages.data[s];
  bool divides = plan->microbatches % stage->n_ranks == 0;
  const char *why =
      divides ? arena_printf(module->arena,
                             "stage %d runs %d forward passes ahead, and a "
                             "batch must have as many micro-batches",
                             s, passes_ahead(plan, s))
              : arena_printf(module->arena,
                             "the %d ranks of stage %d share out the "
                             "micro-batches of a batch, and must divide them",
                             stage->n_ranks, s);
  bool is_written = pins->microbatches.span.source != NULL;
  Diag *d = diag(module->diags, DIAG_versions_shared,
                 is_written ? pins->microbatches.span : stage->span,
                 pins->schedule, why, (long long)plan->microbatches);
  if (is_written) diag_note(d, stage->span, "stage %d is here", s);
  diag_note(d, pins->schedule_span, "the schedule is here");
  help_shared(pins, plan, d);
  return false;
}

/* Each replica computes complete batches, or micro-batches, as one rank does.
 */
static bool check_replicas(Module *module, const Pins *pins, const Plan *plan,
                           const PipelineSpelling *spelling, int s) {
  const PlanStage *stage = &plan->stages.data[s], *before = stage - (s > 0);
  if (spelling->is_vertical && before->n_ranks % stage->n_ranks != 0) {
    Diag *d = diag(module->diags, DIAG_versions_replicas, stage->span,
                   pins->schedule, s, before->n_ranks, s - 1, stage->n_ranks);
    diag_note(d, pins->schedule_span, "the schedule is here");
    return false;
  }
  if (stage->n_ranks == 1) return true;
  if (plan->zero > 0) return refuse_replicas(module, pins, stage, "'zero'");
  if (plan->compress != COMPRESS_none)
    return refuse_replicas(module, pins, stage, "'compress'");
  for (int i = 0; i < plan->shards.n; i++)
    if (plan->shards.data[i].n_axes > 0)
      return refuse_replicas(module, pins, stage,
                             arena_printf(module->arena, "shards of '%s'",
                                          plan->shards.data[i].dim));
  return true;
}

static int greatest_divisor(int a, int b) {
  return b == 0 ? a : greatest_divisor(b, a % b);
}

/* A list of a rank has the batches that all replicas divide. */
static bool check_versions(Module *module, const Pins *pins, const Plan *plan,
                           const PipelineSpelling *spelling, int n_classes) {
  enum { MOST_UNITS = 16 };
  int n = 1;
  bool has_replicas = false;
  if (plan->microbatches > 1 && !spelling->schedule->has_two) {
    diag(module->diags, DIAG_versions_microbatches, pins->microbatches.span,
         pins->schedule, (long long)plan->microbatches);
    return false;
  }
  for (int s = 0; s < plan->stages.n; s++) {
    const PlanStage *stage = &plan->stages.data[s];
    if (!check_replicas(module, pins, plan, spelling, s)) return false;
    has_replicas |= stage->n_ranks > 1;
    n *= stage->n_ranks / greatest_divisor(n, stage->n_ranks);
    if (n > MOST_UNITS)
      return refuse_stage(
          module, pins, stage,
          arena_printf(module->arena, "a period of %d batches", n));
  }
  const char *what = NULL;
  if (plan->stages.n == 1)
    what = "a single stage";
  else if (n_classes < plan->stages.n)
    what = "several stages on one rank";
  else if (plan->compress == COMPRESS_power && spelling->schedule->has_two)
    what = "'compress = power'";
  if (what) return refuse_stage(module, pins, &plan->stages.data[0], what);
  return !spelling->schedule->has_two || !has_replicas ||
         check_shared(module, pins, plan);
}

bool plan_check_schedule(Module *module, const Pins *pins, const Plan *plan) {
  if (plan->list) return plan_check_list(module, pins, plan);
  PipelineSpelling spelling = plan_spelling(module->arena, plan->schedule);
  const PipelineSchedule *schedule = spelling.schedule;
  int n = plan->stages.n;
  bool has_chunks = schedule && pipeline_has_chunks(schedule);
  if (n == 0 && has_chunks)
    return check_stage_count(module, pins, &spelling, 1, 1);
  if (n == 0) return check_one_stage(module, pins, plan, schedule);
  int *class_of = ARENA_ARRAY(module->arena, int, n);
  int n_classes = plan_classes(module->arena, plan, class_of);
  if (!schedule) return true;
  if (schedule->has_versions &&
      !check_versions(module, pins, plan, &spelling, n_classes))
    return false;
  if (has_chunks &&
      (!check_stage_count(module, pins, &spelling, n, n_classes) ||
       !check_places(module, pins, plan, schedule)))
    return false;
  PipelineShape shape = {.ranks = has_chunks ? n_classes : n,
                         .stages = n,
                         .microbatches = (int)plan->microbatches,
                         .times = spelling.times};
  return check_shape(module, pins, plan, &spelling, &shape);
}
