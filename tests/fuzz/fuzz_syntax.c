/*
 * fuzz_syntax.c -- mutates files of the three kinds and gives them to the
 * parser; whatever comes must end in messages or in a tree whose text parses
 * back without a message.
 *
 *     fuzz_syntax SECONDS SEED FILES...
 *
 * Mutations work on tokens (words, numbers, marks) more often than on bytes,
 * because bytes alone rarely come past the scanner.  Input number i depends on
 * the seed and i only; a failure prints both and leaves the input in
 * fuzz_syntax.failed.  Crashes and leaks are for the sanitizers to see.
 */
#include "frontend/syntax/ast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_BYTES = 1 << 16, MOST_FILES = 1000, SLOW_SECONDS = 2 };

typedef struct Random {
  uint64_t key, index;
} Random;

typedef struct Input {
  char bytes[MOST_BYTES + 1];
  size_t n;
} Input;

typedef struct Corpus {
  const char *texts[MOST_FILES];
  size_t sizes[MOST_FILES];
  int n;
} Corpus;

static _Noreturn void no_memory(void *user) {
  (void)user;
  fprintf(stderr, "fuzz_syntax: out of memory\n");
  exit(3);
}

static size_t pick(Random *random, size_t n) {
  return (size_t)random_below(random->key, random->index++, n);
}

/* Replaces bytes [begin, end) by n others, if there is room. */
static void splice(Input *input, size_t begin, size_t end, const char *bytes,
                   size_t n) {
  if (input->n - (end - begin) + n > MOST_BYTES) return;
  memmove(input->bytes + begin + n, input->bytes + end, input->n - end);
  memcpy(input->bytes + begin, bytes, n);
  input->n += n - (end - begin);
}

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_';
}

/* The token around a random place. */
static void find_token(const Input *input, Random *random, size_t *out_begin,
                       size_t *out_end) {
  size_t begin = pick(random, input->n), end = begin + 1;
  if (is_word(input->bytes[begin])) {
    while (begin > 0 && is_word(input->bytes[begin - 1])) begin--;
    while (end < input->n && is_word(input->bytes[end])) end++;
  }
  *out_begin = begin;
  *out_end = end;
}

static const char *const words[] = {"import",
                                    "dim",
                                    "const",
                                    "layer",
                                    "net",
                                    "param",
                                    "state",
                                    "repeat",
                                    "scan",
                                    "in",
                                    "if",
                                    "else",
                                    "return",
                                    "and",
                                    "or",
                                    "not",
                                    "plan",
                                    "shard",
                                    "over",
                                    "partial",
                                    "replicate",
                                    "stage",
                                    "cut",
                                    "after",
                                    "remat",
                                    "keep",
                                    "offload",
                                    "place",
                                    "on",
                                    "as",
                                    "{",
                                    "}",
                                    "(",
                                    ")",
                                    "[",
                                    "]",
                                    ",",
                                    ";",
                                    "\n",
                                    ":",
                                    "=",
                                    "==",
                                    "!=",
                                    "<",
                                    "<=",
                                    "->",
                                    "..",
                                    "...",
                                    "//",
                                    "*",
                                    "+",
                                    "-",
                                    "%",
                                    "@",
                                    "!",
                                    ".",
                                    "#",
                                    "\"",
                                    "\"s\"",
                                    "1f1b",
                                    "2bw",
                                    "12x",
                                    "8GB/s",
                                    "1.5us",
                                    "3KiB",
                                    "1e999",
                                    "99999999999999999999",
                                    "0",
                                    "x",
                                    "\xff",
                                    "\xc3\xa4",
                                    "\r\n",
                                    "\t",
                                    "&&",
                                    "} else {",
                                    "layer f(x) {\n"};

