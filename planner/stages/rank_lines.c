/*
 * rank_lines.c -- writes stages on their own ranks as lines.
 *
 *     stage 0: conv on 0..3 as (data = 4)
 *     stage 1: linear on 4..7 as (data = 2, tensor = 2)
 *     shard N over data
 *     shard linear[0]!dot: N over data, O over tensor
 *
 * A line about an axis that a stage lacks says nothing of this stage, so a line
 * about names may be of several.  Lines about paths are those of the stage that
 * has the path.  A path may stand for those of several blocks, of which another
 * stage has some: it gets the lines of the first such stage.
 */
#include "planner/stages/rank_lines.h"

#include <string.h>

#include "planner/proposal_text.h"
#include "planner/stages/stage_paths.h"

bool rank_option_shards(const RankOption *option) {
  const Mesh *mesh = option->proposal->place.mesh;
  return option->proposal->batch_axes != (1 << mesh->n_axes) - 1;
}

static int tensor_of(const RankOption *option) {
  const Mesh *mesh = option->proposal->place.mesh;
  return rank_option_shards(option) ? mesh->axes[mesh->n_axes - 1].size : 1;
}

const char *rank_words(Arena *arena, const PlacedStage *stages, int n) {
  Text out = text_create(arena);
  text_add(&out, "stages of ");
  for (int i = 0; i < n; i++) {
    const RankOption *option = stages[i].option;
    int tensor = tensor_of(option);
    text_printf(&out, "%s%d", i > 0 ? "-" : "", option->ranks / tensor);
    if (tensor > 1) text_printf(&out, "x%d", tensor);
  }
  text_add(&out, " ranks");
  return text_string(&out);
}

static void add_stage(Text *out, const PlacedStage *stage, int number,
                      const char *paths) {
  const Mesh *mesh = stage->option->proposal->place.mesh;
  long long first = (long long)stage->first_rank;
  int ranks = stage->option->ranks;
  text_printf(out, "  stage %d: %s on %lld", number, paths, first);
  if (ranks > 1) text_printf(out, "..%lld as (", first + ranks - 1);
  for (int a = 0; a < mesh->n_axes; a++)
    text_printf(out, "%s%s = %d", a ? ", " : "", mesh->axes[a].name,
                mesh->axes[a].size);
  text_add(out, ranks > 1 ? ")\n" : "\n");
}

/* ---- operators ---- */

/* Appends lines about what no earlier line is about. */
static void add_new_lines(Text *out, const char *lines, Map *written) {
  while (*lines) {
    size_t n = strcspn(lines, "\n") + 1, about = strcspn(lines, ":\n");
    const char *word = strchr(lines + strspn(lines, " "), ' ');
    uint64_t hash = 83;
    for (const char *at = word; at < lines + about; at++)
      hash = hash_mix(hash, (uint64_t)(unsigned char)*at);
    const void *key = (const void *)(uintptr_t)(hash | 1);
    if (!map_has(written, key)) text_add_n(out, lines, n);
    map_put(written, key, (void *)(uintptr_t)1);
    lines += n;
  }
}

/* Units of which the stage has a piece. */
static const bool *units_of_stage(const StageSearch *s, int first, int end) {
  bool *out = ARENA_ARRAY(s->arena, bool, s->units->units.n + 1);
  for (int u = 0; u < s->units->units.n; u++) {
    const UnitPieces *at = &s->chain.units[u];
    for (int i = 0; i < at->n; i++)
      out[u] |= at->pieces[i] >= first && at->pieces[i] < end;
  }
  return out;
}

static void add_operators(const StageSearch *s, const PlacedStage *stage,
                          int first, Map *written, Text *out) {
  const Mesh *mesh = stage->option->proposal->place.mesh;
  const char *names[MOST_MESH_AXES];
  for (int a = 0; a < mesh->n_axes; a++) names[a] = mesh->axes[a].name;
  const char *lines = proposal_lines_of(s->arena, s->units, s->p->input->paths,
                                        stage->option->proposal, names,
                                        units_of_stage(s, first, stage->end));
  add_new_lines(out, lines, written);
}

/* The batch would take each axis that no line names. */
static void add_batch(const StageSearch *s, const PlacedStage *stages, int n,
                      Text *out) {
  const Pins *pins = s->p->input->pins;
  bool has_data = false;
  if (!pins || !pins->batch_dim) return;
  for (int i = 0; i < n; i++)
    has_data |= stages[i].option->ranks > tensor_of(stages[i].option);
  text_printf(out, "  shard %s over %s\n", pins->batch_dim,
              has_data ? "data" : "none");
}

const char *rank_lines(const StageSearch *s, const PlacedStage *stages, int n) {
  int *ends = ARENA_ARRAY(s->arena, int, n);
  bool shards = false;
  for (int i = 0; i < n; i++) {
    ends[i] = stages[i].end;
    shards |= rank_option_shards(stages[i].option);
  }
  const char **paths =
      stage_paths(s->arena, s->p->input->paths, &s->chain, ends, n);
  Text out = text_create(s->arena);
  Map *written = map_create(s->arena);
  if (!paths) return NULL;
  for (int i = 0; i < n; i++) add_stage(&out, &stages[i], i, paths[i]);
  if (shards) add_batch(s, stages, n, &out);
  for (int i = 0; i < n; i++)
    if (rank_option_shards(stages[i].option))
      add_operators(s, &stages[i], i > 0 ? stages[i - 1].end : 0, written,
                    &out);
  return text_string(&out);
}
