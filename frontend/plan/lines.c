/*
 * lines.c -- makes the pins about paths of a printed plan (language.md 11): the
 * placements that differ from the pins by name, in program order, with equal
 * neighbours of a repeat folded into ranges.
 *
 *     shard B over data             shard B over data
 *     replicate ffn.w          =>
 *     shard ffn.y: B over none      replicate ffn[0..2].y
 *
 * Each line is for one path of a node, its indices apart.  A node that no path
 * means alone (such as a layer's result under another name) has no line: its
 * placement follows from its operands.
 */
#include "frontend/plan/paths.h"
#include "frontend/syntax/syntax.h"

#include <stdlib.h>
#include <string.h>

typedef struct Entry { /* a path that a line places */
  Name path;
  const char *text;               /* of the path, as it is printed alone */
  const PlanPlacement *placement; /* NULL: the line says how it is saved */
  const char *head;
  Text places; /* "B over data, T over (seq, tensor)" */
  Map *dims;   /* that are in it */
  bool differs;
} Entry;

typedef struct Box { /* indices of a path, outermost first */
  int64_t *first, *last;
  bool is_gone;
} Box;

typedef struct Group { /* entries that differ by indices alone */
  const char *shape;   /* the first one's text */
  const char *head, *places;
  bool is_operator;
  int n_indices;
  VEC(Box) boxes;
  PathList paths;
} Group;

typedef struct Lines {
  Elab *e;
  Arena *arena;
  PlanPaths *paths;
  Plan *plan;
  VEC(Entry *) entries;
  VEC(Group *) groups;
} Lines;

/* ---- what differs ---- */

/* The axes that lines give a dim, those taken by another dim left out. */
static int lines_free_axes(const PlanShard *const *lines, int n, int d,
                           Name *out) {
  int n_axes = 0;
  for (int i = 0; lines[d] && i < lines[d]->n_axes; i++)
    if (plan_axis_taken(lines, n, d, lines[d]->axes[i]) < 0)
      out[n_axes++] = lines[d]->axes[i];
  return n_axes;
}

static void add_place(Entry *entry, Name dim, const Name *axes, int n) {
  if (n == 0 || map_has(entry->dims, dim)) return;
  map_put(entry->dims, dim, entry);
  text_printf(&entry->places, "%s%s over %s", entry->places.n ? ", " : "", dim,
              n > 1 ? "(" : "");
  for (int i = 0; i < n; i++)
    text_printf(&entry->places, "%s%s", i ? ", " : "", axes[i]);
  if (n > 1) text_add(&entry->places, ")");
}

static void lines_add_type(Lines *l, Entry *entry, const Type *type) {
  const PlanShard *pinned[MAX_RANK], *named[MAX_RANK];
  for (int d = 0; d < type->rank; d++) {
    named[d] = plan_named_dim(l->plan, entry->path, type->dims[d].name);
    pinned[d] = plan_placed_dim(entry->placement, type->dims[d].name);
  }
  for (int d = 0; d < type->rank; d++) {
    Name axes[MAX_AXES], other[MAX_AXES];
    int n = lines_free_axes(pinned, type->rank, d, axes);
    int n_other = lines_free_axes(named, type->rank, d, other);
    bool is_same = n == n_other;
    for (int i = 0; is_same && i < n; i++) is_same = axes[i] == other[i];
    entry->differs |= !is_same;
    add_place(entry, type->dims[d].name, axes, n);
  }
}

/* Values with an annotation, which holds where a plan has no line. */
static Map *annotated_paths(const Lines *l) {
  Map *map = map_create(l->arena);
  for (int i = 0; i < l->plan->placements.n; i++) {
    const PlanPlacement *line = &l->plan->placements.data[i];
    for (int k = 0; k < line->n_paths && line->is_annotation; k++)
      map_put(map, line->paths[k], (void *)line);
  }
  return map;
}

