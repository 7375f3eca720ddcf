/*
 * plan_make.c -- makes the plan that a compilation follows: pins are closed,
 * its lines are made, and the certificate of the file is compared with them.
 *
 *     certificate { lines = "5d1f..." }     the planner wrote these lines: no
 *     plan { ... }                          warning doubts them
 *
 * The hash is of the lines as they are printed, so comments and spelling do not
 * count.
 */
#include "ir/plan/pins.h"

#include <string.h>

void plan_lines_hash(Arena *arena, const Plan *plan, char out_hex[33]) {
  Text text = text_create(arena);
  plan_print(&text, plan);
  hash_hex(text_string(&text), text.n, out_hex);
}

/* A certificate that a person wrote may name no lines. */
static void compare_certificate(Module *module, const Pins *pins, Plan *plan) {
  const CertificateValue *lines =
      pins->certificate ? &pins->certificate->values[CERTIFICATE_lines] : NULL;
  char hash[33];
  if (!lines || !lines->is_set) return;
  plan_lines_hash(module->arena, plan, hash);
  plan->is_certified = strcmp(lines->text, hash) == 0;
  if (!plan->is_certified)
    diag(module->diags, DIAG_certificate_lines, lines->span);
}

Plan *plan_make(Module *module, const Pins *pins) {
  Plan *plan = plan_close(module, pins);
  if (!plan) return NULL;
  if (pins->paths) plan_make_lines(module, pins->paths, plan);
  compare_certificate(module, pins, plan);
  if (!plan->is_certified) plan_warn_implied(module, pins, plan);
  plan_warn_attention(module, pins, plan);
  return plan;
}
