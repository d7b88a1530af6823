#!/usr/bin/env bash
# Checks that the repository's C and C++ files are as clang-format writes them. Exits with 77, which CTest counts as
# skipped, where clang-format is absent or of another major version: their results differ.
#   tools/check_format.sh          lists the files that differ
#   tools/check_format.sh --fix    rewrites them
set -euo pipefail
cd "$(dirname "$0")/.."
major=14

if ! command -v clang-format >/dev/null; then
  echo "skipped: clang-format is not installed"
  exit 77
fi
version=$(clang-format --version)
case "$version" in
  *"version $major."*) ;;
  *) echo "skipped: needs clang-format $major, found: $version"; exit 77 ;;
esac
if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  echo "skipped: not a git checkout"
  exit 77
fi

list=$(mktemp)
trap 'rm -f "$list"' EXIT
git ls-files -z -- '*.h' '*.hpp' '*.c' '*.cc' '*.cpp' '*.cu' '*.cuh' |
  while IFS= read -r -d '' file; do if [ -f "$file" ]; then printf '%s\0' "$file"; fi; done >"$list"
if ! [ -s "$list" ]; then
  echo "no files found"
  exit 1
fi

if [ "${1:-}" = "--fix" ]; then
  xargs -0 clang-format -i <"$list"
else
  xargs -0 clang-format --dry-run -Werror <"$list"
fi
echo "$(tr -cd '\0' <"$list" | wc -c) files checked"
