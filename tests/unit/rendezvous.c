// links: price interp ir runtime support
/*
 * rendezvous.c -- tests the proof that no rank hangs against an executor: ranks
 * that make calls and exchange messages without buffers, one action at a time,
 * until nobody can go on.  Programs are lists of pipelines in which something
 * was changed at random.
 */
#include "ir/pipeline/rendezvous.h"
#include "runtime/comm/comm.h"
#include "tests/unit/values.h"

#include <pthread.h>
#include <time.h>

TestSuite(rendezvous, .fini = modules_destroy);

/* ---- random numbers ---- */

typedef struct Dice {
  uint64_t key, n;
} Dice;

static int roll(Dice *dice, int n) {
  return (int)random_below(dice->key, dice->n++, (uint64_t)n);
}

/* ---- the executor ---- */

enum { MOST_RANKS = 6, MOST_PASSED = 1024 };

/* Calls that a rank has made, messages that it has received. */
typedef struct Passed {
  int kind, stage, microbatch;
} Passed;

typedef struct Executor {
  const Pipeline *pipeline;
  int at[MOST_RANKS];
  int n_passed[MOST_RANKS];
  Passed passed[MOST_RANKS][MOST_PASSED];
} Executor;

static const Token *next_token(const Executor *e, int rank) {
  const Tokens *list = &e->pipeline->lists[rank];
  return e->at[rank] < list->n ? &list->data[e->at[rank]] : NULL;
}

static bool has_passed(const Executor *e, int rank, TokenKind kind, int stage,
                       int microbatch) {
  for (int i = 0; i < e->n_passed[rank]; i++) {
    const Passed *passed = &e->passed[rank][i];
    if (passed->kind == (int)kind && passed->stage == stage &&
        passed->microbatch == microbatch)
      return true;
  }
  return false;
}

/* I, or B, which has it. */
static bool has_passed_back(const Executor *e, int rank, int stage, int m) {
  return has_passed(e, rank, TOKEN_input_grad, stage, m) ||
         has_passed(e, rank, TOKEN_backward, stage, m);
}

static void pass(Executor *e, int rank) {
  const Token *token = next_token(e, rank);
  cr_assert_lt(e->n_passed[rank], MOST_PASSED);
  e->passed[rank][e->n_passed[rank]++] =
      (Passed){(int)token->kind, token->stage, token->microbatch};
  e->at[rank]++;
}

/* A value of another stage is computed on this rank, or it was received. */
static bool can_call(const Executor *e, int rank, const Token *token) {
  int s = token->stage, m = token->microbatch;
  switch (token->kind) {
  case TOKEN_forward:
    return s == 0 || has_passed(e, rank, TOKEN_forward, s - 1, m) ||
           has_passed(e, rank, TOKEN_receive_forward, s, m);
  case TOKEN_weight_grad: return has_passed_back(e, rank, s, m);
  default:
    return has_passed(e, rank, TOKEN_forward, s, m) &&
           (s + 1 == e->pipeline->n_stages ||
            has_passed_back(e, rank, s + 1, m) ||
            has_passed(e, rank, TOKEN_receive_backward, s, m));
  }
}

/* The call whose result a message carries. */
static bool has_sent_value(const Executor *e, int rank, const Token *token) {
  if (token->kind == TOKEN_send_forward)
    return has_passed(e, rank, TOKEN_forward, token->stage, token->microbatch);
  return has_passed_back(e, rank, token->stage, token->microbatch);
}

static bool can_send(const Executor *e, int rank, const Token *token) {
  if (!has_sent_value(e, rank, token)) return false;
  const Token *other = next_token(e, token->peer);
  return other && token_info(other->kind)->role == TOKEN_ROLE_receive &&
         other->peer == rank;
}

