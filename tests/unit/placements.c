// links: runtime support
/*
 * placements.c -- tests that tensors are saved under one placement and loaded
 * under another: ranks are threads, and every placement of a list meets every
 * other, with shards that are uneven, empty or replicated, and tensors that
 * only some ranks hold, each by a program of its own.
 */
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/params/params.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 8, N_TENSORS = 3, ARENA_BYTES = 4096, SPARE = 64 };

static void no_memory(void *user) {
  (void)user;
  _exit(3);
}

/* Groups by the digits of each dim, the most significant digit first. */
typedef struct Placement {
  const char *name;
  int world;
  DnnGroup groups[N_TENSORS][3]; /* size 0: the dim is replicated */
  struct {
    int first, ranks; /* 0 ranks: all */
  } held[N_TENSORS];
} Placement;

#define DIGIT(ranks_, size_, stride_) DIGIT_FROM(0, ranks_, size_, stride_)
#define DIGIT_FROM(first_, ranks_, size_, stride_)                             \
  {                                                                            \
    .first = first_, .ranks = ranks_, .size = size_, .n_digits = 1,            \
    .digits = {                                                                \
      {size_, stride_}                                                         \
    }                                                                          \
  }

#define EVERYWHERE                                                             \
  {                                                                            \
    { 0, 0 }                                                                   \
  }

static const Placement placements[] = {
    {"one rank", 1, {{{0}}}, EVERYWHERE},
    {"tensor 2 x data 2",
     4,
     {{{0}, DIGIT(4, 2, 1)}, {DIGIT(4, 2, 2)}},
     EVERYWHERE},
    {"zero over 3",
     3,
     {{DIGIT(3, 3, 1)}, {DIGIT(3, 3, 1)}, {DIGIT(3, 3, 1)}},
     EVERYWHERE},
    {"last dim over 4",
     4,
     {{{0}, {0}, DIGIT(4, 4, 1)}, {{0}, DIGIT(4, 4, 1)}, {{0}}},
     EVERYWHERE},
    {"two dims, and one dim over both axes",
     4,
     {{DIGIT(4, 2, 1), {0}, DIGIT(4, 2, 2)},
      {{.ranks = 4, .size = 4, .n_digits = 2, .digits = {{2, 1}, {2, 2}}}},
      {{0}}},
     EVERYWHERE},
    {"empty shards",
     8,
     {{DIGIT(8, 8, 1)}, {{0}, DIGIT(8, 8, 1)}, {{0}}},
     EVERYWHERE},
    {"two stages", 2, {{{0}}}, {{1, 1}, {0, 1}, {1, 1}}},
    {"stages of several ranks",
     6,
     {{{0}, DIGIT_FROM(2, 4, 2, 1)}, {DIGIT(2, 2, 1)}, {{0}}},
     {{2, 4}, {0, 2}, {2, 4}}},
    {"stages without rank 0",
     5,
     {{DIGIT_FROM(3, 2, 2, 1)}, {{0}, DIGIT_FROM(3, 2, 2, 1)}, {{0}}},
     {{3, 2}, {3, 2}, {1, 2}}},
};

/* Sizes that few of the shard counts divide. */
static const int64_t sizes[N_TENSORS][3] = {{5, 6, 7}, {6, 9}, {12}};
static const char *const paths[N_TENSORS] = {"net.a", "adamw.m/net.a", "ema/b"};
static const DnnDtype dtypes[N_TENSORS] = {DNN_f32, DNN_f32, DNN_bf16};
static const DnnRole roles[N_TENSORS] = {DNN_PARAM, DNN_OPTIMIZER_STATE,
                                         DNN_EMA};

typedef struct Stage {
  const Placement *placement;
  Memory *memory;
  Arena *arena;
  Comm *comms;
  DnnTensor tensors[N_TENSORS]; /* the places where they are held */
  DnnTensor of_ranks[MOST_RANKS][N_TENSORS];
  DnnProgram programs[MOST_RANKS];
  Device devices[MOST_RANKS];
  const char *folder;
  const Checkpoint *checkpoint; /* to load; NULL: save */
  char digest[65];              /* of the parameters, after loading */
} Stage;

