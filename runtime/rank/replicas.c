/*
 * replicas.c -- checks that ranks are equal in what they have in common.
 *
 * At the start: the program and the options that decide what is computed.  A
 * rank of another build would compute with other sizes or other random numbers,
 * and no collective would notice.
 *
 * While training: every rank hashes its shard of each saved tensor that it
 * holds, and ranks that hold the same shard compare the hashes, with one small
 * gather.  Sums are made once, by one rank (comm/), so replicas are equal bit
 * for bit. A difference is a fault of memory, of a processor or of this
 * program, and it stays: a checkpoint would store one side of it.  If more than
 * two ranks hold a shard, the hash of the majority is taken for the right one.
 */
#include "runtime/rank/run.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 1 << 20, MOST_NAMED = 4, N_FACTS = 16 };

/* ---- programs ---- */

typedef struct Fact {
  const char *name;
  int64_t value;
} Fact;

/* The facts of a build, as many and in one order on all ranks, so that they can
 * be gathered. */
typedef struct Build {
  uint64_t program;
  char model[33], plan[33];
  int64_t facts[N_FACTS];
} Build;

static uint64_t add_bytes(uint64_t hash, const void *data, size_t n) {
  return n ? hash_bytes(data, n, hash) : hash;
}

static uint64_t add_string(uint64_t hash, const char *text) {
  return text ? hash_bytes(text, strlen(text) + 1, hash) : hash + 1;
}

static uint64_t add_tensors(uint64_t hash, const DnnTensor *tensors, int n) {
  for (int i = 0; i < n; i++) {
    const DnnTensor *t = &tensors[i];
    const int64_t numbers[] = {t->role, t->dtype, t->rank,
                               t->init, t->bytes, t->offset};
    hash = add_string(hash, t->path);
    hash = add_bytes(hash, numbers, sizeof numbers);
    hash = add_bytes(hash, t->size, sizeof *t->size * t->rank);
    for (int d = 0; d < t->rank; d++)
      if (t->split[d]) hash = add_bytes(hash, t->split[d], sizeof(DnnGroup));
    hash = add_bytes(hash, &t->init_a, sizeof t->init_a);
  }
  return hash;
}

static uint64_t add_code(uint64_t hash, const DnnEntryPoint *entry) {
  hash = add_string(hash, entry->name);
  hash = add_bytes(hash, &entry->batch, sizeof entry->batch);
  for (int32_t i = 0; i < entry->n_instrs; i++) {
    const DnnInstr *instr = &entry->instrs[i];
    const int32_t numbers[] = {instr->op, instr->kernel, instr->when};
    hash = add_bytes(hash, numbers, sizeof numbers);
    hash = add_bytes(hash, instr->buffers,
                     sizeof *instr->buffers * instr->n_buffers);
    hash = add_bytes(hash, instr->numbers,
                     sizeof *instr->numbers * instr->n_numbers);
  }
  hash = add_bytes(hash, entry->segments,
                   sizeof *entry->segments * (size_t)entry->n_segments);
  hash = add_bytes(hash, entry->calls,
                   sizeof *entry->calls * (size_t)entry->n_calls);
  return add_tensors(hash, entry->tensors, entry->n_tensors);
}

/* Names of kernels are hashes of their text. */
static uint64_t add_program(uint64_t hash, const DnnProgram *program) {
  const DnnSettings *settings = &program->settings;
  hash = add_string(hash, program->model);
  const int64_t numbers[] = {
      program->world,       program->arena_bytes,   settings->steps,
      settings->epochs,     settings->batch,        settings->eval_every,
      settings->keep,       settings->eval_batches, settings->is_checked,
      settings->save_every, program->is_paced};
  const double reals[] = {settings->clip, settings->ema};
  hash = add_string(hash, program->target);
  hash = add_string(hash, program->model_hash);
  hash = add_string(hash, program->plan_hash);
  hash = add_bytes(hash, numbers, sizeof numbers);
  hash = add_bytes(hash, reals, sizeof reals);
  hash = add_bytes(hash, &settings->seed, sizeof settings->seed);
  hash = add_bytes(hash, program->groups,
                   sizeof *program->groups * (size_t)program->n_groups);
  for (int i = 0; i < program->n_kernels; i++)
    hash = add_string(hash, program->kernels[i].name);
  for (int i = 0; i < program->n_entry_points; i++)
    hash = add_code(hash, &program->entry_points[i]);
  return add_tensors(hash, program->tensors, program->n_tensors);
}

/* A hash of everything that ranks must agree on: the programs of all. */
static uint64_t bundle_hash(const DnnBundle *bundle) {
  uint64_t hash = add_bytes((uint64_t)bundle->abi, bundle->rows,
                            sizeof *bundle->rows * (size_t)bundle->n_rows);
  for (int i = 0; i < bundle->n_programs; i++)
    hash = add_program(hash, &bundle->programs[i]);
  return hash;
}

