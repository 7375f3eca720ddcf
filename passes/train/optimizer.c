/*
 * optimizer.c -- append the update of every parameter: norm, clipping, learning
 * rate and the formula of the optimizer (ir/model/optimizers.def).
 *
 *     output grad "w" %9     =>   ok = finite(loss) and finite(norm)
 *                                 w' = w - lr * clipped g
 *                                 output param "w" select(ok, w', w)
 *
 * The update has no branch: where the loss or the norm is not finite, every
 * persistent buffer (parameters, optimizer state, moving averages, states of
 * the model) gets its old value, so that the step can run again to find the
 * operator at fault.
 *
 * Scalars that are computed once a step (learning rate, bias correction, the
 * norm across tensors) are computed in f64, because 1 - b2^t loses half of its
 * digits in f32 while t is small.
 *
 * The update of a parameter has the stage of the parameter, and so has the
 * addition of its squares to the norm.  Scalars have no stage, so that each
 * stage computes them.  Where stages update their parameters early
 * (early_update.c), each has a norm and an `ok` of its own.  So has each
 * server, for the parameters that it has in full, and each table that servers
 * divide (plan_deal_parameters); a server does not know the loss.  Where `clip`
 * needs the norm of all, and servers wait for all workers, they have one norm
 * and one `ok`: outputs of role `push` are its terms (server_norms.c).
 *
 * requires: grad outputs in the order and type of their parameters
 * keeps: forward and gradient ids     breaks: grad outputs, which are dropped
 * cost: O(nodes)
 */
#include <string.h>

#include "passes/rewrite.h"
#include "passes/spmd/constrain.h"
#include "passes/stages/stages.h"
#include "passes/train/early_update.h"
#include "passes/train/low_rank.h"

enum { MOST_STATES = 4 };

typedef struct Recipe {
  const OptimizerCall *call;
  const OptimizerFormula *formula;
  ExprScope scope; /* f32: what its parameters share */
} Recipe;

typedef struct Update {
  PassContext *ctx;
  const TrainSettings *settings;
  Graph *graph;
  bool is_early;      /* each stage decides alone */
  int n_parts;        /* stages that do, or those of servers, or 1 */
  const Map *servers; /* part of a parameter, by path; NULL: there are none */
  bool joins_norms;   /* servers tell each other the terms of one norm */
  int part;           /* with servers: that of the parameter at hand */
  Value *ok;          /* bool [], by part */
  Value factor;       /* f32 [], VALUE_NONE: no clipping */
  Value step;         /* f64 [] */
  Value t, rate;      /* f64 []; t counts the steps that are made */
  Value *gradients;   /* by output of the graph; norm_of_part sets them */
  LowRank *low_rank;  /* of these, and so are they */
  VEC(Recipe *) recipes; /* in use */
  Value scale, unscale;  /* f32 []; VALUE_NONE: fixed, and none */
} Update;

/* One parameter under update. */
typedef struct Weight {
  const GraphInput *param;
  const OptimizerCall *call;
  const Type *type;
  bool matrix, excluded; /* as optimizers.def has them */
  ExprScope scope;
} Weight;

static Name optimizer_path(const Update *update, const char *format,
                           const char *path) {
  return name_format(update->ctx->module->names, format, path);
}

/* ---- scalars ---- */

static Value scalar_input(Graph *graph, Role role, DType dtype) {
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (input->role == role) return input->value;
  }
  Module *module = graph->module;
  return graph_input(graph, role, name_intern(module->names, role_name(role)),
                     type_scalar(module->arena, dtype));
}

/* `factor` epochs in steps, f64; the runtime knows the length of an epoch. */
static Value epochs_in_steps(Graph *graph, double factor) {
  Value epoch = scalar_input(graph, ROLE_epoch, DT_i64);
  return graph_op2(graph, OP_mul, graph_cast(graph, epoch, DT_f64),
                   graph_const(graph, DT_f64, factor));
}

