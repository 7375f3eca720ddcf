/*
 * parse.c -- reads the text form of graphs (head of ir.h).
 *
 * Recursive descent over the words of tokens.h.  The input may be anything:
 * every size, number and reference is checked here, and the first mistake ends
 * the parse.  Whether the types are those of the operators' rules is
 * graph_verify's question.
 *
 *     graph  = "graph" name [ "mesh" "(" axis { "," axis } ")" ] body
 *     axis   = name "=" INT [ "~" ]
 *     body   = "{" { node | "output" role STRING value } "}"
 *     node   = values "=" op [ values ] [ attrs ] ":" types
 *              [ role STRING [ init "(" REAL ")" ] [ "frozen" ] [ "decay" ]
 *              [ "group" "(" INT ")" ]
 *                [ "host" ] [ "matrix" names ] [ "batch" names ] ]
 *              [ "@" phase ] [ "stage" INT ] [ STRING ] [ body ]
 *     type   = dtype "[" [ dim { "," dim } ] [ ";" reduce "@" axes ] "]"
 *     dim    = name ":" INT [ "@" axes ]        axes = name | "(" names ")"
 *     attrs  = "{" key "=" value { "," key "=" value } "}"
 *     names  = "(" name { "," name } ")"
 *     name   = WORD | STRING
 */
#include "ir/text/tokens.h"

#define MAX_NESTING  16
#define MAX_LIST     4096
#define MAX_RESULTS  65536 /* of one node; fused ones have many */
#define MAX_ELEMENTS (INT64_MAX >> 8)

/* ---- types ---- */

static int parse_axis(Tokens *p, const Mesh *mesh) {
  int axis = tokens_at_name(p) ? mesh_find(mesh, p->token.name) : -1;
  if (axis < 0) {
    tokens_unknown(p, "mesh axis");
    return 0;
  }
  tokens_next(p);
  return axis;
}

/* After '@'.  `used` collects the axes of a type: each may stand once. */
static AxisList parse_axes(Tokens *p, const Mesh *mesh, AxisSet *used) {
  AxisList list = 0;
  bool is_list = tokens_accept_char(p, '(');
  do {
    int axis = parse_axis(p, mesh);
    if (p->failed) return 0;
    if (*used >> axis & 1) {
      tokens_wrong(p, "a mesh axis twice in one type");
      return 0;
    }
    *used |= (AxisSet)(1u << axis);
    list = axis_list_append(list, axis);
  } while (is_list && tokens_accept_char(p, ','));
  if (is_list) tokens_expect_char(p, ')');
  return list;
}

static ReduceKind parse_reduce(Tokens *p) {
  for (int kind = 0; kind < N_REDUCTIONS; kind++) {
    if (tokens_accept_word(p, reduce_name((ReduceKind)kind)))
      return (ReduceKind)kind;
  }
  tokens_expected(p, "sum, max or min");
  return REDUCE_sum;
}

static int parse_dims(Tokens *p, const Mesh *mesh, AxisSet *used, Dim *dims) {
  int n = 0;
  int64_t elements = 1;
  while (tokens_at_name(p)) {
    for (int i = 0; i < n; i++) {
      if (dims[i].name == p->token.name) tokens_wrong(p, "a dimension twice");
    }
    if (n == MAX_RANK) tokens_wrong(p, "a type of too many dimensions");
    if (p->failed) return 0;
    dims[n].name = tokens_name(p);
    tokens_expect_char(p, ':');
    dims[n].size = tokens_int(p, 1, MAX_ELEMENTS);
    dims[n].split = 0;
    if (elements > MAX_ELEMENTS / dims[n].size) {
      tokens_wrong(p, "a type of too many elements");
      return 0;
    }
    elements *= dims[n].size;
    if (tokens_accept_char(p, '@')) dims[n].split = parse_axes(p, mesh, used);
    n++;
    if (!tokens_accept_char(p, ',')) break;
  }
  return n;
}

