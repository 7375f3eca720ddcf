// links: driver codegen frontend passes runtime ir support
/*
 * stage_buffers.c -- tests of the arena of several stages: plays the timeline
 * of each class on a memory that knows which value of which micro-batch each
 * byte has, so that a buffer that is overwritten too early is found.
 */
#include "passes/passes.h"
#include "tests/unit/stage_graphs.h"

#include "ir/place/mesh_place.h"

TestSuite(stage_buffers, .fini = modules_destroy);

enum { ARENA_BYTES = 1 << 16 };

typedef struct StageMemory {
  const EntryPoint *entry;
  int tags[ARENA_BYTES / 4]; /* of each word: value and micro-batch; 0: none */
  int64_t highest;
  int n_errors;
} StageMemory;

/* The value whose bytes a view shows. */
static Value shown(const Graph *graph, Value value) {
  while (node_is_view(graph, value.node))
    value = graph->nodes.data[value.node]->inputs[0];
  return value;
}

/* Values of a micro-batch differ from one to the next; data hold all of them,
 * and sums are one value. */
static bool is_of_microbatch(const Graph *graph, Value value) {
  const Node *node = graph->nodes.data[value.node];
  if (node->op == OP_input)
    return graph->inputs.data[node_int(node, ATTR_index, 0)].role ==
               ROLE_receive &&
           node->types[0]->rank == 2;
  return node_is_per_microbatch(graph, value.node) &&
         !node_joins_microbatches(node);
}

static int tag_of(int stage, const Graph *graph, Value value, int microbatch) {
  int of = is_of_microbatch(graph, value) ? microbatch + 1 : 0;
  return ((stage + 1) * 1000 + value.node * 4 + value.result) * 100 + of;
}

static int64_t address_of(const ProgramStage *stage, Value value,
                          const int *registers) {
  const BufferAssignment *a = stage->assignment;
  int v = a->first_value[value.node] + value.result;
  return a->offset[v] + a->move_bytes[v] * registers[a->moves_with[v]];
}

static void write_value(StageMemory *m, int s, Value value,
                        const int *registers) {
  const ProgramStage *stage = &m->entry->stages.data[s];
  int64_t at = address_of(stage, value, registers);
  int64_t bytes =
      stage->assignment
          ->bytes[stage->assignment->first_value[value.node] + value.result];
  int tag = tag_of(s, stage->graph, value, registers[REGISTER_microbatch]);
  cr_assert(at >= 0 && at + bytes <= ARENA_BYTES);
  for (int64_t i = at / 4; i < (at + bytes) / 4; i++) m->tags[i] = tag;
  if (at + bytes > m->highest) m->highest = at + bytes;
}

static void read_value(StageMemory *m, int s, Value value,
                       const int *registers) {
  const ProgramStage *stage = &m->entry->stages.data[s];
  value = shown(stage->graph, value);
  int64_t at = address_of(stage, value, registers);
  int tag = tag_of(s, stage->graph, value, registers[REGISTER_microbatch]);
  m->n_errors += m->tags[at / 4] != tag;
}

static void play_segment(StageMemory *m, const ProgramCall *call) {
  const ProgramStage *stage = &m->entry->stages.data[call->stage];
  const ProgramSegment *segment = entry_point_segment(m->entry, call);
  for (int id = segment->first_node; id < segment->end_node; id++) {
    const Node *node = stage->graph->nodes.data[id];
    if (!node_is_launched(stage->graph, id)) continue;
    for (int i = 0; i < node->n_inputs; i++)
      read_value(m, call->stage, node->inputs[i], call->registers);
    for (int r = 0; r < node->n_results; r++)
      write_value(m, call->stage, (Value){id, r}, call->registers);
  }
}

static Value find_output(const Graph *graph, Name path) {
  for (int i = 0; i < graph->outputs.n; i++)
    if (graph->outputs.data[i].path == path &&
        graph->outputs.data[i].role == ROLE_send)
      return graph->outputs.data[i].value;
  cr_assert_fail("no such output");
  return (Value){0};
}

static Value find_receive(const Graph *graph, Name path) {
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].path == path) return graph->inputs.data[i].value;
  cr_assert_fail("no such input");
  return (Value){0};
}

static int index_of(const EntryPoint *entry, int number) {
  for (int s = 0; s < entry->stages.n; s++)
    if (entry->stages.data[s].number == number) return s;
  return -1;
}

