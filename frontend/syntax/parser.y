/*
 * parser.y -- the grammar of docs/language.md, section "Grammar", rule by rule.
 *
 * LALR(1) without conflicts.  Lists are left-recursive and expressions
 * stratified by precedence, so that only brackets, which the layout counts,
 * deepen the stack.  A mistake is reported at its place; the `error`
 * productions of bodies, settings, pins and items consume the END that
 * layout_recover inserts after the wrong statement.
 */
%define api.pure full
%define api.prefix {syntax_}
%define api.token.prefix {T_}
%define api.location.type {Span}
%define parse.error custom
/* No reduction before the token that does not fit: the list of what could
 * stand there stays complete. */
%define lr.default-reduction consistent
%locations
%expect 0
%parse-param {Parser *parser}
%lex-param {Parser *parser}

%code requires {
#include "frontend/syntax/syntax.h"
}

%code {
/* can_shift finds the symbols that may come next, not the skeleton. */
#pragma GCC diagnostic ignored "-Wunused-function"

/* Brackets of 500 levels need some ten symbols each. */
#define YYMAXDEPTH 50000
#define YYMALLOC(n) arena_alloc(parser->arena, (n))
#define YYFREE(block) ((void)(block))
#define YYLLOC_DEFAULT(current, rhs, n)                                    \
  ((current) = (n) ? span_join(YYRHSLOC(rhs, 1), YYRHSLOC(rhs, n))         \
                   : (Span){YYRHSLOC(rhs, 0).source, YYRHSLOC(rhs, 0).end, \
                            YYRHSLOC(rhs, 0).end})
#define PUSH(list, ...) vec_push(parser->arena, &(list), __VA_ARGS__)
/* A list's growing form to the tree's plain one. */
#define ITEMS(type, list) ((type){(list).data, (list).n})

static int syntax_lex(YYSTYPE *value, Span *span, Parser *parser);
static void syntax_error(const Span *span, Parser *parser,
                         const char *message);
}

%initial-action { @$ = (Span){parser->source, 0, 0}; }

%union {
  Name name;
  Number number;
  PlacedName placed;
  NameVec names;
  Generics generics;
  Expr *expr;
  ExprVec exprs;
  Arg arg;
  ArgVec args;
  Sub sub;
  SubVec subs;
  TypeExpr *type;
  TypeDim type_dim;
  TypeDimVec type_dims;
  TypeVec types;
  TypeList type_list;
  FormalParam formal_param;
  FormalParamVec formal_params;
  Stmt *stmt;
  StmtVec stmts;
  struct { Stmt *first, *last; int n; } chain;
  Annotation annotation;
  AnnotationVec annotations;
  Binding binding;
  BindingVec bindings;
  Setting setting;
  SettingVec settings;
  Place place;
  PlaceVec places;
  Pin pin;
  PinVec pins;
  Item item;
}

/* Never seen by the grammar: the layout makes END of it or drops it. */
%token NEWLINE
%token START_FILE START_EXPR END
%token <name> NAME STRING
%token <number> INT FLOAT FACTOR
%token ARROW "->" EQ "==" NE "!=" LE "<=" GE ">=" FLOORDIV "//" RANGE ".."
%token ELLIPSIS "..."
/* Reserved words, in one run: is_reserved_word. */
%token IMPORT DIM CONST LAYER NET PARAM STATE REPEAT SCAN IN IF ELSE RETURN
%token AND OR NOT PLAN
%token SHARD OVER PARTIAL REPLICATE STAGE CUT AFTER REMAT KEEP OFFLOAD PLACE ON
%token AS

%type <placed> placed label
%type <names> names axes
%type <generics> generics
%type <expr> expr or_expr and_expr not_expr sum product unary postfix primary
%type <expr> comparison value init on path
%type <exprs> exprs exprs_opt paths
%type <arg> arg
%type <args> args args_opt
%type <sub> sub
%type <subs> subs
%type <type> type
%type <type_dim> type_dim
%type <type_dims> type_dims type_dims_opt
%type <types> types
%type <type_list> result
%type <formal_param> formal_param
%type <formal_params> formal_params formal_params_opt
%type <stmt> stmt stmt_body
%type <chain> branch
%type <stmts> block stmts
%type <annotation> annotation
%type <annotations> annotations
%type <binding> dim const
%type <bindings> dims consts
%type <setting> setting
%type <settings> settings
%type <place> place
%type <places> places
%type <pin> pin pin_word as
%type <pins> pins
%type <item> item
%type <number> comparator adder multiplier

