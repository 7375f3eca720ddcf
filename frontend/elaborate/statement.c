/*
 * statement.c -- executes the statements of a body: assignments, compile-time
 * `if` and `repeat`; parameter.c and scan.c execute theirs.
 *
 * A body, its branches and its repeats share one scope; only a name that is
 * first assigned in a repeat ends with it. A statement that fails assigns
 * poison, so that uses of its names cause no further messages.
 */
#include "frontend/syntax/help.h"
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/eval.h"
#include "frontend/elaborate/frame.h"
#include "frontend/elaborate/output.h"
#include "frontend/elaborate/scan.h"
#include "frontend/elaborate/state.h"

#include <string.h>

static const char *const pins[] = {"remat", "keep",  "offload", "stage",
                                   "shard", "place", "unroll",  "frozen"};

/* ---- annotations ---- */

bool elab_annotations(Elab *e, const AnnotationList *list, bool is_scan) {
  bool is_frozen = false;
  for (int i = 0; i < list->n; i++) {
    const Annotation *annotation = &list->items[i];
    bool is_known = false;
    for (int j = 0; j < ARRAY_LENGTH(pins); j++)
      is_known = is_known || strcmp(annotation->name, pins[j]) == 0;
    if (!is_known) {
      Diag *d = diag(e->diags, DIAG_unknown_annotation, annotation->span,
                     annotation->name);
      diag_choices(e->arena, d, annotation->name, pins, ARRAY_LENGTH(pins));
    } else if (strcmp(annotation->name, "frozen") == 0) {
      is_frozen = true;
      if (annotation->args.n > 0)
        diag(e->diags, DIAG_annotation_arguments, annotation->span,
             annotation->name);
    } else if (strcmp(annotation->name, "unroll") == 0) {
      if (!is_scan) diag(e->diags, DIAG_unroll, annotation->span);
    } else if (strcmp(annotation->name, "remat") == 0 ||
               strcmp(annotation->name, "keep") == 0) {
      if (annotation->args.n > 0)
        diag(e->diags, DIAG_annotation_arguments, annotation->span,
             annotation->name);
    } else if (strcmp(annotation->name, "stage") == 0) {
      if (annotation->args.n != 1 || annotation->args.items[0].name)
        diag(e->diags, DIAG_annotation_stage, annotation->span);
    } else if (strcmp(annotation->name, "shard") != 0 &&
               !e->tree->options->check_only) {
      elab_not_supported(e, annotation->span,
                         arena_printf(e->arena, "@%s", annotation->name));
    }
  }
  return is_frozen;
}

/* ---- assignments ---- */

/* A node that an assignment made gets the path of its value, unless a parameter
 * has this path. */
static void name_node(Elab *e, const Expr *root, ExprValue val,
                      const Name *place) {
  if (!expr_value_is_tensor(val)) return;
  Node *node = e->graph->nodes.data[val.tensor.node];
  Name path = scope_path(e, place, *place);
  const Local *local = frame_local(e->frame, *place);
  bool is_state = local && local->state_path;
  bool is_ours = val.tensor.node < e->origins.n &&
                 e->origins.data[val.tensor.node] == root &&
                 (is_state || !map_has(e->params, path));
  if (is_ours) {
    vec_push(e->arena, &e->aliases, (PathAlias){node->path, path, false});
    node->path = path;
  } else {
    vec_push(e->arena, &e->aliases, (PathAlias){path, node->path, true});
  }
}

void elab_assign(Elab *e, const Stmt *stmt, int i, ExprValue val) {
  Name name = stmt->names.names[i];
  const Local *local = frame_local(e->frame, name);
  if (local && local->state_path)
    state_assign(e, local, val, stmt->names.spans[i]);
  else
    frame_set(e, name, val, stmt->names.spans[i]);
}

bool elab_hides_state(Elab *e, Name name, Span span) {
  const Local *local = frame_local(e->frame, name);
  if (!local || !local->state_path) return false;
  if (expr_value_is_poison(local->val)) return true;
  Diag *d = diag(e->diags, DIAG_state_hidden, span, name);
  diag_note(d, local->span, "the state is declared here");
  return true;
}

