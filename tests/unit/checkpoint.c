// links: runtime support
/*
 * checkpoint.c -- tests that complete checkpoints are read and damaged ones are
 * refused.
 */
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/params/params.h"
#include "tests/unit/toy.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void no_memory(void *user) {
  (void)user;
  _exit(3);
}

/* ---- headers ---- */

typedef struct HeaderCase {
  const char *text;
  int64_t data_bytes;
  bool is_right;
} HeaderCase;

#define A  "\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}"
#define A2 "\"b\":{\"dtype\":\"I64\",\"shape\":[2,1],\"data_offsets\":[16,32]}"

static const HeaderCase headers[] = {
    {"{" A "}", 16, true},
    {" { " A " , " A2 " } ", 32, true},
    {"{" A2 "," A ",\"__metadata__\":{\"k\":\"v\"}}", 32, true},
    {"{}", 0, true},
    {"{\"a\":{\"shape\":[],\"data_offsets\":[0,4],\"dtype\":\"F32\"}}", 4,
     true},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
     true},
    {"", 0, false},
    {"{" A "}x", 16, false},
    {"{" A ",}", 16, false},
    {"{" A "," A "}", 16, false},
    {"{" A "}", 12, false},
    {"{" A "}", 20, false},
    {"{" A2 "}", 32, false},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,12]}}", 12,
     false},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4.0],\"data_offsets\":[0,16]}}", 16,
     false},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[04],\"data_offsets\":[0,16]}}", 16,
     false},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}}", 16,
     false},
    {"{\"a\":{\"dtype\":\"f32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16,
     false},
    {"{\"a\":{\"dtype\":\"F32\",\"DTYPE\":\"F32\",\"shape\":[4],"
     "\"data_offsets\":[0,16]}}",
     16, false},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"shape\":[4],"
     "\"data_offsets\":[0,16]}}",
     16, false},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],"
     "\"data_offsets\":[0,0]}}",
     0, false},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],"
     "\"data_offsets\":[18446744073709551600,16]}}",
     16, false},
    {"{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[4],"
     "\"data_offsets\":[0,16]}}",
     16, false},
    {"{\"__metadata__\":{\"k\":1}}", 0, false},
    {"{\"__metadata__\":{\"k\":\"v\",\"k\":\"w\"}}", 0, false},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, false},
};

Test(header, right_and_wrong) {
  for (int i = 0; i < ARRAY_LENGTH(headers); i++) {
    Memory *memory = memory_create(no_memory, NULL);
    StoredHeader header;
    Status status = safetensors_parse(arena_create(memory), headers[i].text,
                                      strlen(headers[i].text),
                                      headers[i].data_bytes, &header);
    cr_assert_eq(status.code == STATUS_ok, headers[i].is_right, "%s",
                 headers[i].text);
    memory_destroy(memory);
  }
}

/* A message names the tensor and the broken rule. */
Test(header, mistakes_are_named) {
  static const struct {
    const char *text;
    int64_t data_bytes;
    const char *message;
  } cases[] = {
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8,
       "tensor 'a': its data_offsets [8, 0] are reversed"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,8]}}", 8,
       "tensor 'a': its shape [2, 2] of F32 takes 16 bytes, but its "
       "data_offsets [0, 8] hold 8"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 8,
       "tensor 'a': it ends at byte 16 of the data, but the file has only 8: "
       "it is truncated"},
      {"{\"a\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
       "tensor 'a': its dtype 'F31' is unknown"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387,4611686018427387]"
       ",\"data_offsets\":[0,8]}}",
       8,
       "tensor 'a': its shape [4611686018427387, 4611686018427387] is too "
       "large"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8,
       "tensor 'a': it has no 'data_offsets'"},
      {"{\"a\":{\"dtype\":\"F32\",\"kind\":1}}", 8,
       "tensor 'a': it has an unknown key 'kind'"},
      {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 8,
       "tensor 'a': it has 'dtype' twice"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8,
       "tensor 'a': byte 29 of the text is '-', where an integer that is "
       "not negative "
       "must stand"},
      {"{" A "," A "}", 16, "its header has tensor 'a' twice"},
      {"{" A2 "}", 32,
       "there is a gap before tensor 'b': bytes 0 to 15 of the data belong to "
       "no tensor"},
      {"{" A ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[12,20]}"
       "}",
       20,
       "tensors 'a' and 'b' overlap: one ends at byte 16 of the data, the "
       "other begins at 12"},
      {"{" A "}", 20,
       "its last 4 bytes belong to no tensor: the tensors end at byte 16 of "
       "the data"},
      {"{" A "}x", 16,
       "its header: byte 55 of the text is 'x', where nothing more must stand"},
      {"{" A, 16, "its header: the text ends at byte 54, where ',' must stand"},
      {"{\"\xff\":1}", 0, "its header: the string at byte 2 is not UTF-8"},
      {"{\"__metadata__\":{\"k\":\"v\",\"k\":\"w\"}}", 0,
       "its header has 'k' twice"},
  };
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Memory *memory = memory_create(no_memory, NULL);
    StoredHeader header;
    Status status =
        safetensors_parse(arena_create(memory), cases[i].text,
                          strlen(cases[i].text), cases[i].data_bytes, &header);
    cr_assert_eq(status.code, STATUS_invalid, "%s", cases[i].text);
    cr_assert_str_eq(status.message, cases[i].message);
    memory_destroy(memory);
  }
}

