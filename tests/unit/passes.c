// links: passes ir support
/*
 * passes.c -- compares the graphs after passes with goldens:
 * tests/golden/passes/NAME.ir holds a graph, a line that says what to run, and
 * the expected graph.
 *
 *     graph g { ... }
 *     --- pass cse dce
 *     graph g { ... }
 *
 * Words of the line: names of passes; `-O1` (2 if absent); `training`;
 * `data=DIM:SHARDS`, `node=DIM:SHARDS`, `time=DIM:SHARDS`, `idle=SHARDS` (a
 * plan); `pin=PATH:DIM@AXIS`, `pin=PATH` (replicated); `attention=ring`;
 * `bucket=BYTES`; `keeps=OP`; `compute=DTYPE`, `master=`, `grads=`,
 * `f32=PATH,PATH` (a model's precision); `optimizer=NAME` with a rate of 0.1.
 * Every pass of passes.def has one. After `--- message` stands the message that
 * the user sees instead of a graph. With DNNC_BLESS=1 the expectations are
 * written anew.
 */
/* Further words: `remat=PATH`, `keep=PATH`, `offload=PATH`, `batch=DIM`,
 * `cut=STAGE`, `schedule=NAME`. */
#include <dirent.h>

#include "passes/stages/stages.h"
#include "tests/unit/values.h"

static bool is_tried[64]; /* by row of passes.def: some golden runs it */

typedef struct Case {
  Module *module;
  PassContext ctx;
  Plan plan;
  Target target;
  Model model;
  char keeps[32];
  int level;
  Graph *decode_init; /* of the last pass that returned one */
} Case;

static bool keeps_named(const Target *target, const Graph *graph, int id) {
  const char *name = target->user;
  return strcmp(op_info(graph->nodes.data[id]->op)->name, name) == 0;
}

/* "B:4": the dim is sharded over a new axis of size 4. */
static void add_axis(Case *c, const char *axis, const char *text) {
  char dim[32];
  int pieces;
  cr_assert_eq(sscanf(text, "%31[^:]:%d", dim, &pieces), 2);
  Mesh *mesh = &c->plan.mesh;
  bool is_time = strcmp(axis, "time") == 0;
  mesh->axes[mesh->n_axes++] =
      (MeshAxis){name_intern(c->module->names, axis), pieces, is_time};
  if (is_time)
    c->plan.microbatches = pieces;
  else
    c->plan.ranks *= pieces;
  Name name = name_intern(c->module->names, dim);
  PlanShard *shard = NULL;
  for (int i = 0; i < c->plan.shards.n; i++)
    if (c->plan.shards.data[i].dim == name) shard = &c->plan.shards.data[i];
  if (shard == NULL) {
    vec_push(c->module->arena, &c->plan.shards, (PlanShard){.dim = name});
    shard = &c->plan.shards.data[c->plan.shards.n - 1];
  }
  shard->axes[shard->n_axes++] = mesh->axes[mesh->n_axes - 1].name;
  c->ctx.plan = &c->plan;
}

/* An axis that cuts nothing. */
static void add_idle(Case *c, const char *text) {
  Mesh *mesh = &c->plan.mesh;
  mesh->axes[mesh->n_axes++] =
      (MeshAxis){name_intern(c->module->names, "idle"), atoi(text), false};
  c->plan.ranks *= atoi(text);
}

/* "y:B@data" */
static void add_pin(Case *c, const char *text) {
  char path[32], dim[32] = "", axis[32] = "";
  Arena *arena = c->module->arena;
  int n = sscanf(text, "%31[^:]:%31[^@]@%31s", path, dim, axis);
  cr_assert(n == 1 || n == 3, "%s", text);
  Name name = name_intern(c->module->names, path);
  PlanPin pin = {.n_paths = 1, .paths = arena_copy(arena, &name, sizeof name)};
  if (n == 3) {
    PlanShard *shard = ARENA_NEW(arena, PlanShard);
    *shard = (PlanShard){.dim = name_intern(c->module->names, dim),
                         .n_axes = 1,
                         .axes = {name_intern(c->module->names, axis)}};
    pin.shards = shard;
    pin.n_shards = 1;
  }
  vec_push(arena, &c->plan.pins, pin);
  plan_index(arena, &c->plan);
}

