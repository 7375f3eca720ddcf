/*
 * rewrite.h -- declares the walk by which a pass copies a graph with changes:
 * it visits the nodes in order, finds the new values of their inputs, appends
 * the node or its replacement, and records the new value.
 */
#ifndef PASSES_REWRITE_H
#define PASSES_REWRITE_H

#include "passes/passes.h"

typedef struct Rewrite {
  PassContext *ctx;
  const Graph *from;
  Graph *to;
  /* The values of `to` by node: for result 0 and for those behind it (NULL
   * means none yet).  Only rewrite_find and rewrite_set use them. */
  Value *first, **others;
  /* Number of nodes of `to` that are the first ones of `from`, and so are their
   * values; -1 means no longer known. */
  int n_same;
} Rewrite;

/* Begins to rewrite; `to` starts empty, with name and mesh of `from`. */
Rewrite rewrite_begin(PassContext *ctx, const Graph *from);
/* Returns the new value of an old one.  Returns VALUE_NONE if there is none
 * yet. */
static inline Value rewrite_find(const Rewrite *rewrite, Value old) {
  if (old.result == 0) return rewrite->first[old.node];
  const Value *others = rewrite->others[old.node];
  return others ? others[old.result - 1] : VALUE_NONE;
}
/* Returns the new value of an old one; asserts that there is one. */
static inline Value rewrite_get(const Rewrite *rewrite, Value old) {
  Value now = rewrite_find(rewrite, old);
  ASSERT(value_is(now));
  return now;
}
/* Sets the new value of a result behind the first one. */
void rewrite_set_other(Rewrite *rewrite, Value old, Value now);
static inline void rewrite_set(Rewrite *rewrite, Value old, Value now) {
  if (old.node < rewrite->n_same && !value_equal(old, now))
    rewrite->n_same = -1;
  if (old.result == 0)
    rewrite->first[old.node] = now;
  else
    rewrite_set_other(rewrite, old, now);
}
/* Sets the span, path, phase and stage that nodes appended from now on get:
 * those of old node `id`. */
void rewrite_at(Rewrite *rewrite, int id);
/* Returns the mapped inputs of node `id`, in scratch memory. */
Value *rewrite_inputs(const Rewrite *rewrite, int id);
/* The number of inputs up to which rewrite_read_inputs allocates nothing. */
enum { REWRITE_FEW = 8 };
/* Returns the mapped inputs of a node, to be read only: those in the node, if
 * nothing has changed, or in `few`, else in scratch memory. */
const Value *rewrite_read_inputs(const Rewrite *rewrite, int id,
                                 Value few[REWRITE_FEW]);
/* Copies a node (an `input` with its registration) and maps its results. */
Value rewrite_copy(Rewrite *rewrite, int id);
/* Registers an input like `like`, of another type perhaps. */
Value rewrite_input(Graph *to, const GraphInput *like, const Type *type);
/* Registers the outputs and returns the new graph. */
Graph *rewrite_end(Rewrite *rewrite);

/* Deals with node `id` (rewrite_set) and returns true, or returns false to
 * have it copied. */
typedef bool RewriteRule(Rewrite *rewrite, int id, void *user);
Graph *rewrite_graph(PassContext *ctx, const Graph *from, RewriteRule *rule,
                     void *user);

/* Returns the precision of the model: all f32 without a model, or where the
 * model does not say. */
const Precision *pass_precision_of(const PassContext *ctx);
/* Returns the attributes of a node, to build another with. */
Attrs node_attrs(const Node *node);
/* Returns the value's node in the new graph if its operator is `op`, else NULL.
 */
const Node *value_op(const Graph *graph, Value value, Op op);
/* Returns whether the value is a `const` (seen through casts, broadcasts,
 * renames). */
bool value_const(const Graph *graph, Value value, double *out_value);
/* Lists the dims that a reduction removes. */
void reduced_dims(const Node *node, const Name **out_dims, int *out_n);

/* Returns a key for maps of values.  A bucket of gradients has as many results
 * as a model has parameters. */
static inline const void *value_key(Value value) {
  uint64_t key = ((uint64_t)value.node << 24) + (uint64_t)value.result + 1;
  return (const void *)(uintptr_t)key;
}

#endif