static void lines_collect(Lines *l) {
  Map *seen = map_create(l->arena), *annotated = annotated_paths(l);
  int n;
  const PlanNode *nodes = plan_paths_nodes(l->paths, &n);
  for (int i = 0; i < n; i++) {
    const Node *node = nodes[i].node;
    Name path = nodes[i].path;
    const PlanPlacement *placement = plan_find_placement(l->plan, path);
    if (!placement) continue;
    Entry *entry = map_get(seen, path);
    if (!entry) {
      entry = ARENA_NEW(l->arena, Entry);
      *entry = (Entry){.path = path,
                       .text = path,
                       .placement = placement,
                       .places = text_create(l->arena),
                       .dims = map_create(l->arena),
                       .differs = placement->n_partial > 0 ||
                                  map_has(annotated, path)};
      map_put(seen, path, entry);
      vec_push(l->arena, &l->entries, entry);
    }
    /* A value stays where a pin says, whatever the lines of names do. */
    entry->differs |= node->op != OP_input;
    for (int r = 0; r < node->n_results; r++)
      lines_add_type(l, entry, node->types[r]);
  }
  for (int i = 0; i < l->entries.n; i++) {
    Entry *entry = l->entries.data[i];
    if (entry->placement->n_partial > 0)
      add_place(entry, name_intern(l->e->names, "partial"),
                entry->placement->partial, entry->placement->n_partial);
    entry->head = entry->places.n ? "shard" : "replicate";
  }
}

/* Whether the text means this path and nothing else. */
static bool lines_mean(Lines *l, const char *text, Name path) {
  PathList found = {0};
  return plan_paths_find_text(l->paths, text, &found) && found.n == 1 &&
         found.data[0] == path;
}

/* A line `remat` or `keep` may name further values of which it holds too. */
static bool lines_save(Lines *l, const Group *group, const char *text) {
  bool is_remat = strcmp(group->head, "remat") == 0;
  PathList found = {0};
  if ((!is_remat && strcmp(group->head, "keep") != 0) ||
      !plan_paths_find_text(l->paths, text, &found))
    return false;
  for (int i = 0; i < found.n; i++) {
    const PlanSaving *saving = plan_find_saving(l->plan, found.data[i]);
    if (!saving || saving->is_recomputed != is_remat) return false;
  }
  return true;
}

/* PATH!NAME, which means this operator alone; NULL: nothing does. */
static const char *operator_text(Lines *l, Name path) {
  const char *text = path;
  for (int n = 0; text; n++) {
    char *bang = arena_strdup(l->arena, text), *dot;
    while ((dot = strchr(bang, '!'))) *dot = '.';
    dot = strrchr(bang, '.');
    if (dot)
      *dot = '!';
    else
      bang = arena_printf(l->arena, "!%s", text);
    if (lines_mean(l, bang, path)) return bang;
    text = plan_paths_other(l->paths, path, n);
  }
  return NULL;
}

static void lines_add_operator(Lines *l, Name path) {
  const PlanPlacement *line = plan_find_operator(l->plan, path);
  Entry *entry = ARENA_NEW(l->arena, Entry);
  *entry = (Entry){.path = path,
                   .text = operator_text(l, path),
                   .placement = line,
                   .places = text_create(l->arena),
                   .dims = map_create(l->arena),
                   .differs = true};
  for (int i = 0; i < line->n_shards; i++)
    add_place(entry, line->shards[i].dim, line->shards[i].axes,
              line->shards[i].n_axes);
  entry->head = entry->places.n ? "shard" : "replicate";
  if (entry->text) vec_push(l->arena, &l->entries, entry);
}

/* After the placements of values: how operators compute. */
static void lines_collect_operators(Lines *l) {
  Map *seen = map_create(l->arena);
  int n;
  const PlanNode *nodes = plan_paths_nodes(l->paths, &n);
  for (int i = 0; i < n; i++) {
    Name path = nodes[i].path;
    if (map_has(seen, path) || !plan_find_operator(l->plan, path)) continue;
    map_put(seen, path, (void *)path);
    lines_add_operator(l, path);
  }
}

