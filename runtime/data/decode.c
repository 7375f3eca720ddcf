/*
 * decode.c -- decodes JPEG and PNG by libjpeg-turbo and libpng, if they are
 * installed.
 *
 * The libraries are found at run time and never linked.  The header of a
 * picture says how large it is; one that is too large is refused before any
 * memory is taken for it, so that a small file cannot ask for all memory.  A
 * JPEG that ends early or has wrong codes is an error, not a grey area.
 */
#include "runtime/data/pictures.h"
#include "support/file.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PIXELS = 1 << 26, LONGEST_SIDE = 65500 };

/* png_image of png.h, version 1. */
typedef struct PngImage {
  void *opaque;
  uint32_t version, width, height, format, flags, n_colormap;
  uint32_t warning_or_error;
  char message[64];
} PngImage;

/* Values of png.h and turbojpeg.h. */
enum {
  PNG_VERSION = 1,
  PNG_ALPHA = 1,
  PNG_COLOR = 2,
  PNG_16BIT_SRGB = 4,
  JPEG_RGB = 0,
  JPEG_GRAY = 6,
  JPEG_CMYK = 3,
  JPEG_YCCK = 4,
  JPEG_ACCURATE = 4096,
  JPEG_STOP_ON_WARNING = 8192,
  JPEG_LIMIT_SCANS = 32768
};

struct Codecs {
  Dylib *jpeg, *png;
  Status has_jpeg, has_png;
#define TURBOJPEG(result, name, parameters) result(*name) parameters;
#define PNG(result, name, parameters)       result(*name) parameters;
#include "runtime/data/codecs.def"
};

/* ---- libraries ---- */

