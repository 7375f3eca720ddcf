/*
 * messages.h -- declares the transfers that messages between programs are.
 */
#ifndef PRICE_MESSAGES_H
#define PRICE_MESSAGES_H

#include "ir/program.h"
#include "price/shared_links.h"

/* A program as the side of a message; its classes are the groups of its slice.
 */
typedef struct MessageSide {
  int program;
  RankRange ranks;           /* of the slice of all programs */
  const ClusterSlice *slice; /* these ranks */
  const CostModel *models;   /* by class */
  int queue;
} MessageSide;

enum { NO_TRANSFER = -1 };

/* The transfers of a message by class of each side; NO_TRANSFER: no rank of the
 * class has a piece of it. */
typedef struct MessageTransfers {
  const int *of_sender, *of_receiver;
  Bytes sent; /* by the rank that sends most */
} MessageTransfers;

/* Returns whether a message is on its way before its receiver comes, so that
 * its sender alone starts it: MPI sends chunks without an answer. */
bool message_goes_ahead(const CostModel *model);
/* Returns whether its sender may write the value again at once, because the
 * socket takes all of it. */
bool message_is_copied(const CostModel *model, const ProgramEdge *edge);
/* Adds the transfers of a message of an edge: from each rank of one side to the
 * rank of the other that has its number there, or in pieces.  Classes whose
 * ranks exchange come to one transfer together, but for receivers of a message
 * that goes ahead. */
MessageTransfers messages_add(Arena *arena, const ClusterSlice *slice,
                              const SharedLinks *links,
                              const MessageSide *sender,
                              const MessageSide *receiver,
                              const ProgramEdge *edge, SimTransfers *transfers);

#endif
