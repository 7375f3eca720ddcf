/*
 * verify_certificate.h -- declares the check of a plan's certificate, as `dnnc
 * verify` makes it.
 */
#ifndef TOOLS_PLAN_VERIFY_CERTIFICATE_H
#define TOOLS_PLAN_VERIFY_CERTIFICATE_H

#include "tools/commands/tools.h"
#include "verify/verify.h"

typedef struct CertificateCheck {
  Answer is_right;
  const char *fault; /* what is wrong, in words; NULL: nothing */
} CertificateCheck;

/* Prices the plan again on the cluster of the options and compares the step
 * with that of the certificate, whose bound must agree with its own gap,
 * weights and restrictions.  Checks nothing without a cluster or a certificate
 * of lines.  Returns an exit code, after messages unless it is EXIT_done. */
int verify_certificate(Tool *tool, const Compilation *c, CertificateCheck *out);

#endif