static void exec_assign_name(Elab *e, const Stmt *stmt, int i, const Expr *root,
                             ExprValue val) {
  const Name *place = &stmt->names.names[i];
  const Local *local = frame_local(e->frame, *place);
  name_node(e, root, val, place);
  if (e->watch) predict_note_value(e, scope_path(e, place, *place), val);
  if (local && local->state_path) elab_at(e, root);
  elab_assign(e, stmt, i, val);
}

static void exec_assign(Elab *e, const Stmt *stmt) {
  const Expr *x = stmt->value;
  ExprValue val = eval(e, x);
  if (stmt->names.n == 1) {
    exec_assign_name(e, stmt, 0, x, val);
    return;
  }
  bool is_list = val.kind == EXPR_VALUE_list && val.list->n == stmt->names.n;
  if (!is_list && !expr_value_is_poison(val))
    diag(e->diags, DIAG_wrong_count,
         span_join(stmt->names.spans[0], stmt->names.spans[stmt->names.n - 1]),
         stmt->names.n, expr_value_describe(e, val));
  for (int i = 0; i < stmt->names.n; i++) {
    const Expr *root = x->kind == EXPR_list && is_list ? x->items.data[i] : x;
    exec_assign_name(e, stmt, i, root, is_list ? val.list->items[i] : POISON);
  }
}

/* Poisons what a body that cannot be executed would have assigned. */
static bool poison_body(Elab *e, const StmtList *body) {
  bool returns = false;
  for (int i = 0; i < body->n; i++) {
    const Stmt *stmt = body->data[i];
    for (int j = 0; j < stmt->names.n && stmt->kind != STMT_repeat; j++)
      frame_set(e, stmt->names.names[j], POISON, stmt->names.spans[j]);
    returns = returns || stmt->kind == STMT_return;
    returns |= poison_body(e, &stmt->body);
    returns |= poison_body(e, &stmt->else_body);
  }
  if (returns) e->frame->result = POISON;
  return returns;
}

/* ---- if, repeat ---- */

static bool exec_if(Elab *e, const Stmt *stmt) {
  ExprValue val = eval(e, stmt->value);
  if (val.kind == EXPR_VALUE_bool)
    return exec_body(e, val.boolean ? &stmt->body : &stmt->else_body);
  if (expr_value_is_tensor(val)) {
    Diag *d = diag(e->diags, DIAG_if_tensor, stmt->value->span,
                   expr_describe(e, stmt->value), expr_value_describe(e, val));
    diag_help(d, "select(c, a, b) chooses element by element");
  } else if (!expr_value_is_poison(val)) {
    diag(e->diags, DIAG_if_not_bool, stmt->value->span,
         expr_value_describe(e, val));
  }
  bool returns = poison_body(e, &stmt->body);
  return poison_body(e, &stmt->else_body) || returns;
}

typedef struct Repetitions { /* what a repeat goes over: a list or first + i */
  int64_t n, first;
  const ExprValueList *list;
} Repetitions;

static bool eval_repetitions(Elab *e, const Stmt *stmt, Repetitions *out) {
  const Expr *x = stmt->value;
  *out = (Repetitions){0};
  if (x->kind == EXPR_range) {
    int64_t last;
    if (!eval_int(e, x->a, &out->first) || !eval_int(e, x->b, &last))
      return false;
    if (last >= out->first &&
        __builtin_sub_overflow(last, out->first, &out->n)) {
      diag(e->diags, DIAG_overflow, x->span);
      return false;
    }
    out->n = last < out->first ? 0 : out->n == INT64_MAX ? out->n : out->n + 1;
    return true;
  }
  ExprValue val = eval(e, x);
  if (val.kind == EXPR_VALUE_list) {
    out->list = val.list;
    out->n = val.list->n;
    return true;
  }
  ExprValue whole = expr_value_whole(val);
  if (whole.kind == EXPR_VALUE_int && whole.integer >= 0) {
    out->n = whole.integer;
    return true;
  }
  if (!expr_value_is_poison(val))
    diag(e->diags, DIAG_bad_repeat, x->span, expr_value_describe(e, val));
  return false;
}

/* Keeps names that were first assigned in a repeat's body and poisoned by a
 * mistake, so that later uses cause no message. */
