/*
 * timed_samples.c -- simulates one rank with parts of the batch, and adds up
 * what the nodes of each piece take.
 *
 *     parts   1    2    4     8        k = 3: on a line between 2 and 4,
 *     batch   B   B/2  B/4   B/8       by the samples of a micro-batch
 */
#include "planner/timed/timed.h"

enum { MOST_PARTS = 16, MOST_TIMED_PIECES = 24 };

/* ---- one simulation ---- */

/* A path that the model lacks is in the piece before it. */
static int piece_of(const TimedNodes *t, const char *path, int before) {
  int piece = timed_chain_piece(&t->of, path);
  return piece >= 0 ? piece : before;
}

static void add_time(PieceTimes *to, const PathTime *time) {
  if (time->phase == PHASE_forward) to->forward += time->time;
  if (time->phase == PHASE_input_gradient) to->input_grad += time->time;
  if (time->phase == PHASE_weight_gradient) to->weight_grad += time->time;
}

static Bytes largest(Bytes a, Bytes b) {
  return a > b ? a : b;
}

static const TimedSample *simulate_parts(TimedNodes *t, int64_t parts,
                                         int64_t first_rank) {
  const SearchInput *input = t->search->p->input;
  Arena *arena = t->search->arena;
  NodeTimes times;
  if (!input->host->times(input->host->user, parts, first_rank, &times))
    return NULL;
  PieceTimes *pieces = ARENA_ARRAY(arena, PieceTimes, t->of.chain.n);
  Bytes *saved = ARENA_ARRAY(arena, Bytes, t->of.chain.n), others = 0;
  TimedSample *out = ARENA_NEW(arena, TimedSample);
  *out = (TimedSample){.parts = parts,
                       .first_rank = first_rank,
                       .pieces = pieces,
                       .saved = saved,
                       .persistent = times.persistent};
  for (int i = 0, at = 0; i < times.times.n; i++) {
    const PathTime *time = &times.times.data[i];
    if (time->phase == PHASE_update) {
      out->update += time->time;
      continue;
    }
    at = piece_of(t, time->path, at);
    add_time(&pieces[at], time);
  }
  for (int i = 0, at = 0; i < times.saved.n; i++) {
    at = piece_of(t, times.saved.data[i].path, at);
    saved[at] += times.saved.data[i].bytes / parts;
    others += times.saved.data[i].bytes / parts;
  }
  for (int i = 0; i < t->of.chain.n; i++) others += t->of.params[i];
  out->scratch = largest(0, times.peak - times.persistent - others);
  return out;
}

static const TimedSample *known_sample(const TimedNodes *t, int64_t parts,
                                       int64_t first_rank) {
  for (int i = 0; i < t->samples.n; i++)
    if (t->samples.data[i]->parts == parts &&
        t->samples.data[i]->first_rank == first_rank)
      return t->samples.data[i];
  return NULL;
}

static const TimedSample *exact_sample(TimedNodes *t, int64_t parts,
                                       int64_t first_rank) {
  const TimedSample *known = known_sample(t, parts, first_rank);
  if (known) return known;
  const TimedSample *sample = simulate_parts(t, parts, first_rank);
  if (sample) vec_push(t->search->arena, &t->samples, sample);
  return sample;
}

/* ---- between simulations ---- */

static int64_t between(int64_t few, int64_t many, double share) {
  return few + (int64_t)((double)(many - few) * share);
}

/* `share`: 0 is the sample with the smaller part of the batch. */
static const TimedSample *mix(const TimedNodes *t, const TimedSample *few,
                              const TimedSample *many, double share) {
  Arena *arena = t->search->arena;
  int n = t->of.chain.n;
  PieceTimes *pieces = ARENA_ARRAY(arena, PieceTimes, n);
  Bytes *saved = ARENA_ARRAY(arena, Bytes, n);
  for (int i = 0; i < n; i++) {
    const PieceTimes *a = &few->pieces[i], *b = &many->pieces[i];
    pieces[i] = (PieceTimes){between(a->forward, b->forward, share),
                             between(a->input_grad, b->input_grad, share),
                             between(a->weight_grad, b->weight_grad, share)};
    saved[i] = between(few->saved[i], many->saved[i], share);
  }
  TimedSample *out = arena_copy(arena, few, sizeof *few);
  out->pieces = pieces;
  out->saved = saved;
  out->scratch = between(few->scratch, many->scratch, share);
  return out;
}

