/*
 * plan_lines.c -- chooses the lines of paths with which a plan is printed, so
 * that the text read again is the same plan (docs/plan.md, section 11).
 *
 *     recomputed: all in block[0] and         remat block
 *     block[1] but their results          =>
 *     ffn.w replicated, F over tensor         shard F over tensor
 *     elsewhere                               replicate ffn.w
 *
 * A decision is what a plan says of one path.  It needs a line if it differs
 * from what the lines of names say; a pin that is an annotation of the model
 * needs none, because the model says it again.  The line of a decision is the
 * shortest path that means no decision but equal ones.
 *
 * Some nodes share all their paths with others or with a layer.  Then the line
 * is about a path that means other decisions too, and lines about these follow.
 * At last all lines are applied: a decision that they do not give is a mistake.
 */
#include "ir/plan/plan_lines.h"

#include <string.h>

typedef struct Decision {
  LineKind kind;
  Name path;
  const PlanPin *pin;
  VEC(const char *) texts; /* that the node has as paths, the first its own */
  LinePlaces places;
  VEC(Name) dims; /* of its types; an operator has those of `places` alone */
  bool needs_line;
  bool is_covered;  /* a line has been chosen */
  bool has_no_line; /* no path means it and equal decisions alone */
} Decision;

typedef VEC(Decision *) Decisions;

typedef struct CheckedLine {
  bool is_exact; /* what it means is decided as the line says */
  LinePlaces places;
} CheckedLine;

typedef struct Choice {
  LineMaker *maker;
  Decisions decisions;        /* in program order */
  Map *by_path[N_LINE_KINDS]; /* path -> Decision; remat and keep share one */
  PathLines general;          /* about other decisions too; printed first */
  PathLines lines[N_LINE_KINDS];
  Map *checked[N_LINE_KINDS]; /* text -> CheckedLine */
  Name partial;
} Choice;

/* ---- places ---- */

static const LinePlace *find_place(const LinePlaces *places, Name dim) {
  for (int i = 0; i < places->n; i++)
    if (places->data[i].dim == dim) return &places->data[i];
  return NULL;
}

static void add_place(Arena *arena, LinePlaces *places, Name dim,
                      const Name *axes, int n) {
  LinePlace place = {.dim = dim, .n_axes = n};
  if (n == 0 || find_place(places, dim)) return;
  for (int i = 0; i < n; i++) place.axes[i] = axes[i];
  vec_push(arena, places, place);
}

/* Returns whether both shard the dim alike; NULL: not at all. */
static bool place_equal(const LinePlace *a, const LinePlace *b) {
  if (!a || !b) return a == b;
  bool is_same = a->n_axes == b->n_axes;
  for (int i = 0; is_same && i < a->n_axes; i++)
    is_same = a->axes[i] == b->axes[i];
  return is_same;
}

int plan_lines_axes(const PlanShard *const *lines, int n, int d, Name *out) {
  int n_axes = 0;
  for (int i = 0; lines[d] && i < lines[d]->n_axes; i++)
    if (plan_axis_taken(lines, n, d, lines[d]->axes[i]) < 0)
      out[n_axes++] = lines[d]->axes[i];
  return n_axes;
}

/* ---- decisions ---- */

static Decision *add_decision(Choice *c, LineKind kind, Name path,
                              const PlanPin *pin) {
  Decision *decision = ARENA_NEW(c->maker->arena, Decision);
  *decision = (Decision){.kind = kind,
                         .path = path,
                         .pin = pin,
                         .needs_line = !pin->is_annotation};
  map_put(c->by_path[kind], path, decision);
  vec_push(c->maker->arena, &c->decisions, decision);
  return decision;
}

/* The paths of a node; those of values have '.' where an operator's has '!'. */
static void add_texts(LineMaker *maker, Decision *decision) {
  const char *text = decision->path;
  int n = 0;
  /* The key of a gradient or optimizer state is no path. */
  if (plan_path_is_of_update(text))
    text = plan_paths_other(maker->paths, decision->path, n++);
  for (; text; text = plan_paths_other(maker->paths, decision->path, n++)) {
    char *dotted = arena_strdup(maker->arena, text), *bang;
    while ((bang = strchr(dotted, '!'))) *bang = '.';
    char *last = strrchr(dotted, '.');
    if (decision->kind == LINE_operator && last)
      *last = '!';
    else if (decision->kind == LINE_operator)
      dotted = arena_printf(maker->arena, "!%s", dotted);
    vec_push(maker->arena, &decision->texts, dotted);
  }
}

