#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# Tests the installed product: installs the build, moves the installed tree to another folder, and
# builds small programs against it there, by find_package and by pkg-config.
set -euo pipefail
: "${RDMUX_SOURCE:?scripts/test sets it}" "${RDMUX_BUILD:?scripts/test sets it}"
here=$RDMUX_SOURCE/tests/package
# shellcheck source=scripts/lib.sh
. "$RDMUX_SOURCE/scripts/lib.sh"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
installed=$scratch/installed
moved=$scratch/moved/to/here
version=$(sed -nE 's/^project\(rdmux VERSION ([0-9.]+).*/\1/p' "$RDMUX_SOURCE/CMakeLists.txt")

install_and_move() {
    cmake --install "$RDMUX_BUILD" --prefix "$installed" &&
        mkdir -p "${moved%/*}" && mv "$installed" "$moved" &&
        library=$(find "$moved" -name librdmux.so) && [[ -n $library ]]
}

# names_of PROGRAM: prints the names of rdmux that it exports.
names_of() {
    nm --dynamic --defined-only "$1" | awk '$3 ~ /^rdmux_/ { print $3 }'
}

exports_no_name() {
    local program names
    for program; do
        names=$(names_of "$program")
        [[ -z $names ]] || {
            printf '%s exports %s\n' "$program" "$names"
            return 1
        }
    done
    # Else the programs would not export them anyway.
    [[ -n $(names_of "$scratch/cmake/exporting") ]]
}

# refuses_what_binds_elsewhere: librdmux.so does not load a plug-in whose calls would go to the
# program.
refuses_what_binds_elsewhere() {
    "$scratch/cmake/exporting" "$library" >"$scratch/exporting" || {
        cat "$scratch/exporting"
        return 1
    }
    grep -qE '^rdmux-verbs.so: BAD_PLUGIN: it would be bound to another copy of rdmux' "$scratch/exporting" || {
        cat "$scratch/exporting"
        return 1
    }
}

# over_adapters COMMAND...: runs it over simulated adapters, one of each kind. They share the
# addresses of one interface, which the connection manager gives to the first; iwarp needs them.
over_adapters() {
    LD_PRELOAD=$RDMUX_BUILD/lib/libsimverbs.so \
        SIM_VERBS='link=iwarp,name=iw0;link=roce,name=r0;link=ib,name=ib0' "$@"
}

without_adapters() {
    LD_PRELOAD=$RDMUX_BUILD/lib/libsimverbs.so SIM_VERBS=none "$@"
}

# lists PROGRAM LINE...: "verbs_user list" prints these lines.
lists() {
    local line
    "$1" list >"$scratch/list" || return 1
    for line in "${@:2}"; do
        grep -qxF "$line" "$scratch/list" || {
            cat "$scratch/list"
            echo "no line '$line'"
            return 1
        }
    done
}

# runs_alone shared|static PROGRAM: the program prints the version, and loads only the moved library
# or none.
runs_alone() {
    local kind=$1 program=$2 said loaded want=
    said=$("$program") || return 1
    [[ $said == "$version" ]] || {
        echo "says version '$said', not '$version'"
        return 1
    }
    loaded=$(ldd "$program" | awk '/librdmux/ { print $3 }')
    [[ -z $loaded ]] || loaded=$(readlink -f "$loaded")
    [[ $kind == static ]] || want=$(readlink -f "$library")
    [[ $loaded == "$want" ]] || {
        echo "loads '$loaded', not '$want'"
        return 1
    }
}

find_package_builds() {
    cmake -S "$here" -B "$scratch/cmake" -DCMAKE_PREFIX_PATH="$moved" &&
        cmake --build "$scratch/cmake"
}

