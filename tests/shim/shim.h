/*
 * shim.h -- compiles emitted CUDA kernels as C, to run them on the CPU, one
 * block after the other.  Included by the prelude of emitted kernels where no
 * CUDA compiler reads them.
 *
 * A kernel becomes a function
 *
 *     int NAME(const void *arguments, const unsigned grid[3],
 *              const unsigned block[3], unsigned seed);
 *
 * and its arguments are NAME_bytes long.
 *
 * Every thread is a fiber with a stack of its own.  Warps run in a random order
 * that the seed decides, and so do blocks: a lane runs until it meets a
 * shuffle, a barrier or its end; a warp continues when all its lanes have met
 * the same shuffle, a block when all its threads are at the barrier.  A thread
 * that cannot continue, as at a barrier in divergent code, ends the process
 * with a message.  Kernels without barriers need no fibers and run as plain
 * loops.
 *
 * Shared memory is static: a block finds what the block before left, as on a
 * GPU.
 */
#ifndef SHIM_H
#define SHIM_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define DNN_FN     static inline __attribute__((unused))
#define DNN_STATIC static
#define DNN_SHARED static
#define DNN_UNROLL
#define DNN_ALIGN(n)       __attribute__((aligned(n)))
#define DNN_INF            __builtin_inf()
#define DNN_SQRT_RN(x)     sqrtf(x)
#define DNN_DOUBLE_BITS(x) shim_double_bits(x)

static inline long long shim_double_bits(double x) {
  long long bits;
  memcpy(&bits, &x, 8);
  return bits;
}

enum { SHIM_MAX_THREADS = 1024, SHIM_STACK_BYTES = 1 << 16 };

typedef struct ShimDim {
  unsigned x, y, z;
} ShimDim;

typedef enum ShimState {
  SHIM_READY,
  SHIM_AT_WARP,  /* waits for the other lanes */
  SHIM_AT_BLOCK, /* waits at __syncthreads */
  SHIM_DONE
} ShimState;

/* A context to which a fiber can switch. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
typedef struct ShimContext {
  void *stack_pointer;
} ShimContext;
#else
#include <ucontext.h>
typedef struct ShimContext {
  ucontext_t context;
} ShimContext;
#define SHIM_UCONTEXT 1
#endif

typedef struct ShimFiber {
  ShimContext context;
  ShimDim thread;
  ShimState state;
  unsigned shuffles;         /* met so far */
  unsigned char slot[2][24]; /* exchanged values; two, since a lane may be one
                                shuffle ahead of its neighbours */
} ShimFiber;

static struct {
  ShimFiber fibers[SHIM_MAX_THREADS];
  ShimContext scheduler;
  ShimFiber *now;
  ShimDim block, block_size, grid_size;
  unsigned n_threads;
  int has_fibers;
  unsigned char *stacks;
  void (*body)(const void *arguments);
  const void *arguments;
} shim;

#define threadIdx (shim.now->thread)
#define blockIdx  (shim.block)
#define blockDim  (shim.block_size)
#define gridDim   (shim.grid_size)

static __attribute__((noreturn, unused)) void shim_fail(const char *why) {
  fprintf(stderr, "shim: block %u thread %u: %s\n", shim.block.x,
          shim.now ? shim.now->thread.x : 0, why);
  abort();
}

/* ---- switching ---- */

#ifndef SHIM_UCONTEXT
/* Saves what a call must keep, changes stacks, restores. */
__attribute__((naked, noinline, unused)) static void
shim_switch(ShimContext *from, ShimContext *to) {
  __asm__("pushq %rbx\n\tpushq %rbp\n\tpushq %r12\n\tpushq %r13\n\t"
          "pushq %r14\n\tpushq %r15\n\t"
          "movq %rsp, (%rdi)\n\tmovq (%rsi), %rsp\n\t"
          "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\t"
          "popq %rbp\n\tpopq %rbx\n\tret");
}
#else
static void shim_switch(ShimContext *from, ShimContext *to) {
  swapcontext(&from->context, &to->context);
}
#endif

static void shim_entry(void) {
  shim.body(shim.arguments);
  shim.now->state = SHIM_DONE;
  shim_switch(&shim.now->context, &shim.scheduler);
  abort();
}

