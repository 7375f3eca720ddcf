/*
 * local_work.c -- does the work of a meeting of threads for all of them, and
 * says how long it would take over links.
 */
#include "runtime/comm/local.h"

#include <string.h>

/* ---- collectives ---- */

static int64_t item_bytes(const Meeting *meeting) {
  return dtype_bytes(meeting->what->dtype);
}

/* Reduces elements [begin, begin + n) of all sources; writes them to the
 * destinations of the members [first, last), `to` elements from their begin. */
static void reduce_range(const Meeting *meeting, int part, int64_t begin,
                         int64_t n, int first, int last, int64_t to,
                         const void **members, char *block) {
  int64_t item = item_bytes(meeting), most = LOCAL_BLOCK_BYTES / item;
  for (int64_t at = 0; at < n; at += most) {
    int64_t here = n - at < most ? n - at : most;
    for (int i = 0; i < meeting->group.size; i++)
      members[i] = (const char *)meeting->visits[i].parts[part].from +
                   (begin + at) * item;
    comm_combine(meeting->what, members, block, here);
    for (int i = first; i < last; i++)
      memcpy((char *)meeting->visits[i].parts[part].to + (to + at) * item,
             block, (size_t)(here * item));
  }
}

static void move_bytes(const Meeting *meeting, int part, int from,
                       int64_t from_at, int to, int64_t to_at, int64_t n) {
  int64_t item = item_bytes(meeting);
  memmove((char *)meeting->visits[to].parts[part].to + to_at * item,
          (const char *)meeting->visits[from].parts[part].from + from_at * item,
          (size_t)(n * item));
}

/* Moves the elements of one part that member i sends to member j. */
static void move_part(const Meeting *meeting, int part, int i, int j) {
  const DnnCollective *what = meeting->what;
  int64_t n = what->counts[part], shard = n / meeting->group.size;
  switch (what->kind) {
  case DNN_ALL_GATHER:
    move_bytes(meeting, part, i, 0, j, i * shard, shard);
    return;
  case DNN_ALL_TO_ALL:
    move_bytes(meeting, part, i, j * shard, j, i * shard, shard);
    return;
  case DNN_BROADCAST:
    if (i == what->peer) move_bytes(meeting, part, i, 0, j, 0, n);
    return;
  case DNN_PERMUTE:
    if (comm_target(what, i) == j) move_bytes(meeting, part, i, 0, j, 0, n);
    return;
  default: /* SEND and RECV: two members, one of which came first */
    if (i == meeting->sender && j != i)
      move_bytes(meeting, part, i, 0, j, 0, n);
    return;
  }
}

static void work_collective(const Meeting *meeting, const void **members,
                            char *block) {
  const DnnCollective *what = meeting->what;
  int size = meeting->group.size;
  for (int part = 0; part < what->n_parts; part++) {
    int64_t n = what->counts[part], shard = n / size;
    if (what->kind == DNN_ALL_REDUCE)
      reduce_range(meeting, part, 0, n, 0, size, 0, members, block);
    for (int j = 0; j < size; j++)
      if (what->kind == DNN_REDUCE_SCATTER)
        reduce_range(meeting, part, j * shard, shard, j, j + 1, 0, members,
                     block);
      else if (what->kind != DNN_ALL_REDUCE)
        for (int i = 0; i < size; i++) move_part(meeting, part, i, j);
  }
}

void local_work(Meeting *meeting, const void **members, char *block) {
  Visit *visits = meeting->visits;
  int64_t bytes = meeting->bytes;
  int n = meeting->group.size;
  switch (meeting->kind) {
  case MEETING_message:
  case MEETING_collective: work_collective(meeting, members, block); return;
  case MEETING_broadcast:
    for (int i = 0; i < n; i++)
      if (i != meeting->root)
        memcpy(visits[i].data, visits[meeting->root].data, (size_t)bytes);
    return;
  case MEETING_gather:
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++)
        memmove((char *)visits[i].all + j * bytes, visits[j].data,
                (size_t)bytes);
    return;
  case MEETING_vote:
    meeting->vote = visits[0].vote;
    for (int i = 1; i < n; i++) comm_add_vote(&meeting->vote, &visits[i].vote);
    return;
  }
}

/* ---- times ---- */

typedef struct Link {
  int64_t latency_ns;
  double bytes_per_ns;
} Link;

static void take_slower(const LocalOptions *options, int from, int to,
                        Link *slowest) {
  Link link = {options->latency_ns, options->bytes_per_ns};
  if (options->link)
    options->link(options->user, from, to, &link.latency_ns,
                  &link.bytes_per_ns);
  if (link.latency_ns > slowest->latency_ns)
    slowest->latency_ns = link.latency_ns;
  if (link.bytes_per_ns > 0 &&
      (slowest->bytes_per_ns <= 0 || link.bytes_per_ns < slowest->bytes_per_ns))
    slowest->bytes_per_ns = link.bytes_per_ns;
}

/* The slowest link that is used: of a permutation between its pairs, else of
 * the ring of members. */
static Link slowest_link(const Meeting *meeting, const LocalOptions *options) {
  const CommGroup *group = &meeting->group;
  bool is_permute =
      meeting->kind == MEETING_collective && meeting->what->kind == DNN_PERMUTE;
  Link slowest = {0, 0};
  for (int i = 0; i < group->size; i++) {
    int to = is_permute ? comm_target(meeting->what, i) : (i + 1) % group->size;
    if (to >= 0 && to != i)
      take_slower(options, comm_member(group, i), comm_member(group, to),
                  &slowest);
  }
  return slowest;
}

/* Messages that follow each other, and the bytes that each rank sends in them,
 * as of algorithms on a ring (Chan et al. 2007). */
static int64_t ring_messages(const Meeting *meeting, double *out_bytes) {
  int n = meeting->group.size;
  double bytes = (double)meeting->bytes;
  int kind = DNN_ALL_GATHER;
  if (meeting->what) {
    kind = meeting->what->kind;
    bytes = (double)(comm_count(meeting->what) * item_bytes(meeting));
  } else {
    bytes *= n;
  }
  *out_bytes = bytes;
  if (kind == DNN_PERMUTE || kind == DNN_SEND || kind == DNN_RECV) return 1;
  if (kind == DNN_BROADCAST) return n - 1;
  *out_bytes = bytes / n * (n - 1);
  if (kind != DNN_ALL_REDUCE) return n - 1;
  *out_bytes *= 2;
  return 2 * (int64_t)(n - 1);
}

int64_t local_duration(const Meeting *meeting, const LocalOptions *options) {
  if (meeting->group.size == 1) return 0;
  double bytes;
  int64_t messages = ring_messages(meeting, &bytes);
  Link link = slowest_link(meeting, options);
  double transfer = link.bytes_per_ns > 0 ? bytes / link.bytes_per_ns : 0;
  return messages * link.latency_ns + (int64_t)transfer;
}