%%

start:
  START_FILE items
| START_EXPR value END { parser->expr = $2; }
;

/* ---- items ---- */

items:
  %empty
| items END
| items item { PUSH(parser->items, $2); }
| items error END { yyerrok; }
| items annotations LAYER error END { yyerrok; }
| items annotations NET error END { yyerrok; }
/* The body after a wrong head is checked, but makes no layer. */
| items annotations LAYER error '{' { yyerrok; } stmts '}'
| items annotations NET error '{' { yyerrok; } stmts '}'
;

item:
  IMPORT STRING END
    { $$ = (Item){.kind = ITEM_import, .name = $2, .name_span = @2}; $$.span = span_join(@1, @2); }
| DIM dims END
    { $$ = (Item){.kind = ITEM_dim, .bindings = $2.data, .n_bindings = $2.n,
                  .span = span_join(@1, @2)}; }
| CONST consts END
    { $$ = (Item){.kind = ITEM_const, .bindings = $2.data, .n_bindings = $2.n,
                  .span = span_join(@1, @2)}; }
| annotations LAYER NAME generics '(' formal_params_opt ')' result block
    { $$ = (Item){.kind = ITEM_layer, .name = $3, .name_span = @3,
                  .annotations = ITEMS(AnnotationList, $1),
                  .generics_in = name_list(parser, $4.in),
                  .generics_out = name_list(parser, $4.out),
                  .has_generics = $4.present,
                  .params = ITEMS(FormalParamList, $6), .result = $8,
                  .body = ITEMS(StmtList, $9), .span = span_join(@2, @8)}; }
| annotations NET NAME '(' formal_params_opt ')' result block
    { $$ = (Item){.kind = ITEM_net, .name = $3, .name_span = @3,
                  .annotations = ITEMS(AnnotationList, $1),
                  .params = ITEMS(FormalParamList, $5), .result = $7,
                  .body = ITEMS(StmtList, $8), .span = span_join(@2, @7)}; }
| PLAN label '{' pins '}'
    { $$ = (Item){.kind = ITEM_plan, .name = $2.name, .name_span = $2.span,
                  .pins = $4.data, .n_pins = $4.n,
                  .span = span_join(@1, @2)}; }
| placed label '{' settings '}'
    { $$ = (Item){.kind = ITEM_block, .block = $1.name, .name = $2.name,
                  .name_span = $2.name ? $2.span : $1.span,
                  .settings = $4.data, .n_settings = $4.n,
                  .span = span_join(@1, @2)}; }
;

label:
  %empty { $$ = (PlacedName){NULL, SPAN_NONE}; }
| placed
;

dims:
  dim { $$ = (BindingVec){0}; PUSH($$, $1); }
| dims ',' dim { $$ = $1; PUSH($$, $3); }
;

dim:
  NAME { $$ = (Binding){$1, NULL, @$}; }
| NAME '=' expr { $$ = (Binding){$1, $3, @$}; }
;

consts:
  const { $$ = (BindingVec){0}; PUSH($$, $1); }
| consts ',' const { $$ = $1; PUSH($$, $3); }
;

const:
  NAME '=' expr { $$ = (Binding){$1, $3, @$}; }
;

generics:
  %empty { $$ = (Generics){.present = false}; }
| '[' names ']' { $$ = (Generics){.in = $2, .present = true}; }
| '[' names "->" names ']'
    { $$ = (Generics){.in = $2, .out = $4, .present = true}; }
;

result:
  %empty { $$ = (TypeList){0}; }
| "->" type
    { TypeVec one = {0};
      PUSH(one, $2);
      $$ = (TypeList){one.data, one.n, false}; }
| "->" '(' types ')' { $$ = (TypeList){$3.data, $3.n, $3.n > 1}; }
;

/* ---- names, formal parameters, types ---- */

