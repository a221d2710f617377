# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
#
# The cases of captures (RDMUX_CAPTURE, --capture) and of the dissector in tools/wireshark; run.sh
# sources it, and has the helpers. They need tshark, and dumpcap for what others than rdmux record.
#
# Variables set by run.sh.
# shellcheck disable=SC2154

dissector=$root/tools/wireshark/rdmux.lua

# Out of a recording that has packets in another order than they were sent in, as those of loopback on
# several processors, Wireshark puts bytes together only with this.
in_any_order=(-o tcp.reassemble_out_of_order:TRUE)

# dissect FILE ARGUMENT...: tshark with this dissector and no other of the user's, and with the
# arguments in preferences.
preferences=()
dissect() {
    mkdir -p "$scratch/home"
    HOME=$scratch/home XDG_CONFIG_HOME=$scratch/home WIRESHARK_PLUGIN_DIR=$scratch/home \
        timeout "$limit" tshark -X "lua_script:$dissector" "${preferences[@]}" -r "$1" "${@:2}" 2>"$scratch/tshark.err" || {
        cat "$scratch/tshark.err"
        return 1
    }
    ! grep -vE '^(Running as user|\*\* |$)' "$scratch/tshark.err" || fail "tshark: $(cat "$scratch/tshark.err")"
}

# values FILE FIELD...: lines "FIELD<tab>VALUE" of all frames, those of a field in their order.
# Versions of tshark differ in how they print bytes and booleans.
values() {
    local field arguments=()
    for field in "${@:2}"; do
        arguments+=(-e "$field")
    done
    dissect "$1" -T fields -E aggregator='|' -E 'separator=/t' "${arguments[@]}" >"$scratch/values" || return 1
    awk -F '\t' -v fields="${*:2}" '
        BEGIN { split(fields, names, " ") }
        {
            for (i = 1; i <= NF; i++) {
                if ($i == "") continue
                count = split($i, values, "|")
                for (k = 1; k <= count; k++) {
                    value = values[k] == "True" ? 1 : values[k] == "False" ? 0 : values[k]
                    if (value ~ /^[0-9a-f][0-9a-f](:[0-9a-f][0-9a-f])+$/) gsub(/:/, "", value)
                    print names[i] "\t" value
                }
            }
        }' "$scratch/values" | LC_ALL=C sort -s -t $'\t' -k 1,1
}

# nothing_wrong FILE: nothing in the file breaks the protocol, and the dissector made no mistake.
nothing_wrong() {
    local items
    items=$(dissect "$1" -Y 'rdmux.violation or rdmux.unknown or _ws.malformed or _ws.expert.message contains "Lua"' \
        -T fields -e frame.number -e _ws.expert.message) ||
        fail "tshark does not read $1: $items"
    [[ -z $items ]] || fail "in $1: $(head -5 <<<"$items")"
}

# ---- frames of every kind

frames=$scratch/frames

make_frames() {
    mkdir -p "$frames"
    [[ -s $frames/expected ]] || "$helpers/wire_frames" "$frames" || fail 'wire_frames failed'
    grep '^rdmux' "$frames/expected" | LC_ALL=C sort -s -t $'\t' -k 1,1 >"$frames/fields"
}

# every_field_of FILE: the dissector finds what was written.
every_field_of() {
    local fields
    make_frames
    mapfile -t fields < <(cut -f 1 "$frames/fields" | uniq)
    values "$frames/$1" "${fields[@]}" >"$scratch/found" || fail "$(cat "$scratch/found")"
    diff "$frames/fields" "$scratch/found" | head -20
    [[ ${PIPESTATUS[0]} == 0 ]] || fail "$1: written (<) and dissected (>) differ"
    nothing_wrong "$frames/$1"
}

