/*
 * loads.c -- prices units and edges by the work of their kernels on local sizes
 * and by the messages of their reshardings.  No pass runs.
 *
 * Costs are remembered by all that they depend on: kernels by their key and the
 * parts of their dims, messages by operator, axes and bytes, reshardings by
 * type and both placements.  What does not depend on micro-batches is shared by
 * all requests with the same MeshChains.
 */
#include "planner/loads.h"

#include <string.h>

#include "ir/list/instructions.h"
#include "ir/place/reshard.h"
#include "ir/work.h"
#include "price/units/loop_time.h"

/* A message that nobody waits for comes with many others, in one. */
#define MANY_BYTES ((Bytes)256 << 20)

/* Costs on one mesh and part of a cluster that do not depend on micro-batches.
 */
typedef struct MeshCosts {
  Resharding *table;
  Map *chains;   /* of Chain */
  Map *messages; /* of Sent */
} MeshCosts;

struct Loads {
  Arena *arena;
  LoadRequest r;
  MeshChains *shared;
  MeshCosts *mesh;
  Map *least;       /* of times of weight gradients */
  Map *reshardings; /* of Sent */
};

struct MeshChains {
  Arena *arena;
  Map *of;       /* mesh and slice -> MeshCosts */
  Map *launches; /* of times */
  const Graph *graph;
  uint64_t *keys; /* by node of the graph; 0: unknown */
};

MeshChains *mesh_chains_create(Arena *arena) {
  MeshChains *chains = ARENA_NEW(arena, MeshChains);
  *chains = (MeshChains){
      .arena = arena, .of = map_create(arena), .launches = map_create(arena)};
  return chains;
}

static const void *key_of(uint64_t hash) {
  return (const void *)(uintptr_t)(hash ? hash : 1);
}

static uint64_t mix_pointer(uint64_t hash, const void *pointer) {
  return hash_mix(hash, (uint64_t)(uintptr_t)pointer);
}

/* Several slices, and groups of them, may be asked about with one mesh. */
static MeshCosts *mesh_costs_of(MeshChains *known, const LoadRequest *request) {
  const ClusterSlice *slice = request->slice;
  uint64_t hash = mix_pointer(mix_pointer(41, request->mesh), request->model);
  hash = hash_mix(hash, (uint64_t)slice->first);
  if (request->models) hash = hash_mix(hash, (uint64_t)request->group + 1);
  for (int g = 0; g < slice->n_groups; g++)
    hash = hash_mix(mix_pointer(hash, slice->groups[g].group),
                    (uint64_t)slice->groups[g].n);
  MeshCosts *costs = map_get(known->of, key_of(hash));
  if (costs) return costs;
  costs = ARENA_NEW(known->arena, MeshCosts);
  *costs = (MeshCosts){reshard_create_plain(known->arena, request->mesh),
                       map_create(known->arena), map_create(known->arena)};
  map_put(known->of, key_of(hash), costs);
  return costs;
}

Loads *loads_create(Arena *arena, const LoadRequest *request) {
  MeshChains *shared =
      request->chains ? request->chains : mesh_chains_create(arena);
  Loads *loads = ARENA_NEW(arena, Loads);
  *loads = (Loads){.arena = arena,
                   .r = *request,
                   .shared = shared,
                   .mesh = mesh_costs_of(shared, request),
                   .least = map_create(arena),
                   .reshardings = map_create(arena)};
  return loads;
}

uint64_t loads_kernel_key(Loads *l, int id) {
  const Graph *graph = l->r.units->graph;
  MeshChains *shared = l->shared;
  if (shared->graph != graph) {
    shared->graph = graph;
    shared->keys = ARENA_ARRAY(shared->arena, uint64_t, graph->nodes.n);
  }
  if (!shared->keys[id]) shared->keys[id] = kernel_key(graph, id);
  return shared->keys[id];
}

/* ---- remembered costs ---- */

static bool find_time(Map *map, uint64_t hash, Ps *out) {
  Ps *known = map_get(map, key_of(hash));
  if (known) *out = *known;
  return known != NULL;
}

static Ps keep_time(Arena *arena, Map *map, uint64_t hash, Ps time) {
  Ps *known = ARENA_NEW(arena, Ps);
  *known = time;
  map_put(map, key_of(hash), known);
  return time;
}

