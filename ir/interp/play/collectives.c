/*
 * collectives.c -- what a collective does to the shards of all ranks, each as a
 * function over placements.
 *
 * A few functions serve all operators: reductions over the members of a group,
 * and a move of logical elements to where the placement of the result wants
 * them.
 */
#include "ir/interp/internal.h"
#include "ir/interp/play/internal.h"

#include <string.h>

static const MeshPlace *place_of(const Exchange *exchange, int rank) {
  return play_place(exchange->player, rank);
}

static const PlayGroups *groups_of(const Exchange *exchange) {
  return play_groups(exchange->player, exchange->axes);
}

static void copy_tensor(const Exchange *exchange, Tensor *to,
                        const Tensor *from) {
  numbers_copy(exchange->player->options.numbers, to->type->dtype,
               tensor_array(to), tensor_array(from), type_elements(to->type));
}

static void add_tensor(const Exchange *exchange, Tensor *to,
                       const Tensor *from) {
  numbers_reduce(exchange->player->options.numbers, to->type->dtype,
                 exchange->kind, tensor_array(to), tensor_array(from),
                 type_elements(to->type));
}

/* Every member gets the reduction of what the group holds. */
static void reduce_group(Exchange *exchange) {
  const PlayGroups *groups = groups_of(exchange);
  for (int g = 0; g < groups->n; g++) {
    const int *members = &groups->members[g * groups->size];
    Tensor *sum = &exchange->out[members[0]];
    copy_tensor(exchange, sum, &exchange->in[members[0]]);
    for (int i = 1; i < groups->size; i++)
      add_tensor(exchange, sum, &exchange->in[members[i]]);
    for (int i = 1; i < groups->size; i++)
      copy_tensor(exchange, &exchange->out[members[i]], sum);
  }
}

/* The reduction over micro-batches so far, and this one. */
static void accumulate(Exchange *exchange) {
  bool is_first = exchange->player->microbatch == 0;
  for (int rank = 0; rank < exchange->player->options.ranks; rank++)
    (is_first ? copy_tensor : add_tensor)(exchange, &exchange->out[rank],
                                          &exchange->in[rank]);
}

/* The element of a member's shard that is the logical one; NULL: it has none.
 */
static const void *find_element(const Exchange *exchange, int rank,
                                int64_t logical) {
  int64_t at = logical_to_local(place_of(exchange, rank), exchange->from,
                                exchange->to, logical);
  if (at < 0) return NULL;
  return numbers_at(exchange->player->options.numbers, exchange->from->dtype,
                    tensor_array(&exchange->in[rank]), at);
}

static const void *find_in_group(const Exchange *exchange, const int *members,
                                 int n, int rank, int64_t logical) {
  const void *from = find_element(exchange, rank, logical);
  for (int i = 0; i < n && !from; i++)
    from = find_element(exchange, members[i], logical);
  return from;
}

static void move_to_rank(Exchange *exchange, const int *members, int n,
                         int rank) {
  const Numbers *numbers = exchange->player->options.numbers;
  Tensor *out = &exchange->out[rank];
  int64_t n_elements = type_elements(out->type);
  for (int64_t i = 0; i < n_elements; i++) {
    int64_t logical =
        local_to_logical(place_of(exchange, rank), exchange->to, i);
    if (logical < 0) continue;
    const void *from = find_in_group(exchange, members, n, rank, logical);
    if (from)
      numbers_copy(numbers, out->type->dtype,
                   numbers_at(numbers, out->type->dtype, tensor_array(out), i),
                   from, 1);
  }
}

/* All members get the same, where the axes of the exchange neither shard the
 * result nor are over micro-batches. */
static bool is_equal_in_group(const Exchange *exchange) {
  const Mesh *mesh = play_place(exchange->player, 0)->mesh;
  return !type_uses_axes(exchange->to, exchange->axes) &&
         !type_is_uneven(exchange->to, mesh) &&
         !(exchange->axes & mesh_sequential(mesh));
}

/* Each rank gets the logical elements that its shard of the result has, from
 * itself or else from the first member that holds them.  Elements that nobody
 * holds in this micro-batch stay as they are. */
