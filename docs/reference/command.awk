# SPDX-License-Identifier: BSD-2-Clause-Patent
# Writes the manual page of the command, or of one of its sub-commands:
#
#   awk -v name=NAME -v about=ABOUT -v version=V -f command.awk HELP [PART]
#
# NAME is "" for the command itself, ABOUT the line that describes it, HELP the text of --help, and
# PART docs/man/rdmux[-NAME].roff, which is written by hand: first what belongs to the description,
# then, behind a line `.\" option --OPTION`, what belongs to one option, then whole sections.
# With -v check=yes it only tells, by its status, whether HELP has all these options.

FNR == 1 { file++ }

file == 1 { help[++helps] = $0 }

file == 2 && /^\.\\" option / {
    place = substr($3, 3)
    placed[place] = 1
    next
}
file == 2 && /^\.SH / { place = "SECTIONS" }
file == 2 && /^\.\\"/ { next }
file == 2 { part[place] = part[place] $0 "\n" }

END {
    page = name == "" ? "rdmux" : "rdmux-" name
    if (check == "yes") {
        for (i = 1; i <= helps; i++) if (match(help[i], /^  --[a-z-]+/)) has[substr(help[i], 5, RLENGTH - 4)] = 1
        for (place in placed) if (!(place in has)) {
            print page " has no option --" place
            bad = 1
        }
        exit bad
    }
    print ".\\\" SPDX-License-Identifier: BSD-2-Clause-Patent"
    print ".\\\" Made of the command's --help and of docs/man/" page ".roff by docs/reference/pages. Do not edit."
    print ".TH " toupper(page) " 1 \"\" \"rdmux " version "\" \"User commands\""
    print ".SH NAME\n" roff(page) " \\- " roff(about)
    usage = help[1]
    sub(/^usage: /, "", usage)
    print ".SH SYNOPSIS\n" synopsis(usage)
    i = 2
    print ".SH DESCRIPTION"
    for (i = 2; i <= helps; i++) {
        if (is_entry(help[i])) break
        if (help[i] == "" && i == 2) continue
        text = text (help[i] == "" ? "" : roff(help[i]) "\n")
        if (help[i] == "" && !is_entry(help[i + 1])) text = text ".PP\n"
    }
    printf "%s", text
    if (part[""] != "") printf ".PP\n%s", part[""]
    print name == "" ? ".SH COMMANDS" : ".SH OPTIONS"
    option = "-"
    for (; i <= helps; i++) {
        if (help[i] == "") {
            # The command's own text has options, and lines about the environment, behind its table.
            if (name == "" && is_entry(help[i + 1]) ) print ".SH OPTIONS"
            continue
        }
        if (!is_entry(help[i])) {
            # Further lines of an entry are indented; others are in PART.
            if (help[i] ~ /^  /) print roff(trimmed(help[i])) full_stop(i)
            continue
        }
        finish(option)
        entry = substr(help[i], 3)
        match(entry, /  +/)
        if (RSTART == 0) match(entry, / /)
        left = substr(entry, 1, RSTART - 1)
        # The longest name of a command has one blank behind it.
        if (left !~ /^-/) {
            match(entry, / +/)
            left = substr(entry, 1, RSTART - 1)
        }
        right = substr(entry, RSTART + RLENGTH)
        option = left
        sub(/ .*/, "", option)
        sub(/^--/, "", option)
        print ".TP"
        if (name == "" && left !~ /^-/) print ".BR rdmux\\-" left " (1)"
        else print bold_option(left)
        print roff(right) full_stop(i)
    }
    finish(option)
    printf "%s", part["SECTIONS"]
    if (name != "") print ".SH EXIT STATUS\n0 fine, 1 failed, 2 wrong arguments."
    print ".SH SEE ALSO"
    print name == "" ? ".BR rdmux (3)" : ".BR rdmux (1),\n.BR rdmux (3)"
}

# finish OPTION: what is written by hand about it.
function finish(option)
{
    if (option in part) printf "%s", part[option]
}

# full_stop LINE: "." if the option's text ends here and that of PART follows.
function full_stop(line)
{
    return option in part && (line == helps || help[line + 1] !~ /^      /) ? "." : ""
}

function is_entry(line)
{
    return line ~ /^  (--)?[a-z][A-Za-z.:\[\] -]* / && line !~ /^   /
}

function trimmed(line)
{
    sub(/^ +/, "", line)
    return line
}

function roff(text)
{
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    if (text ~ /^[.']/) text = "\\&" text
    return text
}

# bold_option LEFT: "--paths LIST" with the name bold and the argument in italics.
function bold_option(left,    space)
{
    space = index(left, " ")
    if (!space) return ".B " roff(left)
    return ".BI " roff(substr(left, 1, space - 1)) " \" " roff(substr(left, space + 1)) "\""
}

# synopsis USAGE: words in capitals are the reader's, in italics; the others are typed, in bold.
function synopsis(usage,    out)
{
    out = ""
    while (match(usage, /[A-Z][A-Z]+|[a-z][a-z.-]*|--[a-z-]+/)) {
        out = out roff(substr(usage, 1, RSTART - 1))
        out = out (substr(usage, RSTART, 1) ~ /[A-Z]/ ? "\\fI" : "\\fB") roff(substr(usage, RSTART, RLENGTH)) "\\fP"
        usage = substr(usage, RSTART + RLENGTH)
    }
    return out roff(usage)
}
