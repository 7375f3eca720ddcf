// links: verify driver codegen frontend passes runtime price interp ir support
/*
 * stage_faults.c -- puts faults into programs of several stages by seed.  Each
 * must be found: the player names it, or the numbers are others than those of
 * one stage that computes all of it.
 */
#include "tests/unit/play_chain.h"

TestSuite(stage_faults, .fini = modules_destroy);

/* ---- calls ---- */

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

/* ---- sums over ranks ---- */

static bool has_sum(Classes *classes, CallPlace place) {
  const EntryPoint *entry = &classes->entries[place.class];
  const ProgramCall *call = call_at(classes, place);
  const ProgramSegment *segment = entry_point_segment(entry, call);
  const Graph *graph = entry->stages.data[call->stage].graph;
  for (int id = segment->first_node; id < segment->end_node; id++)
    if (graph->nodes.data[id]->op == OP_all_reduce) return true;
  return false;
}

/* The ranks of a stage add gradients before the last micro-batch has come. */
static bool reduce_early(StageChain *chain, Classes *classes, uint64_t choice) {
  CallPlaces updates = find_segments(chain, classes, TOKEN_update);
  CallPlaces adding = find_segments(chain, classes, adding_kind(classes));
  CallPlaces sums = {.arena = updates.arena};
  CallPlace at, last = {-1, -1};
  for (int i = 0; i < updates.list.n; i++)
    if (has_sum(classes, updates.list.data[i]))
      vec_push(sums.arena, &sums.list, updates.list.data[i]);
  const ProgramCall *call = choose_call(classes, &sums, choice, &at);
  if (!call) return false;
  for (int i = 0; i < adding.list.n; i++)
    if (adding.list.data[i].class == at.class &&
        call_at(classes, adding.list.data[i])->stage == call->stage)
      last = adding.list.data[i];
  if (last.at < 0 || last.at > at.at) return false;
  ProgramCall moved = *call;
  remove_call(classes, at);
  insert_call(chain, classes, last, moved);
  return true;
}

/* ---- stages of a rank ---- */

/* Marks the first call of each segment and message of a rank. */
static void mark_first(StageChain *chain, EntryPoint *entry) {
  Map *seen = map_create(chain->module->arena);
  for (int i = 0; i < entry->timeline.n; i++) {
    ProgramCall *call = &entry->timeline.data[i];
    int64_t key = call->kind == CALL_segment
                      ? 1 + call->stage * 100 + call->segment
                      : -1 - call->edge;
    call->is_first = !map_has(seen, (const void *)(intptr_t)key);
    map_put(seen, (const void *)(intptr_t)key, call);
  }
}

/* Frames and slots that the stage does not have would be elsewhere. */
static void fit_registers(const EntryPoint *entry, ProgramCall *call) {
  const ProgramStage *stage = &entry->stages.data[call->stage];
  for (int r = REGISTER_frame; r < N_REGISTERS; r++) {
    int n = stage_places(stage, (ProgramRegister)r);
    call->registers[r] = n > 0 ? call->registers[r] % n : 0;
  }
}

static void exchange_ints(int *a, int *b) {
  int value = *a;
  *a = *b;
  *b = value;
}

static TokenKind kind_of(Classes *classes, CallPlace place) {
  return entry_point_segment(&classes->entries[place.class],
                             call_at(classes, place))
      ->kind;
}

/* Two calls of a rank could be taken for each other: passes of two stages, or
 * messages of two stages to one rank. */
static bool are_confused(Classes *classes, CallPlace x, CallPlace y) {
  const ProgramCall *a = call_at(classes, x), *b = call_at(classes, y);
  if (x.class != y.class || a->kind != b->kind || a->stage == b->stage ||
      a->registers[REGISTER_microbatch] == b->registers[REGISTER_microbatch])
    return false;
  if (a->kind == CALL_segment)
    return kind_of(classes, x) == kind_of(classes, y) &&
           kind_of(classes, x) != TOKEN_update;
  const ProgramEdge *p = edge_of(classes, a), *q = edge_of(classes, b);
  return a->peer == b->peer && !p->is_of_step && !q->is_of_step &&
         type_equal(p->type, q->type);
}

