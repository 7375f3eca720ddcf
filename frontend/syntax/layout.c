/*
 * layout.c -- turns the scanner's tokens into the tokens of the grammar.
 *
 * Newlines.  A newline becomes END if the last token can end a statement and no
 * ( or [ is open.  An END is also inserted before a `}` and the end of the
 * file, so that the grammar never has to allow for a missing one.
 *
 * Words.  The words of a plan are names everywhere but inside `plan { }`,
 * outside of brackets and not after a dot.
 *
 * Mistakes.  When the grammar refuses a token, all tokens up to the end of the
 * statement are dropped, with the blocks that begin in it, and one END is
 * inserted, for which the grammar's error rules wait.  Outside of all blocks,
 * parsing continues at the next item.  An item word in the first column inside
 * a block shows that braces are missing: they are closed.
 */
#include "frontend/syntax/syntax.h"

#include "parser.h"

#include <ctype.h>
#include <string.h>

/* After these no more errors are printed. */
enum { MOST_ERRORS = 20 };

/* ---- what kinds of token there are ---- */

static bool ends_statement(int kind) {
  switch (kind) {
  case T_NAME:
  case T_INT:
  case T_FLOAT:
  case T_FACTOR:
  case T_STRING:
  case ')':
  case ']':
  case '}': return true;
  case T_SYNTAX_error: return true; /* a wrong line ends with itself */
  default: return false;
  }
}

bool is_item_word(int kind) {
  switch (kind) {
  case T_IMPORT:
  case T_DIM:
  case T_CONST:
  case T_LAYER:
  case T_NET:
  case T_PLAN: return true;
  default: return false;
  }
}

static int plan_word_kind(Name name) {
  static const struct {
    const char *text;
    int kind;
  } words[] = {
#define PLAN_WORD(text, token) {text, token},
#include "ir/text/words.def"
  };
  for (int i = 0; i < ARRAY_LENGTH(words); i++)
    if (strcmp(words[i].text, name) == 0) return words[i].kind;
  return T_NAME;
}

bool is_plan_word(Name name) {
  return plan_word_kind(name) != T_NAME;
}

/* ---- reading ---- */

static void layout_hold(Parser *parser, Token token) {
  ASSERT(parser->n_held < ARRAY_LENGTH(parser->held));
  parser->held[parser->n_held++] = token;
}

static Token layout_read_token(Parser *parser) {
  if (parser->n_held > 0) return parser->held[--parser->n_held];
  Token token = lexer_next(parser);
  token.is_first = parser->line_start;
  if (token.is_first && token.kind != T_NEWLINE) {
    parser->line_start = false;
  }
  if (token.kind == T_NEWLINE || token.kind == ';') parser->line_start = true;
  return token;
}

static Token end_token(Parser *parser, Span span, const char *text) {
  parser->end_text = text;
  return (Token){.kind = T_END, .span = span};
}

/* ---- brackets ---- */

void layout_too_deep(Parser *parser, Span span) {
  if (!parser->stop)
    diag(parser->diags, DIAG_nesting_limit, span, MOST_NESTING);
  parser->stop = true;
}

static void layout_open_bracket(Parser *parser, Token token) {
  if (parser->n_open == MOST_NESTING) {
    layout_too_deep(parser, token.span);
    return;
  }
  parser->open[parser->n_open++] = (Bracket){(char)token.kind, token.span};
}

/* A brace stands in no bracket: those still open are forgotten. */
static void drop_round(Parser *parser) {
  if (parser->n_round > 0) parser->dropped = parser->open[parser->n_open - 1];
  parser->n_open -= parser->n_round;
  parser->n_round = 0;
}

static void open_brace(Parser *parser, Token token) {
  drop_round(parser);
  layout_open_bracket(parser, token);
  if (parser->stop) return;
  parser->n_braces++;
  if (parser->plan_head) parser->plan_brace = parser->n_braces;
  parser->plan_head = false;
}

