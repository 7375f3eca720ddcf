/*
 * program.h -- the state of printing a bundle as tables, shared by bundle.c,
 * program.c and program_settings.c.
 */
#ifndef CODEGEN_PROGRAM_H
#define CODEGEN_PROGRAM_H

#include "codegen/image.h"
#include "codegen/select.h"

/* Rows of a table in the image. */
typedef struct Table {
  size_t at;
  int n;
} Table;

/* A tensor that persists on the ranks [first, end). */
typedef struct HeldTensor {
  const PersistentBuffer *buffer; /* of the first program that has it */
  const ProgramStage *stage;      /* the first one that has it */
  int first, end;
} HeldTensor;

typedef struct ProgramPrinter {
  Text *out;
  Image *image;
  const BundleInput *input;
  VEC(DnnGroup) groups; /* DnnProgram.groups, which lie in the image at: */
  size_t groups_at, queues_at, pairs_at;
  VEC(uint8_t) queues; /* DnnProgram.group_queues */
  VEC(DnnPairs) pairs;
  VEC(HeldTensor *) tensors; /* of all programs, in the order of their tables */
} ProgramPrinter;

/* ---- program.c ---- */

/* Appends the tables of program `i`, and of its plain program: entry points,
 * and the values of the plain one.  Returns its persistent tensors. */
Table program_add_tables(ProgramPrinter *printer, int i);
/* Appends what depends on the program: members of its DnnProgram. */
void program_add_members(ProgramPrinter *printer, int i, Table persistent);
/* Returns the bytes that a rank of the program needs. */
int64_t program_arena_bytes(const RankProgram *program);

/* ---- program_groups.c ---- */

/* Fills in groups and pairs, in the order of their first collectives, and shows
 * the groups in the text. */
void program_collect_groups(ProgramPrinter *printer);
/* Appends the members of groups and pairs, if there are any. */
void program_add_groups(const ProgramPrinter *printer);
/* Returns the row of a group in the table, or its number of rows. */
int program_group_row(const ProgramPrinter *printer, const DnnGroup *group);

/* ---- tensors.c ---- */

DnnRole program_role(Role role);
/* Fills in `tensors`. */
void program_collect_persistent(ProgramPrinter *printer);
Table program_add_persistent(ProgramPrinter *printer,
                             const RankProgram *program);
Table program_add_tensors(ProgramPrinter *printer, const EntryPoint *entry);

/* ---- program_settings.c ---- */

/* Appends a C string literal; NULL becomes 0. */
void program_add_string(Text *out, const char *string);
/* The tables of data blocks, metrics and the sample block. */
void program_add_data(ProgramPrinter *printer);
void program_add_metrics(ProgramPrinter *printer);
void program_add_sample(ProgramPrinter *printer);
/* Appends the member `settings` of the program. */
void program_add_settings(ProgramPrinter *printer);

#endif
