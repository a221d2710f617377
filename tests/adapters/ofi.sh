#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# The adapter ofi: what loading libfabric leaves as it was, the conformance suite over each of
# libfabric's providers that needs no device, and the examples over one of them. Prints TAP.
#
#   ofi.sh [PATTERN]   the cases whose name matches the pattern (a bash regular expression)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
build=${RDMUX_BUILD:-$root/build/dev}
wanted=${1:-}
patience=${RDMUX_PATIENCE:-4}
unset RDMUX_PATHS FI_PROVIDER

if [[ ! -e $build/lib/rdmux/rdmux-ofi.so ]]; then
    echo '1..0 # SKIP the plug-in rdmux-ofi.so was not built: libfabric-dev is not installed'
    exit 77
fi

providers=(tcp net sockets shm 'tcp;ofi_rxm')
# All rules but those that a provider below breaks (docs/ADAPTERS.md): the sockets by which libfabric
# wakes itself stay open on exec, shm has none; net and ofi_rxm cannot wake a sleeper.
rules_of() {
    local broken='15\.7'
    case $1 in
    shm) broken='none' ;;
    net | *ofi_rxm) broken='15\.7|13\.8|13\.12' ;;
    esac
    "$build/bin/rdmux" conformance --list-rules | cut -f1 | grep -vxE "$broken" | paste -sd,
}

conforms() {
    local how=$1 provider=$2 rules
    rules=$(rules_of "$provider")
    # Sleeping, the cases in which waiting matters; all of them in a thorough run.
    [[ $how == poll || ${RDMUX_TEST_LEVEL:-normal} == thorough ]] || rules=1,2,4,7,13.6,13.7,13.10,13.11
    FI_PROVIDER=$provider timeout 1800 "$build/bin/rdmux" conformance --provider ofi --quick \
        --patience "$patience" --seed 1 --wait "$how" --rules "$rules"
}

info_names_the_library() {
    RDMUX_PATHS=ofi "$build/bin/rdmux" info --json |
        grep -q '"provider":"ofi"[^}]*"text":"libfabric [0-9.]*, provider '
}

without_a_request_it_is_left_alone() {
    "$build/bin/rdmux" info --json | grep -q '"provider":"ofi"[^}]*"reason":"FILTERED"'
}

when_wanted() { # NAME COMMAND...
    [[ -n $wanted && ! $1 =~ $wanted ]] || tap "$@"
}

when_wanted 'loading libfabric changes nothing in the process' "$build/tests/adapters/unchanged" ofi
when_wanted 'rdmux info names the version of libfabric' info_names_the_library
when_wanted 'without a request libfabric is left alone' without_a_request_it_is_left_alone
for provider in "${providers[@]}"; do
    for how in poll sleep; do
        when_wanted "$provider keeps the rules ($how)" conforms "$how" "$provider"
    done
done
for name in pingpong_tells_half_a_round_trip file_copy_copies_files_of_any_size \
    kv_store_keeps_what_was_put rpc_serves_four_clients allreduce_sums_on_every_rank \
    event_loop_tells_every_line_to_every_member; do
    when_wanted "${name//_/ } (ofi)" bash "$root/tests/examples/run.sh" "$name" ofi
done
tap_end
