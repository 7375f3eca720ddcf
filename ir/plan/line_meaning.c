/*
 * line_meaning.c -- finds the paths that a line of a printed plan decides.
 *
 *     shard block: ...         values, parameters and states of each block
 *     remat block              its values but for its results
 *     shard block!dot[0]: ...  one operator of each block
 */
#include "ir/plan/plan_lines.h"

static void add_unhidden(LineMaker *maker, const PathList *found,
                         PathList *out) {
  for (int i = 0; i < found->n; i++)
    if (!plan_paths_is_hidden(maker->paths, found->data[i]))
      vec_push(maker->arena, out, found->data[i]);
}

static void add_meaning(LineMaker *maker, LineKind kind, const char *text,
                        PathList *out) {
  PathPattern pattern;
  PathList found = {0};
  if (!*text || !path_pattern_parse(maker->arena, &pattern, text, SPAN_NONE) ||
      (pattern.is_operator && kind == LINE_value))
    return;
  if (kind == LINE_remat || kind == LINE_keep || kind == LINE_offload) {
    PinSays says = kind == LINE_remat  ? SAYS_remat
                   : kind == LINE_keep ? SAYS_keep
                                       : SAYS_offload;
    SavedPaths saved = {0};
    plan_paths_saved(maker->paths, &pattern, says, &saved);
    *out = saved.values;
    bool takes_inputs = maker->plan->zero >= 3 || kind == LINE_offload;
    for (int i = 0; i < saved.inputs.n && takes_inputs; i++)
      vec_push(maker->arena, out, saved.inputs.data[i]);
    return;
  }
  plan_paths_find(maker->paths, &pattern, &found);
  if (kind == LINE_operator)
    *out = found;
  else
    add_unhidden(maker, &found, out);
}

const PathList *line_meaning(LineMaker *maker, LineKind kind,
                             const char *text) {
  Map **known = &maker->meanings[kind];
  Name key = name_intern(maker->module->names, text);
  if (!*known) *known = map_create(maker->arena);
  PathList *meaning = map_get(*known, key);
  if (meaning) return meaning;
  meaning = ARENA_NEW(maker->arena, PathList);
  add_meaning(maker, kind, text, meaning);
  map_put(*known, key, meaning);
  return meaning;
}
