/*
 * verify_certificate.c -- compares the certificate of a plan with what its
 * program costs now.
 *
 *     certificate { step = 45.81ms }     priced again: 45.81 ms or another step
 *
 * A certificate above lines of another plan says nothing about them and is
 * refused.  The bound is computed again over the whole space by
 * planner/recheck, which shares no table with the search.
 */
#include "driver/trial.h"
#include "planner/recheck/recheck.h"
#include "tools/commands/planning.h"
#include "tools/commands/tool_price.h"
#include "tools/plan/one_rank.h"
#include "tools/plan/plan_load.h"
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

/* Prices the plan again.  The caller ends the trial. */
static void compare_step(Tool *tool, const Compilation *c,
                         const PriceRequest *request, Trial *trial,
                         CertificateCheck *out) {
  Ps step = value_of(c, CERTIFICATE_step)->amount;
  TrialPlan plan = {.pins = c->pins};
  if (!driver_try(c, tool->memory, &plan, request, trial)) {
    out->fault = diags_first_error(trial->module.diags, tool->arena);
    out->is_right = ANSWER_no;
  } else if (is_same_step(trial->priced.price.step, step)) {
    out->is_right = ANSWER_yes;
  } else {
    out->is_right = ANSWER_no;
    out->fault = arena_printf(tool->arena, "a step takes %s, not %s",
                              inspect_ms(tool->arena, trial->priced.price.step),
                              inspect_ms(tool->arena, step));
  }
}

/* ---- the bound ---- */

/* The floor of the program, which is computed again, bounds every plan. */
static bool is_floor_alone(const Compilation *c) {
  const CertificateValue *list = value_of(c, CERTIFICATE_restrictions);
  const char *name = restriction_name(RESTRICTION_floor_alone);
  return list && strcmp(list->text, name) == 0;
}

static void check_floor(const Trial *trial, const BoundClaim *claim,
                        CertificateCheck *out) {
  if (claim->bound <= planning_floor(&trial->priced)) return;
  out->is_right = ANSWER_no;
  out->fault = "the bound is above the floor";
}

/* Returns how bound, gap, weights and restrictions disagree, or NULL. */
static const char *read_claim(const Compilation *c, BoundClaim *out,
                              unsigned *out_restrictions) {
  const CertificateValue *step = value_of(c, CERTIFICATE_step);
  const CertificateValue *gap = value_of(c, CERTIFICATE_gap);
  const CertificateValue *weights = value_of(c, CERTIFICATE_weights);
  const CertificateValue *list = value_of(c, CERTIFICATE_restrictions);
  out->bound = value_of(c, CERTIFICATE_bound)->amount;
  out->step = step->amount;
  if (out->bound > out->step) return "the bound is above the step";
  double is = 1 - (double)out->bound / (double)out->step;
  if (!gap || fabs(gap->number - is) > 1e-9)
    return "the gap is not that of bound and step";
  if (is_floor_alone(c)) return NULL;
  if (!weights || !bound_weights_read(weights->text, &out->weights))
    return "the weights of the bound do not add up";
  if (!list || !restrictions_read(list->text, out_restrictions) ||
      !restrictions_suffice(*out_restrictions))
    return "the bound holds under all restrictions alone, and one is not "
           "listed";
  if (c->plan && c->plan->stages.n > 1 &&
      restrictions_stages(*out_restrictions) == STAGES_none)
    return "the plan has stages, and the bound is of plans without";
  return NULL;
}

/* Files are named from the folder of the plan. */
static const char *beside_plan(const Tool *tool, const char *name, int n) {
  const char *plan = tool->options.plan, *slash = strrchr(plan, '/');
  return arena_printf(tool->arena, "%.*s%.*s",
                      slash ? (int)(slash - plan) + 1 : 0, plan, n, name);
}

static int refuse_duals(Tool *tool, const CertificateValue *named,
                        const char *why) {
  Diag *d = diag(tool->module.diags, DIAG_failed, named->span, why);
  diag_help(d, "'dnnc plan -o PLAN' writes the duals of a wide program beside "
               "the plan; both files belong together");
  tool_report(tool);
  return EXIT_user;
}

/* Reads the file that the certificate names with its hash.  Returns an exit
 * code. */
