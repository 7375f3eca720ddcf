/*
 * show_stages.c -- prints which ranks hold which blocks under a plan with
 * stages, and what the stages send to each other.
 *
 *     stages    ranks   parameters          bytes  blocks
 *          0     0..1         1976          10240  wte, wpe, block[0..5]
 *
 * A block is the path of a parameter up to its first index, or without its last
 * word.  HeldBlocks that follow each other in numbers are one.  Stages that are
 * alike, and messages of equal bytes between neighbours, are one row.
 */
#include "tools/show/show_stages.h"

#include <stdlib.h>
#include <string.h>

/* ---- blocks ---- */

typedef struct HeldBlock {
  Name name;           /* "block" */
  int64_t first, last; /* index; -1: it has none */
} HeldBlock;

typedef VEC(HeldBlock) HeldBlocks;

static HeldBlock block_of(Names *names, const char *path) {
  const char *bracket = strchr(path, '['), *dot = strrchr(path, '.');
  size_t n = bracket ? (size_t)(bracket - path)
             : dot   ? (size_t)(dot - path)
                     : strlen(path);
  int64_t index = bracket ? strtoll(bracket + 1, NULL, 10) : -1;
  return (HeldBlock){name_intern_n(names, path, n), index, index};
}

static void add_block(Arena *arena, HeldBlocks *blocks, HeldBlock block) {
  for (int i = 0; i < blocks->n; i++) {
    HeldBlock *known = &blocks->data[i];
    if (known->name != block.name || block.first < known->first ||
        block.first > known->last + 1)
      continue;
    if (block.first > known->last) known->last = block.first;
    return;
  }
  vec_push(arena, blocks, block);
}

static const char *block_text(Arena *arena, const HeldBlock *block) {
  if (block->first < 0) return block->name;
  if (block->first == block->last)
    return arena_printf(arena, "%s[%lld]", block->name,
                        (long long)block->first);
  return arena_printf(arena, "%s[%lld..%lld]", block->name,
                      (long long)block->first, (long long)block->last);
}

/* ---- stages ---- */

/* Returns whether a stage stores it for its parameters. */
static bool is_stored(Role role) {
  return role == ROLE_param || role == ROLE_state ||
         role == ROLE_optimizer_state || role == ROLE_ema;
}

static void add_inputs(Arena *arena, Names *names, StageRow *row) {
  const Graph *graph = row->stage->graph;
  HeldBlocks blocks = {0};
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    const Type *type = graph_type(graph, input->value);
    if (is_stored(input->role))
      row->bytes += type_local_elements(type, &graph->mesh) *
                    dtype_size_bytes(type->dtype);
    if (input->role != ROLE_param) continue;
    row->parameters += type_elements(type);
    add_block(arena, &blocks, block_of(names, input->path));
  }
  for (int i = 0; i < blocks.n; i++)
    vec_push(arena, &row->blocks, block_text(arena, &blocks.data[i]));
}

/* The entry point of which its stages are shown: training, else the first. */
static const EntryPoint *shown_entry(const RankProgram *program) {
  const EntryPoint *train = rank_program_find(program, ENTRY_train);
  return train || program->n_entry_points == 0 ? train
                                               : &program->entry_points[0];
}

StageRows stage_rows(Arena *arena, const Compilation *c) {
  StageRows rows = {0};
  if (!c->plan || c->plan->stages.n <= 1) return rows;
  for (int number = 0; number < c->plan->stages.n; number++)
    for (int k = 0; k < c->classes.n; k++) {
      const EntryPoint *entry = shown_entry(&c->classes.data[k].program);
      for (int s = 0; entry && s < entry->stages.n; s++) {
        StageRow row = {
            .stage = &entry->stages.data[s], .class = k, .entry = entry};
        bool is_shown =
            rows.n > 0 && rows.data[rows.n - 1].stage->number == number;
        if (row.stage->number != number || is_shown) continue;
        add_inputs(arena, c->module->names, &row);
        vec_push(arena, &rows, row);
      }
    }
  return rows;
}