static const Type *parse_type(Tokens *p, const Mesh *mesh) {
  DType dtype = DT_f32;
  if (p->token.kind != TOKEN_word || !dtype_find(p->token.name, &dtype)) {
    tokens_unknown(p, "dtype");
  }
  tokens_next(p);
  tokens_expect_char(p, '[');
  Dim dims[MAX_RANK];
  AxisSet used = 0;
  int n = parse_dims(p, mesh, &used, dims);
  Type *type = type_create(p->module->arena, dtype, n);
  for (int i = 0; i < n; i++) type->dims[i] = dims[i];
  if (tokens_accept_char(p, ';')) {
    type->partial_kind = parse_reduce(p);
    tokens_expect_char(p, '@');
    type->partial = axis_list_set(parse_axes(p, mesh, &used));
  }
  tokens_expect_char(p, ']');
  return type;
}

/* ---- attributes ---- */

static void parse_names_attr(Tokens *p, AttrKey key, Attrs *attrs) {
  VEC(Name) names = {0};
  tokens_expect_char(p, '[');
  while (tokens_at_name(p) && names.n < MAX_LIST) {
    vec_push(p->module->arena, &names, tokens_name(p));
    if (!tokens_accept_char(p, ',')) break;
  }
  tokens_expect_char(p, ']');
  attrs_names(attrs, key, names.data, names.n);
}

static void parse_ints_attr(Tokens *p, AttrKey key, Attrs *attrs) {
  VEC(int64_t) values = {0};
  tokens_expect_char(p, '[');
  while (p->token.kind == TOKEN_number && values.n < MAX_LIST) {
    int64_t value = tokens_int(p, -MAX_ELEMENTS, MAX_ELEMENTS);
    vec_push(p->module->arena, &values, value);
    if (!tokens_accept_char(p, ',')) break;
  }
  tokens_expect_char(p, ']');
  attrs_ints(attrs, key, values.data, values.n);
}

static void parse_attr(Tokens *p, Attrs *attrs) {
  AttrKey key = N_ATTRS;
  if (p->token.kind != TOKEN_word || !attr_find(p->token.name, &key)) {
    tokens_unknown(p, "attribute");
    return;
  }
  if (attrs_find(attrs, key)) tokens_wrong(p, "an attribute twice");
  if (attrs->n == ARRAY_LENGTH(attrs->items))
    tokens_wrong(p, "too many attributes");
  if (p->failed) return;
  tokens_next(p);
  tokens_expect_char(p, '=');
  switch (attr_kind(key)) {
  case ATTRKIND_NAME: attrs_name(attrs, key, tokens_name(p)); break;
  case ATTRKIND_TEXT: attrs_name(attrs, key, tokens_string(p)); break;
  case ATTRKIND_NAMES: parse_names_attr(p, key, attrs); break;
  case ATTRKIND_INTS: parse_ints_attr(p, key, attrs); break;
  case ATTRKIND_INT:
    attrs_int(attrs, key, tokens_int(p, -MAX_ELEMENTS, MAX_ELEMENTS));
    break;
  case ATTRKIND_FLOAT: attrs_float(attrs, key, tokens_real(p)); break;
  }
}

static void parse_attrs(Tokens *p, Attrs *attrs) {
  if (!tokens_accept_char(p, '{')) return;
  while (!tokens_at_char(p, '}') && !p->failed) {
    parse_attr(p, attrs);
    if (!tokens_accept_char(p, ',')) break;
  }
  tokens_expect_char(p, '}');
}

/* ---- nodes ---- */

/* One body: the graph under construction and the values of its numbers. */
typedef struct Body {
  Graph *graph;
  Map *values; /* number + 1 -> Value, as pointers */
} Body;

typedef VEC(int64_t) Numbers;
typedef VEC(Value) Values;
typedef VEC(const Type *) Types;

static const void *key_of(int64_t number) {
  return (const void *)(uintptr_t)(number + 1);
}

static Value parse_use(Tokens *p, const Body *body) {
  Value *value = NULL;
  if (p->token.kind == TOKEN_value) {
    value = map_get(body->values, key_of(p->token.integer));
    if (!value) tokens_unknown(p, "earlier value");
  } else {
    tokens_expected(p, "a value");
  }
  tokens_next(p);
  return value ? *value : VALUE_NONE;
}

static void parse_numbers(Tokens *p, const Body *body, Numbers *numbers) {
  do {
    if (p->token.kind != TOKEN_value) {
      tokens_expected(p, "a value, 'output' or '}'");
      return;
    }
    int64_t number = p->token.integer;
    bool is_twice = map_has(body->values, key_of(number));
    for (int i = 0; i < numbers->n && !is_twice; i++) {
      is_twice = numbers->data[i] == number;
    }
    if (is_twice || numbers->n == MAX_RESULTS) tokens_wrong(p, "a value twice");
    vec_push(p->module->arena, numbers, number);
    tokens_next(p);
  } while (tokens_accept_char(p, ','));
}

