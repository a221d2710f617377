# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
#
# The cases of `rdmux perf` beyond a single measurement; run.sh sources it, and has the helpers and
# the server. No figure is asserted: only which there are, their units, and that they agree.
#
# Variables set by run.sh; jq's variables.
# shellcheck disable=SC2154,SC2016

ops='send write read fetch_add compare_swap send_imm write_imm'

# What holds for each measurement. The relations allow for ten printed digits.
run_holds='
def near($a; $b): ($a - $b | fabs) <= 1e-6 * ($b | fabs);
def holds: near(.gbit_per_second; .bytes_per_second * 8 / 1e9)
    and near(.bytes_per_second; .messages_per_second * .size)
    and (.iterations > 0) and (.seconds > 0)
    and (.spread | .relative == null or (.relative >= 0 and .slices >= 5))
    and (.endpoints >= .threads) and (.threads >= 1)
    and (.busy | has("client_waited") and has("server_waited") and has("stolen") and has("warning"))
    and (.direction | IN("forward", "reverse", "both"))
    and (if .direction == "both" then
           near(.messages_per_second; .to_server.messages_per_second + .from_server.messages_per_second)
             and (.to_server.iterations > 0) and (.from_server.iterations > 0)
             and .iterations == .to_server.iterations + .from_server.iterations
         else .to_server == null and .from_server == null end)
    and (if .test == "latency" then
           (.latency_us | .min > 0 and .min <= .p50 and .p50 <= .p90 and .p90 <= .p99
              and .p99 <= .p999 and .p999 <= .p9999 and .p9999 <= .max and .mean >= .min
              and .mean <= .max)
         else .latency_us == null end);
'

# each FILTER: the last command printed JSON, each of whose measurements holds and fits the filter.
each() {
    json "$run_holds"' if has("runs") then .runs else [.] end | length > 0 and all(holds and ('"$1"'))'
}

perf_of_a_host_alone() {
    expect 0 perf "$address" --seconds 0.1 --json
    each 'true'
    json '[.runs[] | [.op, .test, .size]]
          == [["send", "latency", 8], ["send", "rate", 8], ["send", "bandwidth", 1048576]]'
    json '.failed == false and .interrupted == false and .paths == null and .machine.processors >= 1'
    expect 0 perf "$address" --seconds 0.1
    says out '^send latency over shm'
    says out '^ +bytes +min +p50 +p90 +p99 +p99\.9 +p99\.99 +max'
    says out '^send rate over shm'
    says out '^ +1M +[0-9.]+ +[0-9.]+ +[0-9]+ '
    # Gbit/s are eight times GB/s, as far as the digits tell.
    awk '$1 == "1M" && ($3 - 8 * $2 > 0.02 || 8 * $2 - $3 > 0.02) { exit 1 }' "$scratch/out" ||
        fail "Gbit/s are no bits: $(cat "$scratch/out")"
    expect 0 perf "$address" --op fetch_add --iterations 100 --json
    json '[.runs[].test] == ["latency", "rate"] and all(.runs[]; .size == 8)'
    expect 0 perf "$address" --test bandwidth --iterations 100
    says out '1048576 bytes'
    says out 'bandwidth +[0-9.]+ .?B/s, [0-9.e+]+ Gbit/s'
    says out "server's count +[0-9]+ operations"
    expect 0 perf "$address" --test latency --seconds 0.1
    says out 'p90 .*p99 .*p99\.9 .*p99\.99 .*max'
}

perf_of_a_range_of_sizes() {
    expect 0 perf "$address" --op write --test rate --size 8:128 --iterations 200 --verify --json
    each '.op == "write" and .verified and .iterations == 200'
    json '[.runs[].size] == [8, 16, 32, 64, 128]'
    expect 0 perf "$address" --size 0:5 --iterations 50 --json
    json '[.runs[] | [.test, .size]] == [["latency", 0], ["latency", 1], ["latency", 2],
          ["latency", 4], ["bandwidth", 0], ["bandwidth", 1], ["bandwidth", 2], ["bandwidth", 4]]'
    expect 0 perf "$address" --test bandwidth --size 8M:16M --iterations 3 --json
    each '.op == "write"'
    expect 0 perf "$address" --op read --test bandwidth --size 1K:4K --iterations 200
    [[ $(grep -cE '^ +[124]K +[0-9.]+ ' "$scratch/out") == 3 ]] || fail "$(cat "$scratch/out")"
    [[ $(grep -c 'Gbit/s' "$scratch/out") == 1 ]] || fail "more than a heading: $(cat "$scratch/out")"
}

