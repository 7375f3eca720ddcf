/*
 * frontend.c -- turns the text of a model into its graphs.
 *
 * The expression `loss` is elaborated once with training = true, which decides
 * the parameters, and again for each other program that is compiled: the
 * evaluation, the remainder of an evaluation, sampling.  They differ in
 * `training` and in the size of the batch dim only.
 */
#include "frontend/syntax/help.h"
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/eval.h"
#include "frontend/elaborate/frame.h"
#include "frontend/elaborate/output.h"
#include "frontend/operators/operators.h"
#include "frontend/blocks/blocks.h"
#include "frontend/blocks/settings.h"
#include "frontend/plan/plan.h"

#include <string.h>

/* Each takes less than a second and 350 MB to be used up.  GPT-2 makes 2,600
 * nodes in all its graphs. */
static const Budget default_budget = {
    .nodes = 1000000, .list_elements = 4000000, .steps = 10000000, .depth = 64};

typedef struct Build { /* what the graphs of one model have in common */
  SourceTree tree;
  Model *model;
  Name batch_dim;     /* or NULL */
  bool has_batch_dim; /* it is a dim of the file: its size can be set */
  int64_t batch;      /* by the setting; 0: as written */
  Span batch_span;    /* of the setting */
  const Item *train_block, *sample_block;
  Elab *settings; /* reads settings; its graph stays empty */
  Elab *train;
  const Elab *walk; /* that made the training graph or the net alone */
  PlanReader *plans;
  Pins *pins;
} Build;

static Module *module_of(const Build *b) {
  return b->tree.module;
}

static bool has_errors(const Build *b) {
  return diags_errors(module_of(b)->diags) > 0;
}

static Elab *new_elab(Build *b, const char *name, bool is_training,
                      int64_t batch) {
  Elab *e = elab_create(&b->tree, name_intern(module_of(b)->names, name));
  b->tree.spent = (Budget){0}; /* the limits are those of each graph */
  e->is_training = is_training;
  e->batch_dim = b->has_batch_dim ? b->batch_dim : NULL;
  e->batch = b->has_batch_dim ? batch : 0;
  e->reference = b->train;
  return e;
}

/* ---- parameters that reach nothing ---- */

static void warn_unreached(const Graph *graph, Arena *arena, DiagId id) {
  bool *reached = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int i = 0; i < graph->outputs.n; i++)
    reached[graph->outputs.data[i].value.node] = true;
  for (int i = graph->nodes.n - 1; i >= 0; i--)
    for (int j = 0; reached[i] && j < graph->nodes.data[i]->n_inputs; j++)
      reached[graph->nodes.data[i]->inputs[j].node] = true;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (input->role == ROLE_param && !input->is_frozen &&
        !reached[input->value.node])
      diag(graph->module->diags, id, graph->nodes.data[input->value.node]->span,
           input->path);
  }
}

/* Nothing comes after a graph of another batch: the remainder of an evaluation
 * is its end, sampling begins anew for each token. */
static void add_states(Elab *e) {
  if (e->has_batch_rows) return;
  for (int i = 0; i < e->state_writes.n; i++)
    graph_output(e->graph, ROLE_state, e->state_writes.data[i].path,
                 e->state_writes.data[i].val.tensor);
}

static Graph *finish(Elab *e) {
  add_states(e);
  weights_mark(e->graph, e->arena);
  return e->graph;
}

static const Expr *loss_expr(Build *b) {
  SettingRef ref = setting_find(b->settings, b->train_block, "train", "loss");
  if (setting_is_missing(&ref, b->train_block, "train"))
    diag(module_of(b)->diags, DIAG_missing_setting, b->train_block->name_span,
         "train", "loss");
  return setting_expr(b->settings, &ref);
}

static Graph *build_eval(Build *b, const Expr *loss, EntryPointId id,
                         int64_t batch, bool has_batch_rows) {
  Elab *e = new_elab(b, entry_point_name(id), false, batch);
  e->has_batch_rows = has_batch_rows;
  elab_loss(e, loss, &b->model->settings.validation);
  elab_metrics(e, b->settings, b->train_block, &b->model->settings);
  limits_take(b->model, e);
  return finish(e);
}

/* ---- a net alone ---- */

