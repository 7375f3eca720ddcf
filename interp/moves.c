/*
 * moves.c -- the interpreter's functions for operators that make or keep
 * elements of any number system: views, positions, random numbers.
 */
#include <string.h>

#include "interp/internal.h"
#include "interp/numbers.h"

/* Views keep the bytes.  Collectives change placements, and the interpreter
 * knows only logical values. */
void interp_copy_all(const InterpCall *call) {
  for (int i = 0; i < call->node->n_results; i++) {
    const Tensor *from = &call->inputs[i];
    int64_t n = type_elements(call->results[i].type);
    ASSERT(n == type_elements(from->type));
    numbers_copy(call->numbers, from->type->dtype,
                 tensor_array(&call->results[i]), tensor_array(from), n);
  }
}

/* The dim turns by `shift` places. */
void interp_permute(const InterpCall *call) {
  Name dim = node_name(call->node, ATTR_dim);
  int64_t shift = node_int(call->node, ATTR_shift, 0);
  for (int r = 0; r < call->node->n_results; r++) {
    const Tensor *from = &call->inputs[r], *to = &call->results[r];
    int64_t n = type_size(to->type, dim), inner = type_stride(to->type, dim);
    int64_t runs = type_elements(to->type) / inner;
    for (int64_t run = 0; run < runs; run++) {
      int64_t at = run % n, source = ((at - shift) % n + n) % n;
      numbers_copy(call->numbers, to->type->dtype,
                   numbers_at(call->numbers, to->type->dtype, tensor_array(to),
                              run * inner),
                   numbers_at(call->numbers, to->type->dtype,
                              tensor_array(from), (run - at + source) * inner),
                   inner);
    }
  }
}

/* By name too: where a pass has chosen another order, a cast goes with it.
 * Floats beyond an integer dtype become its end, integers wrap. */
void interp_cast_f64(const InterpCall *call) {
  const Tensor *y = &call->results[0];
  DType to = y->type->dtype;
  interp_copy_by_name_f64(call);
  if (dtype_class(to) != CLASS_INT ||
      dtype_class(call->inputs[0].type->dtype) != CLASS_FLOAT)
    return;
  int64_t n = type_elements(y->type);
  for (int64_t i = 0; i < n; i++)
    y->data[i] = (double)dtype_integer(to, y->data[i]);
}

void interp_iota(const InterpCall *call) {
  int64_t n = type_elements(call->results[0].type);
  int64_t first = interp_position(call, 0);
  for (int64_t i = 0; i < n; i++)
    call->results[0].data[i] = (double)(first + i);
}

static double random_element(const Node *node, uint64_t key, uint64_t step,
                             uint64_t index) {
  switch (node->op) {
  case OP_random_uniform: return random_uniform_of_step(key, step, index);
  case OP_random_normal: return random_normal_of_step(key, step, index);
  default:
    return random_keep(key, step, index, node_float(node, ATTR_value, 0));
  }
}

/* One random number for each element, counted in the order of the result's
 * logical type, so that a shard has the numbers of its part. */
void interp_random(const InterpCall *call) {
  const Tensor *y = &call->results[0];
  const Type *type = y->type;
  uint64_t seed = (uint64_t)(int64_t)call->inputs[0].data[0];
  uint64_t step = (uint64_t)(int64_t)call->inputs[1].data[0];
  const char *stream = node_name(call->node, ATTR_stream);
  uint64_t key =
      random_stream(seed, (uint32_t)hash_bytes(stream, strlen(stream), 0));
  int n;
  const int64_t *sizes = node_ints(call->node, ATTR_sizes, &n);
  Loops loops = {0};
  loops_add_type(&loops, type);
  loops_bind(&loops, type);
  int64_t base = 0, stride = 1;
  for (int d = type->rank - 1; d >= 0; d--) {
    loops.strides[0][d] = stride;
    base += interp_position(call, d) * stride;
    stride *= call->place ? sizes[d] : type->dims[d].size;
  }
  int64_t at = 0;
  for (bool more = loops_start(&loops); more; more = loops_next(&loops)) {
    double number = random_element(call->node, key, step,
                                   (uint64_t)(base + loops.offset[0]));
    numbers_from_doubles(
        call->numbers, type->dtype,
        numbers_at(call->numbers, type->dtype, tensor_array(y), at++), &number,
        1);
  }
}