static void keep_poison(Elab *e, int n_born) {
  Frame *frame = e->frame;
  for (int i = frame->locals.n; i < n_born; i++)
    if (expr_value_is_poison(frame->locals.data[i].val))
      frame_add(e, frame->locals.data[i]);
}

enum { MOST_DIGITS = 24 };

/* "[i]", of at most MOST_DIGITS bytes; printf would be a tenth of all time. */
static void append_index(char *to, int64_t i) {
  char digits[MOST_DIGITS];
  int n = 0;
  do digits[n++] = (char)('0' + i % 10);
  while (i /= 10);
  *to++ = '[';
  while (n > 0) *to++ = digits[--n];
  memcpy(to, "]", 2);
}

static bool exec_repeat(Elab *e, const Stmt *stmt) {
  Repetitions repetitions;
  if (elab_hides_state(e, stmt->names.names[0], stmt->names.spans[0]) ||
      !eval_repetitions(e, stmt, &repetitions))
    return poison_body(e, &stmt->body);
  Frame *frame = e->frame;
  const char *indices = frame->indices;
  size_t n_before = strlen(indices);
  char *own = arena_alloc(e->arena, n_before + MOST_DIGITS);
  memcpy(own, indices, n_before);
  frame->indices = own;
  int n_locals = frame->locals.n, n_born = n_locals;
  int errors = diags_errors(e->diags);
  bool returned = false;
  for (int64_t i = 0; i < repetitions.n && !returned; i++) {
    if (!elab_step(e, stmt->span) || diags_errors(e->diags) > errors) break;
    append_index(own + n_before, i);
    ExprValue item = repetitions.list ? repetitions.list->items[i]
                                      : expr_value_int(repetitions.first + i);
    frame_set(e, stmt->names.names[0], item, stmt->names.spans[0]);
    returned = exec_body(e, &stmt->body);
    n_born = frame->locals.n;
    if (n_born > n_locals) frame->locals.n = n_locals;
  }
  frame->indices = indices;
  if (diags_errors(e->diags) > errors) keep_poison(e, n_born);
  return returned;
}

/* ---- statements ---- */

static void exec_expr(Elab *e, const Stmt *stmt) {
  const Expr *x = stmt->value;
  bool is_call = x->kind == EXPR_call && x->a->kind == EXPR_name;
  if (is_call && strcmp(x->a->name, "add_loss") == 0) {
    e->statement = x;
    eval(e, x);
    return;
  }
  e->frame->result = POISON; /* it may be what the body should return */
  Diag *d = diag(e->diags, DIAG_no_effect, x->span);
  if (x->kind == EXPR_unary && x->op == OPERATOR_neg)
    diag_help(d, "a statement continues on the next line where a line ends "
                 "with an operator");
  else
    diag_help(d, "assign it to a name or return it");
}

static bool exec_stmt(Elab *e, const Stmt *stmt) {
  switch (stmt->kind) {
  case STMT_assign: exec_assign(e, stmt); return false;
  case STMT_scan: exec_scan(e, stmt); return false;
  case STMT_param:
  case STMT_state: exec_param(e, stmt); return false;
  case STMT_return:
    e->frame->result = eval(e, stmt->value);
    e->frame->result_span = stmt->value->span;
    return true;
  case STMT_expr: exec_expr(e, stmt); return false;
  case STMT_repeat: return exec_repeat(e, stmt);
  case STMT_if: return exec_if(e, stmt);
  }
  UNREACHABLE();
}

bool exec_body(Elab *e, const StmtList *body) {
  for (int i = 0; i < body->n; i++) {
    const Stmt *stmt = body->data[i];
    if (!elab_step(e, stmt->span)) {
      e->frame->result = POISON;
      return true;
    }
    bool is_frozen =
        elab_annotations(e, &stmt->annotations, stmt->kind == STMT_scan);
    e->n_frozen += is_frozen;
    int first_node = e->graph->nodes.n;
    bool returned = exec_stmt(e, stmt);
    e->n_frozen -= is_frozen;
    elab_note_pins(e, &stmt->annotations, stmt, first_node);
    if (returned) return true;
  }
  return false;
}
