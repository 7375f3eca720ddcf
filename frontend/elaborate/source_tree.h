/*
 * source_tree.h -- all files of a model by name, before anything is
 * computed.
 */
#ifndef FRONTEND_ELABORATE_SOURCE_TREE_H
#define FRONTEND_ELABORATE_SOURCE_TREE_H

#include "frontend/elaborate/value.h"
#include "frontend/frontend.h"

typedef struct Global { /* a dim or const at file level */
  Name name;
  bool is_dim, is_main;
  const Expr *value; /* NULL means that the command line must give it */
  Span span;
  bool is_number_bool; /* the file has a boolean; 1 and 0 may replace it */
  int epoch;           /* epoch of the Elab for which `val` holds */
  bool is_busy;
  ExprValue val;
} Global;

typedef struct Callable { /* a layer or a net */
  const Item *item;
  bool is_net, is_main;
  int order;   /* order in which they were read */
  Map *labels; /* place -> Name; made at the first call */
} Callable;

/* NAME=VALUE that replaces a setting of a block. */
typedef struct SettingOverride {
  const char *block, *name; /* "train", "steps" */
  const char *text;         /* text of the value */
  const Source *source;     /* source that holds the value alone */
} SettingOverride;

/* A field of a data block, which expressions of `train` read as BLOCK.FIELD. */
typedef struct FieldDecl {
  Name name, path; /* "x", "text.x" */
  /* NULL means that it lacks one, and nothing else has its name. */
  const TypeExpr *type;
  const char *help; /* the advice of the message then */
  Span span;
} FieldDecl;

typedef struct DataDecl { /* a data block as expressions see it */
  Name name;              /* NULL means that it lacks one */
  Span span;
  VEC(FieldDecl) fields;
} DataDecl;

typedef struct SourceTree {
  Module *module;
  const FrontendOptions *options;
  Budget budget, spent;
  bool is_over; /* a budget ran out, or 20 errors: everything is poison */
  bool has_syntax_errors;
  bool lacks_import;  /* one was not read: it may declare a missing name */
  Map *files;         /* interned path -> itself, read or being read */
  Map *globals;       /* Name -> Global */
  Map *layers, *nets; /* Name -> Callable */
  int n_callables;
  Map *read_names;          /* Names that occur in any expression or type */
  Map *builtins;            /* Name -> Builtin */
  VEC(const Item *) blocks; /* blocks of the main file */
  VEC(const Item *) plans;  /* plans of the main file */
  VEC(Name) lost_blocks;    /* names of blocks whose kind is unknown */
  VEC(DataDecl) data;       /* registered before elaboration */
  VEC(SettingOverride) overrides;
  VEC(const Source *) override_sources;
  int n_epochs;
  bool rounds; /* precision computes in fewer bits than f32 */
} SourceTree;

/* Reads the model and its imports; false if the main file is not there. */
bool source_tree_read(SourceTree *tree);
const Item *source_tree_block(const SourceTree *tree, const char *kind);
/* Returns whether a path in a file stays below the folder of the file; else
 * reports. */
bool source_tree_check_path(SourceTree *tree, const char *path, Span span);
/* Returns the path of a file that another one names, which it lies beside. */
Name source_tree_join(SourceTree *tree, const char *importer, const char *path);

/* ---- declared.c ---- */

/* Reports predefined names that a file declares and names declared twice. */
void declared_check(SourceTree *tree, const Ast *ast);

/* ---- unused.c ---- */

/* Puts every name that an expression or a type of the file reads. */
void reads_of_ast(Map *reads, const Ast *ast);
/* Warns of dims and consts of the main file that nothing uses; `names` are
 * those of its layers that were called. */
void source_tree_warn_unused(SourceTree *tree);

/* ---- overrides ---- */

/* Returns the override of a setting.  Returns NULL if there is none. */
const SettingOverride *override_find(const SourceTree *tree, const char *block,
                                     const char *name);
/* Returns whether a source is a value of the command line. */
bool override_is_source(const SourceTree *tree, const Source *source);

#endif
