/*
 * plan_lines.c -- says of each line of a plan what it costs and what it buys.
 *
 *     shard H, F over tensor   384 transfers, 1584 ms exposed    the line costs
 *                              + 240 s, + 900 GB without it      and buys
 *
 * A line costs what its collectives take (collective_pins.c finds the line
 * behind each), or the messages over its cut.  What it buys is the difference
 * to the same plan without it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/trial.h"
#include "frontend/syntax/ast.h"
#include "tools/show/inspect.h"

/* ---- what lines cost ---- */

static void add_lines(Arena *arena, const Ast *ast, PlanLines *out) {
  VEC(Span) spans = {0};
  for (int i = 0; i < ast->n_items; i++) {
    const Item *item = &ast->items[i];
    for (int k = 0; item->kind == ITEM_plan && k < item->n_pins; k++)
      vec_push(arena, &spans, item->pins[k].span);
  }
  plan_lines_add(arena, spans.data, spans.n, out);
}

static bool has_pin(const PlanLine *line, Span pin) {
  for (int i = 0; i < line->spans.n; i++) {
    Span span = line->spans.data[i];
    if (span.begin <= pin.begin && pin.begin < span.end) return true;
  }
  return false;
}

/* The last row is for what is of no line of the plan. */
static PlanLine *find_line(const PlanLines *lines, const char *plan, Span pin) {
  int rest = lines->lines.n - 1;
  if (!pin.source || strcmp(pin.source->path, plan) != 0)
    return &lines->lines.data[rest];
  for (int i = 0; i < rest; i++)
    if (has_pin(&lines->lines.data[i], pin)) return &lines->lines.data[i];
  return &lines->lines.data[rest];
}

/* The reason for a message is the line of the lower stage, after which a cut
 * is, or that about servers. */
static Span reason_of(Arena *arena, const Plan *plan, const PricedNode *at) {
  const ProgramEdge *edge = at->edge;
  if (!edge) return collective_pins(arena, plan, at->graph, at->id).first;
  if (plan_servers(plan)) return plan->servers.span;
  int lower = edge->from < edge->to ? edge->from : edge->to;
  return plan->stages.data[lower].span;
}

static bool is_received(const PricedNode *at) {
  return at->edge && at->edge->to == at->stage->number;
}

static void add_costs(Tool *tool, const Priced *p, PlanLines *lines) {
  const char *plan = tool->options.plan;
  const PricedClass *class = priced_shown(p);
  Map *seen = map_create(tool->arena); /* node, or edge -> its line, plus 1 */
  for (int i = 0; i < class->queues.n + class->stream.n; i++) {
    bool is_queue = i < class->queues.n;
    const QueueSpan *sent = &class->queues.data[i];
    const StreamSpan *wait = &class->stream.data[i - class->queues.n];
    if (!is_queue && !wait->is_wait) continue;
    const PricedNode *at =
        &class->nodes[is_queue ? sent->instruction : wait->instruction];
    const void *key = at->edge ? (const void *)at->edge : at->node;
    intptr_t row = (intptr_t)map_get(seen, key);
    if (!row) {
      Span pin = reason_of(tool->arena, p->c->plan, at);
      row = find_line(lines, plan, pin) - lines->lines.data + 1;
      map_put(seen, key, (void *)row);
    }
    PlanLine *line = &lines->lines.data[row - 1];
    line->n_transfers += is_queue;
    line->sent += is_queue && !is_received(at) ? priced_node_sent(at) : 0;
    line->busy += is_queue ? sent->end - sent->begin : 0;
    line->exposed += is_queue ? 0 : priced_length(wait);
  }
}

static int compare_lines(const void *a, const void *b) {
  const PlanLine *x = a, *y = b;
  if (x->exposed != y->exposed) return x->exposed < y->exposed ? 1 : -1;
  if (x->busy != y->busy) return x->busy < y->busy ? 1 : -1;
  return strcmp(x->text, y->text); /* however the file orders them */
}

/* ---- what they buy ---- */

typedef struct LineTrials {
  Tool *tool;
  const Priced *p;
  PlanLine **lines; /* by trial */
  int n, n_ended;
} LineTrials;

/* On a terminal only. */
static void show_progress(const LineTrials *trials) {
  if (trials->n == 0 || !isatty(STDERR_FILENO)) return;
  if (trials->n_ended < trials->n)
    fprintf(stderr, "\rpricing the plan without a line: %d of %d",
            trials->n_ended + 1, trials->n);
  else
    fprintf(stderr, "\r%50s\r", "");
  fflush(stderr);
}

static void end_trial(void *user, int i, const Trial *trial, bool is_priced) {
  LineTrials *trials = user;
  PlanLine *line = trials->lines[i];
  line->is_legal = is_priced;
  if (is_priced) {
    line->step_without = trial->priced.price.step;
    line->peak_without = trial->priced.peak;
    line->step_change = line->step_without - trials->p->price.step;
    line->peak_change = line->peak_without - trials->p->peak;
  } else {
    line->why = diags_first_error(trial->module.diags, trials->tool->arena);
  }
  trials->n_ended++;
  show_progress(trials);
}

/* Returns NULL and notes why where the file is no plan without the line. */
static const Pins *pins_without(Tool *tool, const Priced *p,
                                const Source *source, PlanLine *line) {
  Diags *diags = diags_create(tool->arena);
  PlanSource from = {
      .file = source, .without = line->spans.data, .n_without = line->spans.n};
  const Pins *pins = driver_read_pins(p->c, &from, diags);
  if (!pins) line->why = diags_first_error(diags, tool->arena);
  return pins;
}

/* The first `n` lines, as many at a time as there are processors. */
static void try_lines(Tool *tool, const Priced *p, const Source *source,
                      PlanLine *lines, int n) {
  PriceRequest request = priced_request(p);
  LineTrials trials = {
      .tool = tool, .p = p, .lines = ARENA_ARRAY(tool->arena, PlanLine *, n)};
  TrialPlan *plans = ARENA_ARRAY(tool->arena, TrialPlan, n);
  for (int i = 0; i < n; i++) {
    lines[i].is_tried = true;
    const Pins *pins = pins_without(tool, p, source, &lines[i]);
    if (!pins) continue;
    plans[trials.n].pins = pins;
    trials.lines[trials.n++] = &lines[i];
  }
  show_progress(&trials);
  driver_try_all(p->c, &(TrialList){.n = trials.n,
                                    .plans = plans,
                                    .request = &request,
                                    .most_threads = tool_threads(),
                                    .visit = end_trial,
                                    .user = &trials});
}

Ps plan_lines_rest(const PlanLines *lines, Ps step) {
  for (int i = 0; i < lines->lines.n; i++) step -= lines->lines.data[i].exposed;
  return step;
}

PlanLines plan_lines_of(Tool *tool, const Priced *p) {
  PlanLines out = {0};
  const Source *source = NULL;
  const Ast *ast = tool_parse_plan(tool, tool->options.plan, &source);
  if (!ast || p->n_classes == 0) return out;
  add_lines(tool->arena, ast, &out);
  int n = out.lines.n;
  vec_push(tool->arena, &out.lines,
           (PlanLine){.text = "what no line of the plan says"});
  add_costs(tool, p, &out);
  qsort(out.lines.data, (size_t)n, sizeof *out.lines.data, compare_lines);
  int64_t most =
      tool->options.lines < 0 ? MOST_TRIED_LINES : tool->options.lines;
  try_lines(tool, p, source, out.lines.data, n < most ? n : (int)most);
  return out;
}
