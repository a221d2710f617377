#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Tests the rdmux command as a user runs it; prints TAP.
#
#   run.sh           all cases
#   run.sh PATTERN   cases whose name matches the pattern (a bash regular expression)
#
# RDMUX is the command, RDMUX_TOOLS_BUILD the folder of tools_unit, receiver_unit, bad_client and
# bad_server (without them their cases are skipped). Needs jq.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
build=${RDMUX_BUILD:-$root/build/dev}
rdmux=${RDMUX:-$build/bin/rdmux}
helpers=${RDMUX_TOOLS_BUILD:-$build/tests/tools}
wanted=${1:-}
limit=240      # seconds for one command
end_limit=60   # seconds in which a server must have ended that was asked to
gone_limit=90  # seconds in which a dead or silent server must be noticed (liveness is 10 s)
unset RDMUX_PATHS RDMUX_LOG RDMUX_CAPTURE

[[ -x $rdmux ]] || die "there is no command $rdmux; build it, or name it in RDMUX"
have jq || die 'jq is not installed'

# ------------------------------------------------------------------------------------- for the cases

scratch=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-tools.XXXXXX")
received=$scratch/received

started=() # processes of this shell; its list of jobs would have those of the shell above, too

# end_processes: ends the processes that this shell has started.
end_processes() {
    local pid
    for pid in "${started[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
}

clean_up() {
    end_processes
    chmod -R u+rwX "$scratch" 2>/dev/null || true
    rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

fail() {
    printf '%s\n' "$*"
    exit 1
}

# start_server ARGUMENT...: serves on a free port; sets server (its process), log and address.
start_server() {
    log=$(mktemp "$scratch/server.XXXXXX")
    "$rdmux" serve 127.0.0.1:0 "$@" >"$log" 2>"$log.err" </dev/null &
    server=$!
    started+=("$server")
    local deadline=$((SECONDS + limit))
    until [[ -s $log ]] && read -r _ _ address <"$log"; do
        if ((SECONDS >= deadline)) || ! kill -0 "$server" 2>/dev/null; then
            fail "the server did not start: $(cat "$log" "$log.err")"
        fi
        sleep 0.02
    done
}

# await PID SECONDS: waits for a process of this shell; sets status to its exit status, or to "none"
# if it continues.
await() {
    local deadline=$((SECONDS + $2))
    status=none
    while kill -0 "$1" 2>/dev/null; do
        ((SECONDS <= deadline)) || return 0
        sleep 0.02
    done
    status=0
    wait "$1" || status=$?
}

# ends PID SECONDS: the same for a process that must end.
ends() {
    await "$@"
    [[ $status != none ]] || fail "process $1 has not ended after $2 s"
}

# stop_server: asks the server of this shell to end.
stop_server() {
    kill -TERM "$server"
    ends "$server" "$end_limit"
    [[ $status == 0 ]] || fail "the server ended with status $status after SIGTERM"
}

run() {
    timeout --kill-after=5 "$limit" "$rdmux" "$@"
}

# expect STATUS ARGUMENT...: the command ends with the status; its output is in $scratch/out and
# err.
expect() {
    local status=0
    run "${@:2}" >"$scratch/out" 2>"$scratch/err" || status=$?
    [[ $status == "$1" ]] || fail "rdmux ${*:2}: status $status instead of $1: $(
        cat "$scratch/out" "$scratch/err"
    )"
    keep_sample "${@:2}"
}

says() {
    grep -qiE -- "$2" "$scratch/$1" || fail "no \"$2\" in: $(cat "$scratch/$1")"
}

# json FILTER: the last command printed one JSON value that matches the filter. A start of jq takes a processor
# 0.05 s.
json() {
    jq -s -e "length == 1 and (.[0] | $1)" "$scratch/out" >/dev/null ||
        fail "not one JSON value with $1: $(cat "$scratch/out")"
}

# wait_until COMMAND...: repeats it until it succeeds.
wait_until() {
    local deadline=$((SECONDS + limit))
    until "$@"; do
        ((SECONDS < deadline)) || fail "never came true: $*"
        sleep 0.01
    done
}

# same A B: the files have the same contents.
same() {
    cmp "$1" "$2" || fail "$1 and $2 differ"
}

# check NAME COMMAND...: one case, if selected, in a subshell that ends the processes it started.
# bash ignores "set -e" in it, so each step reports its own failure.
check() {
    [[ ! $1 =~ $wanted ]] || tap "$1" in_case "${@:2}"
}

in_case() {
    started=()
    trap end_processes EXIT
    "$@"
}

sums() {
    (cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum)
}

# --------------------------------------------------------------------------------------- the cases

commands=(info serve explain perf copy top doctor demo)

help_of_each_command() {
    local command
    expect 0 --help
    for command in "${commands[@]}"; do
        says out "^  $command "
    done
    for command in "${commands[@]}"; do
        expect 0 "$command" --help
        says out "^usage: rdmux $command"
        [[ ! -s $scratch/err ]] || fail "help on standard error: $(cat "$scratch/err")"
    done
}

version() {
    expect 0 --version
    says out '^rdmux [0-9]+\.[0-9]+\.[0-9]+$'
}

wrong_arguments() {
    local line
    while IFS= read -r line; do
        # shellcheck disable=SC2086
        expect 2 $line
        [[ ! -s $scratch/out ]] || fail "rdmux $line: error on standard output"
        [[ -s $scratch/err ]] || fail "rdmux $line: no error text"
    done <<'END'

nonsense
info extra
info --nonsense
info --json=yes
serve one two
serve --receive
explain
explain a b
explain 127.0.0.1:1 --paths
perf
perf 127.0.0.1:1 --op nonsense --test rate
perf 127.0.0.1:1 --op send --test nonsense
perf 127.0.0.1:1 --op send --test rate --size x
perf 127.0.0.1:1 --op send --test rate --size -1
perf 127.0.0.1:1 --op send --test rate --size 1T
perf 127.0.0.1:1 --op send --test rate --size 99999999999999999999
perf 127.0.0.1:1 --op send --test rate --size 9M
perf 127.0.0.1:1 --op fetch_add --test rate --size 16
perf 127.0.0.1:1 --op send --test rate --seconds 0
perf 127.0.0.1:1 --op send --test rate --seconds nan
perf 127.0.0.1:1 --op send --test rate --iterations 0
perf 127.0.0.1:1 --op send --test rate --iterations 5 --seconds 5
perf 127.0.0.1:1 --op send --test rate --depth 0
perf 127.0.0.1:1 --op send --test rate --depth 2 --batch 3
perf 127.0.0.1:1 --op send --test rate --wait long
perf 127.0.0.1:1 --op send --test rate --memory none
copy
copy one
copy one two three
top extra
top --nonsense
doctor extra
doctor --nonsense
doctor --sysfs
demo one two
END
}

