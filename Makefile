# `make` lists the targets. `make run` and `make test` do all of their own set-up.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.SILENT:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CARGO ?= cargo
OUT := $(or $(CARGO_TARGET_DIR),target)
MAINSPRING = $(CARGO) run --quiet --release --locked --package mainspring-cli --

# A command of the tree without optimisation, $(1) of package $(2). In `make test` it is the one that `make unit` has built: packages
# selected by themselves have other features of their dependencies, and would build most of them again.
command = $(if $(BUILT),"$(abspath $(OUT))/debug/$(1)",$(CARGO) run --quiet --locked --package $(2) --)
CONFORMANCE = $(call command,mainspring-conformance,mainspring-conformance)
MAINSPRING_DEBUG = $(call command,mainspring,mainspring-cli)

# What the build calls, and the Debian package that has it: command:package.
BUILD_NEEDS := cc:build-essential git:git
BENCH_NEEDS := valgrind:valgrind
QEMU_NEEDS := qemu-system-x86_64:qemu-system-x86
SCHEMA_NEEDS := capnp:capnproto
PAGE_NEEDS := chromium:chromium npm:npm
TRACE_NEEDS := python3:python3-venv

# The kernel and its programs are a workspace of their own, built below $(OUT)/kernel.
KERNEL_CARGO = env -C kernel CARGO_TARGET_DIR="$(abspath $(OUT))/kernel" $(CARGO)
PROOF = MAINSPRING_KERNEL_DIR="$(abspath $(OUT))/kernel/release" $(call command,kernel-proof,mainspring-machine)
KERNEL_PROOFS := smoke calls pit-tick spawn measure thread-fairness thread-fairness-weight-change thread-scale smp idle idle-paths hostile lost-messages contain families hostile-memory scheduling-context donation-storm passive-servers session-context inversion deadlines scheduler-cpu-isolation-lease network scheduler-generic-sqpoll-nohz realtime-island policy policy-hostile

# Those that run once more on the kernel that checks itself.
CHECKED_PROOFS := smoke calls spawn smp idle-paths hostile contain families hostile-memory scheduling-context donation-storm passive-servers session-context scheduler-cpu-isolation-lease network scheduler-generic-sqpoll-nohz realtime-island policy policy-hostile
# Those of the kernel that measures.
MEASURED_PROOFS := evidence evidence-said

# Packages that measure rather than test: linted, never run by `make test`.
NOT_TESTED := mainspring-bench-core mainspring-bench-lang mainspring-bench-ring mainspring-bench-runtime mainspring-bench-sim

# Packages with a workspace of their own, which are not built by default.
APART := cluster console plugins/wasm

LINT_PHASES := commits fmt-check clippy doc licences advisories
# What needs a command comes after `unit`, which builds it.
TEST_PHASES := commits fmt-check clippy doc unit licences advisories loom-and-kernels chaos-cluster kernel-proofs conformance-summary

# Installs the packages of $(1) whose command is missing; asks nothing of the network when none is.
define install-missing
missing=()
for need in $(1); do
    command -v "$${need%%:*}" >/dev/null || missing+=("$${need#*:}")
