/*
 * collectives.c -- finds the process groups of a collective, what they cost,
 * and which classes of ranks come to them together.
 *
 *     mesh data = 4, tensor = 2 over a group with 4 fast ranks and one with 4
 *     slow ones
 *       over tensor   0 1 | 2 3   4 5 | 6 7   a transfer of each class
 *       over data     0 2 4 6 | 1 3 5 7       one that both start
 *
 * A class is the ranks of one group of the cluster: they have one kind of
 * device and see the same links.  Classes with ranks in one process group wait
 * for each other.  Process groups of one collective lie differently on the
 * links where the mesh does not fit the nodes; all of them run at one time, and
 * the transfer takes what the slowest takes.
 *
 * Most meshes fit: the ranks of a node are those of the last mesh axes, or of a
 * part of the axis before them.  Then all process groups lie alike, and one of
 * them is looked at.
 *
 * cost: O(ranks of a process group x levels) for each set of mesh axes, and of
 *       all ranks where the mesh does not fit
 */
#include "price/collectives.h"

#include <string.h>

/* How a process group lies on the cluster. */
typedef struct Shape {
  int n_levels;
  GroupLevel *levels;
  bool *has; /* by class */
  int class; /* one that it has */
} Shape;

struct ProcessGroups {
  AxisSet axes;
  int n; /* ranks of each */
  VEC(Shape) shapes;
  int *joined; /* by class: the first class that waits for it, or itself */
};

/* ---- process groups ---- */

/* Ranks that differ from rank 0 in these axes alone, in ascending order. */
static int64_t *ranks_along(Arena *arena, const Mesh *mesh, AxisSet axes,
                            int *out_n) {
  int64_t *ranks = ARENA_ARRAY(arena, int64_t, mesh_ranks(mesh));
  int64_t stride = 1;
  int n = 1;
  for (int a = mesh->n_axes - 1; a >= 0; a--) {
    if (mesh->axes[a].is_sequential) continue;
    int64_t size = mesh->axes[a].size;
    if (axes >> a & 1) {
      for (int64_t i = 1; i < size; i++)
        for (int k = 0; k < n; k++) ranks[i * n + k] = ranks[k] + i * stride;
      n *= (int)size;
    }
    stride *= size;
  }
  *out_n = n;
  return ranks;
}

static int class_of(const Collectives *c, int64_t rank) {
  int class = 0;
  while (class + 1 < c->n_classes && rank >= c->slice->groups[class + 1].first)
    class ++;
  return class;
}

static bool levels_are_equal(const Shape *a, const GroupLevel *b, int n) {
  if (a->n_levels != n) return false;
  for (int i = 0; i < n; i++) {
    const GroupLevel *x = &a->levels[i], *y = &b[i];
    if (x->link != y->link || x->group_below != y->group_below ||
        x->group_members != y->group_members || x->hops != y->hops)
      return false;
  }
  return true;
}

/* Classes that come to one transfer have one number, that of the first. */
static void join_classes(const Collectives *c, ProcessGroups *groups,
                         const bool *has) {
  int first = c->n_classes;
  for (int i = 0; i < c->n_classes; i++)
    if (has[i] && groups->joined[i] < first) first = groups->joined[i];
  for (int i = 0; i < c->n_classes; i++) {
    int old = groups->joined[i];
    for (int k = 0; has[i] && k < c->n_classes; k++)
      if (groups->joined[k] == old) groups->joined[k] = first;
  }
}

static void add_group(Collectives *c, ProcessGroups *groups,
                      const int64_t *ranks, GroupLevel *levels, bool *has) {
  int n = groups->n;
  int n_levels = cost_group_levels(c->slice, ranks, n, levels);
  memset(has, 0, (size_t)c->n_classes * sizeof *has);
  for (int i = 0; i < n; i++) {
    has[class_of(c, ranks[i])] = true;
    if (c->n_classes == 1) break;
  }
  for (int i = 0; i < groups->shapes.n; i++) {
    const Shape *shape = &groups->shapes.data[i];
    if (levels_are_equal(shape, levels, n_levels) &&
        memcmp(shape->has, has, (size_t)c->n_classes * sizeof *has) == 0)
      return;
  }
  size_t bytes = (size_t)n_levels * sizeof *levels;
  Shape shape = {
      .n_levels = n_levels,
      .levels = arena_copy(c->arena, levels, bytes),
      .has = arena_copy(c->arena, has, (size_t)c->n_classes * sizeof *has),
      .class = class_of(c, ranks[0])};
  vec_push(c->arena, &groups->shapes, shape);
  join_classes(c, groups, shape.has);
}

