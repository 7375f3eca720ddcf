/*
 * play.c -- runs a program on all ranks, node by node: first what runs once,
 * then the micro-batches one after the other, scans iteration by iteration.
 *
 * A collective takes effect at its start or at its wait, as the seed says; in
 * between its bytes belong to it.  A wait stands before the first node that
 * reads a result.
 */
#include "ir/interp/play/internal.h"

#include <string.h>

/* ---- programs ---- */

/* The nodes of a graph with local types, bodies included. */
static const Graph *local_graph(Arena *arena, const Graph *graph,
                                const Mesh *mesh) {
  Graph *local = arena_copy(arena, graph, sizeof *graph);
  int n = graph->nodes.n;
  local->mesh = *mesh;
  local->nodes.data = ARENA_ARRAY(arena, Node *, n);
  for (int id = 0; id < n; id++) {
    Node *node = arena_copy(arena, graph->nodes.data[id], sizeof *node);
    const Type **types = ARENA_ARRAY(arena, const Type *, node->n_results);
    for (int r = 0; r < node->n_results; r++)
      types[r] = type_local(arena, node->types[r], mesh);
    node->types = types;
    if (node->body) node->body = (Graph *)local_graph(arena, node->body, mesh);
    local->nodes.data[id] = node;
  }
  return local;
}

PlayProgram *play_program(Arena *arena, const Graph *graph,
                          const PlayLayout *layout) {
  PlayProgram *program = ARENA_NEW(arena, PlayProgram);
  const Mesh *mesh = &graph->mesh;
  *program = (PlayProgram){.graph = graph,
                           .local = local_graph(arena, graph, mesh),
                           .layout = layout,
                           .n_ranks = mesh_ranks(mesh),
                           .n_microbatches = mesh_microbatches(mesh)};
  int n = program->n_ranks * program->n_microbatches;
  MeshPlace *places = ARENA_ARRAY(arena, MeshPlace, n);
  for (int i = 0; i < n; i++)
    places[i] = mesh_place(mesh, i % program->n_ranks, i / program->n_ranks);
  program->places = places;
  return program;
}

/* ---- frames ---- */

static int count_values(const Graph *graph) {
  int n = 0;
  for (int id = 0; id < graph->nodes.n; id++)
    n += graph->nodes.data[id]->n_results;
  return n;
}

static Frame make_frame(Arena *arena, const Graph *graph, const Graph *local,
                        const PlayLayout *layout) {
  int n = count_values(graph);
  return (Frame){.graph = graph,
                 .local = local,
                 .layout = layout,
                 .stamp = ARENA_ARRAY(arena, int, n),
                 .waiting = ARENA_ARRAY(arena, int, n)};
}

static int stamp_of(const Frame *frame, Value value) {
  return frame->stamp[play_value(frame, value)];
}

static void set_stamp(const Frame *frame, Value value, int stamp) {
  frame->stamp[play_value(frame, value)] = stamp;
}

/* ---- the player ---- */

Player *player_create(Arena *arena, const PlayOptions *options) {
  Player *player = ARENA_NEW(arena, Player);
  size_t most = numbers_size_bytes(options->numbers, DT_f32);
  int64_t n = options->arena_bytes;
  ASSERT(numbers_size_bytes(options->numbers, DT_i32) <= most);
  *player = (Player){.arena = arena, .options = *options, .cell_bytes = most};
  player->cells = ARENA_ARRAY(arena, unsigned char *, options->ranks);
  for (int rank = 0; rank < options->ranks; rank++)
    player->cells[rank] = arena_array(arena, n, most);
  player->stamps = ARENA_ARRAY(arena, int, n);
  return player;
}

/* Other numbers in every byte that does not persist, none of a known write. */
static void poison_transient(Player *player) {
  int64_t begin = player->program->layout->persistent_bytes;
  int64_t n = player->options.arena_bytes - begin;
  if (n <= 0) return;
  size_t skipped = (size_t)begin * player->cell_bytes;
  size_t bytes = (size_t)n * player->cell_bytes;
  play_poison(player, DT_f32, player->cells[0] + skipped, n);
  for (int rank = 1; rank < player->options.ranks; rank++)
    memcpy(player->cells[rank] + skipped, player->cells[0] + skipped, bytes);
  for (int64_t b = begin; b < begin + n; b++) player->stamps[b] = 0;
}

