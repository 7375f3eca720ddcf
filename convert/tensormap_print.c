/*
 * tensormap_print.c -- prints a map, with groups written out, as text that
 * reads back as the same map (`dnnc show`).
 */
#include "convert/tensormap.h"

#include <string.h>

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

static void print_range(Text *out, const MapRange *range, const char *word) {
  text_printf(out, "%s %s", range->letter, word);
  if (range->is_interval)
    text_printf(out, " %lld..%lld", (long long)range->first,
                (long long)range->last);
  for (int i = 0; i < range->n; i++) text_printf(out, " %s", range->words[i]);
}

static void print_rule(Text *out, const MapRule *rule) {
  if (rule->either >= 0) text_add(out, "  ");
  print_side(out, &rule->side[0]);
  text_add(out, " = ");
  print_side(out, &rule->side[1]);
  for (int i = 0; i < rule->n_ranges; i++) {
    text_add(out, i ? ", " : " for ");
    print_range(out, &rule->ranges[i], "in");
  }
  text_add(out, "\n");
}

static void print_either(Text *out, const TensorMap *map,
                         const MapEither *either) {
  int alternative = 0;
  text_add(out, "either\n");
  for (int r = either->first_rule; r < either->last_rule; r++) {
    const MapRule *rule = &map->rules.data[r];
    for (; alternative < rule->alternative; alternative++)
      text_add(out, "or\n");
    print_rule(out, rule);
  }
  for (; alternative < either->n_alternatives - 1; alternative++)
    text_add(out, "or\n");
  text_add(out, "end\n");
}

void tensormap_print(Text *out, const TensorMap *map) {
  for (int i = 0; i < map->dims.n; i++)
    text_printf(out, "dim %s = %lld\n", map->dims.data[i].name,
                (long long)map->dims.data[i].size);
  for (int i = 0; i < map->ranges.n; i++) {
    text_add(out, "range ");
    print_range(out, &map->ranges.data[i], "=");
    text_add(out, "\n");
  }
  for (int i = 0; i < map->dropped.n; i++) {
    text_add(out, "drop ");
    print_pattern(out, map->dropped.data[i].pattern);
    text_add(out, "\n");
  }
  for (int r = 0, e = 0; r < map->rules.n;) {
    if (e < map->eithers.n && map->eithers.data[e].first_rule == r) {
      print_either(out, map, &map->eithers.data[e]);
      r = map->eithers.data[e++].last_rule;
    } else {
      print_rule(out, &map->rules.data[r++]);
    }
  }
}
