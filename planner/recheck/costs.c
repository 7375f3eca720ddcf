/*
 * costs.c -- adds up kernels and messages of a unit, and messages of an edge.
 *
 * A rank has a shard of each sharded dim, and a micro-batch of the batch, so a
 * kernel costs what one with these sizes costs.  Divisions are exact: what is
 * added up is no less than with whole picoseconds.
 */
#include "planner/recheck/costs.h"

#include <math.h>

#include "ir/list/instructions.h"
#include "ir/place/reshard.h"
#include "ir/work.h"
#include "price/units/loop_time.h"

/* Gradients and parameters are sent with many others: a part of such a message
 * starts none. */
#define BULK_BYTES ((Bytes)256 << 20)

struct Costs {
  Arena *arena;
  const BoundRequest *r;
  const ClusterSlice *ranks;
  const Mesh *mesh;
  int64_t microbatches;
  Resharding *chains; /* of the mesh */
  Map *messages;      /* of the mesh: -> Message */
  Map *launches;      /* -> Ps */
  Map *gradients;     /* of the mesh and micro-batches: -> least time */
  Arena *scratch;     /* types of one launch or edge */
};

Costs *costs_create(Arena *arena, const BoundRequest *request) {
  Costs *c = ARENA_NEW(arena, Costs);
  *c = (Costs){.arena = arena,
               .r = request,
               .launches = map_create(arena),
               .scratch = arena_beside(arena)};
  return c;
}

void costs_destroy(Costs *c) {
  arena_destroy(c->scratch);
}

void costs_set(Costs *c, const ClusterSlice *ranks, const Mesh *mesh,
               int64_t microbatches) {
  c->microbatches = microbatches;
  c->gradients = map_create(c->arena);
  if (c->mesh == mesh && c->ranks == ranks) return;
  c->mesh = mesh;
  c->ranks = ranks;
  c->chains = reshard_create_plain(c->arena, mesh);
  c->messages = map_create(c->arena);
}

static const void *key_of(uint64_t hash) {
  return (const void *)(uintptr_t)(hash | 1);
}

static void add_busy(Busy *to, const Busy *more, double times) {
  for (int i = 0; i < N_LOAD_LINKS; i++) to->of[i] += times * more->of[i];
}

/* ---- shards ---- */

static int64_t ranks_along(const Mesh *mesh, AxisSet axes) {
  int64_t n = 1;
  for (int a = 0; a < mesh->n_axes; a++)
    if (axes >> a & 1) n *= mesh->axes[a].size;
  return n;
}

AxisList costs_axes(const Costs *c, Assignment assignment, int loop) {
  AxisList list = 0;
  for (int a = 0; a < c->mesh->n_axes; a++)
    if (loop >= 0 && assignment.loop[a] == loop)
      list = axis_list_append(list, a);
  return list;
}

AxisSet costs_axes_of(const Costs *c, Assignment assignment, LoopSet loops) {
  AxisSet axes = 0;
  for (int a = 0; a < c->mesh->n_axes; a++) {
    int loop = assignment.loop[a];
    if (loop >= 0 && loops >> loop & 1) axes |= (AxisSet)(1u << a);
  }
  return axes;
}

static bool is_batch(const PlanUnit *unit, int loop) {
  return loop >= 0 && unit->batch >> loop & 1;
}

/* Returns into how many shards a loop dim is divided. */
static int64_t shards(const Costs *c, Assignment assignment, int loop) {
  if (loop < 0) return 1;
  return ranks_along(c->mesh,
                     costs_axes_of(c, assignment, (LoopSet)(1u << loop)));
}

/* Returns into how many parts a loop dim is divided, of which a kernel has
 * one. */
static int64_t parts(const Costs *c, const PlanUnit *unit,
                     Assignment assignment, int loop) {
  return shards(c, assignment, loop) *
         (is_batch(unit, loop) ? c->microbatches : 1);
}

static int64_t part_of(int64_t size, int64_t n) {
  return (size + n - 1) / n;
}

/* Returns whether the shards would be as large without some axis. */
static bool is_wasteful(const Costs *c, Assignment assignment, int loop,
                        int64_t size) {
  int64_t n = shards(c, assignment, loop);
  for (int a = 0; a < c->mesh->n_axes; a++)
    if (assignment.loop[a] == loop && c->mesh->axes[a].size > 1 &&
        part_of(size, n / c->mesh->axes[a].size) == part_of(size, n))
      return true;
  return false;
}

