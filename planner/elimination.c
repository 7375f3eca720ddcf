/*
 * elimination.c -- walks over places and numbers of micro-batches, has each
 * solved (propose.c), and writes proposals as candidates.
 *
 * Micro-batches cost time and save memory, and less memory may do without
 * computing blocks again, so all powers of two are tried that divide the batch.
 *
 * Estimates err, and those of plans with much communication most.  So what is
 * worth a look is decided twice: among the plans of a mesh whose batch has
 * equal shards, which err alike, and with more patience among all.
 */
#include "planner/elimination.h"

#include "planner/proposal_text.h"

/* The fastest proposal that fits, of one mesh and axes of the batch. */
typedef struct BestOfKind {
  const Mesh *mesh;
  int batch_axes;
  Ps step;
} BestOfKind;

struct EliminationSearch {
  const Space *space;
  Arena *arena;
  PairSolver *solver;
  const Units *units;
  SpaceRequest of;
  Proposals proposals;
  Bytes memory;
  Ps worth;     /* settings that are slower get no more */
  Ps best;      /* step of the fastest proposal that fits */
  bool may_fit; /* the parameters, in some setting */
  VEC(BestOfKind) kinds;
};

/* ---- pins ---- */

static const Pins *mesh_pins(const EliminationSearch *s) {
  const Pins *pins = s->space->input->pins;
  return pins && pins_have_mesh(pins) ? pins : NULL;
}

/* Returns why no mesh can keep the pins, or NULL. */
static const char *pins_reason(const EliminationSearch *s) {
  const Pins *pins = s->space->input->pins;
  if (!pins) return NULL;
  if (!pins_have_mesh(pins) && pins->data_span.source)
    return "lines name an axis of no mesh";
  if (pins_have_mesh(pins) &&
      !pinned_mesh(s->arena, pins, s->space->input->ranks))
    return "the written mesh has more than three axes";
  return NULL;
}

/* ---- the walk ---- */

static unsigned zeros_of(const EliminationSearch *s) {
  const Pins *pins = s->space->input->pins;
  if (pins && pins->zero.is_set) return 1u << pins->zero.value;
  return s->space->input->ranks > 1 ? 0xfu : 1u;
}

static BestOfKind *best_of_kind(EliminationSearch *s, const Mesh *mesh,
                                int batch_axes) {
  for (int i = 0; i < s->kinds.n; i++)
    if (s->kinds.data[i].mesh == mesh &&
        s->kinds.data[i].batch_axes == batch_axes)
      return &s->kinds.data[i];
  vec_push(s->arena, &s->kinds, ((BestOfKind){mesh, batch_axes, s->best}));
  s->kinds.data[s->kinds.n - 1].step = INT64_MAX / 2;
  return &s->kinds.data[s->kinds.n - 1];
}

/* A twentieth slower than the best of its kind, three tenths than any. */
static Ps worth_of(const EliminationSearch *s, const BestOfKind *kind) {
  Ps of_kind = kind->step + kind->step / 20;
  Ps of_all = s->best + s->best / 10 * 3;
  if (of_all > s->worth) of_all = s->worth;
  return of_kind < of_all ? of_kind : of_all;
}

static void note_proposals(EliminationSearch *s, int first, BestOfKind *kind) {
  for (int i = first; i < s->proposals.list.n; i++) {
    const Proposal *p = &s->proposals.list.data[i];
    if (p->fits && p->step < s->best) s->best = p->step;
    if (p->fits && p->step < kind->step) kind->step = p->step;
  }
}

static ProposeRequest request_of(const EliminationSearch *s,
                                 const SpacePlace *place, int64_t microbatches,
                                 int batch_axes) {
  return (ProposeRequest){.of = &s->of,
                          .place = place,
                          .microbatches = microbatches,
                          .batch_axes = batch_axes,
                          .may_recompute = s->space->n_remats > 0,
                          .is_wide = s->space->n_remats == 0 || mesh_pins(s),
                          .memory = s->memory,
                          .worth = INT64_MAX / 2,
                          .solver = s->solver};
}

/* Returns the levels of ZeRO under which the parameters fit. */
static unsigned propose_for(EliminationSearch *s, const SpacePlace *place,
                            int64_t microbatches, unsigned zeros) {
  unsigned fitting = 0;
  int last = microbatches > 1 ? (1 << place->mesh->n_axes) - 1 : 0;
  for (int axes = last; axes >= 0; axes--) {
    int first = s->proposals.list.n, of = microbatches > 1 ? axes : ANY_AXES;
    BestOfKind *kind = best_of_kind(s, place->mesh, of);
    ProposeRequest request = request_of(s, place, microbatches, of);
    request.zeros = zeros;
    request.worth = worth_of(s, kind);
    fitting |= propose(s->arena, &request, &s->proposals);
    note_proposals(s, first, kind);
  }
  s->may_fit |= fitting != 0;
  return fitting;
}

static void walk_microbatches(void *user, const SpacePlace *place) {
  EliminationSearch *s = user;
  const SearchInput *input = s->space->input;
  const Pins *pins = input->pins;
  int64_t batch = pins ? pins->batch : 1;
  unsigned zeros = zeros_of(s);
  if (pins && pins->microbatches.is_set) {
    propose_for(s, place, pins->microbatches.value, zeros);
    return;
  }
  int64_t most = input->most_microbatches;
  if (most == 0 || most > batch) most = batch;
  for (int64_t m = 1; m <= most && batch % m == 0 && zeros; m *= 2) {
    if (input->host->is_stopped(input->host->user)) return;
    zeros &= propose_for(s, place, m, zeros);
  }
}

