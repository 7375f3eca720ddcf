/*
 * tensormap.c -- mapping files: read, checked, printed.
 *
 * A tensor's name is any text without blanks and `, : = # "`, so names are read
 * by their place in the line and not by a lexer; a name with such characters
 * stands in quotes.  Everything that can be known without a checkpoint is
 * checked here: the dims of both sides are the same, so that the map can be
 * used in both directions.
 */
#include "frontend/tensormap.h"

#include <string.h>

typedef struct Reader {
  Module *module;
  const Source *source;
  const char *text;
  uint32_t at, n;
  bool failed; /* in this line */
  TensorMap *map;
} Reader;

enum { MAX_LETTERS = 4, MAX_TERMS = 64 };

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

/* Blanks and comments; over newlines only where the line goes on. */
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
  if (reader->at == begin || !fits) complain(reader, begin, "a whole number");
  return value;
}

/* ---- tensors ---- */

/* Braces hold one name each. */
static void check_braces(Reader *reader, uint32_t begin, const char *pattern) {
  int n = 0;
  for (const char *at = pattern; *at; at++) {
    if (*at != '{' && *at != '}') continue;
    size_t length = 0;
    if (*at == '{')
      while (is_word(at[1 + length])) length++;
    if (length == 0 || at[1 + length] != '}' || is_digit(at[1])) {
      complain(reader, begin, "braces that hold a name, as in 'h.{i}.weight'");
      return;
    }
    if (++n > MAX_LETTERS) {
      complain(reader, begin, "at most four letters in braces");
      return;
    }
    at += length + 1;
  }
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
    while (reader->at < reader->n && !strchr(" \t\r\n,:=#\"", text[reader->at]))
      reader->at++;
    end = reader->at;
  }
  if (end == begin) complain(reader, begin, "the name of a tensor");
  Name name = name_intern_n(reader->module->names, text + begin, end - begin);
  check_braces(reader, begin, name);
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

/* ---- checks of a rule ---- */

static bool has_factor(const MapPart *part, Name factor) {
  for (int i = 0; i < part->n; i++)
    if (part->factors[i] == factor) return true;
  return false;
}

/* Whether the tensor has the factor, looking at part `piece` of split_dim. */
static bool term_has(const MapTerm *term, int split_dim, int piece,
                     Name factor) {
  for (int d = 0; d < term->rank; d++)
    if (has_factor(&term->dims[d].parts[d == split_dim ? piece : 0], factor))
      return true;
  return false;
}

static Diag *report(Reader *reader, const MapTerm *term, DiagId id,
                    const char *what) {
  reader->failed = true;
  return diag(reader->module->diags, id, term->span, term->pattern, what);
}

/* Every dim of `a` is in `b`. */
static void check_within(Reader *reader, const MapTerm *a, int split_a,
                         const MapTerm *b, int split_b, int piece) {
  for (int d = 0; d < a->rank; d++) {
    const MapPart *part = &a->dims[d].parts[d == split_a ? piece : 0];
    for (int i = 0; i < part->n && !reader->failed; i++)
      if (!term_has(b, split_b, piece, part->factors[i]))
        diag_note(report(reader, a, DIAG_map_dim_alone, part->factors[i]),
                  b->span, "'%s' does not have it", b->pattern);
  }
}

static void check_twice(Reader *reader, const MapTerm *term, int split_dim,
                        int piece) {
  for (int d = 0; d < term->rank; d++) {
    const MapPart *part = &term->dims[d].parts[d == split_dim ? piece : 0];
    for (int i = 0; i < part->n && !reader->failed; i++) {
      int n = 0;
      for (int e = 0; e < term->rank; e++) {
        const MapPart *other = &term->dims[e].parts[e == split_dim ? piece : 0];
        for (int k = 0; k < other->n; k++)
          n += other->factors[k] == part->factors[i];
      }
      if (n > 1) report(reader, term, DIAG_map_dim_twice, part->factors[i]);
    }
  }
}

/* The dim with several parts, or -1; two of them are a mistake. */
static int find_split(Reader *reader, const MapTerm *term) {
  int found = -1;
  for (int d = 0; d < term->rank; d++) {
    if (term->dims[d].n_parts == 1) continue;
    if (found >= 0 && !reader->failed)
      report(reader, term, DIAG_map_two_sums, "");
    found = d;
  }
  return found;
}

static void check_letters(Reader *reader, const MapTerm *a, const MapTerm *b) {
  Name x[MAX_LETTERS], y[MAX_LETTERS];
  Names *names = reader->module->names;
  int n = pattern_letters(names, a->pattern, x, MAX_LETTERS);
  int m = pattern_letters(names, b->pattern, y, MAX_LETTERS);
  for (int i = 0; i < n && !reader->failed; i++) {
    bool found = false;
    for (int k = 0; k < m; k++) found = found || x[i] == y[k];
    if (!found)
      diag_note(report(reader, a, DIAG_map_letter_alone, x[i]), b->span,
                "'%s' does not have it", b->pattern);
  }
}

