/*
 * rank_options.c -- lists ranges of ranks, and what stages on them cost.
 */
#include "planner/stages/rank_options.h"

#include "planner/timed/timed.h"

#include <string.h>

/* ---- numbers of ranks ---- */

enum { FEW_RANKS = 16 };

/* All of few ranks; else those that divide a group, or leave such a number of
 * it. */
static bool is_taken(int64_t n_group, int64_t n) {
  return n_group <= FEW_RANKS || n_group % n == 0 ||
         (n < n_group && n_group % (n_group - n) == 0);
}

/* In a group of many ranks, a number that divides it begins at its multiples.
 */
static bool may_stand(int64_t n_group, int64_t n, int64_t at) {
  return n_group <= FEW_RANKS || n_group % n != 0 || at % n == 0;
}

/* ---- shapes ---- */

static bool is_level_equal(const Level *a, const Level *b) {
  return a->count == b->count && a->link == b->link && a->links == b->links &&
         a->latency == b->latency && a->kind == b->kind &&
         a->oversubscription.num == b->oversubscription.num &&
         a->oversubscription.den == b->oversubscription.den;
}

/* Equal islands have the same devices and levels. */
static bool is_group_equal(const ClusterGroup *a, const ClusterGroup *b) {
  if (a == b) return true;
  if (a->device->name != b->device->name || a->n_levels != b->n_levels ||
      memcmp(a->device->values, b->device->values, sizeof a->device->values))
    return false;
  for (int l = 0; l < a->n_levels; l++)
    if (!is_level_equal(&a->levels[l], &b->levels[l])) return false;
  return true;
}

static bool is_alike(const ClusterSlice *a, const ClusterSlice *b) {
  const SliceGroup *x = &a->groups[0], *y = &b->groups[0];
  if (a->n != b->n || x->n_levels != y->n_levels ||
      !is_group_equal(x->group, y->group))
    return false;
  for (int l = 0; l < x->n_levels; l++)
    if (x->levels[l].least != y->levels[l].least ||
        x->levels[l].most != y->levels[l].most)
      return false;
  return true;
}

/* The model of the search is that of its first group. */
static const CostModel *model_of(const StageSearch *s, const SliceGroup *of) {
  const SearchInput *input = s->p->input;
  CostModel *model = arena_copy(s->arena, input->model, sizeof *model);
  if (of->group != input->slice->groups[0].group) {
    cost_model_of(of->group->device, model);
    cost_share_machine(model, of->group, of->n);
  }
  model->group = (int)(of->group - input->cluster->groups);
  return model;
}

static Bytes memory_of(const StageSearch *s, const SliceGroup *of) {
  const SearchInput *input = s->p->input;
  const Pins *pins = input->pins;
  Bytes memory = input->memory;
  if (of->group == input->slice->groups[0].group) return memory;
  memory = device_usable_memory(of->group->device);
  if (pins && pins->memory_bytes.is_set && pins->memory_bytes.value < memory)
    memory = pins->memory_bytes.value;
  return memory;
}

static const Mesh *mesh_of(Arena *arena, int ranks) {
  Mesh *mesh = ARENA_NEW(arena, Mesh);
  if (ranks > 1)
    mesh->axes[mesh->n_axes++] = (MeshAxis){.name = "data", .size = ranks};
  return mesh;
}

/* The inner ranks shard operators: those of one node, if it has as many. */
static void make_tensor_meshes(Arena *arena, RankShape *shape) {
  for (int t = 2; t <= MOST_SHARDING && shape->slice->is_regular; t++) {
    if (shape->ranks % t != 0) continue;
    Mesh *mesh = ARENA_NEW(arena, Mesh);
    if (t < shape->ranks)
      mesh->axes[mesh->n_axes++] =
          (MeshAxis){.name = "data", .size = shape->ranks / t};
    mesh->axes[mesh->n_axes++] = (MeshAxis){.name = "tensor", .size = t};
    shape->tensor[t] = mesh;
  }
}

