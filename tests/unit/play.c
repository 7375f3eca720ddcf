// links: verify passes ir support
/*
 * play.c -- the player computes on all ranks what one rank does: shards of any
 * mesh and collectives; and it finds memory that is used twice.
 */
#include "tests/unit/values.h"
#include "verify/play/internal.h"

TestSuite(play, .fini = modules_destroy);
TestSuite(place, .fini = modules_destroy);

/* ---- shards ---- */

static Mesh make_mesh(Module *module, const char *text) {
  Mesh mesh = {0};
  char copy[100], *rest;
  snprintf(copy, sizeof copy, "%s", text);
  for (char *word = strtok_r(copy, " ", &rest); word;
       word = strtok_r(NULL, " ", &rest)) {
    char *size = strchr(word, '=');
    *size++ = 0;
    mesh.axes[mesh.n_axes++] =
        (MeshAxis){name_intern(module->names, word), atoi(size),
                   strcmp(word, "time") == 0};
  }
  return mesh;
}

/* "f64 B:7 C:5", then the axes of each dim, as numbers: "02,1". */
static const Type *make_placed(Module *module, const char *text,
                               const char *splits) {
  Type *type = (Type *)make_type(module, text);
  int d = 0;
  for (; *splits; splits++) {
    if (*splits == ',')
      d++;
    else
      type->dims[d].split =
          axis_list_append(type->dims[d].split, *splits - '0');
  }
  return type;
}

/* Every logical element lies on one place of those that differ on the axes that
 * shard the type, and there at the index that leads back to it. */
static void check_cover(const Mesh *mesh, const Type *type) {
  AxisSet used = 0;
  for (int d = 0; d < type->rank; d++)
    used |= axis_list_set(type->dims[d].split);
  int ranks = mesh_ranks(mesh), times = mesh_microbatches(mesh);
  MeshPlace first = mesh_place(mesh, 0, 0);
  for (int64_t e = 0; e < type_elements(type); e++) {
    int n = 0;
    for (int i = 0; i < ranks * times; i++) {
      MeshPlace place = mesh_place(mesh, i % ranks, i / ranks);
      if (!mesh_same_group(&place, &first, used)) continue;
      int64_t at = logical_to_local(&place, type, type, e);
      if (at < 0) continue;
      cr_assert_eq(local_to_logical(&place, type, at), e);
      n++;
    }
    cr_assert_eq(n, 1, "element %ld is on %d places", (long)e, n);
  }
}

Test(place, shards_cover_a_tensor_once) {
  Module *module = module_create();
  Mesh mesh = make_mesh(module, "a=2 b=3 time=2 c=2");
  static const char *const splits[] = {"",     "0",   "1",     "01",   "10",
                                       "0,1",  "1,0", "03,1",  "30,2", "013",
                                       "0132", ",12", "2,013", "3,,"};
  for (int i = 0; i < ARRAY_LENGTH(splits); i++)
    check_cover(&mesh, make_placed(module, "f64 B:7 C:5", splits[i]));
}

Test(place, the_first_axis_of_a_dim_is_outermost) {
  Module *module = module_create();
  Mesh mesh = make_mesh(module, "a=2 b=3");
  const Type *type = make_placed(module, "f64 B:12", "10");
  MeshPlace place = mesh_place(&mesh, 4, 0); /* a = 1, b = 1 */
  cr_expect_eq(place.at[0], 1);
  cr_expect_eq(place.at[1], 1);
  cr_expect_eq(shard_begin(&place, type, 0), 2 * (1 * 2 + 1));
}

Test(place, the_last_shards_are_short_or_empty) {
  Module *module = module_create();
  Mesh mesh = make_mesh(module, "a=4");
  const Type *type = make_placed(module, "f64 B:5", "0");
  static const int64_t valid[] = {2, 2, 1, 0};
  for (int rank = 0; rank < 4; rank++) {
    MeshPlace place = mesh_place(&mesh, rank, 0);
    cr_expect_eq(shard_valid(&place, type, 0), valid[rank]);
  }
  cr_expect(type_is_uneven(type, &mesh));
  cr_expect_eq(type_local(module->arena, type, &mesh)->dims[0].size, 2);
}

/* ---- one node with a placement ---- */

