/*
 * expect.c -- the words of a syntax error.
 *
 *     unexpected else, expecting a statement or '}'
 *
 * The grammar knows every token that could have stood at the place; listed one
 * by one they would say less than the four or five notions behind them, so
 * sets are replaced by their name: an expression, a statement, an item.
 */
#include "frontend/syntax.h"

#include "parser.h"

#include <string.h>

enum { MOST_KINDS = 400, MOST_PHRASES = 5 };

typedef struct Expected {
  bool has[MOST_KINDS];
  const char *phrases[MOST_PHRASES + 1];
  int n;
} Expected;

static const int expression_start[] = {T_NAME, T_INT, T_REAL, T_STRING,
                                       '(',    '[',   '-',    T_NOT};
static const int statement_start[] = {T_PARAM, T_STATE, T_RETURN, T_REPEAT,
                                      T_IF,    '@',     T_END};
static const int item_start[] = {T_IMPORT, T_DIM,  T_CONST, T_LAYER, T_NET,
                                 T_PLAN,   T_NAME, '@',     T_END,   0};
static const int pin_start[] = {T_SHARD, T_REPLICATE, T_STAGE, T_CUT,  T_REMAT,
                                T_KEEP,  T_OFFLOAD,   T_PLACE, T_NAME, T_END};
static const int continuations[] = {
    T_OR, T_AND, T_EQ, T_NE, '<', '>', T_LE,    T_GE, '+',       '-',
    '*',  '/',   '%',  '(',  '[', '.', T_RANGE, '!',  T_FLOORDIV};

static void add(Expected *expected, const char *phrase) {
  if (expected->n <= MOST_PHRASES) expected->phrases[expected->n++] = phrase;
}

static void remove_kinds(Expected *expected, const int *kinds, int n) {
  for (int i = 0; i < n; i++) expected->has[kinds[i]] = false;
}
#define REMOVE(expected, kinds)                                                \
  remove_kinds((expected), (kinds), ARRAY_LENGTH(kinds))

/* How a single kind is written. */
static const char *spelling(int kind) {
  switch (kind) {
  case T_END: return "the end of the line";
  case 0: return "the end of the file";
  case T_NAME: return "a name";
  case T_STRING: return "a string";
  case T_INT:
  case T_REAL: return "a number";
  case T_ARROW: return "'->'";
  case T_RANGE: return "'..'";
  case T_ELLIPSIS: return "'...'";
  case T_LAYER: return "layer";
  case T_NET: return "net";
  case T_IN: return "in";
  case T_ELSE: return "else";
  case T_SCAN: return "scan";
  case T_OVER: return "over";
  case T_ON: return "on";
  case T_AS: return "as";
  case T_AFTER: return "after";
  case T_PARTIAL: return "partial";
  default: return NULL;
  }
}

static void name_sets(Expected *expected) {
  const bool *has = expected->has;
  if (has[T_IMPORT]) {
    REMOVE(expected, item_start);
    add(expected, "an item");
  } else if (has[T_PARAM]) {
    REMOVE(expected, statement_start);
    REMOVE(expected, expression_start);
    add(expected, "a statement");
  } else if (has[T_SHARD]) {
    REMOVE(expected, pin_start);
    add(expected, "a pin");
  } else if (has[T_REAL]) {
    REMOVE(expected, expression_start);
    add(expected, "an expression");
  }
  /* After an operand nearly everything that goes on could: said only where
   * nothing else could stand. */
  if (has['+'] || has['.']) {
    REMOVE(expected, continuations);
    expected->has[T_ELSE] = false;
  }
  if (has['}']) expected->has[T_END] = false;
}

static void name_kinds(Parser *parser, Expected *expected) {
  for (int kind = 0; kind < MOST_KINDS; kind++) {
    if (!expected->has[kind]) continue;
    const char *text = spelling(kind);
    bool is_mark = kind > ' ' && kind < 0x7f;
    if (!text && is_mark) text = arena_printf(parser->arena, "'%c'", kind);
    if (text) add(expected, text);
  }
}

static const char *joined(Parser *parser, const Expected *expected) {
  Text text = text_create(parser->arena);
  for (int i = 0; i < expected->n; i++) {
    if (i > 0) text_add(&text, i + 1 < expected->n ? ", " : " or ");
    text_add(&text, expected->phrases[i]);
  }
  return text_string(&text);
}

