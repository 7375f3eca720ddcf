/*
 * elaborate.h -- the elaboration of one graph: frames of layer calls and what
 * the walk over the trees has found.
 *
 * A SourceTree is read once.  Each graph of the model (train, eval, ...) is one
 * Elab: a walk over the same trees with another value of `training` or
 * another batch size.  Everything that depends on those (sizes of dims,
 * consts) is computed anew for each Elab.
 */
#ifndef FRONTEND_ELABORATE_ELABORATE_H
#define FRONTEND_ELABORATE_ELABORATE_H

#include "frontend/elaborate/source_tree.h"
#include "ir/plan/graph_paths.h"
#include "ir/plan/pins.h"

typedef struct Frame Frame;

typedef struct Local {
  Name name;
  ExprValue val;
  Span span;       /* place of the statement that assigned the value */
  Name state_path; /* path of a state; NULL means no state */
  const TypeExpr *state_type; /* type of the state as it is declared */
  bool is_unknown;            /* nothing has this name, which was reported */
} Local;

typedef struct Size { /* a dim name with a size in one layer */
  Name name;
  int64_t size;
  Span span;   /* place of what gave the size */
  Name caller; /* generic: its name at the caller; else NULL */
  Span caller_span;
} Size;

struct Frame {
  Frame *caller;
  const Callable *callable; /* NULL means an expression of a block */
  /* The net that it is part of; NULL means outside of nets. */
  const Callable *net;
  int net_run;     /* number of the run of it */
  bool is_level;   /* counts for the depth of layers */
  bool has_states; /* some of its locals are states */
  Map *labels;
  Name prefix;         /* path of the layer call; "" for a net */
  const char *indices; /* indices of the enclosing repeats: "[2][5]" */
  VEC(Local) locals;
  Map *places; /* name -> place, of locals beyond the first; or NULL */
  VEC(Size) sizes;
  VEC(Name) unsized; /* dims reported to have no size */
  ExprValue result;
  Span result_span;
  /* The type whose dims are values in the condition of `mask`. */
  const Type *mask_type;
  const Expr *mask_expr;
};

typedef struct Param {
  const Name *place; /* name in the statement that declares it */
  Span span;
  const Type *type;
  ExprValue val;
  const Callable *net;
  int net_run; /* run of the net that declared it last */
  const DimNames *stands_for;
} Param;

typedef struct StateWrite { /* value of a state that the next step reads */
  Name path;
  ExprValue val;
} StateWrite;

/* The values that one execution of an annotated statement or layer made. */
typedef struct PinnedPaths {
  const Annotation *annotation; /* shard, remat, keep or stage */
  VEC(Name) paths;              /* paths of nodes, or of inputs */
  VEC(Name) named; /* those that the statement itself computes and names */
} PinnedPaths;

/* A scalar that each batch divides and an entire evaluation must divide once.
 */
typedef struct Ratio {
  Value value, sum, count; /* value = sum / count */
} Ratio;

/* Sums over a batch from which a metric of classes is computed. */
enum { MOST_COUNTS = 3 };
typedef struct MetricCounts {
  int n; /* 0 means a scalar of the graph */
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
  SourceTree *tree;
  Module *module;
  Arena *arena;
  Names *names;
  Diags *diags;
  Graph *graph;
  int epoch;
  bool is_training;
  /* Another batch size: states with the batch dim are inputs. */
  bool has_batch_rows;
  Name batch_dim; /* dim of the batch, with `batch` as its size, if not 0 */
  int64_t batch;
  /* The elaboration of the training graph, which decides the parameters. */
  const Elab *reference;
  Frame *frame, *unused_frames;
  int depth, nesting, n_frozen, n_net_runs;
  Map *params;                 /* path -> Param */
  Map *data;                   /* path -> address of a ExprValue */
  Map *limits;                 /* path of a data field -> DataLimits */
  VEC(ExprValue) extra_losses; /* those of add_loss */
  /* Assignments to states, in the order of the first of each. */
  VEC(StateWrite)
  state_writes;
  Map *written_states; /* path -> 1 + its place in state_writes */
  VEC(NetCall) net_calls;
  VEC(PathAlias) aliases;
  VEC(PinnedPaths) pinned;
  VEC(const Expr *) origins; /* expression that made a node, by node id */
  const Callable *first_net; /* the first net that was called */
  const Expr *metric;        /* the metric that is elaborated now, or NULL */
  MetricCounts counts;       /* counts of that metric */
  VEC(Ratio) ratios;         /* ratios by node, ascending */
  const Expr *at;            /* the expression whose nodes are appended now */
  const Expr *statement;     /* the last call that was a statement */
  Name dtypes[N_DTYPES];     /* interned names; NULL means not yet */
  Value step, seed;
  /* The scan whose body is elaborated now; NULL means none. */
  struct Scan *scan;
  struct Watch *watch; /* records values by path (predict.c), or NULL */
};

Elab *elab_create(SourceTree *tree, Name graph_name);

/* ---- budget ---- */

/* Counts a step.  Returns false if a budget ran out. */
bool elab_step(Elab *e, Span span);
/* Returns whether there may be `n` more list elements; else reports it. */
bool elab_may_list(Elab *e, int64_t n, Span span);
void elab_exhausted(Elab *e, Span span, const char *what, int64_t limit);
void elab_not_supported(Elab *e, Span span, const char *what);

#endif
