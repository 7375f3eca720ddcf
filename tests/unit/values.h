/*
 * values.h -- declares what the unit tests of graphs share: a module, operators
 * written as short texts, random tensors, and running on the interpreter.
 *
 *     Value x = make_input(graph, "x", "f64 B:3 C:4");
 *     Value y = make(graph, "softmax", "over=C", &x, 1);
 */
#ifndef TESTS_UNIT_VALUES_H
#define TESTS_UNIT_VALUES_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interp/interp.h"

static inline void out_of_memory(void *user) {
  (void)user;
  abort();
}

/* The memories that the running test has made; each test is a process. */
static Memory *test_memories[1000];
static int n_test_memories;

/* For TestSuite(name, .fini = modules_destroy). */
static inline void modules_destroy(void) {
  while (n_test_memories > 0) memory_destroy(test_memories[--n_test_memories]);
}

static inline Module *module_create(void) {
  Memory *memory = memory_create(out_of_memory, NULL);
  cr_assert_lt(n_test_memories, 1000);
  test_memories[n_test_memories++] = memory;
  Arena *arena = arena_create(memory);
  Module *module = ARENA_NEW(arena, Module);
  module->memory = memory;
  module->arena = arena;
  module->names = names_create(arena);
  module->diags = diags_create(arena);
  return module;
}

static inline Graph *make_graph(Module *module) {
  return graph_create(module, name_intern(module->names, "test"));
}

/* ---- texts ---- */

/* "f64 B:3 C:4"; without sizes a scalar. */
static inline const Type *make_type(Module *module, const char *text) {
  char copy[200], *rest;
  size_t length = strlen(text);
  cr_assert(length < sizeof copy);
  memcpy(copy, text, length + 1);
  DType dtype;
  cr_assert(dtype_find(strtok_r(copy, " ", &rest), &dtype), "%s", text);
  Dim dims[MAX_RANK];
  int n = 0;
  for (char *word; (word = strtok_r(NULL, " ", &rest)) != NULL;) {
    char *colon = strchr(word, ':');
    *colon = '\0';
    dims[n].name = name_intern(module->names, word);
    dims[n].split = 0;
    dims[n++].size = atol(colon + 1);
  }
  Type *type = type_create(module->arena, dtype, n);
  for (int i = 0; i < n; i++) type->dims[i] = dims[i];
  return type;
}

/* "over=B,C eps=0.1 sizes=2,3"; "over=" is an empty list. */
static inline Attrs make_attrs(Module *module, const char *text) {
  char copy[300], *rest = NULL;
  snprintf(copy, sizeof copy, "%s", text);
  Attrs attrs = {0};
  for (char *word = strtok_r(copy, " ", &rest); word != NULL;
       word = strtok_r(NULL, " ", &rest)) {
    char *value = strchr(word, '=');
    *value++ = '\0';
    AttrKey key;
    cr_assert(attr_find(word, &key), "%s", word);
    Name *names = ARENA_ARRAY(module->arena, Name, MAX_RANK);
    int64_t *ints = ARENA_ARRAY(module->arena, int64_t, MAX_RANK);
    int n = 0;
    bool is_list =
        attr_kind(key) == ATTRKIND_NAMES || attr_kind(key) == ATTRKIND_INTS;
    char *items = NULL;
    for (char *item = is_list ? strtok_r(value, ",", &items) : NULL;
         item != NULL; item = strtok_r(NULL, ",", &items)) {
      names[n] = name_intern(module->names, item);
      ints[n++] = atol(item);
    }
    switch (attr_kind(key)) {
    case ATTRKIND_NAMES: attrs_names(&attrs, key, names, n); break;
    case ATTRKIND_INTS: attrs_ints(&attrs, key, ints, n); break;
    case ATTRKIND_INT: attrs_int(&attrs, key, atol(value)); break;
    case ATTRKIND_FLOAT: attrs_float(&attrs, key, atof(value)); break;
    default: attrs_name(&attrs, key, name_intern(module->names, value));
    }
  }
  return attrs;
}

static inline Value make(Graph *graph, const char *op_name, const char *attrs,
                         const Value *inputs, int n) {
  Op op;
  cr_assert(op_find(op_name, &op), "%s", op_name);
  Attrs made = make_attrs(graph->module, attrs);
  return graph_append(graph, op, inputs, n, &made);
}

static inline Value make1(Graph *graph, const char *op, const char *attrs,
                          Value a) {
  return make(graph, op, attrs, &a, 1);
}

static inline Value make_input(Graph *graph, Role role, const char *path,
                               const char *type) {
  return graph_input(graph, role, name_intern(graph->module->names, path),
                     make_type(graph->module, type));
}

