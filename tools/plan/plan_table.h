/*
 * plan_table.h -- declares the table of `dnnc plan`: the best plan of each
 * mesh, or of each cluster and number of ranks.
 */
#ifndef TOOLS_PLAN_PLAN_TABLE_H
#define TOOLS_PLAN_PLAN_TABLE_H

#include "tools/commands/planning.h"

/* Machines for which a plan is searched. */
typedef struct PlanMachines {
  const char *cluster; /* the file; NULL: none is named */
  int64_t ranks;       /* -1: nobody says how many */
  Bytes limit;         /* of the memory of a rank; 0: what it has */
} PlanMachines;
typedef VEC(PlanMachines) PlanMachinesList;

/* A plan with its rates. */
typedef struct TableRow {
  const char *cluster; /* the file */
  int ranks;
  const char *mesh, *words, *text; /* NULL: no plan is legal */
  CandidatePrice price;            /* of the whole program */
  double flops, peak_flops;
  int64_t samples, items;
  bool has_tokens;
} TableRow;
typedef VEC(TableRow) TableRows;

/* Reads --cluster and --ranks: each cluster with each number of ranks.  Sets
 * the options of the tool to the first of them.  Returns false after a mistake,
 * which is printed. */
bool plan_read_machines(Tool *tool, PlanMachinesList *out);
/* Searches for each of them and prints a table.  Returns an exit code. */
int plan_table(Tool *tool, const PlanMachinesList *machines);

/* Returns the best plan of each mesh, priced as whole programs, the best first.
 * The rates come from `chosen`, which is the plan of the search. */
TableRows plan_mesh_rows(Planning *planning, const Chosen *chosen);
/* Returns a row with the rates of `chosen`. */
TableRow plan_row_of(Planning *planning, const Chosen *chosen, const char *mesh,
                     const FoundPlan *plan);
/* Returns the priced plans of a search that no other one beats in both bytes
 * and step (plan_frontier.c). */
TableRows plan_frontier_rows(Planning *planning, const Chosen *chosen);
/* Sorts rows likewise and leaves out those that another one beats. */
void plan_frontier_of_memory(TableRows *rows);
/* Leaves those that fit and are faster than all of fewer ranks, if any fits. */
void plan_frontier_of_ranks(TableRows *rows);
/* Writes the page of --html; `file` is the plan file with its certificate.
 * *out_json has the fields of the object of which the page shows numbers.
 * Returns an exit code (plan_page.c). */
int plan_page(Planning *planning, const Chosen *chosen, const char *file,
              const char **out_json);
bool table_row_fits(const TableRow *row);
double table_row_per_second(const TableRow *row, int64_t items);
double table_row_mfu(const TableRow *row);
/* Prints rows as an array of objects. */
void plan_rows_print_json(Text *out, const TableRows *rows);

#endif
