# Everything runs in .venv, which is made once; later runs need no network.
PYTHON ?= python3
BIN := .venv/bin
PIP := "$(BIN)/python" -m pip --disable-pip-version-check

.PHONY: demo test test-long lint compiled format messages clean

demo: .venv/installed-demo
	"$(BIN)/python" -m gearshift demo

test: .venv/installed-test
	"$(MAKE)" -j 2 lint compiled
	"$(BIN)/python" -m pytest -n 3 -m "not long"

test-long: .venv/installed-test-long
	"$(MAKE)" -j 2 lint compiled
	"$(BIN)/python" -m pytest -n 3

lint: .venv/installed-test
	"$(BIN)/python" -m ruff format --check .
	"$(BIN)/python" -m ruff check .
	"$(BIN)/python" -m mypy

# Once here, or every process of the tests would compile.
compiled: .venv/installed-test
	"$(BIN)/python" -m gearshift.simulator.warm_up --deadlines

format: .venv/installed-test
	"$(BIN)/python" -m ruff format .
	"$(BIN)/python" -m ruff check --fix .

messages: .venv/installed-test
	"$(BIN)/python" -m grpc_tools.protoc -I src --python_out=src --pyi_out=src src/gearshift/serving/grpc_messages.proto

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
