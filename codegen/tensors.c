/*
 * tensors.c -- prints the tensors of programs: those that persist, and the
 * inputs and outputs of entry points.
 *
 * Every program lists all tensors that persist on any rank, in one order, so
 * that a number names one tensor on all ranks.  One that a rank does not hold
 * has no place there.
 */
#include <stddef.h>
#include <string.h>

#include "codegen/program.h"

DnnRole program_role(Role role) {
  static const DnnRole roles[N_ROLES] = {
#define ROLE(name, program) DNN_##program,
#include "ir/roles.def"
  };
  ASSERT(role < N_ROLES);
  return roles[role];
}

/* ---- who holds what ---- */

static const ProgramStage *reader_of(const EntryPoint *entry, Role role,
                                     Name path) {
  for (int s = 0; s < entry->stages.n; s++) {
    const Graph *graph = entry->stages.data[s].graph;
    for (int i = 0; i < graph->inputs.n; i++)
      if (graph->inputs.data[i].role == role &&
          graph->inputs.data[i].path == path)
        return &entry->stages.data[s];
  }
  return NULL;
}

/* The stage that has a persistent buffer of the program.  Buffers have the
 * placement of the first entry point. */
static const ProgramStage *stage_of(const RankProgram *program,
                                    const PersistentBuffer *buffer) {
  const ProgramStage *found = NULL;
  if (program->entry_points[0].stages.n > 1)
    for (int i = 0; i < program->n_entry_points && !found; i++)
      found = reader_of(&program->entry_points[i], buffer->role, buffer->path);
  return found ? found : &program->entry_points[0].stages.data[0];
}

/* Step, seed and the length of an epoch: the runtime writes them on every rank
 * that reads them. */
static bool is_of_run(Role role) {
  DnnRole of_runtime = program_role(role);
  return of_runtime == DNN_STEP || of_runtime == DNN_SEED ||
         of_runtime == DNN_EPOCH;
}

static const PersistentBuffer *find_buffer(const RankProgram *program,
                                           Role role, Name path) {
  const PersistentBuffers *persistent = &program->persistent;
  const Map *by_path = persistent->by_path[role];
  int row = by_path ? (int)(uintptr_t)map_get(by_path, path) : 0;
  return row ? &persistent->buffers.data[row - 1] : NULL;
}

static void collect_of(ProgramPrinter *printer, Map **known,
                       const RankProgram *program, int first, int end) {
  Arena *arena = printer->image->arena;
  for (int i = 0; i < program->persistent.buffers.n; i++) {
    const PersistentBuffer *buffer = &program->persistent.buffers.data[i];
    const ProgramStage *stage = stage_of(program, buffer);
    if (!known[buffer->role]) known[buffer->role] = map_create(arena);
    HeldTensor *held = map_get(known[buffer->role], buffer->path);
    /* Workers hold parameters, averages and states: what a server has is no
     * replica that anybody asks for. */
    bool is_copy = buffer->role == ROLE_param || buffer->role == ROLE_state ||
                   buffer->role == ROLE_ema;
    if (held && program->is_server && is_copy) continue;
    if (held) {
      ASSERT(is_of_run(buffer->role) || first <= held->end);
      if (end > held->end) held->end = end;
      continue;
    }
    held = ARENA_NEW(arena, HeldTensor);
    *held = (HeldTensor){
        .buffer = buffer, .stage = stage, .first = first, .end = end};
    if (is_of_run(buffer->role)) {
      held->first = 0;
      held->end = printer->input->options->ranks;
    }
    map_put(known[buffer->role], buffer->path, held);
    vec_push(arena, &printer->tensors, held);
  }
}

/* Several stages update a loss scale alike: the ranks of all of them hold it,
 * and these follow each other as their programs do. */
void program_collect_persistent(ProgramPrinter *printer) {
  const RankPrograms *ranks = printer->input->ranks;
  Map *known[N_ROLES] = {0};
  for (int i = 0; i < ranks->n_rows; i++) {
    bool is_last = i + 1 == ranks->n_rows;
    collect_of(printer, known, ranks->programs[ranks->rows[i].program],
               ranks->rows[i].first,
               is_last ? printer->input->options->ranks
                       : ranks->rows[i + 1].first);
  }
}

/* ---- rows ---- */

/* A tensor with the type that its strings come from. */
typedef struct TensorRow {
  DnnTensor tensor;
  const char *path;
  const Type *type;
  const ProgramStage *stage; /* whose ranks hold it */
} TensorRow;
typedef VEC(TensorRow) TensorRows;

/* Returns the row, which has no place yet. */
static DnnTensor *add_tensor(ProgramPrinter *printer, TensorRows *rows,
                             Role role, const char *path, const Type *type,
                             const ProgramStage *stage) {
  vec_push(printer->image->arena, rows,
           (TensorRow){.path = path, .type = type, .stage = stage});
  DnnTensor *tensor = &rows->data[rows->n - 1].tensor;
  memset(tensor, 0, sizeof *tensor);
  tensor->role = (uint8_t)program_role(role);
  tensor->dtype = (DnnDtype)type->dtype;
  tensor->rank = type->rank;
  for (int d = 0; d < type->rank; d++) tensor->size[d] = type->dims[d].size;
  return tensor;
}

