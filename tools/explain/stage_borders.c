/*
 * stage_borders.c -- lists plans in which lines `stage` end one border earlier
 * or later, for `dnnc explain MODEL cuts`.
 *
 *     stage 0: block[0..3]     stage 0: block[0..2]
 *     stage 1: block[4..7]     stage 1: block[3..7]
 *
 * Both lines beside the border are written anew, with their ranks and meshes;
 * the others stay.
 */
#include "tools/explain/stage_borders.h"

#include <string.h>

#include "planner/stages/stage_paths.h"

static const Plan *plan_of(const StageBorders *b) {
  return b->e->priced->c->plan;
}

/* Returns "stage 1: PATHS" of the plan, then " on 2..3" too. */
static const char *line_of(const StageBorders *b, int stage, bool has_ranks) {
  Text line = text_create(b->e->tool->arena);
  plan_print_stage(&line, plan_of(b), stage, NULL, has_ranks);
  return text_string(&line);
}

/* Returns the text with other paths in the line of this stage; NULL: it has no
 * such line. */
static const char *with_paths(const StageBorders *b, const char *text,
                              int stage, const char *paths) {
  Arena *arena = b->e->tool->arena;
  const char *old = line_of(b, stage, true), *at = strstr(text, old);
  size_t n = strlen(line_of(b, stage, false));
  if (!at) return NULL;
  return arena_printf(arena, "%.*sstage %d: %s%s", (int)(at - text), text,
                      stage, paths, at + n);
}

/* Stage `stage` ends after this piece. */
static void add_border(const StageBorders *b, int stage, int piece) {
  Explanation *e = b->e;
  Arena *arena = e->tool->arena;
  int n = plan_of(b)->stages.n, *ends = ARENA_ARRAY(arena, int, n);
  for (int s = 0; s < n; s++) ends[s] = b->ends[s];
  ends[stage] = piece + 1;
  const char **paths =
      stage_paths(arena, e->planning.loaded.pins->paths, b->chain, ends, n);
  const char *text = e->plan_text;
  for (int s = stage; paths && text && s <= stage + 1; s++)
    text = with_paths(b, text, s, paths[s]);
  if (!paths || !text) return;
  const char *old = b->chain->ends[b->ends[stage] - 1];
  Alternative one = {.text =
                         arena_printf(arena, "stage %d ends after %s, not %s",
                                      stage, b->chain->ends[piece], old),
                     .pins = "",
                     .changed = text,
                     .cut = stage};
  vec_push(arena, &e->alternatives, one);
}

const char *explain_add_borders(const StageBorders *b) {
  int n = plan_of(b)->stages.n;
  for (int s = 0; s < n; s++)
    if (b->ends[s] <= (s ? b->ends[s - 1] : 0))
      return "other ends of stages that do not follow the order of the model "
             "are not supported yet";
  for (int s = 0; s + 1 < n; s++) {
    int first = s ? b->ends[s - 1] : 0, at = b->ends[s] - 1;
    if (at - 1 >= first) add_border(b, s, at - 1);
    if (at + 2 < b->ends[s + 1]) add_border(b, s, at + 1);
  }
  return NULL;
}
