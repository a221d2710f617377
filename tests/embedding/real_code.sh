#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# The programs of examples/embedding over sockets and, unchanged, over streams.
#
#   real_code.sh                    all cases, as TAP
#   real_code.sh CASE PATH [KIND]   one case, say "real_code.sh frames_of_any_size shm stream"
#   real_code.sh --streams PATH     over streams of an adapter's path, the cases in which it matters, as TAP
#   real_code.sh --missing          names the packages without which a case is left out
# shellcheck source=tests/embedding/cases.bash
. "$(dirname "${BASH_SOURCE[0]}")/cases.bash"
programs=$examples/embedding

# went_over KIND TEXT
went_over() {
    if [[ $1 == socket ]]; then
        [[ $2 == *' over socket'* ]] || fail "not over a socket: $2"
    else
        went_over_path "$2"
    fi
}

# text SIZE FILE: the same text each time, of small letters and others.
text() {
    head -c "$1" < <(yes "the quick brown fox 0123456789 JUMPS over $1 lazy dogs") >"$2"
}

# ------------------------------------------------------------------------------------- framing

# The link is what differs between the versions of a program.
streams_need_few_lines_more() {
    local kind lines=() links=$root/examples/embedding/link
    for kind in socket stream; do
        "${CC:-cc}" -fpreprocessed -dD -E -P "$links/link_$kind.c" 2>/dev/null |
            grep -v '^[[:space:]]*$' >"$scratch/$kind"
        lines+=("$(wc -l <"$scratch/$kind")")
        sed -nE 's/^[a-z].*[ *](link_[a-z]+)\(.*/\1/p' "$links/link_$kind.c" |
            grep -vx "link_fd\|link_stream" >"$scratch/$kind.functions"
    done
    echo "${lines[0]} lines over sockets, ${lines[1]} over streams"
    (($(wc -l <"$scratch/socket.functions") >= 11)) || fail 'there are fewer functions'
    diff "$scratch/socket.functions" "$scratch/stream.functions"
    ((lines[1] - lines[0] <= 30)) || fail 'more than 30 lines more'
}

frames_of_any_size() {
    local size sizes=(0 1 4 4095 65535 65536 131064 131072 1000003) longest=67108864 files=()
    if over_adapter; then
        sizes=(0 4 65536 131072) longest=3000000
    fi
    for size in "${sizes[@]}" "$longest" 7; do
        text "$size" "$scratch/text.$size"
    done
    serve "$programs/rpc_$1" serve 127.0.0.1:0 2
    # In the order of sizes, and then backwards: what a large frame leaves is not in the way of a small one.
    mapfile -t files < <(printf '%s\n' "${sizes[@]}" "$longest" 7 && printf '%s\n' "${sizes[@]}" | tac)
    files=("${files[@]/#/$scratch/text.}")
    run "$programs/rpc_$1" call "$address" "${files[@]}" >"$scratch/answers" 2>"$scratch/said"
    same "$(sha256sum <"$scratch/answers")" "$(cat "${files[@]}" | tr '[:lower:]' '[:upper:]' | sha256sum)" answers
    went_over "$1" "$(<"$scratch/said")"
    run "$programs/rpc_$1" call "$address" "$scratch/text.4" >"$scratch/answers" 2>"$scratch/said"
    same "$(<"$scratch/answers")" 'THE ' 'a short answer'
    ends_well "$server"
}

many_callers_at_a_time() {
    local i callers=() texts=("$scratch"/text{,,,,,,,,,}) expected
    ! over_adapter || texts=("$scratch"/text{,,})
    text 300000 "$scratch/text"
    expected=$(cat "${texts[@]}" | tr '[:lower:]' '[:upper:]' | sha256sum)
    serve "$programs/rpc_$1" serve 127.0.0.1:0 4
    for i in 1 2 3 4; do
        start "$scratch/caller.$i" run "$programs/rpc_$1" call "$address" "${texts[@]}"
        callers[i]=$pid
    done
    for i in 1 2 3 4; do
        ends_well "${callers[i]}" "$scratch/caller.$i.err"
        same "$(sha256sum <"$scratch/caller.$i")" "$expected" "what caller $i got"
    done
    ends_well "$server"
}

