// links: verify passes ir support
/*
 * passes_partition.c -- a partitioned graph computes what the logical one does.
 *
 * A random graph is cut over two ranks and two micro-batches, or over three
 * ranks into shards of unequal size, and goes through all passes to buffer
 * assignment; the player runs it on all ranks.  What
 * comes out on each must be what the graph gave before it was cut.  Graphs that
 * ask for what is not supported yet (a row over the batch dim, say) are left
 * out, but not too many of them may be.
 */
#include "passes/passes.h"
#include "tests/unit/memory_play.h"
#include "tests/unit/random_graph.h"

#define N_GRAPHS 300
#define LIMIT    1e-9

/* Shards of unequal size over 3 ranks: B:4 with an empty one, or T:5. */
static Plan make_uneven_plan(Module *module, const char *dim) {
  Plan plan = {.ranks = 3, .microbatches = 1};
  Mesh *mesh = &plan.mesh;
  plan.name = name_intern(module->names, "test");
  plan.batch_dim = name_intern(module->names, "B");
  Name axis = name_intern(module->names, "data");
  mesh->n_axes = 1;
  mesh->axes[0] = (MeshAxis){axis, 3, false};
  PlanShard line = {.dim = name_intern(module->names, dim), .n_axes = 1};
  line.axes[0] = axis;
  vec_push(module->arena, &plan.shards, line);
  return plan;
}

static Plan make_plan(Module *module) {
  Plan plan = {.ranks = 2, .microbatches = 2};
  Mesh *mesh = &plan.mesh;
  plan.name = name_intern(module->names, "test");
  Name axes[2] = {name_intern(module->names, "data"),
                  name_intern(module->names, "time")};
  mesh->n_axes = 2;
  mesh->axes[0] = (MeshAxis){axes[0], 2, false};
  mesh->axes[1] = (MeshAxis){axes[1], 2, true};
  PlanShard shard = {.dim = name_intern(module->names, "B"), .n_axes = 2};
  shard.axes[0] = axes[0];
  shard.axes[1] = axes[1];
  vec_push(module->arena, &plan.shards, shard);
  return plan;
}

/* Those of the uncut graph, in the order of the cut one. */
static Tensor *inputs_of(const Graph *graph, const Graph *cut,
                         const Tensor *inputs) {
  Tensor *ordered =
      ARENA_ARRAY(graph->module->arena, Tensor, cut->inputs.n + 1);
  for (int i = 0; i < cut->inputs.n; i++) {
    const GraphInput *input = graph_find_input(graph, cut->inputs.data[i].role,
                                               cut->inputs.data[i].path);
    ordered[i] = inputs[input - graph->inputs.data];
  }
  return ordered;
}

static int n_played[2]; /* by kind of plan */

static void check_seed(uint64_t seed) {
  Module *module = module_create();
  Graph *graph = make_random(module, seed, true);
  Plan plan = seed % 2 ? make_uneven_plan(module, seed & 2 ? "B" : "T")
                       : make_plan(module);
  PassContext ctx = {.module = module,
                     .scratch = module->arena,
                     .plan = &plan,
                     .is_training = true}; /* for buckets */
  const char *disabled[] = {"autodiff", "optimizer"};
  PassOptions options = {.level = (int)(seed / 4 % 3),
                         .verify = true,
                         .disabled = disabled,
                         .n_disabled = 2};
  Graph *cut = passes_run(&ctx, &options, graph).graph;
  if (diags_errors(module->diags) > 0) {
    modules_destroy();
    return;
  }
  n_played[seed % 2]++;
  Text faults = text_create(module->arena);
  cr_assert(graph_check_placements(cut, &faults), "seed %lu: %s",
            (unsigned long)seed, text_string(&faults));
  Tensor inputs[6];
  for (int i = 0; i < 6; i++)
    inputs[i] = tensor_random(module->arena,
                              graph_type(graph, graph->inputs.data[i].value),
                              seed * 16 + (uint64_t)i, -1, 1);
  Tensor *wanted = run(graph, INTERP_f64, inputs);
  Player *player = play_graph(&ctx, cut, inputs_of(graph, cut, inputs), seed);
  for (int i = 0; i < graph->outputs.n; i++) {
    PlayDifference difference = player_compare(player, i, &wanted[i], LIMIT);
    cr_assert_leq(difference.error, LIMIT,
                  "seed %lu output %d rank %d [%ld]: off by %g",
                  (unsigned long)seed, i, difference.rank,
                  (long)difference.element, difference.error);
  }
  modules_destroy();
}

Test(passes_partition, same_meaning) {
  n_played[0] = n_played[1] = 0;
  for_seeds(N_GRAPHS, check_seed);
  cr_log_info("%d graphs were cut, %d into unequal shards",
              n_played[0] + n_played[1], n_played[1]);
  if (getenv("DNNC_SEED") != NULL) return;
  cr_assert_gt(n_played[0], N_GRAPHS / 20);
  cr_assert_gt(n_played[1], N_GRAPHS / 20);
}
