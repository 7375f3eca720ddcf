/*
 * tokens.h -- declares the words of IR text (head of ir.h), which the parsers
 * of graphs and of lists of instructions read one by one.
 *
 * The input may be anything.  The first mistake becomes a diag and ends the
 * parse: from then on the input is at its end, so no caller asks after each
 * word whether it was there.
 */
#ifndef IR_TEXT_TOKENS_H
#define IR_TEXT_TOKENS_H

#include "ir/ir.h"

typedef enum TokenKind {
  TOKEN_end,
  TOKEN_word, /* f32, P, and what begins like a number: 1e-5, -3 */
  TOKEN_number,
  TOKEN_string, /* name */
  TOKEN_value,  /* %12: integer */
  TOKEN_char,   /* one byte of punctuation */
} TokenKind;

typedef struct Token {
  TokenKind kind;
  uint32_t begin, end;
  Name name;       /* word, string, text of a number */
  int64_t integer; /* value */
} Token;

typedef struct Tokens {
  Module *module;
  const Source *source;
  uint32_t at;
  Token token; /* the next one */
  bool failed;
  int depth; /* number of bodies that are open */
} Tokens;

/* Begins at the first word.  A text over 4 GiB is a mistake. */
Tokens tokens_begin(Module *module, const Source *source);
/* Goes on to the next word. */
void tokens_next(Tokens *p);
/* Returns the place of the word at hand. */
Span tokens_span(const Tokens *p);

/* ---- mistakes at the word at hand ---- */

void tokens_expected(Tokens *p, const char *what);
void tokens_unknown(Tokens *p, const char *what);
void tokens_wrong(Tokens *p, const char *what);

/* ---- what the word is ---- */

bool tokens_at_char(const Tokens *p, char c);
bool tokens_at_word(const Tokens *p, const char *word);
bool tokens_at_name(const Tokens *p);
/* Returns true if the character was there; then the next word is at hand. */
bool tokens_accept_char(Tokens *p, char c);
bool tokens_accept_word(Tokens *p, const char *word);
void tokens_expect_char(Tokens *p, char c);
/* Reads a name, which is never NULL. */
Name tokens_name(Tokens *p);
Name tokens_string(Tokens *p);
/* Reads an integer within [low, high]; returns `low` after a mistake. */
int64_t tokens_int(Tokens *p, int64_t low, int64_t high);
/* Reads a float; inf and nan are words, -inf is a number token. */
double tokens_real(Tokens *p);

#endif
