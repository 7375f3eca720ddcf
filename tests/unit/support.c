// links: support
/*
 * support.c -- tests support.h: known answers of the hashes and generators, and
 * the promises of containers, texts, messages and files.
 */
#include "support/support.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

static _Noreturn void no_memory(void *user) {
  (void)user;
  abort();
}

static Arena *new_arena(Memory **out_memory) {
  *out_memory = memory_create(no_memory, NULL);
  return arena_create(*out_memory);
}

/* ---- memory ---- */

typedef struct Failure {
  jmp_buf back;
  Memory *memory;
} Failure;

static _Noreturn void give_back(void *user) {
  Failure *failure = user;
  memory_destroy(failure->memory);
  longjmp(failure->back, 1);
}

Test(memory, zeroed_and_aligned) {
  Memory *memory;
  Arena *arena = new_arena(&memory);
  for (size_t n = 0; n < 3000; n += 37) {
    unsigned char *bytes = arena_alloc(arena, n);
    cr_assert_eq((uintptr_t)bytes % 16, 0);
    for (size_t i = 0; i < n; i++) cr_assert_eq(bytes[i], 0);
    if (n) memset(bytes, 0xff, n);
  }
  Arena *second = arena_create(memory);
  char *large = arena_alloc(second, 5 << 20);
  large[(5 << 20) - 1] = 1;
  arena_destroy(arena); /* the second is freed with the memory */
  memory_destroy(memory);
}

Test(memory, fails_when_told) {
  Failure failure;
  failure.memory = memory_create(give_back, &failure);
  Arena *arena = arena_create(failure.memory);
  memory_fail_at(failure.memory, 1, false);
  if (setjmp(failure.back) == 0) {
    arena_alloc(arena, 1 << 20);
    cr_assert_eq(memory_requests(failure.memory), 2);
    arena_alloc(arena, 1 << 20);
    cr_assert_fail("the second request should have failed");
  }
}

Test(memory, ends_at_a_limit) {
  Failure failure;
  failure.memory = memory_create(give_back, &failure);
  memory_limit(failure.memory, 3 << 20);
  for (int i = 0; i < 4; i++) { /* what is freed counts no more */
    Arena *arena = arena_create(failure.memory);
    arena_alloc(arena, 2 << 20);
    arena_destroy(arena);
  }
  Arena *arena = arena_create(failure.memory);
  arena_alloc(arena, 2 << 20);
  cr_assert(!memory_is_at_limit(failure.memory));
  if (setjmp(failure.back) == 0) {
    arena_alloc(arena, 2 << 20);
    cr_assert_fail("the request should have failed");
  }
}

Test(memory, an_arena_adopts_another) {
  Memory *memory;
  Arena *arena = new_arena(&memory);
  char *first = arena_strdup(arena, "first");
  arena_adopt(arena, arena_beside(arena)); /* an empty one */
  cr_assert(arena_bytes(arena) < 64);
  Arena *other = arena_beside(arena);
  char *second = arena_strdup(other, "second");
  memset(arena_alloc(other, 3 << 20), 1, 3 << 20);
  size_t bytes = arena_bytes(arena) + arena_bytes(other);
  cr_assert(bytes > 3 << 20 && bytes < (3 << 20) + 256);
  arena_adopt(arena, other);
  cr_assert_eq(arena_bytes(arena), bytes);
  char *third = arena_strdup(arena, "third");
  cr_assert_str_eq(first, "first");
  cr_assert_str_eq(second, "second");
  cr_assert_str_eq(third, "third");
  arena_destroy(arena);
  memory_destroy(memory);
}

Test(memory, an_arena_is_cleared) {
  Memory *memory;
  Arena *arena = new_arena(&memory);
  arena_clear(arena); /* an empty one */
  cr_assert_eq(arena_bytes(arena), 0);
  for (int round = 0; round < 5; round++) {
    int64_t before = memory_requests(memory);
    for (int i = 0; i < 3000; i++) {
      char *bytes = arena_alloc(arena, 24);
      for (int k = 0; k < 24; k++) cr_assert_eq(bytes[k], 0);
      memset(bytes, 1, 24);
    }
    arena_alloc(arena, 3 << 20);
    cr_assert(arena_bytes(arena) > 3 << 20);
    arena_clear(arena);
    cr_assert_eq(arena_bytes(arena), 0);
    int64_t requests = memory_requests(memory) - before;
#ifdef __SANITIZE_ADDRESS__
    cr_assert(requests > 3000, "each allocation is one");
#else
    cr_assert(round < 4 || requests == 1, "only for the large one");
#endif
  }
  char *text = arena_strdup(arena, "kept");
  cr_assert_str_eq(text, "kept");
  arena_destroy(arena);
  memory_destroy(memory);
}

