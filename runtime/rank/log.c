/*
 * log.c -- writes the numbers of a run to the file of --log, on rank 0.
 *
 *     run.csv                  a row for each step and each evaluation
 *     run.tfevents, FOLDER/    TensorBoard's event files
 *
 * An event file is a list of records (TFRecord): length, CRC, bytes, CRC, where
 * the bytes are an `Event` of tensorflow/core/util/event.proto in the wire
 * format of protocol buffers.  Of these messages only four fields are written,
 * so they are made by hand.
 *
 * A run that continues another one appends.  The rows of a CSV file that belong
 * to steps which are made again are dropped; TensorBoard drops them itself.
 */
#include "runtime/rank/run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_LOG_BYTES = 1 << 30 };
static const int64_t flush_ns = 1000000000;

struct RunLog {
  const char *path;
  FILE *file;
  bool is_events;
  int64_t flushed_ns;
};

/* ---- records of an event file ---- */

enum { MOST_EVENT = 4096 };

typedef struct Bytes {
  unsigned char data[MOST_EVENT];
  int n;
} Bytes;

static void put_bytes(Bytes *out, const void *data, int n) {
  if (n > MOST_EVENT - out->n) return; /* no event comes near it */
  memcpy(out->data + out->n, data, (size_t)n);
  out->n += n;
}

static void put_little_endian(Bytes *out, uint64_t value, int n) {
  unsigned char bytes[8];
  for (int i = 0; i < n; i++) bytes[i] = (unsigned char)(value >> (8 * i));
  put_bytes(out, bytes, n);
}

static void put_varint(Bytes *out, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    put_little_endian(out, (value & 0x7f) | 0x80, 1);
  put_little_endian(out, value, 1);
}

/* Field numbers and wire types, as event.proto and summary.proto have them. */
enum Wire { WIRE_varint = 0, WIRE_64 = 1, WIRE_bytes = 2, WIRE_32 = 5 };
enum EventField {
  EVENT_time = 1,
  EVENT_step,
  EVENT_version,
  EVENT_summary = 5
};
enum SummaryField { SUMMARY_value = 1 };
enum ValueField { VALUE_tag = 1, VALUE_simple };

static void put_key(Bytes *out, int field, enum Wire wire) {
  put_varint(out, (uint64_t)(field << 3 | (int)wire));
}

static void put_part(Bytes *out, int field, const void *data, int n) {
  put_key(out, field, WIRE_bytes);
  put_varint(out, (uint64_t)n);
  put_bytes(out, data, n);
}

/* The CRC of Castagnoli, which TFRecord masks. */
static uint32_t masked_crc(const unsigned char *data, int n) {
  uint32_t crc = 0xffffffff;
  for (int i = 0; i < n; i++) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; bit++)
      crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

static void write_event(RunLog *log, const Bytes *event) {
  Bytes record = {.n = 0};
  put_little_endian(&record, (uint64_t)event->n, 8);
  put_little_endian(&record, masked_crc(record.data, 8), 4);
  put_bytes(&record, event->data, event->n);
  put_little_endian(&record, masked_crc(event->data, event->n), 4);
  fwrite(record.data, 1, (size_t)record.n, log->file);
}

static void begin_event(Bytes *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  double seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
  uint64_t bits;
  memcpy(&bits, &seconds, sizeof bits);
  *out = (Bytes){.n = 0};
  put_key(out, EVENT_time, WIRE_64);
  put_little_endian(out, bits, 8);
}

static void write_version(RunLog *log) {
  static const char version[] = "brain.Event:2";
  Bytes event;
  begin_event(&event);
  put_part(&event, EVENT_version, version, (int)sizeof version - 1);
  write_event(log, &event);
}

