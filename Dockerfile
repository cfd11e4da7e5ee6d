# Every role of a run: hindcast start, hindcast join, hindcast broker users. Policy servers run in vLLM's own image.
#     docker build --tag hindcast:0.1.0 .
# The files in which a run keeps its state are under /var/lib/hindcast: give it a volume.
FROM python:3.12-slim-bookworm AS build
WORKDIR /source
COPY . .
RUN python -m venv /opt/hindcast \
    && /opt/hindcast/bin/python -m pip install --no-cache-dir --constraint constraints.txt '.[s3,postgres]'

FROM python:3.12-slim-bookworm
# versions of Debian's stable release: Chromium gets security updates there, and older ones disappear
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends chromium-headless-shell fonts-liberation tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 1000 hindcast \
    && useradd --uid 1000 --gid 1000 --create-home hindcast \
    && install --directory --owner hindcast --group hindcast --mode 700 /var/lib/hindcast /var/lib/hindcast/secrets \
    && install --directory --owner hindcast --group hindcast /shared /etc/nats/accounts
COPY --from=build /opt/hindcast /opt/hindcast
ENV PATH=/opt/hindcast/bin:$PATH HINDCAST_HOME=/var/lib/hindcast PYTHONUNBUFFERED=1
USER 1000:1000
WORKDIR /home/hindcast
HEALTHCHECK --interval=30s --timeout=10s --start-period=30m --start-interval=5s \
    CMD ["python", "-P", "-m", "hindcast.app.system.health"]
ENTRYPOINT ["tini", "--", "hindcast"]
