/*
 * shardrule.c -- infers the placements of an operator's results from those of
 * its operands.
 *
 * A dim keeps its split from operands to results because it keeps its name, so
 * one rule serves nearly every operator: decide one split for each name, give
 * every operand and result that has the dim this split, and treat the
 * exceptions that the row of ops.def lists by attribute ("over:sum"). Renaming
 * views are rules of their own at the end.
 *
 *     dot x [B:128@data, C], w [C, F] {over = [C]}   -> [B:128@data, F]
 *     dot x [B:128@data, C], y [B:128@data, F] {over = [B]} -> [C, F; sum@data]
 *
 * Partial values pass through operators that are linear in them. An
 * operand keeps all its partial axes or must be reduced over all of them.
 */
#include "ir/ir.h"

#include <string.h>

#define MAX_NAMES (8 * MAX_RANK)

typedef enum Exception {
  PASS,
  REPLICATE, /* gathered first */
  SUM,       /* becomes a partial sum ... */
  MAX,
  MIN
} Exception;

/* The decision about one dim name of the node. */
typedef struct Decision {
  Name name;
  Exception exception;
  AxisList split;
} Decision;

typedef struct Rule {
  const Mesh *mesh;
  Op op;
  const OpInfo *info;
  const Attr *attrs;
  int n_attrs;
  const Type *const *inputs;
  int n_inputs;
  const Type *const *results; /* logical types */
  int n_results;
  Arena *arena;
  int n;
  Decision decisions[MAX_NAMES];
  AxisSet used; /* axes that some decision splits over */
} Rule;

/* ---- exceptions of the row ---- */

static const Attr *find_attr(const Rule *r, AttrKey key) {
  for (int i = 0; i < r->n_attrs; i++) {
    if (r->attrs[i].key == key) return &r->attrs[i];
  }
  return NULL;
}

static bool attr_lists(const Attr *attr, Name dim) {
  if (!attr) return false;
  if (attr_kind(attr->key) == ATTRKIND_NAME) return attr->name == dim;
  for (int i = 0; i < attr->n; i++) {
    if (attr->names[i] == dim) return true;
  }
  return false;
}

static Exception exception_of(const char *word, size_t n) {
  if (n == 3 && memcmp(word, "sum", 3) == 0) return SUM;
  if (n == 3 && memcmp(word, "max", 3) == 0) return MAX;
  if (n == 3 && memcmp(word, "min", 3) == 0) return MIN;
  return REPLICATE; /* halo: until edges are exchanged */
}

/* Looks the dim up in a text such as "dim:sum space:replicate". */
static Exception listed_exception(const Rule *r, Name dim) {
  for (const char *at = r->info->sharding; *at;) {
    size_t key = strcspn(at, ":"), word = strcspn(at, " ");
    char name[16];
    AttrKey attr;
    ASSERT(key < word && key < sizeof name);
    memcpy(name, at, key);
    name[key] = '\0';
    ASSERT(attr_find(name, &attr));
    if (attr_lists(find_attr(r, attr), dim)) {
      return exception_of(at + key + 1, word - key - 1);
    }
    at += word;
    while (*at == ' ') at++;
  }
  return PASS;
}

bool node_treats_dim(const Node *node, Name dim) {
  Rule rule = {.info = op_info(node->op),
               .attrs = node->attrs,
               .n_attrs = node->n_attrs};
  return listed_exception(&rule, dim) != PASS;
}

/* attention's second result does not depend on the dims of v, which only its
 * first one has. */
static bool is_in_results(const Rule *r, Name dim) {
  int n = r->op == OP_attention ? 1 : r->n_results;
  for (int i = 0; i < n; i++) {
    if (type_find(r->results[i], dim) < 0) return false;
  }
  return true;
}

/* A dim of an operand that is neither listed nor in every result is folded
 * away in some manner: a convolution's weight gradient without `over` sums it,
 * anything else needs it replicated. */
static Exception exception_of_dim(const Rule *r, Name dim) {
  Exception listed = listed_exception(r, dim);
  if (listed != PASS || is_in_results(r, dim)) return listed;
  return r->op == OP_conv_weight_grad ? SUM : REPLICATE;
}

/* ---- splits ---- */

static Decision *decision_of(Rule *r, Name name) {
  for (int i = 0; i < r->n; i++) {
    if (r->decisions[i].name == name) return &r->decisions[i];
  }
  return NULL;
}

/* The first operand that splits a dim decides, or one that continues where that
 * one ends, unless an axis that it takes shards another dim of this node. */
