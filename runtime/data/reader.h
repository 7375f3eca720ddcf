/*
 * reader.h -- reads the values of a field, of any format, as one long row of
 * numbers.
 */
#ifndef RUNTIME_READER_H
#define RUNTIME_READER_H

#include "runtime/cpu/cpu.h"
#include "runtime/data/npy.h"

typedef struct Reader Reader;
typedef struct PictureList PictureList;

struct Reader {
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
  const char *shape; /* "[3, 32, 32]" of a record, or NULL */
  /* Several files, one after the other: part i has the values from begins[i]
   * on, begins[n_parts] is `n`.  No parts: the reader is of one file. */
  Reader *parts;
  int64_t *begins;
  int n_parts;
  const PictureList *pictures; /* or NULL; `n` counts their values */
};

/* Opens a reader of the files that the `n` names stand for, which may be
 * patterns; of none for synthetic values.  `is_stream` means that a sample may
 * begin at any value.  `items` is how many values the field wants of a
 * record.  What was opened is closed by reader_close after a failure too. */
Status reader_open(Arena *arena, const DnnField *field,
                   const char *const *names, int n, const InputSearch *search,
                   int64_t items, bool is_stream, Reader *out);
/* Returns the part that has value `at`, which is moved to its first value. */
const Reader *reader_part(const Reader *reader, int64_t *at);
/* Returns the bytes that stay in memory. */
int64_t reader_resident_bytes(const Reader *reader);
/* Unpacks what is unpacked as it is read. */
Status reader_check_packed(const Reader *reader);
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
