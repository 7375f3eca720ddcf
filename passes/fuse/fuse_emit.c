/*
 * fuse_emit.c -- build the graph in which each group is one `fused` node.
 *
 * The order of groups stays near the old one: among the groups whose inputs are
 * ready, the one whose last member came first is next.
 */
#include "passes/fuse/fuse.h"

typedef struct Emit {
  Fusion *fusion;
  Rewrite rewrite;
  int *waiting; /* groups that a group still waits for */
  int *heap;    /* ready groups, by key */
  int *key;     /* id of the last member */
  int n_heap;
  BodyShare *bodies;
  int *first_value; /* by node: values of the graph are numbered through */
  int *body_of;     /* by value: the group whose body has it, plus 1 */
  int *body_node;   /* by value: where, in that body */
} Emit;

static void emit_heap_push(Emit *emit, int group) {
  int at = emit->n_heap++;
  while (at > 0 && emit->key[emit->heap[(at - 1) / 2]] > emit->key[group]) {
    emit->heap[at] = emit->heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  emit->heap[at] = group;
}

static int emit_heap_pop(Emit *emit) {
  int top = emit->heap[0], last = emit->heap[--emit->n_heap], at = 0;
  for (;;) {
    int child = 2 * at + 1;
    if (child >= emit->n_heap) break;
    if (child + 1 < emit->n_heap &&
        emit->key[emit->heap[child + 1]] < emit->key[emit->heap[child]])
      child++;
    if (emit->key[emit->heap[child]] >= emit->key[last]) break;
    emit->heap[at] = emit->heap[child];
    at = child;
  }
  if (emit->n_heap > 0) emit->heap[at] = last;
  return top;
}

/* ---- one body ---- */

typedef struct FusedBody {
  const Emit *emit;
  const Fusion *fusion;
  Graph *graph;
  int group;
  VEC(Value) inputs; /* old values */
} FusedBody;

static Value fused_body_value(FusedBody *body, Value old, int group);

static Value fused_body_copy(FusedBody *body, int id, int group) {
  const Fusion *fusion = body->fusion;
  const Node *node = fusion->graph->nodes.data[id];
  Value few[4];
  Value *inputs = node->n_inputs <= ARRAY_LENGTH(few)
                      ? few
                      : ARENA_ARRAY(fusion->arena, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++) {
    bool is_table = op_has(node->op, OP_FLAG_lookup) && i == 0;
    inputs[i] = fused_body_value(body, node->inputs[i], is_table ? -2 : group);
  }
  return graph_copy_node(body->graph, fusion->graph, id, inputs, false);
}

/* The value inside the body: a member, a copy of something free, or a new
 * input (always, for group -2: a gather's table). */
static Value fused_body_value(FusedBody *body, Value old, int group) {
  const Fusion *fusion = body->fusion;
  const Emit *emit = body->emit;
  int v = emit->first_value[old.node] + old.result;
  if (emit->body_of[v] == body->group + 1)
    return (Value){emit->body_node[v], 0};
  Value now;
  if (group != -2 &&
      (fusion->group_of[old.node] == group || fusion->is_free[old.node])) {
    now = fused_body_copy(body, old.node, group);
  } else {
    const Graph *graph = fusion->graph;
    body->graph->path = graph_node(graph, old)->path;
    now = graph_input(body->graph, ROLE_arg,
                      name_intern(graph->module->names, ""),
                      graph_type(graph, old));
    vec_push(fusion->arena, &body->inputs, old);
  }
  emit->body_of[v] = body->group + 1;
  emit->body_node[v] = now.node;
  return now;
}

/* The node that a kernel is named after: its last result that has a path, else
 * its last member that has one. */
static int name_giver(const Fusion *fusion, const Group *group) {
  int named = group->members.data[group->members.n - 1];
  bool has_path = false;
  for (int m = 0; m < group->members.n; m++) {
    int id = group->members.data[m];
    const char *path = fusion->graph->nodes.data[id]->path;
    if (!path || !*path) continue;
    bool escapes = fusion_escapes(fusion, id);
    if (!has_path || escapes) named = id;
    has_path |= escapes;
  }
  return named;
}

/* Some member runs for each micro-batch by its attribute alone. */
static bool needs_loop_mark(const Fusion *fusion, const Group *group) {
  for (int m = 0; m < group->members.n; m++)
    if (node_has(fusion->graph->nodes.data[group->members.data[m]],
                 ATTR_per_microbatch))
      return true;
  return false;
}

static Graph *create_body(Module *module, const Graph *graph) {
  Graph *body = graph_create(module, name_intern(module->names, "body"));
  body->mesh = graph->mesh;
  return body;
}

static void emit_fused(Emit *emit, int g) {
  Fusion *fusion = emit->fusion;
  const Group *group = &fusion->groups[g];
  Module *module = fusion->graph->module;
  FusedBody body = {.emit = emit, .fusion = fusion, .group = g};
  body.graph = create_body(&emit->bodies->trial, fusion->graph);
  int n_results = 0;
  int *results = ARENA_ARRAY(fusion->arena, int, group->members.n);
  const Type **types =
      ARENA_ARRAY(fusion->arena, const Type *, group->members.n);
  for (int m = 0; m < group->members.n; m++) {
    int id = group->members.data[m];
    Value now = fused_body_value(&body, (Value){id, 0}, g);
    if (!fusion_escapes(fusion, id)) continue;
    const Node *node = fusion->graph->nodes.data[id];
    graph_output(body.graph, ROLE_result, name_intern(module->names, ""), now);
    types[n_results] = node->types[0];
    results[n_results++] = id;
  }
  ASSERT(n_results > 0);
  rewrite_at(&emit->rewrite, name_giver(fusion, group));
  Value *inputs = ARENA_ARRAY(fusion->arena, Value, body.inputs.n);
  for (int i = 0; i < body.inputs.n; i++)
    inputs[i] = rewrite_get(&emit->rewrite, body.inputs.data[i]);
  Attrs attrs = {0};
  if (needs_loop_mark(fusion, group)) attrs_int(&attrs, ATTR_per_microbatch, 1);
  Value first = graph_append_typed(emit->rewrite.to, OP_fused, inputs,
                                   body.inputs.n, &attrs, types, n_results,
                                   body_share_keep(emit->bodies, body.graph));
  for (int r = 0; r < n_results; r++)
    rewrite_set(&emit->rewrite, (Value){results[r], 0}, (Value){first.node, r});
}

static void emit_group(Emit *emit, int g) {
  const Group *group = &emit->fusion->groups[g];
  int id = group->members.data[0];
  const Node *node = emit->fusion->graph->nodes.data[id];
  bool has_stored_inputs = true;
  for (int i = 0; i < node->n_inputs; i++)
    has_stored_inputs &= emit->fusion->group_of[node->inputs[i].node] >= 0;
  bool is_plain = group->members.n == 1 &&
                  (!op_has(node->op, OP_FLAG_fuses) ||
                   (op_has(node->op, OP_FLAG_lookup) && has_stored_inputs));
  if (is_plain)
    rewrite_copy(&emit->rewrite, id);
  else
    emit_fused(emit, g);
}

/* ---- the order ---- */

/* Inputs that other groups make. */
static int count_group_inputs(const Fusion *fusion, int g) {
  const Group *group = &fusion->groups[g];
  int count = 0;
  for (int m = 0; m < group->members.n; m++) {
    const Node *node = fusion->graph->nodes.data[group->members.data[m]];
    for (int i = 0; i < node->n_inputs; i++) {
      int from = fusion->group_of[node->inputs[i].node];
      count += from >= 0 && from != g;
    }
  }
  return count;
}

/* The group is emitted: what waited only for it is ready. */
static void wake_users(Emit *emit, int g) {
  const Fusion *fusion = emit->fusion;
  const Group *group = &fusion->groups[g];
  for (int m = 0; m < group->members.n; m++) {
    int id = group->members.data[m];
    for (int u = fusion->user_begin[id]; u < fusion->user_begin[id + 1]; u++) {
      int user = fusion->group_of[fusion->users[u]];
      if (user < 0 || user == g) continue;
      if (--emit->waiting[user] == 0) emit_heap_push(emit, user);
    }
  }
}

static void number_values(Emit *emit) {
  const Fusion *fusion = emit->fusion;
  int n = 0;
  emit->first_value = ARENA_ARRAY(fusion->arena, int, fusion->n);
  for (int id = 0; id < fusion->n; id++) {
    emit->first_value[id] = n;
    n += fusion->graph->nodes.data[id]->n_results;
  }
  emit->body_of = ARENA_ARRAY(fusion->arena, int, n);
  emit->body_node = ARENA_ARRAY(fusion->arena, int, n);
}

Graph *fusion_emit(Fusion *fusion) {
  Emit emit = {.fusion = fusion};
  emit.rewrite = rewrite_begin(fusion->ctx, fusion->graph);
  emit.bodies = body_share_begin(fusion);
  emit.waiting = ARENA_ARRAY(fusion->arena, int, fusion->n);
  emit.heap = ARENA_ARRAY(fusion->arena, int, fusion->n);
  emit.key = ARENA_ARRAY(fusion->arena, int, fusion->n);
  number_values(&emit);
  int n_groups = 0, n_emitted = 0;
  for (int g = 0; g < fusion->n; g++) {
    const Group *group = &fusion->groups[g];
    if (group->members.n == 0 || fusion->group_of[group->members.data[0]] != g)
      continue;
    n_groups++;
    emit.key[g] = group->members.data[group->members.n - 1];
    emit.waiting[g] = count_group_inputs(fusion, g);
    if (emit.waiting[g] == 0) emit_heap_push(&emit, g);
  }
  while (emit.n_heap > 0) {
    int g = emit_heap_pop(&emit);
    emit_group(&emit, g);
    wake_users(&emit, g);
    n_emitted++;
  }
  ASSERT(n_emitted == n_groups); /* else the groups form a cycle */
  body_share_end(emit.bodies);
  return rewrite_end(&emit.rewrite);
}
