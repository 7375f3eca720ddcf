/*
 * mpi_heartbeats.c -- finds lost ranks by heartbeats, and ends a run that
 * cannot continue.
 *
 * Open MPI notices a dead rank but not a silent one.  So the communication
 * thread sends a heartbeat to its peers (peers.c) twice a second.  A peer that
 * has been silent for 6 s may be lost, or the link to it may be cut. Heartbeats
 * carry all that is known of silent pairs from rank to rank, and to the
 * launcher where there is one; a moment later the launcher, or the lowest rank
 * that misses another, judges who is lost (silence.c), says so, and all end.
 * If that rank gets no processor, another one says so.
 * They call _exit, because no collective can be trusted to return after that.
 *
 * Silence is measured in the time in which this thread has run, because a rank
 * that gets no processor, or was stopped, has not listened.
 */
#include "runtime/comm/mpi.h"

#include <stdio.h>
#include <unistd.h>

enum { EXIT_LOST = 3, TAG_HEARTBEAT = 1 << 28 };
static const int64_t heartbeat_ns = 500000000, silent_ns = 6000000000,
                     longest_tick_ns = 500000000;
/* After the first known silence: until one rank judges; and more until the
 * others end, which would end that one too; until they give the launcher up.
 * Where nobody has judged by then, the lowest ranks do, one after the other. */
static const int64_t judge_ns = 800000000, others_ns = 800000000,
                     launcher_ns = 1900000000, turn_ns = 50000000;
enum { N_TURNS = 8 };

/* ---- where this rank is ---- */

static const char *kind_name(const DnnCollective *what) {
  static const char *const names[] = {[DNN_ALL_REDUCE] = "all_reduce",
                                      [DNN_REDUCE_SCATTER] = "reduce_scatter",
                                      [DNN_ALL_GATHER] = "all_gather",
                                      [DNN_ALL_TO_ALL] = "all_to_all",
                                      [DNN_BROADCAST] = "broadcast",
                                      [DNN_SEND] = "send",
                                      [DNN_RECV] = "recv",
                                      [DNN_PERMUTE] = "permute"};
  return names[what->kind];
}

/* The other members of the group; result: how many, of MOST_SILENCES at most.
 */
static int other_members(const Work *work, int out[MOST_SILENCES]) {
  int n = 0;
  for (int i = 0; i < work->group.size && n < MOST_SILENCES; i++)
    if (i != work->group.index) out[n++] = comm_member(&work->group, i);
  return n;
}

/* Votes of the step begin before all others and end last, so they tell the
 * least: they come last. */
static const Work *work_to_tell(const Mpi *mpi, int i) {
  int n = mpi->n_works;
  return mpi->works[i + 1 == n ? WORK_HOST : i < WORK_HOST ? i : i + 1];
}

static bool is_at_work(const Work *work) {
  return work && work->job && !work->job->is_stop && work->group.size > 1;
}

static bool is_message(const Work *work) {
  return work->queue >= WORK_MESSAGES;
}

/* A message may be one of several micro-batches, or of the step. */
static void describe_job(const Work *work, FixedText *text) {
  const Job *job = work->job;
  fixed_printf(text, "; %s ", kind_name(work->what));
  if (!job->path) {
    fixed_printf(text, "between steps");
    return;
  }
  fixed_printf(text, "%s'%s' (instruction %d", is_message(work) ? "edge " : "",
               job->path, job->instr);
  if (job->microbatch > 0)
    fixed_printf(text, ", micro-batch %d", job->microbatch - 1);
  else if (is_message(work))
    fixed_printf(text, ", once a step");
  fixed_printf(text, ")");
}

/* The collectives at work, which have not ended because of another rank. */
static void describe_work(const Mpi *mpi, FixedText *text) {
  int64_t now = clock_ns();
  for (int i = 0; i < mpi->n_works; i++) {
    const Work *work = work_to_tell(mpi, i);
    int others[MOST_SILENCES];
    if (!is_at_work(work)) continue;
    describe_job(work, text);
    fixed_printf(text, !is_message(work)              ? " with "
                       : work->what->kind == DNN_SEND ? " to "
                                                      : " from ");
    silence_list(text, others, other_members(work, others));
    fixed_printf(text, " began %.1f s ago",
                 (double)(now - work->begin_ns) * 1e-9);
  }
}

