/*
 * compile.c -- from a model file to the final graphs of all its entry_points.
 */
#include "runtime/runtime.h"
#include "tools/tools.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- reporting ---- */

bool tool_report(Tool *tool) {
  Text text = text_create(tool->arena);
  diags_print(tool->module.diags, &text);
  fputs(text_string(&text), stderr);
  return diags_errors(tool->module.diags) > 0;
}

int tool_fail(Status status) {
  message_print("dnnc: error: %s\n", status.message);
  return status.code == STATUS_invalid ? EXIT_user : EXIT_machine;
}

void tool_print(Text *text) {
  fwrite(text_string(text), 1, text->n, stdout);
}

/* ---- loading ---- */

const char *compile_model_folder(Tool *tool) {
  char real[PATH_MAX];
  if (!realpath(tool->options.subject, real)) return ".";
  char *slash = strrchr(real, '/');
  *(slash == real ? slash + 1 : slash) = 0;
  return arena_strdup(tool->arena, real);
}

/* The model itself may be a link, and then lies in two folders. */
static Status check_import(Tool *tool, const char *path) {
  const char *subject = tool->options.subject, *slash = strrchr(subject, '/');
  if (strcmp(path, subject) == 0) return STATUS_OK;
  int n = slash ? (int)(slash - subject) + 1 : 0;
  InputSearch search = {.folder = arena_printf(tool->arena, "%.*s", n, subject),
                        .model_dir = compile_model_folder(tool),
                        .follows_links = tool->options.follow_links};
  return input_check_links(path, &search);
}

/* A file is read once, however often the model is elaborated: messages about
 * one place are then known to be the same. */
static const Source *load_source(void *user, const char *path) {
  Tool *tool = user;
  Name key = name_intern(tool->module.names, path);
  if (!tool->sources) tool->sources = map_create(tool->arena);
  const Source *known = map_get(tool->sources, key);
  if (known) return known;
  Source *source = ARENA_NEW(tool->arena, Source);
  source->path = key;
  Status status = check_import(tool, path);
  if (status.code == STATUS_ok)
    status = file_read(tool->arena, path, 16 << 20, &source->text, &source->n);
  tool->load_failure = status.message;
  if (status.code != STATUS_ok) return NULL;
  map_put(tool->sources, key, source);
  return source;
}

static const char *load_failure(void *user) {
  return ((Tool *)user)->load_failure;
}

bool tool_read_bytes(Tool *tool, const char *option, const char *text,
                     int64_t *out) {
  Source *source = ARENA_NEW(tool->arena, Source);
  *source = (Source){option, text, strlen(text)};
  Expr *expr = ast_parse_expr(tool->arena, tool->module.names,
                              tool->module.diags, source);
  if (!expr) return !tool_report(tool);
  double value = expr->kind == EXPR_int     ? (double)expr->integer
                 : expr->kind == EXPR_float ? expr->real
                                            : -1;
  if (value < 1) {
    message_print("dnnc: error: %s takes a size as in 25MB\n", option);
    return false;
  }
  *out = (int64_t)value;
  return true;
}

/* What the command line says about the plan; the plan file is read here, the
 * front end gives it its meaning. */
static bool read_request(Tool *tool, PlanRequest *out) {
  const Options *options = &tool->options;
  bool shares_records = options->command == COMMAND_predict;
  if (options->ranks > INT32_MAX) {
    fprintf(stderr, "dnnc: error: --ranks %lld is too large\n",
            (long long)options->ranks);
    return false;
  }
  out->ranks = options->ranks > 0 && !shares_records ? options->ranks : 0;
  out->microbatches = options->microbatches > 0 ? options->microbatches : 0;
  if (options->bucket &&
      !tool_read_bytes(tool, "--bucket", options->bucket, &out->bucket_bytes))
    return false;
  if (!options->plan) return true;
  Source *source = ARENA_NEW(tool->arena, Source);
  source->path = options->plan;
  Status status =
      file_read(tool->arena, source->path, 16 << 20, &source->text, &source->n);
  out->file = source;
  if (status.code == STATUS_ok) return true;
  message_print("dnnc: error: %s\n", status.message);
  return false;
}

