# Two commands matter: `make book` builds the site, `make test` runs every check. Both set up what they need in .venv.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2])' 2>/dev/null && command -v $$p && break; done)
BIN := .venv/bin
READY := .venv/ready
# Two workers with one thread each: if torch used both cores in each, they would wait for one another. tests/conftest.py puts the long tests first.
WORKERS := -n 2 --dist loadscope --no-loadscope-reorder
# Only the two pytest plugins that are used. Others found in the environment would be imported by every worker and cause a library to be compiled again.
PLUGINS := --disable-plugin-autoload -p nbval.plugin -p xdist.plugin
# The tests that Python and pytest have compiled are kept for the next run, even where the environment (often a container's) says otherwise.
TESTED := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help book test test-all proofs thorough mutants broken export execute portable serve bench gpu weigh colab model essays rhymes clean

help:
	@echo "make book      build the site (the first time it also sets up .venv; about two minutes)"
	@echo "make test      run every chapter and every test but the long ones (several minutes)"
	@echo "make test-all  run the long tests as well (minutes)"
	@echo "make proofs    have the proof assistant Coq check the lemmas, the calculus and a certificate of every preset"
	@echo "make thorough  kill training at every moment when a file is touched, and resume it (minutes)"
	@echo "make mutants   break the specification in small ways and see the checks fail (minutes)"
	@echo "make broken    break every claim on purpose and see its check fail (ONLY=\"attention loss\" for some chapters; minutes)"
	@echo "make export    write src/tlm_book from the chapters' cells"
	@echo "make execute   run the chapters and keep their outputs (ONLY=\"attention loss\" for some)"
	@echo "make portable  run the chapters as other machines would (AS=\"old avx2\" for some machines, ONLY=\"attention loss\" for some chapters)"
	@echo "make serve     show the site at http://localhost:8000, rebuilt whenever a chapter changes"
	@echo "make colab     run each chapter alone in a fresh environment (ONLY=\"attention loss\" for some)"
	@echo "make bench     measure speed side by side with other libraries (NANOGPT=DIR: with a checkout of nanoGPT, too)"
	@echo "make gpu       on a machine with a GPU: run the GPU tests and benchmarks, and compare with the specification (NANOGPT=DIR, as above)"
	@echo "make weigh     measure the weight and speed of every page of the site in a browser"
	@echo "make model     train the model of the small world that ships with the package (minutes on a GPU, about ninety on two cores; if stopped, it resumes)"
	@echo "make essays    train the model of the essays"
	@echo "make rhymes    train the model of rhymes, whose heads the chapter 'heads' looks at (minutes)"
	@echo "make clean     remove what was built and the environment in .venv"

$(READY): requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and none was found; name one with: make PYTHON=/path/to/python3"; exit 1; }
	@echo "Step 1 of 2: creating an environment in .venv, with $(PYTHON) (a few seconds)"
	@$(BIN)/python -c pass 2>/dev/null || $(PYTHON) -m venv --clear .venv || { echo "The module venv is missing (on Debian and Ubuntu: install python3-venv)"; exit 1; }
	@$(BIN)/python book/_tools/install.py
	@touch $@

book: $(READY)
	$(BIN)/jupyter-book build . -W -n --keep-going
	@test -f _build/html/index.html || { echo "no _build/html/index.html: the site was not built"; exit 1; }
	@echo "The site: $(CURDIR)/_build/html/index.html  (make serve shows it in a browser)"

test: $(READY)
	$(TESTED) $(SEEDS) $(BIN)/python -m pytest $(PLUGINS) --nbval book tests $(LONG) $(WORKERS)

# The same with the long tests and all seeds of every measurement; then the chapters as an old machine runs them, with every signature of the package checked.
test-all: LONG = --all
test-all: SEEDS = TLM_BOOK_ALL_SEEDS=1
test-all: test
	TLM_BOOK_TYPECHECK=1 $(TESTED) $(BIN)/python book/_tools/portable.py --as old

