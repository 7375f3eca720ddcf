/*
 * quantity.c -- writes a quantity with the unit that makes its exact text the
 * shortest.
 *
 *     12500000000 bytes a second    12.5GB/s        84825604096 bytes   79GiB
 *     1500000 picoseconds           1.5us           15700000000000      15.7T
 */
#include "ir/cluster/cluster.h"

#include <string.h>

const UnitInfo *unit_info(Unit unit) {
  static const UnitInfo rows[] = {
#define UNIT(name, expected, suffix, scale, most)                              \
  {#name, expected, suffix, scale, most},
#include "ir/cluster/units.def"
  };
  return &rows[unit];
}

/* value / 10^digits as a decimal without zeros at its end. */
static const char *decimal_text(Arena *arena, int64_t value, int digits) {
  int64_t power = 1;
  for (int i = 0; i < digits; i++) power *= 10;
  if (value % power == 0)
    return arena_printf(arena, "%lld", (long long)(value / power));
  char *text = arena_printf(arena, "%lld.%0*lld", (long long)(value / power),
                            digits, (long long)(value % power));
  size_t n = strlen(text);
  while (text[n - 1] == '0') text[--n] = 0;
  return text;
}

/* In the largest unit that is at most the value. */
static const char *decimal_quantity(Arena *arena, const UnitInfo *info,
                                    int64_t value) {
  static const char *const prefixes[] = {"", "K", "M", "G", "T", "P"};
  int i = 0;
  for (int64_t rest = value; rest >= 1000 && i < 5; rest /= 1000) i++;
  return arena_printf(arena, "%s%s%s", decimal_text(arena, value, 3 * i),
                      prefixes[i], info->suffix);
}

static const char *time_text(Arena *arena, int64_t value) {
  static const char *const names[] = {"ns", "us", "ms", "s"};
  int i = 0;
  for (int64_t rest = value / 1000; rest >= 1000 && i < 3; rest /= 1000) i++;
  return value ? arena_printf(arena, "%s%s",
                              decimal_text(arena, value, 3 * i + 3), names[i])
               : "0s";
}

static const char *binary_text(Arena *arena, int64_t value) {
  static const char *const prefixes[] = {"", "Ki", "Mi", "Gi", "Ti"};
  int i = 0;
  for (; value % 1024 == 0 && value > 0 && i < 4; value /= 1024) i++;
  return arena_printf(arena, "%lld%sB", (long long)value, prefixes[i]);
}

const char *quantity_text(Arena *arena, Unit unit, int64_t value) {
  if (unit == UNIT_time) return time_text(arena, value);
  if (unit == UNIT_count) return arena_printf(arena, "%lld", (long long)value);
  const char *decimal = decimal_quantity(arena, unit_info(unit), value);
  if (unit != UNIT_bytes) return decimal;
  const char *binary = binary_text(arena, value);
  return strlen(binary) < strlen(decimal) ? binary : decimal;
}

void quantity_print(Text *out, Unit unit, int64_t value) {
  text_add(out, quantity_text(out->arena, unit, value));
}
