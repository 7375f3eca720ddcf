/*
 * duals_reader.h -- declares how files of duals are read: words and numbers
 * between blanks and newlines.  The first fault stays, with its place.
 */
#ifndef PLANNER_RECHECK_DUALS_READER_H
#define PLANNER_RECHECK_DUALS_READER_H

#include "planner/recheck/duals.h"

typedef struct DualsReader {
  Arena *arena;
  const char *name, *text, *at, *end;
  const char *fault; /* NULL: none */
} DualsReader;

void duals_fail(DualsReader *r, const char *fault);
/* Skips blanks and newlines. */
void duals_skip(DualsReader *r);
/* Reads a word that must be there. */
void duals_word(DualsReader *r, const char *wanted, const char *fault);
/* Reads a number of at most 63 bits. */
int64_t duals_number(DualsReader *r);
/* Reads a number from 0 to 2147483647. */
int duals_index(DualsReader *r);
/* Reads a length: each item takes `bytes` of text or more. */
int duals_length(DualsReader *r, int bytes);
/* Reads duals, which other text may follow. */
void duals_read(DualsReader *r, FactorDuals *out);
/* Returns the fault as "NAME:LINE:COLUMN: ...", or that there is none. */
Status duals_status(const DualsReader *r);

#endif
