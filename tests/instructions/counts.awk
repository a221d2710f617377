# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Reads callgrind's dumps of tests/bench/instructions.c and prints, one line each:
#
#   PATH OPERATION SIDE INSTRUCTIONS SYSTEM_CALLS LATE
#
# for one operation: instructions executed in rdmux's own objects (of a loop_ operation: in all but
# libc), and the provider's system calls.
# Both are the difference of the two dumps of an operation divided by the operations between them,
# so what happens once is not in it. LATE is that of both dumps. The format: valgrind's manual,
# "Callgrind Format Specification".

# The object that "(3) /usr/lib/libc.so.6", or later in this dump "(3)", means.
function object(text,    id, blank) {
    blank = index(text, " ")
    id = blank ? substr(text, 1, blank - 1) : text
    if (blank) {
        objects[id] = substr(text, blank + 1)
    }
    return objects[id]
}

function is_ours(path) {
    if (key ~ / loop_/) {
        return path !~ /\/(libc|ld-linux-x86-64)\.so[.0-9]*$/
    }
    return path ~ /\/(librdmux\.so|rdmux-[a-z]+\.so)[.0-9]*$/
}

# Takes in what was read of a dump. The smaller of an operation's two comes first.
function finish() {
    if (key == "") {
        return
    }
    if (key in operations_before) {
        count = operations - operations_before[key]
        printf "%s %.2f %.4f %d\n", key, (instructions - instructions_before[key]) / count,
            (system_calls - system_calls_before[key]) / count, late + late_before[key]
    }
    operations_before[key] = operations
    instructions_before[key] = instructions
    system_calls_before[key] = system_calls
    late_before[key] = late
}

FNR == 1 {
    finish()
    split("", objects)
    key = ""
    ours = of_callee = instructions = 0
}

/^desc: Trigger: Client Request: / {
    key = $5 " " $6 " " $7
    operations = $8
    system_calls = $9
    late = $10
}

/^ob=/ { ours = is_ours(object(substr($0, 4))) }

/^cob=/ { object(substr($0, 5)) }

# The line behind it has what the callee cost, which stands at the callee, too.
/^calls=/ { of_callee = 1 }

/^[-+*0-9]/ {
    if (ours && !of_callee) {
        instructions += $2
    }
    of_callee = 0
}

END { finish() }