/* Each value has an own place in memory, so nothing is reused. */
static PlayLayout *own_places(Arena *arena, const Graph *graph) {
  int n = graph->nodes.n, n_values = 0;
  int *first = ARENA_ARRAY(arena, int, n);
  int64_t *workspace = ARENA_ARRAY(arena, int64_t, n);
  for (int id = 0; id < n; id++) {
    workspace[id] = -1;
    first[id] = n_values;
    n_values += graph->nodes.data[id]->n_results;
  }
  int64_t *offset = ARENA_ARRAY(arena, int64_t, n_values);
  int64_t *bytes = ARENA_ARRAY(arena, int64_t, n_values);
  PlayLayout *layout = ARENA_NEW(arena, PlayLayout);
  for (int id = 0; id < n; id++)
    for (int r = 0; r < graph->nodes.data[id]->n_results; r++) {
      const Type *type = graph->nodes.data[id]->types[r];
      offset[first[id] + r] = layout->arena_bytes;
      bytes[first[id] + r] = type_elements(type) * 8;
      layout->arena_bytes += bytes[first[id] + r];
    }
  *layout = (PlayLayout){.offset = offset,
                         .bytes = bytes,
                         .first_value = first,
                         .workspace = workspace,
                         .workspace_bytes = workspace,
                         .is_view = ARENA_ARRAY(arena, bool, n),
                         .bodies = ARENA_ARRAY(arena, const PlayLayout *, n),
                         .arena_bytes = layout->arena_bytes};
  return layout;
}

static const PlayProgram *program_of(const Graph *graph,
                                     const PlayLayout *layout) {
  Arena *arena = graph->module->arena;
  EntryPoint entry = entry_point_of_list(arena, ENTRY_train,
                                         instructions_of(arena, graph, NULL));
  return play_program(arena, &entry, layout);
}

typedef struct Played {
  Player *player;
  Graph *graph;
  Tensor input;
} Played;

typedef struct Step {
  Op op;
  const char *attrs;
  const Type *to;
} Step;

/* A graph of one input of this placement, a chain of n nodes and its output. */
static Played play_chain(Module *module, const Mesh *mesh, const Type *from,
                         const Step *steps, int n, uint64_t seed) {
  static Numbers numbers = {.number = INTERP_f64, .seed = 3};
  Arena *arena = module->arena;
  Played played = {.graph = make_graph(module)};
  played.graph->mesh = *mesh;
  Value value = graph_input(played.graph, ROLE_data,
                            name_intern(module->names, "x"), from);
  for (int i = 0; i < n; i++) {
    Attrs made = make_attrs(module, steps[i].attrs);
    value = graph_append_typed(played.graph, steps[i].op, &value, 1, &made,
                               &steps[i].to, 1, NULL);
  }
  graph_output(played.graph, ROLE_result, name_intern(module->names, "y"),
               value);
  const PlayLayout *layout = own_places(arena, played.graph);
  PlayOptions options = {.numbers = &numbers,
                         .ranks = mesh_ranks(mesh),
                         .arena_bytes = layout->arena_bytes,
                         .seed = seed};
  played.player = player_create(arena, &options);
  player_begin(played.player, program_of(played.graph, layout));
  played.input = tensor_random(arena, type_logical(arena, from), seed, -1, 1);
  player_write(played.player, 0, &played.input);
  player_run(played.player);
  cr_expect_null(player_memory_fault(played.player));
  cr_expect_null(player_message_fault(played.player));
  return played;
}

static Played play_one(Module *module, const Mesh *mesh, const Type *from,
                       Op op, const char *attrs, const Type *to,
                       uint64_t seed) {
  Step step = {op, attrs, to};
  return play_chain(module, mesh, from, &step, 1, seed);
}

/* The sum of what ranks hold is the tensor that was written. */
Test(play, a_partial_sum_is_written_once) {
  Module *module = module_create();
  Mesh mesh = make_mesh(module, "a=2 b=3");
  Type *part = (Type *)make_placed(module, "f64 C:5", "0");
  part->partial = 2; /* b */
  const Type *sum = make_placed(module, "f64 C:5", "0");
  Played played =
      play_one(module, &mesh, part, OP_all_reduce, "axes=b reduce=sum", sum, 1);
  cr_expect_eq(player_compare(played.player, 0, &played.input, 1e-9).error, 0);
  Tensor saved = player_save(played.player, 0, module->arena);
  for (int i = 0; i < 5; i++) cr_expect_eq(saved.data[i], played.input.data[i]);
}

