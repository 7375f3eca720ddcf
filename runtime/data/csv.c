/*
 * csv.c -- reads rows of text into numbers: RFC 4180 with its quotes.
 *
 *     id,species,"length, mm"
 *     1,"Iris ""blue""",5.1
 *
 * A field in quotes may hold separators, line ends and doubled quotes.  The
 * separator of a file is the comma, semicolon or tab that comes first outside
 * quotes.  Lines end with LF or CRLF; empty ones are skipped.  The text streams
 * through a buffer, so only the numbers take memory.
 */
#include "runtime/data/reader.h"

#include <stdlib.h>
#include <string.h>

enum {
  BUFFER = 1 << 16,
  MOST_FIELD = 1 << 20,
  MOST_CLASSES_BYTES = 16 << 20,
  MOST_NUMBERS = 1 << 29, /* 4 GiB */
  SHOWN = 40              /* bytes of a field in a message */
};

/* How a field ends. */
typedef enum End { END_field, END_record, END_file, END_failed } End;

typedef struct Csv {
  Reader *reader;
  const DnnField *field;
  bool is_stream;
  unsigned char buffer[BUFFER];
  int64_t read, begin, end; /* bytes of the file; of the buffer */
  char separator;           /* 0: not known yet */
  int64_t line;             /* of the next byte, from 1 */
  int64_t record_line;      /* where the record begins */
  char *text;               /* of the field */
  int64_t n, capacity;
  bool was_quoted, has_mark; /* has_mark: a byte-order mark begins the file */
  int64_t first, last;       /* columns */
  int64_t numbers_room;      /* of reader->numbers */
  const char **classes;      /* in order of names; NULL: numbers */
  int32_t *class_index;      /* of each */
  int32_t n_classes;
  Status status;
} Csv;

/* ---- bytes ---- */

static bool csv_refill(Csv *csv) {
  int64_t n = 0;
  if (csv->status.code != STATUS_ok) return false;
  csv->status =
      input_next(&csv->reader->file, csv->read, csv->buffer, BUFFER, &n);
  csv->read += n;
  csv->begin = 0;
  csv->end = n;
  return n > 0;
}

static int csv_peek(Csv *csv) {
  if (csv->begin == csv->end && !csv_refill(csv)) return -1;
  return csv->buffer[csv->begin];
}

static int next_byte(Csv *csv) {
  int c = csv_peek(csv);
  if (c >= 0) csv->begin++;
  if (c == '\n') csv->line++;
  return c;
}

static bool csv_keep_byte(Csv *csv, int c) {
  if (csv->n == csv->capacity) {
    int64_t capacity = csv->capacity ? 2 * csv->capacity : 256;
    char *text =
        capacity <= MOST_FIELD ? realloc(csv->text, (size_t)capacity) : NULL;
    if (!text) {
      csv->status =
          status_make(STATUS_invalid,
                      "'%s', line %lld: a field has more than %d "
                      "bytes",
                      csv->reader->file.path, (long long)csv->line, MOST_FIELD);
      return false;
    }
    csv->text = text;
    csv->capacity = capacity;
  }
  csv->text[csv->n++] = (char)c;
  return true;
}

/* ---- fields ---- */

static End end_of(const Csv *csv, int c) {
  if (csv->status.code != STATUS_ok) return END_failed;
  return c < 0 ? END_file : c == '\n' ? END_record : END_field;
}

/* Asked of bytes outside quotes; the first separator is that of the file. */
static bool is_end(Csv *csv, int c) {
  if (!csv->separator && (c == ',' || c == ';' || c == '\t'))
    csv->separator = (char)c;
  return c < 0 || c == '\n' || (csv->separator && c == csv->separator);
}

static bool is_blank(int c) {
  return c == ' ' || c == '\r' || c == '\t';
}

