/*
 * show_stages.h -- declares what commands print of the stages of a plan: who
 * holds which blocks, what stages send, the parts of an arena.
 */
#ifndef TOOLS_SHOW_SHOW_STAGES_H
#define TOOLS_SHOW_SHOW_STAGES_H

#include "driver/driver.h"

typedef struct StageRow {
  const ProgramStage *stage;
  const EntryPoint *entry;
  int class;          /* of ranks, in the compilation */
  int64_t parameters; /* elements of the parameters that it stores */
  /* Bytes on a rank: parameters, states, averages, optimizer state. */
  int64_t bytes;
  VEC(const char *) blocks;
} StageRow;

typedef VEC(StageRow) StageRows;

/* Returns the stages by number.  A plan of one stage has none. */
StageRows stage_rows(Arena *arena, const Compilation *c);
/* Returns "wte, wpe, block[0..5]". */
const char *stage_blocks(Arena *arena, const StageRow *row);

/* Prints a table of the stages and one of their messages; nothing where there
 * is one stage. */
void show_stages(Text *out, const Compilation *c);
/* Prints `"stages":[...]`, and `"edges":[...]`. */
void show_stages_json(Text *out, const Compilation *c);
void show_edges_json(Text *out, const EntryPoint *entry);

/* Returns "3", or "0..7". */
const char *show_ranks(Arena *arena, int64_t first, int64_t n);
/* Returns "stage 0", or "stages 0 and 4"; prints `"stages":[0,4]`. */
const char *show_stage_numbers(Arena *arena, const EntryPoint *entry);
void show_stage_numbers_json(Text *out, const EntryPoint *entry);
/* Prints `"arena":{...}`. */
void show_arena_json(Text *out, const ArenaParts *arena);

#endif
