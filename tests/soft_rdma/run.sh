#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"

usage() {
    cat <<'END_OF_USAGE'
usage: tests/soft_rdma/run.sh [--parts | --part PART] [PATTERN]

Tests over soft RoCE and soft iWARP, in User Mode Linux guests; prints TAP. With a pattern (a bash
regular expression) only the cases whose name matches.

  --parts      name the parts: guests, others, and each provider
  --part PART  only this one: guests, what the tests themselves stand on; others, peers that are not
               rdmux; or the cases over a provider

  RDMUX_BUILD              the build whose programs run in the guests (default: build/dev)
  RDMUX_SOFT_RDMA_PATHS    the providers under test (default: tcp shm roce iwarp)
  RDMUX_REQUIRE_SOFT_RDMA  1: that this machine cannot do it is a failure, not a skip
  RDMUX_TEST_LEVEL         thorough: the whole conformance run, not the short one
END_OF_USAGE
}

# Providers whose conformance, examples and tools run here; shm is for one host only.
read -r -a providers <<<"${RDMUX_SOFT_RDMA_PATHS:-tcp shm roce iwarp}"

only_part=
case ${1-} in
--help | -h)
    usage
    exit 0
    ;;
--parts)
    printf '%s\n' guests others "${providers[@]}"
    exit 0
    ;;
--part)
    only_part=${2:?}
    [[ " guests others ${providers[*]} " == *" $only_part "* ]] ||
        die "no part '$only_part'; there are: guests others ${providers[*]}"
    shift 2
    ;;
esac
wanted=${1-}
build=${RDMUX_BUILD:-$root/build/dev}
level=${RDMUX_TEST_LEVEL:-normal}
unset RDMUX_PATHS RDMUX_LOG

scratch=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-soft-rdma.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# -------------------------------------------------------------------- what this machine cannot do

# cannot NAME WHY: a case that this machine cannot run.
cannot() {
    if [[ ${RDMUX_REQUIRE_SOFT_RDMA-} == 1 ]]; then
        tap "$1 (RDMUX_REQUIRE_SOFT_RDMA=1)" fail "$2"
    else
        tap_skip "$1" "$2"
    fi
}

fail() {
    printf '%s\n' "$*"
    return 1
}

status=0
exec {messages}> >(tee "$scratch/kernel" >&2)
tee=$!
linux=$("$here/kernel" 2>&"$messages") || status=$?
exec {messages}>&-
wait "$tee"
if ((status == 77)); then
    cannot 'everything over RDMA adapters in software' \
        "$(sed -n 's/^soft-RDMA kernel: //p' "$scratch/kernel" | tail -n 1)"
    tap_end
    exit
fi
((status == 0)) || die 'the kernel was not built, see above'

# --------------------------------------------------------------------------------- for the cases

part=guests # that the cases to come belong to

is_of_part() {
    [[ -z $only_part || $only_part == "$part" ]]
}

# check NAME COMMAND...: one case, if selected.
check() {
    ! is_of_part || [[ ! $1 =~ $wanted ]] || tap "$@"
}

programs=(--with "$build/bin" --with "$build/lib" --with "$build/examples"
    --with "$build/tests/soft_rdma" --with "$root/tests/examples" --with "$root/scripts"
    --env "RDMUX_SOURCE=$root"
    --env "RDMUX_BUILD=$build")

# guest [OPTION...] -- CASE [ARGUMENT...], two_guests likewise: a function of cases.sh.
guest() {
    local options=()
    while [[ $1 != -- ]]; do
        options+=("$1")
        shift
    done
    "$here/guest" --linux "$linux" "${options[@]}" "$here/cases.sh" "${@:2}"
}

two_guests() {
    local options=()
    while [[ $1 != -- ]]; do
        options+=("$1")
        shift
    done
    "$here/two_guests" --linux "$linux" "${options[@]}" "$here/cases.sh" "$here/cases.sh" "${@:2}"
}

# ends_with STATUS PATTERN... -- COMMAND...: the command's status; each pattern is in its output.
ends_with() {
    local expected=$1 patterns=() pattern status=0
    shift
    while [[ $1 != -- ]]; do
        patterns+=("$1")
        shift
    done
    shift
    "$@" >"$scratch/out" 2>&1 || status=$?
    cat "$scratch/out"
    [[ $status == "$expected" ]] || fail "status $status instead of $expected" || return
    for pattern in "${patterns[@]}"; do
        grep -qE -- "$pattern" "$scratch/out" || fail "no \"$pattern\" in the output" || return
    done
}

