/*
 * manager.c -- the pass list as data, and the loop over it.
 *
 * Every pass is a function from graph to graph; the manager chooses the rows
 * for the level, frees scratch memory after each, and between passes may run
 * the verifier, whose complaint is our mistake and names the pass.  Graphs of
 * earlier passes are freed too: where they take more than the last one, it is
 * copied and they go.
 */
#include "passes/passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { bodies_own = false, bodies_walked = true };
enum {
  only_any = -1,
  only_scan = OP_scan,
  only_batchnorm = OP_batchnorm,
  only_accumulate = OP_accumulate,
  only_constraint = OP_constraint
};

/* clang-format off */
static const PassInfo passes[] = {
#define ROW(name, run, split, phase, level, training_only, bodies, only, does, why) \
  {#name, run, split, PASSES_##phase, level, training_only, bodies_##bodies, only_##only, does, why},
#define RUN(name, ...) ROW(name, pass_##name, NULL, __VA_ARGS__)
#define RUN_SPLIT(name, ...) ROW(name, NULL, pass_##name, __VA_ARGS__)
#include "passes/passes.def"
#undef ROW
};
/* clang-format on */

static void verify_after(const PassContext *ctx, const char *pass,
                         const Graph *graph) {
  Text errors = text_create(ctx->scratch);
  if (graph_verify(graph, &errors)) return;
  char where[80];
  snprintf(where, sizeof where, "graph is valid after pass %s", pass);
  fputs(text_string(&errors), stderr);
  assert_failed(__FILE__, __LINE__, __func__, where);
}

/* Rows of this name up to and including `index`. */
static int row_of(int index) {
  int row = 0;
  for (int i = 0; i <= index; i++)
    row += strcmp(passes[i].name, passes[index].name) == 0;
  return row;
}

int pass_count(void) {
  return ARRAY_LENGTH(passes);
}

const PassInfo *pass_info(int index) {
  ASSERT(index >= 0 && index < pass_count());
  return &passes[index];
}

int pass_find(const char *wanted) {
  size_t n = strcspn(wanted, "@");
  int row = wanted[n] ? atoi(wanted + n + 1) : 1;
  for (int i = 0; i < pass_count(); i++)
    if (strncmp(passes[i].name, wanted, n) == 0 && !passes[i].name[n] &&
        row_of(i) == row)
      return i;
  return -1;
}

int pass_end(const char *wanted) {
  return wanted ? pass_find(wanted) + 1 : 0;
}

int pass_phase(PassPhase phase) {
  int i = 0;
  while (passes[i].phase < phase) i++;
  return i;
}

bool pass_is_named(int index, const char *wanted) {
  return strchr(wanted, '@') ? pass_find(wanted) == index
                             : !strcmp(passes[index].name, wanted);
}

const char *pass_label(Arena *arena, int index) {
  const char *name = passes[index].name;
  int rows = 0;
  for (int i = 0; i < pass_count(); i++) rows += pass_is_named(i, name);
  return rows > 1 ? arena_printf(arena, "%s@%d", name, row_of(index)) : name;
}

static bool is_disabled(const PassOptions *options, int index) {
  for (int i = 0; i < options->n_disabled; i++)
    if (pass_is_named(index, options->disabled[i])) return true;
  return false;
}

PassResult pass_run(PassContext *ctx, const PassInfo *pass, Graph *graph) {
  PassResult result = pass->split
                          ? pass->split(ctx, graph)
                          : (PassResult){.graph = pass->run(ctx, graph)};
  if (!result.graph) result.graph = graph;
  return result;
}

/* The pass on a graph and, if it walks them, on the bodies of its scans, which
 * are graphs of their own. */
static PassResult run_with_bodies(PassContext *ctx, const PassInfo *pass,
                                  Graph *from) {
  if (pass->only >= 0 && !graph_has_op(from, (Op)pass->only))
    return (PassResult){.graph = from};
  PassResult result = pass_run(ctx, pass, from);
  bool has_bodies = pass->walks_bodies && graph_has_op(result.graph, OP_scan);
  for (int id = 0; has_bodies && id < result.graph->nodes.n; id++) {
    Node *node = result.graph->nodes.data[id];
    if (node->op == OP_scan)
      node->body = run_with_bodies(ctx, pass, node->body).graph;
  }
  return result;
}

/* The plain program is the same at every level.  The passes before the
 * gradients find attention, whose scores would be too large to store. */
static bool is_run(const PassContext *ctx, const PassOptions *options,
                   int index) {
  const PassInfo *pass = &passes[index];
  bool is_forward = pass->phase == PASSES_forward;
  if (pass->training_only && !ctx->is_training) return false;
  if (pass->phase == PASSES_updates &&
      (options->is_plain || options->leaves_out_updates))
    return false;
  if (options->is_plain) return pass->level == 0 || is_forward;
  bool finds_attention = ctx->plan && ctx->plan->attention && is_forward;
  return (pass->level <= options->level || finds_attention) &&
         !is_disabled(options, index);
}

/* One row of the list, with scratch memory of its own; true unless it found a
 * mistake of the user. */
static bool run_row(const PassContext *given, const PassOptions *options,
                    int index, PassResult *all) {
  const PassInfo *pass = &passes[index];
  PassContext ctx = *given;
  ctx.scratch = arena_create(ctx.module->memory);
  ctx.level = options->is_plain ? 0 : options->level;
  double begin = options->clock ? options->clock() : 0;
  PassResult result = run_with_bodies(&ctx, pass, all->graph);
  double seconds = options->clock ? options->clock() - begin : 0;
  bool is_good = diags_errors(ctx.module->diags) == 0;
  if (options->verify && is_good) verify_after(&ctx, pass->name, result.graph);
  arena_destroy(ctx.scratch);
  all->graph = result.graph;
  if (result.decode_init) all->decode_init = result.decode_init;
  if (is_good && options->after)
    options->after(options->user, index, result.graph, seconds);
  return is_good;
}

/* ---- memory of the graphs between passes ---- */

/* Where passes put their graphs: a module of its own, whose arena is destroyed
 * when most of it is of graphs that were. */
static Module *pass_memory_begin(const Module *module, PassResult *all) {
  Module *own = arena_copy(module->arena, module, sizeof *module);
  own->arena = arena_beside(module->arena);
  all->graph = graph_copy(own, all->graph);
  return own;
}

/* Copies the last graph, and destroys the others with their arena, where they
 * have more than half of it.  The copy lies close together, so that the next
 * passes walk over fewer pages.  Graphs of a few layers are not worth it. */
static void drop_earlier_graphs(Module *own, PassResult *all) {
  enum { FEW_BYTES = 1 << 20 };
  Arena *arena = own->arena;
  size_t last = graph_copy_bytes(all->graph) +
                (all->decode_init ? graph_copy_bytes(all->decode_init) : 0);
  if (arena_bytes(arena) <= 2 * last + FEW_BYTES) return;
  own->arena = arena_beside(arena);
  all->graph = graph_copy(own, all->graph);
  if (all->decode_init) all->decode_init = graph_copy(own, all->decode_init);
  arena_destroy(arena);
}

static void pass_memory_end(Module *own, const Module *module) {
  arena_adopt(module->arena, own->arena);
  own->arena = module->arena;
}

PassResult passes_run(const PassContext *given, const PassOptions *options,
                      Graph *graph) {
  PassContext ctx = *given;
  PassResult all = {.graph = graph};
  ctx.module = pass_memory_begin(given->module, &all);
  int end = options->end ? options->end : pass_count();
  for (int i = options->begin; i < end; i++) {
    if (is_run(&ctx, options, i) && !run_row(&ctx, options, i, &all)) break;
    drop_earlier_graphs(ctx.module, &all);
  }
  pass_memory_end(ctx.module, given->module);
  return all;
}
