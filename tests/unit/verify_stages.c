// links: verify driver codegen frontend passes runtime ir support
/*
 * verify_stages.c -- plans of several stages are equal to one rank, and faults
 * in their programs and tables are refused, with rank, stage, edge and
 * micro-batch.
 */
#include "tests/unit/play_model.h"
#include "verify/play_layout.h"
#include "verify/verify_steps.h"

TestSuite(verify_stages, .fini = modules_destroy, .timeout = 300);

#define SYSTEM(name) "benchmarks/systems/" name ".dnn"
#define PLAN(name)   TEST_ROOT "/benchmarks/plans/" name ".plan"

/* ---- plans ---- */

static const PlayCase plans[] = {
    {.model = SYSTEM("mlp"), .plan = PLAN("pipe_mlp")},
    {.model = SYSTEM("mlp"), .plan = PLAN("pipe_mlp_zero")},
    {.model = SYSTEM("gpt"), .plan = PLAN("pipe_gpt")},
    {.model = SYSTEM("gpt"), .plan = PLAN("pipe_gpt_loops")},
    {.model = SYSTEM("gpt"), .plan = PLAN("pipe_gpt_tensor")},
    {.model = SYSTEM("gpt"), .sizes = "L=4", .plan = PLAN("pipe_gpt_four")},
    {.model = SYSTEM("moe"), .plan = PLAN("pipe_moe_naive")},
    {.model = SYSTEM("gpt"), .sizes = "L=4", .plan = PLAN("pipe_gpt_zbh1")},
    {.model = SYSTEM("gpt"), .sizes = "L=4", .plan = PLAN("pipe_gpt_zbv")},
    {.model = SYSTEM("gpt"),
     .sizes = "L=4 B=16",
     .plan = PLAN("pipe_gpt_dualpipev")},
    {.model = SYSTEM("mlp"), .sizes = "B=12", .plan = PLAN("pipe_mlp_thirds")},
    {.model = SYSTEM("gpt"), .sizes = "L=4", .plan = PLAN("pipe_gpt_turned")},
    {.model = SYSTEM("gpt"), .plan = PLAN("pipe_gpt_sequence")},
};

Test(verify_stages, plans_are_equal_on_all_ranks) {
  for (int i = 0; i < ARRAY_LENGTH(plans); i++)
    for (uint64_t seed = 1; seed <= 3; seed++) {
      PlayCase one = plans[i];
      one.seed = seed;
      VerifyReport report = play_case(&one);
      cr_expect_eq(report.equal, ANSWER_yes, "%s: %s %s %s", one.plan,
                   report.step, report.path, report.not_compared);
      cr_expect_eq(report.memory_ok, ANSWER_yes, "%s: %s", one.plan,
                   report.memory_fault);
      cr_expect(report.messages_match == ANSWER_yes &&
                    report.hang_free == ANSWER_yes,
                "%s: %s", one.plan, report.message_fault);
      cr_expect_eq(report.placement_ok, ANSWER_yes);
      cr_expect_gt(report.stages, 1);
      modules_destroy();
    }
}

/* ---- blocks ---- */

#define TWELVE_BLOCKS                                                          \
  .model = "models/chargpt.dnn", .sizes = "L=12 T=8",                          \
  .plan = TEST_ROOT "/tests/plans/two_stages.plan"

/* Each stage has a run of its own. */
Test(verify_stages, equal_blocks_of_a_stage_are_played_as_three) {
  static const PlayCase deep = {TWELVE_BLOCKS};
  VerifyReport report = play_case(&deep);
  cr_expect_eq(report.equal, ANSWER_yes, "%s %s", report.path,
               report.not_compared);
  cr_expect_str_eq(report.repeats ? report.repeats : "",
                   "block[0..5], block[6..11]");
}

/* Block 8 of the second stage is its third of six: it is not played where
 * blocks are folded. */
static void drop_in_block_8(void *user, const WatchedPass *pass) {
  bool *is_dropped = user;
  const Graph *graph = pass->graph;
  if (!pass_is_named(pass->row, "partition") || graph->mesh.n_axes == 0) return;
  for (int id = 0; id < graph->nodes.n; id++) {
    Node *node = graph->nodes.data[id];
    if (node->op != OP_all_reduce || !strstr(node->path, "block[8]")) continue;
    node->op = OP_copy;
    node->n_attrs = 0;
    *is_dropped = true;
    return;
  }
}

