// links: verify driver codegen frontend passes runtime price interp ir support
/*
 * play_stages.c -- plays programs of several stages and compares them with the
 * programs of one stage that computes all of it, in exact mode.
 */
#include <stdlib.h>

#include "tests/unit/stage_graphs.h"
#include "verify/play/play.h"

TestSuite(play_stages, .fini = modules_destroy);

enum { N_RANKS = 2 };

/* ---- layouts ---- */

static bool crosses(const ProgramStage *stage, Value value) {
  const ProgramSegment *first = NULL, *last = NULL;
  for (int s = 0; s < stage->segments.n; s++) {
    const ProgramSegment *segment = &stage->segments.data[s];
    for (int id = segment->first_node; id < segment->end_node; id++) {
      const Node *node = stage->graph->nodes.data[id];
      if (id == value.node) first = segment;
      for (int i = 0; i < node->n_inputs; i++)
        if (value_equal(node->inputs[i], value)) last = segment;
    }
  }
  return first && last && first->kind == TOKEN_forward &&
         last->kind == TOKEN_backward;
}

static const GraphInput *input_of(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  return node->op == OP_input
             ? &graph->inputs.data[node_int(node, ATTR_index, 0)]
             : NULL;
}

static bool has_slots(const EntryPoint *entry, const ProgramStage *stage,
                      Name path) {
  for (int e = 0; e < entry->edges.n; e++)
    if (entry->edges.data[e].to == stage->number &&
        entry->edges.data[e].path == path)
      return entry->edges.data[e].n_slots > 1;
  return false;
}

/* Each value has bytes of its own, in as many copies as the program says, but
 * for parameters, whose new values take the place of the old ones.  `*end` is
 * the end of what other stages of the rank have. */
static const PlayLayout *layout_of(Arena *arena, const EntryPoint *entry,
                                   int stage_index, int64_t *end) {
  const ProgramStage *stage = &entry->stages.data[stage_index];
  const Graph *graph = stage->graph;
  int n = graph->nodes.n;
  int64_t *offset = ARENA_ARRAY(arena, int64_t, n);
  int64_t *bytes = ARENA_ARRAY(arena, int64_t, n);
  int64_t *frame_bytes = ARENA_ARRAY(arena, int64_t, n);
  int64_t *slot_bytes = ARENA_ARRAY(arena, int64_t, n);
  int64_t *workspace = ARENA_ARRAY(arena, int64_t, n);
  int *first = ARENA_ARRAY(arena, int, n);
  for (int id = 0; id < n; id++) {
    const Type *type = graph->nodes.data[id]->types[0];
    const GraphInput *input = input_of(graph, id);
    bool is_data = input && input->role == ROLE_data;
    int64_t local =
        type_local_elements(type, &graph->mesh) * dtype_size_bytes(type->dtype);
    int64_t copies = is_data ? mesh_microbatches(&graph->mesh) : 1;
    if (input && input->role == ROLE_receive) {
      copies = has_slots(entry, stage, input->path) ? stage->n_slots : 1;
      slot_bytes[id] = copies > 1 ? local : 0;
    } else if (!input && crosses(stage, (Value){id, 0})) {
      copies = stage->n_frames;
      frame_bytes[id] = local;
    }
    first[id] = id;
    workspace[id] = -1;
    offset[id] = *end;
    bytes[id] = local * copies;
    *end += bytes[id];
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    const GraphInput *input =
        graph_find_input(graph, output->role, output->path);
    if (input) offset[output->value.node] = offset[input->value.node];
  }
  PlayLayout *layout = ARENA_NEW(arena, PlayLayout);
  int n_copies =
      stage->n_frames > stage->n_slots ? stage->n_frames : stage->n_slots;
  *layout = (PlayLayout){.offset = offset,
                         .bytes = bytes,
                         .first_value = first,
                         .workspace = workspace,
                         .workspace_bytes = ARENA_ARRAY(arena, int64_t, n),
                         .is_view = ARENA_ARRAY(arena, bool, n),
                         .bodies = ARENA_ARRAY(arena, const PlayLayout *, n),
                         .frame_bytes = frame_bytes,
                         .slot_bytes = slot_bytes,
                         .n_copies = n_copies,
                         .arena_bytes = *end};
  return layout;
}

/* ---- players ---- */

typedef struct Classes {
  int n;
  EntryPoint entries[MOST_STAGES];
  Player *players[MOST_STAGES];
} Classes;

static void make_players(StageChain *chain, const Numbers *numbers,
                         Classes *classes) {
  Arena *arena = chain->module->arena;
  for (int c = 0; c < classes->n; c++) {
    const EntryPoint *entry = &classes->entries[c];
    const PlayLayout *layouts[MOST_STAGES];
    int64_t end = 0;
    for (int s = 0; s < entry->stages.n; s++)
      layouts[s] = layout_of(arena, entry, s, &end);
    PlayOptions options = {.numbers = numbers,
                           .ranks = N_RANKS,
                           .arena_bytes = end,
                           .seed = numbers->seed};
    classes->players[c] = player_create(arena, &options);
    player_begin(classes->players[c],
                 play_program_of_stages(arena, entry, layouts));
  }
}

/* Numbers that depend on path and element alone. */
static Tensor numbers_of(Arena *arena, const Numbers *numbers, Name path,
                         const Type *type) {
  Tensor tensor = numbers_create(numbers, arena, type_logical(arena, type));
  numbers_random(numbers, type->dtype, path, 0, -1, 1, tensor_array(&tensor),
                 type_elements(tensor.type));
  return tensor;
}

