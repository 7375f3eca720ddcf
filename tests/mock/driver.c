/*
 * driver.c -- implements libcuda for the mock: memory, streams, events, modules
 * and launches.
 */
#include "tests/mock/mock.h"

#include <dlfcn.h>
#include <elf.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES 4096
#define EM_CUDA_   190

typedef struct Pinned {
  const char *begin;
  size_t bytes;
} Pinned;

typedef struct Block {
  char *map; /* with the guard pages */
  size_t map_bytes, bytes;
  unsigned long long address;
} Block;

/* `first` pieces of work were done and forgotten. */
typedef struct Stream {
  MockWork *work;
  long first, n, capacity, done;
  int number;
  bool is_running;
  struct Stream *next; /* of all streams */
} Stream;

/* The last recording: this much of the stream's work, counted from its
 * beginning, must be done. */
typedef struct Event {
  Stream *stream;
  long position;
  int64_t recorded_us;
} Event;

typedef int ShimKernel(const void *arguments, const unsigned *grid,
                       const unsigned *block, unsigned seed);

typedef struct Function {
  ShimKernel *run;
  unsigned argument_bytes;
  char name[128];
  struct Function *next;
} Function;

typedef struct Module {
  const char *image;
  size_t bytes;
  Function *functions;
} Module;

static struct {
  bool is_ready;
  Block blocks[16];
  Pinned pinned[16];
  int n_pinned, n_blocks, n_streams, n_events, n_modules, n_contexts, depth;
  size_t used, capacity;
  Stream *streams;
  void *libraries[64];
  int n_libraries;
  unsigned seed;
  const char *fail_name;
  bool is_eager, is_idle, is_open;
  int device;
  long fail_at, fail_calls;
  long drop_wait, waits; /* the wait that has no effect */
  CuEnum fail_with, lasting;
  FILE *log;
} mock;

/* ---- settings ---- */

static double setting(const char *name, double otherwise) {
  const char *text = getenv(name);
  return text && *text ? atof(text) : otherwise;
}

/* "FUNCTION:CALL:ERROR@RANK", of which all but the function may be missing. */
static void read_fail(void) {
  const char *text = getenv("DNN_MOCK_FAIL");
  if (!text || !*text) return;
  static char name[80];
  const char *rank = getenv("OMPI_COMM_WORLD_RANK"),
             *at_rank = strchr(text, '@');
  int at = 1, with = MOCK_FAILED;
  if (at_rank && rank && atoi(at_rank + 1) != atoi(rank)) return;
  if (sscanf(text, "%79[^:@]:%d:%d", name, &at, &with) < 1) return;
  mock.fail_name = name;
  mock.fail_at = at;
  mock.fail_with = (CuEnum)with;
}

static void open_libraries(void) {
  const char *text = getenv("DNN_MOCK_KERNELS");
  mock.is_idle = text && strcmp(text, "idle") == 0;
  if (mock.is_idle) return;
  char *copy = strdup(text ? text : ""), *rest = NULL;
  for (char *path = strtok_r(copy, ":", &rest); path;
       path = strtok_r(NULL, ":", &rest)) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fprintf(stderr, "mock: %s\n", dlerror());
    if (library && mock.n_libraries < 64)
      mock.libraries[mock.n_libraries++] = library;
  }
  free(copy);
}

static void ready(void) {
  if (mock.is_ready) return;
  mock.is_ready = true;
  mock.capacity = (size_t)setting("DNN_MOCK_CAPACITY", 80e9);
  mock.seed = (unsigned)setting("DNN_MOCK_SEED", 0);
  mock.is_eager = setting("DNN_MOCK_EAGER", 0) != 0;
  mock.drop_wait = (long)setting("DNN_MOCK_DROP_WAIT", 0);
  read_fail();
  open_libraries();
  const char *log = getenv("DNN_MOCK_LOG");
  if (log && *log) mock.log = fopen(log, "a");
}

/* After a kernel's fault nothing works in this context but to release it. */
static bool is_lasting(CuEnum error) {
  return error >= MOCK_ILLEGAL_ADDRESS && error <= MOCK_FAILED;
}