static void add_range(const StageSearch *s, const SliceGroup *group,
                      const CostModel *model, int64_t first, int64_t n,
                      RankShapes *out) {
  const SearchInput *input = s->p->input;
  ClusterSlice slice =
      cluster_slice(s->arena, input->cluster, input->slice->first + first, n);
  int at = 0;
  while (at < out->n &&
         (out->data[at].memory != memory_of(s, group) ||
          out->data[at].model->rates.units != model->rates.units ||
          !is_alike(out->data[at].slice, &slice)))
    at++;
  if (at == out->n) {
    vec_push(
        s->arena, out,
        ((RankShape){.ranks = (int)n,
                     .slice = arena_copy(s->arena, &slice, sizeof slice),
                     .model = model,
                     .mesh = mesh_of(s->arena, (int)n),
                     .chains = mesh_chains_create(s->arena),
                     .proposals = map_create(s->arena),
                     .memory = memory_of(s, group),
                     .may_begin = ARENA_ARRAY(s->arena, bool, input->ranks + 1),
                     .turned = ARENA_ARRAY(s->arena, bool, input->ranks + 1)}));
    make_tensor_meshes(s->arena, &out->data[at]);
  }
  out->data[at].may_begin[first] = true;
  out->data[at].turned[input->ranks - first - n] = true;
}

void rank_shapes_list(const StageSearch *s, RankShapes *out) {
  const SearchInput *input = s->p->input;
  int64_t batch = input->pins ? input->pins->batch : 1;
  for (int g = 0; g < input->slice->n_groups; g++) {
    const SliceGroup *group = &input->slice->groups[g];
    const CostModel *model = model_of(s, group);
    for (int64_t n = 1; n <= group->n && n < input->ranks; n++) {
      if (batch % n != 0 || !is_taken(group->n, n)) continue;
      for (int64_t at = 0; at + n <= group->n; at++)
        if (may_stand(group->n, n, at))
          add_range(s, group, model, group->first + at, n, out);
    }
  }
}

/* ---- borders ---- */

/* The elements of the value that a border's text means: of its last node. */
static int64_t border_elements(const StageSearch *s, const char *text) {
  const PlanPaths *paths = s->p->input->paths;
  PathList found = {0};
  int64_t last = 0;
  if (!plan_paths_find_text(paths, text, &found)) return 0;
  for (int i = 0; i < found.n; i++) {
    const PlanNodes *nodes = plan_paths_nodes_of(paths, found.data[i]);
    for (int k = 0; k < nodes->n; k++)
      if (nodes->data[k].node->op != OP_input &&
          nodes->data[k].node->n_results > 0)
        last = type_elements(nodes->data[k].node->types[0]);
  }
  return last;
}

/* By piece of the chain: the elements that units send behind it. */
static const int64_t *sent_elements(const StageSearch *s) {
  int64_t *out = ARENA_ARRAY(s->arena, int64_t, s->chain.n);
  for (int e = 0; e < s->units->edges.n; e++) {
    const UnitEdge *edge = &s->units->edges.data[e];
    const UnitPieces *from = &s->chain.units[edge->from],
                     *to = &s->chain.units[edge->to];
    int64_t n = type_elements(edge->type);
    for (int i = 0; i < from->n && !edge->is_backward; i++)
      if (unit_edge_leaves(from, to, i) && n > out[from->pieces[i]])
        out[from->pieces[i]] = n;
  }
  return out;
}

