/*
 * internal.h -- what the files of the front end share: compile-time values,
 * the program (all files of a model), and the elaboration of one graph.
 *
 * A Program is read once.  Each graph of the model (train, eval, ...) is one
 * Elab: a walk over the same trees with another value of `training` or
 * another batch size.  Everything that depends on those (sizes of dims,
 * consts) is computed anew for each Elab.
 */
#ifndef FRONTEND_INTERNAL_H
#define FRONTEND_INTERNAL_H

#include "frontend/syntax/ast.h"
#include "frontend/frontend.h"

#include <inttypes.h>

typedef struct Elab Elab;
typedef struct Frame Frame;

/* ---- values ---- */

typedef enum ExprValueKind {
  EXPR_VALUE_poison, /* follows from a mistake that was reported */
  EXPR_VALUE_none,
  EXPR_VALUE_bool,
  EXPR_VALUE_int,
  EXPR_VALUE_float,
  EXPR_VALUE_string,
  EXPR_VALUE_list,
  EXPR_VALUE_tensor,
  EXPR_VALUE_gate /* of route */
} ExprValueKind;

typedef struct Gate Gate; /* builtins_experts.c */

typedef struct ExprValue {
  ExprValueKind kind;
  bool is_weak; /* tensor: computed from numbers and iota only */
  union {
    bool truth;
    int64_t integer;
    double real;
    Name string;
    struct ExprValueList *list;
    Value tensor;
    const Gate *gate;
  };
} ExprValue;

typedef struct ExprValueList {
  int n;
  int64_t n_all; /* elements of lists in it included */
  ExprValue items[];
} ExprValueList;

#define POISON ((ExprValue){.kind = EXPR_VALUE_poison})
static inline ExprValue expr_value_bool(bool truth) {
  return (ExprValue){.kind = EXPR_VALUE_bool, .truth = truth};
}
static inline ExprValue expr_value_int(int64_t integer) {
  return (ExprValue){.kind = EXPR_VALUE_int, .integer = integer};
}
static inline ExprValue expr_value_float(double real) {
  return (ExprValue){.kind = EXPR_VALUE_float, .real = real};
}
static inline ExprValue expr_value_tensor(Value value, bool is_weak) {
  return (ExprValue){
      .kind = EXPR_VALUE_tensor, .is_weak = is_weak, .tensor = value};
}
static inline bool expr_value_is_poison(ExprValue val) {
  return val.kind == EXPR_VALUE_poison;
}
static inline bool expr_value_is_tensor(ExprValue val) {
  return val.kind == EXPR_VALUE_tensor;
}
/* Makes no node: known at compile time, and no list, which may hold others. */
static inline bool expr_value_is_static(ExprValue val) {
  return val.kind != EXPR_VALUE_tensor && val.kind != EXPR_VALUE_list;
}
/* Integer or real. */
static inline bool expr_value_is_number(ExprValue val) {
  return val.kind == EXPR_VALUE_int || val.kind == EXPR_VALUE_float;
}
static inline double expr_value_to_double(ExprValue val) {
  return val.kind == EXPR_VALUE_int    ? (double)val.integer
         : val.kind == EXPR_VALUE_bool ? (double)val.truth
                                       : val.real;
}

/* ---- the program: program.c ---- */

typedef struct Global { /* a dim or const at file level */
  Name name;
  bool is_dim, is_main;
  const Expr *value; /* NULL: the command line must give it */
  Span span;
  bool is_number_truth; /* given as 1 or 0 where a truth value stands */
  int epoch;            /* of the Elab for which `val` holds */
  bool is_busy;
  ExprValue val;
} Global;

typedef struct Callable { /* a layer or a net */
  const Item *item;
  bool is_net, is_main;
  int order;   /* in which they were read */
  Map *labels; /* place -> Name; made at the first call */
} Callable;

