# narwhal: every target works with Go and make alone, unless its line says otherwise.
GO          ?= go
export CGO_ENABLED := 0
VERSION     ?= 0.1.0
LDFLAGS     := -s -w -X main.version=$(VERSION)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.7.0
FUZZTIME    ?= 20s

.PHONY: help build demo test race fuzz bench bench-once drills fabric scale sim soak clients real-engines real-gates interop lint docs verify release clean
CACHE       ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/narwhal

help: ## Lists the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' Makefile

build: ## Builds bin/narwhal, static and stripped
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/narwhal ./cmd/narwhal

demo: build ## Builds, then runs the whole pipeline on a sandbox
	./bin/narwhal demo

test: ## Runs all tests; the deeper ones need sshd, iproute2 and root, and say so
	$(GO) vet ./...
	$(GO) test -timeout 60m ./...

race: ## Runs all tests with the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -timeout 60m ./...

fuzz: ## Fuzzes every parser of foreign bytes for FUZZTIME each
	@for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p || exit 1; \
	  done; done

bench: ## Runs the benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

bench-once: ## Runs each benchmark once: that it works, not how fast it is
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...

drills: ## Provokes every fault of internal/drills and writes docs/drills.md; ten minutes, root for some of them
	NARWHAL_DRILLS=all $(GO) test -count=1 -timeout 40m -parallel 3 -run 'TestTable|TestDrills' -v ./internal/drills

fabric: ## Measures eight shaped hosts in namespaces: NARWHAL_FABRIC_RUNS (50) healthy runs, a fifth of each fault; an hour, root
	NARWHAL_FABRIC_RUNS=$${NARWHAL_FABRIC_RUNS:-50} NARWHAL_FABRIC_IMPAIR_RUNS=$${NARWHAL_FABRIC_IMPAIR_RUNS:-10} NARWHAL_REQUIRE_NETNS=1 \
	  $(GO) test -count=1 -timeout 120m -run '^(TestDrill(Healthy|Faults)|TestImpairedIsNamed)$$' -v ./gates/fabric

scale: ## Takes NARWHAL_SCALE_HOSTS (64) sandbox hosts of NARWHAL_SCALE_ENGINES (8) engines through all gates; half an hour, 12 GB
	NARWHAL_SCALE_HOSTS=$${NARWHAL_SCALE_HOSTS:-64} NARWHAL_SCALE_ENGINES=$${NARWHAL_SCALE_ENGINES:-8} \
	  $(GO) test -count=1 -tags scale -timeout 120m -run '^TestScale$$' -v ./cmd/narwhal

sim: ## Simulates every policy and writes docs/evaluation.md with its pictures; four minutes
	$(GO) run ./internal/evaluation -root . -output docs

soak: ## Long load on a fleet with faults: NARWHAL_SOAK_FOR (10m), NARWHAL_SOAK_STREAMS (500), NARWHAL_SOAK_KILLS_FOR (2m), NARWHAL_SOAK_KILLS_STREAMS (200)
	$(GO) test -tags soak -count=1 -v -timeout 3h -run '^TestSoak(Streams|Kills)$$' ./runtime/router

clients: ## Runs the openai client, aiperf and curl against a router; needs Python 3 and PyPI
	test -x $(CACHE)/clients/bin/aiperf || { python3 -m venv $(CACHE)/clients && $(CACHE)/clients/bin/pip install -q -r internal/clients/requirements.txt; }
	NARWHAL_CLIENTS=$(CACHE)/clients $(GO) test -count=1 -tags clients -timeout 20m -run 'TestOpenAIClient|TestCurl|TestAIPerf' -v ./cmd/narwhal

real-engines: ## Runs the conformance suite and a router on real vLLM (CPU, NIXL); needs Python 3.11, PyPI and 8 GB
	internal/realengines/install.sh $(CACHE)/real-engines
	test -e $(CACHE)/real-model/config.json || $(CACHE)/real-engines/bin/python internal/realengines/model.py $(CACHE)/real-model
	NARWHAL_REAL_ENGINES=$(CACHE)/real-engines NARWHAL_REAL_MODEL=$(CACHE)/real-model $(GO) test -count=1 -tags realengines -p 1 -timeout 60m -run Real -v ./runtime/engine/conformance ./runtime/router

real-gates: ## Runs all gates on two OpenSSH hosts in namespaces with real vLLM on them; as real-engines, and root; fifteen minutes
	internal/realengines/install.sh $(CACHE)/real-engines
	test -e $(CACHE)/real-model/config.json || $(CACHE)/real-engines/bin/python internal/realengines/model.py $(CACHE)/real-model
	NARWHAL_REAL_ENGINES=$(CACHE)/real-engines NARWHAL_REAL_MODEL=$(CACHE)/real-model NARWHAL_REQUIRE_NETNS=1 $(GO) test -count=1 -tags realengines -timeout 60m -run '^TestRealGates$$' -v ./cmd/narwhal

interop: ## Bundles with sigstore-go and cosign, both ways; fetches modules and builds cosign once (minutes)
	test -x $(CACHE)/cosign || GOBIN=$(CACHE) $(GO) install github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3
	cd attest/interop && COSIGN=$(CACHE)/cosign $(GO) test -count=1 -timeout 20m ./...
	cd attest/kms && $(GO) vet ./...

lint: ## gofmt, vet, staticcheck (fetches staticcheck once)
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

docs: build ## Writes the generated pages of docs/
	./bin/narwhal docs --output docs

verify: build ## Checks that formatting and generated pages are up to date
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	$(GO) mod verify
	./bin/narwhal docs --output docs --check

release: ## Builds stripped binaries for every supported system into dist/
	@for t in linux/amd64 linux/arm64 darwin/arm64; do \
	  os=$${t%/*} arch=$${t#*/}; echo "dist/narwhal-$$os-$$arch"; \
	  GOOS=$$os GOARCH=$$arch $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o dist/narwhal-$$os-$$arch ./cmd/narwhal || exit 1; \
	done
	cd dist && sha256sum narwhal-* > SHA256SUMS

clean: ## Removes what build and release wrote
	rm -rf bin dist