/* A bundle that stays can be asked for a prediction later. */
static Predicting predicting(const Options *options) {
  bool is_asked = options->command == COMMAND_predict || options->value ||
                  (options->command == COMMAND_ir && options->code &&
                   !strcmp(options->code, "predict"));
  if (is_asked) return PREDICTING_wanted;
  bool is_kept = options->command == COMMAND_build ||
                 (options->command == COMMAND_run && options->output);
  return is_kept ? PREDICTING_maybe : PREDICTING_none;
}

Model *compile_load(Tool *tool, bool check_only) {
  const Options *options = &tool->options;
  FrontendOptions frontend = {.load = load_source,
                              .why = load_failure,
                              .user = tool,
                              .path = options->subject,
                              .net = options->net,
                              .predicting = predicting(options),
                              .value = options->value,
                              .overrides = options->overrides.data,
                              .n_overrides = options->overrides.n,
                              .checked = tool->options.checked,
                              .check_only = check_only};
  if (!check_only && options->command != COMMAND_predict)
    frontend.count_eval_samples = compile_count_eval_samples;
  if (!read_request(tool, &frontend.plan)) return NULL;
  Model *model = frontend_load(&tool->module, &frontend);
  return tool_report(tool) ? NULL : model;
}

/* ---- passes ---- */

static double clock_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The files of --dump are numbered by the rows of `dnnc list passes`, so that
 * they are in order and a pass with several rows has a file for each. */
static void after_pass(void *user, int index, const Graph *graph,
                       double seconds) {
  Tool *tool = user;
  const Options *options = &tool->options;
  const char *pass = pass_info(index)->name;
  if (options->time_passes)
    fprintf(stderr, "%-14s %8.2f ms  %7d nodes\n", pass, seconds * 1e3,
            graph->nodes.n);
  bool is_wanted = options->after && pass_is_named(index, options->after);
  if (!is_wanted && !options->dump) return;
  Text text = text_create(tool->arena);
  graph_print(&text, graph);
  if (is_wanted && options->command != COMMAND_ir)
    fputs(text_string(&text), stderr);
  if (!options->dump) return;
  const char *path = arena_printf(tool->arena, "%s/%s-%02d-%s.ir",
                                  options->dump, graph->name, index + 1, pass);
  Status status = file_make_dirs(options->dump);
  if (status.code == STATUS_ok)
    status = file_replace(path, text_string(&text), text.n);
  if (status.code != STATUS_ok) tool_fail(status);
}

static PassResult run_passes(Tool *tool, Compilation *compilation, Graph *graph,
                             bool is_training, bool is_plain) {
  const Options *options = &tool->options;
  PassContext ctx = {
      .module = &tool->module,
      .scratch = arena_create(tool->memory),
      .model = compilation->model,
      .plan = compilation->plan,
      .target = compilation->backend ? &compilation->backend->target : NULL,
      .is_decode = compilation->is_decode,
      .is_training = is_training};
  const char *stop = options->stop_after              ? options->stop_after
                     : options->command == COMMAND_ir ? options->after
                                                      : NULL;
  PassOptions passes = {.level = options->level,
                        .is_plain = is_plain,
                        .stop_after = stop,
                        .disabled = options->disable.data,
                        .n_disabled = options->disable.n,
                        .verify = options->verify_ir,
                        .after = is_plain ? NULL : after_pass,
                        .clock = clock_seconds,
                        .user = tool};
  PassResult result = passes_run(&ctx, &passes, graph);
  arena_destroy(ctx.scratch);
  return result;
}

Graph *compile_graph(Tool *tool, Compilation *compilation, Graph *graph,
                     bool is_training) {
  return run_passes(tool, compilation, graph, is_training, false).graph;
}

/* ---- plan and back end ---- */

static void report_no_pass(Tool *tool, const char *wanted) {
  const char *names[64];
  int n = pass_count() < 64 ? pass_count() : 64, rows = 0;
  const char *name =
      arena_printf(tool->arena, "%.*s", (int)strcspn(wanted, "@"), wanted);
  for (int i = 0; i < n; i++) {
    names[i] = pass_info(i)->name;
    rows += pass_is_named(i, name);
  }
  const char *nearest = text_nearest(name, names, n);
  message_print("dnnc: error: no pass '%s'\n", wanted);
  if (rows > 0)
    message_print("help: '%s' runs %d times, as '%s@1' to '%s@%d'\n", name,
                  rows, name, name, rows);
  else if (nearest)
    message_print("help: did you mean '%s'?\n", nearest);
  else
    fprintf(stderr, "help: 'dnnc list passes' names them\n");
}

