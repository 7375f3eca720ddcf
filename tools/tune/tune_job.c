/*
 * tune_job.c -- measures links between the ranks of a job that mpirun or srun
 * has started, each of which runs `dnnc tune`.
 *
 * A process of a job can join MPI once, and a rank of a bundle is such a
 * process.  So the first rank of each machine builds a bundle for all ranks,
 * the others of the machine wait for it, and each runs its rank of the bundle,
 * which measures.  After that rank 0 goes on alone with what one machine does.
 */
#include "tools/tune/tune.h"

#include "runtime/comm/comm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { POLL_NS = 50000000 };

static const char prefix[] = "dnnc-tune-";

static const char *temporary_folder(void) {
  const char *base = getenv("TMPDIR");
  return base && base[0] == '/' ? base : "/tmp";
}

/* The ranks of a machine have one parent. */
static const char *job_folder(const Tuning *tuning) {
  return arena_printf(tuning->arena, "%s/%s%lld-%lld", temporary_folder(),
                      prefix, (long long)geteuid(), (long long)getppid());
}

static bool is_own_folder(const char *path) {
  struct stat info;
  return lstat(path, &info) == 0 && S_ISDIR(info.st_mode) &&
         info.st_uid == geteuid() && !(info.st_mode & 022);
}

/* Where the bundle is, once it is there. */
static bool wait_for_leader(const Tuning *tuning, const char *folder) {
  const char *ready = arena_printf(tuning->arena, "%s/ready", folder);
  while (!tool_is_stopped() && child_now_ms() < tuning->until_ms) {
    if (is_own_folder(folder) && file_exists(ready)) return true;
    nanosleep(&(struct timespec){0, POLL_NS}, NULL);
  }
  return false;
}

static bool build_for_job(Tuning *tuning, const char *folder, int world,
                          const char **out_why) {
  tool_clear_abandoned(tuning->tool, temporary_folder(), prefix);
  codegen_remove_tree(tuning->arena, folder);
  *out_why = "cannot make a folder for temporary files";
  if (mkdir(folder, 0700) != 0) return false;
  folder_hold(folder, true); /* until this process and its children end */
  Probes probes = tune_probes(tuning, world);
  for (int i = 0; i < probes.n; i++)
    if (tune_build(tuning, &probes.data[i],
                   arena_printf(tuning->arena, "%s/bundle", folder), out_why))
      return file_replace(arena_printf(tuning->arena, "%s/ready", folder), "",
                          0)
                 .code == STATUS_ok;
  return false;
}

static bool run_rank(const Tuning *tuning, const char *folder, int rank,
                     const char **out_why) {
  Arena *arena = tuning->arena;
  const char *const words[] = {
      "--links", arena_printf(arena, "%s.links.csv", tuning->name), "--quiet",
      "--no-save"};
  int code = child_run(
      arena, arena_printf(arena, "%s/bundle/rank-%04d", folder, rank),
      &(Child){.words = words,
               .n_words = ARRAY_LENGTH(words),
               .err = arena_printf(arena, "%s/errors-%d", folder, rank),
               .limit_ms = tune_left_ms(tuning),
               .is_stopped = tool_is_stopped});
  *out_why =
      tune_why(tuning, code, arena_printf(arena, "%s/errors-%d", folder, rank));
  return code == EXIT_done;
}

bool tune_measure_job(Tuning *tuning, const char **out_why) {
  RankPlace place = comm_place();
  const char *folder = job_folder(tuning);
  bool is_leader = place.local_rank == 0;
  *out_why = "the bundle of the job could not be built";
  bool is_done = is_leader ? build_for_job(tuning, folder, place.world, out_why)
                           : wait_for_leader(tuning, folder);
  if (is_done) is_done = run_rank(tuning, folder, place.rank, out_why);
  if (is_leader) codegen_remove_tree(tuning->arena, folder);
  return is_done;
}

bool tune_spans_machines(void) {
  RankPlace place = comm_place();
  return place.world > place.local_world;
}

bool tune_is_job(int *out_rank) {
  RankPlace place = comm_place();
  *out_rank = place.rank;
  return place.world > 1;
}
