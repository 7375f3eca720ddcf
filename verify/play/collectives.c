/*
 * collectives.c -- what a collective does to the shards of all ranks, each as a
 * function over placements.
 *
 * A few functions serve all operators: reductions over the members of a group,
 * and a move of logical elements to where the placement of the result wants
 * them.  Each computes what one rank gets; ranks whose groups hold the same and
 * that want the same elements of it share the result.
 */
#include "interp/internal.h"
#include "verify/play/internal.h"

#include <string.h>

/* The operand of a collective, and how it is exchanged. */
typedef struct Exchange {
  Player *player;
  const Node *node;
  const Type *from, *to; /* with placements */
  const Type *local;     /* of the operand */
  AxisSet axes;
  ReduceKind kind;
  ShardView in;
} Exchange;

/* Computes what a rank gets; `out` has what it held before, if the operator
 * joins micro-batches. */
typedef void PlayCollective(const Exchange *exchange, int rank, Tensor *out);

static const MeshPlace *place_of(const Exchange *exchange, int rank) {
  return play_place(exchange->player, rank);
}

static Tensor operand_of(const Exchange *exchange, int rank) {
  return play_tensor(exchange->player, exchange->in, rank, exchange->local);
}

/* ---- reductions ---- */

static void copy_tensor(const Exchange *exchange, Tensor *to, Tensor from) {
  numbers_copy(exchange->player->options.numbers, to->type->dtype,
               tensor_array(to), tensor_array(&from), type_elements(to->type));
}

static void add_tensor(const Exchange *exchange, Tensor *to, Tensor from) {
  numbers_reduce(exchange->player->options.numbers, to->type->dtype,
                 exchange->kind, tensor_array(to), tensor_array(&from),
                 type_elements(to->type));
}

/* The reduction of what the group holds. */
static void reduce_group(const Exchange *exchange, int rank, Tensor *out) {
  const PlayGroups *groups = play_groups(exchange->player, exchange->axes);
  const int *members = &groups->members[groups->of_rank[rank] * groups->size];
  copy_tensor(exchange, out, operand_of(exchange, members[0]));
  for (int i = 1; i < groups->size; i++)
    add_tensor(exchange, out, operand_of(exchange, members[i]));
}

/* The reduction over micro-batches so far, and this one. */
static void accumulate(const Exchange *exchange, int rank, Tensor *out) {
  bool is_first = exchange->player->is_first;
  (is_first ? copy_tensor : add_tensor)(exchange, out,
                                        operand_of(exchange, rank));
}

/* ---- moves ---- */

static int64_t index_along(const Type *type, int64_t index, Name dim) {
  return index / type_stride(type, dim) % type_size(type, dim);
}

/* The rank number of coordinates. */
static int rank_at(const MeshPlace *place) {
  int rank = 0;
  for (int a = 0; a < place->mesh->n_axes; a++)
    if (!place->mesh->axes[a].is_sequential)
      rank = rank * place->mesh->axes[a].size + place->at[a];
  return rank;
}

/* The member of a rank's group that has a logical element if the group has it:
 * where the axes of the exchange shard the operand, the element says which
 * member; along other axes of it the rank itself. */
static int owner_of(const Exchange *exchange, int rank, int64_t logical) {
  const Type *from = exchange->from;
  MeshPlace place = *place_of(exchange, rank);
  if (exchange->player->program->n_ranks == 1) return rank;
  for (int d = 0; d < from->rank; d++) {
    AxisList split = from->dims[d].split;
    if (!(axis_list_set(split) & exchange->axes)) continue;
    int64_t run = index_along(exchange->to, logical, from->dims[d].name) /
                  type_local_size(from, place.mesh, d);
    for (int i = axis_list_length(split) - 1; i >= 0; i--) {
      int axis = axis_list_at(split, i), size = place.mesh->axes[axis].size;
      if (exchange->axes >> axis & 1) place.at[axis] = (int)(run % size);
      run /= size;
    }
  }
  return rank_at(&place);
}

/* The element of a group's shards that is the logical one; NULL: nobody has it
 * in this micro-batch. */
static const void *find_element(const Exchange *exchange, int rank,
                                int64_t logical) {
  int owner = owner_of(exchange, rank, logical);
  int64_t at = logical_to_local(place_of(exchange, owner), exchange->from,
                                exchange->to, logical);
  if (at < 0) return NULL;
  Tensor operand = operand_of(exchange, owner);
  return numbers_at(exchange->player->options.numbers, exchange->from->dtype,
                    tensor_array(&operand), at);
}

