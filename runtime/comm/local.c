/*
 * local.c -- runs ranks as threads of one process, for tests and for
 * verification.
 *
 * Everything that joins several ranks is a meeting.  A meeting is ripe when all
 * ranks of its group have come, and the last one does the work for all, in
 * ascending rank order.  A ripe meeting is delivered at a time of a virtual
 * clock that the seed chooses, and the clock moves only when every rank waits:
 * so a seed stands for one order of deliveries, and other seeds give other
 * orders.
 *
 * If every rank waits and no meeting is ripe, none ever will be: this is a
 * deadlock, found at once and without a clock of the system.
 */
#include "runtime/comm/comm.h"

#include <pthread.h>
#include <string.h>

enum { MAX_MEETINGS = 1024, LONGEST_DELIVERY = 16 };

typedef enum MeetingKind {
  MEETING_collective,
  MEETING_broadcast,
  MEETING_gather,
  MEETING_vote
} MeetingKind;

typedef struct Visit {
  bool has_come, has_left;
  const CommPart *parts;
  void *data, *all;
  int64_t value;
} Visit;

typedef struct Meeting {
  bool is_used, is_ripe;
  MeetingKind kind;
  const DnnCollective *what; /* of the first to come */
  CommGroup group;
  int64_t bytes, value;
  int root;
  int sender; /* index, of SEND and RECV */
  int n_come, n_left;
  int64_t delivery; /* by the virtual clock */
  Visit *visits;    /* [group.size] */
} Meeting;

/* The meeting for which a rank waits, or none. */
typedef struct Wait {
  const Meeting *meeting;
  bool only_ripe; /* delivered or not */
} Wait;

typedef struct World {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int world, n_waiting, n_closed;
  bool rendezvous, is_dead;
  uint64_t key, n_ripe;
  int64_t now;
  Wait *waits;          /* of each rank */
  const void **members; /* of the meeting at work */
  Meeting meetings[MAX_MEETINGS];
} World;

typedef struct Local {
  World *world;
  Meeting *vote;
} Local;

/* ---- the work of a meeting ---- */

static void add_all(const Meeting *meeting, const void **members, char *sum) {
  const DnnCollective *what = meeting->what;
  int64_t item = dtype_bytes(what->dtype);
  for (int part = 0; part < what->n_parts; part++) {
    int64_t n = what->counts[part];
    const Visit *visits = meeting->visits;
    for (int64_t at = 0; at < n; at += 1024) {
      int64_t here = n - at < 1024 ? n - at : 1024;
      for (int i = 0; i < meeting->group.size; i++)
        members[i] = (char *)visits[i].parts[part].data + at * item;
      comm_combine(what, members, sum, here);
      for (int i = 0; i < meeting->group.size; i++)
        memcpy((char *)visits[i].parts[part].data + at * item, sum,
               (size_t)(here * item));
    }
  }
}

/* Shard `index` of member `i`. */
static char *shard_of(const Meeting *meeting, int part, int i, int index) {
  const CommPart *at = &meeting->visits[i].parts[part];
  int64_t shard = at->count / meeting->group.size;
  return (char *)at->data + index * shard * dtype_bytes(meeting->what->dtype);
}

static void swap_bytes(char *a, char *b, int64_t bytes) {
  for (int64_t k = 0; k < bytes; k++) {
    char c = a[k];
    a[k] = b[k];
    b[k] = c;
  }
}

/* The shards of one part: i gives, j takes. */
static void move_shards(const Meeting *meeting, int part, int i, int j) {
  const DnnCollective *what = meeting->what;
  int64_t item = dtype_bytes(what->dtype);
  int64_t n = what->counts[part] / meeting->group.size;
  switch (what->kind) {
  case DNN_ALL_GATHER:
    memcpy(shard_of(meeting, part, j, i), shard_of(meeting, part, i, i),
           (size_t)(n * item));
    return;
  case DNN_ALL_TO_ALL:
    if (i < j)
      swap_bytes(shard_of(meeting, part, i, j), shard_of(meeting, part, j, i),
                 n * item);
    return;
  case DNN_BROADCAST:
    if (i == what->peer)
      memcpy(meeting->visits[j].parts[part].data,
             meeting->visits[i].parts[part].data,
             (size_t)(what->counts[part] * item));
    return;
  default: /* SEND and RECV: two members, one of which came first */
    if (i == meeting->sender)
      memcpy(meeting->visits[j].parts[part].data,
             meeting->visits[i].parts[part].data,
             (size_t)(what->counts[part] * item));
    return;
  }
}