/* One action of a rank; a message is one of its sender. */
static bool step(Executor *e, int rank) {
  const Token *token = next_token(e, rank);
  if (!token) return false;
  switch (token_info(token->kind)->role) {
  case TOKEN_ROLE_call:
    if (!can_call(e, rank, token)) return false;
    break;
  case TOKEN_ROLE_send:
    if (!can_send(e, rank, token)) return false;
    pass(e, token->peer);
    break;
  default: return false;
  }
  pass(e, rank);
  return true;
}

static bool executor_ends(const Pipeline *pipeline) {
  Executor executor = {.pipeline = pipeline}, *e = &executor;
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (int r = 0; r < pipeline->n_ranks; r++)
      while (step(e, r)) has_moved = true;
  }
  for (int r = 0; r < pipeline->n_ranks; r++)
    if (next_token(e, r)) return false;
  return true;
}

/* The messages from one rank to another, as one of both has them. */
static const char *sequence(Module *module, const Pipeline *pipeline, int from,
                            int to, bool is_sent) {
  Text text = text_create(module->arena);
  const Tokens *list = &pipeline->lists[is_sent ? from : to];
  for (int i = 0; i < list->n; i++) {
    const Token *token = &list->data[i];
    TokenRole role = token_info(token->kind)->role;
    if (role == (is_sent ? TOKEN_ROLE_send : TOKEN_ROLE_receive) &&
        token->peer == (is_sent ? to : from))
      text_printf(&text, "%d.%d ", token->edge, token->microbatch);
  }
  return text_string(&text);
}

static RendezvousVerdict executor_verdict(Module *module,
                                          const Pipeline *pipeline) {
  for (int a = 0; a < pipeline->n_ranks; a++)
    for (int b = 0; b < pipeline->n_ranks; b++)
      if (strcmp(sequence(module, pipeline, a, b, true),
                 sequence(module, pipeline, a, b, false)) != 0)
        return RENDEZVOUS_mismatch;
  return executor_ends(pipeline) ? RENDEZVOUS_fine : RENDEZVOUS_may_hang;
}

/* ---- mutants ---- */

/* The fewest micro-batches from `least` on that the schedule can have, on one
 * more rank where it needs an even number. */
static Pipeline *make_pipeline(Module *module, const PipelineSchedule *schedule,
                               int p, int least) {
  bool has_two = schedule->placement == PLACEMENT_looped ||
                 schedule->placement == PLACEMENT_vee;
  if (schedule->placement == PLACEMENT_halves) p += p % 2;
  PipelineShape shape = {p, has_two ? 2 * p : p, least, {1, 1, 1}};
  while (pipeline_schedule_refuses(module->arena, schedule, &shape))
    shape.microbatches++;
  return pipeline_make(module->arena, schedule, &shape);
}

static Pipeline *random_pipeline(Module *module, Dice *dice, int most_ranks) {
  const PipelineSchedule *schedule =
      pipeline_schedule(roll(dice, pipeline_schedule_count()));
  int p = 2 + roll(dice, most_ranks - 1), n_ranks = 1 + roll(dice, p);
  Pipeline *pipeline = make_pipeline(module, schedule, p, 1 + roll(dice, 6));
  int *rank_of_stage = ARENA_ARRAY(module->arena, int, pipeline->n_stages);
  for (int s = 0; s < pipeline->n_stages; s++) rank_of_stage[s] = s % n_ranks;
  if (roll(dice, 3) == 0)
    pipeline = pipeline_place(module->arena, pipeline, n_ranks, rank_of_stage);
  return pipeline_lower(module->arena, pipeline);
}

static bool is_message(const Token *token) {
  TokenRole role = token_info(token->kind)->role;
  return role == TOKEN_ROLE_send || role == TOKEN_ROLE_receive;
}

static void move_token(Tokens *list, int from, int to) {
  Token token = list->data[from];
  int up = from < to ? 1 : -1;
  for (int i = from; i != to; i += up) list->data[i] = list->data[i + up];
  list->data[to] = token;
}

static void drop_token(Tokens *list, int at) {
  move_token(list, at, list->n - 1);
  list->n--;
}

