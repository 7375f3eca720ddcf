/*
 * tools.h -- declares the command line, the only part of the compiler that
 * reads arguments, the clock and the environment and decides how the process
 * ends.
 */
#ifndef TOOLS_COMMANDS_TOOLS_H
#define TOOLS_COMMANDS_TOOLS_H

#include "convert/tensormap.h"
#include "driver/driver.h"
#include "price/cost.h"

/* Exit codes (docs/commands.md). */
enum {
  EXIT_done = 0,
  EXIT_user = 1,    /* the user's mistake */
  EXIT_no_plan = 2, /* nothing fits */
  EXIT_machine = 3, /* a library, a disk, a lost rank */
  EXIT_fault = 4    /* ours */
};

typedef enum CommandId {
#define COMMAND(name, ...) COMMAND_##name,
#include "tools/commands.def"
  N_COMMANDS
} CommandId;

/* When a command wants the price of a step and no program. */
typedef enum CommandPrices {
  PRICES_no,
  PRICES_yes,
  PRICES_with_cluster, /* if the option names one */
} CommandPrices;

/* The file or folder that -o names. */
typedef enum CommandOutput {
  OUTPUT_none,
  OUTPUT_bundle, /* that is beside the model without -o */
  OUTPUT_kept,   /* a bundle that is temporary without -o */
  OUTPUT_result, /* the file of a prediction: result_check_path */
  OUTPUT_folder,
  OUTPUT_file,
  OUTPUT_tuned, /* the beginning of the names of files */
} CommandOutput;

typedef enum CommandFlag {
  COMMAND_FLAG_none = 0,
  COMMAND_FLAG_levels = 1,     /* takes -O0, -O1 and -O2 */
  COMMAND_FLAG_model_only = 2, /* looks at a model without its plan */
  COMMAND_FLAG_windows = 4,    /* says why a decode computes whole windows */
  COMMAND_FLAG_threads = 8, /* starts threads that have memory of their own */
  COMMAND_FLAG_open = 16,   /* searches a plan: pins are not closed */
} CommandFlag;

/* A row of commands.def. */
typedef struct CommandInfo {
  const char *name, *arguments, *summary;
  Purpose purpose;
  DataFiles data;
  CommandPrices prices;
  int most_ranks; /* that it can serve; 0: any number */
  CommandOutput output;
  unsigned flags; /* of CommandFlag */
} CommandInfo;

#define FIELD_FLAG(field)  bool field;
#define FIELD_TEXT(field)  const char *field;
#define FIELD_INT(field)   int64_t field; /* -1 means not given */
#define FIELD_BYTES(field) int64_t field; /* -1 means not given */
#define FIELD_LIST(field)  VEC(const char *) field;

typedef struct Options {
  CommandId command;
  const char *subject; /* the model, plan or table */
  const char *other;   /* diff: the second plan */
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
  const char *cache; /* folder of the cache, looked for once */
  bool knows_cache;
  bool hides_warnings;      /* the model is loaded again, which prints them */
  const Source *found_plan; /* what the plan "auto" is, or NULL */
  const Source *detected_cluster; /* instead of that of the options, or NULL */
  bool has_started_ranks;
  bool is_silent; /* another process of the job says why this one ends */
} Tool;

/* ---- options.c ---- */

/* Reads the command line; on a mistake prints it to standard error and returns
 * false.  Never exits. */
bool options_parse(Tool *tool, int argc, char **argv);
/* Sets the command of this name; prints a mistake, false then. */
bool options_find_command(Tool *tool, const char *word);
/* Adds the options of run_options.def that were given, as words for a rank. */
typedef VEC(const char *) Words;
void options_hand_on(Arena *arena, const Options *options, Words *words);
const char *options_command_name(CommandId command);
const CommandInfo *command_info(CommandId command);
/* Prints a mistake where an option is given without the one that the command
 * takes it with; false then. */