RankBorders rank_borders(const StageSearch *s) {
  enum { MOST = 48 };
  if (s->timed) {
    int *all = ARENA_ARRAY(s->arena, int, s->chain.n);
    for (int i = 0; i < s->chain.n; i++) all[i] = i + 1;
    return (RankBorders){s->chain.n, all};
  }
  const int64_t *sent = sent_elements(s);
  int *pieces = ARENA_ARRAY(s->arena, int, s->chain.n), n = 0;
  for (int i = 0; i + 1 < s->chain.n; i++)
    if (sent[i] >= border_elements(s, s->chain.ends[i])) pieces[n++] = i + 1;
  while (n >= MOST) {
    int half = n / 2;
    for (int i = 0; i < half; i++) pieces[i] = pieces[2 * i + 1];
    n = half;
  }
  pieces[n++] = s->chain.n;
  return (RankBorders){n, pieces};
}

/* The costs of the pieces between borders. */
static void join_pieces(Arena *arena, const RankBorders *borders,
                        StageCosts *costs) {
  StageCost *to = ARENA_ARRAY(arena, StageCost, borders->n + 1);
  Bytes *sent = ARENA_ARRAY(arena, Bytes, borders->n);
  Bytes *sent_back = ARENA_ARRAY(arena, Bytes, borders->n);
  for (int i = 0; i < borders->n; i++) {
    to[i + 1] = costs->to[borders->pieces[i]];
    sent[i] = costs->sent[borders->pieces[i] - 1];
    sent_back[i] = costs->sent_back[borders->pieces[i] - 1];
  }
  costs->n = borders->n;
  costs->to = to;
  costs->sent = sent;
  costs->sent_back = sent_back;
}

/* ---- costs ---- */

/* Each unit shards the batch, if it has one. */
static const Assignment *share_batch(const StageSearch *s, Loads *loads) {
  const Units *units = s->units;
  Assignment *out = ARENA_ARRAY(s->arena, Assignment, units->units.n + 1);
  for (int u = 0; u < units->units.n; u++) {
    for (int a = 0; a < MOST_MESH_AXES; a++) out[u].loop[a] = NO_LOOP;
    const PlanUnit *unit = units->units.data[u];
    for (int d = 0; d < unit->n_dims; d++) {
      Assignment assignment = out[u];
      assignment.loop[0] = (int8_t)d;
      if (!(unit->batch >> d & 1) || !loads_allow(loads, u, assignment))
        continue;
      out[u] = assignment;
      break;
    }
  }
  return out;
}

static SpaceRequest space_of_shape(const StageSearch *s,
                                   const RankShape *shape) {
  return (SpaceRequest){.arena = s->arena,
                        .units = s->units,
                        .slice = shape->slice,
                        .model = shape->model,
                        .ranks = shape->ranks,
                        .pins = s->p->input->pins,
                        .chains = shape->chains};
}

static const StageCosts *costs_of(const StageSearch *s, const RankShape *shape,
                                  const RankBorders *borders,
                                  const Proposal *proposal) {
  SpaceRequest of = space_of_shape(s, shape);
  StageCosts *costs = ARENA_NEW(s->arena, StageCosts);
  *costs =
      stage_costs_of(s->arena,
                     &(StageCostsRequest){&s->chain, s->values, &of,
                                          shape->slice, s->p->input->target},
                     proposal);
  join_pieces(s->arena, borders, costs);
  return costs;
}

/* All ranks share the batch. */
static Proposal sharing_of(const RankShape *shape, const RankSetting *setting,
                           const Assignment *assignments) {
  return (Proposal){.place = {.mesh = shape->mesh},
                    .microbatches = setting->microbatches,
                    .batch_axes = (1 << shape->mesh->n_axes) - 1,
                    .zero = setting->zero,
                    .recomputes = setting->recomputes,
                    .assignments = assignments};
}

static const Proposal *sharing(const StageSearch *s, const RankShape *shape,
                               const RankSetting *setting) {
  LoadRequest request = {.units = s->units,
                         .mesh = shape->mesh,
                         .slice = shape->slice,
                         .model = shape->model,
                         .microbatches = setting->microbatches};
  Proposal *out = ARENA_NEW(s->arena, Proposal);
  *out = sharing_of(shape, setting,
                    share_batch(s, loads_create(s->arena, &request)));
  return out;
}

