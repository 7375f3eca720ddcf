/*
 * parse.c -- reads the text form of graphs (head of ir.h).
 *
 * Recursive descent over a hand-written lexer; newlines mean nothing.  The
 * input may be anything: every size, number and reference is checked here, and
 * the first mistake ends the parse.  Whether the types are those of the
 * operators' rules is graph_verify's question.
 *
 *     graph  = "graph" name [ "mesh" "(" axis { "," axis } ")" ] body
 *     axis   = name "=" INT [ "~" ]
 *     body   = "{" { node | "output" role STRING value } "}"
 *     node   = values "=" op [ values ] [ attrs ] ":" types
 *              [ role STRING [ init "(" REAL ")" ] [ "frozen" ] [ "decay" ]
 *                [ "matrix" names ] [ "batch" names ] ]
 *              [ "@" phase ] [ STRING ] [ body ]
 *     type   = dtype "[" [ dim { "," dim } ] [ ";" reduce "@" axes ] "]"
 *     dim    = name ":" INT [ "@" axes ]        axes = name | "(" names ")"
 *     attrs  = "{" key "=" value { "," key "=" value } "}"
 *     names  = "(" name { "," name } ")"
 *     name   = WORD | STRING
 */
#include "ir/ir.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NESTING  16
#define MAX_LIST     4096
#define MAX_RESULTS  65536 /* of one node; fused ones have many */
#define MAX_ELEMENTS (INT64_MAX >> 8)

typedef enum TokenKind {
  TOKEN_end,
  TOKEN_word, /* f32, P, and what begins like a number: 1e-5, -3 */
  TOKEN_number,
  TOKEN_string, /* name */
  TOKEN_value,  /* %12: integer */
  TOKEN_char,   /* one byte of punctuation */
} TokenKind;

typedef struct Token {
  TokenKind kind;
  uint32_t begin, end;
  Name name;       /* word, string, text of a number */
  int64_t integer; /* value */
} Token;

typedef struct Parser {
  Module *module;
  const Source *source;
  uint32_t at;
  Token token; /* the next one */
  bool failed;
  int depth;
} Parser;

/* ---- mistakes ---- */

static Span parser_span(const Parser *p) {
  return (Span){p->source, p->token.begin, p->token.end};
}

/* The first mistake stops the parse: from then on the input is at its end. */
static void parser_stop(Parser *p) {
  p->failed = true;
  p->token.kind = TOKEN_end;
  p->token.name = name_intern(p->module->names, "");
  p->at = (uint32_t)p->source->n;
}

static const char *token_text(const Parser *p) {
  if (p->token.kind == TOKEN_end) return "the end";
  int n = (int)(p->token.end - p->token.begin);
  return arena_printf(p->module->arena, "'%.*s'", n < 40 ? n : 40,
                      p->source->text + p->token.begin);
}

static void report_expected(Parser *p, const char *what) {
  if (p->failed) return;
  diag(p->module->diags, DIAG_unexpected, parser_span(p), token_text(p), what);
  parser_stop(p);
}

static void report_unknown(Parser *p, const char *what) {
  if (p->failed) return;
  diag(p->module->diags, DIAG_ir_unknown, parser_span(p), what, token_text(p));
  parser_stop(p);
}

static void report_wrong(Parser *p, const char *what) {
  if (p->failed) return;
  diag(p->module->diags, DIAG_ir_wrong, parser_span(p), what);
  parser_stop(p);
}

/* ---- tokens ---- */

static bool is_ascii_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

static char byte_at(const Parser *p, uint32_t at) {
  return at < p->source->n ? p->source->text[at] : '\0';
}

static void skip_space(Parser *p) {
  while (p->at < p->source->n) {
    char c = byte_at(p, p->at);
    if (c == '#') {
      while (p->at < p->source->n && byte_at(p, p->at) != '\n') p->at++;
    } else if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      p->at++;
    } else {
      return;
    }
  }
}

static Name text_between(const Parser *p, uint32_t begin, uint32_t end) {
  return name_intern_n(p->module->names, p->source->text + begin, end - begin);
}

