#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# The adapter ofi: what loading libfabric leaves as it was, the conformance suite over each of
# libfabric's providers that needs no device, and the examples over one of them. Prints TAP.
#
#   ofi.sh [PATTERN]   the cases whose name matches the pattern (a bash regular expression)
#
# libfabric's verbs runs on soft RoCE in a guest (tests/soft_rdma). With RDMUX_TEST_LEVEL=thorough the
# whole suite runs over each provider, polling and sleeping.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
build=${RDMUX_BUILD:-$root/build/dev}
# shellcheck source=tests/adapters/conforms.bash
. "$here/conforms.bash"
rdmux=$build/bin/rdmux
wanted=${1:-}
level=${RDMUX_TEST_LEVEL:-normal}
patience=${RDMUX_PATIENCE:-4}
unset RDMUX_PATHS RDMUX_LOG FI_PROVIDER FI_PROVIDER_PATH

if [[ ! -e $build/lib/rdmux/rdmux-ofi.so ]]; then
    echo '1..0 # SKIP the plug-in rdmux-ofi.so was not built: libfabric-dev is not installed'
    exit 77
fi

fail() {
    printf '%s\n' "$*"
    return 1
}

# ------------------------------------------------------------------------------------- conformance

# All rules but those that a provider below breaks (docs/ADAPTERS.md): the sockets by which libfabric
# wakes itself stay open on exec, shm has none; net and ofi_rxm cannot wake a sleeper; shm crashes
# between two endpoints of one process.
rules_of() {
    local broken='15\.7'
    case $1 in
    shm) broken='15\.10' ;;
    net | *ofi_rxm) broken='15\.7|13\.8|13\.12' ;;
    esac
    "$rdmux" conformance --list-rules | cut -f1 | grep -vxE "$broken" | paste -sd,
}

# conforms HOW PROVIDER SUITE...: each suite in a run of its own; "all" are the rules of rules_of, with
# the cases that take long, and of rule 15.7 the case that descriptors have no part in.
conforms() {
    local suite selection
    for suite in "${@:3}"; do
        case $suite in
        all) selection=(--rules "$(rules_of "$2")") ;;
        *) selection=(--quick --case "$suite") ;;
        esac
        judge "ofi-$2-$1-$suite" env FI_PROVIDER="$2" timeout 1800 "$rdmux" conformance --provider ofi \
            --patience "$patience" --seed 1 --wait "$1" "${selection[@]}" || return
    done
}

# on_soft_roce SECONDS [ARGUMENT...]: runs the script of standard input in a guest with soft RoCE, for
# libfabric's verbs. in_guest has made its kernel.
on_soft_roce() {
    {
        echo '. /run/host/inside.sh; cd /; export RDMUX_PATHS=ofi FI_PROVIDER=verbs'
        cat
    } >"$scratch/guest"
    "$root/tests/soft_rdma/guest" --linux "$linux" --seconds "$1" --with "$build/bin" --with "$build/lib" \
        --with "$build/tests/adapters" --env "RDMUX_BUILD=$build" "$scratch/guest" "${@:2}"
}

verbs_changes_nothing() {
    on_soft_roce 120 <<'END'
"$RDMUX_BUILD/tests/adapters/opened_before" && "$RDMUX_BUILD/tests/adapters/unchanged" ofi
END
}

# A program that has given libfabric a monitor of memory, or has a domain with a cache of registrations.
verbs_beside_the_program() {
    on_soft_roce 120 <<'END'
for uses in monitor domain; do
    beside=(env LD_PRELOAD="$RDMUX_BUILD/tests/adapters/uses_libfabric.so" USES=$uses "$RDMUX_BUILD/bin/rdmux")
    "${beside[@]}" serve 127.0.0.1:0 >"/tmp/$uses" &
    until address=$(sed -n 's/^listening on //p' "/tmp/$uses") && [[ -n $address ]]; do
        kill -0 "$!" || exit
        sleep 0.02
    done
    "${beside[@]}" perf "$address" --iterations 100 --test latency --verify || exit
    kill "$!"
    wait "$!" || exit
done
END
}

# conforms_on_soft_roce HOW OPTION=VALUE...: a guest has one processor, so that polling takes longer there.
conforms_on_soft_roce() {
    on_soft_roce 1500 "$@" <<'END'
"$RDMUX_BUILD/bin/rdmux" info
for selection in "${@:2}"; do
    "$RDMUX_BUILD/bin/rdmux" conformance --provider ofi --quick --patience 8 --seed 1 --wait "$1" \
        "${selection%%=*}" "${selection#*=}" || exit
done
END
}

