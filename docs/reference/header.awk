# SPDX-License-Identifier: BSD-2-Clause-Patent
# Reads a public header, whose comments are the reference, and writes it in one of two forms:
#
#   awk -v to=doxygen -f header.awk HEADER          the header, with comments as Doxygen wants them
#   awk -v to=man -v out=FOLDER -v version=V -f header.awk HEADER
#                                                   manual pages of section 3, one for each chapter
#                                                   of the header, and one that leads to it for each
#                                                   function. With -v page=NAME -v about=TEXT all of
#                                                   a header without chapters is the page NAME
#   awk -v to=pages -f header.awk HEADER            the names of those pages, and their chapters
#
# What it expects of a comment: prose, and lists of a term, two blanks or more, and its text, whose
# further lines are indented. A chapter begins with a line of dashes and its title. A comment belongs
# to the declaration that follows at once.

BEGIN {
    if (to != "doxygen" && to != "man" && to != "pages") die("to is not doxygen, man or pages")
    # Chapter, name of its page, what the page is about. Others are named by their title.
    page_is("statuses", "rdmux_status", "outcomes of calls and requests, texts of errors")
    page_is("constants", "rdmux_constants", "limits, capabilities, access rights, flags and opcodes")
    page_is("reasons", "rdmux_reason", "why a path was chosen or not, and how it is protected")
    page_is("fabric", "rdmux_fabric", "an instance of the library")
    page_is("completion queue", "rdmux_cq", "completions, events, and waiting for them")
    page_is("memory", "rdmux_mr", "memory regions, their tokens, and imports of them")
    page_is("endpoint attributes", "rdmux_ep_attr", "options of an endpoint")
    page_is("connecting", "rdmux_connect", "listen, accept, reject, connect, adopt a socket")
    page_is("explanation", "rdmux_explain", "which paths were considered, and why one was chosen")
    page_is("endpoint", "rdmux_ep", "state, counts, shutdown, hand-over; shared receive queues")
    page_is("data path", "rdmux_post", "messages, one-sided operations, atomics")
    page_is("bindings", "rdmux_bindings", "initialisers as functions, for other languages")
    lines = 0
}

# Characters of several bytes would move columns.
{
    gsub(/…/, "\001")
    gsub(/×/, "\002")
    line[++lines] = $0
}

END {
    if (failed) exit 1
    chapter = ""
    for (at = 1; at <= lines;) {
        if (line[at] ~ /^\/\* ---------*.* \*\/$/) {
            begin_chapter(line[at])
            at++
        } else if (line[at] ~ /^\/\* SPDX/) {
            if (to == "doxygen") print "/* " substr(line[at], 4)
            at++
        } else if (line[at] ~ /^\/\*/) {
            take_comment()
        } else {
            take_declaration()
        }
    }
    end_chapter()
    if (to == "man") {
        write_pages()
        if (page == "") overview()
    }
}

function die(text)
{
    print "header.awk: " text >"/dev/stderr"
    failed = 1
    exit 1
}

function page_is(title, page, about)
{
    page_of[title] = page
    about_of[title] = about
}

# --------------------------------------------------------------------------- the parts of a header

function begin_chapter(text)
{
    end_chapter()
    gsub(/^\/\* -* *| *\*\/$/, "", text)
    chapter = text
    chapters[++chapter_count] = text
    if (!(text in page_of)) {
        page_of[text] = text
        gsub(/[^a-z0-9]+/, "_", page_of[text])
        page_of[text] = "rdmux_" page_of[text]
        about_of[text] = text
    }
    if (to == "doxygen") printf "/** @defgroup %s_%s %s\n@{ */\n", header_id(), word_of(text), toupper(substr(text, 1, 1)) substr(text, 2)
}

# begin_page: a header without chapters is one, which has the name of its page.
function begin_page()
{
    chapter = page
    chapters[++chapter_count] = page
    page_is(page, page, about)
}

function end_chapter()
{
    if (chapter == "") return
    if (to == "doxygen") print "/** @} */"
    chapter = ""
}

