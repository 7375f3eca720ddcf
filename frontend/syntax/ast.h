/*
 * ast.h -- the syntax tree of .dnn, .cluster and .plan files, as the grammar of
 * docs/language.md (section "Grammar") defines it, with nothing resolved.
 */
#ifndef FRONTEND_AST_H
#define FRONTEND_AST_H

#include "support/support.h"

typedef struct Expr Expr;
typedef struct Stmt Stmt;

/* ---- expressions ---- */

typedef enum ExprKind {
  EXPR_name,   /* name */
  EXPR_int,    /* integer */
  EXPR_float,  /* float; numbers with a unit too: in base units, name = as
                 written (`8GB/s`), else NULL */
  EXPR_factor, /* real, name = as written (`0.1x`): of a learning rate */
  EXPR_string, /* name */
  EXPR_list,   /* items: (a, b) and [a, b]; also () and []; integer: '(' or
                  '[' as written */
  EXPR_unary,  /* op, a: "-" "not" */
  EXPR_binary, /* op, a, b */
  EXPR_call,   /* a (args) */
  EXPR_index,  /* a [subs] */
  EXPR_field,  /* a . name */
  EXPR_bang,   /* a ! name, in plans */
  EXPR_range,  /* a .. b */
} ExprKind;

typedef struct Arg { /* place of a call, a type pin, an annotation */
  Name name;         /* name, or NULL */
  Expr *value;
  Span span, name_span;
} Arg;
typedef struct ArgList {
  Arg *items;
  int n;
} ArgList;

typedef enum SubKind {
  SUB_value,  /* x[3], x[0..5] */
  SUB_rename, /* x[T -> S], x[C -> (H, D)], x[(H, D) -> C]: from, to */
  SUB_assign, /* x[T = 0]: name, to */
  SUB_all,    /* x[*] */
} SubKind;
typedef struct Sub {
  SubKind kind;
  Name name;
  Expr *from, *to; /* value: to */
  Span span;
} Sub;

typedef enum Operator {
  OPERATOR_add,
  OPERATOR_sub,
  OPERATOR_mul,
  OPERATOR_div,
  OPERATOR_floordiv,
  OPERATOR_mod,
  OPERATOR_eq,
  OPERATOR_ne,
  OPERATOR_lt,
  OPERATOR_gt,
  OPERATOR_le,
  OPERATOR_ge,
  OPERATOR_and,
  OPERATOR_or,
  OPERATOR_not,
  OPERATOR_neg
} Operator;

struct Expr {
  ExprKind kind;
  Span span;    /* place of all of it */
  Span op_span; /* the operator, or the name after '.' or '!' */
  Name name;
  int64_t integer;
  double real;
  Operator op;
  Expr *a, *b;
  struct {
    Expr **data;
    int n;
  } items;
  ArgList args;
  struct {
    Sub *data;
    int n;
  } subs;
  /* Unique in the file: operands before their operator, left to right, top to
   * bottom. */
  int serial;
  /* The height of the tree from here down, at most the nesting limit, so that
   * recursion over a tree is safe.  The left operand of an operator does not
   * count, nor does the operand before a bracket: a sum may have any number of
   * terms, a value any number of brackets, and whoever walks one walks
   * expr_chain or along `a`. */
  int height;
};

typedef struct ExprList {
  Expr **data;
  int n;
} ExprList;
typedef struct NameList {
  Name *names;
  Span *spans;
  int n;
} NameList;

/* ---- types ---- */

typedef struct TypeDim {
  Name name;  /* NULL for "..." */
  Expr *size; /* size, or NULL */
  Span span;
} TypeDim;

typedef struct TypeExpr {
  Name dtype; /* dtype, or NULL */
  TypeDim *dims;
  int n_dims;
  Span span;
} TypeExpr;

typedef struct FormalParam {
  Name name;
  TypeExpr *type; /* type, or NULL */
  Expr *init;     /* initial value, or NULL */
  Span span;
} FormalParam;
typedef struct FormalParamList {
  FormalParam *items;
  int n;
} FormalParamList;

typedef struct TypeList {
  TypeExpr **data;
  int n;
  bool is_list;
} TypeList;

