/*
 * tensormap.c -- reads mapping files; tensormap_check.c checks each line,
 * tensormap_print.c prints them.
 *
 * A tensor's name is any text without blanks and `, : = # "`, so names are read
 * by their place in the line and not by a lexer; a name with such characters
 * stands in quotes.  Everything that can be known without a checkpoint is
 * checked here: the dims of both sides are the same, so that the map can be
 * used in both directions.
 */
#include "convert/tensormap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Reader {
  Module *module;
  const Source *source;
  const char *text;
  uint32_t at, n;
  bool failed; /* in this line */
  TensorMap *map;
  int64_t n_names; /* so far, groups written out */
  bool in_either;
  MapEither either; /* the one that is open */
} Reader;

enum { MAX_TERMS = 64, MAX_WILDCARDS = 4, MAX_NAMES = 16384 };

/* ---- characters ---- */

static Span span_from(const Reader *reader, uint32_t begin) {
  uint32_t end = reader->at > begin ? reader->at : begin + 1;
  return (Span){reader->source, begin, end};
}

static Diag *complain(Reader *reader, uint32_t begin, const char *expected) {
  Diag *added = NULL;
  if (!reader->failed)
    added = diag(reader->module->diags, DIAG_map_expected,
                 span_from(reader, begin), expected);
  reader->failed = true;
  return added;
}

/* Blanks and comments; over newlines only where the line continues. */
static void skip(Reader *reader, bool over_lines) {
  while (reader->at < reader->n) {
    char c = reader->text[reader->at];
    if (c == '#')
      while (reader->at < reader->n && reader->text[reader->at] != '\n')
        reader->at++;
    else if (c == ' ' || c == '\t' || c == '\r' || (over_lines && c == '\n'))
      reader->at++;
    else
      return;
  }
}

static bool accept(Reader *reader, char c) {
  skip(reader, false);
  if (reader->at >= reader->n || reader->text[reader->at] != c) return false;
  reader->at++;
  return true;
}

static void expect(Reader *reader, char c, const char *name) {
  if (!reader->failed && !accept(reader, c)) complain(reader, reader->at, name);
}

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         (c >= '0' && c <= '9');
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/* A name of a dim, letter or dtype; NULL after a message. */
static Name read_word(Reader *reader, const char *what) {
  skip(reader, false);
  uint32_t begin = reader->at;
  while (reader->at < reader->n && is_word(reader->text[reader->at]))
    reader->at++;
  if (reader->at == begin || is_digit(reader->text[begin])) {
    complain(reader, begin, what);
    return NULL;
  }
  return name_intern_n(reader->module->names, reader->text + begin,
                       reader->at - begin);
}

static int64_t read_number(Reader *reader) {
  skip(reader, false);
  uint32_t begin = reader->at;
  int64_t value = 0;
  bool fits = true;
  while (reader->at < reader->n && is_digit(reader->text[reader->at])) {
    fits = fits && value < INT64_C(100000000000000);
    if (fits) value = value * 10 + (reader->text[reader->at] - '0');
    reader->at++;
  }
  if (reader->at == begin || !fits) complain(reader, begin, "an integer");
  return value;
}

/* ---- tensors ---- */

static void check_pattern(Reader *reader, uint32_t begin, const char *pattern) {
  const char *expected = pattern_check(pattern);
  if (expected) complain(reader, begin, expected);
}

/* The end of a name without quotes; inside braces commas and blanks belong to
 * it. */
static uint32_t end_of_name(const Reader *reader) {
  bool in_braces = false;
  uint32_t at = reader->at;
  for (; at < reader->n; at++) {
    char c = reader->text[at];
    if (c == '{' || c == '}') in_braces = c == '{';
    if (strchr(in_braces ? "\r\n:=#\"" : " \t\r\n,:=#\"", c)) break;
  }
  return at;
}