bool options_check_pairs(const Options *options);
void options_help(Text *out, CommandId command);
void options_overview(Text *out);
void options_man_page(Text *out);
/* Prints docs/commands.md. */
void options_markdown(Text *out);

/* ---- compile.c: the driver, asked by the command line ---- */

/* Loads a model and its plan.  Returns an exit code. */
int tool_load(Tool *tool, Compilation *out);
/* Loads a model and its plan, and compiles all that the command needs.  Returns
 * an exit code. */
int tool_compile(Tool *tool, Compilation *out);
/* Compiles another plan of the model that is loaded.  Returns an exit code. */
int tool_compile_other(Tool *tool, const Compilation *loaded, const char *path,
                       Compilation *out);
/* Returns the pins of that plan.  Returns NULL after mistakes, which are
 * printed. */
const Pins *tool_read_pins(Tool *tool, const Compilation *loaded,
                           const char *path);

/* ---- plan_auto.c ---- */

/* The word that stands for a plan that is searched. */
bool tool_is_auto_plan(const char *plan);
/* Searches for a plan if the command line asks for the plan "auto", and says in
 * a line what was found.  Returns an exit code. */
int tool_find_plan(Tool *tool);

/* ---- watch.c ---- */

/* Prints the times of passes, the graph after one, and writes the files of
 * --dump, as the command line asks. */
CompileWatch tool_watch(Tool *tool);

/* ---- print.c ---- */

/* Prints new diagnostics to standard error; true if there were errors. */
bool tool_report(Tool *tool);
/* Prints what failed and returns the exit code. */
int tool_fail(Status status);
/* Prints to standard output, checked. */
void tool_print(Text *text);
bool tool_has_printed(void);
/* Reads a size with the units of the language ("25MB"); prints a mistake. */
bool tool_read_bytes(Tool *tool, const char *option, const char *text,
                     int64_t *out);

/* ---- outputs.c ---- */

/* Prints what would keep a command from writing its files, and returns the exit
 * code. */
int tool_check_outputs(Tool *tool);
/* Returns the bundle that -o names, or the one beside; of run without -o NULL.
 */
const char *tool_bundle_path(Tool *tool);
/* Returns the beginning of the names of the files of `dnnc tune`. */
const char *tool_tuned_name(Tool *tool);
/* Returns the name of a model file without its folder and ending. */
const char *tool_base_name(Arena *arena, const char *path);

/* ---- stop_signals.c ---- */

/* Holds SIGINT, SIGTERM and SIGHUP: from here on they only end the work early,
 * so that what is not finished can be removed. */
void tool_hold_signals(void);
/* Likewise for work that leaves nothing behind: says that the first signal has
 * come, and the second one ends the process.  Changes nothing where signals are
 * held already. */
void tool_hold_search_signals(void);
/* Lets signals end the process again. */
void tool_release_signals(void);
/* Returns whether a stop signal has come. */
bool tool_is_stopped(void);
/* Dies of the signal that has come, if one has. */
void tool_end_as_signalled(void);

/* ---- what commands share ---- */

/* Returns whether --load names a checkpoint; reports where it does not
 * (command_build.c). */
bool tool_has_checkpoint(const Tool *tool);
/* Compiles to a bundle (a temporary one without -o) and runs it
 * (command_build.c). */
int tool_build_and_run(Tool *tool);
/* Returns whether this process is alone: copies that mpirun or srun starts
 * would each start ranks of their own.  One of them prints that. */
bool tool_check_not_in_job(Tool *tool);
/* Returns a new folder in the cache or, without one (NULL), where temporary
 * files go; removes those of runs that were killed.  Returns NULL after a
 * mistake, which it prints (scratch.c). */
const char *tool_scratch_folder(Tool *tool, const char *cache);
/* Removes folders of ours whose names begin so and that no process holds. */
void tool_clear_abandoned(Tool *tool, const char *base, const char *prefix);
/* Reads the file that the command line names; prints a mistake, NULL then
 * (print.c). */
