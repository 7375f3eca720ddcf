/*
 * fuzz_pictures.c -- throws damaged JPEG and PNG files at the reader of
 * pictures (libFuzzer); run.sh builds and starts it.  What is taken becomes
 * values from 0 to 1 of every form of a record, in memory that is bounded.
 *
 * The first two bytes choose channels, crop and size of the record.
 */
#include "runtime/data/pictures.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MOST_PIXELS = 1 << 18, SIDE = 16 };

static void check_values(const double *values, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (!(values[i] >= -1e-6 && values[i] <= 1 + 1e-6)) abort();
}

/* Some are too small for their crop. */
static void augment(const Pixels *pixels, int form, int side) {
  Augmenter augmenter = {0};
  DnnField field = {.path = "d.x",
                    .dtype = DNN_f32,
                    .rank = 4,
                    .size = {1, pixels->channels, side, SIDE},
                    .crop = form % 4,
                    .resize_rows = form & 4 ? SIDE : 0,
                    .resize_columns = form & 8 ? side : 0,
                    .pad = form % 4 == CROP_random ? 3 : 0,
                    .flips = 1,
                    .scale = 1,
                    .std = {1, 1, 1}};
  double *out = malloc(sizeof *out * (size_t)(pixels->channels * side * SIDE));
  if (!out) abort();
  for (uint64_t key = 0; key < 4; key++)
    if (augmenter_run(&augmenter, &field, pixels, "x", key > 0, key, out)
            .code == STATUS_ok)
      check_values(out, pixels->channels * side * SIDE);
  free(out);
  augmenter_close(&augmenter);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static Codecs *codecs; /* the libraries stay open */
  if (n < 2) return 0;
  if (!codecs && codecs_open(&codecs).code != STATUS_ok) return 0;
  Decoder decoder = decoder_open(codecs);
  decoder.most_pixels = MOST_PIXELS;
  Status status = decoder_read(&decoder, "fuzz", data + 2, (int64_t)n - 2,
                               data[0] & 1 ? 1 : 3);
  if (decoder.pixels.room > 4 * MOST_PIXELS) abort();
  if (status.code == STATUS_ok)
    augment(&decoder.pixels, data[0] >> 1 & 15, 1 + data[1] % 40);
  decoder_close(&decoder);
  return 0;
}