static void check_dims(Reader *reader, const MapRule *rule) {
  const MapSide *many = &rule->side[!rule->joined];
  const MapTerm *one = &rule->side[rule->joined].terms[0];
  int n_parts = rule->split_dim < 0 ? 1 : one->dims[rule->split_dim].n_parts;
  if (n_parts != many->n) {
    diag_note(report(reader, one, DIAG_map_parts, ""), many->terms[0].span,
              "the other side has %d", many->n);
    return;
  }
  for (int i = 0; i < many->n && !reader->failed; i++) {
    const MapTerm *term = &many->terms[i];
    if (find_split(reader, term) >= 0 && !reader->failed)
      report(reader, term, DIAG_map_two_sums, "");
    if (reader->failed) return;
    check_twice(reader, term, -1, i);
    check_twice(reader, one, rule->split_dim, i);
    check_within(reader, term, -1, one, rule->split_dim, i);
    check_within(reader, one, rule->split_dim, term, -1, i);
  }
}

static void check_rule(Reader *reader, MapRule *rule) {
  const MapSide *side = rule->side;
  rule->split_dim = -1;
  if (side[0].n > 1 && side[1].n > 1) {
    report(reader, &side[1].terms[0], DIAG_map_two_lists, "");
    return;
  }
  bool sum_on_right = side[1].n == 1 && side[0].n == 1 &&
                      find_split(reader, &side[1].terms[0]) >= 0;
  rule->joined = side[0].n > 1 || sum_on_right;
  const MapTerm *one = &side[rule->joined].terms[0];
  const MapSide *many = &side[!rule->joined];
  rule->split_dim = find_split(reader, one);
  for (int i = 0; i < many->n && !reader->failed; i++) {
    check_letters(reader, &many->terms[i], one);
    check_letters(reader, one, &many->terms[i]);
    if (!reader->failed && many->terms[i].has_dims != one->has_dims)
      report(reader, many->terms[i].has_dims ? one : &many->terms[i],
             DIAG_map_no_dims, "");
  }
  if (reader->failed) return;
  if (one->has_dims)
    check_dims(reader, rule);
  else if (many->n > 1)
    report(reader, one, DIAG_map_no_dims, "");
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
  skip(reader, false);
  uint32_t begin = reader->at;
  MapRange range = {.letter = read_word(reader, "a letter")};
  range.span = span_from(reader, begin);
  expect(reader, '=', "'='");
  if (!reader->failed) range.first = read_number(reader);
  expect(reader, '.', "'..'");
  expect(reader, '.', "'..'");
  if (!reader->failed) range.last = read_number(reader);
  if (!reader->failed && range.last < range.first)
    complain(reader, begin, "a range from the smaller to the greater");
  if (!reader->failed)
    vec_push(reader->module->arena, &reader->map->ranges, range);
}

static void read_drop_line(Reader *reader) {
  do {
    MapTerm term = {0};
    skip(reader, true);
    uint32_t begin = reader->at;
    term.pattern = read_pattern(reader);
    term.span = span_from(reader, begin);
    if (!reader->failed)
      vec_push(reader->module->arena, &reader->map->dropped, term);
  } while (!reader->failed && accept(reader, ','));
}

static void read_rule_line(Reader *reader) {
  MapRule rule = {0};
  uint32_t begin = reader->at;
  rule.side[0] = read_side(reader);
  if (!reader->failed) {
    skip(reader, true); /* a long rule goes on with '=' on the next line */
    expect(reader, '=', "'=' and what the tensor is on the other side");
  }
  if (!reader->failed) rule.side[1] = read_side(reader);
  rule.span = span_from(reader, begin);
  if (!reader->failed) check_rule(reader, &rule);
  if (!reader->failed)
    vec_push(reader->module->arena, &reader->map->rules, rule);
}

static void read_line(Reader *reader) {
  reader->failed = false;
  if (is_keyword(reader, "dim"))
    read_dim_line(reader);
  else if (is_keyword(reader, "range"))
    read_range_line(reader);
  else if (is_keyword(reader, "drop"))
    read_drop_line(reader);
  else
    read_rule_line(reader);
  skip(reader, false);
  if (reader->at < reader->n && reader->text[reader->at] != '\n')
    complain(reader, reader->at, "the end of the line");
  if (reader->failed)
    while (reader->at < reader->n && reader->text[reader->at] != '\n')
      reader->at++;
}

/* ---- names that occur twice ---- */

static void check_unique(Reader *reader, Map *seen, const MapTerm *term) {
  const MapTerm *other = map_get(seen, term->pattern);
  if (other)
    diag_note(report(reader, term, DIAG_map_name_twice, ""), other->span,
              "here before");
  map_put(seen, term->pattern, (void *)term);
}

