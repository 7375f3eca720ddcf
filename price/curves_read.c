/*
 * curves_read.c -- reads the tables of points that a cluster file names.
 */
#include "price/csv.h"
#include "price/curves.h"

#include <string.h>

#define MOST_PS   INT64_C(1000000000000000) /* 1,000 seconds */
#define MOST_WORK INT64_C(1000000000000000000)

enum { MOST_RANKS = 1 << 30, MOST_CORES = 1000000 };

typedef struct CurveRow {
  const char *name, *header;
  int n_older;
} CurveRow;

static const CurveRow curve_rows[] = {
#define CURVE(name, n_older, header) {#name, header, n_older},
#include "price/curves.def"
};

CurveKind curve_find(const char *name) {
  int i = 0;
  while (i < N_CURVES && strcmp(curve_rows[i].name, name) != 0) i++;
  return (CurveKind)i;
}

typedef struct CurvesReader {
  Csv csv;
  VEC(KernelPoint) kernels;
  VEC(LinkPoint) links;
} CurvesReader;

static bool read_op(const Csv *csv, const CsvCell *cell, Op *out) {
  for (int i = 0; i < N_OPS; i++)
    if (strcmp(cell->text, op_info((Op)i)->name) == 0) {
      *out = (Op)i;
      return true;
    }
  return csv_wrong(csv, cell, "op", "an operator of 'dnnc list ops'");
}

static bool read_dtype(const Csv *csv, const CsvCell *cell, DType *out) {
  for (int i = 0; i < N_DTYPES; i++)
    if (strcmp(cell->text, dtype_name((DType)i)) == 0) {
      *out = (DType)i;
      return true;
    }
  return csv_wrong(csv, cell, "dtype", "a data type");
}

static void read_kernel(void *user, const CsvCell *cells, Span line) {
  (void)line;
  CurvesReader *r = user;
  const Csv *csv = &r->csv;
  KernelPoint point = {0};
  int64_t cores = 1, flops = 0;
  bool is_right = read_op(csv, &cells[0], &point.op);
  is_right &= read_dtype(csv, &cells[1], &point.dtype);
  is_right &= csv_integer(csv, &cells[2], "cores", 1, MOST_CORES, &cores);
  is_right &= csv_integer(csv, &cells[3], "batch", 0, MOST_WORK, &point.batch);
  is_right &= csv_integer(csv, &cells[4], "m", 0, MOST_WORK, &point.m);
  is_right &= csv_integer(csv, &cells[5], "n", 0, MOST_WORK, &point.n);
  is_right &= csv_integer(csv, &cells[6], "k", 0, MOST_WORK, &point.k);
  is_right &= csv_integer(csv, &cells[7], "flops", 0, MOST_WORK, &flops);
  is_right &= csv_integer(csv, &cells[8], "bytes", 0, MOST_WORK, &point.bytes);
  is_right &= csv_integer(csv, &cells[9], "ps", 1, MOST_PS, &point.ps);
  point.cores = (int)cores;
  point.flops = (double)flops;
  if (is_right) vec_push(csv->arena, &r->kernels, point);
}

static void read_link(void *user, const CsvCell *cells, Span line) {
  (void)line;
  CurvesReader *r = user;
  const Csv *csv = &r->csv;
  LinkPoint point = {0};
  int64_t ranks = 2, nodes = 1;
  bool is_right = read_op(csv, &cells[0], &point.op);
  is_right &= csv_integer(csv, &cells[1], "ranks", 2, MOST_RANKS, &ranks);
  is_right &= csv_integer(csv, &cells[2], "nodes", 1, MOST_RANKS, &nodes);
  is_right &= csv_integer(csv, &cells[3], "bytes", 1, MOST_WORK, &point.bytes);
  is_right &= csv_integer(csv, &cells[4], "ps", 1, MOST_PS, &point.ps);
  is_right &=
      csv_integer(csv, &cells[5], "beside_ps", 0, MOST_PS, &point.beside);
  is_right &= csv_integer(csv, &cells[6], "taken", 0, 999, &point.taken);
  is_right &=
      csv_integer(csv, &cells[7], "following_ps", 0, MOST_PS, &point.following);
  point.ranks = (int)ranks;
  point.nodes = (int)nodes;
  if (is_right) vec_push(csv->arena, &r->links, point);
}

bool curves_read(Arena *arena, Diags *diags, const Source *source,
                 CurveKind kind, Curves *out) {
  CurvesReader r = {
      .csv = {.arena = arena,
              .diags = diags,
              .source = source,
              .what = arena_printf(arena, "table of %s", curve_rows[kind].name),
              .header = curve_rows[kind].header,
              .n_older = curve_rows[kind].n_older,
              .help = "'dnnc tune MODEL' writes such tables"}};
  if (!csv_read(&r.csv, kind == CURVE_kernels ? read_kernel : read_link, &r))
    return false;
  if (kind == CURVE_kernels) {
    out->kernels = r.kernels.data;
    out->n_kernels = r.kernels.n;
  } else {
    out->links = r.links.data;
    out->n_links = r.links.n;
  }
  return true;
}
