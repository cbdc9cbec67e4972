# An archive packed by xz in several threads, unpacked, compared; then the other compressors.
# Names, owners and times in the archive are fixed: it is the same byte for byte in every run.
set -eu
mkdir tree
for number in 1 2 3 4 5 6; do
    seq $((number * 1000)) $((number * 1000 + 90000)) > "tree/numbers$number"
done
ln -s numbers1 tree/link

fixed='--sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner'
# shellcheck disable=SC2086  # several options in one word
tar $fixed --create --file=tree.tar.xz --use-compress-program='xz -T4 -3 --block-size=1MiB' tree
tar --list --verbose --file=tree.tar.xz
mkdir unpacked
tar --extract --file=tree.tar.xz --directory=unpacked
diff --recursive tree unpacked/tree
xz --test --threads=4 tree.tar.xz
xz --robot --list tree.tar.xz | tail -n 1 | cut -f 2-5
# shellcheck disable=SC2086
tar $fixed --create --xz --file=again.tar.xz tree
sha256sum tree.tar.xz again.tar.xz