/* The ranks that it waits for.  All are in the votes of the step, which count
 * where there is nothing else. */
static int ranks_at_work(const Mpi *mpi, int out[MOST_SILENCES]) {
  int n = 0;
  for (int i = 0; i < mpi->n_works; i++) {
    const Work *work = work_to_tell(mpi, i);
    int others[MOST_SILENCES];
    if (!is_at_work(work) || (work->queue == WORK_HOST && n > 0)) continue;
    int n_others = other_members(work, others);
    for (int k = 0; k < n_others && n < MOST_SILENCES; k++)
      out[n++] = others[k];
  }
  return n;
}

static void tell_launcher(Mpi *mpi, bool waits) {
  char data[800], list[160];
  FixedText text = fixed_text(data, sizeof data);
  FixedText members = fixed_text(list, sizeof list);
  int others[MOST_SILENCES], n = ranks_at_work(mpi, others);
  for (int i = 0; i < n; i++) fixed_printf(&members, " %d", others[i]);
  recorder_describe(mpi->comm->recorder, &text);
  describe_work(mpi, &text);
  recorder_tell(mpi->comm->recorder, "waits %d%s %s", n, list, data);
  mpi->has_told = true;
  mpi->has_told_wait = waits;
}

/* A rank that computes soon waits for the one that is lost, and says it then.
 */
static void answer_launcher(Mpi *mpi) {
  const FlightRecorder *recorder = mpi->comm->recorder;
  if (mpi->has_told_wait || !recorder_is_asked(recorder)) return;
  bool waits = atomic_load(&recorder->waits_since) != 0;
  if (!mpi->has_told || waits) tell_launcher(mpi, waits);
}

/* ---- the end of a run that cannot continue ---- */

_Noreturn static void end_rank(Mpi *mpi) {
  if (mpi->comm->recorder)
    recorder_tell(mpi->comm->recorder, "ended %d", EXIT_LOST);
  if (!mpi->has_ended_daemon) mpi_end_daemon(&mpi->place);
  _exit(EXIT_LOST);
}

void mpi_give_up(Mpi *mpi, const char *why) {
  char data[8192];
  FixedText text = fixed_text(data, sizeof data);
  const FlightRecorder *recorder = mpi->comm->recorder;
  fixed_printf(&text, "rank %d: %s\n", mpi->place.rank, why);
  if (recorder) {
    recorder_describe(recorder, &text);
    describe_work(mpi, &text);
    recorder_describe_past(recorder, &text);
    data[text.n++] = '\n'; /* in place of the NUL */
  }
  if (write(STDERR_FILENO, data, text.n) >= 0) end_rank(mpi);
  end_rank(mpi);
}

void mpi_check(Mpi *mpi, int code, const char *doing) {
  if (code == MPI_SUCCESS) return;
  char text[512] = "", why[640];
  int n = 0;
  mpi->api.Error_string(code, text, &n);
  snprintf(why, sizeof why, "MPI failed while it %s: %s", doing, text);
  mpi_give_up(mpi, why);
}

/* ---- peers ---- */

static void listen_to(Mpi *mpi, Peer *peer) {
  mpi_check(mpi,
            mpi->api.Irecv(&peer->in, sizeof(Heartbeat), mpi->api.byte,
                           peer->rank, TAG_HEARTBEAT, mpi->api.world,
                           &peer->receive),
            "listened for a heartbeat");
}

static void add_peers(Mpi *mpi, const unsigned char *is_wanted) {
  for (int rank = 0; rank < mpi->place.world; rank++) {
    if (!is_wanted[rank] || mpi->is_peer[rank]) continue;
    Peer *peer = &mpi->peers[mpi->n_peers++];
    mpi->is_peer[rank] = 1;
    peer->rank = rank;
    peer->heard_ns = mpi->ran_ns;
    listen_to(mpi, peer);
  }
}

