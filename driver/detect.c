/*
 * detect.c -- writes a cluster file for this machine, or for the equal machines
 * of a job.  Every line says where its numbers are from: what nobody has
 * measured is called assumed.
 *
 *     cluster detected {
 *       device = gpu
 *       level node    { count = 8; ... }       # GPUs that the driver has
 *       level network { count = 4; ... }       # SLURM_JOB_NUM_NODES
 *     }
 *     device gpu { base = h100_sxm; ... }
 */
#include "driver/detect.h"
#include "ir/cluster/cluster.h"
#include "runtime/cuda/describe.h"
#include "runtime/launch/machine.h"

#include <string.h>

typedef struct Detection {
  Text *out;
  Machine machine;
  int n_gpus;
  GpuDescription *gpus;
  int preset;    /* of the GPUs; -1: none is known */
  int64_t ranks; /* of a node */
  const char *ranks_source;
  DetectedLink network;
} Detection;

static int find_gpu_preset(const char *name) {
  for (int i = 0; i < device_preset_count(); i++)
    if (strcmp(device_preset(i)->driver_name, name) == 0) return i;
  return -1;
}

static Status count_ranks(Detection *d) {
  const Fact *asked = &d->machine.ranks_per_node;
  int64_t most = d->n_gpus ? d->n_gpus : d->machine.cores.value;
  d->ranks = most;
  d->ranks_source =
      d->n_gpus ? "GPUs that the driver has" : d->machine.cores.source;
  if (asked->value == 0) return STATUS_OK;
  if (asked->value > most)
    return status_make(STATUS_invalid,
                       "%s asks for %lld ranks on a node, but it has %lld %s",
                       asked->source, (long long)asked->value, (long long)most,
                       d->n_gpus ? "GPUs" : "cores");
  d->ranks = asked->value;
  d->ranks_source = asked->source;
  return STATUS_OK;
}

static void write_node(Detection *d) {
  Bytes peer = 0, host = INT64_C(16000000000);
  if (d->preset >= 0) {
    const DeviceConstant *link =
        device_preset_constant(d->preset, DEVICE_peer_link);
    if (link) peer = link->value;
    link = device_preset_constant(d->preset, DEVICE_host_link);
    if (link) host = link->value;
  }
  text_printf(d->out, "  # count: %s; links: assumed%s\n", d->ranks_source,
              peer        ? ", all GPUs on one NVSwitch"
              : d->n_gpus ? ", PCIe"
                          : ", through memory");
  text_printf(d->out,
              "  level node { count = %lld; link = %s; latency = %s; "
              "kind = %s }\n",
              (long long)d->ranks,
              d->n_gpus ? quantity_text(d->out->arena, UNIT_bandwidth,
                                        peer ? peer : host)
                        : "8GB/s",
              d->n_gpus ? "2us" : "1us",
              peer        ? "switch"
              : d->n_gpus ? "pcie"
                          : "shared");
}

static void write_network(Detection *d) {
  const Fact *nodes = &d->machine.nodes;
  bool is_measured = d->network.bandwidth > 0;
  Arena *arena = d->out->arena;
  text_printf(
      d->out,
      "  # count: %s; the other nodes are assumed to be as this one%s\n"
      "  level network { count = %lld; link = %s; latency = %s; kind = switch "
      "}\n",
      nodes->source,
      is_measured ? "; link: measured" : ", and so is the network",
      (long long)nodes->value,
      is_measured ? quantity_text(arena, UNIT_bandwidth, d->network.bandwidth)
                  : "10Gb/s",
      is_measured ? quantity_text(arena, UNIT_time, d->network.latency)
                  : "30us");
}

static void write_cluster(Detection *d) {
  text_printf(d->out, "cluster detected {\n  device = %s\n",
              d->n_gpus ? "gpu" : "core");
  write_node(d);
  if (d->machine.nodes.value > 1) write_network(d);
  text_add(d->out, "}\n\n");
}

