#!/bin/sh
# Installs PushChat Relay from its tarball, on Linux with systemd and glibc 2.36 or later. Downloads nothing.
#
#     sudo sh install.sh [--key KEYRING] [--downgrade] pushchat-VERSION-linux-MACHINE.tar.gz
#     sudo sh install.sh --uninstall [--purge]
#
# Checks the tarball against SHA256SUMS beside it. With --key, also checks the signature SHA256SUMS.asc with the public keys
# in KEYRING. Run it again with a newer tarball to upgrade. An older one needs --downgrade, because an old tarball with a good
# signature may have known defects. --uninstall keeps configuration and data; --purge deletes them.
set -eu

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

key='' action=install downgrade='' purge='' tarball=''
while [ $# -gt 0 ]; do
    case $1 in
        --key) [ $# -gt 1 ] || fail "--key needs a file"; key=$2; shift ;;
        --downgrade) downgrade=yes ;;
        --uninstall) action=uninstall ;;
        --purge) purge=yes ;;
        --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit ;;
        -*) fail "unknown option $1; see --help" ;;
        *) [ -z "$tarball" ] || fail "name one tarball"; tarball=$1 ;;
    esac
    shift
done
[ "$(id -u)" = 0 ] || fail "run it as root, with sudo"

units='pushchat.service pushchat-backup.service pushchat-backup.timer'
has_systemd=''
[ ! -d /run/systemd/system ] || has_systemd=yes

if [ $action = uninstall ]; then
    [ -z "$has_systemd" ] || systemctl disable --now $units || true
    for unit in $units; do rm -f "/etc/systemd/system/$unit"; done
    [ -z "$has_systemd" ] || systemctl daemon-reload
    rm -f /usr/local/bin/pushchat /usr/local/share/man/man1/pushchat.1 /usr/local/share/man/man1/pushchat-*.1
    rm -f /usr/local/share/bash-completion/completions/pushchat
    rm -rf /usr/local/share/doc/pushchat
    if [ -n "$purge" ]; then
        rm -rf /etc/pushchat /var/lib/pushchat
        rmdir /var/backups/pushchat 2>/dev/null || [ ! -d /var/backups/pushchat ] || echo "The backups in /var/backups/pushchat stay."
    else
        echo "/etc/pushchat and /var/lib/pushchat stay. --uninstall --purge deletes them."
    fi
    exit
fi
[ -z "$purge" ] || fail "--purge: only with --uninstall"
[ -n "$tarball" ] || fail "name the tarball; see --help"
[ -f "$tarball" ] || fail "$tarball does not exist"

# ----- Verify

# Root reads each file once, into a folder that only root can change. So another user cannot exchange a file between its
# check and its use. The system may not allow programs to run from /tmp.
install -d /usr/local
work=$(mktemp -d -p /usr/local)
trap 'rm -rf "$work"' EXIT
name=$(basename "$tarball")
sums=$(dirname "$tarball")/SHA256SUMS
[ -f "$sums" ] || fail "$sums is missing; it belongs beside the tarball"
cat <"$tarball" >"$work/tarball"
cat <"$sums" >"$work/SHA256SUMS"
if [ -n "$key" ]; then
    command -v gpgv >/dev/null || fail "--key needs the program gpgv"
    [ -f "$sums.asc" ] || fail "$sums.asc is missing; it has the signature"
    cat <"$sums.asc" >"$work/SHA256SUMS.asc"
    cat <"$key" >"$work/keyring"
    gpgv --quiet --keyring "$work/keyring" "$work/SHA256SUMS.asc" "$work/SHA256SUMS" || fail "the signature of $sums is wrong"
    echo "The signature is good."
else
    echo "The signature was not checked, because no key was given with --key."
fi
wanted=$(awk -v name="$name" '$2 == name { print $1 }' "$work/SHA256SUMS")
[ -n "$wanted" ] || fail "$sums does not list $name"
[ "$(sha256sum <"$work/tarball" | cut -d ' ' -f 1)" = "$wanted" ] || fail "$name is damaged, or is another file than in $sums"
echo "The checksum is good."
# Before anything is installed, run the program once: it must be for this machine, and needs SQLite, zlib, libstdc++ and libgcc.
new=$work/new
mkdir "$new"
tar --extract --gzip --file "$work/tarball" --directory "$new" --strip-components 1 --no-same-owner
shown=$("$new/pushchat" --version) || fail "the program does not run here: it needs this kind of processor, glibc 2.36 or later, SQLite, zlib, libstdc++ and libgcc"
echo "$shown"
version=$(echo "$shown" | awk '{ print $2 }')
installed=$(/usr/local/bin/pushchat --version 2>/dev/null | awk '{ print $2 }')
if [ -n "$installed" ] && [ "$installed" != "$version" ] && [ -z "$downgrade" ]; then
    newest=$(printf '%s\n' "$installed" "$version" | sort -V | tail -n 1)
    [ "$newest" = "$version" ] || fail "$installed is installed, and $version is older; to install it nevertheless, add --downgrade"
fi

# ----- Install

getent passwd pushchat >/dev/null \
    || useradd --system --user-group --home-dir /var/lib/pushchat --no-create-home --shell /usr/sbin/nologin pushchat
install -d -m 700 -o pushchat -g pushchat /var/lib/pushchat /var/backups/pushchat
install -d -m 750 -o root -g pushchat /etc/pushchat
[ -e /etc/pushchat/pushchat.yaml ] || install -m 640 -o root -g pushchat "$new/pushchat.yaml" /etc/pushchat/pushchat.yaml
if [ ! -s /etc/pushchat/admin.token ]; then
    (umask 077 && od -An -v -N32 -tx1 /dev/urandom | tr -d ' \n' >/etc/pushchat/admin.token.new)
    chown root:pushchat /etc/pushchat/admin.token.new
    chmod 640 /etc/pushchat/admin.token.new
    mv /etc/pushchat/admin.token.new /etc/pushchat/admin.token
fi
install -d /usr/local/bin /usr/local/share/man/man1 /usr/local/share/bash-completion/completions /usr/local/share/doc/pushchat \
    /etc/systemd/system
# A running relay keeps the old file until its restart.
install -m 755 "$new/pushchat" /usr/local/bin/pushchat.new
mv /usr/local/bin/pushchat.new /usr/local/bin/pushchat
install -m 644 "$new"/man/*.1 /usr/local/share/man/man1
install -m 644 "$new/completions/bash/pushchat" /usr/local/share/bash-completion/completions/pushchat
cp -R "$new/docs" "$new/README.md" "$new/CHANGELOG.md" "$new/LICENSE" "$new/copyright" "$new/schema.sql" "$new/certbot-hook" \
    /usr/local/share/doc/pushchat
for unit in $units; do install -m 644 "$new/$unit" "/etc/systemd/system/$unit"; done
if [ -n "$has_systemd" ]; then
    systemctl daemon-reload
    systemctl enable pushchat.service
    systemctl restart pushchat.service
fi
echo "PushChat Relay is installed. Its settings: /etc/pushchat/pushchat.yaml. To check them:"
echo "    sudo -u pushchat pushchat check --config /etc/pushchat/pushchat.yaml"