/* ---- containers ---- */

Test(vec, grows) {
  Memory *memory;
  Arena *arena = new_arena(&memory);
  VEC(int) v = {0};
  for (int i = 0; i < 1000; i++) vec_push(arena, &v, i * i);
  cr_assert_eq(v.n, 1000);
  for (int i = 0; i < 1000; i++) cr_assert_eq(v.data[i], i * i);
  memory_destroy(memory);
}

#ifdef __SANITIZE_ADDRESS__
Test(arena, what_is_behind_an_allocation_is_poisoned) {
  Memory *memory;
  Arena *arena = new_arena(&memory);
  for (size_t n = 0; n < 5000; n = n * 2 + 1) {
    char *at = arena_alloc(arena, n);
    for (size_t i = 0; i < n; i++)
      cr_assert(!__asan_address_is_poisoned(at + i));
    for (size_t i = n; i < n + 16; i++)
      cr_assert(__asan_address_is_poisoned(at + i), "%zu of %zu", i, n);
  }
  memory_destroy(memory);
}
#endif

Test(names, equal_text_is_one_address) {
  Memory *memory;
  Names *names = names_create(new_arena(&memory));
  Name first[2000];
  for (int i = 0; i < 2000; i++) first[i] = name_format(names, "name%d", i);
  for (int i = 0; i < 2000; i++) {
    char text[32];
    int n = snprintf(text, sizeof text, "name%d!", i);
    cr_assert_eq(name_intern_n(names, text, (size_t)n - 1), first[i]);
  }
  cr_assert_neq(name_intern(names, ""), name_intern(names, "a"));
  char far[300] = {0};
  memset(far, 'x', sizeof far - 1);
  const char *const parts[] = {"na", "", "me", "7"}, *const far_parts[] = {far};
  cr_assert_eq(name_join(names, parts, 4), first[7]);
  cr_assert_eq(name_join(names, far_parts, 1), name_intern(names, far));
  memory_destroy(memory);
}

Test(map, keeps_insertion_order) {
  Memory *memory;
  Arena *arena = new_arena(&memory);
  Map *map = map_create(arena);
  static int keys[500];
  for (int i = 499; i >= 0; i--) map_put(map, &keys[i], &keys[499 - i]);
  map_put(map, &keys[7], NULL);
  cr_assert_eq(map_size(map), 500);
  cr_assert(map_has(map, &keys[7]) && !map_get(map, &keys[7]));
  cr_assert(!map_has(map, map));
  for (int i = 0; i < 500; i++)
    cr_assert_eq(map_key_at(map, i), &keys[499 - i]);
  cr_assert_eq(map_value_at(map, 0), &keys[0]);
  memory_destroy(memory);
}

Test(map, tells_pairs_of_large_numbers_apart) {
  Memory *memory;
  Arena *arena = new_arena(&memory);
  PairMap *map = pair_map_create(arena);
  static const int numbers[] = {0, 1, 2, 1 << 15, 1 << 16, 1 << 24, INT32_MAX};
  enum { N = ARRAY_LENGTH(numbers) };
  static int values[N][N];
  for (int i = 0; i < N; i++)
    for (int k = 0; k < N; k++)
      pair_map_put(map, numbers[i], numbers[k], &values[i][k]);
  for (int i = 0; i < N; i++)
    for (int k = 0; k < N; k++)
      cr_assert_eq(pair_map_get(map, numbers[i], numbers[k]), &values[i][k]);
  cr_assert_null(pair_map_get(map, 3, 0));
  cr_assert_null(pair_map_get(map, 0, 3));
  memory_destroy(memory);
}

/* ---- text ---- */

static const char *real_text(Arena *arena, double value) {
  Text text = text_create(arena);
  text_add_real(&text, value);
  return text_string(&text);
}

