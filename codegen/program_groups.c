/*
 * program_groups.c -- prints the tables of the groups of all collectives, and
 * of the pairs of ranks that send messages, which are the same in all programs
 * of a bundle.
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

/* Messages between each of some ranks and the rank that is so much higher. */
static void add_pairs(ProgramPrinter *printer, bool is_send, int first, int n,
                      int peer) {
  DnnPairs pairs = {.first = is_send ? first : first + peer,
                    .ranks = n,
                    .peer = is_send ? peer : -peer};
  for (int i = 0; i < printer->pairs.n; i++)
    if (memcmp(&printer->pairs.data[i], &pairs, sizeof pairs) == 0) return;
  vec_push(printer->image->arena, &printer->pairs, pairs);
}

/* Messages from the ranks of a program, or to them. */
static void collect_pairs(ProgramPrinter *printer, const DnnCollective *what,
                          int first, int end) {
  bool is_send = what->kind == DNN_SEND;
  for (int i = 0; i < what->n_pieces; i++)
    add_pairs(printer, is_send, what->pieces[i].rank, 1, what->pieces[i].peer);
  if (!what->pieces)
    add_pairs(printer, is_send, first, end - first, what->peer);
}

/* `first` and `end`: the ranks that run it. */
static void collect_groups(ProgramPrinter *printer, const LaunchList *list,
                           int first, int end) {
  for (int i = 0; i < list->n; i++) {
    const Launch *launch = list->data[i];
    if (launch->op != DNN_OP_COLLECTIVE) continue;
    if (!launch->collective.group) {
      collect_pairs(printer, &launch->collective, first, end);
      continue;
    }
    const DnnGroup *group = launch->collective.group;
    int row = program_group_row(printer, group);
    if (row == printer->groups.n) {
      vec_push(printer->image->arena, &printer->groups, *group);
      vec_push(printer->image->arena, &printer->queues, 0);
    }
    printer->queues.data[row] |= (uint8_t)(1 << launch->collective.queue);
  }
}

static void collect_of_row(ProgramPrinter *printer, const DnnRankRow *row,
                           int end) {
  const ProgramInput *program = &printer->input->programs[row->program];
  for (int i = 0; i < program->program->n_entry_points; i++)
    collect_groups(printer, &program->launches[i], row->first, end);
  if (program->plain)
    collect_groups(printer, &program->plain->launches, row->first, end);
}

/* Workers and servers send each other messages. */
static void collect_servers(ProgramPrinter *printer) {
  const PlanServers *servers = &printer->input->options->servers;
  for (int s = 0; s < servers->n; s++)
    for (int w = 0; w < servers->first_rank; w++) {
      int peer = servers->first_rank + s - w;
      add_pairs(printer, true, w, 1, peer);
      add_pairs(printer, false, w, 1, peer);
    }
}

/* The groups in the order of their first collectives; the text shows what the
 * image holds:
 *
 *     // group 0: ranks 0 to 7, digits 2 x 4, 2 x 1
 */
void program_collect_groups(ProgramPrinter *printer) {
  const BundleInput *input = printer->input;
  for (int i = 0; i < input->ranks->n_rows; i++) {
    bool is_last = i + 1 == input->ranks->n_rows;
    int end = is_last ? input->options->ranks : input->ranks->rows[i + 1].first;
    collect_of_row(printer, &input->ranks->rows[i], end);
  }
  collect_servers(printer);
  printer->groups_at = image_add(printer->image, printer->groups.data,
                                 (size_t)printer->groups.n * sizeof(DnnGroup));
  printer->queues_at = image_add(printer->image, printer->queues.data,
                                 (size_t)printer->queues.n);
  printer->pairs_at = image_add(printer->image, printer->pairs.data,
                                (size_t)printer->pairs.n * sizeof(DnnPairs));
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
    text_printf(
        printer->out,
        "  .n_groups = %d, .groups = AT(DnnGroup, %zu), .group_queues = "
        "AT(uint8_t, %zu),\n",
        printer->groups.n, printer->groups_at, printer->queues_at);
  if (printer->pairs.n > 0)
    text_printf(printer->out, "  .n_pairs = %d, .pairs = AT(DnnPairs, %zu),\n",
                printer->pairs.n, printer->pairs_at);
}
