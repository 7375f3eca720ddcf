// links: runtime
/*
 * readers.c -- tests the readers of data files: every number format of npy and
 * safetensors, and the headers that they refuse.
 */
#include "runtime/data/reader.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void exhausted(void *user) {
  (void)user;
  abort();
}

typedef struct Files {
  Memory *memory;
  Arena *arena;
  char folder[64];
} Files;

static Files files_create(void) {
  Files files = {.memory = memory_create(exhausted, NULL),
                 .folder = "/tmp/readers-XXXXXX"};
  files.arena = arena_create(files.memory);
  cr_assert(mkdtemp(files.folder));
  return files;
}

static void files_destroy(Files *files) {
  char command[100];
  snprintf(command, sizeof command, "rm -r %s", files->folder);
  cr_assert(system(command) == 0);
  memory_destroy(files->memory);
}

static void put(const Files *files, const char *name, const void *bytes,
                size_t n) {
  char path[200];
  snprintf(path, sizeof path, "%s/%s", files->folder, name);
  FILE *file = fopen(path, "wb");
  cr_assert(file && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
}

static Status open_as(const Files *files, SourceKind source, const char *name,
                      int64_t items, Reader *out) {
  static DnnField field;
  InputSearch search = {.folder = files->folder};
  field = (DnnField){.path = "d.x",
                     .source = (uint8_t)source,
                     .tensor = "x",
                     .dtype = DNN_f32,
                     .scale = 1};
  return reader_open(files->arena, &field, &name, 1, &search, items, false,
                     out);
}

static void check_values(const Reader *reader, const double *wanted, int n) {
  double got[8];
  char raw[64];
  cr_assert_eq(reader->n, n);
  cr_assert_eq(reader_read(reader, 0, n, raw, got).code, STATUS_ok);
  for (int i = 0; i < n; i++)
    cr_expect(got[i] == wanted[i] || (isnan(got[i]) && isnan(wanted[i])),
              "value %d: %g, not %g", i, got[i], wanted[i]);
  for (int i = n - 1; i >= 0; i--) {
    cr_assert_eq(reader_read(reader, i, 1, raw, got).code, STATUS_ok);
    cr_expect(got[0] == wanted[i] || isnan(wanted[i]), "value %d alone", i);
  }
}

/* ---- npy ---- */

/* A header of version 1, 2 or 3 with this dictionary, then the numbers. */
static size_t npy_file(char *to, int version, const char *dictionary,
                       const void *numbers, size_t n) {
  size_t begin = version == 1 ? 10 : 12, length = strlen(dictionary) + 1;
  memcpy(to, "\x93NUMPY", 6);
  to[6] = (char)version;
  to[7] = 0;
  for (size_t i = 8; i < begin; i++) to[i] = (char)(length >> (8 * (i - 8)));
  memcpy(to + begin, dictionary, length - 1);
  to[begin + length - 1] = '\n';
  memcpy(to + begin + length, numbers, n);
  return begin + length + n;
}

static Status open_npy(const Files *files, int version, const char *dictionary,
                       const void *numbers, size_t n, Reader *out) {
  char bytes[1024];
  put(files, "x.npy", bytes, npy_file(bytes, version, dictionary, numbers, n));
  return open_as(files, SOURCE_npy, "x.npy", 1, out);
}

/* Two numbers of each format, as their bytes in big-endian order. */
static const struct {
  const char *descr;
  uint64_t bits[2];
  double values[2];
} formats[] = {
    {"b1", {0, 1}, {0, 1}},
    {"u1", {7, 0xff}, {7, 255}},
    {"i1", {7, 0xff}, {7, -1}},
    {"u2", {0x1234, 0xfffe}, {0x1234, 65534}},
    {"i2", {0x1234, 0xfffe}, {0x1234, -2}},
    {"u4", {0x12345678, 0xfffffffe}, {0x12345678, 4294967294.0}},
    {"i4", {0x12345678, 0xfffffffe}, {0x12345678, -2}},
    {"u8", {1ull << 52, 1ull << 63}, {0x1p52, 0x1p63}},
    {"i8", {1ull << 52, ~2ull}, {0x1p52, -3}},
    {"f2", {0x3c00, 0xc000}, {1, -2}},
    {"f4", {0x3f800000, 0x7fc00000}, {1, NAN}},
    {"f8", {0x3ff8000000000000, 0xfff0000000000000}, {1.5, -INFINITY}},
};

static void check_format(const Files *files, int row, bool is_big,
                         int version) {
  char dictionary[100];
  unsigned char numbers[16];
  int width = formats[row].descr[1] - '0';
  char order = width == 1 ? '|' : is_big ? '>' : '<';
  for (int i = 0; i < 2 * width; i++) {
    int place = is_big ? width - 1 - i % width : i % width;
    numbers[i] = (unsigned char)(formats[row].bits[i / width] >> (8 * place));
  }
  snprintf(dictionary, sizeof dictionary,
           "{'descr': '%c%s', 'fortran_order': False, 'shape': (2,), }", order,
           formats[row].descr);
  Reader reader;
  Status status = open_npy(files, version, dictionary, numbers,
                           (size_t)(2 * width), &reader);
  cr_assert_eq(status.code, STATUS_ok, "%s: %s", dictionary, status.message);
  check_values(&reader, formats[row].values, 2);
  reader_close(&reader);
}

Test(npy, every_format_in_both_byte_orders_and_all_versions) {
  Files files = files_create();
  for (int row = 0; row < ARRAY_LENGTH(formats); row++)
    for (int version = 1; version <= 3; version++)
      for (int is_big = 0; is_big < 2; is_big++)
        check_format(&files, row, is_big, version);
  files_destroy(&files);
}

static const struct {
  const char *dictionary, *message;
} wrong_headers[] = {
    {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }",
     "'x.npy' is in Fortran order, so its records do not lie together; save it "
     "with np.save(f, np.ascontiguousarray(x))"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (), }",
     "'x.npy' holds 12 bytes after its array of 4 bytes; a file is one array"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }",
     "'x.npy' is too short: its header announces 20 bytes of numbers, but 16 "
     "are there"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, "
     "4), }",
     "'x.npy': its shape is more than a file can hold"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, "
     "4611686018427387904, 4), }",
     "'x.npy' holds 16 bytes after its array of 0 bytes; a file is one array"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': "
     "(99999999999999999999,), }",
     "'x.npy': its header is not one of an npy file"},
    {"{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }",
     "'x.npy' holds numbers of type '<c8'; npy reads b1, i1 i2 i4 i8, u1 u2 u4 "
     "u8, f2 f4 f8"},
    {"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
     "'x.npy' holds Python objects, which are never read; save an array of "
     "numbers, as x.astype(np.float32)"},
    {"{'descr': [('a', '<f4'), ('b', '<i4')], 'fortran_order': False, 'shape': "
     "(2,), }",
     "'x.npy' holds records of several fields; save each field as an array of "
     "its own"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4)}", NULL},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (-4,)}", NULL},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), 'shape': (4,)}",
     NULL},
    {"{'descr': '<f4', 'fortran_order': 0, 'shape': (4,)}", NULL},
    {"{'descr': '<f4', 'shape': (4,)}", NULL},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,)} + 1", NULL},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), 'x': 1}", NULL},
    {"{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (4,)}", NULL},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,)", NULL},
    {"{'descr': '<f4, 'fortran_order': False, 'shape': (4,)}", NULL},
};