static bool load_jpeg(Codecs *codecs) {
  void *symbol;
#define TURBOJPEG(result, name, parameters)                                    \
  symbol = dylib_symbol(codecs->jpeg, #name);                                  \
  if (!symbol) return false;                                                   \
  memcpy(&codecs->name, &symbol, sizeof symbol);
#include "runtime/data/codecs.def"
  return true;
}

static bool load_png(Codecs *codecs) {
  void *symbol;
#define PNG(result, name, parameters)                                          \
  symbol = dylib_symbol(codecs->png, #name);                                   \
  if (!symbol) return false;                                                   \
  memcpy(&codecs->name, &symbol, sizeof symbol);
#include "runtime/data/codecs.def"
  return true;
}

Status codecs_open(Codecs **out) {
  static const char *const jpeg[] = {"libturbojpeg.so.0", "libturbojpeg.so",
                                     NULL};
  static const char *const png[] = {"libpng16.so.16", "libpng16.so", NULL};
  Codecs *codecs = *out = calloc(1, sizeof *codecs);
  if (!codecs) return status_make(STATUS_io, "no memory to read pictures");
  codecs->has_jpeg = dylib_open("DNN_TURBOJPEG_LIB", jpeg, &codecs->jpeg);
  if (codecs->jpeg && !load_jpeg(codecs))
    codecs->has_jpeg =
        status_make(STATUS_unavailable, "'%s' is not libturbojpeg 1.4 or later",
                    dylib_path(codecs->jpeg));
  codecs->has_png = dylib_open("DNN_PNG_LIB", png, &codecs->png);
  if (codecs->png && !load_png(codecs))
    codecs->has_png = status_make(STATUS_unavailable, "'%s' is not libpng 1.6",
                                  dylib_path(codecs->png));
  return STATUS_OK;
}

void codecs_close(Codecs *codecs) {
  if (!codecs) return;
  dylib_close(codecs->jpeg);
  dylib_close(codecs->png);
  free(codecs);
}

/* ---- limits ---- */

static Status damaged(const char *path, const char *why) {
  return status_make(STATUS_invalid, "'%s' is damaged: %s", path, why);
}

/* Room for a picture of this size, unless it is too large. */
static Status make_room(Decoder *decoder, const char *path, int64_t width,
                        int64_t height, int bytes_of_pixel) {
  Pixels *pixels = &decoder->pixels;
  if (width < 1 || height < 1) return damaged(path, "it has no pixels");
  if (width > LONGEST_SIDE || height > LONGEST_SIDE ||
      width * height > decoder->most_pixels)
    return status_make(STATUS_invalid,
                       "'%s' announces %lld x %lld pixels; the most that are "
                       "read are %lld",
                       path, (long long)width, (long long)height,
                       (long long)decoder->most_pixels);
  pixels->width = width;
  pixels->height = height;
  int64_t bytes = width * height * bytes_of_pixel;
  if (bytes <= pixels->room) return STATUS_OK;
  free(pixels->bytes);
  pixels->bytes = malloc((size_t)bytes);
  pixels->room = pixels->bytes ? bytes : 0;
  return pixels->bytes
             ? STATUS_OK
             : status_make(STATUS_io, "no memory to decode '%s'", path);
}

/* ---- JPEG ---- */

static Status read_jpeg(Decoder *decoder, const char *path,
                        const unsigned char *bytes, int64_t n, int channels) {
  const Codecs *codecs = decoder->codecs;
  int width = 0, height = 0, subsampling, colorspace = 0;
  if (codecs->has_jpeg.code != STATUS_ok)
    return status_make(STATUS_unavailable,
                       "'%s' is a JPEG, which libjpeg-turbo reads: %s", path,
                       codecs->has_jpeg.message);
  if (!decoder->jpeg) decoder->jpeg = codecs->tjInitDecompress();
  void *jpeg = decoder->jpeg;
  if (!jpeg) return status_make(STATUS_io, "no memory to decode '%s'", path);
  if (codecs->tjDecompressHeader3(jpeg, bytes, (unsigned long)n, &width,
                                  &height, &subsampling, &colorspace) != 0)
    return damaged(path, codecs->tjGetErrorStr2(jpeg));
  if (colorspace == JPEG_CMYK || colorspace == JPEG_YCCK)
    return status_make(STATUS_unavailable,
                       "'%s' is a CMYK picture, which is not supported yet",
                       path);
  TRY(make_room(decoder, path, width, height, channels));
  decoder->pixels.channels = channels;
  if (codecs->tjDecompress2(
          jpeg, bytes, (unsigned long)n, decoder->pixels.bytes, width,
          width * channels, height, channels == 1 ? JPEG_GRAY : JPEG_RGB,
          JPEG_ACCURATE | JPEG_STOP_ON_WARNING | JPEG_LIMIT_SCANS) != 0)
    return damaged(path, codecs->tjGetErrorStr2(jpeg));
  return STATUS_OK;
}

/* ---- PNG ---- */

static uint32_t big_endian(const unsigned char *bytes) {
  return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 |
         (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Leaves `channels` of each pixel's `from`; grey is ITU-R 601's luma. */
static void drop_channels(Pixels *pixels, int from, int channels) {
  unsigned char *to = pixels->bytes;
  const unsigned char *at = pixels->bytes;
  int64_t n = pixels->width * pixels->height;
  bool makes_grey = channels == 1 && from >= 3;
  pixels->channels = channels;
  if (from == channels) return;
  for (int64_t i = 0; i < n; i++, at += from, to += channels) {
    if (makes_grey)
      to[0] = (unsigned char)((299 * at[0] + 587 * at[1] + 114 * at[2] + 500) /
                              1000);
    else
      memmove(to, at, (size_t)channels);
  }
}

/* The alpha channel is read and dropped: without it libpng would blend. */
static Status decode_png(Decoder *decoder, const char *path, PngImage *image,
                         int channels) {
  const Codecs *codecs = decoder->codecs;
  bool has_alpha = image->format & PNG_ALPHA;
  bool is_color = channels == 3 || (image->format & PNG_COLOR);
  int from = (is_color ? 3 : 1) + has_alpha;
  image->format = (is_color ? PNG_COLOR : 0) | (has_alpha ? PNG_ALPHA : 0);
  image->flags |= PNG_16BIT_SRGB;
  TRY(make_room(decoder, path, image->width, image->height, from));
  if (!codecs->png_image_finish_read(image, NULL, decoder->pixels.bytes,
                                     (int32_t)image->width * from, NULL))
    return damaged(path, image->message);
  drop_channels(&decoder->pixels, from, channels);
  return STATUS_OK;
}

static Status read_png(Decoder *decoder, const char *path,
                       const unsigned char *bytes, int64_t n, int channels) {
  const Codecs *codecs = decoder->codecs;
  if (codecs->has_png.code != STATUS_ok)
    return status_make(STATUS_unavailable,
                       "'%s' is a PNG, which libpng reads: %s", path,
                       codecs->has_png.message);
  /* The first chunk has the size. */
  if (n < 33 || memcmp(bytes + 12, "IHDR", 4) != 0)
    return damaged(path, "it has no header");
  TRY(make_room(decoder, path, big_endian(bytes + 16), big_endian(bytes + 20),
                channels));
  PngImage image = {.version = PNG_VERSION};
  Status status = STATUS_OK;
  if (!codecs->png_image_begin_read_from_memory(&image, bytes, (size_t)n))
    status = damaged(path, image.message);
  else
    status = decode_png(decoder, path, &image, channels);
  codecs->png_image_free(&image);
  return status;
}

/* ---- both ---- */

Decoder decoder_open(const Codecs *codecs) {
  return (Decoder){.codecs = codecs, .most_pixels = MOST_PIXELS};
}

Status decoder_read(Decoder *decoder, const char *path,
                    const unsigned char *bytes, int64_t n, int channels) {
  ASSERT(channels == 1 || channels == 3);
  if (n >= 2 && bytes[0] == 0xff && bytes[1] == 0xd8)
    return read_jpeg(decoder, path, bytes, n, channels);
  if (n >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0)
    return read_png(decoder, path, bytes, n, channels);
  return status_make(STATUS_invalid, "'%s' is neither JPEG nor PNG%s", path,
                     n == 0 ? ": it is empty" : "");
}

void decoder_close(Decoder *decoder) {
  if (decoder->jpeg) decoder->codecs->tjDestroy(decoder->jpeg);
  free(decoder->pixels.bytes);
  *decoder = (Decoder){0};
}
