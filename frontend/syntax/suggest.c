/*
 * suggest.c -- offers names as help: the one nearest to a wrong name, or a
 * short list of all.
 */
#include "frontend/syntax/help.h"

void diag_suggest(Diag *diag, const char *name, const char *const *names,
                  int n) {
  const char *nearest = text_nearest(name, names, n);
  if (nearest) diag_help(diag, "did you mean '%s'?", nearest);
}

void diag_choices(Arena *arena, Diag *diag, const char *name,
                  const char *const *names, int n) {
  const char *nearest = name ? text_nearest(name, names, n) : NULL;
  if (nearest) diag_help(diag, "did you mean '%s'?", nearest);
  if (nearest || n == 0) return;
  const char *list = names[0];
  for (int i = 1; i < n; i++)
    list = arena_printf(arena, "%s%s%s", list, i < n - 1 ? ", " : " and ",
                        names[i]);
  diag_help(diag, n == 1 ? "there is %s" : "there are %s", list);
}
