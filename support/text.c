/*
 * text.c -- builds text, numbers and JSON strings independently of the locale,
 * and finds the nearest of some names for "did you mean".
 */
#include "support/support.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 128, MOST_DIGITS = 17, LONGEST_NAME = 63 };

/* ---- growing ---- */

Text text_create(Arena *arena) {
  return (Text){.arena = arena};
}

/* Room for n more bytes and the NUL. */
static char *reserve(Text *text, size_t n) {
  size_t needed = text->n + n + 1;
  if (needed > text->capacity) {
    size_t larger = text->capacity ? text->capacity * 2 : FIRST_CAPACITY;
    while (larger < needed) larger *= 2;
    char *moved = arena_alloc(text->arena, larger);
    if (text->n) memcpy(moved, text->data, text->n);
    text->data = moved;
    text->capacity = larger;
  }
  return text->data + text->n;
}

void text_add_n(Text *text, const char *bytes, size_t n) {
  char *end = reserve(text, n);
  if (n) memcpy(end, bytes, n);
  end[n] = '\0';
  text->n += n;
}

void text_add(Text *text, const char *string) {
  text_add_n(text, string, strlen(string));
}

/* Mostly what is there already is room enough, and one pass does. */
void text_printf(Text *text, const char *format, ...) {
  ASSERT(format);
  size_t room = text->capacity - text->n;
  va_list args;
  va_start(args, format);
  int n = vsnprintf(room ? text->data + text->n : NULL, room, format, args);
  va_end(args);
  ASSERT(n >= 0);
  if ((size_t)n >= room) {
    char *end = reserve(text, (size_t)n);
    va_start(args, format);
    vsnprintf(end, (size_t)n + 1, format, args);
    va_end(args);
  }
  text->n += (size_t)n;
}

const char *text_string(Text *text) {
  return text->data ? text->data : "";
}

/* ---- numbers ---- */

bool text_read_real(const char *text, size_t n, double *out_value) {
  char buffer[400];
  const char *point = localeconv()->decimal_point;
  size_t n_point = strlen(point), length = 0;
  for (size_t i = 0; i < n; i++) {
    bool is_point = text[i] == '.';
    size_t n_piece = is_point ? n_point : 1;
    if (length + n_piece >= sizeof buffer) return false;
    memcpy(buffer + length, is_point ? point : text + i, n_piece);
    length += n_piece;
  }
  buffer[length] = '\0';
  char *end;
  *out_value = strtod(buffer, &end);
  return length > 0 && *end == '\0';
}

/* The digits and decimal exponent of the shortest form: 12.5 gives "125", 1. */
static int shortest_digits(double value, char digits[MOST_DIGITS + 1]) {
  char buffer[64];
  for (int precision = 0; precision < MOST_DIGITS; precision++) {
    snprintf(buffer, sizeof buffer, "%.*e", precision, value);
    if (strtod(buffer, NULL) == value) break;
  }
  char *exponent = strrchr(buffer, 'e');
  int n = 0;
  for (const char *p = buffer; p < exponent; p++)
    if (*p >= '0' && *p <= '9') digits[n++] = *p; /* not the locale's point */
  digits[n] = '\0';
  return atoi(exponent + 1);
}

static void add_zeros(Text *text, int n) {
  for (int i = 0; i < n; i++) text_add(text, "0");
}

void text_add_real(Text *text, double value) {
  if (isnan(value)) {
    text_add(text, "nan");
    return;
  }
  if (signbit(value)) text_add(text, "-");
  value = fabs(value);
  if (isinf(value)) {
    text_add(text, "inf");
    return;
  }
  char digits[MOST_DIGITS + 1];
  int exponent = shortest_digits(value, digits), n = (int)strlen(digits);
  if (exponent < -4 || exponent > 15) {
    text_add_n(text, digits, 1);
    if (n > 1) text_printf(text, ".%s", digits + 1);
    text_printf(text, "e%d", exponent);
  } else if (exponent < 0) {
    text_add(text, "0.");
    add_zeros(text, -exponent - 1);
    text_add(text, digits);
  } else {
    int whole = n < exponent + 1 ? n : exponent + 1;
    text_add_n(text, digits, (size_t)whole);
    add_zeros(text, exponent + 1 - whole);
    text_printf(text, ".%s", n > whole ? digits + whole : "0");
  }
}

/* ---- JSON ---- */

