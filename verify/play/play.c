/*
 * play.c -- runs a program on all ranks, node by node: the nodes of a segment
 * with each call of the timeline, scans iteration by iteration.
 *
 * A collective, or a swap between device and host memory, takes effect at its
 * start or at its wait, as the seed says; in between its bytes belong to it.  A
 * wait stands before the first node that reads a result.
 */
#include "verify/play/internal.h"

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

static PlayStage make_stage(Arena *arena, const Graph *graph,
                            const PlayLayout *layout) {
  const Mesh *mesh = &graph->mesh;
  int n_ranks = mesh_ranks(mesh), n = n_ranks * mesh_microbatches(mesh);
  MeshPlace *places = ARENA_ARRAY(arena, MeshPlace, n);
  for (int i = 0; i < n; i++)
    places[i] = mesh_place(mesh, i % n_ranks, i / n_ranks);
  return (PlayStage){.graph = graph,
                     .local = local_graph(arena, graph, mesh),
                     .layout = layout,
                     .places = places};
}

PlayProgram *play_program_of_stages(Arena *arena, const EntryPoint *entry,
                                    const PlayLayout *const *layouts) {
  PlayProgram *program = ARENA_NEW(arena, PlayProgram);
  int n = entry->stages.n;
  *program =
      (PlayProgram){.entry = *entry,
                    .n_stages = n,
                    .n_ranks = mesh_ranks(&entry->stages.data[0].graph->mesh),
                    .stages = ARENA_ARRAY(arena, PlayStage, n),
                    .persistent_bytes = INT64_MAX,
                    .persistent_host_bytes = INT64_MAX};
  for (int s = 0; s < n; s++) {
    const PlayLayout *layout = layouts[s];
    program->stages[s] = make_stage(arena, entry->stages.data[s].graph, layout);
    if (layout->persistent_bytes < program->persistent_bytes)
      program->persistent_bytes = layout->persistent_bytes;
    if (layout->persistent_host_bytes < program->persistent_host_bytes)
      program->persistent_host_bytes = layout->persistent_host_bytes;
    if (layout->arena_bytes > program->arena_bytes)
      program->arena_bytes = layout->arena_bytes;
    if (layout->host_bytes > program->host_bytes)
      program->host_bytes = layout->host_bytes;
  }
  return program;
}

void play_program_alone(Arena *arena, PlayProgram *program, int rank) {
  program->n_ranks = 1;
  for (int s = 0; s < program->n_stages; s++) {
    const Mesh *mesh = &program->stages[s].graph->mesh;
    int n = mesh_microbatches(mesh);
    MeshPlace *places = ARENA_ARRAY(arena, MeshPlace, n);
    for (int i = 0; i < n; i++) places[i] = mesh_place(mesh, rank, i);
    program->stages[s].places = places;
  }
}

PlayProgram *play_program(Arena *arena, const EntryPoint *entry,
                          const PlayLayout *layout) {
  return play_program_of_stages(arena, entry, &layout);
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
  int n_copies = layout->n_copies > 1 ? layout->n_copies : 1;
  return (Frame){.graph = graph,
                 .local = local,
                 .layout = layout,
                 .n_values = n,
                 .n_copies = n_copies,
                 .stamp = ARENA_ARRAY(arena, int, n *n_copies),
                 .microbatch = ARENA_ARRAY(arena, int, n *n_copies),
                 .waiting = ARENA_ARRAY(arena, int, n *n_copies)};
}

static int stamp_of(const Frame *frame, Value value) {
  return frame->stamp[play_copy_of(frame, value)];
}

static void set_stamp(const Frame *frame, Value value, int stamp) {
  frame->stamp[play_copy_of(frame, value)] = stamp;
}

/* ---- the player ---- */

Player *player_create(Arena *arena, const PlayOptions *options) {
  Player *player = ARENA_NEW(arena, Player);
  *player = (Player){.arena = arena,
                     .options = *options,
                     .classes = map_create(arena),
                     .joined = map_create(arena)};
  player->stamps = ARENA_ARRAY(arena, int, options->arena_bytes);
  player->host_stamps = ARENA_ARRAY(arena, int, options->host_bytes);
  return player;
}