static Name read_pattern(Reader *reader) {
  skip(reader, true);
  uint32_t begin = reader->at, end;
  const char *text = reader->text;
  if (begin < reader->n && text[begin] == '"') {
    for (end = ++reader->at;
         end < reader->n && text[end] != '"' && text[end] != '\n';)
      end++;
    begin = reader->at;
    bool is_closed = end < reader->n && text[end] == '"';
    reader->at = end + is_closed;
    if (!is_closed) complain(reader, begin - 1, "a '\"' that ends the name");
  } else {
    end = reader->at = end_of_name(reader);
  }
  if (end == begin) complain(reader, begin, "the name of a tensor");
  if (memchr(text + begin, '\0', end - begin))
    complain(reader, begin, "a name without NUL bytes");
  Name name = name_intern_n(reader->module->names, text + begin, end - begin);
  check_pattern(reader, begin, name);
  return name;
}

static void read_part(Reader *reader, MapPart *part) {
  static const char what[] = "a dim, '(' or 1";
  skip(reader, true);
  uint32_t begin = reader->at;
  if (reader->at < reader->n && is_digit(reader->text[reader->at])) {
    if (read_number(reader) != 1 && !reader->failed)
      diag_help(complain(reader, begin, what),
                "sizes have names: write 'dim N = ...' on a line before");
    return;
  }
  if (!accept(reader, '(')) {
    part->factors[part->n++] = read_word(reader, what);
    return;
  }
  do {
    skip(reader, true);
    if (part->n == MAP_MAX_FACTORS)
      complain(reader, reader->at, "at most 16 dims in parentheses");
    else
      part->factors[part->n++] = read_word(reader, "a dim");
    skip(reader, true);
  } while (!reader->failed && accept(reader, ','));
  expect(reader, ')', "',' or ')'");
}

static void read_entry(Reader *reader, MapEntry *entry) {
  VEC(MapPart) parts = {0};
  do {
    MapPart part = {0};
    read_part(reader, &part);
    vec_push(reader->module->arena, &parts, part);
    skip(reader, true);
    if (parts.n > MAX_TERMS) complain(reader, reader->at, "at most 64 parts");
  } while (!reader->failed && accept(reader, '+'));
  *entry = (MapEntry){parts.n, parts.data};
}

static void read_dtype(Reader *reader, MapTerm *term) {
  skip(reader, false);
  if (reader->at < reader->n && reader->text[reader->at] == '[') return;
  uint32_t begin = reader->at;
  Name name = read_word(reader, "a dtype or '['");
  if (!name) return;
  term->has_dtype = true;
  if (!dtype_find(name, &term->dtype))
    complain(reader, begin, "a dtype or '['");
}

static void read_dims(Reader *reader, MapTerm *term) {
  VEC(MapEntry) dims = {0};
  term->has_dims = true;
  read_dtype(reader, term);
  expect(reader, '[', "'['");
  skip(reader, true);
  if (!reader->failed && !accept(reader, ']')) {
    do {
      MapEntry entry = {0};
      read_entry(reader, &entry);
      if (dims.n == MAX_RANK) complain(reader, reader->at, "at most 12 dims");
      vec_push(reader->module->arena, &dims, entry);
      skip(reader, true);
    } while (!reader->failed && accept(reader, ','));
    expect(reader, ']', "',', '+' or ']'");
  }
  term->rank = dims.n;
  term->dims = dims.data;
}

static MapTerm read_term(Reader *reader) {
  MapTerm term = {0};
  skip(reader, true);
  uint32_t begin = reader->at;
  term.pattern = read_pattern(reader);
  term.span = span_from(reader, begin);
  if (!reader->failed && accept(reader, ':')) read_dims(reader, &term);
  return term;
}

static MapSide read_side(Reader *reader) {
  VEC(MapTerm) terms = {0};
  do {
    vec_push(reader->module->arena, &terms, read_term(reader));
    if (terms.n > MAX_TERMS) complain(reader, reader->at, "at most 64 tensors");
  } while (!reader->failed && accept(reader, ','));
  return (MapSide){terms.n, terms.data};
}

/* ---- values of letters ---- */