Test(play, all_reduce_adds_up_a_group_of_one_axis) {
  Module *module = module_create();
  Mesh mesh = make_mesh(module, "a=2 b=3");
  for (uint64_t seed = 1; seed < 5; seed++) {
    Type *part = (Type *)make_placed(module, "f64 C:5", "0");
    part->partial = 2; /* b */
    const Type *sum = make_placed(module, "f64 C:5", "0");
    const Type *all = make_placed(module, "f64 D:3 C:5", "1,0");
    const Step steps[] = {{OP_sum, "over=D", part},
                          {OP_all_reduce, "axes=b reduce=sum", sum}};
    Played played = play_chain(module, &mesh, all, steps, 2, seed);
    Tensor wanted =
        tensor_create(module->arena, type_logical(module->arena, sum));
    for (int i = 0; i < 5; i++)
      for (int d = 0; d < 3; d++)
        wanted.data[i] += played.input.data[d * 5 + i];
    cr_expect_lt(player_compare(played.player, 0, &wanted, 1e-9).error, 1e-12);
    wanted.data[4] += 1;
    PlayDifference difference = player_compare(played.player, 0, &wanted, 1e-9);
    cr_expect_gt(difference.error, 0.1);
    cr_expect_eq(difference.element, 4);
    cr_expect_eq(difference.rank, 3);
  }
}

Test(play, shards_and_micro_batches_move_to_their_places) {
  Module *module = module_create();
  Mesh mesh = make_mesh(module, "a=2 b=2 time=3");
  const Type *all = make_placed(module, "f64 B:11 C:3", "");
  Played played = play_one(module, &mesh, all, OP_shard, "dim=B axes=a,b",
                           make_placed(module, "f64 B:11 C:3", "01"), 1);
  cr_expect_eq(player_compare(played.player, 0, &played.input, 0).error, 0);
  played = play_one(module, &mesh, make_placed(module, "f64 B:12 C:3", "02"),
                    OP_collect_microbatches, "dim=B axes=time",
                    make_placed(module, "f64 B:12 C:3", "0"), 1);
  cr_expect_eq(player_compare(played.player, 0, &played.input, 0).error, 0);
}

Test(play, a_shard_of_a_random_mask_is_a_part_of_it) {
  Module *module = module_create();
  Mesh mesh = make_mesh(module, "a=2 b=2");
  Graph *graph = make_graph(module);
  Value args[2] = {make_input(graph, ROLE_seed, "seed", "i64"),
                   make_input(graph, ROLE_step, "step", "i32")};
  Value mask = make(graph, "random_keep",
                    "to=B,C sizes=6,4 value=0.5 stream=drop", args, 2);
  make_output(graph, ROLE_result, "y", mask);
  const Node *node = graph_node(graph, mask);
  const Type *placed = make_placed(module, "bool B:6 C:4", "0,1");
  Numbers numbers = {.number = INTERP_f64};
  double seed[] = {7}, step[] = {2};
  Tensor inputs[2] = {tensor_of(module->arena, make_type(module, "i64"), seed),
                      tensor_of(module->arena, make_type(module, "i32"), step)};
  Tensor whole = run(graph, INTERP_f64, inputs)[0];
  for (int rank = 0; rank < 4; rank++) {
    MeshPlace place = mesh_place(&mesh, rank, 0);
    Tensor shard = numbers_create(&numbers, module->arena,
                                  type_local(module->arena, placed, &mesh));
    interp_node(graph, node, &numbers, &place, inputs, &shard, module->arena);
    for (int64_t i = 0; i < type_elements(shard.type); i++)
      cr_assert_eq(shard.data[i],
                   whole.data[local_to_logical(&place, placed, i)]);
  }
}

/* ---- what ranks share ---- */

/* Replicas are one class, also after a collective, and a rank that differs is
 * not one of them. */