/* NAME=VALUE that replaces a setting of a block. */
typedef struct SettingOverride {
  const char *block, *name; /* "train", "steps" */
  const char *text;         /* of the value */
  const Source *source;     /* the value alone */
} SettingOverride;

/* A field of a data block, which expressions of `train` read as BLOCK.FIELD. */
typedef struct FieldDecl {
  Name name, path;      /* "x", "text.x" */
  const TypeExpr *type; /* NULL: it lacks one, and nothing else has its name */
  const char *help;     /* then: what the message advises */
  Span span;
} FieldDecl;

typedef struct DataDecl { /* a data block as expressions see it */
  Name name;              /* NULL: it lacks one */
  Span span;
  VEC(FieldDecl) fields;
} DataDecl;

typedef struct Program {
  Module *module;
  const FrontendOptions *options;
  Budget budget, spent;
  bool is_over; /* a budget ran out, or 20 errors: everything is poison */
  bool has_syntax_errors;
  bool lacks_import;  /* one was not read: a name not found may be its */
  Map *files;         /* interned path -> itself, read or being read */
  Map *globals;       /* Name -> Global */
  Map *layers, *nets; /* Name -> Callable */
  int n_callables;
  Map *read_names;          /* Names that occur in any expression or type */
  Map *builtins;            /* Name -> Builtin */
  VEC(const Item *) blocks; /* of the main file */
  VEC(const Item *) plans;  /* likewise */
  VEC(Name) lost_blocks;    /* names of blocks whose kind is none */
  VEC(DataDecl) data;       /* registered before elaboration */
  VEC(SettingOverride) overrides;
  VEC(const Source *) override_sources;
  int n_epochs;
  bool rounds; /* precision computes in fewer bits than f32 */
} Program;

/* Reads the model and its imports; false if the main file is not there. */
bool program_read(Program *program);
const Item *program_block(const Program *program, const char *kind);
/* Whether a path written in a file stays below the file's folder; reports. */
bool program_check_path(Program *program, const char *path, Span span);

/* ---- declared.c ---- */

/* Reports predefined names that a file declares and names declared twice. */
void declared_check(Program *program, const Ast *ast);

/* ---- weights.c ---- */

/* Fills in has_decay, contracts and batches of the parameters. */
void weights_mark(Graph *graph, Arena *arena);

/* ---- unused.c ---- */

/* Puts every name that an expression or a type of the file reads. */
void reads_of_ast(Map *reads, const Ast *ast);
/* Dims and consts of the main file, and names of its layers that were called.
 */
void program_warn_unused(Program *program);

/* ---- override.c ---- */

/* Sorts the overrides into globals and settings. */
void override_apply(Program *program);
/* The override of a setting or NULL. */
const SettingOverride *override_find(const Program *program, const char *block,
                                     const char *name);
/* Whether a place is one of the command line. */
bool override_is_source(const Program *program, const Source *source);

/* ---- elaboration of one graph ---- */

typedef struct Local {
  Name name;
  ExprValue val;
  Span span;                  /* where it got this value */
  Name state_path;            /* of a state; else NULL */
  const TypeExpr *state_type; /* likewise: as it is declared */
  bool is_unknown;            /* nothing has this name, which was reported */
} Local;

typedef struct Size { /* a dim name with a size in one layer */
  Name name;
  int64_t size;
  Span span;   /* where it got it */
  Name caller; /* generic: its name at the caller; else NULL */
  Span caller_span;
} Size;

struct Frame {
  Frame *caller;
  const Callable *callable; /* NULL: an expression of a block */
  const Callable *net;      /* that this runs for; NULL: outside of nets */
  int net_run;              /* which run of it */
  bool is_level;            /* counts for the depth of layers */
  bool has_states;          /* some of its locals are states */
  Map *labels;
  Name prefix;           /* path of the layer call; "" for a net */
  const char *positions; /* of the repeats around: "[2][5]" */
  VEC(Local) locals;
  Map *places; /* name -> place, of locals beyond the first; or NULL */
  VEC(Size) sizes;
  VEC(Name) unsized; /* dims that were said to have no size */
  ExprValue result;
  Span result_span;
  const Type *mask_type; /* in the condition of `mask`: its dims are values */
  const Expr *mask_expr;
};

