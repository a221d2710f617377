# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
#
# Shared code of guest and two_guests: they source it after scripts/lib.sh, with their folder in
# $here. All its files are in one private folder, $scratch:
#   linux, init, inside.sh     the files that are booted
#   with, with.N               paths for the guests, and copies of those that they could not read
#   environment                variables for the guests' scripts
#   shared/                    for the guests' scripts (notify and await)
#   a/, b/                     for each guest: enter, script (what it runs), out, status, console

# Exit statuses that are not those of the script.
readonly status_late=124 # past the time limit
readonly status_died=125 # the guest died, or did not come up

seconds=300
memory=512
kernel_words=()
with=()
variables=()
as_user=()
linux=
scratch=
booted=() # processes of this shell

: "${here:?}"

options_usage() {
    cat <<'END_OF_USAGE'
  --seconds N        the time limit, boot included (default: 300)
  --memory N         the guest's memory in MiB (default: 512)
  --env NAME[=VALUE] a variable for the script; without a value the present one
  --with PATH        a file or folder that the script needs, which is then there at the same path
                     even if it is below /tmp, /run or /dev, or not readable for the guest's user.
                     What that user can read elsewhere is there by itself.
  --linux PATH       the kernel (default: what tests/soft_rdma/kernel prints)
  --help             this text

The script finds what is written in tests/soft_rdma/inside.sh. It is root in the guest, where /tmp
is empty. On the host the guest is this user or, for root, nobody; of the host's files it can write
its own folder alone.

Exit status: the script's; 124 if the limit is over; 125 if the guest died or did not come up.
END_OF_USAGE
}

# take_option ARGUMENT...: takes one option that both commands have; sets taken to the number of its
# words, 0 at the end of the options.
taken=0
# shellcheck disable=SC2034 # read by the scripts that source this
take_option() {
    case $1 in
    --seconds | --memory | --env | --with | --linux) (($# > 1)) || die "$1 takes a value" ;;
    esac
    taken=2
    case $1 in
    --seconds | --memory)
        [[ $2 =~ ^[1-9][0-9]*$ ]] || die "$1 takes a positive number, not '$2'"
        printf -v "${1#--}" %s "$2"
        ;;
    --env)
        [[ $2 =~ ^[A-Za-z_][A-Za-z_0-9]*(=.*)?$ ]] || die "--env takes NAME or NAME=VALUE, not '$2'"
        if [[ $2 == *=* ]]; then
            variables+=("$2")
        else
            variables+=("$2=${!2-}")
        fi
        ;;
    --with)
        [[ -e $2 ]] || die "--with: there is no $2"
        with+=("$(realpath --no-symlinks -- "$2")")
        ;;
    --linux) linux=$2 ;;
    --help | -h)
        usage
        exit 0
        ;;
    -)
        taken=0
        ;;
    -*)
        usage >&2
        exit 2
        ;;
    *) taken=0 ;;
    esac
}

# ------------------------------------------------------------------------------- the private folder

# Its processes have the folder on their command line. A guest that is killed while it starts a
# process leaves that process behind, stopped: the User Mode Linux kernel sets the parent-death
# signal only after the fork (os_set_pdeathsig in arch/um/os-Linux/skas/process.c).
clean_up() {
    local tries pids process mark=$scratch/linux
    trap - EXIT
    if [[ -n $scratch ]]; then
        for tries in {1..100}; do
            # grep fails if a process ends during its run. It must not find itself.
            pids=$(grep -lsaF -f <(echo "$mark") /proc/[0-9]*/cmdline | cut -d/ -f3) || true
            [[ -n $pids ]] || break
            # shellcheck disable=SC2086
            kill -KILL $pids 2>/dev/null || true
            ((tries == 1)) || sleep 0.02
        done
    fi
    for process in "${booted[@]}"; do
        wait "$process" 2>/dev/null || true
    done
    [[ -z $scratch ]] || rm -rf "$scratch"
}

# The guest is root inside, and could write the host's files with this user's rights.
choose_user() {
    [[ $EUID == 0 ]] || return 0
    id -u nobody >/dev/null 2>&1 || die 'there is no user "nobody" to run a guest as'
    as_user=(setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups --no-new-privs)
    "${as_user[@]}" true || die 'cannot run a guest as the user "nobody"'
}

