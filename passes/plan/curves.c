/*
 * curves.c -- interpolates between what was measured.
 *
 * A kernel's rate (operations a second, of kernels that move bytes: bytes) is
 * the mean of the rates of all kernels of its operator, each weighted by the
 * inverse fourth power of its distance; two kernels are as far apart as the
 * logarithms of their sizes (Shepard, "A two-dimensional interpolation function
 * for irregularly-spaced data", 1968).
 *
 *     dot 64 x 512 x 784    120 GFLOP/s, 1 apart in m        weight 1
 *     dot 32 x 512 x 784     90 GFLOP/s, measured
 *     dot  8 x 512 x 784     40 GFLOP/s, 2 apart             weight 1/16
 */
#include "passes/plan/curves.h"

#include <stdlib.h>
#include <string.h>

/* ---- kernels ---- */

enum { N_SIZES = 5 };

/* The logarithm to base 2 of a number of at least 1, straight between powers of
 * two: it rises, and is the same on every machine. */
static double log_of(double x) {
  if (x < 1) return 0;
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
  double whole = 1;
  for (int i = 0; i < exponent; i++) whole *= 2;
  return exponent + (x / whole - 1);
}

typedef struct KernelSize {
  double logs[N_SIZES];
  double work; /* of which the rate is */
} KernelSize;

/* Contractions are like others of the same matrices, all else like what moves
 * as many bytes for as many operations. */
static KernelSize size_of(int64_t batch, int64_t m, int64_t n, int64_t k,
                          double flops, double bytes) {
  if (m > 0 && n > 0 && k > 0 && flops > 0)
    return (KernelSize){{log_of((double)batch), log_of((double)m),
                         log_of((double)n), log_of((double)k), 0},
                        flops};
  double intensity = bytes > 0 ? 16 * flops / bytes : 0;
  return (KernelSize){{log_of(bytes), log_of(intensity), 0, 0, 0},
                      bytes > 1 ? bytes : 1};
}

static double distance_squared(const KernelSize *a, const KernelSize *b) {
  double sum = 0;
  for (int i = 0; i < N_SIZES; i++) {
    double d = a->logs[i] - b->logs[i];
    sum += d * d;
  }
  return sum;
}

/* Points with another number of cores count where there are none with this. */
static int cores_measured(const Curves *curves, Op op, DType dtype, int cores) {
  int best = 0;
  for (int i = 0; i < curves->n_kernels; i++) {
    const KernelPoint *point = &curves->kernels[i];
    if (point->op != op || point->dtype != dtype) continue;
    int apart =
        point->cores > cores ? point->cores - cores : cores - point->cores;
    int least = best > cores ? best - cores : cores - best;
    if (best == 0 || apart < least) best = point->cores;
  }
  return best;
}

Ps curves_kernel(const Curves *curves, Op op, const Work *work, int cores) {
  const double nearest = 1.0 / 1024; /* no weight is above its inverse square */
  int measured = cores_measured(curves, op, work->dtype, cores);
  if (measured == 0) return -1;
  KernelSize size = size_of(work->batch, work->m, work->n, work->k, work->flops,
                            (double)(work->read + work->written));
  double sum = 0, weights = 0;
  for (int i = 0; i < curves->n_kernels; i++) {
    const KernelPoint *point = &curves->kernels[i];
    if (point->op != op || point->dtype != work->dtype ||
        point->cores != measured)
      continue;
    KernelSize other = size_of(point->batch, point->m, point->n, point->k,
                               point->flops, (double)point->bytes);
    double apart = distance_squared(&size, &other) + nearest;
    double weight = 1 / (apart * apart);
    sum += weight * other.work / (double)point->ps;
    weights += weight;
  }
  double ps = size.work * weights / sum * measured / cores;
  return ps < 9e18 ? (Ps)(ps + 0.5) : INT64_MAX / 4;
}

/* ---- links ---- */

/* `at` of the way from a to b. */
static Ps between(Ps a, Ps b, double at) {
  return a + (Ps)((double)(b - a) * at);
}

/* The points around `bytes` of groups whose size is nearest. */
static int nearest_ranks(const Curves *curves, Op op, int ranks) {
  int best = 0;
  for (int i = 0; i < curves->n_links; i++) {
    const LinkPoint *point = &curves->links[i];
    if (point->op != op || point->nodes != 1) continue;
    int apart =
        point->ranks > ranks ? point->ranks - ranks : ranks - point->ranks;
    int least = best > ranks ? best - ranks : ranks - best;
    if (best == 0 || apart < least) best = point->ranks;
  }
  return best;
}

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

bool curves_beside(const Curves *curves, int64_t *out_kept,
                   int64_t *out_taken) {
  enum { MOST = 1024 };
  int64_t kept[MOST], taken[MOST];
  int n = 0;
  for (int i = 0; i < curves->n_links && n < MOST; i++) {
    const LinkPoint *point = &curves->links[i];
    if (point->beside <= 0) continue;
    kept[n] =
        point->beside > point->ps
            ? (int64_t)(1000.0 * (double)point->ps / (double)point->beside)
            : 1000;
    taken[n++] = point->taken;
  }
  if (n == 0) return false;
  qsort(kept, (size_t)n, sizeof *kept, by_value);
  qsort(taken, (size_t)n, sizeof *taken, by_value);
  *out_kept = kept[n / 2] > 0 ? kept[n / 2] : 1;
  *out_taken = taken[n / 2];
  return true;
}

bool curves_link(const Curves *curves, Op op, int ranks, Bytes bytes,
                 LinkPoint *out) {
  int measured = nearest_ranks(curves, op, ranks);
  if (measured == 0) return false;
  const LinkPoint *below = NULL, *above = NULL;
  for (int i = 0; i < curves->n_links; i++) {
    const LinkPoint *point = &curves->links[i];
    if (point->op != op || point->nodes != 1 || point->ranks != measured)
      continue;
    if (point->bytes <= bytes && (!below || point->bytes > below->bytes))
      below = point;
    if (point->bytes >= bytes && (!above || point->bytes < above->bytes))
      above = point;
  }
  *out = below ? *below : *above;
  if (below && above && above->bytes > below->bytes) {
    double at =
        (double)(bytes - below->bytes) / (double)(above->bytes - below->bytes);
    out->ps = between(below->ps, above->ps, at);
  } else if (below && !above && below->bytes > 0) {
    double times = (double)bytes / (double)below->bytes;
    out->ps = (Ps)((double)below->ps * times);
  }
  return true;
}
