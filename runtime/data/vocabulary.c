/*
 * vocabulary.c -- encodes text by byte pairs as GPT-2 does (Sennrich et al.
 * 2016; Radford et al. 2019).
 *
 * A part of the text begins as single bytes.  Among all neighbours that are a
 * merge of the file, the merge that stands first in the file is applied,
 * leftmost first, until none is left.  A heap holds the possible merges of a
 * part, so a part of n bytes costs n log n; entries whose pair no longer exists
 * are skipped.
 */
#include "runtime/data/vocabulary.h"

#include <stdlib.h>
#include <string.h>

enum { N_BYTES = 256, MOST_MERGES = 1 << 20 };

static const char end_of_text[] = "<|endoftext|>";

typedef struct Token {
  const unsigned char *bytes;
  int n;
} Token;

struct Vocabulary {
  Token *tokens;
  int32_t n_tokens;
  int32_t of_byte[N_BYTES];
  Map *merges;  /* pair to token + 1; NULL: bytes are tokens */
  Map *by_text; /* hash of the bytes to token + 1 */
};

/* ---- tables ---- */

static const void *pair_key(int32_t left, int32_t right) {
  return (const void *)(uintptr_t)((uint64_t)(left + 1) << 32 |
                                   (uint32_t)(right + 1));
}

static const void *text_key(const unsigned char *bytes, int n) {
  return (const void *)(uintptr_t)(hash_bytes(bytes, (size_t)n, 0) | 1);
}

static int32_t map_find_token(const Map *map, const void *key) {
  return (int32_t)(intptr_t)map_get(map, key) - 1;
}

static void map_put_token(Map *map, const void *key, int32_t token) {
  map_put(map, key, (void *)(intptr_t)(token + 1));
}

static int32_t find_token(const Vocabulary *v, const unsigned char *bytes,
                          int n) {
  int32_t token = map_find_token(v->by_text, text_key(bytes, n));
  if (token < 0 || v->tokens[token].n != n ||
      memcmp(v->tokens[token].bytes, bytes, (size_t)n) != 0)
    return -1;
  return token;
}

static int32_t add_token(Vocabulary *v, Arena *arena,
                         const unsigned char *bytes, int n) {
  Token *token = &v->tokens[v->n_tokens];
  *token = (Token){arena_copy(arena, bytes, (size_t)n), n};
  if (v->by_text) map_put_token(v->by_text, text_key(bytes, n), v->n_tokens);
  return v->n_tokens++;
}

/* Bytes that the alphabet shows as the character of their number. */
static bool is_shown(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) ||
         (byte >= 174 && byte <= 255);
}

/* First the shown ones, then the others, which are characters from 256 on. */
static void add_bytes(Vocabulary *v, Arena *arena, int *byte_of_code) {
  int next = N_BYTES;
  for (int shown = 1; shown >= 0; shown--)
    for (int byte = 0; byte < N_BYTES; byte++) {
      if (is_shown(byte) != shown) continue;
      byte_of_code[shown ? byte : next++] = byte;
      unsigned char text = (unsigned char)byte;
      v->of_byte[byte] = add_token(v, arena, &text, 1);
    }
}

Vocabulary *vocabulary_bytes(Arena *arena) {
  Vocabulary *v = ARENA_NEW(arena, Vocabulary);
  v->tokens = ARENA_ARRAY(arena, Token, N_BYTES);
  for (int byte = 0; byte < N_BYTES; byte++) {
    unsigned char text = (unsigned char)byte;
    v->of_byte[byte] = add_token(v, arena, &text, 1);
  }
  return v;
}

/* ---- reading merges ---- */

typedef struct Reading {
  Vocabulary *v;
  Arena *arena;
  const char *path;
  int64_t line;
  int byte_of_code[2 * N_BYTES]; /* -1: no byte */
} Reading;

static Status wrong_merge(const Reading *reading, const char *what) {
  return status_make(STATUS_invalid, "'%s', line %lld: %s", reading->path,
                     (long long)reading->line, what);
}

