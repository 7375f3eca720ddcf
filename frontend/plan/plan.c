/*
 * plan.c -- makes one Plan of the `mesh` and `plan` blocks of a plan file or of
 * the model, and of the options of the command line.
 *
 *     mesh { node = 2; data = 2 }        --ranks 4 --microbatches 2
 *     plan {                             is   mesh { data = 4 }
 *       microbatches = 2                      plan { microbatches = 2
 *       shard B over (node, data)                    shard B over data }
 *     }
 *
 * A search for the placements that no line pins does not exist yet.  The batch
 * is sharded over the axes that no line names, in one micro-batch, with buckets
 * of the default size.  A pin that is understood but cannot be compiled yet is
 * answered "not supported yet" at its place; a pin that contradicts another one
 * or has no meaning is an error.
 */
#include "frontend/syntax/help.h"
#include "frontend/elaborate/eval.h"
#include "frontend/elaborate/match.h"
#include "frontend/plan/paths.h"
#include "frontend/plan/plan.h"

#include <math.h>
#include <string.h>

typedef struct Axis {
  Name name;
  int64_t size; /* 0: auto */
  Span span;
} Axis;

typedef struct Reader {
  Elab *e;
  const Model *model;
  const Graph *graph;
  const Elab *walk; /* which made it */
  const PlanRequest *request;
  Plan *plan;
  PlanPaths *paths;
  VEC(const Item *) blocks; /* of plans, in order */
  VEC(Axis) axes;
  Span mesh; /* the block; no source: there is none */
} Reader;

static void plan_unsupported(Reader *r, Span span, const char *what) {
  elab_not_supported(r->e, span, what);
}

/* ---- where the lines come from ---- */

static void plan_add_block(Reader *r, const Item *item, const Item **mesh) {
  if (item->kind != ITEM_plan) {
    if (strcmp(item->block, "mesh") == 0) *mesh = item;
    return;
  }
  if (!item->name || item->name == r->model->name)
    vec_push(r->e->arena, &r->blocks, item);
  else if (r->request->file)
    diag(r->e->diags, DIAG_plan_other, item->name_span, item->name,
         r->model->name);
}

/* Those of the file; NULL mesh: it has none. */
static const Item *plan_read_file(Reader *r) {
  Elab *e = r->e;
  const Item *mesh = NULL;
  const Ast *ast = ast_parse(e->arena, e->names, e->diags, r->request->file);
  machines_check(e->arena, e->diags, ast);
  for (int i = 0; i < ast->n_items; i++) {
    const Item *item = &ast->items[i];
    bool is_block = item->kind == ITEM_block;
    bool is_known = item->kind == ITEM_plan ||
                    (is_block && (strcmp(item->block, "mesh") == 0 ||
                                  strcmp(item->block, "certificate") == 0));
    if (!is_known) {
      diag(e->diags, DIAG_plan_item, item->span);
    } else if (is_block && mesh && strcmp(item->block, "mesh") == 0) {
      Diag *d = diag(e->diags, DIAG_block_twice, item->name_span, "mesh");
      diag_note(d, mesh->name_span, "it is given here first");
    } else {
      plan_add_block(r, item, &mesh);
    }
  }
  return mesh;
}

static const Item *read_model(Reader *r) {
  const Program *program = r->e->program;
  const Item *mesh = program_block(program, "mesh"), *none = NULL;
  for (int i = 0; i < program->plans.n; i++)
    plan_add_block(r, program->plans.data[i], &none);
  return mesh;
}

/* ---- numbers ---- */

static bool plan_is_word(const Expr *x, const char *word) {
  return x->kind == EXPR_name && strcmp(x->name, word) == 0;
}

static bool read_int(Reader *r, const Expr *x, const char *name, int64_t least,
                     int64_t *out) {
  ExprValue val = eval(r->e, x), whole = expr_value_whole(val);
  if (whole.kind == EXPR_VALUE_int && whole.integer >= least) {
    *out = whole.integer;
    return true;
  }
  if (!expr_value_is_poison(val))
    diag(r->e->diags, DIAG_wrong_setting, x->span, name,
         arena_printf(r->e->arena, "an integer of at least %lld",
                      (long long)least),
         expr_value_describe(r->e, val));
  return false;
}