Test(header, every_shortening_of_a_header_is_refused) {
  static const char text[] = "{" A "," A2 ",\"__metadata__\":{\"k\":\"v\"}}";
  for (size_t n = 0; n < sizeof text - 1; n++) {
    Memory *memory = memory_create(no_memory, NULL);
    StoredHeader header;
    Status status =
        safetensors_parse(arena_create(memory), text, n, 32, &header);
    cr_assert_neq(status.code, STATUS_ok);
    memory_destroy(memory);
  }
}

Test(header, names_of_files_are_plain) {
  static const char *const bad[] = {
      "", ".", "..", "a/b", "/etc/passwd", "../a", "a/../b", ".hidden", "a\nb"};
  for (int i = 0; i < ARRAY_LENGTH(bad); i++) {
    cr_assert_not(is_plain_file_name(bad[i]), "%s", bad[i]);
    Memory *memory = memory_create(no_memory, NULL);
    Arena *arena = arena_create(memory);
    StoredIndex index;
    Text text = text_create(arena);
    text_add(&text, "{\"weight_map\":{\"a\":");
    text_add_json(&text, bad[i]);
    text_add(&text, "}}");
    cr_assert_neq(
        safetensors_parse_index(arena, text.data, text.n, &index).code,
        STATUS_ok);
    memory_destroy(memory);
  }
  cr_assert(is_plain_file_name("model-00001-of-00001.safetensors"));
  int64_t step;
  cr_assert(is_step_name("step-00001000", &step) && step == 1000);
  cr_assert_not(is_step_name("step-1000", &step));
  cr_assert_not(is_step_name("step-00001000x", &step));
}

/* ---- a saved program ---- */

typedef struct Stage {
  char folder[64], save[80], file[160];
  Memory *memory;
  Arena *arena;
  Toy toy;
  Device *device;
  Comm *comm;
} Stage;

static void stage_open(Stage *stage) {
  strcpy(stage->folder, "/tmp/dnn-test-XXXXXX");
  cr_assert(mkdtemp(stage->folder));
  snprintf(stage->save, sizeof stage->save, "%s/toy.ckpt", stage->folder);
  snprintf(stage->file, sizeof stage->file,
           "%s/step-00000007/model-00001-of-00001.safetensors", stage->save);
  stage->memory = memory_create(no_memory, NULL);
  stage->arena = arena_create(stage->memory);
  toy_make(&stage->toy, 1, 10000, 10, stage->save);
  cr_assert(device_create("cpu", stage->arena, &stage->device).code ==
            STATUS_ok);
  cr_assert(stage->device->open(stage->device, &stage->toy.program, 0).code ==
            STATUS_ok);
  cr_assert(
      params_init(stage->arena, &stage->toy.program, stage->device, 5, NULL)
          .code == STATUS_ok);
  (void)comm_self_create(stage->arena, (RankPlace){.world = 1}, 0,
                         &stage->comm);
}

