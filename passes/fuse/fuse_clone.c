/*
 * fuse_clone.c -- compute cheap values again in the kernels that read them, in
 * place of storing them.
 *
 *     kernel 1: m, r = ... x;  y = (x - m) * r * g      (stores y and xhat)
 *     kernel 2: sum dy * xhat
 *  =>
 *     kernel 1: stores y, m, r
 *     kernel 2: sum dy * ((x - m) * r)
 *
 * A value whose users are all in other kernels is cloned into each of them if
 * the clones read fewer extra bytes than a store and the loads of the value
 * move.  Row values that the clones need are small and are stored in its place.
 * So is the 16-bit operand where the value is a cast of it to f32.
 */
#include "passes/fuse/fuse.h"

#define MAX_CLONE_FLOPS 8
#define MAX_CLONES      8
#define MAX_BIG         4
#define SMALL           8 /* a value this many times smaller does not count */

typedef struct Choice {
  Fusion *fusion;
  FuseSummary **summaries; /* by group, of those with a reduction, or NULL */
  bool *is_stored;         /* by node: will be a result of its group */
  bool *is_chosen;         /* by node: its outside users get copies */
} Choice;

/* The nodes that clones of a value would consist of. */
typedef struct Expansion {
  int n_nodes, nodes[MAX_CLONES];
  int n_small, small[MAX_CLONES]; /* row values to be stored */
  int n_big, big[MAX_BIG];
  double flops;
} Expansion;

static double node_result_bytes(const Fusion *fusion, int id, int result) {
  const Type *type = fusion->graph->nodes.data[id]->types[result];
  return (double)type_elements(type) * dtype_size_bytes(type->dtype);
}

static bool add_unique(int *list, int *n, int max, int item) {
  for (int i = 0; i < *n; i++)
    if (list[i] == item) return true;
  if (*n == max) return false;
  list[(*n)++] = item;
  return true;
}

static bool is_cheap_to_clone(const Node *node) {
  bool is_move =
      op_is(node->op, OPCLASS_data_movement) && op_has(node->op, OP_FLAG_fuses);
  return is_move || (op_is(node->op, OPCLASS_elementwise) &&
                     op_info(node->op)->flops <= 4);
}

static bool is_row_value(const Choice *choice, int id) {
  const Group *group = &choice->fusion->groups[choice->fusion->group_of[id]];
  const FuseSummary *s = choice->summaries[group - choice->fusion->groups];
  if (!s || !s->has_reduction) return false;
  const Type *type = choice->fusion->graph->nodes.data[id]->types[0];
  if (type->rank != s->n_space - s->n_inner) return false;
  for (int d = 0; d < type->rank; d++)
    for (int i = 0; i < s->n_inner; i++)
      if (type->dims[d].name == s->inner[i]) return false;
  return true;
}

static bool expand_clone(const Choice *choice, int id, double bytes,
                         Expansion *out) {
  const Fusion *fusion = choice->fusion;
  const Node *node = fusion->graph->nodes.data[id];
  if (!is_cheap_to_clone(node)) return false;
  for (int i = 0; i < out->n_nodes; i++)
    if (out->nodes[i] == id) return true;
  if (out->n_nodes == MAX_CLONES) return false;
  out->nodes[out->n_nodes++] = id;
  if (op_info(node->op)->is_pointwise) out->flops += op_info(node->op)->flops;
  if (out->flops > MAX_CLONE_FLOPS) return false;
  for (int i = 0; i < node->n_inputs; i++) {
    Value input = node->inputs[i];
    if (fusion->is_free[input.node]) continue;
    int from = fusion->group_of[input.node];
    bool is_small =
        node_result_bytes(fusion, input.node, input.result) * SMALL <= bytes;
    bool is_there =
        !fusion->groups[from].is_fusable || choice->is_stored[input.node];
    if (is_there && is_small) continue;
    if (is_there) {
      if (!add_unique(out->big, &out->n_big, MAX_BIG, input.node)) return false;
    } else if (is_small && is_row_value(choice, input.node)) {
      if (!add_unique(out->small, &out->n_small, MAX_CLONES, input.node))
        return false;
    } else if (!expand_clone(choice, input.node, bytes, out)) {
      return false;
    }
  }
  return true;
}

static bool group_reads(const Fusion *fusion, int g, int id) {
  for (int u = fusion->user_begin[id]; u < fusion->user_begin[id + 1]; u++)
    if (fusion->group_of[fusion->users[u]] == g) return true;
  return false;
}

/* Groups other than its own that use the value; -1: one of them is no kernel,
 * or there are too many to be worth it. */
