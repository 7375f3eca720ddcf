/*
 * attention.c -- emits attention and its gradient as C functions that never
 * store the matrix of scores.
 *
 * The forward kernel goes through the tiles of keys for each tile of queries;
 * the running maximum m and sum l of each row rescale the sum so far (Milakov
 * and Gimelshein 2018; Dao et al. 2022).  It saves lse = m + log l.  The
 * backward kernel goes through the tiles of queries for each tile of keys; it
 * computes scores again and turns them into probabilities by lse alone.
 *
 * Tiles are packed to dense rows, so that operands may have any order of dims,
 * and all matmuls are one micro-kernel of the prelude.  Tiles that a causal
 * mask empties are skipped.  A unit of work is one (batch, head) and in the
 * forward kernel one tile of queries; units share nothing.
 *
 * A rank may have a shard of the queries: a run-time number says how many
 * queries come before it, and `@` in the text below adds it to a position.
 */
#include <inttypes.h>
#include <string.h>

#include "codegen/c/emit.h"
#include "codegen/positions.h"

#define WIDTH        16 /* rows of tiles are padded to this, for any machine */
#define QUERY_TILE   32
#define KEY_TILE     64
#define LARGEST_HEAD 256
#define MAX_OPERANDS 9
#define LSE          4 /* operand: log of the sums, always f32 */
#define SUM          5 /* the sums, where LSE has the maxima: f32 too */

/* ---- dims and dtypes of the node ---- */

typedef struct Attention {
  Name query, key, width, value;
  int n_batch;
  Name batch[MAX_RANK];
  int64_t sizes[MAX_RANK]; /* of batch */
  int64_t t, s, d, e;
  double scale;
  bool is_causal, is_grad;
  AxisList split; /* of causal queries, whose positions depend on the rank */
  DType dtype;    /* of all operands but lse; computed in f32 */
  int n_operands;
  const Type *types[MAX_OPERANDS];
  const Mesh *mesh;
} Attention;

static int64_t operand_stride(const Attention *at, int operand, Name name) {
  const Type *type = at->types[operand];
  int dim = type_find(type, name);
  if (dim < 0) return 0;
  int64_t stride = 1;
  for (int d = type->rank - 1; d > dim; d--)
    stride *= type_local_size(type, at->mesh, d);
  return stride;
}

static int64_t operand_size(const Attention *at, int operand, Name name) {
  const Type *type = at->types[operand];
  return type_local_size(type, at->mesh, type_find(type, name));
}

/* The one dim of v that is neither a key nor shared with q, or the width. */
static bool find_value_dim(Attention *at) {
  const Type *q = at->types[0], *v = at->types[2];
  for (int d = 0; d < v->rank; d++) {
    Name name = v->dims[d].name;
    if (name == at->key || (name != at->width && type_find(q, name) >= 0))
      continue;
    if (at->value) return false;
    at->value = name;
  }
  return at->value != NULL;
}

static bool find_batch_dims(Attention *at) {
  const Type *q = at->types[0];
  for (int d = 0; d < q->rank; d++) {
    Name name = q->dims[d].name;
    if (name == at->query || name == at->width) continue;
    for (int i = 1; i < at->n_operands; i++)
      if (type_find(at->types[i], name) < 0) return false;
    at->sizes[at->n_batch] = type_local_size(q, at->mesh, d);
    at->batch[at->n_batch++] = name;
  }
  return true;
}

static DType operand_dtype(const Attention *at, int operand) {
  bool is_sum = operand == LSE || (operand == SUM && !at->is_grad);
  return is_sum ? DT_f32 : at->dtype;
}

