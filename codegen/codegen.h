/*
 * codegen.h -- makes a bundle on disk from the final graphs of a model.
 *
 *     select.c      instruction -> Launch: kernel, library call or collective
 *     nest/         node -> Nest, the loops of a kernel
 *     c/, cuda/     Nest -> text; pure functions
 *     messages.c    launches -> the collectives that ranks must agree about
 *     program.c     launches and buffer assignment -> tables of a program
 *     bundle.c      the programs of all ranks and settings -> tables
 *     host/, cuda/  text -> objects and cubins; these start compilers
 *     build.c       all of it, into a folder
 */
#ifndef CODEGEN_CODEGEN_H
#define CODEGEN_CODEGEN_H

#include "codegen/nest/nest.h"
#include "ir/list/instructions.h"
#include "ir/model/model.h"
#include "ir/target.h"
#include "passes/passes.h"
#include "runtime/program.h"

/* Source text of one kernel, the same for every node of equal content. */
typedef struct KernelText {
  Name name;
  const char *text;                         /* definition, without prelude */
  uint32_t grid[3], block[3], shared_bytes; /* CUDA */
  bool uses_barriers; /* CUDA: needs fibers on the CPU shim */
  bool is_plain;      /* only the plain program has it: not optimised */
  /* Run-time numbers, after those of the nest (Backend.emit_sized_nest). */
  const int64_t *sizes;
  int n_sizes;
  /* An override may have one run-time number; an empty split: it has none. */
  NestNumber number;
} KernelText;

typedef struct Backend Backend;
typedef struct BuildOptions BuildOptions;

/* The compiled kernels of one program: objects of the host to link (CPU), or
 * modules to embed (CUDA). */
typedef struct DeviceCode {
  VEC(const char *) objects; /* paths of object files */
  /* C text that defines `const DnnModule dnn_modules[]` and includes images
   * from the work folder.  NULL means that there are no modules. */
  const char *modules_text;
  int n_modules;
  int *module_of; /* [n_kernels], or NULL where kernels are host functions */
  int files, cached;
  /* Compilers of the objects, still to be waited for (host/toolchain.h); or
   * NULL. */
  struct Compiling *compiling;
} DeviceCode;

/* A back end is a folder that defines one of these and a row of
 * backends.def; nothing else names it. */
struct Backend {
  const char *name; /* name of the back end, such as "cpu" */
  /* The device of the runtime that runs its programs
   * (runtime/device/devices.def). */
  const char *device;
  /* The architectures that a target may name, ended by NULL; a target without
   * any has all of them.  NULL means that there is no choice. */
  const char *const *archs;
  bool is_skeleton; /* help and messages do not offer it */
  /* Libraries of this machine, or the runtime without them, compute matmuls and
   * convolutions, which need no kernels.  Libraries are asked at compile time
   * how much scratch memory they want. */
  bool uses_host_libraries;
  const char *prelude; /* text before the kernels of every emitted file */
  Target target;
  /* Emits text of a loop nest. */
  void (*emit_nest)(const Backend *backend, Module *module, const Nest *nest,
                    KernelText *out);
  /* Emits a loop nest with its extents and strides as run-time numbers, so that
   * nests of other sizes have the same text and name.  Returns false where such
   * a kernel would be slower.  NULL means that the back end never does it. */
  bool (*emit_sized_nest)(const Backend *backend, Module *module,
                          const Nest *nest, KernelText *out);
  /* Its library takes a matmul only where one stride of each operand is 1;
   * other matmuls become loop nests. */
  bool needs_unit_strides;
  /* Emits a node for which this back end has a kernel of its own, such as
   * attention.  Returns false if it has none. */
  bool (*emit_override)(const Backend *backend, Module *module,
                        const Graph *graph, int id, KernelText *out);
  /* Kernels are functions of the host, which tables know by name; else each
   * program has modules of its own. */
  bool has_host_kernels;
  /* Compiles all kernels; `work` is an empty folder for its files, sources go
   * to `source` if that is not NULL. */
  Status (*compile)(const Backend *backend, Module *module,
                    const BuildOptions *options, const char *work,
                    const char *source, const KernelText *kernels, int n,
                    DeviceCode *out);
};

/* Returns the back end of this name.  Returns NULL if there is none. */
const Backend *backend_find(const char *name);
/* Returns the back end's own spelling of an architecture.  Returns NULL if it
 * has no such one. */
const char *backend_find_arch(const Backend *backend, const char *arch);
/* Returns the names of all back ends, such as "cpu and cuda". */
const char *backend_names(Arena *arena);
/* Returns the values that `--target` takes, as help shows them: "cpu (default),
 * cuda or cuda:sm_80,...". */
const char *backend_target_help(Arena *arena);

/* A back end and the architectures it compiles for. */
typedef struct BuildTarget {
  const Backend *backend;
  const char **archs; /* empty means all that the back end has */
  int n_archs;
} BuildTarget;

