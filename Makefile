# Two commands: `make demo` and `make test`. Everything lives in .venv; `make clean` forgets it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

KERNELS := $(wildcard src/fewlabels/kernels/*.py src/fewlabels/evaluation/_draw.py)

.PHONY: demo test check bench clean

demo: $(VENV)/.installed
	$(BIN)/fewlabels label examples/grocery --labels examples/grocery/few.csv --truth folders --output demo/labels.csv --report demo/report.html

test: $(VENV)/.test-installed $(VENV)/.kernels check
	$(BIN)/pytest -q -n auto

check: $(VENV)/.test-installed
	$(BIN)/ruff format --check --quiet src tests benchmarks
	$(BIN)/ruff check --quiet src tests benchmarks
	$(BIN)/mypy

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing fewlabels into $(VENV) (a minute or two the first time) ..."
	$(PIP) --editable '.[label,serve]'
	touch $@

$(VENV)/.test-installed: $(VENV)/.installed
	$(PIP) --editable '.[test]'
	touch $@

# Numba notices a change only in the file of the function that is called, not in those that it calls.
$(VENV)/.kernels: $(KERNELS) | $(VENV)/.installed
	find src -name '*.nb[ic]' -delete
	touch $@

clean:
	rm -rf $(VENV)

bench: $(VENV)/.installed $(VENV)/.kernels
	$(BIN)/python benchmarks/engine.py $(wildcard ../shared/features/cifar-fs-wrn28-10/novel.npy)
	$(BIN)/python benchmarks/report.py
