/*
 * links.h -- declares what calls leave for other calls, for the files of this
 * folder.
 */
#ifndef IR_PIPELINE_LINKS_H
#define IR_PIPELINE_LINKS_H

#include "ir/pipeline/pipeline.h"

/* Returns what tokens of one kind and stage have as the first number of a
 * PairMap; the second is the micro-batch. */
static inline int token_row(TokenKind kind, int stage) {
  return stage * N_TOKENS + (int)kind;
}

/* Returns the number, as Token.microbatch, of the call that writes or reads the
 * message of an edge. */
static inline int edge_writer(const PipelineEdge *edge, int microbatch) {
  return token_info(edge->from)->is_of_step ? edge->from_part : microbatch;
}
static inline int edge_reader(const PipelineEdge *edge, int microbatch) {
  return token_info(edge->to)->is_of_step ? edge->to_part : microbatch;
}

/* A value of one micro-batch, or of a step, from the call that writes it to one
 * that reads it. */
typedef struct CallLink {
  TokenPlace from; /* rank -1: no rank makes it */
  TokenPlace to;
  int edge; /* -1: between calls of one stage */
  int microbatch;
} CallLink;

typedef VEC(CallLink) CallLinks;

/* Returns the links of all calls, those of one stage first, then those of each
 * edge. */
CallLinks pipeline_links(Arena *arena, const Pipeline *pipeline);

/* Is told of each call, in one order of all ranks in which each call has what
 * it reads, and of the links that begin there.  Where calls wait for each other
 * in a circle one of them comes too early. */
typedef void SweepVisit(void *user, TokenPlace call, const CallLink *const *out,
                        int n_out);

/* Takes the first call of each rank that is ready, rank after rank, until there
 * are no more.  Calls that are joined are ready together. */
void pipeline_sweep(Arena *arena, const Pipeline *pipeline, SweepVisit *visit,
                    void *user);

#endif