static int read_duals(Tool *tool, const CertificateValue *named,
                      const BoundDuals **out) {
  enum { MOST_DUALS_BYTES = 64 << 20 };
  const char *hash = strrchr(named->text, ' '), *text;
  char is[33];
  size_t n;
  BoundDuals *duals;
  if (!hash)
    return refuse_duals(tool, named,
                        "the duals have no hash behind their "
                        "name");
  const char *path = beside_plan(tool, named->text, (int)(hash - named->text));
  Status status = file_read(tool->arena, path, MOST_DUALS_BYTES, &text, &n);
  if (status.code != STATUS_ok)
    return refuse_duals(tool, named, status.message);
  hash_hex(text, n, is);
  if (strcmp(is, hash + 1) != 0)
    return refuse_duals(tool, named,
                        arena_printf(tool->arena,
                                     "'%s' has the hash %s: it is not the file "
                                     "that the plan was written with",
                                     path, is));
  status = bound_duals_read(tool->arena, path, text, n, &duals);
  if (status.code != STATUS_ok) return tool_fail(status);
  *out = duals;
  return EXIT_done;
}

static const char *below(Arena *arena, const Bound *found) {
  Text out = text_create(arena);
  text_add(&out, "the bound is not one: plans");
  if (found->by != BOUND_BY_work) {
    text_add(&out, " of ");
    bound_setting_print(&out, &found->setting);
  }
  text_printf(&out, " may take %s, see 'limit'",
              inspect_ms(arena, found->time));
  return text_string(&out);
}

/* Returns whether the search gap is that of the largest load of the plan. */
static bool is_search_gap(Arena *arena, const Compilation *c,
                          const Trial *trial, const BoundRequest *space,
                          const BoundClaim *claim) {
  const CertificateValue *gap = value_of(c, CERTIFICATE_search_gap);
  if (!gap) return true;
  PlanLoad load = plan_load(arena, trial, space);
  return !load.reason &&
         fabs(plan_search_gap(&load, claim->bound) - gap->number) < 1e-9;
}

static void check_bound(Tool *tool, const Compilation *c,
                        const PriceRequest *request, const Trial *trial,
                        const BoundClaim *claim, unsigned restrictions,
                        CertificateCheck *out) {
  OneRank program;
  BoundRequest space;
  Bound found = {.reason = "the program of one rank has no price"};
  if (one_rank_compile(tool, c, request, c->ranks, &program))
    found.reason =
        one_rank_bound(tool->arena, &program, c->pins, restrictions, &space);
  bool is_narrow = restrictions >> RESTRICTION_whole_loops & 1;
  if (!found.reason && !is_narrow && units_loop(tool->arena, space.units)) {
    out->is_right = ANSWER_no;
    out->fault = "the bound is of plans whose loops are whole, and no "
                 "restriction says so";
    return;
  }
  if (!found.reason) found = recheck_bound(tool->arena, &space, claim);
  if (found.reason) {
    out->is_right = ANSWER_not_checked;
    out->bound_not_checked = found.reason;
  } else if (found.fault) {
    out->is_right = ANSWER_no;
    out->fault = found.fault;
  } else if (!recheck_holds(&found, claim)) {
    out->is_right = ANSWER_no;
    out->fault = below(tool->arena, &found);
  } else if (!is_search_gap(tool->arena, c, trial, &space, claim)) {
    out->is_right = ANSWER_no;
    out->fault = "the search gap is not that of the bound and the largest load "
                 "of the plan";
  }
}

static void check(Tool *tool, const Compilation *c, const PriceRequest *request,
                  const BoundDuals *duals, CertificateCheck *out) {
  BoundClaim claim = {.duals = duals};
  unsigned restrictions = 0;
  out->has_bound =
      value_of(c, CERTIFICATE_bound) && value_of(c, CERTIFICATE_step);
  if (out->has_bound) out->fault = read_claim(c, &claim, &restrictions);
  if (!is_of_program(c)) out->fault = "it is of another program";
  if (out->fault) {
    out->is_right = ANSWER_no;
    return;
  }
  if (!value_of(c, CERTIFICATE_step)) return;
  Trial trial;
  compare_step(tool, c, request, &trial, out);
  bool has_more = out->has_bound && out->is_right == ANSWER_yes;
  if (has_more && is_floor_alone(c))
    check_floor(&trial, &claim, out);
  else if (has_more)
    check_bound(tool, c, request, &trial, &claim, restrictions, out);
  driver_end_trial(&trial);
}

int verify_certificate(Tool *tool, const Compilation *c,
                       CertificateCheck *out) {
  *out = (CertificateCheck){.is_right = ANSWER_not_checked};
  if (!value_of(c, CERTIFICATE_lines)) return EXIT_done;
  out->lacks_cluster = !tool->options.cluster;
  if (out->lacks_cluster) return EXIT_done;
  PriceRequest request = {0};
  out->is_there = true;
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
  const CertificateValue *named = value_of(c, CERTIFICATE_duals);
  const BoundDuals *duals = NULL;
  if (named) code = read_duals(tool, named, &duals);
  if (code != EXIT_done) return code;
  check(tool, c, &request, duals, out);
  return EXIT_done;
}
