// links: verify driver codegen frontend passes runtime ir support
/*
 * overlap.c -- tests how much communication of a training step no computation
 * hides, on virtual clocks.
 *
 * The instructions of a compiled step run on ranks that are threads, over
 * links with a bandwidth, on a device that computes nothing and takes the time
 * that operations and bytes cost (runtime/comm/local.c).  So times are exact:
 * the step minus the computation of a rank is what it has waited for.  The
 * contract is "Order of launches" in docs/inside/launches.md.
 */
#include "codegen/select.h"
#include "runtime/exec/exec.h"
#include "tests/unit/play_model.h"

#include <pthread.h>
#include <stdlib.h>

TestSuite(overlap, .fini = modules_destroy, .timeout = 120);

enum { MOST_RANKS = 8, MOST_EVENTS = 4096 };

/* ---- a step as instructions ---- */

static const int64_t *copied(Arena *arena, const int64_t *data, int n) {
  return arena_copy(arena, data, sizeof *data * (size_t)n);
}

static DnnInstr instr_of(Arena *arena, const Launch *launch) {
  DnnInstr instr = {
      .op = (uint8_t)launch->op,
      .phase = (uint8_t)launch->phase,
      .n_buffers = (uint16_t)launch->buffers.n,
      .n_numbers = (uint16_t)launch->numbers.n,
      .kernel = launch->kernel,
      .when = (uint8_t)launch->when,
      .buffers = copied(arena, launch->buffers.data, launch->buffers.n),
      .numbers = copied(arena, launch->numbers.data, launch->numbers.n),
      .path = launch->path,
      .flops = launch->flops,
      .bytes_moved = launch->bytes_moved,
      .n_loops = (uint16_t)launch->n_loops};
  if (launch->advances.n > 0)
    instr.advances = copied(arena, launch->advances.data, launch->advances.n);
  if (launch->op != DNN_OP_COLLECTIVE) return instr;
  DnnCollective *what =
      arena_copy(arena, &launch->collective, sizeof launch->collective);
  what->counts = copied(arena, launch->counts.data, launch->counts.n);
  instr.detail = what;
  return instr;
}

typedef struct Step {
  Arena *arena;
  DnnProgram program;
  DnnEntryPoint entry;
  int n_ids;
} Step;

/* The training step of a model under a plan. */
static Step compile_step(const char *model, const char *sizes,
                         const char *plan) {
  Module *module = module_create();
  CompileOptions *options = ARENA_NEW(module->arena, CompileOptions);
  *options = (CompileOptions){
      .path = arena_printf(module->arena, "%s/%s", TEST_ROOT, model),
      .plan = arena_printf(module->arena, "%s/tests/plans/%s.plan", TEST_ROOT,
                           plan),
      .target = "cpu",
      .follows_links = true,
      .level = 2};
  options->overrides =
      play_overrides(module->arena, sizes, &options->n_overrides);
  Compilation c;
  cr_assert_eq(driver_load(module, options, &c), COMPILE_done, "%s", plan);
  cr_assert_eq(driver_compile(&c, STATION_program), COMPILE_done, "%s", plan);
  LaunchList launches = {0};
  KernelSet *kernels = kernel_set_create(module, c.target.backend);
  const EntryPoint *train = &driver_only_program(&c)->entry_points[0];
  cr_assert_str_eq(train->name, "train");
  cr_assert_eq(select_entry_point(kernels, train, NULL, NULL, &launches).code,
               STATUS_ok);
  Step step = {.arena = module->arena};
  DnnInstr *instrs = ARENA_ARRAY(module->arena, DnnInstr, launches.n);
  for (int i = 0; i < launches.n; i++) {
    instrs[i] = instr_of(module->arena, launches.data[i]);
    if (instrs[i].op == DNN_OP_COLLECTIVE) step.n_ids++;
  }
  step.entry = (DnnEntryPoint){.name = "train",
                               .n_instrs = launches.n,
                               .instrs = instrs,
                               .n_segments = launches.segments.n,
                               .segments = launches.segments.data,
                               .n_calls = launches.calls.n,
                               .calls = launches.calls.data};
  step.program = (DnnProgram){.world = c.ranks,
                              .entry_points = &step.entry,
                              .n_entry_points = 1,
                              .arena_bytes = entry_point_arena_bytes(train)};
  return step;
}

/* ---- a device that takes time ---- */

static Status take_no_action(Device *device, const DnnInstr *instr,
                             const int64_t *iterations) {
  (void)device, (void)instr, (void)iterations;
  return STATUS_OK;
}

static void *arena_address(Device *device, int64_t offset) {
  return (char *)device->state + offset;
}

/* A rank computes 1000 operations or moves 10 bytes in a nanosecond. */
static int64_t compute_ns(void *user, int rank, const DnnInstr *instr) {
  int64_t *computed = user;
  int64_t ns = (int64_t)(instr->flops / 1000 + instr->bytes_moved / 10);
  computed[rank] += ns;
  return ns;
}

