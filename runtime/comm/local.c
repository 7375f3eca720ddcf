/*
 * local.c -- runs ranks as threads of one process, for tests and for
 * verification.
 *
 * Everything that joins several ranks is a meeting.  Each rank has a list of
 * its meetings for each queue, in the order in which it came to them.  A
 * meeting runs when all ranks of its group have come and it is the first in the
 * lists of all of them, so ranks that start collectives of a queue in different
 * orders wait for each other as they would on a network.  A message is in no
 * list: it runs when both of its ranks have come.  One thread does the work for
 * all ranks, when the meeting runs or, as the seed says, at the first wait.
 *
 * Times are virtual.  A meeting begins when the last rank has come and the
 * queues of all of them are free, and ends as much later as links take.  A rank
 * that waits moves its clock there.  Nothing depends on the order of threads.
 *
 * If every rank waits and no meeting can run, none ever will: this is a
 * deadlock, found at once and without a clock of the system.
 */
#include "runtime/comm/local.h"

#include <string.h>

/* The meetings of a rank that have not run, in the order of its starts. */
typedef struct LocalQueue {
  VEC(Meeting *) meetings;
  int n_run; /* of these */
  int64_t free_ns, n_started;
} LocalQueue;

typedef struct LocalRank {
  LocalQueue queues[LOCAL_N_QUEUES];
  int64_t n_sent; /* messages */
  int64_t now_ns;
  const Meeting *waits_for; /* or NULL */
} LocalRank;

typedef struct World {
  Arena *arena; /* of meetings; used with the mutex held */
  LocalOptions options;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int world, n_waiting, n_closed;
  bool is_dead;
  uint64_t key;
  LocalRank *ranks;
  const void **members; /* of the meeting at work */
  char block[LOCAL_BLOCK_BYTES];
  VEC(Meeting *) meetings, unused;
} World;

typedef struct Local {
  World *world;
  Meeting *votes[COMM_MOST_VOTES];
  int64_t n_votes, n_waited;
} Local;

/* ---- coming and leaving; the mutex is held ---- */

/* The id first: it tells most of many apart.  Messages have none in common. */
static bool is_same(const Meeting *a, const Meeting *b) {
  if (a->kind != b->kind) return false;
  if (a->kind == MEETING_message && a->sender != b->sender) return false;
  if (a->kind == MEETING_collective && a->what->id != b->what->id) return false;
  return group_equal(&a->group.digits, &b->group.digits) &&
         comm_member(&a->group, 0) == comm_member(&b->group, 0);
}

/* A rank is missing.  Until it comes nobody leaves, and `what` lives. */
static bool is_open(const Meeting *meeting) {
  return meeting->n_come < meeting->group.size;
}

/* Ranks come to meetings of one kind in one order, so the first to which this
 * rank has not come is meant. */
static Meeting *find_meeting(World *world, const Meeting *wanted, int index) {
  Meeting *meeting;
  for (int i = 0; i < world->meetings.n; i++) {
    meeting = world->meetings.data[i];
    if (is_open(meeting) && is_same(meeting, wanted) &&
        !meeting->visits[index].has_come)
      return meeting;
  }
  if (world->unused.n > 0) {
    meeting = world->unused.data[--world->unused.n];
  } else {
    meeting = ARENA_NEW(world->arena, Meeting);
    meeting->visits = ARENA_ARRAY(world->arena, Visit, world->world);
  }
  Visit *visits = meeting->visits;
  memset(visits, 0, sizeof(Visit) * (size_t)world->world);
  *meeting = *wanted;
  meeting->visits = visits;
  vec_push(world->arena, &world->meetings, meeting);
  return meeting;
}

static bool sizes_agree(const Meeting *meeting, const Meeting *wanted) {
  const DnnCollective *a = meeting->what, *b = wanted->what;
  if (meeting->kind == MEETING_message)
    return comm_count(a) == comm_count(b) && a->dtype == b->dtype &&
           a->edge == b->edge;
  if (meeting->kind != MEETING_collective)
    return meeting->bytes == wanted->bytes;
  return comm_count(a) == comm_count(b) && a->dtype == b->dtype &&
         a->queue == b->queue && b->kind == a->kind;
}

/* Describes both sides of a message, the one that came first and this one. */
static Status message_differs(const Comm *comm, const Meeting *meeting,
                              const Meeting *wanted) {
  const DnnCollective *a = meeting->what, *b = wanted->what;
  bool is_sender = wanted->group.index == wanted->sender;
  return status_make(
      STATUS_invalid,
      "rank %d %s edge %d, %lld of %s, where rank %d %s edge %d, %lld of %s",
      comm->rank, is_sender ? "sends" : "receives", b->edge,
      (long long)comm_count(b), dtype_label(b->dtype),
      comm_member(&wanted->group, !wanted->group.index),
      is_sender ? "receives" : "sends", a->edge, (long long)comm_count(a),
      dtype_label(a->dtype));
}

