/*
 * scatter.c -- emits scatter_add, such as the gradient of an embedding, for
 * tables of many rows.
 *
 * A warp owns some rows of the result and 128 columns.  It clears them, walks
 * over all positions and adds those rows of the operand whose position is one
 * of its own, so each sum is in the order of the positions, without atomics.
 * The positions pass through shared memory, a chunk at a time.  Walking over
 * positions of others costs a compare, which is less than waiting for one
 * thread that adds everything in order.
 */
#include "codegen/cuda/cuda.h"
#include "codegen/select.h"

#include <string.h>

enum {
  WARPS = 8,
  COLUMNS = 128,      /* of a warp, four for each lane */
  CHUNK = 1024,       /* positions in shared memory */
  WANTED_WARPS = 1056 /* eight for each of 132 multiprocessors */
};

/* The dims that rows and result share, and the dims that are summed away. */
typedef struct Scatter {
  int n_outer, n_over;
  int64_t outer[MAX_RANK], to[MAX_RANK], from[MAX_RANK];
  int64_t over[MAX_RANK], over_from[MAX_RANK];
  int64_t columns, positions, rows, row_stride;
  DType dtype, index_dtype;
} Scatter;

/* False where positions differ from column to column, and for dtypes and sizes
 * that the emitted nest suits as well. */
static bool read_scatter(const Graph *graph, const Node *node, Scatter *out) {
  const Type *type = node->types[0];
  const Type *rows = graph_type(graph, node->inputs[0]);
  const Type *index = graph_type(graph, node->inputs[1]);
  Name dim = node_name(node, ATTR_dim);
  *out = (Scatter){
      .columns = 1,
      .positions = 1,
      .rows = type_local_size(type, &graph->mesh, type_find(type, dim)),
      .row_stride = local_stride(type, &graph->mesh, dim),
      .dtype = type->dtype,
      .index_dtype = index->dtype};
  for (int i = 0; i < type->rank; i++) {
    Name name = type->dims[i].name;
    if (name == dim) continue;
    if (type_find(index, name) >= 0) return false;
    out->outer[out->n_outer] = type_local_size(type, &graph->mesh, i);
    out->to[out->n_outer] = local_stride(type, &graph->mesh, name);
    out->from[out->n_outer] = local_stride(rows, &graph->mesh, name);
    out->columns *= out->outer[out->n_outer++];
  }
  for (int i = 0; i < index->rank; i++) {
    out->over[out->n_over] = type_local_size(index, &graph->mesh, i);
    out->over_from[out->n_over] =
        local_stride(rows, &graph->mesh, index->dims[i].name);
    out->positions *= out->over[out->n_over++];
  }
  for (int i = 0; i < rows->rank; i++)
    if (type_find(type, rows->dims[i].name) < 0 &&
        type_find(index, rows->dims[i].name) < 0)
      return false;
  bool has_dtypes = type->dtype == rows->dtype &&
                    (type->dtype == DT_f32 || type->dtype == DT_f64) &&
                    (index->dtype == DT_i32 || index->dtype == DT_i64);
  return has_dtypes && out->columns >= 16 && out->rows >= 64 &&
         out->positions >= 256 && out->rows < 1 << 30 &&
         out->positions < 1 << 30;
}

/* Adds to `offset` the elements that a number of all `size`s, the last one
 * fastest, is away. */
static void add_offset(Text *text, const char *number, const char *offset,
                       int n, const int64_t *size, const int64_t *stride) {
  text_printf(text, "    { int rest = %s;\n", number);
  for (int i = n - 1; i >= 0; i--) {
    text_printf(text, "    %s += (long long)(rest %% %lld) * %lld;", offset,
                (long long)size[i], (long long)stride[i]);
    text_printf(text, " rest /= %lld;\n", (long long)size[i]);
  }
  text_add(text, "    (void)rest; }\n");
}

/* Rows are dealt out in turn, because the frequent ones have small numbers
 * more often than not.  Eight rows are on their way at once, so that the wait
 * for memory is shared, and are added in order. */