/* "compute=bf16", "f32=layernorm,block.attn" */
static bool set_precision(Case *c, const char *word) {
  Precision *p = &c->model.precision;
  DType *const dtypes[] = {&p->compute, &p->master, &p->grads};
  static const char *const names[] = {"compute=", "master=", "grads="};
  for (int i = 0; i < 3; i++) {
    size_t n = strlen(names[i]);
    if (strncmp(word, names[i], n) != 0) continue;
    cr_assert(dtype_find(word + n, dtypes[i]), "%s", word);
    return true;
  }
  if (strncmp(word, "f32=", 4) != 0) return false;
  char *list = arena_strdup(c->module->arena, word + 4), *rest = NULL;
  p->f32_paths = ARENA_ARRAY(c->module->arena, const char *, 8);
  for (char *path = strtok_r(list, ",", &rest); path;
       path = strtok_r(NULL, ",", &rest))
    p->f32_paths[p->n_f32_paths++] = path;
  return true;
}

/* The forward value of this path is computed again, or stored; or what has it
 * is stored on the host. */
static void add_saving(Case *c, const char *path, PinSays says) {
  Arena *arena = c->module->arena;
  Name name = name_intern(c->module->names, path);
  PlanPin pin = {.says = says,
                 .n_paths = 1,
                 .paths = arena_copy(arena, &name, sizeof name)};
  vec_push(arena, &c->plan.pins, pin);
  plan_index(arena, &c->plan);
  c->ctx.plan = &c->plan;
}

/* "1:block": what has this path is in stage 1. */
static void add_stage(Case *c, const char *text) {
  Arena *arena = c->module->arena;
  intptr_t stage = atoi(text);
  Name path = name_intern(c->module->names, strchr(text, ':') + 1);
  if (!c->plan.stage_of) c->plan.stage_of = map_create(arena);
  map_put(c->plan.stage_of, path, (void *)(stage + 1));
  while (c->plan.stages.n <= stage)
    vec_push(arena, &c->plan.stages, (PlanStage){.n_ranks = 1});
  c->ctx.plan = &c->plan;
}

static Graph *run_word(Case *c, Graph *graph, const char *word) {
  if (strncmp(word, "-O", 2) == 0) {
    c->ctx.level = atoi(word + 2);
  } else if (strcmp(word, "training") == 0) {
    c->ctx.is_training = true;
  } else if (strncmp(word, "data=", 5) == 0) {
    add_axis(c, "data", word + 5);
  } else if (strncmp(word, "node=", 5) == 0) {
    add_axis(c, "node", word + 5);
  } else if (strncmp(word, "idle=", 5) == 0) {
    add_idle(c, word + 5);
  } else if (strncmp(word, "time=", 5) == 0) {
    add_axis(c, "time", word + 5);
  } else if (strncmp(word, "pin=", 4) == 0) {
    add_pin(c, word + 4);
  } else if (strncmp(word, "stage=", 6) == 0) {
    add_stage(c, word + 6);
  } else if (strncmp(word, "batch=", 6) == 0) {
    c->plan.batch_dim = name_intern(c->module->names, word + 6);
  } else if (strncmp(word, "cut=", 4) == 0) {
    StageCut *cut = ARENA_NEW(c->module->arena, StageCut);
    *cut = stages_cut(&c->ctx, graph);
    graph = cut->graphs.data[atoi(word + 4)];
    c->ctx.cut = cut;
  } else if (strncmp(word, "schedule=", 9) == 0) {
    c->plan.schedule = arena_strdup(c->module->arena, word + 9);
  } else if (strncmp(word, "bucket=", 7) == 0) {
    c->plan.bucket_bytes = atol(word + 7);
    c->ctx.plan = &c->plan;
  } else if (strncmp(word, "prefetch=", 9) == 0) {
    c->plan.prefetch_bytes = atol(word + 9);
    c->ctx.plan = &c->plan;
  } else if (strcmp(word, "attention=ring") == 0) {
    c->plan.attention = ATTENTION_ring;
  } else if (strncmp(word, "remat=", 6) == 0) {
    add_saving(c, word + 6, SAYS_remat);
  } else if (strncmp(word, "keep=", 5) == 0) {
    add_saving(c, word + 5, SAYS_keep);
  } else if (strncmp(word, "offload=", 8) == 0) {
    add_saving(c, word + 8, SAYS_offload);
  } else if (strncmp(word, "keeps=", 6) == 0) {
    snprintf(c->keeps, sizeof c->keeps, "%s", word + 6);
    c->target.has_kernel = keeps_named;
    c->target.user = c->keeps;
    c->ctx.target = &c->target;
  } else if (strcmp(word, "free_f64") == 0) {
    c->target.has_free_f64 = true;
    c->ctx.target = &c->target;
  } else if (strcmp(word, "decode") == 0) {
    c->ctx.is_decode = true;
  } else if (strncmp(word, "optimizer=", 10) == 0) {
    OptimizerCall *call = &c->model.settings.optimizer;
    *call = optimizer_call(name_intern(c->module->names, word + 10));
    call->lr = (Rate){.kind = RATE_constant, .values = {0.1}};
    c->model.has_train = true;
    c->ctx.model = &c->model;
  } else if (set_precision(c, word)) {
    c->ctx.model = &c->model;
  } else {
    int index = pass_find(word);
    cr_assert(index >= 0, "no pass '%s'", word);
    is_tried[index] = true;
    PassResult result = pass_run(&c->ctx, pass_info(index), graph);
    if (result.decode_init) c->decode_init = result.decode_init;
    graph = result.graph;
  }
  return graph;
}

