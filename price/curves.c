/*
 * curves.c -- interpolates between what was measured.
 *
 * The work of a launch is the time that its operations take at the best rate of
 * all kernels of its operator, or its bytes at theirs, whichever is longer
 * (Williams, Waterman and Patterson, "Roofline", 2009): so a matmul with few
 * rows, which reads its weights, is more work than its operations say.  How
 * much of this rate a launch reaches is that of a plane through the kernels,
 * over the logarithms of their sizes.  The plane is fitted by least squares,
 * each kernel weighted by the inverse fourth power of its distance (Cleveland,
 * "Robust locally weighted regression", 1979; the weights are Shepard's, 1968).
 *
 *     dot 64 x 512 x 784    0.8, 1 apart in m        weight 1
 *     dot 32 x 512 x 784    asked for
 *     dot  8 x 512 x 784    0.5, 2 apart             weight 1/16
 *
 * A penalty on slopes keeps the plane flat in directions in which nothing was
 * measured, and its share is at least half and at most twice the weighted mean.
 * Of 303 matmuls of four models on two cores, each predicted from those of
 * other sizes, the mean error is 7 %; that of the weighted mean of operations a
 * second is 11 %.
 */
#include "price/curves.h"

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
  double flops, bytes; /* bytes: at least 1 */
} KernelSize;

/* Contractions are like others of the same matrices, convolutions like those
 * with as much padding; all else is like what moves as many bytes for as many
 * operations. */
static KernelSize size_of(int64_t batch, int64_t m, int64_t n, int64_t k,
                          double flops, double bytes) {
  KernelSize size = {.flops = flops, .bytes = bytes > 1 ? bytes : 1};
  if (m > 0 && n > 0 && k > 0 && flops > 0) {
    const int64_t sizes[] = {batch, m, n, k};
    for (int i = 0; i < ARRAY_LENGTH(sizes); i++)
      size.logs[i] = log_of((double)sizes[i]);
    double with_padding = 2 * (double)batch * (double)m * (double)n * (double)k;
    size.logs[ARRAY_LENGTH(sizes)] = log_of(with_padding / flops);
  } else {
    size.logs[0] = log_of(bytes);
    size.logs[1] = log_of(16 * flops / size.bytes);
  }
  return size;
}