/* The token that is written from `from` to `end`; its bytes go to `to`. */
static Status read_token(const Reading *reading, const char *from,
                         const char *end, unsigned char *to, int *out_n,
                         int32_t *out) {
  *out_n = 0;
  while (from < end) {
    const unsigned char *at = (const unsigned char *)from;
    int code = at[0], length = 1;
    if (at[0] >= 0xc2 && at[0] <= 0xc7 && end - from > 1) {
      code = (at[0] & 0x1f) << 6 | (at[1] & 0x3f);
      length = 2;
    } else if (at[0] >= 0x80) {
      code = 0; /* no character of the alphabet */
    }
    if (code >= 2 * N_BYTES || reading->byte_of_code[code] < 0)
      return wrong_merge(reading, "a character that stands for no byte");
    to[(*out_n)++] = (unsigned char)reading->byte_of_code[code];
    from += length;
  }
  *out = find_token(reading->v, to, *out_n);
  return *out < 0 ? wrong_merge(reading, "a token that no line before makes")
                  : STATUS_OK;
}

static Status read_merge(Reading *reading, const char *line, const char *end) {
  Vocabulary *v = reading->v;
  const char *blank = memchr(line, ' ', (size_t)(end - line));
  int32_t left, right;
  int n, m;
  if (!blank || memchr(blank + 1, ' ', (size_t)(end - blank - 1)))
    return wrong_merge(reading,
                       "a merge is two tokens with a blank between them");
  unsigned char *bytes = arena_alloc(reading->arena, (size_t)(end - line));
  TRY(read_token(reading, line, blank, bytes, &n, &left));
  TRY(read_token(reading, blank + 1, end, bytes + n, &m, &right));
  if (find_token(v, bytes, n + m) >= 0)
    return wrong_merge(reading, "it makes a token that is there already");
  map_put_token(v->merges, pair_key(left, right),
                add_token(v, reading->arena, bytes, n + m));
  return STATUS_OK;
}

static int64_t count_lines(const char *text, int64_t n) {
  int64_t lines = 1;
  for (int64_t i = 0; i < n; i++) lines += text[i] == '\n';
  return lines;
}

Status vocabulary_read(Arena *arena, const char *path, const char *text,
                       int64_t n, Vocabulary **out) {
  int64_t lines = count_lines(text, n);
  if (lines > MOST_MERGES)
    return status_make(STATUS_invalid, "'%s' has more than %d lines", path,
                       MOST_MERGES);
  Vocabulary *v = ARENA_NEW(arena, Vocabulary);
  v->tokens = ARENA_ARRAY(arena, Token, N_BYTES + lines + 1);
  v->merges = map_create(arena);
  v->by_text = map_create(arena);
  Reading reading = {.v = v, .arena = arena, .path = path};
  for (int i = 0; i < ARRAY_LENGTH(reading.byte_of_code); i++)
    reading.byte_of_code[i] = -1;
  add_bytes(v, arena, reading.byte_of_code);
  const char *end = text + n;
  for (const char *line = text; line < end;) {
    const char *newline = memchr(line, '\n', (size_t)(end - line));
    const char *stop = newline ? newline : end;
    reading.line++;
    bool is_head = reading.line == 1 && *line == '#';
    if (stop > line && stop[-1] == '\r') stop--;
    if (stop > line && !is_head) TRY(read_merge(&reading, line, stop));
    line = newline ? newline + 1 : end;
  }
  add_token(v, arena, (const unsigned char *)end_of_text,
            (int)strlen(end_of_text));
  *out = v;
  return STATUS_OK;
}

/* ---- merging ---- */

typedef struct Symbol {
  int32_t token; /* -1: merged into the one before */
  int64_t next, previous;
} Symbol;

typedef struct Candidate { /* merges are numbered by their token */
  int32_t token, left, right;
  int64_t at;
} Candidate;

typedef struct Part {
  const Vocabulary *v;
  Symbol *symbols; /* [n] */
  Candidate *heap; /* least first; room for 3 n */
  int64_t n, n_heap;
} Part;

