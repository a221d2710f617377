#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Storms in which processes connect all to all at once, and the linear cost of an endpoint; prints
# TAP. No time decides: what is asserted are counts. With --thorough 256 processes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${RDMUX_SOURCE:-$(cd "$here/../.." && pwd)}
build=${RDMUX_BUILD:-$root/build/dev}
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
programs=$build/tests/scale
plugin=$build/lib/rdmux/rdmux-verbs.so
simulation=$build/lib/libsimverbs.so
unset RDMUX_PATHS RDMUX_LOG SIM_VERBS

if ! have jq; then
    echo "1..0 # SKIP jq is missing"
    exit 77
fi
[[ -x $programs/storm ]] || die "there is no $programs/storm; build it"
scratch=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-scale.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# over PATH COMMAND...: with the adapter that the path needs.
over() {
    case $1 in
    ib | roce | iwarp) LD_PRELOAD=$simulation SIM_VERBS="link=$1,net=scale$$" "${@:2}" ;;
    *) "${@:2}" ;;
    esac
}

# ----------------------------------------------------------------------------------------- storms

# storm PATH PROCESSES OPTION...: each pair is connected once, has exchanged its two messages, and
# has ended in order at both ends; and each set-up that failed meanwhile has told why.
storm() {
    local path=$1 processes=$2 status=0
    local -a options=("${@:3}")
    case $path in
    ib | roce | iwarp) options+=(--plugin "$plugin") ;;
    esac
    over "$path" "$programs/storm" --paths "$path" "${options[@]}" "$processes" >"$scratch/storm" ||
        status=$?
    cat "$scratch/storm"
    ((status == 0)) && jq -e --argjson n "$processes" '
        ($n * ($n - 1) / 2) as $pairs
        | .right and .pairs == $pairs and .connected == $pairs and .accepted - .stale == $pairs
          and .messages == 2 * $pairs and .ends == 2 * $pairs
          and .wrong == 0 and .lost == 0 and .given_up == 0
          and ([.reasons[].count] | add // 0) == .failed_setups
          and all(.reasons[]; .where != "" and .status != "RDMUX_OK" and .text != "")
        ' "$scratch/storm" >/dev/null
}

# storm_case TITLE PATH PROCESSES OPTION...: skipped where a limit of this machine is too low.
storm_case() {
    local title=$1 lacks
    if lacks=$("$programs/storm" --paths "$2" --check "$3" 2>&1); then
        tap "$title" storm "${@:2}"
    else
        tap_skip "$title" "${lacks//$'\n'/; }"
    fi
}

# exits PATH PROCESSES: half of the processes call exit() in the midst, and end by that alone.
exits() {
    "$programs/storm" --paths "$1" --exit "$2" >"$scratch/exits" || {
        cat "$scratch/exits"
        return 1
    }
    jq -e --argjson n "$2" '.right and .exited == $n / 2' "$scratch/exits" >/dev/null
}

# flaw NAME TEXT: the storm finds what is planted, and says so.
flaw() {
    local status=0
    "$programs/storm" --count --flaw "$1" 4 >"$scratch/flaw" 2>&1 || status=$?
    cat "$scratch/flaw"
    ((status == 1)) && grep -q "$2" "$scratch/flaw"
}

storm_case "32 processes connect all to all at once over tcp, and leave nothing behind" \
    tcp 32 --count
storm_case "32 processes connect all to all at once over shm, and leave nothing behind" \
    shm 32 --count
storm_case "the same with shared receives" tcp 12 --count --shared
if [[ -e $plugin && -e $simulation ]]; then
    tap "6 processes connect all to all over simulated adapters" storm roce 6 --count
else
    tap_skip "6 processes connect all to all over simulated adapters" \
        "$simulation is not built: libibverbs-dev, librdmacm-dev"
fi
storm_case "listeners with room for few turn connectors away with a reason, and these come back" \
    tcp 16 --count --max-setups 1 --max-waiting 1 --retries 1000
