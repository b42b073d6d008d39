# Two commands: `make demo` and `make test`. Everything lives in .venv; `make clean` forgets it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test drills check wheel-test bench clean

demo: $(VENV)/.installed
	$(BIN)/fewlabels label examples/grocery --labels examples/grocery/few.csv --truth folders --output demo/labels.csv --report demo/report.html

test: $(VENV)/.test-installed check
	$(BIN)/pytest -q -n auto --dist worksteal

# The drills at length (half an hour on two cores), and their table in BENCHMARKS.md.
drills: $(VENV)/.test-installed
	rm -f benchmarks/results/drills.json
	FEWLABELS_DRILLS=many FEWLABELS_DRILLS_OUTPUT=benchmarks/results/drills.json OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 tests/drills
	$(BIN)/python benchmarks/report.py

check: $(VENV)/.test-installed
	$(BIN)/ruff format --check --quiet src tests benchmarks
	$(BIN)/ruff check --quiet src tests benchmarks
	$(BIN)/mypy

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing fewlabels into $(VENV) (a minute or two the first time) ..."
	$(PIP) --editable .
	touch $@

$(VENV)/.test-installed: $(VENV)/.installed
	$(PIP) --editable '.[test]'
	touch $@

# The wheel in an empty environment, outside the repository, as `pip install fewlabels` would have it.
wheel-test: $(VENV)/.installed
	rm -rf build/wheel && mkdir -p build/wheel
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheel .
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt build/wheel/*.whl
	cd / && $(CURDIR)/build/wheel/venv/bin/python $(CURDIR)/tests/wheel/check_wheel.py $(CURDIR)/examples/grocery
	rm -rf build/wheel

clean:
	rm -rf $(VENV)

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/engine.py $(wildcard ../shared/features/cifar-fs-wrn28-10/novel.npy)
	$(BIN)/python benchmarks/report.py