static bool check_passes(Tool *tool) {
  const Options *options = &tool->options;
  const char *given[2] = {options->after, options->stop_after};
  for (int i = 0; i < 2 + options->disable.n; i++) {
    const char *wanted = i < 2 ? given[i] : options->disable.data[i - 2];
    if (!wanted || pass_find(wanted) >= 0) continue;
    report_no_pass(tool, wanted);
    return false;
  }
  return true;
}

/* The libraries of this machine are asked how much scratch they want, once for
 * each kind of product: a model has few, in many layers. */
static int64_t gemm_scratch(const void *gemm) {
  static struct {
    DnnGemm gemm;
    int64_t bytes;
  } known[64];
  static int n;
  for (int i = 0; i < n; i++)
    if (!memcmp(&known[i].gemm, gemm, sizeof known[i].gemm))
      return known[i].bytes;
  int64_t bytes = cpu_gemm_scratch(gemm);
  if (n < ARRAY_LENGTH(known)) {
    memcpy(&known[n].gemm, gemm, sizeof known[n].gemm);
    known[n++].bytes = bytes;
  }
  return bytes;
}

static int64_t conv_scratch(const void *conv) {
  return cpu_conv_scratch(conv);
}

/* The libraries that a back end asks about are those of this machine. */
static bool choose_target(Tool *tool, Compilation *out) {
  BuildTarget target;
  Status status =
      backend_read_target(tool->arena, tool->options.target, &target);
  if (status.code != STATUS_ok) {
    message_print("dnnc: error: %s\n", status.message);
    return false;
  }
  Backend *own =
      arena_copy(tool->arena, target.backend, sizeof *target.backend);
  if (own->uses_host_libraries) {
    own->target.gemm_scratch = gemm_scratch;
    own->target.conv_scratch = conv_scratch;
  }
  out->backend = own;
  out->archs = target.archs;
  out->n_archs = target.n_archs;
  return true;
}

int compile_setup(Tool *tool, Compilation *out, bool check_only) {
  if (!check_passes(tool) || !choose_target(tool, out)) return EXIT_user;
  out->model = compile_load(tool, check_only);
  if (!out->model) return EXIT_user;
  out->plan = out->model->plan;
  out->ranks = out->plan ? out->plan->ranks : 1;
  return EXIT_done;
}

/* ---- all entry_points ---- */

/* Other entry_points than training read averages where training keeps them. */
static Graph *with_averages(Tool *tool, Compilation *c, Graph *graph) {
  PassContext ctx = {.module = &tool->module,
                     .scratch = arena_create(tool->memory),
                     .model = c->model};
  Graph *result = ema_weights_read(&ctx, graph, c->trained);
  arena_destroy(ctx.scratch);
  return result;
}

static bool add_code(Tool *tool, Compilation *c, const char *name, Graph *graph,
                     int64_t batch, bool is_training, bool is_sharded) {
  if (!graph) return true;
  Plan *plan = c->plan, whole;
  if (!is_sharded)
    c->plan = NULL;
  else if (plan && !is_training && plan->microbatches > 1) {
    whole = *plan;
    plan_drop_time(&whole);
    c->plan = &whole;
  }
  if (c->trained) graph = with_averages(tool, c, graph);
  PassResult result = run_passes(tool, c, graph, is_training, false);
  Graph *final = result.graph;
  c->decode_init = result.decode_init;
  if (is_training) c->trained = final;
  c->plan = plan;
  if (tool_report(tool)) return false;
  c->entry_points[c->n_entry_points++] =
      (EntryPoint){.name = name, .graph = final, .batch = batch};
  return true;
}

/* Compiles the plain program, which finds the first value that is not finite:
 * the loss and its gradients without fusion.  If that fails, the bundle has
 * none. */