typedef struct RankThread {
  Stage *stage;
  int rank;
  pthread_t thread;
} RankThread;

static Status memory_read(Device *device, int64_t offset, void *to,
                          int64_t bytes) {
  cr_assert(offset >= 0 && bytes > 0 && offset + bytes <= ARENA_BYTES);
  memcpy(to, (const char *)device->state + offset, (size_t)bytes);
  return STATUS_OK;
}

static Status memory_write(Device *device, int64_t offset, const void *from,
                           int64_t bytes) {
  cr_assert(offset >= 0 && bytes > 0 && offset + bytes <= ARENA_BYTES);
  memcpy((char *)device->state + offset, from, (size_t)bytes);
  return STATUS_OK;
}

static void stage_program(Stage *stage, int rank) {
  DnnTensor *tensors = stage->of_ranks[rank];
  memcpy(tensors, stage->tensors, sizeof stage->tensors);
  for (int i = 0; i < N_TENSORS; i++)
    if (!tensor_is_held(&tensors[i], rank)) tensors[i].offset = -1;
  stage->programs[rank] = (DnnProgram){.model = "m",
                                       .world = stage->placement->world,
                                       .tensors = tensors,
                                       .n_tensors = N_TENSORS};
}

static void stage_open(Stage *stage, const Placement *placement) {
  *stage = (Stage){.placement = placement};
  stage->memory = memory_create(no_memory, NULL);
  stage->arena = arena_create(stage->memory);
  int64_t offset = 0;
  for (int i = 0; i < N_TENSORS; i++) {
    DnnTensor *tensor = &stage->tensors[i];
    *tensor = (DnnTensor){.path = paths[i],
                          .role = (uint8_t)roles[i],
                          .dtype = dtypes[i],
                          .first = placement->held[i].first,
                          .ranks = placement->held[i].ranks,
                          .offset = offset};
    for (int d = 0; d < 3 && sizes[i][d]; d++) {
      tensor->rank++;
      tensor->dim[d] = "D";
      tensor->size[d] = sizes[i][d];
      if (placement->groups[i][d].size)
        tensor->split[d] = &placement->groups[i][d];
    }
    tensor->bytes = tensor_local_elements(tensor) * dtype_bytes(tensor->dtype);
    offset += tensor->bytes + SPARE;
  }
  cr_assert_leq(offset, ARENA_BYTES);
  cr_assert_eq(comm_local_create(stage->arena, placement->world,
                                 &(LocalOptions){.seed = 3}, &stage->comms)
                   .code,
               STATUS_ok);
  for (int rank = 0; rank < placement->world; rank++) {
    stage_program(stage, rank);
    Device *device = &stage->devices[rank];
    *device = (Device){.name = "memory",
                       .rank = rank,
                       .read = memory_read,
                       .write = memory_write,
                       .state = ARENA_ARRAY(stage->arena, char, ARENA_BYTES)};
    memset(device->state, 0xee, ARENA_BYTES);
  }
}

static void stage_close(Stage *stage) {
  for (int rank = 0; rank < stage->placement->world; rank++)
    stage->comms[rank].close(&stage->comms[rank]);
  memory_destroy(stage->memory);
}

/* The value of an element follows from its logical index. */
static void element_bytes(int tensor, int64_t index, unsigned char *out) {
  uint64_t bits = hash_bytes(&index, sizeof index, (uint64_t)tensor);
  memcpy(out, &bits, (size_t)dtype_bytes(dtypes[tensor]));
  out[dtype_bytes(dtypes[tensor]) - 1] &= 0x3f; /* finite */
}