/* Bytes that do not persist are of no known write. */
static void forget_from(Player *player, int64_t begin, int64_t host_begin) {
  extents_clear(player, begin, HOST_ORIGIN);
  extents_clear(player, HOST_ORIGIN + host_begin, INT64_MAX);
  for (int64_t b = begin; b < player->options.arena_bytes; b++)
    player->stamps[b] = 0;
  for (int64_t b = host_begin; b < player->options.host_bytes; b++)
    player->host_stamps[b] = 0;
}

/* The stamp of a buffer of several stages, by the first of them; 0: it has none
 * yet. */
static int stamp_of_input(const Player *player, const GraphInput *input,
                          int64_t offset) {
  for (const Frame *frame = player->frames; frame < player->frame; frame++) {
    const GraphInput *like =
        graph_find_input(frame->graph, input->role, input->path);
    if (like && frame->layout->offset[play_value(frame, like->value)] == offset)
      return stamp_of(frame, like->value);
  }
  return 0;
}

/* The bytes of the inputs are in use, but for those that are received. */
static void stamp_inputs_of_stage(Player *player) {
  const PlayLayout *layout = player->stage->layout;
  const Graph *graph = player->stage->graph;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    int v = play_value(player->frame, input->value);
    if (input->role == ROLE_receive) continue;
    int stamp = stamp_of_input(player, input, layout->offset[v]);
    if (!stamp) stamp = ++player->last_stamp;
    set_stamp(player->frame, input->value, stamp);
    play_stamp_bytes(player, layout->offset[v], layout->bytes[v], stamp);
  }
}

static void stamp_inputs(Player *player) {
  for (int s = 0; s < player->program->n_stages; s++) {
    player_select(player, s);
    stamp_inputs_of_stage(player);
  }
  player_select(player, 0);
}

void player_select(Player *player, int stage) {
  static const int none[N_REGISTERS];
  play_set_registers(player, stage, none);
}

int player_stages(const Player *player) {
  return player->program->n_stages;
}

void play_set_registers(Player *player, int stage, const int *registers) {
  player->stage = &player->program->stages[stage];
  player->frame = &player->frames[stage];
  memcpy(player->registers, registers, sizeof player->registers);
  player->microbatch = registers[REGISTER_microbatch];
}

void player_begin(Player *player, const PlayProgram *program) {
  ASSERT(program->n_ranks == 1 || program->n_ranks == player->options.ranks);
  ASSERT(program->arena_bytes <= player->options.arena_bytes &&
         program->host_bytes <= player->options.host_bytes);
  player->program = program;
  player->groups = ARENA_ARRAY(player->arena, PlayGroups *, 1 << MAX_AXES);
  player->of_axes =
      ARENA_ARRAY(player->arena, const RankClasses *, 1 << MAX_AXES);
  player->grouped = map_create(player->arena);
  player->pending.n = 0;
  player->frames = ARENA_ARRAY(player->arena, Frame, program->n_stages);
  for (int s = 0; s < program->n_stages; s++) {
    const PlayStage *stage = &program->stages[s];
    player->frames[s] =
        make_frame(player->arena, stage->graph, stage->local, stage->layout);
    player->frames[s].registers = player->registers;
  }
  forget_from(player, program->persistent_bytes,
              program->persistent_host_bytes);
  stamp_inputs(player);
}

void player_forget(Player *player) {
  forget_from(player, 0, 0);
  stamp_inputs(player);
}

/* ---- collectives ---- */

static void place_operand(Player *player, const Frame *frame, Value from,
                          Value to) {
  if (play_address(player, frame, from) != play_address(player, frame, to))
    play_copy(player, frame, from, to);
  play_stamp(player, frame, to);
}

static void use_registers(Player *player, const int *registers) {
  memcpy(player->registers, registers, sizeof player->registers);
  player->microbatch = registers[REGISTER_microbatch];
}

