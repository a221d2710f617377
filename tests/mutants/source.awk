# SPDX-License-Identifier: BSD-2-Clause-Patent
# Prints the edits that source.sh chooses from: FILE, LINE, OPERATOR and the line as it becomes, separated by tabs. Only
# whole lines of function bodies are looked at, so that what results mostly compiles.

function edit(operator, text) {
    if (text != $0) {
        printf "%s\t%d\t%s\t%s\n", FILENAME, FNR, operator, text
    }
}

# swap(FROM, TO, OPERATOR): the first place only.
function swap(from, to, operator,    at) {
    at = index($0, from)
    if (at > 0) {
        edit(operator, substr($0, 1, at - 1) to substr($0, at + length(from)))
    }
}

FNR == 1 { in_comment = 0; in_body = 0 }
/^\{/ { in_body = 1; next }
/^\}/ { in_body = 0 }
/^ *\/\*/ { in_comment = 1 }
{
    skip = in_comment || !in_body || /^ *$/ || /^ *(assert|static_assert)\(/ || /^ *[*#]/
    if (/\*\//) { in_comment = 0 }
    if (skip || /rdmux_fail\(|rdmux_provider_error\(|rdmux_log\(|snprintf|"/) { next }
}
/^ *(\} else )?if \(.*\) \{$/ {
    text = $0
    sub(/if \(/, "if (!(", text)
    sub(/\) \{$/, ")) {", text)
    edit("negate", text)
}
{
    swap(" < ", " <= ", "boundary")
    swap(" <= ", " < ", "boundary")
    swap(" > ", " >= ", "boundary")
    swap(" >= ", " > ", "boundary")
    swap(" == ", " != ", "equality")
    swap(" != ", " == ", "equality")
    swap(" && ", " || ", "connective")
    swap(" || ", " && ", "connective")
    swap(" + ", " - ", "arithmetic")
    swap(" - ", " + ", "arithmetic")
    swap("++", "--", "arithmetic")
    swap(" += ", " -= ", "arithmetic")
    swap(" -= ", " += ", "arithmetic")
    swap("true", "false", "constant")
    swap("false", "true", "constant")
    swap(" = 0;", " = 1;", "constant")
    swap(" = 1;", " = 0;", "constant")
    swap("return RDMUX_AGAIN;", "return RDMUX_OK;", "constant")
    swap("return RDMUX_OK;", "return RDMUX_IO;", "constant")
    swap("memory_order_release", "memory_order_relaxed", "order")
    swap("memory_order_acquire", "memory_order_relaxed", "order")
    swap("memory_order_seq_cst", "memory_order_relaxed", "order")
}
# A call whose result nobody takes, or an assignment to what is no new variable.
/^ +(\(void\))?[a-z_0-9]+\(.*\);$/ || /^ +\*?[a-z_0-9]+((->|\.)[a-z_0-9.>\[\]-]+| \+| -| \|)? ?=[^=].*;$/ {
    indent = $0
    sub(/[^ ].*/, "", indent)
    edit("remove", indent ";")
}
