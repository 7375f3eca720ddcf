/*
 * reach.c -- warns about inputs of a net that reach none of its outputs: its
 * results, the states that it assigns and what it adds to the loss.
 *
 * The graph is walked backwards from these to the arguments and no further.
 * Graphs of an evaluation are not looked at, because training decides what an
 * input is for.
 */
#include "frontend/elaborate/reach.h"

typedef struct Reach {
  const Graph *graph;
  bool *reached, *is_argument; /* by node */
} Reach;

static void reach_from(Reach *r, ExprValue val) {
  if (expr_value_is_tensor(val)) r->reached[val.tensor.node] = true;
  if (val.kind != EXPR_VALUE_list) return;
  for (int i = 0; i < val.list->n; i++) reach_from(r, val.list->items[i]);
}

static void mark_argument(Reach *r, ExprValue arg) {
  if (expr_value_is_tensor(arg)) r->is_argument[arg.tensor.node] = true;
  if (arg.kind != EXPR_VALUE_list) return;
  for (int i = 0; i < arg.list->n; i++) mark_argument(r, arg.list->items[i]);
}

static void reach_backwards(Reach *r) {
  for (int id = r->graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = r->graph->nodes.data[id];
    bool goes_on = r->reached[id] && !r->is_argument[id];
    for (int i = 0; goes_on && i < node->n_inputs; i++)
      r->reached[node->inputs[i].node] = true;
  }
}

static bool was_reached(const Reach *r, ExprValue arg) {
  if (expr_value_is_tensor(arg)) return r->reached[arg.tensor.node];
  if (arg.kind != EXPR_VALUE_list) return true; /* a number */
  for (int i = 0; i < arg.list->n; i++)
    if (was_reached(r, arg.list->items[i])) return true;
  return arg.list->n == 0;
}

void reach_warn(Elab *e, const Callable *net, const ExprValue *args, int n,
                ExprValue result) {
  if (!net->is_main || e->reference || expr_value_is_poison(result) ||
      diags_errors(e->diags) > 0)
    return;
  Reach r = {.graph = e->graph,
             .reached = ARENA_ARRAY(e->arena, bool, e->graph->nodes.n),
             .is_argument = ARENA_ARRAY(e->arena, bool, e->graph->nodes.n)};
  reach_from(&r, result);
  for (int i = 0; i < e->state_writes.n; i++)
    reach_from(&r, e->state_writes.data[i].val);
  for (int i = 0; i < e->extra_losses.n; i++)
    reach_from(&r, e->extra_losses.data[i]);
  for (int i = 0; i < n; i++) mark_argument(&r, args[i]);
  reach_backwards(&r);
  for (int i = 0; i < n; i++) {
    const FormalParam *param = &net->item->params.items[i];
    if (param->name[0] == '_' || was_reached(&r, args[i]) ||
        diags_have(e->diags, DIAG_unreached_input, param->span))
      continue;
    diag(e->diags, DIAG_unreached_input, param->span, param->name,
         net->item->name);
  }
}
