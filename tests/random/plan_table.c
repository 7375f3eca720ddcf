/*
 * plan_table.c -- counts what a run of random plans has seen: answers, rules
 * that refused, lines of accepted plans and collectives.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/random/plans.h"

enum { MOST_RULES = 64, RULE_LENGTH = 120 };

typedef struct RuleCount {
  char text[RULE_LENGTH];
  int n;
  unsigned long long seed; /* of the first plan */
} RuleCount;

struct PlanTable {
  int n_equal, n_refused, n_not_compared, n_identities, n_noise, n_failed;
  unsigned long long first_identity, first_noise; /* their seeds */
  int lines[N_LINES];                             /* of accepted plans */
  int collectives[N_OPS], plans_with[N_OPS];      /* of accepted plans */
  int latest[N_OPS];                              /* of the latest check */
  RuleCount rules[MOST_RULES];
};

PlanTable *plan_table(void) {
  static PlanTable *table;
  if (table) return table;
  table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (table == MAP_FAILED) abort();
  return table;
}

void plan_table_collectives(PlanTable *table, Op op, int n) {
  table->latest[op] = n;
}

/* The text of the first error without names, numbers and dims. */
static void rule_of(const char *message, char out[RULE_LENGTH]) {
  const char *at = strstr(message, "error: ");
  bool is_quoted = false, is_type = false;
  int n = 0;
  for (at = at ? at + 7 : message; *at && *at != '\n'; at++) {
    bool is_digit = *at >= '0' && *at <= '9';
    if (*at == '\'') is_quoted = !is_quoted;
    if (*at == ']') is_type = false;
    bool counts = !is_digit && !is_type && (!is_quoted || *at == '\'');
    if (n < RULE_LENGTH - 1 && counts) out[n++] = *at;
    if (*at == '[') is_type = true;
  }
  out[n] = 0;
}

static void count_rule(PlanTable *table, uint64_t seed, const char *message) {
  char rule[RULE_LENGTH];
  rule_of(message, rule);
  for (int i = 0; i < MOST_RULES; i++) {
    RuleCount *count = &table->rules[i];
    if (count->n > 0 && strcmp(count->text, rule)) continue;
    memcpy(count->text, rule, sizeof rule);
    if (count->n++ == 0) count->seed = seed;
    return;
  }
}

static void count_first(int *n, unsigned long long *first, uint64_t seed) {
  if ((*n)++ == 0) *first = seed;
}

void plan_table_add(PlanTable *table, uint64_t seed, const char *answer,
                    const int lines[N_LINES], const char *message) {
  if (answer == plan_refused) {
    table->n_refused++;
    count_rule(table, seed, message);
    return;
  }
  if (!answer)
    table->n_equal++;
  else if (answer == plan_not_compared)
    table->n_not_compared++;
  else if (answer == plan_identity)
    count_first(&table->n_identities, &table->first_identity, seed);
  else if (answer == plan_noise)
    count_first(&table->n_noise, &table->first_noise, seed);
  else
    table->n_failed++;
  for (int i = 0; i < N_LINES; i++) table->lines[i] += lines[i];
  for (int op = 0; op < N_OPS; op++) {
    table->collectives[op] += table->latest[op];
    table->plans_with[op] += table->latest[op] > 0;
  }
}

static const char *const abouts[] = {
#define LINE(name, about) about,
#include "tests/random/plan_lines.def"
};

static int count_accepted(const PlanTable *table) {
  return table->n_equal + table->n_not_compared + table->n_identities +
         table->n_noise + table->n_failed;
}

void plan_table_print(const PlanTable *table) {
  int accepted = count_accepted(table), all = accepted + table->n_refused;
  printf("%d plans, %.1f %% accepted: %d equal, %d wrong\n"
         "  %d equal but not finite, %d equal by an identity that exact mode "
         "does not keep (first seed %llu), %d equal in exact mode alone (first "
         "seed %llu)\n",
         all, all ? 100.0 * accepted / all : 0, table->n_equal, table->n_failed,
         table->n_not_compared, table->n_identities, table->first_identity,
         table->n_noise, table->first_noise);
  printf("lines of accepted plans:\n");
  for (int i = 0; i < N_LINES; i++)
    printf("  %6d  %s\n", table->lines[i], abouts[i]);
  printf("collectives, and plans that have them:\n");
  for (int op = 0; op < N_OPS; op++)
    if (op_has((Op)op, OP_FLAG_group))
      printf("  %6d %6d  %s\n", table->collectives[op], table->plans_with[op],
             op_info((Op)op)->name);
  printf("refused by, with the seed of the first:\n");
  for (int i = 0; i < MOST_RULES && table->rules[i].n > 0; i++)
    printf("  %6d %6llu  %s\n", table->rules[i].n, table->rules[i].seed,
           table->rules[i].text);
}

bool plan_table_is_complete(const PlanTable *table) {
  enum { LEAST = 10 };
  int accepted = count_accepted(table), all = accepted + table->n_refused;
  bool is_complete = 10 * accepted >= 9 * all;
  if (!is_complete) printf("too few: %d of %d accepted\n", accepted, all);
  for (int i = 0; i < N_LINES; i++) {
    if (table->lines[i] >= LEAST) continue;
    printf("too few: %d  %s\n", table->lines[i], abouts[i]);
    is_complete = false;
  }
  for (int op = 0; op < N_OPS; op++) {
    if (!op_has((Op)op, OP_FLAG_group) || table->plans_with[op] >= LEAST)
      continue;
    printf("too few: %d plans with %s\n", table->plans_with[op],
           op_info((Op)op)->name);
    is_complete = false;
  }
  return is_complete;
}