static int remove_one(const char *path, const struct stat *info, int kind,
                      struct FTW *walk) {
  (void)info, (void)kind, (void)walk;
  remove(path);
  return 0;
}

static void stage_close(Stage *stage) {
  stage->device->close(stage->device);
  nftw(stage->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  memory_destroy(stage->memory);
}

static LogicalReader *stage_states(const Stage *stage) {
  return logical_reader_create(stage->arena, &stage->toy.program, NULL,
                               stage->device);
}

static Status stage_save(Stage *stage, int64_t step) {
  Saver *saver;
  Status status = saver_open(stage->arena, &stage->toy.program, stage->save,
                             TENSOR_FILE_BYTES, &saver);
  if (status.code == STATUS_ok)
    status = saver_save(saver, stage_states(stage), step, 5);
  saver_close(saver);
  return status;
}

static Status stage_find(Stage *stage, int64_t *out_step, bool *out_found) {
  Checkpoint checkpoint = {0};
  Status status = checkpoint_find(stage->memory, stage->arena, stage->save,
                                  &stage->toy.program, MATCH_resume,
                                  &checkpoint, out_found);
  *out_step = *out_found ? checkpoint.step : -1;
  if (*out_found)
    status = checkpoint_load(stage->arena, &checkpoint, &stage->toy.program,
                             stage->device, stage->comm, true);
  checkpoint_close(&checkpoint);
  return status;
}

static void check_find(Stage *stage, int64_t expected) {
  int64_t step;
  bool found;
  stage_find(stage, &step, &found);
  cr_assert_eq(step, expected, "found step %lld, not %lld", (long long)step,
               (long long)expected);
}

Test(store, comes_back_as_it_was) {
  Stage stage;
  stage_open(&stage);
  float before[5], after[5];
  stage.device->read(stage.device, AT_w, before, 16);
  cr_assert_eq(stage_save(&stage, 7).code, STATUS_ok);
  stage.device->write(stage.device, AT_w, (float[4]){0}, 16);
  check_find(&stage, 7);
  stage.device->read(stage.device, AT_w, after, 16);
  cr_assert_arr_eq(before, after, 16);
  stage_close(&stage);
}

Test(store, keeps_as_many_as_asked_and_replaces_equal_steps) {
  Stage stage;
  stage_open(&stage);
  for (int64_t step = 1; step <= 4; step++)
    cr_assert_eq(stage_save(&stage, step).code, STATUS_ok);
  cr_assert_eq(stage_save(&stage, 4).code, STATUS_ok);
  char path[160];
  for (int64_t step = 1; step <= 4; step++) {
    snprintf(path, sizeof path, "%s/step-%08lld", stage.save, (long long)step);
    cr_assert_eq(file_exists(path), step > 2, "%s", path);
  }
  check_find(&stage, 4);
  stage_close(&stage);
}

/* Every byte of the file, altered: nothing loads that is not what was saved. */
Test(store, an_altered_byte_is_found) {
  Stage stage;
  stage_open(&stage);
  cr_assert_eq(stage_save(&stage, 6).code, STATUS_ok);
  cr_assert_eq(stage_save(&stage, 7).code, STATUS_ok);
  freopen("/dev/null", "w", stderr);
  int fd = open(stage.file, O_RDWR);
  struct stat info;
  cr_assert(fd >= 0 && fstat(fd, &info) == 0);
  float before[4], after[4];
  stage.device->read(stage.device, AT_w, before, 16);
  for (off_t at = 0; at < info.st_size; at += at < 8 ? 1 : 3) {
    unsigned char byte, other;
    cr_assert_eq(pread(fd, &byte, 1, at), 1);
    other = byte ^ 0x10;
    cr_assert_eq(pwrite(fd, &other, 1, at), 1);
    int64_t step;
    bool found;
    cr_assert_eq(stage_find(&stage, &step, &found).code, STATUS_ok);
    cr_assert(step == 6 || step == 7);
    stage.device->read(stage.device, AT_w, after, 16);
    cr_assert_arr_eq(before, after, 16, "byte %lld", (long long)at);
    cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
  }
  close(fd);
  check_find(&stage, 7);
  stage_close(&stage);
}

Test(store, a_shorter_file_is_passed_over) {
  Stage stage;
  stage_open(&stage);
  cr_assert_eq(stage_save(&stage, 6).code, STATUS_ok);
  cr_assert_eq(stage_save(&stage, 7).code, STATUS_ok);
  freopen("/dev/null", "w", stderr);
  struct stat info;
  cr_assert(stat(stage.file, &info) == 0);
  for (off_t n = info.st_size - 1; n > 0; n -= 13) {
    cr_assert(truncate(stage.file, n) == 0);
    check_find(&stage, 6);
  }
  stage_close(&stage);
}

Test(store, links_and_pipes_are_not_followed) {
  Stage stage;
  stage_open(&stage);
  cr_assert_eq(stage_save(&stage, 6).code, STATUS_ok);
  cr_assert_eq(stage_save(&stage, 7).code, STATUS_ok);
  freopen("/dev/null", "w", stderr);
  char moved[200];
  snprintf(moved, sizeof moved, "%s/moved", stage.folder);
  cr_assert(rename(stage.file, moved) == 0);
  cr_assert(symlink(moved, stage.file) == 0);
  check_find(&stage, 6);
  cr_assert(unlink(stage.file) == 0);
  cr_assert(mkfifo(stage.file, 0600) == 0);
  check_find(&stage, 6);
  cr_assert(unlink(stage.file) == 0);
  cr_assert(symlink("/dev/zero", stage.file) == 0);
  check_find(&stage, 6);
  stage_close(&stage);
}

/* A limit on the size of files stands in for a full disk. */
Test(store, a_failed_save_leaves_what_was_there) {
  Stage stage;
  stage_open(&stage);
  cr_assert_eq(stage_save(&stage, 7).code, STATUS_ok);
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit limit = {300, 300};
  cr_assert(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  Status status = stage_save(&stage, 8);
  cr_assert_eq(status.code, STATUS_io);
  cr_assert(strstr(status.message, "cannot save step 8"), "%s", status.message);
  char path[160];
  snprintf(path, sizeof path, "%s/step-00000008", stage.save);
  cr_assert_not(file_exists(path));
  check_find(&stage, 7);
  stage_close(&stage);
}

/* All at once, with both shapes; nothing is read before. */
Test(store, what_does_not_fit_the_model_is_listed) {
  Stage stage;
  stage_open(&stage);
  cr_assert_eq(stage_save(&stage, 7).code, STATUS_ok);
  Checkpoint checkpoint;
  char path[200];
  snprintf(path, sizeof path, "%s/step-00000007", stage.save);
  cr_assert_eq(checkpoint_open(stage.arena, path, &checkpoint).code, STATUS_ok);
  Text list = text_create(stage.arena);
  cr_assert_eq(checkpoint_match(stage.arena, &checkpoint, &stage.toy.program,
                                MATCH_full, &list)
                   .code,
               STATUS_ok);
  cr_assert_str_eq(text_string(&list), "");
  stage.toy.persistent[0] = toy_tensor("m.other", DNN_PARAM, DNN_f32, 4, AT_w);
  Text part = text_create(stage.arena);
  cr_assert_eq(checkpoint_match(stage.arena, &checkpoint, &stage.toy.program,
                                MATCH_part, &part)
                   .code,
               STATUS_ok);
  cr_assert_str_eq(text_string(&part), "missing:  m.other f32[4]\n"
                                       "extra:    m.w f32[4]\n");
  stage.toy.persistent[1].rank = 1;
  stage.toy.persistent[1].size[0] = 3;
  Status status = checkpoint_match(stage.arena, &checkpoint, &stage.toy.program,
                                   MATCH_full, &list);
  cr_assert_eq(status.code, STATUS_invalid);
  cr_assert(strstr(status.message, "1 missing, 1 extra, 1 of another type"),
            "%s", status.message);
  cr_assert_str_eq(text_string(&list), "missing:  m.other f32[4]\n"
                                       "differs:  m.b is f32[], the "
                                       "model has f32[3]\n"
                                       "extra:    m.w f32[4]\n");
  /* Another size is skipped in part, unless nothing is left to take. */
  status = checkpoint_match(stage.arena, &checkpoint, &stage.toy.program,
                            MATCH_part, &list);
  cr_assert_eq(status.code, STATUS_invalid, "%s", status.message);
  stage.toy.persistent[0] = toy_tensor("m.w", DNN_PARAM, DNN_f32, 4, AT_w);
  Text skipped = text_create(stage.arena);
  status = checkpoint_match(stage.arena, &checkpoint, &stage.toy.program,
                            MATCH_part, &skipped);
  cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
  cr_assert_str_eq(text_string(&skipped), "skipped:  m.b is f32[], the model "
                                          "has f32[3]\n");
  const StoredFile *file;
  cr_assert_null(checkpoint_tensor_for(
      &checkpoint, &stage.toy.program.tensors[1], false, &file));
  checkpoint_close(&checkpoint);
  freopen("/dev/null", "w", stderr);
  status = checkpoint_locate(stage.memory, stage.arena, stage.save,
                             &stage.toy.program, MATCH_full, &checkpoint);
  cr_assert_eq(status.code, STATUS_invalid, "%s", status.message);
  stage_close(&stage);
}

/* The field's small formats: every value comes back, and what lies between is
 * rounded to even. */
Test(cast, every_small_number_comes_back) {
  const DnnDtype small[] = {DNN_f16, DNN_bf16}, wide[] = {DNN_f32, DNN_f64};
  for (int s = 0; s < 2; s++)
    for (int w = 0; w < 2; w++)
      for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t in = (uint16_t)bits, out;
        uint32_t exponent = s ? in >> 7 & 255 : in >> 10 & 31;
        uint32_t fraction = s ? in & 127 : in & 1023;
        double value; /* room for either */
        floats_cast(small[s], &in, wide[w], &value, 1);
        floats_cast(wide[w], &value, small[s], &out, 1);
        bool is_nan = exponent == (s ? 255 : 31) && fraction;
        cr_assert(is_nan ? (out & 0x7fff) > (s ? 0x7f80 : 0x7c00) : out == in,
                  "%x became %x", in, out);
      }
}

Test(cast, rounds_to_nearest_even) {
  static const struct {
    DnnDtype to;
    double value;
    uint16_t bits;
  } cases[] = {
      {DNN_f16, 1 + 0x1p-11, 0x3c00},
      {DNN_f16, 1 + 3 * 0x1p-11, 0x3c02},
      {DNN_f16, 1 + 0x1.001p-11, 0x3c01},
      {DNN_f16, 65519, 0x7bff},
      {DNN_f16, 65520, 0x7c00},
      {DNN_f16, 0x1p-25, 0},
      {DNN_f16, 0x1.8p-25, 1},
      {DNN_f16, -0x1.ffbp-15, 0x83ff},
      {DNN_f16, -0x1.ffcp-15, 0x8400},
      {DNN_bf16, 1 + 0x1p-8, 0x3f80},
      {DNN_bf16, 1 + 3 * 0x1p-8, 0x3f82},
      {DNN_bf16, 0x1.fep127, 0x7f7f},
      {DNN_bf16, 0x1.ffp127, 0x7f80},
      {DNN_bf16, 1e300, 0x7f80},
      {DNN_bf16, 1 + 0x1.00001p-8, 0x3f81},
      {DNN_bf16, -0.0, 0x8000},
  };
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    uint16_t bits;
    floats_cast(DNN_f64, &cases[i].value, cases[i].to, &bits, 1);
    cr_assert_eq(bits, cases[i].bits, "%a became %x, not %x", cases[i].value,
                 bits, cases[i].bits);
  }
}

