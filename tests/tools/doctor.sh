# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
#
# The cases of `rdmux doctor`; run.sh sources it, and has the helpers. Each situation of
# tests/fixtures/sysfs is a case; the others are below.
#
# Variables set by run.sh; the build of a tree; jq's variables.
# shellcheck disable=SC2154,SC2034,SC2016
# shellcheck source=tests/tools/doctor_fixtures.sh
. "$here/doctor_fixtures.sh"

# Command by which root drops the right to override file permissions. Ordinary users do not have it.
plainly=()
plainly_works=yes
if ((EUID == 0)); then
    plainly=(setpriv '--bounding-set=-dac_override,-dac_read_search')
    "${plainly[@]}" true 2>/dev/null || plainly_works=no
fi

# judge FOLDER OPTION...: runs the command on a tree; sets status; its output is in $scratch/out and
# err.
judge() {
    local before=()
    [[ $tree_unprivileged == no ]] || before=("${plainly[@]}")
    status=0
    timeout --kill-after=5 "$limit" "${before[@]}" "$rdmux" doctor --sysfs "$@" \
        >"$scratch/out" 2>"$scratch/err" || status=$?
    [[ ! -s $scratch/err ]] || fail "on standard error: $(cat "$scratch/err")"
}

# new_tree SITUATION: builds its tree; sets tree to the folder.
new_tree() {
    tree=$(mktemp -d "$scratch/tree.XXXXXX")/root
    build_tree "$1" "$tree" || fail "the tree cannot be built"
}

# finds "SEVERITY CODE"...: the last output in JSON has exactly these findings, and the status fits.
finds() {
    local expected found errors=0 warnings=0 finding
    for finding; do
        [[ $finding != error* ]] || errors=$((errors + 1))
        [[ $finding != warning* ]] || warnings=$((warnings + 1))
    done
    expected=$(printf '%s\n' "$@" | LC_ALL=C sort)
    found=$(jq -r '(.devices[].findings[], .findings[]) | "\(.severity) \(.code)"' \
        "$scratch/out" | LC_ALL=C sort)
    [[ $found == "$expected" ]] || fail "expected:
$expected
found: $(jq . "$scratch/out")"
    json ".errors == $errors and .warnings == $warnings"
    [[ $status == $((errors > 0)) ]] || fail "status $status with $errors errors"
}

# JSON format that programs may rely on.
doctor_form='(keys - ["hint", "status", "text"] == ["devices", "errors", "findings", "warnings"])
    and ([.devices[] | (.name | type == "string") and (.fabric | IN("ib", "roce", "iwarp", "other"))
          and has("port") and has("driver") and (.software | type == "boolean") and has("state")
          and has("physical_state") and has("rate_gbps") and has("netdev") and has("netdev_mtu")
          and has("path_mtu") and has("pci") and has("numa_node")
          and (.gids | all(has("index") and has("gid") and has("type") and has("netdev")))] | all)
    and ([.findings, .devices[].findings] | flatten | all(
          (.severity | IN("error", "warning", "info")) and (.code | test("^[A-Z][A-Z0-9_]+$"))
          and (.text | length > 10) and (.remedy | type == "string")
          and (.severity == "info" or (.remedy | length > 0))))'

situation() {
    local finding
    new_tree "$1"
    judge "$tree" --json
    json "$doctor_form"
    finds "${tree_expected[@]}"
    judge "$tree"
    for finding in "${tree_expected[@]}"; do
        says out "^  ${finding% *} +${finding#* }: "
    done
    ! grep -q $'[^\t\n -~]' "$scratch/out" || fail "it prints what is not printable"
    chmod -R u+rwX "${tree%/root}"
    rm -r "${tree%/root}"
}

# ------------------------------------------------------------------------------ facts and remedies

# finding CODE FILTER: one finding has the code and matches the filter.
finding() {
    json "[(.devices[].findings[], .findings[]) | select(.code == \"$1\")] | any($2)"
}