tap "processes that call exit() amid a storm over tcp end by that, not by a signal" exits tcp 24
tap "processes that call exit() amid a storm over shm end by that, not by a signal" exits shm 24
tap "a storm finds a wrong message" flaw message 'a wrong message from process 0'
tap "a storm finds a descriptor that stays open" flaw descriptor 'descriptors before'
tap "a storm finds a mapping that stays" flaw mapping 'shared mappings before'
tap "a storm finds an endpoint that ends before its time" flaw end '"where":"ended early"'
if [[ ${RDMUX_TEST_LEVEL:-normal} == thorough ]]; then
    storm_case "256 processes connect all to all at once over tcp" tcp 256
    storm_case "256 processes connect all to all at once over shm" shm 256
fi

# ------------------------------------------------------------------------------------------ costs

# costs PATH ENDPOINTS FILE
costs() {
    case $1 in
    ib | roce | iwarp)
        SIM_VERBS="link=$1,net=scale$$" "$programs/cost_sim" --plugin "$plugin" --count --idle 0 \
            "$1" "$2" >"$3"
        ;;
    *) "$programs/cost" --count --idle 0 "$1" "$2" >"$3" ;;
    esac
}

# is_linear PATH: an endpoint takes as much beside 60 others as beside 20. Tables that grow by
# doubling are a difference that is allowed, and so are mappings of proof buffers that go later.
is_linear() {
    { costs "$1" 20 "$scratch/few" && costs "$1" 60 "$scratch/many"; } || return 1
    cat "$scratch/few" "$scratch/many"
    jq -se '
        def near($a; $b; $part): (($a - $b) | fabs) <= $part * ([$a, $b] | max);
        .[0] as $few | .[1] as $many
        | all(("connector", "acceptor") as $side | ($few[$side], $many[$side]);
              .descriptors > 0 and .library_bytes > 0)
          and all("connector", "acceptor"; . as $side
              | $few[$side] as $a | $many[$side] as $b
              | $a.descriptors == $b.descriptors and near($a.shared_mappings; $b.shared_mappings; 0.6)
                and near($a.library_bytes; $b.library_bytes; 0.1))
          and ($few.adapter == null or
               ($few.adapter.queue_pairs >= 1
                and $few.adapter.queue_pairs == $many.adapter.queue_pairs
                and $few.adapter.send_entries == $many.adapter.send_entries
                and $few.adapter.receive_entries == $many.adapter.receive_entries
                and $few.adapter.region_bytes == $many.adapter.region_bytes))
        ' "$scratch/few" "$scratch/many" >/dev/null
}

tap "an endpoint over tcp costs the same beside few and beside many" is_linear tcp
tap "an endpoint over shm costs the same beside few and beside many" is_linear shm
for path in roce iwarp; do
    if [[ -x $programs/cost_sim && -e $plugin ]]; then
        tap "an endpoint over $path costs the same beside few and beside many" is_linear "$path"
    else
        tap_skip "an endpoint over $path costs the same beside few and beside many" \
            "$programs/cost_sim is not built: libibverbs-dev, librdmacm-dev"
    fi
done

# ---------------------------------------------------------------------------------- the whole script

measures() {
    "$here/measure" --build "$build" --counts 5,10 --rounds 1 --idle 0.1 --storm 4 \
        --json "$scratch/measured" tcp shm >"$scratch/out" 2>&1 || {
        cat "$scratch/out"
        return 1
    }
    cat "$scratch/out"
    jq -e '(.costs | length == 4) and all(.costs[]; .set_up.per_second > 0)
           and (.peers | length > 0) and (.storms | length == 4) and all(.storms[]; .right)' \
        "$scratch/measured" >/dev/null &&
        (($(grep -c '^| \(tcp\|shm\) |' "$scratch/out") >= 8))
}
tap "scripts/bench scale measures, and prints tables" measures
refuses() {
    local status=0
    "$root/scripts/bench" scale --nonsense >"$scratch/out" 2>&1 || status=$?
    cat "$scratch/out"
    ((status == 2)) && grep -q -- --nonsense "$scratch/out"
}
tap "scripts/bench scale refuses what it does not understand" refuses
tap_end
