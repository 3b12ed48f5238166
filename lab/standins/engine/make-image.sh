#!/bin/sh
# Runs in the guest: packs a root file system for the engine image from the guest's own files (a shell, Python, numactl) and the
# stand-in engine, as a tar on standard output. No registry is asked.
# make-image.sh ENGINE-FOLDER
set -eu
engine=$1
root=$(mktemp -d /var/tmp/engine-image.XXXXXX)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/usr/bin" "$root/usr/lib" "$root/usr/lib64" "$root/etc" "$root/tmp" "$root/run" "$root/proc" "$root/sys" "$root/dev" "$root/root" "$root/opt" "$root/models"
for link in bin lib lib64; do ln -s "usr/$link" "$root/$link"; done
chmod 1777 "$root/tmp"
programs=$(for name in sh bash python3 numactl cat ls sleep env grep id mkdir rm dd; do command -v "$name"; done)
python=$(readlink -f "$(command -v python3)")
version=$(basename "$python")
# What programs and Python's own modules are linked with, by ldd; the loader is among it.
{
    echo "$python"
    echo "$programs"
    find /usr/lib -name libgcc_s.so.1 # Python asks for it where a thread ends
    ldd "$python" $programs "/usr/lib/$version/lib-dynload"/*.so 2>/dev/null | grep -o '/[^ :]*\.so[^ :]*' | sort -u
} | sort -u | tar -C / -c -h --transform='s,^/*\(lib\|lib64\|bin\)/,usr/\1/,' -T - -P 2>/dev/null | tar -C "$root" -x -P --transform='s,^/*,,' 2>/dev/null
tar -C / -c --exclude=__pycache__ --exclude=test --exclude=idlelib --exclude=ensurepip --exclude=tkinter --exclude=config-3\* --exclude=pydoc_data \
    "usr/lib/$version" | tar -C "$root" -x
printf 'root:x:0:0:root:/root:/bin/sh\nengine:x:1000:1000:engine:/tmp:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\nengine:x:1000:\n' >"$root/etc/group"
cp -r "$engine" "$root/opt/standin"
# GPUs' libraries come from the host by CDI; the loader's cache would not know them, so their folder is a default one.
tar -C "$root" -c .