/* An event with one number. */
static void write_scalar(RunLog *log, int64_t step, const char *tag,
                         double number) {
  Bytes event, value = {.n = 0}, summary = {.n = 0};
  float rounded = (float)number;
  uint32_t bits;
  memcpy(&bits, &rounded, sizeof bits);
  put_part(&value, VALUE_tag, tag, (int)strlen(tag));
  put_key(&value, VALUE_simple, WIRE_32);
  put_little_endian(&value, bits, 4);
  put_part(&summary, SUMMARY_value, value.data, value.n);
  begin_event(&event);
  put_key(&event, EVENT_step, WIRE_varint);
  put_varint(&event, (uint64_t)step);
  put_part(&event, EVENT_summary, summary.data, summary.n);
  write_event(log, &event);
}

/* ---- what a row has ---- */

enum { N_STEP_COLUMNS = 5 };
static const char *const step_columns[N_STEP_COLUMNS] = {"loss", "norm", "lr",
                                                         "ms", "items_per_s"};

static bool is_scalar(const DnnMetric *metric) {
  return !metric_is_list(metric) && !metric_is_table(metric);
}

static void add_head(const Run *run, Text *out) {
  const DnnSettings *settings = &run->program->settings;
  text_add(out, "step");
  for (int i = 0; i < N_STEP_COLUMNS; i++)
    text_printf(out, ",%s", step_columns[i]);
  text_add(out, ",validation_loss");
  for (int i = 0; i < settings->n_metrics; i++)
    if (is_scalar(&settings->metrics[i]))
      text_printf(out, ",%s", settings->metrics[i].name);
  text_add(out, "\n");
}

static double value_of(const Figure *figure) {
  return figure && figure->has_value ? figure->value : NAN;
}

/* An empty cell is a number that is not there. */
static void write_cell(FILE *file, double value) {
  if (isnan(value))
    fputs(",", file);
  else
    fprintf(file, ",%.9g", value);
}

static void write_csv(const Run *run, int64_t step, const double *numbers,
                      const Figure *validation) {
  const DnnSettings *settings = &run->program->settings;
  FILE *file = run->log->file;
  fprintf(file, "%lld", (long long)step);
  for (int i = 0; i < N_STEP_COLUMNS; i++)
    write_cell(file, numbers ? numbers[i] : NAN);
  write_cell(file, value_of(validation));
  for (int i = 0; i < settings->n_metrics; i++)
    if (is_scalar(&settings->metrics[i]))
      write_cell(file, validation ? value_of(&run->metrics[i]) : NAN);
  fputs("\n", file);
}

/* ---- opening ---- */

static bool ends_in(const char *path, const char *ending) {
  size_t n = strlen(path), n_ending = strlen(ending);
  return n > n_ending && strcmp(path + n - n_ending, ending) == 0;
}

static bool is_folder(const char *path) {
  struct stat info;
  return ends_in(path, "/") ||
         (stat(path, &info) == 0 && S_ISDIR(info.st_mode));
}

/* TensorBoard reads the files of a folder with "tfevents" in their names. */
static Status name_in_folder(Arena *arena, const char *folder,
                             const char **out) {
  char host[65] = "host";
  TRY(file_make_dirs(folder));
  if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  *out = arena_printf(arena, "%s%sevents.out.tfevents.%lld.%s.%d", folder,
                      ends_in(folder, "/") ? "" : "/", (long long)time(NULL),
                      host, (int)getpid());
  return STATUS_OK;
}

/* Keeps the head and the rows up to the step that the run continues from. */
static Status keep_rows(const Run *run, Arena *scratch, const char *path,
                        const char *head) {
  const char *text;
  size_t n, n_head = strlen(head);
  TRY(file_read(scratch, path, MOST_LOG_BYTES, &text, &n));
  if (n > 0 && strncmp(text, head, n_head) != 0)
    return status_make(STATUS_invalid,
                       "'%s' has other columns than this run: give --log "
                       "another file",
                       path);
  Text kept = text_create(scratch);
  text_add(&kept, head);
  for (const char *at = text + (n ? n_head : 0), *end; *at; at = end + 1) {
    end = strchr(at, '\n');
    if (!end) break; /* a line that was being written */
    if (strtoll(at, NULL, 10) <= run->done)
      text_printf(&kept, "%.*s\n", (int)(end - at), at);
  }
  return file_replace(path, text_string(&kept), kept.n);
}

