# Packages of another release of Debian than the machine's; to be sourced.

# Lets apt ask the machine's own archive for a suite, with lists and settings of their own in a
# folder: the machine's packages and its lists stay as they are.
use_suite() {
    local suite=$1 dir=$2 archive signed=/usr/share/keyrings/debian-archive-keyring.gpg
    archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' |
        head -n 1)
    mkdir -p "$dir"/lists/partial "$dir"/cache/archives/partial
    echo "deb [signed-by=$signed] ${archive:?no archive of Debian} $suite main" >"$dir/sources"
    cat >"$dir/conf" <<CONF
Dir::Etc::sourcelist "$dir/sources";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$dir/lists";
Dir::Cache "$dir/cache";
APT::Sandbox::User "root";
CONF
    export APT_CONFIG=$dir/conf
    apt-get -qq update
}
