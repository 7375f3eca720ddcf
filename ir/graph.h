/*
 * graph.h -- declares graphs: nodes, their values, and what is asked of them.
 */
#ifndef IR_GRAPH_H
#define IR_GRAPH_H

#include "ir/op.h"

/* ---- graph.c ---- */

typedef struct Module {
  Memory *memory;
  Arena *arena; /* everything below lives here */
  Names *names;
  Diags *diags;
} Module;
/* Returns a copy whose values and messages go to `arena`: a trial that uses it
 * reports nothing and leaves nothing in the module. */
Module *module_apart(const Module *module, Arena *arena);

typedef enum Role {
#define ROLE(name, program) ROLE_##name,
#include "ir/roles.def"
  N_ROLES
} Role;
const char *role_name(Role role);
/* Returns whether each step has another value of an input: data, the number of
 * the step or epoch, the seed. */
bool role_is_of_step(Role role);

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

typedef struct Node {
  Op op;
  uint8_t phase; /* Phase */
  uint8_t n_attrs;
  uint16_t stage; /* counted from 1; 0: none */
  int n_inputs, n_results;
  const Value *inputs;
  const Type *const *types; /* one type for each result */
  const Attr *attrs;        /* sorted by key */
  /* Region (fused, scan) or NULL; closed: it sees only its own inputs
   * (ROLE_arg, one for each input of this node, in order) and its outputs
   * (ROLE_result) are this node's results; scan.c says how a scan's differ. */
  Graph *body;
  Span span;
  Name path; /* "block[3].attn.q"; "" if none */
} Node;

enum { MOST_GROUPS = 255 }; /* of the optimizer */

typedef struct GraphInput {
  Role role;
  Name path; /* "block[3].attn.wq", "text.x", "adamw.m/wte" */
  Init init; /* param, state, moment */
  bool is_frozen;
  bool is_on_host; /* it persists in host memory */
  bool has_decay;  /* param: a dot, conv or gather reads it (language.md 8) */
  uint8_t group;   /* param: of the optimizer, counted from 1; 0: none */
  /* dims of a parameter, as bits by index, that the first dot or conv to read
   * it contracts, and those that it batches; contracts is 0 if it is no matrix
   */
  uint16_t contracts, batches;
  Value value; /* the `input` node */
} GraphInput;

typedef struct GraphOutput {
  Role role;
  /* Path of the persistent buffer that it replaces, or its own name. */
  Name path;
  Value value;
} GraphOutput;

struct Graph {
  Module *module;
  Name name;
  Mesh mesh;
  VEC(Node *) nodes; /* node i has id i */
  VEC(GraphInput) inputs;
  VEC(GraphOutput) outputs;
  /* The hash of a region, computed when it had so many nodes and outputs (0
   * means never). */
  uint64_t hash;
  int hashed_nodes, hashed_outputs;
  /* The paths, by node, of a region that shares its nodes with an equal
   * one.  NULL means those that the nodes say. */
  const Name *paths;
  uint64_t ops[(N_OPS + 63) / 64]; /* operators of its nodes: bit `op` */
  /* Bytes of its nodes, see node_copy_bytes; a body that a pass replaced counts
   * as it was. */
  size_t node_bytes;
  /* Defaults for nodes that are appended; passes set them as they walk. */
  Phase phase;
  uint16_t stage;
  Span span;
  Name path;
};

Graph *graph_create(Module *module, Name name);
/* Returns a graph without nodes, with the name and mesh of another and room for
 * as many nodes as it has. */
Graph *graph_like(const Graph *graph);
/* Appends an `input` node of this type and registers it. */
Value graph_input(Graph *graph, Role role, Name path, const Type *type);
void graph_output(Graph *graph, Role role, Name path, Value value);
/* Appends a node; result types come from the operator's infer rule.  Inputs
 * must already satisfy the rule (asserted: a frontend checks with op_infer
 * first, which explains).  Returns its first result. */
Value graph_append(Graph *graph, Op op, const Value *inputs, int n_inputs,
                   const Attrs *attrs);
/* Appends a node with the given result types: for operators whose types the
 * rule cannot know (fused, scan, collectives) and for the parser. */
Value graph_append_typed(Graph *graph, Op op, const Value *inputs, int n_inputs,
                         const Attrs *attrs, const Type *const *types,
                         int n_results, Graph *body);