/* Its values lie where they lay at its start. */
static void finish_collective(Player *player, Pending *pending) {
  const Frame *frame = pending->frame;
  int registers[N_REGISTERS];
  memcpy(registers, player->registers, sizeof registers);
  use_registers(player, pending->registers);
  const Node *node = frame->graph->nodes.data[pending->id];
  for (int r = 0; r < node->n_results; r++) {
    Value value = {pending->id, r};
    play_check(player, frame, value, "the collective itself");
    frame->waiting[play_copy_of(frame, value)] = 0;
  }
  bool is_in_place = op_has(node->op, OP_FLAG_in_place);
  for (int i = 0; i < node->n_inputs && !is_in_place; i++)
    play_check(player, frame, node->inputs[i], "the collective itself");
  if (!pending->is_done) play_exchange(player, frame, pending->id, is_in_place);
  pending->is_done = true;
  use_registers(player, registers);
}

/* In place the operands are brought to the bytes of the results.  The bytes of
 * both are in use until the wait. */
static void start_collective(Player *player, const Frame *frame, int id,
                             bool is_exchanged) {
  const Node *node = frame->graph->nodes.data[id];
  uint64_t key = hash_bytes(&player->n_collectives,
                            sizeof player->n_collectives, player->options.seed);
  bool is_early = key & 1;
  Pending pending = {
      .frame = frame, .id = id, .is_done = is_exchanged || is_early};
  memcpy(pending.registers, player->registers, sizeof pending.registers);
  bool is_in_place = op_has(node->op, OP_FLAG_in_place);
  for (int i = 0; i < node->n_inputs; i++) {
    if (is_in_place)
      place_operand(player, frame, node->inputs[i], (Value){id, i});
    else
      play_stamp(player, frame, (Value){id, i});
  }
  if (pending.is_done && !is_exchanged)
    play_exchange(player, frame, id, is_in_place);
  vec_push(player->arena, &player->pending, pending);
  for (int r = 0; r < node->n_results; r++)
    frame->waiting[play_copy_of(frame, (Value){id, r})] = player->pending.n;
}

void play_wait_for(Player *player, const Frame *frame, Value value) {
  Value from = play_viewed(frame, value);
  int pending = frame->waiting[play_copy_of(frame, from)];
  if (pending) finish_collective(player, &player->pending.data[pending - 1]);
}

static void wait_for_inputs(Player *player, const Frame *frame,
                            const Node *node) {
  for (int i = 0; i < node->n_inputs; i++)
    play_wait_for(player, frame, node->inputs[i]);
}

static void wait_for_rest(Player *player, const Frame *frame) {
  int n = frame->n_values * frame->n_copies;
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
    start_collective(player, frame, id, false);
    return;
  }
  bool joins = op_has(node->op, OP_FLAG_joins_microbatches);
  for (int r = 0; r < node->n_results; r++) {
    if (joins)
      play_check(player, frame, (Value){id, r}, "the next micro-batch");
    else
      play_stamp(player, frame, (Value){id, r});
  }
  play_exchange(player, frame, id, false);
}

/* ---- nodes ---- */

/* The results of a node depend on where along a dim a rank works. */
static bool knows_position(const Node *node, Name dim) {
  if (node_has(node, ATTR_query)) return node_name(node, ATTR_query) == dim;
  return strstr(op_info(node->op)->sharding, "positions") &&
         node_treats_dim(node, dim);
}

/* The axes on which the result of a node depends beyond its operands: those
 * that shard the dims along which it, or its body, knows global positions. */
static AxisSet position_axes(const Node *node) {
  AxisSet axes = 0;
  for (int r = 0; r < node->n_results; r++)
    for (int d = 0; d < node->types[r]->rank; d++) {
      const Dim *dim = &node->types[r]->dims[d];
      if (dim->split && knows_position(node, dim->name))
        axes |= axis_list_set(dim->split);
    }
  for (int id = 0; node->body && id < node->body->nodes.n; id++)
    axes |= position_axes(node->body->nodes.data[id]);
  return axes;
}

/* A node with the operands and results of all ranks. */
typedef struct NodeCall {
  ShardView *in;
  Shards **out;
  Tensor *inputs, *results; /* of one rank */
} NodeCall;

