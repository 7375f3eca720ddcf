/*
 * stage_calls.h -- declares what a class of ranks does in a step, call by call
 * of its timeline, and the bubble before, between and after.
 *
 *     F0 F1 ...... B0 F2 B1 F3 .. B2 .. B3 update
 *     |  warm-up   |   steady state |  drain    |
 */
#ifndef TOOLS_SHOW_STAGE_CALLS_H
#define TOOLS_SHOW_STAGE_CALLS_H

#include "driver/driver_price.h"

/* A part of a call of a segment: the launches up to a wait for a message, or to
 * its end. */
typedef struct StageCall {
  const ProgramStage *stage;
  TokenKind kind;
  int microbatch; /* -1: it runs once a step */
  Ps begin, end;
} StageCall;
typedef VEC(StageCall) StageCalls;

/* Returns the parts of the calls of a class in their order; there are spans. */
StageCalls stage_calls(Arena *arena, const Priced *p, int class);

/* A bar in the drawing of a class: a part of a call, a wait for messages, or
 * several that are too short to be drawn. */
typedef struct CallBar {
  Ps begin, end;
  int n;
  /* The longest of them has what follows. */
  Ps longest;
  bool is_wait;
  TokenKind kind;
  int stage, microbatch; /* -1: none */
} CallBar;
typedef VEC(CallBar) CallBars;

/* Joins neighbours that are shorter than a column. */
CallBars call_bars(Arena *arena, const Priced *p, int class, Ps column);
/* Returns "F", or "wait". */
const char *call_bar_name(const CallBar *bar);

/* Waits for other stages: before the first backward pass, after the last
 * forward pass, and between. */
typedef struct BubbleTimes {
  Ps warm_up, steady, drain;
} BubbleTimes;

BubbleTimes bubble_times(Arena *arena, const Priced *p, int class);

#endif