/* Notes where the pin places a value, and whether lines of names do not. */
static bool add_type(Choice *c, Decision *decision, const Type *type) {
  Arena *arena = c->maker->arena;
  const PlanShard *pinned[MAX_RANK], *named[MAX_RANK];
  bool differs = false;
  for (int d = 0; d < type->rank; d++) {
    named[d] =
        plan_named_dim(c->maker->plan, decision->path, type->dims[d].name);
    pinned[d] = plan_placed_dim(decision->pin, type->dims[d].name);
  }
  for (int d = 0; d < type->rank; d++) {
    LinePlace now = {0}, other = {0};
    now.n_axes = plan_lines_axes(pinned, type->rank, d, now.axes);
    other.n_axes = plan_lines_axes(named, type->rank, d, other.axes);
    differs |= !place_equal(&now, &other);
    vec_push(arena, &decision->dims, type->dims[d].name);
    add_place(arena, &decision->places, type->dims[d].name, now.axes,
              now.n_axes);
  }
  return differs;
}

static void decide_value(Choice *c, const PlanNode *at) {
  const PlanPin *pin = plan_find_placement(c->maker->plan, at->path);
  if (!pin) return;
  Decision *decision = map_get(c->by_path[LINE_value], at->path);
  if (!decision) {
    decision = add_decision(c, LINE_value, at->path, pin);
    /* A value stays where a pin says, whatever the lines of names do. */
    decision->needs_line &= plan_path_is_of_update(at->path) ||
                            at->node->op != OP_input || pin->n_partial > 0;
    add_texts(c->maker, decision);
    vec_push(c->maker->arena, &decision->dims, c->partial);
  }
  for (int r = 0; r < at->node->n_results; r++)
    decision->needs_line |=
        add_type(c, decision, at->node->types[r]) && !pin->is_annotation;
  add_place(c->maker->arena, &decision->places, c->partial, pin->partial,
            pin->n_partial);
}

static void decide_operator(Choice *c, const PlanNode *at) {
  const PlanPin *pin = plan_find_operator(c->maker->plan, at->path);
  if (!pin || map_has(c->by_path[LINE_operator], at->path)) return;
  Decision *decision = add_decision(c, LINE_operator, at->path, pin);
  add_texts(c->maker, decision);
  for (int i = 0; i < pin->n_shards; i++)
    add_place(c->maker->arena, &decision->places, pin->shards[i].dim,
              pin->shards[i].axes, pin->shards[i].n_axes);
}

static void decide_saving(Choice *c, const PlanNode *at) {
  const PlanPin *pin = plan_find_saving(c->maker->plan, at->path);
  if (!pin || map_has(c->by_path[LINE_remat], at->path)) return;
  LineKind kind = pin->says == SAYS_remat ? LINE_remat : LINE_keep;
  add_texts(c->maker, add_decision(c, kind, at->path, pin));
}

static void decide_offload(Choice *c, const PlanNode *at) {
  const PlanPin *pin = plan_find_offload(c->maker->plan, at->path);
  if (!pin || map_has(c->by_path[LINE_offload], at->path)) return;
  add_texts(c->maker, add_decision(c, LINE_offload, at->path, pin));
}

static void decide_all(Choice *c) {
  const PlanNodes *nodes = plan_paths_nodes(c->maker->paths);
  bool has_ranks = c->maker->plan->ranks > 1;
  for (int i = 0; i < nodes->n; i++) {
    if (has_ranks) decide_value(c, &nodes->data[i]);
    if (has_ranks) decide_operator(c, &nodes->data[i]);
    decide_saving(c, &nodes->data[i]);
    decide_offload(c, &nodes->data[i]);
  }
}

/* ---- lines ---- */

static const Decision *decision_of(const Choice *c, LineKind kind, Name path) {
  return map_get(c->by_path[kind], path);
}

/* Adds the places of all that the line means.  Returns false if it means a path
 * without a decision. */
static bool add_places(Choice *c, LineKind kind, const PathList *meaning,
                       LinePlaces *out) {
  for (int i = 0; i < meaning->n; i++) {
    const Decision *decision = decision_of(c, kind, meaning->data[i]);
    if (!decision) return false;
    for (int k = 0; k < decision->places.n; k++) {
      const LinePlace *place = &decision->places.data[k];
      add_place(c->maker->arena, out, place->dim, place->axes, place->n_axes);
    }
  }
  return true;
}

/* Returns whether a line with these places decides so. */
static bool gives(const PathLine *line, const Decision *decision) {
  if (line->kind != decision->kind) return false;
  if (line->kind == LINE_operator && line->places.n != decision->places.n)
    return false;
  for (int i = 0; i < decision->dims.n; i++) {
    Name dim = decision->dims.data[i];
    if (!place_equal(find_place(&line->places, dim),
                     find_place(&decision->places, dim)))
      return false;
  }
  for (int i = 0; i < decision->places.n; i++) {
    const LinePlace *place = &decision->places.data[i];
    if (!place_equal(find_place(&line->places, place->dim), place))
      return false;
  }
  return true;
}

