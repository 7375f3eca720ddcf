/*
 * onednn.c -- runs matmuls and convolutions by oneDNN, if it is installed.
 *
 * The library is found at run time and never linked.  An instruction becomes a
 * LibraryCall at start: primitives and memory objects bound to fixed places in
 * the arena, so that running one allocates nothing.  Its scratch memory is a
 * part of the arena as well: the compiler asks cpu_gemm_scratch and
 * cpu_conv_scratch, which use the same functions that bind the call.
 *
 * A call is a short list of steps: reorders of operands into layouts that the
 * fast kernels want (nearly always only the weights of a convolution), the
 * primitive itself, and a reorder of its result.  The program's layouts of
 * activations are tried first; if they would lead to a slow kernel, oneDNN
 * chooses.
 */
#include "runtime/cpu/cpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Room for any descriptor of version 2 (the largest has 5,976 bytes). */
typedef struct Desc {
  _Alignas(16) unsigned char bytes[8192];
} Desc;

typedef struct Argument {
  int kind;
  void *memory;
} Argument;

typedef struct Api {
#define ONEDNN(result, name, parameters) result(*name) parameters;
#include "runtime/cpu/onednn.def"
} Api;

/* Values of dnnl_types.h. */
enum {
  CPU = 1,
  OK = 0,
  FORWARD_TRAINING = 64,
  DIRECT = 1,
  TAG_ANY = 1,
  SCRATCHPAD_USER = 1,
  STREAM_DEFAULT = 1,
  QUERY_IMPLEMENTATION = 8,
  QUERY_SRC = 129,
  QUERY_DIFF_SRC = 130,
  QUERY_WEIGHTS = 131,
  QUERY_DIFF_WEIGHTS = 132,
  QUERY_DST = 133,
  QUERY_DIFF_DST = 134,
  QUERY_SCRATCHPAD = 136,
  ARG_SRC = 1,
  ARG_DST = 17,
  ARG_WEIGHTS = 33,
  ARG_SCRATCHPAD = 80,
  ARG_DIFF_SRC = 129,
  ARG_DIFF_DST = 145,
  ARG_DIFF_WEIGHTS = 161
};

enum { MAX_STEPS = 4, MAX_ARGUMENTS = 4, MAX_OBJECTS = 12, ALIGN = 64 };

struct Library {
  Arena *arena;
  Dylib *dylib;
  Api api;
  void *engine, *stream;
  LibraryCall *calls; /* to destroy */
};

typedef struct Step {
  void *primitive;
  Argument arguments[MAX_ARGUMENTS];
  int n;
} Step;

struct LibraryCall {
  Step steps[MAX_STEPS];
  int n_steps;
  void *memories[MAX_OBJECTS];
  int n_memories;
  void *operands[3]; /* memories of the buffers given */
  int n_operands;
  bool is_reference;
  LibraryCall *next;
};

/* An operand: its layout in the arena, and how the primitive wants it. */
typedef struct Operand {
  int argument, query;
  bool is_result;
  Desc own;
} Operand;

/* A primitive descriptor with its operands, before any memory is known. */
typedef struct Recipe {
  void *primitive_desc;
  int n_operands;
  Operand operand[3];
} Recipe;

/* Dtypes by oneDNN's numbers; 0: not for the library. */
enum {
  ONEDNN_none = 0,
#define ONEDNN_DTYPE(name, value) ONEDNN_##name = (value),
#include "runtime/cpu/onednn.def"
};
static const int library_dtypes[] = {
#define DTYPE(name, size_bytes, class, c_type, safetensors, npy, digits,       \
              least, greatest, reduce, nccl, cublaslt, onednn, ...)            \
  [DNN_##name] = ONEDNN_##onednn,
#include "support/dtype.def"
};

