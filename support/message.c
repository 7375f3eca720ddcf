/*
 * message.c -- prints messages safely: long names are shortened, and bytes that
 * could control a terminal are escaped.
 *
 *     "no value is named '%s'"   =>   no value is named 'aaaa...' (4096 bytes)'
 *
 * Names come from files and command lines that a person may never have seen.
 */
#include "support/support.h"

#include <stdio.h>
#include <string.h>

enum {
  LONGEST_NAME = 200,
  LONGEST_MESSAGE = 8192,
  LONGEST_LIST = 20, /* lines */
  LONGEST_LINE = 600
};

/* Bytes of the first `most` that end with a complete character. */
static size_t whole_characters(const char *text, size_t most) {
  while (most > 0 && ((unsigned char)text[most] & 0xc0) == 0x80) most--;
  return most;
}

static void add_cut(Text *out, const char *name, int precision) {
  if (!name) name = "(none)";
  size_t n = precision < 0 ? strlen(name) : strnlen(name, (size_t)precision);
  if (n <= LONGEST_NAME) {
    text_add_n(out, name, n);
    return;
  }
  text_add_n(out, name, whole_characters(name, LONGEST_NAME));
  text_printf(out, "... (%zu bytes)", n);
}

typedef struct Conversion {
  char spec[24]; /* "%-8lld" */
  int precision; /* -1: none */
  char length[3], kind;
} Conversion;

/* Reads what follows a '%'; returns what follows the conversion. */
static const char *read_conversion(const char *at, Conversion *out) {
  const char *begin = at;
  *out = (Conversion){.precision = -1};
  while (*at && strchr("-+ #0123456789", *at)) at++;
  if (*at == '.') {
    out->precision = 0;
    if (*++at == '*') out->precision = -2, at++;
    for (; *at >= '0' && *at <= '9'; at++)
      out->precision = out->precision * 10 + *at - '0';
  }
  for (int i = 0; i < 2 && (*at == 'l' || *at == 'z'); i++)
    out->length[i] = *at++;
  out->kind = *at++;
  size_t n = (size_t)(at - begin);
  ASSERT(n + 2 <= sizeof out->spec);
  out->spec[0] = '%';
  memcpy(out->spec + 1, begin, n);
  return at;
}

/* `spec` is one conversion of a format of the program. */
static void add_number(Text *out, const Conversion *c, va_list *args) {
  bool is_long = strcmp(c->length, "l") == 0;
  if (strchr("eEfgGaA", c->kind))
    text_printf(out, c->spec, va_arg(*args, double));
  else if (strcmp(c->length, "ll") == 0)
    text_printf(out, c->spec, va_arg(*args, long long));
  else if (strcmp(c->length, "z") == 0)
    text_printf(out, c->spec, va_arg(*args, size_t));
  else if (is_long)
    text_printf(out, c->spec, va_arg(*args, long));
  else
    text_printf(out, c->spec, va_arg(*args, int));
}

const char *message_vprintf(Arena *arena, const char *format, va_list given) {
  Text out = text_create(arena);
  va_list args;
  va_copy(args, given);
  for (const char *at = format; *at;) {
    size_t n = strcspn(at, "%");
    text_add_n(&out, at, n);
    at += n;
    if (!*at) break;
    Conversion c;
    at = read_conversion(at + 1, &c);
    if (c.kind == '%') {
      text_add(&out, "%");
    } else if (c.kind == 's' && strchr(c.spec, '#')) {
      text_add(&out, va_arg(args, const char *)); /* a sentence, no name */
    } else if (c.kind == 's') {
      if (c.precision == -2) c.precision = va_arg(args, int);
      add_cut(&out, va_arg(args, const char *), c.precision);
    } else {
      ASSERT(c.precision != -2 && strchr("diuxcXeEfgG", c.kind));
      add_number(&out, &c, &args);
    }
  }
  va_end(args);
  return text_string(&out);
}

/* Bytes that may be printed as they are from `text` on; 0: its first byte is to
 * be shown as its code. */
static int printable(const char *text) {
  unsigned char c = (unsigned char)text[0];
  if (c == '\n' || c == '\t') return 1;
  if (c < 0x20 || c == 0x7f) return 0;
  int n = text_utf8_length(text);
  /* U+0080 to U+009F are control characters too. */
  bool is_control = n == 2 && c == 0xc2 && (unsigned char)text[1] < 0xa0;
  return is_control ? 0 : n;
}

void message_escape(Text *out, const char *text) {
  for (; *text; text++) {
    int n = printable(text);
    if (n == 0) text_printf(out, "\\x%02x", (unsigned char)*text);
    if (n > 0) text_add_n(out, text, (size_t)n);
    if (n > 1) text += n - 1;
  }
}

void message_print_list(const char *lines) {
  int n = 0;
  for (const char *end; *lines; lines = end + (*end != '\0')) {
    end = lines + strcspn(lines, "\n");
    size_t length = (size_t)(end - lines);
    if (n++ >= LONGEST_LIST) continue;
    bool is_cut = length > LONGEST_LINE;
    if (is_cut) length = whole_characters(lines, LONGEST_LINE);
    message_print("%.*s%s\n", (int)length, lines, is_cut ? "..." : "");
  }
  if (n > LONGEST_LIST)
    message_print("... and %d more, %d in all\n", n - LONGEST_LIST, n);
}

void message_print(const char *format, ...) {
  char message[LONGEST_MESSAGE], shown[4 * LONGEST_MESSAGE];
  FixedText text = fixed_text(message, sizeof message);
  size_t n_shown = 0;
  va_list args;
  va_start(args, format);
  fixed_vprintf(&text, format, args);
  va_end(args);
  for (const char *at = message; *at; at++) {
    int n = printable(at);
    if (n == 0)
      n_shown +=
          (size_t)snprintf(shown + n_shown, 5, "\\x%02x", (unsigned char)*at);
    for (int i = 0; i < n; i++) shown[n_shown++] = at[i];
    if (n > 1) at += n - 1;
  }
  fwrite(shown, 1, n_shown, stderr);
}
