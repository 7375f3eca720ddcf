/*
 * memory.c -- values of the player in the arenas of the ranks: addresses,
 * elements, stamps that find a value which was overwritten too early, and
 * poison.
 *
 * All ranks run one program at the same addresses, so one array of stamps
 * serves them all.
 */
#include "verify/play/internal.h"

#include <math.h>

int play_value(const Frame *frame, Value value) {
  return frame->layout->first_value[value.node] + value.result;
}

Value play_viewed(const Frame *frame, Value value) {
  while (frame->layout->is_view[value.node]) {
    Value from = frame->graph->nodes.data[value.node]->inputs[0];
    if (frame->layout->offset[play_value(frame, value)] !=
        frame->layout->offset[play_value(frame, from)])
      break;
    value = from;
  }
  return value;
}

/* ---- addresses ---- */

static int64_t local_bytes(const Frame *frame, Value value) {
  const Type *type = graph_type(frame->local, value);
  return type_elements(type) * dtype_size_bytes(type->dtype);
}

static int64_t workspace_address(const Frame *frame) {
  if (!frame->enclosing) return 0;
  return workspace_address(frame->enclosing) +
         frame->enclosing->layout->workspace[frame->scan];
}

/* The value of the enclosing graph that has the bytes of a value of a body, and
 * whether each iteration has a part of it. */
static bool enclosing_value(const Frame *frame, Value value, Value *out,
                            bool *out_is_part) {
  int place = frame->layout->outside[play_value(frame, value)];
  if (place < 0) return false;
  const Node *scan = frame->enclosing->graph->nodes.data[frame->scan];
  bool is_input = place < scan->n_inputs;
  int result = place - scan->n_inputs;
  *out = is_input ? scan->inputs[place] : (Value){frame->scan, result};
  *out_is_part = is_input ? scan_input_role(scan, place) == ROLE_slice
                          : result >= scan_carries(scan);
  return true;
}

/* The value's copy of the micro-batch at hand, and the bytes before it. */
static int copy_number(const Frame *frame, Value value, int64_t *out_bytes) {
  const PlayLayout *layout = frame->layout;
  *out_bytes = 0;
  if (!layout->move_bytes || frame->enclosing) return 0;
  int v = play_value(frame, play_viewed(frame, value));
  ProgramRegister with = layout->moves_with[v];
  if (with == REGISTER_microbatch) return 0;
  *out_bytes = frame->registers[with] * layout->move_bytes[v];
  return frame->registers[with];
}

int play_copy_of(const Frame *frame, Value value) {
  int64_t bytes;
  return copy_number(frame, value, &bytes) * frame->n_values +
         play_value(frame, value);
}

static int64_t copy_offset(const Frame *frame, Value value) {
  int64_t bytes;
  copy_number(frame, value, &bytes);
  return bytes;
}

static bool is_received(const Frame *frame, Value value) {
  int index = (int)node_int(graph_node(frame->graph, value), ATTR_index, 0);
  return frame->graph->inputs.data[index].role == ROLE_receive;
}

/* The inputs of a graph hold all micro-batches, one after the other, but for
 * those that are received. */
static int64_t microbatch_offset(const Player *player, const Frame *frame,
                                 Value value) {
  Value from = play_viewed(frame, value);
  AxisSet time = mesh_sequential(&player->stage->graph->mesh);
  if (graph_node(frame->graph, from)->op != OP_input ||
      !type_uses_axes(graph_type(frame->graph, value), time) ||
      is_received(frame, from))
    return 0;
  return player->microbatch * local_bytes(frame, value);
}

int64_t play_address(const Player *player, const Frame *frame, Value value) {
  int64_t offset = frame->layout->offset[play_value(frame, value)];
  Value outer;
  bool is_part;
  if (!frame->enclosing)
    return offset + microbatch_offset(player, frame, value) +
           copy_offset(frame, value);
  if (!enclosing_value(frame, value, &outer, &is_part))
    return workspace_address(frame) + offset;
  const Node *scan = frame->enclosing->graph->nodes.data[frame->scan];
  int64_t at = scan_is_reversed(scan) ? scan_steps(scan) - 1 - frame->iteration
                                      : frame->iteration;
  return play_address(player, frame->enclosing, outer) +
         (is_part ? at * local_bytes(frame, value) : 0);
}

const MeshPlace *play_place(const Player *player, int rank) {
  int n = player->program->n_ranks;
  return &player->stage->places[player->microbatch * n + rank % n];
}

/* ---- stamps ---- */

/* Returns the stamps of bytes, or NULL where an arena does not have them. */
static int *stamps_at(const Player *player, int64_t begin, int64_t n) {
  bool is_on_host = begin >= HOST_ORIGIN;
  int64_t at = is_on_host ? begin - HOST_ORIGIN : begin;
  const PlayOptions *options = &player->options;
  if (at < 0 ||
      at + n > (is_on_host ? options->host_bytes : options->arena_bytes))
    return NULL;
  return (is_on_host ? player->host_stamps : player->stamps) + at;
}

void play_stamp_bytes(Player *player, int64_t begin, int64_t n, int stamp) {
  int *stamps = stamps_at(player, begin, n);
  if (!stamps) {
    if (!player->memory_fault)
      player->memory_fault = arena_printf(
          player->arena, "bytes %lld to %lld lie outside of the arena",
          (long long)begin, (long long)(begin + n));
    return;
  }
  for (int64_t b = 0; b < n; b++) stamps[b] = stamp;
  bool is_on_host = begin >= HOST_ORIGIN;
  int64_t end = is_on_host ? begin - HOST_ORIGIN + n : begin + n;
  int64_t *touched =
      is_on_host ? &player->touched_host_bytes : &player->touched_bytes;
  if (end > *touched) *touched = end;
}