doctor_tells_the_facts() {
    new_tree roce
    judge "$tree" --json
    json '.devices | length == 1'
    json '.devices[0] | .name == "mlx5_0" and .port == 1 and .fabric == "roce"
          and .driver == "mlx5_core" and .software == false and .state == "ACTIVE"
          and .physical_state == "LinkUp" and .rate_gbps == 100 and .netdev == "eth2"
          and .netdev_mtu == 9000 and .path_mtu == 4096 and .pci == "0000:03:00.0"
          and .numa_node == 0'
    json '.devices[0].gids | map(.index) == [0, 1, 2, 3] and (.[3] | .type == "RoCE v2"
          and .netdev == "eth2" and .gid == "0000:0000:0000:0000:0000:ffff:c000:0207")'
    new_tree siw
    judge "$tree" --json
    json '.devices[0] | .fabric == "iwarp" and .software and .netdev == "dum1" and .path_mtu == null
          and .pci == null and .numa_node == null'
    new_tree rxe_over_an_adapter
    judge "$tree" --json
    json '.devices[0] | .driver == "rxe" and .software and .netdev == "dum0" and .pci == null'
    new_tree interface_without_gid_attributes
    judge "$tree" --json
    json '.devices[0].netdev == "eth2"'
    new_tree interface_of_a_vlan_elsewhere
    judge "$tree" --json
    json '.devices[0].netdev == "eth2"'
    new_tree two_ports
    judge "$tree" --json
    json '.devices | map(.port) == [1, 2] and (map(.findings | map(.code))
          == [["PCI_SLOW"], ["NO_SUBNET_MANAGER"]])'
    new_tree infiniband
    judge "$tree"
    says out '^mlx5_0 port 1: ib, ACTIVE, 100 Gb/s, PCI 0000:03:00.0, NUMA node 0$'
    says out '^  nothing to mend$'
    says out '^errors 0, warnings 0, remarks 0$'
}

# remedy SITUATION CODE TEXT REMEDY: regular expressions of the finding's text and of its remedy.
remedy() {
    new_tree "$1"
    judge "$tree" --json
    finding "$2" "(.text | test(\"$3\")) and (.remedy | test(\"$4\"))"
}

doctor_tells_what_to_do() {
    remedy module_missing MODULE_MISSING '0000:03:00.0.*mlx5_ib' '^modprobe mlx5_ib$'
    remedy no_rdma_ucm_module MODULE_MISSING rdma_ucm '^modprobe rdma_ucm$'
    remedy rdma_disabled RDMA_DISABLED irdma 'devlink dev param set pci/0000:81:00.0'
    remedy no_hardware NO_DEVICE 'no known RDMA hardware' 'rdma link add rxe0 type rxe'
    remedy container_without_devices NO_DEV_INFINIBAND container 'device=/dev/infiniband'
    remedy no_device_node NO_DEVICE_NODE /dev/infiniband/uverbs0 '^udevadm trigger'
    remedy driver_missing DRIVER_MISSING 'libmlx5-rdmav' ibverbs-providers
    remedy driver_of_another_version DRIVER_MISMATCH 'rdmav25.*rdmav34' ibverbs-providers
    remedy driver_not_listed DRIVER_MISSING libibverbs.d 'driver mlx5'
    remedy infiniband_init NO_SUBNET_MANAGER 'INIT.*no subnet manager' opensm
    remedy infiniband_disabled PORT_DOWN disabled 'ibportstate -C mlx5_0 -P 1 .*enable'
    remedy interface_down NETDEV_DOWN eth2 '^ip link set eth2 up$'
    remedy interface_in_another_namespace NETDEV_MISSING 'eth2.*namespace' 'network=host'
    remedy no_gid NO_GID eth2 '^ip address add .*eth2$'
    remedy no_gid_table RDMA_DISABLED 'switched off' 'devlink .*pci/0000:03:00.0 name enable_roce'
    remedy mtu_1500 SMALL_MTU '1024 bytes.*1500.*4192' '^ip link set eth2 mtu 4200'
    remedy ecn_off ECN_OFF 'neither tells' 'eth2/ecn/roce_np/enable/3.*eth2/ecn/roce_rp/enable/3'
    remedy ecn_not_reacting ECN_OFF 'does not slow down' roce_rp
    remedy pci_slow PCI_SLOW '8 GT/s x4.*16 GT/s x16.*32 Gb/s.*100 Gb/s' 'lspci -vv -s 0000:03:00.0'
    remedy relaxed_ordering_off RELAXED_ORDERING_OFF relaxed 'setpci -s 0000:03:00.0 CAP_EXP'
    remedy numa_remote NUMA_REMOTE 'node 1, 21 away.*such as 0' 'numactl --cpunodebind=1'
    remedy memlock_64k MEMLOCK_TOO_LOW '65.5 kB.*1 GiB' 'limits.d.*LimitMEMLOCK=infinity'
    remedy memlock_8m MEMLOCK_TOO_LOW '8.39 MB' '^ulimit -l unlimited$'
    remedy memlock_8m_in_a_container MEMLOCK_TOO_LOW '8.39 MB' 'ulimit memlock=-1'
    remedy retransmissions_mlx5 RETRANSMISSIONS \
        'out_of_sequence 500, packet_seq_err 1500, of 2000000 packets' \
        'rdma statistic show link mlx5_0/1'
    remedy counters_irdma RETRANSMISSIONS 'Nak Sequence Error 400' PFC
    remedy counters_irdma RECEIVER_NOT_READY 'RNR received 500' recv_depth
    remedy shm_and_tcp PTRACE_SCOPE Yama 'ptrace_scope=0'
    remedy shm_and_tcp NO_DCTCP dctcp "congestion_control='reno cubic dctcp'"
    remedy shm_and_tcp TCP_RETRANSMISSIONS '7000 of 100000' nstat
}

