/*
 * stage_ranks.c -- walks over the settings of plans whose stages have their own
 * numbers of ranks, and prices the fastest ones.
 *
 * The ranks of a stage share the batch.  Stages are on ranges of ranks, in the
 * order of the model or against it.  With the numbers of micro-batches that are
 * fastest so, some ranks of a stage may also shard operators.
 */
#include "planner/stages/stage_ranks.h"

#include "planner/stages/rank_lines.h"

enum {
  MOST_RANKED = 8, /* stages */
  MOST_WORSE = 2   /* numbers of micro-batches in a row */
};
#define NONE (INT64_MAX / 4)

typedef struct RankedPlan {
  StagedPlan plan; /* each stage is a piece of its costs */
  RankSetting setting;
  const PlacedStage *stages;
  bool shards; /* operators of some stage */
} RankedPlan;

typedef struct RankSearch {
  StageSearch *s;
  RankShapes shapes;
  RankBorders borders;
  RankLinks links;
  int over; /* estimates of bytes may be as many times what a rank has */
  RankSetting listed; /* whose options these are */
  RankOptions options;
  VEC(RankedPlan) plans;
} RankSearch;

/* The options of a setting, and stages on them. */
typedef struct RankWalk {
  RankSearch *search;
  RankSetting setting;
  RankOptions options;
  RankCutsRequest request;
} RankWalk;

/* ---- messages ---- */

/* The ranges of two stages, of which the second begins behind the first. */
static RankRanges ranges_of(const RankWalk *w, int from, int first, int to) {
  int n_from = w->options.data[from].ranks, n_to = w->options.data[to].ranks;
  int64_t ranks = w->request.n_ranks;
  RankRanges r = {first, n_from, first + n_from, n_to};
  if (!w->setting.is_turned) return r;
  r.from = ranks - r.from - n_from;
  r.to = ranks - r.to - n_to;
  return r;
}

/* A rank of the smaller range has the larger shards. */
static const StageCosts *costs_of_border(const RankWalk *w, int from, int to) {
  const RankOption *a = &w->options.data[from], *b = &w->options.data[to];
  return (a->ranks <= b->ranks ? a : b)->costs;
}

static Ps message(void *user, int piece, int from, int first, int to) {
  RankWalk *w = user;
  RankRanges ranges = ranges_of(w, from, first, to);
  const MessageRate *rate = rank_message_rate(&w->search->links, &ranges);
  return rate->latency +
         (Ps)(rate->per_byte *
              (double)costs_of_border(w, from, to)->sent[piece]);
}

/* ---- costs of stages ---- */

/* Bytes as if each rank had the memory of the search. */
static Bytes scaled(Bytes bytes, Bytes memory, Bytes of) {
  return memory == of ? bytes
                      : (Bytes)((double)bytes * (double)of / (double)memory);
}

static StageCost cost_of_stage(const RankWalk *w, const RankedStage *stage,
                               int first) {
  const RankOption *option = &w->options.data[stage->option];
  StageCost cost = stage_cost(option->costs, first, stage->end);
  Bytes of = w->search->s->p->input->memory;
  cost.state = scaled(cost.state, option->memory, of);
  cost.gradient = scaled(cost.gradient, option->memory, of);
  cost.saved = scaled(cost.saved, option->memory, of);
  return cost;
}

/* The stage of a piece of the chain. */
static int stage_of_piece(const RankWalk *w, const RankedStage *stages,
                          int piece) {
  int s = 0;
  while (w->search->borders.pieces[stages[s].end - 1] <= piece) s++;
  return s;
}

/* Parameters of several stages, as the first one of them shards these. */
static void add_shared(Arena *arena, const RankWalk *w,
                       const RankedStage *stages, StageCosts *out) {
  int n = w->options.data[0].costs->n_shared;
  SharedCost *shared = ARENA_ARRAY(arena, SharedCost, n + 1);
  for (int i = 0; i < n; i++) {
    const SharedCost *any = &w->options.data[0].costs->shared[i];
    int first = stage_of_piece(w, stages, any->first),
        last = stage_of_piece(w, stages, any->last);
    const StageCosts *costs = w->options.data[stages[first].option].costs;
    SharedCost cost = costs->shared[i];
    cost.first = first;
    cost.last = last;
    if (first != last) shared[out->n_shared++] = cost;
  }
  out->shared = shared;
}