const TimedSample *timed_sample(TimedNodes *t, int64_t parts,
                                int64_t first_rank) {
  int low = 0;
  while (low + 1 < t->n_parts && t->parts[low + 1] <= parts) low++;
  const TimedSample *many = exact_sample(t, t->parts[low], first_rank);
  if (!many || t->parts[low] == parts || low + 1 == t->n_parts) return many;
  const TimedSample *few = exact_sample(t, t->parts[low + 1], first_rank);
  if (!few) return many;
  double own = 1.0 / (double)parts, least = 1.0 / (double)few->parts,
         most = 1.0 / (double)many->parts;
  return mix(t, few, many, (own - least) / (most - least));
}

/* ---- few pieces ---- */

static Ps time_of(const PieceTimes *piece) {
  return piece->forward + piece->input_grad + piece->weight_grad;
}

/* Leaves out borders beside ones that no more bytes go over, if the piece
 * between them takes little. */
static void leave_costly(const TimedNodes *t, const TimedSample *sample,
                         const bool *is_pinned, bool *is_kept) {
  enum { LITTLE = 2 * MOST_TIMED_PIECES };
  int n = t->of.chain.n, last = -1;
  Ps all = 0, time = 0;
  for (int i = 0; i < n; i++) all += time_of(&sample->pieces[i]);
  for (int i = 0; i + 1 < n; i++) {
    time += time_of(&sample->pieces[i]);
    if (last >= 0 && time <= all / LITTLE) {
      bool is_later = t->of.sent[i] < t->of.sent[last];
      int costly = is_later ? last : i;
      is_kept[costly] = is_pinned && is_pinned[costly];
      if (!is_kept[i]) continue;
    }
    last = i;
    time = 0;
  }
}

/* The border of the smallest piece that more bytes go over. */
static int least_border(const TimedNodes *t, const TimedSample *sample,
                        const bool *is_pinned, const bool *is_kept) {
  int n = t->of.chain.n, best = -1, last = -1;
  Ps least = INT64_MAX, time = 0;
  for (int i = 0; i < n; i++) {
    time += time_of(&sample->pieces[i]);
    if (i + 1 < n && !is_kept[i]) continue;
    bool takes_last =
        i + 1 == n || (last >= 0 && t->of.sent[last] > t->of.sent[i]);
    int border = takes_last ? last : i;
    bool may_go = border >= 0 && !(is_pinned && is_pinned[border]);
    if (time < least && may_go) {
      least = time;
      best = border;
    }
    last = i;
    time = 0;
  }
  return best;
}

void timed_join_pieces(TimedNodes *t, const bool *is_pinned) {
  Arena *arena = t->search->arena;
  const TimedSample *sample = exact_sample(t, 1, 0);
  bool *is_kept = ARENA_ARRAY(arena, bool, t->of.chain.n);
  int n = t->of.chain.n;
  for (int i = 0; i + 1 < n; i++) is_kept[i] = true;
  if (sample) leave_costly(t, sample, is_pinned, is_kept);
  int left = 1;
  for (int i = 0; i + 1 < n; i++) left += is_kept[i];
  for (; sample && left > MOST_TIMED_PIECES; left--) {
    int border = least_border(t, sample, is_pinned, is_kept);
    if (border < 0) break;
    is_kept[border] = false;
  }
  timed_chain_thin(arena, &t->of, is_kept);
  t->samples.n = 0; /* of other pieces */
}