static void move_all(const Meeting *meeting) {
  for (int part = 0; part < meeting->what->n_parts; part++)
    for (int i = 0; i < meeting->group.size; i++)
      for (int j = 0; j < meeting->group.size; j++)
        if (i != j) move_shards(meeting, part, i, j);
}

static void do_collective(const Meeting *meeting, const void **members) {
  char sum[1024 * 8];
  /* A sum that everybody gets is more than REDUCE_SCATTER promises. */
  if (meeting->what->kind == DNN_ALL_REDUCE ||
      meeting->what->kind == DNN_REDUCE_SCATTER)
    add_all(meeting, members, sum);
  else
    move_all(meeting);
}

static void do_work(Meeting *meeting, const void **members) {
  Visit *visits = meeting->visits;
  int64_t bytes = meeting->bytes;
  int n = meeting->group.size;
  switch (meeting->kind) {
  case MEETING_collective: do_collective(meeting, members); return;
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
    meeting->value = visits[0].value;
    for (int i = 1; i < n; i++)
      if (visits[i].value > meeting->value) meeting->value = visits[i].value;
    return;
  }
}

/* ---- coming and leaving; the mutex is held ---- */

static bool is_same(const Meeting *a, const Meeting *b) {
  if (!a->is_used || a->kind != b->kind ||
      !group_equal(&a->group.digits, &b->group.digits) ||
      comm_member(&a->group, 0) != comm_member(&b->group, 0))
    return false;
  return a->kind != MEETING_collective || a->what->id == b->what->id;
}

/* Ranks come to meetings of one kind in one order, so the first to which this
 * rank has not come is meant. */
static Meeting *find_meeting(World *world, const Meeting *wanted, int index) {
  for (int i = 0; i < MAX_MEETINGS; i++)
    if (is_same(&world->meetings[i], wanted) &&
        !world->meetings[i].visits[index].has_come)
      return &world->meetings[i];
  for (int i = 0; i < MAX_MEETINGS; i++) {
    Meeting *meeting = &world->meetings[i];
    if (meeting->is_used) continue;
    Visit *visits = meeting->visits;
    memset(visits, 0, sizeof(Visit) * (size_t)world->world);
    *meeting = *wanted;
    meeting->is_used = true;
    meeting->visits = visits;
    return meeting;
  }
  return NULL;
}

static bool sizes_agree(const Meeting *meeting, const Meeting *wanted) {
  if (meeting->kind != MEETING_collective)
    return meeting->bytes == wanted->bytes;
  const DnnCollective *a = meeting->what, *b = wanted->what;
  uint8_t other = a->kind; /* of who comes second */
  if (meeting->n_come > 0 && a->kind == DNN_SEND) other = DNN_RECV;
  if (meeting->n_come > 0 && a->kind == DNN_RECV) other = DNN_SEND;
  return comm_count(a) == comm_count(b) && a->dtype == b->dtype &&
         b->kind == other;
}

static Status come_to_meeting(Comm *comm, const Meeting *wanted,
                              const Visit *visit, Meeting **out) {
  World *world = ((Local *)comm->state)->world;
  int index = wanted->group.index;
  Meeting *meeting = find_meeting(world, wanted, index);
  if (!meeting)
    return status_make(STATUS_invalid, "too many collectives in flight");
  if (!sizes_agree(meeting, wanted)) {
    world->is_dead = true;
    pthread_cond_broadcast(&world->changed);
    return status_make(STATUS_invalid,
                       "rank %d means another collective than the others",
                       comm->rank);
  }
  meeting->visits[index] = *visit;
  meeting->visits[index].has_come = true;
  if (++meeting->n_come == meeting->group.size) {
    do_work(meeting, world->members);
    meeting->is_ripe = true;
    meeting->delivery =
        world->now +
        (int64_t)random_below(world->key, world->n_ripe++, LONGEST_DELIVERY);
  }
  *out = meeting;
  pthread_cond_broadcast(&world->changed);
  return STATUS_OK;
}