static bool load_api(Dylib *dylib, Api *api) {
  void *symbol;
#define ONEDNN(result, name, parameters)                                       \
  symbol = dylib_symbol(dylib, "dnnl_" #name);                                 \
  if (!symbol) return false;                                                   \
  memcpy(&api->name, &symbol, sizeof symbol);
#include "runtime/cpu/onednn.def"
  return true;
}

static Status open_library(Library *library) {
  static const char *const names[] = {"libdnnl.so.2", NULL};
  TRY(dylib_open("DNN_ONEDNN_LIB", names, &library->dylib));
  if (load_api(library->dylib, &library->api) &&
      library->api.version()[0] == 2 &&
      library->api.engine_create(&library->engine, CPU, 0) == OK &&
      library->api.stream_create(&library->stream, library->engine,
                                 STREAM_DEFAULT) == OK)
    return STATUS_OK;
  Status status =
      status_make(STATUS_unavailable, "'%s' is not oneDNN 2.x for this CPU",
                  dylib_path(library->dylib));
  library_close(library);
  return status;
}

Status library_open(Arena *arena, Library **out) {
  Library *library = ARENA_NEW(arena, Library);
  library->arena = arena;
  *out = NULL;
  TRY(open_library(library));
  *out = library;
  return STATUS_OK;
}

static void destroy_call(Library *library, LibraryCall *call) {
  for (int i = 0; i < call->n_steps; i++)
    library->api.primitive_destroy(call->steps[i].primitive);
  for (int i = 0; i < call->n_memories; i++)
    library->api.memory_destroy(call->memories[i]);
}

void library_close(Library *library) {
  if (!library) return;
  for (LibraryCall *call = library->calls; call; call = call->next)
    destroy_call(library, call);
  if (library->stream) library->api.stream_destroy(library->stream);
  if (library->engine) library->api.engine_destroy(library->engine);
  dylib_close(library->dylib);
}

/* ---- recipes ---- */

static bool describe_strided(const Api *api, Desc *desc, int rank,
                             const int64_t *dims, DnnDtype dtype,
                             const int64_t *strides) {
  return api->memory_desc_init_by_strides(desc, rank, dims,
                                          library_dtypes[dtype], strides) == OK;
}

/* Scratchpad in the arena; results added to what is there if `adds`. */
static void *create_attributes(const Api *api, bool adds) {
  void *attr = NULL, *post_ops = NULL;
  if (api->primitive_attr_create(&attr) != OK) return NULL;
  api->primitive_attr_set_scratchpad_mode(attr, SCRATCHPAD_USER);
  if (adds && api->post_ops_create(&post_ops) == OK) {
    api->post_ops_append_sum(post_ops, 1.0f);
    api->primitive_attr_set_post_ops(attr, post_ops);
    api->post_ops_destroy(post_ops);
  }
  return attr;
}

/* Batch dims that are absent are left out; a batch stride of 0 is a broadcast,
 * which oneDNN spells as size 1. */
static bool gemm_recipe(const Library *library, const DnnGemm *gemm,
                        Recipe *out) {
  const Api *api = &library->api;
  int64_t a_dims[4], b_dims[4], c_dims[4], a[4], b[4], c[4];
  int rank = 0;
  *out = (Recipe){.n_operands = 3};
  if (!library_dtypes[gemm->dtype] || !library_dtypes[gemm->c_dtype])
    return false;
  for (int i = 0; i < 2; i++) {
    if (gemm->batch[i] == 1) continue;
    a_dims[rank] = gemm->a_batch[i] ? gemm->batch[i] : 1;
    b_dims[rank] = gemm->b_batch[i] ? gemm->batch[i] : 1;
    c_dims[rank] = gemm->batch[i];
    a[rank] = gemm->a_batch[i] ? gemm->a_batch[i] : gemm->m * gemm->k;
    b[rank] = gemm->b_batch[i] ? gemm->b_batch[i] : gemm->k * gemm->n;
    c[rank++] = gemm->c_batch[i];
  }
  int i = rank, j = rank + 1;
  rank += 2;
  a_dims[i] = gemm->m, a_dims[j] = gemm->k, a[i] = gemm->a_i, a[j] = gemm->a_k;
  b_dims[i] = gemm->k, b_dims[j] = gemm->n, b[i] = gemm->b_k, b[j] = gemm->b_j;
  c_dims[i] = gemm->m, c_dims[j] = gemm->n, c[i] = gemm->c_i, c[j] = gemm->c_j;
  Operand *operand = out->operand;
  operand[0] = (Operand){.argument = ARG_SRC, .query = QUERY_SRC};
  operand[1] = (Operand){.argument = ARG_WEIGHTS, .query = QUERY_WEIGHTS};
  operand[2] =
      (Operand){.argument = ARG_DST, .query = QUERY_DST, .is_result = true};
  if (!describe_strided(api, &operand[0].own, rank, a_dims, gemm->dtype, a) ||
      !describe_strided(api, &operand[1].own, rank, b_dims, gemm->dtype, b) ||
      !describe_strided(api, &operand[2].own, rank, c_dims, gemm->c_dtype, c))
    return false;
  Desc op;
  if (api->matmul_desc_init(&op, &operand[0].own, &operand[1].own, NULL,
                            &operand[2].own) != OK)
    return false;
  void *attr = create_attributes(api, gemm->accumulate);
  int status = api->primitive_desc_create(&out->primitive_desc, &op, attr,
                                          library->engine, NULL);
  api->primitive_attr_destroy(attr);
  return status == OK;
}

typedef struct ConvDtypes {
  DnnDtype x, w, y;
} ConvDtypes;

/* The one of the three that is the result has a dtype of its own. */
static ConvDtypes conv_dtypes(const DnnConv *conv) {
  ConvDtypes dtypes = {conv->dtype, conv->dtype, conv->dtype};
  switch ((DnnConvKind)conv->kind) {
  case DNN_CONV_FORWARD: dtypes.y = conv->out_dtype; break;
  case DNN_CONV_INPUT_GRAD: dtypes.x = conv->out_dtype; break;
  case DNN_CONV_WEIGHT_GRAD: dtypes.w = conv->out_dtype; break;
  }
  return dtypes;
}

/* Descriptors of x, w and y as they lie in the arena. */
static bool describe_conv(const Api *api, const DnnConv *conv, Desc *x, Desc *w,
                          Desc *y) {
  int64_t groups = conv->groups;
  int64_t x_dims[4] = {conv->batch, conv->in_channels, conv->in[0],
                       conv->in[1]};
  int64_t y_dims[4] = {conv->batch, conv->out_channels, conv->out[0],
                       conv->out[1]};
  int64_t w_dims[5] = {groups, conv->out_channels / groups,
                       conv->in_channels / groups, conv->window[0],
                       conv->window[1]};
  int skip = groups == 1; /* no dim of groups */
  ConvDtypes dtypes = conv_dtypes(conv);
  return library_dtypes[conv->dtype] && library_dtypes[conv->out_dtype] &&
         describe_strided(api, x, 4, x_dims, dtypes.x, conv->x_stride) &&
         describe_strided(api, y, 4, y_dims, dtypes.y, conv->y_stride) &&
         describe_strided(api, w, 5 - skip, w_dims + skip, dtypes.w,
                          conv->w_stride + skip);
}

static bool describe_any(const Api *api, const DnnConv *conv, Desc *x, Desc *w,
                         Desc *y, bool frees_activations) {
  int64_t groups = conv->groups;
  int64_t x_dims[4] = {conv->batch, conv->in_channels, conv->in[0],
                       conv->in[1]};
  int64_t y_dims[4] = {conv->batch, conv->out_channels, conv->out[0],
                       conv->out[1]};
  int64_t w_dims[5] = {groups, conv->out_channels / groups,
                       conv->in_channels / groups, conv->window[0],
                       conv->window[1]};
  int skip = groups == 1;
  ConvDtypes dtypes = conv_dtypes(conv);
  if (api->memory_desc_init_by_tag(w, 5 - skip, w_dims + skip,
                                   library_dtypes[dtypes.w], TAG_ANY) != OK)
    return false;
  if (!frees_activations) return true;
  return api->memory_desc_init_by_tag(x, 4, x_dims, library_dtypes[dtypes.x],
                                      TAG_ANY) == OK &&
         api->memory_desc_init_by_tag(y, 4, y_dims, library_dtypes[dtypes.y],
                                      TAG_ANY) == OK;
}

static void *create_conv(const Library *library, const DnnConv *conv,
                         const Desc *x, const Desc *w, const Desc *y) {
  const Api *api = &library->api;
  int64_t dilate[2], after[2];
  for (int i = 0; i < 2; i++) {
    dilate[i] = conv->dilate[i] - 1; /* oneDNN counts the holes */
    after[i] = (conv->out[i] - 1) * conv->stride[i] +
               (conv->window[i] - 1) * conv->dilate[i] + 1 - conv->in[i] -
               conv->pad[i];
  }
  void *attr = create_attributes(api, false), *hint = NULL, *result = NULL;
  Desc op, like[3];
  const Desc *fx = x, *fw = w, *fy = y; /* of the forward pass */
  if (conv->kind != DNN_CONV_FORWARD && conv->out_dtype != conv->dtype) {
    DnnConv forward = *conv;
    forward.kind = DNN_CONV_FORWARD;
    forward.out_dtype = conv->dtype;
    describe_any(api, &forward, &like[0], &like[1], &like[2], true);
    fx = &like[0], fw = &like[1], fy = &like[2];
  }
  if (api->dilated_convolution_forward_desc_init(
          &op, FORWARD_TRAINING, DIRECT, fx, fw, NULL, fy, conv->stride, dilate,
          conv->pad, after) == OK)
    api->primitive_desc_create(&hint, &op, attr, library->engine, NULL);
  if (hint && conv->kind == DNN_CONV_FORWARD) {
    api->primitive_attr_destroy(attr);
    return hint;
  }
  int status = -1;
  if (hint && conv->kind == DNN_CONV_INPUT_GRAD)
    status = api->dilated_convolution_backward_data_desc_init(
        &op, DIRECT, x, w, y, conv->stride, dilate, conv->pad, after);
  else if (hint)
    status = api->dilated_convolution_backward_weights_desc_init(
        &op, DIRECT, x, w, NULL, y, conv->stride, dilate, conv->pad, after);
  if (status == OK)
    api->primitive_desc_create(&result, &op, attr, library->engine, hint);
  if (hint) api->primitive_desc_destroy(hint);
  api->primitive_attr_destroy(attr);
  return result;
}

static const char *implementation_name(const Api *api,
                                       const void *primitive_desc) {
  const char *name = NULL;
  int status =
      api->primitive_desc_query(primitive_desc, QUERY_IMPLEMENTATION, 0, &name);
  return status == OK && name ? name : "";
}

static bool is_slow(const Api *api, const void *primitive_desc) {
  const char *name = implementation_name(api, primitive_desc);
  return strstr(name, "ref") || strstr(name, "gemm");
}

/* For the gradient of weights of one pixel with a stride, oneDNN gathers the
 * pixels into scratch.  Where channels are last and fewer than a vector has
 * floats, it writes whole vectors past the end of that: results are wrong, and
 * with two threads it hangs (uxlfoundation/oneDNN issue 6035; seen in 2.6, in
 * f32 with AVX2, in bf16 with AVX-512). */
static bool overruns_scratch(const Api *api, const DnnConv *conv,
                             const void *primitive_desc) {
  enum { LONGEST_VECTOR = 16 };
  if (conv->kind != DNN_CONV_WEIGHT_GRAD ||
      conv->in_channels / conv->groups >= LONGEST_VECTOR ||
      (conv->stride[0] == 1 && conv->stride[1] == 1) ||
      !strstr(implementation_name(api, primitive_desc), "1x1"))
    return false;
  int64_t channels = conv->in_channels, width = conv->in[1];
  int64_t dims[4] = {conv->batch, channels, conv->in[0], width};
  int64_t strides[4] = {conv->in[0] * width * channels, 1, width * channels,
                        channels};
  Desc last;
  return describe_strided(api, &last, 4, dims, conv->dtype, strides) &&
         api->memory_desc_equal(
             api->primitive_desc_query_md(primitive_desc, QUERY_SRC, 0), &last);
}

/* In bf16 with AVX-512, convolutions of one pixel multiply channels in pairs.
 * Input gradients with an odd number of output channels were wrong for images
 * of 6 x 5 and 10 x 15 pixels and right for 7 x 7 (seen in 2.6).  Forward
 * passes that this implementation would run are refused too; they were not seen
 * to fail. */
static bool pairs_odd_channels(const Api *api, const DnnConv *conv,
                               const void *primitive_desc) {
  int64_t summed = conv->kind == DNN_CONV_INPUT_GRAD ? conv->out_channels
                                                     : conv->in_channels;
  return conv->kind != DNN_CONV_WEIGHT_GRAD && summed / conv->groups % 2 == 1 &&
         strstr(implementation_name(api, primitive_desc), "jit_bf16_1x1");
}

/* In bf16 with AVX-512 or AMX, gradients of weights of an image that is
 * narrower than the stride come from scratch that nothing has written (seen
 * in 2.6). */
static bool reads_stale_scratch(const Api *api, const DnnConv *conv,
                                const void *primitive_desc) {
  const char *name = implementation_name(api, primitive_desc);
  return conv->kind == DNN_CONV_WEIGHT_GRAD && conv->in[1] < conv->stride[1] &&
         (strstr(name, "jit_bf16") || strstr(name, "amx_bf16"));
}

static bool is_faulty(const Api *api, const DnnConv *conv,
                      const void *primitive_desc) {
  return overruns_scratch(api, conv, primitive_desc) ||
         pairs_odd_channels(api, conv, primitive_desc) ||
         reads_stale_scratch(api, conv, primitive_desc);
}

static bool conv_recipe(const Library *library, const DnnConv *conv,
                        Recipe *out) {
  const Api *api = &library->api;
  Desc own[3], chosen[3];
  *out = (Recipe){.n_operands = 3};
  if (!describe_conv(api, conv, &own[0], &own[1], &own[2])) return false;
  for (int frees_activations = 0; frees_activations < 2; frees_activations++) {
    memcpy(chosen, own, sizeof chosen);
    if (!describe_any(api, conv, &chosen[0], &chosen[1], &chosen[2],
                      frees_activations))
      return false;
    void *desc = create_conv(library, conv, &chosen[0], &chosen[1], &chosen[2]);
    if (desc && is_faulty(api, conv, desc)) {
      api->primitive_desc_destroy(desc);
      desc = NULL;
    }
    bool is_better = desc && !is_slow(api, desc);
    if (is_better || !out->primitive_desc) {
      if (out->primitive_desc) api->primitive_desc_destroy(out->primitive_desc);
      out->primitive_desc = desc;
    } else if (desc) {
      api->primitive_desc_destroy(desc);
    }
    if (is_better) break;
  }
  static const struct {
    int argument[3], query[3], order[3];
  } roles[] = {
      [DNN_CONV_FORWARD] = {{ARG_SRC, ARG_WEIGHTS, ARG_DST},
                            {QUERY_SRC, QUERY_WEIGHTS, QUERY_DST},
                            {0, 1, 2}},
      [DNN_CONV_INPUT_GRAD] = {{ARG_DIFF_DST, ARG_WEIGHTS, ARG_DIFF_SRC},
                               {QUERY_DIFF_DST, QUERY_WEIGHTS, QUERY_DIFF_SRC},
                               {2, 1, 0}},
      [DNN_CONV_WEIGHT_GRAD] = {{ARG_SRC, ARG_DIFF_DST, ARG_DIFF_WEIGHTS},
                                {QUERY_SRC, QUERY_DIFF_DST, QUERY_DIFF_WEIGHTS},
                                {0, 2, 1}},
  };
  for (int i = 0; i < 3; i++)
    out->operand[i] = (Operand){.argument = roles[conv->kind].argument[i],
                                .query = roles[conv->kind].query[i],
                                .is_result = i == 2,
                                .own = own[roles[conv->kind].order[i]]};
  return out->primitive_desc != NULL;
}

/* ---- from a recipe to a call ---- */

static int64_t align_bytes(int64_t bytes) {
  return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* NULL: the operand is read in its storage order. */
static const Desc *wanted_layout(const Api *api, const Recipe *recipe, int i) {
  const Operand *operand = &recipe->operand[i];
  const Desc *wanted =
      api->primitive_desc_query_md(recipe->primitive_desc, operand->query, 0);
  return api->memory_desc_equal(wanted, &operand->own) ? NULL : wanted;
}

static int64_t recipe_scratch(const Api *api, const Recipe *recipe) {
  const Desc *scratch =
      api->primitive_desc_query_md(recipe->primitive_desc, QUERY_SCRATCHPAD, 0);
  int64_t bytes = align_bytes((int64_t)api->memory_desc_get_size(scratch));
  for (int i = 0; i < recipe->n_operands; i++) {
    const Desc *wanted = wanted_layout(api, recipe, i);
    if (wanted)
      bytes += align_bytes((int64_t)api->memory_desc_get_size(wanted));
  }
  return bytes;
}

static void *add_memory(const Library *library, LibraryCall *call,
                        const Desc *desc, void *data) {
  void *memory = NULL;
  if (library->api.memory_create(&memory, desc, library->engine, data) != OK)
    return NULL;
  call->memories[call->n_memories++] = memory;
  return memory;
}

static Step *add_step(const Library *library, LibraryCall *call,
                      const void *primitive_desc) {
  Step *step = &call->steps[call->n_steps];
  if (library->api.primitive_create(&step->primitive, primitive_desc) != OK)
    return NULL;
  call->n_steps++;
  return step;
}

static void add_argument(Step *step, int kind, void *memory) {
  step->arguments[step->n++] = (Argument){kind, memory};
}

static bool add_reorder(const Library *library, LibraryCall *call,
                        const Desc *from_desc, void *from, const Desc *to_desc,
                        void *to) {
  void *desc = NULL;
  if (library->api.reorder_primitive_desc_create(&desc, from_desc,
                                                 library->engine, to_desc,
                                                 library->engine, NULL) != OK)
    return false;
  Step *step = add_step(library, call, desc);
  library->api.primitive_desc_destroy(desc);
  if (!step) return false;
  add_argument(step, ARG_SRC, from);
  add_argument(step, ARG_DST, to);
  return true;
}

static bool bind_call(const Library *library, const Recipe *recipe,
                      void *const *buffers, unsigned char *scratch,
                      LibraryCall *call) {
  const Api *api = &library->api;
  const Desc *wanted[3];
  void *own[3], *used[3];
  for (int i = 0; i < recipe->n_operands; i++) {
    wanted[i] = wanted_layout(api, recipe, i);
    own[i] = add_memory(library, call, &recipe->operand[i].own, buffers[i]);
    used[i] = call->operands[i] = own[i];
    call->n_operands = i + 1;
    if (wanted[i]) {
      used[i] = add_memory(library, call, wanted[i], scratch);
      scratch += align_bytes((int64_t)api->memory_desc_get_size(wanted[i]));
    }
    if (!own[i] || !used[i]) return false;
    if (wanted[i] && !recipe->operand[i].is_result &&
        !add_reorder(library, call, &recipe->operand[i].own, own[i], wanted[i],
                     used[i]))
      return false;
  }
  Step *step = add_step(library, call, recipe->primitive_desc);
  if (!step) return false;
  for (int i = 0; i < recipe->n_operands; i++)
    add_argument(step, recipe->operand[i].argument, used[i]);
  const Desc *pad =
      api->primitive_desc_query_md(recipe->primitive_desc, QUERY_SCRATCHPAD, 0);
  if (api->memory_desc_get_size(pad) > 0) {
    void *memory = add_memory(library, call, pad, scratch);
    if (!memory) return false;
    add_argument(step, ARG_SCRATCHPAD, memory);
  }
  int last = recipe->n_operands - 1;
  return !wanted[last] || add_reorder(library, call, wanted[last], used[last],
                                      &recipe->operand[last].own, own[last]);
}

static LibraryCall *finish_call(Library *library, Recipe *recipe,
                                void *const *buffers, int64_t planned_bytes,
                                void *spare, int64_t spare_bytes,
                                int64_t *out_needs) {
  int64_t needs = recipe_scratch(&library->api, recipe);
  unsigned char *scratch = planned_bytes > 0 ? buffers[3] : NULL;
  LibraryCall *call = NULL;
  *out_needs = 0;
  if (needs > planned_bytes) {
    scratch = spare;
    if (needs > spare_bytes) *out_needs = needs;
  }
  if (!*out_needs) {
    call = ARENA_NEW(library->arena, LibraryCall);
    call->is_reference = strstr(
        implementation_name(&library->api, recipe->primitive_desc), "ref");
    if (bind_call(library, recipe, buffers, scratch, call)) {
      call->next = library->calls;
      library->calls = call;
    } else {
      destroy_call(library, call);
      call = NULL;
    }
  }
  library->api.primitive_desc_destroy(recipe->primitive_desc);
  return call;
}

LibraryCall *library_gemm(Library *library, const DnnGemm *gemm,
                          void *const *buffers, void *spare,
                          int64_t spare_bytes, int64_t *out_needs) {
  Recipe recipe;
  *out_needs = 0;
  if (!gemm_recipe(library, gemm, &recipe)) return NULL;
  return finish_call(library, &recipe, buffers, gemm->scratch_bytes, spare,
                     spare_bytes, out_needs);
}

bool library_is_reference(const LibraryCall *call) {
  return call->is_reference;
}

LibraryCall *library_conv(Library *library, const DnnConv *conv,
                          void *const *buffers, void *spare,
                          int64_t spare_bytes, int64_t *out_needs) {
  Recipe recipe;
  *out_needs = 0;
  if (!conv_recipe(library, conv, &recipe)) return NULL;
  return finish_call(library, &recipe, buffers, conv->scratch_bytes, spare,
                     spare_bytes, out_needs);
}

Status library_run(Library *library, const LibraryCall *call,
                   void *const *buffers) {
  for (int i = 0; buffers && i < call->n_operands; i++)
    library->api.memory_set_data_handle(call->operands[i], buffers[i]);
  for (int i = 0; i < call->n_steps; i++) {
    const Step *step = &call->steps[i];
    int code = library->api.primitive_execute(step->primitive, library->stream,
                                              step->n, step->arguments);
    if (code != OK)
      return status_make(STATUS_unavailable, "oneDNN failed with code %d",
                         code);
  }
  return STATUS_OK;
}

/* ---- what the compiler asks ---- */

static int64_t ask_for_scratch(const DnnGemm *gemm, const DnnConv *conv) {
  Library library = {0};
  Recipe recipe;
  int64_t bytes = 0;
  if (open_library(&library).code != STATUS_ok) return 0;
  /* It stays mapped between questions: loading it takes 10 ms. */
  void *pin = dlopen(dylib_path(library.dylib), RTLD_NOW | RTLD_NODELETE);
  if (pin) dlclose(pin);
  if (gemm ? gemm_recipe(&library, gemm, &recipe)
           : conv_recipe(&library, conv, &recipe)) {
    bytes = recipe_scratch(&library.api, &recipe);
    library.api.primitive_desc_destroy(recipe.primitive_desc);
  }
  library_close(&library);
  return bytes;
}

int64_t cpu_gemm_scratch(const DnnGemm *gemm) {
  return ask_for_scratch(gemm, NULL);
}

int64_t cpu_conv_scratch(const DnnConv *conv) {
  return ask_for_scratch(NULL, conv);
}
