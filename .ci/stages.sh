# SPDX-License-Identifier: Apache-2.0

# Functions of .ci/run and .ci/nightly; sourced, not run.

# Small cases that once failed, if there is a folder of them beside this one (TestRepros).
repro=${MCASTLAB_REPRO:-$(cd .. && pwd)/shared/repro}
[ ! -d "$repro" ] || export MCASTLAB_REPRO=$repro

results=$(mktemp -d)
failed=0
home="" # of the newcomer, once there is one

# stage TITLE COMMAND...: run the command and print what it says. A failure is kept for the summary; the caller goes on.
stage() {
  local title=$1 begin=$SECONDS code=0 log
  shift
  log=$results/$(printf '%03d' "$(find "$results" -name '*.log' | wc -l)").log
  printf '\n== %s (%ds)\n' "$title" "$SECONDS"
  "$@" 2>&1 | tee "$log" || code=$?
  note "$title" "$((SECONDS - begin))" "$code" "$log"
  return 0
}

# note TITLE SECONDS CODE LOG: a line of the summary, and below it what go test says of failures.
note() {
  [ "$3" = 0 ] || failed=1
  {
    printf '%5ds  %s  %s\n' "$2" "$([ "$3" = 0 ] && echo ok || echo FAIL)" "$1"
    if [ "$3" != 0 ]; then findings "$4" | sed 's/^/          /'; fi
  } >> "$results/summary"
}

# findings LOG: the lines that name a failure; the end of the log where there are none.
findings() {
  grep -E '^ *--- FAIL|^FAIL|^panic:|WARNING: DATA RACE|^[^ ]+\.go:[0-9]+(:[0-9]+)?: |^make.*Error|fails:$' "$1" | grep -v '^FAIL$' | awk '!seen[$0]++' | head -n 200 || true
  grep -qE '^ *--- FAIL|^FAIL|\.go:[0-9]+' "$1" || tail -n 20 "$1"
}

summary() {
  printf '\n== summary (%ds)\n' "$SECONDS"
  cat "$results/summary"
  [ "$failed" = 0 ] && echo "green" || echo "not green: see FAIL above"
}

# A user without root, Docker or a cache, and a clone that is the user's. The module cache is read-only; what an
# earlier, interrupted gate has left goes, too.
newcomer() {
  id mcastlab-newcomer > /dev/null 2>&1 || useradd -m mcastlab-newcomer
  home=$(getent passwd mcastlab-newcomer | cut -d: -f6)
  clone=$home/mcastlab
  chmod -R u+w "$home" && rm -rf "$home/go" "$home/.cache" "$clone"
  git clone -q --no-hardlinks . "$clone" && chown -R mcastlab-newcomer "$clone"
}

# The README's test command, to the letter. What is missing there is skipped, as for any user.
readme() {
  su mcastlab-newcomer -s /bin/bash -c "unset MCASTLAB_REQUIRE_TOOLS GOCACHE GOMODCACHE GOPATH GOFLAGS CGO_ENABLED; export HOME='$home' PATH='$PATH' MCASTLAB_SWEEPS=$1; cd '$clone' && go test ./..."
}

# After that, what has been fetched and compiled there is not fetched and compiled again. Go compiles for a path: root's
# clone has the same.
inherit() {
  export GOCACHE="$home/.cache/go-build" GOMODCACHE="$home/go/pkg/mod"
  rm -rf "$clone" && chmod 755 "$home" # programs of other users run there
  git clone -q . "$clone"
}

besides="" # process group of what runs beside live tests

clean() {
  [ -z "$besides" ] || kill -KILL -- "-$besides" 2> /dev/null || true
  pkill -KILL -u mcastlab-newcomer || true
  if id mcastlab-newcomer > /dev/null 2>&1; then chmod -R u+w "$home" 2> /dev/null || true; userdel -r mcastlab-newcomer > /dev/null 2>&1 || true; fi
  rm -rf "$results"
}

first_command() (
  cd "$clone" &&
    go run ./cmd/mcastlab run -q examples/quickstart.mcl.yml &&
    go run ./cmd/mcastlab run -q --format json examples/ft1024.mcl.yml > run.json &&
    grep -q '"verified": true' run.json &&
    git status --porcelain | { ! grep -v run.json; } &&
    rm run.json
)

first_lab() (
  cd "$clone" &&
    make -s build &&
    bin/mcastlab check &&
    bin/mcastlab run -q --runtime docker --check-digest examples/star.mcl.yml &&
    bin/mcastlab wipe --yes
)