# ------------------------------------------------------------------------------------ what is shown

info_names_the_library() {
    RDMUX_PATHS=ofi "$rdmux" info --json >"$scratch/info"
    cat "$scratch/info"
    grep -q '"provider":"ofi"[^}]*"text":"libfabric [0-9.]*, provider ' "$scratch/info"
}

without_a_request_it_is_left_alone() {
    "$rdmux" info --json | matches '"provider":"ofi"[^}]*"reason":"FILTERED"'
}

without_providers_the_reason_is_told() {
    FI_PROVIDER=none RDMUX_PATHS=ofi "$rdmux" info --json >"$scratch/info"
    cat "$scratch/info"
    grep -q '"provider":"ofi"[^}]*"reason":"NO_DEVICE"[^}]*FI_PROVIDER is \\"none\\": ' "$scratch/info"
}

rdmux_is_no_path_of_itself() {
    FI_PROVIDER_PATH=$build/lib/libfabric RDMUX_PATHS=ofi "$rdmux" info --json >"$scratch/info"
    cat "$scratch/info"
    grep -q '"device":"tcp:' "$scratch/info" && ! grep -q '"device":"rdmux' "$scratch/info"
}

# A server that has all paths: libfabric's are candidates, and are not taken before rdmux's own.
explain_shows_candidates() {
    local server address='' status=0
    RDMUX_PATHS=auto,ofi "$rdmux" serve 127.0.0.1:0 >"$scratch/serve" &
    server=$!
    until address=$(sed -n 's/^listening on //p' "$scratch/serve") && [[ -n $address ]]; do
        kill -0 "$server" || return
        sleep 0.02
    done
    "$rdmux" explain --paths auto,ofi --json "$address" >"$scratch/explanation" &&
        "$rdmux" explain --paths auto,ofi "$address" >"$scratch/table" &&
        "$rdmux" explain --paths auto,ofi --verbose "$address" >"$scratch/long" || status=$?
    kill "$server"
    wait "$server" || true
    jq -c '.chosen.provider, (.candidates[] | select(.rank > 0) | [.provider, .device, .reason, .text])' \
        "$scratch/explanation"
    ((status == 0)) || return
    jq -e '.chosen.provider == "shm" and (.candidates | map(select(.provider == "ofi" and .rank > 0)) |
        length > 0 and all(.reason == "SLOWER" and (.text | test("; libfabric [0-9.]+, provider "))))' \
        "$scratch/explanation" >/dev/null || return
    # A path has a line, and its pairs with paths of the peer that it cannot reach have none.
    cat "$scratch/table"
    grep -q '^  more pairs of paths: .*that cannot reach each other' "$scratch/table" &&
        ! grep -q NOT_REACHABLE "$scratch/table" && grep -q NOT_REACHABLE "$scratch/long" &&
        [[ -z $(grep '^  ofi ' "$scratch/table" | sort | uniq -d) ]]
}