static bool read_bytes(Reader *r, const Expr *x, const char *name,
                       int64_t *out) {
  ExprValue val = eval(r->e, x);
  double bytes = expr_value_is_number(val) ? expr_value_to_double(val) : 0;
  if (bytes >= 1 && bytes < 9e18) {
    *out = (int64_t)bytes;
    return true;
  }
  if (!expr_value_is_poison(val))
    diag(r->e->diags, DIAG_wrong_setting, x->span, name, "a size as in 25MB",
         expr_value_describe(r->e, val));
  return false;
}

/* ---- the mesh ---- */

static Axis *find_axis(Reader *r, Name name) {
  for (int i = 0; i < r->axes.n; i++)
    if (r->axes.data[i].name == name) return &r->axes.data[i];
  return NULL;
}

static void read_axis(Reader *r, const Setting *setting) {
  Name name = setting->path.names[0];
  Span span = setting->path.spans[0];
  Axis axis = {.name = name, .span = span};
  if (setting->is_block || setting->type || !setting->value) {
    diag(r->e->diags, DIAG_mesh_axis, span);
    return;
  }
  if (strcmp(name, "none") == 0) { /* `over none` is no axis */
    diag(r->e->diags, DIAG_predefined, span, name);
    return;
  }
  const Axis *old = find_axis(r, name);
  if (old) {
    Diag *d = diag(r->e->diags, DIAG_given_twice, span, name);
    diag_note(d, old->span, "it is given here first");
    return;
  }
  bool is_auto = plan_is_word(setting->value, "auto");
  if (!is_auto && !read_int(r, setting->value, name, 1, &axis.size)) return;
  if (strcmp(name, "pipe") == 0 && axis.size != 1)
    plan_unsupported(r, span, "stages (the axis 'pipe')");
  else if (r->axes.n == MAX_AXES - 1)
    diag(r->e->diags, DIAG_mesh_axes, span, MAX_AXES - 1);
  else
    vec_push(r->e->arena, &r->axes, axis);
}

static void read_mesh(Reader *r, const Item *mesh) {
  if (!mesh) return;
  r->mesh = mesh->name_span;
  for (int i = 0; i < mesh->n_settings; i++) read_axis(r, &mesh->settings[i]);
}

/* The last line that sets this; a later one wins. */
static const Pin *find_set(const Reader *r, const char *name) {
  for (int b = r->blocks.n - 1; b >= 0; b--) {
    const Item *item = r->blocks.data[b];
    for (int i = item->n_pins - 1; i >= 0; i--)
      if (item->pins[i].kind == PIN_set &&
          strcmp(item->pins[i].name, name) == 0)
        return &item->pins[i];
  }
  return NULL;
}

/* How many ranks the command line or a pin wants; 0: neither says. */
static bool wanted_ranks(Reader *r, int64_t *out, Span *span) {
  *out = r->request->ranks;
  *span = SPAN_NONE;
  const Pin *pin = find_set(r, "ranks");
  if (*out > 0 || !pin) return true;
  *span = pin->span;
  return read_int(r, pin->value, "ranks", 1, out);
}

/* One axis may be left to what the others leave. */
static bool resolve_auto(Reader *r, int64_t product, int64_t ranks) {
  Axis *open = NULL;
  const char *why = NULL;
  for (int i = 0; i < r->axes.n; i++) {
    if (r->axes.data[i].size) continue;
    if (open) why = "only one axis can be, as long as nothing is searched";
    open = &r->axes.data[i];
  }
  if (!open) return true;
  if (!why && !ranks) why = "the number of ranks is not given";
  if (!why && ranks % product != 0)
    why = arena_printf(r->e->arena,
                       "the other axes, %lld together, do not divide %lld "
                       "ranks",
                       (long long)product, (long long)ranks);
  if (why) {
    Diag *d = diag(r->e->diags, DIAG_mesh_auto, open->span, open->name, why);
    diag_help(d, "give it a number, or the number of ranks with --ranks N");
    return false;
  }
  open->size = ranks / product;
  return true;
}

