/*
 * line_ranges.c -- folds lines of a plan whose paths differ by indices alone.
 *
 *     remat block[0].attn.q
 *     remat block[1].attn.q     =>   remat block[0..1].attn.q
 *     remat block[0].mlp             remat block.mlp       (of three blocks)
 *     remat block[1].mlp
 *     remat block[2].mlp
 */
#include "ir/plan/plan_lines.h"

#include <stdlib.h>
#include <string.h>

typedef struct Box { /* indices of a path, outermost first */
  int64_t *first, *last;
  bool *is_left_out;
  bool is_gone;
  VEC(const char *) texts; /* the paths in it */
} Box;

typedef struct Group { /* lines that differ by indices alone */
  const PathLine *like;
  int n_indices;
  VEC(Box) boxes;
} Group;

typedef VEC(Group *) Groups;

/* ---- groups ---- */

static Box box_of(Arena *arena, const char *path, int n_indices) {
  Box box = {.first = ARENA_ARRAY(arena, int64_t, n_indices + 1),
             .last = ARENA_ARRAY(arena, int64_t, n_indices + 1),
             .is_left_out = ARENA_ARRAY(arena, bool, n_indices + 1)};
  int k = 0;
  for (const char *at = strchr(path, '['); at; at = strchr(at + 1, '['), k++)
    box.first[k] = box.last[k] = strtoll(at + 1, NULL, 10);
  vec_push(arena, &box.texts, path);
  return box;
}

/* The path without its indices, the kind of the line and its places. */
static Name key_of(LineMaker *maker, const PathLine *line, int *out_n_indices) {
  Text key = text_create(maker->arena);
  *out_n_indices = 0;
  for (const char *at = line->path; *at; at++) {
    text_add_n(&key, at, 1);
    if (*at != '[') continue;
    at += strcspn(at, "]");
    ++*out_n_indices;
  }
  text_printf(&key, " %d %s", line->kind,
              line_places_text(maker->arena, &line->places));
  return name_intern(maker->module->names, text_string(&key));
}

static Groups make_groups(LineMaker *maker, const PathLines *lines) {
  Map *by_key = map_create(maker->arena);
  Groups groups = {0};
  for (int i = 0; i < lines->n; i++) {
    const PathLine *line = &lines->data[i];
    int n_indices;
    Name key = key_of(maker, line, &n_indices);
    Group *group = map_get(by_key, key);
    if (!group) {
      group = ARENA_NEW(maker->arena, Group);
      *group = (Group){.like = line, .n_indices = n_indices};
      map_put(by_key, key, group);
      vec_push(maker->arena, &groups, group);
    }
    vec_push(maker->arena, &group->boxes,
             box_of(maker->arena, line->path, n_indices));
  }
  return groups;
}

/* ---- ranges ---- */

/* The path with these indices, the one at `blank` empty (-1: none). */
static const char *fill(Arena *arena, const Group *group, const Box *box,
                        int blank) {
  Text text = text_create(arena);
  const char *at = group->like->path;
  for (int k = 0; *at; k++) {
    size_t n = strcspn(at, "[");
    text_add_n(&text, at, n);
    at += n;
    if (!*at) break;
    at += strcspn(at, "]") + 1;
    if (box->is_left_out[k]) continue;
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
static void fold(LineMaker *maker, Group *group) {
  for (int k = group->n_indices - 1; k >= 0; k--) {
    Map *open = map_create(maker->arena);
    for (int i = 0; i < group->boxes.n; i++) {
      Box *box = &group->boxes.data[i];
      if (box->is_gone) continue;
      Name key =
          name_intern(maker->module->names, fill(maker->arena, group, box, k));
      Box *before = map_get(open, key);
      box->is_gone = before && before->last[k] + 1 == box->first[k];
      if (!box->is_gone) {
        map_put(open, key, box);
        continue;
      }
      before->last[k] = box->last[k];
      for (int t = 0; t < box->texts.n; t++)
        vec_push(maker->arena, &before->texts, box->texts.data[t]);
    }
  }
}

/* Returns whether the text means what the paths of the box do together. */
static bool means_box(LineMaker *maker, const Group *group, const Box *box,
                      const char *text) {
  LineKind kind = group->like->kind;
  const PathList *found = line_meaning(maker, kind, text);
  Map *together = map_create(maker->arena);
  for (int t = 0; t < box->texts.n; t++) {
    const PathList *one = line_meaning(maker, kind, box->texts.data[t]);
    for (int i = 0; i < one->n; i++) map_put(together, one->data[i], maker);
  }
  bool is_same = found->n == map_size(together);
  for (int i = 0; is_same && i < found->n; i++)
    is_same = map_has(together, found->data[i]);
  return is_same;
}

/* Returns whether index `k` is the last one of its name: those after it are
 * left out. */
static bool is_last_index(const Group *group, const Box *box, int k) {
  const char *at = group->like->path;
  for (int i = 0; i <= k; i++) at = strchr(at, '[') + 1;
  for (at = strchr(at, ']') + 1; *at == '['; at = strchr(at, ']') + 1)
    if (!box->is_left_out[++k]) return false;
  return true;
}

/* Innermost first, since an index that is left out leaves out those after it.
 */
static void leave_out_indices(LineMaker *maker, const Group *group, Box *box) {
  for (int k = group->n_indices - 1; k >= 0; k--) {
    if (!is_last_index(group, box, k)) continue;
    box->is_left_out[k] = true;
    box->is_left_out[k] =
        means_box(maker, group, box, fill(maker->arena, group, box, -1));
  }
}

static void add_box(LineMaker *maker, const Group *group, Box *box,
                    PathLines *out) {
  PathLine line = *group->like;
  line.path = fill(maker->arena, group, box, -1);
  if (means_box(maker, group, box, line.path)) {
    leave_out_indices(maker, group, box);
    line.path = fill(maker->arena, group, box, -1);
    vec_push(maker->arena, out, line);
    return;
  }
  for (int t = 0; t < box->texts.n; t++) {
    line.path = box->texts.data[t];
    vec_push(maker->arena, out, line);
  }
}

PathLines line_ranges(LineMaker *maker, const PathLines *lines) {
  Groups groups = make_groups(maker, lines);
  PathLines out = {0};
  for (int i = 0; i < groups.n; i++) {
    Group *group = groups.data[i];
    fold(maker, group);
    for (int k = 0; k < group->boxes.n; k++)
      if (!group->boxes.data[k].is_gone)
        add_box(maker, group, &group->boxes.data[k], &out);
  }
  return out;
}