static void mutate_once(Input *input, Random *random, const Corpus *corpus) {
  size_t begin, end, begin2, end2;
  char copy[256], byte = (char)pick(random, 256);
  if (input->n == 0) splice(input, 0, 0, "x", 1);
  find_token(input, random, &begin, &end);
  find_token(input, random, &begin2, &end2);
  const char *word = words[pick(random, (size_t)ARRAY_LENGTH(words))];
  size_t n = end2 - begin2 < sizeof copy ? end2 - begin2 : sizeof copy;
  memcpy(copy, input->bytes + begin2, n);
  switch (pick(random, 9)) {
  case 0: splice(input, begin, end, "", 0); break;
  case 1: splice(input, begin, end, word, strlen(word)); break;
  case 2: splice(input, begin, begin, word, strlen(word)); break;
  case 3: splice(input, begin, end, copy, n); break;
  case 4: splice(input, begin, begin, copy, n); break;
  case 5: splice(input, begin, begin + 1, &byte, 1); break;
  case 6: /* drop a piece, up to 200 bytes */
    end = begin + pick(random, 200);
    splice(input, begin, end < input->n ? end : input->n, "", 0);
    break;
  case 7: { /* a piece of another file */
    int file = (int)pick(random, (size_t)corpus->n);
    size_t size = corpus->sizes[file], from = pick(random, size + 1);
    size_t length = pick(random, 300);
    if (length > size - from) length = size - from;
    splice(input, begin, begin, corpus->texts[file] + from, length);
    break;
  }
  default: /* the same mark many times */
    for (size_t i = pick(random, 700); i > 0; i--)
      splice(input, begin, begin, word, strlen(word));
  }
}

static void make_input(Input *input, const Corpus *corpus, Random *random) {
  int file = (int)pick(random, (size_t)corpus->n);
  input->n =
      corpus->sizes[file] < MOST_BYTES ? corpus->sizes[file] : MOST_BYTES;
  memcpy(input->bytes, corpus->texts[file], input->n);
  for (size_t i = 1 + pick(random, 12); i > 0; i--)
    mutate_once(input, random, corpus);
  input->bytes[input->n] = '\0';
}

/* Returns whether the promises hold for this input; *out_is_valid: no message.
 */
static bool check(const Input *input, bool *out_is_valid) {
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  Names *names = names_create(arena);
  Diags *diags = diags_create(arena);
  Source source = {"fuzz.dnn", input->bytes, input->n};
  Text text = text_create(arena), out = text_create(arena);
  Text again = text_create(arena);
  ast_print(&text, ast_parse(arena, names, diags, &source));
  diags_print(diags, &out);
  *out_is_valid = diags_errors(diags) == 0;
  bool is_right = *out_is_valid == (out.n == 0);
  if (*out_is_valid) {
    Source printed = {"printed.dnn", text_string(&text), text.n};
    ast_print(&again, ast_parse(arena, names, diags, &printed));
    is_right = is_right && diags_errors(diags) == 0 &&
               strcmp(text_string(&text), text_string(&again)) == 0;
  }
  ast_parse_expr(arena, names, diags, &source);
  memory_destroy(memory);
  return is_right;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int run(double seconds, uint64_t seed, const Corpus *corpus) {
  static Input input;
  double start = now();
  uint64_t n = 0, n_valid = 0;
  for (; now() - start < seconds; n++) {
    Random random = {hash_bytes(&n, sizeof n, seed), 0};
    make_input(&input, corpus, &random);
    bool is_valid;
    double before = now();
    bool is_right = check(&input, &is_valid);
    if (!is_right || now() - before > SLOW_SECONDS) {
      file_replace("fuzz_syntax.failed", input.bytes, input.n);
      fprintf(stderr, "fuzz_syntax: seed %llu input %llu: %s\n",
              (unsigned long long)seed, (unsigned long long)n,
              is_right ? "too slow" : "does not round-trip");
      return 1;
    }
    n_valid += is_valid;
  }
  printf("fuzz_syntax: seed %llu: %llu inputs, %llu of them valid\n",
         (unsigned long long)seed, (unsigned long long)n,
         (unsigned long long)n_valid);
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 4 || argc - 3 > MOST_FILES) {
    fprintf(stderr, "usage: fuzz_syntax SECONDS SEED FILES...\n");
    return 1;
  }
  static Corpus corpus;
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  for (int i = 3; i < argc; i++) {
    Status status = file_read(arena, argv[i], 1 << 24, &corpus.texts[corpus.n],
                              &corpus.sizes[corpus.n]);
    if (status.code != STATUS_ok) {
      fprintf(stderr, "fuzz_syntax: %s\n", status.message);
      return 3;
    }
    corpus.n++;
  }
  int code = run(atof(argv[1]), strtoull(argv[2], NULL, 10), &corpus);
  memory_destroy(memory);
  return code;
}
