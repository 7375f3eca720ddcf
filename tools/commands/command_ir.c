/*
 * command_ir.c -- implements `dnnc ir`, which prints a graph as the front end
 * built it or after a pass; with --dump alone, after all passes.  With
 * --instructions it prints the list that is made of the final graph.  A plan
 * with stages has a graph for each from `partition` on.
 */
#include "tools/commands/tools.h"

static EntryPointId chosen_entry_point(const Options *options,
                                       const Model *model) {
  if (options->entry) return entry_point_find(options->entry);
  if (options->value) return ENTRY_predict;
  return model->has_train ? ENTRY_train : ENTRY_forward;
}

static void report_no_graph(const Options *options, EntryPointId id) {
  const char *names[N_ENTRY_POINTS];
  if (id < N_ENTRY_POINTS) {
    message_print("dnnc: error: '%s' has no entry point '%s'\n",
                  options->subject, entry_point_name(id));
    return;
  }
  for (int i = 0; i < N_ENTRY_POINTS; i++)
    names[i] = entry_point_name((EntryPointId)i);
  const char *nearest = text_nearest(options->entry, names, N_ENTRY_POINTS);
  message_print("dnnc: error: no entry point '%s'\n", options->entry);
  if (nearest)
    message_print("help: did you mean '%s'?\n", nearest);
  else
    message_print("help: 'dnnc ir --help' names them\n");
}

/* Prints the graphs of all stages, or the instructions of each. */
static void print_stages(const Compilation *c, const StageGraphs *stages,
                         bool are_instructions, Text *out) {
  int n = stages->graphs.n;
  for (int s = 0; s < n; s++) {
    const Graph *graph = stages->graphs.data[s];
    if (n > 1) text_printf(out, "%s# stage %d of %d\n", s ? "\n" : "", s, n);
    if (are_instructions)
      instructions_print(out, driver_instructions(c, graph));
    else
      graph_print(out, graph);
  }
}

int command_ir(Tool *tool) {
  const Options *options = &tool->options;
  const char *last = options->stop_after ? options->stop_after : options->after;
  if (last && options->instructions) {
    message_print("dnnc: error: --instructions lists what is left after all "
                  "passes\nhelp: leave out %s\n",
                  options->stop_after ? "--stop-after" : "--after");
    return EXIT_user;
  }
  Compilation c;
  int code = tool_load(tool, &c);
  if (code != EXIT_done) return code;
  EntryPointId id = chosen_entry_point(options, c.model);
  Graph *graph = id == N_ENTRY_POINTS ? NULL : driver_graph(&c, id);
  if (!graph) {
    report_no_graph(options, id);
    return EXIT_user;
  }
  bool runs_passes = last || options->dump || options->instructions;
  StageGraphs stages = {0};
  if (!runs_passes)
    vec_push(tool->arena, &stages.graphs, graph);
  else if (!driver_compile_stages(&c, id, graph, pass_end(last), &stages))
    return EXIT_user;
  Text out = text_create(tool->arena);
  print_stages(&c, &stages, options->instructions, &out);
  tool_print(&out);
  return EXIT_done;
}
