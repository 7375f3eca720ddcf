/*
 * ir.h -- declares the dataflow IR: types with named dims and placements, nodes
 * with several results and region bodies, graphs in topological order.
 *
 * A graph is built by appending and never edited: a pass reads one graph and
 * builds the next, so ids stay dense, inputs precede users, and no pass can
 * leave a half-changed graph.
 *
 * Text form (graph_print, graph_parse), one node a line.  Values are numbered
 * through, results of all nodes together; `#` begins a comment:
 *
 *     graph mlp mesh(data = 2, time = 1~) {
 *       %0 = input {index = 0} : f32[P:784, H1:512] param "w" decay
 *       %2 = dot %1, %0 {over = [P]} : f32[B:128@data, H1:512] "linear.dot"
 *       %7, %8 = fused %2, %5 : f32[B:128], f32[] @update {
 *         ...
 *       }
 *       output loss "loss" %9
 *     }
 */
#ifndef IR_IR_H
#define IR_IR_H

#include "support/support.h"
#include "support/tables.h"

/* ---- dtype ---- */

typedef enum DType {
#define DTYPE(name, ...) DT_##name,
#include "support/dtype.def"
  N_DTYPES
} DType;
typedef enum DTypeClass { CLASS_BOOL, CLASS_INT, CLASS_FLOAT } DTypeClass;

const char *dtype_name(DType dtype);
int dtype_size_bytes(DType dtype);
DTypeClass dtype_class(DType dtype);
bool dtype_find(const char *name, DType *out_dtype);
/* The wider of two: bool < integers < floats, then by bytes; of one class and
 * size the least that holds both: i16 for i8 and u8, f32 for bf16 and f16. */
DType dtype_promote(DType a, DType b);
/* The 16-bit floats; these and f32, which `precision` rounds from and to. */
bool dtype_is_16bit(DType dtype);
bool dtype_is_rounded(DType dtype);
/* The float of this dtype that is nearest (ties to even); beyond the largest
 * finite one an infinity, or NaN in f8e4m3, which has no infinity. */
double dtype_round(DType dtype, double x);
/* Towards zero to a value of an integer dtype (or bool); beyond its range the
 * end of it. */
int64_t dtype_integer(DType dtype, double x);
/* The greatest number of an integer dtype. */
int64_t dtype_largest_integer(DType dtype);
/* The dtype in which a pass numbers the n elements of a dim: i32 if it holds
 * their positions, else i64. */
DType dtype_of_positions(int64_t n);

/* ---- mesh and placement ---- */

#define MAX_AXES 7
#define MAX_RANK 12

/* Named axes, outermost first (the last varies fastest over ranks).  A
 * sequential axis is not made of ranks: its shards are done one after the
 * other (micro-batches), so a sum over it is accumulation. */
typedef struct MeshAxis {
  Name name;
  int32_t size;
  bool is_sequential;
} MeshAxis;

typedef struct Mesh {
  int n_axes;
  MeshAxis axes[MAX_AXES];
} Mesh;

int mesh_ranks(const Mesh *mesh); /* product of the non-sequential axes */
int mesh_find(const Mesh *mesh, Name axis); /* index or -1 */

/* An ordered list of mesh axes, outermost first: four bits each, axis index
 * plus one, the first in the lowest bits; 0 is the empty list. */
typedef uint32_t AxisList;
/* A set of mesh axes: bit i is axis i. */
typedef uint8_t AxisSet;

AxisList axis_list_append(AxisList list, int axis);
int axis_list_length(AxisList list);
int axis_list_at(AxisList list, int index);
AxisSet axis_list_set(AxisList list);
/* The axes of `first`, then those of `rest`. */
AxisList axis_list_join(AxisList first, AxisList rest);
/* The first `n` axes. */
AxisList axis_list_head(AxisList list, int n);
/* The axes that are not in the set, in their order. */
AxisList axis_list_without(AxisList list, AxisSet axes);
/* The axes of the set, ascending. */
AxisList axis_list_of_set(AxisSet axes);
/* `list` is `first`, then *out_rest: it shards the shards of `first`. */
bool axis_list_continues(AxisList list, AxisList first, AxisList *out_rest);
int64_t axis_list_shards(AxisList list, const Mesh *mesh);

