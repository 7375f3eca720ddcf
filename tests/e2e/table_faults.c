/*
 * table_faults.c -- puts one fault into the tables of an emitted program,
 * before it runs: into the digits of a group, the start of a window or of a
 * shard, an offset in memory, the micro-batch of a call.  exact.sh links it in
 * front of a program with
 * --wrap=rank_main; the program of a user has no such code.
 *
 *     DNNC_TABLE_FAULT=list    prints each kind and how many places it has
 *     DNNC_TABLE_FAULT=KIND:N  puts the fault at the Nth place of a kind and
 *                              prints where that is
 *
 * Details are shared between instructions, so a fault changes a copy.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/program.h"
#include "support/tables.h"

static const int64_t dtype_sizes[] = {
#define DTYPE(name, bytes, ...) bytes,
#include "support/dtype.def"
};

/* Memory of the process. */
static void *copy_bytes(const void *from, size_t n) {
  void *copy = malloc(n);
  if (!copy) abort();
  return memcpy(copy, from, n);
}

/* ---- places ---- */

typedef struct Seeding {
  const DnnProgram *program;
  const DnnEntryPoint *train;
  int wanted; /* place; -1: none */
  int n;      /* places so far */
  const char *path;
  const char *what;
} Seeding;

/* Counts a place; whether the fault goes there. */
static bool is_place(Seeding *s, const char *what, const char *path) {
  if (s->n++ != s->wanted) return false;
  s->what = what;
  s->path = path;
  return true;
}

static DnnInstr *instr_at(const Seeding *s, int i) {
  return (DnnInstr *)&s->train->instrs[i];
}

/* Most of what the update of a first step reads besides gradients is 0. */
static bool is_update(const DnnInstr *instr) {
  return instr->phase == 3;
}

/* The collective of an instruction, or NULL. */
static const DnnCollective *collective_of(const DnnInstr *instr) {
  return instr->op == DNN_OP_COLLECTIVE ? instr->detail : NULL;
}

/* A copy that this instruction alone has. */
static DnnCollective *own_collective(DnnInstr *instr) {
  DnnCollective *own = copy_bytes(instr->detail, sizeof *own);
  own->counts =
      copy_bytes(own->counts, sizeof *own->counts * (size_t)own->n_parts);
  instr->detail = own;
  return own;
}

static void add_to_buffer(DnnInstr *instr, int i, int64_t bytes) {
  int64_t *own =
      copy_bytes(instr->buffers, sizeof *instr->buffers * instr->n_buffers);
  own[i] += bytes;
  instr->buffers = own;
}

static DnnRankOffset *own_rank_offsets(DnnInstr *instr) {
  DnnRankOffset *own = copy_bytes(
      instr->rank_offsets, sizeof *instr->rank_offsets * instr->n_rank_offsets);
  instr->rank_offsets = own;
  return own;
}

/* ---- digits of groups ---- */

/* Turns a group into one with as many members along other digits: the first two
 * exchanged, or one of another stride.  Returns false if there is none. */
static bool turn_digits(const DnnGroup *group, DnnGroup *out) {
  *out = *group;
  if (group->n_digits > 1) {
    out->digits[0] = group->digits[1];
    out->digits[1] = group->digits[0];
    return true;
  }
  if (group->n_digits == 0 || group->size == group->ranks) return false;
  int32_t widest = group->ranks / group->size;
  out->digits[0].stride = group->digits[0].stride == 1 ? widest : 1;
  return true;
}

/* The members of a sum have no order: other ranks. */
static bool turn_members(const DnnGroup *group, DnnGroup *out) {
  if (group->n_digits < 2) return turn_digits(group, out);
  *out = *group;
  out->n_digits = 1;
  out->digits[0] = (DnnDigit){group->size, 1};
  return group->size < group->ranks;
}

static void seed_group(Seeding *s) {
  for (int i = 0; i < s->train->n_instrs; i++) {
    DnnInstr *instr = instr_at(s, i);
    const DnnCollective *now = collective_of(instr);
    DnnGroup other;
    bool is_sum = now && now->kind == DNN_ALL_REDUCE;
    if (!now || !(is_sum ? turn_members : turn_digits)(now->group, &other))
      continue;
    if (is_place(s, "the group of a collective", instr->path))
      own_collective(instr)->group = copy_bytes(&other, sizeof other);
  }
}

