#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The long sweeps. What they find is appended to docs/ledgers/soak.md, a section for each version.
#
#   sh soak.sh            every seed of the sweep twice, the lossless sweep, the large labs: an hour or less on two cores
#   sh soak.sh once       every seed once, until PACKETS packets (10^9) are covered: about 45 minutes of one core
#   sh soak.sh lossless   the lossless sweep alone
#   sh soak.sh workers    labs of the seed sweep, random labs, and those of examples with 1, 2, 3 and 8 workers: two hours; LABS names the examples
#   sh soak.sh ledger     append what the blocks so far have covered
#
# Each block of seeds is one line: what ran, its packets and packet-hops, its digest. The same version must give the
# same digests anywhere. Blocks that are done are kept in DIR and not run again, so a soak may be stopped at any time.
set -eu
cd "$(dirname "$0")"
what=${1:-all}
version=$(git describe --always --dirty)
dir=${DIR:-runs/soak-$version}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
jobs=${JOBS:-2}
[ -x "$dir/sim.test" ] || { echo "$version" > "$dir/version" && go test -c -o "$dir/virtswitch.test" ./virtswitch && go test -c -o "$dir/sim.test" ./drivers/sim; }
version=$(cat "$dir/version")

cat > "$dir/block" <<'BLOCK'
#!/bin/sh
# block DIR MODE FROM SIZE PACKETS: one block of the sweep, unless it is done or enough are.
name=$1/$2-$(printf %09d "$3")
[ ! -e "$name.log" ] || exit 0
if [ "$2" = once ]; then
  covered=$(cat "$1"/once-*.log 2> /dev/null | sed -n 's/.*: \([0-9]*\) packets, .*/\1/p' | awk '{ n += $1 } END { printf "%d", n }')
  [ "$covered" -lt "$5" ] || exit 255
  once=-once
fi
cd drivers/sim && GOGC=800 "$1/sim.test" -test.run '^TestSeedSweep$' -test.v -test.timeout 0 -from "$3" -seeds "$4" ${once:-} > "$name.part" 2>&1 &&
  mv "$name.part" "$name.log" || { mv "$name.part" "$name.failed"; cat "$name.failed"; exit 255; }
BLOCK
chmod +x "$dir/block"

# sweep MODE BLOCKS SIZE PACKETS
sweep() {
  i=0
  while [ $i -lt "$2" ]; do echo $((i * $3)); i=$((i + 1)); done | xargs -P "$jobs" -I{} "$dir/block" "$dir" "$1" {} "$3" "$4" 2> /dev/null || true
  ! ls "$dir"/*.failed 2> /dev/null
}

lossless() {
  [ -e "$dir/lossless.log" ] && return
  "$dir/virtswitch.test" -test.run '^TestLossless$' -test.v -test.timeout 0 -seeds "${LOSSLESS:-10000}" > "$dir/lossless.part" 2>&1 || { cat "$dir/lossless.part"; exit 1; }
  mv "$dir/lossless.part" "$dir/lossless.log"
}

labs() {
  CGO_ENABLED=0 go build -o "$dir/mcastlab" ./cmd/mcastlab
  go test ./apps/storage -run '^TestCrashes$' -v -timeout 0 -seeds 5000 > "$dir/storage.log" 2>&1 || { cat "$dir/storage.log" >&2; exit 1; }
  sed -n 's/.*: \(of .* crashes .*\)/| storage, \1 | | |/p' "$dir/storage.log"
  for lab in examples/papers/*.mcl.yml examples/ft1024.mcl.yml; do
    "$dir/mcastlab" run -q --runs "$dir/runs" --format json "$lab" > "$dir/run.json"
    run=$(sed -n 's/^  "run_dir": "\(.*\)",$/\1/p' "$dir/run.json")
    took="$(sed -n 's/^  "wall_seconds": \([0-9]*\).*/\1/p' "$run/meta.json") s, $(($(sed -n 's/^  "memory_bytes": \(.*\),$/\1/p' "$run/meta.json") >> 20)) MiB"
    echo "| $lab ($took) | | $(sed -n 's/^  "packet_hops": \(.*\),$/\1/p' "$run/meta.json") | $(sed -n 's/^  "digest": "\(.*\)",$/\1/p' "$dir/run.json") |"
    sed -n 's/^      "text": "\(.*\)",$/|   expects \1: holds | | | |/p' "$dir/run.json"
  done > "$dir/labs.md"
}