/* Writes what each rank holds, or compares it; padding must then be 0. */
static void visit_elements(Stage *stage, bool compares) {
  for (int rank = 0; rank < stage->placement->world; rank++)
    for (int i = 0; i < N_TENSORS; i++) {
      const DnnTensor *tensor = &stage->tensors[i];
      int64_t item = dtype_bytes(tensor->dtype);
      if (!tensor_is_held(tensor, rank)) continue;
      unsigned char *shard =
          (unsigned char *)stage->devices[rank].state + tensor->offset;
      for (int64_t k = 0; k < tensor_local_elements(tensor); k++) {
        unsigned char value[8] = {0};
        int64_t at = tensor_logical_index(tensor, rank, k);
        if (at >= 0) element_bytes(i, at, value);
        if (!compares)
          memcpy(shard + k * item, value, (size_t)item);
        else
          cr_assert_arr_eq(shard + k * item, value, (size_t)item,
                           "%s: rank %d, %s, element %ld",
                           stage->placement->name, rank, paths[i], (long)at);
      }
      for (int k = 0; k < SPARE && compares; k++)
        cr_assert_eq(shard[tensor->bytes + k], 0xee);
    }
}

static Status save_as(Stage *stage, int rank, Arena *arena) {
  LogicalReader *states =
      logical_reader_create(arena, &stage->programs[rank], &stage->comms[rank],
                            &stage->devices[rank]);
  Saver *saver;
  if (rank != 0) return logical_serve(states);
  TRY(saver_open(arena, &stage->programs[rank], stage->folder, 300, &saver));
  Status status = saver_save(saver, states, 7, 5);
  TRY(logical_end(states));
  saver_close(saver);
  return status;
}

static Status load_as(Stage *stage, int rank, Arena *arena) {
  char hex[65], *all = ARENA_ARRAY(arena, char, 65 * MOST_RANKS);
  Comm *comm = &stage->comms[rank];
  TRY(checkpoint_load(arena, stage->checkpoint, &stage->programs[rank],
                      &stage->devices[rank], comm, true));
  TRY(params_sha256(arena, &stage->programs[rank], comm, &stage->devices[rank],
                    hex));
  TRY(comm->gather(comm, hex, sizeof hex, all));
  cr_assert_str_eq(all + 65 * (comm->world - 1), hex);
  if (rank == 0) strcpy(stage->digest, hex);
  return STATUS_OK;
}

static void *rank_thread(void *user) {
  RankThread *thread = user;
  Stage *stage = thread->stage;
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  Status status = stage->checkpoint ? load_as(stage, thread->rank, arena)
                                    : save_as(stage, thread->rank, arena);
  cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
  memory_destroy(memory);
  return NULL;
}

static void run_ranks(Stage *stage) {
  RankThread threads[MOST_RANKS];
  for (int rank = 0; rank < stage->placement->world; rank++) {
    threads[rank] = (RankThread){.stage = stage, .rank = rank};
    pthread_create(&threads[rank].thread, NULL, rank_thread, &threads[rank]);
  }
  for (int rank = 0; rank < stage->placement->world; rank++)
    pthread_join(threads[rank].thread, NULL);
}

static int remove_one(const char *path, const struct stat *info, int kind,
                      struct FTW *walk) {
  (void)info, (void)kind, (void)walk;
  remove(path);
  return 0;
}

/* The digest is the same under all placements. */
static void load_under(const char *folder, const Placement *placement,
                       char digest[65]) {
  Stage stage;
  Checkpoint checkpoint;
  bool found;
  stage_open(&stage, placement);
  cr_assert_eq(checkpoint_find(stage.memory, stage.arena, folder,
                               &stage.programs[0], MATCH_resume, &checkpoint,
                               &found)
                   .code,
               STATUS_ok);
  cr_assert(found);
  stage.checkpoint = &checkpoint;
  run_ranks(&stage);
  visit_elements(&stage, true);
  if (!digest[0]) strcpy(digest, stage.digest);
  cr_assert_str_eq(stage.digest, digest, "%s", placement->name);
  checkpoint_close(&checkpoint);
  stage_close(&stage);
}

Test(placements, every_one_loads_what_every_other_saved) {
  char digest[65] = "";
  for (int from = 0; from < ARRAY_LENGTH(placements); from++) {
    char folder[] = "/tmp/dnn-test-XXXXXX";
    cr_assert(mkdtemp(folder));
    Stage stage;
    stage_open(&stage, &placements[from]);
    stage.folder = folder;
    visit_elements(&stage, false);
    run_ranks(&stage);
    for (int to = 0; to < ARRAY_LENGTH(placements); to++)
      load_under(folder, &placements[to], digest);
    stage_close(&stage);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  }
}