done
if (( $${#missing[@]} )); then
    sudo=()
    if (( $$(id -u) )); then sudo=(sudo); fi
    for tool in apt-get "$${sudo[@]}"; do
        command -v "$$tool" >/dev/null && continue
        echo "setup: please install $${missing[*]}; there is no $$tool here to do it with" >&2
        exit 1
    done
    echo "setup: installing $${missing[*]}"
    "$${sudo[@]}" apt-get update -qq
    "$${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$${missing[@]}"
fi
endef

# Makes each target of $(1) in turn, and says how long each took. The first failure ends it.
define run-phases
times=()
for phase in $(1); do
    printf '\n==> make %s\n' "$$phase"
    began=$$SECONDS
    $(MAKE) "$$phase" || { echo "$@: failed at \`make $$phase\`" >&2; exit 1; }
    times+=("$$(printf '%-22s %4d s' "$$phase" $$(( SECONDS - began )))")
done
printf '\n%s: all passed\n' "$@"
printf '  %s\n' "$${times[@]}"
printf '  %-22s %4d s\n' total "$$SECONDS"
endef

##@ Start here

.PHONY: help
help: ## List all targets
	awk -F ':.*## ' '
	    /^##@ / { printf "%s%s\n", (n++ ? "\n" : ""), substr($$0, 5) }
	    /^[a-z-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' Makefile

.PHONY: run
run: build ## Run the tour workload on the simulator: report, and a timeline as a web page
	mkdir -p "$(OUT)"
	$(MAINSPRING) run workloads/tour.toml --html "$(OUT)/tour.html"
	printf '\nTimeline: file://%s\n' "$$(realpath "$(OUT)/tour.html")"

.PHONY: test
test: export BUILT := 1
test: setup ## Check everything: lint, all tests, conformance
	$(call run-phases,$(TEST_PHASES))

##@ Build

.PHONY: setup
setup: ## Install what the build needs, if anything is missing
	if ! command -v $(CARGO) >/dev/null; then
	    echo "setup: no cargo on the PATH; install stable Rust first, see https://rustup.rs" >&2
	    exit 1
	fi
	$(call install-missing,$(BUILD_NEEDS))
	$(CARGO) fetch --quiet --locked

.PHONY: build
build: setup ## Build the mainspring command, optimised
	$(CARGO) build --release --locked --package mainspring-cli

.PHONY: install
install: setup ## Install the mainspring command (PREFIX=dir: into dir/bin)
	$(CARGO) install --locked --path cli $(if $(PREFIX),--root "$(PREFIX)")

# Where the C library goes.
CAPI_PREFIX = $(or $(PREFIX),/usr/local)

.PHONY: install-capi
install-capi: setup ## Install the C library, its headers and its pkg-config file (PREFIX=dir, otherwise /usr/local)
	$(CARGO) build --release --locked --package mainspring-capi
	mkdir -p "$(CAPI_PREFIX)/lib/pkgconfig" "$(CAPI_PREFIX)/include"
	install -m 644 capi/include/mainspring.h core/ring/include/mainspring_ring.h "$(CAPI_PREFIX)/include/"
	install -m 755 "$(OUT)/release/libmainspring_capi.so" "$(CAPI_PREFIX)/lib/"
	install -m 644 "$(OUT)/release/libmainspring_capi.a" "$(CAPI_PREFIX)/lib/"
	version="$$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)"
	sed "s|@PREFIX@|$$(realpath "$(CAPI_PREFIX)")|; s|@VERSION@|$$version|" capi/mainspring.pc.in > "$(CAPI_PREFIX)/lib/pkgconfig/mainspring.pc"
	echo "C library: $(CAPI_PREFIX)/lib (pkg-config --cflags --libs mainspring)"

.PHONY: completions
completions: build ## Write completions for bash, zsh and fish
	mkdir -p "$(OUT)/completions"
	$(MAINSPRING) completions bash > "$(OUT)/completions/mainspring.bash"
	$(MAINSPRING) completions zsh > "$(OUT)/completions/_mainspring"
	$(MAINSPRING) completions fish > "$(OUT)/completions/mainspring.fish"
	echo "Completions: $$(realpath "$(OUT)/completions")"

.PHONY: clean
clean: ## Remove all build output
	$(CARGO) clean

##@ Check

.PHONY: lint
lint: setup ## Format, clippy, documentation, licences, advisories
	$(call run-phases,$(LINT_PHASES))

.PHONY: commits
commits: ## Check the subjects of the commits since the rule was last changed
	if ! git rev-parse --verify --quiet HEAD >/dev/null; then
	    echo "commits: not checked, this is no git checkout"
	    exit 0
	fi
	since="$$(git log --format=%H -1 -- .githooks/check-subject)"
	git log --no-merges --format=%s $${since:+"$$since"..}HEAD -- | while IFS= read -r subject; do
	    .githooks/check-subject "$$subject"
	done

.PHONY: fmt
fmt: ## Format all code in place
	$(CARGO) fmt --all
	$(KERNEL_CARGO) fmt --all
	for package in $(APART); do $(CARGO) fmt --manifest-path "$$package/Cargo.toml"; done

.PHONY: fmt-check
fmt-check: ## Fail on code that rustfmt would change
	$(CARGO) fmt --all --check
	$(KERNEL_CARGO) fmt --all --check
	for package in $(APART); do $(CARGO) fmt --check --manifest-path "$$package/Cargo.toml"; done

.PHONY: clippy
clippy: ## Clippy on all targets, warnings are errors
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(KERNEL_CARGO) clippy --locked --workspace -- -D warnings
	$(KERNEL_CARGO) clippy --locked --package mainspring-kernel --features measure -- -D warnings

.PHONY: doc
doc: ## Build the API documentation, warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --workspace
	$(KERNEL_CARGO) rustdoc --locked --package mainspring-kernel --bin kernel -- -D warnings --document-private-items
	$(KERNEL_CARGO) rustdoc --locked --package mainspring-user --lib -- -D warnings

.PHONY: licences
licences: ## Check the licences of all third-party packages against deny.toml
	$(CONFORMANCE) licences

.PHONY: advisories
advisories: ## Ask cargo-deny for known vulnerabilities, where it is installed
	if ! command -v cargo-deny >/dev/null; then
	    echo "advisories: not checked, cargo-deny is not installed (cargo install --locked cargo-deny)"
	elif $(CARGO) deny --locked fetch db >/dev/null 2>&1; then
	    $(CARGO) deny --locked check
	else
	    echo "advisories: not checked, their database cannot be fetched; checking the rest"
	    $(CARGO) deny --locked --offline check bans licenses sources
	fi

# All packages that are tested, with the features that have tests. What is built and what is run is the same selection.
TESTED = --locked --workspace $(NOT_TESTED:%=--exclude %) --features mainspring-runtime/hyper,mainspring-runtime/futures-io

UNIT = $(CARGO) test $(TESTED) --quiet --no-fail-fast

.PHONY: unit
unit: setup-schema ## Run all tests of the workspace, documentation tests included
	$(CARGO) test $(TESTED) --no-run
	# Most tests wait more than they compute: two halves side by side, and the output of the first after that of the second. No `make`
	# here: `make -n`, which the tests use, runs a recipe that calls it.
	$(UNIT) --test '[a-i]*' >"$(OUT)/unit-first.log" 2>&1 & first=$$!
	status=0
	# Not `observe`: it has a feature of its own, see `make test-console`.
	$(UNIT) --test '[j-n]*' --test 'o[!b]*' --test '[p-z]*' || status=$$?
	$(UNIT) --lib --bins --examples || status=$$?
	$(UNIT) --doc || status=$$?
	wait "$$first" || status=$$?
	cat "$(OUT)/unit-first.log"
	exit "$$status"

.PHONY: loom
loom: ## Model-check the rings' and the runtime's protocols
	# The models spend their time in the kernel, on stacks: what a whole-program optimisation gains is less than it takes.
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="$(OUT)/loom" CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
	    $(CARGO) test --locked --release --package mainspring-ring --package mainspring-runtime --test loom --quiet

# The optimised kernel is linked by one thread for half a minute: the models run beside it.
.PHONY: loom-and-kernels
loom-and-kernels: setup-qemu
	$(MAKE) --jobs 2 --output-sync=target loom kernels

.PHONY: kernels
kernels: kernel
	$(MAKE) kernel-checked kernel-measured

.PHONY: test-page
test-page: build ## The report's page in a real browser: no axe violation, keys, touch, the address, the largest machine
	$(call install-missing,$(PAGE_NEEDS))
	mkdir -p "$(OUT)/page-test"
	cp report/browser/package.json "$(OUT)/page-test/"
	npm install --silent --no-audit --no-fund --no-package-lock --prefix "$(OUT)/page-test"
	MAINSPRING="$(abspath $(OUT))/release/mainspring" WORKLOADS=workloads PAGES="$(abspath $(OUT))/page-test/pages" \
	    MODULES="$(abspath $(OUT))/page-test" CHROMIUM="$$(command -v chromium)" node --test report/browser/page.test.mjs

.PHONY: test-trace
test-trace: build ## The Perfetto trace, decoded with the published schema and compared with the report
	$(call install-missing,$(TRACE_NEEDS))
	test -d "$(OUT)/trace-test" || python3 -m venv "$(OUT)/trace-test"
	"$(OUT)/trace-test/bin/pip" install --quiet perfetto==0.59.1
	"$(OUT)/trace-test/bin/python" report/browser/trace_check.py "$(OUT)/release/mainspring" "$(OUT)/trace-test/out.perfetto-trace" \
	    workloads/{tour,robot-control,inversion,inversion-off,voice-agent,spawn-join,sqpoll-lease,faults}.toml

.PHONY: sweeps
sweeps: ## All seeds of the simulator's sweeps over random workloads: ten times as many as `make unit` takes
	MAINSPRING_SEEDS=all $(CARGO) test --locked --release --package mainspring-sim \
	    --test random --test contexts --test context_checks --test admission --test floor

.PHONY: trees
trees: ## A million random nursery trees, and a million waiting tasks, on the Linux runtime
	MAINSPRING_TREES=1000000 $(CARGO) test --locked --release --package mainspring-runtime --test trees -- --nocapture
	MAINSPRING_TASKS=1000000 $(CARGO) test --locked --release --package mainspring-runtime --test million -- --nocapture

# The runtime's fuzzer, optimised: what it is asked for is in ARGS (`ARGS=--help` lists it).
FUZZ_RUNTIME = $(CARGO) run --quiet --release --locked --package mainspring-fuzz-runtime --

.PHONY: fuzz-runtime
fuzz-runtime: setup ## Random programs over the runtime's whole API against a model (SECONDS=120, SEED=n, ACTS=n, ARGS=...)
	$(FUZZ_RUNTIME) $(if $(SEED),--seed $(SEED)) $(if $(SECONDS),--seconds $(SECONDS),$(if $(SEED),,--seconds 120)) \
	    $(if $(ACTS),--acts $(ACTS)) $(ARGS)

# Programs that end by themselves; the sound of all of them is a clean memcheck.
# Valgrind knows no io_uring.
MEMCHECKED := hello_nursery parallel_map pipeline plugin supervised timeout_retry "echo --epoll" "limits small" \
    "soak server 100 epoll" "soak hostile 3 epoll"
MEMCHECK = valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
    --suppressions=runtime/memcheck.supp

.PHONY: memcheck-runtime
memcheck-runtime: setup-valgrind ## The runtime's examples, and some of its fuzzer's programs, under valgrind's memcheck (SEEDS=32)
	$(CARGO) build --quiet --locked --package mainspring-runtime --examples
	$(CARGO) build --quiet --locked --package mainspring-fuzz-runtime
	for program in $(MEMCHECKED); do
	    $(MEMCHECK) "$(OUT)/debug/examples/"$$program >/dev/null || { echo "memcheck-runtime: $$program FAILED" >&2; exit 1; }
	    echo "memcheck-runtime: $$program is clean"
	done
	$(MEMCHECK) "$(OUT)/debug/mainspring-fuzz-runtime" --child --epoll --patience 300 --acts 150 --seed 0 \
	    --seeds $(or $(SEEDS),32) >/dev/null || { echo "memcheck-runtime: the fuzzer FAILED" >&2; exit 1; }
	echo "memcheck-runtime: passed"

.PHONY: memcheck-capi
memcheck-capi: setup-valgrind ## The C library's cases and examples under valgrind's memcheck
	$(CARGO) test --quiet --locked --package mainspring-capi --test capi
	built="$(OUT)/tmp/capi"
	for case in $$("$$built/cases"); do
	    $(MEMCHECK) "$$built/cases" $$case >/dev/null || { echo "memcheck-capi: $$case FAILED" >&2; exit 1; }
	done
	for program in pipeline tree; do
	    $(MEMCHECK) "$$built/$$program" >/dev/null || { echo "memcheck-capi: $$program FAILED" >&2; exit 1; }
	done
	echo "memcheck-capi: passed"

.PHONY: fuzz-capi
fuzz-capi: setup ## Random sequences of calls of the C library against a model (SEQUENCES=100000, SEED=n)
	$(if $(SEED),MAINSPRING_SEED=$(SEED)) MAINSPRING_SEQUENCES=$(or $(SEQUENCES),100000) \
	    $(CARGO) test --locked --release --package mainspring-capi --test capi model::

.PHONY: soak
soak: setup ## For hours: a million damaged workload files and records, 100 million acts of the runtime's fuzzer, memcheck, a million trees, the soaked servers, a million calls of the kernel, two million damaged programs, calls of the C library
	$(call run-phases,fuzz-files fuzz-lang-soak test-native test-plugins test-console soak-cluster fuzz-capi fuzz-runtime-soak memcheck-runtime memcheck-capi trees soak-server soak-hostile fuzz-kernel-soak sweeps)

.PHONY: fuzz-files
fuzz-files: setup ## Damaged workload files, flight records and recordings of Linux: read or refused (COUNT=n)
	MAINSPRING_FUZZ_INPUTS=$(or $(COUNT),1000000) $(CARGO) test --locked --release --package mainspring-workload --test fuzz
	MAINSPRING_FUZZ_INPUTS=$(or $(COUNT),1000000) $(CARGO) test --locked --release --package mainspring-sim --test record damaged
	PROPTEST_CASES=$(or $(COUNT),1000000) $(CARGO) test --locked --release --package mainspring-import --test samples any_change

.PHONY: fuzz-runtime-soak
fuzz-runtime-soak: setup
	$(FUZZ_RUNTIME) --total 100000000

.PHONY: fuzz-lang-soak
fuzz-lang-soak: setup
	MAINSPRING_FUZZ_INPUTS=$(or $(COUNT),1000000) $(CARGO) test --locked --release --package mainspring-janus --test janus fuzz::

.PHONY: test-plugins
test-plugins: setup ## The WebAssembly plugins: tests, attacks and lints; builds Wasmtime the first time
	$(CARGO) test --locked --manifest-path plugins/wasm/Cargo.toml --target-dir target/plugins
	$(CARGO) clippy --locked --manifest-path plugins/wasm/Cargo.toml --target-dir target/plugins --all-targets -- -D warnings
	$(CARGO) fmt --manifest-path plugins/wasm/Cargo.toml --check

# The console is a workspace of its own, built below $(OUT)/console. Tasks are observed behind a feature of the runtime, whose tests are run here.
CONSOLE_OUT = $(abspath $(OUT))/console
CONSOLE = --locked --manifest-path console/Cargo.toml --target-dir "$(CONSOLE_OUT)"

.PHONY: test-console
test-console: setup ## The server for tokio-console: tests as a client and as a hostile one, and lints; builds gRPC the first time
	$(CARGO) test --locked --package mainspring-runtime --features console --lib observe::
	$(CARGO) test --locked --package mainspring-runtime --features console --test observe
	$(CARGO) clippy --locked --package mainspring-runtime --features console --lib --test observe -- -D warnings
	$(CARGO) test $(CONSOLE)
	$(CARGO) clippy $(CONSOLE) --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(CONSOLE) --no-deps --package mainspring-console --package mainspring-runtime
	$(CARGO) fmt --manifest-path console/Cargo.toml --check

.PHONY: run-console
run-console: setup ## A runtime for tokio-console to look at: start that in another terminal (SECONDS=60)
	$(CARGO) run --quiet $(CONSOLE) --example shop -- $(or $(SECONDS),60)

# What it costs to observe tasks, in instructions: two counts of each, so that what the program does once falls out.
.PHONY: count-console
count-console: setup-valgrind ## Instructions of a yield, a wake and a spawn: without the feature console, with it, and observed
	counted() { valgrind --tool=callgrind --callgrind-out-file=/dev/null "$$@" 2>&1 | sed -n 's/.*Collected : //p'; }
	for features in '' console; do
	    $(CARGO) build --quiet --release --locked --package mainspring-runtime --features "$$features" --example switch_cost
	    for observed in '' $${features:+observed}; do for what in yields wakes spawns; do
	        few="$$(counted "$(OUT)/release/examples/switch_cost" $$what 20000 $$observed)"
	        many="$$(counted "$(OUT)/release/examples/switch_cost" $$what 120000 $$observed)"
	        printf '%-8s %-10s %-9s %5d\n' "$$what" "$${features:-without}" "$$observed" $$(( (many - few) / 100000 ))
	    done; done
	done

# The cluster is a workspace of its own, built below $(OUT)/cluster. Its tests need the mainspring command, and a NATS server.
CLUSTER_NEEDS := nats-server:nats-server openssl:openssl
CLUSTER_OUT = $(abspath $(OUT))/cluster
CLUSTER = --locked --manifest-path cluster/Cargo.toml --target-dir "$(CLUSTER_OUT)"

.PHONY: test-cluster
test-cluster: setup ## Sweeps and actors over a real NATS server: workers, nodes and servers are killed (CHAOS_ROUNDS=4)
	$(call install-missing,$(CLUSTER_NEEDS))
	$(CARGO) build --locked --package mainspring-cli
	MAINSPRING="$(abspath $(OUT))/debug/mainspring" MAINSPRING_CHAOS_ROUNDS=$(or $(CHAOS_ROUNDS),4) $(CARGO) test $(CLUSTER) -- --test-threads 2
	$(CARGO) clippy $(CLUSTER) --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(CLUSTER) --no-deps
	$(CARGO) fmt --manifest-path cluster/Cargo.toml --check

# Four rounds take half a minute beside the build: a node is killed, one is cut off, one is stopped for longer than its lease, and the
# server is killed; and workers of a sweep, the processes that make its runs, and its server. CHAOS_ROUNDS=n has more, the later ones by chance
# (SEED=n). Without the right to make network namespaces it says so, and nobody is cut off. `make test` has built the mainspring command.
.PHONY: chaos-cluster
chaos-cluster: setup ## Supervised actors and a sweep while nodes, workers and the server are killed, stopped and cut off (CHAOS_ROUNDS=4, SEED=n)
	$(call install-missing,$(CLUSTER_NEEDS))
	[[ -x "$(OUT)/debug/mainspring" ]] || $(CARGO) build --locked --package mainspring-cli
	$(CARGO) build $(CLUSTER) --example member
	export MAINSPRING="$(abspath $(OUT))/debug/mainspring" MAINSPRING_CHAOS_ROUNDS=$(or $(CHAOS_ROUNDS),4)
	$(if $(SEED),MAINSPRING_SEED=$(SEED)) $(CARGO) test $(CLUSTER) --test chaos --test sweep -- --nocapture no_actor_is_at_work killed_workers

.PHONY: soak-cluster
soak-cluster:
	$(MAKE) test-cluster CHAOS_ROUNDS=$(or $(CHAOS_ROUNDS),200)

.PHONY: run-cluster
run-cluster: setup ## A supervised pipeline on three nodes, one of which is killed: it goes on (all on loopback, and ended again)
	$(call install-missing,$(CLUSTER_NEEDS))
	$(CARGO) build $(CLUSTER) --example member --example run_cluster
	"$(CLUSTER_OUT)/debug/examples/run_cluster" "$(OUT)/cluster.html"

.PHONY: install-cluster
install-cluster: setup ## Install mainspring-cluster, which sweeps and actors over NATS need (PREFIX=dir: into dir/bin)
	$(CARGO) install --locked --path cluster --target-dir "$(CLUSTER_OUT)" $(if $(PREFIX),--root "$(PREFIX)")

.PHONY: run-guests
run-guests: setup ## Three WebAssembly guests, one of them hostile, and what each used
	$(CARGO) run --locked --manifest-path plugins/wasm/Cargo.toml --target-dir target/plugins --example three_guests

.PHONY: test-native
test-native: setup ## The command built with its code generator: `jan run --native`, `jan build`
	$(CARGO) build --locked --package mainspring-jan
	$(CARGO) test --locked --package mainspring-cli --features native --test cli jan::

.PHONY: soak-server
soak-server: setup ## A server that accepts a million connections one after the other (COUNT=n)
	$(CARGO) run --locked --release --package mainspring-runtime --example soak -- server $(or $(COUNT),1000000)

.PHONY: soak-hostile
soak-hostile: setup ## A server beside a hostile tenant, for ten minutes (SOAK_SECONDS=n)
	$(CARGO) run --locked --release --package mainspring-runtime --example soak -- hostile $(or $(SOAK_SECONDS),600)

.PHONY: fuzz-ring-valgrind
fuzz-ring-valgrind: setup-valgrind ## The rings' hostile-peer fuzzer under valgrind
	bin="$$($(CARGO) test --locked --package mainspring-ring --test fuzz --no-run --message-format json |
	    awk -F '"' '/"name":"fuzz"/ { for (i = 1; i < NF; i++) if ($$i == "executable") print $$(i + 2) }')"
	valgrind --quiet --error-exitcode=9 "$$bin" --test-threads 1

.PHONY: conformance
conformance: ## Which requirements have a citing test (ARGS="--part core --group 14 --missing")
	$(CONFORMANCE) report $(ARGS)

.PHONY: conformance-summary
conformance-summary:
	$(CONFORMANCE) report --summary

##@ Kernel

.PHONY: setup-qemu
setup-qemu: setup ## Install QEMU, if it is missing
	$(call install-missing,$(QEMU_NEEDS))

.PHONY: kernel
kernel: setup ## Build the kernel and its user programs
	$(KERNEL_CARGO) build --quiet --release --locked --workspace

.PHONY: kernel-checked
kernel-checked: setup ## Build the kernel that looks at its invariants at every turn
	$(KERNEL_CARGO) build --quiet --profile checked --locked --package mainspring-kernel

.PHONY: kernel-measured
kernel-measured: setup ## Build the kernel that counts everything that may take time
	$(KERNEL_CARGO) build --quiet --profile measured --features measure --locked --package mainspring-kernel

.PHONY: kernel-proofs
kernel-proofs: setup-qemu kernel kernel-checked kernel-measured run-workload run-draws run-effects run-records ## Run every proof of the kernel under QEMU
	$(PROOF) --jobs 3 --logs "$(OUT)/kernel-logs" $(KERNEL_PROOFS)
	$(PROOF) --jobs 3 --checked $(CHECKED_PROOFS)
	$(PROOF) --fuzz --checked --logs "$(OUT)/kernel-logs" --seed 1 --cpus 4 --calls 15000
	$(PROOF) --fuzz --checked --logs "$(OUT)/kernel-logs" --seed 1 --cpus 4 --calls 5000 --card
	$(PROOF) --measured --logs "$(OUT)/kernel-logs" $(MEASURED_PROOFS)

.PHONY: run-workload
run-workload: setup-qemu kernel ## A workload on the kernel, its flight record verified, and replayed in the simulator (FILE=...)
	mkdir -p "$(OUT)"
	export MAINSPRING_KERNEL_DIR="$(abspath $(OUT))/kernel/release"
	again() { echo "--- again: make run-workload FILE=$(or $(FILE),workloads/tour.toml)" >&2; exit 1; }
	$(MAINSPRING_DEBUG) run $(or $(FILE),workloads/tour.toml) \
	    --on qemu --verify --record "$(OUT)/kernel-run.msr" || again
	$(MAINSPRING_DEBUG) replay "$(OUT)/kernel-run.msr" || again

# Time counts instructions there, so that shares do not depend on the host.
.PHONY: run-draws
run-draws: setup-qemu kernel ## A workload with phases, distributions and locks draws the same on the simulator and on the kernel
	export MAINSPRING_KERNEL_DIR="$(abspath $(OUT))/kernel/release"
	$(MAINSPRING_DEBUG) run workloads/same-draws.toml --quiet
	$(MAINSPRING_DEBUG) run workloads/same-draws.toml --on qemu --counted --verify

.PHONY: run-records
run-records: setup-qemu kernel ## Workloads on the kernel, whose records are judged by independent checkers
	$(if $(BUILT),,$(CARGO) build --quiet --locked --package mainspring-cli)
	MAINSPRING_KERNEL_DIR="$(abspath $(OUT))/kernel/release" kernel/proofs/records.sh "$(OUT)/debug/mainspring"

.PHONY: run-effects
run-effects: setup-qemu kernel ## Devices, a network, a policy service, lent weights, endpoints, sessions and rings have the same effect on both
	mkdir -p "$(OUT)"
	export MAINSPRING_KERNEL_DIR="$(abspath $(OUT))/kernel/release"
	$(MAINSPRING_DEBUG) run workloads/same-effects.toml --quiet
	$(MAINSPRING_DEBUG) run workloads/same-effects.toml --on qemu --counted --verify \
	    --record "$(OUT)/kernel-effects.msr"
	$(MAINSPRING_DEBUG) replay "$(OUT)/kernel-effects.msr"
	$(MAINSPRING_DEBUG) run workloads/same-authority.toml --quiet
	$(MAINSPRING_DEBUG) run workloads/same-authority.toml --on qemu --counted --verify \
	    --record "$(OUT)/kernel-authority.msr"
	$(MAINSPRING_DEBUG) replay "$(OUT)/kernel-authority.msr"
	$(MAINSPRING_DEBUG) run workloads/hostile-policy.toml --on qemu --counted --verify >"$(OUT)/kernel-policy.txt"
	for told in '3 updates taken, the last epoch is 4; 3 refused' 'epoch 2 is not above 3' "the recovery thread is not the policy's" \
	    "weight 65535 is outside of the manifest's bounds" 'was slow' 'was lost at .*: it ended'; do
	    grep "^! .*policyd.*$$told" "$(OUT)/kernel-policy.txt" || { echo "run-effects: the policy service is not told of: $$told" >&2; exit 1; }
	done

.PHONY: $(KERNEL_PROOFS:%=run-%)
$(KERNEL_PROOFS:%=run-%): run-%: setup-qemu kernel $(if $(CHECKED),kernel-checked)
	$(PROOF) --verbose $(if $(CHECKED),--checked) --logs "$(OUT)/kernel-logs" $(if $(CPUS),--cpus $(CPUS)) $(if $(TIMES),--times $(TIMES)) $*

.PHONY: $(MEASURED_PROOFS:%=run-%)
$(MEASURED_PROOFS:%=run-%): run-%: setup-qemu kernel kernel-measured
	$(PROOF) --verbose --measured --logs "$(OUT)/kernel-logs" $(if $(TIMES),--times $(TIMES)) $*

.PHONY: fuzz-kernel
fuzz-kernel: setup-qemu kernel kernel-checked ## Fuzz the kernel from ring 3 (SEED, CPUS, CALLS, TIMES, REPLAY=1, CARD=1, PLAIN=1)
	$(PROOF) --fuzz $(if $(PLAIN),,--checked) --logs "$(OUT)/kernel-logs" $(if $(SEED),--seed $(SEED)) \
	    $(if $(CPUS),--cpus $(CPUS)) $(if $(CALLS),--calls $(CALLS)) $(if $(TIMES),--times $(TIMES)) $(if $(REPLAY),--replay) $(if $(CARD),--card)

.PHONY: fuzz-kernel-soak
fuzz-kernel-soak: setup-qemu kernel kernel-checked
	for cpus in 2 4 8; do
	    $(PROOF) --fuzz --checked --logs "$(OUT)/kernel-logs" --cpus $$cpus --calls 350000
	    $(PROOF) --fuzz --checked --logs "$(OUT)/kernel-logs" --cpus $$cpus --calls 50000 --card
	done

.PHONY: proofs
proofs: ## List the proofs; `make run-NAME` runs one (CPUS=4, TIMES=10)
	$(PROOF) --list

.PHONY: setup-schema
setup-schema: setup ## Install the compiler of the interfaces, if it is missing
	$(call install-missing,$(SCHEMA_NEEDS))

.PHONY: schema
schema: setup-schema ## Generate the code of the capabilities' interfaces anew (needs the capnp compiler)
	$(CARGO) run --quiet --locked --package mainspring-schema --example generate

##@ Measure

.PHONY: setup-valgrind
setup-valgrind: setup ## Install valgrind, if it is missing
	$(call install-missing,$(BENCH_NEEDS))

.PHONY: bench-core
bench-core: setup-valgrind ## Instructions per scheduling decision, from 10 to 1,000,000 threads
	$(CARGO) run --release --locked --package mainspring-bench-core

.PHONY: bench-sim
bench-sim: setup ## Decisions per second of the simulator, what a record costs, and the largest machine
	status=0
	$(CARGO) build --release --locked --package mainspring-bench-sim
	# What a build leaves behind, the system writes half a minute later: in the middle of a measurement with files.
	sync
	$(CARGO) run --release --locked --package mainspring-bench-sim || status=$$?
	$(MAINSPRING) run workloads/huge.toml | sed -n '1p;3p'
	exit $$status

# Contexts of one CPU that use 90 % of it, with periods of all lengths; deadlines at the period, or at three quarters of it.
ADMIT_CONTEXTS = awk -v n="$$contexts" -v due="$$due" 'BEGIN { \
    print "[machine]\ncpus = 1"; \
    for (i = 0; i < n; i++) { \
        period = 20000 + (i * 7919) % 70000; \
        printf "[[context]]\nname = \"c%d\"\nbudget = \"%dns\"\nperiod = \"%dus\"\ndeadline = \"%dus\"\n", i, period * 900 / n, period, period * due; \
        printf "[[thread]]\nname = \"t%d\"\ncontext = \"c%d\"\nprogram = [\"run 1us\", \"every %dus\"]\n", i, i, period } }'

.PHONY: bench-admit
bench-admit: build ## Processor time of admission: 1,000 contexts of one CPU within 0.1 s, 5,000 within 1 s
	failed=0
	TIMEFORMAT=%U+%S
	for limits in 1000:0.1 5000:1; do for due in 1 0.75; do
	    contexts="$${limits%%:*}" limit="$${limits#*:}"
	    $(ADMIT_CONTEXTS) >"$(OUT)/admit.toml"
	    # The least of five: another program on the host can only make it longer.
	    spent="$$(for round in 1 2 3 4 5; do { time "$(OUT)/release/mainspring" admit "$(OUT)/admit.toml" >"$(OUT)/admit.txt"; } 2>&1; done | \
	        awk -F+ 'NR == 1 || $$1 + $$2 < least { least = $$1 + $$2 } END { print least }')"
	    grep -q 'admitted: ' "$(OUT)/admit.txt"
	    verdict="$$(awk -v spent="$$spent" -v limit="$$limit" 'BEGIN { print (spent <= limit) ? "ok" : "MISSED" }')"
	    printf '%5d contexts, due at %.2f of the period: %.3f s of processor time, at most %s: %s\n' "$$contexts" "$$due" "$$spent" "$$limit" "$$verdict"
	    if [ "$$verdict" != ok ]; then failed=1; fi
	done; done
	exit "$$failed"

.PHONY: bench-kernel
bench-kernel: setup-qemu kernel kernel-measured ## Instructions of the kernel's paths, a client beside a flood, and the longest stretch with interrupts off
	$(PROOF) --verbose bench
	$(PROOF) --verbose bench-donation
	$(PROOF) --verbose bench-sqpoll
	$(PROOF) --verbose bench-network
	$(PROOF) --verbose --measured bench-longest

.PHONY: bench-scale
bench-scale: setup-qemu kernel ## Thread-scale five times, on cores 0 to 3, beside the host's own threads; fails below 1.6 times
	taskset -apc 0-3 $$$$ >/dev/null
	$(PROOF) --scales --times 5 --logs "$(OUT)/kernel-logs" thread-scale

.PHONY: trace-kernel
trace-kernel: setup-qemu kernel ## What an endpoint round trip spends its instructions on
	$(PROOF) --trace

.PHONY: bench-lang
bench-lang: setup ## What checks cost compiled Janus programs, counted and polled, beside Rust, Go if there is one, and with WASM=1 Wasmtime (ROUNDS=21)
	$(CARGO) build --release --locked --package mainspring-bench-lang
	if command -v go >/dev/null; then GO111MODULE=off go build -o "$(OUT)/go-loops" bench/lang/go/main.go; else rm -f "$(OUT)/go-loops"; fi
	if [ -n "$(WASM)" ]; then $(CARGO) build --locked --manifest-path plugins/wasm/Cargo.toml --target-dir target/plugins --example loops; fi
	BENCH_GO="$$(ls "$(OUT)/go-loops" 2>/dev/null || true)" BENCH_WASM="$(if $(WASM),target/plugins/debug/examples/loops)" \
	    "$(OUT)/release/mainspring-bench-lang" $(ROUNDS)

.PHONY: bench-ring
bench-ring: setup ## No-op requests through our rings beside io_uring: rate and round trip
	$(CARGO) run --release --locked --package mainspring-bench-ring

.PHONY: bench-cluster
bench-cluster: setup ## An actor call across nodes beside a bare NATS request, and a local one beside a channel's round trip (THREADS=1: nodes of several threads)
	$(call install-missing,$(CLUSTER_NEEDS))
	$(CARGO) build --release $(CLUSTER) --example cost
	store="$$(mktemp -d)"
	trap 'kill "$$server"; wait "$$server" || true; rm -r "$$store"' EXIT
	nats-server --jetstream --addr 127.0.0.1 --port 14222 --store_dir "$$store" >"$$store/log" 2>&1 & server=$$!
	for _ in {1..100}; do (: </dev/tcp/127.0.0.1/14222) 2>/dev/null && break; sleep 0.1; done
	"$(CLUSTER_OUT)/release/examples/cost" nats://127.0.0.1:14222 $(if $(THREADS),--threads)

.PHONY: bench-limits
bench-limits: setup ## What the Linux runtime must reach on any host: switch, spawn, memory, steal, scaling
	$(CARGO) run --release --locked --package mainspring-runtime --example limits

.PHONY: bench-runtime
bench-runtime: setup ## The Linux runtime beside Tokio, may, smol, Rayon, corosensei and Go (ARGS="--bench yield")
	$(CARGO) run --release --locked --package mainspring-bench-runtime -- $(ARGS)
