// links: verify driver codegen frontend passes runtime price interp ir support
/*
 * play_stages.c -- plays programs of several stages and compares them with the
 * programs of one stage that computes all of it, in exact mode.
 */
#include <stdlib.h>

#include "tests/unit/stage_graphs.h"
#include "verify/play_layout.h"

TestSuite(play_stages, .fini = modules_destroy);

enum { N_RANKS = 2 };

/* ---- layouts ---- */

/* The frame that a value has between segments of a micro-batch; else
 * REGISTER_microbatch. */
static ProgramRegister frame_of(const ProgramStage *stage, Value value) {
  const ProgramSegment *first = NULL, *last = NULL;
  for (int s = 0; s < stage->segments.n; s++) {
    const ProgramSegment *segment = &stage->segments.data[s];
    for (int id = segment->first_node; id < segment->end_node; id++) {
      const Node *node = stage->graph->nodes.data[id];
      if (id == value.node) first = segment;
      for (int i = 0; i < node->n_inputs; i++)
        if (value_equal(node->inputs[i], value)) last = segment;
    }
  }
  if (!last || first == last || !segment_is_of_microbatch(first) ||
      !segment_is_of_microbatch(last))
    return REGISTER_microbatch;
  if (first->kind == TOKEN_input_grad) return REGISTER_weight_frame;
  return last->kind == TOKEN_input_grad ? REGISTER_input_frame : REGISTER_frame;
}

static const GraphInput *input_of(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  return node->op == OP_input
             ? &graph->inputs.data[node_int(node, ATTR_index, 0)]
             : NULL;
}

static bool has_slots(const EntryPoint *entry, const ProgramStage *stage,
                      Name path) {
  for (int e = 0; e < entry->edges.n; e++)
    if (entry->edges.data[e].to == stage->number &&
        entry->edges.data[e].path == path)
      return entry->edges.data[e].n_slots > 1;
  return false;
}

/* Each value has bytes of its own, in as many copies as the program says, but
 * for parameters, whose new values take the place of the old ones.  `*end` is
 * the end of what other stages of the rank have. */
static const PlayLayout *layout_of(Arena *arena, const EntryPoint *entry,
                                   int stage_index, int64_t *end) {
  const ProgramStage *stage = &entry->stages.data[stage_index];
  const Graph *graph = stage->graph;
  int n = graph->nodes.n;
  int64_t *offset = ARENA_ARRAY(arena, int64_t, n);
  int64_t *bytes = ARENA_ARRAY(arena, int64_t, n);
  int64_t *move_bytes = ARENA_ARRAY(arena, int64_t, n);
  ProgramRegister *moves_with = ARENA_ARRAY(arena, ProgramRegister, n);
  int64_t *workspace = ARENA_ARRAY(arena, int64_t, n);
  int *first = ARENA_ARRAY(arena, int, n);
  for (int id = 0; id < n; id++) {
    const Type *type = graph->nodes.data[id]->types[0];
    const GraphInput *input = input_of(graph, id);
    bool is_data = input && input->role == ROLE_data;
    int64_t local =
        type_local_elements(type, &graph->mesh) * dtype_size_bytes(type->dtype);
    int64_t copies = is_data ? mesh_microbatches(&graph->mesh) : 1;
    if (input && input->role == ROLE_receive &&
        has_slots(entry, stage, input->path))
      moves_with[id] = REGISTER_slot;
    else if (!input)
      moves_with[id] = frame_of(stage, (Value){id, 0});
    if (moves_with[id] != REGISTER_microbatch) {
      copies = stage_places(stage, moves_with[id]);
      move_bytes[id] = local;
    }
    first[id] = id;
    workspace[id] = -1;
    offset[id] = *end;
    bytes[id] = local * copies;
    *end += bytes[id];
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    const GraphInput *input =
        graph_find_input(graph, output->role, output->path);
    if (input) offset[output->value.node] = offset[input->value.node];
  }
  PlayLayout *layout = ARENA_NEW(arena, PlayLayout);
  *layout = (PlayLayout){.offset = offset,
                         .bytes = bytes,
                         .first_value = first,
                         .workspace = workspace,
                         .workspace_bytes = ARENA_ARRAY(arena, int64_t, n),
                         .is_view = ARENA_ARRAY(arena, bool, n),
                         .bodies = ARENA_ARRAY(arena, const PlayLayout *, n),
                         .move_bytes = move_bytes,
                         .moves_with = moves_with,
                         .n_copies = stage_most_places(stage),
                         .arena_bytes = *end};
  return layout;
}