perf_by_intervals() {
    measured_for_intervals --test rate --json
    # One may be empty: the workers, too, wait for processors.
    each '.intervals | length >= 2 and all(.end > .begin) and any(.iterations > 0)'
    json '.intervals as $i | [range(1; $i | length)] | all($i[.].begin == $i[. - 1].end)'
    json '([.intervals[].iterations] | add) <= .iterations and .intervals[0].begin == 0'
    json 'all(.intervals[]; . as $interval | .gbit_per_second * 1e9 / 8 - .bytes_per_second
          | fabs <= 0.001 * $interval.bytes_per_second)'
    shows_intervals '[0-9.]+ us on average' --op read --test latency
    shows_intervals '[0-9.]+ GB/s +[0-9.]+ Gbit/s +[0-9]+ messages/s' --op write --test bandwidth
    says out '^ +0\.00 - '
}

# measured_for_intervals ARGUMENT...: measures until two intervals have ended, and something was done in
# one of them. Its output is in $scratch/out. Lines of progress are as long as two intervals.
measured_for_intervals() {
    local shown
    : >"$scratch/terminal"
    script -qfec "exec '$rdmux' perf '$address' $* --seconds 100 --interval 0.1 >'$scratch/out'" \
        "$scratch/terminal" >/dev/null </dev/null &
    shown=$!
    started+=("$shown")
    wait_until shows_progress
    kill -INT "$(cat "/proc/$shown/task/$shown/children")"
    ends "$shown" "$end_limit"
    [[ $status == 130 ]] || fail "status $status: $(cat -v "$scratch/terminal")"
}

# shows_progress: the terminal has a line behind one that tells of messages.
shows_progress() {
    tr '\r' '\n' <"$scratch/terminal" | awk '
        / messages\/s/ { behind += moves; moves = moves || !/ 0 messages/ }
        END { exit !behind }'
}

# shows_intervals FIGURES ARGUMENT...: a measurement prints lines with these figures. It ends at the
# second one, as nobody knows how long a busy machine takes for two.
shows_intervals() {
    local client
    interrupted "${@:2}" --seconds 100 --interval 0.1
    wait_until has_lines 2 "^ +[0-9.]+ - +[0-9.]+ s +$1"
    kill -INT "$client"
    ends "$client" "$end_limit"
    [[ $status == 130 ]] || fail "status $status: $(cat "$scratch/err")"
}

# has_lines COUNT PATTERN: the output has at least as many.
has_lines() {
    (($(grep -cE -- "$2" "$scratch/out") >= $1))
}

# perf_in_directions PATH
perf_in_directions() {
    local op
    for op in $ops; do
        expect 0 perf "$address" --op "$op" --test rate --reverse --paths "$1" --iterations 300 --json
        each '.op == "'"$op"'" and .direction == "reverse" and .path.provider == "'"$1"'" and .iterations >= 300'
        expect 0 perf "$address" --op "$op" --test rate --both --paths "$1" --iterations 300 --json
        each '.op == "'"$op"'" and .direction == "both" and .to_server.iterations >= 300
              and .from_server.iterations >= 300'
    done
    for op in --reverse --both; do
        expect 0 perf "$address" "$op" --test bandwidth --size 4K --paths "$1" --iterations 300 --verify \
            --depth 7 --batch 3 --wait sleep --json
        each '.verified'
        expect 0 perf "$address" "$op" --test rate --paths "$1" --iterations 300 --depth 1 --verify --json
        each '.verified and .depth == 1'
    done
    # A notice, a control message and an empty message have no bytes or immediate data, too.
    expect 0 perf "$address" --op send_imm --size 0 --both --test rate --paths "$1" --iterations 300 --verify --json
    each '.op == "send_imm" and .verified'
    expect 0 perf "$address" --op write --test bandwidth --size 64K --both --paths "$1" --iterations 300 \
        --depth 64 --batch 60
    says out 'in both directions'
    says out '^ +to the server .*B/s'
    says out '^ +from the server .*B/s'
    measured_for_intervals --op read --test rate --reverse --paths "$1" --json
    each '.intervals | length >= 2 and any(.iterations > 0)'
}

