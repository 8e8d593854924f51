# Shared by the scripts in this folder; source it, do not run it.
# shellcheck shell=bash

say() { printf '%s\n' "[${0##*/}] $*"; }

die() {
  printf '%s\n' "[${0##*/}] error: $*" >&2
  exit 1
}

need_cmd() {
  command -v "$1" >/dev/null 2>&1 || die "'$1' is missing. ${2:-Install it and run this again.}"
}

cache_dir() { printf '%s\n' "${MEMSLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/memsluice}"; }

# need_space GIB DIR...  A full disk shows as a broker that dies in the middle.
need_space() {
  local gib=$1 dir free
  shift
  for dir in "$@"; do
    mkdir -p "$dir"
    free=$(df --output=avail -BG "$dir" | tail -n 1 | tr -dc 0-9)
    [ "$free" -ge "$gib" ] || die "$dir has $free GiB free, $gib are needed: free some, or set CARGO_TARGET_DIR and TMPDIR"
  done
}

# Outside the checkout: the native libraries take minutes to build and every worktree can share them.
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$(cache_dir)/target}
export CARGO_TARGET_DIR

_apt_updated=0

_as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null 2>&1; then
    sudo "$@"
  else
    return 126
  fi
}

_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# apt_install PKG...  Does nothing, and needs no root, when every package is there.
apt_install() {
  local missing=() pkg
  command -v dpkg-query >/dev/null 2>&1 ||
    die "no dpkg here. Install what these Debian packages hold, then run this again: $*"
  for pkg in "$@"; do
    _installed "$pkg" || missing+=("$pkg")
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  local fix="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null 2>&1; then
    die "packages missing and no root. Run as root, then run this again: $fix"
  fi
  say "installing ${missing[*]}"
  if [ "$_apt_updated" -eq 0 ]; then
    _as_root apt-get update -qq || die "apt-get update failed. Try as root: $fix"
    _apt_updated=1
  fi
  _as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    die "apt-get install failed. Try as root: $fix"
}

# The library alone is not enough: bindgen also reads clang's own headers.
_has_libclang() {
  [ -n "${LIBCLANG_PATH:-}" ] && return 0
  { compgen -G '/usr/lib/llvm-*/lib/libclang.so*' || compgen -G '/usr/lib/llvm-*/lib/libclang-[0-9]*.so*'; } >/dev/null &&
    compgen -G '/usr/lib/llvm-*/lib/clang/*/include/stddef.h' >/dev/null
}

# rocksdb needs g++ and libclang, librdkafka cmake, OpenSSL make and the whole of perl.
ensure_native_deps() {
  local cmd pkgs=()
  for cmd in cmake g++ make pkg-config; do
    command -v "$cmd" >/dev/null 2>&1 || pkgs+=("$cmd")
  done
  perl -MFindBin -MIPC::Cmd -e 1 2>/dev/null || pkgs+=(perl)
  _has_libclang || pkgs+=(libclang-dev)
  [ ${#pkgs[@]} -eq 0 ] || apt_install "${pkgs[@]}"
}

# java_major  Prints the major version of `java`, or 0.
java_major() {
  local major
  major=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p') || major=
  printf '%s\n' "${major:-0}"
}

ensure_java() {
  local pkgs=()
  [ "$(java_major)" -ge 17 ] || pkgs+=(openjdk-17-jre-headless)
  command -v mvn >/dev/null 2>&1 || pkgs+=(maven)
  [ ${#pkgs[@]} -eq 0 ] || apt_install "${pkgs[@]}"
  [ "$(java_major)" -ge 17 ] || die "java 17 or newer is needed and 'java' is $(java_major). Put a newer one first in PATH."
}