/* ---- running; the mutex is held ---- */

static LocalQueue *queue_of(World *world, const Meeting *meeting, int index) {
  int rank = comm_member(&meeting->group, index);
  return &world->ranks[rank].queues[meeting->queue];
}

static bool is_first(const LocalQueue *queue, const Meeting *meeting) {
  return queue->n_run < queue->meetings.n &&
         queue->meetings.data[queue->n_run] == meeting;
}

static void do_work(World *world, Meeting *meeting) {
  if (!meeting->has_worked) local_work(meeting, world->members, world->block);
  meeting->has_worked = true;
}

/* The first rank and the number of its start name a meeting on every run. */
static uint64_t meeting_number(World *world, const Meeting *meeting) {
  if (meeting->kind == MEETING_message)
    return UINT64_C(1) << 63 |
           (uint64_t)comm_member(&meeting->group, meeting->sender) << 40 |
           (uint64_t)meeting->number << 1;
  uint64_t rank = (uint64_t)comm_member(&meeting->group, 0);
  uint64_t n = (uint64_t)queue_of(world, meeting, 0)->n_started;
  return (rank << 40) + (n << 3) + (uint64_t)meeting->queue * 2;
}

static void run_meeting(World *world, Meeting *meeting) {
  const LocalOptions *options = &world->options;
  bool is_message = meeting->kind == MEETING_message;
  int64_t begin = 0;
  for (int i = 0; i < meeting->group.size; i++) {
    if (meeting->visits[i].start_ns > begin)
      begin = meeting->visits[i].start_ns;
    if (!is_message && queue_of(world, meeting, i)->free_ns > begin)
      begin = queue_of(world, meeting, i)->free_ns;
  }
  uint64_t number = meeting_number(world, meeting);
  int64_t jitter = options->jitter_ns > 0
                       ? (int64_t)random_below(world->key, number,
                                               (uint64_t)options->jitter_ns)
                       : 0;
  meeting->begin_ns = begin;
  meeting->end_ns = begin + local_duration(meeting, options) + jitter;
  meeting->is_late = random_below(world->key, number + 1, 2) == 1;
  meeting->has_run = true;
  if (!meeting->is_late) do_work(world, meeting);
  for (int i = 0; i < meeting->group.size && !is_message; i++) {
    LocalQueue *queue = queue_of(world, meeting, i);
    queue->free_ns = meeting->end_ns;
    queue->n_started++;
    if (++queue->n_run == queue->meetings.n)
      queue->n_run = queue->meetings.n = 0;
  }
}

static bool can_run(World *world, const Meeting *meeting) {
  if (is_open(meeting)) return false;
  for (int i = 0; i < meeting->group.size; i++)
    if (!is_first(queue_of(world, meeting, i), meeting)) return false;
  return true;
}

/* A meeting that runs may make way for others. */
static void run_meetings(World *world, int queue) {
  for (bool has_run = true; has_run;) {
    has_run = false;
    for (int r = 0; r < world->world; r++) {
      LocalQueue *own = &world->ranks[r].queues[queue];
      while (own->n_run < own->meetings.n &&
             can_run(world, own->meetings.data[own->n_run])) {
        run_meeting(world, own->meetings.data[own->n_run]);
        has_run = true;
      }
    }
  }
}

static Status come_to_meeting(Comm *comm, const Meeting *wanted,
                              const Visit *visit, Meeting **out) {
  World *world = ((Local *)comm->state)->world;
  LocalRank *own = &world->ranks[comm->rank];
  int index = wanted->group.index;
  if (world->is_dead) /* and memory of a rank that has left may be gone */
    return status_make(STATUS_lost, "the ranks have failed before");
  Meeting *meeting = find_meeting(world, wanted, index);
  if (!sizes_agree(meeting, wanted)) {
    world->is_dead = true;
    pthread_cond_broadcast(&world->changed);
    if (wanted->kind == MEETING_message)
      return message_differs(comm, meeting, wanted);
    return status_make(STATUS_invalid,
                       "rank %d means another collective than the others",
                       comm->rank);
  }
  meeting->visits[index] = *visit;
  meeting->visits[index].has_come = true;
  meeting->visits[index].start_ns = own->now_ns;
  meeting->n_come++;
  bool is_message = wanted->kind == MEETING_message;
  if (is_message && index == wanted->sender) meeting->number = own->n_sent++;
  if (!is_message)
    vec_push(world->arena, &own->queues[wanted->queue].meetings, meeting);
  if (meeting->n_come == meeting->group.size && is_message)
    run_meeting(world, meeting);
  else if (meeting->n_come == meeting->group.size)
    run_meetings(world, wanted->queue);
  *out = meeting;
  pthread_cond_broadcast(&world->changed);
  return STATUS_OK;
}