/* A line `keep`, which follows, decides again what a line `remat` means. */
static bool follows(const PathLine *line, const Decision *decision) {
  return line->kind == LINE_remat && decision->kind == LINE_keep &&
         decision->is_covered;
}

static bool means(const PathList *meaning, Name path) {
  for (int i = 0; i < meaning->n; i++)
    if (meaning->data[i] == path) return true;
  return false;
}

static void check_line(Choice *c, const PathLine *line, CheckedLine *out) {
  const PathList *meaning = line_meaning(c->maker, line->kind, line->path);
  PathLine placed = *line;
  if (!add_places(c, line->kind, meaning, &out->places)) return;
  placed.places = out->places;
  for (int i = 0; i < meaning->n; i++) {
    const Decision *other = decision_of(c, line->kind, meaning->data[i]);
    if (!gives(&placed, other) && !follows(&placed, other)) return;
  }
  out->is_exact = true;
}

/* Makes a line of this path that decides so, and other paths as the plan does.
 */
static bool is_exact(Choice *c, const Decision *decision, PathLine *line) {
  Map **known = &c->checked[line->kind];
  Name key = name_intern(c->maker->module->names, line->path);
  if (!*known) *known = map_create(c->maker->arena);
  CheckedLine *checked = map_get(*known, key);
  if (!checked) {
    checked = ARENA_NEW(c->maker->arena, CheckedLine);
    check_line(c, line, checked);
    map_put(*known, key, checked);
  }
  line->places = checked->places;
  return checked->is_exact &&
         means(line_meaning(c->maker, line->kind, line->path), decision->path);
}

/* Makes a line of this path that decides so, and otherwise only what lines
 * after it decide again. */
static bool is_general(Choice *c, const Decision *decision, PathLine *line) {
  const PathList *meaning = line_meaning(c->maker, line->kind, line->path);
  line->places = decision->places;
  if (line->kind == LINE_operator || !means(meaning, decision->path))
    return false;
  for (int i = 0; i < meaning->n; i++)
    if (!decision_of(c, line->kind, meaning->data[i])) return false;
  return true;
}

typedef bool SuitsFn(Choice *c, const Decision *decision, PathLine *line);

/* Finds the line with the shortest part of a path that suits, or with the
 * longest.  A path of an operator has no parts. */
static bool find_line(Choice *c, const Decision *decision, SuitsFn *suits,
                      bool is_longest, PathLine *out) {
  bool is_found = false;
  int best = 0;
  for (int t = 0; t < decision->texts.n; t++) {
    const char *text = decision->texts.data[t];
    int n_parts = 0;
    for (size_t n = 0; text[n]; n_parts++) {
      n += n_parts > 0;
      n += decision->kind == LINE_operator ? strlen(text + n)
                                           : strcspn(text + n, ".");
      PathLine line = {.kind = decision->kind,
                       .path =
                           arena_printf(c->maker->arena, "%.*s", (int)n, text)};
      bool is_better =
          !is_found || (is_longest ? n_parts > best : n_parts < best);
      if (!is_better || !suits(c, decision, &line)) continue;
      is_found = true;
      best = n_parts;
      *out = line;
    }
  }
  return is_found;
}

static void cover(Choice *c, const PathLine *line) {
  const PathList *meaning = line_meaning(c->maker, line->kind, line->path);
  for (int i = 0; i < meaning->n; i++) {
    Decision *decision = map_get(c->by_path[line->kind], meaning->data[i]);
    if (gives(line, decision))
      decision->is_covered = true;
    else
      decision->needs_line = true; /* it is decided again */
  }
}

/* Chooses a line for each decision of this kind that needs one and has one. */
static void choose_exact(Choice *c, LineKind kind) {
  for (int i = 0; i < c->decisions.n; i++) {
    Decision *decision = c->decisions.data[i];
    PathLine line;
    if (decision->kind != kind || !decision->needs_line ||
        decision->is_covered || decision->has_no_line)
      continue;
    decision->has_no_line = !find_line(c, decision, is_exact, false, &line);
    if (decision->has_no_line) continue;
    vec_push(c->maker->arena, &c->lines[kind], line);
    cover(c, &line);
  }
}

static int count_parts(const char *path) {
  int n = 1;
  for (; *path; path++) n += *path == '.';
  return n;
}

/* Those with fewer parts come first: a longer path decides again. */
static void add_general(Choice *c, const PathLine *line) {
  PathLines *lines = &c->general;
  vec_push(c->maker->arena, lines, *line);
  int at = lines->n - 1;
  for (; at > 0 &&
         count_parts(lines->data[at - 1].path) > count_parts(line->path);
       at--)
    lines->data[at] = lines->data[at - 1];
  lines->data[at] = *line;
}

