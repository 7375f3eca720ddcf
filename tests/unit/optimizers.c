// links: passes ir
/*
 * optimizers.c -- compares steps of the update on the interpreter with plain
 * scalar code: clipping, averages, schedules, and steps that are not finite.
 * Every row of optimizers.def: recorded_steps.c.
 *
 * The loss is sum(c w^2) / 2 + sum(c u), so that the gradients are c w and c,
 * elements do not meet, and the reference can take them one by one.
 */
#include "tests/unit/values.h"

#include "passes/passes.h"

enum { N = 3, STEPS = 20, EPOCH = 4 /* steps */ };

static const double curvature[N] = {0.5, -1.25, 2};
static const double w_start[N] = {1, -2, 0.25};
static const double u_start[N] = {0.5, 3, -1};

typedef struct Job {
  Module *module;
  Model model;
  Graph *graph;
  Tensor inputs[20];
  Tensor *outputs;
} Job;

static Name name(Job *job, const char *text) {
  return name_intern(job->module->names, text);
}

static Job *job_create(const char *optimizer, double peak) {
  Module *module = module_create();
  Job *job = ARENA_NEW(module->arena, Job);
  job->module = module;
  job->model.module = module;
  job->model.has_train = true;
  job->model.settings = (TrainSettings){
      .optimizer = optimizer_call(name(job, optimizer)),
      .steps = STEPS,
  };
  job->model.settings.optimizer.lr =
      (Rate){.kind = RATE_constant, .values = {peak}};
  return job;
}

static void job_compile(Job *job) {
  Module *module = job->module;
  Graph *graph = make_graph(module);
  Value w = make_input(graph, ROLE_param, "w", "f32 K:3");
  Value u = make_input(graph, ROLE_param, "u", "f32 K:3");
  Value c = make_input(graph, ROLE_data, "c", "f32 K:3");
  graph->inputs.data[0].has_decay = true;
  Value half = graph_const(graph, DT_f32, 0.5);
  Value square = graph_op2(graph, OP_mul, graph_op2(graph, OP_mul, w, w), half);
  Value sum = graph_op2(graph, OP_add, square, u);
  sum = graph_op2(graph, OP_mul, sum, c);
  make_output(graph, ROLE_loss, "loss", make1(graph, "sum", "over=K", sum));
  PassContext ctx = {.module = module,
                     .scratch = arena_create(module->memory),
                     .model = &job->model,
                     .is_training = true};
  job->graph = pass_optimizer(&ctx, pass_autodiff(&ctx, graph));
  Text errors = text_create(module->arena);
  cr_assert(graph_verify(job->graph, &errors), "%s", text_string(&errors));
  cr_assert_leq(job->graph->inputs.n, 20);
  for (int i = 0; i < job->graph->inputs.n; i++) {
    const GraphInput *input = &job->graph->inputs.data[i];
    job->inputs[i] = interp_initial(job->graph, i, 1, module->arena);
    const char *path = input->path + (input->role == ROLE_ema ? 4 : 0);
    const double *from = strcmp(path, "w") == 0          ? w_start
                         : strcmp(path, "u") == 0        ? u_start
                         : input->path == name(job, "c") ? curvature
                                                         : NULL;
    if (input->role == ROLE_epoch) job->inputs[i].data[0] = EPOCH;
    for (int k = 0; k < N && from != NULL; k++) {
      job->inputs[i].data[k] = from[k];
    }
  }
}

static Tensor *buffer(Job *job, Role role, const char *path) {
  for (int i = 0; i < job->graph->inputs.n; i++) {
    const GraphInput *input = &job->graph->inputs.data[i];
    if (input->role == role && strcmp(input->path, path) == 0) {
      return &job->inputs[i];
    }
  }
  cr_assert_fail("no buffer %s", path);
  return NULL;
}

static double output(Job *job, Role role) {
  for (int i = 0; i < job->graph->outputs.n; i++) {
    if (job->graph->outputs.data[i].role == role) {
      return job->outputs[i].data[0];
    }
  }
  cr_assert_fail("no output of role %s", role_name(role));
  return 0;
}