Test(play, ranks_with_equal_numbers_are_one_class) {
  Module *module = module_create();
  Mesh mesh = make_mesh(module, "a=2 b=3");
  const Type *type = make_placed(module, "f64 C:6", "0");
  Player *player = play_one(module, &mesh, type, OP_copy, "", type, 1).player;
  enum { A = 1, B = 2 };
  const RankClasses *a = classes_of_axes(player, A);
  const RankClasses *b = classes_of_axes(player, B);
  cr_expect_eq(classes_of_all(player)->n, 1);
  cr_expect(a->n == 2 && b->n == 3);
  cr_expect_eq(classes_join(player, a, b)->n, 6);
  cr_expect_eq(classes_join(player, a, b), classes_of_axes(player, A | B));
  cr_expect_eq(classes_of_members(player, A, a), classes_of_all(player));
  cr_expect_eq(classes_of_members(player, A, b), b);
  cr_expect_eq(classes_of_members(player, B, a), a);
  /* One rank differs from its replicas: so does its group. */
  uint64_t keys[6] = {0, 0, 0, 0, 7, 0};
  const RankClasses *odd = classes_of_keys(player, keys);
  cr_expect(odd->n == 2 && odd->first[1] == 4);
  const RankClasses *groups = classes_of_members(player, A, odd);
  cr_expect(groups->n == 2 && groups->first[1] == 1 &&
            groups->of_rank[4] == groups->of_rank[1]);
  /* Ranks 0 to 2 hold the first half. */
  ShardView view = play_read(player, player->frame, (Value){1, 0});
  cr_expect_eq(view.shards->classes, a);
  play_release(player, view);
}

/* Shards of one class with these numbers. */
static void put_numbers(Player *player, int64_t at, const double *numbers,
                        int n) {
  Shards *shards = shards_create(player, classes_of_all(player), DT_f64, n);
  memcpy(shards_of_class(shards, 0), numbers, (size_t)n * sizeof *numbers);
  extents_put(player, at, (ShardView){shards, 0}, n);
  shards_release(player, shards);
}

static void expect_numbers(Player *player, int64_t at, const double *numbers,
                           int n) {
  ShardView view = extents_read(player, at, DT_f64, n);
  const double *got =
      (const double *)shards_of_class(view.shards, 0) + view.first;
  for (int i = 0; i < n; i++)
    cr_expect_eq(got[i], numbers[i], "%d of %d at %ld", i, n, (long)at);
  play_release(player, view);
}

Test(play, bytes_hold_what_was_written_last) {
  Module *module = module_create();
  Mesh mesh = make_mesh(module, "a=2");
  const Type *type = make_placed(module, "f64 C:6", "");
  Player *player = play_one(module, &mesh, type, OP_copy, "", type, 1).player;
  extents_clear(player, 0, INT64_MAX);
  put_numbers(player, 0, (double[]){1, 2, 3, 4}, 4);
  put_numbers(player, 8, (double[]){20, 30}, 2);
  expect_numbers(player, 0, (double[]){1, 20, 30, 4}, 4);
  put_numbers(player, 32, (double[]){5, 6}, 2);
  expect_numbers(player, 24, (double[]){4, 5, 6}, 3);
  /* A part of an element is none. */
  put_numbers(player, 12, (double[]){9}, 1);
  expect_numbers(player, 12, (double[]){9}, 1);
  expect_numbers(player, 0, (double[]){1}, 1);
  ShardView poison = extents_read(player, 8, DT_f64, 1);
  cr_expect_neq(*(double *)shards_of_class(poison.shards, 0), 20);
  play_release(player, poison);
  /* Numbers of another dtype are poison that stays what it is. */
  ShardView first = extents_read(player, 32, DT_f32, 1);
  ShardView second = extents_read(player, 32, DT_f32, 1);
  cr_expect_eq(first.shards, second.shards);
  play_release(player, first);
  play_release(player, second);
  extents_clear(player, 8, INT64_MAX);
  expect_numbers(player, 0, (double[]){1}, 1);
}