function header_id(    id)
{
    id = FILENAME
    sub(/.*\//, "", id)
    sub(/\.h.*/, "", id)
    return id
}

function word_of(text)
{
    gsub(/[^a-z0-9]+/, "_", text)
    return text
}

# comment_lines FIRST: stores the comment that begins there, without its frame, in note[1..notes];
# returns the number of the line behind it.
function comment_lines(first,    i, text)
{
    notes = 0
    for (i = first; i <= lines; i++) {
        text = line[i]
        if (i == first) sub(/^ *\/\* ?/, "", text)
        else sub(/^ *\* ?/, "", text)
        if (line[i] ~ /\*\/ *$/) sub(/ *\*\/ *$/, "", text)
        if (i > first && line[i] ~ /^ *\*\/ *$/) return i + 1
        if (i > first || text != "") note[++notes] = text
        if (line[i] ~ /\*\/ *$/) return i + 1
    }
    return i
}

# A comment in the first column: of the file, of a chapter, or of the declaration behind it.
function take_comment(    next_line)
{
    next_line = comment_lines(at)
    is_attached = next_line <= lines && line[next_line] !~ /^$/ && line[next_line] !~ /^#(ifndef|ifdef|if|endif|include)/
    at = next_line
    if (is_attached) return # take_declaration() has note[]
    if (chapter == "" && !told_file) {
        told_file = 1
        file_notes = notes
        for (next_line = 1; next_line <= notes; next_line++) file_note[next_line] = note[next_line]
        if (page != "") begin_page()
        if (to == "doxygen") {
            print "/** @file"
            render(note, notes)
            print "*/"
        }
    } else if (to == "doxygen") {
        if (chapter == "") return
        printf "/** @} */\n/** @addtogroup %s_%s\n", header_id(), word_of(chapter)
        render(note, notes)
        printf "*/\n/** @addtogroup %s_%s\n@{ */\n", header_id(), word_of(chapter)
    } else if (to == "man" && chapter != "") {
        keep_text("")
    }
    notes = 0
    is_attached = 0
}

# take_declaration: the declarations that follow without an empty line between them share a comment.
function take_declaration(    first, end, name, shared)
{
    if (line[at] ~ /^$/) {
        is_attached = notes = 0
        if (to == "doxygen") print ""
        at++
        return
    }
    if (line[at] ~ /^#/ || line[at] ~ /^(extern "C"|}|static_assert)/ || line[at] ~ /^    / || line[at] ~ /^\(/) {
        take_macro()
        return
    }
    if (line[at] ~ /^_Static_assert/) {
        at = declaration_end(at) + 1
        return
    }
    first = at
    shared = ""
    while (at <= lines && line[at] !~ /^$/ && line[at] !~ /^#/ && line[at] !~ /^\/\*/) {
        end = declaration_end(at)
        name = declared_name(at, end)
        if (to == "doxygen") doxygen_declaration(at, end, name, shared)
        if (shared == "") shared = name
        at = end + 1
    }
    if (to == "man") keep_declarations(first, at - 1)
    notes = is_attached = 0
}

# Macros. Initialisers belong to the struct before them.
function take_macro(    name, end)
{
    end = at
    while (line[end] ~ /\\$/) end++
    name = line[at]
    if (to == "doxygen") {
        if (name ~ /^#define RDMUX_[A-Z_]*_INIT /) print "/** Initialises the struct: `size` is set, all other members are 0. */"
        else if (name ~ /^#define RDMUX_[A-Z_]+ [0-9"]/ || is_attached) {
            print "/**"
            if (is_attached) render(note, notes)
            else if (match(name, /\/\*.*\*\//)) print doxygen_text(substr(name, RSTART + 3, RLENGTH - 6))
            else print "Part of the interface."
            print "*/"
        } else if (name ~ /^#define RDMUX_(API|MUST_CHECK|INIT_OF|PRINTF)/) print "/** For the declarations of this header. */"
        for (; at <= end; at++) print line[at]
    } else if (to == "man" && chapter != "" && name ~ /^#define RDMUX_[A-Z_]+ /) {
        # In the code of the struct before it, or with a comment of its own.
        if (is_attached) keep_declarations(at, end)
        else code[chapter, block_of[chapter]] = code[chapter, block_of[chapter]] clean_code(at, end)
    }
    at = end + 1
    if (at > lines || line[at] !~ /^#define/) notes = is_attached = 0
    else is_attached = 0
}

function declaration_end(i,    depth, text, opens, closes, in_note)
{
    depth = in_note = 0
    for (; i <= lines; i++) {
        text = line[i]
        if (in_note) {
            if (text !~ /\*\//) continue
            sub(/.*\*\//, "", text)
            in_note = 0
        }
        gsub(/\/\*.*\*\//, "", text)
        if (sub(/\/\*.*/, "", text)) in_note = 1
        opens = gsub(/[({]/, "&", text)
        closes = gsub(/[)}]/, "&", text)
        depth += opens - closes
        if (depth == 0 && (text ~ /; *$/ || text ~ /^}/)) return i
        if (depth == 0 && text ~ /} *$/ && text !~ /,/) return i
    }
    return lines
}

# declared_name FIRST END: "struct x", "enum x", "enum" or the name of the function.
function declared_name(first, end,    text, i)
{
    text = ""
    for (i = first; i <= end && i < first + 4; i++) text = text " " line[i]
    sub(/^ +/, "", text)
    if (text ~ /^(struct|enum) [a-z_0-9]* *\{/ || text ~ /^enum *\{/ || text ~ /^struct [a-z_0-9]*;/) {
        sub(/ *[{;].*/, "", text)
        return text
    }
    if (match(text, /rdmux_[a-z0-9_]+\(/)) return substr(text, RSTART, RLENGTH - 1)
    if (match(text, /rdmux_[a-z0-9_]+;/)) return substr(text, RSTART, RLENGTH - 1)
    return ""
}

# ------------------------------------------------------------------------- the text of a comment

function indent_of(text)
{
    match(text, /^ */)
    return RLENGTH
}

# key_length TEXT COLUMN FIRST: the length of the term that the line begins with, or 0. If there is a
# list, COLUMN is that of the last term's text, and FIRST that of the first term's: a long term may
# have one blank behind it.
function key_length(text, column, first,    key)
{
    if (first > 1 && first != column && key_length(text, first)) return key_length(text, first)
    if (match(text, /^[^ ][^ ]*( [^ ]+)*   */) && RLENGTH < length(text)) {
        key = substr(text, 1, RLENGTH)
        sub(/ +$/, "", key)
        key_text = RLENGTH + 1
        if (length(key) <= 44 && key !~ /[.;]$/) return length(key)
    }
    if (column > 1 && substr(text, column - 1, 1) == " " && substr(text, column, 1) != " ") {
        key = substr(text, 1, column - 2)
        if (key ~ /^[A-Za-z_-]+(, ([a-z_A-Z]+|\001))*$/) {
            key_text = column
            return length(key)
        }
    }
    return 0
}

# render TEXT COUNT: writes a comment's lines in the form wanted.
function render(text, count,    i, j, sub_text, subs, least, key, column, column_1, in_list, para, is_table, is_code)
{
    para = ""
    in_list = column = column_1 = 0
    for (i = 1; i <= count; i++) {
        if (text[i] ~ /^ *$/) {
            if (para != "") emit_para(para)
            para = ""
            if (in_list) emit_list_end()
            in_list = column = column_1 = 0
            continue
        }
        if (indent_of(text[i]) >= 2) {
            # A block of its own.
            if (para != "") emit_para(para)
            para = ""
            if (in_list) emit_list_end()
            in_list = column = column_1 = subs = 0
            least = 999
            for (j = i; j <= count && (indent_of(text[j]) >= 2 && text[j] !~ /^ *$/); j++)
                if (indent_of(text[j]) < least) least = indent_of(text[j])
            is_code = least >= 4
            is_table = 0
            for (j = i; j <= count && (indent_of(text[j]) >= 2 && text[j] !~ /^ *$/); j++) {
                sub_text[++subs] = substr(text[j], least + 1)
                if (sub_text[subs] ~ /^[^ ]+   *[^ ].*[^ ]   *[^ ]/) is_table = 1
            }
            if (is_code || is_table) emit_code(sub_text, subs)
            else render(sub_text, subs)
            i = j - 1
            continue
        }
        key = key_length(text[i], column, column_1)
        if (key) {
            if (para != "") emit_para(para)
            para = ""
            column = key_text
            if (!in_list) {
                emit_list_begin()
                column_1 = column
            }
            in_list = 1
            subs = 1
            sub_text[1] = substr(text[i], key_text)
            least = 999
            for (j = i + 1; j <= count && indent_of(text[j]) >= 2; j++)
                if (indent_of(text[j]) < least) least = indent_of(text[j])
            for (j = i + 1; j <= count && indent_of(text[j]) >= 2; j++) sub_text[++subs] = substr(text[j], least + 1)
            i = j - 1
            emit_item(substr(text[i - subs + 1], 1, key), sub_text, subs)
            continue
        }
        if (in_list) emit_list_end()
        in_list = column = column_1 = 0
        para = para (para == "" ? "" : " ") text[i]
    }
    if (para != "") emit_para(para)
    if (in_list) emit_list_end()
}

function emit_para(text)
{
    if (to == "doxygen") print doxygen_text(text) "\n"
    else add(".PP\n" man_text(text) "\n")
}

# A list whose items all went to members is not opened at all.
function emit_list_begin()
{
    depth_of_lists++
    is_open[depth_of_lists] = 0
}

function emit_list_end()
{
    if (to == "doxygen" && is_open[depth_of_lists]) print "</dl>"
    depth_of_lists--
}

function emit_item(term, text, count,    i, has_list)
{
    has_list = 0
    for (i = 1; i <= count; i++) if (i > 1 || key_length(text[1], 0)) has_list += key_length(text[i], 0) > 0
    if (to == "doxygen") {
        if (is_member_doc(term, text, count)) return
        if (!is_open[depth_of_lists]) print "<dl>"
        is_open[depth_of_lists] = 1
        print "<dt>" doxygen_text(term) "</dt><dd>"
        if (has_list) render(text, count)
        else print doxygen_text(joined(text, count))
        print "</dd>"
        return
    }
    add(".TP\n.B " man_text(term, 1) "\n")
    if (!has_list) {
        add(man_text(joined(text, count)) "\n")
        return
    }
    nested = 1
    if (key_length(text[1], 0)) add("\\&\n")
    add(".RS\n")
    render(text, count)
    add(".RE\n")
}

function joined(text, count,    i, all)
{
    all = ""
    for (i = 1; i <= count; i++) {
        sub(/^ +/, "", text[i])
        all = all (i > 1 ? " " : "") text[i]
    }
    return all
}

function emit_code(text, count,    i)
{
    if (to == "doxygen") {
        print "@verbatim"
        for (i = 1; i <= count; i++) print text[i]
        print "@endverbatim"
        return
    }
    add(".PP\n.in +4n\n.nf\n")
    for (i = 1; i <= count; i++) add(man_code(text[i]) "\n")
    add(".fi\n.in\n")
}

# -------------------------------------------------------------------------------------- Doxygen

function doxygen_text(text)
{
    gsub(/\\/, "\\\\", text)
    gsub(/&/, "\\&amp;", text)
    gsub(/</, "\\&lt;", text)
    gsub(/>/, "\\&gt;", text)
    gsub(/@/, "\\\\@", text)
    gsub(/#/, "\\\\#", text)
    gsub(/%/, "\\\\%", text)
    gsub(/\*/, "\\*", text)
    return text
}

# is_member_doc TERM TEXT COUNT: a term that names members of the struct being documented: the text
# is kept for them.
function is_member_doc(term, text, count,    names, n, i)
{
    if (!collecting) return 0
    n = split(term, names, ", ")
    for (i = 1; i <= n; i++) if (!(names[i] in is_member)) return 0
    for (i = 1; i <= n; i++) member_doc[names[i]] = joined(text, count)
    return 1
}

function member_name(text)
{
    sub(/ *\/\*.*/, "", text)
    if (match(text, /\(\*[a-z_0-9]+\)/)) return substr(text, RSTART + 2, RLENGTH - 3)
    if (text !~ /;$/) return ""
    sub(/;$/, "", text)
    gsub(/\[[^\]]*\]/, "", text)
    sub(/ *: *[0-9]+$/, "", text)
    sub(/.*[ *]/, "", text)
    return text
}

function doxygen_declaration(first, end, name, shared,    i, is_struct, is_body, member, text)
{
    is_struct = name ~ /^struct / && line[first] ~ /\{/
    is_body = line[first] ~ /\{ *$/ && end > first && name ~ /^(struct|enum)/
    split("", is_member)
    split("", member_doc)
    if (is_struct) for (i = first + 1; i < end; i++) {
        member = member_name(line[i])
        if (member != "") is_member[member] = 1
    }
    collecting = is_struct
    if (notes && (is_attached || shared != "")) {
        if (shared ~ /^rdmux/ && name ~ /^rdmux/) print "/** @copydoc " shared " */"
        else {
            print "/**"
            render(note, notes)
            print "*/"
        }
    } else if (name == "enum") {
        print "/** Constants. */"
    } else if (is_body) {
        print "/** Its members say what it is. */"
    } else if (match(name, /^rdmux_(software|unsupported)_/)) {
        print "/** The operation " substr(name, RLENGTH + 1) " of struct rdmux_provider_ops. */"
    }
    collecting = 0
    if (!is_body) {
        if (line[first] ~ /^typedef/) print "/** The function of that name in a plug-in file. */"
        for (i = first; i <= end; i++) {
            text = line[i]
            if (name ~ /^struct/ && match(text, /\/\*.*\*\//))
                print "/** " doxygen_text(substr(text, RSTART + 3, RLENGTH - 6)) " */"
            sub(/ *\/\*.*\*\//, "", text)
            print text
        }
        return
    }
    print line[first]
    for (i = first + 1; i < end; i++) {
        if (line[i] ~ /^ *\/\*/) {
            # In front of a member.
            text = line[i]
            sub(/\/\*/, "/**", text)
            while (i < end && line[i] !~ /\*\/ *$/) {
                print doxygen_line(text)
                text = line[++i]
                sub(/^ *\*/, " *", text)
            }
            print doxygen_line(text)
            if (i + 1 < end) print line[++i]
            while (is_struct && i < end && line[i] !~ /;/) print line[++i]
            continue
        }
        text = line[i]
        member = is_struct ? member_name(text) : ""
        if (text ~ /\/\*/) sub(/\/\*/, "/**<", text)
        else if (member != "") {
            if (member in member_doc) text = text " /**< " doxygen_text(member_doc[member]) " */"
            else if (member == "size") text = text " /**< Bytes of the struct; the initialiser sets it. */"
            else if (member ~ /^spare[0-9]*$/) text = text " /**< Zero. */"
            else text = text " /**< The " words_of(member) ". */"
        }
        print text
    }
    print line[end]
}

function doxygen_line(text)
{
    gsub(/#/, "\\#", text)
    gsub(/</, "\\&lt;", text)
    gsub(/\001/, "…", text)
    gsub(/\002/, "×", text)
    return text
}

function words_of(name)
{
    gsub(/_/, " ", name)
    return name
}

# -------------------------------------------------------------------------------------------- man

function add(text)
{
    if (collected_over) overview_text = overview_text text
    else body[chapter, block_of[chapter]] = body[chapter, block_of[chapter]] text
}

function man_text(text, is_bold)
{
    gsub(/\\/, "\\e", text)
    gsub(/\001/, "...", text)
    gsub(/\002/, "x", text)
    gsub(/`/, "", text)
    gsub(/-/, "\\-", text)
    if (!is_bold) text = bold_names(text)
    if (text ~ /^[.']/) text = "\\&" text
    return text
}

# bold_names TEXT: names of rdmux in bold.
function bold_names(text,    out)
{
    out = ""
    while (match(text, /(rdmux_[a-z_0-9]+(\.[a-z_]+)?|RDMUX_[A-Z_]+)/)) {
        out = out substr(text, 1, RSTART - 1) "\\fB" substr(text, RSTART, RLENGTH) "\\fP"
        text = substr(text, RSTART + RLENGTH)
    }
    return out text
}

function man_code(text)
{
    gsub(/\\/, "\\e", text)
    gsub(/\001/, "...", text)
    gsub(/\002/, "x", text)
    gsub(/-/, "\\-", text)
    if (text ~ /^[.']/) text = "\\&" text
    return text
}

# clean_code FIRST END: the lines of a declaration, without the words for the compiler.
function clean_code(first, end,    i, text, all)
{
    all = ""
    if (line[first] ~ /^(RDMUX_API|extern)/) {
        for (i = first; i <= end; i++) {
            text = line[i]
            sub(/^ +/, "", text)
            all = all (i > first ? " " : "") text
        }
        gsub(/RDMUX_(API|MUST_CHECK) /, "", all)
        gsub(/\( /, "(", all)
        return folded(all)
    }
    for (i = first; i <= end; i++) all = all man_code(line[i]) "\n"
    return all
}

# folded TEXT: a prototype, broken between its arguments.
function folded(text,    all, now, n, parts, i)
{
    if (length(text) <= 76) return man_code(text) "\n"
    n = split(text, parts, ", ")
    all = ""
    now = parts[1]
    for (i = 2; i <= n; i++) {
        if (length(now) + length(parts[i]) + 2 > 72) {
            all = all man_code(now ",") "\n"
            now = "        " parts[i]
        } else now = now ", " parts[i]
    }
    return all man_code(now) "\n"
}

# keep_text: a comment of the chapter, as a block without code.
function keep_text(head)
{
    block_of[chapter]++
    head_of[chapter, block_of[chapter]] = head
    render(note, notes)
}

# keep_declarations FIRST END: a block of code with its comment.
function keep_declarations(first, end,    i, e, name, head, prototypes, structs)
{
    if (chapter == "") return
    block_of[chapter]++
    head = ""
    for (i = first; i <= end; i = e + 1) {
        if (line[i] ~ /^#define/) {
            name = line[i]
            sub(/^#define /, "", name)
            sub(/ .*/, "", name)
            for (e = i; line[e] ~ /\\$/;) e++
        } else {
            e = declaration_end(i)
            name = declared_name(i, e)
        }
        if (name ~ /^rdmux_/) {
            functions[chapter] = functions[chapter] (functions[chapter] == "" ? "" : " ") name
            prototype[chapter] = prototype[chapter] clean_code(i, e)
            name = name "()"
        }
        if (name == "enum") {
            name = first_constant(i, e)
            if (notes == 1 && note[1] ~ /^[a-z_]+\.[a-z_]+(:|$)/) {
                name = note[1]
                notes = 0
            }
        }
        head = head (head == "" ? "" : ", ") name
        code[chapter, block_of[chapter]] = code[chapter, block_of[chapter]] clean_code(i, e)
    }
    head_of[chapter, block_of[chapter]] = head
    if (notes) render(note, notes)
}

# first_constant FIRST END: an enum without name is told by its first constant.
function first_constant(first, end,    i)
{
    for (i = first + 1; i < end; i++) if (match(line[i], /^    RDMUX_[A-Z_0-9]+/)) return substr(line[i], 5, RLENGTH - 4) ", ..."
    return "constants"
}

function head_lines(name)
{
    return ".\\\" SPDX-License-Identifier: BSD-2-Clause-Patent\n" \
        ".\\\" Made of " FILENAME_SHOWN() " by docs/reference/header.awk. Do not edit.\n" \
        ".TH " toupper(name) " 3 \"\" \"rdmux " version "\" \"rdmux functions\"\n"
}

function FILENAME_SHOWN(    name)
{
    name = FILENAME
    sub(/.*\/rdmux\//, "rdmux/", name)
    return name
}

function write_pages(    i, j, name, names, n, file, title)
{
    for (i = 1; i <= chapter_count; i++) {
        title = chapters[i]
        if (title == "objects") continue
        name = page_of[title]
        file = out "/" name ".3"
        n = split(functions[title], names, " ")
        printf "%s", head_lines(name) >file
        printf ".SH NAME\n" >file
        # The name of the page comes first, and is no function itself at times.
        printf "%s", name >file
        for (j = 1; j <= n; j++) if (names[j] != name) printf ",\n%s", names[j] >file
        printf "\n\\- %s\n.SH SYNOPSIS\n.nf\n.B #include <%s>\n", man_text(about_of[title], 1), FILENAME_SHOWN() >file
        if (prototype[title] != "") printf ".sp\n%s", prototype[title] >file
        printf ".fi\n.SH DESCRIPTION\nConventions that hold for all pages (units, statuses, time\\-outs, threads) are in\n.BR rdmux (3).\n" >file
        if (page != "") printf "%s", text_of_file() >file
        for (j = 1; j <= block_of[title]; j++) {
            if (head_of[title, j] != "") printf ".SS %s\n", man_text(head_of[title, j], 1) >file
            if (code[title, j] != "") printf ".nf\n%s.fi\n", code[title, j] >file
            printf "%s", body[title, j] >file
        }
        printf ".SH SEE ALSO\n.BR rdmux (3),\n.BR rdmux (1)" >file
        # The streams have a page of section 7, too, written by hand.
        printf "%s\n", name == "rdmux_stream" ? ",\n.BR rdmux_stream (7)" : "" >file
        close(file)
        for (j = 1; j <= n; j++) if (names[j] != name) {
            print ".so man3/" name ".3" >(out "/" names[j] ".3")
            close(out "/" names[j] ".3")
        }
    }
}

# overview: the comment of the file, the objects, the pages.
function overview(    i, j, names, n, file)
{
    file = out "/rdmux.3"
    printf "%s.SH NAME\nrdmux \\- the interface of the library\n.SH SYNOPSIS\n.nf\n.B #include <rdmux/rdmux.h>\n.sp\n.B cc PROGRAM.c $(pkg\\-config \\-\\-cflags \\-\\-libs rdmux)\n.fi\n.SH DESCRIPTION\n", head_lines("rdmux") >file
    printf "%s", text_of_file() >file
    printf ".SS Objects\n" >file
    for (j = 1; j <= block_of["objects"]; j++) printf "%s.nf\n%s.fi\n", body["objects", j], code["objects", j] >file
    printf ".SS Pages\n" >file
    for (i = 1; i <= chapter_count; i++) if (chapters[i] != "objects") {
        printf ".TP\n.BR %s (3)\n%s", page_of[chapters[i]], man_text(about_of[chapters[i]], 1) >file
        n = split(functions[chapters[i]], names, " ")
        for (j = 1; j <= n; j++) printf "%s%s()", j == 1 ? ": " : ", ", names[j] >file
        printf ".\n" >file
    }
    printf ".TP\n.BR rdmux_stream (3)\nbyte streams over endpoints, by <rdmux/stream.h>.\n" >file
    printf ".SH SEE ALSO\n.BR rdmux (1),\n.BR rdmux_stream (7)\n" >file
    close(file)
}

# text_of_file: the comment of the file. Its first line names the file.
function text_of_file()
{
    collected_over = 1
    overview_text = ""
    render_from(3)
    collected_over = 0
    return overview_text
}

function render_from(first,    i, text)
{
    for (i = first; i <= file_notes; i++) text[i - first + 1] = file_note[i]
    render(text, file_notes - first + 1)
}
