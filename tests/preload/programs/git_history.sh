# A repository's life: commits, branches, a merge, packing, a clone, and the questions asked of it.
# Names and dates are fixed, so the identifiers of all objects are the same in every run.
set -eu
export GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0
export GIT_AUTHOR_NAME=Author GIT_AUTHOR_EMAIL=author@example.invalid
export GIT_COMMITTER_NAME=Author GIT_COMMITTER_EMAIL=author@example.invalid
export GIT_AUTHOR_DATE='2024-02-29T12:00:00Z' GIT_COMMITTER_DATE='2024-02-29T12:00:00Z'

git init --quiet --initial-branch=main repository
cd repository
git config gc.auto 0
git config pack.threads 2

commit() {
    git add --all
    git commit --quiet --message "$1"
}

for number in $(seq 1 25); do
    mkdir -p "folder$((number % 5))"
    seq 1 $((number * 40)) | sed "s/\$/ line of version $number/" > "folder$((number % 5))/file$number"
    seq "$number" $((number + 3000)) > grows
    commit "Change $number"
done
git switch --quiet --create side main~10
echo side > beside
commit 'Work beside'
git switch --quiet main
git merge --quiet --no-edit side
git tag --annotate --message 'A tag' v1

git log --graph --stat --format='%H %s' | sha256sum
git blame --root grows | sha256sum
git diff main~20 main | sha256sum
git grep --count 'version 7' main | head -n 5
git gc --quiet --prune=now
git fsck --full --strict --no-progress
git rev-list --objects --all | sort | sha256sum
git count-objects -v | grep -E '^(count|in-pack|packs):'

cd ..
git clone --quiet --no-local repository copy
git -C copy log -1 --format='%H %T %s'
git -C copy archive --format=tar main | sha256sum
diff --recursive --exclude=.git repository copy
echo the clone is the same
rm -rf repository copy
