// links: runtime support
/*
 * runtime.c -- tests the runtime on a program made by hand (toy.h).
 *
 * This executable is its own bundle: linked under the name of a rank or of the
 * launcher it runs the toy program, so that ranks, signals and losses are
 * tested with real processes.
 */
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/cpu/cpu.h"
#include "runtime/rank/rank.h"
#include "tests/unit/as_rank.h"
#include "tests/unit/toy.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- this executable as a rank ---- */

static void slow_backward(void *const *buffers, const int64_t *numbers) {
  usleep((useconds_t)number_of("TOY_SLEEP_MS", 0) * 1000);
  toy_backward(buffers, numbers);
}

static int toy_main(int argc, char **argv) {
  Toy *toy = malloc(sizeof *toy);
  toy_make(toy, (int)number_of("TOY_WORLD", 1), number_of("TOY_RATE", 10000),
           number_of("TOY_STEPS", 40), getenv("TOY_SAVE"));
  toy->program.settings.save_every = number_of("TOY_EVERY", 0);
  if (getenv("TOY_SLEEP_MS")) toy->kernels[0].function = slow_backward;
  int code = rank_main(argc, argv, &toy->bundle);
  free(toy);
  return code;
}

int main(int argc, char **argv) {
  return run_as_rank_or_tests(argc, argv, toy_main);
}

/* ---- running it ---- */

typedef struct Bundle {
  char folder[64], save[80];
} Bundle;

