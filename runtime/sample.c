/*
 * sample.c -- writes text from a trained model, byte by byte.
 *
 * The net sees a window of its T positions; the logits at the last byte of the
 * text decide the next one.  Draws follow from the seed and the position, so
 * the same model says the same again.  All ranks run the code, rank 0 chooses.
 */
#include "runtime/run.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Sampling {
  Run *run;
  const DnnTensor *input, *result;
  int64_t window, vocabulary;
  int32_t *tokens; /* the input as a whole */
  float *logits, *sorted;
  double temperature;
  int64_t top_k;
  uint64_t key;
} Sampling;

static Status prepare(Run *run, Arena *arena, Sampling *out) {
  const DnnSample *sample = run->program->sample;
  *out = (Sampling){
      .run = run,
      .input = program_tensor(run->program, run->sample, DNN_DATA),
      .result = program_tensor(run->program, run->sample, DNN_RESULT),
      .temperature = sample->temperature,
      .top_k = sample->top_k,
      .key = random_key(run->seed, "sample")};
  if (sample->bpe)
    return status_make(STATUS_unavailable,
                       "sampling with a vocabulary of pairs (bpe) is not "
                       "supported yet");
  const DnnTensor *in = out->input, *result = out->result;
  if (!in || !result || in->rank != 2 || result->rank != 3 ||
      in->dtype != DNN_i32 || result->dtype != DNN_f32 ||
      tensor_local_elements(result) != tensor_elements(result))
    return status_make(STATUS_unavailable,
                       "sampling needs a net i32[B, T] -> f32[B, T, V]");
  out->window = in->size[1];
  out->vocabulary = result->size[2];
  out->tokens = ARENA_ARRAY(arena, int32_t, tensor_local_elements(in));
  out->logits = ARENA_ARRAY(arena, float, out->vocabulary);
  out->sorted = ARENA_ARRAY(arena, float, out->vocabulary);
  return STATUS_OK;
}

/* Logits behind the last of `n` bytes of text. */
static Status look(Sampling *s, const unsigned char *text, int64_t n) {
  Device *device = s->run->device;
  int64_t begin = n > s->window ? n - s->window : 0;
  for (int64_t i = begin; i < n; i++) s->tokens[i - begin] = text[i];
  int64_t bytes = tensor_local_elements(s->input) * (int64_t)sizeof(int32_t);
  TRY(device->write(device, s->input->offset, s->tokens, bytes));
  TRY(exec_run(s->run->exec, s->run->sample, n));
  int64_t row = (int64_t)sizeof(float) * s->vocabulary;
  return device->read(device, s->result->offset + (n - begin - 1) * row,
                      s->logits, row);
}

static int descending(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x < y) - (x > y);
}

/* e^x for x <= 0, to 1e-12: the same everywhere, unlike the C library's. */
static double exponential(double x) {
  if (x < -700) return 0;
  double y = x / 1024, sum = 1, term = 1;
  for (int i = 1; i < 10; i++) {
    term *= y / i;
    sum += term;
  }
  for (int i = 0; i < 10; i++) sum *= sum;
  return sum;
}

static int choose(Sampling *s, int64_t position) {
  int64_t n = s->vocabulary < 256 ? s->vocabulary : 256;
  int best = 0;
  for (int i = 1; i < n; i++)
    if (s->logits[i] > s->logits[best]) best = i;
  if (s->temperature <= 0) return best;
  float least = -FLT_MAX;
  if (s->top_k > 0 && s->top_k < n) {
    memcpy(s->sorted, s->logits, sizeof(float) * (size_t)n);
    qsort(s->sorted, (size_t)n, sizeof(float), descending);
    least = s->sorted[s->top_k - 1];
  }
  double total = 0, at = random_uniform(s->key, (uint64_t)position), sum = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < n; i++) {
      if (s->logits[i] < least) continue;
      double weight = exponential(
          ((double)s->logits[i] - (double)s->logits[best]) / s->temperature);
      if (pass == 0)
        total += weight;
      else if ((sum += weight) > at * total)
        return i;
    }
  }
  return best;
}

static Status write_text(Sampling *s, unsigned char *text, int64_t n_prompt,
                         int64_t count) {
  Comm *comm = s->run->comm;
  bool speaks = comm->rank == 0 && !s->run->options.json;
  if (speaks) fwrite(text, 1, (size_t)n_prompt, stdout);
  /* A net needs a byte to begin with. */
  if (n_prompt == 0) text[n_prompt++] = '\n';
  for (int64_t i = 0; i < count; i++) {
    TRY(look(s, text, n_prompt + i));
    int32_t next = choose(s, i);
    TRY(comm->broadcast(comm, &next, sizeof next, 0));
    text[n_prompt + i] = (unsigned char)next;
    if (speaks) {
      fputc(next, stdout);
      fflush(stdout);
    }
  }
  text[n_prompt + count] = '\0';
  if (speaks) fputc('\n', stdout);
  return STATUS_OK;
}

int run_sample(Run *run) {
  const DnnSample *sample = run->program->sample;
  const RunOptions *options = &run->options;
  Sampling sampling;
  int code = run_agree(run, prepare(run, run->arena, &sampling));
  if (code) return code;
  const char *prompt = options->prompt ? options->prompt : sample->prompt;
  if (!prompt) prompt = "";
  int64_t count = options->count >= 0 ? options->count : sample->count;
  int64_t n_prompt = (int64_t)strlen(prompt);
  unsigned char *text =
      ARENA_ARRAY(run->arena, unsigned char, n_prompt + count + 2);
  memcpy(text, prompt, (size_t)n_prompt);
  code = run_agree(run, write_text(&sampling, text, n_prompt, count));
  if (code || run->comm->rank != 0 || !options->json) return code;
  Text line = text_create(run->arena);
  text_add(&line, "{\"sample\":");
  text_add_json(&line, (const char *)text);
  text_add(&line, "}\n");
  fputs(text_string(&line), stdout);
  return EXIT_done;
}
