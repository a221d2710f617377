#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# Plants the mistakes of library.def in the providers tcp and shm; the conformance suite must catch
# each. Compiles the files that an edit touches, links librdmux with the other objects of the build,
# and runs the cases of the broken rules over it, then all others, until one fails. Arguments: names
# of library.def, to run only these; --list prints them; --all runs all, as does
# RDMUX_TEST_LEVEL=thorough.
set -euo pipefail
: "${RDMUX_BUILD:?the folder the tests were built in}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${RDMUX_SOURCE:-$(cd "$here/../.." && pwd)}
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
# shellcheck source=tests/mutation.sh
. "$root/tests/mutation.sh"

readonly jobs=${MUTANT_JOBS:-$(nproc)}
all=${MUTANT_ALL:-no}
[[ ${RDMUX_TEST_LEVEL:-normal} != thorough ]] || all=yes

# ------------------------------------------------------------------------------------------- the list

names=()
declare -A options=() rules=() provider=() text=() edits=()

# mutant NAME OPTIONS RULES PROVIDER TEXT [FILE WHAT WITH]...: one entry of library.def.
mutant() {
    names+=("$1")
    options[$1]=$2 rules[$1]=$3 provider[$1]=$4 text[$1]=$5
    edits[$1]=$(printf '%s\x1f' "${@:6}")
}
# shellcheck source=tests/mutants/library.def
. "$here/library.def"

wanted=()
for argument; do
    case $argument in
    --list)
        for name in "${names[@]}"; do
            printf '%s\t%s\t%s\t%s\t%s\n' "$name" "${options[$name]}" "${rules[$name]}" "${provider[$name]}" "${text[$name]}"
        done
        exit 0
        ;;
    --all) all=yes ;;
    *)
        [[ -n ${options[$argument]-} ]] || die "no mutant '$argument'; --list names them"
        wanted+=("$argument")
        ;;
    esac
done
if ((${#wanted[@]} == 0)); then
    for name in "${names[@]}"; do
        [[ $all == no && ${options[$name]} != sample ]] || wanted+=("$name")
    done
fi

missing=$(mutation_can_build) || {
    echo "1..0 # SKIP $missing"
    exit 77
}
mutation_scratch mutants
unset RDMUX_PROVIDER_DIR RDMUX_PATHS
cp "$RDMUX_BUILD/bin/rdmux" "$scratch/rdmux" # the tree may be built meanwhile

# ------------------------------------------------------------------------------------------- hunting

# suite_fails FOLDER OPTION ARGUMENT...: runs the suite over the library of FOLDER until a case
# fails and prints the case; fails if none does.
suite_fails() {
    local folder=$1
    local -a suite=("$scratch/rdmux" conformance --format tap --seed 1)
    [[ $2 != small ]] ||
        suite=("RDMUX=$scratch/rdmux" bash "$root/tests/conformance_command/small_sockets.sh")
    mutation_first_failure 900 "$folder/tap" env "LD_LIBRARY_PATH=$folder/lib" "${suite[@]}" "${@:3}"
}

# hunt NAME: writes to NAME.verdict how the mutant was caught, or that it was not.
hunt() {
    local name=$1 folder=$scratch/$1 failed
    local -a run=(--provider "${provider[$1]}") changes=()
    [[ ${options[$name]} != small ]] || run=() # it has its provider
    [[ ${options[$name]} != thorough ]] || run+=(--thorough)
    mapfile -t -d $'\x1f' changes < <(printf '%s' "${edits[$name]}")
    if ! mutation_build rdmux "$folder" "$folder/lib/librdmux.so.0" "${changes[@]}" \
        >"$folder.build" 2>&1; then
        printf 'trouble\t%s\n' "$(tail -n 3 "$folder.build" | tr '\n' ' ')"
    elif failed=$(suite_fails "$folder" "${options[$name]}" "${run[@]}" --rules "${rules[$name]}"); then
        printf 'caught\t%s\n' "$failed"
    elif failed=$(suite_fails "$folder" "${options[$name]}" "${run[@]}"); then
        printf 'elsewhere\t%s\n' "$failed"
    else
        printf 'survived\t\n'
    fi >"$scratch/$name.verdict"
    rm -rf "$folder"
}

# A run of a sample reports an edit of any other mutant that the sources no longer have, too.
edits_apply() {
    local name count status=0 i
    local -a parts=()
    for name in "${names[@]}"; do
        mapfile -t -d $'\x1f' parts < <(printf '%s' "${edits[$name]}")
        for ((i = 0; i + 2 < ${#parts[@]}; i += 3)); do
            count=$(mutation_matches "$root/${parts[i]}" "${parts[i + 1]}") || count=no
            [[ $count == 1 ]] || {
                printf '%s: %s has %s matches in %s\n' "$name" "${parts[i + 1]}" "$count" "${parts[i]}"
                status=1
            }
        done
    done
    return $status
}
tap 'each edit applies to the sources' edits_apply

for name in "${wanted[@]}"; do
    mutation_slot "$jobs"
    mutation_start hunt "$name"
done
mutation_wait

by_rule=0
is_caught() {
    cat "$scratch/$1.verdict"
    [[ $(<"$scratch/$1.verdict") == @(caught|elsewhere)$'\t'* ]]
}
for name in "${wanted[@]}"; do
    IFS=$'\t' read -r verdict failed <"$scratch/$name.verdict"
    tap "$name, which ${text[$name]}, is caught" is_caught "$name"
    case $verdict in
    caught)
        by_rule=$((by_rule + 1))
        printf '#   by rule %s: %s\n' "${rules[$name]}" "$failed"
        ;;
    elsewhere) printf '#   not by rule %s, but: %s\n' "${rules[$name]}" "$failed" ;;
    esac
done
printf '# %d of %d caught by a case of the broken rule\n' "$by_rule" "${#wanted[@]}"
tap_end