static void seed_shards_of(Seeding *s, const DnnTensor *tensors, int n) {
  for (int i = 0; i < n; i++)
    for (int d = 0; d < tensors[i].rank; d++) {
      DnnGroup other;
      const DnnGroup **split = (const DnnGroup **)&tensors[i].split[d];
      if (!*split || !turn_digits(*split, &other)) continue;
      if (is_place(s, "the group that shards a tensor", tensors[i].path))
        *split = copy_bytes(&other, sizeof other);
    }
}

static void seed_shards(Seeding *s) {
  seed_shards_of(s, s->program->tensors, s->program->n_tensors);
  seed_shards_of(s, s->train->tensors, s->train->n_tensors);
}

/* ---- starts of windows and shards ---- */

static void seed_index(Seeding *s) {
  for (int i = 0; i < s->train->n_instrs; i++) {
    DnnInstr *instr = instr_at(s, i);
    for (int k = 0; k < instr->n_rank_offsets && !is_update(instr); k++) {
      DnnGroup other;
      if (turn_digits(instr->rank_offsets[k].group, &other) &&
          is_place(s, "the group whose index a kernel adds", instr->path))
        own_rank_offsets(instr)[k].group = copy_bytes(&other, sizeof other);
    }
  }
}

static void seed_factor(Seeding *s) {
  for (int i = 0; i < s->train->n_instrs; i++) {
    DnnInstr *instr = instr_at(s, i);
    for (int k = 0; k < instr->n_rank_offsets && !is_update(instr); k++)
      if (is_place(s, "the factor of an index, plus 1", instr->path))
        own_rank_offsets(instr)[k].factor++;
  }
}

static void seed_start(Seeding *s) {
  for (int i = 0; i < s->train->n_instrs; i++) {
    DnnInstr *instr = instr_at(s, i);
    for (int k = 0; k < instr->n_rank_offsets && !is_update(instr); k++) {
      if (!is_place(s, "the start of a shard, plus 1", instr->path)) continue;
      int64_t *own =
          copy_bytes(instr->numbers, sizeof *instr->numbers * instr->n_numbers);
      own[instr->rank_offsets[k].number]++;
      instr->numbers = own;
    }
  }
}

static void seed_shift(Seeding *s) {
  for (int i = 0; i < s->train->n_instrs; i++) {
    DnnInstr *instr = instr_at(s, i);
    const DnnCollective *now = collective_of(instr);
    if (!now || now->kind != DNN_PERMUTE || now->targets) continue;
    if (is_place(s, "the shift of a permute, plus 1", instr->path))
      own_collective(instr)->peer++;
  }
}

/* ---- offsets ---- */

static void seed_buffers(Seeding *s, bool is_destination, const char *what) {
  for (int i = 0; i < s->train->n_instrs; i++) {
    DnnInstr *instr = instr_at(s, i);
    const DnnCollective *now = collective_of(instr);
    if (!now || (is_destination && instr->n_buffers == now->n_parts)) continue;
    for (int part = 0; part < now->n_parts; part++)
      if (is_place(s, what, instr->path))
        add_to_buffer(instr, is_destination ? now->n_parts + part : part,
                      dtype_sizes[now->dtype]);
  }
}

static void seed_source(Seeding *s) {
  seed_buffers(s, false, "where a collective reads, plus 1 element");
}

static void seed_destination(Seeding *s) {
  seed_buffers(s, true, "where a collective writes, plus 1 element");
}

/* An element of each shard. */
static void seed_count(Seeding *s) {
  for (int i = 0; i < s->train->n_instrs; i++) {
    DnnInstr *instr = instr_at(s, i);
    const DnnCollective *now = collective_of(instr);
    if (!now) continue;
    bool has_shards = now->kind != DNN_ALL_REDUCE && now->kind != DNN_PERMUTE;
    int64_t less = has_shards ? now->group->size : 1;
    for (int part = 0; part < now->n_parts; part++)
      if (now->counts[part] > less &&
          is_place(s, "the elements of a collective, minus 1", instr->path))
        ((int64_t *)own_collective(instr)->counts)[part] -= less;
  }
}

