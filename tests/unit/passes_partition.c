// links: passes ir support
/*
 * passes_partition.c -- tests that a partitioned graph computes the same as the
 * logical one.
 *
 * A random graph is sharded over two ranks and two micro-batches.  Then every
 * rank and micro-batch is played by hand: each node runs in the interpreter on
 * local tensors, collectives add up the tensors of their group.  What comes out
 * must be what the graph gave before it was cut.  Graphs that ask for what is
 * not supported yet (a row over the batch dim, say) are left out, but not too
 * many of them may be.
 */
#include "passes/passes.h"
#include "tests/unit/memory_play.h"
#include "tests/unit/random_graph.h"

#define N_GRAPHS 300
#define N_SHARDS 4

typedef struct Play {
  Module *module;
  const Graph *graph;
  Tensor **values; /* [node][shard] */
} Play;

static int coordinate(const Mesh *mesh, int shard, int axis) {
  int stride = 1;
  for (int a = mesh->n_axes - 1; a > axis; a--) stride *= mesh->axes[a].size;
  return shard / stride % mesh->axes[axis].size;
}

/* First element of the shard along a dim split by `list`. */
static int64_t offset_of(const Mesh *mesh, const Dim *dim, int shard) {
  int64_t index = 0;
  for (int i = 0; i < axis_list_length(dim->split); i++) {
    int axis = axis_list_at(dim->split, i);
    index = index * mesh->axes[axis].size + coordinate(mesh, shard, axis);
  }
  return index * (dim->size / axis_list_shards(dim->split, mesh));
}

static const Type *local_type(Play *play, const Type *type) {
  Type *local = type_create(play->module->arena, type->dtype, type->rank);
  for (int d = 0; d < type->rank; d++) {
    local->dims[d] = type->dims[d];
    local->dims[d].split = 0;
    local->dims[d].size = type_local_size(type, &play->graph->mesh, d);
  }
  return local;
}

/* A rank's shard of a logical tensor. */
static Tensor shard_of(Play *play, Tensor logical, const Type *type,
                       int shard) {
  Tensor local = tensor_create(play->module->arena, local_type(play, type));
  int64_t n = type_elements(local.type);
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = i, at = 0, stride = 1;
    for (int d = type->rank - 1; d >= 0; d--) {
      int64_t k = rest % local.type->dims[d].size;
      rest /= local.type->dims[d].size;
      at += (k + offset_of(&play->graph->mesh, &type->dims[d], shard)) * stride;
      stride *= type->dims[d].size;
    }
    local.data[i] = logical.data[at];
  }
  return local;
}

/* One node on its own; `types` are those of its inputs. */
static Tensor run_node(Play *play, const Node *node, const Tensor *inputs,
                       const Type *result) {
  Graph *one = make_graph(play->module);
  Value args[4];
  cr_assert_leq(node->n_inputs, 4);
  for (int i = 0; i < node->n_inputs; i++)
    args[i] = graph_input(one, ROLE_arg, name_intern(play->module->names, ""),
                          inputs[i].type);
  Attrs attrs = {.n = node->n_attrs};
  for (int i = 0; i < node->n_attrs; i++) attrs.items[i] = node->attrs[i];
  Value value = graph_append_typed(one, node->op, args, node->n_inputs, &attrs,
                                   &result, 1, NULL);
  graph_output(one, ROLE_result, name_intern(play->module->names, ""), value);
  Tensor out;
  interp_run(one, INTERP_f64, play->module->arena, inputs, &out, NULL);
  return out;
}

/* Pieces that differ on the axes of a collective only. */
static bool same_group(const Mesh *mesh, const Node *node, int a, int b) {
  int n;
  const Name *axes = node_names(node, ATTR_axes, &n);
  for (int axis = 0; axis < mesh->n_axes; axis++) {
    bool is_joined = false;
    for (int i = 0; i < n; i++) is_joined |= axes[i] == mesh->axes[axis].name;
    if (!is_joined && coordinate(mesh, a, axis) != coordinate(mesh, b, axis))
      return false;
  }
  return true;
}

/* Joins the shards of a group. */
static Tensor gather_shards(Play *play, const Node *node, int shard) {
  const Mesh *mesh = &play->graph->mesh;
  const Type *logical = node->types[0];
  const Type *part = graph_type(play->graph, node->inputs[0]);
  Tensor out = tensor_create(play->module->arena, local_type(play, logical));
  for (int p = 0; p < N_SHARDS; p++) {
    if (!same_group(mesh, node, p, shard)) continue;
    Tensor in = play->values[node->inputs[0].node][p];
    for (int64_t i = 0; i < type_elements(in.type); i++) {
      int64_t rest = i, at = 0, stride = 1;
      for (int d = part->rank - 1; d >= 0; d--) {
        int64_t k = rest % in.type->dims[d].size;
        rest /= in.type->dims[d].size;
        k += offset_of(mesh, &part->dims[d], p) -
             offset_of(mesh, &logical->dims[d], shard);
        at += k * stride;
        stride *= out.type->dims[d].size;
      }
      out.data[at] = in.data[i];
    }
  }
  return out;
}

