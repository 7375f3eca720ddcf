/*
 * schedule.h -- declares what `dnnc schedule` and `dnnc simulate LIST.csv`
 * share: times of a list, and what is printed of it.
 */
#ifndef TOOLS_COMMANDS_SCHEDULE_H
#define TOOLS_COMMANDS_SCHEDULE_H

#include "price/schedule_list.h"
#include "tools/commands/tools.h"

/* Times are numbers of any unit, to a millionth of it. */
#define PS_PER_UNIT 1000000

/* A call, or several that are joined, on the clock. */
typedef struct ScheduleSpan {
  int rank;
  Ps begin, end;
  const Token *tokens;
  int n_tokens;
} ScheduleSpan;

/* A list that was simulated. */
typedef struct TimedSchedule {
  const char *name; /* of the schedule or the file */
  const ScheduleList *list;
  SimResult result;
  VEC(ScheduleSpan) spans;
} TimedSchedule;

/* ---- schedule_times.c ---- */

/* Sets the times of --times, or 1 each; prints a mistake. */
bool schedule_read_times(const Tool *tool, ScheduleTimes *times);
/* Runs a list on the simulator. */
TimedSchedule schedule_time(Tool *tool, const char *name,
                            const ScheduleList *list);
const char *schedule_units(Arena *arena, Ps time);
/* Prints a table with a row for each rank. */
void schedule_print_ranks(Text *out, const TimedSchedule *timed);
/* Prints fields of a JSON object; `lowered` has the tokens of each rank that
 * are told too, or is NULL. */
void schedule_print_ranks_json(Text *out, const TimedSchedule *timed,
                               const Pipeline *lowered);
/* Reports each rank that does not end, and the action that it waits before. */
void schedule_report_deadlock(Tool *tool, const TimedSchedule *timed);

/* ---- schedule_picture.c, schedule_page.c ---- */

/* Draws a line of characters for each rank. */
void schedule_print_picture(Text *out, const TimedSchedule *timed);
/* Writes a page of HTML with the same as a drawing. */
void schedule_print_page(Text *out, const TimedSchedule *timed);

#endif