void player_begin(Player *player, const PlayProgram *program) {
  ASSERT(program->n_ranks == 1 || program->n_ranks == player->options.ranks);
  ASSERT(program->layout->arena_bytes <= player->options.arena_bytes);
  player->program = program;
  player->groups = ARENA_ARRAY(player->arena, PlayGroups *, 1 << MAX_AXES);
  player->microbatch = 0;
  player->pending.n = 0;
  player->frame = make_frame(player->arena, program->graph, program->local,
                             program->layout);
  poison_transient(player);
  const PlayLayout *layout = program->layout;
  for (int i = 0; i < program->graph->inputs.n; i++) {
    Value value = program->graph->inputs.data[i].value;
    int v = play_value(&player->frame, value), stamp = ++player->last_stamp;
    set_stamp(&player->frame, value, stamp);
    play_stamp_bytes(player, layout->offset[v], layout->bytes[v], stamp);
  }
}

static AxisSet sequential_axes(const Player *player) {
  return mesh_sequential(&player->program->graph->mesh);
}

/* The part of a logical tensor that a place holds. */
static Tensor take_shard(Player *player, const MeshPlace *place,
                         const Type *type, const Tensor *logical,
                         Arena *arena) {
  const Numbers *numbers = player->options.numbers;
  Tensor local =
      numbers_create(numbers, arena, type_local(arena, type, place->mesh));
  int64_t n = type_elements(local.type);
  for (int64_t i = 0; i < n; i++) {
    int64_t from = local_to_logical(place, type, i);
    void *to = numbers_at(numbers, type->dtype, tensor_array(&local), i);
    if (from >= 0)
      numbers_copy(
          numbers, type->dtype, to,
          numbers_at(numbers, type->dtype, tensor_array(logical), from), 1);
  }
  play_poison_padding(player, place, type, &local);
  return local;
}

void player_write(Player *player, int input, const Tensor *logical) {
  Value value = player->program->graph->inputs.data[input].value;
  const Type *type = graph_type(player->program->graph, value);
  bool is_timed = type_uses_axes(type, sequential_axes(player));
  int times = is_timed ? player->program->n_microbatches : 1;
  ASSERT(type_elements(type) == type_elements(logical->type));
  Arena *scratch = arena_beside(player->arena);
  for (player->microbatch = 0; player->microbatch < times; player->microbatch++)
    for (int rank = 0; rank < player->options.ranks; rank++) {
      Tensor local =
          take_shard(player, play_place(player, rank), type, logical, scratch);
      play_store(player, &player->frame, value, rank, &local);
    }
  player->microbatch = 0;
  arena_destroy(scratch);
}

/* ---- collectives ---- */

/* Computes a collective whose operands lie in their places. */
static void exchange_shards(Player *player, const Frame *frame, int id,
                            bool reads_results) {
  const Node *node = frame->graph->nodes.data[id];
  PlayCollective *run = play_collective(node->op);
  ASSERT(run);
  int ranks = player->options.ranks;
  Arena *scratch = arena_beside(player->arena);
  Tensor *in = ARENA_ARRAY(scratch, Tensor, ranks);
  Tensor *out = ARENA_ARRAY(scratch, Tensor, ranks);
  for (int part = 0; part < node->n_inputs; part++) {
    Value result = {id, part};
    Value from = reads_results ? result : node->inputs[part];
    Exchange exchange = play_exchange(player, frame, id, part);
    exchange.in = in;
    exchange.out = out;
    for (int rank = 0; rank < ranks; rank++) {
      in[rank] = play_load(player, frame, from, rank, scratch);
      out[rank] = play_load(player, frame, result, rank, scratch);
    }
    run(&exchange);
    for (int rank = 0; rank < ranks; rank++) {
      play_poison_padding(player, play_place(player, rank), exchange.to,
                          &out[rank]);
      play_store(player, frame, result, rank, &out[rank]);
    }
  }
  arena_destroy(scratch);
}

