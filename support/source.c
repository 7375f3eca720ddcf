/*
 * source.c -- places in source text.  A Span is two offsets; lines and columns
 * are counted only when a message is printed, so that lexing stays cheap.
 */
#include "support/support.h"

/* Either may be SPAN_NONE. */
Span span_join(Span a, Span b) {
  if (!a.source) return b;
  if (a.source != b.source) return a;
  if (b.begin < a.begin) a.begin = b.begin;
  if (b.end > a.end) a.end = b.end;
  return a;
}

void span_locate(Span span, int *out_line, int *out_column) {
  int line = 1, column = 1;
  if (span.source) {
    const char *text = span.source->text;
    for (size_t i = 0; i < span.begin && i < span.source->n; i++) {
      column++;
      if (text[i] == '\n') {
        line++;
        column = 1;
      }
    }
  }
  *out_line = line;
  *out_column = column;
}
