/*
 * scratch.c -- makes and removes a folder for the temporary files of mpirun and
 * its ranks.
 *
 * Open MPI keeps sockets below /tmp and shared memory below /dev/shm, and a
 * rank that is killed removes neither.  So each launch gives it a folder of its
 * own, named after the launcher, removes that at the end, and first removes
 * those of launchers that no longer live.
 */
#include "runtime/launch/launch.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const bases[] = {"/dev/shm", "/tmp"};

static int remove_one(const char *path, const struct stat *info, int kind,
                      struct FTW *walk) {
  (void)info, (void)kind, (void)walk;
  remove(path);
  return 0;
}

void scratch_remove(const char *folder) {
  if (*folder) nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* Ours, and its launcher is gone. */
static bool is_stale(const char *path, const char *name) {
  struct stat info;
  int pid;
  return sscanf(name, "dnn-run-%d-", &pid) == 1 && kill(pid, 0) != 0 &&
         errno == ESRCH && lstat(path, &info) == 0 && S_ISDIR(info.st_mode) &&
         info.st_uid == getuid();
}

static void remove_stale_folders(const char *base) {
  DIR *list = opendir(base);
  if (!list) return;
  for (struct dirent *entry; (entry = readdir(list));) {
    char path[512];
    int n = snprintf(path, sizeof path, "%s/%s", base, entry->d_name);
    if (n > 0 && n < (int)sizeof path && is_stale(path, entry->d_name))
      scratch_remove(path);
  }
  closedir(list);
}

void scratch_create(char out_folder[64]) {
  for (int i = 0; i < 2; i++) remove_stale_folders(bases[i]);
  for (int i = 0; i < 2; i++) {
    snprintf(out_folder, 64, "%s/dnn-run-%d-XXXXXX", bases[i], (int)getpid());
    if (mkdtemp(out_folder)) return;
  }
  *out_folder = '\0';
}