Test(npy, wrong_headers_are_refused_with_their_reason) {
  Files files = files_create();
  const float numbers[4] = {1, 2, 3, 4};
  for (int i = 0; i < ARRAY_LENGTH(wrong_headers); i++) {
    Reader reader;
    const char *message = wrong_headers[i].message, *found;
    Status status = open_npy(&files, 1, wrong_headers[i].dictionary, numbers,
                             sizeof numbers, &reader);
    cr_expect_eq(status.code, STATUS_invalid, "%s",
                 wrong_headers[i].dictionary);
    found = strstr(status.message, "x.npy'"); /* behind the folder */
    if (!message) message = "'x.npy': its header is not one of an npy file";
    cr_expect(found && strcmp(found, message + 1) == 0, "%s\nnot: %s",
              status.message, message);
    reader_close(&reader);
  }
  files_destroy(&files);
}

Test(npy, headers_that_numpy_writes_in_other_words) {
  static const char *const dictionaries[] = {
      "{\"shape\": (2, 2), \"fortran_order\": False, \"descr\": \"<f4\"}",
      "{'descr':'<f4','fortran_order':False,'shape':(2,2,)}      ",
      "{'descr': '<f4', 'fortran_order': True, 'shape': (4,), }"};
  const float numbers[4] = {1, 2, 3, 4};
  Files files = files_create();
  for (int i = 0; i < ARRAY_LENGTH(dictionaries); i++) {
    Reader reader;
    Status status =
        open_npy(&files, 1, dictionaries[i], numbers, sizeof numbers, &reader);
    cr_assert_eq(status.code, STATUS_ok, "%s: %s", dictionaries[i],
                 status.message);
    check_values(&reader, (double[]){1, 2, 3, 4}, 4);
    cr_expect_eq(reader.record_items, i < 2 ? 2 : 1);
    reader_close(&reader);
  }
  files_destroy(&files);
}