/* Copies a value to where a later one begins, as select.c does. */
static void copy_value(Player *player, const Frame *frame, Value from,
                       Value to) {
  Arena *scratch = arena_beside(player->arena);
  for (int rank = 0; rank < player->options.ranks; rank++) {
    Tensor tensor = play_load(player, frame, from, rank, scratch);
    tensor =
        numbers_tensor(player->options.numbers, graph_type(frame->local, to),
                       tensor_array(&tensor));
    play_store(player, frame, to, rank, &tensor);
  }
  arena_destroy(scratch);
}

static void place_operand(Player *player, const Frame *frame, Value from,
                          Value to) {
  if (play_address(player, frame, from) != play_address(player, frame, to))
    copy_value(player, frame, from, to);
  play_stamp(player, frame, to);
}

static void finish_collective(Player *player, Pending *pending) {
  const Frame *frame = pending->frame;
  const Node *node = frame->graph->nodes.data[pending->id];
  for (int r = 0; r < node->n_results; r++) {
    Value value = {pending->id, r};
    play_check(player, frame, value, "the collective itself");
    frame->waiting[play_value(frame, value)] = 0;
  }
  bool is_in_place = op_has(node->op, OP_FLAG_in_place);
  for (int i = 0; i < node->n_inputs && !is_in_place; i++)
    play_check(player, frame, node->inputs[i], "the collective itself");
  if (!pending->is_done)
    exchange_shards(player, frame, pending->id, is_in_place);
  pending->is_done = true;
}

/* In place the operands are brought to the bytes of the results.  The bytes of
 * both are in use until the wait. */
static void start_collective(Player *player, const Frame *frame, int id) {
  const Node *node = frame->graph->nodes.data[id];
  uint64_t key = hash_bytes(&player->n_collectives,
                            sizeof player->n_collectives, player->options.seed);
  Pending pending = {.frame = frame, .id = id, .is_done = key & 1};
  bool is_in_place = op_has(node->op, OP_FLAG_in_place);
  for (int i = 0; i < node->n_inputs; i++) {
    if (is_in_place)
      place_operand(player, frame, node->inputs[i], (Value){id, i});
    else
      play_stamp(player, frame, (Value){id, i});
  }
  if (pending.is_done) exchange_shards(player, frame, id, is_in_place);
  vec_push(player->arena, &player->pending, pending);
  for (int r = 0; r < node->n_results; r++)
    frame->waiting[play_value(frame, (Value){id, r})] = player->pending.n;
}

static void wait_for_inputs(Player *player, const Frame *frame,
                            const Node *node) {
  for (int i = 0; i < node->n_inputs; i++) {
    Value from = play_viewed(frame, node->inputs[i]);
    int pending = frame->waiting[play_value(frame, from)];
    if (pending) finish_collective(player, &player->pending.data[pending - 1]);
  }
}

static void wait_for_rest(Player *player, const Frame *frame) {
  int n = count_values(frame->graph);
  for (int v = 0; v < n; v++)
    if (frame->waiting[v])
      finish_collective(player, &player->pending.data[frame->waiting[v] - 1]);
}

/* A collective that joins micro-batches writes a part of its result each time.
 */
static void play_collective_node(Player *player, const Frame *frame, int id) {
  const Node *node = frame->graph->nodes.data[id];
  if (op_has(node->op, OP_FLAG_group)) play_check_messages(player, frame, id);
  if (op_has(node->op, OP_FLAG_asynchronous)) {
    start_collective(player, frame, id);
    return;
  }
  bool joins = op_has(node->op, OP_FLAG_joins_microbatches);
  for (int r = 0; r < node->n_results; r++) {
    if (joins)
      play_check(player, frame, (Value){id, r}, "the next micro-batch");
    else
      play_stamp(player, frame, (Value){id, r});
  }
  exchange_shards(player, frame, id, false);
}

