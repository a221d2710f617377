#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# What a distribution gets: Debian packages in a root of their own, the library's symbols and binary
# interface against files of this tree, and builds for other C libraries, processors and languages.
# Prints TAP.
#
#   run.sh            all cases; whole builds with RDMUX_TEST_LEVEL=thorough only
#   run.sh PATTERN    cases whose name matches the pattern (a bash regular expression)
#   run.sh --update   writes cmake/debian/symbols and librdmux0.abi anew, after an intended change
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${RDMUX_SOURCE:-$(cd "$here/../.." && pwd)}
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
build=${RDMUX_BUILD:-$root/build/dev}
level=${RDMUX_TEST_LEVEL:-normal}
jobs=${RDMUX_JOBS:-$(nproc)}
# Not in TMPDIR: the library loads plug-ins only from folders that no other user may write to.
mkdir -p "$root/build/packaging"
scratch=$(mktemp -d "$root/build/packaging/run.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
unset DESTDIR RDMUX_PATHS RDMUX_PROVIDER_DIR
library=$build/lib/librdmux.so.0
symbols=$root/cmake/debian/symbols
interface=$here/librdmux0.abi
version=$(sed -nE 's/^project\(rdmux VERSION ([0-9.]+).*/\1/p' "$root/CMakeLists.txt")

[[ -e $library ]] || die "there is no $library; build it, or name its tree in RDMUX_BUILD"

# --------------------------------------------------------------------------- symbols, binary interface

# The symbols file: for each symbol the version of librdmux0 that had it first.
make_symbols() {
    local folder=$scratch/gensymbols
    mkdir -p "$folder/debian"
    printf 'Source: rdmux\nMaintainer: nobody <nobody@localhost>\n\nPackage: librdmux0\nArchitecture: any\nDescription: x\n' \
        >"$folder/debian/control"
    [[ ! -s $symbols ]] || cp "$symbols" "$folder/debian/librdmux0.symbols"
    (cd "$folder" && dpkg-gensymbols "$@" -v"$version" -plibrdmux0 -Pnothing -e"$library" -O"$scratch/symbols")
}

# Fails if a symbol has gone, or is new and not in the file.
symbols_are_those_of_the_file() {
    make_symbols -c4 && return
    echo 'if the change is intended: tests/packaging/run.sh --update'
    return 1
}

make_interface() {
    abidw --headers-dir "$root/api/include" --drop-private-types --exported-interfaces-only --no-corpus-path \
        --no-comp-dir-path --no-show-locs --no-elf-needed --out-file "$1" "$library"
}

interface_has_only_additions() {
    local status=0
    abidiff --drop-private-types --no-added-syms --suppressions "$root/tests/compat/abi.suppressions" \
        --headers-dir2 "$root/api/include" "$interface" "$library" || status=$?
    ((status == 0)) || {
        echo "abidiff: status $status; tests/packaging/run.sh --update after a new soname"
        return 1
    }
}

# A dump without one function, and one with another type, are differences.
interface_check_finds() {
    local from=$interface
    sed -E "$1" "$from" >"$scratch/other.abi"
    ! cmp -s "$from" "$scratch/other.abi" || {
        echo 'the edit no longer applies to librdmux0.abi'
        return 1
    }
    ! interface=$scratch/other.abi interface_has_only_additions
}

if [[ ${1-} == --update ]]; then
    if ! have dpkg-gensymbols || ! have abidw; then
        die 'it needs dpkg-dev and abigail-tools'
    fi
    make_symbols -c0 >/dev/null
    cp "$scratch/symbols" "$symbols"
    make_interface "$interface"
    exit
fi

# ------------------------------------------------------------------------------------------- packages

packages=$scratch/packages
clean=$scratch/root # the root that packages are installed into

# pack BUILD FOLDER: with Ninja's name cpack does not build first.
pack() {
    (cd "$scratch" && cpack -G DEB --config "$1/CPackConfig.cmake" -B "$2" -D CPACK_CMAKE_GENERATOR=Ninja) &&
        rm -rf "$2/_CPack_Packages"
}

package() {
    printf '%s/%s_%s_%s.deb' "$packages" "$1" "$version" "$(dpkg --print-architecture)"
}

# files_of PACKAGE: its files, without folders and the licence.
files_of() {
    dpkg-deb --fsys-tarfile "$(package "$1")" | tar -t | grep -v '/$' | grep -v '/copyright$' | sort
}

all_packages() {
    basename -a "$packages"/*.deb | cut -d_ -f1
}

# Every installed file is in one package.
packages_have_what_is_installed() {
    local name
    cmake --install "$build" --prefix "$scratch/installed/usr" >/dev/null
    (cd "$scratch/installed" && find . ! -type d) | sort >"$scratch/want"
    for name in $(all_packages); do
        files_of "$name"
    done | sort >"$scratch/have"
    diff "$scratch/want" "$scratch/have"
}

is_split_as_debian_does() {
    local name bad=0 pattern
    local -A only=([librdmux0]='/librdmux\.so\.0(\.[0-9.]+)?$' [rdmux-tools]='^\./usr/(bin/|share/man/man1/|share/rdmux/(schemas|wireshark)/)'
        [librdmux-dev]='^\./usr/(include/|share/|lib.*(\.a|/librdmux\.so|/cmake/.*|\.pc)$)'
        [rdmux-fi]='/libfabric/librdmux-fi\.so$')
    for name in $(all_packages); do
        pattern=${only[$name]-/rdmux/$name\\.so$}
        if files_of "$name" | grep -vE "$pattern"; then
            echo "^ is in $name"
            bad=1
        fi
    done
    [[ $(dpkg-deb -f "$(package librdmux-dev)" Depends) == "librdmux0 (= $version)" ]] || bad=1
    [[ $(dpkg-deb -f "$(package librdmux0)" Depends) == *libc6* ]] || bad=1
    [[ ! -e $(package rdmux-verbs) || $(dpkg-deb -f "$(package rdmux-verbs)" Depends) == *libibverbs1* ]] || bad=1
    dpkg-deb -I "$(package librdmux0)" symbols | cmp - "$symbols" || bad=1
    return "$bad"
}

# Nothing is run there: the packages have no scripts but those of ldconfig.
to_clean_root() {
    dpkg --root="$clean" --force-not-root --force-depends --log=/dev/null "$@"
}

packages_install() {
    mkdir -p "$clean/var/lib/dpkg/updates" "$clean/var/lib/dpkg/info" "$clean/sbin" "$clean/bin"
    touch "$clean/var/lib/dpkg/status" "$clean/var/lib/dpkg/available"
    to_clean_root --unpack "$packages"/*.deb
}

debian_has_what_they_need() {
    apt-get install --simulate --no-install-recommends "$packages"/*.deb >"$scratch/apt" 2>&1 || {
        cat "$scratch/apt"
        return 1
    }
}

# The scripts need a shell, which the root lacks. cpack writes them for each package with a library below
# /usr/lib, also where ldconfig does not look.
packages_remove() {
    local scripts=("$clean"/var/lib/dpkg/info/*.post{inst,rm})
    if grep -hvE '^(#|set -e$|if \[|fi$|exit 0$|$)|^[[:space:]]*ldconfig$' "${scripts[@]}"; then
        echo '^ is in a script of a package, which ran nothing but ldconfig'
        return 1
    fi
    # shellcheck disable=SC2046
    rm -f "${scripts[@]}" && to_clean_root --purge $(all_packages) && [[ -z $(find "$clean/usr" ! -type d 2>/dev/null) ]]
}

consumer_builds_in_the_root() {
    cmake -S "$root/tests/package" -B "$scratch/consumer" -DCMAKE_PREFIX_PATH="$clean/usr" &&
        cmake --build "$scratch/consumer" --target shared_user static_user &&
        [[ $("$scratch/consumer/shared_user") == "$version" && $("$scratch/consumer/static_user") == "$version" ]] &&
        [[ $(ldd "$scratch/consumer/shared_user") == *"$clean/usr/lib"* ]]
}

the_command_finds_library_and_plugin() {
    local out library_folder
    library_folder=$(dirname "$(find "$clean/usr/lib" -name librdmux.so.0)")
    export LD_LIBRARY_PATH=$library_folder # the command of a package has no path of its own
    out=$("$clean/usr/bin/rdmux" info) || return
    echo "$out"
    [[ $(ldd "$clean/usr/bin/rdmux") == *"$library_folder/librdmux"* && $out == *shm* && $out == *tcp* ]] &&
        [[ ! -e $(package rdmux-verbs) || $out == *iwarp* ]]
}

# finds_without COMPONENTS ABSENT...: a program of rdmux::rdmux, where packages are not to be found.
finds_without() {
    local folder=$scratch/alone name absent=()
    rm -rf "$folder"
    mkdir -p "$folder"
    for name in "${@:2}"; do
        absent+=("-DCMAKE_DISABLE_FIND_PACKAGE_$name=ON")
    done
    cat >"$folder/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.16)
project(alone LANGUAGES C)
find_package(rdmux 0.1 CONFIG REQUIRED $1)
add_executable(alone $root/tests/package/main.c)
target_link_libraries(alone PRIVATE rdmux::rdmux)
END
    cmake -S "$folder" -B "$folder/build" -DCMAKE_PREFIX_PATH="$scratch/installed/usr" "${absent[@]}" &&
        cmake --build "$folder/build" && [[ $("$folder/build/alone") == "$version" ]] || return
    ! grep -q "^OPENSSL_\|^OpenSSL_DIR" "$folder/build/CMakeCache.txt" || [[ $1 == '' ]]
}

static_is_refused_with_a_reason() {
    finds_without 'COMPONENTS static' OpenSSL >"$scratch/log" 2>&1 && return 1
    grep -q "rdmux::rdmux_static needs threads and OpenSSL" "$scratch/log" || {
        cat "$scratch/log"
        return 1
    }
}

uninstall_leaves_nothing() {
    local prefix=$scratch/installed
    find "$prefix" ! -type d >"$scratch/manifest"
    mkdir -p "$prefix/usr/include/other"
    touch "$prefix/usr/include/other/kept.h"
    cmake -DMANIFEST="$scratch/manifest" -P "$root/cmake/uninstall.cmake" >/dev/null
    [[ $(find "$prefix" ! -type d) == "$prefix/usr/include/other/kept.h" ]] &&
        [[ -z $(find "$prefix" -name rdmux) && ! -e $scratch/manifest ]]
}

# ---------------------------------------------------------------------------------- configuring a build

says() {
    grep -qF -e "$1" "$scratch/configured" || {
        cat "$scratch/configured"
        echo "it does not say: $1"
        return 1
    }
}

# The options show in the summary, in the targets and in what is left out.
a_build_without_verbs_and_openssl_says_so() {
    cmake -S "$root" -B "$scratch/less" -G Ninja -DRDMUX_VERBS=OFF -DRDMUX_OPENSSL=OFF -DRDMUX_TESTS=OFF \
        -DRDMUX_EXAMPLES=OFF -DCMAKE_INSTALL_PREFIX=/nowhere >"$scratch/configured" 2>&1 &&
        says 'RDMUX_VERBS is OFF' && says 'peers cannot authenticate' && says 'shm, tcp' &&
        says 'installs into' && ! ninja -C "$scratch/less" -t targets all | matches 'rdmux-verbs'
}

# A result that is empty is not searched for again.
a_build_without_libfabric_and_ucx_says_so() {
    cmake -S "$root" -B "$scratch/alone" -G Ninja -DRDMUX_TESTS=OFF -DRDMUX_EXAMPLES=OFF \
        -DPKG_CONFIG_EXECUTABLE=/bin/false -DRDMUX_UCX_INCLUDE= -DRDMUX_LIBFABRIC_INCLUDE= \
        >"$scratch/configured" 2>&1 &&
        says 'rdmux-ofi.so:    no: libfabric was not found (Debian: libfabric-dev pkg-config)' &&
        says 'rdmux-ucx.so:    no: UCX was not found (Debian: libucx-dev)' &&
        says 'librdmux-fi.so:  no: libfabric was not found (Debian: libfabric-dev)' &&
        ! ninja -C "$scratch/alone" -t targets all | matches -E 'rdmux-(ofi|ucx|fi)'
}

the_install_preset_builds_no_tests() {
    (cd "$root" && cmake --preset install -G Ninja -B "$scratch/preset") >"$scratch/configured" 2>&1 &&
        says 'librdmux.so, librdmux.a, tools' && ! says ', tests' >/dev/null &&
        ! ninja -C "$scratch/preset" -t targets all | matches -E 'test_|example_'
}

# copy_tree FOLDER
copy_tree() {
    mkdir -p "$1"
    (cd "$root" && project_files '*' | grep -v '^docs/performance' | tar -c -T - | tar -x -C "$1")
}

# Some objects, of C files in several folders; whole packages with --thorough.
objects_are_the_same_in_two_folders() {
    local folder objects=(stream/stream_open.c.o api/fabric.c.o providers/loader.c.o)
    for folder in "$scratch/one" "$scratch/another/below"; do
        copy_tree "$folder"
        (cd "$folder" && cmake --preset install -G Ninja && ninja -C build/install "${objects[@]/#/CMakeFiles/rdmux_objects.dir/}") || return
    done >"$scratch/log" 2>&1 || {
        tail -n 20 "$scratch/log"
        return 1
    }
    for folder in "${objects[@]}"; do
        cmp "$scratch/one/build/install/CMakeFiles/rdmux_objects.dir/$folder" \
            "$scratch/another/below/build/install/CMakeFiles/rdmux_objects.dir/$folder" || return
    done
    # A program would contain the folder where it looks for the library.
    if grep -oE -- '-rpath,[^ ]*' "$scratch/one/build/install/build.ninja" | grep -F "$scratch"; then
        return 1
    fi
}

packages_are_the_same_from_two_folders() {
    local folder name
    for folder in "$scratch/one" "$scratch/another/below"; do
        [[ -d $folder ]] || copy_tree "$folder"
        (cd "$folder" && cmake --preset deb -G Ninja && cmake --build --preset deb --parallel "$jobs" &&
            SOURCE_DATE_EPOCH=1700000000 pack "$folder/build/deb" "$folder/out") || return
    done >"$scratch/log" 2>&1 || {
        tail -n 20 "$scratch/log"
        return 1
    }
    (cd "$scratch/one/out" && sha256sum -- *.deb) >"$scratch/sums"
    cat "$scratch/sums"
    (cd "$scratch/another/below/out" && sha256sum --check --quiet "$scratch/sums") && [[ -s $scratch/sums ]]
}

# -------------------------------------------------------------------- other compilers, libraries, machines

# The core in one file, and the program of docs/EMBEDDING.md.
make_one_file() {
    "$root/scripts/amalgamate" "$scratch/two/rdmux" >/dev/null &&
        awk '/^```c hello.c/ { inside = 1; next } /^```/ { inside = 0 } inside' "$root/docs/EMBEDDING.md" >"$scratch/two/hello.c"
}

# compiles_clean COMPILER: the whole core, with the project's warnings as errors. Names of one file may
# shadow those of another.
compiles_clean() {
    "$1" -std=c11 -fsyntax-only -Werror "${C_WARNINGS[@]}" -Wno-shadow "$scratch/two/rdmux/rdmux_all.c"
}

# All but the examples of other libraries.
clang_builds_everything() {
    if ! (cmake -S "$root" -B "$scratch/clang" -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DRDMUX_WERROR=ON && ninja -C "$scratch/clang" -j "$jobs") >"$scratch/clang.log" 2>&1; then
        grep -E 'error|warning' "$scratch/clang.log" | head -n 20
        return 1
    fi
}

# connects RUNNER PROGRAM PATH: the program connects to itself. RUNNER may be empty.
connects() {
    local said
    # shellcheck disable=SC2086
    said=$(timeout 120 $1 "$2" "$3") && echo "$said" && [[ $said == "hello over $3" ]]
}

# builds PROGRAM COMPILER OPTION...: hello with the core, linked statically.
builds() {
    "$2" -std=c11 -O0 -Werror -Wall -Wextra -pedantic -c "$scratch/two/rdmux/rdmux_all.c" -o "$1.o" "${@:3}" &&
        "$2" -std=c11 -Werror -I"$scratch/two" "$scratch/two/hello.c" "$1.o" -o "$1" "${@:3}" -pthread -static
}

# musl-gcc sees no header of the kernel; these are all that are added.
kernel_headers() {
    mkdir -p "$scratch/kernel"
    ln -sfn /usr/include/linux "$scratch/kernel/linux"
    ln -sfn /usr/include/asm-generic "$scratch/kernel/asm-generic"
    ln -sfn "/usr/include/$(gcc -print-multiarch)/asm" "$scratch/kernel/asm"
}

# rdmux_ep_info() and struct rdmux_ep_info share a name, as stat(2) does.
cxx_warnings=()
for warning in "${COMMON_WARNINGS[@]}"; do
    [[ $warning == -Wshadow ]] || cxx_warnings+=("$warning")
done

# A program in C++ that uses what the headers define.
cxx_compiles() {
    "$1" "-std=$2" -fsyntax-only -Werror "${cxx_warnings[@]}" -Wold-style-cast -Wzero-as-null-pointer-constant \
        -I "$root/api/include" "$here/headers.cpp"
}

# Unit tests that run under qemu: byte order, memory orders as far as qemu shows them, sizes.
readonly arm_tests='test_shm_ring test_span_index test_message test_frame test_handshake test_threads'

# Those that can be built: cmocka may be missing for this machine.
arm_tests_of() {
    local name
    for name in $arm_tests; do
        ! ninja -C "$1" -t query "$name" >/dev/null 2>&1 || echo "$name"
    done
}

# builds_for_aarch64 FOLDER: library, plug-in, command and these tests, cross compiled.
builds_for_aarch64() {
    local verbs=OFF
    [[ ! -e /usr/lib/aarch64-linux-gnu/libibverbs.so ]] || verbs=ON
    # shellcheck disable=SC2046
    if ! cmake -S "$root" -B "$1" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$root/cmake/aarch64.cmake" \
        -DCMAKE_BUILD_TYPE=RelWithDebInfo -DRDMUX_WERROR=ON -DRDMUX_EXAMPLES=OFF -DRDMUX_VERBS=$verbs >"$1.log" 2>&1 ||
        ! ninja -C "$1" -j "$jobs" rdmux_tool $(arm_tests_of "$1") >>"$1.log" 2>&1; then
        grep -E 'error|warning' "$1.log" | head -n 20
        tail -n 20 "$1.log"
        return 1
    fi
}

under_qemu() {
    timeout 1200 qemu-aarch64 -L /usr/aarch64-linux-gnu "$@"
}

# --------------------------------------------------------------------------------------------- the cases

wanted=${1:-}

# check NAME COMMAND...: one case, if it is wanted.
check() {
    [[ ! $1 =~ $wanted ]] || tap "$@"
}

skip() {
    [[ ! $1 =~ $wanted ]] || tap_skip "$@"
}

package_cases=(
    'cpack makes the packages'
    'every installed file is in one package'
    'they are split as Debian does, with their dependencies and symbols'
    'they install into a clean root'
    'find_package builds shared and static programs there'
    'the installed command finds library and plug-in there'
    'they leave nothing when they are removed'
)
if have dpkg-shlibdeps && have cpack && have file; then
    check "${package_cases[0]}" pack "$build" "$packages"
    if compgen -G "$packages/*.deb" >/dev/null; then
        check "${package_cases[1]}" packages_have_what_is_installed
        check "${package_cases[2]}" is_split_as_debian_does
        check "${package_cases[3]}" packages_install
        check "${package_cases[4]}" consumer_builds_in_the_root
        check "${package_cases[5]}" the_command_finds_library_and_plugin
        check "${package_cases[6]}" packages_remove
        if have apt-get && apt-cache show libc6 >/dev/null 2>&1; then
            check 'Debian has what they depend on' debian_has_what_they_need
        else
            skip 'Debian has what they depend on' 'there is no list of packages (apt-get update)'
        fi
    fi
else
    for name in "${package_cases[@]}"; do
        skip "$name" 'dpkg-dev or file is not installed'
    done
fi
[[ -d $scratch/installed ]] || cmake --install "$build" --prefix "$scratch/installed/usr" >/dev/null
check 'COMPONENTS shared looks for no other package' finds_without 'COMPONENTS shared' Threads OpenSSL
check 'without COMPONENTS the shared library needs no other package' finds_without '' Threads OpenSSL
check 'COMPONENTS static says what is missing' static_is_refused_with_a_reason
check 'uninstall leaves nothing of rdmux, and the rest' uninstall_leaves_nothing

if have dpkg-gensymbols; then
    check 'the symbols are those of cmake/debian/symbols' symbols_are_those_of_the_file
else
    skip 'the symbols are those of cmake/debian/symbols' 'dpkg-dev is not installed'
fi
if ! have abidiff; then
    skip 'the interface has only additions to librdmux0.abi' 'abidiff (abigail-tools) is not installed'
elif [[ $(uname -m) != x86_64 ]]; then
    skip 'the interface has only additions to librdmux0.abi' 'the dump is of x86_64'
else
    check 'the interface has only additions to librdmux0.abi' interface_has_only_additions
    check 'a function that has gone is found' interface_check_finds 's/rdmux_fabric_open/rdmux_fabric_opens/'
    check 'a type that has changed is found' interface_check_finds "s/(name='timeout_ms'|<enumerator name='RDMUX_OK') value='[0-9]+'/\\1 value='77'/"
fi

if have ninja; then
    check 'a build without verbs and OpenSSL says so' a_build_without_verbs_and_openssl_says_so
    check 'a build without libfabric and UCX says so' a_build_without_libfabric_and_ucx_says_so
    check 'the preset install builds no tests' the_install_preset_builds_no_tests
    check 'objects have the same bytes in two folders' objects_are_the_same_in_two_folders
    if [[ $level == thorough ]]; then
        check 'packages have the same bytes from two folders' packages_are_the_same_from_two_folders
    fi
else
    skip 'configured builds' 'ninja is not installed'
fi

make_one_file || die 'scripts/amalgamate fails'
for compiler in gcc clang; do
    if have "$compiler"; then
        check "$compiler compiles the core without a warning" compiles_clean "$compiler"
    else
        skip "$compiler compiles the core without a warning" "$compiler is not installed"
    fi
done
if [[ $level == thorough ]] && have clang && have ninja; then
    check 'clang builds everything without a warning' clang_builds_everything
fi
for compiler in g++ clang++; do
    for standard in c++17 c++20 c++2b; do
        if have "$compiler"; then
            check "$compiler compiles the headers as $standard, with -Wold-style-cast" cxx_compiles "$compiler" "$standard"
        else
            skip "$compiler compiles the headers as $standard" "$compiler is not installed"
        fi
    done
done

if have musl-gcc; then
    kernel_headers
    check 'musl: the core compiles without a warning, and links' builds "$scratch/musl" musl-gcc -idirafter "$scratch/kernel"
    for path in tcp shm; do
        check "musl: a program connects over $path" connects '' "$scratch/musl" "$path"
    done
else
    skip 'musl: the core compiles, and connects' 'musl-gcc (musl-tools) is not installed'
fi

if have aarch64-linux-gnu-gcc && have qemu-aarch64; then
    check 'aarch64: the core compiles without a warning, and links' builds "$scratch/arm" aarch64-linux-gnu-gcc
    for path in tcp shm; do
        check "aarch64: a program connects over $path, under qemu" connects qemu-aarch64 "$scratch/arm" "$path"
    done
    if [[ $level == thorough ]]; then
        check 'aarch64: library, plug-in and command compile without a warning' builds_for_aarch64 "$scratch/aarch64"
        for path in tcp shm; do
            check "aarch64: the conformance suite passes over $path, under qemu" \
                under_qemu "$scratch/aarch64/bin/rdmux" conformance --quick --seed 1 --patience 8 --provider "$path"
        done
        for name in $arm_tests; do
            if [[ -x $scratch/aarch64/tests/unit/$name ]]; then
                check "aarch64: $name passes, under qemu" under_qemu "$scratch/aarch64/tests/unit/$name"
            else
                skip "aarch64: $name passes, under qemu" 'libcmocka-dev:arm64 is not installed (scripts/setup --cross=arm64)'
            fi
        done
    fi
else
    skip 'aarch64: the core compiles, and connects' 'gcc-aarch64-linux-gnu or qemu-user is not installed'
fi

if have yamllint; then
    check 'the CI definition of .github is YAML' yamllint -d '{extends: relaxed, rules: {line-length: {max: 120}}}' "$root/.github"
else
    skip 'the CI definition of .github is YAML' 'yamllint is not installed'
fi
tap_end
