/*
 * sample.c -- writes text from a trained model, token by token.
 *
 * The logits at the last token of the text decide the next one.  Random numbers
 * follow from the seed and the token position, so the same model writes the
 * same text again.  All ranks run the entry point, the first one that has the
 * logits chooses.  Of several stages the first may have the tokens and the last
 * the logits, so what all ranks decide alike follows from the programs of all.
 *
 * Two entry points can compute the logits.  `prefill` is the net over its
 * window of T tokens.  `decode`, where the compiler could make one, is the net
 * at one token position.  It reads the earlier ones from decode caches: keys
 * and values, and carries of scans.  `decode_init` fills the decode caches
 * before the first token; `prefill` also fills keys and values of a full
 * window.
 *
 * A text that has outgrown the window moves through it token by token.  If
 * token positions are numbered, they all change with each move, so from there
 * on the full window is computed for each token.  A net that has carries only,
 * a recurrent one, numbers nothing: it continues from its carries without end.
 */
#include "runtime/rank/run.h"

#include "runtime/data/vocabulary.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Choice {
  int32_t token;
  double logprob; /* with --json */
} Choice;

typedef struct Sampling {
  Run *run;
  Arena *arena; /* of the current text */
  Vocabulary *vocabulary;
  const char *input; /* path of the tokens */
  /* Tensors of this rank; those that it does not have are NULL. */
  const DnnTensor *result, *logit; /* of the full window, and of `decode` */
  const DnnEntryPoint *decode, *decode_init; /* or NULL */
  int chooser;                               /* rank that has the logits */
  bool has_positions; /* `decode` reads the position, on some rank */
  int64_t window, n_logits, n_choices;
  int32_t *tokens; /* the full input */
  int32_t *text;   /* all tokens so far */
  int64_t n_text;
  int64_t n_cached; /* tokens whose keys and values are in the decode caches */
  int64_t prefill_at; /* so many tokens cost as much as a window */
  float *logits, *sorted;
  double temperature;
  int64_t top_k;
  double top_p;
  uint64_t key;
} Sampling;

/* ---- preparing ---- */

static Status read_vocabulary(Run *run, Vocabulary **out) {
  const DnnSample *sample = run->program->sample;
  InputFile file;
  if (!sample->bpe) {
    *out = vocabulary_bytes(run->arena);
    return STATUS_OK;
  }
  InputSearch search = run_search(run);
  search.follows_links = search.follows_links || sample->is_vocabulary_given;
  TRY(input_open(run->arena, sample->vocabulary, &search, NULL, &file));
  char *text = malloc((size_t)file.n + 1);
  Status status = text ? input_read(&file, 0, text, file.n)
                       : status_make(STATUS_io, "no memory to read '%s'",
                                     sample->vocabulary);
  if (status.code == STATUS_ok)
    status = vocabulary_read(run->arena, sample->vocabulary, text, file.n, out);
  free(text);
  input_close(&file);
  return status;
}

/* The cost of an entry, in operations: it computes or it waits for memory, at
 * about eight operations a byte. */
static double cost_of(const DnnEntryPoint *entry) {
  double cost = 0;
  for (int32_t i = 0; i < entry->n_instrs; i++)
    cost += fmax(entry->instrs[i].flops, 8 * entry->instrs[i].bytes_moved);
  return cost;
}

/* The programs of all ranks run it one after the other. */
static double cost_of_all(const DnnBundle *bundle, EntryPointId id) {
  double cost = 0;
  for (int32_t i = 0; i < bundle->n_programs; i++)
    cost += cost_of(program_entry_point(&bundle->programs[i], id));
  return cost;
}

static bool is_data(const DnnTensor *tensor, const char *path) {
  return tensor->role == DNN_DATA && strcmp(tensor->path, path) == 0;
}

static bool has_data(const DnnEntryPoint *entry, const char *path) {
  bool has = false;
  for (int32_t i = 0; i < entry->n_tensors; i++)
    has |= is_data(&entry->tensors[i], path);
  return has;
}

static bool reads_position(const DnnBundle *bundle) {
  for (int32_t i = 0; i < bundle->n_programs; i++)
    if (has_data(program_entry_point(&bundle->programs[i], ENTRY_decode),
                 DNN_POSITION))
      return true;
  return false;
}