typedef struct DimNames { /* of one dim */
  int n;
  const Name *names;
} DimNames;

typedef struct Param {
  const Name *place; /* in the statement that declares it */
  Span span;
  const Type *type;
  ExprValue val;
  const Callable *net;
  int net_run; /* that declared it last */
  const DimNames *stands_for;
} Param;

typedef struct StateWrite { /* what the next step reads of a state */
  Name path;
  ExprValue val;
} StateWrite;

/* A path that is not the one of its node: of an operator whose value was
 * assigned, or of a value that something else has made. */
typedef struct PathAlias {
  Name path, node_path;
  bool is_value;
} PathAlias;

/* A scalar that a batch divides and a whole evaluation must divide once. */
typedef struct Ratio {
  Value value, sum, count; /* value = sum / count */
} Ratio;

/* Sums over a batch from which a metric of classes is computed. */
enum { MOST_COUNTS = 3 };
typedef struct MetricCounts {
  int n; /* 0: it is a scalar of the graph */
  ExprValue parts[MOST_COUNTS];
  ClassAverage average;
  int64_t single;
} MetricCounts;

typedef struct NetCall { /* a net called again with the same arguments */
  const Callable *net;
  const ExprValue *args;
  int n_args;
  ExprValue result;
} NetCall;

struct Elab {
  Program *program;
  Module *module;
  Arena *arena;
  Names *names;
  Diags *diags;
  Graph *graph;
  int epoch;
  bool is_training;
  bool has_lanes; /* another batch: no slots for states with the batch dim */
  Name batch_dim; /* with `batch`, if not 0, its size */
  int64_t batch;
  const Elab *reference; /* the training one: it decides the parameters */
  Frame *frame, *unused_frames;
  int depth, nesting, n_frozen, n_net_runs;
  Map *params;                  /* path -> Param */
  Map *data;                    /* path -> address of a ExprValue */
  Map *limits;                  /* path of a data field -> DataLimits */
  VEC(ExprValue) extra_losses;  /* of add_loss */
  VEC(StateWrite) state_writes; /* in the order of the first assignments */
  Map *written_states;          /* path -> 1 + its place in state_writes */
  VEC(NetCall) net_calls;
  VEC(PathAlias) aliases;
  VEC(const Expr *) origins; /* expression that made a node, by node id */
  const Callable *first_net; /* that was called */
  const Expr *metric;        /* the one at hand, or NULL */
  MetricCounts counts;       /* of the one at hand */
  VEC(Ratio) ratios;         /* by node, ascending */
  const Expr *at;            /* whose nodes are appended now */
  const Expr *statement;     /* the call that was one last */
  Name dtypes[N_DTYPES];     /* interned; NULL: not yet */
  Value step, seed;
  struct Scan *scan;   /* whose body is elaborated now; NULL: none */
  struct Watch *watch; /* notes values by path (predict.c); NULL: none does */
};

Elab *elab_create(Program *program, Name graph_name);

/* ---- scope.c: names ---- */

Frame *frame_push(Elab *e, const Callable *callable, Name prefix);
void frame_pop(Elab *e);
Local *frame_local(Frame *frame, Name name);
/* Makes a local that the frame does not have yet. */
void frame_add(Elab *e, Local local);
void frame_set(Elab *e, Name name, ExprValue val, Span span);
Size *frame_size(Frame *frame, Name name);
void frame_add_size(Elab *e, Size size);
ExprValue global_value(Elab *e, Global *global, Span use);
/* Size of a dim name in scope, 0 if it has none, -1 if it has a bad one that
 * was reported. */