/* Chooses lines for the decisions without one of their own. */
static void choose_general(Choice *c) {
  for (int i = 0; i < c->decisions.n; i++) {
    Decision *decision = c->decisions.data[i];
    PathLine line;
    if (!decision->has_no_line || decision->is_covered ||
        !find_line(c, decision, is_general, true, &line))
      continue;
    add_general(c, &line);
    cover(c, &line);
  }
}

static void choose_all_exact(Choice *c) {
  static const LineKind order[] = {LINE_value, LINE_operator, LINE_keep,
                                   LINE_remat, LINE_offload};
  for (int k = 0; k < N_LINE_KINDS; k++) c->checked[k] = NULL;
  for (int i = 0; i < ARRAY_LENGTH(order); i++) choose_exact(c, order[i]);
}

/* ---- the whole ---- */

static void add_lines(LineMaker *maker, const PathLines *lines,
                      PathLines *out) {
  for (int i = 0; i < lines->n; i++)
    vec_push(maker->arena, out, lines->data[i]);
}

/* In the order in which they are printed, of which a later one wins. */
static PathLines all_lines(Choice *c) {
  PathLines out = {0};
  add_lines(c->maker, &c->general, &out);
  for (int k = 0; k < N_LINE_KINDS; k++) {
    PathLines ranges = line_ranges(c->maker, &c->lines[k]);
    add_lines(c->maker, &ranges, &out);
  }
  return out;
}

static const char *verb_of(const PlanPin *pin) {
  if (pin->says == SAYS_remat) return "recomputed";
  if (pin->says == SAYS_keep) return "stored";
  if (pin->says == SAYS_offload) return "stored on the host";
  return pin->about == ABOUT_operator ? "computed" : "placed";
}

static void report_no_line(Choice *c, const PlanPin *pin, const char *path) {
  diag(c->maker->module->diags, DIAG_plan_no_line, pin->span, path,
       verb_of(pin));
}

static LineKind kind_of(const PlanPin *pin) {
  if (pin->says == SAYS_placement)
    return pin->about == ABOUT_operator ? LINE_operator : LINE_value;
  if (pin->says == SAYS_offload) return LINE_offload;
  return pin->says == SAYS_remat ? LINE_remat : LINE_keep;
}

/* Reports the first path of the plan that no node has. */
static bool check_paths(Choice *c) {
  const Plan *plan = c->maker->plan;
  for (int i = 0; i < plan->pins.n; i++) {
    const PlanPin *pin = &plan->pins.data[i];
    if (plan->ranks <= 1 && pin->says == SAYS_placement) continue;
    for (int k = 0; k < pin->n_paths; k++) {
      if (decision_of(c, kind_of(pin), pin->paths[k])) continue;
      report_no_line(c, pin, pin->paths[k]);
      return false;
    }
  }
  return true;
}

/* Reports the first decision that the lines do not give. */
static void check_lines(Choice *c, const PathLines *lines) {
  Map *last[N_LINE_KINDS]; /* path -> the line that wins */
  last[LINE_value] = map_create(c->maker->arena);
  last[LINE_operator] = map_create(c->maker->arena);
  last[LINE_remat] = last[LINE_keep] = map_create(c->maker->arena);
  last[LINE_offload] = map_create(c->maker->arena);
  for (int i = 0; i < lines->n; i++) {
    const PathLine *line = &lines->data[i];
    const PathList *meaning = line_meaning(c->maker, line->kind, line->path);
    for (int k = 0; k < meaning->n; k++)
      map_put(last[line->kind], meaning->data[k], (void *)line);
  }
  for (int i = 0; i < c->decisions.n; i++) {
    const Decision *decision = c->decisions.data[i];
    const PathLine *line = map_get(last[decision->kind], decision->path);
    if (line ? gives(line, decision) : !decision->needs_line) continue;
    report_no_line(c, decision->pin,
                   plan_path_is_of_update(decision->path)
                       ? decision->texts.data[0]
                       : decision->path);
    return;
  }
}

void plan_make_lines(Module *module, const PlanPaths *paths, Plan *plan) {
  LineMaker maker = {
      .module = module, .arena = module->arena, .paths = paths, .plan = plan};
  Choice c = {.maker = &maker,
              .partial = name_intern(module->names, "partial")};
  c.by_path[LINE_value] = map_create(module->arena);
  c.by_path[LINE_operator] = map_create(module->arena);
  c.by_path[LINE_remat] = c.by_path[LINE_keep] = map_create(module->arena);
  c.by_path[LINE_offload] = map_create(module->arena);
  decide_all(&c);
  choose_all_exact(&c);
  choose_general(&c);
  choose_all_exact(&c);
  PathLines lines = all_lines(&c);
  if (check_paths(&c)) check_lines(&c, &lines);
  plan->lines.n = 0;
  for (int i = 0; i < lines.n; i++)
    vec_push(module->arena, &plan->lines,
             name_intern(module->names, line_text(&maker, &lines.data[i])));
}
