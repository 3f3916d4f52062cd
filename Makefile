PYTHON ?= python3
BIN := .venv/bin

.PHONY: verify test bench certify install clean

verify: .venv/installed
	$(BIN)/qkflow verify --report report

test: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m pytest -n 2 --dist loadfile

bench: .venv/installed
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.token_task

certify: .venv/installed
	$(BIN)/python -m benchmarks.certify

install: .venv/installed

# The locked dependencies first, then the project beside them, neither asking an index for more.
.venv/installed: requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "qkflow needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

clean:
	rm -rf .venv report