static Op parse_op(Tokens *p) {
  Op op = OP_const;
  if (p->token.kind != TOKEN_word || !op_find(p->token.name, &op)) {
    tokens_unknown(p, "operator");
  }
  tokens_next(p);
  return op;
}

static bool parse_role(Tokens *p, Role *out_role) {
  for (int i = 0; i < N_ROLES; i++) {
    if (!tokens_accept_word(p, role_name((Role)i))) continue;
    *out_role = (Role)i;
    return true;
  }
  return false;
}

static Init parse_init(Tokens *p) {
  Init init = {0};
  for (int i = INIT_zeros; i <= INIT_eye; i++) {
    if (!tokens_accept_word(p, init_name((InitKind)i))) continue;
    init.kind = (InitKind)i;
    tokens_expect_char(p, '(');
    init.a = tokens_real(p);
    tokens_expect_char(p, ')');
    break;
  }
  return init;
}

static Phase parse_phase(Tokens *p) {
  for (int i = PHASE_forward; i <= PHASE_update; i++) {
    if (tokens_accept_word(p, phase_name((Phase)i))) return (Phase)i;
  }
  tokens_unknown(p, "phase");
  return PHASE_forward;
}

static uint16_t parse_stage(Tokens *p) {
  return (uint16_t)(tokens_int(p, 0, UINT16_MAX - 1) + 1);
}

/* "matrix(C, X)": names of the type's dims as bits; 0 where it is absent. */
static uint16_t parse_dim_set(Tokens *p, const char *word, const Type *type) {
  uint16_t set = 0;
  if (!tokens_accept_word(p, word)) return 0;
  tokens_expect_char(p, '(');
  do {
    int d = type_find(type, tokens_name(p));
    if (d < 0)
      tokens_wrong(p, "dims that this type has");
    else
      set |= (uint16_t)(1 << d);
  } while (tokens_accept_char(p, ','));
  tokens_expect_char(p, ')');
  return set;
}

static uint8_t parse_group(Tokens *p) {
  if (!tokens_accept_word(p, "group")) return 0;
  tokens_expect_char(p, '(');
  int64_t group = tokens_int(p, 1, MOST_GROUPS);
  tokens_expect_char(p, ')');
  return (uint8_t)group;
}

/* The words after the type of an input; its index is its place in order. */
static void parse_input(Tokens *p, Body *body, const Attrs *attrs,
                        const Type *type) {
  const Attr *slot = attrs_find(attrs, ATTR_index);
  int n = body->graph->inputs.n;
  if (attrs->n != 1 || !slot || slot->integer != n) {
    tokens_wrong(p,
                 "an input without its slot, in order, as its one attribute");
    return;
  }
  Role role = ROLE_data;
  if (!parse_role(p, &role)) tokens_unknown(p, "role");
  graph_input(body->graph, role, tokens_string(p), type);
  GraphInput *input = &body->graph->inputs.data[n];
  input->init = parse_init(p);
  input->is_frozen = tokens_accept_word(p, "frozen");
  input->has_decay = tokens_accept_word(p, "decay");
  input->group = parse_group(p);
  input->is_on_host = tokens_accept_word(p, "host");
  input->contracts = parse_dim_set(p, "matrix", type);
  input->batches = parse_dim_set(p, "batch", type);
}

static Graph *parse_body(Tokens *p, Name name, const Mesh *mesh);

static void define_value(Tokens *p, Body *body, const Numbers *numbers,
                         int node) {
  for (int i = 0; i < numbers->n; i++) {
    Value *value = ARENA_NEW(p->module->arena, Value);
    *value = (Value){node, i};
    map_put(body->values, key_of(numbers->data[i]), value);
  }
}

