/*
 * pretoken.c -- splits text into the parts inside which byte pairs are merged,
 * by GPT-2's regular expression, written by hand.
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|
 *     ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * The first alternative that matches at a place counts.  The last but one
 * leaves a space before a word to that word.  A byte that begins no UTF-8 is a
 * character of its own that is neither letter, number nor space.
 */
#include "runtime/data/vocabulary.h"

#include <string.h>

typedef enum Class {
  CLASS_letter,
  CLASS_number,
  CLASS_space,
  CLASS_other
} Class;

typedef struct Range {
  uint32_t first, last;
} Range;

static const Range letters[] = {
#define LETTERS(first, last) {first, last},
#include "runtime/data/unicode.def"
};

static const Range numbers[] = {
#define NUMBERS(first, last) {first, last},
#include "runtime/data/unicode.def"
};

/* The property White_Space. */
static const Range spaces[] = {
    {0x9, 0xd},       {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},
    {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f},
    {0x205f, 0x205f}, {0x3000, 0x3000}};

static bool is_in(const Range *ranges, int n, uint32_t code) {
  int low = 0, high = n;
  while (low < high) {
    int middle = (low + high) / 2;
    if (code > ranges[middle].last)
      low = middle + 1;
    else
      high = middle;
  }
  return low < n && code >= ranges[low].first;
}

/* Bytes of the character at `text`; its code, or UINT32_MAX for a byte that
 * begins none (too long, surrogates, beyond the last plane included). */
static int decode_utf8(const unsigned char *text, int64_t n, uint32_t *out) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  int length = text[0] < 0x80             ? 1
               : (text[0] & 0xe0) == 0xc0 ? 2
               : (text[0] & 0xf0) == 0xe0 ? 3
               : (text[0] & 0xf8) == 0xf0 ? 4
                                          : 0;
  *out = UINT32_MAX;
  if (length == 0 || length > n) return 1;
  uint32_t code = length == 1 ? text[0] : text[0] & (0x7f >> length);
  for (int i = 1; i < length; i++) {
    if ((text[i] & 0xc0) != 0x80) return 1;
    code = code << 6 | (text[i] & 0x3f);
  }
  if (code < least[length] || code > 0x10ffff ||
      (code >= 0xd800 && code < 0xe000))
    return 1;
  *out = code;
  return length;
}

static Class class_at(const unsigned char *text, int64_t n, int *out_length) {
  uint32_t code;
  *out_length = decode_utf8(text, n, &code);
  if (is_in(letters, ARRAY_LENGTH(letters), code)) return CLASS_letter;
  if (is_in(numbers, ARRAY_LENGTH(numbers), code)) return CLASS_number;
  if (is_in(spaces, ARRAY_LENGTH(spaces), code)) return CLASS_space;
  return CLASS_other;
}

/* Where the run of characters of one class ends that begins at `at`. */
static int64_t end_of_run(const unsigned char *text, int64_t n, int64_t at,
                          Class wanted, int64_t *out_last) {
  int length;
  while (at < n && class_at(text + at, n - at, &length) == wanted) {
    *out_last = at;
    at += length;
  }
  return at;
}

static int64_t contraction_length(const unsigned char *text, int64_t n) {
  static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
  if (text[0] != '\'') return 0;
  for (int i = 0; i < ARRAY_LENGTH(endings); i++) {
    int64_t length = (int64_t)strlen(endings[i]);
    if (n > length && memcmp(text + 1, endings[i], (size_t)length) == 0)
      return 1 + length;
  }
  return 0;
}

int64_t pretoken_length(const unsigned char *text, int64_t n) {
  int64_t found = contraction_length(text, n), last = 0;
  int length;
  if (found) return found;
  int64_t begin = text[0] == ' ' && n > 1;
  Class class = class_at(text + begin, n - begin, &length);
  if (class != CLASS_space) return end_of_run(text, n, begin, class, &last);
  int64_t end = end_of_run(text, n, 0, CLASS_space, &last);
  return end < n && last > 0 ? last : end;
}