static bool read_attention(const Graph *graph, int id, Attention *at) {
  const Node *node = graph->nodes.data[id];
  if (node->n_inputs != (node->op == OP_attention ? 3 : 6)) return false;
  *at = (Attention){.mesh = &graph->mesh,
                    .query = node_name(node, ATTR_query),
                    .key = node_name(node, ATTR_key),
                    .scale = node_float(node, ATTR_scale, 1),
                    .is_causal = node_int(node, ATTR_causal, 0) != 0,
                    .is_grad = node->op == OP_attention_grad};
  for (int i = 0; i < node->n_inputs; i++)
    at->types[at->n_operands++] = graph_type(graph, node->inputs[i]);
  for (int r = 0; r < node->n_results; r++)
    at->types[at->n_operands++] = node->types[r];
  at->dtype = at->types[0]->dtype;
  if (!dtype_is_rounded(at->dtype)) return false;
  for (int i = 0; i < at->n_operands; i++)
    if (at->types[i]->dtype != operand_dtype(at, i)) return false;
  int n = 0;
  const Name *over = node_names(node, ATTR_over, &n);
  if (n != 1) return false;
  at->width = over[0];
  if (!find_value_dim(at) || !find_batch_dims(at)) return false;
  at->t = operand_size(at, 0, at->query);
  at->s = operand_size(at, 1, at->key);
  at->d = operand_size(at, 0, at->width);
  at->e = operand_size(at, 2, at->value);
  const Type *q = at->types[0];
  if (at->is_causal) at->split = q->dims[type_find(q, at->query)].split;
  return at->d <= LARGEST_HEAD && at->e <= LARGEST_HEAD;
}

bool c_has_attention_kernel(const Graph *graph, int id) {
  Attention at;
  return read_attention(graph, id, &at);
}

/* ---- the text ---- */

/* Operands: q k v o lse sum, or q k v o lse do dq dk dv. */
static const char *operand_name(const Attention *at, int operand) {
  static const char *const names[] = {"q", "k",  "v",  "o", "lse",
                                      "g", "dq", "dk", "dv"};
  return operand == SUM && !at->is_grad ? "sum" : names[operand];
}

static const char forward_text[] =
    "      _Alignas(64) float qt[TQ * DP], kt[D * TK], vt[TK * EP];\n"
    "      _Alignas(64) float st[TQ * TK];\n"
    "      _Alignas(64) float ot[TQ * EP], m[TQ], l[TQ];\n"
    "      const int tn = T - t0 < TQ ? T - t0 : TQ;\n"
    "      PACK(TQ, D, DP, tn, q + t0 * q_t, q_t, q_d, qt);\n"
    "      memset(ot, 0, sizeof ot);\n"
    "      for (int i = 0; i < TQ; i++) m[i] = -__builtin_inff(), l[i] = 0;\n"
    "      const int end = CAUSAL && t0@ + TQ < S ? t0@ + TQ : S;\n"
    "      for (int s0 = 0; s0 < end; s0 += TK) {\n"
    "        const int sn = S - s0 < TK ? S - s0 : TK;\n"
    "        PACK_COLUMN(TK, D, sn, k + s0 * k_s, k_s, k_d, kt);\n"
    "        PACK(TK, E, EP, sn, v + s0 * v_s, v_s, v_e, vt);\n"
    "        memset(st, 0, sizeof st);\n"
    "        dnn_tile(TQ, TK, D, qt, DP, 1, kt, TK, st, TK);\n"
    "        for (int i = 0; i < TQ; i++) {\n"
    "          int n = CAUSAL && t0@ + i - s0 + 1 < sn ? t0@ + i - s0 + 1 : "
    "sn;\n"
    "          float *x = st + i * TK, most = m[i], sum = 0;\n"
    "#pragma omp simd reduction(max : most)\n"
    "          for (int j = 0; j < TK; j++) {\n"
    "            x[j] = j < n ? x[j] * SCALE : -__builtin_inff();\n"
    "            most = x[j] > most ? x[j] : most;\n"
    "          }\n"
    "          float base = most == -__builtin_inff() ? 0.0f : most;\n"
    "#pragma omp simd reduction(+ : sum)\n"
    "          for (int j = 0; j < TK; j++) {\n"
    "            x[j] = EXP_f32(x[j] - base);\n"
    "            sum += x[j];\n"
    "          }\n"
    "          float scale = EXP_f32(m[i] - base);\n"
    "          m[i] = most;\n"
    "          l[i] = l[i] * scale + sum;\n"
    "          for (int j = 0; j < EP; j++) ot[i * EP + j] *= scale;\n"
    "        }\n"
    "        dnn_tile(TQ, EP, TK, st, TK, 1, vt, EP, ot, EP);\n"
    "      }\n"
    "      for (int i = 0; i < tn; i++) {\n"
    "        float scale = l[i] == 0 ? 0.0f : 1.0f / l[i];\n"
    "        for (int j = 0; j < E; j++)\n"
    "          o[(t0 + i) * o_t + j * o_e] = TO(ot[i * EP + j] * scale);\n";