a_provider_that_does_not_exist() {
    expect 2 explain "$address" --paths nonsense
    says err nonsense
}

info_names_every_provider() {
    expect 0 info --json
    json '[.providers[].name] | contains(["shm", "ib", "roce", "iwarp", "tcp"])'
    json '.version | test("^[0-9]+\\.[0-9]+\\.[0-9]+$")'
    json '.paths | all(has("provider") and has("device") and has("usable") and has("reason")
          and has("text") and has("hint") and has("native") and has("emulated"))'
    json '.providers | map(select(.name == "tcp")) | .[0].usable'
    json '.paths | map(select(.usable | not)) | all(.text != "")'
    expect 0 info
    says out 'iwarp'
    says out 'absent'
}

explain_chooses_shm() {
    expect 0 explain "$address" --json
    json '.chosen.provider == "shm"'
    json '.candidates | map(select(.provider == "tcp")) | length > 0 and all(.reason != "CHOSEN"
          and .text != "")'
    json '.candidates | all(has("provider") and has("device") and has("stage") and has("reason")
          and has("text") and has("hint"))'
    expect 0 explain "$address"
    says out 'shm .*CHOSEN'
    says out 'tcp '
}

# fits: the last command's output has no line of more than 80 columns.
fits() {
    local columns
    columns=$(LC_ALL=C.UTF-8 wc -L <"$scratch/out")
    ((columns <= 80)) || fail "$columns columns: $(cat "$scratch/out")"
}

# The figures of shm and tcp are constants, unless --probe measures; absent kinds are one line.
explain_is_read_at_a_glance() {
    local line
    expect 0 explain "$address"
    fits
    line=$(sed -n 3p "$scratch/out")
    [[ $line =~ ^\ \ shm.*constant\ +CHOSEN ]] || fail "the third line is not the choice: $line"
    says out '^  tcp +[0-9.]+ us +constant +SLOWER'
    says out '^  absent: .*iwarp.*; --verbose'
    [[ $(grep -c iwarp "$scratch/out") == 1 ]] || fail 'iwarp has more than one line'
    ! grep -q '^  \(ofi\|ucx\) ' "$scratch/out" || fail "what was not asked for has lines: $(cat "$scratch/out")"
    [[ $(wc -l <"$scratch/out") -le 8 ]] || fail "too long: $(cat "$scratch/out")"
    expect 0 explain "$address" --verbose
    fits
    says out '^  iwarp +- +- +NO_(DEVICE|LIBRARY): '
    says out 'to do: '
    expect 0 explain "$address" --probe
    fits
    # Which one is faster depends on the machine's load meanwhile.
    line=$(grep -oE '^  (shm|tcp) .*s +measured +(CHOSEN|SLOWER)' "$scratch/out" |
        awk '{ print $NF }' | sort | xargs)
    [[ $line == 'CHOSEN SLOWER' ]] || fail "$(cat "$scratch/out")"
    expect 0 explain "$address" --probe --json
    json '.candidates | map(select(.rank > 0)) | length == 2 and all(.measured == true)'
    expect 0 explain "$address" --both --verbose
    fits
    says out 'this side \(connector\) +the peer \(acceptor\)'
    says out '^  shm +memory, .* memory, '
    says out '^  tcp +yes, .* yes, '
    says out '^  iwarp +not usable +not usable'
    expect 0 explain "$address" --json
    json '.candidates | map(select(.provider == "tcp")) | all(.measured == false
          and .here.latency_ns > 0 and .peer.latency_ns > 0)'
    expect 3 explain "$address" --paths ib
    fits
    says out '^  ib +- +- +NO_(DEVICE|LIBRARY): '
}

explain_with_a_filter() {
    expect 0 explain "$address" --paths tcp --json
    json '.chosen.provider == "tcp"'
    json '.candidates | map(select(.provider == "shm")) | length > 0 and all(.reason == "FILTERED"
          and .text != "")'
    RDMUX_PATHS=tcp expect 0 explain "$address" --json
    json '.chosen.provider == "tcp"'
    expect 0 explain "$address" --paths '!shm' --json
    json '.chosen.provider == "tcp"'
}

# ---- rdmux top

stats=$scratch/runtime/rdmux # where processes of the cases below share their counts
share() {
    XDG_RUNTIME_DIR=$scratch/runtime RDMUX_STATS=1 "$@"
}

# in_top FILTER: what rdmux top sees now matches the filter.
in_top() {
    share expect 0 top --json
    jq -e "$1" "$scratch/out" >/dev/null
}

# A client of one's own server, both of which share their counts, in the background; sets client. Its lines
# are in $scratch/shared.
start_shared() {
    rm -rf "$scratch/runtime"
    : >"$scratch/shared"
    mkdir -m 0700 "$scratch/runtime"
    share start_server
    XDG_RUNTIME_DIR=$scratch/runtime RDMUX_STATS=1 "$rdmux" perf "$address" --op write \
        --test bandwidth --size 4096 --paths tcp --seconds "$1" --interval 0.1 >"$scratch/shared" 2>&1 &
    client=$!
    started+=("$client")
}

