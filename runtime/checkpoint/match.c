/*
 * match.c -- compares the tensors of a checkpoint with those of a program,
 * before any value is read, and lists all that are missing, extra or of another
 * type.
 *
 *     missing:  block[0].attn.wq f32[128, 4, 32]
 *     extra:    block[0].attn.c_attn.weight f32[128, 384]
 *     differs:  wte is f32[65, 128], the model has f32[256, 128]
 */
#include "runtime/checkpoint/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HASH_DIGITS = 16 };

static bool is_wanted(const DnnTensor *tensor, bool is_resume) {
  if (tensor->role == DNN_PARAM || tensor->role == DNN_STATE) return true;
  return is_resume &&
         (tensor->role == DNN_OPTIMIZER_STATE || tensor->role == DNN_EMA ||
          tensor->role == DNN_LOSS_SCALE);
}

/* The tensor of that name, of whatever type. */
static const StoredTensor *find_tensor(const Checkpoint *checkpoint,
                                       const DnnTensor *tensor, bool is_resume,
                                       const StoredFile **out_file) {
  bool is_average = tensor->role == DNN_EMA;
  if (!is_wanted(tensor, is_resume) && !is_average) return NULL;
  const StoredTensor *found =
      checkpoint_tensor(checkpoint, tensor->path, out_file);
  if (!found && is_average && !is_resume &&
      strncmp(tensor->path, "ema/", 4) == 0)
    found = checkpoint_tensor(checkpoint, tensor->path + 4, out_file);
  return found;
}

/* ---- names and types ---- */

static bool same_type(const StoredTensor *stored, const DnnTensor *tensor,
                      bool is_resume) {
  bool is_equal = stored->dtype == tensor->dtype ||
                  (!is_resume && dtype_is_float(stored->dtype) &&
                   dtype_is_float(tensor->dtype));
  is_equal = is_equal && stored->rank == tensor->rank;
  for (int i = 0; is_equal && i < tensor->rank; i++)
    is_equal = stored->size[i] == tensor->size[i];
  return is_equal;
}

const StoredTensor *checkpoint_tensor_for(const Checkpoint *checkpoint,
                                          const DnnTensor *tensor,
                                          bool is_resume,
                                          const StoredFile **out_file) {
  const StoredTensor *found =
      find_tensor(checkpoint, tensor, is_resume, out_file);
  return found && same_type(found, tensor, is_resume) ? found : NULL;
}

static void add_type(Text *out, DnnDtype dtype, int rank, const int64_t *size) {
  text_printf(out, "%s[", dtype_label(dtype));
  for (int i = 0; i < rank; i++)
    text_printf(out, "%s%lld", i ? ", " : "", (long long)size[i]);
  text_add(out, "]");
}

typedef struct Match {
  const Checkpoint *checkpoint;
  const DnnProgram *program;
  bool is_resume, is_part;
  const char **paths; /* of all tensors of the program, sorted */
  int n_found, n_missing, n_extra, n_differ;
  int n_update; /* of the last three: what the update keeps for itself */
  Text *list;
} Match;

static bool belongs_to_update(const DnnTensor *tensor) {
  return !is_wanted(tensor, false);
}

/* The state of compressed gradients is of a plan, and every plan goes on
 * from every checkpoint: it begins anew, or is left behind. */
static bool is_of_compression(const char *name) {
  static const char prefix[] = "compress.";
  return strncmp(name, prefix, sizeof prefix - 1) == 0 && strchr(name, '/');
}

/* A dynamic loss scale and its counters have no slash in their names. */
static bool is_loss_scale(const char *name) {
  static const char *const names[] = {"loss_scale", "loss_scale.clean",
                                      "loss_scale.made"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(name, names[i]) == 0) return true;
  return false;
}

static void check_tensor(Match *found, const DnnTensor *tensor) {
  const StoredFile *file;
  const StoredTensor *stored =
      find_tensor(found->checkpoint, tensor, found->is_resume, &file);
  bool is_equal = stored && same_type(stored, tensor, found->is_resume);
  Text *list = found->list;
  found->n_found += is_equal;
  if (is_of_compression(tensor->path)) return;
  if (!is_equal && is_wanted(tensor, found->is_resume))
    found->n_update += belongs_to_update(tensor);
  if (!stored && is_wanted(tensor, found->is_resume)) {
    found->n_missing++;
    text_printf(list, "missing:  %s ", tensor->path);
    add_type(list, tensor->dtype, tensor->rank, tensor->size);
    text_add(list, "\n");
  } else if (stored && !is_equal) {
    found->n_differ++;
    text_printf(list, "%s  %s is ",
                found->is_part ? "skipped:" : "differs:", tensor->path);
    add_type(list, stored->dtype, stored->rank, stored->size);
    text_add(list, ", the model has ");
    add_type(list, tensor->dtype, tensor->rank, tensor->size);
    text_add(list, "\n");
  }
}

