# PushChat Relay. A fresh Debian machine with Swift needs two commands: make run, make test.
.DEFAULT_GOAL := build
.PHONY: run test test-quick test-postgres stress sanitize fuzz build release check fmt bench install deb lintian package-test build-tests packages libpq test-packages deb-packages clean

PREFIX ?= /usr/local
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# What the build and the tests need of the system: SQLite, and OpenSSL for the tests' independent clients.
PACKAGES := libsqlite3-dev libssl-dev openssl sqlite3 gcc make curl nghttp2-client python3 python3-venv

# The store over PostgreSQL is built where libpq's header is there, as after `make test` or `make release`: all builds of a tree
# with the same traits, because another choice builds everything anew. TRAITS= leaves it out.
LIBPQ_PACKAGES := libpq-dev
TRAITS = $(if $(shell ls /usr/include/postgresql/libpq-fe.h 2>/dev/null),--traits PostgreSQL)

# And what only the tests need: browsers, and a screen for the one that shows notifications only there.
TEST_PACKAGES := chromium chromium-driver firefox-esr xvfb $(LIBPQ_PACKAGES)
# Prometheus, unpacked and not installed: its package would start a server.
PROMETHEUS := .build/test-prometheus
# The same of PostgreSQL and its pooler.
POSTGRES := .build/test-postgres
POSTGRES_PACKAGES := postgresql-15 postgresql-client-15 pgbouncer
# Clients of others, from PyPI.
TEST_CLIENTS := .build/test-clients
# Debian's proxies, unpacked and not installed: installed they would run.
TEST_PROXIES := caddy haproxy nginx
PROXIES := .build/proxies
# And what only the measuring needs: a load generator, a server that is not ours, and HTTP/2 for a server that is.
BENCH_PACKAGES := nghttp2-client nghttp2-server libnghttp2-dev gcc libssl-dev python3-venv

# And what only the release needs: it finds out which functions a relay uses.
RELEASE_PACKAGES := binutils valgrind

# And what only the packaging needs.
DEB_PACKAGES := debhelper dpkg-dev iproute2 lintian mmdebstrap python3

run: packages build ## install what is missing, build, start relay and sandbox
	.build/debug/pushchat dev

test: packages test-packages build-tests ## all tests; what goes through the whole relay, over SQLite
	Tests/run

test-quick: packages build-tests ## the tests of the parts: no process, no browser, no load, no PostgreSQL
	Tests/run quick

test-postgres: packages test-packages build-tests ## what goes through the whole relay, over PostgreSQL
	Tests/run postgres postgres-stress

stress: packages test-packages build-tests ## what loads the machine, at full size
	STRESS=full Tests/run stress

sanitize: packages ## the tests of the parts, with the thread sanitizer
	TSAN_OPTIONS="halt_on_error=0 exitcode=66 suppressions=$(CURDIR)/Tests/thread-sanitizer.txt" \
		swift test --sanitize=thread $(TRAITS) --no-parallel --scratch-path .build-thread --skip EndToEndTests

# SECONDS for each parser. PARSERS="form json": these only.
SECONDS ?= 60
fuzz: packages ## what reads strangers' bytes, with inputs that libFuzzer makes
	FUZZ_RUNTIME=$$(ls $$(dirname $$(readlink -f $$(command -v swift)))/../lib/clang/*/lib/*/libclang_rt.fuzzer_no_main-$$(uname -m).a) \
		swift build -c release --build-tests -Xswiftc -enable-testing --scratch-path .build-fuzz
	Tests/FuzzTests/run $(SECONDS) $(PARSERS)

build: ## debug build
	swift build --product pushchat $(TRAITS)

build-tests: ## debug build with the tests
	swift build --build-tests $(TRAITS)

# With short relocations (4 MB; the C library must be glibc 2.36 or later), and functions apart, so that what nobody calls goes.
RELEASE = swift build -c release --product pushchat $(TRAITS) --static-swift-stdlib --scratch-path .build-release \
	-Xswiftc -Xfrontend -Xswiftc -function-sections -Xcc -ffunction-sections \
	-Xlinker --no-export-dynamic -Xswiftc -use-ld=lld -Xlinker -z -Xlinker pack-relative-relocs
# Of ICU's data as much as a server needs. This and the order of functions: docs/size.md.
RELEASED := PUSHCHAT_ICU=$$(packaging/icu-data .build-release/icu.o) \
	PUSHCHAT_COMMIT=$$(git describe --always --dirty --exclude "*" 2>/dev/null)
ORDER := .build-release/order.txt

release: libpq $(ORDER) ## optimised, self-contained but for libsqlite3 and the C library
	$(RELEASED) PUSHCHAT_ORDER=$(CURDIR)/$(ORDER) $(RELEASE)
	@# Foundation refuses every URL if what it needs of ICU is missing.
	PUSHCHAT_HTTP_PUBLIC_URL=https://bücher.example .build-release/release/pushchat config >/dev/null

