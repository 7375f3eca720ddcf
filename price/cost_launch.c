/*
 * cost_launch.c -- the time of one launch: the larger of what its operations
 * and what its bytes take.
 *
 *     dot [4096, 1024] x [1024, 3072] in bf16, 108 units, tiles of 128 x 256
 *       32 x 12 = 384 tiles, 4 waves; a tile takes as long as
 *       2 x 128 x 256 x (1024 + tile_k) operations of one unit
 *
 * A product takes the tile, and the number of parts of k, that are fastest:
 * libraries choose them so.
 */
#include "price/cost.h"

#include <string.h>

#define PS_PER_S 1e12

static const CostTermInfo terms[] = {
#define PART(name, meaning, source) {#name, meaning, source, true},
#include "price/terms.def"
#define EFFECT(name, meaning, source) {#name, meaning, source, false},
#include "price/terms.def"
};
_Static_assert(ARRAY_LENGTH(terms) == N_COST_TERMS, "a row for each term");

const CostTermInfo *cost_term_info(CostTerm term) {
  ASSERT((unsigned)term < N_COST_TERMS);
  return &terms[term];
}

int cost_term_find(const char *name) {
  for (int i = 0; i < N_COST_TERMS; i++)
    if (strcmp(terms[i].name, name) == 0) return i;
  return -1;
}

bool cost_part_is_wait(CostTerm part) {
  return (part >= COST_all_gather && part <= COST_permute) ||
         part == COST_message || part == COST_swap || part == COST_server;
}

bool cost_counts(const CostModel *model, CostTerm term) {
  return !(model->without >> term & 1);
}

/* ---- rates.def ---- */

typedef struct RateRow {
  const char *device;
  int sustained, tile_k, unaligned, bandwidth, attention, attention_grad;
  int launch_ns, collective_ns, transport, interference;
} RateRow;

static const RateRow rate_rows[] = {
#define RATE(device, sustained, tile_k, unaligned, bandwidth, attention,       \
             attention_grad, launch_ns, collective_ns, transport,              \
             interference, source)                                             \
  {                                                                            \
      #device,       sustained, tile_k,         unaligned,                     \
      bandwidth,     attention, attention_grad, launch_ns,                     \
      collective_ns, transport, interference},
#include "price/rates.def"
};

typedef struct Tile {
  bool is_gpu;
  int m, n, share;
} Tile;

enum { TILE_cpu, TILE_cuda };
static const Tile tiles[] = {
#define TILE(target, m, n, share) {TILE_##target, m, n, share},
#include "price/rates.def"
};

bool cost_rates_of(const char *preset, DeviceRates *rates) {
  for (int i = 0; i < ARRAY_LENGTH(rate_rows); i++) {
    const RateRow *row = &rate_rows[i];
    if (strcmp(row->device, preset) != 0) continue;
    rates->sustained = row->sustained / 1000.0;
    rates->unaligned = row->unaligned / 1000.0;
    rates->memory_share = row->bandwidth / 1000.0;
    rates->attention = row->attention / 1000.0;
    rates->attention_grad = row->attention_grad / 1000.0;
    rates->tile_k = row->tile_k;
    rates->launch = row->launch_ns * (Ps)1000;
    rates->collective = row->collective_ns * (Ps)1000;
    rates->transport = row->transport * 1e6;
    rates->interference = row->interference * SIM_ONE / 1000;
    return true;
  }
  return false;
}

typedef struct PublishedRow {
  const char *device;
  int runs;
} PublishedRow;

static const PublishedRow published_rows[] = {
#define PUBLISHED(device, runs) {#device, runs},
#include "price/rates.def"
};

int cost_published_runs(const char *preset) {
  for (int i = 0; i < ARRAY_LENGTH(published_rows); i++)
    if (strcmp(published_rows[i].device, preset) == 0)
      return published_rows[i].runs;
  return 0;
}

PriceErrors cost_errors(void) {
  PriceErrors errors = {
#define ERRORS(mean, largest) mean / 1000.0, largest / 1000.0, 0
#include "price/rates.def"
  };
  for (int i = 0; i < ARRAY_LENGTH(published_rows); i++)
    errors.runs += published_rows[i].runs;
  return errors;
}

static const char *first_of_target(const char *target) {
  for (int i = 0; i < ARRAY_LENGTH(rate_rows); i++) {
    int preset = device_preset_find(rate_rows[i].device);
    if (preset >= 0 && strcmp(device_preset(preset)->target, target) == 0)
      return rate_rows[i].device;
  }
  return rate_rows[0].device;
}