/* Nobody runs: all wait, and none for what is there already (a rank may have
 * been woken and not have run yet). */
static bool all_are_stuck(const World *world) {
  if (world->n_waiting + world->n_closed < world->world) return false;
  for (int i = 0; i < world->world; i++)
    if (world->ranks[i].waits_for && world->ranks[i].waits_for->has_run)
      return false;
  return true;
}

static Status wait_for_meeting(Comm *comm, const Meeting *meeting) {
  World *world = ((Local *)comm->state)->world;
  LocalRank *own = &world->ranks[comm->rank];
  own->waits_for = meeting;
  world->n_waiting++;
  while (!world->is_dead && !meeting->has_run) {
    if (all_are_stuck(world)) {
      world->is_dead = true;
      pthread_cond_broadcast(&world->changed);
    } else {
      pthread_cond_wait(&world->changed, &world->mutex);
    }
  }
  world->n_waiting--;
  own->waits_for = NULL;
  if (meeting->has_worked || (meeting->has_run && !world->is_dead))
    return STATUS_OK;
  bool is_message = meeting->kind == MEETING_message;
  bool is_planned = is_message || meeting->kind == MEETING_collective;
  return status_make(
      STATUS_lost, "deadlock: every rank waits; rank %d for %s %d", comm->rank,
      is_message   ? "a message of edge"
      : is_planned ? "collective"
                   : "a meeting of kind",
      is_message   ? meeting->what->edge
      : is_planned ? meeting->what->id
                   : (int)meeting->kind);
}

/* The index of the rank in the meeting's group, or -1. */
static int index_in(const Meeting *meeting, int rank) {
  const CommGroup *group = &meeting->group;
  if (!group_has(&group->digits, rank)) return -1;
  int index = group_index(&group->digits, rank);
  return comm_member(group, index) == rank ? index : -1;
}

static void leave_meeting(World *world, Meeting *meeting, int index) {
  meeting->visits[index].has_left = true;
  if (++meeting->n_left < meeting->group.size) return;
  for (int i = 0; i < world->meetings.n; i++) {
    if (world->meetings.data[i] != meeting) continue;
    /* The order of those that are left matters to find_meeting. */
    memmove(&world->meetings.data[i], &world->meetings.data[i + 1],
            sizeof(Meeting *) * (size_t)(world->meetings.n - i - 1));
    world->meetings.n--;
    break;
  }
  vec_push(world->arena, &world->unused, meeting);
}

/* ---- the interface ---- */

static Status meet_ranks(Comm *comm, Meeting wanted, Visit visit,
                         Meeting **out) {
  World *world = ((Local *)comm->state)->world;
  pthread_mutex_lock(&world->mutex);
  LocalRank *own = &world->ranks[comm->rank];
  Status status = come_to_meeting(comm, &wanted, &visit, out);
  if (status.code == STATUS_ok && world->options.rendezvous) {
    status = wait_for_meeting(comm, *out);
    if (own->now_ns < (*out)->begin_ns) own->now_ns = (*out)->begin_ns;
  }
  pthread_mutex_unlock(&world->mutex);
  return status;
}

static void add_event(Comm *comm, const Meeting *meeting) {
  CommEvents *events = comm->events;
  if (!events || !meeting->what) return;
  int32_t n = atomic_load(&events->n);
  if (n >= events->capacity) return;
  const Visit *own = &meeting->visits[index_in(meeting, comm->rank)];
  events->data[n] = (CommEvent){own->what->id, meeting->begin_ns,
                                meeting->end_ns, comm_payload(own->what)};
  atomic_store(&events->n, n + 1);
}

static Status leave_when_over(Comm *comm, Meeting *meeting,
                              CommVote *out_vote) {
  World *world = ((Local *)comm->state)->world;
  LocalRank *own = &world->ranks[comm->rank];
  pthread_mutex_lock(&world->mutex);
  Status status = wait_for_meeting(comm, meeting);
  if (status.code == STATUS_ok) {
    do_work(world, meeting);
    if (own->now_ns < meeting->end_ns) own->now_ns = meeting->end_ns;
    if (out_vote) *out_vote = meeting->vote;
    add_event(comm, meeting);
    leave_meeting(world, meeting, index_in(meeting, comm->rank));
  }
  pthread_mutex_unlock(&world->mutex);
  return status;
}

