# Each target sets up what it needs first; the first time takes minutes, after that seconds (packaging/set_up.py).
PYTHON ?=
ONLY ?=
BENCHES := probe agent wire fold tui soak report sessions logs
SYSTEM_PYTHON := $(or $(shell command -v python3.11),$(shell command -v python3),python3)
SET_UP = $(SYSTEM_PYTHON) packaging/set_up.py
BIN := .venv/bin
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/distmon
STATE := $(or $(XDG_STATE_HOME),$(HOME)/.local/state)/distmon

.PHONY: help run test check bench cluster faults truth answers monkey lock pictures redo equal clean
help:
	@echo "make run      the cockpit on a real training of 2 ranks, a minute or two (PYTHON=... trains with a Python of yours)"
	@echo "make test     all tests"
	@echo "make check    lint, types and the import rules"
	@echo "make bench    every benchmark, a JSON line per figure (ONLY=probe: one of $(BENCHES))"
	@echo "make cluster  tests on several hosts, made of network namespaces, the long ones too (needs root)"
	@echo "make faults   each fault several times while ranks train, counted record by record; writes docs/faults.md"
	@echo "make truth    docs/truth.md: what the verdicts say against faults that are known; half an hour"
	@echo "make answers  docs/answers.md: what the landing screen says of twelve scripted faults; two minutes"
	@echo "make monkey   10,000 random keys, clicks and sizes, live and in a recording (SEEDS=\"1 2\"); ten minutes"
	@echo "make lock     write the locks from what .venv holds"
	@echo "make equal    every screen, live against replay, cell for cell over 500 moments; some minutes"
	@echo "make redo     five published benchmarks, small: their figures into docs/redo_*.md, half an hour"
	@echo "make pictures the pictures and the table of keys of the documentation, from recordings and the bindings"
	@echo "make clean    remove what was built here"

run:
	@$(SET_UP) $(if $(PYTHON),--without-training)
	@$(BIN)/distmon run -np 2 -- $(or $(PYTHON),$(BIN)/python) examples/torch_digits.py --epochs 150 --seconds 120 || [ $$? -eq 130 ]
	@echo "again: $(BIN)/distmon replay last · its figures: $(BIN)/distmon report last"

# What measures a training's time runs alone; then what computes, what mostly waits, and real jobs run side by side.
ALONE := tests/probe/test_torch.py tests/probe/test_tensorflow.py
COMPUTING := tests/core tests/replay tests/tui
WAITING := tests/launcher tests/agent tests/wire tests/answers
test:
	@$(SET_UP)
	@$(BIN)/pytest $(ALONE)
	@logs=$$(mktemp -d); trap 'kill $$computing $$waiting' INT TERM; \
	$(BIN)/pytest $(COMPUTING) -p no:cacheprovider >"$$logs/computing" 2>&1 & computing=$$!; \
	$(BIN)/pytest $(WAITING) -p no:cacheprovider >"$$logs/waiting" 2>&1 & waiting=$$!; \
	$(BIN)/pytest tests $(addprefix --ignore=,$(ALONE) $(COMPUTING) $(WAITING)); failed=$$?; \
	wait $$waiting || failed=1; cat "$$logs/waiting"; \
	wait $$computing || failed=1; cat "$$logs/computing"; rm -r "$$logs"; exit $$failed

check: .typing/distmon
	@$(SET_UP)
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# Type checkers do not follow setuptools' map of folders to packages; these links spell it out.
.typing/distmon: Makefile
	@mkdir -p $@
	@for room in core probe wire agent launcher replay tui; do ln -sfn ../../$$room $@/$$room; done
	@touch $@

bench:
	@$(SET_UP)
	@for name in $(or $(ONLY),$(BENCHES)); do \
		if [ -f bench/$$name.py ]; then $(BIN)/python bench/$$name.py || exit 1; \
		elif [ -n "$(ONLY)" ]; then echo "there is no bench/$$name.py: ONLY is one of $(BENCHES)" >&2; exit 2; fi; \
	done

cluster:
	@$(SET_UP)
	@$(BIN)/pytest tests/cluster -m "" --durations=10

faults:
	@$(SET_UP)
	@$(BIN)/python -m tests.faults

answers:
	@$(SET_UP)
	@$(BIN)/python -m tests.answers

monkey:
	@$(SET_UP)
	@$(BIN)/python -m tests.tui.monkey $(if $(SEEDS),--seeds $(SEEDS))

truth:
	@$(SET_UP)
	@$(BIN)/python -m tests.truth > docs/truth.md.new && mv docs/truth.md.new docs/truth.md
	@tail -1 docs/truth.md

lock:
	@$(SET_UP)
	@$(BIN)/python packaging/lock.py

pictures:
	@$(SET_UP)
	@$(BIN)/python docs/shortcuts.py
	@$(BIN)/python docs/pictures.py

equal:
	@$(SET_UP)
	@$(BIN)/pytest tests/tui/test_live_is_replay.py -m long --timeout 1800

# The ranks' command is `python`: the one of .venv.
redo:
	@$(SET_UP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python docs/redo.py

clean:
	@rm -rf .venv .typing build dist probe/*.so *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "Removed .venv and all that was built in this folder."
	@[ ! -d "$(CACHE)" ] || echo "Kept Horovod's wheels: $(CACHE) ($$(du -sh "$(CACHE)" | cut -f1))"
	@[ ! -d "$(STATE)" ] || echo "Kept recordings: $(STATE) ($$(du -sh "$(STATE)" | cut -f1))"