bool costs_allow(const Costs *c, const PlanUnit *unit, Assignment assignment) {
  for (int d = 0; d < unit->n_dims; d++) {
    const LoopDim *dim = &unit->dims[d];
    int64_t n = shards(c, assignment, d);
    /* Micro-batches have one size. */
    if (is_batch(unit, d) && c->microbatches > 1 &&
        dim->size % (n * c->microbatches) != 0)
      return false;
    if (n > 1 && (dim->is_whole || (dim->even > 0 && dim->even % n != 0) ||
                  is_wasteful(c, assignment, d, dim->size)))
      return false;
  }
  return true;
}

bool costs_shard_batch(const Costs *c, const PlanUnit *unit,
                       Assignment assignment, int axes) {
  return axes == ANY_AXES || !unit->batch ||
         costs_axes_of(c, assignment, unit->batch) == (AxisSet)axes;
}

/* Returns the elements of a shard of a value, with all micro-batches. */
static int64_t shard_elements(const Costs *c, const Type *type,
                              const DimMap *dims, Assignment assignment) {
  int64_t n = 1;
  for (int d = 0; d < type->rank; d++)
    n *= part_of(type->dims[d].size, shards(c, assignment, dims->at[d]));
  return n;
}

static bool has_batch(const PlanUnit *unit, const DimMap *dims, int rank) {
  for (int d = 0; d < rank; d++)
    if (is_batch(unit, dims->at[d])) return true;
  return false;
}

/* ---- kernels ---- */

static const Type *part_type(const Costs *c, Arena *arena, const PlanUnit *unit,
                             const UnitKernel *k, const DimMap *dims,
                             const Type *type, Assignment assignment) {
  Type *part = type_create(arena, type->dtype, type->rank);
  for (int d = 0; d < type->rank; d++) {
    int loop = dims->at[d] < 0 ? NO_LOOP : k->loop[dims->at[d]];
    int64_t n = parts(c, unit, assignment, loop);
    part->dims[d] = (Dim){.name = type->dims[d].name,
                          .size = part_of(type->dims[d].size, n)};
  }
  return part;
}

static Ps price_loop(const Costs *c, const PlanUnit *unit, const UnitKernel *k,
                     Assignment assignment) {
  int64_t n[MOST_LOOP_DIMS];
  for (int d = 0; d < k->dims->n; d++)
    n[d] = parts(c, unit, assignment, k->loop[d]);
  arena_clear(c->scratch);
  return loop_time(c->scratch, c->r->model,
                   c->r->units->graph->nodes.data[k->id], k->dims->body, n);
}

static Ps price_launch(const Costs *c, const PlanUnit *unit,
                       const UnitKernel *k, Assignment assignment) {
  if (k->dims->body) return price_loop(c, unit, k, assignment);
  const Graph *graph = c->r->units->graph;
  const Node *node = graph->nodes.data[k->id];
  Arena *scratch = c->scratch;
  arena_clear(scratch);
  const Type **inputs = ARENA_ARRAY(scratch, const Type *, node->n_inputs + 1);
  const Type **results =
      ARENA_ARRAY(scratch, const Type *, node->n_results + 1);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = part_type(c, scratch, unit, k, &k->dims->inputs[i],
                          graph_type(graph, node->inputs[i]), assignment);
  for (int r = 0; r < node->n_results; r++)
    results[r] = part_type(c, scratch, unit, k, &k->dims->results[r],
                           node->types[r], assignment);
  Work work;
  op_work(scratch, &(WorkCall){node, inputs, results, NULL}, &work);
  /* The types inside of a fused kernel are whole. */
  double all = 1;
  for (int d = 0; d < k->dims->n; d++)
    all *= (double)parts(c, unit, assignment, k->loop[d]);
  if (node->body) work.flops /= all;
  LaunchCost cost = cost_work(c->r->model, node, &work);
  return cost.launch + cost.time;
}

