/*
 * list_schedule.h -- what the order pass promises and memory.c relies on: which
 * node computes which slot in place.
 */
#ifndef PASSES_ORDER_H
#define PASSES_ORDER_H

#include "passes/rewrite.h"

/* By output: the `input` node whose slot it replaces, or -1. */
int *output_slots(const Graph *graph, Arena *arena);
/* A fused node without reductions. */
bool fused_is_elementwise(const Node *node);
/* Writes a part of its first input and keeps the rest. */
bool node_writes_over(const Node *node, int input);
/* The result may take the bytes of the input: each element of the input is
 * read only where that of the result is written (rule 8 of fuse.c). */
bool fused_may_overwrite(const Graph *graph, int id, int result, int input);

#endif
