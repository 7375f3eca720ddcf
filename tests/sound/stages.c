/*
 * stages.c -- finds where a small model may be cut, and numbers groups of
 * ranks, their meshes, schedules and cuts; writes these as lines.
 *
 *     pipe = 2; a = 2     1f1b                cut after "lin0.relu"
 *     1 rank and 3        zbv                 stage 0: ... on 0, ...
 *
 * A border is where one value alone that parameters have a part in is read on.
 * This is found in the order of the operators, as a person would: the code of
 * the search, which asks its units too, has no part in it.
 */
#include <string.h>

#include "tests/sound/sound.h"

static const char *const axis_names[SOUND_AXES] = {"a", "b", "c"};

/* ---- borders ---- */

static bool *find_trained(Arena *arena, const Graph *graph) {
  bool *is_trained = ARENA_ARRAY(arena, bool, graph->nodes.n + 1);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op == OP_input) {
      Role role = graph->inputs.data[node_int(node, ATTR_index, 0)].role;
      is_trained[id] = role == ROLE_param;
    }
    for (int i = 0; i < node->n_inputs; i++)
      is_trained[id] |= is_trained[node->inputs[i].node];
  }
  return is_trained;
}

static int *find_readers(Arena *arena, const Graph *graph) {
  int *last = ARENA_ARRAY(arena, int, graph->nodes.n + 1);
  for (int id = 0; id < graph->nodes.n; id++)
    for (int i = 0; i < graph->nodes.data[id]->n_inputs; i++)
      last[graph->nodes.data[id]->inputs[i].node] = id;
  return last;
}

static bool has_path(const Node *node) {
  return node->op != OP_input && node->path && node->path[0];
}

/* A later node of this path would be in the stage, too. */
static bool is_last_of_path(const Graph *graph, int id) {
  for (int i = id + 1; i < graph->nodes.n; i++)
    if (has_path(graph->nodes.data[i]) &&
        !strcmp(graph->nodes.data[i]->path, graph->nodes.data[id]->path))
      return false;
  return true;
}

/* The paths behind a node as a list, each once. */
static const char *paths_after(Arena *arena, const Graph *graph, int id) {
  Text out = text_create(arena);
  bool is_first = true;
  for (int i = id + 1; i < graph->nodes.n; i++) {
    if (!has_path(graph->nodes.data[i]) || !is_last_of_path(graph, i)) continue;
    text_printf(&out, "%s\"%s\"", is_first ? "" : ", ",
                graph->nodes.data[i]->path);
    is_first = false;
  }
  return text_string(&out);
}

static void add_borders(SoundSpace *space, const Graph *graph) {
  const bool *is_trained = find_trained(space->arena, graph);
  const int *last = find_readers(space->arena, graph);
  int n = graph->nodes.n, n_open = 0;
  int *n_closing = ARENA_ARRAY(space->arena, int, n + 1);
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    bool is_open = node->op != OP_input && is_trained[id] && last[id] > id;
    n_open += is_open - n_closing[id];
    if (is_open) n_closing[last[id]]++;
    bool is_border = is_open && n_open == 1 && has_path(node) &&
                     node->op != OP_rename && node->types[0]->rank > 0 &&
                     is_last_of_path(graph, id);
    if (!is_border || space->n_borders == SOUND_BORDERS) continue;
    const char *after = paths_after(space->arena, graph, id);
    if (*after)
      space->borders[space->n_borders++] = (SoundBorder){node->path, after};
  }
}

/* ---- schedules ---- */

static void add_schedule(SoundSpace *space, const PipelineSchedule *of,
                         int chunks) {
  const char *text = of->name;
  if (space->n_schedules == SOUND_SCHEDULES) return;
  if (of->args == PIPELINE_ARGS_chunks)
    text = arena_printf(space->arena, "%s(v = %d)", of->name, chunks);
  space->schedules[space->n_schedules++] = (SoundSchedule){of, chunks, text};
}

static void add_schedules(SoundSpace *space) {
  enum { MOST_CHUNKS = 4 };
  for (int i = 0; i < pipeline_schedule_count(); i++) {
    const PipelineSchedule *of = pipeline_schedule(i);
    if (!of->is_compiled) continue;
    if (of->placement == PLACEMENT_single) add_schedule(space, of, 1);
    if (of->placement == PLACEMENT_vee) add_schedule(space, of, 2);
    if (of->placement == PLACEMENT_looped)
      for (int v = 2; v <= MOST_CHUNKS; v++) add_schedule(space, of, v);
  }
}