# In TMPDIR, if the guest's user can enter that; its name stands on the guest's command line.
make_scratch() {
    local base
    for base in "${TMPDIR:-/tmp}" /var/tmp /tmp; do
        base=$(realpath -- "$base") || continue
        [[ ! $base =~ [^A-Za-z0-9_./+-] && $base/ != /dev/* ]] || continue
        scratch=$(mktemp -d "$base/rdmux-guest.XXXXXX") || continue
        ((${#as_user[@]} == 0)) || chmod 0755 "$scratch"
        "${as_user[@]}" test -x "$scratch" && return
        rm -rf "$scratch"
        scratch=
    done 2>/dev/null
    die 'there is no folder for temporary files that the user of the guests can enter'
}

# own PATH...: gives files to the guest's user.
own() {
    ((${#as_user[@]} == 0)) || chown "nobody:$(id -g nobody)" "$@"
}

readable() {
    local found
    found=$("${as_user[@]}" find "$1" ! -type l ! -readable -print -quit 2>&1) && [[ -z $found ]]
}

# fill_scratch GUESTS: writes the files that are the same for all guests.
fill_scratch() {
    local guests=$1 path copy count=0 variable
    cp "$linux" "$scratch/linux"
    cp "$here/init" "$here/inside.sh" "$scratch/"
    chmod 0755 "$scratch/linux" "$scratch/init" "$scratch/inside.sh"
    mkdir "$scratch/shared" "$scratch/home"
    own "$scratch/shared" "$scratch/home"
    awk -F: '/^cpu MHz/ { mhz = $2 } END { printf "%.3f\n", mhz ? mhz : 1000 }' /proc/cpuinfo \
        >"$scratch/cpu_mhz"
    memory_in=$(memory_folder $((guests * memory)))
    : >"$scratch/with"
    for path in "${with[@]}"; do
        count=$((count + 1))
        copy=$path
        if [[ $path == /dev/* ]] || ! readable "$path"; then # a guest has a /dev of its own
            copy=$scratch/with.$count
            cp -a "$path" "$copy"
            chmod -R a+rX "$copy"
        fi
        printf '%s\t%s\n' "$copy" "$path" >>"$scratch/with"
    done
    : >"$scratch/environment"
    for variable in "${variables[@]}"; do
        printf 'export %s=%q\n' "${variable%%=*}" "${variable#*=}" >>"$scratch/environment"
    done
    chmod 0644 "$scratch/environment" "$scratch/with" "$scratch/cpu_mhz"
}

# prepare NAME SCRIPT [ARGUMENT...]: what one guest runs; "-" is standard input.
prepare() {
    local folder=$scratch/$1 script=$2
    mkdir "$folder"
    if [[ $script == - ]]; then
        cat >"$folder/script"
    else
        cat -- "$script" >"$folder/script"
    fi
    {
        printf 'GUEST=%s\n. /run/host/inside.sh\n. /run/host/environment\n' "$1"
        printf '. /run/host/%s/script%s\n' "$1" "$( (($# == 2)) || printf ' %q' "${@:3}")"
    } >"$folder/enter"
    chmod 0644 "$folder/script" "$folder/enter"
    own "$folder"
}

# ------------------------------------------------------------------------------- booting and ending

# The guest's memory is a file: in memory if there is room for it, and it can be executed there.
memory_folder() {
    local need=$1 free options
    free=$(df --output=avail --block-size=1M /dev/shm 2>/dev/null | tail -n 1) || free=0
    options=$(awk '$2 == "/dev/shm" { print $4 }' /proc/mounts)
    if ((free >= need)) && [[ -n $options && ,$options, != *,noexec,* ]]; then
        echo /dev/shm
    else
        echo "$scratch/home"
    fi
}

# place_guests: assigns the processors that this user may use to guests in turn, from a random one
# on. A guest must have only one: its kernel assumes a single processor, so its barriers are for the
# compiler only, yet its interrupts run while the interrupted process continues. On two processors
# siw then completes and misses that the process armed the queue, while the process arms and misses
# the completion: a lost wake-up that is not a fault of the tested code. It is also quicker this
# way.
processors=()
place_guests() {
    local range first last
    local -a ranges
    IFS=, read -ra ranges < <(awk '/^Cpus_allowed_list:/ { print $2 }' /proc/self/status)
    for range in "${ranges[@]}"; do
        first=${range%-*}
        last=${range#*-}
        while ((first <= last)); do
            processors+=("$((first++))")
        done
    done
    ((${#processors[@]} > 0)) || die "no processor is allowed in /proc/self/status"
    first=$((RANDOM % ${#processors[@]}))
    processors=("${processors[@]:first}" "${processors[@]:0:first}")
}

# boot NAME [WORD...]: starts a guest with these words on its command line; sets process. The guest
# ends if this shell or the process is killed.
process=
memory_in=
boot_time=
boot() {
    local name=$1 folder=$scratch/$1 processor
    shift
    : >"$folder/console"
    boot_time=$SECONDS
    ulimit -c 0
    ((${#processors[@]} > 0)) || place_guests
    processor=${processors[${#booted[@]} % ${#processors[@]}]}
    setpriv --pdeathsig KILL timeout --kill-after=3 "$seconds" \
        "${as_user[@]}" env HOME="$scratch/home" TMPDIR="$memory_in" \
        setpriv --pdeathsig KILL taskset -c "$processor" \
        "$scratch/linux" "mem=${memory}M" rootfstype=hostfs rootflags=/ rw \
        con=null con0=null,fd:1 con1=null quiet init="$scratch/init" \
        SCRATCH="$scratch" GUEST="$name" "${kernel_words[@]}" "$@" \
        </dev/null >"$folder/console" 2>&1 &
    process=$!
    booted+=("$process")
}

# powered_down CONSOLE: the guest was turned off. Its kernel may yet abort, with nothing left to do.
powered_down() {
    [[ $(tr -d '\r' <"$1" | tail -n 1) == 'reboot: Power down' ]]
}

# ended NAME STATUS: prints the exit status of a guest whose process ended with that status. Reports
# a status that is not its script's.
ended() {
    local name=$1 folder=$scratch/$1 status=$2 what
    if ((status == 124 || (status == 137 && SECONDS - boot_time >= seconds))); then
        what="did not end within $seconds s"
        status=$status_late
    elif [[ -e $folder/status ]] && { ((status == 0)) || powered_down "$folder/console"; }; then
        return "$(<"$folder/status")"
    elif [[ -e $folder/stopped ]]; then
        what='was stopped, as the other one had failed'
        status=$status_died
    else
        what="died, or did not come up (linux ended with status $status)"
        status=$status_died
    fi
    {
        printf 'guest %s %s; the end of its console:\n' "$name" "$what"
        tail -n 60 "$folder/console" | tr -d '\r' | sed 's/^/    /'
    } >&2
    return "$status"
}
