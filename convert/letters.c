/*
 * letters.c -- finds the values that letters take in the names of a checkpoint,
 * and the alternatives of the map that the checkpoint has.
 *
 * A letter with a range runs over that.  The other letters of a line take the
 * values for which the checkpoint has a name.  Lines with the same letters
 * share these: if one line has layer 3 and another one has not, the other one's
 * tensor is missing.  Lines of one alternative share among themselves.
 *
 * An alternative matches if the checkpoint has a tensor for each of its names.
 * The matching alternative with the most tensors is used; an empty one always
 * matches and is used last. If none matches, the nearest one is used, and its
 * missing tensors are listed.
 */
#include "convert/convert.h"

#include <stdlib.h>
#include <string.h>

/* Values of some letters, found in names. */
typedef struct Found {
  int n_letters;
  VEC(int64_t) values; /* n_letters for each row */
} Found;

struct Letters {
  const Conversion *conversion;
  Arena *arena;
  Map *found;         /* Name of a scope and its letters to Found */
  RuleValues *values; /* of each rule */
  int *alternatives;  /* of each either */
};

static int find_name(const Name *names, int n, Name name) {
  for (int i = 0; i < n; i++)
    if (names[i] == name) return i;
  return -1;
}

const char *rule_name(Arena *arena, const RuleValues *values, int64_t at,
                      const MapTerm *term) {
  MapBinding bindings[MAP_MAX_LETTERS];
  for (int i = 0; i < values->n_letters; i++) {
    int64_t value = values->rows[at][i];
    bindings[i] = values->ranges[i]
                      ? maprange_value(values->ranges[i], value)
                      : (MapBinding){values->letters[i], value, NULL};
  }
  return pattern_fill(arena, term->pattern, bindings, values->n_letters);
}

/* ---- letters of a line ---- */

/* In the order of the first name that is read, each once. */
static void find_letters(const Letters *letters, const MapRule *rule,
                         RuleValues *out) {
  const Conversion *c = letters->conversion;
  Name all[MAP_MAX_LETTERS];
  int n =
      pattern_letters(c->module->names, rule->side[c->side].terms[0].pattern,
                      all, MAP_MAX_LETTERS);
  for (int i = 0; i < n; i++) {
    if (find_name(out->letters, out->n_letters, all[i]) >= 0) continue;
    out->ranges[out->n_letters] = maprange_find(c->map, rule, all[i]);
    out->letters[out->n_letters++] = all[i];
  }
}

/* The letters without a range, in an order that does not depend on the line. */
static int free_letters(const RuleValues *values, Name *out) {
  int n = 0;
  for (int i = 0; i < values->n_letters; i++) {
    if (values->ranges[i]) continue;
    int at = n++;
    for (; at > 0 && strcmp(out[at - 1], values->letters[i]) > 0; at--)
      out[at] = out[at - 1];
    out[at] = values->letters[i];
  }
  return n;
}

static Found *found_of(Letters *letters, const MapRule *rule, const Name *free,
                       int n) {
  Text key = text_create(letters->arena);
  text_printf(&key, "%d:%d", rule->either, rule->alternative);
  for (int i = 0; i < n; i++) text_printf(&key, " %s", free[i]);
  Name name =
      name_intern(letters->conversion->module->names, text_string(&key));
  Found *found = map_get(letters->found, name);
  if (found) return found;
  found = ARENA_NEW(letters->arena, Found);
  found->n_letters = n;
  map_put(letters->found, name, found);
  return found;
}

/* ---- looking at names ---- */

/* `pattern` has free letters only. */
static void look_at_names(Letters *letters, const char *pattern,
                          const Name *free, Found *found) {
  const Conversion *c = letters->conversion;
  Name order[MAP_MAX_LETTERS];
  int64_t values[MAP_MAX_LETTERS], row[MAP_MAX_LETTERS];
  int n = pattern_letters(c->module->names, pattern, order, MAP_MAX_LETTERS);
  for (int i = 0; i < c->from->n_places; i++) {
    if (!pattern_match(pattern, c->from->places[i].tensor->name, values))
      continue;
    bool agrees = true; /* a letter that stands twice has one value */
    for (int k = 0; k < n; k++) {
      row[find_name(free, found->n_letters, order[k])] = values[k];
      agrees &= values[find_name(order, n, order[k])] == values[k];
    }
    for (int k = 0; agrees && k < found->n_letters; k++)
      vec_push(letters->arena, &found->values, row[k]);
  }
}

/* Steps through the values of the ranges, the last the fastest. */
static bool next_values(const RuleValues *values, int64_t *row) {
  for (int i = values->n_letters - 1; i >= 0; i--) {
    if (!values->ranges[i]) continue;
    if (++row[i] < maprange_size(values->ranges[i])) return true;
    row[i] = 0;
  }
  return false;
}

