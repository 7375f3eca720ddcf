/*
 * embed.c -- embeds two files in the executable of dnnc: the runtime as an
 * archive to link rank executables with, and the header that emitted sources
 * include. The build system names both files.
 */
#include "tools/commands/tools.h"

__asm__(".section .rodata\n"
        ".balign 16\n"
        ".global dnnc_runtime_begin\n"
        "dnnc_runtime_begin: .incbin \"" DNNC_RUNTIME_ARCHIVE "\"\n"
        ".global dnnc_runtime_end\n"
        "dnnc_runtime_end:\n"
        ".global dnnc_header_begin\n"
        "dnnc_header_begin: .incbin \"" DNNC_PROGRAM_HEADER "\"\n"
        ".byte 0\n"
        ".previous\n");

extern const char dnnc_runtime_begin[], dnnc_runtime_end[], dnnc_header_begin[];

const void *embed_runtime_archive(size_t *out_bytes) {
  *out_bytes = (size_t)(dnnc_runtime_end - dnnc_runtime_begin);
  return dnnc_runtime_begin;
}

const char *embed_program_header(void) {
  return dnnc_header_begin;
}
