# SPDX-License-Identifier: Apache-2.0
# Entry points for a fresh Debian 12 with git, make, and root or sudo.

PRESET ?= release
BUILD := build/$(PRESET)
PREFIX ?= /usr/local
REPORT_ARGS ?= --quick --out out/report
VALIDATE_ARGS ?= --elements 5000000 --record docs/records/reference_validation.json
VALIDATE_KERNELS_ARGS ?= --elements 10000000 --record docs/records/kernel_validation.json
TEST_ARGS ?=
BENCH_ARGS ?=
JOBS ?=

ROOMS := core reference optimized audit properties experiments reports cli bench
PACKAGES := cmake ninja-build clang-19 g++ git libboost-dev libeigen3-dev libgtest-dev \
  librapidcheck-dev libhwy-dev libmpfr-dev libgmp-dev libflint-arb-dev libflint-dev \
  nlohmann-json3-dev libcli11-dev libfmt-dev librandom123-dev libssl-dev libzip-dev \
  libonnx-dev libonnx-testdata libprotobuf-dev python3 python3-numpy

# $(call ensure,packages) installs those that are missing; silent when none is.
define ensure
@have=" $$(dpkg-query -W -f='$${Package}:$${db:Status-Status} ' $(1) 2>/dev/null)"; \
missing=; \
for package in $(1); do \
  case "$$have" in *" $$package:installed "*) ;; *) missing="$$missing $$package" ;; esac; \
done; \
if [ -n "$$missing" ]; then \
  if [ "$$(id -u)" -eq 0 ]; then sudo=; else sudo=sudo; fi; \
  for tool in apt-get $$sudo; do \
    command -v $$tool >/dev/null || { echo "$$tool not found; install by hand:$$missing" >&2; exit 1; }; \
  done; \
  $$sudo apt-get update && \
  $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $$missing; \
fi
endef

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help deps build test validate validate-kernels report bench peers text install asan compilers format format-check tidy clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 19
	@echo 'Variables: PRESET=$(PRESET) JOBS= TEST_ARGS= REPORT_ARGS="$(REPORT_ARGS)" PREFIX=$(PREFIX)'

deps: ## Install the Debian packages that are missing
	$(call ensure,$(PACKAGES))

# A failed configuration leaves no build.ninja behind, so it is tried again.
build/%/build.ninja: | deps
	cmake --preset $*

build: deps $(BUILD)/build.ninja ## Configure once and build (PRESET=release)
	cmake --build $(BUILD) $(if $(JOBS),-j$(JOBS))

test: build ## Build and run the tests (TEST_ARGS: more arguments for ctest)
	ctest --preset $(PRESET) --output-on-failure $(TEST_ARGS)

validate: build ## Check the reference on 5,000,000 random elements (VALIDATE_ARGS)
	mkdir -p docs/records
	$(BUILD)/properties/reference_validation/reference_validation $(VALIDATE_ARGS)

validate-kernels: build ## Judge 10,000,000 elements of every kernel and SIMD target (VALIDATE_KERNELS_ARGS)
	mkdir -p docs/records
	$(BUILD)/properties/kernel_validation/kernel_validation $(VALIDATE_KERNELS_ARGS)

report: build ## Build and write the stability report (REPORT_ARGS)
	$(BUILD)/cli/attest report $(REPORT_ARGS)

bench: ## Build and run the benchmarks (BENCH_ARGS: arguments of Google Benchmark)
	$(call ensure,$(PACKAGES) libbenchmark-dev)
	cmake --preset $(PRESET) -DATTEST_BUILD_BENCH=ON
	cmake --build $(BUILD) --target attention_bench
	$(BUILD)/bench/attention_bench $(BENCH_ARGS)

# Packages of npm whose shared libraries are loaded: ONNX Runtime and ggml, both MIT.
PEER_PACKAGES := onnxruntime-node@1.30.0 @node-llama-cpp/linux-x64@3.21.1

peers: ## Install other libraries to audit and to compare with (optional; docs/peers.md)
	$(call ensure,libopenblas0 libdnnl2 python3-torch $(if $(shell command -v npm),,npm))
	mkdir -p peers
	npm install --prefix peers --no-save --ignore-scripts --no-audit --no-fund $(PEER_PACKAGES)

text: ## Install the parallel text of the experiment long-sentences (optional)
	$(call ensure,sword-text-web sword-text-sparv libsword-utils bible-kjv bible-kjv-text)

install: build ## Install under PREFIX (default /usr/local; DESTDIR is honoured)
	cmake --install $(BUILD) --prefix $(PREFIX)

asan: ## Build and test with the address and undefined-behaviour sanitizers
	$(call ensure,$(PACKAGES) libclang-rt-19-dev)
	$(MAKE) --no-print-directory test PRESET=asan-ubsan

compilers: ## Build with g++ and clang-16, warnings as errors
	$(call ensure,$(PACKAGES) clang-16)
	$(MAKE) --no-print-directory build PRESET=gcc
	$(MAKE) --no-print-directory build PRESET=clang-16

format: ## Format every tracked .h and .cc
	$(call ensure,clang-format-19)
	git ls-files '*.h' '*.cc' | xargs -r clang-format-19 -i

format-check: ## Fail when a tracked .h or .cc is not formatted
	$(call ensure,clang-format-19)
	git ls-files '*.h' '*.cc' | xargs -r clang-format-19 --dry-run --Werror

tidy: build ## Run clang-tidy over the rooms
	$(call ensure,clang-tidy-19)
	run-clang-tidy-19 -quiet -p $(BUILD) $(if $(JOBS),-j $(JOBS)) $(addprefix '^$(CURDIR)/,$(addsuffix /',$(ROOMS)))

clean: ## Remove build/ and out/ (not peers/)
	rm -rf build out