/* Returns the time of a kernel in a step. */
static double kernel_time(Costs *c, const PlanUnit *unit, const UnitKernel *k,
                          Assignment assignment) {
  const Graph *graph = c->r->units->graph;
  if (!node_is_launched(graph, k->id)) return 0;
  uint64_t hash = kernel_key(graph, k->id);
  bool is_repeated = false;
  for (int d = 0; d < k->dims->n; d++) {
    hash = hash_mix(hash, (uint64_t)parts(c, unit, assignment, k->loop[d]));
    is_repeated |= is_batch(unit, k->loop[d]);
  }
  Ps *time = map_get(c->launches, key_of(hash));
  if (!time) {
    time = ARENA_NEW(c->arena, Ps);
    *time = price_launch(c, unit, k, assignment);
    map_put(c->launches, key_of(hash), time);
  }
  return (double)*time * (double)(is_repeated ? c->microbatches : 1);
}

/* How an axis lies in a weight gradient: it may shard a dim that the gradient
 * has, or one that it sums, or none of its own. */
typedef enum GradientAxis { AXIS_copies, AXIS_shards, AXIS_sums } GradientAxis;

static GradientAxis gradient_axis(const Costs *c, const UnitKernel *k,
                                  int loop) {
  const KernelDims *dims = k->dims;
  int n_results = c->r->units->graph->nodes.data[k->id]->n_results;
  GradientAxis out = AXIS_copies;
  for (int d = 0; d < dims->n && loop != NO_LOOP; d++) {
    if (k->loop[d] != loop) continue;
    out = AXIS_shards;
    for (int r = 0; r < n_results; r++)
      if (dims->partial[r] >> d & 1) return AXIS_sums;
    for (int s = 0; s < dims->n_sums; s++)
      if (dims->sums[s].over >> d & 1) return AXIS_sums;
  }
  return out;
}

/* Counts through the loop dims of the unit on each axis, and leaves out what
 * does not shard and sum over the same axes. */
static double least_gradient(Costs *c, const PlanUnit *unit,
                             const UnitKernel *k, Assignment like) {
  int n = unit->n_dims, n_axes = c->mesh->n_axes;
  double least = INFINITY;
  int64_t n_ways = 1;
  for (int a = 0; a < n_axes; a++) n_ways *= n;
  for (int64_t way = 0; way < n_ways; way++) {
    Assignment at = like;
    int64_t rest = way;
    bool is_like = true;
    for (int a = 0; a < n_axes; a++, rest /= n) {
      GradientAxis axis = gradient_axis(c, k, like.loop[a]);
      int loop = (int)(rest % n);
      if (axis == AXIS_shards) at.loop[a] = (int8_t)loop;
      if (axis == AXIS_copies) at.loop[a] = NO_LOOP;
      is_like &=
          axis == AXIS_shards ? gradient_axis(c, k, loop) == axis : loop == 0;
    }
    if (!is_like || !costs_allow(c, unit, at)) continue;
    double time = kernel_time(c, unit, k, at);
    if (time < least) least = time;
  }
  return least;
}

/* Returns the least time of a weight gradient under all assignments that shard
 * and sum it over the same axes as this one. */
static double gradient_time(Costs *c, const PlanUnit *unit, const UnitKernel *k,
                            Assignment assignment) {
  uint64_t hash = hash_mix((uint64_t)k->id, 67);
  for (int a = 0; a < c->mesh->n_axes; a++) {
    GradientAxis axis = gradient_axis(c, k, assignment.loop[a]);
    hash = hash_mix(hash, axis == AXIS_sums ? 8 + (uint64_t)assignment.loop[a]
                                            : (uint64_t)axis);
  }
  double own = kernel_time(c, unit, k, assignment);
  double *least = map_get(c->gradients, key_of(hash));
  if (!least) {
    least = ARENA_NEW(c->arena, double);
    *least = least_gradient(c, unit, k, assignment);
    map_put(c->gradients, key_of(hash), least);
  }
  return *least < own ? *least : own;
}

static void add_kernel(Costs *c, const PlanUnit *unit, const UnitKernel *k,
                       Assignment assignment, UnitCost *out) {
  double time = kernel_time(c, unit, k, assignment);
  Phase phase = c->r->units->graph->nodes.data[k->id]->phase;
  if (k->is_light) out->light[phase != PHASE_forward] += time;
  switch (phase) {
  case PHASE_forward: out->forward += time; break;
  case PHASE_weight_gradient:
    out->weights += gradient_time(c, unit, k, assignment);
    break;
  default: out->chain += time; break;
  }
}

