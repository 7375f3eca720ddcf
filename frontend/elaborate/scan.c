/*
 * scan.c -- executes `y = scan T (h: [B, O] = 0) { ... }`.
 *
 *     y = scan T (h: [B, O] = 0) { ... x ... w ... }   =>   %9 = scan %0 %x %w
 *
 * The body is elaborated once, like any statements, on placeholders: each carry
 * and each value with the scanned dim becomes a graph input of the type that it
 * has in one iteration. The nodes that the body has appended are then moved
 * from the graph to the body of a `scan` node. Placeholders that are read
 * become its carries and slices; values from before the scan become its
 * arguments. Random numbers, which differ between iterations, are computed
 * outside for all of them and sliced. A scan inside a scan is moved first and
 * is a node of the outer body.
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/eval.h"
#include "frontend/elaborate/frame.h"
#include "frontend/elaborate/scan.h"

#include <string.h>

enum { NODES_OF_SCAN = 8 }; /* what a body costs beside its own nodes */

/* Moves the nodes of the body from the graph to the body of the scan. */
typedef struct Cut {
  Elab *e;
  Scan *scan;
  Graph *body;
  /* By old node, from the first of the body: */
  Node *const *nodes; /* before they are moved */
  Value *now;         /* in the body */
  VEC(Value) given;   /* inputs of the node */
} Cut;

/* ---- before the body ---- */

/* The carry's type; NULL after a message. */
static const Type *carry_type(Elab *e, const Stmt *stmt,
                              const FormalParam *param) {
  if (!param->type || !param->init) {
    diag(e->diags, DIAG_scan_carry, param->span, param->name,
         param->type ? "an initial value" : "a type");
    return NULL;
  }
  const Type *type = elab_type_expr(e, param->type);
  if (!type || type_find(type, stmt->dim) < 0) return type;
  diag(e->diags, DIAG_scan_makes_dim, param->type->span, stmt->dim,
       type_describe(e, type));
  return NULL;
}

/* In the words of expr_value_describe. */
static const char *carry_describe(Elab *e, const Type *type) {
  return arena_printf(e->arena, "a tensor %s%s", dtype_name(type->dtype),
                      type_describe(e, type));
}

/* The initial value in the carry's type: numbers and values that lack some of
 * its dims are broadcast along those. */
static ExprValue initial_value(Elab *e, const FormalParam *param,
                               const Type *type) {
  ExprValue val = eval(e, param->init);
  if (expr_value_is_poison(val)) return POISON;
  elab_at(e, param->init);
  val = elab_scalar(e, type->dtype, val);
  if (!expr_value_is_tensor(val)) {
    diag(e->diags, DIAG_scan_carry_start, param->init->span, param->name,
         carry_describe(e, type), expr_value_describe(e, val));
    return POISON;
  }
  const Type *has = elab_type(e, val);
  bool fits = val.is_weak || elab_takes(type->dtype, has->dtype);
  for (int d = 0; d < has->rank; d++)
    fits = fits && type_find(type, has->dims[d].name) >= 0 &&
           type_size(type, has->dims[d].name) == has->dims[d].size;
  if (!fits) {
    diag(e->diags, DIAG_scan_carry_start, param->init->span, param->name,
         carry_describe(e, type), expr_value_describe(e, val));
    return POISON;
  }
  Name names[MAX_RANK];
  int64_t sizes[MAX_RANK];
  for (int d = 0; d < type->rank; d++) {
    names[d] = type->dims[d].name;
    sizes[d] = type->dims[d].size;
  }
  val = elab_broadcast(e, elab_cast(e, val, type->dtype), names, sizes,
                       type->rank);
  if (expr_value_is_poison(val)) return val;
  return expr_value_tensor(graph_transpose_to(e->graph, val.tensor, type),
                           false);
}

static bool scan_begin_carries(Elab *e, Scan *scan) {
  const FormalParamList *params = &scan->stmt->carries;
  bool is_good = true;
  for (int i = 0; i < params->n; i++) {
    const FormalParam *param = &params->items[i];
    Span span = param->span;
    span.end = span.begin + (uint32_t)strlen(param->name);
    bool hides = elab_hides_state(e, param->name, span);
    const Type *type = hides ? NULL : carry_type(e, scan->stmt, param);
    ExprValue val = type ? initial_value(e, param, type) : POISON;
    is_good = is_good && !expr_value_is_poison(val);
    Placeholder carry = {.outer = val.tensor, .name = param->name};
    carry.span = param->span;
    vec_push(e->arena, &scan->carries, carry);
  }
  return is_good;
}

