/*
 * by_path.c -- adds up the time and memory of a priced step by path.
 *
 *     block[0].attn.dot[0]  3 ms
 *     block[1].attn.dot[0]  3 ms    =>    block[0..1].attn.dot[0]  6 ms
 *     block[1].attn.dot[1]  2 ms          block[1].attn.dot[1]     2 ms
 *
 * A launch counts for the path of its node, a wait for that of the collective.
 * The time that transfers take from a launch is the interference of its path.
 * An index is folded if a part follows it: those are repeats of layers, and the
 * last one numbers the operators of a layer.
 */
#include "tools/show/inspect.h"

#include <stdlib.h>
#include <string.h>

/* The indices that are folded, and the path with '*' instead of them. */
static Name fold_path(Names *names, Arena *arena, const char *path,
                      PathRow *row) {
  Text key = text_create(arena);
  row->n_indices = 0;
  for (const char *at = path; *at;) {
    char *end = NULL;
    int64_t index = *at == '[' ? strtoll(at + 1, &end, 10) : 0;
    bool is_repeat = end && end > at + 1 && end[0] == ']' &&
                     (end[1] == '.' || end[1] == '[') &&
                     row->n_indices < MOST_FOLDED;
    if (!is_repeat) {
      text_add_n(&key, at++, 1);
      continue;
    }
    text_add(&key, "[*]");
    row->least[row->n_indices] = row->most[row->n_indices] = index;
    row->n_indices++;
    at = end + 1;
  }
  return name_intern(names, text_string(&key));
}

typedef struct PathSum {
  Arena *arena;
  Names *names;
  PathTable *table;
  bool folds;
  Map *rows; /* path -> row, plus 1 */
} PathSum;

static PathRow *path_row(PathSum *sum, const char *path) {
  Name name = name_intern(sum->names, *path ? path : "(no path)");
  intptr_t at = (intptr_t)map_get(sum->rows, name);
  if (at) return &sum->table->rows.data[at - 1];
  PathRow row = {.n_paths = 1};
  row.key = sum->folds ? fold_path(sum->names, sum->arena, name, &row) : name;
  at = (intptr_t)map_get(sum->table->index, row.key);
  if (!at) {
    vec_push(sum->arena, &sum->table->rows, row);
    at = sum->table->rows.n;
    map_put(sum->table->index, row.key, (void *)at);
  } else {
    PathRow *known = &sum->table->rows.data[at - 1];
    known->n_paths++;
    for (int i = 0; i < row.n_indices; i++) {
      if (row.least[i] < known->least[i]) known->least[i] = row.least[i];
      if (row.most[i] > known->most[i]) known->most[i] = row.most[i];
    }
  }
  map_put(sum->rows, name, (void *)at);
  return &sum->table->rows.data[at - 1];
}

/* The time of the class whose parts are those of the step. */
static void add_times(PathSum *sum, const Priced *p) {
  const PricedClass *class = priced_shown(p);
  for (int i = 0; class && i < class->stream.n; i++) {
    const StreamSpan *span = &class->stream.data[i];
    PathRow *row =
        path_row(sum, priced_node_path(&class->nodes[span->instruction]));
    row->parts[span->part] += priced_length(span) - span->taken;
    row->parts[COST_interference] += span->taken;
    row->time += priced_length(span);
  }
}

/* "adamw.m/block[3].attn.wq": the parameter. */
static const char *stored_path(const PersistentBuffer *buffer) {
  const char *slash = strchr(buffer->path, '/');
  return slash ? slash + 1 : buffer->path;
}

static void add_memory(PathSum *sum, const Priced *p) {
  const Graph *graph = p->stage->graph;
  const Target *target = &p->c->target.backend->target;
  MemoryPeak peak = memory_peak(graph, p->stage->assignment, target);
  int n;
  const MemoryValue *values =
      memory_values(sum->arena, graph, p->stage->assignment, target, &n);
  const PersistentBuffers *persistent =
      &priced_program(p, p->shown)->program->persistent;
  for (int i = 0; i < persistent->buffers.n; i++) {
    const PersistentBuffer *buffer = &persistent->buffers.data[i];
    if (buffer->offset < HOST_ORIGIN)
      path_row(sum, stored_path(buffer))->persistent += buffer->bytes;
  }
  for (int i = 0; i < n; i++)
    if (values[i].first <= peak.node && peak.node <= values[i].last)
      path_row(sum, priced_path(graph->nodes.data[values[i].writer]))
          ->at_peak += values[i].bytes;
}

PathTable paths_of(Arena *arena, const Priced *p, bool folds) {
  PathTable table = {.index = map_create(arena)};
  PathSum sum = {.arena = arena,
                 .names = p->c->module->names,
                 .table = &table,
                 .folds = folds,
                 .rows = map_create(arena)};
  add_times(&sum, p);
  add_memory(&sum, p);
  return table;
}

PathRow paths_fold(Names *names, Arena *arena, const char *path) {
  PathRow row = {.n_paths = 1};
  row.key = fold_path(names, arena, path, &row);
  return row;
}

static int compare_rows(const void *a, const void *b) {
  const PathRow *x = a, *y = b;
  if (x->time != y->time) return x->time < y->time ? 1 : -1;
  Bytes p = x->at_peak + x->persistent, q = y->at_peak + y->persistent;
  return p != q ? (p < q ? 1 : -1) : strcmp(x->key, y->key);
}

void paths_sort(PathTable *table) {
  if (table->rows.n > 1)
    qsort(table->rows.data, (size_t)table->rows.n, sizeof *table->rows.data,
          compare_rows);
}

bool path_iteration(Names *names, const char *path, Name *out_name,
                    int64_t *out_index) {
  size_t n = strcspn(path, ".[");
  if (path[n] != '[') return false;
  char *end;
  *out_index = strtoll(path + n + 1, &end, 10);
  if (end[0] != ']' || end[1] != '.') return false;
  *out_name = name_intern_n(names, path, n);
  return true;
}

const char *path_text(Arena *arena, const PathRow *row) {
  Text text = text_create(arena);
  int i = 0;
  for (const char *at = row->key; *at;) {
    if (i == row->n_indices || strncmp(at, "[*]", 3) != 0) {
      text_add_n(&text, at++, 1);
      continue;
    }
    text_printf(&text, "[%lld", (long long)row->least[i]);
    if (row->most[i] > row->least[i])
      text_printf(&text, "..%lld", (long long)row->most[i]);
    text_add(&text, "]");
    i++, at += 3;
  }
  return text_string(&text);
}
