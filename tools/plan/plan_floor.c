/*
 * plan_floor.c -- finds a time below the step of any plan of a model on some
 * ranks, as plans are priced.
 *
 *     operations of products and attention / peak rate of all ranks
 *     bytes of what an update reads and writes / bandwidth of all ranks
 *     => the larger of both
 *
 * The operations are those of one rank's program before it is partitioned: a
 * plan may compute more, never less.  Causal attention has the pairs up to the
 * diagonal.  Each parameter and its optimizer state is read and written by some
 * rank.  One kernel may do both, so the two times are not added.
 *
 * Links give no third term.  A plan that leaves all work to one rank of a group
 * sends nothing over them, and one that divides the work sends at least the
 * smallest value at which the model can be cut, which may be a scalar.
 */
#include "tools/commands/planning.h"

#include "ir/scan.h"

/* ---- what any plan computes and moves ---- */

static double attention_flops(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  Work work = node_work(graph, id);
  double pairs = (double)work.m * (double)work.n;
  if (node_int(node, ATTR_causal, 0) != 0 && work.m == work.n)
    pairs = (double)work.m * (double)(work.m + 1) / 2;
  return 2 * (double)work.batch * pairs * (double)work.k;
}

static double least_flops(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  double flops = 0;
  if (op_has(node->op, OP_FLAG_attends)) return attention_flops(graph, id);
  if (op_is(node->op, OPCLASS_contraction))
    return node_contraction_flops(graph, id);
  for (int i = 0; node->body && i < node->body->nodes.n; i++)
    flops += least_flops(node->body, i);
  return node->op == OP_scan ? flops * (double)scan_steps(node) : flops;
}

static double updated_bytes(const Graph *graph) {
  double bytes = 0;
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    const Type *type = graph_type(graph, output->value);
    if (output->role == ROLE_param || output->role == ROLE_optimizer_state)
      bytes += 2 * (double)type_elements(type) *
               (double)dtype_size_bytes(type->dtype);
  }
  return bytes;
}

/* ---- what all ranks reach ---- */

/* On a CPU few ranks share all cores of a machine. */
static double machine_share(const Priced *p) {
  const ClusterDevice *device = p->cluster->groups[p->model.group].device;
  double alone = (double)device->values[DEVICE_bandwidth];
  return alone > 0 ? p->model.rates.bandwidth / alone : 1;
}

/* A dtype that the device lacks is computed in f32. */
static double peak_of(const ClusterDevice *device, DType dtype) {
  int64_t flops = device_flops(device, dtype);
  return (double)(flops > 0 ? flops : device_flops(device, DT_f32));
}

static double seconds_at(double amount, double rate) {
  return rate > 0 ? amount / rate : 0;
}

Ps planning_floor(const Priced *p) {
  const Model *model = p->c->model;
  Compilation one = *p->c;
  one.plan = NULL;
  one.ranks = 1;
  /* Measured launches may be faster than constants of the device. */
  if (p->cluster->n_curves > 0 || p->model.profile) return 0;
  const Graph *graph = driver_run_passes(&one, ENTRY_train, model->train,
                                         pass_end("layout_assignment"));
  if (!graph) return 0;
  double flops = 0, peak = 0, bandwidth = 0;
  for (int id = 0; id < graph->nodes.n; id++) flops += least_flops(graph, id);
  for (int i = 0; i < p->price.n_classes; i++) {
    const PriceClass *class = &p->price.classes[i];
    const ClusterDevice *device = class->group->device;
    double ranks = (double)class->ranks * machine_share(p);
    peak += ranks * peak_of(device, model->precision.compute);
    bandwidth += ranks * (double)device->values[DEVICE_bandwidth];
  }
  double computes = seconds_at(flops, peak);
  double moves = seconds_at(updated_bytes(graph), bandwidth);
  double floor = (computes > moves ? computes : moves) * 1e12;
  return floor < (double)SIM_LONGEST ? (Ps)floor : SIM_LONGEST;
}

void plan_print_floor_json(Text *out, const Priced *priced) {
  text_add(out, ",\"floor_s\":");
  text_add_real(out, (double)planning_floor(priced) * 1e-12);
}
