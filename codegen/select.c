/*
 * select.c -- turns a list of instructions into a straight list of launches.
 *
 *     run %2 dot                            GEMM        buffers 0 4096 8192
 *     start %3 all_reduce on 0     =>       COLLECTIVE  buffers 8192
 *     wait %3 all_reduce before %5          WAIT
 *     run %5 fused                          KERNEL      buffers 8192 12288
 *
 * The list (ir/list/instructions.h) says what happens, in which order.  A
 * matmul or a convolution is a library call, or a kernel where no library takes
 * it. Attention and some convolutions are kernels of the back end; every other
 * operator is a loop nest.
 * Where buffer assignment could not give an operand and a result the bytes that
 * an instruction needs them to share, a copy precedes its launch.
 *
 * A scan is a loop instruction followed by the launches of its body.  Values
 * that only the body has are in the workspace of the scan.  A value that the
 * body shares with the enclosing graph has the address of that graph in the
 * first iteration and advances by the bytes of one iteration in each.  A carry
 * has the address of its last value.  The loop of an unrolled scan has the
 * launches of several iterations; a second loop does the iterations left over.
 * Loops nest like their scans.
 *
 * Micro-batches: their segment has its launches once, and a call says which
 * micro-batch it is for.  A graph input holds all micro-batches end to end, so
 * its address advances with their number, as in a loop; all other values reuse
 * their bytes.  A run that does something else in the first call, as a matmul
 * that adds to its result in later ones, is written twice, for either.  A wait
 * for what was started before the segment is for the first call alone.
 *
 * Several stages: the segments of one follow those of the one before it, then
 * come those of messages (select_messages.c).  Values of a micro-batch that
 * outlive their segment advance with its frame or slot.
 */
#include "codegen/select.h"
#include "ir/work.h"

typedef struct Select {
  KernelSet *set;
  const Graph *graph;
  int first_rank; /* of the graph's mesh */
  const BufferAssignment *assignment;
  const InstructionList *list;
  Arena *arena;
  LaunchList *out;
  const ProgramSegment *segment; /* segment at hand */
  MessageWaits *waits;
  DnnWhen when;      /* calls that launches are for */
  int n_collectives; /* started so far: their ids */
  int n_swaps;       /* likewise */
  int *pending; /* by node: its id, plus 1, from its start to the wait for it */
  ValueTable *values; /* of the plain program; else NULL */
  const Pacer *pacer; /* or NULL */
  /* In the body of a scan: the enclosing graph, the scan there, the iteration
   * that these launches do when the loop begins, and how many iterations of the
   * scan the loop does at a time. */
  const struct Select *enclosing;
  int scan;
  int64_t iteration, unroll;
} Select;

/* ---- micro-batches ---- */

static bool is_sequential_axis(const Mesh *mesh, AxisList list, int index) {
  return mesh->axes[axis_list_at(list, index)].is_sequential;
}

static bool type_is_per_microbatch(const Graph *graph, const Type *type) {
  return type_uses_axes(type, mesh_sequential(&graph->mesh));
}

/* ---- addresses ---- */

static int value_index(const Select *select, Value value) {
  return select->assignment->first_value[value.node] + value.result;
}

/* The value whose bytes a view shows. */
static Value viewed_value(const Select *select, Value value) {
  while (node_is_view(select->graph, value.node) &&
         select->assignment->offset[value_index(select, value)] ==
             select->assignment->offset[value_index(
                 select, select->graph->nodes.data[value.node]->inputs[0])])
    value = select->graph->nodes.data[value.node]->inputs[0];
  return value;
}

static int64_t local_bytes(const Select *select, Value value) {
  const Type *type = graph_type(select->graph, value);
  return type_local_elements(type, &select->graph->mesh) *
         dtype_size_bytes(type->dtype);
}

/* The value of the enclosing graph whose bytes a value of a body has; false if
 * it has bytes of its own. */
static bool enclosing_value(const Select *select, Value value, Value *out) {
  if (!select->enclosing) return false;
  int place = select->assignment->outside[value_index(select, value)];
  if (place < 0) return false;
  const Node *scan = select->enclosing->graph->nodes.data[select->scan];
  *out = place < scan->n_inputs ? scan->inputs[place]
                                : (Value){select->scan, place - scan->n_inputs};
  return true;
}

