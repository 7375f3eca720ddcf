/*
 * scan_region.c -- tells which scans the elaboration is inside: whether one
 * goes over a dim, which value a slice comes from, and what a scan forbids.
 */
#include "frontend/elaborate/scan.h"

#include <string.h>

bool scan_forbids(Elab *e, Span span, const char *what) {
  if (!e->scan) return false;
  const char *last = e->scan->forbidden;
  if (last && strcmp(last, what) == 0) return true; /* of a layer's several */
  e->scan->forbidden = what;
  Diag *d = diag(e->diags, DIAG_scan_inside, span, what);
  diag_note(d, e->scan->stmt->dim_span, "the scan begins here");
  return true;
}

bool scan_slices(const Elab *e, Name dim) {
  for (const Scan *scan = e->scan; scan; scan = scan->around)
    if (scan->dim == dim) return true;
  return false;
}

bool scan_outer(const Elab *e, Value inner, Value *out) {
  for (const Scan *scan = e->scan; scan; scan = scan->around)
    for (int i = 0; i < scan->slices.n; i++)
      if (value_equal(scan->slices.data[i].inner, inner)) {
        *out = scan->slices.data[i].outer;
        return true;
      }
  return false;
}
