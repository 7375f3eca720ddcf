/*
 * path_tree.c -- finds the paths that a pattern matches without looking at all
 * others: a plan may have a line for each of ten thousand paths.
 *
 *     block[0].attn.q     block - 0 - attn - q
 *     block[1].attn.q           - 1 - attn - q
 *     block[1].mlp.x                - mlp - x
 *
 * Below a name stand its indices, outermost first, and below the last of them
 * the names of the next part.
 */
#include "ir/plan/graph_paths.h"

#include <stdlib.h>
#include <string.h>

struct PathTree {
  Map *names;         /* of the next part -> PathTree; NULL: none */
  Map *indices;       /* index + 1 -> PathTree; NULL: none */
  int64_t last_index; /* the largest of these, or -1 */
  VEC(int) ends;      /* the paths that end here, by number */
};

typedef VEC(const PathTree *) TreeList;

static PathTree *child(Arena *arena, Map **children, const void *key) {
  if (!*children) *children = map_create(arena);
  PathTree *tree = map_get(*children, key);
  if (!tree) {
    tree = path_tree_create(arena);
    map_put(*children, key, tree);
  }
  return tree;
}

static const void *index_key(int64_t index) {
  return (const void *)(intptr_t)(index + 1);
}

PathTree *path_tree_create(Arena *arena) {
  PathTree *tree = ARENA_NEW(arena, PathTree);
  tree->last_index = -1;
  return tree;
}

void path_tree_add(Module *module, PathTree *tree, const char *path,
                   int number) {
  Arena *arena = module->arena;
  for (const char *at = path; *at; at += *at == '.') {
    size_t n = strcspn(at, ".[");
    tree = child(arena, &tree->names, name_intern_n(module->names, at, n));
    for (at += n; *at == '[';) {
      char *end;
      int64_t index = strtoll(at + 1, &end, 10);
      if (index > tree->last_index) tree->last_index = index;
      tree = child(arena, &tree->indices, index_key(index));
      at = end + 1;
    }
  }
  vec_push(arena, &tree->ends, number);
}

/* ---- matching ---- */

static void push_children(Arena *arena, const Map *children, TreeList *out) {
  for (int i = 0; children && i < map_size(children); i++)
    vec_push(arena, out, map_value_at(children, i));
}

static void push_range(Arena *arena, const PathTree *tree,
                       const PathRange *range, TreeList *out) {
  const Map *children = tree->indices;
  if (!children) return;
  if (range->first == range->last) {
    const PathTree *found = map_get(children, index_key(range->first));
    if (found) vec_push(arena, out, found);
    return;
  }
  for (int i = 0; i < map_size(children); i++) {
    int64_t index = (int64_t)(intptr_t)map_key_at(children, i) - 1;
    if (index >= range->first && index <= range->last)
      vec_push(arena, out, map_value_at(children, i));
  }
}

/* Where paths are whose first parts are as those of the pattern, and which have
 * the name and the first `n_ranges` indices of part `last`. */
static TreeList reach(Module *module, const PathTree *tree,
                      const PathPattern *pattern, int last, int n_ranges) {
  Arena *arena = module->arena;
  TreeList from = {0};
  vec_push(arena, &from, tree);
  for (int i = 0; i <= last; i++) {
    const PathPart *part = &pattern->parts[i];
    Name name = name_intern_n(module->names, part->name, part->n_name);
    TreeList to = {0};
    for (int k = 0; k < from.n; k++) {
      const Map *names = from.data[k]->names;
      const PathTree *found = names ? map_get(names, name) : NULL;
      if (found) vec_push(arena, &to, found);
    }
    int n = i < last ? part->ranges.n : n_ranges;
    for (int r = 0; r < n; r++) {
      from = to;
      to = (TreeList){0};
      for (int k = 0; k < from.n; k++)
        push_range(arena, from.data[k], &part->ranges.data[r], &to);
    }
    /* Indices that the pattern leaves out mean all. */
    for (int k = 0; i < last && k < to.n; k++)
      push_children(arena, to.data[k]->indices, &to);
    from = to;
  }
  return from;
}

static int compare_matches(const void *a, const void *b) {
  return ((const PathMatch *)a)->number - ((const PathMatch *)b)->number;
}

static void push_matches(Arena *arena, const PathTree *tree, bool is_exact,
                         PathMatches *out) {
  for (int i = 0; i < tree->ends.n; i++)
    vec_push(arena, out, ((PathMatch){tree->ends.data[i], is_exact}));
}

PathMatches path_tree_find(Module *module, const PathTree *tree,
                           const PathPattern *pattern) {
  Arena *arena = module->arena;
  PathMatches found = {0};
  int last = pattern->n - 1;
  TreeList at = reach(module, tree, pattern, last,
                      pattern->parts[last].ranges.n),
           below = {0};
  for (int i = 0; i < at.n; i++) {
    push_children(arena, at.data[i]->indices, &at);
    push_matches(arena, at.data[i], true, &found);
    push_children(arena, at.data[i]->names, &below);
  }
  for (int i = 0; i < below.n; i++) {
    push_children(arena, below.data[i]->indices, &below);
    push_children(arena, below.data[i]->names, &below);
    push_matches(arena, below.data[i], false, &found);
  }
  if (found.n > 1)
    qsort(found.data, (size_t)found.n, sizeof(PathMatch), compare_matches);
  return found;
}

int64_t path_tree_last_index(Module *module, const PathTree *tree,
                             const PathPattern *pattern, int i, int k) {
  int64_t most = -1;
  TreeList at = reach(module, tree, pattern, i, k);
  for (int j = 0; j < at.n; j++)
    if (at.data[j]->last_index > most) most = at.data[j]->last_index;
  return most;
}