/* Bytes from one iteration's part of a slice or stacked output to the next; 0
 * for a value that all iterations share. */
static int64_t iteration_bytes(const Select *select, Value value) {
  if (!select->enclosing) return 0;
  const Node *scan = select->enclosing->graph->nodes.data[select->scan];
  int place = select->assignment->outside[value_index(select, value)];
  int n = scan->n_inputs;
  bool has_parts =
      place < n ? place >= 0 && scan_input_role(scan, place) == ROLE_slice
                : place - n >= scan_carries(scan);
  return has_parts ? local_bytes(select, value) : 0;
}

/* An input, of which another stage does not send each micro-batch apart. */
static bool holds_microbatches(const Graph *graph, Value value) {
  const Node *node = graph_node(graph, value);
  return node->op == OP_input &&
         graph->inputs.data[node_int(node, ATTR_index, 0)].role != ROLE_receive;
}

/* Bytes from the part of one micro-batch to that of the next; 0 for a value
 * that reuses its bytes. */
static int64_t microbatch_bytes(const Select *select, Value value) {
  Value from = viewed_value(select, value);
  bool is_moved =
      holds_microbatches(select->graph, from) &&
      type_is_per_microbatch(select->graph, graph_type(select->graph, value));
  return is_moved ? local_bytes(select, value) : 0;
}

/* Bytes by which one more in a register moves a value. */
static int64_t register_bytes(const Select *select, Value value,
                              ProgramRegister number) {
  return number == REGISTER_microbatch
             ? microbatch_bytes(select, value)
             : assignment_advance(select->assignment,
                                  value_index(select, value), number);
}

/* Bytes by which the loop `out` levels outwards moves a value each time.
 * Registers are outside of all scans. */
static int64_t loop_advance(const Select *select, Value value, int out) {
  Value outer;
  if (!select->enclosing)
    return register_bytes(
        select, value,
        (ProgramRegister)(select->segment->n_registers - 1 - out));
  if (out > 0)
    return enclosing_value(select, value, &outer)
               ? loop_advance(select->enclosing, outer, out - 1)
               : 0;
  int64_t bytes = iteration_bytes(select, value) * select->unroll;
  const Node *scan = select->enclosing->graph->nodes.data[select->scan];
  return scan_is_reversed(scan) ? -bytes : bytes;
}

static int scan_depth(const Select *select) {
  int n = 0;
  for (const Select *at = select; at->enclosing; at = at->enclosing) n++;
  return n;
}

static bool has_microbatch(const Select *select) {
  return select->segment->n_registers > REGISTER_microbatch;
}

static int64_t address(const Select *select, Value value);

/* Where the workspace of a body begins. */
static int64_t workspace_of(const Select *select) {
  if (!select->enclosing) return 0;
  return workspace_of(select->enclosing) +
         select->enclosing->assignment->workspace[select->scan];
}

static int64_t address_in_body(const Select *select, Value value) {
  Value outer;
  if (!enclosing_value(select, value, &outer))
    return workspace_of(select) +
           select->assignment->offset[value_index(select, value)];
  const Node *scan = select->enclosing->graph->nodes.data[select->scan];
  int64_t part = scan_is_reversed(scan)
                     ? scan_steps(scan) - 1 - select->iteration
                     : select->iteration;
  return address(select->enclosing, outer) +
         iteration_bytes(select, value) * part;
}

static int64_t address(const Select *select, Value value) {
  if (select->enclosing) return address_in_body(select, value);
  return select->assignment->offset[value_index(select, value)];
}

/* ---- launches ---- */

static Launch begin_launch(const Select *select, int id, DnnOpcode op) {
  const Node *node = select->graph->nodes.data[id];
  return (Launch){.op = op,
                  .when = select->when,
                  .phase = (int)node->phase,
                  .kernel = -1,
                  .n_loops = select->segment->n_registers + scan_depth(select),
                  .path = node->path};
}

static void push_launch(Select *select, Launch launch) {
  vec_push(select->arena, select->out,
           arena_copy(select->arena, &launch, sizeof launch));
}

static void add_buffer(Select *select, Launch *launch, Value value) {
  vec_push(select->arena, &launch->buffers, address(select, value));
  for (int out = launch->n_loops - 1; out >= 0; out--)
    vec_push(select->arena, &launch->advances,
             loop_advance(select, value, out));
}