int64_t scope_size(Elab *e, Name name, Span use);
/* The same, but having none is reported. */
int64_t scope_need_size(Elab *e, Name name, Span use, bool in_type);
/* By dim of the type: the callers' names that it stands for where it is a
 * generic; of two that stand for one name, the first. */
const DimNames *scope_stands_for(Elab *e, const Type *type);
bool scope_has_value(Elab *e, Name name);
bool scope_is_predefined(Name name);
ExprValue scope_lookup(Elab *e, const Expr *x);
/* The graph input of a data field, BLOCK.FIELD. */
ExprValue scope_field(Elab *e, const Expr *x);
/* Reports a data block without a name, which cannot be read. */
void scope_unnamed_data(Elab *e, Span span);
/* Path of an operator, call or value in the current frame. */
Name scope_path(Elab *e, const void *place, const char *fallback);
Name scope_join(Elab *e, Name prefix, const char *label, const char *positions);

/* ---- numbering.c: labels of calls, values and operators in one body ---- */

Map *number_item(Program *program, const Item *item);
Map *number_expr(Program *program, const Expr *x);

/* ---- value.c: compile-time arithmetic, texts for messages ---- */

ExprValue expr_value_list(Elab *e, int n); /* to be filled in */
/* A list that may hold lists, now filled in.  A list is walked as a tree,
 * however much of it is shared, so the limit holds for all of it; poison after
 * a message. */
ExprValue expr_value_list_nested(Elab *e, ExprValue list, Span span);
/* Takes the steps of a walk over a value from the budget. */
void expr_value_charge(Elab *e, ExprValue val);
/* `exprs` (or NULL): where the arguments stand. */
ExprValue expr_value_compute(Elab *e, Op op, const ExprValue *args,
                             const Expr *const *exprs, int n);
bool expr_value_equal(ExprValue a, ExprValue b);
/* Where an integer is wanted, a real that is whole (20K, 1e3) is one. */
ExprValue expr_value_whole(ExprValue val);
/* "an integer", "a tensor [B, T]" */
const char *expr_value_describe(Elab *e, ExprValue val);
/* "'s'" for a name, the source text if it is short, else "this value" */
const char *expr_describe(Elab *e, const Expr *x);
/* The same where the message goes on to say what it is: not "'3' is 3". */
const char *expr_subject(Elab *e, const Expr *x);
/* "[B, T, H]" */
const char *type_describe(Elab *e, const Type *type);
Op operator_op(Operator op);
/* "+" for OP_add, else the operator's name */
const char *op_spelling(Op op);

/* ---- elaborate.c: expressions ---- */

ExprValue eval(Elab *e, const Expr *x);
/* A compile-time integer; false after a message. */
bool eval_int(Elab *e, const Expr *x, int64_t *out);
bool elab_step(Elab *e, Span span); /* false: a budget ran out */
/* Whether there may be `n` more list elements; else reports it. */
bool elab_may_list(Elab *e, int64_t n, Span span);
void elab_exhausted(Elab *e, Span span, const char *what, int64_t limit);
/* The nodes that follow belong to this expression. */
void elab_at(Elab *e, const Expr *x);
/* Appends a node after asking its rule; poison after a message. */
ExprValue elab_emit(Elab *e, Op op, const ExprValue *inputs, int n,
                    const Attrs *attrs);

/* ---- states.c ---- */

/* Assigns a state: its name means this value from here on, and the last value
 * assigned is what the next step reads. */
void state_set(Elab *e, Name path, ExprValue val);
/* Its value at this place of the program; `initial` as long as nothing was
 * assigned. */
ExprValue state_value(const Elab *e, Name path, ExprValue initial);
/* The path of the state whose value this tensor is, or NULL. */
Name state_of_value(const Elab *e, ExprValue val);
/* `s = e` in the body that declares the state. */
void state_assign(Elab *e, const Local *state, ExprValue val, Span span);

