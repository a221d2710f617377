# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
#
# The cases of `rdmux copy` that are about what is sent and what stays; run.sh sources it, and has
# the helpers. The server of run.sh stores below $received.
#
# Variables set by run.sh and doctor.sh.
# shellcheck disable=SC2154

# own_folder: a new folder in $copied, below that of the server; its name there is $there.
own_folder() {
    copied=$(mktemp -d "$received/copied.XXXXXX")
    there=${copied##*/}
}

is_file() {
    [[ -f $1 && ! -L $1 ]] || fail "$1 is no file"
}

# mtime FILE, inode FILE
mtime() {
    stat -c %.Y "$1"
}

inode() {
    stat -c %i "$1"
}

a_path_behind_the_host() {
    own_folder
    printf 'x' >"$scratch/some"
    mkdir "$copied/directory"
    expect 0 copy "$scratch/some" "$address:/" --json
    json '.target == "some"'
    is_file "$received/some"
    expect 0 copy "$scratch/some" "$address:/$there/new"
    is_file "$copied/new"
    expect 0 copy "$scratch/some" "$address:/$there/directory" --json
    json ".target == \"$there/directory/some\""
    is_file "$copied/directory/some"
    expect 0 copy "$scratch/some" "$address:/$there/"
    is_file "$copied/some"
    expect 1 copy "$scratch/some" "$address:/$there/a/b/new"
    says err '--parents'
    [[ ! -e $copied/a ]] || fail 'a directory was made without --parents'
    expect 0 copy "$scratch/some" "$address:/$there/a/b/new" --parents
    is_file "$copied/a/b/new"
    expect 0 copy "$scratch/some" "$address" --as "$there/c/d" --parents
    is_file "$copied/c/d"
    expect 2 copy "$scratch/some" "$address:/$there" --as name
    says err 'exclude each other'
    expect 1 copy "$scratch/some" "$address:/../outside"
    says err 'the server says'
    expect 1 copy "$address:/some" "$scratch"
    says err 'gives no files'
    rm -r "$copied" "$received/some"
}

# small_tree: a new tree of six files in $source, all of them a minute old.
small_tree() {
    source=$(mktemp -d "$scratch/source.XXXXXX")
    mkdir "$source/d"
    local name
    for name in one two d/three d/four d/five d/six; do
        printf 'contents of %s' "$name" >"$source/$name"
    done
    ln -s one "$source/link"
    find "$source" -exec touch -h -d '1 minute ago' {} +
}

what_is_unchanged_is_skipped() {
    own_folder
    small_tree
    expect 0 copy "$source" "$address" --as "$there/tree" --json
    json '.files == 6 and .links == 1 and .skipped == 0'
    expect 0 copy "$source" "$address" --as "$there/tree" --json
    json '.files == 0 and .links == 0 and .sent_bytes == 0 and .skipped == 7
          and .skips == {unchanged: 7, newer: 0, existing: 0, special: 0, outside: 0}'
    [[ ! -s $scratch/err ]] || fail "it says: $(cat "$scratch/err")"
    expect 0 copy "$source" "$address" --as "$there/tree" --verbose
    says out '7 entries skipped: 7 unchanged'
    [[ $(grep -c 'skipped.*unchanged' "$scratch/err") == 7 ]] || fail "$(cat "$scratch/err")"
    says err "skipped \"$source/d/five\""
    touch "$source/one"
    chmod 0600 "$source/two"
    printf 'longer contents of three' >"$source/d/three"
    touch -r "$source/d/four" "$source/d/three"
    rm "$copied/tree/d/six"
    ln -sfn two "$source/link"
    expect 0 copy "$source" "$address" --as "$there/tree" --json
    json '.files == 4 and .links == 1 and .skipped == 2'
    diff <(sums "$source") <(sums "$copied/tree") || fail 'the contents differ'
    [[ $(stat -c %a "$copied/tree/two") == 600 ]] || fail 'the mode is another'
    [[ $(readlink "$copied/tree/link") == two ]] || fail 'the link is another'
    rm -r "$copied" "$source"
}

contents_decide_with_checksum() {
    own_folder
    small_tree
    expect 0 copy "$source" "$address" --as "$there/tree"
    printf 'CONTENTS of one' >"$source/one" # of the same length
    touch -r "$source/two" "$source/one"
    touch "$source/d/five"
    expect 0 copy "$source" "$address" --as "$there/tree" --json
    json '.files == 1 and .skips.unchanged == 6'
    same "$source/d/five" "$copied/tree/d/five"
    ! cmp -s "$source/one" "$copied/tree/one" || fail 'size and time did not decide'
    touch "$source/d/four"
    expect 0 copy "$source" "$address" --as "$there/tree" --checksum --json
    json '.files == 1 and .skips.unchanged == 6'
    same "$source/one" "$copied/tree/one"
    [[ $(mtime "$source/d/four") == "$(mtime "$copied/tree/d/four")" ]] || fail 'the time is another'
    expect 0 copy "$source/one" "$address" --as "$there/tree/one" --checksum --json
    json '.files == 0 and .skips.unchanged == 1'
    if jq -e '.checksum.algorithm == "sha256"' "$scratch/out" >/dev/null; then
        json ".checksum.value == \"$(sha256sum <"$source/one" | cut -d' ' -f1)\""
    fi
    rm -r "$copied" "$source"
}

update_and_no_clobber() {
    own_folder
    small_tree
    expect 0 copy "$source" "$address" --as "$there/tree"
    printf 'mine' >"$copied/tree/one"
    printf 'newer' >"$source/two"
    expect 0 copy "$source" "$address" --as "$there/tree" --update --json
    json '.files == 1 and .skips.newer == 1 and .skips.unchanged == 5'
    [[ $(<"$copied/tree/one") == mine && $(<"$copied/tree/two") == newer ]] || fail 'not the newer'
    printf 'newest' >"$source/two"
    printf 'more' >"$source/d/more"
    touch -h "$source/link"
    ln -sfn two "$source/link"
    expect 0 copy "$source" "$address" --as "$there/tree" --no-clobber --verbose
    says out '7 entries skipped: 4 unchanged, 3 existing there'
    says err "skipped \"$source/two\": .*--no-clobber"
    [[ $(<"$copied/tree/two") == newer && $(<"$copied/tree/d/more") == more ]] || fail 'clobbered'
    [[ $(readlink "$copied/tree/link") == one ]] || fail 'the link was replaced'
    rm -r "$copied" "$source"
}

# skipped_are REASON NAME...: exactly these entries were skipped for the reason, by the JSON of the last command.
skipped_are() {
    json "([.skipped_entries[] | select(.reason == \"$1\").path] | sort | join(\" \")) == \"${*:2}\""
}

each_skipped_entry_is_listed() {
    local name
    own_folder
    small_tree
    expect 0 copy "$source" "$address" --as "$there/tree" --json
    json '.skipped_entries == [] and .skipped_unlisted == 0'
    mkfifo "$source"/fifo{1..5}
    for name in 1 2 3 4 5; do
        ln -s /nowhere "$source/out$name"
    done
    touch "$copied/tree/one" "$copied/tree/two" "$copied/tree/d/six"
    expect 0 copy "$source" "$address" --as "$there/tree" --update --json
    json '.skipped == 17 and .skips.unchanged == 4 and (.skipped_entries | length) == 13 and .skipped_unlisted == 0'
    skipped_are special /fifo{1..5}
    skipped_are outside /out{1..5}
    skipped_are newer /d/six /one /two
    for name in fifo{1..5} out{1..5}; do
        says err "skipped \"$source/$name\": "
    done
    for name in one two d/six; do
        says err "skipped \"$source/$name\": .*--update"
    done
    [[ $(grep -c skipped "$scratch/err") == 13 ]] || fail "not 13 lines: $(cat "$scratch/err")"
    expect 0 copy "$source" "$address" --as "$there/tree" --update --json --verbose
    skipped_are unchanged /d/five /d/four /d/three /link
    # What replaces an entry that is there.
    touch "$source/one" "$source/d/five"
    expect 0 copy "$source" "$address" --as "$there/tree" --no-clobber --json
    json '.files == 0'
    skipped_are existing /d/five /d/six /one /two
    [[ $(grep -c 'skipped.*--no-clobber' "$scratch/err") == 4 ]] || fail "$(cat "$scratch/err")"
    # The JSON lists a thousand; standard error has them all.
    rm -r "$source" && mkdir "$source"
    mkfifo "$source"/fifo{1..1003}
    expect 0 copy "$source" "$address" --as "$there/many" --json
    json '.skips.special == 1003 and (.skipped_entries | length) == 1000 and .skipped_unlisted == 3'
    [[ $(grep -c skipped "$scratch/err") == 1003 ]] || fail 'not 1003 lines'
    rm -r "$copied" "$source"
}

times_and_hard_links_are_kept() {
    local name
    own_folder
    small_tree
    ln "$source/one" "$source/d/again"
    ln "$source/one" "$source/zero"
    touch -d '2001-02-03 04:05:06.123456789' "$source/two" "$source/d"
    expect 0 copy "$source" "$address" --as "$there/tree" --json
    json '.files == 6 and .hard_links == 2'
    for name in one two d d/five .; do
        [[ $(mtime "$source/$name") == "$(mtime "$copied/tree/$name")" ]] || fail "the time of $name"
    done
    for name in d/again zero; do
        [[ $(inode "$copied/tree/$name") == "$(inode "$copied/tree/one")" ]] || fail "$name"
    done
    expect 0 copy "$source" "$address" --as "$there/tree" --json
    json '.files == 0 and .hard_links == 0 and .skips.unchanged == 9'

    # A name that is missing is linked, and one that has become another file.
    rm "$copied/tree/zero" "$copied/tree/one"
    printf 'another' >"$copied/tree/one"
    expect 0 copy "$source" "$address" --as "$there/tree" --json
    json '.files == 0 and .hard_links == 2'
    for name in d/again zero; do
        [[ $(inode "$copied/tree/$name") == "$(inode "$copied/tree/one")" ]] || fail "$name later"
    done

    # A change reaches all names.
    printf 'changed' >"$source/one"
    expect 0 copy "$source" "$address" --as "$there/tree" --json
    json '.files == 1 and .hard_links == 2'
    [[ $(<"$copied/tree/zero") == changed ]] || fail 'a name has the old contents'
    rm -r "$copied" "$source"
}

# allocated FILE: bytes that it takes on the disk.
allocated() {
    echo $(($(stat -c %b "$1") * 512))
}

holes_stay_holes() {
    own_folder
    truncate -s 96M "$scratch/sparse"
    printf 'in the middle' | dd of="$scratch/sparse" bs=1M seek=40 conv=notrunc status=none
    if (($(allocated "$scratch/sparse") > 1 << 20)); then
        fail "the file system of $scratch keeps no holes"
    fi
    expect 0 copy "$scratch/sparse" "$address:/$there" --paths "$1" --json
    json '.bytes == 100663296 and .hole_bytes > 90000000 and .sent_bytes < 1000000'
    same "$scratch/sparse" "$copied/sparse"
    (($(allocated "$copied/sparse") <= 1 << 20)) || fail "it takes $(allocated "$copied/sparse")"
    rm -r "$copied" "$scratch/sparse"
}

a_copy_that_was_cut_off_is_continued() {
    local size=6000000 part=3000000
    own_folder
    head -c "$size" /dev/urandom >"$scratch/cut"
    "$helpers/bad_client" "$address" --cut "$scratch/cut" "$part" >"$scratch/out" ||
        fail "$(cat "$scratch/out")"
    [[ -z $(find "$received" -maxdepth 1 -name '.rdmux-*' -o -maxdepth 1 -name cut) ]] ||
        fail 'the part has a name'
    expect 0 copy "$scratch/cut" "$address" --verbose --json
    json ".resumed_files == 1 and .resumed_bytes == $part and .sent_bytes == $((size - part))
          and .bytes == $size and .verified"
    says err "continued .*$part bytes"
    same "$scratch/cut" "$received/cut"

    # The beginning that the server has is that of other contents.
    rm "$received/cut"
    mkdir "$scratch/other"
    head -c "$size" /dev/urandom >"$scratch/other/cut"
    touch -r "$scratch/cut" "$scratch/other/cut"
    "$helpers/bad_client" "$address" --cut "$scratch/other/cut" "$part" >"$scratch/out" ||
        fail "$(cat "$scratch/out")"
    expect 0 copy "$scratch/cut" "$address" --json
    json ".resumed_files == 0 and .sent_bytes == $size"
    same "$scratch/cut" "$received/cut"
    rm -r "$copied" "$received/cut" "$scratch/cut" "$scratch/other"
}

# plainly_copy ARGUMENT...: as expect 1, without the right to override permissions.
plainly_copy() {
    local status=0
    timeout --kill-after=5 "$limit" "${plainly[@]}" "$rdmux" copy "$@" \
        >"$scratch/out" 2>"$scratch/err" || status=$?
    [[ $status == 1 ]] || fail "status $status: $(cat "$scratch/out" "$scratch/err")"
}

what_cannot_be_read_is_reported_and_the_rest_goes_on() {
    own_folder
    small_tree
    chmod 000 "$source/one" "$source/d/four"
    mkdir "$source/closed"
    chmod 000 "$source/closed"
    plainly_copy "$source" "$address" --as "$there/tree" --json
    json '.files == 4 and .links == 1 and .failed == 3 and .verified'
    says err "cannot open \"$source/one\": .*goes on"
    says err "cannot open \"$source/closed\""
    [[ $(ls "$copied/tree") == $'closed\nd\nlink\ntwo' && $(ls "$copied/tree/d") == $'five\nsix\nthree' ]] ||
        fail "there is: $(find "$copied")"
    plainly_copy "$source" "$address" --as "$there/tree" --checksum
    says out '3 entries could not be read'
    says out '5 unchanged'
    plainly_copy "$source/one" "$address" --as "$there/one"
    says err 'as a user who may read it'
    chmod -R u+rwX "$source" "$copied"
    rm -r "$copied" "$source"
}

a_tree_that_contains_its_target_is_refused() {
    own_folder
    mkdir "$copied/a"
    printf 'x' >"$copied/a/file"
    expect 1 copy "$scratch" "$address" --as "$there/all"
    says err 'contains'
    expect 1 copy "$copied/a" "$address" --as "$there/a/again"
    says err 'contains'
    expect 1 copy "$copied/a" "$address:/$there"
    says err 'contains'
    expect 1 copy "$copied/a/file" "$address" --as "$there/a/file"
    says err 'contains'
    [[ $(find "$copied" | wc -l) == 3 ]] || fail "there is: $(find "$copied")"
    expect 0 copy "$copied/a" "$address" --as "$there/b"
    rm -r "$copied"
}

gone() {
    [[ ! -e $1 && ! -L $1 ]]
}

what_is_left_over_is_removed_at_the_start() {
    local folder name=.rdmux-0123456789abcdef0123456789abcdef.part
    folder=$(mktemp -d "$scratch/left.XXXXXX")
    mkdir -p "$folder/a/b"
    printf 'part' >"$folder/a/b/$name"
    ln -s nowhere "$folder/$name"
    printf 'mine' >"$folder/a/.rdmux-mine.part"
    start_server --receive "$folder"
    wait_until gone "$folder/a/b/$name"
    wait_until gone "$folder/$name"
    is_file "$folder/a/.rdmux-mine.part"
    stop_server
    rm -r "$folder"
}

# serve_badly WAY: a server that is old or lies, in place of that of run.sh.
serve_badly() {
    log=$(mktemp "$scratch/server.XXXXXX")
    "$helpers/bad_server" "$1" >"$log" 2>&1 </dev/null &
    server=$!
    started+=("$server")
    wait_until test -s "$log"
    read -r _ _ address <"$log"
    printf 'contents' >"$scratch/small"
}

# the_server_got LINE: the server of serve_badly has ended, and this is what it has got.
the_server_got() {
    ends "$server" "$end_limit"
    [[ $status == 0 && $(tail -n 1 "$log") == "$1" ]] || fail "status $status: $(cat "$log")"
}

an_older_server_gets_what_it_knows() {
    serve_badly is_of_version_1
    expect 0 copy "$scratch/small" "$address" --json
    json '.files == 1 and .sent_bytes == 8'
    says err 'older version'
    the_server_got 'offset 0'
    serve_badly is_of_version_1
    expect 1 copy "$scratch/small" "$address" --no-clobber
    says err 'older version, which knows neither .*--no-clobber'
    the_server_got end
}

a_server_that_lies_is_found_out() {
    local way
    for way in answers_before_it_is_asked puts_the_copy_into_a_directory_that_was_not_named \
        answers_more_than_was_asked answers_with_nonsense; do
        serve_badly "$way"
        expect 1 copy "$scratch/small" "$address"
        says err 'malformed'
        ends "$server" "$end_limit"
    done
    serve_badly is_of_a_version_that_is_not_there_yet
    expect 1 copy "$scratch/small" "$address"
    says err 'another version'
    ends "$server" "$end_limit"
    for way in has_a_part_that_is_no_part_of_the_file has_more_than_the_file; do
        serve_badly "$way"
        expect 0 copy "$scratch/small" "$address" --json
        json '.resumed_files == 0 and .sent_bytes == 8'
        the_server_got 'offset 0'
    done
}

a_client_that_reads_no_answers_is_ended() {
    start_server --receive "$received" --idle 5 # so long a new client may take to ask, too
    timeout --kill-after=5 "$limit" "$helpers/bad_client" "$address" --asks >"$scratch/out" ||
        fail "$(cat "$scratch/out")"
    expect 0 explain "$address"
    stop_server
}

copy_cases() {
    check 'copy: a path behind the host' a_path_behind_the_host
    check 'copy: what is unchanged is skipped' what_is_unchanged_is_skipped
    check 'copy: contents decide with --checksum' contents_decide_with_checksum
    check 'copy: --update and --no-clobber' update_and_no_clobber
    check 'copy: each skipped entry is listed with its reason' each_skipped_entry_is_listed
    check 'copy: times and hard links are kept' times_and_hard_links_are_kept
    check 'copy: holes stay holes over shm' holes_stay_holes shm
    check 'copy: holes stay holes over tcp' holes_stay_holes tcp
    check 'copy: a tree that contains its target is refused' \
        a_tree_that_contains_its_target_is_refused
    check 'copy: what an earlier server has left over is removed' \
        what_is_left_over_is_removed_at_the_start
    if [[ $plainly_works == yes ]]; then
        check 'copy: what cannot be read is reported, and the rest goes on' \
            what_cannot_be_read_is_reported_and_the_rest_goes_on
    else
        tap_skip 'copy: what cannot be read is reported, and the rest goes on' \
            'setpriv cannot take rights away here'
    fi
    if [[ -x $helpers/bad_client && -x $helpers/bad_server ]]; then
        check 'copy: a copy that was cut off is continued' a_copy_that_was_cut_off_is_continued
        check 'copy: an older server gets what it knows' an_older_server_gets_what_it_knows
        check 'copy: a server that lies is found out' a_server_that_lies_is_found_out
        check 'copy: a client that reads no answers is ended' a_client_that_reads_no_answers_is_ended
    else
        tap_skip 'copy: peers that are old or lie' "there is no $helpers/bad_client or bad_server"
    fi
}
