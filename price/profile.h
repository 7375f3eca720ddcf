/*
 * profile.h -- declares profiles: how long launches of a program take on one
 * machine, as `dnnc run --profile` measures them (docs/profile.md).
 *
 *     path,phase,kernel,cores,ps,runs
 *     hidden.dot,forward,9c1f0d6be2a47730,2,418230000,19
 */
#ifndef PRICE_PROFILE_H
#define PRICE_PROFILE_H

#include "ir/cluster/cluster.h"
#include "ir/ir.h"

typedef struct Profile Profile;

/* Reads a profile.  Returns NULL after mistakes, which become diags. */
Profile *profile_read(Arena *arena, Diags *diags, const Source *source);
int profile_launches(const Profile *profile);
/* Returns the number of cores that all its launches had.  Returns 0 if there
 * are several. */
int profile_cores(const Profile *profile);

/* The launch that is looked for. */
typedef struct ProfileKey {
  const char *path;
  Phase phase;
  uint64_t kernel; /* launch_key or clear_key */
  int cores;
} ProfileKey;

/* Finds the time of one run: that of this path, phase and kernel, else the
 * median over all launches of this kernel; with as many cores.  Returns false
 * if it has none. */
bool profile_find(const Profile *profile, const ProfileKey *key, Ps *out);

#endif