/* After the placements: `remat` and `keep`. */
static void lines_collect_saving(Lines *l) {
  Map *seen = map_create(l->arena);
  int n;
  const PlanNode *nodes = plan_paths_nodes(l->paths, &n);
  for (int i = 0; i < n; i++) {
    Name path = nodes[i].path;
    const PlanSaving *saving = plan_find_saving(l->plan, path);
    if (!saving || map_has(seen, path)) continue;
    Entry *entry = ARENA_NEW(l->arena, Entry);
    *entry = (Entry){.path = path,
                     .text = path,
                     .head = saving->is_recomputed ? "remat" : "keep",
                     .places = text_create(l->arena),
                     .differs = true};
    map_put(seen, path, entry);
    vec_push(l->arena, &l->entries, entry);
  }
}

/* ---- ranges ---- */

/* The path with these indices, the one at `blank` left out (-1: none). */
static const char *lines_fill(Lines *l, const Group *group, const Box *box,
                              int blank) {
  Text text = text_create(l->arena);
  const char *at = group->shape;
  for (int k = 0; *at; k++) {
    size_t n = strcspn(at, "[");
    text_add_n(&text, at, n);
    at += n;
    if (!*at) break;
    at += strcspn(at, "]") + 1;
    if (k == blank)
      text_add(&text, "[]");
    else if (box->first[k] == box->last[k])
      text_printf(&text, "[%lld]", (long long)box->first[k]);
    else
      text_printf(&text, "[%lld..%lld]", (long long)box->first[k],
                  (long long)box->last[k]);
  }
  return text_string(&text);
}

/* Neighbours at one index that agree in the others, innermost index first. */
static void lines_fold(Lines *l, Group *group) {
  for (int k = group->n_indices - 1; k >= 0; k--) {
    Map *open = map_create(l->arena);
    for (int i = 0; i < group->boxes.n; i++) {
      Box *box = &group->boxes.data[i];
      if (box->is_gone) continue;
      Name key = name_intern(l->e->names, lines_fill(l, group, box, k));
      Box *before = map_get(open, key);
      box->is_gone = before && before->last[k] + 1 == box->first[k];
      if (box->is_gone)
        before->last[k] = box->last[k];
      else
        map_put(open, key, box);
    }
  }
}

static Box lines_box_of(Lines *l, const char *path, int n_indices) {
  Box box = {ARENA_ARRAY(l->arena, int64_t, n_indices + 1),
             ARENA_ARRAY(l->arena, int64_t, n_indices + 1), false};
  int k = 0;
  for (const char *at = strchr(path, '['); at; at = strchr(at + 1, '['), k++)
    box.first[k] = box.last[k] = strtoll(at + 1, NULL, 10);
  return box;
}

static Group *group_of(Lines *l, Map *groups, Entry *entry) {
  Text key = text_create(l->arena);
  int n = 0;
  for (const char *at = entry->text; *at; at++) {
    text_add_n(&key, at, 1);
    if (*at != '[') continue;
    at += strcspn(at, "]");
    n++;
  }
  const char *places = text_string(&entry->places);
  text_printf(&key, " %s %s", entry->head, places);
  Name name = name_intern(l->e->names, text_string(&key));
  Group *group = map_get(groups, name);
  if (group) return group;
  group = ARENA_NEW(l->arena, Group);
  *group = (Group){.shape = entry->text,
                   .head = entry->head,
                   .places = places,
                   .is_operator = strchr(entry->text, '!') != NULL,
                   .n_indices = n};
  map_put(groups, name, group);
  vec_push(l->arena, &l->groups, group);
  return group;
}