static void close_brace(Parser *parser) {
  drop_round(parser);
  parser->has_closed = parser->n_braces > 0;
  parser->old_plan_brace = parser->plan_brace;
  if (!parser->has_closed) return;
  parser->n_open--;
  parser->n_braces--;
  if (parser->plan_brace > parser->n_braces) parser->plan_brace = 0;
}

/* Takes back the last close_brace, whose bracket is still in its place. */
static void reopen_brace(Parser *parser) {
  parser->n_open++;
  parser->n_braces++;
  parser->plan_brace = parser->old_plan_brace;
}

static void close_to(Parser *parser, int n_braces) {
  while (parser->n_braces > n_braces) close_brace(parser);
}

static void track_brackets(Parser *parser, Token token) {
  switch (token.kind) {
  case '(':
  case '[':
    layout_open_bracket(parser, token);
    if (!parser->stop) parser->n_round++;
    break;
  case ')':
  case ']':
    parser->popped = (Bracket){0};
    if (parser->n_round > 0) {
      parser->n_round--;
      parser->popped = parser->open[--parser->n_open];
    }
    break;
  case '{': open_brace(parser, token); break;
  case '}': close_brace(parser); break;
  default: break;
  }
}

/* Returns whether the open ( and [ close before the next brace: if not, the
 * line is taken to end where it ends. */
static bool round_closes(Parser *parser) {
  if (parser->offset < parser->closes_at) return true; /* asked before */
  const char *text = parser->source->text;
  size_t i = parser->offset;
  int depth = parser->n_round;
  for (; i < parser->source->n && depth > 0; i++) {
    switch (text[i]) {
    case '(':
    case '[': depth++; break;
    case ')':
    case ']': depth--; break;
    case '{':
    case '}': return false;
    case '#':
      while (i + 1 < parser->source->n && text[i + 1] != '\n') i++;
      break;
    default: break;
    }
  }
  if (depth == 0) parser->closes_at = (uint32_t)i;
  return depth == 0;
}

static void drop_unclosed(Parser *parser) {
  if (parser->n_round > 0 && !round_closes(parser)) drop_round(parser);
}

/* ---- braces that the user forgot ---- */

static void start_closing(Parser *parser, Token token) {
  const char *shown =
      token.kind == 0 ? "end of file"
                      : arena_printf(parser->arena, "%.*s",
                                     (int)(token.span.end - token.span.begin),
                                     parser->source->text + token.span.begin);
  drop_round(parser);
  Diag *wrong = diag(parser->diags, DIAG_missing_brace, token.span, shown);
  diag_note(wrong, parser->open[parser->n_open - 1].span,
            "this '{' is still open");
  parser->is_closing = true;
}

/* END } END } ... for every open brace. */
static Token next_closing(Parser *parser) {
  Span here = {parser->source, parser->last_end, parser->last_end};
  if (parser->token.kind != T_END) return end_token(parser, here, "'}'");
  close_brace(parser);
  parser->is_closing = parser->n_braces > 0;
  return (Token){.kind = '}', .span = here};
}

/* A body begins on the line of its head.  If it does not, it is still the body:
 * the newline is reported and dropped. */
static bool brace_is_late(Parser *parser, Span end) {
  const char *text = parser->source->text;
  size_t i = parser->offset, n = parser->source->n;
  while (i < n && (strchr(" \t\r\n", text[i]) || text[i] == '#')) {
    if (text[i] == '#')
      while (i + 1 < n && text[i + 1] != '\n') i++;
    i++;
  }
  if (i == n || text[i] != '{') return false;
  if (parser->is_skipping) return parser->in_head; /* which is wrong anyway */
  Diag *wrong = diag(parser->diags, DIAG_unexpected, end, "end of line", "'{'");
  diag_help(wrong, "the '{' of a body stands on the line of its head");
  parser->brace_is_late = true;
  return true;
}

/* ---- one token further ---- */

/* A newline, `;`, `}` or the end of the file, seen as the end of a statement;
 * false if it is none. */