/* ---- options ---- */

static bool divides(const StageSearch *s, int64_t parts) {
  const Pins *pins = s->p->input->pins;
  return (pins ? pins->batch : 1) % parts == 0;
}

bool rank_shape_may_shard(const StageSearch *s, const RankShape *shape,
                          int microbatches, int sharding) {
  return shape->tensor[sharding] &&
         divides(s, (int64_t)microbatches * (shape->ranks / sharding));
}

/* Returns whether no stage is better on `b`: each piece takes as much time, and
 * as many bytes, in a message, too. */
static bool is_dominated(const StageCosts *b, const StageCosts *a) {
  if (b->transient < a->transient) return false;
  for (int i = 0; i < a->n; i++) {
    StageCost x = stage_cost(a, i, i + 1), y = stage_cost(b, i, i + 1);
    if (y.forward < x.forward || y.input_grad < x.input_grad ||
        y.weight_grad < x.weight_grad || y.bulk < x.bulk ||
        y.update < x.update || y.state < x.state || y.gradient < x.gradient ||
        y.saved < x.saved || b->sent[i] < a->sent[i] ||
        b->sent_back[i] < a->sent_back[i])
      return false;
  }
  return true;
}

static void push_option(const StageSearch *s, const RankShapes *shapes, int at,
                        const RankSetting *setting, const StageCosts *costs,
                        const Proposal *proposal, RankOptions *out) {
  const RankShape *shape = &shapes->data[at];
  vec_push(s->arena, out,
           ((RankOption){.ranks = shape->ranks,
                         .costs = costs,
                         .may_begin = setting->is_turned ? shape->turned
                                                         : shape->may_begin,
                         .memory = shape->memory,
                         .shape = at,
                         .proposal = proposal}));
}

static void add_option(const StageSearch *s, const RankShapes *shapes, int at,
                       const RankBorders *borders, const RankSetting *setting,
                       const Proposal *proposal, RankOptions *out) {
  const StageCosts *costs = costs_of(s, &shapes->data[at], borders, proposal);
  for (int i = 0; i < out->n; i++)
    if (out->data[i].shape == at && is_dominated(costs, out->data[i].costs))
      return;
  push_option(s, shapes, at, setting, costs, proposal, out);
}

/* The launches of a rank, of a model without units: all ranks share the batch.
 */
static void add_timed(const StageSearch *s, const RankShapes *shapes, int at,
                      const RankSetting *setting, RankOptions *out) {
  const RankShape *shape = &shapes->data[at];
  const StageCosts *costs = timed_costs(s->timed, shape, setting);
  if (!costs) return;
  Proposal *proposal = ARENA_NEW(s->arena, Proposal);
  *proposal = sharing_of(shape, setting, NULL);
  push_option(s, shapes, at, setting, costs, proposal, out);
}

/* Tables serve several levels of ZeRO: 2 and 3 are tried later, if at all. */
static unsigned zeros_with(const StageSearch *s, int zero) {
  const Pins *pins = s->p->input->pins;
  bool is_fixed = pins && pins->zero.is_set;
  return is_fixed ? 1u << zero : zero < 2 ? 0x3u : 0xcu;
}

/* Returns the assignments of least time on the mesh, as if a stage had the
 * whole model. */
static const Proposals *proposals_of(const StageSearch *s,
                                     const RankShape *shape, int sharding,
                                     const RankSetting *setting) {
  SpaceRequest of = space_of_shape(s, shape);
  int n_spaces;
  SpacePlace place = {.space = spaces_all(&n_spaces),
                      .mesh = shape->tensor[sharding]};
  ProposeRequest request = {.of = &of,
                            .place = &place,
                            .microbatches = setting->microbatches,
                            .batch_axes = place.mesh->n_axes > 1,
                            .zeros = zeros_with(s, setting->zero),
                            .may_recompute = setting->recomputes,
                            .memory = INT64_MAX / 4,
                            .worth = INT64_MAX / 4,
                            .solver = s->p->solver};
  uint64_t key = hash_mix(hash_mix(hash_mix(89, (uint64_t)sharding),
                                   (uint64_t)request.microbatches),
                          request.zeros * 2 + request.may_recompute);
  const void *at = (const void *)(uintptr_t)(key | 1);
  Proposals *known = map_get(shape->proposals, at);
  if (known) return known;
  known = ARENA_NEW(s->arena, Proposals);
  propose(s->arena, &request, known);
  map_put(shape->proposals, at, known);
  return known;
}

