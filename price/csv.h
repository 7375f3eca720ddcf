/*
 * csv.h -- declares a reader of measured tables: CSV files that may come from
 * another machine or version, in which nothing is trusted.
 */
#ifndef PRICE_CSV_H
#define PRICE_CSV_H

#include "support/support.h"

typedef struct CsvCell {
  const char *text; /* text without quotes */
  Span span;
} CsvCell;

typedef struct Csv {
  Arena *arena;
  Diags *diags;
  const Source *source;
  const char *what;   /* "profile", for messages */
  const char *header; /* the first line: names of columns */
  int n_older;        /* columns that an older table has; 0 means all */
  const char *help;   /* command that writes such a table */
} Csv;

/* Gets the cells of a line after the first, as many as the header has; "0" for
 * those that an older table lacks. */
typedef void CsvLine(void *user, const CsvCell *cells, Span line);

/* Reads a table.  Lines end with LF or CR LF; a cell in quotes may have commas,
 * and quotes that are doubled.  Mistakes become diags.  Returns false if there
 * were some, or no line. */
bool csv_read(const Csv *csv, CsvLine *line, void *user);

/* Reads an integer; mistakes become diags. */
bool csv_integer(const Csv *csv, const CsvCell *cell, const char *column,
                 int64_t least, int64_t most, int64_t *out);
bool csv_wrong(const Csv *csv, const CsvCell *cell, const char *column,
               const char *expected); /* false */

#endif
