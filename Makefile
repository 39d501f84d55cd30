# The front door: `make demo` shows Swale at work, `make test` proves it. Each target installs what it lacks (Debian,
# Ubuntu; elsewhere it says what to install), then calls a script in scripts/ and a preset of CMakePresets.json.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory
.PHONY: help build install demo bench-fs bench-imd bench-imd-ablation bench-meta bench-optimize bench-python bench-rpc bench-shuffle bench-source bench-threehop bench-tier sim-shuffle test test-python test-long test-asan test-tsan deb test-deb wheel check format docs clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

build: ## the library and the swale command, into build/release (the default)
	@scripts/install-deps.sh build
	@scripts/build.sh release swale_installed

# SWALE_BUILD names a finished build folder to install from, instead of building (tests, packagers).
PREFIX ?= /usr/local
install: ## into PREFIX (default /usr/local), under DESTDIR if that is set: library, headers, command, guide
	@if [ -z "$${SWALE_BUILD:-}" ]; then scripts/install-deps.sh build; scripts/build.sh release swale_installed; fi
	@cmake --install "$${SWALE_BUILD:-build/release}" --prefix "$(PREFIX)" > /dev/null
	@echo "== Swale is in $(DESTDIR)$(PREFIX)"

demo: ## a molecular-dynamics run writes into a massive directory, one core queries it; results in build/demo (ROUTE=three-hop: as if on 2 nodes; FORMAT=indirect|lossy)
	@echo "== The demo: about 4 minutes on 2 quiet cores if packages are missing and nothing is compiled, then 1 minute"
	@scripts/install-deps.sh demo
	@scripts/venv.sh
	@scripts/build.sh release swale_demo
	@$(if $(FORMAT),SWALE_IMD_FORMAT=$(FORMAT)) examples/lammps/run-demo.sh build/release build/demo

bench-imd: ## Swale, LevelDB, RocksDB, DuckDB and raw appends, the same work; results in build/bench (BENCH=quick: 5 min)
	@scripts/install-deps.sh build bench
	@scripts/venv.sh
	@scripts/build.sh release swale_benchmarks
	@build/venv/bin/python bench/imd.py build/release/bench build/bench --profile "$${BENCH:-full}"

bench-optimize: ## trajectories before and after `swale optimize`, beside RocksDB and LevelDB; results in build/bench/optimize.json and .md (BENCH=quick: 7 min)
	@scripts/install-deps.sh build bench
	@scripts/build.sh release swale_benchmarks swale_cli
	@$${PYTHON:-/usr/bin/python3} bench/optimize.py build/release/bench build/bench --swale build/release/tools/swale --profile "$${BENCH:-full}"

bench-rpc: ## requests between ranks beside UCX alone, and TLS beside UCX over TCP; results in build/bench/rpc.json and tls.json
	@scripts/install-deps.sh build bench
	@scripts/build.sh release bench_all_to_all bench_handshakes bench_rpc
	@$${PYTHON:-/usr/bin/python3} bench/net/rpc.py build/release/bench/net/bench_rpc build/bench --profile "$${BENCH:-full}"
	@$${PYTHON:-/usr/bin/python3} bench/net/tls.py build/release/bench/net build/bench --profile "$${BENCH:-full}"

bench-shuffle: ## records to their home ranks, directly and by three hops, on one node without and with ports; results in build/bench/shuffle.json (BENCH=quick: 2 min)
	@scripts/install-deps.sh build bench
	@scripts/build.sh release bench_route bench_large_job bench_lossy_directory bench_sim_shuffle bench_calibrate
	@$${PYTHON:-/usr/bin/python3} bench/net/shuffle.py build/release/bench build/bench --profile "$${BENCH:-full}"

bench-source: ## auxiliary tables beside the 2020 paper's; build/bench/source.json, plot in docs/results (BENCH=quick: 2 min)
	@scripts/install-deps.sh build bench
	@scripts/build.sh release bench_source bench_lossy_directory bench_calibrate
	@$${PYTHON:-/usr/bin/python3} bench/source/source.py build/release/bench build/bench --profile "$${BENCH:-full}" --results docs/results

sim-shuffle: ## shuffling on the machines of the 2018 and 2020 papers, simulated to 4,096 ranks; build/bench, page and plots in docs/results
	@scripts/install-deps.sh build bench
	@scripts/build.sh release bench_sim_shuffle bench_lossy_directory bench_route
	@$${PYTHON:-/usr/bin/python3} bench/sim/sim_shuffle.py build/release/bench build/bench --profile "$${BENCH:-full}" --results docs/results

bench-threehop: ## what the three-hop router itself takes; one line of JSON for each of three shapes, in build/bench/threehop.json
	@scripts/install-deps.sh build bench
	@scripts/build.sh release bench_threehop
	@mkdir -p build/bench
	@for shape in "2 4" "4 8" "1 4"; do read -r nodes ranks <<< "$$shape"; \
	  build/release/bench/net/bench_threehop --nodes "$$nodes" --ranks "$$ranks"; done | tee build/bench/threehop.json

bench-meta: ## the metadata store beside LevelDB; build/bench/meta.json, page and plots in docs/results, 23 min (BENCH=quick: 9 min)
	@scripts/install-deps.sh build bench
	@scripts/build.sh release bench_meta_index bench_meta_client bench_meta_service bench_calibrate
	@$${PYTHON:-/usr/bin/python3} bench/meta/meta.py build/release/bench build/bench --profile "$${BENCH:-full}" --results docs/results