static void add_plain(Tool *tool, Compilation *c) {
  const Graph *train = c->model->train;
  if (!train || tool->options.stop_after) return;
  Graph *graph = arena_copy(tool->arena, train, sizeof *train);
  memset(&graph->outputs, 0, sizeof graph->outputs);
  for (int i = 0; i < train->outputs.n; i++)
    if (train->outputs.data[i].role == ROLE_loss)
      vec_push(tool->arena, &graph->outputs, train->outputs.data[i]);
  Diags *told = tool->module.diags;
  tool->module.diags = diags_create(tool->arena);
  graph = run_passes(tool, c, graph, true, true).graph;
  bool failed = diags_errors(tool->module.diags) > 0;
  tool->module.diags = told;
  if (!failed)
    c->plain = (EntryPoint){
        .name = "plain", .graph = graph, .batch = c->model->settings.batch};
}

static BufferAssignment *pack(Tool *tool, Compilation *c, const Graph *graph) {
  PassContext ctx = {.module = &tool->module,
                     .scratch = arena_create(tool->memory),
                     .model = c->model,
                     .plan = c->plan,
                     .target = &c->backend->target};
  BufferAssignment *layout = buffer_assign(&ctx, graph, &c->persistent);
  arena_destroy(ctx.scratch);
  return layout;
}

/* `others`: a graph whose slots are there too, after those of the entry_points;
 * or NULL.  Caches come last. */
static void lay_out(Tool *tool, Compilation *c, const Graph *others) {
  const Target *target = &c->backend->target;
  for (int i = 0; i < c->n_entry_points; i++)
    persistent_buffers_add(&c->persistent, tool->arena,
                           c->entry_points[i].graph, target);
  if (others)
    persistent_buffers_add(&c->persistent, tool->arena, others, target);
  for (int i = 0; i < c->n_entry_points; i++)
    persistent_buffers_add_caches(&c->persistent, tool->arena,
                                  c->entry_points[i].graph, target);
  for (int i = 0; i < c->n_entry_points; i++)
    c->entry_points[i].assignment = pack(tool, c, c->entry_points[i].graph);
  if (c->plain.graph) c->plain.assignment = pack(tool, c, c->plain.graph);
}

/* The pin `memory`: arenas of a rank are packed by now. */
static bool fits(Tool *tool, const Compilation *c) {
  const Plan *plan = c->plan;
  int64_t most = 0;
  for (int i = 0; i < c->n_entry_points; i++)
    if (strcmp(c->entry_points[i].name, "predict") != 0 &&
        c->entry_points[i].assignment->arena_bytes > most)
      most = c->entry_points[i].assignment->arena_bytes;
  if (!plan || !plan->memory_bytes || most <= plan->memory_bytes) return true;
  diag(tool->module.diags, DIAG_memory_pin, plan->memory_span,
       tool_quantity(tool->arena, (double)most, "B"));
  return !tool_report(tool);
}

static void hash_model(Compilation *c, Arena *arena) {
  Text text = text_create(arena);
  for (int i = 0; i < c->n_entry_points; i++)
    text_printf(&text, "%016llx\n",
                (unsigned long long)graph_hash(c->entry_points[i].graph));
  hash_hex(text_string(&text), text.n, c->model_hash);
}

static PassContext plain_context(Tool *tool, const Model *model) {
  return (PassContext){.module = &tool->module,
                       .scratch = arena_create(tool->memory),
                       .model = model};
}

bool compile_decode(Tool *tool, const Model *model, DecodeGraphs *out) {
  Text why = text_create(tool->arena);
  PassContext ctx = plain_context(tool, model);
  bool can = decode_split(&ctx, model->prefill, out, &why);
  arena_destroy(ctx.scratch);
  bool asks = tool->options.command == COMMAND_sample ||
              tool->options.command == COMMAND_ir;
  if (!can && asks && !tool->options.quiet)
    message_print("note: every token takes a whole window: %s\n",
                  text_string(&why));
  return can;
}

/* The net over its window, and if it can be, at one position and before the
 * first. */
static bool add_sampling(Tool *tool, Compilation *c) {
  Graph *whole = c->model->prefill;
  DecodeGraphs stepping;
  if (!whole) return true;
  if (tool->options.whole || !compile_decode(tool, c->model, &stepping))
    return add_code(tool, c, "prefill", whole, 1, false, false);
  c->is_decode = true;
  bool ok = add_code(tool, c, "decode", stepping.step, 1, false, false);
  c->is_decode = false;
  if (!ok) return false;
  PassContext ctx = plain_context(tool, c->model);
  PassResult step = {c->entry_points[c->n_entry_points - 1].graph,
                     c->decode_init};
  DecodeFinish finish = decode_finish(&ctx, whole, &stepping, &step);
  arena_destroy(ctx.scratch);
  return add_code(tool, c, "prefill", finish.prefill, 1, false, false) &&
         add_code(tool, c, "decode_init", finish.decode_init, 1, false, false);
}

