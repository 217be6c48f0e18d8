# The service: REST, dashboard, migrations. Build with --build-arg TRIALS=1 for a worker that runs trials with torch.
FROM python:3.11-slim AS documentation
WORKDIR /srv
COPY constraints.txt mkdocs.yml ./
RUN pip install --no-cache-dir -c constraints.txt mkdocs mkdocs-material 'mkdocstrings[python]'
COPY documentation documentation
COPY docs docs
COPY autotuner autotuner
RUN python -m mkdocs build --strict

FROM python:3.11-slim
ARG TRIALS=0
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 HOME=/var/lib/autotuner AUTOTUNER_HOST=0.0.0.0 \
    AUTOTUNER_LOGIN=tokens AUTOTUNER_WORK_DIR=/var/lib/autotuner/trials \
    AUTOTUNER_DATABASE_URL=sqlite:////var/lib/autotuner/autotuner.db
WORKDIR /srv/autotuner
COPY constraints.txt ./
RUN if [ "$TRIALS" = 1 ]; then pip install "$(grep '^torch==' constraints.txt)"; fi
COPY pyproject.toml README.md ./
COPY autotuner_report.py ./
COPY autotuner autotuner
COPY api api
COPY trials trials
COPY migrations migrations
COPY --from=documentation /srv/site site
# A user by number: Kubernetes must see that it is not root. All that is written lies below its home.
RUN if [ "$TRIALS" = 1 ]; then extras=service,telemetry,trials; else extras=service,telemetry; fi \
    && pip install -c constraints.txt ".[$extras]" \
    && useradd --uid 10001 --home-dir /var/lib/autotuner autotuner && install -d -o autotuner /var/lib/autotuner
USER 10001
EXPOSE 8000
CMD ["autotuner", "serve"]