/* After the opening quote. */
static End read_quoted(Csv *csv) {
  int64_t line = csv->line;
  for (;;) {
    int c = next_byte(csv);
    if (c < 0) break;
    if (c == '"' && csv_peek(csv) != '"') {
      while (!is_end(csv, csv_peek(csv)) && is_blank(csv_peek(csv)))
        next_byte(csv);
      if (is_end(csv, csv_peek(csv))) return end_of(csv, next_byte(csv));
      csv->status = status_make(STATUS_invalid,
                                "'%s', line %lld: there is text after the "
                                "closing quote of a field; a quote inside is "
                                "written twice",
                                csv->reader->file.path, (long long)csv->line);
      return END_failed;
    }
    if (c == '"') next_byte(csv);
    if (!csv_keep_byte(csv, c)) return END_failed;
  }
  if (csv->status.code == STATUS_ok)
    csv->status =
        status_make(STATUS_invalid, "'%s', line %lld: a quote is never closed",
                    csv->reader->file.path, (long long)line);
  return END_failed;
}

/* The next field in csv->text, without spaces around it. */
static End read_field(Csv *csv) {
  csv->n = 0;
  csv->was_quoted = false;
  while (!is_end(csv, csv_peek(csv)) && is_blank(csv_peek(csv))) next_byte(csv);
  if (csv_peek(csv) == '"') {
    next_byte(csv);
    csv->was_quoted = true;
    return read_quoted(csv);
  }
  while (!is_end(csv, csv_peek(csv)))
    if (!csv_keep_byte(csv, next_byte(csv))) return END_failed;
  while (csv->n > 0 && is_blank(csv->text[csv->n - 1])) csv->n--;
  return end_of(csv, next_byte(csv));
}

/* ---- classes ---- */