static void compute_on_rank(Player *player, const Frame *frame,
                            const Node *node, const NodeCall *call, int rank) {
  for (int i = 0; i < node->n_inputs; i++)
    call->inputs[i] = play_tensor(player, call->in[i], rank,
                                  graph_type(frame->local, node->inputs[i]));
  for (int r = 0; r < node->n_results; r++)
    call->results[r] =
        play_tensor(player, (ShardView){call->out[r], 0}, rank, node->types[r]);
  interp_node(frame->local, node, player->options.numbers,
              play_place(player, rank), call->inputs, call->results,
              player->arena);
}

/* Adds what a result held before to the result. */
static void add_shards(Player *player, Shards *result, ShardView before,
                       const Type *type) {
  const RankClasses *classes = result->classes;
  for (int c = 0; c < classes->n; c++) {
    int rank = classes->first[c];
    Tensor sum = play_tensor(player, (ShardView){result, 0}, rank, type);
    Tensor part = play_tensor(player, before, rank, type);
    numbers_reduce(player->options.numbers, type->dtype, REDUCE_sum,
                   tensor_array(&sum), tensor_array(&part),
                   type_elements(type));
  }
}

/* Ranks with equal operands have equal results, which one of them computes.
 * Padding of results is computed from padding of operands, as in kernels. */
