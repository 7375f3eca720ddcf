/*
 * options.c -- reads the command line and prints its help, both from two
 * tables.
 */
#include "runtime/launch/launch.h"
#include "planner/search.h"
#include "tools/commands/tools.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum Kind {
  KIND_FLAG,
  KIND_TEXT,
  KIND_INT,
  KIND_BYTES,
  KIND_LIST
} Kind;

typedef struct OptionRow {
  Kind kind;
  size_t offset;
  const char *name, *argument;
  int64_t least;
  unsigned commands;
  const char *help;
  bool is_handed_on; /* to the ranks of a run */
} OptionRow;

#define C(name) (1u << COMMAND_##name)
static const OptionRow option_rows[] = {
/* clang-format off */
#define OPTION(kind, field, name, argument, least, commands, help)             \
  {KIND_##kind, offsetof(Options, field), name, argument, least, commands,     \
   help, false},
#define RUN_OPTION(kind, field, name, argument, least, otherwise, ranks,       \
                   commands, help)                                             \
  {KIND_##kind, offsetof(Options, field), name, argument, least, commands,     \
   help, true},
/* clang-format on */
#include "tools/options.def"
};

/* The help of an option for some of its commands alone. */
typedef struct MeaningRow {
  const char *name;
  unsigned commands;
  const char *help;
} MeaningRow;

static const MeaningRow meaning_rows[] = {
#define MEANING(name, commands, help) {name, commands, help},
#include "tools/options.def"
};

/* An option that some commands take together with another one only. */
typedef struct PairRow {
  const char *name;
  unsigned commands;
  const char *with;
} PairRow;

static const PairRow pair_rows[] = {
#define ONLY_WITH(name, commands, with) {name, commands, with},
#include "tools/options.def"
};

/* -O has its value in the word, so it is no row of options.def. */
#define LEVEL_SPELLING "-O0, -O1, -O2"
#define LEVEL_HELP     "how much to optimise (default -O2)"

/* How many ranks a command can serve: a bundle has a file for each. */
enum {
  MOST_RANKS_any = 0,
  MOST_RANKS_launched = MOST_LAUNCHED,
  MOST_RANKS_bundle = 1 << 15
};

#define PURPOSE_none    PURPOSE_train /* no model is loaded */
#define DATA_FILES_none DATA_FILES_unread
#define F(name)         COMMAND_FLAG_##name
static const CommandInfo command_rows[] = {
#define COMMAND(name, arguments, summary, purpose, data, prices, ranks,        \
                output, flags)                                                 \
  {#name,                                                                      \
   arguments,                                                                  \
   summary,                                                                    \
   PURPOSE_##purpose,                                                          \
   DATA_FILES_##data,                                                          \
   PRICES_##prices,                                                            \
   MOST_RANKS_##ranks,                                                         \
   OUTPUT_##output,                                                            \
   flags},
#include "tools/commands.def"
};
#undef PURPOSE_none
#undef DATA_FILES_none
#undef F

const CommandInfo *command_info(CommandId command) {
  return &command_rows[command];
}

static bool takes_level(CommandId command) {
  return command_rows[command].flags & COMMAND_FLAG_levels;
}

static unsigned level_commands(void) {
  unsigned commands = 0;
  for (int c = 0; c < N_COMMANDS; c++)
    if (takes_level((CommandId)c)) commands |= 1u << c;
  return commands;
}

static bool options_complain(Arena *arena, const char *what,
                             const char *nearest) {
  (void)arena;
  message_print("dnnc: error: %s\n", what);
  if (nearest) message_print("help: did you mean '%s'?\n", nearest);
  return false;
}

/* Help for a command of other tools; NULL: nothing is known. */
static const char *foreign_command_help(const char *word) {
  static const struct {
    const char *word, *help;
  } rows[] = {
#define FOREIGN_COMMAND(word, help) {#word, help},
#include "tools/commands.def"
  };
  for (int i = 0; i < ARRAY_LENGTH(rows); i++)
    if (!strcmp(rows[i].word, word)) return rows[i].help;
  return NULL;
}