static void exchange_buffers(Launch *launch, int a, int b) {
  int64_t *buffers = launch->buffers.data, *advances = launch->advances.data;
  int64_t buffer = buffers[a];
  buffers[a] = buffers[b];
  buffers[b] = buffer;
  for (int i = 0; i < launch->n_loops; i++) {
    int64_t *x = &advances[a * launch->n_loops + i];
    int64_t *y = &advances[b * launch->n_loops + i], bytes = *x;
    *x = *y;
    *y = bytes;
  }
}

/* ---- values of the plain program ---- */

static int32_t value_row(const Select *select, Value value);

/* The inputs of a body are values of the enclosing graph. */
static int32_t new_row(const Select *select, Value value) {
  const Node *node = select->graph->nodes.data[value.node];
  Value outer;
  if (select->enclosing && node->op == OP_input &&
      enclosing_value(select, value, &outer))
    return value_row(select->enclosing, outer);
  int32_t row = value_table_add(select->values, select->graph, value.node);
  ValueRow *made = &select->values->rows.data[row];
  if (node->op == OP_input) {
    made->offset = select->enclosing ? 0 : address(select, value);
    made->elements = select->enclosing
                         ? 0
                         : local_bytes(select, value) /
                               dtype_size_bytes(node->types[0]->dtype);
    if (!select->enclosing &&
        type_is_per_microbatch(select->graph, node->types[0]))
      made->elements *= mesh_microbatches(&select->graph->mesh);
    return row;
  }
  for (int i = 0; i < node->n_inputs; i++) {
    int32_t input = value_row(select, node->inputs[i]);
    value_table_link(select->values, row, input);
  }
  return row;
}

static int32_t value_row(const Select *select, Value value) {
  int32_t *rows = value_table_rows(select->values, select->graph);
  int at = value_index(select, value);
  if (!rows[at]) {
    int32_t row = new_row(select, value);
    rows[at] = row + 1;
  }
  return rows[at] - 1;
}

/* The outputs of a scan's body become the results of the scan. */
static void link_scan(Select *select, int id) {
  const Node *node = select->graph->nodes.data[id];
  int32_t *rows = value_table_rows(select->values, node->body);
  const BufferAssignment *assignment = select->assignment->bodies[id];
  for (int r = 0; r < node->n_results; r++) {
    Value inner = node->body->outputs.data[r].value;
    int32_t from = rows[assignment->first_value[inner.node] + inner.result];
    int32_t to = value_row(select, (Value){id, r});
    if (from && from - 1 != to) value_table_link(select->values, to, from - 1);
  }
}

static Select enter_body(const Select *select, int id, int64_t iteration,
                         int64_t unroll);

/* A row for each value, in the order of the graph. */
static void add_value_rows(Select *select) {
  for (int id = 0; id < select->graph->nodes.n; id++) {
    const Node *node = select->graph->nodes.data[id];
    for (int r = 0; r < node->n_results; r++) value_row(select, (Value){id, r});
    if (node->op != OP_scan) continue;
    Select body = enter_body(select, id, 0, 1);
    add_value_rows(&body);
    link_scan(select, id);
  }
}

/* A check of the value that was added last to the buffers. */
static void add_check(Select *select, Launch *launch, Value value) {
  const Type *type = graph_type(select->graph, value);
  const int64_t numbers[DNN_CHECK_NUMBERS] = {
      address(select, value), type_local_elements(type, &select->graph->mesh),
      (int64_t)type->dtype, launch->buffers.n - 1,
      node_gives_infinity(select->graph, value.node)};
  for (int i = 0; i < DNN_CHECK_NUMBERS; i++)
    vec_push(select->arena, &launch->checks, numbers[i]);
}

/* A check of the plain program, which knows the value. */
static void add_value(Select *select, Launch *launch, Value value) {
  DType dtype = graph_type(select->graph, value)->dtype;
  if (!select->values || dtype_class(dtype) != CLASS_FLOAT) return;
  add_check(select, launch, value);
  vec_push(select->arena, &launch->values, value_row(select, value));
}