const char *show_ranks(Arena *arena, int64_t first, int64_t n) {
  return n == 1 ? arena_printf(arena, "%lld", (long long)first)
                : arena_printf(arena, "%lld..%lld", (long long)first,
                               (long long)(first + n - 1));
}

static int ranks_of(const StageRow *row) {
  return mesh_ranks(&row->stage->graph->mesh);
}

const char *stage_blocks(Arena *arena, const StageRow *row) {
  Text text = text_create(arena);
  for (int i = 0; i < row->blocks.n; i++)
    text_printf(&text, "%s%s", i ? ", " : "", row->blocks.data[i]);
  return row->blocks.n ? text_string(&text) : "no parameters";
}

/* ---- messages ---- */

/* Rows of equal messages are one from so many on. */
enum { LEAST_FOLDED = 3 };

static const char *stage_range(Arena *arena, int first, int last) {
  return first == last ? arena_printf(arena, "%d", first)
                       : arena_printf(arena, "%d..%d", first, last);
}

static bool is_alike(const ProgramEdge *a, const ProgramEdge *b) {
  return a->bytes == b->bytes && a->is_of_step == b->is_of_step &&
         a->pieces.n == b->pieces.n;
}

/* Each stage of both ends is one on from, or before, that of the message
 * before; or all have one stage in common. */
static int find_next(const EntryPoint *entry, const bool *is_printed, int last,
                     int from, int to) {
  const ProgramEdge *edge = &entry->edges.data[last];
  for (int i = 0; i < entry->edges.n; i++) {
    const ProgramEdge *next = &entry->edges.data[i];
    if (!is_printed[i] && is_alike(edge, next) &&
        next->from == edge->from + from && next->to == edge->to + to)
      return i;
  }
  return -1;
}

/* Messages that are alike, from the first to the last. */
typedef struct EdgeRun {
  int n, first, last;
} EdgeRun;

static EdgeRun follow_run(const EntryPoint *entry, const bool *is_printed,
                          int first, int from, int to, bool *out_members) {
  EdgeRun run = {1, first, first};
  for (int at = first; at >= 0;) {
    out_members[at] = true;
    at = find_next(entry, is_printed, at, from, to);
    if (at >= 0) run = (EdgeRun){run.n + 1, first, at};
  }
  return run;
}

/* The longest run from this message on, which is printed then. */
static EdgeRun take_run(Arena *arena, const EntryPoint *entry, bool *is_printed,
                        int first) {
  static const int ways[][2] = {{1, 1},  {-1, -1}, {0, 1},
                                {0, -1}, {1, 0},   {-1, 0}};
  int n = entry->edges.n;
  EdgeRun best = {1, first, first};
  bool *taken = ARENA_ARRAY(arena, bool, n);
  taken[first] = true;
  for (int i = 0; i < ARRAY_LENGTH(ways); i++) {
    bool *members = ARENA_ARRAY(arena, bool, n);
    EdgeRun run =
        follow_run(entry, is_printed, first, ways[i][0], ways[i][1], members);
    if (run.n < LEAST_FOLDED || run.n <= best.n) continue;
    best = run;
    taken = members;
  }
  for (int i = 0; i < n; i++) is_printed[i] |= taken[i];
  return best;
}

static void print_run(Text *out, const EntryPoint *entry, EdgeRun run) {
  const ProgramEdge *edge = &entry->edges.data[run.first];
  const ProgramEdge *last = &entry->edges.data[run.last];
  const char *stages = arena_printf(
      out->arena, "%s -> %s", stage_range(out->arena, edge->from, last->from),
      stage_range(out->arena, edge->to, last->to));
  text_printf(out, "  %-10s %12lld  %-16s '%s'", stages, (long long)edge->bytes,
              edge->is_of_step ? "once a step" : "each micro-batch",
              edge->path);
  if (run.n > 1) text_printf(out, " to '%s'", last->path);
  if (edge->pieces.n > 0)
    text_printf(out, ", in %d piece%s", edge->pieces.n,
                edge->pieces.n == 1 ? "" : "s");
  text_add(out, "\n");
}