typedef struct RankRun {
  const Step *step;
  Comm *comm;
  Status (*wait)(Comm *comm, int32_t id); /* of the transport */
  int64_t *waited;                        /* by id: ns */
  int n_device_waits;
  pthread_t thread;
  int64_t end_ns;
  CommEvents events;
  const char *failure;
} RankRun;

static _Thread_local RankRun *own_run;

static Status count_wait(Comm *comm, int32_t id) {
  int64_t begin = comm_local_now(comm);
  Status status = own_run->wait(comm, id);
  own_run->waited[id] += comm_local_now(comm) - begin;
  return status;
}

static Status end_at_once(Device *device) {
  (void)device;
  own_run->n_device_waits++;
  return STATUS_OK;
}

/* The host is free while the device computes, and all has ended at the end. */
static Status run_entry(RankRun *run, Exec *exec, const DnnEntryPoint *entry) {
  TRY(exec_start(exec, entry, 0));
  if (run->n_device_waits != 0) run->failure = "a start waits for the device";
  TRY(exec_finish(exec));
  if (run->n_device_waits != 1) run->failure = "the device is not waited for";
  return STATUS_OK;
}

static void *run_rank(void *user) {
  RankRun *run = user;
  own_run = run;
  Memory *memory = memory_create(out_of_memory, NULL);
  Arena *arena = arena_create(memory);
  Device device = {.name = "virtual",
                   .rank = run->comm->rank,
                   .launch = take_no_action,
                   .wait = end_at_once,
                   .address = arena_address,
                   .state = calloc(1, (size_t)run->step->program.arena_bytes)};
  DnnProgram program = run->step->program;
  program.entry_points = &run->step->entry;
  FlightRecorder *recorder = ARENA_NEW(arena, FlightRecorder);
  *recorder = (FlightRecorder){
      .rank = run->comm->rank, .alive_fd = -1, .report_fd = -1};
  run->comm->events = &run->events;
  run->wait = run->comm->wait;
  run->comm->wait = count_wait;
  Exec *exec = exec_create(arena, &program, &device, run->comm, recorder);
  Status status = run_entry(run, exec, &run->step->entry);
  if (status.code != STATUS_ok) run->failure = status.message;
  run->end_ns = comm_local_now(run->comm);
  run->comm->close(run->comm);
  free(device.state);
  memory_destroy(memory);
  return NULL;
}

/* A rank with its collectives and waits. */
typedef struct Timeline {
  int64_t step_ns, compute_ns;
  const int64_t *waited; /* by id: how long the rank stood still for it */
  CommEvents events;
  const DnnCollective **what; /* by id */
} Timeline;

static int64_t exposed_ns(const Timeline *line) {
  return line->step_ns - line->compute_ns;
}

static int64_t duration_ns(const CommEvent *event) {
  return event->end_ns - event->begin_ns;
}

/* Runs a step on all ranks; the result is that of rank 0. */
static Timeline run_step(const Step *step, double bytes_per_ns) {
  int world = step->program.world;
  RankRun runs[MOST_RANKS] = {0};
  int64_t *computed = ARENA_ARRAY(step->arena, int64_t, world);
  LocalOptions options = {
      .bytes_per_ns = bytes_per_ns, .compute_ns = compute_ns, .user = computed};
  Comm *comms;
  cr_assert_leq(world, MOST_RANKS);
  cr_assert_eq(comm_local_create(step->arena, world, &options, &comms).code,
               STATUS_ok);
  for (int r = 0; r < world; r++) {
    runs[r] =
        (RankRun){.step = step,
                  .comm = &comms[r],
                  .waited = ARENA_ARRAY(step->arena, int64_t, step->n_ids)};
    runs[r].events.capacity = MOST_EVENTS;
    runs[r].events.data = ARENA_ARRAY(step->arena, CommEvent, MOST_EVENTS);
    pthread_create(&runs[r].thread, NULL, run_rank, &runs[r]);
  }
  for (int r = 0; r < world; r++) pthread_join(runs[r].thread, NULL);
  for (int r = 0; r < world; r++)
    cr_assert_null(runs[r].failure, "rank %d: %s", r, runs[r].failure);
  Timeline line = {
      .step_ns = runs[0].end_ns,
      .compute_ns = computed[0],
      .waited = runs[0].waited,
      .events = runs[0].events,
      .what = ARENA_ARRAY(step->arena, const DnnCollective *, step->n_ids)};
  for (int i = 0; i < step->entry.n_instrs; i++) {
    const DnnInstr *instr = &step->entry.instrs[i];
    if (instr->op != DNN_OP_COLLECTIVE) continue;
    const DnnCollective *what = instr->detail;
    line.what[what->id] = what;
  }
  return line;
}

/* ---- what may be exposed ---- */

static bool is_bulk(const Timeline *line, const CommEvent *event) {
  return line->what[event->id]->queue == DNN_QUEUE_BULK;
}

/* The last bulk collective that ends before `end_ns`. */
static const CommEvent *last_bulk(const Timeline *line, int64_t end_ns) {
  const CommEvent *last = NULL;
  for (int i = 0; i < line->events.n; i++) {
    const CommEvent *event = &line->events.data[i];
    if (is_bulk(line, event) && event->end_ns < end_ns &&
        (!last || event->end_ns > last->end_ns))
      last = event;
  }
  cr_assert(last);
  return last;
}