static bool suits(const SoundSpace *space, const SoundMesh *mesh,
                  const SoundSchedule *schedule) {
  return mesh->groups->n * schedule->chunks - 1 <= space->n_borders;
}

int sound_n_schedules(const SoundSpace *space, const SoundMesh *mesh) {
  int n = 0;
  if (!mesh->groups) return 1;
  for (int i = 0; i < space->n_schedules; i++)
    n += suits(space, mesh, &space->schedules[i]);
  return n;
}

const SoundSchedule *sound_schedule(const SoundSpace *space,
                                    const SoundMesh *mesh, int digit) {
  if (!mesh->groups) return NULL;
  for (int i = 0; i < space->n_schedules; i++)
    if (suits(space, mesh, &space->schedules[i]) && digit-- == 0)
      return &space->schedules[i];
  return NULL;
}

/* ---- groups ---- */

static void add_groups(SoundSpace *space, const SoundGroups *groups) {
  if (space->n_meshes == SOUND_MESHES) return;
  SoundMesh *mesh = &space->meshes[space->n_meshes];
  bool has_axis[SOUND_AXES] = {false};
  *mesh =
      (SoundMesh){.groups = arena_copy(space->arena, groups, sizeof *groups)};
  for (int g = 0; g < groups->n; g++)
    for (int a = 0; a < SOUND_AXES; a++)
      if (groups->sizes[g][a] > 1) {
        has_axis[a] = true;
        mesh->n_axes = a + 1 > mesh->n_axes ? a + 1 : mesh->n_axes;
        mesh->sizes[a] = groups->sizes[g][a];
      }
  for (int a = 0; a < mesh->n_axes; a++)
    if (!has_axis[a]) return; /* another one is the same with other names */
  if (sound_n_schedules(space, mesh) > 0) space->n_meshes++;
}

/* Each group's ranks over a, over b, or over both. */
static void add_other_meshes(SoundSpace *space, SoundGroups *groups, int g) {
  if (g == groups->n) {
    bool are_equal = true;
    for (int i = 1; i < g; i++)
      are_equal &=
          groups->ranks[i] == groups->ranks[0] &&
          !memcmp(groups->sizes[i], groups->sizes[0], sizeof groups->sizes[0]);
    if (!are_equal) add_groups(space, groups);
    return;
  }
  ASSERT(g < SOUND_GROUPS);
  int64_t n = groups->ranks[g], *sizes = groups->sizes[g];
  for (int64_t a = 1; a <= n; a++) {
    if (n % a != 0) continue;
    sizes[0] = a > 1 ? a : 0;
    sizes[1] = n / a > 1 ? n / a : 0;
    add_other_meshes(space, groups, g + 1);
  }
}

/* All ways to have the ranks that are left in groups. */
static void add_unequal(SoundSpace *space, SoundGroups *groups, int64_t left) {
  if (left == 0) {
    if (groups->n > 1) add_other_meshes(space, groups, 0);
    return;
  }
  if (groups->n == SOUND_GROUPS) return;
  int g = groups->n++;
  for (int64_t n = 1; n <= left; n++) {
    groups->ranks[g] = n;
    add_unequal(space, groups, left - n);
  }
  groups->n = g;
}

static void add_equal(SoundSpace *space, int n_groups) {
  SoundGroups groups = {.n = n_groups, .are_equal = true};
  int64_t n = space->ranks / n_groups;
  for (int64_t a = 1; a <= n; a++) {
    if (n % a != 0 || (a == 1 && n > 1)) continue;
    for (int g = 0; g < n_groups; g++) {
      groups.ranks[g] = n;
      groups.sizes[g][0] = a > 1 ? a : 0;
      groups.sizes[g][1] = n / a > 1 ? n / a : 0;
    }
    add_groups(space, &groups);
  }
}

void sound_add_stages(SoundSpace *space, const Compilation *loaded) {
  SoundGroups groups = {0};
  add_borders(space, loaded->model->train);
  if (space->n_borders == 0) return;
  add_schedules(space);
  for (int n = 2; n <= space->ranks && n <= SOUND_GROUPS; n++)
    if (space->ranks % n == 0) add_equal(space, n);
  add_unequal(space, &groups, space->ranks);
}

bool sound_has_stages(const SoundSpace *space) {
  for (int i = 0; i < space->n_meshes; i++)
    if (space->meshes[i].groups) return true;
  return false;
}

/* ---- cuts ---- */

static int64_t binomial(int n, int k) {
  int64_t out = 1;
  for (int i = 1; i <= k; i++) out = out * (n - k + i) / i;
  return k > n ? 0 : out;
}

