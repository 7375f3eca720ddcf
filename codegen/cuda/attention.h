/*
 * attention.h -- joins the parts of CUDA's attention: attention.c puts shapes,
 * strides and pointers in front of a body; attention_scalar.c and
 * attention_tensor.c have the bodies.
 */
#ifndef CODEGEN_CUDA_ATTENTION_H
#define CODEGEN_CUDA_ATTENTION_H

#include "codegen/cuda/cuda.h"

/* The shared memory of a block that every GPU grants without asking. */
#define SHARED_LIMIT (48 * 1024)

/* q, k, v, o and lse share batch dims, of which k and v may lack some. */
typedef struct Shape {
  int n_batch;
  int64_t batch[MAX_RANK];
  bool in_keys[MAX_RANK]; /* k and v have the dim */
  int64_t t_q, t_k, d_k, d_v;
  bool is_causal;
  bool has_unit_heads; /* an element of a head is next to the one before */
  /* Split of causal queries, whose positions depend on the rank. */
  AxisList split;
  double scale;
  DType dtype; /* dtype of all but lse, which is f32 */
} Shape;

/* Queries and keys of a block. */
typedef struct BlockRows {
  int queries, keys;
} BlockRows;

/* One way to compute attention.  Its texts are C.  In front of each stand the
 * constants T_Q, T_K, D_K, D_V, CAUSAL and those of `sizes`; `scale`; pointers
 * and strides (q, q_row, q_head, ...; out in the forward pass; g, dq, dk, dv in
 * the gradient); `first`, the first query or key of the block.  `@` adds the
 * queries before those of this rank to a position, `$` is the name of the
 * dtype. */
typedef struct AttentionText {
  int threads; /* threads of a block */
  BlockRows (*rows)(const Shape *shape, bool is_grad);
  void (*sizes)(Text *text, const Shape *shape, bool is_grad);
  const char *helpers;     /* text before all kernels, once */
  const char *begin, *end; /* around each kernel */
  const char *forward;     /* up to what it saves of a row: */
  const char *lse;         /* its maximum + log(sum), */
  const char *relative;    /* or maximum and sum apart */
  const char *forward_end;
  const char *shared;    /* the shared memory of a gradient */
  const char *query;     /* dq of the queries of a block */
  const char *key_begin; /* loads the keys of a block, clears dk and dv */
  /* Adds what the queries of a head from q_first on give. */
  const char *key_loop;
  const char *key_end; /* stores dk and dv */
} AttentionText;

extern const AttentionText attention_scalar; /* every shape and dtype */
extern const AttentionText attention_tensor;

/* Returns whether the tensor-core kernel takes this shape: 16-bit floats with
 * heads of 8, 16, ... 128. */
bool attention_fits_tensor_cores(const Shape *shape);

#endif