static inline void make_output(Graph *graph, Role role, const char *path,
                               Value value) {
  graph_output(graph, role, name_intern(graph->module->names, path), value);
}

/* ---- tensors ---- */

static inline Tensor tensor_create(Arena *arena, const Type *type) {
  return (Tensor){.type = type,
                  .data = ARENA_ARRAY(arena, double, type_elements(type))};
}

/* Reals uniform on [low, high), bools, integers below `high`. */
static inline Tensor tensor_random(Arena *arena, const Type *type, uint64_t key,
                                   double low, double high) {
  Tensor tensor = tensor_create(arena, type);
  int64_t n = type_elements(type);
  for (int64_t i = 0; i < n; i++) {
    double u = random_uniform(key, (uint64_t)i);
    tensor.data[i] = dtype_class(type->dtype) == CLASS_FLOAT
                         ? low + u * (high - low)
                     : type->dtype == DT_bool ? (double)(u < 0.5)
                                              : floor(u * high);
  }
  return tensor;
}

static inline Tensor tensor_of(Arena *arena, const Type *type,
                               const double *values) {
  Tensor tensor = tensor_create(arena, type);
  memcpy(tensor.data, values, (size_t)type_elements(type) * sizeof(double));
  return tensor;
}

/* An element as it is stored, and back. */
static inline void element_to_bytes(DType dtype, double x, void *to) {
  switch (dtype) {
  case DT_f64: memcpy(to, &x, 8); break;
  case DT_f32: memcpy(to, &(float){(float)x}, 4); break;
  case DT_bf16: memcpy(to, &(uint16_t){bf16_from_float((float)x)}, 2); break;
  case DT_f16: memcpy(to, &(uint16_t){f16_from_float((float)x)}, 2); break;
  case DT_i64: memcpy(to, &(int64_t){(int64_t)x}, 8); break;
  case DT_i32: memcpy(to, &(int32_t){(int32_t)x}, 4); break;
  case DT_i16: memcpy(to, &(int16_t){(int16_t)x}, 2); break;
  case DT_i8: memcpy(to, &(int8_t){(int8_t)x}, 1); break;
  case DT_u8: memcpy(to, &(uint8_t){(uint8_t)x}, 1); break;
  case DT_bool: memcpy(to, &(uint8_t){x != 0}, 1); break;
  default: cr_assert_fail("no bytes of this dtype");
  }
}

static inline double element_from_bytes(DType dtype, const void *bytes,
                                        int64_t i) {
  switch (dtype) {
  case DT_f64: return ((const double *)bytes)[i];
  case DT_f32: return ((const float *)bytes)[i];
  case DT_bf16: return bf16_to_float(((const uint16_t *)bytes)[i]);
  case DT_f16: return f16_to_float(((const uint16_t *)bytes)[i]);
  case DT_i64: return (double)((const int64_t *)bytes)[i];
  case DT_i32: return ((const int32_t *)bytes)[i];
  case DT_i16: return ((const int16_t *)bytes)[i];
  case DT_i8: return ((const int8_t *)bytes)[i];
  case DT_u8:
  case DT_bool: return ((const uint8_t *)bytes)[i];
  default: return NAN;
  }
}

static inline void tensor_to_bytes(const Tensor *tensor, void *bytes) {
  DType dtype = tensor->type->dtype;
  for (int64_t i = 0; i < type_elements(tensor->type); i++)
    element_to_bytes(dtype, tensor->data[i],
                     (char *)bytes + i * dtype_size_bytes(dtype));
}

static inline Tensor *run(const Graph *graph, InterpNumber number,
                          const Tensor *inputs) {
  Arena *arena = graph->module->arena;
  Tensor *outputs = ARENA_ARRAY(arena, Tensor, graph->outputs.n);
  interp_run(graph, number, arena, inputs, outputs, NULL);
  return outputs;
}

#define cr_values(tensor, tolerance, ...)                                      \
  do {                                                                         \
    const double wanted_[] = {__VA_ARGS__};                                    \
    cr_assert_eq(type_elements((tensor).type),                                 \
                 (int64_t)(sizeof wanted_ / sizeof *wanted_));                 \
    for (int i_ = 0; i_ < (int)(sizeof wanted_ / sizeof *wanted_); i_++) {     \
      double got_ = (tensor).data[i_];                                         \
      cr_assert(got_ == wanted_[i_] ||                                         \
                    fabs(got_ - wanted_[i_]) <= (tolerance),                   \
                "element %d is %.17g, not %.17g", i_, got_, wanted_[i_]);      \
    }                                                                          \
  } while (0)

#endif