/* A message, or several. */
typedef struct Sent {
  Ps wait;  /* until a reader has the bytes */
  Ps least; /* the same, right after another message */
  Ps bulk;  /* the part of the link that is busy longest */
  LinkLoad links;
} Sent;

static const Sent *keep_sent(Arena *arena, Map *map, uint64_t hash, Sent sent) {
  Sent *known = ARENA_NEW(arena, Sent);
  *known = sent;
  map_put(map, key_of(hash), known);
  return known;
}

static void add_links(LinkLoad *to, const LinkLoad *more, int64_t times) {
  for (int i = 0; i < N_LOAD_LINKS; i++) to->busy[i] += times * more->busy[i];
}

static void add_sent(Sent *to, const Sent *more, int64_t times) {
  to->wait += times * more->wait;
  to->least += times * more->least;
  to->bulk += times * more->bulk;
  add_links(&to->links, &more->links, times);
}

/* ---- assignments ---- */

AxisList assignment_axes(const Mesh *mesh, Assignment assignment, int loop) {
  AxisList list = 0;
  for (int a = 0; a < mesh->n_axes && loop >= 0; a++)
    if (assignment.loop[a] == loop) list = axis_list_append(list, a);
  return list;
}

static int64_t shards_of(const Loads *l, Assignment assignment, int loop) {
  int64_t n = 1;
  for (int a = 0; a < l->r.mesh->n_axes && loop >= 0; a++)
    if (assignment.loop[a] == loop) n *= l->r.mesh->axes[a].size;
  return n;
}

/* Shards may be padded, but each axis that makes them makes them smaller. */
static bool has_idle_axis(const Loads *l, Assignment assignment, int loop,
                          int64_t size) {
  int64_t n = shards_of(l, assignment, loop);
  int64_t each = (size + n - 1) / n;
  for (int a = 0; a < l->r.mesh->n_axes; a++) {
    Assignment less = assignment;
    if (assignment.loop[a] != loop || l->r.mesh->axes[a].size == 1) continue;
    less.loop[a] = NO_LOOP;
    int64_t others = shards_of(l, less, loop);
    if ((size + others - 1) / others == each) return true;
  }
  return false;
}

bool loads_allow(const Loads *l, int unit, Assignment assignment) {
  const PlanUnit *u = l->r.units->units.data[unit];
  int64_t m = l->r.microbatches;
  for (int d = 0; d < u->n_dims; d++) {
    const LoopDim *dim = &u->dims[d];
    int64_t n = shards_of(l, assignment, d);
    bool is_batch = u->batch >> d & 1;
    if (n > 1 && (dim->is_whole || (dim->even && dim->even % n != 0) ||
                  has_idle_axis(l, assignment, d, dim->size)))
      return false;
    if (is_batch && m > 1 && dim->size % (n * m) != 0) return false;
  }
  return true;
}

/* ---- kernels ---- */

static const Type *local_type(Loads *l, const PlanUnit *u, const UnitKernel *k,
                              const DimMap *map, const Type *type,
                              Assignment assignment) {
  Type *local = type_create(l->arena, type->dtype, type->rank);
  for (int d = 0; d < type->rank; d++) {
    int loop = map->at[d] < 0 ? NO_LOOP : k->loop[map->at[d]];
    int64_t n = shards_of(l, assignment, loop);
    if (loop >= 0 && u->batch >> loop & 1) n *= l->r.microbatches;
    local->dims[d] =
        (Dim){type->dims[d].name, (type->dims[d].size + n - 1) / n, 0};
  }
  return local;
}

/* Into how many shards and micro-batches a loop dim of a kernel is divided. */
static int64_t parts_of(const Loads *l, const PlanUnit *u, const UnitKernel *k,
                        int dim, Assignment assignment) {
  int64_t n = shards_of(l, assignment, k->loop[dim]);
  return u->batch >> k->loop[dim] & 1 ? n * l->r.microbatches : n;
}

/* The operations of a fused kernel are counted as a whole. */
static double body_share(const Loads *l, const PlanUnit *u, const UnitKernel *k,
                         Assignment assignment) {
  double share = 1;
  for (int i = 0; i < k->dims->n; i++)
    share /= (double)parts_of(l, u, k, i, assignment);
  return share;
}

