/*
 * machine.c -- finds out what this process may use.
 *
 * Cores are the fewest of the CPU affinity and the quota of the process's
 * control groups, memory is the least of the machine's and of their limits.
 * Both versions of control groups are read; a limit of an outer group holds for
 * the inner ones.  A job's nodes are those that Slurm or Open MPI name in the
 * environment.
 */
#include "runtime/launch/machine.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FILE_BYTES = 1 << 20 };

/* NULL: there is no such file.  Those of /proc have no size, so `file_read`
 * cannot be used. */
static const char *machine_file(Arena *arena, const char *path) {
  FILE *file = fopen(path, "re");
  if (!file) return NULL;
  char *text = arena_alloc(arena, MOST_FILE_BYTES);
  size_t n = fread(text, 1, MOST_FILE_BYTES - 1, file);
  fclose(file);
  text[n] = 0;
  return text;
}

static void take_least(Fact *fact, int64_t value, const char *source) {
  if (value > 0 && (fact->value == 0 || value < fact->value))
    *fact = (Fact){value, source};
}

/* A number that ends at a blank or a line's end; 0: it is none ("max"). */
static int64_t read_count(const char *text, const char **out_end) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (out_end) *out_end = end;
  return errno || end == text || value < 0 ? 0 : value;
}

/* ---- control groups ---- */

/* "QUOTA PERIOD" of version 2; -1 is no quota in version 1. */
static void take_quota(Fact *cores, int64_t quota, int64_t period) {
  if (quota > 0 && period > 0)
    take_least(cores, quota < period ? 1 : quota / period,
               "quota of the control group");
}

static void read_limits(Arena *arena, const char *folder, Machine *out) {
  const char *text, *rest;
  text = machine_file(arena, arena_printf(arena, "%s/cpu.max", folder));
  if (text) {
    int64_t quota = read_count(text, &rest);
    take_quota(&out->cores, quota, read_count(rest, NULL));
  }
  text =
      machine_file(arena, arena_printf(arena, "%s/cpu.cfs_quota_us", folder));
  const char *period =
      machine_file(arena, arena_printf(arena, "%s/cpu.cfs_period_us", folder));
  if (text && period)
    take_quota(&out->cores, read_count(text, NULL), read_count(period, NULL));
  static const char *const names[] = {"memory.max", "memory.limit_in_bytes"};
  for (int i = 0; i < ARRAY_LENGTH(names); i++) {
    text = machine_file(arena, arena_printf(arena, "%s/%s", folder, names[i]));
    if (text)
      take_least(&out->memory_bytes, read_count(text, NULL),
                 "limit of the control group");
  }
}

/* The limits of a group and of all around it, below the folder where its
 * controller is mounted. */
static void read_group_limits(Arena *arena, const char *mount,
                              const char *group, Machine *out) {
  char *path = arena_strdup(arena, group);
  for (;;) {
    read_limits(arena, arena_printf(arena, "%s%s", mount, path), out);
    char *slash = strrchr(path, '/');
    if (!slash) return;
    *slash = 0;
  }
}

/* Lines "0::/user.slice" of version 2 and "4:memory:/user.slice" of version 1.
 */
static void read_control_groups(Arena *arena, const char *root, Machine *out) {
  const char *mount = arena_printf(arena, "%s/sys/fs/cgroup", root);
  const char *text =
      machine_file(arena, arena_printf(arena, "%s/proc/self/cgroup", root));
  for (const char *line = text; line && *line;) {
    size_t n = strcspn(line, "\n");
    const char *copy = arena_printf(arena, "%.*s", (int)n, line);
    const char *controller = strchr(copy, ':');
    const char *group = controller ? strchr(controller + 1, ':') : NULL;
    if (group && group == controller + 1) {
      read_group_limits(arena, mount, group + 1, out);
    } else if (group) {
      int length = (int)(group - controller) - 1;
      read_group_limits(
          arena, arena_printf(arena, "%s/%.*s", mount, length, controller + 1),
          group + 1, out);
    }
    line += n + (line[n] == '\n');
  }
}

/* ---- this machine ---- */

static void read_cores(Machine *out) {
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  take_least(&out->cores, n > 0 ? n : 1, "cores that this process may use");
}

