/*
 * op.h -- declares operators, their attributes and the rules of ops.def.
 */
#ifndef IR_OP_H
#define IR_OP_H

#include "ir/type.h"

/* graph.h has these. */
typedef struct Module Module;
typedef struct Graph Graph;
typedef struct Node Node;
typedef struct Value Value;

/* ---- operators: ops.def ---- */

typedef enum Op {
#define OP(name, ...)  OP_##name,
#define PW1(name, ...) OP_##name,
#define PW2(name, ...) OP_##name,
#define PW3(name, ...) OP_##name,
#include "ir/ops.def"
  N_OPS
} Op;

typedef enum AttrKey {
#define ATTR(key, kind) ATTR_##key,
#include "ir/attrs.def"
  N_ATTRS
} AttrKey;
typedef enum AttrKind {
  ATTRKIND_NAME,
  ATTRKIND_NAMES,
  ATTRKIND_INT,
  ATTRKIND_INTS,
  ATTRKIND_FLOAT,
  ATTRKIND_TEXT
} AttrKind;

typedef struct Attr {
  AttrKey key;
  int n; /* length of a list; 1 otherwise */
  union {
    Name name; /* name, of a value of kind TEXT too: interned */
    const Name *names;
    int64_t integer;
    const int64_t *integers;
    double real;
  };
} Attr;

/* A set of attributes under construction; order of addition is irrelevant
 * (graph_append sorts by key and copies lists; until then they are the
 * caller's).  Adding a key again replaces it. */
typedef struct Attrs {
  int n;
  Attr items[12];
} Attrs;

void attrs_name(Attrs *attrs, AttrKey key, Name name);
void attrs_names(Attrs *attrs, AttrKey key, const Name *names, int n);
void attrs_int(Attrs *attrs, AttrKey key, int64_t value);
void attrs_ints(Attrs *attrs, AttrKey key, const int64_t *values, int n);
void attrs_float(Attrs *attrs, AttrKey key, double value);
/* Returns an attribute.  Returns NULL if it is absent. */
const Attr *attrs_find(const Attrs *attrs, AttrKey key);
const char *attr_name(AttrKey key);
AttrKind attr_kind(AttrKey key);
bool attr_find(const char *name, AttrKey *out_key);
/* Returns whether two attributes are equal, numbers by their bits: 0 and -0
 * differ. */
bool attr_equal(const Attr *a, const Attr *b);

/* ---- op.c: the table as data ---- */

typedef enum PwClass {
  PW_FLOAT,   /* float in, float out; integers are promoted to f32 */
  PW_ARITH,   /* promoted dtype of the operands */
  PW_COMPARE, /* any in, bool out */
  PW_LOGIC,   /* bool in, bool out */
  PW_INTEGER, /* integers only */
  PW_SELECT,  /* bool, then two of one dtype */
} PwClass;

typedef enum Linearity {
  LINEAR_no,
  LINEAR_each,  /* linear in each operand alone: mul, dot, conv */
  LINEAR_all,   /* linear in all operands together: add, sub */
  LINEAR_first, /* linear in the first only: div, scatter_add, mul by a mask */
} Linearity;

/* The operator and operands of a node that may not exist yet, for the rules. */
typedef struct OpCall {
  Op op;
  int n_inputs;
  const Type *const *types; /* types of the inputs */
  const Attrs *attrs;       /* unsorted */
  /* Name that the program calls it by; NULL means its own name. */
  const char *called;
} OpCall;

/* Fills out_types (room for 8) in the arena and returns the number of results;
 * or reports at `span` (with notes) and returns -1.  Placements are ignored:
 * results have logical types. */
typedef int InferRule(Module *module, const OpCall *call, Span span,
                      const Type **out_types);

/* Appends gradients: given the cotangent of each result (VALUE_NONE where there
 * is none), appends nodes to `graph` (which holds the node itself, with id
 * `id`) and sets out[i] for each input (VALUE_NONE: no gradient). out[i] has
 * the dims of input i, in any order. */
typedef void GradRule(Graph *graph, int id, const Value *cotangents,
                      Value *out);

/* Appends the operator written in simpler ones; returns its first result,
 * or fills out_results where there are several. */
typedef void DecomposeRule(Graph *graph, const Graph *from, int id,
                           const Value *inputs, Value *out_results);

/* Returns the floating-point operations on the sizes of the given types: those
 * of the operands and node->types.  Nothing else of the node depends on a
 * graph. */
typedef double CostRule(const Node *node, const Type *const *inputs);

typedef enum OpClass {
#define OPCLASS(name, work, meaning) OPCLASS_##name,
#include "ir/opclass.def"
  N_OPCLASSES
} OpClass;

enum {
#define OPFLAG(name, meaning) OP_FLAG_BIT_##name,
#include "ir/opclass.def"
};
typedef enum OpFlag {
#define OPFLAG(name, meaning) OP_FLAG_##name = 1 << OP_FLAG_BIT_##name,
#include "ir/opclass.def"
} OpFlag;

typedef struct OpInfo {
  const char *name;
  OpClass class;
  unsigned flags;             /* set of OpFlag */
  int min_inputs, max_inputs; /* a max of -1 means any number */
  bool is_pointwise;
  PwClass pw_class;
  const char *value, *derivative[3]; /* pointwise: texts of the row */
  double flops;                      /* pointwise: an element */
  Linearity linear;
  /* "over:sum", "over:replicate", "dim:sum space:replicate". */
  const char *sharding;
  InferRule *infer;
  GradRule *grad; /* NULL means not differentiable (gradient stops) */
  CostRule *cost;
  DecomposeRule *decompose; /* NULL means that it is lowered as it is */
} OpInfo;

extern const OpInfo op_infos[N_OPS];
static inline const OpInfo *op_info(Op op) {
  ASSERT((unsigned)op < N_OPS);
  return &op_infos[op];
}
static inline bool op_is(Op op, OpClass class) {
  return op_info(op)->class == class;
}
static inline bool op_has(Op op, OpFlag flag) {
  return (op_info(op)->flags & flag) != 0;
}
bool op_find(const char *name, Op *out_op);
int op_infer(Module *module, const OpCall *call, Span span,
             const Type **out_types);

/* ---- point.c ---- */

/* Returns the value of a pointwise row of ops.def in double. */
double op_value(Op op, double a, double b, double c);
/* Returns the integer quotient rounded down, and the remainder with the
 * divisor's sign; 0 where the divisor is 0. */
double op_floordiv(double a, double b);
double op_mod(double a, double b);

#endif
