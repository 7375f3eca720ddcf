/*
 * servers.c -- plays the updates of servers of parameters, each on a player of
 * its own, which come together where they tell each other the terms of a norm.
 *
 *     server 0   update: ..., all_reduce, ...
 *     server 1   update: ..., all_reduce, ...
 *
 * Servers have other graphs, in which the k-th sum is the same on all.
 */
#include "verify/play/internal.h"

/* The next node of a player. */
typedef struct Cursor {
  int call, id; /* id: -1 where the call has not begun */
} Cursor;

/* Plays up to the next sum over servers and returns its node; -1: the program
 * has come to its end. */
static int next_sum(Player *player, Cursor *at) {
  const EntryPoint *entry = &player->program->entry;
  for (; at->call < entry->timeline.n; at->call++, at->id = -1) {
    const ProgramCall *call = &entry->timeline.data[at->call];
    const ProgramSegment *segment = entry_point_segment(entry, call);
    play_set_registers(player, call->stage, call->registers);
    player->is_first = call->is_first;
    player->lists_messages = true;
    if (at->id < 0) at->id = segment->first_node;
    while (at->id < segment->end_node) {
      int id = at->id++;
      if (player->frame->graph->nodes.data[id]->op == OP_all_reduce) return id;
      play_node(player, player->frame, id);
    }
  }
  return -1;
}

/* Adds up the operands of a part of a sum, and gives all of them the result. */
static void play_part(Player *const *players, const int *ids, int n, int part) {
  const Type *type =
      graph_type(players[0]->frame->local, (Value){ids[0], part});
  Shards *sum = shards_create(players[0], classes_of_all(players[0]),
                              type->dtype, type_elements(type));
  for (int i = 0; i < n; i++) {
    const Node *node = players[i]->frame->graph->nodes.data[ids[i]];
    bool is_in_place = op_has(node->op, OP_FLAG_in_place);
    Value of = is_in_place ? (Value){ids[i], part} : node->inputs[part];
    play_add(players[i], of, type, sum, i == 0);
  }
  for (int i = 0; i < n; i++)
    play_put_sum(players[i], (Value){ids[i], part}, type, sum);
  shards_release(players[0], sum);
}

/* The sums at which players have come: all are there, with as many parts. */
static bool is_met(Player *const *players, const int *ids, int n) {
  if (ids[0] < 0) return false;
  int parts = players[0]->frame->graph->nodes.data[ids[0]]->n_inputs;
  for (int i = 1; i < n; i++)
    if (ids[i] < 0 ||
        players[i]->frame->graph->nodes.data[ids[i]]->n_inputs != parts)
      return false;
  return true;
}

void players_run_servers(Player *const *players, int n) {
  Arena *scratch = arena_beside(players[0]->arena);
  Cursor *at = ARENA_ARRAY(scratch, Cursor, n);
  int *ids = ARENA_ARRAY(scratch, int, n);
  bool is_sum = true;
  for (int i = 0; i < n; i++) at[i].id = -1;
  while (is_sum) {
    is_sum = false;
    for (int i = 0; i < n; i++) {
      ids[i] = next_sum(players[i], &at[i]);
      is_sum |= ids[i] >= 0;
    }
    if (!is_sum) break;
    if (!is_met(players, ids, n)) {
      players[0]->message_fault = "servers come to other sums of theirs";
      break;
    }
    for (int i = 0; i < n; i++) play_start_sum(players[i], ids[i]);
    int parts = players[0]->frame->graph->nodes.data[ids[0]]->n_inputs;
    for (int k = 0; k < parts; k++) play_part(players, ids, n, k);
  }
  for (int i = 0; i < n; i++) play_end(players[i]);
  arena_destroy(scratch);
}
