/*
 * vocabulary.h -- converts text to tokens and back: single bytes, or GPT-2's
 * byte pairs.
 */
#ifndef RUNTIME_VOCABULARY_H
#define RUNTIME_VOCABULARY_H

#include "support/support.h"

typedef struct Vocabulary Vocabulary;

/* Returns the vocabulary whose tokens are the values of bytes. */
Vocabulary *vocabulary_bytes(Arena *arena);
/* Reads a file of merges as GPT-2's vocab.bpe: a line "#version...", then one
 * merge a line, two tokens written in the alphabet that gives every byte a
 * visible character.  Tokens are 256 bytes in the order of that alphabet, the
 * merges, and <|endoftext|>. */
Status vocabulary_read(Arena *arena, const char *path, const char *text,
                       int64_t n, Vocabulary **out);
int64_t vocabulary_size(const Vocabulary *vocabulary);
/* Returns the first token of a text that has no prompt. */
int32_t vocabulary_first(const Vocabulary *vocabulary);
/* Encodes any bytes as tokens; what is no UTF-8 becomes tokens of single bytes
 * or of what they merge to.  Returns their number. */
int64_t vocabulary_encode(const Vocabulary *vocabulary, Arena *arena,
                          const void *text, int64_t n, int32_t **out);
/* Returns the bytes of a token, which may be part of a character. */
const unsigned char *vocabulary_text(const Vocabulary *vocabulary,
                                     int32_t token, int *out_n);

/* ---- pretoken.c ---- */

/* Returns the length of the first part of a text (n > 0), by GPT-2's pattern
 * 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+.
 */
int64_t pretoken_length(const unsigned char *text, int64_t n);

#endif
