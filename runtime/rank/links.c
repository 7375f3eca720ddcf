/*
 * links.c -- measures collectives between the ranks of a run, alone and beside
 * matmuls of a training step, and writes a table of them:
 *
 *     op,ranks,nodes,bytes,ps,beside_ps,taken,following_ps
 *     all_reduce,2,1,65536,41200000,80100000,310,25300000
 *
 * A process group of so many ranks, on so many machines, runs the collective at
 * the same time as all other groups of this size.  `bytes` are those that each
 * rank sends, as ir/place/reshard.def counts them, and `ps` is the median time,
 * of the slowest rank.  While ranks compute, it takes `beside_ps`, and their
 * matmuls take longer: `taken` thousandths of the time are lost to the
 * collective.  Both are 0 where it is too short to be seen, and for the sizes
 * that are measured alone.  `ps` is the time after DNN_REST_NS in which nothing
 * was sent, `following_ps` that of one of several that are waited for one after
 * the other.
 */
#include "runtime/rank/run.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  MOST_BYTES = 16 << 20, /* of a part */
  MOST_RUNS = 15,
  MOST_STARTED = 400, /* collectives under way beside matmuls */
  PASS_NS = 40000000, /* matmuls take at least as long in a measurement ... */
  LONGEST_NS = 3 * PASS_NS, /* and at most about this long */
  CASE_NS = 300000000,      /* one case takes about as long */
  CACHE_BYTES = 4 << 20     /* written before one begins */
};

typedef struct LinkKind {
  const char *name; /* of reshard.def */
  DnnCollectiveKind kind;
  int times; /* what a rank sends: `times` x (k - 1) / k of the part; 0: all */
} LinkKind;

static const LinkKind link_kinds[] = {
    {"all_gather", DNN_ALL_GATHER, 1},
    {"reduce_scatter", DNN_REDUCE_SCATTER, 1},
    {"all_reduce", DNN_ALL_REDUCE, 2},
    {"all_to_all", DNN_ALL_TO_ALL, 1},
    {"permute", DNN_PERMUTE, 0},
};

typedef struct Measuring {
  Run *run;
  FixedText *out;
  VEC(const DnnInstr *) matmuls;
  int64_t passes;  /* over them in one measurement; 0: there are none */
  int64_t pass_ns; /* of these, while nothing is sent */
} Measuring;

/* ---- the program ---- */

static int64_t links_buffer(const DnnProgram *program) {
  int64_t page = 4096;
  return (program->arena_bytes + page - 1) / page * page;
}

const DnnProgram *links_program(Arena *arena, const DnnProgram *program) {
  DnnProgram *own = arena_copy(arena, program, sizeof *program);
  DnnGroup *groups = ARENA_ARRAY(arena, DnnGroup, program->n_groups + 32);
  memcpy(groups, program->groups, sizeof *groups * (size_t)program->n_groups);
  own->groups = groups;
  uint8_t *queues = ARENA_ARRAY(arena, uint8_t, program->n_groups + 32);
  own->group_queues = queues;
  for (int size = 2; size <= program->world; size *= 2) {
    DnnGroup group = {.ranks = program->world,
                      .size = size,
                      .n_digits = 1,
                      .digits = {{size, 1}}};
    bool is_there = program->world % size != 0;
    for (int i = 0; i < program->n_groups; i++)
      is_there = is_there || group_equal(&group, &groups[i]);
    if (!is_there) groups[own->n_groups++] = group;
  }
  for (int i = 0; i < own->n_groups; i++)
    queues[i] = 1 << DNN_QUEUE_BULK |
                (i < program->n_groups ? program->group_queues[i] : 0);
  own->arena_bytes = links_buffer(program) + 2 * MOST_BYTES;
  return own;
}

/* ---- agreement ---- */

static int64_t greatest(Run *run, int64_t value) {
  int64_t *all = ARENA_ARRAY(run->arena, int64_t, run->comm->world);
  run_must(run, run->comm->gather(run->comm, &value, sizeof value, all));
  for (int i = 0; i < run->comm->world; i++)
    if (all[i] > value) value = all[i];
  return value;
}

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static int64_t median(int64_t *times, int n) {
  qsort(times, (size_t)n, sizeof *times, by_value);
  return times[n / 2];
}

