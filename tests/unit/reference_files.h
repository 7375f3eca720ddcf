/*
 * reference_files.h -- what tests/reference holds, for the tests that compare
 * with it: MODEL.dnn, MODEL.csv (the data), MODEL.safetensors (param/PATH,
 * grad/PATH, loss, f32_error/PATH; of ten steps what record_vision.py lists).
 * Only what the record*.py write is read.
 */
#ifndef TESTS_UNIT_REFERENCE_FILES_H
#define TESTS_UNIT_REFERENCE_FILES_H

#include "runtime/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Recorded {
  StoredHeader header;
  const char *data; /* what the offsets of the header count from */
} Recorded;

static inline Status recorded_open(Arena *arena, const char *path,
                                   Recorded *out) {
  const char *bytes;
  size_t n;
  uint64_t header;
  TRY(file_read(arena, path, 1 << 30, &bytes, &n));
  memcpy(&header, bytes, n < sizeof header ? 0 : sizeof header);
  if (n < sizeof header || header > n - sizeof header)
    return status_make(STATUS_invalid, "'%s' is no safetensors file", path);
  out->data = bytes + sizeof header + header;
  return safetensors_parse(arena, bytes + sizeof header, header,
                           (int64_t)(n - sizeof header - header), &out->header);
}

static inline const StoredTensor *
recorded_find(const Recorded *recorded, const char *prefix, const char *path) {
  size_t n = strlen(prefix);
  for (int i = 0; i < recorded->header.n_tensors; i++) {
    const StoredTensor *tensor = &recorded->header.tensors[i];
    if (strncmp(tensor->name, prefix, n) == 0 &&
        strcmp(tensor->name + n, path) == 0)
      return tensor;
  }
  return NULL;
}

static inline int64_t recorded_elements(const StoredTensor *tensor) {
  int64_t n = 1;
  for (int i = 0; i < tensor->rank; i++) n *= tensor->size[i];
  return n;
}

/* Elements of an F32 or F64 tensor. */
static inline double *recorded_values(Arena *arena, const Recorded *recorded,
                                      const StoredTensor *tensor) {
  int64_t n = recorded_elements(tensor);
  double *values = ARENA_ARRAY(arena, double, n);
  const char *from = recorded->data + tensor->begin;
  for (int64_t i = 0; i < n; i++) {
    float narrow;
    if (tensor->dtype == DNN_f64) {
      memcpy(&values[i], from + 8 * i, 8);
    } else {
      memcpy(&narrow, from + 4 * i, 4);
      values[i] = narrow;
    }
  }
  return values;
}

/* Fills `out` with columns first..last of all lines of a file of numbers;
 * returns how many of at most `n` were there. */
static inline int64_t recorded_csv(Arena *arena, const char *path,
                                   int64_t first, int64_t last, double *out,
                                   int64_t n) {
  const char *text;
  size_t bytes;
  int64_t column = 0, filled = 0;
  Status status = file_read(arena, path, 1 << 24, &text, &bytes);
  if (status.code != STATUS_ok) return -1;
  for (char *end; *text; text = end + 1) {
    double value = strtod(text, &end);
    if (*end != ',' && *end != '\n') return -1;
    if (column >= first && column <= last) {
      if (filled == n) return -1;
      out[filled++] = value;
    }
    column = *end == ',' ? column + 1 : 0;
  }
  return filled;
}

/* What the error of a gradient is relative to that is zero but for rounding. */
static inline double recorded_floor(Arena *arena, const Recorded *recorded) {
  const StoredTensor *floor = recorded_find(recorded, "floor", "");
  return floor ? recorded_values(arena, recorded, floor)[0] : 0;
}

/* ||got - wanted|| / ||wanted|| in L2, or / floor where ||wanted|| is less than
 * a millionth of it. */
static inline double error_above(double floor, const double *got,
                                 const double *wanted, int64_t n) {
  double error = 0, norm = 0;
  for (int64_t i = 0; i < n; i++) {
    double d = got[i] - wanted[i];
    error += d * d;
    norm += wanted[i] * wanted[i];
  }
  norm = sqrt(norm) < 1e-6 * floor ? floor : sqrt(norm);
  return norm > 0 ? sqrt(error) / norm : sqrt(error);
}

static inline double relative_error(const double *got, const double *wanted,
                                    int64_t n) {
  return error_above(0, got, wanted, n);
}

#endif
