/*
 * pictures.h -- reads JPEG and PNG files as records of a data field.
 */
#ifndef RUNTIME_DATA_PICTURES_H
#define RUNTIME_DATA_PICTURES_H

#include "runtime/data/reader.h"

/* ---- pictures.c: which pictures there are ---- */

typedef struct Picture {
  const char *folder, *name; /* the file is folder/name */
  const char *word;          /* its class, or NULL */
} Picture;

struct PictureList {
  InputSearch search;
  Picture *items;
  int64_t n, room;
  bool has_numbers; /* the words are integers: labels themselves */
};

/* Lists the pictures that the names stand for: each is a folder of classes, a
 * folder, a list of files or a picture. */
Status pictures_list(Arena *arena, const char *const *names, int n,
                     const InputSearch *search, PictureList *out);
/* Opens a reader of pictures, whose records are read by picture_read; or one
 * of their labels. */
Status pictures_open(Arena *arena, const DnnField *field,
                     const char *const *names, int n, const InputSearch *search,
                     int64_t items, Reader *out);
Status labels_open(Arena *arena, const DnnField *field,
                   const char *const *names, int n, const InputSearch *search,
                   Reader *out);

/* ---- decode.c: from bytes to pixels ---- */

typedef struct Codecs Codecs;

/* Pixels of a picture, from left to right, then down; the memory grows. */
typedef struct Pixels {
  unsigned char *bytes;
  int64_t room;
  int64_t width, height;
  int channels;
} Pixels;

typedef struct Decoder {
  const Codecs *codecs;
  void *jpeg;          /* a handle of libturbojpeg, made when it is needed */
  int64_t most_pixels; /* a larger picture is refused by its header */
  Pixels pixels;
} Decoder;

/* Looks for the libraries.  A library that is missing is reported by the first
 * picture that needs it. */
Status codecs_open(Codecs **out);
void codecs_close(Codecs *codecs);
Decoder decoder_open(const Codecs *codecs);
/* Decodes `n` bytes of the file `path` to 1 or 3 channels, into
 * decoder->pixels. */
Status decoder_read(Decoder *decoder, const char *path,
                    const unsigned char *bytes, int64_t n, int channels);
void decoder_close(Decoder *decoder);

/* ---- augment.c: from pixels to the values of a record ---- */

typedef struct Augmenter {
  float *rows, *weights; /* memory that grows */
  int64_t n_rows, n_weights;
} Augmenter;

/* Resizes, crops, mirrors and normalises pixels to the values of a record of
 * `field`, channel by channel.  In training what is random depends on `key`
 * only.  `path` names the file in a message. */
Status augmenter_run(Augmenter *augmenter, const DnnField *field,
                     const Pixels *pixels, const char *path, bool is_training,
                     uint64_t key, double *out);
void augmenter_close(Augmenter *augmenter);

/* ---- picture_read.c: all of it, on a thread ---- */

typedef struct PictureReader {
  Decoder decoder;
  Augmenter augmenter;
  unsigned char *file;
  int64_t file_room;
  double *row; /* values of a record */
  int64_t row_room;
} PictureReader;

PictureReader picture_reader_open(const Codecs *codecs);
/* Reads record `at` of a reader of pictures into reader->row. */
Status picture_read(PictureReader *reader, const Reader *from,
                    const DnnField *field, int64_t at, bool is_training,
                    uint64_t key);
void picture_reader_close(PictureReader *reader);

/* ---- team.c: threads that read beside a step ---- */

typedef struct Team Team;
typedef Status TeamBody(void *arg, int worker, int64_t item);

Status team_create(int n_threads, Team **out);
/* Calls body(arg, worker, item) for the items 0..n-1 and returns at once.  The
 * work before it has been waited for. */
void team_start(Team *team, TeamBody *body, void *arg, int64_t n);
/* Waits for the end of it; returns the failure of the first item that failed,
 * of whatever number of threads. */
Status team_wait(Team *team);
void team_destroy(Team *team);

#endif
