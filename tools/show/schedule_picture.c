/*
 * schedule_picture.c -- draws a pipeline schedule as text: a line for each
 * rank, a character for each unit of time.
 *
 *     rank 0 |0123......aa44bb55ccddee..|
 *
 * Where ranks have several stages a second line says which.
 */
#include "tools/commands/schedule.h"

#include <string.h>

enum { MOST_COLUMNS = 120, MOST_LINES = 64 };

/* The letter of a micro-batch is that of its last digit. */
static char letter_of(const Token *token) {
  int digit = token->microbatch % 10;
  switch (token->kind) {
  case TOKEN_forward: return (char)('0' + digit);
  case TOKEN_weight_grad: return (char)('A' + digit);
  default: return (char)('a' + digit);
  }
}

/* The time of a column: as short as lets every action have whole columns, if
 * they fit, else the shortest that fits. */
static Ps column_time(const TimedSchedule *timed) {
  Ps divisor = timed->result.step, end = timed->result.step;
  for (int i = 0; i < timed->spans.n; i++)
    divisor = common_divisor(divisor, common_divisor(timed->spans.data[i].begin,
                                                     timed->spans.data[i].end));
  Ps least = (end + MOST_COLUMNS - 1) / MOST_COLUMNS;
  Ps time = divisor > least ? divisor : least;
  return time > 0 ? time : 1;
}

typedef char Letter(const Token *token);

static char stage_of(const Token *token) {
  return (char)('0' + token->stage % 10);
}

/* Parts of one action share its columns. */
static void draw_span(char *line, const ScheduleSpan *span, Ps column, int n,
                      Letter *letter) {
  for (int c = 0; c < n; c++) {
    Ps middle = c * column + column / 2;
    if (middle < span->begin || middle >= span->end) continue;
    Ps part =
        (middle - span->begin) * span->n_tokens / (span->end - span->begin);
    line[c] = letter(&span->tokens[part]);
  }
}

/* Returns the lines of the first ranks, one after the other, each ended. */
static char *draw_lines(Arena *arena, const TimedSchedule *timed, Ps column,
                        int n, int n_lines, Letter *letter) {
  char *lines = arena_alloc(arena, (size_t)n_lines * (size_t)(n + 1));
  for (int r = 0; r < n_lines; r++) {
    memset(lines + r * (n + 1), '.', (size_t)n);
    lines[r * (n + 1) + n] = '\0';
  }
  for (int i = 0; i < timed->spans.n; i++) {
    const ScheduleSpan *span = &timed->spans.data[i];
    if (span->rank < n_lines)
      draw_span(lines + span->rank * (n + 1), span, column, n, letter);
  }
  return lines;
}

static bool has_several_stages(const TimedSchedule *timed) {
  const Pipeline *pipeline = timed->list->pipeline;
  for (int r = 0; r < pipeline->n_ranks; r++)
    for (int i = 1; i < pipeline->lists[r].n; i++)
      if (pipeline->lists[r].data[i].stage != pipeline->lists[r].data[0].stage)
        return true;
  return false;
}

void schedule_print_picture(Text *out, const TimedSchedule *timed) {
  Ps column = column_time(timed);
  int n = (int)((timed->result.step + column - 1) / column);
  int n_ranks = timed->list->n_ranks;
  int n_lines = n_ranks < MOST_LINES ? n_ranks : MOST_LINES;
  bool has_stages = has_several_stages(timed);
  const char *lines =
                 draw_lines(out->arena, timed, column, n, n_lines, letter_of),
             *stages =
                 draw_lines(out->arena, timed, column, n, n_lines, stage_of);
  for (int r = 0; r < n_lines; r++) {
    text_printf(out, "rank %-4d |%s|\n", r, lines + r * (n + 1));
    if (has_stages) text_printf(out, "   stage  |%s|\n", stages + r * (n + 1));
  }
  if (n_lines < n_ranks)
    text_printf(out, "and %d more ranks\n", n_ranks - n_lines);
  text_printf(out,
              "a character is %s of time: 0 to 9 a forward pass, by the last "
              "digit of its micro-batch;\na to j a backward pass, A to J the "
              "gradient of weights alone, a point waits\n",
              schedule_units(out->arena, column));
  if (has_stages)
    text_add(out, "below each rank: the last digits of its stages\n");
}