placed:
  NAME { $$ = (PlacedName){$1, @1}; }
;

names:
  NAME { $$ = (NameVec){0}; PUSH($$, (PlacedName){$1, @1}); }
| names ',' NAME { $$ = $1; PUSH($$, (PlacedName){$3, @3}); }
;

formal_params_opt:
  %empty { $$ = (FormalParamVec){0}; }
| formal_params
;

formal_params:
  formal_param { $$ = (FormalParamVec){0}; PUSH($$, $1); }
| formal_params ',' formal_param { $$ = $1; PUSH($$, $3); }
;

formal_param:
  NAME init { $$ = (FormalParam){$1, NULL, $2, $2 ? @$ : @1}; }
| NAME ':' type init { $$ = (FormalParam){$1, $3, $4, span_join(@1, $4 ? @4 : @3)}; }
;

init:
  %empty { $$ = NULL; }
| '=' expr { $$ = $2; }
;

types:
  type { $$ = (TypeVec){0}; PUSH($$, $1); }
| types ',' type { $$ = $1; PUSH($$, $3); }
;

type:
  '[' type_dims_opt ']' { $$ = type_expr(parser, NULL, $2, @$); }
| NAME '[' type_dims_opt ']' { $$ = type_expr(parser, $1, $3, @$); }
;

type_dims_opt:
  %empty { $$ = (TypeDimVec){0}; }
| type_dims
;

type_dims:
  type_dim { $$ = (TypeDimVec){0}; PUSH($$, $1); }
| type_dims ',' type_dim { $$ = $1; PUSH($$, $3); }
;

type_dim:
  "..." { $$ = (TypeDim){NULL, NULL, @$}; }
| NAME { $$ = (TypeDim){$1, NULL, @$}; }
| NAME ':' expr { $$ = (TypeDim){$1, $3, @$}; }
;

/* ---- statements ---- */

block:
  '{' stmts '}' { $$ = $2; }
;

stmts:
  %empty { $$ = (StmtVec){0}; }
| stmts END
| stmts stmt { $$ = $1; PUSH($$, $2); }
| stmts error END { $$ = $1; yyerrok; }
;

annotations:
  %empty { $$ = (AnnotationVec){0}; }
| annotations annotation { $$ = $1; PUSH($$, $2); }
;

annotation:
  '@' NAME END
    { $$ = (Annotation){$2, {NULL, 0}, span_join(@1, @2)}; }
| '@' NAME '(' args_opt ')' END
    { $$ = (Annotation){$2, ITEMS(ArgList, $4), span_join(@1, @5)}; }
;

stmt:
  annotations stmt_body
    { $$ = $2; $$->annotations = ITEMS(AnnotationList, $1); }
;

stmt_body:
  names '=' expr END
    { $$ = stmt_new(parser, (Stmt){
          .kind = STMT_assign, .names = name_list(parser, $1), .value = $3,
          .span = span_join(@1, @3)}); }
| names '=' SCAN NAME '(' formal_params_opt ')' block
    { $$ = stmt_new(parser, (Stmt){
          .kind = STMT_scan, .names = name_list(parser, $1), .dim = $4,
          .dim_span = @4, .carries = ITEMS(FormalParamList, $6),
          .body = ITEMS(StmtList, $8), .span = span_join(@1, @7)}); }
| PARAM names ':' type init END
    { $$ = stmt_new(parser, (Stmt){
          .kind = STMT_param, .names = name_list(parser, $2), .type = $4,
          .value = $5, .span = span_join(@1, $5 ? @5 : @4)}); }
| STATE names ':' type init END
    { $$ = stmt_new(parser, (Stmt){
          .kind = STMT_state, .names = name_list(parser, $2), .type = $4,
          .value = $5, .span = span_join(@1, $5 ? @5 : @4)}); }
| RETURN expr END
    { $$ = stmt_new(parser, (Stmt){.kind = STMT_return, .value = $2,
                                   .span = span_join(@1, @2)}); }
| expr END
    { $$ = stmt_new(parser, (Stmt){.kind = STMT_expr, .value = $1,
                                   .span = @1}); }
