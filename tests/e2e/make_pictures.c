/*
 * make_pictures.c -- writes a folder of classes of JPEG files and, as arrays,
 * the same pixels and labels in the order in which the folder is read.
 *
 *   make_pictures FOLDER N CLASSES SIZE
 *
 * FOLDER gets classes c0, c1, ..., and beside it FOLDER-x.npy and FOLDER-y.npy.
 * libjpeg-turbo is found at run time; without it the exit is 77.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void *symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (!found) exit(77);
  return found;
}

static FILE *create(const char *path) {
  FILE *file = fopen(path, "wb");
  if (!file) {
    perror(path);
    exit(1);
  }
  return file;
}

static FILE *create_npy(const char *folder, const char *ending,
                        const char *descr, const char *shape) {
  char path[1000], header[128];
  snprintf(path, sizeof path, "%s-%s.npy", folder, ending);
  FILE *file = create(path);
  int n = snprintf(header, sizeof header,
                   "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n",
                   descr, shape);
  unsigned char begin[10] = "\x93NUMPY\1";
  begin[8] = (unsigned char)n;
  fwrite(begin, 1, 10, file);
  fwrite(header, 1, (size_t)n, file);
  return file;
}

/* Smooth shapes with some noise, so that files are of the usual size. */
static void paint(unsigned char *pixels, int size, int class, uint32_t *seed) {
  for (int y = 0; y < size; y++)
    for (int x = 0; x < size; x++)
      for (int c = 0; c < 3; c++) {
        *seed = *seed * 1664525u + 1013904223u;
        int wave = (x * (class + 1) + y * (c + 1)) * 160 / size % 200;
        pixels[(y * size + x) * 3 + c] =
            (unsigned char)(wave + (int)(*seed >> 28));
      }
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  void *library = dlopen("libturbojpeg.so.0", RTLD_NOW);
  if (!library) return 77;
  void *(*begin)(void), *(*decoder)(void);
  int (*compress)(void *, const unsigned char *, int, int, int, int,
                  unsigned char **, unsigned long *, int, int, int);
  int (*decompress)(void *, const unsigned char *, unsigned long,
                    unsigned char *, int, int, int, int, int);
  *(void **)&begin = symbol(library, "tjInitCompress");
  *(void **)&decoder = symbol(library, "tjInitDecompress");
  *(void **)&compress = symbol(library, "tjCompress2");
  *(void **)&decompress = symbol(library, "tjDecompress2");
  const char *folder = argv[1];
  int n = atoi(argv[2]), classes = atoi(argv[3]), size = atoi(argv[4]);
  char path[1000], shape[100];
  snprintf(shape, sizeof shape, "(%d, 3, %d, %d)", n, size, size);
  FILE *x = create_npy(folder, "x", "|u1", shape);
  snprintf(shape, sizeof shape, "(%d,)", n);
  FILE *y = create_npy(folder, "y", "<i4", shape);
  mkdir(folder, 0777);
  unsigned char *pixels = malloc((size_t)size * (size_t)size * 3);
  void *encoder = begin(), *reader = decoder();
  uint32_t seed = 1;
  for (int i = 0; i < n; i++) {
    int32_t class = (int32_t)((int64_t)i * classes / n);
    snprintf(path, sizeof path, "%s/c%d", folder, class);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/c%d/%06d.jpg", folder, class, i);
    unsigned char *bytes = NULL;
    unsigned long n_bytes = 0;
    paint(pixels, size, class, &seed);
    if (compress(encoder, pixels, size, 0, size, 0, &bytes, &n_bytes, 2, 90,
                 0) != 0 ||
        decompress(reader, bytes, n_bytes, pixels, size, 0, size, 0, 4096) != 0)
      return 1;
    FILE *file = create(path);
    fwrite(bytes, 1, n_bytes, file);
    fclose(file);
    for (int c = 0; c < 3; c++)
      for (int k = 0; k < size * size; k++) fputc(pixels[k * 3 + c], x);
    fwrite(&class, 4, 1, y);
  }
  return fclose(x) || fclose(y);
}
