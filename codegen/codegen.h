/*
 * codegen.h -- Graph and BufferAssignment to emitted text and to a bundle.
 *
 *   select   (select.c)    node -> Launch: kernel, library call, collective
 *   emit     (c/emit.c, cuda/emit.c)   Nest -> text, pure
 *   program  (program.c)   launches + layout + settings -> tables
 *   toolchain (host/toolchain.c, cuda/toolchain.c)  text -> objects, cubins
 */
#ifndef CODEGEN_CODEGEN_H
#define CODEGEN_CODEGEN_H

#include "codegen/nest/nest.h"
#include "ir/model.h"
#include "ir/target.h"
#include "passes/passes.h"
#include "runtime/program.h"

/* Source text of one kernel, the same for every node of equal content. */
typedef struct KernelText {
  Name name;
  const char *text;                         /* definition, without prelude */
  uint32_t grid[3], block[3], shared_bytes; /* CUDA */
  bool uses_barriers; /* CUDA: needs fibers on the CPU shim */
  bool is_plain;      /* of the plain program alone: compiled in a hurry */
} KernelText;

typedef struct Backend Backend;
typedef struct BuildOptions BuildOptions;

/* What the compiler of a back end made of the kernels of one program: host
 * objects to link (CPU), or modules to embed (CUDA). */
typedef struct DeviceCode {
  VEC(const char *) objects; /* paths of object files */
  /* C text that defines `const DnnModule dnn_modules[]`; it lies in the work
   * folder, beside the images that it takes in.  NULL: no modules. */
  const char *modules_text;
  int n_modules;
  int *module_of; /* [n_kernels], or NULL where kernels are host functions */
  int files, cached;
  struct Compiling *compiling; /* of the objects, still to be waited for
                                  (host/toolchain.h), or NULL */
} DeviceCode;

/* A back end is a folder that defines one of these and a row of
 * backends.def; nothing else names it. */
struct Backend {
  const char *name; /* "cpu" */
  /* The device of the runtime that runs its programs (runtime/devices.def). */
  const char *device;
  /* The architectures that a target may name, ended by NULL; all of them where
   * it names none.  NULL: there is no choice. */
  const char *const *archs;
  bool is_skeleton; /* help and messages do not offer it */
  /* Libraries of this machine compute its matmuls and convolutions, and are
   * asked at compile time how much scratch memory they want. */
  bool uses_host_libraries;
  const char *prelude; /* text before the kernels of every emitted file */
  Target target;
  /* Text of a loop nest. */
  void (*emit_nest)(const Backend *backend, Module *module, const Nest *nest,
                    KernelText *out);
  /* Its library takes a product only where one stride of each operand is 1;
   * others become loop nests. */
  bool needs_unit_strides;
  /* Text of a node that this back end does better (attention); false: none. */
  bool (*emit_override)(const Backend *backend, Module *module,
                        const Graph *graph, int id, KernelText *out);
  /* Kernels are host functions, known to all tables by their name; else each
   * program has modules of its own. */
  bool has_host_kernels;
  /* Compiles all kernels; `work` is an empty folder for its files, sources go
   * to `source` if that is not NULL. */
  Status (*compile)(const Backend *backend, Module *module,
                    const BuildOptions *options, const char *work,
                    const char *source, const KernelText *kernels, int n,
                    DeviceCode *out);
};

const Backend *backend_find(const char *name); /* NULL */
/* The back end's own spelling of an architecture; NULL if it has none such. */
const char *backend_find_arch(const Backend *backend, const char *arch);
const char *backend_names(Arena *arena); /* "cpu and cuda" */
/* The values that `--target` takes: "cpu (default), cuda or cuda:sm_80,..." */
const char *backend_target_help(Arena *arena);

/* A back end and the architectures it compiles for. */
typedef struct BuildTarget {
  const Backend *backend;
  const char **archs; /* none: all that the back end has */
  int n_archs;
} BuildTarget;

/* Reads "cpu" or "cuda:sm_80,sm_90"; NULL is the default.  Invalid, with the
 * names there are, where there is no such back end or architecture. */
Status backend_read_target(Arena *arena, const char *text, BuildTarget *out);

/* One final graph of the model, as it goes into the program. */
typedef struct EntryPoint {
  const char *name; /* train eval eval_remainder predict decode sample begin;
                       forward: of a net that gives no row for each record */
  const Graph *graph;
  const BufferAssignment *layout;
  int64_t batch;
} EntryPoint;

struct BuildOptions {
  const Backend *backend;
  const char *part; /* "plain_" for the kernels of the plain program, where
                       they are a part of their own, else NULL */
  const char *const *archs; /* of BuildTarget */
  int n_archs;
  const char *out_dir;   /* the bundle; made or replaced */
  const char *cache_dir; /* NULL: no cache */
  const char *cc;        /* absolute path of the C compiler */
  bool keep_source;
  int jobs, ranks;
  const EntryPoint *plain; /* see DnnPlain in runtime/program.h; or NULL */
  const char *plan_text, *model_hash, *plan_hash;
  /* Runtime library (an archive) as linked into this dnnc. */
  const void *runtime_archive;
  size_t runtime_bytes;
  const char *program_header; /* text of runtime/program.h */
  const char *model_dir;      /* folder of the model file */
  const char *machine;        /* of codegen: compiler and processor */
  void (*progress)(void *user, int done, int total);
  int64_t compile_limit_s; /* of one compiler; 0: none */
  /* True: end the compilers, remove what is there and fail.  A compiler that is
   * a library goes on in threads of its own, so the process must end soon.  May
   * be NULL. */
  bool (*is_stopped)(void *user);
  void *user;
};

typedef struct BuildReport {
  int kernels, cached, files;
  double seconds;
  int64_t arena_bytes;
} BuildReport;

/* Writes the bundle: executables rank-0000.. (hard links), plan.plan,
 * bundle.json, source/ with keep_source.  Replaces an existing bundle
 * atomically; refuses a folder that is not one. */
Status codegen_build(Module *module, const Model *model, const Plan *plan,
                     const EntryPoint *entry_points, int n_entry_points,
                     const PersistentBuffers *persistent,
                     const BuildOptions *options, BuildReport *out);

/* Removes a bundle that codegen_build made; refuses anything else. */
void codegen_remove_bundle(Arena *scratch, const char *path);
/* Removes a folder with all that is in it; links are not followed. */
void codegen_remove_tree(Arena *scratch, const char *path);

#endif
