/*
 * profiles.c -- reads the profile of a command.
 */
#include "tools/tools.h"

enum { MOST_PROFILE_BYTES = 64 << 20 };

const Profile *tool_read_profile(Tool *tool, const char *path) {
  Source *source = ARENA_NEW(tool->arena, Source);
  source->path = path;
  Status status = file_read(tool->arena, path, MOST_PROFILE_BYTES,
                            &source->text, &source->n);
  if (status.code != STATUS_ok) {
    tool_fail(status);
    return NULL;
  }
  const Profile *profile =
      profile_read(tool->arena, tool->module.diags, source);
  return tool_report(tool) ? NULL : profile;
}
