/*
 * predict.c -- builds the graph whose outputs `dnnc predict` writes: the result
 * of a net, or any value that has a path (section 6 of language.md).
 *
 *     net f(x: [B, C]) {            --value mlp       the result of the call
 *       h = mlp[C -> F](x)          --value h         the value assigned
 *       a, b = topk(h, 3, F, J)     --value 'topk[1]' the second result
 *       ...
 *
 * While the graph is built, results of calls and assigned values are recorded
 * by path; operators are found by the paths of their nodes, as `dnnc ir` prints
 * them. A path with several meanings names the input, else the call, else the
 * value, else the operator.
 *
 * An output has a row for each record: the batch dim is its first. Nodes and
 * data inputs that no output needs are dropped, so that a prediction needs no
 * labels.
 */
#include "frontend/syntax/help.h"
#include "frontend/elaborate/output.h"

#include <stdlib.h>
#include <string.h>

typedef struct Named {
  ExprValue val;
  bool in_scan; /* a value of one iteration, which the graph does not have */
} Named;

struct Watch {
  const Callable *net; /* whose values are recorded; NULL: of all */
  Map *calls, *values; /* path -> Named */
};

/* ---- while the graph is built ---- */

void predict_watch(Elab *e, const Callable *net) {
  e->watch = ARENA_NEW(e->arena, struct Watch);
  *e->watch = (struct Watch){.net = net,
                             .calls = map_create(e->arena),
                             .values = map_create(e->arena)};
}

/* If a net is called twice, the first call counts. */
static void predict_note(Elab *e, Map *map, Name path, ExprValue val) {
  const struct Watch *watch = e->watch;
  if (!*path || map_has(map, path) || expr_value_is_poison(val) ||
      (watch->net && e->frame->net != watch->net))
    return;
  Named *named = ARENA_NEW(e->arena, Named);
  *named = (Named){val, e->scan != NULL};
  map_put(map, path, named);
}

void predict_note_call(Elab *e, Name path, ExprValue val) {
  if (e->watch) predict_note(e, e->watch->calls, path, val);
}

void predict_note_value(Elab *e, Name path, ExprValue val) {
  if (e->watch) predict_note(e, e->watch->values, path, val);
}

/* ---- finding a value ---- */

static const NetCall *find_call(const Elab *e, const Callable *net) {
  for (int i = 0; i < e->net_calls.n; i++)
    if (e->net_calls.data[i].net == net) return &e->net_calls.data[i];
  return NULL;
}

/* The results of the last node of this path: that node is the operator, and
 * earlier ones are intermediate. */
static bool find_operator(Elab *e, Name path, ExprValue *out) {
  const Graph *graph = e->graph;
  for (int i = graph->nodes.n - 1; i >= 0; i--) {
    const Node *node = graph->nodes.data[i];
    if (node->path != path || node->op == OP_input) continue;
    *out = expr_value_tensor((Value){i, 0}, false);
    if (node->n_results == 1) return true;
    *out = expr_value_list(e, node->n_results);
    for (int r = 0; r < node->n_results; r++)
      out->list->items[r] = expr_value_tensor((Value){i, r}, false);
    return true;
  }
  return false;
}

static bool is_in_body(const Graph *graph, Name path, bool is_body) {
  for (int i = 0; i < graph->nodes.n; i++) {
    const Node *node = graph->nodes.data[i];
    if (is_body && node->path == path) return true;
    if (node->body && is_in_body(node->body, path, true)) return true;
  }
  return false;
}

typedef enum Found { FOUND_none, FOUND_value, FOUND_in_scan } Found;