/* Files of one tensor each, an index over them, and a file by itself. */
Test(store, several_files_and_their_index) {
  Stage stage;
  stage_open(&stage);
  Saver *saver;
  cr_assert_eq(
      saver_open(stage.arena, &stage.toy.program, stage.save, 1, &saver).code,
      STATUS_ok);
  cr_assert_eq(saver_save(saver, stage_states(&stage), 7, 5).code, STATUS_ok);
  saver_close(saver);
  char path[240];
  snprintf(path, sizeof path, "%s/step-00000007/" TENSOR_INDEX_NAME,
           stage.save);
  Checkpoint checkpoint;
  cr_assert_eq(checkpoint_open(stage.arena, path, &checkpoint).code, STATUS_ok);
  cr_assert_eq(checkpoint.n_files, 3);
  checkpoint_close(&checkpoint);
  check_find(&stage, 7);
  snprintf(path, sizeof path,
           "%s/step-00000007/model-00002-of-00003.safetensors", stage.save);
  cr_assert_eq(checkpoint_open(stage.arena, path, &checkpoint).code, STATUS_ok);
  cr_assert_eq(checkpoint.n_places, 1);
  const StoredFile *file;
  const StoredTensor *tensor = checkpoint_tensor(&checkpoint, "m.b", &file);
  cr_assert(tensor);
  float value, expected;
  cr_assert_eq(checkpoint_read(file, tensor, 0, &value, 4).code, STATUS_ok);
  stage.device->read(stage.device, AT_b, &expected, 4);
  cr_assert_eq(value, expected);
  checkpoint_close(&checkpoint);
  stage_close(&stage);
}