static void make_groups(Lines *l) {
  Map *groups = map_create(l->arena);
  for (int i = 0; i < l->entries.n; i++) {
    Entry *entry = l->entries.data[i];
    if (!entry->differs) continue;
    Group *group = group_of(l, groups, entry);
    vec_push(l->arena, &group->boxes,
             lines_box_of(l, entry->text, group->n_indices));
    vec_push(l->arena, &group->paths, entry->path);
  }
}

/* ---- text ---- */

/* A word of the language or, in front, of a plan must stand in quotes. */
static bool needs_quotes(Lines *l, const char *path) {
  if (*path == '!') return true;
  for (const char *at = path; *at; at += *at != '\0') {
    size_t n = strcspn(at, ".![");
    Name word = name_intern_n(l->e->names, at, (int)n);
    if (is_keyword(word) || (at == path && is_plan_word(word))) return true;
    at += strcspn(at, ".!");
  }
  return false;
}

static void add_line(Lines *l, const Group *group, const char *path) {
  const char *quote = needs_quotes(l, path) ? "\"" : "";
  const char *line =
      arena_printf(l->arena, "%s %s%s%s%s%s", group->head, quote, path, quote,
                   *group->places ? ": " : "", group->places);
  vec_push(l->arena, &l->plan->lines, name_intern(l->e->names, line));
}

static bool same_paths(Lines *l, const PathList *a, const PathList *b) {
  Map *known = map_create(l->arena);
  for (int i = 0; i < b->n; i++) map_put(known, b->data[i], l);
  bool is_same = a->n == b->n;
  for (int i = 0; is_same && i < a->n; i++)
    is_same = map_has(known, a->data[i]);
  return is_same;
}

/* One by one, where together they would mean something else. */
static void add_single(Lines *l, const Group *group, Name path) {
  const char *text = group->is_operator ? operator_text(l, path) : path;
  for (int n = 0;
       text && !lines_mean(l, text, path) && !lines_save(l, group, text); n++)
    text = plan_paths_other(l->paths, path, n);
  if (text) add_line(l, group, text);
}

static void print_group(Lines *l, Group *group) {
  PathList found = {0};
  VEC(const char *) texts = {0};
  lines_fold(l, group);
  for (int i = 0; i < group->boxes.n; i++) {
    if (group->boxes.data[i].is_gone) continue;
    const char *text = lines_fill(l, group, &group->boxes.data[i], -1);
    plan_paths_find_text(l->paths, text, &found);
    vec_push(l->arena, &texts, text);
  }
  bool is_good = same_paths(l, &found, &group->paths);
  for (int i = 0; is_good && i < texts.n; i++)
    add_line(l, group, texts.data[i]);
  for (int i = 0; !is_good && i < group->paths.n; i++)
    add_single(l, group, group->paths.data[i]);
}

/* ---- lines that say nothing ---- */

/* The pin that decides if this one is removed, if it gives this type the same
 * placement: an earlier pin about the path, or pins about all dims. */
static Span decides_alike(const Plan *plan, const PlanPlacement *line,
                          const PlanPlacement *before, Name path,
                          const Type *type) {
  const PlanShard *now[MAX_RANK], *else_[MAX_RANK];
  Span by = before ? before->span : SPAN_NONE;
  for (int d = 0; d < type->rank; d++) {
    Name dim = type->dims[d].name;
    now[d] = plan_placed_dim(line, dim);
    else_[d] =
        before ? plan_placed_dim(before, dim) : plan_named_dim(plan, path, dim);
    if (!before && (!else_[d] || !else_[d]->span.source)) return SPAN_NONE;
    if (!before) by = else_[d]->span;
  }
  for (int d = 0; d < type->rank; d++) {
    Name axes[MAX_AXES], other[MAX_AXES];
    int n = lines_free_axes(now, type->rank, d, axes);
    if (n != lines_free_axes(else_, type->rank, d, other)) return SPAN_NONE;
    for (int i = 0; i < n; i++)
      if (axes[i] != other[i]) return SPAN_NONE;
  }
  return by;
}

