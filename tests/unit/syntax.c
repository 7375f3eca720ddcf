// links: frontend
/*
 * syntax.c -- tests the parser: every model prints to text that parses to the
 * same tree, every wrong file of tests/golden/syntax gives its golden message,
 * and no depth, length or lack of memory does harm.
 *
 * With DNNC_BLESS=1 in the environment the golden files are written instead.
 */
#include "frontend/syntax/ast.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Parsed {
  Memory *memory;
  Arena *arena;
  Names *names;
  Diags *diags;
  Source source;
  Ast *ast;
} Parsed;

static _Noreturn void no_memory(void *user) {
  (void)user;
  abort();
}

static Parsed begin(void) {
  Parsed parsed = {.memory = memory_create(no_memory, NULL)};
  parsed.arena = arena_create(parsed.memory);
  parsed.names = names_create(parsed.arena);
  parsed.diags = diags_create(parsed.arena);
  return parsed;
}

static Ast *parse(Parsed *parsed, const char *path, const char *text,
                  size_t n) {
  Source source = {path, text, n};
  Source *kept = arena_copy(parsed->arena, &source, sizeof source);
  return ast_parse(parsed->arena, parsed->names, parsed->diags, kept);
}

static const char *messages(Parsed *parsed) {
  Text out = text_create(parsed->arena);
  diags_print(parsed->diags, &out);
  return text_string(&out);
}

static const char *printed(Parsed *parsed, const Ast *ast) {
  Text out = text_create(parsed->arena);
  ast_print(&out, ast);
  return text_string(&out);
}

/* ---- the same tree ---- */

static void same_expr(const Expr *a, const Expr *b);

static void same_names(NameList a, NameList b) {
  cr_assert_eq(a.n, b.n);
  for (int i = 0; i < a.n; i++) cr_assert_eq(a.names[i], b.names[i]);
}

static void same_args(ArgList a, ArgList b) {
  cr_assert_eq(a.n, b.n);
  for (int i = 0; i < a.n; i++) {
    cr_assert_eq(a.items[i].name, b.items[i].name);
    same_expr(a.items[i].value, b.items[i].value);
  }
}

static void same_node(const Expr *a, const Expr *b) {
  cr_assert(a->kind == b->kind && a->name == b->name && a->op == b->op &&
            a->integer == b->integer && a->real == b->real &&
            a->serial == b->serial && a->height == b->height);
  same_expr(a->b, b->b);
  cr_assert_eq(a->items.n, b->items.n);
  for (int i = 0; i < a->items.n; i++)
    same_expr(a->items.data[i], b->items.data[i]);
  same_args(a->args, b->args);
  cr_assert_eq(a->subs.n, b->subs.n);
  for (int i = 0; i < a->subs.n; i++) {
    const Sub *x = &a->subs.data[i], *y = &b->subs.data[i];
    cr_assert(x->kind == y->kind && x->name == y->name);
    same_expr(x->from, y->from);
    same_expr(x->to, y->to);
  }
}

static void same_expr(const Expr *a, const Expr *b) {
  for (; a && b; a = a->a, b = b->a) same_node(a, b);
  cr_assert_eq(!a, !b);
}

static void same_type(const TypeExpr *a, const TypeExpr *b) {
  cr_assert_eq(!a, !b);
  if (!a) return;
  cr_assert(a->dtype == b->dtype && a->n_dims == b->n_dims);
  for (int i = 0; i < a->n_dims; i++) {
    cr_assert_eq(a->dims[i].name, b->dims[i].name);
    same_expr(a->dims[i].size, b->dims[i].size);
  }
}

static void same_params(FormalParamList a, FormalParamList b) {
  cr_assert_eq(a.n, b.n);
  for (int i = 0; i < a.n; i++) {
    cr_assert_eq(a.items[i].name, b.items[i].name);
    same_type(a.items[i].type, b.items[i].type);
    same_expr(a.items[i].init, b.items[i].init);
  }
}

