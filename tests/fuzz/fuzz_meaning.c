/*
 * fuzz_meaning.c -- mutates programs and graphs so that they still parse: the
 * elaborator and the reader of IR must end in messages or in a valid graph.
 *
 *     fuzz_meaning SECONDS SEED FILES...      (.dnn and .ir)
 *
 * A mutation replaces a token by another of its kind (a name by a name of the
 * file, a number by a number, a mark by its like) or moves whole lines, so that
 * most inputs come past the parser.  Input number i depends on the seed and i
 * only; a failure prints both, and the input is in fuzz_meaning.failed while it
 * is tried.  Crashes and leaks are for the sanitizers to see.
 */
#include "frontend/frontend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 15, MOST_FILES = 1000, MOST_TOKENS = 8000, HANG = 20 };

typedef struct File {
  const char *path, *text;
  size_t n;
} File;

typedef struct TextToken {
  size_t begin, end;
  char kind; /* 'a' name, '0' number, else what it is */
} TextToken;

typedef struct Fuzz {
  uint64_t key, index; /* of random numbers */
  File files[MOST_FILES];
  int n_files;
  TextToken tokens[MOST_TOKENS];
  int n_tokens;
  char text[MOST_BYTES + 1];
  size_t n;
} Fuzz;

static _Noreturn void no_memory(void *user) {
  (void)user;
  fprintf(stderr, "fuzz_meaning: out of memory\n");
  exit(3);
}

static size_t pick(Fuzz *fuzz, size_t n) {
  return (size_t)random_below(fuzz->key, fuzz->index++, n);
}

/* ---- mutations ---- */

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_';
}

static char kind_of(const char *text, size_t begin) {
  static const char *const alike[] = {"+-*/%<>", "([", ")]", ",", ""};
  char c = text[begin];
  if (c >= '0' && c <= '9') return '0';
  if (is_word(c)) return 'a';
  for (int i = 0; *alike[i]; i++)
    if (strchr(alike[i], c)) return alike[i][0];
  return c;
}

static void find_tokens(Fuzz *fuzz) {
  fuzz->n_tokens = 0;
  for (size_t at = 0; at < fuzz->n && fuzz->n_tokens < MOST_TOKENS;) {
    size_t end = at + 1;
    if (fuzz->text[at] == '#')
      while (end < fuzz->n && fuzz->text[end] != '\n') end++;
    if (is_word(fuzz->text[at]))
      while (end < fuzz->n && is_word(fuzz->text[end])) end++;
    if (!strchr(" \n\t#\"", fuzz->text[at]))
      fuzz->tokens[fuzz->n_tokens++] =
          (TextToken){at, end, kind_of(fuzz->text, at)};
    at = end;
  }
}

static void splice(Fuzz *fuzz, size_t begin, size_t end, const char *bytes,
                   size_t n) {
  if (fuzz->n - (end - begin) + n > MOST_BYTES) return;
  memmove(fuzz->text + begin + n, fuzz->text + end, fuzz->n - end);
  memcpy(fuzz->text + begin, bytes, n);
  fuzz->n += n - (end - begin);
  fuzz->text[fuzz->n] = '\0';
}

static void replace_token(Fuzz *fuzz) {
  static const char *const numbers[] = {
      "0",   "1",   "2",    "3",          "7",  "64",
      "1e9", "0.5", "1e-9", "4294967296", "-1", "9223372036854775807"};
  TextToken token = fuzz->tokens[pick(fuzz, (size_t)fuzz->n_tokens)];
  if (token.kind == '0' && pick(fuzz, 2)) {
    const char *number = numbers[pick(fuzz, (size_t)ARRAY_LENGTH(numbers))];
    splice(fuzz, token.begin, token.end, number, strlen(number));
    return;
  }
  for (int tries = 0; tries < 40; tries++) {
    TextToken other = fuzz->tokens[pick(fuzz, (size_t)fuzz->n_tokens)];
    char copy[200];
    size_t n = other.end - other.begin;
    if (other.kind != token.kind || n > sizeof copy) continue;
    memcpy(copy, fuzz->text + other.begin, n);
    splice(fuzz, token.begin, token.end, copy, n);
    return;
  }
}

static void find_line(Fuzz *fuzz, size_t *out_begin, size_t *out_end) {
  size_t begin = pick(fuzz, fuzz->n), end = begin;
  while (begin > 0 && fuzz->text[begin - 1] != '\n') begin--;
  while (end < fuzz->n && fuzz->text[end] != '\n') end++;
  *out_begin = begin;
  *out_end = end < fuzz->n ? end + 1 : end;
}

static void move_line(Fuzz *fuzz) {
  char copy[400];
  size_t begin, end, to, ignored;
  find_line(fuzz, &begin, &end);
  if (end - begin > sizeof copy || memchr(fuzz->text + begin, '{', end - begin))
    return;
  memcpy(copy, fuzz->text + begin, end - begin);
  size_t n = end - begin;
  if (pick(fuzz, 2)) splice(fuzz, begin, end, "", 0);
  if (fuzz->n == 0) return;
  find_line(fuzz, &to, &ignored);
  if (pick(fuzz, 3)) splice(fuzz, to, to, copy, n);
}

