/*
 * experts.c -- builds topk and the operators of a mixture of experts: route,
 * dispatch, combine and balance.
 *
 * A gate is a value of the front end only: the tensors that `route` computes
 * and the names of their dims. It is made of operators that exist anyway: a
 * topk over E chooses the experts and gives the weights, and two index tensors
 * map routed tokens to capacity slots and back (see ir/ops/grad_experts.c). The
 * gradient of p is therefore that of topk, and balance needs no operator.
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/match.h"

#include <math.h>

struct Gate {
  ExprValue p, weights,
      choice;             /* [group, tokens, E], [group, tokens, J] twice */
  ExprValue slot, tokens; /* [group, tokens, J], [E, slots, group] */
  Name experts, choices, slots; /* E; J and the slots have internal names */
  int64_t n_slots;
  int n_over; /* J and the tokens, in the order of routed tokens */
  Name over[MAX_RANK + 1];
};

/* ---- topk ---- */

static ExprValue route_topk(Elab *e, ExprValue x, Name dim, Name to,
                            int64_t k) {
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_names(&attrs, ATTR_to, &to, 1);
  attrs_ints(&attrs, ATTR_sizes, &k, 1);
  return elab_emit(e, OP_topk, &x, 1, &attrs);
}

/* An integer from 1 to the size of the dim. */
static bool arg_count(BuiltinCall *call, int i, int64_t size, int64_t *out) {
  ExprValue val = call->args[i];
  if (val.kind == EXPR_VALUE_int && val.integer >= 1 && val.integer <= size) {
    *out = val.integer;
    return true;
  }
  arg_wrong(call, i,
            arena_printf(call->e->arena, "an integer from 1 to %lld",
                         (long long)size));
  return false;
}

/* The name of a dim that `type` has not, in argument `i`; reports. */
static bool arg_fresh(BuiltinCall *call, int i, const Type *type,
                      const Expr *of, Name *out) {
  Elab *e = call->e;
  const DimArg *dims = &call->dims[i];
  if (dims->n != 1) {
    diag(e->diags, DIAG_one_dim, call->exprs[i]->span, call->builtin->name,
         dims->n);
    return false;
  }
  *out = dims->names[0];
  if (type_find(type, *out) < 0) return true;
  diag(e->diags, DIAG_has_dimension, dims->spans[0], expr_describe(e, of), *out,
       type_describe(e, type));
  return false;
}

ExprValue builtin_topk(BuiltinCall *call) {
  Elab *e = call->e;
  int64_t k;
  Name to;
  if (!arg_float_tensor(call, 0) || !arg_dims(call, 2, 0, true)) return POISON;
  const Type *type = elab_type(e, call->args[0]);
  Name dim = call->dims[2].names[0];
  if (!arg_count(call, 1, type_size(type, dim), &k)) return POISON;
  const Type *rest = type_without(e->arena, type, &dim, 1);
  if (!arg_fresh(call, 3, rest, call->exprs[0], &to)) return POISON;
  /* J may be V again; the operator's may not. */
  Name made = to == dim ? name_format(e->names, "%s.top", dim) : to;
  ExprValue list = expr_value_list(e, 2), *both = list.list->items;
  both[0] = route_topk(e, call->args[0], dim, made, k);
  both[1] = elab_second_result(both[0]);
  for (int i = 0; i < 2 && to == dim && !expr_value_is_poison(both[0]); i++)
    both[i] = elab_rename(e, both[i], &made, &to, 1);
  return expr_value_is_poison(both[0]) ? POISON : list;
}

/* ---- route ---- */