top_shows_running_processes() {
    local both=".endpoints | map(select(.provider == \"tcp\" and .bytes_sent_per_second > 0
        and .pid == CLIENT)) | length > 0"
    start_shared 60
    wait_until in_top "${both/CLIENT/$client}"
    json ".processes == 2 and (.refused | length == 0)"
    json ".endpoints | map(.pid) | contains([$client, $server])"
    json ".endpoints[] | select(.pid == $client) | .peer == \"$address\" and .command == \"rdmux\"
        and .state == \"connected\" and .bytes_sent > 0 and .requests > 0 and .requests_per_second > 0
        and .retransmissions >= 0 and .ecn_marks >= 0 and .credits >= 0 and .failovers == 0"
    share expect 0 top --once
    fits
    says out "^ *$client rdmux +tcp +127.0.0.1:"
    says out "PID COMMAND +PATH +PEER +SENT/S RECV/S RETR +ECN CRED MOVES"
    [[ $(stat -c %a "$stats") == 700 ]] || fail 'others may enter the folder'
    [[ $(stat -c %a "$stats/"*.stats) == $'600\n600' ]] || fail "others may read: $(ls -l "$stats")"
    kill -KILL "$client" "$server"
    wait "$client" "$server" 2>/dev/null || true
    [[ -n $(ls "$stats") ]] || fail 'a killed process has removed its file'
    in_top '.processes == 0 and (.endpoints | length == 0)' || fail "$(cat "$scratch/out")"
    [[ -z $(ls -A "$stats") ]] || fail "what was killed is still there: $(ls -A "$stats")"
    share expect 0 top --once
    says out 'RDMUX_STATS=1'
}

# has_screens COUNT FILE: what a terminal got has that many screens at least.
has_screens() {
    (($(grep -c $'\033\\[H' "$2") >= $1))
}

# The client is measuring when it is told to end: it then closes what it has opened.
top_is_renewed_on_a_terminal() {
    start_shared 60
    wait_until grep -qE '^ +[0-9.]+ - ' "$scratch/shared"
    wait_until in_top '.endpoints | length == 2'
    : >"$scratch/screens"
    XDG_RUNTIME_DIR=$scratch/runtime RDMUX_STATS=1 script -qec "$rdmux top" /dev/null </dev/null >"$scratch/screens" 2>&1 &
    local shown=$!
    started+=("$shown")
    wait_until has_screens 2 "$scratch/screens"
    kill -TERM "$shown" "$client"
    wait "$shown" "$client" 2>/dev/null || true
    stop_server
    [[ -z $(ls -A "$stats") ]] || fail "the server has left something: $(ls -A "$stats")"
}

# refused NAME REASON: rdmux top believes nothing in this file, and says why.
refused() {
    share expect 0 top --json
    json '.endpoints | length == 0'
    json ".refused | map(select(.file == \"$1\" and (.reason | test(\"$2\")))) | length == 1"
    says err "$1.*$2.*left out"
    [[ -e $stats/$1 || -L $stats/$1 ]] || fail 'and it removes the file'
    rm -f "${stats:?}/$1"
}

# The file of a running process, and what can be wrong with a file.
top_believes_no_bad_file() {
    local good=$scratch/good.stats
    start_shared 60
    wait_until in_top '.endpoints | length == 2'
    cp -p "$stats/$client"-*.stats "$good"
    kill -TERM "$client"
    wait "$client" 2>/dev/null || true
    stop_server
    (umask 077 && head -c 100 "$good" >"$stats/cut.stats" && : >"$stats/empty.stats" &&
        head -c -1 "$good" >"$stats/short.stats" && head -c 4096 /dev/zero >"$stats/zeros.stats" &&
        head -c 1000000 /dev/zero >"$stats/large.stats" && mkfifo "$stats/fifo.stats" &&
        ln -s "$good" "$stats/link.stats" && cp "$good" "$stats/open.stats" &&
        cp "$good" "$stats/other.stats" && cp "$good" "$stats/many.stats")
    chmod 0644 "$stats/open.stats"
    printf 2 | dd of="$stats/other.stats" bs=1 seek=7 conv=notrunc status=none
    printf '\377\377\377\377' | dd of="$stats/many.stats" bs=1 seek=8 conv=notrunc status=none
    refused cut.stats 'it has 100 bytes'
    refused empty.stats 'it has 0 bytes'
    refused short.stats 'do not fit 1 endpoints'
    refused zeros.stats 'not a file of rdmux'
    refused large.stats 'it has 1000000 bytes, more than'
    refused fifo.stats 'it is not a file'
    refused link.stats 'symbolic link'
    refused open.stats 'others have access to it: its mode is 644'
    refused other.stats 'another version of rdmux'
    refused many.stats 'do not fit 4294967295 endpoints'
    if [[ $(id -u) == 0 ]]; then
        cp -p "$good" "$stats/theirs.stats"
        chown 65534 "$stats/theirs.stats"
        refused theirs.stats 'it belongs to user 65534'
    fi
    chmod 0755 "$stats"
    share expect 1 top --json
    says err 'others have access to it: its mode is 755'
    rm -rf "$stats"
    ln -s "$scratch" "$stats"
    share expect 1 top --json
    rm "$stats"
    share expect 0 top --json
    json '.processes == 0'
}

explain_without_a_path() {
    expect 3 explain "$address" --paths iwarp --json
    json '.chosen == null and (.candidates | length > 0)'
    says err NO_PATH
    expect 3 explain "$address" --paths iwarp
    says err NO_PATH
    says out iwarp
}

no_path_for_the_others() {
    expect 3 perf "$address" --op send --test rate --paths iwarp
    says err NO_PATH
    says err 'iwarp.*[A-Z_]+'
    expect 3 copy "$here/run.sh" "$address" --paths iwarp
    says err NO_PATH
}

nobody_listens() {
    start_server
    stop_server
    local line
    while IFS= read -r line; do
        # shellcheck disable=SC2086
        expect 1 $line
        says err "$address: RDMUX_REFUSED: connection refused: nothing listens on port ${address##*:}"
        says err 'is "rdmux serve" running there'
        ! grep -qE 'loopback|rdmux_[a-z]' "$scratch/err" || fail "$(cat "$scratch/err")"
        [[ $(grep -o refused "$scratch/err" | wc -l) == 1 && $(wc -l <"$scratch/err") == 1 ]] ||
            fail "more than once: $(cat "$scratch/err")"
    done <<END
explain $address
perf $address --op send --test rate
copy $here/run.sh $address
END
}

a_port_in_use() {
    expect 1 serve "$address"
    says err "${address##*:}"
    says err 'in use'
    [[ ! -s $scratch/out ]] || fail "it says: $(cat "$scratch/out")"
}

a_folder_that_does_not_exist() {
    expect 1 serve 127.0.0.1:0 --receive "$scratch/nowhere"
    says err nowhere
}

