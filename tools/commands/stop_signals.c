/*
 * stop_signals.c -- lets a command end in order when a signal asks for its end.
 */
#include "tools/commands/tools.h"

#include <signal.h>

static volatile sig_atomic_t signal_seen;
static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};

static void note_signal(int number) {
  signal_seen = number;
}

void tool_hold_signals(void) {
  struct sigaction action = {.sa_handler = note_signal}, before;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < ARRAY_LENGTH(numbers); i++) {
    sigaction(numbers[i], NULL, &before); /* nohup ignores some */
    if (before.sa_handler != SIG_IGN) sigaction(numbers[i], &action, NULL);
  }
}

void tool_release_signals(void) {
  struct sigaction now;
  for (int i = 0; i < ARRAY_LENGTH(numbers); i++) {
    sigaction(numbers[i], NULL, &now);
    if (now.sa_handler == note_signal) signal(numbers[i], SIG_DFL);
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
