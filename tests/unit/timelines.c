// links: driver codegen frontend passes runtime ir support
/*
 * timelines.c -- tests of programs of several stages: their segments, the calls
 * and messages of each class of ranks, frames, and the proof.
 */
#include "tests/unit/stage_graphs.h"

TestSuite(timelines, .fini = modules_destroy);

static const char *text_of(const StageChain *chain, const EntryPoint *entry) {
  Text out = text_create(chain->module->arena);
  entry_point_print(&out, entry);
  return text_string(&out);
}

/* ---- text ---- */

Test(timelines, a_step_of_two_stages) {
  StageChain chain = {.n = 2, .n_microbatches = 2, .first_rank = {0, 2}};
  const EntryPoint *entries = stage_chain_entries(&chain, "1f1b");
  cr_expect_str_eq(text_of(&chain, &entries[0]),
                   "program train {\n"
                   "  stage 0 on 0..1, frames 2, slots 1\n"
                   "    once.0 nodes 0..4\n"
                   "    forward nodes 4..5\n"
                   "    backward nodes 5..9\n"
                   "    update.0 nodes 9..10\n"
                   "    update.2 nodes 10..12\n"
                   "  edge 0 \"y0\" forward of 0 -> forward of 1, 192 bytes\n"
                   "  edge 1 \"g0\" backward of 1 -> backward of 0, 192 bytes\n"
                   "  edge 2 \"n0\" update.0 of 0 -> update.1 of 1, 4 bytes\n"
                   "  edge 3 \"total0\" update.1 of 1 -> update.2 of 0, 4 "
                   "bytes\n"
                   "  call once.0 of 0\n"
                   "  call forward of 0, micro-batch 0, frame 0, slot 0\n"
                   "  send 0 to +2, micro-batch 0, frame 0, slot 0\n"
                   "  call forward of 0, micro-batch 1, frame 1, slot 0\n"
                   "  send 0 to +2, micro-batch 1, frame 1, slot 0\n"
                   "  receive 1 from +2, micro-batch 0, frame 0, slot 0\n"
                   "  call backward of 0, micro-batch 0, frame 0, slot 0\n"
                   "  receive 1 from +2, micro-batch 1, frame 1, slot 0\n"
                   "  call backward of 0, micro-batch 1, frame 1, slot 0\n"
                   "  call update.0 of 0\n"
                   "  send 2 to +2\n"
                   "  receive 3 from +2\n"
                   "  call update.2 of 0\n"
                   "}\n");
}

/* Weight gradients are calls of their own, and read what is received. */
Test(timelines, a_step_with_weight_gradients_apart) {
  StageChain chain = {.n = 2, .n_microbatches = 2, .first_rank = {0, 2}};
  const EntryPoint *entries = stage_chain_entries(&chain, "zbh1");
  cr_expect_str_eq(
      text_of(&chain, &entries[1]),
      "program train {\n"
      "  stage 1 on 2..3, frames 2, slots 2, input frames 1, weight frames 2\n"
      "    once.0 nodes 0..3\n"
      "    forward nodes 3..4\n"
      "    input_grad nodes 4..5\n"
      "    weight_grad nodes 5..8\n"
      "    update.0 nodes 8..9\n"
      "    update.1 nodes 9..12\n"
      "  edge 0 \"y0\" forward of 0 -> forward of 1, 192 bytes, 2 slots\n"
      "  edge 1 \"g0\" input_grad of 1 -> input_grad of 0, 192 bytes\n"
      "  edge 2 \"n0\" update.0 of 0 -> update.1 of 1, 4 bytes\n"
      "  edge 3 \"total0\" update.1 of 1 -> update.2 of 0, 4 bytes\n"
      "  call once.0 of 1\n"
      "  receive 0 from -2, micro-batch 0, frame 0, slot 0, input frame 0, "
      "weight frame 0\n"
      "  call forward of 1, micro-batch 0, frame 0, slot 0, input frame 0, "
      "weight frame 0\n"
      "  call input_grad of 1, micro-batch 0, frame 0, slot 0, input frame 0, "
      "weight frame 0\n"
      "  receive 0 from -2, micro-batch 1, frame 1, slot 1, input frame 0, "
      "weight frame 1\n"
      "  send 1 to -2, micro-batch 0, frame 0, slot 0, input frame 0, weight "
      "frame 0\n"
      "  call forward of 1, micro-batch 1, frame 1, slot 1, input frame 0, "
      "weight frame 1\n"
      "  call input_grad of 1, micro-batch 1, frame 1, slot 1, input frame 0, "
      "weight frame 1\n"
      "  send 1 to -2, micro-batch 1, frame 1, slot 1, input frame 0, weight "
      "frame 1\n"
      "  call weight_grad of 1, micro-batch 0, frame 0, slot 0, input frame 0, "
      "weight frame 0\n"
      "  call weight_grad of 1, micro-batch 1, frame 1, slot 1, input frame 0, "
      "weight frame 1\n"
      "  call update.0 of 1\n"
      "  receive 2 from -2\n"
      "  call update.1 of 1\n"
      "  send 3 to -2\n"
      "}\n");
}

