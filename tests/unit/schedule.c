// links: price passes ir support
/*
 * schedule.c -- tests that schedules as lists of actions take as long on the
 * simulator, and keep as many micro-batches alive, as published formulas and
 * tables say.
 */
#include "price/schedule_list.h"
#include "tests/unit/values.h"

#include <string.h>

TestSuite(schedule, .fini = modules_destroy);

static const ScheduleTimes unit_times = {1, 1, 1};

typedef struct Played {
  const ScheduleList *list; /* NULL: there were messages */
  SimResult result;
  const char *messages;
} Played;

static Played play(Module *module, const char *text, size_t n) {
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){"list.csv", text, n};
  Played played = {.list = schedule_list_read(module->arena, module->diags,
                                              source, &unit_times)};
  Text messages = text_create(module->arena);
  diags_print(module->diags, &messages);
  played.messages = text_string(&messages);
  if (played.list)
    played.result =
        simulate(module->arena, &played.list->program, 1, NULL, NULL);
  return played;
}

/* ---- formulas ---- */

static void add_backward(Text *text, int stage, int m) {
  text_printf(text, "%dB%d,", stage, m);
}

/* GPipe (Huang et al. 2019): all forward passes, then all backward passes. */
static void add_gpipe(Text *text, int p, int m) {
  for (int s = 0; s < p; s++) {
    for (int i = 0; i < m; i++) text_printf(text, "%dF%d,", s, i);
    for (int i = 0; i < m; i++) add_backward(text, s, i);
    text_add(text, "\n");
  }
}

/* 1F1B (Narayanan et al. 2019): stage s is p - s micro-batches ahead. */
static void add_1f1b(Text *text, int p, int m) {
  for (int s = 0; s < p; s++) {
    int ahead = p - s < m ? p - s : m;
    for (int i = 0; i < ahead; i++) text_printf(text, "%dF%d,", s, i);
    for (int i = 0; i < m; i++) {
      add_backward(text, s, i);
      if (ahead + i < m) text_printf(text, " %dF%d,", s, ahead + i);
    }
    text_add(text, "\n");
  }
}

/* A backward pass takes twice a forward pass: both take 3 (m + p - 1), and hold
 * m, or p - s, micro-batches. */
Test(schedule, formulas) {
  for (int p = 1; p <= 6; p++)
    for (int m = 1; m <= 12; m++)
      for (int is_1f1b = 0; is_1f1b < 2; is_1f1b++) {
        Module *module = module_create();
        Text text = text_create(module->arena);
        (is_1f1b ? add_1f1b : add_gpipe)(&text, p, m);
        Played played = play(module, text_string(&text), text.n);
        cr_assert(played.list, "%s", played.messages);
        cr_expect_eq(played.result.step, 3 * (m + p - 1), "p %d m %d: %d", p, m,
                     (int)played.result.step);
        for (int s = 0; s < p; s++) {
          int ahead = p - s < m ? p - s : m;
          cr_expect_eq(played.list->work[s], 3 * m);
          cr_expect_eq(played.list->peak_live[s], is_1f1b ? ahead : m);
        }
        modules_destroy();
      }
}

/* Three times of one list; the tail of I and W is what B was. */
Test(schedule, times_of_the_parts) {
  Module *module = module_create();
  static const char text[] = "0F0,0I0,0W0\n1F0,1I0,1W0\n";
  ScheduleTimes times = {5, 7, 11};
  Source source = {"list.csv", text, sizeof text - 1};
  ScheduleList *list =
      schedule_list_read(module->arena, module->diags, &source, &times);
  SimResult result = simulate(module->arena, &list->program, 1, NULL, NULL);
  cr_expect_eq(result.step, 5 + 5 + 7 + 7 + 11);
  cr_expect_eq(*result.classes[1].step_ends, 5 + 5 + 7 + 11);
}

/* Parts of one action end together. */
Test(schedule, parts_end_together) {
  Module *module = module_create();
  static const char text[] = "0F0,0F1,(0B0;0F2)OVERLAP_F_B,0B1,0B2\n"
                             "1F0,1B0,1F1,1F2,1B1,1B2\n";
  Played played = play(module, text, sizeof text - 1);
  cr_assert(played.list, "%s", played.messages);
  /* 1F2 begins when 0B0 and 0F2 have ended, at 4 + 3 */
  cr_expect_eq(played.result.step, 14, "%d", (int)played.result.step);
}

/* ---- published lists, where the shared data is there ---- */

static const char *file_text(Arena *arena, const char *path, size_t *n) {
  const char *text;
  Status status = file_read(arena, path, 1 << 24, &text, n);
  return status.code == STATUS_ok ? text : NULL;
}

