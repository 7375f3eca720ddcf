/*
 * count.h -- counts what the interpreter executes for a node: operations, and
 * the elements of operands and results that it reads and writes.
 *
 * count.c compiles the interpreter's text (structured.inc, moves.inc) for
 * numbers that remember from which element of which operand they come.  Every
 * arithmetic operation adds its price, every use of a number marks its element
 * as read.  No figure comes from a formula over sizes, and nothing of ir/work.c
 * or of the cost rules takes part; the prices are those of ops.def: exp, log
 * and the pointwise rows have their `flops`, other operations are one each.
 * Arithmetic on positions is none.
 */
#ifndef TESTS_COUNT_COUNT_H
#define TESTS_COUNT_COUNT_H

#include "interp/numbers.h"

enum { COUNT_OPERANDS = 8 };

typedef struct CountedOperand {
  bool *is_read;      /* by element; look-ups do not mark their table */
  int64_t n_read;     /* of these, how many are */
  int64_t n_moved;    /* elements of results that are elements of it */
  int64_t n_rows;     /* elements that look-ups read of it, or would where their
                         index is out of range */
  int64_t n_elements; /* all */
} CountedOperand;

typedef struct CountedResult {
  int64_t n_written, n_elements;
  int32_t *from; /* by element: the operand that it is an element of, or -1 */
  int64_t *at;   /* which element */
} CountedResult;

typedef struct Count {
  double flops;
  double padding;          /* operations that padding would take */
  double n_added_products; /* multiply-adds: among the operations, as two */
  double n_exponentials;
  /* Multiply-adds of a dot with an operand itself: row sums of attention. */
  double n_products_with[COUNT_OPERANDS];
  CountedOperand operands[COUNT_OPERANDS];
  CountedResult results[COUNT_OPERANDS];
} Count;

/* Runs the node at a place (NULL: logical) on operands of doubles, whose types
 * are local, into results of these types.  Operands of equal value are one: the
 * later ones have nothing read.  An integer operand's element counts as read
 * if another value changes a result. */
void count_node(const Graph *graph, const Node *node, const MeshPlace *place,
                const Tensor *inputs, const Type *const *result_types,
                Arena *arena, Count *out);
/* The operations of a whole graph without placements. */
double count_graph_flops(const Graph *graph, const Tensor *inputs,
                         Arena *arena);

#endif
