/*
 * attention.c -- emits attention and its gradient as CUDA kernels that never
 * store the T x T scores.
 *
 *   forward   A block takes some queries of one head and walks over tiles of
 *             keys with a running maximum and sum of each row (Milakov and
 *             Gimelshein 2018; Dao et al. 2022).
 *   backward  Scores are computed again from lse.  The first blocks take some
 *             queries each and compute dq, the others some keys each and
 *             compute dk and dv.  No block adds to the results of another, so
 *             there are no atomics and the order of sums is fixed; this costs
 *             two matmuls more than atomics would.
 *
 * The sums of a block are computed by one of two texts: on tensor cores for
 * 16-bit floats (attention_tensor.c), else on CUDA cores (attention_scalar.c).
 * A text is the same for all shapes; sizes and strides are constants in front
 * of it.
 *
 * A rank may have a shard of the queries: a run-time number says how many
 * queries come before it, and `@` in the text below adds it to a position.
 */
#include "codegen/cuda/attention.h"
#include "codegen/positions.h"

#include <string.h>

/* ---- shapes ---- */

enum { Q, K, V, O, LSE, N_TENSORS };

/* Element strides of one tensor. */
typedef struct Strides {
  int64_t batch[MAX_RANK], row, head;
} Strides;

static const Type *tensor_type(const Graph *graph, const Node *node,
                               int which) {
  bool is_grad = node->op == OP_attention_grad;
  if (which <= V || is_grad) return graph_type(graph, node->inputs[which]);
  return node->types[which - O];
}

/* The one dim of v that is neither key nor batch. */
static Name find_value_dim(const Graph *graph, const Node *node, int *out_n) {
  const Type *v = tensor_type(graph, node, V),
             *lse = tensor_type(graph, node, LSE);
  Name key = node_name(node, ATTR_key), width = NULL;
  *out_n = 0;
  for (int i = 0; i < v->rank; i++) {
    Name dim = v->dims[i].name;
    if (dim == key || type_find(lse, dim) >= 0) continue;
    width = dim;
    ++*out_n;
  }
  return width;
}

static int64_t local_size(const Graph *graph, const Type *type, Name dim) {
  return type_local_size(type, &graph->mesh, type_find(type, dim));
}

static Shape attention_shape(const Graph *graph, const Node *node) {
  const Type *q = tensor_type(graph, node, Q), *k = tensor_type(graph, node, K);
  const Type *v = tensor_type(graph, node, V),
             *lse = tensor_type(graph, node, LSE);
  Name query = node_name(node, ATTR_query), key = node_name(node, ATTR_key);
  int n;
  const Name *over = node_names(node, ATTR_over, &n);
  Shape shape = {.t_q = local_size(graph, q, query),
                 .t_k = local_size(graph, k, key),
                 .d_k = local_size(graph, q, over[0]),
                 .d_v = local_size(graph, v, find_value_dim(graph, node, &n)),
                 .is_causal = node_int(node, ATTR_causal, 0) != 0,
                 .scale = node_float(node, ATTR_scale, 1),
                 .dtype = q->dtype};
  if (shape.is_causal) shape.split = q->dims[type_find(q, query)].split;
  for (int i = 0; i < lse->rank; i++) {
    if (lse->dims[i].name == query) continue;
    shape.batch[shape.n_batch] = type_local_size(lse, &graph->mesh, i);
    shape.in_keys[shape.n_batch++] = type_find(k, lse->dims[i].name) >= 0;
  }
  return shape;
}

static Strides tensor_strides(const Graph *graph, const Node *node, int which) {
  const Type *type = tensor_type(graph, node, which);
  const Type *lse = tensor_type(graph, node, LSE);
  Name query = node_name(node, ATTR_query), key = node_name(node, ATTR_key);
  Strides strides = {.row = 0};
  int64_t stride = 1;
  for (int i = type->rank - 1; i >= 0; i--) {
    Name dim = type->dims[i].name;
    int at = 0;
    bool is_batch = false;
    for (int b = 0; b < lse->rank; b++) {
      if (lse->dims[b].name == query) continue;
      if (lse->dims[b].name == dim) {
        strides.batch[at] = stride;
        is_batch = true;
      }
      at++;
    }
    if (dim == query || dim == key) {
      strides.row = stride;
    } else if (!is_batch) {
      strides.head = stride;
    }
    stride *= type_local_size(type, &graph->mesh, i);
  }
  return strides;
}

