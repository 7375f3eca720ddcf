/*
 * schedule_times.c -- reads the times of the parts of a stage, and prints how
 * long a list takes on the simulator.
 */
#include "tools/commands/schedule.h"

#include <string.h>

bool schedule_read_times(const Tool *tool, ScheduleTimes *times) {
  const char *text = tool->options.times, *at = text;
  Ps *const fields[] = {&times->forward, &times->input_grad,
                        &times->weight_grad};
  *times = (ScheduleTimes){PS_PER_UNIT, PS_PER_UNIT, PS_PER_UNIT};
  for (int i = 0; text && i < 3; i++) {
    size_t n = strcspn(at, ",");
    double value;
    if (!text_read_real(at, n, &value) || !(value >= 0 && value <= 1e9) ||
        (at[n] == ',') != (i < 2)) {
      message_print("dnnc: error: --times takes three numbers from 0 to 1e9, "
                    "not '%s'\n"
                    "help: forward, gradient of the input and of the weights, "
                    "as in --times 1,1,1\n",
                    text);
      return false;
    }
    *fields[i] = (Ps)(value * PS_PER_UNIT + 0.5);
    at += n + 1;
  }
  return true;
}

/* ---- the simulator ---- */

typedef struct Recorder {
  Arena *arena;
  TimedSchedule *timed;
} Recorder;

static void record(void *user, const SimSpan *span) {
  Recorder *recorder = user;
  TimedSchedule *timed = recorder->timed;
  if (span->queue >= 0 || span->is_wait) return; /* a message */
  const ScheduleAction *action = &timed->list->actions[span->id];
  vec_push(
      recorder->arena, &timed->spans,
      (ScheduleSpan){.rank = span->class,
                     .begin = span->begin,
                     .end = span->end,
                     .tokens = timed->list->pipeline->lists[span->class].data +
                               action->first,
                     .n_tokens = action->end - action->first});
}

TimedSchedule schedule_time(Tool *tool, const char *name,
                            const ScheduleList *list) {
  TimedSchedule timed = {.name = name, .list = list};
  Recorder recorder = {tool->arena, &timed};
  timed.result = simulate(tool->arena, &list->program, 1, record, &recorder);
  return timed;
}

/* ---- what is printed ---- */

const char *schedule_units(Arena *arena, Ps time) {
  Text text = text_create(arena);
  text_add_real(&text, (double)time / PS_PER_UNIT);
  return text_string(&text);
}

void schedule_print_ranks(Text *out, const TimedSchedule *timed) {
  const ScheduleList *list = timed->list;
  text_printf(out,
              "%d ranks, %d stages, %d micro-batches: %s\n"
              "%6s %12s %12s %12s %6s\n",
              list->n_ranks, list->n_stages, list->n_microbatches,
              schedule_units(out->arena, timed->result.step), "rank", "end",
              "work", "waits", "live");
  for (int r = 0; r < list->n_ranks; r++) {
    const SimClassResult *class = &timed->result.classes[r];
    text_printf(out, "%6d %12s %12s %12s %6d\n", r,
                schedule_units(out->arena, *class->step_ends),
                schedule_units(out->arena, list->work[r]),
                schedule_units(out->arena, *class->exposed),
                list->peak_live[r]);
  }
}

static void print_tokens_json(Text *out, const Pipeline *lowered, int rank) {
  text_add(out, ",\"tokens\":[");
  for (int i = 0; i < lowered->lists[rank].n; i++) {
    text_add(out, i ? "," : "");
    text_add_json(
        out, token_text(out->arena, lowered, &lowered->lists[rank].data[i]));
  }
  text_add(out, "]");
}

void schedule_print_ranks_json(Text *out, const TimedSchedule *timed,
                               const Pipeline *lowered) {
  const ScheduleList *list = timed->list;
  text_printf(out,
              "\"makespan\":%s,\"stages\":%d,\"microbatches\":%d,\"ranks\":[",
              schedule_units(out->arena, timed->result.step), list->n_stages,
              list->n_microbatches);
  for (int r = 0; r < list->n_ranks; r++) {
    const SimClassResult *class = &timed->result.classes[r];
    text_printf(out,
                "%s{\"rank\":%d,\"end\":%s,\"work\":%s,\"waits\":%s,"
                "\"peak_live\":%d",
                r ? "," : "", r, schedule_units(out->arena, *class->step_ends),
                schedule_units(out->arena, list->work[r]),
                schedule_units(out->arena, *class->exposed),
                list->peak_live[r]);
    if (lowered) print_tokens_json(out, lowered, r);
    text_add(out, "}");
  }
  text_add(out, "]");
}

/* ---- ranks that never end ---- */

/* The cell of an action, or its cells from the first to the last. */
static Span action_span(const ScheduleList *list, int action) {
  const ScheduleAction *a = &list->actions[action];
  const Token *tokens = list->pipeline->lists[a->rank].data;
  return span_join(tokens[a->first].span, tokens[a->end - 1].span);
}

void schedule_report_deadlock(Tool *tool, const TimedSchedule *timed) {
  const ScheduleList *list = timed->list;
  for (int r = 0; r < list->n_ranks; r++) {
    const SimClassResult *class = &timed->result.classes[r];
    if (class->waits_for < 0) continue;
    const SimClass *actions = &list->program.classes[r];
    int at = class->waits_at;
    while (at < actions->n_actions && actions->actions[at].kind != SIM_run)
      at++;
    Span span = action_span(list, actions->actions[at].id);
    int needed = list->senders[class->waits_for];
    Diag *d = diag(tool->module.diags, DIAG_schedule_deadlock, span, r,
                   span_text(tool->arena, span));
    diag_note(d, action_span(list, needed), "it needs this, which rank %d runs",
              list->actions[needed].rank);
  }
}
