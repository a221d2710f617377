# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
# Steps of the drivers that plant mistakes in copies of the library's sources and expect a test to
# fail. A driver keeps its list of mistakes and its tests; the steps between them and the verdicts
# are here. Source scripts/lib.sh first. Sourcing this file defines functions and the words of the
# verdicts, and changes nothing else.
#
# Mutants are built in two ways:
#   objects   mutation_build: copies the source folders of one product, compiles the sources that an
#             edit reaches with the flags of compile_commands.json, and links them with the other
#             objects of RDMUX_BUILD. What reaches what, and how a target is linked, is asked of
#             ninja, or read from the files of make, whichever made the build.
#   tree      mutation_tree, mutation_checks, mutation_tree_build: copies the whole tree, which has
#             a build of its own.

mutation_root=${RDMUX_SOURCE:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}

# ----------------------------------------------------------------------------- folder of the driver

# mutation_scratch WORD: makes the driver's temporary folder and sets scratch to its absolute path.
# The end of the driver, also by a signal, removes it. A driver that needs an exit trap of its own
# sets it afterwards and removes the folder itself.
mutation_scratch() {
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-$1.XXXXXX")
    scratch=$(cd "$scratch" && pwd)
    trap 'rm -rf "$scratch"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

# ----------------------------------------------------------------------------------------- verdicts

# A mutant has one of these verdicts. Only "caught" is a success; a driver reports the others as
# failed cases. source.sh is the exception: it makes its edits by rule, so some of them do not build.
declare -rA mutation_words=(
    [caught]='caught by'                    # a test fails
    [survived]='survived'                   # all tests pass
    [unbuilt]='does not build:'             # the compiler or the linker refuses the edited source
    [stale]='the edit no longer applies to' # the file lacks what the edit changes, or has it twice
    [late]='exceeds the time limit of'      # a test shows no failure before its limit ends it
    [astray]='fails for another reason:'    # a test fails, but not as this mutant makes it fail
)

# mutation_verdict RESULT [DETAIL]: prints the verdict. Fails unless the mutant is caught.
mutation_verdict() {
    printf '%s%s\n' "${mutation_words[$1]}" "${2:+ $2}"
    [[ $1 == caught ]]
}

# mutation_is RESULT VERDICT: a verdict that was kept is of this kind.
mutation_is() {
    [[ $2 == "${mutation_words[$1]}"* ]]
}

# mutation_judge STATUS SECONDS LOG PATTERN TEST: prints the verdict of a test that mutation_run has
# run. The mutant is caught if the test failed and its LOG has a line that matches PATTERN, an
# extended regular expression. Otherwise the log of a failed test comes before the verdict. Fails
# unless the mutant is caught.
mutation_judge() {
    if (($1 == 0)); then
        mutation_verdict survived
    elif grep -qE "$4" "$3"; then
        mutation_verdict caught "$5"
    else
        cat "$3"
        if (($1 == 124 || $1 == 137)); then
            mutation_verdict late "$2 s"
        else
            mutation_verdict astray "status $1, and no line like '$4'"
        fi
    fi
}

# -------------------------------------------------------------------------------------------- edits

# mutation_matches FILE WHAT: prints how often WHAT, a regular expression of perl, matches in FILE.
# Fails if perl refuses the expression.
mutation_matches() {
    EDIT_WHAT=$2 perl -0777 -ne '
        my $count = 0;
        $count++ while /$ENV{EDIT_WHAT}/g;
        print $count;' "$1"
}

# mutation_edit FILE WHAT WITH: replaces WHAT, a regular expression of perl that matches once, by
# WITH, which is plain text. Fails, with a line that says why, if WHAT does not match exactly once
# or the replacement changes nothing.
mutation_edit() {
    EDIT_WHAT=$2 EDIT_WITH=$3 perl -0777 -i -pe '
        my $before = $_;
        my $count = 0;
        $count++ while /$ENV{EDIT_WHAT}/g;
        $count == 1 or die qq(what is to be changed is found $count times in $ARGV\n);
        s/$ENV{EDIT_WHAT}/$ENV{EDIT_WITH}/;
        $_ ne $before or die qq(the edit changes nothing in $ARGV\n);' "$1"
}

# mutation_edit_sed FILE EXPRESSION: edits FILE by an expression of sed -E, which may change several
# lines. Fails, with a line that says why, if it changes nothing.
mutation_edit_sed() {
    local edited
    edited=$(sed -E "$2" "$1" && echo .) || return 1
    [[ $edited != "$(cat "$1" && echo .)" ]] || {
        echo "the edit changes nothing in $1"
        return 1
    }
    printf '%s' "${edited%.}" >"$1"
}

# ------------------------------------------------------------------------------ building by objects

# mutation_can_build: a mutant can be built from the objects of RDMUX_BUILD. Fails, with a line that
# names what is missing, if not.
mutation_can_build() {
    have perl || {
        echo 'perl is not installed'
        return 1
    }
    [[ -e $RDMUX_BUILD/compile_commands.json &&
        (-e $RDMUX_BUILD/build.ninja || -e $RDMUX_BUILD/CMakeFiles/rdmux.dir/link.txt) ]] || {
        echo 'the library was not built here with ninja or make'
        return 1
    }
}

# mutation_folders TARGET: prints the source folders of a product, one a line: rdmux is the library,
# rdmux_verbs the plug-in of RDMA devices.
mutation_folders() {
    case $1 in
    rdmux) printf '%s\n' api negotiation providers shm stream tcp_fallback ;;
    rdmux_verbs) printf '%s\n' verbs roce iwarp providers ;;
    esac
}