/* All iterations of a scan. */
static Ps compute_loop(Loads *l, const PlanUnit *u, const UnitKernel *k,
                       Assignment assignment) {
  int64_t parts[MOST_LOOP_DIMS];
  for (int i = 0; i < k->dims->n; i++)
    parts[i] = parts_of(l, u, k, i, assignment);
  Arena *scratch = arena_beside(l->arena);
  Ps time = loop_time(scratch, l->r.model, l->r.units->graph->nodes.data[k->id],
                      k->dims->body, parts);
  arena_destroy(scratch);
  return time;
}

static Ps compute_launch(Loads *l, const PlanUnit *u, const UnitKernel *k,
                         Assignment assignment) {
  const Graph *graph = l->r.units->graph;
  const Node *node = graph->nodes.data[k->id];
  Arena *scratch = arena_beside(l->arena);
  const Type **inputs = ARENA_ARRAY(scratch, const Type *, node->n_inputs + 1);
  const Type **results =
      ARENA_ARRAY(scratch, const Type *, node->n_results + 1);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = local_type(l, u, k, &k->dims->inputs[i],
                           graph_type(graph, node->inputs[i]), assignment);
  for (int r = 0; r < node->n_results; r++)
    results[r] =
        local_type(l, u, k, &k->dims->results[r], node->types[r], assignment);
  Work work;
  op_work(scratch, &(WorkCall){node, inputs, results, NULL}, &work);
  if (node->body) work.flops *= body_share(l, u, k, assignment);
  LaunchCost cost = cost_work(l->r.model, node, &work);
  arena_destroy(scratch);
  return cost.launch + cost.time;
}

/* Parts of one number take as long, whatever makes them: meshes and numbers of
 * micro-batches share these times. */
static Ps launch_time(Loads *l, const PlanUnit *u, const UnitKernel *k,
                      Assignment assignment) {
  uint64_t hash = hash_mix(loads_kernel_key(l, k->id), 17);
  hash = mix_pointer(hash, l->r.model);
  for (int i = 0; i < k->dims->n; i++)
    hash = hash_mix(hash, (uint64_t)parts_of(l, u, k, i, assignment));
  Ps time;
  if (find_time(l->shared->launches, hash, &time)) return time;
  time = k->dims->body ? compute_loop(l, u, k, assignment)
                       : compute_launch(l, u, k, assignment);
  return keep_time(l->shared->arena, l->shared->launches, hash, time);
}

/* ---- weight gradients ---- */

/* Stands for an axis that shards any dim of the parameter. */
enum { ANY_LOOP = MOST_LOOP_DIMS };
/* Stands for the time of what the sizes do not allow. */
#define LONGEST ((Ps)1 << 50)

/* The loop dims of the unit that the results of a kernel have, and those that
 * ranks sum in it or after it. */
typedef struct GradientLoops {
  LoopSet made, summed;
} GradientLoops;

static GradientLoops gradient_loops(const Loads *l, const UnitKernel *k) {
  const Node *node = l->r.units->graph->nodes.data[k->id];
  GradientLoops out = {0};
  LoopSet summed = 0;
  for (int r = 0; r < node->n_results; r++) summed |= k->dims->partial[r];
  for (int i = 0; i < k->dims->n_sums; i++) summed |= k->dims->sums[i].over;
  for (int d = 0; d < k->dims->n; d++)
    *(summed >> d & 1 ? &out.summed : &out.made) |= (LoopSet)(1u << k->loop[d]);
  return out;
}

/* Lets each axis that may shard any dim shard one after the other. */
static Ps least_from(Loads *l, int unit, const UnitKernel *k, LoopSet made,
                     int axis, Assignment at) {
  const PlanUnit *u = l->r.units->units.data[unit];
  Ps least = LONGEST;
  while (axis < l->r.mesh->n_axes && at.loop[axis] != ANY_LOOP) axis++;
  if (axis == l->r.mesh->n_axes)
    return loads_allow(l, unit, at) ? launch_time(l, u, k, at) : LONGEST;
  for (int loop = 0; loop < u->n_dims; loop++) {
    if (!(made >> loop & 1)) continue;
    at.loop[axis] = (int8_t)loop;
    Ps time = least_from(l, unit, k, made, axis + 1, at);
    if (time < least) least = time;
  }
  return least;
}

/* Returns the least time of a weight gradient under all assignments that shard
 * and sum it over the same axes. */