/* The element along the dim that moves to where `logical` lies. */
static int64_t shifted_element(const Exchange *exchange, int64_t logical) {
  Name dim = node_name(exchange->node, ATTR_dim);
  int64_t shift = node_int(exchange->node, ATTR_shift, 0);
  int64_t n = type_size(exchange->to, dim);
  int64_t at = index_along(exchange->to, logical, dim);
  return logical +
         (((at - shift) % n + n) % n - at) * type_stride(exchange->to, dim);
}

/* A rank gets the logical elements that its shard of the result has.  One that
 * nobody holds stays as it is, where micro-batches are joined, or is poison. */
static void move_shard(const Exchange *exchange, int rank, Tensor *out) {
  const Numbers *numbers = exchange->player->options.numbers;
  DType dtype = out->type->dtype;
  bool is_permuted = exchange->node->op == OP_permute;
  bool joins = op_has(exchange->node->op, OP_FLAG_joins_microbatches);
  int64_t n = type_elements(out->type);
  for (int64_t i = 0; i < n; i++) {
    int64_t logical =
        local_to_logical(place_of(exchange, rank), exchange->to, i);
    if (logical < 0) continue;
    if (is_permuted) logical = shifted_element(exchange, logical);
    const void *from = find_element(exchange, rank, logical);
    void *to = numbers_at(numbers, dtype, tensor_array(out), i);
    if (from)
      numbers_copy(numbers, dtype, to, from, 1);
    else if (!joins)
      play_poison(exchange->player, dtype, to, 1);
  }
}

static PlayCollective *const collectives[N_OPS] = {
    [OP_all_reduce] = reduce_group,
    [OP_accumulate] = accumulate,
    [OP_collect_microbatches] = move_shard,
    [OP_all_gather] = move_shard,
    [OP_reduce_scatter] = move_shard, /* of what the groups' reductions are */
    [OP_all_to_all] = move_shard,
    [OP_permute] = move_shard,
    [OP_shard] = move_shard,
};

bool play_is_collective(Op op) {
  return collectives[op] != NULL || op_is(op, OPCLASS_swap);
}

/* ---- classes of results ---- */

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

static AxisSet axes_of_splits(const Type *type) {
  AxisSet set = 0;
  for (int d = 0; d < type->rank; d++)
    set |= axis_list_set(type->dims[d].split);
  return set;
}

/* The axes that are not exchanged shard operand and result alike, in equal
 * shards: so what a rank gets of its group does not depend on its coordinates
 * there. */
static bool keeps_other_axes(const Exchange *exchange, AxisSet exchanged,
                             const Mesh *mesh) {
  const Type *from = exchange->from, *to = exchange->to;
  if (type_is_uneven(from, mesh) || type_is_uneven(to, mesh)) return false;
  for (int d = 0; d < from->rank; d++) {
    int in_to = type_find(to, from->dims[d].name);
    ASSERT(in_to >= 0);
    if (axis_list_without(from->dims[d].split, exchanged) !=
        axis_list_without(to->dims[in_to].split, exchanged))
      return false;
  }
  return true;
}

/* The axes on which the coordinates of a rank say which elements it gets: those
 * of the exchange, but for those over which the group is looked through, and
 * all others that shard operand and result, unless they do so alike. */
static AxisSet own_axes(const Exchange *exchange) {
  AxisSet from = axes_of_splits(exchange->from);
  AxisSet to = axes_of_splits(exchange->to), axes = exchange->axes;
  const Mesh *mesh = place_of(exchange, 0)->mesh;
  if (collectives[exchange->node->op] != move_shard)
    return type_is_uneven(exchange->to, mesh) ? to : 0;
  AxisSet exchanged = axes_of(mesh, exchange->node);
  bool keeps = keeps_other_axes(exchange, exchanged, mesh);
  AxisSet others = keeps ? 0 : (AxisSet)((from | to) & ~exchanged);
  if (exchange->node->op == OP_reduce_scatter)
    return (AxisSet)(others | ((from | to) & exchanged));
  return (AxisSet)(others | (to & axes) | (axes & ~from));
}

/* ---- an exchange ---- */

static ReduceKind reduction_of(const Node *node) {
  int kind = REDUCE_sum;
  while (node_has(node, ATTR_reduce) &&
         strcmp(reduce_name((ReduceKind)kind), node_name(node, ATTR_reduce)))
    kind++;
  return (ReduceKind)kind;
}

static Exchange begin_exchange(Player *player, const Frame *frame, int id,
                               int part) {
  const Node *node = frame->graph->nodes.data[id];
  return (Exchange){.player = player,
                    .node = node,
                    .from = graph_type(frame->graph, node->inputs[part]),
                    .to = node->types[part],
                    .local = graph_type(frame->local, node->inputs[part]),
                    .axes = axes_of(&player->stage->graph->mesh, node),
                    .kind = reduction_of(node)};
}

