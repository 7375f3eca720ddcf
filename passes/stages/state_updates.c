/*
 * state_updates.c -- moves the computation of states, such as the running
 * statistics of batchnorm, into the update of a stage that runs forward passes
 * of later batches before it.
 *
 *     %3 = sum %2                        %3 = sum %2
 *     %4 = mul %1, 0.9  %1: state   =>   %4 = mul %1, 0.9 @update
 *     %5 = add %4, %3                    %5 = add %4, %3 @update
 *     %6 = select %ok, %5, %1 @update    %6 = select %ok, %5, %1 @update
 *
 * A state has one version.  The forward pass of a batch would read it before
 * the updates of batches that are under way, and their parts would be lost.  In
 * the update the next state follows from the last one.  What a batch adds is
 * kept with its values until then.
 *
 * cost: O(nodes)
 */
#include "passes/stages/stages.h"

/* By node: it follows from a state that the graph replaces. */
static bool *find_followers(Arena *scratch, const Graph *graph) {
  bool *follows = ARENA_ARRAY(scratch, bool, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    const GraphInput *input =
        node->op == OP_input
            ? &graph->inputs.data[node_int(node, ATTR_index, 0)]
            : NULL;
    follows[id] = input && input->role == ROLE_state &&
                  graph_find_output(graph, ROLE_state, input->path);
    for (int i = 0; i < node->n_inputs; i++)
      follows[id] |= follows[node->inputs[i].node];
  }
  return follows;
}

/* By node: a pass needs it, or it leaves the graph as something else than a
 * state. */
static bool *find_needed(Arena *scratch, const Graph *graph,
                         const bool *follows) {
  bool *is_needed = ARENA_ARRAY(scratch, bool, graph->nodes.n);
  for (int i = 0; i < graph->outputs.n; i++)
    if (graph->outputs.data[i].role != ROLE_state)
      is_needed[graph->outputs.data[i].value.node] = true;
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    bool is_of_pass = node->phase != PHASE_update &&
                      (is_needed[id] || node->phase != PHASE_forward);
    for (int i = 0; i < node->n_inputs && is_of_pass; i++)
      if (follows[node->inputs[i].node]) is_needed[node->inputs[i].node] = true;
  }
  return is_needed;
}

void stage_states_update(Arena *scratch, Graph *graph) {
  const bool *follows = find_followers(scratch, graph);
  const bool *is_needed = find_needed(scratch, graph, follows);
  for (int id = 0; id < graph->nodes.n; id++) {
    Node **node = &graph->nodes.data[id];
    bool is_moved = follows[id] && !is_needed[id] && (*node)->op != OP_input &&
                    (*node)->phase == PHASE_forward;
    if (!is_moved) continue;
    *node = arena_copy(graph->module->arena, *node, sizeof **node);
    (*node)->phase = PHASE_update;
  }
}