static void write_inputs(StageChain *chain, const Numbers *numbers,
                         Classes *classes) {
  for (int c = 0; c < classes->n; c++)
    for (int s = 0; s < classes->entries[c].stages.n; s++) {
      const Graph *graph = classes->entries[c].stages.data[s].graph;
      player_select(classes->players[c], s);
      for (int i = 0; i < graph->inputs.n; i++) {
        const GraphInput *input = &graph->inputs.data[i];
        if (input->role == ROLE_receive) continue;
        Tensor tensor = numbers_of(chain->module->arena, numbers, input->path,
                                   graph_type(graph, input->value));
        player_write(classes->players[c], i, &tensor);
      }
    }
}

/* ---- runs ---- */

typedef struct Shape {
  const char *schedule;
  int n, m;
  int form; /* stages on ranks of their own, on two groups in turn, on one */
  bool has_skip, has_shared;
} Shape;

/* A change of the programs before they are played, or NULL. */
typedef void Change(StageChain *chain, Classes *classes);

/* The new parameters of all stages, and the first fault. */
typedef struct Played {
  int n;
  Name paths[MOST_STAGES];
  Tensor tensors[MOST_STAGES];
  const char *memory_fault, *message_fault;
} Played;

static void read_parameters(StageChain *chain, Classes *classes, Played *out) {
  for (int c = 0; c < classes->n; c++) {
    Player *player = classes->players[c];
    for (int s = 0; s < classes->entries[c].stages.n; s++) {
      const Graph *graph = classes->entries[c].stages.data[s].graph;
      player_select(player, s);
      for (int i = 0; i < graph->inputs.n; i++) {
        if (graph->inputs.data[i].role != ROLE_param) continue;
        int at = graph->inputs.data[i].path[1] - '0';
        out->paths[at] = graph->inputs.data[i].path;
        out->tensors[at] = player_save(player, i, chain->module->arena);
        out->n++;
      }
    }
    if (!out->memory_fault) out->memory_fault = player_memory_fault(player);
    if (!out->message_fault) out->message_fault = player_message_fault(player);
  }
}

static Played play(const Shape *shape, const Numbers *numbers, Change *change) {
  StageChain *chain = calloc(1, sizeof *chain);
  *chain = (StageChain){.n = shape->n,
                        .n_microbatches = shape->m,
                        .has_skip = shape->has_skip,
                        .has_shared = shape->has_shared};
  for (int s = 0; s < chain->n; s++)
    chain->first_rank[s] = shape->form == 0   ? N_RANKS * s
                           : shape->form == 1 ? s % 2 * N_RANKS
                                              : 0;
  stage_chain_make(chain);
  ProgramParts parts = {.id = ENTRY_train,
                        .n_stages = chain->n,
                        .stages = chain->stages,
                        .edges = chain->edges,
                        .schedule = pipeline_schedule_find(shape->schedule),
                        .diags = chain->module->diags};
  Classes classes = {.n = shape->form == 0   ? chain->n
                          : shape->form == 1 ? 2
                                             : 1};
  cr_assert(program_timeline(chain->module->arena, &parts, classes.entries));
  if (change) change(chain, &classes);
  make_players(chain, numbers, &classes);
  write_inputs(chain, numbers, &classes);
  players_run(classes.players, classes.n);
  Played played = {0};
  read_parameters(chain, &classes, &played);
  free(chain);
  return played;
}

static bool are_equal(const Numbers *numbers, const Played *a,
                      const Played *b) {
  for (int i = 0; i < MOST_STAGES; i++) {
    if (!a->paths[i] != !b->paths[i]) return false;
    if (!a->paths[i]) continue;
    const Tensor *x = &a->tensors[i], *y = &b->tensors[i];
    if (numbers_compare(numbers, x->type->dtype, tensor_array(x),
                        tensor_array(y), type_elements(x->type), 1)
            .error > 0)
      return false;
  }
  return a->n == b->n;
}

/* On one rank, one micro-batch at a time. */
static Played reference_of(const Shape *shape, const Numbers *numbers) {
  Shape plain = *shape;
  plain.schedule = "naive";
  plain.m = 1;
  plain.form = 2;
  return play(&plain, numbers, NULL);
}

static void try_shape(const Shape *shape) {
  for (uint64_t seed = 1; seed <= 3; seed++) {
    Numbers numbers = {.number = INTERP_exact, .seed = seed};
    Played wanted = reference_of(shape, &numbers);
    Played played = play(shape, &numbers, NULL);
    cr_expect_null(played.memory_fault, "%s", played.memory_fault);
    cr_expect_null(played.message_fault, "%s", played.message_fault);
    cr_expect(are_equal(&numbers, &played, &wanted),
              "%s of %d stages, %d micro-batches, form %d", shape->schedule,
              shape->n, shape->m, shape->form);
    modules_destroy();
  }
}

Test(play_stages, equal_one_stage_at_a_time) {
  static const char *const schedules[] = {"naive", "fthenb", "1f1b"};
  for (int i = 0; i < 3; i++)
    for (int n = 2; n <= 4; n++)
      for (int m = 1; m <= 6; m += m == 1 ? 1 : 2)
        for (int form = 0; form < 3; form++)
          for (int more = 0; more < 4; more++)
            try_shape(&(Shape){schedules[i], n, m, form, (more & 1) && n > 2,
                               more & 2});
}