ExprValue elab_number(Elab *e, DType dtype, double value);
/* Whether a number or truth value is one of this dtype as it stands. */
bool elab_fits(DType dtype, ExprValue val);
/* One that fits as a scalar of this dtype; anything else is returned. */
ExprValue elab_scalar(Elab *e, DType dtype, ExprValue val);
/* A dtype of the language; else reports it. */
bool elab_dtype(Elab *e, Name name, Span span, DType *out);
ExprValue elab_cast(Elab *e, ExprValue val, DType dtype);
/* A real without a dtype of its own, f32 as long as `precision` has not
 * decided, takes the one that it is typed with; a typed one may be widened. */
bool elab_takes(DType dtype, DType has);
/* The value in the dtype that the program typed.  One that it typed f32 stays
 * so where `precision` rounds: a cast from f32 to f32 says it.  Lists and other
 * values are returned as they are. */
ExprValue elab_typed(Elab *e, const TypeExpr *type, ExprValue val);
ExprValue elab_keep_f32(Elab *e, ExprValue val);
const Type *elab_type(const Elab *e, ExprValue val);
Diag *elab_no_dim(Elab *e, const Expr *x, const Type *type, Name dim,
                  Span span);
/* Shared dims must agree; `a` and `b` (or NULL) are shown in the note. */
bool elab_unify(Elab *e, const Type *a, const Type *b, const Expr *ax,
                const Expr *bx, Name except, Name except2);
void elab_not_supported(Elab *e, Span span, const char *what);

/* ---- elaborate_bracket.c ---- */

ExprValue eval_index(Elab *e, const Expr *x);
ExprValue elab_rename(Elab *e, ExprValue val, const Name *from, const Name *to,
                      int n);
ExprValue elab_slice(Elab *e, ExprValue val, Name dim, int64_t start,
                     int64_t size);
ExprValue elab_drop(Elab *e, ExprValue val,
                    Name dim); /* a dim of size 1 vanishes */

/* ---- elaborate_stmt.c ---- */

/* Reports unknown ones; whether @frozen is among them. */
bool elab_annotations(Elab *e, const AnnotationList *list, bool is_scan);
/* True if a `return` was reached. */
bool exec_body(Elab *e, const StmtList *body);
/* A `param` or `state` statement. */
void exec_param(Elab *e, const Stmt *stmt);
/* No dim of the type stands twice; else reports it. */
bool elab_dims_differ(Elab *e, const TypeExpr *type);
/* Dims, sizes and dtype of a parameter, field or net input; NULL after a
 * message. */
const Type *elab_type_expr(Elab *e, const TypeExpr *type);

/* To the i-th name of a statement: a value, or what the next step reads of a
 * state. */
void elab_assign(Elab *e, const Stmt *stmt, int i, ExprValue val);
/* A carry or counter must not have the name of a state; reports it. */
bool elab_hides_state(Elab *e, Name name, Span span);

/* ---- metrics.c ---- */

/* Makes the loss an output of the graph; false after a message.  `out` (or
 * NULL): how an evaluation computes it. */
bool elab_loss(Elab *e, const Expr *loss, Metric *out);
/* Likewise the metrics of the train block, which `settings` reads. */
void elab_metrics(Elab *e, Elab *settings, const Item *train_block,
                  TrainSettings *out);

/* sum / count, which an evaluation adds up and divides once. */
ExprValue elab_ratio(Elab *e, ExprValue value, ExprValue sum, ExprValue count);
/* The terms of a scalar, which are outputs of the graph from now on. */
void elab_terms(Elab *e, Name name, ExprValue val, bool is_loss, Metric *out);

/* ---- elaborate_scan.c ---- */

void exec_scan(Elab *e, const Stmt *stmt);
/* Reports and returns true if the body of a scan is being elaborated. */
bool scan_forbids(Elab *e, Span span, const char *what);
/* Whether one that goes on scans this dim. */
/* The value whose positions the input `inner` of a scan's body goes over. */
bool scan_outer(const Elab *e, Value inner, Value *out);
bool scan_slices(const Elab *e, Name dim);

