/*
 * predict.c -- writes the result of a net, or a value inside it, for each
 * record.
 *
 * Where no parameter is sharded, the entry point `predict` is not partitioned:
 * each rank computes complete batches of its own, one after the other, with the
 * kernels that one rank alone would use. So a record has the same result on any
 * number of ranks, and only results travel, to rank 0, which writes them in
 * order.  The last batch is padded with zeros whose rows are dropped.
 *
 *     round      rank 0      rank 1
 *       0      0 ..  31    32 ..  63
 *       1     64 ..  95    96 ..  99 and 28 rows of zeros
 *
 * Where parameters are sharded or in stages, a rank cannot compute alone: all
 * ranks compute every batch together.  Rank 0 gets results that its own program
 * does not have from the first rank that has them.
 *
 * States with the batch dim begin at their initial value in each batch, others
 * keep the values that were loaded: records do not depend on their order.  A
 * batch sets the memory; nothing grows with the number of records.
 */
#include "runtime/rank/resultfile.h"
#include "runtime/rank/run.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SHARE_BYTES = 4 << 20 }; /* of a result that travel at once */

typedef struct Predict {
  Run *run;
  const DnnEntryPoint *entry;
  int64_t n;    /* records */
  int n_shares; /* batches in a round: one, or one for each rank */
  int n_results;
  const DnnTensor **results;
  int *roots; /* of each result: the first rank that has it */
  ResultArray *arrays;
  ResultFile *file; /* on rank 0 */
  int64_t share;    /* bytes of `own` */
  unsigned char *own, *all;
} Predict;

/* ---- preparing ---- */

static int64_t row_elements(const DnnTensor *tensor) {
  return tensor_elements(tensor) / tensor->size[0];
}

static const DnnEntryPoint *entry_of_row(const Predict *p, int row) {
  const DnnBundle *bundle = p->run->bundle;
  const DnnProgram *program = &bundle->programs[bundle->rows[row].program];
  return program_entry_point(program, ENTRY_predict);
}

static void add_result(Predict *p, const DnnTensor *tensor, int root) {
  for (int i = 0; i < p->n_results; i++)
    if (strcmp(p->results[i]->path, tensor->path) == 0) return;
  ResultArray *array = &p->arrays[p->n_results];
  p->roots[p->n_results] = root;
  p->results[p->n_results++] = tensor;
  *array = (ResultArray){
      .name = tensor->path, .dtype = tensor->dtype, .rank = tensor->rank};
  memcpy(array->size, tensor->size, sizeof array->size);
  array->size[0] = p->n;
}

/* The results of all programs, in one order on all ranks. */
static void find_results(Predict *p) {
  const DnnBundle *bundle = p->run->bundle;
  Arena *arena = p->run->arena;
  int most = 0;
  for (int i = 0; i < bundle->n_rows; i++)
    most += entry_of_row(p, i)->n_tensors;
  p->results = ARENA_ARRAY(arena, const DnnTensor *, most);
  p->roots = ARENA_ARRAY(arena, int, most);
  p->arrays = ARENA_ARRAY(arena, ResultArray, most);
  for (int i = 0; i < bundle->n_rows; i++) {
    const DnnEntryPoint *entry = entry_of_row(p, i);
    for (int k = 0; k < entry->n_tensors; k++)
      if (entry->tensors[k].role == DNN_RESULT)
        add_result(p, &entry->tensors[k], bundle->rows[i].first);
  }
}

/* A table is written in order, so a write of it is all rows of a batch. */
static void make_buffers(Predict *p, bool is_table) {
  Arena *arena = p->run->arena;
  p->share = SHARE_BYTES;
  for (int i = 0; i < p->n_results && is_table; i++)
    if (p->results[i]->bytes > p->share) p->share = p->results[i]->bytes;
  p->own = ARENA_ARRAY(arena, unsigned char, p->share);
  p->all = p->own;
  if (p->n_shares > 1)
    p->all = ARENA_ARRAY(arena, unsigned char, p->share * p->n_shares);
}

static bool is_computed_together(const Predict *p) {
  for (int32_t i = 0; i < p->entry->n_instrs; i++)
    if (p->entry->instrs[i].op == DNN_OP_COLLECTIVE) return true;
  return p->run->bundle->n_programs > 1;
}