const Source *tool_read_subject(Tool *tool);
struct Ast; /* frontend/syntax/ast.h */
/* Parses a plan file (certificate.c).  Returns NULL if it cannot be read.  Its
 * mistakes are left to whoever compiles with it. */
const struct Ast *tool_parse_plan(Tool *tool, const char *path,
                                  const Source **out_source);
/* Sets the model and the cluster that the command line does not name to those
 * of the certificate, beside the plan; a note where one is not there. */
void tool_use_certificate(Tool *tool, const char *plan);
/* Takes the changes of a certificate as those of --what-if, if no others are
 * given. */
void tool_use_what_if(Tool *tool, const char *changes);
/* Returns the path of a file as it is from a folder; an absolute one stays. */
const char *tool_path_from(Tool *tool, const char *folder, const char *file);
/* Reads a mapping file; prints mistakes, NULL then (command_convert.c). */
TensorMap *tool_read_map(Tool *tool, const char *path);
/* Prints `dnnc show PLAN --model MODEL` (show_collectives.c).  Returns an exit
 * code. */
int show_compiled(Tool *tool);

/* Prints the collectives of a training step (show_collectives.c): a table, or
 * fields of a JSON object. */
void show_collectives(Text *out, const Compilation *c, bool is_json);

/* ---- collective_pins.c ---- */

/* The lines of the plan or the model that are the reason for a collective. */
typedef struct CollectivePins {
  Span first;       /* no source: there is none, as the batch takes open axes */
  const char *text; /* text of all of them */
} CollectivePins;

/* Passes rename a dim that stands twice in a type: "T~" is T. */
Name written_dim(Names *names, Name dim);
CollectivePins collective_pins(Arena *arena, const Plan *plan,
                               const Graph *graph, int id);

/* Executes `dnnc show PLAN --model MODEL --cluster FILE` (show_step.c). Returns
 * an exit code. */
int show_step(Tool *tool);

/* Executes `dnnc show FILE.cluster` (show_cluster.c).  Returns an exit code. */
int show_cluster(Tool *tool);

/* Prints the memory of a rank by kind and by entry point (show_memory.c), or by
 * entry point alone: tables, or fields of a JSON object. */
void show_memory(Text *out, const Compilation *c, bool is_json);
void show_entry_points(Text *out, const Compilation *c, bool is_json);
/* Returns the FLOPs of the contractions that outputs need, on logical sizes
 * (command_check.c). */
double graph_product_flops(const Graph *graph, Arena *arena);
/* Returns these FLOPs without what a backward pass computes again by its
 * operators. */
double graph_model_flops(const Graph *graph, Arena *arena);
/* Executes `dnnc check --parameters` (check_parameters.c).  Returns an exit
 * code. */
int check_parameters(Tool *tool, const Model *model, const Graph *graph);

/* Returns the work of each kernel of a training step, as CSV
 * (kernels.c).  Returns NULL if the program has no training. */
const char *tool_kernels(Tool *tool, const Compilation *c);
Status tool_write_kernels(Tool *tool, const Compilation *c, const char *path);

/* ---- profiles.c ---- */

/* Reads the profile that --profile names.  Returns NULL after mistakes, which
 * are printed. */
const Profile *tool_read_profile(Tool *tool, const char *path);
/* Finds how long the launches of `dnnc run --paced` take.  Returns false after
 * mistakes, which are printed. */
bool tool_make_pacer(Tool *tool, const Compilation *c, Pacer *out);

/* ---- models.c: the models that come with this binary ---- */

/* Returns the folder of the models, found from that of this binary, as it is
 * installed or built.  Returns NULL if it is not there. */
const char *tool_models_folder(Arena *arena);
/* Prints a row for each model. */
void tool_list_models(Text *out);

/* ---- embed.c: what this binary carries ---- */

const void *embed_runtime_archive(size_t *out_bytes);
const char *embed_program_header(void);

/* ---- commands ---- */

#define COMMAND(name, ...) int command_##name(Tool *tool);
#include "tools/commands.def"

#endif
