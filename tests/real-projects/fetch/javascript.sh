# npm: the package's archive, and what package-lock.json names, without install scripts.
case $1 in
download)
    npm pack --silent --pack-destination "$ARCHIVES" "$PACKAGE@$VERSION"
    ;;
prepare)
    mkdir project
    tar --extract --file "$ARCHIVES"/*.tgz --directory project --strip-components 1
    cp "$PIN/package.json" "$PIN/package-lock.json" .
    npm ci --silent --ignore-scripts --no-audit --no-fund
    ;;
esac