static bool make_end(Parser *parser, Token token, Token *out_end) {
  bool ends = ends_statement(parser->last);
  Span after = {parser->source, parser->last_end, parser->last_end + 1};
  switch (token.kind) {
  case T_NEWLINE:
    if (parser->is_skipping && parser->n_round > 0) {
      drop_unclosed(parser);
      ends = true;
    }
    if (!ends || parser->n_round > 0 || brace_is_late(parser, after))
      return false;
    *out_end = end_token(parser, after, "end of line");
    return true;
  case ';':
    if (parser->is_skipping) drop_unclosed(parser);
    if (parser->is_skipping && parser->n_round > 0) return false;
    *out_end = end_token(parser, token.span, "';'");
    return true;
  case '}':
    if (!ends) return false;
    drop_round(parser);
    *out_end = end_token(parser, token.span, "'}'");
    layout_hold(parser, token);
    return true;
  case 0:
    if (!ends) return false;
    *out_end = end_token(parser, token.span, "end of file");
    layout_hold(parser, token);
    return true;
  default: return false;
  }
}

static void track_words(Parser *parser, Token *token) {
  bool is_member = parser->last == '.' || parser->last == '!';
  if (token->kind == T_NAME && parser->plan_brace && parser->n_round == 0 &&
      !is_member)
    token->kind = plan_word_kind(token->name);
  if (token->kind == T_PLAN)
    parser->plan_head = true;
  else if (token->kind != T_NAME && token->kind != '{')
    parser->plan_head = false;
}

static bool is_in_first_column(const Parser *parser, Token token) {
  uint32_t begin = token.span.begin;
  return begin == 0 || parser->source->text[begin - 1] == '\n';
}

static bool starts_item(const Parser *parser, Token token) {
  if (!token.is_first) return false;
  return is_item_word(token.kind) ||
         ((token.kind == T_NAME || token.kind == '@') &&
          is_in_first_column(parser, token));
}

/* `train {`, `data text {`: names elsewhere, but no statement is like that. */
static bool heads_block(const Parser *parser, Token token) {
  static const char *const kinds[] = {"data", "train", "precision", "sample"};
  bool is_kind = false;
  for (int i = 0; i < ARRAY_LENGTH(kinds) && token.kind == T_NAME; i++)
    is_kind = is_kind || strcmp(kinds[i], token.name) == 0;
  if (!is_kind) return false;
  const char *text = parser->source->text + token.span.end;
  text += strspn(text, " ");
  while (isalnum((unsigned char)*text) || *text == '_') text++;
  return text[strspn(text, " ")] == '{';
}

/* The head of an item in the first column, or the end: what no block has. */
static bool is_outside(const Parser *parser, Token token) {
  return token.kind == 0 ||
         (token.is_first && is_in_first_column(parser, token) &&
          (is_item_word(token.kind) || heads_block(parser, token)));
}

/* While a wrong statement is dropped: whether `token` is given after all.  It
 * may be replaced by the END after the statement. */
static bool give_while_skipping(Parser *parser, Token *token) {
  if (parser->in_head && token->kind == '{') {
    parser->is_skipping = parser->to_item = false;
    return true;
  }
  if (token->kind == T_END) parser->in_head = false;
  if (parser->to_item) {
    if (token->kind != 0 && !starts_item(parser, *token)) return false;
  } else if (token->kind == T_END) {
    if (parser->n_braces > parser->floor) return false;
  } else if (!is_outside(parser, *token)) {
    return false;
  }
  parser->is_skipping = parser->to_item = false;
  if (token->kind == T_END) return true;
  /* Braces opened while skipping are unknown to the grammar. */
  close_to(parser, parser->floor);
  layout_hold(parser, *token);
  *token = end_token(parser, token->span, "end of line");
  return true;
}