/* ---- players ---- */

typedef struct Classes {
  int n;
  bool are_packed; /* in arenas as a rank has them */
  EntryPoint entries[MOST_STAGES];
  Player *players[MOST_STAGES];
} Classes;

static const PlayLayout *const *
packed_layouts(StageChain *chain, EntryPoint *entry, int64_t *end) {
  Arena *arena = chain->module->arena;
  PersistentBuffers persistent = {0};
  for (int s = 0; s < entry->stages.n; s++)
    persistent_buffers_add(&persistent, arena, entry->stages.data[s].graph,
                           NULL);
  PassContext ctx = {.module = chain->module, .scratch = arena_beside(arena)};
  buffer_assign_stages(&ctx, entry, &persistent);
  arena_destroy(ctx.scratch);
  *end = entry_point_arena_bytes(entry);
  return play_layouts(arena, entry, NULL);
}

static const PlayLayout *const *
loose_layouts(StageChain *chain, const EntryPoint *entry, int64_t *end) {
  Arena *arena = chain->module->arena;
  const PlayLayout **layouts =
      ARENA_ARRAY(arena, const PlayLayout *, entry->stages.n);
  for (int s = 0; s < entry->stages.n; s++)
    layouts[s] = layout_of(arena, entry, s, end);
  return layouts;
}

static void make_players(StageChain *chain, const Numbers *numbers,
                         Classes *classes) {
  Arena *arena = chain->module->arena;
  for (int c = 0; c < classes->n; c++) {
    EntryPoint *entry = &classes->entries[c];
    int64_t end = 0;
    const PlayLayout *const *layouts = classes->are_packed
                                           ? packed_layouts(chain, entry, &end)
                                           : loose_layouts(chain, entry, &end);
    PlayOptions options = {.numbers = numbers,
                           .ranks = N_RANKS,
                           .arena_bytes = end,
                           .seed = numbers->seed};
    classes->players[c] = player_create(arena, &options);
    player_begin(classes->players[c],
                 play_program_of_stages(arena, entry, layouts));
  }
}

/* Numbers that depend on path and element alone. */
static Tensor numbers_of(Arena *arena, const Numbers *numbers, Name path,
                         const Type *type) {
  Tensor tensor = numbers_create(numbers, arena, type_logical(arena, type));
  numbers_random(numbers, type->dtype, path, 0, -1, 1, tensor_array(&tensor),
                 type_elements(tensor.type));
  return tensor;
}

static void write_inputs(StageChain *chain, const Numbers *numbers,
                         Classes *classes) {
  for (int c = 0; c < classes->n; c++)
    for (int s = 0; s < classes->entries[c].stages.n; s++) {
      const Graph *graph = classes->entries[c].stages.data[s].graph;
      player_select(classes->players[c], s);
      for (int i = 0; i < graph->inputs.n; i++) {
        const GraphInput *input = &graph->inputs.data[i];
        if (input->role == ROLE_receive) continue;
        Tensor tensor = numbers_of(chain->module->arena, numbers, input->path,
                                   graph_type(graph, input->value));
        player_write(classes->players[c], i, &tensor);
      }
    }
}

/* ---- runs ---- */

typedef struct Shape {
  const char *schedule;
  int n, m;
  int form; /* stages on ranks of their own, on two groups in turn, on one */
  bool has_skip, has_shared, is_packed;
  uint64_t list_seed; /* of a list in place of the schedule; 0: there is none */
} Shape;

/* Changes the programs before they are played, at one of the places that there
 * are.  Returns false if there is none. */
typedef bool Change(StageChain *chain, Classes *classes, uint64_t choice);

/* The new parameters of all stages, and the first fault. */
typedef struct Played {
  int n;
  Name paths[MOST_STAGES];
  Tensor tensors[MOST_STAGES];
  const char *memory_fault, *message_fault;
} Played;

