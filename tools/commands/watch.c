/*
 * watch.c -- shows what the command line asks to see of compiling: the time of
 * each pass, the graph after one of them, or the graph after every one in a
 * file of its own.
 */
#include "tools/commands/tools.h"

#include <stdio.h>

/* The files are numbered by the rows of `dnnc list passes`, so that they are in
 * order and a pass with several rows has a file for each. */
static void dump_graph(Tool *tool, const WatchedPass *pass, Text *text) {
  const char *folder = tool->options.dump;
  const char *path =
      arena_printf(tool->arena, "%s/%s-%02d-%s.ir", folder, pass->entry_point,
                   pass->row + 1, pass_info(pass->row)->name);
  Status status = file_make_dirs(folder);
  if (status.code == STATUS_ok)
    status = file_replace(path, text_string(text), text->n);
  if (status.code != STATUS_ok && diags_errors(tool->module.diags) == 0)
    diag(tool->module.diags, DIAG_dump_failed, SPAN_NONE, status.message);
}

static void after_pass(void *user, const WatchedPass *pass) {
  Tool *tool = user;
  const Options *options = &tool->options;
  if (options->time_passes)
    fprintf(stderr, "%-14s %8.2f ms  %7d nodes\n", pass_info(pass->row)->name,
            pass->seconds * 1e3, pass->graph->nodes.n);
  bool is_printed = options->command != COMMAND_ir && options->after &&
                    pass_is_named(pass->row, options->after);
  if (!is_printed && !options->dump) return;
  Text text = text_create(tool->arena);
  graph_print(&text, pass->graph);
  if (is_printed) fputs(text_string(&text), stderr);
  if (options->dump) dump_graph(tool, pass, &text);
}

static void after_station(void *user, const char *name, double seconds) {
  (void)user;
  fprintf(stderr, "%-14s %8.2f ms\n", name, seconds * 1e3);
}

CompileWatch tool_watch(Tool *tool) {
  const Options *options = &tool->options;
  bool sees_passes = options->time_passes || options->dump || options->after;
  return (CompileWatch){.user = tool,
                        .pass = sees_passes ? after_pass : NULL,
                        .station = options->time_passes ? after_station : NULL};
}
