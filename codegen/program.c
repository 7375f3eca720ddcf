/*
 * program.c -- prints the programs of a bundle as the constant tables that
 * runtime/program.h declares.
 *
 * Whatever grows with the model -- instructions, tensors, their details and
 * lists -- goes into one image of bytes (image.h), tables.bin, which stores
 * equal details, lists and strings once.  The rest is C text that takes the
 * image in:
 *
 *     static const DnnEntryPoint entry_points_0[] = {
 *       {.id = 0, .name = "train", .n_instrs = 214, ...
 *     static const DnnProgram programs[] = {{...}};     bundle.c
 *
 * Structs are cleared before their members are set, so that the bytes between
 * members are the same each time.
 */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "codegen/program.h"

/* ---- pointers of the image ---- */

/* Makes the pointer at `at` point to these numbers; NULL if there are none. */
static void link_numbers(Image *image, size_t at, const int64_t *values,
                         int n) {
  if (n > 0)
    image_link(image, at,
               image_share(image, values, (size_t)n * sizeof *values));
}

/* ---- instructions ---- */

/* Members from `first` on follow each other without gaps. */
#define COPY_FROM(to, from, first)                                             \
  memcpy((char *)(to) + offsetof(__typeof__(*(to)), first),                    \
         (const char *)(from) + offsetof(__typeof__(*(to)), first),            \
         sizeof *(to)-offsetof(__typeof__(*(to)), first))

static size_t add_gemm(Image *image, const DnnGemm *from) {
  DnnGemm gemm;
  memset(&gemm, 0, sizeof gemm);
  gemm.dtype = from->dtype;
  gemm.c_dtype = from->c_dtype;
  gemm.accumulate = from->accumulate;
  COPY_FROM(&gemm, from, m);
  return image_share(image, &gemm, sizeof gemm);
}

static size_t add_conv(Image *image, const DnnConv *from) {
  DnnConv conv;
  memset(&conv, 0, sizeof conv);
  conv.kind = from->kind;
  conv.dtype = from->dtype;
  conv.out_dtype = from->out_dtype;
  COPY_FROM(&conv, from, batch);
  return image_share(image, &conv, sizeof conv);
}

/* Returns where the pieces of a message are. */
static size_t add_pieces(Image *image, const DnnCollective *of) {
  size_t first = 0;
  for (int i = 0; i < of->n_pieces; i++) {
    DnnPiece piece;
    memset(&piece, 0, sizeof piece);
    piece.rank = of->pieces[i].rank;
    piece.peer = of->pieces[i].peer;
    piece.n_runs = of->pieces[i].n_runs;
    piece.run = of->pieces[i].run;
    size_t at = image_add(image, &piece, sizeof piece);
    if (i == 0) first = at;
  }
  for (int i = 0; i < of->n_pieces; i++)
    link_numbers(image,
                 first + (size_t)i * sizeof(DnnPiece) + offsetof(DnnPiece, at),
                 of->pieces[i].at, of->pieces[i].n_runs);
  return first;
}

static size_t add_collective(ProgramPrinter *printer, const Launch *launch) {
  Image *image = printer->image;
  DnnCollective collective;
  memset(&collective, 0, sizeof collective);
  collective.kind = launch->collective.kind;
  collective.reduce = launch->collective.reduce;
  collective.dtype = launch->collective.dtype;
  collective.queue = launch->collective.queue;
  collective.id = launch->collective.id;
  collective.peer = launch->collective.peer;
  collective.n_parts = launch->collective.n_parts;
  collective.edge = launch->collective.edge;
  collective.n_ids = launch->collective.n_ids;
  collective.n_pieces = launch->collective.n_pieces;
  size_t pieces = add_pieces(image, &launch->collective);
  size_t at = image_add(image, &collective, sizeof collective);
  link_numbers(image, at + offsetof(DnnCollective, counts), launch->counts.data,
               launch->counts.n);
  if (launch->collective.pieces)
    image_link(image, at + offsetof(DnnCollective, pieces), pieces);
  if (launch->collective.group)
    image_link(image, at + offsetof(DnnCollective, group),
               printer->groups_at + (size_t)program_group_row(
                                        printer, launch->collective.group) *
                                        sizeof(DnnGroup));
  return at;
}

static void link_detail(ProgramPrinter *printer, size_t at,
                        const Launch *launch) {
  Image *image = printer->image;
  switch (launch->op) {
  case DNN_OP_GEMM:
    image_link(image, at, add_gemm(image, &launch->gemm));
    break;
  case DNN_OP_CONV:
    image_link(image, at, add_conv(image, &launch->conv));
    break;
  case DNN_OP_COLLECTIVE:
    image_link(image, at, add_collective(printer, launch));
    break;
  case DNN_OP_KERNEL:
  case DNN_OP_COPY:
  case DNN_OP_ZERO:
  case DNN_OP_WAIT:
  case DNN_OP_LOOP:
  case DNN_OP_SWAP:
  case DNN_OP_SWAP_WAIT: break;
  }
}

