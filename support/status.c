/*
 * status.c -- keeps the messages of the machine's failures.
 *
 * A Status is returned by value, and its message must outlive the function that
 * made it without an arena at hand.  A ring of the last messages per thread
 * does that: a failure is reported or wrapped long before 64 newer ones exist.
 */
#include "support/support.h"

#include <string.h>

enum { N_KEPT = 64, MESSAGE_BYTES = 512 };

/* The ring is the one mutable object of this folder that is not in an arena;
 * it never influences a result. */
static char *next_message(void) {
  static _Thread_local char ring[N_KEPT][MESSAGE_BYTES];
  static _Thread_local unsigned next;
  return ring[next++ % N_KEPT];
}

/* Formats aside first: an argument may be an older message of the ring.  Where
 * long paths fill the message, it still ends with the cause. */
static Status make(StatusCode code, const char *format, va_list args,
                   const char *suffix) {
  char message[MESSAGE_BYTES];
  char end[MESSAGE_BYTES / 2] = "";
  FixedText cause = fixed_text(end, sizeof end);
  if (suffix) fixed_printf(&cause, ": %s", suffix);
  FixedText text = fixed_text(message, sizeof message - cause.n);
  fixed_vprintf(&text, format, args);
  memcpy(message + text.n, end, cause.n + 1);
  char *kept = next_message();
  memcpy(kept, message, sizeof message);
  return (Status){code, kept};
}

Status status_make(StatusCode code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  Status status = make(code, format, args, NULL);
  va_end(args);
  return status;
}

Status status_errno(int error, const char *format, ...) {
  va_list args;
  va_start(args, format);
  Status status = make(STATUS_io, format, args, strerror(error));
  va_end(args);
  return status;
}
