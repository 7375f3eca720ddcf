/*
 * support.h -- declares what every other folder uses; support depends on no
 * other folder.
 *
 * Three kinds of failure are never mixed: the user's mistake is a Diag, the
 * machine's failure is a Status, our mistake is an ASSERT.  Memory is the
 * exception to Status: every byte of a compilation comes from one Memory, whose
 * owner (the tool) decides how the process ends when there is no more, so that
 * no other line of the compiler has to check an allocation.
 */
#ifndef SUPPORT_H
#define SUPPORT_H

#include "support/base.h"
#include "support/diag.h"
#include "support/file.h"
#include "support/random.h"
#include "support/text.h"

#endif