Test(verify_stages, a_fault_in_a_block_that_is_not_played_is_found) {
  bool is_dropped = false;
  PlayCase deep = {TWELVE_BLOCKS,
                   .watch = {.user = &is_dropped, .pass = drop_in_block_8}};
  VerifyReport report = play_case(&deep);
  cr_expect(is_dropped);
  cr_expect_null(report.repeats);
  cr_expect_eq(report.equal, ANSWER_no);
  cr_expect(report.path && strstr(report.path, "block[8]"), "%s", report.path);
}

/* ---- faults ---- */

/* A step of a program, in which a fault is put before it is played. */
typedef struct Faulty {
  Arena *arena;
  VerifySteps *steps;
  VerifyClass *classes; /* of the first training step */
  PlayMessages *played; /* by class; NULL before it is played */
} Faulty;

static EntryPoint *entry_of(const Faulty *f, int class) {
  return &f->classes[class].entry;
}

/* The number-th call of a kind of a class, of a micro-batch where that is not
 * -1; it must be there. */
static int find_call(const EntryPoint *entry, ProgramCallKind kind,
                     int microbatch) {
  int at = 0;
  while (
      entry->timeline.data[at].kind != kind ||
      (microbatch >= 0 &&
       (entry->edges.data[entry->timeline.data[at].edge].is_of_step ||
        entry->timeline.data[at].registers[REGISTER_microbatch] != microbatch)))
    cr_assert_lt(++at, entry->timeline.n);
  return at;
}

static void remove_call(EntryPoint *entry, int at) {
  entry->timeline.n--;
  for (int i = at; i < entry->timeline.n; i++)
    entry->timeline.data[i] = entry->timeline.data[i + 1];
}

static void drop_send(Faulty *f) {
  EntryPoint *entry = entry_of(f, 0);
  remove_call(entry, find_call(entry, CALL_send, 1));
}

static void drop_receive(Faulty *f) {
  EntryPoint *entry = entry_of(f, 1);
  remove_call(entry, find_call(entry, CALL_receive, 1));
}

static void drop_message(Faulty *f) {
  drop_send(f);
  drop_receive(f);
}

/* Micro-batches 0 and 1 are received in the slots of each other. */
static void exchange_slots(Faulty *f) {
  EntryPoint *entry = entry_of(f, 1);
  int *a = entry->timeline.data[find_call(entry, CALL_receive, 0)].registers;
  int *b = entry->timeline.data[find_call(entry, CALL_receive, 1)].registers;
  int slot = a[REGISTER_slot];
  cr_assert_neq(slot, b[REGISTER_slot]);
  a[REGISTER_slot] = b[REGISTER_slot];
  b[REGISTER_slot] = slot;
}

static int find_segment(const EntryPoint *entry, TokenKind kind) {
  int at = 0;
  while (entry->timeline.data[at].kind != CALL_segment ||
         entry_point_segment(entry, &entry->timeline.data[at])->kind != kind)
    cr_assert_lt(++at, entry->timeline.n);
  return at;
}

/* All micro-batches have one frame in the first stage. */
static void share_frame(Faulty *f) {
  EntryPoint *entry = entry_of(f, 0);
  cr_assert_gt(entry->stages.data[0].n_frames, 1);
  for (int i = 0; i < entry->timeline.n; i++)
    entry->timeline.data[i].registers[REGISTER_frame] = 0;
}

static void lose_backward(Faulty *f) {
  EntryPoint *entry = entry_of(f, 1);
  remove_call(entry, find_segment(entry, TOKEN_backward));
}

/* The first gradient is received before the first value is sent. */
static void receive_early(Faulty *f) {
  EntryPoint *entry = entry_of(f, 0);
  int to = find_call(entry, CALL_send, 0);
  int from = find_call(entry, CALL_receive, 0);
  ProgramCall call = entry->timeline.data[from];
  cr_assert_lt(to, from);
  for (int i = from; i > to; i--)
    entry->timeline.data[i] = entry->timeline.data[i - 1];
  entry->timeline.data[to] = call;
}