/* The placeholder of a value in one iteration. */
static ExprValue scan_slice_of(Elab *e, Scan *scan, ExprValue val,
                               const Local *local) {
  if (val.kind == EXPR_VALUE_list) {
    ExprValue list = expr_value_list(e, val.list->n);
    for (int i = 0; i < list.list->n; i++)
      list.list->items[i] = scan_slice_of(e, scan, val.list->items[i], local);
    return expr_value_list_nested(e, list, local->span);
  }
  if (!expr_value_is_tensor(val)) return val;
  const Type *type = elab_type(e, val);
  if (type_find(type, scan->dim) < 0) return val;
  for (int i = 0; i < scan->slices.n; i++)
    if (value_equal(scan->slices.data[i].outer, val.tensor))
      return expr_value_tensor(scan->slices.data[i].inner, val.is_weak);
  Value inner = graph_input(e->graph, ROLE_slice, local->name,
                            type_without(e->arena, type, &scan->dim, 1));
  Placeholder slice = {val.tensor, inner, local->name, local->span};
  vec_push(e->arena, &scan->slices, slice);
  return expr_value_tensor(inner, val.is_weak);
}

static void scan_enter(Elab *e, Scan *scan) {
  Frame *frame = e->frame;
  scan->n_nodes = e->graph->nodes.n;
  scan->n_inputs = e->graph->inputs.n;
  for (int i = 0; i < frame->locals.n; i++) {
    Local *local = &frame->locals.data[i];
    vec_push(e->arena, &scan->locals, *local);
    local->val = scan_slice_of(e, scan, local->val, local);
  }
  for (int i = 0; i < scan->carries.n; i++) {
    Placeholder *carry = &scan->carries.data[i];
    const Type *type = graph_type(e->graph, carry->outer);
    carry->inner = graph_input(e->graph, ROLE_carry, carry->name, type);
  }
  for (int i = 0; i < scan->carries.n; i++) {
    const Placeholder *carry = &scan->carries.data[i];
    ExprValue val = elab_typed(e, scan->stmt->carries.items[i].type,
                               expr_value_tensor(carry->inner, false));
    frame_set(e, carry->name, val, carry->span);
    frame_local(frame, carry->name)->state_path = NULL;
  }
  scan->result = frame->result;
  scan->around = e->scan;
  e->scan = scan;
}

/* Restores the locals from before the body. */
static void scan_leave(Elab *e, Scan *scan) {
  e->scan = scan->around;
  e->frame->locals.n = 0;
  for (int i = 0; i < scan->locals.n; i++) frame_add(e, scan->locals.data[i]);
  e->frame->result = scan->result;
}

/* ---- after the body ---- */

static bool end_carries(Elab *e, Scan *scan) {
  bool is_good = true;
  for (int i = 0; i < scan->carries.n; i++) {
    const Placeholder *carry = &scan->carries.data[i];
    const Local *local = frame_local(e->frame, carry->name);
    const Type *type = graph_type(e->graph, carry->inner);
    ExprValue val = local->val;
    if (expr_value_is_poison(val)) {
      is_good = false;
      continue;
    }
    val = elab_scalar(e, type->dtype, val);
    bool fits =
        expr_value_is_tensor(val) && type_same_dims(elab_type(e, val), type) &&
        (val.is_weak || elab_takes(type->dtype, elab_type(e, val)->dtype));
    if (fits) {
      val = elab_cast(e, val, type->dtype);
      scan->outs[i] = graph_transpose_to(e->graph, val.tensor, type);
      continue;
    }
    Diag *d = diag(e->diags, DIAG_scan_carry_type, local->span, carry->name,
                   carry_describe(e, type), expr_value_describe(e, val));
    diag_note(d, carry->span, "its type is given here");
    is_good = false;
  }
  return is_good;
}

static bool end_results(Elab *e, Scan *scan, bool returned) {
  ExprValue result = e->frame->result;
  if (!returned) {
    diag(e->diags, DIAG_no_return, scan->stmt->dim_span, "scan");
    return false;
  }
  if (expr_value_is_poison(result)) return false;
  bool is_list = result.kind == EXPR_VALUE_list;
  for (int i = 0; i < scan->n_results; i++) {
    ExprValue val = is_list ? result.list->items[i] : result;
    if (expr_value_is_number(val))
      val = elab_number(e, val.kind == EXPR_VALUE_int ? DT_i32 : DT_f32,
                        expr_value_to_double(val));
    if (!expr_value_is_tensor(val)) {
      diag(e->diags, DIAG_wants_tensor, e->frame->result_span,
           "what a scan returns", expr_value_describe(e, val));
      return false;
    }
    scan->outs[scan->carries.n + i] = val.tensor;
  }
  return true;
}

