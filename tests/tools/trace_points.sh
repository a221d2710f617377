#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Compares the trace points in librdmux.so, as readelf(1) reads them, with the list in
# docs/OBSERVABILITY.md: their names, and how many arguments each has. Each must have a semaphore,
# without which an untraced program loads the arguments. --can: only tells whether
# this is possible here, and if not, why not. --without: compiles what has trace points as a build
# without sys/sdt.h does, without a warning.
#
# RDMUX_BUILD is the build.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
build=${RDMUX_BUILD:-$root/build/dev}
library=$build/lib/librdmux.so

if [[ ${1:-} == --without ]]; then
    cd "$root"
    mapfile -t sources < <(grep -rl --include='*.c' 'RDMUX_TRACE[0-9](' api)
    ((${#sources[@]} > 3)) || die 'no source has trace points'
    for source in "${sources[@]}"; do
        "${CC:-cc}" -fsyntax-only -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wconversion -Wshadow -Wpedantic -Werror \
            -I. -Iapi/include "$source"
    done
    exit
fi
have readelf || die 'readelf is not installed'
[[ -e $library ]] || die "there is no $library"
if grep -q '^RDMUX_SDT_INCLUDE:.*-NOTFOUND' "$build/CMakeCache.txt"; then
    die 'the library is built without sys/sdt.h (Debian: systemtap-sdt-dev)'
fi
if [[ ${1:-} == --can ]]; then
    exit 0
fi

# NAME ARGUMENTS, a line each
built() {
    readelf --notes "$library" | awk '
        $1 == "Provider:" { provider = $2 }
        $1 == "Name:" { name = $2 }
        $1 == "Arguments:" && provider == "rdmux" { print name, NF - 1 }' | LC_ALL=C sort -u
}

documented() {
    awk '/^## / { here = $0 == "## Trace points" }
        here && /^\| `[a-z_]+` \|/ {
            split($0, cells, "|")
            gsub(/[` ]/, "", cells[2])
            print cells[2], split(cells[3], arguments, ",")
        }' "$root/docs/OBSERVABILITY.md" | LC_ALL=C sort -u
}

[[ -n $(documented) ]] || die 'docs/OBSERVABILITY.md lists none'
unguarded=$(readelf --notes "$library" | awk '
    $1 == "Name:" { name = $2 }
    /Semaphore: 0x0+$/ { print name }')
[[ -z $unguarded ]] || die "trace points without a semaphore: ${unguarded//$'\n'/ }"
diff <(documented) <(built) || die 'documented (<) and built (>) trace points differ'