Test(play, what_is_saved_is_loaded_into_other_memory) {
  Module *module = module_create();
  Mesh mesh = make_mesh(module, "a=2 b=3");
  static const char *const splits[] = {"", "0", "01", "1,0", ",1"};
  for (int i = 0; i < ARRAY_LENGTH(splits); i++) {
    const Type *type = make_placed(module, "f64 B:7 C:5", splits[i]);
    Played played = play_one(module, &mesh, type, OP_copy, "", type, 1);
    Tensor saved = player_save(played.player, 0, module->arena);
    for (int e = 0; e < 35; e++)
      cr_assert_eq(saved.data[e], played.input.data[e]);
    player_forget(played.player);
    Tensor gone = player_save(played.player, 0, module->arena);
    cr_expect_neq(gone.data[0], saved.data[0]);
    player_write(played.player, 0, &saved);
    player_run(played.player);
    cr_expect_eq(player_compare(played.player, 0, &saved, 0).error, 0);
  }
}

/* ---- calls ---- */

/* The sum of 1, 2, 4, ..., 128 over four micro-batches of two numbers, of which
 * call `at` has another micro-batch; a call of -1 changes nothing. */
static double sum_with_call(int at, int microbatch) {
  static const char text[] =
      "graph g mesh(time = 4~) {\n"
      "  %0 = input {index = 0} : f64[B:8@time] data \"x\"\n"
      "  %1 = sum %0 {over = [B]} : f64[; sum@time]\n"
      "  %2 = accumulate %1 {axes = [time], reduce = sum} : f64[]\n"
      "  output result \"y\" %2\n"
      "}\n";
  static Numbers numbers = {.number = INTERP_f64};
  Module *module = module_create();
  Source source = {.path = "test", .text = text, .n = strlen(text)};
  Graph *graph = graph_parse(module, &source);
  cr_assert_not_null(graph);
  const PlayLayout *layout = own_places(module->arena, graph);
  EntryPoint entry = entry_point_of_list(
      module->arena, ENTRY_train, instructions_of(module->arena, graph, NULL));
  for (int i = 0, n = 0; i < entry.timeline.n; i++)
    if (entry.timeline.data[i].segment == 1 && n++ == at)
      entry.timeline.data[i].registers[REGISTER_microbatch] = microbatch;
  PlayOptions options = {
      .numbers = &numbers, .ranks = 1, .arena_bytes = layout->arena_bytes};
  Player *player = player_create(module->arena, &options);
  player_begin(player, play_program(module->arena, &entry, layout));
  Tensor x = numbers_create(&numbers, module->arena,
                            graph_type(graph, graph->inputs.data[0].value));
  for (int i = 0; i < 8; i++) x.data[i] = 1 << i;
  player_write(player, 0, &x);
  player_run(player);
  return player_read(player, 0, 0, module->arena).data[0];
}

Test(play, micro_batches_are_those_that_the_timeline_calls) {
  cr_expect_eq(sum_with_call(-1, 0), 255);
  cr_expect_eq(sum_with_call(2, 1), 255 - 48 + 12);
  cr_expect_eq(sum_with_call(0, 3), 255 - 3 + 192);
}

/* ---- memory ---- */

/* y = exp x + tanh exp x; `where` is the value whose bytes tanh gets. */
static const char *fault_of_layout(Module *module, int where) {
  Graph *graph = make_graph(module);
  Value x = make_input(graph, ROLE_data, "x", "f64 C:5");
  Value a = graph_op1(graph, OP_exp, x), b = graph_op1(graph, OP_tanh, a);
  make_output(graph, ROLE_result, "y", graph_op2(graph, OP_add, a, b));
  PlayLayout *layout = own_places(module->arena, graph);
  ((int64_t *)layout->offset)[b.node] = layout->offset[where];
  PlayOptions options = {.numbers = &(Numbers){.number = INTERP_f64},
                         .ranks = 1,
                         .arena_bytes = layout->arena_bytes};
  Player *player = player_create(module->arena, &options);
  player_begin(player, program_of(graph, layout));
  Tensor input = tensor_random(module->arena, graph_type(graph, x), 1, -1, 1);
  player_write(player, 0, &input);
  player_run(player);
  return player_memory_fault(player);
}

Test(play, bytes_that_are_used_again_too_early_are_found) {
  Module *module = module_create();
  cr_expect_null(fault_of_layout(module, 2)); /* its own */
  cr_expect_null(fault_of_layout(module, 0)); /* x was read for the last time */
  const char *fault = fault_of_layout(module, 1);
  cr_assert(fault, "tanh takes the bytes of exp");
  cr_expect(strstr(fault, "is overwritten before the last reader"), "%s",
            fault);
}