static void write_field(Detection *d, DeviceField field, int64_t value,
                        const char *source) {
  if (value <= 0) return;
  const DeviceFieldInfo *info = device_field_info(field);
  const char *text = quantity_text(d->out->arena, info->unit, value);
  text_printf(d->out, "  %-9s = %-16s # %s\n", info->name, text, source);
}

static void write_gpu(Detection *d) {
  const GpuDescription *gpu = &d->gpus[0];
  text_printf(d->out, "device gpu { # %s\n", gpu->name);
  if (d->preset >= 0)
    text_printf(d->out,
                "  base      = %-16s # the name that the driver gives\n",
                device_preset(d->preset)->name);
  else
    text_add(d->out, "  target    = cuda\n");
  write_field(d, DEVICE_memory, gpu->memory_bytes, "driver");
  write_field(d, DEVICE_cores, gpu->multiprocessors, "driver");
  write_field(d, DEVICE_cache, gpu->cache_bytes, "driver");
  write_field(d, DEVICE_clock, gpu->clock_hz, "driver: the highest clock");
  if (d->preset < 0)
    text_add(d->out,
             "  # No preset has this GPU: flops_f32, flops_bf16, flops_f16 and "
             "bandwidth are missing.\n"
             "  # 'dnnc tune' will measure them (not supported yet); its "
             "datasheet has them.\n");
  text_add(d->out, "}\n");
}

static void write_core(Detection *d) {
  const Machine *machine = &d->machine;
  Arena *arena = d->out->arena;
  text_add(d->out, "device core {\n  base      = cpu              # rates are "
                   "assumed; 'dnnc tune' measures them\n");
  write_field(d, DEVICE_memory, machine->memory_bytes.value / d->ranks,
              arena_printf(arena, "%s, divided by the ranks",
                           machine->memory_bytes.source));
  write_field(
      d, DEVICE_cores, machine->cores.value / d->ranks,
      arena_printf(arena, "%s, divided by the ranks", machine->cores.source));
  text_add(d->out, "}\n");
}

/* The message of a library is not ours, so it may have lines. */
static void write_no_gpu(Text *out, Status status) {
  const char *why =
      status.code == STATUS_ok ? "the driver has none" : status.message;
  char *line = arena_strdup(out->arena, why);
  for (char *c = line; *c; c++)
    if ((unsigned char)*c < ' ') *c = ' ';
  text_printf(out, "# No GPU: %s\n", line);
}

static Status check_equal_gpus(const Detection *d) {
  for (int i = 1; i < d->n_gpus; i++)
    if (strcmp(d->gpus[i].name, d->gpus[0].name) != 0)
      return status_make(STATUS_invalid,
                         "not supported yet: GPUs of different kinds, '%s' and "
                         "'%s', in one machine; CUDA_VISIBLE_DEVICES chooses",
                         d->gpus[0].name, d->gpus[i].name);
  return STATUS_OK;
}

Status driver_detect_cluster(Text *out, const char *root,
                             const DetectedLink *network,
                             const char **out_unknown) {
  Detection d = {.out = out, .preset = -1, .network = *network};
  *out_unknown = NULL;
  TRY(machine_read(out->arena, root, &d.machine));
  /* Without a driver or GPU, ranks run on cores. */
  Status gpus = cuda_describe(out->arena, &d.n_gpus, &d.gpus);
  if (gpus.code != STATUS_ok) d.n_gpus = 0;
  TRY(check_equal_gpus(&d));
  TRY(count_ranks(&d));
  if (d.n_gpus) d.preset = find_gpu_preset(d.gpus[0].name);
  if (d.n_gpus && d.preset < 0) *out_unknown = d.gpus[0].name;
  if (!d.n_gpus && d.machine.memory_bytes.value < d.ranks)
    return status_make(STATUS_unavailable,
                       "cannot find out how much memory this machine has");
  text_add(out, "# Written by 'dnnc cluster detect'. Numbers are assumed where "
                "a comment says so: measure them.\n");
  if (!d.n_gpus) write_no_gpu(out, gpus);
  write_cluster(&d);
  if (d.n_gpus)
    write_gpu(&d);
  else
    write_core(&d);
  return STATUS_OK;
}