/* Sum (or maximum) over the shards that differ from `shard` on `axes` only. */
static Tensor reduce_shards(Play *play, const Node *node, int shard) {
  const Mesh *mesh = &play->graph->mesh;
  bool is_max = strcmp(node_name(node, ATTR_reduce), "max") == 0;
  const Tensor *in = play->values[node->inputs[0].node];
  Tensor out = tensor_create(play->module->arena, in[shard].type);
  bool is_first = true;
  for (int p = 0; p < N_SHARDS; p++) {
    bool is_part = same_group(mesh, node, p, shard);
    for (int64_t i = 0; is_part && i < type_elements(out.type); i++) {
      double x = in[p].data[i];
      out.data[i] = is_first ? x
                    : is_max ? fmax(out.data[i], x)
                             : out.data[i] + x;
    }
    is_first &= !is_part;
  }
  return out;
}

static void play_node(Play *play, int id, const Tensor *whole_inputs) {
  const Node *node = play->graph->nodes.data[id];
  const Type *type = node->types[0];
  for (int p = 0; p < N_SHARDS; p++) {
    Tensor *to = &play->values[id][p];
    Tensor inputs[4];
    for (int i = 0; i < node->n_inputs && i < 4; i++)
      inputs[i] = play->values[node->inputs[i].node][p];
    if (node->op == OP_input) {
      *to =
          shard_of(play, whole_inputs[node_int(node, ATTR_index, 0)], type, p);
    } else if (node->op == OP_all_reduce || node->op == OP_accumulate) {
      cr_assert_eq(node->n_inputs, 1);
      *to = reduce_shards(play, node, p);
    } else if (node->op == OP_collect_microbatches) {
      *to = gather_shards(play, node, p);
    } else if (node->op == OP_shard) {
      *to = shard_of(play, inputs[0], type, p);
    } else if (node->op == OP_iota) {
      *to = shard_of(
          play,
          run_node(play, node, NULL, type_logical(play->module->arena, type)),
          type, p);
    } else {
      *to = run_node(play, node, inputs, local_type(play, type));
    }
  }
}

/* The rest of the passes, for the order and the memory of micro-batches. */
static void check_final(PassContext *ctx, Graph *graph, uint64_t seed) {
  PassOptions options = {.level = (int)(seed % 3), .verify = true};
  ctx->is_training = true; /* for buckets */
  const char *disabled[] = {"autodiff", "optimizer"};
  options.disabled = disabled;
  options.n_disabled = 2;
  Graph *final = passes_run(ctx, &options, graph).graph;
  if (diags_errors(ctx->module->diags) > 0) return; /* at this level */
  check_memory(ctx, final, seed);
}

static int n_played;

static void check_seed(uint64_t seed) {
  Module *module = module_create();
  Graph *graph = make_random(module, seed, true);
  Plan plan = {.ranks = 2, .microbatches = 2};
  plan.name = name_intern(module->names, "test");
  Name axes[2] = {name_intern(module->names, "data"),
                  name_intern(module->names, "time")};
  plan.mesh.n_axes = 2;
  plan.mesh.axes[0] = (MeshAxis){axes[0], 2, false};
  plan.mesh.axes[1] = (MeshAxis){axes[1], 2, true};
  PlanShard shard = {.dim = name_intern(module->names, "B"), .n_axes = 2};
  shard.axes[0] = axes[0];
  shard.axes[1] = axes[1];
  vec_push(module->arena, &plan.shards, shard);
  PassContext ctx = {.module = module, .scratch = module->arena, .plan = &plan};
  PassOptions options = {
      .level = seed % 2 ? 2 : 0, .verify = true, .stop_after = "partition"};
  Graph *cut_graph = passes_run(&ctx, &options, graph).graph;
  if (diags_errors(module->diags) > 0) {
    modules_destroy();
    return;
  }
  n_played++;
  Tensor inputs[6];
  for (int i = 0; i < 6; i++)
    inputs[i] = tensor_random(module->arena,
                              graph_type(graph, graph->inputs.data[i].value),
                              seed * 16 + (uint64_t)i, -1, 1);
  Tensor *wanted = run(graph, INTERP_f64, inputs);
  Play play = {.module = module, .graph = cut_graph};
  play.values = ARENA_ARRAY(module->arena, Tensor *, cut_graph->nodes.n);
  for (int id = 0; id < cut_graph->nodes.n; id++) {
    play.values[id] = ARENA_ARRAY(module->arena, Tensor, N_SHARDS);
    play_node(&play, id, inputs);
  }
  for (int i = 0; i < graph->outputs.n; i++)
    for (int p = 0; p < N_SHARDS; p++) {
      Value value = cut_graph->outputs.data[i].value;
      const Tensor *got = &play.values[value.node][p];
      for (int64_t e = 0; e < type_elements(wanted[i].type); e++) {
        double a = wanted[i].data[e], b = got->data[e];
        cr_assert(a == b || fabs(a - b) <= 1e-9 * (1 + fabs(a)),
                  "seed %lu output %d shard %d [%ld]: %.17g, not %.17g",
                  (unsigned long)seed, i, p, (long)e, b, a);
      }
    }
  check_final(&ctx, graph, seed);
  modules_destroy();
}

Test(passes_partition, same_meaning) {
  n_played = 0;
  for_seeds(N_GRAPHS, check_seed);
  cr_log_info("%d graphs were cut", n_played);
  if (getenv("DNNC_SEED") == NULL) cr_assert_gt(n_played, N_GRAPHS / 10);
}
