# ProViCo for CPUs, as a user without rights. docs/install.md has the commands.
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
# The CPU build of torch, which is found there and nowhere else under the pinned version; then the rest.
RUN python -m venv /opt/provico \
 && torch=$(grep '^torch==' constraints.txt) \
 && /opt/provico/bin/pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "$torch" \
 && /opt/provico/bin/pip install --no-cache-dir --constraint constraints.txt '.[explorer,onnx,plots]'

FROM python:3.11-slim
LABEL org.opencontainers.image.title="ProViCo" \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/provico /opt/provico
RUN useradd --uid 10001 --create-home --home-dir /library provico
# All that is written goes into the volume: what is remembered of videos, runs and indexes. The root stays as it is.
ENV PATH=/opt/provico/bin:$PATH \
    HOME=/library \
    PROVICO_HOME=/library/.provico \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001
WORKDIR /library
VOLUME /library
EXPOSE 8420
ENTRYPOINT ["provico"]
CMD ["--help"]