static bool find_steps(Elab *e, Scan *scan, const bool *is_read) {
  const Placeholder *first = NULL;
  for (int i = 0; i < scan->slices.n; i++) {
    const Placeholder *slice = &scan->slices.data[i];
    if (!is_read[slice->inner.node - scan->n_nodes]) continue;
    int64_t size = type_size(graph_type(e->graph, slice->outer), scan->dim);
    if (!first) {
      first = slice;
      scan->steps = size;
    } else if (size != scan->steps) {
      Diag *d = diag(e->diags, DIAG_scan_sizes, scan->stmt->dim_span, scan->dim,
                     (long)scan->steps, (long)size);
      diag_note(d, slice->span, "'%s' gets %s = %lld here", slice->name,
                scan->dim, (long long)size);
      return false;
    }
  }
  if (!first)
    diag(e->diags, DIAG_scan_no_slice, scan->stmt->dim_span, scan->dim);
  return first != NULL;
}

/* ---- moving the body out of the graph ---- */

/* By old node, from the first of the body. */
static bool *find_read(Elab *e, const Scan *scan) {
  int n = e->graph->nodes.n - scan->n_nodes;
  bool *is_read = ARENA_ARRAY(e->arena, bool, n);
  for (int i = 0; i < scan->carries.n + scan->n_results; i++)
    if (scan->outs[i].node >= scan->n_nodes)
      is_read[scan->outs[i].node - scan->n_nodes] = true;
  for (int id = n - 1; id >= 0; id--) {
    const Node *node = e->graph->nodes.data[scan->n_nodes + id];
    for (int i = 0; is_read[id] && i < node->n_inputs; i++)
      if (node->inputs[i].node >= scan->n_nodes)
        is_read[node->inputs[i].node - scan->n_nodes] = true;
  }
  return is_read;
}

/* No value inside has the scanned dim: it distinguishes the iterations. */
static bool scan_check_dims(Elab *e, const Scan *scan, const bool *is_read) {
  for (int id = scan->n_nodes; id < e->graph->nodes.n; id++) {
    const Node *node = e->graph->nodes.data[id];
    if (!is_read[id - scan->n_nodes]) continue;
    for (int r = 0; r < node->n_results; r++) {
      if (type_find(node->types[r], scan->dim) < 0) continue;
      diag(e->diags, DIAG_scan_makes_dim, node->span, scan->dim,
           type_describe(e, node->types[r]));
      return false;
    }
  }
  return true;
}

static Value cut_give(Cut *cut, Role role, Name name, Value outer,
                      const Type *type) {
  vec_push(cut->e->arena, &cut->given, outer);
  return graph_input(cut->body, role, name, type);
}

static Value give_slice(Cut *cut, Name name, Value outer) {
  Elab *e = cut->e;
  const Type *type =
      type_without(e->arena, graph_type(e->graph, outer), &cut->scan->dim, 1);
  outer = graph_transpose_to(
      e->graph, outer,
      scan_stacked_type(e->arena, type, cut->scan->dim, cut->scan->steps));
  return cut_give(cut, ROLE_slice, name, outer, type);
}

/* Seed or step, read inside the body. */
static Value outer_input(Cut *cut, const Node *node) {
  Elab *e = cut->e;
  Value *known = node->types[0]->dtype == DT_i64 ? &e->seed : &e->step;
  const char *name = node->types[0]->dtype == DT_i64 ? "seed" : "step";
  Role role = node->types[0]->dtype == DT_i64 ? ROLE_seed : ROLE_step;
  if (!value_is(*known))
    *known = graph_input(e->graph, role, name_intern(e->names, name),
                         node->types[0]);
  return *known;
}

