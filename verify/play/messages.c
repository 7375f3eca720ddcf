/*
 * messages.c -- runs the programs of several classes of ranks, each on a player
 * of its own, and carries their messages.
 *
 *     ranks 0..1  F0 send y  F1 send y  ...       a mailbox for each edge: the
 *     ranks 2..3  receive y  F0 send z  ...       first that is sent is the
 *                                                 first that is received
 *
 * A message can move from when both sides have come to it until one of them
 * waits for it.  When it does is chosen by the seed, and so is when its bytes
 * are read: so a place that is used again too early gives wrong values.  A call
 * waits for what it reads, and before it writes a value again for the last
 * message of it.  Which class goes on is chosen by the seed, too.
 */
#include "verify/play/internal.h"

#include <string.h>

/* One side of a message. */
typedef struct MessageEnd {
  Player *player; /* NULL means that it has not come yet */
  int stage;
  int registers[N_REGISTERS];
  int unit; /* of a call of periods */
  Value value;
  int number; /* among the messages that the player lists */
} MessageEnd;

typedef struct Message {
  MessageEnd from, to;
  bool is_read, has_moved;
  /* The numbers: an array for each class of ranks. */
  int n_classes;
  const int *of_rank;
  size_t rank_bytes; /* of each array */
  unsigned char *data;
} Message;

typedef struct Mailbox {
  VEC(Message *) messages; /* in the order in which they are sent */
  int n_sent, n_received;
} Mailbox;

/* A class and where it is in its timeline. */
typedef struct Runner {
  Player *player;
  const EntryPoint *entry;
  int at;
} Runner;

typedef struct PlayRun {
  Arena *arena;
  int n;
  Runner *runners;
  /* Replicas of stages are classes of their own: an edge has a mailbox for each
   * pair of classes, else one. */
  bool is_divided;
  int n_boxes;    /* of an edge */
  Mailbox *boxes; /* by edge */
  uint64_t seed, n_choices;
  const PlayHooks *hooks; /* or NULL */
} PlayRun;

static uint64_t choose(PlayRun *run) {
  run->n_choices++;
  return hash_bytes(&run->n_choices, sizeof run->n_choices, run->seed) >> 8;
}

static const ProgramEdge *edge_at(const PlayRun *run, int edge) {
  return &run->runners[0].entry->edges.data[edge];
}

/* "'x' of edge 1 (stage 0 to stage 2)". */
static const char *edge_text(const PlayRun *run, int edge) {
  const ProgramEdge *of = edge_at(run, edge);
  return arena_printf(run->arena, "'%s' of edge %d (stage %d to stage %d)",
                      of->path, edge, of->from, of->to);
}

/* ---- one message ---- */

static Message *message_at(PlayRun *run, Mailbox *box, int number) {
  while (box->messages.n <= number)
    vec_push(run->arena, &box->messages, ARENA_NEW(run->arena, Message));
  return box->messages.data[number];
}

/* Goes to an end; its values lie where they lay when it was come to. */
static void go_to(const MessageEnd *end) {
  play_set_registers(end->player, end->stage, end->registers);
}

static const Type *type_of(const MessageEnd *end) {
  const PlayStage *stage = &end->player->program->stages[end->stage];
  return graph_type(stage->local, end->value);
}

static void read_message(PlayRun *run, Message *message) {
  Player *player = message->from.player;
  if (message->is_read) return;
  go_to(&message->from);
  play_wait_for(player, player->frame, message->from.value);
  play_check(player, player->frame, message->from.value, "a message");
  ShardView view = play_read(player, player->frame, message->from.value);
  int64_t n = type_elements(type_of(&message->from));
  size_t bytes = (size_t)n * view.shards->size_bytes;
  const RankClasses *classes = view.shards->classes;
  message->is_read = true;
  message->n_classes = classes->n;
  message->rank_bytes = bytes;
  message->of_rank = arena_copy(run->arena, classes->of_rank,
                                (size_t)player->options.ranks * sizeof(int));
  message->data = arena_alloc(run->arena, bytes * (size_t)classes->n);
  for (int c = 0; c < classes->n; c++)
    memcpy(message->data + bytes * (size_t)c,
           (const unsigned char *)shards_of_class(view.shards, c) +
               (size_t)view.first * view.shards->size_bytes,
           bytes);
  play_release(player, view);
}

