/* f32.c -- compiles the interpreter's arithmetic (number.inc) for float. */
#define NUM    float
#define SUFFIX f32
#define EXP    expf
#define LOG    logf
#define LOG1P  log1pf
#define SQRT   sqrtf
#define SIN    sinf
#define COS    cosf
#define TANH   tanhf
#define ERF    erff
#define POW    powf
#define FLOOR  floorf
#define ROUND  nearbyintf
#define ABS    fabsf
#define EXPM1  expm1f
#define EXP2   exp2f
#define LOG2   log2f
#define TAN    tanf
#define ATAN2  atan2f
#define CEIL   ceilf
#define TRUNC  truncf
#include "interp/number.inc"