/* One step; false if what was read is not for the grammar. */
static bool layout_step(Parser *parser, Token *out) {
  Token token = layout_read_token(parser), end;
  parser->dropped = (Bracket){0};
  if (make_end(parser, token, &end))
    token = end;
  else if (token.kind == T_NEWLINE)
    return false;
  if (parser->n_braces > 0 && !parser->is_skipping &&
      is_outside(parser, token)) {
    start_closing(parser, token);
    layout_hold(parser, token);
    *out = next_closing(parser);
    return true;
  }
  bool ends_block = parser->is_skipping && !parser->to_item &&
                    token.kind == '}' && parser->n_braces == parser->floor;
  if (ends_block) { /* the wrong statement ends here, without an END */
    layout_hold(parser, token);
    token = end_token(parser, token.span, "'}'");
  } else {
    track_words(parser, &token);
    track_brackets(parser, token);
  }
  if (token.kind == '{') {
    token.is_wrong = parser->brace_is_late;
    parser->brace_is_late = false;
  }
  if (parser->last == T_END || parser->last == '{' || parser->last == '}')
    parser->first_kind = token.kind;
  if (token.kind == T_END && parser->last != T_END)
    parser->before_end = parser->last;
  parser->before = parser->last;
  parser->last = token.kind;
  if (token.kind != T_END) parser->last_end = token.span.end;
  if (parser->is_skipping && !give_while_skipping(parser, &token)) return false;
  parser->opens_body = parser->in_head && token.kind == '{';
  /* Elsewhere the word is a mistake and begins no head. */
  if ((token.kind == T_LAYER || token.kind == T_NET) && token.is_first &&
      parser->n_braces == 0)
    parser->in_head = true;
  else if (token.kind == '{' || token.kind == T_END)
    parser->in_head = false;
  *out = token;
  return true;
}

/* Recovery gives tokens again and makes up ENDs and braces.  However it and the
 * grammar disagree, more of them than could close every bracket without one new
 * byte of the source is going round in circles: the mistake is reported, and
 * parsing ends here. */
static bool is_stuck(Parser *parser, Token token) {
  if (token.span.end > parser->furthest) {
    parser->furthest = token.span.end;
    parser->n_idle = 0;
  } else if (diags_errors(parser->diags) > 0) {
    parser->n_idle++;
  }
  return parser->n_idle > 4 * MOST_NESTING;
}

int layout_next(Parser *parser) {
  uint32_t n = (uint32_t)parser->source->n;
  Token token = {.kind = 0};
  if (!parser->has_started) {
    parser->has_started = true;
    token.kind = parser->expr_only ? T_START_EXPR : T_START_FILE;
    token.span = (Span){parser->source, 0, 0};
    parser->token = token;
    return token.kind;
  }
  if (diags_errors(parser->diags) >= MOST_ERRORS) parser->stop = true;
  if (parser->is_closing && !parser->stop)
    token = next_closing(parser);
  else
    while (!parser->stop && !layout_step(parser, &token)) continue;
  if (is_stuck(parser, token)) parser->stop = true;
  if (parser->stop) token = (Token){.kind = 0, .span = {parser->source, n, n}};
  parser->token = token;
  if (token.kind == T_SYNTAX_error) layout_recover(parser);
  return token.kind;
}

/* ---- after a mistake ---- */

void layout_recover(Parser *parser) {
  Token token = parser->token;
  if (parser->expr_only) parser->stop = true;
  if (parser->stop || parser->is_closing || token.kind == 0) return;
  if (parser->opens_body) return; /* a body may follow a wrong head */
  /* Once only: a grammar that is in no block refuses it again. */
  if (token.kind == '}' && parser->has_closed &&
      token.span.end != parser->reopened) {
    parser->reopened = token.span.end;
    reopen_brace(parser);
    layout_hold(parser, token);
  }
  drop_unclosed(parser);
  parser->floor = parser->n_braces - (token.kind == '{' ? 1 : 0);
  parser->to_item = parser->floor == 0;
  parser->is_skipping =
      parser->to_item || token.kind != T_END || parser->n_round > 0;
  if (parser->to_item && starts_item(parser, token)) layout_hold(parser, token);
}