static void play_call(StageMemory *m, const ProgramCall *call) {
  if (call->kind == CALL_segment) {
    play_segment(m, call);
    return;
  }
  const ProgramEdge *edge = &m->entry->edges.data[call->edge];
  int from = index_of(m->entry, edge->from), to = index_of(m->entry, edge->to);
  if (call->kind != CALL_receive)
    read_value(m, from,
               find_output(m->entry->stages.data[from].graph, edge->path),
               call->registers);
  if (call->kind != CALL_send)
    write_value(m, to,
                find_receive(m->entry->stages.data[to].graph, edge->path),
                call->registers);
}

/* Writes the values that are there when the step begins. */
static void fill_inputs(StageMemory *m) {
  static const int zero[N_REGISTERS];
  for (int s = 0; s < m->entry->stages.n; s++) {
    const Graph *graph = m->entry->stages.data[s].graph;
    for (int i = 0; i < graph->inputs.n; i++)
      if (graph->inputs.data[i].role != ROLE_receive)
        write_value(m, s, graph->inputs.data[i].value, zero);
  }
}

static int64_t sum_of(const ArenaParts *arena) {
  return arena->persistent + arena->step + arena->frames + arena->messages +
         arena->scratch;
}

static int play(const StageChain *chain, EntryPoint *entry, int64_t *highest) {
  static StageMemory memory;
  PersistentBuffers persistent = {0};
  memory = (StageMemory){.entry = entry};
  for (int s = 0; s < entry->stages.n; s++)
    persistent_buffers_add(&persistent, chain->module->arena,
                           entry->stages.data[s].graph, NULL);
  PassContext ctx = {.module = chain->module,
                     .scratch = arena_beside(chain->module->arena)};
  buffer_assign_stages(&ctx, entry, &persistent);
  arena_destroy(ctx.scratch);
  fill_inputs(&memory);
  for (int i = 0; i < entry->timeline.n; i++)
    play_call(&memory, &entry->timeline.data[i]);
  *highest = memory.highest;
  return memory.n_errors;
}

static void try_shape(const char *schedule, int n, int m, int form, int flags) {
  if (stage_chain_refuses(schedule, n, m, form)) return;
  StageChain chain = {.n = n,
                      .n_microbatches = m,
                      .has_skip = flags & 1,
                      .has_shared = flags & 2,
                      .is_evaluation = !(flags & 4)};
  for (int s = 0; s < n; s++)
    chain.first_rank[s] = 2 * stage_chain_group(form, n, s);
  EntryPoint *entries = stage_chain_entries(&chain, schedule);
  int n_classes = stage_chain_groups(form, n);
  for (int c = 0; c < n_classes; c++) {
    int64_t highest;
    Text text = text_create(chain.module->arena);
    int n_errors = play(&chain, &entries[c], &highest);
    entry_point_print(&text, &entries[c]);
    cr_expect_eq(n_errors, 0, "%s", text_string(&text));
    int64_t predicted = entry_point_arena_bytes(&entries[c]);
    cr_expect(highest <= predicted && highest + 64 > predicted,
              "%lld, not %lld\n%s", (long long)highest, (long long)predicted,
              text_string(&text));
    int64_t sum = sum_of(&entries[c].arena);
    cr_expect(sum <= predicted && sum + 64 > predicted);
  }
  modules_destroy();
}

Test(stage_buffers, nothing_is_overwritten_early) {
  static const char *const schedules[] = {"naive", "fthenb",   "1f1b", "zbh1",
                                          "zbh2",  "zb1p",     "zbv",  "vhalf",
                                          "vmin",  "dualpipev"};
  static const int counts[] = {1, 2, 3, 8};
  for (int i = 0; i < ARRAY_LENGTH(schedules); i++)
    for (int n = 2; n <= 4; n++)
      for (int k = 0; k < ARRAY_LENGTH(counts); k++)
        for (int form = 0; form < N_FORMS; form++)
          for (int flags = 0; flags < 8; flags++)
            try_shape(schedules[i], n, counts[k], form, flags);
}

/* The play finds a frame that is given to another micro-batch too early. */
Test(stage_buffers, a_wrong_frame_is_found) {
  StageChain chain = {.n = 2, .n_microbatches = 4, .first_rank = {0, 2}};
  EntryPoint *entries = stage_chain_entries(&chain, "fthenb");
  int64_t highest;
  int n = 0;
  for (int i = 0; i < entries[1].timeline.n; i++)
    if (entries[1].timeline.data[i].registers[REGISTER_slot] == 1)
      entries[1].timeline.data[i].registers[REGISTER_slot] = 0, n++;
  cr_assert_gt(n, 0);
  cr_expect_gt(play(&chain, &entries[1], &highest), 0);
}
