#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds libibverbs.so.1, librdmacm.so.1, libmcastsysfs.so for UCX, and libmcasttime.so for the lab's time, into the folder that is
# its argument: sh verbs/build.sh bin/verbs. It needs a C compiler and the headers of rdma-core (Debian: gcc librdmacm-dev). The two
# symbols.txt say what is exported. Where Open MPI's mpicc is (libopenmpi-dev), libmcastmpi.so is built, too.
set -eu
[ $# = 1 ] || { echo 'usage: sh verbs/build.sh FOLDER' >&2; exit 2; }
src=$(dirname "$0")
mkdir -p "$1"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cc=${CC:-cc}
flags='-std=gnu11 -O2 -fPIC -fvisibility=default -Wall -Wextra -Werror'

$cc $flags -fno-builtin -shared -o "$tmp/libmcasttime.so" "$src"/time/*.c -lpthread
mv "$tmp/libmcasttime.so" "$1"

# compile FOLDER FILE...: the objects, the names that they have, and a stub of each name of the FOLDER's list that they
# lack (SYMBOLS, STUBS). A stub answers EOPNOTSUPP by its value where the call returns an errno, and else NULL and errno; a
# caller that takes the return value for a pointer must not be given a number. Calls of rdma_cm answer -1 and errno.
compile() {
  to=$1 symbols=$2
  shift 2
  mkdir "$to"
  for f in "$@"; do
    $cc $flags -c "$f" -o "$to/$(basename "$f" .c).o"
  done
  nm -g --defined-only "$to"/*.o | awk '$2 == "T" { print $3 }' | LC_ALL=C sort -u > "$to/have"
  awk -v have="$to/have" '
    BEGIN { while ((getline n < have) > 0) own[n] = 1; print "#include <errno.h>\n#include <stddef.h>" }
    /^#/ { next }
    {
      name = $1; version = $3
      if ($2 == "=" && own[name]) next
      c = $2 == "=" ? name : "stub_" name "_" gensub_dots(version)
      if (version ~ /^RDMACM/)
        printf "long %s(void);\nlong %s(void) { errno = EOPNOTSUPP; return -1; }\n", c, c
      else if (name ~ /^ibv_(create|import|alloc|open|reg|get_device_(list|name))|_open_device$|init_and_alloc/)
        printf "void *%s(void);\nvoid *%s(void) { errno = EOPNOTSUPP; return NULL; }\n", c, c
      else if (name == "__ioctl_final_num_attrs" || name ~ /^ibv_copy_|verbs_(log|set_ops|register_driver|uninit)|ibv_register_driver|^ibv_(unimport|free|ack)|__verbs_log/)
        printf "void %s(void);\nvoid %s(void) { errno = EOPNOTSUPP; }\n", c, c
      else
        printf "int %s(void);\nint %s(void) { return errno = EOPNOTSUPP; }\n", c, c
      if ($2 == "-") printf "__asm__(\".symver %s, %s@%s\");\n", c, name, version
    }
    function gensub_dots(v) { gsub(/[^0-9A-Za-z]/, "_", v); return v }
  ' "$symbols" > "$to/stubs.c"
  $cc -std=gnu11 -O2 -fPIC -fno-builtin -c "$to/stubs.c" -o "$to/stubs.o"
}

# map SYMBOLS: the version script. Each version holds the names of it, and the public ones follow each other. What is
# local is said in the private one, or else in the last: in another it would take away the names of long ago, which are not in
# these lists.
map() {
  awk '!/^#/ { seen[$3] = 1 } END { for (v in seen) print v }' "$1" | sort -V > "$tmp/versions"
  hides=$(grep PRIVATE "$tmp/versions" || tail -n 1 "$tmp/versions")
  last=
  while read -r v; do
    printf '%s {\n  global:\n' "$v"
    awk -v v="$v" '!/^#/ && $2 == "=" && $3 == v { print "    " $1 ";" }' "$1"
    [ "$v" != "$hides" ] || printf '  local: *;\n'
    printf '}%s;\n' "${last:+ $last}"
    case $v in *PRIVATE*) ;; *) last=$v ;; esac
  done < "$tmp/versions"
}

compile "$tmp/ibverbs" "$src/symbols.txt" "$src"/*.c
map "$src/symbols.txt" > "$tmp/ibverbs.map"
$cc -shared -o "$tmp/libibverbs.so.1" "$tmp"/ibverbs/*.o -Wl,-soname,libibverbs.so.1 -Wl,--version-script="$tmp/ibverbs.map" -Wl,-z,defs -lpthread
compile "$tmp/rdmacm" "$src/rdmacm/symbols.txt" "$src"/rdmacm/*.c "$src/socket.c"
map "$src/rdmacm/symbols.txt" > "$tmp/rdmacm.map"
$cc -shared -o "$tmp/librdmacm.so.1" "$tmp"/rdmacm/*.o "$tmp/libibverbs.so.1" -Wl,-soname,librdmacm.so.1 -Wl,--version-script="$tmp/rdmacm.map" -Wl,-z,defs -lpthread
# What it has in common with the library is hidden in it: programs load it before the library.
for f in socket port sysfs/facts; do
  $cc $flags -fvisibility=hidden -c "$src/$f.c" -o "$tmp/$(basename "$f").o"
done
$cc $flags -shared -o "$tmp/libmcastsysfs.so" "$src/sysfs/sysfs.c" "$src/sysfs/resolve.c" "$tmp/socket.o" "$tmp/port.o" "$tmp/facts.o"
# It is not linked with MPI, whose names it finds in the program, so that programs without MPI can be started with it.
if mpi=$(mpicc --showme:compile 2> /dev/null); then
  # shellcheck disable=SC2086
  $cc $flags $mpi -shared -o "$tmp/libmcastmpi.so" "$src"/mpi/*.c "$src/socket.c" "$tmp/libibverbs.so.1" -Wl,--version-script="$src/mpi/exports" -Wl,-z,lazy
  mv "$tmp/libmcastmpi.so" "$1"
else
  rm -f "$1/libmcastmpi.so"
  echo 'verbs/build.sh: there is no mpicc of Open MPI, so libmcastmpi.so is not built (Debian: libopenmpi-dev)' >&2
fi
mv "$tmp/libibverbs.so.1" "$tmp/librdmacm.so.1" "$tmp/libmcastsysfs.so" "$1"
# Programs that load a library by dlopen (NCCL) try the name without a version first, which is the distribution's where its headers are.
ln -sf libibverbs.so.1 "$1/libibverbs.so"
ln -sf librdmacm.so.1 "$1/librdmacm.so"
