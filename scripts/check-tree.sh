#!/usr/bin/env bash
# check-tree.sh [--without-format] [--self-test]: what must not be committed (files above 1 MiB, folders that
# a killed test left, paths of somebody's machine, lines of C, C++, Python, shell and CMake above 110 columns,
# sources that clang-format would change), and what deserves a look (sources above 500 lines; only named).
# --without-format: where clang-format is not installed, as in CI. The self-test breaks each rule once in a
# scratch repository.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/step.sh"

file_bytes_max=$((1024 * 1024))
source_lines_max=500
columns_max=110
with_format=yes
# Tests make such folders where they run.
scratch_folder='^[^/]*-[A-Za-z0-9]{6}/'
[ "${1:-}" != --without-format ] || { with_format=no; shift; }
# A home, or root's, or a work folder at the root of the file system; not "/root" inside a longer path.
machine_path='(^|[^A-Za-z0-9_.}/-])/(work|root|home/[a-z][a-z0-9_-]*)/'

# files: tracked and new, not ignored, in the current folder.
files() {
  git ls-files --cached --others --exclude-standard | sort -u |
    while IFS= read -r file; do [ ! -f "$file" ] || printf '%s\n' "$file"; done
}

check_tree() {
  local wrong=0 file lines found format
  while IFS= read -r file; do
    if [ "$(stat -c %s "$file")" -gt "$file_bytes_max" ]; then
      echo "$file: larger than 1 MiB"
      wrong=1
    fi
  done < <(files)

  if found=$(files | grep -E "$scratch_folder"); then
    echo "folders of a test that was killed:"
    cut -d/ -f1 <<< "$found" | sort -u
    wrong=1
  fi

  if found=$(files | xargs -r -d '\n' grep -nIE "$machine_path"); then
    echo "paths of this machine:"
    echo "$found"
    wrong=1
  fi

  mapfile -t sources < <(files | grep -E '\.(h|hpp|c|cc)$')
  # In characters, whatever the locale: a byte that continues a character is none.
  mapfile -t written < <(files | grep -E '(\.(h|hpp|c|cc|py|sh|cmake)|(^|/)CMakeLists\.txt)$')
  if [ ${#written[@]} -gt 0 ] && ! found=$(LC_ALL=C awk -v max=$columns_max '
      { line = $0; gsub(/[\200-\277]/, "", line) }
      length(line) > max { printf "%s:%d: %d columns\n", FILENAME, FNR, length(line); bad = 1 }
      END { exit bad }' "${written[@]}"); then
    echo "lines above $columns_max columns:"
    echo "$found"
    wrong=1
  fi
  if [ ${#sources[@]} -gt 0 ]; then
    while read -r lines file; do
      [ "$file" = total ] || [ "$lines" -le "$source_lines_max" ] ||
        echo "look: $file has $lines lines (is it one thing, or two?)"
    done < <(wc -l "${sources[@]}")
    [ $with_format = yes ] || return $wrong
    format=$("$swale_root/scripts/clang-tool.sh" clang-format)
    if ! found=$("$format" --dry-run -Werror --ferror-limit=1 "${sources[@]}" 2>&1); then
      echo "not as clang-format would write it; 'make format' mends:"
      sed -n 's/^\([^:]*\):.*error: code should be clang-formatted.*/  \1/p' <<< "$found" | sort -u
      wrong=1
    fi
  fi
  return $wrong
}

self_test() {
  local scratch expected file
  scratch=$(mktemp -d)
  trap "rm -rf '$scratch'" EXIT
  cp "$swale_root/.clang-format" "$scratch"
  cd "$scratch"
  git init -q .
  printf 'int main() { return 0; }\n' > good.cc
  printf 'a path such as docs/%s/notes or ${ROOT}/%s/x is fine\n' work work > good.md
  check_tree > report || die "the self-test's clean tree is found dirty: $(cat report)"
  head -c $((file_bytes_max + 1)) /dev/zero > big.bin
  mkdir mount-Ab3xY9
  echo left > mount-Ab3xY9/file
  printf 'see /%s/main/build\n' work > path.md
  printf 'int  main( ){return 0;}\n' > ugly.cc
  seq -f '// %.0f' $((source_lines_max + 1)) > long.cc
  printf '// %0*d\n// %0*d\n' $((columns_max - 3)) 0 $((columns_max - 2)) 0 > wide.cc
  for file in wide.py wide.sh wide.cmake CMakeLists.txt; do
    printf '# %0*d\n# %0*d\n' $((columns_max - 2)) 0 $((columns_max - 1)) 0 > "$file"
  done
  if check_tree > report; then die "the self-test's dirty tree is found clean"; fi
  local canaries=('big.bin: larger' 'path.md:1:' 'mount-Ab3xY9' 'look: long.cc' 'wide.cc:2: 111 columns'
    'wide.py:2: 111 columns' 'wide.sh:2: 111 columns' 'wide.cmake:2: 111 columns'
    'CMakeLists.txt:2: 111 columns')
  [ $with_format = no ] || canaries+=('  ugly.cc')
  for expected in "${canaries[@]}"; do
    grep -qF -e "$expected" report || die "the self-test's violation went unnoticed: $expected"
  done
  if grep -qE '(wide\..*|CMakeLists.txt):1:' report; then
    die "a line of $columns_max columns is found too long"
  fi
  echo "tree: the check notices all ${#canaries[@]} canaries"
}

if [ "${1:-}" = --self-test ]; then
  self_test
  exit 0
fi
cd "$swale_root"
check_tree
echo "tree: clean"
