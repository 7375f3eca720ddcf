/*
 * compress.c -- helps compress.sh: it makes the data of compress.dnn,
 * computes the gradients of the net in double precision, compressed as a plan
 * says, and compares them with those of a run.
 *
 *     compress make                          x.npy, y.npy and start.ckpt
 *     compress compare FOLDER RANKS KIND     the checkpoints of its steps 1 to
 *                                            30, each with what the reference
 *                                            makes of the one before
 *
 * KIND is none, bf16 or f16: each rank rounds the gradient of its samples, and
 * the sum of the ranks is rounded once more.  Printed are the largest
 * difference of a gradient, relative to the largest of its parameter, and how
 * many terms are so close to a tie that they may be rounded either way.
 *
 *     compress power FOLDER FIRST RANK       steps FIRST to 30 of a run with
 *                                            `compress = power(rank = RANK)`
 *
 * Printed are the largest difference of a gradient, an error or a factor, and
 * how many gradients were compressed.
 */
#include "tests/e2e/checkpoints.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { B = 8, I = 12, H = 10, O = 6, STEPS = 30 };
enum { W1, B1, W2, B2, N_PARAMS };

static const int sizes[N_PARAMS] = {I * H, H, H *O, O};
/* Their rows and columns; biases are rows. */
static const int rows[N_PARAMS] = {I, 1, H, 1},
                 columns[N_PARAMS] = {H, H, O, O};
static const char *const names[N_PARAMS] = {"hidden.w", "hidden.b", "out.w",
                                            "out.b"};

typedef struct Net {
  double *param[N_PARAMS], *moment[N_PARAMS];
  double *error[N_PARAMS], *factor[N_PARAMS]; /* of power; NULL: none */
} Net;

static void exhausted(void *user) {
  (void)user;
  exit(3);
}

static double data_value(int k) {
  return sin(1.7 * k + 0.3 * (k % 7));
}

static bool write_npy(const char *path, int columns, int first) {
  FILE *file = fopen(path, "wb");
  if (!file) return false;
  char header[128];
  snprintf(header, sizeof header,
           "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", B,
           columns);
  /* The magic, version 1.0, and a header of 118 bytes. */
  fwrite("\223NUMPY\1\0\166\0", 1, 10, file);
  fprintf(file, "%-117s\n", header);
  for (int k = 0; k < B * columns; k++) {
    float value = (float)data_value(first + k);
    fwrite(&value, sizeof value, 1, file);
  }
  return fclose(file) == 0;
}

/* ---- gradients ---- */

static double input(int b, int i) {
  return (float)data_value(b * I + i);
}
static double target(int b, int o) {
  return (float)data_value(1000 + b * O + o);
}

/* Adds the gradient of one sample's part of the mean over all elements. */
static void add_gradient(const Net *net, int b, double *const grad[]) {
  double h[H], dh[H] = {0};
  for (int j = 0; j < H; j++) {
    h[j] = net->param[B1][j];
    for (int i = 0; i < I; i++) h[j] += input(b, i) * net->param[W1][i * H + j];
    h[j] = tanh(h[j]);
  }
  for (int o = 0; o < O; o++) {
    double y = net->param[B2][o];
    for (int j = 0; j < H; j++) y += h[j] * net->param[W2][j * O + o];
    double d = 2 * (y - target(b, o)) / (B * O);
    grad[B2][o] += d;
    for (int j = 0; j < H; j++) {
      grad[W2][j * O + o] += h[j] * d;
      dh[j] += net->param[W2][j * O + o] * d;
    }
  }
  for (int j = 0; j < H; j++) {
    double d = dh[j] * (1 - h[j] * h[j]);
    grad[B1][j] += d;
    for (int i = 0; i < I; i++) grad[W1][i * H + j] += input(b, i) * d;
  }
}

/* To `bits` of mantissa after the first, to the nearest, ties to even; no
 * gradient is below the normal numbers of f16 by more than a test sees. */
static double round_to(double x, int bits, int lowest) {
  int exponent;
  if (x == 0) return 0;
  frexp(x, &exponent);
  int unit = exponent - 1 - bits;
  if (unit < lowest) unit = lowest;
  return ldexp(nearbyint(ldexp(x, -unit)), unit);
}

static double rounded(double x, const char *kind) {
  if (strcmp(kind, "bf16") == 0) return round_to(x, 7, -133);
  return strcmp(kind, "f16") == 0 ? round_to(x, 10, -24) : x;
}

/* Returns whether x, off by at most `error`, may be rounded the other way. */
static bool is_tie(double x, double error, const char *kind) {
  return strcmp(kind, "none") != 0 &&
         rounded(x - error, kind) != rounded(x + error, kind);
}

/* The gradient of a step as ranks add it up. */
typedef struct Sum {
  double *value[N_PARAMS];
  double *slack[N_PARAMS]; /* by how much ties may change it */
  int ties;
} Sum;

