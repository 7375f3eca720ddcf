// links: frontend ir support
/*
 * wrong_operators.c -- gives every operator of the language dims that do not
 * fit; tests/golden/operators.txt holds its messages.
 *
 * The calls are made from the tables: a row of builtins.def is called with a
 * dim that its operands have not (or, where it makes a new one, have already),
 * a pointwise row of ops.def with two operands that disagree in a size.  A new
 * operator appears in the golden by itself.  DNNC_BLESS=1 writes it anew.
 */
#include "frontend/frontend.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN TEST_ROOT "/tests/golden/operators.txt"

static void out_of_memory(void *user) {
  (void)user;
  abort();
}

static const Source *load(void *user, const char *path) {
  (void)path;
  return user;
}

static bool is_one_of(const char *word, const char *list) {
  size_t n = strlen(word);
  for (const char *at = list; (at = strstr(at, word)); at += n)
    if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
  return false;
}

/* An argument for a formal parameter.  x and u disagree in the size of C, y is
 * an integer. */
static const char *argument(const char *op, const char *formal, bool is_dims) {
  if (is_dims)
    return is_one_of(op, "stack one_hot dispatch") ? "B"
           : strcmp(op, "scatter_add") == 0        ? "C"
           : strcmp(formal, "space") == 0          ? "(Q, R)"
                                                   : "Q";
  if (is_one_of(op, "mse l1 huber bce") && formal[0] == 'y') return "u";
  if (strcmp(op, "dropout") == 0 && formal[0] == 'p') return "0.5";
  if (is_one_of(op, "normal uniform bernoulli")) return "y";
  if (is_one_of(op, "any all")) return "x > 0";
  if (formal[0] == 'c') return strcmp(op, "mask") ? "x > 0" : "u > 0";
  if (strcmp(formal, "dtype") == 0) return "f23";
  return is_one_of(formal, "b w")                ? "u"
         : is_one_of(formal, "i y")              ? "y"
         : is_one_of(formal, "list")             ? "[x, u]"
         : is_one_of(formal, "n k before after") ? "2"
         : is_one_of(formal, "from")             ? "0"
                                                 : "x";
}

/* The call of a row; formals with a default are left out, but for dims. */
static const char *call_of(Arena *arena, const char *op, const char *formals) {
  Text call = text_create(arena);
  text_printf(&call, "%s(", op);
  char *list = arena_strdup(arena, formals), *rest = NULL;
  bool is_first = true;
  for (char *word = strtok_r(list, ",", &rest); word;
       word = strtok_r(NULL, ",", &rest)) {
    while (*word == ' ') word++;
    bool is_dims = strstr(word, ":dims") != NULL;
    bool has_default = strchr(word, '=') != NULL;
    word[strcspn(word, " :=")] = '\0';
    if (has_default && !is_dims) continue;
    text_printf(&call, "%s%s%s%s", is_first ? "" : ", ",
                has_default ? word : "", has_default ? " = " : "",
                argument(op, word, is_dims));
    is_first = false;
  }
  text_add(&call, ")");
  return text_string(&call);
}

static void try_call(Text *out, const char *op, const char *call) {
  Memory *memory = memory_create(out_of_memory, NULL);
  Arena *arena = arena_create(memory);
  Module module = {memory, arena, names_create(arena), diags_create(arena)};
  const char *text = arena_printf(
      arena,
      "dim B = 2, C = 4\n"
      "net f(x: [B, C], u: [B, C:5], y: i32[B]) -> [B] {\n"
      "%s  return sum(x, C)\n"
      "}\n",
      strcmp(op, "add_loss") ? arena_printf(arena, "  z = %s\n", call)
                             : arena_printf(arena, "  %s\n", call));
  Source source = {"f.dnn", text, strlen(text)};
  FrontendOptions options = {.load = load, .user = &source, .path = "f.dnn"};
  cr_expect(frontend_load(&module, &options).model == NULL, "%s is accepted",
            call);
  cr_expect_geq(diags_errors(module.diags), 1, "%s", op);
  diags_print(module.diags, out);
  text_add(out, "\n");
  memory_destroy(memory);
}

typedef struct Row {
  const char *name, *formals;
  const char *function; /* `pointwise`: the row of ops.def is tried */
} Row;

static const Row rows[] = {
#define BUILTIN(name, formals, mapped, function) {#name, formals, #function},
#include "frontend/operators/builtins.def"
#define PW2(name, ...) {#name, NULL, ""},
#include "ir/ops.def"
};

/* Two operands of the kind that the operator takes. */
static const char *call_of_two(Arena *arena, const char *op) {
  static const char *const signs[][2] = {
      {"add", "+"},   {"sub", "-"}, {"mul", "*"},       {"div", "/"},
      {"eq", "=="},   {"ne", "!="}, {"lt", "<"},        {"gt", ">"},
      {"le", "<="},   {"ge", ">="}, {"floordiv", "//"}, {"mod", "%"},
      {"and", "and"}, {"or", "or"}};
  const char *format = is_one_of(op, "and or") ? "(x > 0) %s (u > 0)"
                       : is_one_of(op, "floordiv mod")
                           ? "cast(x, i32) %s cast(u, i32)"
                           : "x %s u";
  for (int i = 0; i < ARRAY_LENGTH(signs); i++) {
    if (strcmp(signs[i][0], op) != 0) continue;
    Text call = text_create(arena);
    const char *at = strstr(format, "%s");
    text_add_n(&call, format, (size_t)(at - format));
    text_printf(&call, "%s%s", signs[i][1], at + 2);
    return text_string(&call);
  }
  return arena_printf(arena, "%s(x, u)", op);
}

Test(wrong_operators, say_what_does_not_fit) {
  Memory *memory = memory_create(out_of_memory, NULL);
  Arena *arena = arena_create(memory);
  Text out = text_create(arena);
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    const char *op = rows[i].name, *formals = rows[i].formals;
    if (strcmp(rows[i].function, "pointwise") == 0) continue;
    const char *call =
        formals ? call_of(arena, op, formals) : call_of_two(arena, op);
    try_call(&out, op, call);
  }
  const char *want = "";
  size_t n;
  if (getenv("DNNC_BLESS"))
    file_replace(GOLDEN, text_string(&out), out.n);
  else if (file_read(arena, GOLDEN, 1 << 20, &want, &n).code == STATUS_ok)
    cr_expect_str_eq(text_string(&out), want, "got\n%s", text_string(&out));
  else
    cr_expect(false, "no golden");
  memory_destroy(memory);
}
