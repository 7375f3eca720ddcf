/*
 * exchange_faults.c -- puts a fault into the tables of servers that exchange
 * the terms of a norm: a program that is linked with --wrap=servers_open finds
 * it before it runs.  DNNC_FAULT says which:
 *
 *     lost       the last server has no exchange
 *     counts     its exchange has another size
 *     group      all exchange with the ranks in front of them
 *     staleness  servers do not wait for all workers
 */
#include "runtime/rank/servers.h"

#include <stdlib.h>
#include <string.h>

Status __real_servers_open(Run *run);
Status __wrap_servers_open(Run *run);

static DnnBundle bundle;
static DnnProgram programs[16];
static DnnEntryPoint entries[16][8];
static DnnInstr *instrs;
static DnnCollective changed;
static DnnGroup group;
static int64_t counts[64];

static bool is_fault(const char *name) {
  const char *fault = getenv("DNNC_FAULT");
  return fault && strcmp(fault, name) == 0;
}

static void *copy(const void *from, size_t n) {
  return memcpy(malloc(n), from, n);
}

/* The collective is a message of the last server, or of any. */
static void change(DnnInstr *instr, bool is_last) {
  if (instr->op != DNN_OP_COLLECTIVE) return;
  changed = *(const DnnCollective *)instr->detail;
  if (is_fault("lost") && is_last) instr->op = DNN_OP_WAIT;
  if (is_fault("counts") && is_last) {
    memcpy(counts, changed.counts, sizeof *counts * (size_t)changed.n_parts);
    counts[0]++;
    changed.counts = counts;
    instr->detail = &changed;
  }
  if (is_fault("group")) {
    group = *changed.group;
    group.first--;
    changed.group = &group;
    instr->detail = &changed;
  }
}

static void change_program(DnnProgram *program, DnnEntryPoint *own,
                           bool is_last) {
  memcpy(own, program->entry_points,
         sizeof *own * (size_t)program->n_entry_points);
  program->entry_points = own;
  for (int e = 0; e < program->n_entry_points; e++) {
    size_t n = (size_t)own[e].n_instrs;
    if (n == 0) continue;
    own[e].instrs = instrs = copy(own[e].instrs, n * sizeof *instrs);
    for (size_t i = 0; i < n; i++) change(&instrs[i], is_last);
  }
}

Status __wrap_servers_open(Run *run) {
  int n = run->bundle->n_programs;
  const DnnBundle *bundle_before = run->bundle;
  const DnnProgram *program_before = run->program;
  const DnnProgram *own = bundle_program(run->bundle, run->comm->rank);
  bundle = *run->bundle;
  memcpy(programs, bundle.programs, sizeof *programs * (size_t)n);
  bundle.programs = programs;
  for (int i = 0; i < n; i++) {
    if (is_fault("staleness")) programs[i].staleness = 1;
    if (i > 0) change_program(&programs[i], entries[i], i + 1 == n);
  }
  run->bundle = &bundle;
  run->program = &programs[own - bundle_before->programs];
  Status status = __real_servers_open(run);
  run->bundle = bundle_before;
  run->program = program_before;
  return status;
}