/* Buffers, costs and checks that every launch of a node has. */
static void fill_launch(Select *select, Launch *launch, int id) {
  const Node *node = select->graph->nodes.data[id];
  Work work = node_work(select->graph, id);
  launch->flops = work.flops;
  launch->bytes_moved = (double)(work.read + work.written);
  for (int i = 0; i < node->n_inputs; i++)
    add_buffer(select, launch, node->inputs[i]);
  for (int r = 0; r < node->n_results; r++) {
    Value value = {.node = id, .result = r};
    add_buffer(select, launch, value);
    DType dtype = node->types[r]->dtype;
    if (node->op != OP_scan) add_value(select, launch, value);
    if (dtype_is_rounded(dtype) && !select->enclosing && !select->values)
      add_check(select, launch, value);
  }
}

static void add_rank_offset(Select *select, Launch *launch, int number,
                            AxisList axes, int64_t factor) {
  DnnGroup group;
  bool has_digits =
      mesh_group(&select->graph->mesh, select->first_rank, axes, &group);
  ASSERT(has_digits); /* mesh_check_placements */
  if (group.size == 1) return;
  DnnRankOffset offset = {.number = number,
                          .group =
                              arena_copy(select->arena, &group, sizeof group),
                          .factor = factor};
  vec_push(select->arena, &launch->rank_offsets, offset);
}

/* Adds how much the number last appended grows with the micro-batch. */
static void add_number_advances(const Select *select, Launch *launch,
                                int64_t of_microbatch) {
  ASSERT(has_microbatch(select) || of_microbatch == 0);
  for (int i = 0; i < launch->n_loops; i++)
    vec_push(select->arena, &launch->number_advances,
             i == REGISTER_microbatch ? of_microbatch : 0);
}

/* The run-time numbers of a kernel: a call adds the micro-batch's share, the
 * rank its own through a DnnRankOffset for each run of rank axes. */
static void fill_numbers(Select *select, Launch *launch,
                         const NestNumber *numbers, int n) {
  const Mesh *mesh = &select->graph->mesh;
  for (int i = 0; i < n; i++) {
    const NestNumber *number = &numbers[i];
    int64_t of_microbatch = 0, weight = number->factor;
    for (int end = axis_list_length(number->split), k = end; k > 0; end = k) {
      AxisList run = 0;
      while (k > 0 && !is_sequential_axis(mesh, number->split, k - 1)) k--;
      for (int j = k; j < end; j++)
        run = axis_list_append(run, axis_list_at(number->split, j));
      add_rank_offset(select, launch, i, run, weight);
      weight *= axis_list_shards(run, mesh);
      if (k == 0) break;
      ASSERT(of_microbatch == 0); /* one axis has all micro-batches */
      of_microbatch = weight;
      weight *= mesh->axes[axis_list_at(number->split, --k)].size;
    }
    vec_push(select->arena, &launch->numbers, 0);
    add_number_advances(select, launch, of_microbatch);
  }
}

static void add_scratch(Select *select, Launch *launch, int id,
                        int64_t *out_bytes) {
  const Backend *backend = select->set->backend;
  int64_t at = select->assignment->workspace[id];
  if (at < 0) return;
  at += workspace_of(select);
  *out_bytes =
      backend->target.workspace_bytes(&backend->target, select->graph, id);
  vec_push(select->arena, &launch->buffers, at);
  for (int i = 0; i < launch->n_loops; i++)
    vec_push(select->arena, &launch->advances, 0);
}

/* A later micro-batch finds what was started before them ended. */
static void select_wait(Select *select, const Instruction *instruction) {
  int collective = instruction->collective;
  int *pending = &select->pending[collective];
  ASSERT(*pending);
  const Node *node = select->graph->nodes.data[collective];
  Launch launch = begin_launch(select, instruction->node,
                               op_is(node->op, OPCLASS_swap) ? DNN_OP_SWAP_WAIT
                                                             : DNN_OP_WAIT);
  if (!select->enclosing && has_microbatch(select) &&
      collective < select->segment->first_node)
    launch.when = DNN_FIRST;
  launch.phase = 4;
  vec_push(select->arena, &launch.numbers, *pending - 1);
  push_launch(select, launch);
  *pending = 0;
}

/* ---- nodes ---- */

static Status unsupported_status(const Select *select, int id,
                                 const char *why) {
  const Node *node = select->graph->nodes.data[id];
  return status_make(STATUS_unavailable,
                     "operator '%s' at '%s' is not supported yet by the %s "
                     "back end%s",
                     op_info(node->op)->name, node->path,
                     select->set->backend->name, why);
}

