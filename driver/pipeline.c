/*
 * pipeline.c -- turns a model file into a bundle: load, compile, build.
 *
 *     sources ----------> Model: forward graphs, settings, plan     driver_load
 *     each graph -------> passes -> one final graph per entry point
 *     final graphs -----> buffer assignment: one arena per rank  driver_compile
 *     all of it --------> kernels, tables, executables: a bundle   driver_build
 */
#include "driver/internal.h"

#include <string.h>

/* Ranks that predict share the records, not the graph. */
const Pins *driver_add_options(const Compilation *c, const Pins *written) {
  const CompileOptions *options = c->options;
  Pins *pins = arena_copy(c->module->arena, written, sizeof *written);
  bool is_replicated = options->purpose == PURPOSE_predict;
  bool takes_all = options->takes_cluster && c->cluster && !pins->is_given;
  if (options->ranks > 0 && !is_replicated)
    pins->ranks = pin_number(options->ranks);
  else if (takes_all)
    pins->ranks = pin_number(cluster_ranks(c->cluster));
  if (options->microbatches > 0)
    pins->microbatches = pin_number(options->microbatches);
  if (options->bucket_bytes > 0)
    pins->bucket_bytes = pin_number(options->bucket_bytes);
  return pins;
}

/* Hand-written certificates may name no program. */
static void compare_program(const Compilation *c, const Pins *pins) {
  const Certificate *certificate = pins->certificate;
  char hash[33];
  if (!certificate || !certificate->values[CERTIFICATE_program].is_set) return;
  const CertificateValue *program = &certificate->values[CERTIFICATE_program];
  driver_program_hash(c->model, pins, hash);
  if (strcmp(program->text, hash) != 0)
    diag(c->module->diags, DIAG_certificate_program, program->span,
         c->model->name);
}

const Plan *driver_close(const Compilation *c, const Pins *pins) {
  if (!pins_ask(pins)) return NULL;
  compare_program(c, pins);
  return plan_make(c->module, pins);
}

/* Without a plan file one rank predicts and writes text. */
static bool choose_plan(Compilation *c) {
  Purpose purpose = c->options->purpose;
  bool reads = purpose == PURPOSE_predict || purpose == PURPOSE_sample;
  if (c->pins) c->pins = driver_add_options(c, c->pins);
  if (c->pins && !c->options->leaves_open) c->plan = driver_close(c, c->pins);
  if (c->pins && c->options->leaves_open && c->pins->places.n > 0)
    diag_help(diag(c->module->diags, DIAG_not_supported,
                   c->pins->places.data[0].span,
                   "a search around lines 'place'"),
              "leave them out, or price the plan with 'dnnc simulate'");
  if (diags_errors(c->module->diags) > 0) return false;
  if (reads && !c->options->plan) c->plan = NULL;
  if (purpose != PURPOSE_train && plan_servers(c->plan)) {
    Plan *workers = arena_copy(c->module->arena, c->plan, sizeof *c->plan);
    workers->servers = (PlanServers){0};
    c->plan = workers;
  }
  c->ranks = c->plan ? plan_world(c->plan) : 1;
  if (purpose == PURPOSE_predict && c->options->ranks > 0 && !c->plan)
    c->ranks = (int)c->options->ranks;
  return true;
}

CompileResult driver_load(Module *module, const CompileOptions *options,
                          Compilation *out) {
  *out = (Compilation){.module = module,
                       .options = options,
                       .model_folder =
                           driver_model_folder(module->arena, options->path)};
  if (options->cluster || options->detected_cluster) {
    out->cluster = driver_chosen_cluster(module, options);
    if (!out->cluster ||
        !driver_check_ranks(module, out->cluster, options->ranks, "--ranks"))
      return COMPILE_mistake;
  }
  Status status = driver_read_target(out);
  if (status.code != STATUS_ok) {
    diag(module->diags, DIAG_failed, SPAN_NONE, status.message);
    return COMPILE_mistake;
  }
  if (!driver_load_model(out) || !choose_plan(out) ||
      (out->cluster && !driver_check_devices(out)))
    return COMPILE_mistake;
  return COMPILE_done;
}