/* What stands there, as the user wrote it. */
static const char *written(Parser *parser, Token token) {
  if (token.kind == 0) return "end of file";
  if (token.kind == T_END) return parser->end_text;
  int n = (int)(token.span.end - token.span.begin);
  const char *text = token.span.source->text + token.span.begin;
  if (is_reserved_word(token.kind))
    return arena_printf(parser->arena, "%.*s", n, text);
  if (token.kind == T_STRING) return "string";
  const char *what = token.kind == T_NAME                          ? "name "
                     : token.kind == T_INT || token.kind == T_REAL ? "number "
                                                                   : "";
  return arena_printf(parser->arena, "%s'%.*s'", what, n < 60 ? n : 60, text);
}

static bool is_comparator(int kind) {
  switch (kind) {
  case '<':
  case '>':
  case T_EQ:
  case T_NE:
  case T_LE:
  case T_GE: return true;
  default: return false;
  }
}

/* One fix, where the mistake is a known one. */
static void add_help(Parser *parser, Diag *wrong, const bool *has) {
  Token token = parser->token;
  const char *text = token.span.source->text;
  bool after_block = parser->before_end == '}';
  if (token.kind == T_ELSE && has[T_PARAM] && after_block)
    diag_help(wrong, "the line before has ended the 'if'; write '} else {' on "
                     "one line");
  else if (token.kind == ',' && parser->line_kind == T_RETURN && has[T_END])
    diag_help(wrong, "several values are a list: 'return (a, b)'");
  else if (token.kind == '=' && parser->line_kind == T_IF)
    diag_help(wrong, "'==' compares");
  else if (token.kind == T_FLOORDIV && token.is_first)
    diag_help(wrong, "a comment begins with #");
  else if (is_comparator(token.kind) && has['+'])
    diag_help(wrong, "comparisons do not chain; write 'a < b and b < c'");
  else if (token.kind >= T_SHARD && token.kind <= T_AS && has[T_REAL])
    diag_help(wrong, "a path that begins with this word of plans is quoted");
  else if (is_reserved_word(token.kind) && has[T_NAME] && !has[T_REAL] &&
           !has[T_IMPORT])
    diag_help(wrong, "it is a reserved word; choose another name");
  else if (token.kind == '=' && (has['*'] || has[T_REAL]) && !token.is_first &&
           strchr("+-*/", text[token.span.begin - 1]))
    diag_help(wrong, "write the name again: 'x = x + ...'");
  else if ((token.kind == T_NOT || token.kind == '-') && has[T_REAL])
    diag_help(wrong, "put the negation in parentheses");
}

static bool is_above(Bracket bracket, Token token) {
  return memchr(token.span.source->text + bracket.span.begin, '\n',
                token.span.begin - bracket.span.begin) != NULL;
}

/* The other half: the bracket that is open, if the line seems to have left
 * it. */
static void add_note(Parser *parser, Diag *wrong) {
  Token token = parser->token;
  Bracket last = {0};
  if (parser->n_open > 0) last = parser->open[parser->n_open - 1];
  bool is_closer = token.kind == ')' || token.kind == ']';
  bool has_other = is_closer && parser->popped.kind &&
                   parser->popped.kind != (token.kind == ')' ? '(' : '[');
  if (has_other)
    diag_note(wrong, parser->popped.span, "this '%c' is still open",
              parser->popped.kind);
  else if (parser->n_round > 0 && is_above(last, token))
    diag_note(wrong, last.span, "this '%c' is still open", last.kind);
}

void report_unexpected(Parser *parser, const int *kinds, int n) {
  if (parser->stop || parser->is_closing) return;
  Expected expected = {.n = 0};
  for (int i = 0; i < n; i++) {
    ASSERT(kinds[i] >= 0 && kinds[i] < MOST_KINDS);
    expected.has[kinds[i]] = true;
  }
  bool all[MOST_KINDS];
  memcpy(all, expected.has, sizeof all);
  name_sets(&expected);
  name_kinds(parser, &expected);
  const char *what = written(parser, parser->token);
  bool is_list = expected.n > 0 && expected.n <= MOST_PHRASES;
  Diag *wrong =
      is_list
          ? diag(parser->diags, DIAG_unexpected, parser->token.span, what,
                 joined(parser, &expected))
          : diag(parser->diags, DIAG_unexpected_only, parser->token.span, what);
  add_note(parser, wrong);
  add_help(parser, wrong, all);
}