static Value rate_at(Update *update, const Rate *rate, Value t) {
  const TrainSettings *settings = update->settings;
  const ScheduleInfo *schedule = schedule_info(rate->kind);
  Graph *graph = update->graph;
  ExprScope scope = {.graph = graph, .dtype = DT_f64};
  expr_bind(&scope, "t", t);
  for (int i = 0; i < argument_count(schedule->arguments); i++)
    if (schedule->arguments[i].range != RANGE_epochs)
      expr_bind_float(&scope, schedule->arguments[i].name, rate->values[i]);
  expr_bind_float(&scope, "pi", 3.14159265358979323846);
  if (schedule->ends && settings->steps > 0)
    expr_bind_float(&scope, "steps", (double)settings->steps);
  else if (schedule->ends)
    expr_bind(&scope, "steps",
              epochs_in_steps(graph, (double)settings->epochs));
  for (int i = 0; i < argument_count(schedule->arguments); i++)
    if (schedule->arguments[i].range == RANGE_epochs)
      expr_bind(&scope, schedule->arguments[i].name,
                epochs_in_steps(graph, rate->values[i]));
  return expr_build(&scope, schedule->formula);
}

static Value learning_rate(Update *update, const OptimizerCall *call, Value t) {
  const Rate *rate = &call->lr;
  Graph *graph = update->graph;
  Value value = rate_at(update, rate, t);
  if (rate->times)
    value = graph_op2(graph, OP_mul, value, rate_at(update, rate->times, t));
  if (call->lr_factor == 1) return value;
  return graph_op2(graph, OP_mul, value,
                   graph_const(graph, DT_f64, call->lr_factor));
}

/* The arguments of the call, under the names that formulas read. */
static void bind_arguments(ExprScope *scope, const OptimizerCall *call) {
  const OptimizerInfo *info = optimizer_info(optimizer_find(call->name));
  for (int i = 0; i < argument_count(info->arguments); i++)
    for (int v = 0; v < info->arguments[i].n_values; v++)
      expr_bind_float(scope, info->arguments[i].value_names[v],
                      call->values[i][v]);
}

/* Evaluates the recipe's scalars in f64 and binds them for the updates:
 * constants as constants, floats rounded to f32, bools unchanged. */
static void build_scalars(Update *update, Recipe *recipe) {
  const OptimizerCall *call = recipe->call;
  Graph *graph = update->graph;
  ExprScope scope = {.graph = graph, .dtype = DT_f64};
  bool is_group = call != &update->settings->optimizer;
  expr_bind(&scope, "t", update->t);
  expr_bind(&scope, "lr",
            is_group ? learning_rate(update, call, update->step)
                     : update->rate);
  bind_arguments(&scope, call);
  expr_bind_float(&scope, "ema", update->settings->ema);
  expr_build(&scope, "first = t == 1");
  if (recipe->formula->scalars[0]) expr_build(&scope, recipe->formula->scalars);
  recipe->scope = (ExprScope){.graph = graph, .dtype = DT_f32};
  for (int i = 0; i < scope.n; i++) {
    const ExprName *item = &scope.names[i];
    const Node *node = graph_node(graph, item->value);
    if (node->op == OP_const) {
      expr_bind_float(&recipe->scope, item->name,
                      node_float(node, ATTR_value, 0));
    } else {
      bool is_float = dtype_class(node->types[0]->dtype) == CLASS_FLOAT;
      Value value =
          is_float ? graph_cast(graph, item->value, DT_f32) : item->value;
      expr_bind(&recipe->scope, item->name, value);
    }
  }
}

static const Recipe *recipe_for(Update *update, const Weight *weight) {
  const OptimizerFormula *formula =
      optimizer_formula(weight->call, weight->matrix, weight->excluded);
  for (int i = 0; i < update->recipes.n; i++) {
    const Recipe *known = update->recipes.data[i];
    if (known->formula == formula && known->call == weight->call) return known;
  }
  Recipe *recipe = ARENA_NEW(update->ctx->scratch, Recipe);
  vec_push(update->ctx->scratch, &update->recipes, recipe);
  recipe->call = weight->call;
  recipe->formula = formula;
  uint16_t stage = update->graph->stage;
  update->graph->path = optimizer_path(update, "%s", "optimizer");
  update->graph->stage = 0;
  build_scalars(update, recipe);
  update->graph->stage = stage;
  return recipe;
}

/* The gradient, with a constraint behind it where a line of the plan places it.
 */
