/*
 * collectives_nccl.c -- the suite of tests/ops/collectives.h over NCCL, on the
 * ranks that mpirun has started: data goes to the device when a collective
 * starts and comes back when it is waited for.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/ops/collectives.h"

enum { ARENA_BYTES = 4 << 20, MAX_IDS = 100000, MAX_GROUPS = 64 };

/* The parts on the device of a collective that was started. */
typedef struct Staged {
  const DnnCollective *what;
  const CommPart *parts;
  CommPart on_device[COLLECTIVE_PARTS];
} Staged;

typedef struct Stage {
  Comm *nccl;
  Device *device;
  int64_t used; /* bytes of the arena */
  int n_outstanding;
  Staged *by_id;
} Stage;

static _Noreturn void no_memory(void *user) {
  (void)user;
  abort();
}

/* ---- a program that has all groups and pairs, and nothing else ---- */

typedef struct Groups {
  DnnGroup groups[MAX_GROUPS];
  int n;
} Groups;

static void add_lists(Groups *groups, const CollectiveMesh *mesh,
                      CollectiveAxes axes) {
  DnnGroup group = axes_group(mesh, &axes);
  bool is_there = axes.n == 0;
  for (int i = 0; i < groups->n; i++)
    is_there = is_there || group_equal(&groups->groups[i], &group);
  if (!is_there) groups->groups[groups->n++] = group;
  for (int a = 0; a < mesh->n_axes; a++) {
    bool is_used = false;
    for (int i = 0; i < axes.n; i++) is_used |= axes.axes[i] == a;
    if (is_used) continue;
    CollectiveAxes longer = axes;
    longer.axes[longer.n++] = a;
    add_lists(groups, mesh, longer);
  }
}

static DnnProgram *make_program(Arena *arena, int world) {
  Groups *groups = ARENA_NEW(arena, Groups);
  for (int i = 0; i < ARRAY_LENGTH(collective_meshes); i++)
    if (mesh_world(&collective_meshes[i]) == world)
      add_lists(groups, &collective_meshes[i], (CollectiveAxes){0});
  for (int i = 0; i < ARRAY_LENGTH(collective_beside) && world == 5; i++)
    add_lists(groups, &collective_beside[i], (CollectiveAxes){0});
  int n = groups->n * DNN_N_QUEUES;
  DnnInstr *instrs = ARENA_ARRAY(arena, DnnInstr, n);
  DnnCollective *all = ARENA_ARRAY(arena, DnnCollective, n);
  for (int i = 0; i < n; i++) {
    all[i] = (DnnCollective){.group = &groups->groups[i / DNN_N_QUEUES],
                             .queue = (uint8_t)(i % DNN_N_QUEUES),
                             .id = MAX_IDS - 1};
    instrs[i] = (DnnInstr){.op = DNN_OP_COLLECTIVE, .detail = &all[i]};
  }
  uint8_t *queues = ARENA_ARRAY(arena, uint8_t, groups->n);
  memset(queues, (1 << DNN_N_QUEUES) - 1, (size_t)groups->n);
  DnnPairs *pairs = ARENA_ARRAY(arena, DnnPairs, 2 * world);
  int n_pairs = 0;
  for (int peer = 1; peer < world; peer++) {
    pairs[n_pairs++] = (DnnPairs){0, world - peer, peer};
    pairs[n_pairs++] = (DnnPairs){peer, world - peer, -peer};
  }
  DnnEntryPoint *entry = ARENA_NEW(arena, DnnEntryPoint);
  *entry = (DnnEntryPoint){.name = "all", .n_instrs = n, .instrs = instrs};
  DnnProgram *program = ARENA_NEW(arena, DnnProgram);
  *program = (DnnProgram){.target = "cuda",
                          .world = world,
                          .arena_bytes = ARENA_BYTES,
                          .n_groups = groups->n,
                          .groups = groups->groups,
                          .group_queues = queues,
                          .n_pairs = n_pairs,
                          .pairs = pairs,
                          .n_entry_points = 1,
                          .entry_points = entry};
  return program;
}

/* ---- the suite's data on the device ---- */

static int64_t source_bytes(const DnnCollective *what, int part) {
  int64_t n = what->counts[part];
  if (collective_shards_source(what->kind)) n /= collective_size(what);
  return n * dtype_bytes(what->dtype);
}