static const char lse_text[] = "        lse[(t0 + i) * lse_t] = l[i] == 0 ? "
                               "0.0f : m[i] + LOG_f32(l[i]);\n";
static const char relative_text[] = "        lse[(t0 + i) * lse_t] = m[i];\n"
                                    "        sum[(t0 + i) * lse_t] = l[i];\n";

/* Probabilities (pt) and gradients of scores (st) of a pair of tiles. */
static const char scores_text[] =
    "        memset(st, 0, sizeof st);\n"
    "        memset(pt, 0, sizeof pt);\n"
    "        dnn_tile(TQ, TK, D, qt, DP, 1, kt, TK, st, TK);\n"
    "        dnn_tile(TQ, TK, E, gt, EP, 1, vt, TK, pt, TK);\n"
    "        for (int i = 0; i < TQ; i++) {\n"
    "          int n = CAUSAL && t0@ + i - s0 + 1 < sn ? t0@ + i - s0 + 1 : "
    "sn;\n"
    "          float delta = 0, base = 0;\n"
    "          if (i >= tn || n < 0) n = 0;\n"
    "          for (int j = 0; i < tn && j < E; j++)\n"
    "            delta += gt[i * EP + j] * FROM(o[(t0 + i) * o_t + j * o_e]);\n"
    "          if (i < tn) base = lse[(t0 + i) * lse_t];\n"
    "          float *x = st + i * TK, *y = pt + i * TK;\n"
    "#pragma omp simd\n"
    "          for (int j = 0; j < TK; j++) {\n"
    "            float p = EXP_f32(x[j] * SCALE - base);\n"
    "            p = j < n ? p : 0.0f;\n"
    "            x[j] = p * (y[j] - delta) * SCALE;\n"
    "            y[j] = p;\n"
    "          }\n"
    "        }\n";

static const char tiles_text[] =
    "    _Alignas(64) float qt[TQ * DP], gt[TQ * EP], kt[D * TK], kr[TK * "
    "DP];\n"
    "    _Alignas(64) float vt[E * TK];\n"
    "    _Alignas(64) float st[TQ * TK], pt[TQ * TK], qg[TQ * DP];\n"
    "    _Alignas(64) float kg[TK * DP], vg[TK * EP];\n";

static const char keys_text[] =
    "      const int sn = S - s0 < TK ? S - s0 : TK;\n"
    "      PACK_COLUMN(TK, D, sn, k + s0 * k_s, k_s, k_d, kt);\n"
    "      PACK(TK, D, DP, sn, k + s0 * k_s, k_s, k_d, kr);\n"
    "      PACK_COLUMN(TK, E, sn, v + s0 * v_s, v_s, v_e, vt);\n";

static const char queries_text[] =
    "        const int tn = T - t0 < TQ ? T - t0 : TQ;\n"
    "        PACK(TQ, D, DP, tn, q + t0 * q_t, q_t, q_d, qt);\n"
    "        PACK(TQ, E, EP, tn, g + t0 * g_t, g_t, g_e, gt);\n";

static const char store_dq_text[] =
    "        for (int i = 0; i < tn; i++)\n"
    "          for (int j = 0; j < D; j++)\n"
    "            dq[(t0 + i) * dq_t + j * dq_d] = TO(qg[i * DP + j]);\n";