static Status begin_csv(const Run *run, const char *path) {
  Arena *scratch = arena_create(run->memory);
  Text head = text_create(scratch);
  add_head(run, &head);
  bool continues = run->options.resume && run->done > 0 && file_exists(path);
  Status status = continues ? keep_rows(run, scratch, path, text_string(&head))
                            : file_replace(path, text_string(&head), head.n);
  arena_destroy(scratch);
  return status;
}

Status log_open(Run *run) {
  const char *path = run->options.log;
  if (!path || run->comm->rank != 0 || run->program->is_paced) return STATUS_OK;
  RunLog *log = ARENA_NEW(run->arena, RunLog);
  bool is_csv = ends_in(path, ".csv"), in_folder = is_folder(path);
  bool continues = run->options.resume && run->done > 0;
  log->is_events = !is_csv;
  if (!is_csv && !in_folder && !ends_in(path, ".tfevents"))
    return status_make(STATUS_invalid,
                       "--log '%s' must end in .csv, .tfevents or / (a folder "
                       "for TensorBoard)",
                       path);
  if (in_folder) TRY(name_in_folder(run->arena, path, &path));
  if (is_csv) TRY(begin_csv(run, path));
  log->path = path;
  log->file = fopen(path, is_csv || continues ? "ae" : "we");
  if (!log->file) return status_errno(errno, "cannot write '%s'", path);
  run->log = log;
  if (log->is_events) write_version(log);
  fflush(log->file);
  return STATUS_OK;
}

/* ---- writing ---- */

/* A reader sees what is a second old. */
static void flush_log(RunLog *log, bool at_once) {
  int64_t now = clock_ns();
  if (!at_once && now - log->flushed_ns < flush_ns) return;
  fflush(log->file);
  log->flushed_ns = now;
}

void log_step(const Run *run, int64_t step, int64_t ns) {
  if (!run->log) return;
  double items =
      (double)(run->train->batch * run->program->settings.items_per_sample);
  const double numbers[N_STEP_COLUMNS] = {
      (double)run->loss, run->has_norm ? (double)run->norm : NAN,
      (double)run->rate, (double)ns * 1e-6, items / ((double)ns * 1e-9)};
  if (!run->log->is_events) write_csv(run, step, numbers, NULL);
  for (int i = 0; run->log->is_events && i < N_STEP_COLUMNS; i++)
    if (i != 1 || run->has_norm)
      write_scalar(run->log, step, step_columns[i], numbers[i]);
  flush_log(run->log, step == run->last);
}

void log_evaluation(const Run *run) {
  const DnnSettings *settings = &run->program->settings;
  RunLog *log = run->log;
  if (!log) return;
  if (log->is_events) {
    if (run->validation->has_value)
      write_scalar(log, run->done, "validation/loss", run->validation->value);
    for (int i = 0; i < settings->n_metrics; i++) {
      char tag[256];
      FixedText text = fixed_text(tag, sizeof tag);
      fixed_printf(&text, "validation/%s", settings->metrics[i].name);
      if (is_scalar(&settings->metrics[i]) && run->metrics[i].has_value)
        write_scalar(log, run->done, tag, run->metrics[i].value);
    }
  } else {
    write_csv(run, run->done, NULL, run->validation);
  }
  flush_log(log, true);
}

Status log_close(Run *run) {
  RunLog *log = run->log;
  run->log = NULL;
  if (!log) return STATUS_OK;
  bool is_wrong = fflush(log->file) != 0 || ferror(log->file);
  int error = errno;
  if (fclose(log->file) != 0 || is_wrong)
    return status_errno(error, "'%s' is not complete", log->path);
  return STATUS_OK;
}
