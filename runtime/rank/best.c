/*
 * best.c -- remembers the validation losses of a run: which checkpoint is the
 * best one, and whether the loss has stopped falling.
 *
 *     NAME.ckpt/validation.csv    step,validation_loss
 *     NAME.ckpt/best              one line: the step of the lowest loss
 *
 * Only evaluations of the schedule count, those of `eval_every` and the one
 * after the last step, so that a run that was interrupted and continued counts
 * the same ones.  Rank 0 has the losses and decides, and all ranks hear of it:
 * they end at the same step.
 */
#include "runtime/rank/run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 28 };
static const char losses_name[] = "validation.csv";
static const char head[] = "step,validation_loss\n";

static bool is_wanted(const Run *run) {
  const DnnSettings *settings = &run->program->settings;
  return settings->save_best || settings->patience > 0;
}

/* Adds a loss; true if it is the lowest one. */
static bool add_loss(Run *run, int64_t step, double loss) {
  Best *best = &run->best;
  vec_push(run->arena, &best->losses, (BestLoss){step, loss});
  bool is_lowest = isfinite(loss) && (best->step < 0 || loss < best->loss);
  best->since = is_lowest ? 0 : best->since + 1;
  if (!is_lowest) return false;
  best->loss = loss;
  best->step = step;
  return true;
}

/* A line of the file; false where it is none. */
static bool read_line(const char *line, BestLoss *out) {
  char *end;
  errno = 0;
  out->step = strtoll(line, &end, 10);
  if (end == line || *end != ',' || errno != 0) return false;
  const char *loss = end + 1;
  out->loss = strtod(loss, &end);
  return end != loss && *end == '\n';
}

/* Reads the losses up to the step that is continued from: later ones are of
 * steps that are made again. */
static Status read_losses(Run *run) {
  const char *folder = run->program->settings.save;
  const char *path = arena_printf(run->arena, "%s/%s", folder, losses_name);
  const char *text;
  size_t n;
  if (!file_exists(path)) return STATUS_OK;
  TRY(file_read(run->arena, path, MOST_BYTES, &text, &n));
  for (int number = 1; *text; number++) {
    BestLoss row;
    bool is_head = number == 1 && strncmp(text, head, sizeof head - 1) == 0;
    if (!is_head && !read_line(text, &row))
      return status_make(STATUS_invalid,
                         "%s:%d: expected STEP,LOSS; remove the file to forget "
                         "the validation losses until now",
                         path, number);
    if (!is_head && row.step <= run->done) add_loss(run, row.step, row.loss);
    text = strchr(text, '\n') + 1;
  }
  return STATUS_OK;
}

static Status write_losses(Run *run) {
  Arena *scratch = arena_create(run->memory);
  Text text = text_create(scratch);
  text_add(&text, head);
  for (int i = 0; i < run->best.losses.n; i++) {
    const BestLoss *row = &run->best.losses.data[i];
    text_printf(&text, "%lld,%.17g\n", (long long)row->step, row->loss);
  }
  Status status =
      saver_write(run->saver, losses_name, text_string(&text), (int64_t)text.n);
  arena_destroy(scratch);
  return status;
}

/* A kill between a save and the line of `best` leaves an older one there. */
static Status continue_best(Run *run) {
  if (!run->options.resume || run->saved < 0) return STATUS_OK;
  TRY(read_losses(run));
  if (!run->saver) return STATUS_OK;
  saver_continue(run->saver);
  if (run->best.losses.n > 0) TRY(write_losses(run));
  if (!run->program->settings.save_best || run->best.step < 0 ||
      !saver_has(run->saver, run->best.step))
    return STATUS_OK;
  return saver_point_best(run->saver, run->best.step);
}

/* All ranks end where rank 0 says so. */
static void share_end(Run *run, bool *lowest) {
  int64_t patience = run->program->settings.patience;
  int32_t words[2] = {lowest && *lowest,
                      patience > 0 && run->best.since >= patience};
  run_must(run, run->comm->broadcast(run->comm, words, sizeof words, 0));
  if (lowest) *lowest = words[0];
  if (!words[1]) return;
  run->best.has_ended = true;
  if (run->done < run->last) run->last = run->done;
}

int best_begin(Run *run) {
  run->best.step = -1;
  if (!run->train || !is_wanted(run)) return EXIT_done;
  Status status = run->comm->rank == 0 ? continue_best(run) : STATUS_OK;
  int code = run_agree(run, status);
  if (!code) share_end(run, NULL);
  return code;
}

/* A stop at a step that is to be evaluated saves it and evaluates nothing. */
bool best_is_behind(Run *run) {
  const Best *best = &run->best;
  int64_t every = run->program->settings.eval_every;
  if (!is_wanted(run) || !run->options.resume || run->saved <= 0 ||
      every <= 0 || run->done % every != 0)
    return false;
  int32_t is_behind = best->losses.n == 0 ||
                      best->losses.data[best->losses.n - 1].step != run->done;
  run_must(run,
           run->comm->broadcast(run->comm, &is_behind, sizeof is_behind, 0));
  return is_behind;
}

static Status note_loss(Run *run, bool *out_is_lowest) {
  bool is_first = run->best.losses.n == 0;
  double loss = run->validation->has_value ? run->validation->value : NAN;
  *out_is_lowest = add_loss(run, run->done, loss);
  if (!run->saver) return STATUS_OK;
  if (is_first && !run->options.resume) saver_forget_best(run->saver);
  return write_losses(run);
}

int best_note(Run *run, bool is_due, bool *out_is_lowest) {
  Status status = STATUS_OK;
  *out_is_lowest = false;
  if (!is_wanted(run) || !is_due || !run->has_validation ||
      run->evaluated != run->done)
    return EXIT_done;
  if (run->comm->rank == 0) status = note_loss(run, out_is_lowest);
  int code = run_agree(run, status);
  if (!code) share_end(run, out_is_lowest);
  return code;
}

int best_point(Run *run) {
  if (!run->program->settings.save_best || run->saved != run->done)
    return EXIT_done;
  Status status = STATUS_OK;
  if (run->saver) status = saver_point_best(run->saver, run->done);
  return run_agree(run, status);
}

void best_report(const Run *run) {
  const Best *best = &run->best;
  if (run->comm->rank != 0 || !best->has_ended || run->options.quiet) return;
  char lowest[64] = "none was finite";
  FixedText text = fixed_text(lowest, sizeof lowest);
  if (best->step >= 0)
    fixed_printf(&text, "the lowest is %.4f, of step %lld", best->loss,
                 (long long)best->step);
  message_print("ended at step %lld: no lower validation loss in %lld "
                "evaluation%s; %s\n",
                (long long)run->done, (long long)best->since,
                best->since == 1 ? "" : "s", lowest);
}
