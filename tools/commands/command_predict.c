/*
 * command_predict.c -- implements `dnnc predict` and `dnnc eval`, which compile
 * and run the one entry point that they need.
 */
#include "runtime/rank/resultfile.h"
#include "tools/commands/tools.h"

#include <stdio.h>

static bool has_checkpoint(const Tool *tool) {
  if (tool->options.load) return true;
  message_print(
      "dnnc: error: 'dnnc %s' needs --load PATH, a checkpoint folder or a "
      ".safetensors file\n",
      tool->options.command == COMMAND_eval ? "eval" : "predict");
  return false;
}

bool tool_can_predict(const Tool *tool, const Compilation *c) {
  const Graph *graph = c->model->predict;
  if (tool->options.command != COMMAND_predict || !graph) return true;
  for (int i = 0; i < graph->inputs.n; i++) {
    Role role = graph->inputs.data[i].role;
    if (role == ROLE_param || role == ROLE_state) return has_checkpoint(tool);
  }
  return true;
}

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
  if (!has_checkpoint(tool)) return EXIT_user;
  return tool_build_and_run(tool);
}
