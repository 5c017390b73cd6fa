# The Go module proxy: the module's archive, and what its go.mod names, as a vendor folder.
export GOTOOLCHAIN=local GOFLAGS=-mod=mod GOWORK=off
field() {
    (cd / && go mod download -json "$PACKAGE@$VERSION") | sed -n "s/^\t\"$1\": \"\(.*\)\",*\$/\1/p"
}
case $1 in
download)
    cp "$(field Zip)" "$ARCHIVES/"
    ;;
prepare)
    cp -R "$(field Dir)" project
    chmod -R u+w project
    cd project
    go mod vendor
    ;;
esac
