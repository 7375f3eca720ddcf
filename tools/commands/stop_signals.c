/*
 * stop_signals.c -- lets a command end in order when a signal asks for its end.
 */
#include "tools/commands/tools.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t signal_seen;
static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};

static void note_signal(int number) {
  signal_seen = number;
}

/* The first signal may wait for a price of a large model; nothing is left over
 * where the second one ends the process. */
static void end_search(int number) {
  static const char words[] =
      "\nstopping after what is being priced; again: at once\n";
  int before = errno;
  if (signal_seen) {
    signal(number, SIG_DFL);
    raise(number); /* when this handler returns */
    return;
  }
  signal_seen = number;
  bool is_said = write(STDERR_FILENO, words, sizeof words - 1) > 0;
  (void)is_said; /* nobody reads a terminal that is gone */
  errno = before;
}

static bool is_ours(void (*handler)(int)) {
  return handler == note_signal || handler == end_search;
}

static void hold(void (*handler)(int)) {
  struct sigaction action = {.sa_handler = handler}, before;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < ARRAY_LENGTH(numbers); i++) {
    sigaction(numbers[i], NULL, &before); /* nohup ignores some */
    if (before.sa_handler != SIG_IGN && !is_ours(before.sa_handler))
      sigaction(numbers[i], &action, NULL);
  }
}

void tool_hold_signals(void) {
  hold(note_signal);
}

void tool_hold_search_signals(void) {
  hold(end_search);
}

void tool_release_signals(void) {
  struct sigaction now;
  for (int i = 0; i < ARRAY_LENGTH(numbers); i++) {
    sigaction(numbers[i], NULL, &now);
    if (is_ours(now.sa_handler)) signal(numbers[i], SIG_DFL);
  }
}

bool tool_is_stopped(void) {
  return signal_seen != 0;
}

void tool_end_as_signalled(void) {
  if (!signal_seen) return;
  signal((int)signal_seen, SIG_DFL);
  raise((int)signal_seen);
}
