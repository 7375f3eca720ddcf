/*
 * tensormap_check.c -- checks one line of a map: both sides must have the same
 * letters and the same dims, so that it can be used in both directions.
 */
#include "convert/tensormap.h"

#include <string.h>

typedef struct Checker {
  Module *module;
  bool failed;
} Checker;

static bool has_factor(const MapPart *part, Name factor) {
  for (int i = 0; i < part->n; i++)
    if (part->factors[i] == factor) return true;
  return false;
}

/* Returns whether the tensor has the factor in part `piece` of split_dim. */
static bool term_has(const MapTerm *term, int split_dim, int piece,
                     Name factor) {
  for (int d = 0; d < term->rank; d++)
    if (has_factor(&term->dims[d].parts[d == split_dim ? piece : 0], factor))
      return true;
  return false;
}

static Diag *report(Checker *checker, const MapTerm *term, DiagId id,
                    const char *what) {
  checker->failed = true;
  return diag(checker->module->diags, id, term->span, term->pattern, what);
}

/* Every dim of `a` is in `b`. */
static void check_within(Checker *checker, const MapTerm *a, int split_a,
                         const MapTerm *b, int split_b, int piece) {
  for (int d = 0; d < a->rank; d++) {
    const MapPart *part = &a->dims[d].parts[d == split_a ? piece : 0];
    for (int i = 0; i < part->n && !checker->failed; i++)
      if (!term_has(b, split_b, piece, part->factors[i]))
        diag_note(report(checker, a, DIAG_map_dim_alone, part->factors[i]),
                  b->span, "'%s' does not have it", b->pattern);
  }
}

static void check_twice(Checker *checker, const MapTerm *term, int split_dim,
                        int piece) {
  for (int d = 0; d < term->rank; d++) {
    const MapPart *part = &term->dims[d].parts[d == split_dim ? piece : 0];
    for (int i = 0; i < part->n && !checker->failed; i++) {
      int n = 0;
      for (int e = 0; e < term->rank; e++) {
        const MapPart *other = &term->dims[e].parts[e == split_dim ? piece : 0];
        for (int k = 0; k < other->n; k++)
          n += other->factors[k] == part->factors[i];
      }
      if (n > 1) report(checker, term, DIAG_map_dim_twice, part->factors[i]);
    }
  }
}

/* The dim with several parts, or -1; two of them are a mistake. */
static int find_split(Checker *checker, const MapTerm *term) {
  int found = -1;
  for (int d = 0; d < term->rank; d++) {
    if (term->dims[d].n_parts == 1) continue;
    if (found >= 0 && !checker->failed)
      report(checker, term, DIAG_map_two_sums, "");
    found = d;
  }
  return found;
}

static void check_letters(Checker *checker, const MapTerm *a,
                          const MapTerm *b) {
  Name x[MAP_MAX_LETTERS], y[MAP_MAX_LETTERS];
  Names *names = checker->module->names;
  int n = pattern_letters(names, a->pattern, x, MAP_MAX_LETTERS);
  int m = pattern_letters(names, b->pattern, y, MAP_MAX_LETTERS);
  for (int i = 0; i < n && !checker->failed; i++) {
    bool found = false;
    for (int k = 0; k < m; k++) found = found || x[i] == y[k];
    if (!found)
      diag_note(report(checker, a, DIAG_map_letter_alone, x[i]), b->span,
                "'%s' does not have it", b->pattern);
  }
}

static void check_dims(Checker *checker, const MapRule *rule) {
  const MapSide *many = &rule->side[!rule->joined];
  const MapTerm *one = &rule->side[rule->joined].terms[0];
  int n_parts = rule->split_dim < 0 ? 1 : one->dims[rule->split_dim].n_parts;
  if (n_parts != many->n) {
    diag_note(report(checker, one, DIAG_map_parts, ""), many->terms[0].span,
              "the other side has %d", many->n);
    return;
  }
  for (int i = 0; i < many->n && !checker->failed; i++) {
    const MapTerm *term = &many->terms[i];
    if (find_split(checker, term) >= 0 && !checker->failed)
      report(checker, term, DIAG_map_two_sums, "");
    if (checker->failed) return;
    check_twice(checker, term, -1, i);
    check_twice(checker, one, rule->split_dim, i);
    check_within(checker, term, -1, one, rule->split_dim, i);
    check_within(checker, one, rule->split_dim, term, -1, i);
  }
}

static void check_rule(Checker *checker, MapRule *rule) {
  const MapSide *side = rule->side;
  rule->split_dim = -1;
  if (side[0].n > 1 && side[1].n > 1) {
    report(checker, &side[1].terms[0], DIAG_map_two_lists, "");
    return;
  }
  bool sum_on_right = side[1].n == 1 && side[0].n == 1 &&
                      find_split(checker, &side[1].terms[0]) >= 0;
  rule->joined = side[0].n > 1 || sum_on_right;
  const MapTerm *one = &side[rule->joined].terms[0];
  const MapSide *many = &side[!rule->joined];
  rule->split_dim = find_split(checker, one);
  for (int i = 0; i < many->n && !checker->failed; i++) {
    check_letters(checker, &many->terms[i], one);
    check_letters(checker, one, &many->terms[i]);
    if (!checker->failed && many->terms[i].has_dims != one->has_dims)
      report(checker, many->terms[i].has_dims ? one : &many->terms[i],
             DIAG_map_no_dims, "");
  }
  if (checker->failed) return;
  if (one->has_dims)
    check_dims(checker, rule);
  else if (many->n > 1)
    report(checker, one, DIAG_map_no_dims, "");
}

/* A `for` without use would make the same tensors again and again. */
static void check_ranges(Checker *checker, const MapRule *rule) {
  Name letters[MAP_MAX_LETTERS];
  const MapTerm *term = &rule->side[0].terms[0];
  int n = pattern_letters(checker->module->names, term->pattern, letters,
                          MAP_MAX_LETTERS);
  for (int r = 0; r < rule->n_ranges && !checker->failed; r++) {
    bool found = false;
    for (int i = 0; i < n; i++) found |= letters[i] == rule->ranges[r].letter;
    if (found) continue;
    checker->failed = true;
    Name letter = rule->ranges[r].letter;
    diag_help(diag(checker->module->diags, DIAG_map_letter_unused,
                   rule->ranges[r].span, letter),
              "in a name it stands in braces: {%s}", letter);
  }
}

bool maprule_check(Module *module, MapRule *rule) {
  Checker checker = {module, false};
  check_rule(&checker, rule);
  if (!checker.failed) check_ranges(&checker, rule);
  return !checker.failed;
}

bool tensormap_has_dim(const MapTerm *term, Name dim) {
  for (int d = 0; d < term->rank; d++)
    for (int i = 0; i < term->dims[d].n_parts; i++)
      if (has_factor(&term->dims[d].parts[i], dim)) return true;
  return false;
}