# mutation_objects TARGET: prints the folder of the product's objects, below RDMUX_BUILD.
mutation_objects() {
    case $1 in
    rdmux) echo CMakeFiles/rdmux_objects.dir ;;
    *) echo "CMakeFiles/$1.dir" ;;
    esac
}

# mutation_object FOLDER SOURCE: prints the name that the object of SOURCE has in FOLDER.
mutation_object() {
    printf '%s/%s.o\n' "$1" "${2//\//+}"
}

# mutation_deps: prints "OBJECT FILE", without its .o, for each file that an object of a product of a build by ninja
# was made of. Asks ninja once in a scratch folder.
mutation_deps() {
    local list=$scratch/deps part=$scratch/deps.$BASHPID
    if [[ ! -e $list ]]; then
        ninja -C "$RDMUX_BUILD" -t deps | awk '
            /^[^ ]/ { object = $1 ~ /^CMakeFiles\/rdmux_/ ? $1 : ""; sub(/[.]o:$/, "", object); next }
            object != "" && NF > 0 { print object, $1 }' >"$part" || return
        mv "$part" "$list" || return
    fi
    cat "$list"
}

# mutation_users TARGET FILE: prints the product's sources that FILE reaches: FILE itself, or the
# sources that include it. Prints nothing if the product is not made of it.
mutation_users() {
    local objects folder
    folder=$(mutation_objects "$1")
    objects=$RDMUX_BUILD/$folder
    if [[ -e $RDMUX_BUILD/build.ninja ]]; then
        mutation_deps | awk -v folder="$folder/" -v file="/$2" '
            index($1, folder) == 1 && substr($2, length($2) - length(file) + 1) == file {
                print substr($1, length(folder) + 1)
            }'
        return
    fi
    grep -rlE --include='*.o.d' "(^|[ /])$2( |\$|\\\\)" "$objects" |
        sed -e "s|^$objects/||" -e 's|\.o\.d$||'
}

# mutation_link_command TARGET: prints the command that links a product, or a program of tests/, in one line. It is
# for the folder RDMUX_BUILD, if ninja made the build, else for the folder of the target's makefile.
mutation_link_command() {
    local file
    if [[ ! -e $RDMUX_BUILD/build.ninja ]]; then
        case $1 in
        rdmux | rdmux_verbs) cat "$RDMUX_BUILD/CMakeFiles/$1.dir/link.txt" ;;
        *) cat "$RDMUX_BUILD/tests/CMakeFiles/$1.dir/link.txt" ;;
        esac
        return
    fi
    case $1 in
    rdmux) file=lib/$(readlink -f "$RDMUX_BUILD/lib/librdmux.so" | sed 's|.*/||') ;;
    rdmux_verbs) file=lib/rdmux/rdmux-verbs.so ;;
    *) file=tests/unit/$1 ;;
    esac
    # ": && COMMAND && :"
    ninja -C "$RDMUX_BUILD" -t commands -s "$file" | sed -n 's/^: && \(.*\) && :$/\1/p'
}

mutation_flags=() # of each compilation, after all others