static ExprValue net_input(Elab *e, const FormalParam *param) {
  if (!param->type) return param->init ? eval(e, param->init) : POISON;
  const Type *type = elab_type_expr(e, param->type);
  if (!type) return POISON;
  e->graph->span = param->span;
  e->graph->path = param->name;
  return expr_value_tensor(graph_input(e->graph, ROLE_data, param->name, type),
                           false);
}

static void add_results(Elab *e, const Callable *net, ExprValue result,
                        bool is_sample) {
  bool is_list = result.kind == EXPR_VALUE_list;
  for (int i = 0; i < (is_list ? result.list->n : 1); i++) {
    ExprValue val = is_list ? result.list->items[i] : result;
    Name path = is_list ? name_format(e->names, "%s[%d]", net->item->name, i)
                        : net->item->name;
    if (!expr_value_is_tensor(val)) {
      diag(e->diags, DIAG_wants_tensor, net->item->name_span,
           "the result of a net", expr_value_describe(e, val));
      return;
    }
    const Type *order = elab_ordered_type(e, val);
    e->graph->path = path;
    if (is_sample && dtype_is_16bit(elab_type(e, val)->dtype))
      val = elab_cast(e, val, DT_f32); /* chances are computed in f32 */
    graph_output(e->graph, ROLE_result, path,
                 graph_transpose_to(e->graph, val.tensor, order));
  }
}

/* The net on inputs of its own; POISON after a message. */
static ExprValue apply_net(Build *b, Elab *e, Callable *net) {
  const FormalParamList *params = &net->item->params;
  ExprValue *args = ARENA_ARRAY(e->arena, ExprValue, params->n);
  bool is_good = true;
  frame_push(e, NULL, name_intern(e->names, ""));
  for (int i = 0; i < params->n; i++) {
    args[i] = net_input(e, &params->items[i]);
    is_good = is_good && !expr_value_is_poison(args[i]);
  }
  frame_pop(e);
  if (!is_good) return POISON;
  if (!b->walk) b->walk = e;
  return elab_net(e, net, args, params->n, net->item->name_span);
}

static Graph *build_net(Build *b, Callable *net, EntryPointId id,
                        int64_t batch) {
  Elab *e = new_elab(b, entry_point_name(id), false, batch);
  e->has_batch_rows = true;
  ExprValue result = apply_net(b, e, net);
  if (expr_value_is_poison(result)) return NULL;
  add_results(e, net, result, id == ENTRY_prefill);
  return finish(e);
}

/* ---- which net ---- */

static Callable *find_net(Build *b, Name name, Span span) {
  Callable *net = map_get(b->tree.nets, name);
  if (net) return net;
  VEC(const char *) names = {0};
  for (int i = 0; i < map_size(b->tree.nets); i++)
    vec_push(module_of(b)->arena, &names, map_key_at(b->tree.nets, i));
  Diag *d = diag(module_of(b)->diags, DIAG_unknown_net, span, name);
  diag_suggest(d, name, names.data, names.n);
  return NULL;
}

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static Callable *only_net(Build *b) {
  const FrontendOptions *options = b->tree.options;
  if (options->net)
    return find_net(b, name_intern(module_of(b)->names, options->net),
                    SPAN_NONE);
  Callable *found = NULL;
  int n = 0;
  for (int i = 0; i < map_size(b->tree.nets); i++) {
    Callable *net = map_value_at(b->tree.nets, i);
    if (!net->is_main) continue;
    found = net;
    n++;
  }
  if (n == 1) return found;
  if (n == 0 && has_errors(b)) return NULL; /* one of them may be the net */
  Diag *d = diag(module_of(b)->diags, n ? DIAG_which_net : DIAG_no_net,
                 SPAN_NONE, options->path);
  if (n)
    diag_help(d, "choose one with --net");
  else if (map_size(b->tree.nets) > 0)
    diag_help(d, "'--net %s' takes the one of an import",
              (const char *)map_key_at(b->tree.nets, 0));
  else if (b->tree.plans.n)
    diag_help(d, "a plan stands beside a model: dnnc build MODEL --plan %s",
              options->path);
  else if (map_size(b->tree.layers) > 0)
    diag_help(d, "a model imports it, as in import \"%s\"",
              base_name(options->path));
  return NULL;
}