static void shim_prepare(ShimFiber *fiber, unsigned char *stack) {
#ifndef SHIM_UCONTEXT
  void **top = (void **)(stack + SHIM_STACK_BYTES);
  *--top = NULL; /* keeps the stack aligned as after a call */
  *--top = (void *)shim_entry;
  for (int i = 0; i < 6; i++) *--top = NULL;
  fiber->context.stack_pointer = top;
#else
  getcontext(&fiber->context.context);
  fiber->context.context.uc_stack.ss_sp = stack;
  fiber->context.context.uc_stack.ss_size = SHIM_STACK_BYTES;
  fiber->context.context.uc_link = NULL;
  makecontext(&fiber->context.context, shim_entry, 0);
#endif
}

static void shim_wait(ShimState state) {
  if (!shim.has_fibers) shim_fail("a barrier in a kernel said to have none");
  ShimFiber *me = shim.now;
  me->state = state;
  shim_switch(&me->context, &shim.scheduler);
}

/* ---- what kernels call ---- */

DNN_FN void __syncthreads(void) {
  shim_wait(SHIM_AT_BLOCK);
}
DNN_FN void __syncwarp(void) {
  shim.now->shuffles++;
  shim_wait(SHIM_AT_WARP);
}
DNN_FN void __threadfence(void) {
}

DNN_FN unsigned atomicInc(unsigned *at, unsigned limit) {
  unsigned old = *at;
  *at = old >= limit ? 0 : old + 1;
  return old;
}

/* Gives a value to the other lanes, which shim_slot then finds by `which`, the
 * result, until the next but one meeting. */
static unsigned shim_meet(const void *value, size_t n) {
  ShimFiber *me = shim.now;
  unsigned which = me->shuffles++ % 2;
  memcpy(me->slot[which], value, n);
  shim_wait(SHIM_AT_WARP);
  return which;
}

static unsigned shim_lane(void) {
  return (unsigned)(shim.now - shim.fibers) % 32;
}

static const unsigned char *shim_slot(unsigned lane, unsigned which) {
  return (shim.now - shim_lane() + lane)->slot[which];
}

static void shim_exchange(unsigned mask, void *value, size_t n, int lane_xor) {
  if (mask != 0xffffffffu) shim_fail("a shuffle of part of a warp");
  unsigned which = shim_meet(value, n);
  unsigned other = shim_lane() ^ (unsigned)lane_xor;
  if (shim.now - shim.fibers - shim_lane() + other >= shim.n_threads)
    shim_fail("a shuffle with a lane beyond the end");
  memcpy(value, shim_slot(other, which), n);
}

/* A bit for each lane whose value is not 0. */
DNN_FN unsigned __ballot_sync(unsigned mask, int value) {
  if (mask != 0xffffffffu) shim_fail("a ballot of part of a warp");
  unsigned which = shim_meet(&value, sizeof value), all = 0;
  for (unsigned lane = 0; lane < 32; lane++) {
    int theirs;
    memcpy(&theirs, shim_slot(lane, which), sizeof theirs);
    all |= (unsigned)(theirs != 0) << lane;
  }
  return all;
}
#define __popc(bits) __builtin_popcount(bits)

#define SHIM_SHUFFLE(type, name)                                               \
  DNN_FN type shim_shuffle_##name(unsigned mask, type value, int lane_xor) {   \
    shim_exchange(mask, &value, sizeof value, lane_xor);                       \
    return value;                                                              \
  }
SHIM_SHUFFLE(float, f32)
SHIM_SHUFFLE(double, f64)
SHIM_SHUFFLE(int, i32)
SHIM_SHUFFLE(long long, i64)
#define __shfl_xor_sync(mask, value, lane_xor)                                 \
  _Generic((value), float                                                      \
           : shim_shuffle_f32, double                                          \
           : shim_shuffle_f64, int                                             \
           : shim_shuffle_i32, long long                                       \
           : shim_shuffle_i64)(mask, value, lane_xor)

/* ---- tensor cores ---- */

