# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OUT    ?= demo

.DEFAULT_GOAL := help
.PHONY: help demo test lint docs package format browser hashes clean

help:    ## show this list
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.installed    ## set up, then run the main job on the embedded demo set; opens the page where there is a display
	$(BIN)/provico demo --out $(OUT)
	@if [ -t 1 ] && { [ -n "$$DISPLAY$$WAYLAND_DISPLAY" ] || [ "$$(uname)" = Darwin ]; }; then \
	  $(BIN)/provico serve $(OUT)/index --run $(OUT)/run --open; fi

# Compiled modules are kept: the many processes of the tests would each compile them again.
test: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.installed-dev lint browser    ## set up, then check format, lint and types and run all tests
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.installed-dev    ## format, lint, types, words and known dangers only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/hadolint Dockerfile
	$(BIN)/codespell
	$(BIN)/python .ci/words.py
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive src

docs: $(VENV)/.installed-dev    ## build the site into build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

package: $(VENV)/.installed-dev    ## build sdist and wheel and use them in an empty environment
	.ci/package

format: $(VENV)/.installed-dev    ## let ruff rewrite the files
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

browser:    ## install Chromium where that is possible, for the tests of the page
	@command -v chromium-headless-shell >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && { apt-get update -qq || true; } \
	    && for name in chromium-headless-shell chromium; do apt-get install -y -qq $$name >/dev/null && break; done; } \
	  || command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
	  || echo "There is no Chromium and it cannot be installed here: the tests of the page are skipped."

hashes: | $(VENV)/bin/python    ## write hashes.txt: what an installation takes here, each file with its hash
	$(BIN)/python -m pip install --quiet --dry-run --ignore-installed --report - --constraint constraints.txt \
	  '.[explorer,postgres]' | $(BIN)/python .ci/hashes.py > hashes.txt

clean:    ## remove the virtual environment and what the demo wrote
	rm -rf $(VENV) $(OUT)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[explorer,plots]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
# timm asks for torchvision, which no network of it needs and whose wheels fit only some builds of torch.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps timm
	touch $@ $(VENV)/.installed