static Name first_dim(const Callable *net) {
  const FormalParamList *params = net ? &net->item->params : NULL;
  const TypeExpr *type = params && params->n ? params->items[0].type : NULL;
  return type && type->n_dims ? type->dims[0].name : NULL;
}

/* ---- prediction ---- */

/* In a model that trains, the net runs where the loss calls it, with the
 * arguments of that call; in any other model it runs on inputs of its own. */
static Graph *build_predict(Build *b, Callable *net) {
  const FrontendOptions *options = b->tree.options;
  PredictChoice choice = {.net = net,
                          .value = options->value,
                          .batch_dim = b->batch_dim,
                          .says = options->predicting == PREDICTING_wanted};
  Elab *e = new_elab(b, entry_point_name(ENTRY_predict), false, b->batch);
  e->has_batch_rows = true;
  predict_watch(e, options->net ? net : NULL);
  bool is_good = b->train_block ? elab_loss(e, loss_expr(b), NULL)
                                : !expr_value_is_poison(apply_net(b, e, net));
  return is_good && !has_errors(b) ? predict_graph(e, &choice) : NULL;
}

/* ---- the model ---- */

static void set_batch_dim(Build *b, Name dim) {
  const Global *global = dim ? map_get(b->tree.globals, dim) : NULL;
  b->batch_dim = dim;
  b->has_batch_dim = global && global->is_dim;
}

/* Otherwise the command line would be ignored silently. */
static void check_one_batch(Build *b) {
  Span span = b->batch_span;
  Global *global =
      b->has_batch_dim ? map_get(b->tree.globals, b->batch_dim) : NULL;
  if (!global || !global->value ||
      !override_is_source(&b->tree, global->value->span.source))
    return;
  ExprValue size = global_value(b->settings, global, span);
  if (size.kind != EXPR_VALUE_int || size.integer == b->batch) return;
  Diag *d = diag(b->settings->diags, DIAG_batch_and_dim, span,
                 (long long)b->batch, b->batch_dim, (long long)size.integer);
  diag_help(d, "'batch=%lld' on the command line replaces it",
            (long long)size.integer);
}

static void read_batch(Build *b) {
  Elab *e = b->settings;
  if (!setting_int(e, b->train_block, "train", "batch", 1, &b->batch)) return;
  b->batch_span = setting_find(e, b->train_block, "train", "batch").span;
  check_one_batch(b);
  e->batch_dim = b->batch_dim;
  e->batch = b->batch;
  e->epoch = ++b->tree.n_epochs;
}

/* Every dim and const of the main file is computed, used or not. */
static void check_globals(Build *b) {
  for (int i = 0; i < map_size(b->tree.globals); i++) {
    Global *global = map_value_at(b->tree.globals, i);
    const Source *source = global->value ? global->value->span.source : NULL;
    if (global->is_main || override_is_source(&b->tree, source))
      global_value(b->settings, global, global->span);
  }
}

/* The items that a sample counts as: the tokens of its first field, else one.
 */
static void count_items(Model *model) {
  model->items_per_sample = 1;
  const Graph *graph = model->train;
  bool is_first = true;
  for (int i = 0; i < graph->inputs.n && is_first; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    const Type *type = graph_type(graph, input->value);
    if (input->role != ROLE_data) continue;
    is_first = false;
    if (type->rank > 0) model->settings.batch = type->dims[0].size;
    model->items_are_tokens =
        dtype_class(type->dtype) == CLASS_INT && type->rank > 1;
    for (int j = 1; model->items_are_tokens && j < type->rank; j++)
      model->items_per_sample *= type->dims[j].size;
  }
}

