/*
 * work.h -- declares what one launch computes and moves on one rank: the
 * figures from which traces and estimates of time are made.
 */
#ifndef IR_WORK_H
#define IR_WORK_H

#include "ir/ir.h"

typedef enum WorkClass {
#define WORKCLASS(name, meaning) WORK_##name,
#include "ir/opclass.def"
  N_WORK_CLASSES
} WorkClass;

typedef struct Work {
  WorkClass class;
  /* Dtype in which a contraction multiplies; of others that of the first
   * operand, or of the first result where there is no operand. */
  DType dtype;
  /* A contraction is `batch` products of [m, k] and [k, n]; others have 0.
   * Attention is two products: k is the sum of both. */
  int64_t batch, m, n, k;
  /* A matmul: those of an operand or of the result are no multiple of 16 bytes.
   */
  bool has_unaligned_rows;
  double flops;
  double padding; /* those of them that multiply a convolution's padding */
  int64_t read, written; /* bytes */
} Work;

/* A node with the sizes that one rank has. */
typedef struct WorkCall {
  const Node *node;           /* operator, attributes, body */
  const Type *const *inputs;  /* local sizes */
  const Type *const *results; /* local sizes */
  /* Mesh of the body's types; NULL means that they are local. */
  const Mesh *mesh;
} WorkCall;

const char *work_class_name(WorkClass class);
/* Returns the operations without those on padding, which kernels of a CPU leave
 * out. */
static inline double work_useful_flops(const Work *work) {
  return work->flops - work->padding;
}
/* Computes the work of an operator.  A look-up reads the rows that it takes, or
 * all of a smaller table; an update_slice reads and writes its row; a view
 * moves nothing. rules.def in tests/count lists what the interpreter does
 * otherwise. */
void op_work(Arena *scratch, const WorkCall *local, Work *out);
/* Returns the work of a node in one micro-batch on one rank, the first, whose
 * shards are the largest. */
Work node_work(const Graph *graph, int id);
/* Returns the elements that a rank sends in a group of n, for an operand and a
 * result of a collective with so many elements on a rank. */
int64_t collective_sent_elements(Op op, int64_t n, int64_t from, int64_t to);
/* Returns the bytes that a rank sends in one run of a collective, as
 * reshard.def counts them.  Returns 0 if ranks exchange nothing here. */
int64_t node_sent_bytes(const Graph *graph, int id);

#endif