static void check_all(Reader *reader) {
  TensorMap *map = reader->map;
  for (int side = 0; side < 2; side++) {
    Map *seen = map_create(reader->module->arena);
    for (int r = 0; r < map->rules.n; r++)
      for (int i = 0; i < map->rules.data[r].side[side].n; i++)
        check_unique(reader, seen, &map->rules.data[r].side[side].terms[i]);
    for (int i = 0; side == 0 && i < map->dropped.n; i++)
      check_unique(reader, seen, &map->dropped.data[i]);
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
  check_all(&reader);
  return diags_errors(module->diags) > before ? NULL : map;
}

bool tensormap_has_dim(const MapTerm *term, Name dim) {
  for (int d = 0; d < term->rank; d++)
    for (int i = 0; i < term->dims[d].n_parts; i++)
      if (has_factor(&term->dims[d].parts[i], dim)) return true;
  return false;
}

/* ---- printing ---- */

static void print_pattern(Text *out, const char *pattern) {
  bool is_plain = *pattern && !strpbrk(pattern, " \t\r,:=#");
  if (!strcmp(pattern, "dim") || !strcmp(pattern, "range") ||
      !strcmp(pattern, "drop"))
    is_plain = false;
  text_printf(out, is_plain ? "%s" : "\"%s\"", pattern);
}

static void print_part(Text *out, const MapPart *part) {
  if (part->n == 0) text_add(out, "1");
  if (part->n > 1) text_add(out, "(");
  for (int i = 0; i < part->n; i++)
    text_printf(out, "%s%s", i ? ", " : "", part->factors[i]);
  if (part->n > 1) text_add(out, ")");
}

void tensormap_print_dims(Text *out, const MapTerm *term) {
  text_add(out, "[");
  for (int d = 0; d < term->rank; d++) {
    if (d) text_add(out, ", ");
    for (int i = 0; i < term->dims[d].n_parts; i++) {
      if (i) text_add(out, " + ");
      print_part(out, &term->dims[d].parts[i]);
    }
  }
  text_add(out, "]");
}

static void print_side(Text *out, const MapSide *side) {
  for (int i = 0; i < side->n; i++) {
    const MapTerm *term = &side->terms[i];
    if (i) text_add(out, ", ");
    print_pattern(out, term->pattern);
    if (!term->has_dims) continue;
    text_add(out, ": ");
    if (term->has_dtype) text_add(out, dtype_name(term->dtype));
    tensormap_print_dims(out, term);
  }
}

void tensormap_print(Text *out, const TensorMap *map) {
  for (int i = 0; i < map->dims.n; i++)
    text_printf(out, "dim %s = %lld\n", map->dims.data[i].name,
                (long long)map->dims.data[i].size);
  for (int i = 0; i < map->ranges.n; i++)
    text_printf(out, "range %s = %lld..%lld\n", map->ranges.data[i].letter,
                (long long)map->ranges.data[i].first,
                (long long)map->ranges.data[i].last);
  for (int i = 0; i < map->dropped.n; i++) {
    text_add(out, "drop ");
    print_pattern(out, map->dropped.data[i].pattern);
    text_add(out, "\n");
  }
  for (int i = 0; i < map->rules.n; i++) {
    print_side(out, &map->rules.data[i].side[0]);
    text_add(out, " = ");
    print_side(out, &map->rules.data[i].side[1]);
    text_add(out, "\n");
  }
}

/* ---- patterns ---- */

int pattern_letters(Names *names, const char *pattern, Name *out, int most) {
  int n = 0;
  for (const char *at = strchr(pattern, '{'); at && n < most;
       at = strchr(at, '{')) {
    size_t length = strcspn(++at, "}");
    out[n++] = name_intern_n(names, at, length);
    at += length;
  }
  return n;
}

/* After a letter comes text that is no digit, or the end: so the longest
 * number is the only one that can match. */
bool pattern_match(const char *pattern, const char *name, int64_t *out_values) {
  int n = 0;
  while (*pattern) {
    if (*pattern != '{') {
      if (*pattern++ != *name++) return false;
      continue;
    }
    size_t digits = strspn(name, "0123456789");
    if (digits == 0 || digits > 9 || (digits > 1 && name[0] == '0'))
      return false;
    int64_t value = 0;
    for (size_t i = 0; i < digits; i++) value = value * 10 + (name[i] - '0');
    out_values[n++] = value;
    name += digits;
    pattern += strcspn(pattern, "}") + 1;
  }
  return *name == '\0';
}

const char *pattern_fill(Arena *arena, const char *pattern,
                         const int64_t *values) {
  Text out = text_create(arena);
  for (int n = 0; *pattern;) {
    size_t plain = strcspn(pattern, "{");
    text_add_n(&out, pattern, plain);
    pattern += plain;
    if (!*pattern) break;
    text_printf(&out, "%lld", (long long)values[n++]);
    pattern += strcspn(pattern, "}") + 1;
  }
  return text_string(&out);
}
