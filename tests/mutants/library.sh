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

objects=$RDMUX_BUILD/CMakeFiles/rdmux_objects.dir
commands=$RDMUX_BUILD/compile_commands.json
link=$RDMUX_BUILD/CMakeFiles/rdmux.dir/link.txt
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

have perl || {
    echo '1..0 # SKIP perl is not installed'
    exit 77
}
[[ -e $commands && -e $link && -d $objects ]] || {
    echo '1..0 # SKIP the library was not built here with make'
    exit 77
}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-mutants.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
unset RDMUX_PROVIDER_DIR RDMUX_PATHS
cp "$RDMUX_BUILD/bin/rdmux" "$scratch/rdmux" # the tree may be built meanwhile

# ------------------------------------------------------------------------------------------- building

# users_of FILE: the sources of the library that include it.
users_of() {
    grep -rlE --include='*.o.d' "(^|[ /])$1( |\$|\\\\)" "$objects" | sed -e "s|^$objects/||" -e 's|\.o\.d$||'
}

# compile SOURCE COPY OUT: compiles SOURCE of the copy as the tree's was compiled.
compile() {
    local -a words=() kept=()
    local word skip=no
    read -r -a words < <(sed -n "s|^ *\"command\": \"\\(.*\\) -c $root/$1\",\$|\\1|p" "$commands" | grep 'rdmux_objects')
    ((${#words[@]} > 0)) || {
        echo "$1 is not in $commands"
        return 1
    }
    [[ ${words[0]} != *ccache ]] || words=("${words[@]:1}")
    for word in "${words[@]:1}"; do
        if [[ $skip == yes || $word == -o || $word == -Werror ]]; then
            skip=no
            [[ $word != -o ]] || skip=yes
            continue
        fi
        kept+=("$word")
    done
    "${words[0]}" "-I$2" "${kept[@]}" -w -o "$3" -c "$2/$1"
}

# apply FILE WHAT WITH: changes the copy; WHAT must match once.
apply() {
    EDIT_WHAT=$2 EDIT_WITH=$3 perl -0777 -i -pe '
        my $count = () = /$ENV{EDIT_WHAT}/g;
        $count == 1 or die qq(what is to be changed is found $count times in $ARGV\n);
        s/$ENV{EDIT_WHAT}/$ENV{EDIT_WITH}/;' "$1"
}

# build NAME FOLDER: makes FOLDER/lib/librdmux.so.0 with the edits of NAME.
build() {
    local folder=$2 source object output i
    local -a parts=() changed=() line=()
    mkdir -p "$folder/source" "$folder/objects" "$folder/lib"
    for source in api negotiation providers shm tcp_fallback; do
        cp -r "$root/$source" "$folder/source/"
    done
    IFS=$'\x1f' read -r -d '' -a parts <<<"${edits[$1]}" || true
    for ((i = 0; i + 2 < ${#parts[@]}; i += 3)); do
        apply "$folder/source/${parts[i]}" "${parts[i + 1]}" "${parts[i + 2]}" || return 1
        while IFS= read -r source; do
            changed+=("$source")
        done < <(users_of "${parts[i]}")
    done
    ((${#changed[@]} > 0)) || {
        echo 'nothing is made of what was changed'
        return 1
    }
    while IFS= read -r source; do
        compile "$source" "$folder/source" "$folder/objects/${source//\//+}.o" || return 1
    done < <(printf '%s\n' "${changed[@]}" | sort -u)
    read -r -a line <"$link"
    for i in "${!line[@]}"; do
        object=${line[i]#CMakeFiles/rdmux_objects.dir/}
        output=$folder/objects/${object//\//+}
        if [[ $object != "${line[i]}" && -e $output ]]; then
            line[i]=$output
        elif [[ ${line[i]} == lib/librdmux.so* ]]; then
            line[i]=$folder/lib/librdmux.so.0
        fi
    done
    (cd "$RDMUX_BUILD" && "${line[@]}")
}

# ------------------------------------------------------------------------------------------- hunting

# first_failure FOLDER OPTION ARGUMENT...: runs the suite until a case fails and prints its line;
# fails if none does.
first_failure() {
    local folder=$1 failed pid rc=0
    local -a suite=("$scratch/rdmux" conformance --format tap --seed 1)
    [[ $2 != small ]] || suite=(env "RDMUX=$scratch/rdmux" bash "$root/tests/conformance_command/small_sockets.sh")
    shift 2
    rm -f "$folder/tap" && mkfifo "$folder/tap"
    LD_LIBRARY_PATH=$folder/lib setsid timeout --kill-after=2 900 "${suite[@]}" "$@" \
        >"$folder/tap" 2>>"$folder/stderr" </dev/null &
    pid=$!
    failed=$(grep -m1 '^not ok' "$folder/tap" || true)
    kill -KILL -- "-$pid" 2>/dev/null || true
    wait "$pid" || rc=$?
    if [[ -n $failed ]]; then
        sed -E 's/^not ok [0-9]+ - //' <<<"$failed"
        return 0
    fi
    ((rc != 0 && rc != 137 && rc != 77)) || return 1
    echo "the suite ended with status $rc"
}

# hunt NAME FOLDER: writes how the mutant was caught, or that it was not.
hunt() {
    local name=$1 folder=$2 failed
    local -a run=(--provider "${provider[$1]}")
    [[ ${options[$name]} != small ]] || run=() # it has its provider
    [[ ${options[$name]} != thorough ]] || run+=(--thorough)
    build "$name" "$folder" >"$folder.build" 2>&1 || {
        printf 'trouble\t%s\n' "$(tail -n 3 "$folder.build" | tr '\n' ' ')"
        return
    }
    if failed=$(first_failure "$folder" "${options[$name]}" "${run[@]}" --rules "${rules[$name]}"); then
        printf 'caught\t%s\n' "$failed"
    elif failed=$(first_failure "$folder" "${options[$name]}" "${run[@]}"); then
        printf 'elsewhere\t%s\n' "$failed"
    else
        printf 'survived\t\n'
    fi
    rm -rf "$folder"
}

# A run of a sample reports an edit of any other mutant that the sources no longer have, too.
edits_apply() {
    local name count status=0 i
    local -a parts=()
    for name in "${names[@]}"; do
        mapfile -t -d $'\x1f' parts < <(printf '%s' "${edits[$name]}")
        for ((i = 0; i + 2 < ${#parts[@]}; i += 3)); do
            count=$(EDIT_WHAT=${parts[i + 1]} perl -0777 -ne 'my $count = () = /$ENV{EDIT_WHAT}/g; print $count' \
                "$root/${parts[i]}") || count=no
            [[ $count == 1 ]] || {
                printf '%s: %s has %s matches in %s\n' "$name" "${parts[i + 1]}" "$count" "${parts[i]}"
                status=1
            }
        done
    done
    return $status
}
tap 'each edit applies to the sources' edits_apply

running=0
for name in "${wanted[@]}"; do
    if ((running >= jobs)); then
        wait -n || true
        running=$((running - 1))
    fi
    mkdir -p "$scratch/$name"
    hunt "$name" "$scratch/$name" >"$scratch/$name.verdict" &
    running=$((running + 1))
done
wait

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