static Found find_exact(Elab *e, Name path, ExprValue *out) {
  const Graph *graph = e->graph;
  for (int i = 0; i < graph->inputs.n; i++) {
    if (graph->inputs.data[i].path != path) continue;
    *out = expr_value_tensor(graph->inputs.data[i].value, false);
    return FOUND_value;
  }
  const Named *named = map_get(e->watch->calls, path);
  if (!named) named = map_get(e->watch->values, path);
  if (named) {
    *out = named->val;
    return named->in_scan ? FOUND_in_scan : FOUND_value;
  }
  const Callable *net = map_get(e->tree->nets, path);
  const NetCall *call = net ? find_call(e, net) : NULL;
  if (call) {
    *out = call->result;
    return FOUND_value;
  }
  if (find_operator(e, path, out)) return FOUND_value;
  return is_in_body(graph, path, false) ? FOUND_in_scan : FOUND_none;
}

/* "PATH[2]" where PATH is a list: its element. */
static Found find_element(Elab *e, const char *text, ExprValue *out) {
  const char *open = strrchr(text, '[');
  size_t n = strlen(text);
  char *end;
  if (!open || open == text || text[n - 1] != ']') return FOUND_none;
  long index = strtol(open + 1, &end, 10);
  if (end != text + n - 1 || end == open + 1 || index < 0) return FOUND_none;
  Found found =
      find_exact(e, name_intern_n(e->names, text, (size_t)(open - text)), out);
  if (found != FOUND_value) return found;
  if (out->kind != EXPR_VALUE_list || index >= out->list->n) return FOUND_none;
  *out = out->list->items[index];
  return FOUND_value;
}

/* ---- messages ---- */

static void predict_suggest(Elab *e, Diag *d, const char *text) {
  VEC(const char *) names = {0};
  size_t n = strlen(text);
  const Map *maps[] = {e->watch->calls, e->watch->values};
  for (int m = 0; m < ARRAY_LENGTH(maps); m++)
    for (int i = 0; i < map_size(maps[m]); i++)
      vec_push(e->arena, &names, map_key_at(maps[m], i));
  for (int i = 0; i < e->graph->nodes.n; i++)
    if (*e->graph->nodes.data[i]->path)
      vec_push(e->arena, &names, e->graph->nodes.data[i]->path);
  for (int i = 0; i < names.n; i++) {
    if (strncmp(names.data[i], text, n) != 0 || names.data[i][n] != '[')
      continue;
    diag_help(d, "there is '%s': repeated calls and values are numbered",
              names.data[i]);
    return;
  }
  if (text_nearest(text, names.data, names.n))
    diag_suggest(d, text, names.data, names.n);
  else
    diag_help(d, "'dnnc ir MODEL --entry predict' prints the paths of all "
                 "operators; calls and assigned values have paths too");
}

static bool predict_unknown(Elab *e, const char *text) {
  predict_suggest(e, diag(e->diags, DIAG_no_such_value, SPAN_NONE, text), text);
  return false;
}

static bool inside_scan(Elab *e, const char *text) {
  Diag *d = diag(e->diags, DIAG_value_in_scan, SPAN_NONE, text);
  diag_help(d, "choose what the scan returns, or return it there");
  return false;
}

/* ---- outputs ---- */

/* The batch dim first, the others in the order of the declared result, else of
 * the type. */
static const Type *by_record(Elab *e, ExprValue val, Name batch) {
  const Type *type = elab_ordered_type(e, val);
  Type *order = type_create(e->arena, type->dtype, type->rank);
  int n = 0;
  order->dims[n++] = type->dims[type_find(type, batch)];
  for (int i = 0; i < type->rank; i++)
    if (type->dims[i].name != batch) order->dims[n++] = type->dims[i];
  return order;
}

