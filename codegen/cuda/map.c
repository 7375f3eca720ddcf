/*
 * map.c -- chooses how the points of a loop nest map to CUDA threads.
 *
 * Neighbouring threads should touch neighbouring bytes, and there should be
 * enough threads.  The choice depends on the nest alone, so that the order of
 * additions does not depend on the GPU.
 */
#include "codegen/cuda/emit.h"

#define TARGET_BLOCKS 264       /* two for each multiprocessor of a large GPU */
#define MANY_POINTS   (1 << 16) /* enough for a thread each */
#define MAX_BLOCKS    16384     /* then threads loop */
#define MAX_PARTIALS  (1 << 16) /* static memory of a split stage */

int64_t nest_outer_points(const Nest *nest) {
  int64_t n = 1;
  for (int i = 0; i < nest->n_outer; i++) n *= nest->outer[i].extent;
  return n;
}

int64_t stage_points(const NestStage *stage) {
  int64_t n = 1;
  for (int i = 0; i < stage->n_inner; i++) n *= stage->inner[i].extent;
  return n;
}

int64_t stage_extent(const Nest *nest, const NestStage *stage, int loop) {
  return loop < nest->n_outer ? nest->outer[loop].extent
                              : stage->inner[loop - nest->n_outer].extent;
}

/* Row-major without overlap: sorted by stride, each is at least the span of
 * the smaller ones. */
bool accumulates_in_order(const Nest *nest, const NestStage *stage,
                          const NestStmt *stmt) {
  if (stmt->kind != NEST_accumulate) return false;
  if (stmt->at->n_dynamic > 0) return true;
  bool is_used[MAX_LOOPS] = {false};
  int64_t span = 1;
  for (int n = 0; n < stage->n_inner; n++) {
    int least = -1;
    int64_t least_stride = INT64_MAX;
    for (int i = 0; i < stage->n_inner; i++) {
      int64_t stride = stmt->at->stride[nest->n_outer + i];
      if (is_used[i] || stride > least_stride) continue;
      least = i;
      least_stride = stride;
    }
    is_used[least] = true;
    if (stage->inner[least].extent == 1) continue;
    if (least_stride < span) return true;
    span = least_stride * stage->inner[least].extent;
  }
  return false;
}

/* Returns whether loops of a statement, from `n` of them in the order of
 * falling strides, can move by `distance`; each by less than its extent either
 * way. */
static bool can_move_by(const NestStage *stage, const int64_t *stride,
                        int64_t distance, bool *is_used) {
  int most = -1;
  for (int i = 0; i < stage->n_inner; i++)
    if (!is_used[i] && stage->inner[i].extent > 1 &&
        (most < 0 || stride[i] > stride[most]))
      most = i;
  if (most < 0) return distance == 0;
  is_used[most] = true;
  int64_t near = distance / stride[most];
  bool can = false;
  for (int64_t steps = near - 1; steps <= near + 1 && !can; steps++)
    can = (steps < 0 ? -steps : steps) < stage->inner[most].extent &&
          can_move_by(stage, stride, distance - steps * stride[most], is_used);
  is_used[most] = false;
  return can;
}

/* Two sums of places that are each other's in different iterations. */
static bool collide(const Nest *nest, const NestStage *stage, const NestStmt *a,
                    const NestStmt *b) {
  bool is_used[MAX_LOOPS] = {false};
  if (a->target != b->target) return false;
  for (int i = 0; i < stage->n_inner; i++)
    if (a->at->stride[nest->n_outer + i] != b->at->stride[nest->n_outer + i])
      return true;
  int64_t distance = b->at->base - a->at->base;
  return distance != 0 &&
         can_move_by(stage, &a->at->stride[nest->n_outer], distance, is_used);
}

bool stage_takes_turns(const Nest *nest, const NestStage *stage) {
  for (int i = 0; i < stage->stmts.n; i++)
    for (int k = 0; k < i; k++) {
      const NestStmt *a = &stage->stmts.data[i], *b = &stage->stmts.data[k];
      if (a->kind == NEST_accumulate && b->kind == NEST_accumulate &&
          !accumulates_in_order(nest, stage, a) &&
          !accumulates_in_order(nest, stage, b) && collide(nest, stage, a, b))
        return true;
    }
  return false;
}

/* ---- buffers that a stage touches ---- */

static void mark_needed(const Nest *nest, int expr, bool *marks) {
  if (expr < 0 || marks[expr]) return;
  marks[expr] = true;
  const NestExpr *e = &nest->exprs.data[expr];
  for (int i = 0; i < 3; i++)
    if (e->kind == NEST_pw || e->kind == NEST_cast || e->kind == NEST_random)
      mark_needed(nest, e->args[i], marks);
  for (int i = 0; e->at && i < e->at->n_dynamic; i++)
    mark_needed(nest, e->at->dynamic[i].expr, marks);
}