static bool is_delivered(const World *world, const Meeting *meeting) {
  return meeting->is_ripe && meeting->delivery <= world->now;
}

/* All wait: the clock moves to the next delivery; false where there is none. */
static bool move_clock(World *world) {
  int64_t next = INT64_MAX;
  for (int i = 0; i < MAX_MEETINGS; i++) {
    const Meeting *meeting = &world->meetings[i];
    if (meeting->is_used && meeting->is_ripe &&
        meeting->delivery > world->now && meeting->delivery < next)
      next = meeting->delivery;
  }
  if (next == INT64_MAX) return false;
  world->now = next;
  return true;
}

static bool can_go(const World *world, const Wait *wait) {
  return wait->only_ripe ? wait->meeting->is_ripe
                         : is_delivered(world, wait->meeting);
}

/* Nobody runs: all wait, and none for what is there already (a rank may have
 * been woken and not have run yet). */
static bool all_are_stuck(const World *world) {
  if (world->n_waiting + world->n_closed < world->world) return false;
  for (int i = 0; i < world->world; i++)
    if (world->waits[i].meeting && can_go(world, &world->waits[i]))
      return false;
  return true;
}

static Status wait_for_meeting(Comm *comm, const Meeting *meeting,
                               bool only_ripe) {
  World *world = ((Local *)comm->state)->world;
  Wait *wait = &world->waits[comm->rank];
  *wait = (Wait){meeting, only_ripe};
  world->n_waiting++;
  while (!world->is_dead && !can_go(world, wait)) {
    if (!all_are_stuck(world)) {
      pthread_cond_wait(&world->changed, &world->mutex);
      continue;
    }
    if (!move_clock(world)) world->is_dead = true;
    pthread_cond_broadcast(&world->changed);
  }
  world->n_waiting--;
  wait->meeting = NULL;
  if (!world->is_dead) return STATUS_OK;
  return status_make(
      STATUS_lost, "deadlock: every rank waits; rank %d for %s %d", comm->rank,
      meeting->kind == MEETING_collective ? "collective" : "a meeting of kind",
      meeting->kind == MEETING_collective ? meeting->what->id
                                          : (int)meeting->kind);
}

/* The index of the rank in the meeting's group, or -1. */
static int index_in(const Meeting *meeting, int rank) {
  const CommGroup *group = &meeting->group;
  if (!group_has(&group->digits, rank)) return -1;
  int index = group_index(&group->digits, rank);
  return comm_member(group, index) == rank ? index : -1;
}

static void leave_meeting(Meeting *meeting, int index) {
  meeting->visits[index].has_left = true;
  if (++meeting->n_left == meeting->group.size) meeting->is_used = false;
}

/* ---- the interface ---- */

static Status meet_ranks(Comm *comm, Meeting wanted, Visit visit,
                         Meeting **out) {
  World *world = ((Local *)comm->state)->world;
  pthread_mutex_lock(&world->mutex);
  Status status = come_to_meeting(comm, &wanted, &visit, out);
  if (status.code == STATUS_ok && world->rendezvous)
    status = wait_for_meeting(comm, *out, true);
  pthread_mutex_unlock(&world->mutex);
  return status;
}

static Status leave_when_delivered(Comm *comm, Meeting *meeting,
                                   int64_t *out_value) {
  World *world = ((Local *)comm->state)->world;
  pthread_mutex_lock(&world->mutex);
  Status status = wait_for_meeting(comm, meeting, false);
  if (out_value) *out_value = meeting->value;
  if (status.code == STATUS_ok)
    leave_meeting(meeting, index_in(meeting, comm->rank));
  pthread_mutex_unlock(&world->mutex);
  return status;
}

static Meeting of_all(const Comm *comm, MeetingKind kind) {
  return (Meeting){.kind = kind,
                   .group = {.digits = group_of_all(0, comm->world),
                             .rank = comm->rank,
                             .size = comm->world,
                             .index = comm->rank}};
}

