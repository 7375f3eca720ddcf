/*
 * image.h -- builds the tables of a program as the bytes that their structs
 * have in memory.  Private to codegen.
 *
 * C initialisers of a deep model cost the C compiler more than all kernels. The
 * assembler includes these bytes unchanged instead.  A pointer is stored as the
 * offset of its target in the image, and a list holds the offsets of all
 * pointers; the program adds the address of the image to each when it starts.
 */
#ifndef CODEGEN_IMAGE_H
#define CODEGEN_IMAGE_H

#include "support/support.h"

typedef struct Image {
  Arena *arena;
  Text bytes;
  VEC(uint32_t) links; /* offsets of pointers */
  Names *contents;     /* hashes of shared bytes */
  Map *shared;         /* content -> offset */
} Image;

Image *image_create(Arena *arena);
/* Appends bytes at a multiple of 8; returns their offset. */
size_t image_add(Image *image, const void *bytes, size_t n);
/* Appends bytes of which equal ones are stored once, and returns where they
 * are.  They must hold no pointers. */
size_t image_share(Image *image, const void *bytes, size_t n);
/* Appends a string with its NUL as image_share does. */
size_t image_string(Image *image, const char *string);
/* Makes the pointer at offset `at` point to offset `target`. */
void image_link(Image *image, size_t at, size_t target);
/* Makes it point to a string, or NULL, or to bytes as of image_share. */
void image_link_string(Image *image, size_t at, const char *string);
void image_link_shared(Image *image, size_t at, const void *bytes, size_t n);
/* Appends the list of links; returns its offset. */
size_t image_add_links(Image *image);

#endif
