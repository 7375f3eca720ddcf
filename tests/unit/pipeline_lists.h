/*
 * pipeline_lists.h -- makes pipelines of schedules by their names, and reads
 * the published lists, for tests.
 */
#ifndef TESTS_UNIT_PIPELINE_LISTS_H
#define TESTS_UNIT_PIPELINE_LISTS_H

#include "ir/pipeline/rendezvous.h"
#include "tests/unit/values.h"

#define LISTS TEST_ROOT "/../shared/data/schedules"

/* The shape that a schedule has on p ranks with m micro-batches; `name` may
 * have arguments, as in "interleaved(v = 2)". */
static inline PipelineShape shape_of(Module *module, const char *name, int p,
                                     int m,
                                     const PipelineSchedule **out_schedule) {
  PipelineSpelling spelling;
  const char *wrong = pipeline_spelling_read(module->arena, name, &spelling);
  cr_assert(!wrong && spelling.schedule, "%s: %s", name, wrong);
  *out_schedule = spelling.schedule;
  return (PipelineShape){.ranks = p,
                         .stages = p * spelling.chunks,
                         .microbatches = m,
                         .times = {1, 1, 1}};
}

/* Returns NULL if it needs another shape. */
static inline Pipeline *try_pipeline(Module *module, const char *name, int p,
                                     int m) {
  const PipelineSchedule *schedule;
  PipelineShape shape = shape_of(module, name, p, m, &schedule);
  if (pipeline_schedule_refuses(module->arena, schedule, &shape)) return NULL;
  return pipeline_make(module->arena, schedule, &shape);
}

static inline Pipeline *make_pipeline(Module *module, const char *name, int p,
                                      int m) {
  Pipeline *pipeline = try_pipeline(module, name, p, m);
  cr_assert(pipeline, "%s p %d m %d", name, p, m);
  return pipeline;
}

static inline const char *print(Module *module, const Pipeline *pipeline) {
  Text text = text_create(module->arena);
  pipeline_print(&text, pipeline);
  return text_string(&text);
}

static inline RendezvousVerdict verdict_of(Module *module,
                                           const Pipeline *pipeline) {
  return rendezvous_check(module->arena,
                          pipeline_rendezvous(module->arena, pipeline, 1),
                          RENDEZVOUS_all)
      .verdict;
}

static inline Pipeline *read_text(Module *module, const char *text) {
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){"list.csv", text, strlen(text)};
  Pipeline *pipeline = pipeline_read(module->arena, module->diags, source);
  if (pipeline) {
    pipeline_check_calls(module->arena, module->diags, pipeline);
    pipeline_find_messages(module->arena, module->diags, pipeline);
  }
  Text messages = text_create(module->arena);
  diags_print(module->diags, &messages);
  cr_assert_eq(diags_errors(module->diags), 0, "%s", text_string(&messages));
  return pipeline;
}

/* Returns NULL where the folder is not there. */
static inline const char *file_text(Module *module, const char *name) {
  const char *text, *path = arena_printf(module->arena, LISTS "/%s", name);
  size_t n;
  Status status = file_read(module->arena, path, 1 << 24, &text, &n);
  return status.code == STATUS_ok ? text : NULL;
}

#endif
