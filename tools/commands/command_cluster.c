/*
 * command_cluster.c -- implements `dnnc cluster detect`, which writes a cluster
 * file for this machine or for the machines of a job.
 */
#include "driver/detect.h"
#include "tools/commands/tools.h"

#include <stdlib.h>
#include <string.h>

int command_cluster(Tool *tool) {
  const Options *options = &tool->options;
  const char *root = getenv("DNNC_DETECT_ROOT"); /* tests: instead of / */
  if (strcmp(options->subject, "detect") != 0) {
    message_print("dnnc: error: 'dnnc cluster' can 'detect', not '%s'\n",
                  options->subject);
    return EXIT_user;
  }
  const char *unknown;
  Text out = text_create(tool->arena);
  Status status = driver_detect_cluster(&out, root ? root : "",
                                        &(DetectedLink){0}, &unknown);
  if (status.code == STATUS_ok && options->output)
    status = file_replace(options->output, text_string(&out), out.n);
  if (status.code != STATUS_ok) return tool_fail(status);
  if (!options->output) tool_print(&out);
  if (unknown)
    message_print("dnnc: warning: no preset has '%s': add its rates to the "
                  "file\n"
                  "help: 'dnnc list devices' shows those of other devices\n",
                  unknown);
  return EXIT_done;
}
