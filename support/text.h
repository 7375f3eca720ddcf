/*
 * text.h -- declares how text is built, measured and printed.
 */
#ifndef SUPPORT_TEXT_H
#define SUPPORT_TEXT_H

#include "support/base.h"

/* ---- text.c: building text ---- */

typedef struct Text {
  Arena *arena;
  char *data; /* NUL-terminated once anything was added */
  size_t n, capacity;
} Text;

Text text_create(Arena *arena);
void text_add(Text *text, const char *string);
void text_add_n(Text *text, const char *bytes, size_t n);
void text_printf(Text *text, const char *format, ...) PRINTF_LIKE(2, 3);
/* Appends the shortest decimal that reads back as the same double, in the "C"
 * locale; always with a '.', an 'e', "inf" or "nan", so that it is not an
 * integer. */
void text_add_real(Text *text, double value);
/* Reads all of a decimal text, whatever the locale; false if it is no number.
 */
bool text_read_real(const char *text, size_t n, double *out_value);
/* Returns the length of the valid UTF-8 sequence at `bytes` (ended by NUL),
 * else 0. */
int text_utf8_length(const char *bytes);
/* Appends "..." with JSON escapes (also for control characters and invalid
 * UTF-8). */
void text_add_json(Text *text, const char *string);
/* Returns the text, never NULL. */
const char *text_string(Text *text);

/* ---- message.c: text of messages ---- */

/* Formats as arena_vprintf does, but a %s argument is truncated after 200
 * bytes, with its length.  Knows %s, integers up to long long and floats. */
const char *message_vprintf(Arena *arena, const char *format, va_list args);
/* Escapes control characters but newline and tab, and what is no UTF-8, as
 * "\x1b". */
void message_escape(Text *out, const char *text);
/* Prints to standard error in one write, escaped; truncated after 8 KB. */
void message_print(const char *format, ...) PRINTF_LIKE(1, 2);
/* Prints at most 20 of these lines, and how many there are; long ones are
 * truncated. */
void message_print_list(const char *lines);

/* ---- fixed_text.c: text in a buffer of fixed size, truncated with "..." ----
 */

typedef struct FixedText {
  char *data;
  size_t n, capacity; /* n < capacity; a NUL follows */
  bool is_cut;
} FixedText;

/* Returns a text that is stored in `data`, of more than 4 bytes. */
FixedText fixed_text(char *data, size_t capacity);
void fixed_printf(FixedText *text, const char *format, ...) PRINTF_LIKE(2, 3);
void fixed_vprintf(FixedText *text, const char *format, va_list args);

/* ---- text.c: distances ---- */

/* Returns the edit distance (insert, delete, replace, swap neighbours), for
 * "did you mean". */
int text_distance(const char *a, const char *b);
/* Returns a number as "1,234,567". */
const char *text_with_commas(Arena *arena, int64_t number);
/* Returns a quantity as "1.25 MB". */
const char *text_quantity(Arena *arena, double value, const char *unit);
/* Memory of a rank: "0.2 MB" with so many decimals, "171.75 TB". */
enum { MEMORY_TEXT = 32 };
const char *text_memory(char buffer[MEMORY_TEXT], double bytes, int decimals);
/* Returns the nearest of `candidates` within a third of the length.  Returns
 * NULL if there is none. */
const char *text_nearest(const char *wanted, const char *const *candidates,
                         int n);

#endif
