/*
 * program_groups.c -- prints the table of the groups of all collectives, which
 * is the same in all programs of a bundle.
 */
#include <string.h>

#include "codegen/program.h"

static bool group_is_same(const DnnGroup *a, const DnnGroup *b) {
  return memcmp(a, b, sizeof *a) == 0;
}

int program_group_row(const ProgramPrinter *printer, const DnnGroup *group) {
  int row = 0;
  while (row < printer->groups.n &&
         !group_is_same(&printer->groups.data[row], group))
    row++;
  return row;
}

static void collect_groups(ProgramPrinter *printer, const LaunchList *list) {
  for (int i = 0; i < list->n; i++) {
    const Launch *launch = list->data[i];
    if (launch->op != DNN_OP_COLLECTIVE) continue;
    const DnnGroup *group = launch->collective.group;
    if (program_group_row(printer, group) == printer->groups.n)
      vec_push(printer->image->arena, &printer->groups, *group);
  }
}

/* The groups in the order of their first collectives; the text shows what the
 * image holds:
 *
 *     // group 0: ranks 0 to 7, digits 2 x 4, 2 x 1
 */
void program_collect_groups(ProgramPrinter *printer) {
  const BundleInput *input = printer->input;
  for (int i = 0; i < input->ranks->n; i++) {
    const ProgramInput *program = &input->programs[i];
    for (int k = 0; k < program->program->n_entry_points; k++)
      collect_groups(printer, &program->launches[k]);
    if (program->plain) collect_groups(printer, &program->plain->launches);
  }
  printer->groups_at = image_add(printer->image, printer->groups.data,
                                 (size_t)printer->groups.n * sizeof(DnnGroup));
  for (int i = 0; i < printer->groups.n; i++) {
    const DnnGroup *group = &printer->groups.data[i];
    text_printf(printer->out, "// group %d: ranks %d to %d, digits ", i,
                group->first, group->first + group->ranks - 1);
    for (int k = 0; k < group->n_digits; k++)
      text_printf(printer->out, "%s%d x %d", k ? ", " : "",
                  group->digits[k].size, group->digits[k].stride);
    text_add(printer->out, "\n");
  }
}

void program_add_groups(const ProgramPrinter *printer) {
  if (printer->groups.n > 0)
    text_printf(printer->out,
                "  .n_groups = %d, .groups = AT(DnnGroup, %zu),\n",
                printer->groups.n, printer->groups_at);
}
