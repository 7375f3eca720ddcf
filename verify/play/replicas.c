/*
 * replicas.c -- plays stages whose replicas run batches in turn, each replica
 * on a player of its own, which add up their gradients in an update.
 *
 *     replica 0   update: rename, all_reduce, ...
 *     replica 1   update: rename, all_reduce, ...    node by node
 *
 * All replicas have one graph, one layout and other numbers.  Where a group of
 * batches is not complete, a replica without one clears first what its passes
 * would have left, by the instructions of its list.
 */
#include "verify/play/internal.h"

void play_add(Player *player, Value of, const Type *type, Shards *sum,
              bool is_first) {
  const Numbers *numbers = player->options.numbers;
  int64_t n_elements = type_elements(type);
  ShardView view = play_read(player, player->frame, of);
  Tensor own = play_tensor(player, view, 0, type);
  void *to = shards_of_class(sum, 0);
  if (is_first)
    numbers_copy(numbers, type->dtype, to, tensor_array(&own), n_elements);
  else
    numbers_reduce(numbers, type->dtype, REDUCE_sum, to, tensor_array(&own),
                   n_elements);
  play_release(player, view);
}

void play_put_sum(Player *player, Value to, const Type *type,
                  const Shards *sum) {
  Shards *made = shards_create(player, classes_of_all(player), type->dtype,
                               type_elements(type));
  numbers_copy(player->options.numbers, type->dtype, shards_of_class(made, 0),
               shards_of_class(sum, 0), type_elements(type));
  play_put(player, player->frame, to, made);
  shards_release(player, made);
}

/* In place the operands lie where the results will. */
static void play_sum(Player *const *players, int n, int id) {
  const Node *node = players[0]->frame->graph->nodes.data[id];
  bool is_in_place = op_has(node->op, OP_FLAG_in_place);
  for (int i = 0; i < n; i++) play_start_sum(players[i], id);
  for (int part = 0; part < node->n_inputs; part++) {
    Value result = {id, part};
    const Type *type = graph_type(players[0]->frame->local, result);
    Shards *sum = shards_create(players[0], classes_of_all(players[0]),
                                type->dtype, type_elements(type));
    Value of = is_in_place ? result : node->inputs[part];
    for (int i = 0; i < n; i++) play_add(players[i], of, type, sum, i == 0);
    for (int i = 0; i < n; i++) play_put_sum(players[i], result, type, sum);
    shards_release(players[0], sum);
  }
}

void play_updates(Player *const *players, const ProgramCall *const *calls,
                  int n) {
  const ProgramSegment *segment =
      entry_point_segment(&players[0]->program->entry, calls[0]);
  const Graph *graph = players[0]->program->stages[0].graph;
  for (int i = 0; i < n; i++) {
    play_set_registers(players[i], calls[i]->stage, calls[i]->registers);
    players[i]->is_first = calls[i]->is_first;
  }
  for (int id = segment->first_node; id < segment->end_node; id++) {
    if (graph->nodes.data[id]->op == OP_all_reduce) {
      play_sum(players, n, id);
      continue;
    }
    for (int i = 0; i < n; i++) play_node(players[i], players[i]->frame, id);
  }
}

void play_clears(Player *player, const ProgramCall *call) {
  const EntryPoint *entry = &player->program->entry;
  const ProgramSegment *segment = entry_point_segment(entry, call);
  const InstructionList *list = entry->stages.data[call->stage].instructions;
  play_set_registers(player, call->stage, call->registers);
  for (int at = segment->begin; at < segment->end; at++) {
    const Instruction *in = &list->instructions.data[at];
    if (in->kind != INSTRUCTION_clear) continue;
    const Node *node = player->frame->graph->nodes.data[in->node];
    for (int r = 0; r < node->n_results; r++)
      play_clear(player, (Value){in->node, r});
  }
}
