# Run `make` to list the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash

# Reinstall the packages when the lock file changes. No install scripts: npm 12 runs none unless package.json allows
# them, and the service needs none (src/operator/embeddedPostgres/programs.ts). The build needs what NODE_ENV=production or
# npm's settings may leave out.
INSTALLED := node_modules/.installed
$(INSTALLED): package-lock.json package.json
	npm ci --include=dev --include=optional --ignore-scripts
	@touch $@

# Rebuild when a source changes.
BUILT := dist/.built
$(BUILT): $(INSTALLED) tsconfig.json tsconfig.build.json openapi/openapi.yaml scripts/openapi30.js scripts/postmanCollection.ts \
  demo/numbers.ndjson $(shell find src generated/types -name '*.ts')
	rm -rf dist
	npm run -s build
	@chmod +x dist/src/main.js
	@touch $@

# OpenAPI Generator is a Java program. Without Java, it only prints minified source code, so check for Java first.
NEED_JAVA = @java -version >/dev/null 2>&1 || { echo 'Java 11 or later is required; install it (Debian: apt install default-jre-headless; macOS: brew install openjdk)' >&2; exit 1; }

.PHONY: help start dev build test test-soak check format generate clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-22s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

start: $(BUILT) ## serve demo data and documentation on http://127.0.0.1:3000/docs
	node dist/src/main.js serve --demo

dev: $(INSTALLED) demo/numbers.ndjson ## like make start, but run the sources and restart when a file changes
	DRAIN_SECONDS=0 npx tsx watch --clear-screen=false --include 'openapi/*.yaml' --include 'drizzle/*.sql' \
	  --include 'browser/*' --include 'generated/types/**/*.ts' src/main.ts serve --demo

demo/numbers.ndjson: $(INSTALLED) scripts/demoNumbers.ts scripts/dice.ts
	npx tsx scripts/demoNumbers.ts

# What the service reads. It may run as another user, who can't read what a umask such as 077 made.
READABLE := node_modules dist demo openapi drizzle browser docs clients deploy package.json $(wildcard packages)
build: $(BUILT) branded-phone-numbers ## build the command ./branded-phone-numbers, which every user may read and run
	@chmod -R go+rX $(READABLE) && chmod go+rx .

branded-phone-numbers:
	ln -sf dist/src/main.js $@

test: $(BUILT) ## run the tests of every feature (three minutes on two cores)
	npm run -s test

SOAK := --project soak --project 'timing soak'
test-soak: $(BUILT) ## run the long tests: floods, faults, kills, stops and random cases
	npx vitest run $(SOAK)

check: $(BUILT) .cache/clients/checks.made ## check format, lint, types, unused code, generated files, docs and the contract
	npm run -s check:format
	npm run -s check:types
	npm run -s check:unused
	npm run -s check:contract
	npm run -s check:breaking
	npm run -s check:migrations
	npm run -s docs:table -- --check
	scripts/check-generated

format: $(INSTALLED) ## format the code and apply automatic lint fixes
	npm run -s format

generate: $(INSTALLED) ## regenerate generated/types and the README's table from openapi/openapi.yaml (requires Java 11 or later)
	$(NEED_JAVA)
	npm run -s generate
	npm run -s docs:table

clean: ## delete installed packages, build output and caches; keep data
	rm -rf node_modules dist demo packages .cache branded-phone-numbers

include Makefile.maintainers