/* Pieces stay inside of the values of both sides. */
static bool pieces_fit(const PlayRun *run, const Message *message, int edge) {
  const EdgePieces *pieces = &edge_at(run, edge)->pieces;
  int64_t n_from = type_elements(type_of(&message->from)),
          n_to = type_elements(type_of(&message->to));
  for (int i = 0; i < pieces->n; i++) {
    const EdgePiece *piece = &pieces->data[i];
    if (piece->from >= message->from.player->options.ranks ||
        piece->to >= message->to.player->options.ranks)
      return false;
    for (int r = 0; r < piece->n_runs; r++)
      if (piece->from_at[r] + piece->run > n_from ||
          piece->to_at[r] + piece->run > n_to)
        return false;
  }
  return true;
}

/* Nothing is sharded over replicas: a piece is all of a value. */
static bool has_pieces_of(const PlayRun *run, int edge) {
  return edge_at(run, edge)->pieces.n > 0 && !run->is_divided;
}

static bool is_alike(const PlayRun *run, const Message *message, int edge) {
  const Type *from = type_of(&message->from), *to = type_of(&message->to);
  Player *player = message->to.player;
  bool has_pieces = has_pieces_of(run, edge);
  bool is_alike = from->dtype == to->dtype &&
                  (has_pieces ? pieces_fit(run, message, edge)
                              : type_elements(from) == type_elements(to) &&
                                    message->from.player->options.ranks ==
                                        player->options.ranks);
  if (!is_alike && !player->message_fault) {
    go_to(&message->to);
    player->message_fault = arena_printf(
        player->arena,
        "%s is sent with other bytes or dtype than it is received%s",
        edge_text(run, edge), play_where(player));
  }
  return is_alike;
}

/* Returns the numbers that a rank has sent. */
static const unsigned char *sent_by(const Message *message, int rank) {
  size_t bytes = message->rank_bytes;
  return message->data + bytes * (size_t)message->of_rank[rank];
}

/* The ranks of the receiver have what pieces bring them, and else nothing. */
static Shards *join_pieces(const PlayRun *run, const Message *message,
                           int edge) {
  Player *to = message->to.player;
  const EdgePieces *pieces = &edge_at(run, edge)->pieces;
  const Type *type = type_of(&message->to);
  int n_ranks = to->options.ranks;
  Arena *scratch = arena_beside(run->arena);
  uint64_t *keys = ARENA_ARRAY(scratch, uint64_t, n_ranks);
  for (int rank = 0; rank < n_ranks; rank++) keys[rank] = (uint64_t)rank;
  Shards *shards = shards_create(to, classes_of_keys(to, keys), type->dtype,
                                 type_elements(type));
  size_t item = shards->size_bytes;
  play_poison(to, type->dtype, shards_of_class(shards, 0), shards->n);
  for (int c = 1; c < n_ranks; c++)
    memcpy(shards_of_class(shards, c), shards_of_class(shards, 0),
           (size_t)shards->n * item);
  for (int i = 0; i < pieces->n; i++) {
    const EdgePiece *piece = &pieces->data[i];
    int of_class = shards->classes->of_rank[piece->to];
    for (int r = 0; r < piece->n_runs; r++)
      memcpy((char *)shards_of_class(shards, of_class) +
                 (size_t)piece->to_at[r] * item,
             sent_by(message, piece->from) + (size_t)piece->from_at[r] * item,
             (size_t)piece->run * item);
  }
  arena_destroy(scratch);
  return shards_merged(to, shards);
}

static Shards *whole_shards(const PlayRun *run, const Message *message) {
  Player *to = message->to.player;
  const Type *type = type_of(&message->to);
  Arena *scratch = arena_beside(run->arena);
  uint64_t *keys = ARENA_ARRAY(scratch, uint64_t, to->options.ranks);
  for (int rank = 0; rank < to->options.ranks; rank++)
    keys[rank] = (uint64_t)message->of_rank[rank];
  const RankClasses *classes = classes_of_keys(to, keys);
  Shards *shards = shards_create(to, classes, type->dtype, type_elements(type));
  for (int c = 0; c < classes->n; c++)
    memcpy(shards_of_class(shards, c), sent_by(message, classes->first[c]),
           (size_t)shards->n * shards->size_bytes);
  arena_destroy(scratch);
  return shards;
}