static void bundle_make(Bundle *bundle, int world) {
  static const char *const names[] = {"run", "rank-0000", "rank-0001",
                                      "rank-0002", "rank-0003"};
  char self[512] = "", path[128], number[16];
  cr_assert(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
  strcpy(bundle->folder, "/tmp/dnn-test-XXXXXX");
  cr_assert(mkdtemp(bundle->folder));
  for (int i = 0; i < ARRAY_LENGTH(names); i++) {
    snprintf(path, sizeof path, "%s/%s", bundle->folder, names[i]);
    cr_assert(symlink(self, path) == 0);
  }
  snprintf(bundle->save, sizeof bundle->save, "%s/toy.ckpt", bundle->folder);
  snprintf(number, sizeof number, "%d", world);
  setenv("TOY_WORLD", number, 1);
  setenv("TOY_SAVE", bundle->save, 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  /* Open MPI does not free all of its own. */
  if (world > 1) setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
}

static int remove_one(const char *path, const struct stat *info, int kind,
                      struct FTW *walk) {
  (void)info, (void)kind, (void)walk;
  remove(path);
  return 0;
}

static void bundle_remove(const Bundle *bundle) {
  nftw(bundle->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Starts `run` with the words of `arguments`; output goes to DIR/out. */
static pid_t bundle_start(const Bundle *bundle, const char *arguments) {
  pid_t pid = fork();
  if (pid) return pid;
  char program[128], out[128], text[256], *words[16] = {program};
  int n = 1;
  snprintf(program, sizeof program, "%s/run", bundle->folder);
  snprintf(out, sizeof out, "%s/out", bundle->folder);
  snprintf(text, sizeof text, "%s", arguments);
  for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
    words[n++] = word;
  /* Else the test framework takes the child for one of its workers. */
  unsetenv("BXFI_MAP");
  int fd = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(fd, 1);
  dup2(fd, 2);
  execv(program, words);
  _exit(99);
}

static int bundle_end(pid_t pid) {
  int status;
  cr_assert(waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int bundle_run(const Bundle *bundle, const char *arguments) {
  return bundle_end(bundle_start(bundle, arguments));
}

static char *bundle_output(const Bundle *bundle) {
  static char text[1 << 16];
  char path[128];
  snprintf(path, sizeof path, "%s/out", bundle->folder);
  FILE *file = fopen(path, "r");
  cr_assert(file);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  return text;
}

/* Waits until the toy has saved something. */
static void wait_for_save(const Bundle *bundle) {
  char path[128];
  struct stat info;
  snprintf(path, sizeof path, "%s/latest", bundle->save);
  for (int i = 0; i < 300; i++, usleep(50000))
    if (stat(path, &info) == 0) return;
  cr_assert_fail("nothing was saved: %s", bundle_output(bundle));
}

/* The process of a rank of this bundle: its folder is in its command line. */
static pid_t find_rank(const Bundle *bundle, int rank) {
  char wanted[128], path[288], line[256];
  snprintf(wanted, sizeof wanted, "%s/rank-%04d", bundle->folder, rank);
  DIR *processes = opendir("/proc");
  cr_assert(processes);
  pid_t found = 0;
  for (struct dirent *entry; !found && (entry = readdir(processes));) {
    if (!isdigit((unsigned char)entry->d_name[0])) continue;
    snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
    FILE *file = fopen(path, "r");
    if (!file) continue;
    line[fread(line, 1, sizeof line - 1, file)] = '\0';
    fclose(file);
    if (strcmp(line, wanted) == 0) found = (pid_t)atoi(entry->d_name);
  }
  closedir(processes);
  return found;
}

static bool has_mpi(void) {
  return system("command -v mpirun >/dev/null 2>&1") == 0;
}

static void sha_of(const Bundle *bundle, char out[65]) {
  const char *at = strstr(bundle_output(bundle), "\"parameters_sha256\":[\"");
  cr_assert(at, "no digest: %s", bundle_output(bundle));
  snprintf(out, 65, "%.64s", at + 22);
}

/* ---- training ---- */

Test(train, learns_and_reports) {
  Bundle bundle;
  bundle_make(&bundle, 1);
  setenv("TOY_STEPS", "400", 1);
  cr_assert_eq(bundle_run(&bundle, "--json --no-save"), 0, "%s",
               bundle_output(&bundle));
  const char *output = bundle_output(&bundle);
  cr_assert(strstr(output, "{\"step\":1,\"loss\":7.3"), "%s", output);
  cr_assert(strstr(output, "\"final\":true,\"steps\":400"));
  const char *loss = strstr(strstr(output, "final"), "\"validation_loss\":");
  cr_assert(loss && strtod(loss + 18, NULL) < 1e-3, "%s", loss);
  bundle_remove(&bundle);
}

Test(train, ranks_hold_equal_parameters) {
  if (!has_mpi()) cr_skip_test("no mpirun");
  Bundle bundle;
  bundle_make(&bundle, 2);
  cr_assert_eq(bundle_run(&bundle, "--json --no-save"), 0, "%s",
               bundle_output(&bundle));
  char first[65];
  sha_of(&bundle, first);
  const char *second = strstr(bundle_output(&bundle), first);
  cr_assert(strstr(second + 64, first), "ranks differ");
  bundle_remove(&bundle);
}

Test(train, stops_at_the_first_value_that_is_not_finite) {
  Bundle bundle;
  bundle_make(&bundle, 1);
  setenv("TOY_RATE", "4000000000000000", 1);
  setenv("TOY_STEPS", "100", 1);
  cr_assert_eq(bundle_run(&bundle, "--quiet --no-save"), 1);
  const char *output = bundle_output(&bundle);
  cr_assert(strstr(output, "is not finite; the first value that is not is in "
                           "'m."),
            "%s", output);
  bundle_remove(&bundle);
}

Test(train, arena_is_touched_up_to_its_last_tensor) {
  Bundle bundle;
  bundle_make(&bundle, 1);
  setenv("DNN_POISON", "1", 1);
  cr_assert_eq(bundle_run(&bundle, "--json --no-save"), 0, "%s",
               bundle_output(&bundle));
  cr_assert(strstr(bundle_output(&bundle), "\"arena_touched_bytes\":[2068]"));
  bundle_remove(&bundle);
}

Test(train, a_trace_has_instructions_and_steps) {
  Bundle bundle;
  char arguments[160], path[128], text[1024];
  bundle_make(&bundle, 1);
  snprintf(path, sizeof path, "%s/trace.json", bundle.folder);
  snprintf(arguments, sizeof arguments, "--no-save --trace %s", path);
  cr_assert_eq(bundle_run(&bundle, arguments), 0);
  FILE *file = fopen(path, "r");
  cr_assert(file);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  cr_assert(strstr(text, "\"traceEvents\":["));
  cr_assert(strstr(text, "\"name\":\"m.product\""));
  cr_assert(strstr(text, "\"flops\":6,\"bytes\":40}"), "%s", text);
  bundle_remove(&bundle);
}

Test(options, mistakes_end_with_1) {
  Bundle bundle;
  bundle_make(&bundle, 1);
  cr_assert_eq(bundle_run(&bundle, "--stpes 3"), 1);
  cr_assert(strstr(bundle_output(&bundle), "'--stpes'"));
  cr_assert_eq(bundle_run(&bundle, "--steps many"), 1);
  cr_assert_eq(bundle_run(&bundle, "--sample"), 1);
  cr_assert(strstr(bundle_output(&bundle), "no 'sample' block"));
  cr_assert_eq(bundle_run(&bundle, "--load /nothing/here"), 1);
  cr_assert_eq(bundle_run(&bundle, "--dry-run"), 0);
  bundle_remove(&bundle);
}

Test(options, a_missing_library_is_a_warning) {
  Bundle bundle;
  bundle_make(&bundle, 1);
  setenv("DNN_ONEDNN_LIB", "/nothing/libdnnl.so", 1);
  cr_assert_eq(bundle_run(&bundle, "--quiet --no-save"), 0);
  const char *output = bundle_output(&bundle);
  cr_assert(strstr(output, "warning: matmuls are slower"), "%s", output);
  bundle_remove(&bundle);
}

Test(options, a_missing_mpi_ends_with_3) {
  if (!has_mpi()) cr_skip_test("no mpirun");
  Bundle bundle;
  bundle_make(&bundle, 2);
  setenv("DNN_MPI_LIB", "/nothing/libmpi.so", 1);
  cr_assert_eq(bundle_run(&bundle, "--quiet --no-save"), 3);
  cr_assert(strstr(bundle_output(&bundle), "apt-get install openmpi-bin"));
  bundle_remove(&bundle);
}

/* ---- checkpoints of a run ---- */

static void check_resume(int world) {
  Bundle bundle;
  char whole[65], resumed[65];
  bundle_make(&bundle, world);
  cr_assert_eq(bundle_run(&bundle, "--json --no-save"), 0, "%s",
               bundle_output(&bundle));
  sha_of(&bundle, whole);
  cr_assert_eq(bundle_run(&bundle, "--quiet --steps 13"), 0);
  cr_assert_eq(bundle_run(&bundle, "--quiet --resume --steps 21"), 0);
  cr_assert_eq(bundle_run(&bundle, "--json --resume"), 0);
  sha_of(&bundle, resumed);
  cr_assert_str_eq(whole, resumed);
  bundle_remove(&bundle);
}

Test(resume, equals_an_uninterrupted_run) {
  check_resume(1);
}

Test(resume, equals_an_uninterrupted_run_on_two_ranks) {
  if (!has_mpi()) cr_skip_test("no mpirun");
  check_resume(2);
}

Test(resume, a_second_run_is_kept_out) {
  Bundle bundle;
  bundle_make(&bundle, 1);
  setenv("TOY_SLEEP_MS", "20", 1);
  setenv("TOY_STEPS", "1000", 1);
  setenv("TOY_EVERY", "5", 1);
  pid_t pid = bundle_start(&bundle, "--quiet");
  wait_for_save(&bundle);
  cr_assert_eq(bundle_run(&bundle, "--quiet"), 1);
  cr_assert(strstr(bundle_output(&bundle), "another run writes to"));
  kill(pid, SIGTERM);
  cr_assert_eq(bundle_end(pid), 143);
  bundle_remove(&bundle);
}

/* ---- faults ---- */

static void slow_bundle(Bundle *bundle, int world) {
  bundle_make(bundle, world);
  setenv("TOY_SLEEP_MS", "10", 1);
  setenv("TOY_STEPS", "100000", 1);
  setenv("TOY_EVERY", "5", 1);
}

static void check_signal(int world, int number, int code) {
  Bundle bundle;
  slow_bundle(&bundle, world);
  pid_t pid = bundle_start(&bundle, "--quiet");
  wait_for_save(&bundle);
  kill(pid, number);
  cr_assert_eq(bundle_end(pid), code);
  const char *output = bundle_output(&bundle);
  cr_assert(strstr(output, "checkpoint in"), "%s", output);
  cr_assert_eq(bundle_run(&bundle, "--quiet --resume --dry-run"), 0);
  cr_assert_not(strstr(bundle_output(&bundle), "skipped a checkpoint"));
  bundle_remove(&bundle);
}

Test(faults, sigterm_saves_first) {
  check_signal(1, SIGTERM, 143);
}

Test(faults, ctrl_c_saves_first_on_two_ranks) {
  if (!has_mpi()) cr_skip_test("no mpirun");
  check_signal(2, SIGINT, 130);
}

static void check_loss(int number) {
  if (!has_mpi()) cr_skip_test("no mpirun");
  Bundle bundle;
  slow_bundle(&bundle, 2);
  pid_t pid = bundle_start(&bundle, "--quiet");
  wait_for_save(&bundle);
  pid_t lost = find_rank(&bundle, 1);
  cr_assert(lost > 0);
  int64_t begin = clock_ns();
  kill(lost, number);
  cr_assert_eq(bundle_end(pid), 3);
  cr_assert(clock_ns() - begin < INT64_C(10000000000));
  const char *output = bundle_output(&bundle);
  cr_assert(strstr(output, "lost rank 1"), "%s", output);
  cr_assert_eq(find_rank(&bundle, 0), 0, "a rank is left behind");
  setenv("TOY_WORLD", "1", 1);
  cr_assert_eq(bundle_run(&bundle, "--quiet --resume --dry-run"), 0);
  bundle_remove(&bundle);
}

Test(faults, a_killed_rank_is_named) {
  check_loss(SIGKILL);
}

Test(faults, a_stopped_rank_is_named) {
  check_loss(SIGSTOP);
}

Test(faults, ranks_end_with_their_launcher) {
  if (!has_mpi()) cr_skip_test("no mpirun");
  Bundle bundle;
  slow_bundle(&bundle, 2);
  pid_t pid = bundle_start(&bundle, "--quiet");
  wait_for_save(&bundle);
  kill(pid, SIGKILL);
  cr_assert_eq(bundle_end(pid), 128 + SIGKILL);
  int64_t begin = clock_ns();
  while (find_rank(&bundle, 0) || find_rank(&bundle, 1)) {
    cr_assert(clock_ns() - begin < INT64_C(10000000000));
    usleep(100000);
  }
  bundle_remove(&bundle);
}

/* The text that recorder_report prints when all paths have `length` bytes. */
static char *report_of(int length) {
  static FlightRecorder recorder;
  static char path[4096], text[16384];
  char name[] = "/tmp/dnn-test-XXXXXX";
  recorder = (FlightRecorder){.rank = 1, .alive_fd = -1, .report_fd = -1};
  memset(path, 'p', (size_t)length);
  path[length] = '\0';
  for (int i = 0; i < 6; i++) recorder_note(&recorder, 7, "train", i, path);
  int fd = mkstemp(name), kept = dup(STDERR_FILENO);
  dup2(fd, STDERR_FILENO);
  recorder_report(&recorder, "cannot continue");
  dup2(kept, STDERR_FILENO);
  ssize_t n = pread(fd, text, sizeof text - 1, 0);
  close(fd);
  close(kept);
  unlink(name);
  cr_assert(n > 10);
  text[n] = '\0';
  return text;
}

Test(recorder, a_micro_batch_is_named_while_it_runs) {
  static const char *const want[] = {
      "rank 1 is at step 7, instruction 70 of train, 'w'",
      "rank 1 is at step 7, instruction 70 of train in micro-batch 0, 'w'",
      "rank 1 is at step 7, instruction 70 of train in micro-batch 1, 'w'"};
  FlightRecorder recorder = {.rank = 1};
  char line[200];
  recorder_note(&recorder, 7, "train", 70, "w");
  for (int i = 0; i < ARRAY_LENGTH(want); i++) {
    FixedText text = fixed_text(line, sizeof line);
    recorder_note_microbatch(&recorder, i - 1);
    recorder_describe(&recorder, &text);
    cr_expect_str_eq(line, want[i]);
  }
}

Test(recorder, a_report_of_long_paths_stays_in_its_buffer) {
  const char *text = report_of(1990);
  cr_assert(strncmp(text, "rank 1: cannot continue\nrank 1 is at step 7", 43) ==
            0);
  cr_assert(strlen(text) > 4 * 1990);
  cr_assert_str_eq(text + strlen(text) - 4, "pp'\n");
  text = report_of(4000);
  cr_assert_eq(strlen(text), 8192);
  cr_assert_str_eq(text + strlen(text) - 4, "...\n");
}

/* ---- transport ---- */

enum { RANKS = 4, VALUES = 5000 };

typedef struct Worker {
  Comm *comm;
  float data[2][VALUES];
  float loss;
  Status status;
  bool is_late; /* waits in the other order, and forgets the second */
} Worker;

static const int64_t two_counts[] = {VALUES, 1};

static const DnnGroup all_ranks = {
    .ranks = RANKS, .size = RANKS, .n_digits = 1, .digits = {{RANKS, 1}}};

static DnnCollective sum_of(int32_t id, int n_parts) {
  return (DnnCollective){.kind = DNN_ALL_REDUCE,
                         .reduce = REDUCE_sum,
                         .dtype = DNN_f32,
                         .id = id,
                         .group = &all_ranks,
                         .n_parts = n_parts,
                         .counts = two_counts};
}

static Status work(Worker *worker) {
  Comm *comm = worker->comm;
  DnnCollective first = sum_of(1, 2), second = sum_of(2, 1);
  CommPart parts[] = {{worker->data[0], worker->data[0], VALUES},
                      {&worker->loss, &worker->loss, 1}};
  CommPart other[] = {{worker->data[1], worker->data[1], VALUES}};
  int64_t all[RANKS], own = comm->rank * 10;
  TRY(comm->start(comm, &first, parts));
  TRY(comm->start(comm, &second, other));
  TRY(comm->wait(comm, 2));
  TRY(comm->wait(comm, 1));
  CommVote vote = {comm->rank == 2 ? 7 : 1, {comm->rank, comm->rank == 1}};
  TRY(comm->vote_start(comm, &vote));
  TRY(comm->vote_wait(comm, &vote));
  TRY(comm->gather(comm, &own, sizeof own, all));
  TRY(comm->broadcast(comm, &own, sizeof own, 3));
  TRY(comm->barrier(comm));
  bool is_right = vote.greatest == 7 && own == 30 && vote.sums[1] == 1 &&
                  vote.sums[0] == RANKS * (RANKS - 1) / 2;
  for (int i = 0; i < RANKS; i++) is_right = is_right && all[i] == 10 * i;
  return is_right ? STATUS_OK : status_make(STATUS_invalid, "wrong helpers");
}

static void *worker_main(void *user) {
  Worker *worker = user;
  worker->status = work(worker);
  worker->comm->close(worker->comm);
  return NULL;
}

static void no_memory(void *user) {
  (void)user;
  _exit(3);
}

static Worker *run_workers(Memory *memory, bool rendezvous, uint64_t seed) {
  Arena *arena = arena_create(memory);
  Worker *workers = ARENA_ARRAY(arena, Worker, RANKS);
  pthread_t threads[RANKS];
  Comm *comms;
  LocalOptions options = {.rendezvous = rendezvous, .seed = seed};
  cr_assert(comm_local_create(arena, RANKS, &options, &comms).code ==
            STATUS_ok);
  for (int r = 0; r < RANKS; r++) {
    workers[r].comm = &comms[r];
    workers[r].loss = (float)r;
    for (int i = 0; i < VALUES; i++) {
      workers[r].data[0][i] = 1.0f / (float)(r * 7 + i + 1);
      workers[r].data[1][i] = (float)(r + 1);
    }
    pthread_create(&threads[r], NULL, worker_main, &workers[r]);
  }
  for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
  return workers;
}

Test(local, sums_in_ascending_order_whatever_the_deliveries) {
  for (uint64_t seed = 0; seed < 8; seed++) {
    Memory *memory = memory_create(no_memory, NULL);
    Worker *workers = run_workers(memory, seed % 2, seed);
    for (int r = 0; r < RANKS; r++) {
      cr_assert(workers[r].status.code == STATUS_ok, "%s",
                workers[r].status.message);
      for (int i = 0; i < VALUES; i++) {
        float sum = 0;
        for (int q = 0; q < RANKS; q++) sum += 1.0f / (float)(q * 7 + i + 1);
        cr_assert_eq(workers[r].data[0][i], sum);
        cr_assert_eq(workers[r].data[1][i], 10.0f);
      }
      cr_assert_eq(workers[r].loss, 6.0f);
    }
    memory_destroy(memory);
  }
}

static void *lonely_main(void *user) {
  Worker *worker = user;
  DnnCollective what = sum_of(worker->is_late ? 2 : 1, 1);
  CommPart part = {worker->data[0], worker->data[0], VALUES};
  worker->status = worker->comm->start(worker->comm, &what, &part);
  if (worker->status.code == STATUS_ok)
    worker->status = worker->comm->wait(worker->comm, what.id);
  worker->comm->close(worker->comm);
  return NULL;
}

Test(local, a_deadlock_is_found) {
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  Worker *workers = ARENA_ARRAY(arena, Worker, RANKS);
  pthread_t threads[RANKS];
  Comm *comms;
  comm_local_create(arena, RANKS, &(LocalOptions){.seed = 1}, &comms);
  for (int r = 0; r < RANKS; r++) {
    workers[r].comm = &comms[r];
    workers[r].is_late = r == 2;
    pthread_create(&threads[r], NULL, lonely_main, &workers[r]);
  }
  for (int r = 0; r < RANKS; r++) {
    pthread_join(threads[r], NULL);
    cr_assert_eq(workers[r].status.code, STATUS_lost);
  }
  memory_destroy(memory);
}

/* ---- products ---- */

typedef struct Shape {
  int64_t m, n, k;
  bool a_transposed, b_transposed, accumulate;
} Shape;

/* `is_inner`: the batch is the innermost dim of each matrix. */
static DnnGemm gemm_of(const Shape *shape, bool is_inner) {
  int64_t by = is_inner ? 2 : 1;
  return (DnnGemm){.dtype = DNN_f32,
                   .c_dtype = DNN_f32,
                   .accumulate = shape->accumulate,
                   .m = shape->m,
                   .n = shape->n,
                   .k = shape->k,
                   .a_i = by * (shape->a_transposed ? 1 : shape->k),
                   .a_k = by * (shape->a_transposed ? shape->m : 1),
                   .b_k = by * (shape->b_transposed ? 1 : shape->n),
                   .b_j = by * (shape->b_transposed ? shape->k : 1),
                   .c_i = by * shape->n,
                   .c_j = by,
                   .batch = {1, 2},
                   .a_batch = {0, is_inner ? 1 : shape->m * shape->k},
                   .b_batch = {0, is_inner ? 1 : shape->k * shape->n},
                   .c_batch = {0, is_inner ? 1 : shape->m * shape->n}};
}

static float *numbers(Arena *arena, int64_t n, uint64_t key) {
  float *data = ARENA_ARRAY(arena, float, n);
  for (int64_t i = 0; i < n; i++)
    data[i] = (float)random_below(key, (uint64_t)i, 9) - 4;
  return data;
}

typedef enum Way { WAY_plain, WAY_vector, WAY_inner } Way;

/* Small integers: every way must give the same bits. */
static void check_product(Library *library, Way way, const Shape *shape) {
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  DnnGemm gemm = gemm_of(shape, way == WAY_inner);
  bool is_vector = way == WAY_vector;
  float *a = numbers(arena, 2 * shape->m * shape->k, 1);
  float *b = numbers(arena, 2 * shape->k * shape->n, 2);
  float *c = numbers(arena, 2 * shape->m * shape->n, 3);
  float *expected =
      arena_copy(arena, c, sizeof(float) * 2 * (size_t)(shape->m * shape->n));
  for (int64_t t = 0; t < 2; t++)
    for (int64_t i = 0; i < shape->m; i++)
      for (int64_t j = 0; j < shape->n; j++) {
        float *to =
            expected + t * gemm.c_batch[1] + i * gemm.c_i + j * gemm.c_j;
        float sum = shape->accumulate ? *to : 0;
        for (int64_t k = 0; k < shape->k; k++)
          sum += a[t * gemm.a_batch[1] + i * gemm.a_i + k * gemm.a_k] *
                 b[t * gemm.b_batch[1] + k * gemm.b_k + j * gemm.b_j];
        *to = sum;
      }
  if (library) {
    int64_t needs;
    gemm.scratch_bytes = cpu_gemm_scratch(&gemm);
    void *buffers[] = {a, b, c,
                       arena_alloc(arena, (size_t)gemm.scratch_bytes + 64)};
    LibraryCall *call = library_gemm(library, &gemm, buffers, NULL, 0, &needs);
    cr_assert(call);
    cr_assert_eq(library_is_reference(call), way == WAY_inner);
    cr_assert(library_run(library, call, NULL).code == STATUS_ok);
  } else {
    Threads threads;
    threads_open(&threads);
    cr_assert(!is_vector || gemv_accepts(&gemm));
    if (is_vector)
      gemv_run(&threads, &gemm, a, b, c,
               arena_alloc(arena, (size_t)gemv_work_bytes(&threads)));
    else
      gemm_run(&threads, &gemm, a, b, c,
               arena_alloc(arena, (size_t)gemm_pack_bytes(&threads)));
    threads_close(&threads);
  }
  for (int64_t i = 0; i < 2 * shape->m * shape->n; i++)
    cr_assert_eq(c[i], expected[i], "element %lld of %lld x %lld x %lld",
                 (long long)i, (long long)shape->m, (long long)shape->n,
                 (long long)shape->k);
  memory_destroy(memory);
}

static const Shape shapes[] = {
    {1, 1, 1, false, false, false},    {13, 33, 7, false, false, true},
    {64, 48, 300, true, false, false}, {100, 31, 257, false, true, true},
    {5, 1030, 20, true, true, false},
};

Test(products, own_equals_the_definition) {
  for (int i = 0; i < ARRAY_LENGTH(shapes); i++) {
    check_product(NULL, WAY_plain, &shapes[i]);
    check_product(NULL, WAY_inner, &shapes[i]);
  }
}

Test(products, of_a_vector_equals_the_definition) {
  static const Shape vectors[] = {
      {1, 1, 1, false, false, false},     {1, 1030, 20, false, false, true},
      {1, 9001, 33, false, false, false}, {1, 70, 601, false, true, false},
      {70, 1, 601, false, false, true},   {1035, 1, 40, true, true, false},
  };
  for (int i = 0; i < ARRAY_LENGTH(vectors); i++)
    check_product(NULL, WAY_vector, &vectors[i]);
}

/* Small integers in bf16; of 300 columns, over several strips and lanes. */
Test(products, of_a_vector_in_bf16_equals_the_definition) {
  enum { N = 300, K = 77 };
  static uint16_t x[K], w[K * N], y[N];
  static float sum[N];
  DnnGemm gemm = {.dtype = DNN_bf16,
                  .c_dtype = DNN_bf16,
                  .m = 1,
                  .n = N,
                  .k = K,
                  .a_i = K,
                  .a_k = 1,
                  .c_i = N,
                  .c_j = 1,
                  .batch = {1, 1}};
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  Threads threads;
  threads_open(&threads);
  void *work = arena_alloc(arena, (size_t)gemv_work_bytes(&threads));
  for (int k = 0; k < K; k++) x[k] = bf16_from_float((float)(k % 5 - 2));
  for (int i = 0; i < K * N; i++) w[i] = bf16_from_float((float)(i % 7 - 3));
  for (int is_transposed = 0; is_transposed < 2; is_transposed++) {
    gemm.b_k = is_transposed ? 1 : N;
    gemm.b_j = is_transposed ? K : 1;
    cr_assert(gemv_accepts(&gemm));
    gemv_run(&threads, &gemm, x, w, y, work);
    for (int j = 0; j < N; j++) {
      sum[j] = 0;
      for (int k = 0; k < K; k++)
        sum[j] +=
            bf16_to_float(x[k]) * bf16_to_float(w[k * gemm.b_k + j * gemm.b_j]);
      cr_assert_eq(y[j], bf16_from_float(sum[j]), "column %d", j);
    }
  }
  threads_close(&threads);
  memory_destroy(memory);
}

static Library *open_library(Memory *memory) {
  Library *library;
#ifdef __SANITIZE_ADDRESS__
  /* Its search for leaks crashes on the threads of oneDNN. */
  setenv("OMP_NUM_THREADS", "1", 1);
#endif
  if (library_open(arena_create(memory), &library).code != STATUS_ok)
    cr_skip_test("no oneDNN");
  return library;
}

Test(products, library_equals_the_definition) {
  Memory *memory = memory_create(no_memory, NULL);
  Library *library = open_library(memory);
  for (int i = 0; i < ARRAY_LENGTH(shapes); i++) {
    check_product(library, WAY_plain, &shapes[i]);
    if (shapes[i].k > 1) check_product(library, WAY_inner, &shapes[i]);
  }
  library_close(library);
  memory_destroy(memory);
}

/* ---- convolutions ---- */

typedef struct ConvCase {
  int64_t groups, in_channels, out_channels, in[2], window[2], stride[2],
      pad[2], dilate[2];
  bool channels_last;
} ConvCase;

static const ConvCase convs[] = {
    {1, 1, 20, {28, 28}, {5, 5}, {1, 1}, {0, 0}, {1, 1}, false},
    {1, 8, 16, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, true},
    {1, 6, 10, {9, 11}, {3, 2}, {2, 1}, {1, 0}, {1, 2}, true},
    {2, 8, 4, {7, 7}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, true},
    {1, 3, 5, {1, 30}, {1, 4}, {1, 2}, {0, 1}, {1, 1}, false},
    {1, 40, 70, {15, 13}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false},
    {1, 2, 1030, {3, 4}, {2, 2}, {2, 1}, {1, 1}, {1, 2}, true},
    {1, 4, 6, {4, 22}, {1, 1}, {1, 2}, {0, 0}, {1, 1}, true},
    {1, 3, 33, {10, 15}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, true},
    {1, 12, 10, {5, 1}, {3, 3}, {1, 2}, {1, 1}, {1, 1}, true},
};

static DnnConv conv_of(const ConvCase *c, DnnDtype dtype, DnnDtype out) {
  DnnConv conv = {.dtype = dtype,
                  .out_dtype = out,
                  .batch = 2,
                  .groups = c->groups,
                  .in_channels = c->in_channels,
                  .out_channels = c->out_channels};
  int64_t per_group = c->in_channels / c->groups;
  for (int i = 0; i < 2; i++) {
    conv.in[i] = c->in[i];
    conv.window[i] = c->window[i];
    conv.stride[i] = c->stride[i];
    conv.pad[i] = c->pad[i];
    conv.dilate[i] = c->dilate[i];
    conv.out[i] =
        (c->in[i] + 2 * c->pad[i] - (c->window[i] - 1) * c->dilate[i] - 1) /
            c->stride[i] +
        1;
  }
  for (int which = 0; which < 2; which++) {
    int64_t *to = which ? conv.y_stride : conv.x_stride;
    const int64_t *size = which ? conv.out : conv.in;
    int64_t channels = which ? c->out_channels : c->in_channels;
    bool last = c->channels_last;
    to[0] = channels * size[0] * size[1];
    to[1] = last ? 1 : size[0] * size[1];
    to[2] = last ? size[1] * channels : size[1];
    to[3] = last ? channels : 1;
  }
  conv.w_stride[4] = 1;
  conv.w_stride[3] = c->window[1];
  conv.w_stride[2] = c->window[0] * c->window[1];
  conv.w_stride[1] = per_group * conv.w_stride[2];
  conv.w_stride[0] = c->out_channels / c->groups * conv.w_stride[1];
  return conv;
}

/* y, dx or dw by the definition. */
static void conv_slowly(const DnnConv *v, float *x, float *w, float *y) {
  int64_t per_in = v->in_channels / v->groups;
  int64_t per_out = v->out_channels / v->groups;
  int64_t n = v->batch * v->out_channels * v->out[0] * v->out[1] * per_in *
              v->window[0] * v->window[1];
  for (int64_t i = 0; i < n; i++) {
    int64_t at = i, k[2], o[2], p[2];
    k[1] = at % v->window[1], at /= v->window[1];
    k[0] = at % v->window[0], at /= v->window[0];
    int64_t c = at % per_in;
    at /= per_in;
    o[1] = at % v->out[1], at /= v->out[1];
    o[0] = at % v->out[0], at /= v->out[0];
    int64_t out = at % v->out_channels, b = at / v->out_channels;
    int64_t g = out / per_out;
    bool is_inside = true;
    for (int d = 0; d < 2; d++) {
      p[d] = o[d] * v->stride[d] + k[d] * v->dilate[d] - v->pad[d];
      is_inside = is_inside && p[d] >= 0 && p[d] < v->in[d];
    }
    if (!is_inside) continue;
    float *xa = x + b * v->x_stride[0] + (g * per_in + c) * v->x_stride[1] +
                p[0] * v->x_stride[2] + p[1] * v->x_stride[3];
    float *wa = w + g * v->w_stride[0] + out % per_out * v->w_stride[1] +
                c * v->w_stride[2] + k[0] * v->w_stride[3] +
                k[1] * v->w_stride[4];
    float *ya = y + b * v->y_stride[0] + out * v->y_stride[1] +
                o[0] * v->y_stride[2] + o[1] * v->y_stride[3];
    if (v->kind == DNN_CONV_FORWARD)
      *ya += *xa * *wa;
    else if (v->kind == DNN_CONV_INPUT_GRAD)
      *xa += *ya * *wa;
    else
      *wa += *xa * *ya;
  }
}

static void *in_dtype(Arena *arena, const float *from, int64_t n,
                      DnnDtype dtype) {
  int64_t item = dtype_bytes(dtype);
  char *to = arena_alloc(arena, (size_t)(n * item) + 64);
  for (int64_t i = 0; i < n; i++)
    number_store(dtype, (unsigned char *)to + i * item, from[i]);
  return to;
}

static float load(const void *from, int64_t i, DnnDtype dtype) {
  const uint16_t *halves = from;
  return dtype == DNN_f32    ? ((const float *)from)[i]
         : dtype == DNN_bf16 ? bf16_to_float(halves[i])
                             : f16_to_float(halves[i]);
}

static float rounded(float value, DnnDtype dtype) {
  return dtype == DNN_f32    ? value
         : dtype == DNN_bf16 ? bf16_to_float(bf16_from_float(value))
                             : f16_to_float(f16_from_float(value));
}

/* Exact, but for the one rounding of the result.  Without a library, our own.
 * False: the library has no convolution of this dtype on this processor. */
static bool check_conv(Library *library, const ConvCase *c, DnnConvKind kind,
                       DnnDtype dtype, DnnDtype out) {
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  DnnConv conv = conv_of(c, dtype, out);
  conv.kind = (uint8_t)kind;
  int64_t n[3] = {conv.batch * conv.x_stride[0], conv.groups * conv.w_stride[0],
                  conv.batch * conv.y_stride[0]};
  /* The operand among x, w and y that is computed. */
  int result = kind == DNN_CONV_FORWARD      ? 2
               : kind == DNN_CONV_INPUT_GRAD ? 0
                                             : 1;
  void *data[3];
  float *expected[3];
  for (int i = 0; i < 3; i++) {
    float *given = numbers(arena, n[i], (uint64_t)i);
    data[i] = in_dtype(arena, given, n[i], i == result ? out : dtype);
    expected[i] = i == result ? ARENA_ARRAY(arena, float, n[i]) : given;
  }
  conv_slowly(&conv, expected[0], expected[1], expected[2]);
  conv.scratch_bytes = cpu_conv_scratch(&conv);
  enum { BEHIND = 8192, UNTOUCHED = 0x5a };
  char *scratch = arena_alloc(arena, (size_t)conv.scratch_bytes + 64 + BEHIND);
  scratch += 63 - ((uintptr_t)scratch + 63) % 64;
  char *behind = scratch + conv.scratch_bytes;
  memset(scratch, UNTOUCHED, (size_t)conv.scratch_bytes + BEHIND);
  static const int order[][3] = {{0, 1, 2}, {2, 1, 0}, {0, 2, 1}};
  void *buffers[] = {data[order[kind][0]], data[order[kind][1]],
                     data[order[kind][2]], scratch};
  if (library) {
    int64_t needs;
    LibraryCall *call = library_conv(library, &conv, buffers, NULL, 0, &needs);
    cr_assert(call || dtype != DNN_f32, "kind %d refused", kind);
    if (!call) {
      memory_destroy(memory);
      return false;
    }
    cr_assert(library_run(library, call, NULL).code == STATUS_ok);
  } else {
    Threads threads;
    threads_open(&threads);
    conv_run(&threads, &conv, buffers[0], buffers[1], buffers[2],
             arena_alloc(arena, (size_t)gemm_pack_bytes(&threads)));
    threads_close(&threads);
  }
  for (int64_t i = 0; i < n[result]; i++)
    cr_assert_eq(load(data[result], i, out), rounded(expected[result][i], out),
                 "kind %d, %lld channels, element %lld: %g, not %g", kind,
                 (long long)c->in_channels, (long long)i,
                 (double)load(data[result], i, out),
                 (double)expected[result][i]);
  for (int i = 0; i < BEHIND; i++)
    cr_assert_eq(
        behind[i], UNTOUCHED,
        "kind %d, %lld channels: byte %d behind the scratch is written", kind,
        (long long)c->in_channels, i);
  memory_destroy(memory);
  return true;
}

Test(products, library_convolutions_equal_the_definition) {
  Memory *memory = memory_create(no_memory, NULL);
  Library *library = open_library(memory);
  for (int i = 0; i < ARRAY_LENGTH(convs); i++)
    for (int kind = 0; kind < 3; kind++)
      check_conv(library, &convs[i], (DnnConvKind)kind, DNN_f32, DNN_f32);
  library_close(library);
  memory_destroy(memory);
}

Test(products, own_convolutions_equal_the_definition) {
  static const DnnDtype dtypes[] = {DNN_f32, DNN_bf16, DNN_f16};
  for (int i = 0; i < ARRAY_LENGTH(convs); i++)
    for (int kind = 0; kind < 3; kind++)
      for (int d = 0; d < ARRAY_LENGTH(dtypes); d++)
        for (int wide = 0; wide < 2; wide++)
          check_conv(NULL, &convs[i], (DnnConvKind)kind, dtypes[d],
                     wide ? DNN_f32 : dtypes[d]);
}

/* Results in 16 bits and in f32; the runtime's own take what the library
 * refuses. */
Test(products, library_convolutions_in_16_bits) {
  static const DnnDtype dtypes[] = {DNN_bf16, DNN_f16};
  Memory *memory = memory_create(no_memory, NULL);
  Library *library = open_library(memory);
  for (int d = 0; d < ARRAY_LENGTH(dtypes); d++) {
    int n_done = 0;
    for (int i = 0; i < ARRAY_LENGTH(convs); i++)
      for (int kind = 0; kind < 3; kind++)
        for (int wide = 0; wide < 2; wide++)
          n_done += check_conv(library, &convs[i], (DnnConvKind)kind, dtypes[d],
                               wide ? DNN_f32 : dtypes[d]);
    fprintf(stderr, "%s: %d of %d convolutions by the library\n",
            dtype_label(dtypes[d]), n_done, ARRAY_LENGTH(convs) * 6);
  }
  library_close(library);
  memory_destroy(memory);
}
