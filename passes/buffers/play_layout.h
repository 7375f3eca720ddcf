/*
 * play_layout.h -- declares how the player gets to know a buffer assignment.
 */
#ifndef PASSES_BUFFERS_PLAY_LAYOUT_H
#define PASSES_BUFFERS_PLAY_LAYOUT_H

#include "ir/interp/play.h"
#include "passes/passes.h"

/* Returns the assignment for the player; its arrays are those of the
 * assignment. */
const PlayLayout *play_layout(Arena *arena, const Graph *graph,
                              const BufferAssignment *assignment,
                              const Target *target);

#endif
