//! Compiles the floor's contract without protoc.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["floor.proto"], ["proto"])?;
    tonic_prost_build::compile_fds(descriptors)?;
    Ok(())
}