void cost_model_of(const ClusterDevice *device, CostModel *model) {
  DeviceRates *rates = &model->rates;
  if (!cost_rates_of(device->name, rates))
    cost_rates_of(first_of_target(device->target), rates);
  rates->is_gpu = strcmp(device->target, "cpu") != 0;
  model->transport = rates->is_gpu ? TRANSPORT_nccl : TRANSPORT_mpi;
  int64_t cores = device->values[DEVICE_cores];
  rates->units = cores > 0 ? (int)cores : 1;
  rates->bandwidth = (double)device->values[DEVICE_bandwidth];
  rates->host_link = (double)device->values[DEVICE_host_link];
  for (int i = 0; i < N_DTYPES; i++)
    rates->flops[i] = (double)device_flops(device, (DType)i);
}

void cost_share_machine(CostModel *model, const ClusterGroup *group,
                        int64_t ranks) {
  DeviceRates *rates = &model->rates;
  if (rates->is_gpu || group->n_levels == 0 || ranks >= group->levels[0].count)
    return;
  int64_t cores = rates->units * group->levels[0].count / ranks;
  double times = (double)cores / rates->units;
  rates->units = (int)cores;
  rates->bandwidth *= times;
  for (int i = 0; i < N_DTYPES; i++) rates->flops[i] *= times;
}

/* ---- parts of a launch ---- */

Ps cost_ps(double seconds) {
  double ps = seconds * PS_PER_S;
  return ps < 9e18 ? (Ps)(ps + 0.5) : INT64_MAX / 4;
}

static double bytes_time(const CostModel *model, double bytes) {
  return bytes / (model->rates.bandwidth * model->rates.memory_share);
}

/* A dtype that the device lacks is computed in f32. */
static double peak_of(const CostModel *model, DType dtype) {
  double peak = model->rates.flops[dtype];
  return peak > 0 ? peak : model->rates.flops[DT_f32];
}

static double whole(double x) {
  double down = (double)(int64_t)x;
  return down < x ? down + 1 : down;
}

/* Seconds of the product with this tile, k in `parts`. */
static double tiled_time(const CostModel *model, const Work *work,
                         const Tile *tile, int parts) {
  const DeviceRates *rates = &model->rates;
  bool is_tiled = cost_counts(model, COST_tiles);
  double rows = (double)work->m / tile->m, columns = (double)work->n / tile->n;
  if (is_tiled) rows = whole(rows), columns = whole(columns);
  double rounds = rows * columns * (double)work->batch * parts / rates->units;
  if (cost_counts(model, COST_waves)) rounds = whole(rounds);
  double rate = peak_of(model, work->dtype) / rates->units;
  double k = (double)work->k / parts;
  if (cost_counts(model, COST_clocks)) {
    rate *= rates->sustained * tile->share / 1000.0;
    k += (double)rates->tile_k;
  }
  double seconds = rounds * 2 * tile->m * tile->n * k / rate;
  double sums = (double)work->batch * (double)work->m * (double)work->n;
  if (parts > 1)
    seconds += bytes_time(model, sums * dtype_size_bytes(DT_f32) * (parts + 1));
  return seconds;
}

/* Libraries have no fast kernel for such rows, whatever their tiles. */
static double unaligned_time(const CostModel *model, const Work *work) {
  double share = model->rates.unaligned;
  if (!work->has_unaligned_rows || !dtype_is_16bit(work->dtype) || share <= 0 ||
      !cost_counts(model, COST_alignment))
    return 0;
  double flops = 2 * (double)work->batch * (double)work->m * (double)work->n *
                 (double)work->k;
  return flops / (peak_of(model, work->dtype) * share);
}

static double product_time(const CostModel *model, const Work *work) {
  enum { MOST_PARTS = 16, LEAST_K = 512 };
  double best = -1;
  for (int t = 0; t < ARRAY_LENGTH(tiles); t++) {
    if (tiles[t].is_gpu != model->rates.is_gpu) continue;
    for (int parts = 1; parts <= MOST_PARTS; parts *= 2) {
      if (parts > 1 && work->k / parts < LEAST_K) break;
      double seconds = tiled_time(model, work, &tiles[t], parts);
      if (best < 0 || seconds < best) best = seconds;
    }
  }
  double moved = bytes_time(model, (double)(work->read + work->written));
  double slow = unaligned_time(model, work);
  if (slow > best) best = slow;
  return best > moved ? best : moved;
}