an_older_server_does_not_know_an_operation() {
    serve_badly knows_fewer_operations
    expect 1 perf "$address" --op send_imm --test rate --json
    json '.status == "FAILED" and (.text | test("not known here \\(for --op send_imm, .*has to be of this version"))'
    the_server_got 'operation 5'
    serve_badly knows_fewer_operations
    expect 1 perf "$address" --op write_imm --test latency
    says err 'not known here .for --op write_imm, "rdmux serve" has to be of this version'
    the_server_got 'operation 6'
}

perf_over_many_endpoints() {
    local before after
    start_server
    before=$(grep -c 'perf send latency' "$log.err" || true)
    expect 0 perf "$address" --test latency --endpoints 5 --threads 2 --iterations 40 --verify --json
    each '.endpoints == 5 and .threads == 2 and .iterations == 200 and .verified and .served >= 200'
    after=$(grep -c 'perf send latency, 8 bytes: [0-9]* operations' "$log.err" || true)
    ((after - before == 5)) || fail "the server saw $((after - before)) endpoints: $(cat "$log.err")"
    expect 0 perf "$address" --op write --test rate --threads 3 --iterations 400 --verify --json
    each '.endpoints == 3 and .iterations == 1200 and .served >= 1200'
    expect 0 perf "$address" --test bandwidth --size 4K --endpoints 4 --threads 2 --both --iterations 100 --verify \
        --wait sleep --json
    each '.endpoints == 4 and .verified and .to_server.iterations >= 400 and .from_server.iterations >= 400'
    expect 0 perf "$address" --op read --test rate --endpoints 3 --threads 2 --reverse --iterations 100 --json
    each '.iterations >= 300'
    expect 0 perf "$address" --op compare_swap --test rate --endpoints 2 --paths tcp --iterations 50 --verify
    says out 'endpoints +2, driven by 1 thread'
    stop_server
}

perf_pinned() {
    local allowed first client
    allowed=$(sed -n 's/^Cpus_allowed_list:\s*//p' /proc/self/status)
    first=${allowed%%[,-]*}
    "$rdmux" perf "$address" --test latency --seconds 30 --cpu "$first" --wait sleep >"$scratch/out" 2>&1 &
    client=$!
    started+=("$client")
    # The threads of the library stay where they were, so this one is pinned by --cpu.
    wait_until pinned "$client" "$first"
    kill -INT "$client"
    ends "$client" "$end_limit"
    expect 2 perf "$address" --cpu 1023
    says err "processor 1023.*only on $allowed"
}

# pinned PID CPU: more threads than one without --cpu may run on this processor alone.
pinned() {
    local lists
    lists=$(sed -n 's/^Cpus_allowed_list:\s*//p' "/proc/$1/task/"*/status 2>/dev/null | sort | uniq -c)
    grep -qE "^ *[0-9]+ $2\$" <<<"$lists"
}

the_server_reports_a_test() {
    start_server
    expect 0 perf "$address" --op write --test bandwidth --iterations 50
    expect 0 perf "$address" --test rate --both --seconds 0.1
    stop_server
    grep -qE 'perf write bandwidth, 1048576 bytes: [0-9]+ operations in [0-9.]+ s, [0-9.]+ .?B/s, [0-9.e+]+ Gbit/s, cpu' \
        "$log.err" || fail "$(cat "$log.err")"
    grep -qE 'perf send rate, 8 bytes: [0-9]+ operations \([0-9]+ of them posted here\)' "$log.err" ||
        fail "$(cat "$log.err")"
}

