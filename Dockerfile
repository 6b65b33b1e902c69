# The gateway and what it needs to run, nothing else: no compiler, no shell tools, no root, nothing that is written to.
# Both stages have to be the same Python, since its version is part of the packages' paths.
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /build
# Only what is locked, by its hash, and only wheels: nothing of a package runs while it is installed.
# The image's own pip installs, so that the environment has none.
COPY requirements/run.txt .
RUN python -m venv --without-pip /opt/gateway && \
    python -m pip --python /opt/gateway/bin/python install --no-cache-dir --disable-pip-version-check --no-compile \
        --require-hashes --no-deps --only-binary :all: -r run.txt
# The package as it stands in the checkout; after the dependencies, which change less often.
COPY gateway /opt/gateway/app/gateway
# Compiled here, because a read-only file system cannot keep what Python would compile at each start.
RUN python -m compileall -q -j 0 /opt/gateway

FROM ${PYTHON_IMAGE}
ENV PATH=/opt/gateway/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    # Beyond loopback the gateway starts only with callers' keys, or when told that anybody may call.
    GATEWAY_SERVER__HOST=0.0.0.0
COPY --from=build /opt/gateway /opt/gateway
WORKDIR /opt/gateway/app
# A number: Kubernetes' runAsNonRoot does not look names up.
USER 10001:10001
EXPOSE 8000
# First signal: no new chats, the running ones end with a word. The exec form below makes Python process 1, which hears it.
STOPSIGNAL SIGTERM
# Alive, not ready: a gateway that is draining must not be killed. Without the modules of `site`, this costs 15 ms.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --start-interval=500ms --retries=3 \
    CMD ["python", "-I", "-S", "-c", "import socket, os; c = socket.create_connection(('127.0.0.1', int(os.environ.get('GATEWAY_SERVER__PORT') or 8000)), 2); c.sendall(b'GET /healthz HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n'); assert b' 200 ' in c.recv(64)"]
CMD ["python", "-m", "gateway", "serve"]