# mutation_compile TARGET SOURCE FROM OUT [OPTION...]: compiles the file FROM as the product
# compiles SOURCE, with the options in front and without warnings. FROM and OUT are absolute. Fails
# if compile_commands.json has no such source, or the compiler refuses it; the reason is on stdout
# or stderr. A definition of the command line must have no blank in it.
mutation_compile() {
    local commands=$RDMUX_BUILD/compile_commands.json word skip=no
    local -a words=() kept=()
    read -r -a words < <(grep -F -e " -o $(mutation_objects "$1")/" "$commands" |
        sed -n "s|^ *\"command\": \"\\(.*\\) -c $mutation_root/$2\",\$|\\1|p") || true
    ((${#words[@]} > 0)) || {
        echo "$2 is not in $commands"
        return 1
    }
    [[ ${words[0]} != *ccache ]] || words=("${words[@]:1}")
    for word in "${words[@]:1}"; do
        if [[ $skip == yes || $word == -o || $word == -Werror ]]; then
            skip=no
            [[ $word != -o ]] || skip=yes
            continue
        fi
        kept+=("${word//'\\\"'/\"}") # as JSON and the shell quote a definition
    done
    (cd "$RDMUX_BUILD" && "${words[0]}" "${@:5}" "${kept[@]}" -w "${mutation_flags[@]}" -o "$4" -c "$3")
}

# mutation_link TARGET OBJECTS OUT: links a product, or a program of tests/, as RDMUX_BUILD does,
# but with the objects of the folder OBJECTS (names as of mutation_object) in place of its own.
# OBJECTS and OUT are absolute. Fails if the linker fails, or if an object has no place in the
# target: the target links neither that source nor librdmux.a.
mutation_link() {
    local target=$1 objects=$2 out=$3 in=$RDMUX_BUILD object source placed i
    local -a command=() first=() linked=()
    case $target in
    rdmux | rdmux_verbs) ;;
    *) [[ -e $RDMUX_BUILD/build.ninja ]] || in=$RDMUX_BUILD/tests ;;
    esac
    read -r -a command < <(mutation_link_command "$target") || return 1
    for object in "$objects"/*.o; do
        [[ -e $object ]] || continue
        source=${object##*/}
        source=${source//+/\/}
        placed=no
        for i in "${!command[@]}"; do
            [[ ${command[i]} == */"$source" ]] || continue
            command[i]=$object
            placed=yes
        done
        [[ $placed == yes ]] || first+=("$object")
    done
    for i in "${!command[@]}"; do
        # In front of the archive, whose member is then not wanted any more.
        if [[ ${command[i]} == */librdmux.a && ${#first[@]} -gt 0 ]]; then
            linked+=("${first[@]}")
            first=()
        fi
        if ((i > 0)) && [[ ${command[i - 1]} == -o ]]; then
            linked+=("$out")
        else
            linked+=("${command[i]}")
        fi
    done
    ((${#first[@]} == 0)) || {
        echo "$target is not linked from ${first[*]##*/}"
        return 1
    }
    (cd "$in" && "${linked[@]}")
}

# mutation_build TARGET FOLDER OUT [FILE WHAT WITH]...: makes the product OUT with these edits, any
# number of them in any number of files (mutation_edit). FOLDER is new and absolute; the copy of the
# sources and the objects stay there. The edited objects are not optimised, which takes half the
# time. Fails if an edit no longer applies, or if the mutant does not
# build; the last line of the output is then the verdict, and the lines before it say why.
mutation_build() {
    local target=$1 folder=$2 out=$3 source list
    local -a changed=() mutation_flags=(-O0 -g0)
    shift 3
    mkdir -p "$folder/source" "$folder/objects" "$(dirname "$out")" || return 1
    while IFS= read -r source; do
        cp -r "$mutation_root/$source" "$folder/source/" || return 1
    done < <(mutation_folders "$target")
    while (($# > 0)); do
        mutation_edit "$folder/source/$1" "$2" "$3" || mutation_verdict stale "$1" || return 1
        list=$(mutation_users "$target" "$1") || true
        [[ -n $list ]] || mutation_verdict stale "$1, of which $target is not made" || return 1
        mapfile -t -O "${#changed[@]}" changed <<<"$list"
        shift 3
    done
    while IFS= read -r source; do
        [[ -n $source ]] || continue
        mutation_compile "$target" "$source" "$folder/source/$source" \
            "$(mutation_object "$folder/objects" "$source")" "-I$folder/source" ||
            mutation_verdict unbuilt "$source" || return 1
    done < <(printf '%s\n' "${changed[@]}" | sort -u)
    mutation_link "$target" "$folder/objects" "$out" ||
        mutation_verdict unbuilt "the linker refuses $target"
}

# --------------------------------------------------------------------------------- building by tree

# mutation_tree FOLDER PRESET LOG: copies the tree to FOLDER and configures PRESET there. All files
# are new, so no object of an earlier edit stays. Fails if cmake does; LOG has its output.
mutation_tree() {
    mkdir -p "$1" || return 1
    (cd "$mutation_root" && project_files '*' | tar -cf - --files-from=-) |
        tar -xmf - -C "$1" || return 1
    (cd "$1" && cmake --preset "$2") >"$3" 2>&1
}

# mutation_tree_build FOLDER PRESET JOBS LOG TARGET...: builds these targets of the copy. Fails if
# one does not build; LOG has the output.
mutation_tree_build() {
    cmake --build "$1/build/$2" --parallel "$3" --target "${@:5}" >"$4" 2>&1
}

# mutation_each LIST FUNCTION [NAME...]: calls FUNCTION NAME TARGETS FILE EDIT for each of these
# mistakes of LIST, or for all. Sets mutation_count to the number of calls, and mutation_failed to
# the number of calls that fail. LIST has lines "NAME|TARGETS|FILE|EDIT"; EDIT is for
# mutation_edit_sed and may contain "|". Ends the script if LIST lacks a NAME.
mutation_each() {
    local list=$1 function=$2 name targets file edit
    local -a known=() asked=("${@:3}")
    mutation_count=0 mutation_failed=0
    while IFS='|' read -r name targets file edit <&6; do
        [[ -n $name && $name != '#'* ]] || continue
        known+=("$name")
        ((${#asked[@]} == 0)) || [[ " ${asked[*]} " == *" $name "* ]] || continue
        mutation_count=$((mutation_count + 1))
        "$function" "$name" "$targets" "$file" "$edit" || mutation_failed=$((mutation_failed + 1))
    done 6<"$list"
    for name in "${asked[@]}"; do
        [[ " ${known[*]} " == *" $name "* ]] || die "no check '$name'; there are: ${known[*]}"
    done
}

# mutation_checks FOLDER LIST FUNCTION [NAME...]: as mutation_each, with the mistake planted in the
# tree's copy FOLDER during each call of FUNCTION NAME TARGETS FILE, which prints the verdict alone.
# Prints a table of the verdicts. Fails unless all mistakes are caught.
mutation_checks() {
    mutation_folder=$1 mutation_function=$3
    printf '| mistake | source | tests | verdict |\n|---|---|---|---|\n'
    mutation_each "$2" mutation_check "${@:4}"
    printf '# %d of %d are caught\n' $((mutation_count - mutation_failed)) "$mutation_count"
    ((mutation_failed == 0))
}

# mutation_check NAME TARGETS FILE EDIT: one call of mutation_checks.
mutation_check() {
    local file=$mutation_folder/$3 verdict status=0
    cp "$file" "$scratch/original" || return 1
    if mutation_edit_sed "$file" "$4" >&2; then
        verdict=$("$mutation_function" "$1" "$2" "$3") || status=1
    else
        verdict=$(mutation_verdict stale "$3") || status=1
    fi
    cp "$scratch/original" "$file" # a new time, so that the next build compiles it again
    # shellcheck disable=SC2016
    printf '| %s | `%s` | `%s` | %s |\n' "$1" "$3" "$2" "$verdict"
    return "$status"
}

# ------------------------------------------------------------------------------------------ running

# mutation_run SECONDS COMMAND...: runs a program without input and returns its status. After
# SECONDS the program is ended, and the status is 124, or 137 if only SIGKILL ends it.
mutation_run() {
    timeout --kill-after=5 "$1" "${@:2}" </dev/null
}

# mutation_first_failure SECONDS FIFO COMMAND...: runs a program that prints TAP until its first
# failed case. Prints that case without its number; else that the program exceeds its time limit;
# else its status. Fails if the program passes, skips all (77), or is killed from outside (137).
# FIFO is a name of a file that does not exist yet; FIFO.err gets stderr. Leaves no process of the
# program behind.
mutation_first_failure() {
    local seconds=$1 fifo=$2 begin=$SECONDS pid failed rc=0
    shift 2
    rm -f "$fifo" && mkfifo "$fifo" || return 1
    setsid timeout --kill-after=2 "$seconds" "$@" >"$fifo" 2>>"$fifo.err" </dev/null &
    pid=$!
    failed=$(grep -m1 '^not ok' "$fifo" || true)
    [[ -z $failed ]] || kill -KILL -- "-$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || rc=$?
    kill -KILL -- "-$pid" 2>/dev/null || true # its processes
    if [[ -n $failed ]]; then
        sed -E 's/^not ok [0-9]+ (- )?//' <<<"$failed"
    elif ((rc == 124 || rc == 137)) && ((SECONDS - begin >= seconds)); then
        printf 'it %s\n' "$(mutation_verdict late "$seconds s")"
    elif ((rc != 0 && rc != 77 && rc != 137)); then
        echo "it ended with status $rc"
    else
        return 1
    fi
}

# --------------------------------------------------------------------------- jobs beside each other

# mutation_slot JOBS: waits until fewer than JOBS jobs of mutation_start run.
# mutation_start COMMAND...: starts a job in the background.
# mutation_wait: waits for all jobs. Their results are what they write; a job's status is not kept.
declare -A mutation_jobs=() # by process id, as wait without one also returns for other children

mutation_slot() {
    local pid
    while ((${#mutation_jobs[@]} >= $1)); do
        wait -n -p pid "${!mutation_jobs[@]}" || true
        unset "mutation_jobs[$pid]"
    done
}

mutation_start() {
    "$@" &
    mutation_jobs[$!]=yes
}

mutation_wait() {
    mutation_slot 1
}