/* ---- elaborate_call.c ---- */

ExprValue eval_call(Elab *e, const Expr *x);
/* A net on given arguments, outside any expression. */
ExprValue elab_net(Elab *e, Callable *net, const ExprValue *args, int n,
                   Span span);

/* ---- predict.c: a value of the program as an output ---- */

/* From now on results of calls and assigned values are noted by path: those of
 * one net, or of all (NULL). */
void predict_watch(Elab *e, const Callable *net);
void predict_note_call(Elab *e, Name path, ExprValue val);
void predict_note_value(Elab *e, Name path, ExprValue val);
typedef struct PredictChoice {
  const Callable *net; /* whose result it is */
  const char *value;   /* or the value of this path; NULL */
  Name batch_dim;      /* or NULL */
  bool says;           /* mistakes are reported */
} PredictChoice;
/* The graph that gives it, batch dim first, with the data inputs that it needs
 * alone; NULL where there is none. */
Graph *predict_graph(Elab *e, const PredictChoice *choice);

/* ---- builtins.c: matching of arguments against the table ---- */

enum { MOST_FORMALS = 8 };

typedef enum FormalKind {
  FORMAL_value,
  FORMAL_dims, /* a dim name or a list of them, not evaluated */
  FORMAL_late, /* an expression that the function evaluates */
} FormalKind;

typedef struct DimArg {
  int n; /* -1: not given */
  Name *names;
  Span *spans;
} DimArg;

typedef struct BuiltinCall {
  Elab *e;
  const struct Builtin *builtin;
  const Expr *x;
  ExprValue args[MOST_FORMALS];
  DimArg dims[MOST_FORMALS];
  const Expr *exprs[MOST_FORMALS]; /* NULL: the default */
} BuiltinCall;

typedef ExprValue BuiltinFn(BuiltinCall *call);

typedef struct Builtin {
  Name name;
  int n_formals;
  struct {
    Name name;
    FormalKind kind;
    const char *init; /* text of the default or NULL */
    size_t init_n;
  } formals[MOST_FORMALS];
  int n_mapped; /* leading formals over whose lists the call maps */
  BuiltinFn *function;
  Op op; /* of a pointwise one and of those that share a function */
} Builtin;

/* A dim name or a list of distinct ones; false after a message. */
bool dim_arg_read(Elab *e, const Expr *x, DimArg *out);
Map *builtins_create(Module *module);
ExprValue builtin_call(Elab *e, const Expr *x, const Builtin *builtin);
/* Matches and evaluates; false after a message.  Also for the calls in
 * settings, whose formals are not those of an operator. */
void builtin_parse_formals(Names *names, const char *text, Builtin *out);
bool builtin_match(Elab *e, const Expr *x, const Builtin *builtin,
                   BuiltinCall *out_call);

/* With --checked: x where 0 <= index < n, else not a number.  Integers have no
 * such value, so what was read into them makes the loss none; inside a scan,
 * which adds to no loss, they are not looked at. */
ExprValue elab_checked(Elab *e, ExprValue x, ExprValue index, int64_t n);
/* ---- limits.c: which integers of data the operators allow ---- */

/* The call takes `index` below `below`, or the integer of its argument
 * 'ignore'. */
void limits_note(BuiltinCall *call, ExprValue index, int64_t below);
/* Moves the limits that an elaboration has noted to the fields of the model. */
void limits_take(Model *model, const Elab *from);

