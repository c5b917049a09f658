# PushChat Relay. A fresh Debian machine with Swift needs two commands: make run, make test. `make help` lists the rest.
#
# Only `run`, `test` and `setup` install anything. All other targets check, and name the packages that are missing.
.DEFAULT_GOAL := build
# Targets run one after another. Swift's build uses all cores already.
.NOTPARALLEL:
.PHONY: run test setup build check fmt docc build-tests test-quick test-postgres stress powerloss spin sanitize fuzz simulate simulate-planted bench \
	release install deb image wheel apt-repository lintian package-test clean help install-run install-test install-setup unpacked \
	need-build need-unit need-test need-release need-bench need-spin need-deb need-image need-packages

PREFIX ?= /usr/local
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

# ----- Packages of Debian, by target

# SQLite for the build. The others are for the unit tests and the tour in the README.
NEEDS_build := libsqlite3-dev libssl-dev openssl sqlite3 gcc make curl nghttp2-client python3 python3-venv
NEEDS_run := $(NEEDS_build)
# PostgreSQL's client library, which the store loads.
NEEDS_unit := $(NEEDS_build) libpq5
# Browsers, a virtual screen for Firefox, which shows notifications only on a screen, and libraries of Qt for a desktop client.
NEEDS_test := $(NEEDS_unit) chromium chromium-driver firefox-esr xvfb libegl1 libgl1 libxkbcommon0
# `code-order` runs the relay under valgrind. `icu-data` needs binutils.
NEEDS_release := $(NEEDS_build) binutils valgrind
# PostgreSQL's client library, a load generator, a reference server, and HTTP/2 for the benchmark's gateway.
NEEDS_bench := $(NEEDS_release) libpq5 nghttp2-client nghttp2-server libnghttp2-dev
NEEDS_spin := spin gcc
NEEDS_deb := $(NEEDS_release) debhelper dpkg-dev iproute2 lintian mmdebstrap
NEEDS_image := $(NEEDS_release) mmdebstrap
# Tools that check images, an OCI runtime that runs them, and tools that sign.
NEEDS_packages := $(NEEDS_deb) $(NEEDS_image) gpg iproute2 nodejs oci-image-tool runc skopeo sqlite3 umoci
NEEDS_setup := $(sort $(NEEDS_run) $(NEEDS_test) $(NEEDS_release) $(NEEDS_bench) $(NEEDS_spin) $(NEEDS_packages))

# Servers for the tests. They are unpacked, because installed packages would start them.
PROMETHEUS := .build/test-prometheus
ALERTMANAGER := .build/test-alertmanager
POSTGRES := .build/test-postgres
PROXIES := .build/proxies
# Client libraries from PyPI, for the tests. The packages in the second list ask for a newer Python than Debian's.
CLIENTS := .build/test-clients
CLIENTS_LIST := Tests/Clients/requirements.txt
NEWER_CLIENTS := .build/test-newer-clients
NEWER_CLIENTS_LIST := Tests/Clients/newer-requirements.txt
# Programs from PyPI that check files which other programs read.
VALIDATORS := .build/validators
VALIDATORS_LIST := packaging/requirements.txt

# $(call missing,PACKAGES): a shell expression, the packages that are not installed. Empty on systems without dpkg.
missing = $$(command -v dpkg-query >/dev/null && for package in $(1); do \
	dpkg-query --show --showformat='$${db:Status-Status}\n' $$package 2>/dev/null | grep -qx installed || echo $$package; done)

# $(call install,PACKAGES): installs the packages that are missing.
define install
@missing="$(missing)"; [ -z "$$missing" ] \
	|| { $(SUDO) apt-get update -q && $(SUDO) apt-get install -qy --no-install-recommends $$missing; }
endef

# $(call require,PACKAGES,FILES): fails and names the packages and files that are missing.
define require
@missing="$(missing) $$(for file in $(2); do [ -e $$file ] || echo $$file; done)"; [ "$$missing" = " " ] \
	|| { echo "Missing:" $$missing; echo "Run make setup, which installs them."; exit 1; } >&2
endef