static void compute_node(Player *player, const Frame *frame, int id) {
  const Node *node = frame->local->nodes.data[id];
  Arena *scratch = arena_beside(player->arena);
  NodeCall call = {ARENA_ARRAY(scratch, ShardView, node->n_inputs),
                   ARENA_ARRAY(scratch, Shards *, node->n_results),
                   ARENA_ARRAY(scratch, Tensor, node->n_inputs),
                   ARENA_ARRAY(scratch, Tensor, node->n_results)};
  const RankClasses *classes =
      classes_of_axes(player, position_axes(frame->graph->nodes.data[id]));
  for (int i = 0; i < node->n_inputs; i++) {
    call.in[i] = play_read(player, frame, node->inputs[i]);
    classes = classes_join(player, classes, call.in[i].shards->classes);
  }
  bool adds = node_joins_microbatches(node) && !player->is_first;
  ShardView before = {0};
  if (adds) {
    before = play_read(player, frame, (Value){id, 0});
    classes = classes_join(player, classes, before.shards->classes);
  }
  for (int r = 0; r < node->n_results; r++)
    call.out[r] = shards_create(player, classes, node->types[r]->dtype,
                                type_elements(node->types[r]));
  for (int c = 0; c < classes->n; c++)
    compute_on_rank(player, frame, node, &call, classes->first[c]);
  if (adds) {
    play_check(player, frame, (Value){id, 0}, "the next micro-batch");
    add_shards(player, call.out[0], before, node->types[0]);
    play_release(player, before);
  }
  for (int i = 0; i < node->n_inputs; i++) play_release(player, call.in[i]);
  for (int r = 0; r < node->n_results; r++) {
    if (!adds) play_stamp(player, frame, (Value){id, r});
    play_put(player, frame, (Value){id, r}, call.out[r]);
    shards_release(player, call.out[r]);
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
  play_copy(player, frame, from, to);
  play_stamp(player, frame, to);
}

static void play_scan(Player *player, const Frame *frame, int id);

static void check_inputs(Player *player, const Frame *frame, const Node *node) {
  for (int i = 0; i < node->n_inputs; i++)
    play_check(player, frame, node->inputs[i],
               node->path && *node->path ? node->path
                                         : op_info(node->op)->name);
}

void play_start_sum(Player *player, int id) {
  const Frame *frame = player->frame;
  const Node *node = frame->graph->nodes.data[id];
  wait_for_inputs(player, frame, node);
  check_inputs(player, frame, node);
  play_check_messages(player, frame, id);
  start_collective(player, frame, id, true);
}

void play_node(Player *player, const Frame *frame, int id) {
  const Node *node = frame->graph->nodes.data[id];
  if (node->op == OP_input) return;
  if (frame->layout->is_view[id]) {
    if (node->op == OP_swapped) wait_for_inputs(player, frame, node);
    play_view(player, frame, id);
    return;
  }
  wait_for_inputs(player, frame, node);
  check_inputs(player, frame, node);
  if (node->op == OP_scan) {
    play_scan(player, frame, id);
  } else if (play_is_collective(node->op)) {
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

/* ---- calls ---- */

void play_clear(Player *player, Value value) {
  const Frame *frame = player->frame;
  const Type *type = graph_type(frame->local, value);
  Shards *zeros = shards_create(player, classes_of_all(player), type->dtype,
                                type_elements(type));
  numbers_fill(player->options.numbers, type->dtype, shards_of_class(zeros, 0),
               type_elements(type), 0);
  play_stamp(player, frame, value);
  play_put(player, frame, value, zeros);
  shards_release(player, zeros);
}

/* A replica runs some of the micro-batches, and adds up zeros for the others.
 */
static bool joins_zeros(const Player *player, const Node *node) {
  const EntryPoint *entry = &player->program->entry;
  return entry->is_period && mesh_ranks(&player->stage->graph->mesh) > 1 &&
         node->op == OP_collect_microbatches;
}

/* The first micro-batch writes, the others add or write beside it. */
static void begin_joins(Player *player, const ProgramSegment *segment) {
  const Frame *frame = player->frame;
  for (int id = segment->first_node; id < segment->end_node; id++) {
    const Node *node = frame->graph->nodes.data[id];
    if (!node_joins_microbatches(node)) continue;
    for (int r = 0; r < node->n_results; r++) {
      if (joins_zeros(player, node)) {
        play_clear(player, (Value){id, r});
        continue;
      }
      play_stamp(player, frame, (Value){id, r});
      play_poison_value(player, frame, (Value){id, r});
    }
  }
}

/* Collectives of a micro-batch end in its segment: another stage of the rank
 * may use their bytes next. */
static void end_collectives(Player *player, const ProgramSegment *segment) {
  const Frame *frame = player->frame;
  for (int id = segment->first_node; id < segment->end_node; id++) {
    const Node *node = frame->graph->nodes.data[id];
    bool is_started = op_has(node->op, OP_FLAG_asynchronous);
    for (int r = 0; r < node->n_results && is_started; r++)
      play_wait_for(player, frame, (Value){id, r});
  }
}

void play_segment(Player *player, const ProgramCall *call) {
  const ProgramSegment *segment =
      entry_point_segment(&player->program->entry, call);
  play_set_registers(player, call->stage, call->registers);
  player->is_first = call->is_first;
  if (call->is_first && segment->n_registers > REGISTER_microbatch)
    begin_joins(player, segment);
  for (int id = segment->first_node; id < segment->end_node; id++)
    play_node(player, player->frame, id);
  if (segment_is_of_microbatch(segment)) end_collectives(player, segment);
}

/* A persistent buffer without a new value has still the old one. */
static void check_kept(Player *player) {
  const Graph *graph = player->stage->graph;
  const Frame *frame = player->frame;
  for (int i = 0; i < graph->outputs.n; i++)
    if (graph->outputs.data[i].role != ROLE_send)
      play_check(player, frame, graph->outputs.data[i].value, "the next step");
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    int64_t offset = frame->layout->offset[play_value(frame, input->value)];
    int64_t end = value_is_on_host(graph, input->value)
                      ? HOST_ORIGIN + frame->layout->persistent_host_bytes
                      : frame->layout->persistent_bytes;
    if (offset < end && !graph_find_output(graph, input->role, input->path))
      play_check(player, frame, input->value, "the next program");
  }
}

void play_end(Player *player) {
  for (int s = 0; s < player->program->n_stages; s++) {
    player_select(player, s);
    wait_for_rest(player, player->frame);
  }
  for (int s = 0; s < player->program->n_stages; s++) {
    player_select(player, s);
    check_kept(player);
  }
  player_select(player, 0);
}

/* ---- answers ---- */

const char *player_memory_fault(const Player *player) {
  return player->memory_fault;
}

const char *player_message_fault(const Player *player) {
  return player->message_fault;
}

int64_t player_touched_bytes(const Player *player) {
  return player->touched_bytes;
}

int64_t player_touched_host_bytes(const Player *player) {
  return player->touched_host_bytes;
}

int64_t player_collectives(const Player *player) {
  return player->n_collectives;
}