/* All messages of an edge, which have one row in the tables. */
static void change_peer(Faulty *f) {
  EntryPoint *entry = entry_of(f, 0);
  int edge = entry->timeline.data[find_call(entry, CALL_send, 1)].edge;
  for (int i = 0; i < entry->timeline.n; i++)
    entry->timeline.data[i].peer += entry->timeline.data[i].edge == edge;
}

static void change_bytes(Faulty *f) {
  if (f->played) f->played[1].between.data[2].bytes *= 2;
}

static void change_order(Faulty *f) {
  if (!f->played) return;
  PlayMessages *played = &f->played[0];
  int i = 0;
  while (played->between.data[i].edge == played->between.data[i + 1].edge) i++;
  PlayEdgeMessage first = played->between.data[i];
  played->between.data[i] = played->between.data[i + 1];
  played->between.data[i + 1] = first;
}

/* ---- stages of a rank ---- */

static bool has_sum(const EntryPoint *entry, const ProgramCall *call) {
  const ProgramSegment *segment = entry_point_segment(entry, call);
  const Graph *graph = entry->stages.data[call->stage].graph;
  for (int id = segment->first_node; id < segment->end_node; id++)
    if (graph->nodes.data[id]->op == OP_all_reduce) return true;
  return false;
}

/* Replicas of the last stage of rank 0 add gradients before its last backward
 * pass. */
static void reduce_early(Faulty *f) {
  EntryPoint *entry = entry_of(f, 0);
  int stage = entry->stages.n - 1, to = -1, from = -1;
  for (int i = 0; i < entry->timeline.n; i++) {
    const ProgramCall *call = &entry->timeline.data[i];
    if (call->kind != CALL_segment || call->stage != stage) continue;
    TokenKind kind = entry_point_segment(entry, call)->kind;
    if (kind == TOKEN_backward) to = i;
    if (kind == TOKEN_update && from < 0 && has_sum(entry, call)) from = i;
  }
  cr_assert(to >= 0 && from > to);
  ProgramCall moved = entry->timeline.data[from];
  for (int i = from; i > to; i--)
    entry->timeline.data[i] = entry->timeline.data[i - 1];
  entry->timeline.data[to] = moved;
}

/* Two calls of a rank, of different stages and micro-batches, are made in the
 * place of each other. */
static void exchange_stages(ProgramCall *a, ProgramCall *b) {
  ProgramCall call = *a;
  a->stage = b->stage, a->segment = b->segment, a->edge = b->edge;
  b->stage = call.stage, b->segment = call.segment, b->edge = call.edge;
}

static void exchange_passes(Faulty *f) {
  EntryPoint *entry = entry_of(f, 0);
  int first = -1;
  for (int i = 0; i < entry->timeline.n; i++) {
    ProgramCall *call = &entry->timeline.data[i];
    if (call->kind != CALL_segment ||
        entry_point_segment(entry, call)->kind != TOKEN_forward)
      continue;
    ProgramCall *before = first < 0 ? call : &entry->timeline.data[first];
    if (first < 0) first = i;
    if (call->stage == before->stage ||
        call->registers[REGISTER_microbatch] ==
            before->registers[REGISTER_microbatch])
      continue;
    exchange_stages(before, call);
    return;
  }
  cr_assert_fail("the rank has one stage");
}

static void exchange_sends(Faulty *f) {
  EntryPoint *entry = entry_of(f, 0);
  int first = find_call(entry, CALL_send, 0), i = first;
  ProgramCall *a = &entry->timeline.data[first], *b;
  do {
    cr_assert_lt(++i, entry->timeline.n);
    b = &entry->timeline.data[i];
  } while (b->kind != CALL_send || b->stage == a->stage || b->peer != a->peer ||
           b->registers[REGISTER_microbatch] ==
               a->registers[REGISTER_microbatch] ||
           entry->edges.data[b->edge].is_of_step);
  exchange_stages(a, b);
}

/* ---- pieces ---- */

