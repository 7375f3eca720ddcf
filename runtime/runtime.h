/*
 * runtime.h -- the thin runtime: executes a DnnProgram on one rank.  It knows
 * no graph.  Device and comm are small interfaces, each a table of functions.
 */
#ifndef RUNTIME_RUNTIME_H
#define RUNTIME_RUNTIME_H

#include "runtime/program.h"
#include "support/support.h"

#include <stdatomic.h>

typedef enum DnnDtypeIndex {
#define DTYPE(name, ...) DNN_##name,
#include "support/dtype.def"
  N_DNN_DTYPES
} DnnDtypeIndex;

int64_t dtype_bytes(DnnDtype dtype);
const char *dtype_label(DnnDtype dtype); /* "f32" */
/* It is whole and in the range of an integer dtype; any fits a real one. */
bool number_fits(DnnDtype dtype, double value);

/* ---- watch.c: what this rank is doing, for messages when a rank is lost ----
 */

enum { WATCH_RING = 256 };

typedef struct WatchEntry {
  int64_t step;
  int32_t instr;
  const char *path;
} WatchEntry;

/* Written by the main thread, read by the communication thread.  A torn read
 * can only spoil a message. */
typedef struct Watch {
  int rank, local_rank;
  int alive_fd;  /* ends when the launcher is gone; -1: no launcher */
  int report_fd; /* to the launcher; -1 */
  _Atomic int64_t step;
  _Atomic int32_t instr;    /* index in its code */
  const char *_Atomic code; /* name of the code */
  const char *_Atomic path;
  _Atomic int64_t waits_since; /* monotonic ns; 0: waits for nothing */
  _Atomic int64_t deadline_ns; /* how long one wait may last */
  _Atomic uint32_t n;          /* entries written so far */
  WatchEntry ring[WATCH_RING];
} Watch;

int64_t clock_ns(void); /* monotonic */
/* Finds the launcher of this machine by $DNN_LAUNCHER. */
void watch_open(Watch *watch, int rank, int local_rank);
void watch_close(Watch *watch);
bool watch_launcher_is_gone(const Watch *watch);
/* One line to the launcher: "started PID", "joined", "lost RANK", "left" (there
 * is nobody to print for), "ended CODE". */
void watch_tell(const Watch *watch, const char *format, ...) PRINTF_LIKE(2, 3);
void watch_note(Watch *watch, int64_t step, const char *code, int32_t instr,
                const char *path);
/* On standard error: `why`, then where this rank is and what it did last. */
void watch_report(const Watch *watch, const char *why);

/* ---- device: where the arena lives and instructions run ---- */

typedef struct Device Device;
struct Device {
  const char *name;
  /* Makes the arena (arena_bytes, aligned to 4096) and loads the kernels. */
  Status (*open)(Device *device, const DnnProgram *program, int local_rank);
  /* Enqueues one instruction of kind KERNEL, GEMM, CONV, COPY or ZERO, at these
   * turns of the loops around it, the outermost first. */
  Status (*launch)(Device *device, const DnnInstr *instr, const int64_t *turns);
  /* Host <-> arena; wait for what was enqueued before. */
  Status (*write)(Device *device, int64_t offset, const void *from,
                  int64_t bytes);
  Status (*read)(Device *device, int64_t offset, void *to, int64_t bytes);
  Status (*wait)(Device *device);
  /* Address of an arena byte as the comm needs it. */
  void *(*address)(Device *device, int64_t offset);
  void (*close)(Device *device);
  const DnnProgram *program;
  int rank; /* set before open; DnnRankOffset needs it */
  /* Address of the arena for the host, or NULL where it has none. */
  void *host_arena;
  bool is_zeroed; /* open has left zeros in the arena */
  void *state;
};
/* The device of this name in devices.def. */
Status device_create(const char *name, Arena *arena, Device **out);
#define DEVICE(name) Status device_##name##_create(Arena *arena, Device **out);
#include "runtime/devices.def"
/* For the tables of devices whose arena is `host_arena`. */
Status device_host_write(Device *device, int64_t offset, const void *from,
                         int64_t bytes);
Status device_host_read(Device *device, int64_t offset, void *to,
                        int64_t bytes);
