/*
 * server_log.c -- writes in which order a server took the gradients of workers
 * and what its answers had in them, and reads such a log again.
 *
 *     # server 0 of 2, 4 workers, staleness 1
 *     # parameter wte rows 10
 *     push 2 1              the gradients of worker 2 at clock 1 were taken
 *     reply 2 1 0 0 1 0     the answer: the last clock of each worker in it
 *
 * Answers follow from the order of the pushes, so this order is all that a
 * repetition needs.  The file of server i is DIR/server-i.log.
 */
#include "runtime/rank/servers.h"

#include "support/file.h"

#include <errno.h>
#include <stdlib.h>

struct ServerLog {
  FILE *out; /* NULL: nothing is written */
  FILE *in;  /* NULL: nothing is repeated */
  const char *in_path;
};

static const char *path_of(Run *run, const char *folder, int number) {
  return arena_printf(run->arena, "%s/server-%d.log", folder, number);
}

static Status open_one(const char *path, const char *mode, FILE **out) {
  *out = fopen(path, mode);
  return *out ? STATUS_OK : status_errno(errno, "cannot open '%s'", path);
}

/* Where servers divide a table the line has the first row of this one. */
static void note_parameter(const ServerLog *log, const DnnTensor *own,
                           const DnnTensor *all, int number) {
  fprintf(log->out, "# %s %s", own->role == DNN_STATE ? "state" : "parameter",
          own->path);
  if (own->bytes < all->bytes)
    fprintf(log->out, " rows %lld", (long long)(number * own->size[0]));
  fprintf(log->out, "\n");
}

Status server_log_open(Run *run, int number, ServerLog **out) {
  const RunOptions *options = &run->options;
  const DnnProgram *program = run->program;
  ServerLog *log = *out = ARENA_NEW(run->arena, ServerLog);
  if (options->replay) {
    log->in_path = path_of(run, options->replay, number);
    TRY(open_one(log->in_path, "r", &log->in));
  }
  if (!options->server_log) return STATUS_OK;
  TRY(file_make_dirs(options->server_log));
  TRY(open_one(path_of(run, options->server_log, number), "w", &log->out));
  fprintf(log->out, "# server %d of %d, %d workers, staleness ", number,
          program->n_servers, program->first_server);
  if (program->staleness < 0)
    fprintf(log->out, "none\n");
  else
    fprintf(log->out, "%lld\n", (long long)program->staleness);
  for (int i = 0; i < program->n_tensors; i++)
    if (servers_give(&program->tensors[i],
                     &bundle_program(run->bundle, 0)->tensors[i]))
      note_parameter(log, &program->tensors[i],
                     &bundle_program(run->bundle, 0)->tensors[i], number);
  return STATUS_OK;
}

void server_log_push(ServerLog *log, int worker, int64_t clock) {
  if (log->out) fprintf(log->out, "push %d %lld\n", worker, (long long)clock);
}

void server_log_reply(ServerLog *log, int worker, int64_t clock,
                      const int64_t *versions, int n) {
  if (!log->out) return;
  fprintf(log->out, "reply %d %lld", worker, (long long)clock);
  for (int i = 0; i < n; i++)
    fprintf(log->out, " %lld", (long long)versions[i]);
  fprintf(log->out, "\n");
}

Status server_log_next(ServerLog *log, int *out_worker) {
  char *line = NULL;
  size_t size = 0;
  int found = 0;
  *out_worker = -1;
  if (!log->in) return STATUS_OK;
  while (!found && getline(&line, &size, log->in) > 0)
    found = sscanf(line, "push %d", out_worker) == 1;
  free(line);
  if (found) return STATUS_OK;
  return status_make(STATUS_invalid,
                     "'%s' has no further push: it is of a shorter run",
                     log->in_path);
}

Status server_log_close(ServerLog *log) {
  bool is_written = !log->out || (fflush(log->out) == 0 && !ferror(log->out));
  if (log->in) fclose(log->in);
  if (log->out && fclose(log->out) != 0) is_written = false;
  return is_written ? STATUS_OK
                    : status_make(STATUS_io, "a server log is not complete");
}