static void look_for_rule(Letters *letters, const MapRule *rule,
                          const RuleValues *values) {
  const MapSide *side = &rule->side[letters->conversion->side];
  Name free[MAP_MAX_LETTERS];
  int n_free = free_letters(values, free);
  int64_t row[MAP_MAX_LETTERS] = {0};
  if (n_free == 0) return;
  Found *found = found_of(letters, rule, free, n_free);
  do {
    MapBinding bindings[MAP_MAX_LETTERS];
    int n = 0;
    for (int i = 0; i < values->n_letters; i++)
      if (values->ranges[i])
        bindings[n++] = maprange_value(values->ranges[i], row[i]);
    for (int i = 0; i < side->n; i++)
      look_at_names(
          letters,
          pattern_fill(letters->arena, side->terms[i].pattern, bindings, n),
          free, found);
  } while (next_values(values, row));
}

/* ---- rows ---- */

static int by_values(const void *a, const void *b, int n) {
  const int64_t *x = a, *y = b;
  for (int i = 0; i < n; i++)
    if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
  return 0;
}

static int by_row(const void *a, const void *b) {
  return by_values(a, b, MAP_MAX_LETTERS);
}

/* Every row of free letters with every combination of ranges, in order, each
 * once. */
static void fill_rows(Letters *letters, const MapRule *rule,
                      RuleValues *values) {
  Name free[MAP_MAX_LETTERS];
  int n_free = free_letters(values, free);
  const Found *found = n_free ? found_of(letters, rule, free, n_free) : NULL;
  int64_t n_found = found ? found->values.n / n_free : 1, n_ranges = 1;
  for (int i = 0; i < values->n_letters; i++)
    if (values->ranges[i]) n_ranges *= maprange_size(values->ranges[i]);
  values->rows = arena_alloc(letters->arena, (size_t)(n_found * n_ranges + 1) *
                                                 sizeof *values->rows);
  int64_t row[MAP_MAX_LETTERS] = {0}, n = 0;
  do {
    for (int64_t f = 0; f < n_found; f++, n++) {
      for (int i = 0; i < values->n_letters; i++)
        if (!values->ranges[i])
          row[i] =
              found->values.data[f * n_free +
                                 find_name(free, n_free, values->letters[i])];
      memcpy(values->rows[n], row, sizeof row);
    }
  } while (next_values(values, row));
  qsort(values->rows, (size_t)n, sizeof *values->rows, by_row);
  for (int64_t i = 0; i < n; i++)
    if (i == 0 || by_row(values->rows[i], values->rows[values->n - 1]) != 0)
      memmove(values->rows[values->n++], values->rows[i], sizeof *values->rows);
}

/* ---- alternatives ---- */

typedef struct Fit {
  int64_t n_found, n_missing;
} Fit;

static void count_rule(const Letters *letters, const MapRule *rule, Fit *fit) {
  const Conversion *c = letters->conversion;
  const RuleValues *values = letters_of_rule(letters, rule);
  const MapSide *side = &rule->side[c->side];
  const StoredFile *file;
  fit->n_missing += values->n == 0;
  for (int64_t at = 0; at < values->n; at++)
    for (int i = 0; i < side->n; i++) {
      const char *name = rule_name(letters->arena, values, at, &side->terms[i]);
      bool is_there = checkpoint_tensor(c->from, name, &file) != NULL;
      fit->n_found += is_there;
      fit->n_missing += !is_there;
    }
}

static int choose(const Letters *letters, const MapEither *either) {
  Fit best = {0};
  int chosen = -1;
  for (int a = 0; a < either->n_alternatives; a++) {
    Fit fit = {0};
    for (int r = either->first_rule; r < either->last_rule; r++)
      if (letters->conversion->map->rules.data[r].alternative == a)
        count_rule(letters, &letters->conversion->map->rules.data[r], &fit);
    bool fits = fit.n_missing == 0, best_fits = best.n_missing == 0;
    if (chosen < 0 || fits > best_fits ||
        (fits == best_fits && fit.n_found > best.n_found)) {
      chosen = a;
      best = fit;
    }
  }
  return chosen;
}

Letters *letters_find(const Conversion *conversion) {
  const TensorMap *map = conversion->map;
  Arena *arena = conversion->module->arena;
  Letters *letters = ARENA_NEW(arena, Letters);
  letters->conversion = conversion;
  letters->arena = arena;
  letters->found = map_create(arena);
  letters->values = ARENA_ARRAY(arena, RuleValues, map->rules.n);
  letters->alternatives = ARENA_ARRAY(arena, int, map->eithers.n);
  for (int r = 0; r < map->rules.n; r++) {
    find_letters(letters, &map->rules.data[r], &letters->values[r]);
    look_for_rule(letters, &map->rules.data[r], &letters->values[r]);
  }
  for (int r = 0; r < map->rules.n; r++)
    fill_rows(letters, &map->rules.data[r], &letters->values[r]);
  for (int e = 0; e < map->eithers.n; e++)
    letters->alternatives[e] = choose(letters, &map->eithers.data[e]);
  return letters;
}

const RuleValues *letters_of_rule(const Letters *letters, const MapRule *rule) {
  return &letters->values[rule - letters->conversion->map->rules.data];
}

int letters_alternative(const Letters *letters, int either) {
  return letters->alternatives[either];
}
