/*
 * pipeline_read.c -- reads the list of a pipeline that a person or another
 * program wrote, in the notation of torch.distributed.pipelining.
 *
 *     0F0,0F1,,0B0,0B1     one line per rank, run from left to right; an empty
 *     1F0,1B0,1F1,1B1      cell is no token
 *
 * "(0F7;7B3)OVERLAP_F_B" is one action of several parts.
 */
#include "ir/pipeline/links.h"

#include <ctype.h>
#include <string.h>

#define MAX_NUMBER 9999
#define MAX_RANKS  4096

typedef struct Reader {
  Arena *arena;
  Diags *diags;
  const Source *source;
  Pipeline *pipeline;
  PairMap *calls; /* that were read */
  bool is_wrong;
} Reader;

/* ---- mistakes ---- */

static void cell_is_wrong(Arena *arena, Diags *diags, Span span,
                          const char *fact) {
  enum { MOST_SHOWN = 40 };
  uint32_t n = span.end - span.begin;
  bool is_long = n > MOST_SHOWN;
  diag(diags, DIAG_schedule_cell, span,
       arena_printf(arena, "%.*s%s", (int)(is_long ? MOST_SHOWN : n),
                    span.source->text + span.begin, is_long ? "..." : ""),
       fact);
}

static void reject(Reader *r, Span span, const char *fact) {
  cell_is_wrong(r->arena, r->diags, span, fact);
  r->is_wrong = true;
}

static Span span_of(const Reader *r, const char *at, const char *end) {
  return (Span){r->source, (uint32_t)(at - r->source->text),
                (uint32_t)(end - r->source->text)};
}

/* ---- cells ---- */

static bool read_number(const char **at, const char *end, int *out) {
  int value = 0;
  const char *begin = *at;
  while (*at < end && isdigit((unsigned char)**at) && value <= MAX_NUMBER)
    value = value * 10 + (*(*at)++ - '0');
  *out = value;
  return *at > begin && value <= MAX_NUMBER;
}

/* Finds the token of which all of the text but its numbers is. */
static bool read_kind(const char **at, const char *end, Token *token) {
  const char *begin = *at;
  while (*at < end && (isupper((unsigned char)**at) || **at == '_')) (*at)++;
  size_t n = (size_t)(*at - begin);
  for (int kind = 0; kind < N_TOKENS; kind++) {
    const char *text = token_info((TokenKind)kind)->text;
    if (strlen(text) != n || memcmp(text, begin, n) != 0) continue;
    token->kind = (TokenKind)kind;
    return true;
  }
  return false;
}

static bool read_token(const char *at, const char *end, Token *token) {
  if (!read_number(&at, end, &token->stage) || !read_kind(&at, end, token))
    return false;
  if (!token_info(token->kind)->is_of_step &&
      !read_number(&at, end, &token->microbatch))
    return false;
  return at == end;
}

static bool is_new_call(Reader *r, const Token *token) {
  int row = token_row(token->kind, token->stage);
  if (pair_map_get(r->calls, row, token->microbatch)) return false;
  pair_map_put(r->calls, row, token->microbatch, r);
  return true;
}

/* One "2F7", alone or as a part of an action. */
static void read_part(Reader *r, int rank, const char *at, const char *end,
                      bool is_joined) {
  Token token = {.is_joined = is_joined, .span = span_of(r, at, end)};
  Pipeline *pipeline = r->pipeline;
  if (!read_token(at, end, &token)) {
    reject(r, token.span, "it is not a stage, F, B, I or W, and a micro-batch");
    return;
  }
  const TokenInfo *info = token_info(token.kind);
  if (info->role == TOKEN_ROLE_call && !is_new_call(r, &token)) {
    reject(r, token.span, "it is there twice");
    return;
  }
  if (info->role == TOKEN_ROLE_call && !info->is_of_step) {
    if (token.stage >= pipeline->n_stages) pipeline->n_stages = token.stage + 1;
    if (token.microbatch >= pipeline->n_microbatches)
      pipeline->n_microbatches = token.microbatch + 1;
  }
  vec_push(r->arena, &pipeline->lists[rank], token);
}

/* "(0F7;7B3)OVERLAP_F_B" */
static void read_parts(Reader *r, int rank, const char *at, const char *end) {
  static const char suffix[] = ")OVERLAP_F_B";
  size_t n = sizeof suffix - 1;
  if ((size_t)(end - at) <= n || memcmp(end - n, suffix, n) != 0) {
    reject(r, span_of(r, at, end), "it does not end in )OVERLAP_F_B");
    return;
  }
  end -= n;
  bool is_joined = false;
  for (at++; at <= end; at++) {
    const char *part = at;
    while (at < end && *at != ';') at++;
    read_part(r, rank, part, at, is_joined);
    is_joined = true;
  }
}

static void read_cell(Reader *r, int rank, const char *at, const char *end) {
  while (at < end && isspace((unsigned char)*at)) at++;
  while (end > at && isspace((unsigned char)end[-1])) end--;
  if (at == end) return;
  if (*at == '(')
    read_parts(r, rank, at, end);
  else
    read_part(r, rank, at, end, false);
}

static void read_line(Reader *r, int rank, const char *at, const char *end) {
  for (const char *cell = at; cell <= end; cell++) {
    const char *begin = cell;
    while (cell < end && *cell != ',') cell++;
    read_cell(r, rank, begin, cell);
  }
}

static void read_lines(Reader *r) {
  const char *at = r->source->text, *end = at + r->source->n;
  while (at < end) {
    const char *line_end = memchr(at, '\n', (size_t)(end - at));
    if (!line_end) line_end = end;
    if (r->pipeline->n_ranks >= MAX_RANKS) {
      reject(r, span_of(r, at, line_end), "there are too many ranks");
      return;
    }
    read_line(r, r->pipeline->n_ranks++, at, line_end);
    at = line_end + 1;
  }
}

Pipeline *pipeline_read(Arena *arena, Diags *diags, const Source *source) {
  Pipeline *pipeline = ARENA_NEW(arena, Pipeline);
  Reader r = {.arena = arena,
              .diags = diags,
              .source = source,
              .pipeline = pipeline,
              .calls = pair_map_create(arena)};
  pipeline->lists = ARENA_ARRAY(arena, Tokens, MAX_RANKS);
  read_lines(&r);
  if (r.is_wrong) return NULL;
  if (pipeline->n_microbatches == 0) {
    diag(diags, DIAG_schedule_empty, SPAN_FILE(source));
    return NULL;
  }
  pipeline->edges =
      pipeline_chain(arena, pipeline->n_stages, &pipeline->n_edges);
  return pipeline;
}
