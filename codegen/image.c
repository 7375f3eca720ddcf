/*
 * image.c -- appends structs, strings and links to an image; see image.h.
 */
#include "codegen/image.h"

#include <string.h>

_Static_assert(sizeof(void *) == 8, "links are pointers of eight bytes");

Image *image_create(Arena *arena) {
  Image *image = ARENA_NEW(arena, Image);
  image->arena = arena;
  image->bytes = text_create(arena);
  image->contents = names_create(arena);
  image->shared = map_create(arena);
  return image;
}

size_t image_add(Image *image, const void *bytes, size_t n) {
  static const char zeros[8];
  text_add_n(&image->bytes, zeros, -image->bytes.n % 8);
  size_t at = image->bytes.n;
  ASSERT(at + n <= UINT32_MAX);
  text_add_n(&image->bytes, bytes, n);
  return at;
}

size_t image_share(Image *image, const void *bytes, size_t n) {
  char hex[33];
  hash_hex(bytes, n, hex);
  Name content = name_intern(image->contents, hex);
  if (map_has(image->shared, content))
    return (size_t)(uintptr_t)map_get(image->shared, content);
  size_t at = image_add(image, bytes, n);
  map_put(image->shared, content, (void *)(uintptr_t)at);
  return at;
}

size_t image_string(Image *image, const char *string) {
  return image_share(image, string, strlen(string) + 1);
}

void image_link(Image *image, size_t at, size_t target) {
  uint64_t offset = target;
  memcpy(image->bytes.data + at, &offset, sizeof offset);
  vec_push(image->arena, &image->links, (uint32_t)at);
}

void image_link_string(Image *image, size_t at, const char *string) {
  if (string) image_link(image, at, image_string(image, string));
}

void image_link_shared(Image *image, size_t at, const void *bytes, size_t n) {
  image_link(image, at, image_share(image, bytes, n));
}

size_t image_add_links(Image *image) {
  return image_add(image, image->links.data,
                   (size_t)image->links.n * sizeof *image->links.data);
}
