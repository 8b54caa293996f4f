# Targets for development; CI runs .ci/run.
.PHONY: cost-page help build quick vet house nightly test-smoke test-slice race-changed fuzz-slice test test-root test-live race race-build race-live fuzz sweeps lint bench bench-page bench-cores profile soak soak-once papers patches bugs mutants release release-check verbs
help:                     ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

build:                    ## build bin/mcastlab
	CGO_ENABLED=0 go build -o bin/mcastlab ./cmd/mcastlab

verbs:                    ## build libibverbs.so.1 and librdmacm.so.1 in bin/verbs (docs/libibverbs.md), with a C compiler and librdmacm-dev; libmcastmpi.so with libopenmpi-dev
	sh verbs/build.sh bin/verbs

test:                     ## all tests: Go only, no root; tshark and scapy are used if they are there
	go test ./...

# Rules of the tree that no lab is brought up for: style, pages, lists of this file, keys of the lab file.
house:                    ## tests of the tree: style, pages, lists
	go test -vet=off -count=1 ./internal/test/house # its tests read the tree from its root, which the cache of results does not see
	go test -vet=off ./internal/test/bugbank ./internal/test/sweeps -run 'TestBank$$|TestBankPage|TestSwept'

vet:                      ## go vet for Linux, macOS and Windows: all findings
	@code=0; go vet -pgo=off ./... || code=1; \
	  for system in darwin windows; do GOOS=$$system CGO_ENABLED=0 go vet -pgo=off -trimpath ./... || code=1; done; exit $$code

quick:                    ## the inner loop: build, vet, rules of the tree, and the cores' short tests; under a minute when warm
	go build ./...
	go vet ./...
	$(MAKE) -s house
	go test -vet=off -short ./core/... ./virtswitch ./virtrnic ./lab ./faults/...

nightly:                  ## the whole gate, from a bare machine, as root: at most 80 minutes; all findings
	.ci/nightly

# Packages whose tests ask who runs them, or for programs that not every user has, themselves or in what they test
# (TestRooted holds the list). The others do the same for every user; command is in test-live. go vet ./... has more to
# say than go test, so that no target but test has to ask it again.
ROOTED = drivers/live drivers/netdev internal/release internal/test/bugbank internal/test/guards internal/test/interop/... lab/reproduce lab/runner lab/search nodeagent/verbs orchestrator/...
test-root:                ## the tests of which root with Docker and all tools sees more than others
	MCASTLAB_REQUIRE_TOOLS=1 go test -vet=off $(addprefix ./,$(ROOTED))

# Four cases of a test at a time: they mostly wait. Tests whose times are looked at run alone.
test-live:                ## tests that bring labs up, as root with Docker: some 25 minutes
	MCASTLAB_LIVE=1 go test -vet=off -p 1 -parallel 4 -count=1 -timeout 60m ./command

# Deploy, run, digest, kill, repair, destroy on both engines; perftest and mpirun; two servers. TestLiveStar, TestDeploy and
# TestDrift run a lab more slowly once where the machine did not keep up (exit 5); the others run once.
SMOKE = TestLiveStar TestDeploy TestDrift/netns TestLockstep/star TestLockstepCaptured TestNodeDies TestResidue/netns TestLivePrograms/netns TestLiveGroups TestMetricsLive TestSignalsLive TestTwoServers
test-smoke:               ## a dozen tests that bring labs up, as root with Docker
	MCASTLAB_LIVE=1 MCASTLAB_REQUIRE_TOOLS=1 go test -vet=off -p 1 -parallel 4 -count=1 -timeout 20m ./command -v -run '$(subst $() $(),|,$(foreach t,$(SMOKE),^$(subst /,$$/^,$(t))$$))'

# The sixth of a list that DAY, counted from 1970 on, takes: by a sum of the name, so that a new name moves no other.
DAY ?= $(shell expr $$(date +%s) / 86400)
SLICE = while read -r t; do [ $$(( $$(printf %s "$$t" | cksum | cut -d' ' -f1) % 6 )) != $$(( $(DAY) % 6 )) ] || echo "$$t"; done
test-slice:               ## the day's sixth of the tests of test-live, less test-smoke
	MCASTLAB_LIVE=1 MCASTLAB_REQUIRE_TOOLS=1 go test -vet=off -p 1 -parallel 4 -count=1 -timeout 30m ./command -run "^($$(go test -vet=off ./command -list . | grep ^Test | grep -vxE '$(subst $() $(),|,$(filter-out %/netns %/star,$(SMOKE)))' | $(SLICE) | paste -sd'|' -))\$$"

