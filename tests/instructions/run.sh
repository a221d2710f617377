#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${RDMUX_SOURCE:-$(cd "$here/../.." && pwd)}
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"

usage() {
    cat <<'END_OF_USAGE'
usage: tests/instructions/run.sh [--path PATH]... [--plugin FILE] [--preload FILE]
                                 [--keep FOLDER] [--update] [OPERATION...]

Counts the instructions that rdmux itself executes for one data-path operation (callgrind's count,
without libc and the kernel), in an optimised build, and compares them with the table of this
compiler, expected-COMPILER-VERSION.txt. Prints TAP; the counts are in its comments.

  --path PATH     a path to measure; may be repeated (default: tcp, shm, and roce where the plug-in
                  is built). What is neither tcp nor shm is measured over the simulated RDMA device
                  of tests/sim_verbs
  --plugin FILE   a plug-in to load for it (default: rdmux-verbs.so)
  --preload FILE  what stands in for libibverbs and librdmacm (default: the simulated device,
                  described by SIM_VERBS)
  --keep FOLDER   leave callgrind's dumps there, for callgrind_annotate(1)
  --update        write the counts into the table instead of comparing
  OPERATION       only these; see instructions --list

A count is of one side: of the initiator's calls, or of the target's where the target has to do
something. Instructions are in the table's fourth column, system calls of the provider in the fifth.
loop_write_8 is a whole loop, that of the program and the device's instructions included: the same
without rdmux, on ibv_post_send() and ibv_poll_cq(), stands beside it as "raw", and how much more rdmux
takes as "over_raw", which has a limit of its own.
END_OF_USAGE
}

# In percent. The effect of a change elsewhere in a file on the compiler's output usually stays
# below the first; a fall beyond the second is worth keeping.
readonly rise_max=2 fall_max=5
readonly attempts_max=3
# Instructions by which a loop may exceed the raw one.
readonly over_raw_max=60

paths=()
plugin=
preload=
keep=
update=no
operations=()
while (($# > 0)); do
    case $1 in
    --path | --plugin | --preload | --keep)
        (($# > 1)) || die "$1 takes a value"
        case $1 in
        --path) paths+=("$2") ;;
        --plugin) plugin=$(realpath -e "$2") || die "there is no plug-in $2" ;;
        --preload) preload=$(realpath -e "$2") || die "there is no library $2" ;;
        --keep) keep=$2 ;;
        esac
        shift
        ;;
    --update) update=yes ;;
    --help | -h)
        usage
        exit 0
        ;;
    -*)
        usage >&2
        exit 2
        ;;
    *) operations+=("$1") ;;
    esac
    shift
