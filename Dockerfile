# The service: REST, dashboard, migrations. Build with --build-arg TRIALS=1 for a worker that runs trials with torch.
FROM python:3.11-slim
ARG TRIALS=0
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 AUTOTUNER_HOST=0.0.0.0 \
    AUTOTUNER_DATABASE_URL=sqlite:////var/lib/autotuner/autotuner.db AUTOTUNER_WORK_DIR=/var/lib/autotuner/trials
WORKDIR /srv/autotuner
COPY constraints.txt ./
RUN if [ "$TRIALS" = 1 ]; then pip install "$(grep '^torch==' constraints.txt)"; fi
COPY pyproject.toml README.md ./
COPY autotuner_report.py ./
COPY autotuner autotuner
COPY api api
COPY trials trials
COPY migrations migrations
RUN pip install -c constraints.txt . && useradd --create-home autotuner && install -d -o autotuner /var/lib/autotuner
USER autotuner
EXPOSE 8000
CMD ["autotuner", "serve"]