int64_t sound_n_cuts(const SoundSpace *space, const SoundMesh *mesh,
                     const SoundSchedule *schedule) {
  if (!schedule || space->are_cuts_pinned) return 1;
  return binomial(space->n_borders, mesh->groups->n * schedule->chunks - 1);
}

/* The choice of this number of `n_cuts` borders, in order. */
static void find_cuts(const SoundSpace *space, int n_cuts, int64_t number,
                      int *out) {
  int left = n_cuts;
  for (int b = 0; b < space->n_borders && left > 0; b++) {
    int64_t with = binomial(space->n_borders - b - 1, left - 1);
    if (number < with)
      out[n_cuts - left--] = b;
    else
      number -= with;
  }
}

/* ---- text ---- */

static int group_of(const SoundMesh *mesh, const SoundSchedule *schedule,
                    int stage) {
  return pipeline_rank_of_stage(schedule->of, mesh->groups->n, stage);
}

/* " on 0..3 as (a = 2, b = 2)". */
static void add_ranks(Text *out, const SoundGroups *groups, int group) {
  int64_t first = 0, n = groups->ranks[group];
  bool is_any = false;
  for (int g = 0; g < group; g++) first += groups->ranks[g];
  text_printf(out, " on %lld", (long long)first);
  if (n > 1) text_printf(out, "..%lld", (long long)(first + n - 1));
  for (int a = 0; a < SOUND_AXES; a++) {
    int64_t size = groups->sizes[group][a];
    if (size == 0) continue;
    text_printf(out, "%s%s = %lld", is_any ? ", " : " as (", axis_names[a],
                (long long)size);
    is_any = true;
  }
  text_add(out, is_any ? ")\n" : "\n");
}

void sound_stage_lines(Text *out, const SoundSpace *space,
                       const SoundMesh *mesh, const SoundSchedule *schedule,
                       int64_t cuts) {
  int ends[SOUND_BORDERS];
  if (!schedule || space->are_cuts_pinned) return;
  int n = mesh->groups->n * schedule->chunks;
  find_cuts(space, n - 1, cuts, ends);
  if (!space->is_schedule_pinned)
    text_printf(out, "  schedule = %s\n", schedule->text);
  for (int s = 0; s < n; s++) {
    if (mesh->groups->are_equal) {
      if (s + 1 < n)
        text_printf(out, "  cut after \"%s\"\n", space->borders[ends[s]].path);
      continue;
    }
    /* A node that no line names goes with what reads it. */
    if (s + 1 < n)
      text_printf(out, "  stage %d: \"%s\"", s, space->borders[ends[s]].path);
    else
      text_printf(out, "  stage %d: %s", s, space->borders[ends[s - 1]].after);
    add_ranks(out, mesh->groups, group_of(mesh, schedule, s));
  }
}

/* ---- words ---- */

/* Appends a text without blanks. */
static void add_dense(Text *out, const char *text, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (text[i] != ' ') text_add_n(out, &text[i], 1);
}

/* "pipe = 2; a = 2" in one line, or an axis in each. */
static const char *add_mesh_words(Text *out, const char *text) {
  const char *at = strstr(text, "mesh {");
  if (!at) return text;
  for (at += strlen("mesh {"); *at && *at != '}';) {
    at += strspn(at, "; \n");
    size_t n = strcspn(at, ";\n}");
    if (n == 0) continue;
    add_dense(out, at, n);
    text_add(out, ",");
    at += n;
  }
  return at;
}

const char *sound_words(Arena *arena, const char *text) {
  static const char *const settings[] = {"schedule", "microbatches", "zero"};
  Text out = text_create(arena);
  bool has_remat = false;
  const char *line = add_mesh_words(&out, text);
  for (; *line; line += strcspn(line, "\n"), line += *line == '\n') {
    size_t n = strcspn(line, "\n"), indent = strspn(line, " ");
    const char *word = line + indent, *value = strchr(word, '=');
    for (int i = 0; i < ARRAY_LENGTH(settings); i++) {
      if (strncmp(word, settings[i], strlen(settings[i])) != 0 || !value)
        continue;
      if (i > 0) text_printf(&out, "%s=", settings[i]);
      add_dense(&out, value + 1, (size_t)(line + n - value - 1));
      text_add(&out, ",");
    }
    const char *ranks = strstr(line, " on ");
    bool is_stage = !strncmp(word, "stage ", 6) && ranks && ranks < line + n;
    if (is_stage) add_dense(&out, ranks + 4, (size_t)(line + n - ranks - 4));
    if (is_stage) text_add(&out, ",");
    has_remat |= !strncmp(word, "remat ", 6);
  }
  text_add(&out, has_remat ? "remat" : "-");
  return text_string(&out);
}