int text_utf8_length(const char *bytes) {
  const unsigned char *p = (const unsigned char *)bytes;
  static const struct {
    unsigned char mask, lead;
    uint32_t least;
  } forms[] = {{0x80, 0x00, 0},
               {0xe0, 0xc0, 0x80},
               {0xf0, 0xe0, 0x800},
               {0xf8, 0xf0, 0x10000}};
  for (int more = 0; more < ARRAY_LENGTH(forms); more++) {
    if ((p[0] & forms[more].mask) != forms[more].lead) continue;
    uint32_t code = p[0] & (unsigned char)~forms[more].mask;
    for (int i = 1; i <= more; i++) {
      if ((p[i] & 0xc0) != 0x80) return 0; /* also at the NUL */
      code = code << 6 | (p[i] & 0x3fu);
    }
    bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < forms[more].least || code > 0x10ffff || is_surrogate
               ? 0
               : more + 1;
  }
  return 0;
}

void text_add_json(Text *text, const char *string) {
  text_add(text, "\"");
  for (const char *p = string; *p;) {
    unsigned char c = (unsigned char)*p;
    int n = text_utf8_length(p);
    if (n == 0)
      text_add(text, "\\ufffd");
    else if (c == '"' || c == '\\')
      text_printf(text, "\\%c", c);
    else if (c == '\n')
      text_add(text, "\\n");
    else if (c == '\t')
      text_add(text, "\\t");
    else if (c == '\r')
      text_add(text, "\\r");
    else if (c < 0x20 || c == 0x7f)
      text_printf(text, "\\u%04x", c);
    else
      text_add_n(text, p, (size_t)n);
    p += n ? n : 1;
  }
  text_add(text, "\"");
}

/* ---- near names ---- */

static int least(int a, int b) {
  return a < b ? a : b;
}

/* Optimal string alignment, three rows of the table at a time. */
int text_distance(const char *a, const char *b) {
  int n = (int)strnlen(a, LONGEST_NAME + 1);
  int m = (int)strnlen(b, LONGEST_NAME + 1);
  if (n > LONGEST_NAME || m > LONGEST_NAME)
    return strcmp(a, b) == 0 ? 0 : LONGEST_NAME + 1;
  int rows[3][LONGEST_NAME + 1];
  for (int j = 0; j <= m; j++) rows[0][j] = j;
  for (int i = 1; i <= n; i++) {
    int *row = rows[i % 3], *above = rows[(i + 2) % 3];
    int *above2 = rows[(i + 1) % 3];
    row[0] = i;
    for (int j = 1; j <= m; j++) {
      bool differs =
          tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]);
      int replaced = above[j - 1] + differs;
      row[j] = least(replaced, least(above[j], row[j - 1]) + 1);
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = least(row[j], above2[j - 2] + 1);
    }
  }
  return rows[n % 3][m];
}

/* Returns whether `part` is one of the words that '_' joins in `name`. */
static bool has_word(const char *name, const char *part) {
  size_t n = strlen(part);
  for (const char *at = name; (at = strstr(at, part)); at++)
    if ((at == name || at[-1] == '_') && (at[n] == '\0' || at[n] == '_'))
      return true;
  return false;
}

const char *text_nearest(const char *wanted, const char *const *candidates,
                         int n) {
  const char *nearest = NULL;
  int best = LONGEST_NAME + 1;
  size_t n_wanted = strlen(wanted);
  for (int i = 0; i < n; i++) {
    int distance = text_distance(wanted, candidates[i]);
    size_t length = strlen(candidates[i]);
    if (length < n_wanted) length = n_wanted;
    if ((size_t)distance * 3 > length || distance >= best) continue;
    nearest = candidates[i];
    best = distance;
  }
  for (int i = 0; i < n && !nearest; i++)
    if (strlen(candidates[i]) > 3 && has_word(wanted, candidates[i]))
      nearest = candidates[i];
  return nearest;
}

/* ---- numbers for people ---- */

const char *text_with_commas(Arena *arena, int64_t number) {
  char *digits = arena_printf(arena, "%lld", (long long)number);
  Text out = text_create(arena);
  int length = (int)strlen(digits);
  for (int i = 0; i < length; i++) {
    if (i && (length - i) % 3 == 0) text_add(&out, ",");
    text_add_n(&out, digits + i, 1);
  }
  return text_string(&out);
}

const char *text_quantity(Arena *arena, double value, const char *unit) {
  static const char prefixes[] = " kMGTPE";
  int power = 0;
  while (value >= 1000 && power < 6) value /= 1000, power++;
  return power ? arena_printf(arena, "%.2f %c%s", value, prefixes[power], unit)
               : arena_printf(arena, "%.0f %s", value, unit);
}

const char *text_memory(char buffer[MEMORY_TEXT], double bytes, int decimals) {
  static const char prefixes[] = "MGTPE";
  double value = bytes / 1e6;
  int power = 0;
  while (value >= 1000 && power < 4) value /= 1000, power++;
  snprintf(buffer, MEMORY_TEXT, "%.*f %cB", power ? 2 : decimals, value,
           prefixes[power]);
  return buffer;
}