static void same_annotations(AnnotationList a, AnnotationList b) {
  cr_assert_eq(a.n, b.n);
  for (int i = 0; i < a.n; i++) {
    cr_assert_eq(a.items[i].name, b.items[i].name);
    same_args(a.items[i].args, b.items[i].args);
  }
}

static void same_body(StmtList a, StmtList b) {
  cr_assert_eq(a.n, b.n);
  for (int i = 0; i < a.n; i++) {
    const Stmt *x = a.data[i], *y = b.data[i];
    cr_assert(x->kind == y->kind && x->dim == y->dim);
    same_annotations(x->annotations, y->annotations);
    same_names(x->names, y->names);
    same_expr(x->value, y->value);
    same_type(x->type, y->type);
    same_params(x->carries, y->carries);
    same_body(x->body, y->body);
    same_body(x->else_body, y->else_body);
  }
}

static void same_settings(const Setting *a, int n_a, const Setting *b,
                          int n_b) {
  cr_assert_eq(n_a, n_b);
  for (int i = 0; i < n_a; i++) {
    cr_assert_eq(a[i].is_block, b[i].is_block);
    same_names(a[i].path, b[i].path);
    same_type(a[i].type, b[i].type);
    same_expr(a[i].value, b[i].value);
    same_settings(a[i].settings, a[i].n_settings, b[i].settings,
                  b[i].n_settings);
  }
}

static void same_pin(const Pin *a, const Pin *b) {
  cr_assert(a->kind == b->kind && a->name == b->name && a->stage == b->stage);
  cr_assert(a->exprs.n == b->exprs.n && a->n_places == b->n_places);
  for (int i = 0; i < a->exprs.n; i++)
    same_expr(a->exprs.data[i], b->exprs.data[i]);
  same_names(a->axes, b->axes);
  for (int i = 0; i < a->n_places; i++) {
    cr_assert_eq(a->places[i].dim, b->places[i].dim);
    same_names(a->places[i].axes, b->places[i].axes);
  }
  same_expr(a->value, b->value);
  same_args(a->as, b->as);
}

static void same_item(const Item *a, const Item *b) {
  cr_assert(a->kind == b->kind && a->name == b->name && a->block == b->block);
  cr_assert(a->n_bindings == b->n_bindings && a->n_pins == b->n_pins);
  cr_assert_eq(a->has_generics, b->has_generics);
  for (int i = 0; i < a->n_bindings; i++) {
    cr_assert_eq(a->bindings[i].name, b->bindings[i].name);
    same_expr(a->bindings[i].value, b->bindings[i].value);
  }
  same_annotations(a->annotations, b->annotations);
  same_names(a->generics_in, b->generics_in);
  same_names(a->generics_out, b->generics_out);
  same_params(a->params, b->params);
  cr_assert(a->result.n == b->result.n &&
            a->result.is_list == b->result.is_list);
  for (int i = 0; i < a->result.n; i++)
    same_type(a->result.data[i], b->result.data[i]);
  same_body(a->body, b->body);
  same_settings(a->settings, a->n_settings, b->settings, b->n_settings);
  for (int i = 0; i < a->n_pins; i++) same_pin(&a->pins[i], &b->pins[i]);
}

/* Prints and parses again: no message, the same tree, the same text. */
static void round_trip(const char *path, const char *text, size_t n) {
  Parsed parsed = begin();
  Ast *first = parse(&parsed, path, text, n);
  cr_assert_str_eq(messages(&parsed), "");
  const char *canonical = printed(&parsed, first);
  Ast *second = parse(&parsed, "canonical", canonical, strlen(canonical));
  cr_assert_str_eq(messages(&parsed), "");
  cr_assert_eq(first->n_items, second->n_items);
  for (int i = 0; i < first->n_items; i++)
    same_item(&first->items[i], &second->items[i]);
  cr_assert_str_eq(printed(&parsed, second), canonical);
  memory_destroy(parsed.memory);
}

