/*
 * places.c -- chooses the samples of each step.
 *
 * Sample i of step t depends on (seed, t, i) only: not on the number of ranks,
 * on earlier reads, or on the step at which a run was resumed.  So every rank
 * computes the places of its own samples and nothing is sent.
 *
 *   stream, shuffled     a window at a random offset
 *   stream, sequential   batch row i reads on from its last window
 *   records, shuffled    a permutation for each epoch, computed and not stored
 *   records, sequential  in order
 *   evaluation           in order, windows side by side, row by row where the
 *                        stream is sequential; or, for a fixed number of
 *                        batches, at random places that never change
 *   a block that cycles  from its beginning again until the longest block of
 *                        the entry point ends, each repetition permuted anew
 *
 * The permutation is a Feistel network over the next power of four, walked
 * along its cycle until it falls below n (Black and Rogaway, 2002).
 */
#include "runtime/data/blocks.h"

#include <stdio.h>

/* ---- places ---- */

static uint64_t permute_record(uint64_t key, uint64_t i, uint64_t n) {
  int half = 1;
  while (half < 31 && (uint64_t)1 << (2 * half) < n) half++;
  uint64_t mask = ((uint64_t)1 << half) - 1;
  do {
    uint64_t left = i >> half, right = i & mask;
    for (int round = 0; round < 4; round++) {
      uint32_t words[4];
      philox(key, right, (uint64_t)round, words);
      uint64_t mixed = left ^ (words[0] & mask);
      left = right;
      right = mixed;
    }
    i = left << half | right;
  } while (i >= n);
  return i;
}

/* Windows side by side, or records. */
static int64_t samples_in(const Block *block, const Part *part) {
  if (!block->data->is_stream) return part->n;
  int64_t n = part->n - block->lookahead;
  return n > 0 ? n / block->window : 0;
}

/* Offsets at which a window can begin. */
static int64_t offsets_in(const Block *block, const Part *part) {
  if (!block->data->is_stream) return part->n;
  return part->n - block->lookahead - block->window + 1;
}

int64_t block_train_place(const Block *block, int64_t t, int64_t i,
                          int64_t batch, int64_t steps) {
  const Part *part = &block->train;
  bool is_stream = block->data->is_stream;
  int64_t epoch = (t - 1) / steps, step = (t - 1) % steps;
  if (is_stream && block->data->is_sequential) {
    int64_t each = samples_in(block, part) / batch;
    return part->first + (i * each + step % each) * block->window;
  }
  if (is_stream)
    return part->first +
           (int64_t)random_below(block->key, (uint64_t)t << 32 | (uint64_t)i,
                                 (uint64_t)offsets_in(block, part));
  int64_t at = step * batch + i, repetition = at / part->n;
  at %= part->n;
  uint64_t pass = (uint64_t)epoch + ((uint64_t)repetition << 32);
  if (!block->data->is_sequential)
    at = (int64_t)permute_record(block->key + pass * 0x9e3779b97f4a7c15u,
                                 (uint64_t)at, (uint64_t)part->n);
  return part->first + at;
}

/* In a sequential stream each batch row reads on from its last window; where
 * the windows of the longest block, `n`, cannot be divided evenly, the first
 * rows have one more, which is the remainder of the evaluation. */
static int64_t window_of_lane(const Block *block, int64_t sample, int64_t batch,
                              bool is_random, int64_t n) {
  int64_t windows = samples_in(block, &block->eval);
  int64_t each = n / batch, more = n % batch;
  int64_t row = sample % batch, window = sample / batch;
  if (!is_random)
    return (row * each + (row < more ? row : more) + window) % windows;
  int64_t start = (int64_t)random_below(block->key ^ 0xe7a1, (uint64_t)row,
                                        (uint64_t)windows);
  return (start + window) % windows;
}

int64_t block_eval_place(const Block *block, int64_t sample, int64_t batch,
                         bool is_random, int64_t n) {
  const Part *part = &block->eval;
  bool is_stream = block->data->is_stream;
  if (is_stream && block->data->is_sequential)
    return part->first +
           window_of_lane(block, sample, batch, is_random, n) * block->window;
  if (is_random)
    return part->first +
           (int64_t)random_below(block->key ^ 0xe7a1, (uint64_t)sample,
                                 (uint64_t)offsets_in(block, part));
  sample %= samples_in(block, part);
  return part->first + sample * (is_stream ? block->window : 1);
}

/* ---- lengths ---- */

static int64_t samples_of(const Block *block, bool is_eval) {
  return samples_in(block, is_eval ? &block->eval : &block->train);
}

/* The longer (or shorter) one of `found`, which may be NULL, and the blocks
 * that the entry reads. */
static const Block *longer_block(const Data *data, const DnnEntryPoint *entry,
                                 bool is_eval, bool is_longest,
                                 const Block *found) {
  for (int i = 0; entry && i < entry->n_tensors; i++) {
    const Block *block;
    if (entry->tensors[i].role != DNN_DATA ||
        !data_find_field(data, entry->tensors[i].path, &block) ||
        (!is_longest && block->data->cycles))
      continue;
    int64_t more =
        found ? samples_of(block, is_eval) - samples_of(found, is_eval) : 0;
    if (!found || (is_longest ? more > 0 : more < 0)) found = block;
  }
  return found;
}

/* The longest block that the entry reads on any rank (or the shortest one that
 * does not cycle); NULL: there is none.  A stage may read no data itself. */
static const Block *find_length(const Data *data, const DnnEntryPoint *entry,
                                bool is_eval, bool is_longest) {
  const DnnBundle *bundle = entry ? data->bundle : NULL;
  const Block *found = longer_block(data, entry, is_eval, is_longest, NULL);
  for (int i = 0; bundle && i < bundle->n_programs; i++)
    found =
        longer_block(data, program_entry_point(&bundle->programs[i], entry->id),
                     is_eval, is_longest, found);
  return found;
}