static Ps least_launch(Loads *l, int unit, const UnitKernel *k,
                       Assignment assignment) {
  GradientLoops loops = gradient_loops(l, k);
  uint64_t hash = hash_mix(31, (uint64_t)k->id);
  for (int a = 0; a < l->r.mesh->n_axes; a++) {
    int loop = assignment.loop[a];
    if (loop >= 0 && loops.made >> loop & 1)
      assignment.loop[a] = ANY_LOOP;
    else if (loop >= 0 && !(loops.summed >> loop & 1))
      assignment.loop[a] = NO_LOOP;
    hash = hash_mix(hash, (uint64_t)(assignment.loop[a] + 1));
  }
  Ps time;
  if (find_time(l->least, hash, &time)) return time;
  return keep_time(l->arena, l->least, hash,
                   least_from(l, unit, k, loops.made, 0, assignment));
}

/* ---- messages ---- */

static int64_t group_size(const Mesh *mesh, AxisSet axes) {
  int64_t n = 1;
  for (int a = 0; a < mesh->n_axes; a++)
    if (axes >> a & 1) n *= mesh->axes[a].size;
  return n;
}

static int load_link(const Loads *l, int link) {
  return l->r.models ? cost_link_of_group(l->r.slice->cluster,
                                          l->r.models[l->r.group].group, link)
                     : link;
}

static Sent sent_of(const Loads *l, const SimTransfer *transfer) {
  Sent out = {0};
  for (int i = 0; i < transfer->n_loads; i++) {
    const SimLoad *load = &transfer->loads[i];
    if (load->busy > out.bulk) out.bulk = load->busy;
    int link = load_link(l, load->link);
    if (link >= 0 && link < N_LOAD_LINKS) out.links.busy[link] = load->busy;
  }
  out.wait = transfer->latency + out.bulk;
  out.least = out.wait - transfer->sooner;
  return out;
}

static const Sent *message(Loads *l, Op op, AxisSet axes, Bytes sent) {
  uint64_t hash =
      hash_mix(hash_mix(hash_mix(29, (uint64_t)op), axes), (uint64_t)sent);
  const Sent *known = map_get(l->mesh->messages, key_of(hash));
  if (known) return known;
  Arena *arena = l->shared->arena;
  SimTransfer t =
      l->r.models
          ? price_message_of_group(arena, l->r.models, l->r.slice, l->r.group,
                                   l->r.mesh, op, axes, sent)
          : price_message(arena, l->r.model, l->r.slice, l->r.mesh, op, axes,
                          sent);
  return keep_sent(arena, l->mesh->messages, hash, sent_of(l, &t));
}

/* The part of a message of many bytes. */
static Sent bulk_message(Loads *l, Op op, AxisSet axes, Bytes sent) {
  const Sent *many = message(l, op, axes, MANY_BYTES);
  double part = (double)sent / (double)MANY_BYTES;
  Sent out = {.bulk = (Ps)((double)many->bulk * part)};
  for (int i = 0; i < N_LOAD_LINKS; i++)
    out.links.busy[i] = (Ps)((double)many->links.busy[i] * part);
  return out;
}

static Bytes sent_bytes(const Loads *l, Op op, AxisSet axes, int64_t from,
                        int64_t to, DType dtype) {
  return collective_sent_elements(op, group_size(l->r.mesh, axes), from, to) *
         dtype_size_bytes(dtype);
}

/* ---- sums inside of a unit ---- */

static int64_t local_elements(const Loads *l, const Type *type,
                              const DimMap *map, Assignment assignment) {
  int64_t n = 1;
  for (int d = 0; d < type->rank; d++) {
    int64_t shards = shards_of(l, assignment, map->at[d]);
    n *= (type->dims[d].size + shards - 1) / shards;
  }
  return n;
}

static AxisSet axes_of(const Loads *l, Assignment assignment, LoopSet loops) {
  AxisSet axes = 0;
  for (int a = 0; a < l->r.mesh->n_axes; a++)
    if (assignment.loop[a] >= 0 && loops >> assignment.loop[a] & 1)
      axes |= (AxisSet)(1u << a);
  return axes;
}

/* A sum over the batch is one of all micro-batches.  Other readers of the value
 * pay their part of it on their edges. */
