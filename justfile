# Recipes; `just` lists them. PYTHON chooses the interpreter.
python := env("PYTHON", if path_exists(".venv/bin/python") == "true" { ".venv/bin/python" } else { "python3" })

_list:
    @just --list --unsorted

# Style, types, floors: a minute.
check:
    {{ python }} -m ruff format --check .
    {{ python }} -m ruff check .
    {{ python }} -m basedpyright --pythonpath {{ python }}
    {{ python }} -m pytest -q tests/test_floors.py tests/test_no_jax_ad.py

# What continuous integration tests, without the slow tests.
test *args:
    {{ python }} -m pytest -q -n 2 -m "not slow and not nightly" {{ args }}

# Every test on every case: an hour and a half on two cores. In two runs: each program that is compiled takes a memory
# map or more of its process, which may have 65,530 on Linux.
nightly *args:
    {{ python }} -m pytest -q -n auto --dist worksteal -m "nightly or not nightly" tests --ignore tests/stdlib {{ args }}
    {{ python }} -m pytest -q -n auto --dist worksteal -m "nightly or not nightly" tests/stdlib {{ args }}

# Writes tests/durations.tsv, by which continuous integration chooses cases: half an hour on two quiet cores.
durations *args:
    DIFFLANG_DURATIONS=1 {{ python }} -m pytest -q -n 2 --dist worksteal {{ args }}

# Rewrites the expected files; read their diff like code.
accept *args:
    DIFFLANG_ACCEPT=1 {{ python }} -m pytest -q -m "nightly or not nightly" tests/golden tests/errors {{ args }}
    git diff --stat -- tests

# Runs every code block of the documentation.
docs:
    {{ python }} -m pytest -q tests/docs

# Writes the word lists of the editors from the grammar and the standard library.
words:
    {{ python }} editor/generate.py

# Writes the pages of the standard library from its comments.
library:
    {{ python }} -m difflang doc --out docs/library

# Builds editor/vscode/difflang-VERSION.vsix, the extension for VS Code. The first run installs what the lock file names.
vsix:
    cd editor/vscode && test -d node_modules || npm ci --ignore-scripts --omit=optional --no-audit --no-fund
    cd editor/vscode && npm run package

# Lines in each room.
size:
    @for room in difflang/*/; do printf '%6d  %s\n' "$(find "$room" -name '*.py' -exec cat {} + | wc -l)" "$room"; done | sort -rn
    @printf '%6d  all\n' "$(find difflang -name '*.py' -exec cat {} + | wc -l)"

# Against the best JAX twin, in one process.
bench *args:
    {{ python }} benchmarks/run.py {{ args }}

# Random programs in bulk, with a new seed each time.
fuzz seed="random" count="2000":
    DIFFLANG_FUZZ={{ count }} DIFFLANG_SEED={{ seed }} {{ python }} -m pytest -q -n 2 -m "nightly or not nightly" tests/property

# What continuous integration runs.
all:
    PYTHON={{ python }} .ci/run
