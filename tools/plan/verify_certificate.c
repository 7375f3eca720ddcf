/*
 * verify_certificate.c -- compares the certificate of a plan with what its
 * program costs now.
 *
 *     certificate { step = 45.81ms }     priced again: 45.81 ms or another step
 *
 * A certificate above lines of another plan says nothing about them and is
 * refused.
 */
#include "driver/trial.h"
#include "price/units/bound_weights.h"
#include "tools/commands/tool_price.h"
#include "tools/plan/verify_certificate.h"

#include "tools/show/inspect.h"

#include <math.h>
#include <string.h>

static const CertificateValue *value_of(const Compilation *c,
                                        CertificateField field) {
  const Certificate *certificate = c->pins ? c->pins->certificate : NULL;
  return certificate && certificate->values[field].is_set
             ? &certificate->values[field]
             : NULL;
}

static bool is_of_program(const Compilation *c) {
  const CertificateValue *program = value_of(c, CERTIFICATE_program);
  char hash[33];
  driver_program_hash(c->model, c->pins, hash);
  return !program || strcmp(program->text, hash) == 0;
}

/* A step is the picoseconds of its text, of which 53 bits are read. */
static bool is_same_step(Ps priced, Ps certified) {
  Ps apart = priced > certified ? priced - certified : certified - priced;
  return apart <= certified >> 52;
}

static void compare_step(Tool *tool, const Compilation *c,
                         const PriceRequest *request, CertificateCheck *out) {
  const CertificateValue *step = value_of(c, CERTIFICATE_step);
  TrialPlan plan = {.pins = c->pins};
  Trial trial;
  if (!step) return;
  if (!driver_try(c, tool->memory, &plan, request, &trial)) {
    out->fault = diags_first_error(trial.module.diags, tool->arena);
    out->is_right = ANSWER_no;
  } else if (is_same_step(trial.priced.price.step, step->amount)) {
    out->is_right = ANSWER_yes;
  } else {
    out->is_right = ANSWER_no;
    out->fault = arena_printf(tool->arena, "a step takes %s, not %s",
                              inspect_ms(tool->arena, trial.priced.price.step),
                              inspect_ms(tool->arena, step->amount));
  }
  driver_end_trial(&trial);
}

/* Bound, gap, weights and restrictions of a certificate agree.  The bound is
 * not computed again: not supported yet. */
static const char *fault_of_bound(const Compilation *c) {
  const CertificateValue *bound = value_of(c, CERTIFICATE_bound);
  const CertificateValue *step = value_of(c, CERTIFICATE_step);
  const CertificateValue *gap = value_of(c, CERTIFICATE_gap);
  const CertificateValue *weights = value_of(c, CERTIFICATE_weights);
  const CertificateValue *list = value_of(c, CERTIFICATE_restrictions);
  BoundWeights read;
  unsigned restrictions = 0;
  if (!bound || !step) return NULL;
  if (bound->amount > step->amount) return "the bound is above the step";
  double is = 1 - (double)bound->amount / (double)step->amount;
  if (!gap || fabs(gap->number - is) > 1e-9)
    return "the gap is not that of bound and step";
  if (!weights || !bound_weights_read(weights->text, &read))
    return "the weights of the bound do not add up";
  if (!list || !restrictions_read(list->text, &restrictions) ||
      restrictions != (1u << N_RESTRICTIONS) - 1)
    return "the bound holds under all restrictions alone, and one is not "
           "listed";
  return NULL;
}

int verify_certificate(Tool *tool, const Compilation *c,
                       CertificateCheck *out) {
  *out = (CertificateCheck){.is_right = ANSWER_not_checked};
  if (!tool->options.cluster || !value_of(c, CERTIFICATE_lines))
    return EXIT_done;
  PriceRequest request = {0};
  if (!c->plan || !c->plan->is_certified) {
    message_print("dnnc: error: the certificate of '%s' is of other lines than "
                  "it has\nhelp: remove the certificate, or search again with "
                  "these lines as pins: dnnc plan %s --plan %s --cluster %s\n",
                  tool->options.plan, tool->options.subject, tool->options.plan,
                  tool->options.cluster);
    return EXIT_user;
  }
  const CertificateValue *what_if = value_of(c, CERTIFICATE_what_if);
  if (what_if) tool_use_what_if(tool, what_if->text);
  int code = tool_price_request(tool, &request);
  if (code != EXIT_done) return code;
  const char *fault = fault_of_bound(c);
  if (is_of_program(c) && !fault) {
    compare_step(tool, c, &request, out);
  } else if (fault) {
    *out = (CertificateCheck){ANSWER_no, fault};
  } else {
    out->is_right = ANSWER_no;
    out->fault = "it is of another program";
  }
  return EXIT_done;
}