# The block server begins with the size of its device, which is no length of a frame.
peers_that_do_not_speak_frames_are_refused() {
    truncate -s 1T "$scratch/device"
    serve "$programs/block_server_$1" 127.0.0.1:0 "$scratch/device"
    text 4 "$scratch/text"
    fails_with 1 run "$programs/rpc_$1" call "$address" "$scratch/text"
    grep -q 'longer than FRAME_MAX' "$scratch/complaint" || fail "it says: $(<"$scratch/complaint")"
    kill -TERM "$server"
}

says_why_there_is_no_answer() {
    serve "$programs/rpc_$1" serve 127.0.0.1:0 1
    text 4 "$scratch/text"
    run "$programs/rpc_$1" call "$address" "$scratch/text" >"$scratch/answers"
    ends_well "$server"
    fails_with 1 run "$programs/rpc_$1" call "$address" "$scratch/text"
    grep -Eq 'connect: .{10}' "$scratch/complaint" || fail "it says: $(<"$scratch/complaint")"
    serve "$programs/rpc_$1" serve 127.0.0.1:0
    fails_with 1 run "$programs/rpc_$1" serve "$address"
    grep -Eq 'listen: .{10}' "$scratch/complaint" || fail "it says: $(<"$scratch/complaint")"
    kill -TERM "$server"
}

# ----------------------------------------------------------------------------------------- TLS

# authority NAME: a key and a certificate of its own, and of a server on this host.
authority() {
    local at=$scratch/$1 key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
    openssl req -x509 "${key[@]}" -days 2 -subj "/CN=$1" -keyout "$at.ca.key" -out "$at.ca" \
        2>"$scratch/openssl" || fail "$(<"$scratch/openssl")"
    openssl req "${key[@]}" -subj "/CN=server" -keyout "$at.key" -out "$at.request" \
        2>"$scratch/openssl" || fail "$(<"$scratch/openssl")"
    openssl x509 -req -in "$at.request" -CA "$at.ca" -CAkey "$at.ca.key" -CAcreateserial -days 2 \
        -extfile <(echo "subjectAltName=IP:${address_of_server:-127.0.0.1}") -out "$at.cert" \
        2>"$scratch/openssl" || fail "$(<"$scratch/openssl")"
}

