/*
 * pipeline.c -- turns a model file into a bundle: load, compile, build.
 *
 *     sources ----------> Model: forward graphs, settings, plan     driver_load
 *     each graph -------> passes -> one final graph per entry point
 *     final graphs -----> buffer assignment: one arena per rank  driver_compile
 *     all of it --------> kernels, tables, executables: a bundle   driver_build
 */
#include "driver/internal.h"

CompileResult driver_load(Module *module, const CompileOptions *options,
                          Compilation *out) {
  *out = (Compilation){.module = module,
                       .options = options,
                       .model_folder =
                           driver_model_folder(module->arena, options->path)};
  if (options->cluster) {
    out->cluster = driver_load_cluster(module, options->cluster);
    if (!out->cluster ||
        !driver_check_ranks(module, out->cluster, options->ranks, "--ranks"))
      return COMPILE_mistake;
  }
  Status status = driver_read_target(out);
  if (status.code != STATUS_ok) {
    diag(module->diags, DIAG_failed, SPAN_NONE, status.message);
    return COMPILE_mistake;
  }
  out->model = driver_load_model(out);
  if (!out->model || (out->cluster && !driver_check_devices(out)))
    return COMPILE_mistake;
  /* Unless the command line names a plan. */
  bool is_on_one_rank = (options->purpose == PURPOSE_predict ||
                         options->purpose == PURPOSE_sample) &&
                        !options->plan;
  out->plan = is_on_one_rank ? NULL : out->model->plan;
  out->ranks = out->plan ? out->plan->ranks : 1;
  /* Ranks that predict share the records, not the graph. */
  if (options->purpose == PURPOSE_predict && options->ranks > 0 && !out->plan)
    out->ranks = (int)options->ranks;
  return COMPILE_done;
}

static bool add_entry_points(Compilation *c) {
  const Model *model = c->model;
  bool is_forward_only = !model->has_train && !model->predict;
  return driver_compile_averages(c) && driver_add_entry_point(c, ENTRY_train) &&
         driver_add_entry_point(c, ENTRY_eval) &&
         driver_add_entry_point(c, ENTRY_eval_remainder) &&
         (!is_forward_only || driver_add_entry_point(c, ENTRY_forward)) &&
         driver_add_entry_point(c, ENTRY_predict) && driver_add_decoding(c);
}

static void hash_model(Compilation *c) {
  Text text = text_create(c->module->arena);
  for (int i = 0; i < c->n_entry_points; i++)
    text_printf(&text, "%016llx\n",
                (unsigned long long)graph_hash(c->entry_points[i].graph));
  hash_hex(text_string(&text), text.n, c->model_hash);
}

CompileResult driver_compile(Compilation *c) {
  if (!add_entry_points(c)) return COMPILE_mistake;
  bool is_priced = c->options->is_priced;
  if (!is_priced) driver_add_plain(c);
  double begin = driver_seconds();
  driver_assign_buffers(c);
  driver_end_station(c->options, "buffer_assign", begin);
  /* It compiles the program once more. */
  if (!is_priced) driver_check_remat(c);
  if (!is_priced && !driver_fits_memory(c)) return COMPILE_no_plan;
  if (!is_priced) hash_model(c);
  return COMPILE_done;
}

Status driver_build(const Compilation *c, const BuildOptions *host,
                    BuildReport *out) {
  Text plan = text_create(c->module->arena);
  if (c->plan) plan_print(&plan, c->plan);
  char plan_hash[33];
  hash_hex(text_string(&plan), plan.n, plan_hash);
  BuildOptions options = *host;
  options.backend = c->target.backend;
  options.archs = c->target.archs;
  options.n_archs = c->target.n_archs;
  options.ranks = c->ranks;
  /* A paced program has no values to explain. */
  options.plain = c->plain.graph && !host->pacer ? &c->plain : NULL;
  options.plan_text = text_string(&plan);
  options.model_hash = c->model_hash;
  options.plan_hash = plan_hash;
  options.model_dir = c->model_folder;
  return codegen_build(c->module, c->model, c->plan, c->entry_points,
                       c->n_entry_points, &c->persistent, &options, out);
}
