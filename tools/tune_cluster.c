/*
 * tune_cluster.c -- writes the cluster file of `dnnc tune`: what `dnnc cluster
 * detect` says of this machine or job, the links between machines as measured,
 * and the names of the tables.
 */
#include "tools/tune.h"

#include <stdio.h>
#include <string.h>

enum { MOST_LINKS_BYTES = 1 << 20 };

/* The greatest bandwidth of a machine, and the shortest time, among the rows of
 * collectives that cross machines. */
static void fit_network(const Tuning *tuning, DetectedLink *out) {
  const char *text;
  size_t n;
  *out = (DetectedLink){0};
  Status status = file_read(
      tuning->arena, arena_printf(tuning->arena, "%s.links.csv", tuning->name),
      MOST_LINKS_BYTES, &text, &n);
  if (status.code != STATUS_ok) return;
  for (text += strcspn(text, "\n"); *text; text += strcspn(text, "\n")) {
    long long ranks, nodes, bytes, ps;
    const char *fields = strchr(++text, ',');
    if (!fields || sscanf(fields, ",%lld,%lld,%lld,%lld", &ranks, &nodes,
                          &bytes, &ps) != 4)
      continue;
    if (nodes < 2 || ps < 1) continue;
    double rate = (double)bytes * (double)(ranks / nodes) / (double)ps * 1e12;
    if (rate > (double)out->bandwidth) out->bandwidth = (int64_t)rate;
    if (!out->latency || ps < out->latency) out->latency = ps;
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
  text_add(&out, "\nmeasured {\n");
  if (tuning->kernels.rows.n > 0)
    text_printf(&out, "  kernels = \"%s.kernels.csv\"\n", base);
  if (tuning->has_links)
    text_printf(&out, "  links   = \"%s.links.csv\"\n", base);
  text_add(&out, "}\n");
  status = file_replace(arena_printf(tuning->arena, "%s.cluster", tuning->name),
                        text_string(&out), out.n);
  return status.code == STATUS_ok ? EXIT_done : tool_fail(status);
}
