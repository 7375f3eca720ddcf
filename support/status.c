/*
 * status.c -- messages of the machine's failures.
 *
 * A Status is returned by value and its message must outlive the frame that
 * made it without an arena at hand.  A ring of the last messages per thread
 * does that: a failure is reported or wrapped long before 64 newer ones exist.
 */
#include "support/support.h"

#include <stdio.h>
#include <string.h>

enum { N_KEPT = 64, MESSAGE_BYTES = 512 };

/* The ring is the one mutable object of this folder that is not in an arena;
 * it never influences a result. */
static char *next_message(void) {
  static _Thread_local char ring[N_KEPT][MESSAGE_BYTES];
  static _Thread_local unsigned next;
  return ring[next++ % N_KEPT];
}

/* Formats aside first: an argument may be an older message of the ring. */
static Status make(StatusCode code, const char *format, va_list args,
                   const char *suffix) {
  char message[MESSAGE_BYTES];
  int n = vsnprintf(message, sizeof message, format, args);
  if (suffix && n >= 0 && n < MESSAGE_BYTES)
    snprintf(message + n, sizeof message - (size_t)n, ": %s", suffix);
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
