/*
 * play_layout.h -- declares how the player gets to know a buffer assignment.
 */
#ifndef VERIFY_PLAY_LAYOUT_H
#define VERIFY_PLAY_LAYOUT_H

#include "passes/passes.h"
#include "verify/play/play.h"

/* Returns the assignment for the player; its arrays are those of the
 * assignment. */
const PlayLayout *play_layout(Arena *arena, const Graph *graph,
                              const BufferAssignment *assignment,
                              const Target *target);
/* Returns the assignments of all stages of an entry point. */
const PlayLayout *const *play_layouts(Arena *arena, const EntryPoint *entry,
                                      const Target *target);

#endif