/* All ranks vote in every step, so all are a group. */
void mpi_begin_heartbeats(Mpi *mpi) {
  mpi->last_tick_ns = clock_ns();
  comm_add_peers(&mpi->all, mpi->place.rank, mpi->is_wanted);
  add_peers(mpi, mpi->is_wanted);
}

void mpi_expect_heartbeats(Mpi *mpi) {
  for (int i = 0; i < mpi->n_peers; i++) {
    mpi->peers[i].is_heard = true;
    mpi->peers[i].heard_ns = mpi->ran_ns;
  }
}

/* ---- heartbeats ---- */

static bool test_request(Mpi *mpi, void **request) {
  int flag = 0;
  mpi_check(mpi, mpi->api.Test(request, &flag, NULL), "tested a message");
  return flag;
}

static void send_heartbeats(Mpi *mpi, int64_t now) {
  const FlightRecorder *recorder = mpi->comm->recorder;
  mpi->last_heartbeat_ns = now;
  for (int i = 0; i < mpi->n_peers; i++) {
    Peer *peer = &mpi->peers[i];
    if (peer->send && !test_request(mpi, &peer->send)) continue;
    peer->out = (Heartbeat){.silences = mpi->silences, .is_told = mpi->is_told};
    if (recorder) {
      peer->out.step = atomic_load(&recorder->step);
      peer->out.instr = atomic_load(&recorder->instr);
    }
    mpi_check(mpi,
              mpi->api.Isend(&peer->out, sizeof(Heartbeat), mpi->api.byte,
                             peer->rank, TAG_HEARTBEAT, mpi->api.world,
                             &peer->send),
              "sent a heartbeat");
  }
}

/* True: that was news. */
static bool note_silence(Mpi *mpi, int by, int of, int64_t now) {
  if (!silence_add(&mpi->silences, by, of)) return false;
  if (!mpi->silent_since_ns) mpi->silent_since_ns = now;
  return true;
}

static void tell_silence(Mpi *mpi, int of) {
  if (mpi->comm->recorder) recorder_tell(mpi->comm->recorder, "silent %d", of);
}

/* A rank that is accused lives, and says so by the same pair from its side. */
static bool hear_silence(Mpi *mpi, const Silence *heard, int64_t now) {
  int rank = mpi->place.rank;
  if (!note_silence(mpi, heard->by, heard->of, now)) return false;
  if (heard->of == rank && note_silence(mpi, rank, heard->by, now))
    tell_silence(mpi, heard->by);
  return true;
}

static bool receive_heartbeats(Mpi *mpi, int64_t now) {
  bool is_news = false;
  for (int i = 0; i < mpi->n_peers; i++) {
    Peer *peer = &mpi->peers[i];
    Heartbeat last = peer->in;
    while (test_request(mpi, &peer->receive)) {
      last = peer->in;
      peer->is_heard = true;
      peer->heard_ns = mpi->ran_ns;
      for (int k = 0; k < last.silences.n; k++)
        is_news = hear_silence(mpi, &last.silences.at[k], now) || is_news;
      is_news |= last.is_told && !mpi->is_told;
      mpi->is_told |= last.is_told;
      listen_to(mpi, peer);
    }
    peer->in = last;
  }
  return is_news;
}

static bool find_silent(Mpi *mpi, int64_t now) {
  bool is_news = false;
  for (int i = 0; i < mpi->n_peers; i++) {
    Peer *peer = &mpi->peers[i];
    int64_t silence = mpi->ran_ns - peer->heard_ns;
    if (peer->is_silent ||
        silence < (peer->is_heard ? silent_ns : mpi->limit_ns))
      continue;
    peer->is_silent = true;
    is_news = note_silence(mpi, mpi->place.rank, peer->rank, now) || is_news;
    tell_silence(mpi, peer->rank);
  }
  return is_news;
}

/* ---- judging without a launcher ---- */

static const Peer *find_peer(const Mpi *mpi, int rank) {
  for (int i = 0; i < mpi->n_peers; i++)
    if (mpi->peers[i].rank == rank) return &mpi->peers[i];
  return NULL;
}

