/*
 * foreign.c -- helps with words of other libraries: relu6, float64, einsum.
 */
#include "frontend/syntax/help.h"

#include <string.h>

static const struct {
  Foreign what;
  const char *word, *help;
} rows[] = {
#define FOREIGN(what, word, help) {FOREIGN_##what, #word, help},
#include "frontend/syntax/foreign.def"
};

bool foreign_help(Diag *d, Foreign what, const char *word) {
  for (int i = 0; i < ARRAY_LENGTH(rows); i++)
    if (rows[i].what == what && strcmp(rows[i].word, word) == 0) {
      diag_help(d, "%s", rows[i].help);
      return true;
    }
  return false;
}
