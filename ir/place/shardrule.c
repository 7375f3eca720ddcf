/*
 * shardrule.c -- reads what the sharding column of ops.def says about the dims
 * of one node.
 *
 * A dim keeps its split from operands to results because it keeps its name, so
 * one rule serves nearly every operator: every operand and result that has the
 * dim is sharded alike, and the row lists the exceptions by attribute:
 *
 *     dot      "over:sum"         {over = [C]}: C leaves partial sums
 *     softmax  "over:replicate"   {over = [C]}: C may not be sharded
 *     gather   "dim:positions"    {dim = V}: a rank looks at its own rows
 *
 * Views that change names give a dim another name in the result.
 */
#include "ir/place/shardrule.h"

#include <string.h>

const Attr *shard_call_attr(const ShardCall *call, AttrKey key) {
  for (int i = 0; i < call->n_attrs; i++) {
    if (call->attrs[i].key == key) return &call->attrs[i];
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

/* ---- the column ---- */

static ShardTreatment treatment_named(const char *word, size_t n) {
  static const struct {
    const char *word;
    ShardTreatment treatment;
  } words[] = {{"sum", SHARD_sum},
               {"max", SHARD_max},
               {"min", SHARD_min},
               {"pass", SHARD_pass},
               {"positions", SHARD_positions},
               {"replicate", SHARD_replicate}};
  for (int i = 0; i < ARRAY_LENGTH(words); i++) {
    if (strlen(words[i].word) == n && memcmp(words[i].word, word, n) == 0)
      return words[i].treatment;
  }
  UNREACHABLE();
}

/* Looks the dim up in a text such as "dim:sum space:replicate"; false: it is
 * not there. */
static bool find_listed(const ShardCall *call, Name dim, ShardTreatment *out) {
  for (const char *at = op_info(call->op)->sharding; *at;) {
    size_t key = strcspn(at, ":"), word = strcspn(at, " ");
    char name[16];
    AttrKey attr;
    ASSERT(key < word && key < sizeof name);
    memcpy(name, at, key);
    name[key] = '\0';
    ASSERT(attr_find(name, &attr));
    if (attr_lists(shard_call_attr(call, attr), dim)) {
      *out = treatment_named(at + key + 1, word - key - 1);
      return true;
    }
    at += word;
    while (*at == ' ') at++;
  }
  return false;
}

bool node_treats_dim(const Node *node, Name dim) {
  ShardCall call = {
      .op = node->op, .attrs = node->attrs, .n_attrs = node->n_attrs};
  ShardTreatment treatment;
  return find_listed(&call, dim, &treatment) && treatment != SHARD_pass;
}

/* ---- dims by name ---- */

/* Only the first result of attention depends on the dims of v. */
static bool is_in_results(const ShardCall *call, Name dim) {
  int n = call->op == OP_attention ? 1 : call->n_results;
  for (int i = 0; i < n; i++) {
    if (type_find(call->results[i], dim) < 0) return false;
  }
  return true;
}

/* Queries, and groups of query heads that share a key head, add to the
 * gradients of keys and values. */
static bool is_of_queries(const ShardCall *call, Name dim) {
  return call->op == OP_attention_grad &&
         type_find(call->inputs[0], dim) >= 0 &&
         type_find(call->inputs[5], dim) >= 0 &&
         type_find(call->inputs[1], dim) < 0 &&
         type_find(call->inputs[2], dim) < 0;
}

/* A dim of an operand that is neither listed nor in every result is folded
 * away in some manner: a convolution's weight gradient without `over` sums it,
 * anything else needs it replicated. */
static ShardTreatment treatment_of(const ShardCall *call, Name dim) {
  ShardTreatment listed;
  if (find_listed(call, dim, &listed)) return listed;
  if (is_in_results(call, dim)) return SHARD_pass;
  if (is_of_queries(call, dim)) return SHARD_pass_or_sum;
  return call->op == OP_conv_weight_grad ? SHARD_sum : SHARD_replicate;
}

static Name name_in_results(const ShardCall *call, Name dim) {
  for (int i = 0; i < call->n_results; i++)
    if (type_find(call->results[i], dim) >= 0) return dim;
  return NULL;
}

static void add_dim(ShardRule *rule, ShardDim dim) {
  ASSERT(rule->n < MAX_SHARD_DIMS);
  rule->dims[rule->n++] = dim;
}

static void read_by_name(ShardRule *rule) {
  const ShardCall *call = rule->call;
  for (int i = 0; i < call->n_inputs; i++)
    for (int j = 0; j < call->inputs[i]->rank; j++) {
      Name name = call->inputs[i]->dims[j].name;
      if (shard_rule_input(rule, name) >= 0) continue;
      add_dim(rule, (ShardDim){name, name_in_results(call, name),
                               treatment_of(call, name), 0});
    }
  /* A dim that the operator makes may be sharded where the row says so. */
  for (int i = 0; i < call->n_results; i++)
    for (int j = 0; j < call->results[i]->rank; j++) {
      Name name = call->results[i]->dims[j].name;
      ShardTreatment listed = SHARD_replicate;
      if (shard_rule_result(rule, name) >= 0) continue;
      find_listed(call, name, &listed);
      add_dim(rule, (ShardDim){name, name, listed, 0});
    }
}

/* ---- views that change names ---- */

static void read_rename(ShardRule *rule) {
  const Type *in = rule->call->inputs[0], *out = rule->call->results[0];
  for (int j = 0; j < in->rank; j++) /* same order */
    add_dim(rule,
            (ShardDim){in->dims[j].name, out->dims[j].name, SHARD_pass, 0});
}

static void add_kept(ShardRule *rule, Name name) {
  bool stays = type_find(rule->call->results[0], name) >= 0;
  add_dim(rule, (ShardDim){name, stays ? name : NULL, SHARD_pass, 0});
}

/* A split stays on the slowest part if every shard holds complete elements of
 * that part.  Where padding is counted, the slowest part are the shards. */
static void add_slowest(ShardRule *rule, const Type *in, Name whole_or_part,
                        const Type *out, Name result) {
  int64_t a = type_size(in, whole_or_part), b = type_size(out, result);
  int64_t slowest = a < b ? a : b;
  if (shard_call_attr(rule->call, ATTR_pad))
    slowest = rule->call->op == OP_split_dim ? b : a;
  add_dim(rule, (ShardDim){whole_or_part, result, SHARD_pass, slowest});
}

/* The slowest of the parts of a dim: the first that has more than one element,
 * else the first of all. */
static Name slowest_part(const Type *type, const Attr *parts) {
  for (int i = 0; i < parts->n; i++)
    if (type_size(type, parts->names[i]) != 1) return parts->names[i];
  return parts->names[0];
}

static void read_split_dim(ShardRule *rule) {
  const Type *in = rule->call->inputs[0], *out = rule->call->results[0];
  const Attr *dim = shard_call_attr(rule->call, ATTR_dim);
  const Attr *to = shard_call_attr(rule->call, ATTR_to);
  Name slowest = to->n > 0 ? slowest_part(out, to) : NULL;
  for (int j = 0; j < in->rank; j++) {
    Name name = in->dims[j].name;
    if (name != dim->name) {
      add_kept(rule, name);
    } else if (slowest) {
      add_slowest(rule, in, name, out, slowest);
    } else {
      add_dim(rule, (ShardDim){name, NULL, SHARD_replicate, 0});
    }
  }
  for (int i = 0; i < to->n; i++)
    if (to->names[i] != slowest)
      add_dim(rule, (ShardDim){to->names[i], to->names[i], SHARD_replicate, 0});
}

/* The other parts must be replicated. */
static void read_merge_dims(ShardRule *rule) {
  const Type *in = rule->call->inputs[0], *out = rule->call->results[0];
  const Attr *dim = shard_call_attr(rule->call, ATTR_dim);
  const Attr *from = shard_call_attr(rule->call, ATTR_from);
  Name slowest = slowest_part(in, from);
  for (int j = 0; j < in->rank; j++) {
    Name name = in->dims[j].name;
    if (!attr_lists(from, name)) {
      add_kept(rule, name);
    } else if (name == slowest) {
      add_slowest(rule, in, name, out, dim->name);
    } else {
      add_dim(rule, (ShardDim){name, NULL, SHARD_replicate, 0});
    }
  }
}

/* ---- the rule ---- */

typedef void ReadRule(ShardRule *rule);
static ReadRule *const read_rules[N_OPS] = {
    [OP_rename] = read_rename,
    [OP_split_dim] = read_split_dim,
    [OP_merge_dims] = read_merge_dims,
};

void shard_rule(const ShardCall *call, ShardRule *out) {
  out->call = call;
  out->n = 0;
  ReadRule *read = read_rules[call->op];
  (read ? read : read_by_name)(out);
}

/* A part that a view makes has no operand: split_dim's faster parts. */
int shard_rule_input(const ShardRule *rule, Name dim) {
  for (int i = 0; i < rule->n; i++)
    if (rule->dims[i].name == dim) return i;
  return -1;
}

int shard_rule_result(const ShardRule *rule, Name dim) {
  for (int i = 0; i < rule->n; i++)
    if (rule->dims[i].result_name == dim) return i;
  return -1;
}

bool shard_is_reduction(ShardTreatment treatment) {
  return treatment == SHARD_sum || treatment == SHARD_max ||
         treatment == SHARD_min;
}

Linearity shard_linearity(const ShardCall *call) {
  if (!shard_call_attr(call, ATTR_reduce)) return op_info(call->op)->linear;
  switch (call->op) {
  case OP_cast:
  case OP_pad: return LINEAR_all;
  case OP_select: return LINEAR_each;
  default: /* a collective, which it tells how to reduce */
    ASSERT(op_is(call->op, OPCLASS_collective));
    return op_info(call->op)->linear;
  }
}

ShardCall shard_call(const Graph *graph, const Node *node) {
  Arena *arena = graph->module->arena;
  const Type **inputs = ARENA_ARRAY(arena, const Type *, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = graph_type(graph, node->inputs[i]);
  return (ShardCall){.op = node->op,
                     .attrs = node->attrs,
                     .n_attrs = node->n_attrs,
                     .inputs = inputs,
                     .n_inputs = node->n_inputs,
                     .results = node->types,
                     .n_results = node->n_results};
}