static void build_train(Build *b) {
  Model *model = b->model;
  const Expr *loss = loss_expr(b);
  if (!loss) {
    train_read(b->settings, model, b->train_block);
    return;
  }
  b->train = new_elab(b, entry_point_name(ENTRY_train), true, b->batch);
  b->train->reference = NULL;
  b->walk = b->train;
  bool is_good = elab_loss(b->train, loss, NULL);
  /* A wrong loss may be why no dim was found. */
  if (is_good && b->batch && !b->has_batch_dim)
    diag(module_of(b)->diags, DIAG_no_batch_dim, b->batch_span);
  if (is_good && !b->train->first_net)
    diag(module_of(b)->diags, DIAG_loss_without_net, loss->span);
  if (b->train->first_net) model->name = b->train->first_net->item->name;
  model->train = finish(b->train);
  data_read(b->settings, model, b->train);
  limits_take(model, b->train);
  train_read(b->settings, model, b->train_block);
  if (has_errors(b)) return;
  model->settings.batch_dim = b->batch_dim;
  count_items(model);
  warn_unreached(model->train, module_of(b)->arena, DIAG_no_gradient);
  model->eval = build_eval(b, loss, ENTRY_eval, b->batch, false);
}

/* The last batch of an evaluation holds what the full ones leave: the data
 * files say how many samples that is, so all else of the model is there by now.
 * False where the files do not fit. */
static bool build_eval_remainder(Build *b) {
  const FrontendOptions *options = b->tree.options;
  Model *model = b->model;
  int64_t samples = 0;
  if (!model->has_train || !options->count_eval_samples) return true;
  if (!options->count_eval_samples(options->user, model, &samples))
    return false;
  int64_t remainder = samples % model->settings.batch;
  bool has_batch_dim = model->settings.batch_dim && b->has_batch_dim;
  if (remainder == 0 || !has_batch_dim || model->settings.eval_batches > 0)
    return true;
  model->eval_remainder =
      build_eval(b, loss_expr(b), ENTRY_eval_remainder, remainder, true);
  model->eval_remainder_batch = remainder;
  return true;
}

static const char *describe_all(Build *b, const Graph *graph, Role role) {
  Text text = text_create(module_of(b)->arena);
  bool is_input = role == ROLE_data;
  int n = is_input ? graph->inputs.n : graph->outputs.n;
  for (int i = 0; i < n; i++) {
    if ((is_input ? graph->inputs.data[i].role : graph->outputs.data[i].role) !=
        role)
      continue;
    const Type *type =
        graph_type(graph, is_input ? graph->inputs.data[i].value
                                   : graph->outputs.data[i].value);
    text_printf(&text, "%s%s%s", text.n ? ", " : "", dtype_name(type->dtype),
                type_describe(b->settings, type));
  }
  return text_string(&text);
}

/* i32[B, T] -> [B, T, V], one of each. */
static bool is_sampled(const Graph *graph) {
  const Type *in = NULL, *out = NULL;
  int n = 0;
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == ROLE_data)
      in = graph_type(graph, graph->inputs.data[i].value), n++;
  for (int i = 0; i < graph->outputs.n; i++)
    if (graph->outputs.data[i].role == ROLE_result)
      out = graph_type(graph, graph->outputs.data[i].value), n++;
  return n == 2 && in && out && in->dtype == DT_i32 && in->rank == 2 &&
         out->dtype == DT_f32 && out->rank == 3 &&
         out->dims[0].name == in->dims[0].name &&
         out->dims[1].name == in->dims[1].name &&
         out->dims[1].size == in->dims[1].size;
}

static void build_sample(Build *b, Callable *net) {
  Elab *e = b->settings;
  sample_read(e, b->model, b->sample_block);
  Span span = b->sample_block->name_span;
  Name name = setting_name(e, b->sample_block, "sample", "model", &span);
  if (name) net = find_net(b, name, span);
  if (!net || has_errors(b)) return;
  if (!b->batch_dim) set_batch_dim(b, first_dim(net));
  if (first_dim(net) != b->batch_dim || !b->has_batch_dim) {
    diag(e->diags, DIAG_sample_batch, span, net->item->name);
    return;
  }
  b->model->prefill = build_net(b, net, ENTRY_prefill, 1);
  b->model->has_sample = true;
  const Graph *graph = b->model->prefill;
  if (!graph || has_errors(b) || is_sampled(graph)) return;
  Diag *d = diag(e->diags, DIAG_sample_net, span, net->item->name,
                 describe_all(b, graph, ROLE_data),
                 describe_all(b, graph, ROLE_result));
  diag_help(d, "sampling needs a net i32[B, T] -> [B, T, V]");
}

