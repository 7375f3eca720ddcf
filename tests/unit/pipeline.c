// links: price interp ir support
/*
 * pipeline.c -- tests schedules of pipelines, their messages, the frames that
 * they need and the time that they take.
 */
#include "price/schedule_list.h"
#include "tests/unit/pipeline_lists.h"

TestSuite(pipeline, .fini = modules_destroy);

/* ---- lists of our own ---- */

Test(pipeline, lists) {
  static const struct {
    const char *name;
    int p, m;
    const char *list;
  } cases[] = {
      {"naive", 2, 2, "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n"},
      {"fthenb", 2, 2, "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"},
      {"gpipe", 2, 2, "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"},
      {"1f1b", 3, 3,
       "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1B0,1F2,1B1,1B2\n"
       "2F0,2B0,2F1,2B1,2F2,2B2\n"},
      {"1f1b", 3, 1, "0F0,0B0\n1F0,1B0\n2F0,2B0\n"},
      {"1f1b", 1, 2, "0F0,0B0,0F1,0B1\n"},
      {"interleaved(v = 2)", 2, 2,
       "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1\n"},
      {"interleaved(v = 1)", 1, 2, "0F0,0B0,0F1,0B1\n"},
      {"bfs", 2, 2,
       "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n1F0,1F1,3F0,3F1,3B0,3B1,1B0,1B1\n"},
      {"bfs(v = 3)", 1, 1, "0F0,1F0,2F0,2B0,1B0,0B0\n"},
  };
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Module *module = module_create();
    cr_expect_str_eq(print(module, make_pipeline(module, cases[i].name,
                                                 cases[i].p, cases[i].m)),
                     cases[i].list);
  }
}

/* A receive stands as late as it may: rank 1 of 1f1b must receive 1F1 before it
 * sends 1B0, since rank 0 sends that before it receives this. */