Status device_host_wait(Device *device);
void *device_host_address(Device *device, int64_t offset);
/* How far buffer `index` has moved at these turns of the loops around. */
static inline int64_t instr_advance(const DnnInstr *instr, int index,
                                    const int64_t *turns) {
  int64_t bytes = 0;
  for (int i = 0; instr->advances && i < instr->n_loops; i++)
    bytes += turns[i] * instr->advances[index * instr->n_loops + i];
  return bytes;
}
/* Where it lies in the arena. */
static inline int64_t instr_buffer(const DnnInstr *instr, int index,
                                   const int64_t *turns) {
  return instr->buffers[index] + instr_advance(instr, index, turns);
}
/* Numbers of a launch for this rank: instr->numbers, or a copy in `scratch`
 * with the places added. */
const int64_t *instr_numbers(const DnnInstr *instr, int rank, int64_t *scratch);

/* ---- comm: collectives between ranks ---- */

typedef struct CommPart {
  void *data;
  int64_t count;
} CommPart;

/* Filled by the transport while `on`; read between steps. */
typedef struct CommEvent {
  int32_t id;
  int64_t begin_ns, end_ns;
} CommEvent;

typedef struct CommEvents {
  CommEvent *data;
  int32_t capacity;
  _Atomic int32_t n;
} CommEvents;

typedef struct Comm Comm;
struct Comm {
  const char *name; /* self local mpi nccl */
  int rank, world, local_rank, local_world;
  /* Starts; returns at once; the parts must stay until the wait.  Collectives
   * of one group run in the order of start, which is the same on all ranks.
   * Sums are made in ascending rank order, each by one rank: replicas are equal
   * bit for bit.  SEND may end only when its RECV has started, so pairs must be
   * started in orders that agree. */
  Status (*start)(Comm *comm, const DnnCollective *what, const CommPart *parts);
  /* Blocks until collective `id` has ended; STATUS_lost when a rank is gone or
   * the deadline has passed (with what it waits for). */
  Status (*wait)(Comm *comm, int32_t id);
  /* Small host-side helpers, blocking, for agreement outside the step. */
  Status (*barrier)(Comm *comm);
  Status (*broadcast)(Comm *comm, void *data, int64_t bytes, int root);
  Status (*gather)(Comm *comm, const void *data, int64_t bytes, void *all);
  /* The greatest of all ranks' values, exchanged while the step runs: start
   * returns at once, wait blocks. */
  Status (*vote_start)(Comm *comm, int64_t value);
  Status (*vote_wait)(Comm *comm, int64_t *out_greatest);
  void (*close)(Comm *comm);
  Watch *watch;         /* may be set after creation; or NULL */
  CommEvents *events;   /* times of collectives, for traces; or NULL */
  int64_t buffer_bytes; /* what the transport allocated itself */
  void *state;
};

/* Who we are: rank and world from DNN_RANK, RANK, OMPI_COMM_WORLD_RANK,
 * PMI_RANK or SLURM_PROCID and their companions; else one rank. */
typedef struct RankPlace {
  int rank, world, local_rank, local_world;
} RankPlace;
RankPlace comm_place(void);

/* By environment: one rank is `self`; else MPI (dlopen), which must bring all
 * ranks together within `limit_s` seconds. */
Status comm_create(Arena *arena, int64_t limit_s, Comm **out);
Comm *comm_self_create(Arena *arena);
Status comm_mpi_create(Arena *arena, RankPlace place, int64_t limit_s,
                       Comm **out);
/* Collectives over NCCL between device addresses; the host-side helpers go
 * through `host`, which it owns from now on.  `device` is open. */
Status comm_nccl_create(Arena *arena, Comm *host, Device *device, Comm **out);
/* `world` ranks as threads of this process, *out_ranks an array of them.
 * `rendezvous`: a start returns only when all of its group have started (zero
 * buffers).  The seed orders deliveries by a virtual clock.  When every rank
 * waits for what cannot come, all get STATUS_lost at once. */
Status comm_local_create(Arena *arena, int world, bool rendezvous,
                         uint64_t seed, Comm **out_ranks);
/* The ranks that `what` joins, for this rank. */
typedef struct CommGroup {
  int base, stride, size, index; /* index: ours in it */
} CommGroup;
CommGroup comm_group(const DnnCollective *what, int rank);
int64_t comm_count(const DnnCollective *what); /* elements in all parts */
/* The two ranks that a SEND or RECV joins, the lower first; else comm_group. */
CommGroup comm_joined(const DnnCollective *what, int rank);
/* Fails for a dtype that cannot be reduced yet. */
Status comm_check(const DnnCollective *what);
/* sum[i] = sum[i] op x[i] */
void comm_reduce(const DnnCollective *what, void *sum, const void *x,
                 int64_t n);
/* Flat elements [begin, begin + n) of the parts: where they lie, or NULL where
 * they are not in one piece; then gather and scatter copy them. */
void *comm_direct(const DnnCollective *what, const CommPart *parts,
                  int64_t begin, int64_t n);
void comm_copy(const DnnCollective *what, const CommPart *parts, int64_t begin,
               int64_t n, void *flat, bool to_flat);

/* ---- libraries of the CPU ---- */

/* Scratch that the library asks for; 0 without one. */
int64_t cpu_gemm_scratch(const DnnGemm *gemm);
int64_t cpu_conv_scratch(const DnnConv *conv);

/* ---- exec.c: runs a code ---- */

/* One instruction in a timeline. */
typedef struct TraceEvent {
  int64_t begin_ns, end_ns;
  int64_t step;
  const DnnInstr *instr;
} TraceEvent;

typedef struct Trace {
  int64_t origin_ns;
  TraceEvent *data;
  int64_t n, capacity;
  CommEvents comm;
} Trace;

typedef struct Exec Exec;
Exec *exec_create(Arena *arena, const DnnProgram *program, Device *device,
                  Comm *comm, Watch *watch);
void exec_set_trace(Exec *exec, Trace *trace); /* NULL: none */
/* Runs all instructions and waits for the device. */
Status exec_run(Exec *exec, const DnnEntryPoint *code, int64_t step);
/* The same with a look at what each instruction wrote: *out_instr is the first
 * whose values are not finite, or -1. */
Status exec_run_checked(Exec *exec, const DnnEntryPoint *code, int64_t step,
                        int32_t *out_instr);
/* The same one by one: `look` sees each instruction that has been done, a
 * collective after its end, and the turns of the loops around it. */
typedef Status ExecLook(void *user, const DnnInstr *instr,
                        const int64_t *turns);
Status exec_run_watched(Exec *exec, const DnnEntryPoint *code, int64_t step,
                        ExecLook *look, void *user);
const DnnEntryPoint *program_entry_point(const DnnProgram *program,
                                         const char *name);
/* First tensor of this role in the code, then in the program, or NULL. */
const DnnTensor *program_tensor(const DnnProgram *program,
                                const DnnEntryPoint *code, DnnRole role);
/* Number of elements, and of those that this rank holds (with padding). */
int64_t tensor_elements(const DnnTensor *tensor);
int64_t tensor_local_elements(const DnnTensor *tensor);
/* Elements [*begin, *begin + result) of dim `dim` on this rank. */
int64_t tensor_local_range(const DnnTensor *tensor, int dim, int rank,
                           int64_t *out_begin);

/* ---- trace.c ---- */

Trace *trace_create(Arena *arena, int64_t capacity);
/* A file can be written there; for before the run. */
Status trace_check(const char *path, const Comm *comm);
/* Chrome trace events; one file per rank, `path` with ".RANK" if world > 1. */
Status trace_write(const Trace *trace, const char *path, const Comm *comm,
                   const DnnProgram *program);

/* Where input files are looked for: in `folder`, the current directory, the
 * model's folder. */
typedef struct InputSearch {
  const char *folder, *model_dir; /* or NULL */
  bool follows_links; /* also out of these folders, as what a person names */
  int signals;        /* a signalfd that ends long reading; 0: none */
} InputSearch;

/* ---- data.c: what the samples of a step are ---- */

typedef struct Data Data;
/* Opens every file that the program names. */
Status data_open(Arena *arena, const DnnProgram *program,
                 const InputSearch *search, uint64_t seed, Data **out);