static void check_row(const char *folder, char *row) {
  Module *module = module_create();
  char *fields[16];
  int n_fields = 0;
  for (char *at = row; at && n_fields < 16;) {
    fields[n_fields++] = at;
    at = strchr(at, ',');
    if (at) *at++ = '\0';
  }
  cr_assert(n_fields > 10);
  size_t n;
  const char *text =
      file_text(module->arena,
                arena_printf(module->arena, "%s/%s", folder, fields[0]), &n);
  if (!text) return; /* a row without a list */
  Played played = play(module, text, n);
  cr_assert(played.list, "%s: %s", fields[0], played.messages);
  cr_expect(!played.result.is_stuck, "%s", fields[0]);
  cr_expect_eq(played.result.step, atoi(fields[6]), "%s: %d, not %s", fields[0],
               (int)played.result.step, fields[6]);
  char *peak = fields[10];
  for (int r = 0; r < played.list->n_ranks; r++)
    cr_expect_eq(played.list->peak_live[r], strtol(peak, &peak, 10), "%s",
                 fields[0]);
}

Test(schedule, published_lists) {
  const char *folder = TEST_ROOT "/../shared/data/schedules";
  Module *module = module_create();
  size_t n;
  const char *table = file_text(
      module->arena, arena_printf(module->arena, "%s/metrics.csv", folder), &n);
  if (!table) {
    cr_skip("skipped: no ../shared/data/schedules/metrics.csv");
    return;
  }
  int n_rows = 0;
  char *rows = arena_strdup(module->arena, table);
  for (char *row = strtok(rows, "\n"); row; row = strtok(NULL, "\n"))
    if (n_rows++ > 0) check_row(folder, row);
  cr_expect_gt(n_rows, 30);
}

/* ---- wrong lists ---- */

Test(schedule, wrong_lists) {
  static const struct {
    const char *list, *message;
  } cases[] = {
      {"", "list.csv: error: the schedule has no action"},
      {"\n,,\n", "list.csv: error: the schedule has no action"},
      {"0SEND_F0\n", "list.csv: error: the schedule has no action"},
      {"0F0,x\n",
       "list.csv:1:5: error: 'x' of the schedule: it is not a stage"},
      {"0F0,0G0\n", "list.csv:1:5: error: '0G0' of the schedule: it is not"},
      {"0F0,0F\n", "list.csv:1:5: error: '0F' of the schedule: it is not"},
      {"0F0,0F0x\n", "list.csv:1:5: error: '0F0x' of the schedule: it is not"},
      {"0F0,0123456789012345678901234567890123456789x\n",
       "list.csv:1:5: error: '0123456789012345678901234567890123456789...' of"},
      {"0F99999999999\n", "list.csv:1:1: error: '0F99999999999' of the"},
      {"0F0,0B0,0F0\n", "list.csv:1:9: error: '0F0' of the schedule: it is "
                        "there twice"},
      {"(0F0;0B0)TOGETHER\n", "list.csv:1:1: error: '(0F0;0B0)TOGETHER' of the "
                              "schedule: it does not end in )OVERLAP_F_B"},
      {"(0F0;)OVERLAP_F_B\n", "list.csv:1:6: error: '' of the schedule: it is "
                              "not a stage"},
      {"0B0,0F0\n", "list.csv:1:1: error: '0B0' of the schedule: it runs "
                    "before 0F0, which it needs"},
      {"0F0\n1B0\n", "list.csv:2:1: error: '1B0' of the schedule: no rank runs "
                     "1F0, which it needs"},
      {"0F0,0W0\n", "list.csv:1:5: error: '0W0' of the schedule: no rank runs "
                    "0I0, which it needs"},
      {"1F0\n", "list.csv:1:1: error: '1F0' of the schedule: no rank runs "
                "0F0, which it needs"},
  };
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Module *module = module_create();
    Played played = play(module, cases[i].list, strlen(cases[i].list));
    cr_expect_null(played.list, "%s", cases[i].list);
    cr_expect(strncmp(played.messages, cases[i].message,
                      strlen(cases[i].message)) == 0,
              "%s: %s", cases[i].list, played.messages);
  }
}

/* Each rank waits for what the other one runs later. */
Test(schedule, a_list_that_never_ends) {
  static const char text[] = "0F0,3F0\n1F0,2F0\n";
  static const char wrong[] = "3F0,0F0\n1F0,2F0\n";
  Module *module = module_create();
  cr_expect(!play(module, text, sizeof text - 1).result.is_stuck);
  Played played = play(module, wrong, sizeof wrong - 1);
  cr_assert(played.list, "%s", played.messages);
  cr_assert(played.result.is_stuck);
  cr_expect_geq(played.result.classes[0].waits_for, 0);
}