/* The last n bulk collectives, and the norm and other scalars after them. */
static int64_t tail_ns(const Timeline *line, int n) {
  int64_t ns = 0, end_ns = INT64_MAX;
  for (int i = 0; i < n; i++) {
    const CommEvent *last = last_bulk(line, end_ns);
    end_ns = last->end_ns;
    ns += duration_ns(last);
  }
  for (int i = 0; i < line->events.n; i++)
    if (!is_bulk(line, &line->events.data[i]) &&
        line->events.data[i].begin_ns >= end_ns)
      ns += duration_ns(&line->events.data[i]);
  return ns;
}

static int64_t all_ns(const Timeline *line) {
  int64_t ns = 0;
  for (int i = 0; i < line->events.n; i++)
    ns += duration_ns(&line->events.data[i]);
  return ns;
}

/* The gathers before the first matmul: that of a table, and those of the first
 * block, because a look-up takes too little time to hide anything. */
static int64_t first_gathers_ns(const Step *step, const Timeline *line) {
  int64_t ns = 0;
  for (int i = 0; i < step->entry.n_instrs; i++) {
    const DnnInstr *instr = &step->entry.instrs[i];
    if (instr->op == DNN_OP_GEMM) break;
    if (instr->op != DNN_OP_WAIT) continue;
    int32_t id = (int32_t)instr->numbers[0];
    for (int k = 0; k < line->events.n; k++)
      if (line->events.data[k].id == id)
        ns += duration_ns(&line->events.data[k]);
  }
  return ns;
}

static const char *path_of(const Step *step, int32_t id) {
  for (int i = 0; i < step->entry.n_instrs; i++) {
    const DnnInstr *instr = &step->entry.instrs[i];
    if (instr->op == DNN_OP_COLLECTIVE &&
        ((const DnnCollective *)instr->detail)->id == id)
      return instr->path;
  }
  return "";
}

/* For whoever changes the order: each collective of a step. */
static void print_events(const Step *step, const Timeline *line) {
  if (!getenv("OVERLAP_EVENTS")) return;
  for (int i = 0; i < line->events.n; i++) {
    const CommEvent *event = &line->events.data[i];
    fprintf(stderr, "%s %d parts from %lld to %lld, waited %lld: %s\n",
            line->what[event->id]->queue == DNN_QUEUE_BULK ? "bulk"
                                                           : "blocking",
            line->what[event->id]->n_parts, (long long)event->begin_ns,
            (long long)event->end_ns, (long long)line->waited[event->id],
            path_of(step, event->id));
  }
}

/* Prints a line of the step, in virtual nanoseconds. */
static Timeline run_plan(const char *plan, double bytes_per_ns, Step *out) {
  *out = compile_step("benchmarks/systems/gpt.dnn",
                      "B=16 T=64 V=512 C=128 H=8 L=6", plan);
  Timeline line = run_step(out, bytes_per_ns);
  fprintf(stderr,
          "%s: step %lld ns, computation %lld, communication %lld, exposed "
          "%lld\n",
          plan, (long long)line.step_ns, (long long)line.compute_ns,
          (long long)all_ns(&line), (long long)exposed_ns(&line));
  print_events(out, &line);
  return line;
}

/* ---- tests ---- */

static void expect_exposed(const char *plan, double bytes_per_ns, int n_bulk) {
  Step step;
  Timeline line = run_plan(plan, bytes_per_ns, &step);
  int64_t may = first_gathers_ns(&step, &line) + tail_ns(&line, n_bulk);
  cr_expect_gt(line.compute_ns, all_ns(&line));
  cr_expect_leq(exposed_ns(&line), may, "%s", plan);
  cr_expect_lt(may, all_ns(&line) / 7);
}

Test(overlap, data_parallelism_exposes_its_last_bucket) {
  expect_exposed("overlap_data", 1, 1);
}

Test(overlap, zero3_exposes_its_first_gathers_and_its_last_bucket) {
  expect_exposed("overlap_zero3", 1, 1);
}

/* Each bucket is scattered inside of a node and then reduced over nodes, where
 * it waits for the next one to be scattered. */
Test(overlap, a_bucket_that_continues_another_holds_nobody_up) {
  expect_exposed("overlap_hybrid", 2, 3);
}

/* Two matmuls give the gradients of a block's weights between two messages of
 * the backward pass, and hide one that takes less time. */
Test(overlap, tensor_parallelism_hides_messages_behind_weight_gradients) {
  Step step;
  Timeline line = run_plan("overlap_tensor", 2, &step);
  int n_hidden = 0;
  for (int i = 0; i < line.events.n; i++) {
    int32_t id = line.events.data[i].id;
    if (strncmp(path_of(&step, id), "grad.block", 10) != 0) continue;
    cr_expect_eq(line.waited[id], 0, "%s waits %lld ns", path_of(&step, id),
                 (long long)line.waited[id]);
    n_hidden++;
  }
  cr_expect_eq(n_hidden, 12);
}
