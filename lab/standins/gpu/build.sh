#!/bin/sh
# Runs in a throw-away Debian root: builds the stand-in driver in two versions and a package repository of it.
# build.sh RELEASE SOURCES OUT VERSION...
set -eu
release=$1 sources=$2 out=$3
shift 3
mkdir -p "$out"
package() { # package NAME VERSION DEPENDS DESCRIPTION: make a package of the folder pkg
    mkdir -p pkg/DEBIAN
    {
        echo "Package: $1"
        echo "Version: $2-0standin1"
        echo "Architecture: amd64"
        echo "Maintainer: nearsocket lab <lab@localhost>"
        [ -z "$3" ] || echo "Depends: $3"
        echo "Section: misc"
        echo "Priority: optional"
        echo "Description: $4 (stand-in, no GPU behind it)"
    } >pkg/DEBIAN/control
    dpkg-deb --root-owner-group -Zgzip -b pkg "$out/$1_$2-0standin1_amd64.deb" >/dev/null
    rm -rf pkg
}
for version in "$@"; do
    work=$(mktemp -d)
    cp -r "$sources/." "$work"
    cd "$work"
    make -s -C "/usr/src/linux-headers-$release" M="$work/module" STANDIN_VERSION="$version" modules
    mkdir -p "pkg/usr/lib/modules/$release/updates/dkms" pkg/DEBIAN
    strip --strip-debug -o "pkg/usr/lib/modules/$release/updates/dkms/nvidia.ko" module/nvidia.ko
    printf '#!/bin/sh\nexec depmod %s\n' "$release" >pkg/DEBIAN/postinst
    chmod 755 pkg/DEBIAN/postinst
    package nvidia-kernel-standin "$version" "" "kernel module"
    lib=pkg/usr/lib/x86_64-linux-gnu
    mkdir -p "$lib"
    gcc -O1 -Wall -Wextra -Werror -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 "-DSTANDIN_VERSION=\"$version\"" -o "$lib/libnvidia-ml.so.$version" nvml.c
    gcc -O1 -Wall -Wextra -Werror -shared -fPIC -Wl,-soname,libcuda.so.1 "-DSTANDIN_VERSION=\"$version\"" -o "$lib/libcuda.so.$version" cuda.c
    ln -s "libnvidia-ml.so.$version" "$lib/libnvidia-ml.so.1"
    ln -s "libcuda.so.$version" "$lib/libcuda.so.1"
    package libnvidia-compute-standin "$version" "" "NVML and CUDA libraries"
    mkdir -p pkg/usr/bin
    install -m 755 nvidia_smi.py pkg/usr/bin/nvidia-smi
    package nvidia-utils-standin "$version" "python3, libnvidia-compute-standin (= $version-0standin1)" "nvidia-smi"
done
cd "$out"
for file in *.deb; do
    dpkg-deb -f "$file"
    echo "Filename: ./$file"
    echo "Size: $(stat -c %s "$file")"
    echo "SHA256: $(sha256sum "$file" | cut -d' ' -f1)"
    echo
done >Packages
