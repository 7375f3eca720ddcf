/*
 * options.c -- reads the command line of a rank, from the rows of
 * run_options.def.
 */
#include "runtime/launch/launch.h"
#include "runtime/rank/run.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum RunOptionKind {
  KIND_FLAG,
  KIND_TEXT,
  KIND_INT,
  KIND_BYTES,
  KIND_LIST
} RunOptionKind;

typedef struct RunOptionRow {
  RunOptionKind kind;
  size_t offset;
  const char *name, *argument;
  int64_t least, otherwise;
  const char *help;
} RunOptionRow;

static const RunOptionRow option_rows[] = {
#define RUN_OPTION(kind, field, name, argument, least, otherwise, ranks,       \
                   commands, help)                                             \
  {KIND_##kind, offsetof(RunOptions, field), name, argument, least, otherwise, \
   help},
#define RANK_OPTION(kind, field, name, argument, ranks, help)                  \
  {KIND_##kind, offsetof(RunOptions, field), name, argument, 0, 0, help},
#include "runtime/launch/run_options.def"
};

static void *option_field(RunOptions *options, const RunOptionRow *row) {
  return (char *)options + row->offset;
}

static bool is_number(const RunOptionRow *row) {
  return row->kind == KIND_INT || row->kind == KIND_BYTES;
}

static const RunOptionRow *find_option(const char *word) {
  for (int i = 0; i < ARRAY_LENGTH(option_rows); i++)
    if (strcmp(word, option_rows[i].name) == 0) return &option_rows[i];
  return NULL;
}

static bool read_number(const char *text, int64_t least, int64_t *out) {
  char *end;
  errno = 0;
  *out = strtoll(text, &end, 10);
  return *text && !*end && errno == 0 && *out >= least;
}

/* `value` is NULL for a flag alone. */
static bool store_option(RunOptions *options, const RunOptionRow *row,
                         const char *value) {
  void *field = option_field(options, row);
  RunTexts *list = field;
  switch (row->kind) {
  case KIND_FLAG: *(bool *)field = true; return true;
  case KIND_TEXT: *(const char **)field = value; return true;
  case KIND_INT:
  case KIND_BYTES: return read_number(value, row->least, field);
  case KIND_LIST:
    if (list->n == MOST_RUN_TEXTS) return false;
    list->items[list->n++] = value;
    return true;
  }
  UNREACHABLE();
}

static void print_usage(const char *program) {
  printf("usage: %s [OPTION ...]\n\n", program);
  for (int i = 0; i < ARRAY_LENGTH(option_rows); i++) {
    const RunOptionRow *row = &option_rows[i];
    int n = printf("  %s %s", row->name, row->argument);
    printf("%*s %s\n", n < 26 ? 26 - n : 0, "", row->help);
  }
}

int run_read_options(int argc, char **argv, RunOptions *out) {
  *out = (RunOptions){0};
  for (int i = 0; i < ARRAY_LENGTH(option_rows); i++)
    if (is_number(&option_rows[i]))
      *(int64_t *)option_field(out, &option_rows[i]) = option_rows[i].otherwise;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--help") == 0) {
      print_usage(argv[0]);
      return EXIT_done;
    }
    const RunOptionRow *row = find_option(argv[i]);
    bool has_value = row && row->kind != KIND_FLAG;
    bool is_right = row && (!has_value || i + 1 < argc);
    if (is_right && has_value) i++;
    if (is_right && store_option(out, row, argv[i])) continue;
    message_print("error: wrong option or argument '%s'\n"
                  "help: '--help' lists the options\n",
                  argv[i]);
    return EXIT_mistake;
  }
  return -1;
}
