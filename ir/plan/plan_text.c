/*
 * plan_text.c -- prints a plan, so that the text read again is the same plan
 * (docs/plan.md, section 11).
 *
 *     mesh {                               lines of paths: placements that
 *       data = 4                           differ from the lines of names, in
 *     }                                    program order, with equal neighbours
 *                                          of a repeat folded into ranges
 *     plan gpt2 {
 *       microbatches = 8
 *       zero         = 0                   replicate ffn.w
 *       bucket       = 25MB                shard ffn.y: B over none
 *                                            =>
 *       shard B over data                  replicate ffn[0..2].y
 *
 *       replicate ffn[0..2].y
 *     }
 *
 * A line is for one path of a node, its indices apart.  A node that no path
 * means alone (such as a layer's result under another name) has no line: its
 * placement follows from its operands.  The sequential axis of micro-batches is
 * not shown: `microbatches` implies it.
 */
#include "ir/plan/graph_paths.h"

#include <stdlib.h>
#include <string.h>

typedef struct Entry { /* a path that a line places */
  Name path;
  const char *text;         /* of the path, as it is printed alone */
  const PlanPin *placement; /* NULL: the line says how it is saved */
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
  Arena *arena;
  Names *names;
  const PlanPaths *paths;
  Plan *plan;
  VEC(Entry *) entries;
  VEC(Group *) groups;
} Lines;

/* ---- what differs ---- */

int plan_lines_axes(const PlanShard *const *lines, int n, int d, Name *out) {
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
    int n = plan_lines_axes(pinned, type->rank, d, axes);
    int n_other = plan_lines_axes(named, type->rank, d, other);
    bool is_same = n == n_other;
    for (int i = 0; is_same && i < n; i++) is_same = axes[i] == other[i];
    entry->differs |= !is_same;
    add_place(entry, type->dims[d].name, axes, n);
  }
}

/* Values with an annotation, which holds where a plan has no line. */
static Map *annotated_paths(const Lines *l) {
  Map *map = map_create(l->arena);
  for (int i = 0; i < l->plan->pins.n; i++) {
    const PlanPin *pin = &l->plan->pins.data[i];
    bool counts = pin->is_annotation && pin_is_placement(pin);
    for (int k = 0; k < pin->n_paths && counts; k++)
      map_put(map, pin->paths[k], (void *)pin);
  }
  return map;
}

