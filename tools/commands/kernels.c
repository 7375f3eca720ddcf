/*
 * kernels.c -- writes the work of each kernel of a training step, for
 * `dnnc tune`, which knows from a profile how long they take:
 *
 *     kernel,part,op,dtype,batch,m,n,k,flops,bytes
 *     9f2c51e6a0b4d870,product,dot,f32,1,768,128,256,50331648,1048576
 */
#include "price/cost.h"
#include "tools/commands/tools.h"

#include <string.h>

typedef struct KernelList {
  Text *out;
  Map *seen; /* launch keys */
} KernelList;

static void add_kernel(KernelList *list, const Graph *graph, int id) {
  uint64_t key = launch_key(graph, id);
  const void *entry = (const void *)(uintptr_t)key;
  if (map_get(list->seen, entry)) return;
  map_put(list->seen, entry, list);
  const Node *node = graph->nodes.data[id];
  Work work = node_work(graph, id);
  text_printf(
      list->out, "%016llx,%s,%s,%s,%lld,%lld,%lld,%lld,%.0f,%lld\n",
      (unsigned long long)key, cost_term_info(cost_part(graph, id))->name,
      op_info(node->op)->name, dtype_name(work.dtype), (long long)work.batch,
      (long long)work.m, (long long)work.n, (long long)work.k,
      work_useful_flops(&work), (long long)(work.read + work.written));
}

static void add_instructions(KernelList *list, const InstructionList *from) {
  VEC(const Graph *) graphs = {0};
  Arena *arena = list->out->arena;
  vec_push(arena, &graphs, from->graph);
  for (int i = 0; i < from->instructions.n; i++) {
    const Instruction *instruction = &from->instructions.data[i];
    const Graph *graph = graphs.data[graphs.n - 1];
    if (instruction->kind == INSTRUCTION_run)
      add_kernel(list, graph, instruction->node);
    if (instruction->kind == INSTRUCTION_loop)
      vec_push(arena, &graphs,
               instruction->node < 0
                   ? graph
                   : graph->nodes.data[instruction->node]->body);
    if (instruction->kind == INSTRUCTION_end) graphs.n--;
  }
}

const char *tool_kernels(Tool *tool, const Compilation *c) {
  bool has_step = false;
  Text out = text_create(tool->arena);
  KernelList list = {&out, map_create(tool->arena)};
  text_add(&out, "kernel,part,op,dtype,batch,m,n,k,flops,bytes\n");
  for (int k = 0; k < c->classes.n; k++) {
    const EntryPoint *step =
        rank_program_find(&c->classes.data[k].program, ENTRY_train);
    for (int s = 0; step && s < step->stages.n; s++)
      add_instructions(&list, step->stages.data[s].instructions);
    has_step = has_step || step;
  }
  return has_step ? text_string(&out) : NULL;
}

Status tool_write_kernels(Tool *tool, const Compilation *c, const char *path) {
  const char *text = tool_kernels(tool, c);
  if (text) return file_replace(path, text, strlen(text));
  return status_make(STATUS_invalid,
                     "'%s' has no train block: --kernels lists those of a "
                     "training step",
                     c->model->name);
}