static void parse_node(Tokens *p, Body *body) {
  Graph *graph = body->graph;
  Arena *arena = p->module->arena;
  Numbers numbers = {0};
  Values inputs = {0};
  Types types = {0};
  Attrs attrs = {0};
  Span span = tokens_span(p);
  parse_numbers(p, body, &numbers);
  tokens_expect_char(p, '=');
  Op op = parse_op(p);
  if (p->token.kind == TOKEN_value) {
    do {
      vec_push(arena, &inputs, parse_use(p, body));
    } while (tokens_accept_char(p, ','));
  }
  parse_attrs(p, &attrs);
  tokens_expect_char(p, ':');
  do {
    vec_push(arena, &types, parse_type(p, &graph->mesh));
  } while (tokens_accept_char(p, ','));
  span.end = p->token.begin;
  bool is_input = op == OP_input;
  if (types.n != numbers.n || (is_input && (types.n != 1 || inputs.n))) {
    tokens_wrong(p, "a node whose types are not one for each result");
  }
  if (is_input && !p->failed) parse_input(p, body, &attrs, types.data[0]);
  Phase phase = tokens_accept_char(p, '@') ? parse_phase(p) : PHASE_forward;
  uint16_t stage = tokens_accept_word(p, "stage") ? parse_stage(p) : 0;
  Name path = name_intern(p->module->names, "");
  if (p->token.kind == TOKEN_string) path = tokens_string(p);
  Graph *region = NULL;
  if (tokens_at_char(p, '{')) region = parse_body(p, graph->name, &graph->mesh);
  if (is_input && region) tokens_wrong(p, "an input with a body");
  if (p->failed) return;
  int id = graph->nodes.n - 1;
  if (!is_input) {
    id = graph_append_typed(graph, op, inputs.data, inputs.n, &attrs,
                            types.data, types.n, region)
             .node;
  }
  Node *node = graph->nodes.data[id];
  node->span = span;
  node->phase = phase;
  node->stage = stage;
  node->path = path;
  define_value(p, body, &numbers, id);
}

static void parse_output(Tokens *p, Body *body) {
  Role role = ROLE_result;
  if (!parse_role(p, &role)) tokens_unknown(p, "role");
  Name path = tokens_string(p);
  Value value = parse_use(p, body);
  if (!p->failed) graph_output(body->graph, role, path, value);
}

static Graph *parse_body(Tokens *p, Name name, const Mesh *mesh) {
  Body body = {graph_create(p->module, name), map_create(p->module->arena)};
  body.graph->mesh = *mesh;
  if (++p->depth > MAX_NESTING) tokens_wrong(p, "bodies nested too deeply");
  tokens_expect_char(p, '{');
  while (!tokens_at_char(p, '}') && !p->failed) {
    if (tokens_accept_word(p, "output")) {
      parse_output(p, &body);
    } else {
      parse_node(p, &body);
    }
  }
  tokens_expect_char(p, '}');
  p->depth--;
  return body.graph;
}

/* ---- graphs ---- */

static Mesh parse_mesh(Tokens *p) {
  Mesh mesh = {0};
  if (!tokens_accept_word(p, "mesh")) return mesh;
  tokens_expect_char(p, '(');
  int64_t places = 1;
  do {
    if (mesh.n_axes == MAX_AXES) tokens_wrong(p, "a mesh of too many axes");
    if (tokens_at_name(p) && mesh_find(&mesh, p->token.name) >= 0) {
      tokens_wrong(p, "a mesh axis twice");
    }
    if (p->failed) return mesh;
    MeshAxis *axis = &mesh.axes[mesh.n_axes];
    axis->name = tokens_name(p);
    tokens_expect_char(p, '=');
    axis->size = (int32_t)tokens_int(p, 1, INT32_MAX);
    places *= axis->size;
    if (places > INT32_MAX) tokens_wrong(p, "a mesh of too many ranks");
    axis->is_sequential = tokens_accept_char(p, '~');
    mesh.n_axes++;
  } while (tokens_accept_char(p, ','));
  tokens_expect_char(p, ')');
  return mesh;
}

Graph *graph_parse(Module *module, const Source *source) {
  Tokens tokens = tokens_begin(module, source);
  Tokens *p = &tokens;
  if (!tokens_accept_word(p, "graph")) tokens_expected(p, "'graph'");
  Name name = tokens_name(p);
  Mesh mesh = parse_mesh(p);
  Graph *graph = parse_body(p, name, &mesh);
  if (!p->failed && p->token.kind != TOKEN_end) tokens_expected(p, "the end");
  return p->failed ? NULL : graph;
}
