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

readonly by_rule='a case of rule'

# suite_fails FOLDER OPTION ARGUMENT...: runs the suite over the library of FOLDER until a case
# fails and prints the case; fails if none does.
suite_fails() {
    local folder=$1
    local -a suite=("$scratch/rdmux" conformance --format tap --seed 1)
    [[ $2 != small ]] ||
        suite=("RDMUX=$scratch/rdmux" bash "$root/tests/conformance_command/small_sockets.sh")
    mutation_first_failure 900 "$folder/tap" env "LD_LIBRARY_PATH=$folder/lib" "${suite[@]}" "${@:3}"
}

# hunt NAME: writes the verdict to NAME.verdict, as its last line.
hunt() {
    local name=$1 folder=$scratch/$1 failed
    local -a run=(--provider "${provider[$1]}") changes=()
    [[ ${options[$name]} != small ]] || run=() # it has its provider
    [[ ${options[$name]} != thorough ]] || run+=(--thorough)
    mapfile -t -d $'\x1f' changes < <(printf '%s' "${edits[$name]}")
    if ! mutation_build rdmux "$folder" "$folder/lib/librdmux.so.0" "${changes[@]}" \
        >"$folder.build" 2>&1; then
        tail -n 3 "$folder.build"
    elif failed=$(suite_fails "$folder" "${options[$name]}" "${run[@]}" --rules "${rules[$name]}"); then
        mutation_verdict caught "$by_rule ${rules[$name]}: $failed"
    elif failed=$(suite_fails "$folder" "${options[$name]}" "${run[@]}"); then
        mutation_verdict caught "a case, but not of rule ${rules[$name]}: $failed"
    else
        mutation_verdict survived || true
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
                printf '%s: %s\n' "$name" \
                    "$(mutation_verdict stale "${parts[i]}: $count matches of ${parts[i + 1]}")"
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

caught_by_rule=0
is_caught() {
    cat "$scratch/$1.verdict"
    mutation_is caught "$(tail -n 1 "$scratch/$1.verdict")"
}
for name in "${wanted[@]}"; do
    verdict=$(tail -n 1 "$scratch/$name.verdict")
    tap "$name, which ${text[$name]}, is caught" is_caught "$name"
    ! mutation_is caught "$verdict" || printf '#   %s\n' "$verdict"
    [[ $verdict != "${mutation_words[caught]} $by_rule "* ]] || caught_by_rule=$((caught_by_rule + 1))
done
printf '# %d of %d caught by a case of the broken rule\n' "$caught_by_rule" "${#wanted[@]}"
tap_end