# pkg_config_builds PROGRAM PACKAGE SOURCE OPTION...
pkg_config_builds() {
    local program=$1 package=$2 source=$3 flags
    shift 3
    flags=$(PKG_CONFIG_PATH=${library%/*}/pkgconfig pkg-config --cflags --libs "$@" "$package") || return 1
    echo "$flags"
    # shellcheck disable=SC2086
    if [[ ${1-} == --static ]]; then
        flags=${flags//-lrdmux/-l:librdmux.a}
    fi
    # shellcheck disable=SC2086
    cc -std=c11 "$here/$source" -o "$program" $flags -Wl,-rpath,"${library%/*}"
}

names_no_folder() {
    local found
    found=$(grep -rlF -e "$scratch" -e "$RDMUX_SOURCE" "${library%/*}/cmake" \
        "${library%/*}/pkgconfig") || return 0
    echo "names a folder of the machine it was built on: $found"
    return 1
}

# The names that the public headers mark RDMUX_API, and those that older plug-ins know.
declared() {
    cat "$RDMUX_SOURCE"/api/include/rdmux/*.h "$RDMUX_SOURCE"/api/data/old_names.c | cc -E -P -x c -I "$RDMUX_SOURCE/api/include" - |
        tr '\n' ' ' | tr ';' '\n' | grep -F 'visibility("default")' |
        sed -E 's/__attribute__ *\(\([^)]*(\([^)]*\))?\)\)//g' |
        grep -oE '\brdmux_[a-z0-9_]+ *(\(|\[|$)' | tr -d ' ([' | sort -u
}

exported() {
    nm --dynamic --defined-only "$library" | awk '$2 != "A" { print $3 }' | sed 's/@.*//' | sort -u
}

exports_what_is_declared() {
    local differences
    differences=$(diff <(declared) <(exported)) && return 0
    echo '< declared in a public header or in old_names.c, > exported by librdmux.so'
    printf '%s\n' "$differences"
    return 1
}

every_public_header_is_there() {
    diff -r "$RDMUX_SOURCE/api/include/rdmux" "$moved/include/rdmux"
}

installed_program_finds_library() {
    local loaded
    loaded=$(ldd "$1" | awk '/librdmux/ { print $3 }')
    echo "loads '$loaded'"
    [[ -e $loaded && $(readlink -f "$loaded") == "$(readlink -f "$library")" ]]
}

library=
tap 'the build installs and the tree moves' install_and_move
library=$(find "$moved" -name librdmux.so 2>/dev/null || true)
if [[ -z $library ]]; then
    echo 'Bail out! nothing is installed'
    exit 1
fi
tap 'the public headers are installed' every_public_header_is_there
tap 'librdmux.so exports what the public headers declare' exports_what_is_declared
tap 'no installed file names the build or the prefix' names_no_folder
tap 'find_package builds programs against the moved tree' find_package_builds
tap 'the program of find_package, rdmux::rdmux, runs' runs_alone shared "$scratch/cmake/shared_user"
tap 'the program of find_package, rdmux::rdmux_static, runs' \
    runs_alone static "$scratch/cmake/static_user"
tap 'pkg-config builds a program against the moved tree' pkg_config_builds "$scratch/pc_shared" rdmux main.c
tap 'the program of pkg-config runs' runs_alone shared "$scratch/pc_shared"
tap 'pkg-config --static builds a program' pkg_config_builds "$scratch/pc_static" rdmux main.c --static
tap 'the program of pkg-config --static runs' runs_alone static "$scratch/pc_static"
tap 'pkg-config builds a program with rdmux-static' \
    pkg_config_builds "$scratch/pc_own" rdmux-static main.c
tap 'the program of rdmux-static runs' runs_alone static "$scratch/pc_own"
tap 'a program that has its own copy exports none of its names' \
    exports_no_name "$scratch/cmake/hiding" "$scratch/pc_own" "$scratch/cmake/copy_static.so"
tap 'two copies in one process connect to each other' \
    "$scratch/cmake/two_copies" "$scratch/cmake/copy_shared.so" "$scratch/cmake/copy_static.so" shm tcp
tap 'so they do if the copy with hidden names was there first' \
    "$scratch/cmake/two_copies" "$scratch/cmake/copy_static.so" "$scratch/cmake/copy_shared.so" tcp shm

verbs_cases=(
    'a plug-in whose calls would go to another copy is not loaded'
    'a program with everything linked in lists adapters'
    'it connects over them'
    'without adapters it says so, and not that a library is missing'
    'pkg-config builds a program with rdmux-verbs-static'
    'the program of rdmux-verbs-static lists adapters'
    'two copies in one process connect over adapters, each with its own providers'
)
if [[ -x $scratch/cmake/verbs_user && -e $RDMUX_BUILD/lib/libsimverbs.so ]]; then
    usable=('ib builtin USABLE' 'roce builtin USABLE' 'iwarp builtin USABLE')
    tap "${verbs_cases[0]}" refuses_what_binds_elsewhere
    tap "${verbs_cases[1]}" over_adapters lists "$scratch/cmake/verbs_user" "${usable[@]}"
    tap "${verbs_cases[2]}" over_adapters "$scratch/cmake/verbs_user" connect ib
    tap "${verbs_cases[3]}" without_adapters lists "$scratch/cmake/verbs_user" 'ib builtin NO_DEVICE'
    tap "${verbs_cases[4]}" \
        pkg_config_builds "$scratch/pc_verbs" rdmux-verbs-static verbs.c
    tap "${verbs_cases[5]}" over_adapters lists "$scratch/pc_verbs" "${usable[@]}"
    tap "${verbs_cases[6]}" over_adapters "$scratch/cmake/two_copies" \
        "$scratch/cmake/copy_shared.so" "$scratch/cmake/copy_static.so" ib
else
    for name in "${verbs_cases[@]}"; do
        tap_skip "$name" 'rdmux was built without the headers of rdma-core'
    done
fi
for program in "$moved"/bin/*; do
    [[ -e $program ]] || continue
    tap "the installed ${program##*/} finds the moved library" \
        installed_program_finds_library "$program"
done
tap_end
