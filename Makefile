# The front door. Every target says what it does; none asks questions.
BUILD ?= build

.PHONY: build test clean
build:
	cmake -S . -B $(BUILD) -G Ninja
	cmake --build $(BUILD)

test: build
	ctest --test-dir $(BUILD) --output-on-failure

clean:
	rm -rf build build-*