static void seed_operand(Seeding *s) {
  for (int i = 0; i < s->train->n_instrs; i++) {
    DnnInstr *instr = instr_at(s, i);
    if (instr->op != DNN_OP_KERNEL && instr->op != DNN_OP_GEMM &&
        instr->op != DNN_OP_CONV)
      continue;
    for (int k = 0; k < instr->n_buffers && !is_update(instr); k++)
      if (is_place(s, "the address of an operand, plus 1 element", instr->path))
        add_to_buffer(instr, k, 4);
  }
}

/* ---- micro-batches ---- */

/* Calls are shared with no other entry point. */
static DnnCall *call_at(const Seeding *s, int i) {
  return (DnnCall *)&s->train->calls[i];
}

/* Call i has another of its segment after it. */
static bool has_next(const Seeding *s, int i) {
  const DnnCall *call = &s->train->calls[i];
  return s->train->segments[call->segment].n_registers > 0 &&
         i + 1 < s->train->n_calls && call[1].segment == call->segment;
}

static void seed_call(Seeding *s) {
  for (int i = 0; i < s->train->n_calls; i++)
    if (has_next(s, i) && is_place(s, "a call for the next micro-batch", NULL))
      call_at(s, i)->registers[DNN_REGISTER_MICROBATCH]++;
}

static void seed_first(Seeding *s) {
  for (int i = 0; i < s->train->n_calls; i++)
    if (has_next(s, i) && is_place(s, "a second first call", NULL))
      call_at(s, i + 1)->is_first = 1;
}

static void seed_advance(Seeding *s) {
  for (int i = 0; i < s->train->n_instrs; i++) {
    DnnInstr *instr = instr_at(s, i);
    for (int k = 0; instr->advances && k < instr->n_buffers; k++) {
      if (instr->advances[k * instr->n_loops] == 0 ||
          !is_place(s, "what an operand moves, plus 1 element", instr->path))
        continue;
      size_t n = (size_t)instr->n_buffers * instr->n_loops;
      int64_t *own = copy_bytes(instr->advances, sizeof *own * n);
      own[k * instr->n_loops] += 4;
      instr->advances = own;
    }
  }
}

/* ---- kinds ---- */

static const struct {
  const char *name;
  void (*seed)(Seeding *s);
} kinds[] = {{"group", seed_group},    {"shards", seed_shards},
             {"index", seed_index},    {"factor", seed_factor},
             {"start", seed_start},    {"shift", seed_shift},
             {"source", seed_source},  {"destination", seed_destination},
             {"count", seed_count},    {"operand", seed_operand},
             {"call", seed_call},      {"first", seed_first},
             {"advance", seed_advance}};

enum { N_KINDS = sizeof kinds / sizeof *kinds };

static const DnnEntryPoint *find_train(const DnnProgram *program) {
  for (int i = 0; i < program->n_entry_points; i++)
    if (program->entry_points[i].id == ENTRY_train)
      return &program->entry_points[i];
  abort();
}

static void list_places(const DnnProgram *program) {
  for (int k = 0; k < N_KINDS; k++) {
    Seeding s = {program, find_train(program), -1, 0, NULL, NULL};
    kinds[k].seed(&s);
    printf("%s %d\n", kinds[k].name, s.n);
  }
}

/* The launcher says where, the ranks are silent. */
static void seed_table_fault(const DnnProgram *program, const char *fault) {
  const char *colon = strchr(fault, ':');
  for (int k = 0; k < N_KINDS && colon; k++) {
    size_t n = strlen(kinds[k].name);
    if ((size_t)(colon - fault) != n || strncmp(fault, kinds[k].name, n))
      continue;
    Seeding s = {program, find_train(program), atoi(colon + 1), 0, NULL, NULL};
    kinds[k].seed(&s);
    if (!getenv("DNN_LAUNCHER") && s.what)
      fprintf(stderr, "fault: %s: %s\n", s.what, s.path ? s.path : "");
    if (s.what) return;
  }
  fprintf(stderr, "no such place: %s\n", fault);
  exit(1);
}

int __real_rank_main(int argc, char **argv, const DnnBundle *bundle);
int __wrap_rank_main(int argc, char **argv, const DnnBundle *bundle);

int __wrap_rank_main(int argc, char **argv, const DnnBundle *bundle) {
  const DnnProgram *program = bundle->programs;
  const char *fault = getenv("DNNC_TABLE_FAULT");
  if (fault && !strcmp(fault, "list")) {
    list_places(program);
    return 0;
  }
  if (fault) seed_table_fault(program, fault);
  return __real_rank_main(argc, argv, bundle);
}