static bool stage_touches(const Nest *nest, const NestStage *stage, int buffer,
                          bool stores_count) {
  for (int i = 0; i < stage->stmts.n; i++) {
    const NestStmt *stmt = &stage->stmts.data[i];
    bool counts = stmt->kind == NEST_accumulate ||
                  (stmt->kind == NEST_store && stores_count);
    if (counts && stmt->target == buffer) return true;
  }
  bool marks[4096] = {false};
  ASSERT(nest->exprs.n <= ARRAY_LENGTH(marks));
  for (int i = 0; i < stage->stmts.n; i++) {
    const NestStmt *stmt = &stage->stmts.data[i];
    mark_needed(nest, stmt->expr, marks);
    for (int k = 0; stmt->at && k < stmt->at->n_dynamic; k++)
      mark_needed(nest, stmt->at->dynamic[k].expr, marks);
  }
  for (int e = 0; e < nest->exprs.n; e++)
    if (marks[e] && nest->exprs.data[e].kind == NEST_load &&
        nest->exprs.data[e].index == buffer)
      return true;
  return false;
}

static bool is_touched_later(const Nest *nest, int stage, bool stores_count) {
  for (int s = 0; s <= stage; s++) {
    const NestStage *writer = &nest->stages.data[s];
    for (int i = 0; i < writer->stmts.n; i++) {
      if (writer->stmts.data[i].kind == NEST_reduce) continue;
      for (int r = stage + 1; r < nest->stages.n; r++)
        if (stage_touches(nest, &nest->stages.data[r],
                          writer->stmts.data[i].target, stores_count))
          return true;
    }
  }
  return false;
}

bool stage_is_read_later(const Nest *nest, int stage) {
  return nest->steps.n > 0 || is_touched_later(nest, stage, true);
}

static bool can_be_flat(const Nest *nest) {
  if (nest->steps.n > 0) return false;
  for (int s = 0; s < nest->stages.n; s++) {
    const NestStage *stage = &nest->stages.data[s];
    if (stage_takes_turns(nest, stage)) return false;
    for (int i = 0; i < stage->stmts.n; i++) {
      const NestStmt *stmt = &stage->stmts.data[i];
      if (stmt->kind == NEST_reduce || accumulates_in_order(nest, stage, stmt))
        return false;
    }
  }
  /* Stages that write one buffer write different places of it (concat). */
  for (int s = 0; s + 1 < nest->stages.n; s++)
    if (is_touched_later(nest, s, false)) return false;
  return true;
}

bool nest_is_wide(const Nest *nest) {
  const int64_t limit = INT64_C(1) << 30;
  for (int i = 0; i < nest->buffers.n; i++)
    if (nest->buffers.data[i].elements >= limit) return true;
  int64_t outer = nest_outer_points(nest);
  for (int s = 0; s < nest->stages.n; s++)
    if (outer * stage_points(&nest->stages.data[s]) >= limit) return true;
  return false;
}

/* ---- vectors of four ---- */

static bool index_is_vector(const NestIndex *at, int last) {
  if (at->n_dynamic > 0 || at->n_guards > 0) return false;
  if (at->stride[last] == 0) return true;
  if (at->stride[last] != 1 || at->base % 4 != 0) return false;
  for (int i = 0; i < last; i++)
    if (at->stride[i] % 4 != 0) return false;
  return true;
}

bool stage_is_vector(const Nest *nest, const NestStage *stage) {
  int last = nest->n_outer + stage->n_inner - 1;
  if (last < 0 || stage_extent(nest, stage, last) % 4 != 0) return false;
  for (int i = 0; i < stage->stmts.n; i++) {
    const NestStmt *stmt = &stage->stmts.data[i];
    if (stmt->kind != NEST_store || !index_is_vector(stmt->at, last) ||
        stmt->at->stride[last] == 0 || dtype_size_bytes(stmt->dtype) > 4)
      return false;
  }
  bool marks[4096] = {false};
  ASSERT(nest->exprs.n <= ARRAY_LENGTH(marks));
  for (int i = 0; i < stage->stmts.n; i++)
    mark_needed(nest, stage->stmts.data[i].expr, marks);
  for (int e = 0; e < nest->exprs.n; e++) {
    const NestExpr *expr = &nest->exprs.data[e];
    if (!marks[e] || !expr->at || expr->at->stride[last] == 0) continue;
    if (!index_is_vector(expr->at, last) || dtype_size_bytes(expr->dtype) > 4)
      return false;
  }
  return true;
}

/* ---- the choice ---- */

/* Accesses that walk neighbouring elements along the inner minus along the
 * outer loops. */
