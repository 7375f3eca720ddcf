/*
 * blocks.c -- generates blocks of statements: repeat, if, and layers.
 */
#include "tests/random/maker.h"

#include <string.h>

/* Statements inside see what is outside; what they make is not seen after. */
static void make_repeat(Maker *m, Made *carried) {
  Made before = *carried;
  bool outer = m->in_repeat;
  MadeList inner = {0};
  MadeList *scope = m->scope;
  for (int i = 0; i < scope->n; i++) vec_push(m->arena, &inner, scope->data[i]);
  line(m, "repeat i in %d {", 1 + choose(m->choices, 3));
  m->scope = &inner;
  m->in_repeat = true;
  m->indent++;
  make_body(m, 4);
  const Made *last = &inner.data[inner.n - 1];
  line(m, "%s = 0.5 * %s + tanh(%s)", before.name, before.name,
       reduced_to(m, last, &before));
  m->indent--;
  m->in_repeat = outer;
  m->scope = scope;
  line(m, "}");
}

static void make_if(Maker *m, const Made *value) {
  static const char *const conditions[] = {"true", "N > 100", "training",
                                           "A == B", "not training"};
  static const char *const branches[] = {"tanh(%s)", "%s * 0.5", "1 - %s",
                                         "gelu(%s)"};
  const char *condition = conditions[choose(m->choices, 5)];
  if (m->in_repeat && choose(m->choices, 2)) condition = "i %% 2 == 0";
  line(m, condition[0] == 'i' ? "if i %% 2 == 0 {" : "if %s {", condition);
  for (int branch = 0; branch < 2; branch++) {
    const char *form = branches[choose(m->choices, ARRAY_LENGTH(branches))];
    const char *mark = strstr(form, "%s");
    m->indent++;
    line(m, "%s = %.*s%s%s", value->name, (int)(mark - form), form, value->name,
         mark + 2);
    m->indent--;
    if (branch == 0 && choose(m->choices, 2) == 0) break;
    line(m, branch == 0 ? "} else {" : "}");
    if (branch == 1) return;
  }
  line(m, "}");
}

void make_block(Maker *m) {
  Made *value = pick_value(m);
  if (choose(m->choices, 2))
    make_if(m, value);
  else if (m->indent < 3)
    make_repeat(m, value);
}

/* The last answer is always no, so that what follows stays as it is when a
 * statement is cut out. */
bool goes_on(Maker *m, int done, int at_most) {
  return choose(m->choices, done < at_most ? 16 : 1) > 0;
}

void make_body(Maker *m, int at_most) {
  for (int i = 0;; i++) {
    int piece = piece_begin(m->choices);
    if (!goes_on(m, i, at_most)) return;
    make_statement(m);
    piece_end(m->choices, piece);
  }
}

void make_layer(Maker *m) {
  Made x = {.name = "x"};
  MadeList scope = {0};
  Text body = text_create(m->arena), *out = m->out;
  for (int i = 0; i < 4; i++)
    if (i < 2 || choose(m->choices, 2)) add_dim(&x, m->file_dims[i]);
  vec_push(m->arena, &scope, x);
  m->scope = &scope;
  m->out = &body;
  m->is_in_net = false;
  make_body(m, 5);
  const Made *last = &scope.data[scope.n - 1];
  Layer layer = {
      .name = FORMAT(m, "f%d", m->layers.n), .formal = x, .result = *last};
  text_printf(&m->layer_text, "layer %s(x: %s) {\n%s  return %s\n}\n\n",
              layer.name, type_text(m, &x), text_string(&body), last->name);
  vec_push(m->arena, &m->layers, layer);
  m->out = out;
}