void data_close(Data *data);
/* There is a batch to train on, and a sample for each evaluation that is asked
 * for. */
Status data_check(const Data *data);
/* Steps of an epoch; 0 without training data. */
int64_t data_steps_per_epoch(const Data *data);
/* Samples for evaluation; 0: none. */
int64_t data_eval_samples(const Data *data);
/* Fills the DATA tensors of `code` for training step t (from 1). */
Status data_fill_train(Data *data, Device *device, const DnnEntryPoint *code,
                       int64_t t);
/* The same with `code->batch` samples of the evaluation from `first` on, in
 * order; or, for `is_random`, at offsets that depend on `first` only. */
Status data_fill_eval(Data *data, Device *device, const DnnEntryPoint *code,
                      int64_t first, bool is_random);
/* Samples that `code` can be given: those of the evaluation. */
int64_t data_samples(const Data *data, const DnnEntryPoint *code);
/* Samples [first, first + n) of them, in order; zeros in what is left of the
 * batch. */
Status data_fill_records(Data *data, Device *device, const DnnEntryPoint *code,
                         int64_t first, int64_t n);
int64_t data_resident_bytes(const Data *data);

/* ---- files.c: inputs ---- */

typedef struct Packed Packed;

/* Bytes of a file: on disk, or of a compressed one. */
typedef struct InputFile {
  const char *path;
  int fd;         /* -1: compressed */
  int64_t n;      /* bytes; of a compressed one what it announces */
  Packed *packed; /* NULL: not compressed */
  int signals;    /* as in InputSearch */
} InputFile;

/* How many bytes a file has, by its first `n`. */
typedef int64_t InputLimit(const unsigned char *bytes, int64_t n);
/* The limit of what input_next reads: it may be of any size. */
InputLimit input_streams;
/* `limit` is of a ".gz", which is unpacked as it is read; NULL: all of it is
 * unpacked at once. */
Status input_open(Arena *arena, const char *name, const InputSearch *search,
                  InputLimit *limit, InputFile *out);
/* The file or folder, which may not be there yet, is below one of the folders
 * of `search`, or links are followed. */
Status input_check_links(const char *path, const InputSearch *search);
/* Where the file is, or NULL. */
const char *input_locate(Arena *arena, const char *name, const char *folder,
                         const char *model_dir);
/* Whether there is such a file, in any of the three places. */
bool input_exists(Arena *arena, const char *name, const InputSearch *search);
Status input_read(const InputFile *file, int64_t at, void *to, int64_t n);
/* The next bytes, `at` being how many were read so far: *out_n of them, at most
 * `n`; 0 at the end. */
Status input_next(const InputFile *file, int64_t at, void *to, int64_t n,
                  int64_t *out_n);
void input_close(InputFile *file);

/* ---- states.c: split tensors ---- */

bool tensor_is_split(const DnnTensor *tensor);
/* All elements of a persistent tensor, on all ranks; they call it together. */
Status tensor_read_whole(Arena *arena, Comm *comm, Device *device,
                         const DnnTensor *tensor, unsigned char **out);
/* Writes the rank's piece of a tensor that is given whole. */
Status tensor_write_piece(Arena *arena, Device *device, const DnnTensor *tensor,
                          unsigned char *whole);

/* ---- params.c: initial values and digests ---- */

/* Index in the whole tensor of local element `local`, or -1 for padding. */
int64_t tensor_whole_index(const DnnTensor *tensor, int rank, int64_t local);
/* The initial value of one tensor, whatever it holds. */
Status params_fill(Arena *arena, Device *device, const DnnTensor *tensor,
                   uint64_t seed);

/* Fills the persistent tensors with their initial values; with `skip`, those of
 * which it is false. */
Status params_init(Arena *arena, const DnnProgram *program, Device *device,
                   uint64_t seed, bool (*skip)(const DnnTensor *tensor));
/* SHA-256 of all parameters as stored, in path order. */
Status params_sha256(Arena *arena, const DnnProgram *program, Device *device,
                     char out_hex[65]);

/* ---- main of a rank executable: bundle's run options ---- */
int rank_main(int argc, char **argv, const DnnProgram *program);

#endif