static void read_parameters(StageChain *chain, Classes *classes, Played *out) {
  for (int c = 0; c < classes->n; c++) {
    Player *player = classes->players[c];
    for (int s = 0; s < classes->entries[c].stages.n; s++) {
      const Graph *graph = classes->entries[c].stages.data[s].graph;
      player_select(player, s);
      for (int i = 0; i < graph->inputs.n; i++) {
        if (graph->inputs.data[i].role != ROLE_param) continue;
        int at = graph->inputs.data[i].path[1] - '0';
        out->paths[at] = graph->inputs.data[i].path;
        out->tensors[at] = player_save(player, i, chain->module->arena);
        out->n++;
      }
    }
    if (!out->memory_fault) out->memory_fault = player_memory_fault(player);
    if (classes->are_packed)
      cr_expect_eq(player_touched_bytes(player),
                   entry_point_arena_bytes(&classes->entries[c]));
    if (!out->message_fault) out->message_fault = player_message_fault(player);
  }
}

/* ---- lists that a person may have written ---- */

/* Returns whether a call has what it reads. */
static bool is_ready(const Shape *shape, bool *const *done, bool goes_back,
                     int stage, int microbatch) {
  int n = shape->n, at = stage * shape->m + microbatch;
  if (done[goes_back][at]) return false;
  if (!goes_back) return stage == 0 || done[0][at - shape->m];
  return done[0][at] && (stage == n - 1 || done[1][at + shape->m]);
}

/* Calls in any order in which each has what it reads. */
static const Pipeline *random_list(Arena *arena, const Shape *shape,
                                   int n_ranks, const int *rank_of) {
  int n = shape->n * shape->m;
  bool *const done[] = {ARENA_ARRAY(arena, bool, n),
                        ARENA_ARRAY(arena, bool, n)};
  Pipeline *list = ARENA_NEW(arena, Pipeline);
  *list = (Pipeline){.n_ranks = n_ranks,
                     .n_stages = shape->n,
                     .n_microbatches = shape->m,
                     .lists = ARENA_ARRAY(arena, Tokens, n_ranks)};
  uint64_t random = shape->list_seed;
  for (int n_done = 0; n_done < 2 * n;) {
    random = hash_bytes(&random, sizeof random, 1);
    int call = (int)(random >> 8) & 0xffff, at = call / 2 % n;
    int stage = at / shape->m, microbatch = at % shape->m;
    if (!is_ready(shape, done, call & 1, stage, microbatch)) continue;
    done[call & 1][at] = true;
    n_done++;
    vec_push(arena, &list->lists[rank_of[stage]],
             (Token){.kind = call & 1 ? TOKEN_backward : TOKEN_forward,
                     .stage = stage,
                     .microbatch = microbatch});
  }
  return list;
}

/* `change` may be NULL. */
static Played play(const Shape *shape, const Numbers *numbers, Change *change,
                   uint64_t choice, bool *out_is_changed) {
  StageChain *chain = calloc(1, sizeof *chain);
  *chain = (StageChain){.n = shape->n,
                        .n_microbatches = shape->m,
                        .has_skip = shape->has_skip,
                        .has_shared = shape->has_shared};
  for (int s = 0; s < chain->n; s++)
    chain->first_rank[s] =
        N_RANKS * stage_chain_group(shape->form, chain->n, s);
  stage_chain_make(chain);
  ProgramParts parts = stage_chain_parts(chain, shape->schedule);
  if (shape->list_seed) {
    int class_of[MOST_STAGES];
    const int *first_ranks;
    int n_classes = program_classes(chain->module->arena, chain->stages,
                                    chain->n, class_of, &first_ranks);
    parts.schedule = NULL;
    parts.list = random_list(chain->module->arena, shape, n_classes, class_of);
  }
  Classes classes = {.n = stage_chain_groups(shape->form, chain->n),
                     .are_packed = shape->is_packed};
  cr_assert(program_timeline(chain->module->arena, &parts, classes.entries));
  if (change) *out_is_changed = change(chain, &classes, choice);
  make_players(chain, numbers, &classes);
  write_inputs(chain, numbers, &classes);
  players_run(classes.players, classes.n);
  Played played = {0};
  read_parameters(chain, &classes, &played);
  free(chain);
  return played;
}

static bool are_equal(const Numbers *numbers, const Played *a,
                      const Played *b) {
  for (int i = 0; i < MOST_STAGES; i++) {
    if (!a->paths[i] != !b->paths[i]) return false;
    if (!a->paths[i]) continue;
    const Tensor *x = &a->tensors[i], *y = &b->tensors[i];
    if (numbers_compare(numbers, x->type->dtype, tensor_array(x),
                        tensor_array(y), type_elements(x->type), 1)
            .error > 0)
      return false;
  }
  return a->n == b->n;
}

