/*
 * positions.h -- writes the text of an attention kernel for all queries or for
 * the shard of a rank, whose first query is a run-time number.
 */
#ifndef CODEGEN_POSITIONS_H
#define CODEGEN_POSITIONS_H

#include "support/support.h"

/* Returns the text with ` + before` for each `@` if the queries are a shard,
 * and with nothing for it if they are not. */
static inline Text positions_expand(Arena *arena, const char *text,
                                    bool is_shard) {
  Text out = text_create(arena);
  for (; *text; text++) {
    if (*text != '@')
      text_printf(&out, "%c", *text);
    else if (is_shard)
      text_add(&out, " + before");
  }
  return out;
}

#endif