/* The bytes of the stages, as if each rank had the memory of the search. */
static const StageBytes *bytes_of(Arena *arena, const RankWalk *w, int n,
                                  const RankedStage *stages) {
  BytesPart *parts = ARENA_ARRAY(arena, BytesPart, n);
  double of = (double)w->search->s->p->input->memory;
  for (int s = 0; s < n; s++) {
    const RankOption *option = &w->options.data[stages[s].option];
    parts[s] = (BytesPart){option->costs->bytes,
                           w->search->borders.pieces[stages[s].end - 1],
                           of / (double)option->memory};
  }
  return stage_bytes_join(arena, parts, n);
}

static const StageCosts *stage_sums(Arena *arena, const RankWalk *w, int n,
                                    const RankedStage *stages) {
  StageCosts *out = ARENA_NEW(arena, StageCosts);
  StageCost *to = ARENA_ARRAY(arena, StageCost, n + 1);
  Bytes *sent = ARENA_ARRAY(arena, Bytes, n);
  Bytes *sent_back = ARENA_ARRAY(arena, Bytes, n);
  MessageRate *rates = ARENA_ARRAY(arena, MessageRate, n);
  for (int s = 0; s < n; s++) {
    StageCost cost =
        cost_of_stage(w, &stages[s], s > 0 ? stages[s - 1].end : 0);
    to[s + 1] = to[s];
    stage_cost_add(&to[s + 1], &cost);
    if (s + 1 == n) break;
    RankRanges ranges = ranges_of(w, stages[s].option, stages[s].first_rank,
                                  stages[s + 1].option);
    int border = stages[s].end - 1;
    const StageCosts *costs =
        costs_of_border(w, stages[s].option, stages[s + 1].option);
    sent[s] = costs->sent[border];
    sent_back[s] = costs->sent_back[border];
    rates[s] = *rank_message_rate(&w->search->links, &ranges);
  }
  *out = (StageCosts){.n = n,
                      .to = to,
                      .bytes = bytes_of(arena, w, n, stages),
                      .sent = sent,
                      .sent_back = sent_back,
                      .rates = rates};
  add_shared(arena, w, stages, out);
  return out;
}

/* ---- plans ---- */

static int64_t first_rank(const RankWalk *w, const RankedStage *stage) {
  int ranks = w->options.data[stage->option].ranks;
  return w->setting.is_turned ? w->request.n_ranks - stage->first_rank - ranks
                              : stage->first_rank;
}

static const PlacedStage *placed_stages(const RankWalk *w, int n,
                                        const RankedStage *stages,
                                        bool *out_shards) {
  PlacedStage *out = ARENA_ARRAY(w->search->s->arena, PlacedStage, n);
  for (int i = 0; i < n; i++) {
    const RankOption *option = &w->options.data[stages[i].option];
    out[i] = (PlacedStage){w->search->borders.pieces[stages[i].end - 1],
                           first_rank(w, &stages[i]), option};
    *out_shards |= rank_option_shards(option);
  }
  return out;
}

static int data_ranks(const Mesh *mesh) {
  return mesh->n_axes > 0 ? mesh->axes[0].size : 1;
}

/* Stages of equal meshes are those of another search, where these are of one
 * kind; that of simulated times knows no messages where it cuts. */
static bool is_equal(const RankWalk *w, int n, const RankedStage *stages) {
  const RankOption *first = &w->options.data[stages[0].option];
  for (int s = 1; s < n; s++) {
    const RankOption *option = &w->options.data[stages[s].option];
    if (option->ranks != first->ranks ||
        rank_option_shards(option) != rank_option_shards(first) ||
        data_ranks(option->proposal->place.mesh) !=
            data_ranks(first->proposal->place.mesh))
      return false;
  }
  const StageSearch *s = w->search->s;
  return s->p->input->slice->n_groups == 1 && !s->timed;
}

/* Each stage with one group of ranks: schedules of several stages on each are
 * not looked at.  Returns the least estimate. */