static void move_shards(Exchange *exchange) {
  const PlayGroups *groups = groups_of(exchange);
  bool is_equal = is_equal_in_group(exchange);
  for (int g = 0; g < groups->n; g++) {
    const int *members = &groups->members[g * groups->size];
    int n = is_equal ? 1 : groups->size;
    for (int i = 0; i < n; i++)
      move_to_rank(exchange, members, groups->size, members[i]);
    for (int i = n; i < groups->size; i++)
      copy_tensor(exchange, &exchange->out[members[i]],
                  &exchange->out[members[0]]);
  }
}

/* The reduction, over the members, of one logical element. */
static void reduce_element(const Exchange *exchange, const int *members, int n,
                           int64_t logical, void *to) {
  const Numbers *numbers = exchange->player->options.numbers;
  DType dtype = exchange->to->dtype;
  for (int i = 0; i < n; i++) {
    const void *from = find_element(exchange, members[i], logical);
    ASSERT(from);
    if (i == 0)
      numbers_copy(numbers, dtype, to, from, 1);
    else
      numbers_reduce(numbers, dtype, exchange->kind, to, from, 1);
  }
}

/* Each rank gets the reductions of the logical elements that its shard of the
 * result has. */
static void scatter_reductions(Exchange *exchange) {
  const Numbers *numbers = exchange->player->options.numbers;
  const PlayGroups *groups = groups_of(exchange);
  for (int rank = 0; rank < exchange->player->options.ranks; rank++) {
    Tensor *out = &exchange->out[rank];
    const int *members = &groups->members[groups->of_rank[rank] * groups->size];
    int64_t n = type_elements(out->type);
    for (int64_t i = 0; i < n; i++) {
      int64_t logical =
          local_to_logical(place_of(exchange, rank), exchange->to, i);
      if (logical >= 0)
        reduce_element(
            exchange, members, groups->size, logical,
            numbers_at(numbers, out->type->dtype, tensor_array(out), i));
    }
  }
}

/* The element along the dim that moves to where `logical` lies. */
static int64_t shifted_element(const Exchange *exchange, int64_t logical) {
  Name dim = node_name(exchange->node, ATTR_dim);
  int64_t shift = node_int(exchange->node, ATTR_shift, 0);
  int64_t n = type_size(exchange->to, dim);
  int64_t stride = type_stride(exchange->to, dim);
  int64_t at = logical / stride % n;
  return logical + (((at - shift) % n + n) % n - at) * stride;
}

/* Each rank gets the shard of the member `shift` places before it. */
static void permute_shards(Exchange *exchange) {
  const Numbers *numbers = exchange->player->options.numbers;
  const PlayGroups *groups = groups_of(exchange);
  int ranks = exchange->player->options.ranks;
  DType dtype = exchange->to->dtype;
  for (int rank = 0; rank < ranks; rank++) {
    Tensor *out = &exchange->out[rank];
    const int *members = &groups->members[groups->of_rank[rank] * groups->size];
    int64_t n = type_elements(out->type);
    for (int64_t i = 0; i < n; i++) {
      int64_t logical =
          local_to_logical(place_of(exchange, rank), exchange->to, i);
      const void *from = NULL;
      if (logical < 0) continue;
      logical = shifted_element(exchange, logical);
      for (int m = 0; m < groups->size && !from; m++)
        from = find_element(exchange, members[m], logical);
      if (from)
        numbers_copy(numbers, dtype,
                     numbers_at(numbers, dtype, tensor_array(out), i), from, 1);
    }
  }
}

static PlayCollective *const collectives[N_OPS] = {
    [OP_all_reduce] = reduce_group,
    [OP_accumulate] = accumulate,
    [OP_collect_microbatches] = move_shards,
    [OP_all_gather] = move_shards,
    [OP_reduce_scatter] = scatter_reductions,
    [OP_all_to_all] = move_shards,
    [OP_permute] = permute_shards,
    [OP_shard] = move_shards,
};

PlayCollective *play_collective(Op op) {
  return collectives[op];
}

static AxisSet axes_of(const Mesh *mesh, const Node *node) {
  int n = 0;
  AxisSet set = 0;
  const Name *names = node_names(node, ATTR_axes, &n);
  for (int i = 0; i < n; i++) {
    int axis = mesh_find(mesh, names[i]);
    ASSERT(axis >= 0);
    set |= (AxisSet)(1u << axis);
  }
  return set;
}

