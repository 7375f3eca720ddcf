/*
 * searches.c -- finds a search by its name, the rows of searches.def, and
 * judges what it has priced: the best candidates as whole programs.
 */
#include "planner/descent/descent.h"
#include "planner/elimination.h"
#include "planner/stages/stage_ranks.h"

#include <string.h>

static const SearchInfo searches[] = {
#define SEARCH(name, run, meaning) {#name, run, meaning},
#include "planner/searches.def"
};

int search_count(void) {
  return ARRAY_LENGTH(searches);
}

const SearchInfo *search_info(int row) {
  ASSERT(row >= 0 && row < ARRAY_LENGTH(searches));
  return &searches[row];
}

int search_find(const char *name) {
  for (int i = 0; i < ARRAY_LENGTH(searches); i++)
    if (strcmp(searches[i].name, name) == 0) return i;
  return -1;
}

SearchResult plan_search(const SearchInput *input) {
  return searches[input->search].run(input);
}

/* ---- judgement ---- */

static FoundPlan found(const Pricing *p, const Scored *scored) {
  return (FoundPlan){candidate_text(&p->space, &scored->candidate),
                     candidate_words(&p->space, &scored->candidate),
                     scored->price};
}

static void judge(Pricing *p, SearchResult *out) {
  enum { MOST_FINALISTS = 6 };
  const SearchHost *host = p->input->host;
  Map *taken = map_create(p->arena);
  for (int i = 0;; i++) {
    const Scored *next = scored_take_best((const Scored *const *)p->scored.data,
                                          p->scored.n, taken);
    if (!next || (i > 0 && host->is_stopped(host->user))) break;
    /* Further ones only until one fits whole, of those that may. */
    bool has_one = out->best.text && price_missing(&out->best.price) == 0;
    if (i >= MOST_FINALISTS && (has_one || price_missing(&next->price) > 0))
      break;
    FoundPlan plan = found(p, next);
    CandidateList one = {.n = 1, .texts = &plan.text, .is_whole = true};
    if (!next->is_whole) host->price(host->user, &one, &plan.price);
    if (!plan.price.is_legal) continue;
    if (!out->best.text || price_is_better(&plan.price, &out->best.price))
      out->best = plan;
  }
  out->has_plan = out->best.text && price_missing(&out->best.price) == 0;
}

/* Data parallelism, which is what there is without a search. */
static void judge_plain(const Pricing *p, const Candidate *candidate,
                        SearchResult *out) {
  const SearchHost *host = p->input->host;
  const char *text = candidate_text(&p->space, candidate);
  if (!pricing_mesh_is_open(p) || !candidate_is_even(&p->space, candidate))
    return;
  const Scored *scored = pricing_known(p, candidate);
  if (scored && scored->is_whole)
    out->plain = scored->price;
  else
    host->price(host->user,
                &(CandidateList){.n = 1, .texts = &text, .is_whole = true},
                &out->plain);
  if (out->plain.is_legal) out->plain_text = text;
}

static void count(const Pricing *p, SearchResult *out) {
  out->n_priced = p->n_priced;
  for (int i = 0; i < N_SOLVE_METHODS; i++)
    out->n_solved[i] = p->solver->n_solved[i];
  if (p->scored.n > 0)
    out->first = candidate_text(&p->space, &p->scored.data[0]->candidate);
  for (int i = 0; i < p->scored.n; i++) {
    const CandidatePrice *price = &p->scored.data[i]->price;
    out->n_legal += price->is_legal;
    out->n_fit += price->is_legal && price_missing(price) == 0;
  }
}

/* ---- searches ---- */

/* `space`: of plans without stages; NULL: none were looked for. */
static const char *with_stages(const Pricing *p, const char *space,
                               const char *no_stages) {
  const char *before = space ? arena_printf(p->arena, "%s; ", space) : "";
  if (no_stages)
    return arena_printf(p->arena, "%sno stages (%s)", before, no_stages);
  if (!space && !p->is_timed)
    return "stages with equal meshes, cut where one value alone goes on, as "
           "far as lines about stages allow, of which those with the least "
           "estimates were priced";
  bool is_alike = p->input->slice->n_groups == 1;
  if (p->is_timed)
    return arena_printf(
        p->arena,
        "%sstages that share the batch among their ranks, cut where up to four "
        "values go on by the simulated times of nodes: equal ones on 2 to 64 "
        "groups of ranks%s, of which those with the least estimates were "
        "priced",
        before,
        p->input->ranks > MOST_UNEQUAL_RANKS
            ? ""
            : ", up to 8 of their own numbers of ranks");
  return arena_printf(
      p->arena,
      "%s%son up to 128 ranks, up to 8 stages of their own numbers of ranks "
      "each, on one kind of device, which divide each micro-batch among them, "
      "or with the micro-batches that are fastest so among some of them while "
      "up to 8 neighbours shard operators; "
      "cut where one value alone goes on, under all schedules, of which those "
      "with the least estimates were priced",
      before,
      !is_alike ? ""
      : p->ends_early
          ? "stages with equal meshes on 2 to 64 groups of ranks, "
            "as far as the budget of estimates goes; "
          : "stages with equal meshes on 2 to 64 groups of ranks; ");
}

typedef enum SearchWays {
  WAY_descends,
  WAY_eliminates,
  WAY_engine, /* the same, but with the general engine */
  WAY_stages  /* after eliminating */
} SearchWays;

/* Prices plans of one program for all ranks. */
static void price_one_stage(Pricing *p, SearchWays ways, Candidates *starts) {
  bool is_too_large = false;
  descent_starts(p, starts);
  bool is_found =
      ways >= WAY_eliminates && price_eliminated(p, starts, &is_too_large);
  if (is_found || is_too_large) return;
  pricing_all(p, starts);
  descend_from(p, starts);
}

/* Lines about stages ask for these alone, but for a schedule that one stage
 * has, too. */
static SearchResult search_all(const SearchInput *input, SearchWays ways) {
  Pricing p = pricing_create(input);
  SearchResult out = {0};
  Candidates starts = {0};
  StagePins pins = stage_pins_of(p.arena, input->pins);
  p.solver->engine_alone = ways == WAY_engine;
  if (!pins.needs_stages) price_one_stage(&p, ways, &starts);
  bool takes_stages = ways == WAY_stages || pins.needs_stages || pins.schedule;
  const char *no_stages = takes_stages ? price_staged(&p) : NULL;
  out.has_stages = takes_stages && !no_stages;
  out.is_timed = p.is_timed;
  judge(&p, &out);
  if (starts.n > 0) judge_plain(&p, &starts.data[0], &out);
  out.is_stopped = input->host->is_stopped(input->host->user);
  if (!pins.needs_stages) out.space = space_words(&p.space, p.units);
  if (takes_stages) out.space = with_stages(&p, out.space, no_stages);
  out.n_staged = p.n_staged;
  out.staged = p.staged;
  count(&p, &out);
  return out;
}

SearchResult plan_search_stages(const SearchInput *input) {
  return search_all(input, WAY_stages);
}

SearchResult plan_search_elimination(const SearchInput *input) {
  return search_all(input, WAY_eliminates);
}

SearchResult plan_search_engine(const SearchInput *input) {
  return search_all(input, WAY_engine);
}

SearchResult plan_search_descent(const SearchInput *input) {
  return search_all(input, WAY_descends);
}
