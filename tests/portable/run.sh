#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Builds the library with POSIX calls alone (RDMUX_POSIX_ONLY, docs/PORTING.md) and runs the
# conformance suite over it: the command of the dev build loads that library. Prints TAP.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${RDMUX_SOURCE:-$(cd "$here/../.." && pwd)}
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
dev=${RDMUX_BUILD:-$root/build/dev}
portable=$root/build/portable
library=$portable/lib/librdmux.so
rdmux=$dev/bin/rdmux
unset RDMUX_PATHS RDMUX_LOG

[[ -x $rdmux ]] || die "there is no command $rdmux; build it, or name its tree in RDMUX_BUILD"

fail() {
    printf '%s\n' "$*"
    exit 1
}

# over COMMAND...: with the portable library.
over() {
    LD_LIBRARY_PATH=$portable/lib "$@"
}

# ----------------------------------------------------------------------------------------- sources

# Headers that Linux has, and POSIX.1-2008 lacks.
readonly of_linux='(linux|asm)/|sys/(auxv|epoll|eventfd|inotify|ioctl|prctl|random|signalfd|syscall|timerfd|vfs)\.h|endian\.h|link\.h'

only_one_folder_includes_them() {
    ! (cd "$root" && grep -rnE "^#include <($of_linux)" --include='*.[ch]' \
        --exclude-dir=system api negotiation providers stream tcp_fallback) ||
        fail 'ask for it in api/system/system.h instead'
}

tap 'no folder but api/system includes headers of Linux' only_one_folder_includes_them

# ------------------------------------------------------------------------------------------- build

build() {
    local generator=()
    ! have ninja || generator=(-G Ninja)
    cmake -S "$root" -B "$portable" "${generator[@]}" -DCMAKE_BUILD_TYPE=Debug \
        -DCMAKE_C_FLAGS_DEBUG=-O0 -DRDMUX_POSIX_ONLY=ON -DRDMUX_WERROR=ON -DRDMUX_TOOLS=OFF \
        -DRDMUX_TESTS=OFF -DRDMUX_EXAMPLES=OFF &&
        cmake --build "$portable" --target rdmux -j "${RDMUX_JOBS:-2}"
}

tap 'the library is built without _GNU_SOURCE, and without a warning' build
[[ -e $library ]] || {
    tap_end
    exit 1
}

# Functions that Linux or glibc has, and POSIX.1-2008 lacks.
readonly foreign='accept4|close_range|dl_iterate_phdr|dladdr|dup3|epoll_\w+|eventfd\w*|explicit_bzero
|fstatfs\w*|getauxval|getentropy|getrandom|gettid|inotify_\w+|ioctl|madvise|memfd_create|mremap|pipe2
|ppoll|prctl|process_vm_\w+|pthread_\w+_np|recvmmsg|sched_[gs]etaffinity|secure_getenv|sendmmsg
|signalfd|splice|statfs\w*|statx|strerror(desc|name)_np|syscall|timerfd_\w+'

imports_posix_alone() {
    local imported
    imported=$(nm --dynamic --undefined-only "$library" | awk '{ sub(/@.*/, "", $NF); print $NF }')
    [[ $imported == *$'\n'poll$'\n'* ]] || fail 'nm does not list what the library imports'
    ! grep -xE "${foreign//$'\n'/}" <<<"$imported" ||
        fail 'the library imports them: docs/PORTING.md says where they belong'
}

tap 'the library imports no function that POSIX lacks' imports_posix_alone

# ------------------------------------------------------------------------------------------- paths

lists_tcp_alone() {
    local paths
    paths=$(over "$rdmux" info --json | jq -r '.paths[] | select(.usable) | .provider' | sort -u)
    [[ $paths == tcp ]] || fail "usable paths: ${paths//$'\n'/ }"
}

if have jq; then
    tap 'the command loads this library, which has tcp alone' lists_tcp_alone
else
    tap_skip 'the command loads this library, which has tcp alone' 'jq is missing'
fi

# ------------------------------------------------------------------------------------- conformance

suite_passes() {
    local log=$portable/conformance.tap
    over "$rdmux" conformance --format tap --seed 1 --quick --patience 4 --provider tcp >"$log" 2>&1 || {
        grep -A20 '^not ok' "$log" || tail -n 20 "$log"
        exit 1
    }
    grep -q '^ok .*wake' "$log" || fail "$log has no case about wake-ups"
}

tap 'the conformance suite passes over tcp' suite_passes
tap_end