/* d += a b for a warp, 16 x 16 times 16 x 8, as mma.sync.m16n8k16 places the
 * elements: lane 4 g + t has of a the rows g and g + 8, of b the column g, of d
 * the columns 2 t and 2 t + 1 (PTX ISA, "Matrix fragments for mma.m16n8k16").
 */
DNN_FN void shim_mma(float *d, const unsigned *a, const unsigned *b,
                     float (*number)(unsigned short)) {
  unsigned mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  unsigned which = shim_meet(mine, sizeof mine), lane = shim_lane();
  for (unsigned k = 0; k < 16; k++) {
    unsigned from = k % 8 / 2, part = 16 * (k % 2);
    for (unsigned i = 0; i < 4; i++) {
      unsigned row = lane / 4, column = 2 * (lane % 4) + i % 2, x, y;
      memcpy(&x, shim_slot(4 * row + from, which) + 4 * (i / 2 + k / 8 * 2), 4);
      memcpy(&y, shim_slot(4 * column + from, which) + 4 * (4 + k / 8), 4);
      d[i] += number((unsigned short)(x >> part)) *
              number((unsigned short)(y >> part));
    }
  }
}

/* Four matrices of 8 x 8 elements; lane 8 i + r gives the row r of matrix i, of
 * which lane 4 g + t gets the elements 2 t and 2 t + 1 of row g, or with
 * `trans` those of column g. */
DNN_FN void shim_ldmatrix(unsigned *r, const unsigned short *row, int trans) {
  if ((uintptr_t)row % 16 != 0) shim_fail("a row of a matrix is not aligned");
  unsigned which = shim_meet(row, 16), lane = shim_lane();
  for (unsigned i = 0; i < 4; i++) {
    unsigned short e[2];
    for (unsigned j = 0; j < 2; j++) {
      unsigned at = 2 * (lane % 4) + j, other = lane / 4;
      memcpy(&e[j],
             shim_slot(8 * i + (trans ? at : other), which) +
                 2 * (trans ? other : at),
             2);
    }
    r[i] = e[0] | (unsigned)e[1] << 16;
  }
}

/* ---- running ---- */

