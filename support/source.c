/*
 * source.c -- finds lines and columns in source text.  A Span is two offsets;
 * lines are counted only when a message is printed, so that lexing stays cheap.
 */
#include "support/support.h"

#include <string.h>

/* Either may be SPAN_NONE. */
Span span_join(Span a, Span b) {
  if (!a.source) return b;
  if (a.source != b.source) return a;
  if (b.begin < a.begin) a.begin = b.begin;
  if (b.end > a.end) a.end = b.end;
  return a;
}

void span_locate(Span span, int *out_line, int *out_column) {
  *out_line = *out_column = 1;
  if (!span.source) return;
  const char *line = span.source->text, *next;
  size_t n = span.begin < span.source->n ? span.begin : span.source->n;
  const char *end = line + n;
  while ((next = memchr(line, '\n', (size_t)(end - line)))) {
    line = next + 1;
    ++*out_line;
  }
  *out_column = (int)(end - line) + 1;
}

/* Comments end with their line; what they and line ends leave is one blank. */
const char *span_text(Arena *arena, Span span) {
  Text out = text_create(arena);
  bool is_blank = false;
  for (uint32_t i = span.begin; span.source && i < span.end; i++) {
    char c = span.source->text[i];
    if (c == '#') {
      while (i < span.end && span.source->text[i] != '\n') i++;
      c = '\n';
    }
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      is_blank = out.n > 0;
      continue;
    }
    if (is_blank) text_add(&out, " ");
    is_blank = false;
    text_add_n(&out, &c, 1);
  }
  return text_string(&out);
}
