/*
 * expect.c -- words the errors of the grammar: what was found, what may follow.
 *
 *     unexpected else, expecting a statement or '}'
 *
 * The grammar knows every token that may follow.  A list of tokens would say
 * less than the few notions to which they belong, so sets of tokens are named:
 * an expression, a statement, an item.
 */
#include "frontend/syntax/syntax.h"

#include "parser.h"

#include <ctype.h>
#include <string.h>

enum { MOST_KINDS = 400, MOST_PHRASES = 5 };

typedef struct Expected {
  bool has[MOST_KINDS];
  const char *phrases[MOST_PHRASES + 1];
  int n;
} Expected;

static const int expression_start[] = {
    T_NAME, T_INT, T_FLOAT, T_FACTOR, T_STRING, '(', '[', '-', T_NOT};
static const int statement_start[] = {T_PARAM, T_STATE, T_RETURN, T_REPEAT,
                                      T_IF,    '@',     T_END};
static const int item_start[] = {T_IMPORT, T_DIM,  T_CONST, T_LAYER, T_NET,
                                 T_PLAN,   T_NAME, '@',     T_END,   0};
static const int pin_start[] = {T_SHARD, T_REPLICATE, T_STAGE, T_CUT,  T_REMAT,
                                T_KEEP,  T_OFFLOAD,   T_PLACE, T_NAME, T_END};
static const int continuations[] = {
    T_OR, T_AND, T_EQ, T_NE, '<', '>', T_LE,    T_GE, '+',       '-',
    '*',  '/',   '%',  '(',  '[', '.', T_RANGE, '!',  T_FLOORDIV};

static void expected_add(Expected *expected, const char *phrase) {
  if (expected->n <= MOST_PHRASES) expected->phrases[expected->n++] = phrase;
}

static void remove_kinds(Expected *expected, const int *kinds, int n) {
  for (int i = 0; i < n; i++) expected->has[kinds[i]] = false;
}
#define REMOVE(expected, kinds)                                                \
  remove_kinds((expected), (kinds), ARRAY_LENGTH(kinds))

/* How a single kind is written. */
static const char *token_spelling(int kind) {
  switch (kind) {
  case T_END: return "the end of the line";
  case 0: return "the end of the file";
  case T_NAME: return "a name";
  case T_STRING: return "a string";
  case T_INT:
  case T_FLOAT:
  case T_FACTOR: return "a number";
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
    expected_add(expected, "an item");
  } else if (has[T_PARAM]) {
    REMOVE(expected, statement_start);
    REMOVE(expected, expression_start);
    expected_add(expected, "a statement");
  } else if (has[T_SHARD]) {
    REMOVE(expected, pin_start);
    expected_add(expected, "a pin");
  } else if (has[T_FLOAT]) {
    REMOVE(expected, expression_start);
    expected_add(expected, "an expression");
  }
  /* After an operand nearly every continuation is possible: they are listed
   * only where nothing else is. */
  if (has['+'] || has['.']) {
    REMOVE(expected, continuations);
    expected->has[T_ELSE] = false;
  }
  if (has['}']) expected->has[T_END] = false;
}

static void name_kinds(Parser *parser, Expected *expected) {
  for (int kind = 0; kind < MOST_KINDS; kind++) {
    if (!expected->has[kind]) continue;
    const char *text = token_spelling(kind);
    bool is_mark = kind > ' ' && kind < 0x7f;
    if (!text && is_mark) text = arena_printf(parser->arena, "'%c'", kind);
    if (text) expected_add(expected, text);
  }
}

static const char *names_joined(Parser *parser, const Expected *expected) {
  Text text = text_create(parser->arena);
  for (int i = 0; i < expected->n; i++) {
    if (i > 0) text_add(&text, i + 1 < expected->n ? ", " : " or ");
    text_add(&text, expected->phrases[i]);
  }
  return text_string(&text);
}