/* Runs a step and replaces the persistent buffers that the graph replaces. */
static void job_step(Job *job, int t) {
  buffer(job, ROLE_step, "step")->data[0] = t;
  job->outputs = run(job->graph, INTERP_f64, job->inputs);
  for (int i = 0; i < job->graph->outputs.n; i++) {
    const GraphOutput *out = &job->graph->outputs.data[i];
    if (out->role != ROLE_param && out->role != ROLE_optimizer_state &&
        out->role != ROLE_ema) {
      continue;
    }
    Tensor *to = buffer(job, out->role, out->path);
    cr_assert(type_same_shape(to->type, job->outputs[i].type));
    memcpy(to->data, job->outputs[i].data, N * sizeof(double));
  }
}

/* ---- the reference: one element ---- */

typedef struct Scalar {
  double w, m, v;
} Scalar;

/* sgd, adamw. */
static void reference(OptimizerCall *call, Scalar *s, double g, double lr,
                      int t, double decay) {
  if (strcmp(call->name, "sgd") == 0) {
    double u = g += decay * s->w;
    double momentum = *optimizer_value(call, "momentum");
    if (momentum > 0) {
      s->m = t == 1 ? g : momentum * s->m + g;
      u = *optimizer_value(call, "nesterov") ? g + momentum * s->m : s->m;
    }
    s->w -= lr * u;
    return;
  }
  cr_assert_str_eq(call->name, "adamw");
  const double *betas = optimizer_value(call, "betas");
  s->w -= lr * decay * s->w;
  s->m = betas[0] * s->m + (1 - betas[0]) * g;
  s->v = betas[1] * s->v + (1 - betas[1]) * g * g;
  double m_hat = s->m / (1 - pow(betas[0], t));
  double v_hat = s->v / (1 - pow(betas[1], t));
  s->w -= lr * m_hat / (sqrt(v_hat) + *optimizer_value(call, "eps"));
}

static double rate_value(const Rate *rate, const char *name) {
  int i = argument_find(schedule_info(rate->kind)->arguments, name);
  return i < 0 ? 0 : rate->values[i];
}

static double rate_of(const Rate *r, int t) {
  double peak = rate_value(r, "peak"), warmup = rate_value(r, "warmup");
  double floor_ = rate_value(r, "floor"), pi = 3.14159265358979323846;
  double rest = STEPS - warmup;
  if (r->kind == RATE_constant) return peak;
  if (r->kind == RATE_steps) {
    double every = rate_value(r, "every") * EPOCH;
    return rate_value(r, "start") *
           pow(rate_value(r, "factor"), floor((t - 1) / every));
  }
  if (t <= warmup) return peak * t / warmup;
  if (r->kind == RATE_cosine_restarts) {
    double at = t - 1 - warmup, length = rate_value(r, "every") * EPOCH;
    for (; at >= length; length *= rate_value(r, "growth")) at -= length;
    return floor_ + (peak - floor_) * (1 + cos(pi * at / length)) / 2;
  }
  if (r->kind == RATE_wsd) {
    double tail = rate_value(r, "decay") * STEPS;
    return STEPS - t >= tail ? peak
                             : floor_ + (peak - floor_) * (STEPS - t) / tail;
  }
  if (r->kind == RATE_inverse_sqrt) return peak * sqrt(warmup / t);
  double range = peak - floor_;
  if (r->kind == RATE_linear_decay) return floor_ + range * (STEPS - t) / rest;
  return floor_ + range * (1 + cos(pi * (t - warmup) / rest)) / 2;
}

static double reference_rate(const TrainSettings *settings, int t) {
  const Rate *r = &settings->optimizer.lr;
  return rate_of(r, t) * (r->times ? rate_of(r->times, t) : 1);
}

static void close(double got, double wanted, const char *what, int t) {
  cr_assert(fabs(got - wanted) <= 1e-12 * fmax(1, fabs(wanted)),
            "%s at step %d is %.17g, not %.17g", what, t, got, wanted);
}

