// links: passes ir support
/*
 * Curves go through what was measured, and lie between it elsewhere.
 */
#include "passes/plan/curves.h"

#include <criterion/criterion.h>

static KernelPoint dot(int64_t m, int64_t n, int64_t k, int cores, Ps ps) {
  return (KernelPoint){.op = OP_dot,
                       .dtype = DT_f32,
                       .cores = cores,
                       .batch = 1,
                       .m = m,
                       .n = n,
                       .k = k,
                       .flops = 2.0 * (double)(m * n * k),
                       .ps = ps};
}

static Work work_of(int64_t m, int64_t n, int64_t k) {
  return (Work){.class = WORK_contraction,
                .dtype = DT_f32,
                .batch = 1,
                .m = m,
                .n = n,
                .k = k,
                .flops = 2.0 * (double)(m * n * k)};
}

Test(curves, go_through_points) {
  KernelPoint points[] = {dot(64, 64, 64, 1, 1000000),
                          dot(512, 512, 512, 1, 200000000)};
  Curves curves = {.n_kernels = 2, .kernels = points};
  Work small = work_of(64, 64, 64), large = work_of(512, 512, 512);
  Ps at_small = curves_kernel(&curves, OP_dot, &small, 1);
  Ps at_large = curves_kernel(&curves, OP_dot, &large, 1);
  cr_assert(at_small > 999000 && at_small < 1001000, "%lld",
            (long long)at_small);
  cr_assert(at_large > 199900000 && at_large < 200100000, "%lld",
            (long long)at_large);
}

Test(curves, rates_between_are_between) {
  KernelPoint points[] = {dot(64, 64, 64, 1, 1000000),
                          dot(512, 512, 512, 1, 200000000)};
  Curves curves = {.n_kernels = 2, .kernels = points};
  double slow = points[0].flops / 1000000, fast = points[1].flops / 200000000;
  double before = slow;
  for (int64_t n = 64; n <= 512; n += 64) {
    Work work = work_of(n, n, n);
    double rate = work.flops / (double)curves_kernel(&curves, OP_dot, &work, 1);
    cr_assert(rate >= before * 0.999 && rate <= fast * 1.001, "%lld: %g",
              (long long)n, rate);
    before = rate;
  }
}

Test(curves, other_cores_are_scaled) {
  KernelPoint points[] = {dot(64, 64, 64, 1, 1000000),
                          dot(64, 64, 64, 4, 400000)};
  Curves curves = {.n_kernels = 2, .kernels = points};
  Work work = work_of(64, 64, 64);
  Ps on_four = curves_kernel(&curves, OP_dot, &work, 4);
  Ps on_eight = curves_kernel(&curves, OP_dot, &work, 8);
  cr_assert(on_four > 399000 && on_four < 401000);
  cr_assert(on_eight > 199000 && on_eight < 201000);
  cr_assert_eq(curves_kernel(&curves, OP_conv, &work, 4), -1);
  work.dtype = DT_bf16;
  cr_assert_eq(curves_kernel(&curves, OP_dot, &work, 4), -1);
}

Test(curves, bytes_count_where_nothing_is_contracted) {
  KernelPoint point = {.op = OP_fused,
                       .dtype = DT_f32,
                       .cores = 1,
                       .flops = 1000,
                       .bytes = 8000,
                       .ps = 2000000};
  Curves curves = {.n_kernels = 1, .kernels = &point};
  Work work = {.dtype = DT_f32, .flops = 3000, .read = 16000, .written = 8000};
  Ps ps = curves_kernel(&curves, OP_fused, &work, 1);
  cr_assert(ps > 5990000 && ps < 6010000, "%lld", (long long)ps);
}

Test(curves, links_are_linear_between_sizes) {
  LinkPoint points[] = {{OP_all_reduce, 2, 1, 1000, 5000, 0, 0},
                        {OP_all_reduce, 2, 1, 3000, 9000, 18000, 250},
                        {OP_all_reduce, 4, 1, 1000, 7000, 0, 0}};
  Curves curves = {.n_links = 3, .links = points};
  LinkPoint at;
  cr_assert(curves_link(&curves, OP_all_reduce, 2, 2000, &at));
  cr_assert_eq(at.ps, 7000);
  cr_assert_eq(at.taken, 250);
  cr_assert(curves_link(&curves, OP_all_reduce, 2, 0, &at));
  cr_assert_eq(at.ps, 5000);
  cr_assert(curves_link(&curves, OP_all_reduce, 2, 6000, &at));
  cr_assert_eq(at.ps, 18000);
  cr_assert(curves_link(&curves, OP_all_reduce, 8, 1000, &at));
  cr_assert_eq(at.ps, 7000);
  cr_assert_not(curves_link(&curves, OP_all_gather, 2, 1000, &at));
}