/* On one rank, one micro-batch at a time. */
static Played reference_of(const Shape *shape, const Numbers *numbers) {
  Shape plain = *shape;
  plain.schedule = "naive";
  plain.m = 1;
  plain.form = 2;
  plain.list_seed = 0;
  plain.is_packed = false;
  return play(&plain, numbers, NULL, 0, NULL);
}

static void try_shape(const Shape *shape) {
  if (!shape->list_seed &&
      stage_chain_refuses(shape->schedule, shape->n, shape->m, shape->form))
    return;
  for (uint64_t seed = 1; seed <= 3; seed++) {
    Numbers numbers = {.number = INTERP_exact, .seed = seed};
    Played wanted = reference_of(shape, &numbers);
    Played played = play(shape, &numbers, NULL, 0, NULL);
    cr_expect_null(played.memory_fault, "%s", played.memory_fault);
    cr_expect_null(played.message_fault, "%s", played.message_fault);
    cr_expect(are_equal(&numbers, &played, &wanted),
              "%s of %d stages, %d micro-batches, form %d, list %d",
              shape->schedule, shape->n, shape->m, shape->form,
              (int)shape->list_seed);
    modules_destroy();
  }
}

static void try_shapes(bool is_packed) {
  static const char *const schedules[] = {"naive", "fthenb",   "1f1b", "zbh1",
                                          "zbh2",  "zb1p",     "zbv",  "vhalf",
                                          "vmin",  "dualpipev"};
  for (int i = 0; i < ARRAY_LENGTH(schedules); i++)
    for (int n = 2; n <= 4; n++)
      for (int m = 1; m <= 6; m += m == 1 ? 1 : 2)
        for (int form = 0; form < N_FORMS; form++)
          for (int more = 0; more < 4; more++)
            try_shape(&(Shape){schedules[i], n, m, form, (more & 1) && n > 2,
                               more & 2, is_packed, 0});
}

Test(play_stages, equal_one_stage_at_a_time) {
  try_shapes(false);
}

/* Every byte of an arena is touched, and none too early. */
Test(play_stages, packed_arenas_are_equal) {
  try_shapes(true);
}

static const int microbatches[] = {1, 2, 3, 4, 6}; /* divisors of the batch */

/* Stages 0 and 2 of four are on a rank, or each on one, or all. */
Test(play_stages, chunks_of_ranks_are_equal) {
  static const char *const schedules[] = {"interleaved", "bfs"};
  for (int i = 0; i < 2; i++)
    for (int form = 0; form < 3; form++)
      for (int m = form == 0 ? 3 : 0; m < ARRAY_LENGTH(microbatches); m++)
        for (int more = 0; more < 8; more++)
          if (form > 0 || microbatches[m] == 4)
            try_shape(&(Shape){.schedule = schedules[i],
                               .n = 4,
                               .m = microbatches[m],
                               .form = form,
                               .has_skip = more & 1,
                               .has_shared = more & 2,
                               .is_packed = more & 4});
}

Test(play_stages, lists_in_any_order_are_equal) {
  for (uint64_t seed = 1; seed <= 300; seed++)
    try_shape(&(Shape){.schedule = "a list",
                       .n = 2 + (int)(seed % 3),
                       .m = microbatches[seed / 3 % 5],
                       .form = (int)(seed / 15 % 3),
                       .has_skip = seed % 3 > 0 && (seed & 1),
                       .has_shared = seed & 2,
                       .is_packed = seed & 4,
                       .list_seed = seed});
}

/* ---- faults ---- */

/* A call of a program. */
typedef struct CallPlace {
  int class, at;
} CallPlace;

typedef struct CallPlaces {
  Arena *arena;
  VEC(CallPlace) list;
} CallPlaces;

static ProgramCall *call_at(Classes *classes, CallPlace place) {
  return &classes->entries[place.class].timeline.data[place.at];
}

static CallPlaces find_calls(StageChain *chain, Classes *classes,
                             ProgramCallKind kind) {
  CallPlaces places = {.arena = chain->module->arena};
  for (int c = 0; c < classes->n; c++)
    for (int i = 0; i < classes->entries[c].timeline.n; i++)
      if (classes->entries[c].timeline.data[i].kind == kind)
        vec_push(places.arena, &places.list, (CallPlace){c, i});
  return places;
}

