/*
 * scan_saving.h -- declares the marks by which the gradient of a scan knows
 * what the lines `remat` and `keep` of the plan say about values inside of it.
 */
#ifndef PASSES_TRAIN_SCAN_SAVING_H
#define PASSES_TRAIN_SCAN_SAVING_H

#include "passes/rewrite.h"

/* Returns the body of a scan, or a copy in the module's arena with the
 * attribute `recompute` on every node that a line names. */
Graph *scan_saving_mark(PassContext *ctx, const Node *scan);
/* Takes the marks out of all bodies in the graph, which must own them. */
void scan_saving_drop_marks(Graph *graph);

#endif
