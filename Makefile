# The front door. Every target says what it does; none asks questions. `make help` lists them.
BUILD   ?= build
MODEL   ?= smollm2
PROMPT  ?= Why is the sky blue? Answer in two sentences.
PREFIX  ?= /usr/local
SECONDS ?= 60
TARGET  ?=
LIMIT   ?= 0
KIND    ?= medusa
BOOT    := tools/bootstrap
export PROMPT
# Tells small stories; without the shared test data the model that comes with the program.
STORIES := $(or $(AVOCET_TEST_DATA),../shared/data)/models/stories260K/stories260K.bin
RL_MODEL ?= $(or $(wildcard $(STORIES)),demo)

.DEFAULT_GOAL := build
.PHONY: run demo test build bench peers gate gate-record evals fuzz asan tsan test-arm test-cuda test-ray exactness format lint tidy graph bundle deb wheel check-packages install uninstall clean help train-style train-dpo train-rl train-demo train-heads

run: ## install what is missing, build, fetch the default model, answer a prompt
	@$(BOOT) run
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@cmake --build $(BUILD) --target avocet
	@model="$(MODEL)"; \
	test -e "$$model" || ./$(BUILD)/avocet pull "$$model" || { model=demo; \
	    echo "make run: $(MODEL) is not here and cannot be downloaded; the demo model answers"; }; \
	printf '> %s\n' "$$PROMPT"; \
	./$(BUILD)/avocet run "$$model" "$$PROMPT"

demo: ## train the demo model from its text and compare it with models/demo.avo (docs/demo.md)
	@$(BOOT) run
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@cmake --build $(BUILD) --target avocet
	@tools/demo/make $(BUILD)/avocet

test: ## install what is missing, build, run the whole suite (also ASan+UBSan, TSan, fuzz, ARM)
	@$(BOOT) test
	@$(BOOT) arm || true # without the compiler that suite says that it is skipped
	@tools/check normal asan tsan fuzz arm

build: ## the library, the command and the tests, in build/
	@$(BOOT) run
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@cmake --build $(BUILD)

asan: ## the suite under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(BOOT) test
	@tools/check asan

tsan: ## the tests with threads under ThreadSanitizer
	@$(BOOT) test
	@tools/check tsan

test-arm: ## cross-compile for 64-bit ARM and run the tests in C and some golden answers with qemu
	@$(BOOT) run arm
	@tools/check arm-all

test-cuda: build ## the tests of the CUDA device on this machine's card; says so where there is none
	@tools/test_cuda $(BUILD)

test-ray: build ## replicas on a real Ray (downloads it into build/ray once), KV events with pyzmq, manifests
	@tools/test_ray $(BUILD)

fuzz: ## every fuzz entry for SECONDS=60 each, or TARGET=name alone; the corpus stays in build-fuzz/
	@$(BOOT) test
	@tools/fuzz --seconds $(SECONDS) $(TARGET)

train-style: ## examples: teach the default model to talk like a pirate (a few minutes), and ask it
	@$(BOOT) run
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@cmake --build $(BUILD) --target avocet
	@test -e "$(MODEL)" || ./$(BUILD)/avocet pull "$(MODEL)"
	@mkdir -p $(BUILD)/train
	./$(BUILD)/avocet train sft "$(MODEL)" --config configs/train/style.json -o $(BUILD)/train/style --resume
	./$(BUILD)/avocet run "$(MODEL)" --adapter pirate=$(BUILD)/train/style --temperature 0 "What is the capital of Italy?"

train-dpo: ## examples: teach short answers by pairs (a few minutes); their length before and after
	@$(BOOT) run
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@cmake --build $(BUILD) --target avocet
	@test -e "$(MODEL)" || ./$(BUILD)/avocet pull "$(MODEL)"
	@mkdir -p $(BUILD)/train
	./$(BUILD)/avocet train dpo "$(MODEL)" --config configs/train/short.json -o $(BUILD)/train/short --resume
	@examples/train/answer_lengths $(BUILD)/avocet "$(MODEL)" $(BUILD)/train/short examples/train/questions.jsonl

train-rl: ## examples: reward stories with a dog in them, with three seeds (RL_MODEL=model.bin)
	@$(BOOT) run
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@cmake --build $(BUILD) --target avocet
	@mkdir -p $(BUILD)/train/dogs
	@examples/train/three_seeds $(BUILD)/avocet "$(RL_MODEL)" configs/train/dogs.json $(BUILD)/train/dogs

train-demo: ## examples: train a small model from scratch on the text of the demo model, and ask it
	@$(BOOT) run
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@cmake --build $(BUILD) --target avocet
	@mkdir -p $(BUILD)/train/demo-text
	@tools/demo/text --samples 4000 >$(BUILD)/train/demo-text/train.jsonl
	./$(BUILD)/avocet train pretrain configs/train/demo.json --data $(BUILD)/train/demo-text -o $(BUILD)/train/demo --resume --context 256 --batch 16 --steps 300 --lr 2e-3
	./$(BUILD)/avocet run $(BUILD)/train/demo --temperature 0 "What is 2 + 2?"