/* Reads "cpu" or "cuda:sm_80,sm_90"; NULL is the default.  Invalid, with the
 * names there are, where there is no such back end or architecture. */
Status backend_read_target(Arena *arena, const char *text, BuildTarget *out);

/* The source of times for a paced program, which sleeps for the time of each
 * node in place of computing it (DnnProgram.is_paced). */
typedef struct Pacer {
  /* Returns the picoseconds that one run of a node takes, or setting its
   * results to zero. */
  int64_t (*pace)(void *user, const Graph *graph, int id, bool is_clear);
  void *user;
} Pacer;

/* The list that the plan of a bundle names, beside it. */
#define BUNDLE_SCHEDULE "schedule.csv"

struct BuildOptions {
  const Backend *backend;
  /* The beginning of names of files and tables: "plain_" while the modules of
   * the plain program are compiled, else NULL. */
  const char *part;
  const char *const *archs; /* as in BuildTarget */
  int n_archs;
  const char *out_dir;   /* the bundle; made or replaced */
  const char *cache_dir; /* NULL means no cache */
  const char *cc;        /* absolute path of the C compiler */
  bool keep_source;
  bool is_quick; /* kernels are compiled quickly and run slowly */
  int jobs, ranks;
  PlanServers servers; /* without any n is 0 */
  /* NULL means that the program computes; a paced one has no values that the
   * plain program could explain. */
  const Pacer *pacer;
  const char *plan_text, *model_hash, *plan_hash;
  const char *schedule_text; /* of BUNDLE_SCHEDULE, or NULL: there is none */
  /* Runtime library (an archive) as linked into this dnnc. */
  const void *runtime_archive;
  size_t runtime_bytes;
  const char *program_header; /* text of runtime/program.h */
  const char *model_dir;      /* folder of the model file */
  const char *machine;        /* compiler and processor of this machine */
  void (*progress)(void *user, int done, int total);
  int64_t compile_limit_s; /* limit of one compiler; 0 means none */
  /* Returns whether the build must stop; may be NULL.  Once it returns true,
   * compilers are ended, unfinished folders are removed and the build fails.  A
   * compiler that is a library runs on in threads of its own, so the process
   * must end soon. */
  bool (*is_stopped)(void *user);
  void *user;
};

typedef struct BuildReport {
  int kernels, cached, files;
  double seconds;
  int64_t arena_bytes;
} BuildReport;

/* The programs of all ranks, and which rank runs which, as in DnnBundle. */
typedef struct RankPrograms {
  const RankProgram *const *programs;
  int n;
  const DnnRankRow *rows;
  int n_rows;
} RankPrograms;

/* Returns those of a bundle in which all ranks run one program. */
RankPrograms rank_programs_of_one(Arena *arena, const RankProgram *program);

/* Writes the bundle: executables rank-0000.. (hard links), plan.plan,
 * bundle.json, source/ with keep_source.  Replaces an existing bundle
 * atomically; refuses a folder that is not one. */
Status codegen_build(Module *module, const Model *model,
                     const RankPrograms *programs, const BuildOptions *options,
                     BuildReport *out);

/* ---- messages.c ---- */

/* A collective that a program starts. */
typedef struct ProgramMessage {
  DnnCollective collective;
  int64_t elements; /* sum over all parts */
  Name path;
  int microbatch; /* of a message between stages; -1 means of the step */
} ProgramMessage;

typedef struct ProgramMessages {
  /* All of them in the order of their starts, on every rank. */
  VEC(ProgramMessage)
  list;
  VEC(ProgramMessage) between; /* likewise the messages between stages */
  /* One sentence about the first collective that does not end before it starts
   * again, or is waited for without a start.  NULL means that there is none. */
  const char *fault;
} ProgramMessages;

/* Lists what the tables of an entry point would say, in the arena of the
 * module. Fails where codegen_build would. */
Status codegen_messages(Module *module, const Backend *backend,
                        const EntryPoint *entry_point, ProgramMessages *out);
/* Returns the kind of the collective that an operator is, plus 1.  Returns 0 if
 * the operator sends nothing. */
int codegen_message_kind(Op op);
/* Finds the group of the tables in which member i has shard i of a dim with
 * this split; the mesh has the ranks from `first_rank` on.  Returns false if
 * there is none. */
bool codegen_group(const Mesh *mesh, int first_rank, AxisList list,
                   DnnGroup *out);

/* Finds before the work begins what would make codegen_build fail: no folder to
 * write to, or something else in the place of the bundle. */
Status codegen_check_bundle(Arena *scratch, const char *path);
/* Removes a bundle that codegen_build made; leaves any other folder alone. */
void codegen_remove_bundle(Arena *scratch, const char *path);
/* Removes a folder and everything in it; does not follow links. */
void codegen_remove_tree(Arena *scratch, const char *path);

#endif