static void link_rank_offsets(Image *image, size_t at, const Launch *launch) {
  size_t rank_offsets = 0;
  for (int i = 0; i < launch->rank_offsets.n; i++) {
    DnnRankOffset offset;
    memset(&offset, 0, sizeof offset);
    offset.number = launch->rank_offsets.data[i].number;
    offset.factor = launch->rank_offsets.data[i].factor;
    size_t here = image_add(image, &offset, sizeof offset);
    if (i == 0) rank_offsets = here;
  }
  for (int i = 0; i < launch->rank_offsets.n; i++)
    image_link_shared(image,
                      rank_offsets + (size_t)i * sizeof(DnnRankOffset) +
                          offsetof(DnnRankOffset, group),
                      launch->rank_offsets.data[i].group, sizeof(DnnGroup));
  if (launch->rank_offsets.n) image_link(image, at, rank_offsets);
}

static void fill_instr(DnnInstr *instr, const Launch *launch) {
  memset(instr, 0, sizeof *instr);
  instr->op = (uint8_t)launch->op;
  instr->phase = (uint8_t)launch->phase;
  instr->n_buffers = (uint16_t)launch->buffers.n;
  instr->n_numbers = (uint16_t)launch->numbers.n;
  instr->n_checks = (uint16_t)(launch->checks.n / DNN_CHECK_NUMBERS);
  instr->n_rank_offsets = (uint16_t)launch->rank_offsets.n;
  instr->n_loops = (uint16_t)launch->n_loops;
  instr->n_launches = (uint16_t)launch->n_launches;
  instr->kernel = launch->kernel;
  instr->when = (uint8_t)launch->when;
  instr->key = launch->key;
  instr->pace = launch->pace;
  instr->flops = launch->flops;
  instr->bytes_moved = launch->bytes_moved;
}

/* Buffers or numbers that move with the loops around a launch, `n` advances in
 * all, of which those beyond the last in the list are 0. */
static void link_advances(Image *image, size_t at, const int64_t *values,
                          int n_values, int n) {
  bool moves = false;
  for (int i = 0; i < n_values; i++) moves |= values[i] != 0;
  if (!moves) return;
  int64_t *all = ARENA_ARRAY(image->arena, int64_t, n);
  memcpy(all, values, sizeof *all * (size_t)n_values);
  link_numbers(image, at, all, n);
}

static void link_instr(ProgramPrinter *printer, size_t at,
                       const Launch *launch) {
  Image *image = printer->image;
  link_numbers(image, at + offsetof(DnnInstr, buffers), launch->buffers.data,
               launch->buffers.n);
  link_advances(image, at + offsetof(DnnInstr, advances), launch->advances.data,
                launch->advances.n, launch->advances.n);
  link_advances(image, at + offsetof(DnnInstr, number_advances),
                launch->number_advances.data, launch->number_advances.n,
                launch->numbers.n * launch->n_loops);
  link_numbers(image, at + offsetof(DnnInstr, numbers), launch->numbers.data,
               launch->numbers.n);
  link_numbers(image, at + offsetof(DnnInstr, checks), launch->checks.data,
               launch->checks.n);
  link_numbers(image, at + offsetof(DnnInstr, values), launch->values.data,
               launch->values.n);
  link_detail(printer, at + offsetof(DnnInstr, detail), launch);
  link_rank_offsets(image, at + offsetof(DnnInstr, rank_offsets), launch);
  image_link_string(image, at + offsetof(DnnInstr, path), launch->path);
}

static Table add_instrs(ProgramPrinter *printer, const LaunchList *list) {
  Image *image = printer->image;
  DnnInstr instr;
  Table table = {.at = image_add(image, NULL, 0), .n = list->n};
  for (int i = 0; i < list->n; i++) {
    fill_instr(&instr, list->data[i]);
    image_add(image, &instr, sizeof instr);
  }
  for (int i = 0; i < list->n; i++)
    link_instr(printer, table.at + (size_t)i * sizeof instr, list->data[i]);
  return table;
}

/* ---- entry points ---- */

