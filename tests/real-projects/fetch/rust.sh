# crates.io: the crate's archive, and what its own Cargo.lock names, as a vendor folder.
case $1 in
download)
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    mkdir "$scratch/src"
    : >"$scratch/src/lib.rs"
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n%s = "=%s"\n[workspace]\n' "$PACKAGE" "$VERSION" \
        >"$scratch/Cargo.toml"
    cargo fetch --quiet --manifest-path "$scratch/Cargo.toml"
    cp "${CARGO_HOME:-$HOME/.cargo}"/registry/cache/*/"$PACKAGE-$VERSION.crate" "$ARCHIVES/"
    ;;
prepare)
    mkdir -p project/.cargo
    tar --extract --file "$ARCHIVES"/*.crate --directory project --strip-components 1
    cd project
    printf '\n[workspace]\n' >>Cargo.toml
    cargo vendor --quiet --locked --versioned-dirs ../vendor
    printf '[source.crates-io]\nreplace-with = "vendored"\n[source.vendored]\ndirectory = "../vendor"\n' >.cargo/config.toml
    ;;
esac
