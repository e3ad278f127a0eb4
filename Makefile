# Everything starts here. `make` lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := node_modules/.bin

# Installed once for each state of the lock file.
INSTALLED := node_modules/.installed
$(INSTALLED): package-lock.json package.json
	npm ci
	@touch $@

# Built once for each state of the sources.
BUILT := dist/.built
$(BUILT): $(INSTALLED) tsconfig.json tsconfig.build.json $(shell find src generated/types -name '*.ts')
	rm -rf dist
	$(BIN)/tsc -p tsconfig.build.json
	@chmod +x dist/src/main.js
	@touch $@

.PHONY: help start build test check format generate clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

start: $(BUILT) ## serve with demo data and Swagger UI, on http://127.0.0.1:3000/docs
	node dist/src/main.js serve --demo

build: $(BUILT) ## make the command: npx branded-phone-numbers …

test: $(BUILT) ## run all tests that need no system package
	$(BIN)/vitest run

check: $(INSTALLED) ## format, lint, types, unused code, and that generated files and docs agree with the contract
	$(BIN)/biome ci .
	$(BIN)/tsc -p .
	$(BIN)/knip
	$(BIN)/drizzle-kit check
	scripts/check-generated

format: $(INSTALLED) ## format and mend what can be mended by itself
	$(BIN)/biome check --write .

generate: $(INSTALLED) ## remake generated/types from openapi/openapi.yaml (needs Java 11 or later)
	$(BIN)/openapi-generator-cli generate -c generated/types.config.yaml

clean: ## remove what was installed and built, but no data
	rm -rf node_modules dist .cache
