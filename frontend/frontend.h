/*
 * frontend.h -- turns the text of a model into a Model. It opens no file: its
 * caller passes a loader that reads sources.
 */
#ifndef FRONTEND_FRONTEND_H
#define FRONTEND_FRONTEND_H

#include "ir/cluster/cluster.h"
#include "ir/model/model.h"
#include "ir/plan/pins.h"

/* Returns the source at `path` (as written in the file, already joined to the
 * importing file's folder) or NULL if there is none. */
typedef const Source *SourceLoader(void *user, const char *path);

/* Returns the file at `path` that a plan names, or NULL if there is none.
 * `folder`, with its slash, is that of the file with the plan, in which the
 * path begins. */
typedef const Source *PlanFileLoader(void *user, const char *folder,
                                     const char *path);

typedef struct Override { /* NAME=VALUE of the command line */
  const char *name, *value;
} Override;

/* The limits of elaboration; 0 means the default of language.md. */
typedef struct Budget {
  int64_t nodes, list_elements, steps;
  int depth;
} Budget;

/* The choice whether Model.predict is made. */
typedef enum Predicting {
  PREDICTING_none,
  PREDICTING_maybe, /* made where the net allows it; nothing is said else */
  PREDICTING_wanted /* what prevents it is a mistake */
} Predicting;

/* Counts the samples of an evaluation in the data files that the blocks of
 * `model` name; called once, when its blocks and its graphs `train` and `eval`
 * are complete.  Counts 0 if there are none, or if a file is not there
 * yet.  Returns false if the files do not fit the model, which was said. */
typedef bool EvalSampleCounter(void *user, const Model *model,
                               int64_t *out_samples);

typedef struct FrontendOptions {
  SourceLoader *load;
  PlanFileLoader *load_plan_file; /* NULL means `load` */
  /* NULL means no evaluation remainder. */
  EvalSampleCounter *count_eval_samples;
  /* Returns why the last load failed; may be NULL. */
  const char *(*why)(void *user);
  void *user;
  const char *path; /* path of the model */
  const char *net;  /* --net or NULL */
  Predicting predicting;
  const char *value; /* predicted instead of the net's result; or NULL */
  const Override *overrides;
  int n_overrides;
  Budget budget;
  const Source *plan; /* a plan file instead of the model's own blocks */
  bool checked;       /* an index out of range makes NaN */
  /* Accept what is not compiled yet (bf16), and read no plan. */
  bool check_only;
} FrontendOptions;

/* Reads plans of a loaded model. */
typedef struct PlanReader PlanReader;

typedef struct LoadedModel {
  Model *model; /* NULL after an error */
  Pins *pins;   /* pins of the plan; NULL means that the options want none */
  PlanReader *plans; /* NULL like `pins` */
} LoadedModel;

/* Elaborates; mistakes become diags in module->diags. */
LoadedModel frontend_load(Module *module, const FrontendOptions *options);
/* The place that a plan is read from. */
typedef struct PlanSource {
  const Source *file; /* the plan file; NULL means the blocks of the model */
  /* Lines of the file and annotations of the model that are left out, wherever
   * one of these spans holds their first character. */
  const Span *without;
  int n_without;
} PlanSource;

/* Returns the pins of a plan of the model, or NULL after an error, which is in
 * `diags`. */
Pins *frontend_read_plan(PlanReader *plans, const PlanSource *from,
                         Diags *diags);
/* Returns the cluster of a cluster file.  Mistakes become diags in
 * module->diags; returns NULL if there was an error. */
const Cluster *frontend_read_cluster(Module *module, const Source *source);
/* Prints every optimizer as it is called, a line each, and what its arguments
 * are. */
void frontend_list_optimizers(Text *out);
#endif