# Names of statuses and reasons are those of the library.
the_column_names_statuses_and_reasons() {
    make_frames
    grep '^info' "$frames/expected" | cut -f 2 | LC_ALL=C sort -u >"$scratch/expected"
    dissect "$frames/rdmux.pcapng" -o 'gui.column.format:"Info","%i"' >"$scratch/columns" || fail "$(cat "$scratch/columns")"
    sed 's/^ *//; s/ *$//' "$scratch/columns" | grep -Fxf "$scratch/expected" |
        LC_ALL=C sort -u >"$scratch/found"
    diff "$scratch/expected" "$scratch/found" || fail 'the library (<) and the dissector (>) differ'
}

# A field without a test could be dissected wrongly.
every_field_is_tested() {
    make_frames
    sed -nE 's/^define\("[a-z0-9]+", "([a-z0-9_.]+)".*/rdmux.\1/p' "$dissector" | LC_ALL=C sort >"$scratch/defined"
    {
        cut -f 1 "$frames/fields"
        printf 'rdmux.%s\n' raw offer.unknown data.share # of hostile files, and of several sockets
    } | LC_ALL=C sort -u >"$scratch/tested"
    diff "$scratch/defined" "$scratch/tested" || fail 'defined (<) and tested (>) fields differ'
}

# Three data sockets: their number is in the set-up, and socket 0 has a third of the payload.
a_payload_over_several_sockets() {
    local line
    make_frames
    values "$frames/striped.pcap" rdmux.name rdmux.data.length rdmux.data.payload_length >"$scratch/found" ||
        fail "$(cat "$scratch/found")"
    for line in $'rdmux.data.payload_length\t102400' $'rdmux.name\tACK' $'rdmux.data.length\t17'; do
        grep -qxF "$line" "$scratch/found" || fail "no $line in: $(cat "$scratch/found")"
    done
    [[ $(dissect "$frames/striped.pcap" -Y rdmux.data.share -T fields -e tcp.srcport | sort -u) == $'40002\n40003' ]] ||
        fail 'not both other sockets have shares'
    nothing_wrong "$frames/striped.pcap"
}

# each_connection_of FILE LEAST [ARGUMENT...]: every connection has the same frames, as does each of the
# other kind; LEAST: the number of connections.
each_connection_of() {
    local count preferences=("${@:3}")
    make_frames
    dissect "$frames/$1" -Y rdmux -T fields -E aggregator=' ' -e tcp.stream -e rdmux.name >"$scratch/packets" ||
        fail "$(cat "$scratch/packets")"
    awk -F '\t' '{ names[$1] = names[$1] " " $2 }
        END { for (stream in names) { gsub(/ +/, " ", names[stream]); print names[stream] } }' \
        "$scratch/packets" | LC_ALL=C sort | uniq -c >"$scratch/found"
    awk '{ $1 = ""; print }' "$scratch/found" | diff - <(printf ' %s\n' \
        'HELLO HEARTBEAT ENDED HEARTBEAT' 'JOIN SEND NAK COMPARE_SWAP PING ACK') ||
        fail "other frames (<) than those that were sent (>): $(cat "$scratch/found")"
    count=$(awk '{ sum += $1 } END { print sum }' "$scratch/found")
    ((count >= $2)) || fail "$count connections"
    nothing_wrong "$frames/$1"
}

# A wrong length is said, and what comes with the next segment is found.
wrong_lengths() {
    local stream=0 text last
    make_frames
    dissect "$frames/lengths.pcap" -T fields -E aggregator=' ' -e tcp.stream -e rdmux.name \
        -e _ws.expert.message >"$scratch/found" || fail "$(cat "$scratch/found")"
    ! grep -iE 'lua|malformed|dissector bug' "$scratch/found" || fail 'the dissector fails'
    while IFS=$'\t' read -r _ text; do
        awk -F '\t' -v stream="$stream" '$1 == stream' "$scratch/found" >"$scratch/stream"
        last=ACK
        [[ $text != 'Not captured' ]] || last='JOIN ACK ACK'
        grep -qF "$text" "$scratch/stream" ||
            fail "connection $stream: not \"$text\": $(cat "$scratch/stream")"
        [[ $(tail -n 1 "$scratch/stream" | cut -f 2) == "$last" ]] ||
            fail "connection $stream: no $last at its end: $(cat "$scratch/stream")"
        stream=$((stream + 1))
    done < <(grep '^wrong' "$frames/expected")
    ((stream >= 11)) || fail "only $stream connections"
}

