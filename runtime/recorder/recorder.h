/*
 * recorder.h -- the flight recorder of a rank: what it is doing, for messages
 * when a rank is lost, and its line to the launcher.
 */
#ifndef RUNTIME_RECORDER_RECORDER_H
#define RUNTIME_RECORDER_RECORDER_H

#include "support/support.h"
#include <stdatomic.h>

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

#endif