/* The dims of p but E and the group, after J: the order of routed tokens. */
static bool find_tokens(BuiltinCall *call, Gate *gate, int64_t *out_tokens) {
  Elab *e = call->e;
  const Type *type = elab_type(e, gate->p);
  DimArg *group = &call->dims[4];
  if (group->n < 0) {
    bool has_batch = e->batch_dim && e->batch_dim != gate->experts &&
                     type_find(type, e->batch_dim) >= 0;
    *group = (DimArg){.n = has_batch ? 1 : 0, .names = &e->batch_dim};
  } else if (!arg_dims(call, 4, 0, false)) {
    return false;
  }
  gate->over[gate->n_over++] = gate->choices;
  *out_tokens = 1;
  for (int d = 0; d < type->rank; d++) {
    Name name = type->dims[d].name;
    bool is_group = false;
    for (int i = 0; i < group->n; i++) is_group |= group->names[i] == name;
    if (name == gate->experts && is_group) {
      diag(e->diags, DIAG_dim_twice, call->exprs[4]->span, name);
      return false;
    }
    if (is_group || name == gate->experts) continue;
    gate->over[gate->n_over++] = name;
    *out_tokens *= type->dims[d].size;
  }
  return true;
}

/* S = ceil(top tokens capacity / E); a quotient that rounding has put just
 * above an integer is that integer. */
static bool find_slots(BuiltinCall *call, Gate *gate, int64_t top,
                       int64_t tokens) {
  double capacity, most = 0x1p40;
  if (!arg_float(call, 3, &capacity)) return false;
  int64_t n_experts = type_size(elab_type(call->e, gate->p), gate->experts);
  double slots = (double)top * (double)tokens * capacity / (double)n_experts;
  if (!(capacity > 0 && slots <= most)) {
    arg_wrong(call, 3, "above 0 and finite");
    return false;
  }
  gate->n_slots = (int64_t)ceil(slots * (1 - 1e-12));
  return true;
}

static Attrs route_attrs(const Gate *gate, const Name *to) {
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, gate->over, gate->n_over);
  attrs_names(&attrs, ATTR_to, to, 2);
  return attrs;
}

static void give_slots(Elab *e, Gate *gate) {
  int64_t sizes[] = {type_size(elab_type(e, gate->p), gate->experts),
                     gate->n_slots};
  const Name to[] = {gate->experts, gate->slots};
  Attrs attrs = route_attrs(gate, to);
  attrs_ints(&attrs, ATTR_sizes, sizes, 2);
  gate->slot = elab_emit(e, OP_route, &gate->choice, 1, &attrs);
  gate->tokens = elab_emit(e, OP_route_inverse, &gate->slot, 1, &attrs);
}

ExprValue builtin_route(BuiltinCall *call) {
  Elab *e = call->e;
  int64_t top, tokens;
  if (!arg_float_tensor(call, 0) || !arg_dims(call, 1, 0, true)) return POISON;
  Gate *gate = ARENA_NEW(e->arena, Gate);
  gate->p = call->args[0];
  gate->experts = call->dims[1].names[0];
  gate->choices = name_format(e->names, "%s.choice", gate->experts);
  gate->slots = name_format(e->names, "%s.slot", gate->experts);
  int64_t n_experts = type_size(elab_type(e, gate->p), gate->experts);
  if (!arg_count(call, 2, n_experts, &top) ||
      !find_tokens(call, gate, &tokens) || !find_slots(call, gate, top, tokens))
    return POISON;
  gate->weights = route_topk(e, gate->p, gate->experts, gate->choices, top);
  gate->choice = elab_second_result(gate->weights);
  give_slots(e, gate);
  if (top > 1)
    gate->weights =
        pointwise2(e, OP_div, gate->weights,
                   elab_reduce(e, OP_sum, gate->weights, &gate->choices, 1));
  if (expr_value_is_poison(gate->weights) || expr_value_is_poison(gate->tokens))
    return POISON;
  return (ExprValue){.kind = EXPR_VALUE_gate, .gate = gate};
}

/* ---- dispatch, combine ---- */

static const Gate *arg_gate(BuiltinCall *call, int i) {
  if (call->args[i].kind == EXPR_VALUE_gate) return call->args[i].gate;
  arg_wrong(call, i, "a gate, which 'route' gives");
  return NULL;
}

/* Returns whether the type lacks the dim; else reports it at `span`. */
static bool gate_lacks(BuiltinCall *call, const Type *type, Name dim,
                       Span span) {
  if (type_find(type, dim) < 0) return true;
  diag(call->e->diags, DIAG_has_dimension, span,
       expr_describe(call->e, call->exprs[0]), dim,
       type_describe(call->e, type));
  return false;
}