Test(npy, what_is_written_is_read) {
  const struct {
    DnnDtype dtype;
    const char *descr;
  } rows[] = {{DNN_f32, "'<f4'"}, {DNN_i64, "'<i8'"}, {DNN_bool, "'|b1'"},
              {DNN_u8, "'|u1'"},  {DNN_i8, "'|i1'"},  {DNN_i16, "'<i2'"},
              {DNN_i32, "'<i4'"}, {DNN_f16, "'<f2'"}, {DNN_f64, "'<f8'"}};
  const int64_t size[DNN_MAX_RANK] = {3, 5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  for (int i = 0; i < ARRAY_LENGTH(rows); i++)
    for (int rank = 0; rank <= DNN_MAX_RANK; rank++) {
      char text[NPY_HEADER_ROOM];
      NpyHeader header;
      int64_t n = npy_write_header(rows[i].dtype, rank, size, text);
      int64_t elements = rank == 0 ? 1 : rank == 1 ? 3 : 15;
      cr_assert(n > 0 && n % 64 == 0);
      cr_expect(memmem(text, (size_t)n, rows[i].descr, 5));
      Status status =
          npy_parse("x", (unsigned char *)text, n,
                    n + elements * dtype_bytes(rows[i].dtype), &header);
      cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
      cr_expect(header.rank == rank && header.n == elements &&
                header.data_begin == n);
    }
  char text[NPY_HEADER_ROOM];
  cr_expect_eq(npy_write_header(DNN_bf16, 1, size, text), 0);
}

Test(npy, other_files_are_named) {
  static const struct {
    const char *bytes;
    size_t n;
    const char *message;
  } rows[] = {
      {"", 0, "' is not an npy file"},
      {"\x93NUMPY\1", 7, "' is not an npy file"},
      {"PK\3\4xxxxxxxxxx", 14,
       "' is a ZIP archive, as np.savez writes; save "
       "each array with np.save"},
      {"\x93NUMPY\4\0xxxxxxxx", 16,
       "' is an npy file of version 4.0; npy reads "
       "1.0, 2.0 and 3.0"},
      {"\x93NUMPY\2\0\xff\xff\xff\x7f{}", 14,
       "': its header announces 2147483659 bytes; 12 are there, and 65536 are "
       "the limit"},
  };
  Files files = files_create();
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    Reader reader;
    put(&files, "x.npy", rows[i].bytes, rows[i].n);
    Status status = open_as(&files, SOURCE_npy, "x.npy", 1, &reader);
    const char *found =
        status.message ? strstr(status.message, "x.npy'") : NULL;
    cr_expect(found && strcmp(found + 5, rows[i].message) == 0, "%s",
              status.message);
    reader_close(&reader);
  }
  Reader reader;
  put(&files, "x.npy.gz", "xx", 2);
  Status status = open_as(&files, SOURCE_npy, "x.npy.gz", 1, &reader);
  cr_expect_str_eq(status.message,
                   "'x.npy.gz' is packed, but arrays are read in place; unpack "
                   "it with gunzip");
  files_destroy(&files);
}

/* ---- safetensors ---- */

static size_t stored_file(char *to, const char *header, const void *numbers,
                          size_t n) {
  size_t length = strlen(header);
  for (int i = 0; i < 8; i++) to[i] = (char)((uint64_t)length >> (8 * i));
  memcpy(to + 8, header, length);
  memcpy(to + 8 + length, numbers, n);
  return 8 + length + n;
}

static Status open_stored(const Files *files, const char *header,
                          const void *numbers, size_t n, Reader *out) {
  char bytes[1024];
  put(files, "x.st", bytes, stored_file(bytes, header, numbers, n));
  return open_as(files, SOURCE_safetensors, "x.st", 1, out);
}