static int by_text(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char *const *find_class(const Csv *csv, const char *text) {
  return bsearch(&text, csv->classes, (size_t)csv->n_classes,
                 sizeof *csv->classes, by_text);
}

/* `names` in the order of their numbers. */
static Status sort_classes(Arena *arena, Csv *csv, const char *const *names,
                           int32_t n) {
  csv->n_classes = n;
  csv->classes = ARENA_ARRAY(arena, const char *, n);
  csv->class_index = ARENA_ARRAY(arena, int32_t, n);
  if (n) memcpy(csv->classes, names, sizeof *names * (size_t)n);
  qsort(csv->classes, (size_t)n, sizeof *csv->classes, by_text);
  for (int32_t i = 0; i + 1 < n; i++)
    if (strcmp(csv->classes[i], csv->classes[i + 1]) == 0)
      return status_make(STATUS_invalid, "'%s' has the class '%.*s' twice",
                         csv->field->path, SHOWN, csv->classes[i]);
  for (int32_t i = 0; i < n; i++)
    csv->class_index[find_class(csv, names[i]) - csv->classes] = i;
  return STATUS_OK;
}

/* One class a line. */
static Status read_classes(Arena *arena, const InputSearch *search, Csv *csv) {
  InputFile file;
  Status status =
      input_open(arena, csv->field->classes_file, search, NULL, &file);
  if (status.code != STATUS_ok) return status;
  int64_t n = file.n;
  if (n > MOST_CLASSES_BYTES)
    status = status_make(STATUS_invalid, "'%s' has more than %d bytes",
                         file.path, MOST_CLASSES_BYTES);
  char *text = NULL;
  if (status.code == STATUS_ok) {
    text = arena_alloc(arena, (size_t)n + 1);
    status = input_read(&file, 0, text, n);
  }
  input_close(&file);
  if (status.code != STATUS_ok) return status;
  VEC(const char *) names = {0};
  text[n] = '\0';
  for (char *line = text; *line;) {
    size_t length = strcspn(line, "\n");
    char *next = line[length] ? line + length + 1 : line + length;
    while (length > 0 && is_blank(line[length - 1])) length--;
    line[length] = '\0';
    if (length > 0) vec_push(arena, &names, line);
    line = next;
  }
  return sort_classes(arena, csv, names.data, names.n);
}

static Status class_unknown(const Csv *csv, int64_t column) {
  const char *nearest = text_nearest(
      csv->text, (const char *const *)csv->classes, csv->n_classes);
  return status_make(
      STATUS_invalid,
      "'%s', line %lld, column %lld: '%.*s' is none of the %d classes of '%s'"
      "%s%.*s%s",
      csv->reader->file.path, (long long)csv->record_line, (long long)column,
      SHOWN, csv->text, csv->n_classes, csv->field->path,
      nearest ? "; did you mean '" : "", SHOWN, nearest ? nearest : "",
      nearest ? "'?" : "");
}

/* ---- values ---- */

static Status add_number(Csv *csv, double value) {
  Reader *reader = csv->reader;
  if (reader->n == csv->numbers_room) {
    int64_t room = csv->numbers_room ? 2 * csv->numbers_room : 4096;
    if (room > MOST_NUMBERS)
      return status_make(STATUS_invalid,
                         "'%s' has more than %d numbers, which is the most "
                         "that is read from text; save them with np.save",
                         reader->file.path, MOST_NUMBERS);
    double *numbers =
        realloc(reader->numbers, (size_t)room * sizeof *reader->numbers);
    if (!numbers)
      return status_make(STATUS_io, "no memory for the numbers of '%s'",
                         reader->file.path);
    reader->numbers = numbers;
    csv->numbers_room = room;
  }
  reader->numbers[reader->n++] = value;
  return STATUS_OK;
}

/* Why the first line of a file may be no numbers. */
static const char *help_for_line(const Csv *csv) {
  if (csv->record_line != 1) return "";
  if (csv->has_mark)
    return "\nhelp: the file begins with a byte-order mark (EF BB BF); save it "
           "as UTF-8 without one";
  return csv->field->header_lines > 0
             ? ""
             : "\nhelp: if the first line names the columns, add header = 1 "
               "to csv(...)";
}

static Status not_a_number(const Csv *csv, const char *where) {
  if (csv->n == 0)
    return status_make(STATUS_invalid, "%s: the field is empty%s", where,
                       help_for_line(csv));
  return status_make(STATUS_invalid, "%s: '%.*s' is not a number%s", where,
                     SHOWN, csv->text, help_for_line(csv));
}

/* The current field, which is in a requested column. */
static Status take_value(Csv *csv, int64_t column) {
  double value;
  if (!csv_keep_byte(csv, '\0')) return csv->status;
  csv->n--;
  if (csv->classes) {
    const char *const *found = find_class(csv, csv->text);
    if (!found) return class_unknown(csv, column);
    value = csv->class_index[found - csv->classes];
  }
  int64_t item = csv->is_stream ? -1 : column - csv->first;
  bool is_number =
      csv->classes || (strlen(csv->text) == (size_t)csv->n &&
                       text_read_real(csv->text, (size_t)csv->n, &value));
  if (is_number && value_is_right(csv->field, item, value))
    return add_number(csv, value);
  char where[READER_PLACE];
  FixedText place = fixed_text(where, sizeof where);
  fixed_printf(&place, "'%s', line %lld, column %lld", csv->reader->file.path,
               (long long)csv->record_line, (long long)column);
  return is_number ? value_wrong(csv->field, item, value, where)
                   : not_a_number(csv, where);
}

/* ---- records ---- */

typedef Status TakeField(Csv *csv, int64_t column, void *user);

/* One record; *out_columns is 0 for an empty line. */
static End read_record(Csv *csv, TakeField *take, void *user,
                       int64_t *out_columns) {
  *out_columns = 0;
  if (csv->line == 1 && csv_peek(csv) >= 0)
    csv->has_mark = csv->end >= 3 && !memcmp(csv->buffer, "\xef\xbb\xbf", 3);
  csv->record_line = csv->line;
  for (;;) {
    End end = read_field(csv);
    bool is_last = end == END_record || end == END_file;
    if (end == END_failed) return end;
    if (is_last && *out_columns == 0 && csv->n == 0 && !csv->was_quoted)
      return end;
    csv->status = take(csv, (*out_columns)++, user);
    if (csv->status.code != STATUS_ok) return END_failed;
    if (is_last) return end;
  }
}

static Status take_row(Csv *csv, int64_t column, void *user) {
  (void)user;
  if (column < csv->first || column > csv->last) return STATUS_OK;
  return take_value(csv, column);
}

typedef struct Columns {
  Arena *arena;
  Text names; /* of the header, for a message */
  int64_t first, last;
} Columns;

static Status take_name(Csv *csv, int64_t column, void *user) {
  Columns *columns = user;
  if (!csv_keep_byte(csv, '\0')) return csv->status;
  bool is_marked = column == 0 && csv->has_mark && csv->record_line == 1;
  const char *name = csv->text + (is_marked ? 3 : 0);
  if (column < 20)
    text_printf(&columns->names, "%s'%.*s'", column ? ", " : "", SHOWN, name);
  if (columns->first < 0 && strcmp(name, csv->field->first_name) == 0)
    columns->first = column;
  if (columns->last < 0 && strcmp(name, csv->field->last_name) == 0)
    columns->last = column;
  return STATUS_OK;
}

static Status skip_name(Csv *csv, int64_t column, void *user) {
  (void)csv;
  (void)column;
  (void)user;
  return STATUS_OK;
}

/* The header; where columns have names, its last record has them. */
static Status read_header(Arena *arena, Csv *csv) {
  const DnnField *field = csv->field;
  Columns columns = {arena, text_create(arena), -1, -1};
  int64_t n = 0;
  for (int64_t i = 1; i <= field->header_lines; i++) {
    bool has_names = field->first_name && i == field->header_lines;
    End end = read_record(csv, has_names ? take_name : skip_name, &columns, &n);
    if (end == END_failed) return csv->status;
  }
  if (!field->first_name) return STATUS_OK;
  csv->first = columns.first;
  csv->last = columns.last;
  const char *missing = columns.first < 0  ? field->first_name
                        : columns.last < 0 ? field->last_name
                                           : NULL;
  if (missing)
    return status_make(
        STATUS_invalid, "'%s' has no column '%.*s'; line %lld has %s",
        csv->reader->file.path, SHOWN, missing, (long long)csv->record_line,
        text_string(&columns.names));
  if (csv->first <= csv->last) return STATUS_OK;
  return status_make(STATUS_invalid,
                     "'%s': column '%.*s' comes after column '%.*s'",
                     csv->reader->file.path, SHOWN, field->first_name, SHOWN,
                     field->last_name);
}

static Status read_rows(Csv *csv) {
  for (End end = END_record; end == END_record;) {
    int64_t columns;
    end = read_record(csv, take_row, NULL, &columns);
    if (end == END_failed) return csv->status;
    if (columns > 0 && columns <= csv->last)
      return status_make(
          STATUS_invalid,
          "'%s', line %lld has %lld columns; %lld are needed"
          "\nhelp: columns count from 0, so the last one is %lld",
          csv->reader->file.path, (long long)csv->record_line,
          (long long)columns, (long long)csv->last + 1, (long long)columns - 1);
  }
  return csv->status;
}

Status csv_open(Arena *arena, const DnnField *field, const InputSearch *search,
                bool is_stream, Reader *reader) {
  Csv *csv = calloc(1, sizeof *csv);
  if (!csv) return status_make(STATUS_io, "no memory to read rows of text");
  csv->reader = reader;
  csv->field = field;
  csv->is_stream = is_stream;
  csv->line = 1;
  csv->first = field->first_column;
  csv->last = field->last_column;
  Status status = STATUS_OK;
  if (field->classes_file)
    status = read_classes(arena, search, csv);
  else if (field->n_classes)
    status = sort_classes(arena, csv, field->classes, field->n_classes);
  if (status.code == STATUS_ok) status = read_header(arena, csv);
  if (status.code == STATUS_ok) status = read_rows(csv);
  reader->record_items = csv->last - csv->first + 1;
  free(csv->text);
  free(csv);
  return status;
}