perf_keys='has("op") and has("test") and has("size") and (.path | has("provider") and has("device"))
    and (.iterations > 0) and has("latency_kind") and has("latency_us")
    and (.messages_per_second > 0) and (.bytes_per_second >= 0)
    and (.cpu_seconds | has("client") and has("server")) and has("verified")
    and (.timer | IN("clock", "cycle_counter", "groups")) and (.group_size >= 1)
    and has("batch") and has("depth") and has("wait") and has("memory")'

# perf OP TEST PATH WAIT OPTION...
perf() {
    expect 0 perf "$address" --op "$1" --test "$2" --size 8 --paths "$3" --wait "$4" --iterations 500 \
        --verify --json "${@:5}"
    local filter="$perf_keys
        and .op == \"$1\" and .test == \"$2\" and .path.provider == \"$3\" and .wait == \"$4\"
        and .verified == true and .iterations == 500"
    if [[ $2 == latency ]]; then
        filter+='
            and (.latency_us | .min > 0 and .min <= .p50 and .p50 <= .p99 and .p99 <= .p999 and .p999 <= .max)'
        case $1 in
        send | write | send_imm | write_imm) filter+=' and .latency_kind == "half_round_trip"' ;;
        *) filter+=' and .latency_kind == "round_trip"' ;;
        esac
    fi
    json "$filter"
}

# json_of_each NUMBER FILTER: the commands whose outputs are together in $scratch/each printed so many JSON values,
# and each matches the filter.
json_of_each() {
    jq -s -e "length == $1 and all($2)" "$scratch/each" >/dev/null ||
        fail "not $1 JSON values, each with $2: $(cat "$scratch/each")"
}

perf_sizes() {
    local size depth count=0
    : >"$scratch/each"
    for size in 0 1 65 4095 65536 8M; do
        for depth in 1 7 64; do
            expect 0 perf "$address" --op "$1" --test bandwidth --paths "$2" --iterations 40 \
                --size "$size" --depth "$depth" --batch "$(((depth + 1) / 2))" --verify --json
            cat "$scratch/out" >>"$scratch/each"
            count=$((count + 1))
        done
        expect 0 perf "$address" --op "$1" --test latency --paths "$2" --iterations 20 \
            --size "$size" --verify --json
        cat "$scratch/out" >>"$scratch/each"
        count=$((count + 1))
    done
    json_of_each "$count" '.verified and .iterations == (if .test == "latency" then 20 else 40 end)'
}

perf_without_verify() {
    local op test
    : >"$scratch/each"
    for op in $ops; do
        for test in latency bandwidth rate; do
            expect 0 perf "$address" --op "$op" --test "$test" --size 8 --iterations 2000 --batch 8 \
                --memory allocated --json
            cat "$scratch/out" >>"$scratch/each"
        done
    done
    json_of_each 21 '.verified == false and .memory == "allocated" and .batch == 8'
}

perf_for_a_time() {
    expect 0 perf "$address" --op send --test rate --seconds 3.2 --json # by default it is 3
    json '.seconds >= 3.2 and .iterations > 0'
    expect 0 perf "$address" --op read --test latency --seconds 0.5 --json
    json '.seconds >= 0.5 and .iterations > 0'
    expect 0 perf "$address" --op send --test latency --seconds 0.2
    says out 'half round trip +min'
    expect 0 perf "$address" --op write --test bandwidth --seconds 0.2 --size 1M
    says out 'bandwidth +[0-9.]+ .?B/s'
}

many_clients() {
    local i pids=() pid
    for i in 1 2 3 4 5 6 7 8; do
        case $((i % 4)) in
        0) run perf "$address" --op send --test latency --iterations 2000 --verify ;;
        1) run perf "$address" --op write --test rate --iterations 5000 --verify --wait sleep ;;
        2) run perf "$address" --op fetch_add --test rate --iterations 5000 --paths tcp --verify ;;
        3) run copy "$scratch/tree" "$address" --as "many-$i" ;;
        esac >"$scratch/many.$i" 2>&1 &
        pids+=($!)
        started+=($!)
    done
    for i in 1 2 3 4 5 6 7 8; do
        pid=${pids[i - 1]}
        ends "$pid" "$limit"
        [[ $status == 0 ]] || fail "client $i failed: $(cat "$scratch/many.$i")"
    done
}

copy_of_a_file() {
    head -c 5000000 /dev/urandom >"$scratch/file"
    chmod 0640 "$scratch/file"
    expect 0 copy "$scratch/file" "$address" --paths "$1" --json
    json ".path.provider == \"$1\" and .files == 1 and .bytes == 5000000 and .verified"
    same "$scratch/file" "$received/file"
    [[ $(stat -c %a "$received/file") == 640 ]] || fail 'its mode is another'
    if jq -e '.checksum.algorithm == "sha256"' "$scratch/out" >/dev/null; then
        json ".checksum.value == \"$(sha256sum <"$received/file" | cut -d' ' -f1)\""
    fi
    : >"$scratch/empty"
    expect 0 copy "$scratch/empty" "$address" --paths "$1"
    [[ -e $received/empty && ! -s $received/empty ]] || fail 'an empty file is not the same'
    rm "$received/file" "$received/empty"
}

make_tree() {
    local tree=$scratch/tree i
    mkdir -p "$tree/deep/er/and deeper" "$tree/empty"
    for i in {1..300}; do
        head -c $((i * 37)) /dev/urandom >"$tree/deep/small.$i"
    done
    head -c 3000000 /dev/urandom >"$tree/deep/er/large"
    printf 'x' >"$tree/deep/er/and deeper/name with blanks, \"quotes\" and ümläuts"
    printf 'run me' >"$tree/script"
    chmod 0755 "$tree/script"
    chmod 0500 "$tree/deep/er"
    ln -s ../script "$tree/deep/link"
    ln -s /etc/passwd "$tree/absolute"
    ln -s ../../../../etc/passwd "$tree/upwards"
    mkfifo "$tree/fifo"
}

copy_of_a_tree() {
    expect 0 copy "$scratch/tree" "$address" --paths "$1" --json
    json '.files == 303 and .links == 1 and .skipped == 3 and .directories == 5 and .verified'
    says err 'skipped .*absolute'
    diff <(sums "$scratch/tree") <(sums "$received/tree") || fail 'the contents differ'
    [[ $(readlink "$received/tree/deep/link") == ../script ]] || fail 'the link is another'
    [[ $(stat -c %a "$received/tree/deep/er") == 500 ]] || fail 'a mode is another'
    [[ -x $received/tree/script && -d $received/tree/empty ]] || fail 'a mode is another'
    [[ ! -e $received/tree/absolute && ! -e $received/tree/upwards ]] || fail 'a link leads out'
    chmod -R u+w "$received/tree"
    rm -r "$received/tree"
}

