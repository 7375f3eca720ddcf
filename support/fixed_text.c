/*
 * fixed_text.c -- builds text in a buffer of fixed size, for code without an
 * arena: messages, and the report of a rank that is about to end.
 *
 * The result of snprintf is the length that the text would have, so it must not
 * be used as an offset: a long path would move the next write past the buffer.
 */
#include "support/support.h"

#include <stdio.h>
#include <string.h>

static const char ellipsis[] = "...";

FixedText fixed_text(char *data, size_t capacity) {
  ASSERT(capacity > sizeof ellipsis);
  *data = '\0';
  return (FixedText){.data = data, .capacity = capacity};
}

/* The first addition that does not fit ends in "..."; later ones are ignored.
 */
void fixed_vprintf(FixedText *text, const char *format, va_list args) {
  size_t room = text->capacity - text->n;
  if (text->is_cut) return;
  int n = vsnprintf(text->data + text->n, room, format, args);
  ASSERT(n >= 0);
  if ((size_t)n < room) {
    text->n += (size_t)n;
    return;
  }
  text->is_cut = true;
  text->n = text->capacity - 1;
  memcpy(text->data + text->capacity - sizeof ellipsis, ellipsis,
         sizeof ellipsis);
}

void fixed_printf(FixedText *text, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fixed_vprintf(text, format, args);
  va_end(args);
}