/* Losses, norms and whether values are finite. */
static bool is_small(const ProgramEdge *edge) {
  enum { MOST_BYTES = 8 };
  return edge->is_of_step && edge->bytes <= MOST_BYTES && edge->pieces.n == 0;
}

/* Small messages are one row.  Marks them. */
static int count_small(const EntryPoint *entry, bool *is_printed) {
  int n = 0;
  for (int i = 0; i < entry->edges.n; i++) n += is_small(&entry->edges.data[i]);
  if (n < LEAST_FOLDED) return 0;
  for (int i = 0; i < entry->edges.n; i++)
    is_printed[i] = is_small(&entry->edges.data[i]);
  return n;
}

static void print_edges(Text *out, const EntryPoint *entry) {
  bool *is_printed = ARENA_ARRAY(out->arena, bool, entry->edges.n + 1);
  text_printf(out, "%-12s %12s  %-16s %s\n", "messages", "bytes", "sent",
              "value");
  int n_small = count_small(entry, is_printed);
  for (int i = 0; i < entry->edges.n; i++)
    if (!is_printed[i])
      print_run(out, entry, take_run(out->arena, entry, is_printed, i));
  if (n_small > 0)
    text_printf(out,
                "  %-10s %12s  %-16s %d messages: loss, norm, whether "
                "values are finite\n",
                "others", "up to 8", "once a step", n_small);
}

/* ---- tables ---- */

static int first_rank_of(const StageRow *row) {
  return row->stage->first_rank;
}

static bool is_alike_stage(const StageRow *row, const StageRow *next) {
  return row->parameters == next->parameters && row->bytes == next->bytes;
}

/* How many stages from one on are alike, on ranks that follow each other up or
 * down.  `any`: also those with other parameters. */
static int alike_stages(const StageRows *rows, int first, bool any) {
  const StageRow *row = &rows->data[first];
  int n = 1, ranks = ranks_of(row);
  if (first + 1 == rows->n) return 1;
  int by = first_rank_of(row + 1) < first_rank_of(row) ? -ranks : ranks;
  for (; first + n < rows->n; n++) {
    const StageRow *next = row + n;
    if (!(any || is_alike_stage(next - 1, next)) || ranks_of(next) != ranks ||
        first_rank_of(next) != first_rank_of(next - 1) + by)
      break;
  }
  return n < LEAST_FOLDED ? 1 : n;
}

/* Many different stages are one row as far as their ranks follow. */
static bool folds_any(const StageRows *rows) {
  enum { MOST_ROWS = 16 };
  int n = 0;
  for (int i = 0; i < rows->n; i += alike_stages(rows, i, false)) n++;
  return n > MOST_ROWS;
}

enum { WIDE = 28 };

/* "12", or "12 to 14" */
static const char *number_range(Arena *arena, int64_t a, int64_t b) {
  return a == b
             ? arena_printf(arena, "%lld", (long long)a)
             : arena_printf(arena, "%lld to %lld", (long long)a, (long long)b);
}

static const char *parameters_range(Arena *arena, const StageRow *row, int n) {
  int64_t least = row->parameters, most = least;
  for (int i = 1; i < n; i++) {
    if (row[i].parameters < least) least = row[i].parameters;
    if (row[i].parameters > most) most = row[i].parameters;
  }
  return number_range(arena, least, most);
}

static const char *bytes_range(Arena *arena, const StageRow *row, int n) {
  int64_t least = row->bytes, most = least;
  for (int i = 1; i < n; i++) {
    if (row[i].bytes < least) least = row[i].bytes;
    if (row[i].bytes > most) most = row[i].bytes;
  }
  return number_range(arena, least, most);
}

