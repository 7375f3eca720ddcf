/*
 * read.c -- reads the lines of a plan as Pins: paths are resolved to those of
 * the graph, dims and mesh axes are looked up.
 *
 *     shard F over tensor                PlanShard F over tensor
 *     shard ffn[*].w: F over tensor      PlanPin of ffn[0].w, ffn[1].w
 *     shard optimizer.ffn: F over data   the same of optimizer/ffn[0].w ...
 *     offload ffn                        PlanPin of what is saved in ffn
 *
 * A pin that is understood but cannot be compiled yet is answered "not
 * supported yet" at its place; one that has no meaning is an error.
 */
#include "frontend/plan/read.h"
#include "frontend/syntax/help.h"

#include <string.h>

/* ---- lines that are left out ---- */

bool reader_leaves_out(const PlanSource *from, Span line) {
  for (int i = 0; i < from->n_without; i++) {
    Span span = from->without[i];
    if (span.source == line.source && span.begin <= line.begin &&
        line.begin < span.end)
      return true;
  }
  return false;
}

/* ---- shards ---- */

static bool graph_has_dim(const Graph *graph, Name dim) {
  for (int i = 0; i < graph->nodes.n; i++)
    for (int k = 0; k < graph->nodes.data[i]->n_results; k++)
      if (type_find(graph->nodes.data[i]->types[k], dim) >= 0) return true;
  return false;
}

static void report_dim(PinReader *r, Span span, Name dim) {
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

static void read_shard_names(PinReader *r, const Pin *pin) {
  PlanShard shard = {.span = pin->span};
  if (!reader_read_axes(r, &pin->axes, &shard.n_axes, shard.axes)) return;
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
      is_twice |= reader_is_word(pin->exprs.data[k], x->name);
    if (is_twice) {
      diag(r->e->diags, DIAG_dim_twice, x->span, x->name);
      continue;
    }
    if (!graph_has_dim(r->graph, x->name)) {
      report_dim(r, x->span, x->name);
      continue;
    }
    vec_push(r->e->arena, &r->pins->shards, shard);
  }
}

/* ---- paths ---- */

/* One entry of a line about these paths. */
static bool read_place(PinReader *r, const Pin *pin, const Place *place,
                       const PathList *paths, PlanPin *out, PlanShard *shards) {
  bool is_operator = out->about == ABOUT_operator;
  if (!place->dim && is_operator) {
    Diag *d = diag(r->e->diags, DIAG_operator_partial, place->span);
    diag_help(d, "shard a dimension over which the operator sums: the sum is "
                 "partial then");
    return false;
  }
  if (!place->dim && pin_is_of_update(out)) {
    Diag *d = diag(r->e->diags, DIAG_update_partial, place->span,
                   span_text(r->e->arena, pin->exprs.data[0]->span));
    diag_help(d, "an update reads complete gradients: shard a dimension");
    return false;
  }
  if (!place->dim)
    return reader_read_axes(r, &place->axes, &out->n_partial, out->partial);
  for (int i = 0; i < out->n_shards; i++)
    if (shards[i].dim == place->dim) {
      diag(r->e->diags, DIAG_dim_twice, place->span, place->dim);
      return false;
    }
  PlanShard *shard = &shards[out->n_shards];
  *shard = (PlanShard){.dim = place->dim, .span = pin->span};
  if (!reader_read_axes(r, &place->axes, &shard->n_axes, shard->axes))
    return false;
  bool has_dim =
      is_operator
          ? paths_compute_over(&r->paths, paths, place->dim, place->span)
          : paths_have_dim(&r->paths, paths, pin->exprs.data[0], place->dim,
                           place->span);
  out->n_shards += has_dim;
  return has_dim;
}

bool reader_read_line(PinReader *r, const Pin *pin, const PathList *paths,
                      PinAbout about, PlanPin *out) {
  *out = (PlanPin){.about = about,
                   .n_paths = paths->n,
                   .paths = paths->data,
                   .span = pin->span};
  PlanShard *shards = ARENA_ARRAY(r->e->arena, PlanShard, pin->n_places + 1);
  out->shards = shards;
  for (int i = 0; i < pin->n_places; i++)
    if (!read_place(r, pin, &pin->places[i], paths, out, shards)) return false;
  return true;
}

void reader_add_pin(PinReader *r, const PlanPin *pin) {
  vec_push(r->e->arena, &r->pins->of_paths, (PathPin){.pin = *pin});
}