static int by_text(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Optimizer state has a slash in its name, paths have none.  Whoever begins
 * anew, evaluates or predicts needs none of it, nor the loss scale. */
static void check_extra(Match *found, const StoredTensor *stored) {
  if (bsearch(&stored->name, found->paths, (size_t)found->program->n_tensors,
              sizeof *found->paths, by_text) ||
      (found->checkpoint->is_own && is_of_compression(stored->name)))
    return;
  if (found->checkpoint->is_own &&
      (strchr(stored->name, '/') || is_loss_scale(stored->name))) {
    if (!found->is_resume) return;
    found->n_update++;
  }
  found->n_extra++;
  text_printf(found->list, "extra:    %s ", stored->name);
  add_type(found->list, stored->dtype, stored->rank, stored->size);
  text_add(found->list, "\n");
}

static Status match_result(const Match *found) {
  int n = found->n_missing + found->n_extra + found->n_differ;
  if (n == 0 || (found->is_part && found->n_found > 0)) return STATUS_OK;
  bool is_update = n == found->n_update;
  return status_make(
      STATUS_invalid, "'%s' %s: %d missing, %d extra, %d of another type%s%s",
      found->checkpoint->given,
      is_update ? "has the state of another optimizer"
                : "does not match the model",
      found->n_missing, found->n_extra, found->n_differ,
      is_update ? "" : " (dnnc convert changes names and layouts)",
      found->is_resume
          ? "\nhelp: --load PATH takes the parameters alone and starts anew"
          : "");
}

Status checkpoint_match(Arena *arena, const Checkpoint *checkpoint,
                        const DnnProgram *program, MatchKind match,
                        Text *out_list) {
  Match found = {.checkpoint = checkpoint,
                 .program = program,
                 .is_resume = match == MATCH_resume,
                 .is_part = match == MATCH_part,
                 .paths = ARENA_ARRAY(arena, const char *, program->n_tensors),
                 .list = out_list};
  for (int i = 0; i < program->n_tensors; i++)
    found.paths[i] = program->tensors[i].path;
  qsort(found.paths, (size_t)program->n_tensors, sizeof *found.paths, by_text);
  for (int i = 0; i < program->n_tensors; i++)
    check_tensor(&found, &program->tensors[i]);
  for (int i = 0; i < checkpoint->n_places; i++)
    check_extra(&found, checkpoint->places[i].tensor);
  return match_result(&found);
}

/* ---- hashes ---- */

static int compare_key(const void *key, const void *text) {
  return strcmp(key, ((const StoredText *)text)->key);
}

static const char *expected_hash(const StoredFile *file, const char *name) {
  char key[4200];
  snprintf(key, sizeof key, "xxh3:%s", name);
  const StoredHeader *header = &file->header;
  const StoredText *found =
      bsearch(key, header->metadata, (size_t)header->n_metadata,
              sizeof *header->metadata, compare_key);
  return found ? found->value : NULL;
}

Status checkpoint_check_hash(const Checkpoint *checkpoint,
                             const StoredFile *file, const StoredTensor *stored,
                             unsigned char *block, bool *out_has) {
  char text[HASH_DIGITS + 1];
  const char *expected = expected_hash(file, stored->name);
  *out_has = expected != NULL;
  if (!expected && !checkpoint->is_own) return STATUS_OK;
  uint64_t hash = 0;
  int64_t bytes = stored->end - stored->begin;
  for (int64_t at = 0; at < bytes; at += HASH_BLOCK) {
    int64_t n = bytes - at < HASH_BLOCK ? bytes - at : HASH_BLOCK;
    Status status = checkpoint_read(file, stored, at, block, n);
    if (status.code != STATUS_ok)
      return status_make(status.code, "'%s/%s', tensor '%s': %s",
                         checkpoint->path, file->name, stored->name,
                         status.message);
    hash = hash_bytes(block, (size_t)n, hash);
  }
  snprintf(text, sizeof text, "%0*llx", HASH_DIGITS, (unsigned long long)hash);
  if (expected && strcmp(text, expected) == 0) return STATUS_OK;
  return status_make(STATUS_invalid,
                     "'%s/%s': tensor '%s' is damaged (its hash is not the one "
                     "in the header)",
                     checkpoint->path, file->name, stored->name);
}

bool checkpoint_has_hashes(const Checkpoint *checkpoint) {
  for (int i = 0; i < checkpoint->n_places; i++)
    if (!expected_hash(checkpoint->places[i].file,
                       checkpoint->places[i].tensor->name))
      return false;
  return true;
}

Status checkpoint_verify(Arena *arena, const Checkpoint *checkpoint,
                         const DnnProgram *program, bool is_resume,
                         int *out_unhashed) {
  unsigned char *block = ARENA_ARRAY(arena, unsigned char, HASH_BLOCK);
  *out_unhashed = 0;
  for (int i = 0; i < program->n_tensors; i++) {
    const StoredFile *file;
    const StoredTensor *stored = checkpoint_tensor_for(
        checkpoint, &program->tensors[i], is_resume, &file);
    bool has_hash;
    if (!stored) continue;
    TRY(checkpoint_check_hash(checkpoint, file, stored, block, &has_hash));
    *out_unhashed += !has_hash;
  }
  return STATUS_OK;
}