static Ps add_plans(RankWalk *w, int n, const RankedStage *found) {
  StageSearch *s = w->search->s;
  int *ends = ARENA_ARRAY(s->arena, int, n);
  Ps least = NONE;
  if (is_equal(w, n, found)) return NONE;
  for (int i = 0; i < n; i++) ends[i] = i + 1;
  RankedPlan ranked = {.setting = w->setting};
  ranked.stages = placed_stages(w, n, found, &ranked.shards);
  if (w->setting.shards && !ranked.shards) return NONE; /* is known */
  ranked.plan = (StagedPlan){.costs = stage_sums(s->arena, w, n, found),
                             .shape = {NULL, n, n, w->setting.microbatches},
                             .chunks = 1,
                             .ends = ends};
  for (int i = 0; i < pipeline_schedule_count(); i++) {
    const PipelineSchedule *schedule = pipeline_schedule(i);
    ranked.plan.shape.schedule = schedule;
    if (!schedule->is_compiled || schedule->placement != PLACEMENT_single ||
        schedule->args != PIPELINE_ARGS_none ||
        !stage_estimate(s, &ranked.plan))
      continue;
    if (ranked.plan.step < s->best) s->best = ranked.plan.step;
    if (ranked.plan.step < least) least = ranked.plan.step;
    vec_push(s->arena, &w->search->plans, ranked);
  }
  return least;
}

/* ---- settings ---- */

/* All ranks compute without a break, each piece where it takes least. */
static Ps least_time(const RankWalk *w) {
  double all = 0;
  for (int piece = 0; piece < w->request.n_pieces; piece++) {
    double least = -1;
    for (int o = 0; o < w->options.n; o++) {
      StageCost cost = stage_cost(w->options.data[o].costs, piece, piece + 1);
      double time =
          (double)(cost.forward + cost.input_grad + cost.weight_grad) *
          w->options.data[o].ranks;
      if (least < 0 || time < least) least = time;
    }
    all += least;
  }
  return (Ps)(all / w->request.n_ranks * w->setting.microbatches);
}

/* The frames of 1f1b by stage from the last one on, which do not depend on how
 * many stages there are before. */
static const int *frames_of_1f1b(Arena *arena, int microbatches) {
  int *frames = ARENA_ARRAY(arena, int, MOST_RANKED);
  for (int k = 0; k < MOST_RANKED; k++)
    frames[k] = k + 1 < microbatches ? k + 1 : microbatches;
  return frames;
}

/* The slowest stage as fast as can be; then the least sum of all where that one
 * is a little slower: with few micro-batches these wait for the first stages,
 * and with one the sum is all. */
static bool find_plans(RankWalk *w, Arena *arena) {
  enum { LITTLE = 50, MORE = 5 };
  StageSearch *s = w->search->s;
  RankCuts *cuts = rank_cuts_create(arena, &w->request);
  RankCuts *sums = NULL;
  RankedStage stages[MOST_RANKED];
  bool has_any = false;
  for (int n = 2; n <= w->request.most_stages; n++) {
    Ps worth = s->best / 8 * 9 / w->setting.microbatches;
    Ps slowest = rank_cuts_find(cuts, n, 0, stages);
    has_any |= slowest < INT64_MAX;
    if (slowest > worth) continue;
    Ps step = add_plans(w, n, stages);
    if (step > s->best / 4 * 5) continue;
    if (!sums) sums = rank_cuts_create(arena, &w->request);
    for (int part = LITTLE; part >= MORE; part /= LITTLE / MORE) {
      rank_cuts_find(sums, n, slowest + slowest / part, stages);
      add_plans(w, n, stages);
    }
    if (w->setting.microbatches > 1) continue;
    rank_cuts_find(sums, n, NONE, stages);
    add_plans(w, n, stages);
  }
  return has_any;
}

/* Those of a setting that is turned cost the same. */
static void find_options(RankSearch *search, const RankSetting *setting,
                         RankOptions *out) {
  StageSearch *s = search->s;
  RankSetting *listed = &search->listed;
  bool is_listed = listed->microbatches == setting->microbatches &&
                   listed->zero == setting->zero &&
                   listed->recomputes == setting->recomputes &&
                   listed->shards == setting->shards;
  if (!is_listed) {
    search->options = (RankOptions){0};
    rank_options_list(s, &search->shapes, &search->borders, setting,
                      &search->options);
    *listed = *setting;
  }
  for (int i = 0; i < search->options.n; i++) {
    RankOption option = search->options.data[i];
    const RankShape *shape = &search->shapes.data[option.shape];
    option.may_begin = setting->is_turned ? shape->turned : shape->may_begin;
    vec_push(s->arena, out, option);
  }
}