static bool comes_before(Candidate a, Candidate b) {
  return a.token != b.token ? a.token < b.token : a.at < b.at;
}

static void heap_push(Part *part, Candidate candidate) {
  int64_t at = part->n_heap++;
  for (; at > 0 && comes_before(candidate, part->heap[(at - 1) / 2]);
       at = (at - 1) / 2)
    part->heap[at] = part->heap[(at - 1) / 2];
  part->heap[at] = candidate;
}

static Candidate heap_pop(Part *part) {
  Candidate first = part->heap[0], last = part->heap[--part->n_heap];
  int64_t at = 0;
  for (int64_t child; (child = 2 * at + 1) < part->n_heap; at = child) {
    if (child + 1 < part->n_heap &&
        comes_before(part->heap[child + 1], part->heap[child]))
      child++;
    if (!comes_before(part->heap[child], last)) break;
    part->heap[at] = part->heap[child];
  }
  part->heap[at] = last;
  return first;
}

/* The symbol at `at` and the next one, if they can be merged. */
static void consider_merge(Part *part, int64_t at) {
  if (at < 0 || part->symbols[at].next >= part->n) return;
  int32_t left = part->symbols[at].token;
  int32_t right = part->symbols[part->symbols[at].next].token;
  int32_t token = map_find_token(part->v->merges, pair_key(left, right));
  if (token >= 0) heap_push(part, (Candidate){token, left, right, at});
}

static void merge_all(Part *part) {
  Symbol *symbols = part->symbols;
  for (int64_t i = 0; i < part->n; i++) consider_merge(part, i);
  while (part->n_heap > 0) {
    Candidate best = heap_pop(part);
    int64_t next = symbols[best.at].next;
    if (symbols[best.at].token != best.left || next >= part->n ||
        symbols[next].token != best.right)
      continue;
    symbols[best.at].token = best.token;
    symbols[best.at].next = symbols[next].next;
    symbols[next].token = -1;
    if (symbols[next].next < part->n)
      symbols[symbols[next].next].previous = best.at;
    consider_merge(part, best.at);
    consider_merge(part, symbols[best.at].previous);
  }
}

static int64_t encode_part(Part *part, const unsigned char *text, int64_t n,
                           int32_t *out) {
  part->n = n;
  part->n_heap = 0;
  for (int64_t i = 0; i < n; i++)
    part->symbols[i] = (Symbol){part->v->of_byte[text[i]], i + 1, i - 1};
  merge_all(part);
  int64_t n_out = 0;
  for (int64_t i = 0; i < n; i = part->symbols[i].next)
    out[n_out++] = part->symbols[i].token;
  return n_out;
}

/* ---- all ---- */

int64_t vocabulary_size(const Vocabulary *v) {
  return v->n_tokens;
}

int32_t vocabulary_first(const Vocabulary *v) {
  return v->merges ? v->n_tokens - 1 : v->of_byte['\n'];
}

int64_t vocabulary_encode(const Vocabulary *v, Arena *arena, const void *text,
                          int64_t n, int32_t **out) {
  const unsigned char *at = text;
  int64_t longest = 0, n_out = 0;
  *out = ARENA_ARRAY(arena, int32_t, n);
  for (int64_t i = 0; !v->merges && i < n; i++) (*out)[i] = v->of_byte[at[i]];
  if (!v->merges) return n;
  for (int64_t i = 0, length; i < n; i += length) {
    length = pretoken_length(at + i, n - i);
    if (length > longest) longest = length;
  }
  Part part = {.v = v,
               .symbols = ARENA_ARRAY(arena, Symbol, longest),
               .heap = ARENA_ARRAY(arena, Candidate, 3 * longest)};
  for (int64_t i = 0, length; i < n; i += length) {
    length = pretoken_length(at + i, n - i);
    n_out += encode_part(&part, at + i, length, *out + n_out);
  }
  return n_out;
}

const unsigned char *vocabulary_text(const Vocabulary *v, int32_t token,
                                     int *out_n) {
  *out_n = v->tokens[token].n;
  return v->tokens[token].bytes;
}