/* ---- nodes ---- */

static bool knows_positions(const Node *node) {
  return node_has(node, ATTR_query) ||
         strstr(op_info(node->op)->sharding, "positions");
}

/* The axes on which the result of a node depends beyond its operands: those
 * that shard its results, if it or its body knows global positions. */
static AxisSet position_axes(const Node *node) {
  AxisSet axes = 0;
  if (knows_positions(node))
    for (int r = 0; r < node->n_results; r++)
      for (int d = 0; d < node->types[r]->rank; d++)
        axes |= axis_list_set(node->types[r]->dims[d].split);
  for (int id = 0; node->body && id < node->body->nodes.n; id++)
    axes |= position_axes(node->body->nodes.data[id]);
  return axes;
}

/* A node with the operands of a rank. */
typedef struct RankCall {
  uint64_t key; /* of operands and positions; equal calls have equal results */
  Tensor *inputs, *results;
} RankCall;

static RankCall make_call(Player *player, const Frame *frame, int id, int rank,
                          AxisSet axes, Arena *arena) {
  const Numbers *numbers = player->options.numbers;
  const Node *node = frame->local->nodes.data[id];
  const MeshPlace *place = play_place(player, rank);
  RankCall call = {.inputs = ARENA_ARRAY(arena, Tensor, node->n_inputs)};
  for (int a = 0; a < place->mesh->n_axes; a++)
    if (axes >> a & 1)
      call.key = hash_bytes(&place->at[a], sizeof place->at[a], call.key + 1);
  for (int i = 0; i < node->n_inputs; i++) {
    Tensor input = play_load(player, frame, node->inputs[i], rank, arena);
    size_t bytes = (size_t)type_elements(input.type) *
                   numbers_size_bytes(numbers, input.type->dtype);
    call.inputs[i] = input;
    call.key = hash_bytes(tensor_array(&input), bytes, call.key + 1);
  }
  return call;
}

static bool is_same_call(const Player *player, const Node *node,
                         const RankCall *a, const RankCall *b) {
  const Numbers *numbers = player->options.numbers;
  bool is_same = a->key == b->key;
  for (int i = 0; i < node->n_inputs && is_same; i++) {
    const Type *type = a->inputs[i].type;
    is_same = !memcmp(tensor_array(&a->inputs[i]), tensor_array(&b->inputs[i]),
                      (size_t)type_elements(type) *
                          numbers_size_bytes(numbers, type->dtype));
  }
  return is_same;
}

static void run_call(Player *player, const Frame *frame, int id, int rank,
                     RankCall *call, Arena *arena) {
  const Numbers *numbers = player->options.numbers;
  const Node *node = frame->local->nodes.data[id];
  call->results = ARENA_ARRAY(arena, Tensor, node->n_results);
  for (int r = 0; r < node->n_results; r++)
    call->results[r] = numbers_create(numbers, arena, node->types[r]);
  interp_node(frame->local, node, numbers, play_place(player, rank),
              call->inputs, call->results);
}

/* Ranks with equal operands have equal results, which one of them computes.
 * Padding of results is computed from padding of operands, as in kernels. */
static void compute_node(Player *player, const Frame *frame, int id) {
  const Node *node = frame->graph->nodes.data[id];
  int ranks = player->options.ranks, n_slots = 2 * ranks;
  Arena *scratch = arena_beside(player->arena);
  RankCall *calls = ARENA_ARRAY(scratch, RankCall, n_slots);
  AxisSet axes = position_axes(node);
  for (int r = 0; r < node->n_results; r++)
    play_stamp(player, frame, (Value){id, r});
  for (int rank = 0; rank < ranks; rank++) {
    RankCall call = make_call(player, frame, id, rank, axes, scratch);
    int slot = (int)(call.key % (uint64_t)n_slots);
    while (calls[slot].inputs &&
           !is_same_call(player, node, &calls[slot], &call))
      slot = (slot + 1) % n_slots;
    if (!calls[slot].inputs) {
      run_call(player, frame, id, rank, &call, scratch);
      calls[slot] = call;
    }
    for (int r = 0; r < node->n_results; r++)
      play_store(player, frame, (Value){id, r}, rank, &calls[slot].results[r]);
  }
  arena_destroy(scratch);
}