/* Copies node `id` of `from` with its inputs replaced: same attributes, types,
 * body, span, path, phase and stage.  Types are inferred anew if `infer` and
 * the operator has a rule.  An `input` node is registered with all it had. */
Value graph_copy_node(Graph *to, const Graph *from, int id,
                      const Value *new_inputs, bool infer);
/* Copies a node with the given result types; not for an `input` node. */
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
/* Returns the path of node `id`; in regions it may not be that which the node
 * says. */
static inline Name graph_path(const Graph *graph, int id) {
  return graph->paths ? graph->paths[id] : graph->nodes.data[id]->path;
}
/* Appends a node of another graph as it is; not an `input` node. */
void graph_share_node(Graph *to, Node *node);
/* Returns whether a node of the graph, bodies apart, has this operator. */
static inline bool graph_has_op(const Graph *graph, Op op) {
  return graph->ops[op / 64] >> op % 64 & 1;
}
/* Returns whether two nodes are equal but for path and span. */
bool node_equal(const Node *a, const Node *b);
const GraphInput *graph_find_input(const Graph *graph, Role role, Name path);
/* A look-up of many inputs: the index holds what the graph had when it was
 * made, in `arena`. */
typedef struct InputIndex {
  const Graph *graph;
  Map *by_path[N_ROLES];
} InputIndex;
InputIndex graph_index_inputs(const Graph *graph, Arena *arena);
const GraphInput *input_indexed(const InputIndex *index, Role role, Name path);
const GraphOutput *graph_find_output(const Graph *graph, Role role, Name path);
/* Returns how often the results of each node are used together (outputs count).
 */
int *graph_use_counts(const Graph *graph, Arena *arena);
/* Returns, by node, whether it follows from data. */
bool *graph_data_nodes(const Graph *graph, Arena *arena);

/* The constraints that no node reads.  Each is a pin of the value that it
 * reads: `partition` places the value by it for all readers, and no other pass
 * takes the pin for one of them.  Both arrays are by node, and NULL where the
 * graph has no constraint. */
typedef struct GraphPins {
  int *first; /* the first pin of a result of this node; 0 means none */
  int *next;  /* of a pin: the next one, -1 after the last; of others 0 */
} GraphPins;
GraphPins graph_pins(const Graph *graph, Arena *arena);
/* Returns the first pin of node `id`, or 0. */
static inline int pin_first(const GraphPins *pins, int id) {
  return pins->first ? pins->first[id] : 0;
}
/* Returns whether node `id` is a pin. */
static inline bool pin_is_at(const GraphPins *pins, int id) {
  return pins->next && pins->next[id] != 0;
}
/* Counts by node as graph_use_counts does, without pins. */
int *graph_reader_counts(const Graph *graph, Arena *arena);
/* Returns a hash of operators, attributes, types and structure, not of paths or
 * spans: equal blocks have equal hashes. */
uint64_t graph_hash(const Graph *graph);
/* Returns the hash of a region, which is complete: it remembers its hash. */
uint64_t region_hash(Graph *body);
/* Returns a hash of all that a kernel may depend on: the operator, its
 * attributes and body, the types of its inputs and results, the mesh. */
uint64_t kernel_key(const Graph *graph, int id);
/* Returns a hash of what one run of a node works on, on one rank in one
 * micro-batch: the operator, its body, the types of inputs and results with
 * local sizes.  Nodes with equal local work have equal keys on every mesh and
 * in every plan (launch_key.c).  It is never 0. */
uint64_t launch_key(const Graph *graph, int id);
/* Returns the launch_key of setting the results of a node to zero. */
uint64_t clear_key(const Graph *graph, int id);

/* Append nodes, as short forms for passes with the defaults of graph_append. */
Value graph_const(Graph *graph, DType dtype, double value);
/* Returns the positions of the elements of a dim, in dtype_of_positions. */
Value graph_positions(Graph *graph, Name dim, int64_t size);
Value graph_op1(Graph *graph, Op op, Value a);
Value graph_op2(Graph *graph, Op op, Value a, Value b);
Value graph_op3(Graph *graph, Op op, Value a, Value b, Value c);
Value graph_reduce(Graph *graph, Op op, Value a, const Name *over, int n);
/* Returns the value in this dtype, which is `a` if it has it already. */
Value graph_cast(Graph *graph, Value a, DType dtype);
Value graph_transpose_to(Graph *graph, Value a, const Type *order);

