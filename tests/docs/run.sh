#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# The documentation as a stranger meets it: every block of README.md and docs/*.md runs against the
# installed tree, or says why not; links lead somewhere; options exist; pictures, manual pages and
# the reference are made of what they describe. README.md says how blocks are marked.
set -euo pipefail
: "${RDMUX_SOURCE:?scripts/test sets it}" "${RDMUX_BUILD:?scripts/test sets it}" "${RDMUX_PREFIX:?scripts/test sets it}"
here=$RDMUX_SOURCE/tests/docs
cd "$RDMUX_SOURCE"
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mapfile -t pages < <(project_files 'README.md' 'docs/*.md' 'docs/performance/README.md' | grep -vx '.*/RESULTS.md' |
    grep -E '^(README.md|docs/)' | grep -vx docs/EMBEDDING.md)

fail() {
    printf '%s\n' "$*"
    return 1
}

# ---------------------------------------------------------------------------------- blocks of code

# The ways to a network of the test's own, in which the ports of the pages are free.
own_network=()
for way in 'unshare --net' 'unshare --user --map-root-user --net'; do
    # shellcheck disable=SC2086
    if $way ip link set lo up 2>/dev/null; then
        read -r -a own_network <<<"$way"
        break
    fi
done

library=$(find "$RDMUX_PREFIX" -name librdmux.so -print -quit)

# in_page FOLDER COMMAND...: runs it there as a reader with an installed rdmux would.
in_page() {
    mkdir -p "$1/.run"
    (cd "$1" && env -i HOME="$1" TMPDIR="$1" XDG_RUNTIME_DIR="$1/.run" LC_ALL=C \
        PATH="$RDMUX_PREFIX/bin:$PATH" LD_LIBRARY_PATH="${library%/*}" PKG_CONFIG_PATH="${library%/*}/pkgconfig" CMAKE_PREFIX_PATH="$RDMUX_PREFIX" "${@:2}")
}