Ps cost_product(const CostModel *model, const Work *work) {
  return cost_ps(product_time(model, work));
}

Ps cost_bytes(const CostModel *model, double bytes) {
  return cost_ps(bytes_time(model, bytes));
}

/* Pairs of a query and a key: [m, n], or those up to the diagonal. */
static double attention_time(const CostModel *model, const Node *node,
                             const Work *work) {
  double pairs = (double)work->m * (double)work->n;
  bool is_causal = node_int(node, ATTR_causal, 0) != 0;
  if (is_causal && work->m == work->n && cost_counts(model, COST_causal))
    pairs = (double)work->m * (double)(work->m + 1) / 2;
  double flops = 2 * (double)work->batch * pairs * (double)work->k;
  double share = node->op == OP_attention ? model->rates.attention
                                          : model->rates.attention_grad;
  if (!cost_counts(model, COST_clocks)) share = 1;
  double seconds = flops / (peak_of(model, work->dtype) * share);
  double moved = bytes_time(model, (double)(work->read + work->written));
  return seconds > moved ? seconds : moved;
}

/* Elements are computed in f32 at best. */
static double elements_time(const CostModel *model, const Work *work) {
  double seconds = work->flops / model->rates.flops[DT_f32];
  double moved = bytes_time(model, (double)(work->read + work->written));
  return seconds > moved ? seconds : moved;
}

static CostTerm part_of(const Node *node, const Work *work) {
  if (op_has(node->op, OP_FLAG_attends)) return COST_attention;
  if (work->class == WORK_contraction) return COST_product;
  if (node->phase == PHASE_update) return COST_update;
  return work->class == WORK_lookup ? COST_lookup : COST_fused;
}

CostTerm cost_part(const Graph *graph, int id) {
  Work work = node_work(graph, id);
  return part_of(graph->nodes.data[id], &work);
}

/* Takes the time of a run of this node from the profile, if it has one. */
static bool find_measured(const CostModel *model, const Node *node,
                          uint64_t kernel, LaunchCost *cost) {
  ProfileKey key = {.path = node->path ? node->path : "",
                    .phase = node->phase,
                    .kernel = kernel,
                    .cores = model->rates.units};
  Ps time;
  cost->is_measured = profile_find(model->profile, &key, &time);
  if (cost->is_measured && cost_counts(model, cost->part)) cost->time = time;
  return cost->is_measured;
}

LaunchCost cost_work(const CostModel *model, const Node *node,
                     const Work *work) {
  LaunchCost cost = {.part = part_of(node, work)};
  double seconds;
  Ps curve = model->curves ? curves_kernel(model->curves, node->op, work,
                                           model->rates.units)
                           : -1;
  if (curve >= 0) { /* with what starts it */
    cost.time = cost_counts(model, cost.part) ? curve : 0;
    return cost;
  }
  switch (cost.part) {
  case COST_attention: seconds = attention_time(model, node, work); break;
  case COST_product: seconds = product_time(model, work); break;
  default: seconds = elements_time(model, work); break;
  }
  if (cost_counts(model, cost.part)) cost.time = cost_ps(seconds);
  if (cost_counts(model, COST_launch)) cost.launch = model->rates.launch;
  return cost;
}

LaunchCost cost_launch(const CostModel *model, const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  Work work = node_work(graph, id);
  LaunchCost cost = {.part = part_of(node, &work)};
  if (model->profile &&
      find_measured(model, node, launch_key(graph, id), &cost))
    return cost;
  return cost_work(model, node, &work);
}

static double result_bytes(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  double bytes = 0;
  for (int r = 0; r < node->n_results; r++)
    bytes += (double)(type_local_elements(node->types[r], &graph->mesh) *
                      dtype_size_bytes(node->types[r]->dtype));
  return bytes;
}

LaunchCost cost_clear(const CostModel *model, const Graph *graph, int id) {
  LaunchCost cost = {.part = COST_fused};
  if (model->profile &&
      find_measured(model, graph->nodes.data[id], clear_key(graph, id), &cost))
    return cost;
  if (cost_counts(model, COST_fused))
    cost.time = cost_bytes(model, result_bytes(graph, id));
  if (cost_counts(model, COST_launch)) cost.launch = model->rates.launch;
  return cost;
}