# Does not install Coq: only those who want to check the proofs need it.
proofs: $(READY)
	@command -v coqc >/dev/null || { $(BIN)/python -c "from tlm_book.derivation.coq import HOW_TO_GET_COQ; print(HOW_TO_GET_COQ)"; exit 1; }
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --all tests/book/test_certificates.py
	@echo "All proofs checked: both files, and a certificate of every preset; without any axiom."

thorough: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --thorough tests/unit/test_resume.py

# Measures only what has changed since the last time, and writes book/mutation_testing.md.
mutants: $(READY)
	PYTHONPATH=book/_tools OMP_NUM_THREADS=1 $(BIN)/python tests/support/mutants.py $(ONLY)

# Breaks only what has changed since the last time; the tests break a sample.
broken: $(READY)
	PYTHONPATH=book/_tools OMP_NUM_THREADS=1 $(BIN)/python tests/support/broken.py $(ONLY)

export: $(READY)
	$(BIN)/python book/_tools/export.py

execute: export
	$(BIN)/python book/_tools/execute.py $(if $(FRESH),--fresh) $(ONLY)

# Imitations of other machines: see IMITATIONS in the script. (make itself has a variable AS.)
portable: $(READY)
	$(BIN)/python book/_tools/portable.py $(ONLY) $(if $(filter command,$(origin AS)),--as $(AS))

serve: book
	$(BIN)/python book/_tools/serve.py

# As in Colab: an environment with the built wheel and a kernel, and each notebook alone in an empty folder.
colab: $(READY)
	ONLY="$(ONLY)" OMP_NUM_THREADS=1 $(BIN)/python -m pytest --colab tests/book/test_colab.py

bench: $(READY)
	$(BIN)/python benchmarks/speed.py $(if $(NANOGPT),--nanogpt $(NANOGPT))
	$(BIN)/python benchmarks/tokenization.py
	$(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/decoding.py
	$(BIN)/python benchmarks/llama.py
	$(BIN)/python benchmarks/world.py
	$(BIN)/python benchmarks/recipe.py --only times
	$(BIN)/python benchmarks/quoting.py
	$(BIN)/python benchmarks/auditing.py
	$(BIN)/python benchmarks/inside.py

# Everything that needs a GPU. Its results become one entry of benchmarks/gpu.json, which the book's pages show.
gpu: $(READY)
	@$(BIN)/python -c 'import torch; raise SystemExit(None if torch.cuda.is_available() else f"make gpu: there is no GPU that torch {torch.__version__} can use on this machine")'
	$(BIN)/python -m pytest --all -m gpu tests/unit -n 4
	$(BIN)/python benchmarks/gpu.py $(if $(NANOGPT),--nanogpt $(NANOGPT))
	$(BIN)/python benchmarks/quoting.py

weigh: book
	$(BIN)/python benchmarks/site_pages.py
	$(BIN)/python benchmarks/hover.py
	$(BIN)/python benchmarks/keys.py

model: $(READY)
	mkdir -p _build
	$(BIN)/python -m tlm_book.small_world --out _build/world $(if $(shell command -v g++),--compile)
	rm -rf src/tlm_book/data/world && mv _build/world src/tlm_book/data/world
	$(BIN)/python book/_tools/curves.py

essays: $(READY)
	rm -rf _build/model
	$(BIN)/python -m tlm_book train --book --device cpu --out _build/model
	rm -rf src/tlm_book/data/model && mv _build/model src/tlm_book/data/model
	$(BIN)/python book/_tools/curves.py

rhymes: $(READY)
	rm -rf _build/rhymes
	OMP_NUM_THREADS=1 $(BIN)/python -c "from tlm_book.heads import train_rhymes; train_rhymes('_build/rhymes')"
	rm -rf src/tlm_book/data/rhymes && mv _build/rhymes src/tlm_book/data/rhymes
	$(BIN)/python book/_tools/curves.py

clean:
	rm -rf _build .venv
