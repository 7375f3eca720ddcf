/*
 * emitted.h -- says how unit tests compile emitted code.
 *
 * A sanitized build sanitizes the compiler, not what it emits, and compiling
 * that is most of the time of such a test.
 */
#ifndef TESTS_OPS_EMITTED_H
#define TESTS_OPS_EMITTED_H

#ifdef __SANITIZE_ADDRESS__
#define EMITTED_LEVEL "-O0"
#else
#define EMITTED_LEVEL "-O1"
#endif

#endif
