/*
 * augment.c -- makes the values of a record of the pixels of a picture: resize,
 * crop, mirror, normalise.
 *
 * Resizing is linear and, where it makes a picture smaller, averages over the
 * pixels that an output pixel covers: the weights are a triangle as wide as the
 * scale, as in PIL and torchvision with antialias.  Only the part that a crop
 * leaves is computed.  What is random follows from a key by counters, so a
 * record has the same values on any thread, rank or step at which a run was
 * resumed.
 */
#include "runtime/data/pictures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One axis: part of the picture, its size after resizing, and where the
 * record begins in that; before 0 and after `size` is black. */
typedef struct Axis {
  int64_t picture; /* pixels of the picture */
  double begin, length;
  int64_t size, offset;
} Axis;

/* Pixels of the picture that an output pixel is made of. */
typedef struct Taps {
  int64_t first, n;
  const float *weights;
} Taps;

enum { TRIES = 10 };

/* ---- where the record lies ---- */

/* 0..n, both included. */
static int64_t choose(uint64_t key, uint64_t index, int64_t n) {
  return (int64_t)random_below(key, index, (uint64_t)n + 1);
}

/* The largest part in the middle that has the shape of the record. */
static void take_middle(const DnnField *field, Axis *y, Axis *x) {
  double rows = (double)field->size[2], columns = (double)field->size[3];
  double height = y->length, width = x->length;
  double scale = fmin(height / rows, width / columns);
  y->length = rows * scale;
  x->length = columns * scale;
  y->begin = (height - y->length) / 2;
  x->begin = (width - x->length) / 2;
  y->size = field->size[2];
  x->size = field->size[3];
}

/* A part of 8 to 100 % of the area, 3:4 to 4:3 (Szegedy et al. 2014).  Uses
 * nothing that the libraries of two machines may round in two ways. */
static void take_part(const DnnField *field, uint64_t key, Axis *y, Axis *x) {
  double area = y->length * x->length;
  for (uint64_t i = 0; i < TRIES; i++) {
    double share = 0.08 + 0.92 * random_uniform(key, 8 + 4 * i);
    double side = 2 * random_uniform(key, 9 + 4 * i) - 1;
    double ratio = side < 0 ? 1 / (1 - side / 3) : 1 + side / 3;
    int64_t width = (int64_t)llround(sqrt(area * share * ratio));
    int64_t height = (int64_t)llround(sqrt(area * share / ratio));
    if (width < 1 || height < 1 || (double)width > x->length ||
        (double)height > y->length)
      continue;
    y->begin = (double)choose(key, 10 + 4 * i, (int64_t)y->length - height);
    x->begin = (double)choose(key, 11 + 4 * i, (int64_t)x->length - width);
    y->length = (double)height;
    x->length = (double)width;
    y->size = field->size[2];
    x->size = field->size[3];
    return;
  }
  take_middle(field, y, x);
}

static void set_sizes(const DnnField *field, Axis *y, Axis *x) {
  int64_t rows = field->resize_rows, columns = field->resize_columns;
  if (!rows) return;
  if (columns) {
    y->size = rows;
    x->size = columns;
    return;
  }
  bool is_wide = x->size > y->size;
  Axis *shorter = is_wide ? y : x, *longer = is_wide ? x : y;
  longer->size = rows * longer->size / shorter->size;
  shorter->size = rows;
}

static Status too_small(const DnnField *field, const char *path, const Axis *y,
                        const Axis *x) {
  bool is_cropped = field->crop != CROP_none;
  return status_make(STATUS_invalid,
                     "'%s' has %lld x %lld pixels%s, but '%s' takes %s%lld x "
                     "%lld; %s",
                     path, (long long)x->size, (long long)y->size,
                     field->resize_rows ? " after 'resize'" : "", field->path,
                     is_cropped ? "at least " : "", (long long)field->size[3],
                     (long long)field->size[2],
                     is_cropped ? "a larger 'resize' helps"
                                : "'resize' or 'crop' gives all one size");
}