static Value placed_gradient(Update *update, const GraphOutput *output) {
  PassContext *ctx = update->ctx;
  const Plan *plan = ctx->plan;
  bool is_parallel = plan && (plan->ranks > 1 || plan->microbatches > 1);
  const PlanPin *line = is_parallel
                            ? plan_find_update(plan, ctx->module->names,
                                               ABOUT_gradient, output->path)
                            : NULL;
  return line ? constraint_append(ctx, update->graph, output->value, line,
                                  output->path)
              : output->value;
}

/* A gradient in f32, without the loss scale. */
static Value unscaled_gradient(const Update *update, Value g) {
  g = graph_cast(update->graph, g, DT_f32);
  if (!value_is(update->unscale)) return g;
  return graph_op2(update->graph, OP_mul, g, update->unscale);
}

/* The gradient of this output as the update reads it. */
static Value update_gradient(const Update *update, int output) {
  const LowRank *low = &update->low_rank[output];
  return low->is_used ? low->gradient
                      : unscaled_gradient(update, update->gradients[output]);
}

static void compress_gradient(Update *update, const Graph *from, int output) {
  Value gradient = update->gradients[output];
  if (!low_rank_is_asked(update->ctx)) return;
  const GraphInput *param =
      graph_find_input(from, ROLE_param, from->outputs.data[output].path);
  update->low_rank[output] = low_rank_gradient(
      update->ctx, update->graph, param, unscaled_gradient(update, gradient));
}

static void check_compressed(const Update *update, const Graph *from) {
  const Plan *plan = pass_stage_plan(update->ctx);
  if (!low_rank_is_asked(update->ctx)) return;
  for (int i = 0; i < from->outputs.n; i++)
    if (update->low_rank[i].is_used) return;
  diag_help(diag(update->ctx->module->diags, DIAG_compress_nothing,
                 plan->compress_span, (long long)plan->compress_rank),
            "write a smaller rank, as in 'compress = power(rank = 4)', or "
            "leave the line out");
}

static Value sum_of_squares(Graph *graph, Value g) {
  const Type *type = graph_type(graph, g);
  Name over[MAX_RANK];
  for (int i = 0; i < type->rank; i++) over[i] = type->dims[i].name;
  g = graph_cast(graph, g, DT_f32);
  Value square = graph_op2(graph, OP_mul, g, g);
  if (type->rank == 0) return square;
  return graph_reduce(graph, OP_sum, square, over, type->rank);
}

/* To f64, also where it is a part of a sum over ranks: nothing is rounded. */
static Value cast_summand(Graph *graph, Value sum) {
  Module *module = graph->module;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dtype, name_intern(module->names, "f64"));
  attrs_name(&attrs, ATTR_reduce, name_intern(module->names, "sum"));
  return graph_append(graph, OP_cast, &sum, 1, &attrs);
}

/* ---- parts ---- */

/* The number of the part that what has this stage belongs to. */
static int part_of(const Update *update, uint16_t stage) {
  if (update->joins_norms) return 0;
  if (update->servers) return update->part;
  return update->is_early ? early_update_stage(update->ctx, stage) - 1 : 0;
}

/* The part of a gradient. */
static int part_of_gradient(const Update *update, const GraphOutput *output) {
  if (update->servers && !update->joins_norms)
    return (int)(intptr_t)map_get(update->servers, output->path) - 1;
  return part_of(update, graph_node(update->graph, output->value)->stage);
}

/* Its scalars have this stage; those of all stages have none. */
static uint16_t stage_of_part(const Update *update, int part) {
  return update->is_early ? (uint16_t)(part + 1) : 0;
}

/* The norm over the gradients of a part: f32 in each tensor, f64 across them.
 */
static Value norm_of_part(Update *update, const Graph *from, int part) {
  Graph *graph = update->graph;
  Value total = VALUE_NONE;
  for (int i = 0; i < from->outputs.n; i++) {
    const GraphOutput *output = &from->outputs.data[i];
    if (output->role != ROLE_grad || part_of_gradient(update, output) != part)
      continue;
    graph->path = optimizer_path(update, "optimizer.%s", output->path);
    graph->stage = graph_node(graph, output->value)->stage;
    Value gradient = placed_gradient(update, output);
    update->gradients[i] = gradient;
    compress_gradient(update, from, i);
    Value sum = sum_of_squares(graph, update_gradient(update, i));
    sum = cast_summand(graph, sum);
    if (update->joins_norms)
      graph_output(graph, ROLE_push,
                   optimizer_path(update, "norm/%s", output->path), sum);
    total = value_is(total) ? graph_op2(graph, OP_add, total, sum) : sum;
  }
  graph->path = optimizer_path(update, "%s", "optimizer");
  graph->stage = stage_of_part(update, part);
  if (!value_is(total)) return graph_const(graph, DT_f32, 0);
  return graph_cast(graph, graph_op1(graph, OP_sqrt, total), DT_f32);
}

