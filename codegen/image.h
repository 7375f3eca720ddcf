/*
 * image.h -- tables of structs as bytes, with pointers among them.  Private to
 * codegen.
 *
 * C initialisers of a deep model cost the C compiler more than all its
 * kernels.  So the tables of program.h are written as the bytes that they have
 * in memory, which the assembler takes in as they are.  A pointer is kept as
 * the place that it points to, and the place of the pointer is noted; the
 * program adds its own address to each when it starts.
 */
#ifndef CODEGEN_IMAGE_H
#define CODEGEN_IMAGE_H

#include "support/support.h"

typedef struct Image {
  Arena *arena;
  Text bytes;
  VEC(uint32_t) links; /* places of pointers */
  Names *contents;     /* of what is shared, by its hash */
  Map *shared;         /* content -> place */
} Image;

Image *image_create(Arena *arena);
/* Appends bytes at a multiple of 8; returns their place. */
size_t image_add(Image *image, const void *bytes, size_t n);
/* The same, but equal bytes are kept once.  They must hold no pointers. */
size_t image_share(Image *image, const void *bytes, size_t n);
/* Of a string with its end. */
size_t image_string(Image *image, const char *string);
/* The pointer at place `at` shall point to place `target`. */
void image_link(Image *image, size_t at, size_t target);
/* Appends the list of links; returns its place. */
size_t image_add_links(Image *image);

#endif
