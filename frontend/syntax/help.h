/*
 * help.h -- help with a wrong word: the word of another library, or a near
 * name.
 */
#ifndef FRONTEND_SYNTAX_HELP_H
#define FRONTEND_SYNTAX_HELP_H

#include "support/support.h"

typedef enum Foreign {
  FOREIGN_call,
  FOREIGN_argument,
  FOREIGN_dtype,
  FOREIGN_init,
  FOREIGN_plan,
} Foreign;

/* Helps with a word of another library; false if it is none. */
bool foreign_help(Diag *diag, Foreign what, const char *word);

/* Offers the one of `n` names nearest to `name` as help. */
void diag_suggest(Diag *diag, const char *name, const char *const *names,
                  int n);
/* Offers the nearest name of a short list that the reader may not know. Without
 * a near one, or without a name (NULL), offers all of it. */
void diag_choices(Arena *arena, Diag *diag, const char *name,
                  const char *const *names, int n);

#endif