bool options_find_command(Tool *tool, const char *word) {
  const char *names[N_COMMANDS];
  for (int i = 0; i < N_COMMANDS; i++) {
    names[i] = command_rows[i].name;
    if (!strcmp(word, names[i])) {
      tool->options.command = (CommandId)i;
      return true;
    }
  }
  const char *help = foreign_command_help(word);
  const char *nearest = help ? NULL : text_nearest(word, names, N_COMMANDS);
  options_complain(tool->arena,
                   arena_printf(tool->arena, "no command '%s'", word), nearest);
  if (!nearest)
    message_print("help: %s\n",
                  help ? help : "'dnnc --help' lists the commands");
  return false;
}

static const OptionRow *find_option(CommandId command, const char *name,
                                    size_t length) {
  for (int i = 0; i < ARRAY_LENGTH(option_rows); i++) {
    const OptionRow *row = &option_rows[i];
    if (strlen(row->name) == length && !strncmp(row->name, name, length) &&
        (row->commands >> command & 1))
      return row;
  }
  return NULL;
}

/* A setting of a model, a rate included: the words of NAME=VALUE. */
static bool is_setting(const char *name) {
  static const char *const names[] = {
#define SETTING(block, name, init, meaning) #name,
#include "frontend/blocks/settings.def"
      "lr", "learning_rate"};
  for (int i = 0; i < ARRAY_LENGTH(names); i++)
    if (!strcmp(names[i], name)) return true;
  return false;
}

static bool takes_overrides(CommandId command) {
  return strstr(command_rows[command].arguments, "NAME=VALUE") != NULL;
}

static const char *nearest_option(CommandId command, const char *word) {
  const char *names[ARRAY_LENGTH(option_rows)];
  int n = 0;
  for (int i = 0; i < ARRAY_LENGTH(option_rows); i++)
    if (option_rows[i].commands >> command & 1)
      names[n++] = option_rows[i].name;
  return text_nearest(word, names, n);
}

static bool store_option(Tool *tool, const OptionRow *row, const char *value) {
  void *field = (char *)&tool->options + row->offset;
  switch (row->kind) {
  case KIND_FLAG: *(bool *)field = true; return true;
  case KIND_TEXT: *(const char **)field = value; return true;
  case KIND_LIST: {
    VEC(const char *) *list = field;
    vec_push(tool->arena, list, value);
    return true;
  }
  case KIND_BYTES: return tool_read_bytes(tool, row->name, value, field);
  case KIND_INT: break;
  }
  char *end;
  errno = 0;
  long long number = strtoll(value, &end, 10);
  if (errno || *end || end == value || number < row->least)
    return options_complain(
        tool->arena,
        arena_printf(tool->arena,
                     "%s takes an integer of at least %lld, "
                     "not '%s'",
                     row->name, (long long)row->least, value),
        NULL);
  *(int64_t *)field = number;
  return true;
}

/* `--lr 0.1` is meant as `lr=0.1`; `next`: the word that follows, or NULL. */
static bool complain_of_option(Tool *tool, const char *word, size_t length,
                               const char *next) {
  CommandId command = tool->options.command;
  Arena *arena = tool->arena;
  size_t dashes = strspn(word, "-");
  char *name = arena_printf(arena, "%.*s", (int)(length - dashes),
                            word + (dashes < length ? dashes : length));
  for (char *at = name; *at; at++)
    if (*at == '-') *at = '_';
  bool is_of_model = takes_overrides(command) && is_setting(name);
  const char *value = word[length] == '='      ? word + length + 1
                      : next && next[0] != '-' ? next
                                               : "VALUE";
  const char *nearest = is_of_model ? arena_printf(arena, "%s=%s", name, value)
                                    : nearest_option(command, word);
  options_complain(arena,
                   arena_printf(arena, "'dnnc %s' has no option '%.*s'",
                                command_rows[command].name, (int)length, word),
                   nearest);
  if (!nearest)
    message_print("help: 'dnnc help %s' lists the options%s\n",
                  command_rows[command].name,
                  takes_overrides(command)
                      ? "; a setting, dim or const of the model is given as "
                        "NAME=VALUE"
                      : "");
  return false;
}