/* Drops, doubles or changes the other side of a message too. */
static Token *find_other(const Pipeline *pipeline, const Token *token) {
  Tokens *list = &pipeline->lists[token->peer];
  for (int i = 0; i < list->n; i++)
    if (is_message(&list->data[i]) && list->data[i].kind != token->kind &&
        list->data[i].edge == token->edge &&
        list->data[i].microbatch == token->microbatch)
      return &list->data[i];
  return NULL;
}

static void mutate(Module *module, Dice *dice, Pipeline *pipeline) {
  int rank = roll(dice, pipeline->n_ranks);
  Tokens *list = &pipeline->lists[rank];
  if (list->n < 2) return;
  int at = roll(dice, list->n);
  Token *token = &list->data[at];
  switch (roll(dice, 8)) {
  case 0:
  case 1: move_token(list, at, at + 1 < list->n ? at + 1 : at - 1); break;
  case 2:
  case 3: {
    int to = at - 3 + roll(dice, 7);
    move_token(list, at, to < 0 ? 0 : to >= list->n ? list->n - 1 : to);
    break;
  }
  case 4: drop_token(list, at); break;
  case 5: { /* doubled */
    vec_push(module->arena, list, *token);
    move_token(list, list->n - 1, at);
    break;
  }
  case 6: { /* dropped on both sides */
    Token *other = is_message(token) ? find_other(pipeline, token) : NULL;
    if (!other) break;
    Tokens *others = &pipeline->lists[token->peer];
    drop_token(others, (int)(other - others->data));
    drop_token(list, at);
    break;
  }
  case 7:
    if (is_message(token))
      token->microbatch = roll(dice, pipeline->n_microbatches);
    break;
  }
}

static Pipeline *random_mutant(Module *module, Dice *dice) {
  Pipeline *pipeline = random_pipeline(module, dice, 6);
  for (int n = roll(dice, 4); n > 0; n--) mutate(module, dice, pipeline);
  return pipeline;
}

/* Both actions of a message are in a cycle, and no action twice; each waits for
 * the one before it. */
static void check_cycle(const Pipeline *pipeline,
                        const RendezvousResult *result) {
  for (int i = 0; i < result->n_places; i++) {
    RendezvousPlace place = result->places[i];
    cr_assert(place.class >= 0 && place.class < pipeline->n_ranks);
    cr_assert(place.action >= 0 &&
              place.action < pipeline->lists[place.class].n);
    for (int k = 0; k < i; k++)
      cr_expect(place.class != result->places[k].class ||
                place.action != result->places[k].action);
  }
}

Test(rendezvous, mutants) {
  int counts[4] = {0};
  for (int i = 0; i < 5000; i++) {
    Module *module = module_create();
    Dice dice = {random_key(45, arena_printf(module->arena, "mutant %d", i)),
                 0};
    Pipeline *mutant = random_mutant(module, &dice);
    RendezvousProgram *program = pipeline_rendezvous(module->arena, mutant, 1);
    RendezvousResult result =
        rendezvous_check(module->arena, program, RENDEZVOUS_all);
    RendezvousVerdict expected = executor_verdict(module, mutant);
    Text text = text_create(module->arena);
    pipeline_print(&text, mutant);
    cr_assert_eq(result.verdict, expected, "mutant %d: %s, not %s\n%s", i,
                 rendezvous_verdict_text(result.verdict),
                 rendezvous_verdict_text(expected), text_string(&text));
    cr_expect_eq(
        rendezvous_check_folded(module->arena, program, RENDEZVOUS_all).verdict,
        expected);
    counts[result.verdict]++;
    if (result.verdict == RENDEZVOUS_may_hang) check_cycle(mutant, &result);
    modules_destroy();
  }
  printf("%d fine, %d mismatches, %d may hang\n", counts[RENDEZVOUS_fine],
         counts[RENDEZVOUS_mismatch], counts[RENDEZVOUS_may_hang]);
  cr_expect_geq(counts[RENDEZVOUS_fine], 500);
  cr_expect_geq(counts[RENDEZVOUS_mismatch], 500);
  cr_expect_geq(counts[RENDEZVOUS_may_hang], 500);
}

