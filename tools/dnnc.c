/*
 * dnnc.c -- runs one command in one process.  Running out of memory ends here
 * too: everything is freed, nothing half-written stays, exit code 3.
 */
#include "runtime/launch/launch.h"
#include "tools/commands/tools.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Standard error with a note of what was written to it. */
static bool has_complained;

static ssize_t write_complaint(void *cookie, const char *text, size_t n) {
  (void)cookie;
  has_complained = true;
  ssize_t done = write(STDERR_FILENO, text, n);
  return done < 0 ? 0 : done; /* as fopencookie wants it */
}

static void watch_complaints(void) {
  FILE *watched =
      fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_complaint});
  if (!watched) return;
  setvbuf(watched, NULL, _IONBF, 0);
  stderr = watched;
}

/* Ranks are processes of their own, which say themselves why they end. */
static bool has_said_why(const Tool *tool) {
  return has_complained || tool->has_started_ranks || tool->is_silent ||
         tool_has_printed();
}

static void out_of_memory(void *user) {
  static const char message[] = "dnnc: error: out of memory\n";
  Tool *tool = user;
  Memory *memory = tool->memory;
  if (write(STDERR_FILENO, message, sizeof message - 1) < 0)
    _exit(EXIT_machine);
  tool->memory = NULL;
  if (memory) memory_destroy(memory);
  exit(EXIT_machine);
}

static int run_command(Tool *tool) {
  switch (tool->options.command) {
#define COMMAND(name, ...)                                                     \
  case COMMAND_##name:                                                         \
    return command_##name(tool);
#include "tools/commands.def"
  case N_COMMANDS: break;
  }
  UNREACHABLE();
}

/* Words that stand where a command would. */
static bool print_about(Tool *tool, const char *word) {
  Text text = text_create(tool->arena);
  if (!strcmp(word, "--version"))
    text_add(&text, "dnnc " DNNC_VERSION "\n");
  else if (!strcmp(word, "--man"))
    options_man_page(&text);
  else if (!strcmp(word, "--commands"))
    options_markdown(&text);
  else
    return false;
  tool_print(&text);
  return true;
}

static bool asks_for_help(const char *word) {
  return !strcmp(word, "--help") || !strcmp(word, "-h") ||
         !strcmp(word, "help");
}

/* `dnnc help`, or `dnnc help COMMAND`. */
static int print_help(Tool *tool, int argc, char **argv) {
  Text text = text_create(tool->arena);
  if (argc > 3) {
    message_print("dnnc: error: 'dnnc %s' takes one command\n", argv[1]);
    return EXIT_user;
  }
  if (argc == 3 && !options_find_command(tool, argv[2])) return EXIT_user;
  if (argc == 3)
    options_help(&text, tool->options.command);
  else
    options_overview(&text);
  tool_print(&text);
  return EXIT_done;
}

static int tool_main(Tool *tool, int argc, char **argv) {
  if (argc < 2) {
    Text text = text_create(tool->arena);
    options_overview(&text);
    fputs(text_string(&text), stderr);
    return EXIT_user;
  }
  if (asks_for_help(argv[1])) return print_help(tool, argc, argv);
  if (print_about(tool, argv[1])) return EXIT_done;
  if (!options_parse(tool, argc, argv)) return EXIT_user;
  if (tool->options.help) {
    Text text = text_create(tool->arena);
    options_help(&text, tool->options.command);
    tool_print(&text);
    return EXIT_done;
  }
  int code = tool_check_outputs(tool);
  if (code == EXIT_done) code = tool_find_plan(tool);
  if (code == EXIT_done) code = run_command(tool);
  tool_report(tool); /* what no command has printed */
  return code;
}

int main(int argc, char **argv) {
  Tool tool = {0};
  int rank = handshake_become(argc, argv);
  if (rank >= 0) return rank;
  file_fill_standard_streams();
  file_let_writes_fail();
  watch_complaints();
  setlocale(LC_ALL, "C");
  tool.memory = memory_create(out_of_memory, &tool);
  const char *fail = getenv("DNNC_FAIL_ALLOC"); /* tests: "n" or "n+" */
  if (fail) memory_fail_at(tool.memory, atoll(fail), strchr(fail, '+') != NULL);
  tool.arena = arena_create(tool.memory);
  tool.module = (Module){tool.memory, tool.arena, names_create(tool.arena),
                         diags_create(tool.arena)};
  int code = tool_main(&tool, argc, argv);
  bool is_lost = fflush(stdout) != 0;
  if ((is_lost || ferror(stdout)) && code == EXIT_done) {
    fprintf(stderr, "dnnc: error: standard output could not be written\n");
    code = EXIT_machine;
  }
  ASSERT(code == EXIT_done || has_said_why(&tool));
  memory_destroy(tool.memory);
  return code;
}
