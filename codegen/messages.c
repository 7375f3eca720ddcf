/*
 * messages.c -- lists the collectives that a program starts, for a check that
 * its ranks agree about them: launches in the order of calls, loops written
 * out.
 */
#include "codegen/select.h"

typedef struct MessageWalk {
  const DnnCall *call; /* the one at hand */
  Arena *arena;
  const LaunchList *launches;
  bool *is_open; /* by id: started and not waited for */
  ProgramMessages *out;
} MessageWalk;

static void note_fault(MessageWalk *walk, const Launch *launch,
                       const char *text) {
  if (!walk->out->fault)
    walk->out->fault = arena_printf(walk->arena, "'%s' %s", launch->path, text);
}

static ProgramMessage make_message(const MessageWalk *walk,
                                   const Launch *launch) {
  ProgramMessage message = {
      .collective = launch->collective, .path = launch->path, .microbatch = -1};
  for (int i = 0; i < launch->counts.n; i++)
    message.elements += launch->counts.data[i];
  if (launch->n_loops > 0)
    message.microbatch = (int)walk->call->registers[DNN_REGISTER_MICROBATCH];
  return message;
}

static void start_message(MessageWalk *walk, const Launch *launch) {
  int32_t id = launch->collective.id;
  if (walk->is_open[id])
    note_fault(walk, launch, "starts a collective that has not ended");
  walk->is_open[id] = true;
  vec_push(walk->arena, &walk->out->list, make_message(walk, launch));
}

static void wait_for_message(MessageWalk *walk, const Launch *launch) {
  int64_t id = launch->numbers.data[0];
  if (!walk->is_open[id])
    note_fault(walk, launch, "waits for a collective that was not started");
  walk->is_open[id] = false;
}

static bool is_between_stages(const LaunchList *launches,
                              const Launch *launch) {
  if (launch->op == DNN_OP_WAIT)
    return launch->numbers.data[0] < launches->n_message_ids;
  return launch->op == DNN_OP_COLLECTIVE &&
         launch->collective.id < launches->n_message_ids;
}

static void walk_launches(MessageWalk *walk, int begin, int end) {
  for (int i = begin; i < end; i++) {
    const Launch *launch = walk->launches->data[i];
    if (launch->when == (walk->call->is_first ? DNN_LATER : DNN_FIRST))
      continue;
    if (is_between_stages(walk->launches, launch)) {
      if (launch->op == DNN_OP_COLLECTIVE)
        vec_push(walk->arena, &walk->out->between, make_message(walk, launch));
      continue;
    }
    if (launch->op == DNN_OP_COLLECTIVE) start_message(walk, launch);
    if (launch->op == DNN_OP_WAIT) wait_for_message(walk, launch);
    if (launch->op != DNN_OP_LOOP) continue;
    int n = (int)launch->numbers.data[0];
    for (int64_t t = 0; t < launch->numbers.data[1]; t++)
      walk_launches(walk, i + 1, i + 1 + n);
    i += n;
  }
}

static int count_ids(const LaunchList *launches) {
  int n = 0;
  for (int i = 0; i < launches->n; i++)
    if (launches->data[i]->op == DNN_OP_COLLECTIVE &&
        launches->data[i]->collective.id >= n)
      n = launches->data[i]->collective.id + 1;
  return n;
}

Status codegen_messages(Module *module, const Backend *backend,
                        const EntryPoint *entry_point, ProgramMessages *out) {
  LaunchList launches = {0};
  KernelSet *kernels = kernel_set_create(module, backend);
  *out = (ProgramMessages){0};
  TRY(select_entry_point(kernels, entry_point, NULL, NULL, &launches));
  int n_ids = count_ids(&launches);
  MessageWalk walk = {.arena = module->arena,
                      .launches = &launches,
                      .is_open = ARENA_ARRAY(module->arena, bool, n_ids),
                      .out = out};
  for (int i = 0; i < launches.calls.n; i++) {
    walk.call = &launches.calls.data[i];
    const DnnSegment *segment = &launches.segments.data[walk.call->segment];
    walk_launches(&walk, segment->begin, segment->begin + segment->n);
  }
  for (int i = 0; i < launches.n; i++)
    if (launches.data[i]->op == DNN_OP_COLLECTIVE &&
        walk.is_open[launches.data[i]->collective.id])
      note_fault(&walk, launches.data[i], "is a collective without an end");
  return STATUS_OK;
}

bool codegen_group(const Mesh *mesh, int first_rank, AxisList list,
                   DnnGroup *out) {
  return mesh_group(mesh, first_rank, list, out);
}
