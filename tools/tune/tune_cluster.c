/*
 * tune_cluster.c -- writes the cluster file of `dnnc tune`: what `dnnc cluster
 * detect` says of this machine or job, the links between machines as measured,
 * and the names of the tables.
 */
#include "tools/tune/tune.h"

#include <stdio.h>
#include <string.h>

enum { MOST_LINKS_BYTES = 1 << 20 };

/* A row of the table of collectives. */
typedef struct LinkRow {
  char op[32];
  int64_t ranks, nodes, bytes, ps;
} LinkRow;

/* *at: a row, then the next one. */
static bool read_row(const char **at, LinkRow *out) {
  long long ranks, nodes, bytes, ps;
  *at += strcspn(*at, "\n");
  if (!**at || sscanf(++*at, "%31[a-z_],%lld,%lld,%lld,%lld", out->op, &ranks,
                      &nodes, &bytes, &ps) != 5)
    return false;
  out->ranks = ranks;
  out->nodes = nodes;
  out->bytes = bytes;
  out->ps = ps;
  return nodes > 0 && ps > 0;
}

/* Bytes a second of a machine. */
static int64_t rate_of(const LinkRow *row) {
  return (int64_t)((double)row->bytes * (double)(row->ranks / row->nodes) /
                   (double)row->ps * 1e12);
}

/* Among collectives that cross machines, the greatest bandwidth of a machine
 * and the shortest time.  Sizes of a collective rise, and the largest counts: a
 * link may take a little at once that it sends later. */
static void fit_network(const Tuning *tuning, DetectedLink *out) {
  const char *text;
  size_t n;
  *out = (DetectedLink){0};
  Status status = file_read(
      tuning->arena, arena_printf(tuning->arena, "%s.links.csv", tuning->name),
      MOST_LINKS_BYTES, &text, &n);
  if (status.code != STATUS_ok) return;
  LinkRow row, next;
  bool is_row = read_row(&text, &row);
  while (is_row) {
    is_row = read_row(&text, &next);
    bool is_largest =
        !is_row || strcmp(row.op, next.op) || row.ranks != next.ranks;
    if (row.nodes > 1 && is_largest && rate_of(&row) > out->bandwidth)
      out->bandwidth = rate_of(&row);
    if (row.nodes > 1 && (!out->latency || row.ps < out->latency))
      out->latency = row.ps;
    row = next;
  }
}

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

int tune_write_cluster(Tuning *tuning) {
  const char *unknown, *base = base_name(tuning->name);
  Text out = text_create(tuning->arena);
  DetectedLink network;
  fit_network(tuning, &network);
  Status status = driver_detect_cluster(&out, "", &network, &unknown);
  if (status.code != STATUS_ok) return tool_fail(status);
  tuning->unknown_gpu = unknown;
  if (tuning->least_apart_ns > 0)
    text_printf(&out,
                "\n# A cache line took %lld ns from one core to another and "
                "back.",
                (long long)tuning->least_apart_ns);
  if (tune_has_measured(tuning)) text_add(&out, "\nmeasured {\n");
  if (tuning->kernels.rows.n > 0)
    text_printf(&out, "  kernels = \"%s.kernels.csv\"\n", base);
  if (tuning->has_links)
    text_printf(&out, "  links   = \"%s.links.csv\"\n", base);
  if (tune_has_measured(tuning)) text_add(&out, "}\n");
  status =
      file_replace(arena_printf(tuning->arena, "%s.cluster", tuning->prices),
                   text_string(&out), out.n);
  return status.code == STATUS_ok ? EXIT_done : tool_fail(status);
}
