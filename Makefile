# Each target first makes .venv from the locked requirements; when they have not changed, that takes no time.
# `make run` reads HOST, PORT and ARGS, from make's command line or the environment; the others PYTEST_ARGS.

PYTHON ?= python3
export PYTHON

.PHONY: run test clients slow bench lint lock

# exec: Ctrl-C reaches the server alone, whose exit status is then make's.
run:
	@sh requirements/install.sh run
	@exec .venv/bin/python -m gateway serve $${HOST:+--host "$$HOST"} $${PORT:+--port "$$PORT"} $(ARGS)

test:
	@sh requirements/install.sh dev
	@.venv/bin/python -m pytest -n auto $(PYTEST_ARGS)

# The clients that people use besides the vendors' own Python SDKs: a hundred packages more, and npm's.
clients:
	@sh requirements/install.sh clients
	@.venv/bin/python -m tests.clients.node_run install
	@.venv/bin/python -m pytest -n auto tests/clients $(PYTEST_ARGS)

# 100 000 examples of every law take longer than the minute that a test has otherwise.
slow:
	@sh requirements/install.sh dev
	@HYPOTHESIS_PROFILE=slow RUN_SLOW=1 .venv/bin/python -m pytest --timeout=3600 $(PYTEST_ARGS)
	@.venv/bin/python tests/e2e/soak.py --seconds 180

# WRITE=1 keeps the results in docs/, PEERS=1 adds a table against LiteLLM; both also from the environment.
bench:
	@sh requirements/install.sh dev
	@.venv/bin/python -m tests.bench

lint:
	@sh requirements/install.sh dev
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-logo

# uv does not read pip's configuration, so the index that this machine uses is handed over; no address is written down.
# Versions stay as they are where they still fit; LOCK_ARGS=--upgrade takes the newest.
COMPILE = .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(LOCK_ARGS) pyproject.toml

lock:
	@sh requirements/install.sh dev
	@setting() { .venv/bin/python -m pip config list | sed -n "s/^[^=]*[.]$$1='\(.*\)'$$/\1/p" | tail -n 1; }; \
	index=$${UV_DEFAULT_INDEX:-$$(setting index-url)}; \
	if [ -n "$$index" ]; then export UV_DEFAULT_INDEX="$$index"; fi; \
	certificates=$${SSL_CERT_FILE:-$$(setting cert)}; \
	if [ -n "$$certificates" ]; then export SSL_CERT_FILE="$$certificates"; fi; \
	$(COMPILE) -o requirements/run.txt && \
	$(COMPILE) --group dev --constraints requirements/run.txt -o requirements/dev.txt && \
	$(COMPILE) --group dev --group clients --constraints requirements/dev.txt -o requirements/clients.txt && \
	sh requirements/install.sh clients && .venv/bin/python -m tests.clients.node_run lock $(LOCK_ARGS)