Test(text, reals_are_shortest_and_read_back) {
  Memory *memory;
  Arena *arena = new_arena(&memory);
  static const struct {
    double value;
    const char *text;
  } rows[] = {{0, "0.0"},
              {-0.0, "-0.0"},
              {1, "1.0"},
              {0.1, "0.1"},
              {-12.5, "-12.5"},
              {1e15, "1000000000000000.0"},
              {1e16, "1e16"},
              {1e-5, "1e-5"},
              {1.5e-7, "1.5e-7"},
              {123456, "123456.0"},
              {0.001, "0.001"},
              {INFINITY, "inf"},
              {-INFINITY, "-inf"},
              {NAN, "nan"},
              {DBL_MIN, "2.2250738585072014e-308"},
              {5e-324, "5e-324"},
              {1.0 / 3, "0.3333333333333333"}};
  for (int i = 0; i < ARRAY_LENGTH(rows); i++)
    cr_expect_str_eq(real_text(arena, rows[i].value), rows[i].text);
  for (uint64_t i = 0; i < 2000; i++) {
    uint64_t bits = random_below(9, i, UINT64_MAX);
    double value, back = 0;
    memcpy(&value, &bits, sizeof value);
    if (!isfinite(value)) continue;
    const char *text = real_text(arena, value);
    cr_assert(text_read_real(text, strlen(text), &back));
    cr_assert_eq(back, value);
  }
  double ignored;
  cr_assert(!text_read_real("1x", 2, &ignored));
  cr_assert(!text_read_real("", 0, &ignored));
  memory_destroy(memory);
}

Test(text, json) {
  Memory *memory;
  Text text = text_create(new_arena(&memory));
  cr_assert_str_eq(text_string(&text), "");
  text_add_json(&text,
                "a\"b\\c\n\t\x01 gr\xc3\xb6\xc3\x9f \xff\xc3 \xed\xa0\x80");
  cr_assert_str_eq(text_string(&text),
                   "\"a\\\"b\\\\c\\n\\t\\u0001 gr\xc3\xb6\xc3\x9f "
                   "\\ufffd\\ufffd \\ufffd\\ufffd\\ufffd\"");
  memory_destroy(memory);
}

Test(fixed_text, is_cut_at_its_capacity) {
  char data[16];
  FixedText text = fixed_text(data, 10);
  memset(data + 10, '#', 6);
  fixed_printf(&text, "%d:", 12);
  fixed_printf(&text, "%s", "abcdef");
  cr_assert_str_eq(data, "12:abcdef");
  cr_assert(!text.is_cut && text.n == 9);
  fixed_printf(&text, "%s", "");
  cr_assert_str_eq(data, "12:abcdef");
  fixed_printf(&text, "g");
  cr_assert_str_eq(data, "12:abc...");
  fixed_printf(&text, "later");
  cr_assert_str_eq(data, "12:abc...");
  cr_assert(text.is_cut && text.n == 9);
  cr_assert(memcmp(data + 10, "######", 6) == 0);
}

Test(status, a_long_name_leaves_the_cause) {
  char name[2000];
  memset(name, 'p', sizeof name);
  name[sizeof name - 1] = '\0';
  Status status = status_errno(ENOSPC, "cannot write '%s'", name);
  const char *end = "ppp...: No space left on device";
  cr_assert_eq(strlen(status.message), 511);
  cr_assert_str_eq(status.message + 511 - strlen(end), end);
}

Test(text, memory_has_a_unit_of_its_size) {
  char buffer[MEMORY_TEXT];
  cr_assert_str_eq(text_memory(buffer, 243100, 1), "0.2 MB");
  cr_assert_str_eq(text_memory(buffer, 4260000, 0), "4 MB");
  cr_assert_str_eq(text_memory(buffer, 24.61e9, 0), "24.61 GB");
  cr_assert_str_eq(text_memory(buffer, 171745250.6e6, 1), "171.75 TB");
  cr_assert_str_eq(text_memory(buffer, 9.2e18, 1), "9.20 EB");
}