/* ---- messages ---- */

typedef struct Message {
  double busiest; /* the link that is busy longest */
  double wait;    /* of a reader, right after another transfer */
  Busy links;
} Message;

/* The ranks of one kind may not wait for all others. */
static SimTransfer transfer_of(Costs *c, Op op, AxisSet axes, Bytes sent) {
  const BoundRequest *r = c->r;
  if (!r->of)
    return price_message(c->arena, r->model, c->ranks, c->mesh, op, axes, sent);
  return price_message_of_group(c->arena, r->kinds[0].model, c->ranks,
                                (int)(r->of - r->kinds), c->mesh, op, axes,
                                sent);
}

static const Message *message(Costs *c, Op op, AxisSet axes, Bytes sent) {
  uint64_t hash =
      hash_mix(hash_mix(hash_mix(61, (uint64_t)op), axes), (uint64_t)sent);
  Message *out = map_get(c->messages, key_of(hash));
  if (out) return out;
  out = ARENA_NEW(c->arena, Message);
  map_put(c->messages, key_of(hash), out);
  if (!c->ranks) return out;
  SimTransfer t = transfer_of(c, op, axes, sent);
  for (int i = 0; i < t.n_loads; i++) {
    double busy = (double)t.loads[i].busy;
    int link = t.loads[i].link;
    if (busy > out->busiest) out->busiest = busy;
    if (c->r->of)
      link =
          cost_link_of_group(c->ranks->cluster, c->r->of->model->group, link);
    if (link >= 0 && link < N_LOAD_LINKS) out->links.of[link] = busy;
  }
  out->wait = (double)(t.latency - t.sooner) + out->busiest;
  return out;
}

static void add_message(Message *to, const Message *more, double times) {
  to->busiest += times * more->busiest;
  to->wait += times * more->wait;
  add_busy(&to->links, &more->links, times);
}

/* Returns the message of a collective that turns so many elements of a rank
 * into others. */
static const Message *collective(Costs *c, Op op, AxisSet axes, int64_t from,
                                 int64_t to, DType dtype) {
  int64_t n =
      collective_sent_elements(op, ranks_along(c->mesh, axes), from, to);
  return message(c, op, axes, n * dtype_size_bytes(dtype));
}

static Message bulk(Costs *c, Op op, AxisSet axes, int64_t from, int64_t to,
                    DType dtype) {
  int64_t n =
      collective_sent_elements(op, ranks_along(c->mesh, axes), from, to);
  double share = (double)(n * dtype_size_bytes(dtype)) / (double)BULK_BYTES;
  Message out = {0};
  add_message(&out, message(c, op, axes, BULK_BYTES), share);
  return out;
}

/* ---- sums of a unit ---- */

static void add_sum(Costs *c, const PlanUnit *unit, const UnitSum *sum,
                    Assignment assignment, UnitCost *out) {
  AxisSet axes = costs_axes_of(c, assignment, sum->over);
  if (!axes) return;
  int64_t runs =
      has_batch(unit, &sum->dims, sum->type->rank) ? c->microbatches : 1;
  int64_t n = shard_elements(c, sum->type, &sum->dims, assignment) / runs;
  const Message *once =
      collective(c, OP_all_reduce, axes, n, n, sum->type->dtype);
  int pass = sum->is_backward;
  if (sum->is_cut) out->cut[pass] += once->busiest * (double)runs;
  /* The sum of a weight gradient counts with its parameter.  Where other units
   * read the value, it may be scattered, which sends half, and each of them
   * counts a share. */
  const Node *node = c->r->units->graph->nodes.data[sum->kernel];
  if (node->phase == PHASE_weight_gradient) return;
  double shared = sum->readers > 1 ? 2.0 * sum->readers : 1;
  add_busy(&out->links[pass], &once->links, (double)runs / shared);
}

/* ---- parameters ---- */

