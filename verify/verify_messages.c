/*
 * verify_messages.c -- whether the tables of a program say on every rank what
 * was played: which groups exchange what, in which order.
 *
 * All ranks of a class run one list of launches, so each queue has one order on
 * all of them if every rank is in exactly one group of each collective, and if
 * all members of a group find the same group.  Groups in tables are digits of
 * the rank's number; here they are compared with the coordinates of the ranks
 * on the mesh, which the player goes by.  verify_edges.c deals with the
 * messages between stages.
 */
#include "verify/verify_steps.h"

#include <string.h>

typedef struct MessageCheck {
  Arena *arena;
  VerifyReport *report;
  int first_rank; /* of the class at hand */
  Map *known;     /* groups that were found to be right, by hash */
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

/* Ranks count from the first one of the class. */
static GroupPlace place_by_digits(const DnnGroup *group, int rank) {
  GroupPlace place = {0, rank};
  for (int i = 0; i < group->n_digits; i++) {
    const DnnDigit *digit = &group->digits[i];
    int64_t value = rank / digit->stride % digit->size;
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

/* The first rank, counted from the first one of the class, that the digits
 * place elsewhere than the axes do; -1: none. */
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
  if (group->first != check->first_rank || group->ranks != ranks) return 0;
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
                            message->path, check->first_rank + rank));
}

/* ---- shards of persistent buffers ---- */

static void check_split(MessageCheck *check, const Mesh *mesh,
                        const GraphInput *input, AxisList split) {
  DnnGroup group;
  bool has_digits = codegen_group(mesh, check->first_rank, split, &group);
  int rank = has_digits ? misplaced_rank(check, mesh, split, &group) : 0;
  if (rank >= 0)
    note_message(check,
                 arena_printf(check->arena,
                              "the table of '%s' gives rank %d another shard",
                              input->path, check->first_rank + rank));
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

static void check_collectives(MessageCheck *check,
                              const ProgramMessages *messages,
                              const PlayMessages *played, int *at) {
  if (messages->fault) {
    check->report->hang_free = ANSWER_no;
    note_message(check, messages->fault);
  }
  if (messages->list.n > played->list.n - *at)
    note_message(check, "the tables have more collectives than were played");
  for (int i = 0; i < messages->list.n && *at < played->list.n; i++)
    check_message(check, &messages->list.data[i], &played->list.data[(*at)++]);
}

/* Where the messages of a class are that were played, from one step to the
 * next. */
typedef struct MessagePlace {
  int list, between;
} MessagePlace;

/* Codegen takes no program that breaks the rules of timelines. */
static bool check_timelines(MessageCheck *check, const VerifySteps *steps,
                            const VerifyStep *step) {
  for (int k = 0; k < steps->n_classes; k++) {
    Text errors = text_create(check->arena);
    if (entry_point_check(&step->classes[k].entry, &errors)) continue;
    check->report->hang_free = ANSWER_no;
    note_message(check,
                 arena_printf(check->arena, "the program of rank %d: %s",
                              steps->first_rank[k], text_string(&errors)));
    return false;
  }
  return true;
}

/* Returns false if the tables cannot be made. */
static bool check_step(MessageCheck *check, const Compilation *c,
                       const VerifySteps *steps, const VerifyStep *step,
                       const PlayMessages *played, MessagePlace *at) {
  int n = steps->n_classes;
  if (!check_timelines(check, steps, step)) return false;
  ProgramMessages *tables = ARENA_ARRAY(check->arena, ProgramMessages, n);
  for (int k = 0; k < n; k++) {
    const EntryPoint *entry = &step->classes[k].entry;
    Status status =
        codegen_messages(c->module, c->target.backend, entry, &tables[k]);
    if (status.code != STATUS_ok) return false;
    check->first_rank = entry->stages.data[0].first_rank;
    for (int s = 0; s < entry->stages.n; s++)
      check_splits(check, entry->stages.data[s].graph);
    check_collectives(check, &tables[k], &played[k], &at[k].list);
    verify_edges(check->report, step, steps->first_rank[k], &tables[k],
                 &played[k], &at[k].between, check->arena);
  }
  /* A period is a part of an endless list: its proof is that of the passes. */
  if (step->n_batches == 0)
    verify_order(check->report, steps, step, tables, check->arena);
  return true;
}

/* The order of a step of all micro-batches, of which fewer were played. Returns
 * false if its tables cannot be made. */
static bool check_whole(MessageCheck *check, const Compilation *c,
                        const VerifySteps *steps, const VerifyStep *step) {
  int n = steps->n_classes;
  if (!check_timelines(check, steps, step)) return false;
  ProgramMessages *tables = ARENA_ARRAY(check->arena, ProgramMessages, n);
  for (int k = 0; k < n; k++) {
    Status status = codegen_messages(c->module, c->target.backend,
                                     &step->classes[k].entry, &tables[k]);
    if (status.code != STATUS_ok) return false;
    if (!tables[k].fault) continue;
    check->report->hang_free = ANSWER_no;
    note_message(check, tables[k].fault);
  }
  verify_order(check->report, steps, step, tables, check->arena);
  return true;
}

void verify_messages(const Compilation *c, const VerifySteps *steps,
                     const PlayMessages *played, VerifyReport *report) {
  const StepList *lists[] = {&steps->gradients, &steps->program};
  Arena *arena = c->module->arena;
  MessageCheck check = {
      .arena = arena, .report = report, .known = map_create(arena)};
  MessagePlace *at = ARENA_ARRAY(arena, MessagePlace, steps->n_classes);
  bool is_known = true;
  for (int i = 0; i < ARRAY_LENGTH(lists); i++)
    for (int k = 0; k < lists[i]->n && is_known; k++)
      is_known = check_step(&check, c, steps, &lists[i]->list[k], played, at);
  for (int k = 0; k < steps->whole.n && is_known; k++)
    is_known = check_whole(&check, c, steps, &steps->whole.list[k]);
  for (int k = 0; k < steps->n_classes && is_known; k++)
    if (at[k].list != played[k].list.n || at[k].between != played[k].between.n)
      note_message(&check,
                   "the tables have fewer collectives than were played");
  if (is_known || report->messages_match == ANSWER_no) return;
  report->messages_match = report->hang_free = ANSWER_not_checked;
}