static void prepare_decode(Sampling *s) {
  const DnnBundle *bundle = s->run->bundle;
  const DnnEntryPoint *decode =
      program_entry_point(s->run->program, ENTRY_decode);
  if (!decode || s->run->options.whole_windows) return;
  s->has_positions = reads_position(bundle);
  s->logit = program_tensor(s->run->program, decode, DNN_RESULT);
  s->decode = decode;
  s->decode_init = program_entry_point(s->run->program, ENTRY_decode_init);
  double each = cost_of_all(bundle, ENTRY_decode);
  s->prefill_at = INT64_MAX;
  if (s->run->program->sample->fills_caches && each > 0)
    s->prefill_at = (int64_t)(cost_of_all(bundle, ENTRY_prefill) / each);
}

/* Finds a tensor of `prefill` in the program of the first rank that has it. */
static const DnnTensor *find_anywhere(const DnnBundle *bundle, DnnRole role,
                                      int *out_rank) {
  for (int i = 0; i < bundle->n_rows; i++) {
    const DnnProgram *program = &bundle->programs[bundle->rows[i].program];
    const DnnTensor *tensor = program_tensor(
        program, program_entry_point(program, ENTRY_prefill), role);
    *out_rank = bundle->rows[i].first;
    if (tensor) return tensor;
  }
  return NULL;
}

static Status prepare_sampling(Run *run, Sampling *out) {
  const DnnSample *sample = run->program->sample;
  *out = (Sampling){.run = run,
                    .result =
                        program_tensor(run->program, run->prefill, DNN_RESULT),
                    .temperature = sample->temperature,
                    .top_k = sample->top_k,
                    .top_p = sample->top_p};
  int reader;
  const DnnTensor *in = find_anywhere(run->bundle, DNN_DATA, &reader);
  const DnnTensor *result =
      find_anywhere(run->bundle, DNN_RESULT, &out->chooser);
  if (!in || !result || in->rank != 2 || result->rank != 3 ||
      in->dtype != DNN_i32 || result->dtype != DNN_f32 ||
      tensor_local_elements(result) != tensor_elements(result))
    return status_make(STATUS_unavailable,
                       "sampling needs a net i32[B, T] -> f32[B, T, V]");
  TRY(read_vocabulary(run, &out->vocabulary));
  int64_t n = vocabulary_size(out->vocabulary);
  out->input = in->path;
  out->window = in->size[1];
  out->n_logits = result->size[2];
  out->n_choices = n < out->n_logits ? n : out->n_logits;
  out->tokens = ARENA_ARRAY(run->arena, int32_t, tensor_local_elements(in));
  out->logits = ARENA_ARRAY(run->arena, float, out->n_logits);
  out->sorted = ARENA_ARRAY(run->arena, float, out->n_logits);
  prepare_decode(out);
  return STATUS_OK;
}

/* Room for `count` more; a net needs a token to begin with. */
static Status read_prompt(Sampling *s, const char *prompt, int64_t count) {
  int32_t *tokens;
  int64_t n = vocabulary_encode(s->vocabulary, s->arena, prompt,
                                (int64_t)strlen(prompt), &tokens);
  for (int64_t i = 0; i < n; i++)
    if (tokens[i] >= s->n_logits)
      return status_make(STATUS_invalid,
                         "the prompt has token %d, but the net knows %lld",
                         tokens[i], (long long)s->n_logits);
  s->text = ARENA_ARRAY(s->arena, int32_t, n + count + 1);
  memcpy(s->text, tokens, sizeof *tokens * (size_t)n);
  s->n_text = n;
  return STATUS_OK;
}

/* ---- logits ---- */

/* Reads a row of the logits that this rank has. */
static Status read_row(Sampling *s, const DnnTensor *logits, int64_t row) {
  Device *device = s->run->device;
  int64_t bytes = (int64_t)sizeof(float) * s->n_logits;
  if (!logits) return STATUS_OK;
  return device->read(device, logits->offset + row * bytes, s->logits, bytes);
}

/* Writes an input as each stage of this rank has it that reads it. */
static Status write_input(Sampling *s, const DnnEntryPoint *entry,
                          const char *path, const int32_t *values) {
  Device *device = s->run->device;
  for (int32_t i = 0; i < entry->n_tensors; i++) {
    const DnnTensor *input = &entry->tensors[i];
    if (input->role == DNN_DATA && strcmp(input->path, path) == 0)
      TRY(device->write(device, input->offset, values,
                        tensor_local_elements(input) *
                            (int64_t)sizeof *values));
  }
  return STATUS_OK;
}

/* The window that ends with the last token. */
static Status look_at_window(Sampling *s) {
  int64_t n = s->n_text, begin = n > s->window ? n - s->window : 0;
  for (int64_t i = begin; i < n; i++) s->tokens[i - begin] = s->text[i];
  TRY(write_input(s, s->run->prefill, s->input, s->tokens));
  TRY(states_fill_batch_rows(s->run, s->run->prefill, false));
  TRY(exec_run(s->run->exec, s->run->prefill, n));
  if (s->run->program->sample->fills_caches && begin == 0) s->n_cached = n;
  return read_row(s, s->result, n - begin - 1);
}