Test(text, nearest) {
  static const char *const known[] = {"stride", "pad", "dilate", "groups"};
  cr_assert_eq(text_distance("", "abc"), 3);
  cr_assert_eq(text_distance("abdc", "abcd"), 1);
  cr_assert_eq(text_distance("kitten", "sitting"), 3);
  cr_assert_str_eq(text_nearest("strid", known, 4), "stride");
  cr_assert_str_eq(text_nearest("dialte", known, 4), "dilate");
  cr_assert_null(text_nearest("kernel", known, 4));
}

/* ---- messages ---- */

Test(diag, layout_of_messages) {
  Memory *memory;
  Arena *arena = new_arena(&memory);
  const char *code = "a = 1\n\tb = dot(q, k)\nc";
  Source source = {"m.dnn", code, strlen(code)};
  Diags *diags = diags_create(arena);
  Span call = {&source, 11, 20};
  Diag *wrong = diag(diags, DIAG_size_mismatch, call, "D", 64L, 96L);
  diag_note(wrong, (Span){&source, 0, 1}, "'%s' is here", "a");
  diag_help(wrong, "first");
  diag_help(wrong, "second");
  diag(diags, DIAG_size_mismatch, call, "D", 64L, 96L); /* said already */
  diag(diags, DIAG_no_gradient, SPAN_FILE(&source), "w");
  diag(diags, DIAG_no_gradient, SPAN_NONE, "v");
  cr_assert_eq(diags_errors(diags), 1);
  cr_assert_eq(diags_warnings(diags), 2);
  Text out = text_create(arena);
  diags_print(diags, &out);
  cr_assert_str_eq(text_string(&out),
                   "m.dnn:2:6: error: dimension 'D' has two sizes: 64 and 96\n"
                   "    2 | \tb = dot(q, k)\n"
                   "      | \t    ^~~~~~~~~\n"
                   "m.dnn:1:1: note: 'a' is here\n"
                   "help: second\n"
                   "\n"
                   "m.dnn: warning: parameter 'w' does not affect the loss and "
                   "gets no gradient\n"
                   "\n"
                   "dnnc: warning: parameter 'v' does not affect the loss and "
                   "gets no gradient\n");
  Text again = text_create(arena);
  diags_print(diags, &again);
  cr_assert_str_eq(text_string(&again), "");
  memory_destroy(memory);
}

Test(diag, stops_at_the_limit) {
  Memory *memory;
  Arena *arena = new_arena(&memory);
  char code[100];
  memset(code, 'x', sizeof code);
  code[99] = '\0';
  Source source = {"m.dnn", code, 99};
  Diags *diags = diags_create(arena);
  for (uint32_t i = 0; i < 50; i++)
    diag_help(
        diag(diags, DIAG_size_mismatch, (Span){&source, i, i + 1}, "D", 1L, 2L),
        "none");
  cr_assert_eq(diags_errors(diags), 50);
  Text out = text_create(arena);
  diags_print(diags, &out);
  int n = 0;
  for (const char *p = text_string(&out); (p = strstr(p, "error:")); p++) n++;
  cr_assert_eq(n, 20);
  const char *end = "\nnote: checking stopped after 20 errors\n";
  cr_assert(strlen(text_string(&out)) > strlen(end));
  cr_assert_str_eq(text_string(&out) + out.n - strlen(end), end);
  memory_destroy(memory);
}

static const char *message(Arena *arena, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = message_vprintf(arena, format, args);
  va_end(args);
  return text;
}

Test(message, names_are_cut) {
  Memory *memory;
  Arena *arena = new_arena(&memory);
  char name[301];
  memset(name, 'n', 300);
  name[300] = '\0';
  const char *cut = message(arena, "no '%s', %d of %s", name, 3, "five");
  cr_assert_eq(strlen(cut),
               strlen("no '") + 200 + strlen("... (300 bytes)', 3 of five"));
  cr_assert_str_eq(cut + 4 + 200, "... (300 bytes)', 3 of five");
  memcpy(name + 199, "\xc3\xa4", 2); /* a character is not cut in two */
  cut = message(arena, "%s", name);
  cr_assert_str_eq(cut + 199, "... (300 bytes)");
  cr_assert_str_eq(message(arena, "%.*s|%.3s|%5.2f|%-4ld|%lld|%zu|%%|%c|%03d",
                           2, "abcdef", "abcdef", 1.5, 7L, -1LL, (size_t)9, 'x',
                           5),
                   "ab|abc| 1.50|7   |-1|9|%|x|005");
  memory_destroy(memory);
}