# runnable FILE: the block, which waits after each command in the background, or "in one shell", until
# it listens or has ended, as a reader does; and fails if it leaves one running. What a reader ends by
# Ctrl-C ends with the block.
# shellcheck disable=SC2016 # what it prints is code
runnable() {
    cat <<'END'
listens() {
    local before=$2
    while kill -0 "$1" 2>/dev/null && [[ $(ss -Hltn | wc -l) == "$before" ]]; do
        sleep 0.05
    done
}
END
    awk '
        { code = $0; sub(/ +#.*/, "", code); sub(/ & sleep 1$/, " \\&", code) }
        /# in one shell/ && code !~ /&$/ { code = code " &" }
        code ~ / &$/ { print "was=$(ss -Hltn | wc -l)"; print code; print "listens $! \"$was\"" }
        code ~ / &$/ && /Ctrl-C/ { print "interrupted+=($!)" }
        code !~ / &$/ { print }' "$1"
    cat <<'END'
[[ -z ${interrupted-} ]] || kill -TERM "${interrupted[@]}" # a job in the background has no Ctrl-C
for ((tries = 0; tries < 200; tries++)); do
    [[ -n $(jobs -rp) ]] || exit 0
    sleep 0.05 # a process that was told to end may take a moment
done
kill -KILL $(jobs -rp)
echo 'the block leaves a process behind'
exit 99
END
}

# runs FOLDER FILE REST: a block of sh. Its output stays in FOLDER/.output.
runs() {
    local status=0 allowed=0
    [[ $3 =~ ^exits\ with\ ([0-9]+) ]] && allowed=${BASH_REMATCH[1]}
    runnable "$2" >"$1/.block"
    in_page "$1" "${own_network[@]}" bash -c 'ip link set lo up && exec timeout 900 bash -e -o pipefail .block' >"$1/.output" 2>&1 ||
        status=$?
    ((status == 0 || status == allowed)) || {
        cat "$1/.output"
        fail "exit status $status"
    }
}

masked() {
    sed -E 's/[0-9]+([.,][0-9]+)*/N/g; s/[[:space:]]+/ /g; s/ $//' "$1"
}

# printed FOLDER FILE: the block before printed these lines, in any order, as there may be several
# processes. Numbers may differ. A line "..." stands for further lines.
printed() {
    local bad=0 line
    masked "$1/.output" >"$1/.masked"
    while IFS= read -r line; do
        [[ $line != ... ]] || continue
        grep -qxF -e "$line" "$1/.masked" || {
            printf 'not printed: %s\n' "$line"
            bad=1
        }
    done < <(masked "$2")
    if ! grep -qx '\.\.\.' "$2" && (($(wc -l <"$1/.masked") != $(wc -l <"$2"))); then
        echo 'it printed another number of lines'
        bad=1
    fi
    ((bad == 0)) || cat "$1/.output"
    return "$bad"
}

# compiles FILE: a whole program, or lines of one.
compiles() {
    local unit=$2/.unit.c
    if grep -q '^int main(' "$1"; then
        cp "$1" "$unit"
    else
        {
            grep '^#include ' "$1" || printf '#include <rdmux/rdmux.h>\n'
            printf 'void lines(void);\nvoid lines(void)\n{\n'
            grep -v '^#include ' "$1"
            printf '}\n'
        } >"$unit"
    fi
    "${CC:-cc}" -fsyntax-only -I"$RDMUX_PREFIX/include" -std=gnu11 "${C_WARNINGS[@]}" -Wno-unused-but-set-variable \
        -Wno-unused-variable -Werror "$unit"
}

# is_from FILE SOURCE: each line is in SOURCE, comments and blanks apart.
is_from() {
    local line bad=0
    while IFS= read -r line; do
        grep -qxF -e "$line" <(stripped "$2") || {
            printf '%s has no line: %s\n' "$2" "$line"
            bad=1
        }
    done < <(stripped "$1" | grep .)
    return "$bad"
}

stripped() {
    sed -E 's,/\*.*\*/,,; s/(^|[[:space:]])#.*//; s/[[:space:]]+/ /g; s/^ //; s/ $//' "$1"
}

# missing_for FILE: what this machine lacks for the block.
missing_for() {
    local tool
    if ((${#own_network[@]} == 0)); then
        echo 'no network of its own: unshare(1) or ip(8) could not make one'
    fi
    for tool in man jq openssl pkg-config ss; do
        have "$tool" || ! grep -qw -e "$tool" "$1" || echo "$tool is not installed"
    done
}

# words_of FILE: the words of a block's commands that a test of the same has, too, one a line: without
# comments, operators of the shell, quotes, placeholders (HOST, HOST:PORT, A:2,B:2) and absolute paths.
# Of NAME=VALUE with a placeholder or an absolute path only NAME= is left.
words_of() {
    awk '
        { sub(/(^|[[:space:]]+)#.*/, "") }
        sub(/\\$/, "") { joined = joined $0 " "; next }
        { print joined $0; joined = "" }' "$1" | tr -s '[:space:]' '\n' | sed -E "s/['\"]//g; s/;\$//" |
        awk -v placeholder='[A-Z][A-Z0-9_]*([:,.][A-Z0-9_]+)*' '
            $0 ~ "^(" placeholder "|/.*|[^[:alnum:]]*)$" { next }
            $0 ~ "^[A-Z_]+=(" placeholder "|/.*)$" { sub(/=.*/, "=") }
            { print }' | sort -u
}

# is_run_by FILE TEST: each word of the block's commands is in the test.
is_run_by() {
    local word bad=0 whole
    [[ -e $2 ]] || {
        echo "there is no $2"
        return 1
    }
    while IFS= read -r word; do
        whole=-w
        [[ $word != *= ]] || whole=-F
        grep -qF "$whole" -e "$word" "$2" || {
            echo "$2 has no $word"
            bad=1
        }
    done < <(words_of "$1")
    return "$bad"
}

# A word that the test lacks has to be found, wherever in the block it stands.
words_of_a_test_are_compared() {
    local word bad=0 block=$scratch/block test=$scratch/test
    cat >"$block" <<'END'
export LEVEL=info DIR=/usr/lib   # a comment
make --fast \
    'some;thing' HOST:PORT && PROGRAM A:2,B:2
END
    printf '%s\n' export LEVEL=info DIR=elsewhere make --fast '"some;thing"' >"$test"
    is_run_by "$block" "$test" || bad=1
    for word in LEVEL=info DIR= --fast 'some;thing'; do
        grep -vF -e "$word" "$test" >"$test-less" || true
        ! is_run_by "$block" "$test-less" >/dev/null || fail "a test without $word is found to run the block" || bad=1
    done
    return "$bad"
}
tap 'a test that lacks a word of a block does not run it' words_of_a_test_are_compared

not_run=0
missing=
# check_block PAGE FOLDER FILE LINE LANGUAGE REST
check_block() {
    local name="$1:$4" rest=$6
    case $5:$rest in
    *'not run here: needs '*)
        not_run=$((not_run + 1))
        ;;
    text:-) ;;
    sh:walk)
        tap "$name is run by tests/plugins" grep -q 'sh walk' tests/plugins/run.sh
        ;;
    sh:'run by '*)
        tap "$name is run by ${rest#run by }" is_run_by "$3" "${rest#run by }"
        ;;
    sh:- | sh:'exits with '*)
        missing=$(missing_for "$3")
        if [[ -n $missing ]]; then
            tap_skip "$name runs" "$missing"
        else
            tap "$name runs" runs "$2" "$3" "$rest"
        fi
        ;;
    output:-)
        if [[ -n $missing ]]; then
            tap_skip "$name is printed" 'the block before did not run'
        else
            tap "$name is printed" printed "$2" "$3"
        fi
        ;;
    *:'from '*) tap "$name is from ${rest#from }" is_from "$3" "${rest#from }" ;;
    c:-) tap "$name compiles" compiles "$3" "$2" ;;
    c:*.[ch] | cmake:CMakeLists.txt | cmake:*/CMakeLists.txt)
        mkdir -p "$(dirname "$2/$rest")"
        cp "$3" "$2/$rest"
        [[ $5 != c ]] || tap "$name compiles" compiles "$3" "$2"
        ;;
    *)
        tap "$name has a mark that is known" fail "\`\`\`$5 $rest: tests/docs/README.md lists the marks"
        ;;
    esac
}