static void add_sum(Loads *l, const PlanUnit *u, const UnitSum *sum,
                    Assignment assignment, Load *out) {
  AxisSet axes = axes_of(l, assignment, sum->over);
  bool is_repeated = false;
  if (!axes) return;
  for (int d = 0; d < sum->type->rank; d++)
    is_repeated |= sum->dims.at[d] >= 0 && u->batch >> sum->dims.at[d] & 1;
  int64_t m = is_repeated ? l->r.microbatches : 1;
  int64_t n = local_elements(l, sum->type, &sum->dims, assignment) / m;
  Sent sent = {0};
  add_sent(&sent,
           message(l, OP_all_reduce, axes,
                   sent_bytes(l, OP_all_reduce, axes, n, n, sum->type->dtype)),
           m);
  out->wait[sum->is_backward] += sent.wait / sum->readers;
  /* Messages may be one with others, and one that several units read may
   * scatter the sum; that of a weight gradient counts with its parameter. */
  bool is_of_weight = l->r.units->graph->nodes.data[sum->kernel]->phase ==
                      PHASE_weight_gradient;
  if (sum->is_cut) out->cut[sum->is_backward] += sent.bulk;
  for (int i = 0; i < N_LOAD_LINKS && !is_of_weight; i++)
    out->links[sum->is_backward].busy[i] +=
        sent.links.busy[i] / sum->readers / (sum->readers > 1 ? 2 : 1);
}

/* ---- parameters ---- */

/* How a parameter lies: axes over which it is copied, and those of them over
 * which its gradient is a sum. */
typedef struct ParamPlace {
  AxisSet copied, summed;
  int64_t elements; /* on a rank, before ZeRO */
  int64_t gradient; /* elements of its gradient on a rank, at least: what
                       shards of another dim have may pad less */
  int64_t own;      /* ranks that share it out */
  int64_t copies;   /* ranks that have a copy */
} ParamPlace;

static ParamPlace place_of(const Loads *l, const PlanUnit *u,
                           const UnitParam *param, Assignment assignment) {
  LoopSet own = 0, all = (LoopSet)((1u << u->n_dims) - 1);
  for (int d = 0; d < param->type->rank; d++)
    if (param->dims.at[d] >= 0) own |= (LoopSet)(1u << param->dims.at[d]);
  AxisSet kept = axes_of(l, assignment, own);
  AxisSet every = (AxisSet)((1u << l->r.mesh->n_axes) - 1);
  AxisSet copied = every & (AxisSet)~kept;
  return (ParamPlace){
      .copied = copied,
      .summed = axes_of(l, assignment, all & (LoopSet)~own),
      .elements = local_elements(l, param->type, &param->dims, assignment),
      .gradient = type_elements(param->type) / group_size(l->r.mesh, kept),
      .own = group_size(l->r.mesh, kept),
      .copies = group_size(l->r.mesh, copied)};
}

/* Gathers of what a step computes with: level 3 gathers for each pass of each
 * micro-batch that reads it. */
static Sent param_gathers(Loads *l, const UnitParam *param,
                          const ParamPlace *place, int zero) {
  int64_t shard = (place->elements + place->copies - 1) / place->copies;
  Sent out = {0};
  if (zero == 0 || !place->copied) return out;
  Sent once = bulk_message(l, OP_all_gather, place->copied,
                           sent_bytes(l, OP_all_gather, place->copied, shard,
                                      place->elements, param->read_as));
  add_sent(&out, &once, zero == 3 ? param->passes * l->r.microbatches : 1);
  return out;
}

/* Sums of gradients: levels 2 and 3 sum for each micro-batch.  With ZeRO, ranks
 * that have the same sum may each take a slice of it before they add it up. */
static Sent param_sums(Loads *l, const UnitParam *param,
                       const ParamPlace *place, int zero) {
  int64_t n = place->elements, m = l->r.microbatches;
  int64_t shard = (n + place->copies - 1) / place->copies;
  int64_t slice = shard * group_size(l->r.mesh, place->summed);
  Sent out = {0};
  if (!place->summed) return out;
  if (zero == 0 || slice > n) slice = n;
  Op op = zero == 0 ? OP_all_reduce : OP_reduce_scatter;
  Sent once =
      bulk_message(l, op, place->summed,
                   sent_bytes(l, op, place->summed, slice,
                              zero == 0 ? n : shard, param->type->dtype));
  add_sent(&out, &once, zero >= 2 ? m : 1);
  return out;
}

