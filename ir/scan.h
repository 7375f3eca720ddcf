/*
 * scan.h -- declares what a scan is: a loop over one dim.
 */
#ifndef IR_SCAN_H
#define IR_SCAN_H

#include "ir/graph.h"

/* The order and number of the iterations. */
typedef struct ScanForm {
  Name dim;
  int64_t steps;
  bool is_reversed;
  int64_t unroll; /* iterations in one round of the emitted loop; 0 is 1 */
} ScanForm;
ScanForm scan_form(const Node *node);
/* Returns the number of carries, which come first among the inputs and among
 * the results. */
int scan_carries(const Node *node);
int64_t scan_steps(const Node *node);
bool scan_is_reversed(const Node *node);
/* Returns the dims of one iteration with the scanned one in front: the type of
 * a sliced value or a stacked result, its storage order included. */
const Type *scan_stacked_type(Arena *arena, const Type *position, Name dim,
                              int64_t steps);
/* Returns the role of input `index` of the body: carry, slice or arg. */
Role scan_input_role(const Node *node, int index);
/* Appends a scan over a body whose inputs and outputs have their roles; inputs
 * in the order of the body's. */
Value scan_append(Graph *graph, ScanForm form, const Value *inputs,
                  Graph *body);
/* Returns the scan with more stacked results: all that its gradient reads of
 * the forward pass.  Results that were there keep their places. */
Value scan_append_saving(Graph *graph, const Node *node, const Value *inputs);

#endif