static int each_file(const char *pattern,
                     void (*visit)(const char *path, const char *text,
                                   size_t n)) {
  glob_t found;
  Memory *memory = memory_create(no_memory, NULL);
  if (glob(pattern, GLOB_BRACE, NULL, &found) != 0) found.gl_pathc = 0;
  int n_found = (int)found.gl_pathc;
  for (int i = 0; i < n_found; i++) {
    const char *text;
    size_t n;
    Arena *arena = arena_create(memory);
    Status status = file_read(arena, found.gl_pathv[i], 1 << 20, &text, &n);
    cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
    visit(found.gl_pathv[i], text, n);
    arena_destroy(arena);
  }
  if (n_found > 0) globfree(&found);
  memory_destroy(memory);
  return n_found;
}

Test(syntax, models_round_trip) {
  int n = each_file(TEST_ROOT "/models/*.{dnn,cluster,plan}", round_trip);
  cr_assert_geq(n, 8);
  each_file(TEST_ROOT "/../shared/models/*.{dnn,cluster,plan}", round_trip);
}

Test(syntax, every_construct_round_trips) {
  static const char text[] =
      "import \"a.dnn\"; dim A, B = 2\nconst c = [], d = (), e = [1], f = (1)\n"
      "@frozen\n@stage(2)\n@shard(B = data, H = (seq, tensor))\n"
      "layer l[T, U -> O](x: [..., C:2 * k], n = 3, y) -> ([B], i32[]) {\n"
      "  a, b = x; @keep\n a = -b + (c - (d - e)) * -(f + g) // h % i\n"
      "  u = (-a)[T -> S] ; v = -a[T -> S]; w = (-a) * (b * c) / (d / e)\n"
      "  p = not (a and b or c) and (not d == e) ; q = (a == b) != c\n"
      "  r = x[C -> (H, D), (H, D) -> C][T = 0, S = 2..5, 3][0..n - 1]\n"
      "  f(1, k = 2, m = 0..3, (a, b), [(a)]); g()()\n"
      "  s = scan T (h: [B] = 0, c) { return h }\n"
      "  param g, h: [C]\n state t: f32[] = 0\n"
      "  if a { } else if b { x = 1 } else { if c { } }\n"
      "  if a { } else { if c { }\n y = 1 }\n"
      "  repeat i in 3 { } repeat j in 0..4 { } repeat k in [1, 2] { }\n"
      "  return (a,\n b.c.shard)\n}\n"
      "plan { }\n"
      "plan p { shard H, F over tensor; shard a.b[0..2].c[*]!mean, \"keep\".x:"
      " B over data, T over (seq, tensor), partial over none\n"
      "  replicate (keep).x, f(keep); stage 1: a on 0..7 as (data = 8)\n"
      "  stage 2: b\n cut after a.place[3]\n remat a; keep b; offload "
      "optimizer\n"
      "  place a on 2 ; zero = 3 over (data, tensor)\n bucket = 25MB\n"
      "  schedule = 1f1b; s = interleaved(v = 2); t = 2bw\n}\n"
      "cluster k { level node { count = 2; link = 10Gb/s }\n device = cpu\n"
      "  x: i32[B] = f(1) / 255\n group new { level r { } } }\n"
      "numbers { a = 1e-5; b = 1.5us; c = 2K / s; d = 1/s; e = 2B/size\n"
      "  f = 3KiB; g = 9223372036854775807; h = 0.1; i = 1e300; j = 3min }\n";
  round_trip("all.dnn", text, sizeof text - 1);
}

/* ---- what the tree holds ---- */

static Expr *expr_of(Parsed *parsed, const char *text) {
  Source source = {"expr", text, strlen(text)};
  Source *kept = arena_copy(parsed->arena, &source, sizeof source);
  return ast_parse_expr(parsed->arena, parsed->names, parsed->diags, kept);
}