/* ---- cycles ---- */

static RendezvousResult check_text(Module *module, const char *text,
                                   Pipeline **out) {
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){"list.csv", text, strlen(text)};
  *out = pipeline_read(module->arena, module->diags, source);
  cr_assert(*out);
  pipeline_find_messages(module->arena, module->diags, *out);
  cr_assert_eq(diags_errors(module->diags), 0);
  return rendezvous_check(module->arena,
                          pipeline_rendezvous(module->arena, *out, 1),
                          RENDEZVOUS_all);
}

/* "0:0SEND_F0 1:1RECV_F0 " */
static const char *places_text(Module *module, const Pipeline *pipeline,
                               const RendezvousResult *result) {
  Text text = text_create(module->arena);
  for (int i = 0; i < result->n_places; i++) {
    RendezvousPlace place = result->places[i];
    text_printf(
        &text, "%d:%s ", place.class,
        place.action < 0
            ? "end"
            : token_text(module->arena, pipeline,
                         &pipeline->lists[place.class].data[place.action]));
  }
  return text_string(&text);
}

Test(rendezvous, places) {
  static const struct {
    const char *list;
    RendezvousVerdict verdict;
    const char *places;
  } cases[] = {
      {"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
       RENDEZVOUS_fine, ""},
      /* rank 0 sends 0F1 before it receives 0B0, rank 1 the other way round */
      {"0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
       "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n",
       RENDEZVOUS_may_hang, "0:0SEND_F1 1:1RECV_F1 1:1SEND_B0 0:0RECV_B0 "},
      /* it sends what it has not computed */
      {"0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
       RENDEZVOUS_may_hang, "0:0SEND_F0 1:1RECV_F0 0:0F0 "},
      {"0F0,0SEND_F0,0B0,0RECV_B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
       RENDEZVOUS_may_hang, "0:0B0 1:1SEND_B0 0:0RECV_B0 "},
      {"0F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n", RENDEZVOUS_may_hang, "1:1F0 "},
      {"0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", RENDEZVOUS_mismatch,
       "0:end 1:1RECV_F0 "},
      {"0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F1,1RECV_F0,1F0,1F1\n",
       RENDEZVOUS_mismatch, "0:0SEND_F0 1:1RECV_F1 "},
  };
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Module *module = module_create();
    Pipeline *pipeline;
    RendezvousResult result = check_text(module, cases[i].list, &pipeline);
    cr_expect_eq(result.verdict, cases[i].verdict, "%s", cases[i].list);
    cr_expect_str_eq(places_text(module, pipeline, &result), cases[i].places);
  }
}

/* ---- messages and places by hand ---- */

static RendezvousVerdict check_two(Module *module, RendezvousAction sent,
                                   RendezvousAction received,
                                   const RendezvousUse *uses, int n_uses) {
  RendezvousAction *actions = ARENA_ARRAY(module->arena, RendezvousAction, 2);
  RendezvousClass *classes = ARENA_ARRAY(module->arena, RendezvousClass, 2);
  actions[0] = sent;
  actions[1] = received;
  classes[0] = (RendezvousClass){.n_ranks = 8,
                                 .n_actions = 1,
                                 .actions = actions,
                                 .uses = uses,
                                 .n_uses = n_uses};
  classes[1] =
      (RendezvousClass){.n_ranks = 8, .n_actions = 1, .actions = actions + 1};
  return rendezvous_check(module->arena, &(RendezvousProgram){2, classes},
                          RENDEZVOUS_all)
      .verdict;
}

