/* interp_f64.c -- the interpreter's arithmetic in double. */
#define NUM     double
#define KERNELS interp_kernels_f64
#define EXP     exp
#define LOG     log
#define LOG1P   log1p
#define SQRT    sqrt
#define SIN     sin
#define COS     cos
#define TANH    tanh
#define ERF     erf
#define POW     pow
#define FLOOR   floor
#define ROUND   nearbyint
#define ABS     fabs
#include "ir/interp_number.inc"