/* ---- matmuls ---- */

static void run_matmuls(Measuring *m) {
  int64_t iterations[DNN_MAX_LOOPS] = {0};
  Device *device = m->run->device;
  for (int64_t pass = 0; pass < m->passes; pass++)
    for (int i = 0; i < m->matmuls.n; i++)
      run_must(m->run, device->launch(device, m->matmuls.data[i], iterations));
  run_must(m->run, device->wait(device));
}

static int64_t time_matmuls(Measuring *m) {
  run_must(m->run, m->run->comm->barrier(m->run->comm));
  int64_t begin = clock_ns();
  run_matmuls(m);
  return greatest(m->run, clock_ns() - begin);
}

/* Keeps matmuls that take about LONGEST_NS, from all over the step: some wait
 * for memory, as transfers do. */
static void thin_out(Measuring *m, int64_t pass_ns) {
  int64_t step = (pass_ns + LONGEST_NS - 1) / LONGEST_NS;
  int kept = 0;
  if (step > m->matmuls.n) step = m->matmuls.n;
  for (int64_t i = step / 2; i < m->matmuls.n; i += step)
    m->matmuls.data[kept++] = m->matmuls.data[i];
  m->matmuls.n = kept;
}

/* Those of scans are left out. */
static void add_matmuls(Measuring *m, const DnnSegment *segment) {
  Run *run = m->run;
  for (int i = segment->begin; i < segment->begin + segment->n; i++) {
    const DnnInstr *instr = &run->train->instrs[i];
    bool is_library = instr->op == DNN_OP_GEMM || instr->op == DNN_OP_CONV;
    if (is_library && instr->n_loops == segment->n_registers)
      vec_push(run->arena, &m->matmuls, instr);
  }
}

/* Matmuls follow no index, so they may run on whatever lies in the arena. */
static void find_matmuls(Measuring *m) {
  enum { RUNS = 7 };
  Run *run = m->run;
  for (int i = 0; i < run->train->n_segments; i++)
    add_matmuls(m, &run->train->segments[i]);
  if (m->matmuls.n == 0) return;
  m->passes = 1;
  time_matmuls(m);
  thin_out(m, time_matmuls(m));
  int64_t once = time_matmuls(m), times[RUNS];
  m->passes = once < PASS_NS ? PASS_NS / (once + 1) : 1;
  for (int i = 0; i < RUNS; i++) times[i] = time_matmuls(m);
  m->pass_ns = median(times, RUNS);
}

/* ---- collectives ---- */

typedef struct LinkCase {
  const LinkKind *kind;
  DnnCollective whats[MOST_STARTED]; /* under way at a time, by id */
  CommPart part;
  int64_t count, sent;
} LinkCase;

static void make_case(Run *run, const LinkKind *kind, const DnnGroup *group,
                      int64_t bytes, LinkCase *out) {
  int64_t size = group->size, item = (int64_t)sizeof(float);
  int64_t buffer = run->program->arena_bytes - 2 * (int64_t)MOST_BYTES;
  *out = (LinkCase){.kind = kind};
  out->count = (bytes / item + size - 1) / size * size;
  int64_t part = out->count * item;
  out->sent = kind->times ? kind->times * part / size * (size - 1) : part;
  DnnCollective what = {.kind = (uint8_t)kind->kind,
                        .dtype = DNN_f32,
                        .queue = DNN_QUEUE_BULK,
                        .peer = kind->kind == DNN_PERMUTE,
                        .n_parts = 1,
                        .group = group,
                        .counts = &out->count};
  void *from = run->device->address(run->device, buffer);
  void *to = run->device->address(run->device, buffer + MOST_BYTES);
  /* In programs only sums over all ranks are in the bytes of their operands. */
  out->part = kind->kind == DNN_ALL_REDUCE
                  ? comm_in_place(&what, run->comm->rank, from, out->count)
                  : (CommPart){from, to, out->count};
  for (int i = 0; i < MOST_STARTED; i++) {
    out->whats[i] = what;
    out->whats[i].id = i;
  }
}