/* `--name VALUE`, `--name=VALUE` or `-o DIR`; advances *i past the value. */
static bool read_option(Tool *tool, int argc, char **argv, int *i) {
  CommandId command = tool->options.command;
  const char *word = argv[*i];
  if (!strcmp(word, "-o")) word = "--output";
  size_t length = strcspn(word, "=");
  const OptionRow *row = find_option(command, word, length);
  if (!row)
    return complain_of_option(tool, word, length,
                              *i + 1 < argc ? argv[*i + 1] : NULL);
  if (row->kind == KIND_FLAG) {
    if (word[length] == '=')
      return options_complain(
          tool->arena,
          arena_printf(tool->arena, "%s takes no value", row->name), NULL);
    return store_option(tool, row, NULL);
  }
  if (word[length] == '=') return store_option(tool, row, word + length + 1);
  if (*i + 1 >= argc)
    return options_complain(tool->arena,
                            arena_printf(tool->arena, "%s needs a value: %s %s",
                                         row->name, row->name, row->argument),
                            NULL);
  return store_option(tool, row, argv[++*i]);
}

/* The model, a second word of some commands, or NAME=VALUE. */
static bool read_word(Tool *tool, char *word) {
  Options *options = &tool->options;
  char *equals = strchr(word, '=');
  if (!options->subject) {
    options->subject = word;
    return true;
  }
  bool is_path = options->command == COMMAND_explain && !equals;
  if (!options->other && (options->command == COMMAND_diff || is_path)) {
    options->other = word;
    return true;
  }
  if (!equals || equals == word)
    return options_complain(
        tool->arena,
        arena_printf(tool->arena, "'%s' is neither an option nor NAME=VALUE",
                     word),
        NULL);
  Override override = {
      arena_printf(tool->arena, "%.*s", (int)(equals - word), word),
      equals + 1};
  vec_push(tool->arena, &options->overrides, override);
  return true;
}

static bool read_level(Tool *tool, const char *word) {
  if (word[2] < '0' || word[2] > '2' || word[3])
    return options_complain(
        tool->arena,
        arena_printf(tool->arena,
                     "'%s' is no level; there are -O0, -O1 and -O2", word),
        NULL);
  tool->options.level = word[2] - '0';
  return true;
}

static bool need_subject(Tool *tool) {
  const Options *options = &tool->options;
  bool needs_other =
      options->command == COMMAND_diff || options->command == COMMAND_explain;
  bool is_checked = options->command == COMMAND_schedule && options->check;
  if (options->help || is_checked ||
      (options->subject && (options->other || !needs_other)))
    return true;
  const CommandInfo *row = &command_rows[options->command];
  if (needs_other)
    return options_complain(tool->arena,
                            options->command == COMMAND_diff
                                ? "'dnnc diff' needs two plans"
                                : "'dnnc explain' needs a model and a path",
                            NULL);
  return options_complain(
      tool->arena,
      arena_printf(tool->arena, "'dnnc %s' needs %.*s", row->name,
                   (int)strcspn(row->arguments, " "), row->arguments),
      NULL);
}

bool options_parse(Tool *tool, int argc, char **argv) {
  Options *options = &tool->options;
  options->level = 2;
  for (int i = 0; i < ARRAY_LENGTH(option_rows); i++)
    if (option_rows[i].kind == KIND_INT || option_rows[i].kind == KIND_BYTES)
      *(int64_t *)((char *)options + option_rows[i].offset) = -1;
  if (!options_find_command(tool, argv[1])) return false;
  bool only_words = false;
  for (int i = 2; i < argc; i++) {
    char *word = argv[i];
    bool ok = true;
    if (only_words || word[0] != '-' || !word[1])
      ok = read_word(tool, word);
    else if (!strcmp(word, "--"))
      only_words = true;
    else if (!strcmp(word, "--help") || !strcmp(word, "-h"))
      options->help = true;
    else if (word[1] == 'O' && takes_level(options->command))
      ok = read_level(tool, word);
    else
      ok = read_option(tool, argc, argv, &i);
    if (!ok) return false;
  }
  return need_subject(tool);
}