static bool uses_context(const char *function) {
  static const char *const prefixes[] = {"cuLaunch", "cuMemcpy", "cuMemset",
                                         "cuStream", "cuEvent"};
  if (strstr(function, "Destroy")) return false;
  for (int i = 0; i < ARRAY_LENGTH(prefixes); i++)
    if (strncmp(function, prefixes[i], strlen(prefixes[i])) == 0) return true;
  return false;
}

CuEnum mock_enter(const char *function) {
  ready();
  if (mock.lasting && uses_context(function)) return mock.lasting;
  if (!mock.fail_name || strcmp(function, mock.fail_name) != 0) return 0;
  if (++mock.fail_calls != mock.fail_at) return 0;
  if (strncmp(function, "cu", 2) == 0 && function[2] != 'b' &&
      is_lasting(mock.fail_with))
    mock.lasting = mock.fail_with;
  return mock.fail_with;
}

int mock_device(void) {
  return mock.device;
}

void mock_log(const char *format, ...) {
  if (!mock.log) return;
  va_list args;
  va_start(args, format);
  vfprintf(mock.log, format, args);
  va_end(args);
  fputc('\n', mock.log);
  fflush(mock.log);
}

/* ---- memory ---- */

bool mock_in_memory(unsigned long long address, size_t bytes) {
  for (int i = 0; i < mock.n_blocks; i++) {
    const Block *block = &mock.blocks[i];
    if (address >= block->address && bytes <= block->bytes &&
        address - block->address <= block->bytes - bytes)
      return true;
  }
  return false;
}

static void protect(int how) {
  for (int i = 0; i < mock.n_blocks; i++)
    mprotect(mock.blocks[i].map + PAGE_BYTES,
             mock.blocks[i].map_bytes - 2 * PAGE_BYTES, how);
}

void mock_open_memory(void) {
  if (!mock.is_open) protect(PROT_READ | PROT_WRITE);
  mock.is_open = true;
}

static void close_memory(void) {
  if (mock.is_open) protect(PROT_NONE);
  mock.is_open = false;
}

/* The end lies at the guard page, as near as 256 bytes of alignment allow. */
CuEnum cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
  MOCK_ENTER();
  if (bytes == 0 || mock.n_blocks == 16) return MOCK_INVALID_VALUE;
  if (bytes > mock.capacity - mock.used) return CU_OUT_OF_MEMORY;
  size_t rounded = (bytes + 255) / 256 * 256;
  size_t pages = (rounded + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
  Block *block = &mock.blocks[mock.n_blocks];
  block->map_bytes = pages + 2 * PAGE_BYTES;
  block->map = mmap(NULL, block->map_bytes, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block->map == MAP_FAILED) return CU_OUT_OF_MEMORY;
  block->bytes = bytes;
  block->address =
      (unsigned long long)(uintptr_t)block->map + PAGE_BYTES + pages - rounded;
  mock.n_blocks++;
  mock.used += bytes;
  *address = block->address;
  return 0;
}

CuEnum cuMemFree_v2(unsigned long long address) {
  MOCK_ENTER();
  for (int i = 0; i < mock.n_blocks; i++) {
    if (mock.blocks[i].address != address) continue;
    munmap(mock.blocks[i].map, mock.blocks[i].map_bytes);
    mock.used -= mock.blocks[i].bytes;
    mock.blocks[i] = mock.blocks[--mock.n_blocks];
    return 0;
  }
  return MOCK_INVALID_VALUE;
}

static bool is_pinned(const void *memory) {
  for (int i = 0; i < mock.n_pinned; i++) {
    const char *begin = mock.pinned[i].begin;
    if ((const char *)memory >= begin &&
        (const char *)memory < begin + mock.pinned[i].bytes)
      return true;
  }
  return false;
}

CuEnum cuMemAllocHost_v2(void **memory, size_t bytes) {
  MOCK_ENTER();
  if (mock.n_pinned == 16) return MOCK_INVALID_VALUE;
  *memory = malloc(bytes);
  if (!*memory) return CU_OUT_OF_MEMORY;
  mock.pinned[mock.n_pinned++] = (Pinned){*memory, bytes};
  return 0;
}