/* Returns whether each unit has the ranks of some last axes of the mesh, or of
 * these and a part of the axis before. */
static bool mesh_fits(const Collectives *c) {
  if (c->n_classes != 1 || !c->slice->is_regular) return false;
  const SliceGroup *group = &c->slice->groups[0];
  int64_t unit = 1;
  for (int l = 0; l < group->n_levels; l++) {
    int64_t left = unit *= group->levels[l].most;
    if (unit >= group->n) break;
    for (int a = c->mesh->n_axes - 1; a >= 0 && left > 1; a--) {
      if (c->mesh->axes[a].is_sequential) continue;
      int64_t size = c->mesh->axes[a].size;
      if (left % size != 0 && size % left != 0) return false;
      left = left > size ? left / size : 1;
    }
  }
  return true;
}

static ProcessGroups *find_groups(Collectives *c, AxisSet axes) {
  for (int i = 0; i < c->groups.n; i++)
    if (c->groups.data[i]->axes == axes) return c->groups.data[i];
  ProcessGroups *groups = ARENA_NEW(c->arena, ProcessGroups);
  *groups = (ProcessGroups){.axes = axes};
  groups->joined = ARENA_ARRAY(c->arena, int, c->n_classes);
  for (int i = 0; i < c->n_classes; i++) groups->joined[i] = i;
  Arena *scratch = arena_beside(c->arena);
  int n_first;
  int64_t *inside = ranks_along(scratch, c->mesh, axes, &groups->n),
          *first = ranks_along(scratch, c->mesh, (AxisSet)~axes, &n_first),
          *ranks = ARENA_ARRAY(scratch, int64_t, groups->n);
  GroupLevel *levels =
      ARENA_ARRAY(scratch, GroupLevel, cost_links(c->slice->cluster));
  bool *has = ARENA_ARRAY(scratch, bool, c->n_classes);
  if (mesh_fits(c)) n_first = 1;
  for (int g = 0; g < n_first; g++) {
    for (int i = 0; i < groups->n; i++) ranks[i] = first[g] + inside[i];
    add_group(c, groups, ranks, levels, has);
  }
  arena_destroy(scratch);
  vec_push(c->arena, &c->groups, groups);
  return groups;
}

/* ---- transfers ---- */