static CallPlaces find_segments(StageChain *chain, Classes *classes,
                                TokenKind kind) {
  CallPlaces all = find_calls(chain, classes, CALL_segment);
  CallPlaces places = {.arena = all.arena};
  for (int i = 0; i < all.list.n; i++)
    if (entry_point_segment(&classes->entries[all.list.data[i].class],
                            call_at(classes, all.list.data[i]))
            ->kind == kind)
      vec_push(places.arena, &places.list, all.list.data[i]);
  return places;
}

/* The segment that adds gradients of parameters. */
static TokenKind adding_kind(const Classes *classes) {
  const ProgramStage *stage = &classes->entries[0].stages.data[0];
  for (int s = 0; s < stage->segments.n; s++)
    if (stage->segments.data[s].kind == TOKEN_weight_grad)
      return TOKEN_weight_grad;
  return TOKEN_backward;
}

static const ProgramEdge *edge_of(Classes *classes, const ProgramCall *call) {
  return &classes->entries[0].edges.data[call->edge];
}

/* NULL: there is no call. */
static ProgramCall *choose_call(Classes *classes, const CallPlaces *places,
                                uint64_t choice, CallPlace *out) {
  if (places->list.n == 0) return NULL;
  *out = places->list.data[choice % (uint64_t)places->list.n];
  return call_at(classes, *out);
}

static void remove_call(Classes *classes, CallPlace place) {
  EntryPoint *entry = &classes->entries[place.class];
  entry->timeline.n--;
  for (int i = place.at; i < entry->timeline.n; i++)
    entry->timeline.data[i] = entry->timeline.data[i + 1];
}

/* Both sides leave the message out. */
static bool drop_message(StageChain *chain, Classes *classes, uint64_t choice) {
  CallPlaces sends = find_calls(chain, classes, CALL_send), receives;
  CallPlace at;
  const ProgramCall *call = choose_call(classes, &sends, choice, &at);
  if (!call) return false;
  ProgramCall dropped = *call;
  remove_call(classes, at);
  receives = find_calls(chain, classes, CALL_receive);
  for (int i = 0; i < receives.list.n; i++) {
    call = call_at(classes, receives.list.data[i]);
    if (call->edge != dropped.edge ||
        call->registers[REGISTER_microbatch] !=
            dropped.registers[REGISTER_microbatch])
      continue;
    remove_call(classes, receives.list.data[i]);
    return true;
  }
  return false;
}

/* The message is sent again in the place of the next one. */
static bool double_message(StageChain *chain, Classes *classes,
                           uint64_t choice) {
  CallPlaces sends = find_calls(chain, classes, CALL_send);
  CallPlace at;
  const ProgramCall *call = choose_call(classes, &sends, choice, &at);
  if (!call || edge_of(classes, call)->is_of_step) return false;
  EntryPoint *entry = &classes->entries[at.class];
  ProgramCall again = *call;
  vec_push(chain->module->arena, &entry->timeline, again);
  for (int i = entry->timeline.n - 1; i > at.at; i--)
    entry->timeline.data[i] = entry->timeline.data[i - 1];
  return true;
}

/* Two messages of an edge are received in the places of each other. */
static bool swap_microbatches(StageChain *chain, Classes *classes,
                              uint64_t choice) {
  CallPlaces calls = find_calls(chain, classes, CALL_receive);
  for (int k = 0; k < calls.list.n; k++) {
    CallPlace first, second;
    ProgramCall *a = choose_call(classes, &calls, choice + (uint64_t)k, &first);
    for (uint64_t i = 0; i < (uint64_t)calls.list.n; i++) {
      ProgramCall *b = choose_call(classes, &calls, i, &second);
      int slot = a->registers[REGISTER_slot];
      if (first.class != second.class || a->edge != b->edge ||
          edge_of(classes, a)->n_slots < 2 ||
          b->registers[REGISTER_slot] == slot)
        continue;
      a->registers[REGISTER_slot] = b->registers[REGISTER_slot];
      b->registers[REGISTER_slot] = slot;
      return true;
    }
  }
  return false;
}

/* The value of one edge goes to another one of this type. */
static bool can_swap(const ProgramEdge *a, const ProgramEdge *b) {
  return a != b && a->from == b->from && a->is_of_step == b->is_of_step &&
         type_equal(a->type, b->type);
}