static void decide_dim(Rule *r, const Dim *dim) {
  Decision *decision = decision_of(r, dim->name);
  if (!decision) {
    ASSERT(r->n < MAX_NAMES);
    decision = &r->decisions[r->n++];
    *decision = (Decision){dim->name, exception_of_dim(r, dim->name), 0};
  }
  AxisList more;
  if (decision->exception == REPLICATE ||
      !axis_list_continues(dim->split, decision->split, &more))
    return;
  AxisSet axes = axis_list_set(more);
  if (axes & r->used) return;
  decision->split = dim->split;
  r->used |= axes;
}

static void decide_splits(Rule *r) {
  for (int i = 0; i < r->n_inputs; i++) {
    for (int j = 0; j < r->inputs[i]->rank; j++) {
      decide_dim(r, &r->inputs[i]->dims[j]);
    }
  }
}

/* ---- partial values ---- */

static bool is_partial_sum(const Type *type) {
  return type->partial && type->partial_kind == REDUCE_sum;
}

/* Linear in all operands together: all are partial over the same axes, or none
 * may be.  An operator that copies elements of one operand may be followed by
 * any reduction. */
static bool all_agree(const Rule *r) {
  bool takes_any = r->n_inputs == 1 && op_has(r->op, OP_FLAG_exact);
  for (int i = 0; i < r->n_inputs; i++) {
    const Type *type = r->inputs[i];
    if (type->partial != r->inputs[0]->partial) return false;
    if (type->partial & r->used) return false;
    if (!is_partial_sum(type) && !(type->partial && takes_any)) return false;
  }
  return r->n_inputs > 0;
}

/* Linear in one operand: no other may be partial over its axes or split over
 * them, as then ranks hold different factors.  If two factors are partial, both
 * are reduced. -1: none. */
static int kept_factor(const Rule *r, int n_candidates) {
  int kept = -1;
  for (int i = 0; i < n_candidates; i++) {
    const Type *type = r->inputs[i];
    if (!is_partial_sum(type) || type->partial & r->used) continue;
    if (kept >= 0 && type->partial & r->inputs[kept]->partial) return -1;
    if (kept < 0) kept = i;
  }
  return kept;
}

/* Does operand i stay partial? */
static bool stays_partial(const Rule *r, int i) {
  if (!r->inputs[i]->partial) return false;
  /* A cast that says so rounds the parts of a sum. */
  if (r->op == OP_cast && find_attr(r, ATTR_reduce)) return all_agree(r);
  switch (r->info->linear) {
  case LINEAR_no: return false;
  case LINEAR_all: return all_agree(r);
  case LINEAR_each: return kept_factor(r, r->n_inputs) == i;
  case LINEAR_first: return kept_factor(r, 1) == i;
  }
  UNREACHABLE();
}

/* ---- the rule ---- */

static Type *copy_shape(Arena *arena, const Type *type) {
  Type *copy = type_create(arena, type->dtype, type->rank);
  for (int i = 0; i < type->rank; i++) {
    copy->dims[i] = type->dims[i];
    copy->dims[i].split = 0;
  }
  return copy;
}

/* The type that operand i must be given in; its own where that holds. */
static const Type *wanted_input(Rule *r, int i, bool keep) {
  const Type *has = r->inputs[i];
  Type *wanted = copy_shape(r->arena, has);
  for (int j = 0; j < has->rank; j++) {
    wanted->dims[j].split = decision_of(r, has->dims[j].name)->split;
  }
  if (keep) {
    wanted->partial = has->partial;
    wanted->partial_kind = has->partial_kind;
  }
  return type_equal(wanted, has) ? has : wanted;
}

/* Axes that the row's reductions leave undone. */
static AxisSet reduced_axes(const Rule *r, ReduceKind *kind) {
  AxisSet axes = 0;
  for (int i = 0; i < r->n; i++) {
    const Decision *d = &r->decisions[i];
    if (d->exception == PASS || d->exception == REPLICATE) continue;
    axes |= axis_list_set(d->split);
    if (d->exception == MAX) *kind = REDUCE_max;
    if (d->exception == MIN) *kind = REDUCE_min;
  }
  return axes;
}

static const Type *placed_result(Rule *r, const Type *whole, AxisSet partial,
                                 ReduceKind kind) {
  Type *type = copy_shape(r->arena, whole);
  for (int j = 0; j < whole->rank; j++) {
    const Decision *d = decision_of(r, whole->dims[j].name);
    if (d && d->exception == PASS) type->dims[j].split = d->split;
  }
  type->partial = partial;
  type->partial_kind = partial ? kind : REDUCE_sum;
  return type;
}