static Graph *parse(Module *module, const char *path, const char *text) {
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){path, text, strlen(text)};
  Graph *graph = graph_parse(module, source);
  if (graph != NULL) return graph;
  Text out = text_create(module->arena);
  diags_print(module->diags, &out);
  cr_assert(false, "%s", text_string(&out));
  return NULL;
}

/* The text of the outcome: a graph, or messages. */
static const char *outcome(Case *c, const char *path, const char *input,
                           const char *line) {
  Graph *graph = parse(c->module, path, input);
  char words[300], *rest = NULL;
  snprintf(words, sizeof words, "%s", line);
  for (char *word = strtok_r(words, " \n", &rest); word != NULL;
       word = strtok_r(NULL, " \n", &rest))
    graph = run_word(c, graph, word);
  Text out = text_create(c->module->arena);
  if (diags_errors(c->module->diags) > 0) {
    text_add(&out, "--- message\n");
    diags_print(c->module->diags, &out);
    return text_string(&out);
  }
  Text errors = text_create(c->module->arena);
  cr_assert(graph_verify(graph, &errors), "%s: %s", path, text_string(&errors));
  graph_print(&out, graph);
  /* Printing, parsing and printing again changes nothing. */
  Text again = text_create(c->module->arena);
  graph_print(&again, parse(c->module, path, text_string(&out)));
  cr_assert_str_eq(text_string(&out), text_string(&again), "%s", path);
  if (c->decode_init) graph_print(&out, c->decode_init);
  return text_string(&out);
}