static int row_votes(const Nest *nest, const NestStage *stage) {
  if (stage->n_inner == 0) return 0;
  int inner = nest->n_outer + stage->n_inner - 1, outer = nest->n_outer - 1;
  bool marks[4096] = {false};
  ASSERT(nest->exprs.n <= ARRAY_LENGTH(marks));
  int votes = 0;
  for (int i = 0; i < stage->stmts.n; i++) {
    const NestStmt *stmt = &stage->stmts.data[i];
    mark_needed(nest, stmt->expr, marks);
    if (!stmt->at) continue;
    votes += stmt->at->stride[inner] == 1;
    votes -= outer >= 0 && stmt->at->stride[outer] == 1;
  }
  for (int e = 0; e < nest->exprs.n; e++) {
    const NestIndex *at = nest->exprs.data[e].at;
    if (!marks[e] || !at) continue;
    votes += at->stride[inner] == 1;
    votes -= outer >= 0 && at->stride[outer] == 1;
  }
  return votes;
}

static int64_t widest_stage(const Nest *nest) {
  int64_t most = 1;
  for (int s = 0; s < nest->stages.n; s++) {
    int64_t n = stage_points(&nest->stages.data[s]);
    if (n > most) most = n;
  }
  return most;
}

/* The greatest power of two up to `limit` that is at most n. */
static int power_up_to(int64_t n, int limit) {
  int power = 1;
  while (power * 2 <= limit && power * 2 <= n) power *= 2;
  return power;
}

static bool can_split(const Nest *nest) {
  const NestStage *stage = &nest->stages.data[0];
  bool has_reduction = false;
  /* The last block would read elements that others have stored. */
  if (nest->steps.n > 0 || is_touched_later(nest, 0, false)) return false;
  for (int i = 0; i < stage->stmts.n; i++) {
    const NestStmt *stmt = &stage->stmts.data[i];
    if (accumulates_in_order(nest, stage, stmt)) return false;
    if (stmt->kind != NEST_reduce) continue;
    if (stmt->reduce == NEST_argmax) return false;
    has_reduction = true;
  }
  return has_reduction && nest->stages.n > 1;
}

static void choose_splits(const Nest *nest, Mapping *map) {
  map->splits = 1;
  int64_t inner = stage_points(&nest->stages.data[0]);
  if (!can_split(nest) || map->tiles * 4 > TARGET_BLOCKS) return;
  int64_t splits = TARGET_BLOCKS / map->tiles;
  int64_t worth = inner / ((int64_t)map->group * 16);
  if (splits > worth) splits = worth;
  if (splits > MAX_PARTIALS / map->outer) splits = MAX_PARTIALS / map->outer;
  if (splits > 1) map->splits = (int)splits;
}

/* Matmuls and convolutions read each element many times, from caches: the order
 * of threads matters little then, and joining sums costs. */
static bool reads_repeatedly(const Nest *nest, int64_t points) {
  int64_t elements = 0;
  for (int i = 0; i < nest->buffers.n; i++)
    elements += nest->buffers.data[i].elements;
  return points / 4 > elements;
}

static void group_mapping(const Nest *nest, Mapping *map) {
  int64_t inner = widest_stage(nest);
  int votes = 0;
  if (map->outer >= MANY_POINTS / 2 &&
      reads_repeatedly(nest, map->outer * inner)) {
    map->group = 1;
    map->points = 128;
    return;
  }
  for (int s = 0; s < nest->stages.n; s++)
    votes += row_votes(nest, &nest->stages.data[s]);
  map->is_row = map->outer == 1 || votes > 0;
  if (map->is_row && inner >= 16) {
    bool fits_warps = map->outer >= 1024 && inner <= 4096;
    map->group = inner <= 64 || fits_warps ? 32 : power_up_to(inner, 256);
    if (inner >= 8192 && map->outer < 1024) map->group = 512;
    map->points = map->group == 32 ? 8 : 1;
    if (map->outer < map->points) map->points = 1;
    return;
  }
  map->is_row = false;
  bool is_many = map->outer >= MANY_POINTS || inner < 8;
  map->group = is_many ? 1 : power_up_to(inner / 4, 16);
  map->points = map->group == 1 ? 128 : 32;
}

Mapping cuda_map(const Nest *nest) {
  Mapping map = {.splits = 1, .outer = nest_outer_points(nest)};
  if (can_be_flat(nest)) {
    int64_t most = map.outer * widest_stage(nest);
    map.is_flat = true;
    map.threads = 256;
    map.blocks = (most + map.threads - 1) / map.threads;
  } else {
    group_mapping(nest, &map);
    map.threads = map.points * map.group;
    map.tiles = (map.outer + map.points - 1) / map.points;
    choose_splits(nest, &map);
    map.blocks = map.tiles;
  }
  if (map.blocks > MAX_BLOCKS) map.blocks = MAX_BLOCKS;
  if (map.blocks < 1) map.blocks = 1;
  if (map.splits > 1) map.blocks = map.tiles * map.splits;
  return map;
}
