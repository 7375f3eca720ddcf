// links: runtime support
/*
 * bundles.c -- tests a bundle of two programs that was made by hand: ranks that
 * exchange messages both ways, as threads and over MPI, checkpoints and digests
 * of tensors that only one of them holds, messages that disagree, and a rank
 * that is killed.  The executable is also the bundle: under the name
 * `rank-0000` or `run` it calls rank_main.
 */
#include "runtime/rank/rank.h"
#include "tests/unit/as_rank.h"
#include "tests/unit/two_stages.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int two_main(int argc, char **argv) {
  TwoStages *two = malloc(sizeof *two);
  two_make(two, (int)number_of("TWO_WORLD", 2), 20, getenv("TWO_SAVE"),
           (TwoFault)number_of("TWO_FAULT", TWO_FINE));
  return rank_main(argc, argv, &two->bundle);
}

int main(int argc, char **argv) {
  return run_as_rank_or_tests(argc, argv, two_main);
}

/* ---- ranks as threads ---- */

static void no_memory(void *user) {
  (void)user;
  _exit(3);
}

typedef struct RankThread {
  TwoStages *two;
  Comm *comm;
  int steps;
  Status status;
  char text[300]; /* of the message */
  float loss, w[TWO_INPUTS], b;
} RankThread;

static Status run_steps(RankThread *rank, Arena *arena) {
  const DnnProgram *program =
      bundle_program(&rank->two->bundle, rank->comm->rank);
  Device *device;
  TRY(device_create("cpu", arena, &device));
  device->rank = rank->comm->rank;
  TRY(device->open(device, program, 0));
  float x[TWO_BATCH * TWO_INPUTS];
  for (int i = 0; i < ARRAY_LENGTH(x); i++) x[i] = (float)(i % 7) * 0.25f;
  TRY(device->write(device, IN_x, x, sizeof x));
  FlightRecorder recorder;
  recorder_open(&recorder, rank->comm->rank, 0);
  Exec *exec = exec_create(arena, program, device, rank->comm, &recorder);
  for (int t = 1; t <= rank->steps; t++)
    TRY(exec_run(exec, &program->entry_points[0], t));
  TRY(device->read(device, IN_loss, &rank->loss, 4));
  TRY(device->read(device, IN_w, rank->w, sizeof rank->w));
  TRY(device->read(device, IN_b, &rank->b, 4));
  device->close(device);
  return STATUS_OK;
}

static void *rank_thread(void *user) {
  RankThread *rank = user;
  Memory *memory = memory_create(no_memory, NULL);
  rank->status = run_steps(rank, arena_create(memory));
  rank->comm->close(rank->comm);
  if (rank->status.message) {
    snprintf(rank->text, sizeof rank->text, "%s", rank->status.message);
    rank->status.message = rank->text;
  }
  memory_destroy(memory);
  return NULL;
}

static void run_threads(RankThread *ranks, int world, TwoFault fault,
                        const LocalOptions *options) {
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  TwoStages *two = ARENA_NEW(arena, TwoStages);
  pthread_t threads[2];
  Comm *comms;
  two_make(two, world, 20, NULL, fault);
  cr_assert_eq(comm_local_create(arena, world, options, &comms).code,
               STATUS_ok);
  for (int i = 0; i < world; i++) {
    ranks[i] = (RankThread){.two = two, .comm = &comms[i], .steps = 20};
    pthread_create(&threads[i], NULL, rank_thread, &ranks[i]);
  }
  for (int i = 0; i < world; i++) pthread_join(threads[i], NULL);
  memory_destroy(memory);
}

