/*
 * source_tree.c -- reads a model and its imports, and records what they declare
 * by name: dims and consts, layers and nets, the blocks of the main file.
 *
 * Nothing is computed here. All files share one scope: a layer of a library
 * takes its dims from the file that imports it. The imports of a file are read
 * before its own items, so that a later declaration replaces an earlier one.
 */
#include "frontend/syntax/help.h"
#include "frontend/elaborate/source_tree.h"

#include <string.h>

enum { MOST_IMPORTS_DEEP = 64 };

static const char *const block_kinds[] = {
    "data", "train",  "precision", "sample",   "mesh",
    "plan", "device", "cluster",   "measured", "certificate"};

/* The two marks of a file that was read or is being read: their addresses. */
static const char being_read, was_read;

/* ---- paths ---- */

static bool leaves_folder(const char *path) {
  if (path[0] == '/' || path[0] == '\\') return true;
  for (const char *part = path; part;) {
    const char *end = strchr(part, '/');
    size_t n = end ? (size_t)(end - part) : strlen(part);
    if (n == 2 && part[0] == '.' && part[1] == '.') return true;
    part = end ? end + 1 : NULL;
  }
  return false;
}

bool source_tree_check_path(SourceTree *tree, const char *path, Span span) {
  Diags *diags = tree->module->diags;
  if (path[0] == '\0') {
    diag(diags, DIAG_empty_path, span);
    return false;
  }
  if (!leaves_folder(path)) return true;
  Diag *d = diag(diags, DIAG_path_leaves, span, path);
  diag_help(d, "paths in a file are relative and stay below its folder; the "
               "command line may name any");
  return false;
}

Name source_tree_join(SourceTree *tree, const char *importer,
                      const char *path) {
  const char *slash = strrchr(importer, '/');
  Text text = text_create(tree->module->arena);
  text_add_n(&text, importer, slash ? (size_t)(slash - importer + 1) : 0);
  while (*path) { /* one spelling for one file: no empty parts, no dots */
    size_t n = strcspn(path, "/");
    bool is_nothing = n == 0 || (n == 1 && *path == '.');
    if (!is_nothing) text_add_n(&text, path, n);
    path += n;
    bool goes_on = *path == '/' && path[1];
    if (!is_nothing && goes_on) text_add(&text, "/");
    path += *path == '/';
  }
  return name_intern(tree->module->names, text_string(&text));
}

/* ---- items ---- */

static void program_add_global(SourceTree *tree, const Item *item,
                               const Binding *binding, bool is_main) {
  Module *m = tree->module;
  Global *old = map_get(tree->globals, binding->name);
  if (old && old->span.source == binding->span.source) {
    Diag *d = diag(m->diags, DIAG_given_twice, binding->span, binding->name);
    diag_note(d, old->span, "it is given here first");
    return;
  }
  Global *global = ARENA_NEW(m->arena, Global);
  *global = (Global){.name = binding->name,
                     .is_dim = item->kind == ITEM_dim,
                     .is_main = is_main,
                     .value = binding->value,
                     .span = binding->span};
  map_put(tree->globals, binding->name, global);
}

static const Callable *find_callable(const SourceTree *tree, Name name) {
  const Callable *layer = map_get(tree->layers, name);
  return layer ? layer : map_get(tree->nets, name);
}

/* `first`: the order of what this file or its imports brought. */
static void program_add_callable(SourceTree *tree, const Item *item,
                                 bool is_main, int first) {
  Module *m = tree->module;
  const Callable *old = find_callable(tree, item->name);
  bool replaces = old && old->is_net && item->kind == ITEM_net &&
                  old->order >= first &&
                  old->item->span.source != item->span.source;
  if (old && !replaces) {
    Diag *d = diag(m->diags, DIAG_given_twice, item->name_span, item->name);
    diag_note(d, old->item->name_span, "it is given here first");
    return;
  }
  if (map_has(tree->builtins, item->name)) {
    diag(m->diags, DIAG_layer_is_operator, item->name_span, item->name);
    return;
  }
  Callable *callable = ARENA_NEW(m->arena, Callable);
  *callable = (Callable){.item = item,
                         .is_net = item->kind == ITEM_net,
                         .is_main = is_main,
                         .order = tree->n_callables++};
  map_put(callable->is_net ? tree->nets : tree->layers, item->name, callable);
}

