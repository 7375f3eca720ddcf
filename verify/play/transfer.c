/*
 * transfer.c -- takes logical tensors into the arenas of all ranks and out of
 * them, and compares.
 */
#include "verify/play/internal.h"

/* Differences are relative to the largest element of a tensor, or to this: 1e-9
 * of it is 1e-12. */
#define LEAST_MAGNITUDE 1e-3

/* ---- into arenas ---- */

/* The part of a logical tensor that a place holds. */
static void take_shard(Player *player, const MeshPlace *place, const Type *type,
                       const Tensor *logical, Tensor *local) {
  const Numbers *numbers = player->options.numbers;
  int64_t n = type_elements(local->type);
  for (int64_t i = 0; i < n; i++) {
    int64_t from = local_to_logical(place, type, i);
    void *to = numbers_at(numbers, type->dtype, tensor_array(local), i);
    if (from >= 0)
      numbers_copy(
          numbers, type->dtype, to,
          numbers_at(numbers, type->dtype, tensor_array(logical), from), 1);
  }
  play_poison_padding(player, place, type, local);
}

/* Over these ranks hold other shards, or other terms of a sum. */
static AxisSet axes_of_type(const Type *type) {
  AxisSet set = type->partial;
  for (int d = 0; d < type->rank; d++)
    set |= axis_list_set(type->dims[d].split);
  return set;
}

/* The first rank that holds a term of a sum gets all of it, the others zeros.
 */
static bool has_sum(const MeshPlace *place, const Type *type) {
  for (int axis = 0; axis < place->mesh->n_axes; axis++)
    if (type->partial >> axis & 1 && place->at[axis] > 0) return false;
  return true;
}

static void write_shards(Player *player, Value value, const Type *type,
                         const Tensor *logical) {
  const Type *local = graph_type(player->frame->local, value);
  const RankClasses *classes = classes_of_axes(player, axes_of_type(type));
  Shards *shards =
      shards_create(player, classes, type->dtype, type_elements(local));
  for (int c = 0; c < classes->n; c++) {
    int rank = classes->first[c];
    Tensor shard = play_tensor(player, (ShardView){shards, 0}, rank, local);
    const MeshPlace *place = play_place(player, rank);
    if (has_sum(place, type))
      take_shard(player, place, type, logical, &shard);
    else
      numbers_fill(player->options.numbers, type->dtype, tensor_array(&shard),
                   type_elements(local), 0);
  }
  /* Padding is where the coordinates of a rank say. */
  if (!type_is_uneven(type, play_place(player, 0)->mesh))
    shards = shards_merged(player, shards);
  play_put(player, player->frame, value, shards);
  shards_release(player, shards);
}

void player_write(Player *player, int input, const Tensor *logical) {
  Value value = player->stage->graph->inputs.data[input].value;
  const Type *type = graph_type(player->stage->graph, value);
  const Mesh *mesh = &player->stage->graph->mesh;
  bool is_timed = type_uses_axes(type, mesh_sequential(mesh));
  int times = is_timed ? mesh_microbatches(mesh) : 1;
  ASSERT(type_elements(type) == type_elements(logical->type));
  for (player->microbatch = 0; player->microbatch < times; player->microbatch++)
    write_shards(player, value, type, logical);
  player->microbatch = 0;
}

/* ---- out of arenas ---- */

/* Puts the elements of a shard into the logical tensor, or adds them. */
static void put_shard(Player *player, const MeshPlace *place, const Type *type,
                      const Tensor *shard, Tensor *logical) {
  const Numbers *numbers = player->options.numbers;
  for (int64_t i = 0; i < type_elements(shard->type); i++) {
    int64_t at = local_to_logical(place, type, i);
    if (at < 0) continue;
    void *to = numbers_at(numbers, type->dtype, tensor_array(logical), at);
    const void *from = numbers_at(numbers, type->dtype, tensor_array(shard), i);
    if (type->partial)
      numbers_reduce(numbers, type->dtype, REDUCE_sum, to, from, 1);
    else
      numbers_copy(numbers, type->dtype, to, from, 1);
  }
}

