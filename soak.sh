#!/bin/sh
# The long sweeps, an hour or less on two cores. Each block of seeds and each large lab gives one line of
# docs/soak.md: what ran, its packet-hops, its digest. The same version must give the same digests anywhere.
set -eu
cd "$(dirname "$0")"
blocks=${BLOCKS:-20} size=${SIZE:-1000} jobs=${JOBS:-2}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
go test -c -o "$work/sim.test" ./sim
CGO_ENABLED=0 go build -o "$work/mcastlab" ./cmd/mcastlab

cat > "$work/block" <<'BLOCK'
#!/bin/sh
# block WORK FROM SIZE: one block of the sweep.
cd sim && "$1/sim.test" -test.run '^TestSeedSweep$' -test.v -test.timeout 0 -from "$2" -seeds "$3" > "$1/$(printf %09d "$2").log" 2>&1 ||
  { cat "$1/$(printf %09d "$2").log"; exit 255; }
BLOCK
chmod +x "$work/block"
i=0
while [ $i -lt "$blocks" ]; do echo $((i * size)); i=$((i + 1)); done | xargs -P "$jobs" -I{} "$work/block" "$work" {} "$size"

{
  echo "# Soak ledger"
  echo
  echo "Made by \`make soak\` at version $(git describe --always), $(go env GOVERSION), $(date -u +%Y-%m-%d). Every seed ran twice with every invariant checked after every"
  echo "event: 0 violations, one digest. The digest of a block chains those of its seeds; a later version may have others, this one must not."
  echo
  echo "| what | packet-hops | digest |"
  echo "|---|---|---|"
  cat "$work"/0*.log | sed -n 's/.*seeds \([0-9.]*\): \([0-9]*\) packet-hops, digest \([0-9a-f]*\)/| seeds \1 | \2 | \3 |/p'
  "$work/sim.test" -test.run '^TestLossless$' -test.v -test.timeout 0 -seeds 10000 > "$work/lossless.log" 2>&1 || { cat "$work/lossless.log" >&2; exit 1; }
  sed -n 's/.*seeds \([0-9.]*\): \(.*\)/| lossless classes, seeds \1: \2 | | |/p' "$work/lossless.log"
  for lab in examples/papers/*.mcl.yml examples/ft1024.mcl.yml; do
    "$work/mcastlab" run -q --runs "$work/runs" --format json "$lab" > "$work/run.json"
    dir=$(sed -n 's/^  "run_dir": "\(.*\)",$/\1/p' "$work/run.json")
    took="$(sed -n 's/^  "wall_seconds": \([0-9]*\).*/\1/p' "$dir/meta.json") s, $(($(sed -n 's/^  "memory_bytes": \(.*\),$/\1/p' "$dir/meta.json") >> 20)) MiB"
    echo "| $lab ($took) | $(sed -n 's/^  "packet_hops": \(.*\),$/\1/p' "$dir/meta.json") | $(sed -n 's/^  "digest": "\(.*\)",$/\1/p' "$work/run.json") |"
    sed -n 's/^      "text": "\(.*\)",$/|   expects \1: holds | | |/p' "$work/run.json"
  done
} > "$work/soak.md"
mv "$work/soak.md" docs/soak.md