/* Builds what the updates of a part depend on; returns its norm. */
static Value build_part(Update *update, const Graph *from, int part) {
  Graph *graph = update->graph;
  Value norm = norm_of_part(update, from, part);
  Value ok = graph_op1(graph, OP_finite, norm);
  for (int i = 0; i < from->outputs.n; i++) {
    const GraphOutput *output = &from->outputs.data[i];
    if (output->role != ROLE_loss || update->servers ||
        part_of(update, graph_node(graph, output->value)->stage) != part)
      continue;
    Value is_finite = graph_op1(graph, OP_finite, output->value);
    ok = graph_op2(graph, OP_and, is_finite, ok);
  }
  update->ok[part] = ok;
  graph->stage = 0;
  return norm;
}

/* Returns the norm of all gradients, where several parts have norms. */
static Value norm_of_all(Update *update, const Graph *from) {
  Graph *graph = update->graph;
  Value total = VALUE_NONE;
  for (int i = 0; i < from->outputs.n; i++) {
    if (from->outputs.data[i].role != ROLE_grad) continue;
    Value sum = sum_of_squares(graph, update_gradient(update, i));
    sum = cast_summand(graph, sum);
    total = value_is(total) ? graph_op2(graph, OP_add, total, sum) : sum;
  }
  if (!value_is(total)) return graph_const(graph, DT_f32, 0);
  return graph_cast(graph, graph_op1(graph, OP_sqrt, total), DT_f32);
}

/* Builds the values that the step depends on, and the norms, by part.  With
 * servers that do not wait, the factor of `clip` is a value of the worker,
 * which the output tells to servers_cut; with those that do, so are the terms
 * of the norm, which servers exchange. */
static Value *build_norms(Update *update, const Graph *from) {
  Graph *graph = update->graph;
  Value *norms = ARENA_ARRAY(update->ctx->scratch, Value, update->n_parts);
  update->ok = ARENA_ARRAY(update->ctx->scratch, Value, update->n_parts);
  for (int part = 0; part < update->n_parts; part++)
    norms[part] = build_part(update, from, part);
  update->factor = VALUE_NONE;
  if (update->settings->clip > 0) {
    ExprScope scope = {.graph = graph, .dtype = DT_f32};
    bool has_parts = update->servers && !update->joins_norms;
    expr_bind(&scope, "norm", has_parts ? norm_of_all(update, from) : norms[0]);
    expr_bind_float(&scope, "clip", update->settings->clip);
    update->factor = expr_build(&scope, "MINIMUM(1, clip / (norm + 1e-6))");
    if (update->servers && plan_servers(update->ctx->plan)->staleness != 0)
      graph_output(graph, ROLE_push, optimizer_path(update, "%s", "clip"),
                   update->factor);
  }
  return norms;
}

/* Each part has a norm of its own, from which the runtime makes that of all. */
static void output_norms(Update *update, const Value *norms) {
  Graph *graph = update->graph;
  Names *names = update->ctx->module->names;
  for (int part = 0; part < update->n_parts; part++)
    graph_output(graph, ROLE_norm,
                 update->is_early || update->servers
                     ? name_format(names, "norm/%d", part)
                     : name_intern(names, "norm"),
                 norms[part]);
}

/* ---- persistent buffers ---- */

/* Replaces the buffer read by `old` with `value` where loss and norm are
 * finite, or those of its stage. */
static void replace_if_sound(Update *update, Role role, Name path, Value old,
                             Value value) {
  Graph *graph = update->graph;
  const Type *type = graph_type(graph, old);
  value = graph_cast(graph, value, type->dtype);
  Value ok = update->ok[part_of(update, graph->stage)];
  value = graph_op3(graph, OP_select, ok, value, old);
  value = graph_transpose_to(graph, value, type);
  graph_output(graph, role, path, value);
}