CuEnum cuMemFreeHost(void *memory) {
  MOCK_ENTER();
  for (int i = 0; i < mock.n_pinned; i++)
    if (mock.pinned[i].begin == memory)
      mock.pinned[i] = mock.pinned[--mock.n_pinned];
  free(memory);
  return 0;
}

CuEnum cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  MOCK_ENTER();
  *free_bytes = mock.capacity - mock.used;
  *total = mock.capacity;
  return 0;
}

/* ---- streams ---- */

/* How long work that is asked again may take. */
enum { AT_ONCE = 0, EAGER_US = 2000000, FOR_EVER = INT32_MAX };

static CuEnum drain(Stream *stream, long until, int64_t patience_us);

CuEnum mock_enqueue(CuStream handle, const MockWork *work) {
  Stream *stream = handle;
  if (!stream) return MOCK_INVALID_VALUE;
  if (stream->done == stream->n && !stream->is_running) {
    stream->first += stream->n;
    stream->done = stream->n = 0;
  }
  if (stream->n == stream->capacity) {
    stream->capacity = stream->capacity ? 2 * stream->capacity : 256;
    stream->work =
        realloc(stream->work, (size_t)stream->capacity * sizeof *stream->work);
  }
  stream->work[stream->n++] = *work;
  /* Collectives wait for other ranks.  Without patience the next one would
   * read its operand late, and a missing wait would go unnoticed. */
  if (mock.is_eager && stream->number > 0)
    (void)drain(stream, stream->n, EAGER_US);
  return 0;
}

int mock_stream_number(CuStream stream) {
  return ((Stream *)stream)->number;
}

static bool run_wait(MockWork *work) {
  Event event;
  memcpy(&event, work->data, sizeof event);
  return !event.stream ||
         drain(event.stream, event.position - event.stream->first, AT_ONCE) ==
             0;
}

static int64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

/* The next work of a stream, once what it waits for has ended. */
static const MockWork *next_work(Stream *stream) {
  while (stream->done < stream->n && stream->work[stream->done].run == run_wait)
    if (drain(stream, stream->done + 1, AT_ONCE) != 0) return NULL;
  return stream->done < stream->n ? &stream->work[stream->done] : NULL;
}

/* A GPU carries out what it can while a stream waits.  Here that is only what
 * another rank may need before this one gets on. */
static void move_messages(void) {
  for (Stream *stream = mock.streams; stream; stream = stream->next) {
    const MockWork *work = stream->is_running ? NULL : next_work(stream);
    while (work && work->is_message &&
           drain(stream, stream->done + 1, AT_ONCE) == 0)
      work = next_work(stream);
  }
}

static CuEnum drain(Stream *stream, long until, int64_t patience_us) {
  if (stream->done >= until) return 0;
  if (stream->is_running) return CU_NOT_READY;
  stream->is_running = true;
  mock.depth++;
  CuEnum result = 0;
  int64_t since = now_us();
  while (stream->done < until && !result) {
    MockWork *work = &stream->work[stream->done];
    int64_t begin = now_us();
    if (work->run(work)) {
      mock_log("stream %d %s %lld us", stream->number, work->what,
               (long long)(now_us() - begin));
      free(work->more);
      stream->done++;
      since = now_us();
      continue;
    }
    if (mock.depth == 1) move_messages();
    if (patience_us == FOR_EVER || now_us() - since < patience_us) {
      sched_yield();
    } else {
      result = CU_NOT_READY;
    }
  }
  if (--mock.depth == 0) close_memory();
  stream->is_running = false;
  return result;
}

CuEnum cuStreamCreateWithPriority(CuStream *stream, unsigned flags,
                                  int priority) {
  (void)flags, (void)priority;
  MOCK_ENTER();
  Stream *made = calloc(1, sizeof *made);
  made->number = mock.n_streams++;
  made->next = mock.streams;
  mock.streams = made;
  *stream = made;
  return 0;
}

CuEnum cuStreamDestroy_v2(CuStream handle) {
  Stream *stream = handle;
  MOCK_ENTER();
  for (long i = stream->done; i < stream->n; i++) free(stream->work[i].more);
  free(stream->work);
  Stream **at = &mock.streams;
  while (*at != stream) at = &(*at)->next;
  *at = stream->next;
  free(stream);
  mock.n_streams--;
  return 0;
}