page_count=0
for page in "${pages[@]}"; do
    page_count=$((page_count + 1))
    folder=$scratch/page-$page_count
    mkdir -p "$folder" "$scratch/blocks-$page_count"
    ln -s "$RDMUX_SOURCE" "$folder/rdmux"
    awk -v folder="$scratch/blocks-$page_count" -f "$here/blocks.awk" "$page" >"$scratch/blocks-$page_count/list"
    while IFS=$'\t' read -r head rest <&3; do
        read -r number line language <<<"$head"
        check_block "$page" "$folder" "$scratch/blocks-$page_count/$number" "$line" "$language" "$rest"
    done 3<"$scratch/blocks-$page_count/list"
done
few_blocks_do_not_run() {
    ((not_run <= 10)) || fail "$not_run blocks say that they do not run here, not 10 at most"
}
tap 'at most ten blocks do not run here' few_blocks_do_not_run

# ------------------------------------------------------------------------- commands, links, README

# prose PAGE: the page without its blocks.
prose() {
    awk '/^ *```/ { on = !on; next } !on' "$1"
}

# commands PAGE: the commands of the tree in blocks of sh and between backquotes, or in the examples
# of a manual page, one a line.
# shellcheck disable=SC2016 # backquotes of the page
commands() {
    if [[ $1 != *.md ]]; then
        # Of a manual page, the examples.
        awk '/^\.nf/ { on = 1; next } /^\.fi/ { on = 0 } on { gsub(/\\&/, ""); gsub(/\\-/, "-"); sub(/ +#.*/, ""); print }' "$1"
    else
        awk '/^ *```sh/ { on = 1; next } /^ *```/ { on = 0 } on { sub(/ +#.*/, ""); print }' "$1"
        # A quoted command may be broken between two lines.
        prose "$1" | grep -v '^|' | tr '\n' ' ' | grep -oE '`[^`]+`' | tr -d '\140'
        prose "$1" | grep '^|' | grep -oE '`[^`]+`' | tr -d '\140'
    fi | grep -oE '(^|[ (])(rdmux [a-z]+|scripts/[a-z]+)( [^;|&>)]*|$)' | sed 's/^[ (]*//'
}

rdmux=$RDMUX_PREFIX/bin/rdmux
sub_commands=" $("$rdmux" --help | awk '/^  [a-z]/ { printf "%s ", $1 }')"