static int64_t result_bytes(const DnnCollective *what, int part) {
  int64_t n = what->counts[part];
  if (collective_shards_result(what->kind)) n /= collective_size(what);
  return n * dtype_bytes(what->dtype);
}

static Status put(Stage *stage, const void *from, int64_t bytes, void **out) {
  int64_t at = stage->used;
  stage->used += (bytes + 63) / 64 * 64 + 64;
  ASSERT(stage->used <= ARENA_BYTES);
  *out = stage->device->address(stage->device, at);
  return bytes ? stage->device->write(stage->device, at, from, bytes)
               : STATUS_OK;
}

/* The source, and the destination, which is a part of it or the other way
 * around where the collective is in place. */
static Status put_part(Stage *stage, const DnnCollective *what, int part,
                       const CommPart *from, CommPart *to) {
  const char *source = from->from, *result = from->to;
  int64_t n_source = source_bytes(what, part);
  int64_t n_result = result_bytes(what, part);
  void *at;
  to->count = from->count;
  if (result >= source && result + n_result <= source + n_source) {
    TRY(put(stage, source, n_source, &at));
    to->from = at;
    to->to = (char *)at + (result - source);
    return STATUS_OK;
  }
  TRY(put(stage, result, n_result, &at));
  to->to = at;
  if (source >= result && source + n_source <= result + n_result) {
    to->from = (char *)at + (source - result);
    return STATUS_OK;
  }
  TRY(put(stage, source, n_source, &at));
  to->from = at;
  return STATUS_OK;
}

static Status staged_start(Comm *comm, const DnnCollective *what,
                           const CommPart *parts) {
  Stage *stage = comm->state;
  ASSERT(what->id < MAX_IDS);
  Staged *staged = &stage->by_id[what->id];
  if (stage->n_outstanding == 0) stage->used = 0;
  staged->what = what;
  staged->parts = parts;
  for (int p = 0; p < what->n_parts; p++)
    TRY(put_part(stage, what, p, &parts[p], &staged->on_device[p]));
  TRY(stage->nccl->start(stage->nccl, what, staged->on_device));
  stage->n_outstanding++;
  return STATUS_OK;
}

static int64_t offset_of(const Stage *stage, const void *at) {
  return (const char *)at -
         (const char *)stage->device->address(stage->device, 0);
}

/* Results, and sources as well, which must not have changed. */
static Status staged_wait(Comm *comm, int32_t id) {
  Stage *stage = comm->state;
  const Staged *staged = &stage->by_id[id];
  stage->n_outstanding--;
  TRY(stage->nccl->wait(stage->nccl, id));
  for (int p = 0; p < staged->what->n_parts; p++) {
    int64_t n_source = source_bytes(staged->what, p);
    int64_t n_result = result_bytes(staged->what, p);
    if (n_source > 0)
      TRY(stage->device->read(
          stage->device, offset_of(stage, staged->on_device[p].from),
          (void *)(uintptr_t)staged->parts[p].from, n_source));
    if (n_result > 0)
      TRY(stage->device->read(stage->device,
                              offset_of(stage, staged->on_device[p].to),
                              staged->parts[p].to, n_result));
  }
  return STATUS_OK;
}

static Status staged_barrier(Comm *comm) {
  Stage *stage = comm->state;
  return stage->nccl->barrier(stage->nccl);
}

static Status run_suite(Arena *arena) {
  Comm *host;
  Stage stage = {.by_id = ARENA_ARRAY(arena, Staged, MAX_IDS)};
  TRY(comm_create(arena, 120, &host));
  DnnProgram *program = make_program(arena, host->world);
  TRY(device_create("cuda", arena, &stage.device));
  stage.device->program = program;
  stage.device->rank = host->rank;
  TRY(stage.device->open(stage.device, program, host->local_rank));
  TRY(comm_for_device(arena, host, stage.device, &stage.nccl));
  Comm comm = *stage.nccl;
  comm.state = &stage;
  comm.start = staged_start;
  comm.wait = staged_wait;
  comm.barrier = staged_barrier;
  TRY(collectives_check(arena, &comm));
  stage.device->close(stage.device);
  stage.nccl->close(stage.nccl);
  printf("holds on %d ranks over %s\n", comm.world, comm.name);
  return STATUS_OK;
}

int main(void) {
  Status status = run_suite(arena_create(memory_create(no_memory, NULL)));
  if (status.code == STATUS_ok) return 0;
  fprintf(stderr, "%s\n", status.message);
  exit(1);
}