/* Returns whether more memory may help. */
static bool walk_setting(RankSearch *search, const RankSetting *setting) {
  StageSearch *s = search->s;
  Arena *own = arena_beside(s->arena);
  RankWalk w = {.search = search, .setting = *setting};
  find_options(search, setting, &w.options);
  int ranks = (int)s->p->input->ranks;
  int pieces = search->borders.n, most = pieces < ranks ? pieces : ranks;
  w.request =
      (RankCutsRequest){.n_pieces = pieces,
                        .n_ranks = ranks,
                        .most_stages = most < MOST_RANKED ? most : MOST_RANKED,
                        .microbatches = setting->microbatches,
                        .over = search->over,
                        .n_options = w.options.n,
                        .options = w.options.data,
                        .frames = frames_of_1f1b(own, setting->microbatches),
                        .message = message,
                        .user = &w};
  bool lacks_memory = w.options.n > 0 && least_time(&w) <= s->best / 8 * 9 &&
                      !find_plans(&w, own);
  arena_destroy(own);
  return lacks_memory;
}

/* Few stages on the largest ranges that divide a micro-batch have all ranks. */
static bool may_have_all(const RankSearch *search, int microbatches,
                         bool shards) {
  const SearchInput *input = search->s->p->input;
  int64_t batch = input->pins ? input->pins->batch : 1, most = 0;
  for (int i = 0; i < search->shapes.n; i++) {
    const RankShape *shape = &search->shapes.data[i];
    bool suits = batch % ((int64_t)microbatches * shape->ranks) == 0;
    for (int t = 2; t <= MOST_SHARDING && shards; t++)
      suits |= rank_shape_may_shard(search->s, shape, microbatches, t);
    if (suits && shape->ranks > most) most = shape->ranks;
  }
  return most * MOST_RANKED >= input->ranks;
}

/* The least estimate of the plans from one on. */
static Ps least_step(const RankSearch *search, int first) {
  Ps least = NONE;
  for (int i = first; i < search->plans.n; i++)
    if (search->plans.data[i].plan.step < least)
      least = search->plans.data[i].plan.step;
  return least;
}

/* ZeRO 2 and 3, and blocks that are computed again, save memory alone: they are
 * tried where nothing fits else. */
static void walk_microbatches(RankSearch *search, int microbatches,
                              bool shards) {
  const SearchInput *input = search->s->p->input;
  const Pins *pins = input->pins;
  bool is_fixed = pins && pins->zero.is_set;
  int fixed = is_fixed ? (int)pins->zero.value : 0;
  int n_settings =
      search->s->p->space.n_remats > 0 ? 2 * N_ZERO_LEVELS : N_ZERO_LEVELS;
  bool lacks_memory = true;
  if (!may_have_all(search, microbatches, shards)) return;
  for (int i = 0; i < n_settings && (i <= 1 || lacks_memory); i++) {
    RankSetting setting = {.microbatches = microbatches,
                           .shards = shards,
                           .zero = i % N_ZERO_LEVELS,
                           .recomputes = i >= N_ZERO_LEVELS};
    if (is_fixed && setting.zero != fixed) continue;
    lacks_memory = false;
    for (int turned = 0; turned <= (input->slice->n_groups > 1); turned++) {
      setting.is_turned = turned;
      lacks_memory |= walk_setting(search, &setting);
    }
  }
}

/* Walks over numbers of micro-batches, from the largest on.  Returns the two
 * with the least estimates; 0: there is none. */
static void walk(RankSearch *search, bool shards, int64_t out_best[2]) {
  const SearchInput *input = search->s->p->input;
  const Pins *pins = input->pins;
  int64_t batch = pins ? pins->batch : 1, most = 1;
  Ps best[2] = {NONE, NONE};
  if (pins && pins->microbatches.is_set) {
    out_best[0] = pins->microbatches.value;
    walk_microbatches(search, (int)out_best[0], shards);
    return;
  }
  while (batch % (2 * most) == 0) most *= 2;
  for (int64_t m = most, n_worse = 0; m >= 1 && n_worse < MOST_WORSE; m /= 2) {
    int first = search->plans.n;
    if (input->host->is_stopped(input->host->user)) return;
    walk_microbatches(search, (int)m, shards);
    Ps found = least_step(search, first);
    n_worse = found < best[0] || best[0] == NONE ? 0 : n_worse + 1;
    int at = found < best[0] ? 0 : found < best[1] ? 1 : 2;
    if (at == 0) {
      best[1] = best[0];
      out_best[1] = out_best[0];
    }
    if (at > 1) continue;
    best[at] = found;
    out_best[at] = m;
  }
}

/* ---- candidates ---- */