Test(safetensors, every_type_at_its_place) {
  static const struct {
    const char *dtype;
    uint64_t bits[2];
    int width;
    double values[2];
  } rows[] = {
      {"BOOL", {0, 1}, 1, {0, 1}},
      {"U8", {7, 0xff}, 1, {7, 255}},
      {"I8", {7, 0xff}, 1, {7, -1}},
      {"I16", {7, 0xffff}, 2, {7, -1}},
      {"I32", {7, 0xffffffff}, 4, {7, -1}},
      {"I64", {7, ~0ull}, 8, {7, -1}},
      {"F16", {0x3c00, 0xc000}, 2, {1, -2}},
      {"BF16", {0x3f80, 0xc000}, 2, {1, -2}},
      {"F32", {0x3f800000, 0xc0000000}, 4, {1, -2}},
      {"F64", {0x3ff8000000000000, 0xc000000000000000}, 8, {1.5, -2}},
  };
  Files files = files_create();
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    char header[300], numbers[3 + 16] = {9, 9, 9};
    int width = rows[i].width;
    for (int k = 0; k < 2; k++)
      memcpy(numbers + 3 + k * width, &rows[i].bits[k], (size_t)width);
    snprintf(header, sizeof header,
             "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
             "\"x\":{\"dtype\":\"%s\",\"shape\":[2],\"data_offsets\":[3,%d]}}",
             rows[i].dtype, 3 + 2 * width);
    Reader reader;
    Status status =
        open_stored(&files, header, numbers, (size_t)(3 + 2 * width), &reader);
    cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
    check_values(&reader, rows[i].values, 2);
    reader_close(&reader);
  }
  files_destroy(&files);
}

Test(safetensors, mistakes_are_named) {
  static const struct {
    const char *header, *message;
  } rows[] = {
      {"{\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
       "' has no tensor 'x'; it has 'y'"},
      {"{\"x\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}",
       "': its last 1 bytes belong to no tensor: the tensors end at byte 3 of "
       "the data"},
      {"{\"x\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}",
       "' is f8e4m3, which is not read as data"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}",
       "' holds a single number; 'd.x' needs an array whose first axis counts "
       "records"},
  };
  Files files = files_create();
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    Reader reader;
    Status status = open_stored(&files, rows[i].header, "1234", 4, &reader);
    const char *found = status.message ? strstr(status.message, "x.st'") : NULL;
    cr_expect(found && strcmp(found + 4, rows[i].message) == 0, "%s",
              status.message);
    reader_close(&reader);
  }
  Reader reader;
  put(&files, "x.st", "a text that is no such file", 27);
  Status status = open_as(&files, SOURCE_safetensors, "x.st", 1, &reader);
  cr_expect(
      status.code == STATUS_invalid &&
      strstr(status.message, "is not a safetensors file, or is truncated"));
  reader_close(&reader);
  files_destroy(&files);
}

/* ---- rows of text ---- */

static Status open_text(const Files *files, DnnField field, const char *text,
                        Reader *out) {
  InputSearch search = {.folder = files->folder};
  field.path = "d.x";
  field.source = SOURCE_csv;
  field.scale = 1;
  field.rank = 2;
  field.size[1] = field.last_column - field.first_column + 1;
  put(files, "x.csv", text, strlen(text));
  const char *name = "x.csv";
  return reader_open(files->arena, &field, &name, 1, &search, field.size[1],
                     false, out);
}

static const char *const words[] = {"setosa", "iris, blue", "say \"hi\""};

static const struct {
  DnnField field;
  const char *text;
  int n;
  double values[8];
} rows_of_text[] = {
    {{.dtype = DNN_f32, .last_column = 1}, "1,2\r\n3,4\r\n", 4, {1, 2, 3, 4}},
    {{.dtype = DNN_f32, .last_column = 1}, "1;2\n\n 3 ; 4 ", 4, {1, 2, 3, 4}},
    {{.dtype = DNN_f32, .last_column = 1},
     "1\t-2e1\n3\t.5",
     4,
     {1, -20, 3, .5}},
    {{.dtype = DNN_f32, .first_column = 2, .last_column = 2},
     "\"a,b\",\"c\n\"\"d\"\";e\",\"5\" \nx,y,6\n",
     2,
     {5, 6}},
    {{.dtype = DNN_f32, .first_column = 1, .last_column = 1, .header_lines = 2},
     "a \"note\", without end\n\"two\nlines\",b\n1,2\n",
     1,
     {2}},
    {{.dtype = DNN_i32, .n_classes = 3, .classes = words},
     "say \"hi\"\n\"say \"\"hi\"\"\"\nsetosa \n\"iris, blue\"\n",
     4,
     {2, 2, 0, 1}},
    {{.dtype = DNN_i32,
      .header_lines = 1,
      .first_name = "a, b",
      .last_name = "a, b"},
     "c;\"a, b\";d\n1;2;3\n4;5;6\n",
     2,
     {2, 5}},
    {{.dtype = DNN_i32,
      .header_lines = 1,
      .first_name = "b",
      .last_name = "c",
      .last_column = 1},
     "a,b,c\n1,2,3\n",
     2,
     {2, 3}},
};