static void build_graphs(Build *b) {
  Model *model = b->model;
  model->has_train = b->train_block != NULL;
  Callable *net = NULL;
  if (model->has_train) {
    build_train(b);
    if (model->name) net = map_get(b->tree.nets, model->name);
  } else {
    net = only_net(b);
    if (!net) return;
    model->name = net->item->name;
    set_batch_dim(b, first_dim(net));
    model->forward = build_net(b, net, ENTRY_forward, 0);
    if (model->forward && !has_errors(b))
      warn_unreached(model->forward, module_of(b)->arena, DIAG_unreached);
  }
  if (b->sample_block) build_sample(b, net);
  const FrontendOptions *options = b->tree.options;
  if (model->has_train && options->net)
    net = map_get(b->tree.nets, name_intern(module_of(b)->names, options->net));
  if (options->predicting && net && !has_errors(b))
    model->predict = build_predict(b, net);
  if (b->tree.options->check_only || has_errors(b)) return;
  const Graph *graph = model->has_train ? model->train : model->forward;
  if (!graph) return;
  b->plans =
      plan_reader_create(b->settings, model, b->walk, graph, b->batch_dim);
  const PlanSource from = {.file = options->plan};
  b->pins = frontend_read_plan(b->plans, &from, b->settings->diags);
}

static bool mentions(const Expr *x, Name name) {
  bool found = false;
  for (; x && !found; x = x->a) {
    found = x->kind == EXPR_name && x->name == name;
    found = found || mentions(x->b, name);
    for (int i = 0; i < x->args.n; i++)
      found = found || mentions(x->args.items[i].value, name);
    for (int i = 0; i < x->items.n; i++)
      found = found || mentions(x->items.data[i], name);
  }
  return found;
}

/* --net may name another net than the one that `train` calls: it is compiled
 * forward only. */
static void read_blocks(Build *b) {
  const char *net = b->tree.options->net;
  const Item *train = source_tree_block(&b->tree, "train");
  b->train_block = train;
  b->sample_block = source_tree_block(&b->tree, "sample");
  if (!net || !train) return;
  SettingRef ref = setting_find(b->settings, train, "train", "loss");
  if (mentions(setting_expr(b->settings, &ref),
               name_intern(module_of(b)->names, net)))
    return;
  b->train_block = b->sample_block = NULL;
}

static void start(Build *b, Module *module, const FrontendOptions *options) {
  b->tree = (SourceTree){.module = module,
                         .options = options,
                         .builtins = builtins_create(module)};
  const Budget *given = &options->budget;
  b->tree.budget = (Budget){given->nodes ? given->nodes : default_budget.nodes,
                            given->list_elements ? given->list_elements
                                                 : default_budget.list_elements,
                            given->steps ? given->steps : default_budget.steps,
                            given->depth ? given->depth : default_budget.depth};
  b->model = ARENA_NEW(module->arena, Model);
  b->model->module = module;
  b->model->path = options->path;
  b->model->items_per_sample = 1;
}

LoadedModel frontend_load(Module *module, const FrontendOptions *options) {
  /* It stays: plans are read later. */
  Build *b = ARENA_NEW(module->arena, Build);
  LoadedModel failed = {0};
  start(b, module, options);
  if (!source_tree_read(&b->tree) || b->tree.has_syntax_errors) return failed;
  data_register(&b->tree);
  override_apply(&b->tree);
  b->settings = new_elab(b, "settings", true, 0);
  frame_push(b->settings, NULL, name_intern(module->names, ""));
  read_blocks(b);
  if (b->train_block) {
    SettingRef ref = setting_find(b->settings, b->train_block, "train", "loss");
    set_batch_dim(b, data_batch_dim(&b->tree, ref.value));
    read_batch(b);
  }
  check_globals(b);
  precision_read(b->settings, b->model,
                 source_tree_block(&b->tree, "precision"));
  b->tree.rounds = b->model->precision.compute != DT_f32;
  build_graphs(b);
  if (has_errors(b)) return failed;
  precision_check(b->settings, b->model);
  source_tree_warn_unused(&b->tree);
  if (has_errors(b) || !build_eval_remainder(b) || has_errors(b)) return failed;
  return (LoadedModel){b->model, b->pins, b->plans};
}
