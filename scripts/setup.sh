#!/usr/bin/env bash
# Installs what the checks and tests need, on a machine that has only Python, make and apt.
# Usage: scripts/setup.sh venv|app|postgres|strace|faketime|pgbouncer|chromium|redis|rabbitmq|ffmpeg|systemd-analyze|promtool|fonts      Prints nothing when there is nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else say "this needs root or sudo: $*"; return 1
    fi
}

apt_install() {
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# Two `make` in one tree would write the same .venv, so the second waits for the first.
setup_venv() {
    exec 9<pyproject.toml
    flock 9
    if ! "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; then
        say "installing python3-venv: this Python has no venv module"
        apt_install python3-venv
    fi
    local which='import sys; print(sys.version, sys.base_prefix)'
    if [ "$(.venv/bin/python -c "$which" 2>/dev/null)" != "$("$PYTHON" -c "$which")" ]; then
        say "creating .venv with $("$PYTHON" --version)"
        "$PYTHON" -m venv --clear .venv
    fi
    say "$2"
    .venv/bin/python -m pip install -qq --disable-pip-version-check --editable "$1"
}

# The tests start their own server and need only its binaries. Without initdb in Debian's folder no Debian cluster can
# exist, so this install cannot upgrade or restart a running one. The drop-in file prevents the package from creating and
# starting its usual "main" cluster; it is removed again.
setup_postgres() {
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null && return
    command -v initdb >/dev/null && return
    say "installing the PostgreSQL server binaries (no cluster is created or started)"
    local folder=/etc/postgresql-common/createcluster.d
    local dropin=$folder/zz-pitboss-tests.conf
    apt_install postgresql-common
    as_root mkdir -p "$folder"
    echo 'create_main_cluster = false' | as_root tee "$dropin" >/dev/null
    # shellcheck disable=SC2064  # expanded now: the local is gone when the trap runs
    trap "as_root rm -f '$dropin'" EXIT
    apt_install postgresql
}

# Records the system calls of the embedded store, for the tests that simulate a loss of power.
setup_strace() {
    command -v strace >/dev/null && return
    say "installing strace"
    apt_install strace
}

# Sets the clock of single processes, for the tests in which a host's or a server's clock is set.
setup_faketime() {
    compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null && return
    say "installing libfaketime"
    apt_install libfaketime
}

# The policy prevents a package from starting its service, and is removed again. An existing policy is left alone.
apt_install_stopped() {
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod +x "$policy"
        # shellcheck disable=SC2064  # expanded now: the local is gone when the trap runs
        trap "as_root rm -f '$policy'" EXIT
    fi
    apt_install "$@"
}

# Some tests start a PgBouncer of their own.
setup_pgbouncer() {
    command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] && return
    say "installing pgbouncer (its service is not started)"
    apt_install_stopped pgbouncer
}

# The tests of browsing drive the system's browser with Playwright's Python package, which is in the dev extra.
setup_chromium() {
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null && return
    say "installing chromium"
    apt_install chromium
}

# The benchmarks start a Redis of their own. Its service must not start with the machine either.
setup_redis() {
    command -v redis-server >/dev/null && return
    say "installing redis-server (its service is not started)"
    apt_install_stopped redis-server
    if command -v systemctl >/dev/null; then as_root systemctl disable --quiet redis-server || true; fi
}

# The tests start a RabbitMQ of their own. Its service, and that of Erlang's name server, must not start with the machine.
setup_rabbitmq() {
    command -v rabbitmq-server >/dev/null || [ -x /usr/sbin/rabbitmq-server ] && return
    say "installing rabbitmq-server (its service is not started)"
    apt_install_stopped rabbitmq-server
    if command -v systemctl >/dev/null; then as_root systemctl disable --quiet rabbitmq-server epmd.socket epmd || true; fi
}

# The media example cuts and converts real files.
setup_ffmpeg() {
    command -v ffmpeg >/dev/null && return
    say "installing ffmpeg"
    apt_install ffmpeg
}

# Checks the units in deploy/systemd. The package starts nothing.
setup_systemd_analyze() {
    command -v systemd-analyze >/dev/null && return
    say "installing systemd, for systemd-analyze"
    apt_install systemd
}

# Checks the metrics, and the rules in deploy/prometheus. Debian has it in the package of the server, which must not start.
setup_promtool() {
    command -v promtool >/dev/null && return
    say "installing prometheus, for promtool (its service is not started)"
    apt_install_stopped prometheus
    if command -v systemctl >/dev/null; then as_root systemctl disable --quiet prometheus || true; fi
}

# Pictures of the dashboard show the same letters on each machine: only the fonts that are named here.
setup_fonts() {
    local file=build/fonts/fonts.conf
    if ! [ -d /usr/share/fonts/opentype/inter ] || ! [ -d /usr/share/fonts/truetype/dejavu ]; then
        say "installing the fonts Inter and DejaVu"
        apt_install fonts-inter fonts-dejavu-core
    fi
    [ -e "$file" ] && return
    mkdir -p build/fonts
    cat >"$file" <<EOF
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir>/usr/share/fonts/opentype/inter</dir>
  <dir>/usr/share/fonts/truetype/dejavu</dir>
  <cachedir>$PWD/build/fonts/cache</cachedir>
  <alias><family>sans-serif</family><prefer><family>Inter</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
EOF
}

case "${1:-}" in
    venv) setup_venv '.[dev]' "installing pitboss and its tools into .venv (about a minute the first time)" ;;
    app) setup_venv '.[amqp]' "installing pitboss into .venv (half a minute the first time)" ;;
    postgres) setup_postgres ;;
    strace) setup_strace ;;
    faketime) setup_faketime ;;
    pgbouncer) setup_pgbouncer ;;
    chromium) setup_chromium ;;
    redis) setup_redis ;;
    rabbitmq) setup_rabbitmq ;;
    ffmpeg) setup_ffmpeg ;;
    systemd-analyze) setup_systemd_analyze ;;
    promtool) setup_promtool ;;
    fonts) setup_fonts ;;
    *) echo "usage: $0 venv|app|postgres|strace|faketime|pgbouncer|chromium|redis|rabbitmq|ffmpeg|systemd-analyze|promtool|fonts" >&2; exit 2 ;;
esac
