# Finds what failed in the output of a step of scripts/test.sh.
#
#   awk -v step=STEP -f scripts/failures.awk LOG                      one line for each failure
#   awk -v step=unit -v want=panics -v lines=60 -f ... LOG            what each failed test printed
#
# Of tests (unit, heavy, live), libtest first prints `---- NAME stdout ----` blocks, then a list of names
# under a second `failures:`, then the result; cargo says after it how to run the program again. A
# program that dies (abort, signal) prints none of these, and cargo says how it ended. A row that
# failed (end_rows) is named where nothing else is.

BEGIN { if (!lines) lines = 60; tests = step ~ /^(unit|heavy|live)$/ }

tests && want == "panics" { panics(); next }
tests { names(); next }

step == "fmt" && /^Diff in / { sub(/:[0-9]+:?$/, ""); once($3) }

(step == "clippy" || step == "doc") && /^error/ { error = $0; next }
(step == "clippy" || step == "doc") && /^ *--> / && error != "" { once(error " " $2); error = "" }
(step == "clippy" || step == "doc") && /^$/ && error != "" { once(error); error = "" }

(step == "tidy" || step == "deny") && /^error/ { once($0) }

step == "planted" && /NOT CAUGHT/ { once($0) }
step == "planted" && /^(error|`.*; see)/ { once($0) }

step == "fuzz" && /^fuzz target / { target = $3; at = "" }
step == "fuzz" && / panicked at / { at = $0; sub(/.* panicked at /, "", at) }
step == "fuzz" && /Test unit written to / { sub(/:$/, "", at); once(target " " at " " $NF) }
step == "fuzz" && /^error/ { once(target " " $0) }
step == "fuzz" && /^row .* ended with / { once($0) }

END {
    if (want == "panics") {
        end()
    } else if (tests) {
        flush("")
        if (died != "") { print died; has_named = 1 }
        if (row != "" && !has_named) print row
    }
    if (error != "") once(error)
}

function once(text) {
    if (!(text in said)) print text
    said[text] = has_named = 1
}

# --- tests

function panics(    n) {
    if (/^---- .* stdout ----$/) {
        begin()
    } else if (/^error: (test|doctest) failed, /) {
        end()
        if (!has_result) print "---- last words of" substr($0, index($0, " `"))
        for (n = (kept > lines ? kept - lines + 1 : 1); !has_result && n <= kept; n++) print last[n]
    } else if (/^(failures:|test result: .*|error: [0-9]+ targets? failed:)$/ || /^ +(Running|Doc-tests) /) {
        end()
    } else if (/^(error|row .* ended with )/) {
        begin()
    }
    if (/^ +(Running|Doc-tests) /) has_result = kept = 0
    if (/^test result: /) has_result = 1
    last[++kept] = $0
    if (is_open) block[++size] = $0
}

function begin() {
    end()
    is_open = 1
}

# Of a long block, the lines around its panic.
function end(    n, from) {
    for (n = from = 1; n <= size && size > lines; n++) {
        if (block[n] ~ / panicked at /) {
            from = n - int(lines / 2)
            break
        }
    }
    if (from > size - lines + 1) from = size - lines + 1
    if (from < 1) from = 1
    if (from > 1) {
        print block[1]
        print "    ... " from - 2 " lines before"
    }
    for (n = from; n < from + lines && n <= size; n++) print block[n]
    if (n <= size) print "    ... " size - n + 1 " more lines"
    is_open = size = 0
}

function names(    at) {
    if (/^ +(Running|Doc-tests) /) {
        flush("")
        if (died != "") { print died; has_named = 1 }
        died = ""
        running = ""
    } else if (/^error: could not compile / || /^the live tests left namespaces behind:$/) {
        once($0)
    } else if (/^error: (test|doctest) failed, to rerun pass /) {
        at = $0
        sub(/.* to rerun pass /, "", at)
        gsub(/`/, "", at)
        if (count == 0) died = (running == "" ? "a test program died" : running) " (" at ")"
        flush(" (" at ")")
    } else if (/^  process didn't exit successfully: / && died != "") {
        sub(/^.*` /, "")
        print died ", " $0
        has_named = 1
        died = ""
    } else if (/^failures:$/) {
        listing = 1
        count = 0
    } else if (/^row .* ended with /) {
        if (row == "") row = $0
    } else if (listing && /^    [^ ]/) {
        name[++count] = substr($0, 5)
    } else if (/^test result: /) {
        if (!/^test result: FAILED/) count = 0
        listing = 0
        running = ""
    } else if (listing && !/^$/) {
        # The first `failures:`, with what the tests printed.
        listing = 0
        count = 0
    } else if (/^test [^ ]+ \.\.\. / && !/ (ok|FAILED|ignored.*)$/) {
        running = $2
    } else if (/^(ok|FAILED)$/) {
        running = ""
    }
}

function flush(where,    n) {
    for (n = 1; n <= count; n++) print name[n] where
    if (count) has_named = 1
    count = 0
}