static int hex_digit(char c) {
  if (is_ascii_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

static void add_utf8(Text *text, unsigned code) {
  char bytes[3];
  int n = 0;
  if (code < 0x80) {
    bytes[n++] = (char)code;
  } else if (code < 0x800) {
    bytes[n++] = (char)(0xc0 | code >> 6);
    bytes[n++] = (char)(0x80 | (code & 63));
  } else {
    bytes[n++] = (char)(0xe0 | code >> 12);
    bytes[n++] = (char)(0x80 | (code >> 6 & 63));
    bytes[n++] = (char)(0x80 | (code & 63));
  }
  text_add_n(text, bytes, (size_t)n);
}

/* The escape at p->at, which is the byte after '\'; false if there is none of
 * that kind.  text_add_json writes no surrogates, so none are read. */
static bool lex_escape(Parser *p, Text *text) {
  char c = byte_at(p, p->at++);
  switch (c) {
  case '"':
  case '\\': text_add_n(text, &c, 1); return true;
  case 'n': text_add(text, "\n"); return true;
  case 't': text_add(text, "\t"); return true;
  case 'r': text_add(text, "\r"); return true;
  case 'u': break;
  default: return false;
  }
  unsigned code = 0;
  for (int i = 0; i < 4; i++) {
    int digit = hex_digit(byte_at(p, p->at));
    if (digit < 0) return false;
    p->at++;
    code = code << 4 | (unsigned)digit;
  }
  if (code == 0 || (code >= 0xd800 && code < 0xe000)) return false;
  add_utf8(text, code);
  return true;
}

/* Reports a mistake at the bytes from `begin` to where the lexer is. */
static void wrong_bytes(Parser *p, uint32_t begin, const char *what) {
  uint32_t n = (uint32_t)p->source->n; /* a last '\\' reads past the end */
  p->token = (Token){.begin = begin, .end = p->at < n ? p->at : n};
  report_wrong(p, what);
}

static void lex_string(Parser *p) {
  Text text = text_create(p->module->arena);
  uint32_t begin = p->at++;
  for (;;) {
    const char *c = p->source->text + p->at;
    if (p->at >= p->source->n || *c == '\n' || *c == '\0') {
      wrong_bytes(p, begin, "a string without a closing '\"' on its line");
      return;
    }
    int n = text_utf8_length(c);
    p->at += n ? (uint32_t)n : 1;
    if (*c == '"') break;
    if (!n) {
      wrong_bytes(p, begin, "a string with a byte that is no UTF-8");
      return;
    }
    if (*c != '\\') {
      text_add_n(&text, c, (size_t)n);
    } else if (!lex_escape(p, &text)) {
      wrong_bytes(p, begin,
                  "an escape that is not one of \\\" \\\\ \\n \\t \\r \\uXXXX");
      return;
    }
  }
  p->token = (Token){.kind = TOKEN_string, .begin = begin, .end = p->at};
  p->token.name = name_intern_n(p->module->names, text_string(&text), text.n);
}

static bool continues_number(const Parser *p) {
  char c = byte_at(p, p->at), before = byte_at(p, p->at - 1);
  if (is_ascii_letter(c) || is_ascii_digit(c) || c == '.') return true;
  return (c == '-' || c == '+') && (before == 'e' || before == 'E');
}

static void lex_number(Parser *p) {
  uint32_t begin = p->at++;
  while (continues_number(p)) p->at++;
  p->token =
      (Token){TOKEN_number, begin, p->at, text_between(p, begin, p->at), 0};
}

static void lex_value(Parser *p) {
  uint32_t begin = p->at++;
  int64_t number = 0;
  while (is_ascii_digit(byte_at(p, p->at)) && number < INT32_MAX) {
    number = number * 10 + (byte_at(p, p->at++) - '0');
  }
  p->token = (Token){
      .kind = TOKEN_value, .begin = begin, .end = p->at, .integer = number};
  if (p->at == begin + 1 || number >= INT32_MAX) {
    report_wrong(p, "a value that is not % and a number");
  }
}

static void next_token(Parser *p) {
  if (p->failed) return;
  skip_space(p);
  uint32_t begin = p->at;
  char c = byte_at(p, begin);
  if (begin >= p->source->n) {
    p->token = (Token){.begin = begin, .end = begin};
    p->token.name = name_intern(p->module->names, "");
  } else if (is_ascii_letter(c)) {
    while (is_ascii_letter(byte_at(p, p->at)) ||
           is_ascii_digit(byte_at(p, p->at)))
      p->at++;
    p->token =
        (Token){TOKEN_word, begin, p->at, text_between(p, begin, p->at), 0};
  } else if (is_ascii_digit(c) || c == '-') {
    lex_number(p);
  } else if (c == '"') {
    lex_string(p);
  } else if (c == '%') {
    lex_value(p);
  } else {
    p->at++;
    p->token = (Token){.kind = TOKEN_char, .begin = begin, .end = p->at};
  }
}

static bool token_is_char(const Parser *p, char c) {
  return p->token.kind == TOKEN_char && p->source->text[p->token.begin] == c;
}

static bool accept_char(Parser *p, char c) {
  if (!token_is_char(p, c)) return false;
  next_token(p);
  return true;
}

static void expect_char(Parser *p, char c) {
  if (accept_char(p, c)) return;
  report_expected(p, (char[]){'\'', c, '\'', '\0'});
}

static bool token_is_word(const Parser *p, const char *word) {
  return p->token.kind == TOKEN_word && strcmp(p->token.name, word) == 0;
}

static bool accept_word(Parser *p, const char *word) {
  if (!token_is_word(p, word)) return false;
  next_token(p);
  return true;
}

static bool token_is_name(const Parser *p) {
  return p->token.kind == TOKEN_word || p->token.kind == TOKEN_string;
}

/* Never NULL. */
static Name parse_name(Parser *p) {
  Name name = p->token.name;
  if (token_is_name(p)) {
    next_token(p);
    return name;
  }
  report_expected(p, "a name");
  return p->token.name;
}

static Name parse_string(Parser *p) {
  Name name = p->token.name;
  if (p->token.kind == TOKEN_string) {
    next_token(p);
    return name;
  }
  report_expected(p, "a string");
  return p->token.name;
}

/* Within [low, high]; `low` after a mistake. */
static int64_t parse_int(Parser *p, int64_t low, int64_t high) {
  if (p->token.kind != TOKEN_number) {
    report_expected(p, "an integer");
    return low;
  }
  const char *text = p->token.name, *digits = text + (*text == '-');
  if (!*digits || strspn(digits, "0123456789") != strlen(digits)) {
    report_expected(p, "an integer");
    return low;
  }
  bool is_small = strlen(digits) < 19; /* 10^18 fits */
  int64_t value = is_small ? strtoll(text, NULL, 10) : 0;
  if (!is_small || value < low || value > high) {
    report_wrong(p, "a number that is out of range here");
    return low;
  }
  next_token(p);
  return value;
}

/* inf and nan are words, -inf is a number token. */
static double parse_real(Parser *p) {
  bool is_real = p->token.kind == TOKEN_number || token_is_word(p, "inf") ||
                 token_is_word(p, "nan");
  char *end = NULL;
  double value = is_real ? strtod(p->token.name, &end) : 0;
  if (!is_real || *end) {
    report_expected(p, "a number");
    return 0;
  }
  next_token(p);
  return value;
}

/* ---- types ---- */

static int parse_axis(Parser *p, const Mesh *mesh) {
  int axis = token_is_name(p) ? mesh_find(mesh, p->token.name) : -1;
  if (axis < 0) {
    report_unknown(p, "mesh axis");
    return 0;
  }
  next_token(p);
  return axis;
}

/* After '@'.  `used` collects the axes of a type: each may stand once. */
static AxisList parse_axes(Parser *p, const Mesh *mesh, AxisSet *used) {
  AxisList list = 0;
  bool is_list = accept_char(p, '(');
  do {
    int axis = parse_axis(p, mesh);
    if (p->failed) return 0;
    if (*used >> axis & 1) {
      report_wrong(p, "a mesh axis twice in one type");
      return 0;
    }
    *used |= (AxisSet)(1u << axis);
    list = axis_list_append(list, axis);
  } while (is_list && accept_char(p, ','));
  if (is_list) expect_char(p, ')');
  return list;
}

static ReduceKind parse_reduce(Parser *p) {
  for (int kind = 0; kind < N_REDUCTIONS; kind++) {
    if (accept_word(p, reduce_name((ReduceKind)kind))) return (ReduceKind)kind;
  }
  report_expected(p, "sum, max or min");
  return REDUCE_sum;
}

static int parse_dims(Parser *p, const Mesh *mesh, AxisSet *used, Dim *dims) {
  int n = 0;
  int64_t elements = 1;
  while (token_is_name(p)) {
    for (int i = 0; i < n; i++) {
      if (dims[i].name == p->token.name) report_wrong(p, "a dimension twice");
    }
    if (n == MAX_RANK) report_wrong(p, "a type of too many dimensions");
    if (p->failed) return 0;
    dims[n].name = parse_name(p);
    expect_char(p, ':');
    dims[n].size = parse_int(p, 1, MAX_ELEMENTS);
    dims[n].split = 0;
    if (elements > MAX_ELEMENTS / dims[n].size) {
      report_wrong(p, "a type of too many elements");
      return 0;
    }
    elements *= dims[n].size;
    if (accept_char(p, '@')) dims[n].split = parse_axes(p, mesh, used);
    n++;
    if (!accept_char(p, ',')) break;
  }
  return n;
}

static const Type *parse_type(Parser *p, const Mesh *mesh) {
  DType dtype = DT_f32;
  if (p->token.kind != TOKEN_word || !dtype_find(p->token.name, &dtype)) {
    report_unknown(p, "dtype");
  }
  next_token(p);
  expect_char(p, '[');
  Dim dims[MAX_RANK];
  AxisSet used = 0;
  int n = parse_dims(p, mesh, &used, dims);
  Type *type = type_create(p->module->arena, dtype, n);
  for (int i = 0; i < n; i++) type->dims[i] = dims[i];
  if (accept_char(p, ';')) {
    type->partial_kind = parse_reduce(p);
    expect_char(p, '@');
    type->partial = axis_list_set(parse_axes(p, mesh, &used));
  }
  expect_char(p, ']');
  return type;
}

/* ---- attributes ---- */

static void parse_names_attr(Parser *p, AttrKey key, Attrs *attrs) {
  VEC(Name) names = {0};
  expect_char(p, '[');
  while (token_is_name(p) && names.n < MAX_LIST) {
    vec_push(p->module->arena, &names, parse_name(p));
    if (!accept_char(p, ',')) break;
  }
  expect_char(p, ']');
  attrs_names(attrs, key, names.data, names.n);
}

static void parse_ints_attr(Parser *p, AttrKey key, Attrs *attrs) {
  VEC(int64_t) values = {0};
  expect_char(p, '[');
  while (p->token.kind == TOKEN_number && values.n < MAX_LIST) {
    int64_t value = parse_int(p, -MAX_ELEMENTS, MAX_ELEMENTS);
    vec_push(p->module->arena, &values, value);
    if (!accept_char(p, ',')) break;
  }
  expect_char(p, ']');
  attrs_ints(attrs, key, values.data, values.n);
}

static void parse_attr(Parser *p, Attrs *attrs) {
  AttrKey key = N_ATTRS;
  if (p->token.kind != TOKEN_word || !attr_find(p->token.name, &key)) {
    report_unknown(p, "attribute");
    return;
  }
  if (attrs_find(attrs, key)) report_wrong(p, "an attribute twice");
  if (attrs->n == ARRAY_LENGTH(attrs->items))
    report_wrong(p, "too many attributes");
  if (p->failed) return;
  next_token(p);
  expect_char(p, '=');
  switch (attr_kind(key)) {
  case ATTRKIND_NAME: attrs_name(attrs, key, parse_name(p)); break;
  case ATTRKIND_TEXT: attrs_name(attrs, key, parse_string(p)); break;
  case ATTRKIND_NAMES: parse_names_attr(p, key, attrs); break;
  case ATTRKIND_INTS: parse_ints_attr(p, key, attrs); break;
  case ATTRKIND_INT:
    attrs_int(attrs, key, parse_int(p, -MAX_ELEMENTS, MAX_ELEMENTS));
    break;
  case ATTRKIND_FLOAT: attrs_float(attrs, key, parse_real(p)); break;
  }
}

static void parse_attrs(Parser *p, Attrs *attrs) {
  if (!accept_char(p, '{')) return;
  while (!token_is_char(p, '}') && !p->failed) {
    parse_attr(p, attrs);
    if (!accept_char(p, ',')) break;
  }
  expect_char(p, '}');
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

static Value parse_use(Parser *p, const Body *body) {
  Value *value = NULL;
  if (p->token.kind == TOKEN_value) {
    value = map_get(body->values, key_of(p->token.integer));
    if (!value) report_unknown(p, "earlier value");
  } else {
    report_expected(p, "a value");
  }
  next_token(p);
  return value ? *value : VALUE_NONE;
}

static void parse_numbers(Parser *p, const Body *body, Numbers *numbers) {
  do {
    if (p->token.kind != TOKEN_value) {
      report_expected(p, "a value, 'output' or '}'");
      return;
    }
    int64_t number = p->token.integer;
    bool is_twice = map_has(body->values, key_of(number));
    for (int i = 0; i < numbers->n && !is_twice; i++) {
      is_twice = numbers->data[i] == number;
    }
    if (is_twice || numbers->n == MAX_RESULTS) report_wrong(p, "a value twice");
    vec_push(p->module->arena, numbers, number);
    next_token(p);
  } while (accept_char(p, ','));
}

static Op parse_op(Parser *p) {
  Op op = OP_const;
  if (p->token.kind != TOKEN_word || !op_find(p->token.name, &op)) {
    report_unknown(p, "operator");
  }
  next_token(p);
  return op;
}

static bool parse_role(Parser *p, Role *out_role) {
  for (int i = 0; i < N_ROLES; i++) {
    if (!accept_word(p, role_name((Role)i))) continue;
    *out_role = (Role)i;
    return true;
  }
  return false;
}

static Init parse_init(Parser *p) {
  Init init = {0};
  for (int i = INIT_zeros; i <= INIT_eye; i++) {
    if (!accept_word(p, init_name((InitKind)i))) continue;
    init.kind = (InitKind)i;
    expect_char(p, '(');
    init.a = parse_real(p);
    expect_char(p, ')');
    break;
  }
  return init;
}

static Phase parse_phase(Parser *p) {
  for (int i = PHASE_forward; i <= PHASE_update; i++) {
    if (accept_word(p, phase_name((Phase)i))) return (Phase)i;
  }
  report_unknown(p, "phase");
  return PHASE_forward;
}

/* "matrix(C, X)": names of the type's dims as bits; 0 where it is absent. */
static uint16_t parse_dim_set(Parser *p, const char *word, const Type *type) {
  uint16_t set = 0;
  if (!accept_word(p, word)) return 0;
  expect_char(p, '(');
  do {
    int d = type_find(type, parse_name(p));
    if (d < 0)
      report_wrong(p, "dims that this type has");
    else
      set |= (uint16_t)(1 << d);
  } while (accept_char(p, ','));
  expect_char(p, ')');
  return set;
}

/* The words after the type of an input; its index is its place in order. */
static void parse_input(Parser *p, Body *body, const Attrs *attrs,
                        const Type *type) {
  const Attr *slot = attrs_find(attrs, ATTR_index);
  int n = body->graph->inputs.n;
  if (attrs->n != 1 || !slot || slot->integer != n) {
    report_wrong(p,
                 "an input without its slot, in order, as its one attribute");
    return;
  }
  Role role = ROLE_data;
  if (!parse_role(p, &role)) report_unknown(p, "role");
  graph_input(body->graph, role, parse_string(p), type);
  GraphInput *input = &body->graph->inputs.data[n];
  input->init = parse_init(p);
  input->is_frozen = accept_word(p, "frozen");
  input->has_decay = accept_word(p, "decay");
  input->contracts = parse_dim_set(p, "matrix", type);
  input->batches = parse_dim_set(p, "batch", type);
}

static Graph *parse_body(Parser *p, Name name, const Mesh *mesh);

static void define_value(Parser *p, Body *body, const Numbers *numbers,
                         int node) {
  for (int i = 0; i < numbers->n; i++) {
    Value *value = ARENA_NEW(p->module->arena, Value);
    *value = (Value){node, i};
    map_put(body->values, key_of(numbers->data[i]), value);
  }
}

static void parse_node(Parser *p, Body *body) {
  Graph *graph = body->graph;
  Arena *arena = p->module->arena;
  Numbers numbers = {0};
  Values inputs = {0};
  Types types = {0};
  Attrs attrs = {0};
  Span span = parser_span(p);
  parse_numbers(p, body, &numbers);
  expect_char(p, '=');
  Op op = parse_op(p);
  if (p->token.kind == TOKEN_value) {
    do {
      vec_push(arena, &inputs, parse_use(p, body));
    } while (accept_char(p, ','));
  }
  parse_attrs(p, &attrs);
  expect_char(p, ':');
  do {
    vec_push(arena, &types, parse_type(p, &graph->mesh));
  } while (accept_char(p, ','));
  span.end = p->token.begin;
  bool is_input = op == OP_input;
  if (types.n != numbers.n || (is_input && (types.n != 1 || inputs.n))) {
    report_wrong(p, "a node whose types are not one for each result");
  }
  if (is_input && !p->failed) parse_input(p, body, &attrs, types.data[0]);
  Phase phase = accept_char(p, '@') ? parse_phase(p) : PHASE_forward;
  Name path = name_intern(p->module->names, "");
  if (p->token.kind == TOKEN_string) path = parse_string(p);
  Graph *region = NULL;
  if (token_is_char(p, '{')) region = parse_body(p, graph->name, &graph->mesh);
  if (is_input && region) report_wrong(p, "an input with a body");
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
  node->path = path;
  define_value(p, body, &numbers, id);
}

static void parse_output(Parser *p, Body *body) {
  Role role = ROLE_result;
  if (!parse_role(p, &role)) report_unknown(p, "role");
  Name path = parse_string(p);
  Value value = parse_use(p, body);
  if (!p->failed) graph_output(body->graph, role, path, value);
}

static Graph *parse_body(Parser *p, Name name, const Mesh *mesh) {
  Body body = {graph_create(p->module, name), map_create(p->module->arena)};
  body.graph->mesh = *mesh;
  if (++p->depth > MAX_NESTING) report_wrong(p, "bodies nested too deeply");
  expect_char(p, '{');
  while (!token_is_char(p, '}') && !p->failed) {
    if (accept_word(p, "output")) {
      parse_output(p, &body);
    } else {
      parse_node(p, &body);
    }
  }
  expect_char(p, '}');
  p->depth--;
  return body.graph;
}

/* ---- graphs ---- */

static Mesh parse_mesh(Parser *p) {
  Mesh mesh = {0};
  if (!accept_word(p, "mesh")) return mesh;
  expect_char(p, '(');
  int64_t places = 1;
  do {
    if (mesh.n_axes == MAX_AXES) report_wrong(p, "a mesh of too many axes");
    if (token_is_name(p) && mesh_find(&mesh, p->token.name) >= 0) {
      report_wrong(p, "a mesh axis twice");
    }
    if (p->failed) return mesh;
    MeshAxis *axis = &mesh.axes[mesh.n_axes];
    axis->name = parse_name(p);
    expect_char(p, '=');
    axis->size = (int32_t)parse_int(p, 1, INT32_MAX);
    places *= axis->size;
    if (places > INT32_MAX) report_wrong(p, "a mesh of too many ranks");
    axis->is_sequential = accept_char(p, '~');
    mesh.n_axes++;
  } while (accept_char(p, ','));
  expect_char(p, ')');
  return mesh;
}

Graph *graph_parse(Module *module, const Source *source) {
  Parser parser = {.module = module, .source = source};
  Parser *p = &parser;
  if (source->n > UINT32_MAX) {
    diag(module->diags, DIAG_ir_wrong, SPAN_NONE, "a text over 4 GiB");
    return NULL;
  }
  next_token(p);
  if (!accept_word(p, "graph")) report_expected(p, "'graph'");
  Name name = parse_name(p);
  Mesh mesh = parse_mesh(p);
  Graph *graph = parse_body(p, name, &mesh);
  if (!p->failed && p->token.kind != TOKEN_end) report_expected(p, "the end");
  return p->failed ? NULL : graph;
}
