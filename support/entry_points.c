/*
 * entry_points.c -- names of entry points, for messages and options.
 */
#include "support/tables.h"
#include "support/support.h"

#include <string.h>

static const char *const names[] = {
#define ENTRY_POINT(name, purpose, placement, about) #name,
#include "support/entry_points.def"
};

const char *entry_point_name(EntryPointId id) {
  ASSERT(id >= 0 && id < N_ENTRY_POINTS);
  return names[id];
}

EntryPointId entry_point_find(const char *name) {
  int id = 0;
  while (id < N_ENTRY_POINTS && strcmp(names[id], name)) id++;
  return (EntryPointId)id;
}
