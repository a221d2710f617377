#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# Mutations of rdmux itself: edits a line of a copy of the sources, builds it, and runs the tests that cover the file until one
# fails. Tells which share of the mutants was caught, and the survivors with file, line and edit. README.md says how to read them.
set -euo pipefail
shopt -s extglob
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

usage() {
    cat <<'END'
usage: tests/mutants/source.sh [option...]

  --count N     how many mutants (default 40), spread evenly over the folders
  --seed N      which ones (default 1)
  --file REGEX  only in files whose name matches, such as '^shm/'
  --edit FILE:LINE:OPERATOR
                this one, as a report names it
  --least P     fail if fewer than P percent are caught (default 0)
  --work DIR    where the copy is built and kept (default: a new folder, removed at the end)
  --list        print the edits that were chosen and end
END
}

count=40 seed=1 files='.' only='' work='' list=no least=0
while (($# > 0)); do
    case $1 in
    --count) count=$2 && shift ;;
    --seed) seed=$2 && shift ;;
    --file) files=$2 && shift ;;
    --edit) only=$2 && shift ;;
    --least) least=$2 && shift ;;
    --work) work=$2 && shift ;;
    --list) list=yes ;;
    --help)
        usage
        exit 0
        ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
    shift
done

# All edits, in the order in which they are tried: one of each folder in turn, within a folder by chance.
edits() {
    # shellcheck disable=SC2046
    awk -f tests/mutants/source.awk $(project_files 'api/*.c' 'negotiation/*.c' 'providers/*.c' 'tcp_fallback/*.c' 'shm/*.c' \
        'verbs/*.c' 'roce/*.c' 'iwarp/*.c' | grep -E "$files") |
        awk -F'\t' -v seed="$seed" -v only="$only" '
            BEGIN { srand(seed) }
            only != "" && only != $1 ":" $2 ":" $3 { next }
            { split($1, folder, "/"); printf "%s\t%.9f\t%s\n", folder[1], rand(), $0 }' |
        sort -k1,1 -k2,2 | awk -F'\t' '{ print ++turn[$1] "\t" $0 }' | sort -s -n -k1,1 | cut -f4-
}

if [[ $list == yes ]]; then
    edits | head -n "$count" || true
    exit 0
fi

scratch=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-source-mutants.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
[[ -n $work ]] || work=$scratch/copy
mkdir -p "$work"
project_files '*' | tar -cf - --files-from=- | tar -xmf - -C "$work" # as new: an object may be of the last edit there
build=$work/build/dev
cd "$work"
echo "# building the copy in $work"
if ! { cmake --preset dev -DRDMUX_WERROR=OFF -DRDMUX_EXAMPLES=OFF && cmake --build "$build" -j2; } >"$scratch/build.log" 2>&1; then
    tail -n 20 "$scratch/build.log"
    die 'the copy does not build'
fi

# Time is their subject, so they fail on a loaded machine whatever is mutated.
readonly unhurried='^test_(liveness|threads|listener.*|handover)$'