static bool resolve_mesh(Reader *r) {
  int64_t ranks, product = 1;
  Span span;
  if (!wanted_ranks(r, &ranks, &span)) return false;
  if (!r->mesh.source && ranks > 0) {
    Axis data = {.name = name_intern(r->e->names, "data"), .size = ranks};
    vec_push(r->e->arena, &r->axes, data);
  }
  for (int i = 0; i < r->axes.n; i++)
    if (r->axes.data[i].size &&
        __builtin_mul_overflow(product, r->axes.data[i].size, &product))
      product = INT64_MAX;
  if (!resolve_auto(r, product, ranks)) return false;
  product = 1;
  for (int i = 0; i < r->axes.n; i++)
    if (__builtin_mul_overflow(product, r->axes.data[i].size, &product) ||
        product > INT32_MAX) {
      diag(r->e->diags, DIAG_wrong_setting, r->axes.data[i].span,
           r->axes.data[i].name, "small enough for the ranks to be counted",
           "so large");
      return false;
    }
  if (ranks > 0 && product != ranks) {
    Diag *d = diag(r->e->diags, DIAG_mesh_ranks, r->mesh, (long long)product,
                   (long long)ranks);
    if (span.source)
      diag_note(d, span, "the number of ranks is pinned here");
    else
      diag_help(d, "leave out --ranks, or change the mesh");
    return false;
  }
  for (int i = 0; i < r->axes.n; i++)
    plan_add_axis(r->plan, r->axes.data[i].name, r->axes.data[i].size);
  return true;
}

/* ---- a line that another says already ---- */

static void pin_repeats(Reader *r, Span later, Span earlier) {
  plan_line_repeats(r->e, later, earlier);
}

static bool same_axes(const PlanShard *a, const PlanShard *b) {
  bool is_same = a->n_axes == b->n_axes;
  for (int i = 0; is_same && i < a->n_axes; i++)
    is_same = a->axes[i] == b->axes[i];
  return is_same;
}

/* ---- shards ---- */

/* The axes of one shard, those of size 1 left out; `none` is the empty list. */
static bool read_axes(Reader *r, const NameList *names, int *out_n, Name *out) {
  const Mesh *mesh = plan_mesh(r->plan);
  *out_n = 0;
  if (names->n == 1 && strcmp(names->names[0], "none") == 0) return true;
  for (int i = 0; i < names->n; i++) {
    Name name = names->names[i];
    if (!find_axis(r, name)) {
      Diag *d = diag(r->e->diags, DIAG_unknown_axis, names->spans[i], name);
      const char *known[MAX_AXES];
      for (int k = 0; k < r->axes.n; k++) known[k] = r->axes.data[k].name;
      if (r->mesh.source) diag_note(d, r->mesh, "the mesh is here");
      diag_suggest(d, name, known, r->axes.n);
      return false;
    }
    for (int k = 0; k < i; k++)
      if (names->names[k] == name) {
        diag(r->e->diags, DIAG_axis_twice, names->spans[i], name);
        return false;
      }
    if (mesh_find(mesh, name) < 0) continue;
    out[(*out_n)++] = name;
  }
  return true;
}

static bool graph_has_dim(const Graph *graph, Name dim) {
  for (int i = 0; i < graph->nodes.n; i++)
    for (int k = 0; k < graph->nodes.data[i]->n_results; k++)
      if (type_find(graph->nodes.data[i]->types[k], dim) >= 0) return true;
  return false;
}

static void report_dim(Reader *r, Span span, Name dim) {
  Map *seen = map_create(r->e->arena);
  for (int i = 0; i < r->graph->nodes.n; i++) {
    const Type *type = r->graph->nodes.data[i]->types[0];
    for (int k = 0; k < type->rank; k++)
      map_put(seen, type->dims[k].name, (void *)type->dims[k].name);
  }
  int n = map_size(seen);
  const char **names = ARENA_ARRAY(r->e->arena, const char *, n);
  for (int i = 0; i < n; i++) names[i] = map_key_at(seen, i);
  Diag *d = diag(r->e->diags, DIAG_plan_dim, span, r->model->name, dim);
  diag_suggest(d, dim, names, n);
}

/* An earlier line that says so already: where another dim has taken an axis
 * since, saying it again takes the axis back. */
static const PlanShard *find_same(const Reader *r, const PlanShard *shard) {
  const PlanShard *known = plan_find_shard(r->plan, shard->dim);
  if (!known || !same_axes(known, shard)) return NULL;
  const PlanShard *end = r->plan->shards.data + r->plan->shards.n;
  for (const PlanShard *at = known + 1; at < end; at++)
    for (int i = 0; i < at->n_axes; i++)
      for (int j = 0; j < shard->n_axes; j++)
        if (at->axes[i] == shard->axes[j]) return NULL;
  return known;
}

