// links: driver codegen frontend passes runtime ir support
/*
 * stage_launches.c -- tests of the launches of several stages: segments over
 * all stages, messages, the waits for them, and how buffers move.
 */
#include "codegen/select.h"
#include "tests/unit/stage_graphs.h"

TestSuite(stage_launches, .fini = modules_destroy);

static LaunchList select_class(const StageChain *chain, EntryPoint *entry) {
  const Backend *backend = backend_find("cpu");
  PersistentBuffers persistent = {0};
  LaunchList launches = {0};
  for (int s = 0; s < entry->stages.n; s++)
    persistent_buffers_add(&persistent, chain->module->arena,
                           entry->stages.data[s].graph, &backend->target);
  PassContext ctx = {.module = chain->module,
                     .target = &backend->target,
                     .scratch = arena_beside(chain->module->arena)};
  buffer_assign_stages(&ctx, entry, &persistent);
  arena_destroy(ctx.scratch);
  KernelSet *kernels = kernel_set_create(chain->module, backend);
  Status status = select_entry_point(kernels, entry, NULL, NULL, &launches);
  cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
  return launches;
}

static const char *text_of(const StageChain *chain, const LaunchList *list) {
  Text out = text_create(chain->module->arena);
  for (int s = 0; s < list->segments.n; s++) {
    const DnnSegment *segment = &list->segments.data[s];
    text_printf(&out, "%d:", s);
    for (int i = segment->begin; i < segment->begin + segment->n; i++) {
      const Launch *launch = list->data[i];
      if (launch->op == DNN_OP_WAIT)
        text_printf(&out, " wait %lld", (long long)launch->numbers.data[0]);
      else if (launch->op == DNN_OP_COLLECTIVE)
        text_printf(&out, " %s %d %+d",
                    launch->collective.kind == DNN_SEND ? "send" : "receive",
                    launch->collective.id, launch->collective.peer);
      else
        text_printf(&out, " %s",
                    launch->op == DNN_OP_COPY   ? "copy"
                    : launch->op == DNN_OP_ZERO ? "zero"
                                                : "run");
    }
    text_add(&out, "\n");
  }
  text_add(&out, "calls");
  for (int i = 0; i < list->calls.n; i++)
    text_printf(&out, " %d", list->calls.data[i].segment);
  return text_string(&out);
}

Test(stage_launches, messages_and_waits) {
  StageChain chain = {.n = 2, .n_microbatches = 2, .first_rank = {0, 2}};
  EntryPoint *entries = stage_chain_entries(&chain, "1f1b");
  LaunchList first = select_class(&chain, &entries[0]);
  cr_expect_str_eq(text_of(&chain, &first), "0: zero\n"
                                            "1: wait 0 run\n"
                                            "2: wait 1 run run run run\n"
                                            "3: wait 2 run\n"
                                            "4: wait 3 run run\n"
                                            "5: send 0 +2\n"
                                            "6: receive 1 +2\n"
                                            "7: send 2 +2\n"
                                            "8: receive 3 +2\n"
                                            "calls 0 1 5 1 5 6 2 6 2 3 7 8 4");
  LaunchList second = select_class(&chain, &entries[1]);
  cr_expect_str_eq(text_of(&chain, &second),
                   "0: zero\n"
                   "1: wait 0 run\n"
                   "2: wait 1 run wait 0 run run run\n"
                   "3: run\n"
                   "4: wait 2 wait 3 run run run\n"
                   "5: receive 0 -2\n"
                   "6: send 1 -2\n"
                   "7: receive 2 -2\n"
                   "8: send 3 -2\n"
                   "calls 0 5 1 2 5 6 1 2 6 3 7 4 8");
}

/* Both stages are on one rank: nothing is sent or waited for. */
Test(stage_launches, stages_on_one_rank_copy) {
  StageChain chain = {.n = 2, .n_microbatches = 2};
  EntryPoint *entries = stage_chain_entries(&chain, "naive");
  LaunchList list = select_class(&chain, &entries[0]);
  int n_copies = 0;
  for (int i = 0; i < list.n; i++) {
    n_copies += list.data[i]->op == DNN_OP_COPY;
    cr_expect_neq(list.data[i]->op, DNN_OP_WAIT);
    cr_expect_neq(list.data[i]->op, DNN_OP_COLLECTIVE);
  }
  cr_expect_eq(n_copies, 4);
}

/* Several micro-batches are received before the first of them is read: each
 * has bytes and an id of its own. */
Test(stage_launches, slots_move_buffers_and_ids) {
  StageChain chain = {.n = 2, .n_microbatches = 4, .first_rank = {0, 2}};
  EntryPoint *entries = stage_chain_entries(&chain, "fthenb");
  LaunchList list = select_class(&chain, &entries[1]);
  int n_slots = entries[1].edges.data[0].n_slots, n_moved = 0;
  cr_assert_eq(n_slots, 4);
  for (int i = 0; i < list.n; i++) {
    const Launch *launch = list.data[i];
    bool is_receive = launch->op == DNN_OP_COLLECTIVE &&
                      launch->collective.kind == DNN_RECV &&
                      launch->collective.edge == 0;
    bool is_wait =
        launch->op == DNN_OP_WAIT && launch->numbers.data[0] < n_slots;
    if (!is_receive && !is_wait) continue;
    cr_expect_eq(launch->number_advances.data[REGISTER_slot], 1);
    if (is_receive) cr_expect_gt(launch->advances.data[REGISTER_slot], 0);
    n_moved++;
  }
  cr_expect_geq(n_moved, 3); /* the receive, and a wait of either pass */
}