/* Both stages are on the same ranks: values are passed on. */
Test(timelines, an_evaluation_on_one_rank) {
  StageChain chain = {.n = 2, .n_microbatches = 2, .is_evaluation = true};
  const EntryPoint *entries = stage_chain_entries(&chain, NULL);
  cr_expect_str_eq(text_of(&chain, &entries[0]),
                   "program eval {\n"
                   "  stage 0 on 0..1, frames 1, slots 1\n"
                   "    once.0 nodes 0..2\n"
                   "    forward nodes 2..3\n"
                   "    update.0 nodes 3..3\n"
                   "  stage 1 on 0..1, frames 1, slots 1\n"
                   "    once.0 nodes 0..2\n"
                   "    forward nodes 2..3\n"
                   "    update.0 nodes 3..3\n"
                   "  edge 0 \"y0\" forward of 0 -> forward of 1, 192 bytes\n"
                   "  call once.0 of 0\n"
                   "  call once.0 of 1\n"
                   "  call forward of 0, micro-batch 0, frame 0, slot 0\n"
                   "  pass 0, micro-batch 0, frame 0, slot 0\n"
                   "  call forward of 1, micro-batch 0, frame 0, slot 0\n"
                   "  call forward of 0, micro-batch 1, frame 0, slot 0\n"
                   "  pass 0, micro-batch 1, frame 0, slot 0\n"
                   "  call forward of 1, micro-batch 1, frame 0, slot 0\n"
                   "  call update.0 of 0\n"
                   "  call update.0 of 1\n"
                   "}\n");
}

/* ---- all shapes ---- */

static void place_stages(StageChain *chain, int form) {
  for (int s = 0; s < chain->n; s++)
    chain->first_rank[s] = 2 * stage_chain_group(form, chain->n, s);
}

/* A parameter of two stages is sent before the first forward pass, its share of
 * the gradient before the first norm. */
static void expect_step(const StageChain *chain, const EntryPoint *entry) {
  const char *text = text_of(chain, entry);
  for (int e = 0; e < chain->edges.n; e++) {
    const ProgramEdge *edge = &entry->edges.data[e];
    cr_expect(edge->bytes > 0 && edge->n_slots >= 1, "%s", text);
    if (!edge->is_of_step) continue;
    cr_expect_eq(edge->from_kind, edge->is_after ? TOKEN_update : TOKEN_once);
    cr_expect_eq(edge->to_kind, edge->from_kind);
  }
}

static int least(int a, int b) {
  return a < b ? a : b;
}

/* Micro-batches that have frames on rank r of p, each stage on its own. */
static void expect_frames(const ProgramStage *stage, const char *schedule,
                          int r, int p, int m) {
  if (strcmp(schedule, "naive") == 0) cr_expect_eq(stage->n_frames, 1);
  if (strcmp(schedule, "1f1b") == 0)
    cr_expect_eq(stage->n_frames, least(p - r, m));
  if (strcmp(schedule, "fthenb") == 0 || strcmp(schedule, "gpipe") == 0)
    cr_expect_eq(stage->n_frames, m);
  if (strcmp(schedule, "zbh1") == 0) {
    cr_expect_eq(stage->n_frames, least(p, m), "zbh1 rank %d of %d, m %d: %d",
                 r, p, m, stage->n_frames);
    cr_expect_eq(stage->n_input_frames, least(p - r, m));
  }
  if (strcmp(schedule, "zb1p") == 0)
    cr_expect_leq(stage->n_frames, least(p, m));
  if (strcmp(schedule, "zbh2") == 0)
    cr_expect_leq(stage->n_frames, least(2 * p - 1, m));
}

