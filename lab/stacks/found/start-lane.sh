#!/bin/sh
# The lane on both Sparks: all down, then the worker over SSH, then the head.
set -eu
cd "$(dirname "$0")"
# shellcheck source=/dev/null  # beside this script
. ./.env.lane

lane() {
    docker compose --project-name night-lane --env-file .env.lane \
        --file docker-compose.lane.yml "$@"
}

worker() {
    ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new "ci@$WORKER_IP" sudo docker "$@"
}

lane down
worker rm --force lane-worker || true
worker run --detach --name lane-worker --network host --ipc host --shm-size 64m \
    --restart unless-stopped --stop-timeout 10 --ulimit memlock=-1 --ulimit stack=67108864 \
    --device /dev/infiniband --env "VLLM_HOST_IP=$WORKER_IP" \
    --env "NCCL_SOCKET_IFNAME=$FABRIC" --env "GLOO_SOCKET_IFNAME=$FABRIC" \
    --env HF_HUB_OFFLINE=1 --volume "$MODELS:/models:ro" \
    --volume /etc/lab-engine:/etc/lab-engine:ro "vllm-node:$TAG" \
    vllm serve /models/dsf-lab --served-model-name=ds4-flash --tensor-parallel-size=2 \
    --distributed-executor-backend=mp --max-model-len=4096 --nnodes=2 --node-rank=1 \
    "--master-addr=$HEAD_IP" --master-port=25000 --headless
lane up --detach