a_copy_twice_replaces_the_first() {
    printf 'one' >"$scratch/twice"
    expect 0 copy "$scratch/twice" "$address"
    printf 'two' >"$scratch/twice"
    expect 0 copy "$scratch/twice" "$address"
    says out 'the same at the far end'
    same "$scratch/twice" "$received/twice"
}

copy_without_receive() {
    start_server
    expect 1 copy "$here/run.sh" "$address"
    says err '--receive'
    stop_server
}

copies_that_lead_outside() {
    local name
    mkdir -p "$scratch/outside"
    ln -sfn "$scratch/outside" "$received/way"
    printf 'evil' >"$scratch/evil"
    for name in ../evil-copy a/../../evil-copy /tmp/rdmux-evil-copy way/evil-copy . .. a//b; do
        expect 1 copy "$scratch/evil" "$address" --as "$name"
        says err 'the server says'
    done
    rm "$received/way"
    [[ -z $(ls "$scratch/outside") && ! -e $scratch/evil-copy && ! -e /tmp/rdmux-evil-copy ]] ||
        fail 'a file was written outside'
    expect 0 explain "$address"
}

sources_that_cannot_be_copied() {
    expect 1 copy "$scratch/nothing-here" "$address"
    says err nothing-here
    expect 1 copy /dev/null "$address"
    says err /dev/null
    expect 1 copy / "$address"
    says err '--as'
}

# part_file DIR: the server of this shell has an unfinished file in DIR, named or unnamed.
part_file() {
    compgen -G "$1/.rdmux-*.part" >/dev/null ||
        [[ -n $(find "/proc/$server/fd" -lname "$1/#* (deleted)" 2>/dev/null) ]]
}

no_part_file() {
    ! part_file "$1"
}

# start_long_copy DIR PATH: starts a long copy to the server of this shell; its process is $copy. On
# return the copy is in progress.
start_long_copy() {
    truncate -s 64G "$scratch/long"
    "$rdmux" copy "$scratch/long" "$address" --paths "$2" >"$scratch/out" 2>"$scratch/err" &
    copy=$!
    started+=("$copy")
    wait_until part_file "$1"
}

# The client of start_long_copy must give up within gone_limit seconds, with a reason.
copy_gives_up() {
    ends "$copy" "$gone_limit"
    [[ $status == 1 ]] || fail "the client ended with status $status: $(cat "$scratch/err")"
    says err "$address.*(PEER_GONE|FLUSHED|TIMED_OUT)"
}

the_server_dies() {
    local folder
    folder=$(mktemp -d "$scratch/dies.XXXXXX")
    start_server --receive "$folder"
    start_long_copy "$folder" "$1"
    kill -KILL "$server"
    copy_gives_up
    rm -r "$folder"
}

the_server_stops() {
    local folder
    folder=$(mktemp -d "$scratch/stops.XXXXXX")
    start_server --receive "$folder"
    start_long_copy "$folder" "$1"
    kill -STOP "$server"
    copy_gives_up
    kill -KILL "$server"
    rm -r "$folder"
}

the_client_dies() {
    local folder
    folder=$(mktemp -d "$scratch/client.XXXXXX")
    start_server --receive "$folder"
    start_long_copy "$folder" "$1"
    kill -KILL "$copy"
    wait "$copy" 2>/dev/null || true
    wait_until grep -q 'ended' "$log.err"
    expect 0 explain "$address"
    stop_server # until then it keeps the part of the file, for the client to continue
    [[ -z $(ls -A "$folder") ]] || fail 'the server left something behind'
    rmdir "$folder"
}

the_server_ends_in_order() {
    local signal
    for signal in TERM INT; do
        start_server
        run perf "$address" --op send --test latency --seconds 30 >/dev/null 2>"$scratch/err" &
        local client=$!
        started+=("$client")
        wait_until grep -q 'perf send' "$log.err"
        kill "-$signal" "$server"
        ends "$server" "$end_limit"
        [[ $status == 0 ]] || fail "status $status after SIG$signal"
        ends "$client" "$gone_limit"
        [[ $status == 1 ]] || fail "the client ended with status $status"
    done
}

misbehaves() {
    timeout --kill-after=5 "$limit" "$helpers/bad_client" "$address" "$1" || fail 'it went on'
    [[ ! -e $scratch/rdmux-evil && ! -e /tmp/rdmux-evil && ! -e $received/rdmux-evil ]] ||
        fail 'a file was written'
    expect 0 perf "$address" --op send --test latency --iterations 10 --verify
    wait_until no_part_file "$received"
}

misbehaves_beside_another() {
    local way
    run perf "$address" --op send --test rate --seconds 3 --verify --json >"$scratch/beside" \
        2>"$scratch/beside.err" &
    local other=$!
    started+=("$other")
    for way in garbage_instead_of_a_request a_message_of_the_wrong_size garbage_instead_of_records; do
        timeout --kill-after=5 "$limit" "$helpers/bad_client" "$address" "$way" || fail "$way"
    done
    ends "$other" "$limit"
    [[ $status == 0 ]] || fail "the other client failed: $(cat "$scratch/beside" "$scratch/beside.err")"
    jq -e .verified "$scratch/beside" >/dev/null || fail 'it was not verified'
}

demo_of_everything() {
    export TMPDIR=$scratch/demo
    mkdir "$TMPDIR"
    expect 0 demo "$scratch/tree"
    says out 'read once before'
    says out 'CHOSEN'
    says out 'the same at the far end'
    says out 'half round trip'
    says out 'bandwidth'
    RDMUX_PATHS=tcp expect 0 demo --json
    json '.explanation.chosen.provider == "tcp" and .copy.verified and .latency.latency_us.p50 > 0
          and .bandwidth.bytes_per_second > 0'
    [[ -z $(ls -A "$TMPDIR") ]] || fail "the demo left $(ls -A "$TMPDIR") behind"
}