const char *reduce_name(ReduceKind kind);

/* ---- type.c ---- */

/* One dim: its logical size and the axes that shard it; a shard has
 * ceil(size / shards) elements. */
typedef struct Dim {
  Name name;
  int64_t size;
  AxisList split;
} Dim;

/* Dim order is storage order (row-major) and has no meaning for operators.
 * `partial`: the value is the reduction of what the ranks (or micro-batches)
 * along these axes hold.  Types are immutable and shared freely. */
typedef struct Type {
  DType dtype;
  uint8_t rank;
  AxisSet partial;
  ReduceKind partial_kind;
  Dim dims[];
} Type;

Type *type_create(Arena *arena, DType dtype, int rank); /* to be filled in */
const Type *type_scalar(Arena *arena, DType dtype);
bool type_equal(const Type *a, const Type *b); /* all of it */
/* For tables in memory: names count by their addresses, which change from run
 * to run. */
uint64_t type_hash(const Type *type);
bool type_same_shape(const Type *a, const Type *b); /* names, sizes, order */
/* Names and sizes as sets; order, placement and dtype ignored. */
bool type_same_dims(const Type *a, const Type *b);
static inline int type_find(const Type *type, Name dim) { /* index or -1 */
  for (int i = 0; i < type->rank; i++)
    if (type->dims[i].name == dim) return i;
  return -1;
}
int64_t type_size(const Type *type,
                  Name dim);               /* logical; asserts it is there */
int64_t type_elements(const Type *type);   /* logical */
bool type_is_replicated(const Type *type); /* no split and not partial */
/* Copies with one thing changed. */
const Type *type_with_dtype(Arena *arena, const Type *type, DType dtype);
const Type *type_without(Arena *arena, const Type *type, const Name *dims,
                         int n);
/* Without any placement. */
const Type *type_logical(Arena *arena, const Type *type);
/* Sizes of the shard on a rank (the largest, where uneven) under a mesh. */
int64_t type_local_size(const Type *type, const Mesh *mesh, int dim_index);
int64_t type_local_elements(const Type *type, const Mesh *mesh);
/* "f32[B:128@data, H1:512; sum@data]"; the mesh may be NULL for a type
 * without placement. */