static unsigned shim_random(unsigned *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

/* 0..n-1 in an order drawn from the state; as given if that is 0. */
static void shim_shuffle_order(unsigned *order, unsigned n, unsigned *state) {
  for (unsigned i = 0; i < n; i++) order[i] = i;
  for (unsigned i = n; *state && i > 1; i--) {
    unsigned k = shim_random(state) % i, saved = order[i - 1];
    order[i - 1] = order[k];
    order[k] = saved;
  }
}

static void shim_run_lane(ShimFiber *fiber) {
  shim.now = fiber;
  shim_switch(&shim.scheduler, &fiber->context);
}

/* Runs every ready lane of a warp; says whether any ran. */
static int shim_run_warp(unsigned first, unsigned end) {
  int ran = 0, at_warp = 0, done = 0;
  unsigned shuffles = 0;
  for (unsigned i = first; i < end; i++)
    if (shim.fibers[i].state == SHIM_READY) {
      shim_run_lane(&shim.fibers[i]);
      ran = 1;
    }
  for (unsigned i = first; i < end; i++) {
    ShimFiber *fiber = &shim.fibers[i];
    if (fiber->state == SHIM_AT_WARP) {
      if (at_warp && fiber->shuffles != shuffles)
        shim_fail("lanes of a warp are at different shuffles");
      at_warp++;
      shuffles = fiber->shuffles;
    }
    done += fiber->state == SHIM_DONE;
  }
  if (at_warp == 0) return ran;
  if (at_warp != (int)(end - first))
    shim_fail(done ? "a shuffle after lanes of the warp have ended"
                   : "some lanes are at a shuffle, others at a barrier");
  for (unsigned i = first; i < end; i++) shim.fibers[i].state = SHIM_READY;
  return 1;
}

static void shim_release_block(void) {
  unsigned waiting = 0, done = 0;
  for (unsigned i = 0; i < shim.n_threads; i++) {
    waiting += shim.fibers[i].state == SHIM_AT_BLOCK;
    done += shim.fibers[i].state == SHIM_DONE;
  }
  if (done == shim.n_threads) return;
  if (waiting != shim.n_threads)
    shim_fail(done ? "a barrier after threads of the block have ended"
                   : "threads wait for each other");
  for (unsigned i = 0; i < shim.n_threads; i++)
    shim.fibers[i].state = SHIM_READY;
}

static void shim_start_thread(unsigned i) {
  ShimFiber *fiber = &shim.fibers[i];
  fiber->thread = (ShimDim){i % shim.block_size.x,
                            i / shim.block_size.x % shim.block_size.y,
                            i / shim.block_size.x / shim.block_size.y};
  fiber->state = SHIM_READY;
  fiber->shuffles = 0;
}

static void shim_run_fibers(unsigned *seed) {
  unsigned n_warps = (shim.n_threads + 31) / 32, order[SHIM_MAX_THREADS / 32];
  for (unsigned i = 0; i < shim.n_threads; i++) {
    shim_start_thread(i);
    shim_prepare(&shim.fibers[i], shim.stacks + (size_t)i * SHIM_STACK_BYTES);
  }
  for (;;) {
    int ran = 0;
    shim_shuffle_order(order, n_warps, seed);
    for (unsigned w = 0; w < n_warps; w++) {
      unsigned first = order[w] * 32, end = first + 32;
      ran |= shim_run_warp(first, end < shim.n_threads ? end : shim.n_threads);
    }
    if (!ran) shim_release_block();
    unsigned done = 0;
    for (unsigned i = 0; i < shim.n_threads; i++)
      done += shim.fibers[i].state == SHIM_DONE;
    if (done == shim.n_threads) return;
  }
}

static void shim_run_loop(void) {
  for (unsigned i = 0; i < shim.n_threads; i++) {
    shim_start_thread(i);
    shim.now = &shim.fibers[i];
    shim.body(shim.arguments);
  }
}

/* Walking by a number without a common divisor visits every block once. */
static unsigned shim_block_stride(unsigned n, unsigned *seed) {
  if (!*seed) return 1;
  unsigned stride = 1 + shim_random(seed) % n;
  for (;; stride++) {
    unsigned a = stride, b = n;
    while (b) {
      unsigned rest = a % b;
      a = b;
      b = rest;
    }
    if (a == 1) return stride;
  }
}

/* Blocks along x only; 0 if the launch is one that kernels never ask for. */
static __attribute__((unused)) int shim_launch(void (*body)(const void *),
                                               const void *arguments,
                                               const unsigned *grid,
                                               const unsigned *block,
                                               int fibers, unsigned seed) {
  unsigned n = block[0] * block[1] * block[2];
  if (n == 0 || n > SHIM_MAX_THREADS || grid[1] != 1 || grid[2] != 1) return 0;
  if (!shim.stacks && fibers) {
    shim.stacks = mmap(NULL, (size_t)SHIM_MAX_THREADS * SHIM_STACK_BYTES,
                       PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shim.stacks == MAP_FAILED) abort();
  }
  shim.body = body;
  shim.arguments = arguments;
  shim.block_size = (ShimDim){block[0], block[1], block[2]};
  shim.grid_size = (ShimDim){grid[0], grid[1], grid[2]};
  shim.n_threads = n;
  shim.has_fibers = fibers;
  unsigned stride = shim_block_stride(grid[0], &seed);
  for (unsigned i = 0; i < grid[0]; i++) {
    shim.block = (ShimDim){(unsigned)((uint64_t)i * stride % grid[0]), 0, 0};
    if (fibers) {
      shim_run_fibers(&seed);
    } else {
      shim_run_loop();
    }
  }
  return 1;
}

#define DNN_KERNEL(name, threads, waits)                                       \
  static void name##_thread(const name##_args args);                           \
  static void name##_body(const void *arguments) {                             \
    name##_thread(*(const name##_args *)arguments);                            \
  }                                                                            \
  int name(const void *arguments, const unsigned *grid, const unsigned *block, \
           unsigned seed) {                                                    \
    return block[0] * block[1] * block[2] <= (threads) &&                      \
           shim_launch(name##_body, arguments, grid, block, waits, seed);      \
  }                                                                            \
  const unsigned name##_bytes = sizeof(name##_args);                           \
  static void name##_thread(const name##_args args)

#endif