# nothing_left FOLDER: no file in it, and no live process that has it on its command line.
nothing_left() {
    local left process
    left=$(ls -A "$1")
    [[ -z $left ]] || fail "left behind: $left" || return
    for process in /proc/[0-9]*; do
        ! grep -qsF "$1/" "$process/cmdline" ||
            fail "left running: $(tr '\0' ' ' <"$process/cmdline")" || return
    done
}

# ------------------------------------------------------------------------------------- the harness

status_and_output_pass() {
    local status
    # shellcheck disable=SC2016
    for status in 0 7 200; do
        ends_with "$status" '^argument: two words$' '^variable: \$x "y"$' -- \
            guest --env 'SOFT_RDMA_VARIABLE=$x "y"' -- exits_with "$status" 'two words' || return
    done
}

both_statuses_pass() {
    ends_with 3 '^exit status of a: 3, of b: 0$' -- two_guests -- exits_with 3 0 &&
        ends_with 4 '^exit status of a: 0, of b: 4$' -- two_guests -- exits_with 0 4 &&
        ends_with 0 -- two_guests -- exits_with 0 0
}

a_panic_is_a_failure() {
    ends_with 125 'before the panic' 'guest a died' 'Kernel panic' -- guest -- panics
}

a_panic_of_one_of_two_is_a_failure() {
    ends_with 125 'guest a died' 'guest a has ended' '^exit status of a: 125, of b: 1$' -- \
        two_guests -- panics_under_the_other
}

hanging_is_a_failure() {
    local case
    for case in computes_for_ever sleeps_for_ever; do
        ends_with 124 'before the' 'did not end within 15 s' -- \
            guest --seconds 15 -- "$case" || return
    done
}

coming_not_up_is_a_failure() {
    printf '#!/bin/sh\nexit "%s"\n' 0 >"$scratch/no-kernel"
    chmod 0755 "$scratch/no-kernel"
    ends_with 125 'did not come up' -- "$here/guest" --linux "$scratch/no-kernel" - <<<'exit 0' &&
        ends_with 125 'did not come up' -- "$here/guest" --linux "$linux" --memory 4 - <<<'exit 0'
}

the_host_is_out_of_reach() {
    guest -- cannot_write "$root" "$build" /etc /var/tmp "${HOME:-/}" &&
        [[ ! -e /tmp/rdmux-guest-was-here && ! -e /dev/shm/rdmux-guest-was-here ]]
}

# Folders closed to a guest depend on the user who runs this; a folder that the guest covers is
# always closed.
closed_folders_are_brought() {
    local base folder status=0
    for base in "${TMPDIR:-/tmp}" /dev/shm; do
        folder=$(mktemp -d "$base/rdmux-soft-rdma.XXXXXX")
        mkdir -p "$folder/closed/further"
        echo 'a text' >"$folder/closed/further/file"
        printf '#!/bin/sh\nexit 0\n' >"$folder/closed/further/program"
        chmod 0700 "$folder/closed/further/program" "$folder/closed" "$folder"
        guest --with "$folder/closed/further/file" --with "$folder/closed/further" -- \
            reads_back "$folder/closed/further/file" 'a text' || status=1
        rm -rf "$folder"
    done
    return "$status"
}

# A guest whose harness is told to end, or is killed, ends too.
nothing_is_left_behind() {
    local signal harness folder status=0
    folder=$(mktemp -d /var/tmp/rdmux-soft-rdma.XXXXXX)
    chmod 0755 "$folder"
    for signal in 0 TERM KILL; do
        leaves_nothing "$folder" "$signal" || {
            fail "that was signal $signal" || status=1
            break
        }
    done
    rm -rf "$folder"
    return "$status"
}