void type_print(Text *out, const Type *type, const Mesh *mesh);
/* A name as IR text has it: quoted where it is not a word. */
void name_print(Text *out, Name name);

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
  int n; /* of a list; 1 otherwise */
  union {
    Name name; /* also TEXT: interned */
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
const Attr *attrs_find(const Attrs *attrs, AttrKey key); /* NULL if absent */
const char *attr_name(AttrKey key);
AttrKind attr_kind(AttrKey key);
bool attr_find(const char *name, AttrKey *out_key);
/* Numbers by their bits: 0 and -0 differ. */
bool attr_equal(const Attr *a, const Attr *b);

/* ---- graph.c ---- */

typedef struct Module {
  Memory *memory;
  Arena *arena; /* everything below lives here */
  Names *names;
  Diags *diags;
} Module;

typedef enum Role {
#define ROLE(name, program) ROLE_##name,
#include "ir/roles.def"
  N_ROLES
} Role;
const char *role_name(Role role);

typedef enum Phase {
#define PHASE(name, spelling, words) PHASE_##name,
#include "support/phases.def"
  N_PHASES
} Phase;

/* Result `result` of node `node`. */
typedef struct Value {
  int32_t node;
  int32_t result;
} Value;
#define VALUE_NONE ((Value){-1, 0})
static inline bool value_is(Value v) {
  return v.node >= 0;
}
static inline bool value_equal(Value a, Value b) {
  return a.node == b.node && a.result == b.result;
}

typedef struct Graph Graph;

typedef struct Node {
  Op op;
  uint8_t phase; /* Phase */
  uint8_t n_attrs;
  int n_inputs, n_results;
  const Value *inputs;
  const Type *const *types; /* one a result */
  const Attr *attrs;        /* sorted by key */
  Graph *body;              /* region (fused, scan) or NULL; closed: it sees
                               only its own inputs (ROLE_arg, one for each
                               input of this node, in order) and its outputs
                               (ROLE_result) are this node's results; scan.c
                               says how a scan's differ */
  Span span;
  Name path; /* "block[3].attn.q"; "" if none */
} Node;

typedef struct GraphInput {
  Role role;
  Name path; /* "block[3].attn.wq", "text.x", "adamw.m/wte" */
  Init init; /* param, state, moment */
  bool is_frozen;
  bool has_decay; /* param: a dot, conv or gather reads it (language.md 8) */
  /* param: dims, as bits by index, that the first dot or conv to read it
   * contracts, and those that it batches; contracts 0: it is no matrix */
  uint16_t contracts, batches;
  Value value; /* the `input` node */
} GraphInput;

typedef struct GraphOutput {
  Role role;
  Name path; /* of the persistent buffer it replaces, or its own name */
  Value value;
} GraphOutput;

struct Graph {
  Module *module;
  Name name;
  Mesh mesh;
  VEC(Node *) nodes; /* node i has id i */
  VEC(GraphInput) inputs;
  VEC(GraphOutput) outputs;
  /* The hash of a region, computed when it had so many nodes and outputs (0:
   * never). */
  uint64_t hash;
  int hashed_nodes, hashed_outputs;
  /* A region that shares its nodes with an equal one: the paths of its own,
   * by node.  NULL: those that the nodes say. */
  const Name *paths;
  uint64_t ops[(N_OPS + 63) / 64]; /* of its nodes: bit `op` */
  size_t node_bytes; /* of its nodes: see node_copy_bytes; a body that a pass
                        replaced counts as it was */
  /* Defaults for nodes that are appended; passes set them as they walk. */
  Phase phase;
  Span span;
  Name path;
};

Graph *graph_create(Module *module, Name name);
/* A graph without nodes, with the name and mesh of another and room for as many
 * nodes as it has. */
Graph *graph_like(const Graph *graph);
/* Appends an `input` node of this type and registers it. */
Value graph_input(Graph *graph, Role role, Name path, const Type *type);
void graph_output(Graph *graph, Role role, Name path, Value value);
/* Appends a node; result types come from the operator's infer rule.  Inputs
 * must already satisfy the rule (asserted: a frontend checks with op_infer
 * first, which explains).  Returns its first result. */
Value graph_append(Graph *graph, Op op, const Value *inputs, int n_inputs,
                   const Attrs *attrs);
/* The same with the result types given: for operators whose types the rule
 * cannot know (fused, scan, collectives) and for the parser. */
Value graph_append_typed(Graph *graph, Op op, const Value *inputs, int n_inputs,
                         const Attrs *attrs, const Type *const *types,
                         int n_results, Graph *body);
/* Copies node `id` of `from` with its inputs replaced: same attributes, types,
 * body, span, path and phase.  Types are inferred anew if `infer` and the
 * operator has a rule.  An `input` node is registered with all it had. */
Value graph_copy_node(Graph *to, const Graph *from, int id,
                      const Value *new_inputs, bool infer);
/* The same with the result types given; not for an `input` node. */
Value graph_copy_node_as(Graph *to, const Graph *from, int id,
                         const Value *new_inputs, const Type *const *types);
/* Asserts that the value is there. */
static inline const Node *graph_node(const Graph *graph, Value value) {
  ASSERT(value.node >= 0 && value.node < graph->nodes.n);
  const Node *node = graph->nodes.data[value.node];
  ASSERT(value.result >= 0 && value.result < node->n_results);
  return node;
}
static inline const Type *graph_type(const Graph *graph, Value value) {
  return graph_node(graph, value)->types[value.result];
}
/* The path of node `id`; in regions it may not be that which the node says. */
static inline Name graph_path(const Graph *graph, int id) {
  return graph->paths ? graph->paths[id] : graph->nodes.data[id]->path;
}
/* Appends a node of another graph as it is; not an `input` node. */
void graph_share_node(Graph *to, Node *node);
/* A node of the graph, bodies apart, has this operator. */
static inline bool graph_has_op(const Graph *graph, Op op) {
  return graph->ops[op / 64] >> op % 64 & 1;
}
/* All is the same but path and span. */
bool node_equal(const Node *a, const Node *b);
const GraphInput *graph_find_input(const Graph *graph, Role role, Name path);
/* The same where many are looked for: the index holds what the graph had when
 * it was made, in `arena`. */
typedef struct InputIndex {
  const Graph *graph;
  Map *by_path[N_ROLES];
} InputIndex;
InputIndex graph_index_inputs(const Graph *graph, Arena *arena);
const GraphInput *input_indexed(const InputIndex *index, Role role, Name path);
const GraphOutput *graph_find_output(const Graph *graph, Role role, Name path);
/* Number of uses of each node's results together (outputs count). */
int *graph_use_counts(const Graph *graph, Arena *arena);
/* Hash of operators, attributes, types and structure, not of paths or spans:
 * equal blocks have equal hashes. */
uint64_t graph_hash(const Graph *graph);
/* The same of a region, which is complete: it remembers its hash. */
uint64_t region_hash(Graph *body);
/* Hash of all that a kernel may depend on: the operator, its attributes and
 * body, the types of its inputs and results, the mesh. */
uint64_t kernel_key(const Graph *graph, int id);
/* Hash of what one run of a node works on, on one rank in one micro-batch: the
 * operator, its body, the types of inputs and results with local sizes.  Nodes
 * with equal local work have equal keys on every mesh and in every plan
 * (launch_key.c); never 0. */
uint64_t launch_key(const Graph *graph, int id);
/* The same of setting the results of a node to zero. */
uint64_t clear_key(const Graph *graph, int id);

/* Short forms for passes; same defaults as graph_append. */
Value graph_const(Graph *graph, DType dtype, double value);
/* The positions of the elements of a dim, in dtype_of_positions. */
Value graph_positions(Graph *graph, Name dim, int64_t size);
Value graph_op1(Graph *graph, Op op, Value a);
Value graph_op2(Graph *graph, Op op, Value a, Value b);
Value graph_op3(Graph *graph, Op op, Value a, Value b, Value c);
Value graph_reduce(Graph *graph, Op op, Value a, const Name *over, int n);
Value graph_cast(Graph *graph, Value a, DType dtype); /* a if equal already */
Value graph_transpose_to(Graph *graph, Value a, const Type *order);

const Attr *node_attr(const Node *node, AttrKey key); /* NULL if absent */
bool node_has(const Node *node, AttrKey key);
Name node_name(const Node *node, AttrKey key);
int64_t node_int(const Node *node, AttrKey key, int64_t if_absent);
double node_float(const Node *node, AttrKey key, double if_absent);
const Name *node_names(const Node *node, AttrKey key, int *out_n);
/* The dim along which a collective works on operand `part`. */
Name node_part_dim(const Node *node, int part);
const int64_t *node_ints(const Node *node, AttrKey key, int *out_n);
/* Item i of the list; of one that is absent or ends before i, `otherwise`. */
int64_t node_int_at(const Node *node, AttrKey key, int i, int64_t otherwise);

/* ---- graph_copy.c ---- */

/* A copy in the arena of `module` that shares no memory with the graph but
 * names and sources.  Equal types of the copy are one. */
Graph *graph_copy(Module *module, const Graph *graph);
/* Bytes that a copy takes, but for types and lists of attributes.  A region
 * with paths of its own does not count the nodes that it shares. */
size_t node_copy_bytes(const Node *node); /* with its body */
size_t graph_copy_bytes(const Graph *graph);

/* ---- print.c, parse.c, verify.c ---- */

const char *phase_name(Phase phase); /* "forward", "dgrad" ... */
const char *init_name(InitKind kind);
void graph_print(Text *out, const Graph *graph);
/* Reads what graph_print wrote; mistakes become diags.  NULL on error. */
Graph *graph_parse(Module *module, const Source *source);
/* Appends one line per violation; true if there is none. */
bool graph_verify(const Graph *graph, Text *out_errors);

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
  LINEAR_each,  /* in each operand alone: mul, dot, conv */
  LINEAR_all,   /* in all operands together: add, sub */
  LINEAR_first, /* in the first only: div, scatter_add, mul by a mask */
} Linearity;