static bool candidate_of(const RankSearch *search, const RankedPlan *plan,
                         Candidate *out) {
  int n = plan->plan.shape.stages;
  *out = (Candidate){.groups = plan->plan.shape.groups,
                     .schedule = plan->plan.shape.schedule->name,
                     .cuts = rank_lines(search->s, plan->stages, n),
                     .stages = rank_words(search->s->arena, plan->stages, n),
                     .zero = plan->setting.zero,
                     .microbatches = plan->plan.shape.microbatches,
                     .remats = plan->setting.recomputes
                                   ? (1u << search->s->p->space.n_remats) - 1
                                   : 0};
  return out->cuts != NULL;
}

/* ---- prices ---- */

typedef struct RankJudge {
  const RankSearch *search;
  int first;      /* of the plans that may be priced */
  bool *is_taken; /* by plan */
  /* By level of ZeRO and stages: price over estimate. */
  double error[N_ZERO_LEVELS][MOST_RANKED + 1];
} RankJudge;

static bool is_priced(const RankJudge *j, const StagedPlan *plan) {
  for (int i = j->first; i < j->search->plans.n; i++)
    if (j->is_taken[i] && j->search->plans.data[i].plan.step == plan->step &&
        j->search->plans.data[i].plan.peak == plan->peak)
      return true;
  return false;
}

static int next_plan(const RankJudge *j, double *out_step) {
  int best = -1;
  for (int i = j->first; i < j->search->plans.n; i++) {
    const StagedPlan *plan = &j->search->plans.data[i].plan;
    int zero = j->search->plans.data[i].setting.zero;
    double error = j->error[zero][plan->shape.stages];
    double step = (double)plan->step * (error > 0 ? error : 1);
    if ((best >= 0 && step >= *out_step) || j->is_taken[i] ||
        is_priced(j, plan))
      continue;
    best = i;
    *out_step = step;
  }
  return best;
}

/* Prices the fastest plans from one on. */
static void price_best(RankSearch *search, int first, int most) {
  StageSearch *s = search->s;
  Pricing *p = s->p;
  RankJudge j = {.search = search,
                 .first = first,
                 .is_taken = ARENA_ARRAY(s->arena, bool, search->plans.n + 1)};
  for (int n = 0; n < most && !pricing_is_over(p); n++) {
    double step = 0;
    int at = next_plan(&j, &step);
    bool has_one = p->best && price_missing(&p->best->price) == 0;
    if (at < 0 || (has_one && step > 1.05 * (double)p->best->price.step))
      return;
    const RankedPlan *plan = &search->plans.data[at];
    Candidate c;
    j.is_taken[at] = true;
    if (!candidate_of(search, plan, &c)) continue;
    const Scored *scored = pricing_one(p, &c);
    if (scored && scored->price.is_legal)
      j.error[plan->setting.zero][plan->plan.shape.stages] =
          (double)scored->price.step / (double)plan->plan.step;
  }
}

/* A stage without ranks that shard operators is fastest with about as many
 * micro-batches as one with them; where the batch has too few samples for the
 * former, all numbers are tried. */
static void walk_sharding(RankSearch *search, const int64_t best[2]) {
  int64_t none[2];
  if (best[0] == 0) walk(search, true, none);
  for (int i = 0; i < 2 && best[i] > 0; i++)
    if (!search->s->p->input->host->is_stopped(search->s->p->input->host->user))
      walk_microbatches(search, (int)best[i], true);
}

static void walk_and_price(RankSearch *search, int most) {
  int64_t best[2] = {0, 0};
  walk(search, false, best);
  price_best(search, 0, most);
  int first = search->plans.n;
  walk_sharding(search, best);
  price_best(search, first, most);
}

/* Estimates of a few small values are far off: where none fits, plans of a
 * program whose price is cheap are priced. */
void price_ranked(StageSearch *s, int most) {
  RankSearch search = {.s = s, .links = {s, map_create(s->arena)}, .over = 1};
  Bytes memory = s->memory;
  if (s->p->input->ranks > MOST_UNEQUAL_RANKS) return;
  rank_shapes_list(s, &search.shapes);
  search.borders = rank_borders(s);
  walk_and_price(&search, most);
  bool may_fit =
      search.plans.n == 0 && stage_is_small(s->p) && memory <= INT64_MAX / 16;
  if (!may_fit) return;
  search.over = MOST_TIMES_OVER;
  s->memory = memory * MOST_TIMES_OVER;
  walk_and_price(&search, most);
  s->memory = memory;
}