static Status local_start(Comm *comm, const DnnCollective *what,
                          const CommPart *parts) {
  Meeting *meeting;
  TRY(comm_check(what));
  CommGroup group = comm_group(what, comm->rank);
  return meet_ranks(
      comm,
      (Meeting){.kind = MEETING_collective,
                .what = what,
                .group = group,
                .sender = what->kind == DNN_SEND ? group.index : !group.index},
      (Visit){.parts = parts}, &meeting);
}

static Status local_wait(Comm *comm, int32_t id) {
  World *world = ((Local *)comm->state)->world;
  Meeting *found = NULL;
  pthread_mutex_lock(&world->mutex);
  for (int i = 0; i < MAX_MEETINGS && !found; i++) {
    Meeting *meeting = &world->meetings[i];
    if (!meeting->is_used || meeting->kind != MEETING_collective ||
        meeting->what->id != id)
      continue;
    int index = index_in(meeting, comm->rank);
    if (index >= 0 && meeting->visits[index].has_come &&
        !meeting->visits[index].has_left)
      found = meeting;
  }
  pthread_mutex_unlock(&world->mutex);
  return found ? leave_when_delivered(comm, found, NULL) : STATUS_OK;
}

static Status local_vote_start(Comm *comm, int64_t value) {
  Local *local = comm->state;
  return meet_ranks(comm, of_all(comm, MEETING_vote), (Visit){.value = value},
                    &local->vote);
}

static Status local_vote_wait(Comm *comm, int64_t *out_greatest) {
  return leave_when_delivered(comm, ((Local *)comm->state)->vote, out_greatest);
}

static Status local_barrier(Comm *comm) {
  int64_t greatest;
  TRY(local_vote_start(comm, 0));
  return local_vote_wait(comm, &greatest);
}

static Status local_broadcast(Comm *comm, void *data, int64_t bytes, int root) {
  Meeting *meeting, wanted = of_all(comm, MEETING_broadcast);
  wanted.bytes = bytes;
  wanted.root = root;
  TRY(meet_ranks(comm, wanted, (Visit){.data = data}, &meeting));
  return leave_when_delivered(comm, meeting, NULL);
}

static Status local_gather(Comm *comm, const void *data, int64_t bytes,
                           void *all) {
  Meeting *meeting, wanted = of_all(comm, MEETING_gather);
  wanted.bytes = bytes;
  TRY(meet_ranks(comm, wanted, (Visit){.data = (void *)data, .all = all},
                 &meeting));
  return leave_when_delivered(comm, meeting, NULL);
}

static void local_close(Comm *comm) {
  World *world = ((Local *)comm->state)->world;
  pthread_mutex_lock(&world->mutex);
  world->n_closed++;
  pthread_cond_broadcast(&world->changed);
  pthread_mutex_unlock(&world->mutex);
}

Status comm_local_create(Arena *arena, int n_ranks, bool rendezvous,
                         uint64_t seed, Comm **out_ranks) {
  World *world = ARENA_NEW(arena, World);
  world->world = n_ranks;
  world->rendezvous = rendezvous;
  world->key = random_key(seed, "deliveries");
  world->waits = ARENA_ARRAY(arena, Wait, n_ranks);
  world->members = ARENA_ARRAY(arena, const void *, n_ranks);
  pthread_mutex_init(&world->mutex, NULL);
  pthread_cond_init(&world->changed, NULL);
  for (int i = 0; i < MAX_MEETINGS; i++)
    world->meetings[i].visits = ARENA_ARRAY(arena, Visit, n_ranks);
  Comm *ranks = ARENA_ARRAY(arena, Comm, n_ranks);
  for (int i = 0; i < n_ranks; i++) {
    Local *local = ARENA_NEW(arena, Local);
    local->world = world;
    ranks[i] = (Comm){.name = "local",
                      .rank = i,
                      .world = n_ranks,
                      .local_rank = i,
                      .local_world = n_ranks,
                      .start = local_start,
                      .wait = local_wait,
                      .barrier = local_barrier,
                      .broadcast = local_broadcast,
                      .gather = local_gather,
                      .vote_start = local_vote_start,
                      .vote_wait = local_vote_wait,
                      .close = local_close,
                      .state = local};
  }
  *out_ranks = ranks;
  return STATUS_OK;
}
