/*
 * tensormap_names.c -- reads the names of a map: letters, groups, wildcards.
 *
 *     layer{s+1}.{i}.bn{1,2}.{weight,bias}
 *
 * has the letters s and i and two groups.  A group is expanded before anything
 * else is done; its members may be a range of numbers, {0..3}.
 */
#include "convert/tensormap.h"

#include <string.h>

enum { NUMBER_DIGITS = 9, MAX_MEMBERS = 256 };

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         (c >= '0' && c <= '9');
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/* A number of few digits at the beginning of a text; -1: none. */
static int64_t leading_number(const char *text, size_t *out_n) {
  size_t n = strspn(text, "0123456789");
  int64_t value = 0;
  *out_n = n;
  if (n == 0 || n > NUMBER_DIGITS) return -1;
  for (size_t i = 0; i < n; i++) value = value * 10 + (text[i] - '0');
  return value;
}

/* ---- letters ---- */

typedef struct Letter { /* from its brace to the one that ends it */
  const char *name;
  size_t n_name, n; /* n: with both braces */
  int64_t added;
} Letter;

/* Returns whether `at`, an opening brace, begins a letter. */
static bool read_letter(const char *at, Letter *out) {
  const char *end = at + 1;
  while (is_word(*end)) end++;
  *out = (Letter){.name = at + 1, .n_name = (size_t)(end - at - 1)};
  if (out->n_name == 0 || is_digit(at[1])) return false;
  if (*end == '+') {
    size_t n;
    out->added = leading_number(++end, &n);
    if (out->added < 0) return false;
    end += n;
  }
  out->n = (size_t)(end - at + 1);
  return *end == '}';
}

int pattern_letters(Names *names, const char *pattern, Name *out, int most) {
  int n = 0;
  Letter letter;
  for (const char *at = strchr(pattern, '{'); at && n < most;
       at = strchr(at + 1, '{'))
    if (read_letter(at, &letter))
      out[n++] = name_intern_n(names, letter.name, letter.n_name);
  return n;
}

/* After a letter comes text that is no digit, or the end: so the longest
 * number is the only one that can match. */
bool pattern_match(const char *pattern, const char *name, int64_t *out_values) {
  int n = 0;
  while (*pattern) {
    Letter letter;
    if (*pattern != '{' || !read_letter(pattern, &letter)) {
      if (*pattern++ != *name++) return false;
      continue;
    }
    size_t digits;
    int64_t value = leading_number(name, &digits);
    if (value < letter.added || (digits > 1 && name[0] == '0')) return false;
    out_values[n++] = value - letter.added;
    name += digits;
    pattern += letter.n;
  }
  return *name == '\0';
}

static const MapBinding *find_binding(const MapBinding *bindings, int n,
                                      const Letter *letter) {
  for (int i = 0; i < n; i++)
    if (strncmp(bindings[i].letter, letter->name, letter->n_name) == 0 &&
        bindings[i].letter[letter->n_name] == '\0')
      return &bindings[i];
  return NULL;
}

const char *pattern_fill(Arena *arena, const char *pattern,
                         const MapBinding *bindings, int n) {
  Text out = text_create(arena);
  while (*pattern) {
    Letter letter;
    const MapBinding *binding = NULL;
    if (*pattern == '{' && read_letter(pattern, &letter))
      binding = find_binding(bindings, n, &letter);
    if (!binding) {
      text_add_n(&out, pattern++, 1);
      continue;
    }
    /* "{m+0}" is the place of a word. */
    bool is_plain = letter.n == letter.n_name + 2;
    if (binding->word && is_plain)
      text_add(&out, binding->word);
    else
      text_printf(&out, "%lld", (long long)(binding->value + letter.added));
    pattern += letter.n;
  }
  return text_string(&out);
}

/* ---- groups ---- */

/* `at` is an opening brace; the length with both braces, 0 without an end. */
static size_t braces_length(const char *at) {
  size_t n = strcspn(at + 1, "{}");
  return at[1 + n] == '}' ? n + 2 : 0;
}

/* "{0..3}": how many, 0 if it is no such thing. */
static int interval_size(const char *at, int64_t *out_first) {
  size_t n, m;
  int64_t first = leading_number(at + 1, &n);
  if (first < 0 || strncmp(at + 1 + n, "..", 2) != 0) return 0;
  int64_t last = leading_number(at + 3 + n, &m);
  *out_first = first;
  if (last < first || at[3 + n + m] != '}' || last - first >= MAX_MEMBERS)
    return 0;
  return (int)(last - first + 1);
}

