#!/bin/sh
# Is the lane up? No? Start it again. Runs from root's crontab.
set -u

# A start takes longer than a minute on a slow machine; two at once would fight.
exec 9>/run/lane-guard.lock
flock -n 9 || exit 0

if curl --silent --fail --max-time 10 --output /dev/null http://127.0.0.1:8888/health; then
    exit 0
fi

echo "$(date '+%F %T') no answer, starting the lane; docker has: $(docker ps --quiet | wc -l)"
/home/nvidia/night-lane/start-lane.sh
echo "$(date '+%F %T') start-lane.sh ended with status $?"