static void add_sharding(const StageSearch *s, const RankShapes *shapes, int at,
                         int sharding, const RankBorders *borders,
                         const RankSetting *setting, RankOptions *out) {
  const Proposals *found =
      proposals_of(s, &shapes->data[at], sharding, setting);
  for (int i = 0; i < found->list.n; i++) {
    const Proposal *proposal = &found->list.data[i];
    if (proposal->recomputes == setting->recomputes &&
        proposal->zero == setting->zero)
      add_option(s, shapes, at, borders, setting,
                 arena_copy(s->arena, proposal, sizeof *proposal), out);
  }
}
void rank_options_list(const StageSearch *s, const RankShapes *shapes,
                       const RankBorders *borders, const RankSetting *setting,
                       RankOptions *out) {
  for (int i = 0; i < shapes->n; i++) {
    const RankShape *shape = &shapes->data[i];
    bool may_share = divides(s, (int64_t)setting->microbatches * shape->ranks);
    if (s->timed) {
      if (may_share) add_timed(s, shapes, i, setting, out);
      continue;
    }
    if (may_share)
      add_option(s, shapes, i, borders, setting, sharing(s, shape, setting),
                 out);
    for (int t = 2; t <= MOST_SHARDING && setting->shards; t++)
      if (rank_shape_may_shard(s, shape, setting->microbatches, t))
        add_sharding(s, shapes, i, t, borders, setting, out);
  }
}

/* ---- messages ---- */

static Ps message_time(const RankLinks *links, const RankRanges *r,
                       Bytes bytes) {
  const StageSearch *s = links->s;
  const SearchInput *input = s->p->input;
  const ClusterSlice *slice = input->slice;
  bool is_up = r->from < r->to;
  int64_t low = is_up ? r->from : r->to;
  int64_t high = is_up ? r->to + r->n_to - 1 : r->from + r->n_from - 1;
  RankRange beside = r->n_from <= r->n_to ? (RankRange){r->from, r->n_from}
                                          : (RankRange){r->to, r->n_to};
  GroupLevel *levels =
      ARENA_ARRAY(s->arena, GroupLevel, cost_links(slice->cluster));
  int n = cost_message_levels(slice, low, high, beside, levels);
  SimTransfer t = cost_transfer(s->arena, input->model, slice->cluster,
                                OP_permute, bytes, 2, levels, n);
  Ps busy = 0;
  for (int l = 0; l < t.n_loads; l++)
    if (t.loads[l].busy > busy) busy = t.loads[l].busy;
  return t.latency + busy;
}

const MessageRate *rank_message_rate(RankLinks *links, const RankRanges *r) {
  enum { FEW = 1 << 20, MANY = 1 << 24 };
  int64_t n = links->s->p->input->ranks + 1;
  const void *key =
      (const void *)(intptr_t)(((r->from * n + r->n_from) * n + r->to) * n +
                               r->n_to + 1);
  MessageRate *rate = map_get(links->known, key);
  if (rate) return rate;
  Ps few = message_time(links, r, FEW);
  double per_byte = (double)(message_time(links, r, MANY) - few) / (MANY - FEW);
  rate = ARENA_NEW(links->s->arena, MessageRate);
  *rate = (MessageRate){few - (Ps)(per_byte * FEW), per_byte};
  map_put(links->known, key, rate);
  return rate;
}