# Without reassembly the dissector says what it has not got, and reads on.
without_reassembly() {
    local preferences=(-o tcp.desegment_tcp_streams:FALSE)
    make_frames
    dissect "$frames/cuts.pcap" -T fields -e rdmux.name -e _ws.expert.message >"$scratch/found" ||
        fail "$(cat "$scratch/found")"
    grep -q 'Not captured' "$scratch/found" || fail 'nothing is missing'
    ! grep -iE 'lua|malformed|dissector bug' "$scratch/found" | head -5 | grep . || fail 'the dissector fails'
}

# hostile FILE LEAST: every packet is read, and none makes the dissector fail.
hostile() {
    local count text
    make_frames
    count=$(dissect "$frames/$1" -T fields -e frame.number -e rdmux.name -e _ws.expert.message >"$scratch/found" && wc -l <"$scratch/found") ||
        fail "tshark does not read $1"
    ((count >= $2)) || fail "$count packets"
    ! grep -iE 'lua|malformed|dissector bug' "$scratch/found" | head -5 | grep . || fail 'the dissector fails'
    for text in 'too short' 'too long' 'Not captured'; do
        grep -q "$text" "$scratch/found" || fail "\"$text\" is said of no frame"
    done
}

# ---- sessions of the command

# count_names FILE: how many frames of which name. Not those that a side sends unasked: how many are
# sent depends on time, and the last ones may come when the other side has closed its socket.
count_names() {
    values "$1" rdmux.name >"$scratch/names" || fail "$(cat "$scratch/names")"
    grep -vE '	(HEARTBEAT|CREDIT|PING)$' "$scratch/names" | sort | uniq -c
}

# measure WORDS FILE ARGUMENT...: a client with this capture over tcp.
measure() {
    expect 0 perf "$address" --paths tcp --test rate --iterations 200 --size 100 --verify \
        --capture "${1:+$1:}$2" "${@:3}"
}

both_sides_capture_the_same() {
    local folder=$scratch/both op size name
    mkdir "$folder"
    RDMUX_CAPTURE=$folder/server start_server
    for op in send write read fetch_add compare_swap send_imm write_imm; do
        size=100
        [[ $op != fetch_add && $op != compare_swap ]] || size=8
        measure '' "$folder/client" --op "$op" --size "$size"
    done
    expect 0 explain "$address" --capture "$folder/client"
    stop_server
    count_names "$folder/client" >"$folder/1"
    count_names "$folder/server" >"$folder/2"
    diff "$folder/1" "$folder/2" || fail 'the client (<) and the server (>) have captured different frames'
    for name in HELLO OFFER RANKING TRY READY UP WRITTEN PROVED COMMIT CONFIRM JOIN IMPORT IMPORTED \
        END ENDED SEND WRITE READ DATA FETCH_ADD COMPARE_SWAP RESULT; do
        grep -qE "	$name\$" "$folder/1" || fail "no $name in: $(cat "$folder/1")"
    done
    awk '$NF == "FETCH_ADD" && $1 < 200 { exit 1 }' "$folder/1" || fail "$(cat "$folder/1")"
    nothing_wrong "$folder/client"
    nothing_wrong "$folder/server"
    [[ $(stat -c %a "$folder/client") == 600 ]] || fail 'others may read the capture'
    [[ $(dissect "$folder/client" -T fields -e frame.packet_flags_direction -e tcp.port -e exported_pdu.dst_port |
        sort -u | wc -l) -gt 1 ]] || fail 'no directions'
}

