#!/bin/sh
# Measures how fast a fleet claims jobs on a temporary PostgreSQL server with the default durability, and how fast
# graphile_worker completes jobs on the same server with the same number of connections. Installs graphile_worker with
# npm if possible. A claim of the fleet also reserves budget at three levels that all claims share. A job of
# graphile_worker is claimed and completed, and reserves nothing.
# Usage: tests/bench_fleet.sh PATH-TO-THE-EXAMPLE-claims
set -eu
claims=$(realpath "$1")
bin=$(find /usr/lib/postgresql/*/bin -maxdepth 0 2>/dev/null | sort | tail -1)
if [ -z "$bin" ]; then
    echo "claims of a fleet: skipped: PostgreSQL is not installed"
    exit 0
fi
work=$(mktemp -d)
chmod 755 "$work"
mkdir "$work/data"
as() { "$@"; }
if [ "$(id -u)" = 0 ]; then
    chown nobody "$work/data"
    as() { setpriv --reuid=nobody --regid=nogroup --clear-groups "$@"; }
fi
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cd /
trap 'as "$bin/pg_ctl" -D "$work/data" -s -m immediate stop || :; rm -rf "$work"' EXIT
as "$bin/initdb" -D "$work/data" -U runner -A trust >/dev/null
printf "listen_addresses = '127.0.0.1'\nport = %s\nunix_socket_directories = ''\n" "$port" >> "$work/data/postgresql.conf"
as "$bin/pg_ctl" -D "$work/data" -w -s start >/dev/null 2>&1 </dev/null
url=postgresql://runner@127.0.0.1:$port
"$bin/createdb" -h 127.0.0.1 -p "$port" -U runner fleet
"$claims" "$url/fleet"

if ! command -v npm >/dev/null || ! npm install --silent --prefix "$work" graphile-worker >/dev/null 2>&1; then
    echo "graphile_worker: skipped: npm cannot install it"
    exit 0
fi
"$bin/createdb" -h 127.0.0.1 -p "$port" -U runner graphile
cat > "$work/graphile.mjs" <<'J'
import { Logger, makeWorkerUtils, run } from "graphile-worker";
const [, , connectionString, jobs, connections] = process.argv;
const utils = await makeWorkerUtils({ connectionString });
await utils.migrate();
await utils.withPgClient((pg) => pg.query(
    "SELECT count(graphile_worker.add_job('nothing', '{}')) FROM generate_series(1, $1::int)", [jobs]));
const logger = new Logger(() => () => {});
let done = 0, finished;
const all = new Promise((resolve) => { finished = resolve; });
const began = process.hrtime.bigint();
const runner = await run({
    connectionString, logger, concurrency: Number(connections), maxPoolSize: Number(connections) + 1,
    taskList: { nothing: () => { if (++done >= jobs) finished(); } },
});
await all;
const seconds = Number(process.hrtime.bigint() - began) / 1e9;
console.log(`graphile_worker, ${connections} at once: ${done} jobs in ${seconds.toFixed(2)} s, ${(done / seconds).toFixed(0)} per second`);
await runner.stop();
await utils.release();
J
node "$work/graphile.mjs" "$url/graphile" 6000 3