static void read_shard_names(Reader *r, const Pin *pin) {
  PlanShard shard = {.span = pin->span};
  Span known = SPAN_NONE;
  bool is_new = false;
  if (!read_axes(r, &pin->axes, &shard.n_axes, shard.axes)) return;
  for (int i = 0; i < pin->exprs.n; i++) {
    const Expr *x = pin->exprs.data[i];
    if (x->kind != EXPR_name) {
      Diag *d = diag(r->e->diags, DIAG_not_a_dim, x->span);
      const char *text = span_text(r->e->arena, x->span);
      diag_help(d,
                "a placement follows a path after a colon, as in shard %s: B "
                "over data",
                text);
      continue;
    }
    shard.dim = x->name;
    bool is_twice = false;
    for (int k = 0; k < i; k++)
      is_twice |= plan_is_word(pin->exprs.data[k], x->name);
    if (is_twice) {
      diag(r->e->diags, DIAG_dim_twice, x->span, x->name);
      continue;
    }
    if (!graph_has_dim(r->graph, x->name)) {
      report_dim(r, x->span, x->name);
      continue;
    }
    const PlanShard *same = find_same(r, &shard);
    is_new |= same == NULL;
    if (same) known = same->span;
    vec_push(r->e->arena, &r->plan->shards, shard);
  }
  if (!is_new && known.source) pin_repeats(r, pin->span, known);
}

/* ---- paths ---- */

static bool plan_read_paths(Reader *r, const Pin *pin, PathList *out) {
  if (!r->paths) return false;
  bool is_good = true;
  for (int i = 0; i < pin->exprs.n; i++)
    if (pin->kind != PIN_offload ||
        !plan_is_word(pin->exprs.data[i], "optimizer"))
      is_good = plan_paths_find(r->paths, pin->exprs.data[i], out) && is_good;
  return is_good;
}

/* Read last, because they depend on `zero`. */
static void read_savings(Reader *r) {
  SavingLines lines = {
      .e = r->e, .graph = r->graph, .paths = r->paths, .plan = r->plan};
  for (int b = 0; r->paths && b < r->blocks.n; b++)
    for (int i = 0; i < r->blocks.data[b]->n_pins; i++) {
      const Pin *pin = &r->blocks.data[b]->pins[i];
      if (pin->kind == PIN_remat || pin->kind == PIN_keep)
        saving_read_line(&lines, pin);
    }
  if (diags_errors(r->e->diags) == 0) saving_check_lines(&lines);
}

/* One entry of a line, for these values or, `is_operator`, operators. */
static bool read_place(Reader *r, const Pin *pin, const Place *place,
                       const PathList *paths, bool is_operator,
                       PlanPlacement *out, PlanShard *shards) {
  if (!place->dim && is_operator) {
    Diag *d = diag(r->e->diags, DIAG_operator_partial, place->span);
    diag_help(d, "shard a dimension over which the operator sums: the sum is "
                 "partial then");
    return false;
  }
  if (!place->dim)
    return read_axes(r, &place->axes, &out->n_partial, out->partial);
  for (int i = 0; i < out->n_shards; i++)
    if (shards[i].dim == place->dim) {
      diag(r->e->diags, DIAG_dim_twice, place->span, place->dim);
      return false;
    }
  PlanShard *shard = &shards[out->n_shards];
  *shard = (PlanShard){.dim = place->dim, .span = pin->span};
  if (!read_axes(r, &place->axes, &shard->n_axes, shard->axes)) return false;
  bool has_dim =
      is_operator
          ? plan_paths_compute_over(r->paths, paths, place->dim, place->span)
          : plan_paths_have_dim(r->paths, paths, pin->exprs.data[0], place->dim,
                                place->span);
  out->n_shards += has_dim;
  return has_dim;
}

static bool read_line(Reader *r, const Pin *pin, const PathList *paths,
                      bool is_operator, PlanPlacement *out) {
  *out = (PlanPlacement){
      .n_paths = paths->n, .paths = paths->data, .span = pin->span};
  PlanShard *shards = ARENA_ARRAY(r->e->arena, PlanShard, pin->n_places + 1);
  out->shards = shards;
  for (int i = 0; i < pin->n_places; i++)
    if (!read_place(r, pin, &pin->places[i], paths, is_operator, out, shards))
      return false;
  return is_operator || plan_paths_take_axes_once(r->paths, paths, out);
}

/* PATH!NAME says how an operator computes; other paths, how a value is placed.
 */