static bool is_alive(const Mpi *mpi, int rank) {
  const Peer *peer = find_peer(mpi, rank);
  return rank == mpi->place.rank || (peer && !peer->is_silent) ||
         silence_is_by(&mpi->silences, rank);
}

/* The lowest rank that lives, among those that miss another: it can say in
 * which message it waits. */
static bool is_speaker(const Mpi *mpi, const Verdict *verdict) {
  if (!verdict->is_lost && is_alive(mpi, verdict->rank) &&
      verdict->rank <= verdict->others[0])
    return verdict->rank == mpi->place.rank;
  for (int i = 0; i < verdict->n_others; i++)
    if (is_alive(mpi, verdict->others[i]))
      return verdict->others[i] == mpi->place.rank;
  return verdict->rank == mpi->place.rank;
}

static void speak(Mpi *mpi, const Verdict *verdict, int64_t now) {
  char data[2048];
  FixedText text = fixed_text(data, sizeof data);
  const Peer *peer =
      find_peer(mpi, verdict->is_lost ? verdict->rank : verdict->others[0]);
  silence_describe(&text, verdict);
  fixed_printf(&text, " for %.1f s", (double)silent_ns * 1e-9);
  if (peer && peer->is_heard)
    fixed_printf(&text, "; rank %d was at step %lld, instruction %lld",
                 peer->rank, (long long)peer->in.step,
                 (long long)peer->in.instr);
  mpi->is_told = true;
  send_heartbeats(mpi, now);
  mpi_give_up(mpi, data);
}

/* With a launcher, that judges and ends all, unless it is stopped itself. */
static void check_silences(Mpi *mpi, int64_t now) {
  const FlightRecorder *recorder = mpi->comm->recorder;
  if (!mpi->silent_since_ns) return;
  if (!mpi->has_ended_daemon) mpi_end_daemon(&mpi->place);
  mpi->has_ended_daemon = true;
  int64_t limit = recorder && recorder->report_fd >= 0 ? launcher_ns : judge_ns;
  if (now - mpi->silent_since_ns < limit) return;
  Verdict verdict = silence_judge(&mpi->silences, false);
  if (is_speaker(mpi, &verdict)) speak(mpi, &verdict, now);
  int64_t late = now - mpi->silent_since_ns - limit - others_ns;
  if (late < 0) return;
  int rank = mpi->place.rank;
  if (mpi->is_told || late >= N_TURNS * turn_ns) end_rank(mpi);
  if (rank < N_TURNS && late >= rank * turn_ns) speak(mpi, &verdict, now);
}

/* ---- every tick ---- */

static void check_deadline(Mpi *mpi, int64_t now) {
  FlightRecorder *recorder = mpi->comm->recorder;
  if (!recorder) return;
  if (recorder_launcher_is_gone(recorder)) {
    if (recorder->local_rank == 0) mpi_give_up(mpi, "the launcher has gone");
    _exit(EXIT_LOST);
  }
  answer_launcher(mpi);
  int64_t since = atomic_load(&recorder->waits_since);
  int64_t deadline = atomic_load(&recorder->deadline_ns);
  if (!since || !deadline || now - since < deadline) return;
  const Peer *peer = &mpi->peers[0];
  char why[200];
  snprintf(why, sizeof why,
           "no progress for %.0f s; rank %d is at step %lld, instruction %lld",
           (double)(now - since) * 1e-9, peer->rank, (long long)peer->in.step,
           (long long)peer->in.instr);
  mpi_give_up(mpi, why);
}

void mpi_tick(Mpi *mpi) {
  int64_t now = clock_ns(), gap = now - mpi->last_tick_ns;
  if (gap < MPI_TICK_NS) return;
  mpi->last_tick_ns = now;
  mpi->ran_ns += gap < longest_tick_ns ? gap : longest_tick_ns;
  if (atomic_exchange(&mpi->has_wanted, false)) add_peers(mpi, mpi->is_wanted);
  bool is_news = receive_heartbeats(mpi, now);
  is_news = find_silent(mpi, now) || is_news;
  if (is_news || now - mpi->last_heartbeat_ns >= heartbeat_ns)
    send_heartbeats(mpi, now);
  check_silences(mpi, now);
  check_deadline(mpi, now);
}