static void try_shape(const char *schedule, int n, int m, int form, bool skips,
                      bool shares, bool trains) {
  if (stage_chain_refuses(schedule, n, m, form)) return;
  StageChain chain = {.n = n,
                      .n_microbatches = m,
                      .has_skip = skips,
                      .has_shared = shares,
                      .is_evaluation = !trains};
  place_stages(&chain, form);
  const EntryPoint *entries =
      stage_chain_entries(&chain, trains ? schedule : NULL);
  int n_classes = stage_chain_groups(form, n);
  for (int c = 0; c < n_classes; c++) {
    Text errors = text_create(chain.module->arena);
    cr_expect(entry_point_check(&entries[c], &errors), "%s%s",
              text_of(&chain, &entries[c]), text_string(&errors));
    for (int s = 0; s < entries[c].stages.n; s++)
      cr_expect(
          instructions_check(entries[c].stages.data[s].instructions, &errors),
          "%s", text_string(&errors));
    expect_step(&chain, &entries[c]);
    for (int s = 0; s < entries[c].stages.n && form == FORM_apart && trains;
         s++)
      expect_frames(&entries[c].stages.data[s], schedule, c, n, m);
  }
  modules_destroy();
}

Test(timelines, all_schedules_and_shapes) {
  static const char *const schedules[] = {
      "naive", "fthenb", "gpipe", "1f1b", "interleaved", "zbh1", "zbh2",
      "zb1p",  "zbv",    "vhalf", "vmin", "dualpipev",   "bfs"};
  static const int counts[] = {1, 2, 3, 4, 8};
  for (int i = 0; i < ARRAY_LENGTH(schedules); i++)
    for (int n = 2; n <= 5; n++)
      for (int k = 0; k < ARRAY_LENGTH(counts); k++)
        for (int form = 0; form < N_FORMS; form++)
          for (int flags = 0; flags < 8; flags++)
            try_shape(schedules[i], n, counts[k], form, flags & 1, flags & 2,
                      flags & 4);
}

/* ---- mistakes ---- */

static const char *errors_of(const StageChain *chain, const EntryPoint *entry) {
  Text out = text_create(chain->module->arena);
  entry_point_check(entry, &out);
  return text_string(&out);
}

static int find_call(const EntryPoint *entry, ProgramCallKind kind, int edge,
                     int microbatch) {
  for (int i = 0; i < entry->timeline.n; i++) {
    const ProgramCall *call = &entry->timeline.data[i];
    if (call->kind == kind && call->edge == edge &&
        call->registers[REGISTER_microbatch] == microbatch)
      return i;
  }
  cr_assert_fail("no such call");
  return 0;
}

/* Moves a call of the timeline to another place. */
static void move_call(EntryPoint *entry, int from, int to) {
  ProgramCall call = entry->timeline.data[from];
  for (int i = from; i < to; i++)
    entry->timeline.data[i] = entry->timeline.data[i + 1];
  for (int i = from; i > to; i--)
    entry->timeline.data[i] = entry->timeline.data[i - 1];
  entry->timeline.data[to] = call;
}

