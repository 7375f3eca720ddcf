/*
 * tokens.c -- reads the words of IR text, declared in tokens.h: a hand-written
 * lexer in which newlines mean nothing and '#' begins a comment.
 */
#include "ir/text/tokens.h"

#include <stdlib.h>
#include <string.h>

/* ---- mistakes ---- */

Span tokens_span(const Tokens *p) {
  return (Span){p->source, p->token.begin, p->token.end};
}

/* The first mistake stops the parse: from then on the input is at its end. */
static void tokens_stop(Tokens *p) {
  p->failed = true;
  p->token.kind = TOKEN_end;
  p->token.name = name_intern(p->module->names, "");
  p->at = (uint32_t)p->source->n;
}

static const char *token_text(const Tokens *p) {
  if (p->token.kind == TOKEN_end) return "the end";
  int n = (int)(p->token.end - p->token.begin);
  return arena_printf(p->module->arena, "'%.*s'", n < 40 ? n : 40,
                      p->source->text + p->token.begin);
}

void tokens_expected(Tokens *p, const char *what) {
  if (p->failed) return;
  diag(p->module->diags, DIAG_unexpected, tokens_span(p), token_text(p), what);
  tokens_stop(p);
}

void tokens_unknown(Tokens *p, const char *what) {
  if (p->failed) return;
  diag(p->module->diags, DIAG_ir_unknown, tokens_span(p), what, token_text(p));
  tokens_stop(p);
}

void tokens_wrong(Tokens *p, const char *what) {
  if (p->failed) return;
  diag(p->module->diags, DIAG_ir_wrong, tokens_span(p), what);
  tokens_stop(p);
}

/* ---- tokens ---- */

static bool is_ascii_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

static char byte_at(const Tokens *p, uint32_t at) {
  return at < p->source->n ? p->source->text[at] : '\0';
}

static void skip_space(Tokens *p) {
  while (p->at < p->source->n) {
    char c = byte_at(p, p->at);
    if (c == '#') {
      while (p->at < p->source->n && byte_at(p, p->at) != '\n') p->at++;
    } else if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      p->at++;
    } else {
      return;
    }
  }
}

static Name text_between(const Tokens *p, uint32_t begin, uint32_t end) {
  return name_intern_n(p->module->names, p->source->text + begin, end - begin);
}