# hold KIND COUNT: another client holds this many idle sessions with the server of this shell.
hold() {
    mkfifo "$scratch/hold.$1"
    # bad_client has the reading end; the writing end is this shell's and closes with it.
    "$helpers/bad_client" "$address" --hold "$1" "$2" <"$scratch/hold.$1" >"$scratch/held.$1" 2>&1 &
    holder=$!
    started+=("$holder")
    exec 7>"$scratch/hold.$1"
    rm "$scratch/hold.$1"
    wait_until grep -q held "$scratch/held.$1"
}

# good_clients: ten clients work at the same time.
good_clients() {
    local i pid pids=()
    for i in 1 2 3 4 5 6 7 8 9 10; do
        run perf "$address" --op send --test latency --iterations 10 --verify \
            >"$scratch/good.$i" 2>&1 &
        pids+=($!)
    done
    for i in "${!pids[@]}"; do
        wait "${pids[i]}" || fail "a good client: $(cat "$scratch/good.$((i + 1))")"
    done
}

# idle_sessions_keep_nobody_out KIND COUNT [OPTION...]
idle_sessions_keep_nobody_out() {
    start_server "${@:3}"
    hold "$1" "$2"
    good_clients
    stop_server
}

memory_that_is_held_keeps_nobody_out() {
    start_server
    hold memory 15
    expect 0 perf "$address" --op write --test bandwidth --iterations 10 --size 8M --verify
    stop_server
}

an_idle_session_is_ended() {
    start_server --idle 5 # so long a new client may take to ask, too
    timeout --kill-after=5 "$limit" "$helpers/bad_client" "$address" --idle >"$scratch/out" ||
        fail "$(cat "$scratch/out")"
    says out 'nothing came for 5 s'
    stop_server
}

# sleeps MORE: the main thread of the server has gone to sleep this many times.
sleeps() {
    [[ $(sed -n 's/^voluntary_ctxt_switches:\s*//p' "/proc/$server/task/$server/status") -ge $1 ]]
}

an_idle_poller_lets_the_server_sleep() {
    local before
    start_server
    hold "$1" 1
    before=$(sed -n 's/^voluntary_ctxt_switches:\s*//p' "/proc/$server/task/$server/status")
    wait_until sleeps $((before + 50))
    stop_server
}

a_flood_does_not_fill_the_log() {
    local begin=$SECONDS lines
    start_server
    "$helpers/bad_client" "$address" --repeat 150 >"$scratch/out" || fail "$(cat "$scratch/out")"
    lines=$(wc -l <"$log.err")
    ((lines <= 64 * ((SECONDS - begin) / 10 + 2))) || fail "$lines lines: $(tail -n 3 "$log.err")"
    ((lines >= 64)) || fail "only $lines lines"
    stop_server
}

the_log_shows_no_bytes_of_a_peer_as_they_are() {
    start_server --receive "$received"
    "$helpers/bad_client" "$address" a_path_with_forged_lines_and_escapes >"$scratch/out" ||
        fail "$(cat "$scratch/out")"
    stop_server
    grep -qF 'forged' "$log.err" || fail "$(cat -v "$log.err")"
    ! LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' "$log.err" || fail "$(cat -v "$log.err")"
    ! grep -qvE '^rdmux serve: client 1 ' "$log.err" || fail "$(cat -v "$log.err")"
}

a_server_that_authenticates_opens_no_other_port() {
    printf 'anna:%s\n' "$(printf '%064d' 7)" >"$scratch/keys"
    chmod 600 "$scratch/keys"
    start_server --auth psk --key-file "$scratch/keys"
    "$helpers/bad_client" "$address" --cases "$scratch/keys" >"$scratch/out" ||
        fail "$(cat "$scratch/out")"
    says out 'without authentication'
    [[ -z $(pgrep -P "$server") ]] || fail 'it has started a process'
    stop_server
}

one_address_has_half_of_the_sessions() {
    start_server
    "$helpers/bad_client" "$address" --sessions 4 >"$scratch/out" || fail "$(cat "$scratch/out")"
    says out 'of this address'
    stop_server
}

a_limit_on_files_is_an_error_of_the_client() {
    local folder
    folder=$(mktemp -d "$scratch/limited.XXXXXX")
    truncate -s 40M "$scratch/too-long"
    ulimit -S -f 32768 # KiB; of this shell and the server
    start_server --receive "$folder"
    ulimit -S -f unlimited
    expect 1 copy "$scratch/too-long" "$address"
    says err 'ulimit -f'
    expect 0 copy "$here/run.sh" "$address"
    [[ $(ls -A "$folder") == run.sh ]] || fail "$(ls -A "$folder")"
    stop_server
    # Less than the server's buffers for a copy.
    ulimit -S -f 100
    start_server --receive "$folder"
    ulimit -S -f unlimited
    expect 1 copy "$here/run.sh" "$address" --as another
    says err 'ulimit -f'
    [[ $(ls -A "$folder") == run.sh ]] || fail "$(ls -A "$folder")"
    stop_server
}

# demo_under_way STEP: the demo has reached this step.
demo_under_way() {
    case $1 in
    input) compgen -G "$TMPDIR/rdmux-demo-*/input" >/dev/null ;;
    *) grep -q "$1" "$scratch/out" ;;
    esac
}

a_signal_ends_the_demo() {
    local signal whom step code demo children child
    export TMPDIR=$scratch/interrupted
    mkdir "$TMPDIR"
    while read -r signal code whom step; do
        # The new process empties the file, perhaps after this shell has read in it what the last one said.
        : >"$scratch/out"
        # Below nohup(1) SIGHUP is ignored, and the demo leaves it so.
        setsid env --default-signal=HUP "$rdmux" demo >"$scratch/out" 2>"$scratch/err" &
        demo=$!
        started+=("$demo")
        wait_until demo_under_way "$step"
        mapfile -t children < <(pgrep -P "$demo")
        case $whom in
        all) # as a terminal does; the server is to end last, and so not by that
            ! pgrep -g "$demo" -f ' serve ' >/dev/null || fail 'a terminal signals the server, too'
            kill "-$signal" -- "-$demo"
            ;;
        *) kill "-$signal" "$demo" ;;
        esac
        ends "$demo" "$end_limit"
        [[ $status == "$code" ]] || fail "status $status after SIG$signal: $(cat "$scratch/err")"
        for child in "${children[@]}"; do
            ! kill -0 "$child" 2>/dev/null || fail "SIG$signal left process $child behind"
        done
        [[ -z $(ls -A "$TMPDIR") ]] || fail "SIG$signal left $(ls -A "$TMPDIR") behind"
        [[ ! -s $scratch/err ]] || fail "SIG$signal makes it say: $(cat "$scratch/err")"
    done <<'END'
