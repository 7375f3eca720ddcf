/*
 * emit.h -- declares the functions of the CPU back end for its own files.
 */
#ifndef CODEGEN_C_EMIT_H
#define CODEGEN_C_EMIT_H

#include "codegen/codegen.h"

/* prelude.c: text before the kernels of every file. */
extern const char c_prelude[];

/* ---- types.c: dtypes as C types and literals ---- */

/* Returns text such as "uint16_t" for bf16. */
const char *c_storage(DType dtype);
/* Returns the C type of its values, such as "int" for bool. */
const char *c_number(DType dtype);
void c_add_literal(Text *out, DType dtype, double value);
/* Appends the value with which a reduction begins. */
void c_add_identity(Text *out, NestReduce reduce, DType dtype);

/* ---- emit.c, attention.c ---- */

void c_emit_nest(const Backend *backend, Module *module, const Nest *nest,
                 KernelText *out);
bool c_emit_sized_nest(const Backend *backend, Module *module, const Nest *nest,
                       KernelText *out);
bool c_has_attention_kernel(const Graph *graph, int id);
bool c_emit_attention(const Backend *backend, Module *module,
                      const Graph *graph, int id, KernelText *out);

#endif