static void start_cases(Run *run, LinkCase *c, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    run_must(run, run->comm->start(run->comm, &c->whats[i], &c->part));
}

static void wait_for_cases(Run *run, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    run_must(run, run->comm->wait(run->comm, (int32_t)i));
  run_must(run, run->device->wait(run->device));
}

/* Between collectives of a step a rank computes: the thread that moves messages
 * falls asleep, and what it sends leaves the caches. */
static void compute_between(Run *run) {
  static char cache[CACHE_BYTES];
  memset(cache, 0, sizeof cache);
  run_must(run, run->comm->barrier(run->comm));
  nanosleep(&(struct timespec){.tv_nsec = DNN_REST_NS}, NULL);
}

static int64_t time_case(Run *run, LinkCase *c) {
  compute_between(run);
  int64_t begin = clock_ns();
  start_cases(run, c, 1);
  wait_for_cases(run, 1);
  return greatest(run, clock_ns() - begin);
}

static int64_t time_alone(Run *run, LinkCase *c) {
  int64_t times[MOST_RUNS], first = time_case(run, c);
  int64_t n = first > 0 ? CASE_NS / first : MOST_RUNS;
  n = n < 3 ? 3 : n > MOST_RUNS ? MOST_RUNS : n;
  for (int64_t i = 0; i < n; i++) times[i] = time_case(run, c);
  return median(times, (int)n);
}

/* One of several, each of which begins when the one before it has ended. */
static int64_t time_following(Run *run, LinkCase *c, int64_t alone) {
  enum { RUNS = 5, MOST_IN_RUN = 8, RUN_NS = 2000000 };
  int64_t times[RUNS], n = RUN_NS / alone;
  n = n < 2 ? 2 : n > MOST_IN_RUN ? MOST_IN_RUN : n;
  for (int i = 0; i < RUNS; i++) {
    time_case(run, c);
    int64_t begin = clock_ns();
    for (int64_t k = 0; k < n; k++) {
      start_cases(run, c, 1);
      wait_for_cases(run, 1);
    }
    times[i] = greatest(run, clock_ns() - begin) / n;
  }
  return median(times, RUNS);
}

/* Starts collectives that are under way for longer than the matmuls, which may
 * take twice as long as alone; *out_ended: when the last one had ended. */
static int64_t compute_beside(Measuring *m, LinkCase *c, int64_t n,
                              int64_t *out_ended) {
  run_must(m->run, m->run->comm->barrier(m->run->comm));
  int64_t begin = clock_ns();
  start_cases(m->run, c, n);
  run_matmuls(m);
  int64_t computed = greatest(m->run, clock_ns() - begin);
  wait_for_cases(m->run, n);
  *out_ended = greatest(m->run, clock_ns() - begin);
  return computed;
}

/* Measures as many collectives one behind the other, while nothing computes. */
static int64_t time_row(Run *run, LinkCase *c, int64_t n) {
  run_must(run, run->comm->barrier(run->comm));
  int64_t begin = clock_ns();
  start_cases(run, c, n);
  wait_for_cases(run, n);
  return greatest(run, clock_ns() - begin);
}

/* The times of n collectives and the matmuls beside each other. */
typedef struct Beside {
  int64_t computed; /* until the matmuls had ended */
  int64_t moved;    /* in so much of the time that all take alone */
  int64_t each;     /* of that time, one collective */
} Beside;

static Beside measure_beside(Measuring *m, LinkCase *c, int64_t n, int runs) {
  int64_t times[MOST_RUNS], rest[MOST_RUNS], row[MOST_RUNS], ended;
  for (int i = 0; i < runs; i++) {
    row[i] = time_row(m->run, c, n);
    times[i] = compute_beside(m, c, n, &ended);
    rest[i] = ended - times[i];
  }
  int64_t all = median(row, runs);
  /* After the matmuls the rest is as fast as alone.  Less than half of a
   * collective cannot be told from none. */
  int64_t moved = all - median(rest, runs), least = all / n / 2 + 1;
  return (Beside){.computed = median(times, runs),
                  .moved = moved > least ? moved : least,
                  .each = all / n};
}