/* ---- candidates ---- */

static void set_mesh(const EliminationSearch *s, const Proposal *p,
                     const char **names, Candidate *c) {
  const Pins *pins = mesh_pins(s);
  c->n_axes = pins ? pins->axes.n : p->place.mesh->n_axes;
  for (int a = 0; a < c->n_axes; a++)
    c->sizes[a] = pins ? pinned_axis_size(pins, s->space->input->ranks, a)
                       : p->place.mesh->axes[a].size;
  if (!pins) c->axis_names = names;
}

static Candidate candidate_of(const EliminationSearch *s, const Proposal *p) {
  Candidate c = {.zero = p->zero,
                 .microbatches = p->microbatches,
                 .remats = p->recomputes ? (1u << s->space->n_remats) - 1 : 0};
  const char **names = ARENA_ARRAY(s->arena, const char *, MAX_AXES);
  if (mesh_pins(s))
    for (int a = 0; a < p->place.mesh->n_axes; a++)
      names[a] = p->place.mesh->axes[a].name;
  else
    proposal_axis_names(s->arena, s->units, p, names);
  set_mesh(s, p, names, &c);
  c.lines =
      proposal_lines(s->arena, s->units, s->space->input->paths, p, names);
  c.proposal = arena_copy(s->arena, p, sizeof *p);
  return c;
}

/* A proposal before it has the same estimates: it is the same plan on another
 * mesh. */
static bool is_known(const EliminationSearch *s, int at) {
  const Proposal *p = &s->proposals.list.data[at];
  for (int i = 0; i < at; i++) {
    const Proposal *other = &s->proposals.list.data[i];
    if (other->step == p->step && other->peak == p->peak &&
        other->zero == p->zero && other->microbatches == p->microbatches &&
        other->recomputes == p->recomputes)
      return true;
  }
  return false;
}

static EliminatedPlan estimates_of(const EliminationSearch *s, int at) {
  const Proposal *p = &s->proposals.list.data[at];
  uint64_t kind = 53;
  for (int a = 0; a < p->place.mesh->n_axes; a++)
    kind = hash_mix(kind, (uint64_t)p->place.mesh->axes[a].size * 2 +
                              proposal_shards_batch(s->units, p, a));
  uint64_t setting = hash_mix(59, (uint64_t)p->zero * 2 + p->recomputes);
  return (EliminatedPlan){.step = p->step,
                          .peak = p->peak,
                          .fits = p->fits && !is_known(s, at),
                          .kind = kind,
                          .setting = setting,
                          .form = hash_mix(kind, setting)};
}

/* By the same numbers as the proposals. */
static void list_proposals(EliminatedPlans *plans) {
  EliminationSearch *s = plans->search;
  for (int i = plans->list.n; i < s->proposals.list.n; i++)
    vec_push(s->arena, &plans->list, estimates_of(s, i));
}

static const char *begin(EliminationSearch *s) {
  const SearchInput *input = s->space->input;
  const char *reason = NULL;
  if (!input->kernels) return "there is no graph of kernels";
  s->units = units_of(s->arena, input->kernels,
                      input->pins ? input->pins->batch_dim : NULL,
                      &input->repeats, &reason);
  if (!s->units) return reason;
  s->of = (SpaceRequest){.arena = s->arena,
                         .units = s->units,
                         .slice = input->slice,
                         .model = input->model,
                         .ranks = input->ranks,
                         .pins = input->pins,
                         .chains = mesh_chains_create(s->arena)};
  return pins_reason(s);
}

EliminatedPlans eliminate_plans(const Pricing *p, Bytes memory, Ps worth) {
  EliminationSearch *s = ARENA_NEW(p->arena, EliminationSearch);
  *s = (EliminationSearch){.space = &p->space,
                           .arena = p->arena,
                           .solver = p->solver,
                           .memory = memory,
                           .worth = worth,
                           .best = INT64_MAX / 4};
  EliminatedPlans out = {.reason = begin(s), .search = s};
  int n_spaces;
  const SpaceInfo *spaces = spaces_all(&n_spaces);
  if (out.reason) return out;
  spaces_visit(spaces, n_spaces, &s->of, walk_microbatches, s);
  list_proposals(&out);
  out.is_too_large = s->proposals.has_tables && !s->may_fit;
  if (out.list.n == 0)
    out.reason = "a table would be too large, or nothing fits";
  return out;
}

void eliminate_in_less(EliminatedPlans *plans, int at, Bytes memory) {
  EliminationSearch *s = plans->search;
  const Proposal p = s->proposals.list.data[at];
  ProposeRequest request =
      request_of(s, &p.place, p.microbatches, p.batch_axes);
  request.zeros = 1u << p.zero;
  request.memory = memory;
  propose(s->arena, &request, &s->proposals);
  list_proposals(plans);
}

Candidate eliminated_candidate(const EliminatedPlans *plans, int at) {
  return candidate_of(plans->search, &plans->search->proposals.list.data[at]);
}

Candidate proposal_candidate(const EliminatedPlans *plans,
                             const Proposal *proposal) {
  return candidate_of(plans->search, proposal);
}

const Units *eliminated_units(const EliminatedPlans *plans) {
  return plans->search->units;
}

const UnitTables *eliminated_tables(const EliminatedPlans *plans,
                                    const Proposal *proposal,
                                    int64_t microbatches) {
  const EliminationSearch *s = plans->search;
  return proposal->place.space->tables(s->arena, &s->of, &proposal->place,
                                       microbatches, proposal->batch_axes);
}