static bool has_same_batch(const Type *k, const Type *v, const Type *lse) {
  for (int i = 0; i < lse->rank; i++)
    if ((type_find(k, lse->dims[i].name) >= 0) !=
        (type_find(v, lse->dims[i].name) >= 0))
      return false;
  return true;
}

/* All tensors have one float dtype; lse is f32. */
static bool has_one_dtype(const Graph *graph, const Node *node) {
  DType dtype = graph_type(graph, node->inputs[Q])->dtype;
  bool is_grad = node->op == OP_attention_grad;
  for (int i = 0; i < node->n_inputs; i++)
    if (graph_type(graph, node->inputs[i])->dtype !=
        (is_grad && i == LSE ? DT_f32 : dtype))
      return false;
  for (int i = 0; i < node->n_results; i++)
    if (node->types[i]->dtype != (!is_grad && i >= 1 ? DT_f32 : dtype))
      return false;
  return dtype_is_rounded(dtype);
}

bool cuda_has_attention_kernel(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  if (!has_one_dtype(graph, node)) return false;
  int n_over, n_width;
  node_names(node, ATTR_over, &n_over);
  if (node->op == OP_attention && node->n_results < 2) return false;
  find_value_dim(graph, node, &n_width);
  if (n_over != 1 || n_width != 1) return false;
  if (!has_same_batch(tensor_type(graph, node, K), tensor_type(graph, node, V),
                      tensor_type(graph, node, LSE)))
    return false;
  Shape shape = attention_shape(graph, node);
  return shape.d_k <= CUDA_MAX_HEAD && shape.d_v <= CUDA_MAX_HEAD &&
         shape.t_q < 1 << 24 && shape.t_k < 1 << 24;
}

/* ---- in front of the bodies ---- */

static int64_t count_batches(const Shape *shape, bool keys_only) {
  int64_t n = 1;
  for (int i = 0; i < shape->n_batch; i++)
    if (!keys_only || shape->in_keys[i]) n *= shape->batch[i];
  return n;
}

static void add_sizes(Text *text, const AttentionText *way, const Shape *shape,
                      bool is_grad) {
  text_printf(text,
              "  enum { T_Q = %lld, T_K = %lld, D_K = %lld, D_V = %lld, CAUSAL "
              "= %d,\n    ",
              (long long)shape->t_q, (long long)shape->t_k,
              (long long)shape->d_k, (long long)shape->d_v, shape->is_causal);
  way->sizes(text, shape, is_grad);
  text_add(text, "  const float scale = ");
  cuda_constant(text, DT_f32, shape->scale);
  text_add(text, ";\n");
  if (shape->split) text_add(text, "  const int before = (int)args.before;\n");
}

/* Sets the loop variables x0.. of some batch dims from `number`: those that
 * keys have, those that keys lack, or both. */
static void add_batch_indices(Text *text, const Shape *shape,
                              const char *number, bool of_keys, bool of_rest) {
  text_printf(text, "  {\n  int rest = %s;\n", number);
  for (int i = shape->n_batch - 1; i >= 0; i--) {
    if (!(shape->in_keys[i] ? of_keys : of_rest)) continue;
    text_printf(text, "  x%d = rest %% %lld; rest /= %lld;\n", i,
                (long long)shape->batch[i], (long long)shape->batch[i]);
  }
  text_add(text, "  (void)rest;\n  }\n");
}

static void add_batch_declarations(Text *text, const Shape *shape) {
  for (int i = 0; i < shape->n_batch; i++)
    text_printf(text, "  int x%d = 0;\n", i);
}

/* A pointer to row 0 of the head. */
static void add_pointer(Text *text, const Shape *shape, const char *name,
                        const char *argument, bool is_const,
                        const Strides *strides) {
  bool is_lse = strcmp(name, "lse") == 0 || strcmp(name, "row_sum") == 0;
  text_printf(text, "  %s%s *%s = args.%s", is_const ? "const " : "",
              cuda_storage(is_lse ? DT_f32 : shape->dtype), name, argument);
  for (int i = 0; i < shape->n_batch; i++)
    if (strides->batch[i] != 0)
      text_printf(text, " + x%d * %lldLL", i, (long long)strides->batch[i]);
  text_add(text, ";\n");
}

static void add_row_strides(Text *text, const char *name,
                            const Strides *strides, bool has_head) {
  text_printf(text, "  const long long %s_row = %lld;\n", name,
              (long long)strides->row);
  if (has_head)
    text_printf(text, "  const long long %s_head = %lld;\n", name,
                (long long)strides->head);
}

