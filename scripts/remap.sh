# Flags by which built programs name no path of the machine that builds them, so that the folder of
# the build, the home of its user and the place of the compiler change no byte. To be sourced, in the
# folder of the repository, before cargo.
#
# shellcheck shell=sh

remap_target=${CARGO_TARGET_DIR:-target}
for remap_path in \
    "$(realpath -m "$remap_target")=/usr/src/sluice/target" \
    "$(pwd -P)=/usr/src/sluice" \
    "${CARGO_HOME:-$HOME/.cargo}=/usr/src/cargo" \
    "$(rustc --print sysroot)=/usr/src/rust"; do
    case $remap_path in
    *[[:space:]]*)
        echo "${remap_path%=*}: build in a folder without blanks in its path" >&2
        exit 1
        ;;
    esac
    # The last of those that fit counts, for rustc and for C.
    RUSTFLAGS="--remap-path-prefix=$remap_path ${RUSTFLAGS:-}"
    CFLAGS="-ffile-prefix-map=$remap_path ${CFLAGS:-}"
done
export RUSTFLAGS CFLAGS