static KernelSize size_of_point(const KernelPoint *point) {
  return size_of(point->batch, point->m, point->n, point->k, point->flops,
                 (double)point->bytes);
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

/* ---- the plane ---- */

enum { N_TERMS = 1 + N_SIZES };

/* Sums over weighted points: of terms, and of terms times rates. */
typedef struct Plane {
  double terms[N_TERMS][N_TERMS];
  double rates[N_TERMS];
} Plane;

static void plane_add(Plane *plane, const double *apart, double weight,
                      double rate) {
  double terms[N_TERMS] = {1};
  for (int i = 0; i < N_SIZES; i++) terms[1 + i] = apart[i];
  for (int i = 0; i < N_TERMS; i++) {
    plane->rates[i] += weight * terms[i] * rate;
    for (int j = 0; j < N_TERMS; j++)
      plane->terms[i][j] += weight * terms[i] * terms[j];
  }
}

/* Its rate at the origin.  The penalty makes the sums positive definite, so
 * elimination needs no other pivots. */
static double plane_rate(Plane *plane) {
  const double penalty = 0.3; /* of a slope, against the sum of all weights */
  double weights = plane->terms[0][0];
  for (int i = 1; i < N_TERMS; i++) plane->terms[i][i] += penalty * weights;
  for (int i = N_TERMS - 1; i > 0; i--)
    for (int row = 0; row < i; row++) {
      double factor = plane->terms[row][i] / plane->terms[i][i];
      for (int k = 0; k <= i; k++)
        plane->terms[row][k] -= factor * plane->terms[i][k];
      plane->rates[row] -= factor * plane->rates[i];
    }
  return plane->rates[0] / plane->terms[0][0];
}

/* A launch that is asked for, and the kernels that answer. */
typedef struct Question {
  const Curves *curves;
  Op op;
  DType dtype;
  int cores;
  double most_flops, most_bytes; /* of one of them, in a picosecond */
} Question;

static bool answers(const Question *question, const KernelPoint *point) {
  return point->op == question->op && point->dtype == question->dtype &&
         point->cores == question->cores;
}

static void find_best_rates(Question *question) {
  for (int i = 0; i < question->curves->n_kernels; i++) {
    const KernelPoint *point = &question->curves->kernels[i];
    if (!answers(question, point)) continue;
    KernelSize size = size_of_point(point);
    double flops = size.flops / (double)point->ps;
    double bytes = size.bytes / (double)point->ps;
    if (flops > question->most_flops) question->most_flops = flops;
    if (bytes > question->most_bytes) question->most_bytes = bytes;
  }
}

/* Picoseconds at the best rate. */
static double work_of(const Question *question, const KernelSize *size) {
  double flops =
      question->most_flops > 0 ? size->flops / question->most_flops : 0;
  double bytes = size->bytes / question->most_bytes;
  return flops > bytes ? flops : bytes;
}

static Plane fit_plane(const Question *question, const KernelSize *size) {
  const double nearest = 1.0 / 1024; /* no weight is above its inverse square */
  Plane plane = {0};
  for (int i = 0; i < question->curves->n_kernels; i++) {
    const KernelPoint *point = &question->curves->kernels[i];
    if (!answers(question, point)) continue;
    KernelSize other = size_of_point(point);
    double apart[N_SIZES], squared = nearest;
    for (int k = 0; k < N_SIZES; k++) {
      apart[k] = other.logs[k] - size->logs[k];
      squared += apart[k] * apart[k];
    }
    plane_add(&plane, apart, 1 / (squared * squared),
              work_of(question, &other) / (double)point->ps);
  }
  return plane;
}

Ps curves_kernel(const Curves *curves, Op op, const Work *work, int cores) {
  Question question = {.curves = curves, .op = op, .dtype = work->dtype};
  question.cores = cores_measured(curves, op, work->dtype, cores);
  if (question.cores == 0) return -1;
  find_best_rates(&question);
  KernelSize size =
      size_of(work->batch, work->m, work->n, work->k, work_useful_flops(work),
              (double)(work->read + work->written));
  Plane plane = fit_plane(&question, &size);
  double mean = plane.rates[0] / plane.terms[0][0], share = plane_rate(&plane);
  if (share < mean / 2) share = mean / 2;
  if (share > mean * 2) share = mean * 2;
  double ps = work_of(&question, &size) / share * question.cores / cores;
  return ps < 9e18 ? (Ps)(ps + 0.5) : INT64_MAX / 4;
}

/* ---- links ---- */

/* `at` of the way from a to b. */
static Ps between(Ps a, Ps b, double at) {
  return a + (Ps)((double)(b - a) * at);
}

static bool is_like(const LinkPoint *point, Op op, LinkReach reach) {
  return point->op == op && (point->nodes > 1) == (reach == REACH_between);
}

static int nearest_ranks(const Curves *curves, Op op, LinkReach reach,
                         int ranks) {
  int best = 0;
  for (int i = 0; i < curves->n_links; i++) {
    const LinkPoint *point = &curves->links[i];
    if (!is_like(point, op, reach)) continue;
    int apart =
        point->ranks > ranks ? point->ranks - ranks : ranks - point->ranks;
    int least = best > ranks ? best - ranks : ranks - best;
    if (best == 0 || apart < least) best = point->ranks;
  }
  return best;
}

bool curves_beside(const Curves *curves, Op op, LinkReach reach, int ranks,
                   Bytes bytes, LinkPoint *out) {
  int most = -1, least_ranks = 0;
  double least_size = 0;
  for (int i = 0; i < curves->n_links; i++) {
    const LinkPoint *point = &curves->links[i];
    if (point->beside <= 0) continue;
    int likeness = 2 * (point->op == op) +
                   ((point->nodes > 1) == (reach == REACH_between));
    int apart =
        point->ranks > ranks ? point->ranks - ranks : ranks - point->ranks;
    double a = (double)point->bytes + 1, b = (double)bytes + 1;
    double size = a > b ? a / b : b / a;
    bool is_equal = likeness == most;
    if (likeness < most || (is_equal && apart > least_ranks) ||
        (is_equal && apart == least_ranks && size >= least_size))
      continue;
    *out = *point;
    most = likeness;
    least_ranks = apart;
    least_size = size;
  }
  return most >= 0;
}

bool curves_link(const Curves *curves, Op op, LinkReach reach, int ranks,
                 Bytes bytes, LinkPoint *out) {
  int measured = nearest_ranks(curves, op, reach, ranks);
  if (measured == 0) return false;
  const LinkPoint *below = NULL, *above = NULL;
  for (int i = 0; i < curves->n_links; i++) {
    const LinkPoint *point = &curves->links[i];
    if (!is_like(point, op, reach) || point->ranks != measured) continue;
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
    out->following = below->following && above->following
                         ? between(below->following, above->following, at)
                         : 0;
  } else if (below && !above && below->bytes > 0) {
    double times = (double)bytes / (double)below->bytes;
    out->ps = (Ps)((double)below->ps * times);
    out->following =
        below->following ? out->ps - (below->ps - below->following) : 0;
  }
  return true;
}
