#!/bin/sh
# Runs while the image is built, with the new root as $1: users, and nothing at boot that a lab does not need.
set -eu
root=$1
rm -f "$root"/etc/ssh/ssh_host_* "$root"/etc/apt/apt.conf.d/99mmdebstrap
: >"$root/etc/machine-id"
echo '/dev/vda / ext4 defaults 0 0' >"$root/etc/fstab"

# root by key; ops may use sudo, visitor may not: both kinds of user meet an audit on real servers.
for user in ops visitor; do
    chroot "$root" useradd --create-home --shell /bin/bash "$user"
done
for user in root ops visitor; do
    chroot "$root" usermod --password '*' "$user"
done
echo 'ops ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/ops"
chmod 0440 "$root/etc/sudoers.d/ops"

chroot "$root" systemctl enable ssh.service >/dev/null 2>&1
# Newer servers punish a client that knocks while the machine boots: the lab does just that.
if grep -q PerSourcePenalties "$root/usr/sbin/sshd"; then
    echo 'PerSourcePenalties no' >"$root/etc/ssh/sshd_config.d/penalties.conf"
fi
# Without these the boot takes about half the time under emulation. logind stays: its RemoveIPC is part of the real thing.
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer \
    logrotate.timer man-db.timer systemd-tmpfiles-clean.timer getty@tty1.service serial-getty@ttyS0.service \
    ldconfig.service systemd-timesyncd.service systemd-hwdb-update.service systemd-networkd.service \
    systemd-sysusers.service systemd-random-seed.service systemd-update-utmp.service systemd-pcrphase.service \
    systemd-journal-catalog-update.service systemd-journal-flush.service systemd-udev-load-credentials.service \
    systemd-tpm2-setup.service systemd-tpm2-setup-early.service modprobe@configfs.service modprobe@drm.service \
    modprobe@efi_pstore.service modprobe@fuse.service modprobe@dm_mod.service modprobe@loop.service \
    kmod-static-nodes.service systemd-tmpfiles-setup-dev-early.service systemd-firstboot.service \
    apparmor.service systemd-binfmt.service podman-auto-update.timer podman-restart.service podman.socket netavark-dhcp-proxy.service netavark-dhcp-proxy.socket \
    sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount \
    systemd-hostnamed.socket systemd-creds.socket systemd-sysext.socket systemd-bootctl.socket systemd-pcrextend.socket \
    systemd-pcrlock.socket systemd-factory-reset-request.socket systemd-mountfsd.socket proc-sys-fs-binfmt_misc.automount; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
rm -f "$root"/etc/systemd/system/multi-user.target.wants/docker-registry.service
mkdir -p "$root/etc/systemd/system-generators"
for generator in systemd-ssh-generator systemd-cryptsetup-generator systemd-gpt-auto-generator systemd-hibernate-resume-generator \
    systemd-tpm2-generator systemd-veritysetup-generator systemd-integritysetup-generator systemd-getty-generator; do
    ln -sf /dev/null "$root/etc/systemd/system-generators/$generator"
done
rm -rf "$root"/var/log/* "$root"/var/cache/* "$root"/var/lib/apt/lists/* "$root"/usr/share/doc/* "$root"/usr/share/info/*
mkdir -p "$root/var/log/journal" "$root/var/cache/apt/archives/partial" "$root/var/lib/apt/lists/partial"