$(ORDER): Package.swift Makefile packaging/code-order packaging/icu-data schema.sql $(shell find Sources -type f) | libpq
	@dpkg -s $(RELEASE_PACKAGES) >/dev/null 2>&1 \
		|| { $(SUDO) apt-get update -q && $(SUDO) apt-get install -qy --no-install-recommends $(RELEASE_PACKAGES); }
	$(RELEASED) $(RELEASE)
	packaging/code-order .build-release/release/pushchat $@

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
deb: release deb-packages ## a Debian package and a tarball, in .build-release/packages
	@test $$(stat -c %s .build-release/release/pushchat) -lt 60000000 \
		|| { echo "the executable has grown to 60 MB or more: see docs/size.md"; exit 1; }
	rm -rf $(PACKAGED)
	packaging/package .build-release/release/pushchat .build-release/checkouts $(PACKAGED)
	lintian --fail-on error,warning $(PACKAGED)/*.deb

# A small program stands in for the executable: everything else is the package's, without the minutes of a release build.
LINTED := .build/lintian
lintian: build-tests deb-packages ## what Debian's checker says of the package
	rm -rf $(LINTED) && mkdir -p $(LINTED)
	echo 'int main(void) { return 0; }' | gcc -x c -O2 -s -o $(LINTED)/stand-in -
	STAND_IN=$(CURDIR)/$(LINTED)/stand-in packaging/package .build/debug/pushchat .build/checkouts $(LINTED)/packages
	lintian --fail-on error,warning $(LINTED)/packages/*.deb

package-test: deb test-packages ## the package in a system of its own: installed, upgraded, removed, purged; behind Caddy
	$(SUDO) packaging/test-package $(PACKAGED)/pushchat_*.deb Tests/ChatStoreTests/schema-7.sql
	$(SUDO) packaging/test-https $(PACKAGED)/pushchat_*.deb

packages:
	@dpkg -s $(PACKAGES) >/dev/null 2>&1 \
		|| { $(SUDO) apt-get update -q && $(SUDO) apt-get install -qy --no-install-recommends $(PACKAGES); }

libpq:
	@dpkg -s $(LIBPQ_PACKAGES) >/dev/null 2>&1 \
		|| { $(SUDO) apt-get update -q && $(SUDO) apt-get install -qy --no-install-recommends $(LIBPQ_PACKAGES); }

deb-packages:
	@dpkg -s $(DEB_PACKAGES) >/dev/null 2>&1 \
		|| { $(SUDO) apt-get update -q && $(SUDO) apt-get install -qy --no-install-recommends $(DEB_PACKAGES); }

test-packages: packages
	@dpkg -s $(TEST_PACKAGES) >/dev/null 2>&1 \
		|| { $(SUDO) apt-get update -q && $(SUDO) apt-get install -qy --no-install-recommends $(TEST_PACKAGES); }
	@test -x $(PROMETHEUS)/usr/bin/promtool \
		|| { $(SUDO) apt-get update -q && mkdir -p $(PROMETHEUS) && cd $(PROMETHEUS) && apt-get download -q prometheus \
			&& dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb; }
	@test -e $(POSTGRES)/complete || { mkdir -p $(POSTGRES)/archives/partial \
		&& $(SUDO) apt-get update -q && $(SUDO) apt-get install -qy --no-install-recommends --download-only --reinstall \
			-o Dir::Cache::archives=$(CURDIR)/$(POSTGRES)/archives $(POSTGRES_PACKAGES) \
		&& for package in $(POSTGRES)/archives/*.deb; do dpkg-deb --extract $$package $(POSTGRES) || exit 1; done \
		&& touch $(POSTGRES)/complete; }
	@cmp -s Tests/Clients/requirements.txt $(TEST_CLIENTS)/requirements.txt \
		|| { python3 -m venv $(TEST_CLIENTS) \
			&& $(TEST_CLIENTS)/bin/pip install --quiet --disable-pip-version-check -r Tests/Clients/requirements.txt \
			&& cp Tests/Clients/requirements.txt $(TEST_CLIENTS)/; }
	@test -e $(PROXIES)/complete || { mkdir -p $(PROXIES)/archives/partial \
		&& $(SUDO) apt-get update -q && $(SUDO) apt-get install -qy --no-install-recommends --download-only --reinstall \
			-o Dir::Cache::archives=$(CURDIR)/$(PROXIES)/archives $(TEST_PROXIES) \
		&& for package in $(PROXIES)/archives/*.deb; do dpkg-deb --extract $$package $(PROXIES) || exit 1; done \
		&& touch $(PROXIES)/complete; }

clean:
	rm -rf .build .build-release .build-thread .build-fuzz
