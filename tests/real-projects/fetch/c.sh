# Debian: the source package's archives, found through lists of our own, so that the machine's stay as they are.
case $1 in
download)
    sources=$CACHE/apt/sources
    mkdir -p "$sources" "$CACHE/apt/lists/partial" "$CACHE/apt/archives/partial"
    # The machine's own mirrors of Debian, asked for sources.
    if [ -f /etc/apt/sources.list.d/debian.sources ]; then
        sed 's/^Types:.*/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >"$sources/debian.sources"
    else
        sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >"$sources/debian.list"
    fi
    apt() {
        apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$sources" -o Dir::State::lists="$CACHE/apt/lists" \
            -o Dir::Cache="$CACHE/apt" -o APT::Sandbox::User= -o Acquire::Retries=1 -o Acquire::http::Timeout=20 "$@"
    }
    apt update
    apt source --download-only "$PACKAGE=$VERSION"
    # Upstream's archive: Debian's changes to it are not needed.
    rm -f ./*.dsc ./*.debian.tar.* ./*.asc
    ;;
prepare)
    mkdir project
    tar --extract --file "$ARCHIVES"/*.orig.tar.* --directory project --strip-components 1
    ;;
esac
