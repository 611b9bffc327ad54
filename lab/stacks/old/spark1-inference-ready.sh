#!/bin/sh
# Start the local inference stack again when it does not answer. Runs from root's crontab.
set -u

health=http://127.0.0.1:8888/health
directory=/opt/dsf-lab

# A start takes longer than a minute on a slow machine; two at once would fight.
exec 9>/run/spark1-inference-ready.lock
flock -n 9 || exit 0

if curl --silent --fail --max-time 10 --output /dev/null "$health"; then
    exit 0
fi

echo "$(date '+%F %T') no answer from $health, starting dsf-lab"
docker compose -p dsf-lab --project-directory "$directory" up -d
echo "$(date '+%F %T') docker compose ended with status $?"
