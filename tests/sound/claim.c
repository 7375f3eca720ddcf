/*
 * claim.c -- runs `dnnc plan` on the files of a case and reads what it claims.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sound/sound.h"

enum { MOST_SECONDS = 300, MOST_BYTES = 16 << 20 };

/* ---- a child ---- */

static void send_to(int stream, const char *path) {
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (file < 0 || dup2(file, stream) < 0) _exit(127);
  close(file);
}

static const char *read_all(Arena *arena, const char *path) {
  const char *text;
  size_t n;
  bool is_read =
      file_read(arena, path, MOST_BYTES, &text, &n).code == STATUS_ok;
  return is_read ? text : "";
}

int sound_run(Arena *arena, const char *const *words, const char *folder,
              const char **out_output, const char **out_messages) {
  const char *output = arena_printf(arena, "%s/output", folder);
  const char *messages = arena_printf(arena, "%s/messages", folder);
  int code;
  fflush(NULL);
  pid_t child = fork();
  if (child < 0) abort();
  if (child == 0) {
    alarm(MOST_SECONDS);
    send_to(1, output);
    send_to(2, messages);
    execv(words[0], (char *const *)words);
    _exit(127);
  }
  waitpid(child, &code, 0);
  *out_output = read_all(arena, output);
  *out_messages = read_all(arena, messages);
  return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

/* ---- the object of --json ---- */

/* A quote inside a text has a backslash before it, so this is a key. */
static bool find_number(const char *json, const char *key, double *out) {
  const char *at = strstr(json, key);
  char *end;
  if (!at) return false;
  at += strlen(key);
  *out = strtod(at, &end);
  return end != at;
}

static bool find_seconds(const char *json, const char *key, Ps *out) {
  double seconds;
  if (!find_number(json, key, &seconds)) return false;
  *out = (Ps)llround(seconds * 1e12);
  return true;
}

/* How many sums a method solved. */
static int find_count(const char *json, const char *key) {
  double count = 0;
  const char *at = strstr(json, "\"solved\":{");
  return at && find_number(at, key, &count) ? (int)count : 0;
}

void sound_read_claim(const char *json, SoundClaim *out) {
  find_seconds(json, "\"step_s\":", &out->step);
  find_seconds(json, "\"floor_s\":", &out->floor);
  out->has_bound = find_seconds(json, "\"bound_s\":", &out->bound);
  out->has_gap = find_number(json, "\"gap\":", &out->gap);
  out->n_eliminated = find_count(json, "\"elimination\":");
  out->n_engine = find_count(json, "\"engine\":");
}

static double child_seconds(void) {
  struct rusage usage;
  getrusage(RUSAGE_CHILDREN, &usage);
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

SoundClaim sound_ask(Arena *arena, const char *dnnc, const SoundCase *of,
                     const char *const *options, int n_options) {
  SoundWords words = {0};
  const char *output, *plan = arena_printf(arena, "%s/found.plan", of->folder);
  const char *const fixed[] = {
      dnnc,     "plan",    of->model_path, "--cluster", of->cluster_path,
      "--json", "--quiet", "-o",           plan};
  for (int i = 0; i < ARRAY_LENGTH(fixed); i++)
    vec_push(arena, &words, fixed[i]);
  if (of->pins_path) {
    vec_push(arena, &words, "--plan");
    vec_push(arena, &words, of->pins_path);
  }
  if (of->says_ranks) {
    vec_push(arena, &words, "--ranks");
    vec_push(arena, &words, arena_printf(arena, "%d", of->ranks));
  }
  for (int i = 0; i < n_options; i++) vec_push(arena, &words, options[i]);
  vec_push(arena, &words, NULL);
  SoundClaim claim = {0};
  double begin = child_seconds();
  claim.exit_code =
      sound_run(arena, words.data, of->folder, &output, &claim.messages);
  claim.seconds = child_seconds() - begin;
  claim.is_unsupported = strstr(claim.messages, "not supported yet") != NULL;
  if (claim.exit_code != 0) return claim;
  sound_read_claim(output, &claim);
  claim.plan = read_all(arena, plan);
  claim.restrictions = sound_restrictions(claim.plan);
  return claim;
}
