#!/bin/bash
# setup.sh -- installs what building, running and testing dnnc needs, on Debian
# 12 or a relative.  Does nothing where all is there.
#
#   tools/setup.sh            compiler, libraries, Open MPI, oneDNN, libjpeg-turbo
#                             and libpng
#   tools/setup.sh --test     also what the tests need
#   tools/setup.sh --cuda     also NVRTC from PyPI wheels where no toolkit is
set -eu
cd "$(dirname "$0")/.."

packages="gcc g++ cmake ninja-build pkg-config flex bison libxxhash-dev
  zlib1g-dev libgomp1 openmpi-bin libopenmpi3 libdnnl2 libturbojpeg0
  libpng16-16"
want_cuda=no
for word in "$@"; do
  case $word in
  --test)
    packages="$packages libcriterion-dev clang clang-format lld strace
      libclang-rt-14-dev wasi-libc libclang-rt-14-dev-wasm32 procps python3
      valgrind"
    ;;
  --cuda) want_cuda=yes ;;
  *) echo "setup.sh: no option '$word'; there are --test and --cuda" >&2; exit 1 ;;
  esac
done

missing=""
for package in $packages; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null |
    grep -q 'install ok installed' || missing="$missing $package"
done
if [ -n "$missing" ]; then
  sudo=""
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
      echo "setup.sh: these packages are missing; install them with" >&2
      echo "  sudo apt-get install$missing" >&2
      exit 1
    fi
    sudo=sudo
  fi
  echo "setup.sh: installing$missing"
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends $missing >/dev/null
fi

has_nvrtc() {
  ls /usr/local/cuda/lib64/libnvrtc.so.1* "${DNN_NVRTC_LIB:-/none}" \
    build/cuda/nvidia/*/lib/libnvrtc.so.1* 2>/dev/null | grep -q .
}
if [ $want_cuda = yes ] && ! has_nvrtc; then
  echo "setup.sh: installing NVRTC wheels into build/cuda"
  python3 -m pip --version >/dev/null 2>&1 ||
    { echo "setup.sh: needs pip: apt-get install python3-pip" >&2; exit 1; }
  python3 -m pip install -q --target build/cuda nvidia-cuda-nvrtc
fi