static void add_param(Costs *c, const PlanUnit *unit, const UnitParam *param,
                      Assignment assignment, UnitCost *out) {
  AxisSet every = (AxisSet)((1u << c->mesh->n_axes) - 1);
  LoopSet own = 0, others;
  for (int d = 0; d < param->type->rank; d++)
    if (param->dims.at[d] >= 0) own |= (LoopSet)(1u << param->dims.at[d]);
  others = (LoopSet)(((1u << unit->n_dims) - 1) & ~(unsigned)own);
  AxisSet sharded = costs_axes_of(c, assignment, own);
  AxisSet copied = every & (AxisSet)~sharded;
  AxisSet summed = costs_axes_of(c, assignment, others);
  int64_t n = shard_elements(c, param->type, &param->dims, assignment);
  int64_t copies = ranks_along(c->mesh, copied);
  int64_t piece = part_of(n, copies); /* of a copy, with ZeRO */
  /* Shards of another dim may pad the gradient less.  With ZeRO a copy that is
   * in no sum need only be summed for its own pieces. */
  int64_t own_sum = type_elements(param->type) / ranks_along(c->mesh, sharded);
  int64_t own_piece = part_of(own_sum, copies);
  int64_t added = own_piece * ranks_along(c->mesh, summed);
  if (added > own_sum) added = own_sum;
  double m = (double)c->microbatches, cast = 0;
  const UnitKernel *k =
      param->cast < 0 ? NULL : &unit->kernels.data[param->cast];
  if (k) cast = kernel_time(c, unit, k, assignment);
  out->casts += cast;
  for (int zero = 0; zero < N_ZERO_LEVELS; zero++) {
    StateCost *to = &out->zero[zero];
    double owners =
        (double)ranks_along(c->mesh, sharded) * (double)(zero ? copies : 1);
    if (zero > 0 && copied) {
      Message once = bulk(c, OP_all_gather, copied, piece, n, param->read_as);
      double times = zero == 3 ? param->passes * m : 1;
      to->gathers += once.busiest * times;
      add_busy(&to->gather_links, &once.links, times);
    }
    if (summed) {
      Message once = zero == 0 ? bulk(c, OP_all_reduce, summed, own_sum,
                                      own_sum, param->type->dtype)
                               : bulk(c, OP_reduce_scatter, summed, added,
                                      own_piece, param->type->dtype);
      double times = zero >= 2 ? m : 1;
      to->sums += once.busiest * times;
      add_busy(&to->sum_links, &once.links, times);
    }
    to->update +=
        (double)cost_bytes(c->r->model, (double)param->updated / owners);
    /* With ZeRO a rank casts its piece. */
    if (zero > 0 && k && !k->is_light)
      to->whole_casts += cast * (1 - 1 / (double)copies);
    to->state += (double)param->state / owners;
    /* Levels 1 and 2 gather once, for all micro-batches and both passes. */
    bool stays = param->passes > 1 || c->microbatches > 1;
    if (zero > 0 && zero < 3 && copied && stays)
      to->state += (double)(n * dtype_size_bytes(param->read_as));
    to->gradients += (double)own_sum * 4 / (double)(zero >= 2 ? copies : 1);
  }
}

/* ---- units ---- */

/* A value of the forward pass may lie in shards over all ranks, wherever its
 * unit has it; a cast of a parameter may be made for each pass. */
static double saved_bytes(const Costs *c, const PlanUnit *unit,
                          const UnitSaved *saved) {
  double bytes = (double)(type_elements(saved->type) *
                          dtype_size_bytes(saved->type->dtype));
  if (saved->of_params) return 0;
  if (has_batch(unit, &saved->dims, saved->type->rank))
    bytes /= (double)c->microbatches;
  for (int a = 0; a < c->mesh->n_axes; a++)
    bytes /= (double)c->mesh->axes[a].size;
  return bytes;
}

static void add_saved(const Costs *c, const PlanUnit *unit,
                      const UnitSaved *saved, UnitCost *out) {
  bool is_left = unit->block < 0 || saved->leaves_block;
  double bytes = saved_bytes(c, unit, saved);
  out->runs_again |= !is_left;
  out->saved += bytes;
  if (is_left) out->left += bytes;
}

double cost_of_saved(const Costs *c, int at, int saved) {
  const PlanUnit *unit = c->r->units->units.data[at];
  return saved_bytes(c, unit, &unit->saved.data[saved]);
}

