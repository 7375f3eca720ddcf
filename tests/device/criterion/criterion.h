/*
 * criterion.h -- stands in for Criterion where it is not installed, as on a
 * machine that has little but a GPU: the macros that tests/unit/cuda.c uses,
 * and a main program that runs each test in a process of its own.
 */
#ifndef TESTS_DEVICE_CRITERION_H
#define TESTS_DEVICE_CRITERION_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Criterion's macros may be called without their last arguments, too. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wgnu-zero-variadic-macro-arguments"
#endif

typedef struct DeviceTest {
  const char *name;
  void (*run)(void);
} DeviceTest;

static DeviceTest device_tests[64];
static int n_device_tests, n_device_failures;

static inline void device_failed(const char *file, int line,
                                 const char *condition) {
  n_device_failures++;
  fprintf(stderr, "%s:%d: %s", file, line, condition);
}

#define DEVICE_CHECK(condition, ends, ...)                                     \
  do {                                                                         \
    if (!(condition)) {                                                        \
      device_failed(__FILE__, __LINE__, #condition);                           \
      fprintf(stderr, ": " __VA_ARGS__);                                       \
      fputc('\n', stderr);                                                     \
      if (ends) _exit(1);                                                      \
    }                                                                          \
  } while (0)
#define cr_assert(condition, ...) DEVICE_CHECK(condition, 1, __VA_ARGS__)
#define cr_expect(condition, ...) DEVICE_CHECK(condition, 0, __VA_ARGS__)
#define cr_assert_eq(a, b, ...)   DEVICE_CHECK((a) == (b), 1, __VA_ARGS__)
#define cr_assert_lt(a, b, ...)   DEVICE_CHECK((a) < (b), 1, __VA_ARGS__)
#define cr_assert_gt(a, b, ...)   DEVICE_CHECK((a) > (b), 1, __VA_ARGS__)
#define cr_expect_eq(a, b, ...)   DEVICE_CHECK((a) == (b), 0, __VA_ARGS__)
#define cr_expect_leq(a, b, ...)  DEVICE_CHECK((a) <= (b), 0, __VA_ARGS__)
#define cr_expect_geq(a, b, ...)  DEVICE_CHECK((a) >= (b), 0, __VA_ARGS__)
#define cr_assert_fail(...)       DEVICE_CHECK(0, 1, __VA_ARGS__)

#define TestSuite(suite, ...)     extern int device_suite_##suite
#define Test(suite, name, ...)                                                 \
  static void test_##name(void);                                               \
  __attribute__((constructor)) static void device_add_##name(void) {           \
    device_tests[n_device_tests++] = (DeviceTest){#name, test_##name};         \
  }                                                                            \
  static void test_##name(void)

/* Arguments: the tests to run, or none for all. */
int main(int argc, char **argv) {
  int n_run = 0, n_bad = 0;
  for (int i = 0; i < n_device_tests; i++) {
    bool is_chosen = argc == 1;
    for (int k = 1; k < argc; k++)
      is_chosen |= strcmp(argv[k], device_tests[i].name) == 0;
    if (!is_chosen) continue;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      device_tests[i].run();
      fflush(NULL);
      _exit(n_device_failures > 0);
    }
    int status;
    bool is_bad = child < 0 || waitpid(child, &status, 0) < 0 || status != 0;
    printf("%s: %s\n", device_tests[i].name, is_bad ? "FAILED" : "passed");
    n_run++;
    n_bad += is_bad;
  }
  printf("%d tests, %d failed\n", n_run, n_bad);
  return n_run == 0 || n_bad > 0;
}

#endif
