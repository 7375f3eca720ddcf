#!/bin/sh
# merge-archives.sh AR OUT IN... -- one static archive out of several.
set -e
ar=$1 out=$2
shift 2
{
  echo "create $out"
  for archive in "$@"; do echo "addlib $archive"; done
  echo save
  echo end
} | "$ar" -M