/* ---- kernels ---- */

typedef struct Parts {
  Shape shape;
  const AttentionText *way;
  BlockRows rows;
  Strides strides[N_TENSORS];
  bool is_relative; /* maxima and sums in place of lse */
} Parts;

static void all_strides(Text *text, const Parts *parts) {
  static const char *const names[] = {"q", "k", "v", "o", "lse"};
  for (int i = 0; i < N_TENSORS; i++)
    add_row_strides(text, names[i], &parts->strides[i], i != LSE);
}

static int64_t tiles_of(int64_t n, int tile) {
  return (n + tile - 1) / tile;
}

static int64_t forward_kernel(Text *text, const Parts *parts) {
  const Shape *shape = &parts->shape;
  const Strides *strides = parts->strides;
  int64_t n = tiles_of(shape->t_q, parts->rows.queries);
  add_sizes(text, parts->way, shape, false);
  all_strides(text, parts);
  /* Long rows of a causal mask come first. */
  text_printf(text,
              "  const int first = (%lld - 1 - blockIdx.x %% %lld) * %d;\n",
              (long long)n, (long long)n, parts->rows.queries);
  add_batch_declarations(text, shape);
  text_printf(text, "  const int head = blockIdx.x / %lld;\n", (long long)n);
  add_batch_indices(text, shape, "head", true, true);
  add_pointer(text, shape, "q", "q", true, &strides[Q]);
  add_pointer(text, shape, "k", "k", true, &strides[K]);
  add_pointer(text, shape, "v", "v", true, &strides[V]);
  add_pointer(text, shape, "out", "o", false, &strides[O]);
  add_pointer(text, shape, "lse", "lse", false, &strides[LSE]);
  if (parts->is_relative)
    add_pointer(text, shape, "row_sum", "sum", false, &strides[LSE]);
  text_add(text, parts->way->forward);
  text_add(text, parts->is_relative ? parts->way->relative : parts->way->lse);
  text_add(text, parts->way->forward_end);
  return n * count_batches(shape, false);
}

static void query_pointers(Text *text, const Parts *parts) {
  const Shape *shape = &parts->shape;
  const Strides *strides = parts->strides;
  add_pointer(text, shape, "q", "q", true, &strides[Q]);
  add_pointer(text, shape, "o", "o", true, &strides[O]);
  add_pointer(text, shape, "lse", "lse", true, &strides[LSE]);
  add_pointer(text, shape, "g", "g", true, &strides[O]);
}

static void key_pointers(Text *text, const Parts *parts) {
  add_pointer(text, &parts->shape, "k", "k", true, &parts->strides[K]);
  add_pointer(text, &parts->shape, "v", "v", true, &parts->strides[V]);
}

static int64_t backward_kernel(Text *text, const Parts *parts) {
  const Shape *shape = &parts->shape;
  const AttentionText *way = parts->way;
  int64_t n_q = tiles_of(shape->t_q, parts->rows.queries);
  int64_t n_k = tiles_of(shape->t_k, parts->rows.keys);
  int64_t query_blocks = n_q * count_batches(shape, false);
  add_sizes(text, way, shape, true);
  all_strides(text, parts);
  add_row_strides(text, "g", &parts->strides[O], true);
  text_add(text, way->shared);
  add_batch_declarations(text, shape);
  text_printf(text,
              "  if (blockIdx.x < %lld) {\n"
              "  const int first = (%lld - 1 - blockIdx.x %% %lld) * %d;\n"
              "  const int head = blockIdx.x / %lld;\n",
              (long long)query_blocks, (long long)n_q, (long long)n_q,
              parts->rows.queries, (long long)n_q);
  add_batch_indices(text, shape, "head", true, true);
  query_pointers(text, parts);
  key_pointers(text, parts);
  add_pointer(text, shape, "dq", "dq", false, &parts->strides[Q]);
  text_add(text, way->query);
  text_printf(text,
              "  return;\n  }\n"
              "  const int block = blockIdx.x - %lld;\n"
              "  const int first = block %% %lld * %d;\n"
              "  const int head = block / %lld;\n",
              (long long)query_blocks, (long long)n_k, parts->rows.keys,
              (long long)n_k);
  add_batch_indices(text, shape, "head", true, false);
  key_pointers(text, parts);
  add_pointer(text, shape, "dk", "dk", false, &parts->strides[K]);
  add_pointer(text, shape, "dv", "dv", false, &parts->strides[V]);
  text_add(text, way->key_begin);
  text_printf(text, "  const int q_first = %s;\n",
              shape->split       ? "first > before ? first - before : 0"
              : shape->is_causal ? "first"
                                 : "0");
  text_printf(
      text, "  for (int group = 0; group < %lld; group++) {\n",
      (long long)(count_batches(shape, false) / count_batches(shape, true)));
  add_batch_indices(text, shape, "group", false, true);
  query_pointers(text, parts);
  text_add(text, way->key_loop);
  text_add(text, "  }\n");
  text_add(text, way->key_end);
  return query_blocks + n_k * count_batches(shape, true);
}