# help_of COMMAND: its --help, asked for once.
help_of() {
    local kept=$scratch/help-${1//[\/ ]/-}
    # shellcheck disable=SC2086
    [[ -e $kept ]] || $1 --help >"$kept" 2>&1
    cat "$kept"
}

# options_exist PAGE: each command that the page names has the options that it names.
options_exist() {
    local line command option bad=0
    while IFS= read -r line; do
        case $line in
        scripts/*) command=${line%% *} ;;
        *)
            command=${line#rdmux }
            command=${command%% *}
            # Prose says "rdmux moves", too; with an option it is meant as a command.
            [[ $sub_commands == *" $command "* || $line == *' --'* ]] || continue
            command="rdmux $command"
            ;;
        esac
        if [[ $command == scripts/* && ! -x $command ]]; then
            echo "$1: there is no $command"
            bad=1
            continue
        fi
        for option in $(grep -oE -e ' --[a-z][a-z-]*' <<<"$line" || true); do
            PATH=$RDMUX_PREFIX/bin:$PATH help_of "$command" | matches -E -e "(^|[^a-z-])$option([^a-z-]|\$)" || {
                echo "$1: $command has no option $option"
                bad=1
            }
        done
    done < <(commands "$1")
    return "$bad"
}

# anchors PAGE: the anchors of its headings, as GitHub makes them.
anchors() {
    prose "$1" | sed -nE 's/^#+ +//p' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

# links_lead_somewhere PAGE: to files of the tree, and to headings of pages.
# shellcheck disable=SC2016
links_lead_somewhere() {
    local target file anchor bad=0
    while IFS= read -r target; do
        [[ ! $target =~ ^[a-z]+: ]] || continue
        file=${target%%#*}
        anchor=
        [[ $target != *'#'* ]] || anchor=${target#*#}
        if [[ -z $file ]]; then
            file=$1
        else
            file=$(dirname "$1")/$file
        fi
        if [[ ! -e $file ]]; then
            echo "$1: there is no $target"
            bad=1
        elif [[ -n $anchor && $file == *.md ]] && ! grep -qxF -e "$anchor" <(anchors "$file"); then
            echo "$1: $file has no heading for #$anchor"
            bad=1
        fi
    done < <(prose "$1" | sed 's/`[^`]*`//g' | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//')
    return "$bad"
}

tap 'tests/embedding runs the blocks of docs/EMBEDDING.md' grep -q '^knows_the_parts()' tests/embedding/subproject.sh
for page in "${pages[@]}" docs/EMBEDDING.md CONTRIBUTING.md; do
    tap "links of $page lead somewhere" links_lead_somewhere "$page"
    tap "commands in $page have the options that it names" options_exist "$page"
done

for page in docs/man/*; do
    tap "examples in $page have the options that they name" options_exist "$page"
done

readme_is_one_screen() {
    (($(wc -l <README.md) <= 80)) || fail "README.md has $(wc -l <README.md) lines, not 80 at most"
}
tap 'README.md is one screen' readme_is_one_screen

# -------------------------------------------------------------------- pictures, pages, the reference

tap 'the pictures are what their sources say' scripts/docs pictures --check

man=$RDMUX_PREFIX/share/man

# Each function of the headers of applications, and each sub-command, can be looked up.
everything_has_a_page() {
    local name bad=0
    while IFS= read -r name; do
        [[ -e $man/man3/$name.3 ]] || {
            echo "no page $name(3)"
            bad=1
        }
    done < <(cc -E -P -I "$RDMUX_PREFIX/include" -include rdmux/stream.h -x c /dev/null | tr '\n' ' ' | tr ';' '\n' |
        grep -F 'visibility("default")' | grep -oE '\brdmux_[a-z0-9_]+\(' | tr -d '(' | sort -u)
    for name in $sub_commands; do
        [[ -e $man/man1/rdmux-$name.1 ]] || {
            echo "no page rdmux-$name(1)"
            bad=1
        }
    done
    [[ -e $man/man1/rdmux.1 && -e $man/man3/rdmux.3 ]] || fail 'no page rdmux' || bad=1
    (($(find "$man/man3" -name 'rdmux_*.3' | wc -l) > 100)) || fail 'the headers have fewer functions than they had' || bad=1
    return "$bad"
}
tap 'each function and each sub-command has a manual page' everything_has_a_page

# Lists of the headers' comments are lists of the pages.
pages_have_the_lists() {
    local in_headers in_pages
    in_headers=$(cat "$RDMUX_PREFIX"/include/rdmux/{rdmux,stream}.h | grep -cE '^ \* (Errors|Threads)  ')
    in_pages=$(cat "$man"/man3/rdmux_*.3 | grep -cE '^\.B (Errors|Threads)$')
    ((in_pages == in_headers && in_headers > 60)) || fail "the headers have $in_headers lists of errors and threads, the pages $in_pages"
}
tap 'the pages have the lists of errors and threads of the headers' pages_have_the_lists

# pages_without_warning: groff has nothing to say, and neither has man --warnings, which calls it.
pages_without_warning() {
    local page bad=0 said
    for page in "$man"/man[137]/*; do
        read -r said <"$page"
        if [[ $said == .so\ * ]]; then
            [[ -e $man/${said#.so } ]] || {
                echo "$page leads to nothing"
                bad=1
            }
            continue
        fi
        said=$(groff -t -man -Tutf8 -ww -z "$page" 2>&1) || true
        [[ -z $said ]] || {
            printf '%s\n' "$said"
            bad=1
        }
    done
    return "$bad"
}
if have groff; then
    tap 'groff has no warning about a manual page' pages_without_warning
else
    tap_skip 'groff has no warning about a manual page' 'groff is not installed'
fi

hand_written_options_exist() {
    local part name bad=0
    for part in docs/man/*.roff; do
        name=$(basename "$part" .roff)
        name=${name#rdmux}
        name=${name#-}
        # shellcheck disable=SC2086
        awk -v check=yes -v name="$name" -f docs/reference/command.awk <("$rdmux" $name --help) "$part" || bad=1
    done
    return "$bad"
}
tap 'what docs/man has about an option is about one that exists' hand_written_options_exist

if have doxygen; then
    tap 'Doxygen has no warning about the public headers' scripts/docs reference "$scratch/reference"
else
    tap_skip 'Doxygen has no warning about the public headers' 'doxygen is not installed (scripts/setup --docs)'
fi
tap_end
