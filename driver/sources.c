/*
 * sources.c -- reads the files that a model consists of, for the front end: the
 * model, its imports and a plan file.
 *
 * An import that is not beside the model is looked for among the models that
 * come with dnnc.  It may not lead out of the folders of the model through a
 * link, unless the options say that links are followed.
 */
#include "driver/internal.h"
#include "driver/trial.h"
#include "runtime/data/data.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SOURCE_BYTES = 16 << 20 };

typedef struct Loading {
  Compilation *c; /* while the model is loaded */
  /* Plans are read later, too. */
  Module *module;
  bool follows_links;
  const char *failure; /* why the last file could not be read */
} Loading;

const char *driver_model_folder(Arena *arena, const char *path) {
  char real[PATH_MAX];
  if (!realpath(path, real)) return ".";
  char *slash = strrchr(real, '/');
  *(slash == real ? slash + 1 : slash) = 0;
  return arena_strdup(arena, real);
}

/* Length of the folder in the path of the model, with its slash. */
static int folder_length(const char *model) {
  const char *slash = strrchr(model, '/');
  return slash ? (int)(slash - model) + 1 : 0;
}

/* The model itself may be a link, and is then in two folders. */
static Status check_import(const Compilation *c, const char *path) {
  const char *model = c->options->path;
  Arena *arena = c->module->arena;
  if (strcmp(path, model) == 0) return STATUS_OK;
  int n = folder_length(model);
  InputSearch search = {.folder = arena_printf(arena, "%.*s", n, model),
                        .model_dir = c->model_folder,
                        .follows_links = c->options->follows_links};
  return input_check_links(path, &search);
}

static Status read_source(Module *module, const char *path,
                          const Source **out) {
  Source *source = ARENA_NEW(module->arena, Source);
  source->path = name_intern(module->names, path);
  *out = source;
  return file_read(module->arena, path, MOST_SOURCE_BYTES, &source->text,
                   &source->n);
}

/* An import that is not beside the model but comes with dnnc; NULL: any other
 * file. */
static const char *find_in_library(const Compilation *c, const char *path) {
  const char *model = c->options->path, *library = c->options->library;
  if (!library || strcmp(path, model) == 0 || file_exists(path)) return NULL;
  const char *found = arena_printf(c->module->arena, "%s/%s", library,
                                   path + folder_length(model));
  return file_exists(found) ? found : NULL;
}

static const Source *load_source(void *user, const char *path) {
  Loading *loading = user;
  const Source *source = NULL;
  const char *found = find_in_library(loading->c, path);
  Status status = found ? STATUS_OK : check_import(loading->c, path);
  if (status.code == STATUS_ok)
    status = read_source(loading->module, found ? found : path, &source);
  loading->failure = status.message;
  return status.code == STATUS_ok ? source : NULL;
}

/* A file that a plan names does not lead out of the plan's folder. */
static const Source *load_plan_file(void *user, const char *folder,
                                    const char *path) {
  Loading *loading = user;
  const Source *source = NULL;
  InputSearch search = {.folder = folder,
                        .follows_links = loading->follows_links};
  Status status = input_check_links(path, &search);
  if (status.code == STATUS_ok)
    status = read_source(loading->module, path, &source);
  loading->failure = status.message;
  return status.code == STATUS_ok ? source : NULL;
}

static const char *load_failure(void *user) {
  return ((Loading *)user)->failure;
}

static bool count_eval_samples(void *user, const Model *model, int64_t *out) {
  return driver_count_eval_samples(((Loading *)user)->c, model, out);
}

const Source *driver_read_plan(const Compilation *c, const char *path) {
  const Source *source = c->options->found_plan;
  if (source && strcmp(path, source->path) == 0) return source;
  Status status = read_source(c->module, path, &source);
  if (status.code == STATUS_ok) return source;
  diag(c->module->diags, DIAG_failed, SPAN_NONE, status.message);
  return NULL;
}

bool driver_load_model(Compilation *c) {
  const CompileOptions *options = c->options;
  Loading *loading = ARENA_NEW(c->module->arena, Loading);
  FrontendOptions *frontend = ARENA_NEW(c->module->arena, FrontendOptions);
  *loading = (Loading){
      .c = c, .module = c->module, .follows_links = options->follows_links};
  *frontend = (FrontendOptions){.load = load_source,
                                .load_plan_file = load_plan_file,
                                .why = load_failure,
                                .user = loading,
                                .path = options->path,
                                .net = options->net,
                                .predicting = options->predicting,
                                .value = options->value,
                                .overrides = options->overrides,
                                .n_overrides = options->n_overrides,
                                .checked = options->is_checked,
                                .check_only = options->is_model_only};
  if (options->data_files != DATA_FILES_unread)
    frontend->count_eval_samples = count_eval_samples;
  if (options->plan) {
    frontend->plan = driver_read_plan(c, options->plan);
    if (!frontend->plan) return false;
  }
  double begin = driver_seconds();
  LoadedModel loaded = frontend_load(c->module, frontend);
  driver_end_station(options, "front_end", begin);
  c->model = loaded.model;
  c->pins = loaded.pins;
  c->plans = loaded.plans;
  return c->model && diags_errors(c->module->diags) == 0;
}
