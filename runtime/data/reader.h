/*
 * reader.h -- reads the values of a field, of any format, as one long row of
 * numbers.
 */
#ifndef RUNTIME_READER_H
#define RUNTIME_READER_H

#include "runtime/cpu/cpu.h"
#include "runtime/data/npy.h"

typedef struct Reader {
  uint8_t kind; /* SourceKind */
  InputFile file;
  int64_t header_bytes; /* bytes before the first value */
  /* Form of a value in the file; 0 bytes mean that it is not read there. */
  NumberFormat format;
  double *numbers; /* numbers of a CSV file */
  uint64_t key;    /* synthetic */
  int64_t below;
  int64_t n; /* values */
  /* Values of a record; 0 means that the file does not say. */
  int64_t record_items;
} Reader;

/* Opens a reader.  `is_stream` means that a sample may begin at any
 * value.  `name` is the file, or NULL for synthetic values.  `items` is how
 * many values the field wants of a record. */
Status reader_open(Arena *arena, const DnnField *field, const char *name,
                   const InputSearch *search, int64_t items, bool is_stream,
                   Reader *out);
/* Reads values [first, first + n); `raw` is room for 8 n bytes. */
Status reader_read(const Reader *reader, int64_t first, int64_t n, void *raw,
                   double *out);
/* Reads values as reader_read does; threads share the work of making long rows.
 */
Status reader_read_with(const Threads *threads, const Reader *reader,
                        int64_t first, int64_t n, void *raw, double *out);
void reader_close(Reader *reader);

/* ---- csv.c ---- */

/* Reads all of reader->file, which is open. */
Status csv_open(Arena *arena, const DnnField *field, const InputSearch *search,
                bool is_stream, Reader *reader);

/* ---- limits.c ---- */

enum { READER_PLACE = 400 }; /* bytes of a place in a message */

/* Returns whether the field takes this value for element `item` of a sample; of
 * item -1, which may be any, only what holds for all elements is asked. */
bool value_is_right(const DnnField *field, int64_t item, double value);
/* Returns the first of the elements of a sample that the field does not
 * accept.  Returns `n` if it accepts all. */
int64_t values_find_wrong(const DnnField *field, const double *values,
                          int64_t n);
/* Fails with the reason why it does not; `where` begins the message. */
Status value_wrong(const DnnField *field, int64_t item, double value,
                   const char *where);

#endif
