/*
 * frames.c -- counts the frames that are alive at once on a rank, and gives one
 * to each micro-batch.
 *
 *     0F0 0F1 0B0 0F2 0B1 0B2      from F to B: frames 0 1 0, two of them
 */
#include "ir/pipeline/pipeline.h"

/* Positions in the list of the rank, -1 where there is none. */
typedef struct Lives {
  int *begin, *end; /* by micro-batch */
} Lives;

/* I and W are in B. */
static bool is_token(const Token *token, TokenKind kind,
                     const FrameClass *class) {
  bool is_part = kind == TOKEN_input_grad || kind == TOKEN_weight_grad;
  if (token->stage != class->stage) return false;
  if (token->kind != kind && !(is_part && token->kind == TOKEN_backward))
    return false;
  return token_info(kind)->role == TOKEN_ROLE_call ||
         token->edge == class->edge;
}

static Lives find_lives(Arena *arena, const Pipeline *pipeline, int rank,
                        const FrameClass *class) {
  int n = pipeline->n_microbatches;
  const Tokens *list = &pipeline->lists[rank];
  Lives lives = {ARENA_ARRAY(arena, int, n), ARENA_ARRAY(arena, int, n)};
  for (int m = 0; m < n; m++) lives.begin[m] = lives.end[m] = -1;
  for (int i = 0; i < list->n; i++) {
    const Token *token = &list->data[i];
    int m = token->microbatch;
    if (token_info(token->kind)->is_of_step) continue;
    if (lives.begin[m] < 0 && is_token(token, class->first, class))
      lives.begin[m] = i;
    if (is_token(token, class->last, class)) lives.end[m] = i;
  }
  for (int m = 0; m < n; m++)
    if (lives.end[m] < lives.begin[m]) lives.begin[m] = -1;
  return lives;
}

int pipeline_frames(Arena *arena, const Pipeline *pipeline, int rank,
                    const FrameClass *class, int *out_frames) {
  int n = pipeline->n_microbatches, n_frames = 0;
  const Tokens *list = &pipeline->lists[rank];
  Lives lives = find_lives(arena, pipeline, rank, class);
  int *frames = out_frames ? out_frames : ARENA_ARRAY(arena, int, n);
  bool *is_used = ARENA_ARRAY(arena, bool, n);
  for (int m = 0; m < n; m++) frames[m] = -1;
  for (int i = 0; i < list->n; i++) {
    int m = list->data[i].microbatch;
    if (token_info(list->data[i].kind)->is_of_step) continue;
    if (lives.begin[m] == i) {
      int frame = 0;
      while (is_used[frame]) frame++;
      is_used[frame] = true;
      frames[m] = frame;
      if (frame >= n_frames) n_frames = frame + 1;
    }
    if (lives.begin[m] >= 0 && lives.end[m] == i) is_used[frames[m]] = false;
  }
  return n_frames;
}

bool pipeline_frames_clash(Arena *arena, const Pipeline *pipeline, int rank,
                           const FrameClass *class, const int *frames,
                           int out_microbatches[2]) {
  int n = pipeline->n_microbatches;
  Lives lives = find_lives(arena, pipeline, rank, class);
  for (int a = 0; a < n; a++)
    for (int b = 0; b < n; b++) {
      bool are_alive = a != b && lives.begin[a] >= 0 && lives.begin[b] >= 0 &&
                       lives.begin[a] <= lives.begin[b] &&
                       lives.begin[b] <= lives.end[a];
      if (!are_alive || frames[a] != frames[b]) continue;
      out_microbatches[0] = a;
      out_microbatches[1] = b;
      return true;
    }
  return false;
}