static void read_placement(Reader *r, const Pin *pin) {
  PathList values = {0}, operators = {0};
  bool is_good = true;
  for (int i = 0; i < pin->exprs.n; i++) {
    const Expr *x = pin->exprs.data[i];
    bool is_operator = plan_path_is_operator(x);
    PathList found = {0};
    is_good = plan_paths_find(r->paths, x, &found) && is_good;
    for (int k = 0; k < found.n; k++)
      if (is_operator)
        vec_push(r->e->arena, &operators, found.data[k]);
      else if (!plan_paths_is_hidden(r->paths, found.data[k]))
        vec_push(r->e->arena, &values, found.data[k]);
  }
  PlanPlacement line;
  if (!is_good) return;
  if (values.n > 0 && read_line(r, pin, &values, false, &line))
    vec_push(r->e->arena, &r->plan->placements, line);
  if (operators.n > 0 && read_line(r, pin, &operators, true, &line))
    vec_push(r->e->arena, &r->plan->operators, line);
}

/* ---- annotations of the model ---- */

/* `H = tensor`, `H = (seq, tensor)` or `H = none` of an annotation. */
static bool read_annotation_place(Reader *r, const Arg *arg, Place *out) {
  const Expr *x = arg->value;
  bool is_list = x->kind == EXPR_list;
  int n = is_list ? x->items.n : 1;
  *out = (Place){.span = arg->span};
  out->axes.names = ARENA_ARRAY(r->e->arena, Name, n + 1);
  out->axes.spans = ARENA_ARRAY(r->e->arena, Span, n + 1);
  bool is_good = arg->name != NULL;
  for (int i = 0; i < n && is_good; i++) {
    const Expr *axis = is_list ? x->items.data[i] : x;
    is_good = axis->kind == EXPR_name;
    out->axes.names[i] = axis->name;
    out->axes.spans[i] = axis->span;
  }
  out->axes.n = n;
  if (!is_good)
    diag(r->e->diags, DIAG_annotation_shard, arg->span);
  else if (strcmp(arg->name, "partial") != 0)
    out->dim = arg->name;
  return is_good;
}

static void read_annotation_shard(Reader *r, const Annotation *annotation,
                                  const PathList *paths) {
  int n = annotation->args.n;
  Expr x = {.kind = EXPR_name, .span = annotation->span};
  Pin pin = {.kind = PIN_shard_paths, .span = annotation->span};
  PlanPlacement line;
  pin.places = ARENA_ARRAY(r->e->arena, Place, n + 1);
  pin.n_places = n;
  Expr *exprs[1] = {&x};
  pin.exprs = (ExprList){exprs, 1};
  for (int i = 0; i < n; i++)
    if (!read_annotation_place(r, &annotation->args.items[i], &pin.places[i]))
      return;
  if (!read_line(r, &pin, paths, false, &line)) return;
  line.is_annotation = true;
  vec_push(r->e->arena, &r->plan->placements, line);
}

static void read_annotation(Reader *r, const Annotation *annotation,
                            const PathList *paths) {
  SavingLines lines = {.e = r->e, .graph = r->graph, .plan = r->plan};
  if (paths->n == 0)
    diag(r->e->diags, DIAG_annotation_empty, annotation->span,
         annotation->name);
  else if (strcmp(annotation->name, "shard") == 0)
    read_annotation_shard(r, annotation, paths);
  else
    saving_read_annotation(&lines, r->walk, annotation);
}

/* Inner annotations are noted before outer ones, over which they win. */
static void read_annotations(Reader *r) {
  const Elab *walk = r->walk;
  Map *seen = map_create(r->e->arena);
  for (int i = walk->pinned.n - 1; i >= 0; i--) {
    const Annotation *annotation = walk->pinned.data[i].annotation;
    PathList paths = {0};
    if (map_has(seen, annotation)) continue;
    map_put(seen, annotation, (void *)annotation);
    for (int k = 0; k <= i; k++) {
      const PinnedPaths *pinned = &walk->pinned.data[k];
      for (int j = 0; j < pinned->paths.n && pinned->annotation == annotation;
           j++)
        vec_push(r->e->arena, &paths, pinned->paths.data[j]);
    }
    read_annotation(r, annotation, &paths);
  }
}

/* Placements say nothing on one rank; what is saved is decided there too. */
static bool annotations_ask(const Elab *walk) {
  for (int i = 0; i < walk->pinned.n; i++)
    if (strcmp(walk->pinned.data[i].annotation->name, "shard") != 0)
      return true;
  return false;
}

/* ---- name = value ---- */

enum { compiled, later };