static int hex_digit(char c) {
  if (is_ascii_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

static void add_utf8(Text *text, unsigned code) {
  char bytes[3];
  int n = 0;
  if (code < 0x80) {
    bytes[n++] = (char)code;
  } else if (code < 0x800) {
    bytes[n++] = (char)(0xc0 | code >> 6);
    bytes[n++] = (char)(0x80 | (code & 63));
  } else {
    bytes[n++] = (char)(0xe0 | code >> 12);
    bytes[n++] = (char)(0x80 | (code >> 6 & 63));
    bytes[n++] = (char)(0x80 | (code & 63));
  }
  text_add_n(text, bytes, (size_t)n);
}

/* The escape at p->at, which is the byte after '\'; false if there is none of
 * that kind.  text_add_json writes no surrogates, so none are read. */
static bool lex_escape(Tokens *p, Text *text) {
  char c = byte_at(p, p->at++);
  switch (c) {
  case '"':
  case '\\': text_add_n(text, &c, 1); return true;
  case 'n': text_add(text, "\n"); return true;
  case 't': text_add(text, "\t"); return true;
  case 'r': text_add(text, "\r"); return true;
  case 'u': break;
  default: return false;
  }
  unsigned code = 0;
  for (int i = 0; i < 4; i++) {
    int digit = hex_digit(byte_at(p, p->at));
    if (digit < 0) return false;
    p->at++;
    code = code << 4 | (unsigned)digit;
  }
  if (code == 0 || (code >= 0xd800 && code < 0xe000)) return false;
  add_utf8(text, code);
  return true;
}

/* Reports a mistake at the bytes from `begin` to where the lexer is. */
static void wrong_bytes(Tokens *p, uint32_t begin, const char *what) {
  uint32_t n = (uint32_t)p->source->n; /* a last '\\' reads past the end */
  p->token = (Token){.begin = begin, .end = p->at < n ? p->at : n};
  tokens_wrong(p, what);
}

static void lex_string(Tokens *p) {
  Text text = text_create(p->module->arena);
  uint32_t begin = p->at++;
  for (;;) {
    const char *c = p->source->text + p->at;
    if (p->at >= p->source->n || *c == '\n' || *c == '\0') {
      wrong_bytes(p, begin, "a string without a closing '\"' on its line");
      return;
    }
    int n = text_utf8_length(c);
    p->at += n ? (uint32_t)n : 1;
    if (*c == '"') break;
    if (!n) {
      wrong_bytes(p, begin, "a string with a byte that is no UTF-8");
      return;
    }
    if (*c != '\\') {
      text_add_n(&text, c, (size_t)n);
    } else if (!lex_escape(p, &text)) {
      wrong_bytes(p, begin,
                  "an escape that is not one of \\\" \\\\ \\n \\t \\r \\uXXXX");
      return;
    }
  }
  p->token = (Token){.kind = TOKEN_string, .begin = begin, .end = p->at};
  p->token.name = name_intern_n(p->module->names, text_string(&text), text.n);
}

static bool continues_number(const Tokens *p) {
  char c = byte_at(p, p->at), before = byte_at(p, p->at - 1);
  if (is_ascii_letter(c) || is_ascii_digit(c) || c == '.') return true;
  return (c == '-' || c == '+') && (before == 'e' || before == 'E');
}

static void lex_number(Tokens *p) {
  uint32_t begin = p->at++;
  while (continues_number(p)) p->at++;
  p->token =
      (Token){TOKEN_number, begin, p->at, text_between(p, begin, p->at), 0};
}

static void lex_value(Tokens *p) {
  uint32_t begin = p->at++;
  int64_t number = 0;
  while (is_ascii_digit(byte_at(p, p->at)) && number < INT32_MAX) {
    number = number * 10 + (byte_at(p, p->at++) - '0');
  }
  p->token = (Token){
      .kind = TOKEN_value, .begin = begin, .end = p->at, .integer = number};
  if (p->at == begin + 1 || number >= INT32_MAX) {
    tokens_wrong(p, "a value that is not % and a number");
  }
}

void tokens_next(Tokens *p) {
  if (p->failed) return;
  skip_space(p);
  uint32_t begin = p->at;
  char c = byte_at(p, begin);
  if (begin >= p->source->n) {
    p->token = (Token){.begin = begin, .end = begin};
    p->token.name = name_intern(p->module->names, "");
  } else if (is_ascii_letter(c)) {
    while (is_ascii_letter(byte_at(p, p->at)) ||
           is_ascii_digit(byte_at(p, p->at)))
      p->at++;
    p->token =
        (Token){TOKEN_word, begin, p->at, text_between(p, begin, p->at), 0};
  } else if (is_ascii_digit(c) || c == '-') {
    lex_number(p);
  } else if (c == '"') {
    lex_string(p);
  } else if (c == '%') {
    lex_value(p);
  } else {
    p->at++;
    p->token = (Token){.kind = TOKEN_char, .begin = begin, .end = p->at};
  }
}

bool tokens_at_char(const Tokens *p, char c) {
  return p->token.kind == TOKEN_char && p->source->text[p->token.begin] == c;
}

bool tokens_accept_char(Tokens *p, char c) {
  if (!tokens_at_char(p, c)) return false;
  tokens_next(p);
  return true;
}

void tokens_expect_char(Tokens *p, char c) {
  if (tokens_accept_char(p, c)) return;
  tokens_expected(p, (char[]){'\'', c, '\'', '\0'});
}

bool tokens_at_word(const Tokens *p, const char *word) {
  return p->token.kind == TOKEN_word && strcmp(p->token.name, word) == 0;
}

bool tokens_accept_word(Tokens *p, const char *word) {
  if (!tokens_at_word(p, word)) return false;
  tokens_next(p);
  return true;
}

bool tokens_at_name(const Tokens *p) {
  return p->token.kind == TOKEN_word || p->token.kind == TOKEN_string;
}

Name tokens_name(Tokens *p) {
  Name name = p->token.name;
  if (tokens_at_name(p)) {
    tokens_next(p);
    return name;
  }
  tokens_expected(p, "a name");
  return p->token.name;
}

Name tokens_string(Tokens *p) {
  Name name = p->token.name;
  if (p->token.kind == TOKEN_string) {
    tokens_next(p);
    return name;
  }
  tokens_expected(p, "a string");
  return p->token.name;
}

int64_t tokens_int(Tokens *p, int64_t low, int64_t high) {
  if (p->token.kind != TOKEN_number) {
    tokens_expected(p, "an integer");
    return low;
  }
  const char *text = p->token.name, *digits = text + (*text == '-');
  if (!*digits || strspn(digits, "0123456789") != strlen(digits)) {
    tokens_expected(p, "an integer");
    return low;
  }
  bool is_small = strlen(digits) < 19; /* 10^18 fits */
  int64_t value = is_small ? strtoll(text, NULL, 10) : 0;
  if (!is_small || value < low || value > high) {
    tokens_wrong(p, "a number that is out of range here");
    return low;
  }
  tokens_next(p);
  return value;
}

double tokens_real(Tokens *p) {
  bool is_real = p->token.kind == TOKEN_number || tokens_at_word(p, "inf") ||
                 tokens_at_word(p, "nan");
  char *end = NULL;
  double value = is_real ? strtod(p->token.name, &end) : 0;
  if (!is_real || *end) {
    tokens_expected(p, "a number");
    return 0;
  }
  tokens_next(p);
  return value;
}

Tokens tokens_begin(Module *module, const Source *source) {
  Tokens tokens = {.module = module, .source = source};
  if (source->n > UINT32_MAX) {
    diag(module->diags, DIAG_ir_wrong, SPAN_NONE, "a text over 4 GiB");
    tokens_stop(&tokens);
  }
  tokens_next(&tokens);
  return tokens;
}