perf_on_a_busy_processor() {
    local allowed first burner
    allowed=$(sed -n 's/^Cpus_allowed_list:\s*//p' /proc/self/status)
    first=${allowed%%[,-]*}
    taskset -c "$first" bash -c 'while :; do :; done' &
    burner=$!
    started+=("$burner")
    expect 0 perf "$address" --op write --test latency --cpu "$first" --seconds 0.5 --json
    kill -KILL "$burner"
    each '.busy | .client_waited > 0.03 and (.warning | test("without a processor"))'
    says err 'warning: the machine was busy: .*measuring threads'
}

perf_as_csv() {
    expect 0 perf "$address" --size 8:16 --seconds 0.2 --csv
    rows_are_alike
    [[ $(grep -c '^total,send,latency' "$scratch/out") == 2 ]] || fail "$(cat "$scratch/out")"
    [[ $(grep -c '^total,send,bandwidth' "$scratch/out") == 2 ]] || fail "$(cat "$scratch/out")"
    measured_for_intervals --test rate --csv
    rows_are_alike
    (($(grep -c '^interval,send,rate' "$scratch/out") >= 2)) || fail "$(cat "$scratch/out")"
}

# rows_are_alike: the last output is CSV whose rows have the same columns and agree with themselves.
rows_are_alike() {
    awk -F, 'NR == 1 { fields = NF; next } NF != fields { exit 1 }' "$scratch/out" ||
        fail "rows of other lengths: $(cat "$scratch/out")"
    # Columns by name: bits are bytes times eight, and the quantiles of a latency are there.
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
             { bits = $at["gbit_per_second"] * 1e9; bytes = $at["bytes_per_second"]
               if (bits < 7.99 * bytes || bits > 8.01 * bytes) exit 1 }
             $1 == "total" && $at["test"] == "latency" && $at["p9999_us"] + 0 <= 0 { exit 1 }' \
        "$scratch/out" || fail "$(cat "$scratch/out")"
}

# count PATTERN FILE: occurrences in a file.
count() {
    { grep -oE -- "$1" "$2" || true; } | wc -l
}

perf_over_all_paths() {
    local svg=$scratch/paths.svg
    expect 0 perf "$address" --paths all --size 8:32 --iterations 50 --json --plot "$svg"
    each '.iterations == 50'
    json '[.paths[] | select(.usable) | .provider] | contains(["shm", "tcp"])'
    json '[.paths[] | select(.usable | not)] | length > 0 and all(.reason != "CHOSEN" and .text != "")'
    json '([.paths[] | select(.usable)] | length) * 2 * 3 == (.runs | length)'
    json '([.runs[].path.provider] | unique) == ([.paths[] | select(.usable) | .provider] | unique)'
    xmllint --noout "$svg" || fail "no XML: $(head -c 500 "$svg")"
    local paths
    paths=$(jq '[.paths[] | select(.usable)] | length' "$scratch/out")
    [[ $(count 'class="panel"' "$svg") == 2 ]] || fail 'no panel for each test'
    [[ $(count 'class="curve"' "$svg") == $((2 * paths)) ]] || fail 'no curve for each path and test'
    [[ $(count 'class="legend"' "$svg") == $((2 * paths)) ]] || fail 'no legend for each curve'
    [[ $(count '<circle' "$svg") == $((2 * 3 * paths)) ]] || fail 'no mark for each figure'
    # The axis has the sizes, and the legend the paths.
    for label in 8 16 32 shm tcp 'Gbit/s' 'microseconds'; do
        grep -qF ">$label</text>" "$svg" || fail "no label $label"
    done
    # On the logarithmic axis a doubled size is as far to the right everywhere.
    xmllint --xpath '(//*[@class="curve"])[1]/*[local-name()="polyline"][1]/@points' "$svg" |
        tr -d '"' | sed 's/.*points=//' | tr ' ' '\n' | awk -F, '
            NF == 2 { if (NR > 2 && ($1 - x - step > 0.2 || step - ($1 - x) > 0.2)) exit 1
                      step = $1 - x; x = $1 }' || fail "the sizes are not on a logarithmic axis"
    expect 0 perf "$address" --paths all --test bandwidth --iterations 50
    says out ' shm +tcp'
    says out '^bandwidth +1M +[0-9.]+ GB/s +[0-9.]+ GB/s'
    says out '^ +[0-9.]+ Gbit/s +[0-9.]+ Gbit/s'
    says out '^not usable: (ib|roce|iwarp).*: [A-Z_]+: '
    RDMUX_PATHS=tcp expect 0 perf "$address" --paths all --test rate --iterations 50 --json
    each '.path.provider == "tcp"'
    RDMUX_PATHS=iwarp expect 3 perf "$address" --paths all --test rate --iterations 50
    says err 'no path to .* is usable'
}

