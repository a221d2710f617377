#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Each program of tests/bench works once, for a moment, and its output must be parsable; the judge
# of scripts/bench must judge correctly. No measured figure decides here: scripts/bench measures
# speed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${RDMUX_SOURCE:-$(cd "$here/../.." && pwd)}
build=${RDMUX_BUILD:-$root/build/dev}
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
programs=$build/tests/bench
export UCX_LOG_LEVEL=error UCX_WARN_UNUSED_ENV_VARS=n

if ! have jq; then
    echo "1..0 # SKIP jq is missing"
    exit 77
fi
if (($(nproc) < 2)); then
    echo "1..0 # SKIP one processor; what is measured are two processes that spin"
    exit 77
fi

# A value, operations and the time of both sides.
runs() {
    local output status=0
    output=$(timeout 240 "$programs/$1" "${@:2}") || status=$?
    printf '%s\n' "$output"
    ((status != 77)) || return 77
    ((status == 0)) || return 1
    jq -e '(.value | type == "number") and .value >= 0 and .operations >= 0 and .cpu_seconds >= 0
           and .seconds >= 0' <<<"$output" >/dev/null
}

# run_case NAME PROGRAM ARGUMENTS...: a library that does not support the operation exits with 77.
run_case() {
    local status=0
    if [[ ! -x $programs/$2 ]]; then
        tap_skip "$1" "$2 was not built: its library is missing"
        return
    fi
    runs "${@:2}" >"$scratch/out" 2>"$scratch/err" || status=$?
    if [[ $2 == peer_* ]] && ((status == 77)); then
        tap_skip "$1" "$(tail -n 1 "$scratch/err")"
        return
    fi
    tap "$1" has_run "$status"
}

