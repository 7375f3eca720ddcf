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
#ifndef VERIFY_RESIZE_H
#define VERIFY_RESIZE_H

#include "ir/ir.h"

typedef struct Resizing Resizing;

Resizing *resizing_create(Arena *arena);
/* Keeps the sizes of dims along which windows slide; called before graphs are
 * added. */
void resizing_keep_windows(Resizing *resizing);
/* A dim of more than RESIZE_MANY_SHARDS shards may have one element a shard;
 * before they are solved. */
enum { RESIZE_MANY_SHARDS = 32 };
void resizing_allow_one_element(Resizing *resizing);
/* Adds a graph that is to have the new sizes; called before they are solved. */
void resizing_add(Resizing *resizing, const Graph *graph);
void resizing_solve(Resizing *resizing);

/* Returns the new size of a dim; dims that no graph has keep theirs. */
int64_t resizing_size(const Resizing *resizing, Name dim, int64_t size);
/* Returns the new value of an integer that may be a size: an integer constant,
 * or the number of values that an index has.  It is the least of the sizes that
 * the integer may be. */
int64_t resizing_integer(const Resizing *resizing, int64_t value);
bool resizing_shrinks(const Resizing *resizing);
/* Appends the dims that have other sizes now, such as "B 1536 -> 256, T 2048 ->
 * 3", or those above `least` that have not. */
void resizing_print(Text *out, const Resizing *resizing, bool is_changed,
                    int64_t least);

/* Returns the graph at the new sizes, in the arena of its module.  Returns NULL
 * if a shape rule does not hold there. */
Graph *resizing_apply(const Resizing *resizing, const Graph *graph);

/* ---- for resize_graph.c ---- */

/* Returns the new start of a slice or pad of a pad, which scale as the dim
 * does. */
int64_t resizing_offset(const Resizing *resizing, Name dim, int64_t size,
                        int64_t offset);

#endif