/* A word ends at a blank, a comma or the end of the line. */
static Name read_value(Reader *reader) {
  uint32_t begin = reader->at;
  while (reader->at < reader->n &&
         !strchr(" \t\r\n,#\"{}", reader->text[reader->at]))
    reader->at++;
  if (reader->at == begin) return NULL;
  return name_intern_n(reader->module->names, reader->text + begin,
                       reader->at - begin);
}

static bool is_number(const char *text, size_t n) {
  return n > 0 && n <= 9 && strspn(text, "0123456789") >= n &&
         (n == 1 || text[0] != '0');
}

/* "0..11" */
static bool read_interval(const char *word, MapRange *out) {
  size_t n = strspn(word, "0123456789");
  if (strncmp(word + n, "..", 2) != 0) return false;
  const char *last = word + n + 2;
  if (!is_number(word, n) || !is_number(last, strlen(last))) return false;
  out->first = strtoll(word, NULL, 10);
  out->last = strtoll(last, NULL, 10);
  out->is_interval = true;
  return true;
}

/* NUMBER ".." NUMBER or words; none stands twice. */
static void read_values(Reader *reader, MapRange *range) {
  VEC(Name) words = {0};
  Map *seen = map_create(reader->module->arena);
  skip(reader, false);
  uint32_t begin = reader->at;
  for (;; skip(reader, false)) {
    uint32_t at = reader->at;
    Name word = read_value(reader);
    if (!word) break;
    if (map_has(seen, word)) complain(reader, at, "each value once");
    map_put(seen, word, reader);
    vec_push(reader->module->arena, &words, word);
    if (words.n > MAP_MAX_VALUES)
      complain(reader, begin, "at most 4096 values");
    if (reader->failed) return;
  }
  if (words.n == 0) complain(reader, begin, "numbers, as in 0..11, or words");
  if (words.n == 1 && read_interval(words.data[0], range)) {
    if (range->last < range->first)
      complain(reader, begin, "a range from the smaller to the greater");
    else if (range->last - range->first >= MAP_MAX_VALUES)
      complain(reader, begin, "at most 4096 values");
    return;
  }
  range->n = words.n;
  range->words = words.data;
}

static MapRange read_letter_values(Reader *reader) {
  MapRange range = {0};
  skip(reader, false);
  uint32_t begin = reader->at;
  range.letter = read_word(reader, "a letter");
  range.span = span_from(reader, begin);
  return range;
}

/* ---- lines ---- */

static bool is_keyword(Reader *reader, const char *word) {
  size_t n = strlen(word);
  if (reader->n - reader->at <= n ||
      strncmp(reader->text + reader->at, word, n) != 0 ||
      !strchr(" \t", reader->text[reader->at + n]))
    return false;
  reader->at += (uint32_t)n;
  return true;
}

/* A word that is alone on its line. */
static bool is_line(Reader *reader, const char *word) {
  uint32_t begin = reader->at;
  size_t n = strlen(word);
  if (reader->n - begin < n || strncmp(reader->text + begin, word, n) != 0)
    return false;
  reader->at += (uint32_t)n;
  bool is_whole =
      reader->at == reader->n || strchr(" \t\r\n#", reader->text[reader->at]);
  skip(reader, false);
  if (is_whole && (reader->at == reader->n || reader->text[reader->at] == '\n'))
    return true;
  reader->at = begin;
  return false;
}

static void read_dim_line(Reader *reader) {
  do {
    skip(reader, true);
    uint32_t begin = reader->at;
    MapDim dim = {.name = read_word(reader, "the name of a dim")};
    dim.span = span_from(reader, begin);
    expect(reader, '=', "'='");
    if (!reader->failed) dim.size = read_number(reader);
    if (!reader->failed && dim.size == 0)
      complain(reader, reader->at - 1, "a size of at least 1");
    for (int i = 0; i < reader->map->dims.n && !reader->failed; i++)
      if (reader->map->dims.data[i].name == dim.name)
        complain(reader, begin, "a dim that has no size yet");
    if (!reader->failed)
      vec_push(reader->module->arena, &reader->map->dims, dim);
  } while (!reader->failed && accept(reader, ','));
}