# Packages that start goroutines or take locks, themselves or in their tests (TestRaced holds the list). In
# the others one goroutine runs at a time, and the race detector has nothing to find; command runs them all.
RACE = command internal/nodeapi internal/controller/... drivers/endpoint internal/failpoint internal/heap internal/httpserve internal/test/interop/... drivers/crew drivers/live drivers/lockstep internal/test/losses internal/test/mutants drivers/netdev nodeagent nodeagent/verbs orchestrator/... internal/shareapi internal/trunk lab/batch lab/reproduce lab/runner lab/search lab/sweep apps/storage/pebblestore traces
race:                     ## tests of what is concurrent under the race detector, sweeps cut short
	go test -race -vet=off -short -timeout 30m $(addprefix ./,$(RACE))
	go test -race -vet=off -short -timeout 30m ./drivers/sim -run Parts # labs in parts have a crew; all the others take seven minutes

race-changed:             ## race, of packages that changed since the last green nightly or import one that has
	list=$$(sh .ci/changed $(RACE)) && { [ -z "$$list" ] || go test -race -vet=off -short -timeout 30m $$list; }
	@sim=$$(sh .ci/changed drivers/sim) && { [ -z "$$sim" ] || go test -race -vet=off -short -timeout 30m $$sim -run Parts; }

race-build:               ## compile what race and race-live run
	go list -race -export -deps -test $(addprefix ./,$(RACE)) ./drivers/sim > /dev/null

race-live:                ## a running lab, all its nodes and the progress display under the race detector, as root
	MCASTLAB_LIVE=1 go test -race -vet=off -count=1 -timeout 15m ./command -run 'TestLiveRaces$$'

FUZZ = core/wire:FuzzParse orchestrator/programs:FuzzRankOutput core/wire:FuzzParseMRP core/wire:FuzzMembership core/wire:FuzzRegroup virtswitch:FuzzSwitch virtrnic:FuzzNIC virtrnic:FuzzSelective core/mrp:FuzzAgent core/cm:FuzzParse \
  drivers/live:FuzzSplit lab:FuzzParse internal/test/interop/rcpeer:FuzzDecode internal/test/interop/rcpeer:FuzzMAD rank/collective:FuzzSpans apps/hpl:FuzzParseDat \
  orchestrator/multihost/daemon:FuzzParseProbe internal/trunk:FuzzParse nodeagent/verbs:FuzzDecode nodeagent/verbs:FuzzEntry nodeagent/verbs:FuzzRing internal/controller:FuzzDecodeCommand internal/controller:FuzzDecodeState faults:FuzzDecode lab/labspec:FuzzDecode
FUZZTIME ?= 30s
# Two targets at a time with one worker each; xargs fails when one of them does, after the others have had their time. At
# times Go takes the end of the time for a failure, which has no failing input (golang/go#75804): then it is tried again.
fuzz-slice:               ## the day's sixth of the fuzz targets
	@$(MAKE) -s fuzz FUZZ="$$(printf '%s\n' $(FUZZ) | $(SLICE) | paste -sd' ' -)"

fuzz:                     ## every fuzz target for FUZZTIME, two at a time
	@printf '%s\n' $(FUZZ) | xargs -P 2 -I TARGET sh -c 't=TARGET; log=$$(mktemp); code=0; \
	  for try in 1 2 3; do \
	    code=0; go test -vet=off ./$${t%%:*} -run "^$$" -fuzz "^$${t##*:}$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x -parallel 1 > "$$log" 2>&1 || code=1; \
	    { [ $$code = 1 ] && grep -q "context deadline exceeded" "$$log" && ! grep -q "Failing input" "$$log"; } || break; \
	  done; \
	  if [ $$code = 0 ]; then echo "$$t: $$(tail -n 2 "$$log" | tr "\n" " ")"; else echo "$$t fails:"; cat "$$log"; fi; rm -f "$$log"; exit $$code'

