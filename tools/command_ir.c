/*
 * command_ir.c -- `dnnc ir`: a graph as text, as the front end built it or
 * after a pass; with --dump alone, after all of them.
 */
#include "tools/tools.h"

static EntryPointId chosen_entry_point(const Options *options,
                                       const Model *model) {
  if (options->code) return entry_point_find(options->code);
  if (options->value) return ENTRY_predict;
  return model->has_train ? ENTRY_train : ENTRY_forward;
}

int command_ir(Tool *tool) {
  const Options *options = &tool->options;
  Compilation c;
  int code = tool_load(tool, &c);
  if (code != EXIT_done) return code;
  EntryPointId id = chosen_entry_point(options, c.model);
  Graph *graph = id == N_ENTRY_POINTS ? NULL : driver_graph(&c, id);
  if (!graph) {
    message_print("dnnc: error: this model has no code '%s'\n",
                  id == N_ENTRY_POINTS ? options->code
                                       : entry_point_info(id)->name);
    return EXIT_user;
  }
  const char *last = options->stop_after ? options->stop_after : options->after;
  if (last || options->dump) graph = driver_run_passes(&c, id, graph, last);
  if (!graph) return EXIT_user;
  Text out = text_create(tool->arena);
  graph_print(&out, graph);
  tool_print(&out);
  return EXIT_done;
}