static Status place_window(const DnnField *field, const char *path,
                           bool is_training, uint64_t key, Axis *y, Axis *x) {
  if (field->crop == CROP_scaled && is_training)
    return take_part(field, key, y, x), STATUS_OK;
  if (field->crop == CROP_scaled && !field->resize_rows)
    return take_middle(field, y, x), STATUS_OK;
  set_sizes(field, y, x);
  bool is_random = field->crop == CROP_random && is_training;
  int64_t pad = is_random ? field->pad : 0;
  int64_t rows = y->size + 2 * pad - field->size[2];
  int64_t columns = x->size + 2 * pad - field->size[3];
  if (rows < 0 || columns < 0 ||
      (field->crop == CROP_none && (rows > 0 || columns > 0)))
    return too_small(field, path, y, x);
  y->offset = is_random ? choose(key, 0, rows) - pad : rows / 2;
  x->offset = is_random ? choose(key, 1, columns) - pad : columns / 2;
  return STATUS_OK;
}

/* ---- resampling ---- */

static bool make_room(float **data, int64_t *room, int64_t n) {
  if (n <= *room) return true;
  free(*data);
  *data = malloc(sizeof(float) * (size_t)n);
  *room = *data ? n : 0;
  return *data != NULL;
}

/* The most pixels that an output pixel is made of. */
static int64_t most_taps(const Axis *axis) {
  double scale = axis->length / (double)axis->size;
  return 2 * (int64_t)ceil(fmax(scale, 1)) + 2;
}

/* Output pixel i of the record; no taps where it is beyond the picture. */
static Taps find_taps(const Axis *axis, int64_t i, float *weights) {
  int64_t at = axis->offset + i;
  if (at < 0 || at >= axis->size) return (Taps){0};
  double scale = axis->length / (double)axis->size, support = fmax(scale, 1);
  double centre = axis->begin + ((double)at + 0.5) * scale;
  int64_t low = (int64_t)floor(axis->begin);
  int64_t high = (int64_t)ceil(axis->begin + axis->length);
  if (high > axis->picture) high = axis->picture;
  int64_t first = (int64_t)floor(centre - support + 0.5);
  int64_t end = (int64_t)floor(centre + support + 0.5);
  if (first < low) first = low;
  if (end > high) end = high;
  double sum = 0;
  for (int64_t k = first; k < end; k++)
    sum += 1 - fmin(fabs((double)k + 0.5 - centre) / support, 1);
  for (int64_t k = first; k < end; k++)
    weights[k - first] =
        (float)((1 - fmin(fabs((double)k + 0.5 - centre) / support, 1)) / sum);
  return (Taps){first, end - first, weights};
}

/* One row of the picture, resampled: `columns` pixels of all channels. */
static void resample_row(const unsigned char *row, int channels,
                         const Taps *taps, int64_t columns, float *out) {
  for (int64_t i = 0; i < columns; i++)
    for (int c = 0; c < channels; c++) {
      const unsigned char *at = row + taps[i].first * channels + c;
      float sum = 0;
      for (int64_t k = 0; k < taps[i].n; k++)
        sum += taps[i].weights[k] * at[k * channels];
      *out++ = sum;
    }
}

typedef struct Resampling {
  const DnnField *field;
  const Pixels *pixels;
  const Axis *y;
  const Taps *columns;
  float *rows; /* resampled rows of the picture, from row `first` on */
  int64_t first;
  bool is_mirrored;
  double *out;
} Resampling;

/* The value of a pixel, 0 to 255, before arithmetic of the model. */
static double normalise(const DnnField *field, int c, double value) {
  double unit = value * (1.0 / 255);
  return (unit - field->mean[c]) / field->std[c];
}

/* Row `i` of the record. */
static void write_row(const Resampling *r, int64_t i, Taps taps) {
  int64_t rows = r->field->size[2], columns = r->field->size[3];
  int channels = r->pixels->channels;
  int64_t step = columns * channels;
  for (int64_t x = 0; x < columns; x++)
    for (int c = 0; c < channels; c++) {
      const float *at =
          r->rows + (taps.first - r->first) * step + x * channels + c;
      float sum = 0;
      for (int64_t k = 0; k < taps.n; k++)
        sum += taps.weights[k] * at[k * step];
      int64_t to = r->is_mirrored ? columns - 1 - x : x;
      r->out[(c * rows + i) * columns + to] = normalise(r->field, c, sum);
    }
}