/* A command that reads a checkpoint must know which averages training keeps. */
static bool find_averages(Tool *tool, Compilation *c) {
  const Model *model = c->model;
  if (!model->has_train || model->settings.ema == 0) return true;
  c->trained = compile_graph(tool, c, model->train, true);
  return !tool_report(tool);
}

/* A checkpoint holds what training has, also where the entry_points do not read
 * it. */
static int finish_reading(Tool *tool, Compilation *c) {
  lay_out(tool, c, c->model->train);
  hash_model(c, tool->arena);
  return EXIT_done;
}

static int compile_sampling(Tool *tool, Compilation *c) {
  const Model *model = c->model;
  if (!model->prefill) {
    message_print("dnnc: error: '%s' has no sample block\n",
                  tool->options.subject);
    return EXIT_user;
  }
  if (!find_averages(tool, c)) return EXIT_user;
  c->plan = NULL;
  c->ranks = 1;
  if (!add_sampling(tool, c)) return EXIT_user;
  return finish_reading(tool, c);
}

/* Every rank computes whole batches of its own, so a record is computed in the
 * same way whatever the number of ranks. */
static bool add_predict(Tool *tool, Compilation *c) {
  Graph *graph = c->model->predict;
  if (!graph) return true;
  const Type *type = graph_type(graph, graph->outputs.data[0].value);
  return add_code(tool, c, "predict", graph, type->dims[0].size, false, false);
}

static int compile_predict(Tool *tool, Compilation *c) {
  if (!find_averages(tool, c)) return EXIT_user;
  c->plan = NULL;
  if (tool->options.ranks > 0) c->ranks = (int)tool->options.ranks;
  if (!add_predict(tool, c)) return EXIT_user;
  return finish_reading(tool, c);
}

static bool add_eval(Tool *tool, Compilation *c) {
  Model *model = c->model;
  return add_code(tool, c, "eval", model->eval, model->settings.batch, false,
                  true) &&
         add_code(tool, c, "eval_remainder", model->eval_remainder,
                  model->eval_remainder_batch, false, false);
}

static int compile_eval(Tool *tool, Compilation *c) {
  if (!find_averages(tool, c) || !add_eval(tool, c)) return EXIT_user;
  return finish_reading(tool, c);
}

static bool needs_train(Tool *tool, const Model *model) {
  CommandId command = tool->options.command;
  if (model->has_train || (command != COMMAND_run && command != COMMAND_eval))
    return true;
  bool is_run = command == COMMAND_run;
  message_print("dnnc: error: '%s' has no train block to %s\nhelp: %s\n",
                tool->options.subject, is_run ? "run" : "evaluate",
                is_run ? "'dnnc build' compiles it forward"
                       : "'dnnc predict' writes what its net gives");
  return false;
}

int compile_all(Tool *tool, Compilation *out) {
  int code = compile_setup(tool, out, false);
  if (code != EXIT_done) return code;
  Model *model = out->model;
  if (!needs_train(tool, model)) return EXIT_user;
  switch (tool->options.command) {
  case COMMAND_sample: return compile_sampling(tool, out);
  case COMMAND_predict: return compile_predict(tool, out);
  case COMMAND_eval: return compile_eval(tool, out);
  default: break;
  }
  Graph *forward = model->has_train || model->predict ? NULL : model->forward;
  bool ok = add_code(tool, out, "train", model->train, model->settings.batch,
                     true, true) &&
            add_eval(tool, out) &&
            add_code(tool, out, "forward", forward, 1, false, false) &&
            add_predict(tool, out) && add_sampling(tool, out);
  if (!ok) return EXIT_user;
  if (model->has_train) add_plain(tool, out);
  lay_out(tool, out, NULL);
  if (!fits(tool, out)) return EXIT_no_plan;
  hash_model(out, tool->arena);
  return EXIT_done;
}
