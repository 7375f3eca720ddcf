/*
 * play_chain.h -- plays the programs of a chain of stages in exact mode, and
 * those of one stage that computes all of it, with which they are compared.
 */
#ifndef TESTS_UNIT_PLAY_CHAIN_H
#define TESTS_UNIT_PLAY_CHAIN_H

#include <stdlib.h>

#include "tests/unit/stage_graphs.h"
#include "verify/play_layout.h"

enum { N_RANKS = 2 };

/* ---- layouts ---- */

/* The frame that a value has between segments of a micro-batch; else
 * REGISTER_microbatch. */
static ProgramRegister frame_of(const ProgramStage *stage, Value value) {
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
  if (!last || first == last || !segment_is_of_microbatch(first) ||
      !segment_is_of_microbatch(last))
    return REGISTER_microbatch;
  if (first->kind == TOKEN_input_grad) return REGISTER_weight_frame;
  return last->kind == TOKEN_input_grad ? REGISTER_input_frame : REGISTER_frame;
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
  int64_t *move_bytes = ARENA_ARRAY(arena, int64_t, n);
  ProgramRegister *moves_with = ARENA_ARRAY(arena, ProgramRegister, n);
  int64_t *workspace = ARENA_ARRAY(arena, int64_t, n);
  int *first = ARENA_ARRAY(arena, int, n);
  for (int id = 0; id < n; id++) {
    const Type *type = graph->nodes.data[id]->types[0];
    const GraphInput *input = input_of(graph, id);
    bool is_data = input && input->role == ROLE_data;
    int64_t local =
        type_local_elements(type, &graph->mesh) * dtype_size_bytes(type->dtype);
    int64_t copies = is_data ? mesh_microbatches(&graph->mesh) : 1;
    if (input && input->role == ROLE_receive &&
        has_slots(entry, stage, input->path))
      moves_with[id] = REGISTER_slot;
    else if (!input)
      moves_with[id] = frame_of(stage, (Value){id, 0});
    if (moves_with[id] != REGISTER_microbatch) {
      copies = stage_places(stage, moves_with[id]);
      move_bytes[id] = local;
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
  *layout = (PlayLayout){.offset = offset,
                         .bytes = bytes,
                         .first_value = first,
                         .workspace = workspace,
                         .workspace_bytes = ARENA_ARRAY(arena, int64_t, n),
                         .is_view = ARENA_ARRAY(arena, bool, n),
                         .bodies = ARENA_ARRAY(arena, const PlayLayout *, n),
                         .move_bytes = move_bytes,
                         .moves_with = moves_with,
                         .n_copies = stage_most_places(stage),
                         .arena_bytes = *end};
  return layout;
}

/* ---- players ---- */

typedef struct Classes {
  int n;
  bool are_packed; /* in arenas as a rank has them */
  EntryPoint entries[MOST_STAGES];
  Player *players[MOST_STAGES];
} Classes;

static const PlayLayout *const *
packed_layouts(StageChain *chain, EntryPoint *entry, int64_t *end) {
  Arena *arena = chain->module->arena;
  PersistentBuffers persistent = {0};
  for (int s = 0; s < entry->stages.n; s++)
    persistent_buffers_add(&persistent, arena, entry->stages.data[s].graph,
                           NULL);
  PassContext ctx = {.module = chain->module, .scratch = arena_beside(arena)};
  buffer_assign_stages(&ctx, entry, &persistent);
  arena_destroy(ctx.scratch);
  *end = entry_point_arena_bytes(entry);
  return play_layouts(arena, entry, NULL);
}

static const PlayLayout *const *
loose_layouts(StageChain *chain, const EntryPoint *entry, int64_t *end) {
  Arena *arena = chain->module->arena;
  const PlayLayout **layouts =
      ARENA_ARRAY(arena, const PlayLayout *, entry->stages.n);
  for (int s = 0; s < entry->stages.n; s++)
    layouts[s] = layout_of(arena, entry, s, end);
  return layouts;
}

static void make_players(StageChain *chain, const Numbers *numbers,
                         Classes *classes) {
  Arena *arena = chain->module->arena;
  for (int c = 0; c < classes->n; c++) {
    EntryPoint *entry = &classes->entries[c];
    int64_t end = 0;
    const PlayLayout *const *layouts = classes->are_packed
                                           ? packed_layouts(chain, entry, &end)
                                           : loose_layouts(chain, entry, &end);
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
  bool has_skip, has_shared, is_sharded, is_packed;
  uint64_t list_seed; /* of a list in place of the schedule; 0: there is none */
} Shape;

/* Changes the programs before they are played, at one of the places that there
 * are.  Returns false if there is none. */
typedef bool Change(StageChain *chain, Classes *classes, uint64_t choice);

/* The new parameters of all stages, and the first fault.  `rules` has the rules
 * of timelines that the programs break, or is "". */
typedef struct Played {
  int n;
  Name paths[MOST_STAGES];
  Tensor tensors[MOST_STAGES];
  const char *memory_fault, *message_fault, *rules;
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
    if (classes->are_packed)
      cr_expect_eq(player_touched_bytes(player),
                   entry_point_arena_bytes(&classes->entries[c]));
    if (!out->message_fault) out->message_fault = player_message_fault(player);
  }
}

/* ---- lists that a person may have written ---- */

/* Returns whether a call has what it reads. */
static bool is_ready(const Shape *shape, bool *const *done, bool goes_back,
                     int stage, int microbatch) {
  int n = shape->n, at = stage * shape->m + microbatch;
  if (done[goes_back][at]) return false;
  if (!goes_back) return stage == 0 || done[0][at - shape->m];
  return done[0][at] && (stage == n - 1 || done[1][at + shape->m]);
}

/* Calls in any order in which each has what it reads. */
static const Pipeline *random_list(Arena *arena, const Shape *shape,
                                   int n_ranks, const int *rank_of) {
  int n = shape->n * shape->m;
  bool *const done[] = {ARENA_ARRAY(arena, bool, n),
                        ARENA_ARRAY(arena, bool, n)};
  Pipeline *list = ARENA_NEW(arena, Pipeline);
  *list = (Pipeline){.n_ranks = n_ranks,
                     .n_stages = shape->n,
                     .n_microbatches = shape->m,
                     .lists = ARENA_ARRAY(arena, Tokens, n_ranks)};
  uint64_t random = shape->list_seed;
  for (int n_done = 0; n_done < 2 * n;) {
    random = hash_bytes(&random, sizeof random, 1);
    int call = (int)(random >> 8) & 0xffff, at = call / 2 % n;
    int stage = at / shape->m, microbatch = at % shape->m;
    if (!is_ready(shape, done, call & 1, stage, microbatch)) continue;
    done[call & 1][at] = true;
    n_done++;
    vec_push(arena, &list->lists[rank_of[stage]],
             (Token){.kind = call & 1 ? TOKEN_backward : TOKEN_forward,
                     .stage = stage,
                     .microbatch = microbatch});
  }
  return list;
}

static const char *broken_rules(Arena *arena, const Classes *classes) {
  Text out = text_create(arena);
  for (int c = 0; c < classes->n; c++)
    entry_point_check(&classes->entries[c], &out);
  return text_string(&out);
}

/* `change` may be NULL. */
static Played play(const Shape *shape, const Numbers *numbers, Change *change,
                   uint64_t choice, bool *out_is_changed) {
  StageChain *chain = calloc(1, sizeof *chain);
  *chain = (StageChain){.n = shape->n,
                        .n_microbatches = shape->m,
                        .has_skip = shape->has_skip,
                        .has_shared = shape->has_shared,
                        .is_sharded = shape->is_sharded};
  for (int s = 0; s < chain->n; s++)
    chain->first_rank[s] =
        N_RANKS * stage_chain_group(shape->form, chain->n, s);
  stage_chain_make(chain);
  ProgramParts parts = stage_chain_parts(chain, shape->schedule);
  if (shape->list_seed) {
    int class_of[MOST_STAGES];
    const int *first_ranks;
    int n_classes = program_classes(chain->module->arena, chain->stages,
                                    chain->n, class_of, &first_ranks);
    parts.schedule = NULL;
    parts.list = random_list(chain->module->arena, shape, n_classes, class_of);
  }
  Classes classes = {.n = stage_chain_groups(shape->form, chain->n),
                     .are_packed = shape->is_packed};
  cr_assert(program_timeline(chain->module->arena, &parts, classes.entries));
  if (change) *out_is_changed = change(chain, &classes, choice);
  Played played = {.rules = broken_rules(chain->module->arena, &classes)};
  make_players(chain, numbers, &classes);
  write_inputs(chain, numbers, &classes);
  players_run(classes.players, classes.n);
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
  plain.list_seed = 0;
  plain.is_sharded = false;
  plain.is_packed = false;
  return play(&plain, numbers, NULL, 0, NULL);
}

#endif