# The unit tests of a file's folder, and how the conformance suite runs what is in it.
tests_of() {
    local pattern
    case $1 in
    negotiation/*) pattern='offer|match|handshake|explain|message|frame|recorded|accept|listener|connect|no_path' ;;
    tcp_fallback/*) pattern='tcp|credit' ;;
    shm/*) pattern='shm' ;;
    providers/*) pattern='registry|loader|target|credit|software|plugin' ;;
    verbs/* | roce/* | iwarp/*) pattern='verbs|roce|iwarp|sim_' ;;
    *) pattern='.' ;;
    esac
    find "$build/tests/unit" "$build/tests/sim_verbs" -maxdepth 1 -name 'test_*' -type f -perm -u+x -printf '%f\n' 2>/dev/null |
        sort | grep -vE "$unhurried" | grep -E "$pattern" | if [[ $1 == api/* ]]; then grep -vE 'verbs|roce|iwarp|shm_|tcp_|sim_|offer|match'; else cat; fi
}

# Where peers that are not rdmux have a part.
readonly plain_files='^verbs/|plain|^api/(listener|connect)\.'

conformance_of() {
    local sim="env LD_PRELOAD=$build/lib/libsimverbs.so"
    local run="$build/bin/rdmux conformance --quick --format tap --seed 1 --provider"
    [[ ! $1 =~ $plain_files ]] ||
        echo "$sim CMOCKA_MESSAGE_OUTPUT=TAP SIM_VERBS=net=mutants-$$,link=roce $build/tests/interop/test_plain"
    case $1 in
    tcp_fallback/*) echo "$run tcp" ;;
    shm/*) echo "$run shm" ;;
    roce/*) echo "$sim SIM_VERBS=link=roce,freedoms=all $run roce" ;;
    iwarp/*) echo "$sim SIM_VERBS=link=iwarp,freedoms=all $run iwarp" ;;
    verbs/*)
        echo "$sim SIM_VERBS=link=roce,freedoms=all $run roce"
        echo "$sim SIM_VERBS=link=iwarp,freedoms=all $run iwarp"
        ;;
    *)
        echo "$run tcp"
        echo "$run shm"
        ;;
    esac
}

# first_failure COMMAND...: TAP until the first failed case, which it prints; fails if there is none and the program ends well.
first_failure() {
    local limit=$1 line pid rc=0
    shift
    local fifo=$scratch/fifo
    rm -f "$fifo" && mkfifo "$fifo"
    setsid timeout --kill-after=2 "$limit" "$@" >"$fifo" 2>/dev/null </dev/null 3<&- 4<&- &
    pid=$!
    line=$(grep -m1 '^not ok' "$fifo" || true)
    if [[ -n $line ]]; then
        kill -KILL -- "-$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
        echo "${line#not ok }"
        return 0
    fi
    wait "$pid" || rc=$?
    ((rc != 0)) || return 1
    ((rc != 124 && rc != 137)) || { echo 'it hangs' && return 0; }
    echo "it ended with status $rc"
}

# program TEST
program() {
    [[ -x $build/tests/unit/$1 ]] && echo "$build/tests/unit/$1" || echo "$build/tests/sim_verbs/$1"
}

# fails COMMAND...: as the first case that failed, twice, for a loaded machine makes one fail by chance.
fails() {
    first_failure 90 "$@" >/dev/null && first_failure 90 "$@"
}

declare -A left_out=()

# judge FILE: builds and tests; prints the verdict.
judge() {
    local file=$1 name why
    local -a targets command
    mapfile -t targets < <(tests_of "$file")
    targets+=(rdmux_tool)
    [[ ! $file =~ ^(verbs|roce|iwarp)/ ]] || targets+=(rdmux_verbs sim_verbs_shared)
    [[ ! $file =~ $plain_files ]] || targets+=(rdmux_verbs sim_verbs_shared test_plain)
    if ! nice cmake --build "$build" -j2 --target "${targets[@]}" >"$scratch/build.log" 2>&1; then
        echo invalid
        return
    fi
    while IFS= read -r name <&3; do
        [[ -z ${left_out[$name]-} ]] || continue
        if why=$(CMOCKA_MESSAGE_OUTPUT=TAP fails "$(program "$name")"); then
            echo "caught by $name: $why"
            return
        fi
    done 3< <(tests_of "$file")
    while read -r -a command <&3; do
        [[ -z ${left_out[${command[*]}]-} ]] || continue
        if why=$(fails "${command[@]}"); then
            echo "caught by conformance: $why"
            return
        fi
    done 3< <(conformance_of "$file")
    echo survived
}

# What fails without an edit catches nothing.
while IFS= read -r name <&3; do
    if CMOCKA_MESSAGE_OUTPUT=TAP first_failure 90 "$(program "$name")" >/dev/null; then
        left_out[$name]=1
        echo "# left out, as it fails without an edit: $name"
    fi
done 3< <(cd "$root" && edits | cut -d/ -f1 | sort -u | while IFS= read -r folder; do tests_of "$folder/any.c"; done | sort -u)
while read -r -a command <&3; do
    if first_failure 90 "${command[@]}" >/dev/null; then
        left_out[${command[*]}]=1
        echo "# left out, as it fails without an edit: ${command[*]}"
    fi
done 3< <(cd "$root" && edits | cut -d/ -f1 | sort -u | while IFS= read -r folder; do conformance_of "$folder/any.c"; done | sort -u)

caught=0 number=0
while IFS=$'\t' read -r file line operator text <&4; do
    ((number < count)) || break
    cp "$file" "$scratch/original"
    awk -v line="$line" 'NR == FNR { text = $0; next } FNR == line { print text; next } { print }' \
        <(printf '%s\n' "$text") "$scratch/original" >"$file"
    verdict=$(judge "$file")
    before=$(sed -n "${line}s/^ *//p" "$scratch/original")
    cp "$scratch/original" "$file"
    [[ $verdict != invalid ]] || continue
    number=$((number + 1))
    case $verdict in
    caught*) caught=$((caught + 1)) ;;
    esac
    printf '# %s:%d:%s: %s => %s: %s\n' "$file" "$line" "$operator" "$before" "${text##+( )}" "$verdict"
done 4< <(cd "$root" && edits)
((number > 0)) || die 'no edit was chosen'
tap "$caught of $number mutants are caught, at least $least % (seed $seed)" test $((100 * caught)) -ge $((least * number))
tap_end
