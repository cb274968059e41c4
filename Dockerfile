# warmstart: the init container and the Job, on top of the very image that the servers run, so that vLLM, torch and triton are the
# same to the byte. warmstart-store: small, without vLLM, for init containers that only pull, for pre-warm and the care of a store.
#
#   docker build --target warmstart --build-arg VLLM_IMAGE=vllm/vllm-openai:v0.33.0 -t vllm-warmstart:v0.33.0-warmstart0.1.0 .
#   docker build --target warmstart-store -t vllm-warmstart-store:0.1.0 .
ARG VLLM_IMAGE=vllm/vllm-openai:v0.33.0
ARG PYTHON_IMAGE=python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /src
COPY pyproject.toml README.md ./
COPY docker/dependencies.py docker/
RUN mkdir /dependencies && python3 docker/dependencies.py pyproject.toml > /dependencies/dependencies.txt
COPY app app
RUN python3 -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .


FROM ${VLLM_IMAGE} AS warmstart
ARG VLLM_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="warmstart" \
      org.opencontainers.image.description="Compiles a vLLM model's torch.compile cache without weights or a GPU, and installs it before the server starts" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${VLLM_IMAGE}"
USER 0
ENV PIP_BREAK_SYSTEM_PACKAGES=1 \
    PIP_ROOT_USER_ACTION=ignore \
    PIP_NO_CACHE_DIR=1 \
    WARMSTART_CUDA_STUB=/opt/warmstart/libcuda.so.1
COPY docker/versions.py /opt/warmstart/versions.py
COPY --from=wheel /dependencies /opt/warmstart
# Adds what the image lacks. What it has is pinned while pip resolves, and compared afterwards: one changed version fails the build,
# for then the cache would be that of another server.
RUN python3 /opt/warmstart/versions.py write /opt/warmstart/base.txt \
    && python3 -m pip install --constraint /opt/warmstart/base.txt --requirement /opt/warmstart/dependencies.txt
COPY --from=wheel /wheels /opt/warmstart/wheels
RUN python3 -m pip install --no-deps --no-index /opt/warmstart/wheels/vllm_warmstart-*.whl \
    && python3 /opt/warmstart/versions.py check /opt/warmstart/base.txt \
    && rm -r /opt/warmstart/*
# Stands in for the driver on nodes without a GPU. Built from the symbols that this image's own extension modules want.
RUN python3 -m pip install --target /tmp/build pyelftools==0.33 \
    && PYTHONPATH=/tmp/build python3 -m warmstart.compiler.stub --output "${WARMSTART_CUDA_STUB}" \
    && rm -r /tmp/build
# Any user in group 0 (OpenShift gives one at random); the root file system may be read-only, /tmp is where things are written.
ENV HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /tmp
USER 65532:0
ENTRYPOINT ["warmstart"]


FROM ${PYTHON_IMAGE} AS warmstart-store
ARG PYTHON_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="warmstart-store" \
      org.opencontainers.image.description="Pulls vLLM compile caches, pre-warms them and looks after their store; cannot compile" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}"
ENV PIP_BREAK_SYSTEM_PACKAGES=1 \
    PIP_ROOT_USER_ACTION=ignore \
    PIP_NO_CACHE_DIR=1
COPY requirements/store.txt /opt/warmstart/requirements.txt
RUN python3 -m pip install --require-hashes --requirement /opt/warmstart/requirements.txt
COPY --from=wheel /wheels /opt/warmstart/wheels
RUN python3 -m pip install --no-deps --no-index /opt/warmstart/wheels/vllm_warmstart-*.whl && rm -r /opt/warmstart
ENV HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /tmp
USER 65532:0
ENTRYPOINT ["warmstart"]