static void move_message(PlayRun *run, int edge, Message *message) {
  Player *to = message->to.player;
  if (message->has_moved) return;
  message->has_moved = true;
  if (!is_alike(run, message, edge)) return;
  read_message(run, message);
  go_to(&message->to);
  Shards *shards = has_pieces_of(run, edge) ? join_pieces(run, message, edge)
                                            : whole_shards(run, message);
  play_check(to, to->frame, message->to.value, "the message itself");
  play_put(to, to->frame, message->to.value, shards);
  shards_release(to, shards);
}

/* ---- calls ---- */

/* False: the stage has no such value. */
static bool find_sent(const Graph *graph, Name path, Value *out) {
  for (int i = 0; i < graph->outputs.n; i++)
    if (graph->outputs.data[i].role == ROLE_send &&
        graph->outputs.data[i].path == path) {
      *out = graph->outputs.data[i].value;
      return true;
    }
  return false;
}

static bool find_received(const Graph *graph, Name path, Value *out) {
  const GraphInput *input = graph_find_input(graph, ROLE_receive, path);
  if (input) *out = input->value;
  return input != NULL;
}

static MessageEnd end_of_call(const PlayRun *run, const Runner *runner,
                              const ProgramCall *call, int stage, bool sends) {
  MessageEnd end = {
      .player = runner->player, .stage = stage, .unit = call->unit};
  memcpy(end.registers, call->registers, sizeof end.registers);
  go_to(&end);
  const Graph *graph = runner->player->stage->graph;
  Name path = edge_at(run, call->edge)->path;
  bool is_there = sends ? find_sent(graph, path, &end.value)
                        : find_received(graph, path, &end.value);
  ASSERT(is_there);
  return end;
}

/* The tables of periods have the messages of one. */
static bool is_listed(const Runner *runner) {
  const PlayProgram *program = runner->player->program;
  int at = runner->at - 1;
  return !runner->entry->is_period ||
         (program->first_listed <= at && at < program->end_listed);
}

/* Lists a message of a class, as PlayOptions asks for; the peer is filled in
 * where both sides meet, but for replicas, whose call finds the mailbox. */
static void list_message(const PlayRun *run, const Runner *runner,
                         const ProgramCall *call, bool is_sent,
                         MessageEnd *end) {
  int edge = call->edge;
  PlayMessages *messages = end->player->options.messages;
  const Type *type = type_of(end);
  end->number = -1;
  if (!messages || !is_listed(runner)) return;
  PlayEdgeMessage listed = {.path = edge_at(run, edge)->path,
                            .edge = edge,
                            .is_sent = is_sent,
                            .peer = run->is_divided ? call->peer : 0,
                            .pieces = edge_at(run, edge)->pieces,
                            .bytes = type_elements(type) *
                                     dtype_size_bytes(type->dtype),
                            .dtype = type->dtype};
  end->number = messages->between.n;
  vec_push(messages->arena, &messages->between, listed);
}

static void fill_peer(const MessageEnd *own, const MessageEnd *other) {
  PlayMessages *messages = own->player->options.messages;
  if (messages && own->number >= 0)
    messages->between.data[own->number].peer =
        other->player->options.first_rank - own->player->options.first_rank;
}

/* Both have come: it moves at once, or when somebody waits for it. */
static void meet(PlayRun *run, int edge, Message *message) {
  if (!message->from.player || !message->to.player) return;
  if (!run->is_divided) {
    fill_peer(&message->from, &message->to);
    fill_peer(&message->to, &message->from);
  }
  if (choose(run) & 1) move_message(run, edge, message);
}

/* The class that has a rank; -1: none. */
static int class_of_rank(const PlayRun *run, int rank) {
  for (int i = 0; i < run->n; i++)
    if (run->runners[i].player->options.first_rank == rank) return i;
  return -1;
}

/* Calls `next` with each mailbox of a call: of replicas that of the unit, or
 * without periods one for each piece that is of this rank. */
