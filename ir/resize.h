/*
 * resize.h -- finds smaller sizes for the dims of graphs by the equations of
 * their nodes, and copies a graph with these sizes.
 *
 * Every node that was right at the old sizes is right at the new ones, and the
 * placements stay.  A dim keeps which of its shard counts divide it, how many
 * shards are short or empty, and two elements a shard, unless it had fewer.
 * Dims of different sizes get different sizes where they can.  Float constants
 * stay as they are, so graphs that are to be compared must be resized together,
 * with the same constants in them.
 */
#ifndef IR_RESIZE_H
#define IR_RESIZE_H

#include "ir/ir.h"

typedef struct Resizing Resizing;

Resizing *resizing_create(Arena *arena);
/* Dims along which windows slide keep their sizes; before graphs are added. */
void resizing_keep_windows(Resizing *resizing);
/* A dim of more than RESIZE_MANY_SHARDS shards may have one element a shard;
 * before they are solved. */
enum { RESIZE_MANY_SHARDS = 32 };
void resizing_allow_one_element(Resizing *resizing);
/* Every graph that is to have the new sizes, before they are solved. */
void resizing_add(Resizing *resizing, const Graph *graph);
void resizing_solve(Resizing *resizing);

/* The new size of a dim; dims that no graph has keep theirs. */
int64_t resizing_size(const Resizing *resizing, Name dim, int64_t size);
/* The new value of an integer that may be a size: an integer constant, or the
 * number of values that an index has.  The least of the sizes that it may be.
 */
int64_t resizing_integer(const Resizing *resizing, int64_t value);
bool resizing_shrinks(const Resizing *resizing);
/* "B 1536 -> 256, T 2048 -> 3": the dims that have other sizes now, or those
 * above `least` that have not. */
void resizing_print(Text *out, const Resizing *resizing, bool is_changed,
                    int64_t least);

/* The graph at the new sizes, in the arena of its module; NULL: a shape rule
 * does not hold there. */
Graph *resizing_apply(const Resizing *resizing, const Graph *graph);

/* ---- for resize_graph.c ---- */

/* start of a slice and pads of a pad: they scale as the dim does. */
int64_t resizing_offset(const Resizing *resizing, Name dim, int64_t size,
                        int64_t offset);

#endif
