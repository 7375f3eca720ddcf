/*
 * settings.h -- one setting of a block: its value from the command line or the
 * file.
 */
#ifndef FRONTEND_BLOCKS_SETTINGS_H
#define FRONTEND_BLOCKS_SETTINGS_H

#include "frontend/elaborate/elaborate.h"

/* One setting: of the command line, else of the file, else absent. */
typedef struct SettingRef {
  bool is_given;
  const Expr *value; /* the value in the file; NULL means on the command line */
  const char *text;  /* text on the command line, or NULL */
  const Source *source; /* source on the command line, or NULL */
  Span span;
} SettingRef;

SettingRef setting_find(Elab *e, const Item *block, const char *block_name,
                        const char *name);
/* Returns the expression of a setting.  Returns NULL where it is absent or does
 * not parse. */
const Expr *setting_expr(Elab *e, const SettingRef *ref);
ExprValue setting_value(Elab *e, const SettingRef *ref);
/* Reads a number.  Leaves *out alone and returns false where it is absent or
 * wrong. */
bool setting_int(Elab *e, const Item *block, const char *block_name,
                 const char *name, int64_t least, int64_t *out);
bool setting_float(Elab *e, const Item *block, const char *block_name,
                   const char *name, double least, double *out);
/* A number above 0 and at most 1. */
bool setting_share_of_one(Elab *e, const Item *block, const char *block_name,
                          const char *name, double *out);
/* Reads a bool; on the command line 1 and 0 stand for true and false. */
bool setting_bool(Elab *e, const Item *block, const char *block_name,
                  const char *name, bool *out);
bool setting_string(Elab *e, const Item *block, const char *block_name,
                    const char *name, const char **out);
/* Returns a bare word.  Returns NULL where it is absent or wrong. */
Name setting_name(Elab *e, const Item *block, const char *block_name,
                  const char *name, Span *out_span);
/* Returns the text of a path, with its indices as they stand. */
const char *setting_path_text(Elab *e, const Expr *x);
/* Helps with an unknown setting of a data block. */
const char *setting_field_help(Arena *arena, Name name);
void setting_unknown(SourceTree *tree, const Setting *setting,
                     const char *kind);
/* Returns whether this is a group of parameters in the train block. */
bool setting_is_group(const Setting *setting, const char *kind);
/* Reports unknown names and repeated ones. */
void setting_check_names(SourceTree *tree, const Item *block, const char *kind);
/* Returns whether the block lacks this required setting.  Returns false where a
 * name of it is unknown, which may be this one misspelt. */
bool setting_is_missing(const SettingRef *ref, const Item *block,
                        const char *kind);
bool setting_is_known(const char *block, const char *name);

#endif
