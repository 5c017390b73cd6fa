//! Compiles the contract without protoc: protox parses it, tonic and pbjson generate from the same descriptor set.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut files: Vec<PathBuf> =
        fs::read_dir(root.join("belay/v1"))?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.sort();
    println!("cargo::rerun-if-changed={}", root.join("belay/v1").display());

    let descriptors = protox::compile(&files, [&root])?;
    let bytes = descriptors.encode_to_vec();
    fs::write(out.join("belay_descriptor.bin"), &bytes)?;

    tonic_prost_build::configure()
        .compile_well_known_types(true)
        // Ordered maps: the same message always has the same bytes.
        .btree_map(".")
        .extern_path(".google.protobuf", "::pbjson_types")
        .compile_fds(descriptors)?;
    pbjson_build::Builder::new().register_descriptors(&bytes)?.btree_map(["."]).build(&[".belay.v1"])?;
    Ok(())
}
