/*
 * explain.h -- declares an Explanation: what a plan decides at a path or with a
 * setting, what it costs there, and what each alternative loses.
 *
 *     PATH -> Subject -> Alternatives -> prices -> tables or JSON
 */
#ifndef TOOLS_EXPLAIN_EXPLAIN_H
#define TOOLS_EXPLAIN_EXPLAIN_H

#include "tools/explain/searches.h"
#include "tools/show/critical_path.h"
#include "tools/show/stage_calls.h"

typedef enum SubjectKind {
  SUBJECT_setting,
  SUBJECT_dim,
  SUBJECT_parameter, /* or another input of the graph */
  SUBJECT_value,
  SUBJECT_operator,
  SUBJECT_layer /* different values, parameters and operators */
} SubjectKind;

/* The thing that PATH names. */
typedef struct Subject {
  SubjectKind kind;
  const char *text; /* in a line of a plan */
  int setting;      /* row of explain_settings.def */
  Name dim;
  PathList paths;
  const PlanNode *node; /* first of its nodes; NULL: a setting or a dim */
  int stage; /* of that node; -1: the plan has one, or all stages are meant */
} Subject;

/* Another decision, as a pin. */
typedef struct Alternative {
  const char *text;    /* "zero = 1", "shard x[0]: B over data" */
  const char *pins;    /* a plan file with this pin alone; or empty */
  const char *changed; /* the plan with this one line changed; or NULL */
  bool is_equal;       /* the plan costs the same with it */
  bool is_legal;
  const char *why; /* the first mistake, if it is not legal or not found */
  Ps step;         /* with this line changed alone */
  Bytes peak;
  bool is_searched, has_found;
  bool is_estimate; /* the price of `found` is an estimate of the search */
  FoundPlan found;  /* by a search with this pin */
  int cut;          /* of `cuts`: the stage that it ends */
} Alternative;

/* Transfers of one kind at the subject. */
typedef struct TransferTerm {
  Op op;
  const char *axes;
  Phase phase;
  int64_t n;
  Bytes sent;
  Ps busy, exposed;
} TransferTerm;

typedef struct PhaseTerm {
  Ps kernels, waits;
} PhaseTerm;

typedef struct Explanation {
  Tool *tool;
  Priced *priced;    /* the plan, with spans */
  Planning planning; /* without pins but for annotations */
  int64_t ranks;
  int effort; /* plans of each search */
  Subject subject;
  const char *decision; /* in words */
  const char *plan_text;
  PhaseTerm phases[N_PHASES];
  Bytes at_peak, persistent;
  VEC(TransferTerm) transfers;
  VEC(Alternative) alternatives;
  const char *why_none; /* why there are no alternatives; or NULL */
} Explanation;

/* ---- subject.c ---- */

/* Finds what PATH names.  Returns false after a message. */
bool explain_subject(Explanation *e, const char *path);
/* Finds the stage of the subject, and looks at its ranks. */
void explain_find_stage(Explanation *e);
/* Says in words what the plan decides. */
const char *explain_decision(const Explanation *e);

/* ---- alternatives.c ---- */

/* Adds the alternatives, without prices. */
void explain_add_alternatives(Explanation *e);

/* ---- stage_decisions.c: `stages`, `cuts`, `schedule` and `bubble` ---- */

/* Returns whether the plan has stages. */
bool explain_has_stages(const Explanation *e);
/* Returns whether the subject is a setting of stages. */
bool explain_is_of_stages(const Explanation *e);
void explain_add_stage_decision(Text *out, const Explanation *e);
void explain_add_cuts(Explanation *e);
/* Searches once for plans with stages, and prices the best `n` of the
 * alternatives that it finds. */
void explain_search_stages(Explanation *e, int n);

/* ---- terms.c ---- */

void explain_add_terms(Explanation *e);

/* ---- losses.c ---- */

/* Prices the plan with each alternative alone, then searches with the best
 * ones as pins, and sorts them by their loss. */
void explain_price(Explanation *e);

/* ---- explain_text.c ---- */

void explain_print(Text *out, const Explanation *e);
void explain_print_json(Text *out, const Explanation *e);

/* ---- stage_text.c ---- */

/* Prints the bubble of each class of ranks; the next one `,"classes":[...]`. */
void explain_print_classes(Text *out, const Explanation *e);
void explain_print_classes_json(Text *out, const Explanation *e);
/* Prints the alternatives to a setting of stages, and how they were found. */
void explain_print_stages(Text *out, const Explanation *e);

#endif