/* The rows of the picture that the rows [0, n) of the record are made of. */
static void find_rows(const Axis *y, int64_t n, float *weights,
                      int64_t *out_first, int64_t *out_end) {
  *out_first = INT64_MAX;
  *out_end = 0;
  for (int64_t i = 0; i < n; i++) {
    Taps taps = find_taps(y, i, weights);
    if (!taps.n) continue;
    if (taps.first < *out_first) *out_first = taps.first;
    if (taps.first + taps.n > *out_end) *out_end = taps.first + taps.n;
  }
  if (*out_first > *out_end) *out_first = *out_end;
}

static Status resample(Augmenter *a, const DnnField *field,
                       const Pixels *pixels, const Axis *y, const Axis *x,
                       bool is_mirrored, double *out) {
  int64_t rows = field->size[2], columns = field->size[3], first, end;
  int64_t each = most_taps(x), others = most_taps(y);
  Taps *taps = malloc(sizeof *taps * (size_t)columns);
  if (!taps ||
      !make_room(&a->weights, &a->n_weights, columns * each + others)) {
    free(taps);
    return status_make(STATUS_io, "no memory to resize a picture");
  }
  for (int64_t i = 0; i < columns; i++)
    taps[i] = find_taps(x, i, a->weights + i * each);
  float *weights = a->weights + columns * each;
  find_rows(y, rows, weights, &first, &end);
  int64_t step = columns * pixels->channels;
  if (!make_room(&a->rows, &a->n_rows, (end - first) * step + 1)) {
    free(taps);
    return status_make(STATUS_io, "no memory to resize a picture");
  }
  for (int64_t i = first; i < end; i++)
    resample_row(pixels->bytes + i * pixels->width * pixels->channels,
                 pixels->channels, taps, columns, a->rows + (i - first) * step);
  Resampling r = {field, pixels, y, taps, a->rows, first, is_mirrored, out};
  for (int64_t i = 0; i < rows; i++) write_row(&r, i, find_taps(y, i, weights));
  free(taps);
  return STATUS_OK;
}

/* Pixels as they are: a window of the picture. */
static void copy(const DnnField *field, const Pixels *pixels, const Axis *y,
                 const Axis *x, bool is_mirrored, double *out) {
  int64_t rows = field->size[2], columns = field->size[3];
  int channels = pixels->channels;
  for (int c = 0; c < channels; c++) {
    double values[256];
    for (int v = 0; v < 256; v++) values[v] = normalise(field, c, v);
    for (int64_t i = 0; i < rows; i++)
      for (int64_t k = 0; k < columns; k++) {
        int64_t row = y->offset + i;
        int64_t column = x->offset + (is_mirrored ? columns - 1 - k : k);
        bool is_inside = row >= 0 && row < pixels->height && column >= 0 &&
                         column < pixels->width;
        int64_t at = (row * pixels->width + column) * channels + c;
        *out++ = values[is_inside ? pixels->bytes[at] : 0];
      }
  }
}

Status augmenter_run(Augmenter *augmenter, const DnnField *field,
                     const Pixels *pixels, const char *path, bool is_training,
                     uint64_t key, double *out) {
  int64_t height = pixels->height, width = pixels->width;
  Axis y = {height, 0, (double)height, height, 0};
  Axis x = {width, 0, (double)width, width, 0};
  TRY(place_window(field, path, is_training, key, &y, &x));
  bool is_mirrored =
      field->flips && is_training && random_uniform(key, 2) < 0.5;
  bool is_copied = y.begin == 0 && x.begin == 0 && y.size == height &&
                   x.size == width && y.length == (double)height &&
                   x.length == (double)width;
  if (!is_copied)
    return resample(augmenter, field, pixels, &y, &x, is_mirrored, out);
  copy(field, pixels, &y, &x, is_mirrored, out);
  return STATUS_OK;
}

void augmenter_close(Augmenter *augmenter) {
  free(augmenter->rows);
  free(augmenter->weights);
  *augmenter = (Augmenter){0};
}