# $(call unpack,FOLDER,PACKAGES): unpacks the packages below FOLDER, with the dependencies that are not installed.
define unpack
@[ -e $(1)/complete ] || { mkdir -p $(1)/archives/partial \
	&& $(SUDO) apt-get update -q && $(SUDO) apt-get install -qy --no-install-recommends --download-only --reinstall \
		-o Dir::Cache::archives=$(CURDIR)/$(1)/archives $(2) \
	&& for package in $(1)/archives/*.deb; do dpkg-deb --extract $$package $(1) || exit 1; done \
	&& rm -f $(1)/archives/*.deb && touch $(1)/complete; }
endef

# $(call environment,FOLDER,LIST,FLAGS): makes a virtual environment with the packages in the list.
define environment
@cmp -s $(2) $(1)/requirements.txt || { python3 -m venv $(1) \
	&& $(1)/bin/pip install --quiet --disable-pip-version-check $(3) -r $(2) \
	&& cp $(2) $(1)/requirements.txt; }
endef

# The only recipe that installs packages.
install-run install-test install-setup: install-%:
	$(call install,$(NEEDS_$*))

need-build need-release need-bench need-spin need-deb need-image: need-%:
	$(call require,$(NEEDS_$*))

need-unit:
	$(call require,$(NEEDS_unit),$(POSTGRES)/complete)

need-test:
	$(call require,$(NEEDS_test),$(PROMETHEUS)/complete $(ALERTMANAGER)/complete $(POSTGRES)/complete $(PROXIES)/complete \
		$(CLIENTS)/requirements.txt $(NEWER_CLIENTS)/requirements.txt)

need-packages: need-test
	$(call require,$(NEEDS_packages),$(VALIDATORS)/requirements.txt)

unpacked:
	$(call unpack,$(PROMETHEUS),prometheus)
	$(call unpack,$(ALERTMANAGER),prometheus-alertmanager)
	$(call unpack,$(POSTGRES),postgresql-15 postgresql-client-15 pgbouncer)
	$(call unpack,$(PROXIES),caddy haproxy nginx)
	$(call environment,$(CLIENTS),$(CLIENTS_LIST))
	$(call environment,$(NEWER_CLIENTS),$(NEWER_CLIENTS_LIST),--ignore-requires-python)
	$(call environment,$(VALIDATORS),$(VALIDATORS_LIST))

##@ Start here

run: install-run build ## install missing packages, build, start the relay and the sandbox
	.build/debug/pushchat dev

test: install-test unpacked build-tests simulate ## install missing packages, build, run all tests over SQLite
	Tests/run

setup: install-setup unpacked ## install the packages that all other targets need

help: ## print this list
	@awk -F ':.*## ' '/^##@/ { print (n++ ? "\n" : "") substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Build

build: ## build the relay for debugging (the default: plain `make`)
	swift build --product pushchat

build-tests: ## build the relay and the tests for debugging
	swift build --build-tests

check: ## check formats and prose, in seconds
	swift format lint --strict --recursive Sources Tests Package.swift
	.ci/openapi Sources/ChatHTTP/Admin/openapi.json
	.ci/prose

fmt: ## format the sources in place
	swift format --in-place --recursive Sources Tests Package.swift
	.ci/openapi --write Sources/ChatHTTP/Admin/openapi.json

docc: build-tests ## make the DocC archives of the libraries for apps in .build/docc
	.ci/docc .build/debug/Modules .build/docc

clean: ## remove everything that was built or unpacked
	rm -rf .build .build-release .build-thread .build-fuzz .build-planted

##@ More tests

test-quick: need-unit build-tests ## unit tests: no browsers, no load
	Tests/run unit

test-postgres: need-test build-tests ## end-to-end and stress tests over PostgreSQL
	Tests/run postgres postgres-stress

stress: need-test build-tests ## stress tests at full size
	STRESS=full Tests/run stress

# STATES is the number of power cuts, and SEED chooses them.
STATES ?= 4000
powerloss: need-build build ## cut the power of a relay's disk at many moments (STATES=4000, SEED=1)
	gcc -O2 -shared -fPIC -o .build/powerloss.so Tests/PowerLoss/record.c
	Tests/PowerLoss/run .build/debug/pushchat .build/powerloss.so $(STATES) $(SEED)

spin: need-spin ## check a model of the leases of several relays, in all orders of steps
	Tests/Spin/run

sanitize: need-unit ## unit tests with the thread sanitizer
	TSAN_OPTIONS="halt_on_error=0 exitcode=66 suppressions=$(CURDIR)/Tests/thread-sanitizer.txt" \
		swift test --sanitize=thread --no-parallel --scratch-path .build-thread --skip EndToEndTests

# SECONDS is per parser. PARSERS="form json" selects parsers.
SECONDS ?= 60
fuzz: need-build ## fuzz the parsers of untrusted input with libFuzzer (SECONDS=60, PARSERS="form json")
	FUZZ_RUNTIME=$$(ls $$(dirname $$(readlink -f $$(command -v swift)))/../lib/clang/*/lib/*/libclang_rt.fuzzer_no_main-$$(uname -m).a) \
		swift build -c release --build-tests -Xswiftc -enable-testing --scratch-path .build-fuzz
	Tests/FuzzTests/run $(SECONDS) $(PARSERS)

# The variables are passed on: see docs/architecture.md.
simulate: need-build ## run the relay in a simulated world (SEEDS=1-2000, SEED=5 LOG=1, HOURS=8)
	SIMULATE=1 swift build --product simulation
	SEEDS="$(SEEDS)" SEED="$(SEED)" ONLY="$(ONLY)" LOG="$(LOG)" HOURS="$(HOURS)" TWICE="$(TWICE)" .build/debug/simulation

simulate-planted: need-build ## show in how many simulated seeds each planted fault is found (FAULTS=1-3, SEEDS=1-60)
	SIMULATE=planted swift build --product simulation --scratch-path .build-planted
	SEEDS="$(SEEDS)" FAULTS="$(FAULTS)" .build-planted/debug/simulation

# PARTS="posts drain" selects parts. QUICK=1 does one short run. BASE=executable compares this build with another one.
bench: need-bench release ## measure the release build (PARTS="posts drain", QUICK=1, BASE=executable)
	@Tests/Benchmarks/run $(PARTS)

##@ Release

# Short relocations save 4 MB and need glibc 2.36 or later. Separate sections let the linker drop functions without callers, and
# keep one of several functions with the same machine code.
RELEASE = swift build -c release --product pushchat --static-swift-stdlib --scratch-path .build-release \
	-Xswiftc -Xfrontend -Xswiftc -function-sections -Xcc -ffunction-sections \
	-Xlinker --no-export-dynamic -Xswiftc -use-ld=lld -Xlinker -z -Xlinker pack-relative-relocs \
	-Xlinker --icf=all
# docs/decisions.md explains the trimmed ICU data and the order of functions.
RELEASED := PUSHCHAT_ICU=$$(packaging/icu-data .build-release/icu.o) \
	PUSHCHAT_COMMIT=$$(git describe --always --dirty --exclude "*" 2>/dev/null)
ORDER := .build-release/order.txt

release: need-release $(ORDER) ## build the optimised executable, which needs only SQLite, zlib, and the libraries of C and C++
	$(RELEASED) PUSHCHAT_ORDER=$(CURDIR)/$(ORDER) $(RELEASE)
	@# Foundation rejects every URL if ICU data that it needs is missing.
	PUSHCHAT_HTTP_PUBLIC_URL=https://bücher.example .build-release/release/pushchat config >/dev/null

$(ORDER): Package.swift Makefile packaging/code-order packaging/icu-data schema.sql $(shell find Sources -type f) | need-release
	$(RELEASED) $(RELEASE)
	packaging/code-order .build-release/release/pushchat $@

install: release ## install the executable into /usr/local/bin (PREFIX=/usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 .build-release/release/pushchat $(DESTDIR)$(PREFIX)/bin/pushchat

PACKAGED := .build-release/packages
deb: need-deb release ## build a Debian package and a tarball in .build-release/packages (SIGNING_KEY=file)
	@test $$(stat -c %s .build-release/release/pushchat) -lt 60000000 \
		|| { echo "the executable has grown to 60 MB or more: see docs/size.md"; exit 1; }
	rm -rf $(PACKAGED)
	packaging/package .build-release/release/pushchat .build-release/checkouts $(PACKAGED)
	lintian --fail-on error,warning $(PACKAGED)/*.deb

# Packs a tiny program instead of the relay. Everything else in the package is real, and no release build is needed.
LINTED := .build/lintian
lintian: need-deb build-tests ## run Debian's package checker, without a release build
	rm -rf $(LINTED) && mkdir -p $(LINTED)
	echo 'int main(void) { return 0; }' | gcc -x c -O2 -s -o $(LINTED)/stand-in -
	STAND_IN=$(CURDIR)/$(LINTED)/stand-in packaging/package .build/debug/pushchat .build/checkouts $(LINTED)/packages
	lintian --fail-on error,warning $(LINTED)/packages/*.deb

IMAGES := .build-release/images
image: need-image release ## build container images of the relay and of the sandbox in .build-release/images
	packaging/image .build-release/release/pushchat .build-release/checkouts $(IMAGES)

wheel: release ## build a Python wheel of the sandbox, with a fixture for pytest, in .build-release/packages
	packaging/wheel .build-release/release/pushchat .build-release/checkouts $(PACKAGED)

# SIGNING_KEY is a file with a secret key, as gpg exports it.
REPOSITORY := .build-release/repository
apt-repository: deb ## add the Debian package to an apt repository in .build-release/repository (SIGNING_KEY=file)
	packaging/apt-repository $(REPOSITORY) $(PACKAGED)/pushchat_*.deb

EARLIER := Tests/TestStores/Schemas/schema-3.sql
package-test: need-packages deb image ## install, run, upgrade and remove each artifact in a root of its own
	packaging/test-examples $(VALIDATORS)/bin $(IMAGES)
	@# The same executable gives the same images.
	packaging/image .build-release/release/pushchat .build-release/checkouts $(IMAGES)-again
	cmp $(IMAGES)/SHA256SUMS $(IMAGES)-again/SHA256SUMS
	cmp $(IMAGES)/pushchat-image/index.json $(IMAGES)-again/pushchat-image/index.json
	rm -rf $(IMAGES)-again
	$(SUDO) packaging/test-image $(IMAGES) $(EARLIER)
	$(SUDO) packaging/test-package $(PACKAGED)/pushchat_*.deb $(EARLIER)
	$(SUDO) packaging/test-repository $(PACKAGED)
	$(SUDO) packaging/test-https $(PACKAGED)/pushchat_*.deb