# TestSwept holds the list. SWEEPS=N takes the part of a day by its number, counted from 1970 on.
SWEEPS ?= all
sweeps:                   ## all of the sweeps of which go test ./... takes a part each day
	MCASTLAB_SWEEPS=$(SWEEPS) go test ./apps/manycast ./command ./drivers/sim ./examples/papers ./lab/report ./lab/reproduce ./lab/search ./nodeagent/verbs ./virtrnic -vet=off -v -count=1 \
	  -run '^Test(PaperLabs|Measured|ManyToManyExact|AgainstPolling|GroupQueuesAgainstPolling|SeedSweep|SeedSweepParts|PartsTroubled|Labs|LabsWorkers|Standstill|Timelines|Fairness|IncastFairness|Damages|WideLabs|Limits|RandomThreads|RandomPipelines)$$'

papers:                   ## every lab of examples/papers meets what it expects: some minutes (go test ./... runs the quick ones)
	MCASTLAB_SOAK=1 go test ./examples/papers -v -count=1 -timeout 0

patches:                  ## each row of docs/verbs.md: its test fails under its patch (some minutes)
	MCASTLAB_PATCHES=all go test ./virtrnic -run TestPatches -timeout 60m

bugs:                     ## each bug of docs/ledgers/bug-bank.md: its test fails under it (a quarter of an hour; some want root)
	MCASTLAB_BUGS=all go test ./internal/test/bugbank -run TestBankBites -v -timeout 0

release:                  ## archives and Debian packages of the commit that is checked out, in dist/ (docs/versions.md)
	go run ./internal/release

release-check:            ## a release is the same when built twice, installs into an empty root as root, and by the module's path
	MCASTLAB_RELEASE=linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64 MCASTLAB_RELEASE_COLD=1 go test ./internal/release -v -count=1 -timeout 60m

lint:                     ## the analysers that .golangci.yml enables, pinned in .ci/lint/go.mod: all findings
	@cd .ci/lint && CGO_ENABLED=0 go build -trimpath -o ../../bin/lint .
	go vet -pgo=off -vettool=$(CURDIR)/bin/lint -golangci=$(CURDIR)/.golangci.yml ./...

# Benchmarks are compiled as bin/mcastlab is.
PROFILE = $(CURDIR)/cmd/mcastlab/default.pgo
profile:                  ## measure what go build is to make fast, and write cmd/mcastlab/default.pgo (a minute)
	go run ./internal/pgo

BENCH ?= Bcast|Perm
bench:                    ## the simulator's benchmarks beside the bare loop, ten interleaved runs (then: benchstat bench.txt)
	@for i in 1 2 3 4 5 6 7 8 9 10; do go test -pgo=$(PROFILE) ./drivers/sim -run '^$$' -bench '$(BENCH)' -benchtime 2x; done | tee bench.txt

bench-page:               ## measure and write speed.md: rates, what a run costs, memory (half an hour)
	go run ./internal/benchpage

cost-page:                ## measure what rounds over machines take, as root with Docker, and write hosts-cost.md (a quarter of an hour)
	MCASTLAB_LIVE=1 MCASTLAB_COST=$(CURDIR)/hosts-cost.md go test ./command -run 'TestSpreadCost$$' -v -count=1 -timeout 30m

bench-cores:              ## ns and allocations per packet of the NIC's two halves and a switch hop, ten runs (then: benchstat bench.txt)
	@go test -pgo=$(PROFILE) ./virtrnic ./virtswitch -run '^$$' -bench '^Benchmark(Requester|Responder|Hop)$$' -count 10 | tee bench.txt

soak:                     ## the long sweeps; appends to docs/ledgers/soak.md
	sh soak.sh

soak-once:                ## the seed sweep, each seed once, until 10^9 packets; appends to docs/ledgers/soak.md
	sh soak.sh once

MUTANTS_SEED ?= 1
mutants:                  ## break the cores in sixty ways by seed: the tests must notice
	go test ./internal/test/mutants -run 'TestMutants$$' -v -timeout 0 -seed $(MUTANTS_SEED) -mutants 60
