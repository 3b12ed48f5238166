"""The patched SGLang image on every host of an inventory: `pyinfra INVENTORY deploys/image.py -y`.

Builds it on the host from a base by digest, or loads it from an archive that lies there, with docker or podman. Nothing
happens where the right image exists. The files inside a new image are checked before it gets the name; where anything is
refused, the older image keeps it. docs/image.md says what the patch does and for whom. Options are data:

    --data nearsocket_image_tag=sglang-near:0.5.23
    --data nearsocket_image_base=lmsysorg/sglang@sha256:...     or     --data nearsocket_image_archive=/srv/sglang-near.tar
    --data nearsocket_image_engine=podman        default: the first of docker and podman that answers
    --data nearsocket_image_python=/opt/venv/bin/python         the interpreter inside the image, default python3
    --data nearsocket_image_space_gib=100        free room to ask for
    --data nearsocket_image_timeout=3600         seconds for the pull, the build or the load
"""

from pyinfra import host

from nearsocket import paths
from nearsocket.control.image import image_on_host

image_on_host(host, paths.templates_folder() / "image")