| REPEAT placed IN value block
    { NameVec one = {0};
      PUSH(one, $2);
      $$ = stmt_new(parser, (Stmt){
          .kind = STMT_repeat, .names = name_list(parser, one), .value = $4,
          .body = ITEMS(StmtList, $5), .span = span_join(@1, @4)}); }
| branch { $$ = $1.first; }
| branch ELSE block
    { $$ = $1.first; stmt_else(parser, $1.last, $3, NULL); }
;

/* `else if` chains to the left: their length costs no stack. */
branch:
  IF expr block
    { $$.n = 1;
      $$.first = $$.last = stmt_new(parser, (Stmt){
          .kind = STMT_if, .value = $2, .body = ITEMS(StmtList, $3),
          .span = span_join(@1, @2)}); }
| branch ELSE IF expr block
    { $$.first = $1.first;
      $$.n = $1.n + 1;
      if ($$.n > MOST_NESTING) layout_too_deep(parser, @3);
      $$.last = stmt_else(parser, $1.last, (StmtVec){0},
                          stmt_new(parser, (Stmt){
                              .kind = STMT_if, .value = $4,
                              .body = ITEMS(StmtList, $5),
                              .span = span_join(@3, @4)})); }
;

/* ---- settings ---- */

settings:
  %empty { $$ = (SettingVec){0}; }
| settings END
| settings setting { $$ = $1; PUSH($$, $2); }
| settings error END { $$ = $1; yyerrok; }
;

setting:
  placed '=' value END
    { NameVec one = {0};
      PUSH(one, $1);
      $$ = (Setting){.path = name_list(parser, one), .value = $3,
                     .span = span_join(@1, @3)}; }
| placed ':' type '=' value END
    { NameVec one = {0};
      PUSH(one, $1);
      $$ = (Setting){.path = name_list(parser, one), .type = $3, .value = $5,
                     .span = span_join(@1, @5)}; }
| placed '{' settings '}'
    { $$ = setting_block(parser, $1, (ExprVec){0}, $3);
      $$.span = @1; }
| placed paths '{' settings '}'
    { $$ = setting_block(parser, $1, $2, $4);
      $$.span = span_join(@1, @2); }
;

paths:
  path { $$ = (ExprVec){0}; PUSH($$, $1); }
| paths ',' path { $$ = $1; PUSH($$, $3); }
;

path:
  NAME { $$ = expr_name(parser, $1, @1); }
| STRING { $$ = expr_string(parser, $1, @1); }
| path '.' placed { $$ = expr_member(parser, EXPR_field, $1, $3); }
| path '[' subs ']' { $$ = expr_index(parser, $1, $3, @$); }
;

/* ---- pins ---- */

pins:
  %empty { $$ = (PinVec){0}; }
| pins END
| pins pin END { $$ = $1; $2.span = @2; PUSH($$, $2); }
| pins error END { $$ = $1; yyerrok; }
;

pin:
  SHARD exprs OVER axes
    { $$ = (Pin){.kind = PIN_shard_names, .exprs = ITEMS(ExprList, $2),
                 .axes = name_list(parser, $4)}; }
| SHARD exprs ':' places
    { $$ = (Pin){.kind = PIN_shard_paths, .exprs = ITEMS(ExprList, $2),
                 .places = $4.data, .n_places = $4.n}; }
| STAGE INT ':' exprs on as
    { $$ = (Pin){.kind = PIN_stage, .stage = $2.integer,
                 .exprs = ITEMS(ExprList, $4), .value = $5,
                 .has_as = $6.has_as, .as = $6.as, .as_span = $6.as_span}; }
| CUT AFTER exprs
    { $$ = (Pin){.kind = PIN_cut, .exprs = ITEMS(ExprList, $3)}; }
| pin_word exprs { $$ = $1; $$.exprs = ITEMS(ExprList, $2); }
| PLACE exprs ON value
    { $$ = (Pin){.kind = PIN_place, .exprs = ITEMS(ExprList, $2),
                 .value = $4}; }
| NAME '=' value { $$ = (Pin){.kind = PIN_set, .name = $1, .value = $3}; }
| NAME '=' value OVER axes
    { $$ = (Pin){.kind = PIN_set, .name = $1, .value = $3,
                 .axes = name_list(parser, $5)}; }