Test(message, what_steers_a_terminal_is_shown) {
  Memory *memory;
  Arena *arena = new_arena(&memory);
  Text out = text_create(arena);
  message_escape(&out, "a\x1b[31mb\tc\n\x7f\r\xc3\xa4\xc2\x9b\xff");
  cr_assert_str_eq(text_string(&out),
                   "a\\x1b[31mb\tc\n\\x7f\\x0d\xc3\xa4\\xc2\\x9b\\xff");
  memory_destroy(memory);
}

/* ---- hashes ---- */

static void sha(const char *data, size_t n, size_t piece, char out_hex[65]) {
  Sha256 state;
  sha256_begin(&state);
  for (size_t i = 0; i < n; i += piece)
    sha256_add(&state, data + i, i + piece < n ? piece : n - i);
  sha256_end(&state, out_hex);
}

Test(hash, sha256_known_answers) { /* FIPS 180-4 examples */
  char hex[65];
  sha("", 0, 1, hex);
  cr_expect_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb924"
                        "27ae41e4649b934ca495991b7852b855");
  sha("abc", 3, 3, hex);
  cr_expect_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223"
                        "b00361a396177a9cb410ff61f20015ad");
  static char million[1000000];
  memset(million, 'a', sizeof million);
  sha(million, sizeof million, 977, hex);
  cr_expect_str_eq(hex, "cdc76e5c9914fb9281a1c7e284d73e67"
                        "f1809a48a497200e046d39ccc7112cd0");
  char whole[65];
  for (size_t n = 0; n < 200; n++) { /* every length around the padding */
    sha(million, n, 1, hex);
    sha(million, n, n ? n : 1, whole);
    cr_expect_str_eq(hex, whole);
  }
}

Test(hash, xxh3_known_answers) {
  char hex[33];
  hash_hex("", 0, hex);
  cr_expect_str_eq(hex, "99aa06d3014798d86001c324468d497f");
  cr_expect_eq(hash_bytes("", 0, 0), UINT64_C(0x2d06800538d394c2));
  cr_expect_neq(hash_bytes("a", 1, 0), hash_bytes("a", 1, 1));
}

/* ---- random numbers ---- */

Test(random, philox_known_answers) { /* kat_vectors of Random123 */
  uint32_t out[4];
  philox(0, 0, 0, out);
  cr_expect(out[0] == 0x6627e8d5 && out[1] == 0xe169c58d &&
            out[2] == 0xbc57ac4c && out[3] == 0x9b00dbd8);
  philox(UINT64_MAX, UINT64_MAX, UINT64_MAX, out);
  cr_expect(out[0] == 0x408f276d && out[1] == 0x41c83b0e &&
            out[2] == 0xa20bc7c6 && out[3] == 0x6d5451fd);
  philox(UINT64_C(0x299f31d0a4093822), UINT64_C(0x85a308d3243f6a88),
         UINT64_C(0x0370734413198a2e), out);
  cr_expect(out[0] == 0xd16cfe09 && out[1] == 0x94fdcceb &&
            out[2] == 0x5001e420 && out[3] == 0x24126ea1);
}

Test(random, normal_agrees_with_libm) {
  for (uint64_t i = 0; i < 20000; i++) {
    uint32_t word[4];
    philox(42, i, 0, word);
    uint64_t a = ((uint64_t)word[1] << 32 | word[0]) >> 11;
    uint64_t b = ((uint64_t)word[3] << 32 | word[2]) >> 11;
    double u = 1 - (double)a * 0x1p-53, v = (double)b * 0x1p-53;
    double wanted = sqrt(-2 * log(u)) * cos(2 * acos(-1.0) * v);
    cr_assert_float_eq(random_normal(42, i), wanted, 4e-15);
  }
}

Test(random, normals_at_once_are_the_same) {
  static const int64_t counts[] = {0, 1, 15, 16, 17, 1000};
  double values[1000];
  for (int c = 0; c < ARRAY_LENGTH(counts); c++) {
    random_normals(42, 77, counts[c], values);
    for (int64_t i = 0; i < counts[c]; i++)
      cr_assert(values[i] == random_normal(42, 77 + (uint64_t)i));
  }
}

