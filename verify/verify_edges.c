/*
 * verify_edges.c -- checks the messages between stages: that the tables say
 * what was played, and that no rank waits for ever.
 *
 * A message ends when both sides have come to it, and a rank comes to the next
 * one when the one before has ended: so all classes advance until nobody can.
 * Rank i of a class exchanges messages with rank i of another, or all ranks
 * exchange the pieces of one message, so one rank of each stands for all.  This
 * is what a machine without buffers does, and shares nothing with the proof of
 * the compiler (ir/pipeline/rendezvous.h).
 */
#include "verify/verify_steps.h"

#include <string.h>

static void note_edge(VerifyReport *report, const char *text) {
  report->messages_match = ANSWER_no;
  if (!report->message_fault) report->message_fault = text;
}

/* "rank 2 sends 'x' of edge 1 (stage 0 to stage 1), micro-batch 3". */
static const char *describe(Arena *arena, const VerifyStep *step, int rank,
                            const ProgramMessage *message) {
  const ProgramEdge *edge =
      &step->classes[0].entry.edges.data[message->collective.edge];
  bool is_sent = message->collective.kind == DNN_SEND;
  const char *when =
      message->microbatch < 0
          ? "once a step"
          : arena_printf(arena, "micro-batch %d", message->microbatch);
  return arena_printf(arena,
                      "in %s rank %d %s '%s' of edge %d (stage %d to stage "
                      "%d), %s",
                      step->name, rank, is_sent ? "sends" : "receives",
                      message->path, message->collective.edge, edge->from,
                      edge->to, when);
}

/* ---- what was played ---- */

/* The tables have the pieces that were played, of the side that sends or
 * receives. */
static bool has_pieces_of(const DnnCollective *collective,
                          const EdgePieces *played, const ProgramEdge *edge) {
  bool is_equal = collective->n_pieces == played->n;
  for (int i = 0; i < played->n && is_equal; i++) {
    const EdgePiece *piece = &played->data[i];
    const DnnPiece *own = &collective->pieces[i];
    bool is_sent = collective->kind == DNN_SEND;
    int from = edge->from_rank + piece->from, to = edge->to_rank + piece->to;
    const int64_t *at = is_sent ? piece->from_at : piece->to_at;
    is_equal = own->rank == (is_sent ? from : to) &&
               own->rank + own->peer == (is_sent ? to : from) &&
               own->run == piece->run && own->n_runs == piece->n_runs &&
               !memcmp(own->at, at, sizeof *at * (size_t)piece->n_runs);
  }
  return is_equal;
}

static bool is_as_played(const ProgramMessage *message,
                         const PlayEdgeMessage *played) {
  const DnnCollective *collective = &message->collective;
  DType dtype = (DType)collective->dtype;
  return collective->edge == played->edge && message->path == played->path &&
         (collective->kind == DNN_SEND) == played->is_sent &&
         collective->peer == played->peer && dtype == played->dtype &&
         message->elements * dtype_size_bytes(dtype) == played->bytes;
}

void verify_edges(VerifyReport *report, const VerifyStep *step, int first_rank,
                  const ProgramMessages *tables, const PlayMessages *played,
                  int *at, Arena *arena) {
  for (int i = 0; i < tables->between.n; i++) {
    const ProgramMessage *message = &tables->between.data[i];
    if (*at == played->between.n) {
      note_edge(report,
                arena_printf(arena, "%s, which was not played",
                             describe(arena, step, first_rank, message)));
      return;
    }
    const PlayEdgeMessage *other = &played->between.data[(*at)++];
    report->n_messages += other->is_sent;
    const ProgramEdge *edge =
        &step->classes[0].entry.edges.data[message->collective.edge];
    if (is_as_played(message, other) &&
        has_pieces_of(&message->collective, &other->pieces, edge))
      continue;
    note_edge(report,
              arena_printf(arena,
                           "%s; what was played is %lld bytes %s rank %d, "
                           "edge %d",
                           describe(arena, step, first_rank, message),
                           (long long)other->bytes,
                           other->is_sent ? "to" : "from",
                           first_rank + other->peer, other->edge));
  }
}

/* ---- order ---- */

/* The messages of a class, and how many of them have ended. */
typedef struct EdgeQueue {
  const ProgramMessages *messages;
  int rank, at;
} EdgeQueue;

static const ProgramMessage *next_message(const EdgeQueue *queue) {
  return queue->at < queue->messages->between.n
             ? &queue->messages->between.data[queue->at]
             : NULL;
}

/* NULL: no class begins there. */
static EdgeQueue *queue_of_rank(EdgeQueue *queues, int n, int rank) {
  for (int k = 0; k < n; k++)
    if (queues[k].rank == rank) return &queues[k];
  return NULL;
}

static bool pieces_meet(const DnnCollective *a, const DnnCollective *b) {
  bool meet = a->n_pieces == b->n_pieces;
  for (int i = 0; i < a->n_pieces && meet; i++) {
    const DnnPiece *x = &a->pieces[i], *y = &b->pieces[i];
    meet = x->rank + x->peer == y->rank && y->rank + y->peer == x->rank &&
           x->n_runs == y->n_runs && x->run == y->run;
  }
  return meet;
}

static bool is_one_message(const ProgramMessage *a, const ProgramMessage *b) {
  return a->collective.kind != b->collective.kind &&
         a->collective.edge == b->collective.edge &&
         a->microbatch == b->microbatch &&
         a->collective.dtype == b->collective.dtype &&
         (a->collective.pieces ? pieces_meet(&a->collective, &b->collective)
                               : a->elements == b->elements) &&
         a->collective.peer == -b->collective.peer;
}

/* The other side of the next message, if it has come to it. */
static EdgeQueue *other_side(EdgeQueue *queues, int n, const EdgeQueue *queue) {
  const ProgramMessage *own = next_message(queue);
  if (!own) return NULL;
  EdgeQueue *other =
      queue_of_rank(queues, n, queue->rank + own->collective.peer);
  const ProgramMessage *its = other ? next_message(other) : NULL;
  return its && is_one_message(own, its) ? other : NULL;
}

static void advance(EdgeQueue *queues, int n) {
  for (bool moves = true; moves;) {
    moves = false;
    for (int k = 0; k < n; k++) {
      EdgeQueue *other = other_side(queues, n, &queues[k]);
      if (!other) continue;
      queues[k].at++;
      other->at++;
      moves = true;
    }
  }
}

void verify_order(VerifyReport *report, const VerifySteps *steps,
                  const VerifyStep *step, const ProgramMessages *tables,
                  Arena *arena) {
  int n = steps->n_classes;
  EdgeQueue *queues = ARENA_ARRAY(arena, EdgeQueue, n);
  int n_all = n;
  n = 0;
  /* The first replica of a stage stands for all. */
  for (int k = 0; k < n_all; k++)
    if (step->classes[k].entry.stages.data[0].first_rank ==
        steps->first_rank[k])
      queues[n++] = (EdgeQueue){&tables[k], steps->first_rank[k], 0};
  advance(queues, n);
  for (int k = 0; k < n; k++) {
    const ProgramMessage *message = next_message(&queues[k]);
    if (!message) continue;
    report->hang_free = ANSWER_no;
    note_edge(report,
              arena_printf(arena, "%s, and waits for ever for rank %d",
                           describe(arena, step, queues[k].rank, message),
                           queues[k].rank + message->collective.peer));
  }
}