/* Floats of 8 bits have no kernels. */
static bool has_kernels_for(DType dtype) {
  return dtype_class(dtype) != CLASS_FLOAT || dtype_size_bytes(dtype) > 1;
}

static Status select_kernel(Select *select, int id) {
  const Node *node = select->graph->nodes.data[id];
  for (int r = 0; r < node->n_results; r++)
    if (!has_kernels_for(node->types[r]->dtype))
      return unsupported_status(select, id, " in this dtype");
  Launch launch = begin_launch(select, id, DNN_OP_KERNEL);
  const KernelKind *kind = kernel_set_kind(select->set, select->graph, id);
  if (kind->kernel < 0) return unsupported_status(select, id, "");
  launch.kernel = kind->kernel;
  if (kind->nest)
    fill_numbers(select, &launch, kind->nest->numbers, kind->nest->n_numbers);
  else if (kind->number.split)
    fill_numbers(select, &launch, &kind->number, 1);
  for (int i = 0; i < kind->n_sizes; i++)
    vec_push(select->arena, &launch.numbers, kind->sizes[i]);
  fill_launch(select, &launch, id);
  push_launch(select, launch);
  return STATUS_OK;
}

static void add_zero(Select *select, int id, Value value) {
  Launch launch = begin_launch(select, id, DNN_OP_ZERO);
  add_buffer(select, &launch, value);
  vec_push(select->arena, &launch.numbers, local_bytes(select, value));
  launch.bytes_moved = (double)local_bytes(select, value);
  push_launch(select, launch);
}

/* One call of a matmul.  Its result is complete after the last one. */
static void select_gemm_call(Select *select, int id, const GemmCalls *calls,
                             int64_t i, bool adds) {
  const Graph *graph = select->graph;
  const Node *node = graph->nodes.data[id];
  Launch launch = begin_launch(select, id, DNN_OP_GEMM);
  launch.gemm = calls->gemm;
  launch.gemm.accumulate = adds || i > 0;
  fill_launch(select, &launch, id);
  launch.flops /= (double)calls->n;
  launch.bytes_moved /= (double)calls->n;
  if (i < calls->n - 1) launch.checks.n = launch.values.n = 0;
  if (calls->is_exchanged) exchange_buffers(&launch, 0, 1);
  int64_t item = dtype_size_bytes(graph_type(graph, node->inputs[0])->dtype);
  launch.buffers.data[0] += i * calls->a_step * item;
  launch.buffers.data[1] += i * calls->b_step * item;
  add_scratch(select, &launch, id, &launch.gemm.scratch_bytes);
  push_launch(select, launch);
}

/* A product that joins micro-batches adds to the result of the one before: a
 * library from the second micro-batch on, a kernel always. */
static Status select_dot(Select *select, int id) {
  bool joins = node_joins_microbatches(select->graph->nodes.data[id]);
  bool is_later = select->when == DNN_LATER;
  GemmCalls calls;
  if (!select_gemm(select->graph, id, &calls) ||
      (select->set->backend->needs_unit_strides &&
       !has_unit_strides(&calls.gemm))) {
    if (joins && !is_later) add_zero(select, id, (Value){id, 0});
    return select_kernel(select, id);
  }
  for (int64_t i = 0; i < calls.n; i++)
    select_gemm_call(select, id, &calls, i, joins && is_later);
  return STATUS_OK;
}

static Status select_convolution(Select *select, int id) {
  Launch launch = begin_launch(select, id, DNN_OP_CONV);
  if (!select_conv(select->graph, id, &launch.conv))
    return select_kernel(select, id);
  if (!select->set->backend->uses_host_libraries)
    launch.kernel = kernel_set_kind(select->set, select->graph, id)->kernel;
  fill_launch(select, &launch, id);
  add_scratch(select, &launch, id, &launch.conv.scratch_bytes);
  push_launch(select, launch);
  return STATUS_OK;
}

static void add_copy(Select *select, int id, Value from, Value to) {
  Launch launch = begin_launch(select, id, DNN_OP_COPY);
  add_buffer(select, &launch, from);
  add_buffer(select, &launch, to);
  int64_t bytes = local_bytes(select, to);
  vec_push(select->arena, &launch.numbers, bytes);
  launch.bytes_moved = 2 * (double)bytes;
  push_launch(select, launch);
}

