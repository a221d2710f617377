#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Endpoints of rdma:// over simulated adapters; prints TAP. tests/soft_rdma tests them with
# third-party peers. RDMUX_BUILD: the build (default: build/dev).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"

build=${RDMUX_BUILD:-$root/build/dev}
test=$build/tests/interop/test_rdmacm
simulated=$build/lib/libsimverbs.so
if [[ ! -x $test || ! -e $simulated ]]; then
    echo "1..0 # SKIP $test is not built: cmocka, libibverbs-dev, librdmacm-dev"
    exit 77
fi
unset RDMUX_PATHS RDMUX_LOG
export CMOCKA_MESSAGE_OUTPUT=TAP

scratch=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-interop.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# over DEVICE [ARGUMENT...]: runs and counts the cases of test_rdmacm.
over() {
    local device=$1 status=0 name
    LD_PRELOAD=${preload:+$preload:}$simulated SIM_VERBS=net=interop-$$,$device \
        timeout 400 "$test" "${@:2}" >"$scratch/out" 2>&1 || status=$?
    while read -r name; do
        tap "over $device: ${name//_/ }" true
    done < <(sed -n 's/^ok [0-9]* - //p' "$scratch/out")
    if ((status != 0)); then
        tap "over $device: test_rdmacm ends with status 0, not $status" fail
    fi
}

fail() {
    sed 's/^/    /' "$scratch/out"
    return 1
}

# A program under a sanitizer needs the sanitizer's library first.
preload=$(ldd "$test" | sed -n 's/.*=> \(.*lib[at]san\.so[^ ]*\) .*/\1/p')
for device in link=ib link=roce link=iwarp; do
    over "$device"
    over "$device,like=hca,freedoms=all,packet=64k"
    # Soft RoCE is also such a device.
    [[ $device == link=iwarp ]] || over "$device,nothing_needs_key=yes"
    over "$device,fail=resolve_addr:1:19" --without-way
done
tap_end
