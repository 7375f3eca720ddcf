// links: runtime
/*
 * pictures.c -- tests sources of pictures: what is decoded, refused by its
 * header, cropped and mirrored, and that the samples of a step have the same
 * bytes on any number of ranks and threads.
 */
#include "runtime/data/pictures.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static void exhausted(void *user) {
  (void)user;
  abort();
}

typedef struct Files {
  Memory *memory;
  Arena *arena;
  char folder[80];
} Files;

static Files files_create(void) {
  Files files = {.memory = memory_create(exhausted, NULL),
                 .folder = "/tmp/pictures-XXXXXX"};
  files.arena = arena_create(files.memory);
  cr_assert(mkdtemp(files.folder));
  return files;
}

static void files_destroy(Files *files) {
  char command[100];
  snprintf(command, sizeof command, "rm -r '%s'", files->folder);
  cr_assert(system(command) == 0);
  memory_destroy(files->memory);
}

static const char *path_of(const Files *files, const char *name) {
  return arena_printf(files->arena, "%s/%s", files->folder, name);
}

static void put(const Files *files, const char *name, const void *bytes,
                size_t n) {
  FILE *file = fopen(path_of(files, name), "wb");
  cr_assert(file && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
}

/* ---- making pictures ---- */

static size_t png_chunk(unsigned char *to, const char *type, const void *data,
                        size_t n) {
  for (int i = 0; i < 4; i++) to[i] = (unsigned char)(n >> (24 - 8 * i));
  memcpy(to + 4, type, 4);
  memcpy(to + 8, data, n);
  uLong crc = crc32(0, to + 4, (uInt)n + 4);
  for (int i = 0; i < 4; i++)
    to[8 + n + (size_t)i] = (unsigned char)(crc >> (24 - 8 * i));
  return n + 12;
}

/* A PNG of this size and color type; pixel (y, x) has 10 y + x + 100 c. */
static size_t make_png(unsigned char *to, int width, int height, int color) {
  int channels = color == 0 ? 1 : color == 2 ? 3 : 4;
  unsigned char header[13] = {0}, rows[4096], packed[8192];
  size_t n = 0;
  for (int i = 0; i < 4; i++) {
    header[i] = (unsigned char)(width >> (24 - 8 * i));
    header[4 + i] = (unsigned char)(height >> (24 - 8 * i));
  }
  header[8] = 8;
  header[9] = (unsigned char)color;
  for (int y = 0; y < height && width < 64; y++) {
    rows[n++] = 0;
    for (int x = 0; x < width; x++)
      for (int c = 0; c < channels; c++)
        rows[n++] = (unsigned char)(10 * y + x + (c < 3 ? 100 * c : 7));
  }
  uLongf n_packed = sizeof packed;
  cr_assert(compress(packed, &n_packed, rows, n) == Z_OK);
  memcpy(to, "\x89PNG\r\n\x1a\n", 8);
  size_t at = 8;
  at += png_chunk(to + at, "IHDR", header, 13);
  at += png_chunk(to + at, "IDAT", packed, n_packed);
  return at + png_chunk(to + at, "IEND", "", 0);
}

/* A JPEG of one color; 0 bytes without the library. */
static unsigned long make_jpeg(unsigned char **out, int width, int height,
                               int grey) {
  void *library = dlopen("libturbojpeg.so.0", RTLD_NOW);
  if (!library) return 0;
  void *(*begin)(void);
  int (*compress_jpeg)(void *, const unsigned char *, int, int, int, int,
                       unsigned char **, unsigned long *, int, int, int);
  *(void **)&begin = dlsym(library, "tjInitCompress");
  *(void **)&compress_jpeg = dlsym(library, "tjCompress2");
  unsigned char *pixels = malloc((size_t)(3 * width * height));
  memset(pixels, grey, (size_t)(3 * width * height));
  unsigned long n = 0;
  *out = NULL;
  cr_assert(compress_jpeg(begin(), pixels, width, 0, height, 0, out, &n, 2, 95,
                          0) == 0);
  free(pixels);
  return n;
}

/* ---- decoding ---- */

typedef struct Decoding {
  Codecs *codecs;
  Decoder decoder;
} Decoding;

static Decoding decoding_create(void) {
  Decoding d;
  cr_assert(codecs_open(&d.codecs).code == STATUS_ok);
  d.decoder = decoder_open(d.codecs);
  return d;
}

static void decoding_destroy(Decoding *d) {
  decoder_close(&d->decoder);
  codecs_close(d->codecs);
}

static bool has_libraries(void) {
  bool has = dlopen("libturbojpeg.so.0", RTLD_NOW) &&
             dlopen("libpng16.so.16", RTLD_NOW);
  if (!has) fprintf(stderr, "skipped: no libturbojpeg.so.0, libpng16.so.16\n");
  return has;
}

static void check_refused(Decoding *d, const void *bytes, size_t n,
                          const char *wanted) {
  int64_t room = d->decoder.pixels.room;
  Status status = decoder_read(&d->decoder, "d/x.jpg", bytes, (int64_t)n, 3);
  cr_expect(status.code != STATUS_ok && strstr(status.message, "'d/x.jpg'") &&
                strstr(status.message, wanted),
            "'%s', not '%s'", status.message ? status.message : "no failure",
            wanted);
  if (strstr(wanted, "announces")) cr_expect_eq(d->decoder.pixels.room, room);
}

Test(pictures, png_of_every_kind) {
  if (!has_libraries()) return;
  Decoding d = decoding_create();
  unsigned char bytes[9000];
  static const int colors[] = {0, 2, 4, 6};
  for (int i = 0; i < 4; i++)
    for (int channels = 1; channels <= 3; channels += 2) {
      if (colors[i] == 4) continue; /* grey and alpha have two channels */
      size_t n = make_png(bytes, 5, 3, colors[i]);
      Status status =
          decoder_read(&d.decoder, "x", bytes, (int64_t)n, channels);
      cr_assert(status.code == STATUS_ok, "%s", status.message);
      const Pixels *p = &d.decoder.pixels;
      cr_assert(p->width == 5 && p->height == 3 && p->channels == channels);
      int at = (2 * 5 + 4) * channels, grey = 24;
      if (channels == 1 && colors[i])
        grey = (299 * 24 + 587 * 124 + 114 * 224 + 500) / 1000;
      cr_expect_eq(p->bytes[at], grey);
      if (channels == 3) cr_expect_eq(p->bytes[at + 2], colors[i] ? 224 : 24);
    }
  decoding_destroy(&d);
}

Test(pictures, what_is_refused) {
  if (!has_libraries()) return;
  Decoding d = decoding_create();
  unsigned char bytes[9000], *jpeg;
  size_t n = make_png(bytes, 60000, 60000, 2);
  check_refused(&d, bytes, n, "announces 60000 x 60000 pixels; the most");
  n = make_png(bytes, 70000, 2, 2);
  check_refused(&d, bytes, n, "announces 70000 x 2 pixels; the most");
  n = make_png(bytes, 40, 30, 2);
  check_refused(&d, bytes, n - 40, "is damaged: ");
  check_refused(&d, bytes, 20, "is damaged: it has no header");
  bytes[n - 20] ^= 1;
  check_refused(&d, bytes, n, "is damaged: ");
  check_refused(&d, "", 0, "is neither JPEG nor PNG: it is empty");
  check_refused(&d, "GIF89a", 6, "is neither JPEG nor PNG");
  n = make_jpeg(&jpeg, 64, 48, 90);
  check_refused(&d, jpeg, n / 2, "is damaged: ");
  check_refused(&d, jpeg, n - 30, "is damaged: ");
  check_refused(&d, jpeg, 2, "is damaged: ");
  for (size_t i = 0; i + 9 < n; i++) /* the size, after the frame's marker */
    if (jpeg[i] == 0xff && jpeg[i + 1] == 0xc0) memset(jpeg + i + 5, 0xf0, 4);
  check_refused(&d, jpeg, n, "announces 61680 x 61680 pixels; the most");
  decoding_destroy(&d);
}

/* ---- cropping ---- */

static DnnField field_of(int channels, int rows, int columns) {
  return (DnnField){.path = "d.x",
                    .source = SOURCE_images,
                    .dtype = DNN_f32,
                    .rank = 4,
                    .size = {8, channels, rows, columns},
                    .scale = 1,
                    .std = {1, 1, 1}};
}

/* Pixel (y, x) of 8 rows and 16 columns has 16 y + x. */
static Pixels ramp(unsigned char *bytes) {
  for (int i = 0; i < 128; i++) bytes[i] = (unsigned char)i;
  return (Pixels){bytes, 128, 16, 8, 1};
}

static void augment(const DnnField *field, const Pixels *pixels, bool trains,
                    uint64_t key, double *out) {
  Augmenter augmenter = {0};
  Status status =
      augmenter_run(&augmenter, field, pixels, "x", trains, key, out);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  augmenter_close(&augmenter);
}

Test(pictures, crops_and_mirrors) {
  unsigned char bytes[128];
  Pixels pixels = ramp(bytes);
  double out[128];
  DnnField field = field_of(1, 4, 4);
  field.crop = CROP_random;
  field.pad = 1;
  field.flips = 1;
  augment(&field, &pixels, false, 3, out);
  cr_expect_float_eq(out[0] * 255, 2 * 16 + 6, 1e-9, "in the middle");
  bool has_border = false, is_mirrored = false, differs = false;
  for (uint64_t key = 0; key < 64; key++) {
    augment(&field, &pixels, true, key, out);
    for (int i = 0; i < 16; i++) has_border = has_border || out[i] == 0;
    is_mirrored = is_mirrored || out[6] < out[5];
    differs = differs || out[5] * 255 < 30;
    double again[16];
    augment(&field, &pixels, true, key, again);
    cr_assert(memcmp(out, again, sizeof again) == 0);
  }
  cr_expect(has_border && is_mirrored && differs);
  field = field_of(1, 8, 16);
  field.mean[0] = 0.5;
  field.std[0] = 0.25;
  augment(&field, &pixels, true, 0, out);
  cr_expect_float_eq(out[127], (127 / 255.0 - 0.5) / 0.25, 1e-12);
  field = field_of(1, 9, 16);
  Augmenter augmenter = {0};
  Status status =
      augmenter_run(&augmenter, &field, &pixels, "d/x.png", true, 0, out);
  cr_expect_str_eq(status.message,
                   "'d/x.png' has 16 x 8 pixels, but 'd.x' takes 16 x 9; "
                   "'resize' or 'crop' gives all one size");
}

/* A linear ramp stays one, the mean of what a pixel covers. */
Test(pictures, resizing) {
  unsigned char bytes[128];
  Pixels pixels = ramp(bytes);
  double out[512];
  DnnField field = field_of(1, 4, 8);
  field.resize_rows = 4;
  augment(&field, &pixels, false, 0, out);
  for (int i = 0; i < 32; i++) {
    int y = i / 8, x = i % 8;
    double wanted = 16 * (2 * y + 0.5) + 2 * x + 0.5;
    if (x > 0 && x < 7 && y > 0 && y < 3)
      cr_expect_float_eq(out[i] * 255, wanted, 1e-3, "%d, %d: %g", y, x,
                         out[i] * 255);
  }
  field = field_of(1, 16, 32);
  field.resize_rows = 16;
  field.resize_columns = 32;
  augment(&field, &pixels, false, 0, out);
  cr_expect_float_eq(out[0], 0, 1e-9);
  cr_expect_float_eq(out[5 * 32 + 9] * 255, 16 * 2.25 + 4.25, 1e-3);
  memset(bytes, 77, sizeof bytes);
  field = field_of(1, 7, 5);
  field.crop = CROP_scaled;
  field.flips = 1;
  for (uint64_t key = 0; key < 200; key++) {
    augment(&field, &pixels, key > 0, key, out);
    for (int i = 0; i < 35; i++)
      cr_assert_float_eq(out[i] * 255, 77, 1e-4, "key %d", (int)key);
  }
}

/* ---- folders and lists ---- */

static void put_png(const Files *files, const char *name, int height) {
  unsigned char bytes[9000];
  put(files, name, bytes, make_png(bytes, 5, height, 2));
}

static void make_folder(const Files *files) {
  static const char *const names[] = {"a", "b", "b0"};
  for (int i = 0; i < 3; i++) {
    cr_assert(mkdir(path_of(files, names[i]), 0777) == 0);
    for (int k = 0; k < 3; k++)
      put_png(files, arena_printf(files->arena, "%s/%d.PNG", names[i], 2 - k),
              1 + 3 * i + k);
    put(files, arena_printf(files->arena, "%s/readme.txt", names[i]), "x", 1);
  }
}

static Status open_labels(const Files *files, const char *name, const char *of,
                          Reader *out) {
  static DnnField field;
  field = field_of(3, 9, 5);
  field.source = SOURCE_labels;
  field.files = &of;
  field.n_files = 1;
  InputSearch search = {.folder = files->folder};
  return reader_open(files->arena, &field, &name, 1, &search, 1, false, out);
}

Test(pictures, folders_and_lists) {
  Files files = files_create();
  cr_assert(mkdir(path_of(&files, "all"), 0777) == 0);
  Files all = files;
  snprintf(all.folder, sizeof all.folder, "%.60s/all", files.folder);
  make_folder(&all);
  Reader labels;
  Status status = open_labels(&files, "all", "all", &labels);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  cr_assert_eq(labels.n, 9);
  for (int i = 0; i < 9; i++) cr_expect_eq(labels.numbers[i], i / 3);
  reader_close(&labels);
  static const char list[] =
      "all/b/0.PNG b0\r\n\nall/a/1.PNG,a\nall/a/2.PNG\tb0";
  put(&files, "list", list, sizeof list - 1);
  cr_assert(open_labels(&files, "list", "all", &labels).code == STATUS_ok);
  cr_expect(labels.n == 3 && labels.numbers[0] == 2 && labels.numbers[1] == 0 &&
            labels.numbers[2] == 2);
  reader_close(&labels);
  put(&files, "numbers", "all/b/0.PNG 7\nall/a/1.PNG 12\n", 29);
  cr_assert(open_labels(&files, "numbers", "all", &labels).code == STATUS_ok);
  cr_expect(labels.numbers[0] == 7 && labels.numbers[1] == 12);
  reader_close(&labels);
  static const struct {
    const char *text, *wanted;
  } wrong[] = {{"all/b/0.PNG dog\n", "'dog' is none of the 3 classes of 'd.x'"},
               {"all/b/0.PNG\n", "/all/b/0.PNG' has no class: 'd.x' needs"},
               {"all/b/0.PNG b\nx y\n", "/wrong', line 2: 'x' is no picture"},
               {"\n", "'wrong' lists no picture"}};
  for (int i = 0; i < ARRAY_LENGTH(wrong); i++) {
    put(&files, "wrong", wrong[i].text, strlen(wrong[i].text));
    status = open_labels(&files, "wrong", "all", &labels);
    cr_expect(status.code != STATUS_ok &&
                  strstr(status.message, wrong[i].wanted),
              "%s", status.message);
    reader_close(&labels);
  }
  put(&all, "b/x.webp", "x", 1);
  status = open_labels(&files, "all", "all", &labels);
  cr_expect(strstr(status.message, "/all/b/x.webp' is not supported yet"));
  files_destroy(&files);
}

static Status read_first(const Files *files, const char *name) {
  DnnField field = field_of(3, 3, 5);
  InputSearch search = {.folder = files->folder};
  Reader reader;
  TRY(reader_open(files->arena, &field, &name, 1, &search, 45, false, &reader));
  Codecs *codecs;
  cr_assert(codecs_open(&codecs).code == STATUS_ok);
  PictureReader pictures = picture_reader_open(codecs);
  Status status = picture_read(&pictures, &reader, &field, 0, true, 1);
  cr_expect(status.code == STATUS_ok || pictures.file_room < 1 << 20);
  picture_reader_close(&pictures);
  codecs_close(codecs);
  return status;
}

Test(pictures, files_that_fail) {
  if (!has_libraries()) return;
  Files files = files_create();
  put(&files, "list", "gone.png\n", 9);
  Status status = read_first(&files, "list");
  cr_expect(strstr(status.message, "cannot open '") &&
                strstr(status.message, "/gone.png'"),
            "%s", status.message);
  put_png(&files, "huge.png", 3);
  cr_expect_eq(read_first(&files, "huge.png").code, STATUS_ok);
  cr_assert(truncate(path_of(&files, "huge.png"), (off_t)1 << 40) == 0);
  status = read_first(&files, "huge.png");
  cr_expect(strstr(status.message, "/huge.png' has 1099511627776 bytes; the "
                                   "most that are read of a picture are "),
            "%s", status.message);
  put(&files, "out", "../etc.png\n/etc/hostname.png\n", 29);
  cr_expect_neq(read_first(&files, "out").code, STATUS_ok);
  cr_assert(symlink("/etc/hostname", path_of(&files, "link.png")) == 0);
  status = read_first(&files, "link.png");
  cr_expect(strstr(status.message, "leads through a link to '/etc/hostname'"),
            "%s", status.message);
  setenv("DNN_PNG_LIB", "/none/libpng.so", 1);
  put_png(&files, "x.png", 3);
  status = read_first(&files, "x.png");
  cr_expect(strstr(status.message,
                   "/x.png' is a PNG, which libpng reads: cannot "
                   "load DNN_PNG_LIB=/none/libpng.so"),
            "%s", status.message);
  files_destroy(&files);
}

/* ---- the samples of a step ---- */

enum { BATCH = 8, ITEMS = 3 * 4 * 4, STEPS = 5 };

static Status keep(Device *device, int64_t offset, const void *from,
                   int64_t bytes) {
  memcpy((char *)device->host_arena + offset, from, (size_t)bytes);
  return STATUS_OK;
}

/* The batches of the first steps, as `ranks` ranks read them by `threads`. */
static void read_steps(const Files *files, int ranks, int threads, float *out) {
  void *library = dlopen("libgomp.so.1", RTLD_NOW);
  void (*set)(int) = NULL;
  if (library) *(void **)&set = dlsym(library, "omp_set_num_threads");
  if (set) set(threads);
  static const DnnGroup groups[] = {
      {.ranks = 1, .size = 1, .n_digits = 1, .digits = {{1, 1}}},
      {.ranks = 2, .size = 2, .n_digits = 1, .digits = {{2, 1}}}};
  const char *name = "all";
  DnnField field = field_of(3, 4, 4);
  field.files = &name;
  field.n_files = 1;
  field.crop = CROP_random;
  field.pad = 4;
  field.flips = 1;
  DnnData data = {.name = "d", .n_fields = 1, .fields = &field};
  DnnTensor tensor = {.path = "d.x",
                      .role = DNN_DATA,
                      .dtype = DNN_f32,
                      .rank = 4,
                      .size = {BATCH, 3, 4, 4},
                      .split = {ranks > 1 ? &groups[1] : NULL}};
  DnnEntryPoint train = {
      .id = ENTRY_train, .batch = BATCH, .n_tensors = 1, .tensors = &tensor};
  DnnProgram program = {.n_data = 1,
                        .data = &data,
                        .n_entry_points = 1,
                        .entry_points = &train,
                        .world = ranks};
  InputSearch search = {.folder = files->folder};
  for (int rank = 0; rank < ranks; rank++)
    for (int t = 1; t <= STEPS; t++) {
      Data *opened;
      /* Step 3 is read by itself, as a run that was resumed there would. */
      Device device = {.rank = rank,
                       .write = keep,
                       .host_arena = out + (t - 1) * BATCH * ITEMS +
                                     rank * BATCH / ranks * ITEMS};
      cr_assert(
          data_open(files->arena, &program, NULL, &search, 1, &opened).code ==
          STATUS_ok);
      if (t == 4)
        cr_assert(data_fill_train(opened, &device, &train, t - 1).code ==
                  STATUS_ok);
      Status status = data_fill_train(opened, &device, &train, t);
      cr_assert(status.code == STATUS_ok, "%s", status.message);
      data_close(opened);
    }
}

Test(pictures, ranks_and_threads_read_the_same) {
  if (!has_libraries()) return;
  Files files = files_create();
  cr_assert(mkdir(path_of(&files, "all"), 0777) == 0);
  Files all = files;
  snprintf(all.folder, sizeof all.folder, "%.60s/all", files.folder);
  make_folder(&all);
  float *one = calloc(4 * STEPS * BATCH * ITEMS, sizeof *one);
  const size_t n = STEPS * BATCH * ITEMS;
  read_steps(&files, 1, 1, one);
  read_steps(&files, 1, 5, one + n);
  read_steps(&files, 2, 1, one + 2 * n);
  read_steps(&files, 2, 3, one + 3 * n);
  for (size_t i = 1; i < 4; i++)
    cr_expect(memcmp(one, one + i * n, n * sizeof *one) == 0, "form %zu", i);
  cr_expect(memcmp(one, one + BATCH * ITEMS, BATCH * ITEMS * sizeof *one) != 0,
            "two epochs are cropped alike");
  free(one);
  files_destroy(&files);
}