/* ---- statements ---- */

typedef struct Annotation {
  Name name;
  ArgList args;
  Span span;
} Annotation;
typedef struct AnnotationList {
  Annotation *items;
  int n;
} AnnotationList;

typedef struct StmtList {
  Stmt **data;
  int n;
} StmtList;

typedef enum StmtKind {
  STMT_assign, /* names = value */
  STMT_scan,   /* names = scan dim (carries) body */
  STMT_param,  /* names: type = value */
  STMT_state,
  STMT_return, /* value */
  STMT_expr,   /* value */
  STMT_repeat, /* names[0] in value body */
  STMT_if,     /* value body else_body; `else if` is a nested STMT_if */
} StmtKind;

struct Stmt {
  StmtKind kind;
  Span span;
  AnnotationList annotations;
  NameList names;
  Expr *value;
  TypeExpr *type;
  Name dim;
  Span dim_span;
  FormalParamList carries;
  StmtList body, else_body;
};

/* ---- items ---- */

typedef struct Setting { /* a setting inside a block */
  NameList path;         /* name, or name [name] before a nested block */
  ExprList paths;        /* what stands before a nested block */
  TypeExpr *type;        /* name: type = value */
  Expr *value;           /* NULL for a nested block */
  struct Setting *settings;
  int n_settings;
  bool is_block;
  Span span;
} Setting;

typedef enum PinKind {
  PIN_shard_names, /* a line that shards named dims over named mesh axes */
  PIN_shard_paths, /* a line `shard PATH: B over data`: dims of a value */
  PIN_replicate,
  PIN_stage,
  PIN_cut,
  PIN_remat,
  PIN_keep,
  PIN_offload,
  PIN_place,
  PIN_set /* name = value [over axes] */
} PinKind;

typedef struct Place {
  Name dim; /* NULL means partial */
  NameList axes;
  Span span;
} Place;

typedef struct Pin {
  PinKind kind;
  Span span;
  ExprList exprs; /* paths or names */
  NameList axes;
  Place *places;
  int n_places;
  int64_t stage;
  Name name;
  Expr *value; /* value of `set`; `on` of stage and place */
  bool has_as;
  ArgList as;
  Span as_span;
} Pin;

typedef enum ItemKind {
  ITEM_import,
  ITEM_dim,
  ITEM_const,
  ITEM_layer,
  ITEM_net,
  ITEM_plan,
  ITEM_block
} ItemKind;

typedef struct Binding { /* of dim and const */
  Name name;
  Expr *value; /* value, or NULL */
  Span span;
} Binding;

typedef struct Item {
  ItemKind kind;
  Span span, name_span;
  /* Name of a layer, net, plan or block label; the file of an import. */
  Name name;
  Name block; /* block: "data", "train", ... */
  AnnotationList annotations;
  Binding *bindings;
  int n_bindings;
  NameList generics_in, generics_out;
  bool has_generics;
  FormalParamList params;
  TypeList result; /* result; n = 0 means that none is declared */
  StmtList body;
  Setting *settings;
  int n_settings;
  Pin *pins;
  int n_pins;
} Item;

typedef struct Ast {
  const Source *source;
  Item *items;
  int n_items;
} Ast;

/* Parses; mistakes become diags and whatever was understood is returned, never
 * NULL.  Nesting deeper than 500 is a mistake. */
Ast *ast_parse(Arena *arena, Names *names, Diags *diags, const Source *source);
/* Lists a chain: x, an operator of two operands or a bracket, its `a` if that
 * is the same kind of expression, and so on. */
const Expr *const *expr_chain(Arena *arena, const Expr *x, int *out_n);
/* Prints canonical text (the formatter), which parses back to the same tree. */
void ast_print(Text *out, const Ast *ast);
/* Parses one expression, for command-line overrides.  Returns NULL after a
 * diag. */
Expr *ast_parse_expr(Arena *arena, Names *names, Diags *diags,
                     const Source *source);

/* ---- machines.c ---- */

/* Checks clusters, devices and certificates; reports. */
void machines_check(Arena *arena, Diags *diags, const Ast *ast);

#endif