/* Random numbers for all iterations: the scanned dim is their outermost. */
static Value random_outside(Cut *cut, const Node *node) {
  Elab *e = cut->e;
  Attrs attrs = {.n = node->n_attrs};
  for (int i = 0; i < attrs.n; i++) attrs.items[i] = node->attrs[i];
  int n;
  const Name *to = node_names(node, ATTR_to, &n);
  const int64_t *sizes = node_ints(node, ATTR_sizes, &n);
  Name names[MAX_RANK + 1] = {cut->scan->dim};
  int64_t counts[MAX_RANK + 1] = {cut->scan->steps};
  for (int i = 0; i < n; i++) {
    names[i + 1] = to[i];
    counts[i + 1] = sizes[i];
  }
  attrs_names(&attrs, ATTR_to, names, n + 1);
  attrs_ints(&attrs, ATTR_sizes, counts, n + 1);
  Value inputs[2];
  for (int i = 0; i < 2; i++) {
    Value value = node->inputs[i];
    inputs[i] =
        value.node < cut->scan->n_nodes
            ? value
            : outer_input(cut, cut->nodes[value.node - cut->scan->n_nodes]);
  }
  Value all = graph_append(e->graph, node->op, inputs, 2, &attrs);
  e->graph->nodes.data[all.node]->path = node->path;
  return all;
}

static Value cut_get(Cut *cut, Value value) {
  Elab *e = cut->e;
  int n = cut->scan->n_nodes;
  if (value.node >= n) {
    Value now = cut->now[value.node - n];
    return (Value){now.node, value.result};
  }
  for (int i = 0; i < cut->given.n; i++)
    if (value_equal(cut->given.data[i], value) &&
        cut->body->inputs.data[i].role == ROLE_arg)
      return cut->body->inputs.data[i].value;
  const Node *node = graph_node(e->graph, value);
  if (node->op == OP_const)
    return graph_copy_node(cut->body, e->graph, value.node, NULL, false);
  return cut_give(cut, ROLE_arg, node->path, value, node->types[value.result]);
}