Test(syntax, numbers_and_units) {
  static const struct {
    const char *text;
    double value;
    bool is_integer;
  } rows[] = {{"0.02", 0.02, false},
              {"1e-5", 1e-5, false},
              {"989T", 989e12, true},
              {"10Gb/s", 1.25e9, false},
              {"8GB/s", 8e9, false},
              {"4GiB", 4294967296.0, true},
              {"2Kib", 256, true},
              {"3b", 0.375, false},
              {"1.5us", 1.5e-6, false},
              {"45.81ms", 0.04581, false},
              {"7ns", 7e-9, false},
              {"2s", 2, false},
              {"3min", 180, false},
              {"2h", 7200, false},
              {"1.5K", 1500, false},
              {"2P", 2e15, true},
              {"0.5TiB/s", 549755813888.0, false},
              {"16b", 2, true},
              {"99999P", 99999e15, false},
              {"1e3MB", 1e9, false}};
  Parsed parsed = begin();
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    const Expr *expr = expr_of(&parsed, rows[i].text);
    ExprKind kind = rows[i].is_integer ? EXPR_int : EXPR_float;
    cr_assert(expr && expr->kind == kind, "%s", rows[i].text);
    double value = rows[i].is_integer ? (double)expr->integer : expr->real;
    cr_expect_eq(value, rows[i].value, "%s", rows[i].text);
  }
  const Expr *integer = expr_of(&parsed, " 9223372036854775807 # most\n");
  cr_assert(integer && integer->kind == EXPR_int);
  cr_assert_eq(integer->integer, INT64_MAX);
  cr_assert_str_eq(messages(&parsed), "");
  cr_assert_null(expr_of(&parsed, "1 +"));
  cr_assert_null(expr_of(&parsed, ""));
  cr_assert_null(expr_of(&parsed, "1 2"));
  cr_assert_null(expr_of(&parsed, "9223372036854775808"));
  cr_assert_eq(diags_errors(parsed.diags), 4);
  memory_destroy(parsed.memory);
}

Test(syntax, precedence_and_order) {
  Parsed parsed = begin();
  const Expr *e = expr_of(&parsed, "not a + b * -c == d and e or f");
  cr_assert_eq(e->op, OPERATOR_or);
  cr_assert_eq(e->a->op, OPERATOR_and);
  const Expr *negated = e->a->a;
  cr_assert_eq(negated->op, OPERATOR_not);
  cr_assert_eq(negated->a->op, OPERATOR_eq);
  cr_assert_eq(negated->a->a->b->b->op, OPERATOR_neg);
  /* Arguments are numbered before their call, left before right. */
  e = expr_of(&parsed, "f(g(x), h(y))");
  const Expr *g = e->args.items[0].value, *h = e->args.items[1].value;
  cr_assert(g->serial < h->serial && h->serial < e->serial);
  cr_assert(e->span.begin == 0 && e->span.end == 13);
  cr_assert(h->span.begin == 8 && h->span.end == 12);
  cr_assert_eq(e->height, 3);
  memory_destroy(parsed.memory);
}

Test(syntax, words_of_a_plan_are_names_elsewhere) {
  static const char text[] =
      "layer keep(shard, over) {\n  place = shard.stage + over\n"
      "  return place\n}\ntrain { keep = 2; stage = on }\n";
  round_trip("words.dnn", text, sizeof text - 1);
}

/* ---- golden messages ---- */

static void golden(const char *path, const char *text, size_t n) {
  Parsed parsed = begin();
  const char *name = strrchr(path, '/') + 1;
  parse(&parsed, name, text, n);
  const char *found = messages(&parsed);
  char *beside = arena_strdup(parsed.arena, path);
  memcpy(beside + strlen(beside) - 3, "txt", 3);
  const char *wanted = "";
  size_t n_wanted;
  if (getenv("DNNC_BLESS"))
    cr_assert_eq(file_replace(beside, found, strlen(found)).code, STATUS_ok);
  file_read(parsed.arena, beside, 1 << 20, &wanted, &n_wanted);
  cr_expect_str_eq(found, wanted, "%s", name);
  cr_expect_gt(diags_errors(parsed.diags), 0, "%s", name);
  memory_destroy(parsed.memory);
}

Test(syntax, golden_messages) {
  int n = each_file(TEST_ROOT "/tests/golden/syntax/*.dnn", golden);
  cr_assert_geq(n, 20);
}

/* ---- hostile input ---- */

typedef struct Deep {
  const char *head, *piece, *middle, *closer, *tail;
  bool is_right; /* no error expected, whatever the count */
} Deep;