static void for_each_box(PlayRun *run, const Runner *runner,
                         const ProgramCall *call, bool sends,
                         void (*next)(PlayRun *, const Runner *,
                                      const ProgramCall *, Mailbox *)) {
  const ProgramEdge *edge = edge_at(run, call->edge);
  Mailbox *boxes = &run->boxes[call->edge * run->n_boxes];
  int own = (int)(runner - run->runners);
  int rank = runner->player->options.first_rank;
  if (!run->is_divided) {
    next(run, runner, call, boxes);
    return;
  }
  bool has_peer = runner->entry->is_period || edge->pieces.n == 0;
  for (int i = 0; i < (has_peer ? 1 : edge->pieces.n); i++) {
    const EdgePiece *piece = has_peer ? NULL : &edge->pieces.data[i];
    int from = piece ? edge->from_rank + piece->from : 0;
    int to = piece ? edge->to_rank + piece->to : 0;
    if (piece && (sends ? from : to) != rank) continue;
    int other =
        class_of_rank(run, has_peer ? rank + call->peer : (sends ? to : from));
    if (other >= 0)
      next(run, runner, call,
           &boxes[sends ? own * run->n + other : other * run->n + own]);
  }
}

static void send_to(PlayRun *run, const Runner *runner, const ProgramCall *call,
                    Mailbox *box) {
  Message *message = message_at(run, box, box->n_sent++);
  message->from = end_of_call(run, runner, call, call->stage, true);
  message->from.number = -1;
  if (!run->is_divided) list_message(run, runner, call, true, &message->from);
  if (choose(run) & 1) read_message(run, message);
  meet(run, call->edge, message);
}

/* Its bytes belong to the message from here on. */
static void receive_from(PlayRun *run, const Runner *runner,
                         const ProgramCall *call, Mailbox *box) {
  Message *message = message_at(run, box, box->n_received++);
  message->to = end_of_call(run, runner, call, call->stage, false);
  message->to.number = -1;
  if (!run->is_divided) list_message(run, runner, call, false, &message->to);
  play_stamp(runner->player, runner->player->frame, message->to.value);
  play_poison_value(runner->player, runner->player->frame, message->to.value);
  meet(run, call->edge, message);
}

/* A call of a replica is listed once, for whichever ranks it is. */
static void exchange(PlayRun *run, const Runner *runner,
                     const ProgramCall *call) {
  bool sends = call->kind == CALL_send;
  if (run->is_divided) {
    MessageEnd end = end_of_call(run, runner, call, call->stage, sends);
    list_message(run, runner, call, sends, &end);
  }
  for_each_box(run, runner, call, sends, sends ? send_to : receive_from);
}

/* The rank has both stages. */
static void pass(PlayRun *run, const Runner *runner, const ProgramCall *call) {
  int to = 0;
  while (runner->entry->stages.data[to].number != edge_at(run, call->edge)->to)
    to++;
  Message message = {.from = end_of_call(run, runner, call, call->stage, true),
                     .to = end_of_call(run, runner, call, to, false)};
  read_message(run, &message);
  go_to(&message.to);
  play_stamp(runner->player, runner->player->frame, message.to.value);
  move_message(run, call->edge, &message);
}

/* ---- waits ---- */

/* The message is of the unit, or micro-batch, of the call. */
static bool is_of_call(const EntryPoint *entry, const MessageEnd *end,
                       const ProgramCall *call) {
  if (entry->is_period) return end->unit == call->unit;
  return end->registers[REGISTER_microbatch] ==
         call->registers[REGISTER_microbatch];
}

/* Calls `next` for each message that a call waits for: false, if one of them
 * can not move yet. */
static bool for_each_wait(PlayRun *run, const Runner *runner,
                          const ProgramCall *call,
                          bool (*next)(PlayRun *, int edge, Message *)) {
  const EntryPoint *entry = runner->entry;
  const ProgramStage *stage = &entry->stages.data[call->stage];
  const ProgramSegment *segment = entry_point_segment(entry, call);
  for (int e = 0; e < entry->edges.n; e++) {
    const ProgramEdge *edge = &entry->edges.data[e];
    bool reads = segment_reads_edge(stage, segment, edge);
    bool writes = segment_writes_edge(stage, segment, edge);
    for (int b = 0; b < run->n_boxes && (reads || writes); b++) {
      const Mailbox *box = &run->boxes[e * run->n_boxes + b];
      for (int i = 0; i < box->messages.n; i++) {
        Message *message = box->messages.data[i];
        bool is_read =
            reads && message->to.player == runner->player &&
            (edge->is_of_step || is_of_call(entry, &message->to, call));
        bool is_written = writes && message->from.player == runner->player;
        if ((is_read || is_written) && !next(run, e, message)) return false;
      }
    }
  }
  return true;
}

