// links: driver codegen frontend passes runtime ir support
/*
 * program.c -- tests of programs as IR: how an entry point is divided into
 * segments, how its timeline calls them, and that the check finds each call
 * that is left out, made twice or made too early.
 */
#include "ir/program.h"
#include "ir/place/mesh_place.h"
#include "tests/unit/values.h"

TestSuite(program, .fini = modules_destroy);

/* The sum over the batch of a rank is there before the micro-batches, and what
 * they add up is summed over the ranks after them. */
static const char sums[] =
    "graph g mesh(data = 2, time = 4~) {\n"
    "  %0 = input {index = 0} : f32[B:8@(data, time), C:3] data \"d.x\"\n"
    "  %1 = input {index = 1} : f32[C:3] param \"w\"\n"
    "  %2 = exp %1 : f32[C:3]\n"
    "  %3 = mul %0, %2 : f32[B:8@(data, time), C:3]\n"
    "  %4 = sum %3 {over = [B]} : f32[C:3; sum@(data, time)]\n"
    "  %5 = accumulate %4 {axes = [time], reduce = sum} : f32[C:3; sum@data]\n"
    "  %6 = all_reduce %5 {axes = [data], reduce = sum, bucket = 0} : "
    "f32[C:3]\n"
    "  output result \"y\" %6\n"
    "}\n";

static const char once[] =
    "graph g mesh(data = 2) {\n"
    "  %0 = input {index = 0} : f32[B:8@data, C:3] data \"d.x\"\n"
    "  %1 = exp %0 : f32[B:8@data, C:3]\n"
    "  output result \"y\" %1\n"
    "}\n";

static EntryPoint entry_point_of_text(const char *text) {
  Module *module = module_create();
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){.path = "test", .text = text, .n = strlen(text)};
  Graph *graph = graph_parse(module, source);
  cr_assert_not_null(graph);
  return entry_point_of_list(module->arena, ENTRY_train,
                             instructions_of(module->arena, graph, NULL));
}

static const char *errors_of(const EntryPoint *entry) {
  Text out = text_create(entry->stages.data[0].graph->module->arena);
  entry_point_check(entry, &out);
  return text_string(&out);
}

/* ---- segments and calls ---- */

static void expect_segment(const EntryPoint *entry, int number,
                           ProgramSegment want) {
  const ProgramSegment *is = &entry_point_stage(entry)->segments.data[number];
  cr_expect(is->first_node == want.first_node && is->end_node == want.end_node,
            "segment %d: nodes %d to %d", number, is->first_node, is->end_node);
  cr_expect(is->begin == want.begin && is->end == want.end,
            "segment %d: instructions %d to %d", number, is->begin, is->end);
  cr_expect(is->kind == want.kind && is->part == want.part);
  cr_expect_eq(is->n_registers, want.n_registers);
}

Test(program, micro_batches_are_calls_of_one_segment) {
  EntryPoint entry = entry_point_of_text(sums);
  cr_expect_str_eq(errors_of(&entry), "");
  cr_assert_eq(entry_point_stage(&entry)->segments.n, 3);
  /* The exponential and the clear; mul, sum, accumulate; start and wait. */
  expect_segment(&entry, 0, (ProgramSegment){TOKEN_once, 0, 0, 3, 0, 2, 0});
  expect_segment(&entry, 1, (ProgramSegment){TOKEN_forward, 0, 3, 6, 3, 6, 1});
  expect_segment(&entry, 2, (ProgramSegment){TOKEN_update, 0, 6, 7, 7, 9, 0});
  cr_assert_eq(entry.timeline.n, 6);
  cr_expect_eq(entry_point_repeats(&entry, 0), 1);
  cr_expect_eq(entry_point_repeats(&entry, 1), 4);
  for (int k = 0; k < 4; k++) {
    const ProgramCall *call = &entry.timeline.data[k + 1];
    cr_expect(call->segment == 1 && call->is_first == (k == 0));
    cr_expect_eq(call->registers[REGISTER_microbatch], k);
  }
}

Test(program, what_runs_once_is_one_call) {
  EntryPoint entry = entry_point_of_text(once);
  cr_expect_str_eq(errors_of(&entry), "");
  expect_segment(&entry, 0, (ProgramSegment){TOKEN_once, 0, 0, 2, 0, 1, 0});
  cr_expect(entry_point_stage(&entry)->segments.n == 1 &&
            entry.timeline.n == 1);
}

/* ---- the check ---- */

/* A copy whose timeline has the calls `order` names, with -1 at the end. */
static EntryPoint reordered(const EntryPoint *entry, const int *order) {
  Arena *arena = entry->stages.data[0].graph->module->arena;
  EntryPoint changed = *entry;
  memset(&changed.timeline, 0, sizeof changed.timeline);
  for (int i = 0; order[i] >= 0; i++)
    vec_push(arena, &changed.timeline, entry->timeline.data[order[i]]);
  return changed;
}

Test(program, wrong_timelines_are_found) {
  static const struct {
    int order[9];
    const char *error;
  } cases[] = {
      {{0, 1, 3, 4, 5, -1}, "segment 1 is called 3 times, not 4"},
      {{0, 1, 2, 2, 3, 4, 5, -1}, "is called twice for micro-batch 1"},
      {{0, 1, 2, 3, 5, 4, -1},
       "segment 2 is called before segment 1 of micro-batch 3"},
      {{1, 2, 3, 4, 0, 5, -1}, "before segment 0"},
      {{0, 2, 1, 3, 4, 5, -1}, "the wrong call of segment 1 is marked"},
  };
  EntryPoint entry = entry_point_of_text(sums);
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    EntryPoint changed = reordered(&entry, cases[i].order);
    cr_expect_not_null(strstr(errors_of(&changed), cases[i].error),
                       "case %d: %s", i, errors_of(&changed));
    cr_expect_not(entry_point_check(&changed, NULL));
  }
}

/* Micro-batches may come in any order. */
Test(program, another_order_of_micro_batches_is_legal) {
  static const int order[] = {0, 4, 3, 2, 1, 5, -1};
  EntryPoint entry = entry_point_of_text(sums);
  EntryPoint changed = reordered(&entry, order);
  changed.timeline.data[1].is_first = true;
  changed.timeline.data[4].is_first = false;
  cr_expect_str_eq(errors_of(&changed), "");
}

Test(program, segments_without_an_instruction_are_found) {
  EntryPoint entry = entry_point_of_text(sums);
  entry_point_stage(&entry)->segments.data[1].end--;
  cr_expect_str_eq(errors_of(&entry),
                   "stage 0: segment 2 begins at node 6 and instruction 7, "
                   "not 6, 6\n");
}
