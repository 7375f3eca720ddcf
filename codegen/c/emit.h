/*
 * emit.h -- what the files of the CPU back end share; private to it.
 */
#ifndef CODEGEN_C_EMIT_H
#define CODEGEN_C_EMIT_H

#include "codegen/codegen.h"

/* prelude.c: text before the kernels of every file. */
extern const char c_prelude[];

void c_emit_nest(const Backend *backend, Module *module, const Nest *nest,
                 KernelText *out);
/* attention.c */
bool c_attention_keeps(const Graph *graph, int id);
bool c_emit_attention(const Backend *backend, Module *module,
                      const Graph *graph, int id, KernelText *out);

#endif