const char *options_command_name(CommandId command) {
  return command_rows[command].name;
}

/* ---- pairs ---- */

/* `name`: "--paced", or an option with its value, "--plan auto". */
static bool is_given(const Options *options, const char *name) {
  size_t length = strcspn(name, " ");
  const OptionRow *row = find_option(options->command, name, length);
  const void *field = (const char *)options + row->offset;
  const VEC(const char *) *list = field;
  switch (row->kind) {
  case KIND_FLAG: return *(const bool *)field;
  case KIND_TEXT: {
    const char *value = *(const char *const *)field;
    return value && (!name[length] || strcmp(value, name + length + 1) == 0);
  }
  case KIND_INT:
  case KIND_BYTES: return *(const int64_t *)field >= 0;
  case KIND_LIST: return list->n > 0;
  }
  UNREACHABLE();
}

/* Rows of one option are alternatives. */
static bool check_pair(const Options *options, const char *name) {
  char with[80] = "";
  bool is_auto = false;
  for (int i = 0; i < ARRAY_LENGTH(pair_rows); i++) {
    const PairRow *row = &pair_rows[i];
    if (!(row->commands >> options->command & 1) || strcmp(row->name, name))
      continue;
    if (is_given(options, row->with)) return true;
    size_t n = strlen(with);
    snprintf(with + n, sizeof with - n, "%s%s", n ? " or " : "", row->with);
    is_auto |= strcmp(row->with, "--plan auto") == 0;
  }
  message_print("dnnc: error: 'dnnc %s' takes %s with %s only\n",
                options_command_name(options->command), name, with);
  if (is_auto)
    message_print("help: '--plan auto' searches for the fastest plan, as 'dnnc "
                  "plan' does\n");
  return false;
}

bool options_check_pairs(const Options *options) {
  for (int i = 0; i < ARRAY_LENGTH(pair_rows); i++) {
    const PairRow *row = &pair_rows[i];
    if (row->commands >> options->command & 1 && is_given(options, row->name) &&
        !check_pair(options, row->name))
      return false;
  }
  return true;
}

/* ---- the words for a rank, from the same rows ---- */

static void hand_on_number(Arena *arena, Words *words, const char *name,
                           int64_t number) {
  if (number < 0) return;
  vec_push(arena, words, name);
  vec_push(arena, words, arena_printf(arena, "%lld", (long long)number));
}

static void hand_on_text(Arena *arena, Words *words, const char *name,
                         const char *text) {
  if (!text) return;
  vec_push(arena, words, name);
  vec_push(arena, words, text);
}

void options_hand_on(Arena *arena, const Options *options, Words *words) {
  for (int i = 0; i < ARRAY_LENGTH(option_rows); i++) {
    const OptionRow *row = &option_rows[i];
    const void *field = (const char *)options + row->offset;
    const VEC(const char *) *list = field;
    if (!row->is_handed_on) continue;
    switch (row->kind) {
    case KIND_FLAG:
      if (*(const bool *)field) vec_push(arena, words, row->name);
      break;
    case KIND_TEXT:
      hand_on_text(arena, words, row->name, *(const char *const *)field);
      break;
    case KIND_INT:
    case KIND_BYTES:
      hand_on_number(arena, words, row->name, *(const int64_t *)field);
      break;
    case KIND_LIST:
      for (int k = 0; k < list->n; k++)
        hand_on_text(arena, words, row->name, list->data[k]);
      break;
    }
  }
}

/* ---- help, from the same rows ---- */

static const char *option_spelling(Arena *arena, const OptionRow *row) {
  return row->argument[0]
             ? arena_printf(arena, "%s %s", row->name, row->argument)
             : row->name;
}

/* The entry points that `dnnc ir` prints, from their own table. */
static const char *entry_point_help(Arena *arena) {
  Text out = text_create(arena);
  text_add(&out, "the entry point whose graph is printed: ");
  for (int i = 0; i < N_ENTRY_POINTS; i++) {
    text_add(&out, i == 0 ? "" : i + 1 < N_ENTRY_POINTS ? ", " : " or ");
    text_add(&out, entry_point_name((EntryPointId)i));
    if (i == 0) text_add(&out, " (default)");
  }
  return text_string(&out);
}