_Static_assert(
    (int)QUEUE_blocking == DNN_QUEUE_BLOCKING &&
        (int)QUEUE_bulk == DNN_QUEUE_BULK && (int)QUEUE_out == DNN_N_QUEUES,
    "program.h and instructions.def have the same queues of collectives");
_Static_assert(HOST_ORIGIN == DNN_HOST_ORIGIN,
               "program.h and ir/program.h have the same arenas");

/* The bytes of input and result that one part of a collective works on; in
 * place they are the same. */
static Status add_part(Select *select, Launch *launch, int id, int part) {
  const Graph *graph = select->graph;
  const Node *node = graph->nodes.data[id];
  bool is_in_place = op_has(node->op, OP_FLAG_in_place);
  Value from = node->inputs[part], to = {.node = id, .result = part};
  if (node->types[part]->dtype != node->types[0]->dtype)
    return unsupported_status(select, id, " for several dtypes at once");
  if (is_in_place && address(select, from) != address(select, to))
    add_copy(select, id, from, to);
  add_buffer(select, launch, to);
  int64_t n = type_local_elements(graph_type(graph, from), &graph->mesh);
  int64_t m = type_local_elements(node->types[part], &graph->mesh);
  vec_push(select->arena, &launch->counts, n > m ? n : m);
  launch->bytes_moved +=
      (double)((n > m ? n : m) * dtype_size_bytes(node->types[part]->dtype));
  return STATUS_OK;
}

static Status select_collective(Select *select,
                                const Instruction *instruction) {
  const Graph *graph = select->graph;
  int id = instruction->node;
  const Node *node = graph->nodes.data[id];
  Launch launch = begin_launch(select, id, DNN_OP_COLLECTIVE);
  launch.phase = 4;
  DnnGroup group;
  AxisList axes = collective_axes(&graph->mesh, node);
  bool is_ordered = !op_has(node->op, OP_FLAG_in_place);
  if (!(is_ordered ? mesh_group : mesh_group_ascending)(
          &graph->mesh, select->first_rank, axes, &group))
    return unsupported_status(select, id, " over so many axes");
  ASSERT(group.size > 1); /* plan_close keeps no axis of one rank */
  for (int i = 0; i < node->n_inputs && is_ordered; i++)
    add_buffer(select, &launch, node->inputs[i]);
  for (int i = 0; i < node->n_inputs; i++) {
    TRY(add_part(select, &launch, id, i));
    add_value(select, &launch, (Value){id, i});
  }
  launch.collective = (DnnCollective){
      .kind = (uint8_t)(codegen_message_kind(node->op) - 1),
      .reduce = (uint8_t)collective_reduction(node),
      .dtype = (DnnDtype)node->types[0]->dtype,
      .queue = (uint8_t)select->list->queues.data[instruction->queue].kind,
      .id = select->n_collectives++,
      .peer = (int32_t)node_int(node, ATTR_shift, 0),
      .group = arena_copy(select->arena, &group, sizeof group),
      .n_parts = launch.counts.n};
  push_launch(select, launch);
  select->pending[id] = select->n_collectives;
  return STATUS_OK;
}

static void select_swap(Select *select, int id) {
  const Node *node = select->graph->nodes.data[id];
  Launch launch = begin_launch(select, id, DNN_OP_SWAP);
  int64_t bytes = local_bytes(select, (Value){id, 0});
  launch.phase = 4;
  launch.bytes_moved = (double)bytes;
  add_buffer(select, &launch, node->inputs[0]);
  add_buffer(select, &launch, (Value){id, 0});
  vec_push(select->arena, &launch.numbers, bytes);
  vec_push(select->arena, &launch.numbers, select->n_swaps++);
  push_launch(select, launch);
  select->pending[id] = select->n_swaps;
}

/* The kernel of `update_slice` writes one row into a copy of all others. */
static Status select_update_slice(Select *select, int id) {
  Value from = select->graph->nodes.data[id]->inputs[0];
  Value to = {.node = id, .result = 0};
  if (address(select, from) != address(select, to))
    add_copy(select, id, from, to);
  return select_kernel(select, id);
}