/* Runs both for all steps and compares after each. */
static void compare(Job *job) {
  TrainSettings *settings = &job->model.settings;
  OptimizerCall *call = &settings->optimizer;
  job_compile(job);
  Scalar w[N] = {{0}}, u[N] = {{0}};
  double average[N];
  for (int k = 0; k < N; k++) {
    w[k].w = average[k] = w_start[k];
    u[k].w = u_start[k];
  }
  for (int t = 1; t <= STEPS; t++) {
    double squares = 0;
    for (int k = 0; k < N; k++) {
      squares += pow(curvature[k] * w[k].w, 2) + pow(curvature[k], 2);
    }
    double norm = sqrt(squares), lr = reference_rate(settings, t);
    double factor =
        settings->clip > 0 ? fmin(1, settings->clip / (norm + 1e-6)) : 1;
    for (int k = 0; k < N; k++) {
      double c = curvature[k] * factor;
      reference(call, &w[k], c * w[k].w, lr, t, call->decay);
      reference(call, &u[k], c, lr, t, call->decay_all ? call->decay : 0);
      average[k] = settings->ema * average[k] + (1 - settings->ema) * w[k].w;
    }
    job_step(job, t);
    close(output(job, ROLE_norm), norm, "norm", t);
    close(output(job, ROLE_rate), lr, "rate", t);
    for (int k = 0; k < N; k++) {
      close(buffer(job, ROLE_param, "w")->data[k], w[k].w, "w", t);
      close(buffer(job, ROLE_param, "u")->data[k], u[k].w, "u", t);
      if (settings->ema > 0) {
        close(buffer(job, ROLE_ema, "ema/w")->data[k], average[k], "ema", t);
      }
    }
  }
}

TestSuite(optimizers, .fini = modules_destroy);
TestSuite(rates, .fini = modules_destroy);

/* ---- optimizers ---- */

Test(optimizers, momentum_and_nesterov) {
  for (int i = 0; i < 2; i++) {
    Job *job = job_create("sgd", 0.01);
    OptimizerCall *call = &job->model.settings.optimizer;
    *optimizer_value(call, "momentum") = 0.9;
    *optimizer_value(call, "nesterov") = i;
    compare(job);
  }
}

Test(optimizers, clip_and_average) {
  for (int i = 0; i < 3; i++) {
    Job *job = job_create(i == 0 ? "sgd" : "adamw", 0.02);
    job->model.settings.clip = i == 1 ? 100 : 0.7; /* never, always */
    job->model.settings.ema = 0.9;
    compare(job);
  }
}

Test(optimizers, optimizer_state_is_persistent) {
  Job *job = job_create("adamw", 0.01);
  job_compile(job);
  Tensor *m = buffer(job, ROLE_optimizer_state, "adamw.m/w");
  cr_values(*m, 0, 0, 0, 0);
  job_step(job, 1);
  cr_values(*buffer(job, ROLE_optimizer_state, "adamw.m/u"), 1e-12, 0.05,
            -0.125, 0.2);
  cr_assert_eq(buffer(job, ROLE_step, "step")->type->dtype, DT_i32);
}

/* A frozen parameter has no gradient, no moment and no average, and does not
 * count in the norm; a tied one counts once, with the sum of its gradients. */
Test(optimizers, frozen_and_tied) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  Value w = make_input(graph, ROLE_param, "w", "f32 K:2");
  Value u = make_input(graph, ROLE_param, "u", "f32 K:2");
  graph->inputs.data[1].is_frozen = true;
  Value x = graph_op2(graph, OP_mul, w, u);
  Value y = graph_op2(graph, OP_add, x, graph_op2(graph, OP_add, w, w));
  make_output(graph, ROLE_loss, "loss", make1(graph, "sum", "over=K", y));
  Model model = {.module = module, .has_train = true};
  model.settings = (TrainSettings){
      .optimizer = optimizer_call(name_intern(module->names, "adam")),
      .ema = 0.5,
      .steps = 1};
  model.settings.optimizer.lr = (Rate){.values = {0.1}};
  PassContext ctx = {.module = module,
                     .scratch = arena_create(module->memory),
                     .model = &model,
                     .is_training = true};
  graph = pass_optimizer(&ctx, pass_autodiff(&ctx, graph));
  Tensor inputs[10];
  int n_states = 0;
  cr_assert_leq(graph->inputs.n, 10);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    inputs[i] = tensor_create(module->arena, graph_type(graph, input->value));
    for (int64_t k = 0; k < type_elements(inputs[i].type); k++)
      inputs[i].data[k] = 1;
    n_states += input->role == ROLE_optimizer_state || input->role == ROLE_ema;
    cr_expect(input->role == ROLE_param || !strstr(input->path, "/u"));
  }
  cr_expect_eq(n_states, 3);
  Tensor *outputs = run(graph, INTERP_f64, inputs);
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    cr_expect(strcmp(output->path, "u") != 0);
    if (output->role == ROLE_norm) /* w has 1 u + 1 + 1 twice */
      cr_expect_float_eq(outputs[i].data[0], 3 * sqrt(2), 1e-6);
  }
}