/* The most bytes that a rank needs. */
static int64_t largest_arena(const DnnBundle *bundle) {
  int64_t bytes = 0;
  for (int i = 0; i < bundle->n_programs; i++)
    if (bundle->programs[i].arena_bytes > bytes)
      bytes = bundle->programs[i].arena_bytes;
  return bytes;
}

/* The value of an option as a number. */
#define OPTION_VALUE_FLAG(field)      options->field
#define OPTION_VALUE_TEXT(field)      options->field != NULL
#define OPTION_VALUE_INT(field)       options->field
#define OPTION_VALUE_BYTES(field)     options->field
#define OPTION_VALUE_LIST(field)      options->field.n
#define OPTION_FACT_same(name, value) {name, value},
#define OPTION_FACT_any(name, value)

/* Facts that the message can name; the result is their number. */
static int list_facts(const Run *run, Fact facts[N_FACTS]) {
  const RunOptions *options = &run->options;
  const Fact all[] = {
      {"seed", (int64_t)run->seed},
      {"arena bytes", largest_arena(run->bundle)},
      {"parameters", run->program->parameters},
      {"batch", run->program->settings.batch},
#define RUN_OPTION(kind, field, name, argument, least, otherwise, ranks,       \
                   commands, help)                                             \
  OPTION_FACT_##ranks(name, OPTION_VALUE_##kind(field))
#define RANK_OPTION(kind, field, name, argument, ranks, help)                  \
  OPTION_FACT_##ranks(name, OPTION_VALUE_##kind(field))
#include "runtime/launch/run_options.def"
  };
  _Static_assert(ARRAY_LENGTH(all) <= N_FACTS, "room for all facts");
  memcpy(facts, all, sizeof all);
  return ARRAY_LENGTH(all);
}

static Build own_build(const Run *run) {
  Fact facts[N_FACTS] = {0};
  Build build = {.program = bundle_hash(run->bundle)};
  snprintf(build.model, sizeof build.model, "%s", run->program->model_hash);
  snprintf(build.plan, sizeof build.plan, "%s", run->program->plan_hash);
  int n = list_facts(run, facts);
  for (int i = 0; i < n; i++) build.facts[i] = facts[i].value;
  return build;
}

/* Two values, where they differ. */
static void name_difference(Text *text, const char *name, const char *own,
                            const char *other) {
  if (strcmp(own, other) != 0)
    text_printf(text, ", %s %s and %s", name, own, other);
}

static void explain_builds(const Run *run, int other, const Build *builds) {
  const Build *a = &builds[0], *b = &builds[other];
  Fact facts[N_FACTS] = {0};
  int n = list_facts(run, facts);
  Text text = text_create(run->arena);
  for (int i = 0; i < n; i++)
    if (a->facts[i] != b->facts[i])
      text_printf(&text, ", %s %lld and %lld", facts[i].name,
                  (long long)a->facts[i], (long long)b->facts[i]);
  name_difference(&text, "model", a->model, b->model);
  name_difference(&text, "plan", a->plan, b->plan);
  message_print(
      "error: ranks 0 and %d do not run the same: program %016llx and "
      "%016llx%s\n"
      "help: start all ranks from one bundle, with the same options\n",
      other, (unsigned long long)a->program, (unsigned long long)b->program,
      text_string(&text));
}

int replicas_check_builds(Run *run) {
  Build own = own_build(run);
  Build *all = ARENA_ARRAY(run->arena, Build, run->comm->world);
  int code =
      status_exit_code(run->comm->gather(run->comm, &own, sizeof own, all));
  for (int i = 1; i < run->comm->world && !code; i++) {
    if (memcmp(&all[0], &all[i], sizeof own) == 0) continue;
    if (run->comm->rank == 0) explain_builds(run, i, all);
    code = EXIT_mistake;
  }
  return code;
}

/* ---- values ---- */

/* Adds bytes of the arena to a hash. */
static Status hash_range(Device *device, int64_t offset, int64_t bytes,
                         unsigned char *block, uint64_t *hash) {
  const unsigned char *host =
      device->host_arena ? device->address(device, offset) : NULL;
  for (int64_t at = 0; at < bytes; at += BLOCK) {
    int64_t n = bytes - at < BLOCK ? bytes - at : BLOCK;
    if (!host) TRY(device->read(device, offset + at, block, n));
    *hash = hash_bytes(host ? host + at : block, (size_t)n, *hash);
  }
  return STATUS_OK;
}

/* Nobody promises anything about padding. */
static Status hash_tensor(Device *device, const DnnTensor *tensor,
                          unsigned char *block, uint64_t *out) {
  int64_t item = dtype_bytes(tensor->dtype), n = tensor_elements(tensor);
  TensorRun run;
  *out = 0;
  if (!tensor_is_held(tensor, device->rank)) return STATUS_OK;
  if (!tensor_has_padding(tensor, device->rank))
    return hash_range(device, tensor->offset,
                      tensor_local_elements(tensor) * item, block, out);
  for (int64_t from = 0; tensor_next_run(tensor, device->rank, from, n, &run);
       from = run.logical + run.n)
    TRY(hash_range(device, tensor->offset + run.local * item, run.n * item,
                   block, out));
  return STATUS_OK;
}

