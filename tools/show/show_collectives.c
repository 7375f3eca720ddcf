/*
 * show_collectives.c -- implements `dnnc show PLAN --model MODEL`: the
 * collectives of a training step with their causes, and the memory of a rank
 * (show_memory.c).
 *
 *     all_reduce  tensor  12288  2  forward  gpt2.dnn:21  'attn.dot':
 *                                  tensor.plan:8: shard H, F over tensor
 *
 * The rows are the collectives of the graph that codegen gets.  The bytes are
 * the payload that the run counts (comm_payload): those of operands or
 * results, whichever are larger.  collective_pins.c finds the lines of the plan
 * behind each.
 */
#include <stdio.h>
#include <string.h>

#include "passes/rewrite.h"
#include "tools/commands/tools.h"
#include "tools/show/show_stages.h"

typedef struct CollectiveRow {
  const Node *node;
  int stage; /* -1: there is one */
  const char *axes;
  int64_t bytes, times;
  CollectivePins pins;
} CollectiveRow;

typedef struct CollectiveRows {
  Arena *arena;
  const Plan *plan;
  int stage; /* of the graph that is read; -1: there is one */
  VEC(CollectiveRow) list;
} CollectiveRows;

/* ---- rows ---- */

static const char *axes_text(Arena *arena, const Name *axes, int n) {
  Text text = text_create(arena);
  for (int i = 0; i < n; i++) text_printf(&text, "%s%s", i ? "," : "", axes[i]);
  return text_string(&text);
}

static int64_t payload_bytes(const Graph *graph, const Node *node) {
  int64_t bytes = 0;
  for (int i = 0; i < node->n_inputs; i++) {
    int64_t from =
        type_local_elements(graph_type(graph, node->inputs[i]), &graph->mesh);
    int64_t to = type_local_elements(node->types[i], &graph->mesh);
    bytes += (from > to ? from : to) * dtype_size_bytes(node->types[i]->dtype);
  }
  return bytes;
}

static void add_collectives(CollectiveRows *rows, const Graph *graph,
                            int64_t times, bool is_body) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    int64_t n = times;
    if (!is_body && node_is_per_microbatch(graph, id))
      n *= rows->plan->microbatches;
    if (node->op == OP_scan)
      add_collectives(rows, node->body, n * scan_steps(node), true);
    if (!op_has(node->op, OP_FLAG_group)) continue;
    int count = 0;
    const Name *axes = node_names(node, ATTR_axes, &count);
    CollectiveRow row = {.node = node,
                         .stage = rows->stage,
                         .axes = axes_text(rows->arena, axes, count),
                         .bytes = payload_bytes(graph, node),
                         .times = n};
    row.pins = collective_pins(rows->arena, rows->plan, graph, id);
    vec_push(rows->arena, &rows->list, row);
  }
}

/* ---- the table ---- */

static const char *place_of(Arena *arena, Span span) {
  int line, column;
  if (!span.source) return "";
  const char *slash = strrchr(span.source->path, '/');
  span_locate(span, &line, &column);
  return arena_printf(arena, "%s:%d", slash ? slash + 1 : span.source->path,
                      line);
}

static int64_t total_bytes(const CollectiveRows *rows) {
  int64_t sum = 0;
  for (int i = 0; i < rows->list.n; i++)
    sum += rows->list.data[i].bytes * rows->list.data[i].times;
  return sum;
}

static void print_rows(Text *out, const CollectiveRows *rows) {
  text_printf(out, "%-15s %-12s %12s %6s  %-8s %-20s %s\n", "operator", "axes",
              "bytes", "times", "phase", "line", "value and pin");
  for (int i = 0; i < rows->list.n; i++) {
    const CollectiveRow *row = &rows->list.data[i];
    text_printf(out, "%-15s %-12s %12lld %6lld  %-8s %-20s %s'%s': %s%s%s\n",
                op_info(row->node->op)->name, row->axes, (long long)row->bytes,
                (long long)row->times, phase_name(row->node->phase),
                place_of(out->arena, row->node->span),
                row->stage < 0
                    ? ""
                    : arena_printf(out->arena, "stage %d, ", row->stage),
                row->node->path ? row->node->path : "",
                place_of(out->arena, row->pins.first),
                row->pins.first.source ? ": " : "", row->pins.text);
  }
  text_printf(out, "%d collectives, %lld bytes a step on each rank%s\n",
              rows->list.n, (long long)total_bytes(rows),
              rows->stage < 0 ? "" : ", over all stages");
}

static void add_place(Text *out, const char *key, Span span) {
  int line, column;
  if (!span.source) return;
  span_locate(span, &line, &column);
  text_printf(out, ",\"%s_file\":", key);
  text_add_json(out, span.source->path);
  text_printf(out, ",\"%s_line\":%d", key, line);
}

static void add_rows_json(Text *out, const CollectiveRows *rows) {
  text_add(out, "\"collectives\":[");
  for (int i = 0; i < rows->list.n; i++) {
    const CollectiveRow *row = &rows->list.data[i];
    text_printf(out,
                "%s\n{\"operator\":\"%s\",\"axes\":\"%s\",\"bytes\":%lld,"
                "\"times\":%lld,\"phase\":\"%s\",\"path\":",
                i ? "," : "", op_info(row->node->op)->name, row->axes,
                (long long)row->bytes, (long long)row->times,
                phase_name(row->node->phase));
    text_add_json(out, row->node->path ? row->node->path : "");
    if (row->stage >= 0) text_printf(out, ",\"stage\":%d", row->stage);
    add_place(out, "model", row->node->span);
    add_place(out, "plan", row->pins.first);
    text_add(out, ",\"pin\":");
    text_add_json(out, row->pins.text);
    text_add(out, "}");
  }
  text_printf(out, "],\"bytes_per_step\":%lld", (long long)total_bytes(rows));
}

/* ---- the command ---- */

void show_collectives(Text *out, const Compilation *c, bool is_json) {
  CollectiveRows rows = {.arena = out->arena, .plan = c->plan};
  const StageGraphs *stages = &c->trained_stages;
  rows.stage = -1;
  if (c->plan && c->trained) add_collectives(&rows, c->trained, 1, false);
  for (int s = 0; s < stages->graphs.n; s++) {
    rows.stage = s;
    add_collectives(&rows, stages->graphs.data[s], 1, false);
  }
  (is_json ? add_rows_json : print_rows)(out, &rows);
}

/* Prints who holds what, and what is sent, of a plan with stages. */
static void show_layout(Text *out, const Compilation *c, bool is_json) {
  StageRows rows = stage_rows(out->arena, c);
  if (rows.n == 0) return;
  if (!is_json) {
    show_stages(out, c);
    return;
  }
  show_stages_json(out, c);
  text_add(out, ",");
  show_edges_json(out, rows.data[0].entry);
  text_add(out, ",");
}

int show_compiled(Tool *tool) {
  Compilation c;
  const Options *options = &tool->options;
  int code = tool_compile(tool, &c);
  if (code != EXIT_done) return code;
  Text out = text_create(tool->arena);
  if (options->json) text_add(&out, "{");
  show_layout(&out, &c, options->json);
  if (options->collectives) show_collectives(&out, &c, options->json);
  if (options->json && options->collectives) text_add(&out, ",");
  show_memory(&out, &c, options->json);
  if (options->json) text_add(&out, "}\n");
  tool_print(&out);
  return EXIT_done;
}
