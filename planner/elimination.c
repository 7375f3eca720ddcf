/*
 * elimination.c -- walks over places and numbers of micro-batches, has each
 * solved (propose.c), and writes the best proposals as candidates.
 *
 * Micro-batches cost time and save memory, and less memory may do without
 * computing blocks again, so all powers of two are tried that divide the batch.
 */
#include "planner/elimination.h"

#include <stdlib.h>
#include <string.h>

#include "planner/proposal_text.h"

typedef struct EliminationSearch {
  const Space *space;
  Arena *arena;
  const Units *units;
  SpaceRequest of;
  Proposals proposals;
  Bytes memory;
  Ps best; /* step of the fastest proposal that fits */
} EliminationSearch;

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

static void note_proposals(EliminationSearch *s, int first) {
  for (int i = first; i < s->proposals.list.n; i++) {
    const Proposal *p = &s->proposals.list.data[i];
    if (p->fits && p->step < s->best) s->best = p->step;
  }
}

/* Returns the levels of ZeRO under which the parameters fit. */
static unsigned propose_for(EliminationSearch *s, const SpacePlace *place,
                            int64_t microbatches, unsigned zeros) {
  ProposeRequest request = {.of = &s->of,
                            .place = place,
                            .microbatches = microbatches,
                            .batch_axes = ANY_AXES,
                            .zeros = zeros,
                            .may_recompute = s->space->n_remats > 0,
                            .is_wide = s->space->n_remats == 0 || mesh_pins(s),
                            .memory = s->memory};
  unsigned fitting = 0;
  int last = microbatches > 1 ? (1 << place->mesh->n_axes) - 1 : 0;
  for (int axes = last; axes >= 0; axes--) {
    int first = s->proposals.list.n;
    if (microbatches > 1) request.batch_axes = axes;
    request.worth = s->best + s->best / 20;
    fitting |= propose(s->arena, &request, &s->proposals);
    note_proposals(s, first);
  }
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
  for (int64_t m = 1; m <= batch && batch % m == 0 && zeros; m *= 2) {
    if (input->host->is_stopped(input->host->user)) return;
    zeros &= propose_for(s, place, m, zeros);
  }
}

/* ---- candidates ---- */

static int compare(const void *a, const void *b) {
  const Proposal *x = a, *y = b;
  if (x->fits != y->fits) return x->fits ? -1 : 1;
  if (x->fits && x->step != y->step) return x->step < y->step ? -1 : 1;
  if (x->peak != y->peak) return x->peak < y->peak ? -1 : 1;
  return x->zero - y->zero;
}

/* The best of each mesh and level of ZeRO first, if they are about as fast as
 * the best of all, then the others: the best of one mesh are often alike. */
static void order(Proposals *proposals) {
  int n = 0;
  for (int i = 0; i < proposals->list.n; i++) {
    Proposal p = proposals->list.data[i];
    Ps best = proposals->list.data[0].step;
    bool is_first = p.fits && p.step <= best + best / 4;
    for (int k = 0; k < n && is_first; k++)
      is_first = proposals->list.data[k].mesh != p.mesh ||
                 proposals->list.data[k].zero != p.zero;
    if (!is_first) continue;
    for (int k = i; k > n; k--)
      proposals->list.data[k] = proposals->list.data[k - 1];
    proposals->list.data[n++] = p;
  }
}

static void set_mesh(const EliminationSearch *s, const Proposal *p,
                     const char **names, Candidate *c) {
  const Pins *pins = mesh_pins(s);
  c->n_axes = pins ? pins->axes.n : p->mesh->n_axes;
  for (int a = 0; a < c->n_axes; a++)
    c->sizes[a] = pins ? pinned_axis_size(pins, s->space->input->ranks, a)
                       : p->mesh->axes[a].size;
  if (!pins) c->axis_names = names;
}

static Candidate candidate_of(const EliminationSearch *s, const Proposal *p) {
  Candidate c = {.zero = p->zero,
                 .microbatches = p->microbatches,
                 .remats = p->recomputes ? (1u << s->space->n_remats) - 1 : 0};
  const char **names = ARENA_ARRAY(s->arena, const char *, MAX_AXES);
  if (mesh_pins(s))
    for (int a = 0; a < p->mesh->n_axes; a++) names[a] = p->mesh->axes[a].name;
  else
    proposal_axis_names(s->arena, s->units, p, names);
  set_mesh(s, p, names, &c);
  c.lines =
      proposal_lines(s->arena, s->units, s->space->input->paths, p, names);
  return c;
}

/* Returns whether a proposal before it has the same estimates: it is the same
 * plan on another mesh. */
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

EliminationResult eliminate_plans(const Space *space, Bytes memory, int most) {
  const SearchInput *input = space->input;
  EliminationSearch s = {.space = space,
                         .arena = input->arena,
                         .memory = memory,
                         .best = INT64_MAX / 2};
  EliminationResult out = {0};
  if (!input->kernels) {
    out.reason = "there is no graph of kernels";
    return out;
  }
  s.units = units_of(s.arena, input->kernels,
                     input->pins ? input->pins->batch_dim : NULL,
                     &input->repeats, &out.reason);
  if (!s.units) return out;
  s.of = (SpaceRequest){.arena = s.arena,
                        .units = s.units,
                        .slice = input->slice,
                        .model = input->model,
                        .ranks = input->ranks,
                        .pins = input->pins};
  out.reason = pins_reason(&s);
  if (out.reason) return out;
  int n_spaces;
  const SpaceInfo *spaces = spaces_all(&n_spaces);
  spaces_visit(spaces, n_spaces, &s.of, walk_microbatches, &s);
  if (s.proposals.list.n > 0)
    qsort(s.proposals.list.data, (size_t)s.proposals.list.n,
          sizeof *s.proposals.list.data, compare);
  order(&s.proposals);
  Candidate *candidates = ARENA_ARRAY(s.arena, Candidate, most);
  Bytes *peaks = ARENA_ARRAY(s.arena, Bytes, most);
  for (int i = 0; i < s.proposals.list.n && out.n < most; i++) {
    if (is_known(&s, i)) continue;
    peaks[out.n] = s.proposals.list.data[i].peak;
    candidates[out.n++] = candidate_of(&s, &s.proposals.list.data[i]);
  }
  out.candidates = candidates;
  out.peaks = peaks;
  if (out.n == 0) out.reason = "a table would be too large, or nothing fits";
  return out;
}