/* The text at the place, as the user wrote it. */
static const char *token_written(Parser *parser, Token token) {
  if (token.kind == 0) return "end of file";
  if (token.kind == T_END) return parser->end_text;
  int n = (int)(token.span.end - token.span.begin);
  const char *text = token.span.source->text + token.span.begin;
  if (is_reserved_word(token.kind))
    return arena_printf(parser->arena, "%.*s", n, text);
  if (token.kind == T_STRING) return "string";
  bool is_number =
      token.kind == T_INT || token.kind == T_FLOAT || token.kind == T_FACTOR;
  const char *what = token.kind == T_NAME ? "name "
                     : is_number          ? "number "
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

/* Words of other languages, as the one before the token. */
static const struct {
  const char *word, *help;
} foreign[] = {
    {"for", "a loop is 'repeat i in 0..9 { }'"},
    {"while", "a loop is 'repeat i in 0..9 { }'"},
    {"elif", "write 'else if'"},
    {"elsif", "write 'else if'"},
    {"def", "functions are layers: 'layer f(x) { return x }'"},
    {"fn", "functions are layers: 'layer f(x) { return x }'"},
    {"func", "functions are layers: 'layer f(x) { return x }'"},
    {"function", "functions are layers: 'layer f(x) { return x }'"},
    {"class", "modules are layers: 'layer f(x) { return x }'"},
    {"model", "the program is a net: 'net f(x: [B]) { return x }'"},
    {"lambda", "functions are layers: 'layer f(x) { return x }'"},
    {"let", "a name is made by 'y = ...'"},
    {"var", "a name is made by 'y = ...'"},
};

static const char *help_for_foreign(Token token) {
  const char *text = token.span.source->text;
  size_t end = token.span.begin;
  while (end > 0 && text[end - 1] == ' ') end--;
  size_t begin = end;
  while (begin > 0 && isalpha((unsigned char)text[begin - 1])) begin--;
  if (token.kind == '(') { /* def f( */
    end = begin;
    while (end > 0 && text[end - 1] == ' ') end--;
    begin = end;
    while (begin > 0 && isalpha((unsigned char)text[begin - 1])) begin--;
  }
  for (int i = 0; i < ARRAY_LENGTH(foreign); i++)
    if (strlen(foreign[i].word) == end - begin &&
        strncmp(foreign[i].word, text + begin, end - begin) == 0)
      return foreign[i].help;
  return NULL;
}

static char char_after(Token token) {
  const Source *source = token.span.source;
  size_t i = token.span.end;
  while (i < source->n && source->text[i] == ' ') i++;
  return i < source->n ? source->text[i] : '\0';
}

static bool is_assigned(Token token) {
  const char *text = token.span.source->text + token.span.end;
  text += strspn(text, " ");
  return text[0] == '=' && text[1] != '=';
}

static bool token_is_word(Token token, const char *word) {
  size_t n = token.span.end - token.span.begin;
  return n == strlen(word) &&
         memcmp(token.span.source->text + token.span.begin, word, n) == 0;
}

/* Where an operand, a statement or an item was to begin. */
static const char *help_for_start(Parser *parser, const bool *has) {
  Token token = parser->token;
  bool is_statement = has[T_PARAM];
  if ((token.kind == '/' && char_after(token) == '*') ||
      (token.kind == T_FLOORDIV && (is_statement || has[T_IMPORT])))
    return "a comment begins with #";
  if (token.is_first && (is_statement || has[T_IMPORT]) &&
      strchr("+*/%.,", token.kind < 0x80 ? token.kind : '?'))
    return "a statement continues on the next line where a line ends with an "
           "operator or a "
           "comma";
  if (is_item_word(token.kind) && is_statement)
    return "it stands outside of all blocks";
  if (token.kind == '!' && has[T_FLOAT]) return "'not' negates";
  if (token.kind == T_SCAN && has[T_FLOAT])
    return "a scan is a statement of its own: 'y = scan T (...) { }'";
  if ((token.kind == ')' || token.kind == ']') && parser->before == ',')
    return "a list ends without a comma";
  if (token.kind == T_DIM && has[T_FLOAT] && char_after(token) == '(')
    return "size(x, D) is the size of a dim";
  if (token.kind == T_DIM && has[T_FLOAT] && char_after(token) == '=')
    return "a dim is given by its name alone, as in sum(x, D)";
  if (is_reserved_word(token.kind) && has[T_FLOAT] && has[T_NAME] &&
      char_after(token) == '=')
    return "it is a reserved word, which names no argument";
  if ((token.kind == ':' || token.kind == T_ELLIPSIS) && has[T_FLOAT])
    return "a range is a..b, with both ends; a dim that is not indexed is left "
           "out";
  if (token.kind == T_INT && has[T_ELLIPSIS])
    return "a dim has a name and a size, as in [B:32]";
  return NULL;
}

/* At a token that begins a value, or after one. */
static const char *help_for_value(const Parser *parser, const bool *has) {
  Token token = parser->token;
  bool in_operand = has['+'];
  bool opens = token.kind == '(' || token.kind == '[';
  bool in_round = parser->n_round > opens;
  bool is_operand = token.kind == T_NAME || token.kind == T_INT ||
                    token.kind == T_FLOAT || token.kind == T_STRING;
  if (in_round && is_operand && has[','] && !token.is_first)
    return "elements in brackets are separated by commas";
  if (parser->first_kind == '@' && is_reserved_word(token.kind) && has[T_END])
    return "an annotation stands on a line of its own";
  if (token.kind == T_OVER && has['=']) return "as in 'shard B over data'";
  if (token.kind == T_STRING && parser->before == T_STRING)
    return "a comment begins with #";
  if (token.kind == T_NAME && has[','] && parser->n_braces == 0)
    return "several are separated by commas";
  bool is_pair = token.kind == T_NAME && parser->before == T_NAME;
  if (is_pair && has[T_END] && !token.is_first && !is_assigned(token))
    return "what is called has its arguments in parentheses, as in f(x)";
  bool begins = token.kind == T_NAME || token.kind == T_RETURN ||
                token.kind == T_PARAM || token.kind == T_STATE ||
                token.kind == T_REPEAT;
  if (begins && has[T_END] && in_operand && !token.is_first)
    return "what follows on one line is separated by ';'";
  if (token.kind == '=' && has[T_END] && parser->before == ')' &&
      parser->first_kind == '(')
    return "names that take a list apart stand alone: 'a, b = ...'";
  bool after_operand = parser->before == ')' || parser->before == ']' ||
                       parser->before == T_NAME;
  if (token.kind == '=' && has[T_END] && in_operand && after_operand)
    return "only names are assigned; select, concat and pad make new values";
  return NULL;
}

/* At a token of any kind, by what was expected. */
static const char *help_for_token(const Parser *parser, const bool *has) {
  Token token = parser->token;
  bool in_operand = has['+'];
  bool opens = token.kind == '(' || token.kind == '[';
  bool in_round = parser->n_round > opens;
  if (parser->before == ':' && has['['] && !has[T_FLOAT])
    return parser->n_round ? "a type names its dims in brackets, as in [B, C:3]"
                           : "a setting is given by '='";
  bool lacks_dims = has['['] && !has['('] && !in_operand;
  if (lacks_dims && (token.kind == '=' || token.kind == ')'))
    return "a type names its dims in brackets; a scalar is 'f32[]'";
  if (token.kind == '=' && has['{'] && has[T_NAME])
    return "a value of the whole file is a 'dim' or a 'const'";
  if (token.kind == '=' && has[':'] && !in_round &&
      (parser->first_kind == T_PARAM || parser->first_kind == T_STATE))
    return "a type comes first, as in 'param w: [C] = zeros'";
  if (token.kind == T_NAME && in_operand && token_is_word(token, "is"))
    return "'==' compares";
  if (token.kind == T_NAME && in_operand && token_is_word(token, "for"))
    return "a list is written out; a loop is 'repeat i in 0..9 { }'";
  if (token.kind == T_NAME && parser->before == T_IMPORT)
    return "a file is named by a string, as in 'import \"lib.dnn\"'";
  if (parser->before == T_REPEAT && has[T_NAME])
    return "as in 'repeat i in 3 { }'";
  if (token.kind == T_NAME && has['{'] && parser->first_kind == T_IF)
    return "a body stands in braces";
  return help_for_value(parser, has);
}

/* Where something could have gone on or ended: by the sign that came. */
static const char *help_for_end(const Parser *parser, const bool *has) {
  Token token = parser->token;
  bool in_operand = has['+'], is_call = has['='] && has[')'];
  bool opens = token.kind == '(' || token.kind == '[';
  bool in_round = parser->n_round > opens;
  switch (token.kind) {
  case T_ARROW:
    return is_call ? "dims of a layer stand in brackets: f[C -> K](x)" : NULL;
  case '(':
    if (has['{'] && !in_round)
      return "settings stand in braces, as in 'train { steps = 10 }'";
    return has['['] && !in_operand && !in_round && parser->before == T_NAME
               ? "a setting is given by '='"
               : NULL;
  case '[':
    return has[':'] && has[')'] ? "the type follows the name, as in 'x: f32[B]'"
                                : NULL;
  case '@': return in_operand ? "a matmul is dot(a, b, D)" : NULL;
  case T_IF: return in_operand ? "select(c, a, b) chooses" : NULL;
  case ':':
    if (is_call) return "a named argument is 'f(a = 1)'";
    if (has['{']) return "a body stands in braces";
    if (has[T_RANGE]) return "a range is a..b, with both ends";
    if (in_round && has[','] && has[')'] && !has[T_NAME])
      return "a part of a split has the size that 'dim' gives its name";
    if (has[']'] && parser->before != T_ELLIPSIS)
      return "only names stand here; sizes are given by 'dim H = 64'";
    if (!has[T_END] || !has['=']) return NULL;
    return parser->n_braces ? "a value has the type of what is assigned to it"
                            : "a size is given by '='";
  case T_ELLIPSIS: return has[T_RANGE] ? "a range is a..b" : NULL;
  case ',':
    if (has['{'] && parser->first_kind != T_IF)
      return "several results stand in parentheses";
    return has[T_END] && parser->n_braces > 0
               ? "several values are a list, as in (a, b); statements "
                 "and settings are separated by ';'"
               : NULL;
  default: return help_for_token(parser, has);
  }
}

/* One fix, where the mistake is a known one. */
static void add_help(Parser *parser, Diag *wrong, const bool *has) {
  Token token = parser->token;
  const char *text = token.span.source->text;
  bool after_block = parser->before_end == '}';
  const char *help = help_for_foreign(token);
  if (help)
    diag_help(wrong, "%s", help);
  else if (token.kind == T_ELSE && has[T_PARAM] && after_block)
    diag_help(wrong, "the line before has ended the 'if'; write '} else {' on "
                     "one line");
  else if (token.kind == ',' && parser->first_kind == T_RETURN && has[T_END])
    diag_help(wrong, "several values are a list: 'return (a, b)'");
  else if (token.kind == '=' && parser->first_kind == T_IF)
    diag_help(wrong, "'==' compares");
  else if (is_comparator(token.kind) && has['+'])
    diag_help(wrong, "comparisons do not chain; write 'a < b and b < c'");
  else if (token.kind >= T_SHARD && token.kind <= T_AS && has[T_FLOAT])
    diag_help(wrong, "a path that begins with this word of plans is quoted");
  else if (is_reserved_word(token.kind) && has[T_NAME] && !has[T_FLOAT] &&
           !has[T_IMPORT])
    diag_help(wrong, "it is a reserved word; choose another name");
  else if (token.kind == '=' && (has['*'] || has[T_FLOAT]) && !token.is_first &&
           strchr("+-*/%", text[token.span.begin - 1]))
    diag_help(wrong, "write the name again: 'x = x + ...'");
  else if ((token.kind == T_NOT || token.kind == '-') && has[T_FLOAT])
    diag_help(wrong, "put the negation in parentheses");
  else if ((help = help_for_start(parser, has)) ||
           (help = help_for_end(parser, has)))
    diag_help(wrong, "%s", help);
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
  else if (parser->dropped.kind)
    diag_note(wrong, parser->dropped.span, "this '%c' is still open",
              parser->dropped.kind);
  else if (parser->n_round > 0 && is_above(last, token))
    diag_note(wrong, last.span, "this '%c' is still open", last.kind);
}

void report_unexpected(Parser *parser, const int *kinds, int n) {
  if (parser->stop || parser->is_closing || parser->token.is_wrong) return;
  Expected expected = {.n = 0};
  for (int i = 0; i < n; i++) {
    ASSERT(kinds[i] >= 0 && kinds[i] < MOST_KINDS);
    expected.has[kinds[i]] = true;
  }
  bool all[MOST_KINDS];
  memcpy(all, expected.has, sizeof all);
  name_sets(&expected);
  name_kinds(parser, &expected);
  const char *what = token_written(parser, parser->token);
  bool is_list = expected.n > 0 && expected.n <= MOST_PHRASES;
  Diag *wrong =
      is_list
          ? diag(parser->diags, DIAG_unexpected, parser->token.span, what,
                 names_joined(parser, &expected))
          : diag(parser->diags, DIAG_unexpected_only, parser->token.span, what);
  add_note(parser, wrong);
  add_help(parser, wrong, all);
}