/* Member `index` of a list; blanks around it do not count. */
static const char *list_member(const char *at, int index, size_t *out_n) {
  at++;
  for (int i = 0; i < index; i++) at += strcspn(at, ",") + 1;
  at += strspn(at, " \t");
  size_t n = strcspn(at, ",}");
  while (n > 0 && strchr(" \t", at[n - 1])) n--;
  *out_n = n;
  return at;
}

/* How many members the group at an opening brace has; 0: it is none. */
static int group_size(const char *at) {
  int64_t first;
  size_t length = braces_length(at), n;
  int members = interval_size(at, &first);
  if (members || length == 0 || !memchr(at, ',', length)) return members;
  for (size_t i = 0; i < length; i++) members += at[i] == ',';
  for (int i = 0; i <= members; i++) {
    const char *member = list_member(at, i, &n);
    if (n == 0 || memchr(member, ' ', n) || memchr(member, '\t', n)) return 0;
  }
  return members < MAX_MEMBERS ? members + 1 : 0;
}

const char *pattern_check(const char *pattern) {
  int n_letters = 0, n_groups = 0;
  Letter letter;
  for (const char *at = pattern; *at; at++) {
    if (*at != '{' && *at != '}') continue;
    bool is_group = *at == '{' && group_size(at) > 0;
    if (!is_group && (*at == '}' || !read_letter(at, &letter)))
      return "braces that hold a letter or a group, as in 'h.{i+1}.weight' or "
             "'bn.{weight,bias}'";
    n_groups += is_group;
    n_letters += !is_group;
    if (n_letters > MAP_MAX_LETTERS || n_groups > MAP_MAX_LETTERS)
      return "at most four letters and four groups in a name";
    at += braces_length(at) - 1;
  }
  return NULL;
}

int pattern_groups(const char *pattern, int *out_sizes, int most) {
  int n = 0;
  for (const char *at = strchr(pattern, '{'); at && n < most;
       at = strchr(at + 1, '{')) {
    int members = group_size(at);
    if (members) out_sizes[n++] = members;
  }
  return n;
}

const char *pattern_expand(Arena *arena, const char *pattern,
                           const int *members) {
  Text out = text_create(arena);
  while (*pattern) {
    int64_t first;
    size_t n;
    if (*pattern != '{' || !group_size(pattern)) {
      text_add_n(&out, pattern++, 1);
      continue;
    }
    int member = *members++;
    if (interval_size(pattern, &first)) {
      text_printf(&out, "%lld", (long long)(first + member));
    } else {
      const char *text = list_member(pattern, member, &n);
      text_add_n(&out, text, n);
    }
    pattern += braces_length(pattern);
  }
  return text_string(&out);
}

/* ---- wildcards ---- */

/* A name of digits for a letter, of anything for a '*'; what follows decides
 * where a '*' ends, so both are tried from the longest. */
static bool drops(const char *pattern, const char *name, int depth) {
  for (; *pattern; pattern++, name++) {
    Letter letter;
    if (*pattern == '*') {
      if (depth == 0) return false;
      for (const char *at = name + strlen(name); at >= name; at--)
        if (drops(pattern + 1, at, depth - 1)) return true;
      return false;
    }
    if (*pattern == '{' && read_letter(pattern, &letter)) {
      size_t digits;
      int64_t value = leading_number(name, &digits);
      if (value < letter.added || (digits > 1 && name[0] == '0')) return false;
      return drops(pattern + letter.n, name + digits, depth);
    }
    if (*pattern != *name) return false;
  }
  return *name == '\0';
}

bool pattern_drops(const char *pattern, const char *name) {
  return drops(pattern, name, MAP_MAX_LETTERS);
}

/* ---- values ---- */

const MapRange *maprange_find(const TensorMap *map, const MapRule *rule,
                              Name letter) {
  for (int i = 0; i < rule->n_ranges; i++)
    if (rule->ranges[i].letter == letter) return &rule->ranges[i];
  for (int i = 0; i < map->ranges.n; i++)
    if (map->ranges.data[i].letter == letter) return &map->ranges.data[i];
  return NULL;
}

int64_t maprange_size(const MapRange *range) {
  return range->is_interval ? range->last - range->first + 1 : range->n;
}

MapBinding maprange_value(const MapRange *range, int64_t index) {
  MapBinding binding = {.letter = range->letter, .value = index};
  if (range->is_interval)
    binding.value = range->first + index;
  else
    binding.word = range->words[index];
  return binding;
}
