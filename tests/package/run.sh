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

# pkg_config_builds PROGRAM OPTION...
pkg_config_builds() {
    local program=$1 flags
    shift
    flags=$(PKG_CONFIG_PATH=${library%/*}/pkgconfig pkg-config --cflags --libs "$@" rdmux) || return 1
    echo "$flags"
    # shellcheck disable=SC2086
    if [[ ${1-} == --static ]]; then
        flags=${flags//-lrdmux/-l:librdmux.a}
    fi
    # shellcheck disable=SC2086
    cc -std=c11 "$here/main.c" -o "$program" $flags -Wl,-rpath,"${library%/*}"
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
tap 'pkg-config builds a program against the moved tree' pkg_config_builds "$scratch/pc_shared"
tap 'the program of pkg-config runs' runs_alone shared "$scratch/pc_shared"
tap 'pkg-config --static builds a program' pkg_config_builds "$scratch/pc_static" --static
tap 'the program of pkg-config --static runs' runs_alone static "$scratch/pc_static"
for program in "$moved"/bin/*; do
    [[ -e $program ]] || continue
    tap "the installed ${program##*/} finds the moved library" \
        installed_program_finds_library "$program"
done
tap_end