static const struct {
  const char *setting, *name, *params;
  int status;
} values[] = {
#define PLAN_VALUE(setting, name, params, status)                              \
  {#setting, name, params, status},
#include "frontend/plan/values.def"
};

static bool good_argument(BuiltinCall *call, int i) {
  const char *name = call->builtin->params[i].name;
  bool is_staleness = strcmp(name, "staleness") == 0, truth;
  int64_t n;
  if (call->builtin->params[i].kind == FORMAL_PARAM_late) return true;
  if (strcmp(name, "vertical") == 0) return arg_bool(call, i, &truth);
  if (is_staleness && call->args[i].kind == EXPR_VALUE_none) return true;
  return arg_int(call, i, !is_staleness, &n);
}

/* The row that `x` names, its arguments checked, or -1; reports. */
static int plan_find_value(Reader *r, const char *setting, const Expr *x) {
  Elab *e = r->e;
  const Expr *callee = x->kind == EXPR_call ? x->a : x;
  const char *names[ARRAY_LENGTH(values)];
  int n = 0;
  for (int i = 0; i < ARRAY_LENGTH(values); i++) {
    if (strcmp(values[i].setting, setting) != 0) continue;
    names[n++] = values[i].name;
    if (!plan_is_word(callee, values[i].name)) continue;
    if (x->kind != EXPR_call) return i;
    Builtin signature = {.name = callee->name};
    builtin_parse_params(e->names, values[i].params, &signature);
    BuiltinCall call;
    if (!builtin_match(e, x, &signature, &call)) return -1;
    for (int k = 0; k < signature.n_params; k++)
      if (!good_argument(&call, k)) return -1;
    return i;
  }
  Diag *d = diag(e->diags, DIAG_plan_value, callee->span, setting,
                 expr_describe(e, callee));
  diag_choices(e->arena, d, callee->kind == EXPR_name ? callee->name : NULL,
               names, n);
  return -1;
}

/* A word of the table above, of which `later` ones are not done yet. */
static const char *plan_read_value(Reader *r, const Pin *pin) {
  int row = plan_find_value(r, pin->name, pin->value);
  if (row < 0) return NULL;
  if (values[row].status == compiled) return values[row].name;
  plan_unsupported(
      r, pin->value->span,
      arena_printf(r->e->arena, "%s = %s", pin->name, values[row].name));
  return NULL;
}

static void plan_read_word(Reader *r, const Pin *pin) {
  plan_read_value(r, pin);
}

/* With one stage the synchronous schedules differ only in the activations that
 * they save. */
static void plan_read_schedule(Reader *r, const Pin *pin) {
  const char *name = plan_read_value(r, pin);
  if (name && strcmp(name, "1f1b") != 0 && r->plan->microbatches > 1)
    plan_unsupported(
        r, pin->value->span,
        arena_printf(r->e->arena, "'%s' with micro-batches", name));
}

static void plan_read_attention(Reader *r, const Pin *pin) {
  const char *name = plan_read_value(r, pin);
  r->plan->attention_span = pin->value->span;
  for (int i = ATTENTION_gather; name && i <= ATTENTION_ulysses; i++)
    if (strcmp(plan_attention_name((PlanAttention)i), name) == 0)
      r->plan->attention = (PlanAttention)i;
}

static void read_zero(Reader *r, const Pin *pin) {
  int64_t level = 0;
  PlanShard over = {.span = pin->span};
  if (!read_int(r, pin->value, "zero", 0, &level) ||
      (pin->axes.n > 0 && !read_axes(r, &pin->axes, &over.n_axes, over.axes)))
    return;
  if (level > 3)
    diag(r->e->diags, DIAG_wrong_setting, pin->value->span, "zero",
         "an integer from 0 to 3",
         arena_printf(r->e->arena, "%lld", (long long)level));
  else if (pin->axes.n == 0 || over.n_axes > 0)
    r->plan->zero = (int)level; /* else: over one rank, which holds all */
  r->plan->zero_over = over;
}

static void read_bucket(Reader *r, const Pin *pin) {
  read_bytes(r, pin->value, "bucket", &r->plan->bucket_bytes);
}

static void read_memory(Reader *r, const Pin *pin) {
  read_bytes(r, pin->value, "memory", &r->plan->memory_bytes);
  r->plan->memory_span = pin->span;
}

/* Read before the others: by resolve_mesh and resolve_microbatches. */
static void read_before(Reader *r, const Pin *pin) {
  (void)r, (void)pin;
}

static void read_set(Reader *r, const Pin *pin) {
  static const struct {
    const char *name;
    void (*read)(Reader *r, const Pin *pin);
  } rows[] = {{"schedule", plan_read_schedule},
              {"microbatches", read_before},
              {"zero", read_zero},
              {"sync", plan_read_word},
              {"bucket", read_bucket},
              {"compress", plan_read_word},
              {"memory", read_memory},
              {"ranks", read_before},
              {"attention", plan_read_attention}};
  const char *names[ARRAY_LENGTH(rows)];
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    names[i] = rows[i].name;
    if (strcmp(rows[i].name, pin->name) != 0) continue;
    if (pin->axes.n > 0 && rows[i].read != read_zero)
      diag(r->e->diags, DIAG_plan_over, pin->axes.spans[0], pin->name);
    else if (pin == find_set(r, pin->name))
      rows[i].read(r, pin);
    else if (!strcmp(
                 span_text(r->e->arena, pin->value->span),
                 span_text(r->e->arena, find_set(r, pin->name)->value->span)))
      pin_repeats(r, find_set(r, pin->name)->span, pin->span);
    return;
  }
  Diag *d = diag(r->e->diags, DIAG_unknown_pin, pin->span, pin->name);
  diag_choices(r->e->arena, d, pin->name, names, ARRAY_LENGTH(names));
}