/* Returns an attribute.  Returns NULL if it is absent. */
const Attr *node_attr(const Node *node, AttrKey key);
bool node_has(const Node *node, AttrKey key);
Name node_name(const Node *node, AttrKey key);
int64_t node_int(const Node *node, AttrKey key, int64_t if_absent);
double node_float(const Node *node, AttrKey key, double if_absent);
const Name *node_names(const Node *node, AttrKey key, int *out_n);
/* Returns the dim along which a collective works on operand `part`. */
Name node_part_dim(const Node *node, int part);
const int64_t *node_ints(const Node *node, AttrKey key, int *out_n);
/* Returns item i of the list, or `otherwise` if the list is absent or ends
 * before i. */
int64_t node_int_at(const Node *node, AttrKey key, int i, int64_t otherwise);

/* ---- graph_copy.c ---- */

/* Returns a copy in the arena of `module` that shares no memory with the graph
 * but names and sources.  Equal types of the copy are one. */
Graph *graph_copy(Module *module, const Graph *graph);
/* Returns the bytes that a copy takes, but for types and lists of attributes. A
 * region with paths of its own does not count the nodes that it shares. */
size_t node_copy_bytes(const Node *node); /* with its body */
size_t graph_copy_bytes(const Graph *graph);

/* ---- print.c, parse.c, verify.c ---- */

/* Returns the name of a phase, such as "forward" or "dgrad". */
const char *phase_name(Phase phase);
const char *init_name(InitKind kind);
void graph_print(Text *out, const Graph *graph);
/* Reads what graph_print wrote; mistakes become diags.  NULL on error. */
Graph *graph_parse(Module *module, const Source *source);
/* Appends one line per violation; true if there is none. */
bool graph_verify(const Graph *graph, Text *out_errors);

/* ---- shard_infer.c, shardrule.c ---- */

/* Finds how the placements of the inputs of a node become that of its
 * results.  Fills out_types.  Where an input must first change (a partial value
 * into an operator that is not linear in it, a `replicate` dim that is split),
 * sets out_inputs[i] to the type that it must be given in, else to its own
 * type.  A partial operand stays partial over all its axes or must be reduced
 * over all.  The rule itself never fails: at worst everything must be
 * replicated. */
void shard_infer(const Graph *graph, Op op, const Attr *attrs, int n_attrs,
                 const Type *const *inputs, int n_inputs,
                 const Type *const *whole_results, int n_results, Arena *arena,
                 const Type **out_inputs, const Type **out_types);
/* Returns whether the sharding column of the operator lists an attribute that
 * names this dim: the dims that contractions sum over, windows slide along and
 * so on. */
bool node_treats_dim(const Node *node, Name dim);

/* ---- shardcheck.c ---- */

/* Appends a line for each placement of a partitioned graph, regions included,
 * that the rule of its operator does not give; true if there is none. */
bool graph_check_placements(const Graph *graph, Text *out_errors);

/* ---- path.c ---- */

/* Returns whether `wanted`, such as "attn" or "block[1..3].attn", stands
 * anywhere in the path as a sequence of complete parts.  Both are in
 * "block[2].attn.q".  A part of `wanted` without an index means all indices;
 * "!" separates parts as "." does. */
bool path_has(const char *path, const char *wanted);
/* Returns whether the node is the operator `wanted`, has the path `wanted`, or
 * is below this layer or path. */
bool node_is_called(const Node *node, const char *wanted);

/* ---- view.c ---- */

/* Returns whether the result shares the bytes of its input: an operator that is
 * always a view, a merge_dims whose dims are adjacent and in order, or a slice
 * of the first dim from its beginning. */
bool node_is_view(const Graph *graph, int id);
/* Returns whether the bytes of a value are in host memory, beside those of the
 * device: what a swap_out makes, and inputs that persist there. */
bool value_is_on_host(const Graph *graph, Value value);

/* ---- work.c ---- */

/* Returns the floating-point operations on logical sizes; work.h has those of
 * one rank. */
double node_flops(const Graph *graph, int id);
/* Returns those of contractions alone: two per multiply-add of dots,
 * convolutions and attention (the full square, causal or not); in a scan times
 * its iterations. */
double node_contraction_flops(const Graph *graph, int id);

#endif