/* The decode caches hold no token yet. */
static Status begin_text(Sampling *s) {
  s->n_cached = 0;
  if (!s->decode || !s->decode_init) return STATUS_OK;
  TRY(states_fill_batch_rows(s->run, s->decode_init, false));
  return exec_run(s->run->exec, s->decode_init, 0);
}

/* One token position, the first that is not in the decode caches. */
static Status decode_token(Sampling *s) {
  int32_t position = (int32_t)s->n_cached;
  TRY(write_input(s, s->decode, s->input, &s->text[position]));
  TRY(write_input(s, s->decode, DNN_POSITION, &position));
  TRY(states_fill_batch_rows(s->run, s->decode, false));
  TRY(exec_run(s->run->exec, s->decode, position + 1));
  s->n_cached++;
  return STATUS_OK;
}

/* Logits after the last token. */
static Status read_logits(Sampling *s) {
  bool is_outgrown = s->n_text > s->window && s->has_positions;
  if (!s->decode || is_outgrown || s->n_text - s->n_cached > s->prefill_at)
    return look_at_window(s);
  while (s->n_cached < s->n_text) TRY(decode_token(s));
  return read_row(s, s->logit, 0);
}

/* ---- choosing ---- */

static int compare_descending(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x < y) - (x > y);
}

/* e^x for x <= 0, to 1e-12: the same on every machine, unlike the C library's.
 */
static double exponential_number(double x) {
  if (x < -700) return 0;
  double y = x / 1024, sum = 1, term = 1;
  for (int i = 1; i < 10; i++) {
    term *= y / i;
    sum += term;
  }
  for (int i = 0; i < 10; i++) sum *= sum;
  return sum;
}

/* A part of the weight of the greatest logit. */
static double weight_of(const Sampling *s, float logit, int best,
                        double temperature) {
  return exponential_number(((double)logit - (double)s->logits[best]) /
                            temperature);
}

/* The sum of the weights of all choices from `least` on. */
static double total_weight(const Sampling *s, int best, double temperature,
                           float least) {
  double total = 0;
  for (int i = 0; i < s->n_choices; i++)
    if (s->logits[i] >= least)
      total += weight_of(s, s->logits[i], best, temperature);
  return total;
}

/* The least logit that may be chosen: of `top_k`, and of the likeliest of those
 * that have the probability `top_p` together (Holtzman et al. 2020, "The
 * Curious Case of Neural Text Degeneration", section 3.1). */
static float least_of(Sampling *s, int best) {
  bool has_k = s->top_k > 0 && s->top_k < s->n_choices;
  if (!has_k && s->top_p >= 1) return -FLT_MAX;
  memcpy(s->sorted, s->logits, sizeof(float) * (size_t)s->n_choices);
  qsort(s->sorted, (size_t)s->n_choices, sizeof(float), compare_descending);
  float least = has_k ? s->sorted[s->top_k - 1] : -FLT_MAX;
  double total = total_weight(s, best, s->temperature, least), sum = 0;
  for (int i = 0; i < s->n_choices && s->sorted[i] >= least; i++) {
    sum += weight_of(s, s->sorted[i], best, s->temperature);
    if (sum >= s->top_p * total) return s->sorted[i];
  }
  return least;
}

static int choose_random_token(Sampling *s, int best, int64_t position) {
  float least = least_of(s, best);
  double at = random_uniform(s->key, (uint64_t)position), sum = 0;
  double total = total_weight(s, best, s->temperature, least);
  for (int i = 0; i < s->n_choices; i++) {
    if (s->logits[i] < least) continue;
    sum += weight_of(s, s->logits[i], best, s->temperature);
    if (sum > at * total) return i;
  }
  return best;
}

static Choice choose_token(Sampling *s, int64_t position) {
  Choice choice = {0};
  int best = 0;
  for (int i = 1; i < s->n_choices; i++)
    if (s->logits[i] > s->logits[best]) best = i;
  choice.token =
      s->temperature > 0 ? choose_random_token(s, best, position) : best;
  if (s->run->options.json)
    choice.logprob = (double)s->logits[choice.token] - (double)s->logits[best] -
                     log(total_weight(s, best, 1, -FLT_MAX));
  return choice;
}

/* ---- writing ---- */