perf_as_png() {
    mkdir -p "$scratch/path"
    # A converter that keeps what it is given.
    printf '#!/bin/sh\ncp "$3" "%s" && printf PNG >"$2"\n' "$scratch/given.svg" >"$scratch/path/rsvg-convert"
    chmod +x "$scratch/path/rsvg-convert"
    PATH=$scratch/path:$PATH expect 0 perf "$address" --test rate --size 8:64 --iterations 50 \
        --plot "$scratch/rate.png"
    [[ $(cat "$scratch/rate.png") == PNG ]] || fail 'the converter was not asked for the file'
    xmllint --noout "$scratch/given.svg" || fail 'it was given no SVG'
    [[ ! -e $scratch/rate.png.svg ]] || fail 'the SVG was left behind'
    printf '#!/bin/sh\nexit 3\n' >"$scratch/path/rsvg-convert"
    PATH=$scratch/path:$PATH expect 1 perf "$address" --test rate --iterations 50 --plot "$scratch/failed.png"
    says err 'rsvg-convert could not make'
    rm "$scratch/path/rsvg-convert"
    # Nothing is measured if the file cannot be drawn.
    local status=0
    PATH=$scratch/path "$rdmux" perf "$address" --test rate --iterations 50 --plot "$scratch/none.png" \
        >"$scratch/out" 2>"$scratch/err" || status=$?
    [[ $status == 1 && ! -s $scratch/out ]] || fail "status $status: $(cat "$scratch/out")"
    says err 'no program that makes a PNG.*\.svg'
    expect 1 perf "$address" --test rate --iterations 50 --plot "$scratch/nowhere/rate.svg"
    says err "cannot write $scratch/nowhere/rate.svg: No such file"
    [[ ! -s $scratch/out ]] || fail "it has measured: $(cat "$scratch/out")"
}

perf_by_gnuplot() {
    mkdir -p "$scratch/gnuplot-only"
    ln -sf "$(command -v gnuplot)" "$scratch/gnuplot-only/gnuplot"
    local status=0
    PATH=$scratch/gnuplot-only "$rdmux" perf "$address" --size 8:64 --iterations 50 --plot "$scratch/gnuplot.png" \
        >"$scratch/out" 2>"$scratch/err" || status=$?
    [[ $status == 0 ]] || fail "status $status: $(cat "$scratch/err")"
    [[ $(head -c 4 "$scratch/gnuplot.png" | tail -c 3) == PNG ]] || fail 'no PNG'
}

# compared FILTER: compares $scratch/before.json with $scratch/after.json.
compared() {
    expect 0 perf --compare "$scratch/before.json" "$scratch/after.json" --json
    json "$1"
}