static double largest(const double *values, int n) {
  double most = 0;
  for (int k = 0; k < n; k++) most = fmax(most, fabs(values[k]));
  return most;
}

static void add_rank(Sum *sum, double *const part[], const char *kind) {
  for (int p = 0; p < N_PARAMS; p++) {
    double error = 5e-7 * largest(part[p], sizes[p]);
    for (int k = 0; k < sizes[p]; k++) {
      double x = part[p][k];
      sum->value[p][k] += rounded(x, kind);
      if (!is_tie(x, error, kind)) continue;
      sum->slack[p][k] +=
          fabs(rounded(x + error, kind) - rounded(x - error, kind));
      sum->ties++;
    }
  }
}

static Sum add_ranks(Arena *arena, const Net *net, int ranks,
                     const char *kind) {
  Sum sum = {0};
  double *part[N_PARAMS];
  for (int p = 0; p < N_PARAMS; p++) {
    sum.value[p] = ARENA_ARRAY(arena, double, sizes[p]);
    sum.slack[p] = ARENA_ARRAY(arena, double, sizes[p]);
    part[p] = ARENA_ARRAY(arena, double, sizes[p]);
  }
  for (int rank = 0; rank < ranks; rank++) {
    for (int p = 0; p < N_PARAMS; p++)
      memset(part[p], 0, (size_t)sizes[p] * sizeof(double));
    for (int b = rank * B / ranks; b < (rank + 1) * B / ranks; b++)
      add_gradient(net, b, part);
    add_rank(&sum, part, kind);
  }
  return sum;
}

/* Compares the gradient of a step, which the moments before and after it tell,
 * with the sum.  Returns the largest difference relative to the largest
 * gradient that no tie explains. */
static double difference(const Sum *sum, const Net *before, const Net *after,
                         int step, const char *kind) {
  double most = 0;
  for (int p = 0; p < N_PARAMS; p++) {
    double scale = largest(sum->value[p], sizes[p]);
    for (int k = 0; k < sizes[p]; k++) {
      double m = step == 1 ? 0 : before->moment[p][k];
      double low = rounded(sum->value[p][k] - sum->slack[p][k], kind);
      double high = rounded(sum->value[p][k] + sum->slack[p][k], kind);
      double g = after->moment[p][k] - 0.9 * m;
      double off = fmax(0, fmax(low - g, g - high));
      most = fmax(most, off / (scale + fabs(m)));
    }
  }
  return most;
}

/* ---- power ---- */

static double dot(const double *a, const double *b, int n, int stride) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += a[i * stride] * b[i * stride];
  return sum;
}

/* Makes the columns of u, n x r, orthonormal, the first first. */
static void make_orthonormal(double *u, int n, int r) {
  for (int k = 0; k < r; k++) {
    for (int j = 0; j < k; j++) {
      double along = dot(u + j, u + k, n, r);
      for (int i = 0; i < n; i++) u[i * r + k] -= along * u[i * r + j];
    }
    double norm = sqrt(dot(u + k, u + k, n, r));
    for (int i = 0; i < n; i++) u[i * r + k] /= norm;
  }
}

static double off_by(const double *a, const double *b, int n) {
  double most = 0;
  for (int k = 0; k < n; k++) most = fmax(most, fabs(a[k] - b[k]));
  return most / fmax(largest(a, n), largest(b, n));
}

/* out, n x m, += a, n x k, times b, k x m. */
static void add_product(const double *a, const double *b, int n, int k, int m,
                        double *out) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < m; j++)
      for (int l = 0; l < k; l++) out[i * m + j] += a[i * k + l] * b[l * m + j];
}

static double *transposed(Arena *arena, const double *a, int n, int m) {
  double *out = ARENA_ARRAY(arena, double, n *m);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < m; j++) out[j * n + i] = a[i * m + j];
  return out;
}

/* The largest difference of what a step made of the gradient g of parameter p:
 * what the update got, the error and the factor. */
static double power_difference(Arena *arena, const Net *before,
                               const Net *after, int p, const double *g,
                               int r) {
  int n = rows[p], m = columns[p];
  double *sum = ARENA_ARRAY(arena, double, n *m);
  double *u = ARENA_ARRAY(arena, double, n *r);
  double *factor = ARENA_ARRAY(arena, double, m *r);
  double *sent = ARENA_ARRAY(arena, double, n *m);
  double *got = ARENA_ARRAY(arena, double, n *m);
  for (int k = 0; k < n * m; k++) sum[k] = g[k] + before->error[p][k];
  add_product(sum, before->factor[p], n, m, r, u);
  make_orthonormal(u, n, r);
  add_product(transposed(arena, sum, n, m), u, m, n, r, factor);
  add_product(u, transposed(arena, factor, m, r), n, r, m, sent);
  for (int k = 0; k < n * m; k++) {
    got[k] = after->moment[p][k] - 0.9 * before->moment[p][k];
    sum[k] -= sent[k];
  }
  return fmax(off_by(sent, got, n * m),
              fmax(off_by(sum, after->error[p], n * m),
                   off_by(factor, after->factor[p], m * r)));
}