CuEnum cuStreamQuery(CuStream handle) {
  MOCK_ENTER();
  Stream *stream = handle;
  return drain(stream, stream->n, AT_ONCE);
}

CuEnum cuStreamSynchronize(CuStream handle) {
  MOCK_ENTER();
  Stream *stream = handle;
  return drain(stream, stream->n, FOR_EVER);
}

CuEnum cuStreamWaitEvent(CuStream stream, CuEvent event, unsigned flags) {
  (void)flags;
  MOCK_ENTER();
  if (++mock.waits == mock.drop_wait) return 0;
  MockWork work = {.run = run_wait, .what = "wait"};
  memcpy(work.data, event, sizeof(Event));
  return mock_enqueue(stream, &work);
}

CuEnum cuEventCreate(CuEvent *event, unsigned flags) {
  (void)flags;
  MOCK_ENTER();
  *event = calloc(1, sizeof(Event));
  mock.n_events++;
  return 0;
}

CuEnum cuEventRecord(CuEvent handle, CuStream stream) {
  MOCK_ENTER();
  Event *event = handle;
  event->stream = stream;
  event->position = event->stream->first + event->stream->n;
  event->recorded_us = now_us();
  return 0;
}

/* No figure of a GPU, but one to divide by. */
CuEnum cuEventElapsedTime(float *ms, CuEvent begin, CuEvent end) {
  MOCK_ENTER();
  const Event *from = begin, *to = end;
  if (!from->stream || !to->stream) return 400; /* invalid handle */
  *ms = (float)(to->recorded_us - from->recorded_us + 1) * 1e-3f;
  return 0;
}

CuEnum cuEventQuery(CuEvent handle) {
  MOCK_ENTER();
  Event *event = handle;
  if (!event->stream) return 0;
  return drain(event->stream, event->position - event->stream->first, AT_ONCE);
}

CuEnum cuEventDestroy_v2(CuEvent event) {
  MOCK_ENTER();
  free(event);
  mock.n_events--;
  return 0;
}

/* ---- copies ---- */

typedef struct Copy {
  unsigned long long to, from;
  size_t bytes;
  unsigned char value;
} Copy;

static bool run_copy(MockWork *work) {
  mock_open_memory();
  Copy copy;
  memcpy(&copy, work->data, sizeof copy);
  const void *from = work->more ? work->more : (void *)(uintptr_t)copy.from;
  memmove((void *)(uintptr_t)copy.to, from, copy.bytes);
  return true;
}

static bool run_fill(MockWork *work) {
  mock_open_memory();
  Copy copy;
  memcpy(&copy, work->data, sizeof copy);
  memset((void *)(uintptr_t)copy.to, copy.value, copy.bytes);
  return true;
}

static CuEnum enqueue_copy(CuStream stream, bool (*run)(MockWork *),
                           const char *what, Copy copy, void *more) {
  MockWork work = {.run = run, .what = what, .more = more};
  memcpy(work.data, &copy, sizeof copy);
  return mock_enqueue(stream, &work);
}

/* Memory of the host is read at once, because it may change after the call, but
 * for pinned memory, which the stream reads. */
CuEnum cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from,
                            size_t bytes, CuStream stream) {
  MOCK_ENTER();
  if (!mock_in_memory(to, bytes)) return MOCK_INVALID_VALUE;
  if (is_pinned(from))
    return enqueue_copy(stream, run_copy, "copy to device",
                        (Copy){.to = to,
                               .from = (unsigned long long)(uintptr_t)from,
                               .bytes = bytes},
                        NULL);
  void *copy = malloc(bytes + 1);
  memcpy(copy, from, bytes);
  return enqueue_copy(stream, run_copy, "copy to device",
                      (Copy){.to = to, .bytes = bytes}, copy);
}

CuEnum cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes,
                            CuStream stream) {
  MOCK_ENTER();
  if (!mock_in_memory(from, bytes)) return MOCK_INVALID_VALUE;
  CuEnum error = enqueue_copy(stream, run_copy, "copy to host",
                              (Copy){.to = (unsigned long long)(uintptr_t)to,
                                     .from = from,
                                     .bytes = bytes},
                              NULL);
  Stream *mine = stream;
  if (is_pinned(to)) return error;
  return error ? error : drain(mine, mine->n, FOR_EVER);
}