bool data_lengths_differ(const Data *data, const DnnEntryPoint *entry,
                         bool is_eval, DataLengths *out) {
  const Block *longest = find_length(data, entry, is_eval, true);
  const Block *shortest = find_length(data, entry, is_eval, false);
  if (!shortest) return false;
  *out = (DataLengths){.longer = (int)(longest - data->blocks),
                       .shorter = (int)(shortest - data->blocks),
                       .n_longer = samples_of(longest, is_eval),
                       .n_shorter = samples_of(shortest, is_eval)};
  /* Where a block reserves none, nothing is evaluated. */
  return out->n_shorter != out->n_longer && (!is_eval || out->n_shorter > 0);
}

Status data_check_lengths(const Data *data, const DnnEntryPoint *entry,
                          bool is_eval) {
  DataLengths lengths;
  if (!data_lengths_differ(data, entry, is_eval, &lengths)) return STATUS_OK;
  const char *longer = data->blocks[lengths.longer].data->name;
  const char *shorter = data->blocks[lengths.shorter].data->name;
  return status_make(STATUS_invalid,
                     "'%s' has %lld samples to %s, but '%s' has %lld; 'cycle = "
                     "true' in '%s' repeats it until '%s' ends",
                     shorter, (long long)lengths.n_shorter,
                     is_eval ? "evaluate" : "train on", longer,
                     (long long)lengths.n_longer, shorter, longer);
}

/* Windows at random offsets may overlap: a stream that holds one holds a batch,
 * and its epoch has at least one step. */
static int64_t steps_of(const Block *block, int64_t batch) {
  int64_t steps = samples_in(block, &block->train) / batch;
  if (!block->data->is_stream || block->data->is_sequential) return steps;
  if (offsets_in(block, &block->train) < 1) return 0;
  return steps > 0 ? steps : 1;
}

int64_t data_steps_per_epoch(const Data *data) {
  const DnnEntryPoint *train = program_entry_point(data->program, ENTRY_train);
  const Block *longest = find_length(data, train, false, true);
  return longest ? steps_of(longest, train->batch) : 0;
}

int64_t data_eval_samples(const Data *data) {
  return data_samples(data, program_entry_point(data->program, ENTRY_eval));
}

static bool reads_empty_block(const Data *data, const DnnEntryPoint *entry) {
  for (int i = 0; entry && i < entry->n_tensors; i++) {
    const Block *block;
    if (entry->tensors[i].role == DNN_DATA &&
        data_find_field(data, entry->tensors[i].path, &block) &&
        samples_of(block, true) <= 0)
      return true;
  }
  return false;
}

/* A block without samples has none for any batch. */
int64_t data_samples(const Data *data, const DnnEntryPoint *entry) {
  const DnnBundle *bundle = entry ? data->bundle : NULL;
  const Block *longest = find_length(data, entry, true, true);
  bool is_empty = !longest || reads_empty_block(data, entry);
  for (int i = 0; bundle && i < bundle->n_programs; i++)
    is_empty |= reads_empty_block(
        data, program_entry_point(&bundle->programs[i], entry->id));
  return is_empty ? 0 : samples_of(longest, true);
}

/* ---- checks ---- */

/* The block that the entry reads and `is_enough` not, or NULL. */
static const Block *find_short(const Data *data, const DnnEntryPoint *entry,
                               bool (*is_enough)(const Block *,
                                                 int64_t batch)) {
  for (int i = 0; entry && i < entry->n_tensors; i++) {
    const Block *block;
    if (entry->tensors[i].role == DNN_DATA &&
        data_find_field(data, entry->tensors[i].path, &block) &&
        !is_enough(block, entry->batch))
      return block;
  }
  return NULL;
}

/* The evaluation takes all, or the batch is too large. */
static const char *help_for_short(const Block *block, char *to, size_t n) {
  long long left = (long long)samples_in(block, &block->train);
  if (left == 0 && block->data->eval > 0)
    snprintf(to, n, "\nhelp: 'eval' of this block leaves none for training");
  else if (left > 0)
    snprintf(to, n, "\nhelp: a batch of at most %lld samples has enough", left);
  else
    to[0] = '\0';
  return to;
}

static bool can_train(const Block *block, int64_t batch) {
  if (block->data->cycles && !block->data->is_stream) return block->train.n > 0;
  return steps_of(block, batch) > 0;
}

static bool can_evaluate(const Block *block, int64_t batch) {
  (void)batch;
  bool wants = block->data->eval > 0 || data_has_eval_file(block->data);
  return !wants || samples_in(block, &block->eval) > 0;
}

Status data_check(const Data *data) {
  const DnnEntryPoint *train = program_entry_point(data->program, ENTRY_train);
  const Block *block = find_short(data, train, can_train);
  char help[80];
  if (block)
    return status_make(
        STATUS_invalid,
        "'%s' has %lld samples to train on and %lld to evaluate; a batch takes "
        "%lld%s",
        block->data->name, (long long)samples_in(block, &block->train),
        (long long)samples_in(block, &block->eval), (long long)train->batch,
        help_for_short(block, help, sizeof help));
  block = find_short(data, program_entry_point(data->program, ENTRY_eval),
                     can_evaluate);
  if (block)
    return status_make(STATUS_invalid,
                       "the evaluation records of '%s' are less than a sample "
                       "(%lld values of a stream, %lld in a sample)",
                       block->data->name, (long long)block->eval.n,
                       (long long)(block->window + block->lookahead));
  TRY(data_check_lengths(data, train, false));
  return data_check_lengths(
      data, program_entry_point(data->program, ENTRY_eval), true);
}