Test(timelines, wrong_messages_and_frames_are_found) {
  StageChain chain = {.n = 2, .n_microbatches = 3, .first_rank = {0, 2}};
  EntryPoint *entry = stage_chain_entries(&chain, "1f1b");
  int n = entry->timeline.n;
  int send = find_call(entry, CALL_send, 0, 1);
  move_call(entry, send, send - 1);
  cr_expect_not_null(strstr(errors_of(&chain, entry),
                            "edge 0 ('y0', stage 0 to stage 1) leaves before"));
  move_call(entry, send - 1, send);
  int receive = find_call(entry, CALL_receive, 1, 0);
  move_call(entry, receive, receive + 1);
  cr_expect_not_null(
      strstr(errors_of(&chain, entry), "stage 1 to stage 0) arrives after"));
  move_call(entry, receive + 1, receive);
  entry->timeline.data[send].registers[REGISTER_microbatch] = 2;
  cr_expect_not_null(strstr(errors_of(&chain, entry),
                            "stage 0 to stage 1) has micro-batch 2 twice"));
  entry->timeline.data[send].registers[REGISTER_microbatch] = 1;
  entry->timeline.data[send].edge = 1;
  cr_expect_not_null(strstr(errors_of(&chain, entry), "has another message"));
  entry->timeline.data[send].edge = 0;
  ProgramCall *forward = &entry->timeline.data[send - 1];
  int frame = forward->registers[REGISTER_frame];
  forward->registers[REGISTER_frame] = !frame;
  cr_expect_not_null(strstr(errors_of(&chain, entry), "is used for"));
  forward->registers[REGISTER_frame] = 9;
  cr_expect_not_null(strstr(errors_of(&chain, entry), "no frame 9"));
  forward->registers[REGISTER_frame] = frame;
  cr_expect_str_eq(errors_of(&chain, entry), "");
  entry->timeline.n = n - 2; /* the total never comes */
  cr_expect_not_null(strstr(errors_of(&chain, entry), "0 messages, not 1"));
}

static int find_segment(const EntryPoint *entry, TokenKind kind,
                        int microbatch) {
  for (int i = 0; i < entry->timeline.n; i++) {
    const ProgramCall *call = &entry->timeline.data[i];
    if (call->kind == CALL_segment &&
        entry_point_segment(entry, call)->kind == kind &&
        call->registers[REGISTER_microbatch] == microbatch)
      return i;
  }
  cr_assert_fail("no such call");
  return 0;
}

Test(timelines, wrong_weight_gradients_are_found) {
  StageChain chain = {.n = 2, .n_microbatches = 3, .first_rank = {0, 2}};
  EntryPoint *entry = stage_chain_entries(&chain, "zbh1");
  int n = entry->timeline.n;
  int input = find_segment(entry, TOKEN_input_grad, 1);
  int weight = find_segment(entry, TOKEN_weight_grad, 1);
  move_call(entry, weight, input);
  cr_expect_not_null(strstr(errors_of(&chain, entry),
                            "segment 3 is called for micro-batch 1 before "
                            "segment 2"));
  move_call(entry, input, weight);
  ProgramCall *call = &entry->timeline.data[weight];
  call->registers[REGISTER_microbatch] = 2;
  cr_expect_not_null(strstr(errors_of(&chain, entry),
                            "segment 3 is called twice for micro-batch 2"));
  call->registers[REGISTER_microbatch] = 1;
  call->registers[REGISTER_frame] ^= 1;
  cr_expect_not_null(strstr(errors_of(&chain, entry), "is used for"));
  call->registers[REGISTER_frame] ^= 1;
  call->registers[REGISTER_weight_frame] = 7;
  cr_expect_not_null(
      strstr(errors_of(&chain, entry), "no frame of weight gradients 7"));
  call->registers[REGISTER_weight_frame] = 0;
  cr_expect_str_eq(errors_of(&chain, entry), "");
  move_call(entry, weight, n - 1);
  entry->timeline.n--;
  cr_expect_not_null(
      strstr(errors_of(&chain, entry), "segment 3 is called 2 times, not 3"));
}

/* The first stage would need before its micro-batches what the last one makes
 * after its own. */
Test(timelines, a_cycle_is_a_mistake) {
  StageChain chain = {
      .n = 2, .n_microbatches = 2, .has_shared = true, .first_rank = {0, 2}};
  stage_chain_make(&chain);
  ProgramEdge *shared = &chain.edges.data[0];
  shared->is_after = true;
  shared->level = 9;
  ProgramParts parts = stage_chain_parts(&chain, "1f1b");
  EntryPoint entries[2];
  cr_expect_not(program_timeline(chain.module->arena, &parts, entries));
  Text out = text_create(chain.module->arena);
  diags_print(chain.module->diags, &out);
  FILE *file = fopen(TEST_ROOT "/tests/golden/timelines.txt", "r");
  char golden[1000] = "";
  cr_assert_not_null(file);
  fread(golden, 1, sizeof golden - 1, file);
  fclose(file);
  cr_expect_str_eq(text_string(&out), golden, "%s", text_string(&out));
}