/* A maximum or minimum begins with the first micro-batch, a sum with zero. */
static Status select_accumulate(Select *select, int id) {
  const Node *node = select->graph->nodes.data[id];
  if (select->when == DNN_LATER || collective_reduction(node) == REDUCE_sum)
    return select_kernel(select, id);
  for (int i = 0; i < node->n_inputs; i++)
    add_copy(select, id, node->inputs[i], (Value){id, i});
  return STATUS_OK;
}

/* The instructions from place `begin` of the list up to `end`. */
static Status select_instructions(Select *select, int begin, int end);

static Select enter_body(const Select *select, int id, int64_t iteration,
                         int64_t unroll) {
  const Graph *body = select->graph->nodes.data[id]->body;
  Select inner = *select;
  inner.graph = body;
  inner.assignment = select->assignment->bodies[id];
  inner.enclosing = select;
  inner.scan = id;
  inner.iteration = iteration;
  inner.unroll = unroll;
  inner.pending = ARENA_ARRAY(select->arena, int, body->nodes.n);
  return inner;
}

/* The instructions of a scan's loop, and its node. */
typedef struct ScanRange {
  int id, begin, end;
} ScanRange;

/* A loop that does `n` iterations of the scan at a time, `times` times, from
 * iteration `from` on. */
static Status select_scan_loop(Select *select, ScanRange scan, int64_t from,
                               int64_t n, int64_t times) {
  int id = scan.id;
  Launch loop = begin_launch(select, id, DNN_OP_LOOP);
  fill_launch(select, &loop, id);
  loop.buffers.n = loop.advances.n = 0;
  double share =
      (double)(n * times) / (double)scan_steps(select->graph->nodes.data[id]);
  loop.flops *= share;
  loop.bytes_moved *= share;
  int at = select->out->n;
  push_launch(select, loop);
  for (int64_t i = 0; i < n; i++) {
    Select body = enter_body(select, id, from + i, n);
    TRY(select_instructions(&body, scan.begin, scan.end));
    select->n_collectives = body.n_collectives;
  }
  Launch *pushed = select->out->data[at];
  vec_push(select->arena, &pushed->numbers, select->out->n - at - 1);
  vec_push(select->arena, &pushed->numbers, times);
  return STATUS_OK;
}

static Status select_scan(Select *select, ScanRange scan) {
  int id = scan.id;
  const Node *node = select->graph->nodes.data[id];
  if (scan_depth(select) == DNN_MAX_LOOPS - DNN_N_REGISTERS)
    return unsupported_status(select, id, " inside so many others");
  for (int i = 0; i < scan_carries(node); i++) {
    Value to = {.node = id, .result = i};
    if (address(select, node->inputs[i]) != address(select, to))
      add_copy(select, id, node->inputs[i], to);
  }
  ScanForm form = scan_form(node);
  int64_t n = form.unroll < form.steps ? form.unroll : form.steps;
  TRY(select_scan_loop(select, scan, 0, n, form.steps / n));
  int64_t left = form.steps % n;
  return left ? select_scan_loop(select, scan, form.steps - left, 1, left)
              : STATUS_OK;
}

/* Operators that are more than one kernel, or may be a library's. */
static Status (*const functions[N_OPS])(Select *select, int id) = {
    [OP_dot] = select_dot,
    [OP_conv] = select_convolution,
    [OP_conv_input_grad] = select_convolution,
    [OP_conv_weight_grad] = select_convolution,
    [OP_update_slice] = select_update_slice,
    [OP_accumulate] = select_accumulate,
};

/* The launches from place `first` on are one run of a node, or set its results
 * to zero. */
static void end_run(Select *select, int first, int id, bool is_clear) {
  const Pacer *pacer = select->pacer;
  if (select->out->n == first) return;
  Launch *launch = select->out->data[first];
  launch->n_launches = select->out->n - first;
  launch->key = (is_clear ? clear_key : launch_key)(select->graph, id);
  if (pacer)
    launch->pace = pacer->pace(pacer->user, select->graph, id, is_clear);
}

static Status select_run_when(Select *select, int id, DnnWhen when) {
  Op op = select->graph->nodes.data[id]->op;
  int first = select->out->n;
  select->when = when;
  TRY((functions[op] ? functions[op] : select_kernel)(select, id));
  select->when = DNN_ALWAYS;
  if (!select->values) end_run(select, first, id, false);
  return STATUS_OK;
}