Test(rendezvous, bytes_and_dtype) {
  Module *module = module_create();
  RendezvousAction sent = {RENDEZVOUS_send, 1, 7, 64, DT_bf16},
                   received = {RENDEZVOUS_receive, 0, 7, 64, DT_bf16},
                   other = received;
  cr_expect_eq(check_two(module, sent, received, NULL, 0), RENDEZVOUS_fine);
  other.bytes = 32;
  cr_expect_eq(check_two(module, sent, other, NULL, 0), RENDEZVOUS_mismatch);
  other = received;
  other.dtype = DT_f16;
  cr_expect_eq(check_two(module, sent, other, NULL, 0), RENDEZVOUS_mismatch);
  other = received;
  other.message = 8;
  cr_expect_eq(check_two(module, sent, other, NULL, 0), RENDEZVOUS_mismatch);
}

Test(rendezvous, places_used_again) {
  Module *module = module_create();
  RendezvousAction sent = {RENDEZVOUS_send, 1, 0, 4, DT_f32},
                   received = {RENDEZVOUS_receive, 0, 0, 4, DT_f32};
  static const RendezvousUse fine[] = {{0, 0, 3}, {1, 1, 4}, {0, 4, 6}},
                             early[] = {{0, 3, 6}, {1, 1, 4}, {0, 0, 3}};
  cr_expect_eq(check_two(module, sent, received, fine, 3), RENDEZVOUS_fine);
  cr_expect_eq(check_two(module, sent, received, early, 3), RENDEZVOUS_clash);
}

/* ---- ranks that do the same ---- */

/* `n` copies of a program: class c of copy i is i p + c.  Messages of number k
 * go to the copy that is `shifts[k % 4]` further. */
static RendezvousProgram *repeat_program(Module *module,
                                         const RendezvousProgram *one, int n,
                                         const int shifts[4]) {
  RendezvousProgram *all = ARENA_NEW(module->arena, RendezvousProgram);
  int p = one->n_classes;
  RendezvousClass *classes = ARENA_ARRAY(module->arena, RendezvousClass, n * p);
  for (int c = 0; c < n * p; c++) {
    const RendezvousClass *from = &one->classes[c % p];
    RendezvousAction *actions =
        ARENA_ARRAY(module->arena, RendezvousAction, from->n_actions);
    for (int i = 0; i < from->n_actions; i++) {
      actions[i] = from->actions[i];
      bool is_send = actions[i].kind == RENDEZVOUS_send;
      int shift = shifts[actions[i].message % 4];
      int copy = (c / p + (is_send ? shift : n - shift)) % n;
      actions[i].peer += copy * p;
    }
    classes[c] = *from;
    classes[c].actions = actions;
  }
  *all = (RendezvousProgram){n * p, classes};
  return all;
}

/* Swaps two actions of one class. */
static void swap_actions(Module *module, Dice *dice,
                         RendezvousProgram *program) {
  RendezvousClass *class =
      (RendezvousClass *)&program->classes[roll(dice, program->n_classes)];
  if (class->n_actions < 2) return;
  RendezvousAction *actions = (RendezvousAction *)class->actions;
  int at = roll(dice, class->n_actions - 1);
  RendezvousAction action = actions[at];
  actions[at] = actions[at + 1];
  actions[at + 1] = action;
  RendezvousNeed *needs =
      ARENA_ARRAY(module->arena, RendezvousNeed, class->n_needs);
  for (int i = 0; i < class->n_needs; i++) {
    needs[i] = class->needs[i];
    int *const ends[] = {&needs[i].before, &needs[i].after};
    for (int k = 0; k < 2; k++)
      if (*ends[k] == at || *ends[k] == at + 1)
        *ends[k] = 2 * at + 1 - *ends[k];
  }
  class->needs = needs;
}

/* The graph of all ranks and that of their classes have one verdict, also where
 * messages go from copy to copy and where one rank differs. */