/* ---- files of several saves ---- */

static Status save_apart(Stage *stage, int64_t step, uint64_t seed) {
  Saver *saver;
  Status status =
      saver_open(stage->arena, &stage->toy.program, stage->save, 1, &saver);
  if (status.code == STATUS_ok)
    status = saver_save(saver, stage_states(stage), step, seed);
  saver_close(saver);
  return status;
}

static const char second[] = "model-00002-of-00003.safetensors";

/* Copies a file of step `from` over that of step `to`. */
static void mix(Stage *stage, const char *name, int from, int to) {
  char path[2][240];
  for (int i = 0; i < 2; i++)
    snprintf(path[i], sizeof path[i], "%s/step-%08d/%s", stage->save,
             i ? to : from, name);
  const char *bytes;
  size_t n;
  cr_assert_eq(file_read(stage->arena, path[0], 1 << 20, &bytes, &n).code,
               STATUS_ok);
  cr_assert_eq(file_replace(path[1], bytes, n).code, STATUS_ok);
}

static void refused(Stage *stage, int step, const char *message) {
  char path[160];
  Checkpoint checkpoint;
  snprintf(path, sizeof path, "%s/step-%08d", stage->save, step);
  Status status = checkpoint_open(stage->arena, path, &checkpoint);
  cr_assert_eq(status.code, STATUS_invalid);
  cr_assert(strstr(status.message, path) && strstr(status.message, message),
            "%s", status.message);
}