has_run() {
    cat "$scratch/out" "$scratch/err"
    return "$1"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for what in pingpong:8 pingpong:4K round:8 sleep:8 sized:8 single:8 coalesced:32 stream:64K read:64K \
    requests:32 connect:1 hold:10 even:10; do
    run_case "raw_tcp ${what/:/ }" raw_tcp "${what%:*}" "${what#*:}" 0.01
done
run_case "raw_tcp stream 64K system" raw_tcp stream 64K 0.01 system
for what in call:4 mixed:1M block:4K; do
    run_case "framed_socket ${what/:/ }" framed_socket auto "${what%:*}" "${what#*:}" 0.01
done
run_case "tls_socket 16K" tls_socket auto 16K 0.01
run_case "many_peers epoll 70" many_peers epoll 70 0.01

# CPU time is printed per operation. A span shorter than a round trip still has one operation.
operations_of_a_round_trip() {
    local output
    output=$(timeout 240 "$programs/raw_tcp" "$1" 8 0.0000001)
    printf '%s\n' "$output"
    jq -e --argjson count "$2" '.operations == $count' <<<"$output" >/dev/null
}
tap "a round trip is two operations of raw_tcp pingpong" operations_of_a_round_trip pingpong 2
tap "a round trip is one operation of raw_tcp round" operations_of_a_round_trip round 1
for what in line:8 copy:4K place:4K single:8 packed:32 memcpy:64K cma:64K atomic:8; do
    run_case "raw_shm ${what/:/ }" raw_shm "${what%:*}" "${what#*:}" 0.01
done
for path in tcp shm; do
    run_case "connections $path" connections "$path" 0.01
    run_case "sized $path 100" sized "$path" 100 0.01
    for what in call:4 mixed:1M block:4K; do
        run_case "framed_stream $path ${what/:/ }" framed_stream "$path" "${what%:*}" "${what#*:}" 0.01
    done
    run_case "tls_stream $path 16K" tls_stream "$path" 16K 0.01
    for what in pingpong:64 sleep:64 bulk:1M; do
        run_case "streams $path ${what/:/ }" streams "$path" "${what%:*}" "${what#*:}" 0.01
    done
    run_case "many_peers $path 70" many_peers "$path" 70 0.01
    run_case "many_peers idle-$path 3" many_peers "idle-$path" 3 0.01
    for what in fairness:4K alone:8 polling:8 empty:8 idle:8; do
        run_case "behaviour $path ${what/:/ }" behaviour "$path" "${what%:*}" "${what#*:}" 0.01
    done
    for peer in libfabric ucx; do
        for what in pingpong:8 rate:8 stream:64K write:64K read:64K fetch_add:8 fetch_adds:8; do
            run_case "$peer $path ${what/:/ }" "peer_$peer" "$path" "${what%:*}" "${what#*:}" 0.01
        done
    done
done
for what in pingpong:8 sleep:8 rate:8 stream:64K; do
    run_case "zeromq ${what/:/ }" peer_zeromq tcp "${what%:*}" "${what#*:}" 0.01
done
for what in pingpong:8 rate:8 stream:64K; do
    run_case "nng ${what/:/ }" peer_nng tcp "${what%:*}" "${what#*:}" 0.01
done

# Programs that know nothing of rdmux. fi_pingpong has a fixed port; scripts/bench gives it a network.
for path in shm tcp; do
    for provider in rdmux openmpi; do
        run_case "$provider $path mpi pingpong 8" peer_programs mpi "$provider" "$path" 2 pingpong 8 0.01
    done
done
for op in stream allreduce alltoall; do
    run_case "rdmux mpi $op" peer_programs mpi rdmux shm 2 "$op" 1K 0.01
done

# over_adapter PROVIDER: one figure over an adapter.
over_adapter() {
    timeout 240 "$programs/over_adapter" "$1" --op send --test latency --size 8 --seconds 0.01 |
        jq -e --arg adapter "${1%%:*}" '.path.provider == $adapter and .latency_us.p50 > 0' >/dev/null
}
if [[ -e $build/lib/rdmux/rdmux-ofi.so ]]; then
    for provider in net shm; do
        tap "rdmux over ofi, $provider" over_adapter "ofi:$provider"
    done
else
    tap_skip "rdmux over ofi" "rdmux-ofi.so was not built: libfabric is missing"
fi
if [[ -e $build/lib/rdmux/rdmux-ucx.so ]]; then
    tap "rdmux over ucx" over_adapter ucx
    for what in pingpong:8 stream:64K; do
        run_case "ucx tcp-watched ${what/:/ }" peer_ucx tcp-watched "${what%:*}" "${what#*:}" 0.01
    done
else
    tap_skip "rdmux over ucx" "rdmux-ucx.so was not built: UCX is missing"
fi

# In a network of 1,000 ports, which 500 endpoints exhaust: the error names the cause, and no
# process stays that would keep the pipe open.
out_of_ports() {
    local output
    # shellcheck disable=SC2016
    output=$(timeout 240 "$@" sh -c 'ip link set lo up && echo 32768 33767 >/proc/sys/net/ipv4/ip_local_port_range &&
        "$1" tcp 600' sh "$programs/idle_endpoints" 2>&1) && return 1
    printf '%s\n' "$output"
    grep -q ' of 600 are connected.*net.ipv4.ip_local_port_range' <<<"$output"
}
name="where ports run out, idle_endpoints ends and says so"
way=()
for try in "unshare --net" "unshare --user --map-root-user --net"; do
    # shellcheck disable=SC2086
    ! $try sh -c 'ip link set lo up && test -w /proc/sys/net/ipv4/ip_local_port_range' 2>/dev/null ||
        read -r -a way <<<"$try"
    ((${#way[@]} == 0)) || break
done
if ((${#way[@]} > 0)); then
    tap "$name" out_of_ports "${way[@]}"
else
    tap_skip "$name" "no network namespace of its own"
fi
# In a network whose congestion control is BBR: ss(8) output of the sockets during a transfer.
congestion_of_raw() {
    # shellcheck disable=SC2016
    timeout 240 "${way[@]}" sh -c 'ip link set lo up
        echo bbr >/proc/sys/net/ipv4/tcp_congestion_control || exit 1
        "$1" stream 1M 1 $3 >/dev/null &
        sockets=
        while kill -0 $! && [ -z "$sockets" ]; do sockets=$(ss -tinH | grep -E "bytes_sent:[0-9]{7}"); done
        wait
        echo "$sockets"
        [ "$(echo "$sockets" | grep -cw "$2")" -gt 0 ]' sh "$programs/raw_tcp" "$@" 2>/dev/null
}

for control in "reno:raw_tcp is not paced by BBR" "bbr system:raw_tcp is paced as the system has it where that is asked for"; do
    if ((${#way[@]} == 0)) || ! have ss || ! "${way[@]}" sh -c \
        'echo bbr >/proc/sys/net/ipv4/tcp_congestion_control' 2>/dev/null; then
        tap_skip "${control#*:}" "no network namespace of its own, no ss, or no BBR"
        continue
    fi
    read -r -a words <<<"${control%%:*}"
    tap "${control#*:}" congestion_of_raw "${words[@]}"
done

# ------------------------------------------------------------------------------------- the judge

# summary GOALS SAMPLES [EXPLAINED]: judges one row of a value in us; SAMPLES is an object of
# arrays, whose texts are failures.
summary() {
    jq -n --argjson goals "$1" --argjson samples "$2" --argjson explained "${3:-"{}"}" '
        {rows: [{id: "row", group: "g", what: "w", unit: "us", better: "less", goals: $goals}],
         $explained,
         samples: [$samples | to_entries[] | .key as $subject | .value | to_entries[]
                   | {id: "row", $subject, size: 8} +
                     if .value | type == "string" then {failed: .value}
                     else {round: .key, value: .value, operations: 1, cpu_seconds: 1} end]}' |
        jq -f "$root/tests/bench/summary.jq"
}
judge() {
    summary "$@" | jq -r .verdict
}
judged() {
    local verdict
    verdict=$(judge "${@:2}")
    echo "the verdict was: $verdict"
    [[ $verdict == "$1" ]]
}
tap "a ratio at its limit is met" judged met \
    '[{"of": "raw", "most": 1.5}]' '{"raw": [2, 4, 1], "rdmux": [3, 1, 9]}'
tap "ratios are those of a round, whatever the machine does between rounds" judged met \
    '[{"of": "raw", "most": 1.1}]' '{"raw": [10, 30, 30], "rdmux": [11, 33, 60]}'
tap "a ratio beyond its limit is missed" judged MISSED \
    '[{"of": "raw", "most": 1.4}]' '{"raw": [2], "rdmux": [3]}'
tap "an explained one is told as such" judged "missed, explained" \
    '[{"most": 2}]' '{"rdmux": [3]}' '{"row": {"against": {"itself": 4}, "because": "measured"}}'
tap "an explanation is for the goals that it names" judged MISSED \
    '[{"most": 2}, {"of": "ucx", "most": 1}]' '{"rdmux": [3], "ucx": [2]}' \
    '{"row": {"against": {"ucx": 3}, "because": "measured"}}'
tap "an explanation ends where it says" judged MISSED \
    '[{"most": 2}]' '{"rdmux": [5]}' '{"row": {"against": {"itself": 4}, "because": "measured"}}'
tap "and covers what is at its end" judged "missed, explained" \
    '[{"most": 2}]' '{"rdmux": [4]}' '{"row": {"against": {"itself": 4}, "because": "measured"}}'
tap "beside a subject it ends at a ratio" judged MISSED \
    '[{"of": "raw", "most": 1.1}]' '{"raw": [10, 10, 10], "rdmux": [12, 14, 15]}' \
    '{"row": {"against": {"raw": 1.3}, "because": "measured"}}'
tap "that may be worse than the goal in one round of three" judged "missed, explained" \
    '[{"of": "raw", "most": 1.1}]' '{"raw": [10, 10, 10], "rdmux": [12, 12, 15]}' \
    '{"row": {"against": {"raw": 1.3}, "because": "measured"}}'
tap "more is better where the goal is the least" judged MISSED \
    '[{"of": "raw", "least": 0.9}]' '{"raw": [10], "rdmux": [6]}' \
    '{"row": {"against": {"raw": 0.7}, "because": "measured"}}'
tap "and less than the goal is explained down to its end" judged "missed, explained" \
    '[{"of": "raw", "least": 0.9}]' '{"raw": [10], "rdmux": [8]}' \
    '{"row": {"against": {"raw": 0.7}, "because": "measured"}}'
tap "an explanation without an end covers nothing" judged MISSED \
    '[{"most": 2}]' '{"rdmux": [3]}' '{"row": {"against": {"itself": null}, "because": "measured"}}'
tap "a row that is explained and met is met" judged met \
    '[{"most": 3}]' '{"rdmux": [3]}' '{"row": {"against": {"itself": 4}, "because": "measured"}}'
tap "what could not be measured fails" judged FAILED \
    '[{"most": 3}]' '{"raw": [3]}' '{"row": {"against": {"itself": 4}, "because": "measured"}}'
tap "a goal against a peer that is not here is left out" judged met \
    '[{"of": "ucx", "most": 1}, {"most": 4}]' '{"rdmux": [3]}'
tap "nor is one against a peer that fails" judged met \
    '[{"of": "ucx", "most": 1}, {"most": 4}]' '{"rdmux": [3], "ucx": ["no device"]}'
tap "without its raw limit a row is not judged" judged "not judged" \
    '[{"of": "raw", "most": 1}, {"most": 4}]' '{"rdmux": [3], "raw": ["no memory"]}'
tap "whatever else it has" judged "not judged" '[{"of": "raw", "most": 1}]' '{"rdmux": [3]}'
tap "what it misses all the same is missed" judged MISSED \
    '[{"of": "raw", "most": 1}, {"most": 2}]' '{"rdmux": [3], "raw": ["no memory"]}'
tap "a raw limit that fails is no matter where no goal is about it" judged met \
    '[{"most": 4}]' '{"rdmux": [3], "raw": ["no memory"]}'
# reports TEXT GOALS SAMPLES [EXPLAINED]: a line of the report
reports() {
    summary "${@:2}" | jq -s . | jq -r --slurpfile machine <(jq -n '{load_at_start: [0.1, 0.1, 0.1]}') \
        -f "$root/tests/bench/report.jq" | tee "$scratch/report"
    grep -qxF -- "$1" "$scratch/report"
}
tap "a peer that failed is named" reports "failed to run: row: UCX: no device" \
    '[{"most": 4}]' '{"rdmux": [3], "ucx": ["no device", "no device"]}'
tap "and a raw limit that failed" reports "failed to run: row: the raw limit: no memory" \
    '[{"of": "raw", "most": 1}]' '{"rdmux": [3], "raw": ["no memory"]}'
tap "a row that is not judged is named" reports "not judged: row: the raw limit could not be measured" \
    '[{"of": "raw", "most": 1}]' '{"rdmux": [3], "raw": ["no memory"]}'
tap "what was measured beyond an explanation's end is told" reports \
    "MISSED: row: <= 1.1 x raw: it is 1.4, and the explanation ends at 1.3" \
    '[{"of": "raw", "most": 1.1}]' '{"raw": [10], "rdmux": [14]}' \
    '{"row": {"against": {"raw": 1.3}, "because": "measured"}}'
tap "an absolute goal holds where the limit reaches it" judged MISSED \
    '[{"of": "raw", "least": 12, "reach": 20, "else": 0.5}]' '{"raw": [20], "rdmux": [11]}'
tap "and is in proportion where it does not" judged met \
    '[{"of": "raw", "least": 12, "reach": 20, "else": 0.5}]' '{"raw": [19], "rdmux": [10]}'
tap "the larger of a factor and a difference counts" judged met \
    '[{"of": "raw", "most": 1.1, "or_plus": 1}]' '{"raw": [2], "rdmux": [3]}'
tap "a spread is allowed where the goal says so" judged met \
    '[{"of": "ucx", "least": 1, "spread": true}]' '{"raw": [10, 20], "ucx": [10], "rdmux": [5]}'
tap "and nowhere else" judged MISSED \
    '[{"of": "ucx", "least": 1}]' '{"raw": [10, 20], "ucx": [10], "rdmux": [5]}'

# ------------------------------------------------------------------------------- the whole script

# In another folder, so that the target of a relative path shows.
whole() {
    local status=0
    (cd "$scratch" && "$root/scripts/bench" --build "$build" --rounds 1 --seconds 0.01 --json results.json \
        tcp-latency-8 shm-write-64k tcp-idle-memory tcp-connect) >"$scratch/out" 2>&1 || status=$?
    cat "$scratch/out"
    ((status < 2)) || return 1
    jq -e '(.rows | length == 4) and all(.rows[]; .medians.rdmux > 0)
           and (.machine.processor | length > 0) and ([.rows[].verdict] | index("FAILED") == null)' "$scratch/results.json" >/dev/null &&
        grep -q 'noise of this run.*load of the machine' "$scratch/out" || return 1
    # Each row has a goal, a raw limit, a spread and a verdict, or says that it has none.
    (($(awk -F' *\\| *' '$2 ~ /^(tcp|shm|idle|setup)$/ && NF == 16 && $4 && $5 && $6 && $7 && $15' "$scratch/out" |
        wc -l) == 4)) || return 1
    if grep -q '^MISSED' "$scratch/out"; then
        ((status == 1))
    else
        ((status == 0))
    fi
}
tap "scripts/bench measures, judges and keeps what it measured" whole
# keys FILE...: the recorded keys of results, as in the table.
keys() {
    jq -r 'keys[] as $key | .[$key] | if type == "object" then keys[] | "\($key).\(.)"
        elif type == "array" then .[] | keys[] | "\($key)[].\(.)" else $key end' "$@" | sort -u
}
documented() {
    awk -F'|' '/^## / { here = $0 == "## results.json" } here && /^\| \x60/ { print $2 }' \
        "$root/docs/performance/README.md" | grep -oE '[a-z]+(\[\])?(\.[a-z_]+)?' | sort -u
}
keys_are_told() {
    documented >"$scratch/documented"
    keys "$1" >"$scratch/keys"
    # Keys that only some runs have.
    diff <(grep -vxE "samples\[\]\.(failed|skipped)$2" "$scratch/documented") \
        <(grep -vxE "(samples|curves)\[\]\.(failed|skipped)" "$scratch/keys")
}
tap "the keys of what it wrote are those that are told" keys_are_told "$scratch/results.json" '|curves.*'
kept_keys_are_told() {
    local kept
    keys_are_told "$root/docs/performance/results.json" '' || return 1
    for kept in "$root"/docs/performance/groups/*.json; do
        [[ ! -e $kept ]] || keys_are_told "$kept" '|curves.*' || return 1
    done
}
tap "so are those of the runs that were kept" kept_keys_are_told
numbers() {
    jq -e '.format == 1 and (.machine | .rounds == 1 and .seconds_each == 0.01 and (.load_at_start | length == 3)
           and (.load_at_start + [.rounds, .seconds_each] | all(type == "number")))
           and all(.samples[]; .value + .size + .round | type == "number")' "$scratch/results.json" >/dev/null
}
tap "numbers are numbers" numbers
# In a copy of what --update reads and writes: the group's rows have the new run, the others the old one.
updates_a_group() {
    local copy=$scratch/copy results=docs/performance/RESULTS.md
    mkdir -p "$copy/tests" "$copy/docs"
    cp -r "$root/scripts" "$copy/" && cp -r "$root/tests/bench" "$copy/tests/" &&
        cp -r "$root/docs/performance" "$copy/docs/" || return 1
    # A verdict on runs this short says nothing, so neither does the exit status.
    "$copy/scripts/bench" fair --update --build "$build" --rounds 1 --seconds 0.01 >"$scratch/out" 2>&1 || true
    (cd "$copy" && jq -e '[.rows[].group] | unique == ["fair"]' docs/performance/groups/fair.json &&
        grep -qx '## The group fair, measured by itself' "$results" &&
        (($(grep -c '^| fair ' "$results") == $(jq '.rows | length' docs/performance/groups/fair.json))) &&
        (($(grep -c '^| tcp | half round trip, 8 B, polling' "$results") > 0)) &&
        cmp docs/performance/results.json "$root/docs/performance/results.json") || {
        cat "$scratch/out"
        return 1
    }
}
tap "scripts/bench --update GROUP replaces the rows of the group alone" updates_a_group
# Each line: the word that the text must name, then the arguments. All errors come before any
# measuring.
refusals() {
    local word line status
    while IFS=: read -r word line; do
        status=0
        # shellcheck disable=SC2086
        timeout 20 "$root/scripts/bench" $line >"$scratch/out" 2>"$scratch/refused" || status=$?
        if ((status != 2)) || [[ -s $scratch/out ]] || ! grep -qF -- "$word" "$scratch/refused"; then
            printf 'bench %s: status %s\n' "$line" "$status"
            cat "$scratch/out" "$scratch/refused"
            return 1
        fi
    done <<END
nothing-of-that-name:tcp nothing-of-that-name
$(jq -r '[.rows[].group] | unique | join(", ")' "$root/tests/bench/rows.json"):nothing-of-that-name
tcp-connections-10k:--quick tcp-connections-10k
tcp-connections-10k:tcp-latency-8 tcp-connections-10k --quick
--nonsense:--quick --nonsense
--rounds:--rounds
--rounds:--rounds 0
--rounds:--rounds=many
--seconds:--seconds 0.0
--seconds:--seconds -1
--json:--json $scratch/nowhere/results.json
--json:--json $scratch
--plots:--plots /proc/nowhere
--json:--curves
--update:--update tcp-latency-8
--update:--update tcp shm
--update:--update --quick
--build:--build $scratch
END
}
tap "scripts/bench refuses what it does not understand, with the reason" refusals
helps() {
    "$root/scripts/bench" --help | matches '^usage: ' && (($("$root/scripts/bench" --list | wc -l) > 30))
}
tap "scripts/bench tells how it is used, and its rows" helps
helps_without_jq() {
    local status=0 program
    mkdir "$scratch/few"
    for program in bash dirname cat; do
        ln -s "$(command -v "$program")" "$scratch/few/$program"
    done
    PATH=$scratch/few "$root/scripts/bench" --help | matches '^usage: ' || return 1
    PATH=$scratch/few "$root/scripts/bench" tcp 2>"$scratch/refused" || status=$?
    cat "$scratch/refused"
    ((status == 1)) && grep -q 'jq is missing; scripts/setup' "$scratch/refused"
}
tap "and without jq how it is used" helps_without_jq
# An explanation without a row, without a goal of the row, or that ends before the goal, is no
# explanation.
explanations_fit() {
    jq -ne --slurpfile table "$root/tests/bench/rows.json" \
        --slurpfile explained "$root/docs/performance/explained.json" '
        [$explained[0] | to_entries[] | . as $entry
         | [$table[0].rows[] | select(.id == $entry.key) | .goals[]] as $goals
         | select(($entry.value.because | length) == 0 or ($entry.value.against | length) == 0
                  or any($entry.value.against | to_entries[]; . as $bound
                         | [$goals[] | select((.of // "itself") == $bound.key)]
                         | length == 0 or ($bound.value | type) != "number"
                           or any(.[]; if .reach then $bound.value >= .else
                                       elif .most != null then $bound.value <= .most
                                       else $bound.value >= .least end))) | .key]
        | if length == 0 then true else error("explained.json: \(.)") end'
}
tap "each explanation is of goals that there are" explanations_fit
if have gnuplot; then
    draws() {
        mkdir "$scratch/plots" &&
            "$root/tests/bench/plot" "$root/docs/performance/results.json" "$scratch/plots" &&
            (($(grep -l 'rdmux' "$scratch"/plots/*.svg | wc -l) == 4))
    }
    tap "the curves are drawn" draws
else
    tap_skip "the curves are drawn" "gnuplot is missing"
fi
interrupted() {
    local pid left
    : >"$scratch/interrupted" # before it is looked at
    "$root/scripts/bench" --build "$build" --rounds 50 tcp-latency-8 >"$scratch/interrupted" 2>&1 &
    pid=$!
    until grep -q 'round 1' "$scratch/interrupted"; do
        kill -0 "$pid" || return 1
        read -r -t 0.05 _ < <(:) || true
    done
    left=$(pgrep -P "$pid" -f 'rdmux serve')
    [[ -n $left ]] || return 1
    kill -TERM "$pid"
    wait "$pid" && return 1
    ! kill -0 "$left" 2>/dev/null
}
tap "scripts/bench leaves no server behind when it is ended" interrupted
tap_end
