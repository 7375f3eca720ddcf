/*
 * tools.h -- the command line: the only place that reads arguments, the clock
 * and the environment, and decides how the process ends.
 */
#ifndef TOOLS_TOOLS_H
#define TOOLS_TOOLS_H

#include "passes/decode/incremental_decoding.h"
#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "frontend/syntax/ast.h"
#include "convert/tensormap.h"
#include "ir/plan.h"

/* Exit entry_points (docs/commands.md). */
enum {
  EXIT_done = 0,
  EXIT_user = 1,    /* the user's mistake */
  EXIT_no_plan = 2, /* nothing fits */
  EXIT_machine = 3, /* a library, a disk, a lost rank */
  EXIT_fault = 4    /* ours */
};

typedef enum CommandId {
#define COMMAND(name, arguments, summary) COMMAND_##name,
#include "tools/commands.def"
  N_COMMANDS
} CommandId;

#define FIELD_FLAG(field) bool field;
#define FIELD_TEXT(field) const char *field;
#define FIELD_INT(field)  int64_t field; /* -1: not given */
#define FIELD_LIST(field) VEC(const char *) field;

typedef struct Options {
  CommandId command;
  const char *subject; /* the model, plan or table */
  VEC(Override) overrides;
  int level; /* -O0 .. -O2 */
  bool help;
#define OPTION(kind, field, name, argument, least, commands, help)             \
  FIELD_##kind(field)
#include "tools/options.def"
} Options;

typedef struct Tool {
  Memory *memory;
  Arena *arena;
  Module module;
  Options options;
  Map *sources;             /* of files read so far, by path */
  const char *load_failure; /* why the last of them could not be read */
  const char *cache;        /* folder of the cache, looked for once */
  bool knows_cache;
} Tool;

/* ---- options.c ---- */

/* Reads the command line; on a mistake prints it to standard error and returns
 * false.  Never exits. */
bool options_parse(Tool *tool, int argc, char **argv);
void options_help(Text *out, CommandId command);
void options_overview(Text *out);
void options_man_page(Text *out);
/* docs/commands.md */
void options_markdown(Text *out);

/* ---- compile.c: model file to final graphs ---- */

typedef struct Compilation {
  Model *model;
  Plan *plan; /* NULL: one rank, one micro-batch */
  const Backend *backend;
  const char *const *archs;
  int n_archs;
  int n_entry_points;
  int ranks; /* of the bundle */
  EntryPoint entry_points[8];
  EntryPoint plain; /* DnnPlain of runtime/program.h; without a graph: none */
  PersistentBuffers persistent;
  const Graph *trained; /* the final graph of training, once there is one */
  bool is_decode;       /* while the graph for one position is compiled */
  Graph *decode_init;   /* of the last graph that was compiled */
  char model_hash[33];
} Compilation;

/* Loads the model named by the options; diagnostics are printed.  NULL: exit
 * with EXIT_user. */
Model *compile_load(Tool *tool, bool check_only);
/* All of it.  Returns an exit code. */
int compile_all(Tool *tool, Compilation *out);
/* Passes over one graph of the model; `stop_after` from the options. */
Graph *compile_graph(Tool *tool, Compilation *compilation, Graph *graph,
                     bool is_training);
/* The EvalSampleCounter of the front end, with the readers of the runtime
 * (data_sizes.c). */
bool compile_count_eval_samples(void *user, const Model *model,
                                int64_t *out_samples);
/* The net of the sample block at one position; false after a note where the net
 * does not allow it. */
bool compile_decode(Tool *tool, const Model *model, DecodeGraphs *out);
/* The folder of the model file, absolute. */
const char *compile_model_folder(Tool *tool);
/* Fills plan and backend from the options.  Returns an exit code. */
int compile_setup(Tool *tool, Compilation *out, bool check_only);
/* Compiles to a bundle (a temporary one without -o) and runs it. */
int tool_build_and_run(Tool *tool);
/* Prints new diagnostics to standard error; true if there were errors. */
bool tool_report(Tool *tool);
/* A new folder in the cache or, without one (NULL), where temporary files go;
 * removes those of runs that were killed.  The mistake is printed, NULL then.
 */
const char *tool_scratch_folder(Tool *tool, const char *cache);
/* A size with the units of the language ("25MB"); the mistake is printed. */
bool tool_read_bytes(Tool *tool, const char *option, const char *text,
                     int64_t *out);
/* A mapping file; mistakes are printed, NULL then (command_convert.c). */
TensorMap *tool_read_map(Tool *tool, const char *path);
int tool_fail(Status status); /* prints, returns the exit code */
/* `dnnc check --parameters` (check_parameters.c); the exit code. */
int check_parameters(Tool *tool, const Model *model, const Graph *graph);
/* 1234567 as "1,234,567" (command_check.c) */
const char *tool_with_commas(Arena *arena, int64_t number);
/* "1.25 MB" */
const char *tool_quantity(Arena *arena, double value, const char *unit);
void tool_print(Text *text); /* to standard output, checked */

/* ---- embed.c: what this binary carries ---- */

const void *embed_runtime_archive(size_t *out_bytes);
const char *embed_program_header(void);

/* ---- commands ---- */

#define COMMAND(name, arguments, summary) int command_##name(Tool *tool);
#include "tools/commands.def"

#endif