CuEnum cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from,
                            size_t bytes, CuStream stream) {
  MOCK_ENTER();
  if (!mock_in_memory(to, bytes) || !mock_in_memory(from, bytes))
    return MOCK_INVALID_VALUE;
  return enqueue_copy(stream, run_copy, "copy",
                      (Copy){.to = to, .from = from, .bytes = bytes}, NULL);
}

CuEnum cuMemsetD8Async(unsigned long long to, unsigned char value, size_t bytes,
                       CuStream stream) {
  MOCK_ENTER();
  if (!mock_in_memory(to, bytes)) return MOCK_INVALID_VALUE;
  return enqueue_copy(stream, run_fill, "fill",
                      (Copy){.to = to, .bytes = bytes, .value = value}, NULL);
}

/* ---- modules ---- */

/* A cubin is an ELF file whose section table comes last; else it is text. */
static size_t image_bytes(const char *image) {
  Elf64_Ehdr header;
  if (memcmp(image, ELFMAG, SELFMAG) != 0) return strlen(image);
  memcpy(&header, image, sizeof header);
  if (header.e_machine != EM_CUDA_) return 0;
  size_t sections =
      header.e_shoff + (size_t)header.e_shnum * header.e_shentsize;
  size_t segments =
      header.e_phoff + (size_t)header.e_phnum * header.e_phentsize;
  return sections > segments ? sections : segments;
}

CuEnum cuModuleLoadDataEx(CuModule *handle, const void *image,
                          unsigned n_options, CuEnum *options, void **values) {
  (void)n_options, (void)options, (void)values;
  MOCK_ENTER();
  size_t bytes = image_bytes(image);
  if (bytes == 0) return 200; /* CUDA_ERROR_INVALID_IMAGE */
  Module *module = calloc(1, sizeof *module);
  *module = (Module){.image = image, .bytes = bytes};
  mock.n_modules++;
  *handle = module;
  return 0;
}

CuEnum cuModuleUnload(CuModule handle) {
  MOCK_ENTER();
  Module *module = handle;
  for (Function *f = module->functions, *next; f; f = next) {
    next = f->next;
    free(f);
  }
  free(module);
  mock.n_modules--;
  return 0;
}

static int run_nothing(const void *arguments, const unsigned *grid,
                       const unsigned *block, unsigned seed) {
  (void)arguments, (void)grid, (void)block, (void)seed;
  return 1;
}

/* The image must hold the name, and some library its code. */
CuEnum cuModuleGetFunction(CuFunction *handle, CuModule in, const char *name) {
  MOCK_ENTER();
  Module *module = in;
  if (!memmem(module->image, module->bytes, name, strlen(name))) return 500;
  char size_name[160];
  snprintf(size_name, sizeof size_name, "%s_bytes", name);
  void *symbol = NULL;
  const unsigned *bytes = NULL;
  for (int i = 0; i < mock.n_libraries && !symbol; i++) {
    symbol = dlsym(mock.libraries[i], name);
    bytes = dlsym(mock.libraries[i], size_name);
  }
  if (!mock.is_idle && (!symbol || !bytes)) {
    fprintf(stderr, "mock: no library of DNN_MOCK_KERNELS has %s\n", name);
    return 500; /* CUDA_ERROR_NOT_FOUND */
  }
  Function *function = calloc(1, sizeof *function);
  if (mock.is_idle)
    function->run = run_nothing;
  else
    memcpy(&function->run, &symbol, sizeof symbol);
  function->argument_bytes = mock.is_idle ? 0 : *bytes;
  snprintf(function->name, sizeof function->name, "%s", name);
  function->next = module->functions;
  module->functions = function;
  *handle = function;
  return 0;
}

CuEnum cuFuncSetAttribute(CuFunction function, CuEnum attribute, int value) {
  (void)function, (void)attribute, (void)value;
  MOCK_ENTER();
  return 0;
}

typedef struct Launch {
  Function *function;
  unsigned grid[3], block[3];
} Launch;

