#!/bin/bash
# replay.sh -- shows that a change of this repository's structure or words
# changes no output: builds an old commit and this tree, runs both over all
# models and compares what they put out.
#
#   tools/replay.sh [COMMIT] [--base-build DIR] [--build DIR]
#                   [--only PATTERN] [--no-runs]
#
# Without COMMIT it takes that of the line `base` in tools/replay.renames.  The
# lines of that file, and nothing else, are applied to the old output first.
# Compared are, for every model of models/ (for the CPU at -O2 and -O0, CUDA,
# the null back end, two ranks, and those with two micro-batches), its plan file
# and for every model of tests/reference:
#   - the graph of every entry point after the last pass
#   - the emitted C and CUDA, without comments, and the tables of the program
#   - the plan that the bundle holds
#   - `simulate --json` of the plans of benchmarks/reality, on a cluster of GPUs
#     and, where it has the ranks, on one of the CPU
#   - losses and hash of the parameters of three steps, bit for bit, where a
#     model is small and its data is there
# Not compared: executables, and the copy of runtime/program.h in a bundle.
#
# Names of kernels and hashes of models are hashes of text that renames change.
# So both sides replace every hash by the number of its first appearance, in
# the tables of the program first: these list kernels in the order of launches.
# Kernels are spread over files and CUDA modules by the length of their text,
# which names are part of.  So kernels are compared one by one, in that order,
# and the text that precedes them in a file apart.  Left out are the files and
# modules that kernels lie in and how many there are.  Places in the image of
# tables move when a string gets longer: both sides print the image as numbered
# objects.  A stub stands for the C compiler and for NVRTC except where steps
# are run.
#
# --base-build DIR: a folder where the old commit is built already, in its tree.
# --only PATTERN: the models whose name matches.  --no-runs: no steps.
# Exit 1 where anything differs; a model's first differences are shown with their
# first lines, the others by name.
set -eu
cd "$(dirname "$0")/.."
root=$PWD renames=$PWD/tools/replay.renames
commit=$(sed -n 's/^base //p' "$renames")
base_build="" build=build
options=()
while [ $# -gt 0 ]; do
  case $1 in
  --base-build) base_build=$2 && shift 2 ;;
  --build) build=$2 && shift 2 ;;
  --only) options+=(--only "$2") && shift 2 ;;
  --no-runs) options+=(--no-runs) && shift ;;
  -*) echo "replay.sh: no option '$1'; the head of this file lists them" >&2 && exit 1 ;;
  *) commit=$1 && shift ;;
  esac
done

mkdir -p "$build"
build=$(realpath "$build")
work=$(mktemp -d "$build/replay.XXXXXX")
tree=$work/tree
cleanup() { # takes away what this script made, never the tree of --base-build
  git worktree remove --force "$work/tree" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
build_dnnc() { # source folder
  [ -f "$2/build.ninja" ] || cmake -S "$1" -B "$2" -G Ninja >/dev/null
  ninja -C "$2" dnnc >"$work/log" || { tail -n 40 "$work/log"; exit 1; }
}

if [ -n "$base_build" ]; then
  tree=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$base_build/CMakeCache.txt")
  old=$(realpath "$base_build/dnnc")
else
  echo "replay.sh: building commit $commit"
  git worktree add --quiet --detach "$tree" "$commit"
  build_dnnc "$tree" "$work/base"
  old=$work/base/dnnc
fi
build_dnnc . "$build"

# Writes something where an object or a program is wanted.
cat >"$work/cc" <<'END'
#!/bin/sh
while [ $# -gt 0 ]; do
  [ "$1" = -o ] && out=$2
  shift
done
[ -z "${out:-}" ] || printf '\177ELF object\n' >"$out"
END
chmod +x "$work/cc"
# Compiles any kernel to four bytes.
cat >"$work/nvrtc.c" <<'END'
#include <stddef.h>
#include <string.h>
static int program;
int nvrtcVersion(int *major, int *minor) { *major = 12, *minor = 0; return 0; }
int nvrtcCreateProgram(void **out, const char *text, const char *name, int n,
                       const char *const *headers, const char *const *names) {
  (void)text, (void)name, (void)n, (void)headers, (void)names;
  *out = &program;
  return 0;
}
int nvrtcDestroyProgram(void **p) { *p = NULL; return 0; }
int nvrtcCompileProgram(void *p, int n, const char *const *o) { (void)p, (void)n, (void)o; return 0; }
int nvrtcGetCUBINSize(void *p, size_t *n) { (void)p; *n = 4; return 0; }
int nvrtcGetCUBIN(void *p, char *image) { (void)p; memcpy(image, "cub", 4); return 0; }
int nvrtcGetPTXSize(void *p, size_t *n) { (void)p; *n = 4; return 0; }
int nvrtcGetPTX(void *p, char *text) { (void)p; memcpy(text, "ptx", 4); return 0; }
int nvrtcGetProgramLogSize(void *p, size_t *n) { (void)p; *n = 1; return 0; }
int nvrtcGetProgramLog(void *p, char *log) { (void)p; *log = 0; return 0; }
END
${CC:-cc} -shared -fPIC -o "$work/nvrtc.so" "$work/nvrtc.c"

python3 tools/replay.py --old "$old" --old-tree "$tree" --new "$build/dnnc" \
  --new-tree "$root" --work "$work" --renames "$renames" \
  --stub-cc "$work/cc" --stub-nvrtc "$work/nvrtc.so" ${options[@]+"${options[@]}"}