/* One iteration's part of a stacked output has the stamp of all of it. */
static int new_stamp(Player *player, const Frame *frame, Value value) {
  Value outer;
  bool is_part;
  if (frame->enclosing && enclosing_value(frame, value, &outer, &is_part) &&
      is_part)
    return frame->enclosing->stamp[play_copy_of(frame->enclosing, outer)];
  return ++player->last_stamp;
}

void play_stamp(Player *player, const Frame *frame, Value value) {
  int stamp = new_stamp(player, frame, value),
      copy = play_copy_of(frame, value);
  frame->stamp[copy] = stamp;
  frame->microbatch[copy] = player->microbatch;
  play_stamp_bytes(player, play_address(player, frame, value),
                   local_bytes(frame, value), stamp);
}

const char *play_where(const Player *player) {
  const EntryPoint *entry = &player->program->entry;
  if (entry->edges.n == 0) return "";
  return arena_printf(
      player->arena, ", on rank %d, stage %d, micro-batch %d",
      player->options.first_rank,
      entry->stages.data[player->stage - player->program->stages].number,
      player->microbatch);
}

/* The node made the value for another micro-batch last. */
static bool is_of_other_microbatch(const Player *player, const Frame *frame,
                                   Value value) {
  AxisSet time = mesh_sequential(&player->stage->graph->mesh);
  Value from = play_viewed(frame, value);
  return graph_node(frame->graph, from)->op != OP_input && !frame->enclosing &&
         type_uses_axes(graph_type(frame->graph, value), time) &&
         frame->microbatch[play_copy_of(frame, from)] != player->microbatch;
}

void play_check(Player *player, const Frame *frame, Value value,
                const char *reader) {
  int64_t at = play_address(player, frame, value);
  int64_t n = local_bytes(frame, value);
  int stamp = frame->stamp[play_copy_of(frame, value)];
  if (player->memory_fault) return;
  const int *stamps = stamps_at(player, at, n);
  bool is_inside = stamps && !is_of_other_microbatch(player, frame, value);
  for (int64_t b = 0; is_inside && b < n; b++) is_inside = stamps[b] == stamp;
  if (is_inside) return;
  const Node *node = graph_node(frame->graph, value);
  player->memory_fault = arena_printf(
      player->arena,
      "'%s' (%s) is overwritten before the last reader, which is %s%s",
      node->path && *node->path ? node->path : "a value",
      op_info(node->op)->name, reader, play_where(player));
}

/* ---- elements ---- */

static ShardView read_as(Player *player, const Frame *frame, Value value,
                         const Type *local) {
  return extents_read(player, play_address(player, frame, value), local->dtype,
                      type_elements(local));
}

ShardView play_read(Player *player, const Frame *frame, Value value) {
  return read_as(player, frame, value, graph_type(frame->local, value));
}

void play_release(Player *player, ShardView view) {
  shards_release(player, view.shards);
}

Tensor play_tensor(const Player *player, ShardView view, int rank,
                   const Type *local) {
  int of_class = view.shards->classes->of_rank[rank];
  unsigned char *first = shards_of_class(view.shards, of_class);
  return numbers_tensor(player->options.numbers, local,
                        first + (size_t)view.first * view.shards->size_bytes);
}

void play_put(Player *player, const Frame *frame, Value value, Shards *shards) {
  extents_put(player, play_address(player, frame, value),
              (ShardView){shards, 0}, shards->n);
}

/* Copies as the program of select.c does: as many elements as the second value
 * has. */
void play_copy(Player *player, const Frame *frame, Value from, Value to) {
  const Type *local = graph_type(frame->local, to);
  ShardView view = read_as(player, frame, from, local);
  extents_put(player, play_address(player, frame, to), view,
              type_elements(local));
  play_release(player, view);
}

/* ---- poison ---- */

/* A product of NaN with the zeros of another operand's padding is NaN. */
static void poison_padding_element(Player *player, DType dtype, void *at) {
  const Numbers *numbers = player->options.numbers;
  play_poison(player, dtype, at, 1);
  if (dtype_class(dtype) == CLASS_FLOAT && player->n_random % 2)
    numbers_fill(numbers, dtype, at, 1, NAN);
}

void play_poison_padding(Player *player, const MeshPlace *place,
                         const Type *type, Tensor *local) {
  if (!type_is_uneven(type, place->mesh)) return;
  int64_t n = type_elements(local->type);
  for (int64_t i = 0; i < n; i++)
    if (local_to_logical(place, type, i) < 0)
      poison_padding_element(player, type->dtype,
                             numbers_at(player->options.numbers, type->dtype,
                                        tensor_array(local), i));
}

void play_poison_value(Player *player, const Frame *frame, Value value) {
  const Type *type = graph_type(frame->local, value);
  int64_t n = type_elements(type);
  Shards *shards =
      shards_create(player, classes_of_all(player), type->dtype, n);
  play_poison(player, type->dtype, shards_of_class(shards, 0), n);
  play_put(player, frame, value, shards);
  shards_release(player, shards);
}
