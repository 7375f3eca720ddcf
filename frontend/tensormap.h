/*
 * tensormap.h -- the mapping file of `dnnc convert`: equations between the
 * tensors of two checkpoints, usable in both directions (docs/convert.md).
 *
 *     dim D = 64
 *     drop h.{i}.attn.bias
 *     h.{i}.ln_1.weight = block[{i}].norm[0].g
 *     h.{i}.attn.c_attn.weight: [C, (H, D) + (H, D) + (H, D)]
 *       = block[{i}].attn.wq: [C, H, D], block[{i}].attn.wk: [C, H, D],
 *         block[{i}].attn.wv: [C, H, D]
 *
 *     map   = { line END } .
 *     line  = "dim" dim { "," dim } | "range" name "=" NUMBER ".." NUMBER
 *           | "drop" path { "," path } | terms "=" terms .
 *     dim   = name "=" NUMBER .          terms = term { "," term } .
 *     term  = path [ ":" [ dtype ] "[" [ entry { "," entry } ] "]" ] .
 *     entry = part { "+" part } .
 *     part  = name | "(" name { "," name } ")" | "1" .
 *
 * Storage order is row-major, the first dim of parentheses the slowest; `+`
 * puts parts end to end, one for each tensor of the other side.
 */
#ifndef FRONTEND_TENSORMAP_H
#define FRONTEND_TENSORMAP_H

#include "ir/ir.h"

enum { MAP_MAX_FACTORS = 16 };

/* Dims merged into one, the slowest first; none: a dim of size 1. */
typedef struct MapPart {
  int n;
  Name factors[MAP_MAX_FACTORS];
} MapPart;

/* One stored dim. */
typedef struct MapEntry {
  int n_parts;
  MapPart *parts;
} MapEntry;

/* A tensor, or one for each value of the letters in its pattern. */
typedef struct MapTerm {
  Name pattern; /* "h.{i}.ln_1.weight" */
  bool has_dims, has_dtype;
  DType dtype;
  int rank;
  MapEntry *dims;
  Span span;
} MapTerm;

typedef struct MapSide {
  int n;
  MapTerm *terms;
} MapSide;

/* If one side has several terms, the other has one term of which one dim has as
 * many parts; that dim is split_dim.  Otherwise split_dim is -1. */
typedef struct MapRule {
  MapSide side[2];
  int joined; /* which side is the one term; 0 where both are */
  int split_dim;
  Span span;
} MapRule;

typedef struct MapDim {
  Name name;
  int64_t size;
  Span span;
} MapDim;

typedef struct MapRange { /* of a letter; both ends included */
  Name letter;
  int64_t first, last;
  Span span;
} MapRange;

typedef struct TensorMap {
  VEC(MapDim) dims;
  VEC(MapRange) ranges;
  VEC(MapTerm) dropped; /* patterns of the left side */
  VEC(MapRule) rules;
} TensorMap;

/* Mistakes become diags; NULL if there was one. */
TensorMap *tensormap_parse(Module *module, const Source *source);
void tensormap_print(Text *out, const TensorMap *map);
bool tensormap_has_dim(const MapTerm *term, Name dim);
void tensormap_print_dims(Text *out, const MapTerm *term); /* "[C, (H, D)]" */

/* The letters of a pattern in order, at most `most`; returns their number. */
int pattern_letters(Names *names, const char *pattern, Name *out, int most);
/* Matches a whole name; out_values has one number for each letter in order. A
 * letter stands for a number without leading zeros. */
bool pattern_match(const char *pattern, const char *name, int64_t *out_values);
/* The name with numbers for the letters, in order. */
const char *pattern_fill(Arena *arena, const char *pattern,
                         const int64_t *values);

#endif