static void read_range_line(Reader *reader) {
  MapRange range = read_letter_values(reader);
  expect(reader, '=', "'='");
  if (!reader->failed) read_values(reader, &range);
  for (int i = 0; i < reader->map->ranges.n && !reader->failed; i++)
    if (reader->map->ranges.data[i].letter == range.letter)
      complain(reader, range.span.begin, "a letter that has no values yet");
  if (!reader->failed)
    vec_push(reader->module->arena, &reader->map->ranges, range);
}

/* ---- groups ---- */

/* Groups make many names of few; `n_names`: those of the line at `begin`. */
static bool has_room(Reader *reader, uint32_t begin, int n_names,
                     const int *sizes, int n) {
  int64_t product = n_names;
  for (int i = 0; i < n; i++) product *= sizes[i];
  reader->n_names += product;
  if (reader->n_names <= MAX_NAMES) return true;
  complain(reader, begin, "at most 16384 names in a map, groups written out");
  reader->at = reader->n; /* the next ones would say it again */
  return false;
}

/* Steps through the members of groups, the last the fastest. */
static bool next_members(int *members, const int *sizes, int n) {
  for (int i = n - 1; i >= 0; i--) {
    if (++members[i] < sizes[i]) return true;
    members[i] = 0;
  }
  return false;
}

static void read_drop_line(Reader *reader) {
  Arena *arena = reader->module->arena;
  do {
    MapTerm term = {0};
    int sizes[MAP_MAX_LETTERS], members[MAP_MAX_LETTERS] = {0}, stars = 0;
    skip(reader, true);
    uint32_t begin = reader->at;
    Name pattern = read_pattern(reader);
    term.span = span_from(reader, begin);
    for (const char *at = pattern; *at; at++) stars += *at == '*';
    if (stars > MAX_WILDCARDS) complain(reader, begin, "at most four '*'");
    if (reader->failed) return;
    int n = pattern_groups(pattern, sizes, MAP_MAX_LETTERS);
    if (!has_room(reader, begin, 1, sizes, n)) return;
    do {
      const char *name = pattern_expand(arena, pattern, members);
      term.pattern = name_intern(reader->module->names, name);
      vec_push(arena, &reader->map->dropped, term);
    } while (next_members(members, sizes, n));
  } while (accept(reader, ','));
}

static MapSide expand_side(Reader *reader, const MapSide *side,
                           const int *members) {
  MapSide out = {side->n, ARENA_ARRAY(reader->module->arena, MapTerm, side->n)};
  for (int i = 0; i < side->n; i++) {
    out.terms[i] = side->terms[i];
    out.terms[i].pattern = name_intern(
        reader->module->names,
        pattern_expand(reader->module->arena, side->terms[i].pattern, members));
  }
  return out;
}

/* All names of a line have as many groups of as many members. */
static bool check_groups(Reader *reader, const MapRule *rule, int n,
                         const int *sizes) {
  const MapTerm *first = &rule->side[0].terms[0];
  for (int s = 0; s < 2; s++)
    for (int i = 0; i < rule->side[s].n; i++) {
      const MapTerm *term = &rule->side[s].terms[i];
      int others[MAP_MAX_LETTERS];
      bool fits = pattern_groups(term->pattern, others, MAP_MAX_LETTERS) == n;
      for (int g = 0; fits && g < n; g++) fits = others[g] == sizes[g];
      if (strchr(term->pattern, '*')) {
        diag_help(diag(reader->module->diags, DIAG_map_wildcard, term->span,
                       term->pattern),
                  "a letter such as {i} stands for the numbers that names "
                  "have, and for words with 'for i in a b c'");
        return false;
      }
      if (fits) continue;
      Diag *added = diag(reader->module->diags, DIAG_map_groups, term->span,
                         term->pattern);
      diag_note(added, first->span, "the groups of '%s' differ",
                first->pattern);
      diag_help(added, "'a.{x,y} = b.{u,v}' stands for 'a.x = b.u' and "
                       "'a.y = b.v'");
      return false;
    }
  return true;
}