static void cut_node(Cut *cut, int id) {
  const Scan *scan = cut->scan;
  const Node *node = cut->nodes[id - scan->n_nodes];
  Value *out_now = &cut->now[id - scan->n_nodes];
  if (op_is(node->op, OPCLASS_random)) {
    *out_now = give_slice(cut, node->path, random_outside(cut, node));
    return;
  }
  for (int i = 0; i < scan->slices.n; i++)
    if (scan->slices.data[i].inner.node == id) {
      *out_now = give_slice(cut, scan->slices.data[i].name,
                            scan->slices.data[i].outer);
      return;
    }
  if (node->op == OP_input) return; /* a carry, or a seed */
  Value *inputs = ARENA_ARRAY(cut->e->arena, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = cut_get(cut, node->inputs[i]);
  Attrs attrs = {.n = node->n_attrs};
  for (int i = 0; i < attrs.n; i++) attrs.items[i] = node->attrs[i];
  Value now =
      graph_append_typed(cut->body, node->op, inputs, node->n_inputs, &attrs,
                         node->types, node->n_results, node->body);
  Node *copy = cut->body->nodes.data[now.node];
  copy->span = node->span;
  copy->path = node->path;
  *out_now = now;
}

/* Removes from the graph what the body has appended. */
static void forget_body(Elab *e, const Scan *scan) {
  e->graph->nodes.n = scan->n_nodes;
  e->graph->inputs.n = scan->n_inputs;
  if (e->origins.n > scan->n_nodes) e->origins.n = scan->n_nodes;
  while (e->ratios.n &&
         e->ratios.data[e->ratios.n - 1].value.node >= scan->n_nodes)
    e->ratios.n--;
  if (e->seed.node >= scan->n_nodes) e->seed = VALUE_NONE;
  if (e->step.node >= scan->n_nodes) e->step = VALUE_NONE;
}

static Value cut_out(Elab *e, Scan *scan, const bool *is_read) {
  e->tree->spent.nodes += NODES_OF_SCAN;
  Name nothing = name_intern(e->names, "");
  int n_before = scan->n_nodes, n = e->graph->nodes.n - n_before;
  Cut cut = {
      .e = e, .scan = scan, .body = graph_create(e->module, e->graph->name)};
  cut.body->mesh = e->graph->mesh;
  cut.nodes = arena_copy(e->arena, e->graph->nodes.data + n_before,
                         (size_t)n * sizeof *e->graph->nodes.data);
  cut.now = ARENA_ARRAY(e->arena, Value, n);
  Name path =
      scope_path(e, &scan->stmt->names.names[0], scan->stmt->names.names[0]);
  forget_body(e, scan);
  e->graph->span = scan->stmt->dim_span;
  e->graph->path = path;
  for (int i = 0; i < scan->carries.n; i++) {
    const Placeholder *carry = &scan->carries.data[i];
    cut.now[carry->inner.node - n_before] =
        cut_give(&cut, ROLE_carry, carry->name, carry->outer,
                 graph_type(e->graph, carry->outer));
  }
  for (int i = 0; i < n; i++)
    if (is_read[i]) cut_node(&cut, n_before + i);
  for (int i = 0; i < scan->carries.n + scan->n_results; i++) {
    bool is_carry = i < scan->carries.n;
    graph_output(cut.body, is_carry ? ROLE_carry : ROLE_result,
                 is_carry ? scan->carries.data[i].name : nothing,
                 cut_get(&cut, scan->outs[i]));
  }
  ScanForm form = {scan->dim, scan->steps, .unroll = scan->unroll};
  return scan_append(e->graph, form, cut.given.data, cut.body);
}

/* ---- the statement ---- */

/* The argument of @unroll, 0 without one. */
static int64_t scan_read_unroll(Elab *e, const Stmt *stmt) {
  int64_t n = 0;
  for (int i = 0; i < stmt->annotations.n; i++) {
    const Annotation *annotation = &stmt->annotations.items[i];
    if (strcmp(annotation->name, "unroll") != 0) continue;
    bool is_good = annotation->args.n == 1 && !annotation->args.items[0].name;
    ExprValue val = is_good ? eval(e, annotation->args.items[0].value) : POISON;
    n = val.kind == EXPR_VALUE_int ? val.integer : 0;
    if (n < 1 && (!is_good || !expr_value_is_poison(val)))
      diag(e->diags, DIAG_unroll, annotation->span);
  }
  return n;
}

static void poison_names(Elab *e, const Stmt *stmt) {
  for (int i = 0; i < stmt->names.n; i++)
    frame_set(e, stmt->names.names[i], POISON, stmt->names.spans[i]);
  for (int i = 0; i < stmt->carries.n; i++)
    frame_set(e, stmt->carries.items[i].name, POISON,
              stmt->carries.items[i].span);
}

static bool check_count(Elab *e, const Stmt *stmt, ExprValue result) {
  bool is_list =
      result.kind == EXPR_VALUE_list && result.list->n == stmt->names.n;
  if (stmt->names.n == 1 || is_list || expr_value_is_poison(result))
    return true;
  diag(e->diags, DIAG_wrong_count,
       span_join(stmt->names.spans[0], stmt->names.spans[stmt->names.n - 1]),
       stmt->names.n, expr_value_describe(e, result));
  return false;
}

static void set_names(Elab *e, const Scan *scan, Value first, bool is_list) {
  const Stmt *stmt = scan->stmt;
  int n_carries = scan->carries.n;
  for (int i = 0; i < n_carries; i++) {
    ExprValue val = expr_value_tensor((Value){first.node, i}, false);
    frame_set(e, scan->carries.data[i].name, val, scan->carries.data[i].span);
    frame_local(e->frame, scan->carries.data[i].name)->state_path = NULL;
  }
  ExprValue list = expr_value_list(e, scan->n_results);
  for (int i = 0; i < scan->n_results; i++)
    list.list->items[i] =
        expr_value_tensor((Value){first.node, n_carries + i}, false);
  for (int i = 0; i < stmt->names.n; i++)
    elab_assign(e, stmt, i,
                stmt->names.n == 1 && is_list ? list : list.list->items[i]);
}

void exec_scan(Elab *e, const Stmt *stmt) {
  Scan scan = {.stmt = stmt, .dim = stmt->dim};
  scan.unroll = scan_read_unroll(e, stmt);
  if (!scan_begin_carries(e, &scan)) {
    poison_names(e, stmt);
    return;
  }
  int errors = diags_errors(e->diags);
  scan_enter(e, &scan);
  bool returned = exec_body(e, &stmt->body);
  ExprValue result = e->frame->result;
  bool is_list = result.kind == EXPR_VALUE_list;
  scan.n_results = is_list ? result.list->n : 1;
  scan.outs = ARENA_ARRAY(e->arena, Value, scan.carries.n + scan.n_results);
  bool is_good = end_carries(e, &scan) && end_results(e, &scan, returned) &&
                 check_count(e, stmt, result) &&
                 diags_errors(e->diags) == errors;
  const bool *is_read = is_good ? find_read(e, &scan) : NULL;
  is_good = is_good && scan_check_dims(e, &scan, is_read) &&
            find_steps(e, &scan, is_read);
  scan_leave(e, &scan);
  if (!is_good) {
    poison_names(e, stmt);
    return;
  }
  set_names(e, &scan, cut_out(e, &scan, is_read), is_list);
}