Test(random, moments_and_bounds) {
  enum { N = 200000 };
  uint64_t key = random_key(1, "block[0].wq");
  double sum = 0, squares = 0, uniform = 0, truncated = 0;
  int counts[7] = {0};
  for (uint64_t i = 0; i < N; i++) {
    double x = random_normal(key, i), u = random_uniform(key, i);
    sum += x;
    squares += x * x;
    uniform += u;
    cr_assert(u >= 0 && u < 1);
    counts[random_below(key, i, 7)]++;
    double t = init_value((Init){INIT_trunc_normal, 3}, key, NULL, i);
    cr_assert_leq(fabs(t), 6);
    truncated += t * t;
    cr_assert_leq(fabs(init_value((Init){INIT_uniform, 2}, key, NULL, i)), 2);
  }
  cr_expect_float_eq(sum / N, 0, 0.01);
  cr_expect_float_eq(squares / N, 1, 0.02);
  cr_expect_float_eq(uniform / N, 0.5, 0.005);
  /* 1 - 4 phi(2) / (2 Phi(2) - 1), times 3^2 */
  cr_expect_float_eq(truncated / N, 9 * 0.7737, 0.1);
  for (int i = 0; i < 7; i++) cr_expect_float_eq(counts[i], N / 7.0, 800);
  cr_expect_eq(init_value((Init){INIT_constant, 2.5}, key, NULL, 3), 2.5);
  cr_expect_eq(init_value((Init){INIT_zeros, 2.5}, key, NULL, 3), 0);
}

/* Largest distance of a^T a (columns) or a a^T (rows) from the unit matrix,
 * for a matrix [m, n] with the given strides. */
static double off_unit(const double *a, int m, int n, int64_t row,
                       int64_t column) {
  double worst = 0;
  for (int i = 0; i < m; i++)
    for (int j = 0; j < m; j++) {
      double sum = 0;
      for (int k = 0; k < n; k++)
        sum += a[i * row + k * column] * a[j * row + k * column];
      worst = fmax(worst, fabs(sum - (i == j)));
    }
  return worst;
}

Test(init, orthogonal) {
  Memory *memory;
  Arena *arena = new_arena(&memory);
  uint64_t key = random_key(1, "lstm.wh");
  double a[24 * 40], b[24 * 40];
  int64_t sizes[3] = {4, 40, 6};
  /* Dims 0 and 2 are the 24 rows, dim 1 the 40 columns. */
  init_fill(arena, (Init){INIT_orthogonal, 5}, key, sizes, 3, a);
  for (int i = 0; i < 24; i++)
    for (int k = 0; k < 40; k++) b[i * 40 + k] = a[i / 6 * 240 + k * 6 + i % 6];
  cr_expect_lt(off_unit(b, 24, 40, 40, 1), 1e-14);
  /* The other way about, 40 rows: the 24 columns are orthonormal. */
  init_fill(arena, (Init){INIT_orthogonal, 2}, key, sizes, 3, a);
  for (int i = 0; i < 24; i++)
    for (int k = 0; k < 40; k++) b[i * 40 + k] = a[i / 6 * 240 + k * 6 + i % 6];
  cr_expect_lt(off_unit(b, 24, 40, 40, 1), 1e-14);
  memory_destroy(memory);
}

/* An element of a random orthogonal 2 by 2 matrix is cos of a uniform angle:
 * mean 0, mean square 1/2, mean fourth power 3/8; determinants of both signs
 * are equally likely. */
Test(init, orthogonal_is_uniform) {
  Memory *memory;
  Arena *arena = new_arena(&memory);
  enum { N = 20000 };
  double sum = 0, squares = 0, fourth = 0, turned = 0;
  for (uint64_t i = 0; i < N; i++) {
    double a[4];
    init_fill(arena, (Init){INIT_orthogonal, 1}, i, (int64_t[]){2, 2}, 2, a);
    sum += a[1];
    squares += a[1] * a[1];
    fourth += pow(a[1], 4);
    turned += a[0] * a[3] - a[1] * a[2] > 0;
  }
  cr_expect_float_eq(sum / N, 0, 0.02);
  cr_expect_float_eq(squares / N, 0.5, 0.01);
  cr_expect_float_eq(fourth / N, 0.375, 0.01);
  cr_expect_float_eq(turned / N, 0.5, 0.015);
  memory_destroy(memory);
}