/* Helps with how it is called: softmax(x, D). */
void builtin_help_call(Elab *e, Diag *d, const Builtin *builtin);
/* Reports and returns poison: an argument is not what it must be. */
ExprValue arg_wrong(BuiltinCall *call, int i, const char *wanted);
/* Argument checks; all report and return false. */
bool arg_tensor(BuiltinCall *call, int i); /* numbers become scalars */
bool arg_float_tensor(BuiltinCall *call, int i);
bool arg_class(BuiltinCall *call, int i, DTypeClass class); /* of a tensor */
bool arg_dims(BuiltinCall *call, int i, int of, bool is_single);
bool arg_int(BuiltinCall *call, int i, int64_t least, int64_t *out);
bool arg_ints(BuiltinCall *call, int i, int n, int64_t least, int64_t *out);
bool arg_float(BuiltinCall *call, int i, double *out);
bool arg_bool(BuiltinCall *call, int i, bool *out);

/* ---- builtins_pointwise.c ---- */

/* Any mixture of numbers, tensors and lists; `exprs` may hold NULLs. */
BuiltinFn builtin_pointwise, builtin_not_supported;
ExprValue pointwise(Elab *e, Op op, const ExprValue *args,
                    const Expr *const *exprs, int n);
ExprValue pointwise1(Elab *e, Op op, ExprValue a);
ExprValue pointwise2(Elab *e, Op op, ExprValue a, ExprValue b);
ExprValue pointwise3(Elab *e, Op op, ExprValue a, ExprValue b, ExprValue c);
ExprValue elab_reduce(Elab *e, Op op, ExprValue val, const Name *dims, int n);
ExprValue elab_reduce_all(Elab *e, Op op, ExprValue val); /* over all dims */
/* The elements that these dims have together. */
double elab_count(const Type *type, const Name *dims, int n);
ExprValue elab_mean(Elab *e, ExprValue val, const Name *dims, int n);
ExprValue elab_mean_all(Elab *e, ExprValue val);
ExprValue elab_argmax(Elab *e, ExprValue val, Name dim);
ExprValue elab_pad(Elab *e, ExprValue val, Name dim, int64_t before,
                   int64_t after, double value);
/* Adds dims (in front) that `val` has not. */
ExprValue elab_broadcast(Elab *e, ExprValue val, const Name *dims,
                         const int64_t *sizes, int n);

/* ---- builtins_loss.c: what metrics share with losses ---- */

/* Logits x over V and integers y with the other dims, the first three
 * arguments; else reports. */
bool loss_check_classes(BuiltinCall *call);
bool arg_ignore(BuiltinCall *call, int i); /* an integer or none */
ExprValue loss_positions(Elab *e, ExprValue x,
                         Name dim); /* 0 1 2 ... along dim */
ExprValue loss_pick(Elab *e, ExprValue x, ExprValue y,
                    Name dim); /* the element of x at y */
/* `ignore` is argument 3; `weight`: of each position's class, or none. */
ExprValue loss_cross_entropy(BuiltinCall *call, double smooth,
                             ExprValue weight);

/* ---- blocks_*.c: data, train, precision, sample ---- */

/* One setting: of the command line, else of the file, else absent. */
typedef struct SettingRef {
  bool is_given;
  const Expr *value;    /* of the file; NULL: of the command line */
  const char *text;     /* as given on the command line, or NULL */
  const Source *source; /* likewise */
  Span span;
} SettingRef;

SettingRef setting_find(Elab *e, const Item *block, const char *block_name,
                        const char *name);
/* NULL where it is absent or does not parse. */
const Expr *setting_expr(Elab *e, const SettingRef *ref);
ExprValue setting_value(Elab *e, const SettingRef *ref);
/* Leave *out alone and return false where it is absent or wrong. */
bool setting_int(Elab *e, const Item *block, const char *block_name,
                 const char *name, int64_t least, int64_t *out);
bool setting_float(Elab *e, const Item *block, const char *block_name,
                   const char *name, double least, double *out);
bool setting_string(Elab *e, const Item *block, const char *block_name,
                    const char *name, const char **out);
/* A bare word; NULL where it is absent or wrong. */
Name setting_name(Elab *e, const Item *block, const char *block_name,
                  const char *name, Span *out_span);
