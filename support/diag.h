/*
 * diag.h -- declares places in sources and the user's mistakes.
 */
#ifndef SUPPORT_DIAG_H
#define SUPPORT_DIAG_H

#include "support/text.h"

/* ---- source.c, diag.c: the user's mistakes ---- */

typedef struct Source {
  const char *path; /* path as shown in messages */
  const char *text; /* NUL-terminated */
  size_t n;
} Source;

/* Bytes [begin, end) of a source; `source` NULL means "no place". */
typedef struct Span {
  const Source *source;
  uint32_t begin, end;
} Span;

#define SPAN_NONE ((Span){NULL, 0, 0})
/* The complete file: messages show its path only. */
#define SPAN_FILE(source) ((Span){(source), 1, 0})
Span span_join(Span a, Span b);
/* Finds line and column, which count from 1; columns count bytes. */
void span_locate(Span span, int *out_line, int *out_column);

/* Returns the text of the span, on one line and without comments. */
const char *span_text(Arena *arena, Span span);

typedef enum Severity {
  SEVERITY_error,
  SEVERITY_warning,
  SEVERITY_note,
  N_SEVERITIES
} Severity;

/* Every message of the compiler is a row of diags.def. */
typedef enum DiagId {
#define DIAG(name, severity, format) DIAG_##name,
#include "support/diags.def"
  N_DIAGS
} DiagId;

typedef struct Diags Diags; /* the list of what went wrong so far */
typedef struct Diag Diag;   /* one message, to hang notes and a help on */

Diags *diags_create(Arena *arena);
/* Formats the row's text with the arguments.  Never NULL, also after the
 * limit of 20 errors, when it is counted but not kept.  A second error with
 * the same row and place is dropped. */
Diag *diag(Diags *diags, DiagId id, Span span, ...);
void diag_note(Diag *diag, Span span, const char *format, ...)
    PRINTF_LIKE(3, 4);
/* Adds one help line; a second call replaces the first. */
void diag_help(Diag *diag, const char *format, ...) PRINTF_LIKE(2, 3);
/* Returns whether this was reported at this place. */
bool diags_have(const Diags *diags, DiagId id, Span span);
int diags_errors(const Diags *diags);
/* Returns the sentence of the first error, as it is printed.  Returns NULL if
 * there is none. */
const char *diags_first_error(const Diags *diags, Arena *arena);
int diags_warnings(const Diags *diags);
/* Prints all that was added since the last call, in order of addition:
 *   file:line:col: error: text
 *      19 |   source line
 *         |       ^~~~
 *   file:line:col: note: text
 *   help: text                                                            */
void diags_print(Diags *diags, Text *out);

#endif
