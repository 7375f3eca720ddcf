/*
 * outputs.c -- looks at the files that a command will write before it begins,
 * so that hours of work do not end with a folder that is not there.
 */
#include "runtime/exec/exec.h"
#include "tools/commands/tools.h"

#include <string.h>

const char *tool_bundle_path(Tool *tool) {
  const char *path = tool->options.output;
  CommandOutput output = command_info(tool->options.command)->output;
  if (!path && output == OUTPUT_kept) return NULL;
  if (!path)
    path = arena_printf(tool->arena, "%s.bundle",
                        tool_base_name(tool->arena, tool->options.subject));
  /* A path that begins with '-' is an option to a compiler or to mpirun. */
  return path[0] == '-' ? arena_printf(tool->arena, "./%s", path) : path;
}

const char *tool_tuned_name(Tool *tool) {
  if (tool->options.output) return tool->options.output;
  return arena_printf(tool->arena, "%s.tuned",
                      tool_base_name(tool->arena, tool->options.subject));
}

const char *tool_base_name(Arena *arena, const char *path) {
  const char *slash = strrchr(path, '/');
  const char *base = slash ? slash + 1 : path;
  size_t length = strlen(base);
  if (length > 4 && !strcmp(base + length - 4, ".dnn")) length -= 4;
  return arena_printf(arena, "%.*s", (int)length, base);
}

/* What -o names. */
static Status check_output(Tool *tool) {
  const char *output = tool->options.output, *bundle;
  switch (command_info(tool->options.command)->output) {
  case OUTPUT_bundle:
  case OUTPUT_kept:
    bundle = tool_bundle_path(tool);
    return bundle ? codegen_check_bundle(tool->arena, bundle) : STATUS_OK;
  case OUTPUT_tuned:
    return file_check_output(
        arena_printf(tool->arena, "%s.cluster", tool_tuned_name(tool)));
  case OUTPUT_folder: return output ? file_check_folder(output) : STATUS_OK;
  case OUTPUT_file: return output ? file_check_output(output) : STATUS_OK;
  case OUTPUT_none:
  case OUTPUT_result: return STATUS_OK;
  }
  UNREACHABLE();
}

static Status check_outputs(Tool *tool) {
  const Options *options = &tool->options;
  const char *const paths[] = {options->html, options->dot, options->trace,
                               options->kernels};
  const char *const profiles[] = {options->profile, options->transfers};
  for (int i = 0; i < ARRAY_LENGTH(paths); i++)
    if (paths[i]) TRY(file_check_output(paths[i]));
  bool measures = options->command == COMMAND_run; /* others read profiles */
  for (int i = 0; measures && i < ARRAY_LENGTH(profiles); i++)
    if (profiles[i]) TRY(profiler_check(profiles[i]));
  return check_output(tool);
}

int tool_check_outputs(Tool *tool) {
  Status status = check_outputs(tool);
  return status.code == STATUS_ok ? EXIT_done : tool_fail(status);
}
