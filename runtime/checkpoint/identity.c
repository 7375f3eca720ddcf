/*
 * identity.c -- marks the files of a checkpoint with the save that they belong
 * to, and compares these marks.
 *
 *     "step": "000000000008"      "seed": "00000000000000000001"
 *     "save": "1d3f6c0a90b2e4f7"  "file": "00002/00003"
 *     "check": "..."              a hash of these and of the "data:" entries
 *
 * A folder may hold files of several saves by accident: a copy that was cut
 * short, a full disk, a manual change.  Each file holds its step and seed, a
 * number that depends on everything that was saved with it, and its place among
 * the files; the index holds the same without the place.  A reader accepts a
 * folder only if all of them agree.
 *
 * Files of older versions have step, seed and a check over these two alone;
 * files of other tools have none of them.
 */
#include "runtime/checkpoint/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts ---- */

static int compare_key(const void *key, const void *text) {
  return strcmp(key, ((const StoredText *)text)->key);
}

static int by_key(const void *a, const void *b) {
  return compare_key(((const StoredText *)a)->key, b);
}

const char *stored_text(const StoredText *texts, int n, const char *key) {
  const StoredText *found =
      bsearch(key, texts, (size_t)n, sizeof *texts, compare_key);
  return found ? found->value : NULL;
}

bool is_data_key(const char *key) {
  return strncmp(key, "data:", 5) == 0;
}

static bool is_checked(const char *key) {
  static const char *const keys[] = {"step", "seed", "save", "file"};
  for (int i = 0; i < ARRAY_LENGTH(keys); i++)
    if (strcmp(key, keys[i]) == 0) return true;
  return is_data_key(key);
}

/* `texts` are sorted by key. */
static uint64_t hash_texts(const StoredText *texts, int n) {
  uint64_t hash = 0;
  for (int i = 0; i < n; i++) {
    if (!is_checked(texts[i].key)) continue;
    hash = hash_bytes(texts[i].key, strlen(texts[i].key) + 1, hash);
    hash = hash_bytes(texts[i].value, strlen(texts[i].value) + 1, hash);
  }
  return hash;
}

static uint64_t hash_step(int64_t step, uint64_t seed) {
  uint64_t words[2] = {(uint64_t)step, seed};
  return hash_bytes(words, sizeof words, 0);
}

/* ---- writing ---- */

int save_mark_texts(const SaveMark *mark, SaveMarkTexts *room,
                    StoredText *texts, int n) {
  snprintf(room->step, sizeof room->step, "%012lld", (long long)mark->step);
  snprintf(room->seed, sizeof room->seed, "%020llu",
           (unsigned long long)mark->seed);
  snprintf(room->save, sizeof room->save, "%016llx",
           (unsigned long long)mark->save);
  snprintf(room->file, sizeof room->file, "%05d/%05d", mark->file,
           mark->n_files);
  texts[n++] = (StoredText){"step", room->step};
  texts[n++] = (StoredText){"seed", room->seed};
  texts[n++] = (StoredText){"save", room->save};
  if (mark->file > 0) texts[n++] = (StoredText){"file", room->file};
  qsort(texts, (size_t)n, sizeof *texts, by_key);
  snprintf(room->check, sizeof room->check, "%016llx",
           (unsigned long long)hash_texts(texts, n));
  texts[n++] = (StoredText){"check", room->check};
  return n;
}

/* ---- reading ---- */

/* `digits` is the base; all of `text` up to `end` is the number. */
static bool read_number(const char *text, char end, int base, uint64_t *out) {
  char *last;
  if (*text < '0' || *text > (base == 16 ? 'f' : '9')) return false;
  *out = strtoull(text, &last, base);
  return *last == end;
}

bool save_mark_read(const StoredText *texts, int n, SaveMark *out) {
  const char *step = stored_text(texts, n, "step");
  const char *seed = stored_text(texts, n, "seed");
  const char *save = stored_text(texts, n, "save");
  const char *file = stored_text(texts, n, "file");
  const char *check = stored_text(texts, n, "check");
  uint64_t number, count = 0, expected;
  *out = (SaveMark){0};
  if (!step || !seed || !check || !read_number(check, '\0', 16, &expected) ||
      !read_number(step, '\0', 10, &number) ||
      !read_number(seed, '\0', 10, &out->seed) || number >> 62)
    return false;
  out->step = (int64_t)number;
  if (!save) return expected == hash_step(out->step, out->seed);
  out->has_save = true;
  if (expected != hash_texts(texts, n) ||
      !read_number(save, '\0', 16, &out->save))
    return false;
  if (!file) return true;
  const char *slash = strchr(file, '/');
  if (!slash || !read_number(file, '/', 10, &number) ||
      !read_number(slash + 1, '\0', 10, &count) || number < 1 ||
      number > count || count > INT32_MAX)
    return false;
  out->file = (int)number;
  out->n_files = (int)count;
  return true;
}

/* ---- comparing ---- */

Status save_mark_compare(const SaveMark *a, const char *name_a,
                         const SaveMark *b, const char *name_b) {
  if (a->step != b->step)
    return status_make(STATUS_invalid,
                       "'%s' is of step %lld, but '%s' is of step %lld: files "
                       "of different saves lie in one folder",
                       name_b, (long long)b->step, name_a, (long long)a->step);
  if (a->seed != b->seed)
    return status_make(STATUS_invalid,
                       "'%s' is of a run with seed %llu, but '%s' of one with "
                       "seed %llu (both of step %lld)",
                       name_b, (unsigned long long)b->seed, name_a,
                       (unsigned long long)a->seed, (long long)a->step);
  if (a->has_save != b->has_save)
    return status_make(STATUS_invalid,
                       "'%s' does not say which save it belongs to, but '%s' "
                       "does (both of step %lld)",
                       a->has_save ? name_b : name_a,
                       a->has_save ? name_a : name_b, (long long)a->step);
  if (a->save != b->save)
    return status_make(STATUS_invalid,
                       "'%s' and '%s' are of two different saves of step %lld",
                       name_b, name_a, (long long)a->step);
  return STATUS_OK;
}