/* ---- learning rates ---- */

Test(rates, schedules) {
  const Rate halves = {RATE_steps, {0.05, 1, 0.5}, NULL};
  const Rate rates[] = {{RATE_cosine, {0.05, 5, 0.002}, NULL},
                        {RATE_linear_decay, {0.05, 5, 0.002}, NULL},
                        {RATE_inverse_sqrt, {0.05, 5}, NULL},
                        {RATE_steps, {0.05, 1.5, 0.5}, NULL},
                        {RATE_cosine_restarts, {0.05, 1.5, 2, 0.002, 1}, NULL},
                        {RATE_cosine_restarts, {0.05, 1, 0, 0, 2}, NULL},
                        {RATE_wsd, {0.05, 3, 0.4, 0.002}, NULL},
                        {RATE_wsd, {1, 3, 0.4}, &halves}};
  for (int i = 0; i < ARRAY_LENGTH(rates); i++) {
    Job *job = job_create("sgd", 0.05);
    job->model.settings.optimizer.lr = rates[i];
    compare(job);
  }
}

Test(rates, without_warmup) {
  Job *job = job_create("sgd", 0.05);
  job->model.settings.optimizer.lr = (Rate){RATE_cosine, {0.05, 0, 0.01}, NULL};
  compare(job);
}

/* How long an epoch is, is said at run time. */
Test(rates, length_in_epochs) {
  Job *job = job_create("sgd", 0.05);
  job->model.settings.optimizer.lr = (Rate){RATE_linear_decay, {0.05, 3}, NULL};
  job->model.settings.steps = 0;
  job->model.settings.epochs = STEPS / EPOCH;
  compare(job);
}

Test(optimizers, unknown_is_refused) {
  Job *job = job_create("adagrad", 0.05);
  job_compile(job);
  cr_assert_eq(diags_errors(job->module->diags), 1);
}

/* ---- steps that are not finite ---- */

static void check_unchanged(Job *job, int input, int element, double poison) {
  Tensor before[20];
  double old = job->inputs[input].data[element];
  job->inputs[input].data[element] = poison;
  for (int i = 0; i < job->graph->inputs.n; i++) {
    before[i] =
        tensor_of(job->module->arena, job->inputs[i].type, job->inputs[i].data);
  }
  job_step(job, 2);
  for (int i = 0; i < job->graph->inputs.n; i++) {
    if (job->graph->inputs.data[i].role == ROLE_step) continue;
    int64_t n = type_elements(before[i].type);
    cr_assert_eq(
        memcmp(before[i].data, job->inputs[i].data, (size_t)n * sizeof(double)),
        0, "%s changed", job->graph->inputs.data[i].path);
  }
  job->inputs[input].data[element] = old;
}

Test(optimizers, a_step_that_is_not_finite_changes_nothing) {
  Job *job = job_create("adamw", 0.01);
  job->model.settings.clip = 1;
  job->model.settings.ema = 0.9;
  job_compile(job);
  job_step(job, 1);
  check_unchanged(job, 2, 1, NAN); /* data */
  check_unchanged(job, 2, 1, INFINITY);
  check_unchanged(job, 1, 0, INFINITY); /* loss infinite, gradients not */
  check_unchanged(job, 0, 0, 1e200);    /* norm infinite, gradients not */
  double w = buffer(job, ROLE_param, "w")->data[0];
  job_step(job, 2);
  cr_assert_neq(buffer(job, ROLE_param, "w")->data[0], w);
}