# perf prints the table of explain, and names the command that has all of it.
different_providers_are_named() {
    local server address='' status=0
    FI_PROVIDER=tcp RDMUX_PATHS=ofi "$rdmux" serve 127.0.0.1:0 >"$scratch/serve" &
    server=$!
    until address=$(sed -n 's/^listening on //p' "$scratch/serve") && [[ -n $address ]]; do
        kill -0 "$server" || return
        sleep 0.02
    done
    FI_PROVIDER=sockets RDMUX_PATHS=ofi "$rdmux" perf "$address" --iterations 1 >"$scratch/perf" 2>&1 || status=$?
    kill "$server"
    wait "$server" || true
    cat "$scratch/perf"
    ((status == 3)) && grep -q 'of different providers of libfabric, tcp and sockets (FI_PROVIDER' "$scratch/perf" &&
        [[ $(tr -s ' \n' ' ' <"$scratch/perf") =~ like\ one\ above\;\ \"rdmux\ explain\ HOST\ --verbose\" ]]
}

# While ofi_rxm fetches a message by a read, the end of the connection crashes libfabric's tcp. The
# adapter's messages are too short for that. With longer ones more than half of the runs crashed.
an_end_within_a_message() {
    local seed
    for seed in 1 2 3 4 5 6; do
        judge "ofi-rxm-end-$seed" env FI_PROVIDER='tcp;ofi_rxm' timeout 60 "$rdmux" conformance --provider ofi \
            --quick --patience "$patience" --seed "$seed" --wait poll \
            --case 'one byte longer than its receive of 3 MiB ends both' || return
    done
}

# The suite reports why the path cannot be opened.
small_buffers_are_refused() {
    FI_PROVIDER='tcp;ofi_rxm' FI_OFI_RXM_BUFFER_SIZE=1000 "$rdmux" conformance --provider ofi --quick \
        --case 'one byte longer than its receive of 3 MiB ends both' >"$scratch/small" 2>&1 && return 1
    tail "$scratch/small"
    grep -q 'ofi: tcp;ofi_rxm takes messages of 1000 bytes, and 4096 are needed; unset FI_OFI_RXM_BUFFER_SIZE' \
        "$scratch/small"
}

scratch=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-ofi.XXXXXX")
# Processes that were killed leave their segments of libfabric's shm, PID:DOMAIN:ENDPOINT, and a later
# process with the same id could open none.
clean_up() {
    local segment
    while IFS= read -r segment; do
        [[ -d /proc/${segment%%:*} ]] || rm -f "/dev/shm/$segment"
    done < <(find /dev/shm -maxdepth 1 -name '[0-9]*:*:*' -user "$(id -u)" -newer "$scratch/began" -printf '%f\n')
    rm -rf "$scratch"
}
touch "$scratch/began"
trap clean_up EXIT

providers=()
for provider in tcp net sockets shm 'tcp;ofi_rxm' 'net;ofi_rxm'; do
    if FI_PROVIDER=$provider RDMUX_PATHS=ofi "$rdmux" info --json |
        grep -q '"provider":"ofi"[^}]*"reason":"NO_DEVICE"'; then
        tap_skip "everything over $provider" "this libfabric has no provider of that name"
    else
        providers+=("$provider")
    fi
done
for provider in "${providers[@]}"; do
    when_wanted "libfabric's $provider changes nothing in the process" \
        env FI_PROVIDER="$provider" "$build/tests/adapters/unchanged" ofi
done
when_wanted 'all of them together change nothing in the process' "$build/tests/adapters/unchanged" ofi
when_wanted 'rdmux info names the version of libfabric' info_names_the_library
when_wanted 'without a request libfabric is left alone' without_a_request_it_is_left_alone
when_wanted 'where libfabric has no provider, the reason is told' without_providers_the_reason_is_told
when_wanted 'explain shows candidates of libfabric' explain_shows_candidates
if [[ " ${providers[*]} " == *' tcp '*' sockets '* ]]; then
    when_wanted 'different providers of libfabric are named' different_providers_are_named
fi
if [[ -e $build/lib/libfabric/librdmux-fi.so ]]; then
    when_wanted 'rdmux as a provider of libfabric is no path of rdmux' rdmux_is_no_path_of_itself
fi

# Normal runs have the cases in which the network below matters; over tcp, whose cost is the least,
# more of them.
for provider in "${providers[@]}"; do
    for how in poll sleep; do
        case $level-$provider-$how in
        thorough-shm-*) suites=(all) ;;
        thorough-*) suites=(all 'after fork every call of the child') ;;
        *-tcp-poll) suites=(transfer failure revoke srq passive) ;;
        *-tcp-sleep) suites=(wakeup asleep) ;;
        *-sockets-poll) suites=(transfer 'though sends to it are posted first') ;;
        *-poll) suites=(transfer) ;;
        *-net-sleep | *ofi_rxm-sleep) suites=(srq) ;; # which look every millisecond
        *-sleep) suites=(wakeup) ;;
        esac
        when_wanted "$provider keeps the rules ($how)" conforms "$how" "$provider" "${suites[@]}"
    done
done
if [[ " ${providers[*]} " == *' tcp;ofi_rxm '* ]]; then
    when_wanted 'an end within a message of ofi_rxm ends nothing else' an_end_within_a_message
    when_wanted 'where ofi_rxm has too little room for a message, the reason is told' small_buffers_are_refused
fi
in_guest "libfabric's verbs changes nothing in the process" verbs_changes_nothing
if [[ -e $build/tests/adapters/uses_libfabric.so ]]; then
    in_guest "libfabric's verbs serves a program that uses it, too" verbs_beside_the_program
fi
for how in poll sleep; do
    selection=(--case=transfer)
    [[ $level != thorough ]] ||
        selection=("--rules=$(rules_of verbs)" '--case=after fork every call of the child')
    in_guest "verbs on soft RoCE keeps the rules ($how)" conforms_on_soft_roce "$how" "${selection[@]}"
done
for name in pingpong_tells_half_a_round_trip file_copy_copies_files_of_any_size \
    kv_store_keeps_what_was_put rpc_serves_four_clients allreduce_sums_on_every_rank \
    event_loop_tells_every_line_to_every_member; do
    when_wanted "${name//_/ } (ofi)" bash "$root/tests/examples/run.sh" "$name" ofi
done
tap_end