Test(pipeline, messages) {
  Module *module = module_create();
  cr_expect_str_eq(
      print(module,
            pipeline_lower(module->arena, make_pipeline(module, "1f1b", 2, 2))),
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1B0,1RECV_F1,1SEND_B0,1F1,1B1,1SEND_B1\n");
  cr_expect_str_eq(
      print(module, pipeline_lower(module->arena,
                                   make_pipeline(module, "fthenb", 2, 2))),
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n");
}

/* The spellings of a schedule: other numbers of stages a rank, other times. */
static int spell(Module *module, const PipelineSchedule *schedule,
                 const char *names[4]) {
  static const char *const args[][4] = {
      [PIPELINE_ARGS_none] = {""},
      [PIPELINE_ARGS_chunks] = {"(v = 1)", "", "(v = 3)", "(v = 4)"},
      [PIPELINE_ARGS_times] = {"", "(times = (3, 1, 7))"},
      [PIPELINE_ARGS_vertical] = {""},
  };
  int n = 0;
  for (; n < 4 && args[schedule->args][n]; n++)
    names[n] = arena_printf(module->arena, "%s%s", schedule->name,
                            args[schedule->args][n]);
  return n;
}

/* Returns false if the schedule needs another shape. */
static bool check_proof(const char *name, int p, int m) {
  Module *module = module_create();
  Pipeline *pipeline = try_pipeline(module, name, p, m);
  if (!pipeline) return false;
  Pipeline *lowered = pipeline_lower(module->arena, pipeline);
  RendezvousProgram *program = pipeline_rendezvous(module->arena, lowered, 1);
  for (int order = 0; order < 2; order++)
    cr_expect_eq(
        rendezvous_check(module->arena, program, (RendezvousOrder)order)
            .verdict,
        RENDEZVOUS_fine, "%s p %d m %d", name, p, m);
  return true;
}

/* Each schedule, with fewer micro-batches than ranks too, cannot hang, whether
 * calls wait for messages or are beside them. */
Test(pipeline, no_schedule_hangs) {
  int n_made = 0;
  for (int i = 0; i < pipeline_schedule_count(); i++)
    for (int p = 1; p <= 8; p++)
      for (int m = 1; m <= 16; m++) {
        const char *names[4];
        Module *module = module_create();
        int n = spell(module, pipeline_schedule(i), names);
        for (int k = 0; k < n; k++) n_made += check_proof(names[k], p, m);
        modules_destroy();
      }
  cr_expect_gt(n_made, 100 * pipeline_schedule_count());
}

/* ---- edges of any kind ---- */

/* A value that skips a stage, two values between one pair of stages, and one
 * that passes once a step. */
Test(pipeline, edges_of_any_kind) {
  Module *module = module_create();
  Pipeline *pipeline = make_pipeline(module, "1f1b", 3, 2);
  static const PipelineEdge edges[] = {
      {.from = TOKEN_forward, .to = TOKEN_forward, .to_stage = 1},
      {.from = TOKEN_forward, .to = TOKEN_forward, .to_stage = 1},
      {.from = TOKEN_forward, .to = TOKEN_forward, .to_stage = 2},
      {.from = TOKEN_forward,
       .to = TOKEN_forward,
       .from_stage = 1,
       .to_stage = 2},
      {.from = TOKEN_input_grad, .to = TOKEN_input_grad, .from_stage = 2},
      {.from = TOKEN_norm, .to = TOKEN_update, .from_stage = 2},
  };
  pipeline->edges = edges;
  pipeline->n_edges = ARRAY_LENGTH(edges);
  vec_push(module->arena, &pipeline->lists[2],
           (Token){.kind = TOKEN_norm, .stage = 2});
  vec_push(module->arena, &pipeline->lists[0],
           (Token){.kind = TOKEN_update, .stage = 0});
  Pipeline *lowered = pipeline_lower(module->arena, pipeline);
  cr_expect_eq(verdict_of(module, lowered), RENDEZVOUS_fine);
  const char *text = print(module, lowered);
  static const char *const parts[] = {"0F0,0SEND_F0,0SEND_F0,0SEND_F0>2,0F1",
                                      "2RECV_F0<0", "2NORM,2SEND>0",
                                      "0B1,0RECV<2,0UPDATE"};
  for (int i = 0; i < ARRAY_LENGTH(parts); i++)
    cr_expect(strstr(text, parts[i]), "%s: %s", parts[i], text);
}

/* All stages of one rank have no messages; of two ranks those in the middle. */
/* A running sum goes up, the total comes back: what follows from it is a part
 * of the step that waits for it. */
Test(pipeline, parts_of_a_step) {
  Module *module = module_create();
  const PipelineEdge edges[] = {{.from = TOKEN_update,
                                 .to = TOKEN_update,
                                 .from_stage = 0,
                                 .to_stage = 1,
                                 .to_part = 1},
                                {.from = TOKEN_update,
                                 .to = TOKEN_update,
                                 .from_stage = 1,
                                 .to_stage = 0,
                                 .from_part = 1,
                                 .to_part = 2}};
  Pipeline pipeline = *make_pipeline(module, "fthenb", 2, 1);
  pipeline.edges = edges;
  pipeline.n_edges = ARRAY_LENGTH(edges);
  const int parts[2][2] = {{0, 2}, {0, 1}};
  for (int r = 0; r < 2; r++)
    for (int i = 0; i < 2; i++)
      vec_push(
          module->arena, &pipeline.lists[r],
          (Token){.kind = TOKEN_update, .stage = r, .microbatch = parts[r][i]});
  const Pipeline *lowered = pipeline_lower(module->arena, &pipeline);
  cr_expect_str_eq(print(module, lowered),
                   "0F0,0B0,0UPDATE,0SEND>1,0RECV,0UPDATE.2\n"
                   "1F0,1B0,1UPDATE,1RECV<0,1UPDATE.1,1SEND\n");
  cr_expect_eq(verdict_of(module, lowered), RENDEZVOUS_fine);
}

Test(pipeline, stages_that_share_a_rank) {
  static const char *const names[] = {"naive", "fthenb", "1f1b"};
  for (int i = 0; i < ARRAY_LENGTH(names); i++) {
    Module *module = module_create();
    Pipeline *pipeline = make_pipeline(module, names[i], 4, 3);
    static const int on_one[] = {0, 0, 0, 0}, on_two[] = {0, 0, 1, 1};
    Pipeline *one = pipeline_lower(
        module->arena, pipeline_place(module->arena, pipeline, 1, on_one));
    cr_expect(!pipeline_has_messages(one));
    cr_expect_eq(one->lists[0].n, 24);
    cr_expect_eq(verdict_of(module, one), RENDEZVOUS_fine);
    Pipeline *two = pipeline_lower(
        module->arena, pipeline_place(module->arena, pipeline, 2, on_two));
    cr_expect_eq(two->lists[0].n, 12 + 2 * 3);
    cr_expect_eq(verdict_of(module, two), RENDEZVOUS_fine);
  }
}

/* ---- frames ---- */

Test(pipeline, frames) {
  for (int p = 1; p <= 6; p++)
    for (int m = 1; m <= 12; m++) {
      Module *module = module_create();
      int frames[12], clash[2];
      for (int r = 0; r < p; r++) {
        FrameClass class = {.stage = r,
                            .first = TOKEN_forward,
                            .last = TOKEN_input_grad,
                            .edge = -1};
        Pipeline *pipeline = make_pipeline(module, "1f1b", p, m);
        int ahead = p - r < m ? p - r : m;
        cr_expect_eq(pipeline_frames(module->arena,
                                     pipeline_lower(module->arena, pipeline), r,
                                     &class, frames),
                     ahead);
        cr_expect(!pipeline_frames_clash(module->arena, pipeline, r, &class,
                                         frames, clash));
        pipeline = make_pipeline(module, "fthenb", p, m);
        cr_expect_eq(
            pipeline_frames(module->arena, pipeline, r, &class, frames), m);
        cr_expect(!pipeline_frames_clash(module->arena, pipeline, r, &class,
                                         frames, clash));
        frames[m - 1] = 0; /* while micro-batch 0 is alive */
        cr_expect_eq(pipeline_frames_clash(module->arena, pipeline, r, &class,
                                           frames, clash),
                     m > 1);
      }
      modules_destroy();
    }
}

/* zbh1 needs p frames for what W reads, and no more than 1f1b for the rest. */
Test(pipeline, frames_of_two_parts) {
  for (int p = 1; p <= 6; p++)
    for (int m = 1; m <= 12; m++) {
      Module *module = module_create();
      const Pipeline *lowered =
          pipeline_lower(module->arena, make_pipeline(module, "zbh1", p, m));
      for (int r = 0; r < p; r++) {
        FrameClass class = {.stage = r,
                            .first = TOKEN_forward,
                            .last = TOKEN_input_grad,
                            .edge = -1};
        cr_expect_eq(pipeline_frames(module->arena, lowered, r, &class, NULL),
                     p - r < m ? p - r : m);
        class.last = TOKEN_weight_grad;
        cr_expect_eq(pipeline_frames(module->arena, lowered, r, &class, NULL),
                     p < m ? p : m);
      }
      modules_destroy();
    }
}

/* A slot of a message is taken from its receive to its reader, and from what
 * computes it to its send. */
Test(pipeline, message_slots) {
  Module *module = module_create();
  int edge = pipeline_chain_edge(2, 0, 1);
  FrameClass receive = {1, TOKEN_receive_forward, TOKEN_input_grad, edge},
             send = {0, TOKEN_forward, TOKEN_send_forward, edge};
  static const char *const names[] = {"1f1b", "fthenb"};
  for (int i = 0; i < 2; i++) {
    Pipeline *lowered =
        pipeline_lower(module->arena, make_pipeline(module, names[i], 2, 4));
    cr_expect_eq(pipeline_frames(module->arena, lowered, 1, &receive, NULL),
                 i == 0 ? 1 : 4);
    cr_expect_eq(pipeline_frames(module->arena, lowered, 0, &send, NULL), 1);
  }
}

/* ---- memory of a sender ---- */

typedef struct Lists {
  const Pipeline *pipeline;
  bool has_one_place; /* a value waits until the one before was received */
  int *at;            /* by rank: tokens done */
  int *now;
  int *sent, *posted; /* by edge and micro-batch; -1: not yet */
  int *latest;        /* by edge: micro-batch that was sent last, or -1 */
} Lists;

/* Raises `begin` to when a message is over; false if it has not begun. */
static bool wait_for_message(const Lists *l, int edge, int microbatch,
                             int *begin) {
  int at = edge * l->pipeline->n_microbatches + microbatch;
  if (l->sent[at] < 0 || l->posted[at] < 0) return false;
  if (*begin < l->sent[at]) *begin = l->sent[at];
  if (*begin < l->posted[at]) *begin = l->posted[at];
  return true;
}

/* Returns whether a receive of the value stands in any list. */
static bool is_message(const Pipeline *pipeline, int edge) {
  for (int r = 0; r < pipeline->n_ranks; r++)
    for (int i = 0; i < pipeline->lists[r].n; i++) {
      const Token *token = &pipeline->lists[r].data[i];
      if (token_info(token->kind)->role == TOKEN_ROLE_receive &&
          token->edge == edge)
        return true;
    }
  return false;
}

static bool call_is_made(Lists *l, int rank, const Token *token) {
  TokenKind kind =
      token->kind == TOKEN_backward ? TOKEN_input_grad : token->kind;
  int begin = l->now[rank];
  for (int e = 0; e < l->pipeline->n_edges; e++) {
    const PipelineEdge *edge = &l->pipeline->edges[e];
    if (!is_message(l->pipeline, e)) continue;
    if (edge->to == kind && edge->to_stage == token->stage &&
        !wait_for_message(l, e, token->microbatch, &begin))
      return false;
    if (l->has_one_place && edge->from == kind &&
        edge->from_stage == token->stage && l->latest[e] >= 0 &&
        !wait_for_message(l, e, l->latest[e], &begin))
      return false;
  }
  l->now[rank] = begin + (token->kind == TOKEN_backward ? 2 : 1);
  return true;
}

static bool is_done(Lists *l, int rank) {
  const Token *token = &l->pipeline->lists[rank].data[l->at[rank]];
  int at = token->edge * l->pipeline->n_microbatches + token->microbatch;
  switch (token_info(token->kind)->role) {
  case TOKEN_ROLE_send:
    l->sent[at] = l->now[rank];
    l->latest[token->edge] = token->microbatch;
    return true;
  case TOKEN_ROLE_receive: l->posted[at] = l->now[rank]; return true;
  default: return call_is_made(l, rank, token);
  }
}

static int time_of_lists(Module *module, const Pipeline *pipeline,
                         bool has_one_place) {
  int n = pipeline->n_edges * pipeline->n_microbatches, end = 0;
  Lists l = {.pipeline = pipeline, .has_one_place = has_one_place};
  l.at = ARENA_ARRAY(module->arena, int, pipeline->n_ranks);
  l.now = ARENA_ARRAY(module->arena, int, pipeline->n_ranks);
  l.sent = ARENA_ARRAY(module->arena, int, n + 1);
  l.posted = ARENA_ARRAY(module->arena, int, n + 1);
  l.latest = ARENA_ARRAY(module->arena, int, pipeline->n_edges + 1);
  for (int i = 0; i < n; i++) l.sent[i] = l.posted[i] = -1;
  for (int e = 0; e < pipeline->n_edges; e++) l.latest[e] = -1;
  for (bool any = true; any;) {
    any = false;
    for (int r = 0; r < pipeline->n_ranks; r++)
      while (l.at[r] < pipeline->lists[r].n && is_done(&l, r)) {
        l.at[r]++;
        any = true;
      }
  }
  for (int r = 0; r < pipeline->n_ranks; r++) {
    cr_expect_eq(l.at[r], pipeline->lists[r].n, "rank %d waits", r);
    if (l.now[r] > end) end = l.now[r];
  }
  return end;
}

/* A sender has memory for one value of an edge, and its next call waits until
 * that was received: no schedule takes longer for it. */
Test(pipeline, no_sender_waits_for_memory) {
  static const char *const names[] = {
      "1f1b",  "interleaved(v = 2)", "zbh1", "zbh2", "zbv",
      "vhalf", "dualpipev"};
  for (int i = 0; i < ARRAY_LENGTH(names); i++)
    for (int p = 2; p <= 4; p++)
      for (int m = 2 * p; m <= 4 * p; m += p) {
        Module *module = module_create();
        const Pipeline *lowered = pipeline_lower(
            module->arena, make_pipeline(module, names[i], p, m));
        cr_expect_eq(time_of_lists(module, lowered, true),
                     time_of_lists(module, lowered, false), "%s, %d, %d",
                     names[i], p, m);
        modules_destroy();
      }
}

/* ---- time ---- */

/* With messages that take no time the ramp is (p - 1) (F + B). */
Test(pipeline, idle) {
  for (int p = 2; p <= 4; p++) {
    Module *module = module_create();
    ScheduleTimes times = {100, 100, 100};
    const ScheduleList *list = schedule_list_make(
        module->arena, make_pipeline(module, "1f1b", p, 8), &times);
    SimResult result = simulate(module->arena, &list->program, 1, NULL, NULL);
    Ps most = 0;
    for (int r = 0; r < p; r++)
      if (list->work[r] > most) most = list->work[r];
    cr_expect_eq(result.step - most, (p - 1) * 300);
  }
}

/* ---- published lists, where the shared data is there ---- */

Test(pipeline, published_schedules) {
  static const struct {
    const char *file, *name;
    int p, m;
  } cases[] = {
      {"zbpp_1f1b_p2_m4.csv", "1f1b", 2, 4},
      {"zbpp_1f1b_p4_m2.csv", "1f1b", 4, 2},
      {"zbpp_1f1b_p4_m4.csv", "1f1b", 4, 4},
      {"zbpp_1f1b_p4_m8.csv", "1f1b", 4, 8},
      {"zbpp_interleaved_v2_p2_m4.csv", "interleaved(v = 2)", 2, 4},
      {"zbpp_interleaved_v2_p4_m4.csv", "interleaved(v = 2)", 4, 4},
      {"zbpp_interleaved_v2_p4_m8.csv", "interleaved(v = 2)", 4, 8},
      {"torch_zb1p_2rank_2stagep_compute.csv", "zb1p(v = 2)", 2, 8},
      {"torch_dualpipev_4rank_10mb.csv", "dualpipev", 4, 10},
      {"chimera_p4_m4_timed.csv", "chimera", 4, 4},
      {"derived_dualpipev_p2_m4.csv", "dualpipev", 2, 4},
      {"derived_dualpipev_p2_m6.csv", "dualpipev", 2, 6},
      {"derived_dualpipev_p4_m8.csv", "dualpipev", 4, 8},
      {"derived_zb1p_v1_p4_m4.csv", "zb1p(v = 1)", 4, 4},
      {"derived_zb1p_v2_p4_m8.csv", "zb1p(v = 2)", 4, 8},
      {"derived_zb1p_v2_p4_m10.csv", "zb1p(v = 2)", 4, 10},
      {"derived_zb1p_v1_p4_m4.csv", "zbh1", 4, 4},
      {"zbpp_zbh1_p2_m4.csv", "zbh1", 2, 4},
      {"zbpp_zbh1_p4_m8.csv", "zbh1", 4, 8},
      {"derived_zbv_static_p2_m4.csv", "zbv", 2, 4},
      {"derived_zbv_static_p4_m8.csv", "zbv", 4, 8},
      {"derived_interleaved_v2_p4_m3.csv", "interleaved(v = 2)", 4, 3},
      {"derived_interleaved_v2_p4_m10.csv", "interleaved(v = 2)", 4, 10},
      {"derived_interleaved_v3_p4_m12.csv", "interleaved(v = 3)", 4, 12},
      {"derived_gpipe_p2_m4.csv", "fthenb", 2, 4},
      {"derived_gpipe_p4_m8.csv", "fthenb", 4, 8},
  };
  Module *module = module_create();
  if (!file_text(module, cases[0].file)) {
    cr_skip("skipped: no ../shared/data/schedules");
    return;
  }
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Pipeline *read = read_text(module, file_text(module, cases[i].file));
    cr_expect_str_eq(print(module, read),
                     print(module, make_pipeline(module, cases[i].name,
                                                 cases[i].p, cases[i].m)),
                     "%s", cases[i].file);
  }
}

/* Messages that rank `from` sends to `to`, or that `to` receives from it, as
 * the names of the stages that compute them. */
static const char *messages_between(Module *module, const Pipeline *pipeline,
                                    int from, int to, bool is_sent) {
  Text text = text_create(module->arena);
  const Tokens *list = &pipeline->lists[is_sent ? from : to];
  for (int i = 0; i < list->n; i++) {
    const Token *token = &list->data[i];
    TokenRole role = token_info(token->kind)->role;
    if (role != (is_sent ? TOKEN_ROLE_send : TOKEN_ROLE_receive) ||
        token->peer != (is_sent ? to : from))
      continue;
    text_printf(&text, "%d%s%d ", pipeline->edges[token->edge].from_stage,
                pipeline->edges[token->edge].from == TOKEN_forward ? "F" : "B",
                token->microbatch);
  }
  return text_string(&text);
}

Test(pipeline, published_messages) {
  static const char *const files[] = {
      "zbpp_1f1b_p4_m8_comms.csv", "zbpp_interleaved_v2_p4_m8_comms.csv",
      "zbpp_zbv_p4_m8_comms.csv", "torch_zb1p_2rank_2stagep_comms.csv"};
  Module *module = module_create();
  if (!file_text(module, files[0])) {
    cr_skip("skipped: no ../shared/data/schedules");
    return;
  }
  for (int i = 0; i < ARRAY_LENGTH(files); i++) {
    Pipeline *read = read_text(module, file_text(module, files[i]));
    Pipeline *lowered = pipeline_lower(module->arena, read);
    int n_messages = 0;
    for (int a = 0; a < read->n_ranks; a++)
      for (int b = 0; b < read->n_ranks; b++)
        for (int is_sent = 0; is_sent < 2; is_sent++) {
          const char *expected = messages_between(module, read, a, b, is_sent);
          n_messages += (int)strlen(expected) / 4;
          cr_expect_str_eq(messages_between(module, lowered, a, b, is_sent),
                           expected, "%s: from %d to %d", files[i], a, b);
        }
    cr_expect_gt(n_messages, 50, "%s", files[i]);
    cr_expect_eq(verdict_of(module, read), RENDEZVOUS_fine, "%s", files[i]);
    cr_expect_eq(verdict_of(module, lowered), RENDEZVOUS_fine, "%s", files[i]);
  }
}