Test(rendezvous, folded) {
  int counts[4] = {0};
  for (int i = 0; i < 1000; i++) {
    Module *module = module_create();
    Dice dice = {random_key(45, arena_printf(module->arena, "fold %d", i)), 0};
    Pipeline *pipeline = random_pipeline(module, &dice, 6);
    for (int n = roll(&dice, 3); n > 0; n--) mutate(module, &dice, pipeline);
    RendezvousProgram *one = pipeline_rendezvous(module->arena, pipeline, 1);
    int n = 1 + roll(&dice, 64 / one->n_classes), shifts[4] = {0};
    bool is_shifted = roll(&dice, 2), differs = roll(&dice, 3) == 0;
    for (int k = 0; is_shifted && k < 4; k++) shifts[k] = roll(&dice, n);
    RendezvousProgram *all = repeat_program(module, one, n, shifts);
    if (differs) swap_actions(module, &dice, all);
    RendezvousOrder order = (RendezvousOrder)roll(&dice, 2);
    RendezvousVerdict verdict =
        rendezvous_check(module->arena, all, order).verdict;
    cr_expect_eq(rendezvous_check_folded(module->arena, all, order).verdict,
                 verdict, "program %d", i);
    if (!is_shifted && !differs)
      cr_expect_eq(rendezvous_check(
                       module->arena,
                       pipeline_rendezvous(module->arena, pipeline, n), order)
                       .verdict,
                   verdict, "program %d", i);
    counts[verdict]++;
    modules_destroy();
  }
  for (int v = 0; v < 3; v++) cr_expect_gt(counts[v], 100);
}

/* ---- large programs ---- */

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Eight stages on 1,024 and 4,096 ranks: as classes, and rank by rank. */
Test(rendezvous, large) {
  for (int n_ranks = 1024; n_ranks <= 4096; n_ranks *= 4) {
    Module *module = module_create();
    PipelineShape shape = {8, 8, 96, {1, 1, 1}};
    Pipeline *lowered = pipeline_lower(
        module->arena,
        pipeline_make(module->arena, pipeline_schedule_find("1f1b"), &shape));
    RendezvousProgram *one =
        pipeline_rendezvous(module->arena, lowered, n_ranks / 8);
    double begin = seconds();
    cr_expect_eq(rendezvous_check(module->arena, one, RENDEZVOUS_all).verdict,
                 RENDEZVOUS_fine);
    double classes = seconds();
    static const int shifts[4] = {0};
    RendezvousProgram *all = repeat_program(module, one, n_ranks / 8, shifts);
    double made = seconds();
    cr_expect_eq(
        rendezvous_check_folded(module->arena, all, RENDEZVOUS_all).verdict,
        RENDEZVOUS_fine);
    double ranks = seconds();
    printf("%d ranks: %.4f s as classes, %.3f s rank by rank\n", n_ranks,
           classes - begin, ranks - made);
    cr_expect_lt(classes - begin, 0.5);
  }
}

/* ---- threads ---- */

typedef struct Runner {
  Comm *comm;
  Memory *memory;
  const Pipeline *pipeline;
  Status status;
} Runner;

static const int64_t one_element = 1;

static Status run_message(const Runner *r, Arena *arena, const Token *token) {
  float value = 0;
  CommPart part = {&value, &value, 1};
  bool is_send = token_info(token->kind)->role == TOKEN_ROLE_send;
  DnnCollective *what = ARENA_NEW(arena, DnnCollective);
  *what = (DnnCollective){
      .kind = is_send ? DNN_SEND : DNN_RECV,
      .dtype = DNN_f32,
      .id = 1 + token->edge * r->pipeline->n_microbatches + token->microbatch,
      .peer = token->peer - r->comm->rank,
      .n_parts = 1,
      .edge = token->edge * r->pipeline->n_microbatches + token->microbatch,
      .counts = &one_element};
  TRY(r->comm->start(r->comm, what, &part));
  return r->comm->wait(r->comm, what->id);
}