/* A value that the ranks hold in shards, or terms of. */
static Tensor gather_value(Player *player, Value value, Arena *arena) {
  const Type *type = graph_type(player->stage->graph, value);
  const Type *local = graph_type(player->frame->local, value);
  Tensor logical =
      numbers_create(player->options.numbers, arena, type_logical(arena, type));
  const RankClasses *classes = classes_of_axes(player, axes_of_type(type));
  numbers_fill(player->options.numbers, type->dtype, tensor_array(&logical),
               type_elements(type), 0);
  ShardView view = play_read(player, player->frame, value);
  for (int c = classes->n - 1; c >= 0; c--) {
    int rank = classes->first[c];
    Tensor shard = play_tensor(player, view, rank, local);
    put_shard(player, play_place(player, rank), type, &shard, &logical);
  }
  play_release(player, view);
  return logical;
}

Tensor player_save(Player *player, int input, Arena *arena) {
  return gather_value(player, player->stage->graph->inputs.data[input].value,
                      arena);
}

Tensor player_read(Player *player, int output, int rank, Arena *arena) {
  const Numbers *numbers = player->options.numbers;
  Value value = player->stage->graph->outputs.data[output].value;
  const Type *local = graph_type(player->frame->local, value);
  Tensor copy = numbers_create(numbers, arena, local);
  ShardView view = play_read(player, player->frame, value);
  Tensor shard = play_tensor(player, view, rank, local);
  numbers_copy(numbers, local->dtype, tensor_array(&copy), tensor_array(&shard),
               type_elements(local));
  play_release(player, view);
  return copy;
}

/* The tensor that is compared, and the largest difference so far. */
typedef struct Comparison {
  Player *player;
  const Type *type;
  const Tensor *wanted;
  double largest, limit;
  PlayDifference most;
} Comparison;

/* The place stays at the first difference beyond the limit. */
static void compare_shard(Comparison *comparison, int rank,
                          const Tensor *shard) {
  const Numbers *numbers = comparison->player->options.numbers;
  const Type *type = comparison->type;
  PlayDifference *most = &comparison->most;
  for (int64_t i = 0; i < type_elements(shard->type); i++) {
    int64_t at =
        local_to_logical(play_place(comparison->player, rank), type, i);
    if (at < 0) continue;
    NumbersDifference difference = numbers_compare(
        numbers, type->dtype,
        numbers_at(numbers, type->dtype, tensor_array(comparison->wanted), at),
        numbers_at(numbers, type->dtype, tensor_array(shard), i), 1,
        comparison->largest);
    if (!(difference.error > most->error)) continue;
    if (most->error > comparison->limit)
      most->error = difference.error;
    else
      *most = (PlayDifference){difference.error, rank, at};
  }
}

/* No rank has the sum of its own; rank 0 stands for it. */
static void compare_sum(Comparison *comparison, Value value) {
  Player *player = comparison->player;
  const Type *type = comparison->type;
  Arena *scratch = arena_beside(player->arena);
  Tensor sum = gather_value(player, value, scratch);
  NumbersDifference difference = numbers_compare(
      player->options.numbers, type->dtype, tensor_array(comparison->wanted),
      tensor_array(&sum), type_elements(type), comparison->largest);
  comparison->most = (PlayDifference){difference.error, 0, difference.index};
  arena_destroy(scratch);
}

PlayDifference player_compare(Player *player, int output, const Tensor *wanted,
                              double limit) {
  Value value = player->stage->graph->outputs.data[output].value;
  const Type *type = graph_type(player->stage->graph, value);
  const Type *local = graph_type(player->frame->local, value);
  ASSERT(type_elements(type) == type_elements(wanted->type));
  Comparison comparison = {
      .player = player,
      .type = type,
      .wanted = wanted,
      .largest = numbers_largest(player->options.numbers, type->dtype,
                                 tensor_array(wanted),
                                 type_elements(wanted->type), LEAST_MAGNITUDE),
      .limit = limit,
      .most = {.rank = -1, .element = -1}};
  if (type->partial) {
    compare_sum(&comparison, value);
    return comparison.most;
  }
  ShardView view = play_read(player, player->frame, value);
  const RankClasses *classes =
      classes_join(player, view.shards->classes,
                   classes_of_axes(player, axes_of_type(type)));
  for (int c = 0; c < classes->n; c++) {
    Tensor shard = play_tensor(player, view, classes->first[c], local);
    compare_shard(&comparison, classes->first[c], &shard);
  }
  play_release(player, view);
  return comparison.most;
}