static int user_groups(const Fusion *fusion, int id, int *out, int max) {
  int n = 0;
  if (fusion->is_output[id]) return -1;
  for (int u = fusion->user_begin[id]; u < fusion->user_begin[id + 1]; u++) {
    const Node *user = fusion->graph->nodes.data[fusion->users[u]];
    int g = fusion->group_of[fusion->users[u]];
    if (g == fusion->group_of[id]) continue;
    if (g < 0 || !fusion->groups[g].is_fusable) return -1;
    if (op_has(user->op, OP_FLAG_lookup) && user->inputs[0].node == id)
      return -1;
    if (!add_unique(out, &n, max, g)) return -1;
  }
  return n;
}

/* Bytes that the copies read on top of what their kernels read anyway. */
static double copies_cost(const Fusion *fusion, const Expansion *expansion,
                          const int *users, int n_users) {
  double cost = 0;
  for (int u = 0; u < n_users; u++)
    for (int b = 0; b < expansion->n_big; b++)
      if (!group_reads(fusion, users[u], expansion->big[b]))
        cost += node_result_bytes(fusion, expansion->big[b], 0);
  return cost;
}

/* The 16-bit operand if the value is a cast of one to f32, else -1. */
static int narrower_source(const Fusion *fusion, int id) {
  const Node *node = fusion->graph->nodes.data[id];
  if (node->op != OP_cast) return -1;
  Value input = node->inputs[0];
  bool is_narrower = node_result_bytes(fusion, input.node, input.result) <
                     node_result_bytes(fusion, id, 0);
  return is_narrower && !fusion->is_free[input.node] ? input.node : -1;
}

static void choose_clone(Choice *choice, int id) {
  Fusion *fusion = choice->fusion;
  int users[8];
  int n_users = user_groups(fusion, id, users, ARRAY_LENGTH(users));
  if (n_users <= 0) return;
  double bytes = node_result_bytes(fusion, id, 0);
  Expansion expansion = {0};
  bool pays =
      expand_clone(choice, id, bytes, &expansion) &&
      copies_cost(fusion, &expansion, users, n_users) < bytes * (n_users + 1);
  /* Two large values stored for the clones cost more than one 16-bit value. */
  int cast_source = narrower_source(fusion, id);
  if (cast_source >= 0 && (!pays || expansion.n_big > 1))
    expansion = (Expansion){.n_small = 1, .small = {cast_source}};
  else if (!pays)
    return;
  choice->is_chosen[id] = true;
  choice->is_stored[id] = false;
  for (int i = 0; i < expansion.n_small; i++)
    choice->is_stored[expansion.small[i]] = true;
}

/* ---- what the new graph needs ---- */

typedef struct Cloner {
  Choice *choice;
  bool *is_live;         /* by node: read by more than its clones */
  Map *wanted;           /* clones that are read, by clone_key */
  Map *copies;           /* by clone_key: node of the new graph + 1 */
  VEC(int) cloned_nodes; /* ids in the new graph */
  Rewrite rewrite;
} Cloner;

/* The clone of a node in a group. */
static const void *clone_key(const Fusion *fusion, int id, int group) {
  return (const void *)(intptr_t)((int64_t)id * fusion->n + group + 1);
}

/* A node of this group reads a clone of the value. */
static bool reads_clone(const Choice *choice, int group, int from) {
  return choice->is_chosen[from] && choice->fusion->group_of[from] != group;
}

/* A clone in this group reads a clone of the value, too. */
static bool is_cloned_along(const Choice *choice, int group, int from) {
  const Fusion *fusion = choice->fusion;
  int own = fusion->group_of[from];
  return !fusion->is_free[from] && fusion->groups[own].is_fusable &&
         !choice->is_stored[from] && own != group;
}

static void want_clone(Cloner *cloner, int id, int group) {
  const Fusion *fusion = cloner->choice->fusion;
  const Node *node = fusion->graph->nodes.data[id];
  const void *key = clone_key(fusion, id, group);
  if (map_has(cloner->wanted, key)) return;
  map_put(cloner->wanted, key, cloner);
  for (int i = 0; i < node->n_inputs; i++) {
    int from = node->inputs[i].node;
    if (is_cloned_along(cloner->choice, group, from))
      want_clone(cloner, from, group);
    else
      cloner->is_live[from] = true;
  }
}

/* Originals that only clones replace are not copied. */
static void find_live(Cloner *cloner) {
  const Choice *choice = cloner->choice;
  const Fusion *fusion = choice->fusion;
  for (int id = fusion->n - 1; id >= 0; id--) {
    const Node *node = fusion->graph->nodes.data[id];
    int group = fusion->group_of[id];
    cloner->is_live[id] |= fusion->is_output[id] || node->op == OP_input;
    for (int i = 0; cloner->is_live[id] && i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      if (reads_clone(choice, group, from))
        want_clone(cloner, from, group);
      else
        cloner->is_live[from] = true;
    }
  }
}

/* ---- the new graph ---- */