/* A rank knows what it has computed and received itself. */
static Status run_list(const Runner *r) {
  Arena *arena = arena_create(r->memory);
  Executor *own = ARENA_NEW(arena, Executor);
  int rank = r->comm->rank;
  own->pipeline = r->pipeline;
  for (const Token *token; (token = next_token(own, rank)); pass(own, rank)) {
    bool is_send = token_info(token->kind)->role == TOKEN_ROLE_send;
    bool can_go_on = is_send ? has_sent_value(own, rank, token)
                             : is_message(token) || can_call(own, rank, token);
    if (!can_go_on) return status_make(STATUS_lost, "a value never comes");
    if (is_message(token)) TRY(run_message(r, arena, token));
  }
  return STATUS_OK;
}

static void *runner_main(void *user) {
  Runner *runner = user;
  runner->status = run_list(runner);
  runner->comm->close(runner->comm);
  return NULL;
}

static bool threads_end(Module *module, const Pipeline *pipeline) {
  int n = pipeline->n_ranks;
  Runner runners[MOST_RANKS];
  pthread_t threads[MOST_RANKS];
  Comm *comms;
  bool have_ended = true;
  LocalOptions options = {.rendezvous = true};
  cr_assert_eq(comm_local_create(module->arena, n, &options, &comms).code,
               STATUS_ok);
  for (int r = 0; r < n; r++) {
    runners[r] = (Runner){.comm = &comms[r],
                          .memory = memory_create(out_of_memory, NULL),
                          .pipeline = pipeline};
    pthread_create(&threads[r], NULL, runner_main, &runners[r]);
  }
  for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
  for (int r = 0; r < n; r++) {
    have_ended &= runners[r].status.code == STATUS_ok;
    memory_destroy(runners[r].memory);
  }
  return have_ended;
}

/* The transport of threads ends what is fine, and finds that all ranks wait in
 * all others. */
Test(rendezvous, threads) {
  int counts[4] = {0};
  for (int i = 0; i < 200; i++) {
    Module *module = module_create();
    Dice dice = {random_key(45, arena_printf(module->arena, "mutant %d", i)),
                 0};
    Pipeline *mutant = random_mutant(module, &dice);
    RendezvousVerdict verdict =
        rendezvous_check(module->arena,
                         pipeline_rendezvous(module->arena, mutant, 1),
                         RENDEZVOUS_all)
            .verdict;
    cr_expect_eq(threads_end(module, mutant), verdict == RENDEZVOUS_fine,
                 "mutant %d: %s", i, rendezvous_verdict_text(verdict));
    counts[verdict]++;
    modules_destroy();
  }
  for (int v = 0; v < 3; v++) cr_expect_gt(counts[v], 20);
}

/* ---- published verdicts, where the shared data is there ---- */

/* Adds the tokens of "0F0 0SEND_F0", whose stages are on the given ranks. */
static void add_actions(Module *module, Pipeline *pipeline, int rank,
                        const char *actions) {
  char *words = arena_strdup(module->arena, actions), *rest;
  for (char *word = strtok_r(words, " ", &rest); word;
       word = strtok_r(NULL, " ", &rest)) {
    Token token = {0};
    char kind[20];
    cr_assert_eq(
        sscanf(word, "%d%19[A-Z_]%d", &token.stage, kind, &token.microbatch), 3,
        "%s", word);
    for (int k = 0; k < N_TOKENS; k++)
      if (strcmp(token_info((TokenKind)k)->text, kind) == 0)
        token.kind = (TokenKind)k;
    vec_push(module->arena, &pipeline->lists[rank], token);
    if (token.stage >= pipeline->n_stages) pipeline->n_stages = token.stage + 1;
    if (token.microbatch >= pipeline->n_microbatches)
      pipeline->n_microbatches = token.microbatch + 1;
  }
}