/* A library may write anything into its workspace. */
static void use_workspace(Player *player, const Frame *frame, int id) {
  int64_t offset = frame->layout->workspace[id];
  if (offset < 0) return;
  for (const Frame *at = frame; at->enclosing; at = at->enclosing)
    offset += at->enclosing->layout->workspace[at->scan];
  play_stamp_bytes(player, offset, frame->layout->workspace_bytes[id],
                   ++player->last_stamp);
}

/* Where a view has bytes of its own, it is a copy. */
static void play_view(Player *player, const Frame *frame, int id) {
  const Node *node = frame->graph->nodes.data[id];
  Value from = node->inputs[0], to = {id, 0};
  if (play_address(player, frame, from) == play_address(player, frame, to)) {
    set_stamp(frame, to, stamp_of(frame, from));
    return;
  }
  wait_for_inputs(player, frame, node);
  play_check(player, frame, from, op_info(node->op)->name);
  copy_value(player, frame, from, to);
  play_stamp(player, frame, to);
}

static void play_scan(Player *player, const Frame *frame, int id);

static void play_node(Player *player, const Frame *frame, int id) {
  const Node *node = frame->graph->nodes.data[id];
  if (node->op == OP_input) return;
  if (frame->layout->is_view[id]) {
    play_view(player, frame, id);
    return;
  }
  wait_for_inputs(player, frame, node);
  for (int i = 0; i < node->n_inputs; i++)
    play_check(player, frame, node->inputs[i],
               node->path && *node->path ? node->path
                                         : op_info(node->op)->name);
  if (node->op == OP_scan) {
    play_scan(player, frame, id);
  } else if (play_collective(node->op)) {
    play_collective_node(player, frame, id);
  } else {
    use_workspace(player, frame, id);
    compute_node(player, frame, id);
  }
}

/* ---- scans ---- */

/* The inputs of the body: arguments and slices as the enclosing graph has them,
 * carries as the iteration before left them. */
static void enter_iteration(const Frame *frame, const Frame *body,
                            const Node *scan) {
  int n_carries = scan_carries(scan);
  for (int i = 0; i < scan->n_inputs; i++) {
    Value outer = i < n_carries ? (Value){body->scan, i} : scan->inputs[i];
    set_stamp(body, body->graph->inputs.data[i].value, stamp_of(frame, outer));
  }
}

static void leave_iteration(Player *player, const Frame *frame,
                            const Frame *body, const Node *scan) {
  wait_for_rest(player, body);
  for (int r = 0; r < scan->n_results; r++) {
    Value inner = body->graph->outputs.data[r].value;
    play_check(player, body, inner, "the next iteration");
    if (r < scan_carries(scan))
      set_stamp(frame, (Value){body->scan, r}, stamp_of(body, inner));
  }
}

static void play_scan(Player *player, const Frame *frame, int id) {
  const Node *scan = frame->graph->nodes.data[id];
  Arena *scratch = arena_beside(player->arena);
  for (int r = 0; r < scan->n_results; r++) {
    if (r < scan_carries(scan)) {
      place_operand(player, frame, scan->inputs[r], (Value){id, r});
      continue;
    }
    play_stamp(player, frame, (Value){id, r});
    play_poison_value(player, frame, (Value){id, r});
  }
  Frame body =
      make_frame(scratch, scan->body, frame->local->nodes.data[id]->body,
                 frame->layout->bodies[id]);
  body.enclosing = frame;
  body.scan = id;
  int n_pending = player->pending.n;
  for (; body.iteration < scan_steps(scan); body.iteration++) {
    enter_iteration(frame, &body, scan);
    for (int at = 0; at < body.graph->nodes.n; at++)
      play_node(player, &body, at);
    leave_iteration(player, frame, &body, scan);
    player->pending.n = n_pending;
  }
  /* A last carry may be one iteration's part of a stacked output. */
  for (int r = 0; r < scan_carries(scan); r++)
    play_stamp(player, frame, (Value){id, r});
  arena_destroy(scratch);
}