static Value zero_input(Update *update, Role role, Name path,
                        const Type *like) {
  const Type *type = type_with_dtype(update->ctx->module->arena, like, DT_f32);
  Value value = graph_input(update->graph, role, path, type);
  GraphInput *input = &update->graph->inputs.data[update->graph->inputs.n - 1];
  input->init = (Init){.kind = INIT_zeros};
  return value;
}

typedef struct State {
  char letter[2];
  Name path;
  Value old;
} State;

/* Reads one item of a list of states: "m", or "r:out" for the dims `out`. */
static const char *read_state(Update *update, const Weight *weight,
                              const char *at, State *out) {
  Module *module = update->ctx->module;
  const Type *type = weight->type;
  out->letter[0] = *at++;
  if (*at == ':') {
    bool is_out = strncmp(at, ":out", 4) == 0;
    ASSERT(is_out || strncmp(at, ":in", 3) == 0);
    const ExprDims *without = &weight->scope.groups[is_out ? 0 : 1];
    type = type_without(module->arena, type, without->dims, without->n);
    at += is_out ? 4 : 3;
  }
  out->path =
      name_format(module->names, "%s.%s/%s", update->settings->optimizer.name,
                  out->letter, weight->param->path);
  out->old = zero_input(update, ROLE_optimizer_state, out->path, type);
  return at + (*at == ' ');
}

/* A moving average starts as the parameter. */
static void update_average(Update *update, const GraphInput *param,
                           ExprScope *scope) {
  Graph *graph = update->graph;
  Init init = param->init;
  Name path = optimizer_path(update, "ema/%s", param->path);
  Value e = zero_input(update, ROLE_ema, path, graph_type(graph, param->value));
  graph->inputs.data[graph->inputs.n - 1].init = init;
  expr_bind(scope, "e", e);
  Value next = expr_build(scope, "ema * e + (1 - ema) * w");
  replace_if_sound(update, ROLE_ema, path, e, next);
}

/* The dims of a matrix, as `in` and `out`, and their sizes. */
static void bind_matrix(Weight *weight) {
  static const char *const names[2] = {"in", "out"}, *const sizes[2] = {
                                                         "n_in", "n_out"};
  const GraphInput *param = weight->param;
  ExprScope *scope = &weight->scope;
  double elements[2] = {1, 1};
  for (int i = 0; i < 2; i++) scope->groups[i] = (ExprDims){.name = names[i]};
  for (int d = 0; d < weight->type->rank; d++) {
    if (param->batches >> d & 1) continue;
    int side = !(param->contracts >> d & 1);
    ExprDims *group = &scope->groups[side];
    group->dims[group->n++] = weight->type->dims[d].name;
    elements[side] *= (double)weight->type->dims[d].size;
  }
  scope->n_groups = 2;
  for (int i = 0; i < 2; i++) expr_bind_float(scope, sizes[i], elements[i]);
}

/* The states of a compressed gradient. */
static void replace_low_rank(Update *update, const LowRank *low) {
  Graph *graph = update->graph;
  Value ok = update->ok[part_of(update, graph->stage)];
  if (!low->is_used) return;
  graph_output(graph, ROLE_optimizer_state, low->error_path,
               low_rank_select(graph, ok, low->next_error, low->error));
  replace_if_sound(update, ROLE_optimizer_state, low->factor_path, low->factor,
                   low->next_factor);
}