perf_compared() {
    expect 0 perf "$address" --size 8:16 --seconds 0.1 --json
    cp "$scratch/out" "$scratch/run.json"
    jq '.runs |= map(.spread.relative = 0.02)' "$scratch/run.json" >"$scratch/before.json"
    cp "$scratch/before.json" "$scratch/after.json"
    compared '(.pairs | length) == 4 and .same == 4 and .better == 0 and .worse == 0
              and all(.pairs[]; .change == 0) and .only_before == [] and .only_after == []'
    # 3 * sqrt(2) * 2 % = 8.5 % is noise: 10 % are a change, and 8 % are none. Less latency is better.
    jq '.runs |= map(.messages_per_second *= 0.9 | .latency_us |= (if . then .p50 *= 0.9 else . end))' \
        "$scratch/before.json" >"$scratch/after.json"
    compared '.better == 2 and .worse == 2 and ([.pairs[] | select(.test == "latency").verdict] | unique)
              == ["better"] and all(.pairs[]; (.noise * 1000 | round) == 85)'
    expect 0 perf --compare "$scratch/before.json" "$scratch/after.json"
    [[ $(grep -c ' -10\.0 % .* better$' "$scratch/out") == 2 ]] || fail "$(cat "$scratch/out")"
    [[ $(grep -c ' -10\.0 % .* worse$' "$scratch/out") == 2 ]] || fail "$(cat "$scratch/out")"
    says out '4 of 4 changed beyond the noise: 2 better, 2 worse'
    jq '.runs |= map(.messages_per_second *= 0.92)' "$scratch/before.json" >"$scratch/after.json"
    compared '.same == 4'
    # Without a spread a tenth is noise; at least one part in a hundred is always.
    jq 'del(.runs[].spread) | .runs |= map(.messages_per_second *= 0.92)' "$scratch/before.json" >"$scratch/after.json"
    compared '.same == 4 and all(.pairs[]; .noise == 0.1)'
    jq '.runs |= map(.spread.relative = 0)' "$scratch/before.json" >"$scratch/calm.json"
    cp "$scratch/calm.json" "$scratch/before.json"
    jq '.runs |= map(.messages_per_second *= 1.02)' "$scratch/calm.json" >"$scratch/after.json"
    compared '.better == 2 and .same == 2 and all(.pairs[]; .noise == 0.01)'
    # What only one of them has is named.
    jq '.runs |= (.[0].size = 4096 | .[1].path.provider = "tcp")' "$scratch/before.json" >"$scratch/after.json"
    compared '(.pairs | length) == 2 and (.only_before | length) == 2 and .only_after[0].size == 4096
              and .only_after[1].provider == "tcp"'
    expect 0 perf --compare "$scratch/before.json" "$scratch/after.json" --plot "$scratch/compare.svg"
    says out 'only in .*after.json: send latency 4K, shm'
    xmllint --noout "$scratch/compare.svg" || fail 'no XML'
    grep -qF '>before: shm</text>' "$scratch/compare.svg" || fail 'no curve of the first run'
    grep -qF '>after: shm</text>' "$scratch/compare.svg" || fail 'no curve of the second run'
    expect 0 perf --compare "$scratch/before.json" "$scratch/after.json" --csv
    [[ $(wc -l <"$scratch/out") == 3 ]] || fail "$(cat "$scratch/out")"
    awk -F, 'NR == 1 { fields = NF } NF != fields { exit 1 }' "$scratch/out" ||
        fail "$(cat "$scratch/out")"
    # The report of one measurement, also as earlier versions wrote it.
    jq '.runs[0]' "$scratch/before.json" >"$scratch/one.json"
    jq '.runs[0] | del(.spread, .direction, .endpoints, .threads, .interrupted, .busy)' "$scratch/before.json" >"$scratch/old.json"
    expect 0 perf --compare "$scratch/one.json" "$scratch/old.json" --json
    json '(.pairs | length) == 1 and .same == 1'
    jq '.runs |= map(.depth = 7)' "$scratch/before.json" >"$scratch/after.json"
    expect 1 perf --compare "$scratch/before.json" "$scratch/after.json"
    says err 'no measurement in common'
}

