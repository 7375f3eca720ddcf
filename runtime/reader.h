/*
 * reader.h -- a field's values as one long row of numbers.
 */
#ifndef RUNTIME_READER_H
#define RUNTIME_READER_H

#include "runtime/npy.h"

typedef struct Reader {
  uint8_t kind; /* DnnSource */
  InputFile file;
  int64_t header_bytes; /* before the first value */
  NumberFormat format;  /* of a value in the file; 0 bytes: not read there */
  double *numbers;      /* of a CSV file */
  uint64_t key;         /* synthetic */
  int64_t below;
  int64_t n;            /* values */
  int64_t record_items; /* values of a record; 0: the file does not say */
} Reader;

/* `name` is the file, or NULL for synthetic values. `items` is how many values
 * the field wants of a record. */
Status reader_open(Arena *arena, const DnnField *field, const char *name,
                   const char *folder, const char *model_dir, int64_t items,
                   Reader *out);
/* Values [first, first + n); `raw` is room for 8 n bytes. */
Status reader_read(const Reader *reader, int64_t first, int64_t n, void *raw,
                   double *out);
void reader_close(Reader *reader);

#endif