static void add_gradient(Loads *l, const UnitParam *param,
                         const ParamPlace *place, int zero, ZeroLoad *to) {
  Sent sums = param_sums(l, param, place, zero);
  ParamPlace unpadded = *place;
  unpadded.elements = place->gradient;
  Sent least = param_sums(l, param, &unpadded, zero);
  int64_t parts = zero >= 2 ? place->copies : 1;
  to->bulk += sums.bulk;
  to->summed += sums.bulk;
  add_links(&to->sums, &sums.links, 1);
  to->gradient += place->elements * 4 / parts;
  to->least_summed += least.bulk;
  add_links(&to->least_sums, &least.links, 1);
  to->least_gradient += place->gradient * 4 / parts;
}

static void add_param(Loads *l, const PlanUnit *u, const UnitParam *param,
                      Assignment assignment, Load *out) {
  ParamPlace place = place_of(l, u, param, assignment);
  Ps cast = param->cast < 0
                ? 0
                : loads_of_kernel(l, param->unit, param->cast, assignment);
  out->casts += cast;
  for (int zero = 0; zero < N_ZERO_LEVELS; zero++) {
    ZeroLoad *to = &out->zero[zero];
    int64_t copies = zero > 0 ? place.copies : 1;
    int64_t shards = place.own * copies;
    Bytes whole = place.elements * dtype_size_bytes(param->type->dtype);
    Sent gathers = param_gathers(l, param, &place, zero);
    add_gradient(l, param, &place, zero, to);
    to->bulk += gathers.bulk;
    add_links(&to->gathers, &gathers.links, 1);
    to->update +=
        cost_bytes(l->r.model, (double)param->updated / (double)shards);
    if (cast > 0 && !u->kernels.data[param->cast].is_light)
      to->less_cast += cast - cast / copies;
    to->state += param->state / shards;
    to->least_state += param->state / shards;
    /* A parameter that is gathered once stays until its last reader. */
    if ((zero == 1 || zero == 2) && place.copied &&
        (param->passes > 1 || l->r.microbatches > 1))
      to->least_state += place.elements * dtype_size_bytes(param->read_as);
    if (zero == 1 || zero == 2) to->state += whole - whole / copies;
  }
}

/* ---- units ---- */

static bool has_batch(const PlanUnit *u, const UnitKernel *k) {
  for (int i = 0; i < k->dims->n; i++)
    if (u->batch >> k->loop[i] & 1) return true;
  return false;
}

/* Returns whether an operand or a result of a backward pass has its memory
 * beside what is saved, persistent or added up. */
static bool is_beside(const Graph *graph, const Node *node, int i) {
  return i < node->n_inputs
             ? graph_node(graph, node->inputs[i])->phase != PHASE_forward
             : node->phase != PHASE_weight_gradient;
}

/* Operands and results of a kernel, as if no other unit held them. */
static Bytes kernel_bytes(const Loads *l, const PlanUnit *u,
                          const UnitKernel *k, Assignment assignment,
                          Bytes *out_beside) {
  const Graph *graph = l->r.units->graph;
  const Node *node = graph->nodes.data[k->id];
  Bytes sum = 0;
  *out_beside = 0;
  for (int i = 0; i < node->n_inputs + node->n_results; i++) {
    bool is_input = i < node->n_inputs;
    const Type *type = is_input ? graph_type(graph, node->inputs[i])
                                : node->types[i - node->n_inputs];
    const DimMap *own =
        is_input ? &k->dims->inputs[i] : &k->dims->results[i - node->n_inputs];
    int64_t n = 1;
    for (int d = 0; d < type->rank; d++) {
      int loop = own->at[d] < 0 ? NO_LOOP : k->loop[own->at[d]];
      int64_t shards = shards_of(l, assignment, loop);
      if (loop >= 0 && u->batch >> loop & 1) shards *= l->r.microbatches;
      n *= (type->dims[d].size + shards - 1) / shards;
    }
    sum += n * dtype_size_bytes(type->dtype);
    if (is_beside(graph, node, i))
      *out_beside += n * dtype_size_bytes(type->dtype);
  }
  return sum;
}

Ps loads_of_kernel(Loads *l, int unit, int kernel, Assignment assignment) {
  const PlanUnit *u = l->r.units->units.data[unit];
  const UnitKernel *k = &u->kernels.data[kernel];
  if (!node_is_launched(l->r.units->graph, k->id)) return 0;
  return (has_batch(u, k) ? l->r.microbatches : 1) *
         launch_time(l, u, k, assignment);
}