/* The group whose members hold terms of a partial sum. */
static void link_terms(Image *image, size_t at, const TensorRow *row) {
  DnnGroup group;
  bool has_digits =
      mesh_group_ascending(&row->stage->graph->mesh, row->stage->first_rank,
                           axis_list_of_set(row->type->partial), &group);
  ASSERT(has_digits); /* neighbours are one, so six axes have three at most */
  if (group.size > 1) image_link_shared(image, at, &group, sizeof group);
}

static Table add_tensor_rows(Image *image, const TensorRows *rows) {
  Table table = {.at = image_add(image, NULL, 0), .n = rows->n};
  for (int i = 0; i < rows->n; i++)
    image_add(image, &rows->data[i].tensor, sizeof rows->data[i].tensor);
  for (int i = 0; i < rows->n; i++) {
    const TensorRow *row = &rows->data[i];
    size_t at = table.at + (size_t)i * sizeof(DnnTensor);
    image_link_string(image, at + offsetof(DnnTensor, path), row->path);
    link_terms(image, at + offsetof(DnnTensor, terms), row);
    for (int d = 0; d < row->type->rank; d++) {
      DnnGroup group;
      bool has_digits =
          mesh_group(&row->stage->graph->mesh, row->stage->first_rank,
                     row->type->dims[d].split, &group);
      ASSERT(has_digits); /* mesh_check_placements */
      image_link_string(image, at + offsetof(DnnTensor, dim) + (size_t)d * 8,
                        row->type->dims[d].name);
      if (group.size > 1)
        image_link_shared(image,
                          at + offsetof(DnnTensor, split) + (size_t)d * 8,
                          &group, sizeof group);
    }
  }
  return table;
}

Table program_add_persistent(ProgramPrinter *printer,
                             const RankProgram *program) {
  TensorRows rows = {0};
  for (int i = 0; i < printer->tensors.n; i++) {
    const HeldTensor *held = printer->tensors.data[i];
    const PersistentBuffer *buffer =
        find_buffer(program, held->buffer->role, held->buffer->path);
    const PersistentBuffer *from = buffer ? buffer : held->buffer;
    DnnTensor *tensor = add_tensor(printer, &rows, from->role, from->path,
                                   from->type, held->stage);
    tensor->offset = buffer ? buffer->offset : -1;
    tensor->bytes = from->bytes;
    if (buffer && buffer->n_versions > 1) {
      tensor->n_slots = buffer->n_versions;
      tensor->slot_bytes = buffer->slot_bytes;
    }
    tensor->init = (uint8_t)from->init.kind;
    tensor->init_a = from->init.a;
    tensor->first = held->first;
    tensor->ranks = held->end - held->first;
  }
  return add_tensor_rows(printer->image, &rows);
}

/* The micro-batches, where the split of the batch begins with them. */
static int32_t parts_of_data(const Mesh *mesh, const Type *type) {
  AxisList split = type->rank > 0 ? type->dims[0].split : 0;
  bool begins = axis_list_length(split) > 1 &&
                mesh->axes[axis_list_at(split, 0)].is_sequential;
  return begins ? mesh->axes[axis_list_at(split, 0)].size : 1;
}

static void add_value(ProgramPrinter *printer, TensorRows *rows,
                      const ProgramStage *stage, Role role, const char *path,
                      Value value, Init init) {
  const BufferAssignment *assignment = stage->assignment;
  int at = assignment->first_value[value.node] + value.result;
  DnnTensor *tensor = add_tensor(printer, rows, role, path,
                                 graph_type(stage->graph, value), stage);
  tensor->offset = assignment->offset[at];
  tensor->bytes = assignment->bytes[at];
  if (stage->n_versions > 0 && role == ROLE_data) {
    tensor->n_slots = stage->n_batches > 0 ? stage->n_batches : stage->n_frames;
    tensor->slot_bytes = assignment->move_bytes[at];
  }
  tensor->init = (uint8_t)init.kind;
  tensor->init_a = init.a;
  if (role == ROLE_data)
    tensor->microbatches =
        parts_of_data(&stage->graph->mesh, graph_type(stage->graph, value));
}

/* The inputs and outputs that no persistent buffer holds. */
static void add_stage_tensors(ProgramPrinter *printer, TensorRows *rows,
                              const ProgramStage *stage) {
  const Graph *graph = stage->graph;
  Init none = {.kind = INIT_zeros};
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *in = &graph->inputs.data[i];
    if (in->role == ROLE_data || in->role == ROLE_batch_rows ||
        in->role == ROLE_push)
      add_value(printer, rows, stage, in->role, in->path, in->value, in->init);
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *result = &graph->outputs.data[i];
    if (program_role(result->role) >= DNN_LOSS && result->role != ROLE_grad)
      add_value(printer, rows, stage, result->role, result->path, result->value,
                none);
  }
}

Table program_add_tensors(ProgramPrinter *printer, const EntryPoint *entry) {
  TensorRows rows = {0};
  for (int s = 0; s < entry->stages.n; s++)
    add_stage_tensors(printer, &rows, &entry->stages.data[s]);
  return add_tensor_rows(printer->image, &rows);
}