static GraphOutput *output_sent(Graph *graph, Name path) {
  for (int i = 0; i < graph->outputs.n; i++)
    if (graph->outputs.data[i].role == ROLE_send &&
        graph->outputs.data[i].path == path)
      return &graph->outputs.data[i];
  return NULL;
}

static bool swap_edges(StageChain *chain, Classes *classes, uint64_t choice) {
  const ProgramEdge *edges = classes->entries[0].edges.data;
  int n = classes->entries[0].edges.n;
  for (int k = 0; k < n * n; k++) {
    const ProgramEdge *a = &edges[(choice + (uint64_t)k) % (uint64_t)n];
    const ProgramEdge *b = &edges[k / n];
    if (!can_swap(a, b)) continue;
    Graph *graph = (Graph *)chain->stages[a->from].graph;
    GraphOutput *first = output_sent(graph, a->path);
    GraphOutput *second = output_sent(graph, b->path);
    if (value_equal(first->value, second->value)) continue;
    Value value = first->value;
    first->value = second->value;
    second->value = value;
    return true;
  }
  return false;
}

/* The register that says where values of a micro-batch lie which a later call
 * reads, and its bound: in the last stage what the forward pass leaves, in
 * others what they receive.  Stage 0 has only data.  False: there is one place.
 */
static bool find_register(const StageChain *chain, const ProgramStage *stage,
                          ProgramRegister *out, int *out_n) {
  bool is_last = stage->number == chain->n - 1;
  *out = is_last ? REGISTER_frame : REGISTER_slot;
  *out_n = is_last ? stage->n_frames : stage->n_slots;
  return stage->number > 0 && *out_n > 1;
}

/* A forward or a backward pass uses the next place. */
static bool shift_place(StageChain *chain, Classes *classes, uint64_t choice) {
  CallPlaces calls = find_segments(
      chain, classes, choice & 1 ? TOKEN_forward : adding_kind(classes));
  for (int k = 0; k < calls.list.n; k++) {
    CallPlace at;
    ProgramCall *call = choose_call(classes, &calls, choice + (uint64_t)k, &at);
    const ProgramStage *stage =
        &classes->entries[at.class].stages.data[call->stage];
    ProgramRegister place;
    int n;
    if (!find_register(chain, stage, &place, &n)) continue;
    call->registers[place] = (call->registers[place] + 1) % n;
    return true;
  }
  return false;
}

/* One place less: two micro-batches share one. */
static bool reuse_early(StageChain *chain, Classes *classes, uint64_t choice) {
  for (int k = 0; k < classes->n; k++) {
    EntryPoint *entry =
        &classes->entries[(choice + (uint64_t)k) % (uint64_t)classes->n];
    ProgramRegister place;
    int n;
    if (!find_register(chain, &entry->stages.data[0], &place, &n)) continue;
    for (int i = 0; i < entry->timeline.n; i++)
      entry->timeline.data[i].registers[place] %= n - 1;
    return true;
  }
  return false;
}

/* The sums begin with the second micro-batch. */
static bool lose_first(StageChain *chain, Classes *classes, uint64_t choice) {
  CallPlaces calls = find_segments(chain, classes, adding_kind(classes));
  CallPlace at;
  const ProgramCall *chosen = choose_call(classes, &calls, choice, &at);
  for (int i = 0; i < calls.list.n; i++) {
    ProgramCall *call = call_at(classes, calls.list.data[i]);
    if (calls.list.data[i].class != at.class || call->stage != chosen->stage ||
        call->is_first)
      continue;
    call->is_first = true;
    return true;
  }
  return false;
}

/* The last backward pass of a stage is not made, but for what it sends. */
static bool lose_last(StageChain *chain, Classes *classes, uint64_t choice) {
  CallPlaces calls = find_segments(chain, classes, adding_kind(classes));
  CallPlace at, last;
  const ProgramCall *call = choose_call(classes, &calls, choice, &at);
  int stage = call->stage;
  for (int i = 0; i < calls.list.n; i++)
    if (calls.list.data[i].class == at.class &&
        call_at(classes, calls.list.data[i])->stage == stage)
      last = calls.list.data[i];
  remove_call(classes, last);
  return true;
}

static bool lose_weights(StageChain *chain, Classes *classes, uint64_t choice) {
  CallPlaces calls = find_segments(chain, classes, TOKEN_weight_grad);
  CallPlace at;
  if (!choose_call(classes, &calls, choice, &at)) return false;
  remove_call(classes, at);
  return true;
}

