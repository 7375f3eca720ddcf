/*
 * edge_waits.h -- declares where a segment waits for messages between
 * stages.
 */
#ifndef PRICE_EDGE_WAITS_H
#define PRICE_EDGE_WAITS_H

#include "ir/program.h"
#include "price/shared_links.h"

/* A segment waits for a message before an instruction of its stage's list, or
 * at its end. */
typedef struct EdgeWait {
  int edge, instruction;
  LinkDirection direction; /* out: it writes a value that was sent */
} EdgeWait;
typedef VEC(EdgeWait) EdgeWaits;

/* Returns the waits of a segment by instruction, then by edge. */
EdgeWaits edge_waits_of(Arena *arena, const EntryPoint *entry,
                        const ProgramStage *stage,
                        const ProgramSegment *segment);

#endif
