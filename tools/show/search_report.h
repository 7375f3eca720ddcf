/*
 * search_report.h -- declares what `dnnc plan --html` tells of the search for a
 * plan.
 */
#ifndef TOOLS_SHOW_SEARCH_REPORT_H
#define TOOLS_SHOW_SEARCH_REPORT_H

#include "tools/plan/plan_table.h"

struct SearchReport {
  int n_priced, n_legal, n_fit;
  Ps plain;                 /* a step of data parallelism; 0: it does not fit */
  const char *space, *file; /* in words; the plan file with its certificate */
  int n_falls;
  const StepFall *falls;
  TableRows meshes;
  int n_staged; /* those with the least steps */
  const StagedChoice *staged;
};

/* Prints `,"search":{...}`. */
void search_report_json(Text *out, const SearchReport *search);

#endif
