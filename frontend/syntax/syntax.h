/*
 * syntax.h -- the interface between scanner, layout, grammar and tree builders;
 * private to this folder.
 *
 *     lexer.l --raw tokens--> layout.c --tokens--> parser.y --> ast.c
 *
 * The scanner knows spelling only.  The layout turns newlines into END, tells
 * the words of a plan from names and finds the place where parsing continues
 * after a mistake; therefore the grammar needs no special rules.
 */
#ifndef FRONTEND_SYNTAX_H
#define FRONTEND_SYNTAX_H

#include "frontend/syntax/ast.h"

enum { MOST_NESTING = 500 };

/* ---- semantic values: lists that still grow ---- */

typedef struct PlacedName {
  Name name;
  Span span;
} PlacedName;

typedef VEC(PlacedName) NameVec;
typedef VEC(Expr *) ExprVec;
typedef VEC(Arg) ArgVec;
typedef VEC(Sub) SubVec;
typedef VEC(TypeDim) TypeDimVec;
typedef VEC(TypeExpr *) TypeVec;
typedef VEC(FormalParam) FormalParamVec;
typedef VEC(Stmt *) StmtVec;
typedef VEC(Annotation) AnnotationVec;
typedef VEC(Binding) BindingVec;
typedef VEC(Setting) SettingVec;
typedef VEC(Place) PlaceVec;
typedef VEC(Pin) PinVec;
typedef VEC(Item) ItemVec;

typedef struct Number {
  int64_t integer;
  double real;
  Name spelling; /* spelling of a number with a unit */
} Number;

typedef struct Generics {
  NameVec in, out;
  bool present;
} Generics;

/* ---- the state of one parse ---- */

typedef struct Token {
  int kind;
  Span span;
  bool is_first; /* the token is the first of its line */
  bool is_wrong; /* reported: the grammar need not say so again */
  Name name;     /* names and strings */
  Number number;
} Token;

typedef struct Bracket {
  char kind; /* ( [ { */
  Span span;
} Bracket;

typedef struct Parser {
  Arena *arena;
  Names *names;
  Diags *diags;
  const Source *source;
  void *scanner;
  uint32_t offset;  /* offset of the scanner */
  bool expr_only;   /* parses one expression, not a file */
  bool has_started; /* the token that says which was given */
  bool stop;        /* only the end of the file comes any more */

  Bracket open[MOST_NESTING];
  int n_open, n_braces;
  int n_round;     /* ( and [ open inside the innermost brace */
  int plan_brace;  /* n_braces inside the plan's block; 0 means in none */
  bool plan_head;  /* the parser is between `plan` and its brace */
  bool line_start; /* the next token is the first of its line */

  Token token;          /* the last one given to the grammar */
  const char *end_text; /* text of the last END as the user wrote it */
  int last;             /* kind of the last token read, also skipped ones */
  int before;           /* kind of the token before that */
  uint32_t last_end;    /* end of the last token but END */
  int before_end;       /* kind of the token before the last END */
  int first_kind;       /* kind of the first token of the statement */
  /* The brace stands on the next line, which was reported. */
  bool brace_is_late;
  bool has_closed;    /* the last `}` closed a brace ... */
  int old_plan_brace; /* ... before which plan_brace was this */
  Token held[4];      /* read before the scanner continues, last first */
  int n_held;
  uint32_t furthest;  /* end of the last token that was new */
  int n_idle;         /* tokens since then */
  bool in_head;       /* the parser is between layer or net and its brace */
  bool opens_body;    /* the last token is that brace */
  bool is_closing;    /* braces are being closed for the user */
  bool is_skipping;   /* tokens are skipped to the end of the wrong statement */
  bool to_item;       /* tokens are skipped to the next item */
  uint32_t closes_at; /* the open ( and [ are known to close before */
  uint32_t reopened;  /* end of the `}` that was last read again */
  int floor;          /* n_braces around the wrong statement */

  Bracket popped;  /* the bracket that the last ) or ] closed */
  Bracket dropped; /* the innermost open one that this token forgets */

  int serial;
  ItemVec items;
  Expr *expr; /* result if expr_only */
} Parser;

/* ---- lexer.l ---- */

void lexer_begin(Parser *parser);
/* Reads one raw token, newlines included.  Numbers, names and strings are
 * ready. */
Token lexer_next(Parser *parser);

/* ---- layout.c ---- */

/* Reads the next token of the grammar, which is also left in parser->token. */
int layout_next(Parser *parser);
/* Called when the grammar refused parser->token. */
void layout_recover(Parser *parser);
/* Reports the nesting limit and ends the parse. */
void layout_too_deep(Parser *parser, Span span);
bool is_plan_word(Name name);
/* Returns whether the word begins an item: dim, layer ...; none is allowed
 * inside a block. */
bool is_item_word(int kind);
bool is_reserved_word(int kind);

/* ---- expect.c ---- */

/* Reports parser->token where the n kinds of `expected` could stand. */
void report_unexpected(Parser *parser, const int *expected, int n);

/* ---- parser.y ---- */

int syntax_parse(Parser *parser);

/* ---- ast.c: builders, called by the grammar ---- */

NameList name_list(Parser *parser, NameVec names);
Expr *expr_name(Parser *parser, Name name, Span span);
Expr *expr_number(Parser *parser, ExprKind kind, Number number, Span span);
Expr *expr_string(Parser *parser, Name name, Span span);
/* Returns the expression of a bracket: `(a)` is a, `[a]` a list of one. */
Expr *expr_bracket(Parser *parser, char bracket, ExprVec items, Span span);
Expr *expr_unary(Parser *parser, Operator op, Span op_span, Expr *a, Span span);
Expr *expr_binary(Parser *parser, Operator op, Span op_span, Expr *a, Expr *b);
Expr *expr_range(Parser *parser, Span op_span, Expr *a, Expr *b);
Expr *expr_call(Parser *parser, Expr *a, ArgVec args, Span span);
Expr *expr_index(Parser *parser, Expr *a, SubVec subs, Span span);
Expr *expr_member(Parser *parser, ExprKind kind, Expr *a, PlacedName name);
/* Returns a nested block of settings; one name before it is its label too. */
Setting setting_block(Parser *parser, PlacedName name, ExprVec paths,
                      SettingVec settings);
TypeExpr *type_expr(Parser *parser, Name dtype, TypeDimVec dims, Span span);
Stmt *stmt_new(Parser *parser, Stmt stmt);
/* Hangs `else_body` or, if `branch`, that branch after the chain's last `if`,
 * which it returns. */
Stmt *stmt_else(Parser *parser, Stmt *last, StmtVec else_body, Stmt *branch);

#endif
