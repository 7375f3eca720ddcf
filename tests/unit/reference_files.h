/*
 * reference_files.h -- reads the files of tests/reference, for the tests that
 * compare with them: MODEL.dnn, MODEL.csv (the data), MODEL.safetensors. The
 * head of tests/reference/recorder.py, which has the same formulas, describes
 * the last one and how numbers are made and sketched.
 */
#ifndef TESTS_UNIT_REFERENCE_FILES_H
#define TESTS_UNIT_REFERENCE_FILES_H

#include "runtime/checkpoint/checkpoint.h"

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

/* The scale of the error of a gradient that is zero but for rounding. */
static inline double recorded_floor(Arena *arena, const Recorded *recorded) {
  const StoredTensor *floor = recorded_find(recorded, "floor", "");
  return floor ? recorded_values(arena, recorded, floor)[0] : 0;
}

/* ||got - wanted|| / ||wanted|| in L2. */
static inline double relative_error(const double *got, const double *wanted,
                                    int64_t n) {
  double error = 0, norm = 0;
  for (int64_t i = 0; i < n; i++) {
    double d = got[i] - wanted[i];
    error += d * d;
    norm += wanted[i] * wanted[i];
  }
  return sqrt(error) / (norm > 0 ? sqrt(norm) : 1);
}

/* ---- made numbers and sketches ---- */

enum { RECORDED_SUMS = 16 };

static inline uint64_t recorded_key(const char *path) {
  uint64_t key = 0xcbf29ce484222325;
  for (; *path; path++) key = (key ^ (uint8_t)*path) * 0x100000001b3;
  return key;
}

/* splitmix64 */
static inline uint64_t recorded_bits(uint64_t key, int64_t i) {
  uint64_t z = key + ((uint64_t)i + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

/* The parameter or state `path` before the first step, or NULL. */
static inline double *recorded_made(Arena *arena, const Recorded *recorded,
                                    const char *path, int64_t *out_n) {
  const StoredTensor *made = recorded_find(recorded, "made/", path);
  const StoredTensor *seed = recorded_find(recorded, "seed", "");
  if (!made || !seed) return NULL;
  const double *spec = recorded_values(arena, recorded, made);
  double first = recorded_values(arena, recorded, seed)[0];
  uint64_t key = recorded_key(path) + (uint64_t)first;
  int64_t n = 1;
  for (int64_t d = 2; d < recorded_elements(made); d++) n *= (int64_t)spec[d];
  double *values = ARENA_ARRAY(arena, double, n);
  for (int64_t i = 0; i < n; i++) {
    double top = (double)(recorded_bits(key, i) >> 40);
    values[i] = (float)(spec[1] + spec[0] * ((top - 0x1p23) / 0x1p23));
  }
  *out_n = n;
  return values;
}

/* How far `got` lies in L2 from the tensor of which the record is a sketch,
 * relative to that one's norm, or to `floor` where the norm is less than a
 * millionth of it; -1: the record is of another size. */
static inline double recorded_distance(Arena *arena, const Recorded *recorded,
                                       const StoredTensor *record,
                                       const char *path, double floor,
                                       const double *got, int64_t n) {
  const double *wanted = recorded_values(arena, recorded, record);
  int n_sums = (int)recorded_elements(record) - 1;
  bool is_whole = n <= RECORDED_SUMS;
  double sums[RECORDED_SUMS] = {0}, error = 0;
  if (n_sums != (is_whole ? n : RECORDED_SUMS)) return -1;
  uint64_t key = recorded_key(path);
  for (int64_t i = 0; i < n && !is_whole; i++) {
    uint64_t bits = recorded_bits(key, i);
    for (int j = 0; j < RECORDED_SUMS; j++)
      sums[j] += bits >> j & 1 ? got[i] : -got[i];
  }
  for (int j = 0; j < n_sums; j++) {
    double d = (is_whole ? got[j] : sums[j]) - wanted[j + 1];
    error += is_whole ? d * d : d * d / n_sums;
  }
  double norm = wanted[0] < 1e-6 * floor ? floor : wanted[0];
  return norm > 0 ? sqrt(error) / norm : sqrt(error);
}

#endif