static void update_parameter(Update *update, const GraphInput *param,
                             int output) {
  Graph *graph = update->graph;
  const OptimizerCall *call = optimizer_of(&update->settings->optimizer, param);
  Weight weight = {.param = param,
                   .call = call,
                   .type = graph_type(graph, param->value),
                   .matrix = param->contracts != 0,
                   .excluded = !param->has_decay && !call->decay_all};
  if (update->servers)
    update->part = (int)(intptr_t)map_get(update->servers, param->path) - 1;
  const Recipe *recipe = recipe_for(update, &weight);
  ExprScope *scope = &weight.scope;
  *scope = recipe->scope;
  graph->path = optimizer_path(update, "optimizer.%s", param->path);
  graph->stage = graph_node(graph, param->value)->stage;
  Value w = graph_cast(graph, param->value, DT_f32);
  Value g = update_gradient(update, output);
  if (value_is(update->factor)) {
    g = graph_op2(graph, OP_mul, g, update->factor);
  }
  expr_bind(scope, "w", w);
  expr_bind(scope, "g", g);
  expr_bind_float(scope, "d", weight.excluded ? 0 : call->decay);
  if (weight.matrix) bind_matrix(&weight);
  State states[MOST_STATES] = {0};
  int n = 0;
  for (const char *at = recipe->formula->states; *at; n++) {
    ASSERT(n < MOST_STATES);
    at = read_state(update, &weight, at, &states[n]);
    expr_bind(scope, states[n].letter, states[n].old);
  }
  bool has_decay = call->decay > 0 && !weight.excluded;
  if (has_decay && *recipe->formula->decay)
    expr_build(scope, recipe->formula->decay);
  expr_build(scope, recipe->formula->update);
  replace_if_sound(update, ROLE_param, param->path, param->value,
                   expr_find(scope, "w"));
  for (int i = 0; i < n; i++) {
    replace_if_sound(update, ROLE_optimizer_state, states[i].path,
                     states[i].old, expr_find(scope, states[i].letter));
  }
  replace_low_rank(update, &update->low_rank[output]);
  if (update->settings->ema > 0) update_average(update, param, scope);
}

/* ---- loss scale ---- */

static void find_scale(Update *update) {
  Graph *graph = update->graph;
  double scale = pass_precision_of(update->ctx)->loss_scale;
  update->scale = update->unscale = VALUE_NONE;
  if (scale == 1 || scale == 0) return;
  if (scale > 0) {
    update->unscale = graph_const(graph, DT_f32, 1 / scale);
    return;
  }
  const GraphInput *input = graph_find_input(
      graph, ROLE_loss_scale, optimizer_path(update, "%s", "loss_scale"));
  if (input == NULL) return; /* no loss, no gradient */
  update->scale = input->value;
  Value one = graph_const(graph, DT_f32, 1);
  update->unscale = graph_op2(graph, OP_div, one, update->scale);
}

/* A dynamic scale doubles after 2,000 clean steps and halves where a step is
 * not sound, which is then not made: from here on t counts the steps that were
 * made. */
static void update_scale(Update *update) {
  Graph *graph = update->graph;
  if (!value_is(update->scale)) return;
  const Type *type = type_scalar(update->ctx->module->arena, DT_f32);
  static const char *const names[3] = {"scale", "clean", "made"};
  const Name paths[3] = {optimizer_path(update, "%s", "loss_scale"),
                         optimizer_path(update, "%s", "loss_scale.clean"),
                         optimizer_path(update, "%s", "loss_scale.made")};
  ExprScope scope = {.graph = graph, .dtype = DT_f32};
  expr_bind(&scope, "ok", update->ok[0]);
  expr_bind(&scope, "scale", update->scale);
  for (int i = 1; i < 3; i++)
    expr_bind(&scope, names[i],
              zero_input(update, ROLE_loss_scale, paths[i], type));
  Value made = expr_find(&scope, "made");
  expr_build(&scope, "full = clean >= 1999; "
                     "scale = SEL(ok, SEL(full, scale * 2, scale), scale / 2); "
                     "clean = SEL(ok, SEL(full, 0, clean + 1), 0); "
                     "made = SEL(ok, made + 1, made)");
  for (int i = 0; i < 3; i++)
    graph_output(graph, ROLE_loss_scale, paths[i], expr_find(&scope, names[i]));
  update->t = graph_op2(graph, OP_add, graph_cast(graph, made, DT_f64),
                        graph_const(graph, DT_f64, 1));
}

/* ---- the pass ---- */

/* Returns what needs more than a server has, or NULL. */
static const char *why_no_servers(const Update *update) {
  if (pass_precision_of(update->ctx)->loss_scale < 0)
    return "a dynamic loss scale changes where any gradient is not finite";
  return NULL;
}

static bool suits_servers(const Update *update) {
  const PlanServers *servers = plan_servers(update->ctx->plan);
  Diags *diags = update->ctx->module->diags;
  if (!servers) return true;
  const char *why = why_no_servers(update);
  bool has_averages = update->settings->ema > 0 && servers->staleness != 0;
  if (why)
    diag(diags, DIAG_server_update, servers->span, why);
  else if (has_averages)
    diag_help(diag(diags, DIAG_not_supported, servers->span,
                   "'ema' beside servers that do not wait for all workers"),
              "with 'staleness = 0' each server has the averages of its "
              "parameters");
  return !why && !has_averages;
}

