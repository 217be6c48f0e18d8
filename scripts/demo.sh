#!/bin/sh
# The main job on this machine: start the service on SQLite, post a real description, follow the sweep to its ranking.
set -eu

port=${PORT:-8765}
url=http://127.0.0.1:$port
export AUTOTUNER_DATABASE_URL="${AUTOTUNER_DATABASE_URL:-sqlite:///var/demo.db}"
export AUTOTUNER_LOG_LEVEL="${AUTOTUNER_LOG_LEVEL:-warning}"

say() { printf '\n== %s\n' "$*"; }

say "database $AUTOTUNER_DATABASE_URL"
"$BIN/autotuner" migrate

say "profile: measuring how fast this machine is, about 25 s; the database keeps it for the next time"
"$BIN/autotuner" profile --keep

say "service on $url"
"$BIN/autotuner" serve --port "$port" &
service=$!
trap 'kill "$service" 2>/dev/null || true; wait "$service" 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
tries=0
until curl -fs "$url/api/v1/ready" >/dev/null 2>&1; do
  tries=$((tries + 1))
  kill -0 "$service" 2>/dev/null || { echo "the service ended; is port $port taken? try PORT=8766 make demo"; exit 1; }
  [ "$tries" -lt 300 ] || { echo "the service did not get ready in a minute"; exit 1; }
  sleep 0.2
done

kill -0 "$service" 2>/dev/null || { echo "another service answers at $url; try PORT=8766 make demo"; exit 1; }

# A space in which any ten layouts of two cores show every kind of parallelism, and no end before the ten are tried.
space='{"micro_batch_size": [2, 4, 8], "pipeline_schedule": ["1f1b"], "sequence_parallel": [false],
  "reshard_after_forward": [false], "recompute": ["none"], "shard_level": ["none", "parameters"]}'

say "sweep: a small Llama on this machine's devices, 10 real trials"
"$BIN/autotuner" sweep --server "$url" --model llama-demo --cluster local --global-batch-size 16 --seq-len 128 \
  --trials 10 --warmup-steps 1 --measured-steps 4 --measuring-seconds 2 --prune-below 0 --min-gain 0 --space "$space" --name demo

if [ -t 0 ]; then
  say "the dashboard is at $url/ until you press Ctrl-C"
  wait "$service"
else
  say "the service has stopped; to see the result in a browser, at $url/, run:"
  echo "AUTOTUNER_DATABASE_URL=$AUTOTUNER_DATABASE_URL $BIN/autotuner serve --port $port"
fi
