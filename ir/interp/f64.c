/* f64.c -- compiles the interpreter's arithmetic (number.inc) for double. */
#define NUM    double
#define SUFFIX f64
#define EXP    exp
#define LOG    log
#define LOG1P  log1p
#define SQRT   sqrt
#define SIN    sin
#define COS    cos
#define TANH   tanh
#define ERF    erf
#define POW    pow
#define FLOOR  floor
#define ROUND  nearbyint
#define ABS    fabs
#define EXPM1  expm1
#define EXP2   exp2
#define LOG2   log2
#define TAN    tan
#define ATAN2  atan2
#define CEIL   ceil
#define TRUNC  trunc
#include "ir/interp/number.inc"
#include "ir/interp/moves.inc"