static const char clear_body[] =
    "  for (int v = mine; v < ROWS; v += SHARES)\n"
    "    DNN_UNROLL for (int c = 0; c < 4; c++)\n"
    "      if (is_column[c]) args.out[to[c] + v * ROW] = 0;\n"
    "  for (int at = 0; at < POSITIONS; at += CHUNK) {\n"
    "    const int n = POSITIONS - at < CHUNK ? POSITIONS - at : CHUNK;\n"
    "    int found = 0;\n"
    "    __syncthreads();\n"
    "    for (int e = threadIdx.x; e < n; e += 256)\n"
    "      place[e] = (int)dnn_clamp_i64(args.index[at + e], ROWS);\n"
    "    __syncthreads();\n"
    "    for (int e = lane; e < CHUNK; e += 32) {\n"
    "      const int is_mine = e < n && place[e] % SHARES == mine;\n"
    "      const unsigned all = __ballot_sync(0xffffffffu, is_mine);\n"
    "      if (is_mine) list[warp][found + __popc(all & ((1u << lane) - 1))] "
    "=\n"
    "          (unsigned short)e;\n"
    "      found += __popc(all);\n"
    "    }\n"
    "    __syncwarp();\n"
    "    for (int f = 0; f < found; f += 8) {\n"
    "      VALUE row[8][4];\n"
    "      DNN_UNROLL for (int u = 0; u < 8; u++) {\n"
    "        if (f + u >= found) break;\n"
    "        const int i = at + list[warp][f + u];\n"
    "        long long away = 0;\n";
static const char add_body[] =
    "        DNN_UNROLL for (int c = 0; c < 4; c++)\n"
    "          if (is_column[c]) row[u][c] = args.rows[from[c] + away];\n"
    "      }\n"
    "      DNN_UNROLL for (int u = 0; u < 8; u++) {\n"
    "        if (f + u >= found) break;\n"
    "        const int v = place[list[warp][f + u]];\n"
    "        DNN_UNROLL for (int c = 0; c < 4; c++)\n"
    "          if (is_column[c]) args.out[to[c] + v * ROW] += row[u][c];\n"
    "      }\n"
    "    }\n"
    "  }\n";

/* Returns the blocks of the launch. */
static int64_t scatter_body(Text *text, const Scatter *scatter) {
  int64_t tiles = (scatter->columns + COLUMNS - 1) / COLUMNS;
  int64_t most = (scatter->rows + WARPS - 1) / WARPS;
  int64_t groups = (WANTED_WARPS / tiles + WARPS - 1) / WARPS;
  if (groups > most) groups = most;
  if (groups < 1) groups = 1;
  text_printf(text,
              "  enum { COLUMNS = %lld, POSITIONS = %lld, ROWS = %lld,\n"
              "    TILES = %lld, SHARES = %lld, CHUNK = %d };\n"
              "  const long long ROW = %lld;\n",
              (long long)scatter->columns, (long long)scatter->positions,
              (long long)scatter->rows, (long long)tiles,
              (long long)(groups * WARPS), CHUNK,
              (long long)scatter->row_stride);
  text_add(text,
           "  DNN_SHARED int place[CHUNK];\n"
           "  DNN_SHARED unsigned short list[8][CHUNK];\n"
           "  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;\n"
           "  const int tile = blockIdx.x % TILES;\n"
           "  const int mine = (int)blockIdx.x / TILES * 8 + warp;\n"
           "  long long to[4], from[4];\n"
           "  int is_column[4];\n"
           "  DNN_UNROLL for (int c = 0; c < 4; c++) {\n"
           "    const int p = tile * 128 + c * 32 + lane;\n"
           "    is_column[c] = p < COLUMNS;\n"
           "    to[c] = from[c] = 0;\n");
  add_offset(text, "p", "to[c]", scatter->n_outer, scatter->outer, scatter->to);
  add_offset(text, "p", "from[c]", scatter->n_outer, scatter->outer,
             scatter->from);
  text_add(text, "  }\n");
  text_add(text, clear_body);
  add_offset(text, "i", "away", scatter->n_over, scatter->over,
             scatter->over_from);
  text_add(text, add_body);
  return tiles * groups;
}

bool cuda_emit_scatter(Module *module, const Graph *graph, int id,
                       KernelText *out) {
  const Node *node = graph->nodes.data[id];
  Scatter scatter;
  if (node->op != OP_scatter_add || !read_scatter(graph, node, &scatter))
    return false;
  Text body = text_create(module->arena);
  int64_t blocks = scatter_body(&body, &scatter);
  const char *type = cuda_storage(scatter.dtype);
  const char *index = cuda_storage(scatter.index_dtype);
  const char *content =
      arena_printf(module->arena, "%s %s %s", type, index, text_string(&body));
  char hex[33];
  hash_hex(content, strlen(content), hex);
  Name name = name_format(module->names, "scatter_add_%.12s", hex);
  Text text = text_create(module->arena);
  text_printf(&text,
              "#define VALUE %s\n"
              "typedef struct { const %s *rows; const %s *index; %s *out; } "
              "%s_args;\nDNN_KERNEL(%s, 256, 1) {\n%s}\n#undef VALUE\n",
              type, type, index, type, name, name, text_string(&body));
  *out = (KernelText){.name = name,
                      .text = text_string(&text),
                      .grid = {(uint32_t)blocks, 1, 1},
                      .block = {32 * WARPS, 1, 1},
                      .uses_barriers = true};
  return true;
}