/* The pieces of a value that the first stage sends for each micro-batch, in
 * memory of their own. */
static EdgePieces *pieces_of(Faulty *f) {
  EntryPoint *entry = entry_of(f, 0);
  int at = find_call(entry, CALL_send, 0);
  ProgramEdge *edge = &entry->edges.data[entry->timeline.data[at].edge];
  EdgePieces *pieces = &edge->pieces;
  cr_assert_gt(pieces->n, 1);
  pieces->data = arena_copy(f->arena, pieces->data,
                            sizeof *pieces->data * (size_t)pieces->n);
  return pieces;
}

static void lose_piece(Faulty *f) {
  pieces_of(f)->n--;
}

static void exchange_receivers(Faulty *f) {
  EdgePieces *pieces = pieces_of(f);
  int to = pieces->data[0].to;
  cr_assert_neq(to, pieces->data[1].to);
  pieces->data[0].to = pieces->data[1].to;
  pieces->data[1].to = to;
}

static void exchange_places(Faulty *f) {
  EdgePieces *pieces = pieces_of(f);
  const int64_t *at = pieces->data[0].from_at;
  cr_assert_neq(at[0], pieces->data[1].from_at[0]);
  pieces->data[0].from_at = pieces->data[1].from_at;
  pieces->data[1].from_at = at;
}

/* Replicas of the sender have equal values, so the numbers are right. */
static void take_another_replica(Faulty *f) {
  if (f->played) pieces_of(f)->data[0].from++;
}

static void lengthen_run(Faulty *f) {
  pieces_of(f)->data[0].run *= 4;
}

typedef struct FaultRow {
  const char *name;
  void (*make)(Faulty *);
  /* Words of the first sentence that has one; numbers: outputs differ. */
  bool is_numbers;
  const char *words[4];
  bool has_four_stages; /* all forward passes first; else two, 1f1b */
  bool has_pieces;      /* stages have meshes of their own */
  bool has_chunks;      /* four stages on two ranks, two replicas of them */
} FaultRow;

#define SAYS(text, change, ...)                                                \
  {                                                                            \
    .name = text, .make = change, .words = { __VA_ARGS__ }                     \
  }
#define DIFFERS(text, change)                                                  \
  { .name = text, .make = change, .is_numbers = true }

static const FaultRow faults[] = {
    SAYS("a message that is not sent", drop_send, "edge",
         "received but not sent", "on rank", "micro-batch"),
    SAYS("a message that is not received", drop_receive, "edge",
         "sent but not received", "rank 0", "micro-batch"),
    DIFFERS("a message that is dropped", drop_message),
    {.name = "slots of other micro-batches",
     .make = exchange_slots,
     .is_numbers = true,
     .has_four_stages = true},
    SAYS("a frame that is used again", share_frame, "overwritten", "rank 0",
         "stage 0", "micro-batch"),
    DIFFERS("a backward pass that is lost", lose_backward),
    SAYS("a receive before what it answers", receive_early, "rank 0 receives",
         "waits for ever for rank 1", "edge", "stage 1 to stage 0"),
    SAYS("a message to another rank", change_peer, "rank 0 sends", "edge",
         "micro-batch 0", "what was played"),
    SAYS("another number of bytes", change_bytes, "rank 1 receives", "edge",
         "stage 0 to stage 1", "bytes from rank 0"),
    SAYS("tables in another order", change_order, "rank 0 ", "edge",
         "what was played", "bytes"),
    {.name = "sums over ranks before the last backward pass",
     .make = reduce_early,
     .words = {"overwritten before the last reader", "next micro-batch",
               "rank 0, stage 2", "micro-batch 1"},
     .has_chunks = true},
    {.name = "a pass of another stage of the rank",
     .make = exchange_passes,
     .words = {"overwritten before the last reader", "rank 0", "stage 2",
               "micro-batch 1"},
     .has_chunks = true},
    {.name = "messages of another stage of the rank",
     .make = exchange_sends,
     .words = {"edge 3 (stage 2 to stage 3)", "sent but not received",
               "rank 0, stage 2", "micro-batch 0"},
     .has_chunks = true},
    {.name = "a piece that is not sent",
     .make = lose_piece,
     .is_numbers = true,
     .has_pieces = true},
    {.name = "pieces to other replicas",
     .make = exchange_receivers,
     .is_numbers = true,
     .has_pieces = true},
    {.name = "pieces from other places",
     .make = exchange_places,
     .is_numbers = true,
     .has_pieces = true},
    {.name = "a piece of another replica in the tables",
     .make = take_another_replica,
     .words = {"sends", "edge", "stage 0 to stage 1", "what was played"},
     .has_pieces = true},
    {.name = "a piece that is too long",
     .make = lengthen_run,
     .words = {"edge", "stage 0 to stage 1", "sent with other bytes",
               "micro-batch 0"},
     .has_pieces = true},
};