/* `says`: mistakes are reported. */
static bool add_output(Elab *e, Name batch, const char *text, ExprValue val,
                       bool says) {
  if (val.kind == EXPR_VALUE_list) {
    bool is_good = val.list->n > 0;
    for (int i = 0; i < val.list->n && is_good; i++)
      is_good = add_output(e, batch, arena_printf(e->arena, "%s[%d]", text, i),
                           val.list->items[i], says);
    return is_good;
  }
  bool is_tensor = expr_value_is_tensor(val);
  const Type *type = is_tensor ? elab_type(e, val) : NULL;
  if (type && batch && type_find(type, batch) >= 0) {
    Name path = name_intern(e->names, text);
    e->graph->path = path;
    graph_output(
        e->graph, ROLE_result, path,
        graph_transpose_to(e->graph, val.tensor, by_record(e, val, batch)));
    return true;
  }
  if (!says) return false;
  Diag *d = diag(e->diags, DIAG_value_without_batch, SPAN_NONE, text,
                 expr_value_describe(e, val), batch ? batch : "");
  diag_help(d, "only a value with the batch dimension has a row for each "
               "record");
  return false;
}

static bool predict_choose(Elab *e, const PredictChoice *choice,
                           ExprValue *out) {
  const char *text = choice->value;
  const NetCall *call = find_call(e, choice->net);
  if (!text && call) {
    *out = call->result;
    return true;
  }
  if (!text) return choice->says && predict_unknown(e, choice->net->item->name);
  Found found = find_exact(e, name_intern(e->names, text), out);
  if (found == FOUND_none) found = find_element(e, text, out);
  if (found == FOUND_in_scan) return choice->says && inside_scan(e, text);
  return found == FOUND_value || (choice->says && predict_unknown(e, text));
}

/* ---- what the outputs need ---- */

static bool is_asked_for(const GraphInput *input) {
  return input->role == ROLE_data || input->role == ROLE_batch_rows;
}

/* Parameters and states stay: a checkpoint has them all. */
static Graph *predict_needed_inputs(Elab *e, const Graph *from) {
  int n = from->nodes.n;
  bool *is_live = ARENA_ARRAY(e->arena, bool, n);
  for (int i = 0; i < from->outputs.n; i++)
    if (from->outputs.data[i].role == ROLE_result)
      is_live[from->outputs.data[i].value.node] = true;
  for (int i = 0; i < from->inputs.n; i++)
    if (!is_asked_for(&from->inputs.data[i]))
      is_live[from->inputs.data[i].value.node] = true;
  for (int id = n - 1; id >= 0; id--)
    for (int i = 0; is_live[id] && i < from->nodes.data[id]->n_inputs; i++)
      is_live[from->nodes.data[id]->inputs[i].node] = true;
  Graph *to = graph_like(from);
  int *now = ARENA_ARRAY(e->arena, int, n);
  for (int id = 0; id < n; id++) {
    const Node *node = from->nodes.data[id];
    if (!is_live[id]) continue;
    Value *inputs = ARENA_ARRAY(e->arena, Value, node->n_inputs);
    for (int i = 0; i < node->n_inputs; i++)
      inputs[i] = (Value){now[node->inputs[i].node], node->inputs[i].result};
    now[id] = graph_copy_node(to, from, id, inputs, false).node;
  }
  for (int i = 0; i < from->outputs.n; i++) {
    const GraphOutput *output = &from->outputs.data[i];
    if (output->role != ROLE_result) continue;
    graph_output(to, output->role, output->path,
                 (Value){now[output->value.node], output->value.result});
  }
  return to;
}

/* A record is read for each element of the first dim. */
static bool reads_records(Elab *e, const Graph *graph, Name batch, bool says) {
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    const Type *type = graph_type(graph, input->value);
    if (input->role != ROLE_data ||
        (type->rank > 0 && type->dims[0].name == batch))
      continue;
    if (says)
      diag(e->diags, DIAG_input_without_batch, SPAN_NONE, input->path,
           type_describe(e, type), batch);
    return false;
  }
  return true;
}

Graph *predict_graph(Elab *e, const PredictChoice *choice) {
  ExprValue val;
  Name batch = choice->batch_dim;
  const char *text = choice->value ? choice->value : choice->net->item->name;
  if (!predict_choose(e, choice, &val) ||
      !add_output(e, batch, text, val, choice->says))
    return NULL;
  Graph *graph = predict_needed_inputs(e, e->graph);
  return reads_records(e, graph, batch, choice->says) ? graph : NULL;
}