tls_carries_requests_and_answers() {
    local size sizes=(0 1 16384 16385 5000000)
    ! over_adapter || sizes=(16385 2000000)
    authority ours
    authority others
    mkdir "$scratch/folder"
    for size in "${sizes[@]}" 1; do
        head -c "$size" /dev/urandom >"$scratch/folder/file.$size"
    done
    echo secret >"$scratch/secret"
    serve "$programs/https_$1" serve "127.0.0.1:0" "$scratch/ours.cert" "$scratch/ours.key" "$scratch/folder" \
        $((${#sizes[@]} + 4))
    for size in "${sizes[@]}"; do
        run "$programs/https_$1" get "$address" "$scratch/ours.ca" "file.$size" >"$scratch/got" 2>"$scratch/said"
        cmp "$scratch/got" "$scratch/folder/file.$size"
        went_over "$1" "$(<"$scratch/said")"
        grep -q 'TLSv1\.[23]$' "$scratch/said" || fail "no TLS: $(<"$scratch/said")"
    done
    fails_with 1 run "$programs/https_$1" get "$address" "$scratch/ours.ca" nothing
    grep -q '404' "$scratch/complaint" || fail "it says: $(<"$scratch/complaint")"
    fails_with 1 run "$programs/https_$1" get "$address" "$scratch/ours.ca" ../secret
    grep -q '404' "$scratch/complaint" || fail "it says: $(<"$scratch/complaint")"
    fails_with 1 run "$programs/https_$1" get "$address" "$scratch/others.ca" file.1
    grep -q 'handshake: .*verif' "$scratch/complaint" || fail "it says: $(<"$scratch/complaint")"
    run "$programs/https_$1" get "$address" "$scratch/ours.ca" file.1 >"$scratch/got"
    ends_well "$server"
}

# --------------------------------------------------------------------------------- block device

# block_device KIND FILE: a block server of the file, and nbdkit, whose NBD clients use $uri.
block_device() {
    serve "$programs/block_server_$1" 127.0.0.1:0 "$2"
    start "$scratch/nbdkit" nbdkit --foreground --verbose --unix "$scratch/nbd" --pidfile "$scratch/ready" \
        "$programs/nbd_$1.so" "$address"
    nbdkit=$pid
    until [[ -e $scratch/ready ]]; do
        kill -0 "$nbdkit" 2>/dev/null || fail "$(tail -n 5 "$scratch/nbdkit.err")"
        sleep 0.02
    done
    uri="nbd+unix:///?socket=$scratch/nbd"
}

# end_of_block_device KIND: nbdkit ends without an error.
end_of_block_device() {
    went_over "$1" "$(grep -m 1 'debug: .* over ' "$scratch/nbdkit.err")"
    kill -TERM "$nbdkit"
    ends_well "$nbdkit" "$scratch/nbdkit.err"
    kill -TERM "$server"
}

# A file system goes to the device and back, over several connections at a time.
a_file_system_survives_the_way() {
    local mib=48
    ! over_adapter || mib=12
    mkdir "$scratch/tree"
    head -c 3000000 /dev/urandom >"$scratch/tree/random"
    seq 100000 >"$scratch/tree/numbers"
    mke2fs -q -t ext4 -d "$scratch/tree" "$scratch/original" ${mib}M
    truncate -s ${mib}M "$scratch/device"
    block_device "$1" "$scratch/device"
    run nbdinfo --size "$uri" >"$scratch/size"
    same "$(<"$scratch/size")" $((mib << 20)) 'the size of the device'
    run nbdcopy --flush "$scratch/original" "$uri"
    cmp "$scratch/device" "$scratch/original"
    run nbdcopy "$uri" "$scratch/back"
    end_of_block_device "$1"
    run e2fsck -f -n "$scratch/back" >"$scratch/e2fsck" 2>&1 || fail "$(<"$scratch/e2fsck")"
    debugfs -R "dump random $scratch/random" "$scratch/back" 2>/dev/null
    cmp "$scratch/random" "$scratch/tree/random"
}

# fio writes blocks of any size in any order, and reads and verifies each.
fio_verifies_the_device() {
    local mib=16
    ! over_adapter || mib=4
    truncate -s ${mib}M "$scratch/device"
    block_device "$1" "$scratch/device"
    run fio --name=job --ioengine=nbd --uri="$uri" --rw=randwrite --size=${mib}M --bsrange=512-256k --blockalign=512 \
        --iodepth=8 --randseed=1 --verify=crc32c --do_verify=1 --verify_state_save=0 --output-format=json --output="$scratch/fio" >"$scratch/said" ||
        fail "$(tail -n 20 "$scratch/said" "$scratch/fio")"
    jq -e --argjson least $((mib << 19)) '.jobs[0] | .error == 0 and .read.io_bytes > $least and .write.io_bytes > $least' \
        "$scratch/fio" >/dev/null || fail "$(head -c 1000 "$scratch/fio")"
    end_of_block_device "$1"
    (($(tr -d '\0' <"$scratch/device" | wc -c) > mib << 19)) || fail 'the device is empty'
}

# nbdkit outlives the block server, and says what is missing.
a_lost_block_server_is_an_error() {
    truncate -s 1M "$scratch/device"
    block_device "$1" "$scratch/device"
    run nbdinfo --size "$uri" >"$scratch/size"
    went_over "$1" "$(grep -m 1 'debug: .* over ' "$scratch/nbdkit.err")"
    kill -KILL "$server"
    wait "$server" 2>/dev/null || true
    fails_with 1 run nbdcopy "$uri" "$scratch/back"
    grep -q "error: $address: ." "$scratch/nbdkit.err" || fail "$(tail -n 5 "$scratch/nbdkit.err")"
    kill -TERM "$nbdkit"
    ends_well "$nbdkit" "$scratch/nbdkit.err"
}

says_how_it_is_used() {
    local name
    for name in rpc https block_server; do
        [[ -x $programs/${name}_$1 ]] || continue
        run "$programs/${name}_$1" --help >"$scratch/said"
        grep -q "^usage: $name " "$scratch/said" || fail "$name --help: $(<"$scratch/said")"
        fails_with 2 run "$programs/${name}_$1"
        same "$(<"$scratch/complaint")" "$(<"$scratch/said")" "what $name says to nothing"
    done
}

# ----------------------------------------------------------------------------------- the guide

# commands NAME: those of docs/EMBEDDING.md that have this name.
commands() {
    awk -v first="\`\`\`bash $1" '$0 == first { on = 1; next } /^```/ { on = 0 } on' "$root/docs/EMBEDDING.md"
}

# A server of the guide and its client, in a network in which their port is free.
the_guide_works_as_written() {
    local expected
    export EXAMPLES=$examples
    ip link set lo up
    cd "$scratch"
    echo 'int i;' >hello.c
    serve bash -e -c "$(commands "$1-server" | sed '$ s/^/exec /')"
    run bash -e -c "$(commands "$1-client")" >client 2>&1 || fail "$(<client)"
    case $1 in
    loop) expected='^10000 calls of 20 clients echoed over ' ;;
    framing) expected='^INT I;$' ;;
    tls) expected='^int i;$' ;;
    nbd) expected='^  write: IOPS=' ;;
    esac
    grep -q "$expected" client || fail "$(<client)"
    kill -TERM "$server"
}