static const char store_dkv_text[] =
    "      for (int i = 0; i < sn; i++) {\n"
    "        for (int j = 0; j < D; j++)\n"
    "          dk[(s0 + i) * dk_s + j * dk_d] = TO(kg[i * DP + j]);\n"
    "        for (int j = 0; j < E; j++)\n"
    "          dv[(s0 + i) * dv_s + j * dv_e] = TO(vg[i * EP + j]);\n"
    "      }\n"
    "    }\n";

/* The gradient of q is a sum over tiles of keys, stored in memory in f32.
 * Where dq is a 16-bit float and there are several tiles, a second pair of
 * loops computes it in tiles of its own. */
static void add_backward(Text *out, bool is_separate, bool is_shard) {
  text_add(out, tiles_text);
  text_add(out, "    for (int s0 = 0; s0 < S; s0 += TK) {\n");
  text_add(out, keys_text);
  text_add(out, "      memset(kg, 0, sizeof kg);\n"
                "      memset(vg, 0, sizeof vg);\n");
  text_add(out, is_shard ? "      const int first = s0 > before ? (s0 - before)"
                           " / TQ * TQ : 0;\n"
                         : "      const int first = CAUSAL ? s0 / TQ * TQ : "
                           "0;\n");
  text_add(out, "      for (int t0 = s0 == 0 ? 0 : first; t0 < T; t0 += TQ) "
                "{\n");
  text_add(out, queries_text);
  if (!is_separate)
    text_add(out, "        if (s0 == 0)\n"
                  "          memset(qg, 0, sizeof qg);\n"
                  "        else\n"
                  "          PACK(TQ, D, DP, tn, dq + t0 * dq_t, dq_t, dq_d, "
                  "qg);\n");
  text_add(out, scores_text);
  text_add(out, "        dnn_tile(TK, EP, TQ, pt, 1, TK, gt, EP, vg, EP);\n"
                "        dnn_tile(TK, DP, TQ, st, 1, TK, qt, DP, kg, DP);\n");
  if (!is_separate) {
    text_add(out, "        dnn_tile(TQ, DP, TK, st, TK, 1, kr, DP, qg, DP);\n");
    text_add(out, store_dq_text);
  }
  text_add(out, "      }\n");
  text_add(out, store_dkv_text);
  if (!is_separate) return;
  text_add(out, "    for (int t0 = 0; t0 < T; t0 += TQ) {\n");
  text_add(out, queries_text);
  text_add(out, "      memset(qg, 0, sizeof qg);\n"
                "      const int end = CAUSAL && t0@ + TQ < S ? t0@ + TQ : S;\n"
                "      for (int s0 = 0; s0 < end; s0 += TK) {\n");
  text_add(out, keys_text);
  text_add(out, scores_text);
  text_add(out, "        dnn_tile(TQ, DP, TK, st, TK, 1, kr, DP, qg, DP);\n"
                "      }\n");
  text_add(out, store_dq_text);
  text_add(out, "    }\n");
}

static int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

static void add_sizes(Text *out, const Attention *at) {
  int64_t tk = round_up(at->s, WIDTH);
  text_printf(out,
              "  enum { T = %" PRId64 ", S = %" PRId64 ", D = %" PRId64
              ", DP = %" PRId64 ", E = %" PRId64 ", EP = %" PRId64
              ", TQ = %d, TK = %" PRId64 ", CAUSAL = %d };\n",
              at->t, at->s, at->d, round_up(at->d, WIDTH), at->e,
              round_up(at->e, WIDTH),
              at->t < QUERY_TILE ? (int)round_up(at->t, 4) : QUERY_TILE,
              tk < KEY_TILE ? tk : KEY_TILE, at->is_causal);
  text_add(out, "  const float SCALE = (float)");
  text_add_real(out, at->scale);
  text_add(out, ";\n");
}

/* "const int64_t q_t = 1024, q_d = 1;" for each operand. */
static void add_strides(Text *out, const Attention *at) {
  const struct {
    char letter;
    Name name;
  } dims[] = {
      {'t', at->query}, {'s', at->key}, {'d', at->width}, {'e', at->value}};
  for (int i = 0; i < at->n_operands; i++)
    for (int k = 0; k < 4; k++)
      if (type_find(at->types[i], dims[k].name) >= 0)
        text_printf(out, "  const int64_t %s_%c = %" PRId64 ";\n",
                    operand_name(at, i), dims[k].letter,
                    operand_stride(at, i, dims[k].name));
}

