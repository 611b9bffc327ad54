# shellcheck shell=sh
# Sourced by demo.sh and test.sh: run named stages one after another and say how long each took.

began=$(date +%s)
times=

stage() {
    title=$1
    shift
    printf '\n== %s\n' "$title"
    stage_began=$(date +%s)
    "$@" || {
        status=$?
        printf '== %s FAILED after %d s (exit status %d)\n' \
            "$title" "$(($(date +%s) - stage_began))" "$status" >&2
        exit "$status"
    }
    took=$(($(date +%s) - stage_began))
    printf '== %s %d s\n' "$title" "$took"
    times="$times$(printf '%6d s  %s' "$took" "$title")
"
}

# One line for each stage and one for all of them.
summary() {
    printf '\n== stages\n%s%6d s  in all\n' "$times" "$(($(date +%s) - began))"
}