static void add_kernel(Loads *l, int unit, const UnitKernel *k,
                       Assignment assignment, Load *out) {
  const PlanUnit *u = l->r.units->units.data[unit];
  const Graph *graph = l->r.units->graph;
  const Node *node = graph->nodes.data[k->id];
  int64_t runs = has_batch(u, k) ? l->r.microbatches : 1;
  Ps time = 0;
  Bytes beside, bytes = kernel_bytes(l, u, k, assignment, &beside);
  if (node->phase != PHASE_forward && bytes > out->transient)
    out->transient = bytes;
  if (node->phase != PHASE_forward && beside > out->beside)
    out->beside = beside;
  if (node_is_launched(graph, k->id))
    time = runs * launch_time(l, u, k, assignment);
  if (k->is_light) out->light[node->phase != PHASE_forward] += time;
  switch (node->phase) {
  case PHASE_forward: out->forward += time; break;
  case PHASE_weight_gradient: {
    Ps least = time > 0 ? runs * least_launch(l, unit, k, assignment) : 0;
    out->weight_gradient += time;
    out->least_weights += least < time ? least : time;
    break;
  }
  default: out->input_gradient += time; break;
  }
}

static Bytes saved_bytes(const Loads *l, const PlanUnit *u,
                         const UnitSaved *saved, Assignment assignment) {
  int64_t n = local_elements(l, saved->type, &saved->dims, assignment);
  for (int d = 0; d < saved->type->rank; d++)
    if (saved->dims.at[d] >= 0 && u->batch >> saved->dims.at[d] & 1)
      n = (n + l->r.microbatches - 1) / l->r.microbatches;
  return n * dtype_size_bytes(saved->type->dtype);
}

/* A plan may store shards of a value that its maker has whole, over all axes,
 * and gather or cast a parameter for each pass. */
static Bytes least_saved_bytes(const Loads *l, const PlanUnit *u,
                               const UnitSaved *saved) {
  AxisSet every = (AxisSet)((1u << l->r.mesh->n_axes) - 1);
  int64_t parts = group_size(l->r.mesh, every), in_batch = 0;
  for (int d = 0; d < saved->type->rank; d++)
    in_batch |= saved->dims.at[d] >= 0 && u->batch >> saved->dims.at[d] & 1;
  if (in_batch) parts *= l->r.microbatches;
  if (saved->of_params) return 0;
  return type_elements(saved->type) / parts *
         dtype_size_bytes(saved->type->dtype);
}

Bytes loads_of_saved(const Loads *l, int unit, int saved) {
  const PlanUnit *u = l->r.units->units.data[unit];
  return least_saved_bytes(l, u, &u->saved.data[saved]);
}

static void add_saved(const Loads *l, const PlanUnit *u, const UnitSaved *saved,
                      Assignment assignment, Load *out) {
  Bytes bytes = saved_bytes(l, u, saved, assignment);
  Bytes least = least_saved_bytes(l, u, saved);
  out->saved += bytes;
  out->least_saved += least;
  if (u->block >= 0 && !saved->leaves_block) return;
  out->left += bytes;
  out->least_left += least;
}

Load loads_of_unit(Loads *l, int unit, Assignment assignment) {
  const Units *units = l->r.units;
  const PlanUnit *u = units->units.data[unit];
  Load load = {0};
  for (int i = 0; i < u->kernels.n; i++)
    add_kernel(l, unit, &u->kernels.data[i], assignment, &load);
  for (int i = 0; i < u->sums.n; i++)
    add_sum(l, u, &u->sums.data[i], assignment, &load);
  for (int i = 0; i < u->saved.n; i++)
    add_saved(l, u, &u->saved.data[i], assignment, &load);
  for (int i = 0; i < units->params.n; i++)
    if (units->params.data[i].unit == unit)
      add_param(l, u, &units->params.data[i], assignment, &load);
  return load;
}

/* ---- edges ---- */

static const Type *placed_type(Loads *l, const Type *type, const DimMap *map,
                               Assignment assignment, AxisSet partial) {
  Type *placed = type_copy_logical(l->arena, type);
  for (int d = 0; d < type->rank; d++)
    placed->dims[d].split = assignment_axes(l->r.mesh, assignment, map->at[d]);
  placed->partial = partial;
  return placed;
}

