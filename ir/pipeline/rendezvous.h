/*
 * rendezvous.h -- declares the proof that no rank of a program hangs.
 *
 * Ranks make calls and exchange messages, each in the order of its list.  A
 * message ends when its sender and its receiver have both come to it: there are
 * no buffers, and one queue a rank.  Messages have no tags: the first one that
 * a rank sends to another one is the first that the other one receives from it.
 *
 * The program ends if and only if the graph of its calls and messages has no
 * cycle.  A send and its receive are one node.  An edge leads from each action
 * to the next one of its rank, and from what writes a value to what reads it.
 *
 *     rank 0:  send to 1, receive from 1       the two sends wait for each
 *     rank 1:  send to 0, receive from 0       other: a cycle of two messages
 *
 * Ranks that run one list are a class, and the graph has the actions of the
 * class once.  Rank i of a class then exchanges a message with rank i of the
 * other class: the graph of all ranks covers that of the classes, so the one
 * has a cycle if and only if the other has.
 *
 * Between classes of different placements a message is several pieces, each of
 * one pair of ranks, and both sides make those of a call in the order of sender
 * and receiver.  Without a cycle the messages have an order in which all
 * classes can make them; in that order, and in each message by sender and
 * receiver, all pieces can be made, too.
 */
#ifndef IR_PIPELINE_RENDEZVOUS_H
#define IR_PIPELINE_RENDEZVOUS_H

#include "ir/pipeline/pipeline.h"

typedef enum RendezvousKind {
  RENDEZVOUS_call,
  RENDEZVOUS_send,
  RENDEZVOUS_receive
} RendezvousKind;

typedef struct RendezvousAction {
  RendezvousKind kind;
  int peer;        /* send, receive: class of the other rank */
  int64_t message; /* send, receive: number that both sides know it by */
  int64_t bytes;
  DType dtype;
} RendezvousAction;

/* Action `after` reads what `before` leaves; indices into the actions of the
 * class.  A `before` of -1 means that nothing leaves it. */
typedef struct RendezvousNeed {
  int before, after;
} RendezvousNeed;

/* Memory that holds a value from action `first` to action `last`. */
typedef struct RendezvousUse {
  int place; /* number of a frame or slot of the class */
  int first, last;
} RendezvousUse;

typedef struct RendezvousClass {
  int n_ranks; /* equal in classes that exchange messages */
  int n_actions, n_needs, n_uses;
  const RendezvousAction *actions;
  const RendezvousNeed *needs;
  const RendezvousUse *uses;
} RendezvousClass;

typedef struct RendezvousProgram {
  int n_classes;
  const RendezvousClass *classes;
} RendezvousProgram;

/* The actions that a rank makes in the order of its list. */
typedef enum RendezvousOrder {
  RENDEZVOUS_all,      /* calls and messages: what the proof assumes */
  RENDEZVOUS_messages, /* its messages and, beside them, its calls */
} RendezvousOrder;

typedef enum RendezvousVerdict {
  RENDEZVOUS_fine,
  RENDEZVOUS_mismatch, /* one side sends what the other does not receive */
  RENDEZVOUS_may_hang, /* a cycle, or a value that never comes */
  RENDEZVOUS_clash,    /* a frame or slot is used again too early */
} RendezvousVerdict;

typedef struct RendezvousPlace {
  int class, action; /* action -1: the end of its list */
} RendezvousPlace;

typedef struct RendezvousResult {
  RendezvousVerdict verdict;
  /* mismatch: the first send and receive of two classes that differ; clash: the
   * last use of a place and the use that comes too early; may hang: a shortest
   * cycle, each of which waits for the one before it and the first for the last
   * one.  Both actions of a message are there, side by side.  A cycle of one
   * action: what it needs never comes. */
  int n_places;
  const RendezvousPlace *places;
} RendezvousResult;

const char *rendezvous_verdict_text(RendezvousVerdict verdict);

RendezvousResult rendezvous_check(Arena *arena,
                                  const RendezvousProgram *program,
                                  RendezvousOrder order);
/* Does the same where equal ranks are not yet in classes: joins those that do
 * the same with ranks that do the same.  Places name classes of `program`. */
RendezvousResult rendezvous_check_folded(Arena *arena,
                                         const RendezvousProgram *program,
                                         RendezvousOrder order);

/* Returns what a pipeline with messages does, each rank as a class of
 * `n_ranks`. */
RendezvousProgram *pipeline_rendezvous(Arena *arena, const Pipeline *pipeline,
                                       int n_ranks);

/* ---- pipeline_hang.c ---- */

/* Returns the token at a place, or NULL at the end of a list. */
const Token *rendezvous_token(const Pipeline *pipeline, RendezvousPlace place);
/* Reports a mismatch, or ranks that may hang, at the places of the tokens that
 * a person wrote. */
void pipeline_report_hang(Arena *arena, Diags *diags, const Pipeline *pipeline,
                          const RendezvousResult *result);

#endif
