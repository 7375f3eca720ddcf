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
/* The shortest decimal that reads back as the same double, in the "C" locale;
 * always with a '.', an 'e', "inf" or "nan", so that it is not an integer. */
void text_add_real(Text *text, double value);
/* Reads all of a decimal text, whatever the locale; false if it is no number.
 */
bool text_read_real(const char *text, size_t n, double *out_value);
/* Length of the valid UTF-8 sequence at `bytes` (ended by NUL), else 0. */
int text_utf8_length(const char *bytes);
/* "..." with JSON escapes (also for control characters and invalid UTF-8). */
void text_add_json(Text *text, const char *string);
const char *text_string(Text *text); /* never NULL */

/* ---- message.c: text of messages ---- */

/* As arena_vprintf, but a %s argument is truncated after 200 bytes, with its
 * length.  Knows %s, integers up to long long and floats. */
const char *message_vprintf(Arena *arena, const char *format, va_list args);
/* Control characters but newline and tab, and what is no UTF-8, as "\x1b". */
void message_escape(Text *out, const char *text);
/* To standard error in one write, escaped; truncated after 8 KB. */
void message_print(const char *format, ...) PRINTF_LIKE(1, 2);
/* At most 20 of these lines, and how many there are; long ones are truncated.
 * */
void message_print_list(const char *lines);

/* ---- fixed_text.c: text in a buffer of fixed size, truncated with "..." ----
 */

typedef struct FixedText {
  char *data;
  size_t n, capacity; /* n < capacity; a NUL follows */
  bool is_cut;
} FixedText;

FixedText fixed_text(char *data, size_t capacity); /* more than 4 bytes */
void fixed_printf(FixedText *text, const char *format, ...) PRINTF_LIKE(2, 3);
void fixed_vprintf(FixedText *text, const char *format, va_list args);

/* ---- text.c: distances ---- */

/* Edit distance (insert, delete, replace, swap neighbours), for "did you
 * mean". */
int text_distance(const char *a, const char *b);
const char *text_with_commas(Arena *arena, int64_t number); /* "1,234,567" */
/* "1.25 MB" */
const char *text_quantity(Arena *arena, double value, const char *unit);
/* Memory of a rank: "0.2 MB" with so many decimals, "171.75 TB". */
enum { MEMORY_TEXT = 32 };
const char *text_memory(char buffer[MEMORY_TEXT], double bytes, int decimals);
/* Nearest of `candidates` within a third of the length, or NULL. */
const char *text_nearest(const char *wanted, const char *const *candidates,
                         int n);

#endif
