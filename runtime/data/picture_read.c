/*
 * picture_read.c -- reads a record of pictures: the file, its pixels, the
 * values.  Each thread has a PictureReader of its own.
 */
#include "runtime/data/pictures.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_BYTES = 1 << 28 };

PictureReader picture_reader_open(const Codecs *codecs) {
  return (PictureReader){.decoder = decoder_open(codecs)};
}

/* All bytes of a file into reader->file. */
static Status read_file(PictureReader *reader, const char *path,
                        const InputSearch *search, int64_t *out_n) {
  InputFile file;
  TRY(input_open_path(path, search, &file));
  Status status = STATUS_OK;
  if (file.n > MOST_BYTES) {
    status = status_make(STATUS_invalid,
                         "'%s' has %lld bytes; the most that are read of a "
                         "picture are %d",
                         path, (long long)file.n, MOST_BYTES);
  } else if (file.n > reader->file_room) {
    free(reader->file);
    reader->file = malloc((size_t)file.n);
    reader->file_room = reader->file ? file.n : 0;
    if (!reader->file)
      status = status_make(STATUS_io, "no memory to read '%s'", path);
  }
  if (status.code == STATUS_ok)
    status = input_read(&file, 0, reader->file, file.n);
  *out_n = file.n;
  input_close(&file);
  return status;
}

Status picture_read(PictureReader *reader, const Reader *from,
                    const DnnField *field, int64_t at, bool is_training,
                    uint64_t key) {
  const Picture *picture = &from->pictures->items[at];
  int channels = (int)field->size[1];
  int64_t items = field->size[1] * field->size[2] * field->size[3], n;
  char path[PATH_MAX];
  int length = snprintf(path, sizeof path, "%s%s%s", picture->folder,
                        *picture->folder ? "/" : "", picture->name);
  if (length >= (int)sizeof path)
    return status_make(STATUS_invalid, "the path '%.100s...' is too long",
                       path);
  if (items > reader->row_room) {
    free(reader->row);
    reader->row = malloc(sizeof(double) * (size_t)items);
    reader->row_room = reader->row ? items : 0;
    if (!reader->row)
      return status_make(STATUS_io, "no memory to read '%s'", path);
  }
  TRY(read_file(reader, path, &from->pictures->search, &n));
  TRY(decoder_read(&reader->decoder, path, reader->file, n, channels));
  return augmenter_run(&reader->augmenter, field, &reader->decoder.pixels, path,
                       is_training, key, reader->row);
}

void picture_reader_close(PictureReader *reader) {
  decoder_close(&reader->decoder);
  augmenter_close(&reader->augmenter);
  free(reader->file);
  free(reader->row);
  *reader = (PictureReader){0};
}