static bool run_kernel(MockWork *work) {
  Launch launch;
  memcpy(&launch, work->data, sizeof launch);
  if (!mock.is_idle) mock_open_memory();
  if (!launch.function->run(work->more, launch.grid, launch.block, mock.seed)) {
    fprintf(stderr, "mock: %s was launched with a grid it does not take\n",
            launch.function->name);
    abort();
  }
  return true;
}

/* Kernels take one struct, by value. */
CuEnum cuLaunchKernel(CuFunction handle, unsigned grid_x, unsigned grid_y,
                      unsigned grid_z, unsigned block_x, unsigned block_y,
                      unsigned block_z, unsigned shared_bytes, CuStream stream,
                      void **parameters, void **extra) {
  (void)shared_bytes, (void)extra;
  MOCK_ENTER();
  if (block_x * block_y * block_z > 1024 || grid_x == 0)
    return MOCK_INVALID_VALUE;
  Function *function = handle;
  MockWork work = {.run = run_kernel, .what = function->name};
  Launch launch = {
      function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}};
  memcpy(work.data, &launch, sizeof launch);
  work.more = malloc(function->argument_bytes + 1);
  memcpy(work.more, parameters[0], function->argument_bytes);
  return mock_enqueue(stream, &work);
}

/* ---- device and errors ---- */

CuEnum cuInit(unsigned flags) {
  (void)flags;
  MOCK_ENTER();
  return 0;
}

CuEnum cuDeviceGetCount(int *count) {
  MOCK_ENTER();
  *count = (int)setting("DNN_MOCK_DEVICES", 8);
  return 0;
}

CuEnum cuDeviceGet(int *device, int ordinal) {
  MOCK_ENTER();
  *device = ordinal;
  return 0;
}

CuEnum cuDeviceGetName(char *name, int length, int device) {
  MOCK_ENTER();
  const char *wanted = getenv("DNN_MOCK_NAME");
  if (wanted)
    snprintf(name, (size_t)length, "%s", wanted);
  else
    snprintf(name, (size_t)length, "mock %d", device);
  return 0;
}

CuEnum cuDeviceTotalMem_v2(size_t *bytes, int device) {
  (void)device;
  MOCK_ENTER();
  *bytes = (size_t)80 << 30;
  return 0;
}

CuEnum cuDeviceGetAttribute(int *value, CuEnum attribute, int device) {
  (void)device;
  MOCK_ENTER();
  int sm = (int)setting("DNN_MOCK_SM", 90);
  *value = attribute == CU_CAPABILITY_MAJOR   ? sm / 10
           : attribute == CU_CAPABILITY_MINOR ? sm % 10
           : attribute == CU_CLOCK_KHZ        ? 1980000
           : attribute == CU_L2_BYTES         ? 50 << 20
                                              : 132;
  return 0;
}

CuEnum cuDevicePrimaryCtxRetain(CuContext *context, int device) {
  MOCK_ENTER();
  mock.device = device;
  mock.n_contexts++;
  *context = &mock;
  return 0;
}

CuEnum cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  MOCK_ENTER();
  if (--mock.n_contexts > 0) return 0; /* another one holds it */
  if (mock.n_blocks || mock.n_streams || mock.n_events || mock.n_modules)
    fprintf(stderr,
            "mock: left behind: %d pieces of memory, %d streams, %d events, %d "
            "modules\n",
            mock.n_blocks, mock.n_streams, mock.n_events, mock.n_modules);
  return 0;
}

CuEnum cuCtxSetCurrent(CuContext context) {
  (void)context;
  MOCK_ENTER();
  return 0;
}

CuEnum cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  MOCK_ENTER();
  *least = 0;
  *greatest = -5;
  return 0;
}

CuEnum cuGetErrorName(CuEnum error, const char **name) {
  *name = error == CU_OUT_OF_MEMORY       ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == MOCK_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : error == MOCK_INVALID_VALUE   ? "CUDA_ERROR_INVALID_VALUE"
          : error == MOCK_FAILED          ? "CUDA_ERROR_LAUNCH_FAILED"
          : error == 500                  ? "CUDA_ERROR_NOT_FOUND"
                                          : "CUDA_ERROR_UNKNOWN";
  return 0;
}

CuEnum cuGetErrorString(CuEnum error, const char **text) {
  (void)error;
  *text = "of the mock driver";
  return 0;
}