static void insert_call(StageChain *chain, Classes *classes, CallPlace before,
                        ProgramCall call) {
  EntryPoint *entry = &classes->entries[before.class];
  vec_push(chain->module->arena, &entry->timeline, call);
  for (int i = entry->timeline.n - 1; i > before.at; i--)
    entry->timeline.data[i] = entry->timeline.data[i - 1];
  entry->timeline.data[before.at] = call;
}

static bool double_weights(StageChain *chain, Classes *classes,
                           uint64_t choice) {
  CallPlaces calls = find_segments(chain, classes, TOKEN_weight_grad);
  CallPlace at;
  const ProgramCall *call = choose_call(classes, &calls, choice, &at);
  if (!call) return false;
  ProgramCall again = *call;
  again.is_first = false;
  insert_call(chain, classes, (CallPlace){at.class, at.at + 1}, again);
  return true;
}

/* They come before the forward pass of their micro-batch. */
static bool early_weights(StageChain *chain, Classes *classes,
                          uint64_t choice) {
  CallPlaces calls = find_segments(chain, classes, TOKEN_weight_grad);
  CallPlaces forward = find_segments(chain, classes, TOKEN_forward);
  CallPlace at;
  const ProgramCall *call = choose_call(classes, &calls, choice, &at);
  if (!call) return false;
  ProgramCall moved = *call;
  for (int i = 0; i < forward.list.n; i++) {
    CallPlace to = forward.list.data[i];
    const ProgramCall *other = call_at(classes, to);
    if (to.class != at.class || other->stage != moved.stage ||
        other->registers[REGISTER_microbatch] !=
            moved.registers[REGISTER_microbatch])
      continue;
    remove_call(classes, at);
    insert_call(chain, classes, to, moved);
    return true;
  }
  return false;
}

static const GraphInput *input_called(const Graph *graph, const char *path) {
  for (int i = 0; i < graph->inputs.n; i++)
    if (strcmp(graph->inputs.data[i].path, path) == 0)
      return &graph->inputs.data[i];
  return NULL;
}

/* The owner does not add it. */
static bool lose_share(StageChain *chain, Classes *classes, uint64_t choice) {
  (void)choice, (void)classes;
  Graph *graph = (Graph *)chain->stages[0].graph;
  const GraphInput *share = input_called(graph, "share");
  for (int id = 0; share && id < graph->nodes.n; id++) {
    Node *node = graph->nodes.data[id];
    if (node->n_inputs != 2 || !value_equal(node->inputs[1], share->value))
      continue;
    node->op = OP_copy;
    node->n_inputs = 1;
    return true;
  }
  return false;
}

/* The update comes before the last backward pass. */
static bool update_early(StageChain *chain, Classes *classes, uint64_t choice) {
  CallPlaces calls = find_segments(chain, classes, TOKEN_update);
  CallPlace at;
  const ProgramCall *call = choose_call(classes, &calls, choice, &at);
  EntryPoint *entry = &classes->entries[at.class];
  int stage = call->stage, backward = -1;
  for (int i = 0; i < at.at; i++) {
    const ProgramCall *before = &entry->timeline.data[i];
    if (before->kind == CALL_segment && before->stage == stage &&
        entry_point_segment(entry, before)->kind == adding_kind(classes))
      backward = i;
  }
  if (backward < 0) return false;
  ProgramCall moved = entry->timeline.data[backward];
  for (int i = backward; i < at.at; i++)
    entry->timeline.data[i] = entry->timeline.data[i + 1];
  entry->timeline.data[at.at] = moved;
  return true;
}

/* A norm goes on without that of its stage. */
static bool change_norm(StageChain *chain, Classes *classes, uint64_t choice) {
  (void)classes;
  int s = (int)(choice % (uint64_t)(chain->n - 1)) + 1;
  Graph *graph = (Graph *)chain->stages[s].graph;
  for (int id = 0; id < graph->nodes.n; id++) {
    Node *node = graph->nodes.data[id];
    if (node->op != OP_add || node->types[0]->rank != 0) continue;
    Value *inputs = ARENA_ARRAY(chain->module->arena, Value, 2);
    inputs[0] = inputs[1] = node->inputs[choice & 1];
    node->inputs = inputs;
    return true;
  }
  return false;
}

