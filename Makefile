# `make demo` and `make test` work on a fresh machine: scripts/bootstrap installs what is missing first.
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo test test-long soak asan tsan fuzz format bench-peers docs wheel clean

DIR ?=
TESTS ?= tests tests/long
PEERS ?=
COUNT ?= 1000000
SEED ?= 0
PHOTOS ?=

help:
	@echo "make demo [DIR=folder]     the main job on photos that it makes, in the folder named"
	@echo "make test                  the gate, five minutes: format, lint, types, and the tests that catch nearly every fault"
	@echo "make test-long             the long tier, 25 minutes: the tests of tests/long"
	@echo "make soak [TESTS=path]     the tests of faults in their long form, hours; ends with a table of what was tried"
	@echo "make format                rewrite the sources in the project's format"
	@echo "make asan [TESTS=path]     the tests under the address and undefined-behaviour sanitizers"
	@echo "make tsan [TESTS=path]     the tests under the thread sanitizer"
	@echo "make fuzz [COUNT=1000000] [SEED=0] [PHOTOS=folder]   damaged JPEGs, KEY.fpcs, PNGs and KEY.tifs through the engine, under the first two"
	@echo "make bench-peers           the loaders that bench/run.py compares with, each in an environment of its own"
	@echo "make docs                  the documentation as a site, in build/site; every warning is an error"
	@echo "make wheel                 wheels with libjpeg-turbo in them, each tried in an empty environment, in dist"
	@echo "make clean                 remove what was built; .venv stays"

demo:
	@scripts/bootstrap
	@.venv/bin/fastpipe demo $(if $(DIR),"$(DIR)")

test:
	@FASTPIPE_WERROR=1 scripts/bootstrap --tools
	@scripts/check

test-long:
	@FASTPIPE_WERROR=1 scripts/bootstrap --tools
	@scripts/check --long

soak:
	@FASTPIPE_WERROR=1 scripts/bootstrap --tools
	@FASTPIPE_SOAK=1 .venv/bin/pytest $(TESTS)

format:
	@scripts/bootstrap --tools
	@.venv/bin/clang-format -i $$(git ls-files '*.cc' '*.h' '*.c')
	@.venv/bin/ruff check --quiet --select I --fix .
	@.venv/bin/ruff format .

# A second build beside the usual one: a copy of the package with a sanitized engine, put first on the path.
# libstdc++ is preloaded too, since the sanitizers look up its throw function at start, before the engine brings it;
# PYTHONSAFEPATH keeps the checkout itself off the path of the Pythons that tests start.
asan: preload = $(shell $${CXX:-c++} -print-file-name=libasan.so) $(shell $${CXX:-c++} -print-file-name=libstdc++.so)
tsan: preload = $(shell $${CXX:-c++} -print-file-name=libtsan.so) $(shell $${CXX:-c++} -print-file-name=libstdc++.so)
asan tsan:
	@scripts/bootstrap --tools
	@rm -rf build/$@
	@echo "building the engine with FASTPIPE_BUILD=$@"
	@FASTPIPE_BUILD=$@ FASTPIPE_WERROR=1 .venv/bin/python setup.py -q build \
		--build-base build/$@ --build-lib build/$@/lib
	@LD_PRELOAD="$(preload)" PYTHONPATH="$(CURDIR)/build/$@/lib" PYTHONSAFEPATH=1 \
		ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 \
		TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1 \
		.venv/bin/pytest -p no:cacheprovider $(TESTS)

fuzz:
	@scripts/bootstrap --tools
	@PYTHONPATH=tests .venv/bin/python -m support.fuzz.run --count $(COUNT) --seed $(SEED) $(if $(PHOTOS),--photos "$(PHOTOS)")

bench-peers:
	@scripts/bootstrap
	@.venv/bin/python -m bench.install $(PEERS)

docs:
	@scripts/bootstrap --tools
	@.venv/bin/python docs/site/build.py build/site

wheel:
	@scripts/wheel

clean:
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis fastpipe/_engine*.so
	@find . -path ./.venv -prune -o -name __pycache__ -prune -exec rm -rf {} +
