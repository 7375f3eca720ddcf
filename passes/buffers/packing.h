/*
 * packing.h -- offsets for buffers whose live ranges are known.
 */
#ifndef PASSES_PACKING_H
#define PASSES_PACKING_H

#include "support/support.h"

typedef struct PackedBuffer {
  int64_t bytes;
  int first, last; /* nodes that it is live through, both included */
  int64_t offset;  /* the result */
} PackedBuffer;

/* Returns the largest sum of bytes that are live at once. */
int64_t most_live_bytes(Arena *scratch, const PackedBuffer *buffers, int n,
                        int n_nodes);
/* Gives each buffer an aligned offset from `base` on, such that no two that are
 * live at once overlap.  Returns the end of the highest one.  Nodes are from 0
 * to n_nodes, where the last stands for the end of the graph. */
int64_t pack_buffers(Arena *scratch, PackedBuffer *buffers, int n, int n_nodes,
                     int64_t alignment, int64_t base);

#endif