CostTerm collectives_part(Op op) {
  if (op_is(op, OPCLASS_swap)) return COST_swap;
#define MESSAGE(name, kind, elements)                                          \
  if (op == OP_##name) return COST_##name;
#include "ir/ops.def"
  UNREACHABLE();
}

static void take_most(Ps *most, Ps value) {
  if (value > *most) *most = value;
}

/* The most that a process group takes on each link, of those for which the
 * classes of `joined` come together. */
static SimTransfer slowest_transfer(Collectives *c, const ProcessGroups *groups,
                                    Op op, Bytes sent, int joined, Ps *busy) {
  SimTransfer slowest = {0};
  Ps following = 0; /* the latency right after another one */
  for (int i = 0; i < groups->shapes.n; i++) {
    const Shape *shape = &groups->shapes.data[i];
    if (groups->joined[shape->class] != joined) continue;
    for (int k = 0; k < c->n_classes; k++) {
      if (!shape->has[k]) continue;
      SimTransfer transfer =
          cost_transfer(c->arena, &c->models[k], c->slice->cluster, op, sent,
                        groups->n, shape->levels, shape->n_levels);
      take_most(&slowest.latency, transfer.latency);
      take_most(&following, transfer.latency - transfer.sooner);
      take_most(&slowest.takes, transfer.takes);
      if (transfer.beside > 0 &&
          (slowest.beside == 0 || transfer.beside < slowest.beside))
        slowest.beside = transfer.beside;
      for (int l = 0; l < transfer.n_loads; l++)
        take_most(&busy[transfer.loads[l].link], transfer.loads[l].busy);
    }
  }
  slowest.sooner = slowest.latency - following;
  return slowest;
}

/* Between a device and its host, which no other rank waits for. */
static SimTransfer swap_transfer(const CostModel *model, Bytes bytes) {
  double seconds = (double)bytes / model->rates.host_link;
  return (SimTransfer){.latency = model->rates.launch + cost_ps(seconds)};
}

/* The links that are busy, of each program that comes to the transfer. */
static void add_loads(const Collectives *c, int queue, const Ps *busy,
                      SimTransfer *transfer) {
  int n_links = cost_links(c->slice->cluster);
  int n_directions = shared_link_directions(c->links);
  SimLoad *loads =
      ARENA_ARRAY(c->arena, SimLoad, n_links * n_directions * c->n_programs);
  for (int i = 0; i < c->n_programs; i++)
    for (int l = 0; l < n_links; l++)
      for (int d = 0; d < n_directions && busy[l] > 0; d++) {
        int link =
            shared_link(c->links, c->program + i, queue, l, (LinkDirection)d);
        int at = 0;
        while (at < transfer->n_loads && loads[at].link != link) at++;
        loads[at] = (SimLoad){link, busy[l]};
        if (at == transfer->n_loads) transfer->n_loads++;
      }
  transfer->loads = loads;
}

static int add_transfer(Collectives *c, const CollectiveKind *kind,
                        CostTerm part, const ProcessGroups *groups,
                        int joined) {
  int n_links = cost_links(c->slice->cluster);
  Ps *busy = ARENA_ARRAY(c->arena, Ps, n_links);
  SimTransfer transfer = {0};
  if (op_is(kind->op, OPCLASS_swap) && cost_counts(c->models, part))
    transfer = swap_transfer(&c->models[joined], kind->sent);
  else if (cost_counts(c->models, part))
    transfer = slowest_transfer(c, groups, kind->op, kind->sent, joined, busy);
  add_loads(c, kind->queue, busy, &transfer);
  transfer.term = (int)part;
  for (int i = 0; i < c->n_classes; i++)
    transfer.n_starts += groups->joined[i] == joined;
  if (c->n_programs > 1 && !op_is(kind->op, OPCLASS_swap))
    transfer.n_starts = c->n_programs;
  vec_push(c->arena, c->transfers, transfer);
  return c->transfers->n - 1;
}

static int find_kind(const Collectives *c, const CollectiveKind *like) {
  for (int i = 0; i < c->kinds.n; i++) {
    const CollectiveKind *kind = &c->kinds.data[i];
    if (kind->op == like->op && kind->axes == like->axes &&
        kind->sent == like->sent && kind->queue == like->queue)
      return i;
  }
  return -1;
}

int collectives_find(Collectives *c, Op op, CostTerm part, AxisSet axes,
                     Bytes sent, int queue) {
  CollectiveKind kind = {.op = op, .axes = axes, .sent = sent, .queue = queue};
  int found = find_kind(c, &kind);
  if (found >= 0) return found;
  if (c->first && !op_is(op, OPCLASS_swap)) {
    int known = find_kind(c->first, &kind);
    ASSERT(known >= 0); /* replicas run one graph */
    kind.transfer_of = c->first->kinds.data[known].transfer_of;
    vec_push(c->arena, &c->kinds, kind);
    return c->kinds.n - 1;
  }
  const ProcessGroups *groups = find_groups(c, axes);
  kind.transfer_of = ARENA_ARRAY(c->arena, int, c->n_classes);
  for (int i = 0; i < c->n_classes; i++) {
    int joined = groups->joined[i];
    kind.transfer_of[i] = joined == i
                              ? add_transfer(c, &kind, part, groups, joined)
                              : kind.transfer_of[joined];
  }
  vec_push(c->arena, &c->kinds, kind);
  return c->kinds.n - 1;
}