/* Pointers to the unit's batch element; `u` numbers all of them. */
static void add_unit(Text *out, const Attention *at) {
  int n_inputs = at->is_grad ? 6 : 3;
  for (int i = 0; i < at->n_operands; i++)
    text_printf(out, "    %s%s *%s = buffers[%d];\n",
                i < n_inputs ? "const " : "", c_storage(operand_dtype(at, i)),
                operand_name(at, i), i);
  text_add(out, "    int64_t rest = u;\n");
  for (int b = at->n_batch - 1; b >= 0; b--) {
    text_printf(out,
                "    {\n      const int64_t l = rest %% %" PRId64
                ";\n      rest /= %" PRId64 ";\n",
                at->sizes[b], at->sizes[b]);
    for (int i = 0; i < at->n_operands; i++)
      text_printf(out, "      %s += l * %" PRId64 ";\n", operand_name(at, i),
                  operand_stride(at, i, at->batch[b]));
    text_add(out, "    }\n");
  }
  text_add(out, "    (void)rest;\n");
}

static void add_body(Text *out, const Attention *at) {
  int64_t units = 1;
  for (int b = 0; b < at->n_batch; b++) units *= at->sizes[b];
  add_sizes(out, at);
  add_strides(out, at);
  text_add(out, at->split ? "  const int before = (int)numbers[0];\n"
                          : "  (void)numbers;\n");
  if (at->is_grad) {
    text_printf(out,
                "#pragma omp parallel for schedule(static)\n"
                "  for (int64_t u = 0; u < %" PRId64 "; u++) {\n",
                units);
    add_unit(out, at);
    add_backward(out, at->dtype != DT_f32 && at->s > KEY_TILE, at->split);
    text_add(out, "  }\n}\n");
    return;
  }
  text_printf(out,
              "#pragma omp parallel for collapse(2) schedule(dynamic)\n"
              "  for (int64_t u = 0; u < %" PRId64 "; u++) {\n"
              "    for (int t0 = 0; t0 < T; t0 += TQ) {\n",
              units);
  add_unit(out, at);
  text_add(out, forward_text);
  if (at->n_operands > LSE)
    text_add(out, at->n_operands > SUM ? relative_text : lse_text);
  text_add(out, "      }\n    }\n  }\n}\n");
}

static const char *dtype_macros(Arena *arena, DType dtype) {
  const char *s = dtype_name(dtype);
  return arena_printf(arena,
                      "#undef PACK\n#undef PACK_COLUMN\n"
                      "#undef FROM\n#undef TO\n"
                      "#define PACK dnn_pack_%s\n"
                      "#define PACK_COLUMN dnn_pack_column_%s\n"
                      "#define FROM dnn_from_%s\n#define TO dnn_to_%s\n",
                      s, s, s, s);
}

bool c_emit_attention(const Backend *backend, Module *module,
                      const Graph *graph, int id, KernelText *out) {
  (void)backend;
  Op op = graph->nodes.data[id]->op;
  Attention at;
  if (!op_has(op, OP_FLAG_attends) || !read_attention(graph, id, &at))
    return false;
  Text marked = text_create(module->arena);
  text_printf(&marked, "  /* %s */\n", dtype_name(at.dtype));
  add_body(&marked, &at);
  Text body = positions_expand(module->arena, text_string(&marked), at.split);
  char hex[33];
  hash_hex(text_string(&body), body.n, hex);
  Name name =
      name_format(module->names, "dnn_%s_%.12s", op_info(op)->name, hex);
  *out = (KernelText){
      .name = name,
      .number = {.split = at.split, .factor = at.t},
      .text = arena_printf(
          module->arena,
          "%svoid %s(void *const *buffers, const int64_t *numbers) {\n%s",
          dtype_macros(module->arena, at.dtype), name, text_string(&body))};
  return true;
}
