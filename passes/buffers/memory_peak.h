/*
 * memory_peak.h -- says what the transient bytes of a rank's arena are made of.
 */
#ifndef PASSES_MEMORY_PEAK_H
#define PASSES_MEMORY_PEAK_H

#include "passes/passes.h"

typedef enum PeakKind {
#define PEAK(name, words) PEAK_##name,
#include "passes/buffers/peak_kinds.def"
  N_PEAK_KINDS
} PeakKind;

const char *peak_kind_name(PeakKind kind);
const char *peak_kind_words(PeakKind kind);

typedef struct MemoryPeak {
  int64_t bytes[N_PEAK_KINDS]; /* bytes when the sum is largest */
  int64_t most[N_PEAK_KINDS];  /* each when it is largest itself */
  int64_t live;                /* the largest sum */
  int64_t packed;              /* transient bytes; more than `live` by holes */
  int node;                    /* the node that runs when the sum is largest */
} MemoryPeak;

/* Transient bytes that are in use from one node to another, both included. */
typedef struct MemoryValue {
  PeakKind kind;
  int64_t bytes;
  int first, last;
  int writer; /* the node that writes them first, or whose scratch they are */
} MemoryValue;

/* Returns all values of an entry point: buffers, then workspaces. */
MemoryValue *memory_values(Arena *arena, const Graph *graph,
                           const BufferAssignment *assignment,
                           const Target *target, int *out_n);

/* Returns the peak; `graph` and `assignment` are those of an entry point. */
MemoryPeak memory_peak(const Graph *graph, const BufferAssignment *assignment,
                       const Target *target);

/* ---- buffer_assignment.c ---- */

/* The nodes, both included, during which the bytes of a buffer are in use. */
typedef struct LiveRange {
  int64_t bytes;
  int first, last;
  bool is_persistent; /* or in host memory */
} LiveRange;

/* Returns the buffers of this graph, without workspaces.  `by_value` gets the
 * buffer of each value, as it is numbered in a BufferAssignment. */
LiveRange *buffer_live_ranges(Arena *arena, const Graph *graph, int *out_n,
                              const int **out_buffer_of);

#endif