static void add_rules(Reader *reader, const MapRule *read) {
  int sizes[MAP_MAX_LETTERS], members[MAP_MAX_LETTERS] = {0};
  int n =
      pattern_groups(read->side[0].terms[0].pattern, sizes, MAP_MAX_LETTERS);
  if (!check_groups(reader, read, n, sizes)) reader->failed = true;
  if (reader->failed || !has_room(reader, read->span.begin,
                                  read->side[0].n + read->side[1].n, sizes, n))
    return;
  do {
    MapRule rule = *read;
    for (int s = 0; n > 0 && s < 2; s++)
      rule.side[s] = expand_side(reader, &read->side[s], members);
    if (!maprule_check(reader->module, &rule)) {
      reader->failed = true;
      return;
    }
    vec_push(reader->module->arena, &reader->map->rules, rule);
  } while (next_members(members, sizes, n));
}

/* ---- lines of tensors ---- */

static void read_for(Reader *reader, MapRule *rule) {
  VEC(MapRange) ranges = {0};
  skip(reader, false);
  if (!is_keyword(reader, "for")) return;
  do {
    MapRange range = read_letter_values(reader);
    skip(reader, false);
    if (!reader->failed && !is_keyword(reader, "in"))
      complain(reader, reader->at, "'in' and the values of the letter");
    if (!reader->failed) read_values(reader, &range);
    for (int i = 0; i < ranges.n && !reader->failed; i++)
      if (ranges.data[i].letter == range.letter)
        complain(reader, range.span.begin, "a letter that has no values yet");
    vec_push(reader->module->arena, &ranges, range);
  } while (!reader->failed && accept(reader, ','));
  rule->n_ranges = ranges.n;
  rule->ranges = ranges.data;
}

static void read_rule_line(Reader *reader) {
  MapRule rule = {.either = -1};
  uint32_t begin = reader->at;
  if (reader->in_either) {
    rule.either = reader->map->eithers.n;
    rule.alternative = reader->either.n_alternatives - 1;
  }
  rule.side[0] = read_side(reader);
  if (!reader->failed) {
    skip(reader, true); /* a long rule continues with '=' on the next line */
    expect(reader, '=', "'=' and what the tensor is on the other side");
  }
  if (!reader->failed) rule.side[1] = read_side(reader);
  if (!reader->failed) read_for(reader, &rule);
  rule.span = span_from(reader, begin);
  if (!reader->failed) add_rules(reader, &rule);
}

/* ---- alternatives ---- */

static void open_either(Reader *reader, uint32_t begin) {
  if (reader->in_either)
    diag_note(complain(reader, begin, "'end' before another 'either'"),
              reader->either.span, "this one is open");
  if (reader->failed) return;
  reader->in_either = true;
  reader->either = (MapEither){.n_alternatives = 1,
                               .first_rule = reader->map->rules.n,
                               .span = span_from(reader, begin)};
}

static void close_either(Reader *reader, uint32_t begin) {
  MapEither *either = &reader->either;
  either->last_rule = reader->map->rules.n;
  if (either->first_rule == either->last_rule &&
      diags_errors(reader->module->diags) == 0)
    complain(reader, begin, "lines of tensors between 'either' and 'end'");
  vec_push(reader->module->arena, &reader->map->eithers, *either);
  reader->in_either = false;
}

/* "either", "or" and "end", each alone on its line. */
static bool read_alternatives(Reader *reader) {
  uint32_t begin = reader->at;
  bool is_either = is_line(reader, "either");
  bool is_or = !is_either && is_line(reader, "or");
  bool is_end = !is_either && !is_or && is_line(reader, "end");
  if (is_either)
    open_either(reader, begin);
  else if ((is_or || is_end) && !reader->in_either)
    complain(reader, begin, "'either' before it");
  else if (is_or)
    reader->either.n_alternatives++;
  else if (is_end)
    close_either(reader, begin);
  return is_either || is_or || is_end;
}