/* The operator and operands of a node that may not exist yet, for the rules. */
typedef struct OpCall {
  Op op;
  int n_inputs;
  const Type *const *types; /* of the inputs */
  const Attrs *attrs;       /* unsorted */
  const char *called; /* what the program calls it; NULL: by its own name */
} OpCall;

/* Fills out_types (room for 8) in the arena and returns the number of results;
 * or reports at `span` (with notes) and returns -1.  Placements are ignored:
 * results have logical types. */
typedef int InferRule(Module *module, const OpCall *call, Span span,
                      const Type **out_types);

/* Gradients: given the cotangent of each result (VALUE_NONE where there is
 * none), append nodes to `graph` (which holds the node itself, with id `id`)
 * and set out[i] for each input (VALUE_NONE: no gradient).  out[i] has the
 * dims of input i, in any order. */
typedef void GradRule(Graph *graph, int id, const Value *cotangents,
                      Value *out);

/* Appends the operator written in simpler ones; returns its first result,
 * or fills out_results where there are several. */
typedef void DecomposeRule(Graph *graph, const Graph *from, int id,
                           const Value *inputs, Value *out_results);

/* Floating-point operations on the sizes of the given types: those of the
 * operands and node->types.  Nothing else of the node depends on a graph. */
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
  unsigned flags;             /* of OpFlag */
  int min_inputs, max_inputs; /* max -1: any number */
  bool is_pointwise;
  PwClass pw_class;
  const char *value, *derivative[3]; /* pointwise: texts of the row */
  double flops;                      /* pointwise: an element */
  Linearity linear;
  const char
      *sharding; /* "over:sum", "over:replicate", "dim:sum space:replicate" */
  InferRule *infer;
  GradRule *grad; /* NULL: not differentiable (gradient stops) */
  CostRule *cost;
  DecomposeRule *decompose; /* NULL: lowered as it is */
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