# leaves_nothing FOLDER SIGNAL: a guest leaves nothing if its harness, with temporary files in
# FOLDER, gets this signal; 0: no signal, its script ends.
leaves_nothing() {
    local folder=$1 signal=$2 harness deadline=$((SECONDS + 120)) script=forks_for_ever
    case $signal in
    0) script=sleeps_a_moment ;;
    KILL) script=sleeps_for_ever ;; # its harness has no chance to look for what was just started
    esac
    TMPDIR=$folder "$here/guest" --linux "$linux" "$here/cases.sh" "$script" >/dev/null &
    harness=$!
    until compgen -G "$folder/rdmux-guest.*/shared/started" >/dev/null; do
        ((SECONDS < deadline)) || fail "the guest's script has not started in $folder" || return
        sleep 0.01
    done
    if [[ $signal == 0 ]]; then
        wait "$harness" || return
    else
        kill "-$signal" "$harness"
        ! wait "$harness" || fail 'the harness went on' || return
    fi
    # A killed harness cannot remove its folder; its guest ends soon, not at once.
    [[ $signal != KILL ]] || rm -rf "${folder:?}"/*
    until nothing_left "$folder" >"$scratch/left"; do
        if ((SECONDS >= deadline)); then
            cat "$scratch/left"
            return 1
        fi
        sleep 0.05
    done
}

idle_time_can_be_skipped() {
    local started=$SECONDS
    guest --time-travel --seconds 300 -- sleeps_an_hour && ((SECONDS - started < 300))
}

check 'the exit status, output, arguments and variables of a guest pass' status_and_output_pass
check 'the exit statuses of two guests pass' both_statuses_pass
check 'a guest that panics is a failure' a_panic_is_a_failure
check 'a guest that panics under the other is a failure' a_panic_of_one_of_two_is_a_failure
check 'a guest that hangs is a failure' hanging_is_a_failure
check 'a guest that does not come up is a failure' coming_not_up_is_a_failure
check 'a guest cannot write the files of its host' the_host_is_out_of_reach
check 'a guest has a folder that its user cannot read if an option names it' closed_folders_are_brought
check 'a guest leaves nothing behind' nothing_is_left_behind
check 'idle time can be skipped' idle_time_can_be_skipped

# ------------------------------------------------------------------------------------ the adapters

check 'both adapters are active, and there is nothing of the host' guest -- both_adapters_are_active
check 'ibv_rc_pingpong on rxe' guest -- pingpong_on_rxe
for adapter in rxe siw; do
    check "rping on $adapter" guest -- rping_alone $adapter
    check "rping between two guests on $adapter" two_guests -- rping_across $adapter
    check "packets lost between two guests are sent again on $adapter" \
        two_guests -- loss_is_made_good $adapter
done
check 'a traffic class with an ECN mark is on the wire of rxe' \
    two_guests -- traffic_class_is_on_the_wire

# ------------------------------------------------------------------------- peers that are not rdmux

part=others
if [[ -e $build/lib/rdmux/rdmux-verbs.so && -x $build/bin/rdmux-interop ]]; then
    for adapter in rxe siw; do
        check "rdmux serves rping on $adapter" guest "${programs[@]}" -- rdmux_serves_rping $adapter
        check "rping serves rdmux on $adapter" guest "${programs[@]}" -- \
            rdmux_is_served_by_rping $adapter
        check "rdmux and rping in either role between two guests on $adapter" \
            two_guests "${programs[@]}" -- rdmux_and_rping $adapter
        for test in send-lat write-bw; do
            check "rdmux serves ib_${test//-/_} -R on $adapter" guest "${programs[@]}" -- \
                rdmux_serves_perftest $adapter $test
            check "ib_${test//-/_} -R serves rdmux on $adapter" guest "${programs[@]}" -- \
                rdmux_is_served_by_perftest $adapter $test
        done
    done
elif is_of_part; then
    cannot 'rdmux with rping and perftest' \
        "$build/lib/rdmux/rdmux-verbs.so is not built: libibverbs-dev, librdmacm-dev"
fi

# -------------------------------------------------------------------------------------- this tree

conformance=(--quick)
sharing=40 # what each takes is the same for all, but 500 take the guests a minute of two processors
# Cases of tests/examples in one guest: threads, atomics, streams, a killed client, memory of the program's own. The
# rest has dozens of short-lived processes, or runs between two guests, and over tcp and shm in the group "examples".
example_cases=(pingpong_tells_half_a_round_trip kv_store_loses_no_concurrent_increment rpc_serves_four_clients
    rpc_server_outlives_a_killed_client allreduce_sums_on_every_rank shards_keep_a_client_on_its_thread
    stream_echo_returns_every_byte hooks_see_all_that_the_library_uses)
if [[ $level == thorough ]]; then
    conformance=()
    sharing=500
    example_cases=()
fi

# briefly COMMAND...: prints the failures of a program that prints TAP, and its end.
briefly() {
    local status=0
    "$@" >"$scratch/out" 2>&1 || status=$?
    grep -vE '^([ab]: )?ok ' "$scratch/out" | head -n 60 || true
    echo '...'
    tail -n 5 "$scratch/out"
    return "$status"
}

# hosts NAME CASE [ARGUMENT...]: a case with this tree's programs in two guests.
hosts() {
    check "$1" two_guests --seconds 400 "${programs[@]}" -- "${@:2}"
}

# The picture of scripts/demo --plot, with few sizes: two panels with a curve for each path.
all_paths_are_drawn() {
    local path svg=$scratch/paths.svg
    ends_with 0 -- "$here/two_guests" --linux "$linux" --seconds 400 "${programs[@]}" \
        --env "RDMUX=$build/bin/rdmux" "$here/demo.sh" "$here/demo.sh" all 0.05 8:32 || return
    sed -n 's/^b: svg: //p' "$scratch/out" >"$svg"
    for path in tcp roce iwarp; do
        [[ $(grep -c "<title>$path, 32 bytes: " "$svg") == 2 ]] || fail "no two curves of $path" || return
    done
}

# the_other_host_goes PROVIDER: guest b dies; a reports how long it heard nothing.
the_other_host_goes() {
    ends_with 125 'guest b died' '^a: a has noticed$' '^exit status of a: 0, of b: 125$' -- \
        two_guests --seconds 400 "${programs[@]}" -- host_goes "$1"
}

# rdmux_without_a_peer PROVIDER: a path whose peer falls silent.
rdmux_without_a_peer() {
    local on="over $1 between two guests"
    hosts "a network that drops everything is noticed in time $on" goes_dark "$1"
    check "a host that is gone is noticed in time $on" the_other_host_goes "$1"
}

# rdmux_while_things_fail PROVIDER: traffic and endpoints of an adapter's path during faults.
rdmux_while_things_fail() {
    local on="over $1 between two guests"
    hosts "software is chosen before tcp only if asked for: $1" software_only_if_asked "$1"
    hosts "with $1 at the acceptor only, tcp is chosen" only_one_side_has_it "$1" b
    hosts "with $1 at the connector only, tcp is chosen" only_one_side_has_it "$1" a
    hosts "delayed, reordered and lost packets change no result $on" traffic_in_bad_weather "$1"
    [[ $1 != roce ]] ||
        hosts "a read of $1 that failed never completes with success $on" doubtful_reads "$1"
    hosts "congested queues mark packets where the adapter allows it $on" traffic_is_marked "$1"
    hosts "messages wait for receives $on" late_receives "$1"
    hosts "a message too long ends both endpoints with LENGTH $on" too_long_far_away "$1"
    hosts "a write that crosses a revoke is never placed $on" revoked_far_away "$1" write
    hosts "a read that crosses a revoke finds nothing $on" revoked_far_away "$1" read
    hosts "a cut wire is noticed in time, and tcp goes on $on" \
        breaks_under_traffic "$1" wire PEER_GONE
    hosts "a link that goes down is noticed in time, and tcp goes on $on" \
        breaks_under_traffic "$1" link PEER_GONE
    hosts "a killed peer is noticed in time, and tcp goes on $on" \
        breaks_under_traffic "$1" peer PEER_GONE
    hosts "a removed device serves its open endpoints, then tcp goes on $on" \
        loses_its_device "$1"
    hosts "$sharing endpoints share receives $on" many_share_receives "$1" "$sharing"
}

# The suites whose outcome the kernel's adapter decides, and those that the wire decides. In one guest one
# kernel serves both processes, and the path is the adapter's loopback. The whole suite takes each pair of
# guests four minutes of two processors: --thorough; over simulated adapters it always runs (tests/sim_verbs).
# Some cases of failure need both processes on one host.
loopback=(--case atomic --case revoke --case failure)
between=(--case failure)
[[ $level != thorough ]] || loopback=() between=()

# libfabric_in_guests PROVIDER: programs of libfabric and of Open MPI over rdmux (tests/adapters/fi.sh).
libfabric_in_guests() {
    local cases=(keys_reach_their_bytes_only a_killed_peer_is_noticed rdmux_explains_its_listeners
        pingpong_msg mpi_with_2_ranks) program
    [[ $level != thorough ]] ||
        cases+=(the_data_of_a_rejection_arrives sleepers_are_woken pingpong_rdm pingpong_tagged
            mpi_with_4_ranks)
    for program in lib/libfabric/librdmux-fi.so tests/adapters/fi_mpi; do
        if [[ ! -e $build/$program ]]; then
            ! is_of_part || cannot "programs of libfabric and Open MPI over $1" \
                "$build/$program is not built: libfabric-dev, libopenmpi-dev"
            return
        fi
    done
    for program in fi_pingpong mpirun; do
        if ! have "$program"; then
            ! is_of_part || cannot "programs of libfabric and Open MPI over $1" \
                "no $program: libfabric-bin, openmpi-bin"
            return
        fi
    done
    check "programs of libfabric and Open MPI over $1 in a guest" \
        guest --seconds 600 "${programs[@]}" --with "$root/tests/adapters" \
        --with "$build/tests/adapters" -- libfabric_over "$1" "${cases[@]}"
    check "fi_pingpong, tagged, over $1 between two guests" \
        two_guests --seconds 400 "${programs[@]}" -- libfabric_between_hosts "$1"
}

# rdmux_over PROVIDER: all cases with this tree's programs over one path.
rdmux_over() {
    local name missing
    # Over tcp only another host differs from this one, over shm nothing does.
    if [[ $1 == roce || $1 == iwarp || $level == thorough ]]; then
        check "rdmux conformance over $1 in a guest" briefly guest --seconds 900 "${programs[@]}" -- \
            rdmux_conformance "$1" "${conformance[@]}" "${loopback[@]}"
    fi
    check "rdmux demo over $1 in a guest" guest "${programs[@]}" -- rdmux_demo "$1"
    # Within one host the group "examples" runs the same over tcp and shm.
    if [[ $1 == roce || $1 == iwarp || $level == thorough ]]; then
        check "the examples over $1 in a guest" guest --seconds 600 "${programs[@]}" -- \
            rdmux_examples "$1" "${example_cases[@]}"
        name="an event loop, framed calls, TLS and a block device over $1 in a guest"
        missing=$(bash "$root/tests/embedding/real_code.sh" --missing)
        if [[ -z $missing ]]; then
            check "$name" guest --seconds 900 --memory 1024 "${programs[@]}" --with "$root/tests/embedding" \
                --with "$root/examples" -- rdmux_real_code "$1"
        elif is_of_part && [[ $name =~ $wanted ]]; then
            cannot "$name" "not installed: $missing; scripts/setup --examples installs it"
        fi
    fi
    if [[ $1 == roce || $1 == iwarp ]]; then
        libfabric_in_guests "$1"
        check "no request by a dead key completes with success over $1" \
            guest "${programs[@]}" --with "$build/tests/tools" -- rdmux_dead_keys "$1"
    fi
    check "regions over dma-bufs work over $1, or are refused with the reason" \
        guest "${programs[@]}" -- rdmux_dmabufs "$1"
    if [[ $1 == iwarp ]]; then
        check 'an address of iwarp that drops all packets delays no other connection' \
            guest "${programs[@]}" --with "$build/tests/tools" -- rdmux_stalls 1000
        # PSH is byte 13 of the TCP header. The kernel gives up after 5 s (MPAREP_TIMEOUT of siw).
        check 'an address of iwarp that drops all but empty segments delays no other connection' \
            guest "${programs[@]}" --with "$build/tests/tools" -- \
            rdmux_stalls 7000 match u8 0x08 0x08 at 33
    fi
    [[ $1 != shm ]] || return 0
    check "rdmux conformance over $1 between two guests" briefly two_guests --seconds 900 \
        "${programs[@]}" -- rdmux_conformance_between_hosts "$1" "${conformance[@]}" "${between[@]}"
    check "explain, copy and perf over $1 between two guests" \
        two_guests "${programs[@]}" -- rdmux_between_hosts "$1"
    check "the examples over $1 between two guests" \
        two_guests "${programs[@]}" -- rdmux_examples_between_hosts "$1"
}

if [[ " ${providers[*]} " == *' roce '* && " ${providers[*]} " == *' iwarp '* ]]; then
    check 'where constants choose the slow wire, measuring chooses the other' \
        two_guests "${programs[@]}" -- measured_beats_constants
    check 'the figures of all paths between two guests are drawn' all_paths_are_drawn
fi
for provider in "${providers[@]}"; do
    part=$provider
    is_of_part || continue
    case $provider in
    roce | iwarp)
        if [[ ! -e $build/lib/rdmux/rdmux-verbs.so ]]; then
            cannot "rdmux over $provider" \
                "$build/lib/rdmux/rdmux-verbs.so is not built: libibverbs-dev, librdmacm-dev"
            continue
        fi
        ;;
    esac
    rdmux_over "$provider"
    case $provider in
    roce | iwarp) rdmux_while_things_fail "$provider" ;;
    esac
    [[ $provider == shm ]] || rdmux_without_a_peer "$provider"
done
tap_end
