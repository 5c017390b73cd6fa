# PyPI: the source distribution, and wheels for what its tests import.
case $1 in
download)
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary "$PACKAGE" --dest "$ARCHIVES" "$PACKAGE==$VERSION"
    ;;
prepare)
    mkdir project
    tar --extract --file "$ARCHIVES"/*.tar.gz --directory project --strip-components 1
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes --root-user-action ignore \
        --target deps --requirement "$PIN/requirements.txt"
    ;;
esac