Test(init, eye_and_elements) {
  Memory *memory;
  Arena *arena = new_arena(&memory);
  double a[6];
  init_fill(arena, (Init){INIT_eye, 0}, 1, (int64_t[]){2, 3}, 2, a);
  for (int i = 0; i < 6; i++) {
    cr_expect_eq(a[i], i == 0 || i == 4);
    cr_expect_eq(a[i], init_value((Init){INIT_eye, 0}, 1, (int64_t[]){2, 3},
                                  (uint64_t)i));
  }
  init_fill(arena, (Init){INIT_normal, 2}, 9, (int64_t[]){2, 3}, 2, a);
  for (int i = 0; i < 6; i++)
    cr_expect_eq(a[i],
                 init_value((Init){INIT_normal, 2}, 9, NULL, (uint64_t)i));
  memory_destroy(memory);
}

/* ---- files and libraries ---- */

Test(file, replace_and_read) {
  Memory *memory;
  Arena *arena = new_arena(&memory);
  char folder[] = "/tmp/dnnc-file-XXXXXX";
  cr_assert(mkdtemp(folder));
  const char *deep = arena_printf(arena, "%s/a//b/c", folder);
  const char *path = arena_printf(arena, "%s/f", deep);
  cr_assert_eq(file_make_dirs(deep).code, STATUS_ok);
  cr_assert_eq(file_make_dirs(deep).code, STATUS_ok);
  cr_assert(!file_exists(path));
  cr_assert_eq(file_replace(path, "one", 3).code, STATUS_ok);
  cr_assert_eq(file_replace(path, "two\0x", 5).code, STATUS_ok);
  const char *bytes;
  size_t n;
  cr_assert_eq(file_read(arena, path, 5, &bytes, &n).code, STATUS_ok);
  cr_assert(n == 5 && memcmp(bytes, "two\0x", 6) == 0);
  cr_assert_eq(file_read(arena, path, 4, &bytes, &n).code, STATUS_invalid);
  cr_assert_eq(file_read(arena, deep, 9, &bytes, &n).code, STATUS_invalid);
  const char *fifo = arena_printf(arena, "%s/p", folder);
  cr_assert_eq(mkfifo(fifo, 0600), 0);
  cr_assert_eq(file_read(arena, fifo, 9, &bytes, &n).code, STATUS_invalid);
  Status missing = file_read(arena, "/nowhere/f", 9, &bytes, &n);
  cr_assert_eq(missing.code, STATUS_io);
  cr_assert_str_eq(missing.message,
                   "cannot open '/nowhere/f': No such file or directory");
  cr_assert_eq(file_replace("/nowhere/f", "x", 1).code, STATUS_io);
  cr_assert_eq(file_check_output("/nowhere/f").code, STATUS_invalid);
  cr_assert_eq(file_check_output(deep).code, STATUS_invalid);
  cr_assert_eq(file_check_output(path).code, STATUS_ok);
  cr_assert_eq(file_check_folder(deep).code, STATUS_ok);
  cr_assert_eq(file_check_folder(arena_printf(arena, "%s/n/m", deep)).code,
               STATUS_ok);
  cr_assert_eq(file_check_folder(arena_printf(arena, "%s/n", path)).code,
               STATUS_io);
  cr_assert_eq(file_make_dirs(path).code, STATUS_io);
  unlink(path);
  unlink(fifo);
  static const char *const parts[] = {"a/b/c", "a/b", "a"};
  for (int i = 0; i < 3; i++)
    cr_assert_eq(rmdir(arena_printf(arena, "%s/%s", folder, parts[i])), 0,
                 "a temporary file was left behind");
  cr_assert_eq(rmdir(folder), 0);
  memory_destroy(memory);
}

static bool is_kind(const char *path, mode_t kind) {
  struct stat info;
  return lstat(path, &info) == 0 && (info.st_mode & S_IFMT) == kind;
}

