"""What is put in a driver upgrade's way on a lab machine, as shell scripts."""

from __future__ import annotations

from lab.standins.equip import REPOSITORY
from lab.standins.gpu.nvidia_ctk import FAULTS
from lab.standins.gpu.packages import NEWER, VERSION

#: The distribution's mirror is out of the lab's reach, and its lists take minutes to read under emulation.
ALONE = (
    "mkdir -p /var/tmp/sources; mv /etc/apt/sources.list /etc/apt/sources.list.d/debian* /var/tmp/sources/ 2>/dev/null || :; "
    "printf 'Acquire::Languages \"none\";\\n' >/etc/apt/apt.conf.d/00lab; apt-get -qq update"
)
#: package NAME VERSION MORE [USR]: a package in /var/tmp, with more of its control file and what it has below /usr.
PACKAGE = """package() { d=$(mktemp -d); chmod 755 $d; mkdir $d/DEBIAN; [ -z "$4" ] || cp -r $4 $d/usr
printf 'Package: %s\\nVersion: %s\\nArchitecture: all\\nMaintainer: lab <lab@localhost>\\n' $1 $2 >$d/DEBIAN/control
printf '%sDescription: lab\\n' "$3" >>$d/DEBIAN/control
dpkg-deb -b $d /var/tmp/$1_$2_all.deb >/dev/null; }; """
BRAKE = f"""set -e; {PACKAGE} package brake 1 'Breaks: nvidia-kernel-standin (>> {VERSION}-0standin1)
'; dpkg -i /var/tmp/brake_1_all.deb >/dev/null; apt-mark hold brake"""
#: A module that DKMS is to build, beside the built one.
DKMS = f"""set -e; {PACKAGE} cd /var/tmp; for v in {VERSION} {NEWER}; do mkdir -p dkms-$v/src/nvidia-$v
printf 'PACKAGE_NAME="nvidia"\\nPACKAGE_VERSION="%s"\\nBUILT_MODULE_NAME[0]="nvidia"\\nDEST_MODULE_LOCATION[0]="/updates"\\n' $v \\
  >dkms-$v/src/nvidia-$v/dkms.conf
package nvidia-dkms-standin $v-0standin1 '' dkms-$v; cp nvidia-dkms-standin_$v-0standin1_all.deb {REPOSITORY}; done
cd {REPOSITORY}; for f in nvidia-dkms-standin_*.deb; do dpkg-deb -f $f; echo "Filename: ./$f"; echo "Size: $(stat -c %s $f)"
echo "SHA256: $(sha256sum $f | cut -d' ' -f1)"; echo; done >>Packages; apt-get -qq update
dpkg -i nvidia-dkms-standin_{VERSION}-0standin1_all.deb >/dev/null"""
#: A /boot of its own with no room beside a RAM disk.
FULL_BOOT = "set -e; mount -t tmpfs -o size=3m tmpfs /boot; head -c 2M /dev/zero >/boot/initrd.img-$(uname -r)"
#: A fabric manager of another version.
FABRIC = f"set -e; {PACKAGE} package nvidia-fabricmanager 570.1.2-1 ''; dpkg -i /var/tmp/nvidia-fabricmanager_570.1.2-1_all.deb"


def kept_by_boots(fault: str, content: str) -> str:
    """Plants a stand-in's fault that is there again after a boot, which empties /run."""
    file = f"/etc/tmpfiles.d/{fault}.conf"
    return f"echo 'f {FAULTS}/{fault} 0644 root root - {content}' >{file}; systemd-tmpfiles --create {file}"