# ------------------------------------------------------------------------------------------- main

cases=(says_how_it_is_used frames_of_any_size many_callers_at_a_time
    peers_that_do_not_speak_frames_are_refused says_why_there_is_no_answer
    tls_carries_requests_and_answers a_file_system_survives_the_way fio_verifies_the_device
    a_lost_block_server_is_an_error)

# missing_for CASE KIND: the packages that a case needs and that are not here.
missing_for() {
    case $1 in
    loop) [[ -x $examples/loops/libuv ]] || echo libuv1-dev ;;
    tls*)
        [[ -x $programs/https_$2 ]] || echo libssl-dev
        have openssl || echo openssl
        ;;
    a_* | fio_* | nbd)
        [[ -e $programs/nbd_$2.so ]] || echo nbdkit-plugin-dev
        have nbdkit || echo nbdkit
        have nbdcopy || echo libnbd-bin
        [[ $1 != a_file_system* && $1 != nbd ]] || have e2fsck || echo e2fsprogs
        [[ $1 != fio_* && $1 != nbd ]] || [[ $(fio --enghelp 2>/dev/null) == *nbd* ]] || echo 'fio with its nbd engine'
        ;;
    esac
}

# in_line: the lines of stdin, with commas.
in_line() {
    paste -sd, | sed 's/,/, /g'
}

# skipped TITLE CASE KIND: skips a case if a package is missing for it.
skipped() {
    local missing
    missing=$(missing_for "$2" "$3" | in_line)
    [[ -n $missing ]] && tap_skip "$1" "not installed: $missing; scripts/setup --examples installs it"
}

# all_cases KIND PATH
all_cases() {
    local name title
    for name in "${cases[@]}"; do
        title="${name//_/ } ($1${2:+, $2})"
        skipped "$title" "$name" "$1" || tap_case "$title" "$name" "${2:-auto}" "$1"
    done
}

the_guide() {
    local name title way network=()
    for way in "unshare --net" "unshare --user --map-root-user --net"; do
        # shellcheck disable=SC2086
        ! $way sh -c 'ip link set lo up' 2>/dev/null || read -r -a network <<<"$way"
        ((${#network[@]} == 0)) || break
    done
    for name in loop framing tls nbd; do
        title="the commands of the guide work as they are written: $name"
        if skipped "$title" "$name" stream; then
            continue
        elif ((${#network[@]} == 0)); then
            tap_skip "$title" 'no network namespace of its own'
        else
            tap "$title" "${network[@]}" bash "$part" the_guide_works_as_written auto "$name"
        fi
    done
}

if [[ ${1-} == --missing ]]; then
    for name in "${cases[@]}"; do
        missing_for "$name" stream
    done | sort -u | in_line
    exit
fi
if [[ ${1-} == --streams ]]; then
    cases=(frames_of_any_size many_callers_at_a_time tls_carries_requests_and_answers
        a_file_system_survives_the_way fio_verifies_the_device a_lost_block_server_is_an_error)
    all_cases stream "$2"
    tap_end
    exit
fi
(($# == 0)) || case_main "$@"
tap_case 'streams need few lines more than sockets' streams_need_few_lines_more auto
all_cases socket ''
all_cases stream tcp
all_cases stream shm
the_guide
tap_end