# --------------------------------------------------------------------------------- hostile trees

# A name with shell or terminal characters reaches neither.
doctor_quotes_names() {
    local devices device=$'x\';$(reboot)\e[2J\nport' interface=$'e\';rm -rf .\a' wanted_remedy
    new_tree mtu_1500
    devices=$tree/sys/devices/pci0000:00/0000:03:00.0/infiniband
    mv "$devices/mlx5_0" "$devices/$device"
    rm "$tree/sys/class/infiniband/mlx5_0"
    ln -s "../../devices/pci0000:00/0000:03:00.0/infiniband/$device" "$tree/sys/class/infiniband/"
    mv "$tree/sys/class/net/eth2" "$tree/sys/class/net/$interface"
    printf '%s\n' "$interface" | tee "$devices/$device"/ports/1/gid_attrs/ndevs/* >/dev/null
    judge "$tree" --json
    json "$doctor_form"
    json '.devices[0].name == "x'\'';$(reboot)\u001b[2J\nport"'
    json ".devices[0].netdev == $(jq -n --arg name "$interface" '$name')"
    wanted_remedy=$'ip link set \'e\'\\\'\';rm -rf .\a\' mtu 4200'
    finding SMALL_MTU ".remedy | startswith($(jq -n --arg text "$wanted_remedy" '$text'))"
    judge "$tree"
    says out '^x'\'';\$\(reboot\)\?\[2J\?port port 1'
    ! grep -q $'[\e\a]' "$scratch/out" || fail 'control characters reach the terminal'
}

# The number of devices, ports, GIDs and folders read is limited; the rest is checked all the same.
doctor_limits_itself() {
    local i class
    new_tree infiniband
    class=$tree/sys/class/infiniband
    for ((i = 0; i < 6000; i++)); do
        printf 'fe80:0000:0000:0000:506b:4b03:00aa:%04x\n' "$i" >"$class/mlx5_0/ports/1/gids/$i"
    done
    for ((i = 0; i < 200; i++)); do
        printf '/usr/lib/%d\n' "$i" >"$tree/etc/ld.so.conf.d/$i.conf"
    done
    mkdir -p "$class"/x{0..1500}/ports/1 "$class"/mlx5_0/ports/{3..900}
    judge "$tree" --json
    jq '.findings, .errors, .devices[0].findings' "$scratch/out"
    jq -e "$doctor_form" "$scratch/out" >/dev/null || fail 'the JSON has another form'
    jq -e '(.devices | length > 1000 and length < 2000) and (.findings | map(.code)
           == ["TOO_MANY_DEVICES"])' "$scratch/out" >/dev/null || fail 'the findings are others'
    jq -e '.devices[0] | .name == "mlx5_0" and .port == 1 and (.gids | length > 4000)
           and .findings == []' "$scratch/out" >/dev/null || fail 'the first device is lost'
    [[ $status == 1 ]] || fail "status $status"
}

# ------------------------------------------------------------------------------- this very machine

doctor_of_this_machine() {
    local status=0
    timeout --kill-after=5 "$limit" "$rdmux" doctor --json >"$scratch/out" 2>"$scratch/err" ||
        status=$?
    json "$doctor_form"
    json ".errors > 0 | . == ($status == 1)"
    [[ -d /sys/class/infiniband && -n $(ls /sys/class/infiniband) ]] || finding NO_DEVICE true
    json "[.devices[].name] | unique == $(find /sys/class/infiniband/ -mindepth 1 -printf '%f\n' \
        2>/dev/null | jq -R . | jq -s unique)"
    [[ ! -s $scratch/err ]] || fail "on standard error: $(cat "$scratch/err")"
}

# The manual page has exactly the codes that can be found.
doctor_codes_are_in_the_manual() {
    local manual=$root/docs/man/rdmux-doctor.roff
    sed -n '/^.SH FINDINGS OF DOCTOR/,/^.SH EX/s/^\.BR \([A-Z][A-Z0-9_]*\) ".*/\1/p' "$manual" |
        LC_ALL=C sort >"$scratch/told"
    grep -hoE '(DOCTOR_[A-Z]+,|severity,)[[:space:]]+"[A-Z0-9_]+"' <(cat "$root"/tools/doctor_*.c |
        tr '\n' ' ') | sed 's/.*"\(.*\)"/\1/' | LC_ALL=C sort -u >"$scratch/found"
    [[ -s $scratch/found ]] || fail 'the sources have no codes'
    diff "$scratch/told" "$scratch/found" || fail 'the manual and the sources differ'
    printf '%s' "${section_text[@]}" | sed -n 's/^expect [a-z]* //p' | LC_ALL=C sort -u \
        >"$scratch/tested"
    # One code needs hundreds of devices, and has its own case.
    printf 'TOO_MANY_DEVICES\n' | LC_ALL=C sort -o "$scratch/tested" - "$scratch/tested"
    diff "$scratch/found" "$scratch/tested" || fail 'the situations and the sources differ'
}

doctor_refuses_what_is_no_tree() {
    expect 2 doctor --sysfs "$scratch/nowhere"
    says err 'nowhere: No such file'
    expect 2 doctor --sysfs "$here/run.sh"
    says err 'Not a directory'
    expect 2 doctor --sysfs /sys
    says err 'has no folder sys'
}

doctor_cases() {
    local name
    for name in "${situations[@]}"; do
        if [[ $plainly_works == no && ${section_text[$name]} == *$'\nunprivileged\n'* ]]; then
            [[ ! "doctor: $name" =~ $wanted ]] ||
                tap_skip "doctor: $name" 'setpriv cannot take rights away here'
        else
            check "doctor: $name" situation "$name"
        fi
    done
    check 'doctor: facts about devices' doctor_tells_the_facts
    check 'doctor: findings name the cause and the remedy' doctor_tells_what_to_do
    check 'doctor: names from files are quoted' doctor_quotes_names
    check 'doctor: far too much of everything' doctor_limits_itself
    check 'doctor: this machine' doctor_of_this_machine
    check 'doctor: every code is documented and tested' doctor_codes_are_in_the_manual
    check 'doctor: what is no tree is refused' doctor_refuses_what_is_no_tree
}