/* ---- checkpoints ---- */

static Status write_start(Arena *arena) {
  static const int shapes[N_PARAMS][2] = {{I, H}, {H, 0}, {H, O}, {O, 0}};
  Given given[N_PARAMS];
  for (int p = 0; p < N_PARAMS; p++) {
    double *values = ARENA_ARRAY(arena, double, sizes[p]);
    for (int k = 0; k < sizes[p]; k++)
      values[k] = 0.3 * data_value(2000 + 500 * p + k);
    given[p] = (Given){.path = names[p],
                       .rank = shapes[p][1] ? 2 : 1,
                       .size = {shapes[p][0], shapes[p][1]},
                       .values = values};
  }
  return given_write(arena, "start.ckpt", given, N_PARAMS);
}

static void must(Status status) {
  if (status.code == STATUS_ok) return;
  fprintf(stderr, "%s\n", status.message);
  exit(1);
}

/* The state after a step; the parameters alone after step 0. */
static Net read_net(Arena *arena, const char *folder, int step) {
  Net net = {0};
  Checkpoint checkpoint;
  must(checkpoint_open(arena, arena_printf(arena, "%s/step-%08d", folder, step),
                       &checkpoint));
  for (int p = 0; p < N_PARAMS; p++) {
    must(stored_read(arena, &checkpoint, names[p], sizes[p], &net.param[p]));
    if (step > 0)
      must(stored_read(arena, &checkpoint,
                       arena_printf(arena, "sgd.m/%s", names[p]), sizes[p],
                       &net.moment[p]));
  }
  return net;
}

/* Adds the error and the factor of a parameter whose gradient is sent as a
 * product of rank r: where that has fewer elements. */
static void read_power(Arena *arena, const char *folder, int step, int r,
                       Net *net) {
  Checkpoint checkpoint;
  must(checkpoint_open(arena, arena_printf(arena, "%s/step-%08d", folder, step),
                       &checkpoint));
  for (int p = 0; p < N_PARAMS; p++) {
    if ((rows[p] + columns[p]) * r >= sizes[p]) continue;
    must(stored_read(arena, &checkpoint,
                     arena_printf(arena, "compress.e/%s", names[p]), sizes[p],
                     &net->error[p]));
    must(stored_read(arena, &checkpoint,
                     arena_printf(arena, "compress.q/%s", names[p]),
                     columns[p] * r, &net->factor[p]));
  }
}

/* From step `first` on, whose state the checkpoint before it has. */
static void compare_power(Arena *arena, const char *folder, int first, int r) {
  Net before = read_net(arena, folder, first - 1);
  double most = 0;
  int compressed = 0;
  read_power(arena, folder, first - 1, r, &before);
  for (int step = first; step <= STEPS; step++) {
    Net after = read_net(arena, folder, step);
    read_power(arena, folder, step, r, &after);
    Sum sum = add_ranks(arena, &before, 1, "none");
    for (int p = 0; p < N_PARAMS; p++) {
      if (!after.error[p]) continue;
      double off = power_difference(arena, &before, &after, p, sum.value[p], r);
      most = fmax(most, off);
      compressed++;
    }
    before = after;
  }
  printf("%.3g %d\n", most, compressed);
}

static void compare(Arena *arena, const char *folder, int ranks,
                    const char *kind) {
  Net before = read_net(arena, "start.ckpt", 0);
  double most = 0;
  int ties = 0;
  for (int step = 1; step <= STEPS; step++) {
    Net after = read_net(arena, folder, step);
    Sum sum = add_ranks(arena, &before, ranks, kind);
    most = fmax(most, difference(&sum, &before, &after, step, kind));
    ties += sum.ties;
    before = after;
  }
  printf("%.3g %d\n", most, ties);
}

int main(int argc, char **argv) {
  Memory *memory = memory_create(exhausted, NULL);
  Arena *arena = arena_create(memory);
  if (argc == 2 && strcmp(argv[1], "make") == 0) {
    must(write_start(arena));
    return !(write_npy("x.npy", I, 0) && write_npy("y.npy", O, 1000));
  }
  if (argc == 5 && strcmp(argv[1], "compare") == 0) {
    compare(arena, argv[2], atoi(argv[3]), argv[4]);
    return 0;
  }
  if (argc == 5 && strcmp(argv[1], "power") == 0) {
    compare_power(arena, argv[2], atoi(argv[3]), atoi(argv[4]));
    return 0;
  }
  fprintf(stderr, "usage: compress make | compare FOLDER RANKS KIND | "
                  "power FOLDER FIRST RANK\n");
  return 2;
}
