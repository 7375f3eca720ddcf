/*
 * team.c -- reads pictures on threads of their own, beside a step.
 *
 * The items of a piece of work are taken in order.  After a failure no further
 * ones are, and those before it were taken already, so the first failure is
 * known for certain when all threads rest.
 */
#include "runtime/data/pictures.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct Team {
  pthread_mutex_t mutex;
  pthread_cond_t work, rest;
  TeamBody *body;
  void *arg;
  int64_t next, n; /* items */
  int64_t failed;  /* the first item that failed, or INT64_MAX */
  Status status;   /* of that one */
  int n_busy, n_threads;
  bool ends;
  struct Worker {
    Team *team;
    pthread_t thread;
    int index;
  } * workers;
};

static bool has_item(const Team *team) {
  return team->next < team->n && team->failed == INT64_MAX && !team->ends;
}

static void take_items(Team *team, int index) {
  while (has_item(team)) {
    int64_t item = team->next++;
    pthread_mutex_unlock(&team->mutex);
    Status status = team->body(team->arg, index, item);
    pthread_mutex_lock(&team->mutex);
    if (status.code == STATUS_ok || item > team->failed) continue;
    team->failed = item;
    team->status = status;
  }
}

static void *work(void *arg) {
  struct Worker *worker = arg;
  Team *team = worker->team;
  pthread_mutex_lock(&team->mutex);
  for (;;) {
    while (!team->ends && !has_item(team))
      pthread_cond_wait(&team->work, &team->mutex);
    if (team->ends) break;
    team->n_busy++;
    take_items(team, worker->index);
    if (--team->n_busy == 0) pthread_cond_broadcast(&team->rest);
  }
  pthread_mutex_unlock(&team->mutex);
  return NULL;
}

/* The main thread alone takes signals. */
static int start_thread(struct Worker *worker) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int code = pthread_create(&worker->thread, NULL, work, worker);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return code;
}

Status team_create(int n_threads, Team **out) {
  Team *team = *out = calloc(1, sizeof *team);
  struct Worker *workers = calloc((size_t)n_threads, sizeof *workers);
  if (!team || !workers) {
    free(team);
    free(workers);
    *out = NULL;
    return status_make(STATUS_io, "no memory to read pictures");
  }
  team->workers = workers;
  team->failed = INT64_MAX;
  pthread_mutex_init(&team->mutex, NULL);
  pthread_cond_init(&team->work, NULL);
  pthread_cond_init(&team->rest, NULL);
  for (int i = 0; i < n_threads; i++) {
    workers[i] = (struct Worker){.team = team, .index = i};
    int code = start_thread(&workers[i]);
    if (code != 0 && i == 0) {
      team_destroy(team);
      *out = NULL;
      return status_errno(code, "cannot start a thread to read pictures");
    }
    if (code != 0) break; /* fewer do */
    team->n_threads++;
  }
  return STATUS_OK;
}

void team_start(Team *team, TeamBody *body, void *arg, int64_t n) {
  pthread_mutex_lock(&team->mutex);
  team->body = body;
  team->arg = arg;
  team->next = 0;
  team->n = n;
  team->failed = INT64_MAX;
  team->status = STATUS_OK;
  pthread_cond_broadcast(&team->work);
  pthread_mutex_unlock(&team->mutex);
}

/* The message is copied: it is a thread's own. */
Status team_wait(Team *team) {
  pthread_mutex_lock(&team->mutex);
  while (team->n_busy > 0 || has_item(team))
    pthread_cond_wait(&team->rest, &team->mutex);
  Status status = team->status;
  pthread_mutex_unlock(&team->mutex);
  if (status.code == STATUS_ok) return status;
  return status_make(status.code, "%s", status.message);
}

void team_destroy(Team *team) {
  if (!team) return;
  pthread_mutex_lock(&team->mutex);
  team->ends = true;
  pthread_cond_broadcast(&team->work);
  pthread_mutex_unlock(&team->mutex);
  for (int i = 0; i < team->n_threads; i++)
    pthread_join(team->workers[i].thread, NULL);
  pthread_cond_destroy(&team->rest);
  pthread_cond_destroy(&team->work);
  pthread_mutex_destroy(&team->mutex);
  free(team->workers);
  free(team);
}
