/*
 * path.c -- decides whether the path of a node matches a path that a person
 * wrote (docs/language.md, section 6), such as "block[2..5].attn".
 */
#include <stdlib.h>
#include <string.h>

#include "ir/ir.h"

/* "[2]", "[2..5]" or "[*]" against the "[4]" of a path. */
static bool index_matches(const char *wanted, const char *index) {
  char *end;
  long at = strtol(index + 1, NULL, 10);
  if (wanted[1] == '*') return true;
  long first = strtol(wanted + 1, &end, 10), last = first;
  if (end[0] == '.') last = strtol(end + 2, NULL, 10);
  return at >= first && at <= last;
}

/* Moves both texts past a part that matches: a name, then indices, of which
 * none or all are given. */
static bool part_matches(const char **wanted, const char **path) {
  const char *w = *wanted, *p = *path;
  size_t n = strcspn(w, ".![");
  if (n != strcspn(p, ".![") || strncmp(w, p, n) != 0) return false;
  w += n;
  p += n;
  bool has_index = *w == '[';
  for (; *p == '['; p += strcspn(p, "]") + 1) {
    if (!has_index) continue;
    if (*w != '[' || !index_matches(w, p)) return false;
    w += strcspn(w, "]") + 1;
  }
  *wanted = w;
  *path = p;
  return *w != '[';
}

static bool starts_with(const char *path, const char *wanted) {
  while (part_matches(&wanted, &path)) {
    if (!*wanted) return true;
    if (!*path || (*path == '!' && *wanted == '.')) return false;
    wanted++;
    path++;
  }
  return false;
}

bool path_has(const char *path, const char *wanted) {
  while (path && *path) {
    if (starts_with(path, wanted)) return true;
    path += strcspn(path, ".!");
    if (*path) path++;
  }
  return false;
}

bool node_is_called(const Node *node, const char *wanted) {
  return strcmp(wanted, op_info(node->op)->name) == 0 ||
         path_has(node->path, wanted);
}
