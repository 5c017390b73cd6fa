//! Compiles the contract without protoc: protox parses it, and everything that is generated comes from the same descriptors.

mod kinds;
mod names;
mod presence;
mod services;
mod tables;
mod texts;

use std::{env, error::Error, fs, path::PathBuf};

use protox::prost_reflect::prost::Message as _;

/// The packages of the contract. Each is a folder, and a module of this crate.
const PACKAGES: [&str; 3] = ["belay.v1", "belay.runner.v1", "belay.gate.v1"];

/// The fields that are kept in a box of their own.
const BOXED: &[&str] = &[
    ".belay.v1.ToolCallCompleted.receipt",
    ".belay.v1.ToolCallFailed.receipt",
    ".belay.v1.ToolCallDenied.receipt",
    ".belay.runner.v1.ToolCall.receipt",
    ".belay.v1.ExecutionEvent.kind.execution_created",
    ".belay.v1.ExecutionEvent.kind.execution_finished",
    ".belay.v1.ExecutionEvent.kind.execution_plan_updated",
    ".belay.v1.StepSpec.kind.agent",
    ".belay.v1.StepSpec.kind.plan",
    ".belay.v1.StepSpec.compensate",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut files = Vec::new();
    for package in PACKAGES {
        let folder = root.join(package.replace('.', "/"));
        println!("cargo::rerun-if-changed={}", folder.display());
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "proto") {
                files.push(path);
            }
        }
    }
    files.sort();
    println!("cargo::rerun-if-changed={}", root.join("build").display());
    println!("cargo::rerun-if-changed={}", root.join("google").display());

    let mut compiler = protox::Compiler::new([&root])?;
    compiler.include_source_info(true);
    compiler.include_imports(true);
    compiler.open_files(&files)?;
    // With the options' values: `prost_types` drops those of extensions.
    let bytes = compiler.encode_file_descriptor_set();
    fs::write(out.join("belay_descriptor.bin"), &bytes)?;
    let pool = compiler.descriptor_pool();
    let all = [
        ("texts.rs", texts::generate(&pool)),
        ("tables.rs", tables::generate(&pool)),
        ("kinds.rs", kinds::generate(&pool)),
    ];
    for (file, generated) in all {
        let code = generated.unwrap_or_else(|problems| {
            eprintln!("{problems}");
            std::process::exit(1)
        });
        fs::write(out.join(file), code)?;
    }

    let files = presence::without_optional_texts(compiler.file_descriptor_set());
    let mut config = prost_build::Config::new();
    // What few messages have, and would make all others of their kind as large: they are moved many times for each step.
    for field in BOXED {
        config.boxed(field);
    }
    // The codec checks requests before prost drops what it does not know.
    config.service_generator(Box::new(services::Services::new("crate::codec::CheckedCodec")));
    tonic_prost_build::configure()
        .build_client(false)
        .build_server(false)
        .compile_well_known_types(true)
        // Ordered maps: the same message always has the same bytes.
        .btree_map(".")
        .extern_path(".google.protobuf", "::pbjson_types")
        .compile_fds_with_config(files.clone(), config)?;
    pbjson_build::Builder::new()
        .register_descriptors(&files.encode_to_vec())?
        .btree_map(["."])
        .build(&PACKAGES.map(|package| format!(".{package}")))?;
    Ok(())
}