static Meeting of_all(const Comm *comm, MeetingKind kind) {
  return (Meeting){.kind = kind,
                   .queue = LOCAL_HOST,
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
      (Meeting){.kind = comm_is_message(what) ? MEETING_message
                                              : MEETING_collective,
                .what = what,
                .group = group,
                .queue = what->queue,
                .sender = what->kind == DNN_SEND ? group.index : !group.index},
      (Visit){.what = what, .parts = parts}, &meeting);
}

static Status local_wait(Comm *comm, int32_t id) {
  World *world = ((Local *)comm->state)->world;
  Meeting *found = NULL;
  pthread_mutex_lock(&world->mutex);
  for (int i = 0; i < world->meetings.n && !found; i++) {
    Meeting *meeting = world->meetings.data[i];
    int index = meeting->what ? index_in(meeting, comm->rank) : -1;
    if (index >= 0 && meeting->visits[index].has_come &&
        meeting->visits[index].what->id == id &&
        !meeting->visits[index].has_left)
      found = meeting;
  }
  pthread_mutex_unlock(&world->mutex);
  return found ? leave_when_over(comm, found, NULL) : STATUS_OK;
}

static Status local_vote_start(Comm *comm, const CommVote *own) {
  Local *local = comm->state;
  return meet_ranks(comm, of_all(comm, MEETING_vote), (Visit){.vote = *own},
                    &local->votes[local->n_votes++ % COMM_MOST_VOTES]);
}

static Status local_vote_wait(Comm *comm, CommVote *out) {
  Local *local = comm->state;
  return leave_when_over(
      comm, local->votes[local->n_waited++ % COMM_MOST_VOTES], out);
}

static Status local_barrier(Comm *comm) {
  CommVote vote = {0};
  TRY(local_vote_start(comm, &vote));
  return local_vote_wait(comm, &vote);
}

static Status local_broadcast(Comm *comm, void *data, int64_t bytes, int root) {
  Meeting *meeting, wanted = of_all(comm, MEETING_broadcast);
  wanted.bytes = bytes;
  wanted.root = root;
  TRY(meet_ranks(comm, wanted, (Visit){.data = data}, &meeting));
  return leave_when_over(comm, meeting, NULL);
}

static Status local_gather(Comm *comm, const void *data, int64_t bytes,
                           void *all) {
  Meeting *meeting, wanted = of_all(comm, MEETING_gather);
  wanted.bytes = bytes;
  TRY(meet_ranks(comm, wanted, (Visit){.data = (void *)data, .all = all},
                 &meeting));
  return leave_when_over(comm, meeting, NULL);
}

/* A broadcast in a group of two. */
static Status local_transfer(Comm *comm, void *data, int64_t bytes, int from,
                             int to) {
  DnnGroup two = group_of_two(from, to);
  Meeting *meeting, wanted = {.kind = MEETING_broadcast,
                              .queue = LOCAL_HOST,
                              .group = {.digits = two,
                                        .rank = comm->rank,
                                        .size = 2,
                                        .index = group_index(&two, comm->rank)},
                              .bytes = bytes,
                              .root = group_index(&two, from)};
  TRY(meet_ranks(comm, wanted, (Visit){.data = data}, &meeting));
  return leave_when_over(comm, meeting, NULL);
}

static void local_computed(Comm *comm, const DnnInstr *instr) {
  World *world = ((Local *)comm->state)->world;
  const LocalOptions *options = &world->options;
  if (!options->compute_ns) return;
  world->ranks[comm->rank].now_ns +=
      options->compute_ns(options->user, comm->rank, instr);
}

int64_t comm_local_now(Comm *comm) {
  return ((Local *)comm->state)->world->ranks[comm->rank].now_ns;
}

static void local_close(Comm *comm) {
  World *world = ((Local *)comm->state)->world;
  pthread_mutex_lock(&world->mutex);
  world->n_closed++;
  pthread_cond_broadcast(&world->changed);
  pthread_mutex_unlock(&world->mutex);
}

Status comm_local_create(Arena *arena, int n_ranks, const LocalOptions *options,
                         Comm **out_ranks) {
  World *world = ARENA_NEW(arena, World);
  world->arena = arena;
  world->world = n_ranks;
  world->options = *options;
  world->key = random_key(options->seed, "deliveries");
  world->ranks = ARENA_ARRAY(arena, LocalRank, n_ranks);
  world->members = ARENA_ARRAY(arena, const void *, n_ranks);
  pthread_mutex_init(&world->mutex, NULL);
  pthread_cond_init(&world->changed, NULL);
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
                      .transfer = local_transfer,
                      .vote_start = local_vote_start,
                      .vote_wait = local_vote_wait,
                      .computed = local_computed,
                      .close = local_close,
                      .state = local};
  }
  *out_ranks = ranks;
  return STATUS_OK;
}