static void program_add_block(SourceTree *tree, const Item *item) {
  Diags *diags = tree->module->diags;
  for (int i = 0; i < ARRAY_LENGTH(block_kinds); i++) {
    if (strcmp(item->block, block_kinds[i]) != 0) continue;
    for (int j = 0; j < tree->blocks.n; j++) {
      const Item *old = tree->blocks.data[j];
      if (old->block != item->block || old->name != item->name) continue;
      Diag *d = diag(diags, DIAG_block_twice, item->name_span, item->block);
      diag_note(d, old->name_span, "it is given here first");
      return;
    }
    vec_push(tree->module->arena, &tree->blocks, item);
    return;
  }
  Span word = item->span;
  word.end = word.begin + (uint32_t)strlen(item->block);
  if (item->name) vec_push(tree->module->arena, &tree->lost_blocks, item->name);
  Diag *d = diag(diags, DIAG_unknown_block, word, item->block);
  diag_choices(tree->module->arena, d, item->block, block_kinds,
               ARRAY_LENGTH(block_kinds));
}

const Item *source_tree_block(const SourceTree *tree, const char *kind) {
  for (int i = 0; i < tree->blocks.n; i++)
    if (strcmp(tree->blocks.data[i]->block, kind) == 0)
      return tree->blocks.data[i];
  return NULL;
}

/* ---- files ---- */

static bool program_read_file(SourceTree *tree, Name path, Span span,
                              int depth);

static void program_read_import(SourceTree *tree, const Item *item,
                                Name importer, int depth) {
  if (!source_tree_check_path(tree, item->name, item->name_span)) {
    tree->lacks_import = true;
    return;
  }
  Diags *diags = tree->module->diags;
  Name path = source_tree_join(tree, importer, item->name);
  const void *state = map_get(tree->files, path);
  if (state == &was_read) return;
  bool is_read = false;
  if (state == &being_read) {
    diag(diags, DIAG_import_cycle, item->name_span, item->name);
  } else if (depth == MOST_IMPORTS_DEEP) {
    diag(diags, DIAG_import_depth, item->name_span, MOST_IMPORTS_DEEP);
  } else {
    is_read = program_read_file(tree, path, item->name_span, depth + 1);
  }
  tree->lacks_import = tree->lacks_import || !is_read;
}

static void program_add_items(SourceTree *tree, const Ast *ast, bool is_main,
                              int first) {
  for (int i = 0; i < ast->n_items; i++) {
    const Item *item = &ast->items[i];
    switch (item->kind) {
    case ITEM_import: break;
    case ITEM_dim:
    case ITEM_const:
      for (int j = 0; j < item->n_bindings; j++)
        program_add_global(tree, item, &item->bindings[j], is_main);
      break;
    case ITEM_layer:
    case ITEM_net: program_add_callable(tree, item, is_main, first); break;
    case ITEM_plan:
      if (is_main) vec_push(tree->module->arena, &tree->plans, item);
      break;
    case ITEM_block:
      if (is_main) program_add_block(tree, item);
      break;
    }
  }
}

static bool program_read_file(SourceTree *tree, Name path, Span span,
                              int depth) {
  Module *m = tree->module;
  const FrontendOptions *options = tree->options;
  const Source *source = options->load(options->user, path);
  if (!source) {
    Diag *d = diag(m->diags, DIAG_no_file, span, path);
    if (options->why)
      diag_note(d, SPAN_NONE, "%s", options->why(options->user));
    if (!span.source)
      diag_help(d, "'dnnc list models' names the models that come with dnnc");
    return false;
  }
  map_put(tree->files, path, (void *)&being_read);
  int errors = diags_errors(m->diags), first = tree->n_callables;
  const Ast *ast = ast_parse(m->arena, m->names, m->diags, source);
  if (diags_errors(m->diags) > errors) tree->has_syntax_errors = true;
  declared_check(tree, ast);
  for (int i = 0; i < ast->n_items; i++)
    if (ast->items[i].kind == ITEM_import)
      program_read_import(tree, &ast->items[i], path, depth);
  program_add_items(tree, ast, depth == 0, first);
  reads_of_ast(tree->read_names, ast);
  map_put(tree->files, path, (void *)&was_read);
  return true;
}

bool source_tree_read(SourceTree *tree) {
  Module *m = tree->module;
  tree->files = map_create(m->arena);
  tree->globals = map_create(m->arena);
  tree->layers = map_create(m->arena);
  tree->nets = map_create(m->arena);
  tree->read_names = map_create(m->arena);
  Name path = name_intern(m->names, tree->options->path);
  return program_read_file(tree, path, SPAN_NONE, 0);
}

/* ---- overrides ---- */

bool override_is_source(const SourceTree *tree, const Source *source) {
  for (int i = 0; i < tree->override_sources.n; i++)
    if (tree->override_sources.data[i] == source) return true;
  return false;
}

const SettingOverride *override_find(const SourceTree *tree, const char *block,
                                     const char *name) {
  const SettingOverride *found = NULL; /* the last one given */
  for (int i = 0; i < tree->overrides.n; i++) {
    const SettingOverride *o = &tree->overrides.data[i];
    if (strcmp(o->block, block) == 0 && strcmp(o->name, name) == 0) found = o;
  }
  return found;
}