static const char forward_arguments[] =
    "typedef struct { const %s *q, *k, *v; %s *o; float *lse%s;%s } %s_args;\n";
static const char backward_arguments[] =
    "typedef struct { const %s *q, *k, *v, *o; const float *lse;\n"
    "  const %s *g; %s *dq, *dk, *dv;%s } %s_args;\n";

/* With the name of the dtype for each `$`. */
static void add_for_dtype(Text *out, const char *text, const char *dtype) {
  for (const char *next; (next = strchr(text, '$')) != NULL; text = next + 1)
    text_printf(out, "%.*s%s", (int)(next - text), text, dtype);
  text_add(out, text);
}

static const char element_format[] = "#ifndef DNN_ELEMENT_%s\n"
                                     "#define DNN_ELEMENT_%s\n"
                                     "typedef %s dnn_element_%s;\n"
                                     "#endif\n";

/* The text of a kernel after its helpers, tile and arguments. */
static const char *kernel_text(Arena *arena, const Parts *parts, bool is_grad,
                               const char *name, const char *content) {
  const AttentionText *way = parts->way;
  DType dtype = parts->shape.dtype;
  const char *number = parts->shape.split ? " long long before;" : "";
  const char *label = dtype_name(dtype), *type = cuda_storage(dtype);
  Text text = text_create(arena);
  text_printf(&text, element_format, label, label, type, label);
  add_for_dtype(&text, way->helpers, label);
  if (is_grad)
    text_printf(&text, backward_arguments, type, type, type, number, name);
  else
    text_printf(&text, forward_arguments, type, type,
                parts->is_relative ? ", *sum" : "", number, name);
  add_for_dtype(&text, way->begin, label);
  text_printf(&text, "DNN_KERNEL(%s, %d, 1) {\n%s}\n", name, way->threads,
              content);
  text_add(&text, way->end);
  return text_string(&text);
}

bool cuda_emit_attention(const Backend *backend, Module *module,
                         const Graph *graph, int id, KernelText *out) {
  (void)backend;
  const Node *node = graph->nodes.data[id];
  bool is_grad = node->op == OP_attention_grad;
  if (!op_has(node->op, OP_FLAG_attends) ||
      !cuda_has_attention_kernel(graph, id))
    return false;
  Parts parts = {.shape = attention_shape(graph, node),
                 .is_relative = node_int(node, ATTR_relative, 0) != 0};
  parts.shape.has_unit_heads = true;
  for (int i = 0; i < N_TENSORS; i++) {
    parts.strides[i] = tensor_strides(graph, node, i);
    parts.shape.has_unit_heads &= i == LSE || parts.strides[i].head == 1;
  }
  parts.way = attention_fits_tensor_cores(&parts.shape) ? &attention_tensor
                                                        : &attention_scalar;
  parts.rows = parts.way->rows(&parts.shape, is_grad);
  Text body = text_create(module->arena);
  int64_t blocks =
      is_grad ? backward_kernel(&body, &parts) : forward_kernel(&body, &parts);
  AxisList split = parts.shape.split;
  Text expanded = positions_expand(module->arena, text_string(&body), split);
  const char *content = text_string(&expanded);
  char hex[33];
  hash_hex(content, strlen(content), hex);
  DType dtype = parts.shape.dtype;
  bool is_16bit = dtype_is_16bit(dtype);
  Name name = name_format(module->names, "attention%s%s%s_%.12s",
                          is_grad ? "_grad" : "", is_16bit ? "_" : "",
                          is_16bit ? dtype_name(dtype) : "", hex);
  *out = (KernelText){
      .name = name,
      .text = kernel_text(module->arena, &parts, is_grad, name, content),
      .number = {.split = split, .factor = parts.shape.t_q},
      .grid = {(uint32_t)blocks, 1, 1},
      .block = {(uint32_t)parts.way->threads, 1, 1},
      .uses_barriers = true};
  return true;
}