/* `is_wide`: numbers may be ranges. */
static void print_stage_rows(Text *out, bool is_wide, const StageRow *row,
                             int n) {
  const StageRow *last = row + n - 1;
  const StageRow *low = first_rank_of(last) < first_rank_of(row) ? last : row;
  text_printf(
      out, "  %-6s %8s %*s %*s  %s%s%s\n",
      stage_range(out->arena, row->stage->number, last->stage->number),
      show_ranks(out->arena, first_rank_of(low), (int64_t)n * ranks_of(row)),
      is_wide ? WIDE : 12, parameters_range(out->arena, row, n),
      is_wide ? WIDE : 14, bytes_range(out->arena, row, n),
      stage_blocks(out->arena, row), n > 1 ? " to " : "",
      n > 1 ? stage_blocks(out->arena, last) : "");
}

void show_stages(Text *out, const Compilation *c) {
  StageRows rows = stage_rows(out->arena, c);
  if (rows.n == 0) return;
  bool any = folds_any(&rows);
  text_printf(out, "%-8s %8s %*s %*s  %s\n", "stages", "ranks", any ? WIDE : 12,
              "parameters", any ? WIDE : 14, "bytes", "blocks");
  for (int i = 0; i < rows.n;) {
    int n = alike_stages(&rows, i, any);
    print_stage_rows(out, any, &rows.data[i], n);
    i += n;
  }
  print_edges(out, rows.data[0].entry);
}

void show_stages_json(Text *out, const Compilation *c) {
  StageRows rows = stage_rows(out->arena, c);
  text_add(out, "\"stages\":[");
  for (int i = 0; i < rows.n; i++) {
    const StageRow *row = &rows.data[i];
    text_printf(out,
                "%s{\"stage\":%d,\"class\":%d,\"first_rank\":%d,\"ranks\":%d,"
                "\"parameters\":%lld,\"bytes\":%lld,\"blocks\":[",
                i ? "," : "", row->stage->number, row->class,
                row->stage->first_rank, ranks_of(row),
                (long long)row->parameters, (long long)row->bytes);
    for (int k = 0; k < row->blocks.n; k++) {
      if (k) text_add(out, ",");
      text_add_json(out, row->blocks.data[k]);
    }
    text_add(out, "]}");
  }
  text_add(out, "]");
}

void show_edges_json(Text *out, const EntryPoint *entry) {
  text_add(out, "\"edges\":[");
  for (int i = 0; i < entry->edges.n; i++) {
    const ProgramEdge *edge = &entry->edges.data[i];
    text_printf(out, "%s{\"from\":%d,\"to\":%d,\"path\":", i ? "," : "",
                edge->from, edge->to);
    text_add_json(out, edge->path);
    text_printf(out, ",\"bytes\":%lld,\"period\":\"%s\",\"pieces\":%d}",
                (long long)edge->bytes,
                edge->is_of_step ? "step" : "microbatch", edge->pieces.n);
  }
  text_add(out, "]");
}

/* ---- parts of an arena ---- */

const char *show_stage_numbers(Arena *arena, const EntryPoint *entry) {
  Text text = text_create(arena);
  int n = entry->stages.n;
  text_add(&text, n > 1 ? "stages " : "stage ");
  for (int i = 0; i < n; i++)
    text_printf(&text, "%s%d",
                i == 0      ? ""
                : i + 1 < n ? ", "
                            : " and ",
                entry->stages.data[i].number);
  return text_string(&text);
}

void show_stage_numbers_json(Text *out, const EntryPoint *entry) {
  text_add(out, "\"stages\":[");
  for (int i = 0; i < entry->stages.n; i++)
    text_printf(out, "%s%d", i ? "," : "", entry->stages.data[i].number);
  text_add(out, "]");
}

void show_arena_json(Text *out, const ArenaParts *arena) {
  text_printf(out,
              "\"arena\":{\"persistent\":%lld,\"step\":%lld,"
              "\"frames\":%lld,\"messages\":%lld,\"scratch\":%lld}",
              (long long)arena->persistent, (long long)arena->step,
              (long long)arena->frames, (long long)arena->messages,
              (long long)arena->scratch);
}