TERM 143 one input
INT 130 one Latency
INT 130 all Latency
HUP 129 all Copy
END
}

# lines_of LEVEL: explains with this level, and counts the log's lines.
lines_of() {
    RDMUX_LOG=$1 expect 0 explain "$address" --probe --json
    # It is the one that was faster.
    json '[.candidates[] | select(.reason == "CHOSEN").provider] == [.chosen.provider]
          and (.chosen.provider | IN("shm", "tcp"))'
    grep -cE '^[0-9:]{8}\.[0-9]{6} rdmux \[[a-z]+\] [a-z]+: ' "$scratch/err" || true
}

the_log_goes_to_standard_error() {
    local debug trace step
    RDMUX_LOG=debug expect 0 info --json
    json '.paths | length > 0'
    [[ $(lines_of warn) == 0 ]] || fail "a run that went well warns: $(cat "$scratch/err")"
    debug=$(lines_of debug)
    for step in 'dials 127.0.0.1' 'offers .*shm memory' 'ranks shm memory' 'opens shm memory' \
        'connects shm memory' 'writes a proof' 'checks the proof' '(shm memory|tcp): CHOSEN'; do
        says err "negotiation: endpoint [0-9]+: .*$step"
    done
    trace=$(lines_of trace)
    says err 'control: endpoint [0-9]+: sends OFFER, [0-9]+ bytes'
    says err 'control: endpoint [0-9]+: receives RANKING, [0-9]+ bytes'
    ((trace > debug && debug > 10)) || fail "$debug lines at debug, $trace at trace"
    RDMUX_LOG="debug@negotiation" expect 0 explain "$address" --probe --json
    says err '^[0-9T:.-]+Z rdmux\[[0-9]+\] debug negotiation: '
    [[ $(grep -vc ' negotiation: ' "$scratch/err") == 0 ]] || fail "more than asked for"
}

# lines_in_a_program LEVEL: as lines_of, in a program that has no hook for the log.
lines_in_a_program() {
    RDMUX_LOG=$1 timeout --kill-after=5 "$limit" "$helpers/bad_client" "$address" \
        garbage_instead_of_a_request >"$scratch/out" 2>"$scratch/err" || fail "$(cat "$scratch/out")"
    grep -cE '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{6}Z rdmux\[[0-9]+\] [a-z]+ [a-z]+: ' \
        "$scratch/err" || true
}

the_log_goes_to_standard_error_in_any_program() {
    local debug trace step
    [[ $(lines_in_a_program warn) == 0 ]] || fail "it warns: $(cat "$scratch/err")"
    debug=$(lines_in_a_program debug)
    for step in 'dials 127.0.0.1' 'offers .*shm memory' 'ranks shm memory' 'opens shm memory' \
        'connects shm memory' 'writes a proof' 'checks the proof' 'shm memory: CHOSEN'; do
        says err "debug negotiation: endpoint [0-9]+: .*$step"
    done
    trace=$(lines_in_a_program trace)
    says err 'trace control: endpoint [0-9]+: sends OFFER, [0-9]+ bytes'
    ((trace > debug && debug > 10)) || fail "$debug lines at debug, $trace at trace"
}

# With a server and clients that log warnings, in the command's form and in the library's own.
a_run_that_goes_well_has_no_warning() {
    local setting
    for setting in warn warn@fabric,provider,negotiation,endpoint,listener,memory,failover,control; do
        export RDMUX_LOG=$setting
        start_server --receive "$(mktemp -d "$scratch/quiet.XXXXXX")"
        expect 0 explain "$address" --probe
        cat "$scratch/err" >>"$scratch/warnings"
        expect 0 perf "$address" --paths all --seconds 0.02
        cat "$scratch/err" >>"$scratch/warnings"
        expect 0 copy "$scratch/tree/deep/er" "$address"
        cat "$scratch/err" >>"$scratch/warnings"
        stop_server
        cat "$log.err" >>"$scratch/warnings"
    done
    ! grep -E 'rdmux \[(warn|error)\]|^[0-9T:.-]+Z rdmux\[' "$scratch/warnings" || fail 'it warns'
}

# The default address is one of loopback, which a stranger takes for a server that does not work.
a_server_on_loopback_says_so() {
    start_server
    grep -qxF "only processes of this host reach that address; \"rdmux serve 0.0.0.0:${address##*:}\" listens on all" \
        "$log" || fail "it says: $(cat "$log")"
    stop_server
    "$rdmux" serve 0.0.0.0:0 >"$log" 2>"$log.err" &
    server=$!
    started+=("$server")
    wait_until grep -q '^listening on 0.0.0.0:' "$log"
    [[ $(wc -l <"$log") == 1 ]] || fail "it says: $(cat "$log")"
    stop_server
}

# A client that only wants an explanation is no client that was dropped.
explaining_leaves_no_line_at_the_server() {
    local i
    start_server
    for i in 1 2 3 4 5; do
        expect 0 explain "$address" --probe
        expect 0 explain "$address"
    done
    stop_server
    [[ ! -s $log.err ]] || fail "the server says: $(cat "$log.err")"
}

unit() {
    local folder
    folder=$(mktemp -d "$scratch/unit.XXXXXX")
    "$helpers/$1" "$2" "$folder"
}

# shellcheck source=tests/tools/doctor.sh
. "$here/doctor.sh"
# shellcheck source=tests/tools/copy.sh
. "$here/copy.sh"
# shellcheck source=tests/tools/perf.sh
. "$here/perf.sh"
# shellcheck source=tests/tools/json.sh
. "$here/json.sh"
# shellcheck source=tests/tools/wireshark.sh
. "$here/wireshark.sh"

if [[ $wanted == --record ]]; then # wireshark.sh, in a network of its own
    record_session "$2"
    exit 0
fi

# ---------------------------------------------------------------------------------------- the plan

mkdir "$received"
make_tree
start_server --receive "$received"