static void pack_again(const Compilation *c, Faulty *f) {
  for (int k = 0; k < f->steps->n_classes; k++) {
    EntryPoint *entry = entry_of(f, k);
    f->classes[k].program = play_program_of_stages(
        c->module->arena, entry,
        play_layouts(c->module->arena, entry, &c->target.backend->target));
  }
}

typedef struct Loaded {
  Compilation c;
  VerifySteps steps;
  PlayMessages played[4]; /* by class */
} Loaded;

static Loaded *load_plan(const CompileOptions *options) {
  Module *module = module_create();
  Loaded *l = ARENA_NEW(module->arena, Loaded);
  options = arena_copy(module->arena, options, sizeof *options);
  cr_assert_eq(driver_load(module, options, &l->c), COMPILE_done);
  cr_assert_eq(verify_compile(&l->c, module, false, &l->steps), COMPILE_done);
  cr_assert_leq(l->steps.n_classes, 4);
  for (int k = 0; k < 4; k++) l->played[k].arena = module->arena;
  return l;
}

static VerifyReport play_loaded(Loaded *l, uint64_t seed) {
  VerifyRun run = {.c = &l->c,
                   .steps = &l->steps,
                   .arena = l->c.module->arena,
                   .numbers = {.number = INTERP_exact, .seed = seed},
                   .report = {.equal = ANSWER_yes,
                              .memory_ok = ANSWER_yes,
                              .messages_match = ANSWER_yes,
                              .hang_free = ANSWER_yes},
                   .messages = l->played};
  verify_play(&run);
  return run.report;
}

#define OPTIONS(file)                                                          \
  .path = TEST_ROOT "/" SYSTEM("gpt"), .plan = (file), .target = "cpu",        \
  .follows_links = true, .level = 2

/* Plays the plan in exact mode with a fault in the first training step. */
static VerifyReport play_fault(const FaultRow *row, uint64_t seed) {
  Override four_blocks = {"L", "4"};
  bool has_four = row->has_four_stages || row->has_chunks;
  CompileOptions options = {OPTIONS(row->has_pieces ? PLAN("pipe_gpt_narrow")
                                    : row->has_chunks
                                        ? PLAN("pipe_gpt_interleaved_data")
                                    : has_four ? PLAN("pipe_gpt_fthenb")
                                               : PLAN("pipe_gpt")),
                            .overrides = &four_blocks, .n_overrides = has_four};
  Loaded *l = load_plan(&options);
  Faulty faulty = {.arena = l->c.module->arena,
                   .steps = &l->steps,
                   .classes = l->steps.program.list[0].classes};
  row->make(&faulty);
  pack_again(&l->c, &faulty);
  VerifyReport report = play_loaded(l, seed);
  faulty.played = l->played;
  if (row->make == change_bytes || row->make == change_order ||
      row->make == take_another_replica)
    row->make(&faulty);
  verify_messages(&l->c, &l->steps, l->played, &report);
  return report;
}

static void expect_words(const FaultRow *row, const VerifyReport *report) {
  const char *fault =
      report->memory_fault ? report->memory_fault : report->message_fault;
  cr_expect(fault, "%s: not found", row->name);
  for (int i = 0; i < ARRAY_LENGTH(row->words) && fault; i++)
    cr_expect(strstr(fault, row->words[i]), "%s: no '%s' in: %s", row->name,
              row->words[i], fault);
}