double cost_of_kernel(Costs *c, int at, int kernel, Assignment assignment) {
  const PlanUnit *unit = c->r->units->units.data[at];
  return kernel_time(c, unit, &unit->kernels.data[kernel], assignment);
}

UnitCost cost_of_unit(Costs *c, int at, Assignment assignment) {
  const Units *units = c->r->units;
  const PlanUnit *unit = units->units.data[at];
  UnitCost out = {0};
  for (int i = 0; i < unit->kernels.n; i++)
    add_kernel(c, unit, &unit->kernels.data[i], assignment, &out);
  for (int i = 0; i < unit->sums.n; i++)
    add_sum(c, unit, &unit->sums.data[i], assignment, &out);
  for (int i = 0; i < unit->saved.n; i++)
    add_saved(c, unit, &unit->saved.data[i], &out);
  for (int i = 0; i < units->params.n; i++)
    if (units->params.data[i].unit == at)
      add_param(c, unit, &units->params.data[i], assignment, &out);
  return out;
}

/* ---- edges ---- */

/* Returns the operator that makes a step; OP_input: it sends nothing. */
static Op op_of_step(ReshardKind kind) {
  switch (kind) {
  case RESHARD_all_gather: return OP_all_gather;
  case RESHARD_reduce_scatter: return OP_reduce_scatter;
  case RESHARD_all_to_all: return OP_all_to_all;
  case RESHARD_all_reduce: return OP_all_reduce;
  case RESHARD_permute: return OP_permute;
  default: return OP_input;
  }
}

/* Adds up the steps from one placement to another.  Returns false if there is
 * no way. */
static bool send(Costs *c, const Type *have, const Type *want, int64_t runs,
                 Message *out) {
  ReshardStep steps[MAX_RESHARD_STEPS];
  const char *reason;
  bool only_sums = true;
  for (int d = 0; d < have->rank; d++)
    only_sums &= have->dims[d].split == want->dims[d].split;
  if (only_sums) {
    int64_t n = type_local_elements(have, c->mesh) / runs;
    add_message(out,
                collective(c, OP_all_reduce, have->partial, n, n, have->dtype),
                (double)runs);
    return true;
  }
  int n = reshard_steps(c->chains, have, want, steps, &reason);
  for (int i = 0; i < n; i++) {
    Op op = op_of_step(steps[i].kind);
    if (op != OP_input)
      add_message(out, message(c, op, steps[i].group, steps[i].bytes / runs),
                  (double)runs);
  }
  return n >= 0;
}

static Type *placed(Costs *c, const Type *type, const DimMap *dims,
                    Assignment assignment) {
  Type *out = type_copy_logical(c->scratch, type);
  for (int d = 0; d < type->rank; d++)
    out->dims[d].split = costs_axes(c, assignment, dims->at[d]);
  return out;
}

EdgeCost cost_of_edge(Costs *c, const UnitEdge *edge, Assignment from,
                      Assignment to) {
  const Units *units = c->r->units;
  const PlanUnit *maker = units->units.data[edge->from];
  arena_clear(c->scratch);
  Type *have = placed(c, edge->type, &edge->from_dims, from);
  Type *want = placed(c, edge->type, &edge->to_dims, to);
  Message sent = {0};
  bool is_alike = true;
  have->partial = costs_axes_of(c, from, edge->partial);
  for (int d = 0; d < have->rank; d++)
    is_alike &= have->dims[d].split == want->dims[d].split;
  if (is_alike && !have->partial) return (EdgeCost){.is_possible = true};
  int64_t runs = has_batch(maker, &edge->from_dims, edge->type->rank)
                     ? c->microbatches
                     : 1;
  if (!send(c, have, want, runs, &sent)) return (EdgeCost){0};
  EdgeCost out = {.is_possible = true, .wait = sent.wait};
  const Node *node = units->graph->nodes.data[edge->value.node];
  if (node->phase == PHASE_weight_gradient || edge->only_weights) return out;
  /* Readers may share what arrives, and the maker its sum with them; partial
   * values that one unit adds are summed once. */
  bool is_summed = have->partial && edge->from_sums;
  double readers = edge->readers + is_summed;
  double joined = edge->joined * (is_summed ? 2 : 1);
  add_busy(&out.links, &sent.links, 1 / (readers * joined));
  return out;
}
