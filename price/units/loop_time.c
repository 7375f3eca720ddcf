/*
 * loop_time.c -- adds up what the body of a scan launches.
 *
 *     scan of 80 iterations, batch in 4 parts
 *       dot [8, 1000] x [1000, 4000]       80 x its launch and its time
 *       fused gates                        80 x its launch and its time
 */
#include "price/units/loop_time.h"

#include "ir/list/instructions.h"
#include "ir/scan.h"
#include "ir/work.h"

typedef struct LoopSizes {
  Arena *arena;
  const Graph *body;
  const LoopBody *dims;
  const int64_t *parts; /* by loop dim */
} LoopSizes;

static const Type *part_of(const LoopSizes *s, Value value, uint64_t *all) {
  const Type *type = graph_type(s->body, value);
  const DimMap *map = &s->dims->values[value.node][value.result];
  Type *part = type_create(s->arena, type->dtype, type->rank);
  for (int d = 0; d < type->rank; d++) {
    int64_t n = map->at[d] < 0 ? 1 : s->parts[map->at[d]];
    part->dims[d] = (Dim){.name = type->dims[d].name,
                          .size = (type->dims[d].size + n - 1) / n};
    if (map->at[d] >= 0) *all |= (uint64_t)1 << map->at[d];
  }
  return part;
}

/* The operations of a fused kernel are counted as a whole. */
static Ps launch_time(const LoopSizes *s, const CostModel *model, int id) {
  const Node *node = s->body->nodes.data[id];
  const Type **inputs = ARENA_ARRAY(s->arena, const Type *, node->n_inputs + 1);
  const Type **results =
      ARENA_ARRAY(s->arena, const Type *, node->n_results + 1);
  uint64_t all = 0;
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = part_of(s, node->inputs[i], &all);
  for (int r = 0; r < node->n_results; r++)
    results[r] = part_of(s, (Value){id, r}, &all);
  Work work;
  op_work(s->arena, &(WorkCall){node, inputs, results, NULL}, &work);
  for (int d = 0; d < MOST_LOOP_DIMS && node->body; d++)
    if (all >> d & 1) work.flops /= (double)s->parts[d];
  LaunchCost cost = cost_work(model, node, &work);
  return cost.launch + cost.time;
}

Ps loop_time(Arena *scratch, const CostModel *model, const Node *scan,
             const LoopBody *body, const int64_t *parts) {
  LoopSizes s = {scratch, scan->body, body, parts};
  Ps sum = 0;
  for (int id = 0; id < scan->body->nodes.n; id++) {
    const Node *node = scan->body->nodes.data[id];
    if (!node_is_launched(scan->body, id)) continue;
    sum += node->op == OP_scan
               ? loop_time(scratch, model, node, body->inner[id], parts)
               : launch_time(&s, model, id);
  }
  return sum * scan_steps(scan);
}