static bool is_supported(const Update *update) {
  const OptimizerCall *call = &update->settings->optimizer;
  Diags *diags = update->ctx->module->diags;
  if (!suits_servers(update)) return false;
  if (!optimizer_formula(call, false, false)) {
    diag(diags, DIAG_optimizer_unknown, call->span, call->name);
    return false;
  }
  return true;
}

/* Outputs that are not gradients stay, and gradients where a reference is
 * compared with them; states keep their old value where loss
 * or norm is not finite. */
static void copy_outputs(Update *update, const Graph *from) {
  for (int i = 0; i < from->outputs.n; i++) {
    const GraphOutput *output = &from->outputs.data[i];
    if (output->role == ROLE_grad && !update->ctx->keeps_gradients) continue;
    const GraphInput *state =
        output->role == ROLE_state
            ? graph_find_input(update->graph, ROLE_state, output->path)
            : NULL;
    /* Workers, who have states, do not know what is finite. */
    if (state != NULL && !update->servers) {
      update->graph->path =
          optimizer_path(update, "optimizer.%s", output->path);
      update->graph->stage = graph_node(update->graph, state->value)->stage;
      replace_if_sound(update, ROLE_state, output->path, state->value,
                       output->value);
      update->graph->stage = 0;
    } else {
      graph_output(update->graph, output->role, output->path, output->value);
    }
  }
}

static Graph *build_update(Update *update, const Graph *from) {
  Rewrite rewrite = rewrite_begin(update->ctx, from);
  for (int id = 0; id < from->nodes.n; id++) {
    Value copy = rewrite_copy(&rewrite, id);
    ASSERT(copy.node == id);
  }
  Graph *graph = update->graph = rewrite.to;
  graph->phase = PHASE_update;
  graph->stage = 0;
  graph->span = update->settings->optimizer.span;
  update->gradients = ARENA_ARRAY(update->ctx->scratch, Value, from->outputs.n);
  update->low_rank =
      ARENA_ARRAY(update->ctx->scratch, LowRank, from->outputs.n);
  find_scale(update);
  low_rank_check(update->ctx);
  Value *norms = build_norms(update, from);
  update->step =
      graph_cast(graph, scalar_input(graph, ROLE_step, DT_i32), DT_f64);
  update->t = update->step;
  update->rate =
      learning_rate(update, &update->settings->optimizer, update->step);
  update_scale(update);
  copy_outputs(update, from);
  output_norms(update, norms);
  graph_output(graph, ROLE_rate, optimizer_path(update, "%s", "lr"),
               graph_cast(graph, update->rate, DT_f32));
  InputIndex inputs = graph_index_inputs(from, update->ctx->scratch);
  for (int i = 0; i < from->outputs.n; i++) {
    const GraphOutput *output = &from->outputs.data[i];
    if (output->role != ROLE_grad) continue;
    const GraphInput *param = input_indexed(&inputs, ROLE_param, output->path);
    ASSERT(param != NULL);
    update_parameter(update, param, i);
  }
  check_compressed(update, from);
  return graph;
}

Graph *pass_optimizer(PassContext *ctx, const Graph *from) {
  Update update = {.ctx = ctx};
  if (ctx->model == NULL || !ctx->model->has_train) {
    return rewrite_graph(ctx, from, NULL, NULL);
  }
  update.settings = &ctx->model->settings;
  if (!is_supported(&update)) return rewrite_graph(ctx, from, NULL, NULL);
  update.is_early = early_update_holds(ctx, from);
  update.n_parts = update.is_early ? pass_stage_plan(ctx)->stages.n : 1;
  const PlanServers *servers = plan_servers(ctx->plan);
  if (servers) {
    ServerDeal deal = servers_deal(ctx, from);
    update.joins_norms =
        update.settings->clip > 0 && servers->staleness == 0 && servers->n > 1;
    update.n_parts = update.joins_norms ? 1 : deal.n_parts;
    update.servers = deal.of_param;
  }
  return build_update(&update, from);
}
