/*
 * spaces.c -- walks over the rows of spaces.def.
 */
#include "planner/spaces/spaces.h"

static const SpaceInfo spaces[] = {
#define SPACE(name, places, tables, meaning) {#name, places, tables, meaning},
#include "planner/spaces/spaces.def"
};

const SpaceInfo *spaces_all(int *out_n) {
  *out_n = ARRAY_LENGTH(spaces);
  return spaces;
}

void spaces_visit(const SpaceInfo *list, int n, const SpaceRequest *request,
                  VisitPlace *visit, void *user) {
  for (int i = 0; i < n; i++) list[i].places(request, &list[i], visit, user);
}