static void read_line(Reader *reader) {
  uint32_t begin = reader->at;
  bool is_setting = true;
  reader->failed = false;
  if (is_keyword(reader, "dim"))
    read_dim_line(reader);
  else if (is_keyword(reader, "range"))
    read_range_line(reader);
  else if (is_keyword(reader, "drop"))
    read_drop_line(reader);
  else {
    is_setting = false;
    if (!read_alternatives(reader)) read_rule_line(reader);
  }
  if (is_setting && reader->in_either)
    complain(reader, begin, "lines of tensors, 'or' or 'end' after 'either'");
  skip(reader, false);
  if (reader->at < reader->n && reader->text[reader->at] != '\n')
    complain(reader, reader->at, "the end of the line");
  if (reader->failed)
    while (reader->at < reader->n && reader->text[reader->at] != '\n')
      reader->at++;
}

/* ---- names that occur twice ---- */

/* A name stands once on a side.  Alternatives have keys of their own, so one
 * may repeat the names of another. */
static void check_unique(Reader *reader, Map *seen, const char *key,
                         const MapTerm *term) {
  Name name = name_intern(
      reader->module->names,
      arena_printf(reader->module->arena, "%s %s", key, term->pattern));
  const MapTerm *other = map_get(seen, name);
  if (other && !reader->failed) {
    reader->failed = true;
    diag_note(diag(reader->module->diags, DIAG_map_name_twice, term->span,
                   term->pattern),
              other->span, "it is named here first");
  }
  if (!other) map_put(seen, name, (void *)term);
}

/* Lines with a `for` have other values each time; what they make twice shows
 * with the checkpoint. */
static void check_rule_names(Reader *reader, Map *seen, int side,
                             const MapRule *rule) {
  char key[64];
  snprintf(key, sizeof key, "%d:%d", rule->either, rule->alternative);
  for (int i = 0; rule->n_ranges == 0 && i < rule->side[side].n; i++) {
    reader->failed = false;
    check_unique(reader, seen, key, &rule->side[side].terms[i]);
  }
}

/* A line stands for a bounded number of tensors. */
static void check_ranges(Reader *reader, const MapRule *rule) {
  const TensorMap *map = reader->map;
  Name letters[MAP_MAX_LETTERS];
  int64_t product = 1;
  int n = pattern_letters(reader->module->names, rule->side[0].terms[0].pattern,
                          letters, MAP_MAX_LETTERS);
  for (int i = 0; i < n; i++) {
    const MapRange *range = maprange_find(map, rule, letters[i]);
    if (range) product *= maprange_size(range);
    if (product <= MAP_MAX_VALUES) continue;
    reader->failed = false;
    complain(reader, rule->span.begin,
             "a line whose letters have at most 4096 values together");
    return;
  }
}

static void check_all(Reader *reader) {
  TensorMap *map = reader->map;
  for (int r = 0; r < map->rules.n; r++)
    check_ranges(reader, &map->rules.data[r]);
  for (int side = 0; side < 2; side++) {
    Map *seen = map_create(reader->module->arena);
    for (int r = 0; r < map->rules.n; r++)
      check_rule_names(reader, seen, side, &map->rules.data[r]);
    for (int i = 0; side == 0 && i < map->dropped.n; i++) {
      reader->failed = false;
      check_unique(reader, seen, "-1:0", &map->dropped.data[i]);
    }
  }
}

TensorMap *tensormap_parse(Module *module, const Source *source) {
  TensorMap *map = ARENA_NEW(module->arena, TensorMap);
  Reader reader = {.module = module,
                   .source = source,
                   .text = source->text,
                   .n = (uint32_t)source->n,
                   .map = map};
  int before = diags_errors(module->diags);
  for (skip(&reader, true); reader.at < reader.n; skip(&reader, true))
    read_line(&reader);
  reader.failed = false;
  if (reader.in_either)
    diag_note(complain(&reader, reader.at, "'end'"), reader.either.span,
              "'either' is open");
  check_all(&reader);
  return diags_errors(module->diags) > before ? NULL : map;
}
