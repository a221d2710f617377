# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
#
# The guests' part of scripts/demo --soft-rdma: a serves, b uses it over one provider, or over all
# paths, of which it draws the figures. The arguments are the provider or "all", the seconds of a
# measurement, and for "all" the sizes. RDMUX is the command.
set -euo pipefail
# shellcheck source=tests/soft_rdma/inside.sh
. /run/host/inside.sh

: "${RDMUX:?}"
provider=$1 seconds=$2 sizes=${3-}
readonly tree_size=$((32 << 20)) # bytes

# run ARGUMENT...: shows the command and runs it.
run() {
    printf '$ rdmux %s\n' "$*"
    "$RDMUX" "$@"
}

# make_tree FOLDER: copies of this machine's own libraries.
make_tree() {
    local file total=0
    mkdir "$1"
    while read -r file; do
        cp "$file" "$1/"
        total=$((total + $(stat -c %s "$file")))
        ((total < tree_size)) || break
    done < <(find /usr/lib -type f -name '*.so*' -readable -size -4M | LC_ALL=C sort)
    ((total > 0)) || fail 'there are no libraries to copy'
}

# sums FOLDER: SHA-256 of each file.
sums() {
    (cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum)
}

serve_it() {
    local address=$RXE_ADDRESS
    [[ $provider == roce ]] || address=$SIW_ADDRESS
    mkdir /tmp/received
    "$RDMUX" serve "$address:0" --receive /tmp/received >/tmp/serve &
    started=$!
    until_true test -s /tmp/serve
    printf '$ rdmux serve %s:0 --receive /tmp/received &\n' "$address"
    cat /tmp/serve
    notify 'a serves' "$(sed 's/.* //' /tmp/serve)"
    patience=600
    await 'b has copied' >/dev/null
    sums /tmp/received/libraries >/run/host/shared/sums
    notify 'a has summed up'
    await 'b is done' >/dev/null
    kill -TERM "$started"
    end_well
}

show_it() {
    local address
    address=$(await 'a serves')
    run info
    echo
    echo 'Without a wish, an adapter in software is not taken:'
    run explain "$address"
    echo
    export RDMUX_PATHS=$provider
    printf 'export RDMUX_PATHS=%s\n' "$provider"
    run explain "$address"
    make_tree /tmp/libraries
    run copy /tmp/libraries "$address"
    notify 'b has copied'
    patience=120
    await 'a has summed up' >/dev/null
    sums /tmp/libraries | cmp - /run/host/shared/sums || fail 'the libraries arrived otherwise'
    printf '%d files: every SHA-256 is that of the source\n' "$(wc -l </run/host/shared/sums)"
    run perf "$address" --op send --test latency --size 8 --wait sleep --seconds "$seconds"
    run perf "$address" --op write --test bandwidth --size 1M --wait sleep --seconds "$seconds"
    notify 'b is done'
}

# The server of the measurements of all paths. Its lines, one for each, are not shown.
serve_all() {
    "$RDMUX" serve "$RXE_ADDRESS:0" >/tmp/serve 2>/tmp/serve.err &
    started=$!
    until_true test -s /tmp/serve
    notify 'a serves' "$(sed 's/.* //; q' /tmp/serve)"
    patience=3600
    await 'b is done' >/dev/null
    kill -TERM "$started"
    end_well
}

# The picture is part of the output, as nothing that a guest writes stays.
measure_all() {
    run perf "$(await 'a serves')" --paths all --size "$sizes" --wait sleep --seconds "$seconds" \
        --plot /tmp/paths.svg
    notify 'b is done'
    sed 's/^/svg: /' /tmp/paths.svg
}

case $GUEST:$provider in
a:all) serve_all ;;
b:all) measure_all ;;
a:*) serve_it ;;
b:*) show_it ;;
esac
