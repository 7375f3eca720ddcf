/*
 * missing_stages.c -- says which stages of a plan lack how many bytes, and of
 * what their arenas are.
 *
 *     note: stage 0 needs 159 kB, 59 kB too many: 120 kB in frames of
 *     8 micro-batches, 34 kB persistent, ...
 */
#include "tools/explain/searches.h"
#include "tools/show/show_stages.h"

enum { MOST_NOTES = 4 };

static int most_frames(const EntryPoint *step) {
  int most = 0;
  for (int s = 0; s < step->stages.n; s++)
    if (step->stages.data[s].n_frames > most)
      most = step->stages.data[s].n_frames;
  return most;
}

static void print_part(Text *out, const char *before, Bytes bytes,
                       const char *what) {
  if (bytes > 0)
    text_printf(out, "%s%s %s", before,
                text_quantity(out->arena, (double)bytes, "B"), what);
}

static void print_program(Text *out, const PricedProgram *program,
                          Bytes memory) {
  const ArenaParts *arena = &program->step->arena;
  int n = most_frames(program->step);
  text_printf(out, "note: %s %s %s, %s too many: ",
              show_stage_numbers(out->arena, program->step),
              program->step->stages.n > 1 ? "need" : "needs",
              text_quantity(out->arena, (double)program->peak, "B"),
              text_quantity(out->arena, (double)(program->peak - memory), "B"));
  print_part(out, "", arena->frames,
             arena_printf(out->arena, "in frames of %d micro-batch%s", n,
                          n == 1 ? "" : "es"));
  const char *next = arena->frames > 0 ? ", " : "";
  print_part(out, next, arena->persistent, "persistent");
  print_part(out, ", ", arena->step, "of the step");
  print_part(out, ", ", arena->messages, "of messages");
  print_part(out, ", ", arena->scratch, "of scratch");
  text_add(out, "\n");
}

/* The stage that lacks most of those that are not printed. */
static const PricedProgram *next_program(const Priced *p, Bytes below) {
  const PricedProgram *most = NULL;
  for (int i = 0; i < p->n_programs; i++)
    if (p->programs[i].peak < below &&
        (!most || p->programs[i].peak > most->peak))
      most = &p->programs[i];
  return most;
}

void print_missing_stages(Text *out, const Priced *p) {
  Bytes below = INT64_MAX;
  for (int i = 0; i < MOST_NOTES; i++) {
    const PricedProgram *next = next_program(p, below);
    if (!next || next->peak <= p->memory) return;
    print_program(out, next, p->memory);
    below = next->peak;
  }
}

void print_missing_stages_json(Text *out, const Priced *p) {
  text_add(out, ",\"stages\":[");
  for (int i = 0; i < p->n_programs; i++) {
    const PricedProgram *program = &p->programs[i];
    Bytes missing = program->peak - p->memory;
    text_add(out, i ? ",{" : "{");
    show_stage_numbers_json(out, program->step);
    text_printf(out, ",\"needed_bytes\":%lld,\"missing_bytes\":%lld,",
                (long long)program->peak,
                (long long)(missing > 0 ? missing : 0));
    text_printf(out, "\"frames\":%d,", most_frames(program->step));
    show_arena_json(out, &program->step->arena);
    text_add(out, "}");
  }
  text_add(out, "]");
}