Test(syntax, a_hundred_thousand_of_everything) {
  static const Deep rows[] = {
      {"const a = ", "(", "1", ")", "\n", false},
      {"const a = ", "(", "", "", "", false},
      {"const a = ", "[", "1", "]", "\n", false},
      {"const a = ", "f(", "", ")", "\n", false},
      {"const a = ", "x[1 or 2 and not 3 < 4 + 5 * -f(k = ", "", "", "", false},
      {"const a = x", ".b", "", "", "\n", false},
      {"const a = x", "[1]", "", "", "\n", true},
      {"const a = 1", "+1", "", "", "\n", true},
      {"const a = 1", "..1", "", "", "\n", false},
      {"const a = ", "-", "1", "", "\n", false},
      {"const a = ", "not ", "1", "", "\n", false},
      {"layer f() {", "if 1 {", "", "}", "}\n", false},
      {"layer f() {", "repeat i in 2 {", "", "}", "}\n", false},
      {"layer f() {", "y = scan T () {", "", "}", "}\n", false},
      {"layer f() { if 1 { }", " else if 1 { }", "", "", "}\n", false},
      {"layer f() { if 1 { }", " else { if 1 { }", "", "}", "}\n", false},
      {"layer f(x: ", "a[b:", "", "]", ") { }\n", false},
      {"", "a {", "", "}", "\n", false},
      {"", "{", "", "", "", false},
      {"", "}", "", "", "", false},
      {"", "layer ", "", "", "", false},
      {"", "\"", "", "", "", false},
      {"", "\xc3", "", "", "", false},
      {"layer f() {\n", "y = (\n", "", "", "}\n", false},
      {"layer f() {\n", "x = 1\n", "", "", "}\n", true},
      {"plan {\n", "stage 0: a\n", "", "", "}\n", true},
      {"const a = f(", "1, ", "1", "", ")\n", true},
      {"", ";", "", "", "", true},
      {"dim ", "a", "", "", "= 1\n", true},
      {"const a = 1", " or 1 - 2 * 3", "", "", "\n", true},
      {"const a = b", "[0].c", "", "", "\n", false},
      {"const a = -b", " ** b", "", "", "\n", false}};
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    Parsed parsed = begin();
    Text text = text_create(parsed.arena);
    text_add(&text, rows[i].head);
    for (int k = 0; k < 100000; k++) text_add(&text, rows[i].piece);
    text_add(&text, rows[i].middle);
    for (int k = 0; k < 100000; k++) text_add(&text, rows[i].closer);
    text_add(&text, rows[i].tail);
    Ast *ast = parse(&parsed, "deep.dnn", text_string(&text), text.n);
    cr_expect_eq(diags_errors(parsed.diags) == 0, rows[i].is_right,
                 "row %d: %s", i, rows[i].piece);
    messages(&parsed);
    printed(&parsed, ast);
    memory_destroy(parsed.memory);
  }
}

typedef struct Failure {
  jmp_buf back;
  Memory *memory;
} Failure;

static _Noreturn void give_back(void *user) {
  Failure *failure = user;
  memory_destroy(failure->memory);
  longjmp(failure->back, 1);
}

/* Every request of memory fails once; the leak checker sees what is kept. */
Test(syntax, exhausted_memory_leaks_nothing) {
  static const char text[] =
      "layer f(x) {\n  y = ((((((((((1 +\n  z = f(a, k = 3)[T -> S]\n}\n";
  static const Source source = {"m.dnn", text, sizeof text - 1};
  static Failure failure;
  for (volatile int64_t n = 0;; n++) {
    if (setjmp(failure.back) != 0) continue;
    failure.memory = memory_create(give_back, &failure);
    memory_fail_at(failure.memory, n, false);
    Arena *arena = arena_create(failure.memory);
    Diags *diags = diags_create(arena);
    Ast *ast = ast_parse(arena, names_create(arena), diags, &source);
    Text out = text_create(arena);
    ast_print(&out, ast);
    diags_print(diags, &out);
    bool is_done = memory_requests(failure.memory) <= n;
    memory_destroy(failure.memory);
    if (is_done) break;
  }
}