train-heads: ## examples: train draft heads (KIND=medusa, eagle, layers) for the demo model, and count accepted drafts
	@$(BOOT) run
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@cmake --build $(BUILD) --target avocet
	@mkdir -p $(BUILD)/train/heads-text
	@tools/demo/text --samples 1500 --seed 7 >$(BUILD)/train/heads-text/train.jsonl
	@tools/demo/text --samples 60 --valid >$(BUILD)/train/heads-text/valid.jsonl
	./$(BUILD)/avocet train heads demo --config configs/train/heads.json --data $(BUILD)/train/heads-text -o $(BUILD)/train/$(KIND) --kind $(KIND) --resume
	./$(BUILD)/avocet speculate demo --draft-heads $(BUILD)/train/$(KIND)/heads.safetensors --source $(KIND) --controller fixed --k 0,3 --prompts $(BUILD)/train/heads-text/valid.jsonl --limit 24 -n 80 -i 1

exactness: ## recompute what the oracles computed and print the table of differences
	@$(BOOT) run
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@cmake --build $(BUILD)
	@tools/exactness

bench: ## a small honest measurement of this machine
	@$(BOOT) run
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@cmake --build $(BUILD) --target avocet
	@bench/run $(BUILD)/avocet "$(MODEL)"

peers: ## Avocet and llama.cpp in turn on this machine (builds llama.cpp first: ten minutes, once)
	@$(BOOT) bench
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@cmake --build $(BUILD) --target avocet
	@bench/peers --setup
	@bench/peers --avocet $(BUILD)/avocet

gate: ## has anything become slower? shares of the machine's limit against bench/gate.csv
	@$(BOOT) run
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@cmake --build $(BUILD) --target avocet
	@bench/gate --avocet $(BUILD)/avocet

evals: ## scores of MODEL's variants (f16, q8, 4.5 bits, KV types, adapter) against f16 and configs/evals.csv; LIMIT=N
	@$(BOOT) run
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@cmake --build $(BUILD) --target avocet
	@tools/evals --avocet $(BUILD)/avocet --model "$(MODEL)" --limit $(LIMIT)

gate-record: ## store the shares as they are now, and add them to bench/history.csv with its picture
	@$(BOOT) bench
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@cmake --build $(BUILD) --target avocet
	@bench/gate --avocet $(BUILD)/avocet --record
	@bench/gate --plot docs/history.svg

format: ## clang-format over all C files
	@$(BOOT) test
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format -i

tidy: ## the house rules: layers, lengths, banned functions
	@tools/tidy

graph: ## draw which module uses which: docs/images/modules.svg
	@$(BOOT) run
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@cmake --build $(BUILD) --target avocet
	@tools/links $(BUILD) --graph >docs/images/modules.svg

lint: ## clang-tidy over all C files, and the house rules
	@$(BOOT) all
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@tools/tidy
	@tools/lint $(BUILD)

bundle: ## one archive with the command, its libraries and MODEL=smollm2 or demo, in dist/ (docs/install.md)
	@$(BOOT) package
	@tools/package bundle --model "$(MODEL)"

deb: ## Debian packages of the command, the library and its header, in dist/
	@$(BOOT) package
	@tools/package deb

wheel: ## a Python wheel with the library, the command and their libraries, in dist/
	@$(BOOT) package
	@tools/package wheel

check-packages: ## make packages and run them where nothing else is installed (as root; minutes)
	@$(BOOT) package
	@tools/package check --model "$(MODEL)"

install: build ## into PREFIX=/usr/local (DESTDIR is honoured)
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix "$(PREFIX)"
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ] && command -v ldconfig >/dev/null; then ldconfig; fi

uninstall: ## what the last install put there (the list stands in build/install_manifest.txt)
	@test -e $(BUILD)/install_manifest.txt || { echo "nothing was installed from $(BUILD)/"; exit 1; }
	@while read -r file || [ -n "$$file" ]; do rm -fv "$(DESTDIR)$$file"; done <$(BUILD)/install_manifest.txt
	@sed -n -E -e 's:^(.*/avocet/.+)/[^/]*$$:\1:p' -e 's:^(.*/avocet)/.*$$:\1:p' $(BUILD)/install_manifest.txt | sort -ru | \
	while read -r folder; do rmdir -v "$(DESTDIR)$$folder" 2>/dev/null || true; done # those of our name, once empty

clean: ## remove the build folders
	rm -rf build build-package build-asan build-tsan build-fuzz build-smoke build-clang build-arm build-arm-kernels build-arm-sysroot

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile
