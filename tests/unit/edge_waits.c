// links: driver codegen frontend passes price runtime ir support
/*
 * edge_waits.c -- tests where a segment waits for messages between stages.
 */
#include "price/edge_waits.h"

#include "codegen/select.h"
#include "tests/unit/stage_graphs.h"

TestSuite(edge_waits, .fini = modules_destroy);

static void assign_buffers(const StageChain *chain, EntryPoint *entry) {
  const Backend *backend = backend_find("cpu");
  PersistentBuffers persistent = {0};
  for (int s = 0; s < entry->stages.n; s++)
    persistent_buffers_add(&persistent, chain->module->arena,
                           entry->stages.data[s].graph, &backend->target);
  PassContext ctx = {.module = chain->module,
                     .target = &backend->target,
                     .scratch = arena_beside(chain->module->arena)};
  buffer_assign_stages(&ctx, entry, &persistent);
  arena_destroy(ctx.scratch);
}

/* Returns the wait of the update for the norm of the stage before. */
static EdgeWait wait_for_norm(const StageChain *chain,
                              const EntryPoint *entry) {
  const ProgramStage *stage = &entry->stages.data[0];
  const ProgramSegment *update = &stage->segments.data[stage->segments.n - 1];
  EdgeWaits waits = edge_waits_of(chain->module->arena, entry, stage, update);
  int found = waits.n;
  for (int i = 0; i < waits.n; i++)
    if (strcmp(entry->edges.data[waits.data[i].edge].path, "n0") == 0 &&
        waits.data[i].direction == LINK_in)
      found = i;
  cr_assert_lt(found, waits.n);
  return waits.data[found];
}

static int start_of_sum(const ProgramStage *stage) {
  const InstructionList *list = stage->instructions;
  int at = 0;
  while (at < list->instructions.n &&
         list->instructions.data[at].kind != INSTRUCTION_start)
    at++;
  cr_assert_lt(at, list->instructions.n);
  return at;
}

/* The sum of gradients starts first, and only then the norm is waited for. */
Test(edge_waits, stand_before_what_reads_the_message) {
  StageChain chain = {
      .n = 2, .n_microbatches = 2, .is_sharded = true, .first_rank = {0, 2}};
  EntryPoint *entries = stage_chain_entries(&chain, "1f1b");
  const ProgramStage *stage = &entries[1].stages.data[0];
  const ProgramSegment *update = &stage->segments.data[stage->segments.n - 1];
  cr_expect_eq(wait_for_norm(&chain, &entries[1]).instruction, update->begin);
  assign_buffers(&chain, &entries[1]);
  cr_expect_gt(wait_for_norm(&chain, &entries[1]).instruction,
               start_of_sum(stage));
}

/* A gradient may lie where a value was sent, so the first to write there waits,
 * and no segment waits twice for an edge in one direction. */
Test(edge_waits, are_in_the_order_of_instructions) {
  StageChain chain = {.n = 3, .n_microbatches = 4, .first_rank = {0, 1, 2}};
  EntryPoint *entries = stage_chain_entries(&chain, "1f1b");
  assign_buffers(&chain, &entries[1]);
  const ProgramStage *stage = &entries[1].stages.data[0];
  int n_in = 0;
  for (int s = 0; s < stage->segments.n; s++) {
    const ProgramSegment *segment = &stage->segments.data[s];
    EdgeWaits waits =
        edge_waits_of(chain.module->arena, &entries[1], stage, segment);
    for (int i = 0; i < waits.n; i++) {
      n_in += waits.data[i].direction == LINK_in;
      cr_expect(waits.data[i].instruction >= segment->begin &&
                waits.data[i].instruction <= segment->end);
      cr_expect(i == 0 ||
                waits.data[i - 1].instruction <= waits.data[i].instruction);
    }
  }
  cr_expect_eq(n_in, 4); /* y0, g1, n0 and total1 */
}
