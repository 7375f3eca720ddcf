// links: runtime support
/*
 * machine.c -- counts the hosts of lists as Slurm writes them; what else is
 * detected is in tests/e2e/clusters.sh, whose environment is another one.
 */
#include "runtime/launch/machine.h"

#include <criterion/criterion.h>

Test(machine, hosts) {
  const struct {
    const char *list;
    int64_t n;
  } rows[] = {
      {"login", 1},
      {"a,b,c", 3},
      {"gpu[01-16,20],login", 18},
      {"gpu[7]", 1},
      {"rack[1-2]node[1-3]", 6},
      {"rack[1-2]-node[1-3,5],x[9-10]y", 10},
      {"n[0-999999]", 1000000},
      /* none of these is a list */
      {"", 0},
      {"a,,b", 0},
      {"a,", 0},
      {"gpu[]", 0},
      {"gpu[1-]", 0},
      {"gpu[3-1]", 0},
      {"gpu[1", 0},
      {"gpu[1;2]", 0},
      {"gpu[x]", 0},
      {"a[0-99999]b[0-99999]", 0},
      {"a[0-99999999999]", 0},
      {"a[99999999999999999999]", 1},
  };
  for (int i = 0; i < ARRAY_LENGTH(rows); i++)
    cr_expect_eq(machine_count_hosts(rows[i].list), rows[i].n, "%s: %lld",
                 rows[i].list, (long long)machine_count_hosts(rows[i].list));
}
