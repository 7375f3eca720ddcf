/*
 * machine.h -- declares what this process may use: cores and memory of this
 * machine, and the machines of a job.
 */
#ifndef RUNTIME_MACHINE_H
#define RUNTIME_MACHINE_H

#include "support/support.h"

/* A number and where it is from. */
typedef struct Fact {
  int64_t value; /* 0 means unknown */
  const char *source;
} Fact;

typedef struct Machine {
  Fact cores, memory_bytes;
  Fact nodes, ranks_per_node; /* facts of a job */
} Machine;

/* Reads files below `root` ("" but in tests) and the environment.  Invalid:
 * the variables of a job contradict each other, or its nodes differ. */
Status machine_read(Arena *arena, const char *root, Machine *out);
/* Returns how many hosts a list of Slurm names, as in
 * "gpu[01-16,20],login".  Returns 0 if it is no such list. */
int64_t machine_count_hosts(const char *list);

#endif