static void change(Stage *stage) {
  stage->device->write(stage->device, AT_w, (float[4]){1, 2, 3, 4}, 16);
}

Test(identity, files_of_two_steps_are_told_apart) {
  Stage stage;
  stage_open(&stage);
  cr_assert_eq(save_apart(&stage, 4, 5).code, STATUS_ok);
  change(&stage);
  cr_assert_eq(save_apart(&stage, 8, 5).code, STATUS_ok);
  mix(&stage, second, 4, 8);
  refused(&stage, 8,
          "'model-00002-of-00003.safetensors' is of step 4, but "
          "'model.safetensors.index.json' is of step 8: files of different "
          "saves lie in one folder");
  freopen("/dev/null", "w", stderr);
  check_find(&stage, 4);
  mix(&stage, TENSOR_INDEX_NAME, 8, 4);
  refused(&stage, 4,
          "is of step 4, but 'model.safetensors.index.json' is of "
          "step 8");
  stage_close(&stage);
}

/* Twice the same step: of another seed, or trained otherwise. */
Test(identity, files_of_two_saves_of_one_step_are_told_apart) {
  Stage stage;
  stage_open(&stage);
  cr_assert_eq(save_apart(&stage, 4, 5).code, STATUS_ok);
  char kept[240], path[240];
  snprintf(path, sizeof path, "%s/step-00000004/%s", stage.save, second);
  snprintf(kept, sizeof kept, "%s/kept", stage.folder);
  cr_assert_eq(rename(path, kept), 0);
  cr_assert_eq(save_apart(&stage, 4, 5).code, STATUS_ok);
  cr_assert_eq(rename(kept, path), 0);
  check_find(&stage, 4); /* the same content: the same save */
  change(&stage);
  cr_assert_eq(rename(path, kept), 0);
  cr_assert_eq(save_apart(&stage, 4, 5).code, STATUS_ok);
  cr_assert_eq(rename(kept, path), 0);
  refused(&stage, 4, "are of two different saves of step 4");
  cr_assert_eq(rename(path, kept), 0);
  cr_assert_eq(save_apart(&stage, 4, 6).code, STATUS_ok);
  cr_assert_eq(rename(kept, path), 0);
  refused(&stage, 4,
          "is of a run with seed 5, but "
          "'model.safetensors.index.json' of one with seed 6");
  stage_close(&stage);
}

