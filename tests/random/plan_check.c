/*
 * plan_check.c -- compiles a program for its plan and plays all ranks against
 * one rank, as `dnnc verify` does.
 *
 * A refused plan has a message with its place, so codegen refuses none: it
 * makes the tables that are compared with what was played.  Where exact mode
 * alone differs, the program is played without its plan: if exact mode differs
 * then, too, the two programs are equal by an identity that exact mode does not
 * keep.  Where f64 alone differs, a number that should be 0 is a rounding
 * error, as the gradient of what shifts all logits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/random/plans.h"
#include "verify/verify.h"

const char plan_refused[] = "refused";
const char plan_not_compared[] = "not compared";
const char plan_identity[] = "not kept by exact mode";
const char plan_noise[] = "equal in exact mode";

static _Noreturn void plan_no_memory(void *user) {
  (void)user;
  abort();
}

static Module *plan_module(void) {
  Memory *memory = memory_create(plan_no_memory, NULL);
  Arena *arena = arena_create(memory);
  Module *module = ARENA_NEW(arena, Module);
  *module = (Module){.memory = memory,
                     .arena = arena,
                     .names = names_create(arena),
                     .diags = diags_create(arena)};
  return module;
}

/* False: it was refused, with a message. */
static bool play_text(const char *text, size_t n, Compilation *out,
                      VerifyReport *report) {
  char path[] = "/tmp/dnnc-plan-XXXXXX";
  int file = mkstemp(path);
  if (file < 0 || write(file, text, n) != (ssize_t)n) abort();
  close(file);
  Module *module = plan_module();
  CompileOptions *options = ARENA_NEW(module->arena, CompileOptions);
  *options = (CompileOptions){.path = arena_strdup(module->arena, path),
                              .target = "cpu",
                              .follows_links = true,
                              .verifies = true,
                              .level = 2};
  bool is_played = driver_load(module, options, out) == COMPILE_done &&
                   driver_verify(out, 1, report) == COMPILE_done;
  unlink(path);
  Text messages = text_create(module->arena);
  diags_print(module->diags, &messages);
  fputs(text_string(&messages), stderr);
  return is_played;
}

static void count_graph(const Graph *graph, int n[N_OPS]) {
  for (int id = 0; id < graph->nodes.n; id++) n[graph->nodes.data[id]->op]++;
}

/* Those of all programs; NULL: none. */
static void count_collectives(const Compilation *c) {
  int n[N_OPS] = {0};
  for (int k = 0; c && k < c->classes.n; k++) {
    const RankProgram *program = &c->classes.data[k].program;
    for (int i = 0; i < program->n_entry_points; i++) {
      const EntryPoint *entry = &program->entry_points[i];
      for (int s = 0; s < entry->stages.n; s++)
        count_graph(entry->stages.data[s].graph, n);
    }
  }
  for (int op = 0; op < N_OPS; op++)
    if (op_has((Op)op, OP_FLAG_group))
      plan_table_collectives(plan_table(), (Op)op, n[op]);
}

static const char *wrong_answer(Arena *arena, const VerifyReport *report) {
  if (report->equal == ANSWER_no)
    return arena_printf(arena, "not equal in %s: %s: %s of %s, rank %d, %.3g",
                        report->numbers, report->step, report->kind,
                        report->path, report->rank, report->max_rel_error);
  if (report->placement_ok == ANSWER_no)
    return arena_printf(arena, "placements: %s", report->placement_fault);
  if (report->messages_match == ANSWER_no)
    return arena_printf(arena, "messages: %s", report->message_fault);
  if (report->memory_ok == ANSWER_no)
    return arena_printf(arena, "memory: %s", report->memory_fault);
  if (report->equal == ANSWER_not_checked) return plan_not_compared;
  bool is_refused = report->messages_match == ANSWER_not_checked;
  return is_refused ? "`dnnc build` refuses it, and names no place" : NULL;
}

const char *check_plan(Arena *arena, const char *text, const char *dnnc) {
  (void)dnnc;
  Compilation c;
  VerifyReport report, alone;
  const char *mesh = planned_mesh(text);
  count_collectives(NULL);
  if (!play_text(text, strlen(text), &c, &report)) return plan_refused;
  count_collectives(&c);
  const char *wrong = wrong_answer(arena, &report);
  bool is_exact_alone = report.equal == ANSWER_no &&
                        report.n_exact_different > 0 &&
                        report.n_f64_different == 0;
  bool is_f64_alone = report.equal == ANSWER_no && report.n_f64_different > 0 &&
                      report.n_exact_different == 0;
  if (is_f64_alone) return plan_noise;
  if (!is_exact_alone || !mesh) return wrong;
  if (!play_text(text, (size_t)(mesh - text), &c, &alone)) return wrong;
  return alone.n_exact_different > 0 ? plan_identity : wrong;
}