static const char *search_help(Arena *arena) {
  Text out = text_create(arena);
  text_add(&out, "how to search:");
  for (int i = 0; i < search_count(); i++)
    text_printf(&out, "%s %s%s (%s)", i ? ";" : "", search_info(i)->name,
                i ? "" : ", the default", search_info(i)->meaning);
  return text_string(&out);
}

/* In a row, "{targets}", "{entry_points}" and "{searches}" stand for what other
 * tables list. */
static const char *expand_help(Arena *arena, const char *help) {
  if (strcmp(help, "{targets}") == 0) return backend_target_help(arena);
  if (strcmp(help, "{entry_points}") == 0) return entry_point_help(arena);
  if (strcmp(help, "{searches}") == 0) return search_help(arena);
  return help;
}

/* An option as some of its commands understand it. */
typedef struct Meaning {
  unsigned commands;
  const char *help;
} Meaning;

enum { MOST_MEANINGS = ARRAY_LENGTH(meaning_rows) + 1 };

/* The meaning of the row itself comes first, if a command has it. */
static int option_meanings(Arena *arena, const OptionRow *row,
                           Meaning out[MOST_MEANINGS]) {
  unsigned rest = row->commands;
  int n = 1;
  for (int i = 0; i < ARRAY_LENGTH(meaning_rows); i++) {
    const MeaningRow *meaning = &meaning_rows[i];
    if (strcmp(meaning->name, row->name) || !(meaning->commands & rest))
      continue;
    out[n++] = (Meaning){meaning->commands & rest, meaning->help};
    rest &= ~meaning->commands;
  }
  out[0] = (Meaning){rest, expand_help(arena, row->help)};
  if (rest) return n;
  memmove(out, out + 1, (size_t)(n - 1) * sizeof *out);
  return n - 1;
}

static const char *option_help(Arena *arena, const OptionRow *row,
                               CommandId command) {
  Meaning meanings[MOST_MEANINGS];
  int n = option_meanings(arena, row, meanings);
  for (int i = 0; i < n; i++)
    if (meanings[i].commands >> command & 1) return meanings[i].help;
  UNREACHABLE();
}

static void add_commands(Text *out, unsigned commands, const char *between) {
  int n = 0;
  for (int c = 0; c < N_COMMANDS; c++)
    if (commands >> c & 1)
      text_printf(out, "%s%s", n++ ? between : "", command_rows[c].name);
}

/* Breaks lines at blanks; those after the first are indented. */
static void add_wrapped(Text *out, int column, int indent, const char *text) {
  enum { WIDTH = 100 };
  while (*text) {
    int n = (int)strcspn(text, " ");
    if (column > indent && column + 1 + n > WIDTH) {
      text_printf(out, "\n%*s", indent, "");
      column = indent;
    } else if (column > indent) {
      text_add(out, " ");
      column++;
    }
    text_add_n(out, text, (size_t)n);
    column += n;
    text += n + strspn(text + n, " ");
  }
  text_add(out, "\n");
}

/* A row of two columns, whose second one is wrapped. */
static void add_row(Text *out, int width, const char *left, const char *right) {
  int n = (int)strlen(left);
  text_printf(out, "  %-*s", width, left);
  if (n < width) text_add(out, " ");
  add_wrapped(out, n < width ? width + 3 : n + 2, width + 3, right);
}

void options_help(Text *out, CommandId command) {
  const CommandInfo *row = &command_rows[command];
  text_printf(out, "usage: dnnc %s %s [OPTION ...]\n\n", row->name,
              row->arguments);
  add_wrapped(out, 0, 0, row->summary);
  text_add(out, "\n");
  for (int i = 0; i < ARRAY_LENGTH(option_rows); i++)
    if (option_rows[i].commands >> command & 1)
      add_row(out, 22, option_spelling(out->arena, &option_rows[i]),
              option_help(out->arena, &option_rows[i], command));
  if (takes_level(command)) add_row(out, 22, LEVEL_SPELLING, LEVEL_HELP);
}

