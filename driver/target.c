/*
 * target.c -- chooses the back end that the options name and lets it ask the
 * libraries of this machine how much scratch memory they want.
 */
#include "driver/internal.h"
#include "runtime/cpu/cpu.h"

#include <pthread.h>
#include <string.h>

/* A model has few kinds of matmuls, in many layers, and a library takes long to
 * answer: each kind is asked for once, by whatever thread needs it first. */
typedef struct ScratchCache {
  pthread_mutex_t lock;
  struct {
    DnnGemm gemm;
    int64_t bytes;
  } known[64];
  int n;
} ScratchCache;

static int64_t find_gemm_scratch(ScratchCache *cache, const DnnGemm *gemm) {
  for (int i = 0; i < cache->n; i++)
    if (!memcmp(&cache->known[i].gemm, gemm, sizeof *gemm))
      return cache->known[i].bytes;
  int64_t bytes = cpu_gemm_scratch(gemm);
  if (cache->n < ARRAY_LENGTH(cache->known)) {
    memcpy(&cache->known[cache->n].gemm, gemm, sizeof *gemm);
    cache->known[cache->n++].bytes = bytes;
  }
  return bytes;
}

static int64_t gemm_scratch(const Target *target, const void *gemm) {
  ScratchCache *cache = target->user;
  pthread_mutex_lock(&cache->lock);
  int64_t bytes = find_gemm_scratch(cache, gemm);
  pthread_mutex_unlock(&cache->lock);
  return bytes;
}

static int64_t conv_scratch(const Target *target, const void *conv) {
  ScratchCache *cache = target->user;
  pthread_mutex_lock(&cache->lock);
  int64_t bytes = cpu_conv_scratch(conv);
  pthread_mutex_unlock(&cache->lock);
  return bytes;
}

Status driver_read_target(Compilation *c) {
  Arena *arena = c->module->arena;
  const char *target = c->options->target;
  if (!target && c->cluster)
    target = driver_cluster_target(c->cluster, c->options->ranks);
  TRY(backend_read_target(arena, target, &c->target));
  Backend *own =
      arena_copy(arena, c->target.backend, sizeof *c->target.backend);
  /* The figures of a model do not depend on this machine. */
  if (own->uses_host_libraries && !c->options->is_model_only) {
    own->target.gemm_scratch = gemm_scratch;
    own->target.conv_scratch = conv_scratch;
    ScratchCache *cache = ARENA_NEW(arena, ScratchCache);
    pthread_mutex_init(&cache->lock, NULL);
    own->target.user = cache;
  }
  c->target.backend = own;
  return STATUS_OK;
}
