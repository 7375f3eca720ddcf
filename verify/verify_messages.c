/*
 * verify_messages.c -- whether the tables of a program say on every rank what
 * was played: which groups exchange what, in which order.
 *
 * All ranks run one list of launches, so each queue has one order on all ranks
 * if every rank is in exactly one group of each collective, and if all members
 * of a group find the same group.  Groups in tables are digits of the rank's
 * number; here they are compared with the coordinates of the ranks on the mesh,
 * which the player goes by.
 */
#include "verify/verify_steps.h"

#include <string.h>

typedef struct MessageCheck {
  Arena *arena;
  VerifyReport *report;
  Map *known; /* groups that were found to be right, by hash */
} MessageCheck;

static void note_message(MessageCheck *check, const char *text) {
  VerifyReport *report = check->report;
  report->messages_match = ANSWER_no;
  if (!report->message_fault) report->message_fault = text;
}

/* ---- groups ---- */

/* The index of a rank in its group, and what all members have in common. */
typedef struct GroupPlace {
  int64_t index, base;
} GroupPlace;

static GroupPlace place_by_digits(const DnnGroup *group, int rank) {
  GroupPlace place = {0, rank};
  for (int i = 0; i < group->n_digits; i++) {
    const DnnDigit *digit = &group->digits[i];
    int64_t value = (rank - group->first) / digit->stride % digit->size;
    place.index = place.index * digit->size + value;
    place.base -= value * digit->stride;
  }
  return place;
}

static GroupPlace place_by_axes(const Mesh *mesh, AxisList axes, int rank) {
  MeshPlace at = mesh_place(mesh, rank, 0);
  AxisSet set = axis_list_set(axes);
  GroupPlace place = {0, 0};
  for (int i = 0; i < axis_list_length(axes); i++) {
    int axis = axis_list_at(axes, i);
    if (mesh->axes[axis].is_sequential) continue;
    place.index = place.index * mesh->axes[axis].size + at.at[axis];
  }
  for (int a = 0; a < mesh->n_axes; a++)
    if (!mesh->axes[a].is_sequential)
      place.base =
          place.base * mesh->axes[a].size + (set >> a & 1 ? 0 : at.at[a]);
  return place;
}

/* The first rank that the digits place elsewhere than the axes do; -1: none. */
static int misplaced_rank(MessageCheck *check, const Mesh *mesh, AxisList axes,
                          const DnnGroup *group) {
  uint64_t hash =
      hash_bytes(group->digits, (size_t)group->n_digits * sizeof(DnnDigit),
                 hash_bytes(mesh, sizeof *mesh, axes));
  int64_t rest[] = {group->first, group->ranks, group->size};
  const void *key =
      (const void *)(uintptr_t)hash_bytes(rest, sizeof rest, hash);
  int ranks = mesh_ranks(mesh);
  if (map_has(check->known, key)) return -1;
  if (group->first != 0 || group->ranks != ranks) return 0;
  for (int rank = 0; rank < ranks; rank++) {
    GroupPlace is = place_by_digits(group, rank);
    GroupPlace wanted = place_by_axes(mesh, axes, rank);
    if (is.index != wanted.index || is.base != wanted.base) return rank;
  }
  map_put(check->known, key, check);
  return -1;
}

/* ---- collectives ---- */

/* In place the order of the members does not matter; it is that of ranks. */
static AxisList axes_of_message(const PlayMessage *played) {
  int n = 0;
  AxisList list = 0;
  const Name *names = node_names(played->node, ATTR_axes, &n);
  for (int i = 0; i < n; i++)
    list = axis_list_append(list, mesh_find(played->mesh, names[i]));
  return op_has(played->node->op, OP_FLAG_in_place)
             ? axis_list_of_set(axis_list_set(list))
             : list;
}

static bool is_reduced_alike(const Node *node,
                             const DnnCollective *collective) {
  return !node_has(node, ATTR_reduce) ||
         !strcmp(reduce_name((ReduceKind)collective->reduce),
                 node_name(node, ATTR_reduce));
}

static void check_message(MessageCheck *check, const ProgramMessage *message,
                          const PlayMessage *played) {
  const Node *node = played->node;
  const DnnCollective *collective = &message->collective;
  DType dtype = node->types[0]->dtype;
  if (collective->kind + 1 != codegen_message_kind(node->op) ||
      (DType)collective->dtype != dtype ||
      !is_reduced_alike(node, collective) ||
      collective->peer != node_int(node, ATTR_shift, 0) ||
      message->elements * dtype_size_bytes(dtype) != played->bytes) {
    note_message(check, arena_printf(check->arena,
                                     "the table has another collective at "
                                     "'%s' than the %s that was played",
                                     message->path, op_info(node->op)->name));
    return;
  }
  int rank = misplaced_rank(check, played->mesh, axes_of_message(played),
                            collective->group);
  if (rank < 0) return;
  check->report->hang_free = ANSWER_no;
  note_message(check,
               arena_printf(check->arena,
                            "the table of '%s' puts rank %d into another group",
                            message->path, rank));
}

/* ---- shards of persistent buffers ---- */

static void check_split(MessageCheck *check, const Mesh *mesh,
                        const GraphInput *input, AxisList split) {
  DnnGroup group;
  bool has_digits = codegen_group(mesh, 0, split, &group);
  int rank = has_digits ? misplaced_rank(check, mesh, split, &group) : 0;
  if (rank >= 0)
    note_message(check,
                 arena_printf(check->arena,
                              "the table of '%s' gives rank %d another shard",
                              input->path, rank));
}

static void check_splits(MessageCheck *check, const Graph *graph) {
  for (int i = 0; i < graph->inputs.n; i++) {
    const Type *type = graph_type(graph, graph->inputs.data[i].value);
    for (int d = 0; d < type->rank; d++)
      if (type->dims[d].split)
        check_split(check, &graph->mesh, &graph->inputs.data[i],
                    type->dims[d].split);
  }
}

/* ---- steps ---- */

/* How many collectives the step has; false: its tables cannot be made. */
static bool check_step(MessageCheck *check, const Compilation *c,
                       const VerifyStep *step, const PlayMessages *played,
                       int *at) {
  ProgramMessages messages;
  Status status =
      codegen_messages(c->module, c->target.backend, &step->entry, &messages);
  if (status.code != STATUS_ok) return false;
  check_splits(check, step->played);
  if (messages.fault) {
    check->report->hang_free = ANSWER_no;
    note_message(check, messages.fault);
  }
  if (messages.list.n > played->list.n - *at)
    note_message(check, "the tables have more collectives than were played");
  for (int i = 0; i < messages.list.n && *at < played->list.n; i++)
    check_message(check, &messages.list.data[i], &played->list.data[(*at)++]);
  return true;
}

void verify_messages(const Compilation *c, const VerifySteps *steps,
                     const PlayMessages *played, VerifyReport *report) {
  const StepList *lists[] = {&steps->gradients, &steps->program};
  MessageCheck check = {.arena = c->module->arena,
                        .report = report,
                        .known = map_create(c->module->arena)};
  bool is_known = true;
  int at = 0;
  for (int i = 0; i < ARRAY_LENGTH(lists); i++)
    for (int k = 0; k < lists[i]->n && is_known; k++)
      is_known = check_step(&check, c, &lists[i]->list[k], played, &at);
  if (is_known && at != played->list.n)
    note_message(&check, "the tables have fewer collectives than were played");
  if (is_known || report->messages_match == ANSWER_no) return;
  report->messages_match = report->hang_free = ANSWER_not_checked;
}
