/*
 * spelling.c -- reads the name of a schedule and its arguments, as plans spell
 * them.
 *
 *     1f1b
 *     interleaved(v = 2)
 *     zbh2(times = (2, 2, 1))
 */
#include "ir/pipeline/pipeline.h"

#include <ctype.h>
#include <string.h>

/* A V has two stages a rank, too. */
enum { DEFAULT_CHUNKS = 2, MOST_VALUE = 1000000 };

typedef struct Speller {
  Arena *arena;
  const char *at;
  const char *wrong; /* the first mistake, or NULL */
} Speller;

static void skip_spaces(Speller *s) {
  while (isspace((unsigned char)*s->at)) s->at++;
}

static bool take(Speller *s, char c) {
  skip_spaces(s);
  if (*s->at != c) return false;
  s->at++;
  return true;
}

static void reject(Speller *s, const char *fact) {
  if (!s->wrong) s->wrong = fact;
}

static const char *read_word(Speller *s) {
  skip_spaces(s);
  const char *begin = s->at;
  while (isalnum((unsigned char)*s->at) || *s->at == '_') s->at++;
  return arena_printf(s->arena, "%.*s", (int)(s->at - begin), begin);
}

/* An integer of at least 1. */
static int read_value(Speller *s, const char *name) {
  skip_spaces(s);
  const char *begin = s->at;
  int value = 0;
  for (; isdigit((unsigned char)*s->at); s->at++)
    if (value <= MOST_VALUE) value = value * 10 + (*s->at - '0');
  if (s->at == begin || value < 1 || value > MOST_VALUE)
    reject(s, arena_printf(s->arena, "'%s' is an integer from 1 to %d", name,
                           MOST_VALUE));
  return value;
}

/* "(2, 2, 1)" */
static void read_times(Speller *s, PipelineTimes *out) {
  int64_t *const fields[] = {&out->forward, &out->input_grad,
                             &out->weight_grad};
  bool is_good = take(s, '(');
  for (int i = 0; is_good && i < 3; i++) {
    if (i > 0) is_good = take(s, ',');
    if (is_good) *fields[i] = read_value(s, "times");
  }
  if (!is_good || !take(s, ')'))
    reject(s, "'times' are those of F, I and W, as in (2, 2, 1)");
}

const char *
pipeline_schedule_takes_no_chunks(Arena *arena,
                                  const PipelineSchedule *schedule) {
  bool has_two = schedule->placement != PLACEMENT_single;
  return arena_printf(
      arena, "'%s' takes no 'v': it has %s stage%s on each rank",
      schedule->name, has_two ? "two" : "one", has_two ? "s" : "");
}

static void refuse_argument(Speller *s, const PipelineSpelling *out,
                            const char *name) {
  if (strcmp(name, "v") == 0)
    reject(s, pipeline_schedule_takes_no_chunks(s->arena, out->schedule));
  else
    reject(s, arena_printf(s->arena, "'%s' has no argument '%s'", out->name,
                           name));
}

static bool read_bool(Speller *s, const char *name) {
  const char *word = read_word(s);
  bool is_true = strcmp(word, "true") == 0;
  if (!is_true && strcmp(word, "false") != 0)
    reject(s, arena_printf(s->arena, "'%s' is true or false", name));
  return is_true;
}

static void read_argument(Speller *s, PipelineSpelling *out) {
  const char *name = read_word(s);
  PipelineArgs args = take(s, '=') ? out->schedule->args : PIPELINE_ARGS_none;
  if (args == PIPELINE_ARGS_chunks && strcmp(name, "v") == 0) {
    out->chunks = read_value(s, name);
  } else if (args == PIPELINE_ARGS_times && strcmp(name, "times") == 0) {
    read_times(s, &out->times);
    out->has_times = true;
  } else if (args == PIPELINE_ARGS_vertical && strcmp(name, "vertical") == 0) {
    out->is_vertical = read_bool(s, name);
  } else {
    refuse_argument(s, out, name);
  }
}

const char *pipeline_spelling_read(Arena *arena, const char *text,
                                   PipelineSpelling *out) {
  Speller s = {.arena = arena, .at = text};
  *out = (PipelineSpelling){
      .name = read_word(&s), .chunks = 1, .times = {1, 1, 1}};
  skip_spaces(&s);
  bool is_name = *s.at == '\0' || *s.at == '(';
  if (!is_name) out->name = text;
  out->schedule = is_name ? pipeline_schedule_find(out->name) : NULL;
  if (!out->schedule) return NULL;
  if (pipeline_has_chunks(out->schedule)) out->chunks = DEFAULT_CHUNKS;
  if (take(&s, '(') && !take(&s, ')')) {
    do read_argument(&s, out);
    while (!s.wrong && take(&s, ','));
    if (!take(&s, ')')) reject(&s, "a ')' is missing after the arguments");
  }
  skip_spaces(&s);
  if (*s.at) reject(&s, arena_printf(arena, "'%s' follows the schedule", s.at));
  return s.wrong;
}

const char *pipeline_schedule_call(Arena *arena,
                                   const PipelineSchedule *schedule) {
  switch (schedule->args) {
  case PIPELINE_ARGS_chunks:
    return arena_printf(arena, "%s(v = %d)", schedule->name, DEFAULT_CHUNKS);
  case PIPELINE_ARGS_times:
    return arena_printf(arena, "%s(times = (1, 1, 1))", schedule->name);
  default: return schedule->name;
  }
}