typedef struct Hashes {
  const DnnTensor **tensors;
  uint64_t *all; /* [world][n] */
  int n, world;
} Hashes;

static uint64_t hash_at(const Hashes *hashes, int rank, int tensor) {
  return hashes->all[(int64_t)rank * hashes->n + tensor];
}

static bool is_replica(const Hashes *hashes, int tensor, int a, int b) {
  const DnnTensor *of = hashes->tensors[tensor];
  return tensor_is_held(of, a) && tensor_is_held(of, b) &&
         tensor_same_shard(of, a, b);
}

/* How many ranks hold this shard with the hash that `rank` has. */
static int count_like(const Hashes *hashes, int rank, int tensor) {
  int n = 0;
  for (int i = 0; i < hashes->world; i++)
    n += is_replica(hashes, tensor, rank, i) &&
         hash_at(hashes, i, tensor) == hash_at(hashes, rank, tensor);
  return n;
}

/* A rank whose shard differs from that of *out_like and is not in the
 * majority; -1: none. */
static int find_odd(const Hashes *hashes, int tensor, int *out_like) {
  for (int rank = 1; rank < hashes->world; rank++) {
    int first = 0;
    if (!tensor_is_held(hashes->tensors[tensor], rank)) continue;
    while (!is_replica(hashes, tensor, first, rank)) first++;
    if (hash_at(hashes, first, tensor) == hash_at(hashes, rank, tensor))
      continue;
    bool is_first_odd =
        count_like(hashes, first, tensor) < count_like(hashes, rank, tensor);
    *out_like = is_first_odd ? rank : first;
    return is_first_odd ? first : rank;
  }
  return -1;
}

static void explain_values(const Run *run, const Hashes *hashes, int n_differ) {
  Text text = text_create(run->arena);
  int named = 0, odd = 0, like = 0, last = 0;
  for (int i = 0; i < hashes->n && named < MOST_NAMED; i++) {
    int found = find_odd(hashes, i, &like);
    if (found < 0) continue;
    odd = found;
    last = i;
    text_printf(&text,
                "%s'%s' of rank %d (xxh3 %016llx, that of rank %d is %016llx)",
                named++ ? ", " : "", hashes->tensors[i]->path, odd,
                (unsigned long long)hash_at(hashes, odd, i), like,
                (unsigned long long)hash_at(hashes, like, i));
  }
  if (n_differ > named) text_printf(&text, " and %d more", n_differ - named);
  message_print("fault: replicas differ after step %lld: %s\n",
                (long long)run->done, text_string(&text));
  fprintf(stderr, "help: no checkpoint of it was written; ");
  if (run->saved > 0)
    fprintf(stderr, "continue from step %lld with --resume; ",
            (long long)run->saved);
  bool is_known =
      count_like(hashes, like, last) > count_like(hashes, odd, last);
  fprintf(stderr, "test the memory of the machine of rank %d", odd);
  fprintf(stderr, is_known ? "\n" : ", and of that of rank %d\n", like);
}

static Status gather_hashes(Run *run, Arena *arena, Hashes *out) {
  const DnnProgram *program = run->program;
  uint64_t *own = ARENA_ARRAY(arena, uint64_t, program->n_tensors);
  unsigned char *block =
      run->device->host_arena ? NULL : ARENA_ARRAY(arena, unsigned char, BLOCK);
  *out = (Hashes){
      .world = run->comm->world,
      .tensors = ARENA_ARRAY(arena, const DnnTensor *, program->n_tensors)};
  for (int i = 0; i < program->n_tensors; i++) {
    if (!tensor_is_saved(&program->tensors[i])) continue;
    TRY(hash_tensor(run->device, &program->tensors[i], block, &own[out->n]));
    out->tensors[out->n++] = &program->tensors[i];
  }
  out->all = ARENA_ARRAY(arena, uint64_t, (int64_t)out->n * out->world);
  return run->comm->gather(run->comm, own, (int64_t)sizeof *own * out->n,
                           out->all);
}

int replicas_compare(Run *run) {
  if (run->comm->world == 1 || run->compared == run->done ||
      run->program->is_paced)
    return EXIT_done;
  Arena *scratch = arena_create(run->memory);
  Hashes hashes;
  recorder_note(&run->recorder, run->done, "compare", 0, "replicas");
  run_must(run, gather_hashes(run, scratch, &hashes));
  int n_differ = 0, like;
  for (int i = 0; i < hashes.n; i++)
    n_differ += find_odd(&hashes, i, &like) >= 0;
  if (n_differ > 0 && run->comm->rank == 0)
    explain_values(run, &hashes, n_differ);
  arena_destroy(scratch);
  run->compared = run->done;
  return n_differ > 0 ? EXIT_fault : EXIT_done;
}