static const GraphInput *find_parameter(PinReader *r, Name path) {
  if (!r->parameters) {
    r->parameters = map_create(r->e->arena);
    for (int i = 0; i < r->graph->inputs.n; i++) {
      GraphInput *input = &r->graph->inputs.data[i];
      if (input->role == ROLE_param) map_put(r->parameters, input->path, input);
    }
  }
  return map_get(r->parameters, path);
}

/* Returns whether a parameter that the line names has optimizer state; reports
 * where none has. */
static bool have_state(PinReader *r, const PathList *keys, Span span) {
  const OptimizerCall *call = &r->model->settings.optimizer;
  for (int i = 0; i < keys->n; i++) {
    const char *parameter;
    if (plan_path_about(keys->data[i], &parameter) != ABOUT_optimizer)
      return true;
    const GraphInput *input =
        find_parameter(r, name_intern(r->e->names, parameter));
    if (input && optimizer_keeps_state(call, input)) return true;
  }
  diag(r->e->diags, DIAG_plan_no_state, span, call->name,
       span_text(r->e->arena, span));
  return false;
}

/* A line about gradients and optimizer state becomes pins about one of both,
 * in the order of its paths. */
static void read_update_line(PinReader *r, const Pin *pin,
                             const PathList *keys) {
  PlanPin line;
  const char *parameter;
  if (!have_state(r, keys, pin->exprs.data[0]->span) ||
      !reader_read_line(r, pin, keys, ABOUT_gradient, &line))
    return;
  for (int i = 0, end; i < keys->n; i = end) {
    line.about = plan_path_about(keys->data[i], &parameter);
    for (end = i + 1; end < keys->n; end++)
      if (plan_path_about(keys->data[end], &parameter) != line.about) break;
    line.paths = keys->data + i;
    line.n_paths = end - i;
    reader_add_pin(r, &line);
  }
}

/* PATH!NAME says how an operator computes; other paths, how a value, a gradient
 * or optimizer state is placed. */
static void read_placement(PinReader *r, const Pin *pin) {
  PathList values = {0}, operators = {0}, updates = {0};
  bool is_good = true;
  for (int i = 0; i < pin->exprs.n; i++) {
    const Expr *x = pin->exprs.data[i];
    bool is_operator = path_is_operator(x);
    PathList found = {0};
    is_good = paths_read(&r->paths, x, &found) && is_good;
    for (int k = 0; k < found.n; k++)
      if (is_operator)
        vec_push(r->e->arena, &operators, found.data[k]);
      else if (plan_path_is_of_update(found.data[k]))
        vec_push(r->e->arena, &updates, found.data[k]);
      else if (!plan_paths_is_hidden(r->paths.paths, found.data[k]))
        vec_push(r->e->arena, &values, found.data[k]);
  }
  PlanPin line;
  if (!is_good) return;
  if (values.n > 0 && reader_read_line(r, pin, &values, ABOUT_value, &line))
    reader_add_pin(r, &line);
  if (operators.n > 0 &&
      reader_read_line(r, pin, &operators, ABOUT_operator, &line))
    reader_add_pin(r, &line);
  if (updates.n > 0) read_update_line(r, pin, &updates);
}

/* Optimizer state that a line `offload` names must be there. */
static void read_offload(PinReader *r, const Pin *pin, SavingLines *savings) {
  PathList keys = {0};
  saving_read_line(savings, pin);
  const PathPin *read = &r->pins->of_paths.data[r->pins->of_paths.n - 1];
  for (int i = 0; i < read->inputs.n; i++)
    if (plan_path_is_of_update(read->inputs.data[i]))
      vec_push(r->e->arena, &keys, read->inputs.data[i]);
  if (keys.n > 0) have_state(r, &keys, read->subject);
}

/* ---- all pins ---- */

static void read_pin(PinReader *r, const Pin *pin, SavingLines *savings) {
  switch (pin->kind) {
  case PIN_shard_names: read_shard_names(r, pin); return;
  case PIN_shard_paths:
  case PIN_replicate: read_placement(r, pin); return;
  case PIN_set: reader_read_setting(r, pin); return;
  case PIN_keep:
  case PIN_remat: saving_read_line(savings, pin); return;
  case PIN_offload: read_offload(r, pin, savings); return;
  case PIN_stage:
  case PIN_cut: reader_read_stage(r, pin); return;
  case PIN_place: reader_read_place(r, pin); return;
  }
}

void reader_read_lines(PinReader *r) {
  SavingLines savings = {
      .e = r->e, .graph = r->graph, .paths = &r->paths, .pins = r->pins};
  for (int b = 0; b < r->blocks.n; b++)
    for (int i = 0; i < r->blocks.data[b]->n_pins; i++)
      read_pin(r, &r->blocks.data[b]->pins[i], &savings);
  reader_check_places(r);
}
