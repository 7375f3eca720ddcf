/*
 * nccl.c -- implements NCCL for the mock: all-reduces between processes through
 * shared memory.  Work that waits for other ranks is asked again instead of
 * blocking, so the runtime's deadlines and aborts can be tried.
 */
#include "tests/mock/mock.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CHUNK_BYTES (1 << 18)
#define MAX_RANKS   16

/* All ranks pass point p once `arrived` is ranks * (p + 1). */
typedef struct Shared {
  _Atomic int64_t arrived;
  _Atomic int32_t attached;
  char chunks[MAX_RANKS][CHUNK_BYTES];
} Shared;

typedef struct MockComm {
  Shared *shared;
  int ranks, rank;
  int64_t points; /* where this rank has arrived */
  bool is_aborted;
} MockComm;

typedef struct Reduce {
  MockComm *comm;
  char *from, *to;
  size_t count, done;
  CuEnum dtype, reduce;
  int stage; /* of the chunk at hand */
} Reduce;

static int group_depth;

CuEnum ncclGetVersion(int *version) {
  MOCK_ENTER();
  *version = 22809;
  return 0;
}

CuEnum ncclGetUniqueId(NcclId *id) {
  MOCK_ENTER();
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  memset(id, 0, sizeof *id);
  snprintf(id->bytes, sizeof id->bytes, "/dnn-mock-%ld-%ld", (long)getpid(),
           now.tv_nsec);
  return 0;
}

CuEnum ncclCommInitRankConfig(NcclComm *handle, int ranks, NcclId id, int rank,
                              NcclConfig *config) {
  MOCK_ENTER();
  if (ranks > MAX_RANKS || rank >= ranks || config->magic != 0xcafebeefu ||
      config->blocking != 0 || id.bytes[0] != '/')
    return 4; /* ncclInvalidArgument */
  int file = shm_open(id.bytes, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) return 2;
  Shared *shared =
      mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (shared == MAP_FAILED) return 2;
  if (atomic_fetch_add(&shared->attached, 1) == ranks - 1) shm_unlink(id.bytes);
  MockComm *comm = calloc(1, sizeof *comm);
  *comm = (MockComm){shared, ranks, rank, 0, false};
  *handle = comm;
  return NCCL_IN_PROGRESS;
}

CuEnum ncclCommGetAsyncError(NcclComm comm, CuEnum *error) {
  (void)comm;
  MOCK_ENTER();
  *error = 0;
  return 0;
}

CuEnum ncclCommFinalize(NcclComm comm) {
  (void)comm;
  MOCK_ENTER();
  return 0;
}

CuEnum ncclCommDestroy(NcclComm handle) {
  MOCK_ENTER();
  MockComm *comm = handle;
  munmap(comm->shared, sizeof(Shared));
  free(comm);
  return 0;
}

/* Work that is still enqueued ends at once. */
CuEnum ncclCommAbort(NcclComm handle) {
  MOCK_ENTER();
  MockComm *comm = handle;
  comm->is_aborted = true;
  return 0;
}

CuEnum ncclGroupStart(void) {
  MOCK_ENTER();
  group_depth++;
  return 0;
}

CuEnum ncclGroupEnd(void) {
  MOCK_ENTER();
  return --group_depth == 0 ? NCCL_IN_PROGRESS : 0;
}

static size_t size_of(CuEnum dtype) {
  return dtype == 4 || dtype == 8 ? 8 : 4;
}

#define JOIN(type)                                                             \
  static void join_##type(const Reduce *r, type *to, size_t n) {               \
    for (size_t i = 0; i < n; i++) {                                           \
      type sum = ((const type *)r->comm->shared->chunks[0])[i];                \
      for (int q = 1; q < r->comm->ranks; q++) {                               \
        type x = ((const type *)r->comm->shared->chunks[q])[i];                \
        sum = r->reduce == 2   ? (x > sum ? x : sum)                           \
              : r->reduce == 3 ? (x < sum ? x : sum)                           \
                               : sum + x;                                      \
      }                                                                        \
      to[i] = sum;                                                             \
    }                                                                          \
  }
JOIN(int32_t)
JOIN(int64_t)
JOIN(float)
JOIN(double)

static void join(const Reduce *r, char *to, size_t n) {
  switch (r->dtype) {
  case 2: join_int32_t(r, (int32_t *)to, n); return;
  case 4: join_int64_t(r, (int64_t *)to, n); return;
  case 7: join_float(r, (float *)to, n); return;
  default: join_double(r, (double *)to, n); return;
  }
}

static void arrive(MockComm *comm) {
  atomic_fetch_add(&comm->shared->arrived, 1);
  comm->points++;
}

static bool all_arrived(const MockComm *comm) {
  return atomic_load(&comm->shared->arrived) >= comm->points * comm->ranks;
}

/* Each chunk: give mine, all have given, add up, all have added up. */
static bool run_reduce(MockWork *work) {
  Reduce *r = work->more;
  size_t size = size_of(r->dtype), most = CHUNK_BYTES / size;
  while (r->done < r->count || r->stage > 0) {
    if (r->comm->is_aborted) return true;
    size_t n = r->count - r->done < most ? r->count - r->done : most;
    char *mine = r->comm->shared->chunks[r->comm->rank];
    if (r->stage == 0) {
      memcpy(mine, r->from + r->done * size, n * size);
      arrive(r->comm);
    } else if (!all_arrived(r->comm)) {
      return false;
    } else if (r->stage == 1) {
      join(r, r->to + r->done * size, n);
      arrive(r->comm);
    } else {
      r->done += n;
    }
    r->stage = (r->stage + 1) % 3;
  }
  return true;
}

CuEnum ncclAllReduce(const void *from, void *to, size_t count, CuEnum dtype,
                     CuEnum reduce, NcclComm comm, CuStream stream) {
  MOCK_ENTER();
  size_t bytes = count * size_of(dtype);
  if (!mock_in_memory((unsigned long long)(uintptr_t)from, bytes) ||
      !mock_in_memory((unsigned long long)(uintptr_t)to, bytes))
    return 4;
  Reduce *r = calloc(1, sizeof *r);
  *r = (Reduce){.comm = comm,
                .from = (char *)(uintptr_t)from,
                .to = to,
                .count = count,
                .dtype = dtype,
                .reduce = reduce};
  MockWork work = {.run = run_reduce, .what = "all-reduce", .more = r};
  return mock_enqueue(stream, &work);
}

const char *ncclGetErrorString(CuEnum error) {
  return error == 4 ? "invalid argument" : "failure of the mock";
}
