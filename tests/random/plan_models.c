/*
 * plan_models.c -- chooses a program and generates a plan for it: a random
 * program, or a small model of benchmarks/systems with random sizes.
 *
 * The program is loaded once without a plan, and the lines of the plan are
 * about the dims and paths of its graph.
 */
#include <stdlib.h>
#include <string.h>

#include "frontend/frontend.h"
#include "tests/random/plans.h"
#include "tests/random/program.h"

enum { MOST_RANKS = 8 };

/* ---- loading ---- */

static _Noreturn void plans_no_memory(void *user) {
  (void)user;
  abort();
}

static const Source *plans_load_text(void *user, const char *path) {
  Source *source = user;
  source->path = path;
  return source;
}

static const Model *load_text_of_model(Arena *arena, const char *text) {
  Source source = {"program.dnn", text, strlen(text)};
  FrontendOptions options = {
      .load = plans_load_text, .user = &source, .path = "program.dnn"};
  static Memory *memory; /* of the process */
  if (!memory) memory = memory_create(plans_no_memory, NULL);
  Module *module = ARENA_NEW(arena, Module);
  *module = (Module){.memory = memory,
                     .arena = arena,
                     .names = names_create(arena),
                     .diags = diags_create(arena)};
  return frontend_load(module, &options).model;
}

/* ---- models ---- */

/* A model of benchmarks/systems: its dims that get random sizes, what follows
 * them in their line, and the sizes of its images in the text. */
typedef struct PlanModel {
  const char *file, *batch, *dims, *fixed;
  const char *height, *width; /* "Y:24"; NULL: it has no images */
  const char *queries, *keys, *heads;
} PlanModel;

static const PlanModel models[] = {
    {.file = "gpt",
     .batch = "B",
     .dims = "T V C H D F",
     .fixed = ", L = 1",
     .queries = "T",
     .keys = "S",
     .heads = "H"},
    {.file = "moe",
     .batch = "B",
     .dims = "T V C H D F E",
     .fixed = ", L = 1",
     .queries = "T",
     .keys = "S",
     .heads = "H"},
    {.file = "mlp", .batch = "B", .dims = "P H1 H2 K", .fixed = ""},
    {.file = "cnn",
     .batch = "N",
     .dims = "K",
     .fixed = "",
     .height = "Y:24",
     .width = "X:24"},
};

/* The text with another size in the first "Y:24". */
static const char *with_size(Choices *choices, const char *text,
                             const char *dim) {
  static const int sizes[] = {10, 12, 13, 16};
  const char *at = strstr(text, dim);
  int size = sizes[choose(choices, ARRAY_LENGTH(sizes))];
  if (!at) abort();
  return arena_printf(choices->arena, "%.*s%.2s%d%s", (int)(at - text), text,
                      dim, size, at + strlen(dim));
}

static const char *model_text(Choices *choices, const PlanModel *model) {
  static const int sizes[] = {4, 2, 6, 3, 8, 5, 12};
  Arena *arena = choices->arena;
  const char *text;
  size_t n;
  Text out = text_create(arena);
  char *path = arena_printf(arena, "%s/benchmarks/systems/%s.dnn", TEST_ROOT,
                            model->file);
  if (file_read(arena, path, 1 << 20, &text, &n).code != STATUS_ok) abort();
  const char *dims = strstr(text, "dim ");
  text_printf(&out, "dim %s = 12", model->batch);
  for (const char *at = model->dims; *at; at += strcspn(at, " ")) {
    at += strspn(at, " ");
    text_printf(&out, ", %.*s = %d", (int)strcspn(at, " "), at,
                sizes[choose(choices, ARRAY_LENGTH(sizes))]);
  }
  text_printf(&out, "%s%s", model->fixed, dims + strcspn(dims, "\n"));
  text = text_string(&out);
  if (model->height) text = with_size(choices, text, model->height);
  if (model->width) text = with_size(choices, text, model->width);
  return text;
}

/* Half of the programs are random ones. */
static const char *choose_program(Choices *choices, PlanSubject *out) {
  static const int rows[] = {0, 0, 0, 1, 2, 3};
  int row = choose(choices, 2 * ARRAY_LENGTH(rows)) - ARRAY_LENGTH(rows);
  *out = (PlanSubject){.batch = "N", .most_ranks = MOST_RANKS};
  if (row < 0) return program_make(choices);
  const PlanModel *model = &models[rows[row]];
  out->batch = model->batch;
  out->queries = model->queries;
  out->keys = model->keys;
  out->heads = model->heads;
  return model_text(choices, model);
}

/* The first dim of the text is the batch, of 12 samples. */
static const char *with_samples(Arena *arena, const char *program,
                                const char *batch, int64_t samples) {
  return arena_printf(arena, "dim %s = %lld%s", batch, (long long)samples,
                      strchr(program, '=') + strlen("= 12"));
}

const char *planned_make(Choices *choices, bool has_stages, int *out_lines) {
  Arena *arena = choices->arena;
  PlanSubject subject;
  int64_t samples;
  const char *program = choose_program(choices, &subject);
  const Model *model = load_text_of_model(arena, program);
  if (!model || !model->train) return program; /* the check says why */
  subject.graph = model->train;
  subject.optimizer = &model->settings.optimizer;
  subject.computes_bf16 = model->precision.compute == DT_bf16;
  subject.has_stages = has_stages;
  const char *plan = plan_draw(choices, &subject, out_lines, &samples);
  return arena_printf(arena, "%s%s",
                      with_samples(arena, program, subject.batch, samples),
                      plan);
}

const char *planned_mesh(const char *text) {
  return strstr(text, "\nmesh {");
}
