# Everything runs in .venv, which is made once; later runs need no network, but for `wheel`, whose compiler pip fetches.
PYTHON ?= python3
BIN := .venv/bin
# Else each of the hundreds of processes that tests start would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE
PIP := "$(BIN)/python" -m pip --disable-pip-version-check

.PHONY: demo test short-tests test-long test-lowest test-wheel wheel lint compiled compiled-graphs compiled-whole compiled-rest rewritten format messages clean

demo: .venv/installed-demo
	"$(BIN)/python" -m gearshift demo

test: .venv/installed-test
	"$(MAKE)" -j 2 compiled-whole compiled-rest rewritten lint
	"$(MAKE)" short-tests

short-tests: .venv/installed-test
	"$(BIN)/python" -m pytest -n 3 -m "not long"

test-long: .venv/installed-test-long
	"$(MAKE)" -j 2 lint compiled compiled-graphs
	"$(BIN)/python" -m pytest -n 3 --timeout 1800

# The oldest versions that pyproject.toml admits, with the tools of the tests as they are elsewhere; left out are tests of
# those tools.  PyTorch and Ray come with gigabytes; without them: make test-lowest LOWEST_EXTRAS=grpc,onnx,parquet,sklearn
LOWEST ?= build/lowest
LOWEST_EXTRAS ?= grpc,onnx,parquet,ray,sklearn,torch
test-lowest:
	mkdir -p build
	"$(PYTHON)" tests/lowest.py > build/lowest.txt
	grep -E -i '^(aiohttp|hypothesis|onnx|pytest|pytest-timeout|pytest-xdist|pyyaml)==' constraints.txt > build/lowest-tools.txt
	test -x "$(LOWEST)/bin/python" || "$(PYTHON)" -m venv "$(LOWEST)"
	"$(LOWEST)/bin/python" -m pip --disable-pip-version-check install --quiet --constraint build/lowest.txt --requirement build/lowest-tools.txt --editable '.[$(LOWEST_EXTRAS)]'
	"$(LOWEST)/bin/python" -m pytest -n 3 -m "not long" tests/unit/serving tests/unit/runtime tests/unit/profiles tests/unit/policies $(filter-out tests/unit/test_reference.py,$(wildcard tests/unit/test_*.py)) --ignore=tests/unit/v2/test_grpc_tensors.py

lint: .venv/installed-test
	"$(BIN)/python" -m ruff format --check .
	"$(BIN)/python" -m ruff check .
	"$(BIN)/python" -m mypy

# Once here, or every process of the tests would compile.  Short tests do with three kernels, and that of language models.
compiled-whole: .venv/installed-test
	"$(BIN)/python" -m gearshift.simulator.warm_up --whole

compiled-rest: .venv/installed-test
	"$(BIN)/python" -m gearshift.simulator.warm_up
	"$(BIN)/python" -m gearshift.simulator.warm_up --whole --refine
	"$(BIN)/python" -m gearshift.simulator.engines.warm_up

# Else each process of the tests would rewrite the assertions of all modules.
rewritten: .venv/installed-test
	"$(BIN)/python" -m pytest -n 0 -m "not long" --collect-only > /dev/null || true

compiled: .venv/installed-test
	"$(BIN)/python" -m gearshift.simulator.warm_up --deadlines

compiled-graphs: .venv/installed-test
	"$(BIN)/python" -m gearshift.simulator.warm_up --deadlines --graphs

# The router and the front end in machine code; made of a copy, as the compiled modules are left beside their sources.
wheel: .venv/bin/python
	rm -rf build/copy dist && mkdir -p build/copy
	cp -R pyproject.toml README.md LICENSE src build/copy
	find build/copy -name '*.so' -delete
	HATCH_BUILD_HOOK_ENABLE_MYPYC=true $(PIP) wheel --quiet --no-deps --wheel-dir dist ./build/copy

test-wheel: .venv/installed-test wheel
	rm -rf build/wheel
	"$(BIN)/python" -m zipfile -e dist/gearshift-*.whl build/wheel
	cd / && PYTHONPATH="$(CURDIR)/build/wheel" "$(CURDIR)/$(BIN)/python" -P -m gearshift --version | grep compiled
	PYTHONPATH="$(CURDIR)/build/wheel" "$(BIN)/python" -m pytest -n 3 -m "not long"

format: .venv/installed-test
	"$(BIN)/python" -m ruff format .
	"$(BIN)/python" -m ruff check --fix .

messages: .venv/installed-test
	"$(BIN)/python" -m grpc_tools.protoc -I src --python_out=src --pyi_out=src src/gearshift/v2/grpc_messages.proto src/gearshift/serving/grpc/*.proto

.venv/bin/python:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gearshift needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	"$(PYTHON)" -m venv .venv

.venv/installed-demo: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable '.[demo]'
	touch $@

.venv/installed-test: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@ .venv/installed-demo

.venv/installed-test-long: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable '.[test-long]'
	touch $@ .venv/installed-test .venv/installed-demo

clean:
	rm -rf .venv build dist gearshift-demo