Test(verify_stages, faults_are_refused_by_name) {
  for (int i = 0; i < ARRAY_LENGTH(faults); i++)
    for (uint64_t seed = 1; seed <= 2; seed++) {
      VerifyReport report = play_fault(&faults[i], seed);
      if (faults[i].is_numbers) {
        cr_expect_eq(report.equal, ANSWER_no, "%s: equal", faults[i].name);
        cr_expect(report.path && report.stage >= 0, "%s", faults[i].name);
      } else {
        expect_words(&faults[i], &report);
      }
      modules_destroy();
    }
}

/* ---- pieces by seed ---- */

typedef struct PieceCase {
  const char *model, *plan;
  Override batch;
} PieceCase;

static const PieceCase piece_cases[] = {
    {TEST_ROOT "/" SYSTEM("gpt"), PLAN("pipe_gpt_narrow"), {"B", "8"}},
    {TEST_ROOT "/" SYSTEM("lenet"), PLAN("pipe_lenet_replicas"), {"N", "8"}},
    {TEST_ROOT "/" SYSTEM("mlp"), PLAN("pipe_mlp_spread"), {"B", "12"}},
    {TEST_ROOT "/" SYSTEM("mlp"), PLAN("pipe_mlp_thirds"), {"B", "12"}},
    {TEST_ROOT "/" SYSTEM("mlp"), PLAN("pipe_mlp_replicas"), {"B", "12"}},
};

static bool have_equal_places(const EdgePiece *a, const EdgePiece *b) {
  size_t bytes = sizeof *a->from_at * (size_t)a->n_runs;
  return a->run == b->run && a->n_runs == b->n_runs &&
         memcmp(a->from_at, b->from_at, bytes) == 0 &&
         memcmp(a->to_at, b->to_at, bytes) == 0;
}

/* Two pieces of an edge that two ranks need, each another part of the value. */
typedef struct PiecePair {
  EdgePieces *pieces;
  int first, second;
} PiecePair;

typedef VEC(PiecePair) PiecePairs;

static void find_pairs_of(Faulty *f, EdgePieces *pieces, PiecePairs *out) {
  for (int i = 0; i < pieces->n; i++)
    for (int k = 0; k < i; k++)
      if (pieces->data[i].to != pieces->data[k].to &&
          !have_equal_places(&pieces->data[i], &pieces->data[k]))
        vec_push(f->arena, out, (PiecePair){pieces, k, i});
}

/* Edges of the side that sends have them. */
static PiecePairs find_pairs(Faulty *f) {
  PiecePairs pairs = {0};
  for (int k = 0; k < f->steps->n_classes; k++) {
    EntryPoint *entry = entry_of(f, k);
    for (int e = 0; e < entry->edges.n; e++)
      if (entry->edges.data[e].from == entry->stages.data[0].number)
        find_pairs_of(f, &entry->edges.data[e].pieces, &pairs);
  }
  return pairs;
}

/* Each goes to the rank of the other. */
static void exchange_pieces(Faulty *f, const PiecePair *pair) {
  EdgePieces *pieces = pair->pieces;
  pieces->data = arena_copy(f->arena, pieces->data,
                            sizeof *pieces->data * (size_t)pieces->n);
  int to = pieces->data[pair->first].to;
  pieces->data[pair->first].to = pieces->data[pair->second].to;
  pieces->data[pair->second].to = to;
}

static void try_pieces(const PieceCase *one, uint64_t seed) {
  CompileOptions options = {.path = one->model,
                            .plan = one->plan,
                            .target = "cpu",
                            .overrides = &one->batch,
                            .n_overrides = 1,
                            .follows_links = true,
                            .level = 2};
  Loaded *l = load_plan(&options);
  Faulty faulty = {.arena = l->c.module->arena,
                   .steps = &l->steps,
                   .classes = l->steps.program.list[0].classes};
  uint64_t choice = hash_bytes(&seed, sizeof seed, 7) >> 8;
  PiecePairs pairs = find_pairs(&faulty);
  cr_assert_gt(pairs.n, 0, "%s", one->plan);
  exchange_pieces(&faulty, &pairs.data[choice % (uint64_t)pairs.n]);
  pack_again(&l->c, &faulty);
  VerifyReport report = play_loaded(l, seed);
  verify_messages(&l->c, &l->steps, l->played, &report);
  cr_expect(report.message_fault ||
                (report.equal == ANSWER_no && report.stage >= 0),
            "%s, seed %d: not found", one->plan, (int)seed);
}

Test(verify_stages, pieces_to_another_replica_are_found) {
  for (uint64_t seed = 1; seed <= 40; seed++) {
    try_pieces(&piece_cases[seed % ARRAY_LENGTH(piece_cases)], seed);
    modules_destroy();
  }
}

/* The fault is what changes the answer. */
static void change_nothing(Faulty *f) {
  (void)f;
}

Test(verify_stages, without_a_fault_nothing_is_refused) {
  static const FaultRow none = {.name = "none", .make = change_nothing};
  VerifyReport report = play_fault(&none, 1);
  cr_expect(report.equal == ANSWER_yes && report.messages_match == ANSWER_yes &&
                report.hang_free == ANSWER_yes &&
                report.memory_ok == ANSWER_yes,
            "%s %s %s", report.path, report.message_fault, report.memory_fault);
}

/* ---- early updates ---- */

static int find_last(const EntryPoint *entry, TokenKind kind) {
  int at = entry->timeline.n - 1;
  while (entry->timeline.data[at].kind != CALL_segment ||
         entry_point_segment(entry, &entry->timeline.data[at])->kind != kind)
    cr_assert_gt(at--, 0);
  return at;
}

/* Moves the update of a stage before a call of the same rank that reads its
 * parameters or adds to their gradients, the last one at the latest. */
static void update_early(EntryPoint *entry, uint64_t seed) {
  int from = find_segment(entry, TOKEN_update);
  int last = find_last(entry, TOKEN_weight_grad);
  int first = find_segment(entry, TOKEN_forward);
  ProgramCall call = entry->timeline.data[from];
  int to = last - (int)random_below(seed, 2, (uint64_t)(last - first + 1));
  cr_assert(first <= to && to < from);
  for (int i = from; i > to; i--)
    entry->timeline.data[i] = entry->timeline.data[i - 1];
  entry->timeline.data[to] = call;
}

Test(verify_stages, an_update_before_its_last_reader_is_refused) {
  enum { SEEDS = 20 };
  CompileOptions options = {.path = TEST_ROOT "/" SYSTEM("lenet"),
                            .plan = PLAN("pipe_lenet_zbh2"),
                            .target = "cpu",
                            .follows_links = true,
                            .level = 2};
  for (uint64_t seed = 0; seed <= SEEDS; seed++) {
    Loaded *l = load_plan(&options);
    Faulty faulty = {.arena = l->c.module->arena,
                     .steps = &l->steps,
                     .classes = l->steps.program.list[0].classes};
    int n = l->steps.n_classes;
    EntryPoint *entry =
        entry_of(&faulty, (int)random_below(seed, 1, (uint64_t)n));
    cr_expect(entry_point_check(entry, NULL));
    if (seed > 0) update_early(entry, seed);
    cr_expect_eq(entry_point_check(entry, NULL), seed == 0, "seed %d",
                 (int)seed);
    pack_again(&l->c, &faulty);
    VerifyReport report = play_loaded(l, seed);
    bool is_fine = report.equal == ANSWER_yes && report.memory_ok == ANSWER_yes;
    cr_expect_eq(is_fine, seed == 0, "seed %d", (int)seed);
    modules_destroy();
  }
}

/* ---- frames ---- */

/* Values of a kind of frame; it must be true of none that a node of the segment
 * `never` reads them. */
static int count_frames(const ProgramStage *stage, ProgramRegister kind,
                        TokenKind never) {
  const BufferAssignment *a = stage->assignment;
  int n = 0;
  for (int s = 0; s < stage->segments.n; s++) {
    const ProgramSegment *segment = &stage->segments.data[s];
    for (int id = segment->first_node; id < segment->end_node; id++) {
      const Node *node = stage->graph->nodes.data[id];
      for (int r = 0; r < node->n_results; r++)
        n += a->moves_with[a->first_value[id] + r] == kind;
      for (int i = 0; i < node->n_inputs; i++) {
        Value value = node->inputs[i];
        int v = a->first_value[value.node] + value.result;
        cr_expect(segment->kind != never || a->moves_with[v] != kind,
                  "stage %d: %%%d reads %%%d", stage->number, id, value.node);
      }
    }
  }
  return n;
}

/* Stage s of p has min(p, m) frames, and min(p - s, m) of what no weight
 * gradient reads. */
static void check_frames(int microbatches) {
  enum { N = 4 };
  Override sizes[] = {{"L", "4"}, {"B", "16"}};
  CompileOptions options = {OPTIONS(PLAN("pipe_gpt_zbh1")), .overrides = sizes,
                            .n_overrides = 2, .microbatches = microbatches};
  Loaded *l = load_plan(&options);
  const StepList *steps =
      l->steps.whole.n > 0 ? &l->steps.whole : &l->steps.program;
  cr_assert_eq(l->steps.n_classes, N);
  for (int s = 0; s < N; s++) {
    const ProgramStage *stage = &steps->list[0].classes[s].entry.stages.data[0];
    int most = N < microbatches ? N : microbatches;
    int of_inputs = N - s < microbatches ? N - s : microbatches;
    cr_expect_eq(mesh_microbatches(&stage->graph->mesh), microbatches);
    cr_expect_eq(stage->n_frames, most);
    cr_expect_eq(stage->n_input_frames, of_inputs);
    cr_expect_gt(count_frames(stage, REGISTER_frame, TOKEN_update), 0);
    cr_expect_gt(count_frames(stage, REGISTER_input_frame, TOKEN_weight_grad),
                 0);
    cr_expect_gt(count_frames(stage, REGISTER_weight_frame, TOKEN_forward), 0);
  }
  modules_destroy();
}

Test(verify_stages, a_weight_gradient_keeps_only_what_it_reads) {
  static const int microbatches[] = {2, 4, 8, 16};
  for (int i = 0; i < ARRAY_LENGTH(microbatches); i++)
    check_frames(microbatches[i]);
}

/* ---- micro-batches ---- */

/* Two stages of 1f1b have two frames: three micro-batches use them again. */
Test(verify_stages, micro_batches_that_use_the_same_frames_are_not_played) {
  static const PlayCase many = {.model = SYSTEM("gpt"),
                                .sizes = "B=24",
                                .microbatches = 12,
                                .plan = PLAN("pipe_gpt")};
  PlayCase all = many;
  VerifyReport report = play_case(&many);
  cr_expect_eq(report.equal, ANSWER_yes, "%s %s", report.path,
               report.not_compared);
  cr_expect_eq(report.messages_match, ANSWER_yes, "%s", report.message_fault);
  cr_expect_eq(report.played_microbatches, 3);
  modules_destroy();
  all.plan = PLAN("pipe_gpt_fthenb_tensor");
  report = play_case(&all);
  cr_expect_eq(report.equal, ANSWER_yes);
  cr_expect_eq(report.played_microbatches, 0);
}

/* The tables of all micro-batches are checked all the same. */
Test(verify_stages, a_fault_of_a_micro_batch_that_is_not_played_is_refused) {
  Override batch = {"B", "24"};
  CompileOptions options = {OPTIONS(PLAN("pipe_gpt")), .overrides = &batch,
                            .n_overrides = 1, .microbatches = 12};
  Loaded *l = load_plan(&options);
  cr_assert_gt(l->steps.whole.n, 0);
  VerifyReport report = play_loaded(l, 1);
  EntryPoint *entry = &l->steps.whole.list[0].classes[0].entry;
  int from = find_call(entry, CALL_receive, 8);
  int to = find_call(entry, CALL_send, 9);
  cr_assert_neq(from, to);
  ProgramCall call = entry->timeline.data[from];
  entry->timeline.data[from] = entry->timeline.data[to];
  entry->timeline.data[to] = call;
  verify_messages(&l->c, &l->steps, l->played, &report);
  cr_expect(report.message_fault && report.hang_free == ANSWER_no, "equal");
}