static void lines_collect(Lines *l) {
  Map *seen = map_create(l->arena), *annotated = annotated_paths(l);
  const PlanNodes *nodes = plan_paths_nodes(l->paths);
  for (int i = 0; i < nodes->n; i++) {
    const Node *node = nodes->data[i].node;
    Name path = nodes->data[i].path;
    const PlanPin *placement = plan_find_placement(l->plan, path);
    if (!placement) continue;
    Entry *entry = map_get(seen, path);
    if (!entry) {
      bool is_of_update = plan_path_is_of_update(path);
      entry = ARENA_NEW(l->arena, Entry);
      *entry = (Entry){
          .path = path,
          .text = is_of_update ? plan_paths_other(l->paths, path, 0) : path,
          .placement = placement,
          .places = text_create(l->arena),
          .dims = map_create(l->arena),
          .differs = is_of_update || placement->n_partial > 0 ||
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
      add_place(entry, name_intern(l->names, "partial"),
                entry->placement->partial, entry->placement->n_partial);
    entry->head = entry->places.n ? "shard" : "replicate";
  }
}

/* Returns whether the text means this path and nothing else. */
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
    const PlanPin *saving = plan_find_saving(l->plan, found.data[i]);
    if (!saving || (saving->says == SAYS_remat) != is_remat) return false;
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
  const PlanPin *line = plan_find_operator(l->plan, path);
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
  const PlanNodes *nodes = plan_paths_nodes(l->paths);
  for (int i = 0; i < nodes->n; i++) {
    Name path = nodes->data[i].path;
    if (map_has(seen, path) || !plan_find_operator(l->plan, path)) continue;
    map_put(seen, path, (void *)path);
    lines_add_operator(l, path);
  }
}

/* After the placements: `remat` and `keep`. */
static void lines_collect_saving(Lines *l) {
  Map *seen = map_create(l->arena);
  const PlanNodes *nodes = plan_paths_nodes(l->paths);
  for (int i = 0; i < nodes->n; i++) {
    Name path = nodes->data[i].path;
    const PlanPin *saving = plan_find_saving(l->plan, path);
    if (!saving || map_has(seen, path)) continue;
    Entry *entry = ARENA_NEW(l->arena, Entry);
    *entry = (Entry){.path = path,
                     .text = path,
                     .head = saving->says == SAYS_remat ? "remat" : "keep",
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
      Name key = name_intern(l->names, lines_fill(l, group, box, k));
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
  Name name = name_intern(l->names, text_string(&key));
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

/* The words of the language, and those of a plan. */
static bool is_language_word(const char *text, bool is_in_plan) {
  static const struct {
    const char *text;
    bool is_of_plan;
  } words[] = {
#define WORD(text, token)      {text, false},
#define PLAN_WORD(text, token) {text, true},
#include "ir/text/words.def"
  };
  for (int i = 0; i < ARRAY_LENGTH(words); i++)
    if (words[i].is_of_plan <= is_in_plan && !strcmp(words[i].text, text))
      return true;
  return false;
}

/* A word of the language or, in front, of a plan must stand in quotes. */
static bool needs_quotes(Lines *l, const char *path) {
  if (*path == '!') return true;
  for (const char *at = path; *at; at += *at != '\0') {
    size_t n = strcspn(at, ".![");
    if (is_language_word(name_intern_n(l->names, at, (int)n), at == path))
      return true;
    at += strcspn(at, ".!");
  }
  return false;
}

static void add_line(Lines *l, const Group *group, const char *path) {
  const char *quote = needs_quotes(l, path) ? "\"" : "";
  const char *line =
      arena_printf(l->arena, "%s %s%s%s%s%s", group->head, quote, path, quote,
                   *group->places ? ": " : "", group->places);
  vec_push(l->arena, &l->plan->lines, name_intern(l->names, line));
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

/* ---- the whole ---- */

void plan_make_lines(Module *module, const PlanPaths *paths, Plan *plan) {
  Lines l = {.arena = module->arena,
             .names = module->names,
             .paths = paths,
             .plan = plan};
  if (plan->placed && plan->ranks > 1) lines_collect(&l);
  if (plan->computed && plan->ranks > 1) lines_collect_operators(&l);
  lines_collect_saving(&l);
  if (l.entries.n == 0) return;
  make_groups(&l);
  for (int i = 0; i < l.groups.n; i++) print_group(&l, l.groups.data[i]);
}

/* ---- text ---- */

static void print_mesh(Text *out, const Mesh *mesh) {
  text_add(out, "mesh {\n");
  int width = 0;
  for (int i = 0; i < mesh->n_axes; i++) {
    int n = 0;
    while (mesh->axes[i].name[n]) n++;
    if (!mesh->axes[i].is_sequential && n > width) width = n;
  }
  for (int i = 0; i < mesh->n_axes; i++) {
    const MeshAxis *axis = &mesh->axes[i];
    if (axis->is_sequential) continue;
    text_printf(out, "  %-*s = %d\n", width, axis->name, axis->size);
  }
  text_add(out, "}\n");
}

static void print_bytes(Text *out, int64_t bytes) {
  static const struct {
    int64_t size;
    const char *unit;
  } units[] = {{1000000000, "GB"}, {1000000, "MB"}, {1000, "KB"}, {1, "B"}};
  int i = 0;
  while (bytes % units[i].size) i++;
  text_printf(out, "%lld%s", (long long)(bytes / units[i].size), units[i].unit);
}

static void print_setting(Text *out, const char *name, int64_t bytes) {
  text_printf(out, "  %-12s = ", name);
  print_bytes(out, bytes);
  text_add(out, "\n");
}

static void print_over(Text *out, const PlanShard *shard) {
  int n = shard->n_axes;
  text_printf(out, " over %s", n > 1 ? "(" : "");
  for (int i = 0; i < n; i++)
    text_printf(out, "%s%s", i ? ", " : "", shard->axes[i]);
  text_add(out, n > 1 ? ")" : n ? "" : "none");
}

/* Without axes: `over none`, because a dim without a pin may be sharded. */
static void print_shard(Text *out, const PlanShard *shard) {
  text_printf(out, "  shard %s", shard->dim);
  print_over(out, shard);
  text_add(out, "\n");
}

const char *plan_attention_name(PlanAttention attention) {
  static const char *const names[] = {[ATTENTION_gather] = "gather",
                                      [ATTENTION_ring] = "ring",
                                      [ATTENTION_ulysses] = "ulysses"};
  return names[attention];
}

void plan_print(Text *out, const Plan *plan) {
  print_mesh(out, plan_mesh(plan));
  text_printf(out, "\nplan %s {\n", plan->name);
  if (plan->schedule) text_printf(out, "  schedule     = %s\n", plan->schedule);
  text_printf(out, "  microbatches = %lld\n", (long long)plan->microbatches);
  text_printf(out, "  zero         = %d", plan->zero);
  if (plan->zero_over.n_axes) print_over(out, &plan->zero_over);
  text_add(out, "\n");
  if (plan->bucket_bytes > 0) print_setting(out, "bucket", plan->bucket_bytes);
  if (plan->prefetch_bytes > 0)
    print_setting(out, "prefetch", plan->prefetch_bytes);
  if (plan->memory_bytes > 0) print_setting(out, "memory", plan->memory_bytes);
  if (plan->attention)
    text_printf(out, "  attention    = %s\n",
                plan_attention_name(plan->attention));
  if (plan->reduces_bf16) text_add(out, "  reduce       = bf16\n");
  bool is_first = true;
  for (int i = 0; i < plan->shards.n; i++) {
    const PlanShard *shard = &plan->shards.data[i];
    bool wins = plan_find_shard(plan, shard->dim) == shard;
    if (plan->ranks <= 1 || !wins) continue; /* `microbatches` says it */
    if (is_first) text_add(out, "\n");
    is_first = false;
    print_shard(out, shard);
  }
  for (int i = 0; i < plan->lines.n; i++)
    text_printf(out, "%s  %s\n", i ? "" : "\n", plan->lines.data[i]);
  text_add(out, "}\n");
}
