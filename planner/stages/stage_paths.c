/*
 * stage_paths.c -- names the part of a stage by paths that mean nothing of
 * another one, the shortest first, equal blocks in a range.
 *
 *     block[0].attn.q  block[0].mlp.x  block[1].attn.q | block[1].mlp.x
 *     block[0], block[1].attn                          | block[1].mlp
 */
#include "planner/stages/stage_paths.h"

#include <stdlib.h>
#include <string.h>

typedef struct PathNamer {
  Arena *arena;
  const PlanPaths *paths;
  const Graph *graph;
  Names *names;
  Map *stage_of; /* path of an operator -> stage + 1 */
  Map *tried;    /* text -> stage + 1, or 0: it means several */
  Map *written;  /* texts that a stage has */
  Map *covered;  /* paths that a text of their stage means, and these texts */
} PathNamer;

/* ---- stages of nodes ---- */

static void note_stage(PathNamer *m, const Graph *graph, int id, int stage) {
  const Node *node = graph->nodes.data[id];
  if (node->op == OP_input) return;
  for (int i = 0; node->body && i < node->body->nodes.n; i++)
    note_stage(m, node->body, i, stage);
  Name path = graph_path(graph, id);
  if (!path || !*path) return;
  path = name_intern(m->names, path);
  if (!map_has(m->stage_of, path))
    map_put(m->stage_of, path, (void *)(intptr_t)(stage + 1));
}

/* The last node that a border means. */
static int last_node(const PathNamer *m, const char *text) {
  PathList found = {0};
  Map *own = map_create(m->arena);
  if (!plan_paths_find_text(m->paths, text, &found)) return -1;
  for (int i = 0; i < found.n; i++)
    map_put(own, name_intern(m->names, found.data[i]), own);
  for (int id = m->graph->nodes.n - 1; id >= 0; id--) {
    Name path = graph_path(m->graph, id);
    if (m->graph->nodes.data[id]->op != OP_input && path &&
        map_has(own, name_intern(m->names, path)))
      return id;
  }
  return -1;
}

static bool note_stages(PathNamer *m, const StageChain *chain, const int *ends,
                        int n_stages) {
  int at = 0;
  for (int s = 0; s < n_stages; s++) {
    int last = s + 1 < n_stages ? last_node(m, chain->ends[ends[s] - 1])
                                : m->graph->nodes.n - 1;
    if (last < at) return false;
    for (; at <= last; at++) note_stage(m, m->graph, at, s);
  }
  return true;
}

/* ---- texts ---- */

/* The stage of all that a text means; -1: it means several, or nothing. */
static int stage_of_text(PathNamer *m, const char *text) {
  Name name = name_intern(m->names, text);
  if (map_has(m->tried, name))
    return (int)(intptr_t)map_get(m->tried, name) - 1;
  PathList found = {0};
  int stage = 0;
  bool is_one = plan_paths_find_text(m->paths, text, &found);
  for (int i = 0; i < found.n && is_one; i++) {
    intptr_t of =
        (intptr_t)map_get(m->stage_of, name_intern(m->names, found.data[i]));
    if (of == 0) continue; /* a parameter */
    is_one = stage == 0 || stage == (int)of;
    stage = (int)of;
  }
  if (!is_one) stage = 0;
  map_put(m->tried, name, (void *)(intptr_t)stage);
  for (int i = 0; i < found.n && stage > 0; i++)
    map_put(m->covered, name_intern(m->names, found.data[i]), m->covered);
  return stage - 1;
}

/* The shortest text that means this path and nothing of other stages. */
static const char *text_of(PathNamer *m, Name path, int stage) {
  for (const char *end = path + 1;; end++) {
    if (*end != '.' && *end != '[' && *end != '\0' && *end != '!') continue;
    const char *text = arena_printf(m->arena, "%.*s", (int)(end - path), path);
    if (stage_of_text(m, text) == stage) return text;
    if (*end == '\0') return NULL;
  }
}

/* Of "block[3]" the 3; -1: there is no index at the end. */
static long last_index(const char *text, size_t *out_before) {
  const char *open = strrchr(text, '[');
  size_t n = strlen(text);
  if (!open || n == 0 || text[n - 1] != ']' || strchr(open, '.')) return -1;
  *out_before = (size_t)(open - text);
  return strtol(open + 1, NULL, 10);
}

/* "block[0], block[1], block[2]": "block[0..2]". */
static void print_texts(Text *out, int n, const char *const *texts) {
  for (int i = 0; i < n;) {
    size_t before = 0, other = 0;
    long first = last_index(texts[i], &before), last = first;
    int k = i + 1;
    while (first >= 0 && k < n && last_index(texts[k], &other) == last + 1 &&
           other == before && strncmp(texts[i], texts[k], before) == 0) {
      last++;
      k++;
    }
    text_add(out, i > 0 ? ", " : "");
    if (last > first)
      text_printf(out, "%.*s[%ld..%ld]", (int)before, texts[i], first, last);
    else
      text_add(out, texts[i]);
    i = k;
  }
}

const char **stage_paths(Arena *arena, const PlanPaths *paths,
                         const StageChain *chain, const int *ends,
                         int n_stages) {
  PathNamer m = {.arena = arena,
                 .paths = paths,
                 .graph = plan_paths_graph(paths),
                 .names = names_create(arena),
                 .stage_of = map_create(arena),
                 .tried = map_create(arena),
                 .written = map_create(arena),
                 .covered = map_create(arena)};
  const char **out = ARENA_ARRAY(arena, const char *, n_stages);
  if (!note_stages(&m, chain, ends, n_stages)) return NULL;
  for (int s = 0; s < n_stages; s++) {
    VEC(const char *) texts = {0};
    for (int i = 0; i < map_size(m.stage_of); i++) {
      Name path = map_key_at(m.stage_of, i);
      if ((intptr_t)map_value_at(m.stage_of, i) != s + 1 ||
          map_has(m.covered, path))
        continue;
      const char *text = text_of(&m, path, s);
      Name name = text ? name_intern(m.names, text) : NULL;
      /* A path inside of a loop has the text of the loop. */
      if (text && !map_has(m.written, name)) vec_push(arena, &texts, text);
      if (text) map_put(m.written, name, m.written);
      if (text) map_put(m.covered, name, m.covered);
    }
    if (texts.n == 0) return NULL;
    Text line = text_create(arena);
    print_texts(&line, texts.n, texts.data);
    out[s] = text_string(&line);
  }
  return out;
}