/* Ranks whose stages read no data know no number of records.  A value that
 * reads none on any rank, but random numbers, has as many as are asked for. */
static Status count_records(Predict *p) {
  Run *run = p->run;
  if (!program_tensor(run->program, p->entry, DNN_DATA)) return STATUS_OK;
  TRY(data_check_lengths(run->data, p->entry, true));
  p->n = data_samples(run->data, p->entry);
  if (p->n > 0) return STATUS_OK;
  return status_make(STATUS_invalid, "there are no records to predict");
}

static Status share_count(Predict *p) {
  Comm *comm = p->run->comm;
  int64_t *all = ARENA_ARRAY(p->run->arena, int64_t, comm->world);
  TRY(comm->gather(comm, &p->n, sizeof p->n, all));
  for (int i = 0; i < comm->world; i++)
    if (all[i] > p->n) p->n = all[i];
  int64_t count = p->run->options.count;
  bool reads_data = p->n > 0;
  if (!reads_data) p->n = count > 0 ? count : p->entry->batch;
  if (count > 0 && count < p->n) p->n = count;
  return STATUS_OK;
}

static Status open_results(Predict *p) {
  Run *run = p->run;
  p->n_shares = is_computed_together(p) ? 1 : run->comm->world;
  find_results(p);
  if (run->comm->rank != 0) return STATUS_OK;
  Status status = result_open(run->arena, run->options.output, p->arrays,
                              p->n_results, &p->file);
  if (p->file) atomic_store(&run->leftover, result_temporary(p->file));
  return status;
}

static Status share_format(Predict *p) {
  int32_t is_table = p->file && result_is_table(p->file);
  Comm *comm = p->run->comm;
  TRY(comm->broadcast(comm, &is_table, sizeof is_table, 0));
  make_buffers(p, is_table != 0);
  return STATUS_OK;
}

/* ---- a round ---- */

/* The first record of a rank in a round, and how many it has. */
static int64_t share_of(const Predict *p, int64_t round, int rank,
                        int64_t *out_n) {
  int64_t batch = p->entry->batch;
  int64_t first = (round * p->n_shares + rank % p->n_shares) * batch;
  int64_t n = p->n - first;
  *out_n = n < 0 ? 0 : n < batch ? n : batch;
  return first;
}

static Status compute_round(Predict *p, int64_t round) {
  Run *run = p->run;
  int64_t n, first = share_of(p, round, run->comm->rank, &n);
  if (n == 0) return STATUS_OK;
  TRY(data_fill_records(run->data, run->device, p->entry, first, n));
  TRY(states_fill_batch_rows(run, p->entry, false));
  run_write_batch(run, first);
  return exec_run(run->exec, p->entry, round);
}

/* Elements [at, at + n) of what each rank computed, as far as it has them. */
static Status write_shares(Predict *p, int64_t round, int index, int64_t at,
                           int64_t n) {
  const DnnTensor *tensor = p->results[index];
  int64_t row = row_elements(tensor), item = dtype_bytes(tensor->dtype);
  for (int rank = 0; rank < p->n_shares; rank++) {
    int64_t rows, first = share_of(p, round, rank, &rows);
    int64_t here = rows * row - at < n ? rows * row - at : n;
    if (here > 0)
      TRY(result_write(p->file, index, first * row + at, here,
                       p->all + rank * n * item));
  }
  return STATUS_OK;
}

/* Bytes [at, at + n) of a result that this rank computed, or that rank 0 gets
 * from the one that did. */
static Status read_result(Predict *p, int index, int64_t at, int64_t n) {
  Run *run = p->run;
  Comm *comm = run->comm;
  int root = p->roots[index];
  if (p->n_shares > 1 || comm->rank == root)
    TRY(run->device->read(run->device, p->results[index]->offset + at, p->own,
                          n));
  if (root == 0 || (comm->rank != 0 && comm->rank != root)) return STATUS_OK;
  return comm->transfer(comm, p->own, n, root, 0);
}

/* `*out`: how writing went, which is no matter of the others yet. */
static Status collect_round(Predict *p, int64_t round, int index, Status *out) {
  Run *run = p->run;
  Comm *comm = run->comm;
  const DnnTensor *tensor = p->results[index];
  int64_t item = dtype_bytes(tensor->dtype), rows;
  share_of(p, round, 0, &rows); /* no rank has more */
  int64_t total = rows * row_elements(tensor), most = p->share / item;
  for (int64_t at = 0; at < total; at += most) {
    int64_t n = total - at < most ? total - at : most;
    TRY(read_result(p, index, at * item, n * item));
    if (p->n_shares > 1) TRY(comm->gather(comm, p->own, n * item, p->all));
    if (p->file && out->code == STATUS_ok)
      *out = write_shares(p, round, index, at, n);
  }
  return STATUS_OK;
}

static void show_progress(const Predict *p, int64_t done) {
  const Run *run = p->run;
  if (run->comm->rank != 0 || run->options.quiet || !isatty(STDERR_FILENO))
    return;
  if (done < p->n)
    fprintf(stderr, "\rpredicting %lld/%lld", (long long)done, (long long)p->n);
  else
    fprintf(stderr, "\r%40s\r", "");
}

/* Result: exit code; all ranks agree on it before they exchange anything. */
static int predict_all(Predict *p) {
  Run *run = p->run;
  int64_t batch = p->entry->batch * p->n_shares;
  Status written = STATUS_OK;
  for (int64_t round = 0; round * batch < p->n; round++) {
    show_progress(p, round * batch);
    Status status = compute_round(p, round);
    if (written.code != STATUS_ok) status = written;
    int code = run_agree(run, status);
    if (code) return code;
    status = STATUS_OK;
    for (int i = 0; i < p->n_results && status.code == STATUS_ok; i++)
      status = collect_round(p, round, i, &written);
    if (status.code != STATUS_ok) return run_agree(run, status);
  }
  show_progress(p, p->n);
  if (p->file && written.code == STATUS_ok) written = result_finish(p->file);
  return run_agree(run, written);
}

/* ---- the report ---- */

static void print_shape(FILE *to, const ResultArray *array) {
  for (int i = 0; i < array->rank; i++)
    fprintf(to, "%s%lld", i ? (to == stdout ? "," : ", ") : "",
            (long long)array->size[i]);
}

static void report_json(const Predict *p, double seconds) {
  Text line = text_create(p->run->arena);
  text_add(&line, "{\"output\":");
  text_add_json(&line, p->run->options.output);
  text_printf(&line, ",\"records\":%lld,\"bytes\":%lld,\"values\":[",
              (long long)p->n, (long long)result_bytes(p->file));
  for (int i = 0; i < p->n_results; i++) {
    const ResultArray *array = &p->arrays[i];
    text_add(&line, i ? ",{\"name\":" : "{\"name\":");
    text_add_json(&line, array->name);
    text_printf(&line, ",\"dtype\":\"%s\",\"shape\":[",
                dtype_label(array->dtype));
    for (int d = 0; d < array->rank; d++)
      text_printf(&line, "%s%lld", d ? "," : "", (long long)array->size[d]);
    text_add(&line, "]}");
  }
  text_printf(&line,
              "],\"arena_bytes\":%lld,\"peak_resident_bytes\":%lld,"
              "\"seconds\":%.3f}\n",
              (long long)p->run->program->arena_bytes,
              (long long)report_peak_resident(), seconds);
  fputs(text_string(&line), stdout);
}

static void report_prediction(const Predict *p, int64_t begin_ns) {
  double seconds = 1e-9 * (double)(clock_ns() - begin_ns);
  if (p->run->options.json) {
    report_json(p, seconds);
    return;
  }
  if (p->run->options.quiet) return;
  message_print("%s: %lld records of", p->run->options.output, (long long)p->n);
  for (int i = 0; i < p->n_results; i++) {
    message_print("%s '%s' %s[", i ? "," : "", p->arrays[i].name,
                  dtype_label(p->arrays[i].dtype));
    print_shape(stderr, &p->arrays[i]);
    fprintf(stderr, "]");
  }
  fprintf(stderr, ", %.1f s\n", seconds);
}

int run_predict(Run *run) {
  Predict p = {.run = run,
               .entry = program_entry_point(run->program, ENTRY_predict)};
  int64_t begin = clock_ns();
  int code = run_agree(run, count_records(&p));
  if (!code) code = run_agree(run, share_count(&p));
  if (!code) code = run_agree(run, open_results(&p));
  if (!code) code = run_agree(run, share_format(&p));
  if (!code) code = predict_all(&p);
  result_discard(p.file);
  if (!code && p.file) report_prediction(&p, begin);
  return code;
}
