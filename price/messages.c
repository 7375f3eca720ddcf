/*
 * messages.c -- finds the links that messages between programs take, and which
 * classes of ranks come to them together.
 *
 *     4 ranks send to the next 4, of which the last 2 are slower devices
 *       rank 0 1 -> 4 5    a transfer of two classes
 *       rank 2 3 -> 6 7    another one
 *
 * A message begins when its sender and its receiver have come to it.  It takes
 * what the slowest pair of ranks takes, on the way out of the one and into the
 * other.
 */
#include "price/messages.h"

typedef struct MessagePairs {
  Arena *arena;
  const ClusterSlice *slice;
  const SharedLinks *links;
  const MessageSide *sides[N_LINK_DIRECTIONS]; /* out: the sender */
  Bytes bytes;
  int *joined[N_LINK_DIRECTIONS]; /* by class of the side: number of transfer */
  Ps *busy;                       /* by link, of the transfer at hand */
  Ps following;                   /* its latency right after another one */
} MessagePairs;

static void take_most(Ps *most, Ps value) {
  if (value > *most) *most = value;
}

/* ---- classes ---- */

/* The class of the rank with this number in its program. */
static int class_at(const MessageSide *side, int64_t number) {
  int class = 0;
  while (number >=
         side->slice->groups[class].first + side->slice->groups[class].n)
    class ++;
  return class;
}

static void replace(int *numbers, int n, int from, int to) {
  for (int i = 0; i < n; i++)
    if (numbers[i] == from) numbers[i] = to;
}

/* Where the classes of both sides end, pairs are of other classes: calls
 * `next` with the first pair of each. */
static int64_t pairs_end(const MessagePairs *m, int64_t number) {
  int64_t end = INT64_MAX;
  for (int d = 0; d < N_LINK_DIRECTIONS; d++) {
    const SliceGroup *group =
        &m->sides[d]->slice->groups[class_at(m->sides[d], number)];
    if (group->first + group->n < end) end = group->first + group->n;
  }
  return end;
}

/* Numbers the transfers: classes of which ranks exchange have one number. */
static int join_classes(MessagePairs *m) {
  int n_out = m->sides[LINK_out]->slice->n_groups;
  int n_in = m->sides[LINK_in]->slice->n_groups, n = 0;
  m->joined[LINK_out] = ARENA_ARRAY(m->arena, int, n_out);
  m->joined[LINK_in] = ARENA_ARRAY(m->arena, int, n_in);
  for (int c = 0; c < n_out; c++) m->joined[LINK_out][c] = c;
  for (int c = 0; c < n_in; c++) m->joined[LINK_in][c] = -1;
  for (int64_t at = 0; at < m->sides[LINK_out]->ranks.n;
       at = pairs_end(m, at)) {
    int out = m->joined[LINK_out][class_at(m->sides[LINK_out], at)];
    int *in = &m->joined[LINK_in][class_at(m->sides[LINK_in], at)];
    int known = *in;
    if (known < 0) {
      *in = out;
      continue;
    }
    replace(m->joined[LINK_out], n_out, out, known);
    replace(m->joined[LINK_in], n_in, out, known);
  }
  for (int c = 0; c < n_out; c++)
    if (m->joined[LINK_out][c] >= n) n = m->joined[LINK_out][c] + 1;
  return n;
}

/* ---- costs ---- */

/* One end of the pair with this number. */
static void add_end(MessagePairs *m, LinkDirection direction, int64_t number,
                    SimTransfer *slowest) {
  const MessageSide *side = m->sides[direction];
  const CostModel *model = &side->models[class_at(side, number)];
  const Cluster *cluster = m->slice->cluster;
  GroupLevel *levels = ARENA_ARRAY(m->arena, GroupLevel, cost_links(cluster));
  int n_levels = cost_message_levels(
      m->slice, m->sides[LINK_out]->ranks.first + number,
      m->sides[LINK_in]->ranks.first + number, side->ranks, levels);
  SimTransfer transfer = cost_transfer(m->arena, model, cluster, OP_permute,
                                       m->bytes, 2, levels, n_levels);
  take_most(&slowest->latency, transfer.latency);
  take_most(&m->following, transfer.latency - transfer.sooner);
  take_most(&slowest->takes, transfer.takes);
  if (transfer.beside > 0 &&
      (slowest->beside == 0 || transfer.beside < slowest->beside))
    slowest->beside = transfer.beside;
  for (int l = 0; l < transfer.n_loads; l++)
    take_most(&m->busy[shared_link(m->links, side->program, side->queue,
                                   transfer.loads[l].link, direction)],
              transfer.loads[l].busy);
}

static bool is_counted(const MessagePairs *m) {
  return cost_counts(m->sides[LINK_out]->models, COST_message);
}

static int count_starts(const MessagePairs *m, int number) {
  int n = 0;
  for (int d = 0; d < N_LINK_DIRECTIONS; d++)
    for (int c = 0; c < m->sides[d]->slice->n_groups; c++)
      n += m->joined[d][c] == number;
  return n;
}

static SimTransfer transfer_of(MessagePairs *m, int number) {
  int n_links = shared_links_count(m->links);
  SimTransfer transfer = {.term = COST_message,
                          .n_starts = count_starts(m, number)};
  SimLoad *loads = ARENA_ARRAY(m->arena, SimLoad, n_links);
  m->busy = ARENA_ARRAY(m->arena, Ps, n_links);
  m->following = 0;
  for (int64_t at = 0; is_counted(m) && at < m->sides[LINK_out]->ranks.n;
       at++) {
    if (m->joined[LINK_out][class_at(m->sides[LINK_out], at)] != number)
      continue;
    add_end(m, LINK_out, at, &transfer);
    add_end(m, LINK_in, at, &transfer);
  }
  transfer.sooner = transfer.latency - m->following;
  for (int l = 0; l < n_links; l++)
    if (m->busy[l] > 0) loads[transfer.n_loads++] = (SimLoad){l, m->busy[l]};
  transfer.loads = loads;
  return transfer;
}

MessageTransfers messages_add(Arena *arena, const ClusterSlice *slice,
                              const SharedLinks *links,
                              const MessageSide *sender,
                              const MessageSide *receiver, Bytes bytes,
                              SimTransfers *transfers) {
  ASSERT(sender->ranks.n == receiver->ranks.n);
  MessagePairs m = {.arena = arena,
                    .slice = slice,
                    .links = links,
                    .sides = {sender, receiver},
                    .bytes = bytes};
  int n = join_classes(&m), first = transfers->n;
  for (int number = 0; number < n; number++)
    vec_push(arena, transfers, transfer_of(&m, number));
  for (int d = 0; d < N_LINK_DIRECTIONS; d++)
    for (int c = 0; c < m.sides[d]->slice->n_groups; c++)
      m.joined[d][c] += first;
  return (MessageTransfers){m.joined[LINK_out], m.joined[LINK_in]};
}