check 'each command has a help' help_of_each_command
check 'the version is printed' version
check 'wrong arguments exit with 2 and a text' wrong_arguments
check 'an unknown provider in --paths exits with 2' a_provider_that_does_not_exist
check 'info names every provider, absent ones with a reason' info_names_every_provider
check 'the library log goes to standard error' the_log_goes_to_standard_error
check 'a run that goes well has no warning in its log' a_run_that_goes_well_has_no_warning
check 'a server on loopback says so, and how to listen for others' a_server_on_loopback_says_so
check 'an explanation is no line at the server' explaining_leaves_no_line_at_the_server
check 'explain chooses shm and gives tcp a reason' explain_chooses_shm
check 'explain fits 80 columns, names the choice first and folds what is absent' \
    explain_is_read_at_a_glance
check 'explain --paths tcp chooses tcp and gives shm a reason' explain_with_a_filter
check 'top shows the endpoints of running processes, and cleans up behind killed ones' \
    top_shows_running_processes
if have script; then
    check 'top is renewed on a terminal' top_is_renewed_on_a_terminal
else
    tap_skip 'top is renewed on a terminal' 'script (Debian: bsdutils) is not installed'
fi
check 'top believes no file that is cut, hostile, or that others may read or write' \
    top_believes_no_bad_file
capture_cases
points='the trace points of the library are those that are documented'
if why=$("$here/trace_points.sh" --can 2>&1); then
    check "$points" "$here/trace_points.sh"
else
    tap_skip "$points" "$why"
fi
check 'what has trace points compiles without sys/sdt.h' "$here/trace_points.sh" --without
check 'explain --paths iwarp exits with 3, NO_PATH and chosen null' explain_without_a_path
check 'perf and copy without a path exit with 3 and say why' no_path_for_the_others
check 'a server that is not there is named' nobody_listens
check 'a port in use is named' a_port_in_use
check 'a folder to receive in that is not there is named' a_folder_that_does_not_exist

for path in shm tcp; do
    for wait in poll sleep; do
        for op in $ops; do
            for test in latency bandwidth rate; do
                check "perf $op $test over $path, wait $wait, verified" \
                    perf "$op" "$test" "$path" "$wait"
            done
        done
    done
    for op in send write read send_imm write_imm; do
        check "perf $op of all sizes and depths over $path, verified" perf_sizes "$op" "$path"
    done
done
check 'perf in allocated memory and batches' perf_without_verify
check 'perf for a time' perf_for_a_time
perf_cases

for path in shm tcp; do
    check "copy of a file over $path" copy_of_a_file "$path"
    check "copy of a tree over $path" copy_of_a_tree "$path"
done
check 'a file copied twice is replaced' a_copy_twice_replaces_the_first
copy_cases
check 'eight clients at once' many_clients
check 'copy is refused by a server without --receive' copy_without_receive
check 'a copy that leads outside is refused' copies_that_lead_outside
check 'what cannot be copied is named' sources_that_cannot_be_copied
check 'a limit on the size of files is an error of the client' a_limit_on_files_is_an_error_of_the_client
plain_addresses_are_refused() {
    local plain=rdma://127.0.0.1:7174
    expect 2 explain "$plain" && says err 'programs that are not rdmux' &&
        expect 2 perf "$plain" --op send --test latency && says err 'programs that are not rdmux' &&
        expect 2 copy "$0" "$plain" && says err 'programs that are not rdmux' &&
        expect 2 serve "$plain" && says err 'programs that are not rdmux'
}

for path in shm tcp; do
    check "a server killed during a copy over $path is noticed" the_server_dies "$path"
    check "a server stopped during a copy over $path is noticed" the_server_stops "$path"
    check "a client killed during a copy over $path leaves nothing behind" the_client_dies "$path"
done
check 'a signal ends the server in order' the_server_ends_in_order

measuring='a fast adapter on a slow line is chosen by constants, and not with --probe'
if why=$("$here/slow_line.sh" --can 2>&1); then
    check "$measuring" "$here/slow_line.sh"
else
    tap_skip "$measuring" "$why"
fi

if [[ -x $helpers/bad_client ]]; then
    check 'RDMUX_LOG works in any program, with time stamps and the steps of negotiation' \
        the_log_goes_to_standard_error_in_any_program
    for way in $("$helpers/bad_client" --list); do
        check "a client that sends ${way//_/ } ends alone" misbehaves "$way"
    done
    check 'a test beside clients that misbehave goes on' misbehaves_beside_another
    check '64 sessions that ask for nothing keep nobody out' idle_sessions_keep_nobody_out silent 64
    check 'sessions that have asked and say nothing keep nobody out' \
        idle_sessions_keep_nobody_out polls 16 --max-clients 16
    check '80 repeated offers keep nobody out' idle_sessions_keep_nobody_out offers 80
    check 'memory that idle sessions hold keeps nobody out' memory_that_is_held_keeps_nobody_out
    check 'an idle session is ended' an_idle_session_is_ended
    check 'a client that asks for polling and sends nothing lets the server sleep' \
        an_idle_poller_lets_the_server_sleep polls
    check 'a client that asks for polling and reads nothing lets the server sleep' \
        an_idle_poller_lets_the_server_sleep reads
    check 'a flood of bad clients does not fill the log' a_flood_does_not_fill_the_log
    check 'the log shows no bytes of a peer as they are' the_log_shows_no_bytes_of_a_peer_as_they_are
    check 'a server that authenticates opens no port that does not' \
        a_server_that_authenticates_opens_no_other_port
    check 'one address has half of the conformance sessions at most' one_address_has_half_of_the_sessions
else
    tap_skip 'clients that misbehave end alone' "there is no $helpers/bad_client"
fi
for program in tools_unit receiver_unit; do
    if [[ -x $helpers/$program ]]; then
        for case in $("$helpers/$program" --list); do
            check "${case//_/ }" unit "$program" "$case"
        done
    else
        tap_skip 'the parts of the command' "there is no $helpers/$program"
    fi
done
doctor_cases
check 'addresses of rdma:// are refused with a reason' plain_addresses_are_refused
json_cases
check 'demo shows everything, in text and in JSON' demo_of_everything
check 'a signal ends the demo and leaves nothing behind' a_signal_ends_the_demo
schema_cases

kill -TERM "$server"
await "$server" "$end_limit"
check 'the server that served all this ends in order' test "$status" = 0

tap_end