static ReduceKind reduction_of(const Node *node) {
  int kind = REDUCE_sum;
  while (node_has(node, ATTR_reduce) &&
         strcmp(reduce_name((ReduceKind)kind), node_name(node, ATTR_reduce)))
    kind++;
  return (ReduceKind)kind;
}

Exchange play_exchange(Player *player, const Frame *frame, int id, int part) {
  const Node *node = frame->graph->nodes.data[id];
  return (Exchange){.player = player,
                    .node = node,
                    .from = graph_type(frame->graph, node->inputs[part]),
                    .to = node->types[part],
                    .axes = axes_of(&player->program->graph->mesh, node),
                    .kind = reduction_of(node)};
}

/* ---- groups ---- */

static int64_t group_number(const MeshPlace *place, AxisSet axes) {
  int64_t number = 0;
  for (int a = 0; a < place->mesh->n_axes; a++)
    if (!(axes >> a & 1) && !place->mesh->axes[a].is_sequential)
      number = number * place->mesh->axes[a].size + place->at[a];
  return number;
}

static PlayGroups *make_groups(const Player *player, AxisSet axes) {
  Arena *arena = player->arena;
  const PlayProgram *program = player->program;
  int ranks = player->options.ranks;
  PlayGroups *groups = ARENA_NEW(arena, PlayGroups);
  int *n_members = ARENA_ARRAY(arena, int, ranks);
  groups->of_rank = ARENA_ARRAY(arena, int, ranks);
  groups->members = ARENA_ARRAY(arena, int, ranks);
  for (int rank = 0; rank < ranks; rank++) {
    int g = program->n_ranks == 1
                ? rank
                : (int)group_number(&program->places[rank], axes);
    groups->of_rank[rank] = g;
    n_members[g]++;
    if (g >= groups->n) groups->n = g + 1;
  }
  groups->size = ranks / groups->n;
  for (int g = 0; g < groups->n; g++) {
    ASSERT(n_members[g] == groups->size);
    n_members[g] = 0;
  }
  for (int rank = 0; rank < ranks; rank++) {
    int g = groups->of_rank[rank];
    groups->members[g * groups->size + n_members[g]++] = rank;
  }
  return groups;
}

const PlayGroups *play_groups(const Player *player, AxisSet axes) {
  PlayGroups **groups = &player->groups[axes];
  if (!*groups) *groups = make_groups(player, axes);
  return *groups;
}

/* ---- messages ---- */

static int64_t message_bytes(const Frame *frame, const Node *node,
                             const MeshPlace *place) {
  int64_t bytes = 0;
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *type = graph_type(frame->graph, node->inputs[i]);
    bytes +=
        type_local_elements(type, place->mesh) * dtype_size_bytes(type->dtype);
  }
  return bytes;
}

void play_check_messages(Player *player, const Frame *frame, int id) {
  const Node *node = frame->graph->nodes.data[id];
  Exchange exchange = play_exchange(player, frame, id, 0);
  const Mesh *mesh = &player->program->graph->mesh;
  int size = 1, ranks = player->program->n_ranks;
  player->n_collectives++;
  for (int a = 0; a < mesh->n_axes; a++)
    if (exchange.axes >> a & 1) size *= mesh->axes[a].size;
  int64_t bytes = message_bytes(frame, node, play_place(player, 0));
  int members = play_groups(player, exchange.axes)->size;
  for (int rank = 0; rank < ranks && !player->message_fault; rank++) {
    bool is_equal = true;
    for (int i = 0; i < node->n_inputs; i++)
      is_equal = is_equal && graph_type(frame->graph, node->inputs[i])->dtype ==
                                 node->types[0]->dtype;
    is_equal = is_equal &&
               message_bytes(frame, node, play_place(player, rank)) == bytes;
    if (members != size || !is_equal)
      player->message_fault = arena_printf(
          player->arena, "%s of '%s': rank %d is in a group of %d, not %d%s",
          op_info(node->op)->name, node->path, rank, members, size,
          is_equal ? "" : ", or sends other bytes");
  }
}