/* What helps with a setting of a data block that is none. */
const char *setting_field_help(Arena *arena, Name name);
void setting_unknown(Program *program, const Setting *setting,
                     const char *kind);
/* Reports unknown names and repeated ones. */
void setting_check_names(Program *program, const Item *block, const char *kind);
/* Whether the block lacks this required setting: not where a name of it is
 * unknown, which may be this one misspelt. */
bool setting_is_missing(const SettingRef *ref, const Item *block,
                        const char *kind);
bool setting_is_known(const char *block, const char *name);

/* First dim of the first data field that an expression reads, or NULL. */
Name data_batch_dim(const Program *program, const Expr *loss);
/* The blocks of which `read` has read a field. */
void data_read(Elab *e, Model *model, const Elab *read);
/* Puts the fields of all data blocks into the program. */
void data_register(Program *program);
void train_read(Elab *e, Model *model, const Item *block);
/* Some optimizer or schedule has an argument of this name. */
bool train_takes_argument(Names *names, const char *name);
void precision_read(Elab *e, Model *model, const Item *block);
/* Warns about what `f32` lists and no graph of the model has. */
void precision_check(Elab *e, const Model *model);
void sample_read(Elab *e, Model *model, const Item *block);

/* ---- blocks_plan.c ---- */

/* The plan that the options, their plan file or else the blocks of the model
 * ask for, or NULL: one rank, one micro-batch.  `graph` is the training graph
 * or the net alone, `walk` what made it. */
Plan *plan_read(Elab *e, const Model *model, const Elab *walk,
                const Graph *graph, Name batch_dim);

/* ---- plan_paths.c: what the paths of a plan mean ---- */

typedef struct PlanPaths PlanPaths;
typedef VEC(Name) PathList;
PlanPaths *plan_paths_create(Elab *e, const Model *model, const Elab *walk,
                             const Graph *graph);
/* Appends all paths that this expression means; false after a message. */
bool plan_paths_find(PlanPaths *paths, const Expr *x, PathList *out);
/* The same of a text, without messages. */
bool plan_paths_find_text(PlanPaths *paths, const char *text, PathList *out);
/* The n-th path beside its own that a node has, or NULL. */
const char *plan_paths_other(const PlanPaths *paths, Name node_path, int n);
typedef struct PlanNode {
  const Node *node;
  Name path; /* an input: what it is of */
} PlanNode;
/* All that can be placed, in program order, what scans compute included. */
const PlanNode *plan_paths_nodes(const PlanPaths *paths, int *out_n);
/* Whether one of these values has the dim; reports where none has. */
bool plan_paths_have_dim(const PlanPaths *paths, const PathList *list,
                         const Expr *x, Name dim, Span span);

/* ---- plan_lines.c ---- */

/* Warns of lines about paths that others imply. */
void plan_check_lines(Elab *e, const PlanPaths *paths, const Plan *plan);
/* The warning: the later line says what the earlier one does. */
void plan_line_repeats(Elab *e, Span later, Span earlier);
/* The path lines of the plan as it is printed (language.md 11). */
void plan_make_lines(Elab *e, PlanPaths *paths, Plan *plan);

/* ---- foreign.c ---- */

typedef enum Foreign {
  FOREIGN_call,
  FOREIGN_argument,
  FOREIGN_dtype,
  FOREIGN_init,
} Foreign;

/* Helps with a word of another library; false if it is none. */
bool foreign_help(Diag *diag, Foreign what, const char *word);

/* The one of `n` names nearest to `name`, offered as help. */
void diag_suggest(Diag *diag, const char *name, const char *const *names,
                  int n);
/* Likewise from a short list that the reader may not know: without a near one,
 * or without a name (NULL), all of it. */
void diag_choices(Arena *arena, Diag *diag, const char *name,
                  const char *const *names, int n);

#endif
