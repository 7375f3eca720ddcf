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

static bool is_member(const Exchange *exchange, int a, int b) {
  return mesh_same_group(place_of(exchange, a), place_of(exchange, b),
                         exchange->axes);
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
  for (int rank = 0; rank < exchange->player->options.ranks; rank++) {
    int first = 0;
    while (!is_member(exchange, first, rank)) first++;
    if (first < rank) {
      copy_tensor(exchange, &exchange->out[rank], &exchange->out[first]);
      continue;
    }
    copy_tensor(exchange, &exchange->out[rank], &exchange->in[rank]);
    for (int other = rank + 1; other < exchange->player->options.ranks; other++)
      if (is_member(exchange, other, rank))
        add_tensor(exchange, &exchange->out[rank], &exchange->in[other]);
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

/* Each rank gets the logical elements that its shard of the result has, from
 * itself or else from the first member that holds them.  Elements that nobody
 * holds in this micro-batch stay as they are. */
static void move_shards(Exchange *exchange) {
  const Numbers *numbers = exchange->player->options.numbers;
  int ranks = exchange->player->options.ranks;
  for (int rank = 0; rank < ranks; rank++) {
    Tensor *out = &exchange->out[rank];
    int64_t n = type_elements(out->type);
    for (int64_t i = 0; i < n; i++) {
      int64_t logical =
          local_to_logical(place_of(exchange, rank), exchange->to, i);
      if (logical < 0) continue;
      const void *from = find_element(exchange, rank, logical);
      for (int other = 0; other < ranks && !from; other++)
        if (is_member(exchange, other, rank))
          from = find_element(exchange, other, logical);
      if (from)
        numbers_copy(
            numbers, out->type->dtype,
            numbers_at(numbers, out->type->dtype, tensor_array(out), i), from,
            1);
    }
  }
}

/* Each rank gets the reduction, over the members, of the logical elements that
 * its shard of the result has. */
static void scatter_reductions(Exchange *exchange) {
  const Numbers *numbers = exchange->player->options.numbers;
  DType dtype = exchange->to->dtype;
  int ranks = exchange->player->options.ranks;
  for (int rank = 0; rank < ranks; rank++) {
    Tensor *out = &exchange->out[rank];
    int64_t n = type_elements(out->type);
    for (int64_t i = 0; i < n; i++) {
      int64_t logical =
          local_to_logical(place_of(exchange, rank), exchange->to, i);
      void *to = numbers_at(numbers, dtype, tensor_array(out), i);
      bool is_first = true;
      for (int other = 0; other < ranks && logical >= 0; other++) {
        if (!is_member(exchange, other, rank)) continue;
        const void *from = find_element(exchange, other, logical);
        ASSERT(from);
        if (is_first)
          numbers_copy(numbers, dtype, to, from, 1);
        else
          numbers_reduce(numbers, dtype, exchange->kind, to, from, 1);
        is_first = false;
      }
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
  int ranks = exchange->player->options.ranks;
  DType dtype = exchange->to->dtype;
  for (int rank = 0; rank < ranks; rank++) {
    Tensor *out = &exchange->out[rank];
    int64_t n = type_elements(out->type);
    for (int64_t i = 0; i < n; i++) {
      int64_t logical =
          local_to_logical(place_of(exchange, rank), exchange->to, i);
      const void *from = NULL;
      if (logical < 0) continue;
      logical = shifted_element(exchange, logical);
      for (int other = 0; other < ranks && !from; other++)
        if (is_member(exchange, other, rank))
          from = find_element(exchange, other, logical);
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
  for (int rank = 0; rank < ranks && !player->message_fault; rank++) {
    int members = 0;
    bool is_equal = true;
    for (int other = 0; other < ranks; other++)
      members += is_member(&exchange, rank, other);
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