/* The operand becomes the reductions of the groups. */
static void reduce_operand(Exchange *exchange) {
  Player *player = exchange->player;
  const RankClasses *classes =
      classes_of_members(player, exchange->axes, exchange->in.shards->classes);
  Shards *sums = shards_create(player, classes, exchange->from->dtype,
                               type_elements(exchange->local));
  for (int c = 0; c < classes->n; c++) {
    Tensor sum = play_tensor(player, (ShardView){sums, 0}, classes->first[c],
                             exchange->local);
    reduce_group(exchange, classes->first[c], &sum);
  }
  play_release(player, exchange->in);
  exchange->in = (ShardView){sums, 0};
  exchange->axes = 0; /* each rank has all that it needs */
}

/* The results of all ranks; `before` is what they held, without shards where
 * that does not matter. */
static Shards *exchanged(const Exchange *exchange, const Type *local,
                         ShardView before) {
  Player *player = exchange->player;
  const RankClasses *classes =
      classes_of_members(player, exchange->axes, exchange->in.shards->classes);
  AxisSet own = own_axes(exchange);
  classes = classes_join(player, classes, classes_of_axes(player, own));
  if (before.shards)
    classes = classes_join(player, classes, before.shards->classes);
  Shards *made =
      shards_create(player, classes, local->dtype, type_elements(local));
  for (int c = 0; c < classes->n; c++) {
    int rank = classes->first[c];
    Tensor out = play_tensor(player, (ShardView){made, 0}, rank, local);
    if (before.shards)
      copy_tensor(exchange, &out, play_tensor(player, before, rank, local));
    collectives[exchange->node->op](exchange, rank, &out);
    play_poison_padding(player, place_of(exchange, rank), exchange->to, &out);
  }
  return made;
}

void play_exchange(Player *player, const Frame *frame, int id,
                   bool reads_results) {
  const Node *node = frame->graph->nodes.data[id];
  bool joins = op_has(node->op, OP_FLAG_joins_microbatches);
  if (op_is(node->op, OPCLASS_swap)) {
    play_copy(player, frame, node->inputs[0], (Value){id, 0});
    return;
  }
  for (int part = 0; part < node->n_inputs; part++) {
    Value result = {id, part};
    Exchange exchange = begin_exchange(player, frame, id, part);
    ShardView before = {0};
    exchange.in =
        play_read(player, frame, reads_results ? result : node->inputs[part]);
    if (joins) before = play_read(player, frame, result);
    if (node->op == OP_reduce_scatter) reduce_operand(&exchange);
    Shards *made =
        exchanged(&exchange, graph_type(frame->local, result), before);
    play_put(player, frame, result, made);
    shards_release(player, made);
    play_release(player, exchange.in);
    if (joins) play_release(player, before);
  }
}

/* ---- messages ---- */

static int64_t message_bytes(const Frame *frame, int id) {
  const Node *node = frame->graph->nodes.data[id];
  int64_t bytes = 0;
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *from = graph_type(frame->local, node->inputs[i]);
    int64_t n = type_elements(from);
    int64_t m = type_elements(graph_type(frame->local, (Value){id, i}));
    bytes += (n > m ? n : m) * dtype_size_bytes(from->dtype);
  }
  return bytes;
}

static const Mesh *exchange_mesh(const Player *player) {
  return &player->stage->graph->mesh;
}

void play_check_messages(Player *player, const Frame *frame, int id) {
  const Node *node = frame->graph->nodes.data[id];
  Exchange exchange = begin_exchange(player, frame, id, 0);
  int members = play_groups(player, exchange.axes)->size;
  bool is_equal = true;
  player->n_collectives++;
  for (int i = 0; i < node->n_inputs; i++)
    is_equal &= graph_type(frame->graph, node->inputs[i])->dtype ==
                node->types[0]->dtype;
  if (!is_equal && !player->message_fault)
    player->message_fault =
        arena_printf(player->arena, "%s of '%s' has parts of several dtypes",
                     op_info(node->op)->name, node->path);
  bool is_alone = player->program->n_ranks < mesh_ranks(exchange_mesh(player));
  if ((members == 1 && !is_alone) || !player->options.messages) return;
  if (is_alone && !player->lists_messages) return;
  PlayMessage message = {.node = node,
                         .mesh = &player->stage->graph->mesh,
                         .bytes = message_bytes(frame, id)};
  vec_push(player->options.messages->arena, &player->options.messages->list,
           message);
}