static bool same_partial(const PlanPlacement *a, const PlanPlacement *b) {
  int n = b ? b->n_partial : 0;
  bool is_same = a->n_partial == n;
  for (int i = 0; is_same && i < n; i++)
    is_same = a->partial[i] == b->partial[i];
  return is_same;
}

static Span find_implying(Elab *e, const PlanPaths *paths, const Plan *plan,
                          const Map *placed, const PlanPlacement *line) {
  Map *own = map_create(e->arena);
  for (int i = 0; i < line->n_paths; i++)
    map_put(own, line->paths[i], (void *)line);
  Span by = SPAN_NONE;
  int n;
  const PlanNode *nodes = plan_paths_nodes(paths, &n);
  for (int i = 0; i < n; i++) {
    const Node *node = nodes[i].node;
    Name path = nodes[i].path;
    if (!map_has(own, path)) continue;
    const PlanPlacement *before = map_get(placed, path);
    for (int r = 0; r < node->n_results; r++) {
      if (node->types[r]->rank == 0) continue;
      by = decides_alike(plan, line, before, path, node->types[r]);
      if (!by.source) return by;
    }
    if (!same_partial(line, before)) return SPAN_NONE;
  }
  return by;
}

void plan_line_repeats(Elab *e, Span later, Span earlier) {
  Diag *d = diag(e->diags, DIAG_pin_repeats, later, span_text(e->arena, later));
  diag_note(d, earlier, "this pin says so already");
}

static bool same_shards(const PlanPlacement *a, const PlanPlacement *b) {
  bool is_same = a->n_shards == b->n_shards;
  for (int i = 0; is_same && i < a->n_shards; i++) {
    const PlanShard *other = plan_placed_dim(b, a->shards[i].dim);
    is_same = other && other->n_axes == a->shards[i].n_axes;
    for (int k = 0; is_same && k < other->n_axes; k++)
      is_same = other->axes[k] == a->shards[i].axes[k];
  }
  return is_same;
}

static void check_operator_repeats(Elab *e, const Plan *plan) {
  Map *known = map_create(e->arena);
  for (int i = 0; i < plan->operators.n; i++) {
    const PlanPlacement *line = &plan->operators.data[i];
    const PlanPlacement *before = map_get(known, line->paths[0]);
    bool repeats = before != NULL;
    for (int k = 0; k < line->n_paths; k++) {
      const PlanPlacement *other = map_get(known, line->paths[k]);
      repeats = repeats && other && same_shards(line, other);
      map_put(known, line->paths[k], (void *)line);
    }
    if (repeats) plan_line_repeats(e, line->span, before->span);
  }
}

void plan_check_lines(Elab *e, const PlanPaths *paths, const Plan *plan) {
  check_operator_repeats(e, plan);
  Map *placed = map_create(e->arena);
  for (int i = 0; i < plan->placements.n; i++) {
    const PlanPlacement *line = &plan->placements.data[i];
    if (line->is_annotation) continue;
    Span by = find_implying(e, paths, plan, placed, line);
    if (by.source) plan_line_repeats(e, line->span, by);
    for (int k = 0; k < line->n_paths; k++)
      map_put(placed, line->paths[k], (void *)line);
  }
}

/* ---- the whole ---- */

void plan_make_lines(Elab *e, PlanPaths *paths, Plan *plan) {
  Lines l = {.e = e, .arena = e->arena, .paths = paths, .plan = plan};
  if (plan->placements.n > 0 && plan->ranks > 1) lines_collect(&l);
  if (plan->operators.n > 0 && plan->ranks > 1) lines_collect_operators(&l);
  lines_collect_saving(&l);
  if (l.entries.n == 0) return;
  make_groups(&l);
  for (int i = 0; i < l.groups.n; i++) print_group(&l, l.groups.data[i]);
}
