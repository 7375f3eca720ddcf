/*
 * command_ir.c -- `dnnc ir`: a graph as text, as the front end built it or
 * after a pass; with --dump alone, after all of them.
 */
#include "tools/tools.h"

#include <stdio.h>
#include <string.h>

static Graph *choose(Tool *tool, Compilation *c, const char *code) {
  const Model *model = c->model;
  DecodeGraphs stepping;
  if (!strcmp(code, "decode")) {
    if (!model->prefill || !compile_decode(tool, model, &stepping)) return NULL;
    c->is_decode = true;
    return stepping.step;
  }
  if (!strcmp(code, "train")) return model->train;
  if (!strcmp(code, "eval")) return model->eval;
  if (!strcmp(code, "eval_remainder")) return model->eval_remainder;
  if (!strcmp(code, "predict")) return model->predict;
  if (!strcmp(code, "prefill")) return model->prefill;
  if (!strcmp(code, "forward")) return model->forward;
  return NULL;
}

int command_ir(Tool *tool) {
  const Options *options = &tool->options;
  Compilation c = {0};
  int status = compile_setup(tool, &c, false);
  if (status != EXIT_done) return status;
  const char *code = options->code        ? options->code
                     : options->value     ? "predict"
                     : c.model->has_train ? "train"
                                          : "forward";
  Graph *graph = choose(tool, &c, code);
  if (!graph) {
    message_print("dnnc: error: this model has no code '%s'\n", code);
    return EXIT_user;
  }
  if (options->after || options->stop_after || options->dump) {
    graph = compile_graph(tool, &c, graph, !strcmp(code, "train"));
    if (tool_report(tool)) return EXIT_user;
  }
  Text out = text_create(tool->arena);
  graph_print(&out, graph);
  tool_print(&out);
  return EXIT_done;
}