static void check_file(const char *name) {
  char path[500];
  snprintf(path, sizeof path, "%s/tests/golden/passes/%s", TEST_ROOT, name);
  Case c = {.module = module_create(), .plan = {.ranks = 1, .microbatches = 1}};
  Arena *arena = c.module->arena;
  c.plan.name = name_intern(c.module->names, "test");
  c.model.precision =
      (Precision){.compute = DT_f32, .master = DT_f32, .grads = DT_f32};
  c.ctx = (PassContext){.module = c.module, .scratch = arena, .level = 2};
  const char *text;
  size_t n;
  Status status = file_read(arena, path, 1 << 20, &text, &n);
  cr_assert_eq(status.code, STATUS_ok, "%s", path);
  const char *mark = strstr(text, "--- pass ");
  cr_assert(mark != NULL, "%s has no '--- pass' line", name);
  const char *end = strchr(mark, '\n');
  cr_assert(end != NULL, "%s ends in its '--- pass' line", name);
  const char *input = arena_printf(arena, "%.*s", (int)(mark - text), text);
  const char *line =
      arena_printf(arena, "%.*s", (int)(end - mark - 9), mark + 9);
  const char *got = outcome(&c, name, input, line);
  if (getenv("DNNC_BLESS") != NULL) {
    const char *all =
        arena_printf(arena, "%.*s%s", (int)(end + 1 - text), text, got);
    status = file_replace(path, all, strlen(all));
    cr_assert_eq(status.code, STATUS_ok);
  } else {
    cr_assert_str_eq(got, end + 1, "%s: got\n%s", name, got);
  }
  modules_destroy();
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

Test(passes, goldens) {
  static char *names[500];
  int n = 0;
  DIR *dir = opendir(TEST_ROOT "/tests/golden/passes");
  cr_assert(dir != NULL);
  for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
    if (strstr(entry->d_name, ".ir") == NULL) continue;
    cr_assert(n < ARRAY_LENGTH(names));
    names[n++] = strdup(entry->d_name);
  }
  closedir(dir);
  qsort(names, (size_t)n, sizeof *names, compare_names);
  cr_assert(n > 0);
  for (int i = 0; i < n; i++) {
    check_file(names[i]);
    free(names[i]);
  }
  cr_assert(pass_count() <= ARRAY_LENGTH(is_tried));
  for (int i = 0; i < pass_count(); i++)
    cr_assert(is_tried[pass_find(pass_info(i)->name)],
              "pass '%s' has no golden in tests/golden/passes",
              pass_info(i)->name);
}

Test(passes, phases_come_in_order) {
  for (int i = 1; i < pass_count(); i++)
    cr_expect(pass_info(i - 1)->phase <= pass_info(i)->phase, "row %d", i);
  for (int i = 0; i <= PASSES_order; i++)
    cr_expect_eq(pass_info(pass_phase((PassPhase)i))->phase, (PassPhase)i);
}

Test(passes, manager) {
  cr_assert_eq(pass_find("nothing"), -1);
  cr_assert_str_eq(pass_info(pass_find("fuse"))->name, "fuse");
  Module *module = module_create();
  Graph *graph = make_graph(module);
  Value x = make_input(graph, ROLE_data, "x", "f32 B:4 C:3");
  Value twice = graph_op2(graph, OP_add, graph_op1(graph, OP_exp, x),
                          graph_op1(graph, OP_exp, x));
  make_output(graph, ROLE_result, "y", twice);
  PassContext ctx = {.module = module, .scratch = module->arena};
  PassOptions options = {.level = 2, .verify = true, .end = pass_end("cse")};
  cr_assert_eq(passes_run(&ctx, &options, graph).graph->nodes.n, 3);
  const char *disabled = "cse";
  options.disabled = &disabled;
  options.n_disabled = 1;
  cr_assert_eq(passes_run(&ctx, &options, graph).graph->nodes.n, 4);
  options.end = 0;
  cr_assert_eq(passes_run(&ctx, &options, graph).graph->nodes.n, 2);
  modules_destroy();
}

/* Four layers whose dims alternate, so that the first and the third kernel are
 * equal, and the second and the fourth; the scale of the last is its own. */
static Graph *make_layers(Module *module) {
  Text text = text_create(module->arena);
  text_add(&text, "graph g {\n"
                  "  %0 = input {index = 0} : f32[B:4, C:16] data \"x\"\n"
                  "  %1 = input {index = 1} : f32[C:16, D:16] param \"w\"\n");
  for (int i = 0; i < 4; i++) {
    char a = "CD"[i % 2], b = "DC"[i % 2];
    int x = i ? 2 + 4 * i - 1 : 0, at = 2 + 4 * i;
    text_printf(&text, "  %%%d = exp %%%d : f32[B:4, %c:16] \"b[%d].e\"\n", at,
                x, a, i);
    text_printf(&text, "  %%%d = const {value = %d, dtype = f32} : f32[]\n",
                at + 1, i < 3 ? 2 : 3);
    text_printf(&text,
                "  %%%d = mul %%%d, %%%d : f32[B:4, %c:16] \"b[%d].m\"\n",
                at + 2, at, at + 1, a, i);
    text_printf(&text,
                "  %%%d = dot %%%d, %%1 {over = [%c]} : f32[B:4, %c:16]\n",
                at + 3, at + 2, a, b);
  }
  text_add(&text, "  output result \"y\" %17\n}\n");
  Graph *graph = parse(module, "layers.ir", text_string(&text));
  for (int id = 0; id < graph->nodes.n; id++) /* those of a repeat are equal */
    graph->nodes.data[id]->span = SPAN_NONE;
  return graph;
}