static void add_entry_point(ProgramPrinter *printer,
                            const EntryPoint *entry_point,
                            const LaunchList *launches) {
  Text *out = printer->out;
  Table tensors = program_add_tensors(printer, entry_point);
  Table instrs = add_instrs(printer, launches);
  Image *image = printer->image;
  size_t segments = image_add(image, launches->segments.data,
                              sizeof(DnnSegment) * launches->segments.n);
  size_t calls = image_add(image, launches->calls.data,
                           sizeof(DnnCall) * launches->calls.n);
  size_t periods = image_add(image, launches->periods.data,
                             sizeof(DnnPeriodCall) * launches->periods.n);
  text_printf(out, "  {.id = %d, .name = ", entry_point->id);
  program_add_string(out, entry_point->name);
  text_printf(out,
              ", .n_instrs = %d, .instrs = AT(DnnInstr, %zu)"
              ", .n_segments = %d, .segments = AT(DnnSegment, %zu)"
              ", .n_calls = %d, .calls = AT(DnnCall, %zu), .batch = %" PRId64
              ", .arena_bytes = %" PRId64
              ", .n_tensors = %d, .tensors = AT(DnnTensor, %zu)",
              instrs.n, instrs.at, launches->segments.n, segments,
              launches->calls.n, calls, entry_point->batch,
              entry_point_arena_bytes(entry_point), tensors.n, tensors.at);
  if (entry_point->is_period)
    text_printf(out,
                ", .periods = AT(DnnPeriodCall, %zu), .lead = %d"
                ", .period_units = %d, .batch_units = %d",
                periods, entry_point->lead, entry_point->n_units,
                entry_point->batch_units);
  text_add(out, "},\n");
}

static void add_entry_points(ProgramPrinter *printer, int at) {
  const ProgramInput *input = &printer->input->programs[at];
  text_printf(printer->out,
              "static const DnnEntryPoint entry_points_%d[] = {\n", at);
  for (int i = 0; i < input->program->n_entry_points; i++)
    add_entry_point(printer, &input->program->entry_points[i],
                    &input->launches[i]);
  text_add(printer->out, "  {.name = 0}};\n");
}

/* ---- the plain program ---- */

static Table add_values(ProgramPrinter *printer, const ValueTable *values) {
  Image *image = printer->image;
  Table table = {.at = image_add(image, NULL, 0), .n = values->rows.n};
  for (int i = 0; i < values->rows.n; i++) {
    const ValueRow *row = &values->rows.data[i];
    DnnValue value;
    memset(&value, 0, sizeof value);
    value.kind = (uint8_t)row->kind;
    value.phase = (uint8_t)row->phase;
    value.role = (uint8_t)program_role(row->role);
    value.has_infinity = row->has_infinity;
    value.dtype = (DnnDtype)row->dtype;
    value.n_inputs = row->inputs.n;
    value.offset = row->offset;
    value.elements = row->elements;
    image_add(image, &value, sizeof value);
  }
  for (int i = 0; i < values->rows.n; i++) {
    const ValueRow *row = &values->rows.data[i];
    size_t at = table.at + (size_t)i * sizeof(DnnValue);
    image_link_string(image, at + offsetof(DnnValue, path), row->path);
    if (row->inputs.n > 0)
      image_link(image, at + offsetof(DnnValue, inputs),
                 image_share(image, row->inputs.data,
                             (size_t)row->inputs.n * sizeof(int32_t)));
  }
  return table;
}

static int32_t output_row(const PlainInput *plain, const GraphOutput *output) {
  const ProgramStage *stage = entry_point_stage(&plain->entry_point);
  const BufferAssignment *assignment = stage->assignment;
  int32_t *rows = value_table_rows(plain->values, stage->graph);
  return rows[assignment->first_value[output->value.node] +
              output->value.result] -
         1;
}

static void add_plain_program(ProgramPrinter *printer, int at,
                              Table persistent) {
  const BundleInput *input = printer->input;
  const ProgramInput *program = &input->programs[at];
  Text *out = printer->out;
  text_printf(out,
              "static const DnnProgram plain_program_%d = {\n"
              "  .target = \"%s\", .world = %d, .arena_bytes = %" PRId64
              ", .persistent_bytes = %" PRId64
              ",\n  .n_tensors = %d, .tensors = AT(DnnTensor, %zu),\n"
              "  .n_kernels = %d, .kernels = plain_kernels,\n"
              "  .n_entry_points = 1, .entry_points = plain_entry_points_%d,\n",
              at, input->options->backend->device, input->options->ranks,
              entry_point_arena_bytes(&program->plain->entry_point),
              program->program->persistent.bytes, persistent.n, persistent.at,
              input->plain_kernels->kernels.n, at);
  int64_t host_bytes = entry_point_host_bytes(&program->plain->entry_point);
  if (host_bytes > 0)
    text_printf(out, "  .host_bytes = %" PRId64 ", .n_swaps = %d,\n",
                host_bytes, program->plain->launches.n_swaps);
  program_add_groups(printer);
  if (input->plain_device->modules_text)
    text_printf(out, "  .n_modules = %d, .modules = dnn_plain_modules,\n",
                input->plain_device->n_modules);
  text_add(out, "};\n");
}