files_that_cannot_be_compared() {
    local text
    printf '{"runs":[]}' >"$scratch/empty.json"
    expect 1 perf --compare "$scratch/empty.json" "$scratch/nowhere.json"
    says err 'nowhere.json: No such file'
    while IFS= read -r text; do
        printf '%s' "$text" >"$scratch/bad.json"
        expect 1 perf --compare "$scratch/bad.json" "$scratch/empty.json"
        says err 'bad.json'
        says err 'rdmux perf --json'
        [[ ! -s $scratch/out ]] || fail "$text: $(cat "$scratch/out")"
    done <<'END'

nonsense
[1, 2]
{"runs":[
{"runs":[]} trailing
{"runs":{}}
{"runs":[7]}
{"op":"send"}
{"op":"nonsense"}
{"op":"send","test":"rate","size":"8"}
{"op":"send","test":"rate","memory":"registered","wait":"poll","size":-1}
{"op":"send","test":"rate","memory":"registered","wait":"poll","size":8,"depth":1,"batch":1,"verified":false,"path":{"provider":"tcp","device":""},"iterations":1,"messages_per_second":1e999}
{"op":"send","test":"rate","memory":"registered","wait":"poll","size":8,"depth":1,"batch":1,"verified":false,"path":{"provider":"tcp","device":""},"iterations":1,"messages_per_second":0}
END
}

# interrupted ARGUMENT...: starts a measurement; its process is $client.
interrupted() {
    : >"$scratch/out" # the cases wait for what the process says there
    "$rdmux" perf "$address" "$@" >"$scratch/out" 2>"$scratch/err" &
    client=$!
    started+=("$client")
}

# The masks of a process by name, as in /proc/PID/status, have SIGINT.
has_interrupt() {
    local mask
    mask=$(sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status" 2>/dev/null)
    ((0x${mask:-0} & 2))
}

# The process reads its signals from a descriptor; before, this shell has them ignored.
reads_signals() {
    has_interrupt "$1" SigBlk
}

has_read_its_signals() {
    ! has_interrupt "$1" ShdPnd
}

# rate_tests COUNT: the server has begun that many.
rate_tests() {
    (($(grep -c 'perf send rate, 8 bytes$' "$log.err") == $1))
}

a_signal_ends_a_measurement() {
    local client signal
    start_server
    for signal in INT TERM; do
        interrupted --op write --test latency --seconds 100 --interval 0.05
        wait_until grep -q 'us on average' "$scratch/out"
        kill "-$signal" "$client"
        ends "$client" "$end_limit"
        [[ $status == 130 ]] || fail "status $status: $(cat "$scratch/err")"
        says out 'interrupted, so far'
        says out 'half round trip +min'
        says err 'interrupted; this was measured so far'
    done
    # Of 44 measurements the third has ended, and the last ends 20 s later.
    interrupted --size 8:16M --op write --seconds 0.5 --json
    wait_until grep -q 'perf write latency, 32 bytes: ' "$log.err"
    kill -INT "$client"
    ends "$client" "$end_limit"
    [[ $status == 130 ]] || fail "status $status: $(cat "$scratch/err")"
    json '.interrupted and (.runs | length) >= 2'
    each 'true'
    interrupted --reverse --test rate --seconds 100 --json
    wait_until rate_tests 1
    kill -INT "$client"
    ends "$client" "$end_limit"
    [[ $status == 130 ]] || fail "status $status: $(cat "$scratch/err")"
    # A server that does not answer keeps nobody: the second signal ends the command.
    interrupted --test rate --seconds 100
    wait_until rate_tests 2
    kill -STOP "$server"
    kill -INT "$client"
    wait_until has_read_its_signals "$client"
    kill -INT "$client"
    ends "$client" "$end_limit" # if it waited for the server, its status would be 1
    [[ $status == 130 ]] || fail "status $status: $(cat "$scratch/err")"
    # So does the first one before anything is measured.
    interrupted --test rate --seconds 100
    wait_until reads_signals "$client"
    kill -INT "$client"
    ends "$client" "$end_limit"
    [[ $status == 130 ]] || fail "status $status: $(cat "$scratch/err")"
    says err 'interrupted before anything was measured'
    kill -KILL "$server"
}

progress_on_a_terminal() {
    script -qfec "exec '$rdmux' perf '$address' --test latency --seconds 100" "$scratch/terminal" >/dev/null </dev/null &
    local shown=$!
    started+=("$shown")
    wait_until grep -qsE $'\r''send latency, 8, over shm: [0-9.]+ of 100 s, [0-9.]+ us on average' "$scratch/terminal"
    kill -INT "$(cat "/proc/$shown/task/$shown/children")"
    ends "$shown" "$end_limit"
    grep -q 'half round trip' "$scratch/terminal" || fail "no report: $(cat -v "$scratch/terminal")"
    expect 0 perf "$address" --test latency --seconds 0.3
    ! grep -q $'\r' "$scratch/err" || fail 'progress, but no terminal'
}

# The manual page names each member of the JSON. Its options are those of --help.
perf_is_in_the_manual() {
    local manual=$scratch/manual name
    sed 's/\\-/-/g' "$root/docs/man/rdmux-perf.roff" >"$manual"
    expect 0 perf "$address" --paths all --test latency --iterations 10 --json
    for name in $(jq -r 'keys[], (.runs[0] | keys[], (.latency_us, .spread, .busy, .cpu_seconds | keys[]))' "$scratch/out"); do
        grep -qw -- "$name" "$manual" || fail "no $name in the manual page"
    done
}

wrong_arguments_of_perf() {
    local line
    while IFS= read -r line; do
        # shellcheck disable=SC2086
        expect 2 perf $line
        if [[ $line == *--json* ]]; then # json.sh has what it prints
            json '.status == "USAGE"'
        else
            [[ ! -s $scratch/out ]] || fail "rdmux perf $line: output $(cat "$scratch/out")"
        fi
        says err '^rdmux perf: '
    done <<'END'
127.0.0.1:1 two
127.0.0.1:1 --size 16:8
127.0.0.1:1 --size 8:
127.0.0.1:1 --size :8
127.0.0.1:1 --size 8:64M
127.0.0.1:1 --size 8:16:32
127.0.0.1:1 --op send --size 8:16M
127.0.0.1:1 --op fetch_add --size 8:16
127.0.0.1:1 --interval 0
127.0.0.1:1 --endpoints 0
127.0.0.1:1 --threads 3 --endpoints 2
127.0.0.1:1 --cpu x
127.0.0.1:1 --cpu 1-
127.0.0.1:1 --cpu 3-2
127.0.0.1:1 --reverse --both
127.0.0.1:1 --reverse --test latency
127.0.0.1:1 --both --test latency
127.0.0.1:1 --both --op write --verify
127.0.0.1:1 --json --csv
127.0.0.1:1 --paths all --probe
127.0.0.1:1 --plot figures.jpg
--compare one.json
--compare one.json two.json --op send
--compare one.json two.json --seconds 1
--compare one.json two.json --both
--compare one.json two.json --json --csv
END
}

perf_cases() {
    check 'perf HOST alone measures latency, rate and bandwidth' perf_of_a_host_alone
    check 'perf of a range of sizes has a row for each power of two' perf_of_a_range_of_sizes
    check 'perf --interval reports each interval' perf_by_intervals
    for path in shm tcp; do
        check "perf --reverse and --both over $path, every operation" perf_in_directions "$path"
    done
    if [[ -x $helpers/bad_server ]]; then
        check 'perf names an operation that an older server does not know' \
            an_older_server_does_not_know_an_operation
    else
        tap_skip 'perf names an operation that an older server does not know' "there is no $helpers/bad_server"
    fi
    check 'perf over many endpoints and threads' perf_over_many_endpoints
    check 'perf --cpu pins the threads' perf_pinned
    check 'the server reports each test' the_server_reports_a_test
    check 'perf warns if the machine is busy' perf_on_a_busy_processor
    check 'perf --csv has the same columns in each row' perf_as_csv
    check 'perf --paths all measures and draws each usable path' perf_over_all_paths
    check 'perf --plot makes a PNG by another program, or says that there is none' perf_as_png
    if have gnuplot; then
        check 'perf --plot makes a PNG by gnuplot' perf_by_gnuplot
    else
        tap_skip 'perf --plot makes a PNG by gnuplot' 'gnuplot is not installed (scripts/setup --bench)'
    fi
    check 'perf --compare marks what changed beyond the noise' perf_compared
    check 'files that perf --compare cannot read are named' files_that_cannot_be_compared
    check 'a signal ends perf with what was measured so far' a_signal_ends_a_measurement
    check 'perf shows its progress on a terminal' progress_on_a_terminal
    check 'the manual page has each JSON member of perf' perf_is_in_the_manual
    check 'wrong arguments of perf exit with 2 and a text' wrong_arguments_of_perf
}