static void exchange_stages(StageChain *chain, Classes *classes, CallPlace x,
                            CallPlace y) {
  EntryPoint *entry = &classes->entries[x.class];
  ProgramCall *a = call_at(classes, x), *b = call_at(classes, y);
  exchange_ints(&a->stage, &b->stage);
  exchange_ints(&a->segment, &b->segment);
  exchange_ints(&a->edge, &b->edge);
  fit_registers(entry, a);
  fit_registers(entry, b);
  mark_first(chain, entry);
}

static bool confuse_calls(StageChain *chain, Classes *classes, uint64_t choice,
                          ProgramCallKind kind, CallPlace out[2]) {
  CallPlaces calls = find_calls(chain, classes, kind);
  uint64_t n = (uint64_t)calls.list.n;
  for (uint64_t i = 0; i < n * n; i++) {
    uint64_t pair = (choice + i) % (n * n);
    out[0] = calls.list.data[pair / n];
    out[1] = calls.list.data[pair % n];
    if (!are_confused(classes, out[0], out[1])) continue;
    exchange_stages(chain, classes, out[0], out[1]);
    return true;
  }
  return false;
}

/* A call computes another stage of its rank. */
static bool exchange_passes(StageChain *chain, Classes *classes,
                            uint64_t choice) {
  CallPlace places[2];
  return confuse_calls(chain, classes, choice, CALL_segment, places);
}

/* One side takes the message of one stage of its rank for that of another. */
static bool exchange_side(StageChain *chain, Classes *classes,
                          uint64_t choice) {
  CallPlace places[2];
  return confuse_calls(chain, classes, choice >> 1,
                       choice & 1 ? CALL_send : CALL_receive, places);
}

static CallPlace place_of_message(StageChain *chain, Classes *classes, int edge,
                                  int microbatch) {
  CallPlaces calls = find_calls(chain, classes, CALL_receive);
  for (int i = 0; i < calls.list.n; i++) {
    const ProgramCall *call = call_at(classes, calls.list.data[i]);
    if (call->edge == edge &&
        call->registers[REGISTER_microbatch] == microbatch)
      return calls.list.data[i];
  }
  cr_assert_fail("edge %d has no micro-batch %d", edge, microbatch);
  return (CallPlace){-1, -1};
}

