#!/bin/sh
# Makes .venv hold what requirements/$1.txt locks (run; dev, which holds all of run; or clients, which holds all of dev), and does nothing when it already does.
# Everything here is plain POSIX sh, for it runs before anything else is known to exist.
set -eu
cd "$(dirname "$0")/.."
wanted=$1

say() { printf '%s\n' "$*" >&2; }

# What an installation depends on: the interpreter (a new minor version does not see the old one's packages),
# the place (scripts in a moved .venv point to the old one) and the locked list itself.
state() { .venv/bin/python -V && pwd -P && cat "requirements/$1.txt"; }

up_to_date() { [ -f ".venv/$wanted.stamp" ] && state "$wanted" 2>/dev/null | cmp -s - ".venv/$wanted.stamp"; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

usable() {
    new_enough .venv/bin/python &&
        grep -qF "$(pwd -P)/.venv" .venv/bin/activate 2>/dev/null &&
        .venv/bin/python -m pip --version >/dev/null 2>&1
}

# A Python that somebody named is taken or refused; only the default may be replaced by a newer one beside it.
find_python() {
    python=${PYTHON:-python3}
    if new_enough "$python"; then return; fi
    if [ "$python" = python3 ]; then
        for python in python3.14 python3.13 python3.12 python3.11; do
            if new_enough "$python"; then return; fi
        done
        python=python3
    fi
    if version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null); then
        say "Python 3.11 or newer is needed and $python is $version: install a newer one, or name one with PYTHON=/path/to/python."
    else
        say "Python 3.11 or newer is needed and $python does not run: apt-get install python3 python3-venv, or name one with PYTHON=/path/to/python."
    fi
    exit 1
}

make_venv() {
    find_python
    if [ -L .venv ]; then rm .venv; fi # --clear would empty somebody else's behind the link
    if output=$("$python" -m venv --clear .venv 2>&1); then return; fi
    # What a failed attempt leaves behind looks like a .venv and has no pip.
    rm -rf .venv
    case $output in
        *ensurepip* | *"No module named"*venv*)
            package=python3-venv
            case ${python##*/} in python3.*) package=${python##*/}-venv ;; esac
            say "$python cannot make virtual environments because its venv module is not installed: apt-get install $package, then try again."
            ;;
        *)
            say "$python -m venv .venv failed:"
            say "$output"
            ;;
    esac
    exit 1
}

if up_to_date; then exit; fi

# Two makes at once would take each other's .venv apart. The lock is on this very file, so that none is left lying about,
# and it ends with the process; where there is no flock, there is no lock.
if command -v flock >/dev/null 2>&1; then
    exec 9<requirements/install.sh
    if ! flock -n 9; then
        say "Another make is installing into .venv; waiting for it …"
        flock 9
    fi
    if up_to_date; then exit; fi
fi

if ! usable; then make_venv; fi

say "Installing $(grep -c '^[a-z0-9].*==' "requirements/$wanted.txt") packages into .venv (once) …"
rm -f ".venv/$wanted.stamp"
if ! .venv/bin/python -m pip install -qq --disable-pip-version-check --no-input --require-hashes -r "requirements/$wanted.txt"; then
    say "pip could not install requirements/$wanted.txt; its own words are above. The next try goes on from here."
    exit 1
fi
state "$wanted" >".venv/$wanted.stamp"
# Each list holds the one before it with the same versions.
case $wanted in
    clients) state dev >.venv/dev.stamp && state run >.venv/run.stamp ;;
    dev) state run >.venv/run.stamp ;;
esac
