/*
 * scan.h -- declares the scan whose body is being elaborated: scan.c builds it,
 * and scan_region.c answers questions about it.
 */
#ifndef FRONTEND_ELABORATE_SCAN_H
#define FRONTEND_ELABORATE_SCAN_H

#include "frontend/elaborate/elaborate.h"

typedef struct Scan Scan;

typedef struct Placeholder {
  Value outer; /* value in the enclosing graph; of a carry the initial one */
  Value inner; /* the input of the body */
  Name name;
  Span span;
} Placeholder;

struct Scan {
  const Stmt *stmt;
  Name dim;
  int64_t steps;         /* 0 means not known yet */
  const char *forbidden; /* the name that was reported last, or NULL */
  int64_t unroll; /* iterations in one pass of the loop; 0 means not given */
  int n_nodes, n_inputs; /* sizes of the graph before the body */
  VEC(Placeholder) carries, slices;
  VEC(Local) locals; /* locals of the frame before the body */
  ExprValue result;
  int n_results;
  Scan *around; /* the scan that encloses it, or NULL */
  Value *outs;  /* new values of the carries, then the results */
};

/* ---- scan.c ---- */

void exec_scan(Elab *e, const Stmt *stmt);

/* ---- scan_region.c ---- */

/* Reports and returns true if the body of a scan is being elaborated. */
bool scan_forbids(Elab *e, Span span, const char *what);
/* Finds the value whose slices the input `inner` of a scan's body takes. */
bool scan_outer(const Elab *e, Value inner, Value *out);
/* Returns whether an enclosing scan goes over this dim. */
bool scan_slices(const Elab *e, Name dim);

#endif