void options_overview(Text *out) {
  text_add(out,
           "dnnc compiles deep-learning models to one program per rank.\n\n"
           "usage: dnnc COMMAND ... [OPTION ...]\n\n");
  for (int i = 0; i < N_COMMANDS; i++)
    add_row(out, 33,
            arena_printf(out->arena, "%-8s %s", command_rows[i].name,
                         command_rows[i].arguments),
            command_rows[i].summary);
  text_add(out, "\n'dnnc help COMMAND' lists the options of a command, "
                "'dnnc --man' prints the manual page.\n"
                "Exit codes: 0 done, 1 mistake in the input, 2 no plan fits, 3 "
                "the machine failed, 4 fault of dnnc,\n"
                "130 Ctrl-C, 143 SIGTERM.\n");
}

static void man_text(Text *out, const char *text) {
  for (; *text; text++) {
    if (*text == '-')
      text_add(out, "\\-");
    else
      text_add_n(out, text, 1);
  }
}

/* With several meanings, each after the commands that it belongs to. */
static void man_meanings(Text *out, const OptionRow *row) {
  Meaning meanings[MOST_MEANINGS];
  int n = option_meanings(out->arena, row, meanings);
  for (int i = 0; i < n; i++) {
    if (i > 0) text_add(out, ".br\n");
    if (n > 1) add_commands(out, meanings[i].commands, ", ");
    text_printf(out, "%s%s\n", n > 1 ? ": " : "", meanings[i].help);
  }
}

void options_man_page(Text *out) {
  text_add(out,
           ".TH DNNC 1\n.SH NAME\ndnnc \\- compile deep-learning models to "
           "one program per rank\n.SH SYNOPSIS\n.B dnnc\n.I COMMAND\n"
           "[\\fIARGUMENT\\fR ...] [\\fIOPTION\\fR ...]\n.SH COMMANDS\n");
  for (int i = 0; i < N_COMMANDS; i++)
    text_printf(out, ".TP\n.B %s \\fI%s\\fR\n%s\n", command_rows[i].name,
                command_rows[i].arguments, command_rows[i].summary);
  text_add(out, ".SH OPTIONS\n");
  for (int i = 0; i < ARRAY_LENGTH(option_rows); i++) {
    text_add(out, ".TP\n.B ");
    man_text(out, option_spelling(out->arena, &option_rows[i]));
    text_add(out, "\n");
    man_meanings(out, &option_rows[i]);
  }
  text_add(out, ".TP\n.B ");
  man_text(out, LEVEL_SPELLING);
  text_printf(out, "\n%s\n", LEVEL_HELP);
  text_add(out, ".SH EXIT STATUS\n0 done; 1 mistake in the input; 2 no plan "
                "fits; 3 the machine failed; 4 fault of dnnc; 130 interrupted; "
                "143 terminated.\n");
}

static void markdown_row(Text *out, const char *spelling, unsigned commands,
                         const char *help) {
  text_printf(out, "| `%s` | ", spelling);
  add_commands(out, commands, " ");
  text_printf(out, " | %s |\n", help);
}

void options_markdown(Text *out) {
  text_add(out, "# The command line\n\nPrinted by `dnnc --commands`; do not "
                "edit.\n\n| command | arguments | does |\n|---|---|---|\n");
  for (int i = 0; i < N_COMMANDS; i++)
    text_printf(out, "| `%s` | `%s` | %s |\n", command_rows[i].name,
                command_rows[i].arguments, command_rows[i].summary);
  text_add(out, "\n| option | commands | meaning |\n|---|---|---|\n");
  for (int i = 0; i < ARRAY_LENGTH(option_rows); i++) {
    Meaning meanings[MOST_MEANINGS];
    int n = option_meanings(out->arena, &option_rows[i], meanings);
    for (int k = 0; k < n; k++)
      markdown_row(out, option_spelling(out->arena, &option_rows[i]),
                   meanings[k].commands, meanings[k].help);
  }
  markdown_row(out, LEVEL_SPELLING, level_commands(), LEVEL_HELP);
}
