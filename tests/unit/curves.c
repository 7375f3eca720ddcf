// links: price passes ir support
/*
 * curves.c -- tests that curves go through what was measured and lie between it
 * elsewhere.  Reads tables and compares what they hold, or the messages, with
 * goldens:
 *
 *   tests/golden/curves/KIND_NAME.csv   KIND is a row of curves.def
 *
 * DNNC_BLESS=1 writes what is printed now.
 */
#include "price/curves.h"
#include "tests/unit/values.h"

#include <glob.h>

static KernelPoint dot(int64_t m, int64_t n, int64_t k, int cores, Ps ps) {
  return (KernelPoint){.op = OP_dot,
                       .dtype = DT_f32,
                       .cores = cores,
                       .batch = 1,
                       .m = m,
                       .n = n,
                       .k = k,
                       .flops = 2.0 * (double)(m * n * k),
                       .bytes = 4 * (m * k + k * n + m * n),
                       .ps = ps};
}

static Work work_of(int64_t m, int64_t n, int64_t k) {
  return (Work){.class = WORK_contraction,
                .dtype = DT_f32,
                .batch = 1,
                .m = m,
                .n = n,
                .k = k,
                .flops = 2.0 * (double)(m * n * k),
                .read = 4 * (m * k + k * n),
                .written = 4 * m * n};
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

/* Four times the rows take longer, but not four times as long where reading the
 * weights takes most of the time. */
Test(curves, weights_count_for_few_rows) {
  KernelPoint points[] = {dot(4, 1024, 1024, 1, 423000000),
                          dot(512, 512, 512, 1, 2680000000)};
  Curves curves = {.n_kernels = 2, .kernels = points};
  Work work = work_of(16, 1024, 1024);
  Ps ps = curves_kernel(&curves, OP_dot, &work, 1);
  cr_assert(ps > 423000000 && ps < 2 * 423000000LL, "%lld", (long long)ps);
}

/* A convolution that multiplies nothing with padding is like another such one,
 * and has more to do than one with as many positions. */
Test(curves, padding_is_no_work) {
  KernelPoint padded = dot(64, 64, 64, 1, 600000), whole = padded;
  padded.op = whole.op = OP_conv;
  padded.flops *= 0.75;
  whole.ps = 1500000;
  Work with_padding = work_of(64, 64, 64), without = with_padding;
  with_padding.padding = with_padding.flops / 4;
  KernelPoint points[] = {padded, whole};
  Curves curves = {.n_kernels = 2, .kernels = points};
  Ps ps = curves_kernel(&curves, OP_conv, &with_padding, 1);
  cr_assert(ps > 594000 && ps < 606000, "%lld", (long long)ps);
  ps = curves_kernel(&curves, OP_conv, &without, 1);
  cr_assert(ps > 1485000 && ps < 1515000, "%lld", (long long)ps);
  curves.n_kernels = 1;
  ps = curves_kernel(&curves, OP_conv, &without, 1);
  cr_assert(ps > 799000 && ps < 801000, "%lld", (long long)ps);
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
  LinkPoint points[] = {{OP_all_reduce, 2, 1, 1000, 5000, 0, 0, 0},
                        {OP_all_reduce, 2, 1, 3000, 9000, 18000, 250, 0},
                        {OP_all_reduce, 4, 1, 1000, 7000, 0, 0, 0},
                        {OP_all_reduce, 2, 2, 1000, 90000, 0, 0, 0}};
  Curves curves = {.n_links = 4, .links = points};
  LinkPoint at;
  cr_assert(curves_link(&curves, OP_all_reduce, REACH_inside, 2, 2000, &at));
  cr_assert_eq(at.ps, 7000);
  cr_assert(curves_link(&curves, OP_all_reduce, REACH_inside, 2, 0, &at));
  cr_assert_eq(at.ps, 5000);
  cr_assert(curves_link(&curves, OP_all_reduce, REACH_inside, 2, 6000, &at));
  cr_assert_eq(at.ps, 18000);
  cr_assert(curves_link(&curves, OP_all_reduce, REACH_inside, 8, 1000, &at));
  cr_assert_eq(at.ps, 7000);
  cr_assert(curves_link(&curves, OP_all_reduce, REACH_between, 4, 2000, &at));
  cr_assert_eq(at.ps, 180000);
  cr_assert_not(
      curves_link(&curves, OP_all_gather, REACH_inside, 2, 1000, &at));
}

Test(curves, beside_computation_the_most_alike_counts) {
  LinkPoint points[] = {{OP_all_reduce, 2, 1, 1000, 5000, 0, 0, 0},
                        {OP_all_gather, 2, 1, 9000, 9000, 36000, 100, 0},
                        {OP_all_reduce, 2, 1, 2000, 9000, 18000, 250, 0},
                        {OP_all_reduce, 2, 1, 9000, 9000, 90000, 90, 0},
                        {OP_all_reduce, 8, 1, 9000, 9000, 90000, 80, 0},
                        {OP_all_reduce, 2, 2, 100, 9000, 90000, 70, 0}};
  Curves curves = {.n_links = 6, .links = points};
  LinkPoint like;
  cr_assert(curves_beside(&curves, OP_all_reduce, REACH_inside, 2, 100, &like));
  cr_assert_eq(like.taken, 250);
  cr_assert(
      curves_beside(&curves, OP_all_reduce, REACH_inside, 2, 50000, &like));
  cr_assert_eq(like.taken, 90);
  cr_assert(curves_beside(&curves, OP_all_gather, REACH_inside, 2, 100, &like));
  cr_assert_eq(like.taken, 100);
  cr_assert(curves_beside(&curves, OP_permute, REACH_inside, 2, 2000, &like));
  cr_assert_eq(like.taken, 250);
  cr_assert(curves_beside(&curves, OP_all_reduce, REACH_inside, 6, 100, &like));
  cr_assert_eq(like.taken, 80);
  cr_assert(
      curves_beside(&curves, OP_all_reduce, REACH_between, 8, 9000, &like));
  cr_assert_eq(like.taken, 70);
  curves.n_links = 1;
  cr_assert_not(
      curves_beside(&curves, OP_all_reduce, REACH_inside, 2, 1000, &like));
}

/* ---- files ---- */

static const char *points_of(Module *module, const Curves *curves) {
  Text out = text_create(module->arena);
  for (int i = 0; i < curves->n_kernels; i++) {
    const KernelPoint *p = &curves->kernels[i];
    text_printf(&out,
                "%s %s on %d cores: %lld x [%lld, %lld, %lld], %.0f "
                "operations, %lld bytes, %lld ps\n",
                op_info(p->op)->name, dtype_name(p->dtype), p->cores,
                (long long)p->batch, (long long)p->m, (long long)p->n,
                (long long)p->k, p->flops, (long long)p->bytes,
                (long long)p->ps);
  }
  for (int i = 0; i < curves->n_links; i++) {
    const LinkPoint *p = &curves->links[i];
    text_printf(&out,
                "%s of %d ranks on %d nodes: %lld bytes, %lld ps, %lld "
                "beside, %lld taken, %lld following\n",
                op_info(p->op)->name, p->ranks, p->nodes, (long long)p->bytes,
                (long long)p->ps, (long long)p->beside, (long long)p->taken,
                (long long)p->following);
  }
  return text_string(&out);
}

/* Between two sizes both times are linear; beyond the largest a message gains
 * as much as that one.  Where one of two lacks the time after another message,
 * so does what lies between. */
Test(curves, time_after_another_message) {
  LinkPoint points[] = {
      {OP_all_reduce, 2, 1, 1000, .ps = 50000, .following = 20000},
      {OP_all_reduce, 2, 1, 3000, .ps = 70000, .following = 60000},
      {OP_all_gather, 2, 1, 1000, .ps = 50000, .following = 20000},
      {OP_all_gather, 2, 1, 3000, .ps = 70000}};
  Curves curves = {.n_links = 4, .links = points};
  LinkPoint at;
  cr_assert(curves_link(&curves, OP_all_reduce, REACH_inside, 2, 2000, &at));
  cr_expect_eq(at.ps, 60000);
  cr_expect_eq(at.following, 40000);
  cr_assert(curves_link(&curves, OP_all_reduce, REACH_inside, 2, 6000, &at));
  cr_expect_eq(at.ps, 140000);
  cr_expect_eq(at.following, 130000);
  cr_assert(curves_link(&curves, OP_all_gather, REACH_inside, 2, 2000, &at));
  cr_expect_eq(at.following, 0);
}

static const char *outcome(Module *module, const char *path) {
  Source *source = ARENA_NEW(module->arena, Source);
  const char *name = strrchr(path, '/') + 1;
  source->path = name;
  cr_assert(
      file_read(module->arena, path, 1 << 20, &source->text, &source->n).code ==
      STATUS_ok);
  CurveKind kind = curve_find(
      arena_printf(module->arena, "%.*s", (int)strcspn(name, "_"), name));
  cr_assert_neq(kind, N_CURVES);
  Curves curves = {0};
  bool is_right =
      curves_read(module->arena, module->diags, source, kind, &curves);
  cr_expect_eq(!is_right, diags_errors(module->diags) > 0);
  if (is_right) return points_of(module, &curves);
  Text out = text_create(module->arena);
  diags_print(module->diags, &out);
  return text_string(&out);
}

Test(curves, goldens, .fini = modules_destroy) {
  glob_t files;
  cr_assert_eq(glob(TEST_ROOT "/tests/golden/curves/*.csv", 0, NULL, &files),
               0);
  for (size_t i = 0; i < files.gl_pathc; i++) {
    Module *module = module_create();
    const char *path = files.gl_pathv[i], *want = "";
    size_t n;
    const char *got = outcome(module, path);
    char *golden = arena_strdup(module->arena, path);
    strcpy(strrchr(golden, '.'), ".txt");
    if (getenv("DNNC_BLESS")) {
      file_replace(golden, got, strlen(got));
    } else {
      file_read(module->arena, golden, 1 << 20, &want, &n);
      cr_expect_str_eq(got, want, "%s: got\n%s", path, got);
    }
  }
  cr_expect_gt(files.gl_pathc, 20);
  globfree(&files);
}