static bool can_move(PlayRun *run, int edge, Message *message) {
  (void)run, (void)edge;
  return message->has_moved || (message->from.player && message->to.player);
}

static bool wait_for(PlayRun *run, int edge, Message *message) {
  if (!message->has_moved) move_message(run, edge, message);
  return true;
}

/* Finds a message of the class that has not met its other side. */
static bool find_lonely(const PlayRun *run, const Runner *runner, int *out_edge,
                        const MessageEnd **out_end) {
  for (int b = 0; b < runner->entry->edges.n * run->n_boxes; b++)
    for (int i = 0; i < run->boxes[b].messages.n; i++) {
      const Message *message = run->boxes[b].messages.data[i];
      bool is_sent = message->from.player == runner->player;
      *out_edge = b / run->n_boxes;
      *out_end = is_sent ? &message->from : &message->to;
      if ((*out_end)->player == runner->player &&
          !(message->from.player && message->to.player))
        return true;
    }
  return false;
}

/* ---- the run ---- */

/* The call at hand; NULL: its timeline has ended. */
static const ProgramCall *call_at(const Runner *runner) {
  return runner->at < runner->entry->timeline.n
             ? &runner->entry->timeline.data[runner->at]
             : NULL;
}

static TokenKind kind_of_call(const Runner *runner, const ProgramCall *call) {
  return entry_point_segment(runner->entry, call)->kind;
}

/* An update that adds up the gradients of replicas. */
static bool is_shared(const PlayRun *run, const Runner *runner,
                      const ProgramCall *call) {
  return run->is_divided && runner->entry->is_period &&
         runner->entry->stages.data[0].n_ranks > 1 && call &&
         call->kind == CALL_segment &&
         kind_of_call(runner, call) == TOKEN_update;
}

/* The class of the first replica of the stage. */
static Runner *first_replica(PlayRun *run, const Runner *runner) {
  int first = runner->entry->stages.data[0].first_rank;
  return &run->runners[class_of_rank(run, first)];
}

/* All replicas have come to the update of one group. */
static bool have_all_come(PlayRun *run, const Runner *runner,
                          const ProgramCall *call) {
  const Runner *first = first_replica(run, runner);
  for (int i = 0; i < runner->entry->stages.data[0].n_ranks; i++) {
    const ProgramCall *own = call_at(&first[i]);
    if (!is_shared(run, &first[i], own) ||
        own->unit - own->replica != call->unit - call->replica ||
        !for_each_wait(run, &first[i], own, can_move))
      return false;
  }
  return true;
}

static bool can_go_on(PlayRun *run, const Runner *runner) {
  const ProgramCall *call = call_at(runner);
  if (!call) return false;
  if (is_shared(run, runner, call)) return have_all_come(run, runner, call);
  return call->kind != CALL_segment ||
         for_each_wait(run, runner, call, can_move);
}

static void begin_segment(PlayRun *run, const Runner *runner,
                          const ProgramCall *call) {
  player_enter(runner->player, call);
  runner->player->lists_messages = is_listed(runner);
  if (run->hooks)
    run->hooks->before(run->hooks->user, (int)(runner - run->runners), call);
}

static void end_segment(PlayRun *run, const Runner *runner,
                        const ProgramCall *call) {
  player_enter(runner->player, call);
  if (runner->entry->is_period && kind_of_call(runner, call) == TOKEN_update)
    play_hand_over(runner->player);
  if (run->hooks)
    run->hooks->after(run->hooks->user, (int)(runner - run->runners), call);
}

static void go_on_with_segment(PlayRun *run, const Runner *runner,
                               const ProgramCall *call) {
  begin_segment(run, runner, call);
  if (call->when == PERIOD_missing)
    play_clears(runner->player, call);
  else
    play_segment(runner->player, call);
  end_segment(run, runner, call);
}