static void expect_bytes(Arena *arena, const char *path, const char *wanted) {
  const char *bytes;
  size_t n;
  cr_assert_eq(file_read(arena, path, 99, &bytes, &n).code, STATUS_ok);
  cr_expect_str_eq(bytes, wanted);
}

/* Devices are reached through links: were a link replaced, the device of the
 * machine would still be there. */
Test(file, replace_leaves_the_kind_of_a_file) {
  Memory *memory;
  Arena *arena = new_arena(&memory);
  char folder[] = "/tmp/dnnc-file-XXXXXX";
  cr_assert(mkdtemp(folder) && chdir(folder) == 0);
  cr_assert(mkdir("deep", 0700) == 0);
  cr_assert(symlink("deep/link", "outer") == 0);
  cr_assert(symlink("../end", "deep/link") == 0);
  for (int i = 0; i < 2; i++) { /* nothing is there, then a file */
    const char *text = i == 0 ? "new" : "old";
    cr_assert_eq(file_check_output("outer").code, STATUS_ok);
    cr_assert_eq(file_replace("outer", text, 3).code, STATUS_ok);
    cr_assert(is_kind("outer", S_IFLNK) && is_kind("deep/link", S_IFLNK));
    cr_assert(is_kind("end", S_IFREG));
    expect_bytes(arena, "end", text);
  }
  cr_assert(symlink("/dev/full", "full") == 0);
  Status full = file_replace("full", "x", 1);
  cr_assert_eq(full.code, STATUS_io);
  cr_assert_str_eq(full.message,
                   "cannot write 'full': No space left on device");
  cr_assert(is_kind("full", S_IFLNK) && is_kind("/dev/full", S_IFCHR));
  cr_assert(symlink("circle", "circle") == 0);
  cr_assert_eq(file_check_output("circle").code, STATUS_io);
  cr_assert_eq(file_replace("circle", "x", 1).code, STATUS_io);
  cr_assert(symlink("missing/file", "astray") == 0);
  cr_assert_eq(file_check_output("astray").code, STATUS_invalid);

  char read_back[3];
  cr_assert_eq(mkfifo("pipe", 0600), 0);
  int reader = open("pipe", O_RDONLY | O_NONBLOCK);
  cr_assert_eq(file_check_output("pipe").code, STATUS_ok);
  cr_assert_eq(file_replace("pipe", "abc", 3).code, STATUS_ok);
  cr_assert(read(reader, read_back, 3) == 3 && !memcmp(read_back, "abc", 3));
  cr_assert(is_kind("pipe", S_IFIFO));
  close(reader);
  static const char *const made[] = {"outer",  "deep/link", "end", "full",
                                     "circle", "astray",    "pipe"};
  for (int i = 0; i < ARRAY_LENGTH(made); i++) cr_expect(unlink(made[i]) == 0);
  cr_expect(rmdir("deep") == 0 && rmdir(folder) == 0, "a file was left behind");
  memory_destroy(memory);
}

Test(dylib, opens_the_first_that_loads) {
  static const char *const names[] = {"libnowhere.so.1", "libm.so.6", NULL};
  static const char *const none[] = {"libnowhere.so.1", NULL};
  Dylib *dylib;
  cr_assert_eq(dylib_open(NULL, names, &dylib).code, STATUS_ok);
  cr_assert_str_eq(dylib_path(dylib), "libm.so.6");
  cr_assert_not_null(dylib_symbol(dylib, "cos"));
  cr_assert_null(dylib_symbol(dylib, "no_such_function"));
  dylib_close(dylib);
  Status status = dylib_open(NULL, none, &dylib);
  cr_assert_eq(status.code, STATUS_unavailable);
  cr_assert_null(dylib);
  setenv("DNNC_TEST_LIBRARY", "/nowhere.so", 1);
  cr_assert_eq(dylib_open("DNNC_TEST_LIBRARY", names, &dylib).code,
               STATUS_unavailable);
}

Test(status, messages_survive_being_wrapped) {
  Status status = status_make(STATUS_lost, "rank %d", 3);
  status = status_make(STATUS_lost, "%s is gone", status.message);
  cr_assert_str_eq(status.message, "rank 3 is gone");
}

Test(assert, says_where_and_exits_4, .exit_code = 4) {
  fclose(stderr);
  ASSERT(1 == 2);
}
