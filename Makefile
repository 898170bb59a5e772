# The things done again and again, each one a few lines that also work without make.
PYTHON = python3
BIN = .venv/bin

.PHONY: packages setup lint classes test site lock

packages:  ## .venv with everything that requirements.lock names, each file checked by its hash; pip itself is the newest
	$(PYTHON) -m venv --upgrade-deps .venv
	$(BIN)/pip install -q -r requirements.lock

setup: packages  ## and this package, its extension compiled
	$(BIN)/pip install -q --no-deps --no-build-isolation -e .

lint:  ## the linter, the formatter and the type checker; .pre-commit-config.yaml runs the same
	$(BIN)/ruff check
	$(BIN)/ruff format --check -q
	$(BIN)/mypy kpl_codec

classes:  ## Spark's classes as Java keeps them: each Spark session of a test begins in half the time
	$(BIN)/python -m tests.java_classes

test:  ## every room of tests, in as many processes as are worth it
	$(BIN)/python -m pytest -n auto

site:  ## the documentation's site, in build/site
	@$(BIN)/python -c "import mkdocs" 2>/dev/null || { echo "MkDocs is not in $(BIN): make setup installs it"; exit 1; }
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build -f tests/site/mkdocs.yml

lock:  ## requirements.lock: the newest versions that pyproject.toml allows, for Python 3.10 and later
	$(BIN)/uv pip compile -q --universal --generate-hashes --all-extras --group pyproject.toml:dev \
	  --python-version 3.10 --upgrade --no-emit-index-url --no-annotate --no-header -o requirements.lock pyproject.toml