static bool add_entry_points(Compilation *c) {
  const Model *model = c->model;
  bool is_forward_only = !model->has_train && !model->predict;
  bool is_good =
      driver_compile_averages(c) && driver_add_entry_point(c, ENTRY_train) &&
      driver_add_entry_point(c, ENTRY_eval) &&
      driver_add_entry_point(c, ENTRY_eval_remainder) &&
      (!is_forward_only || driver_add_entry_point(c, ENTRY_forward)) &&
      driver_add_entry_point(c, ENTRY_predict) && driver_add_decoding(c);
  if (is_good) driver_add_idle_entries(c);
  return is_good;
}

static void hash_model(Compilation *c) {
  Text text = text_create(c->module->arena);
  for (int k = 0; k < c->classes.n; k++) {
    const RankProgram *program = &c->classes.data[k].program;
    for (int i = 0; i < program->n_entry_points; i++) {
      const EntryPoint *entry = &program->entry_points[i];
      for (int s = 0; s < entry->stages.n; s++)
        text_printf(
            &text, "%016llx\n",
            (unsigned long long)graph_hash(entry->stages.data[s].graph));
    }
  }
  hash_hex(text_string(&text), text.n, c->model_hash);
}

CompileResult driver_compile(Compilation *c, Station station) {
  bool is_training_only = station < STATION_packed;
  const char *target = c->target.backend->name;
  if (strcmp(target, "cpu") != 0 &&
      driver_refuse_versions(
          c, arena_printf(c->module->arena, "the target '%s'", target)))
    return COMPILE_mistake;
  if (!(is_training_only ? driver_add_entry_point(c, ENTRY_train)
                         : add_entry_points(c)))
    return COMPILE_mistake;
  if (is_training_only) return COMPILE_done;
  if (station == STATION_program) driver_add_plain(c);
  double begin = driver_seconds();
  driver_assign_buffers(c);
  driver_end_station(c->options, "buffer_assign", begin);
  if (station < STATION_program) return COMPILE_done;
  if (!driver_fits_memory(c)) return COMPILE_no_plan;
  hash_model(c);
  return COMPILE_done;
}

Compilation driver_replan(const Compilation *c, Module *module,
                          const Plan *plan) {
  CompileOptions *options =
      arena_copy(module->arena, c->options, sizeof *c->options);
  options->watch = (CompileWatch){0};
  Compilation out = {.module = module,
                     .options = options,
                     .model_folder = c->model_folder,
                     .model = c->model,
                     .pins = c->pins,
                     .plans = c->plans,
                     .plan = plan,
                     .cluster = c->cluster,
                     .target = c->target,
                     .ranks = plan ? plan_world(plan) : 1};
  return out;
}

static RankPrograms programs_of(const Compilation *c) {
  Arena *arena = c->module->arena;
  int n = c->classes.n;
  const RankProgram **programs = ARENA_ARRAY(arena, const RankProgram *, n);
  DnnRankRow *rows = ARENA_ARRAY(arena, DnnRankRow, n);
  for (int i = 0; i < n; i++) {
    programs[i] = &c->classes.data[i].program;
    rows[i] = (DnnRankRow){c->classes.data[i].first_rank, i};
  }
  return (RankPrograms){
      .programs = programs, .n = n, .rows = rows, .n_rows = n};
}

/* The text of the plan in a bundle, which holds the list of a schedule, too. */
static Text plan_of_bundle(const Compilation *c, Text *out_list) {
  Text text = text_create(c->module->arena);
  if (!c->plan) return text;
  Plan plan = *c->plan;
  if (plan.list) {
    plan.schedule = "\"" BUNDLE_SCHEDULE "\"";
    pipeline_print(out_list, plan.list);
  }
  plan_print(&text, &plan);
  return text;
}

Status driver_build(const Compilation *c, const BuildOptions *host,
                    BuildReport *out) {
  Text list = text_create(c->module->arena);
  Text plan = plan_of_bundle(c, &list);
  char plan_hash[33];
  hash_hex(text_string(&plan), plan.n, plan_hash);
  BuildOptions options = *host;
  options.backend = c->target.backend;
  options.archs = c->target.archs;
  options.n_archs = c->target.n_archs;
  options.ranks = c->ranks;
  if (plan_servers(c->plan)) options.servers = c->plan->servers;
  options.plan_text = text_string(&plan);
  options.schedule_text = list.n > 0 ? text_string(&list) : NULL;
  options.model_hash = c->model_hash;
  options.plan_hash = plan_hash;
  options.model_dir = c->model_folder;
  RankPrograms programs = programs_of(c);
  return codegen_build(c->module, c->model, &programs, &options, out);
}
