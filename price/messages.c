/*
 * messages.c -- finds the links that messages between programs take, and which
 * classes of ranks come to them together.
 *
 *     4 ranks send to the next 4, of which the last 2 are slower devices
 *       rank 0 1 -> 4 5    a transfer of two classes
 *       rank 2 3 -> 6 7    another one
 *
 * A message begins when its sender and its receiver have come to it.  It takes
 * what the slowest rank takes, on the way out of the one and into the other.  A
 * rank that has several pieces of it sends or receives them one after the
 * other.
 */
#include "price/messages.h"

/* The pieces of the ranks of one side: those of rank r are pieces[first[r]] up
 * to pieces[first[r + 1]]. */
typedef struct SidePieces {
  int *first;
  const EdgePiece **pieces;
} SidePieces;

typedef struct MessagePairs {
  Arena *arena;
  const ClusterSlice *slice;
  const SharedLinks *links;
  const MessageSide *sides[N_LINK_DIRECTIONS]; /* out: the sender */
  const ProgramEdge *edge;
  SidePieces pieces[N_LINK_DIRECTIONS]; /* where the edge has some */
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

static void join_pair(MessagePairs *m, int64_t from, int64_t to) {
  int out = m->joined[LINK_out][class_at(m->sides[LINK_out], from)];
  int in = m->joined[LINK_in][class_at(m->sides[LINK_in], to)];
  int less = out < in ? out : in, more = out < in ? in : out;
  for (int d = 0; d < N_LINK_DIRECTIONS; d++)
    replace(m->joined[d], m->sides[d]->slice->n_groups, more, less);
}

static int count_classes(const MessagePairs *m, LinkDirection direction,
                         int number) {
  int n = 0;
  for (int c = 0; c < m->sides[direction]->slice->n_groups; c++)
    n += m->joined[direction][c] == number;
  return n;
}

bool message_goes_ahead(const CostModel *model) {
  return model->transport == TRANSPORT_mpi;
}

bool message_is_copied(const CostModel *model, const ProgramEdge *edge) {
  enum {
    MOST_BYTES = 512 << 10
  }; /* buffers of a socket have 2.5 MB and more */
  return message_goes_ahead(model) && edge->bytes <= MOST_BYTES;
}

static int count_starts(const MessagePairs *m, int number) {
  int sending = count_classes(m, LINK_out, number);
  return message_goes_ahead(m->sides[LINK_out]->models)
             ? sending
             : sending + count_classes(m, LINK_in, number);
}

/* A class of which no rank has a piece is in no transfer. */
static int leave_out_unused(MessagePairs *m, int n) {
  int used = 0;
  for (int number = 0; number < n; number++) {
    if (count_classes(m, LINK_out, number) == 0 ||
        count_classes(m, LINK_in, number) == 0) {
      for (int d = 0; d < N_LINK_DIRECTIONS; d++)
        replace(m->joined[d], m->sides[d]->slice->n_groups, number,
                NO_TRANSFER);
      continue;
    }
    for (int d = 0; d < N_LINK_DIRECTIONS; d++)
      replace(m->joined[d], m->sides[d]->slice->n_groups, number, used);
    used++;
  }
  return used;
}

/* Numbers the transfers: classes of which ranks exchange have one number. */
static int join_classes(MessagePairs *m) {
  int n = 0;
  for (int d = 0; d < N_LINK_DIRECTIONS; d++) {
    int n_classes = m->sides[d]->slice->n_groups;
    m->joined[d] = ARENA_ARRAY(m->arena, int, n_classes);
    for (int c = 0; c < n_classes; c++) m->joined[d][c] = n++;
  }
  const EdgePieces *pieces = &m->edge->pieces;
  for (int i = 0; i < pieces->n; i++)
    join_pair(m, pieces->data[i].from, pieces->data[i].to);
  for (int64_t at = 0; pieces->n == 0 && at < m->sides[LINK_out]->ranks.n;
       at = pairs_end(m, at))
    join_pair(m, at, at);
  return leave_out_unused(m, n);
}

/* ---- pieces ---- */

static int rank_of(const EdgePiece *piece, LinkDirection direction) {
  return direction == LINK_out ? piece->from : piece->to;
}

static void sort_pieces(MessagePairs *m, LinkDirection direction) {
  const EdgePieces *all = &m->edge->pieces;
  SidePieces *out = &m->pieces[direction];
  int n = (int)m->sides[direction]->ranks.n;
  int *end = ARENA_ARRAY(m->arena, int, n + 1);
  out->first = ARENA_ARRAY(m->arena, int, n + 1);
  out->pieces = ARENA_ARRAY(m->arena, const EdgePiece *, all->n);
  for (int i = 0; i < all->n; i++)
    out->first[rank_of(&all->data[i], direction) + 1]++;
  for (int r = 0; r < n; r++) {
    out->first[r + 1] += out->first[r];
    end[r] = out->first[r];
  }
  for (int i = 0; i < all->n; i++)
    out->pieces[end[rank_of(&all->data[i], direction)]++] = &all->data[i];
}

/* Returns what the rank that sends most sends. */
static Bytes most_sent(const MessagePairs *m) {
  const SidePieces *pieces = &m->pieces[LINK_out];
  Bytes most = 0, item = dtype_size_bytes(m->edge->dtype);
  if (!pieces->first) return m->edge->bytes;
  for (int64_t r = 0; r < m->sides[LINK_out]->ranks.n; r++) {
    Bytes sent = 0;
    for (int i = pieces->first[r]; i < pieces->first[r + 1]; i++)
      sent += edge_piece_elements(pieces->pieces[i]) * item;
    if (sent > most) most = sent;
  }
  return most;
}

/* ---- costs ---- */

/* The time of a rank that sends, or receives, its part of a message. */
typedef struct RankTransfer {
  Ps latency, following, takes;
  Ps *busy; /* by link */
  Ps beside;
} RankTransfer;

/* One end of a pair of ranks. */
static void add_pair(MessagePairs *m, LinkDirection direction, int64_t from,
                     int64_t to, Bytes bytes, RankTransfer *out) {
  const MessageSide *side = m->sides[direction];
  const CostModel *model =
      &side->models[class_at(side, direction == LINK_out ? from : to)];
  const Cluster *cluster = m->slice->cluster;
  GroupLevel *levels = ARENA_ARRAY(m->arena, GroupLevel, cost_links(cluster));
  int n_levels = cost_message_levels(
      m->slice, m->sides[LINK_out]->ranks.first + from,
      m->sides[LINK_in]->ranks.first + to, side->ranks, levels);
  SimTransfer transfer = cost_transfer(m->arena, model, cluster, OP_permute,
                                       bytes, 2, levels, n_levels);
  Ps following = transfer.latency - transfer.sooner;
  out->latency += out->latency > 0 ? following : transfer.latency;
  out->following += following;
  out->takes += transfer.takes;
  if (transfer.beside > 0 &&
      (out->beside == 0 || transfer.beside < out->beside))
    out->beside = transfer.beside;
  for (int l = 0; l < transfer.n_loads; l++)
    out->busy[shared_link(m->links, side->program, side->queue,
                          transfer.loads[l].link, direction)] +=
        transfer.loads[l].busy;
}

static void add_rank(MessagePairs *m, LinkDirection direction, int64_t rank,
                     SimTransfer *slowest) {
  int n_links = shared_links_count(m->links);
  RankTransfer own = {.busy = ARENA_ARRAY(m->arena, Ps, n_links)};
  const SidePieces *pieces = &m->pieces[direction];
  int64_t item = dtype_size_bytes(m->edge->dtype);
  if (!pieces->first) add_pair(m, direction, rank, rank, m->edge->bytes, &own);
  for (int i = pieces->first ? pieces->first[rank] : 0;
       pieces->first && i < pieces->first[rank + 1]; i++) {
    const EdgePiece *piece = pieces->pieces[i];
    add_pair(m, direction, piece->from, piece->to,
             edge_piece_elements(piece) * item, &own);
  }
  take_most(&slowest->latency, own.latency);
  take_most(&m->following, own.following);
  take_most(&slowest->takes, own.takes);
  if (own.beside > 0 && (slowest->beside == 0 || own.beside < slowest->beside))
    slowest->beside = own.beside;
  for (int l = 0; l < n_links; l++) take_most(&m->busy[l], own.busy[l]);
}

static bool is_counted(const MessagePairs *m) {
  return cost_counts(m->sides[LINK_out]->models, COST_message);
}

static SimTransfer transfer_of(MessagePairs *m, int number) {
  int n_links = shared_links_count(m->links);
  SimTransfer transfer = {.term = COST_message,
                          .n_starts = count_starts(m, number)};
  SimLoad *loads = ARENA_ARRAY(m->arena, SimLoad, n_links);
  m->busy = ARENA_ARRAY(m->arena, Ps, n_links);
  m->following = 0;
  for (int d = 0; d < N_LINK_DIRECTIONS; d++)
    for (int64_t at = 0; is_counted(m) && at < m->sides[d]->ranks.n; at++)
      if (m->joined[d][class_at(m->sides[d], at)] == number)
        add_rank(m, (LinkDirection)d, at, &transfer);
  transfer.sooner = transfer.latency - m->following;
  for (int l = 0; l < n_links; l++)
    if (m->busy[l] > 0) loads[transfer.n_loads++] = (SimLoad){l, m->busy[l]};
  transfer.loads = loads;
  return transfer;
}

MessageTransfers
messages_add(Arena *arena, const ClusterSlice *slice, const SharedLinks *links,
             const MessageSide *sender, const MessageSide *receiver,
             const ProgramEdge *edge, SimTransfers *transfers) {
  ASSERT(edge->pieces.n > 0 || sender->ranks.n == receiver->ranks.n);
  MessagePairs m = {.arena = arena,
                    .slice = slice,
                    .links = links,
                    .sides = {sender, receiver},
                    .edge = edge};
  int n = join_classes(&m), first = transfers->n;
  for (int d = 0; d < N_LINK_DIRECTIONS && edge->pieces.n > 0; d++)
    sort_pieces(&m, (LinkDirection)d);
  for (int number = 0; number < n; number++)
    vec_push(arena, transfers, transfer_of(&m, number));
  for (int d = 0; d < N_LINK_DIRECTIONS; d++)
    for (int c = 0; c < m.sides[d]->slice->n_groups; c++)
      if (m.joined[d][c] != NO_TRANSFER) m.joined[d][c] += first;
  return (MessageTransfers){m.joined[LINK_out], m.joined[LINK_in],
                            most_sent(&m)};
}