static Status zeros(void *user, int index, int64_t at, void *to, int64_t n) {
  (void)user, (void)index, (void)at;
  memset(to, 0, (size_t)n);
  return STATUS_OK;
}

/* Writes a save of the time before files had an identity: step and seed, and a
 * hash over both. */
static void write_old(Stage *stage, const char *folder, int64_t step,
                      uint64_t seed) {
  static const StoredTensor tensors[] = {{"m.a", DNN_f32, 1, {4}, 0, 16},
                                         {"m.b", DNN_f32, 0, {0}, 0, 4}};
  char step_text[24], seed_text[24], check[24];
  uint64_t words[2] = {(uint64_t)step, seed};
  snprintf(step_text, sizeof step_text, "%012lld", (long long)step);
  snprintf(seed_text, sizeof seed_text, "%020llu", (unsigned long long)seed);
  snprintf(check, sizeof check, "%016llx",
           (unsigned long long)hash_bytes(words, sizeof words, 0));
  const StoredText metadata[] = {{"format", "dnnc"},
                                 {"model", "toy"},
                                 {"step", step_text},
                                 {"seed", seed_text},
                                 {"check", check}};
  TensorFiles *files = tensor_files_create(stage->arena, tensors, 2, 1, false);
  cr_assert_eq(file_make_dirs(folder).code, STATUS_ok);
  int fd = open(folder, O_RDONLY | O_DIRECTORY);
  cr_assert_eq(tensor_files_write(files, fd, metadata, ARRAY_LENGTH(metadata),
                                  NULL, zeros, NULL)
                   .code,
               STATUS_ok);
  close(fd);
}

Test(identity, older_files_load_and_their_steps_are_compared) {
  Stage stage;
  stage_open(&stage);
  char folder[2][120], path[2][300];
  Checkpoint checkpoint;
  for (int i = 0; i < 2; i++) {
    snprintf(folder[i], sizeof folder[i], "%s/step-%08d", stage.save, 4 + i);
    write_old(&stage, folder[i], 4 + i, 5);
    snprintf(path[i], sizeof path[i], "%s/model-00002-of-00002.safetensors",
             folder[i]);
  }
  cr_assert_eq(checkpoint_open(stage.arena, folder[1], &checkpoint).code,
               STATUS_ok);
  cr_assert(checkpoint.is_own && checkpoint.step == 5 && checkpoint.seed == 5);
  cr_assert_not(checkpoint.has_save);
  checkpoint_close(&checkpoint);
  cr_assert_eq(rename(path[0], path[1]), 0);
  refused(&stage, 5,
          "'model-00002-of-00002.safetensors' is of step 4, but "
          "'model-00001-of-00002.safetensors' is of step 5");
  stage_close(&stage);
}

/* ---- choosing ---- */

static void point_latest(Stage *stage, const char *text) {
  char path[120];
  snprintf(path, sizeof path, "%s/latest", stage->save);
  cr_assert_eq(file_replace(path, text, strlen(text)).code, STATUS_ok);
}