# are_zero yes|no FILE FIELD...: the fields are there, and have no byte but 0, or each has one.
are_zero() {
    local field
    values "${@:2}" >"$scratch/found" || fail "$(cat "$scratch/found")"
    for field in "${@:3}"; do
        grep -q "^$field	" "$scratch/found" || fail "no $field"
        if [[ $1 == yes ]]; then
            ! grep -E "^$field	0*[1-9a-f]" "$scratch/found" || fail "$field is captured"
        else
            grep -qE "^$field	0*[1-9a-f]" "$scratch/found" || fail "$field is not captured"
        fi
    done
}

# payload_is FILE BYTES: so many bytes of a payload were kept at most.
payload_is() {
    local most
    most=$(values "$1" rdmux.data.payload | awk '{ print length($2) / 2 }' | sort -n | tail -1)
    [[ $most == "$2" ]] || fail "$most bytes of a payload"
}

secret_fields='rdmux.offer.secret rdmux.join.secret rdmux.token rdmux.data.key rdmux.description'

a_capture_has_no_secrets_unless_asked() {
    local folder=$scratch/secrets
    mkdir "$folder"
    start_server
    measure '' "$folder/plain" --op write
    # shellcheck disable=SC2086
    are_zero yes "$folder/plain" $secret_fields
    payload_is "$folder/plain" 32
    measure secrets,snap=4 "$folder/secrets" --op write
    # shellcheck disable=SC2086
    are_zero no "$folder/secrets" $secret_fields
    payload_is "$folder/secrets" 4
    stop_server
}

encrypted_connections_are_captured_on_request() {
    local name folder=$scratch/encrypted
    mkdir "$folder"
    (umask 077 && printf 'me:%s\n' "$(printf '%064d' 7)" >"$folder/keys")
    start_server --auth psk --key-file "$folder/keys"
    measure '' "$folder/closed" --op send --auth psk --key-file "$folder/keys"
    [[ $(values "$folder/closed" rdmux.name) == $'rdmux.name\tHELLO\nrdmux.name\tJOIN' ]] ||
        fail "more than is in clear: $(values "$folder/closed" rdmux.name | sort | uniq -c)"
    measure decrypted "$folder/open" --op send --auth psk --key-file "$folder/keys"
    stop_server
    count_names "$folder/open" >"$scratch/found"
    for name in OFFER COMMIT SEND END ENDED; do
        grep -qE "	$name\$" "$scratch/found" || fail "no $name: $(cat "$scratch/found")"
    done
    are_zero yes "$folder/open" rdmux.offer.secret
    nothing_wrong "$folder/open"
}

wrong_captures_are_refused() {
    local word
    for word in snap=x: snap=65537: max=0: everything: snap=1,: ''; do
        expect 2 explain 127.0.0.1:1 --capture "$word${word:+$scratch/none}"
        says err 'is not \[WORD,...:\]FILE'
    done
    [[ ! -e $scratch/none ]] || fail 'a file was made'
    printf 'a letter\n' >"$scratch/letter"
    expect 2 explain 127.0.0.1:1 --capture "$scratch/letter"
    says err 'is no capture'
    [[ $(cat "$scratch/letter") == 'a letter' ]] || fail 'the file was changed'
    expect 1 explain 127.0.0.1:1 --capture "$scratch/no/folder"
    says err 'No such file'
}

# A capture that reaches its limit ends whole, and the program goes on.
a_capture_ends_at_its_limit() {
    start_server
    RDMUX_LOG=warn measure snap=65536,max=1 "$scratch/limited" --op send --size 60000
    says err 'its capture ends: it has reached its limit'
    [[ $(stat -c %s "$scratch/limited") -le 1048576 ]] || fail 'it is larger'
    nothing_wrong "$scratch/limited"
    stop_server
}

# ---- what others record

