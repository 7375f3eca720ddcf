/* interp_f32.c -- the interpreter's arithmetic in float. */
#define NUM     float
#define KERNELS interp_kernels_f32
#define EXP     expf
#define LOG     logf
#define LOG1P   log1pf
#define SQRT    sqrtf
#define SIN     sinf
#define COS     cosf
#define TANH    tanhf
#define ERF     erff
#define POW     powf
#define FLOOR   floorf
#define ROUND   nearbyintf
#define ABS     fabsf
#include "ir/interp_number.inc"
