/*
 * verify_certificate.h -- declares the check of a plan's certificate, as `dnnc
 * verify` makes it.
 */
#ifndef TOOLS_PLAN_VERIFY_CERTIFICATE_H
#define TOOLS_PLAN_VERIFY_CERTIFICATE_H

#include "tools/commands/tools.h"
#include "verify/verify.h"

typedef struct CertificateCheck {
  bool is_there;
  bool lacks_cluster; /* there is one, and no machines to price the plan on */
  Answer is_right;
  const char *fault; /* what is wrong, in words; NULL: nothing */
  bool has_bound;
  /* Why the bound was not computed again, though nothing else is wrong; NULL:
   * it was, or there is none. */
  const char *bound_not_checked;
} CertificateCheck;

/* Prices the plan again on the cluster of the options and compares the step
 * with that of the certificate.  Its bound must agree with its gap, weights and
 * restrictions, and is computed again without the search.  Checks nothing
 * without a cluster or a certificate of lines.  Returns an exit code, after
 * messages unless it is EXIT_done. */
int verify_certificate(Tool *tool, const Compilation *c, CertificateCheck *out);

#endif