static void time_beside(Measuring *m, LinkCase *c, int64_t alone,
                        int64_t *out_beside, int64_t *out_taken) {
  *out_beside = *out_taken = 0;
  int64_t n = 2 * m->pass_ns / alone + 1;
  if (m->passes == 0 || n > MOST_STARTED) return;
  /* First how many end beside the matmuls; then with so many that little is
   * left after them, because the difference of what all take and of what is
   * left is then more exact. */
  Beside beside = measure_beside(m, c, n, 1);
  int64_t fewer = beside.moved / (beside.each + 1) * 5 / 4 + 1;
  beside = measure_beside(m, c, fewer < n ? fewer : n, 5);
  if (beside.computed > m->pass_ns)
    *out_taken = 999 - 999 * m->pass_ns / beside.computed; /* never all of it */
  *out_beside =
      (int64_t)((double)alone * (double)beside.computed / (double)beside.moved);
}

static int count_nodes(const Comm *comm, int size) {
  int local = comm->local_world;
  return size <= local ? 1 : (size + local - 1) / local;
}

/* Over TCP a collective of 200 kB may reach all of a link and one of 800 kB
 * three quarters of it, so there are more sizes between these.  How much they
 * take from matmuls changes less with the size, and takes long to measure. */
typedef struct LinkSize {
  int64_t bytes; /* of a part */
  bool is_beside;
} LinkSize;

static const LinkSize link_sizes[] = {
    {1 << 10, true},   {32 << 10, true}, {128 << 10, false}, {256 << 10, false},
    {512 << 10, true}, {4 << 20, true},  {MOST_BYTES, true},
};

static void measure_case(Measuring *m, const LinkKind *kind,
                         const DnnGroup *group, const LinkSize *size) {
  LinkCase c;
  int64_t beside = 0, taken = 0;
  make_case(m->run, kind, group, size->bytes, &c);
  int64_t alone = time_alone(m->run, &c);
  int64_t following = time_following(m->run, &c, alone);
  if (size->is_beside) time_beside(m, &c, alone, &beside, &taken);
  fixed_printf(m->out, "%s,%d,%d,%lld,%lld,%lld,%lld,%lld\n", kind->name,
               group->size, count_nodes(m->run->comm, group->size),
               (long long)c.sent, (long long)alone * 1000,
               (long long)beside * 1000, (long long)taken,
               (long long)following * 1000);
}

static void measure_group(Measuring *m, const DnnGroup *group) {
  for (int k = 0; k < ARRAY_LENGTH(link_kinds); k++)
    for (int i = 0; i < ARRAY_LENGTH(link_sizes); i++)
      measure_case(m, &link_kinds[k], group, &link_sizes[i]);
}

int run_measure_links(Run *run) {
  enum { TEXT_BYTES = 1 << 16 };
  FixedText text =
      fixed_text(ARENA_ARRAY(run->arena, char, TEXT_BYTES), TEXT_BYTES);
  Measuring m = {.run = run, .out = &text};
  fixed_printf(&text, "op,ranks,nodes,bytes,ps,beside_ps,taken,"
                      "following_ps\n");
  find_matmuls(&m);
  const DnnProgram *program = run->program;
  for (int i = 0; i < program->n_groups; i++) {
    const DnnGroup *group = &program->groups[i];
    if (group->n_digits == 1 && group->digits[0].stride == 1 &&
        group->ranks == program->world && group->size > 1)
      measure_group(&m, group);
  }
  ASSERT(!text.is_cut);
  Status status = STATUS_OK;
  if (run->comm->rank == 0)
    status = file_replace(run->options.links, text.data, text.n);
  return run_agree(run, status);
}
