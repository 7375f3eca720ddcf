/*
 * tensormap.h -- declares the mapping file of `dnnc convert`: equations between
 * the tensors of two checkpoints, usable in both directions (docs/convert.md).
 *
 *     dim D = 64
 *     drop *.num_batches_tracked
 *     h.{i}.ln_1.{weight,bias} = block[{i}].norm[0].{g,b}
 *     h.{i}.attn.c_attn.weight: [C, (H, D) + (H, D) + (H, D)]
 *       = block[{i}].attn.wq: [C, H, D], block[{i}].attn.wk: [C, H, D],
 *         block[{i}].attn.wv: [C, H, D]
 *     Mixed_5{m}.conv.weight = mixed[{m+0}].w for m in b c d
 *
 *     map    = { line END } .
 *     line   = "dim" dim { "," dim } | "range" name "=" values
 *            | "drop" path { "," path } | "either" | "or" | "end"
 *            | terms "=" terms [ "for" name "in" values
 *                                { "," name "in" values } ] .
 *     values = NUMBER ".." NUMBER | word { word } .
 *     dim    = name "=" NUMBER .          terms = term { "," term } .
 *     term   = path [ ":" [ dtype ] "[" [ entry { "," entry } ] "]" ] .
 *     entry  = part { "+" part } .
 *     part   = name | "(" name { "," name } ")" | "1" .
 *
 * A path may hold letters, "{i}" or "{i+1}", and groups, "{weight,bias}" or
 * "{0..3}"; a group makes a line for each of its members, taken from all paths
 * of the line at once.  Groups are gone after reading.
 *
 * Storage order is row-major, the first dim of parentheses the slowest; `+`
 * puts parts end to end, one for each tensor of the other side.
 */
#ifndef FRONTEND_TENSORMAP_H
#define FRONTEND_TENSORMAP_H

#include "ir/ir.h"

enum { MAP_MAX_FACTORS = 16, MAP_MAX_LETTERS = 4, MAP_MAX_VALUES = 4096 };

/* The dims that are merged into one, the slowest first; none means a dim of
 * size 1. */
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

/* The values of a letter, in order: an interval, or a list, for which "{m}" is
 * the word and "{m+0}" its place. */
typedef struct MapRange {
  Name letter;
  bool is_interval;
  int64_t first, last; /* ends of an interval, both included */
  int n;
  Name *words; /* words of a list */
  Span span;
} MapRange;

/* If one side has several terms, the other has one term of which one dim has as
 * many parts; that dim is split_dim.  Otherwise split_dim is -1. */
typedef struct MapRule {
  MapSide side[2];
  int joined; /* the side that is one term; 0 where both are */
  int split_dim;
  int n_ranges; /* ranges of its `for` */
  MapRange *ranges;
  int either, alternative; /* -1 means outside of an `either` */
  Span span;
} MapRule;

/* Lines of which one alternative is used; some may be empty. */
typedef struct MapEither {
  int n_alternatives;
  int first_rule, last_rule; /* [first, last) */
  Span span;
} MapEither;

typedef struct MapDim {
  Name name;
  int64_t size;
  Span span;
} MapDim;

typedef struct TensorMap {
  VEC(MapDim) dims;
  VEC(MapRange) ranges;
  VEC(MapTerm) dropped; /* patterns of the left side, with wildcards */
  VEC(MapRule) rules;
  VEC(MapEither) eithers;
} TensorMap;

/* Parses a map; mistakes become diags.  Returns NULL if there was one. */
TensorMap *tensormap_parse(Module *module, const Source *source);
void tensormap_print(Text *out, const TensorMap *map);
bool tensormap_has_dim(const MapTerm *term, Name dim);
/* Appends the dims as "[C, (H, D)]". */
void tensormap_print_dims(Text *out, const MapTerm *term);

/* ---- tensormap_check.c ---- */

/* Checks that the dims of both sides agree, and fills in joined and split_dim.
 */
bool maprule_check(Module *module, MapRule *rule);

/* ---- tensormap_names.c ---- */

/* Returns NULL if the pattern is right, else what was expected: braces hold a
 * letter, "i+1", or a group. */
const char *pattern_check(const char *pattern);
/* Counts the members of the groups of a name, and returns the number of groups.
 */
int pattern_groups(const char *pattern, int *out_sizes, int most);
/* Returns the name with one member for each group. */
const char *pattern_expand(Arena *arena, const char *pattern,
                           const int *members);
/* Lists the letters of a pattern in order, at most `most`.  Returns their
 * number. */
int pattern_letters(Names *names, const char *pattern, Name *out, int most);
/* Matches a complete name; out_values has one number for each letter in order,
 * what was added to it taken off. A letter stands for a number without leading
 * zeros. */
bool pattern_match(const char *pattern, const char *name, int64_t *out_values);
/* Returns whether a `drop` line, in which `*` is any text, has this name. */
bool pattern_drops(const char *pattern, const char *name);

typedef struct MapBinding {
  Name letter;
  int64_t value; /* the value; for a list its place */
  Name word;     /* the word of a list, or NULL */
} MapBinding;
/* Returns the name with values for the letters; one that is not bound stays. */
const char *pattern_fill(Arena *arena, const char *pattern,
                         const MapBinding *bindings, int n);

/* Returns the values of a letter in a rule.  Returns NULL if they are those
 * that names have. */
const MapRange *maprange_find(const TensorMap *map, const MapRule *rule,
                              Name letter);
int64_t maprange_size(const MapRange *range);
MapBinding maprange_value(const MapRange *range, int64_t index);

#endif
