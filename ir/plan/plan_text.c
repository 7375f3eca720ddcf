/*
 * plan_text.c -- prints a plan (docs/plan.md, section 11).
 *
 *     mesh {
 *       data = 4
 *     }
 *
 *     plan gpt2 {
 *       microbatches = 8
 *       zero         = 0
 *       bucket       = 25MB
 *
 *       shard B over data
 *
 *       replicate ffn[0..2].y
 *     }
 *
 * plan_lines.c chooses the lines of paths.  The sequential axis of
 * micro-batches is not shown: `microbatches` implies it.
 */
#include "ir/plan/plan_lines.h"

#include <string.h>

/* ---- a line of paths ---- */

/* The words of the language, and those of a plan. */
static bool is_language_word(const char *text, bool is_in_plan) {
  static const struct {
    const char *text;
    bool is_of_plan;
  } words[] = {
#define WORD(text, token)      {text, false},
#define PLAN_WORD(text, token) {text, true},
#include "ir/text/words.def"
  };
  for (int i = 0; i < ARRAY_LENGTH(words); i++)
    if (words[i].is_of_plan <= is_in_plan && !strcmp(words[i].text, text))
      return true;
  return false;
}

/* A word of the language or, in front, of a plan must stand in quotes. */
static bool needs_quotes(Names *names, const char *path) {
  if (*path == '!') return true;
  for (const char *at = path; *at; at += *at != '\0') {
    size_t n = strcspn(at, ".![");
    if (is_language_word(name_intern_n(names, at, (int)n), at == path))
      return true;
    at += strcspn(at, ".!");
  }
  return false;
}

const char *line_places_text(Arena *arena, const LinePlaces *places) {
  Text out = text_create(arena);
  for (int k = 0; k < places->n; k++) {
    const LinePlace *place = &places->data[k];
    bool is_list = place->n_axes > 1;
    text_printf(&out, "%s%s over %s", k ? ", " : "", place->dim,
                is_list ? "(" : "");
    for (int i = 0; i < place->n_axes; i++)
      text_printf(&out, "%s%s", i ? ", " : "", place->axes[i]);
    if (is_list) text_add(&out, ")");
  }
  return text_string(&out);
}

const char *line_text(LineMaker *maker, const PathLine *line) {
  const char *places = line_places_text(maker->arena, &line->places);
  const char *head = *places ? "shard" : "replicate";
  if (line->kind == LINE_remat) head = "remat";
  if (line->kind == LINE_keep) head = "keep";
  if (line->kind == LINE_offload) head = "offload";
  const char *quote =
      needs_quotes(maker->module->names, line->path) ? "\"" : "";
  return arena_printf(maker->arena, "%s %s%s%s%s%s", head, quote, line->path,
                      quote, *places ? ": " : "", places);
}

/* ---- the plan ---- */

static void print_mesh(Text *out, const Plan *plan) {
  const Mesh *mesh = plan_mesh(plan);
  text_add(out, "mesh {\n");
  int width = plan->has_cuts ? 4 : 0;
  for (int i = 0; i < mesh->n_axes; i++) {
    int n = 0;
    while (mesh->axes[i].name[n]) n++;
    if (!mesh->axes[i].is_sequential && n > width) width = n;
  }
  if (plan->has_cuts)
    text_printf(out, "  %-*s = %d\n", width, "pipe",
                plan->ranks / mesh_ranks(&plan->mesh));
  for (int i = 0; i < mesh->n_axes; i++) {
    const MeshAxis *axis = &mesh->axes[i];
    if (axis->is_sequential) continue;
    text_printf(out, "  %-*s = %d\n", width, axis->name, axis->size);
  }
  text_add(out, "}\n");
}

static void print_bytes(Text *out, int64_t bytes) {
  static const struct {
    int64_t size;
    const char *unit;
  } units[] = {{1000000000, "GB"}, {1000000, "MB"}, {1000, "KB"}, {1, "B"}};
  int i = 0;
  while (bytes % units[i].size) i++;
  text_printf(out, "%lld%s", (long long)(bytes / units[i].size), units[i].unit);
}

static void print_setting(Text *out, const char *name, int64_t bytes) {
  text_printf(out, "  %-12s = ", name);
  print_bytes(out, bytes);
  text_add(out, "\n");
}

static void print_over(Text *out, const PlanShard *shard) {
  int n = shard->n_axes;
  text_printf(out, " over %s", n > 1 ? "(" : "");
  for (int i = 0; i < n; i++)
    text_printf(out, "%s%s", i ? ", " : "", shard->axes[i]);
  text_add(out, n > 1 ? ")" : n ? "" : "none");
}

/* Without axes: `over none`, because a dim without a pin may be sharded. */
static void print_shard(Text *out, const PlanShard *shard) {
  text_printf(out, "  shard %s", shard->dim);
  print_over(out, shard);
  text_add(out, "\n");
}

const char *plan_attention_name(PlanAttention attention) {
  static const char *const names[] = {[ATTENTION_gather] = "gather",
                                      [ATTENTION_ring] = "ring",
                                      [ATTENTION_ulysses] = "ulysses"};
  return names[attention];
}

const char *plan_compress_name(PlanCompress compress) {
  static const char *const names[] = {[COMPRESS_none] = "none",
                                      [COMPRESS_bf16] = "bf16",
                                      [COMPRESS_f16] = "f16",
                                      [COMPRESS_power] = "power"};
  return names[compress];
}

const char *plan_compress_text(Arena *arena, PlanCompress compress,
                               int64_t rank) {
  const char *name = plan_compress_name(compress);
  if (compress != COMPRESS_power) return name;
  return arena_printf(arena, "%s(rank = %lld)", name, (long long)rank);
}