/* Returns their number. */
static int add_gradients(ProgramPrinter *printer, int at,
                         const PlainInput *plain) {
  const Graph *graph = entry_point_stage(&plain->entry_point)->graph;
  int n = 0;
  text_printf(printer->out, "static const int32_t gradients_%d[] = {", at);
  for (int i = 0; i < graph->outputs.n; i++) {
    if (graph->outputs.data[i].role != ROLE_grad) continue;
    text_printf(printer->out, "%d, ",
                output_row(plain, &graph->outputs.data[i]));
    n++;
  }
  text_add(printer->out, "0};\n");
  return n;
}

static int32_t loss_row(const PlainInput *plain) {
  const Graph *graph = entry_point_stage(&plain->entry_point)->graph;
  for (int i = graph->outputs.n - 1; i >= 0; i--)
    if (graph->outputs.data[i].role == ROLE_loss)
      return output_row(plain, &graph->outputs.data[i]);
  return -1;
}

static void add_plain(ProgramPrinter *printer, int at, Table persistent) {
  const PlainInput *plain = printer->input->programs[at].plain;
  Text *out = printer->out;
  text_printf(out, "static const DnnEntryPoint plain_entry_points_%d[] = {\n",
              at);
  add_entry_point(printer, &plain->entry_point, &plain->launches);
  text_add(out, "  {.name = 0}};\n");
  int n_gradients = add_gradients(printer, at, plain);
  Table values = add_values(printer, plain->values);
  add_plain_program(printer, at, persistent);
  text_printf(out,
              "static const DnnPlain plain_%d = {&plain_program_%d, %d, "
              "AT(DnnValue, %zu), %d, %d, gradients_%d};\n",
              at, at, values.n, values.at, loss_row(plain), n_gradients, at);
}

/* ---- the program ---- */

Table program_add_tables(ProgramPrinter *printer, int i) {
  add_entry_points(printer, i);
  Table persistent =
      program_add_persistent(printer, printer->input->ranks->programs[i]);
  if (printer->input->programs[i].plain) add_plain(printer, i, persistent);
  return persistent;
}

/* A prediction has an arena of its own size, so that training does not pay for
 * it. */
int64_t program_arena_bytes(const RankProgram *program) {
  int64_t bytes = program->persistent.bytes;
  for (int i = 0; i < program->n_entry_points; i++) {
    const EntryPoint *entry = &program->entry_points[i];
    int64_t touched = entry_point_arena_bytes(entry);
    bool counts = program->n_entry_points == 1 || entry->id != ENTRY_predict;
    if (counts && touched > bytes) bytes = touched;
  }
  return bytes;
}

/* That of a prediction, too: it is no part of what a device has to hold. */
static int64_t program_host_bytes(const RankProgram *program) {
  int64_t bytes = program->persistent.host_bytes;
  for (int i = 0; i < program->n_entry_points; i++) {
    int64_t touched = entry_point_host_bytes(&program->entry_points[i]);
    if (touched > bytes) bytes = touched;
  }
  return bytes;
}

static int most_swaps(const ProgramInput *input) {
  int most = 0;
  for (int i = 0; i < input->program->n_entry_points; i++)
    if (input->launches[i].n_swaps > most) most = input->launches[i].n_swaps;
  return most;
}

/* The name that messages give to the ranks of the program. */
static void add_stages(Text *out, const EntryPoint *entry) {
  text_printf(out, "  .stages = \"stage%s ", entry->stages.n > 1 ? "s" : "");
  for (int s = 0; s < entry->stages.n; s++)
    text_printf(out, "%s%d", s ? ", " : "", entry->stages.data[s].number);
  text_add(out, "\",\n");
}

void program_add_members(ProgramPrinter *printer, int i, Table persistent) {
  const ProgramInput *input = &printer->input->programs[i];
  const RankProgram *program = input->program;
  text_printf(printer->out,
              "  .arena_bytes = %" PRId64 ", .persistent_bytes = %" PRId64
              ",\n  .n_tensors = %d, .tensors = AT(DnnTensor, %zu),\n"
              "  .n_entry_points = %d, .entry_points = entry_points_%d,\n",
              program_arena_bytes(program), program->persistent.bytes,
              persistent.n, persistent.at, program->n_entry_points, i);
  if (program_host_bytes(program) > 0)
    text_printf(printer->out, "  .host_bytes = %" PRId64 ", .n_swaps = %d,\n",
                program_host_bytes(program), most_swaps(input));
  if (input->plain) text_printf(printer->out, "  .plain = &plain_%d,\n", i);
  if (program->title)
    text_printf(printer->out, "  .stages = \"%s\",\n", program->title);
  else if (printer->input->ranks->n > 1 ||
           program->entry_points[0].stages.n > 1)
    add_stages(printer->out, &program->entry_points[0]);
}