static void infer_by_name(Rule *r, const Type **out_inputs,
                          const Type **out_types) {
  ReduceKind kind = REDUCE_sum;
  decide_splits(r);
  AxisSet partial = reduced_axes(r, &kind);
  for (int i = 0; i < r->n_inputs; i++) {
    bool keep = stays_partial(r, i);
    if (keep && !partial) kind = r->inputs[i]->partial_kind;
    if (keep) partial |= r->inputs[i]->partial;
    out_inputs[i] = wanted_input(r, i, keep);
  }
  for (int i = 0; i < r->n_results; i++) {
    out_types[i] = placed_result(r, r->results[i], partial, kind);
  }
}

/* ---- views that change names ---- */

/* Each with one operand and one result, which stays partial as it was.  Sets
 * the splits of both; a split that it leaves at 0 is replicated. */
static void rename_splits(const Rule *r, Type *in, Type *out) {
  for (int j = 0; j < in->rank; j++) {
    in->dims[j].split = r->inputs[0]->dims[j].split;
    out->dims[j].split = in->dims[j].split; /* same order */
  }
}

static void keep_split(const Rule *r, Type *in, Type *out, int j) {
  in->dims[j].split = r->inputs[0]->dims[j].split;
  int at = type_find(out, in->dims[j].name);
  if (at >= 0) out->dims[at].split = in->dims[j].split;
}

/* A split stays on the slowest part if every shard holds complete elements of
 * that part. */
static void move_split(const Rule *r, Dim *slow, Dim *whole, AxisList split) {
  if (!split) return;
  const Dim *part = slow->size < whole->size ? slow : whole;
  if (part->size % axis_list_shards(split, r->mesh) != 0) return;
  slow->split = split;
  whole->split = split;
}

static void split_dim_splits(const Rule *r, Type *in, Type *out) {
  const Attr *dim = find_attr(r, ATTR_dim), *to = find_attr(r, ATTR_to);
  for (int j = 0; j < in->rank; j++) {
    if (in->dims[j].name != dim->name) {
      keep_split(r, in, out, j);
    } else if (to->n > 0) {
      int at = type_find(out, to->names[0]);
      move_split(r, &out->dims[at], &in->dims[j], r->inputs[0]->dims[j].split);
    }
  }
}

/* The other parts must be replicated. */
static void merge_dims_splits(const Rule *r, Type *in, Type *out) {
  const Attr *dim = find_attr(r, ATTR_dim), *from = find_attr(r, ATTR_from);
  for (int j = 0; j < in->rank; j++) {
    if (!attr_lists(from, in->dims[j].name)) {
      keep_split(r, in, out, j);
    } else if (in->dims[j].name == from->names[0]) {
      int at = type_find(out, dim->name);
      move_split(r, &in->dims[j], &out->dims[at], r->inputs[0]->dims[j].split);
    }
  }
}

typedef void SplitFunction(const Rule *r, Type *in, Type *out);
static SplitFunction *const split_functions[N_OPS] = {
    [OP_rename] = rename_splits,
    [OP_split_dim] = split_dim_splits,
    [OP_merge_dims] = merge_dims_splits,
};

static void infer_view(const Rule *r, const Type **out_inputs,
                       const Type **out_types) {
  const Type *has = r->inputs[0];
  Type *in = copy_shape(r->arena, has);
  Type *out = copy_shape(r->arena, r->results[0]);
  in->partial = out->partial = has->partial;
  in->partial_kind = out->partial_kind = has->partial_kind;
  split_functions[r->op](r, in, out);
  out_inputs[0] = type_equal(in, has) ? has : in;
  out_types[0] = out;
}

/* Operators without a rule (regions, collectives) take and return replicated
 * values. */
static void infer_replicated(const Rule *r, const Type **out_inputs,
                             const Type **out_types) {
  for (int i = 0; i < r->n_inputs; i++) {
    out_inputs[i] = type_logical(r->arena, r->inputs[i]);
  }
  for (int i = 0; i < r->n_results; i++) {
    out_types[i] = type_logical(r->arena, r->results[i]);
  }
}

void shard_infer(const Graph *graph, Op op, const Attr *attrs, int n_attrs,
                 const Type *const *inputs, int n_inputs,
                 const Type *const *whole_results, int n_results, Arena *arena,
                 const Type **out_inputs, const Type **out_types) {
  Rule rule = {.mesh = &graph->mesh,
               .op = op,
               .info = op_info(op),
               .attrs = attrs,
               .n_attrs = n_attrs,
               .inputs = inputs,
               .n_inputs = n_inputs,
               .results = whole_results,
               .n_results = n_results,
               .arena = arena};
  if (split_functions[op]) {
    infer_view(&rule, out_inputs, out_types);
  } else if (!rule.info->infer) {
    infer_replicated(&rule, out_inputs, out_types);
  } else {
    infer_by_name(&rule, out_inputs, out_types);
  }
}