/* Runs against the index of each element, for all ranges of a tensor. */
static void check_runs(const DnnTensor *tensor, int rank, int64_t from,
                       int64_t end) {
  int64_t n = tensor_elements(tensor), expected = 0, found = 0, at = from;
  int64_t local_of[512];
  cr_assert_leq(n, 512);
  memset(local_of, -1, sizeof local_of);
  for (int64_t k = 0;
       tensor_is_held(tensor, rank) && k < tensor_local_elements(tensor); k++) {
    int64_t index = tensor_logical_index(tensor, rank, k);
    if (index >= 0) local_of[index] = k;
  }
  for (int64_t i = from; i < end; i++) expected += local_of[i] >= 0;
  TensorRun run;
  while (tensor_next_run(tensor, rank, at, end, &run)) {
    cr_assert(run.n > 0 && run.logical >= at && run.logical + run.n <= end);
    for (int64_t i = 0; i < run.n; i++)
      cr_assert_eq(local_of[run.logical + i], run.local + i);
    found += run.n;
    at = run.logical + run.n;
  }
  cr_assert_eq(found, expected);
}

Test(placements, runs_are_what_a_rank_holds) {
  for (int p = 0; p < ARRAY_LENGTH(placements); p++) {
    Stage stage;
    stage_open(&stage, &placements[p]);
    for (int i = 0; i < N_TENSORS; i++) {
      const DnnTensor *tensor = &stage.tensors[i];
      int64_t n = tensor_elements(tensor);
      for (int rank = 0; rank < placements[p].world; rank++)
        for (int64_t from = 0; from < n; from += 5)
          for (int64_t end = from; end <= n; end += 11)
            check_runs(tensor, rank, from, end);
    }
    stage_close(&stage);
  }
}

/* Each shard has one owner, which holds it. */
Test(placements, owners_hold_all_elements_once) {
  for (int p = 0; p < ARRAY_LENGTH(placements); p++) {
    Stage stage;
    stage_open(&stage, &placements[p]);
    for (int i = 0; i < N_TENSORS; i++) {
      const DnnTensor *tensor = &stage.tensors[i];
      int owners[MOST_RANKS], held = 0;
      int n = tensor_owners(tensor, placements[p].world, owners);
      for (int k = 0; k < n; k++) {
        cr_assert(tensor_is_owner(tensor, owners[k]));
        for (int64_t e = 0; e < tensor_local_elements(tensor); e++)
          held += tensor_logical_index(tensor, owners[k], e) >= 0;
      }
      cr_assert_eq(held, tensor_elements(tensor));
    }
    stage_close(&stage);
  }
}

/* Numbers that training cannot use are counted once, whoever holds them. */
Test(placements, odd_values_are_counted_over_all_ranks) {
  char folder[] = "/tmp/dnn-test-XXXXXX", text[1000] = "", path[64];
  cr_assert(mkdtemp(folder));
  Stage stage;
  stage_open(&stage, &placements[0]);
  stage.folder = folder;
  visit_elements(&stage, false);
  const uint32_t infinity = 0x7f800000;
  for (int64_t at = 3; at < 210; at += 50)
    memory_write(&stage.devices[0], at * 4, &infinity, 4);
  run_ranks(&stage);
  stage_close(&stage);
  for (int to = 1; to < ARRAY_LENGTH(placements); to++) {
    Checkpoint checkpoint;
    bool found;
    stage_open(&stage, &placements[to]);
    cr_assert_eq(checkpoint_find(stage.memory, stage.arena, folder,
                                 &stage.programs[0], MATCH_resume, &checkpoint,
                                 &found)
                     .code,
                 STATUS_ok);
    stage.checkpoint = &checkpoint;
    snprintf(path, sizeof path, "%s/messages", folder);
    cr_assert(freopen(path, "w", stderr));
    run_ranks(&stage);
    fflush(stderr);
    FILE *file = fopen(path, "r");
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    cr_assert(strstr(text, "tensor 'net.a': 5 of 210 values are NaN or "
                           "infinite, the first (infinite) at index 3"),
              "%s: %s", placements[to].name, text);
    checkpoint_close(&checkpoint);
    stage_close(&stage);
  }
  nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
