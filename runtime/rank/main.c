/*
 * main.c -- starts what a run needs (transport, device, data, parameters),
 * trains, samples, evaluates or predicts, and ends with the exit code that all
 * ranks agree on.
 *
 * Signals are read from a descriptor between steps: on SIGUSR1, SIGTERM or
 * Ctrl-C all ranks finish the step, a checkpoint is written, and the run ends.
 */
#include "runtime/rank/run.h"

#include "runtime/cpu/cpu.h"
#include "runtime/data/fingerprint.h"
#include "runtime/launch/launch.h"
#include "runtime/rank/rank.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { TRACE_EVENTS = 1 << 18 };

/* ---- start ---- */

static int open_signals(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigprocmask(SIG_BLOCK, &set, NULL);
  return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* A checkpoint is read and nothing is trained. */
static bool reads_only(const RunOptions *options) {
  return options->sample || options->predict || options->eval;
}

/* A paced program has no values. */
static Status check_paced(const RunOptions *options) {
  if (reads_only(options) || options->resume || options->load)
    return status_make(STATUS_invalid,
                       "this program is paced: it computes nothing, so it "
                       "reads no checkpoint; build it without --paced");
  if (options->profile || options->transfers)
    return status_make(STATUS_invalid,
                       "this program is paced: it computes nothing, so there "
                       "is nothing to measure; build it without --paced");
  return STATUS_OK;
}

static Status check_program(const Run *run) {
  const DnnProgram *program = run->program;
  if (run->bundle->abi != DNN_ABI)
    return status_make(STATUS_invalid,
                       "this program was built for another runtime");
  if (program->world != run->comm->world)
    return status_make(STATUS_invalid,
                       "this program is for %d ranks, but %d were started; "
                       "use the bundle's run",
                       program->world, run->comm->world);
  if (program->is_paced) TRY(check_paced(&run->options));
  if (run->options.sample && !run->prefill)
    return status_make(STATUS_invalid, "the model has no 'sample' block");
  if (!reads_only(&run->options) && !run->train)
    return status_make(STATUS_invalid, "the model has no 'train' block");
  if (run->options.eval && !run->eval)
    return status_make(STATUS_invalid, "the model has no 'train' block, so no "
                                       "loss to evaluate");
  if (run->options.resume && run->options.load)
    return status_make(STATUS_invalid,
                       "--resume and --load exclude each other");
  return STATUS_OK;
}

static Status open_device(Run *run) {
  TRY(device_create(run->program->target, run->arena, &run->device));
  run->device->rank = run->comm->rank;
  return run->device->open(run->device, run->program, run->comm->local_rank);
}

/* Where a rank was lost, the others wait for it and cannot agree. */
static Status open_transport(Run *run) {
  Status status =
      comm_for_device(run->arena, run->comm, run->device, &run->comm);
  if (status.code == STATUS_lost) run_must(run, status);
  TRY(status);
  run->comm->recorder = &run->recorder;
  return poison_arena(run);
}

/* Neither samples nor links need training data. */
static Status open_data(Run *run) {
  const DnnSettings *settings = &run->program->settings;
  run->total = settings->steps;
  if (run->options.sample || run->options.links) return STATUS_OK;
  InputSearch search = run_search(run);
  TRY(data_open(run->arena, run->program, run->bundle, &search, run->seed,
                &run->data));
  if (run->options.predict) return STATUS_OK;
  TRY(data_check(run->data));
  if (run->comm->rank == 0) TRY(data_check_packed(run->data));
  if (run->options.eval && data_eval_samples(run->data) == 0)
    return status_make(STATUS_invalid,
                       "the model reserves no records for evaluation; 'eval = "
                       "0.1' in a data block reserves the last tenth");
  int64_t per_epoch = data_steps_per_epoch(run->data);
  if (!run->total) run->total = settings->epochs * per_epoch;
  run->last = run->total;
  if (run->options.steps >= 0 && run->options.steps < run->last)
    run->last = run->options.steps;
  return STATUS_OK;
}

static Status write_scalar(Run *run, DnnRole role, int64_t value) {
  const DnnTensor *tensor = program_tensor(run->program, NULL, role);
  if (!tensor) return STATUS_OK;
  return run->device->write(run->device, tensor->offset, &value,
                            dtype_bytes(tensor->dtype));
}

static Status write_scalars(Run *run) {
  if (run->data)
    TRY(write_scalar(run, DNN_EPOCH, data_steps_per_epoch(run->data)));
  return write_scalar(run, DNN_SEED, (int64_t)run->seed);
}

static const char *folder_of(const Run *run) {
  return run->program->settings.save;
}

/* A folder that the model names is no link out of the folder of the run. */
static Status check_folder(const Run *run) {
  InputSearch search = run_search(run);
  if (run->program->settings.is_save_given) return STATUS_OK;
  return input_check_links(folder_of(run), &search);
}

/* Rank 0 finds the checkpoint; the others hear of it. */
static Status find_checkpoint(Run *run, Checkpoint *out, bool *out_found) {
  const char *folder = folder_of(run);
  *out_found = false;
  if (run->options.load) {
    *out_found = true;
    return checkpoint_locate(
        run->memory, run->arena, run->options.load, run->program,
        run->options.partial ? MATCH_part : MATCH_full, out);
  }
  if (!folder)
    return status_make(STATUS_invalid, "the model names no folder to resume "
                                       "from; use --load DIR");
  TRY(check_folder(run));
  TRY(checkpoint_find(run->memory, run->arena, folder, run->program,
                      run->options.resume ? MATCH_resume : MATCH_full, out,
                      out_found));
  if (*out_found) return STATUS_OK;
  if (!run->options.resume)
    return status_make(STATUS_invalid,
                       "no checkpoint in '%s': train first, or use --load DIR",
                       folder);
  message_print("warning: no checkpoint in '%s': beginning at step 1\n",
                folder);
  return STATUS_OK;
}

static bool is_resumed(const DnnTensor *tensor) {
  (void)tensor;
  return true;
}

static bool is_loaded(const DnnTensor *tensor) {
  return tensor->role == DNN_PARAM || tensor->role == DNN_STATE;
}

static Status check_seed(const Run *run, uint64_t seed) {
  if (run->options.seed >= 0 && seed != run->seed && run->comm->rank == 0)
    fprintf(stderr,
            "warning: the checkpoint was trained with seed %llu; data order "
            "and random numbers continue with %llu\n",
            (unsigned long long)seed, (unsigned long long)run->seed);
  if (run->options.seed >= 0 || seed == run->seed) return STATUS_OK;
  return status_make(STATUS_invalid,
                     "the checkpoint was trained with seed %llu; give --seed "
                     "%llu",
                     (unsigned long long)seed, (unsigned long long)seed);
}

/* Fills what persists: from a checkpoint (or NULL), and with initial values
 * what is not in it. */
static Status fill_persistent(Run *run, const Checkpoint *checkpoint) {
  bool is_resume = run->options.resume;
  bool begins_anew = !checkpoint || run->options.partial;
  TRY(params_init(run->arena, run->program, run->device, run->seed,
                  begins_anew ? NULL
                  : is_resume ? is_resumed
                              : is_loaded));
  TRY(write_scalars(run));
  if (!checkpoint) return STATUS_OK;
  TRY(checkpoint_load(run->arena, checkpoint, run->program, run->device,
                      run->comm, is_resume));
  if (run->options.eval) run->done = run->total = checkpoint->step;
  if (!is_resume) return STATUS_OK;
  run->done = run->saved = checkpoint->step;
  return check_seed(run, checkpoint->seed);
}

/* A checkpoint at the last step is one that ends there. */
static Status check_left(const Run *run) {
  if (!run->options.resume || run->done <= run->last) {
    bool is_done = run->options.resume && run->done == run->last;
    if (is_done && run->done > 0 && run->comm->rank == 0 && !run->options.quiet)
      fprintf(stderr, "note: nothing is left to train: step %lld is the last\n",
              (long long)run->done);
    return STATUS_OK;
  }
  bool is_asked = run->last == run->options.steps && run->last != run->total;
  return status_make(
      STATUS_invalid,
      "nothing is left to train: the checkpoint is at step %lld, "
      "and %s step %lld%s",
      (long long)run->done,
      is_asked ? "--steps ends at" : "the schedule ends at",
      (long long)run->last,
      is_asked ? "" : " ('steps' or 'epochs' of the model)");
}

/* Opens what rank 0 has found. */
static Status open_same(Run *run, const char *path, uint64_t identity,
                        Checkpoint *out) {
  Status status = checkpoint_open(run->arena, path, out);
  if (status.code != STATUS_ok)
    return status_make(status.code,
                       "%s; each rank reads its own shards from it",
                       status.message);
  if (checkpoint_identity(out) == identity) return STATUS_OK;
  return status_make(STATUS_invalid,
                     "'%s' is another checkpoint here than on rank 0", path);
}

/* All ranks open the checkpoint that rank 0 has found, if it has. */
static Status share_checkpoint(Run *run, Checkpoint *checkpoint, bool *found) {
  Comm *comm = run->comm;
  uint64_t words[2] = {0}; /* length of the path, identity */
  if (comm->world == 1) return STATUS_OK;
  if (comm->rank == 0 && *found) {
    words[0] = strlen(checkpoint->given) + 1;
    words[1] = checkpoint_identity(checkpoint);
  }
  TRY(comm->broadcast(comm, words, sizeof words, 0));
  *found = words[0] > 0;
  if (!*found) return STATUS_OK;
  char *path = ARENA_ARRAY(run->arena, char, words[0]);
  if (comm->rank == 0) memcpy(path, checkpoint->given, words[0]);
  TRY(comm->broadcast(comm, path, (int64_t)words[0], 0));
  return comm->rank == 0 ? STATUS_OK
                         : open_same(run, path, words[1], checkpoint);
}

static bool has_saved_tensors(const DnnProgram *program) {
  for (int i = 0; i < program->n_tensors; i++)
    if (tensor_is_saved(&program->tensors[i])) return true;
  return false;
}

/* A net without parameters predicts without a checkpoint. */
static bool wants_checkpoint(const Run *run) {
  const RunOptions *options = &run->options;
  if (options->resume || options->load) return true;
  return reads_only(options) &&
         !(options->predict && !has_saved_tensors(run->program));
}

static int restore_checkpoint(Run *run) {
  Checkpoint checkpoint = {0};
  const RunOptions *options = &run->options;
  bool found = false, is_root = run->comm->rank == 0;
  bool is_wanted = wants_checkpoint(run);
  Status status = STATUS_OK;
  if (is_wanted && is_root) status = find_checkpoint(run, &checkpoint, &found);
  if (status.code == STATUS_ok && found && options->resume)
    status = data_compare(run->arena, &checkpoint, run->data_files,
                          run->n_data_files, options->data_changed);
  int code = run_agree(run, status);
  if (!code && is_wanted)
    code = run_agree(run, share_checkpoint(run, &checkpoint, &found));
  if (code) return code;
  code = run_agree(run, fill_persistent(run, found ? &checkpoint : NULL));
  checkpoint_close(&checkpoint);
  if (!code) code = best_begin(run);
  if (!code) code = run_agree(run, check_left(run));
  if (!code && is_root && found && options->resume && !options->quiet &&
      !options->json)
    fprintf(stderr, "resumed at step %lld\n", (long long)run->done);
  return code;
}

/* Where a run saves; NULL: it does not. */
static const char *saved_folder(const RunOptions *options,
                                const DnnProgram *program) {
  bool saves = !options->no_save && !reads_only(options) && !options->dry_run &&
               !program->is_paced;
  return saves ? program->settings.save : NULL;
}

static Status open_saver(Run *run) {
  if (run->comm->rank != 0 || !saved_folder(&run->options, run->program))
    return STATUS_OK;
  TRY(check_folder(run));
  TRY(saver_open(run->arena, run->program, folder_of(run),
                 run->options.file_size, &run->saver));
  recorder_tell(&run->recorder, "saves %s", folder_of(run));
  return STATUS_OK;
}

static Status look_at_data(Run *run) {
  if (run->comm->rank != 0 || (!run->saver && !run->options.resume))
    return STATUS_OK;
  TRY(data_fingerprint(run->arena, run->program, run->options.data,
                       &run->data_files, &run->n_data_files));
  if (run->saver)
    saver_set_data(run->arena, run->saver, run->data_files, run->n_data_files);
  return STATUS_OK;
}

static bool wants_profile(const RunOptions *options) {
  return (options->profile || options->transfers) && !reads_only(options);
}

static Status check_profiles(const Run *run) {
  const char *const paths[] = {run->options.profile, run->options.transfers};
  if (run->comm->rank != 0) return STATUS_OK;
  if (run->options.links) TRY(file_check_output(run->options.links));
  if (!wants_profile(&run->options)) return STATUS_OK;
  if (run->train && run->train->periods)
    return status_make(STATUS_unavailable,
                       "not supported yet: a profile of stages that keep "
                       "versions of their parameters");
  for (int i = 0; i < ARRAY_LENGTH(paths); i++)
    if (paths[i]) TRY(profiler_check(paths[i]));
  return STATUS_OK;
}

static int start_run(Run *run) {
  const DnnProgram *program = run->program;
  run->train = program_entry_point(program, ENTRY_train);
  run->eval = program_entry_point(program, ENTRY_eval);
  run->eval_remainder = program_entry_point(program, ENTRY_eval_remainder);
  run->prefill = program_entry_point(program, ENTRY_prefill);
  run->seed = run->options.seed >= 0 ? (uint64_t)run->options.seed
                                     : program->settings.seed;
  run->saved = run->evaluated = run->compared = -1;
  run->loss = NAN; /* until a step was made */
  run->late.are_on = late_results_are_in(run->bundle);
  EntryPointId eval = run->eval ? ENTRY_eval : ENTRY_eval_remainder;
  run->validation = figures_create(run->arena, run->bundle,
                                   &program->settings.validation, 1, eval);
  run->metrics =
      figures_create(run->arena, run->bundle, program->settings.metrics,
                     program->settings.n_metrics, eval);
  int code = run_agree(run, check_program(run));
  if (!code) code = replicas_check_builds(run);
  if (!code && run->comm->watch) run->comm->watch(run->comm, program);
  if (!code) code = run_agree(run, open_device(run));
  if (!code) code = run_agree(run, open_transport(run));
  if (!code) code = run_agree(run, open_data(run));
  if (!code) code = run_agree(run, open_saver(run));
  if (!code) code = run_agree(run, look_at_data(run));
  if (!code && run->options.trace)
    code = run_agree(run, trace_check(run->options.trace, run->comm));
  if (!code) code = run_agree(run, check_profiles(run));
  if (code) return code;
  run->exec =
      exec_create(run->arena, program, run->device, run->comm, &run->recorder);
  code = run_agree(run, servers_open(run));
  if (code) return code;
  if (wants_profile(&run->options)) {
    run->profiler = profiler_create(run->arena, run->train);
    exec_set_profiler(run->exec, run->profiler);
  }
  if (run->options.trace) {
    run->trace = trace_create(run->arena, TRACE_EVENTS);
    code = run_agree(run, trace_align(run->trace, run->arena, run->comm));
    if (code) return code;
    exec_set_trace(run->exec, run->trace);
  }
  return restore_checkpoint(run);
}

static void finish_run(Run *run, int code) {
  stop_signal_thread(run);
  saver_close(run->saver);
  if (run->data) data_close(run->data);
  if (run->device && run->device->program) run->device->close(run->device);
  /* Only the transport works after this: tell the launcher that we ended. */
  recorder_tell(&run->recorder, "ended %d", code);
  run->comm->close(run->comm);
  close(run->signals);
  recorder_close(&run->recorder);
  memory_destroy(run->memory);
}

static int do_run(Run *run) {
  int code = start_run(run);
  if (code) return code;
  report_start(run);
  if (run->options.dry_run) return EXIT_done;
  if (run->options.links) return run_measure_links(run);
  if (run->options.predict) return run_predict(run);
  if (run->options.eval) return run_evaluate(run);
  if (run->options.sample) return run_sample(run);
  code = run_agree(run, log_open(run));
  if (!code) code = run_train(run);
  Status status = log_close(run);
  if (status.code == STATUS_ok || code) return code;
  message_print("error: %s\n", status.message);
  return status_exit_code(status);
}

static void on_memory_exhausted(void *user) {
  (void)user;
  static const char text[] = "error: no memory left\n";
  if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(EXIT_machine);
  _exit(EXIT_machine);
}

static int launch_bundle(int argc, char **argv, const RunOptions *options,
                         const DnnBundle *bundle, const char *folder) {
  const DnnProgram *program = bundle->programs;
  return launch_ranks(&(LaunchOptions){
      .bundle = folder,
      .ranks = bundle->world,
      .arguments = (const char *const *)argv + 1,
      .n_arguments = argc - 1,
      .is_quiet = options->quiet || options->json || program->is_paced,
      .save = saved_folder(options, program),
      .model_hash = program->model_hash,
      .plan_hash = program->plan_hash,
      .keeps_nothing = options->predict || options->eval || program->is_paced,
      .start_timeout_s = options->start_timeout});
}

/* The program without training: these entry points, and no more of the
 * arena than they touch. */
static const DnnProgram *with_entry_points(Arena *arena,
                                           const DnnProgram *program,
                                           const EntryPointId *ids, int n) {
  DnnProgram *own = arena_copy(arena, program, sizeof *program);
  DnnEntryPoint *entry_points = ARENA_ARRAY(arena, DnnEntryPoint, n);
  own->entry_points = entry_points;
  own->n_entry_points = 0;
  own->arena_bytes = program->persistent_bytes;
  for (int i = 0; i < n; i++) {
    const DnnEntryPoint *entry = program_entry_point(program, ids[i]);
    if (!entry) continue;
    entry_points[own->n_entry_points++] = *entry;
    if (entry->arena_bytes > own->arena_bytes)
      own->arena_bytes = entry->arena_bytes;
  }
  return own;
}

/* The part of a program that these options ask for. */
static Status choose_entry_points(Arena *arena, const DnnBundle *bundle,
                                  const RunOptions *options,
                                  const DnnProgram **program) {
  static const EntryPointId sampling[] = {ENTRY_prefill, ENTRY_decode,
                                          ENTRY_decode_init};
  static const EntryPointId evaluating[] = {ENTRY_eval, ENTRY_eval_remainder};
  if (options->predict)
    return predict_program(arena, bundle, *program, options, program);
  if (options->links) *program = links_program(arena, *program);
  if (options->sample && (*program)->sample)
    *program =
        with_entry_points(arena, *program, sampling, ARRAY_LENGTH(sampling));
  else if (options->eval)
    *program = with_entry_points(arena, *program, evaluating,
                                 ARRAY_LENGTH(evaluating));
  return STATUS_OK;
}

int rank_main(int argc, char **argv, const DnnBundle *bundle) {
  RunOptions options;
  char folder[BUNDLE_PATH];
  int code = handshake_become(argc, argv);
  if (code >= 0) return code;
  file_fill_standard_streams();
  file_let_writes_fail();
  code = run_read_options(argc, argv, &options);
  if (code >= 0) return code;
  if (bundle_find(argv[0], folder))
    return launch_bundle(argc, argv, &options, bundle, folder);
  /* mpirun or srun may have started this rank, and says nothing of threads. */
  if (threads_limit_spinning()) execv("/proc/self/exe", argv);
  if (getenv("DNN_LAUNCHER")) prctl(PR_SET_PDEATHSIG, SIGKILL);
  Memory *memory = memory_create(on_memory_exhausted, NULL);
  if (!memory) on_memory_exhausted(NULL);
  Arena *arena = arena_create(memory);
  Run *run = ARENA_NEW(arena, Run);
  RankPlace place = comm_place();
  const DnnProgram *program = bundle_program(bundle, place.rank);
  Status chosen = choose_entry_points(arena, bundle, &options, &program);
  *run = (Run){.bundle = bundle,
               .program = program,
               .options = options,
               .memory = memory,
               .arena = arena,
               .signals = open_signals()};
  run->read_signals = run->signals;
  recorder_open(&run->recorder, place.rank, place.local_rank);
  run->recorder.stages = program->stages;
  if (options.predict || options.eval || program->is_paced) stop_at_once(run);
  if (place.world > 1) signal(SIGPIPE, SIG_IGN); /* see report_flush */
  Status status = comm_create(arena, options.start_timeout, &run->comm);
  if (status.code != STATUS_ok) {
    stop_signal_thread(run);
    bool is_late = status.code == STATUS_lost; /* and rank 0 perhaps not here */
    if (place.rank == 0 || is_late)
      message_print("error: %s\n", status.message);
    recorder_tell(&run->recorder, "ended %d", status_exit_code(status));
    if (is_late) _exit(status_exit_code(status)); /* a thread waits in MPI */
    memory_destroy(memory);
    return status_exit_code(status);
  }
  run->comm->recorder = &run->recorder;
  recorder_tell(&run->recorder, "joined");
  code = run_agree(run, chosen);
  if (!code) code = do_run(run);
  if ((fflush(stdout) != 0 || ferror(stdout)) && !code) {
    fprintf(stderr, "error: standard output could not be written\n");
    code = EXIT_machine;
  }
  finish_run(run, code);
  return code;
}