static void print_token(const Sampling *s, int32_t token) {
  int n;
  const unsigned char *bytes = vocabulary_text(s->vocabulary, token, &n);
  fwrite(bytes, 1, (size_t)n, stdout);
}

static Status write_text(Sampling *s, int64_t count, Text *logprobs) {
  Comm *comm = s->run->comm;
  TRY(begin_text(s));
  bool speaks = comm->rank == 0 && !s->run->options.json;
  for (int64_t i = 0; speaks && i < s->n_text; i++) print_token(s, s->text[i]);
  if (s->n_text == 0) {
    int32_t first = vocabulary_first(s->vocabulary);
    s->text[s->n_text++] = first < s->n_logits ? first : 0;
  }
  for (int64_t i = 0; i < count; i++) {
    TRY(read_logits(s));
    Choice next = {0};
    if (comm->rank == s->chooser) next = choose_token(s, i);
    TRY(comm->broadcast(comm, &next, sizeof next, s->chooser));
    s->text[s->n_text++] = next.token;
    if (speaks) {
      print_token(s, next.token);
      fflush(stdout);
    }
    if (s->run->options.json)
      text_printf(logprobs, "%s%.9g", i ? "," : "", next.logprob);
  }
  if (speaks) fputc('\n', stdout);
  return STATUS_OK;
}

/* The tokens from `begin` on as text; a byte 0 would end it too early. */
static const char *join_prompts(const Sampling *s, int64_t begin) {
  Text out = text_create(s->arena);
  for (int64_t i = begin; i < s->n_text; i++) {
    int n;
    const unsigned char *bytes = vocabulary_text(s->vocabulary, s->text[i], &n);
    if (n == 1 && bytes[0] == 0)
      text_add(&out, "\xef\xbf\xbd");
    else
      text_add_n(&out, (const char *)bytes, (size_t)n);
  }
  return text_string(&out);
}

static void print_json(const Sampling *s, int64_t n_prompt, int64_t count,
                       const char *logprobs, double seconds) {
  Text line = text_create(s->arena);
  text_add(&line, "{\"sample\":");
  text_add_json(&line, join_prompts(s, n_prompt > 0 ? 0 : 1));
  text_add(&line, ",\"tokens\":[");
  for (int64_t i = s->n_text - count; i < s->n_text; i++)
    text_printf(&line, "%s%d", i > s->n_text - count ? "," : "", s->text[i]);
  text_printf(&line, "],\"logprobs\":[%s],\"tokens_per_s\":%.6g}\n", logprobs,
              seconds > 0 ? (double)count / seconds : 0);
  fputs(text_string(&line), stdout);
}

/* Prompt `index` and what follows it; the first is sampled as one alone is. */
static int sample_one(Sampling *s, const char *prompt, int64_t index,
                      int64_t count) {
  Run *run = s->run;
  Arena *scratch = arena_create(run->memory);
  const char *stream =
      index ? arena_printf(scratch, "sample/%lld", (long long)index) : "sample";
  s->key = random_key(run->seed, stream);
  s->arena = scratch;
  int code = run_agree(run, read_prompt(s, prompt, count));
  int64_t n_prompt = s->n_text, begin = clock_ns();
  Text logprobs = text_create(scratch);
  if (!code) code = run_agree(run, write_text(s, count, &logprobs));
  if (!code && run->comm->rank == 0 && run->options.json)
    print_json(s, n_prompt, count, text_string(&logprobs),
               1e-9 * (double)(clock_ns() - begin));
  arena_destroy(scratch);
  return code;
}

/* A prompt a line. */
static int sample_lines(Sampling *s, const char *path, int64_t count) {
  const char *text;
  size_t n;
  Run *run = s->run;
  int code = run_agree(run, file_read(run->arena, path, 16 << 20, &text, &n));
  for (int64_t index = 0; !code && n > 0; index++) {
    const char *end = memchr(text, '\n', n);
    size_t length = end ? (size_t)(end - text) : n;
    char *line = arena_copy(run->arena, text, length + 1);
    line[length] = 0;
    code = sample_one(s, line, index, count);
    length += end != NULL;
    text += length;
    n -= length;
  }
  return code;
}

int run_sample(Run *run) {
  const DnnSample *sample = run->program->sample;
  const RunOptions *options = &run->options;
  const char *prompt = options->prompt ? options->prompt : sample->prompt;
  int64_t count = options->count >= 0 ? options->count : sample->count;
  Sampling s;
  int code = run_agree(run, prepare_sampling(run, &s));
  if (code) return code;
  if (options->prompts) return sample_lines(&s, options->prompts, count);
  return sample_one(&s, prompt ? prompt : "", 0, count);
}