static void read_memory(Arena *arena, const char *root, Machine *out) {
  static const char key[] = "MemTotal:";
  const char *text =
      machine_file(arena, arena_printf(arena, "%s/proc/meminfo", root));
  const char *line = text ? strstr(text, key) : NULL;
  if (!line) return;
  int64_t kib = read_count(line + sizeof key - 1, NULL);
  take_least(&out->memory_bytes, kib < INT64_MAX / 1024 ? kib * 1024 : 0,
             "memory of the machine");
}

/* ---- the machines of a job ---- */

/* How many numbers "01-16,20" names; *text moves behind the bracket that ends
 * them.  0: wrong. */
static int64_t count_numbers(const char **text) {
  int64_t n = 0;
  for (;;) {
    const char *end;
    if (strspn(*text, "0123456789") == 0) return 0;
    int64_t first = read_count(*text, &end), last = first;
    if (*end == '-') {
      if (strspn(end + 1, "0123456789") == 0) return 0;
      last = read_count(end + 1, &end);
    }
    if (last < first || last - first >= INT32_MAX || n > INT32_MAX) return 0;
    n += last - first + 1;
    *text = end + 1;
    if (*end == ']') return n;
    if (*end != ',') return 0;
  }
}

int64_t machine_count_hosts(const char *list) {
  int64_t n = 0, of_name = 1;
  bool has_name = false;
  for (const char *at = list;;) {
    if (*at == ',' || !*at) {
      if (!has_name) return 0;
      n += of_name;
      if (!*at++) return n;
      of_name = 1;
      has_name = false;
    } else if (*at == '[') {
      at++;
      int64_t numbers = count_numbers(&at);
      if (numbers == 0 || of_name > INT32_MAX / numbers) return 0;
      of_name *= numbers;
      has_name = true;
    } else {
      has_name = true;
      at++;
    }
    if (n > INT32_MAX) return 0;
  }
}

static bool read_variable(const char *name, Fact *out) {
  const char *text = getenv(name), *end;
  if (!text) return false;
  int64_t value = read_count(text, &end);
  if (value < 1 || value > INT32_MAX || *end) return false;
  *out = (Fact){value, name};
  return true;
}

/* "4(x2),3": 4 tasks on each of two nodes, 3 on another.  Invalid: they
 * differ. */
static Status read_tasks(Fact *out) {
  static const char name[] = "SLURM_TASKS_PER_NODE";
  const char *text = getenv(name), *end;
  if (!text) return STATUS_OK;
  int64_t value = read_count(text, &end);
  if (strchr(end, ','))
    return status_make(STATUS_invalid,
                       "not supported yet: %s=%s has nodes with different "
                       "numbers of ranks",
                       name, text);
  bool is_repeated = end[0] == '(' && end[1] == 'x';
  if (value < 1 || value > INT32_MAX || (*end && !is_repeated))
    return status_make(STATUS_invalid, "%s=%s is no number of tasks", name,
                       text);
  *out = (Fact){value, name};
  return STATUS_OK;
}

static Status read_slurm(Machine *out) {
  static const char list_name[] = "SLURM_JOB_NODELIST";
  const char *list = getenv(list_name);
  if (!read_variable("SLURM_JOB_NUM_NODES", &out->nodes) && list) {
    int64_t n = machine_count_hosts(list);
    if (n == 0)
      return status_make(STATUS_invalid, "%s=%s is no list of nodes", list_name,
                         list);
    out->nodes = (Fact){n, list_name};
  }
  if (out->nodes.value == 0 ||
      read_variable("SLURM_NTASKS_PER_NODE", &out->ranks_per_node))
    return STATUS_OK;
  return read_tasks(&out->ranks_per_node);
}

static Status read_open_mpi(Machine *out) {
  Fact world = {0}, local = {0};
  if (!read_variable("OMPI_COMM_WORLD_SIZE", &world) ||
      !read_variable("OMPI_COMM_WORLD_LOCAL_SIZE", &local))
    return STATUS_OK;
  if (world.value % local.value)
    return status_make(STATUS_invalid,
                       "not supported yet: %s=%lld is no multiple of %s=%lld, "
                       "so nodes have different numbers of ranks",
                       world.source, (long long)world.value, local.source,
                       (long long)local.value);
  out->nodes = (Fact){world.value / local.value, world.source};
  out->ranks_per_node = local;
  return STATUS_OK;
}

Status machine_read(Arena *arena, const char *root, Machine *out) {
  *out = (Machine){0};
  read_cores(out);
  read_memory(arena, root, out);
  read_control_groups(arena, root, out);
  TRY(read_open_mpi(out));
  return out->nodes.value ? STATUS_OK : read_slurm(out);
}