/* ---- all pins ---- */

static void read_pin(Reader *r, const Pin *pin) {
  PathList paths = {0};
  switch (pin->kind) {
  case PIN_shard_names: read_shard_names(r, pin); return;
  case PIN_shard_paths:
  case PIN_replicate: read_placement(r, pin); return;
  case PIN_set: read_set(r, pin); return;
  case PIN_keep:
  case PIN_remat: return; /* read_savings */
  case PIN_stage:
  case PIN_cut:
  case PIN_offload:
  case PIN_place:
    if (plan_read_paths(r, pin, &paths))
      plan_unsupported(r, pin->span,
                       pin->kind == PIN_offload ? "'offload'"
                       : pin->kind == PIN_place ? "'place'"
                                                : "stages");
    return;
  }
}

/* A rank splits its own samples into micro-batches. */
static bool resolve_microbatches(Reader *r) {
  int64_t n = r->request->microbatches;
  const Pin *pin = n > 0 ? NULL : find_set(r, "microbatches");
  if (n <= 0) n = 1;
  if (pin && !read_int(r, pin->value, "microbatches", 1, &n)) return false;
  r->plan->microbatches = n;
  return true;
}

static bool check_microbatches(Reader *r, Name batch_dim) {
  const Plan *plan = r->plan;
  const Mesh *mesh = plan_mesh(plan);
  const PlanShard *shard = plan_find_shard(plan, batch_dim);
  int64_t n = plan->microbatches, samples = r->model->settings.batch;
  for (int i = 0; shard && i < shard->n_axes; i++) {
    int size = mesh->axes[mesh_find(mesh, shard->axes[i])].size;
    if (samples % size != 0) return true; /* `partition` says so */
    samples /= size;
  }
  if (n <= samples && samples % n == 0) return true;
  const Pin *pin = find_set(r, "microbatches");
  bool is_pinned = pin && r->request->microbatches <= 0;
  diag(r->e->diags, DIAG_microbatches_divide, is_pinned ? pin->span : SPAN_NONE,
       (long long)n, (long long)samples);
  return false;
}

static bool shards_over_axis(const PlanShard *shards, int n, Name axis,
                             Name batch_dim) {
  for (int i = 0; i < n; i++)
    for (int k = 0; k < shards[i].n_axes && shards[i].dim != batch_dim; k++)
      if (shards[i].axes[k] == axis) return true;
  return false;
}

static bool lines_name_axis(const PlanPlacement *lines, int n, Name axis,
                            Name batch_dim) {
  for (int i = 0; i < n; i++) {
    if (shards_over_axis(lines[i].shards, lines[i].n_shards, axis, batch_dim))
      return true;
    for (int k = 0; k < lines[i].n_partial; k++)
      if (lines[i].partial[k] == axis) return true;
  }
  return false;
}

/* Without a line about it the batch takes the axes over which no line shards
 * another dim, and it is the dim that micro-batches split. */
