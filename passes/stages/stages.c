/*
 * stages.c -- gives each node of a forward graph its stage, where the plan has
 * several.
 *
 *     %2 = dot %1, %0  "ffn[0].h"       %2 = dot %1, %0  stage 0 "ffn[0].h"
 *     %4 = dot %2, %3  "ffn[1].h"   =>  %4 = dot %2, %3  stage 1 "ffn[1].h"
 *     %5 = iota                         %5 = iota
 *
 * ir/plan/stage_labels.c has the rule.  Later passes give what they append the
 * stage of the node for which they append it: a gradient that of its forward
 * node, an update that of its parameter.  A node without a stage depends on
 * data, step, seed and constants alone, or is a scalar of the update: each
 * stage that reads it computes it again.
 *
 * requires: paths of the front end     keeps: node ids
 * breaks: nothing                      cost: O(nodes)
 */
#include "passes/passes.h"

const Plan *pass_stage_plan(const PassContext *ctx) {
  return ctx->plan ? ctx->plan : ctx->compared;
}

static void report_backwards(const PassContext *ctx, const Graph *graph,
                             const StageFault *fault) {
  const PlanStage *reader =
      &pass_stage_plan(ctx)->stages.data[fault->reader_stage - 1];
  diag(ctx->module->diags, DIAG_stage_backwards, reader->span,
       graph_path(graph, fault->value), fault->value_stage - 1,
       fault->reader_stage - 1, graph_path(graph, fault->reader));
}

Graph *pass_stages(PassContext *ctx, const Graph *graph) {
  const Plan *plan = pass_stage_plan(ctx);
  if (!plan || plan->stages.n <= 1) return NULL;
  StageFault fault;
  const uint16_t *stages =
      stage_labels(ctx->scratch, graph, plan->stage_of, &fault);
  if (!stages) {
    report_backwards(ctx, graph, &fault);
    return NULL;
  }
  Graph *own = graph_copy(ctx->module, graph);
  for (int id = 0; id < own->nodes.n; id++)
    own->nodes.data[id]->stage = stages[id];
  return own;
}