/* The replicas make their updates together. */
static void go_on_with_update(PlayRun *run, const Runner *runner) {
  Runner *first = first_replica(run, runner);
  int n = runner->entry->stages.data[0].n_ranks;
  Player **players = ARENA_ARRAY(run->arena, Player *, n);
  const ProgramCall **calls = ARENA_ARRAY(run->arena, const ProgramCall *, n);
  for (int i = 0; i < n; i++) {
    players[i] = first[i].player;
    calls[i] = call_at(&first[i]);
    first[i].at++;
    for_each_wait(run, &first[i], calls[i], wait_for);
    begin_segment(run, &first[i], calls[i]);
  }
  play_updates(players, calls, n);
  for (int i = 0; i < n; i++) end_segment(run, &first[i], calls[i]);
}

static void go_on(PlayRun *run, Runner *runner) {
  const ProgramCall *call = call_at(runner);
  if (is_shared(run, runner, call)) {
    go_on_with_update(run, runner);
    return;
  }
  runner->at++;
  switch (call->kind) {
  case CALL_send:
  case CALL_receive: exchange(run, runner, call); break;
  case CALL_pass: pass(run, runner, call); break;
  case CALL_segment:
    for_each_wait(run, runner, call, wait_for);
    go_on_with_segment(run, runner, call);
    break;
  }
}

/* Returns a class that can go on.  Returns NULL if there is none. */
static Runner *choose_runner(PlayRun *run) {
  int first = (int)(choose(run) % (uint64_t)run->n);
  for (int i = 0; i < run->n; i++) {
    Runner *runner = &run->runners[(first + i) % run->n];
    if (can_go_on(run, runner)) return runner;
  }
  return NULL;
}

static bool has_ended(const Runner *runner) {
  return runner->at == runner->entry->timeline.n;
}

/* Reports a class that cannot end. */
static void note_waiting(PlayRun *run, const Runner *runner) {
  Player *player = runner->player;
  const MessageEnd *end;
  int edge;
  bool is_lonely = find_lonely(run, runner, &edge, &end);
  if ((has_ended(runner) && !is_lonely) || player->message_fault) return;
  if (is_lonely) {
    bool is_sent = edge_at(run, edge)->from ==
                   runner->entry->stages.data[end->stage].number;
    go_to(end);
    player->message_fault =
        arena_printf(player->arena, "%s is %s but not %s%s",
                     edge_text(run, edge), is_sent ? "sent" : "received",
                     is_sent ? "received" : "sent", play_where(player));
    return;
  }
  const ProgramCall *call = &runner->entry->timeline.data[runner->at];
  play_set_registers(player, call->stage, call->registers);
  player->message_fault = arena_printf(player->arena, "a call waits for ever%s",
                                       play_where(player));
}

static void end_run(PlayRun *run) {
  for (int b = 0; b < run->runners[0].entry->edges.n * run->n_boxes; b++)
    for (int i = 0; i < run->boxes[b].messages.n; i++) {
      Message *message = run->boxes[b].messages.data[i];
      if (message->from.player && message->to.player)
        move_message(run, b / run->n_boxes, message);
    }
  for (int r = 0; r < run->n; r++) {
    note_waiting(run, &run->runners[r]);
    if (has_ended(&run->runners[r])) play_end(run->runners[r].player);
  }
}

void players_run_watched(Player *const *players, int n,
                         const PlayHooks *hooks) {
  Arena *arena = arena_beside(players[0]->arena);
  PlayRun run = {.arena = arena,
                 .n = n,
                 .hooks = hooks,
                 .runners = ARENA_ARRAY(arena, Runner, n),
                 .seed = players[0]->options.seed + 2};
  for (int i = 0; i < n; i++)
    run.runners[i] =
        (Runner){.player = players[i], .entry = &players[i]->program->entry};
  for (int i = 0; i < n; i++)
    run.is_divided |= players[i]->program->entry.stages.data[0].n_ranks >
                          players[i]->options.ranks &&
                      players[i]->program->n_ranks == 1;
  run.n_boxes = run.is_divided ? n * n : 1;
  run.boxes =
      ARENA_ARRAY(arena, Mailbox, run.runners[0].entry->edges.n * run.n_boxes);
  for (Runner *runner; (runner = choose_runner(&run));) go_on(&run, runner);
  end_run(&run);
  arena_destroy(arena);
}

void players_run(Player *const *players, int n) {
  players_run_watched(players, n, NULL);
}

void player_run(Player *player) {
  players_run(&player, 1);
}