Test(choose, a_latest_that_is_missing_hides_nothing) {
  Stage stage;
  stage_open(&stage);
  cr_assert_eq(stage_save(&stage, 6).code, STATUS_ok);
  cr_assert_eq(stage_save(&stage, 7).code, STATUS_ok);
  freopen("/dev/null", "w", stderr);
  point_latest(&stage, "step-00000006\n"); /* 7 may be of another run */
  check_find(&stage, 6);
  point_latest(&stage, "step-00000002\n");
  check_find(&stage, 7);
  point_latest(&stage, "step-00000009\n");
  check_find(&stage, 7);
  point_latest(&stage, "nonsense\n");
  check_find(&stage, 7);
  char path[120];
  snprintf(path, sizeof path, "%s/latest", stage.save);
  cr_assert(unlink(path) == 0 && mkfifo(path, 0600) == 0);
  check_find(&stage, 7);
  cr_assert(unlink(path) == 0 && symlink("/dev/zero", path) == 0);
  check_find(&stage, 7);
  stage_close(&stage);
}

/* Older ones are the model's own, and nobody may step back to them. */
Test(choose, another_model_or_optimizer_is_an_error) {
  static const DnnRole roles[] = {DNN_PARAM, DNN_OPTIMIZER_STATE};
  static const char *const names[] = {"m.x", "adam.v/m.w"};
  static const char *const words[] = {
      "step-00000008' does not match the model: 1 missing, 1 extra, 0 of "
      "another type (dnnc convert changes names and layouts)\nhelp: --load "
      "PATH "
      "takes the parameters alone and starts anew",
      "step-00000008' has the state of another optimizer: 1 missing, 1 extra, "
      "0 of another type\nhelp: --load PATH takes the parameters alone and "
      "starts anew"};
  freopen("/dev/null", "w", stderr);
  for (int i = 0; i < ARRAY_LENGTH(roles); i++) {
    Stage stage;
    int64_t step;
    bool found;
    stage_open(&stage);
    DnnTensor *tensor = &stage.toy.persistent[i == 0 ? 0 : 2], own = *tensor;
    cr_assert_eq(stage_save(&stage, 7).code, STATUS_ok);
    *tensor = toy_tensor(names[i], roles[i], DNN_f32, i == 0 ? 4 : 5,
                         i == 0 ? AT_w : AT_m);
    cr_assert_eq(stage_save(&stage, 8).code, STATUS_ok);
    *tensor = own;
    Status status = stage_find(&stage, &step, &found);
    cr_assert(!found && status.code == STATUS_invalid);
    cr_expect(strstr(status.message, words[i]), "%s", status.message);
    Checkpoint checkpoint;
    status = checkpoint_locate(stage.memory, stage.arena, stage.save,
                               &stage.toy.program, MATCH_full, &checkpoint);
    /* The parameters alone are there under the other optimizer. */
    cr_expect_eq(status.code == STATUS_ok, i == 1, "%s", status.message);
    if (status.code == STATUS_ok) {
      cr_expect_eq(checkpoint.step, 8);
      checkpoint_close(&checkpoint);
    }
    stage_close(&stage);
  }
}

/* State that the program no longer keeps would be lost without a word. */
Test(choose, state_that_no_tensor_takes_is_an_error) {
  Stage stage;
  int64_t step;
  bool found;
  stage_open(&stage);
  freopen("/dev/null", "w", stderr);
  cr_assert_eq(stage_save(&stage, 7).code, STATUS_ok);
  stage.toy.persistent[2] = stage.toy.persistent[4];
  stage.toy.program.n_tensors--;
  Status status = stage_find(&stage, &step, &found);
  cr_assert(!found && status.code == STATUS_invalid);
  cr_expect(strstr(status.message, "another optimizer: 0 missing, 1 extra"),
            "%s", status.message);
  stage_close(&stage);
}

/* The one that `latest` names is damaged: an older one of its run, and where
 * there is none, a newer one. */
Test(choose, what_is_damaged_is_replaced) {
  Stage stage;
  stage_open(&stage);
  for (int64_t step = 7; step <= 8; step++)
    cr_assert_eq(stage_save(&stage, step).code, STATUS_ok);
  freopen("/dev/null", "w", stderr);
  point_latest(&stage, "step-00000007\n");
  cr_assert_eq(truncate(stage.file, 100), 0);
  check_find(&stage, 8);
  cr_assert_eq(stage_save(&stage, 6).code, STATUS_ok);
  point_latest(&stage, "step-00000007\n");
  check_find(&stage, 6);
  stage_close(&stage);
}
