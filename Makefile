# PushChat Relay. A fresh Debian machine with Swift needs two commands: make run, make test.
.DEFAULT_GOAL := build
.PHONY: run test test-quick stress sanitize fuzz build release check fmt bench install deb package-test build-tests packages test-packages clean

PREFIX ?= /usr/local
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# What the build and the tests need of the system: SQLite, and OpenSSL for the tests' independent clients.
PACKAGES := libsqlite3-dev libssl-dev openssl sqlite3 gcc make curl nghttp2-client python3 python3-venv

# And what only the tests need: browsers, and a screen for the one that shows notifications only there.
TEST_PACKAGES := chromium chromium-driver firefox-esr xvfb
# Clients of others, from PyPI.
TEST_CLIENTS := .build/test-clients
# And what only the measuring needs: a load generator, a server that is not ours, and HTTP/2 for a server that is.
BENCH_PACKAGES := nghttp2-client nghttp2-server libnghttp2-dev gcc libssl-dev python3-venv

# And what only the packaging needs.
DEB_PACKAGES := debhelper dpkg-dev lintian mmdebstrap python3

run: packages build ## install what is missing, build, start relay and sandbox
	.build/debug/pushchat dev

test: packages test-packages build-tests ## all tests
	Tests/run

test-quick: packages build-tests ## the tests of the parts: no process, no browser, no load
	Tests/run unit

stress: packages test-packages build-tests ## what loads the machine, at full size
	STRESS=full Tests/run stress

sanitize: packages ## the tests of the parts, with the thread sanitizer
	TSAN_OPTIONS="halt_on_error=0 exitcode=66 suppressions=$(CURDIR)/Tests/thread-sanitizer.txt" \
		swift test --sanitize=thread --no-parallel --scratch-path .build-thread --skip EndToEndTests

# SECONDS for each parser. PARSERS="form json": these only.
SECONDS ?= 60
fuzz: packages ## what reads strangers' bytes, with inputs that libFuzzer makes
	FUZZ_RUNTIME=$$(ls $$(dirname $$(readlink -f $$(command -v swift)))/../lib/clang/*/lib/*/libclang_rt.fuzzer_no_main-$$(uname -m).a) \
		swift build -c release --build-tests -Xswiftc -enable-testing --scratch-path .build-fuzz
	Tests/FuzzTests/run $(SECONDS) $(PARSERS)

build: ## debug build
	swift build --product pushchat

build-tests: ## debug build with the tests
	swift build --build-tests

release: ## optimised, self-contained but for libsqlite3 and the C library
	PUSHCHAT_COMMIT=$$(git describe --always --dirty --exclude "*" 2>/dev/null) \
		swift build -c release --product pushchat --static-swift-stdlib --scratch-path .build-release -Xlinker -s

check: ## what a review would find first: format, lint
	swift format lint --strict --recursive Sources Tests Package.swift

fmt: ## format in place
	swift format --in-place --recursive Sources Tests Package.swift

# PARTS="posts drain": these only. QUICK=1: short, one run. BASE=executable: another build against this one.
bench: release ## speed, measured in the release build against a limit of the same run
	@dpkg -s $(BENCH_PACKAGES) >/dev/null 2>&1 \
		|| { $(SUDO) apt-get update -q && $(SUDO) apt-get install -qy --no-install-recommends $(BENCH_PACKAGES); }
	@Tests/Benchmarks/run $(PARTS)

install: release ## put the executable into $(PREFIX)/bin
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 .build-release/release/pushchat $(DESTDIR)$(PREFIX)/bin/pushchat

PACKAGED := .build-release/packages
deb: release ## a Debian package and a tarball, in .build-release/packages
	@dpkg -s $(DEB_PACKAGES) >/dev/null 2>&1 \
		|| { $(SUDO) apt-get update -q && $(SUDO) apt-get install -qy --no-install-recommends $(DEB_PACKAGES); }
	rm -rf $(PACKAGED)
	packaging/package .build-release/release/pushchat .build-release/checkouts $(PACKAGED)
	lintian --fail-on error,warning $(PACKAGED)/*.deb

package-test: deb ## the package in a system of its own: installed, upgraded, removed, purged
	$(SUDO) packaging/test-package $(PACKAGED)/pushchat_*.deb Tests/ChatStoreTests/schema-7.sql

packages:
	@dpkg -s $(PACKAGES) >/dev/null 2>&1 \
		|| { $(SUDO) apt-get update -q && $(SUDO) apt-get install -qy --no-install-recommends $(PACKAGES); }

test-packages: packages
	@dpkg -s $(TEST_PACKAGES) >/dev/null 2>&1 \
		|| { $(SUDO) apt-get update -q && $(SUDO) apt-get install -qy --no-install-recommends $(TEST_PACKAGES); }
	@cmp -s Tests/Clients/requirements.txt $(TEST_CLIENTS)/requirements.txt \
		|| { python3 -m venv $(TEST_CLIENTS) \
			&& $(TEST_CLIENTS)/bin/pip install --quiet --disable-pip-version-check -r Tests/Clients/requirements.txt \
			&& cp Tests/Clients/requirements.txt $(TEST_CLIENTS)/; }

clean:
	rm -rf .build .build-release .build-thread .build-fuzz