/* ---- micro-batches ---- */

/* The first micro-batch writes, the others add or write beside it. */
static void begin_joins(Player *player, int begin, int end) {
  const Frame *frame = &player->frame;
  for (int id = begin; id < end; id++) {
    const Node *node = frame->graph->nodes.data[id];
    if (!op_has(node->op, OP_FLAG_joins_microbatches)) continue;
    for (int r = 0; r < node->n_results; r++) {
      play_stamp(player, frame, (Value){id, r});
      play_poison_value(player, frame, (Value){id, r});
    }
  }
}

static void play_microbatches(Player *player, int begin, int end) {
  begin_joins(player, begin, end);
  for (player->microbatch = 0;
       player->microbatch < player->program->n_microbatches;
       player->microbatch++)
    for (int id = begin; id < end; id++) play_node(player, &player->frame, id);
  player->microbatch = 0;
}

/* A persistent buffer without a new value has still the old one. */
static void check_kept(Player *player) {
  const Graph *graph = player->program->graph;
  const Frame *frame = &player->frame;
  for (int i = 0; i < graph->outputs.n; i++)
    play_check(player, frame, graph->outputs.data[i].value, "the next step");
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    int64_t offset = frame->layout->offset[play_value(frame, input->value)];
    if (offset < frame->layout->persistent_bytes &&
        !graph_find_output(graph, input->role, input->path))
      play_check(player, frame, input->value, "the next program");
  }
}

void player_run(Player *player) {
  int n = player->program->graph->nodes.n;
  for (int id = 0; id < n;) {
    int end = id;
    while (end < n && node_is_per_microbatch(player->program->graph, end))
      end++;
    if (end > id)
      play_microbatches(player, id, end);
    else
      play_node(player, &player->frame, end++);
    id = end;
  }
  wait_for_rest(player, &player->frame);
  check_kept(player);
}

/* ---- results ---- */

Tensor player_read(const Player *player, int output, int rank, Arena *arena) {
  Value value = player->program->graph->outputs.data[output].value;
  return play_load(player, &player->frame, value, rank, arena);
}

PlayDifference player_compare(const Player *player, int output,
                              const Tensor *wanted, double limit) {
  const Numbers *numbers = player->options.numbers;
  Value value = player->program->graph->outputs.data[output].value;
  const Type *type = graph_type(player->program->graph, value);
  DType dtype = type->dtype;
  PlayDifference most = {.rank = -1, .element = -1};
  Arena *scratch = arena_beside(player->arena);
  ASSERT(type_elements(type) == type_elements(wanted->type));
  double largest = numbers_largest(numbers, dtype, tensor_array(wanted),
                                   type_elements(wanted->type), 1e-300);
  for (int rank = 0; rank < player->options.ranks; rank++) {
    Tensor got = player_read(player, output, rank, scratch);
    for (int64_t i = 0; i < type_elements(got.type); i++) {
      int64_t at = local_to_logical(play_place(player, rank), type, i);
      if (at < 0) continue;
      NumbersDifference difference = numbers_compare(
          numbers, dtype, numbers_at(numbers, dtype, tensor_array(wanted), at),
          numbers_at(numbers, dtype, tensor_array(&got), i), 1, largest);
      if (!(difference.error > most.error)) continue;
      if (most.error > limit) {
        most.error = difference.error;
        continue;
      }
      most = (PlayDifference){difference.error, rank, at};
    }
  }
  arena_destroy(scratch);
  return most;
}

const char *player_memory_fault(const Player *player) {
  return player->memory_fault;
}

const char *player_message_fault(const Player *player) {
  return player->message_fault;
}

int64_t player_touched_bytes(const Player *player) {
  return player->touched_bytes;
}

int64_t player_collectives(const Player *player) {
  return player->n_collectives;
}
