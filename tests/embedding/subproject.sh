#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Runs the commands of docs/EMBEDDING.md: the installed package, static libraries, rdmux within
# another CMake project, plug-ins. The two files of scripts/amalgamate are in amalgamation.sh. Prints
# TAP.
set -euo pipefail
# shellcheck source=tests/embedding/guide.bash
. "${RDMUX_SOURCE:?scripts/test sets it}/tests/embedding/guide.bash"
here=$RDMUX_SOURCE/tests/embedding

newcomer=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-subproject.XXXXXX")
trap 'rm -rf "$newcomer"' EXIT

# Each part of the guide is run by a case below, or in amalgamation.sh.
knows_the_parts() {
    diff <(guide_parts) - <<'LIST'
installed
static
adapters
sub
fetch
amalgamation
plugin
LIST
}

# over_adapters COMMAND...: with one simulated adapter of each kind.
over_adapters() {
    LD_PRELOAD=$RDMUX_BUILD/lib/libsimverbs.so \
        SIM_VERBS='link=iwarp,name=iw0;link=roce,name=r0;link=ib,name=ib0' "$@"
}

says() {
    local output
    output=$("${@:2}" 2>&1) || true
    [[ $output == "$1" ]] || {
        printf '%s\n' "$output"
        return 1
    }
}

is_alone() {
    ! ldd "$1" | grep -E "librdmux${2:+|$2}"
}

builds_static_echo() {
    local flags
    flags=$(PKG_CONFIG_PATH=$RDMUX_PREFIX/lib/pkgconfig:$RDMUX_PREFIX/lib64/pkgconfig \
        pkg-config --cflags --libs rdmux-static) || return 1
    # As a program does that exports its own names to plug-ins of its own.
    # shellcheck disable=SC2086
    guide_echo "$newcomer/echo" -rdynamic $flags && is_alone "$newcomer/echo"
}

exports_no_name() {
    ! nm --dynamic --defined-only "$1" | grep rdmux_
}

leaves_the_project_alone() {
    cmake -S "$here/parent" -B "$newcomer/parent" -DRDMUX_SOURCE="$RDMUX_SOURCE" \
        -DCMAKE_EXPORT_COMPILE_COMMANDS=ON || return 1
    # Compile commands of the project's own programs are the same before rdmux and after it.
    local commands
    commands=$(grep -E '"command": .*-o CMakeFiles/(before|after)[.]dir' "$newcomer/parent/compile_commands.json" |
        sed 's/after\.dir/before.dir/g')
    [[ $(wc -l <<<"$commands") == 2 && $(sort -u <<<"$commands" | wc -l) == 1 ]] || {
        printf '%s\n' "$commands"
        return 1
    }
    # Nor does its build type change.
    grep -qx 'CMAKE_BUILD_TYPE:STRING=' "$newcomer/parent/CMakeCache.txt"
}

# installs yes|no: the project is installed with rdmux, or without.
installs() {
    local prefix=$newcomer/prefix-$1 library
    if [[ $1 == yes ]]; then
        RDMUX=$RDMUX_SOURCE cmake -DRDMUX_INSTALL=ON "$newcomer/fetch/build" && cmake --build "$newcomer/fetch/build" || return 1
    fi
    cmake --install "$newcomer/fetch/build" --prefix "$prefix" || return 1
    library=$(find "$prefix" -name 'librdmux.*' 2>/dev/null || true)
    if [[ $1 == no ]]; then
        [[ -z $library ]] || { echo "$library" && return 1; }
    else
        cmake -S "$newcomer/installed" -B "$newcomer/second" -DCMAKE_PREFIX_PATH="$prefix" &&
            cmake --build "$newcomer/second" && says 'hello over tcp' "$newcomer/second/hello" tcp
    fi
}

builds_no_program() {
    local made
    made=$(find "$newcomer/sub/build/rdmux" "$newcomer/fetch/build/_deps/rdmux-build" -type f -perm -100 ! -name '*.so*')
    [[ -z $made ]] || { echo "$made" && return 1; }
}

has_verbs=no
[[ ! -e $RDMUX_BUILD/lib/librdmux_verbs.a ]] || has_verbs=yes

guide_write "$newcomer"
tap 'every part of the guide is tested' knows_the_parts
tap 'installed: pkg-config and find_package' guide_runs installed shm
tap 'static: the library is a part of the program' guide_runs static shm
tap 'the program needs no library of rdmux' is_alone "$newcomer/hello-static"
tap 'a program with streams builds with the static library' builds_static_echo
tap 'its stream is echoed' guide_echoes "$newcomer/echo" tcp
tap 'it exports no name of rdmux' exports_no_name "$newcomer/echo"
if [[ $has_verbs == yes ]]; then
    tap 'adapters: their providers are a part of the program' guide_runs adapters tcp
    tap 'the program needs no library of rdmux either' is_alone "$newcomer/hello-adapters"
else
    tap_skip 'adapters: their providers are a part of the program' \
        'rdmux was built without the headers of rdma-core'
fi
tap 'add_subdirectory: the project builds with rdmux in it' guide_runs sub shm
tap 'its program needs no library of rdmux' is_alone "$newcomer/sub/build/hello"
if [[ $has_verbs == yes && -e $RDMUX_BUILD/lib/libsimverbs.so ]]; then
    for provider in ib roce iwarp; do
        tap "its program connects over $provider" \
            says "hello over $provider" over_adapters "$newcomer/sub/build/hello" "$provider"
    done
else
    tap_skip 'its program connects over adapters' 'rdmux was built without the headers of rdma-core'
fi
tap 'rdmux leaves the project that contains it alone' leaves_the_project_alone
tap 'FetchContent: the project builds with rdmux in it' guide_runs fetch shm
tap 'neither project builds a program of rdmux' builds_no_program
tap 'the project is installed without rdmux' installs no
tap 'or with it, on demand' installs yes
tap 'a plug-in of a folder is loaded' guide_runs plugin toy
tap_end