/* A parameter of two stages is sent with its value of another step. */
static bool send_other(StageChain *chain, Classes *classes, uint64_t choice) {
  (void)choice, (void)classes;
  Graph *graph = (Graph *)chain->stages[0].graph;
  GraphOutput *sent = NULL;
  const GraphOutput *updated = NULL;
  for (int i = 0; i < graph->outputs.n; i++) {
    GraphOutput *output = &graph->outputs.data[i];
    if (strcmp(output->path, "shared") == 0) sent = output;
    if (output->role == ROLE_param) updated = output;
  }
  if (!sent) return false;
  sent->value = updated->value;
  return true;
}

static const struct {
  const char *name;
  Change *change;
} kinds[] = {
    {"a message is dropped", drop_message},
    {"a message is doubled", double_message},
    {"a message is of another micro-batch", swap_microbatches},
    {"a message is of another edge", swap_edges},
    {"a slot or frame is one off", shift_place},
    {"a slot or frame is used again early", reuse_early},
    {"the first micro-batch is not added", lose_first},
    {"the last micro-batch is not added", lose_last},
    {"the share of a common parameter is lost", lose_share},
    {"a received parameter is of another step", send_other},
    {"the update comes before the last reader", update_early},
    {"the norm is that of another stage", change_norm},
};

static const struct {
  const char *name;
  Change *change;
} weight_kinds[] = {
    {"weight gradients are lost", lose_weights},
    {"weight gradients are added twice", double_weights},
    {"weight gradients come early", early_weights},
};

enum { FAULTS_OF_KIND = 25, MOST_TRIES = 400 };

typedef const char *const Schedules[2];

static Shape shape_of_choice(Schedules schedules, uint64_t choice) {
  return (Shape){.schedule = schedules[choice & 1],
                 .n = 2 + (int)(choice / 2 % 3),
                 .m = 2 + (int)(choice / 6 % 5),
                 .form = 0,
                 .has_skip = choice / 2 % 3 > 0 && (choice / 30 & 1),
                 .has_shared = choice / 60 & 1};
}

typedef struct FaultCount {
  int n_tried, n_found;
} FaultCount;

static void try_fault(Schedules schedules, const char *name, Change *change,
                      int kind, uint64_t seed, FaultCount *count) {
  uint64_t choice = hash_bytes(&seed, sizeof seed, (uint64_t)kind) >> 8;
  Shape shape = shape_of_choice(schedules, choice);
  Numbers numbers = {.number = INTERP_exact, .seed = seed};
  bool is_changed = false;
  Played wanted = reference_of(&shape, &numbers);
  Played played = play(&shape, &numbers, change, choice / 120, &is_changed);
  bool is_found = played.memory_fault || played.message_fault ||
                  !are_equal(&numbers, &played, &wanted);
  count->n_tried += is_changed;
  count->n_found += is_changed && is_found;
  cr_expect(is_found || !is_changed,
            "%s: not found: %s of %d stages, %d micro-batches, seed %d", name,
            shape.schedule, shape.n, shape.m, (int)seed);
  modules_destroy();
}

static void try_faults(Schedules schedules, const char *name, Change *change,
                       int kind) {
  FaultCount count = {0};
  for (uint64_t seed = 1; seed < MOST_TRIES; seed++)
    if (count.n_tried < FAULTS_OF_KIND)
      try_fault(schedules, name, change, kind, seed, &count);
  cr_expect_eq(count.n_tried, FAULTS_OF_KIND, "%s: %d", name, count.n_tried);
  cr_expect_eq(count.n_found, count.n_tried, "%s: %d of %d", name,
               count.n_found, count.n_tried);
}

Test(play_stages, faults_are_found) {
  static Schedules schedules = {"fthenb", "1f1b"};
  for (int k = 0; k < ARRAY_LENGTH(kinds); k++)
    try_faults(schedules, kinds[k].name, kinds[k].change, k);
}

Test(play_stages, faults_of_weight_gradients_are_found) {
  static Schedules schedules = {"zbh1", "zb1p"};
  int n = ARRAY_LENGTH(kinds);
  for (int k = 0; k < n; k++)
    try_faults(schedules, kinds[k].name, kinds[k].change, k);
  for (int k = 0; k < ARRAY_LENGTH(weight_kinds); k++)
    try_faults(schedules, weight_kinds[k].name, weight_kinds[k].change, n + k);
}
