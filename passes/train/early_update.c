/*
 * early_update.c -- decides whether each stage updates its parameters as soon
 * as it has their gradients, or waits until all stages have theirs.
 *
 * Schedules whose row says so (ir/pipeline/pipeline_schedules.def) let ranks
 * end a step and begin the next one at different times.  An update that waits
 * for the loss and the norm of all gradients brings all ranks together at the
 * end of each step, and the wait that the schedule avoids is back.
 *
 * Three things need the gradients of all stages: clipping by their norm, a
 * dynamic loss scale, and a parameter that several stages read.
 *
 * Where stages keep versions of their parameters no update can wait, so these
 * three are mistakes.
 *
 *     schedule = zbh2, clip = 0     ok of stage s = finite(norm of stage s)
 *     schedule = zbh2, clip = 1     ok            = finite(norm of all)
 */
#include "passes/train/early_update.h"

#include "passes/rewrite.h"

/* A parameter of which a stage reads what another one has. */
typedef struct Shared {
  Name path;
  int reader, owner; /* stages, counted from 1 */
} Shared;

/* Finds one, read itself or through nodes that follow from parameters alone. */
static bool find_shared(Arena *arena, const Graph *graph, Shared *out) {
  /* By node: a parameter that it follows from, without data. */
  Name *of = ARENA_ARRAY(arena, Name, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    bool is_free = true; /* of data */
    if (node->op == OP_input) {
      const GraphInput *input =
          &graph->inputs.data[node_int(node, ATTR_index, 0)];
      if (input->role == ROLE_param) of[id] = input->path;
      continue;
    }
    for (int i = 0; i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      int owner = graph->nodes.data[from]->stage;
      if (of[from] && owner && node->stage && owner != node->stage) {
        *out = (Shared){of[from], node->stage, owner};
        return true;
      }
      is_free &= of[from] || graph->nodes.data[from]->op == OP_const;
    }
    for (int i = 0; i < node->n_inputs && is_free && !of[id]; i++)
      of[id] = of[node->inputs[i].node];
  }
  return false;
}

static bool clips(const PassContext *ctx) {
  return ctx->model->settings.clip > 0;
}

static bool scale_is_dynamic(const PassContext *ctx) {
  return pass_precision_of(ctx)->loss_scale < 0;
}

/* Returns what needs the gradients of all stages, as a sentence.  Returns NULL
 * if nothing does. */
static const char *why_update_waits(const PassContext *ctx,
                                    const Graph *graph) {
  Shared shared;
  if (clips(ctx)) return "'clip' needs the norm of all gradients";
  if (scale_is_dynamic(ctx))
    return "a dynamic loss scale changes where any gradient is not finite";
  if (!find_shared(ctx->scratch, graph, &shared)) return NULL;
  return arena_printf(ctx->module->arena,
                      "stage %d reads the parameter '%s' of stage %d",
                      shared.reader - 1, shared.path, shared.owner - 1);
}

bool early_update_holds(const PassContext *ctx, const Graph *graph) {
  const Plan *plan = pass_stage_plan(ctx);
  if (!plan || plan->stages.n <= 1 || !plan_updates_early(ctx->scratch, plan))
    return false;
  Diags *diags = ctx->module->diags;
  Span span = plan->stages.data[0].span;
  const char *why = why_update_waits(ctx, graph);
  bool has_versions = plan_has_versions(ctx->scratch, plan);
  if (why && has_versions)
    diag_help(diag(diags, DIAG_update_once, span, plan->schedule, why),
              "take a schedule that keeps one version of the parameters, such "
              "as '1f1b'");
  else if (!ctx->is_trial && why)
    diag(diags, DIAG_update_waits, span, plan->schedule, why);
  else if (!ctx->is_trial)
    diag(diags, has_versions ? DIAG_update_versions : DIAG_update_early, span,
         plan->schedule);
  return !why;
}

uint16_t early_update_stage(const PassContext *ctx, uint16_t stage) {
  return stage ? stage : (uint16_t)pass_stage_plan(ctx)->stages.n;
}