# own_network COMMAND...: runs it in a network namespace of its own, where it may record. --can: only
# tells whether that is possible.
own_network() {
    local way
    for way in 'unshare --net' 'unshare --user --map-root-user --net'; do
        # shellcheck disable=SC2086
        if $way sh -c 'ip link set lo up && dumpcap -D >/dev/null' 2>/dev/null; then
            # shellcheck disable=SC2086
            [[ $1 == --can ]] || $way "$@"
            return
        fi
    done
    return 1
}

# In the namespace: FOLDER gets live.pcapng, which dumpcap records, and client, which rdmux captures.
record_session() {
    local folder=$1 recorder op last='the last packet of all'
    ip link set lo up
    dumpcap -q -i lo -B 64 -w "$folder/live.pcapng" 2>"$folder/dumpcap.err" &
    recorder=$!
    started+=("$recorder")
    wait_until grep -q '^File:' "$folder/dumpcap.err"
    start_server
    for op in send write read; do
        measure '' "$folder/client" --op "$op" --size 20000
    done
    stop_server
    # dumpcap forgets what it has not read when it is told to end.
    printf '%s' "$last" >/dev/udp/127.0.0.1/9
    wait_until grep -qaF "$last" "$folder/live.pcapng"
    kill -INT "$recorder"
    wait "$recorder" || fail "dumpcap: $(cat "$folder/dumpcap.err")"
}

a_recording_of_tcp_has_the_same_frames() {
    local folder=$scratch/live preferences=("${in_any_order[@]}")
    mkdir "$folder"
    own_network "$here/run.sh" --record "$folder" || fail 'nothing recorded'
    count_names "$folder/client" >"$folder/1"
    count_names "$folder/live.pcapng" >"$folder/2"
    diff "$folder/1" "$folder/2" || fail 'rdmux (<) and dumpcap (>) have captured different frames'
    [[ $(wc -l <"$folder/1") -ge 20 ]] || fail "$(cat "$folder/1")"
    nothing_wrong "$folder/live.pcapng"
}

capture_cases() {
    check 'a wrong setting of a capture is refused' wrong_captures_are_refused
    if ! have tshark; then
        tap_skip 'captures and the Wireshark dissector' 'tshark is not installed'
        return
    fi
    check 'both sides capture the same frames' both_sides_capture_the_same
    check 'a capture has no secrets unless asked' a_capture_has_no_secrets_unless_asked
    check 'encrypted connections are captured on request' encrypted_connections_are_captured_on_request
    check 'a capture ends at its limit' a_capture_ends_at_its_limit
    if [[ -x $helpers/wire_frames ]]; then
        check 'the dissector finds every field of a capture of rdmux' every_field_of rdmux.pcapng
        check 'the dissector finds every field in TCP' every_field_of tcp.pcap
        check 'the dissector names statuses and reasons as the library does' the_column_names_statuses_and_reasons
        check 'every field of the dissector has a test' every_field_is_tested
        check 'the dissector finds a payload over several sockets' a_payload_over_several_sockets
        check 'the dissector finds all frames wherever segments are cut' each_connection_of cuts.pcap 700
        check 'the dissector finds all frames in segments out of order' \
            each_connection_of unordered.pcap 400 "${in_any_order[@]}"
        check 'the dissector reads segments that are not put together' without_reassembly
        check 'the dissector says which lengths are wrong, and goes on behind them' wrong_lengths
        check 'hostile captures of rdmux do not harm the dissector' hostile hostile.pcapng 5000
        check 'hostile TCP does not harm the dissector' hostile hostile.pcap 1500
    else
        tap_skip 'frames of every kind are dissected' "there is no $helpers/wire_frames"
    fi
    local recording='a recording of TCP has the same frames as a capture of rdmux'
    if ! have dumpcap; then
        tap_skip "$recording" 'dumpcap is not installed'
    elif own_network --can; then
        check "$recording" a_recording_of_tcp_has_the_same_frames
    else
        tap_skip "$recording" 'no network namespace of its own to record in'
    fi
}