bench-fs: ## the job's file system on one node beside tmpfs, cp, a plain directory and a pass-through mount; results in build/bench/fs.json, 10 min (BENCH=quick: 2 min)
	@scripts/install-deps.sh build bench
	@scripts/build.sh release bench_fs bench_fs_drain bench_fs_library bench_fs_massive bench_fs_light bench_fs_preload bench_fs_remote bench_fs_slow bench_fs_storm \
	  bench_fs_tree bench_fs_unmounted bench_calibrate swale_cli
	@$${PYTHON:-/usr/bin/python3} bench/fs/fs.py build/release/bench build/bench --profile "$${BENCH:-full}"

bench-python: ## the Python package beside the C calls, DuckDB and pyarrow; results in build/bench/python.json (BENCH=quick: 5 min)
	@scripts/install-deps.sh build test bench
	@scripts/build.sh release swale swale_cli bench_python_c_calls
	@scripts/test-python.sh release --install-only
	@SWALE_WHEELS=build/wheel-release build/python-venv/bin/python bench/python/python.py build/release/bench/python build/bench --profile "$${BENCH:-full}"

bench-tier: ## the tiered write buffer's policies on the model of the paper's testbed; results in build/bench/tier.json (BENCH=quick: 3 min; PARTS="virtual real": the others as kept there)
	@scripts/install-deps.sh build bench
	@scripts/build.sh release bench_tier bench_mount bench_calibrate swale_cli
	@$${PYTHON:-/usr/bin/python3} bench/tier/tier.py build/release/bench/tier build/bench --profile "$${BENCH:-full}" $${PARTS:+--only $$PARTS}

bench-imd-ablation: ## the papers' experiments, techniques on and off; results in docs/results (BENCH=quick: 3 min; PARTS="reads size")
	@scripts/install-deps.sh build bench
	@scripts/build.sh release swale_benchmarks
	@mkdir -p build/bench
	@$${PYTHON:-/usr/bin/python3} bench/ablation.py build/release/bench docs/results --profile "$${BENCH:-full}" --scratch build/bench $${PARTS:+--only $$PARTS}

test: ## set everything up and run the tests (what CI runs)
	@echo "== The tests: about 12 minutes on 2 quiet cores if packages are missing and nothing is compiled, then 5"
	@scripts/install-deps.sh test
	@scripts/build.sh checked
	@scripts/test-python.sh checked
	@scripts/run-tests.py checked

test-python: ## the tests of the Python package alone, in an environment of their own (build/python-venv)
	@scripts/install-deps.sh test
	@scripts/build.sh checked swale swale_cli
	@scripts/test-python.sh checked

test-long: ## the tests that take hours, too; each fuzz target for a minute; the sanitizers; the Debian packages
	@scripts/install-deps.sh test long check
	@scripts/build.sh checked
	@scripts/run-tests.py checked-all
	@scripts/test-python-outside.sh checked
	@scripts/build.sh fuzz fuzzers
	@scripts/run-tests.py fuzz
	@$(MAKE) test-asan
	@$(MAKE) test-tsan
	@$(MAKE) test-deb

test-asan: ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/install-deps.sh test check
	@scripts/build.sh asan
	@scripts/run-tests.py asan
	@scripts/build.sh checked swale swale_cli
	@scripts/test-python.sh checked --sanitized asan

test-tsan: ## the tests under ThreadSanitizer
	@scripts/install-deps.sh test check
	@scripts/build.sh tsan
	@scripts/run-tests.py tsan
	@scripts/build.sh checked swale swale_cli
	@scripts/test-python.sh checked --sanitized tsan

deb: ## Debian packages (library, command, development files, Python), into build/deb
	@scripts/install-deps.sh build deb
	@scripts/build-deb.sh

test-deb: ## make deb, then install the packages in a bare Debian root and use them there (root, network; some minutes)
	@scripts/install-deps.sh build deb
	@scripts/build-deb.sh
	@scripts/test-deb.sh

wheel: ## the Python package as a wheel that runs where nothing else is installed, into build/wheel
	@scripts/install-deps.sh build wheel
	@scripts/build.sh release swale
	@scripts/build-wheel.sh release build/wheel
	@ls -l build/wheel/*.whl

check: ## before a commit: format, layers, tree, numbers, prints, locks, pages, fast tests, clang-tidy on what changed
	@scripts/install-deps.sh test check
	@scripts/check-tree.sh --self-test
	@scripts/check-tree.sh
	@scripts/check-layers.py --self-test
	@scripts/check-layers.py
	@scripts/check-docs.py --self-test
	@scripts/check-docs.py
	@scripts/figures.py --self-test
	@scripts/figures.py check
	@scripts/judged.py --self-test
	@scripts/judged.py check
	@scripts/check-numbers.py --self-test
	@scripts/check-numbers.py
	@scripts/check-prints.py --self-test
	@scripts/check-prints.py
	@scripts/check-locks.py --self-test
	@scripts/check-locks.py
	@scripts/build.sh checked
	@scripts/run-tests.py checked-fast
	@scripts/tidy-changed.sh clang

format: ## clang-format over all sources
	@scripts/install-deps.sh check
	@git ls-files -co --deduplicate --exclude-standard '*.h' '*.hpp' '*.c' '*.cc' | xargs -r "$$(scripts/clang-tool.sh clang-format)" -i

docs: ## the reference of the public headers, into build/docs
	@scripts/install-deps.sh docs
	@scripts/docs.sh

clean: ## remove build/
	@rm -rf build
