#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Builds the file trees for `rdmux doctor --sysfs` from the descriptions in tests/fixtures/sysfs.
# Run it, or source it for build_tree and the other functions:
#
#   doctor_fixtures.sh SITUATION FOLDER   builds one tree, to look at
#   doctor_fixtures.sh                    lists the situations
#
# Such a file has sections, which begin with "situation NAME", or "part NAME" if others are made of
# it. Each line is a statement, "#" begins a comment, $NAME stands for what a "let" said.
#
#   about TEXT             the problem
#   uses NAME              executes the statements of another section first
#   expect SEVERITY CODE   a required finding; unnamed findings are not allowed
#   unprivileged           root checks it without the right to override permissions
#   let NAME = TEXT
#   file PATH = TEXT       a file with that text and a newline; \n, \t, \0 and so on are understood
#   hex PATH = DIGITS      a file of these bytes; N*DD means N bytes DD
#   huge PATH = SIZE       a file of that many zeros
#   folder PATH
#   link PATH -> TARGET
#   pipe PATH
#   remove PATH            a path that the used section made, with all below it
#   mode PATH = OCTAL
set -euo pipefail
doctor_descriptions=$(cd "$(dirname "${BASH_SOURCE[0]}")/../fixtures/sysfs" && pwd)

# The sections: statements and positions, by name; the situations in order.
declare -A section_text section_place
situations=()

read_sections() {
    local file line name='' number
    for file in "$doctor_descriptions"/*.tree; do
        number=0
        while IFS= read -r line || [[ -n $line ]]; do
            number=$((number + 1))
            case $line in
            'situation '* | 'part '*)
                name=${line#* }
                section_text[$name]='' section_place[$name]=${file##*/}:$number
                [[ $line == 'part '* ]] || situations+=("$name")
                ;;
            '' | '#'*) ;;
            *) section_text[$name]+=$line$'\n' ;;
            esac
        done <"$file"
    done
}
read_sections

# Text of the section that was built last.
tree_about=
tree_expected=() # "severity CODE"
tree_unprivileged=no

# build_tree NAME FOLDER: makes the tree; FOLDER must not exist yet.
build_tree() {
    local -A names=()
    tree_about='' tree_expected=() tree_unprivileged=no
    mkdir -p "$2"
    run_section "$1" "$2"
}

# run_section NAME FOLDER: executes the statements of one section.
run_section() {
    local line verb rest name place=${section_place[$1]-}
    [[ -n $place ]] || {
        printf 'there is no section "%s"\n' "$1" >&2
        return 1
    }
    while read -r verb rest; do
        line="$verb $rest"
        while [[ $rest =~ \$([a-z_]+) ]]; do
            name=${BASH_REMATCH[1]}
            [[ -v names[$name] ]] || {
                printf '%s: $%s is not known: %s\n' "$place" "$name" "$line" >&2
                return 1
            }
            rest=${rest/"\$$name"/"${names[$name]}"}
        done
        carry_out "$2" "$verb" "$rest" || {
            printf '%s: cannot do: %s\n' "$place" "$line" >&2
            return 1
        }
    done < <(printf '%s' "${section_text[$1]}")
}

# carry_out FOLDER VERB REST: one statement.
# shellcheck disable=SC2034
carry_out() {
    local path=$1/${3%% = *} text=${3#* = }
    [[ $3 == *' = '* ]] || path=${path% =} text=''
    case $2 in
    about) tree_about=$3 ;;
    uses) run_section "$3" "$1" ;;
    expect) tree_expected+=("$3") ;;
    unprivileged) tree_unprivileged=yes ;;
    let) names[${3%% = *}]=$text ;;
    file) make_room "$path" && printf '%b\n' "$text" >"$path" ;;
    hex) make_room "$path" && write_bytes "$text" >"$path" ;;
    huge) make_room "$path" && truncate -s "$text" "$path" ;;
    folder) mkdir -p "$path" ;;
    link) make_room "$1/${3%% -> *}" && ln -s -- "${3#* -> }" "$1/${3%% -> *}" ;;
    pipe) make_room "$path" && mkfifo "$path" ;;
    remove) [[ -e $path || -L $path ]] && rm -r -- "$path" ;;
    mode) chmod "$text" "$path" ;;
    *) return 1 ;;
    esac
}

# make_room PATH: makes the folder for a file, and removes what an earlier statement put there.
make_room() {
    [[ -d ${1%/*} ]] || mkdir -p "${1%/*}"
    if [[ -e $1 || -L $1 ]]; then
        rm -r -- "$1"
    fi
}

write_bytes() {
    local word digits escaped='' count
    for word in $1; do
        digits=${word#*\*} count=1
        [[ $word != *'*'* ]] || count=${word%\**}
        while ((count-- > 0)); do
            escaped+=$digits
        done
    done
    # shellcheck disable=SC2001
    printf '%b' "$(sed 's/../\\x&/g' <<<"$escaped")"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    if (($# == 0)); then
        printf '%s\n' "${situations[@]}"
    elif (($# == 2)); then
        build_tree "$1" "$2"
        printf '%s\n' "$tree_about"
    else
        sed -n '/^# Builds/,/^set/{/^set/!s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}" >&2
        exit 2
    fi
fi
