/*
 * dims.c -- checks that the dims which two values share have equal sizes, and
 * reports a dim that a value does not have.
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/frame.h"
#include "frontend/elaborate/scan.h"

/* Where a value was made from two operands that share a dim, the missing dim
 * should probably be a renaming of it: attention without T -> S. */
static void note_batched(Elab *e, Diag *d, const Expr *x, Name missing) {
  if (!x || x->kind != EXPR_name) return;
  const Local *local = frame_local(e->frame, x->name);
  if (!local || !expr_value_is_tensor(local->val)) return;
  const Node *node = graph_node(e->graph, local->val.tensor);
  int id = local->val.tensor.node;
  while (op_info(node->op)->is_pointwise && node->n_inputs > 0) {
    id = node->inputs[0].node;
    node = graph_node(e->graph, node->inputs[0]);
  }
  if (node->op != OP_dot) return;
  const Type *a = graph_type(e->graph, node->inputs[0]);
  const Type *b = graph_type(e->graph, node->inputs[1]);
  int n_over;
  const Name *over = node_names(node, ATTR_over, &n_over);
  int first_shared = -1, shared = -1;
  for (int i = 0; i < a->rank && shared < 0; i++) {
    bool contracted = type_find(b, a->dims[i].name) < 0;
    for (int j = 0; j < n_over; j++)
      contracted = contracted || over[j] == a->dims[i].name;
    if (contracted) continue;
    if (first_shared < 0)
      first_shared = i; /* the batch, likely */
    else
      shared = i;
  }
  if (shared < 0) shared = first_shared;
  if (shared < 0) return;
  Name dim = a->dims[shared].name;
  diag_note(d, node->span, "both operands have '%s', so it was batched", dim);
  const Expr *origin = id < e->origins.n ? e->origins.data[id] : NULL;
  bool is_named = origin && origin->kind == EXPR_call && origin->args.n > 1 &&
                  origin->args.items[1].value->kind == EXPR_name;
  diag_help(d, "rename one of them before the matmul, as in %s[%s -> %s]",
            is_named ? origin->args.items[1].value->name : "k", dim, missing);
}

Diag *elab_no_dim(Elab *e, const Expr *x, const Type *type, Name dim,
                  Span span) {
  Diag *d = diag(e->diags, DIAG_no_dimension, span, expr_subject(e, x), dim,
                 type_describe(e, type));
  note_batched(e, d, x, dim);
  if (scan_slices(e, dim))
    diag_help(d, "inside a scan over '%s' values are those of one iteration",
              dim);
  return d;
}

static bool note_operand(Elab *e, Diag *d, const Expr *x, const Dim *dim) {
  if (!x) return false;
  const Local *local =
      x->kind == EXPR_name ? frame_local(e->frame, x->name) : NULL;
  Span span = local ? local->span : x->span;
  if (!span.source) return false;
  diag_note(d, span, "%s %s %s = %lld here", expr_describe(e, x),
            local ? "gets" : "has", dim->name, (long long)dim->size);
  return true;
}

bool elab_unify(Elab *e, const Type *a, const Type *b, const Expr *ax,
                const Expr *bx, Name except, Name except2) {
  for (int i = 0; i < a->rank; i++) {
    int j = type_find(b, a->dims[i].name);
    if (j < 0 || a->dims[i].size == b->dims[j].size) continue;
    if (a->dims[i].name == except || a->dims[i].name == except2) continue;
    Diag *d =
        diag(e->diags, DIAG_size_mismatch, e->graph->span, a->dims[i].name,
             (long)a->dims[i].size, (long)b->dims[j].size);
    if (!note_operand(e, d, bx, &b->dims[j]))
      note_operand(e, d, ax, &a->dims[i]);
    return false;
  }
  return true;
}