done
have valgrind || {
    echo '1..0 # SKIP valgrind is not installed'
    exit 77
}
dev=${RDMUX_BUILD:-$root/build/dev}
build=${dev%/*}/release
program=$build/tests/bench/instructions
scratch=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-instructions.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
unset RDMUX_PATHS RDMUX_LOG RDMUX_PROVIDER_DIR

# ---------------------------------------------------------------------------------------- building

configure() {
    local generator=
    ! have ninja || generator=Ninja # of a new folder; starts fewer processes than make
    (cd "$root" && env ${generator:+"CMAKE_GENERATOR=$generator"} cmake --preset release -B "$build" -DRDMUX_WERROR=ON)
}

has_verbs() {
    [[ -n $(cached RDMUX_VERBS_INCLUDE) && $(cached RDMUX_VERBS_INCLUDE) != *-NOTFOUND &&
        $(cached RDMUX_RDMACM_INCLUDE) != *-NOTFOUND ]]
}

is_built_in() {
    [[ $1 == tcp || $1 == shm ]]
}

build_all() {
    local targets=(rdmux instructions) path
    for path in "${paths[@]}"; do
        is_built_in "$path" || targets+=(rdmux_verbs sim_verbs_shared raw_verbs)
    done
    cmake --build "$build" --parallel "${RDMUX_JOBS:-$(nproc)}" --target "${targets[@]}"
}

cached() {
    sed -n "s/^$1:[^=]*=//p" "$build/CMakeCache.txt"
}

# Inputs of the counts besides the sources: compiler, machine, flags.
describe_build() {
    local compiler
    compiler=$(cached CMAKE_C_COMPILER)
    printf '# compiler: %s\n' "$("$compiler" --version | sed -n '1s/^[^ ]* //p')"
    printf '# machine: %s\n' "$("$compiler" -dumpmachine)"
    printf '# flags: %s\n' \
        "$(echo "$(cached CMAKE_C_FLAGS) $(cached CMAKE_C_FLAGS_RELWITHDEBINFO)" | xargs)"
}

table_of_compiler() {
    local compiler name=gcc
    compiler=$(cached CMAKE_C_COMPILER)
    if "$compiler" -dM -E -x c /dev/null | matches __clang__; then
        name=clang
    fi
    printf '%s/expected-%s-%s.txt\n' "$here" "$name" "$(version_of "$compiler")"
}

version_of() {
    "$1" -dumpfullversion 2>/dev/null || "$1" -dumpversion
}

# --------------------------------------------------------------------------------------- measuring

# run_once PATH FOLDER [OPERATION...]: prints the output of counts.awk.
run_once() {
    local path=$1 folder=$2 options=(--path "$1") variables=()
    shift 2
    if is_built_in "$path"; then
        count_program "$folder/$path" "$program" "${options[@]}" "$@"
        return
    fi
    options+=(--plugin "${plugin:-$build/lib/rdmux/rdmux-verbs.so}")
    variables+=("LD_PRELOAD=${preload:-$build/lib/libsimverbs.so}"
        "SIM_VERBS=${SIM_VERBS:-link=$path,time=virtual,threads=no,trace=no}")
    count_program "$folder/$path" "${variables[@]}" "$program" "${options[@]}" "$@" || return
    if [[ $* == '' || " $* " == *' loop_write_8 '* ]]; then
        count_program "$folder/$path-raw" "${variables[@]}" "$build/tests/bench/raw_verbs" "$path"
    fi
}

# count_program DUMPS [VARIABLE=VALUE...] PROGRAM [ARGUMENT...]
count_program() {
    local at=$1 dumps=() i status=0 words=("${@:2}") variables=()
    while [[ ${words[0]} == *=* ]]; do
        variables+=("${words[0]}")
        words=("${words[@]:1}")
    done
    mkdir -p "${at%/*}"
    rm -f "$at".*
    # Symbols are bound at the start, not on the first call.
    env LD_BIND_NOW=1 "${variables[@]}" valgrind --tool=callgrind --collect-atstart=no \
        --callgrind-out-file="$at" "${words[@]}" >"$at.log" 2>&1 || status=$?
    if ((status != 0)); then
        cat "$at.log" >&2
        return "$status"
    fi
    for ((i = 1; ; i++)); do
        [[ -e $at.$i ]] || break
        dumps+=("$at.$i")
    done
    ((i > 1)) || {
        echo "callgrind dumped nothing to $at" >&2
        return 1
    }
    awk -f "$here/counts.awk" "${dumps[@]}"
}

# least FILE...: the minimum of each line's counts over several runs.
least() {
    awk '
        {
            key = $1 " " $2 " " $3
            if (!(key in instructions)) {
                order[++count] = key
                instructions[key] = $4
                calls[key] = $5
            }
            instructions[key] = $4 < instructions[key] ? $4 : instructions[key]
            calls[key] = $5 < calls[key] ? $5 : calls[key]
        }
        END {
            for (i = 1; i <= count; i++) {
                printf "%s %.2f %.4f\n", order[i], instructions[order[i]], calls[order[i]]
            }
        }' "$@"
}

late_polls() {
    awk '{ late += $6 } END { print late + 0 }' "$1"
}

# count PATH FOLDER FILE [OPERATION...]: writes the counts to the file. A poll that came before its
# bytes, because the kernel was busy, costs instructions that are not the operation's. Then the run
# is repeated, and the minimum counts.
count() {
    local path=$1 folder=$2 file=$3 attempt late runs=()
    shift 3
    for ((attempt = 1; attempt <= attempts_max; attempt++)); do
        runs+=("$file-$attempt")
        run_once "$path" "$folder" "$@" >"$file-$attempt" || return
        late=$(late_polls "$file-$attempt")
        if ((late == 0)); then
            runs=("$file-$attempt")
            break
        fi
        printf '# %s: %d polls came before the bytes they were for (run %d)\n' "$path" "$late" \
            "$attempt" >>"$scratch/notes"
    done
    least "${runs[@]}" | over_raw >"$file"
}

# Adds to a loop's two lines a third one, over_raw: the difference between them.
over_raw() {
    awk '
        { print; sides[$2, $3] = $4 }
        $3 == "raw" {
            printf "%s %s over_raw %.2f 0.0000\n", $1, $2, sides[$2, "initiator"] - $4
        }'
}

# measure PATH: the counts of all its operations, in $scratch/PATH.
measure() {
    local file=$scratch/$1
    count "$1" "${keep:-$scratch/dumps}" "$file" "${operations[@]}" || return
    [[ -s $file ]] || {
        echo "nothing was counted over $1"
        return 1
    }
    ! awk '$4 <= 0 && $3 != "over_raw" { print "not one instruction: " $0; found = 1 } END { exit !found }' "$file"
}

# Some operations run in another process must give exactly the same counts.
repeats() {
    local path=$1 some=(send_8_signaled read_8)
    ((${#operations[@]} == 0)) || some=("${operations[0]}")
    count "$path" "$scratch/again" "$scratch/$path-again" "${some[@]}" || return
    ! grep -vxFf "$scratch/$path" "$scratch/$path-again" >"$scratch/differ" || {
        echo 'another run counted'
        cat "$scratch/differ"
        echo 'instead of'
        cat "$scratch/$path"
        return 1
    }
}

# ------------------------------------------------------------------------------------- the verdict

# judge PATH OPERATION SIDE: compares one line of the counts with the table's.
judge() {
    awk -v key="$1 $2 $3" -v rise_max="$rise_max" -v fall_max="$fall_max" -v table="$table" \
        -v limit="$over_raw_max" '
        function percent(now, then) {
            return then == 0 ? (now == 0 ? 0 : 100) : (now - then) / then * 100
        }
        $1 " " $2 " " $3 != key { next }
        FILENAME == table { known = 1; instructions = $4; calls = $5; next }
        { now = $4; calls_now = $5 }
        END {
            if (key ~ / over_raw$/ && now > limit) {
                printf "%.2f instructions more than without rdmux, %d are allowed\n", now, limit
                exit 1
            }
            if (!known) {
                printf "the table has no such line; run.sh --update adds it\n"
                exit 1
            }
            printf "%.2f instructions, %.2f in the table; %.4f system calls, %.4f in the table\n",
                now, instructions, calls_now, calls
            change = percent(now, instructions)
            change_of_calls = percent(calls_now, calls)
            if (change > rise_max || change_of_calls > rise_max) {
                printf "more than %d %% dearer", rise_max
                print ": run.sh --keep FOLDER and callgrind_annotate say where"
                exit 1
            }
            if (change < -fall_max || change_of_calls < -fall_max) {
                printf "more than %d %% cheaper: run.sh --update, so that it stays so\n", fall_max
                exit 1
            }
        }' "$table" "$scratch/counts"
}

# Lines of the table for which nothing was counted, though their path was measured.
lost_lines() {
    local path lost=0
    for path in "${paths[@]}"; do
        awk -v path="$path" '
            NR == FNR { counted[$1 " " $2 " " $3] = 1; next }
            $1 == path && !($1 " " $2 " " $3 in counted) { print "not counted: " $0; found = 1 }
            END { exit found }' "$scratch/counts" "$table" || lost=1
    done
    return "$lost"
}

compare() {
    local path operation side
    while read -r path operation side _; do
        tap "$operation over $path costs the $side what the table says" \
            judge "$path" "$operation" "$side"
    done <"$scratch/counts"
    if ((${#operations[@]} == 0)); then
        tap 'every line of the table was counted' lost_lines
    fi
}

# The table with the new counts in place of the old ones; other paths and operations are unchanged.
write_table() {
    {
        cat <<'END_OF_HEAD'
# Instructions that rdmux itself executes for one operation, and system calls that the provider
# makes for it: PATH OPERATION SIDE INSTRUCTIONS SYSTEM_CALLS.
# Written by tests/instructions/run.sh --update.
END_OF_HEAD
        describe_build
        if [[ -e $table ]] && diff <(describe_build) <(build_of_table) >/dev/null; then
            awk '
                { key = $1 " " $2 " " $3 }
                NR == FNR {
                    order[++count] = key
                    counted[key] = $0
                    next
                }
                !/^#/ {
                    print (key in counted ? counted[key] : $0)
                    delete counted[key]
                }
                END {
                    for (i = 1; i <= count; i++) {
                        if (order[i] in counted) {
                            print counted[order[i]]
                        }
                    }
                }' "$scratch/counts" "$table"
        else
            cat "$scratch/counts"
        fi
    } >"$scratch/table"
    cp "$scratch/table" "$table"
}

build_of_table() {
    grep -E '^# (compiler|machine|flags): ' "$table"
}

# --------------------------------------------------------------------------------------------- main

: >"$scratch/notes"
: >"$scratch/counts"
configure >"$scratch/configure" 2>&1 || {
    cat "$scratch/configure"
    echo 'Bail out! there is nothing to count'
    exit 1
}
if ((${#paths[@]} == 0)); then
    paths=(tcp shm)
    if has_verbs; then
        paths+=(roce)
    else
        tap_skip 'operations over roce are counted' 'the headers of libibverbs or librdmacm are missing'
    fi
fi
tap 'an optimised build with the program that is counted' build_all
((tap_failed == 0)) || {
    echo 'Bail out! there is nothing to count'
    exit 1
}
status=0
"$program" --can-count >"$scratch/why" 2>&1 || status=$?
if ((status == 77)); then
    tap_skip 'instructions are counted' "$(<"$scratch/why")"
    tap_end
    exit
fi
table=$(table_of_compiler)
for path in "${paths[@]}"; do
    tap "operations over $path are counted" measure "$path"
    if [[ -s $scratch/$path ]]; then
        cat "$scratch/$path" >>"$scratch/counts"
        tap "counts over $path repeat" repeats "$path"
    fi
done
describe_build
cat "$scratch/notes"
awk '{ printf "# %-4s %-18s %-10s %10s %8s\n", $1, $2, $3, $4, $5 }' "$scratch/counts"

if [[ $update == yes ]]; then
    ((tap_failed > 0)) || tap "the counts are written to ${table##*/}" write_table
elif [[ ! -e $table ]]; then
    tap_skip 'the counts are compared with the table' \
        "there is no tests/instructions/${table##*/}; run.sh --update writes it"
elif ! diff <(build_of_table) <(describe_build) >"$scratch/other"; then
    tap_skip 'the counts are compared with the table' \
        "it is of another compiler or other flags: $(grep '^[<>]' "$scratch/other" | tr '\n' ' ')"
else
    compare
fi
tap_end
