/*
 * csv.c -- reads measured tables line by line, with a place for every mistake.
 */
#include "price/csv.h"

#include <string.h>

#define BYTE_ORDER_MARK "\xef\xbb\xbf"

enum { MOST_CELLS = 16, LONGEST_LINE = 1 << 16 };

static Span csv_span(const Csv *csv, const char *at, const char *end) {
  return (Span){csv->source, (uint32_t)(at - csv->source->text),
                (uint32_t)(end - csv->source->text)};
}

static int count_columns(const Csv *csv) {
  int n = 1;
  for (const char *at = csv->header; *at; at++) n += *at == ',';
  ASSERT(n <= MOST_CELLS);
  return n;
}

/* The bytes of the first `n` names of columns. */
static size_t header_bytes(const Csv *csv, int n) {
  const char *at = csv->header;
  for (; *at; at++)
    if (*at == ',' && --n == 0) break;
  return (size_t)(at - csv->header);
}

/* The first byte that is no text; NULL: all is. */
static const char *find_byte(const char *at, const char *end) {
  while (at < end) {
    unsigned char c = (unsigned char)*at;
    int n = c < 0x20 || c == 0x7f ? 0 : text_utf8_length(at);
    if (n == 0 || n > end - at) return at;
    at += n;
  }
  return NULL;
}

/* Reads a cell in quotes up to the closing one; NULL: there is none. */
static const char *read_quoted(const Csv *csv, const char *at, const char *end,
                               CsvCell *out) {
  Text text = text_create(csv->arena);
  const char *begin = at++;
  for (; at < end; at++) {
    if (*at == '"' && (at + 1 == end || at[1] != '"')) break;
    at += *at == '"';
    text_add_n(&text, at, 1);
  }
  if (at >= end) return NULL;
  *out = (CsvCell){text_string(&text), csv_span(csv, begin, at + 1)};
  return at + 1;
}

/* Keeps at most MOST_CELLS; returns how many there are, or -1 after a message.
 */
static int read_cells(const Csv *csv, const char *at, const char *end,
                      CsvCell *cells) {
  for (int n = 0;; at++) {
    const char *begin = at;
    CsvCell cell;
    if (at < end && *at == '"') {
      at = read_quoted(csv, at, end, &cell);
    } else {
      while (at < end && *at != ',') at++;
      cell.text = arena_printf(csv->arena, "%.*s", (int)(at - begin), begin);
      cell.span = csv_span(csv, begin, at);
    }
    if (!at || (at < end && *at != ',')) {
      diag(csv->diags, DIAG_csv_quote, csv_span(csv, begin, end));
      return -1;
    }
    if (n < MOST_CELLS) cells[n] = cell;
    n++;
    if (at == end) return n;
  }
}

bool csv_wrong(const Csv *csv, const CsvCell *cell, const char *column,
               const char *expected) {
  diag(csv->diags, DIAG_csv_cell, cell->span, column, cell->text, csv->what,
       expected);
  return false;
}

bool csv_integer(const Csv *csv, const CsvCell *cell, const char *column,
                 int64_t least, int64_t most, int64_t *out) {
  const char *at = cell->text;
  *out = 0;
  while (*at >= '0' && *at <= '9' && *out <= most / 10 + 1)
    *out = *out * 10 + (*at++ - '0');
  if (at > cell->text && !*at && *out >= least && *out <= most) return true;
  return csv_wrong(csv, cell, column,
                   arena_printf(csv->arena, "an integer from %lld to %s",
                                (long long)least,
                                text_with_commas(csv->arena, most)));
}

static void read_line(const Csv *csv, int n_columns, const char *at,
                      const char *end, CsvLine *line, void *user) {
  CsvCell cells[MOST_CELLS];
  if (end - at > LONGEST_LINE) {
    diag(csv->diags, DIAG_csv_line, csv_span(csv, at, at + 1), csv->what,
         LONGEST_LINE);
    return;
  }
  const char *byte = find_byte(at, end);
  if (byte) {
    diag(csv->diags, DIAG_csv_byte, csv_span(csv, byte, byte + 1),
         (int)(unsigned char)*byte, csv->what);
    return;
  }
  int n = read_cells(csv, at, end, cells);
  for (int i = n_columns; i < count_columns(csv); i++)
    cells[i] = (CsvCell){"0", csv_span(csv, at, end)};
  if (n == n_columns)
    line(user, cells, csv_span(csv, at, end));
  else if (n >= 0)
    diag(csv->diags, DIAG_csv_cells, csv_span(csv, at, end), csv->what,
         n_columns,
         arena_printf(csv->arena, "%.*s", (int)header_bytes(csv, n_columns),
                      csv->header),
         n);
}

/* How many columns follow; 0 after a message. */
static int read_header(const Csv *csv, const char *at, const char *end) {
  int counts[] = {count_columns(csv), csv->n_older};
  for (int i = 0; i < ARRAY_LENGTH(counts); i++) {
    size_t n = counts[i] > 0 ? header_bytes(csv, counts[i]) : 0;
    if (n > 0 && (size_t)(end - at) == n && memcmp(at, csv->header, n) == 0)
      return counts[i];
  }
  Diag *d = diag(csv->diags, DIAG_csv_header, csv_span(csv, at, end), csv->what,
                 csv->header);
  diag_help(d, "%s", csv->help);
  return 0;
}

bool csv_read(const Csv *csv, CsvLine *line, void *user) {
  int errors_before = diags_errors(csv->diags), n_lines = 0;
  int n_columns = 0;
  const char *at = csv->source->text, *end = at + csv->source->n;
  size_t mark = strlen(BYTE_ORDER_MARK);
  if (csv->source->n >= mark && memcmp(at, BYTE_ORDER_MARK, mark) == 0)
    at += mark;
  for (bool is_first = true; at < end; is_first = false) {
    const char *line_end = memchr(at, '\n', (size_t)(end - at));
    const char *next = line_end ? line_end + 1 : end;
    if (!line_end) line_end = end;
    if (line_end > at && line_end[-1] == '\r') line_end--;
    /* A wrong first line is told alone. */
    if (is_first) n_columns = read_header(csv, at, line_end);
    if (n_columns == 0) return false;
    if (!is_first && line_end > at) {
      read_line(csv, n_columns, at, line_end, line, user);
      n_lines++;
    }
    at = next;
  }
  if (n_lines == 0)
    diag(csv->diags, DIAG_csv_empty, SPAN_FILE(csv->source), csv->what);
  return diags_errors(csv->diags) == errors_before;
}