/* Buffered or not, early or late: the bits are those of one rank. */
Test(bundles, threads_exchange_messages_both_ways) {
  RankThread one[1], two[2];
  run_threads(one, 1, TWO_FINE, &(LocalOptions){0});
  cr_assert_eq(one[0].status.code, STATUS_ok, "%s", one[0].status.message);
  for (int i = 0; i < 20; i++) {
    LocalOptions options = {.seed = (uint64_t)i / 2,
                            .rendezvous = i % 2,
                            .latency_ns = 1000 * i,
                            .jitter_ns = 500 * i};
    run_threads(two, 2, TWO_FINE, &options);
    for (int r = 0; r < 2; r++)
      cr_assert_eq(two[r].status.code, STATUS_ok, "%s", two[r].status.message);
    cr_assert_eq(two[0].loss, one[0].loss);
    cr_assert_eq(two[1].loss, one[0].loss);
    cr_assert_arr_eq(two[0].w, one[0].w, sizeof one[0].w);
    cr_assert_eq(two[1].b, one[0].b);
  }
  cr_assert_gt(one[0].loss, 0);
  cr_assert_neq(one[0].w[0], 0);
}

Test(bundles, threads_find_messages_that_disagree) {
  static const char *const words[][2] = {
      {"receives edge 3, 8 of f32", "sends edge 5, 8 of f32"},
      {"receives edge 3, 8 of f32", "sends edge 3, 7 of f32"}};
  for (int fault = TWO_OTHER_EDGE; fault <= TWO_OTHER_COUNT; fault++) {
    RankThread two[2];
    run_threads(two, 2, (TwoFault)fault, &(LocalOptions){0});
    int found = 0;
    for (int r = 0; r < 2; r++) {
      const char *text = two[r].status.message;
      cr_assert_neq(two[r].status.code, STATUS_ok);
      found += strstr(text, words[fault - 1][0]) &&
               strstr(text, words[fault - 1][1]);
    }
    cr_assert_eq(found, 1, "%s; %s", two[0].status.message,
                 two[1].status.message);
  }
}

Test(bundles, ranks_between_two_are_of_no_pair) {
  DnnGroup two = group_of_two(5, 2);
  DnnPairs pairs = {.first = 1, .ranks = 2, .peer = 3};
  unsigned char is_peer[8] = {0};
  for (int rank = 0; rank < 8; rank++)
    cr_expect_eq(group_has(&two, rank), rank == 2 || rank == 5, "%d", rank);
  comm_add_pairs(&pairs, 4, is_peer);
  comm_add_pairs(&pairs, 2, is_peer);
  comm_add_pairs(&pairs, 3, is_peer);
  for (int rank = 0; rank < 8; rank++)
    cr_expect_eq(is_peer[rank], rank == 1 || rank == 5, "%d", rank);
}

/* ---- processes ---- */

typedef struct Site {
  char folder[64], output[1 << 16];
} Site;