/* A message of a chain, with the bytes of a step. */
typedef struct ChainMessage {
  Op op;
  AxisSet axes;
  Bytes bytes;
} ChainMessage;

typedef struct Chain {
  int n; /* of messages; -1: the value cannot be brought there */
  const ChainMessage *messages;
} Chain;

static const Chain *find_chain(Loads *l, const Type *from, const Type *to) {
  ReshardStep steps[MAX_RESHARD_STEPS];
  const char *reason;
  Arena *arena = l->shared->arena;
  Chain *out = ARENA_NEW(arena, Chain);
  int n = reshard_steps(l->mesh->table, from, to, steps, &reason);
  ChainMessage *messages = ARENA_ARRAY(arena, ChainMessage, n < 0 ? 1 : n + 1);
  *out = (Chain){n < 0 ? -1 : 0, messages};
  for (int i = 0; i < n; i++) {
    Op op;
    if (!reshard_op(steps[i].kind, &op)) continue;
    messages[out->n++] = (ChainMessage){op, steps[i].group, steps[i].bytes};
  }
  return out;
}

/* `hash`: of the type and both placements.  A sum that only ends is one
 * all-reduce, as in plan_tables_reshard. */
static Sent chain_of(Loads *l, const Type *from, const Type *to, int64_t m,
                     uint64_t hash) {
  bool is_alike = true;
  Sent out = {0};
  for (int d = 0; d < from->rank; d++)
    is_alike &= from->dims[d].split == to->dims[d].split;
  if (is_alike && from->partial) {
    int64_t n = type_local_elements(from, l->r.mesh) / m;
    add_sent(
        &out,
        message(l, OP_all_reduce, from->partial,
                sent_bytes(l, OP_all_reduce, from->partial, n, n, from->dtype)),
        m);
    return out;
  }
  const Chain *chain = map_get(l->mesh->chains, key_of(hash));
  if (!chain) {
    chain = find_chain(l, from, to);
    map_put(l->mesh->chains, key_of(hash), (void *)chain);
  }
  for (int i = 0; i < chain->n; i++) {
    const ChainMessage *of = &chain->messages[i];
    add_sent(&out, message(l, of->op, of->axes, of->bytes / m), m);
  }
  if (chain->n < 0) out.wait = out.least = (Ps)1 << 55;
  return out;
}

EdgeLoad loads_of_edge(Loads *l, const UnitEdge *edge, Assignment from,
                       Assignment to) {
  const Units *units = l->r.units;
  AxisSet partial = axes_of(l, from, edge->partial);
  uint64_t hash = hash_mix(37, partial);
  bool is_equal = partial == 0, has_batch = false;
  for (int d = 0; d < edge->type->rank; d++) {
    AxisList a = assignment_axes(l->r.mesh, from, edge->from_dims.at[d]);
    AxisList b = assignment_axes(l->r.mesh, to, edge->to_dims.at[d]);
    is_equal &= a == b;
    hash = hash_mix(hash_mix(hash_mix(hash, a), b),
                    (uint64_t)edge->type->dims[d].size);
    int loop = edge->from_dims.at[d];
    has_batch |= loop >= 0 && units->units.data[edge->from]->batch >> loop & 1;
  }
  EdgeLoad out = {0};
  if (is_equal) return out;
  uint64_t placed = hash_mix(hash, (uint64_t)edge->type->dtype);
  hash = hash_mix(placed, has_batch);
  const Sent *sent = map_get(l->reshardings, key_of(hash));
  if (!sent) {
    const Type *have =
        placed_type(l, edge->type, &edge->from_dims, from, partial);
    const Type *want = placed_type(l, edge->type, &edge->to_dims, to, 0);
    int64_t m = has_batch ? l->r.microbatches : 1;
    sent = keep_sent(l->arena, l->reshardings, hash,
                     chain_of(l, have, want, m, placed));
  }
  int readers = edge->readers + (partial && edge->from_sums);
  bool is_of_weight = units->graph->nodes.data[edge->value.node]->phase ==
                      PHASE_weight_gradient;
  int joined = edge->joined * (partial && edge->from_sums ? 2 : 1);
  out.wait = sent->wait / readers;
  out.least = sent->least / readers;
  for (int i = 0; i < N_LOAD_LINKS && !is_of_weight; i++)
    out.links.busy[i] = sent->links.busy[i] / readers / joined;
  return out;
}