/* The value of a pointwise row of ops.def in double. */
double op_value(Op op, double a, double b, double c);
/* The integer quotient rounded down, and the remainder with the divisor's sign;
 * 0 where the divisor is 0. */
double op_floordiv(double a, double b);
double op_mod(double a, double b);

/* ---- shard_infer.c, shardrule.c ---- */

/* How the placements of the inputs of a node become that of its results. Fills
 * out_types; where an input must first change (a partial value into an operator
 * that is not linear in it, a `replicate` dim that is split), sets
 * out_inputs[i] to the type that it must be given in, else to its own type. A
 * partial operand stays partial over all its axes or must be reduced over all.
 * The rule itself never fails: at worst everything must be replicated. */
void shard_infer(const Graph *graph, Op op, const Attr *attrs, int n_attrs,
                 const Type *const *inputs, int n_inputs,
                 const Type *const *whole_results, int n_results, Arena *arena,
                 const Type **out_inputs, const Type **out_types);
/* The sharding column of the operator lists an attribute that names this dim:
 * what contractions sum over, windows slide along and so on. */
bool node_treats_dim(const Node *node, Name dim);

/* ---- shardcheck.c ---- */

/* Appends a line for each placement of a partitioned graph, regions included,
 * that the rule of its operator does not give; true if there is none. */
bool graph_check_placements(const Graph *graph, Text *out_errors);

/* ---- path.c ---- */

/* Parts of the path that follow each other are `wanted`: "attn" and
 * "block[1..3].attn" (an index left out means all; "!" is as "."), wherever
 * they stand: "block[2].attn.q" has both. */
bool path_has(const char *path, const char *wanted);
/* The node is the operator `wanted`, has the path `wanted`, or is below this
 * layer or path. */
bool node_is_called(const Node *node, const char *wanted);

/* ---- view.c ---- */

/* The result shares the bytes of its input: an operator that is always a view,
 * a merge_dims whose dims are adjacent and in order, or a slice of the first
 * dim from its beginning. */
