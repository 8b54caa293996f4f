#!/bin/sh
# Builds libibverbs.so.1 into the folder that is its argument: sh verbs/build.sh bin/verbs. It needs a C compiler and the
# headers of rdma-core (Debian: gcc libibverbs-dev). symbols.txt says what is exported.
set -eu
[ $# = 1 ] || { echo 'usage: sh verbs/build.sh FOLDER' >&2; exit 2; }
src=$(dirname "$0")
mkdir -p "$1"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cc=${CC:-cc}
flags='-std=gnu11 -O2 -fPIC -fvisibility=default -Wall -Wextra -Werror'

for f in "$src"/*.c; do
  $cc $flags -c "$f" -o "$tmp/$(basename "$f" .c).o"
done
nm -g --defined-only "$tmp"/*.o | awk '$2 == "T" { print $3 }' | LC_ALL=C sort -u > "$tmp/have"

# A stub answers EOPNOTSUPP by its value where the call returns an errno, and else NULL and errno; a caller that takes the
# return value for a pointer must not be given a number.
awk -v have="$tmp/have" '
  BEGIN { while ((getline n < have) > 0) own[n] = 1; print "#include <errno.h>\n#include <stddef.h>" }
  /^#/ { next }
  {
    name = $1; version = $3
    if ($2 == "=" && own[name]) next
    c = $2 == "=" ? name : "stub_" name "_" gensub_dots(version)
    if (name ~ /^ibv_(create|import|alloc|open|reg|get_device_(list|name))|_open_device$|init_and_alloc/)
      printf "void *%s(void);\nvoid *%s(void) { errno = EOPNOTSUPP; return NULL; }\n", c, c
    else if (name == "__ioctl_final_num_attrs" || name ~ /^ibv_copy_|verbs_(log|set_ops|register_driver|uninit)|ibv_register_driver|^ibv_(unimport|free|ack)|__verbs_log/)
      printf "void %s(void);\nvoid %s(void) { errno = EOPNOTSUPP; }\n", c, c
    else
      printf "int %s(void);\nint %s(void) { return errno = EOPNOTSUPP; }\n", c, c
    if ($2 == "-") printf "__asm__(\".symver %s, %s@%s\");\n", c, name, version
  }
  function gensub_dots(v) { gsub(/[^0-9A-Za-z]/, "_", v); return v }
' "$src/symbols.txt" > "$tmp/stubs.c"
$cc -std=gnu11 -O2 -fPIC -fno-builtin -c "$tmp/stubs.c" -o "$tmp/stubs.o"

# Each version holds the names of it, and the public ones follow each other. What is local is said in the private one:
# in another it would take away the names of long ago, which are not in these lists.
awk '!/^#/ { seen[$3] = 1 } END { for (v in seen) print v }' "$src/symbols.txt" |
  sort -V > "$tmp/versions"
last=
while read -r v; do
  printf '%s {\n  global:\n' "$v"
  awk -v v="$v" '!/^#/ && $2 == "=" && $3 == v { print "    " $1 ";" }' "$src/symbols.txt"
  case $v in *PRIVATE*) printf '  local: *;\n' ;; esac
  printf '}%s;\n' "${last:+ $last}"
  case $v in *PRIVATE*) ;; *) last=$v ;; esac
done < "$tmp/versions" > "$tmp/map"

$cc -shared -o "$tmp/libibverbs.so.1" "$tmp"/*.o -Wl,-soname,libibverbs.so.1 -Wl,--version-script="$tmp/map" -Wl,-z,defs -lpthread
mv "$tmp/libibverbs.so.1" "$1/libibverbs.so.1"