static const File *make_input(Fuzz *fuzz) {
  const File *file = &fuzz->files[pick(fuzz, (size_t)fuzz->n_files)];
  fuzz->n = file->n < MOST_BYTES ? file->n : MOST_BYTES;
  memcpy(fuzz->text, file->text, fuzz->n);
  fuzz->text[fuzz->n] = '\0';
  for (size_t i = 1 + pick(fuzz, 4); i > 0 && fuzz->n > 0; i--) {
    find_tokens(fuzz);
    if (fuzz->n_tokens == 0) break;
    if (pick(fuzz, 4))
      replace_token(fuzz);
    else
      move_line(fuzz);
  }
  return file;
}

/* ---- what must hold ---- */

/* Imports are read from the files as they are. */
static const Source *load(void *user, const char *path) {
  Fuzz *fuzz = user;
  static Source sources[MOST_FILES + 1];
  sources[0] = (Source){"fuzz.dnn", fuzz->text, fuzz->n};
  if (!strcmp(path, "fuzz.dnn")) return &sources[0];
  const char *slash = strrchr(path, '/');
  for (int i = 0; i < fuzz->n_files; i++) {
    const char *name = strrchr(fuzz->files[i].path, '/');
    if (strcmp(name ? name + 1 : fuzz->files[i].path, slash ? slash + 1 : path))
      continue;
    sources[i + 1] = (Source){path, fuzz->files[i].text, fuzz->files[i].n};
    return &sources[i + 1];
  }
  return NULL;
}

static bool verify(const Graph *graph, Module *module) {
  Text errors = text_create(module->arena);
  if (!graph || graph_verify(graph, &errors)) return true;
  fprintf(stderr, "%s", text_string(&errors));
  return false;
}

/* A message or a valid graph; *out_is_valid: a graph. */
static bool check(Fuzz *fuzz, bool is_ir, bool *out_is_valid) {
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  Module module = {.memory = memory,
                   .arena = arena,
                   .names = names_create(arena),
                   .diags = diags_create(arena)};
  bool is_right = true;
  if (is_ir) {
    Source source = {"fuzz.ir", fuzz->text, fuzz->n};
    Graph *graph = graph_parse(&module, &source);
    *out_is_valid = graph != NULL;
  } else {
    FrontendOptions options = {
        .load = load, .user = fuzz, .path = "fuzz.dnn", .check_only = true};
    options.budget.nodes = 20000;
    options.budget.list_elements = 20000;
    options.budget.steps = 20000;
    Model *model = frontend_load(&module, &options).model;
    *out_is_valid = model != NULL;
    is_right = (model != NULL) == (diags_errors(module.diags) == 0);
    if (model)
      is_right = is_right && verify(model->train, &module) &&
                 verify(model->eval, &module) &&
                 verify(model->forward, &module);
  }
  memory_destroy(memory);
  return is_right;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int run(double seconds, uint64_t seed, Fuzz *fuzz) {
  double start = now();
  uint64_t n = 0, n_valid = 0;
  for (; now() - start < seconds; n++) {
    fuzz->key = hash_bytes(&n, sizeof n, seed);
    fuzz->index = 0;
    const File *file = make_input(fuzz);
    size_t length = strlen(file->path);
    bool is_ir = length > 3 && !strcmp(file->path + length - 3, ".ir");
    file_replace("fuzz_meaning.failed", fuzz->text, fuzz->n);
    alarm(HANG);
    bool is_valid;
    if (!check(fuzz, is_ir, &is_valid)) {
      fprintf(stderr, "fuzz_meaning: seed %llu input %llu from %s\n",
              (unsigned long long)seed, (unsigned long long)n, file->path);
      return 1;
    }
    n_valid += is_valid;
  }
  unlink("fuzz_meaning.failed");
  printf("fuzz_meaning: seed %llu: %llu inputs, %llu of them valid\n",
         (unsigned long long)seed, (unsigned long long)n,
         (unsigned long long)n_valid);
  return 0;
}

int main(int argc, char **argv) {
  static Fuzz fuzz;
  if (argc < 4 || argc - 3 > MOST_FILES) {
    fprintf(stderr, "usage: fuzz_meaning SECONDS SEED FILES...\n");
    return 1;
  }
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  for (int i = 3; i < argc; i++) {
    File *file = &fuzz.files[fuzz.n_files++];
    file->path = argv[i];
    Status status = file_read(arena, argv[i], 1 << 24, &file->text, &file->n);
    if (status.code == STATUS_ok) continue;
    fprintf(stderr, "fuzz_meaning: %s\n", status.message);
    return 3;
  }
  int code = run(atof(argv[1]), strtoull(argv[2], NULL, 10), &fuzz);
  memory_destroy(memory);
  return code;
}