bool node_is_view(const Graph *graph, int id);

/* ---- work.c ---- */

/* On logical sizes; work.h has those of one rank. */
double node_flops(const Graph *graph, int id);
/* Only those of contractions: two per multiply-add of dots, convolutions and
 * attention (the full square, causal or not); in a scan times its iterations.
 */
double node_contraction_flops(const Graph *graph, int id);

/* ---- scan.c: a loop over one dim ---- */

/* The order and number of the iterations. */
typedef struct ScanForm {
  Name dim;
  int64_t steps;
  bool is_reversed;
  int64_t unroll; /* iterations in one round of the emitted loop; 0 is 1 */
} ScanForm;
ScanForm scan_form(const Node *node);
/* Carries come first among the inputs and among the results. */
int scan_carries(const Node *node);
int64_t scan_steps(const Node *node);
bool scan_is_reversed(const Node *node);
/* The dims of one iteration with the scanned one in front: the type of a sliced
 * value or a stacked result, its storage order included. */
const Type *scan_stacked_type(Arena *arena, const Type *position, Name dim,
                              int64_t steps);
/* The role of input `index` of the body: carry, slice or arg. */
Role scan_input_role(const Node *node, int index);
/* Appends a scan over a body whose inputs and outputs have their roles; inputs
 * in the order of the body's. */
Value scan_append(Graph *graph, ScanForm form, const Value *inputs,
                  Graph *body);
/* The same scan with more stacked results: all that its gradient reads of the
 * forward pass.  Results that were there keep their places. */
Value scan_append_saving(Graph *graph, const Node *node, const Value *inputs);

/* ---- adjoint.c: one walk of reverse-mode differentiation ---- */

typedef struct Adjoint {
  Graph *graph;
  int n_forward;     /* nodes of the graph when the walk began */
  bool *is_wanted;   /* [n_forward]: set for inputs, then adjoint_spread */
  int *first;        /* [n_forward]: number of the node's first result */
  Value *cotangents; /* by first[node] + result; VALUE_NONE: none */
} Adjoint;

Adjoint adjoint_begin(Arena *scratch, Graph *graph);
/* A node that depends on a wanted one is wanted. */
void adjoint_spread(Adjoint *adjoint);
Value adjoint_get(const Adjoint *adjoint, Value value);
void adjoint_add(Adjoint *adjoint, Value value, Value cotangent);
/* Phase input_gradient, the span of node `id` and the path "grad.PATH". */
void adjoint_set_place(Adjoint *adjoint, int id);
/* Backwards over the forward nodes, with cotangents set for what is to be
 * differentiated. */
void adjoint_walk(Adjoint *adjoint, Arena *scratch);

/* ---- exprtext.c: the formula texts of tables, as nodes ---- */

typedef struct ExprName {
  const char *name; /* NUL-terminated */
  Value value;
} ExprName;

/* Dims under one name: SUM(x, in) sums over those of them that x has. */
typedef struct ExprDims {
  const char *name;
  int n;
  Name dims[MAX_RANK];
} ExprDims;

/* Names that a formula may read; assignments add to them or replace. */
typedef struct ExprScope {
  Graph *graph;
  DType dtype; /* of literals */
  int n, n_groups;
  ExprName names[32];
  ExprDims groups[2];
} ExprScope;

void expr_bind(ExprScope *scope, const char *name, Value value);
/* A float literal under a name. */
void expr_bind_float(ExprScope *scope, const char *name, double value);
Value expr_find(const ExprScope *scope, const char *name); /* or VALUE_NONE */
/* Appends the nodes of `text`: an expression in the notation of ops.def, or
 * statements "m = b1 * m; w = w - m".  Numbers may stand without R(). SUM(x),
 * MEAN(x) and NORM(x) (root of the sum of squares) reduce all dims of x, or
 * those of the groups named after it; ORTH(x) is exprtext.c's.  Constants are
 * computed in double and rounded once.  Returns the last value; texts come from
 * our tables, so a mistake in one is asserted. */
Value expr_build(ExprScope *scope, const char *text);

#endif
