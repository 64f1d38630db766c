# Turns a subset of YAML into lines of PATH, tab, VALUE: block mappings and lists, plain and quoted scalars, literal and
# folded blocks, and flow lists and mappings of scalars on one line. `users.0.name<tab>alice` is the name of the first
# user. In values, \\, \t and \n stand for a backslash, a tab and a new line. A line that is none of that comes as
# the path "!" with its number and text, and an empty collection as its path with no tab.
BEGIN { depth = 0; pending = ""; is_pending = 1; block = "" }

{ sub(/\r$/, "") }

function fail() { print "!\t" NR ": " escaped($0) }
function escaped(text) { gsub(/\\/, "\\\\", text); gsub(/\t/, "\\t", text); gsub(/\n/, "\\n", text); return text }
function emit(path, text) { print path "\t" escaped(text) }
function push(indent, kind, path) { depth++; at[depth] = indent; kinds[depth] = kind; paths[depth] = path; count[depth] = 0 }
function joined(path, key) { return path == "" ? key : path "." key }
function trimmed(text) { sub(/^[ \t]+/, "", text); sub(/[ \t]+$/, "", text); return text }

# A scalar without its quotes; `bad` is set where it does not end on this line.
function scalar(text,    first, last) {
    first = substr(text, 1, 1); last = substr(text, length(text))
    if (first == "'") {
        if (length(text) < 2 || last != "'") { bad = 1; return "" }
        text = substr(text, 2, length(text) - 2); gsub(/''/, "'", text); return text
    }
    if (first == "\"") {
        if (length(text) < 2 || last != "\"") { bad = 1; return "" }
        return unescaped(substr(text, 2, length(text) - 2))
    }
    if (first ~ /[&*!%@`]/) { bad = 1; return "" }
    return text
}
function unescaped(text,    out, place, next_one) {
    out = ""
    while ((place = index(text, "\\")) > 0) {
        next_one = substr(text, place + 1, 1)
        out = out substr(text, 1, place - 1)
        if (next_one == "n") out = out "\n"
        else if (next_one == "t") out = out "\t"
        else if (next_one == "\"" || next_one == "\\" || next_one == "/") out = out next_one
        else bad = 1
        text = substr(text, place + 2)
    }
    return out text
}

# Text without a comment at its end.
function uncommented(text,    i, c, quote) {
    quote = ""
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (quote != "") {
            # An escaped character, or a quote that stands twice, ends nothing.
            if ((c == "\\" && quote == "\"") || (c == "'" && quote == c && substr(text, i + 1, 1) == c)) i++
            else if (c == quote) quote = ""
        }
        else if ((c == "\"" || c == "'") && (i == 1 || substr(text, i - 1, 1) ~ /[ ,\[{:]/)) quote = c
        else if (c == "#" && (i == 1 || substr(text, i - 1, 1) ~ /[ \t]/)) return trimmed(substr(text, 1, i - 1))
    }
    return trimmed(text)
}

# The members of a flow list or mapping of scalars.
function flow(path, text,    i, c, quote, part, n, inner, place) {
    inner = substr(text, 2, length(text) - 2)
    if (trimmed(inner) == "") { print path; return }
    quote = ""; part = ""; n = 0
    for (i = 1; i <= length(inner) + 1; i++) {
        c = substr(inner, i, 1)
        if (i > length(inner) || (c == "," && quote == "")) {
            part = trimmed(part)
            if (substr(text, 1, 1) == "{") {
                place = index(part, ":")
                if (place == 0) { bad = 1; return }
                emit(joined(path, scalar(trimmed(substr(part, 1, place - 1)))), scalar(trimmed(substr(part, place + 1))))
            } else emit(joined(path, n++), scalar(part))
            part = ""
            continue
        }
        if (quote == "" && c ~ /[][{}]/) { bad = 1; return }
        if (quote != "") {
            if ((c == "\\" && quote == "\"") || (c == "'" && quote == c && substr(inner, i + 1, 1) == c)) {
                part = part c
                c = substr(inner, ++i, 1)
            } else if (c == quote) quote = ""
        } else if ((c == "\"" || c == "'") && trimmed(part) == "") quote = c
        part = part c
    }
}

# The value of `path`, or the promise that it follows on further lines.
function value(path, text, indent,    last) {
    bad = 0; is_pending = 0
    if (text ~ /^[|>][+-]?[ ]*$/) {
        block = path; style = substr(text, 1, 1); chomp = substr(text, 2, 1); outer = indent; inner_indent = -1; lines = ""
        gathered = 0
        return
    }
    if (text == "") { pending = path; is_pending = 1; return }
    last = substr(text, length(text))
    if (substr(text, 1, 1) == "[" || substr(text, 1, 1) == "{") {
        if (last == "]" || last == "}") flow(path, text); else bad = 1
    } else {
        text = scalar(text)
        if (!bad) emit(path, text)
    }
    if (bad) fail()
}

function end_block(    text) {
    if (block == "") return
    text = lines
    if (chomp != "+") sub(/\n+$/, "", text)
    if (chomp == "" && text != "") text = text "\n"
    emit(block, text)
    block = ""
}

block != "" {
    match($0, /^ */); indent = RLENGTH
    blank = $0 ~ /^[ \t]*$/
    if (blank || indent > outer) {
        if (inner_indent < 0 && !blank) inner_indent = indent
        if (inner_indent < 0 || indent >= inner_indent || blank) {
            text = blank ? "" : substr($0, inner_indent + 1)
            if (style == ">" && gathered && !blank && lines !~ /\n$/) lines = lines " " text
            else lines = lines text
            if (style == "|" || blank) lines = lines "\n"
            gathered = 1
            next
        }
    }
    if (style == ">") lines = lines "\n"
    end_block()
}

/^[ \t]*(#|$)/ { next }
/^(---|\.\.\.)[ \t]*$/ { next }
/^ *\t/ { fail(); next }

{
    match($0, /^ */); indent = RLENGTH
    text = uncommented(substr($0, indent + 1))
    while (text == "-" || text ~ /^- /) {
        while (depth > 0 && at[depth] > indent) depth--
        if (!(depth > 0 && at[depth] == indent && kinds[depth] == "s")) {
            if (!is_pending) { fail(); next }
            push(indent, "s", pending)
        }
        pending = joined(paths[depth], count[depth]++); is_pending = 1
        if (text == "-") next
        rest = substr(text, 3); sub(/^ +/, "", rest)
        indent += length(text) - length(rest); text = rest
    }
    if (match(text, /^("[^"]*"|'[^']*'|[^][{}"'&*!|>%@` ][^:]*):( |$)/)) {
        key = substr(text, 1, RLENGTH); sub(/: ?$/, "", key); rest = trimmed(substr(text, RLENGTH + 1))
        while (depth > 0 && (at[depth] > indent || (at[depth] == indent && kinds[depth] == "s"))) depth--
        if (!(depth > 0 && at[depth] == indent)) {
            if (!is_pending) { fail(); next }
            push(indent, "m", pending)
        }
        value(joined(paths[depth], scalar(trimmed(key))), rest, indent)
    } else if (is_pending && pending != "") value(pending, text, indent - 1)
    else fail()
}

END { if (block != "" && style == ">") lines = lines "\n"; end_block() }