static void shard_batch(Reader *r, Name batch_dim) {
  Plan *plan = r->plan;
  PlanShard shard = {.dim = batch_dim};
  plan->batch_dim = batch_dim;
  const Mesh *mesh = plan_mesh(plan);
  for (int a = 0; a < mesh->n_axes; a++) {
    Name axis = mesh->axes[a].name;
    if (!shards_over_axis(plan->shards.data, plan->shards.n, axis, batch_dim) &&
        !lines_name_axis(plan->placements.data, plan->placements.n, axis,
                         batch_dim) &&
        !lines_name_axis(plan->operators.data, plan->operators.n, axis,
                         batch_dim))
      shard.axes[shard.n_axes++] = axis;
  }
  if (batch_dim && !plan_find_shard(plan, batch_dim))
    vec_push(r->e->arena, &plan->shards, shard);
}

/* ---- names that generics stand for ---- */

static bool plan_stands_for(const DimNames *names, Name name) {
  for (int i = 0; i < names->n; i++)
    if (names->names[i] == name) return true;
  return false;
}

/* A line reaches one dim of a tensor: the one of its name, else the first that
 * stands for it. */
static bool pin_reaches(const Param *param, int d, Name name) {
  const Type *type = param->type;
  if (type->dims[d].name == name) return true;
  if (type_find(type, name) >= 0) return false;
  for (int k = 0; k < d; k++)
    if (plan_stands_for(&param->stands_for[k], name)) return false;
  return plan_stands_for(&param->stands_for[d], name);
}

static void pin_reach(Reader *r, const Map *params) {
  Plan *plan = r->plan;
  plan->reached = map_create(r->e->arena);
  for (int i = 0; i < map_size(params); i++) {
    const Param *param = map_value_at(params, i);
    PlanReached found = {.n = param->type->rank};
    bool is_carried = false;
    for (int d = 0; d < found.n; d++) {
      found.dims[d] = param->type->dims[d].name;
      found.is_batch[d] = pin_reaches(param, d, plan->batch_dim);
      is_carried |= found.is_batch[d] && plan->batch_dim != found.dims[d];
      for (int k = 0; k < plan->shards.n; k++) {
        const PlanShard *line = &plan->shards.data[k];
        if (!pin_reaches(param, d, line->dim)) continue;
        found.lines[d] = line;
        is_carried |= line->dim != found.dims[d];
      }
    }
    if (is_carried)
      map_put(plan->reached, map_key_at(params, i),
              arena_copy(r->e->arena, &found, sizeof found));
  }
}

static Plan *plan_read_all(Reader *r, Name batch_dim) {
  Elab *e = r->e;
  if (!resolve_mesh(r) || !resolve_microbatches(r)) return NULL;
  Plan *plan = r->plan;
  if ((plan->ranks > 1 || plan->microbatches > 1) && !r->model->has_train) {
    diag(e->diags, DIAG_plan_needs_train,
         plan->ranks > 1 || !r->blocks.n ? r->mesh : r->blocks.data[0]->span);
    return NULL;
  }
  read_annotations(r);
  for (int b = 0; b < r->blocks.n; b++)
    for (int i = 0; i < r->blocks.data[b]->n_pins; i++)
      read_pin(r, &r->blocks.data[b]->pins[i]);
  read_savings(r);
  if (r->request->bucket_bytes > 0)
    plan->bucket_bytes = r->request->bucket_bytes;
  if (diags_errors(e->diags) > 0) return NULL;
  shard_batch(r, batch_dim);
  if (r->model->has_train && !check_microbatches(r, batch_dim)) return NULL;
  plan_set_microbatches(e->module, plan, plan->microbatches);
  pin_reach(r, r->walk->params);
  plan_index(e->arena, plan);
  plan_check_lines(e, r->paths, plan);
  plan_make_lines(e, r->paths, plan);
  return plan;
}

Plan *plan_read(Elab *e, const Model *model, const Elab *walk,
                const Graph *graph, Name batch_dim) {
  const PlanRequest *request = &e->program->options->plan;
  Reader r = {
      .e = e, .model = model, .graph = graph, .walk = walk, .request = request};
  const Item *mesh = request->file ? plan_read_file(&r) : read_model(&r);
  if (diags_errors(e->diags) > 0) return NULL;
  bool asks = mesh || r.blocks.n > 0 || request->ranks > 1 ||
              request->microbatches > 1 || (walk && annotations_ask(walk));
  if (!asks || !graph) return NULL;
  r.plan = plan_create(e->module, model->name);
  r.paths = plan_paths_create(e, model, walk, graph);
  read_mesh(&r, mesh);
  if (diags_errors(e->diags) > 0) return NULL;
  return plan_read_all(&r, batch_dim);
}