Test(text, quotes_classes_and_names_of_columns) {
  Files files = files_create();
  for (int i = 0; i < ARRAY_LENGTH(rows_of_text); i++) {
    Reader reader;
    Status status =
        open_text(&files, rows_of_text[i].field, rows_of_text[i].text, &reader);
    cr_assert_eq(status.code, STATUS_ok, "%s: %s", rows_of_text[i].text,
                 status.message);
    check_values(&reader, rows_of_text[i].values, rows_of_text[i].n);
    reader_close(&reader);
  }
  files_destroy(&files);
}

static const DnnField classes = {
    .dtype = DNN_i32, .n_classes = 3, .classes = words};
static const DnnField number = {.dtype = DNN_f32};
static const DnnField named = {
    .dtype = DNN_f32, .header_lines = 1, .first_name = "b", .last_name = "a"};

static const struct {
  const DnnField *field;
  const char *text, *message;
} wrong_text[] = {
    {&classes, "\nsetosa\n\"setosa\nx\"\n",
     "', line 3, column 0: 'setosa\nx' is none of the 3 classes of 'd.x'; did "
     "you mean 'setosa'?"},
    {&classes, "7\n",
     "', line 1, column 0: '7' is none of the 3 classes of "
     "'d.x'"},
    {&number, "1\n\"2\n", "', line 2: a quote is never closed"},
    {&number, "1\n\"2\"3\n",
     "', line 2: there is text after the closing quote of a field; a quote "
     "inside is written twice"},
    {&number, "1\n\"\"\n", "', line 2, column 0: the field is empty"},
    {&number, "1\n,2\n", "', line 2, column 0: the field is empty"},
    {&number, "1\n-inf\n",
     "', line 2, column 0: 'd.x' is infinite, but data is finite numbers"},
    {&number, "1\n1e39\n",
     "', line 2, column 0: 'd.x' is f32, which 1e+39 exceeds"},
    {&named, "a,b,c\n1,2,3\n", "': column 'b' comes after column 'a'"},
    {&named, "c,b\n1,2\n", "' has no column 'a'; line 1 has 'c', 'b'"},
};

Test(text, mistakes_name_line_and_column) {
  Files files = files_create();
  for (int i = 0; i < ARRAY_LENGTH(wrong_text); i++) {
    Reader reader;
    Status status =
        open_text(&files, *wrong_text[i].field, wrong_text[i].text, &reader);
    const char *found = status.message ? strstr(status.message, "x.csv'") : "";
    cr_expect(found && *found && strcmp(found + 5, wrong_text[i].message) == 0,
              "%s\nnot: %s", status.message, wrong_text[i].message);
    reader_close(&reader);
  }
  files_destroy(&files);
}

/* A field that does not fit the buffer, and a text in which a buffer ends at
 * every byte of a field in quotes. */
Test(text, buffers_end_anywhere) {
  Files files = files_create();
  size_t room = 140000;
  char *text = malloc(room);
  for (int shift = 0; shift < 24; shift++) {
    Reader reader;
    size_t n = 0;
    text[n++] = '"';
    for (int i = 0; i < 65536 - 16 + shift; i++) text[n++] = 'x';
    n += (size_t)snprintf(text + n, room - n,
                          "\",1\r\n\"a \"\"b\"\"\r\n,\"\"\",2\r\n");
    text[n] = '\0';
    DnnField field = {.dtype = DNN_f32, .first_column = 1, .last_column = 1};
    Status status = open_text(&files, field, text, &reader);
    cr_assert_eq(status.code, STATUS_ok, "%d: %s", shift, status.message);
    check_values(&reader, (double[]){1, 2}, 2);
    reader_close(&reader);
  }
  free(text);
  files_destroy(&files);
}

/* ---- signals ---- */

/* A signal ends a read until there is work to save, and none after that. */
Test(readers, signals) {
  Files files = files_create();
  int ends[2], signals;
  cr_assert(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
  InputSearch search = {.folder = files.folder, .signals = &signals};
  DnnField field = {.path = "d.x",
                    .source = SOURCE_csv,
                    .dtype = DNN_f32,
                    .scale = 1,
                    .rank = 2,
                    .size = {0, 1}};
  put(&files, "x.csv", "1\n2\n", 4);
  for (int is_saving = 0; is_saving < 2; is_saving++) {
    Reader reader;
    signals = is_saving ? 0 : ends[0];
    Status status = reader_open(files.arena, &field, (const char *[]){"x.csv"},
                                1, &search, 1, false, &reader);
    cr_expect_eq(status.code, is_saving ? STATUS_ok : STATUS_stopped);
    reader_close(&reader);
  }
  close(ends[0]);
  close(ends[1]);
  files_destroy(&files);
}