/* A later micro-batch does something else than the first. */
static bool differs_later(const Select *select, int id) {
  const Node *node = select->graph->nodes.data[id];
  if (!has_microbatch(select) || !node_joins_microbatches(node)) return false;
  return node->op == OP_dot || (node->op == OP_accumulate &&
                                collective_reduction(node) != REDUCE_sum);
}

static Status select_run(Select *select, int id) {
  if (!differs_later(select, id))
    return select_run_when(select, id, DNN_ALWAYS);
  TRY(select_run_when(select, id, DNN_FIRST));
  return select_run_when(select, id, DNN_LATER);
}

static void select_clear(Select *select, int id) {
  int first = select->out->n;
  for (int r = 0; r < select->graph->nodes.data[id]->n_results; r++)
    add_zero(select, id, (Value){id, r});
  if (!select->values) end_run(select, first, id, true);
}

/* ---- segments ---- */

static Status select_instructions(Select *select, int begin, int end) {
  for (int at = begin; at < end; at++) {
    const Instruction *instruction = &select->list->instructions.data[at];
    int close;
    if (!select->enclosing && instruction->kind != INSTRUCTION_wait)
      message_waits_add(select->waits, instruction->node, select->out);
    switch (instruction->kind) {
    case INSTRUCTION_run: TRY(select_run(select, instruction->node)); break;
    case INSTRUCTION_start: TRY(select_collective(select, instruction)); break;
    case INSTRUCTION_swap: select_swap(select, instruction->node); break;
    case INSTRUCTION_wait: select_wait(select, instruction); break;
    case INSTRUCTION_clear: select_clear(select, instruction->node); break;
    case INSTRUCTION_loop:
      close = instructions_loop_end(select->list, at);
      TRY(select_scan(select, (ScanRange){instruction->node, at + 1, close}));
      at = close;
      break;
    case INSTRUCTION_end:
    case N_INSTRUCTIONS: UNREACHABLE();
    }
  }
  return STATUS_OK;
}

static Status select_segment(Select *select, const ProgramStage *stage,
                             const ProgramSegment *segment) {
  int first = select->out->n;
  select->segment = segment;
  message_waits_begin(select->waits, segment);
  TRY(select_instructions(select, segment->begin, segment->end));
  vec_push(select->arena, &select->out->segments,
           (DnnSegment){.begin = first,
                        .n = select->out->n - first,
                        .n_registers = segment->n_registers,
                        .stage = stage->number});
  return STATUS_OK;
}

/* ---- entry points ---- */

static Status select_stage(Select *select, const ProgramStage *stage,
                           MessageWaits *waits) {
  ASSERT(stage->instructions->graph == stage->graph &&
         instructions_check(stage->instructions, NULL));
  waits->stage = stage;
  select->waits = waits;
  select->graph = stage->graph;
  select->first_rank = stage->first_rank;
  select->assignment = stage->assignment;
  select->list = stage->instructions;
  select->pending = ARENA_ARRAY(select->arena, int, stage->graph->nodes.n);
  TRY(select_check(stage));
  if (select->values) add_value_rows(select);
  for (int s = 0; s < stage->segments.n; s++)
    TRY(select_segment(select, stage, &stage->segments.data[s]));
  return STATUS_OK;
}

Status select_entry_point(KernelSet *set, const EntryPoint *entry_point,
                          ValueTable *values, const Pacer *pacer,
                          LaunchList *out) {
  ASSERT(entry_point_check(entry_point, NULL));
  Arena *arena = set->module->arena;
  MessageIds *ids = message_ids(arena, entry_point);
  Select select = {.set = set,
                   .arena = arena,
                   .values = values,
                   .pacer = pacer,
                   .n_collectives = ids->n,
                   .out = out};
  MessageWaits waits = {.arena = arena, .entry = entry_point, .ids = ids};
  int *first_segment = ARENA_ARRAY(arena, int, entry_point->stages.n);
  out->n_message_ids = ids->n;
  for (int s = 0; s < entry_point->stages.n; s++) {
    first_segment[s] = out->segments.n;
    TRY(select_stage(&select, &entry_point->stages.data[s], &waits));
  }
  select_calls(arena, entry_point, ids, first_segment, out);
  out->n_swaps = select.n_swaps;
  return STATUS_OK;
}