cat > "$dir/lab" <<'LAB'
#!/bin/sh
# lab DIR LAB: simulates a lab with each number of workers, and compares exit codes, what is printed, counters and events. Of a sweep that is what it prints.
name=$1/workers-$(basename "$2" .mcl.yml)
[ ! -e "$name.log" ] || exit 0
rm -rf "$name" "$name.failed" && mkdir "$name"
for n in 1 2 3 8; do
  code=0
  "$1/mcastlab" run -q --workers "$n" --runs "$name/runs" --format json "$2" > "$name/$n.json" 2> "$name/$n.err" || code=$?
  run=$(sed -n 's/^  "\(run_\)\?dir": "\(.*\)",$/\2/p' "$name/$n.json")
  hops=$(sed -n 's/^  "packet_hops": \(.*\),$/\1/p' "$run/meta.json" 2> /dev/null)
  digest=$(sed -n 's/^  "digest": "\(.*\)",$/\1/p' "$name/$n.json")
  # Of the summary of a sweep what is measured is compared, and not how long it took.
  { echo "$code"; grep -v '^ *"\(wall_s\|wall_seconds\)"' "$name/$n.json"
    cat "$run/counters.json" "$run/events.jsonl" 2> /dev/null || true; } | sha256sum > "$name/$n.sum"
  rm -rf "$name/runs" "$name/$n.json"
  cmp "$name/1.sum" "$name/$n.sum" > "$name/differs" || { echo "$2: with $n workers not as with one" > "$name.failed"; exit 1; }
done
rm -rf "$name"
[ -n "$run" ] || { : > "$name.log"; exit 0; } # it cannot be simulated
echo "| $(basename "$2"), with 1, 2, 3 and 8 workers | | $hops | $digest |" > "$name.part" && mv "$name.part" "$name.log"
LAB
chmod +x "$dir/lab"

workers() {
  CGO_ENABLED=0 go build -o "$dir/mcastlab" ./cmd/mcastlab && go test -c -o "$dir/search.test" ./lab/search
  [ -e "$dir/workers.md" ] || {
    (cd drivers/sim && "$dir/sim.test" -test.run '^TestSeedSweepParts$' -test.v -test.timeout 0 -seeds "${SIZE:-1000}") > "$dir/workers.sim" 2>&1 || { cat "$dir/workers.sim"; exit 1; }
    (cd lab/search && "$dir/search.test" -test.run '^TestLabsWorkers$' -test.v -test.timeout 0 -seeds "${SIZE:-1000}") > "$dir/workers.search" 2>&1 || { cat "$dir/workers.search"; exit 1; }
    sed -n 's/.*seeds \([0-9.]*\), whole .*: \([0-9]*\) packets, \([0-9]*\) packet-hops each/| seeds \1, whole and in parts with 1, 2, 3 and 8 workers | \2 | \3 | |/p' "$dir/workers.sim" > "$dir/workers.part"
    sed -n 's/.*seeds \([0-9.]*\): \([0-9]* labs\) the same .*/| random labs \1, with 1, 2, 3 and 8 workers: \2 | | | |/p' "$dir/workers.search" >> "$dir/workers.part"
    mv "$dir/workers.part" "$dir/workers.md"
  }
  ls ${LABS:-examples/*.mcl.yml examples/papers/*.mcl.yml} | xargs -P "$jobs" -I{} "$dir/lab" "$dir" {} || true
  ! cat "$dir"/workers-*.failed 2> /dev/null
}

# rows MODE NOTE: the table of a mode's blocks, and their sum.
rows() {
  cat "$dir/$1"-*.log | sed -n 's/.*seeds \([0-9.]*\): \([0-9]*\) packets, \([0-9]*\) packet-hops, digest \([0-9a-f]*\)/\1 \2 \3 \4/p' |
    awk -v note="$2" '{ print "| seeds " $1 note " | " $2 " | " $3 " | " $4 " |"; p += $2; h += $3 } END { printf "| all of these | %.0f | %.0f | |\n", p, h }'
}

# ledger appends the section of the version; what an earlier part of the same soak has said is taken out.
ledger() {
  awk -v version="$version," '/^## /{ out = $2 == "Version" && $3 == version } !out { while (blank > 0) { print ""; blank-- } if ($0 == "") blank++; else print }' docs/ledgers/soak.md > "$dir/soak.md"
  mv "$dir/soak.md" docs/ledgers/soak.md
  {
    echo
    echo "## Version $version, $(go env GOVERSION), $(date -u +%Y-%m-%d)"
    echo
    echo "| what | packets | packet-hops | digest |"
    echo "|---|---|---|---|"
    for mode in twice once; do
      if ls "$dir/$mode"-*.log > /dev/null 2>&1; then rows $mode ", $mode"; fi
    done
    if [ -e "$dir/lossless.log" ]; then sed -n 's/.*seeds \([0-9.]*\): \(.*\)/| lossless classes, seeds \1: \2 | | | |/p' "$dir/lossless.log"; fi
    if [ -e "$dir/workers.md" ]; then cat "$dir/workers.md" "$dir"/workers-*.log; fi
    if [ -e "$dir/labs.md" ]; then cat "$dir/labs.md"; fi
  } >> docs/ledgers/soak.md
}

case $what in
  all) sweep twice "${BLOCKS:-20}" "${SIZE:-1000}" 0 && lossless && labs && ledger ;;
  once) sweep once "${BLOCKS:-1000}" "${SIZE:-2000}" "${PACKETS:-1000000000}" && ledger ;;
  lossless) lossless && ledger ;;
  workers) workers && ledger ;;
  ledger) ledger ;;
  *) echo "soak.sh: no soak \"$what\": use once, lossless, workers, ledger, or nothing" >&2 && exit 2 ;;
esac