DType plan_compressed_dtype(const Plan *plan, DType dtype) {
  if (dtype != DT_f32) return dtype;
  if (plan->compress == COMPRESS_bf16) return DT_bf16;
  return plan->compress == COMPRESS_f16 ? DT_f16 : dtype;
}

/* Without axes ZeRO is over those of the batch. */
static bool has_own_zero_axes(const Plan *plan) {
  const PlanShard *zero = &plan->zero_over, *batch = plan_batch_shard(plan);
  bool is_alike = batch && batch->n_axes == zero->n_axes;
  for (int a = 0; a < zero->n_axes && is_alike; a++)
    is_alike = batch->axes[a] == zero->axes[a];
  return zero->n_axes > 0 && !is_alike;
}

static void print_own_mesh(Text *out, const Mesh *mesh) {
  int n = 0;
  text_add(out, " as (");
  for (int i = 0; i < mesh->n_axes; i++)
    if (!mesh->axes[i].is_sequential)
      text_printf(out, "%s%s = %d", n++ ? ", " : "", mesh->axes[i].name,
                  mesh->axes[i].size);
  text_add(out, ")");
}

static void print_ranks(Text *out, const PlanStage *stage) {
  text_printf(out, " on %d", stage->first_rank);
  if (stage->n_ranks > 1)
    text_printf(out, "..%d", stage->first_rank + stage->n_ranks - 1);
}

void plan_print_stage(Text *out, const Plan *plan, int s, const char *more,
                      bool has_ranks) {
  const PlanStage *stage = &plan->stages.data[s];
  if (plan->has_cuts)
    text_add(out, "cut after");
  else
    text_printf(out, "stage %d:", s);
  for (int i = 0; i < stage->paths.n; i++)
    text_printf(out, "%s%s", i ? ", " : " ", stage->paths.data[i].text);
  if (more) text_printf(out, ", %s", more);
  if (!has_ranks) return;
  print_ranks(out, stage);
  if (plan->has_meshes && !stage_meshes_equal(&stage->mesh, plan_mesh(plan)))
    print_own_mesh(out, &stage->mesh);
}

static void print_places(Text *out, const Plan *plan) {
  for (int i = 0; i < plan->places.n; i++) {
    const PlanStage *place = &plan->places.data[i];
    text_add(out, i ? "  place" : "\n  place");
    for (int k = 0; k < place->paths.n; k++)
      text_printf(out, "%s%s", k ? ", " : " ", place->paths.data[k].text);
    print_ranks(out, place);
    text_add(out, "\n");
  }
}

static void print_stages(Text *out, const Plan *plan) {
  int n = plan->stages.n - plan->has_cuts;
  for (int s = 0; s < n; s++) {
    text_add(out, s ? "  " : "\n  ");
    plan_print_stage(out, plan, s, NULL, !plan->has_cuts);
    text_add(out, "\n");
  }
}

/* The hash is of the calls in the file, so plans with equal texts are equal. */
static void print_schedule(Text *out, const Plan *plan) {
  if (!plan->schedule) return;
  text_printf(out, "  schedule     = %s", plan->schedule);
  if (plan->list) {
    char hash[33];
    Text list = text_create(out->arena);
    pipeline_print(&list, plan->list);
    hash_hex(text_string(&list), list.n, hash);
    text_printf(out, "  # %s", hash);
  }
  text_add(out, "\n");
}

void plan_print(Text *out, const Plan *plan) {
  print_mesh(out, plan);
  text_printf(out, "\nplan %s {\n", plan->name);
  print_schedule(out, plan);
  text_printf(out, "  microbatches = %lld\n", (long long)plan->microbatches);
  text_printf(out, "  zero         = %d", plan->zero);
  if (has_own_zero_axes(plan)) print_over(out, &plan->zero_over);
  text_add(out, "\n");
  if (plan->bucket_bytes > 0) print_setting(out, "bucket", plan->bucket_bytes);
  if (plan->prefetch_bytes > 0)
    print_setting(out, "prefetch", plan->prefetch_bytes);
  if (plan->memory_bytes > 0) print_setting(out, "memory", plan->memory_bytes);
  if (plan->attention)
    text_printf(out, "  attention    = %s\n",
                plan_attention_name(plan->attention));
  if (plan->reduces_bf16) text_add(out, "  reduce       = bf16\n");
  if (plan->compress)
    text_printf(
        out, "  compress     = %s\n",
        plan_compress_text(out->arena, plan->compress, plan->compress_rank));
  if (plan->border.n_axes > 0) {
    text_add(out, "  sync         = hierarchical");
    print_over(out, &plan->border);
    text_add(out, "\n");
  }
  if (plan->servers.n > 0)
    text_printf(out, "  sync         = %s\n",
                plan_servers_text(out->arena, &plan->servers));
  if (plan->places.n > 0)
    print_places(out, plan);
  else
    print_stages(out, plan);
  bool is_first = true;
  for (int i = 0; i < plan->shards.n; i++) {
    const PlanShard *shard = &plan->shards.data[i];
    bool wins = plan_find_shard(plan, shard->dim) == shard;
    if (plan->ranks <= 1 || !wins) continue; /* `microbatches` says it */
    if (is_first) text_add(out, "\n");
    is_first = false;
    print_shard(out, shard);
  }
  for (int i = 0; i < plan->lines.n; i++)
    text_printf(out, "%s  %s\n", i ? "" : "\n", plan->lines.data[i]);
  text_add(out, "}\n");
}
