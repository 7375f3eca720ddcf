/*
 * program.h -- the state of printing a program as tables, shared by program.c
 * and program_settings.c.
 */
#ifndef CODEGEN_PROGRAM_H
#define CODEGEN_PROGRAM_H

#include "codegen/image.h"
#include "codegen/select.h"

typedef struct ProgramPrinter {
  Text *out;
  Image *image;
  const ProgramInput *input;
  VEC(DnnGroup) groups; /* DnnProgram.groups, which lie in the image at: */
  size_t groups_at;
} ProgramPrinter;

/* ---- program_settings.c ---- */

/* Appends a C string literal; NULL becomes 0. */
void program_add_string(Text *out, const char *string);
/* The tables of data blocks, metrics and the sample block. */
void program_add_data(ProgramPrinter *printer);
void program_add_metrics(ProgramPrinter *printer);
void program_add_sample(ProgramPrinter *printer);
/* Appends the member `settings` of the program. */
void program_add_settings(ProgramPrinter *printer);

#endif