/* Both sides do, so that nobody waits. */
static bool exchange_messages(StageChain *chain, Classes *classes,
                              uint64_t choice) {
  CallPlace sent[2], received[2];
  if (!confuse_calls(chain, classes, choice, CALL_send, sent)) return false;
  const ProgramCall *a = call_at(classes, sent[0]);
  const ProgramCall *b = call_at(classes, sent[1]);
  received[0] = place_of_message(chain, classes, b->edge,
                                 a->registers[REGISTER_microbatch]);
  received[1] = place_of_message(chain, classes, a->edge,
                                 b->registers[REGISTER_microbatch]);
  exchange_stages(chain, classes, received[0], received[1]);
  return true;
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

static const struct {
  const char *name;
  Change *change;
} chunk_kinds[] = {
    {"a call is of another stage of its rank", exchange_passes},
    {"a message is of another stage on one side", exchange_side},
    {"a message is of another stage on both sides", exchange_messages},
};

enum { FAULTS_OF_KIND = 25, NAMED_FAULTS = 40, MOST_TRIES = 400 };

typedef const char *const Schedules[2];

static Shape shape_of_choice(Schedules schedules, uint64_t choice) {
  return (Shape){.schedule = schedules[choice & 1],
                 .n = 2 + (int)(choice / 2 % 3),
                 .m = 2 + (int)(choice / 6 % 5),
                 .form = 0,
                 .has_skip = choice / 2 % 3 > 0 && (choice / 30 & 1),
                 .has_shared = choice / 60 & 1};
}

/* Stages whose ranks divide the samples of a micro-batch. */
static Shape shape_of_replicas(uint64_t choice) {
  static const char *const schedules[] = {"1f1b", "zbh1", "fthenb", "zb1p"};
  static const int microbatches[] = {2, 3, 4, 6};
  return (Shape){.schedule = schedules[choice % 4],
                 .n = 2 + (int)(choice / 4 % 3),
                 .m = microbatches[choice / 12 % 4],
                 .has_shared = choice / 48 & 1,
                 .is_sharded = true};
}

/* Four stages on two groups of ranks, in turn or on a V. */
static Shape shape_of_chunks(uint64_t choice) {
  static const char *const schedules[] = {"interleaved", "bfs",   "zb1p",
                                          "zbv",         "vhalf", "dualpipev"};
  int schedule = (int)(choice % 6);
  return (Shape){.schedule = schedules[schedule],
                 .n = 4,
                 .m = choice / 6 & 1 ? 4 : 6,
                 .form = schedule < 3 ? FORM_in_turn : FORM_vee,
                 .has_skip = choice / 12 & 1,
                 .has_shared = choice / 24 & 1};
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

/* ---- faults by name ---- */

/* The rules refuse the fault, or a player names the message that is wrong. */
static bool is_named(const Played *played) {
  const char *text = played->rules[0] ? played->rules : played->message_fault;
  return text && strstr(text, "stage ") && strstr(text, "micro-batch ");
}

typedef Shape ShapeMaker(uint64_t choice);

/* Makes as many faults of a kind.  A fault that is not named must change no
 * number. */
static void try_named(const char *name, ShapeMaker *make, Change *change) {
  int n_tried = 0;
  for (uint64_t seed = 1; seed < MOST_TRIES && n_tried < NAMED_FAULTS; seed++) {
    uint64_t choice = hash_bytes(&seed, sizeof seed, 1000) >> 8;
    Shape shape = make(choice);
    Numbers numbers = {.number = INTERP_exact, .seed = seed};
    bool is_changed = false;
    Played wanted = reference_of(&shape, &numbers);
    Played played = play(&shape, &numbers, change, choice / 120, &is_changed);
    n_tried += is_changed;
    cr_expect(!is_changed || is_named(&played),
              "%s: %s of %d stages, %d micro-batches, seed %d: %s%s, %s", name,
              shape.schedule, shape.n, shape.m, (int)seed, played.rules,
              played.message_fault ? played.message_fault : "",
              are_equal(&numbers, &played, &wanted) ? "equal"
                                                    : "other numbers");
    modules_destroy();
  }
  cr_expect_eq(n_tried, NAMED_FAULTS, "%s: %d", name, n_tried);
}

Test(stage_faults, sums_over_ranks_that_come_early_are_named) {
  try_named("ranks add gradients early", shape_of_replicas, reduce_early);
}

Test(stage_faults, stages_of_a_rank_that_are_confused_are_named) {
  for (int k = 0; k < ARRAY_LENGTH(chunk_kinds); k++)
    try_named(chunk_kinds[k].name, shape_of_chunks, chunk_kinds[k].change);
}

Test(stage_faults, are_found) {
  static Schedules schedules = {"fthenb", "1f1b"};
  for (int k = 0; k < ARRAY_LENGTH(kinds); k++)
    try_faults(schedules, kinds[k].name, kinds[k].change, k);
}

Test(stage_faults, of_weight_gradients_are_found) {
  static Schedules schedules = {"zbh1", "zb1p"};
  int n = ARRAY_LENGTH(kinds);
  for (int k = 0; k < n; k++)
    try_faults(schedules, kinds[k].name, kinds[k].change, k);
  for (int k = 0; k < ARRAY_LENGTH(weight_kinds); k++)
    try_faults(schedules, weight_kinds[k].name, weight_kinds[k].change, n + k);
}