static void site_make(Site *site) {
  static const char *const names[] = {"run", "rank-0000", "rank-0001"};
  char self[512] = "", path[128];
  cr_assert(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
  strcpy(site->folder, "/tmp/dnn-test-XXXXXX");
  cr_assert(mkdtemp(site->folder));
  for (int i = 0; i < ARRAY_LENGTH(names); i++) {
    snprintf(path, sizeof path, "%s/%s", site->folder, names[i]);
    cr_assert(symlink(self, path) == 0);
  }
  snprintf(path, sizeof path, "%s/two.ckpt", site->folder);
  setenv("TWO_SAVE", path, 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* Open MPI frees not all */
}

static int remove_one(const char *path, const struct stat *info, int kind,
                      struct FTW *walk) {
  (void)info, (void)kind, (void)walk;
  remove(path);
  return 0;
}

static void site_remove(const Site *site) {
  nftw(site->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void read_output(Site *site) {
  char path[128];
  snprintf(path, sizeof path, "%s/out", site->folder);
  int fd = open(path, O_RDONLY);
  ssize_t n = read(fd, site->output, sizeof site->output - 1);
  site->output[n > 0 ? n : 0] = '\0';
  close(fd);
}

/* Returns the exit code of `run` with the words of `arguments`. */
static int site_run(Site *site, int world, const char *arguments) {
  char program[128], out[128], text[256], number[16], *words[16] = {program};
  int n = 1, status;
  snprintf(number, sizeof number, "%d", world);
  setenv("TWO_WORLD", number, 1);
  snprintf(program, sizeof program, "%s/run", site->folder);
  snprintf(out, sizeof out, "%s/out", site->folder);
  snprintf(text, sizeof text, "%s", arguments);
  for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
    words[n++] = word;
  pid_t pid = fork();
  if (pid == 0) {
    /* Else the test framework takes the child for one of its workers. */
    unsetenv("BXFI_MAP");
    int fd = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    execv(program, words);
    _exit(99);
  }
  cr_assert_eq(waitpid(pid, &status, 0), pid);
  read_output(site);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool has_mpi(void) {
  return system("mpirun --version >/dev/null 2>&1") == 0;
}

static void must_run(Site *site, int world, const char *arguments) {
  cr_assert_eq(site_run(site, world, arguments), 0, "%s", site->output);
}

static void copy_digest(const Site *site, char out[65]) {
  static const char key[] = "\"parameters_sha256\":[\"";
  const char *at = strstr(site->output, key);
  cr_assert(at, "%s", site->output);
  memcpy(out, at + strlen(key), 64);
  out[64] = '\0';
}

/* Ten steps by two programs and ten by one, and the other way around. */
Test(bundles, checkpoints_go_from_two_programs_to_one_and_back) {
  char digests[4][65];
  if (!has_mpi()) return;
  for (int i = 0; i < 4; i++) {
    Site site;
    site_make(&site);
    must_run(&site, i & 1 ? 2 : 1, "--quiet --steps 10");
    must_run(&site, i & 2 ? 2 : 1, "--json --resume");
    copy_digest(&site, digests[i]);
    site_remove(&site);
  }
  for (int i = 1; i < 4; i++) cr_assert_str_eq(digests[i], digests[0]);
}

Test(bundles, messages_that_disagree_name_both) {
  static const char *const words[] = {
      "messages disagree: this rank receives 'first.dh' at step 1 in "
      "micro-batch 0 (edge 3, 32 bytes of f32), rank 1 sends 'second.dh' at "
      "step 1 in micro-batch 0 (edge 5, 32 bytes of f32)",
      "messages disagree: this rank receives 'first.dh' at step 1 in "
      "micro-batch 0 (edge 3, 32 bytes of f32), rank 1 sends 'second.dh' at "
      "step 1 in micro-batch 0 (edge 3, 28 bytes of f32)"};
  if (!has_mpi()) return;
  for (int fault = TWO_OTHER_EDGE; fault <= TWO_OTHER_COUNT; fault++) {
    Site site;
    char number[16];
    site_make(&site);
    snprintf(number, sizeof number, "%d", fault);
    setenv("TWO_FAULT", number, 1);
    cr_assert_eq(site_run(&site, 2, "--quiet"), 3, "%s", site.output);
    cr_assert(strstr(site.output, words[fault - 1]), "%s", site.output);
    site_remove(&site);
    unsetenv("TWO_FAULT");
  }
}

/* Rank 1 ends at its fourth step; the run ends soon, and says so. */
Test(bundles, a_killed_rank_ends_the_run) {
  Site site;
  char number[16];
  if (!has_mpi()) return;
  site_make(&site);
  snprintf(number, sizeof number, "%d", TWO_DIES);
  setenv("TWO_FAULT", number, 1);
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  cr_assert_eq(site_run(&site, 2, "--quiet"), 3, "%s", site.output);
  clock_gettime(CLOCK_MONOTONIC, &end);
  cr_assert_lt(end.tv_sec - begin.tv_sec, 10);
  cr_assert(strstr(site.output, "lost rank 1"), "%s", site.output);
  cr_assert(strstr(site.output, "rank 0 (stage 0) waits at step 4"), "%s",
            site.output);
  cr_assert(strstr(site.output, "recv edge 'first.dh'"), "%s", site.output);
  site_remove(&site);
}