;

pin_word:
  REPLICATE { $$ = (Pin){.kind = PIN_replicate}; }
| REMAT { $$ = (Pin){.kind = PIN_remat}; }
| KEEP { $$ = (Pin){.kind = PIN_keep}; }
| OFFLOAD { $$ = (Pin){.kind = PIN_offload}; }
;

on:
  %empty { $$ = NULL; }
| ON value { $$ = $2; }
;

as:
  %empty { $$ = (Pin){0}; }
| AS '(' args_opt ')'
    { $$ = (Pin){.has_as = true, .as = ITEMS(ArgList, $3), .as_span = @$}; }
;

places:
  place { $$ = (PlaceVec){0}; PUSH($$, $1); }
| places ',' place { $$ = $1; PUSH($$, $3); }
;

place:
  NAME OVER axes { $$ = (Place){$1, name_list(parser, $3), @$}; }
| PARTIAL OVER axes { $$ = (Place){NULL, name_list(parser, $3), @$}; }
;

axes:
  NAME { $$ = (NameVec){0}; PUSH($$, (PlacedName){$1, @1}); }
| '(' names ')' { $$ = $2; }
;

/* ---- expressions, loosest first ---- */

value:
  expr
| expr ".." expr { $$ = expr_range(parser, @2, $1, $3); }
;

exprs:
  expr { $$ = (ExprVec){0}; PUSH($$, $1); }
| exprs ',' expr { $$ = $1; PUSH($$, $3); }
;

exprs_opt:
  %empty { $$ = (ExprVec){0}; }
| exprs
;

expr: or_expr;

or_expr:
  and_expr
| or_expr OR and_expr { $$ = expr_binary(parser, OPERATOR_or, @2, $1, $3); }
;

and_expr:
  not_expr
| and_expr AND not_expr { $$ = expr_binary(parser, OPERATOR_and, @2, $1, $3); }
;

not_expr:
  comparison
| NOT comparison { $$ = expr_unary(parser, OPERATOR_not, @1, $2, @$); }
;

comparison:
  sum
| sum comparator sum
    { $$ = expr_binary(parser, (Operator)$2.integer, @2, $1, $3); }
;

comparator:
  "==" { $$ = (Number){.integer = OPERATOR_eq}; }
| "!=" { $$ = (Number){.integer = OPERATOR_ne}; }
| '<' { $$ = (Number){.integer = OPERATOR_lt}; }
| '>' { $$ = (Number){.integer = OPERATOR_gt}; }
| "<=" { $$ = (Number){.integer = OPERATOR_le}; }
| ">=" { $$ = (Number){.integer = OPERATOR_ge}; }
;

sum:
  product
| sum adder product
    { $$ = expr_binary(parser, (Operator)$2.integer, @2, $1, $3); }
;

adder:
  '+' { $$ = (Number){.integer = OPERATOR_add}; }
| '-' { $$ = (Number){.integer = OPERATOR_sub}; }
;

product:
  unary
| product multiplier unary
    { $$ = expr_binary(parser, (Operator)$2.integer, @2, $1, $3); }
;

multiplier:
  '*' { $$ = (Number){.integer = OPERATOR_mul}; }
| '/' { $$ = (Number){.integer = OPERATOR_div}; }
| "//" { $$ = (Number){.integer = OPERATOR_floordiv}; }
| '%' { $$ = (Number){.integer = OPERATOR_mod}; }
;

unary:
  postfix
| '-' postfix { $$ = expr_unary(parser, OPERATOR_neg, @1, $2, @$); }
;

postfix:
  primary
| postfix '(' args_opt ')' { $$ = expr_call(parser, $1, $3, @$); }
| postfix '[' subs ']' { $$ = expr_index(parser, $1, $3, @$); }
| postfix '.' placed { $$ = expr_member(parser, EXPR_field, $1, $3); }
| postfix '!' placed { $$ = expr_member(parser, EXPR_bang, $1, $3); }
;

primary:
  NAME { $$ = expr_name(parser, $1, @1); }