static void find_peers(Module *module, Pipeline *pipeline,
                       const char *rank_of_stage) {
  int ranks[64], n = 0;
  for (const char *at = rank_of_stage; *at; at += strspn(at, " "))
    ranks[n++] = (int)strtol(at, (char **)&at, 10);
  pipeline->edges =
      pipeline_chain(module->arena, pipeline->n_stages, &pipeline->n_edges);
  for (int r = 0; r < pipeline->n_ranks; r++)
    for (int i = 0; i < pipeline->lists[r].n; i++) {
      Token *token = &pipeline->lists[r].data[i];
      if (!is_message(token)) continue;
      bool is_up = token->kind == TOKEN_send_forward ||
                   token->kind == TOKEN_receive_backward;
      bool is_send = token_info(token->kind)->role == TOKEN_ROLE_send;
      int other = token->stage + (is_up ? 1 : -1);
      token->peer = ranks[other];
      token->edge = pipeline_chain_edge(pipeline->n_stages,
                                        is_send ? token->stage : other,
                                        is_send ? other : token->stage);
    }
}

/* Two of the lists are parts of longer ones: what their calls read was there
 * before. */
static void forget_absent(RendezvousProgram *program) {
  for (int c = 0; c < program->n_classes; c++) {
    RendezvousClass *class = (RendezvousClass *)&program->classes[c];
    RendezvousNeed *needs = (RendezvousNeed *)class->needs;
    int n = 0;
    for (int i = 0; i < class->n_needs; i++)
      if (needs[i].before >= 0) needs[n++] = needs[i];
    class->n_needs = n;
  }
}

/* The columns: messages in one queue, all in order, orders of pairs agree. */
static void check_columns(Module *module, const char *name, Pipeline *pipeline,
                          const bool columns[3]) {
  RendezvousProgram *program = pipeline_rendezvous(module->arena, pipeline, 1);
  forget_absent(program);
  RendezvousVerdict queue =
      rendezvous_check(module->arena, program, RENDEZVOUS_messages).verdict;
  RendezvousVerdict all =
      rendezvous_check(module->arena, program, RENDEZVOUS_all).verdict;
  cr_expect_eq(queue == RENDEZVOUS_fine, columns[0], "%s", name);
  cr_expect_eq(all == RENDEZVOUS_fine, columns[1], "%s", name);
  cr_expect_eq(all != RENDEZVOUS_mismatch, columns[2], "%s", name);
}

Test(rendezvous, published_verdicts) {
  Module *module = module_create();
  const char *text,
      *path = TEST_ROOT "/../shared/data/schedules/rendezvous_cases.csv";
  size_t n;
  if (file_read(module->arena, path, 1 << 24, &text, &n).code != STATUS_ok) {
    cr_skip("skipped: no ../shared/data/schedules/rendezvous_cases.csv");
    return;
  }
  char *rows = arena_strdup(module->arena, text), *rest;
  Pipeline *pipeline = NULL;
  const char *name = "", *ranks = NULL;
  bool columns[3];
  int n_cases = 0;
  strtok_r(rows, "\n", &rest); /* the names of the columns */
  for (char *row = strtok_r(NULL, "\n", &rest);;
       row = strtok_r(NULL, "\n", &rest)) {
    char *fields[7] = {0}, *more;
    for (int f = 0; row && f < 7; f++)
      fields[f] = strtok_r(f ? NULL : row, ",", &more);
    if (pipeline && (!row || strcmp(fields[0], name) != 0)) {
      find_peers(module, pipeline, ranks);
      check_columns(module, name, pipeline, columns);
      n_cases++;
      pipeline = NULL;
    }
    if (!row) break;
    if (!pipeline) {
      pipeline = ARENA_NEW(module->arena, Pipeline);
      pipeline->lists = ARENA_ARRAY(module->arena, Tokens, 8);
      name = fields[0];
      ranks = fields[1];
    }
    add_actions(module, pipeline, atoi(fields[2]), fields[3]);
    pipeline->n_ranks = atoi(fields[2]) + 1;
    for (int c = 0; c < 3; c++) columns[c] = fields[4 + c][0] == '1';
  }
  cr_expect_gt(n_cases, 10);
}