static Value known_clone(const Cloner *cloner, int id, int group) {
  const void *key = clone_key(cloner->choice->fusion, id, group);
  return (Value){(int)(intptr_t)map_get(cloner->copies, key) - 1, 0};
}

/* Appends the clone of a value for a group, if it is wanted, after those that
 * it reads. */
static void add_clone(Cloner *cloner, int id, int group, Phase phase) {
  const Choice *choice = cloner->choice;
  const Fusion *fusion = choice->fusion;
  const Node *node = fusion->graph->nodes.data[id];
  const void *key = clone_key(fusion, id, group);
  if (map_has(cloner->copies, key)) return;
  bool is_wanted = map_has(cloner->wanted, key);
  Value inputs[4];
  ASSERT(node->n_inputs <= 4);
  for (int i = 0; i < node->n_inputs; i++) {
    Value input = node->inputs[i];
    bool is_along = is_cloned_along(choice, group, input.node);
    if (is_along) add_clone(cloner, input.node, group, phase);
    if (is_wanted)
      inputs[i] = is_along ? known_clone(cloner, input.node, group)
                           : rewrite_get(&cloner->rewrite, input);
  }
  if (!is_wanted) return;
  Attrs attrs = node_attrs(node);
  Graph *to = cloner->rewrite.to;
  to->phase = phase;
  to->path = node->path;
  to->span = node->span;
  Value now = graph_append_typed(to, node->op, inputs, node->n_inputs, &attrs,
                                 node->types, 1, NULL);
  vec_push(fusion->arena, &cloner->cloned_nodes, now.node);
  map_put(cloner->copies, key, (void *)(intptr_t)(now.node + 1));
}

static void copy_with_clones(Cloner *cloner, int id) {
  const Choice *choice = cloner->choice;
  const Fusion *fusion = choice->fusion;
  const Node *node = fusion->graph->nodes.data[id];
  int group = fusion->group_of[id];
  bool any = false;
  for (int i = 0; i < node->n_inputs; i++) {
    int from = node->inputs[i].node;
    if (!reads_clone(choice, group, from)) continue;
    add_clone(cloner, from, group, node->phase);
    any = true;
  }
  if (!cloner->is_live[id]) return;
  if (!any) {
    rewrite_copy(&cloner->rewrite, id);
    return;
  }
  Value *inputs = ARENA_ARRAY(fusion->arena, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++) {
    int from = node->inputs[i].node;
    inputs[i] = reads_clone(choice, group, from)
                    ? known_clone(cloner, from, group)
                    : rewrite_get(&cloner->rewrite, node->inputs[i]);
  }
  rewrite_at(&cloner->rewrite, id);
  Value now =
      graph_copy_node(cloner->rewrite.to, fusion->graph, id, inputs, false);
  rewrite_set(&cloner->rewrite, (Value){id, 0}, now);
}

Graph *fusion_clone(Fusion *fusion, bool **out_is_clone) {
  int n = fusion->n;
  Choice choice = {.fusion = fusion};
  choice.summaries = ARENA_ARRAY(fusion->arena, FuseSummary *, n);
  choice.is_stored = ARENA_ARRAY(fusion->arena, bool, n);
  choice.is_chosen = ARENA_ARRAY(fusion->arena, bool, n);
  for (int g = 0; g < n; g++) {
    const Group *group = &fusion->groups[g];
    if (!group->is_fusable || group->members.n == 0 || group->plain) continue;
    choice.summaries[g] = ARENA_NEW(fusion->arena, FuseSummary);
    fuse_check(fusion, group->members.data, group->members.n,
               choice.summaries[g]);
  }
  for (int id = 0; id < n; id++)
    choice.is_stored[id] =
        fusion->group_of[id] >= 0 && fusion_escapes(fusion, id);
  bool any = false;
  for (int id = 0; id < n; id++) {
    int g = fusion->group_of[id];
    if (g < 0 || !fusion->groups[g].is_fusable || !choice.is_stored[id])
      continue;
    choose_clone(&choice, id);
    any |= choice.is_chosen[id];
  }
  if (!any) return NULL;
  Cloner cloner = {.choice = &choice,
                   .is_live = ARENA_ARRAY(fusion->arena, bool, n),
                   .wanted = map_create(fusion->arena),
                   .copies = map_create(fusion->arena),
                   .rewrite = rewrite_begin(fusion->ctx, fusion->graph)};
  find_live(&cloner);
  for (int id = 0; id < n; id++) copy_with_clones(&cloner, id);
  Graph *graph = rewrite_end(&cloner.rewrite);
  *out_is_clone = ARENA_ARRAY(fusion->ctx->scratch, bool, graph->nodes.n);
  for (int i = 0; i < cloner.cloned_nodes.n; i++)
    (*out_is_clone)[cloner.cloned_nodes.data[i]] = true;
  return graph;
}