static bool gate_has(BuiltinCall *call, const Type *type, Name dim, Span span) {
  if (type_find(type, dim) >= 0) return true;
  elab_no_dim(call->e, call->exprs[0], type, dim, span);
  return false;
}

/* Capacity slots under the name that the model gives them. */
static ExprValue named_tokens(BuiltinCall *call, const Gate *gate, Name slots) {
  return elab_rename(call->e, gate->tokens, &gate->slots, &slots, 1);
}

ExprValue builtin_dispatch(BuiltinCall *call) {
  Elab *e = call->e;
  Name slots;
  const Gate *gate = arg_gate(call, 1);
  if (!gate || !arg_tensor(call, 0)) return POISON;
  const Type *type = elab_type(e, call->args[0]);
  Span span = call->exprs[0]->span;
  if (!arg_fresh(call, 2, type, call->exprs[0], &slots) ||
      !gate_lacks(call, type, gate->experts, span))
    return POISON;
  for (int i = 1; i < gate->n_over; i++)
    if (!gate_has(call, type, gate->over[i], span)) return POISON;
  if (!elab_unify(e, type, elab_type(e, gate->slot), call->exprs[0], NULL, NULL,
                  NULL))
    return POISON;
  const Name to[] = {gate->experts, slots};
  Attrs attrs = route_attrs(gate, to);
  ExprValue inputs[] = {call->args[0], gate->slot,
                        named_tokens(call, gate, slots)};
  return elab_emit(e, OP_dispatch, inputs, 3, &attrs);
}

ExprValue builtin_combine(BuiltinCall *call) {
  Elab *e = call->e;
  const Gate *gate = arg_gate(call, 1);
  if (!gate || !arg_tensor(call, 0) || !arg_dims(call, 2, 0, true))
    return POISON;
  const Type *type = elab_type(e, call->args[0]);
  Span span = call->exprs[0]->span;
  if (!gate_has(call, type, gate->experts, span)) return POISON;
  for (int i = 1; i < gate->n_over; i++)
    if (!gate_lacks(call, type, gate->over[i], span)) return POISON;
  Name slots = call->dims[2].names[0];
  ExprValue tokens = named_tokens(call, gate, slots);
  if (!elab_unify(e, type, elab_type(e, tokens), call->exprs[0], NULL, NULL,
                  NULL))
    return POISON;
  const Name to[] = {gate->experts, slots};
  Attrs attrs = route_attrs(gate, to);
  ExprValue inputs[] = {call->args[0], gate->slot, tokens};
  ExprValue rows = elab_emit(e, OP_combine, inputs, 3, &attrs);
  ExprValue weighted = pointwise2(e, OP_mul, gate->weights, rows);
  return elab_reduce(e, OP_sum, weighted, &gate->choices, 1);
}

/* ---- balance ---- */

/* size(E) times the sum over E of (share of first choices x mean of p), the
 * mean over groups (Fedus et al. 2021, eq. 4). */
ExprValue builtin_balance(BuiltinCall *call) {
  Elab *e = call->e;
  const Gate *gate = arg_gate(call, 0);
  if (!gate) return POISON;
  const Name *tokens = gate->over + 1;
  int n_tokens = gate->n_over - 1;
  int64_t n_experts = type_size(elab_type(e, gate->p), gate->experts);
  ExprValue first = elab_drop(
      e, elab_slice(e, gate->choice, gate->choices, 0, 1), gate->choices);
  ExprValue is_first =
      pointwise2(e, OP_eq, first, elab_positions(e, gate->experts, n_experts));
  DType dtype = elab_type(e, gate->p)->dtype;
  ExprValue share =
      elab_mean(e, elab_cast(e, is_first, dtype), tokens, n_tokens);
  ExprValue mean = elab_mean(e, gate->p, tokens, n_tokens);
  ExprValue sum = elab_reduce(e, OP_sum, pointwise2(e, OP_mul, share, mean),
                              &gate->experts, 1);
  return pointwise2(e, OP_mul, elab_mean_all(e, sum),
                    expr_value_int(n_experts));
}
