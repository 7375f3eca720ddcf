/*
 * command_predict.c -- implements `dnnc predict` and `dnnc eval`, which compile
 * and run the one entry point that they need.
 */
#include "runtime/rank/resultfile.h"
#include "tools/commands/tools.h"

#include <stdio.h>

int command_predict(Tool *tool) {
  const char *output = tool->options.output;
  if (!output) {
    fprintf(stderr, "dnnc: error: 'dnnc predict' needs -o FILE, which ends in "
                    ".npy, .safetensors or .csv\n");
    return EXIT_user;
  }
  Status status = result_check_path(output);
  if (status.code != STATUS_ok) return tool_fail(status);
  return tool_build_and_run(tool);
}

int command_eval(Tool *tool) {
  if (!tool_has_checkpoint(tool)) return EXIT_user;
  return tool_build_and_run(tool);
}