| INT { $$ = expr_number(parser, EXPR_int, $1, @1); }
| FLOAT { $$ = expr_number(parser, EXPR_float, $1, @1); }
| FACTOR { $$ = expr_number(parser, EXPR_factor, $1, @1); }
| STRING { $$ = expr_string(parser, $1, @1); }
| '(' exprs_opt ')' { $$ = expr_bracket(parser, '(', $2, @$); }
| '[' exprs_opt ']' { $$ = expr_bracket(parser, '[', $2, @$); }
;

args_opt:
  %empty { $$ = (ArgVec){0}; }
| args
;

args:
  arg { $$ = (ArgVec){0}; PUSH($$, $1); }
| args ',' arg { $$ = $1; PUSH($$, $3); }
;

arg:
  value { $$ = (Arg){NULL, $1, @$, SPAN_NONE}; }
| NAME '=' value { $$ = (Arg){$1, $3, @$, @1}; }
;

subs:
  sub { $$ = (SubVec){0}; PUSH($$, $1); }
| subs ',' sub { $$ = $1; PUSH($$, $3); }
;

sub:
  value { $$ = (Sub){.kind = SUB_value, .to = $1, .span = @$}; }
| expr "->" expr
    { $$ = (Sub){.kind = SUB_rename, .from = $1, .to = $3, .span = @$}; }
| NAME '=' value
    { $$ = (Sub){.kind = SUB_assign, .name = $1, .to = $3, .span = @$}; }
| '*' { $$ = (Sub){.kind = SUB_all, .span = @$}; }
;

%%

static int syntax_lex(YYSTYPE *value, Span *span, Parser *parser) {
  int kind = layout_next(parser);
  const Token *token = &parser->token;
  *span = token->span;
  if (kind == T_NAME || kind == T_STRING) value->name = token->name;
  if (kind == T_INT || kind == T_FLOAT || kind == T_FACTOR)
    value->number = token->number;
  return kind;
}

/* Only for the stack's own limit: everything else takes the way below. */
static void syntax_error(const Span *span, Parser *parser,
                         const char *message) {
  (void)message;
  layout_too_deep(parser, *span);
}

/* Returns whether the parser would come to shift `symbol` from where it
 * stands.  The tables alone do not tell: states are merged, so that a reduction
 * may be on the way that ends nowhere.  Reductions are played through on the
 * side: `base` is the top of the rest of the actual stack, `made` the states
 * above it. */
static bool can_shift(const yypcontext_t *context, yysymbol_kind_t symbol) {
  enum { MOST = 64 };
  const yy_state_t *base = context->yyssp;
  yy_state_t made[MOST];
  int n_made = 0;
  for (;;) {
    int state = n_made ? made[n_made - 1] : *base;
    int action = yypact[state];
    int rule = yydefact[state];
    if (!yypact_value_is_default(action)) {
      action += symbol;
      if (action >= 0 && action <= YYLAST && yycheck[action] == symbol) {
        if (yytable[action] > 0) return true;
        rule = -yytable[action];
      }
    }
    if (rule == 0 || n_made == MOST) return false;
    for (int i = 0; i < yyr2[rule]; i++) {
      if (n_made > 0) n_made--;
      else base--;
    }
    int below = n_made ? made[n_made - 1] : *base;
    int left = yyr1[rule] - YYNTOKENS;
    int go = yypgoto[left] + below;
    bool is_listed = go >= 0 && go <= YYLAST && yycheck[go] == below;
    made[n_made++] =
        (yy_state_t)(is_listed ? yytable[go] : yydefgoto[left]);
  }
}

static int yyreport_syntax_error(const yypcontext_t *context, Parser *parser) {
  enum { MOST = 128 };
  int kinds[MOST], n = 0;
  /* Outside of this file only token numbers are known, not symbols. */
  for (int kind = 0; kind <= YYMAXUTOK && n < MOST; kind++) {
    yysymbol_kind_t symbol = YYTRANSLATE(kind);
    bool is_token =
        symbol != YYSYMBOL_YYerror && symbol != YYSYMBOL_YYUNDEF;
    if (is_token && can_shift(context, symbol)) kinds[n++] = kind;
  }
  report_unexpected(parser, kinds, n);
  layout_recover(parser);
  return 0;
}