static const char *graph_text(const Graph *graph) {
  Text text = text_create(graph->module->arena);
  graph_print(&text, graph);
  return text_string(&text);
}

static void check_shared_bodies(const Graph *graph) {
  const Graph *bodies[4];
  int n = 0;
  for (int id = 0; id < graph->nodes.n; id++)
    if (graph->nodes.data[id]->op == OP_fused)
      bodies[n++] = graph->nodes.data[id]->body;
  cr_assert_eq(n, 4);
  cr_expect_eq(bodies[0]->nodes.data, bodies[2]->nodes.data);
  cr_expect_neq(bodies[0]->nodes.data, bodies[1]->nodes.data);
  cr_expect_neq(bodies[1]->nodes.data, bodies[3]->nodes.data, "other scales");
  int last = bodies[2]->nodes.n - 1;
  cr_expect_str_eq(graph_path(bodies[0], last), "b[0].m");
  cr_expect_str_eq(graph_path(bodies[2], last), "b[2].m");
}

Test(passes, equal_bodies_share_their_nodes) {
  Module *module = module_create();
  PassContext ctx = {.module = module, .scratch = module->arena, .level = 2};
  Graph *graph = make_layers(module);
  Graph *fused = pass_run(&ctx, pass_info(pass_find("fuse")), graph).graph;
  check_shared_bodies(fused);
  const char *text = graph_text(fused);
  size_t before = arena_bytes(module->arena);
  Graph *copy = graph_copy(module, fused);
  cr_expect(arena_bytes(module->arena) - before >= graph_copy_bytes(copy));
  check_shared_bodies(copy);
  cr_expect_str_eq(graph_text(copy), text);
  cr_expect_str_eq(graph_text(parse(module, "fused.ir", text)), text);
  modules_destroy();
}

/* A chain of exp, each twice and a sum of both. */
static Graph *make_chain(Module *module, int length) {
  Graph *graph = make_graph(module);
  Value x = make_input(graph, ROLE_data, "x", "f32 B:4 C:3");
  for (int i = 0; i < length; i++)
    x = graph_op2(graph, OP_add, graph_op1(graph, OP_exp, x),
                  graph_op1(graph, OP_exp, x));
  make_output(graph, ROLE_result, "y", x);
  return graph;
}

static size_t bytes_after_passes(int length, Graph **out_last) {
  Module *module = module_create();
  Graph *graph = make_chain(module, length);
  PassContext ctx = {.module = module, .scratch = module->arena};
  PassOptions options = {.level = 2, .end = pass_end("cse")};
  Text errors = text_create(module->arena);
  size_t before = arena_bytes(module->arena);
  *out_last = passes_run(&ctx, &options, graph).graph;
  size_t bytes = arena_bytes(module->arena) - before;
  cr_expect((*out_last)->module->arena == module->arena);
  cr_expect(graph_verify(*out_last, &errors), "%s", text_string(&errors));
  return bytes;
}

/* cse leaves two of three nodes. */
Test(passes, graphs_of_earlier_passes_are_freed) {
  Graph *last;
  bytes_after_passes(1000, &last);
  cr_expect_eq(last->nodes.n, 2001);
  size_t bytes = bytes_after_passes(200000, &last);
  cr_expect_eq(last->nodes.n, 400001);
  cr_expect(bytes < 2 * graph_copy_bytes(last) + (2 << 20), "%zu bytes", bytes);
  modules_destroy();
}
